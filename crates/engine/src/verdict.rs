//! What became of a call.

use smallvec::SmallVec;

use crate::complaint::HangUp;
use crate::operation::Operation;
use crate::progress::{EndedRun, SuspendedRun};
use crate::promises::Awaited;
use crate::record;
use crate::reply_cache::Execution;
use crate::waits::Wait;

/// What became of a call.
#[derive(Debug)]
#[must_use]
pub enum Verdict {
    /// One reply was appended.
    Replied,
    /// The call may not wait for its storage now ([`crate::Room::Later`]), or waits for a client
    /// ([`SuspendedCall::waits_for_client`]), and has changed nothing. The host executes it again later, giving this back
    /// ([`crate::CallHost::take_suspended`]), or has it refused for now ([`crate::Engine::refuse`]). Until then its
    /// duplicates find it in progress.
    Suspended(SuspendedCall),
    /// The reply waits for stability: meet the obligation, then [`crate::Engine::settle`]. Boxed, since every call,
    /// also one that waits for nothing, moves its verdict.
    Parked(Box<ParkedCall>),
    /// No reply is due (a duplicate of a call still in progress).
    Silent,
    /// Close the connection (TCP) or drop the datagram (UDP).
    HangUp(HangUp),
}

/// A call that was suspended.
#[derive(Debug)]
pub struct SuspendedCall {
    pub(crate) xid: u32,
    /// The result that tells its client to try later; `None` if it has no word for that: then its
    /// client is told nothing.
    pub(crate) result: Option<Vec<u8>>,
    pub(crate) kept: Option<Kept>,
    /// Whether it waits for a client or for a name; and how the engine knows that.
    pub(crate) waits_for_client: bool,
    pub(crate) wait: Option<Box<Wait>>,
    /// The question to a holder of a delegation whose answer it has waited for.
    pub(crate) question: Option<u64>,
}

/// What is kept of a call that was suspended.
#[derive(Debug)]
pub(crate) enum Kept {
    /// Under which the duplicate request cache has it in progress.
    Execution(Box<Execution>),
    /// What is left of a COMPOUND.
    Run(Box<SuspendedRun>),
}

impl SuspendedCall {
    pub(crate) fn new(
        xid: u32,
        result: Option<Vec<u8>>,
        kept: Option<Kept>,
        (wait, question): (Option<Box<Wait>>, Option<u64>),
    ) -> Self {
        Self { xid, result, kept, waits_for_client: wait.is_some(), wait, question }
    }

    /// A call that no engine suspended, for tests of whoever executes it again.
    pub fn for_test(result: Vec<u8>) -> Self {
        Self::new(0, Some(result), None, (None, None))
    }

    /// The same for one that waits for a client.
    pub fn for_test_of_client(result: Vec<u8>) -> Self {
        Self { waits_for_client: true, ..Self::for_test(result) }
    }

    /// Whether it waits for a client, or for a name service, and is to be executed again when the waker is
    /// woken that the host has given last ([`crate::CallHost::waker`]). If not it waits for its storage.
    pub fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// Whether it waits for a name service.
    pub fn waits_for_names(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| wait.is_for_names())
    }

    /// The same call when nobody is there any more who would make it again: to be refused, it recalls nothing.
    #[must_use]
    pub fn of_nobody(self) -> Self {
        Self { wait: None, ..self }
    }

    /// The result that tells its client to try later, for the same tests; empty if there is none.
    pub fn result(&self) -> &[u8] {
        self.result.as_deref().unwrap_or_default()
    }
}

/// A call that was executed, and whose reply waits until what it tells is stable.
#[derive(Debug)]
pub struct ParkedCall {
    /// What must come first.
    pub awaited: Awaited,
    /// Whose call it was.
    pub(crate) xid: u32,
    /// The result for success.
    pub(crate) result: Vec<u8>,
    /// Where it has write verifiers.
    pub(crate) verifiers_at: SmallVec<[usize; 1]>,
    /// What the result for failure is made by; `None` in tests.
    pub(crate) operation: Option<&'static Operation>,
    /// Under which the duplicate request cache expects the result.
    pub(crate) execution: Option<Execution>,
    /// If it is a COMPOUND of a session.
    pub(crate) run: Option<Box<EndedRun>>,
}

impl ParkedCall {
    /// A parked call that no engine made, for tests of whoever meets obligations.
    pub fn for_test(awaited: Awaited, result: Vec<u8>) -> Box<Self> {
        let verifiers_at = SmallVec::new();
        let (operation, execution, run) = (None, None, None);
        Box::new(Self { awaited, xid: 0, result, verifiers_at, operation, execution, run })
    }

    /// The result for success, for the same tests.
    pub fn result(&self) -> &[u8] {
        &self.result
    }

    /// What it waited for is stable: whether it waits for something else now, which
    /// [`ParkedCall::awaited`] says.
    pub fn go_on(&mut self) -> bool {
        let next = self.run.as_mut().and_then(|run| run.further.pop_front());
        next.map(|next| self.awaited = next).is_some()
    }

    /// What a record of the log is to have for this call, which was flushed and has none: the call and
    /// its result for success. `None` if the call may be executed again.
    pub fn behind_change(&self) -> Option<Vec<u8>> {
        let execution = self.execution.as_ref().filter(|_| self.verifiers_at.is_empty())?;
        let mut behind = Vec::new();
        record::append(&mut behind, Some(&execution.key), &self.result);
        record::call_of(&behind).is_some().then_some(behind)
    }
}
