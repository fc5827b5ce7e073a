//! What the server has of clients that they do not know of, and who waits behind nobody: neither lasts.

use std::collections::BTreeMap;

use crate::Checked;
use crate::held::{Held, Lock};
use crate::server::OfClient;

/// What is found so long apart was there meanwhile.
const LASTS_MS: u64 = 12_000;

/// A client, its owner, a file, and a block; and whether it waits for that, and is stuck.
type Found = ((u64, u64, u64, u64), (bool, bool));

/// What was found, and since when it is there.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    since_ms: BTreeMap<Found, u64>,
}

impl Leftovers {
    /// The server was started: whoever had something has to be found again.
    pub(crate) fn begin(&mut self) {
        self.since_ms.clear();
    }

    /// Compares.
    ///
    /// # Errors
    /// What has lasted for too long.
    pub(crate) fn compare(&mut self, now_ms: u64, found: &[OfClient], held: &Held) -> Checked {
        let mut now = BTreeMap::new();
        for of in found {
            let &OfClient { client, owner, file, waits, is_stuck, .. } = of;
            // Of local processes the state does not know.
            let end = of.end;
            let all = Lock { client, owner, file, first: of.first, end, is_write: true };
            let is_stuck = is_stuck && !held.is_local(&all);
            for first in of.first..of.end {
                let block = Lock { client, owner, file, first, end: first + 1, is_write: true };
                let is_known = if waits {
                    held.waits_for_block(&block, now_ms)
                } else {
                    held.has_block(&block)
                };
                if is_stuck || !is_known {
                    let key = ((client, owner, file, first), (waits, is_stuck));
                    let since_ms = self.since_ms.get(&key).copied().unwrap_or(now_ms);
                    if now_ms > since_ms + LASTS_MS {
                        return Err(format!("{of:?} is left at the server since {since_ms} ms"));
                    }
                    now.insert(key, since_ms);
                }
            }
        }
        self.since_ms = now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_found() {
        let (mut held, mut leftovers) = (Held::default(), Leftovers::default());
        let of = |is_stuck| {
            let (client, owner, file, first, end) = (1, 0, 0, 3, 5);
            OfClient { client, owner, file, first, end, waits: is_stuck, is_stuck, is_host: true }
        };
        held.renew(1, u64::MAX / 2, 0).expect("nothing is held");
        let lock = Lock { client: 1, owner: 0, file: 0, first: 3, end: 5, is_write: true };
        held.lock(0, lock.clone()).expect("free");
        let mut at =
            |now_ms, is_stuck, held: &Held| leftovers.compare(now_ms, &[of(is_stuck)], held);
        at(0, false, &held).expect("it is known");
        at(LASTS_MS + 1, false, &held).expect("still");
        at(0, true, &held).expect("for a moment");
        at(LASTS_MS, true, &held).expect("not for long");
        at(LASTS_MS + 1, true, &held).expect_err("nobody is in its way");
        held.unlock(&Lock { end: 4, ..lock.clone() });
        at(0, false, &held).expect("for a moment");
        at(LASTS_MS + 1, false, &held).expect_err("nobody knows of it");
        for other in [
            Lock { file: 1, ..lock.clone() },
            Lock { owner: 1, ..lock.clone() },
            Lock { client: 2, ..lock.clone() },
        ] {
            held.claim(1, 0, Some(other), 0);
            at(0, false, &held).expect("for a moment");
            at(LASTS_MS + 1, false, &held).expect_err("another file, owner or client");
        }
        held.claim(1, 0, Some(lock), 0);
        at(LASTS_MS + 2, false, &held).expect("a call is under way");
    }
}
