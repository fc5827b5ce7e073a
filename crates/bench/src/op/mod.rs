//! One kind of call, in a closed loop (`connections × depth` calls are always in flight) or at a
//! held rate.
//!
//! [`Load`] says what to do, [`run`] does it and returns a [`Report`]. Inside: `operation` is
//! which kinds there are, `tree` makes what the calls work on, `script` builds calls and judges
//! replies, `nfs4` does that over NFSv4, `check` looks at what they left.

mod check;
mod nfs4;
mod operation;
mod report;
mod script;
mod tree;

use std::sync::Arc;
use std::time::Duration;

pub use operation::{OPERATIONS_HELP, Operation};
pub use report::{Checks, Report, Reports};

use crate::drive::{self, Control, Pace, Plan, Script, Transport};
use crate::error::BenchError;
use crate::setup::Target;
use crate::version::NfsVersion;
use check::Ended;
use nfs4::{Calls4, Changes4, Objects};
use script::Calls;
use tree::Tree;

/// Most calls in flight of one load: a name tells which of them made it.
pub const SLOTS_MAX: usize = 1 << 20;

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub target: Target,
    /// The share.
    pub path: String,
    /// The kind of call.
    pub operation: Operation,
    /// Connections, or UDP sockets.
    pub connections: usize,
    /// Calls in flight a connection.
    pub depth: usize,
    /// Client threads.
    pub threads: usize,
    /// When calls start.
    pub pace: Pace,
    /// Over which version of NFS all is done.
    pub nfs: NfsVersion,
    /// How calls travel; preparations always use TCP.
    pub transport: Transport,
    /// Each connection has a source address of its own, where the server is on loopback.
    pub has_own_addresses: bool,
    /// Not measured, before what is.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
    /// How many names REMOVE and RMDIR get to remove; the measurement ends when they are gone.
    pub names: usize,
    /// Removes the tree at the end.
    pub cleans_up: bool,
}

impl Load {
    /// The usual load: 16 connections × depth 8, one client thread.
    pub fn new(target: Target, path: &str, operation: Operation) -> Self {
        Self {
            target,
            path: path.to_owned(),
            operation,
            connections: 16,
            depth: 8,
            threads: 1,
            pace: Pace::Closed,
            nfs: NfsVersion::V3,
            transport: Transport::Tcp,
            has_own_addresses: true,
            warm_up: Duration::from_millis(500),
            duration: Duration::from_secs(3),
            server_pid: None,
            names: 30_000,
            cleans_up: true,
        }
    }

    /// Calls in flight.
    fn slots(&self) -> usize {
        self.connections.saturating_mul(self.depth)
    }

    fn plan(&self) -> Result<Plan, BenchError> {
        if self.slots() > SLOTS_MAX {
            return Err(BenchError::Usage(format!(
                "at most {SLOTS_MAX} calls may be in flight (connections × depth)"
            )));
        }
        self.operation.check(self.nfs)?;
        if self.nfs.is_4() && self.transport == Transport::Udp {
            return Err(BenchError::Usage("NFSv4 is not spoken over UDP".to_owned()));
        }
        let plan = Plan {
            server: self.target.server,
            clients: self.connections,
            transport: self.transport,
            first_address: self.has_own_addresses.then_some(0),
            depth: self.depth,
            threads: self.threads,
            pace: self.pace,
            warm_up: self.warm_up,
            duration: self.duration,
            server_pid: self.server_pid,
            kinds: self.operation.kinds(self.nfs).len(),
            title: format!("op {}", self.operation),
        };
        plan.check()?;
        Ok(plan)
    }
}

/// Puts the load on the server and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(load: &Load, control: &Control) -> Result<Report, BenchError> {
    run_when(load, control, || {})
}

/// As [`run`]; calls `is_prepared` between preparing the tree and putting the load on, so that
/// somebody else can begin to watch the server.
///
/// # Errors
/// As [`run`].
pub fn run_when(
    load: &Load,
    control: &Control,
    is_prepared: impl FnOnce(),
) -> Result<Report, BenchError> {
    let plan = load.plan()?;
    let place = tree::begin(load)?;
    let outcome = measure(load, &plan, place.as_ref(), control, is_prepared);
    let removed = match &place {
        Some(place) if load.cleans_up => {
            control.show(&format!("op {}: removing the tree", load.operation));
            place.remove(load)
        }
        _ => Ok(()),
    };
    control.clear();
    let report = outcome?;
    removed?;
    Ok(report)
}

fn measure(
    load: &Load,
    plan: &Plan,
    place: Option<&tree::Place>,
    control: &Control,
    is_prepared: impl FnOnce(),
) -> Result<Report, BenchError> {
    control.show(&format!("op {}: preparing", load.operation));
    let tree = match place {
        Some(place) => Tree::make(load, place, control)?,
        None => Tree::default(),
    };
    let tree = Arc::new(tree);
    let objects = match place {
        Some(place) if load.nfs.is_4() => Objects::find(load, place, &tree)?,
        _ => Objects::none(),
    };
    let objects = Arc::new(objects);
    control.clear();
    is_prepared();
    let of = |thread| plan.clients_of(thread);
    let threads = 0..plan.threads;
    if !load.nfs.is_4() {
        let scripts = threads.map(|thread| Calls::new(load, &tree, of(thread))).collect();
        return finish(load, plan, &tree, scripts, control);
    }
    if !load.operation.only_reads() {
        let script = |thread| Changes4::new(load, &tree, &objects, of(thread));
        return finish(load, plan, &tree, threads.map(script).collect(), control);
    }
    let script = |thread| Calls4::new(load, &objects, of(thread));
    let outcome = drive::run(plan, threads.map(script).collect(), control)?;
    Report::new(load, &outcome, |script| &script.promises, 0)
}

/// Puts the load on, and looks at what it left.
fn finish<S: Script + Ended + 'static>(
    load: &Load,
    plan: &Plan,
    tree: &Tree,
    scripts: Vec<S>,
    control: &Control,
) -> Result<Report, BenchError> {
    let outcome = drive::run(plan, scripts, control)?;
    let looked_at = check::what_was_left(load, tree, &outcome.scripts)?;
    Report::new(load, &outcome, Ended::promises, looked_at)
}
