//! NLM, the protocol by which clients of NFSv3 lock files: versions 1 and 3 (X/Open XNFS), which
//! have numbers of 32 bits, and version 4 (RFC 1813 appendix II), which has numbers of 64 bits.
//!
//! [`v1`] and [`v4`] declare the same types. A server reads those of [`v1`] and goes on with what
//! [`From`] makes of them.

use crate::codec::numbers;

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_021;
/// Longest name of a host in bytes (`LM_MAXSTRLEN`).
pub const NAME_BYTES_MAX: usize = 1024;
/// Longest cookie, handle and owner in bytes (`MAXNETOBJ_SZ`).
pub const OBJECT_BYTES_MAX: usize = 1024;

numbers! {
    /// How a call ended (`nlm_stats`, `nlm4_stats`). Versions 1 and 3 know the first five.
    pub enum NlmStat, "nlm4_stats" {
        /// Done.
        Granted = 0,
        /// Another owner has a lock that conflicts; or the call failed in versions 1 and 3.
        Denied = 1,
        /// The server has no room for more locks.
        DeniedNoLocks = 2,
        /// The lock is not free. The server calls back when it is granted.
        Blocked = 3,
        /// The server has restarted: only locks that were held before may be taken.
        DeniedGracePeriod = 4,
        /// The wait would never end.
        Deadlock = 5,
        /// The file system is read-only.
        ReadOnlyFs = 6,
        /// The handle names nothing.
        StaleHandle = 7,
        /// The range ends behind the last byte that a file can have.
        TooBig = 8,
        /// Any other failure.
        Failed = 9,
    }
}

numbers! {
    /// What a share reservation forbids others (`fsh_mode`).
    pub enum ShareMode, "fsh_mode" {
        /// Nothing.
        DenyNone = 0,
        /// Reading.
        DenyRead = 1,
        /// Writing.
        DenyWrite = 2,
        /// Both.
        DenyBoth = 3,
    }
}

numbers! {
    /// What a share reservation is for (`fsh_access`).
    pub enum ShareAccess, "fsh_access" {
        /// Nothing.
        None = 0,
        /// Reading.
        Read = 1,
        /// Writing.
        Write = 2,
        /// Both.
        Both = 3,
    }
}

/// Declares the types of a version whose offsets and lengths are of this type.
macro_rules! types {
    ($number:ident) => {
        use ::steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

        use super::{NAME_BYTES_MAX, NlmStat, OBJECT_BYTES_MAX, ShareAccess, ShareMode};
        use crate::codec::structure;

        structure! {
            /// A lock (`nlm_lock`).
            #[derive(Copy)]
            pub struct Lock<'a> {
                /// The client's name for itself.
                pub caller_name: &'a [u8]; max NAME_BYTES_MAX,
                /// The file's handle.
                pub fh: &'a [u8]; max OBJECT_BYTES_MAX,
                /// The owner; the client alone knows what it means.
                pub oh: &'a [u8]; max OBJECT_BYTES_MAX,
                /// Number of the process that owns it (`svid`, `uppid`).
                pub svid: u32,
                /// The first byte.
                pub offset: $number,
                /// How many bytes. 0 stands for all that follow.
                pub length: $number,
            }
        }

        structure! {
            /// A lock that is in the way (`nlm_holder`).
            #[derive(Copy)]
            pub struct Holder<'a> {
                /// Whether it is a write lock.
                pub exclusive: bool,
                /// Number of the process that owns it.
                pub svid: u32,
                /// The owner.
                pub oh: &'a [u8]; max OBJECT_BYTES_MAX,
                /// The first byte.
                pub offset: $number,
                /// How many bytes. 0 stands for all that follow.
                pub length: $number,
            }
        }

        structure! {
            /// Argument of TEST and GRANTED (`nlm_testargs`).
            #[derive(Copy)]
            pub struct TestArgs<'a> {
                /// Comes back in the result.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// Whether it is a write lock.
                pub exclusive: bool,
                /// The lock.
                pub lock: Lock<'a>,
            }
        }

        structure! {
            /// Argument of LOCK and `NM_LOCK` (`nlm_lockargs`).
            #[derive(Copy)]
            pub struct LockArgs<'a> {
                /// Comes back in the result.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// Whether the client waits for the lock.
                pub block: bool,
                /// Whether it is a write lock.
                pub exclusive: bool,
                /// The lock.
                pub lock: Lock<'a>,
                /// Whether the client had it before the server restarted.
                pub reclaim: bool,
                /// The client's state number, as its NSM has it.
                pub state: u32,
            }
        }

        structure! {
            /// Argument of CANCEL (`nlm_cancargs`).
            #[derive(Copy)]
            pub struct CancelArgs<'a> {
                /// Comes back in the result.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// As the LOCK had it.
                pub block: bool,
                /// As the LOCK had it.
                pub exclusive: bool,
                /// As the LOCK had it.
                pub lock: Lock<'a>,
            }
        }

        structure! {
            /// Argument of UNLOCK (`nlm_unlockargs`).
            #[derive(Copy)]
            pub struct UnlockArgs<'a> {
                /// Comes back in the result.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// The range.
                pub lock: Lock<'a>,
            }
        }

        structure! {
            /// Result of most procedures (`nlm_res`).
            #[derive(Copy)]
            pub struct Res<'a> {
                /// The call's.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// How the call ended.
                pub stat: NlmStat,
            }
        }

        /// Result of TEST (`nlm_testres`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum TestRes<'a> {
            /// A lock is in the way ([`NlmStat::Denied`]).
            Denied {
                /// The call's.
                cookie: &'a [u8],
                /// The lock.
                holder: Holder<'a>,
            },
            /// Anything else.
            Other(Res<'a>),
        }

        impl<'a> Decode<'a> for TestRes<'a> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                let res = Res::decode(r)?;
                match res.stat {
                    NlmStat::Denied => {
                        Ok(Self::Denied { cookie: res.cookie, holder: Holder::decode(r)? })
                    }
                    _ => Ok(Self::Other(res)),
                }
            }
        }

        impl Encode for TestRes<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                match self {
                    Self::Denied { cookie, holder } => {
                        Res { cookie, stat: NlmStat::Denied }.encode(w);
                        holder.encode(w);
                    }
                    Self::Other(res) => res.encode(w),
                }
            }
        }

        structure! {
            /// Argument of SHARE and UNSHARE (`nlm_shareargs`).
            #[derive(Copy)]
            pub struct ShareArgs<'a> {
                /// Comes back in the result.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// The client's name for itself.
                pub caller_name: &'a [u8]; max NAME_BYTES_MAX,
                /// The file's handle.
                pub fh: &'a [u8]; max OBJECT_BYTES_MAX,
                /// The owner.
                pub oh: &'a [u8]; max OBJECT_BYTES_MAX,
                /// What it forbids others.
                pub mode: ShareMode,
                /// What it is for.
                pub access: ShareAccess,
                /// Whether the client had it before the server restarted.
                pub reclaim: bool,
            }
        }

        structure! {
            /// Result of SHARE and UNSHARE (`nlm_shareres`).
            #[derive(Copy)]
            pub struct ShareRes<'a> {
                /// The call's.
                pub cookie: &'a [u8]; max OBJECT_BYTES_MAX,
                /// How the call ended.
                pub stat: NlmStat,
                /// Nobody knows what it is for.
                pub sequence: u32,
            }
        }

        structure! {
            /// Argument of `FREE_ALL` (`nlm_notify`).
            #[derive(Copy)]
            pub struct Notify<'a> {
                /// The host whose locks are freed.
                pub name: &'a [u8]; max NAME_BYTES_MAX,
                /// Its state number.
                pub state: u32,
            }
        }
    };
}

/// The types of versions 1 and 3.
pub mod v1 {
    types!(u32);
}

/// The types of version 4.
pub mod v4 {
    types!(u64);
}

impl<'a> From<v1::Lock<'a>> for v4::Lock<'a> {
    fn from(narrow: v1::Lock<'a>) -> Self {
        let v1::Lock { caller_name, fh, oh, svid, offset, length } = narrow;
        Self { caller_name, fh, oh, svid, offset: offset.into(), length: length.into() }
    }
}

impl<'a> From<v1::TestArgs<'a>> for v4::TestArgs<'a> {
    fn from(narrow: v1::TestArgs<'a>) -> Self {
        let v1::TestArgs { cookie, exclusive, lock } = narrow;
        Self { cookie, exclusive, lock: lock.into() }
    }
}

impl<'a> From<v1::LockArgs<'a>> for v4::LockArgs<'a> {
    fn from(narrow: v1::LockArgs<'a>) -> Self {
        let v1::LockArgs { cookie, block, exclusive, lock, reclaim, state } = narrow;
        Self { cookie, block, exclusive, lock: lock.into(), reclaim, state }
    }
}

impl<'a> From<v1::CancelArgs<'a>> for v4::CancelArgs<'a> {
    fn from(narrow: v1::CancelArgs<'a>) -> Self {
        let v1::CancelArgs { cookie, block, exclusive, lock } = narrow;
        Self { cookie, block, exclusive, lock: lock.into() }
    }
}

impl<'a> From<v1::UnlockArgs<'a>> for v4::UnlockArgs<'a> {
    fn from(narrow: v1::UnlockArgs<'a>) -> Self {
        let v1::UnlockArgs { cookie, lock } = narrow;
        Self { cookie, lock: lock.into() }
    }
}

impl<'a> From<v1::ShareArgs<'a>> for v4::ShareArgs<'a> {
    fn from(narrow: v1::ShareArgs<'a>) -> Self {
        let v1::ShareArgs { cookie, caller_name, fh, oh, mode, access, reclaim } = narrow;
        Self { cookie, caller_name, fh, oh, mode, access, reclaim }
    }
}

/// Offset and length in 32 bits. What lies behind them is cut off: a range that ends there goes on
/// to the end, and one that begins there begins at the last byte.
fn narrowed(offset: u64, length: u64) -> (u32, u32) {
    const MAX: u64 = u32::MAX as u64;
    let behind = offset.saturating_add(length);
    let length = if length == 0 || behind > MAX { 0 } else { length as u32 };
    (offset.min(MAX) as u32, length)
}

impl<'a> From<v4::Lock<'a>> for v1::Lock<'a> {
    fn from(wide: v4::Lock<'a>) -> Self {
        let v4::Lock { caller_name, fh, oh, svid, offset, length } = wide;
        let (offset, length) = narrowed(offset, length);
        Self { caller_name, fh, oh, svid, offset, length }
    }
}

impl<'a> From<v4::Holder<'a>> for v1::Holder<'a> {
    fn from(wide: v4::Holder<'a>) -> Self {
        let v4::Holder { exclusive, svid, oh, offset, length } = wide;
        let (offset, length) = narrowed(offset, length);
        Self { exclusive, svid, oh, offset, length }
    }
}

impl NlmStat {
    /// The status as versions 1 and 3 know it.
    #[must_use]
    pub fn narrowed(self) -> Self {
        match self {
            Self::Deadlock | Self::ReadOnlyFs | Self::StaleHandle | Self::TooBig | Self::Failed => {
                Self::DeniedNoLocks
            }
            known => known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::narrowed;

    #[test]
    fn ranges_are_cut_to_32_bits() {
        const MAX: u32 = u32::MAX;
        let rows = [
            ((0, 0), (0, 0)),
            ((5, 10), (5, 10)),
            ((5, u64::from(MAX) - 5), (5, MAX - 5)),
            ((5, u64::from(MAX) - 4), (5, 0)),
            ((1 << 40, 5), (MAX, 0)),
            ((u64::MAX, u64::MAX), (MAX, 0)),
        ];
        for ((offset, length), expected) in rows {
            assert_eq!(narrowed(offset, length), expected);
        }
    }
}
