//! What local processes do to a share beside the server, as values, and doing it: by path, on the
//! mounted file system, as root.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, XattrFlags, futimens, removexattr, setxattr, syncfs};
use steadfast_client::Time;

use crate::acl::{ACCESS_ATTRIBUTE, Acl, DEFAULT_ATTRIBUTE};
use crate::operation::{Number, Place, ROOT};
use crate::random::pattern;
use crate::state::State;

/// What a file is called until it replaces another; the check does not ask for it.
pub(crate) const TEMPORARY: &str = ".local-temporary";

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Step {
    Truncate {
        object: Number,
        size: u64,
    },
    /// With `keeps_mtime` the file has the same modification time afterwards, as `rsync -t` leaves it.
    Overwrite {
        object: Number,
        offset: u64,
        seed: u64,
        bytes: usize,
        keeps_mtime: bool,
    },
    /// A new file of another name is renamed over what is there.
    Replace {
        at: Place,
        seed: u64,
        bytes: usize,
        mode: u32,
    },
    Create {
        at: Place,
        seed: u64,
        bytes: usize,
        mode: u32,
    },
    Mkdir {
        at: Place,
        mode: u32,
    },
    Unlink {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
    },
    Chmod {
        object: Number,
        mode: u32,
    },
    Chown {
        object: Number,
        uid: u32,
        gid: u32,
    },
    Utimes {
        object: Number,
        atime: Time,
        mtime: Time,
    },
    Acl {
        object: Number,
        acl: Option<Acl>,
    },
    DefaultAcl {
        object: Number,
        acl: Option<Acl>,
    },
    /// Nothing is changed.
    Nothing,
}

/// What is made stable then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Nothing.
    None,
    /// `fsync` of the file, and of the directory whose names change.
    Own,
    /// `syncfs`.
    All,
}

/// A change, and how it is made stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) step: Step,
    pub(crate) sync: Sync,
}

impl fmt::Display for Local {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: &Place| match at.directory {
            ROOT => format!("/{}", at.name.0),
            number => format!("#{number}/{}", at.name.0),
        };
        write!(formatter, "LOCAL ")?;
        match &self.step {
            Step::Truncate { object, size } => write!(formatter, "truncate #{object} to {size}"),
            Step::Overwrite { object, offset, bytes, keeps_mtime, .. } => {
                let keeps = if *keeps_mtime { " keeping its mtime" } else { "" };
                write!(formatter, "write #{object} {bytes} bytes at {offset}{keeps}")
            }
            Step::Replace { at, bytes, .. } => {
                write!(formatter, "replace {} by {bytes} bytes", place(at))
            }
            Step::Create { at, bytes, .. } => {
                write!(formatter, "create {} of {bytes} bytes", place(at))
            }
            Step::Mkdir { at, .. } => write!(formatter, "mkdir {}", place(at)),
            Step::Unlink { at } => write!(formatter, "unlink {}", place(at)),
            Step::Rmdir { at } => write!(formatter, "rmdir {}", place(at)),
            Step::Rename { from, to } => {
                write!(formatter, "rename {} to {}", place(from), place(to))
            }
            Step::Chmod { object, mode } => write!(formatter, "chmod #{object} {mode:o}"),
            Step::Chown { object, uid, gid } => write!(formatter, "chown #{object} {uid}:{gid}"),
            Step::Utimes { object, .. } => write!(formatter, "utimes #{object}"),
            Step::Acl { object, acl: None } => write!(formatter, "setfacl -b #{object}"),
            Step::Acl { object, .. } => write!(formatter, "setfacl #{object}"),
            Step::DefaultAcl { object, acl: None } => write!(formatter, "setfacl -k #{object}"),
            Step::DefaultAcl { object, .. } => write!(formatter, "setfacl -d #{object}"),
            Step::Nothing => write!(formatter, "nothing"),
        }?;
        match self.sync {
            Sync::None => Ok(()),
            Sync::Own => write!(formatter, ", fsync"),
            Sync::All => write!(formatter, ", syncfs"),
        }
    }
}

impl Local {
    /// The directory entries that it changes.
    pub(crate) fn places(&self) -> Vec<Place> {
        match self.step {
            Step::Replace { at, .. }
            | Step::Create { at, .. }
            | Step::Mkdir { at, .. }
            | Step::Unlink { at }
            | Step::Rmdir { at } => vec![at],
            Step::Rename { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// What it changes that has a name already.
    pub(crate) fn object(&self) -> Option<Number> {
        match self.step {
            Step::Truncate { object, .. }
            | Step::Overwrite { object, .. }
            | Step::Chmod { object, .. }
            | Step::Chown { object, .. }
            | Step::Utimes { object, .. }
            | Step::Acl { object, .. }
            | Step::DefaultAcl { object, .. } => Some(object),
            _ => None,
        }
    }

    /// Where an object is that it makes.
    pub(crate) fn made(&self) -> Option<Place> {
        match self.step {
            Step::Replace { at, .. } | Step::Create { at, .. } | Step::Mkdir { at, .. } => Some(at),
            _ => None,
        }
    }
}

/// The path of a name.
pub(crate) fn path(state: &State, share: &Path, mut at: Place) -> Option<PathBuf> {
    let mut names = vec![at.name];
    while at.directory != ROOT {
        at = state.place_of(at.directory)?;
        names.push(at.name);
    }
    let mut path = share.to_owned();
    path.extend(names.iter().rev().map(|name| OsString::from_vec(name.bytes())));
    Some(path)
}

/// The paths of what a change is of.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The share.
    pub(crate) share: PathBuf,
    /// The object, or the (first) name.
    pub(crate) first: PathBuf,
    /// The second name of a RENAME.
    pub(crate) second: PathBuf,
}

impl Paths {
    /// Those of a change.
    pub(crate) fn of(local: &Local, state: &State, share: &Path) -> Option<Self> {
        let places = local.places();
        let first = match (local.object(), places.first()) {
            (Some(ROOT), _) | (None, None) => share.to_owned(),
            (Some(object), _) => path(state, share, state.place_of(object)?)?,
            (None, Some(place)) => path(state, share, *place)?,
        };
        let second = match places.get(1) {
            Some(place) => path(state, share, *place)?,
            None => first.clone(),
        };
        Some(Self { share: share.to_owned(), first, second })
    }
}

/// Does it.
pub(crate) fn execute(local: &Local, paths: &Paths) -> io::Result<()> {
    let path = &paths.first;
    let is_synced = local.sync == Sync::Own;
    let synced = |file: &File| if is_synced { file.sync_all() } else { Ok(()) };
    let synced_directory = |path: &Path| match path.parent() {
        Some(parent) if is_synced => File::open(parent)?.sync_all(),
        _ => Ok(()),
    };
    let write_new = |path: &Path, seed: u64, bytes: usize, mode: u32| {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all_at(&pattern(seed, bytes), 0)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        synced(&file)
    };
    match local.step {
        Step::Truncate { size, .. } => {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(size)?;
            synced(&file)?;
        }
        Step::Overwrite { offset, seed, bytes, keeps_mtime, .. } => {
            let file = OpenOptions::new().write(true).open(path)?;
            let before = rustix::fs::fstat(&file)?;
            file.write_all_at(&pattern(seed, bytes), offset)?;
            if keeps_mtime {
                let last_access =
                    Timespec { tv_sec: before.st_atime, tv_nsec: before.st_atime_nsec as _ };
                let last_modification =
                    Timespec { tv_sec: before.st_mtime, tv_nsec: before.st_mtime_nsec as _ };
                futimens(&file, &Timestamps { last_access, last_modification })?;
            }
            synced(&file)?;
        }
        Step::Replace { seed, bytes, mode, .. } => {
            let temporary = path.with_file_name(TEMPORARY);
            // Left by one that failed.
            let _ = std::fs::remove_file(&temporary);
            write_new(&temporary, seed, bytes, mode)?;
            std::fs::rename(&temporary, path)?;
            synced_directory(path)?;
        }
        Step::Create { seed, bytes, mode, .. } => {
            write_new(path, seed, bytes, mode)?;
            synced_directory(path)?;
        }
        Step::Mkdir { mode, .. } => {
            std::fs::create_dir(path)?;
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
            synced(&File::open(path)?)?;
            synced_directory(path)?;
        }
        Step::Unlink { .. } => {
            std::fs::remove_file(path)?;
            synced_directory(path)?;
        }
        Step::Rmdir { .. } => {
            std::fs::remove_dir(path)?;
            synced_directory(path)?;
        }
        Step::Rename { .. } => {
            std::fs::rename(path, &paths.second)?;
            synced_directory(&paths.second)?;
        }
        Step::Chmod { mode, .. } => {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
            synced(&File::open(path)?)?;
        }
        Step::Chown { uid, gid, .. } => {
            std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
            synced(&File::open(path)?)?;
        }
        Step::Utimes { atime, mtime, .. } => {
            let file = File::open(path)?;
            let time = |time: Time| Timespec {
                tv_sec: i64::from(time.seconds),
                tv_nsec: time.nanoseconds.into(),
            };
            let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
            futimens(&file, &times)?;
            synced(&file)?;
        }
        Step::Acl { acl, .. } => {
            set_acl(path, ACCESS_ATTRIBUTE, acl)?;
            synced(&File::open(path)?)?;
        }
        Step::DefaultAcl { acl, .. } => {
            set_acl(path, DEFAULT_ATTRIBUTE, acl)?;
            synced(&File::open(path)?)?;
        }
        Step::Nothing => {}
    }
    if local.sync == Sync::All {
        syncfs(File::open(&paths.share)?)?;
    }
    Ok(())
}

fn set_acl(path: &Path, attribute: &str, acl: Option<Acl>) -> io::Result<()> {
    match acl {
        Some(acl) => setxattr(path, attribute, &acl.attribute(), XattrFlags::empty())?,
        None => match removexattr(path, attribute) {
            Err(rustix::io::Errno::NODATA) => {}
            other => other?,
        },
    }
    Ok(())
}
