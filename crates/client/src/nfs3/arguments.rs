//! Arguments of NFSv3 procedures, encoded.

use steadfast_wire::nfs3::{CreateHow3, MknodData3, NfsTime3, Sattr3, SetTime3, StableHow};
use steadfast_xdr::Writer;

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
        let wire = |time: Time| {
            SetTime3::SetToClientTime(NfsTime3 {
                seconds: time.seconds,
                nseconds: time.nanoseconds,
            })
        };
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

fn optional<T>(w: &mut Writer<'_>, value: Option<T>, write: impl FnOnce(&mut Writer<'_>, T)) {
    w.bool(value.is_some());
    if let Some(value) = value {
        write(w, value);
    }
}

fn set_time(w: &mut Writer<'_>, time: SetTime3) {
    match time {
        SetTime3::DontChange => w.u32(0),
        SetTime3::SetToServerTime => w.u32(1),
        SetTime3::SetToClientTime(time) => {
            w.u32(2);
            w.u32(time.seconds);
            w.u32(time.nseconds);
        }
    }
}

#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is not general enough in the writer's lifetime"
)]
pub(crate) fn settings(w: &mut Writer<'_>, set: &Sattr3) {
    optional(w, set.mode, |w, mode| w.u32(mode));
    optional(w, set.uid, |w, uid| w.u32(uid));
    optional(w, set.gid, |w, gid| w.u32(gid));
    optional(w, set.size, |w, size| w.u64(size));
    set_time(w, set.atime);
    set_time(w, set.mtime);
}

/// A handle alone: GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF.
pub fn handle(object: &FileHandle) -> Vec<u8> {
    encoded(|w| w.opaque(object.as_bytes()))
}

/// A name in a directory: LOOKUP, REMOVE, RMDIR.
pub fn place(directory: &FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.opaque(name);
    })
}

/// SETATTR.
pub fn setattr(object: &FileHandle, set: &Settings, guard: Option<Time>) -> Vec<u8> {
    encoded(|w| {
        w.opaque(object.as_bytes());
        settings(w, &set.0);
        optional(w, guard, |w, time| {
            w.u32(time.seconds);
            w.u32(time.nanoseconds);
        });
    })
}

/// ACCESS.
pub fn access(object: &FileHandle, bits: u32) -> Vec<u8> {
    encoded(|w| {
        w.opaque(object.as_bytes());
        w.u32(bits);
    })
}

/// READ.
pub fn read(file: &FileHandle, offset: u64, count: u32) -> Vec<u8> {
    encoded(|w| {
        w.opaque(file.as_bytes());
        w.u64(offset);
        w.u32(count);
    })
}

/// WRITE up to the data, which (with its padding) has to follow.
pub fn write_head(file: &FileHandle, offset: u64, count: u32, stable: StableHow) -> Vec<u8> {
    encoded(|w| {
        w.opaque(file.as_bytes());
        w.u64(offset);
        w.u32(count);
        w.u32(stable as u32);
        w.u32(count);
    })
}

/// WRITE.
pub fn write(file: &FileHandle, offset: u64, data: &[u8], stable: StableHow) -> Vec<u8> {
    let mut bytes = write_head(file, offset, data.len() as u32, stable);
    Writer::new(&mut bytes).fixed_opaque(data);
    bytes
}

/// CREATE.
pub fn create(directory: &FileHandle, name: &[u8], how: &CreateHow3) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.opaque(name);
        match how {
            CreateHow3::Unchecked(set) => {
                w.u32(0);
                settings(w, set);
            }
            CreateHow3::Guarded(set) => {
                w.u32(1);
                settings(w, set);
            }
            CreateHow3::Exclusive(verifier) => {
                w.u32(2);
                w.fixed_opaque(verifier);
            }
        }
    })
}

/// MKDIR.
pub fn mkdir(directory: &FileHandle, name: &[u8], set: &Settings) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.opaque(name);
        settings(w, &set.0);
    })
}

/// SYMLINK.
pub fn symlink(directory: &FileHandle, name: &[u8], target: &[u8], set: &Settings) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.opaque(name);
        settings(w, &set.0);
        w.opaque(target);
    })
}

/// MKNOD.
pub fn mknod(directory: &FileHandle, name: &[u8], what: &MknodData3) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.opaque(name);
        match what {
            MknodData3::Reg => w.u32(1),
            MknodData3::Dir => w.u32(2),
            MknodData3::Blk(device) | MknodData3::Chr(device) => {
                w.u32(if matches!(what, MknodData3::Blk(_)) { 3 } else { 4 });
                settings(w, &device.dev_attributes);
                w.u32(device.spec.specdata1);
                w.u32(device.spec.specdata2);
            }
            MknodData3::Lnk => w.u32(5),
            MknodData3::Sock(set) | MknodData3::Fifo(set) => {
                w.u32(if matches!(what, MknodData3::Sock(_)) { 6 } else { 7 });
                settings(w, set);
            }
        }
    })
}

/// RENAME.
pub fn rename(from: &FileHandle, name: &[u8], to: &FileHandle, new_name: &[u8]) -> Vec<u8> {
    let mut bytes = place(from, name);
    bytes.append(&mut place(to, new_name));
    bytes
}

/// LINK.
pub fn link(file: &FileHandle, directory: &FileHandle, name: &[u8]) -> Vec<u8> {
    let mut bytes = handle(file);
    bytes.append(&mut place(directory, name));
    bytes
}

/// READDIR.
pub fn readdir(directory: &FileHandle, cookie: u64, verifier: [u8; 8], count: u32) -> Vec<u8> {
    encoded(|w| {
        w.opaque(directory.as_bytes());
        w.u64(cookie);
        w.fixed_opaque(&verifier);
        w.u32(count);
    })
}

/// READDIRPLUS.
pub fn readdirplus(
    directory: &FileHandle,
    cookie: u64,
    verifier: [u8; 8],
    names_bytes_max: u32,
    bytes_max: u32,
) -> Vec<u8> {
    let mut bytes = readdir(directory, cookie, verifier, names_bytes_max);
    Writer::new(&mut bytes).u32(bytes_max);
    bytes
}

/// COMMIT.
pub fn commit(file: &FileHandle, offset: u64, count: u32) -> Vec<u8> {
    read(file, offset, count)
}
