//! Records of a file system that was not there when they were to be replayed, kept in files of the
//! state directory until it is.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_intent_log::aside::{
    Aside, AsideHead, AsideReader, write_aside, write_end, write_head,
};
use steadfast_intent_log::{End, Extent, FileSystemEntry, Identity, Lsn, Medium, Reader, Record};
use steadfast_recovery::Recoverable;
use steadfast_recovery::Report;
use steadfast_sys::durable_file;

use super::hex;
use super::listing::is_operation;
use super::observed::ObservedFile;
use super::records::{Records, ReplayError, TakeRecord};
use super::replay::replay;
use super::told::tell;

const READ_BYTES: usize = 1 << 20;
const SUFFIX: &str = "aside";

fn prefix(identity: &Identity) -> String {
    format!("intent-log-{}-", hex(&identity.uuid))
}

/// A file of set-aside records. Its name tells when it was written, and of which records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AsidePath {
    written_ns: u128,
    pub(super) epoch: u64,
    pub(super) last: Lsn,
    pub(super) log: String,
    /// The last record that the whole log had then. Unknown of files that older versions wrote.
    pub(super) log_end: Option<Lsn>,
    pub(super) path: PathBuf,
}

impl AsidePath {
    fn name(identity: &Identity, log: &[u8; 16], epoch: u64, last: Lsn, log_end: Lsn) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let (last, log_end) = (last.0, log_end.0);
        format!("{}{now}-{epoch}-{last}-{}-{log_end}.{SUFFIX}", prefix(identity), hex(log))
    }

    pub(super) fn parse(path: PathBuf, prefix: &str) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.strip_suffix('.')?;
        let mut parts = rest.split('-');
        let written_ns = parts.next()?.parse().ok()?;
        let epoch = parts.next()?.parse().ok()?;
        let last = Lsn(parts.next()?.parse().ok()?);
        let log = parts.next()?.to_owned();
        let log_end = parts.next().and_then(|end| end.parse().ok()).map(Lsn);
        Some(Self { written_ns, epoch, last, log, log_end, path })
    }

    /// Whether the records are of this log.
    pub(super) fn is_of(&self, log: &[u8; 16], epoch: u64) -> bool {
        self.log == hex(log) && self.epoch == epoch
    }
}

/// A file of records that wait for their file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// In the state directory.
    pub file: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// Where the file system was served when they were set aside; `None` if that cannot be read.
    pub path: Option<String>,
}

/// Writes the live records of a file system to a file of their own, and tells the last; `None` if there
/// are none. On return they are on disk. `expected`: how many there must be, if that is known.
pub(super) fn set_aside(
    directory: &Path,
    medium: &dyn Medium,
    extent: &Extent,
    (log, epoch): (&[u8; 16], u64),
    entry: &FileSystemEntry,
    expected: Option<u64>,
) -> io::Result<Option<(PathBuf, Lsn)>> {
    let head = AsideHead {
        uuid: *log,
        epoch,
        identity: entry.identity,
        file_system: entry.index,
        path: entry.path.clone(),
    };
    let temporary = directory.join(format!("{}new", prefix(&entry.identity)));
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = io::BufWriter::with_capacity(READ_BYTES, options.open(&temporary)?);
    let mut bytes = Vec::new();
    write_head(&mut bytes, &head);
    let (mut records, mut last, mut log_end) = (0, Lsn(0), extent.stable());
    let mut reader = Reader::new(medium, extent.clone());
    for record in &mut reader {
        log_end = log_end.max(record.lsn);
        if record.file_system == entry.index && record.is_live {
            write_aside(&mut bytes, &head, &record);
            (records, last) = (records + 1, record.lsn);
            file.write_all(&bytes)?;
            bytes.clear();
        }
    }
    let is_whole = match expected {
        Some(expected) => expected == records,
        None => matches!(reader.end(), Some(End::Clean)),
    };
    if !is_whole {
        return Err(io::Error::other("the intent log cannot be read to its end"));
    }
    if records == 0 {
        std::fs::remove_file(&temporary)?;
        return Ok(None);
    }
    write_end(&mut bytes, &head, records, last);
    file.write_all(&bytes)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let path = directory.join(AsidePath::name(&entry.identity, log, epoch, last, log_end));
    std::fs::rename(&temporary, &path)?;
    durable_file::sync_directory_of(&path)?;
    Ok(Some((path, last)))
}

/// The files of a file system, the oldest first.
pub(super) fn files_of(directory: &Path, identity: &Identity) -> io::Result<Vec<AsidePath>> {
    let prefix = prefix(identity);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        found.extend(AsidePath::parse(entry?.path(), &prefix));
    }
    sort(&mut found);
    Ok(found)
}

/// The order in which the operations were done. Within one log its numbers tell; when a log was
/// followed by another, clocks have to.
fn sort(files: &mut [AsidePath]) {
    let mut begun: HashMap<String, u128> = HashMap::new();
    for file in &*files {
        let first = begun.entry(file.log.clone()).or_insert(file.written_ns);
        *first = file.written_ns.min(*first);
    }
    files.sort_by_key(|file| {
        (begun.get(&file.log).copied(), file.log.clone(), file.epoch, file.last)
    });
}

/// Whether there is a file of any file system.
pub(super) fn is_any(directory: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        if entry?.path().extension().is_some_and(|extension| extension == SUFFIX) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All files of all file systems.
pub(super) fn all(directory: &Path) -> io::Result<Vec<SetAside>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.path();
        if file.extension().is_some_and(|extension| extension == SUFFIX) {
            let path = AsideFile(&file).head().ok();
            let path = path.map(|head| String::from_utf8_lossy(&head.path).into_owned());
            found.push(SetAside { bytes: entry.metadata()?.len(), path, file });
        }
    }
    found.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(found)
}

/// The head of a file, and how many operations are in it.
pub(super) fn look(path: &Path) -> Result<(AsideHead, u64), ReplayError> {
    let file = AsideFile(path);
    let mut operations = 0;
    file.each(&mut |_, payload| {
        operations += u64::from(is_operation(payload));
        Ok(())
    })?;
    Ok((file.head()?, operations))
}

/// Removes all files of a file system.
pub(super) fn remove_all(directory: &Path, identity: &Identity) -> io::Result<()> {
    for file in files_of(directory, identity)? {
        std::fs::remove_file(&file.path)?;
    }
    File::open(directory)?.sync_all()
}

/// Makes all files of a file system another's, which is the same under another identity.
pub(super) fn rename(
    directory: &Path,
    identity: &Identity,
    renamed: &FileSystemEntry,
) -> Result<(), ReplayError> {
    for of in files_of(directory, identity)? {
        let file = AsideFile(&of.path);
        let old = file.head()?;
        let head = AsideHead { identity: renamed.identity, path: renamed.path.clone(), ..old };
        let temporary = directory.join(format!("{}new", prefix(&renamed.identity)));
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut into = io::BufWriter::with_capacity(READ_BYTES, options.open(&temporary)?);
        let mut bytes = Vec::new();
        write_head(&mut bytes, &head);
        let records = file.each(&mut |lsn, payload| {
            let payload = payload.to_vec();
            let file_system = head.file_system;
            let record = Record { lsn: Lsn(lsn), file_system, is_live: true, payload };
            write_aside(&mut bytes, &head, &record);
            into.write_all(&bytes)?;
            bytes.clear();
            Ok(())
        })?;
        write_end(&mut bytes, &head, records, of.last);
        into.write_all(&bytes)?;
        into.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        let name = of.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(&prefix(identity)).unwrap_or(name);
        std::fs::rename(&temporary, directory.join(prefix(&renamed.identity) + rest))?;
        std::fs::remove_file(&of.path)?;
        durable_file::sync_directory_of(&of.path)?;
    }
    Ok(())
}

/// Records in a file.
struct AsideFile<'a>(&'a Path);

impl AsideFile<'_> {
    fn head(&self) -> Result<AsideHead, ReplayError> {
        let mut reader = AsideReader::default();
        let mut file = File::open(self.0)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = file.read(&mut buffer)?;
            reader.push(buffer.get(..count).unwrap_or(&[]));
            match reader.next().map_err(|error| self.damaged(&error))? {
                Some(Aside::Head(head)) => return Ok(head),
                None if count == 0 => return Err(self.damaged(&"it ends in its head")),
                _ => {}
            }
        }
    }

    fn damaged(&self, why: &dyn std::fmt::Display) -> ReplayError {
        ReplayError::Log(format!("{}: {why}", self.0.display()))
    }
}

impl Records for AsideFile<'_> {
    fn each(&self, take: &mut TakeRecord<'_>) -> Result<u64, ReplayError> {
        let mut reader = AsideReader::default();
        let mut file = File::open(self.0)?;
        let mut buffer = vec![0; READ_BYTES];
        let mut records = 0;
        loop {
            while let Some(next) = reader.next().map_err(|error| self.damaged(&error))? {
                if let Aside::Record(record) = next
                    && record.is_live
                {
                    take(record.lsn.0, &record.payload)?;
                    records += 1;
                }
            }
            let count = file.read(&mut buffer)?;
            if count == 0 {
                reader.finish().map_err(|error| self.damaged(&error))?;
                return Ok(records);
            }
            reader.push(buffer.get(..count).unwrap_or(&[]));
        }
    }
}

/// Replays a file, and removes it.
fn replay_file(
    of: &AsidePath,
    directory: &Path,
    storage: &mut dyn Recoverable,
) -> Result<Report, ReplayError> {
    let file = AsideFile(&of.path);
    let head = file.head()?;
    let (log, epoch) = (&head.uuid, head.epoch);
    let observed = ObservedFile::of_aside(directory, log, epoch, head.file_system, of.last);
    // Its disk may have failed, and lost what was in effect.
    let report = replay(&file, None, &observed, false, storage)?;
    std::fs::remove_file(&of.path)?;
    durable_file::sync_directory_of(&of.path)?;
    observed.remove()?;
    Ok(report)
}

/// Replays what was set aside of a file system.
pub(super) fn replay_all(
    state_directory: &Path,
    entry: &FileSystemEntry,
    storage: &mut dyn Recoverable,
) -> Result<(), ReplayError> {
    for file in files_of(state_directory, &entry.identity)? {
        let begun = std::time::Instant::now();
        let report = replay_file(&file, state_directory, storage)?;
        tell(entry, &report, storage, begun.elapsed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use steadfast_intent_log::testing::MemoryMedium;
    use steadfast_intent_log::{Batch, IntentLog, format, survey};

    use super::*;

    #[test]
    fn what_is_set_aside_tells_where_the_whole_log_ended_and_nothing_is_no_file() {
        let place = tempfile::tempdir().expect("a directory");
        let medium = MemoryMedium::new((128 << 10) + 8 * 4096);
        let made = format(&medium, [2; 16], [1; 16], 3).expect("made");
        let found = survey(&medium, &made);
        let log = IntentLog::resume(&made, &found, [1; 16], 4).expect("resumed");
        let entry = |index: u32, uuid| {
            let identity = Identity { uuid: [uuid; 16], kind: 6 };
            let path = b"/srv".to_vec();
            FileSystemEntry { index, identity, path, tail: Lsn(0), mark: None }
        };
        let indices = [7, 8, 9]
            .map(|uuid| log.register(entry(0, uuid).identity, b"/srv").expect("registered"));
        log.write_superblocks(&medium, false).expect("written");
        let mut batch = Batch::default();
        for of in [indices[0], indices[1], indices[1]] {
            let lsn = log.reserve(log.admit(10).expect("admitted"), of);
            log.complete(lsn, vec![7; 10]);
        }
        log.take_batch(&mut batch);
        batch.write_to(&medium).expect("written");
        let end = log.written(&batch);
        let aside = |number: usize, uuid| {
            let entry = entry(indices[number], uuid);
            set_aside(place.path(), &medium, &log.extent(), (&[2; 16], 1), &entry, None)
                .expect("written")
        };
        assert!(aside(2, 9).is_none());
        let (_, last) = aside(0, 7).expect("one record");
        let files = files_of(place.path(), &entry(0, 7).identity).expect("read");
        assert_eq!((files.len(), files[0].last, files[0].log_end), (1, last, Some(end)));
        assert!(last < end);
        assert_eq!(std::fs::read_dir(place.path()).expect("read").count(), 1);
    }

    #[test]
    fn files_of_one_log_come_in_the_order_of_its_operations_whatever_the_clock_said() {
        let file = |written_ns, epoch, last, log: &str| AsidePath {
            written_ns,
            epoch,
            last: Lsn(last),
            log: log.to_owned(),
            log_end: None,
            path: PathBuf::new(),
        };
        // The clock was set back between the first two.
        let mut files = [
            file(900, 4, 10, "b"),
            file(500, 5, 30, "b"),
            file(950, 5, 20, "b"),
            file(100, 9, 7, "a"),
        ];
        sort(&mut files);
        let order: Vec<_> = files.iter().map(|file| (file.epoch, file.last.0)).collect();
        assert_eq!(order, [(9, 7), (4, 10), (5, 20), (5, 30)]);
    }
}
