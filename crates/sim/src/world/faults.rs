//! What breaks, and what starts again.

use std::cmp::Reverse;

use super::{Event, World};
use crate::Checked;

impl World {
    /// Something breaks.
    pub(super) fn fault(&mut self) {
        let delay_us = self.random.between(100_000, self.rhythm.faults_apart_us);
        self.schedule(delay_us, Event::Fault);
        if !self.server.is_up() {
            return;
        }
        let client = self.random.below(self.links.len() as u64) as usize;
        match self.random.below(100) {
            0..8 => {
                self.note(|| "the process is killed".into());
                self.report.kills += 1;
                self.end_process(false);
            }
            8..16 => self.server.kill_at(self.random.between(1, 5)),
            16..20 => {
                self.note(|| "the power is cut".into());
                self.report.power_cuts += 1;
                self.end_process(true);
            }
            20..23 => self.cut_for_long(client),
            _ => self.cut_briefly(client),
        }
    }

    /// One of many clients is cut off, beside the faults that few ones have, too.
    pub(super) fn cut_somebody(&mut self) {
        let delay_us = self.random.between(10_000, self.rhythm.cuts_apart_us);
        self.schedule(delay_us, Event::Cut);
        let client = self.random.below(self.links.len() as u64) as usize;
        if self.random.chance(30) {
            self.cut_for_long(client);
        } else {
            self.cut_briefly(client);
        }
    }

    fn cut_for_long(&mut self, client: usize) {
        let max_ms = self.links.get(client).map_or(0, |link| link.client.absent_max_ms());
        let delay_us = 1000 * self.random.between(20_000, max_ms);
        self.cut(client, delay_us);
    }

    fn cut_briefly(&mut self, client: usize) {
        let delay_us = self.random.between(100, 2_000_000);
        self.cut(client, delay_us);
    }

    pub(super) fn end_process(&mut self, power_was_cut: bool) {
        self.server.kill();
        self.epoch += 1;
        // Else a client could have a reply of this process, and go on, while a repetition of its call reaches the
        // next one: which does not know of calls that changed nothing.
        self.queue.retain(|Reverse(scheduled)| !matches!(scheduled.event, Event::ToClient { .. }));
        if power_was_cut {
            self.lost_ms = self.now_ms().max(1);
            self.end_locals();
            self.held.is_lost(self.lost_ms);
            self.delegated.loses_all(self.lost_ms);
        }
        for client in 0..self.links.len() {
            let delay_us = self.random.between(10_000, 500_000);
            if let Some(link) = self.links.get_mut(client)
                && link.connection.take().is_some()
            {
                self.schedule(delay_us, Event::Connect { client });
            }
        }
        let delay_us = self.random.between(50_000, 8_000_000);
        self.schedule(delay_us, Event::Start { power_was_cut });
    }

    pub(super) fn start(&mut self, power_was_cut: bool) -> Checked {
        let now_ms = self.now_ms();
        self.note(|| "the server starts".into());
        if power_was_cut {
            self.server.power_on(now_ms, &mut self.random)?;
            self.found_lost_ms = now_ms;
        } else {
            self.server.restart(now_ms, &mut self.random)?;
        }
        self.started_ms = now_ms;
        self.leftovers.begin();
        self.send_replies();
        Ok(())
    }
}
