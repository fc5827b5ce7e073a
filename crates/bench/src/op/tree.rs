//! What the calls work on: made before, checked and removed after.

use std::time::Duration;

use steadfast_client::{
    CreateHow3, FileHandle, Nfs3Client, NfsStat3, Procedure, RpcConnection, Settings, StableHow,
    arguments, procedure,
};
use steadfast_xdr::Reader;

use super::worker::Tally;
use super::{BenchError, Load, Operation};
use crate::pattern;

/// How many files GETATTR, LOOKUP and ACCESS are spread over.
const SMALL_FILES: usize = 256;
/// How many files READ is spread over, and the least that each holds.
const READ_FILES: usize = 16;
const READ_FILE_BYTES: u64 = 4 << 20;
/// Calls in flight while preparing and cleaning up.
const WINDOW: usize = 64;
/// Files are filled before they are measured with contents of another file, this many further.
const OTHER_FILE: usize = 512;
/// How long one call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Objects looked at after the measurement.
const SAMPLES: usize = 64;

/// A file of the tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeFile {
    pub(crate) name: Vec<u8>,
    pub(crate) handle: FileHandle,
}

/// Directories and files for one load, under one directory of its own in the share.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: Option<FileHandle>,
    name: Vec<u8>,
    pub(crate) directory: Option<FileHandle>,
    pub(crate) files: Vec<TreeFile>,
    /// One a connection, for names that come and go.
    pub(crate) directories: Vec<TreeFile>,
    /// Bytes of each file.
    pub(crate) file_bytes: u64,
    /// Bytes of a file that one slot writes.
    pub(crate) region_bytes: u64,
    /// Names a slot has to remove.
    pub(crate) names_per_slot: u64,
}

/// The name that a slot makes or removes at its n-th turn: always as long.
pub(crate) fn turn_name(slot: usize, turn: u64) -> Vec<u8> {
    format!("n{slot:05}-{turn:09}").into_bytes()
}

fn broken(load: &Load, what: impl Into<String>) -> BenchError {
    BenchError::Broken { operation: load.operation.to_string(), what: what.into() }
}

/// Sends calls with [`WINDOW`] in flight and hands each result to `each`, in order.
fn pipeline(
    connection: &mut RpcConnection,
    load: &Load,
    calls: impl Iterator<Item = (Procedure, Vec<u8>)>,
    mut each: impl FnMut(&mut Reader<'_>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let failed = BenchError::client("preparing or removing the tree");
    let mut in_flight = std::collections::VecDeque::with_capacity(WINDOW);
    let mut calls = calls.fuse();
    let mut exchange = || -> Result<(), steadfast_client::ClientError> {
        loop {
            while in_flight.len() < WINDOW
                && let Some((procedure, arguments)) = calls.next()
            {
                in_flight.push_back(connection.send(procedure, &load.identity, &arguments)?);
            }
            let Some(xid) = in_flight.pop_front() else {
                return Ok(());
            };
            let reply = connection.receive(xid)?;
            let Some(results) = reply.results() else {
                return Err(steadfast_client::ClientError::Contradiction {
                    procedure: "RPC",
                    why: "the server did not execute the call",
                });
            };
            if let Err(error) = each(&mut Reader::new(results)) {
                return Err(std::io::Error::other(error.to_string()).into());
            }
        }
    };
    exchange().map_err(failed)
}

fn status_is(load: &Load, r: &mut Reader<'_>, accepted: &[u32]) -> Result<(), BenchError> {
    match r.u32() {
        Ok(status) if accepted.contains(&status) => Ok(()),
        Ok(status) => Err(broken(load, format!("status {status} while preparing"))),
        Err(error) => Err(broken(load, error.to_string())),
    }
}

impl Tree {
    /// Mounts the share and makes what the operation needs.
    pub(crate) fn prepare(load: &Load) -> Result<Self, BenchError> {
        let mut tree = Self::default();
        if load.operation == Operation::Null {
            return Ok(tree);
        }
        let (mut client, root) = Self::client(load)?;
        let preparing = || BenchError::client("preparing the tree");
        tree.name = format!("steadfast-bench-{}-{}", std::process::id(), unique()).into_bytes();
        let directory = client
            .mkdir(&root, &tree.name, &Settings::mode(0o755))
            .and_then(|made| match made.handle {
                Some(handle) => Ok(handle),
                None => client.lookup(&root, &tree.name).map(|found| found.handle),
            })
            .map_err(preparing())?;
        tree.root = Some(root);
        tree.directory = Some(directory.clone());
        let connection = client.transport();
        match load.operation {
            Operation::Null => {}
            Operation::Getattr | Operation::Lookup | Operation::Access => {
                tree.files = make(connection, load, &directory, "f", SMALL_FILES, false)?;
            }
            Operation::Read { size } => {
                tree.files = make(connection, load, &directory, "f", READ_FILES, false)?;
                tree.file_bytes = READ_FILE_BYTES.max(u64::from(size) * 4);
                tree.fill(connection, load, 0)?;
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                tree.files = make(connection, load, &directory, "f", load.connections, false)?;
                let size = u64::from(size);
                tree.region_bytes = ((size * 64).min(1 << 20).max(size * 4) / size) * size;
                tree.file_bytes = tree.region_bytes * load.depth as u64;
                tree.fill(connection, load, OTHER_FILE)?;
            }
            Operation::Create => {
                tree.directories = make(connection, load, &directory, "d", load.connections, true)?;
            }
            Operation::Remove => {
                tree.directories = make(connection, load, &directory, "d", load.connections, true)?;
                let slots = load.connections * load.depth;
                tree.names_per_slot = (load.names / slots).max(1) as u64;
                tree.make_names(connection, load)?;
            }
        }
        Ok(tree)
    }

    fn client(load: &Load) -> Result<(Nfs3Client, FileHandle), BenchError> {
        Nfs3Client::mount(
            load.server,
            load.mount_server,
            load.path.as_bytes(),
            load.identity.clone(),
            CALL_TIMEOUT,
        )
        .map_err(BenchError::client("mounting the share"))
    }

    /// Fills all files with the contents of the file `shift` further, and commits.
    fn fill(
        &self,
        connection: &mut RpcConnection,
        load: &Load,
        shift: usize,
    ) -> Result<(), BenchError> {
        let chunk = u64::from(load.operation.payload_bytes().clamp(64 << 10, 1 << 20));
        let calls = self.files.iter().enumerate().flat_map(|(index, file)| {
            let chunks = self.file_bytes.div_ceil(chunk);
            let writes = (0..chunks).map(move |part| {
                let offset = part * chunk;
                let bytes = chunk.min(self.file_bytes - offset) as usize;
                let data = pattern::slice(index + shift, offset, bytes);
                let unstable = StableHow::Unstable;
                (procedure::WRITE, arguments::write(&file.handle, offset, data, unstable))
            });
            writes.chain([(procedure::COMMIT, arguments::commit(&file.handle, 0, 0))])
        });
        pipeline(connection, load, calls, |r| status_is(load, r, &[0]))
    }

    fn make_names(&self, connection: &mut RpcConnection, load: &Load) -> Result<(), BenchError> {
        let calls = self.slots(load).flat_map(|(slot, directory)| {
            (0..self.names_per_slot)
                .map(move |turn| create(&directory.handle, &turn_name(slot, turn)))
        });
        pipeline(connection, load, calls, |r| status_is(load, r, &[0]))
    }

    /// All slots of a load with the directory that their names belong to.
    fn slots(&self, load: &Load) -> impl Iterator<Item = (usize, &TreeFile)> {
        let depth = load.depth;
        self.directories.iter().enumerate().flat_map(move |(index, directory)| {
            (index * depth..(index + 1) * depth).map(move |slot| (slot, directory))
        })
    }

    /// Looks at some of what the measured calls should have left; returns how much it looked at.
    pub(crate) fn check(&self, load: &Load, tally: &Tally) -> Result<u64, BenchError> {
        if !matches!(
            load.operation,
            Operation::Write { .. }
                | Operation::WriteCommit { .. }
                | Operation::Create
                | Operation::Remove
        ) {
            return Ok(0);
        }
        let (mut client, _) = Self::client(load)?;
        let checking = || BenchError::client("checking what the calls left");
        let size = load.operation.payload_bytes();
        let step = (load.connections * load.depth / SAMPLES).max(1);
        let mut checked = 0;
        for slot in (0..load.connections * load.depth).step_by(step) {
            let turns = tally.turns.get(slot).copied().unwrap_or(0);
            let Some(last) = turns.checked_sub(1) else { continue };
            let connection = slot / load.depth;
            if let (Some(file), true) = (self.files.get(connection), size > 0) {
                let offset = self.write_offset(slot % load.depth, last, size);
                let read = client.read(&file.handle, offset, size).map_err(checking())?;
                if !pattern::matches_sampled(connection, offset, &read.data) {
                    return Err(broken(load, "what was written is not what is read back"));
                }
            }
            if let Some(directory) = self.directories.get(connection) {
                let found = client.lookup(&directory.handle, &turn_name(slot, last));
                let found = match found {
                    Ok(_) => true,
                    Err(error) if error.status() == Some(NfsStat3::NoEnt) => false,
                    Err(error) => return Err(checking()(error)),
                };
                if found != (load.operation == Operation::Create) {
                    return Err(broken(load, "a created name is missing or a removed one there"));
                }
            }
            checked += 1;
        }
        Ok(checked)
    }

    /// Where a slot writes at its n-th turn.
    pub(crate) fn write_offset(&self, slot_of_file: usize, turn: u64, size: u32) -> u64 {
        let per_region = (self.region_bytes / u64::from(size.max(1))).max(1);
        slot_of_file as u64 * self.region_bytes + turn % per_region * u64::from(size)
    }

    /// Removes everything that was made.
    pub(crate) fn remove(&self, load: &Load, tally: &Tally) -> Result<(), BenchError> {
        let (Some(root), Some(directory)) = (&self.root, &self.directory) else {
            return Ok(());
        };
        let (mut client, _) = Self::client(load)?;
        let connection = client.transport();
        let remove = |directory: &FileHandle, name: &[u8]| {
            (procedure::REMOVE, arguments::place(directory, name))
        };
        let rmdir = |directory: &FileHandle, name: &[u8]| {
            (procedure::RMDIR, arguments::place(directory, name))
        };
        let names = self.slots(load).flat_map(|(slot, directory)| {
            let turns = tally.turns.get(slot).copied().unwrap_or(0);
            let left = if load.operation == Operation::Create {
                0..turns
            } else {
                turns..self.names_per_slot
            };
            left.map(move |turn| remove(&directory.handle, &turn_name(slot, turn)))
        });
        pipeline(connection, load, names, |r| status_is(load, r, &[0, 2]))?;
        let files = self.files.iter().map(|file| remove(directory, &file.name));
        let directories = self.directories.iter().map(|inner| rmdir(directory, &inner.name));
        pipeline(connection, load, files.chain(directories), |r| status_is(load, r, &[0]))?;
        let last = std::iter::once(rmdir(root, &self.name));
        pipeline(connection, load, last, |r| status_is(load, r, &[0]))
    }
}

fn create(directory: &FileHandle, name: &[u8]) -> (Procedure, Vec<u8>) {
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    (procedure::CREATE, arguments::create(directory, name, &how))
}

/// Makes files or directories with numbered names.
fn make(
    connection: &mut RpcConnection,
    load: &Load,
    directory: &FileHandle,
    prefix: &str,
    count: usize,
    directories: bool,
) -> Result<Vec<TreeFile>, BenchError> {
    let name = |index: usize| format!("{prefix}{index:05}").into_bytes();
    let calls = (0..count).map(|index| {
        if directories {
            let settings = Settings::mode(0o755);
            (procedure::MKDIR, arguments::mkdir(directory, &name(index), &settings))
        } else {
            create(directory, &name(index))
        }
    });
    let mut files = Vec::with_capacity(count);
    pipeline(connection, load, calls, |r| {
        status_is(load, r, &[0])?;
        match r.optional(|r| r.opaque(64)) {
            Ok(Some(handle)) => {
                let handle = FileHandle(handle.to_vec());
                files.push(TreeFile { name: name(files.len()), handle });
                Ok(())
            }
            Ok(None) => Err(broken(load, "a new object without a handle")),
            Err(error) => Err(broken(load, error.to_string())),
        }
    })?;
    Ok(files)
}

/// Tells trees of one process apart.
fn unique() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64)
}
