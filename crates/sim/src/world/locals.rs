//! What processes of the server's machine do.

use super::{Event, World};
use crate::Checked;
use crate::held::{LOCALS_FROM, Lock};

/// Blocks of a file that are locked.
const BLOCKS: u64 = 12;
/// The longest time between two acts of a process, in µs.
const PAUSE_MAX_US: u64 = 2_000_000;
/// Whoever has no lease counts on its locks for ever.
const FOR_EVER_MS: u64 = u64::MAX / 2;

impl World {
    /// A process locks or unlocks something.
    pub(super) fn act_locally(&mut self, process: u64) -> Checked {
        let delay_us = self.random.between(1_000, PAUSE_MAX_US);
        self.schedule(delay_us, Event::Local { process });
        if !self.server.may_act_locally() {
            return Ok(());
        }
        let (now_ms, client, owner) = (self.now_ms(), LOCALS_FROM + process, 0);
        self.held.renew(client, FOR_EVER_MS, now_ms)?;
        let held: Vec<Lock> = self.held.of(client, owner).cloned().collect();
        let random = &mut self.random;
        let had = held.get(random.below(held.len() as u64) as usize);
        if let Some(had) = had.filter(|_| random.chance(550)) {
            self.note(|| format!("process {process} gives up {had:?}"));
            self.held.claim(client, owner, Some(had.clone()), now_ms);
            self.held.unlock(had);
            self.held.claim(client, owner, None, now_ms);
            return self.server.unlock_locally(had);
        }
        let (file, first) = (random.below(self.files), random.below(BLOCKS));
        let (end, is_write) = (first + random.between(1, 3), random.chance(500));
        let lock = Lock { client, owner, file, first, end, is_write };
        let has = self.server.lock_locally(&lock)?;
        self.note(|| format!("process {process} asks for {lock:?}: {has}"));
        if has {
            self.report.local_grants += 1;
            self.held.asks(&lock);
            // What the process had there may have been to write, and was in others' way until now.
            self.held.claim(client, owner, Some(lock.clone()), now_ms);
            self.held.claim(client, owner, None, now_ms);
            self.held.lock(now_ms, lock)
        } else {
            self.report.local_denials += 1;
            self.held.denied(&lock, now_ms)
        }
    }

    /// The machine has failed, and its processes with it.
    pub(super) fn end_locals(&mut self) {
        let now_ms = self.now_ms();
        for process in 0..self.locals {
            self.held.take(LOCALS_FROM + process, now_ms);
        }
    }
}
