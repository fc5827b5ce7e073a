//! The arguments of NFSv3's procedures (RFC 1813 §3.3), in the order of their numbers.

use super::{
    CreateHow3, DATA_BYTES_MAX, DirOpArgs3, MknodData3, NfsFh3, NfsTime3, Sattr3, StableHow,
    SymlinkData3,
};
use crate::codec::structure;

structure! {
    /// Arguments of GETATTR (RFC 1813 §3.3.1).
    pub struct Getattr3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of SETATTR (RFC 1813 §3.3.2).
    pub struct Setattr3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
        /// What is to be set.
        pub new_attributes: Sattr3,
        /// Set only if this is the object's change time.
        pub guard: Option<NfsTime3>,
    }
}

structure! {
    /// Arguments of LOOKUP (RFC 1813 §3.3.3).
    pub struct Lookup3Args<'a> {
        /// Where, and which name.
        pub what: DirOpArgs3<'a>,
    }
}

structure! {
    /// Arguments of ACCESS (RFC 1813 §3.3.4).
    pub struct Access3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
        /// Bits of the rights that are asked about.
        pub access: u32,
    }
}

structure! {
    /// Arguments of READLINK (RFC 1813 §3.3.5).
    pub struct Readlink3Args<'a> {
        /// The symbolic link.
        pub symlink: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of READ (RFC 1813 §3.3.6).
    pub struct Read3Args<'a> {
        /// The file.
        pub file: NfsFh3<'a>,
        /// From this byte.
        pub offset: u64,
        /// At most this many bytes.
        pub count: u32,
    }
}

structure! {
    /// Arguments of WRITE (RFC 1813 §3.3.7).
    pub struct Write3Args<'a> {
        /// The file.
        pub file: NfsFh3<'a>,
        /// From this byte.
        pub offset: u64,
        /// How many bytes of `data`; whether that is true is the server's to check.
        pub count: u32,
        /// How stable at least.
        pub stable: StableHow,
        /// The data.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// Arguments of WRITE up to the data, which follow with their padding.
    pub struct Write3Head<'a> {
        /// The file.
        pub file: NfsFh3<'a>,
        /// From this byte.
        pub offset: u64,
        /// How many bytes.
        pub count: u32,
        /// How stable at least.
        pub stable: StableHow,
        /// The length of the data.
        pub data_bytes: u32,
    }
}

structure! {
    /// Arguments of CREATE (RFC 1813 §3.3.8).
    pub struct Create3Args<'a> {
        /// Where, and under which name.
        pub where_: DirOpArgs3<'a>,
        /// How, and with which attributes.
        pub how: CreateHow3,
    }
}

structure! {
    /// Arguments of MKDIR (RFC 1813 §3.3.9).
    pub struct Mkdir3Args<'a> {
        /// Where, and under which name.
        pub where_: DirOpArgs3<'a>,
        /// Its attributes.
        pub attributes: Sattr3,
    }
}

structure! {
    /// Arguments of SYMLINK (RFC 1813 §3.3.10).
    pub struct Symlink3Args<'a> {
        /// Where, and under which name.
        pub where_: DirOpArgs3<'a>,
        /// Attributes and target.
        pub symlink: SymlinkData3<'a>,
    }
}

structure! {
    /// Arguments of MKNOD (RFC 1813 §3.3.11).
    pub struct Mknod3Args<'a> {
        /// Where, and under which name.
        pub where_: DirOpArgs3<'a>,
        /// What.
        pub what: MknodData3,
    }
}

structure! {
    /// Arguments of REMOVE (RFC 1813 §3.3.12).
    pub struct Remove3Args<'a> {
        /// Where, and which name.
        pub object: DirOpArgs3<'a>,
    }
}

structure! {
    /// Arguments of RMDIR (RFC 1813 §3.3.13).
    pub struct Rmdir3Args<'a> {
        /// Where, and which name.
        pub object: DirOpArgs3<'a>,
    }
}

structure! {
    /// Arguments of RENAME (RFC 1813 §3.3.14).
    pub struct Rename3Args<'a> {
        /// What.
        pub from: DirOpArgs3<'a>,
        /// Its new place and name.
        pub to: DirOpArgs3<'a>,
    }
}

structure! {
    /// Arguments of LINK (RFC 1813 §3.3.15).
    pub struct Link3Args<'a> {
        /// The object.
        pub file: NfsFh3<'a>,
        /// Its further place and name.
        pub link: DirOpArgs3<'a>,
    }
}

structure! {
    /// Arguments of READDIR (RFC 1813 §3.3.16).
    pub struct Readdir3Args<'a> {
        /// The directory.
        pub dir: NfsFh3<'a>,
        /// After the entry of this cookie; 0 from the beginning.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub cookieverf: [u8; 8],
        /// Most bytes of the result.
        pub count: u32,
    }
}

structure! {
    /// Arguments of READDIRPLUS (RFC 1813 §3.3.17).
    pub struct Readdirplus3Args<'a> {
        /// The directory.
        pub dir: NfsFh3<'a>,
        /// After the entry of this cookie; 0 from the beginning.
        pub cookie: u64,
        /// The verifier that came with the cookie.
        pub cookieverf: [u8; 8],
        /// Most bytes of names, file numbers and cookies.
        pub dircount: u32,
        /// Most bytes of the result.
        pub maxcount: u32,
    }
}

structure! {
    /// Arguments of FSSTAT (RFC 1813 §3.3.18).
    pub struct Fsstat3Args<'a> {
        /// Any object of the file system.
        pub fsroot: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of FSINFO (RFC 1813 §3.3.19).
    pub struct Fsinfo3Args<'a> {
        /// Any object of the file system.
        pub fsroot: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of PATHCONF (RFC 1813 §3.3.20).
    pub struct Pathconf3Args<'a> {
        /// The object.
        pub object: NfsFh3<'a>,
    }
}

structure! {
    /// Arguments of COMMIT (RFC 1813 §3.3.21).
    pub struct Commit3Args<'a> {
        /// The file.
        pub file: NfsFh3<'a>,
        /// From this byte.
        pub offset: u64,
        /// This many bytes; 0 for all that follow.
        pub count: u32,
    }
}
