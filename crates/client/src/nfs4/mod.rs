//! NFSv4.1 (RFC 8881), and 4.2 as far as only the minor version differs: COMPOUNDs by hand, and a client
//! of all that programs do with files.
//!
//! [`Compound`] and [`CompoundReply`] are the lower level: any operations, read one by one.
//! [`Slots`] hands out slots for several requests at once. [`Nfs4Client`] has a session and sends
//! one request at a time, or several ([`Nfs4Client::begin`]). [`SteadyClient4`] has opens and locks, and
//! reclaims them when the server has lost them.

mod attributes;
mod callback;
mod changing;
mod client;
mod compound;
mod connect;
mod locking;
mod pipeline;
mod recovery;
mod reply;
mod session;
mod settable;
mod slots;

pub use attributes::{AclEntry4, Attributes4, FsId4, LINUX_ATTRIBUTES};
pub use callback::{AttributesAsked4, LockIsFree4, Recall4};
pub use changing::{
    ACCESS_BOTH, ACCESS_READ, ACCESS_WRITE, ANONYMOUS, OPEN_OWNER, Opening4, WANT_NO_DELEGATION,
};
pub use client::{Nfs4Client, Opened4, ReadData4, patiently4};
pub use compound::Compound;
pub use connect::establish4;
pub use pipeline::Sent4;
pub use recovery::{Held4, HeldLock4, Lost4, Recovered4, SteadyClient4};
pub use reply::{CompoundReply, Entry4, Listing4, ReadHead4};
pub use session::{ClientSettings, Session4};
pub use settable::{Encoded4, SetTime4, Settings4};
pub use slots::{SLOTS_MAX, Slot, Slots};
pub use steadfast_wire::nfs4::{NfsStat4, StateId4};

pub use crate::operation4::{Denied4, Failure4, operation_name};

use crate::call::Procedure;
use crate::nfs3::NFS3;

/// Procedure NULL of version 4.
pub const NULL4: Procedure = Procedure { program: NFS3, version: 4, number: 0, name: "NULL" };
/// Procedure COMPOUND.
pub const COMPOUND: Procedure =
    Procedure { program: NFS3, version: 4, number: 1, name: "COMPOUND" };
