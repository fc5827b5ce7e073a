//! The arguments of NFSv2's procedures (RFC 1094 §2.2), in the order of their numbers. GETATTR,
//! READLINK and STATFS have a handle and nothing else; LOOKUP, REMOVE and RMDIR a name.

use super::{DATA_BYTES_MAX, DirOpArgs2, NfsFh2, PATH_BYTES_READ_MAX, Sattr2};
use crate::codec::structure;

structure! {
    /// Arguments of SETATTR (`sattrargs`, RFC 1094 §2.2.3).
    pub struct Setattr2Args<'a> {
        /// The object.
        pub file: NfsFh2<'a>,
        /// What is to be set.
        pub attributes: Sattr2,
    }
}

structure! {
    /// Arguments of READ (`readargs`, RFC 1094 §2.2.7).
    pub struct Read2Args<'a> {
        /// The file.
        pub file: NfsFh2<'a>,
        /// From this byte.
        pub offset: u32,
        /// At most this many bytes.
        pub count: u32,
        /// Unused.
        pub totalcount: u32,
    }
}

structure! {
    /// Arguments of WRITE (`writeargs`, RFC 1094 §2.2.9).
    pub struct Write2Args<'a> {
        /// The file.
        pub file: NfsFh2<'a>,
        /// Unused.
        pub beginoffset: u32,
        /// From this byte.
        pub offset: u32,
        /// Unused.
        pub totalcount: u32,
        /// The data.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// Arguments of CREATE and MKDIR (`createargs`, RFC 1094 §2.2.10, §2.2.15).
    pub struct Create2Args<'a> {
        /// Where, and under which name.
        pub where_: DirOpArgs2<'a>,
        /// Its attributes, and in CREATE its type.
        pub attributes: Sattr2,
    }
}

structure! {
    /// Arguments of RENAME (`renameargs`, RFC 1094 §2.2.12).
    pub struct Rename2Args<'a> {
        /// What.
        pub from: DirOpArgs2<'a>,
        /// Its new place and name.
        pub to: DirOpArgs2<'a>,
    }
}

structure! {
    /// Arguments of LINK (`linkargs`, RFC 1094 §2.2.13).
    pub struct Link2Args<'a> {
        /// The object.
        pub from: NfsFh2<'a>,
        /// Its further place and name.
        pub to: DirOpArgs2<'a>,
    }
}

structure! {
    /// Arguments of SYMLINK (`symlinkargs`, RFC 1094 §2.2.14).
    pub struct Symlink2Args<'a> {
        /// Where, and under which name.
        pub from: DirOpArgs2<'a>,
        /// The target, which the server does not interpret.
        pub to: &'a [u8]; max PATH_BYTES_READ_MAX,
        /// Its attributes, of which servers on UNIX can set few.
        pub attributes: Sattr2,
    }
}

structure! {
    /// Arguments of READDIR (`readdirargs`, RFC 1094 §2.2.17).
    pub struct Readdir2Args<'a> {
        /// The directory.
        pub dir: NfsFh2<'a>,
        /// After the entry of this cookie; 0 from the beginning. The RFC has 4 opaque bytes.
        pub cookie: u32,
        /// Most bytes of the result.
        pub count: u32,
    }
}
