//! What a mount may have locked at its server, in a file beside it: whoever finds the mount's process dead frees it.
//!
//! The file is written before a lock is asked for, and not flushed, except for its beginning once: it outlives the
//! process, and of a host's crash only the beginning is sure. Whoever looks after the mount holds the file's lock
//! (flock(2)), so that a dead mount's file is known.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, MemfdFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steadfast_client::nlm::{self, Lock, NlmStat};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection, reserved};

/// The beginning of the file and each entry have so many bytes, and end with zeros.
const ENTRY_BYTES: usize = 1024;
/// Entries that are noted at most. Owners beyond that have locks, which nobody frees for a dead mount, unless its server
/// goes by its name.
const ENTRIES_MAX: usize = 65_536;
/// How long each call may take.
const STEP: Duration = Duration::from_secs(5);
/// After so many owners, one after the other, for whom the server did not answer, the others are left for later.
const FAILURES_MAX: u32 = 3;
/// A file whose server has not answered for so long is given up.
const OLD: Duration = Duration::from_secs(30 * 24 * 3600);
/// A name that the file has before it is locked, and one that it has then.
const SUFFIXES: (&str, &str) = ("new", "locks");

/// Whose locks they are, and at which server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Where NLM is.
    pub(crate) server: SocketAddr,
    pub(crate) from_reserved_port: bool,
    /// The mount's name.
    pub(crate) caller_name: String,
    /// The server goes by this name when it frees all locks of a client, and by nothing else.
    pub(crate) goes_by_name: bool,
}

/// An owner that may have locks of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    uid: u32,
    gid: u32,
    gids: Vec<u32>,
    /// The file's handle, in hexadecimal digits.
    handle: String,
    pub(crate) number: u32,
}

impl Entry {
    pub(crate) fn new(identity: &Identity, handle: &FileHandle, number: u32) -> Self {
        let (uid, gid, gids) = match identity {
            Identity::Sys { uid, gid, gids } => (*uid, *gid, gids.clone()),
            _ => (0, 0, Vec::new()),
        };
        let handle = steadfast_journal::manifest::hex(handle.as_bytes());
        Self { uid, gid, gids, handle, number }
    }

    fn handle(&self) -> Option<FileHandle> {
        let digits = self.handle.as_bytes().chunks(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        digits.map(byte).collect::<Option<Vec<u8>>>().map(FileHandle)
    }
}

/// The owner as the server knows it.
pub(crate) fn owner_name(number: u32, caller_name: &str) -> Vec<u8> {
    format!("{number}@{caller_name}").into_bytes()
}

/// The file.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    /// `None`: it is in memory alone.
    path: Option<PathBuf>,
    free: Vec<usize>,
    entries: usize,
}

impl Ledger {
    /// Makes a file in the user's directory, or in memory if that cannot be.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let made = directory().and_then(|directory| in_directory(&directory, name));
        let (file, path) = match made {
            Ok((file, path)) => (file, Some(path)),
            Err(error) => {
                tracing::info!(%error, "locks are noted in memory: after a crash of this host the server keeps them");
                (rustix::fs::memfd_create("locks", MemfdFlags::CLOEXEC)?.into(), None)
            }
        };
        Ok(Self { file, path, free: Vec::new(), entries: 0 })
    }

    /// The same open file, for whoever looks after the mount.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Notes where locks are asked for. So that it is known after a crash of the host, too, it has to be synced.
    pub(crate) fn begin(&self, header: &Header) -> io::Result<Unsynced> {
        put(&self.file, 0, header)?;
        let directory = self.path.as_ref().and_then(|path| path.parent());
        let directory = directory.map(Path::to_owned);
        Ok(Unsynced { file: self.file.try_clone()?, directory })
    }

    /// Notes an entry; its place, if there is one.
    pub(crate) fn note(&mut self, entry: &Entry) -> Option<usize> {
        let place = self.free.pop().or_else(|| {
            let next = self.entries;
            (next < ENTRIES_MAX).then(|| {
                self.entries += 1;
                next
            })
        })?;
        if let Err(error) = put(&self.file, place + 1, entry) {
            tracing::warn!(%error, "a lock is not noted: if this process is killed, the server keeps it");
        }
        Some(place)
    }

    /// Notes another entry at the place of an old one.
    pub(crate) fn note_again(&mut self, place: usize, entry: &Entry) {
        if let Err(error) = put(&self.file, place + 1, entry) {
            tracing::warn!(%error, "a lock is not noted: if this process is killed, the server keeps it");
        }
    }

    /// The entry has no locks any more.
    pub(crate) fn clear(&mut self, place: usize) {
        if let Err(error) = self.file.write_all_at(&[0; ENTRY_BYTES], at(place + 1)) {
            tracing::warn!(%error, "a lock that was freed stays noted");
        }
        self.free.push(place);
    }

    /// Nothing is locked any more.
    pub(crate) fn remove(&self) {
        // Whoever looks after the mount has it open, and is to find nothing.
        let _ = self.file.set_len(0);
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What is not on the disk yet.
#[derive(Debug)]
pub(crate) struct Unsynced {
    file: File,
    /// `None`: the file is in memory alone.
    directory: Option<PathBuf>,
}

impl Unsynced {
    /// Waits until it is.
    pub(crate) fn sync(self) -> io::Result<()> {
        let Some(directory) = self.directory else { return Ok(()) };
        self.file.sync_data()?;
        File::open(directory)?.sync_all()
    }
}

fn at(index: usize) -> u64 {
    (index as u64) * (ENTRY_BYTES as u64)
}

fn put(file: &File, index: usize, what: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(what)?;
    if bytes.len() >= ENTRY_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes.resize(ENTRY_BYTES, 0);
    file.write_all_at(&bytes, at(index))
}

fn read<T: DeserializeOwned>(file: &File, index: usize) -> io::Result<Option<T>> {
    let mut bytes = [0; ENTRY_BYTES];
    match file.read_exact_at(&mut bytes, at(index)) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(ENTRY_BYTES);
    Ok(bytes.get(..end).and_then(|text| serde_json::from_slice(text).ok()))
}

/// Where the files of this user's mounts are. They outlive the host's crashes.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return prepared(PathBuf::from("/var/lib/steadfast-mount"), user.as_raw());
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = state.filter(|path| path.is_absolute()).or_else(home);
    let state = state.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
    prepared(state.join("steadfast-mount"), user.as_raw())
}

/// Makes the directory, which nobody else may write to.
fn prepared(directory: PathBuf, user: u32) -> io::Result<PathBuf> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let metadata = std::fs::symlink_metadata(&directory)?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        let directory = directory.display();
        return Err(io::Error::other(format!("{directory} is not this user's alone")));
    }
    Ok(directory)
}

/// It gets its name when it is locked: one that is not is a dead mount's.
fn in_directory(directory: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let path = |suffix| directory.join(format!("{name}.{suffix}"));
    let (new, path) = (path(SUFFIXES.0), path(SUFFIXES.1));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&new)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    std::fs::rename(&new, &path)?;
    Ok((file, path))
}

/// Frees what dead mounts of this user have left at servers, as far as these answer.
pub(crate) fn free_abandoned() {
    let Ok(entries) = directory().and_then(std::fs::read_dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|suffix| suffix != SUFFIXES.1) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        match free(&file, true) {
            Ok(count) => {
                tracing::debug!(owners = count, "freed the locks of a mount that is dead");
                let _ = std::fs::remove_file(&path);
            }
            Err(_) if is_old(&file) => {
                let _ = std::fs::remove_file(&path);
            }
            Err(error) => {
                tracing::info!(%error, file = %path.display(), "the locks of a dead mount are not freed");
            }
        }
    }
}

fn is_old(file: &File) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified()).ok();
    modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age >= OLD)
}

/// Frees what a mount may have locked; how many owners there were. Its process is dead. If the host may have crashed,
/// entries may be missing.
///
/// # Errors
/// The first one, after all owners were tried, or after the server was not reached a few times.
pub(crate) fn free(file: &File, may_lack_entries: bool) -> Result<usize, ClientError> {
    let Some(header) = read::<Header>(file, 0)? else { return Ok(0) };
    let entries = file.metadata()?.len().div_ceil(ENTRY_BYTES as u64);
    let entries = (entries as usize).min(ENTRIES_MAX + 1);
    let mut connection = None;
    let (mut count, mut failures, mut first_error) = (0, 0, None);
    for index in 1..entries {
        let Some(entry) = read::<Entry>(file, index)? else { continue };
        let Some(handle) = entry.handle() else { continue };
        match free_owner(&mut connection, &header, &entry, &handle) {
            Ok(()) => {
                count += 1;
                failures = 0;
            }
            Err(error) => {
                if !matches!(error, ClientError::Accepted(_) | ClientError::Denied(_)) {
                    connection = None;
                    failures += 1;
                }
                let error = first_error.get_or_insert(error);
                tracing::debug!(%error, owner = entry.number, "an owner's locks are not freed");
                if failures >= FAILURES_MAX {
                    break;
                }
            }
        }
    }
    if header.goes_by_name && may_lack_entries && failures < FAILURES_MAX {
        let freed = connection.map_or_else(|| connect(&header), Ok).and_then(|mut connection| {
            nlm::free_all(&mut connection, &Identity::None, header.caller_name.as_bytes())
        });
        first_error = first_error.or(freed.err());
    }
    first_error.map_or(Ok(count), Err)
}

fn free_owner(
    connection: &mut Option<RpcConnection>,
    header: &Header,
    entry: &Entry,
    handle: &FileHandle,
) -> Result<(), ClientError> {
    let connection = match connection {
        Some(connection) => connection,
        none => none.insert(connect(header)?),
    };
    let identity = Identity::Sys { uid: entry.uid, gid: entry.gid, gids: entry.gids.clone() };
    let owner = owner_name(entry.number, &header.caller_name);
    let lock = Lock {
        caller_name: header.caller_name.as_bytes(),
        file: handle,
        owner: &owner,
        number: entry.number,
        offset: 0,
        length: 0,
    };
    match nlm::unlock(connection, &identity, &lock)? {
        NlmStat::DeniedGracePeriod => {
            Err(io::Error::other("the server is in its grace period").into())
        }
        _ => Ok(()),
    }
}

fn connect(header: &Header) -> Result<RpcConnection, ClientError> {
    let stream = if header.from_reserved_port {
        reserved::stream(header.server, STEP)?
    } else {
        std::net::TcpStream::connect_timeout(&header.server, STEP)?
    };
    RpcConnection::over(stream, STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_noted_until_they_are_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let (file, path) = in_directory(directory.path(), "name").unwrap();
        let mut ledger = Ledger { file, path: Some(path.clone()), free: Vec::new(), entries: 0 };
        let header = Header {
            server: "[::1]:2049".parse().unwrap(),
            from_reserved_port: true,
            caller_name: "host-1".to_owned(),
            goes_by_name: false,
        };
        ledger.begin(&header).unwrap().sync().unwrap();
        let identity = Identity::Sys { uid: u32::MAX, gid: 2, gids: vec![u32::MAX; 16] };
        let handle = FileHandle((0..64).collect());
        let entry = |number| Entry::new(&identity, &handle, number);
        assert_eq!(entry(1).handle(), Some(handle.clone()));
        assert_eq!([entry(1), entry(2)].map(|entry| ledger.note(&entry)), [Some(0), Some(1)]);
        ledger.clear(0);
        let other = OpenOptions::new().read(true).open(&path).unwrap();
        assert_eq!(read::<Header>(&other, 0).unwrap(), Some(header));
        assert_eq!(read::<Entry>(&other, 1).unwrap(), None);
        assert_eq!(read::<Entry>(&other, 2).unwrap(), Some(entry(2)));
        assert_eq!(ledger.note(&entry(3)), Some(0), "its place is used again");
        assert_eq!(read::<Entry>(&other, 1).unwrap(), Some(entry(3)));
        let lock = || rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert!(lock().is_err(), "the mount lives");
        ledger.remove();
        assert_eq!(other.metadata().unwrap().len(), 0);
        assert!(!path.exists());
        drop(ledger);
        assert!(lock().is_ok());
    }
}
