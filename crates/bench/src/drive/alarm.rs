//! Wakes a thread at a scheduled time.
//!
//! The time-out of an epoll counts in milliseconds (finer ones need Linux 5.11), and a call that
//! starts late by half of one is told as a slow server. A timer is exact to microseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use steadfast_sys::epoll::{Epoll, Interest};

/// What an alarm is known by among the events of its epoll.
pub(super) const TOKEN: u64 = u64::MAX;

/// A timer in an epoll.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    /// The moment that it is set for, on its user's clock.
    set_for_ns: Option<u64>,
}

impl Alarm {
    /// One that is not set.
    pub(super) fn new(epoll: &Epoll) -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        epoll.add(&timer, TOKEN, Interest::InputEdges)?;
        Ok(Self { timer, set_for_ns: None })
    }

    /// Makes an event at this moment, and none at the one that was set before.
    pub(super) fn set(&mut self, at_ns: u64, now_ns: u64) -> io::Result<()> {
        if self.set_for_ns == Some(at_ns) {
            return Ok(());
        }
        // Zero would be never.
        let after = Duration::from_nanos(at_ns.saturating_sub(now_ns).max(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: after.as_secs().min(1 << 30) as _,
            tv_nsec: after.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.set_for_ns = Some(at_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use steadfast_sys::epoll::Events;

    use super::*;

    #[test]
    fn it_rings_once_each_time_it_is_set_and_not_before() {
        let epoll = Epoll::new().unwrap();
        let mut alarm = Alarm::new(&epoll).unwrap();
        let mut events = Events::with_capacity(4);
        let mut rings = |patience| {
            epoll.wait(&mut events, Some(patience)).unwrap();
            events.iter().filter(|event| event.token == TOKEN).count()
        };
        assert_eq!(rings(Duration::from_millis(2)), 0);
        let clock = Instant::now();
        for round in 1..=3_u64 {
            let now_ns = clock.elapsed().as_nanos() as u64;
            let at_ns = now_ns + 300_000;
            alarm.set(at_ns, now_ns).unwrap();
            assert_eq!(rings(Duration::from_secs(10)), 1, "round {round}");
            assert!(clock.elapsed().as_nanos() as u64 >= at_ns);
            assert_eq!(rings(Duration::from_millis(2)), 0, "round {round}");
        }
        // What is past rings at once.
        alarm.set(1, 2).unwrap();
        assert_eq!(rings(Duration::from_secs(10)), 1);
    }
}
