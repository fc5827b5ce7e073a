//! Calls that tell hosts of their locks, as the server sends them until they are answered.

use steadfast_engine::{Grant, OutboundCall};

use super::{Event, World, address};
use crate::Checked;

/// The longest time between two calls, in ms.
const PAUSE_MAX_MS: u64 = 30_000;
/// So many of a hundred calls are lost, and as many answers.
const LOST_PERCENT: u64 = 15;

impl World {
    /// A call reaches its host, or is lost; and is repeated.
    pub(super) fn tell_of_grant(
        &mut self,
        epoch: u64,
        call: Box<OutboundCall>,
        grant: Box<Grant>,
        pause_ms: u64,
    ) -> Checked {
        if epoch != self.epoch || !self.server.begin_call_about_grant(&grant) {
            return Ok(());
        }
        let client = (0..self.links.len()).find(|client| address(*client) == call.to);
        let is_lost = self.random.below(100) < LOST_PERCENT;
        let now_ms = self.now_ms();
        if let Some(client) = client.filter(|_| !is_lost)
            && let Some((link, mut cx)) = self.of(client, now_ms)
        {
            let result = link.client.granted(&call.arguments, &mut cx)?;
            self.note(|| format!("{client} is called: it has a lock; {result:?}"));
            let copies = match self.random.below(100) {
                it if it < LOST_PERCENT => 0,
                20..25 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let (grant, result) = (grant.clone(), result.clone().unwrap_or_default());
                let delay_us = self.delay_us();
                self.schedule(delay_us, Event::Answer { epoch, grant, result });
            }
        }
        let next_ms = PAUSE_MAX_MS.min(2 * pause_ms);
        self.schedule(1000 * pause_ms, Event::Grant { epoch, call, grant, pause_ms: next_ms });
        Ok(())
    }
}
