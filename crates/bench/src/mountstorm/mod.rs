//! mountstorm: many clients mount at the same moment, as when a job starts on a whole cluster.
//!
//! [`Mountstorm`] says how many, [`run`] does it and returns a [`Report`]. Each client connects,
//! asks rpcbind (if wanted) for NFS and MOUNT, connects, calls MNT, connects, calls FSINFO and
//! GETATTR, and stays connected. Or it does as automounters do that mount everything
//! ([`EveryShare`]): it asks for the list of shares by EXPORT, and calls MNT for each. One that
//! fails begins again after a pause, as mount.nfs(8) does, until its time is over. Inside: `client`
//! is one of them, `everything` and `listing` are for all shares, `worker` a thread of them, `beside` the load
//! that may keep the server busy meanwhile.

mod beside;
mod client;
mod everything;
mod failure;
mod listing;
mod report;
mod worker;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_client::{CallTemplate, mount, reserved};

use crate::drive::{CLIENTS_MAX, Control, sockets};
use crate::error::BenchError;
use crate::server_cost::{Costs, Snapshot};
use crate::setup::Target;
use listing::{Listing, Paths};
pub use report::{BesideReport, EveryShareReport, Report};
use worker::Tally;

const LIST_RECEIVE_BYTES: usize = 256 << 10;
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How long a client waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a connection or a reply, before the attempt counts as failed.
    pub call: Duration,
    /// In all; the last attempt may end later.
    pub whole: Duration,
}

impl Default for Patience {
    /// 10 s a step and 2 minutes in all, as mount.nfs(8) has them (`retry=2`).
    fn default() -> Self {
        Self { call: Duration::from_secs(10), whole: Duration::from_secs(120) }
    }
}

/// Clients mount every share that EXPORT tells, one after the other, up to this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EveryShare(pub usize);

/// A load that runs meanwhile: GETATTR and ACCESS of the share's root in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Virtual clients of that load.
    pub clients: usize,
    /// Calls in flight of each.
    pub depth: usize,
    /// How long it runs before the storm.
    pub warm_up: Duration,
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Mountstorm {
    /// The server; its addresses are what rpcbind says, where that is asked.
    pub target: Target,
    /// The share, also of the load beside.
    pub path: String,
    /// Clients ask which shares there are, and mount them instead.
    pub every_share: Option<EveryShare>,
    /// Clients.
    pub clients: usize,
    /// Client threads.
    pub threads: usize,
    /// Where rpcbind answers; it is not asked without.
    pub rpcbind: Option<SocketAddr>,
    /// Over how long the clients' starts are spread, evenly.
    pub spread: Duration,
    /// How long clients wait.
    pub patience: Patience,
    /// A load that runs meanwhile.
    pub beside: Option<Beside>,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
}

impl Mountstorm {
    /// So many clients at once, nothing beside them.
    pub fn new(target: Target, path: &str, clients: usize) -> Self {
        Self {
            target,
            path: path.to_owned(),
            every_share: None,
            clients,
            threads: 1,
            rpcbind: None,
            spread: Duration::ZERO,
            patience: Patience::default(),
            beside: None,
            server_pid: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.clients == 0 || self.clients > CLIENTS_MAX {
            return usage(format!("the number of clients must be between 1 and {CLIENTS_MAX}"));
        }
        if self.every_share == Some(EveryShare(0)) {
            return usage("of every share, at least one has to be mounted".to_owned());
        }
        if self.threads == 0 || self.threads > self.clients {
            return usage(
                "there must be at least one thread, and not more than clients".to_owned(),
            );
        }
        let beside = self.beside.map_or(0, |beside| beside.clients);
        sockets::reserve_descriptors(self.clients.saturating_add(beside))
    }

    /// The clients of a thread.
    fn clients_of(&self, thread: usize) -> std::ops::Range<usize> {
        self.clients * thread / self.threads..self.clients * (thread + 1) / self.threads
    }
}

/// What EXPORT tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareList {
    /// Shares.
    pub shares: u64,
    /// Bytes of the reply.
    pub bytes: u64,
    /// From the call to the last byte, on a connection that was there.
    pub took: Duration,
}

/// Asks for the list of shares by TCP, as `showmount -e` does, and checks it without keeping it.
///
/// # Errors
/// When the server cannot be reached, nothing comes for so long, or what comes is no list.
pub fn list_shares(target: &Target, patience: Duration) -> Result<ShareList, BenchError> {
    let mut stream = reserved::stream(target.mount_server, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    let xid = std::process::id();
    let mut call = Vec::new();
    CallTemplate::new(mount::EXPORT, &target.identity, &[], 0).append(xid, &mut call);
    let (mut listing, mut paths) = (Listing::new(xid, 0), Paths::default());
    let mut buffer = vec![0; LIST_RECEIVE_BYTES];
    let started = Instant::now();
    stream.write_all(&call)?;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        let fed = listing.feed(&mut paths, buffer.get(..count).unwrap_or(&[]));
        if let Some(list) =
            fed.map_err(|failure| BenchError::broken("export", failure.to_string()))?
        {
            return Ok(ShareList {
                shares: list.shares,
                bytes: list.bytes,
                took: started.elapsed(),
            });
        }
    }
}

/// What all threads see.
#[derive(Debug, Default)]
struct Shared {
    /// Clients that have mounted.
    mounted: AtomicUsize,
    /// Clients that have given up.
    failed: AtomicUsize,
    /// Clients of threads whose clients are all done.
    done: AtomicUsize,
    /// Threads that have ended.
    finished: AtomicUsize,
}

/// Lets all clients mount, and reports.
///
/// # Errors
/// When the storm cannot be let loose at all; clients that fail are in the report.
pub fn run(storm: &Mountstorm, control: &Control) -> Result<Report, BenchError> {
    storm.check()?;
    let beside = storm.beside.map(|beside| beside::Load::start(storm, beside)).transpose()?;
    let outcome = let_loose(storm, control);
    let beside = beside.map(beside::Load::stop).transpose();
    let (tally, costs, seconds) = outcome?;
    Ok(Report::new(storm, tally, costs, seconds, beside?, control.is_interrupted()))
}

fn let_loose(storm: &Mountstorm, control: &Control) -> Result<(Tally, Costs, f64), BenchError> {
    let shared = Arc::new(Shared::default());
    let before = Snapshot::take(storm.server_pid);
    let threads: Vec<_> = (0..storm.threads)
        .map(|thread| {
            let (storm, control, shared) = (storm.clone(), control.clone(), Arc::clone(&shared));
            std::thread::spawn(move || {
                let outcome = worker::run(&storm, thread, before.at, &shared, &control);
                shared.finished.fetch_add(1, Ordering::Relaxed);
                outcome
            })
        })
        .collect();
    let mut told_at = Instant::now();
    while shared.finished.load(Ordering::Relaxed) < storm.threads
        && threads.iter().any(|thread| !thread.is_finished())
    {
        if told_at.elapsed() >= PROGRESS_EVERY {
            told_at = Instant::now();
            control.show(&format!(
                "mountstorm: {} of {} mounted, {} have given up, {} s",
                shared.mounted.load(Ordering::Relaxed),
                storm.clients,
                shared.failed.load(Ordering::Relaxed),
                before.at.elapsed().as_secs(),
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = Snapshot::take(storm.server_pid);
    control.clear();
    let mut tally = Tally::default();
    for thread in threads {
        match thread.join() {
            Ok(outcome) => tally.add(outcome?),
            Err(_) => return Err(BenchError::Panicked),
        }
    }
    let costs = Costs::between(&before, &after, tally.mounted());
    Ok((tally, costs, (after.at - before.at).as_secs_f64()))
}
