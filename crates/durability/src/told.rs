//! What replay tells the administrator: what it did, what did not fit, and where that is; and what it
//! keeps of objects that it could not replay.

use std::io;
use std::path::Path;
use std::time::Duration;

use steadfast_intent_log::FileSystemEntry;
use steadfast_recovery::Report;
use steadfast_recovery::{Action, Change, ObjectKey, Recoverable};
use steadfast_sys::durable_file;

use super::hex;
use super::listing::{object_shown, shown};
use super::records::{Records, ReplayError};

/// Conflicts of one replay that are told one by one.
const TOLD_MAX: usize = 1000;
/// Files that are named when they were replayed; how many more there were is said.
const FILES_TOLD_MAX: usize = 10;
/// Of records that are kept: what the file begins with. Each record is its LSN (8 bytes), its length
/// (4) and the change.
const KEPT_HEAD: &str = "steadfast: not replayed 1\n";
/// Records of objects that were not replayed are kept up to so many bytes.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// A name, or a path, as it can be written to a terminal: control characters and what is no UTF-8 are
/// escaped.
pub(super) fn escaped(name: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\'' => text.push(character),
                character => text.extend(character.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Where a name is, for people.
fn place(storage: &mut dyn Recoverable, dir: &ObjectKey, name: &[u8]) -> String {
    match storage.path(dir) {
        Some(mut path) => {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            escaped(&path)
        }
        None => format!("{} in directory {}", escaped(name), hex(dir.0.as_bytes())),
    }
}

/// The first of the files that a replay has written or made again, after a colon.
fn files_named(report: &Report, storage: &mut dyn Recoverable) -> String {
    let mut files: Vec<_> = report.files.iter().collect();
    files.sort_unstable();
    let named: Vec<String> =
        files.iter().take(FILES_TOLD_MAX).map(|file| object_shown(file, storage)).collect();
    if named.is_empty() {
        return String::new();
    }
    let more = match files.len().saturating_sub(FILES_TOLD_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(": {}{more}", named.join(", "))
}

/// Tells what a replay did.
pub(super) fn tell(
    entry: &FileSystemEntry,
    report: &Report,
    storage: &mut dyn Recoverable,
    time: Duration,
) {
    let path = escaped(shown(entry).as_bytes());
    tracing::info!(
        "{path}: replayed the intent log in {} ms: {} names bound or removed, {} objects made again, \
         {} bytes written, {} files{}",
        time.as_millis(),
        report.names,
        report.objects_made,
        report.data_bytes,
        report.files.len(),
        files_named(report, storage)
    );
    for conflict in report.conflicts.iter().take(TOLD_MAX) {
        let at = place(storage, &conflict.dir, &conflict.name);
        match conflict.kept_of {
            None => tracing::warn!("{at}: {}", conflict.kind),
            Some(object) => {
                tracing::warn!("{}: {}: {at}", object_shown(&object, storage), conflict.kind);
            }
        }
    }
    for (object, kind) in report.unnamed.iter().take(TOLD_MAX) {
        tracing::warn!("{}: {kind}", object_shown(object, storage));
    }
    for failed in report.not_replayed.iter().take(TOLD_MAX) {
        let place = match &failed.place {
            Some((dir, name)) => place(storage, dir, name),
            None => format!("{path}: an object without a known name"),
        };
        tracing::warn!(
            "{place}: cannot be replayed: {}; all else is; what the log has of it is kept in the state \
             directory ({}…)",
            failed.why,
            super::observed::NOT_REPLAYED
        );
    }
    let lists = [report.conflicts.len(), report.unnamed.len(), report.not_replayed.len()];
    let more: usize = lists.iter().map(|count| count.saturating_sub(TOLD_MAX)).sum();
    if more > 0 {
        tracing::warn!("{path}: {more} more of these are not told");
    }
}

/// Whether a change is one of an object.
fn is_of(change: &Change<'_>, object: &ObjectKey) -> bool {
    match &change.action {
        Action::Write { object: of, .. }
        | Action::Attributes { object: of, .. }
        | Action::Acls { object: of, .. }
        | Action::Make { object: of, .. }
        | Action::Link { object: of, .. } => of == object,
        Action::Remove { unlinked, .. } => unlinked.object == *object,
        Action::Rename { object: of, victim, .. } => {
            of == object || victim.is_some_and(|victim| victim.object == *object)
        }
        Action::Nothing
        | Action::Settled { .. }
        | Action::Moment { .. }
        | Action::Touched { .. } => false,
    }
}

/// Keeps the records of objects that could not be replayed. On return they are on disk.
pub(super) fn keep_not_replayed(
    records: &dyn Records,
    report: &Report,
    path: &Path,
) -> Result<(), ReplayError> {
    if report.not_replayed.is_empty() {
        return Ok(());
    }
    let mut bytes = KEPT_HEAD.as_bytes().to_vec();
    records.each(&mut |lsn, payload| {
        let (change, behind) = Change::decode(payload).map_err(|_| ReplayError::Record(lsn))?;
        let is_kept = report.not_replayed.iter().any(|failed| is_of(&change, &failed.object));
        let length = payload.len() - behind.len();
        if is_kept && bytes.len() + length <= KEPT_BYTES_MAX {
            bytes.extend_from_slice(&lsn.to_le_bytes());
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
            bytes.extend_from_slice(payload.get(..length).unwrap_or_default());
        }
        Ok(())
    })?;
    let kept: io::Result<()> = durable_file::replace(path, &bytes);
    Ok(kept?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_write_to_the_terminal() {
        assert_eq!(escaped(b"a b\"'"), "a b\"'");
        assert_eq!(escaped("é\u{202e}".as_bytes()), "é\\u{202e}");
        assert_eq!(escaped(b"\x1b[2J\n\xff"), "\\u{1b}[2J\\n\\xff");
    }
}
