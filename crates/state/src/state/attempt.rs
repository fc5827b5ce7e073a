//! Calls that clients with an expired lease may stand in the way of: those are expired, and the call is tried again.

use std::sync::Arc;

use crate::files::Conflict;
use crate::{Client, State, StateError};

/// How often a call expires clients that stand in its way, up to 64 at a time. A file that more
/// courteous clients hold makes the client ask again.
const ROUNDS_MAX: u32 = 8;

/// Why a call did not come to an end at once.
pub(crate) enum Stopped<E> {
    /// It fails.
    Failed(E),
    /// These clients have to expire first; if one is alive after all, the call fails.
    ByExpired(Vec<Arc<Client>>, E),
    /// The opens or locks of all clients are too many.
    ForRoom,
}

impl<E: From<StateError>> From<StateError> for Stopped<E> {
    fn from(error: StateError) -> Self {
        Self::Failed(error.into())
    }
}

impl<E: From<StateError>> Stopped<E> {
    pub(crate) fn of_state(stopped: Stopped<StateError>) -> Self {
        match stopped {
            Stopped::Failed(error) => Self::Failed(error.into()),
            Stopped::ByExpired(clients, error) => Self::ByExpired(clients, error.into()),
            Stopped::ForRoom => Self::ForRoom,
        }
    }
}

impl<E> Stopped<E> {
    pub(crate) fn by(conflict: Conflict, error: E) -> Self {
        match conflict {
            Conflict::Living => Self::Failed(error),
            Conflict::Expired(clients) => Self::ByExpired(clients, error),
        }
    }
}

impl State {
    /// Asks `attempt`, and again after those who were in the way are gone.
    pub(crate) fn repeated<T, E: From<StateError>>(
        &self,
        client: &Client,
        attempt: impl Fn() -> Result<T, Stopped<E>>,
    ) -> Result<T, E> {
        for _ in 0..ROUNDS_MAX {
            let now_ms = client.now_ms();
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Stopped::Failed(error)) => return Err(error),
                Err(Stopped::ByExpired(clients, error)) => {
                    if !clients.iter().all(|client| self.expire(now_ms, client)) {
                        return Err(error);
                    }
                }
                Err(Stopped::ForRoom) => {
                    if !self.expire_for_room(now_ms) {
                        return Err(StateError::TryLater.into());
                    }
                }
            }
        }
        Err(StateError::TryLater.into())
    }
}
