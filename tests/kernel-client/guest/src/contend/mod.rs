//! A process that contends with others for locks of byte ranges, in one of several ways ([`Way`]): on the
//! server's machine, by a mount of a guest, or as a client of its own.
//!
//! What a lock is worth is told by the data under it ([`cells`]). Who has a write lock adds one to each number of its
//! range, and reads again what it has written; who has a read lock reads twice. Each write lock is a line of a
//! log, with the number that it made of its first cell: the host reads the logs of all, and finds a number that
//! was made twice, or that nobody has made.

mod cells;
mod clients;
mod paths;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::random::Random;

/// Locked as a whole, and for writing only: so each number has one before it, whose holder let it go.
const WHOLE: &str = "whole";
/// Locked by ranges that overlap, to read and to write.
const RANGES: [&str; 2] = ["ranges-1", "ranges-2"];
/// Cells that one lock spans at most.
const SPAN_MAX: u64 = 6;
/// How long most wait for a lock.
const PATIENCE: Duration = Duration::from_secs(10);
/// A hasty one waits so many milliseconds at most.
const HASTE_MS: u64 = 10;
/// Locks between two looks at what is written for those who wait for the end.
const COUNTED: u64 = 32;

/// Names of the files, by number.
fn files() -> impl Iterator<Item = &'static str> {
    std::iter::once(WHOLE).chain(RANGES)
}

/// A lock that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    /// Which of [`files`].
    file: usize,
    /// First and last cell.
    cells: (u64, u64),
    is_exclusive: bool,
}

impl Wanted {
    fn any(random: &mut Random) -> Self {
        let file = random.below(1 + RANGES.len() as u64) as usize;
        if file == 0 {
            return Self { file, cells: (0, 0), is_exclusive: true };
        }
        let first = random.below(cells::COUNT);
        let last = (first + random.below(SPAN_MAX)).min(cells::COUNT - 1);
        Self { file, cells: (first, last), is_exclusive: random.below(10) < 7 }
    }

    fn is_whole(&self) -> bool {
        self.file == 0
    }

    /// Where the data is: offset and length.
    fn data(&self) -> (u64, usize) {
        let (first, last) = self.cells;
        (first * cells::BYTES as u64, (last - first + 1) as usize * cells::BYTES)
    }

    /// What is locked: offset and length, which is [`u64::MAX`] for all that follows.
    fn range(&self) -> (u64, u64) {
        let (offset, length) = self.data();
        if self.is_whole() { (0, u64::MAX) } else { (offset, length as u64) }
    }
}

/// How one locks, reads and writes.
trait Way {
    /// Whether the lock is had at once.
    fn lock(&mut self, wanted: &Wanted) -> Result<bool>;
    /// Waits for it; whether it is had after this time.
    fn wait(&mut self, wanted: &Wanted, limit: Duration) -> Result<bool>;
    fn unlock(&mut self, wanted: &Wanted) -> Result<()>;
    fn read(&mut self, wanted: &Wanted) -> Result<Vec<u8>>;
    fn write(&mut self, wanted: &Wanted, data: &[u8]) -> Result<()>;
    /// Leaves nothing at the server.
    fn end(self: Box<Self>) -> Result<()>;
}

#[derive(Debug, Default)]
struct Counts {
    locks: u64,
    reads: u64,
    denied: u64,
    waited: u64,
    interrupted: u64,
}

struct Contender {
    way: Box<dyn Way>,
    random: Random,
    log: BufWriter<File>,
    /// Where the number of locks is written now and then.
    count: PathBuf,
    party: u32,
    pause_us: u64,
    /// One wait in so many is hasty.
    hasty: u64,
    counts: Counts,
}

/// Makes the files, all numbers 0.
pub(crate) fn make(directory: &str) -> Result<()> {
    let bytes = cells::written(&vec![0; cells::COUNT as usize], 0);
    for name in files() {
        std::fs::write(Path::new(directory).join(name), &bytes)?;
    }
    Ok(())
}

/// Prints the numbers: a line a file.
pub(crate) fn print(directory: &str) -> Result<()> {
    for (file, name) in files().enumerate() {
        let bytes = std::fs::read(Path::new(directory).join(name))?;
        let numbers: Vec<String> = cells::numbers(&bytes)?.iter().map(u64::to_string).collect();
        println!("{file} {}", numbers.join(" "));
    }
    Ok(())
}

/// Locks all of the files: fails if others have anything there.
pub(crate) fn take_all(directory: &str) -> Result<()> {
    let mut way = paths::Paths::open(Path::new(directory), false)?;
    for file in 0..files().count() {
        let cells = (0, cells::COUNT - 1);
        let is_free = way.lock(&Wanted { file, cells, is_exclusive: true })?;
        ensure!(is_free, "somebody has a lock of file {file} still");
    }
    Ok(())
}

/// Child: waits for all of a file, for which others seldom let it, and changes nothing when it has it. Again
/// and again, until it is killed.
pub(crate) fn wait_for_all(directory: &str, file: usize) -> Result<()> {
    ensure!(
        file != 0,
        "who looks how fast the whole file goes from one to the next must know of all"
    );
    let mut way = paths::Paths::open(Path::new(directory), true)?;
    let wanted = Wanted { file, cells: (0, cells::COUNT - 1), is_exclusive: true };
    loop {
        if way.wait(&wanted, PATIENCE)? {
            way.unlock(&wanted)?;
        }
    }
}

/// Child: contends until a file is there that says it is over. `words`: the way and where, the log, the file,
/// the party's number, how long it rests between two locks, and one in how many waits is hasty.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let [way, place, log, end, party, pause_us, hasty] = words else {
        bail!("a contender is told of its way by {words:?}")
    };
    let (party, pause_us, hasty) = (party.parse()?, pause_us.parse()?, hasty.parse()?);
    let way: Box<dyn Way> = match *way {
        "local" => Box::new(paths::Paths::open(Path::new(place), false)?),
        "mount" => Box::new(paths::Paths::open(Path::new(place), true)?),
        "nfs4" => Box::new(clients::Nfs4::connect(place)?),
        "nlm" => Box::new(clients::Nlm::connect(place, party)?),
        other => bail!("nobody contends by {other:?}"),
    };
    let count = PathBuf::from(end).with_file_name(format!("count-{party}"));
    let log = BufWriter::new(File::create(log).with_context(|| (*log).to_owned())?);
    // Random numbers of its own, and the same in each run: moments differ anyway.
    let random = Random::new(0xc0de ^ u64::from(party));
    let counts = Counts::default();
    let mut contender = Contender { way, random, log, count, party, pause_us, hasty, counts };
    while !Path::new(end).exists() {
        contender.turn()?;
    }
    contender.end()
}

impl Contender {
    fn turn(&mut self) -> Result<()> {
        let wanted = Wanted::any(&mut self.random);
        let mut asked_ns = 0;
        if !self.way.lock(&wanted)? {
            self.counts.denied += 1;
            if self.random.below(4) == 0 {
                self.rest(1000 + self.pause_us);
                return Ok(());
            }
            asked_ns = now_ns();
            let limit = match self.random.below(self.hasty) {
                0 => Duration::from_millis(1 + self.random.below(HASTE_MS)),
                _ => PATIENCE,
            };
            if !self.way.wait(&wanted, limit)? {
                self.counts.interrupted += 1;
                return Ok(());
            }
            self.counts.waited += 1;
        }
        let granted_ns = now_ns();
        let told = if wanted.is_exclusive { self.add(&wanted) } else { self.look(&wanted) };
        let number =
            told.with_context(|| format!("party {}, with the lock {wanted:?}", self.party))?;
        if wanted.is_exclusive {
            let Wanted { file, cells: (first, last), .. } = wanted;
            let freed_ns = now_ns();
            writeln!(
                self.log,
                "w {file} {first} {last} {number} {asked_ns} {granted_ns} {freed_ns}"
            )?;
        } else {
            self.counts.reads += 1;
        }
        self.way.unlock(&wanted)?;
        self.counts.locks += 1;
        if self.counts.locks.is_multiple_of(COUNTED) {
            std::fs::write(&self.count, self.counts.locks.to_string())?;
        }
        self.rest(self.pause_us);
        Ok(())
    }

    /// Adds one to each number; what the first is then.
    fn add(&mut self, wanted: &Wanted) -> Result<u64> {
        let mut numbers = cells::numbers(&self.way.read(wanted)?)?;
        for number in &mut numbers {
            *number += 1;
        }
        let stamp = (u64::from(self.party) << 40) | self.counts.locks;
        let written = cells::written(&numbers, stamp);
        self.way.write(wanted, &written)?;
        self.hold();
        let found = self.way.read(wanted)?;
        ensure!(found == written, "another one wrote there: {}", cells::told(&found));
        Ok(numbers[0])
    }

    /// Reads twice the same.
    fn look(&mut self, wanted: &Wanted) -> Result<u64> {
        let before = self.way.read(wanted)?;
        cells::numbers(&before)?;
        self.hold();
        let after = self.way.read(wanted)?;
        ensure!(before == after, "another one wrote there: {}", cells::told(&after));
        Ok(0)
    }

    /// Some hold a lock a little, so that others meet it.
    fn hold(&mut self) {
        if self.random.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn rest(&mut self, most_us: u64) {
        if most_us > 0 {
            std::thread::sleep(Duration::from_micros(self.random.below(most_us)));
        }
    }

    /// Tells the host what there is to tell beside write locks.
    fn end(mut self) -> Result<()> {
        let Counts { locks, reads, denied, waited, interrupted } = self.counts;
        writeln!(self.log, "sum {locks} {reads} {denied} {waited} {interrupted}")?;
        self.log.flush()?;
        self.log.get_ref().sync_all()?;
        std::fs::write(&self.count, locks.to_string())?;
        self.way.end()
    }
}

/// By the clock that all processes of a machine share.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_in_the_file_and_the_whole_is_locked_to_write() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let wanted = Wanted::any(&mut random);
            let (offset, length) = wanted.data();
            assert!(offset + length as u64 <= cells::COUNT * cells::BYTES as u64, "{wanted:?}");
            assert_eq!(wanted.range().1 == u64::MAX, wanted.is_whole());
            assert!(wanted.is_exclusive || !wanted.is_whole());
        }
    }

    #[test]
    fn one_that_has_its_lock_for_itself_counts_and_one_that_has_not_says_so() {
        let directory = tempfile_directory();
        let place = directory.to_string_lossy().into_owned();
        make(&place).expect("made");
        let file = |name: &str| File::create(directory.join(name)).expect("a file");
        let mut contender = Contender {
            way: Box::new(paths::Paths::open(&directory, false).expect("open")),
            random: Random::new(7),
            log: BufWriter::new(file("log")),
            count: directory.join("count"),
            party: 3,
            pause_us: 0,
            hasty: 5,
            counts: Counts::default(),
        };
        for _ in 0..500 {
            contender.turn().expect("alone");
        }
        assert_eq!(contender.counts.locks, 500);
        take_all(&place).expect("nothing is left");
        let way = contender.way;
        contender.way = Box::new(Intruded(way));
        let broken = (0..500).find_map(|_| contender.turn().err());
        assert!(format!("{:#}", broken.expect("found")).contains("another one wrote there"));
        std::fs::remove_dir_all(directory).expect("removed");
    }

    fn tempfile_directory() -> PathBuf {
        let path = std::env::temp_dir().join(format!("steadfast-contend-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// As if another one had the lock, too: what is written is not what is read.
    struct Intruded(Box<dyn Way>);

    impl Way for Intruded {
        fn lock(&mut self, wanted: &Wanted) -> Result<bool> {
            self.0.lock(wanted)
        }
        fn wait(&mut self, wanted: &Wanted, limit: Duration) -> Result<bool> {
            self.0.wait(wanted, limit)
        }
        fn unlock(&mut self, wanted: &Wanted) -> Result<()> {
            self.0.unlock(wanted)
        }
        fn read(&mut self, wanted: &Wanted) -> Result<Vec<u8>> {
            self.0.read(wanted)
        }
        fn write(&mut self, wanted: &Wanted, data: &[u8]) -> Result<()> {
            let numbers = cells::numbers(data)?;
            self.0.write(wanted, &cells::written(&numbers, 0xbad))
        }
        fn end(self: Box<Self>) -> Result<()> {
            self.0.end()
        }
    }
}
