//! How the state of clients outlives the process.

use std::cell::Cell;
use std::sync::Arc;

use steadfast_state::Image;

use crate::{Engine, Shared};

/// Keeps the events of the state ([`steadfast_state::State::take_events`]), so that another process
/// of the same run of the machine can go on with it.
///
/// Any thread may call it. What cannot be kept is told, and the state is lost with the process.
pub trait StateKeeper: Send + Sync {
    /// Keeps the events that `take` appends, one call after the other. When it returns, all events are
    /// kept that were noted before it was called, whoever took them.
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>));

    /// As [`StateKeeper::keep`], about once a second. `note_all` notes the whole state, so that what
    /// was kept before can go: the keeper calls it when that has become too much.
    fn renew(&self, note_all: &dyn Fn(), take: &dyn Fn(&mut Vec<u8>));
}

impl Engine {
    /// Goes on with what clients had opened and locked at another process of the same instance, and
    /// keeps that from now on. To be called before anybody is served.
    pub fn keep_state(&mut self, now_ms: u64, image: Image, keeper: Arc<dyn StateKeeper>) {
        let state = &self.shared.state;
        state.restore(now_ms, image);
        self.shared.note_locks_left();
        state.begin_keeping();
        self.shared.state_keeper = Some(keeper);
        self.shared.renew_state();
    }
}

impl Shared {
    /// Keeps what was noted of the state: to be called before a client is told of it.
    pub(crate) fn keep_state(&self) {
        if let Some(keeper) = &self.state_keeper
            && self.state.has_unkept_events()
        {
            let taken = Cell::new(0);
            keeper.keep(&|events| taken.set(self.state.take_events(events)));
            self.state.events_are_kept(taken.get());
        }
    }

    /// The same, once a second; and the keeper may make room.
    pub(crate) fn renew_state(&self) {
        if let Some(keeper) = &self.state_keeper {
            let taken = Cell::new(0);
            keeper.renew(&|| self.state.note_all(), &|events| {
                taken.set(self.state.take_events(events));
            });
            self.state.events_are_kept(taken.get());
        }
    }
}
