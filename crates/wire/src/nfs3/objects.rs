//! Handles, names in directories, and what is to be made there (RFC 1813 §2.6, §3.3.8–3.3.11).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::{HANDLE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Sattr3};
use crate::codec::structure;

/// A handle (`nfs_fh3`): the server's name for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfsFh3<'a>(pub &'a [u8]);

impl<'a> Decode<'a> for NfsFh3<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.opaque(HANDLE_BYTES_MAX).map(Self)
    }
}

impl Encode for NfsFh3<'_> {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        w.opaque(self.0);
    }
}

structure! {
    /// A name in a directory (`diropargs3`).
    #[derive(Copy)]
    pub struct DirOpArgs3<'a> {
        /// The directory.
        pub dir: NfsFh3<'a>,
        /// The name, as bytes; which names are possible is the file system's matter.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

/// How CREATE treats a file that exists (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow3 {
    /// It is used, and only its size set.
    Unchecked(Sattr3),
    /// It is an error.
    Guarded(Sattr3),
    /// It is an error unless this verifier made it, so that a repeated call finds its file.
    Exclusive([u8; 8]),
}

impl<'a> Decode<'a> for CreateHow3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Decode::decode(r).map(Self::Unchecked),
            1 => Decode::decode(r).map(Self::Guarded),
            2 => r.array().map(Self::Exclusive),
            value => Err(XdrError::BadValue { what: "createmode3", value }),
        }
    }
}

impl Encode for CreateHow3 {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Unchecked(attributes) => {
                w.u32(0);
                attributes.encode(w);
            }
            Self::Guarded(attributes) => {
                w.u32(1);
                attributes.encode(w);
            }
            Self::Exclusive(verifier) => {
                w.u32(2);
                verifier.encode(w);
            }
        }
    }
}

structure! {
    /// What SYMLINK makes (`symlinkdata3`).
    #[derive(Copy)]
    pub struct SymlinkData3<'a> {
        /// Its attributes; most servers can set few of them.
        pub symlink_attributes: Sattr3,
        /// The target, which the server does not interpret.
        pub symlink_data: &'a [u8]; max PATH_BYTES_MAX,
    }
}

structure! {
    /// The number of a device (`specdata3`).
    #[derive(Copy)]
    pub struct SpecData3 {
        /// Major number.
        pub specdata1: u32,
        /// Minor number.
        pub specdata2: u32,
    }
}

structure! {
    /// A device node to make (`devicedata3`).
    #[derive(Copy)]
    pub struct DeviceData3 {
        /// Its attributes.
        pub dev_attributes: Sattr3,
        /// Its number.
        pub spec: SpecData3,
    }
}

/// What MKNOD makes (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MknodData3 {
    /// A character device.
    Chr(DeviceData3),
    /// A block device.
    Blk(DeviceData3),
    /// A socket.
    Sock(Sattr3),
    /// A named pipe.
    Fifo(Sattr3),
    /// A regular file, which only CREATE can make.
    Reg,
    /// A directory, which only MKDIR can make.
    Dir,
    /// A symbolic link, which only SYMLINK can make.
    Lnk,
}

impl<'a> Decode<'a> for MknodData3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => Ok(Self::Reg),
            2 => Ok(Self::Dir),
            3 => Decode::decode(r).map(Self::Blk),
            4 => Decode::decode(r).map(Self::Chr),
            5 => Ok(Self::Lnk),
            6 => Decode::decode(r).map(Self::Sock),
            7 => Decode::decode(r).map(Self::Fifo),
            value => Err(XdrError::BadValue { what: "ftype3", value }),
        }
    }
}

impl Encode for MknodData3 {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Reg => w.u32(1),
            Self::Dir => w.u32(2),
            Self::Blk(device) => {
                w.u32(3);
                device.encode(w);
            }
            Self::Chr(device) => {
                w.u32(4);
                device.encode(w);
            }
            Self::Lnk => w.u32(5),
            Self::Sock(attributes) => {
                w.u32(6);
                attributes.encode(w);
            }
            Self::Fifo(attributes) => {
                w.u32(7);
                attributes.encode(w);
            }
        }
    }
}
