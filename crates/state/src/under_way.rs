//! A request that is under way and has done something: how far it has come. If the process is killed, the
//! next one goes on with it when it comes again, and does nothing of it twice.

use std::sync::Arc;

/// What the request of a slot has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) sequence: u32,
    pub(crate) digest: u32,
    /// Whether it may be known before it is stable.
    pub(crate) is_unstable: bool,
    /// As who executes requests says it.
    pub(crate) done: Arc<[u8]>,
}

/// Whether a sequence id is another one, or one that came after it.
pub(crate) fn is_not_before(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other).cast_signed() >= 0
}
