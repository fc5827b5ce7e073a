//! The end of a writing run: everything is made stable, and some of it read back.

use std::time::Instant;

use super::Stream;
use super::files::{Files, content, data};
use super::report::Checks;
use super::writing::{Act, Writer, Writing};
use crate::error::BenchError;
use crate::preparing::Preparer;

/// Chunks that are read back, at most.
const SAMPLES: usize = 128;
/// How often COMMIT is tried before a server whose verifier keeps changing is given up.
const ATTEMPTS: usize = 8;

/// Commits what is not stable yet, writes again what was lost, and reads chunks back.
pub(super) fn commit_and_read_back(
    stream: &Stream,
    files: &Files,
    scripts: &mut [Writing],
) -> Result<Checks, BenchError> {
    let mut client = Preparer::connect(&stream.target, stream.nfs)?;
    let mut checks = Checks::default();
    let started = Instant::now();
    for writer in scripts.iter_mut().flat_map(|script| &mut script.streams) {
        writer.handle_end();
        commit(stream, files, &mut client, writer)?;
        checks.lost_writes += writer.lost_writes;
        checks.verifier_changes += writer.verifier_changes;
    }
    checks.last_commit_seconds = started.elapsed().as_secs_f64();
    let share = SAMPLES.div_ceil(stream.streams.max(1));
    for writer in scripts.iter().flat_map(|script| &script.streams) {
        let Some(handle) = files.handles.get(writer.file) else { continue };
        let step = (writer.written().count() / share).max(1);
        for (chunk, content) in writer.written().step_by(step) {
            let expected = data(content, stream.transfer_bytes);
            let mut position = 0;
            while let Some(rest) = expected.get(position..).filter(|rest| !rest.is_empty()) {
                let offset = chunk as u64 * expected.len() as u64 + position as u64;
                let read = client.read(handle, offset, rest.len() as u32)?;
                if read.is_empty() || !rest.starts_with(&read) {
                    let what = "what was written is not what is read back";
                    return Err(BenchError::broken("write", what));
                }
                position += read.len();
            }
            checks.read_back += 1;
        }
    }
    client.end()?;
    for script in scripts {
        let [unstable, data_sync, file_sync] = script.committed;
        checks.committed_unstable += unstable;
        checks.committed_data_sync += data_sync;
        checks.committed_file_sync += file_sync;
        checks.commits += script.commits;
    }
    Ok(checks)
}

fn commit(
    stream: &Stream,
    files: &Files,
    client: &mut Preparer,
    writer: &mut Writer,
) -> Result<(), BenchError> {
    let Some(handle) = files.handles.get(writer.file) else { return Ok(()) };
    let mut attempts = 0;
    while writer.is_dirty() {
        attempts += 1;
        if attempts > ATTEMPTS {
            return Err(BenchError::broken("commit", "the verifier changes with every attempt"));
        }
        while let Some(Act::Write { chunk, pass }) = writer.next_lost() {
            let data = data(content(writer.file, chunk, pass), stream.transfer_bytes);
            let offset = chunk as u64 * u64::from(stream.transfer_bytes);
            let (count, committed, verifier) = client.write(handle, offset, data)?;
            if count as usize != data.len() {
                let what = "WRITE wrote less than it was given";
                return Err(BenchError::broken("write", what));
            }
            writer.handle_written(chunk, committed, verifier);
        }
        if let Act::Commit { covers } = writer.begin_commit() {
            let verifier = client.commit(handle)?;
            writer.handle_committed(covers, verifier);
        }
    }
    Ok(())
}
