//! Waiting for many descriptors: `epoll(7)`, and `eventfd(2)` to interrupt the wait.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};
use rustix::io::Errno;

/// How a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A stream socket: all events, told once when they begin (edge-triggered).
    StreamEdges,
    /// Input, told once when it begins (edge-triggered).
    InputEdges,
    /// Input, told as long as it lasts.
    Input,
    /// Input, told as long as it lasts, to one of the epolls that watch the same descriptor
    /// (`EPOLLEXCLUSIVE`).
    SharedInput,
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The number that the descriptor was added with.
    pub token: u64,
    /// There may be input.
    pub is_readable: bool,
    /// There may be space for output.
    pub is_writable: bool,
    /// The peer sends no more, or the connection failed: reading will tell.
    pub is_hung_up: bool,
}

/// An epoll descriptor.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Room for events, used again for each wait.
pub struct Events(Vec<Event>);

impl Events {
    /// Room for this many.
    pub fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// What the last wait brought.
    pub fn iter(&self) -> impl Iterator<Item = Readiness> + '_ {
        self.0.iter().map(|event| {
            let flags = event.flags;
            Readiness {
                token: event.data.u64(),
                is_readable: flags.intersects(EventFlags::IN),
                is_writable: flags.intersects(EventFlags::OUT),
                is_hung_up: flags
                    .intersects(EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR)),
            }
        })
    }
}

impl Epoll {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a descriptor until it is removed or closed.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::StreamEdges => {
                EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
            }
            Interest::InputEdges => EventFlags::IN | EventFlags::ET,
            Interest::Input => EventFlags::IN,
            Interest::SharedInput => EventFlags::IN | EventFlags::EXCLUSIVE,
        };
        epoll::add(&self.0, fd, EventData::new_u64(token), flags)?;
        Ok(())
    }

    /// Watches a descriptor no more.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.0, fd)?;
        Ok(())
    }

    /// Waits for events at most this long (`None`: for ever); a signal ends the wait early,
    /// without events.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as _,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match epoll::wait(&self.0, spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A counter that a thread in [`Epoll::wait`] can be woken by.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new one, at zero.
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn notify(&self) {
        // The only failure is a counter at its limit, which is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable until the next [`EventFd::notify`].
    pub fn reset(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notified_event_descriptor_wakes_the_waiter_until_reset() {
        let epoll = Epoll::new().unwrap();
        let event = EventFd::new().unwrap();
        epoll.add(&event, 7, Interest::Input).unwrap();
        let mut events = Events::with_capacity(4);
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
        event.notify();
        event.notify();
        epoll.wait(&mut events, None).unwrap();
        let seen: Vec<_> = events.iter().collect();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].token == 7 && seen[0].is_readable && !seen[0].is_hung_up);
        event.reset();
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
    }

    #[test]
    fn edges_are_told_once() {
        let epoll = Epoll::new().unwrap();
        let event = EventFd::new().unwrap();
        epoll.add(&event, 1, Interest::InputEdges).unwrap();
        event.notify();
        let mut events = Events::with_capacity(4);
        epoll.wait(&mut events, None).unwrap();
        assert_eq!(events.iter().count(), 1);
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
        epoll.remove(&event).unwrap();
        event.notify();
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
    }
}
