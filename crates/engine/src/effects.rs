//! What the state has others do: clients are told that they have a lock or may ask for it again, and delegations
//! are recalled.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_state::{Effect, GrantAnswer, LockKind, LockRange, NlmLock};
use steadfast_wire::nlm::{self, v4};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use crate::Shared;
use crate::callback::Asked;
use crate::nlm::{note::Note, procedure};
use crate::outbound::{Grant, Outbound, OutboundCall};
use crate::waits::WaitFor;

impl Shared {
    /// Sends what the state has others do, if there is anything: next to each call there is not.
    #[inline]
    pub(crate) fn send_effects(&self, now_ms: u64) {
        if self.state.has_work_for_others() {
            self.send_all_effects(now_ms);
        }
    }

    fn send_all_effects(&self, now_ms: u64) {
        self.settle_local_locks();
        loop {
            let effects = self.state.take_effects();
            if effects.is_empty() {
                return;
            }
            self.keep_state();
            let effects = self.of_delegations(now_ms, effects);
            // Whose locks they were must not reclaim them: that has to be stable first.
            if !self.keep_records() {
                self.state.put_back_effects(effects);
                return;
            }
            for effect in effects {
                let (host, file, owner, range, kind, bytes) = match effect {
                    Effect::Granted { host, file, owner, range, kind, note } => {
                        (host, file, owner, range, kind, note)
                    }
                    Effect::Free { client, owner, handle } => {
                        self.tell_of_free_lock(now_ms, client, owner, handle);
                        continue;
                    }
                    Effect::Recall { .. }
                    | Effect::AskHolder { .. }
                    | Effect::Answered { .. }
                    | Effect::Returned { .. }
                    | Effect::Undelegated { .. } => {
                        continue;
                    }
                };
                let grant = Grant { host, file, owner, range, kind };
                let Ok(note) = Note::decode(&mut Reader::new(&bytes)) else { continue };
                // Who is held back for a local process is not granted it before a second has passed.
                if !self.is_granted_locally(&file, range, kind, note.handle) {
                    self.take_grant_back(&grant, &bytes);
                } else if let Some(outbound) = self.outbound.get() {
                    outbound.send(self.granted(&**outbound, grant, &note));
                }
            }
        }
    }

    /// Carries out the effects that are of delegations, and gives back the others. They do not wait for
    /// the records of clients.
    fn of_delegations(&self, now_ms: u64, effects: Vec<Effect>) -> Vec<Effect> {
        let mut others = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Recall { client, id, file, handle, not_before_ms } => {
                    self.recall((now_ms, not_before_ms), client, id, file, handle);
                }
                Effect::AskHolder { client, id, file, handle, question } => {
                    let asked = Asked::Attributes { id, file, handle, question };
                    self.ask_holder(now_ms, client, asked);
                }
                Effect::Answered { file, question } => {
                    self.waits.wake(&WaitFor::Answer(file, question));
                }
                Effect::Returned { file } => self.delegation_is_returned(&file),
                Effect::Undelegated { file } => self.local_guards.forget_unused(&file),
                other => others.push(other),
            }
        }
        others
    }

    /// A local process was quicker than a grant of which the host does not know yet: it goes on waiting.
    fn take_grant_back(&self, grant: &Grant, note: &Arc<[u8]>) {
        let Grant { host, file, owner, range, kind } = grant;
        // Neither fails for what the state has granted; if too many wait, the host asks again.
        let _ = self.state.answer_grant(host, file, owner, *range, *kind, GrantAnswer::TakenBack);
        let (file, range, kind) = (*file, *range, *kind);
        let request = NlmLock { file, owner, range, kind, waits: Some(note) };
        let _ = self.state.nlm_hold_back(host, &request);
        self.settle_local_locks();
        self.keep_state();
    }

    /// The call that tells of a grant.
    fn granted(&self, outbound: &dyn Outbound, grant: Grant, note: &Note<'_>) -> OutboundCall {
        // Nobody but us has to understand it.
        let cookie = self.grants.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let LockRange { offset, length } = grant.range;
        let granted = v4::TestArgs {
            cookie: &cookie,
            exclusive: grant.kind == LockKind::Write,
            lock: v4::Lock {
                caller_name: outbound.own_name().as_bytes(),
                fh: note.handle,
                oh: &grant.owner.oh,
                svid: grant.owner.svid,
                offset,
                length: if length == u64::MAX { 0 } else { length },
            },
        };
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        if note.version == 4 {
            granted.encode(&mut w);
        } else {
            let v4::TestArgs { cookie, exclusive, lock } = granted;
            let (offset, length) = (u32::try_from(lock.offset), u32::try_from(lock.length));
            let mut lock: nlm::v1::Lock<'_> = lock.into();
            // The client knows its lock by the numbers that it asked with, though the range may go
            // beyond those of 32 bits.
            if let (Ok(offset), Ok(length)) = (offset, length) {
                (lock.offset, lock.length) = (offset, length);
            }
            nlm::v1::TestArgs { cookie, exclusive, lock }.encode(&mut w);
        }
        OutboundCall {
            to: grant.host.address(),
            from: note.local,
            transport: note.transport,
            program: nlm::PROGRAM,
            version: note.version,
            procedure: procedure::GRANTED,
            arguments,
            grant: Some(grant),
        }
    }
}
