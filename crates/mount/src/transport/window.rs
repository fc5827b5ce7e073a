//! How many bytes of WRITEs a mount may have unanswered: as many as keep the link busy, and so few that calls of
//! others wait for a short queue only. It has no clock and no socket.
//!
//! What is measured is the delay: how much longer the way to the server takes than it took at the least, as TCP
//! Vegas and LEDBAT (RFC 6817) do it. The kernel tells both of each connection, by acknowledgements of the
//! server's kernel, so that a server that waits for its disk is not taken for a link with a queue.
//!
//! - At first the window grows by what is answered, so that it doubles each time that all of it was. After it was
//!   shrunk that ends where it is then.
//! - It grows by the same amount in the same time, whatever it is. If the delay stays short the amount is doubled
//!   again and again: a link that became idle, or one as fast as memory, is used soon.
//! - While the delay exceeds [`TARGET`] it loses a part of itself, the larger the longer the delay is. So all
//!   windows of one link become equal, and the delay settles a little above the target. [`CROWDED`] halves it.
//! - Where there is a queue, the window is as small as it may be for a moment now and then. Otherwise who comes to a
//!   link with a queue would take that for the least that the way takes, and drive away those who know better.
//! - It only grows while somebody has to wait for it, or has cut a WRITE to fit it. After [`IDLE`] without that it
//!   begins anew.

use std::time::Duration;

/// The least that the window is, in bytes: twelve mounts fill a queue of 16 ms with it on 100 Mbit/s.
pub(super) const LEAST_BYTES: u64 = 16 << 10;
/// The most, in bytes: all threads that write have a WRITE of 1 MiB in flight.
pub(super) const MOST_BYTES: u64 = 16 << 20;
/// What it begins with, in bytes: twelve mounts that begin together fill a queue of 32 ms on 100 Mbit/s.
const START_BYTES: u64 = 32 << 10;
/// A longer delay makes it smaller.
pub(super) const TARGET: Duration = Duration::from_millis(8);
/// Which part of it is lost in a second at twice the target, times its bytes.
const PULLS_S: u64 = 40;
/// Less is lost if the way takes longer than this without a queue.
const PULLED_FROM: Duration = Duration::from_millis(10);
/// A delay that halves it at once.
const CROWDED: Duration = Duration::from_millis(20);
/// A shorter delay is no sign of a queue.
const SHORT: Duration = Duration::from_micros(2500);
/// How much it grows in a second without any delay, in bytes.
const STEADY_BYTES_S: u64 = 400 << 10;
/// How long the delay has to stay short until that is doubled, at the least; and how many round trips.
const BOOSTED_AFTER: (Duration, u32) = (Duration::from_millis(15), 8);
/// How often that is doubled at the most.
const BOOSTS_MAX: u32 = 12;
/// How long it takes until the effect of a smaller window is seen, at the least; and how many round trips.
const SEEN_AFTER: (Duration, u32) = (Duration::from_millis(10), 2);
/// How often the window is small for a moment, and for how long at the least, and for how many round trips.
const PROBED_AFTER: Duration = Duration::from_secs(4);
const PROBES_FOR: (Duration, u32) = (Duration::from_millis(30), 2);
/// What it gets back at once afterwards, in bytes, if it was larger; or a quarter of what it was.
const RESTORED_BYTES: u64 = 64 << 10;
/// Nobody had to wait for the window for so long.
const IDLE: Duration = Duration::from_secs(1);
/// Samples that are farther apart let it grow for so long.
const GROWS_FOR: Duration = Duration::from_millis(20);
/// A delay counts while so much is on its way, in bytes. Short messages are acknowledged with their reply, up
/// to 40 ms late.
pub(super) const TELLING_BYTES: u64 = 4 << 10;
/// Into so many WRITEs a window is cut, if it is large enough for that.
const PIECES: u64 = 16;
/// Pieces are a multiple of so many bytes.
const PIECE_STEP_BYTES: u64 = 4 << 10;

/// What the kernel has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// How long the way to the server and back takes now, smoothed.
    pub(crate) round_trip: Duration,
    /// The least that it took.
    pub(crate) lowest: Duration,
    /// What was sent and not acknowledged by the server's kernel.
    pub(crate) unacknowledged_bytes: u64,
}

impl Sample {
    /// How long a segment waits in queues on its way, as far as that can be seen.
    pub(super) fn delay(&self) -> Duration {
        if self.unacknowledged_bytes < TELLING_BYTES {
            return Duration::ZERO;
        }
        self.round_trip.saturating_sub(self.lowest)
    }
}

/// The window of one mount. Times are since any moment.
#[derive(Debug)]
pub(super) struct Window {
    bytes: u64,
    /// Up to here it grows by what is answered.
    threshold: u64,
    /// Of the last two samples.
    delays: [Duration; 2],
    sampled: Duration,
    /// It is not shrunk again before.
    settled: Duration,
    boosts: u32,
    boosted: Duration,
    /// Until when the window is small for a moment, and how large it was.
    probing: Option<(Duration, u64)>,
    probed: Duration,
    /// Somebody could use more, since the last sample.
    is_limiting: bool,
    /// When that was so last.
    limited: Duration,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            bytes: START_BYTES,
            threshold: MOST_BYTES,
            delays: [Duration::ZERO; 2],
            sampled: Duration::ZERO,
            settled: Duration::ZERO,
            boosts: 0,
            boosted: Duration::ZERO,
            probing: None,
            probed: Duration::ZERO,
            is_limiting: false,
            limited: Duration::ZERO,
        }
    }
}

impl Window {
    /// How much may be unanswered.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long a WRITE may be at most.
    pub(super) fn piece_bytes(&self) -> u64 {
        (self.bytes / PIECES / PIECE_STEP_BYTES * PIECE_STEP_BYTES).max(LEAST_BYTES)
    }

    /// More would be in flight if the window were larger.
    pub(super) fn note_limiting(&mut self) {
        self.is_limiting = true;
    }

    /// Whether that was noted since the last sample.
    pub(super) fn is_limiting(&self) -> bool {
        self.is_limiting
    }

    /// So many bytes were answered. `was_limited`: when they were sent, more would have been. Samples may have been
    /// taken since.
    pub(super) fn handle_answer(&mut self, bytes: u64, was_limited: bool) {
        let may_grow =
            (was_limited || self.is_limiting) && self.probing.is_none() && self.delay() < SHORT;
        if may_grow && self.bytes < self.threshold {
            self.bytes = (self.bytes + bytes.min(self.bytes)).min(self.threshold);
        }
    }

    /// Of the last two samples the longer one: just after an answer there may be nothing on its way.
    fn delay(&self) -> Duration {
        self.delays[0].max(self.delays[1])
    }

    /// To be called every few milliseconds while something is in flight, and when something is again.
    pub(super) fn handle_sample(&mut self, now: Duration, sample: Sample) {
        let elapsed = now.saturating_sub(self.sampled);
        self.sampled = now;
        self.delays = [self.delays[1], sample.delay()];
        let delay = self.delay();
        if now.saturating_sub(self.limited) >= IDLE {
            return self.begin_anew(now);
        }
        if let Some((until, bytes)) = self.probing {
            if now >= until {
                // All at once would be a queue where the way is long.
                self.bytes = bytes.min(RESTORED_BYTES.max(bytes / 4));
                self.threshold = bytes;
                self.probing = None;
                self.probed = now;
                self.settled = now + Self::seen_after(sample);
            }
            return;
        }
        if std::mem::take(&mut self.is_limiting) {
            self.limited = now;
            self.grow(now, elapsed.min(GROWS_FOR), delay, sample.round_trip);
        }
        if delay > TARGET && now >= self.settled {
            self.shrink(now, elapsed.min(GROWS_FOR), delay, sample);
        }
        if delay >= SHORT && self.limited == now && now.saturating_sub(self.probed) >= PROBED_AFTER
        {
            let time = PROBES_FOR.0.max(sample.round_trip * PROBES_FOR.1);
            self.probing = Some((now + time, self.bytes));
            self.bytes = LEAST_BYTES;
        }
    }

    /// What the link carries now, and who else uses it, is not known any more.
    fn begin_anew(&mut self, now: Duration) {
        let bytes = self.probing.map_or(self.bytes, |(_, before)| before);
        *self = Self {
            bytes: bytes.min(START_BYTES),
            delays: self.delays,
            sampled: now,
            boosted: now,
            probed: self.probed,
            limited: now,
            ..Self::default()
        };
    }

    fn shrink(&mut self, now: Duration, elapsed: Duration, delay: Duration, sample: Sample) {
        // The longer the way, the later the effect is seen.
        let pulls = share(PULLS_S, PULLED_FROM, PULLED_FROM.max(sample.lowest));
        let pull = share(self.bytes * pulls, elapsed, Duration::from_secs(1));
        let mut less = share(pull, delay.saturating_sub(TARGET), TARGET);
        if delay > CROWDED {
            less = self.bytes / 2;
            self.settled = now + Self::seen_after(sample);
        }
        self.bytes = self.bytes.saturating_sub(less).max(self.bytes / 2).max(LEAST_BYTES);
        self.threshold = self.bytes;
        (self.boosts, self.boosted) = (0, now);
    }

    fn seen_after(sample: Sample) -> Duration {
        SEEN_AFTER.0.max(sample.round_trip * SEEN_AFTER.1)
    }

    fn grow(&mut self, now: Duration, elapsed: Duration, delay: Duration, round_trip: Duration) {
        if delay >= SHORT {
            (self.boosts, self.boosted) = (0, now);
        } else if now.saturating_sub(self.boosted)
            >= BOOSTED_AFTER.0.max(round_trip * BOOSTED_AFTER.1)
        {
            self.boosts = (self.boosts + 1).min(BOOSTS_MAX);
            self.boosted = now;
        }
        if now < self.settled {
            return;
        }
        let speed = STEADY_BYTES_S << self.boosts;
        let more = share(speed, elapsed, Duration::from_secs(1));
        self.bytes = (self.bytes + more.min(self.bytes / 2)).min(MOST_BYTES);
    }
}

/// As much of an amount as one time is of another one.
fn share(amount: u64, time: Duration, of: Duration) -> u64 {
    let (time, of) = (time.as_micros(), of.as_micros().max(1));
    u64::try_from(u128::from(amount) * time / of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
