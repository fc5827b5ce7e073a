//! One kind of call in a closed loop: `connections × depth` calls are always in flight.
//!
//! [`Load`] says what to do, [`run`] does it and returns a [`Report`]. Inside: [`tree`] makes
//! and removes what the calls work on, [`script`] builds calls and checks replies, `worker`
//! is one client thread.

mod report;
mod script;
mod tree;
mod worker;

pub use crate::error::BenchError;
pub use report::{Checks, Report, table};

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_client::{Identity, StableHow};

use crate::pattern;
use crate::server_cost::Snapshot;

/// Most calls in flight of one load.
pub const SLOTS_MAX: usize = 1 << 14;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// NULL.
    Null,
    /// GETATTR of many files.
    Getattr,
    /// LOOKUP of many names in one directory.
    Lookup,
    /// ACCESS of many files.
    Access,
    /// READ at random offsets of files in the server's cache.
    Read {
        /// Bytes a call.
        size: u32,
    },
    /// WRITE over and over the same few MiB a file.
    Write {
        /// Bytes a call.
        size: u32,
        /// What the server must promise.
        stable: StableHow,
    },
    /// Unstable WRITE, then COMMIT of the same bytes: two calls.
    WriteCommit {
        /// Bytes a WRITE.
        size: u32,
    },
    /// CREATE (GUARDED) of new names, in one directory a connection.
    Create,
    /// REMOVE of names made before.
    Remove,
}

impl Operation {
    /// Bytes of file data a call carries.
    pub fn payload_bytes(self) -> u32 {
        match self {
            Self::Read { size } | Self::Write { size, .. } | Self::WriteCommit { size } => size,
            _ => 0,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stability = |stable: &StableHow| match stable {
            StableHow::Unstable => "unstable",
            StableHow::DataSync => "data_sync",
            StableHow::FileSync => "file_sync",
        };
        match self {
            Self::Null => f.write_str("null"),
            Self::Getattr => f.write_str("getattr"),
            Self::Lookup => f.write_str("lookup"),
            Self::Access => f.write_str("access"),
            Self::Read { size } => write!(f, "read:{size}"),
            Self::Write { size, stable } => write!(f, "write:{size}:{}", stability(stable)),
            Self::WriteCommit { size } => write!(f, "write+commit:{size}"),
            Self::Create => f.write_str("create"),
            Self::Remove => f.write_str("remove"),
        }
    }
}

impl FromStr for Operation {
    type Err = BenchError;

    /// `read:4096`, `write:4096:file_sync`, `write+commit:4096`, `getattr`, …; sizes default to
    /// 4096, stability to `unstable`.
    fn from_str(text: &str) -> Result<Self, BenchError> {
        let unknown = || BenchError::Unknown(text.to_owned());
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or("");
        let takes_size = matches!(name, "read" | "write" | "write+commit");
        let size = match parts.next() {
            Some(size) if takes_size => size.parse().map_err(|_| unknown())?,
            Some(_) => return Err(unknown()),
            None => 4096,
        };
        let stable = match parts.next() {
            None | Some("unstable") => StableHow::Unstable,
            Some("data_sync") => StableHow::DataSync,
            Some("file_sync") => StableHow::FileSync,
            Some(_) => return Err(unknown()),
        };
        if size == 0 || size as usize > pattern::SLICE_BYTES_MAX || parts.next().is_some() {
            return Err(unknown());
        }
        Ok(match name {
            "null" => Self::Null,
            "getattr" => Self::Getattr,
            "lookup" => Self::Lookup,
            "access" => Self::Access,
            "read" => Self::Read { size },
            "write" => Self::Write { size, stable },
            "write+commit" => Self::WriteCommit { size },
            "create" => Self::Create,
            "remove" => Self::Remove,
            _ => return Err(unknown()),
        })
    }
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where NFS answers.
    pub server: SocketAddr,
    /// Where MOUNT answers.
    pub mount_server: SocketAddr,
    /// The share.
    pub path: String,
    /// The kind of call.
    pub operation: Operation,
    /// TCP connections.
    pub connections: usize,
    /// Calls in flight a connection.
    pub depth: usize,
    /// Client threads.
    pub threads: usize,
    /// Not measured, before what is.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// Who calls.
    pub identity: Identity,
    /// The server's process, if it runs here, for its CPU time.
    pub server_pid: Option<u32>,
    /// How many names REMOVE gets to remove; the measurement ends when they are gone.
    pub names: usize,
    /// Removes the tree at the end.
    pub cleans_up: bool,
}

impl Load {
    /// The usual load: 16 connections × depth 8, one client thread, as root.
    pub fn new(server: SocketAddr, path: &str, operation: Operation) -> Self {
        Self {
            server,
            mount_server: server,
            path: path.to_owned(),
            operation,
            connections: 16,
            depth: 8,
            threads: 1,
            warm_up: Duration::from_millis(500),
            duration: Duration::from_secs(3),
            identity: Identity::root(),
            server_pid: None,
            names: 30_000,
            cleans_up: true,
        }
    }
}

/// What all client threads see.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    phase: AtomicU8,
    /// Threads that have ended, or that have no more to do.
    finished: AtomicUsize,
}

// Phase 0 is warming up.
const MEASURING: u8 = 1;
const STOPPING: u8 = 2;

impl Progress {
    pub(crate) fn is_measuring(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURING
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == STOPPING
    }

    pub(crate) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// Sleeps for this long, or until a thread has finished.
    fn sleep(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while self.finished.load(Ordering::Relaxed) == 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(2)));
        }
    }
}

/// Puts the load on the server and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(load: &Load) -> Result<Report, BenchError> {
    run_when(load, || {})
}

/// As [`run`]; calls `is_prepared` between preparing the tree and putting the load on, so that
/// somebody else can begin to watch the server.
///
/// # Errors
/// As [`run`].
pub fn run_when(load: &Load, is_prepared: impl FnOnce()) -> Result<Report, BenchError> {
    let slots = load.connections.saturating_mul(load.depth);
    if slots == 0 || slots > SLOTS_MAX || load.threads == 0 || load.threads > load.connections {
        return Err(BenchError::Bounds);
    }
    let tree = Arc::new(tree::Tree::prepare(load)?);
    is_prepared();
    let progress = Arc::new(Progress::default());
    let mut threads = Vec::new();
    for thread in 0..load.threads {
        let (load, tree, progress) = (load.clone(), Arc::clone(&tree), Arc::clone(&progress));
        let worker = worker::Worker::connect(&load, &tree, thread)?;
        threads.push(std::thread::spawn(move || {
            let outcome = worker.run(&progress);
            progress.finish();
            outcome
        }));
    }
    progress.sleep(load.warm_up);
    let before = Snapshot::take(load.server_pid);
    progress.enter(MEASURING);
    progress.sleep(load.duration);
    let after = Snapshot::take(load.server_pid);
    progress.enter(STOPPING);
    let mut tally = worker::Tally::new();
    let mut outcome = Ok(());
    for thread in threads {
        match thread.join() {
            Ok(Ok(own)) => tally.add(&own),
            Ok(Err(error)) => outcome = Err(error),
            Err(_) => outcome = Err(BenchError::Panicked),
        }
    }
    outcome?;
    let read_back = tree.check(load, &tally)?;
    if load.cleans_up {
        tree.remove(load, &tally)?;
    }
    Report::new(load, &tally, read_back, &before, &after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_they_are_printed() {
        for text in [
            "null",
            "getattr",
            "lookup",
            "access",
            "read:1048576",
            "write:512:unstable",
            "write:4096:data_sync",
            "write:4096:file_sync",
            "write+commit:4096",
            "create",
            "remove",
        ] {
            assert_eq!(text.parse::<Operation>().unwrap().to_string(), text);
        }
        assert_eq!("read".parse::<Operation>().unwrap(), Operation::Read { size: 4096 });
        for text in ["", "reed", "read:0", "read:x", "getattr:1", "write:1:soon", "read:9999999"] {
            assert!(text.parse::<Operation>().is_err(), "{text}");
        }
    }
}
