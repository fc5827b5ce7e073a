//! Records of a file system that was not there when they were to be replayed, kept in files of the
//! state directory until it is.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_engine::recovery::Report;
use steadfast_intent_log::aside::{
    Aside, AsideHead, AsideReader, write_aside, write_end, write_head,
};
use steadfast_intent_log::{End, Extent, FileSystemEntry, Identity, Lsn, Medium, Reader};
use steadfast_sys::durable_file;
use steadfast_vfs::Recoverable;

use super::hex;
use super::observed::ObservedFile;
use super::replay::{Records, ReplayError, TakeRecord, replay};
use super::status::SetAside;

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
    pub(super) path: PathBuf,
}

impl AsidePath {
    fn name(identity: &Identity, log: &[u8; 16], epoch: u64, last: Lsn) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("{}{now}-{epoch}-{}-{}.{SUFFIX}", prefix(identity), last.0, hex(log))
    }

    fn parse(path: PathBuf, prefix: &str) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(prefix)?.strip_suffix(SUFFIX)?.strip_suffix('.')?;
        let mut parts = rest.split('-');
        let written_ns = parts.next()?.parse().ok()?;
        let epoch = parts.next()?.parse().ok()?;
        let last = Lsn(parts.next()?.parse().ok()?);
        let log = parts.next()?.to_owned();
        Some(Self { written_ns, epoch, last, log, path })
    }

    /// Whether the records are of this log.
    pub(super) fn is_of(&self, log: &[u8; 16], epoch: u64) -> bool {
        self.log == hex(log) && self.epoch == epoch
    }
}

/// Writes the live records of a file system to a file of their own, and tells the last. On return
/// they are on disk. `expected`: how many there must be, if that is known.
pub(super) fn set_aside(
    directory: &Path,
    medium: &dyn Medium,
    extent: &Extent,
    (log, epoch): (&[u8; 16], u64),
    entry: &FileSystemEntry,
    expected: Option<u64>,
) -> io::Result<(PathBuf, Lsn)> {
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
    let (mut records, mut last) = (0, Lsn(0));
    let mut reader = Reader::new(medium, extent.clone());
    for record in &mut reader {
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
    write_end(&mut bytes, &head, records, last);
    file.write_all(&bytes)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let path = directory.join(AsidePath::name(&entry.identity, log, epoch, last));
    std::fs::rename(&temporary, &path)?;
    durable_file::sync_directory_of(&path)?;
    Ok((path, last))
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
pub(super) fn replay_file(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_log_come_in_the_order_of_its_operations_whatever_the_clock_said() {
        let file = |written_ns, epoch, last, log: &str| AsidePath {
            written_ns,
            epoch,
            last: Lsn(last),
            log: log.to_owned(),
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
