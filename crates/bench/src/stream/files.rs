//! The files that are read or written, and what they hold.

use steadfast_client::nfs4::{ACCESS_BOTH, ACCESS_READ, Nfs4Client, Opening4, WANT_NO_DELEGATION};
use steadfast_client::{FileHandle, RpcConnection};

use super::{Direction, Stream};
use crate::drive::Control;
use crate::error::BenchError;
use crate::nfs4::sessions::Open;
use crate::pattern;
use crate::place4::patiently;
use crate::preparing::{self, Making, Piece, Preparer, What};
use crate::setup;

/// Most bytes of a WRITE that fills a file.
const FILL_BYTES_MAX: u32 = 1 << 20;

/// A directory of its own in the share.
pub(super) struct Place {
    share: FileHandle,
    name: Vec<u8>,
    directory: FileHandle,
    /// Most bytes of a WRITE over TCP.
    write_bytes_max: u32,
}

/// Finds the share, asks for its limits, and makes a directory.
pub(super) fn begin(stream: &Stream) -> Result<Place, BenchError> {
    let (mut client, share) = Preparer::mount(&stream.target, stream.nfs, &stream.path)?;
    let limits = client.limits(&share, stream.transport)?;
    let (most, what) = match stream.direction {
        Direction::Read => (limits.read_max, "reads"),
        Direction::Write => (limits.write_max, "writes"),
    };
    // A server that tells 0 tells nothing.
    if most != 0 && stream.transfer_bytes > most {
        return Err(BenchError::Usage(format!("the server {what} at most {most} bytes a call")));
    }
    let write_bytes_max = match limits.write_max {
        0 => FILL_BYTES_MAX,
        most => most.min(FILL_BYTES_MAX),
    };
    let name = setup::unique_name("steadfast-stream");
    let directory = client.directory(&share, &name)?;
    client.end()?;
    Ok(Place { share, name, directory, write_bytes_max })
}

impl Place {
    /// Removes it, and all that is in it.
    pub(super) fn remove(&self, stream: &Stream) -> Result<(), BenchError> {
        let mut client = Preparer::connect(&stream.target, stream.nfs)?;
        client.remove_tree(&self.share, &self.name)?;
        client.end()
    }
}

/// What a chunk holds after it was written so many times: a number of the pattern's. Neighbours,
/// other files and other passes differ, so that a chunk in the wrong place or of an earlier pass
/// is noticed.
pub(super) fn content(file: usize, chunk: usize, pass: u32) -> usize {
    let number = file.wrapping_mul(7919).wrapping_add(chunk);
    number.wrapping_add((pass as usize).wrapping_mul(104_729)) % pattern::FILES
}

/// The data of a chunk.
pub(super) fn data(content: usize, bytes: u32) -> &'static [u8] {
    pattern::slice(content, 0, bytes as usize)
}

/// The name of a file.
fn name(file: usize) -> Vec<u8> {
    format!("f{file:05}").into_bytes()
}

/// Handles of the files.
#[derive(Debug)]
pub(super) struct Files {
    directory: FileHandle,
    pub(super) handles: Vec<FileHandle>,
}

impl Files {
    /// Makes them, and fills those that are to be read.
    pub(super) fn make(
        stream: &Stream,
        place: &Place,
        control: &Control,
    ) -> Result<Self, BenchError> {
        let mut client = Preparer::connect(&stream.target, stream.nfs)?;
        let parent = &place.directory;
        let making = |file| Making { parent, name: name(file), what: What::File };
        let all: Vec<Making<'_>> = (0..stream.files()).map(making).collect();
        let handles = client.make(control, &all)?;
        client.end()?;
        let files = Self { directory: parent.clone(), handles };
        if stream.direction == Direction::Read {
            files.fill(stream, place, control)?;
        }
        Ok(files)
    }

    fn fill(&self, stream: &Stream, place: &Place, control: &Control) -> Result<(), BenchError> {
        let size = stream.transfer_bytes;
        let part = size.min(place.write_bytes_max);
        let numbered: Vec<(usize, &FileHandle)> = self.handles.iter().enumerate().collect();
        let fill = |client: &mut Preparer, _: usize, own: &[(usize, &FileHandle)]| {
            for (file, handle) in own {
                let piece = move |chunk: usize, start: u32| -> Piece<'_> {
                    let end = size.min(start.saturating_add(part));
                    let data = data(content(*file, chunk, 1), size);
                    let data = data.get(start as usize..end as usize).unwrap_or(&[]);
                    (*handle, chunk as u64 * u64::from(size) + u64::from(start), data)
                };
                let pieces: Vec<Piece<'_>> = (0..stream.chunks())
                    .flat_map(|chunk| {
                        (0..size).step_by(part as usize).map(move |start| piece(chunk, start))
                    })
                    .collect();
                client.fill(control, &pieces, &[*handle])?;
            }
            Ok(Vec::<()>::new())
        };
        preparing::in_parallel(&stream.target, stream.nfs, &numbered, fill).map(drop)
    }

    /// Opens a file, for a stream over NFSv4.
    pub(super) fn open(
        &self,
        client: &mut Nfs4Client<RpcConnection>,
        file: usize,
        direction: Direction,
    ) -> Result<Vec<Open>, BenchError> {
        let access = match direction {
            Direction::Read => ACCESS_READ,
            Direction::Write => ACCESS_BOTH,
        };
        let (name, share_access) = (name(file), access | WANT_NO_DELEGATION);
        let opening = Opening4 { share_access, ..Opening4::existing(&name) };
        let opened = patiently(|| client.open(&self.directory, &opening))
            .map_err(BenchError::client("opening files"))?;
        if self.handles.get(file) != Some(&opened.handle) {
            return Err(BenchError::broken("open", "another handle than when it was made"));
        }
        Ok(vec![(opened.handle, opened.stateid)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_differ_from_those_that_they_could_be_mistaken_for() {
        let own = content(2, 10, 3);
        for other in [content(2, 11, 3), content(2, 10, 2), content(2, 10, 4), content(1, 10, 3)] {
            assert!(!pattern::matches_sampled(other, 0, data(own, 512)));
        }
    }
}
