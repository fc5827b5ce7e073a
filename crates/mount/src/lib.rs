//! A FUSE client of NFSv3, NFSv4.1 and NFSv4.2: `steadfast mount`.
//!
//! [`connect()`] finds a share and its root, [`Mounted::mount`] puts it in a directory, and
//! [`Mounted::serve`] answers the kernel until it is unmounted. In between: `fuse` takes the kernel's
//! requests, `volume` makes calls of them, `node` and `attribute_cache` keep what is known,
//! `write_back` and `held` all data on its way to the server, `locks` what is locked there, `server` and
//! `transport` carry calls. What these are (`calls`) is the same in all versions; `nfs4` makes COMPOUNDs of them.
//!
//! What is never done: acknowledging `fsync`, `close` or an `O_SYNC` write before the server has the data
//! on stable storage, or in memory while this host's journal has it on its disk; losing data that a
//! server's restart has taken from its memory; letting a slow call block another one; using the kernel's
//! write-back cache.
//!
//! With a journal (`journaling`) all that is written is in its ring until the server has it on stable
//! storage, and `replay` sends what an earlier mount has left. Without one, data that was written and neither
//! synced nor closed is lost with this process.
#![forbid(unsafe_code)]

mod attribute_cache;
mod calls;
mod compression;
mod connect;
mod counters;
mod document;
mod errors;
mod fuse;
mod guard;
mod held;
mod journaling;
mod keeping;
mod locks;
mod mounting;
mod nfs4;
mod node;
mod options;
mod pool;
mod process;
mod recoverer;
mod recovery;
mod replay;
mod server;
pub mod status;
mod transport;
mod versions;
mod volume;
mod write_back;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::{Config, Session, SessionACL};

pub use connect::{ConnectError, Connected, Specification, connect};
pub use guard::guard;
pub use options::{CacheTimes, JournalSync, LocalLocks, OptionError, Options, Version};
pub use replay::{Conflict, ReplayError, Report, replay_journal};

use crate::fuse::Adapter;
use crate::journaling::Journaling;
use crate::mounting::Place;
use crate::pool::Pool;
use crate::recovery::Recovery;
use crate::status::{Service, Subject};
use crate::transport::Patience;
use crate::volume::Volume;

/// Threads that take requests from the kernel, and wait for nothing. One, so that what a process does
/// after close(2) is seen after the release that close(2) has queued.
const RECEIVERS: usize = 1;
/// How far the kernel reads ahead, in KiB: what is in flight for 100 ms at 300 Mbit/s.
const READ_AHEAD_KIB: u32 = 4096;
/// How often open files are looked for whose attributes are not believed any more.
const LOOK: Duration = Duration::from_secs(1);
/// How long the server may take to hear that the journal is empty.
const LAST_WORD: Duration = Duration::from_secs(2);
/// How often data that is left after unmounting is reported.
const REPORT: Duration = Duration::from_secs(30);

/// A mount's journal, and what it does when the server has lost something.
type Journal = (Arc<Journaling>, Arc<Recovery>);

/// A mounted share, before it is served.
#[derive(Debug)]
pub struct Mounted {
    volume: Arc<Volume>,
    stale: Receiver<u64>,
    session: Session<Adapter>,
    place: Place,
    directory: PathBuf,
    what: Specification,
    since: SystemTime,
    journaling: Option<Arc<Journaling>>,
    recovery: Option<Arc<Recovery>>,
}

impl Mounted {
    /// Mounts a connected share at a directory. It must be served soon: whoever looks at the directory
    /// waits for that.
    ///
    /// # Errors
    /// When the directory cannot be mounted on, or FUSE is missing.
    pub fn mount(
        connected: Connected,
        source: &str,
        directory: &Path,
        options: &Options,
    ) -> io::Result<Self> {
        let (journaling, recovery) = match Self::journal(&connected, source, options)? {
            Some((journaling, recovery)) => (Some(journaling), Some(recovery)),
            None => (None, None),
        };
        let (volume, stale) =
            Volume::new(connected, options.clone(), journaling.clone(), recovery.clone())?;
        let volume = Arc::new(volume);
        let (device, place) = mounting::mount(source, directory, options)?;
        let session = Self::session(&volume, device, options);
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                let _ = place.unmount();
                return Err(error);
            }
        };
        let directory = directory.to_owned();
        let what = Specification::parse(source).map_err(io::Error::other)?;
        let since = SystemTime::now();
        Ok(Self { volume, stale, session, place, directory, what, since, journaling, recovery })
    }

    /// Opens the journal, if the options name one, tells the server of it, and sends what is in it.
    fn journal(
        connected: &Connected,
        source: &str,
        options: &Options,
    ) -> io::Result<Option<Journal>> {
        let what = Specification::parse(source).map_err(io::Error::other)?;
        let Some((journaling, recovered)) =
            Journaling::open(what, connected, options).map_err(io::Error::other)?
        else {
            return Ok(None);
        };
        let recovery = Recovery::begin(&connected.server, &connected.root, journaling.id());
        let recovery = recovery.map_err(io::Error::other)?;
        journaling.replay(&connected.server, &recovered).map_err(io::Error::other)?;
        if let Some(recovery) = &recovery
            && let Err(error) = recovery.tell_recovered(&connected.server)
        {
            tracing::warn!(%error, "the server was not told: it may go on waiting for this client");
        }
        let (server, root) = (&connected.server, &connected.root);
        let recovery =
            recovery.unwrap_or_else(|| Recovery::begin_foreign(server, root, journaling.id()));
        let journaling = Arc::new(journaling);
        journaling.start_care()?;
        Ok(Some((journaling, recovery)))
    }

    fn session(
        volume: &Arc<Volume>,
        device: OwnedFd,
        options: &Options,
    ) -> io::Result<Session<Adapter>> {
        let mut config = Config::default();
        config.n_threads = Some(RECEIVERS);
        config.clone_fd = true;
        let is_for_all = options.allow_other || rustix::process::geteuid().is_root();
        let acl = if is_for_all { SessionACL::All } else { SessionACL::Owner };
        let adapter = Adapter { volume: Arc::clone(volume), pool: Pool::default() };
        Session::from_fd(adapter, device, acl, config)
    }

    /// What unmounts from another thread, when a signal says so.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { place: self.place.clone() }
    }

    /// Starts a process that ends the connection to the kernel when this one has died. The command has to call
    /// [`guard()`]. To be called by the thread that serves. A mount works without that, too.
    pub fn guard_with(&self, command: Command) {
        let Some((_, minor)) = self.place.device else { return };
        // With NFSv4 the server frees what a client has left, after its lease.
        let has_ledger = self.volume.server().nfs4.is_none();
        let locks = self.volume.locks().filter(|_| has_ledger);
        let ledger = locks.and_then(|locks| locks.ledger().ok());
        match guard::start(command, minor, ledger) {
            Ok(guard) => {
                tracing::debug!(pid = guard.id(), "a process looks after the mount");
                guard::watch(guard);
            }
            Err(error) => tracing::info!(%error, "{}", guard::UNGUARDED),
        }
    }

    /// Answers the kernel until the share is unmounted, then writes back what is left: with `hard` as
    /// long as it takes.
    ///
    /// # Errors
    /// When the connection to the kernel fails.
    pub fn serve(self) -> io::Result<()> {
        let service = self.answer_questions();
        let Self { volume, stale, session, directory, journaling, recovery, .. } = self;
        let kernel = session.notifier();
        volume.set_kernel(kernel.clone());
        thread::Builder::new()
            .name("nfs-stale".to_owned())
            .spawn(move || volume::drop_stale_pages(&stale, &kernel))?;
        // Looking at the mount needs somebody who answers: a thread beside.
        thread::Builder::new().name("nfs-ahead".to_owned()).spawn(move || {
            if let Ok(metadata) = std::fs::metadata(&directory) {
                mounting::set_read_ahead(metadata.dev(), READ_AHEAD_KIB);
            }
        })?;
        let looked_at = Arc::downgrade(&volume);
        thread::Builder::new().name("nfs-look".to_owned()).spawn(move || {
            loop {
                thread::sleep(LOOK);
                match looked_at.upgrade() {
                    Some(volume) => {
                        volume.close_written();
                        volume.look_at_open_files();
                    }
                    None => return,
                }
            }
        })?;
        if volume.locks().is_some() && volume.server().nfs4.is_none() {
            // Without it what a dead mount has locked stays so until the next mount.
            let _ = thread::Builder::new()
                .name("nfs-free".to_owned())
                .spawn(locks::ledger::free_abandoned);
        }
        // Whatever ended it, what was written is the server's.
        let outcome = session.run();
        if let Err(error) = &outcome {
            tracing::error!(%error, "the connection to the kernel failed");
        }
        tracing::debug!(nodes = volume.nodes().count(), "unmounted");
        loop {
            match volume.write_back().finish(REPORT) {
                0 => break,
                bytes => tracing::warn!(bytes, "unmounted, and data is still to be written"),
            }
        }
        // Not before the data that was written under a lock.
        if let Some(locks) = volume.locks() {
            locks.close();
        }
        volume.finish_removals();
        volume.close_all();
        if let Some(keeping) = volume.keeping() {
            loop {
                match keeping.finish(REPORT) {
                    0 => break,
                    changes => {
                        tracing::warn!(changes, "unmounted, and changes are not stable yet");
                    }
                }
            }
        }
        volume.write_back().close();
        if let Some(recovery) = recovery {
            if journaling.as_ref().is_some_and(|journaling| journaling.is_empty()) {
                let until = Some(Instant::now() + LAST_WORD);
                recovery.tell_detached(volume.server(), Patience { pid: 0, until });
            }
            recovery.close();
        }
        if let Some(client) = &volume.server().nfs4 {
            client.end();
        }
        volume.server().link.close();
        if let Some(journaling) = journaling {
            journaling.end();
        }
        if let Some(service) = service {
            service.end();
        }
        outcome
    }

    /// Whoever asks how the mount is gets an answer from now on. A mount works without that, too.
    fn answer_questions(&self) -> Option<Arc<Service>> {
        let subject = Arc::new(Subject {
            volume: Arc::clone(&self.volume),
            journaling: self.journaling.clone(),
            recovery: self.recovery.clone(),
            what: self.what.clone(),
            directory: self.directory.clone(),
            mounted: self.since,
            asked: OnceLock::new(),
        });
        let started = match self.place.device {
            Some(device) => Service::start(Arc::clone(&subject), device),
            None => Err(io::Error::other("the kernel does not list the mount")),
        };
        let asking = thread::Builder::new().name("nfs-ask".to_owned());
        match started {
            Ok(service) => {
                // Without it the answers lack what the server is.
                let _ = asking.spawn(move || subject.ask_server());
                Some(service)
            }
            Err(error) => {
                tracing::warn!(%error, "steadfast mount status and flush do not work for this mount");
                None
            }
        }
    }
}

/// Unmounts a share from another thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    place: Place,
}

impl Unmounter {
    /// Unmounts; [`Mounted::serve`] then ends.
    ///
    /// # Errors
    /// Those of umount2(2), or of fusermount3.
    pub fn unmount(&self) -> io::Result<()> {
        self.place.unmount()
    }
}
