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
        let maker = BegunReplies::new(&self.handle_key);
        let mut made: Vec<(Identity, Vec<u8>)> = Vec::new();
        // Of COMPOUNDs more may be known to have been done than their marks tell.
        let mut compounds = Vec::new();
        let mut others = 0;
        for call in &calls {
            let FileSystemIdentity { uuid, kind } = call.file_system;
            let identity = Identity { uuid, kind };
            if !lacks(call.call.key)
                || is_older(&call.at, &newest)
                || not_replayed.contains(&identity)
            {
                continue;
            }
            let Some(storage) = self.storage_of(identity, file_systems, storages) else { continue };
            if call_of_mark(call.call.key) != call.call.key {
                compounds.push(identity);
            }
            match maker.reply(call, || outcome_of(storage, call)) {
                Ok(Some(behind)) => made.push((identity, behind)),
                Ok(None) => others += 1,
                Err(error) => {
                    others += 1;
                    tracing::debug!(
                        "a call had begun, and its objects cannot be looked at: {error}"
                    );
                }
            }
        }
        for (entry, storage) in storages.iter_mut() {
            let is_told = made.iter().any(|(identity, _)| *identity == entry.identity);
            if (is_told || compounds.contains(&entry.identity))
                && let Err(why) = storage.make_stable()
            {
                tracing::warn!(
                    "{}: calls that were done when the server was killed are executed again if they are \
                     sent again: {why}",
                    shown(entry)
                );
                made.retain(|(identity, _)| *identity != entry.identity);
            }
        }
        if !made.is_empty() || others > 0 {
            tracing::info!(
                "the server was killed with calls in flight: {} were done and get their replies if they \
                 are sent again, {others} were not, or it cannot be told",
                made.len()
            );
        }
        made.into_iter().map(|(_, behind)| behind).collect()
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
