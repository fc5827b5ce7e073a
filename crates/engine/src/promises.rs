//! What a call's reply promises, until that is so.

use smallvec::SmallVec;
use steadfast_vfs::{Flush, LoggedChange, Obligation};

/// What a parked call waits for.
#[derive(Debug)]
pub enum Awaited {
    /// Objects must be flushed.
    Flush(Flush),
    /// The intent log must be stable up to this LSN.
    Lsn(u64),
}

/// What a call's reply promises, and so depends on.
#[derive(Default)]
pub(crate) struct Promises {
    /// Where the reply's result begins in its buffer.
    pub(crate) result_at: usize,
    /// A change whose record in the log is filled together with the result.
    change: Option<LoggedChange>,
    /// Up to where the log must be stable for changes whose records are filled.
    lsn: Option<u64>,
    /// What must be flushed, of each file system once.
    flushes: SmallVec<[Flush; 1]>,
    /// Where the result has write verifiers, to be those in force when the obligation is met.
    pub(crate) verifiers_at: SmallVec<[usize; 1]>,
}

impl Promises {
    /// Nothing yet, of a result that begins there.
    pub(crate) fn of_result(result_at: usize) -> Self {
        Self { result_at, ..Self::default() }
    }

    /// Whether the reply may go out at once.
    pub(crate) fn is_empty(&self) -> bool {
        self.change.is_none() && self.lsn.is_none() && self.flushes.is_empty()
    }

    /// Something more must be stable first.
    pub(crate) fn join(&mut self, obligation: Obligation) {
        match obligation {
            Obligation::Log(change) => {
                self.fill();
                self.change = Some(change);
            }
            Obligation::Flush(flush) => {
                let known = self.flushes.iter_mut().find(|known| known.domain == flush.domain);
                match known {
                    Some(known) => known.targets.extend(flush.targets),
                    None => self.flushes.push(flush),
                }
            }
        }
    }

    /// Fills the record of the last change, of which no reply is kept: while a place in the log is
    /// not filled, nobody's change behind it becomes stable.
    pub(crate) fn fill(&mut self) {
        if let Some(change) = self.change.take() {
            self.lsn = self.lsn.max(Some(change.fill(|_| {})));
        }
    }

    /// What is to be waited for, one after another. `append` adds to the record of the last change
    /// what belongs behind it.
    pub(crate) fn end(self, append: impl FnOnce(&mut Vec<u8>)) -> impl Iterator<Item = Awaited> {
        let filled = self.change.map(|change| change.fill(append));
        let lsn = self.lsn.max(filled).map(Awaited::Lsn);
        self.flushes.into_iter().map(Awaited::Flush).chain(lsn)
    }
}
