//! What the journal knows of the server's answers, in the words of a replay.

use steadfast_client::Time;
use steadfast_journal::{
    Journal, Outcome, Pending, Record, Sequence, Stamp as Noted, Time as NotedTime,
};

use super::share::{Stamp, Who};

/// All handles that what a record makes has had, old ones first.
pub(super) fn handles_of(one: &Pending) -> impl Iterator<Item = Vec<u8>> {
    one.handles.iter().map(|handle| handle.to_vec())
}

pub(super) fn who_of(record: &Record<'_>) -> Who {
    Who { uid: record.uid, gid: record.gid, groups: record.groups.to_vec() }
}

fn time(noted: NotedTime) -> Time {
    let seconds = noted.seconds.clamp(0, i64::from(u32::MAX)) as u32;
    Time { seconds, nanoseconds: noted.nanoseconds }
}

fn stamp(noted: Noted) -> Stamp {
    let Noted { size, modified, changed } = noted;
    Stamp { size, mtime: time(modified), ctime: time(changed) }
}

/// What the server said last of an object.
pub(super) fn stamp_of(journal: &Journal, object: &[u8]) -> Option<Stamp> {
    journal.last_stamp(object).map(stamp)
}

/// What the server said of its object when it answered this change.
pub(super) fn answer_of(one: &Pending) -> Option<Stamp> {
    one.outcome.as_ref().and_then(|outcome| outcome.after).map(stamp)
}

/// Notes what the server has answered: with the next sync, and as long as the ring has room. Without it
/// a later replay finds out by comparing.
pub(super) fn note(journal: &Journal, of: Sequence, handle: &[u8], after: Option<Stamp>) {
    let time =
        |time: Time| NotedTime { seconds: i64::from(time.seconds), nanoseconds: time.nanoseconds };
    let after = after.map(|stamp| Noted {
        size: stamp.size,
        modified: time(stamp.mtime),
        changed: time(stamp.ctime),
    });
    let outcome = Outcome { handle: handle.to_vec(), after, ..Outcome::default() };
    if let Err(error) = journal.note_outcome(of, outcome) {
        tracing::debug!(%error, "an answer is not noted");
    }
}
