//! File systems whose records are not replayed before the administrator has decided, and what he has
//! decided: small files in the state directory.
//!
//! - `intent-log-UUID.refused`: the records of that file system are set aside, and why they are not
//!   replayed. It is not served.
//! - `intent-log-UUID.accepted`: they are to be replayed all the same. Removed when that is done.
//! - `intent-log.replay-old`: the log, in this epoch, is to be replayed though its file systems are
//!   newer.

use std::io;
use std::path::{Path, PathBuf};

use steadfast_intent_log::{FileSystemEntry, Identity};
use steadfast_sys::durable_file;

use super::hex;

const REPLAY_OLD_FILE: &str = "intent-log.replay-old";

fn path(directory: &Path, identity: &Identity, suffix: &str) -> PathBuf {
    directory.join(format!("intent-log-{}.{suffix}", hex(&identity.uuid)))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => durable_file::sync_directory_of(path),
    }
}

/// What an administrator can do about a file system whose records are refused.
pub(super) fn choices(entry: &FileSystemEntry) -> String {
    // Not by its path: another file system may have been there.
    let uuid = hex(&entry.identity.uuid);
    format!(
        "choose, with the server stopped: `steadfast log discard --file-system {uuid} --yes-lose \
         N-operations` serves it as it is, and loses what the log has of it; `steadfast log adopt \
         --file-system {uuid}` replays that on top of it: data that was changed since in the same \
         files is kept beside them, other changes of them may be lost; `steadfast log verify` lists \
         the operations"
    )
}

/// Notes that the records of a file system are refused.
pub(super) fn note(directory: &Path, entry: &FileSystemEntry, why: &str) -> io::Result<()> {
    durable_file::replace(&path(directory, &entry.identity, "refused"), why.as_bytes())
}

/// Why they are, if they are.
pub(super) fn why(directory: &Path, identity: &Identity) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path(directory, identity, "refused")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The administrator wants them replayed.
pub(super) fn accept(directory: &Path, identity: &Identity) -> io::Result<()> {
    durable_file::replace(&path(directory, identity, "accepted"), b"")?;
    remove(&path(directory, identity, "refused"))
}

/// Whether he does.
pub(super) fn is_accepted(directory: &Path, identity: &Identity) -> bool {
    path(directory, identity, "accepted").exists()
}

/// They are replayed, or given up.
pub(super) fn settle(directory: &Path, identity: &Identity) -> io::Result<()> {
    remove(&path(directory, identity, "accepted"))?;
    remove(&path(directory, identity, "refused"))
}

/// The administrator wants a log replayed in this epoch though its file systems are newer.
pub(super) fn accept_old(directory: &Path, uuid: &[u8; 16], epoch: u64) -> io::Result<()> {
    let text = format!("{} {epoch}\n", hex(uuid));
    durable_file::replace(&directory.join(REPLAY_OLD_FILE), text.as_bytes())
}

/// Whether he does.
pub(super) fn is_old_accepted(directory: &Path, uuid: &[u8; 16], epoch: u64) -> bool {
    let wanted = format!("{} {epoch}", hex(uuid));
    std::fs::read_to_string(directory.join(REPLAY_OLD_FILE)).is_ok_and(|text| text.trim() == wanted)
}

/// It was replayed.
pub(super) fn settle_old(directory: &Path) -> io::Result<()> {
    remove(&directory.join(REPLAY_OLD_FILE))
}

#[cfg(test)]
mod tests {
    use steadfast_intent_log::Lsn;

    use super::*;

    #[test]
    fn a_decision_is_kept_until_it_is_carried_out() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path();
        let identity = Identity { uuid: [7; 16], kind: 1 };
        let path = b"/srv".to_vec();
        let entry = FileSystemEntry { index: 0, identity, path, tail: Lsn(0), mark: None };
        assert_eq!(why(directory, &identity).expect("read"), None);
        note(directory, &entry, "because").expect("written");
        assert_eq!(why(directory, &identity).expect("read").as_deref(), Some("because"));
        assert!(!is_accepted(directory, &identity));
        accept(directory, &identity).expect("written");
        assert!(is_accepted(directory, &identity));
        assert_eq!(why(directory, &identity).expect("read"), None);
        settle(directory, &identity).expect("removed");
        settle(directory, &identity).expect("nothing to remove");
        assert!(!is_accepted(directory, &identity));
        accept_old(directory, &[1; 16], 4).expect("written");
        assert!(is_old_accepted(directory, &[1; 16], 4));
        assert!(!is_old_accepted(directory, &[1; 16], 5), "of another epoch");
        assert!(!is_old_accepted(directory, &[2; 16], 4), "of another log");
        settle_old(directory).expect("removed");
        assert!(!is_old_accepted(directory, &[1; 16], 4));
    }
}
