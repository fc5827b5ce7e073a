//! walk: many clients walk a directory tree at once, after the second test of Banks' paper on the
//! Linux NFS server.
//!
//! [`Walk`] says how many clients walk how large a tree, [`run`] does it and returns a
//! [`Report`]. Inside: `tree` makes the tree (and finds it again), `script` is a client on its
//! walk, `nfs4` what it says and hears over NFSv4, `probe` mounts the share meanwhile, as a new client would.

mod nfs4;
mod probe;
mod report;
mod script;
mod tree;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_client::procedure;

use crate::drive::{self, Control, DEPTH_MAX, Pace, Plan, Transport};
use crate::error::BenchError;
use crate::setup::Target;
use crate::version::NfsVersion;
pub use probe::Mounts;
pub use report::{Point, Report};
use script::Walking;
use tree::Tree;

/// Most inodes of a tree.
pub const INODES_MAX: usize = 10_000_000;
/// Least and most bytes of a listing.
pub const LISTING_BYTES: std::ops::RangeInclusive<u32> = 1024..=30 << 10;

/// The kinds of calls: name and procedure number.
const KINDS: [(&str, u32); 6] = [
    ("getattr", procedure::GETATTR.number),
    ("access", procedure::ACCESS.number),
    ("lookup", procedure::LOOKUP.number),
    ("readlink", procedure::READLINK.number),
    ("readdir", procedure::READDIR.number),
    ("readdirplus", procedure::READDIRPLUS.number),
];

/// How a client walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// As rsync, find or `ls -lR` on a Linux 2.4 client: READDIR, and for each name ACCESS and
    /// GETATTR of the directory again, LOOKUP, GETATTR.
    #[default]
    Redundant,
    /// As a newer client: READDIRPLUS (over NFSv4 a READDIR of all attributes), and for each name ACCESS of the directory and GETATTR.
    Plus,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "redundant" => Ok(Self::Redundant),
            "plus" => Ok(Self::Plus),
            _ => Err("write redundant or plus".to_owned()),
        }
    }
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The server.
    pub target: Target,
    /// The share.
    pub path: String,
    /// Over which version of NFS all is done.
    pub nfs: NfsVersion,
    /// Numbers of virtual clients, one after the other.
    pub clients: Vec<usize>,
    /// How many of them share a connection, as programs on one host do; a number of clients that
    /// this does not divide is refused.
    pub clients_of_connection: usize,
    /// Client threads.
    pub threads: usize,
    /// Inodes of the tree.
    pub inodes: usize,
    /// Names of a directory that has files.
    pub names_of_directory: usize,
    /// How clients walk.
    pub pattern: Pattern,
    /// Most bytes of a listing.
    pub listing_bytes: u32,
    /// Not measured, before each number of clients.
    pub warm_up: Duration,
    /// How long each number of clients is measured.
    pub duration: Duration,
    /// How often the share is mounted by a new client meanwhile; never if that is zero.
    pub mount_every: Duration,
    /// Removes the tree at the end.
    pub removes: bool,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
}

impl Walk {
    /// The paper's tree, with the paper's least and most clients.
    pub fn new(target: Target, path: &str) -> Self {
        Self {
            target,
            path: path.to_owned(),
            nfs: NfsVersion::V3,
            clients: vec![4, 44, 208],
            clients_of_connection: 1,
            threads: 1,
            inodes: 119_000,
            names_of_directory: 20,
            pattern: Pattern::default(),
            listing_bytes: 8 << 10,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            mount_every: Duration::from_millis(500),
            removes: false,
            server_pid: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let usage = |what: &str| Err(BenchError::Usage(what.to_owned()));
        if !(3..=INODES_MAX).contains(&self.inodes) || self.names_of_directory == 0 {
            return usage("a tree has between 3 and 10 million inodes, a directory has names");
        }
        if !LISTING_BYTES.contains(&self.listing_bytes) {
            return usage("a listing has between 1024 and 30720 bytes");
        }
        if self.clients.is_empty() {
            return usage("how many clients?");
        }
        let sharers = self.clients_of_connection;
        if !(1..=DEPTH_MAX).contains(&sharers) {
            return usage(&format!("between 1 and {DEPTH_MAX} clients share a connection"));
        }
        if let Some(clients) = self.clients.iter().find(|clients| *clients % sharers != 0) {
            return usage(&format!(
                "{clients} clients cannot share connections by {sharers}: take a multiple of it"
            ));
        }
        Ok(())
    }
}

/// Walks, and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(walk: &Walk, control: &Control) -> Result<Report, BenchError> {
    walk.check()?;
    let tree = Arc::new(Tree::prepare(walk, control)?);
    let outcome = points(walk, &tree, control);
    if walk.removes {
        control.show("walk: removing the tree");
        tree.remove(walk)?;
        control.clear();
    }
    outcome
}

fn points(walk: &Walk, tree: &Arc<Tree>, control: &Control) -> Result<Report, BenchError> {
    let mut report = Report::new(walk.nfs, tree.shape.inodes(), tree.was_there);
    for clients in &walk.clients {
        if control.is_interrupted() {
            break;
        }
        let connections = clients / walk.clients_of_connection;
        let plan = Plan {
            server: walk.target.server,
            clients: connections,
            transport: Transport::Tcp,
            first_address: Some(0),
            depth: walk.clients_of_connection,
            threads: walk.threads.min(connections.max(1)),
            pace: Pace::Closed,
            warm_up: walk.warm_up,
            duration: walk.duration,
            server_pid: walk.server_pid,
            kinds: KINDS.len(),
            title: format!("walk, {clients} clients"),
        };
        let scripts = (0..plan.threads)
            .map(|thread| Walking::new(walk, tree, &plan.clients_of(thread)))
            .collect();
        let probe = probe::Probe::start(walk);
        let outcome = drive::run(&plan, scripts, control);
        let mounts = probe.stop();
        report.points.push(Point::new((*clients, connections), &outcome?, mounts)?);
    }
    if report.points.is_empty() { Err(BenchError::Interrupted) } else { Ok(report) }
}
