//! Looking at a journal, also while a mount uses it, and throwing away what is in it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steadfast_intent_log::Medium;

use crate::errors::OpenError;
use crate::file::{
    FileMedium, Place, io_error, is_marked_as_bypassed, owner, read_manifest, ring_path,
};
use crate::format::Sequence;
use crate::index::Index;
use crate::journal::{Journal, Options};
use crate::manifest::{self, Line};
use crate::pending::{Pending, list, read_entry, stored};
use crate::recover::read_ring;
use crate::scan::{Damage, Scanned};
use crate::superblock::{Copies, Superblock};

/// While a mount writes, the ring may change under the eyes of who looks: so often it is tried.
const ATTEMPTS: usize = 4;

/// What was found by looking. Nothing was changed.
#[derive(Clone, Debug)]
pub struct Look {
    /// The directory.
    pub path: PathBuf,
    /// The process that has it open.
    pub owner: Option<String>,
    /// Names it.
    pub uuid: [u8; 16],
    /// The server, as it was named in the mount.
    pub server: Vec<u8>,
    /// The share.
    pub share: Vec<u8>,
    /// The mount options that matter.
    pub mount_options: Vec<u8>,
    /// The size of the ring.
    pub ring_bytes: u64,
    /// Of it, what is between the tail and the end.
    pub used_bytes: u64,
    /// Whether it was closed.
    pub is_clean: bool,
    /// Whether both superblocks are as they were written.
    pub are_superblocks_whole: bool,
    /// What must still be sent.
    pub pending: Vec<Pending>,
    /// Where records are missing. While a mount writes, its unfinished write is left out.
    pub damage: Vec<Damage>,
    /// Blocks that cannot be read.
    pub unreadable_blocks: u64,
}

/// What was found by checking all of it.
#[derive(Clone, Debug)]
pub struct Verified {
    /// What is there.
    pub look: Look,
    /// Records that were read, with their hashes.
    pub checked_records: u64,
    /// Pending records whose data does not have their hash, or that cannot be read.
    pub damaged: Vec<Sequence>,
    /// What the manifest says.
    pub manifest: ManifestFound,
}

/// What the manifest says, beside the ring.
#[derive(Clone, Debug, Default)]
pub struct ManifestFound {
    /// Whether there is one.
    pub is_there: bool,
    /// Whether it is as it was written.
    pub is_whole: bool,
    /// Lines of records that are pending, and not as the line says.
    pub different: Vec<Line>,
    /// Lines of records that the ring has lost.
    pub lost: Vec<Line>,
}

struct Found {
    medium: FileMedium,
    superblock: Superblock,
    index: Index,
    look: Look,
}

fn look_once(directory: &Path, owner: Option<String>) -> Result<Found, OpenError> {
    let path = ring_path(directory);
    let medium = FileMedium::open(&path, false).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing(directory.to_owned()),
        _ => io_error(&path)(error),
    })?;
    let mut attempt = 1;
    loop {
        let copies = Copies::read(&medium);
        // Of a mount that is writing one, the other one counts.
        let superblock = copies.newest().map_err(OpenError::Superblock)?.clone();
        let mut index = Index::default();
        let mut scanned = read_ring(&medium, &superblock, &mut index);
        if owner.is_some() {
            let now = Copies::read(&medium);
            let is_overtaken = now
                .newest()
                .is_ok_and(|now| now.tail > superblock.tail || now.epoch != superblock.epoch);
            if is_overtaken && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            scanned.damage.retain(|damage| damage.was_stable);
        }
        let look = described(directory, owner, &superblock, &copies, &index, scanned);
        return Ok(Found { medium, superblock, index, look });
    }
}

fn described(
    directory: &Path,
    owner: Option<String>,
    superblock: &Superblock,
    copies: &Copies,
    index: &Index,
    scanned: Scanned,
) -> Look {
    let mut doubtful_before = scanned.doubtful_before().max(superblock.bypassed.next());
    if is_marked_as_bypassed(directory) {
        doubtful_before = doubtful_before.max(scanned.last.next());
    }
    Look {
        path: directory.to_owned(),
        owner,
        uuid: superblock.uuid,
        server: superblock.server.clone(),
        share: superblock.share.clone(),
        mount_options: superblock.mount_options.clone(),
        ring_bytes: superblock.ring_bytes,
        used_bytes: scanned.head - superblock.tail,
        is_clean: superblock.is_clean,
        are_superblocks_whole: !copies.is_one_damaged(),
        pending: list(index, index.iter(), doubtful_before),
        damage: scanned.damage,
        unreadable_blocks: scanned.unreadable_blocks,
    }
}

/// Looks at the journal in a directory. Changes nothing; a mount may be using it.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn look(directory: &Path) -> Result<Look, OpenError> {
    let owner = owner(directory).map_err(io_error(directory))?;
    look_once(directory, owner).map(|found| found.look)
}

/// Reads all of a journal that nobody uses, and compares it with its manifest. Changes nothing.
///
/// # Errors
/// When there is none, it is in use, or it cannot be read.
pub fn verify(directory: &Path) -> Result<Verified, OpenError> {
    // Held until the end, so that no mount begins meanwhile.
    let _place = Place::open_to_read(directory)?;
    let found = look_once(directory, None)?;
    let (mut checked_records, mut damaged) = (0, Vec::new());
    for pending in &found.look.pending {
        let sequence = pending.sequence;
        let Some(entry) = found.index.get(sequence) else { continue };
        let ring_bytes = found.superblock.ring_bytes;
        let medium: &dyn Medium = &found.medium;
        let read = read_entry(medium, ring_bytes, sequence, entry.position, entry.frame_bytes)
            .and_then(|frame| stored(sequence, &frame, true));
        checked_records += 1;
        if read.is_err() {
            damaged.push(sequence);
        }
    }
    let manifest = compare(directory, &found.look).map_err(io_error(directory))?;
    Ok(Verified { look: found.look, checked_records, damaged, manifest })
}

fn compare(directory: &Path, look: &Look) -> io::Result<ManifestFound> {
    let bytes = match read_manifest(directory) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ManifestFound::default());
        }
        Err(error) => return Err(error),
    };
    let read = manifest::read(&bytes);
    let mut found =
        ManifestFound { is_there: true, is_whole: read.is_whole, ..ManifestFound::default() };
    for line in read.lines {
        let place = look.pending.binary_search_by_key(&line.sequence, |pending| pending.sequence);
        let is_lost = |damage: &Damage| {
            damage.sequences.is_some_and(|(first, last)| (first..=last).contains(&line.sequence))
        };
        match place.ok().and_then(|at| look.pending.get(at)) {
            Some(pending) if manifest::line(pending) != line => found.different.push(line),
            None if look.damage.iter().any(is_lost) => found.lost.push(line),
            // As the ring has it; or in neither, since it has left.
            _ => {}
        }
    }
    Ok(found)
}

/// Whether a record is of a path, as it is or as it is shown ([`manifest::escape`]).
pub fn is_path(pending: &Pending, path: &[u8]) -> bool {
    *pending.path == *path || manifest::escape(&pending.path).as_bytes() == path
}

/// Throws away pending records of a journal that nobody uses: all, or those of one path. Returns
/// them.
///
/// # Errors
/// When there is none, it is in use, or it cannot be read or written.
pub fn discard(directory: &Path, path: Option<&[u8]>) -> Result<Vec<Pending>, OpenError> {
    let place = Place::open(directory, false, Duration::ZERO)?;
    let found = look_once(directory, None)?.look;
    let mut options = Options::new("", "");
    (options.server, options.share) = (found.server, found.share);
    options.mount_options = found.mount_options;
    let (journal, _) = Journal::in_place(place, directory, &options)?;
    let mut discarded = journal.pending();
    if let Some(path) = path {
        discarded.retain(|pending| is_path(pending, path));
    } else {
        journal.acknowledge_damage();
    }
    journal.stable(discarded.iter().map(|pending| pending.sequence));
    journal.close().map_err(|failed| OpenError::Medium(failed.why))?;
    Ok(discarded)
}
