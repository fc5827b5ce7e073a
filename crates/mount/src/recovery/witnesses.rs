//! Files by which the write verifier of a server without the recovery program is asked for: only COMMIT and WRITE
//! tell it, and only of regular files (RFC 1813 §3.3.21). It does no I/O.

use std::collections::{HashSet, VecDeque};

use steadfast_client::{ClientError, FileHandle, Identity, NfsStat3};

use crate::held::Verifier;

/// Files that are asked about, at most.
const FILES_MAX: usize = 16;
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

/// Files that this mount has written to or made, the newest first.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    files: VecDeque<Witness>,
    committed: HashSet<FileHandle>,
}

impl Witnesses {
    /// This user has written to the file, or has made it.
    pub(super) fn note(&mut self, file: &FileHandle, identity: &Identity) {
        if self.files.iter().any(|known| known.file == *file) {
            return;
        }
        self.files.truncate(FILES_MAX - 1);
        self.files.push_front(Witness { file: file.clone(), identity: identity.clone() });
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
        for known in &mut self.files {
            if known.file == *old {
                known.file = new.clone();
            }
        }
    }

    /// The files are not there any more.
    pub(super) fn forget(&mut self, gone: &HashSet<FileHandle>) {
        self.files.retain(|known| !gone.contains(&known.file));
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Witness> {
        self.files.iter().cloned().collect()
    }
}

/// Asks one file after the other until one tells the verifier. Also returns those that are gone.
///
/// # Errors
/// When there is no answer, or the server says "later".
pub(super) fn question(
    files: &[Witness],
    mut commit: impl FnMut(&Witness) -> Result<Verifier, ClientError>,
) -> Result<(Testimony, HashSet<FileHandle>), ClientError> {
    let mut gone = HashSet::new();
    for one in files {
        match commit(one) {
            Ok(verifier) => return Ok((Testimony::Verifier(verifier), gone)),
            Err(error) => match error.status() {
                Some(NfsStat3::Stale | NfsStat3::BadHandle) => drop(gone.insert(one.file.clone())),
                None | Some(NfsStat3::Jukebox) => return Err(error),
                // It cannot be committed any more, and says nothing.
                Some(_) => {}
            },
        }
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
    fn the_newest_files_are_known_once() {
        let mut witnesses = Witnesses::default();
        for number in (0..40).chain(30..40) {
            witnesses.note(&file(number), &Identity::None);
        }
        let known: Vec<_> = witnesses.all().into_iter().map(|one| one.file).collect();
        let wanted: Vec<_> = (24..40).rev().map(file).collect();
        assert_eq!(known, wanted);
        witnesses.replace(&file(39), &file(99));
        witnesses.forget(&HashSet::from([file(38)]));
        let known: Vec<_> = witnesses.all().into_iter().map(|one| one.file).collect();
        assert_eq!((known.len(), &known[0], &known[1]), (15, &file(99), &file(37)));
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
        assert!(ask([stale, Err(NfsStat3::Jukebox), Ok([7; 8])]).is_err());
    }
}
