//! The journal in a directory: opening it there, and making it.

use std::path::Path;
use std::sync::Arc;

use steadfast_intent_log::{BLOCK_BYTES, Medium};
use steadfast_sys::{durable_file, process};

use super::{Journal, Options, Origin};
use crate::errors::OpenError;
use crate::file::{
    FileMedium, Place, has_ring, io_error, is_marked_as_bypassed, ring_path, unmark_as_bypassed,
};
use crate::format::{RING_BYTES_MAX, RING_BYTES_MIN, file_bytes};
use crate::status::Recovered;
use crate::superblock::Copies;

impl Journal {
    /// Opens the journal in a directory, and makes both if they are not there. Nobody else can open
    /// it while this one is open.
    ///
    /// # Errors
    /// When another process has it open, it is of another share, or it cannot be made, read or
    /// written.
    pub fn open(directory: &Path, options: &Options) -> Result<(Self, Recovered), OpenError> {
        let place = Place::open(directory, true, options.manifest_interval)?;
        let is_new = !has_ring(directory)?;
        if is_new {
            make(&ring_path(directory), options)?;
        }
        let (journal, mut recovered) = Self::in_place(place, directory, options)?;
        recovered.is_new = is_new;
        Ok((journal, recovered))
    }

    /// Opens the journal in a directory to read it, on a disk that may be read-only: to list it, or to
    /// replay it to another place. Nothing is written: nothing can be appended, and what is settled is
    /// so in memory alone.
    ///
    /// # Errors
    /// When another process has it open, there is none, or it cannot be read.
    pub fn open_read_only(directory: &Path) -> Result<(Self, Recovered), OpenError> {
        let place = Place::open_to_read(directory)?;
        let path = ring_path(directory);
        let medium = FileMedium::open(&path, false).map_err(io_error(&path))?;
        let copies = Copies::read(&medium);
        let found = copies.newest().map_err(OpenError::Superblock)?;
        let mut options = Options::new("", "");
        options.server.clone_from(&found.server);
        options.share.clone_from(&found.share);
        options.mount_options.clone_from(&found.mount_options);
        let missing = file_bytes(found.ring_bytes).saturating_sub(medium.bytes());
        let is_bypassed = is_marked_as_bypassed(directory);
        let origin = Origin { may_be_made: false, is_read_only: true, is_bypassed };
        let (mut journal, mut recovered) =
            Self::attach(Arc::new(medium), &options, [0; 16], origin)?;
        journal.place = Some(place);
        recovered.cut_off_bytes = missing;
        Ok((journal, recovered))
    }

    pub(crate) fn in_place(
        place: Place,
        directory: &Path,
        options: &Options,
    ) -> Result<(Self, Recovered), OpenError> {
        let path = ring_path(directory);
        let mut medium = FileMedium::open(&path, true).map_err(io_error(&path))?;
        let cut_off_bytes = medium.lengthen(&path, options.ring_bytes.max(Options::RING_BYTES))?;
        let (mut journal, mut recovered) = {
            let is_bypassed = is_marked_as_bypassed(directory);
            let origin = Origin { may_be_made: false, is_read_only: false, is_bypassed };
            let opened = Self::attach(Arc::new(medium), options, [0; 16], origin)?;
            if is_bypassed {
                // The superblocks say it now.
                unmark_as_bypassed(directory)?;
            }
            opened
        };
        journal.place = Some(place);
        recovered.cut_off_bytes = cut_off_bytes;
        Ok((journal, recovered))
    }
}

/// Makes the ring's file. It gets its name when it is an empty journal.
fn make(path: &Path, options: &Options) -> Result<(), OpenError> {
    let ring_bytes = options.ring_bytes - options.ring_bytes % BLOCK_BYTES as u64;
    if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
        return Err(OpenError::TooSmall);
    }
    let temporary = path.with_extension("new");
    let mut uuid = [0; 16];
    process::random_bytes(&mut uuid).map_err(io_error(path))?;
    let filled = FileMedium::fill(&temporary, file_bytes(ring_bytes));
    if let Err(error) = filled {
        // What was written of it takes the room that was too little.
        let _ = std::fs::remove_file(&temporary);
        return Err(io_error(path)(error));
    }
    let medium = FileMedium::open(&temporary, true).map_err(io_error(&temporary))?;
    let origin = Origin { may_be_made: true, is_read_only: false, is_bypassed: false };
    let (journal, _) = Journal::attach(Arc::new(medium), options, uuid, origin)?;
    journal.close().map_err(|failed| OpenError::Medium(failed.why))?;
    std::fs::rename(&temporary, path)
        .and_then(|()| durable_file::sync_directory_of(path))
        .map_err(io_error(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use steadfast_intent_log::testing::{Fault, MemoryMedium};

    use super::*;
    use crate::record::{Change, Record};

    #[test]
    fn a_ring_that_cannot_be_written_is_marked_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let medium = Arc::new(MemoryMedium::new(1 << 16));
        let options = Options::new("server", "/share");
        let (mut journal, _) =
            Journal::on_medium(Arc::clone(&medium) as _, &options, [7; 16]).unwrap();
        journal.place = Some(Place::open(directory.path(), true, Duration::ZERO).unwrap());
        let change = Change::Write { file: b"f", offset: 0, data: b"x" };
        let groups = &[];
        let record = Record { time_ns: 0, uid: 0, gid: 0, groups, order: None, path: b"f", change };
        let sequence = journal.append(&record).unwrap();
        journal.sync(sequence).unwrap();
        for write in 0..4 {
            medium.fault_at(write, Fault::Fail(0));
        }
        assert!(!is_marked_as_bypassed(directory.path()));
        assert_eq!(journal.bypass(b"f"), Ok(()));
        assert!(is_marked_as_bypassed(directory.path()));
        assert!(journal.pending().iter().all(|one| one.may_be_superseded));
    }
}
