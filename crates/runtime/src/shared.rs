//! What all threads of a server share. Read-mostly: nothing in [`Shared`] is written on the way of a
//! call.
//!
//! Replies that wait for stability are parked with parts of it ([`parked`]): with the flusher of a file system
//! ([`flusher`]), or with the intent log ([`reply_log`]).

pub(crate) mod flusher;
pub(crate) mod parked;
pub(crate) mod reply_log;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::capture::Switch;
use crate::clock::StampClock;
use crate::connection::Waiting;
use crate::living::Living;
use crate::log_limit::LogLimits;
use crate::statistics::{CallSurroundings, Surroundings, TopRoom};
use crate::{ServerOptions, Service};
use flusher::Flushers;
use reply_log::ReplyLog;

/// How far a server is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Running = 0,
    /// Nothing is accepted or received; what is under way is finished and sent.
    Draining = 1,
    /// Every thread ends.
    Stopped = 2,
}

pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) options: ServerOptions,
    pub(crate) flushers: Flushers,
    /// Where replies wait for logged changes.
    pub(crate) intent_log: Option<Arc<dyn ReplyLog>>,
    pub(crate) log: LogLimits,
    pub(crate) waiting: Arc<Waiting>,
    /// Which connections there are.
    pub(crate) living: Arc<Living>,
    /// For who looks at what is called now.
    pub(crate) top_room: TopRoom,
    /// For who captures messages.
    pub(crate) capture: Switch,
    stamps: StampClock,
    start: Instant,
    phase: AtomicU8,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.phase())
    }
}

impl Shared {
    pub(crate) fn new(
        options: ServerOptions,
        service: Arc<dyn Service>,
        intent_log: Option<Arc<dyn ReplyLog>>,
    ) -> Self {
        Self {
            service,
            options,
            flushers: Flushers::default(),
            intent_log,
            log: LogLimits::new(),
            waiting: Arc::default(),
            living: Arc::default(),
            top_room: TopRoom::default(),
            capture: Switch::default(),
            stamps: StampClock::start(),
            start: Instant::now(),
            phase: AtomicU8::new(Phase::Running as u8),
        }
    }

    /// The server's monotonic clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// When something happens to a call, by another clock: for statistics and turns, never
    /// for time-outs.
    #[inline]
    pub(crate) fn stamp_ns(&self) -> u64 {
        self.stamps.now_ns()
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Stopped,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
    }
}

impl Surroundings for Shared {
    #[inline]
    fn slow_call_ns(&self) -> u64 {
        self.options.slow_call_ms.saturating_mul(1_000_000)
    }

    #[inline]
    fn top_room(&self) -> &TopRoom {
        &self.top_room
    }

    fn of_call(&self, during: Duration) -> CallSurroundings {
        let log = self.intent_log.as_ref().map(|log| log.activity(during)).unwrap_or_default();
        CallSurroundings {
            log,
            parked: self.flushers.waiting(),
            waiting_bytes: self.waiting.reply_bytes.load(Ordering::Relaxed) as u64,
        }
    }
}
