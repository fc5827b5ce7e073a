//! `steadfast capture`: the RPC messages of a running Steadfast server as a pcapng file, as the server itself reads and
//! writes them.
//!
//! [`run`] does what was typed ([`CaptureArguments`]): it asks the server for its messages ([`Client::capture`]), leaves
//! out what is content of files ([`Limiter`]), and writes the packets that would have carried them (`packets`).

mod arguments;
mod packets;

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadfast_control::capture::{CaptureCounts, CapturedMessage, Frame};
use steadfast_control::{AskError, CaptureStream, Captured, Client};
use steadfast_sys::packet_ring::RingStatistics;
use steadfast_sys::process::Signals;

pub use self::arguments::CaptureArguments;
use self::packets::Packets;
use crate::capture::file::PacketWriter;
use crate::capture::{Limiter, Message};

/// For how long messages are waited for before signals are looked at.
const PATIENCE: Duration = Duration::from_millis(50);
/// Messages between two looks at signals.
const MESSAGES_A_LOOK: u64 = 256;
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
    #[error("{0:?} is there already: name another file, or write over it with --force")]
    Exists(PathBuf),
    /// The file cannot be written.
    #[error("{path:?} cannot be written: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Signals.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Why a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Wanted,
    Reader,
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
            End::Server => f.write_str("the server has ended: ")?,
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
    let signals = Signals::block()?;
    let place = arguments.write.clone().unwrap_or_else(|| PathBuf::from("-"));
    if arguments.write.is_none() && io::stdout().is_terminal() {
        return Err(CaptureError::Terminal);
    }
    let mut stream = client.capture(&arguments.filter()).map_err(|error| match error {
        AskError::Refused { status: NOT_FOUND, .. } => CaptureError::OlderServer,
        error => error.into(),
    })?;
    let output = open(&place, arguments.force)?;
    let wrong = |error| CaptureError::Write { path: place.clone(), error };
    let mut recording = Recording::begin(output, arguments).map_err(wrong)?;
    let end = recording.run(&mut stream, arguments, &signals, &wrong)?;
    // The capture ends before the file does, so that the count of what was dropped is the last one.
    drop(stream);
    recording.finish(end, place.clone()).map_err(wrong)
}

fn open(place: &Path, replaces: bool) -> Result<Box<dyn Write>, CaptureError> {
    if place == Path::new("-") {
        return Ok(Box::new(io::stdout().lock()));
    }
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => CaptureError::Exists(place.to_owned()),
        _ => CaptureError::Write { path: place.to_owned(), error },
    };
    // Messages have names, owners and perhaps contents of files: they are nobody else's.
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    if replaces {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let file: File = options.open(place).map_err(wrong)?;
    if replaces && file.metadata().map_err(wrong)?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(wrong)?;
    }
    Ok(Box::new(file))
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
        signals: &Signals,
        wrong: &dyn Fn(io::Error) -> CaptureError,
    ) -> Result<End, CaptureError> {
        let mut end_at = arguments.seconds.map(|seconds| Instant::now() + seconds);
        let bytes_max = arguments.max_mib.map(|mib| mib << 20);
        let mut since_look = 0;
        let mut is_ending = false;
        loop {
            since_look += 1;
            let left = end_at.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(End::Wanted);
            }
            let next = stream.next(left.map_or(PATIENCE, |left| left.min(PATIENCE)))?;
            let is_quiet = next == Captured::Nothing;
            let done = match next {
                Captured::End => return Ok(End::Server),
                // What there is may be read at once.
                Captured::Nothing => self.writer.flush().map(|()| Taken::NotAskedFor),
                Captured::Frame(Frame::Counts(counts)) => {
                    self.counts = counts;
                    Ok(Taken::NotAskedFor)
                }
                Captured::Frame(Frame::Message(message)) => self.take(&message, bytes_max),
            };
            match done {
                Ok(Taken::NoRoom) => return Ok(End::Wanted),
                Ok(_) if arguments.count == Some(self.messages) => return Ok(End::Wanted),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(End::Reader),
                Err(error) => return Err(wrong(error)),
            }
            if is_quiet || since_look >= MESSAGES_A_LOOK {
                since_look = 0;
                if signals.wait(Duration::ZERO)?.is_some() {
                    if std::mem::replace(&mut is_ending, true) {
                        return Ok(End::Wanted);
                    }
                    // What is on its way has replies to calls that are written.
                    let last = Instant::now() + LAST;
                    end_at = Some(end_at.map_or(last, |end| end.min(last)));
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
        packets.of(&message, captured.is_datagram, |bytes, length| {
            writer.write_frame(captured.time_ns, bytes, length, comment.take().as_deref())
        })?;
        self.messages += 1;
        self.calls += u64::from(limited.is_call);
        Ok(Taken::Written)
    }

    fn finish(self, end: End, place: PathBuf) -> io::Result<Summary> {
        let Self { writer, messages, calls, counts, .. } = self;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let CaptureCounts { dropped, .. } = counts;
        let received = messages.saturating_add(dropped);
        let file_bytes = writer.file_bytes();
        match writer.finish(now_ns, RingStatistics { received, dropped }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error),
        }
        Ok(Summary { messages, calls, file_bytes, counts, end, place })
    }
}

/// What the server knows of a reply and the message does not say.
fn comment(message: &CapturedMessage) -> String {
    let Some(times) = message.times else { return String::new() };
    let us = |ns: u64| format!("{}.{} µs", ns / 1000, ns / 100 % 10);
    let mut text = format!("executed in {}", us(times.executed_ns));
    // Writing to a string does not fail.
    if times.waited_ns > 0 {
        let _ = write!(text, ", of it {} where it might wait", us(times.waited_ns));
    }
    if times.stable_ns > 0 {
        let _ = write!(text, "; stable {} later", us(times.stable_ns));
    }
    if message.is_repeat {
        text.push_str("; a repeated call");
    }
    text
}
