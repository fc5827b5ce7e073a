//! Changes of names and attributes: each has a record in the journal before it is sent, which leaves when the
//! change is stable on the server. On a share that is not `async` that is when it is answered; else after
//! SYNC (docs/recovery.md).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::Mutex;
use steadfast_client::{ClientError, Identity, NfsStat3, RecoveryStatus};
use steadfast_journal::{Change, Outcome, Sequence, Settled};

use crate::held::Verifier;
use crate::journaling::{Journaling, NotTaken};
use crate::node::Node;
use crate::recovery::{Fate, Recovery};
use crate::server::Server;
use crate::transport::Patience;
use crate::write_back::WriteBack;

/// How often it is looked whether changes are stable.
const TICK: Duration = Duration::from_secs(1);
/// How long changes of an `async` share wait for a SYNC.
const SYNC_AFTER: Duration = Duration::from_secs(5);
/// A record with names finds room in so much.
const RECORD_BYTES: usize = 4096;

/// Gives the change to what appends it. Its handles are those of now.
pub(crate) type Describe<'d> = &'d dyn Fn(&mut dyn FnMut(Change<'_>));

/// The records of a mount's changes of names and attributes.
#[derive(Debug)]
pub(crate) struct Keeping {
    journaling: Arc<Journaling>,
    recovery: Arc<Recovery>,
    server: Arc<Server>,
    write_back: Arc<WriteBack>,
    /// By the file system at the server: SYNC is about one.
    unstable: Mutex<HashMap<u64, Unstable>>,
    /// It was told that a file system cannot be flushed.
    has_told: AtomicBool,
}

/// Changes that were answered and are not known to be stable.
#[derive(Debug)]
struct Unstable {
    /// Any object of the file system, and who may ask about it.
    node: Arc<Node>,
    identity: Identity,
    records: Vec<Sequence>,
    since: Instant,
}

/// A change with a record, which is about to be sent.
#[derive(Debug)]
pub(crate) struct Begun {
    record: Sequence,
    /// Recoveries so far.
    finished: u64,
    verifier: Option<Verifier>,
}

impl Keeping {
    pub(crate) fn start(
        journaling: Arc<Journaling>,
        recovery: Arc<Recovery>,
        server: Arc<Server>,
        write_back: Arc<WriteBack>,
    ) -> io::Result<Arc<Self>> {
        let keeping = Arc::new(Self {
            journaling,
            recovery,
            server,
            write_back,
            unstable: Mutex::default(),
            has_told: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&keeping);
        let run = move || {
            loop {
                thread::sleep(TICK);
                let Some(keeping) = weak.upgrade() else { return };
                let is_pressed = keeping.journaling.is_pressed();
                if let Err(ClientError::Closed) = keeping.settle(is_pressed) {
                    return;
                }
            }
        };
        thread::Builder::new().name("nfs-names".to_owned()).spawn(run)?;
        Ok(keeping)
    }

    /// Appends the record of a change, which is to be sent after that. `None`: the journal has failed, and
    /// [`Keeping::make_stable`] is to be called after the change.
    pub(crate) fn begin(
        &self,
        path: &[u8],
        identity: &Identity,
        describe: Describe<'_>,
        (patience, since): (Patience, Instant),
    ) -> Result<Option<Begun>, ClientError> {
        loop {
            let entered = self.recovery.enter(patience, since)?;
            let mut appended = Err(NotTaken::Failed);
            describe(&mut |change| {
                appended = self.journaling.append_change(path, identity, change);
                if appended == Err(NotTaken::Failed) {
                    self.note_bypass(&change);
                }
            });
            match appended {
                Ok(record) => {
                    self.recovery.watch(record);
                    let (finished, verifier) = (self.recovery.finished(), self.recovery.verifier());
                    return Ok(Some(Begun { record, finished, verifier }));
                }
                Err(NotTaken::Failed) => return Ok(None),
                Err(NotTaken::Full) => drop(entered),
            }
            self.write_back.press_all();
            self.settle(true)?;
            self.journaling.wait_for_room(RECORD_BYTES, patience.nap());
            if let Some(error) = patience.end(since) {
                return Err(error);
            }
        }
    }

    fn note_bypass(&self, change: &Change<'_>) {
        let record = steadfast_journal::Record {
            time_ns: 0,
            uid: 0,
            gid: 0,
            groups: &[],
            order: None,
            path: b"",
            change: *change,
        };
        for object in record.objects().into_iter().flatten() {
            self.journaling.note_bypass(object);
        }
    }

    /// The server has answered. False: it has lost something since the change was sent, so that it is the
    /// fate of the record that counts.
    pub(crate) fn answered(
        &self,
        begun: &Begun,
        (node, identity): (&Arc<Node>, &Identity),
        outcome: Outcome,
    ) -> Result<bool, ClientError> {
        let entered = self.recovery.enter(Patience::default(), Instant::now())?;
        if self.recovery.finished() != begun.finished {
            return Ok(false);
        }
        self.recovery.unwatch(begun.record);
        self.journaling.note_answer(begun.record, Outcome { verifier: begun.verifier, ..outcome });
        self.leaves_when_stable(begun.record, node, identity);
        drop(entered);
        Ok(true)
    }

    fn leaves_when_stable(&self, record: Sequence, node: &Arc<Node>, identity: &Identity) {
        let mut unstable = self.unstable.lock();
        let of_file_system = unstable.entry(node.attributes().fsid).or_insert_with(|| Unstable {
            node: Arc::clone(node),
            identity: identity.clone(),
            records: Vec::new(),
            since: Instant::now(),
        });
        if of_file_system.node.is_dead() {
            of_file_system.node = Arc::clone(node);
        }
        of_file_system.records.push(record);
    }

    /// The server has refused the change.
    pub(crate) fn refused(&self, begun: &Begun) {
        self.recovery.unwatch(begun.record);
        self.journaling.settle(vec![begun.record], Settled::Refused);
    }

    /// Nobody waits for the answer any more. Whether the change is made or not is as good; what came of it is
    /// to be kept like everything else.
    pub(crate) fn abandoned(&self, begun: &Begun, node: &Arc<Node>, identity: &Identity) {
        self.recovery.unwatch(begun.record);
        self.leaves_when_stable(begun.record, node, identity);
    }

    /// What has become of a change that was in flight when the server lost something.
    pub(crate) fn fate(
        &self,
        begun: &Begun,
        (patience, since): (Patience, Instant),
    ) -> Result<Fate, ClientError> {
        self.recovery.fate(begun.record, begun.finished, patience, since)
    }

    /// Makes a change stable that has no record.
    pub(crate) fn make_stable(&self, node: &Node, identity: &Identity) -> Result<(), ClientError> {
        if self.recovery.is_async() { self.synced(node, identity).map(drop) } else { Ok(()) }
    }

    /// All changes of names so far survive a crash of this host, or of the server, from now on.
    pub(crate) fn sync(&self) -> Result<(), ClientError> {
        if self.recovery.is_async() && !self.journaling.make_stable(self.journaling.last()) {
            return self.settle(true);
        }
        Ok(())
    }

    /// SYNC. False: the file system cannot be flushed as a whole.
    fn synced(&self, node: &Node, identity: &Identity) -> Result<bool, ClientError> {
        match self.write_back.sync_file_system(node, identity) {
            Ok(verifier) if self.recovery.verifier() == Some(verifier) => Ok(true),
            Ok(verifier) => {
                let status = RecoveryStatus { is_async: true, verifier };
                self.recovery.told(status);
                self.recovery.wait(Patience::default(), Instant::now())?;
                Ok(true)
            }
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                if !self.has_told.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        "the server cannot flush its file system: new names and attributes on this async \
                         share may be lost in its crash"
                    );
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Has those leave that are stable; if it is urgent, all are made stable.
    fn settle(&self, is_urgent: bool) -> Result<(), ClientError> {
        let file_systems: Vec<u64> = self.unstable.lock().keys().copied().collect();
        for file_system in file_systems {
            let outcome = self.settle_one(file_system, is_urgent);
            match outcome {
                Ok(()) => {}
                Err(ClientError::Closed) => return Err(ClientError::Closed),
                Err(error) => {
                    tracing::warn!(%error, "it is not known what is stable on the server");
                }
            }
        }
        Ok(())
    }

    fn settle_one(&self, file_system: u64, is_urgent: bool) -> Result<(), ClientError> {
        let (node, identity, count, since) = {
            let unstable = self.unstable.lock();
            let Some(one) = unstable.get(&file_system) else { return Ok(()) };
            (Arc::clone(&one.node), one.identity.clone(), one.records.len(), one.since)
        };
        let patience = Patience::default();
        let status =
            self.server.call(&identity, patience, |nfs| nfs.recovery_status(&node.handle()))?;
        self.recovery.told(status);
        if status.is_async || self.recovery.is_async() {
            if !is_urgent && since.elapsed() < SYNC_AFTER {
                return Ok(());
            }
            let is_whole = self.synced(&node, &identity)?;
            if is_whole && !status.is_async {
                self.recovery.note_synchronous();
            }
        }
        let mut unstable = self.unstable.lock();
        let Some(one) = unstable.get_mut(&file_system) else { return Ok(()) };
        // What came meanwhile may not be stable.
        let settled: Vec<Sequence> = one.records.drain(..count.min(one.records.len())).collect();
        if one.records.is_empty() {
            unstable.remove(&file_system);
        } else {
            one.since = Instant::now();
        }
        drop(unstable);
        self.journaling.settle_later(settled);
        Ok(())
    }

    /// Makes everything stable; for the end of a mount. Returns how many changes are left after this time.
    pub(crate) fn finish(&self, time: Duration) -> usize {
        let since = Instant::now();
        loop {
            // What failed is told, and tried again.
            let _ = self.settle(true);
            let left = self.unstable.lock().values().map(|one| one.records.len()).sum();
            if left == 0 || since.elapsed() >= time {
                return left;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
