//! A thread of clients that mount.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use steadfast_sys::epoll::{Epoll, Events, Interest};

use super::client::{Common, KINDS, Next, Step, StormClient};
use super::everything::EveryShareTally;
use super::failure::Failure;
use super::listing::Paths;
use super::{Mountstorm, Shared};
use crate::drive::Control;
use crate::drive::sockets;
use crate::drive::tally::{self, histogram};
use crate::error::BenchError;
use crate::random::Random;
use crate::records::{Arrival, Inbox, Outbox};

/// How many clients start before the thread looks after those that have.
const STARTS_OF_TURN: usize = 64;
/// How often clients are looked at for time-outs.
const TICK: Duration = Duration::from_millis(20);
const RECEIVE_BYTES: usize = 64 << 10;
const EVENTS_MAX: usize = 1024;

/// What came of a thread's clients, or of all.
#[derive(Debug)]
pub(super) struct Tally {
    /// From a client's start to its mount.
    pub(super) mounts: Histogram<u64>,
    /// By kind of step.
    pub(super) steps: tally::Tally,
    /// Mounted at the first attempt.
    pub(super) at_first: u64,
    /// Attempts beyond the first.
    pub(super) retries: u64,
    /// When the last client mounted, on the storm's clock.
    pub(super) last_ns: u64,
    /// What clients did that mount every share.
    pub(super) every_share: EveryShareTally,
    /// Clients that gave up, by why.
    pub(super) given_up: BTreeMap<String, u64>,
    /// Attempts that failed, by why.
    pub(super) failed_attempts: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            mounts: histogram(),
            steps: tally::Tally::new(KINDS.len()),
            at_first: 0,
            retries: 0,
            last_ns: 0,
            every_share: EveryShareTally::default(),
            given_up: BTreeMap::new(),
            failed_attempts: BTreeMap::new(),
        }
    }
}

impl Tally {
    pub(super) fn mounted(&self) -> u64 {
        self.mounts.len()
    }

    pub(super) fn add(&mut self, other: Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.mounts.add(&other.mounts);
        self.steps.add(&other.steps);
        self.at_first += other.at_first;
        self.retries += other.retries;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.every_share.add(&other.every_share);
        for (all, own) in [
            (&mut self.given_up, other.given_up),
            (&mut self.failed_attempts, other.failed_attempts),
        ] {
            for (why, count) in own {
                *all.entry(why).or_default() += count;
            }
        }
    }
}

/// A client and its connection.
struct Place {
    client: StormClient,
    /// Its number among all, for its address.
    number: usize,
    /// When it starts, or starts again; `None` while an attempt goes on, or when it is over.
    starts_ns: Option<u64>,
    /// When it was to start at first.
    first_ns: u64,
    socket: Option<TcpStream>,
    is_connected: bool,
    out: Outbox,
    inbox: Inbox,
}

struct Worker<'w> {
    common: Common,
    shared: &'w Shared,
    epoll: Epoll,
    clock: Instant,
    places: Vec<Place>,
    tally: Tally,
    left: usize,
}

/// Lets a thread's clients mount; their connections stay until all are done.
pub(super) fn run(
    storm: &Mountstorm,
    thread: usize,
    clock: Instant,
    shared: &Shared,
    control: &Control,
) -> Result<Tally, BenchError> {
    let common = Common {
        target: storm.target.clone(),
        path: storm.path.as_bytes().to_vec(),
        every_share: storm.every_share,
        paths: Paths::default(),
        rpcbind: storm.rpcbind,
        patience: storm.patience,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut random = Random::new(now.map_or(0, |now| now.as_nanos() as u64) ^ thread as u64);
    let spread_ns = storm.spread.as_nanos() as u64;
    let places: Vec<Place> = storm
        .clients_of(thread)
        .map(|number| {
            let share = number as f64 / storm.clients as f64;
            let first_ns = (share * spread_ns as f64) as u64;
            Place {
                client: StormClient::new(&common, random.next() as u32, first_ns),
                number,
                starts_ns: Some(first_ns),
                first_ns,
                socket: None,
                is_connected: false,
                out: Outbox::default(),
                inbox: Inbox::default(),
            }
        })
        .collect();
    let left = places.len();
    let epoll = Epoll::new()?;
    let tally = Tally::default();
    Worker { common, shared, epoll, clock, places, tally, left }.run(storm.clients, control)
}

impl Worker<'_> {
    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn run(mut self, clients: usize, control: &Control) -> Result<Tally, BenchError> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; RECEIVE_BYTES];
        // Clients before this one have started once; the others wait for their time.
        let mut next_start = 0;
        let mut looked_at = Instant::now();
        while self.left > 0 && !control.is_interrupted() {
            for _start in 0..STARTS_OF_TURN {
                let now_ns = self.now_ns();
                let place = self.places.get_mut(next_start);
                let Some(place) = place.filter(|place| place.first_ns <= now_ns) else { break };
                place.starts_ns = None;
                let next = place.client.begin(&self.common, now_ns);
                self.act(next_start, next);
                next_start += 1;
            }
            let next_due = self.places.get(next_start).map(|place| place.first_ns);
            let patience = next_due.map_or(TICK, |due| {
                TICK.min(Duration::from_nanos(due.saturating_sub(self.now_ns())))
            });
            self.epoll.wait(&mut events, Some(patience))?;
            for event in events.iter() {
                let index = event.token as usize;
                if event.is_writable {
                    self.writable(index);
                }
                if event.is_readable || event.is_hung_up {
                    self.readable(index, &mut buffer);
                }
            }
            if looked_at.elapsed() >= TICK {
                looked_at = Instant::now();
                self.look_at_clocks(next_start);
            }
        }
        if self.left > 0 {
            self.tally.given_up.insert(Failure::Interrupted.to_string(), self.left as u64);
        }
        self.shared.done.fetch_add(self.places.len(), Ordering::Relaxed);
        // Nobody who has mounted goes before the last has.
        while self.shared.done.load(Ordering::Relaxed) < clients && !control.is_interrupted() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.tally)
    }

    /// Starts those whose pause is over, and fails those that waited too long.
    fn look_at_clocks(&mut self, started: usize) {
        let now_ns = self.now_ns();
        for index in 0..started {
            let Some(place) = self.places.get_mut(index) else { return };
            if place.client.is_done() {
                continue;
            }
            let next = match place.starts_ns {
                Some(starts_ns) if starts_ns <= now_ns => {
                    place.starts_ns = None;
                    place.client.begin(&self.common, now_ns)
                }
                None if place.client.deadline_ns(&self.common) <= now_ns => {
                    self.note_failure(&Failure::TimedOut);
                    let Some(place) = self.places.get_mut(index) else { return };
                    place.client.fail(&self.common, Failure::TimedOut, now_ns)
                }
                _ => continue,
            };
            self.act(index, next);
        }
    }

    fn note_failure(&mut self, failure: &Failure) {
        *self.tally.failed_attempts.entry(failure.to_string()).or_default() += 1;
    }

    fn fail(&mut self, index: usize, failure: Failure) {
        self.note_failure(&failure);
        let now_ns = self.now_ns();
        if let Some(place) = self.places.get_mut(index) {
            let next = place.client.fail(&self.common, failure, now_ns);
            self.act(index, next);
        }
    }

    /// Does what a client wants next.
    fn act(&mut self, index: usize, next: Next) {
        let now_ns = self.now_ns();
        let Some(place) = self.places.get_mut(index) else { return };
        match next {
            Next::Connect(address) => {
                place.is_connected = false;
                (place.out, place.inbox) = (Outbox::default(), Inbox::default());
                // Closes the one before.
                place.socket = None;
                let opened = sockets::start_connecting(address, Some(place.number));
                let opened = opened.and_then(|socket| {
                    self.epoll.add(&socket, index as u64, Interest::StreamEdges)?;
                    Ok(socket)
                });
                match opened {
                    Ok(socket) => place.socket = Some(socket),
                    Err(error) => self.fail(index, connection_failure(&error)),
                }
            }
            Next::Send(bytes) => {
                place.out.bytes().extend_from_slice(&bytes);
                self.flush(index);
            }
            Next::Pause(until) => {
                place.socket = None;
                place.starts_ns = Some(until);
                self.tally.retries += 1;
            }
            Next::Stay => {
                self.tally.every_share.add_client(&place.client.everything);
                self.tally.mounts.saturating_record(now_ns.saturating_sub(place.first_ns));
                self.tally.at_first += u64::from(place.client.attempts == 1);
                self.tally.last_ns = self.tally.last_ns.max(now_ns);
                self.shared.mounted.fetch_add(1, Ordering::Relaxed);
                self.left -= 1;
            }
            Next::Stop => {
                place.socket = None;
                self.tally.every_share.add_client(&place.client.everything);
                let why = place.client.failure.as_ref().map(ToString::to_string);
                *self.tally.given_up.entry(why.unwrap_or_default()).or_default() += 1;
                self.shared.failed.fetch_add(1, Ordering::Relaxed);
                self.left -= 1;
            }
        }
    }

    fn flush(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index) else { return };
        let Some(socket) = &place.socket else { return };
        if let Err(error) = place.out.flush(socket) {
            self.fail(index, connection_failure(&error));
        }
    }

    fn writable(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let Some(place) = self.places.get_mut(index) else { return };
        let Some(socket) = &place.socket else { return };
        if place.is_connected {
            return self.flush(index);
        }
        match socket.take_error() {
            Ok(None) => {
                place.is_connected = true;
                let (kind, since) = (place.client.kind(), place.client.step_ns);
                let next = place.client.handle_connected(&self.common, now_ns);
                self.record(kind, now_ns.saturating_sub(since));
                self.act(index, next);
            }
            Ok(Some(error)) | Err(error) => self.fail(index, connection_failure(&error)),
        }
    }

    fn record(&mut self, kind: usize, took_ns: u64) {
        self.tally.steps.replies += 1;
        if let Some(histogram) = self.tally.steps.kinds.get_mut(kind) {
            histogram.saturating_record(took_ns);
        }
    }

    fn readable(&mut self, index: usize, buffer: &mut [u8]) {
        loop {
            let Some(place) = self.places.get_mut(index) else { return };
            let Some(socket) = place.socket.as_ref().filter(|_| place.is_connected) else {
                return;
            };
            if place.client.is_listing() {
                if self.receive_listing(index, buffer) {
                    continue;
                }
                return;
            }
            let carried = place.inbox.restore(buffer);
            let room = buffer.get_mut(carried..).unwrap_or(&mut []);
            let count = match steadfast_sys::net::receive(socket, &mut [IoSliceMut::new(room)]) {
                Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                other => other,
            };
            let records = count.and_then(|count| {
                let mut records = Vec::new();
                let bytes = buffer.get(..carried + count).unwrap_or(&[]);
                place.inbox.feed(bytes, |arrival| match arrival {
                    Arrival::Record(record) => {
                        records.push(record.to_vec());
                        Ok(())
                    }
                    _ => Err(io::Error::other("a reply of unreasonable length")),
                })?;
                Ok((count, records))
            });
            match records {
                Ok((0, _)) => return,
                Ok((_, records)) => {
                    for record in records {
                        self.take_reply(index, &record);
                    }
                }
                // A mounted client whose connection goes has been mounted; the end is told only
                // where something was still to come.
                Err(_) if place.client.step == Step::Mounted => {
                    place.socket = None;
                    return;
                }
                Err(error) => return self.fail(index, connection_failure(&error)),
            }
        }
    }

    /// Receives some of the list of shares; whether there may be more of it, or of what follows.
    fn receive_listing(&mut self, index: usize, buffer: &mut [u8]) -> bool {
        let now_ns = self.now_ns();
        let Some(place) = self.places.get_mut(index) else { return false };
        let Some(socket) = &place.socket else { return false };
        let count = match steadfast_sys::net::receive(socket, &mut [IoSliceMut::new(buffer)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            other => other,
        };
        let count = match count {
            Ok(count) => count,
            Err(error) => {
                self.fail(index, connection_failure(&error));
                return false;
            }
        };
        let since = place.client.step_ns;
        let bytes = buffer.get(..count).unwrap_or(&[]);
        let Some(next) = place.client.handle_listing(&mut self.common, bytes, now_ns) else {
            return true;
        };
        self.settle(index, Step::Export as usize, now_ns.saturating_sub(since), next);
        true
    }

    fn take_reply(&mut self, index: usize, record: &[u8]) {
        let now_ns = self.now_ns();
        let Some(place) = self.places.get_mut(index) else { return };
        if place.client.is_done() || place.starts_ns.is_some() {
            return;
        }
        let (kind, since) = (place.client.kind(), place.client.step_ns);
        let next = place.client.handle_reply(&self.common, record, now_ns);
        self.settle(index, kind, now_ns.saturating_sub(since), next);
    }

    /// Counts a step that was answered, or failed, and goes on.
    fn settle(&mut self, index: usize, kind: usize, took_ns: u64, next: Next) {
        let failure = self.places.get(index).and_then(|place| place.client.failure.clone());
        if let (Next::Pause(_) | Next::Stop, Some(failure)) = (&next, failure) {
            self.note_failure(&failure);
        } else {
            self.record(kind, took_ns);
        }
        self.act(index, next);
    }
}

fn connection_failure(error: &io::Error) -> Failure {
    Failure::Connection(match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        // Without the number that the kernel has for it.
        kind => kind.to_string(),
    })
}
