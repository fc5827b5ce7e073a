//! Why a call on a lock fails, and the one place where NLM's status of it is made.

use steadfast_state::StateError;
use steadfast_vfs::FsError;
use steadfast_wire::nlm::NlmStat;

use crate::call::Call;
use crate::complaint::{Complaint, LockRefusal};

/// No status says that a client should try later; but every client does after this one. Only who
/// takes again what it had before a restart takes it for a refusal, and the lock for lost: it is to
/// get no answer at all, and sends its call again.
pub(super) const LATER: NlmStat = NlmStat::DeniedGracePeriod;

/// Why a call on a lock fails, unless somebody else has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// In the grace period, or as [`LATER`] says.
    Later,
    For(LockRefusal),
}

impl From<FsError> for Refused {
    fn from(error: FsError) -> Self {
        match error {
            FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => Self::Later,
            error => Self::For(LockRefusal::File(error)),
        }
    }
}

impl From<StateError> for Refused {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Recalling => Self::Later,
            error => Self::For(LockRefusal::State(error)),
        }
    }
}

impl From<LockRefusal> for Refused {
    fn from(why: LockRefusal) -> Self {
        Self::For(why)
    }
}

impl Refused {
    /// NLM's status. What a client's user is told without a reason (Linux: ENOLCK) is logged with it.
    pub(super) fn told(self, call: &mut Call<'_>) -> NlmStat {
        let stat = self.stat();
        if let Self::For(why) = self
            && [NlmStat::Failed, NlmStat::DeniedNoLocks].contains(&stat)
        {
            let operation = call.op.operation.name;
            call.complaint = Some(Complaint::LockRefused { operation, why });
        }
        stat
    }

    fn stat(self) -> NlmStat {
        match self {
            Self::Later => LATER,
            Self::For(LockRefusal::File(FsError::BadHandle | FsError::Stale)) => {
                NlmStat::StaleHandle
            }
            Self::For(LockRefusal::File(FsError::ReadOnly)) => NlmStat::ReadOnlyFs,
            // Owners are never too long here: the range is.
            Self::For(LockRefusal::State(StateError::Invalid)) => NlmStat::TooBig,
            Self::For(
                LockRefusal::State(StateError::TryLater | StateError::Expired)
                | LockRefusal::NotRecorded,
            ) => NlmStat::DeniedNoLocks,
            Self::For(LockRefusal::State(StateError::ShareDenied)) => NlmStat::Denied,
            Self::For(_) => NlmStat::Failed,
        }
    }
}
