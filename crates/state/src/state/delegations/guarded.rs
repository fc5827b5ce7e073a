//! What the keeper of guards against local processes asks of the delegations, and tells them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::NotDelegated;
use crate::delegation_record::DelegationKind;
use crate::{Client, FileKey, State};

impl State {
    /// Recalls all delegations of a file, whoever has them: somebody is about to use it who is no client. A delegation
    /// to read that is not returned by this time, in ms, is revoked. One to write has as long as ever: its holder may be
    /// sending what it has written.
    pub fn recall_for_local(&self, now_ms: u64, file: &FileKey, until_ms: u64) {
        let Some(mut shard) = self.delegations.shard(file) else { return };
        let Some(all) = shard.files.get_mut(file) else { return };
        for held in all.iter_mut() {
            self.begin_recall(held, file, now_ms);
            if held.kind == DelegationKind::Read
                && let Some(recall) = &mut held.recall
            {
                recall.until_ms = Some(recall.until_ms.unwrap_or(until_ms).min(until_ms));
            }
        }
        shard.quieten(file, now_ms);
    }

    /// From now on [`Effect::Undelegated`](crate::Effect::Undelegated) tells when a file has no delegation any more.
    pub fn watch_delegations(&self) {
        self.delegations.is_watched.store(true, Ordering::Relaxed);
    }

    /// Whether anybody has a delegation of a file.
    pub fn is_delegated(&self, file: &FileKey) -> bool {
        self.delegations.shard(file).is_some_and(|shard| shard.files.contains_key(file))
    }

    /// Whether a client has the prospect of a delegation, before much is done for one. The grant decides.
    ///
    /// # Errors
    /// Why it has not, as far as that is known before.
    pub fn prospect_of_delegation(
        &self,
        now_ms: u64,
        client: &Arc<Client>,
        file: &FileKey,
        kind: DelegationKind,
    ) -> Result<(), NotDelegated> {
        if !self.settings.delegations.gives(kind) {
            return Err(NotDelegated::NotGiven);
        }
        if !client.has_callback_path() || self.is_in_grace(now_ms) {
            return Err(NotDelegated::Resource);
        }
        if client.revoked.load(Ordering::Relaxed) > 0 && client.opens.lock().lost.has(file) {
            return Err(NotDelegated::Contention);
        }
        let shard = self.delegations.shard(file).ok_or(NotDelegated::Resource)?;
        let all = shard.files.get(file).map_or(&[][..], Vec::as_slice);
        match all.iter().find(|held| Arc::ptr_eq(&held.client, client)) {
            Some(own) if own.kind < kind => return Err(NotDelegated::Upgrade),
            Some(_) => return Err(NotDelegated::HasOne),
            None => {}
        }
        let is_contended = shard.is_quiet(file, now_ms)
            || all
                .iter()
                .any(|held| kind.max(held.kind) == DelegationKind::Write || held.recall.is_some())
            || !self.files.may_delegate(client, file, (kind, false));
        if is_contended { Err(NotDelegated::Contention) } else { Ok(()) }
    }
}
