//! The files that are read or written, and what they hold.

use steadfast_client::{FileHandle, RpcConnection, StableHow, arguments, procedure};

use super::{Direction, Stream};
use crate::drive::Control;
use crate::error::BenchError;
use crate::pattern;
use crate::setup::{self, Call, Target};

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

/// Mounts the share, asks for its limits, and makes a directory.
pub(super) fn begin(stream: &Stream) -> Result<Place, BenchError> {
    let (mut client, share) = stream.target.mount(&stream.path)?;
    let limits = stream.target.limits(&share, stream.transport)?;
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
    let directory = setup::directory(&mut client, &share, &name)?;
    Ok(Place { share, name, directory, write_bytes_max })
}

impl Place {
    /// Removes it, and all that is in it.
    pub(super) fn remove(&self, target: &Target) -> Result<(), BenchError> {
        setup::remove_tree(target, &self.share, &self.name)
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

/// Handles of the files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) handles: Vec<FileHandle>,
}

impl Files {
    /// Makes them, and fills those that are to be read.
    pub(super) fn make(
        stream: &Stream,
        place: &Place,
        control: &Control,
    ) -> Result<Self, BenchError> {
        let mut connection = stream.target.connect()?;
        let create =
            |file: usize| setup::create(&place.directory, format!("f{file:05}").as_bytes());
        let calls = (0..stream.files()).map(create);
        let handles = setup::make(&mut connection, &stream.target, control, calls)?;
        let files = Self { handles };
        if stream.direction == Direction::Read {
            files.fill(stream, place, control)?;
        }
        Ok(files)
    }

    fn fill(&self, stream: &Stream, place: &Place, control: &Control) -> Result<(), BenchError> {
        let size = stream.transfer_bytes;
        let part = size.min(place.write_bytes_max);
        let numbered: Vec<(usize, &FileHandle)> = self.handles.iter().enumerate().collect();
        let fill = |connection: &mut RpcConnection, _: usize, own: &[(usize, &FileHandle)]| {
            let calls = own.iter().flat_map(|(file, handle)| {
                let write = move |chunk: usize, start: u32| -> Call {
                    let end = size.min(start.saturating_add(part));
                    let data = data(content(*file, chunk, 1), size);
                    let data = data.get(start as usize..end as usize).unwrap_or(&[]);
                    let offset = chunk as u64 * u64::from(size) + u64::from(start);
                    let unstable = StableHow::Unstable;
                    (procedure::WRITE, arguments::write(handle, offset, data, unstable))
                };
                let chunks = (0..stream.chunks()).flat_map(move |chunk| {
                    (0..size).step_by(part as usize).map(move |start| write(chunk, start))
                });
                // What is not on disk yet would be written while something is measured.
                chunks.chain([(procedure::COMMIT, arguments::commit(handle, 0, 0))])
            });
            let identity = &stream.target.identity;
            setup::pipeline(connection, identity, control, calls, &[], |_, _| Ok(()))?;
            Ok(Vec::<()>::new())
        };
        setup::in_parallel(&stream.target, &numbered, fill).map(drop)
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
