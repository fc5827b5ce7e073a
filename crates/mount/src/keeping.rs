//! Changes of names and attributes: each has a record in the journal before it is sent, which leaves when the
//! change is stable on the server. On a share that is not `async` that is when it is answered; else after
//! SYNC (docs/recovery.md). A server without the recovery program is believed after a while (`aging`).

mod aging;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::Mutex;
use steadfast_client::{ClientError, FileHandle, Identity, NfsStat3, RecoveryStatus};
use steadfast_journal::{Change, Outcome, Sequence, Settled};

use crate::calls::Calls;
use crate::held::Verifier;
use crate::journaling::{Journaling, NotTaken};
use crate::node::{Node, Nodes, ROOT};
use crate::recovery::{Fate, Recovery};
use crate::server::Server;
use crate::transport::{Patience, is_lost};
use crate::write_back::WriteBack;

/// How often it is looked whether changes are stable.
const TICK: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody waits for that.
const LOOK: Duration = Duration::from_millis(50);
/// When so many objects in a row are gone, their file system is taken to be away.
const REPLACED_MAX: u32 = 2;
/// A record with names finds room in so much.
const RECORD_BYTES: usize = 4096;

/// Gives the change to what appends it. Its handles are those of now.
pub(crate) type Describe<'d> = &'d dyn Fn(&mut dyn FnMut(Change<'_>));

fn is_gone(error: &ClientError) -> bool {
    matches!(error.status(), Some(NfsStat3::Stale | NfsStat3::BadHandle))
}

/// The records of a mount's changes of names and attributes.
#[derive(Debug)]
pub(crate) struct Keeping {
    journaling: Arc<Journaling>,
    recovery: Arc<Recovery>,
    server: Arc<Server>,
    write_back: Arc<WriteBack>,
    nodes: Arc<Nodes>,
    /// By the file system at the server: SYNC is about one.
    unstable: Mutex<HashMap<u64, Unstable>>,
    /// Held by who asks what is stable.
    settling: Mutex<()>,
    /// It was told that a file system cannot be flushed.
    has_told: AtomicBool,
    /// Somebody waits for room in the ring.
    is_urgent: AtomicBool,
}

/// Changes that were answered and are not known to be stable.
#[derive(Debug)]
struct Unstable {
    /// Any object of the file system, and who may ask about it.
    node: Arc<Node>,
    identity: Identity,
    records: Vec<Answered>,
    since: Instant,
    /// How many objects in a row were gone when they were asked about.
    replaced: u32,
}

/// A change that was answered.
#[derive(Debug)]
struct Answered {
    record: Sequence,
    /// The verifier that the server had when it was sent.
    sent_under: Option<Verifier>,
    at: Instant,
    /// The file that it has made.
    file: Option<FileHandle>,
}

/// A change with a record, which is about to be sent.
#[derive(Debug)]
pub(crate) struct Begun {
    record: Sequence,
    /// A file is made.
    makes_file: bool,
    /// Recoveries so far.
    finished: u64,
    verifier: Option<Verifier>,
    /// To be given to the call ([`crate::transport::Link::losses`]).
    pub(crate) losses: u64,
}

impl Keeping {
    pub(crate) fn start(
        journaling: Arc<Journaling>,
        recovery: Arc<Recovery>,
        server: Arc<Server>,
        write_back: Arc<WriteBack>,
        nodes: Arc<Nodes>,
    ) -> io::Result<Arc<Self>> {
        let keeping = Self::new(journaling, recovery, server, write_back, nodes);
        Self::run(&keeping)?;
        Ok(keeping)
    }

    fn new(
        journaling: Arc<Journaling>,
        recovery: Arc<Recovery>,
        server: Arc<Server>,
        write_back: Arc<WriteBack>,
        nodes: Arc<Nodes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            journaling,
            recovery,
            server,
            write_back,
            nodes,
            unstable: Mutex::default(),
            settling: Mutex::default(),
            has_told: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
        })
    }

    /// The thread that looks.
    fn run(keeping: &Arc<Self>) -> io::Result<()> {
        let weak = Arc::downgrade(keeping);
        let run = move || {
            let mut looked = Instant::now();
            let mut has_told = false;
            loop {
                thread::sleep(LOOK);
                let Some(keeping) = weak.upgrade() else { return };
                let is_urgent = keeping.is_urgent.swap(false, Ordering::Relaxed)
                    | keeping.write_back.take_hurry()
                    || keeping.is_waited_for();
                if !is_urgent && looked.elapsed() < TICK {
                    continue;
                }
                looked = Instant::now();
                // Always after the ring's failure: what it had promised is the server's alone then.
                let is_pressed = is_urgent
                    || keeping.journaling.is_pressed()
                    || keeping.write_back.is_data_due();
                let settled = keeping.settle(is_pressed, (Patience::default(), looked));
                // The SYNC for names was for this as well.
                let synced = if is_pressed { keeping.write_back.sync_data(looked) } else { Ok(()) };
                match settled.and(synced) {
                    Err(ClientError::Closed) => return,
                    Err(error) => {
                        if !std::mem::replace(&mut has_told, true) {
                            tracing::warn!(%error, "it is not known what is stable on the server");
                        }
                    }
                    Ok(()) => has_told = false,
                }
            }
        };
        thread::Builder::new().name("nfs-names".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Whether somebody waits for room that names of a foreign server take. Its names can leave at once; our own is
    /// not asked to SYNC again and again for that.
    fn is_waited_for(&self) -> bool {
        self.recovery.is_foreign() && self.journaling.is_waited_for()
    }

    /// Appends the record of a change, which is to be sent after that. `None`: the journal takes no records any
    /// more, and [`Keeping::make_stable`] is to be called after the change.
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
            let mut makes_file = false;
            describe(&mut |change| {
                makes_file = matches!(change, Change::Create { .. });
                appended = self.journaling.append_change(path, identity, change);
                if appended == Err(NotTaken::Failed) {
                    self.note_bypass(&change);
                }
            });
            match appended {
                Ok(record) => {
                    self.recovery.watch(record);
                    let (finished, verifier) = (self.recovery.finished(), self.recovery.verifier());
                    let losses = self.server.link.losses();
                    return Ok(Some(Begun { record, makes_file, finished, verifier, losses }));
                }
                Err(NotTaken::Failed) => return Ok(None),
                Err(NotTaken::Full) => drop(entered),
            }
            self.write_back.press_all();
            self.is_urgent.store(true, Ordering::Relaxed);
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
        let file = Some(FileHandle(outcome.handle.clone()));
        let file = file.filter(|file| begun.makes_file && !file.0.is_empty());
        let mut verifier = begun.verifier;
        if let Some(file) = &file
            && self.recovery.is_foreign()
        {
            self.recovery.note_file(file, identity);
            if verifier.is_none() || self.recovery.is_unsure() {
                // Whoever knows the file now has not lost it since it was made. What another file tells says nothing
                // of this one.
                let learned = self.learn_verifier(file, identity);
                verifier = verifier.or(learned);
            }
        }
        let entered = self.recovery.enter(Patience::default(), Instant::now())?;
        if self.recovery.finished() != begun.finished {
            return Ok(false);
        }
        self.recovery.unwatch(begun.record);
        self.journaling.note_answer(begun.record, Outcome { verifier, ..outcome });
        self.leaves_when_stable(begun, (node, identity), verifier, file);
        drop(entered);
        Ok(true)
    }

    fn leaves_when_stable(
        &self,
        begun: &Begun,
        (node, identity): (&Arc<Node>, &Identity),
        sent_under: Option<Verifier>,
        file: Option<FileHandle>,
    ) {
        let mut unstable = self.unstable.lock();
        let of_file_system = unstable.entry(node.attributes().fsid).or_insert_with(|| Unstable {
            node: Arc::clone(node),
            identity: identity.clone(),
            records: Vec::new(),
            since: Instant::now(),
            replaced: 0,
        });
        // A directory lasts longer than what is in it.
        if of_file_system.node.is_dead() || node.is_directory() {
            of_file_system.node = Arc::clone(node);
            of_file_system.identity = identity.clone();
        }
        let at = Instant::now();
        of_file_system.records.push(Answered { record: begun.record, sent_under, at, file });
    }

    /// The server has refused the change. False as of [`Keeping::answered`].
    pub(crate) fn refused(&self, begun: &Begun) -> Result<bool, ClientError> {
        let entered = self.recovery.enter(Patience::default(), Instant::now())?;
        if self.recovery.finished() != begun.finished {
            return Ok(false);
        }
        self.recovery.unwatch(begun.record);
        self.journaling.settle(vec![begun.record], Settled::Refused);
        drop(entered);
        Ok(true)
    }

    /// Nobody waits for the answer any more. Whether the change is made or not is as good; what came of it is
    /// to be kept like everything else.
    pub(crate) fn abandoned(&self, begun: &Begun, node: &Arc<Node>, identity: &Identity) {
        self.recovery.unwatch(begun.record);
        self.leaves_when_stable(begun, (node, identity), begun.verifier, None);
    }

    /// What has become of a change that was in flight when the server lost something.
    pub(crate) fn fate(
        &self,
        begun: &Begun,
        (patience, since): (Patience, Instant),
    ) -> Result<Fate, ClientError> {
        self.recovery.fate(begun.record, begun.finished, patience, since)
    }

    /// Makes a change stable that has no record, and was sent when the server had this verifier. False: the server
    /// has lost what it had acknowledged since then, and perhaps this change.
    pub(crate) fn make_stable(
        &self,
        (node, identity): (&Node, &Identity),
        sent_under: Option<Verifier>,
        waiting: (Patience, Instant),
    ) -> Result<bool, ClientError> {
        if !self.recovery.is_async() {
            return Ok(true);
        }
        let (patience, _) = waiting;
        match self.synced(node, identity, waiting) {
            Ok(verifier) if verifier.is_none() || verifier == sent_under => Ok(true),
            Ok(_) => {
                // If it has lost something without a new connection, this tells.
                let ask = |nfs: &mut Calls| nfs.recovery_status(&node.handle());
                if let Ok(status) = self.server.call(identity, patience, ask) {
                    self.recovery.told(status);
                }
                Ok(false)
            }
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits while the server lacks what it had acknowledged, and a little.
    pub(crate) fn wait(&self, patience: Patience, since: Instant) -> Result<(), ClientError> {
        thread::sleep(LOOK);
        self.recovery.wait(patience, since)?;
        patience.end(since).map_or(Ok(()), Err)
    }

    /// The server's verifier, as it was told last.
    pub(crate) fn verifier(&self) -> Option<Verifier> {
        self.recovery.verifier()
    }

    /// All changes of names so far survive a crash of this host, or of the server, from now on.
    ///
    /// # Errors
    /// When the server cannot make them stable, or the waiting has an end.
    pub(crate) fn sync(&self, waiting: (Patience, Instant)) -> Result<(), ClientError> {
        if !self.recovery.keeps_names() || self.journaling.make_stable(self.journaling.last()) {
            return Ok(());
        }
        if self.recovery.is_foreign() {
            // Nothing else keeps them.
            loop {
                match self.recovery.commit_newest(&self.server, waiting.0, std::iter::empty()) {
                    Err(error) if is_lost(&error) => self.wait(waiting.0, waiting.1)?,
                    committed => return committed.map(drop),
                }
            }
        }
        loop {
            match self.settle(true, waiting) {
                // Somebody else may have found out before that the server had lost some of them.
                Ok(true) if !self.recovery.has_lost() => return Ok(()),
                // A recovery makes what was lost again, and stable.
                Ok(_) => {}
                Err(error) if is_lost(&error) => {}
                Err(error) => return Err(error),
            }
            let (patience, since) = waiting;
            self.wait(patience, since)?;
        }
    }

    /// Has all changes so far made stable soon, without waiting for it.
    pub(crate) fn hurry(&self) {
        self.write_back.hurry();
    }

    /// SYNC, with the server's verifier. `None`: the file system cannot be flushed as a whole.
    fn synced(
        &self,
        node: &Node,
        identity: &Identity,
        waiting: (Patience, Instant),
    ) -> Result<Option<Verifier>, ClientError> {
        match self.write_back.sync_file_system(node, identity, waiting) {
            Ok(verifier) => Ok(Some(verifier)),
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                if !self.has_told.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        "the server cannot flush its file system: new names and attributes on this async \
                         share may be lost in its crash"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Has those leave that are stable; if it is urgent, all are made stable. False: the server may have lost some
    /// of them.
    ///
    /// # Errors
    /// The first one; the other file systems are asked nevertheless.
    fn settle(&self, is_urgent: bool, waiting: (Patience, Instant)) -> Result<bool, ClientError> {
        let file_systems: Vec<u64> = self.unstable.lock().keys().copied().collect();
        let committed = self.recovery.take_committed();
        let mut outcome = Ok(true);
        for file_system in file_systems {
            let settled = self.settle_one(file_system, (is_urgent, &committed), waiting);
            match (settled, &mut outcome) {
                (Err(ClientError::Closed), _) => return Err(ClientError::Closed),
                (Err(error), Ok(_)) => outcome = Err(error),
                (Ok(had_all), Ok(all)) => *all &= had_all,
                (_, Err(_)) => {}
            }
        }
        outcome
    }

    fn settle_one(
        &self,
        file_system: u64,
        (is_urgent, committed): (bool, &HashSet<FileHandle>),
        (patience, asked_since): (Patience, Instant),
    ) -> Result<bool, ClientError> {
        // Who comes second finds fewer records, and must not take those that came meanwhile for them.
        let _settling = loop {
            if let Some(settling) = self.settling.try_lock_for(patience.nap()) {
                break settling;
            }
            if let Some(error) = patience.end(asked_since) {
                return Err(error);
            }
        };
        if self.recovery.is_foreign() {
            let waiting = (patience, asked_since);
            return self.settle_foreign(file_system, (is_urgent, committed), waiting);
        }
        let (node, identity, count, since) = {
            let unstable = self.unstable.lock();
            let Some(one) = unstable.get(&file_system) else { return Ok(true) };
            (Arc::clone(&one.node), one.identity.clone(), one.records.len(), one.since)
        };
        let asked =
            self.server.call(&identity, patience, |nfs| nfs.recovery_status(&node.handle()));
        let status = match asked {
            Ok(status) => status,
            Err(error) if is_gone(&error) => {
                // It was removed. Another object of the file system will do, unless all of it is away.
                let other = self.another_of(file_system, &node);
                let mut unstable = self.unstable.lock();
                let Some(one) = unstable.get_mut(&file_system) else { return Ok(true) };
                let Some(other) = other.filter(|_| one.replaced < REPLACED_MAX) else {
                    one.replaced = 0;
                    return Err(error);
                };
                one.node = other;
                one.replaced += 1;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        self.recovery.told(status);
        let mut verifier = status.verifier;
        let is_async = status.is_async || self.recovery.is_async();
        if is_async {
            if !is_urgent && !self.write_back.is_sync_due(file_system, since) {
                return Ok(true);
            }
            // If it cannot be flushed, there is nothing better than to let them go.
            if let Some(told) = self.synced(&node, &identity, (patience, asked_since))? {
                verifier = told;
                self.recovery.told(RecoveryStatus { verifier, ..status });
            }
        }
        self.write_back.forget_all_removed();
        let mut unstable = self.unstable.lock();
        let Some(one) = unstable.get_mut(&file_system) else { return Ok(true) };
        one.replaced = 0;
        // What came meanwhile may not be stable.
        let asked: Vec<_> = one.records.drain(..count.min(one.records.len())).collect();
        if one.records.is_empty() {
            unstable.remove(&file_system);
        } else {
            one.since = Instant::now();
        }
        let is_last = unstable.is_empty();
        drop(unstable);
        // What an `async` share acknowledged under another verifier may be lost: the recovery settles that.
        let is_had = |one: &&Answered| !is_async || one.sent_under == Some(verifier);
        let settled: Vec<_> = asked.iter().filter(is_had).map(|one| one.record).collect();
        let had_all = settled.len() == asked.len();
        self.journaling.settle_later(settled);
        if is_last && !status.is_async {
            // First, so that whoever acknowledges from now on keeps the bytes.
            let known = self.recovery.note_synchronous();
            if self.write_back.has_bytes_elsewhere() {
                self.recovery.note_asynchronous(known);
            }
        }
        Ok(had_all)
    }

    /// Another object of this file system, in the place of one that is gone: the share's root, which lasts longest, if
    /// that is on it.
    fn another_of(&self, file_system: u64, gone: &Arc<Node>) -> Option<Arc<Node>> {
        gone.die();
        let is_of = |root: &Arc<Node>| !root.is_dead() && root.attributes().fsid == file_system;
        let root = self.nodes.by_number(ROOT).filter(is_of);
        root.or_else(|| self.nodes.any_of(file_system))
    }

    /// Makes everything stable; for the end of a mount. Returns how many changes are left after this time.
    pub(crate) fn finish(&self, time: Duration) -> usize {
        let since = Instant::now();
        let patience = Patience { pid: 0, until: Some(since + time) };
        loop {
            // What failed is told, and tried again.
            let _ = self.settle(true, (patience, since));
            let left = self.unstable.lock().values().map(|one| one.records.len()).sum();
            if left == 0 || since.elapsed() >= time {
                return left;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
