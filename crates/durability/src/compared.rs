//! A file system's mark at the start ([`steadfast_intent_log::mark`]): what it says, compared with what the
//! log has, and the mark of one whose records were replayed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steadfast_intent_log::recovery::marks::{Fate, MarkFacts, fate, is_aside_older};
use steadfast_intent_log::{FileSystemEntry, Identity, IntentLog, Lsn, MARK_SLOT_BYTES, Mark};
use steadfast_recovery::Recoverable;
use steadfast_vfs::FsError;

use super::aside::AsidePath;
use super::hex;
use super::listing::shown;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A moment as people write it, in UTC, to the second.
pub(super) fn time_shown(time_ms: u64) -> String {
    // What comes after the year 9999 cannot be written so.
    let seconds = (time_ms / 1000).min(253_402_300_799);
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// What was found out about one file system at the start.
#[derive(Clone)]
pub(super) struct Compared {
    pub(super) entry: FileSystemEntry,
    pub(super) mark: Option<Mark>,
    pub(super) fate: Fate,
}

impl Compared {
    /// Compares what a log has with what a file system has: by the log's uuid, the epoch of its
    /// records, and the last of them.
    pub(super) fn new(
        (log, epoch, last): (&[u8; 16], u64, Lsn),
        entry: &FileSystemEntry,
        storage: &mut dyn Recoverable,
    ) -> Self {
        let (mark, (label, fate)) = match read(storage) {
            Ok(mark) => {
                let facts = MarkFacts {
                    log,
                    identity: entry.identity,
                    epoch,
                    last,
                    known: entry.mark,
                    found: mark.as_ref(),
                };
                (mark, fate(&facts))
            }
            // Nothing can be told. If it can be replayed, it is.
            Err(error) => {
                if error != FsError::NotSupported {
                    tracing::warn!("{}: its mark cannot be read: {error}", shown(entry));
                }
                (None, ("unreadable", Fate::Replay(Lsn(0))))
            }
        };
        tracing::debug!("{}: {label}: {fate:?}", shown(entry));
        Self { entry: entry.clone(), mark, fate }
    }

    /// Why the records of the file system are not replayed, if they are not, though the log's others
    /// may be.
    pub(super) fn why_refused(&self) -> Option<String> {
        match self.fate {
            Fate::Replay(_) => None,
            Fate::LogIsOlder => Some(self.why_log_is_older()),
            Fate::DiskIsOlder => Some(format!(
                "its file system is older than the intent log: its mark is of {}, and a later one \
                 had been written; it was rolled back, or restored from an image",
                self.time()
            )),
            Fate::OtherLog => Some(format!(
                "its file system was served with another intent log{} since this one had it, until \
                 {}",
                self.mark.map_or(String::new(), |mark| format!(
                    " ({}, of host {})",
                    hex(&mark.log),
                    hex(&mark.host)
                )),
                self.time()
            )),
            Fate::MarkIsGone => Some(
                "its file system does not have the mark (.steadfast-mark) that this intent log has \
                 written to it; it was restored from an image of before, or the mark was removed"
                    .to_owned(),
            ),
        }
    }

    /// Why what was set aside is not replayed, if it is not: the file system went on without it, as
    /// the state directory is an older copy; or the disk was rolled back, or served with another log.
    pub(super) fn why_asides_are_refused(
        &self,
        files: &[AsidePath],
        log: &[u8; 16],
    ) -> Option<String> {
        // One of another file system came with a file that was copied here, and says nothing.
        let of_this = |mark: &&Mark| mark.file_system == self.entry.identity;
        let Some(mark) = self.mark.as_ref().filter(of_this) else { return self.why_refused() };
        let is_older = |file: &&AsidePath| {
            file.log == hex(&mark.log)
                && file.log_end.is_some_and(|end| is_aside_older(mark, &mark.log, file.epoch, end))
        };
        if let Some(file) = files.iter().find(is_older) {
            return Some(format!(
                "the operations that were set aside for it in {} are older than its file system, which \
                 was marked at {}: the state directory was restored from a copy",
                file.path.display(),
                self.time()
            ));
        }
        // A log may have been made anew since: the mark is of the one that the operations are of.
        let is_theirs = mark.log != *log && files.iter().any(|file| file.log == hex(&mark.log));
        if mark.log != *log && !is_theirs {
            return Self { fate: Fate::OtherLog, ..self.clone() }.why_refused();
        }
        if is_theirs { None } else { self.why_refused() }
    }

    /// Whether the mark that the log knows of, or a later one, is there.
    pub(super) fn is_as_known(&self) -> bool {
        self.entry.mark.is_some() && matches!(self.fate, Fate::Replay(_)) && self.mark.is_some()
    }

    /// Of a log that is older than the file system: since when.
    pub(super) fn why_log_is_older(&self) -> String {
        format!(
            "{}: its file system was last marked at {}, by this log at a later state than what is \
             here",
            shown(&self.entry),
            self.time()
        )
    }

    fn time(&self) -> String {
        self.mark.map_or("an unknown time".to_owned(), |mark| time_shown(mark.time_ms))
    }
}

/// The mark that a file system has.
fn read(storage: &mut dyn Recoverable) -> Result<Option<Mark>, FsError> {
    let bytes = storage.read_mark()?;
    Ok(Mark::found(&bytes).map(|(mark, _)| mark))
}

/// Marks a file system whose records were replayed, now that the superblocks have the next epoch: the
/// records that were replayed never are again, whatever copy of the log comes back.
pub(super) fn mark_replayed(
    uuid: &[u8; 16],
    log: &IntentLog,
    identity: Identity,
    storage: &mut dyn Recoverable,
) -> Result<(), String> {
    let found = storage.read_mark().ok().and_then(|bytes| Mark::found(&bytes));
    let (sequence, slot) =
        found.map_or((1, 0), |(mark, slot)| (mark.sequence + 1, usize::from(slot == 0)));
    let last = log.last();
    let mark = Mark {
        log: *uuid,
        host: log.host(),
        file_system: identity,
        sequence,
        epoch: log.epoch(),
        applied: last,
        stable: log.stable().min(last),
        flushed: last,
        time_ms: now_ms(),
    };
    match storage.write_mark((slot * MARK_SLOT_BYTES) as u64, &mark.encode()) {
        Ok(()) => storage.make_stable(),
        Err(FsError::NotSupported | FsError::ReadOnly) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const OURS: [u8; 16] = [1; 16];
    const IDENTITY: Identity = Identity { uuid: [3; 16], kind: 6 };

    fn compared(log: u8, epoch: u64, stable: u64) -> Compared {
        let (path, tail) = (b"/srv".to_vec(), Lsn(0));
        let entry = FileSystemEntry { index: 0, identity: IDENTITY, path, tail, mark: None };
        let mark = Mark {
            log: [log; 16],
            host: [0; 16],
            file_system: IDENTITY,
            sequence: 1,
            epoch,
            applied: Lsn(stable),
            stable: Lsn(stable),
            flushed: Lsn(0),
            time_ms: 0,
        };
        Compared { entry, mark: Some(mark), fate: Fate::Replay(Lsn(0)) }
    }

    fn aside(log: u8, epoch: u64, last: u64, log_end: Option<u64>) -> AsidePath {
        let end = log_end.map_or(String::new(), |end| format!("-{end}"));
        let name = format!("x-5-{epoch}-{last}-{}{end}.aside", hex(&[log; 16]));
        AsidePath::parse(PathBuf::from(name), "x-").expect("a name")
    }

    #[test]
    fn what_was_set_aside_is_refused_only_if_its_disk_went_on() {
        let why = |compared: Compared, file: AsidePath| {
            compared.why_asides_are_refused(&[file], &OURS).unwrap_or_default()
        };
        // The mark of a checkpoint that failed: others' records were stable too.
        assert_eq!(why(compared(1, 4, 102), aside(1, 4, 100, Some(102))), "");
        assert!(why(compared(1, 4, 103), aside(1, 4, 100, Some(102))).contains("are older than"));
        assert!(why(compared(1, 5, 1), aside(1, 4, 100, Some(102))).contains("are older than"));
        // A mark that was copied here from another file system.
        let mut copied = compared(1, 5, 1);
        copied.mark = copied.mark.map(|mark| Mark { file_system: Identity::default(), ..mark });
        assert_eq!(why(copied, aside(1, 4, 100, Some(102))), "");
        // A name of an older version does not tell.
        assert_eq!(why(compared(1, 4, 103), aside(1, 4, 100, None)), "");
        // Our log was made anew since; the mark is still of the one before.
        assert_eq!(why(compared(8, 4, 102), aside(8, 4, 100, Some(102))), "");
        assert!(why(compared(8, 5, 1), aside(8, 4, 100, Some(102))).contains("are older than"));
        assert!(why(compared(9, 4, 1), aside(1, 4, 100, Some(102))).contains("another intent log"));
    }

    #[test]
    fn any_moment_can_be_shown() {
        assert_eq!(time_shown(1_795_582_672_999), "2026-11-25T04:57:52Z");
        assert!(time_shown(u64::MAX).starts_with("9999-12-31"));
    }
}
