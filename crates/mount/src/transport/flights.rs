//! WRITEs take off when the mount's window has room for them ([`super::window`]). Other calls never wait here.

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
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.flights.state.lock();
        state.calls -= 1;
        state.bytes -= self.bytes;
        state.window.handle_answer(self.bytes);
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
        patience: Patience,
        is_closed: impl Fn() -> bool,
    ) -> Result<Flight<'_>, ClientError> {
        let since = Instant::now();
        let mut state = self.state.lock();
        state.last_number += 1;
        let number = state.last_number;
        state.waiting.push_back(number);
        // Who comes later does not overtake who waits.
        while state.waiting.front() != Some(&number) || !state.has_room(bytes) {
            state.window.note_limiting();
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
        Ok(Flight { flights: self, bytes })
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
    /// Starts the thread that looks at the delay.
    pub(super) fn watch_delay(link: &Arc<Self>) -> io::Result<()> {
        let link = Arc::clone(link);
        thread::Builder::new().name("nfs-window".to_owned()).spawn(move || {
            let began = Instant::now();
            while link.flights.await_some(&link) {
                let sample = link.sample();
                let mut state = link.flights.state.lock();
                state.window.handle_sample(began.elapsed(), sample);
                link.flights.tell(&state);
                drop(state);
                thread::sleep(TICK);
            }
        })?;
        Ok(())
    }

    /// What the kernel says now, of the connection with the longest delay among those that have enough on their way
    /// to tell it.
    fn sample(&self) -> Sample {
        let of_all = self.connections.iter().filter_map(|connection| connection.sample());
        of_all.max_by_key(|sample| (sample.delay(), sample.round_trip)).unwrap_or_default()
    }

    /// Waits until a WRITE of so many bytes of data may be sent. It is in flight until what is returned is dropped.
    ///
    /// # Errors
    /// When the patience is at its end, or the link is closed.
    pub(crate) fn take_off(
        &self,
        bytes: usize,
        patience: Patience,
    ) -> Result<Flight<'_>, ClientError> {
        self.flights.enter(bytes as u64, patience, || self.is_closed())
    }

    /// How long a WRITE is to be at most, if the server takes `write_bytes`.
    pub(crate) fn piece_bytes(&self, write_bytes: usize) -> usize {
        self.flights.piece_bytes.load(Ordering::Relaxed).min(write_bytes)
    }

    /// A WRITE was cut, and not since the server takes no longer one.
    pub(crate) fn note_cut(&self) {
        self.flights.state.lock().window.note_limiting();
    }

    /// How the window is.
    pub(crate) fn flow(&self) -> FlowStatus {
        let sample = self.sample();
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let state = self.flights.state.lock();
        FlowStatus {
            window_bytes: state.window.bytes(),
            in_flight_bytes: state.bytes,
            waiting: state.waiting.len() as u64,
            round_trip_us: us(sample.round_trip),
            lowest_round_trip_us: us(sample.lowest),
        }
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
        flights.enter(bytes, Patience { pid: 0, until }, || false)
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
                    let flight = flights.enter(bytes, Patience::default(), || false).unwrap();
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
        let error = flights.enter(1, Patience::default(), || true).unwrap_err();
        assert!(matches!(error, ClientError::Closed), "{error}");
    }
}
