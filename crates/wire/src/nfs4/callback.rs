//! Callbacks: what the server asks of its clients (RFC 8881 §20). Each COMPOUND begins with
//! `CB_SEQUENCE`, and names one operation behind it.

use super::attributes::{Bitmap4, Fattr4};
use super::operations::{LockOwner4, StateId4};
use super::{HANDLE_BYTES_MAX, TAG_BYTES_MAX};
use crate::codec::{numbers, structure};

/// Version of the program of callbacks. RFC 8881 §18.36.3 says 4 in one place; the XDR description
/// (RFC 5662), servers and clients have 1.
pub const CALLBACK_VERSION: u32 = 1;
/// Number of `CB_COMPOUND`.
pub const CALLBACK_COMPOUND: u32 = 1;
/// Most sessions, and most requests of one, that a `CB_SEQUENCE` refers to; the RFC has no bound.
const REFERRING_MAX: usize = 64;

numbers! {
    /// Number of a callback's operation (`nfs_cb_opnum4`). Those that this server never sends are
    /// not here.
    pub enum CallbackOp4, "nfs_cb_opnum4" {
        /// `CB_GETATTR`.
        GetAttr = 3,
        /// `CB_RECALL`.
        Recall = 4,
        /// `CB_SEQUENCE`.
        Sequence = 11,
        /// `CB_NOTIFY_LOCK`.
        NotifyLock = 13,
        /// What a client answers to an operation that it does not know.
        Illegal = 10044,
    }
}

structure! {
    /// The head of a `CB_COMPOUND`.
    #[derive(Copy)]
    pub struct CallbackCompoundHead4<'a> {
        /// Text of the server's choice, which the reply has too.
        pub tag: &'a [u8]; max TAG_BYTES_MAX,
        /// Minor version: the session's.
        pub minorversion: u32,
        /// Which client, in minor version 0.
        pub callback_ident: u32,
        /// How many operations follow.
        pub operations: u32,
    }
}

structure! {
    /// A request whose reply the client may not have seen yet (`referring_call4`).
    #[derive(Copy)]
    pub struct ReferringCall4 {
        /// Its sequence id.
        pub sequenceid: u32,
        /// Its slot.
        pub slotid: u32,
    }
}

structure! {
    /// Such requests of one session.
    pub struct ReferringCallList4 {
        /// The session.
        pub sessionid: [u8; 16],
        /// The requests.
        pub calls: Vec<ReferringCall4>; max REFERRING_MAX,
    }
}

structure! {
    /// Arguments of `CB_SEQUENCE`.
    pub struct CallbackSequence4Args {
        /// Of which session.
        pub sessionid: [u8; 16],
        /// Counts the slot's callbacks.
        pub sequenceid: u32,
        /// Which slot of the session's back channel.
        pub slotid: u32,
        /// The highest slot that the server has in use.
        pub highest_slotid: u32,
        /// Whether the reply is to be kept.
        pub cachethis: bool,
        /// Requests that the callback follows from.
        pub referring: Vec<ReferringCallList4>; max REFERRING_MAX,
    }
}

structure! {
    /// Result of `CB_SEQUENCE`.
    #[derive(Copy)]
    pub struct CallbackSequence4Result {
        /// Of which session.
        pub sessionid: [u8; 16],
        /// The sequence id of the callback.
        pub sequenceid: u32,
        /// Its slot.
        pub slotid: u32,
        /// The highest slot that the client has.
        pub highest_slotid: u32,
        /// The highest slot that the server should use.
        pub target_highest_slotid: u32,
    }
}

structure! {
    /// Arguments of `CB_GETATTR`.
    #[derive(Copy)]
    pub struct CallbackGetAttr4Args<'a> {
        /// The file.
        pub fh: &'a [u8]; max HANDLE_BYTES_MAX,
        /// Which of its attributes are asked for.
        pub attr_request: Bitmap4,
    }
}

structure! {
    /// Result of `CB_GETATTR`.
    #[derive(Copy)]
    pub struct CallbackGetAttr4Result<'a> {
        /// The attributes.
        pub obj_attributes: Fattr4<'a>,
    }
}

structure! {
    /// Arguments of `CB_RECALL`.
    #[derive(Copy)]
    pub struct CallbackRecall4Args<'a> {
        /// The delegation.
        pub stateid: StateId4,
        /// Whether the file is about to be cut, so that its data need not be written.
        pub truncate: bool,
        /// The file.
        pub fh: &'a [u8]; max HANDLE_BYTES_MAX,
    }
}

structure! {
    /// Arguments of `CB_NOTIFY_LOCK`.
    #[derive(Copy)]
    pub struct CallbackNotifyLock4Args<'a> {
        /// The file.
        pub object: &'a [u8]; max HANDLE_BYTES_MAX,
        /// Who may have the lock now.
        pub lock_owner: LockOwner4<'a>,
    }
}
