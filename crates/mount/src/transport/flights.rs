//! WRITEs take off when the mount's window has room for them ([`super::window`]), if it has one. Other calls never
//! wait here.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_client::ClientError;

use super::window::{Sample, Window};
use super::{Link, Patience};
use crate::document::FlowStatus;

/// How often the delay is looked at while something is in flight.
const TICK: Duration = Duration::from_millis(5);

/// The WRITEs of a mount that have taken off, and those that wait.
#[derive(Debug)]
pub(super) struct Flights {
    state: Mutex<State>,
    has_room: Condvar,
    has_some: Condvar,
    /// How long a WRITE may be at most, in bytes.
    piece_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    window: Window,
    calls: usize,
    bytes: u64,
    /// Who waits, in order, by the number that each got.
    waiting: VecDeque<u64>,
    last_number: u64,
}

impl Default for Flights {
    fn default() -> Self {
        let state = State::default();
        let piece_bytes = AtomicUsize::new(state.window.piece_bytes() as usize);
        let (has_room, has_some) = (Condvar::new(), Condvar::new());
        Self { state: Mutex::new(state), has_room, has_some, piece_bytes }
    }
}

impl State {
    /// What is larger than the window goes alone.
    fn has_room(&self, bytes: u64) -> bool {
        self.calls == 0 || self.bytes.saturating_add(bytes) <= self.window.bytes()
    }
}

/// A WRITE in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct Flight<'l> {
    flights: &'l Flights,
    bytes: u64,
    /// When it took off more would have been sent if the window had been larger.
    was_limited: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.flights.state.lock();
        state.calls -= 1;
        state.bytes -= self.bytes;
        state.window.handle_answer(self.bytes, self.was_limited);
        self.flights.tell(&state);
    }
}

impl Flights {
    /// The window, or what uses it, has changed.
    fn tell(&self, state: &State) {
        self.piece_bytes.store(state.window.piece_bytes() as usize, Ordering::Relaxed);
        // Few wait, at most as many as there are threads that write.
        if !state.waiting.is_empty() {
            self.has_room.notify_all();
        }
    }

    fn enter(
        &self,
        bytes: u64,
        is_cut: bool,
        patience: Patience,
        is_closed: impl Fn() -> bool,
    ) -> Result<Flight<'_>, ClientError> {
        let since = Instant::now();
        let mut state = self.state.lock();
        if is_cut {
            state.window.note_limiting();
        }
        let mut was_limited = is_cut;
        state.last_number += 1;
        let number = state.last_number;
        state.waiting.push_back(number);
        // Who comes later does not overtake who waits.
        while state.waiting.front() != Some(&number) || !state.has_room(bytes) {
            state.window.note_limiting();
            was_limited = true;
            let has_timed_out = self.has_room.wait_for(&mut state, patience.nap()).timed_out();
            if !has_timed_out {
                continue;
            }
            let end = if is_closed() { Some(ClientError::Closed) } else { patience.end(since) };
            if let Some(error) = end {
                state.waiting.retain(|other| *other != number);
                self.tell(&state);
                return Err(error);
            }
        }
        state.waiting.pop_front();
        state.calls += 1;
        state.bytes += bytes;
        if state.calls == 1 {
            self.has_some.notify_one();
        }
        self.tell(&state);
        let was_limited = was_limited || state.window.is_limiting();
        Ok(Flight { flights: self, bytes, was_limited })
    }

    /// Waits until something is in flight; false if the link was closed.
    fn await_some(&self, link: &Link) -> bool {
        let mut state = self.state.lock();
        while state.calls == 0 && !link.is_closed() {
            self.has_some.wait(&mut state);
        }
        !link.is_closed()
    }

    /// Ends the thread that looks.
    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.has_some.notify_one();
    }
}

impl Link {
    /// From now on WRITEs wait for a window, and a thread looks at the delay. Before that they never wait.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn adapt_depth(link: &Arc<Self>) -> io::Result<()> {
        let flights = Arc::new(Flights::default());
        if link.flights.set(Arc::clone(&flights)).is_err() {
            return Ok(());
        }
        let link = Arc::clone(link);
        thread::Builder::new().name("nfs-window".to_owned()).spawn(move || {
            let began = Instant::now();
            while flights.await_some(&link) {
                let sample = link.sample();
                let mut state = flights.state.lock();
                state.window.handle_sample(began.elapsed(), sample);
                flights.tell(&state);
                drop(state);
                thread::sleep(TICK);
            }
        })?;
        Ok(())
    }

    /// Whether WRITEs wait for a window.
    pub(crate) fn adapts_depth(&self) -> bool {
        self.flights.get().is_some()
    }

    /// What the kernel says now, of the connection with the longest delay among those that have enough on their way
    /// to tell it.
    fn sample(&self) -> Sample {
        let of_all = self.connections.iter().filter_map(|connection| connection.sample());
        of_all.max_by_key(|sample| (sample.delay(), sample.round_trip)).unwrap_or_default()
    }

    /// Waits until a WRITE of so many bytes of data may be sent. It is in flight until what is returned is dropped.
    /// `is_cut`: it would be longer if the window were. Without a window nothing is waited for.
    ///
    /// # Errors
    /// When the patience is at its end, or the link is closed.
    pub(crate) fn take_off(
        &self,
        bytes: usize,
        is_cut: bool,
        patience: Patience,
    ) -> Result<Option<Flight<'_>>, ClientError> {
        let Some(flights) = self.flights.get() else { return Ok(None) };
        flights.enter(bytes as u64, is_cut, patience, || self.is_closed()).map(Some)
    }

    /// How long a WRITE is to be at most, if the server takes `write_bytes`.
    pub(crate) fn piece_bytes(&self, write_bytes: usize) -> usize {
        let window = self.flights.get().map(|flights| flights.piece_bytes.load(Ordering::Relaxed));
        window.unwrap_or(usize::MAX).min(write_bytes)
    }

    /// How the window is; `None`: there is none.
    pub(crate) fn flow(&self) -> Option<FlowStatus> {
        let flights = self.flights.get()?;
        let sample = self.sample();
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let state = flights.state.lock();
        Some(FlowStatus {
            window_bytes: state.window.bytes(),
            in_flight_bytes: state.bytes,
            waiting: state.waiting.len() as u64,
            round_trip_us: us(sample.round_trip),
            lowest_round_trip_us: us(sample.lowest),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::window::{LEAST_BYTES, MOST_BYTES};
    use super::*;

    /// It always goes alone.
    const LONG: u64 = MOST_BYTES + 1;

    fn enter(flights: &Flights, bytes: u64) -> Result<Flight<'_>, ClientError> {
        let until = Some(Instant::now() + Duration::from_millis(20));
        flights.enter(bytes, false, Patience { pid: 0, until }, || false)
    }

    #[test]
    fn what_is_larger_than_the_window_goes_alone() {
        let flights = Flights::default();
        let long = enter(&flights, LONG).unwrap();
        assert!(matches!(enter(&flights, 1), Err(ClientError::TimedOut { .. })));
        drop(long);
        let short = enter(&flights, LEAST_BYTES).unwrap();
        let other = enter(&flights, 1).unwrap();
        assert!(enter(&flights, LONG).is_err());
        drop((short, other));
        assert!(enter(&flights, LONG).is_ok());
        let state = flights.state.lock();
        assert_eq!((state.calls, state.bytes, state.waiting.len()), (0, 0, 0));
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let flights = Flights::default();
        let (tell, told) = mpsc::channel();
        let first = enter(&flights, LEAST_BYTES).unwrap();
        thread::scope(|scope| {
            for (number, bytes) in [LONG, 1, LONG, 1].into_iter().enumerate() {
                let (flights, tell) = (&flights, tell.clone());
                scope.spawn(move || {
                    let flight =
                        flights.enter(bytes, false, Patience::default(), || false).unwrap();
                    tell.send(number).unwrap();
                    drop(flight);
                });
                while flights.state.lock().waiting.len() <= number {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn who_waits_ends_with_the_link() {
        let flights = Flights::default();
        let _flight = enter(&flights, LONG).unwrap();
        let error = flights.enter(1, false, Patience::default(), || true).unwrap_err();
        assert!(matches!(error, ClientError::Closed), "{error}");
    }

    #[test]
    fn a_mount_waits_for_a_window_only_if_it_is_to() {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let link = Link::open(server, false, Duration::from_secs(60), 1).unwrap();
        // Each thread of a link has it: those that send and receive.
        assert_eq!(Arc::strong_count(&link), 3);
        let patience =
            || Patience { pid: 0, until: Some(Instant::now() + Duration::from_millis(20)) };
        let take_off = |bytes| link.take_off(bytes as usize, false, patience());
        let flights: Vec<_> = (0..100).map(|_| take_off(LONG).unwrap()).collect();
        assert!(flights.iter().all(Option::is_none));
        assert_eq!((link.piece_bytes(1 << 20), link.flow()), (1 << 20, None));

        Link::adapt_depth(&link).unwrap();
        assert_eq!(Arc::strong_count(&link), 4);
        let flight = take_off(LONG).unwrap();
        assert!(flight.is_some() && matches!(take_off(1), Err(ClientError::TimedOut { .. })));
        assert_eq!(link.flow().map(|flow| flow.in_flight_bytes), Some(LONG));
        assert!(link.piece_bytes(1 << 20) < 1 << 20);
        drop(flight);
        assert!(take_off(1).unwrap().is_some());
        link.close();
    }

    #[test]
    fn an_answer_is_told_whether_its_write_was_limited() {
        let flights = Flights::default();
        let long = enter(&flights, LONG).unwrap();
        assert!(!long.was_limited && enter(&flights, 1).is_err());
        drop(long);
        // Until the next look at the delay, others are, too.
        assert!(enter(&flights, 1).unwrap().was_limited);
        let quiet = Sample::default();
        flights.state.lock().window.handle_sample(Duration::from_millis(1), quiet);
        assert!(!enter(&flights, 1).unwrap().was_limited);
        let cut = flights.enter(1, true, Patience::default(), || false).unwrap();
        assert!(cut.was_limited);
    }
}
