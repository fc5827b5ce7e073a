//! Arguments and results of operations on extended attributes (RFC 8276 §8.4).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::NAME_BYTES_MAX;
use super::session::put_opaques;
use crate::codec::{numbers, structure};

/// Longest value that is read, in bytes. More than any file system has, so that too large a value
/// gets `NFS4ERR_XATTR2BIG` rather than `NFS4ERR_BADXDR`.
const VALUE_BYTES_MAX: usize = 4 << 20;
/// Most names that a listing has; the RFC has no bound.
const NAMES_MAX: u32 = 64 << 10;

structure! {
    /// Arguments of GETXATTR and REMOVEXATTR.
    #[derive(Copy)]
    pub struct XattrName4Args<'a> {
        /// The name, without the namespace.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Result of GETXATTR.
    #[derive(Copy)]
    pub struct GetXattr4Result<'a> {
        /// The value.
        pub value: &'a [u8]; max VALUE_BYTES_MAX,
    }
}

numbers! {
    /// Whether an attribute is to be there already (`setxattr_option4`).
    pub enum SetXattrOption4, "setxattr_option4" {
        /// It may be or not.
        Either = 0,
        /// It must not be there.
        Create = 1,
        /// It must be there.
        Replace = 2,
    }
}

structure! {
    /// Arguments of SETXATTR.
    #[derive(Copy)]
    pub struct SetXattr4Args<'a> {
        /// Whether it is to be there already.
        pub option: SetXattrOption4,
        /// The name, without the namespace.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
        /// The value.
        pub value: &'a [u8]; max VALUE_BYTES_MAX,
    }
}

structure! {
    /// Arguments of LISTXATTRS.
    #[derive(Copy)]
    pub struct ListXattrs4Args {
        /// Where to go on; 0 from the start.
        pub cookie: u64,
        /// Most bytes of the result.
        pub maxcount: u32,
    }
}

/// Result of LISTXATTRS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListXattrs4Result<'a> {
    /// Where to go on.
    pub cookie: u64,
    /// The names, without the namespace.
    pub names: Vec<&'a [u8]>,
    /// Whether there are no more.
    pub eof: bool,
}

impl<'a> Decode<'a> for ListXattrs4Result<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let (cookie, length) = (r.u64()?, r.u32()?);
        if length > NAMES_MAX {
            return Err(XdrError::TooLong { length, max: NAMES_MAX });
        }
        let names = (0..length).map(|_| r.opaque(NAME_BYTES_MAX)).collect::<Result<_, _>>()?;
        Ok(Self { cookie, names, eof: r.bool()? })
    }
}

impl Encode for ListXattrs4Result<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.cookie);
        put_opaques(w, &self.names);
        w.bool(self.eof);
    }
}
