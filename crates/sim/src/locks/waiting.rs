//! Waits of the client for locks: when it asks again, and whether it was told when it might.

use super::{Call, LocksClient, Waiting};
use crate::Checked;
use crate::client::Context;
use crate::held::{Lock, WAIT_LASTS_MS};

/// Who waits and is told when it may ask asks by itself after so long, in ms.
const ASK_AGAIN_MS: u64 = 30_000;
/// Who can be told is told within this time, in ms.
const TOLD_WITHIN_MS: u64 = 20_000;

impl LocksClient {
    pub(super) fn waits(&self, index: usize) -> bool {
        self.workers.get(index).is_some_and(|worker| worker.waits.is_some())
    }

    /// What a worker asks for that waits; `None` if it has time, or waits no more.
    pub(super) fn is_to_wait(&mut self, index: usize, cx: &mut Context<'_>) -> Option<Call> {
        let worker = self.workers.get_mut(index)?;
        let waits = worker.waits.as_ref()?;
        if cx.random.chance(5) {
            // It has given up, of which the server does not hear.
            worker.waits = None;
            cx.held.ends_wait(self.number, index as u64, cx.now_ms);
            return None;
        }
        (cx.now_ms >= waits.ask_ms).then(|| Call::Wait(waits.lock.clone()))
    }

    /// A lock that a worker waits for was denied.
    pub(super) fn is_denied(&mut self, index: usize, lock: &Lock, cx: &mut Context<'_>) -> Checked {
        let is_called = self.back.is_some();
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let is_told = worker.was_told;
        let pause_ms = match (is_told, is_called) {
            (true, _) => 0,
            (false, true) => ASK_AGAIN_MS,
            (false, false) => cx.random.between(1_000, 8_000),
        };
        let (denied_ms, ask_ms) = (cx.now_ms, cx.now_ms + pause_ms);
        worker.waits = Some(Waiting { lock: lock.clone(), denied_ms, ask_ms, is_told });
        Ok(())
    }

    /// A worker has the lock that it asked for. If it has waited, and was to be told that this is free, it was.
    pub(super) fn has_waited(
        &mut self,
        index: usize,
        lock: &Lock,
        cx: &mut Context<'_>,
    ) -> Checked {
        let worker = self.workers.get_mut(index).ok_or("no such worker")?;
        let Some(waits) = worker.waits.take() else { return Ok(()) };
        cx.held.waited += 1;
        let hears_since_ms = self.deaf_ms.max(cx.started_ms).max(cx.connected_ms);
        let Some(free_ms) = cx.held.free_since(lock) else { return Ok(()) };
        let has_heard = hears_since_ms < waits.denied_ms;
        let has_place = (waits.denied_ms..waits.denied_ms + WAIT_LASTS_MS).contains(&free_ms);
        let is_late = free_ms + TOLD_WITHIN_MS < cx.sent_ms;
        if self.back.is_some() && !waits.is_told && has_heard && has_place && is_late {
            return Err(format!("nobody has told that {lock:?} is free since {free_ms} ms"));
        }
        Ok(())
    }
}
