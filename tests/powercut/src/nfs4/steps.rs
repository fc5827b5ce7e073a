//! What a client of NFSv4 does next with one of its files: as a COMPOUND, and what its reply says.

use std::collections::BTreeSet;

use anyhow::Result;
use steadfast_client::nfs4::{
    Attributes4, Compound, CompoundReply, NfsStat4, Opening4, Settings4, StateId4,
    WANT_NO_DELEGATION,
};
use steadfast_client::{Attributes, ClientError, FileHandle, FileType, StableHow, Time};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Close4Args, Commit4Args, Lock4Args, LockOwner4, LockType4, LockU4Args,
    Locker4, Op4, OpenClaim4, OpenHow4, Remove4Args, Rename4Args, SetAttr4Args, Write4Args,
};

use super::deeds::{Modes, What};
use super::session;
use crate::operation::{Action, Change, Done, How, Name, Number, Place};
use crate::random::{Random, pattern};

/// OPEN's bit of who writes.
pub(crate) const WRITES: u32 = 2;
/// Ranges that are locked, as offsets and lengths.
pub(crate) const RANGES: [(u64, u64); 4] = [(0, 100), (100, 50), (4096, 4096), (1 << 20, u64::MAX)];
/// How far into a file it writes, in bytes.
const REACH: u64 = 16 << 10;

/// A file that is open.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) stateid: StateId4,
    pub(crate) modes: Modes,
    /// The stateid of its locks, once there was one.
    pub(crate) lock: Option<StateId4>,
    pub(crate) locked: BTreeSet<u8>,
}

/// A file of a client.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) name: Name,
    pub(crate) object: Number,
    pub(crate) handle: FileHandle,
    pub(crate) open: Option<Opened>,
}

/// How a file is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Making {
    Unchecked,
    Guarded,
    Exclusive([u8; 8]),
}

/// What is done with one of a client's files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// OPEN that makes the file, or fails as it is there.
    Create {
        name: Name,
        making: Making,
        modes: Modes,
        mode: u32,
    },
    /// OPEN of the file as it is.
    Open {
        modes: Modes,
    },
    Close,
    Lock {
        range: u8,
    },
    Unlock {
        range: u8,
    },
    Write {
        offset: u64,
        seed: u64,
        bytes: usize,
        stable: StableHow,
    },
    Commit,
    Resize {
        size: u64,
    },
    Rename {
        to: Name,
    },
    Remove,
}

/// What a reply tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) stateid: Option<StateId4>,
    pub(crate) done: Done,
}

/// Whose an open is, and a lock.
pub(crate) fn owner(place: usize) -> Vec<u8> {
    format!("process {}", place % 2).into_bytes()
}

/// The kind of lock that an open permits.
pub(crate) fn lock_type(modes: Modes) -> LockType4 {
    if modes.access & WRITES != 0 { LockType4::Write } else { LockType4::Read }
}

/// What a LOCK is asked for by: an open, or the locks that its owner has there.
pub(crate) fn locker(open: StateId4, lock: Option<StateId4>, owner: &[u8]) -> Locker4<'_> {
    if let Some(lock_stateid) = lock {
        return Locker4::Lock { lock_stateid, lock_seqid: 0 };
    }
    let lock_owner = LockOwner4 { clientid: 0, owner };
    Locker4::Open { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner }
}

/// An OPEN of these modes.
pub(crate) fn opening<'a>(
    modes: Modes,
    owner: &'a [u8],
    how: OpenHow4<'a>,
    claim: OpenClaim4<'a>,
) -> Opening4<'a> {
    let (share_access, share_deny) = (modes.access | WANT_NO_DELEGATION, modes.deny);
    Opening4 { share_access, share_deny, owner, how, claim }
}

fn modes(random: &mut Random) -> Modes {
    let access = if random.percent(60) { 3 } else { 1 + random.below(2) as u32 };
    let deny = if random.percent(60) { 0 } else { 1 + random.below(3) as u32 };
    Modes { access, deny }
}

impl Step {
    /// Something to be done with the file at a place, of which there are two names.
    pub(crate) fn choose(place: usize, file: Option<&File>, random: &mut Random) -> Self {
        let name = |second: bool| Name((2 * place + usize::from(second)) as u16);
        let create = |name, random: &mut Random| {
            let making = match random.below(3) {
                0 => Making::Unchecked,
                1 => Making::Guarded,
                _ => Making::Exclusive(random.next().to_be_bytes()),
            };
            let mode = 0o600 + random.below(0o200) as u32;
            Self::Create { name, making, modes: modes(random), mode }
        };
        let Some(file) = file else { return create(name(random.percent(50)), random) };
        let other = name(file.name == name(false));
        let Some(open) = &file.open else {
            return match random.below(100) {
                0..65 => Self::Open { modes: modes(random) },
                65..75 => Self::Rename { to: other },
                75..90 => Self::Remove,
                // It is there.
                _ => {
                    let mode = 0o600;
                    let (making, modes) = (Making::Guarded, modes(random));
                    Self::Create { name: file.name, making, modes, mode }
                }
            };
        };
        let writes = open.modes.access & WRITES != 0;
        let range = random.below(RANGES.len() as u64) as u8;
        match random.below(100) {
            0..30 if writes => Self::Write {
                offset: random.below(REACH),
                seed: random.next(),
                bytes: 1 + random.below(8 << 10) as usize,
                stable: match random.below(4) {
                    0 => StableHow::FileSync,
                    1 => StableHow::DataSync,
                    _ => StableHow::Unstable,
                },
            },
            30..42 => Self::Commit,
            42..48 if writes => Self::Resize { size: random.below(REACH) },
            48..56 => Self::Rename { to: other },
            56..68 => Self::Close,
            _ if open.locked.contains(&range) => Self::Unlock { range },
            _ => Self::Lock { range },
        }
    }

    /// What it changes of the share, for the ledger.
    pub(crate) fn action(&self, directory: Number, file: Option<&File>) -> Option<Action> {
        let at = |name| Place { directory, name };
        if let Self::Create { name, making, mode, .. } = *self {
            let how = match making {
                Making::Unchecked => How::Unchecked,
                Making::Guarded => How::Guarded,
                Making::Exclusive(verifier) => How::Exclusive(verifier),
            };
            return Some(Action::Create { at: at(name), how, mode: Some(mode), size: None });
        }
        let File { object, name, .. } = *file?;
        match *self {
            Self::Write { offset, seed, bytes, stable } => {
                Some(Action::Write { object, offset, seed, bytes, stable })
            }
            Self::Commit => Some(Action::Commit { object, offset: 0, count: 0 }),
            Self::Resize { size } => {
                let change = Change { size: Some(size), ..Change::default() };
                Some(Action::Setattr { object, change })
            }
            Self::Rename { to } => Some(Action::Rename { from: at(name), to: at(to) }),
            Self::Remove => Some(Action::Remove { at: at(name) }),
            _ => None,
        }
    }

    /// What it opens or locks; `made`: the operation that makes the file.
    pub(crate) fn what(&self, file: Option<&File>, made: Option<Number>) -> Option<What> {
        let object = match (self, file) {
            (Self::Create { .. }, _) => made?,
            (_, file) => file?.object,
        };
        match *self {
            Self::Create { modes, .. } | Self::Open { modes } => Some(What::Open { object, modes }),
            Self::Close => Some(What::Close { object }),
            Self::Lock { range } => Some(What::Lock { object, range }),
            Self::Unlock { range } => Some(What::Unlock { object, range }),
            _ => None,
        }
    }

    /// The operations behind SEQUENCE, for the file at a place.
    pub(crate) fn build(
        &self,
        compound: Compound,
        directory: &FileHandle,
        (place, file): (usize, Option<&File>),
    ) -> Compound {
        let owner = owner(place);
        if let Self::Create { name, making, modes, mode } = *self {
            let settings = Settings4::mode(mode).encode();
            let how = match making {
                Making::Unchecked => OpenHow4::Unchecked(settings.fattr()),
                Making::Guarded => OpenHow4::Guarded(settings.fattr()),
                Making::Exclusive(it) => OpenHow4::Exclusive41(it, settings.fattr()),
            };
            let name = name.bytes();
            let opening = opening(modes, &owner, how, OpenClaim4::Null(&name));
            let wanted = Bitmap4::of(&[Attribute4::FileId, Attribute4::Mode]);
            let compound = compound.put(directory).op(Op4::Open, &opening.arguments());
            return compound.handle().attributes(wanted);
        }
        let Some(file) = file else { return compound };
        let name = file.name.bytes();
        let open = file.open.as_ref();
        let stateid = open.map_or(steadfast_client::nfs4::ANONYMOUS, |open| open.stateid);
        let lock = open.and_then(|open| open.lock);
        match *self {
            Self::Create { .. } => compound,
            Self::Open { modes } => {
                let claim = OpenClaim4::Null(&name);
                let opening = opening(modes, &owner, OpenHow4::NoCreate, claim);
                compound.put(directory).op(Op4::Open, &opening.arguments())
            }
            Self::Close => compound
                .put(&file.handle)
                .op(Op4::Close, &Close4Args { seqid: 0, open_stateid: stateid }),
            Self::Lock { range } => {
                let (offset, length) = range_of(range);
                let locktype = lock_type(open.map_or(Modes { access: 1, deny: 0 }, |it| it.modes));
                let locker = locker(stateid, lock, &owner);
                let lock = Lock4Args { locktype, reclaim: false, offset, length, locker };
                compound.put(&file.handle).op(Op4::Lock, &lock)
            }
            Self::Unlock { range } => {
                let (offset, length) = range_of(range);
                let (locktype, lock_stateid) = (LockType4::Write, lock.unwrap_or(stateid));
                let unlock = LockU4Args { locktype, seqid: 0, lock_stateid, offset, length };
                compound.put(&file.handle).op(Op4::LockU, &unlock)
            }
            Self::Write { offset, seed, bytes, stable } => {
                let data = &pattern(seed, bytes);
                let write = Write4Args { stateid, offset, stable, data };
                compound.put(&file.handle).op(Op4::Write, &write)
            }
            Self::Commit => {
                compound.put(&file.handle).op(Op4::Commit, &Commit4Args { offset: 0, count: 0 })
            }
            Self::Resize { size } => {
                let settings = Settings4::size(size).encode();
                let set = SetAttr4Args { stateid, obj_attributes: settings.fattr() };
                compound.put(&file.handle).op(Op4::SetAttr, &set)
            }
            Self::Rename { to } => {
                let newname = &to.bytes();
                let rename = Rename4Args { oldname: &name, newname };
                let compound = compound.put(directory).plain(Op4::SaveFh).put(directory);
                compound.op(Op4::Rename, &rename)
            }
            Self::Remove => compound.put(directory).op(Op4::Remove, &Remove4Args { target: &name }),
        }
    }

    /// What its reply says.
    pub(crate) fn read(&self, results: &[u8]) -> Result<Result<Told, NfsStat4>> {
        session::read(results, |reply| {
            reply.done(Op4::PutFh)?;
            self.read_behind_file(reply)
        })
    }

    fn read_behind_file(&self, reply: &mut CompoundReply<'_>) -> Result<Told, ClientError> {
        let of = |stateid| Told { stateid: Some(stateid), done: Done::default() };
        match self {
            Self::Create { mode, .. } => {
                let mut told = of(reply.open()?.stateid);
                told.done.handle = Some(reply.handle()?);
                told.done.attributes = made(&reply.attributes()?, *mode);
                Ok(told)
            }
            Self::Open { .. } => reply.open().map(|opened| of(opened.stateid)),
            Self::Close => reply.stateid(Op4::Close).map(of),
            Self::Lock { .. } => reply.stateid(Op4::Lock).map(of),
            Self::Unlock { .. } => reply.stateid(Op4::LockU).map(of),
            Self::Write { .. } => {
                let written = reply.write()?;
                let is_stable = written.committed != StableHow::Unstable;
                let done = Done {
                    count: written.count as usize,
                    is_stable,
                    is_file_stable: written.committed == StableHow::FileSync,
                    verifier: written.verifier,
                    ..Done::default()
                };
                Ok(Told { stateid: None, done })
            }
            Self::Commit => {
                let done = Done { verifier: reply.commit()?, ..Done::default() };
                Ok(Told { stateid: None, done })
            }
            Self::Resize { .. } => reply.set_attributes().map(|_| Told::default()),
            Self::Rename { .. } => {
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::PutFh)?;
                reply.rename().map(|_| Told::default())
            }
            Self::Remove => reply.change(Op4::Remove).map(|_| Told::default()),
        }
    }
}

/// Offset and length of a range.
pub(crate) fn range_of(range: u8) -> (u64, u64) {
    RANGES.get(usize::from(range)).copied().unwrap_or((0, 1))
}

/// What the ledger keeps of the attributes of a file or directory that root has made.
pub(crate) fn made(told: &Attributes4, mode: u32) -> Option<Attributes> {
    let never = Time { seconds: 0, nanoseconds: 0 };
    Some(Attributes {
        file_type: FileType::Regular,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: told.fileid?,
        atime: never,
        mtime: never,
        ctime: never,
    })
}
