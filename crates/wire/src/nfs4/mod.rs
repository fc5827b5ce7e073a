//! NFS version 4, minor versions 0 to 2 (RFC 7530, RFC 8881, RFC 7862): statuses, numbers of
//! operations and attributes, the head of a COMPOUND, and arguments and results of the operations
//! that are served.
//!
//! A COMPOUND's operations are not decoded as a whole: who executes them reads a number
//! ([`Op4`]), then its arguments, one operation at a time.

mod attributes;
mod callback;
mod extents;
mod operations;
mod results;
mod session;
mod status;
mod v40;
mod xattrs;

pub use attributes::{Attribute4, Bitmap4, Fattr4, OpenArguments4};
pub use callback::{
    CALLBACK_COMPOUND, CALLBACK_VERSION, CallbackCompoundHead4, CallbackGetAttr4Args,
    CallbackGetAttr4Result, CallbackNotifyLock4Args, CallbackOp4, CallbackRecall4Args,
    CallbackSequence4Args, CallbackSequence4Result, ReferringCall4, ReferringCallList4,
};
pub use extents::{
    Allocate4Args, CONTENT_DATA, CONTENT_HOLE, Clone4Args, Content4, Copy4Args, Copy4Result,
    CopyRequirements4, IoAdvise4Args, NetLoc4, ReadPlus4Args, ReadPlus4Result, Seek4Args,
    Seek4Result,
};
pub use operations::{
    Access4Args, Close4Args, Commit4Args, CompoundHead4, Create4Args, CreateType4, GetAttr4Args,
    Link4Args, Lock4Args, LockDenied4, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4,
    Lookup4Args, Op4, Open4Args, OpenClaim4, OpenDowngrade4Args, OpenHow4, PutFh4Args, Read4Args,
    ReadDir4Args, Remove4Args, Rename4Args, SecInfo4Args, SecInfoNoName4Args, SetAttr4Args,
    StateId4, Verify4Args, Write4Args,
};
pub use results::{
    Access4Result, Ace4, BindConnToSession4Result, ChangeInfo4, CompoundReplyHead4, Create4Result,
    CreateSession4Result, ExchangeId4Result, FileType4, GetFh4Result, NfsTime4, Open4Result,
    OpenDelegation4, Read4Result, ReadLink4Result, Rename4Result, SecFlavour4, SecInfo4Result,
    Sequence4Result, SpaceLimit4, StateProtectResult4, TestStateId4Result, Write4Result,
};
pub use session::{
    BackchannelCtl4Args, BindConnToSession4Args, CallbackSec4, ChannelAttributes4,
    CreateSession4Args, DelegReturn4Args, DestroyClientId4Args, DestroySession4Args,
    ExchangeId4Args, FreeStateId4Args, ImplementationId4, ReclaimComplete4Args, Sequence4Args,
    StateProtect4, TestStateId4Args,
};
pub use status::NfsStat4;
pub use v40::{
    CallbackClient4, ClientInUse4, OpenConfirm4Args, ReleaseLockOwner4Args, Renew4Args,
    SetClientId4Args, SetClientId4Result, SetClientIdConfirm4Args,
};
pub use xattrs::{
    GetXattr4Result, ListXattrs4Args, ListXattrs4Result, SetXattr4Args, SetXattrOption4,
    XattrName4Args,
};

/// Version of program [`crate::nfs3::PROGRAM`].
pub const VERSION: u32 = 4;
/// Longest handle in bytes (`NFS4_FHSIZE`, RFC 8881 §3.1).
pub const HANDLE_BYTES_MAX: usize = 128;
/// Longest opaque value: names of clients and owners, tags (`NFS4_OPAQUE_LIMIT`).
pub const OPAQUE_BYTES_MAX: usize = 1024;
/// Longest name in bytes. More than any file system has, so that too long a name gets
/// `NFS4ERR_NAMETOOLONG` rather than `NFS4ERR_BADXDR`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest tag that is read; who executes a COMPOUND refuses shorter ones.
pub const TAG_BYTES_MAX: usize = 1 << 20;
