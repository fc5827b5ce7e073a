//! What clients do, as values: encoded, sent, and their replies taken apart.

use std::fmt;

use steadfast_client::nfsacl::{SETACL, setacl_arguments};
use steadfast_client::{
    Attributes, ClientError, CreateHow3, FileHandle, Identity, MknodData3, Nfs3Client, NfsStat3,
    Procedure, Reply, RpcTransport, Settings, StableHow, Time, arguments, procedure,
};

use crate::acl::Acl;
use crate::local::{Local, Step};
use crate::random::pattern;

/// The number of an operation; an object goes by the number of the one that made it.
pub(crate) type Number = u32;

/// The share's root, which no operation made.
pub(crate) const ROOT: Number = Number::MAX;

/// A name that clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(pub(crate) u16);

impl Name {
    /// The first name of directories that clients of NFSv4 have for themselves.
    const OF_HOLDERS: u16 = 100;

    /// The directory of the client of this number.
    pub(crate) fn of_holder(number: u32) -> Self {
        Self(Self::OF_HOLDERS.saturating_add(u16::try_from(number).unwrap_or(u16::MAX)))
    }

    /// Whether it is of such a directory, in the root.
    pub(crate) fn is_of_holder(self) -> bool {
        self.0 >= Self::OF_HOLDERS
    }

    /// As the server sees it. Some are long, so that directories have several blocks.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut name = format!("name-{:02}", self.0);
        if self.0 % 6 == 5 {
            name += &"-long".repeat(45);
        }
        name.into_bytes()
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// The directory.
    pub(crate) directory: Number,
    /// The name.
    pub(crate) name: Name,
}

/// How CREATE treats a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is used; its size is set where one is given.
    Unchecked,
    /// It is an error.
    Guarded,
    /// It is an error, unless this verifier made it.
    Exclusive([u8; 8]),
}

/// What SETATTR sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Permissions.
    pub(crate) mode: Option<u32>,
    /// Owner.
    pub(crate) uid: Option<u32>,
    /// Group.
    pub(crate) gid: Option<u32>,
    /// Length.
    pub(crate) size: Option<u64>,
    /// Access and modification time.
    pub(crate) times: Option<(Time, Time)>,
}

/// An operation's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Action {
    Create {
        at: Place,
        how: How,
        mode: Option<u32>,
        size: Option<u64>,
    },
    Mkdir {
        at: Place,
        mode: u32,
    },
    Symlink {
        at: Place,
        target: u64,
    },
    Mknod {
        at: Place,
        mode: u32,
    },
    Remove {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
    },
    Link {
        object: Number,
        at: Place,
    },
    Setattr {
        object: Number,
        change: Change,
    },
    Write {
        object: Number,
        offset: u64,
        seed: u64,
        bytes: usize,
        stable: StableHow,
    },
    Commit {
        object: Number,
        offset: u64,
        count: u32,
    },
    /// NFSACL's; a default ACL of `None` is taken away.
    Setacl {
        object: Number,
        acl: Option<Acl>,
        is_default: bool,
    },
    /// By a process beside the server.
    Local(Local),
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: &Place| {
            let directory = match at.directory {
                ROOT => "/".to_owned(),
                number => format!("#{number}/"),
            };
            format!("{directory}{}", at.name.0)
        };
        match self {
            Self::Create { at, how, size, .. } => {
                write!(formatter, "CREATE {how:?} {} size {size:?}", place(at))
            }
            Self::Mkdir { at, .. } => write!(formatter, "MKDIR {}", place(at)),
            Self::Symlink { at, .. } => write!(formatter, "SYMLINK {}", place(at)),
            Self::Mknod { at, .. } => write!(formatter, "MKNOD {}", place(at)),
            Self::Remove { at } => write!(formatter, "REMOVE {}", place(at)),
            Self::Rmdir { at } => write!(formatter, "RMDIR {}", place(at)),
            Self::Rename { from, to } => {
                write!(formatter, "RENAME {} to {}", place(from), place(to))
            }
            Self::Link { object, at } => write!(formatter, "LINK #{object} as {}", place(at)),
            Self::Setattr { object, change } => write!(formatter, "SETATTR #{object} {change:?}"),
            Self::Write { object, offset, bytes, stable, .. } => {
                write!(formatter, "WRITE #{object} {bytes} bytes at {offset} {stable:?}")
            }
            Self::Commit { object, offset, count } => {
                write!(formatter, "COMMIT #{object} {count} bytes at {offset}")
            }
            Self::Setacl { object, acl, is_default } => {
                let which = if *is_default { "default" } else { "access" };
                let what = if acl.is_some() { "an ACL" } else { "none" };
                write!(formatter, "SETACL #{object} {which}: {what}")
            }
            Self::Local(local) => local.fmt(formatter),
        }
    }
}

/// What a reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done.
    Done(Done),
    /// It was not.
    Failed(NfsStat3),
}

/// What the reply to an operation that was done tells, as far as it is that kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The new object's handle.
    pub(crate) handle: Option<FileHandle>,
    /// The object's attributes.
    pub(crate) attributes: Option<Attributes>,
    /// How many bytes were written.
    pub(crate) count: usize,
    /// Whether they are stable.
    pub(crate) is_stable: bool,
    /// Whether the file's attributes are stable too.
    pub(crate) is_file_stable: bool,
    /// Of WRITE and COMMIT.
    pub(crate) verifier: [u8; 8],
}

/// One reply, for whoever asks.
struct Canned(Option<Reply>);

impl RpcTransport for Canned {
    fn exchange(&mut self, _: Procedure, _: &Identity, _: &[u8]) -> Result<Reply, ClientError> {
        self.0.take().ok_or(ClientError::Closed)
    }
}

/// A client whose next call is answered by this reply: the typed methods take it apart.
pub(crate) fn decoder(reply: Reply) -> Nfs3Client<impl RpcTransport> {
    Nfs3Client::new(Canned(Some(reply)), Identity::None)
}

/// The target of a symbolic link.
pub(crate) fn target(seed: u64) -> Vec<u8> {
    // From inside an inode to blocks of its own.
    let length = 1 + seed % 300;
    pattern(seed, length as usize).into_iter().map(|byte| b'a' + byte % 26).collect()
}

fn settings(change: &Change) -> Settings {
    let base = match change.times {
        Some((atime, mtime)) => Settings::times(atime, mtime),
        None => Settings::default(),
    };
    base.with(|set| {
        set.mode = change.mode;
        set.uid = change.uid;
        set.gid = change.gid;
        set.size = change.size;
    })
}

impl Action {
    /// The call's procedure and arguments, given the handles of objects.
    pub(crate) fn call<'a>(
        &self,
        handle: impl Fn(Number) -> &'a FileHandle,
    ) -> (Procedure, Vec<u8>) {
        match *self {
            Self::Create { at, how, mode, size } => {
                let set = settings(&Change { mode, size, ..Change::default() }).0;
                let how = match how {
                    How::Unchecked => CreateHow3::Unchecked(set),
                    How::Guarded => CreateHow3::Guarded(set),
                    How::Exclusive(verifier) => CreateHow3::Exclusive(verifier),
                };
                let bytes = arguments::create(handle(at.directory), &at.name.bytes(), &how);
                (procedure::CREATE, bytes)
            }
            Self::Mkdir { at, mode } => {
                let set = Settings::mode(mode);
                (procedure::MKDIR, arguments::mkdir(handle(at.directory), &at.name.bytes(), &set))
            }
            Self::Symlink { at, target: seed } => {
                let bytes = arguments::symlink(
                    handle(at.directory),
                    &at.name.bytes(),
                    &target(seed),
                    &Settings::default(),
                );
                (procedure::SYMLINK, bytes)
            }
            Self::Mknod { at, mode } => {
                let what = MknodData3::Fifo(Settings::mode(mode).0);
                (procedure::MKNOD, arguments::mknod(handle(at.directory), &at.name.bytes(), &what))
            }
            Self::Remove { at } => {
                (procedure::REMOVE, arguments::place(handle(at.directory), &at.name.bytes()))
            }
            Self::Rmdir { at } => {
                (procedure::RMDIR, arguments::place(handle(at.directory), &at.name.bytes()))
            }
            Self::Rename { from, to } => {
                let bytes = arguments::rename(
                    handle(from.directory),
                    &from.name.bytes(),
                    handle(to.directory),
                    &to.name.bytes(),
                );
                (procedure::RENAME, bytes)
            }
            Self::Link { object, at } => {
                let name = at.name.bytes();
                (procedure::LINK, arguments::link(handle(object), handle(at.directory), &name))
            }
            Self::Setattr { object, change } => {
                (procedure::SETATTR, arguments::setattr(handle(object), &settings(&change), None))
            }
            Self::Write { object, offset, seed, bytes, stable } => {
                let data = pattern(seed, bytes);
                (procedure::WRITE, arguments::write(handle(object), offset, &data, stable))
            }
            Self::Commit { object, offset, count } => {
                (procedure::COMMIT, arguments::commit(handle(object), offset, count))
            }
            Self::Setacl { object, acl, is_default } => {
                let list = acl.map_or_else(Vec::new, |acl| acl.entries(is_default));
                let (mask, access, default) =
                    if is_default { (4, Vec::new(), list) } else { (1, list, Vec::new()) };
                (SETACL, setacl_arguments(handle(object), mask, &access, &default))
            }
            Self::Local(_) => (procedure::NULL, Vec::new()),
        }
    }

    /// What a reply to it says.
    pub(crate) fn decode(&self, reply: Reply) -> Result<Outcome, ClientError> {
        let mut client = decoder(reply);
        let any = FileHandle(Vec::new());
        let done = match *self {
            Self::Create { .. }
            | Self::Mkdir { .. }
            | Self::Symlink { .. }
            | Self::Mknod { .. } => {
                let made = match self {
                    Self::Create { .. } => client.create(&any, b"", &CreateHow3::Exclusive([0; 8])),
                    Self::Mkdir { .. } => client.mkdir(&any, b"", &Settings::default()),
                    Self::Symlink { .. } => client.symlink(&any, b"", b"", &Settings::default()),
                    _ => client.mknod(&any, b"", &MknodData3::Reg),
                };
                made.map(|made| Done {
                    handle: made.handle,
                    attributes: made.attributes,
                    ..Done::default()
                })
            }
            Self::Remove { .. } => client.remove(&any, b"").map(|_| Done::default()),
            Self::Rmdir { .. } => client.rmdir(&any, b"").map(|_| Done::default()),
            Self::Rename { .. } => client.rename(&any, b"", &any, b"").map(|_| Done::default()),
            Self::Link { .. } => client
                .link(&any, &any, b"")
                .map(|linked| Done { attributes: linked.attributes, ..Done::default() }),
            Self::Setattr { .. } => client
                .setattr(&any, &Settings::default(), None)
                .map(|wcc| Done { attributes: wcc.after, ..Done::default() }),
            Self::Write { bytes, stable, .. } => {
                client.write(&any, 0, &vec![0; bytes], stable).map(|write| Done {
                    attributes: write.wcc.after,
                    count: write.count as usize,
                    is_stable: write.committed != StableHow::Unstable,
                    is_file_stable: write.committed == StableHow::FileSync,
                    verifier: write.verifier,
                    ..Done::default()
                })
            }
            Self::Commit { .. } => client.commit(&any, 0, 0).map(|commit| Done {
                attributes: commit.wcc.after,
                verifier: commit.verifier,
                ..Done::default()
            }),
            Self::Setacl { .. } => client
                .setacl(&any, 0, &[], &[])
                .map(|attributes| Done { attributes, ..Done::default() }),
            Self::Local(_) => Ok(Done::default()),
        };
        match done {
            Ok(done) => Ok(Outcome::Done(done)),
            Err(error) => match error.status() {
                Some(status) => Ok(Outcome::Failed(status)),
                None => Err(error),
            },
        }
    }

    /// Whether sending it again after it was done may have another result, so that its reply has
    /// to be remembered.
    pub(crate) fn is_replayed(&self) -> bool {
        !matches!(self, Self::Write { .. } | Self::Commit { .. } | Self::Local(_))
    }

    /// Whether a process beside the server did it.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Whether a process beside the server has changed a file's data in place by it.
    pub(crate) fn is_local_of_data(&self) -> bool {
        let Self::Local(local) = self else { return false };
        matches!(local.step, Step::Truncate { .. } | Step::Overwrite { .. })
    }

    /// The directory entries that it may change.
    pub(crate) fn places(&self) -> Vec<Place> {
        match *self {
            Self::Create { at, .. }
            | Self::Mkdir { at, .. }
            | Self::Symlink { at, .. }
            | Self::Mknod { at, .. }
            | Self::Remove { at }
            | Self::Rmdir { at }
            | Self::Link { at, .. } => vec![at],
            Self::Rename { from, to } => vec![from, to],
            Self::Local(ref local) => local.places(),
            Self::Setattr { .. }
            | Self::Write { .. }
            | Self::Commit { .. }
            | Self::Setacl { .. } => Vec::new(),
        }
    }

    /// The object that it names by its handle.
    pub(crate) fn object(&self) -> Option<Number> {
        match *self {
            Self::Link { object, .. }
            | Self::Setattr { object, .. }
            | Self::Write { object, .. }
            | Self::Setacl { object, .. }
            | Self::Commit { object, .. } => Some(object),
            Self::Local(local) => local.object(),
            _ => None,
        }
    }
}
