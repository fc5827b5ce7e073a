//! One run on recording disks, and what is made of it: the state of the disks, and of the ledger,
//! at any event.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::UnshareFlags;
use rustix::time::ClockId;
use steadfast_client::FileHandle;

use crate::crash::{Disk, Survival};
use crate::disk;
use crate::image::Image;
use crate::journal::{Event, Journal};
use crate::nfs4::{Deeds, Holdings};
use crate::operation::{Action, Number, Outcome};
use crate::random::Random;
use crate::server::{Setup, address};
use crate::state::State;
use crate::storage::{FileSystem, Mounted};
use crate::workload::{Load, Mix, Operation, Plan};

/// The disk with the state directory, in bytes.
const STATE_BYTES: u64 = 32 << 20;
/// What the mark of an intent log on a file system begins with, at a block's beginning.
const MARK_MAGIC: &[u8] = b"SfFsMark";
const MARK_ALIGNMENT: usize = 4096;

/// Where a run keeps what: all in memory, in a mount namespace of its own.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) top: PathBuf,
}

impl Places {
    /// Where the disk of this number is mounted: the data, the server's state, its log.
    pub(crate) fn mount(&self, disk: usize) -> PathBuf {
        self.top.join(["data", "state", "log"].get(disk).unwrap_or(&"more"))
    }

    /// A file for a disk.
    pub(crate) fn image(&self, disk: usize, what: &str) -> PathBuf {
        self.top.join(format!("{what}-{disk}.img"))
    }

    /// What is found where the kernel tells which run of the machine this is.
    pub(crate) fn boot_id(&self) -> PathBuf {
        self.top.join("boot_id")
    }

    /// From here on it is another run of the machine, of this number, for all processes that are started
    /// from this thread.
    pub(crate) fn start_machine(&self, seed: u64, number: usize, began: Began) -> Result<()> {
        began.set()?;
        empty_memory()?;
        // Written to in place: it is bound there.
        let (high, low) = (seed >> 32, seed & 0xffff_ffff);
        let id = format!("{high:08x}-5fad-4000-8000-{low:08x}{:04x}\n", number & 0xffff);
        std::fs::write(self.boot_id(), id).context("the number of the machine's run")
    }

    /// What is served.
    pub(crate) fn share(&self) -> PathBuf {
        self.mount(0).join("share")
    }
}

/// What servers have kept in memory is gone: what their clients had opened and locked.
fn empty_memory() -> Result<()> {
    const IMAGES: &str = "steadfast-state-";
    for entry in std::fs::read_dir("/run")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(IMAGES) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// When a run of the machine began, by its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Began {
    /// Now.
    Now,
    /// So long ago that what came before the power cut seems to be of the same run: as on a fast virtual
    /// machine whose clock is set a little later.
    BeforeTheCut,
}

impl Began {
    /// Has the machine be up for this long in what is started from now on.
    #[expect(
        deprecated,
        reason = "what is not safe of it is sharing files, which stay shared here"
    )]
    fn set(self) -> Result<()> {
        const BEFORE_S: i64 = 4;
        let ago = if self == Self::BeforeTheCut { BEFORE_S } else { 0 };
        let up = rustix::time::clock_gettime(ClockId::Boottime);
        let (seconds, rest) = match up.tv_nsec {
            0 => (ago - up.tv_sec, 0),
            more => (ago - up.tv_sec - 1, 1_000_000_000 - more),
        };
        rustix::thread::unshare(UnshareFlags::NEWTIME).context("a time namespace")?;
        std::fs::write("/proc/self/timens_offsets", format!("boottime {seconds} {rest}\n"))
            .context("/proc/self/timens_offsets")?;
        // File systems have their times from the clock's last tick, which is 4 ms ago, or 160 ms where the machine is
        // itself a guest of a busy one. Nothing is made on this machine before it began.
        let began = rustix::time::clock_gettime(ClockId::Realtime);
        while rustix::time::clock_gettime(ClockId::RealtimeCoarse) < began {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) file_system: FileSystem,
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    /// Clients of NFSv4 beside them.
    pub(crate) holders: usize,
    pub(crate) operations: usize,
    /// A disk for the server's log beside the others, of so many bytes.
    pub(crate) log_bytes: Option<u64>,
    pub(crate) log_file_system: FileSystem,
    /// What is done besides.
    pub(crate) mix: Mix,
}

impl Shape {
    /// What the command line has of the log's disk.
    pub(crate) fn log_words(&self) -> String {
        let file_system = self.log_file_system;
        let words = |bytes: u64| format!(" --log-mib {} --log-fs {file_system}", bytes >> 20);
        self.log_bytes.map_or_else(String::new, words)
    }

    /// Tells runs with a log's disk from those without in a directory's name.
    fn log_suffix(&self) -> String {
        let file_system = self.log_file_system;
        self.log_bytes.map_or_else(String::new, |_| format!("-log-on-{file_system}"))
    }

    /// Where the disks of a point are kept, among others'.
    pub(crate) fn directory(&self, point: usize) -> String {
        format!("{}{}-{}-{point}", self.file_system, self.log_suffix(), self.seed)
    }

    /// The file systems and sizes of all disks.
    pub(crate) fn disks(&self) -> Vec<(FileSystem, u64)> {
        let mut disks = vec![
            (self.file_system, self.file_system.size_bytes()),
            (FileSystem::Ext4, STATE_BYTES),
        ];
        disks.extend(self.log_bytes.map(|bytes| (self.log_file_system, bytes)));
        disks
    }
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) operations: Vec<Operation>,
    pub(crate) deeds: Deeds,
    pub(crate) surprises: Vec<String>,
    /// Events before it are the start of the server, which promised nothing yet.
    pub(crate) start: usize,
    pub(crate) events: Vec<Event>,
    /// The devices that the disks had.
    pub(crate) devices: Vec<String>,
    pub(crate) root: FileHandle,
    pub(crate) journal: Arc<Journal>,
    pub(crate) images: Vec<Image>,
    /// What is known before the first event.
    pub(crate) state: State,
}

/// Recording disks that are mounted.
pub(crate) struct Recorder {
    pub(crate) journal: Arc<Journal>,
    pub(crate) devices: Vec<String>,
    session: fuser::BackgroundSession,
    mounted: Vec<Mounted>,
}

impl Recorder {
    /// Of disks whose contents are in these files, on these devices where they are free.
    pub(crate) fn open(
        shape: &Shape,
        places: &Places,
        what: &str,
        devices: &[String],
    ) -> Result<Self> {
        let disks = shape.disks();
        let open = |disk| File::options().read(true).write(true).open(places.image(disk, what));
        let contents = (0..disks.len()).map(open).collect::<Result<Vec<_>, _>>()?;
        let data = places.top.join(format!("recorded-{what}"));
        let data = File::options().read(true).write(true).create(true).truncate(true).open(data)?;
        let journal = Arc::new(Journal::new(contents, data));
        let names: Vec<String> =
            (0..disks.len()).map(|disk| format!("steadfast-powercut-{disk}")).collect();
        let at = places.top.join("disks");
        std::fs::create_dir_all(&at)?;
        let session = disk::mount(&journal, &names, &at)?;
        let mut mounted = Vec::new();
        for (disk, ((kind, _), name)) in disks.iter().zip(&names).enumerate() {
            let device = devices.get(disk).map(String::as_str);
            let (image, place) = (at.join(name), places.mount(disk));
            mounted.push(Mounted::with_device(*kind, &image, &place, true, device)?);
        }
        let devices = mounted.iter().map(|mounted| mounted.device().to_owned()).collect();
        Ok(Self { journal, devices, session, mounted })
    }

    /// Unmounts them.
    pub(crate) fn close(self) -> Result<()> {
        for mounted in self.mounted.into_iter().rev() {
            mounted.unmount()?;
        }
        self.session.umount_and_join().context("the recording disks cannot be unmounted")
    }
}

/// Makes the file systems of a shape, with an empty share; their contents.
pub(crate) fn make(shape: &Shape, places: &Places) -> Result<Vec<Image>> {
    let mut images = Vec::new();
    for (disk, (kind, bytes)) in shape.disks().into_iter().enumerate() {
        let path = places.image(disk, "disk");
        // A new file: a loop device may still be about to leave the one before.
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        kind.make(&path, bytes)?;
        if disk == 0 {
            let mounted = Mounted::new(kind, &path, &places.mount(0), false)?;
            std::fs::create_dir(places.share())?;
            mounted.unmount()?;
        }
        images.push(Image::read_from(&File::open(&path)?)?);
    }
    Ok(images)
}

/// Runs a load on recording disks.
pub(crate) fn record(shape: &Shape, places: &Places, setup: &Setup) -> Result<Recording> {
    let images = make(shape, places)?;
    let recorder = Recorder::open(shape, places, "disk", &[])?;
    let (journal, devices) = (Arc::clone(&recorder.journal), recorder.devices.clone());
    places.start_machine(shape.seed, 0, Began::Now)?;
    let server = setup.start()?;
    if shape.log_file_system == FileSystem::Ext4WithoutJournal {
        // Else nothing would be found out about it.
        server.require_flushed_device()?;
    }
    let (client, root) = server.mount()?;
    drop(client);
    let start = journal.length();
    let load = Load::new(root.clone(), Some(Arc::clone(&journal)), shape.operations);
    let load = load.with(shape.mix, &places.share());
    let (clients, holders, seed) = (shape.clients, shape.holders, shape.seed);
    let plan = Plan { server: address(), clients, holders, seed, may_be_killed: false };
    load.run(&plan)?;
    let events = journal.events();
    server.kill()?;
    recorder.close()?;
    let ledger = load.into_ledger();
    let (operations, surprises, deeds) = (ledger.operations, ledger.surprises, ledger.deeds);
    Ok(Recording {
        operations,
        deeds,
        surprises,
        start,
        events,
        devices,
        state: State::new(root.clone()),
        root,
        journal,
        images,
    })
}

/// A moment of a recording.
pub(crate) struct Moment<'a> {
    recording: &'a Recording,
    disks: Vec<Disk>,
    /// Events that have happened.
    pub(crate) point: usize,
    /// What is acknowledged.
    pub(crate) state: State,
    /// What is sent and not acknowledged.
    pub(crate) under_way: BTreeSet<Number>,
    /// What is acknowledged, in that order.
    pub(crate) acknowledged: Vec<Number>,
    /// What clients of NFSv4 have.
    pub(crate) holdings: Holdings,
}

impl Recording {
    /// Before the first event.
    pub(crate) fn beginning(&self, shape: &Shape) -> Moment<'_> {
        let disks = (self.images.iter().zip(shape.disks()))
            .map(|(image, (kind, _))| Disk::new(image.clone(), kind.sector_bytes()))
            .collect();
        Moment {
            recording: self,
            disks,
            point: 0,
            state: self.state.clone(),
            under_way: BTreeSet::new(),
            acknowledged: Vec::new(),
            holdings: Holdings::default(),
        }
    }

    /// The events by which a mark of the intent log on the data's disk was stable: each is of another checkpoint.
    pub(crate) fn marked(&self) -> Result<Vec<usize>> {
        let mut marked = Vec::new();
        let mut is_written = false;
        for (number, event) in self.events.iter().enumerate() {
            match *event {
                Event::Write { disk: 0, at, bytes, .. } => {
                    for block in (0..u64::from(bytes)).step_by(MARK_ALIGNMENT) {
                        let length = MARK_MAGIC.len() as u32;
                        is_written |= self.journal.data(at + block, length)? == MARK_MAGIC;
                    }
                }
                Event::Flush { disk: 0 } if is_written => {
                    marked.push(number);
                    is_written = false;
                }
                _ => {}
            }
        }
        Ok(marked)
    }

    /// Random points, in order: half of them anywhere, half right after an acknowledgement, where a
    /// promise is youngest.
    pub(crate) fn points(&self, count: usize, random: &mut Random) -> Vec<usize> {
        let after: Vec<usize> = (self.events.iter().enumerate())
            .filter(|(at, event)| {
                let is_promise = matches!(event, Event::Acknowledged(_) | Event::DeedAnswered(_));
                *at >= self.start && is_promise
            })
            .map(|(at, _)| at + 1)
            .collect();
        let range = (self.events.len() - self.start) as u64 + 1;
        let mut points: Vec<usize> = (0..count)
            .map(|number| {
                let anywhere = self.start + random.below(range) as usize;
                if number % 2 == 0 { anywhere } else { random.choose(&after).unwrap_or(anywhere) }
            })
            .collect();
        points.sort_unstable();
        points
    }
}

impl Moment<'_> {
    /// Lets events happen until there are `point` of them.
    pub(crate) fn advance(&mut self, point: usize) -> Result<()> {
        while self.point < point {
            let Some(event) = self.recording.events.get(self.point) else { break };
            self.point += 1;
            match *event {
                Event::Write { disk, offset, at, bytes } => {
                    let data = self.recording.journal.data(at, bytes)?;
                    if let Some(disk) = self.disks.get_mut(disk) {
                        disk.write(offset, data);
                    }
                }
                Event::Flush { disk } => {
                    if let Some(disk) = self.disks.get_mut(disk) {
                        disk.flush();
                    }
                }
                Event::DeedSent(deed) => self.holdings.sent(&self.recording.deeds, deed),
                Event::DeedAnswered(deed) => self.holdings.answered(&self.recording.deeds, deed),
                Event::Sent(number) => drop(self.under_way.insert(number)),
                Event::Acknowledged(number) => {
                    self.under_way.remove(&number);
                    self.acknowledged.push(number);
                    let operation = self.recording.operations.get(number as usize);
                    if let Some((operation, Outcome::Done(done))) =
                        operation.and_then(|known| Some((known, known.outcome.as_ref()?)))
                    {
                        self.state.apply(number, &operation.action, done);
                    }
                }
            }
        }
        Ok(())
    }

    /// What an operation is.
    pub(crate) fn action(&self, number: Number) -> Option<&Action> {
        self.recording.operations.get(number as usize).map(|operation| &operation.action)
    }

    /// What was done before, in the order of the acknowledgements, to what an operation changes.
    pub(crate) fn history(&self, number: Number) -> Vec<String> {
        let Some(action) = self.action(number) else { return Vec::new() };
        let (object, places) = (action.object(), action.places());
        let is_of_it = |number: &&Number| {
            self.action(**number).is_some_and(|other| {
                object.is_some() && (other.object() == object || object == Some(**number))
                    || other.places().iter().any(|place| places.contains(place))
            })
        };
        let told = |number: &Number| {
            self.action(*number).map(|action| format!("acknowledged: #{number} {action}"))
        };
        self.acknowledged.iter().filter(is_of_it).filter_map(told).collect()
    }

    /// Writes to files what the disks hold if the power fails now.
    pub(crate) fn crash(
        &self,
        survival: Survival,
        random: &mut Random,
        file: impl Fn(usize) -> PathBuf,
    ) -> Result<()> {
        for (number, image) in self.crashed(survival, random).iter().enumerate() {
            write_new(image, &file(number))?;
        }
        Ok(())
    }

    /// What the disks hold if the power fails now.
    pub(crate) fn crashed(&self, survival: Survival, random: &mut Random) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.crashed(survival, random)).collect()
    }

    /// How many writes of all disks are not stable.
    pub(crate) fn unflushed(&self) -> usize {
        self.disks.iter().map(Disk::unflushed).sum()
    }

    /// The last operations of each client whose replies have to be remembered.
    pub(crate) fn last_replayed(&self, of_each: usize) -> Vec<(Number, &Operation)> {
        let mut taken: Vec<(Number, &Operation)> = Vec::new();
        for number in self.acknowledged.iter().rev() {
            let Some(operation) = self.recording.operations.get(*number as usize) else { continue };
            let same = taken.iter().filter(|(_, known)| known.client == operation.client).count();
            let can_be_sent = operation.action.is_replayed() && !operation.call.is_empty();
            if can_be_sent && same < of_each {
                taken.push((*number, operation));
            }
        }
        taken
    }
}

/// Writes an image to a new file.
pub(crate) fn write_new(image: &Image, path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let file = File::create(path)?;
    image.write_to(&file).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
impl Recording {
    /// A run in which nothing was done.
    pub(crate) fn nothing(journal: Journal) -> Self {
        let root = FileHandle(vec![1]);
        Self {
            operations: vec![],
            deeds: Deeds::default(),
            surprises: vec![],
            start: 0,
            events: journal.events(),
            devices: vec![],
            state: State::new(root.clone()),
            root,
            journal: Arc::new(journal),
            images: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_when_it_is_stable() {
        let file = || tempfile::tempfile().expect("a file");
        let journal = Journal::new(vec![file(), file()], file());
        let mut second = vec![0; MARK_ALIGNMENT];
        second.extend_from_slice(MARK_MAGIC);
        let write = |disk, bytes: &[u8]| journal.write(disk, 8192, bytes).expect("recorded");
        let flush = |disk| journal.note(Event::Flush { disk });
        let mut expected = Vec::new();
        for (disk, bytes, is_mark) in [
            (0, MARK_MAGIC, true),
            (0, b"data that is no mark".as_slice(), false),
            (0, &second, true),
            (0, b"SfFs", false),
            (1, MARK_MAGIC, false),
            (0, &second[1..], false),
        ] {
            write(disk, bytes);
            flush(1);
            if is_mark {
                expected.push(journal.length());
            }
            flush(0);
        }
        write(0, MARK_MAGIC);
        assert_eq!(Recording::nothing(journal).marked().expect("read"), expected);
    }
}
