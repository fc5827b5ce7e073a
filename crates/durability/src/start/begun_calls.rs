//! Calls that had begun when the server was killed ([`crate::begun`]): what was done of them, and the replies
//! to those that were.

use std::collections::HashSet;

use steadfast_engine::{BegunReplies, StateImage, call_of_mark, kept_as, may_be_under_way};
use steadfast_intent_log::{FileSystemEntry, Identity};
use steadfast_recovery::{BegunCall, FileSystemIdentity, Recoverable, outcome_of};
use steadfast_vfs::Time;

use crate::begun::found;
use crate::listing::shown;
use crate::replies::REPLIES_STAY;
use crate::state_image::FoundState;
use crate::storages::Storages;

use super::StartIntentLog;

fn is_older(one: &Time, newest: &Time) -> bool {
    newest.seconds.saturating_sub(one.seconds) > REPLIES_STAY.as_secs() as i64
}

/// What came of calls that had begun.
#[derive(Default)]
struct Made {
    /// Replies to those that were done, and of which file system they tell.
    replies: Vec<(Identity, Vec<u8>)>,
    /// File systems of COMPOUNDs, of which more may be known to have been done than their marks tell.
    compounds: Vec<Identity>,
    /// How many were not done, or it cannot be told.
    others: usize,
}

impl Made {
    /// Makes stable what the replies tell, and drops those of which that cannot be done.
    fn keep_stable(&mut self, storages: &mut Storages) {
        for (entry, storage) in storages.iter_mut() {
            let is_told = self.replies.iter().any(|(identity, _)| *identity == entry.identity);
            if (is_told || self.compounds.contains(&entry.identity))
                && let Err(why) = storage.make_stable()
            {
                tracing::warn!(
                    "{}: calls that were done when the server was killed are executed again if they are \
                     sent again: {why}",
                    shown(entry)
                );
                self.replies.retain(|(identity, _)| *identity != entry.identity);
            }
        }
    }
}

impl StartIntentLog {
    /// Makes the replies to calls that a killed server had done, of which `known` has none. What they
    /// tell is stable then.
    pub(super) fn replies_of_begun<'r>(
        &self,
        known: impl Iterator<Item = &'r [u8]>,
        file_systems: &[FileSystemEntry],
        not_replayed: &[Identity],
        storages: &mut Storages,
    ) -> Vec<Vec<u8>> {
        let payloads = found(&self.state_directory).unwrap_or_else(|error| {
            tracing::warn!("cannot read which calls had begun when the server was killed: {error}");
            Vec::new()
        });
        let mut calls: Vec<_> =
            payloads.iter().filter_map(|payload| BegunCall::decode(payload)).collect();
        calls.sort_by_key(|call| call.at);
        let Some(newest) = calls.last().map(|call| call.at) else { return Vec::new() };
        let image = self.client_state(&calls);
        calls.retain(|call| may_be_under_way(call.call.key, image.as_ref()));
        // A COMPOUND of which an operation is known may have been killed again in a later one.
        let known: HashSet<&[u8]> = known.filter_map(kept_as).collect();
        let lacks = |name: &[u8]| !known.contains(name) && !known.contains(call_of_mark(name));
        calls.retain(|call| {
            let FileSystemIdentity { uuid, kind } = call.file_system;
            lacks(call.call.key)
                && !is_older(&call.at, &newest)
                && !not_replayed.contains(&Identity { uuid, kind })
        });
        let mut made = self.make_replies(&calls, file_systems, storages);
        made.keep_stable(storages);
        if !made.replies.is_empty() || made.others > 0 {
            tracing::info!(
                "the server was killed with calls in flight: {} were done and get their replies if they \
                 are sent again, {} were not, or it cannot be told",
                made.replies.len(),
                made.others
            );
        }
        made.replies.into_iter().map(|(_, behind)| behind).collect()
    }

    /// Looks on the file systems whether calls were done, and makes the replies to those that were.
    fn make_replies(
        &self,
        calls: &[BegunCall<'_>],
        file_systems: &[FileSystemEntry],
        storages: &mut Storages,
    ) -> Made {
        let maker = BegunReplies::new(&self.handle_key);
        let mut made = Made::default();
        for call in calls {
            let FileSystemIdentity { uuid, kind } = call.file_system;
            let identity = Identity { uuid, kind };
            let Some(storage) = self.storage_of(identity, file_systems, storages) else { continue };
            if call_of_mark(call.call.key) != call.call.key {
                made.compounds.push(identity);
            }
            match maker.reply(call, || outcome_of(storage, call)) {
                Ok(Some(behind)) => made.replies.push((identity, behind)),
                Ok(None) => made.others += 1,
                Err(error) => {
                    made.others += 1;
                    tracing::debug!(
                        "a call had begun, and its objects cannot be looked at: {error}"
                    );
                }
            }
        }
        made
    }

    /// What is known of sessions, if a call of one is among these.
    fn client_state(&self, calls: &[BegunCall<'_>]) -> Option<StateImage> {
        let is_of_session = |call: &BegunCall<'_>| !may_be_under_way(call.call.key, None);
        if !calls.iter().any(is_of_session) {
            return None;
        }
        let found = FoundState::find(&self.state_directory).unwrap_or_else(|error| {
            tracing::warn!(
                "cannot read what clients had opened and locked when the server was killed: {error}"
            );
            None
        });
        found.map(|found| found.image)
    }

    fn storage_of<'s>(
        &self,
        identity: Identity,
        file_systems: &[FileSystemEntry],
        storages: &'s mut Storages,
    ) -> Option<&'s mut dyn Recoverable> {
        if !storages.iter().any(|(known, _)| known.identity == identity) {
            let entry = file_systems.iter().find(|entry| entry.identity == identity)?;
            match self.open(entry) {
                Ok(storage) => storages.push((entry.clone(), storage?)),
                Err(error) => {
                    tracing::debug!("calls had begun on what cannot be opened: {error}");
                    return None;
                }
            }
        }
        let (_, storage) = storages.iter_mut().find(|(known, _)| known.identity == identity)?;
        Some(&mut **storage)
    }
}
