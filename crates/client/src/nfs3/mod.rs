//! The 22 procedures of NFSv3 (RFC 1813 §3.3) as methods.

pub mod arguments;
pub(crate) mod listing;
pub(crate) mod results;

use std::net::SocketAddr;
use std::time::Duration;

use steadfast_wire::nfs3::{CreateHow3, MknodData3, NfsStat3, StableHow};
use steadfast_xdr::{Reader, XdrError};

use crate::call::{Identity, Procedure};
use crate::error::{ClientError, Failure};
use crate::mount;
use crate::object::{self, Attributes, FileHandle, Time, Wcc};
use crate::stream::RpcConnection;
use crate::transport::RpcTransport;
use arguments::Settings;
use listing::Entries;
use results::{
    Access, Commit, FileSystemInfo, FileSystemStatistics, Linked, Listing, Lookup, Made,
    PathConfiguration, Read, Renamed, SymlinkTarget, Write,
};

/// The RPC program of NFS.
pub const NFS3: u32 = 100_003;

/// The procedures, by name.
pub mod procedure {
    use super::{NFS3, Procedure};

    const fn nfs3(number: u32, name: &'static str) -> Procedure {
        Procedure { program: NFS3, version: 3, number, name }
    }

    macro_rules! procedures {
        ($($name:ident = $number:literal;)*) => {
            $(#[allow(missing_docs)] pub const $name: Procedure = nfs3($number, stringify!($name));)*
            /// All of them, by number.
            pub const ALL: &[Procedure] = &[$($name),*];
        };
    }

    procedures! {
        NULL = 0; GETATTR = 1; SETATTR = 2; LOOKUP = 3; ACCESS = 4; READLINK = 5; READ = 6;
        WRITE = 7; CREATE = 8; MKDIR = 9; SYMLINK = 10; MKNOD = 11; REMOVE = 12; RMDIR = 13;
        RENAME = 14; LINK = 15; READDIR = 16; READDIRPLUS = 17; FSSTAT = 18; FSINFO = 19;
        PATHCONF = 20; COMMIT = 21;
    }
}

/// What a failed procedure tells beside the status.
#[derive(Clone, Copy)]
pub(crate) enum Beside {
    Nothing,
    Attributes,
    Wcc,
    TwoWcc,
    AttributesAndWcc,
}

/// Takes a procedure's results apart.
pub(crate) fn decode<T>(
    procedure: Procedure,
    bytes: &[u8],
    beside: Beside,
    ok: impl FnOnce(&mut Reader<'_>) -> Result<T, XdrError>,
) -> Result<T, ClientError> {
    let procedure = procedure.name;
    let mut r = Reader::new(bytes);
    let malformed = |error| ClientError::Malformed { procedure, error };
    let outcome = match results::status(&mut r).map_err(malformed)? {
        None => Ok(ok(&mut r).map_err(malformed)?),
        Some(status) => Err(failure(procedure, status, beside, &mut r).map_err(malformed)?),
    };
    match r.remaining() {
        0 => outcome.map_err(|failure| ClientError::Failed(Box::new(failure))),
        bytes => Err(ClientError::TrailingBytes { procedure, bytes }),
    }
}

fn failure(
    procedure: &'static str,
    status: NfsStat3,
    beside: Beside,
    r: &mut Reader<'_>,
) -> Result<Failure, XdrError> {
    let (mut attributes, mut wcc, mut second_wcc) = (None, Wcc::default(), Wcc::default());
    match beside {
        Beside::Nothing => {}
        Beside::Attributes => attributes = object::post(r)?,
        Beside::Wcc => wcc = object::wcc(r)?,
        Beside::TwoWcc => {
            wcc = object::wcc(r)?;
            second_wcc = object::wcc(r)?;
        }
        Beside::AttributesAndWcc => {
            attributes = object::post(r)?;
            wcc = object::wcc(r)?;
        }
    }
    Ok(Failure { procedure, status, attributes, wcc, second_wcc })
}

/// An NFSv3 client over one transport. The identity applies to the calls that follow.
#[derive(Debug)]
pub struct Nfs3Client<T = RpcConnection> {
    transport: T,
    identity: Identity,
}

type Outcome<T> = Result<T, ClientError>;

impl Nfs3Client<RpcConnection> {
    /// Mounts `path` by MOUNT version 3 at `mount_server`, connects to `server` and returns the
    /// client with the root's handle.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub fn mount(
        server: SocketAddr,
        mount_server: SocketAddr,
        path: &[u8],
        identity: Identity,
        timeout: Duration,
    ) -> Outcome<(Self, FileHandle)> {
        let mut connection = RpcConnection::connect(mount_server, timeout)?;
        let mounted = mount::mnt(&mut connection, &identity, path)?;
        if mount_server != server {
            connection = RpcConnection::connect(server, timeout)?;
        }
        Ok((Self::new(connection, identity), mounted.handle))
    }
}

impl<T: RpcTransport> Nfs3Client<T> {
    /// A client over this transport.
    pub fn new(transport: T, identity: Identity) -> Self {
        Self { transport, identity }
    }

    /// Who the calls come from, from now on.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// The identity in use.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Runs calls under another identity, then returns to this one.
    pub fn as_identity<R>(&mut self, identity: Identity, calls: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.identity, identity);
        let result = calls(self);
        self.identity = before;
        result
    }

    /// The transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Takes the transport back.
    pub fn into_transport(self) -> T {
        self.transport
    }

    pub(crate) fn run<R>(
        &mut self,
        procedure: Procedure,
        arguments: &[u8],
        beside: Beside,
        ok: impl FnOnce(&mut Reader<'_>) -> Result<R, XdrError>,
    ) -> Outcome<R> {
        let results = self.transport.call(procedure, &self.identity, arguments)?;
        decode(procedure, &results, beside, ok)
    }

    /// NULL.
    ///
    /// # Errors
    /// See [`ClientError`], as for all procedures.
    pub fn null(&mut self) -> Outcome<()> {
        let results = self.transport.call(procedure::NULL, &self.identity, &[])?;
        match results.len() {
            0 => Ok(()),
            bytes => Err(ClientError::TrailingBytes { procedure: "NULL", bytes }),
        }
    }

    /// GETATTR.
    pub fn getattr(&mut self, object: &FileHandle) -> Outcome<Attributes> {
        let arguments = arguments::handle(object);
        self.run(procedure::GETATTR, &arguments, Beside::Nothing, object::attributes)
    }

    /// SETATTR, only if the ctime is `guard` when there is one.
    pub fn setattr(
        &mut self,
        object: &FileHandle,
        settings: &Settings,
        guard: Option<Time>,
    ) -> Outcome<Wcc> {
        let arguments = arguments::setattr(object, settings, guard);
        self.run(procedure::SETATTR, &arguments, Beside::Wcc, object::wcc)
    }

    /// LOOKUP.
    pub fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Lookup> {
        let arguments = arguments::place(directory, name);
        self.run(procedure::LOOKUP, &arguments, Beside::Attributes, results::lookup)
    }

    /// ACCESS; bits in [`mod@arguments::access`].
    pub fn access(&mut self, object: &FileHandle, bits: u32) -> Outcome<Access> {
        let arguments = arguments::access(object, bits);
        self.run(procedure::ACCESS, &arguments, Beside::Attributes, results::access)
    }

    /// READLINK.
    pub fn readlink(&mut self, symlink: &FileHandle) -> Outcome<SymlinkTarget> {
        let arguments = arguments::handle(symlink);
        self.run(procedure::READLINK, &arguments, Beside::Attributes, results::readlink)
    }

    /// READ.
    pub fn read(&mut self, file: &FileHandle, offset: u64, count: u32) -> Outcome<Read> {
        let arguments = arguments::read(file, offset, count);
        let read = self.run(procedure::READ, &arguments, Beside::Attributes, results::read)?;
        if read.count as usize != read.data.len() || read.count > count {
            return Err(ClientError::Contradiction {
                procedure: "READ",
                why: "count is not the data's length, or more than asked for",
            });
        }
        Ok(read)
    }

    /// WRITE.
    pub fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Outcome<Write> {
        let arguments = arguments::write(file, offset, data, stable);
        let write = self.run(procedure::WRITE, &arguments, Beside::Wcc, results::write)?;
        if write.count as usize > data.len() {
            return Err(ClientError::Contradiction {
                procedure: "WRITE",
                why: "more was written than sent",
            });
        }
        if (write.committed as u32) < stable as u32 {
            return Err(ClientError::Contradiction {
                procedure: "WRITE",
                why: "less stable than was asked for",
            });
        }
        Ok(write)
    }

    /// CREATE.
    pub fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateHow3,
    ) -> Outcome<Made> {
        let arguments = arguments::create(directory, name, how);
        self.run(procedure::CREATE, &arguments, Beside::Wcc, results::made)
    }

    /// MKDIR.
    pub fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        settings: &Settings,
    ) -> Outcome<Made> {
        let arguments = arguments::mkdir(directory, name, settings);
        self.run(procedure::MKDIR, &arguments, Beside::Wcc, results::made)
    }

    /// SYMLINK.
    pub fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        settings: &Settings,
    ) -> Outcome<Made> {
        let arguments = arguments::symlink(directory, name, target, settings);
        self.run(procedure::SYMLINK, &arguments, Beside::Wcc, results::made)
    }

    /// MKNOD.
    pub fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        what: &MknodData3,
    ) -> Outcome<Made> {
        let arguments = arguments::mknod(directory, name, what);
        self.run(procedure::MKNOD, &arguments, Beside::Wcc, results::made)
    }

    /// REMOVE.
    pub fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Wcc> {
        let arguments = arguments::place(directory, name);
        self.run(procedure::REMOVE, &arguments, Beside::Wcc, object::wcc)
    }

    /// RMDIR.
    pub fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Wcc> {
        let arguments = arguments::place(directory, name);
        self.run(procedure::RMDIR, &arguments, Beside::Wcc, object::wcc)
    }

    /// RENAME.
    pub fn rename(
        &mut self,
        from: &FileHandle,
        name: &[u8],
        to: &FileHandle,
        new_name: &[u8],
    ) -> Outcome<Renamed> {
        let arguments = arguments::rename(from, name, to, new_name);
        self.run(procedure::RENAME, &arguments, Beside::TwoWcc, results::renamed)
    }

    /// LINK.
    pub fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Outcome<Linked> {
        let arguments = arguments::link(file, directory, name);
        self.run(procedure::LINK, &arguments, Beside::AttributesAndWcc, results::linked)
    }

    /// READDIR; `count` bounds the results in bytes.
    pub fn readdir(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    ) -> Outcome<Listing> {
        let arguments = arguments::readdir(directory, cookie, verifier, count);
        self.run(procedure::READDIR, &arguments, Beside::Attributes, results::readdir)
    }

    /// READDIRPLUS; `names_bytes_max` bounds names and cookies, `bytes_max` everything.
    pub fn readdirplus(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        names_bytes_max: u32,
        bytes_max: u32,
    ) -> Outcome<Listing> {
        let arguments =
            arguments::readdirplus(directory, cookie, verifier, names_bytes_max, bytes_max);
        self.run(procedure::READDIRPLUS, &arguments, Beside::Attributes, results::readdirplus)
    }

    /// All entries of a directory by READDIR, or READDIRPLUS with `plus`, `.` and `..` too,
    /// `bytes_max` a call.
    pub fn entries<'c>(
        &'c mut self,
        directory: &FileHandle,
        plus: bool,
        bytes_max: u32,
    ) -> Entries<'c, T> {
        Entries::new(self, directory.clone(), plus, bytes_max)
    }

    /// FSSTAT.
    pub fn fsstat(&mut self, root: &FileHandle) -> Outcome<FileSystemStatistics> {
        let arguments = arguments::handle(root);
        self.run(procedure::FSSTAT, &arguments, Beside::Attributes, results::fsstat)
    }

    /// FSINFO.
    pub fn fsinfo(&mut self, root: &FileHandle) -> Outcome<FileSystemInfo> {
        let arguments = arguments::handle(root);
        self.run(procedure::FSINFO, &arguments, Beside::Attributes, results::fsinfo)
    }

    /// PATHCONF.
    pub fn pathconf(&mut self, object: &FileHandle) -> Outcome<PathConfiguration> {
        let arguments = arguments::handle(object);
        self.run(procedure::PATHCONF, &arguments, Beside::Attributes, results::pathconf)
    }

    /// COMMIT; a count of 0 reaches to the end.
    pub fn commit(&mut self, file: &FileHandle, offset: u64, count: u32) -> Outcome<Commit> {
        let arguments = arguments::commit(file, offset, count);
        self.run(procedure::COMMIT, &arguments, Beside::Wcc, results::commit)
    }
}
