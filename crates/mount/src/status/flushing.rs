//! Has everything that was written so far made stable at the server, and leave the journal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_journal::Sequence;

use super::gather::Subject;
use crate::document::{Flushed, milliseconds};
use crate::node::Node;
use crate::transport::Patience;
use crate::write_back::Wanted;

/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(20);
/// How often what asks the server for stability is reminded.
const REMIND: Duration = Duration::from_millis(500);
/// Files are flushed without holding up who writes to them; after this time they wait, so that it ends.
const GENTLE: Duration = Duration::from_secs(1);
/// A server that has not answered for so long is said not to answer.
const SILENT: Duration = Duration::from_secs(1);

impl Subject {
    /// Flushes. It gives up after this time, or when nobody waits any more; then what was written is still
    /// on its way.
    pub(super) fn flush(&self, timeout: Duration, is_waited_for: impl Fn() -> bool) -> Flushed {
        let begun = Instant::now();
        let until = begun + timeout;
        let last = self.journaling.as_ref().map(|journaling| journaling.load().last);
        let (refused, conflicts) = (self.refused(), self.conflicts());
        let mut holders = self.write_back().holders();
        let mut reminded: Option<Instant> = None;
        let is_done = loop {
            holders.retain(|node| !node.data.is_empty());
            if holders.is_empty() && self.has_left(last) {
                break true;
            }
            if Instant::now() >= until || !is_waited_for() {
                break false;
            }
            if reminded.is_none_or(|reminded| reminded.elapsed() >= REMIND) {
                reminded = Some(Instant::now());
                for node in &holders {
                    self.write_back().press(node);
                }
                if let Some(keeping) = self.keeping() {
                    keeping.hurry();
                }
            }
            if begun.elapsed() >= GENTLE && !self.link().is_silent_for(SILENT) {
                self.hold_up_writers(&holders, until);
            }
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(LOOK.min(left));
        };
        let mut reasons = Vec::new();
        let (refused, conflicts) = (self.refused() - refused, self.conflicts() - conflicts);
        if refused > 0 {
            reasons.push(format!(
                "the server has refused {refused} writes meanwhile: their data was given up, and the log has more"
            ));
        }
        if conflicts > 0 {
            reasons.push(format!(
                "{conflicts} changes were not made again after the server had lost them: see the reports of conflicts"
            ));
        }
        if !is_done {
            reasons.extend(self.what_is_in_the_way());
        }
        Flushed {
            is_done: is_done && refused == 0 && conflicts == 0,
            has_given_up: refused > 0 || conflicts > 0,
            took_ms: milliseconds(begun.elapsed()),
            reasons,
            data: self.data(),
            journal: self.journal(),
        }
    }

    /// Somebody who writes without a pause would keep a file from ever being all sent.
    fn hold_up_writers(&self, holders: &[Arc<Node>], until: Instant) {
        for node in holders {
            let until = Some(until.min(Instant::now() + REMIND));
            // Whether that was enough is seen by what is held.
            let _ = self.write_back().flush(node, Patience { pid: 0, until }, Wanted::Stable);
        }
    }

    /// Nothing up to this record is in the journal.
    fn has_left(&self, last: Option<Sequence>) -> bool {
        let (Some(journaling), Some(last)) = (&self.journaling, last) else { return true };
        journaling.load().oldest.is_none_or(|(oldest, _)| oldest > last)
    }

    fn refused(&self) -> u64 {
        self.link().counters.refused_writes.value()
    }

    fn conflicts(&self) -> u64 {
        self.journaling.as_ref().map_or(0, |journaling| journaling.conflicts())
    }

    fn what_is_in_the_way(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let link = self.link();
        let down: Vec<_> = link.connections().into_iter().filter(|one| !one.is_up).collect();
        if let Some(one) = down.first() {
            let why = one.last_error.as_deref().unwrap_or("no reason is known");
            reasons.push(format!("there is no connection to the server: {why}"));
        }
        if let Some(waited) = link.oldest_call().filter(|waited| *waited >= SILENT) {
            let seconds = waited.as_secs();
            reasons.push(format!(
                "the server does not answer: the oldest call has waited for {seconds} s"
            ));
        }
        if let Some(journal) = self.journal() {
            if journal.recoveries.under_way_since_unix_ms.is_some() {
                reasons.push(
                    "the server has lost what it had acknowledged, and that is brought back now"
                        .to_owned(),
                );
            }
            if let Some(why) = journal.failed {
                reasons.push(format!("the journal has failed: {why}"));
            }
        }
        if reasons.is_empty() {
            reasons.push("the server has not made everything stable yet".to_owned());
        }
        reasons
    }
}
