//! A file system that got another UUID: finding it, so that it can be adopted under the new one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use steadfast_intent_log::{FileSystemEntry, Identity, Mark};

use super::hex;
use super::listing::shown;

/// A file system that is mounted now, and whose changes could be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedNow {
    /// Where.
    pub path: Vec<u8>,
    /// Which it is.
    pub identity: Identity,
    /// The bytes of the mark that it carries, if it does.
    pub mark: Vec<u8>,
}

impl MountedNow {
    /// One of them.
    pub fn new(path: Vec<u8>, uuid: [u8; 16], kind: u32, mark: Vec<u8>) -> Self {
        Self { path, identity: Identity { uuid, kind }, mark }
    }
}

/// Tells the file systems that are mounted now.
pub type LookAround = dyn Fn() -> Vec<MountedNow> + Send + Sync;

/// Whether a mount point is where an entry was, or above it.
fn is_at(mounted: &MountedNow, entry: &FileSystemEntry) -> bool {
    let (point, path) = (OsStr::from_bytes(&mounted.path), OsStr::from_bytes(&entry.path));
    Path::new(path).starts_with(point)
}

/// The file system that an entry of the log may be of, though its UUID is another: one with a mark that
/// says so, or else what is mounted in its place now, which may be something else. Says whether there
/// is a mark.
pub(super) fn candidate<'m>(
    mounted: &'m [MountedNow],
    log: &[u8; 16],
    entry: &FileSystemEntry,
) -> Option<(&'m MountedNow, bool)> {
    let others = || mounted.iter().filter(|one| one.identity != entry.identity);
    let has_mark = |one: &&MountedNow| {
        Mark::found(&one.mark)
            .is_some_and(|(mark, _)| mark.log == *log && mark.file_system == entry.identity)
    };
    if let Some(marked) = others().find(has_mark) {
        return Some((marked, true));
    }
    // The last one mounted on a point is the one that is seen; the deepest point is the nearest.
    let there = others().filter(|one| is_at(one, entry)).max_by_key(|one| one.path.len())?;
    (there.identity.kind == entry.identity.kind && there.path != b"/").then_some((there, false))
}

/// What to tell of an entry whose file system is not mounted under its UUID.
pub(super) fn hint(
    mounted: &[MountedNow],
    log: &[u8; 16],
    entry: &FileSystemEntry,
) -> Option<String> {
    let (found, has_mark) = candidate(mounted, log, entry)?;
    let (old, new) = (hex(&entry.identity.uuid), hex(&found.identity.uuid));
    let point = String::from_utf8_lossy(&found.path);
    let why = if has_mark {
        "has the mark of this log for it, and another UUID now"
    } else {
        "is mounted in its place, and has another UUID"
    };
    Some(format!(
        "{}: the operations are of the file system with UUID {old}; {point} {why}, {new}. If that is \
         the same file system, `steadfast log adopt --file-system {old}={new}` has the next start \
         replay them there",
        shown(entry)
    ))
}

#[cfg(test)]
mod tests {
    use steadfast_intent_log::{Lsn, MARK_FILE_BYTES};

    use super::*;

    fn identity(number: u8) -> Identity {
        Identity { uuid: [number; 16], kind: 0xef53 }
    }

    fn entry() -> FileSystemEntry {
        let path = b"/srv/a/share".to_vec();
        FileSystemEntry { index: 0, identity: identity(1), path, tail: Lsn(0), mark: None }
    }

    fn mounted(path: &[u8], number: u8) -> MountedNow {
        MountedNow { path: path.to_vec(), identity: identity(number), mark: Vec::new() }
    }

    #[test]
    fn a_mark_tells_more_than_a_place() {
        let log = [9; 16];
        let all = [mounted(b"/", 4), mounted(b"/srv", 2), mounted(b"/srv/a", 3), mounted(b"/b", 5)];
        let found = candidate(&all, &log, &entry()).expect("found");
        assert_eq!((found.0.identity, found.1), (identity(3), false));
        assert_eq!(candidate(&all[..1], &log, &entry()), None, "/ is always there");
        let mark = Mark {
            log,
            host: [0; 16],
            file_system: identity(1),
            sequence: 1,
            epoch: 1,
            applied: Lsn(1),
            stable: Lsn(1),
            flushed: Lsn(0),
            time_ms: 0,
        };
        let mut all = all;
        let mut bytes = vec![0; MARK_FILE_BYTES];
        let encoded = mark.encode();
        bytes[..encoded.len()].copy_from_slice(&encoded);
        all[3].mark = bytes;
        let found = candidate(&all, &log, &entry()).expect("found");
        assert_eq!((found.0.identity, found.1), (identity(5), true));
        let text = hint(&all, &log, &entry()).expect("a hint");
        let wanted = format!("--file-system {}={}", "01".repeat(16), "05".repeat(16));
        assert!(text.contains(&wanted), "{text}");
        assert!(!candidate(&all, &[8; 16], &entry()).expect("by place").1, "another log's mark");
    }
}
