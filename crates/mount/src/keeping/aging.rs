//! When records of names leave the journal of a mount whose server is foreign (`recovery.rs`).
//!
//! RFC 1813 §4.8 wants names stable when they are acknowledged, and not every server does that: nfs-ganesha leaves
//! them to its file system, which writes them within 5 s (ext4) to 30 s (XFS, btrfs). There is no call that makes a
//! name stable, nor one that asks. So a record stays until the same server has answered for longer than that.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use steadfast_client::{ClientError, FileHandle, Identity};

use super::{Answered, Keeping};
use crate::calls::Calls;
use crate::held::Verifier;
use crate::transport::Patience;

/// How long a name is remembered: longer than file systems leave it in memory.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(45);
/// Whoever makes a file does not wait longer for the verifier.
const LEARNING: Duration = Duration::from_secs(1);
/// Files that are tried when the last change is to be made stable, beside those that are asked for the verifier.
const FILES_ASKED_ABOUT: usize = 16;
/// So many are remembered of a file system at most, so that a replay does not take minutes.
pub(super) const NAMES_MAX: usize = 16_384;

/// What is asked of the records of a file system.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) now: Instant,
    /// All are to leave.
    pub(super) is_urgent: bool,
    /// Nobody knows whether the server is another one: then its age says nothing.
    pub(super) is_in_doubt: bool,
}

/// Which records leave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    /// So many of the first ones,
    pub(super) old: usize,
    /// and these of the others.
    pub(super) others: Vec<usize>,
    /// Some of the first ones are not old: COMMIT comes before they leave.
    pub(super) is_early: bool,
}

/// Which of these records leave. `verifier` is that of now.
///
/// The oldest leave first, since a change that is replayed after a later one has left would undo that. That a file
/// was made is no such change: it is not made again where its name is taken.
pub(super) fn leaving(
    records: &[Answered],
    committed: &HashSet<FileHandle>,
    verifier: Option<Verifier>,
    asked: Asked,
) -> Leaving {
    let is_certain = asked.is_urgent || !asked.is_in_doubt;
    let is_old = |one: &Answered| is_certain && asked.now.duration_since(one.at) >= KEPT_FOR;
    let old = records.iter().take_while(|one| is_old(one)).count();
    let least =
        if asked.is_urgent { records.len() } else { records.len().saturating_sub(NAMES_MAX) };
    let is_early = asked.is_urgent || least > old;
    let old = old.max(least);
    // COMMIT of a file makes its name stable, too, on all file systems of Linux that have a log. If it is gone after
    // that, others have removed it.
    let is_committed = |one: &Answered| {
        is_certain
            && one.sent_under == verifier
            && one.file.as_ref().is_some_and(|file| committed.contains(file))
    };
    let others = records.iter().enumerate().skip(old);
    let others = others.filter(|(_, one)| is_committed(one)).map(|(index, _)| index);
    Leaving { old, others: others.collect(), is_early }
}

impl Keeping {
    /// A file that this mount has made tells the verifier of a foreign server. `None`: it has not told it.
    pub(super) fn learn_verifier(
        &self,
        file: &FileHandle,
        identity: &Identity,
    ) -> Option<Verifier> {
        let losses = self.server.link.losses();
        let commit = |nfs: &mut Calls| nfs.commit(file, 0, 0);
        let patience = Patience { pid: 0, until: Some(Instant::now() + LEARNING) };
        // Otherwise a later one tells it.
        let verifier = self.server.call_once(identity, patience, commit).ok()?.verifier;
        self.recovery.saw_commit((file, identity), verifier, losses);
        Some(verifier)
    }

    /// Has those records leave that need not be remembered any more. False: the server has lost something
    /// meanwhile.
    pub(super) fn settle_foreign(
        &self,
        file_system: u64,
        (is_urgent, committed): (bool, &HashSet<FileHandle>),
        (patience, since): (Patience, Instant),
    ) -> Result<bool, ClientError> {
        let (finished, now) = (self.recovery.finished(), Instant::now());
        let verifier = self.recovery.verifier();
        let is_in_doubt = self.recovery.is_in_doubt();
        let (node, identity, Leaving { old, others, is_early }, files) = {
            let unstable = self.unstable.lock();
            let Some(one) = unstable.get(&file_system) else { return Ok(true) };
            let asked = Asked { now, is_urgent, is_in_doubt };
            let leaving = leaving(&one.records, committed, verifier, asked);
            let made = one.records.iter().rev().filter_map(|record| record.file.clone());
            let made: Vec<_> = made.take(FILES_ASKED_ABOUT).collect();
            (one.node.clone(), one.identity.clone(), leaving, made)
        };
        if old == 0 && others.is_empty() {
            return Ok(true);
        }
        // A server that has died since has lost them, and nobody has noticed yet. One that answers is not dead, or
        // was asked for its verifier before.
        if is_early {
            let files = files.into_iter().map(|file| (file, identity.clone()));
            if !self.recovery.commit_newest(&self.server, patience, files)? {
                tracing::debug!(
                    "changes of names leave the journal though no file could be committed"
                );
            }
        }
        let asked = self.server.call(&identity, patience, |nfs| nfs.getattr(&node.handle()));
        match asked {
            Err(error) if error.status().is_none() => return Err(error),
            _ => {}
        }
        let entered = self.recovery.enter(patience, since)?;
        if self.recovery.finished() != finished {
            return Ok(false);
        }
        self.write_back.forget_all_removed();
        let mut unstable = self.unstable.lock();
        let Some(one) = unstable.get_mut(&file_system) else { return Ok(true) };
        let mut index = 0;
        let mut settled = Vec::new();
        one.records.retain(|record| {
            let leaves = index < old || others.binary_search(&index).is_ok();
            index += 1;
            if leaves {
                settled.push(record.record);
            }
            !leaves
        });
        if one.records.is_empty() {
            unstable.remove(&file_system);
        }
        drop(unstable);
        self.journaling.settle_later(settled);
        drop(entered);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use steadfast_journal::Sequence;

    use super::*;

    fn record(number: u64, at: Instant, sent_under: Option<Verifier>) -> Answered {
        let file = Some(FileHandle(number.to_be_bytes().to_vec()));
        Answered { record: Sequence(number), sent_under, at, file }
    }

    #[test]
    fn names_are_remembered_until_they_are_old() {
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        let verifier = Some([1; 8]);
        let records: Vec<_> = (0..4).map(|number| record(number, at(number), verifier)).collect();
        let none = HashSet::new();
        let asked = |s: u64| Asked { now: at(s), is_urgent: false, is_in_doubt: false };
        let leave = |committed, verifier, asked| {
            let told = leaving(&records, committed, verifier, asked);
            (told.old, told.others, told.is_early)
        };
        assert_eq!(leave(&none, verifier, asked(44)), (0, vec![], false));
        assert_eq!(leave(&none, verifier, asked(45)), (1, vec![], false));
        assert_eq!(leave(&none, verifier, asked(47)), (3, vec![], false));
        let urgent = Asked { is_urgent: true, ..asked(3) };
        assert_eq!(leave(&none, verifier, urgent), (4, vec![], true));
        // Those of committed files leave out of their turn, unless the server has another verifier since.
        let committed: HashSet<_> = records[2].file.iter().cloned().collect();
        assert_eq!(leave(&committed, verifier, asked(45)), (1, vec![2], false));
        assert_eq!(leave(&committed, Some([2; 8]), asked(45)), (1, vec![], false));
        let in_doubt = Asked { is_in_doubt: true, ..asked(60) };
        assert_eq!(leave(&committed, verifier, in_doubt), (0, vec![], false));
    }

    #[test]
    fn not_more_than_so_many_are_remembered() {
        let begun = Instant::now();
        let all = NAMES_MAX as u64 + 3;
        let records: Vec<_> = (0..all).map(|number| record(number, begun, Some([1; 8]))).collect();
        for (is_in_doubt, age) in [(false, 0), (true, 0), (true, 60)] {
            let now = begun + Duration::from_secs(age);
            let asked = Asked { now, is_urgent: false, is_in_doubt };
            let told = leaving(&records, &HashSet::new(), Some([1; 8]), asked);
            assert_eq!(told, Leaving { old: 3, others: vec![], is_early: true });
        }
    }
}
