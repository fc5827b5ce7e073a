//! Handles, names in directories, and attributes to be set (RFC 1094 §2.3).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::{HANDLE_BYTES, NAME_BYTES_MAX};
use crate::codec::structure;

/// A handle (`fhandle`): the server's name for an object, of one size always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsFh2<'a>(pub &'a [u8; HANDLE_BYTES]);

impl<'a> Decode<'a> for NfsFh2<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.fixed_opaque(HANDLE_BYTES)?.first_chunk().map(Self).ok_or(XdrError::Truncated)
    }
}

impl Encode for NfsFh2<'_> {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        w.fixed_opaque(self.0);
    }
}

structure! {
    /// A name in a directory (`diropargs`).
    #[derive(Copy)]
    pub struct DirOpArgs2<'a> {
        /// The directory.
        pub dir: NfsFh2<'a>,
        /// The name, as bytes; which names are possible is the file system's matter.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// A time (`timeval`): seconds since 1970, unsigned.
    #[derive(Copy)]
    pub struct NfsTime2 {
        /// Whole seconds.
        pub seconds: u32,
        /// Microseconds; a million and more are not refused here.
        pub useconds: u32,
    }
}

structure! {
    /// Attributes to set (`sattr`); what is [`super::UNSET`] stays.
    #[derive(Copy)]
    pub struct Sattr2 {
        /// Permissions, and in CREATE the type, as UNIX has them.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Length in bytes; in CREATE of a device its number.
        pub size: u32,
        /// Time of the last access.
        pub atime: NfsTime2,
        /// Time of the last change of the data.
        pub mtime: NfsTime2,
    }
}
