//! Replay: after a crash of the client, or of a server that lost data, what is pending in the journal is
//! brought to the server, in order, with its effect exactly once, and nothing that others have changed
//! meanwhile is overwritten.
//!
//! `plan` reads what is pending, `pass` goes through it over the calls of a `share`, `names`
//! and `data` decide, `keeper` has the conflict files. The core knows no socket and no clock.
//!
//! It must never
//!
//! - let a record leave whose effect is neither stable at the server nor, fsynced, in a conflict file;
//! - write over something of which it does not know that nobody else has written it;
//! - depend on having come to its end: a replay that was cut off anywhere is followed by another one.

mod data;
mod done;
mod keeper;
mod known;
mod names;
mod nfs3;
mod pass;
mod plan;
mod report;
mod share;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use steadfast_client::{ClientError, FileHandle};
use steadfast_journal::{Journal, OpenError, Sequence, care};

pub(crate) use pass::Carried;
pub use report::{Conflict, Report};

use crate::connect::{ConnectError, Specification, connect};
use crate::options::Options;
use crate::recovery::Recovery;
use crate::server::Server;
use crate::transport::Patience;
use keeper::{Files, Keeper};
use nfs3::Nfs;
use pass::Pass;
use share::Share;

/// A server that restarts so often during one replay is left alone.
const RESTARTS_MAX: u32 = 8;

/// Why a replay was not finished. Everything is still pending.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no journal, a mount uses it, or it cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal does not say in text which share it is of.
    #[error("the journal names its server or share in bytes that are no text")]
    Name,
    /// The server cannot be found or reached, or does not let this host in.
    #[error("{0}; all changes stay in the journal")]
    Connect(#[from] ConnectError),
    /// The server does not answer, or says "later" for too long.
    #[error("the server does not answer, all changes stay in the journal: {0}")]
    Unreachable(String),
    /// A conflict file cannot be written.
    #[error("a conflict file cannot be written, all changes stay in the journal: {0}")]
    Keep(io::Error),
    /// It has restarted, and may have lost something again.
    #[error("the server has restarted, all changes stay in the journal")]
    Restarted,
    /// It restarts again and again.
    #[error("the server restarts all the time, all changes stay in the journal")]
    Restarts,
}

/// What a replay needs beside journal and server.
#[derive(Debug)]
pub(crate) struct Replaying<'a> {
    /// The largest WRITE, in bytes.
    pub(crate) write_bytes: u32,
    /// The directory of the journal, for conflict files.
    pub(crate) directory: &'a Path,
    /// The server and the share, for the texts beside them.
    pub(crate) share: (&'a [u8], &'a [u8]),
    /// The share's root.
    pub(crate) root: &'a FileHandle,
    /// Changes that are in flight: writes may come after those of others, and programs wait for the rest.
    pub(crate) unanswered: &'a HashSet<Sequence>,
    pub(crate) patience: Patience,
}

/// What a replay has done, for whoever goes on afterwards.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) report: Report,
    /// Records whose change was not made, wholly or in part.
    pub(crate) not_made: HashSet<Sequence>,
    /// The handles of what records have made.
    pub(crate) made: HashMap<Sequence, Vec<u8>>,
    /// The server's write verifier at the end, if it has told one.
    pub(crate) verifier: Option<[u8; 8]>,
}

/// Replays a journal. For a mount, before it serves; nothing else uses the journal meanwhile. An attempt
/// that fails has noted in `carried` what it has changed: the next one gets that.
///
/// # Errors
/// When the server cannot be reached, or a conflict file cannot be written: everything stays pending.
pub(crate) fn replay(
    journal: &Journal,
    server: &Server,
    replaying: &Replaying<'_>,
    carried: &mut Carried,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    let mut share = Nfs::new(server, replaying.root, replaying.patience);
    let mut keeper = Files::new(replaying.directory, replaying.share.0, replaying.share.1);
    let transfer_bytes = replaying.write_bytes.max(1) as usize;
    let unanswered = replaying.unanswered;
    run(journal, &mut share, &mut keeper, transfer_bytes, unanswered, carried, progress)
}

/// Does it again if the server has restarted.
pub(crate) fn replay_again(
    replay: &mut dyn FnMut(&mut Carried) -> Result<Replayed, ReplayError>,
) -> Result<Replayed, ReplayError> {
    let mut carried = Carried::default();
    for _ in 0..RESTARTS_MAX {
        match replay(&mut carried) {
            // Nobody knows who was served first.
            Err(ReplayError::Restarted) => carried.forget_doubts(),
            replayed => return replayed,
        }
    }
    Err(ReplayError::Restarts)
}

/// Options of a mount that matter for a replay, too.
const KEPT_OPTIONS: [&str; 7] =
    ["port", "mountport", "proto", "timeo", "retrans", "wsize", "noresvport"];

/// Replays the journal in a directory that no mount uses, to the server and share that it names. The options
/// of its mount that matter count, and after them those that are given. A server that does not answer ends
/// it, unless they say `hard`.
///
/// # Errors
/// See [`ReplayError`]; everything that is pending stays pending.
pub fn replay_journal(
    directory: &Path,
    given_options: &str,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, ReplayError> {
    let look = care::look(directory)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| ReplayError::Name);
    let what = Specification { server: text(&look.server)?, path: text(&look.share)? };
    let mut words = vec!["soft"];
    let of_mount = String::from_utf8_lossy(&look.mount_options).into_owned();
    let is_kept = |word: &&str| {
        KEPT_OPTIONS.contains(&word.split('=').next().unwrap_or_default())
            && Options::parse(word).is_ok()
    };
    words.extend(of_mount.split(',').filter(is_kept));
    words.push(given_options);
    let options = Options::parse(&words.join(",")).map_err(|error| {
        ReplayError::Open(OpenError::Io {
            path: directory.to_owned(),
            error: io::Error::new(io::ErrorKind::InvalidInput, error),
        })
    })?;
    let mut of_journal = steadfast_journal::Options::new(&what.server, &what.path);
    of_journal.mount_options = look.mount_options;
    // Locked before anybody is asked anything.
    let (journal, recovered) = Journal::open(directory, &of_journal)?;
    let connected = connect(&what, &options)?;
    // So that no call reaches a server that has restarted since what is known of it was seen.
    let unreachable = |error: ClientError| ReplayError::Unreachable(error.to_string());
    let recovery = Recovery::begin(&connected.server, &connected.root, journal.id());
    let recovery = recovery.map_err(unreachable)?;
    let replaying = Replaying {
        write_bytes: connected.write_bytes.min(connected.read_bytes),
        directory,
        share: (&look.server, &look.share),
        root: &connected.root,
        unanswered: &HashSet::new(),
        patience: Patience::default(),
    };
    let report = replay_again(&mut |carried| {
        replay(&journal, &connected.server, &replaying, carried, progress)
    });
    if let (Ok(_), Some(recovery)) = (&report, recovery) {
        if let Err(error) = recovery.tell_recovered(&connected.server) {
            tracing::warn!(%error, "the server was not told: it may go on waiting for this client");
        }
        if journal.pending().is_empty() {
            recovery.tell_detached(&connected.server, Patience::default());
        }
    }
    connected.server.link.close();
    let mut report = report?.report;
    let lost = recovered.damage.iter().filter(|damage| damage.was_stable);
    report.lost = lost.filter_map(|damage| damage.sequences).collect();
    // Whoever called this reports it.
    journal.acknowledge_damage();
    if let Err(failed) = journal.close() {
        report.journal_error = Some(failed.why);
    }
    Ok(report)
}

fn run(
    journal: &Journal,
    share: &mut dyn Share,
    keeper: &mut dyn Keeper,
    transfer_bytes: usize,
    unanswered: &HashSet<Sequence>,
    carried: &mut Carried,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    for restarts in 0..=RESTARTS_MAX {
        let mut pass = Pass::new(journal, share, keeper, transfer_bytes, unanswered, carried);
        let settled = pass.run(progress)?;
        if pass.has_restarted {
            // Nobody knows who was served first.
            carried.forget_doubts();
            continue;
        }
        let mut replayed = pass.replayed();
        replayed.report.restarts = restarts;
        journal.stable(settled);
        if let Err(failed) = journal.maintain() {
            replayed.report.journal_error = Some(failed.why);
        }
        return Ok(replayed);
    }
    Err(ReplayError::Restarts)
}
