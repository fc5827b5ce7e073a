//! Why the log is not on, and when a device that failed is tried again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::{RELAPSE, RETRY_MAX};

/// Why changes are not logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The administrator switched the log off.
    ByAdministrator,
    /// It could not be written, and all file systems were flushed.
    Failed(String),
    /// It could not be written, and neither could a file system: changes wait.
    Stuck(String),
    /// No file system was served whose changes can be logged: there is no log yet. It is made and
    /// used as soon as there is one.
    Unmade,
}

#[derive(Debug, Default)]
struct Retry {
    /// When the device is to be tried.
    next: Option<Instant>,
    interval: Duration,
    came_back: Option<Instant>,
    /// What was wrong at the last trial, to be told once.
    told: Option<String>,
}

/// Why the log is not on, who switches it, and when a device that failed is tried again.
///
/// One thread at a time switches the log on or off. The reason may lag behind the phase for a moment.
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// Held by who switches it, by command or by closing.
    switching: Mutex<()>,
    left: Mutex<Option<Left>>,
    retry: Mutex<Retry>,
    /// Whether there is no log yet.
    is_unmade: AtomicBool,
    /// A flush failed while the log was off. The kernel tells of lost data once, so another one
    /// would prove nothing.
    not_flushed: Mutex<Option<String>>,
}

impl Switch {
    /// Waits until nobody else switches the log.
    pub(super) fn switching(&self) -> MutexGuard<'_, ()> {
        self.switching.lock()
    }

    /// The same, but not for longer than this.
    pub(super) fn switching_within(&self, at_most: Duration) -> Option<MutexGuard<'_, ()>> {
        self.switching.try_lock_for(at_most)
    }

    /// The same, if that is so now.
    pub(super) fn try_switching(&self) -> Option<MutexGuard<'_, ()>> {
        self.switching.try_lock()
    }

    /// Why the log is not on.
    pub(super) fn left(&self) -> Option<Left> {
        self.left.lock().clone()
    }

    /// The log is on.
    pub(super) fn note_on(&self) {
        *self.left.lock() = None;
    }

    /// The administrator has switched the log off.
    pub(super) fn note_by_administrator(&self) {
        *self.left.lock() = Some(Left::ByAdministrator);
    }

    /// The administrator wants the log on, which nothing needs yet.
    pub(super) fn note_unneeded(&self) {
        *self.left.lock() = Some(Left::Unmade);
    }

    /// The log cannot be written, and neither can a file system be flushed.
    pub(super) fn note_stuck(&self, why: &str) {
        *self.left.lock() = Some(Left::Stuck(why.to_owned()));
    }

    /// The log was left as it failed. It is tried again after `interval`, or later if it was tried
    /// in vain before.
    pub(super) fn note_left(&self, why: &str, interval: Duration) {
        *self.left.lock() = Some(Left::Failed(why.to_owned()));
        let mut retry = self.retry.lock();
        let is_relapse = retry.came_back.is_some_and(|moment| moment.elapsed() < RELAPSE);
        retry.interval =
            if is_relapse { (2 * retry.interval).min(RETRY_MAX).max(interval) } else { interval };
        retry.next = Some(Instant::now() + retry.interval);
        retry.told = None;
    }

    /// There is no log yet. Once one is wanted, making it is tried every so often.
    pub(super) fn note_unmade(&self, interval: Duration) {
        self.is_unmade.store(true, Ordering::SeqCst);
        *self.left.lock() = Some(Left::Unmade);
        self.retry.lock().interval = interval;
    }

    /// There is a log, though it is not on yet.
    pub(super) fn note_made(&self) {
        self.is_unmade.store(false, Ordering::SeqCst);
    }

    /// Whether it is to be made when one is wanted. The first who wants it has it tried at once.
    pub(super) fn is_wanted_first(&self) -> bool {
        if !self.is_unmade() || !matches!(*self.left.lock(), Some(Left::Unmade)) {
            return false;
        }
        let mut retry = self.retry.lock();
        let is_first = retry.next.is_none();
        retry.next.get_or_insert_with(Instant::now);
        is_first
    }

    /// Whether there is no log yet; also once the administrator has switched it off.
    pub(super) fn is_unmade(&self) -> bool {
        self.is_unmade.load(Ordering::SeqCst)
    }

    /// A flush failed while the log was off.
    pub(super) fn note_not_flushed(&self, why: String) {
        *self.not_flushed.lock() = Some(why);
    }

    /// Why a flush failed while the log was off.
    pub(super) fn not_flushed(&self) -> Option<String> {
        self.not_flushed.lock().clone()
    }

    /// Whether changes wait for a repair and another start.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(*self.left.lock(), Some(Left::Stuck(_)))
    }

    /// When a device that failed is to be tried.
    pub(super) fn next_trial(&self) -> Option<Instant> {
        let is_tried = matches!(*self.left.lock(), Some(Left::Failed(_) | Left::Unmade));
        if is_tried { self.retry.lock().next } else { None }
    }

    /// Whether a device that failed is to be tried now.
    pub(super) fn is_due(&self) -> bool {
        matches!(*self.left.lock(), Some(Left::Failed(_) | Left::Unmade))
            && self.retry.lock().next.is_some_and(|next| Instant::now() >= next)
    }

    /// The log came back after its device had failed.
    pub(super) fn note_came_back(&self) {
        self.retry.lock().came_back = Some(Instant::now());
    }

    /// A trial has failed, for this reason; the next one follows after an interval. Returns the interval
    /// if the caller has to log it, as the reason is new.
    pub(super) fn note_in_vain(&self, why: &str) -> Option<Duration> {
        let mut retry = self.retry.lock();
        retry.next = Some(Instant::now() + retry.interval);
        if retry.told.as_deref() == Some(why) {
            return None;
        }
        retry.told = Some(why.to_owned());
        Some(retry.interval)
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    #[test]
    fn a_device_that_fails_again_soon_is_tried_more_rarely() {
        let (switch, interval) = (Switch::default(), Duration::from_secs(30));
        assert!(switch.next_trial().is_none() && !switch.is_due());
        switch.note_left("failed", interval);
        assert_eq!(switch.left(), Some(Left::Failed("failed".to_owned())));
        assert!(switch.next_trial().is_some() && !switch.is_due(), "later");
        assert_eq!(switch.note_in_vain("it is gone"), Some(interval));
        assert_eq!(switch.note_in_vain("it is gone"), None, "told once");
        assert_eq!(switch.note_in_vain("it is not ours"), Some(interval));
        for factor in [2, 4] {
            switch.note_came_back();
            switch.note_on();
            assert!(switch.next_trial().is_none());
            switch.note_left("failed", interval);
            assert_eq!(switch.note_in_vain("it is gone"), Some(factor * interval));
        }
        switch.note_stuck("failed");
        assert!(switch.is_stuck() && switch.next_trial().is_none(), "a start tries it");
    }

    #[test]
    fn a_log_that_is_not_made_is_tried_when_the_first_wants_it() {
        let switch = Switch::default();
        assert!(!switch.is_wanted_first(), "there is one");
        switch.note_unmade(Duration::from_secs(30));
        assert!(switch.is_unmade() && !switch.is_due());
        switch.note_by_administrator();
        assert!(!switch.is_wanted_first(), "it is switched off");
        switch.note_unneeded();
        assert!(switch.is_wanted_first() && switch.is_due());
        assert!(!switch.is_wanted_first(), "it is tried already");
        switch.note_in_vain("no room");
        assert!(!switch.is_due() && switch.next_trial().is_some());
        switch.note_made();
        switch.note_on();
        assert!(!switch.is_unmade());
    }

    #[test]
    fn one_thread_at_a_time_switches() {
        let switch = Switch::default();
        let switching = switch.switching();
        assert!(switch.try_switching().is_none());
        assert!(switch.switching_within(Duration::from_millis(1)).is_none());
        drop(switching);
        assert!(switch.try_switching().is_some());
    }
}
