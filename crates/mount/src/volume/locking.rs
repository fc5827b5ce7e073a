//! Locks at the server, and what is done with a file's data when they are taken and given up: as Linux does it, whoever
//! has a lock sees what others have written before they gave theirs up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{INodeNo, Notifier};
use steadfast_client::Identity;

use super::files::OpenFile;
use super::{Asker, Outcome, Volume};
use crate::errors::Errno;
use crate::locks::table::{Held, Kind, Owner, Span};
use crate::locks::{Locks, Task, Ticket, What};
use crate::node::Node;
use crate::transport::Patience;
use crate::write_back::Wanted;

/// An unlock waits for so long for data, if the server answers: others may write to the file without a pause.
const DATA_WAITS: Duration = Duration::from_secs(60);
/// Such a wait takes a thread that calls the lock manager for so long at a time.
const DATA_STEP: Duration = Duration::from_millis(200);

/// What a program asks for: by which open file, and a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) file: u64,
    pub(crate) owner: Owner,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// `None`: to unlock.
    pub(crate) kind: Option<Kind>,
    /// It waits for others.
    pub(crate) waits: bool,
}

impl Volume {
    /// The locks at the server, unless all are this host's alone.
    pub(crate) fn locks(&self) -> Option<&Arc<Locks>> {
        self.locks.as_ref()
    }

    /// Whoever has the kernel drop pages.
    pub(crate) fn set_kernel(&self, kernel: Notifier) {
        // The first one counts.
        let _ = self.kernel.set(kernel);
    }

    fn task(open: &OpenFile, asker: &Asker, asked: &Asked, ticket: Arc<Ticket>) -> Task {
        Task {
            node: Arc::clone(&open.node),
            owner: asked.owner,
            span: Span::new(asked.first, asked.last).unwrap_or(Span::ALL),
            what: What::Unlock { is_safe: None },
            identity: open.asker(asker).identity,
            file: asked.file,
            ticket,
            pause: Duration::ZERO,
        }
    }

    /// Takes a lock, or gives it up; the answer comes later.
    pub(crate) fn set_lock(
        self: &Arc<Self>,
        asker: &Asker,
        asked: &Asked,
        answer: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let begun = self.begin_lock(asker, asked);
        let (locks, open) = match begun {
            Ok(begun) => begun,
            Err(errno) => return answer(Err(errno)),
        };
        let ticket = Ticket::new(asker.patience.pid, false, answer);
        let task = Self::task(&open, asker, asked, ticket);
        let what = match asked.kind {
            None => What::Unlock { is_safe: None },
            Some(kind) => {
                let (volume, open, asker) = (Arc::downgrade(self), open, asker.clone());
                let granted = move || {
                    if let Some(volume) = volume.upgrade() {
                        volume.look_anew(&open, &asker);
                    }
                };
                What::Lock { kind, waits: asked.waits, granted: Arc::new(granted) }
            }
        };
        locks.set(Task { what, ..task });
    }

    /// What was written before goes to the server first: before a lock is taken, so that nothing here outweighs what
    /// others write; and before it is given up, so that others see it, also after a crash of the server.
    fn begin_lock(&self, asker: &Asker, asked: &Asked) -> Outcome<(Arc<Locks>, Arc<OpenFile>)> {
        let locks = self.locks.as_ref().ok_or(Errno::ENOLCK)?;
        if Span::new(asked.first, asked.last).is_none() {
            return Err(Errno::EINVAL);
        }
        let open = match (self.file(asked.file), asked.kind) {
            // Whoever has lost a lock may give it up.
            (Err(Errno::EIO), None) => self.any_file(asked.file)?,
            (open, _) => open?,
        };
        match asked.kind {
            Some(_) => self.write_back.flush(&open.node, asker.patience, Wanted::Sent)?,
            None if locks.has(&open.node, asked.owner) => {
                self.write_back.make_safe(&open.node, asker.patience)?;
            }
            None => {}
        }
        Ok((Arc::clone(locks), open))
    }

    /// Whoever has just got a lock sees the file as it is at the server: its pages are dropped, whatever is known of
    /// it, since times at the server may be too coarse to show a change.
    fn look_anew(&self, open: &OpenFile, asker: &Asker) {
        let node: &Node = &open.node;
        node.expire();
        let asker = Asker { patience: Patience::default(), ..open.asker(asker) };
        // A failure shows when the file is used.
        let _ = self.refresh(&asker, node);
        if let Some(kernel) = self.kernel.get()
            && let Err(error) = kernel.inval_inode(INodeNo(node.number), 0, 0)
        {
            tracing::debug!(number = node.number, %error, "the kernel does not drop pages");
        }
    }

    /// A descriptor is closed: the locks that its process has of the file by fcntl(2) end, once its data is at the
    /// server.
    pub(crate) fn unlock_closed(
        self: &Arc<Self>,
        asker: &Asker,
        file: u64,
        owner: Owner,
        answer: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let flushed = self.flush(asker, file);
        let open = self.any_file(file);
        let (Some(locks), Ok(open)) = (&self.locks, open) else { return answer(flushed) };
        if !locks.has(&open.node, owner) {
            return answer(flushed);
        }
        // The process has locks by other descriptors, too, and may have written by these. A killed one does not wait.
        let is_safe = flushed != Err(Errno::EINTR)
            && self.write_back.make_safe(&open.node, asker.patience).is_ok();
        let what = What::Unlock { is_safe: (!is_safe).then(|| self.safety(&open.node)) };
        // An error of the data is told, and the lock is given up nevertheless.
        let ticket = Ticket::new(asker.patience.pid, true, move |unlocked| {
            answer(flushed.and(unlocked));
        });
        let asked = Asked { file, owner, first: 0, last: u64::MAX, kind: None, waits: false };
        locks.set(Task { what, ..Self::task(&open, asker, &asked, ticket) });
    }

    /// The last descriptor of an open file is closed: locks end that only it had (flock(2), `F_OFD_SETLK`). Nobody
    /// waits for that.
    pub(super) fn unlock_released(&self, open: &OpenFile, file: u64) {
        let Some(locks) = &self.locks else { return };
        for owner in locks.release(&open.node, file) {
            let asker = Asker { identity: Identity::None, patience: Patience::default() };
            let asked = Asked { file, owner, first: 0, last: u64::MAX, kind: None, waits: false };
            let what = What::Unlock { is_safe: Some(self.safety(&open.node)) };
            locks.set(Task { what, ..Self::task(open, &asker, &asked, Ticket::of_nobody()) });
        }
    }

    /// Tells whether a file's data is safe, after a short wait, for an unlock that has waited for so long.
    fn safety(&self, node: &Arc<Node>) -> Arc<dyn Fn(Duration) -> bool + Send + Sync> {
        let (write_back, node) = (Arc::downgrade(&self.write_back), Arc::clone(node));
        Arc::new(move |waited| {
            let Some(write_back) = write_back.upgrade() else { return true };
            let patience = Patience { pid: 0, until: Some(Instant::now() + DATA_STEP) };
            write_back.make_safe(&node, patience).is_ok()
                || waited >= DATA_WAITS && write_back.is_server_there()
        })
    }

    /// The lock that keeps another one out, with the number of its process, as far as that is one of this host.
    pub(crate) fn test_lock(&self, asker: &Asker, asked: &Asked) -> Outcome<Option<(Held, u32)>> {
        let locks = self.locks.as_ref().ok_or(Errno::ENOLCK)?;
        let open = self.file(asked.file)?;
        let span = Span::new(asked.first, asked.last).ok_or(Errno::EINVAL)?;
        let kind = asked.kind.ok_or(Errno::EINVAL)?;
        let wanted = Held { owner: asked.owner, span, kind };
        locks.test(&open.node, &open.asker(asker).identity, wanted, asker.patience)
    }
}
