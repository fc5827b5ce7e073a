//! What a simulated client is for the rest of the simulation.

use crate::Checked;
use crate::delegated::Delegated;
use crate::held::Held;
use crate::message::Request;
use crate::random::Random;

/// What a client may ask for when it thinks.
pub(crate) struct Context<'a> {
    /// By the virtual clock.
    pub(crate) now_ms: u64,
    /// When the server was started last.
    pub(crate) started_ms: u64,
    /// When the power was cut last, so that the server lost what clients had; 0: never.
    pub(crate) lost_ms: u64,
    /// When the server was started after that.
    pub(crate) found_lost_ms: u64,
    /// When the client has connected last.
    pub(crate) connected_ms: u64,
    /// When the call was sent first whose reply is told.
    pub(crate) sent_ms: u64,
    pub(crate) random: &'a mut Random,
    /// What all clients hold.
    pub(crate) held: &'a mut Held,
    /// What clients have opened and were delegated.
    pub(crate) delegated: &'a mut Delegated,
}

/// What follows a reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Then {
    /// The worker thinks again after so long.
    pub(crate) delay_ms: u64,
    /// No repetition of the call is executed any more. NFSv3 cannot tell a repetition of a call that was
    /// refused for now from the call that its client makes later.
    pub(crate) purges: bool,
    /// The server has heard that the host has restarted, and has nothing of it any more.
    pub(crate) has_told: bool,
    /// The client has started anew, and waits for no reply.
    pub(crate) forgets: bool,
}

impl Then {
    pub(crate) fn after(delay_ms: u64) -> Self {
        Self { delay_ms, ..Self::default() }
    }
}

/// A client: workers with one call each in flight.
pub(crate) trait Client {
    /// How long it may be cut off, in ms.
    fn absent_max_ms(&self) -> u64;

    /// How many workers it has.
    fn workers(&self) -> usize;

    /// The worker's next call, if it has one now.
    fn think(&mut self, worker: usize, cx: &mut Context<'_>) -> Checked<Option<Request>>;

    /// The results of the worker's call, behind RPC's header.
    fn reply(&mut self, worker: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then>;

    /// The server calls the client's NLM to say that it has a lock; the result, if there is one.
    fn granted(&mut self, _arguments: &[u8], _cx: &mut Context<'_>) -> Checked<Option<Vec<u8>>> {
        Ok(None)
    }

    /// The server calls the client, by a connection that this one has made; the reply, if there is one.
    fn called(&mut self, _message: &[u8], _cx: &mut Context<'_>) -> Checked<Option<Vec<u8>>> {
        Ok(None)
    }
}
