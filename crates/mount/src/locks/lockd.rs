//! The server's lock manager: where it is, the connection to it, and whether it has restarted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use steadfast_client::nlm::{self, How, Lock, NlmStat, Tested};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection, rpcbind};

use super::ledger::{Entry, Header, Ledger, owner_name};
use super::table::{Kind, Span};
use crate::options::Options;
use crate::server::Server;
use crate::status::unix_ms;
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

/// Notes that the connection was made again.
#[derive(Debug, Default)]
pub(super) struct Reconnections(AtomicBool);

impl Greeter for Reconnections {
    fn greet(&self, _: RpcConnection) -> Result<(), ClientError> {
        self.0.store(true, Ordering::Release);
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

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// It was not sent: the lock manager cannot be found now.
    #[error("the server's lock manager cannot be reached: {0}")]
    NotSent(ClientError),
    /// There is none.
    #[error("the server has no lock manager (NLM 4 over TCP)")]
    NotServed,
    /// It may have been executed.
    #[error("{0}")]
    InDoubt(ClientError),
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
        })
    }

    /// Notes an owner that may get locks.
    pub(super) fn note(&self, remote: &Remote) -> Option<usize> {
        let entry = Entry::new(&remote.identity, &remote.handle, remote.number);
        self.ledger.lock().note(&entry)
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
    pub(super) fn lock(
        &self,
        remote: &Remote,
        span: Span,
        kind: Kind,
        is_reclaim: bool,
    ) -> Result<NlmStat, Unanswered> {
        let owner = owner_name(remote.number, &self.name);
        let lock = self.lock_of(remote, &owner, span);
        let is_exclusive = kind == Kind::Write;
        let mut is_unmonitored = self.found.lock().is_unmonitored;
        loop {
            let how = How { is_exclusive, is_reclaim, is_unmonitored };
            let stat = self.call(None, |caller| nlm::lock(caller, &remote.identity, &lock, how))?;
            if stat != NlmStat::DeniedNoLocks || is_unmonitored {
                if stat == NlmStat::Granted && is_unmonitored {
                    self.found.lock().is_unmonitored = true;
                }
                return Ok(stat);
            }
            // A server whose monitor does not run gives locks to clients that want none.
            is_unmonitored = true;
        }
    }

    /// UNLOCK.
    pub(super) fn unlock(
        &self,
        remote: &Remote,
        span: Span,
        until: Option<Instant>,
    ) -> Result<NlmStat, Unanswered> {
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
        let owner = owner_name(remote.number, &self.name);
        let lock = self.lock_of(remote, &owner, span);
        let link = self.link()?;
        let patience = self.server.patience(patience, Instant::now());
        let mut caller = caller(link, patience);
        nlm::test(&mut caller, &remote.identity, &lock, kind == Kind::Write).map_err(of_call)
    }

    fn call<T>(
        &self,
        until: Option<Instant>,
        call: impl FnOnce(&mut Caller) -> Result<T, ClientError>,
    ) -> Result<T, Unanswered> {
        let link = self.link()?;
        let patience = self.server.patience(Patience { pid: 0, until }, Instant::now());
        call(&mut caller(link, patience)).map_err(of_call)
    }

    fn link(&self) -> Result<Arc<Link>, Unanswered> {
        let mut found = self.found.lock();
        if found.is_closed {
            return Err(Unanswered::NotSent(ClientError::Closed));
        }
        if let Some(link) = &found.link {
            return Ok(Arc::clone(link));
        }
        let address = self.find()?;
        let link = self.open(address, &mut found)?;
        found.link = Some(Arc::clone(&link));
        Ok(link)
    }

    fn open(&self, address: SocketAddr, found: &mut Found) -> Result<Arc<Link>, Unanswered> {
        let link = Link::open(address, self.from_reserved_port, self.timeout, 1);
        let link = link.map_err(Unanswered::NotSent)?;
        link.greet_with(Arc::clone(&self.reconnections) as Arc<dyn Greeter>);
        if !found.is_begun {
            let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
            let identity = Identity::None;
            let status = self
                .server
                .call(&identity, patience, |nfs| nfs.recovery_status(&self.root).map(drop));
            // Only Steadfast has the program. It may refuse the caller.
            found.is_steadfast = matches!(status, Ok(()) | Err(ClientError::Failed(_)));
            found.is_begun = true;
        }
        let header = Header {
            server: address,
            from_reserved_port: self.from_reserved_port,
            caller_name: self.name.clone(),
            goes_by_name: found.is_steadfast,
        };
        if let Err(error) = self.ledger.lock().begin(&header) {
            tracing::warn!(%error, "locks are not noted: after a crash the server keeps them");
        }
        Ok(link)
    }

    /// Where NLM is: at the port that was named, at that of NFS, or where rpcbind says.
    fn find(&self) -> Result<SocketAddr, Unanswered> {
        let nfs = self.server.link.server();
        if let Some(port) = self.port {
            return Ok(SocketAddr::new(nfs.ip(), port));
        }
        let connection = RpcConnection::connect(nfs, STEP);
        match connection.and_then(|mut connection| nlm::null(&mut connection)) {
            Ok(()) => return Ok(nfs),
            Err(error) if error.is_unavailable() => {}
            Err(ClientError::Denied(_) | ClientError::Accepted(_)) => {}
            Err(error) => return Err(Unanswered::NotSent(error)),
        }
        let rpcbind = SocketAddr::new(nfs.ip(), RPCBIND_PORT);
        let asked = RpcConnection::connect(rpcbind, STEP)
            .and_then(|mut connection| rpcbind::port(&mut connection, nlm::NLM, VERSION, false));
        match asked {
            Ok(Some(port)) => Ok(SocketAddr::new(nfs.ip(), port)),
            Ok(None) => Err(Unanswered::NotServed),
            Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // NFS answers, and rpcbind does not run.
                Err(Unanswered::NotServed)
            }
            Err(error) => Err(Unanswered::NotSent(error)),
        }
    }

    /// Looks for it elsewhere if it has been away for a while.
    pub(super) fn look(&self) {
        let away = || {
            // Somebody who has it for long looks for it already.
            let found = self.found.try_lock()?;
            let link = found.link.as_ref().filter(|_| !found.is_closed)?;
            let connections = link.connections();
            let connection = connections.first().filter(|connection| !connection.is_up)?;
            let away_s =
                (unix_ms(SystemTime::now()) / 1000).saturating_sub(connection.since_unix_s);
            (away_s >= AWAY.as_secs()).then(|| Arc::clone(link))
        };
        let Some(old) = away() else { return };
        let Ok(address) = self.find() else { return };
        if address == old.server() {
            return;
        }
        let mut found = self.found.lock();
        let Ok(link) = self.open(address, &mut found) else { return };
        found.link = Some(link);
        self.reconnections.0.store(true, Ordering::Release);
        // What waits for an answer is sent again over the new one.
        old.close();
    }

    /// Whether the connection was made again since this was asked last.
    pub(super) fn take_reconnection(&self) -> bool {
        self.reconnections.0.swap(false, Ordering::AcqRel)
    }

    /// Learns the server's write verifier before a first lock is asked for, to know a restart.
    pub(super) fn learn_verifier(&self, remote: &Remote) {
        {
            let mut found = self.found.lock();
            if found.verifier.is_some() || found.asked >= ASKED_MAX {
                return;
            }
            found.asked += 1;
        }
        if let Some(verifier) = self.verifier(remote) {
            self.found.lock().verifier.get_or_insert(verifier);
        }
    }

    /// Nothing is locked: a restart before now has taken nothing.
    pub(super) fn forget_verifier(&self) {
        let mut found = self.found.lock();
        (found.verifier, found.asked) = (None, 0);
    }

    /// Whether the server has restarted since the first lock was taken, by the word of the first of these owners who
    /// may ask; `None` if nobody knows.
    pub(super) fn has_restarted<'r>(
        &self,
        remotes: impl Iterator<Item = &'r Remote>,
    ) -> Option<bool> {
        let verifier = remotes.take(ASKED_MAX).find_map(|remote| self.verifier(remote))?;
        let known = self.found.lock().verifier.replace(verifier)?;
        Some(known != verifier)
    }

    /// A COMMIT of one byte tells it, to whoever may write to the file.
    fn verifier(&self, remote: &Remote) -> Option<[u8; 8]> {
        let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
        let told =
            self.server.call(&remote.identity, patience, |nfs| nfs.commit(&remote.handle, 0, 1));
        told.ok().map(|commit| commit.verifier)
    }

    /// Whether the server keeps locks over a restart.
    pub(super) fn keeps_locks(&self) -> bool {
        self.found.lock().is_steadfast
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

fn of_call(error: ClientError) -> Unanswered {
    if error.is_unavailable() { Unanswered::NotServed } else { Unanswered::InDoubt(error) }
}

fn caller(link: Arc<Link>, patience: Patience) -> Caller {
    let losses = link.losses();
    Caller { link, patience, losses, is_of_recovery: false, repeats: Repeats::default() }
}
