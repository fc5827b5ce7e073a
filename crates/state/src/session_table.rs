//! Where sessions are found by their id.
//!
//! Each request looks here, so nothing is written that clients share: a place is read by way of
//! `arc-swap`. Chunks of places are made when they are first needed, and stay.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::{Session, SessionId};

const CHUNK_PLACES: usize = 256;

type Chunk = Box<[ArcSwapOption<Session>]>;

pub(crate) struct SessionTable {
    instance: u32,
    chunks: Box<[OnceLock<Chunk>]>,
    places: Mutex<Places>,
}

struct Places {
    /// Places from here on were never used.
    next: u32,
    count_max: u32,
    free: VecDeque<u32>,
    /// Of the next session. Never used again.
    serial: u64,
}

impl SessionTable {
    pub(crate) fn new(instance: u32, sessions_max: u32) -> Self {
        let chunks = usize::try_from(sessions_max).unwrap_or(usize::MAX).div_ceil(CHUNK_PLACES);
        let places = Places { next: 0, count_max: sessions_max, free: VecDeque::new(), serial: 1 };
        Self {
            instance,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            places: Mutex::new(places),
        }
    }

    /// Adds the session that `make` makes of its id; `None` if there is no room.
    pub(crate) fn add(&self, make: impl FnOnce(SessionId) -> Session) -> Option<Arc<Session>> {
        let id = self.take_place()?;
        let session = Arc::new(make(id));
        let (chunk, place) = split(id.place());
        let chunk = self.chunks.get(chunk)?.get_or_init(new_chunk);
        chunk.get(place)?.store(Some(Arc::clone(&session)));
        Some(session)
    }

    /// Adds a session that has its id already. Whether there is room for it.
    pub(crate) fn restore(&self, session: &Arc<Session>) -> bool {
        let (chunk, place) = split(session.id().place());
        let chunk = self.chunks.get(chunk);
        let chunk = chunk.map(|chunk| chunk.get_or_init(new_chunk));
        let Some(place) = chunk.and_then(|chunk| chunk.get(place)) else { return false };
        place.store(Some(Arc::clone(session)));
        let mut places = self.places.lock();
        places.next = places.next.max(session.id().place().saturating_add(1));
        places.serial = places.serial.max(session.id().serial());
        true
    }

    /// All sessions have been restored. The next one's serial number is not below `serial_next`.
    pub(crate) fn end_restoring(&self, serial_next: u64) {
        let mut places = self.places.lock();
        places.serial = places.serial.max(serial_next.saturating_sub(1));
        let is_free = |at: &u32| self.at(*at).is_none_or(|place| place.load().is_none());
        places.free = (0..places.next).filter(is_free).collect();
    }

    /// What is above the serial number of all sessions so far.
    pub(crate) fn serial_next(&self) -> u64 {
        self.places.lock().serial + 1
    }

    fn take_place(&self) -> Option<SessionId> {
        let mut places = self.places.lock();
        let place = if let Some(place) = places.free.pop_front() {
            place
        } else {
            let place = (places.next < places.count_max).then_some(places.next)?;
            places.next += 1;
            place
        };
        places.serial += 1;
        Some(SessionId::new(self.instance, place, places.serial))
    }

    pub(crate) fn find(&self, id: &SessionId) -> Option<Arc<Session>> {
        let session = self.place(id)?.load();
        session.as_ref().filter(|session| session.id() == id).map(Arc::clone)
    }

    /// Takes a session out, if it is in.
    pub(crate) fn remove(&self, id: &SessionId) {
        if self.find(id).is_none() {
            return;
        }
        if let Some(place) = self.place(id) {
            place.store(None);
            self.places.lock().free.push_back(id.place());
        }
    }

    fn place(&self, id: &SessionId) -> Option<&ArcSwapOption<Session>> {
        self.at(id.place())
    }

    fn at(&self, place: u32) -> Option<&ArcSwapOption<Session>> {
        let (chunk, place) = split(place);
        self.chunks.get(chunk)?.get()?.get(place)
    }
}

fn new_chunk() -> Chunk {
    (0..CHUNK_PLACES).map(|_| ArcSwapOption::const_empty()).collect()
}

fn split(place: u32) -> (usize, usize) {
    let place = usize::try_from(place).unwrap_or(usize::MAX);
    (place / CHUNK_PLACES, place % CHUNK_PLACES)
}
