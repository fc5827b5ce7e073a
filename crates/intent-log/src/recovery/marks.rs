//! What a mark found on a file system says about the log's records of it: facts → fate, as a table.
//!
//! What a crash leaves, at each moment:
//!
//! - before the mark of a checkpoint reaches the disk: the mark of the checkpoint before;
//! - after it, before the flush has ended, or before a superblock says so: a mark that is beyond
//!   the superblock's tail. It was written with what the log had *stable* then, so the log has at
//!   least that: it is not beyond the end of the log;
//! - after the superblock was written: the mark that the superblock tells of, or a later one. (A
//!   superblock tells of a mark only when a flush has made it stable.)
//! - after a start or a renewal: an epoch that is later than the mark's. No mark has the new epoch
//!   before both superblocks have;
//! - of a file system that was away or faulty, and whose records were set aside: the mark of before.
//!   It gets another one only when they have been replayed.
//!
//! All else is no crash: somebody has brought back an older copy of the log or of the disk, or has
//! had the disk served by another log.

use crate::format::Lsn;
use crate::mark::{Mark, MarkPlace};
use crate::superblock::Identity;

/// What is known of one file system at the start.
#[derive(Clone, Copy, Debug)]
pub struct MarkFacts<'a> {
    /// The log.
    pub log: &'a [u8; 16],
    /// The file system.
    pub identity: Identity,
    /// The epoch of the log's records.
    pub epoch: u64,
    /// The last record of the log.
    pub last: Lsn,
    /// The last mark that the log knows to be on the file system.
    pub known: Option<MarkPlace>,
    /// The mark that is there.
    pub found: Option<&'a Mark>,
}

/// What the relation of a log and one of its file systems is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// As a crash leaves it: its records are replayed, but for those up to this LSN, which are known
    /// to be on the disk.
    Replay(Lsn),
    /// The file system had been taken further than the log has records of: the log is an older copy,
    /// or has lost its end.
    LogIsOlder,
    /// The log has taken it further than it is: the disk was rolled back.
    DiskIsOlder,
    /// Another log has served it since, or a copy of this one under another name.
    OtherLog,
    /// The mark that the log wrote is not there: it was removed, or the disk is from before it.
    MarkIsGone,
}

/// A row of the table: what is asked, and what follows.
struct Case {
    label: &'static str,
    fits: fn(&MarkFacts<'_>) -> bool,
    fate: fn(&MarkFacts<'_>) -> Fate,
}

fn ours<'a>(facts: &MarkFacts<'a>) -> Option<&'a Mark> {
    theirs(facts).filter(|mark| mark.log == *facts.log)
}

/// The mark, if it was written to this file system. One of another came with a file that was copied
/// here, and says nothing.
fn theirs<'a>(facts: &MarkFacts<'a>) -> Option<&'a Mark> {
    facts.found.filter(|mark| mark.file_system == facts.identity)
}

const CASES: &[Case] = &[
    // A file system that is new to the log, or that was served by a version that wrote no marks.
    // Nothing can be told, as before there were marks.
    Case {
        label: "no mark yet",
        fits: |facts| theirs(facts).is_none() && facts.known.is_none(),
        fate: |_| Fate::Replay(Lsn(0)),
    },
    // The log knows that its mark had been flushed. A crash does not take it away.
    Case {
        label: "mark is gone",
        fits: |facts| theirs(facts).is_none(),
        fate: |_| Fate::MarkIsGone,
    },
    // The log knows that its own mark had been flushed, so that the other one came later.
    Case {
        label: "another log's mark",
        fits: |facts| ours(facts).is_none() && facts.known.is_some(),
        fate: |_| Fate::OtherLog,
    },
    // It has begun to use a file system of another one's, and there was no checkpoint yet.
    Case {
        label: "another log's mark of before",
        fits: |facts| ours(facts).is_none(),
        fate: |_| Fate::Replay(Lsn(0)),
    },
    // Marks have an epoch only after both superblocks have it: these are superblocks of before.
    Case {
        label: "later epoch",
        fits: |facts| ours(facts).is_some_and(|mark| mark.epoch > facts.epoch),
        fate: |_| Fate::LogIsOlder,
    },
    // The records up to the mark were stable when it was written, and are not all there.
    Case {
        label: "beyond the log's end",
        fits: |facts| {
            ours(facts).is_some_and(|mark| mark.epoch == facts.epoch && mark.stable > facts.last)
        },
        fate: |_| Fate::LogIsOlder,
    },
    // A later mark had been flushed, and an earlier one is there.
    Case {
        label: "earlier than known",
        fits: |facts| ours(facts).is_some_and(|mark| facts.known > Some(mark.place())),
        fate: |_| Fate::DiskIsOlder,
    },
    // After a crash, in the epoch of the records: those that had been flushed before the mark was
    // written are in effect, and may have been changed since without the log.
    Case {
        label: "as a crash leaves it",
        fits: |facts| ours(facts).is_some_and(|mark| mark.epoch == facts.epoch),
        fate: |facts| Fate::Replay(ours(facts).map_or(Lsn(0), |mark| mark.flushed)),
    },
    // The same, before the first checkpoint of an epoch.
    Case { label: "of an epoch before", fits: |_| true, fate: |_| Fate::Replay(Lsn(0)) },
];

/// The row that fits, by its label, and what follows from it.
pub fn fate(facts: &MarkFacts<'_>) -> (&'static str, Fate) {
    let case = CASES.iter().find(|case| (case.fits)(facts));
    // The last row fits everything.
    case.map_or(("", Fate::Replay(Lsn(0))), |case| (case.label, (case.fate)(facts)))
}

/// Whether records that were set aside are older than their file system: it was taken further by the
/// log that they are of. A file system whose records are set aside gets no mark before they are
/// replayed. `log_end`: the last record that the whole log had when they were set aside, of whatever
/// file system: a mark tells what was stable of all.
pub fn is_aside_older(found: &Mark, log: &[u8; 16], epoch: u64, log_end: Lsn) -> bool {
    found.log == *log && (found.epoch > epoch || (found.epoch == epoch && found.stable > log_end))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const IDENTITY: Identity = Identity { uuid: [3; 16], kind: 1 };
    const LOG: [u8; 16] = [7; 16];

    fn mark(epoch: u64, applied: u64, stable: u64, flushed: u64) -> Mark {
        Mark {
            log: LOG,
            host: [0; 16],
            file_system: IDENTITY,
            sequence: 1,
            epoch,
            applied: Lsn(applied),
            stable: Lsn(stable),
            flushed: Lsn(flushed),
            time_ms: 0,
        }
    }

    fn place(epoch: u64, applied: u64) -> MarkPlace {
        MarkPlace { epoch, applied: Lsn(applied) }
    }

    /// By a log of epoch 5 whose last record is 100.
    fn found(known: Option<MarkPlace>, found: Option<&Mark>) -> (&'static str, Fate) {
        let (log, identity) = (&LOG, IDENTITY);
        fate(&MarkFacts { log, identity, epoch: 5, last: Lsn(100), known, found })
    }

    #[test]
    fn each_row_decides_as_it_says() {
        let copied = Mark { file_system: Identity::default(), ..mark(9, 9, 9, 9) };
        let other = Mark { log: [8; 16], ..mark(9, 900, 900, 900) };
        let at = |epoch, applied, stable| mark(epoch, applied, stable, 40);
        let rows = [
            (None, None, "no mark yet", Fate::Replay(Lsn(0))),
            (None, Some(copied), "no mark yet", Fate::Replay(Lsn(0))),
            (Some(place(5, 50)), None, "mark is gone", Fate::MarkIsGone),
            (Some(place(5, 50)), Some(copied), "mark is gone", Fate::MarkIsGone),
            (None, Some(other), "another log's mark of before", Fate::Replay(Lsn(0))),
            (Some(place(5, 50)), Some(other), "another log's mark", Fate::OtherLog),
            (None, Some(at(6, 1, 1)), "later epoch", Fate::LogIsOlder),
            (Some(place(5, 50)), Some(at(6, 1, 1)), "later epoch", Fate::LogIsOlder),
            (Some(place(5, 50)), Some(at(5, 150, 101)), "beyond the log's end", Fate::LogIsOlder),
            (Some(place(5, 50)), Some(at(5, 49, 49)), "earlier than known", Fate::DiskIsOlder),
            (Some(place(5, 50)), Some(at(4, 400, 400)), "earlier than known", Fate::DiskIsOlder),
            (
                Some(place(5, 50)),
                Some(at(5, 50, 45)),
                "as a crash leaves it",
                Fate::Replay(Lsn(40)),
            ),
            // Reserved, and lost with the crash before they were stable: nobody was told of them.
            (
                Some(place(5, 50)),
                Some(at(5, 150, 100)),
                "as a crash leaves it",
                Fate::Replay(Lsn(40)),
            ),
            (None, Some(at(5, 50, 50)), "as a crash leaves it", Fate::Replay(Lsn(40))),
            (Some(place(4, 50)), Some(at(4, 50, 50)), "of an epoch before", Fate::Replay(Lsn(0))),
            (None, Some(at(3, 5000, 5000)), "of an epoch before", Fate::Replay(Lsn(0))),
        ];
        let mut reached = BTreeSet::new();
        for (known, mark, label, fate) in rows {
            assert_eq!(found(known, mark.as_ref()), (label, fate), "{known:?} {mark:?}");
            reached.insert(label);
        }
        let labels: BTreeSet<&str> = CASES.iter().map(|case| case.label).collect();
        assert_eq!(reached, labels);
        assert_eq!(labels.len(), CASES.len());
    }

    /// A log, a disk, and all that a crash may leave of both while checkpoints go on: never refused.
    /// Any earlier copy of the log beside a later disk, and of the disk beside a later log, is seen
    /// once a checkpoint has ended between them.
    #[test]
    fn histories_with_crashes_are_replayed_and_older_copies_are_seen() {
        #[derive(Clone, Copy, Debug)]
        struct Moment {
            epoch: u64,
            last: u64,
            known: Option<MarkPlace>,
            mark: Option<Mark>,
            checkpoints: u32,
        }
        let mut moments = Vec::new();
        let mut now = Moment { epoch: 1, last: 0, known: None, mark: None, checkpoints: 0 };
        for round in 0..12_u64 {
            // Records become stable; some more are reserved.
            now.last += 3;
            moments.push(now);
            let applied = now.last + 2;
            let flushed = now.known.filter(|known| known.epoch == now.epoch);
            let flushed = flushed.map_or(0, |known| known.applied.0);
            let earlier = now.mark;
            // The mark may reach the disk before the flush has ended.
            now.mark = Some(mark(now.epoch, applied, now.last, flushed));
            now.checkpoints += 1;
            moments.push(now);
            // And may not, while more records become stable.
            now.last = applied;
            moments.push(Moment { mark: earlier, checkpoints: now.checkpoints - 1, ..now });
            moments.push(now);
            now.known = now.mark.map(|mark| mark.place());
            moments.push(now);
            if round % 4 == 3 {
                now.epoch += 1;
                now.last += 1000;
                moments.push(now);
            }
        }
        let fate_of = |log: &Moment, disk: &Moment| {
            let (uuid, identity) = (&LOG, IDENTITY);
            let (epoch, last, known) = (log.epoch, Lsn(log.last), log.known);
            let found = disk.mark.as_ref();
            fate(&MarkFacts { log: uuid, identity, epoch, last, known, found }).1
        };
        for (at, moment) in moments.iter().enumerate() {
            assert!(matches!(fate_of(moment, moment), Fate::Replay(_)), "{at} {moment:?}");
            for later in &moments[at..] {
                // Two checkpoints on, the later one's mark is of records that the earlier has not.
                if later.checkpoints >= moment.checkpoints + 2 {
                    assert_eq!(fate_of(moment, later), Fate::LogIsOlder, "{moment:?} {later:?}");
                    let rolled_back = fate_of(later, moment);
                    let expected =
                        if moment.mark.is_some() { Fate::DiskIsOlder } else { Fate::MarkIsGone };
                    assert_eq!(rolled_back, expected, "{moment:?} {later:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_set_aside_is_older_than_a_disk_that_went_on() {
        let aside = |mark: Mark| is_aside_older(&mark, &LOG, 5, Lsn(100));
        assert!(!aside(mark(5, 150, 100, 0)) && !aside(mark(4, 900, 900, 0)));
        assert!(aside(mark(5, 150, 101, 0)) && aside(mark(6, 1, 1, 0)));
        assert!(!aside(Mark { log: [8; 16], ..mark(6, 1, 1, 0) }));
    }
}
