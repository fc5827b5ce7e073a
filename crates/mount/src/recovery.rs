//! What a mount with a journal knows of its server's memory: whether the server has lost what it had acknowledged
//! from there, in a crash, and who waits until that is there again.
//!
//! On each new connection the server is asked for its write verifier (docs/recovery.md) before a call is sent.
//! If it is another one, and the share is or was `async`, all calls in flight are given up, and new ones wait.
//! `recoverer.rs` brings back what was lost. Afterwards the calls go on: those that change nothing are made again,
//! a change takes the fate of its record.
//!
//! A server without the recovery program is *foreign*: its verifier is asked for by COMMIT of a file of this mount
//! (`witnesses`). Names that it has acknowledged are taken for lost with its verifier, too, until they are old
//! (`keeping::aging`): NFSv3 has no call that makes them stable, and not every server does so by itself.
//!
//! It must never
//!
//! - let a call reach a server that has lost something, before that is there again;
//! - let anybody append to the journal while it is replayed (the `gate`).

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
mod witnesses;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use steadfast_client::{Attributes, ClientError, FileHandle, Identity, Nfs3Client, NfsStat3};
use steadfast_client::{RecoveryStatus, RpcConnection, RpcTransport};
use steadfast_journal::{JournalId, Sequence};

use crate::calls::Calls;
use crate::held::Verifier;
use crate::server::Server;
use crate::transport::{CONNECTING, Greeter, Link, Patience, is_lost};
use witnesses::{Testimony, Witness, Witnesses, question};

/// So much of a file is committed when its verifier is asked for, so that a large one does not take long.
const COMMITTED_BYTES: u32 = 1;
/// What the server takes of a name.
const NAME_BYTES_MAX: usize = 255;

/// What has become of a change that was in flight when the server lost something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is made; with the handle of what it made, if it made something.
    Made(Option<FileHandle>),
    /// It is not: the server says why if it is asked again.
    NotMade,
}

/// What is known of the server's memory.
#[derive(Debug)]
pub(crate) struct Recovery {
    link: Weak<Link>,
    root: FileHandle,
    identity: Identity,
    /// The journal, by which the server knows this client.
    journal: JournalId,
    name: Vec<u8>,
    /// The server does not have the program.
    is_foreign: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// Read by who appends to the journal, written by the recovery.
    gate: RwLock<()>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: a foreign server has not told it yet.
    verifier: Option<Verifier>,
    /// Files by which a foreign server is asked for it.
    witnesses: Witnesses,
    /// The share is `async`, or was when something was acknowledged that is not known to be stable.
    is_async: bool,
    /// The server knows of this client beyond a crash.
    is_recorded: bool,
    /// It was told that the server does not.
    has_warned: bool,
    has_lost: bool,
    is_closed: bool,
    /// Recoveries that were finished.
    finished: u64,
    /// Records of changes in flight.
    watched: HashSet<Sequence>,
    fates: HashMap<Sequence, Fate>,
}

impl Recovery {
    fn of(server: &Server, root: &FileHandle, journal: JournalId, is_foreign: bool) -> Self {
        let (uid, gid) = steadfast_sys::process::effective_ids();
        Self {
            link: Arc::downgrade(&server.link),
            root: root.clone(),
            identity: Identity::user(uid, gid),
            journal,
            name: host_name(),
            is_foreign,
            state: Mutex::default(),
            changed: Condvar::new(),
            gate: RwLock::new(()),
        }
    }

    /// For tests: our own server, which nobody has asked yet.
    #[cfg(test)]
    pub(crate) fn of_own(server: &Server, root: &FileHandle, journal: JournalId) -> Arc<Self> {
        Arc::new(Self::of(server, root, journal, false))
    }

    /// For a server that does not have the program. Nothing of the mount was acknowledged before.
    pub(crate) fn begin_foreign(
        server: &Server,
        root: &FileHandle,
        journal: JournalId,
    ) -> Arc<Self> {
        let recovery = Arc::new(Self::of(server, root, journal, true));
        server.link.greet_with(Arc::clone(&recovery) as _);
        let _ = server.recovery.set(Arc::clone(&recovery));
        recovery
    }

    /// Tells the server of the journal, and asks it what it is; `None` if it does not have the program.
    pub(crate) fn begin(
        server: &Server,
        root: &FileHandle,
        journal: JournalId,
    ) -> Result<Option<Arc<Self>>, ClientError> {
        let recovery = Arc::new(Self::of(server, root, journal, false));
        // Nobody recovers yet, so these are the calls of a recovery.
        let ask = || loop {
            let asked = |nfs: &mut Nfs3Client<_>| recovery.ask(nfs);
            let losses = server.link.losses();
            let patience = Patience::default();
            match server.call_for_recovery(losses, &recovery.identity, patience, asked) {
                Err(error) if is_lost(&error) => {}
                told => return told,
            }
        };
        match ask() {
            Ok(_) => {}
            Err(error) if error.is_program_unavailable() => return Ok(None),
            Err(error) => return Err(error),
        }
        server.link.greet_with(Arc::clone(&recovery) as _);
        let _ = server.recovery.set(Arc::clone(&recovery));
        // Once more, so that no restart since then is missed, and on each connection that is open already, one
        // after the other. Nothing was acknowledged before.
        for _ in 0..server.link.connection_count() {
            let status = ask()?;
            // What the server waits for is sent before the mount is served, and is nothing new.
            recovery.told(RecoveryStatus { is_waited_for: false, ..status });
        }
        Ok(Some(recovery))
    }

    /// Says on a connection which journal this is. An older server is only asked.
    fn ask<T: RpcTransport>(&self, nfs: &mut Nfs3Client<T>) -> Result<RecoveryStatus, ClientError> {
        let status = match nfs.recovery_attach(&self.root, self.journal, &self.name) {
            Err(error) if error.is_procedure_unavailable() => nfs.recovery_status(&self.root),
            told => told,
        }?;
        self.state.lock().is_recorded = status.is_recorded;
        Ok(status)
    }

    /// Tells the server that what it had lost is there again, if it waits for that. Returns its verifier.
    pub(crate) fn tell_recovered(&self, server: &Server) -> Result<Option<Verifier>, ClientError> {
        if !self.state.lock().is_recorded {
            return Ok(None);
        }
        let losses = server.link.losses();
        let patience = Patience::default();
        for is_known in [true, false] {
            if !is_known {
                // Each call goes by the next connection.
                for _ in 0..server.link.connection_count() {
                    let ask = |nfs: &mut Nfs3Client<_>| self.ask(nfs);
                    server.call_for_recovery(losses, &self.identity, patience, ask)?;
                }
            }
            let tell = |nfs: &mut Nfs3Client<_>| nfs.recovery_done(&self.root, self.journal);
            match server.call_for_recovery(losses, &self.identity, patience, tell) {
                Ok(verifier) => return Ok(Some(verifier)),
                Err(error) if error.status() == Some(NfsStat3::Inval) => {}
                // It has nothing (any more) that it could wait for.
                Err(error) if error.is_unavailable() || error.status().is_some() => break,
                Err(error) => return Err(error),
            }
        }
        tracing::warn!("the server cannot be told that what it had lost is there again");
        Ok(None)
    }

    /// Tells the server that the journal is empty, and its client ends. One that does not answer waits for
    /// this client when it comes again.
    pub(crate) fn tell_detached(&self, server: &Server, patience: Patience) {
        if self.state.lock().is_recorded {
            let tell = |nfs: &mut Nfs3Client<_>| nfs.recovery_detach(&self.root, self.journal);
            let losses = server.link.losses();
            if let Err(error) = server.call_for_recovery(losses, &self.identity, patience, tell) {
                tracing::debug!(%error, "the server was not told of the end");
            }
        }
    }

    /// Takes what the server says. If it has lost something, calls are held from now on.
    pub(crate) fn told(&self, status: RecoveryStatus) {
        self.take_told(self.state.lock(), status);
    }

    fn take_told(&self, mut state: MutexGuard<'_, State>, status: RecoveryStatus) {
        state.is_async |= status.is_async;
        if status.is_async && !state.is_recorded && !std::mem::replace(&mut state.has_warned, true)
        {
            tracing::warn!(
                "the server does not wait for this client after a crash: others may see, or change, files \
                 before what it lost is there again"
            );
        }
        let before = state.verifier.replace(status.verifier);
        let is_other = before.is_some_and(|before| before != status.verifier);
        if is_other && state.is_async || status.is_waited_for && !state.has_lost {
            self.hold(state);
        }
    }

    /// As [`Recovery::told`], of a server that has told its verifier alone. `losses` as of [`Recovery::saw`].
    pub(crate) fn told_verifier(&self, verifier: Verifier, losses: u64) {
        let state = self.state.lock();
        // What a server has told that has lost something since would begin a second recovery.
        if state.has_lost || self.link.upgrade().is_none_or(|link| link.losses() != losses) {
            return;
        }
        let status = RecoveryStatus {
            verifier,
            is_async: false,
            is_recorded: false,
            is_waiting: false,
            is_waited_for: false,
            has_compression: false,
        };
        self.take_told(state, status);
    }

    fn hold(&self, mut state: MutexGuard<'_, State>) {
        state.has_lost = true;
        // Under the lock, so that the recovery does not release them before they are held.
        if let Some(link) = self.link.upgrade() {
            link.hold();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A foreign server has told its verifier when this user has written to this file. `losses` are those that were
    /// known when it was asked ([`Link::losses`]).
    pub(crate) fn saw(&self, of: (&FileHandle, &Identity), verifier: Verifier, losses: u64) {
        self.hear(of, verifier, losses, Witnesses::note);
    }

    /// As [`Recovery::saw`], when the file was committed, which is no change of it.
    pub(crate) fn saw_commit(&self, of: (&FileHandle, &Identity), verifier: Verifier, losses: u64) {
        self.hear(of, verifier, losses, Witnesses::note_there);
    }

    fn hear(
        &self,
        (file, identity): (&FileHandle, &Identity),
        verifier: Verifier,
        losses: u64,
        note: impl FnOnce(&mut Witnesses, &FileHandle, &Identity),
    ) {
        if !self.is_foreign {
            return;
        }
        let mut state = self.state.lock();
        // What a server has told that has lost something since is of no interest.
        if state.has_lost || self.link.upgrade().is_none_or(|link| link.losses() != losses) {
            return;
        }
        let State { witnesses, verifier: known, .. } = &mut *state;
        note(witnesses, file, identity);
        if witnesses.saw(known, verifier) {
            self.hold(state);
        }
    }

    /// The next answer about a file would say whether a foreign server is the one that is known.
    pub(crate) fn is_unsure(&self) -> bool {
        let state = self.state.lock();
        self.is_foreign && (state.verifier.is_none() || state.witnesses.is_unsure())
    }

    /// This mount has removed a file.
    pub(crate) fn note_removed(&self, file: &FileHandle) {
        if self.is_foreign {
            self.state.lock().witnesses.forget(&HashSet::from([file.clone()]));
        }
    }

    /// COMMIT of a file was answered.
    pub(crate) fn note_committed(&self, file: &FileHandle) {
        if self.is_foreign {
            self.state.lock().witnesses.note_committed(file);
        }
    }

    /// The files of [`Recovery::note_committed`] since the last call.
    pub(crate) fn take_committed(&self) -> HashSet<FileHandle> {
        self.state.lock().witnesses.take_committed()
    }

    /// This mount has made a file.
    pub(crate) fn note_file(&self, file: &FileHandle, identity: &Identity) {
        if self.is_foreign {
            self.state.lock().witnesses.note(file, identity);
        }
    }

    /// An object that was lost is there again.
    pub(crate) fn note_made_again(&self, old: &FileHandle, new: &FileHandle) {
        self.state.lock().witnesses.replace(old, new);
    }

    /// What a foreign server says of the files of this mount on a new connection.
    fn greeted_by_foreign(&self, connection: RpcConnection) -> Result<(), ClientError> {
        let files = self.state.lock().witnesses.all();
        let mut nfs = Nfs3Client::new(connection, self.identity.clone());
        let commit = |one: &Witness| {
            nfs.set_identity(one.identity.clone());
            nfs.commit(&one.file, 0, COMMITTED_BYTES).map(|commit| commit.verifier)
        };
        let (testimony, gone) = question(&files, commit)?;
        if !matches!(testimony, Testimony::Verifier(_)) {
            nfs.set_identity(self.identity.clone());
            Self::has_root(nfs.getattr(&self.root))?;
        }
        let mut state = self.state.lock();
        let State { witnesses, verifier, has_lost, .. } = &mut *state;
        // A recovery asks by itself which of the files are there.
        let counts = !*has_lost || matches!(testimony, Testimony::Verifier(_));
        if counts && witnesses.heard(verifier, testimony, &gone) {
            self.hold(state);
        }
        Ok(())
    }

    /// A server that does not know the share's root has not lost files: its disk may not be mounted yet.
    fn has_root(root: Result<Attributes, ClientError>) -> Result<(), ClientError> {
        match root {
            Ok(_) => Ok(()),
            Err(error) if error.status().is_some() => Err(unknown_root()),
            Err(error) => Err(error),
        }
    }

    /// Asks a foreign server for its verifier, as a recovery does.
    fn ask_foreign(&self, server: &Server) -> Result<(), ClientError> {
        let files = self.state.lock().witnesses.all();
        let losses = server.link.losses();
        let commit = |one: &Witness| {
            let commit =
                |nfs: &mut Nfs3Client<_>| or_later(nfs.commit(&one.file, 0, COMMITTED_BYTES));
            let patience = Patience::default();
            let told = server.call_for_recovery(losses, &one.identity, patience, commit);
            told?.map(|commit| commit.verifier)
        };
        let (testimony, gone) = question(&files, commit)?;
        if !matches!(testimony, Testimony::Verifier(_)) {
            let (identity, patience) = (&self.identity, Patience::default());
            let ask = |nfs: &mut Nfs3Client<_>| nfs.getattr(&self.root);
            Self::has_root(server.call_for_recovery(losses, identity, patience, ask))?;
        }
        let mut state = self.state.lock();
        state.witnesses.forget(&gone);
        // Otherwise the replay finds a file that tells it, or makes one.
        state.verifier = match testimony {
            Testimony::Verifier(verifier) => Some(verifier),
            Testimony::Gone | Testimony::Silent => None,
        };
        Ok(())
    }

    /// Has a foreign server make the file stable that this mount has changed last, or else one of `more`; with that
    /// most file systems make all names stable that are older. False: no file is there that it could commit.
    pub(crate) fn commit_newest(
        &self,
        server: &Server,
        patience: Patience,
        more: impl Iterator<Item = (FileHandle, Identity)>,
    ) -> Result<bool, ClientError> {
        let mut files = self.state.lock().witnesses.all();
        files.extend(more.map(|(file, identity)| Witness { file, identity }));
        let losses = server.link.losses();
        let commit = |one: &Witness| {
            let commit = |nfs: &mut Calls| or_later(nfs.commit(&one.file, 0, COMMITTED_BYTES));
            let told = server.call_once(&one.identity, patience, commit)?;
            let told = told?;
            self.saw_commit((&one.file, &one.identity), told.verifier, losses);
            Ok(told.verifier)
        };
        let since = Instant::now();
        let patience = server.patience(patience, since);
        loop {
            match question(&files, commit) {
                Err(error) if error.status() == Some(NfsStat3::Jukebox) => {}
                told => return told.map(|(told, _)| matches!(told, Testimony::Verifier(_))),
            }
            if let Some(error) = patience.end(since) {
                return Err(error);
            }
            thread::sleep(patience.nap());
        }
    }

    /// Since a file has told the verifier there is a new connection, and no file to ask about.
    pub(crate) fn is_in_doubt(&self) -> bool {
        let state = self.state.lock();
        self.is_foreign && state.verifier.is_some() && state.witnesses.is_unsure()
    }

    /// Everything that was acknowledged from memory is stable, and the share is not `async` any more.
    /// Returns the verifier that is known, for [`Recovery::note_asynchronous`].
    pub(crate) fn note_synchronous(&self) -> Option<Verifier> {
        let mut state = self.state.lock();
        state.is_async = false;
        state.verifier
    }

    /// Takes [`Recovery::note_synchronous`] back. If the server has told another verifier meanwhile, it has lost something.
    pub(crate) fn note_asynchronous(&self, known: Option<Verifier>) {
        let mut state = self.state.lock();
        state.is_async = true;
        if known.is_some() && state.verifier != known && !state.has_lost {
            self.hold(state);
        }
    }

    /// Whether changes are acknowledged from memory, as far as is known.
    pub(crate) fn is_async(&self) -> bool {
        self.state.lock().is_async
    }

    /// The server does not have the program.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whether changes of names that are acknowledged may be lost nevertheless.
    pub(crate) fn keeps_names(&self) -> bool {
        self.is_foreign || self.is_async()
    }

    /// The share's root.
    pub(crate) fn root(&self) -> &FileHandle {
        &self.root
    }

    pub(crate) fn verifier(&self) -> Option<Verifier> {
        self.state.lock().verifier
    }

    /// Recoveries so far.
    pub(crate) fn finished(&self) -> u64 {
        self.state.lock().finished
    }

    /// Whether the server lacks what it had acknowledged, as far as is known.
    pub(crate) fn has_lost(&self) -> bool {
        self.state.lock().has_lost
    }

    /// Waits while the server lacks what it had acknowledged.
    pub(crate) fn wait(&self, patience: Patience, since: Instant) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        while state.has_lost {
            self.nap(&mut state, patience, since)?;
        }
        Ok(())
    }

    fn nap(
        &self,
        state: &mut MutexGuard<'_, State>,
        patience: Patience,
        since: Instant,
    ) -> Result<(), ClientError> {
        if state.is_closed {
            return Err(ClientError::Closed);
        }
        let has_timed_out = self.changed.wait_for(state, patience.nap()).timed_out();
        match patience.end(since) {
            Some(error) if has_timed_out => Err(error),
            _ => Ok(()),
        }
    }

    /// Has no recovery begin before the guard is dropped. To be held shortly, and never by who waits for the
    /// server.
    pub(crate) fn enter(
        &self,
        patience: Patience,
        since: Instant,
    ) -> Result<RwLockReadGuard<'_, ()>, ClientError> {
        loop {
            self.wait(patience, since)?;
            if let Some(guard) = self.gate.try_read_for(patience.nap())
                && !self.state.lock().has_lost
            {
                return Ok(guard);
            }
            if let Some(error) = patience.end(since) {
                return Err(error);
            }
        }
    }

    /// As [`Recovery::enter`], without waiting.
    pub(crate) fn try_enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let guard = self.gate.try_read()?;
        (!self.state.lock().has_lost).then_some(guard)
    }

    /// A record of a change that is about to be sent, so that its fate is kept.
    pub(crate) fn watch(&self, record: Sequence) {
        self.state.lock().watched.insert(record);
    }

    pub(crate) fn unwatch(&self, record: Sequence) {
        let mut state = self.state.lock();
        state.watched.remove(&record);
        state.fates.remove(&record);
    }

    /// The fate of a change that was in flight, once there have been more recoveries than these.
    pub(crate) fn fate(
        &self,
        record: Sequence,
        finished: u64,
        patience: Patience,
        since: Instant,
    ) -> Result<Fate, ClientError> {
        let mut state = self.state.lock();
        while state.finished == finished {
            self.nap(&mut state, patience, since)?;
        }
        state.watched.remove(&record);
        Ok(state.fates.remove(&record).unwrap_or(Fate::NotMade))
    }

    /// What was lost is there again, on a server with this verifier if it has told one; `fate` says
    /// what has become of a change in flight. False if the server has lost something once more.
    pub(crate) fn finish(
        &self,
        verifier: Option<Verifier>,
        fate: impl Fn(&Sequence) -> Fate,
    ) -> bool {
        let mut state = self.state.lock();
        if self.is_foreign && state.verifier.is_none() {
            state.verifier = verifier;
        }
        if verifier.is_some() && verifier != state.verifier {
            return false;
        }
        let fates: Vec<_> = state.watched.iter().map(|record| (*record, fate(record))).collect();
        for (record, fate) in fates {
            // Whoever has not taken the fate of an earlier recovery yet still takes that.
            state.fates.entry(record).or_insert(fate);
        }
        state.has_lost = false;
        state.finished += 1;
        // Under the lock, as calls are held under it.
        if let Some(link) = self.link.upgrade() {
            link.release();
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// What a server says of itself; `None` if it says nothing about this share.
    fn greeted(&self, connection: RpcConnection) -> Result<Option<RecoveryStatus>, ClientError> {
        match self.ask(&mut Nfs3Client::new(connection, self.identity.clone())) {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.status() == Some(NfsStat3::Jukebox) => Err(error),
            // A server that does not serve the share (any more) has nothing that could be mended.
            Err(error) if error.status().is_some() || error.is_program_unavailable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Nobody waits any more.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Has nobody append to the journal before the guard is dropped ([`Recovery::enter`]).
    pub(crate) fn hold_appends(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// The changes in flight whose fate is kept.
    pub(crate) fn watched(&self) -> HashSet<Sequence> {
        self.state.lock().watched.clone()
    }

    /// Asks the server, as a recovery does, and believes it, whatever an old reply has said meanwhile. True: it waits
    /// for this client, and has served nobody else.
    pub(crate) fn ask_anew(&self, server: &Server) -> Result<bool, ClientError> {
        if self.is_foreign {
            return self.ask_foreign(server).map(|()| false);
        }
        let asked = |nfs: &mut Nfs3Client<_>| self.ask(nfs);
        let losses = server.link.losses();
        let status =
            server.call_for_recovery(losses, &self.identity, Patience::default(), asked)?;
        self.state.lock().verifier = Some(status.verifier);
        Ok(status.is_waited_for)
    }

    /// Waits until there is something to do; false at the end of the mount.
    pub(crate) fn await_loss(&self) -> bool {
        let mut state = self.state.lock();
        while !state.has_lost && !state.is_closed {
            self.changed.wait(&mut state);
        }
        !state.is_closed
    }
}

impl Greeter for Recovery {
    fn greet(&self, connection: RpcConnection) -> Result<(), ClientError> {
        if self.is_foreign {
            return self.greeted_by_foreign(connection);
        }
        match self.greeted(connection)? {
            Some(status) => self.told(status),
            // It had the share and the program: its disk may not be mounted yet.
            None if self.verifier().is_some() => {
                return Err(unknown_root());
            }
            None => {}
        }
        Ok(())
    }

    /// A foreign server is asked by COMMIT, and may have to write to its disk before it answers.
    fn patience(&self, timeout: Duration) -> Duration {
        if self.is_foreign { timeout.max(CONNECTING) } else { CONNECTING }
    }
}

/// "Later" is an answer, too, so that [`Server::call`] does not ask the same again.
fn or_later<T>(told: Result<T, ClientError>) -> Result<Result<T, ClientError>, ClientError> {
    match told {
        Err(error) if error.status() == Some(NfsStat3::Jukebox) => Ok(Err(error)),
        told => told.map(Ok),
    }
}

fn unknown_root() -> ClientError {
    io::Error::other("the server does not know the share's root").into()
}

fn host_name() -> Vec<u8> {
    let name = rustix::system::uname().nodename().to_bytes().to_vec();
    name.into_iter().take(NAME_BYTES_MAX).collect()
}
