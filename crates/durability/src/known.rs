//! What the state directory says of the log: which one this server uses, whether that may have something
//! that is nowhere else, and up to which epoch it was given up.

use std::io;
use std::path::Path;

use steadfast_intent_log::Superblock;
use steadfast_intent_log::recovery::Known;
use steadfast_sys::durable_file;

use super::hex;

/// Which log this server uses.
pub(super) const KNOWN_FILE: &str = "intent-log.known";
/// Which log must not be replayed, though it could not be marked so.
const GIVEN_UP_FILE: &str = "intent-log.given-up";

fn read_or_empty(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        text => text,
    }
}

/// Notes that the log's epochs up to this one must not be replayed, though that cannot be written
/// to it.
pub(super) fn note_given_up(directory: &Path, uuid: &[u8; 16], epoch: u64) -> io::Result<()> {
    let text = format!("{} {epoch}\n", hex(uuid));
    durable_file::replace(&directory.join(GIVEN_UP_FILE), text.as_bytes())
}

const OPEN: &str = "open";
const CLOSED: &str = "closed";

/// Notes which log this server uses, and whether it may have something that is nowhere else.
pub(super) fn note_known(directory: &Path, uuid: &[u8; 16], is_open: bool) -> io::Result<()> {
    let state = if is_open { OPEN } else { CLOSED };
    let text = format!("{} {state}\n", hex(uuid));
    durable_file::replace(&directory.join(KNOWN_FILE), text.as_bytes())
}

/// Whether this server has used a log that was not closed.
///
/// # Errors
/// The state directory's.
pub fn is_any_open(directory: &Path) -> io::Result<bool> {
    is_another_open(directory, None)
}

/// Whether another log than this one was used last, and was not closed.
pub(super) fn is_another_open(
    directory: &Path,
    superblock: Option<&Superblock>,
) -> io::Result<bool> {
    let known = read_or_empty(&directory.join(KNOWN_FILE))?;
    let Some((uuid, OPEN)) = known.trim().split_once(' ') else { return Ok(false) };
    Ok(superblock.is_none_or(|superblock| hex(&superblock.uuid) != uuid))
}

/// What the state directory says of the log with this superblock.
pub(super) fn known(directory: &Path, superblock: Option<&Superblock>) -> io::Result<Known> {
    let Some(superblock) = superblock else { return Ok(Known::Unknown) };
    let given_up = read_or_empty(&directory.join(GIVEN_UP_FILE))?;
    if let Some((uuid, epoch)) = given_up.trim().split_once(' ')
        && uuid == hex(&superblock.uuid)
        && epoch.parse().is_ok_and(|epoch: u64| superblock.epoch <= epoch)
    {
        return Ok(Known::GivenUp);
    }
    Ok(if is_known(directory, &superblock.uuid)? { Known::Ours } else { Known::Unknown })
}

/// Whether this is the log that the state directory goes with.
pub(super) fn is_known(directory: &Path, uuid: &[u8; 16]) -> io::Result<bool> {
    let known = read_or_empty(&directory.join(KNOWN_FILE))?;
    Ok(known.split_whitespace().next() == Some(&*hex(uuid)))
}

#[cfg(test)]
mod tests {
    use steadfast_intent_log::format;

    use super::*;
    use crate::FileMedium;

    #[test]
    fn what_was_given_up_stays_so_with_all_epochs_before_it() {
        let place = tempfile::tempdir().expect("a directory");
        let log = FileMedium::create(&place.path().join("log"), 16 << 20).expect("made");
        let superblock = format(&log, [7; 16], [1; 16], 2).expect("written");
        note_known(place.path(), &superblock.uuid, true).expect("noted");
        note_given_up(place.path(), &superblock.uuid, 5).expect("noted");
        let known = |uuid, epoch| {
            let superblock = Superblock { uuid, epoch, ..superblock.clone() };
            known(place.path(), Some(&superblock)).expect("read")
        };
        for (epoch, expected) in [(4, Known::GivenUp), (5, Known::GivenUp), (6, Known::Ours)] {
            assert_eq!(known([7; 16], epoch), expected, "{epoch}");
        }
        assert_eq!(known([8; 16], 4), Known::Unknown);
    }
}
