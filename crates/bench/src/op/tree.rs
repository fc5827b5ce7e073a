//! What the calls work on: one directory in the share with all that they need.

use steadfast_client::FileHandle;

use super::{Load, Operation};
use crate::drive::Control;
use crate::error::BenchError;
use crate::pattern;
use crate::preparing::{self, Making, Piece, Preparer, What};
use crate::setup;

/// How many files GETATTR, LOOKUP and the like are spread over.
pub(super) const SMALL_FILES: usize = 256;
/// How many files READ is spread over, and the least that each holds.
const READ_FILES: usize = 16;
const READ_FILE_BYTES: u64 = 4 << 20;
/// How many directories are listed, and the names of each.
const LISTED: usize = 16;
pub(super) const LISTED_NAMES: usize = 64;
/// Files are filled before they are written with contents of another file, this many further.
const OTHER_FILE: usize = 512;

/// A directory of this load's own in the share.
#[derive(Debug)]
pub(super) struct Place {
    share: FileHandle,
    name: Vec<u8>,
    directory: FileHandle,
}

/// Finds the share and makes a directory, if the operation needs one.
pub(super) fn begin(load: &Load) -> Result<Option<Place>, BenchError> {
    if load.operation == Operation::Null {
        return Ok(None);
    }
    let (mut client, share) = Preparer::mount(&load.target, load.nfs, &load.path)?;
    let limits = client.limits(&share, load.transport)?;
    let (most, what) = match load.operation {
        Operation::Read { .. } => (limits.read_max, "reads"),
        _ => (limits.write_max, "writes"),
    };
    // A server that tells 0 tells nothing.
    if most != 0 && load.operation.payload_bytes() > most {
        return Err(BenchError::Usage(format!("the server {what} at most {most} bytes a call")));
    }
    let name = setup::unique_name("steadfast-op");
    let directory = client.directory(&share, &name)?;
    client.end()?;
    Ok(Some(Place { share, name, directory }))
}

impl Place {
    /// Its name in the share.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Removes it, and all that is in it.
    pub(super) fn remove(&self, load: &Load) -> Result<(), BenchError> {
        let mut client = Preparer::connect(&load.target, load.nfs)?;
        client.remove_tree(&self.share, &self.name)?;
        client.end()
    }
}

/// What a load works on.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Where the objects are.
    pub(super) directory: Option<FileHandle>,
    /// Files, links or directories that calls are about.
    pub(super) objects: Vec<FileHandle>,
    /// One directory a connection, for names that come and go.
    pub(super) own: Vec<FileHandle>,
    /// Bytes of each file.
    pub(super) file_bytes: u64,
    /// Bytes of a file that one slot writes.
    region_bytes: u64,
    /// Names a slot has to remove.
    pub(super) names_per_slot: u64,
}

/// The name of an object.
pub(super) fn object_name(index: usize) -> Vec<u8> {
    format!("o{index:07}").into_bytes()
}

/// The name of a connection's own directory.
pub(super) fn own_name(connection: usize) -> Vec<u8> {
    format!("c{connection:07}").into_bytes()
}

/// Where a symbolic link points.
pub(super) fn link_target(index: usize) -> Vec<u8> {
    format!("../target-of-{index}").into_bytes()
}

/// Bytes of a [`turn_name`].
pub(super) const TURN_NAME_BYTES: usize = 18;

/// The name that a slot makes, removes or renames at its n-th turn: always as long, so that it
/// has a fixed place in calls that are built once.
pub(super) fn turn_name(slot: usize, turn: u64) -> [u8; TURN_NAME_BYTES] {
    let mut name = *b"n0000000-000000000";
    let mut put = |places: std::ops::Range<usize>, mut number: u64| {
        for digit in name.get_mut(places).into_iter().flatten().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(1..8, slot as u64);
    put(9..TURN_NAME_BYTES, turn);
    name
}

impl Tree {
    /// Makes what the operation needs.
    pub(super) fn make<'d>(
        load: &Load,
        place: &'d Place,
        control: &Control,
    ) -> Result<Self, BenchError> {
        let directory = &place.directory;
        let mut client = Preparer::connect(&load.target, load.nfs)?;
        let mut make = |count: usize, making: &dyn Fn(usize) -> Making<'d>| {
            let all: Vec<Making<'_>> = (0..count).map(making).collect();
            client.make(control, &all)
        };
        let object =
            |index: usize, what| Making { parent: directory, name: object_name(index), what };
        let file = |index: usize| object(index, What::File);
        let subdirectory = |index: usize| object(index, What::Directory);
        let own_directory = |index: usize| Making {
            parent: directory,
            name: own_name(index),
            what: What::Directory,
        };
        let mut tree = Self { directory: Some(directory.clone()), ..Self::default() };
        match load.operation {
            Operation::Null => {}
            Operation::Getattr
            | Operation::Setattr
            | Operation::Lookup
            | Operation::Access
            | Operation::Pathconf
            | Operation::Commit
            | Operation::OpenClose => tree.objects = make(SMALL_FILES, &file)?,
            Operation::Readlink => {
                tree.objects =
                    make(SMALL_FILES, &|index| object(index, What::Link(link_target(index))))?;
            }
            Operation::Read { size } => {
                tree.objects = make(READ_FILES, &file)?;
                tree.file_bytes = READ_FILE_BYTES.max(u64::from(size) * 4);
                tree.fill(load, control, 0)?;
            }
            Operation::Write { size, .. } | Operation::WriteCommit { size } => {
                tree.objects = make(load.connections, &file)?;
                let size = u64::from(size);
                tree.region_bytes = ((size * 64).min(1 << 20).max(size * 4) / size) * size;
                tree.file_bytes = tree.region_bytes * load.depth as u64;
                tree.fill(load, control, OTHER_FILE)?;
            }
            Operation::Create | Operation::Mkdir | Operation::Symlink | Operation::Mknod => {
                tree.own = make(load.connections, &own_directory)?;
            }
            Operation::Link => {
                tree.objects = make(SMALL_FILES, &file)?;
                tree.own = make(load.connections, &own_directory)?;
            }
            Operation::Remove | Operation::Rmdir | Operation::Rename => {
                tree.own = make(load.connections, &own_directory)?;
                tree.names_per_slot = match load.operation {
                    Operation::Rename => 1,
                    _ => (load.names / load.slots().max(1)).max(1) as u64,
                };
                tree.make_names(load, control)?;
            }
            Operation::Readdir { .. } | Operation::Readdirplus { .. } => {
                tree.objects = make(LISTED, &subdirectory)?;
                in_each(load, &tree.objects, |client, _, parent| {
                    let name = |name| Making { parent, name: object_name(name), what: What::File };
                    client.make(control, &(0..LISTED_NAMES).map(name).collect::<Vec<_>>()).map(drop)
                })?;
            }
            Operation::LockUnlock => tree.objects = make(load.connections, &file)?,
            Operation::Fsstat | Operation::Fsinfo => tree.objects = vec![directory.clone()],
        }
        client.end()?;
        Ok(tree)
    }

    /// Fills all files with the contents of the file `shift` further, and commits.
    fn fill(&self, load: &Load, control: &Control, shift: usize) -> Result<(), BenchError> {
        let chunk = u64::from(load.operation.payload_bytes().clamp(64 << 10, 1 << 20));
        in_each(load, &self.objects, |client, index, file| {
            let piece = |part: u64| -> Piece<'_> {
                let offset = part * chunk;
                let bytes = chunk.min(self.file_bytes - offset) as usize;
                (file, offset, pattern::slice(index + shift, offset, bytes))
            };
            let pieces: Vec<Piece<'_>> = (0..self.file_bytes.div_ceil(chunk)).map(piece).collect();
            client.fill(control, &pieces, &[file])
        })
    }

    /// Makes the names that are to be removed or renamed.
    fn make_names(&self, load: &Load, control: &Control) -> Result<(), BenchError> {
        in_each(load, &self.own, |client, index, parent| {
            let slots = index * load.depth..(index + 1) * load.depth;
            let making = |slot, turn| {
                let what = match load.operation {
                    Operation::Rmdir => What::Directory,
                    _ => What::File,
                };
                Making { parent, name: turn_name(slot, turn).to_vec(), what }
            };
            let names =
                slots.flat_map(|slot| (0..self.names_per_slot).map(move |turn| (slot, turn)));
            let all: Vec<Making<'_>> = names.map(|(slot, turn)| making(slot, turn)).collect();
            client.make(control, &all).map(drop)
        })
    }

    /// Where a slot writes at its n-th turn.
    pub(super) fn write_offset(&self, slot_of_file: usize, turn: u64, size: u32) -> u64 {
        let per_region = (self.region_bytes / u64::from(size.max(1))).max(1);
        slot_of_file as u64 * self.region_bytes + turn % per_region * u64::from(size)
    }
}

/// Does something for each of these objects, on several connections.
fn in_each(
    load: &Load,
    objects: &[FileHandle],
    work: impl Fn(&mut Preparer, usize, &FileHandle) -> Result<(), BenchError> + Sync,
) -> Result<(), BenchError> {
    preparing::in_parallel(&load.target, load.nfs, objects, |client, first, own| {
        for (index, object) in own.iter().enumerate() {
            work(client, first + index, object)?;
        }
        Ok(Vec::<()>::new())
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_turns_tell_slot_and_turn() {
        assert_eq!(&turn_name(0, 0), b"n0000000-000000000");
        assert_eq!(&turn_name(1_048_575, 123_456_789), b"n1048575-123456789");
    }

    #[test]
    fn slots_of_a_file_write_apart() {
        let tree = Tree { region_bytes: 64 * 4096, ..Tree::default() };
        assert_eq!(tree.write_offset(0, 63, 4096), 63 * 4096);
        assert_eq!(tree.write_offset(0, 64, 4096), 0);
        assert_eq!(tree.write_offset(1, 0, 4096), 64 * 4096);
    }
}
