//! Lets go what is served no more. To close a tree may flush a file system, and takes its mount
//! apart, which waits for all CPUs: nobody who serves or asks should wait with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use steadfast_engine::ExportTable;
use steadfast_posixfs::{TreeOnUse, TreeOpener};
use steadfast_sys::process;

/// How long calls that began before are waited for; after that whoever is last lets it go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at whether they have ended.
const PAUSE: Duration = Duration::from_millis(20);

/// So many trees that their memory is worth giving back.
const MANY: usize = 256;

/// A table that is served no more, and trees that are not in the one that is.
type Old = (Arc<ExportTable>, Vec<Arc<TreeOnUse>>);

/// The thread that lets go.
pub(crate) struct Discarded {
    sender: Option<Sender<Old>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Discarded {
    pub(crate) fn start(opener: Arc<TreeOpener>) -> Self {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("discarded".to_owned())
            .spawn(move || let_go(&receiver, &opener))
            .ok();
        Self { sender: thread.is_some().then_some(sender), thread }
    }

    /// Lets these go once no call uses them.
    pub(crate) fn add(&self, table: Arc<ExportTable>, trees: Vec<Arc<TreeOnUse>>) {
        if let Some(sender) = &self.sender {
            // Without its thread they are let go here.
            let _ = sender.send((table, trees));
        }
    }
}

impl Drop for Discarded {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn let_go(receiver: &Receiver<Old>, opener: &TreeOpener) {
    for (table, trees) in receiver {
        let begun = Instant::now();
        while Arc::strong_count(&table) > 1 && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        drop(table);
        let were_many = trees.len() >= MANY;
        drop(trees);
        if were_many {
            opener.forget_gone();
            process::release_free_memory();
        }
    }
}
