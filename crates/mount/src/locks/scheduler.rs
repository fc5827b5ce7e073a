//! When parked tasks go on, and who does not wait any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Later, Locks, State};
use crate::errors::Errno;
use crate::process;

/// How often it is looked whether those who wait are still there.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether the server's lock manager is where it was.
const CONNECTION: Duration = Duration::from_secs(1);
/// A process that dies waits this long until what it closes is unlocked.
const DYING_WAITS: Duration = Duration::from_secs(1);

impl Locks {
    /// Until the mount ends.
    pub(super) fn schedule(self: &Arc<Self>) {
        let (mut looked, mut asked) = (Instant::now(), Instant::now());
        loop {
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return;
                }
                match state.nap() {
                    Some(nap) => drop(self.changed.wait_for(&mut state, nap)),
                    None => self.changed.wait(&mut state),
                }
                for later in state.take_due() {
                    self.go_on(&mut state, later);
                }
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look_at_tickets();
            }
            if asked.elapsed() >= CONNECTION {
                asked = Instant::now();
                self.look_at_connection();
            }
        }
    }

    /// Answers those whom a signal has reached. Without the lock of the state: /proc is read.
    fn look_at_tickets(&self) {
        let tickets = {
            let mut state = self.state.lock();
            state.tickets.retain(|ticket| ticket.is_open());
            state.tickets.clone()
        };
        for ticket in tickets {
            let is_over = if ticket.is_close {
                ticket.since.elapsed() >= DYING_WAITS && process::is_killed(ticket.pid)
            } else {
                process::is_interrupted(ticket.pid)
            };
            if is_over {
                ticket.finish(Err(Errno::EINTR));
            }
        }
    }

    /// By a thread of its own, since it may wait for the server; one look at a time.
    fn look_at_connection(self: &Arc<Self>) {
        if self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        self.looks.run(0, move || {
            this.lockd.look();
            this.look_for_restart();
            this.is_looking.store(false, Ordering::Release);
        });
    }
}

impl State {
    /// How long nothing is to be done; `None`: until something is asked for.
    fn nap(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = self.parked.iter().map(|parked| parked.due.saturating_duration_since(now)).min();
        let looks = (!self.tickets.is_empty()).then_some(LOOK);
        let connection = (!self.files.is_empty()).then_some(CONNECTION);
        [due, looks, connection].into_iter().flatten().min()
    }

    fn take_due(&mut self) -> Vec<Later> {
        let now = Instant::now();
        let parked = std::mem::take(&mut self.parked);
        let (due, parked): (Vec<_>, Vec<_>) = parked.into_iter().partition(|it| it.due <= now);
        self.parked = parked;
        due.into_iter().map(|parked| parked.what).collect()
    }
}
