//! NFSv4.1 (RFC 8881): COMPOUNDs by hand, and a client that reads,
//! opens and locks.
//!
//! [`Compound`] and [`CompoundReply`] are the lower level: any operations, read one by one.
//! [`Slots`] hands out slots for several requests at once. [`Nfs4Client`] has a session and sends
//! one request at a time.

mod attributes;
mod callback;
mod client;
mod compound;
mod connect;
mod locking;
mod names;
mod reply;
mod session;
mod slots;

pub use attributes::{AclEntry4, Attributes4, FsId4, LINUX_ATTRIBUTES};
pub use callback::LockIsFree4;
pub use client::{Nfs4Client, Opened4, ReadData4, patiently4};
pub use compound::Compound;
pub use names::operation_name;
pub use reply::{CompoundReply, Denied4, Entry4, Failure4, Listing4, ReadHead4};
pub use session::{ClientSettings, Session4};
pub use slots::{SLOTS_MAX, Slot, Slots};
pub use steadfast_wire::nfs4::{NfsStat4, StateId4};

use crate::call::Procedure;
use crate::nfs3::NFS3;

/// Procedure NULL of version 4.
pub const NULL4: Procedure = Procedure { program: NFS3, version: 4, number: 0, name: "NULL" };
/// Procedure COMPOUND.
pub const COMPOUND: Procedure =
    Procedure { program: NFS3, version: 4, number: 1, name: "COMPOUND" };
