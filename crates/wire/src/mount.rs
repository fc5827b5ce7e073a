//! The MOUNT protocol, versions 1 and 2 (RFC 1094 appendix A) and 3 (RFC 1813 appendix I).

use smallvec::SmallVec;
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::List;
use crate::codec::structure;
use crate::nfs3::NfsFh3;

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_005;
/// Longest path in bytes (`MNTPATHLEN`).
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest name of a host or group in bytes (`MNTNAMLEN`).
pub const NAME_BYTES_MAX: usize = 255;
/// Size of a handle in versions 1 and 2 in bytes (`FHSIZE`).
pub const FIXED_HANDLE_BYTES: usize = 32;
/// Most authentication flavours that a result may list; the RFC has no bound. It binds the reader
/// too: to a client of ours a result with more of them is malformed.
pub const FLAVOURS_MAX: usize = 256;

structure! {
    /// Argument of MNT and UMNT (`dirpath`).
    #[derive(Copy)]
    pub struct DirPath<'a> {
        /// The path.
        pub path: &'a [u8]; max PATH_BYTES_MAX,
    }
}

/// Result of MNT in versions 1 and 2 (`fhstatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FhStatus {
    /// The directory's handle.
    Ok([u8; FIXED_HANDLE_BYTES]),
    /// Why not: a number of UNIX's, never 0.
    Failed(u32),
}

impl<'a> Decode<'a> for FhStatus {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => r.array().map(Self::Ok),
            status => Ok(Self::Failed(status)),
        }
    }
}

impl Encode for FhStatus {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Ok(handle) => {
                w.u32(0);
                handle.encode(w);
            }
            Self::Failed(status) => w.u32(*status),
        }
    }
}

structure! {
    /// What MNT grants in version 3 (`mountres3_ok`).
    pub struct Mounted3<'a> {
        /// The directory's handle.
        pub fhandle: NfsFh3<'a>,
        /// RPC authentication flavours that are served there.
        pub auth_flavors: SmallVec<[u32; 4]>; max FLAVOURS_MAX,
    }
}

/// Result of MNT in version 3 (`mountres3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountRes3<'a> {
    /// The directory's handle and flavours.
    Ok(Mounted3<'a>),
    /// Why not: a `mountstat3`, never 0.
    Failed(u32),
}

impl<'a> Decode<'a> for MountRes3<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Decode::decode(r).map(Self::Ok),
            status => Ok(Self::Failed(status)),
        }
    }
}

impl Encode for MountRes3<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Ok(mounted) => {
                w.u32(0);
                mounted.encode(w);
            }
            Self::Failed(status) => w.u32(*status),
        }
    }
}

structure! {
    /// An entry of DUMP's result (`mountbody`).
    #[derive(Copy)]
    pub struct MountEntry<'a> {
        /// Who mounted.
        pub hostname: &'a [u8]; max NAME_BYTES_MAX,
        /// What.
        pub directory: &'a [u8]; max PATH_BYTES_MAX,
    }
}

/// Result of DUMP (`mountlist`).
pub type MountList<'a> = List<MountEntry<'a>>;

structure! {
    /// A group of clients (`groupnode`).
    #[derive(Copy)]
    pub struct Group<'a> {
        /// Its name.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// An entry of EXPORT's result (`exportnode`).
    pub struct ExportEntry<'a> {
        /// The share's path.
        pub directory: &'a [u8]; max PATH_BYTES_MAX,
        /// Who may mount it.
        pub groups: List<Group<'a>>,
    }
}

/// Result of EXPORT (`exports`).
pub type Exports<'a> = List<ExportEntry<'a>>;
