//! The working set: directories of files and symbolic links that all clients share, and a
//! directory a client for names that come and go.

use std::ops::Range;

use steadfast_client::nfs4::{Nfs4Client, Opening4};
use steadfast_client::{FileHandle, RpcConnection};
use steadfast_wire::nfs4::Op4;

use super::Nhfsstone;
use crate::drive::Control;
use crate::error::BenchError;
use crate::nfs4::pipeline::pipelined;
use crate::nfs4::sessions::Open;
use crate::pattern;
use crate::preparing::{self, Making, Piece, Preparer, What};
use crate::setup;

/// The smallest working set.
pub(crate) const FILES_MIN: usize = 256;
/// Files of a directory.
const FILES_OF_DIRECTORY: usize = 64;
/// Symbolic links of a directory.
const LINKS_OF_DIRECTORY: usize = 8;
/// Bytes of a WRITE that fills files.
const FILL_BYTES: u64 = 32 << 10;

/// A directory of its own in a share.
pub(crate) struct Place {
    root: FileHandle,
    name: Vec<u8>,
    top: FileHandle,
}

/// Makes a directory in each share.
pub(crate) fn begin(load: &Nhfsstone) -> Result<Vec<Place>, BenchError> {
    let mut places = Vec::new();
    for path in &load.paths {
        let (mut client, root) = Preparer::mount(&load.target, load.nfs, path)?;
        let name = setup::unique_name("steadfast-nhfsstone");
        let top = client.directory(&root, &name)?;
        client.end()?;
        places.push(Place { root, name, top });
    }
    Ok(places)
}

/// Removes these directories, and all that is in them.
pub(crate) fn remove(load: &Nhfsstone, places: &[Place]) -> Result<(), BenchError> {
    let mut client = Preparer::connect(&load.target, load.nfs)?;
    let remove = |place: &Place| client.remove_tree(&place.root, &place.name);
    places.iter().map(remove).fold(Ok(()), Result::and)?;
    client.end()
}

/// A directory of files and links.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) handle: FileHandle,
    /// How many names it has.
    pub(crate) entries: usize,
}

/// What the calls work on. Directory `n` is in share `n % shares`, file `n` in directory
/// `n / 64`, link `n` in directory `n / 8`, so that a smaller set is the beginning of a larger.
#[derive(Debug, Default)]
pub(crate) struct WorkingSet {
    pub(crate) shares: usize,
    /// The shares' roots.
    pub(crate) roots: Vec<FileHandle>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) files: Vec<FileHandle>,
    pub(crate) links: Vec<FileHandle>,
    /// One a client.
    pub(crate) own: Vec<FileHandle>,
}

/// A file's name in its directory.
pub(crate) fn file_name(file: usize) -> Vec<u8> {
    format!("f{:02}", file % FILES_OF_DIRECTORY).into_bytes()
}

/// The directory of a file.
pub(crate) fn directory_of(file: usize) -> usize {
    file / FILES_OF_DIRECTORY
}

/// The files of a directory, of a set of so many.
pub(crate) fn files_of(directory: usize, files: usize) -> Range<usize> {
    let first = directory * FILES_OF_DIRECTORY;
    first.min(files)..(first + FILES_OF_DIRECTORY).min(files)
}

/// How many directories so many files take.
pub(crate) fn directories_of(files: usize) -> usize {
    files.div_ceil(FILES_OF_DIRECTORY)
}

/// Most files that a client of NFSv4 keeps open.
const OPENS_MAX: usize = 4096;
/// The least, if there are as many.
const OPENS_MIN: usize = 64;

/// How many files a client of NFSv4 keeps open, of a set of so many: if that is not too much, all clients together have each
/// file open twice, so that they meet.
pub(crate) fn kept_of(clients: usize, files: usize) -> usize {
    let share = (2 * files).div_ceil(clients.max(1));
    share.clamp(OPENS_MIN, OPENS_MAX).min(files)
}

/// The n-th file that a client keeps open: clients begin in different places of the set.
pub(crate) fn kept_file(client: usize, clients: usize, files: usize, index: usize) -> usize {
    (client * files / clients.max(1) + index) % files.max(1)
}

/// How many links there are beside so many files.
pub(crate) fn links_of(files: usize) -> usize {
    directories_of(files) * LINKS_OF_DIRECTORY
}

/// Where a link points.
pub(crate) fn link_target(link: usize) -> Vec<u8> {
    format!("../target-of-link-{link}").into_bytes()
}

impl WorkingSet {
    /// Makes a set of so many files.
    pub(crate) fn make(
        load: &Nhfsstone,
        places: &[Place],
        files: usize,
        control: &Control,
    ) -> Result<Self, BenchError> {
        control.show(&format!("nhfsstone: making {files} files"));
        let target = &load.target;
        // Every share has a directory at least.
        let files = files.max(places.len() * FILES_OF_DIRECTORY);
        let tops = |number: usize| places.get(number % places.len().max(1)).map(|place| &place.top);
        let mut client = Preparer::connect(target, load.nfs)?;
        let mut make = |count: usize, prefix: &str| {
            let directory = |number: usize| {
                let (parent, what) = (tops(number)?, What::Directory);
                Some(Making { parent, name: format!("{prefix}{number:06}").into_bytes(), what })
            };
            let all: Vec<Making<'_>> = (0..count).filter_map(directory).collect();
            client.make(control, &all)
        };
        let directories = make(directories_of(files), "d")?;
        let own = make(load.clients, "c")?;
        client.end()?;
        let numbered: Vec<(usize, &FileHandle)> = directories.iter().enumerate().collect();
        let made = preparing::in_parallel(target, load.nfs, &numbered, |client, _, own| {
            let fill = |(number, directory): &(usize, &FileHandle)| {
                fill(client, load, control, (*number, directory), files)
            };
            own.iter().map(fill).collect()
        })?;
        let mut set = Self {
            shares: places.len(),
            roots: places.iter().map(|place| place.root.clone()).collect(),
            own,
            ..Self::default()
        };
        for (handle, (files, links)) in directories.into_iter().zip(made) {
            let entries = files.len() + links.len();
            set.directories.push(Directory { handle, entries });
            set.files.extend(files);
            set.links.extend(links);
        }
        Ok(set)
    }
}

impl WorkingSet {
    /// Opens so many files, for a client of NFSv4.
    pub(crate) fn open(
        &self,
        client: &mut Nfs4Client<RpcConnection>,
        count: usize,
        file: impl Fn(usize) -> usize,
    ) -> Result<Vec<Open>, BenchError> {
        let control = Control::default();
        let opened = pipelined(
            client,
            &control,
            count,
            |index, compound| {
                let file = file(index);
                let Some(directory) = self.directories.get(directory_of(file)) else {
                    return compound;
                };
                let name = file_name(file);
                let opening = Opening4::existing(&name).arguments();
                compound.put(&directory.handle).op(Op4::Open, &opening).handle()
            },
            |_, reply| {
                reply.done(Op4::PutFh)?;
                let stateid = reply.open()?.stateid;
                Ok((reply.handle()?, stateid))
            },
        )?;
        for (index, (handle, _)) in opened.iter().enumerate() {
            if self.files.get(file(index)) != Some(handle) {
                return Err(BenchError::broken("open", "another handle than when it was made"));
            }
        }
        Ok(opened)
    }
}

/// Makes a directory's files and links, and the files' contents.
fn fill(
    client: &mut Preparer,
    load: &Nhfsstone,
    control: &Control,
    (number, parent): (usize, &FileHandle),
    files: usize,
) -> Result<(Vec<FileHandle>, Vec<FileHandle>), BenchError> {
    let Range { start: first, end } = files_of(number, files);
    let file = |file| Making { parent, name: file_name(file), what: What::File };
    let first_link = number * LINKS_OF_DIRECTORY;
    let link = |link| {
        let name = format!("l{}", link % LINKS_OF_DIRECTORY).into_bytes();
        Making { parent, name, what: What::Link(link_target(link)) }
    };
    let links = (first_link..first_link + LINKS_OF_DIRECTORY).map(link);
    let all: Vec<Making<'_>> = (first..end).map(file).chain(links).collect();
    let mut made = client.make(control, &all)?;
    let links = made.split_off(end - first);
    let pieces: Vec<Piece<'_>> = made
        .iter()
        .enumerate()
        .flat_map(|(index, handle)| {
            (0..load.file_bytes.div_ceil(FILL_BYTES)).map(move |part| {
                let offset = part * FILL_BYTES;
                let bytes = FILL_BYTES.min(load.file_bytes - offset) as usize;
                (handle, offset, pattern::slice(first + index, offset, bytes))
            })
        })
        .collect();
    let handles: Vec<&FileHandle> = made.iter().collect();
    client.fill(control, &pieces, &handles)?;
    Ok((made, links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_set_is_the_beginning_of_a_larger() {
        for files in [1, 63, 64, 65, 1000] {
            assert!(directory_of(files - 1) < directories_of(files));
            assert_eq!(directories_of(files), directory_of(files - 1) + 1);
        }
        assert_eq!((files_of(1, 70), files_of(2, 70)), (64..70, 70..70));
        assert_eq!(links_of(65), 16);
        assert_eq!(file_name(64 + 3), file_name(3));
    }

    #[test]
    fn clients_keep_each_file_open_twice_where_that_is_not_too_much() {
        for (clients, files) in [(16, 10_000), (3, 1000), (7, 257)] {
            let kept = kept_of(clients, files);
            let mut opens = vec![0; files];
            for client in 0..clients {
                let own: std::collections::HashSet<usize> =
                    (0..kept).map(|index| kept_file(client, clients, files, index)).collect();
                assert_eq!(own.len(), kept);
                for file in own {
                    opens[file] += 1;
                }
            }
            assert!(opens.iter().all(|count| *count >= 2), "{clients} {files}");
        }
        assert_eq!((kept_of(1, 1_000_000), kept_of(1000, 1000), kept_of(1, 5)), (4096, 64, 5));
    }
}
