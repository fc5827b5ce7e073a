//! The calls that a mount makes, whatever the version of the protocol: the shapes are those of NFSv3.

use std::sync::Arc;

use steadfast_client::{
    AcceptedError, Access, Attributes, ClientError, Commit, CreateHow3, FileHandle, FileSystemInfo,
    FileSystemStatistics, Identity, Linked, Listing, Lookup, Made, MknodData3, Nfs3Client,
    PathConfiguration, Read, RecoveryStatus, Renamed, Settings, StableHow, SymlinkTarget, Time,
    Wcc, Write,
};

use crate::nfs4::{Calls4, Client4};
use crate::transport::Caller;

type Outcome<T> = Result<T, ClientError>;

/// Calls under one user's identity.
#[derive(Debug)]
pub(crate) enum Calls {
    /// Each is a call of NFSv3.
    V3(Nfs3Client<Caller>),
    /// Each is a COMPOUND of a session.
    V4(Calls4),
}

impl Calls {
    pub(crate) fn v3(caller: Caller, identity: Identity) -> Self {
        Self::V3(Nfs3Client::new(caller, identity))
    }

    pub(crate) fn v4(client: &Arc<Client4>, caller: Caller, identity: Identity) -> Self {
        Self::V4(Calls4::new(client, caller, identity))
    }

    /// Has a file open at the server, until it is closed there ([`Client4::close`]). NFSv3 knows no such thing.
    pub(crate) fn open(&mut self, file: &FileHandle, reads: bool, writes: bool) -> Outcome<()> {
        match self {
            Self::V3(_) => Ok(()),
            Self::V4(nfs) => nfs.open(file, reads, writes),
        }
    }
}

/// The recovery program is for journals, which speak NFSv3.
fn without_recovery<T>() -> Outcome<T> {
    Err(ClientError::Accepted(AcceptedError::ProgramUnavailable))
}

impl Calls {
    pub(crate) fn recovery_status(&mut self, object: &FileHandle) -> Outcome<RecoveryStatus> {
        match self {
            Self::V3(nfs) => nfs.recovery_status(object),
            Self::V4(_) => without_recovery(),
        }
    }

    pub(crate) fn recovery_sync(&mut self, object: &FileHandle) -> Outcome<[u8; 8]> {
        match self {
            Self::V3(nfs) => nfs.recovery_sync(object),
            Self::V4(_) => without_recovery(),
        }
    }
}

/// Declares calls that all versions have.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Calls {
            $(pub(crate) fn $name(&mut self, $($argument: $type),*) -> Outcome<$result> {
                match self {
                    Self::V3(nfs) => nfs.$name($($argument),*),
                    Self::V4(nfs) => nfs.$name($($argument),*),
                }
            })*
        }
    };
}

calls! {
    fn getattr(object: &FileHandle) -> Attributes;
    fn setattr(object: &FileHandle, settings: &Settings, guard: Option<Time>) -> Wcc;
    fn lookup(directory: &FileHandle, name: &[u8]) -> Lookup;
    fn access(object: &FileHandle, bits: u32) -> Access;
    fn readlink(symlink: &FileHandle) -> SymlinkTarget;
    fn read(file: &FileHandle, offset: u64, count: u32) -> Read;
    fn write(file: &FileHandle, offset: u64, data: &[u8], stable: StableHow) -> Write;
    fn create(directory: &FileHandle, name: &[u8], how: &CreateHow3) -> Made;
    fn mkdir(directory: &FileHandle, name: &[u8], settings: &Settings) -> Made;
    fn symlink(directory: &FileHandle, name: &[u8], target: &[u8], settings: &Settings) -> Made;
    fn mknod(directory: &FileHandle, name: &[u8], what: &MknodData3) -> Made;
    fn remove(directory: &FileHandle, name: &[u8]) -> Wcc;
    fn rmdir(directory: &FileHandle, name: &[u8]) -> Wcc;
    fn rename(from: &FileHandle, name: &[u8], to: &FileHandle, new_name: &[u8]) -> Renamed;
    fn link(file: &FileHandle, directory: &FileHandle, name: &[u8]) -> Linked;
    fn readdir(directory: &FileHandle, cookie: u64, verifier: [u8; 8], count: u32) -> Listing;
    fn readdirplus(
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        names_bytes_max: u32,
        bytes_max: u32
    ) -> Listing;
    fn fsstat(root: &FileHandle) -> FileSystemStatistics;
    fn fsinfo(root: &FileHandle) -> FileSystemInfo;
    fn pathconf(object: &FileHandle) -> PathConfiguration;
    fn commit(file: &FileHandle, offset: u64, count: u32) -> Commit;
}
