//! The working set: directories of files and symbolic links that all clients share, and a
//! directory a client for names that come and go.

use std::ops::Range;

use steadfast_client::{FileHandle, Settings, StableHow, arguments, procedure};

use super::Nhfsstone;
use crate::drive::Control;
use crate::error::BenchError;
use crate::pattern;
use crate::setup::{self, Call, Target};

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
        let (mut client, root) = load.target.mount(path)?;
        let name = setup::unique_name("steadfast-nhfsstone");
        let top = setup::directory(&mut client, &root, &name)?;
        places.push(Place { root, name, top });
    }
    Ok(places)
}

/// Removes these directories, and all that is in them.
pub(crate) fn remove(load: &Nhfsstone, places: &[Place]) -> Result<(), BenchError> {
    let remove = |place: &Place| setup::remove_tree(&load.target, &place.root, &place.name);
    places.iter().map(remove).fold(Ok(()), Result::and)
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
        let mut client = target.connect()?;
        let mut make = |count: usize, prefix: &str| {
            let name = |number: usize| format!("{prefix}{number:06}").into_bytes();
            let calls: Vec<Call> = (0..count)
                .filter_map(|number| Some(setup::mkdir(tops(number)?, &name(number))))
                .collect();
            setup::make(&mut client, target, control, calls.into_iter())
        };
        let directories = make(directories_of(files), "d")?;
        let own = make(load.clients, "c")?;
        let numbered: Vec<(usize, &FileHandle)> = directories.iter().enumerate().collect();
        let made = setup::in_parallel(target, &numbered, |connection, _, own| {
            let mut made = Vec::with_capacity(own.len());
            for (number, directory) in own {
                made.push(fill(connection, target, load, control, (*number, directory), files)?);
            }
            Ok(made)
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

/// Makes a directory's files and links, and the files' contents.
fn fill(
    connection: &mut steadfast_client::RpcConnection,
    target: &Target,
    load: &Nhfsstone,
    control: &Control,
    (number, directory): (usize, &FileHandle),
    files: usize,
) -> Result<(Vec<FileHandle>, Vec<FileHandle>), BenchError> {
    let Range { start: first, end } = files_of(number, files);
    let creates = (first..end).map(|file| setup::create(directory, &file_name(file)));
    let first_link = number * LINKS_OF_DIRECTORY;
    let links = (first_link..first_link + LINKS_OF_DIRECTORY).map(|link| {
        let name = format!("l{}", link % LINKS_OF_DIRECTORY).into_bytes();
        let set = Settings::mode(0o777);
        let arguments = arguments::symlink(directory, &name, &link_target(link), &set);
        (procedure::SYMLINK, arguments)
    });
    let calls: Vec<Call> = creates.chain(links).collect();
    let mut made = setup::make(connection, target, control, calls.into_iter())?;
    let links = made.split_off(end - first);
    let writes = made.iter().enumerate().flat_map(|(index, handle)| {
        let file = first + index;
        let write = move |part: u64| {
            let offset = part * FILL_BYTES;
            let bytes = FILL_BYTES.min(load.file_bytes - offset) as usize;
            let data = pattern::slice(file, offset, bytes);
            (procedure::WRITE, arguments::write(handle, offset, data, StableHow::Unstable))
        };
        (0..load.file_bytes.div_ceil(FILL_BYTES)).map(write)
    });
    // What is not on disk yet would be written while something is measured.
    let commits = made.iter().map(|file| (procedure::COMMIT, arguments::commit(file, 0, 0)));
    let identity = &target.identity;
    setup::pipeline(connection, identity, control, writes.chain(commits), &[], |_, _| Ok(()))?;
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
}
