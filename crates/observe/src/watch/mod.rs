//! `steadfast watch`: who calls a server, what for, and how long it takes, from packets.
//!
//! [`run`] does what was typed ([`WatchArguments`]). `session` has what is counted; `text` shows it as lines,
//! `screen` in a terminal.

mod arguments;
mod screen;
mod session;
mod text;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use steadfast_sys::packet_ring::RingStatistics;
use steadfast_sys::process::Signals;

pub use self::arguments::{Rows, WatchArguments};
use self::session::Session;
use self::text::Part;
use crate::capture::DEFAULT_PORTS;
use crate::capture::file::{FileError, PacketFile, PacketWriter};
use crate::capture::live::{self, Live, LiveError};
use crate::private_file;
use crate::screen::print;

/// For how long packets are waited for before keys and signals are looked at.
const PATIENCE: Duration = Duration::from_millis(50);
/// Packets of a file between two looks at signals.
const PACKETS_A_LOOK: u64 = 8192;

/// Why nothing can be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Packets cannot be captured.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The file that is replayed cannot be read.
    #[error("{path:?}: {error}")]
    Replay {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: FileError,
    },
    /// The file that is recorded cannot be written.
    #[error("{path:?}: {error}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The terminal, or signals.
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that intervals are measured by: it begins with the system's clock, and does not jump with it.
#[derive(Clone, Copy, Debug)]
struct Pace {
    begun_unix_ns: u64,
    begun: Instant,
}

impl Pace {
    fn begin() -> Self {
        Self { begun_unix_ns: unix_ns(), begun: Instant::now() }
    }

    fn now_ns(self) -> u64 {
        let since_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.begun_unix_ns.saturating_add(since_ns)
    }
}

/// Watches until it is interrupted, the intervals that were asked for are over, or the file ends.
///
/// # Errors
/// When packets cannot be captured, or a file cannot be read or written.
pub fn run(arguments: &WatchArguments) -> Result<(), WatchError> {
    let signals = Signals::block()?;
    let ports = if arguments.ports.is_empty() { &DEFAULT_PORTS[..] } else { &arguments.ports };
    if let Some(path) = &arguments.replay {
        return replay(path, ports, arguments, &signals);
    }
    let mut watch = Watch::begin(ports, arguments, &signals)?;
    if io::stdout().is_terminal() && !arguments.json {
        screen::run(&mut watch, arguments, &signals)?;
    } else {
        lines(&mut watch, arguments, &signals)?;
    }
    watch.finish(arguments)
}

/// A live capture, and what is made of it.
struct Watch {
    live: Live,
    record: Option<PacketWriter<BufWriter<File>>>,
    session: Session,
    pace: Pace,
}

impl Watch {
    fn begin(
        ports: &[u16],
        arguments: &WatchArguments,
        signals: &Signals,
    ) -> Result<Self, WatchError> {
        let live = Live::open(arguments.interface.as_deref(), ports.iter().copied().collect())?;
        let has_ended = || signals.wait(Duration::ZERO).map(|signal| signal.is_some());
        let record = match &arguments.record {
            None => None,
            Some(path) => Some(recording(path, has_ended, |file| {
                PacketWriter::new(BufWriter::with_capacity(1 << 20, file))
            })?),
        };
        let pace = Pace::begin();
        let session = Session::new(ports.iter().copied(), pace.now_ns());
        Ok(Self { live, record, session, pace })
    }

    /// Takes the packets that come next, or sees that there are none.
    fn step(&mut self, patience: Duration, arguments: &WatchArguments) -> Result<(), WatchError> {
        let (record, session) = (&mut self.record, &mut self.session);
        let mut written = Ok(());
        let has_packets = self.live.poll(patience, |packet| {
            if let Some(writer) = record
                && written.is_ok()
            {
                written = writer.write(packet);
            }
            session.handle_packet(&live::packet(packet));
        })?;
        if let (Err(error), Some(path)) = (written, &arguments.record) {
            return Err(WatchError::Record { path: path.clone(), error });
        }
        if has_packets {
            self.live.follow(self.session.dissector().ports())?;
        } else {
            self.session.handle_time(unix_ns());
        }
        Ok(())
    }

    /// Whether the interval is over; if so, another one begins.
    fn ends_interval(&mut self, interval: Duration) -> Result<bool, WatchError> {
        let now_ns = self.pace.now_ns();
        let elapsed_ns = now_ns.saturating_sub(self.session.interval_begun_ns());
        if u128::from(elapsed_ns) < interval.as_nanos() {
            return Ok(false);
        }
        self.end_interval(now_ns)?;
        Ok(true)
    }

    fn end_interval(&mut self, now_ns: u64) -> Result<(), WatchError> {
        self.session.kernel = Some(self.live.statistics()?);
        self.session.end_interval(now_ns);
        Ok(())
    }

    /// Takes what is in the ring, and tells the total.
    fn finish(mut self, arguments: &WatchArguments) -> Result<(), WatchError> {
        self.step(PATIENCE, arguments)?;
        self.end_interval(self.pace.now_ns())?;
        if let (Some(writer), Some(path)) = (self.record.take(), &arguments.record) {
            let counted = self.session.kernel.unwrap_or_default();
            let finished = writer.finish(unix_ns(), counted);
            finished.map_err(|error| WatchError::Record { path: path.clone(), error })?;
        }
        total(&self.session, arguments)?;
        Ok(())
    }
}

fn recording<T>(
    path: &Path,
    mut has_ended: impl FnMut() -> io::Result<bool>,
    begin: impl FnOnce(File) -> io::Result<T>,
) -> Result<T, WatchError> {
    let waits = || {
        std::thread::sleep(PATIENCE);
        has_ended().map(|has_ended| !has_ended)
    };
    // Pipes and devices are no files to be replaced.
    let file = private_file::open_special(path, waits).and_then(|opened| match opened {
        None => private_file::create(path, true),
        Some(file) => {
            let flags = fcntl_getfl(&file)?;
            fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            Ok(file)
        }
    });
    let begun = file.and_then(begin);
    begun.map_err(|error| WatchError::Record { path: path.to_owned(), error })
}

fn interval(session: &Session, arguments: &WatchArguments) -> Result<bool, WatchError> {
    let by = arguments.by.into();
    Ok(print(&if arguments.json {
        text::json(session, Part::Interval, by)
    } else {
        text::table(session, Part::Interval, by, arguments.rows)
    })?)
}

fn total(session: &Session, arguments: &WatchArguments) -> Result<bool, WatchError> {
    let by = arguments.by.into();
    Ok(print(&if arguments.json {
        text::json(session, Part::Total, by)
    } else {
        text::table(session, Part::Total, by, arguments.rows) + &text::notes(session)
    })?)
}

/// A table each interval.
fn lines(
    watch: &mut Watch,
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    let every = arguments.interval.unwrap_or(Duration::from_secs(1));
    let mut left = arguments.count;
    while signals.wait(Duration::ZERO)?.is_none() {
        watch.step(PATIENCE, arguments)?;
        if watch.ends_interval(every)? {
            if !interval(&watch.session, arguments)? {
                break;
            }
            left = left.map(|left| left - 1);
            if left == Some(0) {
                break;
            }
        }
    }
    Ok(())
}

fn replay(
    path: &Path,
    ports: &[u16],
    arguments: &WatchArguments,
    signals: &Signals,
) -> Result<(), WatchError> {
    let wrong = |error: FileError| WatchError::Replay { path: path.to_owned(), error };
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| wrong(error.into()))?)
    };
    let mut file = PacketFile::new(BufReader::with_capacity(1 << 20, input)).map_err(wrong)?;
    let mut session = Session::new(ports.iter().copied(), 0);
    let every_ns = arguments.interval.map(|every| every.as_nanos() as u64);
    let (mut packets, mut last_ns, mut intervals) = (0_u64, 0, 0);
    while let Some(packet) = file.next_packet().map_err(wrong)? {
        if packets == 0 {
            session.begin_at(packet.time_ns);
        }
        packets += 1;
        last_ns = packet.time_ns.max(last_ns);
        if packets.is_multiple_of(PACKETS_A_LOOK) && signals.wait(Duration::ZERO)?.is_some() {
            break;
        }
        if let Some(every_ns) = every_ns
            && let end_ns = session.interval_begun_ns().saturating_add(every_ns)
            && packet.time_ns >= end_ns
        {
            // A silence of many intervals is one.
            let silence = packet.time_ns.saturating_sub(end_ns) / every_ns * every_ns;
            session.end_interval(end_ns + silence);
            intervals += 1;
            if !interval(&session, arguments)? || arguments.count == Some(intervals) {
                break;
            }
        }
        session.handle_packet(&packet);
    }
    session.end_interval(last_ns);
    session.kernel =
        file.dropped().map(|dropped| RingStatistics { received: packets + dropped, dropped });
    if total(&session, arguments)? && !arguments.json {
        if file.is_cut() {
            print("The file ends in the middle of a packet.\n")?;
        }
        if file.left_out() > 0 {
            let note = "packets have a link type that is not read";
            print(&format!("{} {note}.\n", file.left_out()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::io;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn what_is_recorded_is_for_its_owner_alone() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("day.pcapng");
        std::fs::write(&path, "before")?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?;
        let opened = std::fs::File::open(&path)?;
        super::recording(&path, || Ok(true), |_| Ok(())).map_err(io::Error::other)?;
        assert_eq!((opened.metadata()?.nlink(), opened.metadata()?.len()), (0, 6));
        super::recording("/dev/null".as_ref(), || Ok(true), |_| Ok(()))
            .map_err(io::Error::other)?;
        assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600);
        Ok(())
    }
}
