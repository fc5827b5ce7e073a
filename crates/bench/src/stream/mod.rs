//! stream: large files read or written from the beginning to the end, again and again.
//!
//! [`Stream`] says how many streams of what, [`run`] does it and returns a [`Report`]. Inside:
//! `files` makes what is read or written and says what it holds, `reading` and `writing` are a
//! thread's streams, `check` makes stable what was not yet, and reads it back.

mod check;
mod files;
mod reading;
mod report;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::StableHow;

use crate::drive::{self, Control, Pace, Plan, Transport};
use crate::error::BenchError;
use crate::setup::Target;
use crate::version::NfsVersion;
use crate::{loopback, pattern};
use files::Files;
use reading::Reading;
pub use report::{Checks, LoopbackLimit, Report};
use writing::Writing;

/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 40;
/// Most chunks of all files: what was written to each is remembered.
const CHUNKS_MAX: u64 = 1 << 24;

/// Which way data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    #[default]
    Read,
    /// To the server.
    Write,
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The server.
    pub target: Target,
    /// The share.
    pub path: String,
    /// Which way data goes.
    pub direction: Direction,
    /// Streams, each with a connection.
    pub streams: usize,
    /// Calls in flight of a stream.
    pub window: usize,
    /// Client threads.
    pub threads: usize,
    /// Bytes of a READ or WRITE.
    pub transfer_bytes: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// All streams have the same file: each reads all of it, or writes a part of its own.
    pub has_one_file: bool,
    /// How stable WRITEs are to be.
    pub stable: StableHow,
    /// After so many bytes of unstable WRITEs a stream sends a COMMIT.
    pub commit_every_bytes: u64,
    /// Over which version of NFS all is done.
    pub nfs: NfsVersion,
    /// How calls travel; preparations always use TCP.
    pub transport: Transport,
    /// Each stream has a source address of its own, where the server is on loopback.
    pub has_own_addresses: bool,
    /// Not measured, before what is.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// Measures what plain TCP over loopback reaches too, before and after; and before with as much
    /// data as the files have.
    pub measures_loopback: bool,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
}

impl Stream {
    /// 4 readers with 2 calls of 1 MiB in flight each, of files of 64 MiB of their own.
    pub fn new(target: Target, path: &str) -> Self {
        Self {
            target,
            path: path.to_owned(),
            direction: Direction::Read,
            streams: 4,
            window: 2,
            threads: 1,
            transfer_bytes: 1 << 20,
            file_bytes: 64 << 20,
            has_one_file: false,
            stable: StableHow::Unstable,
            commit_every_bytes: 64 << 20,
            nfs: NfsVersion::V3,
            transport: Transport::Tcp,
            has_own_addresses: true,
            warm_up: Duration::from_millis(500),
            duration: Duration::from_secs(5),
            measures_loopback: false,
            server_pid: None,
        }
    }

    /// Chunks of a file: what one call reads or writes.
    fn chunks(&self) -> usize {
        (self.file_bytes / u64::from(self.transfer_bytes.max(1))) as usize
    }

    /// Files in all.
    fn files(&self) -> usize {
        if self.has_one_file { 1 } else { self.streams }
    }

    /// The file of a stream.
    fn file_of(&self, stream: usize) -> usize {
        if self.has_one_file { 0 } else { stream }
    }

    /// The chunks of its file that a stream writes.
    fn region_of(&self, stream: usize) -> std::ops::Range<usize> {
        if !self.has_one_file {
            return 0..self.chunks();
        }
        let streams = self.streams.max(1);
        self.chunks() * stream / streams..self.chunks() * (stream + 1) / streams
    }

    fn check(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.transfer_bytes == 0 || self.transfer_bytes as usize > pattern::SLICE_BYTES_MAX {
            return usage("a READ or WRITE must have between 1 byte and 4 MiB".to_owned());
        }
        let transfer = u64::from(self.transfer_bytes);
        if !self.file_bytes.is_multiple_of(transfer)
            || !(transfer..=FILE_BYTES_MAX).contains(&self.file_bytes)
        {
            return usage(
                "the size of files must be a multiple of that of calls, 1 TiB at most".to_owned(),
            );
        }
        if self.chunks() as u64 * self.files() as u64 > CHUNKS_MAX {
            return usage(format!("at most {CHUNKS_MAX} calls for one pass through all files"));
        }
        if self.nfs.is_4() && self.transport == Transport::Udp {
            return usage("NFSv4 is not spoken over UDP".to_owned());
        }
        // A stream never writes a chunk that it is writing already.
        let least = self.window.saturating_mul(2);
        if self.direction == Direction::Write
            && (0..self.streams).any(|stream| self.region_of(stream).len() < least)
        {
            return usage(format!(
                "a writer needs a file, or a part of the one file, of at least {least} calls"
            ));
        }
        if self.measures_loopback && !self.target.server.ip().is_loopback() {
            return usage("the server is not on loopback: no limit to compare with".to_owned());
        }
        Ok(())
    }

    fn plan(&self) -> Result<Plan, BenchError> {
        self.check()?;
        let title = match self.direction {
            Direction::Read => "stream, reading",
            Direction::Write => "stream, writing",
        };
        let plan = Plan {
            server: self.target.server,
            clients: self.streams,
            transport: self.transport,
            first_address: self.has_own_addresses.then_some(0),
            depth: self.window,
            threads: self.threads,
            pace: Pace::Closed,
            warm_up: self.warm_up,
            duration: self.duration,
            server_pid: self.server_pid,
            kinds: report::kinds(self.direction).len(),
            title: title.to_owned(),
        };
        plan.check()?;
        Ok(plan)
    }
}

/// Makes the files, reads or writes them, and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(stream: &Stream, control: &Control) -> Result<Report, BenchError> {
    let plan = stream.plan()?;
    let place = files::begin(stream)?;
    let outcome = measure(stream, &plan, &place, control);
    control.show("stream: removing the files");
    let removed = place.remove(stream);
    control.clear();
    let report = outcome?;
    removed?;
    Ok(report)
}

fn measure(
    stream: &Stream,
    plan: &Plan,
    place: &files::Place,
    control: &Control,
) -> Result<Report, BenchError> {
    control.show("stream: making the files");
    let files = Arc::new(Files::make(stream, place, control)?);
    let limit = |data_bytes: u64| -> Result<Option<f64>, BenchError> {
        if !stream.measures_loopback || control.is_interrupted() {
            return Ok(None);
        }
        control.show("stream: what loopback reaches");
        let (duration, pid) = (stream.duration / 2, stream.server_pid);
        Ok(Some(loopback::mib_per_second(duration, pid, data_bytes)?))
    };
    let limit_from_memory = limit(stream.file_bytes * stream.files() as u64)?;
    let limit_before = limit(loopback::WRITE_BYTES as u64)?;
    control.clear();
    let threads = || (0..plan.threads).map(|thread| plan.clients_of(thread));
    let mut report = match stream.direction {
        Direction::Read => {
            let scripts = threads().map(|own| Reading::new(stream, &files, &own)).collect();
            let outcome = drive::run(plan, scripts, control)?;
            let compared = outcome.scripts.iter().map(|script| script.compared).sum();
            Report::new(stream, &outcome, Checks { compared_reads: compared, ..Checks::default() })?
        }
        Direction::Write => {
            let scripts = threads().map(|own| Writing::new(stream, &files, &own)).collect();
            let mut outcome = drive::run(plan, scripts, control)?;
            control.show("stream: committing and reading back");
            let checks = check::commit_and_read_back(stream, &files, &mut outcome.scripts)?;
            Report::new(stream, &outcome, checks)?
        }
    };
    let limit_after = limit(loopback::WRITE_BYTES as u64)?;
    report.set_loopback_limit(limit_before, limit_after, limit_from_memory);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream {
            streams: 3,
            file_bytes: 10 << 20,
            ..Stream::new(Target::new("127.0.0.1:1".parse().unwrap()), "/")
        }
    }

    #[test]
    fn writers_of_one_file_have_parts_of_their_own() {
        let mut stream = stream();
        assert_eq!((stream.files(), stream.region_of(2)), (3, 0..10));
        stream.has_one_file = true;
        assert_eq!((stream.files(), stream.file_of(2)), (1, 0));
        let regions: Vec<_> = (0..3).map(|number| stream.region_of(number)).collect();
        assert_eq!(regions, [0..3, 3..6, 6..10]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(stream().check().is_ok());
        for change in [
            |stream: &mut Stream| stream.transfer_bytes = 0,
            |stream: &mut Stream| stream.transfer_bytes = 8 << 20,
            |stream: &mut Stream| stream.file_bytes += 1,
            |stream: &mut Stream| stream.file_bytes = 1 << 41,
            |stream: &mut Stream| (stream.transfer_bytes, stream.file_bytes) = (512, 1 << 40),
            |stream: &mut Stream| (stream.direction, stream.window) = (Direction::Write, 6),
            |stream: &mut Stream| {
                (stream.nfs, stream.transport) = (NfsVersion::V4_1, Transport::Udp);
            },
            |stream: &mut Stream| {
                stream.target.server = "10.0.0.1:1".parse().unwrap();
                stream.measures_loopback = true;
            },
        ] {
            let mut stream = stream();
            change(&mut stream);
            assert!(matches!(stream.check(), Err(BenchError::Usage(_))), "{stream:?}");
        }
    }
}
