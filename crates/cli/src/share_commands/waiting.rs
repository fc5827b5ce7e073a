//! A line on the terminal for work that takes longer than half a second.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Before anything is shown.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two pictures.
const TICK: Duration = Duration::from_millis(100);

/// Shows that something is under way until it is dropped.
pub(super) struct Waiting {
    done: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
    /// Dropped to end it.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Shows `what` if standard error is a terminal.
    pub(super) fn begin(what: &'static str) -> Self {
        let (done, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut waiting =
            Self { done: Arc::clone(&done), total: Arc::clone(&total), alive: None, thread: None };
        if std::io::stderr().is_terminal() {
            let (alive, ended) = mpsc::channel();
            let thread = std::thread::Builder::new().name("waiting".to_owned());
            let shown = thread.spawn(move || show(what, &done, &total, &ended));
            // Nobody needs it.
            waiting.thread = shown.ok();
            waiting.alive = Some(alive);
        }
        waiting
    }

    /// So many of so many are done.
    pub(super) fn note(&self, done: usize, total: usize) {
        self.done.store(done as u64, Ordering::Relaxed);
        self.total.store(total as u64, Ordering::Relaxed);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // The line is gone before anything else is printed.
            let _ = thread.join();
        }
    }
}

fn show(what: &'static str, done: &AtomicU64, total: &AtomicU64, ended: &mpsc::Receiver<()>) {
    if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    let style = |template| ProgressStyle::with_template(template).ok();
    if let Some(style) = style("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    loop {
        let all = total.load(Ordering::Relaxed);
        if all > 0 && bar.length() != Some(all) {
            bar.set_length(all);
            if let Some(style) = style("{spinner} {msg} {bar:40} {pos}/{len} {eta}") {
                bar.set_style(style);
            }
        }
        bar.set_position(done.load(Ordering::Relaxed));
        bar.tick();
        if ended.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
            bar.finish_and_clear();
            return;
        }
    }
}
