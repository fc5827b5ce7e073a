//! Who calls, and how long the call may wait.

use smallvec::SmallVec;

/// Supplementary groups that `AUTH_SYS` can carry (RFC 5531 §8.2 and its appendix).
pub const GROUPS_MAX: usize = 16;

/// A local identity: what the caller's wire identity became after the share's squashing.
/// Never built from wire numbers anywhere but in the engine's squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cred {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, as they came.
    pub groups: SmallVec<[u32; GROUPS_MAX]>,
}

impl Cred {
    /// Whether the caller is the superuser.
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller belongs to `gid`.
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Whether an operation may put its thread to sleep on storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// No: the operation returns [`crate::FsError::WouldOpen`] when an object must be opened, and
    /// [`crate::FsError::WouldBlock`] when what it needs is not in memory, having done nothing.
    Never,
    /// To open an object, which the kernel most likely has in memory; not for what certainly is
    /// not: then it returns [`crate::FsError::WouldBlock`], having done nothing.
    ToOpen,
    /// Yes.
    Allowed,
}

/// The longest key of a call, in bytes.
pub const CALL_KEY_BYTES_MAX: usize = 64;

/// Which call it is, for whoever answers its repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallName<'a> {
    /// What tells the call from all others, at most [`CALL_KEY_BYTES_MAX`].
    pub key: &'a [u8],
    /// By which share its objects were reached.
    pub share: u64,
}

/// On whose behalf, and how, an operation runs.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The identity that the kernel, or the checks of [`crate::permission`], decide by.
    pub cred: &'a Cred,
    /// Whether the operation may wait for storage. Operations that change something always may.
    pub waiting: Waiting,
    /// Which call it is for, if its reply is kept for its repetition.
    pub call: Option<CallName<'a>>,
    /// Whether a change promises nothing about stability: it is acknowledged once it is in memory
    /// (`async` of exports(5)).
    pub is_async: bool,
}

impl<'a> Caller<'a> {
    /// A caller whose call nobody repeats, or whose repetition does no harm.
    pub fn new(cred: &'a Cred, waiting: Waiting) -> Self {
        Self { cred, waiting, call: None, is_async: false }
    }
}
