//! What a call knows of its own waiting for clients and names (`waits.rs` has why it is done so).

use steadfast_vfs::FsError;

use super::Call;
use crate::host::Room;
use crate::verdict::SuspendedCall;
use crate::waits::{InSession, Wait, WaitFor};

/// A COMPOUND with more bytes of results does not wait: they are kept with it.
const RESULTS_BYTES_MAX: usize = 16 << 10;
/// Bytes of a call that waits for a name, at the most. With the longest path, credentials and verifier a
/// MOUNT call has less; who sends more has a word for "later".
const CALL_FOR_NAMES_BYTES_MAX: usize = 2048;
/// A call that finds something else in its way each time is judged so often at the most.
const JUDGEMENTS_MAX: u8 = 4;

/// What a call knows of its own waiting.
#[derive(Debug, Default)]
pub(crate) struct CallWait {
    registered: Option<Wait>,
    stage: Stage,
    judgements: u8,
    /// Bytes of the results before the operation, which are kept with the call.
    pub(crate) results_bytes: usize,
    /// If the call is one of a session.
    pub(crate) session: Option<InSession>,
    /// The question whose answer the operation has waited for.
    pub(crate) question: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing was found in its way.
    #[default]
    Free,
    /// Something was, and the call is registered since: it is to be judged again.
    Registered,
    /// It was in the way still.
    Waits,
}

impl CallWait {
    /// Whether the operation that fails is to be executed again, at once or later.
    pub(crate) fn is_due_again(&self) -> bool {
        self.stage != Stage::Free
    }

    /// Whether the operation that has failed is to be executed again at once; it is judged anew then.
    pub(crate) fn begins_again(&mut self) -> bool {
        let is_registered = self.stage == Stage::Registered;
        if is_registered {
            self.stage = Stage::Free;
        }
        is_registered
    }

    /// Another operation begins.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Free;
    }

    /// The registration of a call that is suspended because of it.
    pub(crate) fn take(&mut self) -> Option<Box<Wait>> {
        let is_waiting = self.stage == Stage::Waits;
        self.registered.take_if(|_| is_waiting).map(Box::new)
    }
}

impl Call<'_> {
    /// What is left of the call, if it was suspended and nobody has taken that.
    pub(crate) fn take_suspended(&mut self) -> Option<SuspendedCall> {
        let suspended = self.host.take_suspended()?;
        self.wait.question = suspended.question;
        Some(suspended)
    }

    /// The operation cannot be executed before something is out of its way, which another client or a
    /// name service has to take there. It has changed nothing, and must fail with the error that this
    /// gives: then it is executed again, from its beginning, at once and when [`crate::waits::Waits::wake`] says so.
    pub(crate) fn wait_for(&mut self, what: WaitFor) -> FsError {
        self.wait_at_first(what, what.patience_ms().0)
    }

    /// The same of one that is judged again after so many ms, if not earlier.
    pub(crate) fn wait_at_first(&mut self, what: WaitFor, first_ms: u64) -> FsError {
        match (self.wait.stage, &self.wait.registered) {
            (Stage::Registered, _) => {}
            (_, Some(registered)) if registered.what() == what => {
                self.wait.stage = Stage::Waits;
                self.lacks_room = Some(Room::Later);
            }
            _ => self.register(what, first_ms),
        }
        FsError::TryLater
    }

    fn register(&mut self, what: WaitFor, first_ms: u64) {
        self.wait.registered = None;
        if self.wait.judgements == JUDGEMENTS_MAX {
            return;
        }
        if self.wait.results_bytes > RESULTS_BYTES_MAX {
            return;
        }
        // What has promised something cannot wait for anything else.
        if !self.promises.is_empty() {
            return;
        }
        if matches!(what, WaitFor::Names(_)) && self.message.bytes.len() > CALL_FOR_NAMES_BYTES_MAX
        {
            return;
        }
        // If the call has waited before, its place is free.
        drop(self.take_suspended());
        let waker = self.host.waker(first_ms).or_else(|| self.host.waker(what.patience_ms().1));
        let Some(waker) = waker else { return };
        let (address, session) = (self.peer.address.ip(), self.wait.session);
        self.wait.registered = self.shared.waits.register(what, address, session, waker);
        if self.wait.registered.is_some() {
            self.wait.judgements += 1;
            self.wait.stage = Stage::Registered;
        }
    }
}
