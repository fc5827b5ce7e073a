//! The recovery program, version 1: how a client that keeps a journal learns what is stable on its
//! server. It is Steadfast's own (docs/recovery.md), and answers beside NFSv3, of which it has handles,
//! statuses and write verifiers.

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::codec::structure;
use crate::nfs3::{DATA_BYTES_MAX, Fattr3, NfsFh3, NfsStat3, Res3, StableHow};

/// Number of the program, of the range that users define (RFC 5531 §8.2).
pub const PROGRAM: u32 = 0x2053_4a52;
/// Number of WRITEZ.
pub const WRITEZ: u32 = 6;
/// Number of READZ.
pub const READZ: u32 = 7;
/// Length of a journal's name in bytes.
pub const JOURNAL_BYTES: usize = 16;
/// Longest name of a client in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// A flag of ATTACH: the client is recorded, and is waited for when the server has lost something.
pub const RECORDED: u32 = 1;
/// A flag of STATUS and ATTACH: the server waits for clients that bring back what it has lost.
pub const WAITING: u32 = 2;
/// A flag of ATTACH: the server waits for this client. Nobody else was served on the share since it has started.
pub const WAITING_FOR_YOU: u32 = 4;
/// A flag of STATUS and ATTACH: the server has READZ and WRITEZ.
pub const COMPRESSION: u32 = 8;
/// Length of a write verifier in bytes (`NFS3_WRITEVERFSIZE`, RFC 1813 §2.4).
pub const VERIFIER_BYTES: usize = 8;

structure! {
    /// Arguments of STATUS.
    #[derive(Copy)]
    pub struct StatusArgs<'a> {
        /// Any object of the share.
        pub object: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of SYNC.
    #[derive(Copy)]
    pub struct SyncArgs<'a> {
        /// Any object of the file system.
        pub object: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of ATTACH.
    #[derive(Copy)]
    pub struct AttachArgs<'a> {
        /// Any object of the share.
        pub object: NfsFh3<'a>,
        /// Names the client's journal, the same as long as it is there.
        pub journal: [u8; JOURNAL_BYTES],
        /// What the client calls itself, for people.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Arguments of RECOVERED and DETACH.
    #[derive(Copy)]
    pub struct JournalArgs<'a> {
        /// Any object of the share.
        pub object: NfsFh3<'a>,
        /// The client's journal.
        pub journal: [u8; JOURNAL_BYTES],
    }
}

structure! {
    /// What STATUS and ATTACH tell.
    #[derive(Copy)]
    pub struct StatusOk {
        /// Whether changes of this caller are acknowledged from memory, and his COMMITs too.
        pub is_async: bool,
        /// The write verifier, as WRITE and COMMIT give it.
        pub verifier: [u8; VERIFIER_BYTES],
        /// [`RECORDED`], [`WAITING`], [`WAITING_FOR_YOU`], [`COMPRESSION`]. A client ignores those that it does not know.
        pub flags: u32,
    }
}

structure! {
    /// What SYNC, RECOVERED and DETACH tell.
    #[derive(Copy)]
    pub struct SyncOk {
        /// The write verifier, as WRITE and COMMIT give it.
        pub verifier: [u8; VERIFIER_BYTES],
    }
}

structure! {
    /// Arguments of WRITEZ: those of WRITE (RFC 1813 §3.3.7), with the data as a frame ([`crate::frame`]). Its result
    /// is that of WRITE.
    #[derive(Copy)]
    pub struct WritezArgs<'a> {
        /// The file.
        pub file: NfsFh3<'a>,
        /// From this byte.
        pub offset: u64,
        /// How many bytes the data has; whether that is true of the frame is the server's to check.
        pub count: u32,
        /// How stable at least.
        pub stable: StableHow,
        /// The data, compressed.
        pub frame: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// What READZ tells: as READ (RFC 1813 §3.3.6), of which it has the arguments.
    pub struct ReadzOk<'a> {
        /// The file's attributes.
        pub file_attributes: Option<Fattr3>,
        /// How many bytes the data has; whether that is true is the reader's to check.
        pub count: u32,
        /// Whether the file ends there.
        pub eof: bool,
        /// Whether `data` is a frame ([`crate::frame`]).
        pub is_compressed: bool,
        /// The data, as it is or compressed.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

/// Result of READZ.
pub type ReadzRes<'a> = Res3<ReadzOk<'a>, Option<Fattr3>>;

/// Declares a result: a status, and what follows `NFS3_OK`.
macro_rules! result {
    ($(#[$meta:meta])* pub enum $name:ident of $ok:ident;) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            /// Done.
            Ok($ok),
            /// Why not; never `NFS3_OK`.
            Failed(NfsStat3),
        }

        impl<'a> Decode<'a> for $name {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                match NfsStat3::decode(r)? {
                    NfsStat3::Ok => Decode::decode(r).map(Self::Ok),
                    status => Ok(Self::Failed(status)),
                }
            }
        }

        impl Encode for $name {
            fn encode(&self, w: &mut Writer<'_>) {
                match self {
                    Self::Ok(told) => {
                        NfsStat3::Ok.encode(w);
                        told.encode(w);
                    }
                    Self::Failed(status) => status.encode(w),
                }
            }
        }
    };
}

result! {
    /// Result of STATUS and ATTACH.
    pub enum StatusRes of StatusOk;
}

result! {
    /// Result of SYNC, RECOVERED and DETACH.
    pub enum SyncRes of SyncOk;
}
