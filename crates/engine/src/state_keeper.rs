//! How the state of clients outlives the process.

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
