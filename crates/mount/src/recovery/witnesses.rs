//! Files by which the write verifier of a server without the recovery program is asked for: only COMMIT and WRITE
//! tell it, and only of regular files (RFC 1813 §3.3.21). It does no I/O.

use std::collections::{HashSet, VecDeque};

use steadfast_client::{ClientError, FileHandle, Identity, NfsStat3};

use crate::held::Verifier;

/// Files that were written to or made last, and are asked about, at most.
const NEW_MAX: usize = 8;
/// Others, which short-lived files do not push out, at most.
const LASTING_MAX: usize = 8;
/// Files whose COMMIT is remembered until the records of their names are looked at, at most.
const COMMITTED_MAX: usize = 16_384;

/// A file, and a user who may write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) file: FileHandle,
    pub(super) identity: Identity,
}

/// What the files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Testimony {
    Verifier(Verifier),
    /// All that say anything are gone.
    Gone,
    /// There is no file that says anything.
    Silent,
}

/// Files that this mount has written to or made.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// The one that was changed last comes first.
    new: VecDeque<Witness>,
    /// Those that have left `new`, and were there then, the oldest first: it has lasted longest.
    lasting: Vec<Witness>,
    committed: HashSet<FileHandle>,
    /// There is a new connection since a file has told the verifier.
    is_unsure: bool,
}

impl Witnesses {
    /// This user has written to the file, or has made it.
    pub(super) fn note(&mut self, file: &FileHandle, identity: &Identity) {
        if self.new.front().is_some_and(|newest| newest.file == *file) {
            return;
        }
        self.new.retain(|known| known.file != *file);
        self.lasting.retain(|known| known.file != *file);
        self.new.push_front(Witness { file: file.clone(), identity: identity.clone() });
        if self.new.len() > NEW_MAX
            && let Some(oldest) = self.new.pop_back()
        {
            // The last one has lasted least.
            self.lasting.truncate(LASTING_MAX - 1);
            self.lasting.push(oldest);
        }
    }

    /// The file is there, and was not changed: it does not come before those that were, nor push any out.
    pub(super) fn note_there(&mut self, file: &FileHandle, identity: &Identity) {
        if self.lasting.len() < LASTING_MAX && self.files().all(|known| known.file != *file) {
            self.lasting.push(Witness { file: file.clone(), identity: identity.clone() });
        }
    }

    /// On a new connection the server has said this, and those files are gone. True: it has lost something.
    pub(super) fn heard(
        &mut self,
        known: &mut Option<Verifier>,
        testimony: Testimony,
        gone: &HashSet<FileHandle>,
    ) -> bool {
        self.is_unsure = testimony == Testimony::Silent;
        match testimony {
            Testimony::Verifier(verifier) => {
                self.forget(gone);
                known.replace(verifier).is_some_and(|known| known != verifier)
            }
            // What somebody else has removed is hardly all that was made or written last. What this mount has
            // removed since it asked is known no more.
            Testimony::Gone => self.files().any(|known| gone.contains(&known.file)),
            Testimony::Silent => false,
        }
    }

    /// An answer about a file, which is noted already, has told the verifier. True: the server has lost something.
    ///
    /// A server that is still connected has not died. If it has another verifier, it could not write some data
    /// (RFC 1813 §4.8), and what is held of that is written again.
    pub(super) fn saw(&mut self, known: &mut Option<Verifier>, verifier: Verifier) -> bool {
        let is_other = known.replace(verifier).is_some_and(|known| known != verifier);
        std::mem::take(&mut self.is_unsure) && is_other
    }

    /// Nobody knows whether the server is the one that has told its verifier.
    pub(super) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// COMMIT has made the file stable.
    pub(super) fn note_committed(&mut self, file: &FileHandle) {
        // What is forgotten is only remembered for longer elsewhere.
        if self.committed.len() >= COMMITTED_MAX {
            self.committed.clear();
        }
        self.committed.insert(file.clone());
    }

    /// The files of [`Witnesses::note_committed`] since the last call.
    pub(super) fn take_committed(&mut self) -> HashSet<FileHandle> {
        std::mem::take(&mut self.committed)
    }

    /// The file was made again, and has another handle.
    pub(super) fn replace(&mut self, old: &FileHandle, new: &FileHandle) {
        for known in self.new.iter_mut().chain(&mut self.lasting) {
            if known.file == *old {
                known.file = new.clone();
            }
        }
    }

    /// The files are not there any more.
    pub(super) fn forget(&mut self, gone: &HashSet<FileHandle>) {
        self.new.retain(|known| !gone.contains(&known.file));
        self.lasting.retain(|known| !gone.contains(&known.file));
    }

    fn files(&self) -> impl Iterator<Item = &Witness> {
        self.new.iter().chain(&self.lasting)
    }

    /// All of them, first the one that was changed last.
    pub(super) fn all(&self) -> Vec<Witness> {
        self.files().cloned().collect()
    }
}

/// Asks one file after the other until one tells the verifier. Also returns those that are gone.
///
/// # Errors
/// When there is no answer; or the server says "later" of a file, and no other one has told the verifier.
pub(super) fn question(
    files: &[Witness],
    mut commit: impl FnMut(&Witness) -> Result<Verifier, ClientError>,
) -> Result<(Testimony, HashSet<FileHandle>), ClientError> {
    let (mut gone, mut later) = (HashSet::new(), None);
    for one in files {
        match commit(one) {
            Ok(verifier) => return Ok((Testimony::Verifier(verifier), gone)),
            Err(error) => match error.status() {
                Some(NfsStat3::Stale | NfsStat3::BadHandle) => drop(gone.insert(one.file.clone())),
                None => return Err(error),
                Some(NfsStat3::Jukebox) => later = Some(error),
                // It cannot be committed any more, and says nothing.
                Some(_) => {}
            },
        }
    }
    if let Some(later) = later {
        return Err(later);
    }
    let testimony = if gone.is_empty() { Testimony::Silent } else { Testimony::Gone };
    Ok((testimony, gone))
}

#[cfg(test)]
mod tests {
    use steadfast_client::{Failure, Wcc};

    use super::*;

    fn file(number: u8) -> FileHandle {
        FileHandle(vec![number; 4])
    }

    fn known(witnesses: &Witnesses) -> Vec<FileHandle> {
        witnesses.all().into_iter().map(|one| one.file).collect()
    }

    fn failed(status: NfsStat3) -> ClientError {
        ClientError::Failed(Box::new(Failure {
            procedure: "COMMIT",
            status,
            attributes: None,
            wcc: Wcc::default(),
            second_wcc: Wcc::default(),
        }))
    }

    #[test]
    fn the_file_that_was_changed_last_is_the_first_and_the_oldest_stay() {
        let mut witnesses = Witnesses::default();
        for number in (0..40).chain(30..40).chain([34, 5]) {
            witnesses.note(&file(number), &Identity::None);
        }
        let wanted = [5, 34, 39, 38, 37, 36, 35, 33, 0, 1, 2, 3, 4, 6, 31, 32];
        assert_eq!(known(&witnesses), wanted.map(file));
        witnesses.replace(&file(39), &file(99));
        witnesses.replace(&file(0), &file(100));
        witnesses.forget(&HashSet::from([file(38), file(1)]));
        let wanted = [5, 34, 99, 37, 36, 35, 33, 100, 2, 3, 4, 6, 31, 32];
        assert_eq!(known(&witnesses), wanted.map(file));
    }

    /// COMMIT comes late: names that were made after the change are newer.
    #[test]
    fn a_file_that_is_committed_was_not_changed() {
        let mut witnesses = Witnesses::default();
        for number in 0..9 {
            witnesses.note(&file(number), &Identity::None);
        }
        let before = known(&witnesses);
        for number in [3, 0] {
            witnesses.note_there(&file(number), &Identity::None);
        }
        assert_eq!(known(&witnesses), before);
        for number in 20..40 {
            witnesses.note_there(&file(number), &Identity::None);
        }
        let wanted = [before, (20..27).map(file).collect()].concat();
        assert_eq!(known(&witnesses), wanted, "they are asked last");
    }

    #[test]
    fn files_that_are_removed_soon_do_not_push_out_those_that_last() {
        let mut witnesses = Witnesses::default();
        witnesses.note(&file(0), &Identity::None);
        let short_lived: Vec<_> = (1..=100).map(file).collect();
        for one in &short_lived {
            witnesses.note(one, &Identity::None);
        }
        witnesses.forget(&short_lived.into_iter().collect());
        assert_eq!(known(&witnesses), [file(0)]);
    }

    #[test]
    fn files_that_this_mount_has_removed_since_it_has_asked_are_not_lost() {
        let mut witnesses = Witnesses::default();
        for number in 0..2 {
            witnesses.note(&file(number), &Identity::None);
        }
        let gone = HashSet::from([file(0), file(1)]);
        // A file of which the server has never told a verifier can be lost, too.
        for mut verifier in [None, Some([1; 8])] {
            assert!(witnesses.heard(&mut verifier, Testimony::Gone, &gone));
        }
        witnesses.forget(&gone);
        assert!(!witnesses.heard(&mut Some([1; 8]), Testimony::Gone, &gone));
    }

    /// A server, files of which crashes and others take away, and connections that break.
    #[test]
    fn each_crash_is_noticed_and_nothing_is_taken_for_one_while_a_file_is_there() {
        let mut seed = 1_u64;
        let mut choose = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut found, mut missed) = (0, 0);
        for _ in 0..2000 {
            let (mut witnesses, mut known) = (Witnesses::default(), None);
            let (mut there, mut epoch, mut next) = (HashSet::new(), 0_u8, 0_u8);
            // A verifier was told that the server has not any more.
            let mut is_due = false;
            for _ in 0..30 {
                let mut is_noticed = false;
                match choose(6) {
                    0 | 1 => {
                        next += 1;
                        there.insert(file(next));
                        witnesses.note(&file(next), &Identity::None);
                        is_noticed = witnesses.saw(&mut known, [epoch; 8]);
                    }
                    2 => there.retain(|_| choose(3) > 0),
                    3 => witnesses.forget(&HashSet::from([file(next)])),
                    which => {
                        let crashes = which == 4;
                        if crashes {
                            epoch += 1;
                            is_due = known.is_some();
                            there.retain(|_| choose(2) > 0);
                        }
                        let all = witnesses.all();
                        let has_some =
                            all.is_empty() || all.iter().any(|one| there.contains(&one.file));
                        let commit = |one: &Witness| {
                            let is_there = there.contains(&one.file);
                            is_there.then_some([epoch; 8]).ok_or_else(|| failed(NfsStat3::Stale))
                        };
                        let (told, gone) = question(&all, commit).expect("an answer");
                        is_noticed = witnesses.heard(&mut known, told, &gone);
                        assert!(!is_noticed || is_due || !has_some, "{told:?}");
                        assert!(!is_due || is_noticed || all.is_empty(), "{told:?}");
                    }
                }
                if is_noticed {
                    found += u32::from(is_due);
                    is_due = false;
                    known = None;
                } else if known == Some([epoch; 8]) {
                    missed += u32::from(is_due);
                    is_due = false;
                }
            }
        }
        assert!(found > 2000, "{found}");
        assert_eq!(missed, 0);
    }

    #[test]
    fn a_file_that_is_there_tells_more_than_those_that_are_not() {
        let mut witnesses = Witnesses::default();
        for number in 0..3 {
            witnesses.note(&file(number), &Identity::None);
        }
        let all = witnesses.all();
        let ask = |answers: [Result<Verifier, NfsStat3>; 3]| {
            let mut answers = answers.into_iter();
            question(&all, |_| match answers.next() {
                Some(answer) => answer.map_err(failed),
                None => Err(ClientError::Closed),
            })
        };
        let (stale, other) = (Err(NfsStat3::Stale), Err(NfsStat3::Acces));
        let (told, gone) = ask([stale, other, Ok([7; 8])]).expect("an answer");
        assert_eq!((told, gone), (Testimony::Verifier([7; 8]), HashSet::from([file(2)])));
        let (told, gone) = ask([stale, other, stale]).expect("an answer");
        assert_eq!((told, gone.len()), (Testimony::Gone, 2));
        assert_eq!(ask([other; 3]).expect("an answer").0, Testimony::Silent);
        // One that says "later" for ever is not waited for while another one tells.
        let later = Err(NfsStat3::Jukebox);
        let (told, gone) = ask([later, stale, Ok([7; 8])]).expect("an answer");
        assert_eq!((told, gone), (Testimony::Verifier([7; 8]), HashSet::from([file(1)])));
        assert!(ask([stale, later, stale]).is_err());
    }
}
