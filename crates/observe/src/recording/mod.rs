//! `steadfast capture`: the RPC messages of a running Steadfast server as a pcapng file, as the server itself reads and
//! writes them.
//!
//! [`run`] does what was typed ([`CaptureArguments`]): it asks the server for its messages ([`Client::capture`]), leaves
//! out what is content of files ([`Limiter`]), and writes the packets that would have carried them (`packets`) to a file or
//! a pipe (`output`).

mod arguments;
mod output;
mod packets;

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadfast_control::capture::{CaptureCounts, CapturedMessage, Frame};
use steadfast_control::{AskError, CaptureStream, Captured, Client};
use steadfast_sys::packet_ring::RingStatistics;

pub use self::arguments::CaptureArguments;
use self::output::{Interrupt, Target};
use self::packets::Packets;
use crate::capture::file::PacketWriter;
use crate::capture::{Executed, Limiter, Message};

/// How often it is looked whether there is a signal, and what was written is made visible to who reads the file.
const PATIENCE: Duration = Duration::from_millis(50);
/// For how long messages are taken after an interrupt.
const LAST: Duration = Duration::from_millis(100);
/// How the file says who made it.
const PROGRAM: &str = concat!("steadfast capture ", env!("CARGO_PKG_VERSION"));
/// The status of a server that has no such route.
const NOT_FOUND: u16 = 404;

/// Why nothing can be captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The server does not answer, or refuses.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It does not know what a capture is.
    #[error(
        "the server that runs is of an older version, which cannot capture: restart it with this program, or capture \
         packets with `steadfast watch --record`"
    )]
    OlderServer,
    /// It is not known where to write.
    #[error(
        "messages would go to the terminal: name a file with --write, or pipe this into `tshark -r -`"
    )]
    Terminal,
    /// A file is there.
    #[error("{0:?} is there already: name another file, or use this name with --force")]
    Exists(PathBuf),
    /// It was interrupted before it began.
    #[error("{0:?} is a pipe that nobody has opened to read")]
    NoReader(PathBuf),
    /// The file cannot be written.
    #[error("{path:?} cannot be written: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file could not be written any more.
    #[error("{:?} cannot be written any more: {error}; there were {summary}", summary.place)]
    Broken {
        /// Until then. The last of it is not in the file.
        summary: Box<Summary>,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It was interrupted, and its output not read on.
    #[error("{0}")]
    Incomplete(Box<Summary>),
    /// Signals.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Wanted,
    /// Nobody has the output open to read.
    Reader,
    /// Nobody has read it on after an interrupt.
    StillReader,
    /// The server told it, since this program did not read.
    CutOff,
    /// There is nothing more from the server.
    Server,
}

/// What a capture came to; shown as a line.
#[derive(Clone, Debug)]
pub struct Summary {
    messages: u64,
    calls: u64,
    file_bytes: u64,
    counts: CaptureCounts,
    end: End,
    place: PathBuf,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, calls, file_bytes, counts, end, place } = self;
        match end {
            End::Wanted => {}
            End::Reader => f.write_str("nobody reads the output any more: ")?,
            End::StillReader => f.write_str("nobody reads the output, which lacks the last of ")?,
            End::CutOff => f.write_str(
                "the server has ended the capture, as what it sent was not read for minutes: ",
            )?,
            End::Server => f.write_str("the connection to the server has ended: ")?,
        }
        let replies = messages - calls;
        write!(f, "{messages} messages ({calls} calls, {replies} replies), {file_bytes} bytes")?;
        if place != Path::new("-") {
            write!(f, " in {}", place.display())?;
        }
        write!(f, "; {} dropped", counts.dropped)?;
        if counts.dropped > 0 {
            let room = counts.room_bytes >> 20;
            write!(
                f,
                ", as they came faster than they were written (the server keeps {room} MiB): ask for a client, or keep \
                 less of each with --snaplen"
            )?;
        }
        Ok(())
    }
}

/// Captures until it is interrupted, there is as much as was asked for, or the server ends.
///
/// # Errors
/// When the server cannot be asked, or the file cannot be written.
pub fn run(client: &Client, arguments: &CaptureArguments) -> Result<Summary, CaptureError> {
    let interrupt = Interrupt::block()?;
    let place = arguments.write.clone().unwrap_or_else(|| PathBuf::from("-"));
    if arguments.write.is_none() && io::stdout().is_terminal() {
        return Err(CaptureError::Terminal);
    }
    // Before the server is asked, which would begin for nothing. The file is made when it has begun.
    let target = Target::find(&place, arguments.force, &interrupt)?;
    let mut stream = client.capture(&arguments.filter()).map_err(|error| match error {
        AskError::Refused { status: NOT_FOUND, .. } => CaptureError::OlderServer,
        error => error.into(),
    })?;
    let output = target.open(&place, &interrupt)?;
    let wrong = |error| CaptureError::Write { path: place.clone(), error };
    let mut recording = Recording::begin(output, arguments).map_err(wrong)?;
    let end = match recording.run(&mut stream, arguments, &interrupt) {
        Ok(end) => end,
        Err(Stopped::Ask(error)) => return Err(error.into()),
        Err(Stopped::Io(error)) => return Err(error.into()),
        Err(Stopped::Write(error)) => match broken(&error, &interrupt) {
            // What was begun is no whole block: nothing may follow it.
            Some(end) => return ended(recording.summary(end, place)),
            None => return Err(recording.failed(error, place)),
        },
    };
    // The server need not copy messages any more. What still waits there is neither written nor counted.
    drop(stream);
    recording.finish(end, place, &interrupt)
}

/// An output that lacks its end is a failure. One whose reader has gone is as he wanted it.
fn ended(summary: Summary) -> Result<Summary, CaptureError> {
    match summary.end {
        End::StillReader => Err(CaptureError::Incomplete(Box::new(summary))),
        _ => Ok(summary),
    }
}

/// Why a capture goes on no more.
enum Stopped {
    Ask(AskError),
    Write(io::Error),
    Io(io::Error),
}

impl From<AskError> for Stopped {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

/// The end that an output brings by not being read, if that is why it cannot be written.
fn broken(error: &io::Error, interrupt: &Interrupt) -> Option<End> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Some(End::Reader);
    }
    interrupt.has_given_up().then_some(End::StillReader)
}

/// What is written so far.
struct Recording<W: Write> {
    writer: PacketWriter<BufWriter<W>>,
    limiter: Limiter,
    packets: Packets,
    with_contents: bool,
    messages: u64,
    calls: u64,
    counts: CaptureCounts,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Written,
    NotAskedFor,
    /// The file would be too large.
    NoRoom,
}

impl<W: Write> Recording<W> {
    fn begin(output: W, arguments: &CaptureArguments) -> io::Result<Self> {
        let output = BufWriter::with_capacity(1 << 18, output);
        Ok(Self {
            writer: PacketWriter::of_ethernet(output, PROGRAM, "messages inside the server")?,
            limiter: Limiter::new(arguments.operation.clone()),
            packets: Packets::default(),
            with_contents: arguments.contents,
            messages: 0,
            calls: 0,
            counts: CaptureCounts::default(),
        })
    }

    fn run(
        &mut self,
        stream: &mut CaptureStream,
        arguments: &CaptureArguments,
        interrupt: &Interrupt,
    ) -> Result<End, Stopped> {
        let mut end_at = arguments.seconds.map(|seconds| Instant::now() + seconds);
        let bytes_max = arguments.max_mib.map(|mib| mib << 20);
        let mut next_look = Instant::now() + PATIENCE;
        let mut is_ending = false;
        loop {
            let now = Instant::now();
            if end_at.is_some_and(|end| end <= now) {
                return Ok(End::Wanted);
            }
            // By time, whether messages come one by one or in masses.
            if next_look <= now {
                next_look = now + PATIENCE;
                self.writer.flush().map_err(Stopped::Write)?;
                if interrupt.look().map_err(Stopped::Io)? && !is_ending {
                    is_ending = true;
                    end_at = Some(end_at.map_or(now + LAST, |end| end.min(now + LAST)));
                }
            }
            let until = end_at.map_or(next_look, |end| end.min(next_look));
            match stream.next(until.saturating_duration_since(now))? {
                Captured::End => return Ok(End::Server),
                Captured::Nothing => {}
                Captured::Frame(Frame::CutOff(counts)) => {
                    self.counts = counts;
                    return Ok(End::CutOff);
                }
                Captured::Frame(Frame::Counts(counts)) => {
                    self.counts = counts;
                }
                Captured::Frame(Frame::Message(message)) => {
                    let taken = self.take(&message, bytes_max).map_err(Stopped::Write)?;
                    if taken == Taken::NoRoom || arguments.count == Some(self.messages) {
                        return Ok(End::Wanted);
                    }
                }
            }
        }
    }

    /// Writes a message, as far as it was asked for.
    fn take(&mut self, captured: &CapturedMessage, bytes_max: Option<u64>) -> io::Result<Taken> {
        let mut message = Message {
            client: captured.client,
            server: captured.server,
            is_sent: captured.is_sent,
            length: captured.length as usize,
            executed: captured.executed.map(|call| Executed {
                program: call.program,
                version: call.version,
                procedure: call.procedure,
            }),
            bytes: &captured.bytes,
        };
        let limited = self.limiter.limit(&message);
        if !limited.is_wanted {
            return Ok(Taken::NotAskedFor);
        }
        if !self.with_contents {
            message.bytes = message.bytes.get(..limited.head_bytes).unwrap_or(message.bytes);
        }
        let needed = packets::file_bytes(&message);
        if bytes_max.is_some_and(|max| self.writer.file_bytes() + needed > max) {
            return Ok(Taken::NoRoom);
        }
        let mut comment = Some(comment(captured)).filter(|comment| !comment.is_empty());
        let Self { writer, packets, .. } = self;
        packets.of(&message, captured.is_datagram, |bytes, length, has_end| {
            let comment = comment.take_if(|_| has_end);
            writer.write_frame(captured.time_ns, bytes, length, comment.as_deref())
        })?;
        self.messages += 1;
        self.calls += u64::from(limited.is_call);
        Ok(Taken::Written)
    }

    fn summary(&self, end: End, place: PathBuf) -> Summary {
        let Self { messages, calls, counts, .. } = *self;
        Summary { messages, calls, file_bytes: self.writer.file_bytes(), counts, end, place }
    }

    fn failed(&self, error: io::Error, place: PathBuf) -> CaptureError {
        CaptureError::Broken { summary: Box::new(self.summary(End::Wanted, place)), error }
    }

    fn finish(
        self,
        end: End,
        place: PathBuf,
        interrupt: &Interrupt,
    ) -> Result<Summary, CaptureError> {
        let mut summary = self.summary(end, place);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let CaptureCounts { dropped, .. } = summary.counts;
        let received = summary.messages.saturating_add(dropped);
        match self.writer.finish(now_ns, RingStatistics { received, dropped }) {
            Ok(_) => {}
            Err(error) => match broken(&error, interrupt) {
                Some(End::StillReader) => summary.end = End::StillReader,
                Some(_) => {}
                None => return Err(CaptureError::Broken { summary: Box::new(summary), error }),
            },
        }
        ended(summary)
    }
}

/// What the server knows of a reply and the message does not say.
fn comment(message: &CapturedMessage) -> String {
    let us = |ns: u64| format!("{}.{} µs", ns / 1000, ns / 100 % 10);
    let mut parts = Vec::new();
    if let Some(times) = message.times {
        let executed = format!("executed in {}", us(times.executed_ns));
        parts.push(match times.waited_ns {
            0 => executed,
            waited_ns => format!("{executed}, of it {} where it might wait", us(waited_ns)),
        });
        if times.stable_ns > 0 {
            parts.push(format!("stable {} later", us(times.stable_ns)));
        }
    }
    if message.is_repeat {
        parts.push("a repeated call".to_owned());
    }
    parts.join("; ")
}
