//! The server's lock manager: where it is, the connection to it, and whether it has restarted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use steadfast_client::nlm::{self, How, Lock, NlmStat, Tested};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection, rpcbind};

use super::ledger::{Entry, Header, Ledger, Unsynced, owner_name};
use super::table::{Kind, Span};
use crate::document::unix_ms;
use crate::nfs4::{Client4, LockAsker};
use crate::options::Options;
use crate::server::Server;
use crate::transport::{Caller, Greeter, Link, Patience, Repeats};

/// How long each step of finding it may take.
const STEP: Duration = Duration::from_secs(10);
/// The port of rpcbind.
const RPCBIND_PORT: u16 = 111;
/// The version of NLM.
const VERSION: u32 = 4;
/// Where it is is asked again when it has been away for so long: its port may be another one now.
const AWAY: Duration = Duration::from_secs(5);

/// Owners of whom it is tried whether they may ask for the write verifier.
const ASKED_MAX: usize = 8;
/// How often rpcbind may be silent, while NFS answers, until the server counts as one without a lock manager.
const SILENCES_MAX: u32 = 3;
/// How often a lock is asked for again since it is not sure at which connection it was granted.
const SURE_MAX: u32 = 3;

/// How often the connection was made again. Before a call is sent over it, it is counted.
#[derive(Debug, Default)]
pub(super) struct Reconnections(AtomicU64);

impl Greeter for Reconnections {
    fn greet(&self, _: RpcConnection) -> Result<(), ClientError> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// An owner of locks of a file, as the server knows it.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) identity: Identity,
    pub(super) handle: Arc<FileHandle>,
    pub(super) number: u32,
}

impl Remote {
    /// The same for NFSv4.
    fn asker(&self) -> LockAsker<'_> {
        LockAsker { identity: &self.identity, handle: &self.handle, number: self.number }
    }
}

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// It was not sent: the lock manager cannot be found now.
    #[error("the server's lock manager cannot be reached: {0}")]
    NotSent(ClientError),
    /// There is none.
    #[error("the server has no lock manager (NLM 4 over TCP)")]
    NotServed,
    /// It was not executed: the server refuses calls of this kind or of this user.
    #[error("{0}")]
    Refused(ClientError),
    /// It may have been executed.
    #[error("{0}")]
    InDoubt(ClientError),
}

/// What came of a call.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) stat: Result<NlmStat, Unanswered>,
    /// How often the connection had been made again when the call was sent. A lock was granted at that connection, or
    /// at a later one.
    pub(super) generation: u64,
    /// It was sent more than once: a sending of before may be executed late.
    pub(super) is_repeated: bool,
    /// By NFSv4, the epoch in which a lock was granted, or in which unlocking was begun.
    epoch: Option<u64>,
}

impl Told {
    /// The server may execute the call at any time.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_repeated || matches!(self.stat, Err(Unanswered::InDoubt(_)))
    }
}

/// Whether the server has restarted since the first lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Yes,
    No,
    /// None of those who have locks may ask, or nobody knows how it was before.
    Unknown,
    /// It did not answer: it is to be asked again.
    Unanswered,
}

/// What is known of the lock manager.
#[derive(Debug, Default)]
struct Found {
    link: Option<Arc<Link>>,
    /// The server refuses locks of clients that it cannot monitor.
    is_unmonitored: bool,
    /// The write verifier.
    verifier: Option<[u8; 8]>,
    /// Owners who have asked for it.
    asked: usize,
    /// The server keeps locks over a restart, and frees them by the client's name.
    is_steadfast: bool,
    /// That is known.
    is_begun: bool,
    is_closed: bool,
}

/// The lock manager.
#[derive(Debug)]
pub(super) struct Lockd {
    server: Arc<Server>,
    root: FileHandle,
    port: Option<u16>,
    from_reserved_port: bool,
    timeout: Duration,
    pub(super) name: String,
    pub(super) ledger: Mutex<Ledger>,
    reconnections: Arc<Reconnections>,
    found: Mutex<Found>,
    /// Held by who looks for it, which may take long.
    finding: Mutex<()>,
    /// How often rpcbind was silent, one time after the other.
    silences: AtomicU32,
}

impl Lockd {
    pub(super) fn new(
        server: Arc<Server>,
        root: FileHandle,
        options: &Options,
    ) -> io::Result<Self> {
        let mut tail = [0; 8];
        steadfast_sys::process::random_bytes(&mut tail)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host: String = host.chars().filter(char::is_ascii_graphic).take(64).collect();
        let host = host.replace('/', "-");
        let name = format!("{host}-{:016x}", u64::from_be_bytes(tail));
        let ledger = Ledger::new(&name)?;
        Ok(Self {
            server,
            root,
            port: options.lock_port,
            from_reserved_port: options.from_reserved_port,
            timeout: options.timeout,
            name,
            ledger: Mutex::new(ledger),
            reconnections: Arc::default(),
            found: Mutex::default(),
            finding: Mutex::default(),
            silences: AtomicU32::new(0),
        })
    }

    /// What NFSv4 has instead of a lock manager.
    pub(super) fn nfs4(&self) -> Option<&Arc<Client4>> {
        self.server.nfs4.as_ref()
    }

    /// A call of NFSv4 by which something is locked or unlocked.
    fn told_by_nfs4(
        &self,
        until: Option<Instant>,
        call: impl FnOnce(Patience) -> Result<(NlmStat, Option<u64>), ClientError>,
    ) -> Told {
        let patience = self.server.patience(Patience { pid: 0, until }, Instant::now());
        let (stat, epoch) = match call(patience) {
            Ok((stat, epoch)) => (Ok(stat), epoch),
            Err(error) => (Err(of_call4(error)), None),
        };
        // A session has each request executed once.
        Told { stat, generation: self.generation(), is_repeated: false, epoch }
    }

    /// Notes an owner that may get locks.
    pub(super) fn note(&self, remote: &Remote) -> Option<usize> {
        if self.nfs4().is_some() {
            // The server frees what a client has left, after its lease.
            return None;
        }
        let entry = Entry::new(&remote.identity, &remote.handle, remote.number);
        self.ledger.lock().note(&entry)
    }

    /// Notes an owner anew at its place.
    pub(super) fn note_again(&self, place: usize, remote: &Remote) {
        let entry = Entry::new(&remote.identity, &remote.handle, remote.number);
        self.ledger.lock().note_again(place, &entry);
    }

    fn lock_of<'a>(&'a self, remote: &'a Remote, owner: &'a [u8], span: Span) -> Lock<'a> {
        let (offset, length) = span.on_the_wire();
        Lock {
            caller_name: self.name.as_bytes(),
            file: &remote.handle,
            owner,
            number: remote.number,
            offset,
            length,
        }
    }

    /// LOCK, which does not wait for other owners.
    pub(super) fn lock(&self, remote: &Remote, span: Span, kind: Kind, is_reclaim: bool) -> Told {
        if let Some(client) = self.nfs4() {
            let (offset, length) = span.as_nfs4();
            let range = (offset, length, kind == Kind::Write);
            return self
                .told_by_nfs4(None, |patience| client.lock(remote.asker(), range, patience));
        }
        let owner = owner_name(remote.number, &self.name);
        let lock = self.lock_of(remote, &owner, span);
        let is_exclusive = kind == Kind::Write;
        let mut is_unmonitored = self.found.lock().is_unmonitored;
        let (mut is_repeated, mut times_granted) = (false, 0);
        loop {
            let how = How { is_exclusive, is_reclaim, is_unmonitored };
            let mut told =
                self.call(None, |caller| nlm::lock(caller, &remote.identity, &lock, how));
            let is_sure = !told.is_repeated && told.generation == self.generation();
            is_repeated |= told.is_repeated;
            told.is_repeated = is_repeated;
            match &told.stat {
                Ok(NlmStat::DeniedNoLocks) if !is_unmonitored => {
                    // A server whose monitor does not run gives locks to clients that want none.
                    is_unmonitored = true;
                    continue;
                }
                Ok(NlmStat::Granted) => {
                    if is_unmonitored {
                        self.found.lock().is_unmonitored = true;
                    }
                    times_granted += 1;
                    // The server may have restarted after it has granted it. Who has a lock gets it once more.
                    if !is_sure && times_granted < SURE_MAX {
                        continue;
                    }
                }
                // It was granted, and now nobody knows.
                _ => told.is_repeated |= times_granted > 0,
            }
            return told;
        }
    }

    /// UNLOCK.
    pub(super) fn unlock(&self, remote: &Remote, span: Span, until: Option<Instant>) -> Told {
        if let Some(client) = self.nfs4() {
            let range = span.as_nfs4();
            let epoch = Some(client.epoch());
            return self.told_by_nfs4(until, |patience| {
                client.unlock(remote.asker(), range, patience).map(|stat| (stat, epoch))
            });
        }
        let owner = owner_name(remote.number, &self.name);
        let lock = self.lock_of(remote, &owner, span);
        self.call(until, |caller| nlm::unlock(caller, &remote.identity, &lock))
    }

    /// TEST.
    pub(super) fn test(
        &self,
        remote: &Remote,
        span: Span,
        kind: Kind,
        patience: Patience,
    ) -> Result<Tested, Unanswered> {
        if let Some(client) = self.nfs4() {
            let (offset, length) = span.as_nfs4();
            let range = (offset, length, kind == Kind::Write);
            let patience = self.server.patience(patience, Instant::now());
            return client.test_lock(remote.asker(), range, patience).map_err(of_call4);
        }
        let owner = owner_name(remote.number, &self.name);
        let lock = self.lock_of(remote, &owner, span);
        let patience = self.server.patience(patience, Instant::now());
        let link = self.link(patience)?;
        let mut caller = caller(link, patience, Repeats::default());
        nlm::test(&mut caller, &remote.identity, &lock, kind == Kind::Write).map_err(of_call)
    }

    /// Whether a lock that was granted is still there, as far as NFSv4's session tells. If this is asked with the lock of
    /// the state, what is in the table before that is released is reclaimed, or told to be lost. NFSv3's are judged
    /// later, by the generation.
    pub(super) fn has_still(&self, remote: &Remote, told: &Told) -> bool {
        match (self.nfs4(), told.epoch) {
            (Some(client), Some(epoch)) => client.has_lock(remote.asker(), epoch),
            _ => true,
        }
    }

    /// Whether the server may have been told again, since it was told of this by NFSv4, of what the table has.
    pub(super) fn is_retold(&self, told: &Told) -> bool {
        self.nfs4().is_some_and(|client| told.epoch.is_some_and(|epoch| epoch != client.epoch()))
    }

    /// Whether the server has the lock, as it tells somebody else. False if that is not known.
    pub(super) fn has(&self, remote: &Remote, span: Span) -> bool {
        // No owner has this number (see `State::number`).
        let other = Remote { number: 0, ..remote.clone() };
        let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
        match self.test(&other, span, Kind::Write, patience) {
            Ok(Tested::Held(holder)) => holder.owner == owner_name(remote.number, &self.name),
            _ => false,
        }
    }

    fn call(
        &self,
        until: Option<Instant>,
        call: impl FnOnce(&mut Caller) -> Result<NlmStat, ClientError>,
    ) -> Told {
        let patience = self.server.patience(Patience { pid: 0, until }, Instant::now());
        // Before the connection is chosen: a later one is counted then.
        let generation = self.generation();
        let link = self.link(patience);
        let repeats = Repeats::default();
        let stat = link
            .and_then(|link| call(&mut caller(link, patience, repeats.clone())).map_err(of_call));
        Told { stat, generation, is_repeated: repeats.is_noted(), epoch: None }
    }

    /// The connection, which is made if there is none.
    fn link(&self, patience: Patience) -> Result<Arc<Link>, Unanswered> {
        let known = || {
            let found = self.found.lock();
            if found.is_closed {
                return Some(Err(Unanswered::NotSent(ClientError::Closed)));
            }
            found.link.clone().map(Ok)
        };
        if let Some(known) = known() {
            return known;
        }
        let since = Instant::now();
        let _finding = loop {
            if let Some(finding) = self.finding.try_lock_for(patience.nap()) {
                break finding;
            }
            if let Some(error) = patience.end(since) {
                return Err(Unanswered::NotSent(error));
            }
        };
        if let Some(known) = known() {
            return known;
        }
        let link = self.open(self.find(patience.until)?)?;
        let mut found = self.found.lock();
        if found.is_closed {
            link.close();
            return Err(Unanswered::NotSent(ClientError::Closed));
        }
        found.link = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Connects, and notes where. For who holds `finding`.
    fn open(&self, address: SocketAddr) -> Result<Arc<Link>, Unanswered> {
        let link = Link::open(address, self.from_reserved_port, self.timeout, 1);
        let link = link.map_err(Unanswered::NotSent)?;
        link.greet_with(Arc::clone(&self.reconnections) as Arc<dyn Greeter>);
        let header = Header {
            server: address,
            from_reserved_port: self.from_reserved_port,
            caller_name: self.name.clone(),
            goes_by_name: self.is_steadfast() == Some(true),
        };
        let begun = self.ledger.lock().begin(&header);
        // The disk is waited for while others note owners.
        if let Err(error) = begun.and_then(Unsynced::sync) {
            tracing::warn!(%error, "locks are not noted: after a crash the server keeps them");
        }
        Ok(link)
    }

    /// Whether the server is Steadfast: it keeps locks over a restart, and frees them by the client's name. `None` if it
    /// does not answer.
    pub(super) fn is_steadfast(&self) -> Option<bool> {
        {
            let found = self.found.lock();
            if found.is_begun {
                return Some(found.is_steadfast);
            }
        }
        let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
        let status = self
            .server
            .call(&Identity::None, patience, |nfs| nfs.recovery_status(&self.root).map(drop));
        // Only Steadfast has the program. It may refuse the caller.
        let is_steadfast = match status {
            Ok(()) | Err(ClientError::Failed(_)) => true,
            Err(error) if is_refusal(&error) => false,
            Err(_) => return None,
        };
        let mut found = self.found.lock();
        (found.is_steadfast, found.is_begun) = (is_steadfast, true);
        Some(is_steadfast)
    }

    /// Where NLM is: at the port that was named, at that of NFS, or where rpcbind says.
    fn find(&self, until: Option<Instant>) -> Result<SocketAddr, Unanswered> {
        let nfs = self.server.link.server();
        if let Some(port) = self.port {
            return Ok(SocketAddr::new(nfs.ip(), port));
        }
        let step = || {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            left.map_or(STEP, |left| left.clamp(Duration::from_millis(1), STEP))
        };
        let mut connection = RpcConnection::connect(nfs, step()).map_err(Unanswered::NotSent)?;
        match nlm::null(&mut connection) {
            Ok(()) => return Ok(nfs),
            Err(error) if is_refusal(&error) => {}
            // So do some servers with calls of programs that they do not have.
            Err(ClientError::Closed) => {}
            Err(ClientError::Io(error)) if is_closed(&error) => {}
            Err(error) => return Err(Unanswered::NotSent(error)),
        }
        let rpcbind = SocketAddr::new(nfs.ip(), RPCBIND_PORT);
        let asked = RpcConnection::connect(rpcbind, step())
            .and_then(|mut connection| rpcbind::port(&mut connection, nlm::NLM, VERSION, false));
        match asked {
            Ok(Some(port)) => {
                self.silences.store(0, Ordering::Relaxed);
                Ok(SocketAddr::new(nfs.ip(), port))
            }
            Ok(None) => Err(Unanswered::NotServed),
            Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // NFS answers, and rpcbind does not run.
                Err(Unanswered::NotServed)
            }
            // NFS answers, and a packet filter may be before rpcbind.
            Err(_) if self.silences.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCES_MAX => {
                Err(Unanswered::NotServed)
            }
            Err(error) => Err(Unanswered::NotSent(error)),
        }
    }

    /// Looks for it elsewhere if it has been away for a while.
    pub(super) fn look(&self) {
        let away = || {
            let found = self.found.lock();
            let link = found.link.as_ref().filter(|_| !found.is_closed)?;
            let connections = link.connections();
            let connection = connections.first().filter(|connection| !connection.is_up)?;
            let away_s =
                (unix_ms(SystemTime::now()) / 1000).saturating_sub(connection.since_unix_s);
            (away_s >= AWAY.as_secs()).then(|| Arc::clone(link))
        };
        let Some(old) = away() else { return };
        // Somebody who has it for long looks for it already.
        let Some(_finding) = self.finding.try_lock() else { return };
        let Ok(address) = self.find(None) else { return };
        if address == old.server() {
            return;
        }
        let Ok(link) = self.open(address) else { return };
        {
            let mut found = self.found.lock();
            let is_same = found.link.as_ref().is_some_and(|link| Arc::ptr_eq(link, &old));
            if found.is_closed || !is_same {
                link.close();
                return;
            }
            // Before a call is sent over it.
            self.reconnections.0.fetch_add(1, Ordering::AcqRel);
            found.link = Some(link);
        }
        // What waits for an answer is sent again over the new one.
        old.close();
    }

    /// The connection ends as if the lock manager was elsewhere now.
    #[cfg(test)]
    pub(super) fn lose_link(&self) {
        let link = self.found.lock().link.take();
        self.reconnections.0.fetch_add(1, Ordering::AcqRel);
        link.unwrap().close();
    }

    /// How often the connection was made again.
    pub(super) fn generation(&self) -> u64 {
        self.reconnections.0.load(Ordering::Acquire)
    }

    /// Learns the server's write verifier before a first lock is asked for, to know a restart. Who has a write lock
    /// may ask in all likelihood.
    pub(super) fn learn_verifier(&self, remote: &Remote, kind: Kind) {
        if self.nfs4().is_some() {
            // The session tells of a restart.
            return;
        }
        {
            let mut found = self.found.lock();
            if found.verifier.is_some() || found.asked >= ASKED_MAX && kind == Kind::Read {
                return;
            }
            found.asked += 1;
        }
        if let Ok(verifier) = self.verifier(remote) {
            self.found.lock().verifier.get_or_insert(verifier);
        }
    }

    /// Nothing is locked, or asked for: a restart before now has taken nothing.
    pub(super) fn forget_verifier(&self) {
        let mut found = self.found.lock();
        (found.verifier, found.asked) = (None, 0);
    }

    /// Whether the server has restarted since the first lock was taken, by the word of the first of these owners who
    /// may ask.
    pub(super) fn has_restarted<'r>(&self, remotes: impl Iterator<Item = &'r Remote>) -> Restart {
        for remote in remotes.take(ASKED_MAX) {
            match self.verifier(remote) {
                Ok(verifier) => {
                    let known = self.found.lock().verifier.replace(verifier);
                    return match known {
                        None => Restart::Unknown,
                        Some(known) if known == verifier => Restart::No,
                        Some(_) => Restart::Yes,
                    };
                }
                Err(ClientError::Failed(_)) => {}
                Err(error) if is_refusal(&error) => {}
                Err(_) => return Restart::Unanswered,
            }
        }
        // One that is older than locks which are taken from now on would tell of a restart that took none of them.
        self.found.lock().verifier = None;
        Restart::Unknown
    }

    /// A COMMIT of one byte tells it, to whoever may write to the file.
    fn verifier(&self, remote: &Remote) -> Result<[u8; 8], ClientError> {
        let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
        let told =
            self.server.call(&remote.identity, patience, |nfs| nfs.commit(&remote.handle, 0, 1));
        told.map(|commit| commit.verifier)
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        let mut found = self.found.lock();
        found.is_closed = true;
        if let Some(link) = found.link.take() {
            link.close();
        }
    }
}

/// Whether the server has answered that it does not execute the call.
fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::Denied(_) | ClientError::Accepted(_))
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn of_call(error: ClientError) -> Unanswered {
    if error.is_unavailable() {
        Unanswered::NotServed
    } else if is_refusal(&error) {
        Unanswered::Refused(error)
    } else {
        Unanswered::InDoubt(error)
    }
}

/// As [`of_call`], of NFSv4: an operation that failed has changed nothing.
fn of_call4(error: ClientError) -> Unanswered {
    if error.status().is_some() { Unanswered::Refused(error) } else { of_call(error) }
}

fn caller(link: Arc<Link>, patience: Patience, repeats: Repeats) -> Caller {
    let losses = link.losses();
    Caller { link, patience, losses, is_of_recovery: false, repeats }
}
