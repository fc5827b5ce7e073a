//! Real calls of every procedure, damaged at random: the server must stay up, answer whatever is
//! still a call, and keep its memory bounded.
//!
//! [`calls`] builds the valid calls, `damage` breaks them, [`run`] sends them in batches over a
//! few connections and proves after each batch, by a NULL call on the same connection or a new
//! one, that the server still answers. The same seed sends the same bytes as long as the server
//! answers alike.

mod calls;
mod damage;

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use steadfast_client::{
    AcceptedError, ClientError, FileHandle, Identity, Nfs3Client, NfsStat3, ReplyBody,
    RpcConnection, StableHow, append_call, procedure,
};

use crate::error::BenchError;
use crate::server_cost;
use damage::{Damage, Random};

/// Calls sent before the server is asked whether it still answers.
const BATCH: usize = 64;
/// How long a reply may take: nothing that a damaged call can ask for takes nearly as long.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often new valid calls are built, so that they find what damaged ones have left: batches.
const REBUILD_EVERY: usize = 64;

/// What to send to which server.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Where NFS and MOUNT answer.
    pub server: SocketAddr,
    /// The share; what is in it may be damaged, too.
    pub path: String,
    /// How many damaged calls.
    pub calls: u64,
    /// What the damage is drawn from.
    pub seed: u64,
    /// The server's process, for its memory.
    pub server_pid: Option<u32>,
    /// The most memory that the server may use, in bytes.
    pub resident_bytes_max: u64,
}

/// How it ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StormReport {
    /// Damaged calls that the server has dealt with: those it answered or hung up on. What was
    /// sent behind a call that it hung up on does not count.
    pub calls: u64,
    /// Replies by what they say.
    pub replies: Replies,
    /// Connections that the server closed.
    pub hang_ups: u64,
    /// Connections made.
    pub connections: u64,
    /// The server's memory after the first batches, in bytes.
    pub resident_bytes_start: u64,
    /// The most that was seen.
    pub resident_bytes_peak: u64,
    /// At the end.
    pub resident_bytes_end: u64,
}

/// Replies by what they say.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Replies {
    /// Executed: the damage left a call that means something.
    pub success: u64,
    /// `PROG_UNAVAIL`.
    pub program_unavailable: u64,
    /// `PROG_MISMATCH`.
    pub program_mismatch: u64,
    /// `PROC_UNAVAIL`.
    pub procedure_unavailable: u64,
    /// `GARBAGE_ARGS`.
    pub garbage_arguments: u64,
    /// `SYSTEM_ERR`: the server's own fault, as it says.
    pub system_error: u64,
    /// `RPC_MISMATCH` and `AUTH_ERROR`.
    pub denied: u64,
}

impl Replies {
    fn count(&mut self, body: &ReplyBody) {
        *match body {
            ReplyBody::Success { .. } => &mut self.success,
            ReplyBody::Accepted(AcceptedError::ProgramUnavailable) => &mut self.program_unavailable,
            ReplyBody::Accepted(AcceptedError::ProgramMismatch { .. }) => {
                &mut self.program_mismatch
            }
            ReplyBody::Accepted(AcceptedError::ProcedureUnavailable) => {
                &mut self.procedure_unavailable
            }
            ReplyBody::Accepted(AcceptedError::GarbageArguments) => &mut self.garbage_arguments,
            ReplyBody::Accepted(AcceptedError::SystemError) => &mut self.system_error,
            ReplyBody::Denied(_) => &mut self.denied,
        } += 1;
    }
}

fn broken(what: impl Into<String>) -> BenchError {
    BenchError::Broken { operation: "storm".to_owned(), what: what.into() }
}

/// Sends the storm.
///
/// # Errors
/// When the server stops answering, answers with something that is no reply, says that it is at
/// fault itself, uses too much memory, or does not work any more afterwards.
pub fn run(
    storm: &Storm,
    mut progress: impl FnMut(&StormReport),
) -> Result<StormReport, BenchError> {
    let mut report = StormReport::default();
    let mut random = Random::new(storm.seed);
    let mut valid = Vec::new();
    let mut connection = None;
    let mut batch = 0;
    while report.calls < storm.calls {
        if batch % REBUILD_EVERY == 0 {
            valid = calls::build(storm, batch)?;
        }
        let open = if let Some(open) = connection.take() {
            open
        } else {
            report.connections += 1;
            RpcConnection::connect(storm.server, TIMEOUT)
                .map_err(BenchError::client("connecting after damaged calls"))?
        };
        connection = send_batch(open, &valid, &mut random, &mut report)
            .map_err(BenchError::client("sending damaged calls"))?;
        note_memory(storm, &mut report)?;
        if report.replies.system_error > 0 {
            return Err(broken("SYSTEM_ERR: the server says that it is at fault"));
        }
        batch += 1;
        if batch % 256 == 0 {
            progress(&report);
        }
    }
    drop(connection);
    check_service(storm)?;
    if let Some(pid) = storm.server_pid {
        report.resident_bytes_end = server_cost::resident_bytes(pid)?;
    }
    Ok(report)
}

/// Sends a batch of damaged calls and awaits the answer to a NULL call behind them; the
/// connection comes back if it can still be used.
fn send_batch(
    mut connection: RpcConnection,
    valid: &[Vec<u8>],
    random: &mut Random,
    report: &mut StormReport,
) -> Result<Option<RpcConnection>, ClientError> {
    let mut bytes = Vec::with_capacity(BATCH * 512);
    let mut loses_framing = false;
    for _ in 0..BATCH {
        let damage = Damage::draw(random, valid);
        damage.append(&mut bytes);
        if damage.loses_framing() {
            // What follows would not be seen as calls.
            loses_framing = true;
            break;
        }
    }
    let sentinel = connection.take_xid();
    let mut null = Vec::new();
    append_call(&mut null, sentinel, procedure::NULL, &Identity::None, &[]);
    let sent = connection
        .send_bytes(&bytes)
        .and_then(|()| if loses_framing { Ok(()) } else { connection.send_message(&null) });
    match sent {
        Ok(()) if loses_framing => {
            // The server waits for more or hangs up; either way this connection is over.
            report.calls += 1;
            return Ok(None);
        }
        Ok(()) => {}
        Err(ClientError::Closed) => {
            report.hang_ups += 1;
            report.calls += 1;
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    loop {
        match connection.receive_any() {
            Ok(reply) if reply.xid == sentinel => return Ok(Some(connection)),
            Ok(reply) => {
                report.calls += 1;
                report.replies.count(&reply.body);
            }
            Err(ClientError::Closed) => {
                report.hang_ups += 1;
                report.calls += 1;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
}

fn note_memory(storm: &Storm, report: &mut StormReport) -> Result<(), BenchError> {
    let Some(pid) = storm.server_pid else { return Ok(()) };
    let resident = server_cost::resident_bytes(pid)?;
    if report.resident_bytes_start == 0 {
        report.resident_bytes_start = resident;
    }
    report.resident_bytes_peak = report.resident_bytes_peak.max(resident);
    if resident > storm.resident_bytes_max {
        return Err(broken(format!(
            "the server uses {} MiB after {} calls",
            resident >> 20,
            report.calls
        )));
    }
    Ok(())
}

pub(super) fn mount(storm: &Storm) -> Result<(Nfs3Client, FileHandle), BenchError> {
    let path = storm.path.as_bytes();
    Nfs3Client::mount(storm.server, storm.server, path, Identity::root(), TIMEOUT)
        .map_err(BenchError::client("mounting the share"))
}

/// A file can be made, written, read and removed.
fn check_service(storm: &Storm) -> Result<(), BenchError> {
    let (mut client, root) = mount(storm)?;
    let name = b"after the storm";
    let mut check = || -> Result<Vec<u8>, ClientError> {
        let how =
            steadfast_client::CreateHow3::Unchecked(steadfast_client::Settings::mode(0o600).0);
        // Damaged calls may have taken the root's mode away; root overrides that.
        client.create(&root, name, &how)?;
        let file = client.lookup(&root, name)?.handle;
        client.write(&file, 0, b"still here", StableHow::FileSync)?;
        let data = client.read(&file, 0, 100)?.data;
        client.remove(&root, name)?;
        match client.lookup(&root, name) {
            Err(error) if error.status() == Some(NfsStat3::NoEnt) => Ok(data),
            Err(error) => Err(error),
            Ok(_) => Ok(b"not removed".to_vec()),
        }
    };
    match check().map_err(BenchError::client("using the server after the storm"))?.as_slice() {
        b"still here" => Ok(()),
        other => Err(broken(format!("after the storm a file reads {other:?}"))),
    }
}
