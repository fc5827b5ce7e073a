//! Arguments of NFSv3 procedures, encoded.

use steadfast_wire::nfs3::{
    Access3Args, Commit3Args, Create3Args, CreateHow3, DirOpArgs3, Link3Args, Mkdir3Args,
    Mknod3Args, MknodData3, NfsFh3, NfsTime3, Read3Args, Readdir3Args, Readdirplus3Args,
    Rename3Args, Sattr3, SetTime3, Setattr3Args, StableHow, Symlink3Args, SymlinkData3, Write3Args,
    Write3Head,
};
use steadfast_xdr::Encode;

use crate::call::encoded;
use crate::object::{FileHandle, Time};

/// Bits of ACCESS (RFC 1813 §3.3.4).
pub mod access {
    /// Read data, list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite data, change entries.
    pub const MODIFY: u32 = 0x04;
    /// Write beyond the end, add entries.
    pub const EXTEND: u32 = 0x08;
    /// Remove an entry.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
    /// All of them.
    pub const ALL: u32 = 0x3f;
}

/// Attributes to set; what is `None` stays (times: [`SetTime3::DontChange`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings(pub Sattr3);

impl Default for Settings {
    fn default() -> Self {
        Self(Sattr3 {
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: SetTime3::DontChange,
            mtime: SetTime3::DontChange,
        })
    }
}

impl Settings {
    /// Only the mode.
    pub fn mode(mode: u32) -> Self {
        Self::default().with(|set| set.mode = Some(mode))
    }

    /// Only the size.
    pub fn size(size: u64) -> Self {
        Self::default().with(|set| set.size = Some(size))
    }

    /// Only the owner and group.
    pub fn owner(uid: Option<u32>, gid: Option<u32>) -> Self {
        Self::default().with(|set| {
            set.uid = uid;
            set.gid = gid;
        })
    }

    /// Both times, as the client says.
    pub fn times(atime: Time, mtime: Time) -> Self {
        let wire = |time: Time| SetTime3::SetToClientTime(time.into());
        Self::default().with(|set| {
            set.atime = wire(atime);
            set.mtime = wire(mtime);
        })
    }

    /// These settings changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Sattr3)) -> Self {
        change(&mut self.0);
        self
    }
}

/// Arguments: this message.
fn of(message: &impl Encode) -> Vec<u8> {
    encoded(|w| message.encode(w))
}

fn handle_of(object: &FileHandle) -> NfsFh3<'_> {
    NfsFh3(object.as_bytes())
}

fn place_of<'a>(directory: &'a FileHandle, name: &'a [u8]) -> DirOpArgs3<'a> {
    DirOpArgs3 { dir: handle_of(directory), name }
}

/// A handle alone: GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF.
pub fn handle(object: &FileHandle) -> Vec<u8> {
    of(&handle_of(object))
}

/// A name in a directory: LOOKUP, REMOVE, RMDIR.
pub fn place(directory: &FileHandle, name: &[u8]) -> Vec<u8> {
    of(&place_of(directory, name))
}

/// SETATTR.
pub fn setattr(object: &FileHandle, set: &Settings, guard: Option<Time>) -> Vec<u8> {
    let guard = guard.map(NfsTime3::from);
    of(&Setattr3Args { object: handle_of(object), new_attributes: set.0, guard })
}

/// ACCESS.
pub fn access(object: &FileHandle, bits: u32) -> Vec<u8> {
    of(&Access3Args { object: handle_of(object), access: bits })
}

/// READ.
pub fn read(file: &FileHandle, offset: u64, count: u32) -> Vec<u8> {
    of(&Read3Args { file: handle_of(file), offset, count })
}

/// WRITE up to the data, which (with its padding) has to follow.
pub fn write_head(file: &FileHandle, offset: u64, count: u32, stable: StableHow) -> Vec<u8> {
    of(&Write3Head { file: handle_of(file), offset, count, stable, data_bytes: count })
}

/// WRITE.
pub fn write(file: &FileHandle, offset: u64, data: &[u8], stable: StableHow) -> Vec<u8> {
    let count = data.len() as u32;
    of(&Write3Args { file: handle_of(file), offset, count, stable, data })
}

/// CREATE.
pub fn create(directory: &FileHandle, name: &[u8], how: &CreateHow3) -> Vec<u8> {
    of(&Create3Args { where_: place_of(directory, name), how: *how })
}

/// MKDIR.
pub fn mkdir(directory: &FileHandle, name: &[u8], set: &Settings) -> Vec<u8> {
    of(&Mkdir3Args { where_: place_of(directory, name), attributes: set.0 })
}

/// SYMLINK.
pub fn symlink(directory: &FileHandle, name: &[u8], target: &[u8], set: &Settings) -> Vec<u8> {
    let symlink = SymlinkData3 { symlink_attributes: set.0, symlink_data: target };
    of(&Symlink3Args { where_: place_of(directory, name), symlink })
}

/// MKNOD.
pub fn mknod(directory: &FileHandle, name: &[u8], what: &MknodData3) -> Vec<u8> {
    of(&Mknod3Args { where_: place_of(directory, name), what: *what })
}

/// RENAME.
pub fn rename(from: &FileHandle, name: &[u8], to: &FileHandle, new_name: &[u8]) -> Vec<u8> {
    of(&Rename3Args { from: place_of(from, name), to: place_of(to, new_name) })
}

/// LINK.
pub fn link(file: &FileHandle, directory: &FileHandle, name: &[u8]) -> Vec<u8> {
    of(&Link3Args { file: handle_of(file), link: place_of(directory, name) })
}

/// READDIR.
pub fn readdir(directory: &FileHandle, cookie: u64, verifier: [u8; 8], count: u32) -> Vec<u8> {
    of(&Readdir3Args { dir: handle_of(directory), cookie, cookieverf: verifier, count })
}

/// READDIRPLUS.
pub fn readdirplus(
    directory: &FileHandle,
    cookie: u64,
    verifier: [u8; 8],
    names_bytes_max: u32,
    bytes_max: u32,
) -> Vec<u8> {
    of(&Readdirplus3Args {
        dir: handle_of(directory),
        cookie,
        cookieverf: verifier,
        dircount: names_bytes_max,
        maxcount: bytes_max,
    })
}

/// COMMIT.
pub fn commit(file: &FileHandle, offset: u64, count: u32) -> Vec<u8> {
    of(&Commit3Args { file: handle_of(file), offset, count })
}
