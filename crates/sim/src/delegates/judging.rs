//! What the client makes of replies.

use steadfast_wire::nfs4::{NfsStat4, Open4Result, OpenDelegation4, Read4Result};
use steadfast_xdr::{Decode, Reader};

use super::{
    ATTENTIVE_MS, Call, Deed, DelegateClient, Delegation, File, Lost, Phase, STATEFUL, STATELESS,
    STRANGERS_FROM, Worker,
};
use crate::Checked;
use crate::callbacks::{BACK_FAULT, PATH_DOWN};
use crate::client::{Context, Then};
use crate::delegated::What;
use crate::held::LEASE_MS;
use crate::message::unreadable;

/// A grace period lasts for two leases at most, and a tick.
const GRACE_MS: u64 = 2 * LEASE_MS + 5_000;
/// Who is in the way has returned what it has, or lost it, after so long: five leases if the server could
/// not tell it, one to return it, and one since it may have been silent.
const REFUSED_MS: u64 = 7 * LEASE_MS;
/// A callback arrives within this time, in ms.
const SENT_WITHIN_MS: u64 = 20_000;
/// That a lease is over the server finds within this time.
const REVOKED_WITHIN_MS: u64 = 5_000;
/// Who hears the server, and does what that asks for, loses nothing. In so long it hears of a recall.
const HEARD_WITHIN_MS: u64 = LEASE_MS + 60_000;
const REVOKED_ALL: u32 = 0x8 | 0x10 | 0x20;
/// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`.
const REVOKED: u32 = 0x40;
const RESTART_RECLAIM_NEEDED: u32 = 0x100;
/// `EXCHGID4_FLAG_CONFIRMED_R`.
const CONFIRMED: u32 = 0x8000_0000;
const JUKEBOX: u32 = 10_008;
const NOENT: u32 = 2;
const EXIST: u32 = 17;

fn is(status: u32, expected: NfsStat4) -> bool {
    status == expected as u32
}

impl DelegateClient {
    pub(super) fn take_reply(
        &mut self,
        call: Call,
        results: &[u8],
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        let mut r = Reader::new(results);
        if let Call::Stranger(deed, file, _) = call {
            return self.stranger_did(call, (deed, file), &mut r, cx);
        }
        let head = (r.u32(), r.opaque(16).map(drop), r.u32(), r.u32(), r.u32());
        let (Ok(status), Ok(()), Ok(count), Ok(_), Ok(first_status)) = head else {
            return Err("a COMPOUND's result that cannot be read".into());
        };
        if matches!(call, Call::Exchange | Call::Create) {
            return self.made_client(call, status, &mut r, cx);
        }
        if first_status != 0 {
            if is(first_status, NfsStat4::Delay) {
                return self.again(STATEFUL, call, cx);
            }
            if is(first_status, NfsStat4::BadSession) || is(first_status, NfsStat4::DeadSession) {
                return self.start_over("BADSESSION", cx);
            }
            return Err(format!("SEQUENCE of {call:?} got {first_status}"));
        }
        if call == Call::Bind {
            return Ok(Then::after(1));
        }
        let _session_to_target = r.fixed_opaque(32).map_err(unreadable)?;
        let flags = r.u32().map_err(unreadable)?;
        self.sequence += 1;
        if flags & RESTART_RECLAIM_NEEDED != 0 && self.phase == Phase::Ready {
            return self.start_over("RESTART_RECLAIM_NEEDED", cx);
        }
        if flags & REVOKED_ALL != 0 {
            if cx.held.is_valid(self.number, cx.now_ms) {
                return Err(format!("client {} lost all, in time: {flags:#x}", self.number));
            }
            return Ok(self.reboot(cx));
        }
        cx.held.renew(self.number, cx.sent_ms, cx.now_ms)?;
        self.hears(cx);
        if flags & REVOKED != 0 {
            self.doubts(cx)?;
        } else {
            cx.delegated.had_all(self.number, cx.sent_ms)?;
            self.keeps_nothing_for_long(cx)?;
        }
        // Of the last operation: what precedes it is PUTFH, which tells nothing.
        let told = r.fixed_opaque(r.remaining()).map_err(unreadable)?;
        let result = if count > 2 { told.get(16..) } else { told.get(8..) }.unwrap_or(&[]);
        let then = self.judge(call, status, &mut Reader::new(result), cx)?;
        self.is_path_down = flags & PATH_DOWN != 0;
        if flags & BACK_FAULT != 0 {
            if self.made_ms > cx.started_ms {
                let number = self.number;
                return Err(format!("the server finds fault with client {number}'s replies"));
            }
            // Two processes have not heard of their last callbacks. The client needs another session.
            self.phase = Phase::Exchange;
        }
        Ok(then)
    }

    /// What was not returned within a lease of being recalled is revoked, and its client is told.
    fn keeps_nothing_for_long(&self, cx: &Context<'_>) -> Checked {
        let is_kept = |held: &Delegation| {
            // Each process gives its holder a lease anew.
            let is_told = held.is_recalled && held.recalled_ms > cx.started_ms;
            is_told && cx.sent_ms > held.recalled_ms + LEASE_MS + REVOKED_WITHIN_MS
        };
        match self.files.iter().filter_map(|file| file.delegation).find(is_kept) {
            Some(held) => Err(format!("client {} has kept {held:?} for too long", self.number)),
            None => Ok(()),
        }
    }

    /// The server has answered.
    fn hears(&mut self, cx: &Context<'_>) {
        let was_away = cx.now_ms > self.heard_ms + ATTENTIVE_MS;
        self.heard_ms = cx.now_ms;
        if was_away || self.attentive_ms < cx.started_ms {
            self.attentive_ms = cx.now_ms;
        }
    }

    /// Something was revoked. What it is shows when it is returned.
    fn doubts(&mut self, cx: &mut Context<'_>) -> Checked {
        let is_known = self.files.iter().any(|file| file.revoked.is_some());
        let mut count = 0;
        // What is known to be revoked is not told of any more once it is freed.
        let held = self.files.iter_mut().filter(|file| file.delegation.is_some());
        for file in held {
            file.is_doubted = true;
            count += 1;
        }
        if count == 0 && !is_known {
            return Err(format!("client {} has nothing, and that was revoked", self.number));
        }
        for file in 0..self.files.len() as u64 {
            cx.delegated.gives_up(self.number, file, true);
        }
        Ok(())
    }

    /// The call is made again later.
    fn again(&mut self, index: usize, call: Call, cx: &mut Context<'_>) -> Checked<Then> {
        let number = self.number;
        let is_ready = self.phase == Phase::Ready || index == STATELESS;
        let worker = self.worker(index)?;
        let since_ms = *worker.refused_ms.get_or_insert(cx.now_ms);
        if cx.now_ms > since_ms.max(cx.started_ms) + REFUSED_MS {
            return Err(format!("{call:?} of client {number} is refused since {since_ms} ms"));
        }
        if is_ready {
            worker.next = Some(call);
        }
        Ok(Then::after(cx.random.between(100, 3000)))
    }

    fn stranger_did(
        &mut self,
        call: Call,
        (deed, file): (Deed, u64),
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        let status = r.u32().map_err(unreadable)?;
        if status == JUKEBOX {
            return self.again(STATELESS, call, cx);
        }
        self.worker(STATELESS)?.refused_ms = None;
        let is_done = match deed {
            // A repetition of an earlier one may have made or removed the name.
            Deed::Link if status == EXIST => false,
            Deed::Unlink if status == NOENT => false,
            _ if status == 0 => true,
            _ => return Err(format!("{call:?} of client {} got {status}", self.number)),
        };
        let what = match deed {
            Deed::Write | Deed::Link => Some(What::Change),
            Deed::Read | Deed::GetAttributes => Some(What::Look),
            // Of which file the name was is not known for sure.
            Deed::Unlink => None,
        };
        if let Some(what) = what.filter(|_| is_done) {
            let by = self.number + STRANGERS_FROM;
            cx.delegated.did(by, file, what, cx.sent_ms, cx.now_ms);
        }
        Ok(Then::after(cx.random.between(1_000, 40_000)))
    }

    /// The session is gone. That is right only if the server has lost its state or the lease is over.
    fn start_over(&mut self, why: &str, cx: &mut Context<'_>) -> Checked<Then> {
        if cx.held.is_valid(self.number, cx.now_ms) && cx.lost_ms <= self.lost_ms {
            return Err(format!("client {} has lost its session in time: {why}", self.number));
        }
        self.phase = Phase::Exchange;
        *self.worker(STATEFUL)? = Worker::default();
        for file in &mut self.files {
            // A write may have been executed.
            if let Some(delegation) = &mut file.delegation {
                delegation.content = None;
            }
        }
        Ok(Then { forgets: true, ..Then::after(10) })
    }

    /// The client has lost all that it had: it starts as another incarnation.
    pub(super) fn reboot(&mut self, cx: &mut Context<'_>) -> Then {
        self.incarnation += 1;
        self.phase = Phase::Exchange;
        self.to_reclaim.clear();
        self.files.fill(File::default());
        self.workers = Default::default();
        cx.held.forget(self.number);
        cx.delegated.gives_up_all(self.number);
        Then { forgets: true, ..Then::after(10) }
    }

    fn made_client(
        &mut self,
        call: Call,
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        if is(status, NfsStat4::Delay) {
            return Ok(Then::after(cx.random.between(100, 3000)));
        }
        if call == Call::Create && is(status, NfsStat4::StaleClientId) {
            self.phase = Phase::Exchange;
            return Ok(Then::after(10));
        }
        if status != 0 {
            return Err(format!("{call:?} of client {} got {status}", self.number));
        }
        if call == Call::Exchange {
            let told = (r.u64(), r.u32(), r.u32());
            let (Ok(id), Ok(sequence), Ok(flags)) = told else {
                return Err("EXCHANGE_ID's result cannot be read".into());
            };
            if self.id != Some(id) || flags & CONFIRMED == 0 {
                self.lost_id(cx)?;
            }
            self.new_id = (id, sequence);
            self.phase = Phase::Create;
            return Ok(Then::after(1));
        }
        self.session = r.array().map_err(unreadable)?;
        self.back.begin(self.session);
        let is_new = self.id != Some(self.new_id.0);
        self.id = Some(self.new_id.0);
        self.lost_ms = cx.lost_ms;
        self.sequence = 0;
        (self.attentive_ms, self.made_ms) = (cx.now_ms, cx.now_ms);
        self.phase = if is_new { Phase::Reclaim } else { Phase::Ready };
        Ok(Then::after(1))
    }

    /// The server does not know the client any more.
    fn lost_id(&mut self, cx: &mut Context<'_>) -> Checked {
        let has_lost = cx.lost_ms > self.lost_ms;
        if !has_lost && self.id.is_some() && cx.held.is_valid(self.number, cx.now_ms) {
            return Err(format!("the server has forgotten client {} in time", self.number));
        }
        let was_valid = cx.held.is_valid(self.number, cx.lost_ms);
        // A loss before the first grace period can have ended leaves all of it to be reclaimed.
        if self.is_whole || cx.lost_ms < self.until_ms {
            self.until_ms = if was_valid { cx.found_lost_ms + LEASE_MS } else { 0 };
        }
        // What it has of before is due for as long as after the first loss: when that grace period is over, others may
        // have got a part of what it had not reclaimed.
        let until_ms = self.until_ms;
        self.is_whole = false;
        if !has_lost {
            self.to_reclaim.clear();
        }
        let has_heard = self.heard_ms > self.attentive_ms + HEARD_WITHIN_MS;
        for (file, of) in (0..).zip(&mut self.files) {
            let of = std::mem::take(of);
            // One that may have been revoked before the power was cut, of which nobody knows any more.
            let is_sure = |held: &Delegation| {
                // It has taken a recall, and was silent until that was over.
                let recalled_ms = if held.is_recalled { held.recalled_ms } else { cx.lost_ms };
                let is_over = cx.lost_ms + SENT_WITHIN_MS > recalled_ms + LEASE_MS;
                !held.is_kept && !is_over && (has_heard || cx.lost_ms < held.sent_ms + LEASE_MS)
            };
            let sure = of.delegation.filter(is_sure);
            let content = sure.and_then(|held| held.content);
            let opened = of.opened.map(|(_, writes)| What::Open(writes));
            let delegated = of.delegation.filter(|_| !of.is_doubted);
            let delegated = delegated.map(|held| What::Delegation(held.writes));
            // An open first: what it is delegated then is beside it.
            for what in opened.into_iter().chain(delegated).filter(|_| has_lost) {
                // Others may have got what was in the way of that, if the server has heard so.
                if !cx.delegated.is_counted_on(self.number, file, what.is_delegation()) {
                    continue;
                }
                let is_sure = matches!(what, What::Open(_)) || sure.is_some();
                let until_ms = if is_sure { until_ms } else { 0 };
                let was_ended = cx.delegated.was_ended(self.number, file);
                self.to_reclaim.push(Lost { file, what, content, until_ms, was_ended });
            }
        }
        cx.delegated.gives_up_all(self.number);
        Ok(())
    }

    fn judge(
        &mut self,
        call: Call,
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Then> {
        // Whose reply was not kept has changed nothing.
        if is(status, NfsStat4::Delay) || is(status, NfsStat4::RetryUncachedRep) {
            return self.again(STATEFUL, call, cx);
        }
        let is_new = matches!(call, Call::Open { .. } | Call::Write(..) | Call::Read(_));
        if is(status, NfsStat4::Grace) && (is_new || matches!(call, Call::SetMode(..))) {
            if cx.sent_ms > cx.started_ms + GRACE_MS {
                return Err("the grace period does not end".into());
            }
            return self.again(STATEFUL, call, cx);
        }
        self.worker(STATEFUL)?.refused_ms = None;
        let then = Then::after(cx.random.between(1, 2_000));
        let refused = || format!("{call:?} of client {} got {status}", self.number);
        let (number, sent_ms, now_ms) = (self.number, cx.sent_ms, cx.now_ms);
        let mut did = |file, what| cx.delegated.did(number, file, what, sent_ms, now_ms);
        match call {
            Call::Complete if status == 0 || is(status, NfsStat4::CompleteAlready) => {
                (self.phase, self.is_whole) = (Phase::Ready, true);
            }
            Call::Reclaim(file, what, joined) => {
                self.reclaimed((file, what, joined.is_some()), status, r, cx)?;
            }
            Call::Open { file, writes, .. } if status == 0 => {
                self.opened(file, writes, r, cx)?;
            }
            Call::Close(file) if status == 0 => self.file_mut(file)?.opened = None,
            Call::Read(file) if status == 0 => self.has_read(file, r)?,
            Call::Write(file, content) if status == 0 => {
                did(file, What::Change);
                if let Some(delegation) = &mut self.file_mut(file)?.delegation {
                    delegation.content = Some(content);
                }
            }
            Call::SetMode(file, _) if status == 0 => did(file, What::Change),
            Call::Return(file) if status == 0 => {
                let of = self.file_mut(file)?;
                (of.delegation, of.is_doubted) = (None, false);
            }
            Call::Return(_) | Call::Read(_) | Call::Write(..) | Call::Open { .. }
                if is(status, NfsStat4::DelegRevoked) =>
            {
                self.is_revoked(call, cx)?;
            }
            Call::Free(file) if status == 0 => {
                self.file_mut(file)?.revoked = None;
            }
            Call::Look if status == 0 => {}
            _ => return Err(refused()),
        }
        Ok(then)
    }

    /// A delegation was revoked. That is right if its client could not be told, or has kept it.
    fn is_revoked(&mut self, call: Call, cx: &mut Context<'_>) -> Checked {
        let (Call::Return(file)
        | Call::Read(file)
        | Call::Write(file, _)
        | Call::Open { file, .. }) = call
        else {
            return Err("no such call".into());
        };
        let (attentive_ms, number) = (self.attentive_ms, self.number);
        let of = self.file_mut(file)?;
        let delegation = of.delegation.as_mut().ok_or("nothing is delegated")?;
        let has_heard = cx.now_ms > attentive_ms + HEARD_WITHIN_MS && !delegation.is_kept;
        if cx.now_ms <= delegation.sent_ms + LEASE_MS || has_heard {
            return Err(format!(
                "client {number} has lost {delegation:?} too early; it heard all since {attentive_ms}"
            ));
        }
        of.revoked = Some(delegation.stateid);
        (of.delegation, of.is_doubted) = (None, false);
        cx.delegated.revoked += 1;
        cx.delegated.gives_up(number, file, true);
        Ok(())
    }

    fn has_read(&mut self, file: u64, r: &mut Reader<'_>) -> Checked {
        let number = self.number;
        let read = Read4Result::decode(r).map_err(unreadable)?;
        let bytes: Option<[u8; 8]> = read.data.try_into().ok();
        // Nobody has written it yet.
        let content = bytes.map_or(0, u64::from_be_bytes);
        let of = self.file_mut(file)?;
        let Some(delegation) = &mut of.delegation else { return Ok(()) };
        match delegation.content {
            Some(known) if known != content && !of.is_doubted => Err(format!(
                "client {number} was delegated file {file}, and {known:x} became {content:x}"
            )),
            _ => {
                delegation.content = Some(content);
                Ok(())
            }
        }
    }

    /// The client has a file open, and may have been delegated it.
    fn opened(
        &mut self,
        file: u64,
        writes: bool,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked<Option<bool>> {
        let result = Open4Result::decode(r).map_err(unreadable)?;
        let (number, sent_ms, now_ms) = (self.number, cx.sent_ms, cx.now_ms);
        let of = self.file_mut(file)?;
        let writes = writes || of.opened.is_some_and(|(_, writes)| writes);
        of.opened = Some((result.stateid, writes));
        cx.delegated.gets(number, file, What::Open(writes), sent_ms, now_ms);
        let (stateid, writes, is_recalled) = match result.delegation {
            OpenDelegation4::Read { stateid, recall, .. } => (stateid, false, recall),
            OpenDelegation4::Write { stateid, recall, .. } => (stateid, true, recall),
            _ => return Ok(None),
        };
        if let Some(before) = of.delegation.take_if(|_| of.is_doubted) {
            // It is that which was revoked.
            (of.revoked, of.is_doubted) = (Some(before.stateid), false);
            cx.delegated.revoked += 1;
        }
        if of.delegation.is_some() {
            return Err(format!("client {number} is delegated file {file} twice"));
        }
        of.delegation = Some(Delegation {
            stateid,
            writes,
            sent_ms,
            content: None,
            is_recalled,
            recalled_ms: now_ms,
            is_kept: false,
        });
        cx.delegated.gets(number, file, What::Delegation(writes), sent_ms, now_ms);
        Ok(Some(writes))
    }

    fn reclaimed(
        &mut self,
        (file, what, is_joined): (u64, What, bool),
        status: u32,
        r: &mut Reader<'_>,
        cx: &mut Context<'_>,
    ) -> Checked {
        let reclaimed = self.to_reclaim.get(..=usize::from(is_joined)).map(<[_]>::to_vec);
        let reclaimed = reclaimed.ok_or("nothing was to be reclaimed")?;
        let writes = matches!(what, What::Open(true) | What::Delegation(true));
        let granted = if status == 0 { self.opened(file, writes, r, cx)? } else { None };
        for Lost { what, content, until_ms, was_ended, .. } in reclaimed {
            let is_delegation = matches!(what, What::Delegation(_));
            if was_ended && is_delegation && granted.is_some() {
                return Err(format!("{what:?} of {file} is reclaimed, and others had ended it"));
            }
            let is_missing = status != 0 || is_delegation && granted.is_none();
            let is_due = cx.now_ms < until_ms;
            // Who changes a file at that time, without state, takes delegations of those who have come before.
            let is_disturbed = cx.delegated.is_disturbed_since(file, cx.found_lost_ms);
            if is_missing && is_due && !(is_disturbed && status == 0) {
                return Err(format!("{what:?} of file {file} is lost in a restart: {status}"));
            }
            if let (true, true, false) = (is_delegation, is_due, is_disturbed)
                && let Some(delegation) = &mut self.file_mut(file)?.delegation
            {
                delegation.content = content;
            }
            self.to_reclaim.remove(0);
        }
        Ok(())
    }
}
