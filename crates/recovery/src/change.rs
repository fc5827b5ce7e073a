//! Changes as the intent log keeps them.
//!
//! Storage applies a change, takes a place in the log's order under the lock that orders the
//! object ([`LogPlace`](crate::LogPlace)), and gives what is needed to do the change again after a crash: a
//! [`Change`]. It names objects by [`ObjectKey`], never by a path, and tells what came of
//! it (the attributes afterwards), not what was asked for, so that doing it again needs no
//! permission and no clock.
//!
//! The encoding here is of the log's payload: little-endian, every length bounded before anything
//! is made of it. What comes from a disk is not trusted: [`Change::decode`] takes any bytes.

mod bytes;

use smallvec::SmallVec;
use steadfast_vfs::{Attr, HANDLE_BYTES_MAX, NAME_BYTES_MAX, StorageHandle, Time};

use bytes::{In, Out};

/// The longest symbolic link's target, in bytes (Linux `PATH_MAX`).
pub const LINK_TARGET_BYTES_MAX: usize = 4096;
/// The largest ACL as the kernel keeps it, in bytes (an extended attribute's limit).
pub const ACL_BYTES_MAX: usize = 65_536;
/// How many objects' attributes one change can tell: those of a RENAME with two directories, the
/// object and the one it took the place of.
pub const AFTER_MAX: usize = 4;

/// Names an object of one file system for its life, also when replay had to make it again:
/// storage makes it, and finds the object by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(pub StorageHandle);

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place<'a> {
    /// The directory.
    pub dir: ObjectKey,
    /// The name.
    pub name: &'a [u8],
}

/// An object that lost a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// The object.
    pub object: ObjectKey,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it has other names left.
    pub is_left: bool,
}

/// Of which changes it is told that they have reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// An object's data, and what is needed to read it.
    Data(ObjectKey),
    /// All of an object: data and attributes, or a directory's names.
    Object(ObjectKey),
    /// All of the file system.
    FileSystem,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Nothing: the record is there for its reply.
    Nothing,
    /// Data was written.
    Write {
        /// The file.
        object: ObjectKey,
        /// Where, in bytes.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Where the file ended before, if that was in front of the data: from there to the data
        /// it reads as zeros.
        gap: Option<u64>,
    },
    /// Attributes were set; which ones they are now is told by [`Change::after`].
    Attributes {
        /// The object.
        object: ObjectKey,
        /// The size, if that was set.
        size: Option<u64>,
        /// Where the file ended before, if it was made longer: from there on it reads as zeros.
        gap: Option<u64>,
    },
    /// Access lists were set, as the kernel keeps them; an empty one was removed.
    Acls {
        /// The object.
        object: ObjectKey,
        /// The access list, if it was set.
        access: Option<&'a [u8]>,
        /// A directory's default list, if it was set.
        default: Option<&'a [u8]>,
    },
    /// An object was made.
    Make {
        /// Its first name.
        place: Place<'a>,
        /// The object.
        object: ObjectKey,
        /// A symbolic link's target.
        target: &'a [u8],
    },
    /// A name was removed.
    Remove {
        /// The name.
        place: Place<'a>,
        /// What had it.
        unlinked: Unlinked,
    },
    /// An object got another name for one it had.
    Rename {
        /// The name it had.
        from: Place<'a>,
        /// The name it has.
        to: Place<'a>,
        /// The object.
        object: ObjectKey,
        /// Whether it is a directory.
        is_directory: bool,
        /// What had the name before.
        victim: Option<Unlinked>,
    },
    /// An object got one more name.
    Link {
        /// The new name.
        place: Place<'a>,
        /// The object.
        object: ObjectKey,
    },
    /// Changes up to an LSN have reached the disk by themselves.
    Settled {
        /// Which.
        what: Settled,
        /// The last LSN of which this is told.
        up_to: u64,
    },
    /// Data was written that is not in the log, since it need not be stable yet, or is flushed: by its
    /// times the object is known to have been changed by the server.
    Touched {
        /// The file.
        object: ObjectKey,
        /// When it was changed.
        ctime: Time,
        /// When its data was.
        mtime: Time,
    },
    /// A time mark: each change of the server's own that gave an object a ctime before this has its
    /// record before this one, on whatever file system. A ctime before it that no record has is one
    /// of a local process.
    Moment {
        /// When, by the clock that gives files their times.
        before: Time,
    },
}

/// What is known of an object that was just made, beside its attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// When it was made, as its file system says; an object found by its key with another time of
    /// birth is another one.
    pub born: Option<Time>,
    /// The access lists that it got from its directory; `None` if they are not known.
    pub acls: Option<MadeAcls>,
}

/// Access lists as the kernel keeps them; an empty one is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadeAcls {
    /// Its own.
    pub access: Vec<u8>,
    /// That for what is made in it.
    pub default: Vec<u8>,
}

/// Whose an object is, and what its mode permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The permission bits and those for set-id and sticky.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Ownership {
    /// An object's.
    pub fn of(attr: &Attr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid }
    }
}

/// What an object was just before a change of its data, attributes or names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// When it had been changed last.
    pub ctime: Time,
    /// When its data had.
    pub mtime: Time,
    /// Whose it was, if the change may have changed that. Logs of earlier versions do not have it.
    pub ownership: Option<Ownership>,
}

/// One change of one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What was done.
    pub action: Action<'a>,
    /// Attributes of the objects that it changed, just afterwards.
    pub after: SmallVec<[(ObjectKey, Attr); AFTER_MAX]>,
    /// Of a change of one object's data, attributes or names: what it was just before, if that is told.
    pub before: Option<Before>,
    /// What else is known of an object that it made. Logs of earlier versions do not have it.
    pub made: Option<Box<Made>>,
}

impl<'a> Change<'a> {
    /// A change of which no attributes are told.
    pub fn new(action: Action<'a>) -> Self {
        Self { action, after: SmallVec::new(), before: None, made: None }
    }

    /// An object's attributes just afterwards, if they are told.
    pub fn attr_of(&self, object: &ObjectKey) -> Option<&Attr> {
        self.after.iter().find(|(key, _)| key == object).map(|(_, attr)| attr)
    }
}

/// Bytes that are no change as it is encoded here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a change of format {CHANGE_FORMAT}")]
pub struct NotAChange;

/// The format of encoded changes.
const CHANGE_FORMAT: u8 = 1;
/// The same, with times of before.
const FORMAT_WITH_TIMES: u8 = 2;
/// The same, with the ownership of before.
const FORMAT_WITH_OWNERSHIP: u8 = 3;
const ATTR_BYTES: usize = 1 + 4 * 6 + 8 * 4 + 3 * 12;

mod tag {
    pub(super) const NOTHING: u8 = 0;
    pub(super) const WRITE: u8 = 1;
    pub(super) const ATTRIBUTES: u8 = 2;
    pub(super) const ACLS: u8 = 3;
    pub(super) const MAKE: u8 = 4;
    pub(super) const REMOVE: u8 = 5;
    pub(super) const RENAME: u8 = 6;
    pub(super) const LINK: u8 = 7;
    pub(super) const SETTLED: u8 = 8;
    pub(super) const WRITE_BEHIND_GAP: u8 = 9;
    pub(super) const LENGTHEN: u8 = 10;
    pub(super) const MAKE_KNOWN: u8 = 20;
    pub(super) const MOMENT: u8 = 21;
    pub(super) const TOUCHED: u8 = 22;
}

impl<'a> Change<'a> {
    /// At least as many bytes as [`Change::encode`] will append.
    pub fn encoded_bytes_max(&self) -> usize {
        let data = match self.action {
            Action::Write { data, .. } => data.len(),
            Action::Acls { access, default, .. } => {
                access.map_or(0, <[u8]>::len) + default.map_or(0, <[u8]>::len)
            }
            Action::Make { target, .. } => target.len() + made_bytes(self.made.as_deref()),
            _ => 0,
        };
        change_bytes_max(data)
    }

    /// Appends the change.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let mut out = Out(to);
        out.u8(match self.before {
            None => CHANGE_FORMAT,
            Some(Before { ownership: None, .. }) => FORMAT_WITH_TIMES,
            Some(Before { ownership: Some(_), .. }) => FORMAT_WITH_OWNERSHIP,
        });
        self.encode_action(&mut out);
        out.u8(self.after.len() as u8);
        for (key, attr) in &self.after {
            out.key(key);
            out.attr(attr);
        }
        if let Some(before) = &self.before {
            out.before(before);
        }
        if let (Action::Make { .. }, Some(made)) = (&self.action, &self.made) {
            out.made(made);
        }
    }

    /// Appends the action, its tag first.
    #[inline]
    fn encode_action(&self, out: &mut Out<'_>) {
        match &self.action {
            Action::Nothing => out.u8(tag::NOTHING),
            Action::Write { object, offset, data, gap } => {
                out.u8(if gap.is_some() { tag::WRITE_BEHIND_GAP } else { tag::WRITE });
                out.key(object);
                if let Some(gap) = gap {
                    out.u64(*gap);
                }
                out.u64(*offset);
                out.bytes(data);
            }
            Action::Attributes { object, size, gap } => {
                out.u8(if gap.is_some() { tag::LENGTHEN } else { tag::ATTRIBUTES });
                out.key(object);
                if let Some(gap) = gap {
                    out.u64(*gap);
                }
                out.u8(u8::from(size.is_some()));
                out.u64(size.unwrap_or(0));
            }
            Action::Acls { object, access, default } => {
                out.u8(tag::ACLS);
                out.key(object);
                for acl in [access, default] {
                    out.u8(u8::from(acl.is_some()));
                    out.bytes(acl.unwrap_or(&[]));
                }
            }
            Action::Make { place, object, target } => {
                out.u8(if self.made.is_some() { tag::MAKE_KNOWN } else { tag::MAKE });
                out.place(place);
                out.key(object);
                out.bytes(target);
            }
            Action::Remove { place, unlinked } => {
                out.u8(tag::REMOVE);
                out.place(place);
                out.unlinked(unlinked);
            }
            Action::Rename { from, to, object, is_directory, victim } => {
                out.u8(tag::RENAME);
                out.place(from);
                out.place(to);
                out.key(object);
                out.u8(u8::from(*is_directory));
                out.u8(u8::from(victim.is_some()));
                if let Some(victim) = victim {
                    out.unlinked(victim);
                }
            }
            Action::Link { place, object } => {
                out.u8(tag::LINK);
                out.place(place);
                out.key(object);
            }
            Action::Settled { what, up_to } => {
                out.u8(tag::SETTLED);
                out.settled(what);
                out.u64(*up_to);
            }
            Action::Touched { object, ctime, mtime } => {
                out.u8(tag::TOUCHED);
                out.key(object);
                out.time(ctime);
                out.time(mtime);
            }
            Action::Moment { before } => {
                out.u8(tag::MOMENT);
                out.time(before);
            }
        }
    }

    /// Reads a change from the beginning of a record; what follows it comes beside.
    ///
    /// # Errors
    /// When there is none.
    pub fn decode(record: &'a [u8]) -> Result<(Self, &'a [u8]), NotAChange> {
        let mut from = In(record);
        let format = from.u8()?;
        if !(CHANGE_FORMAT..=FORMAT_WITH_OWNERSHIP).contains(&format) {
            return Err(NotAChange);
        }
        let tag = from.u8()?;
        let action = Action::decode(tag, &mut from)?;
        let count = from.u8()?;
        if usize::from(count) > AFTER_MAX {
            return Err(NotAChange);
        }
        let mut after = SmallVec::new();
        for _ in 0..count {
            after.push((from.key()?, from.attr()?));
        }
        let before = if format == CHANGE_FORMAT {
            None
        } else {
            let (ctime, mtime) = (from.time()?, from.time()?);
            let has_ownership = format == FORMAT_WITH_OWNERSHIP;
            Some(Before {
                ctime,
                mtime,
                ownership: if has_ownership { Some(from.ownership()?) } else { None },
            })
        };
        let made = if tag == tag::MAKE_KNOWN { Some(Box::new(from.made()?)) } else { None };
        Ok((Self { action, after, before, made }, from.0))
    }
}

impl<'a> Action<'a> {
    /// Reads the action that has this tag.
    fn decode(tag: u8, from: &mut In<'a>) -> Result<Self, NotAChange> {
        Ok(match tag {
            tag::NOTHING => Self::Nothing,
            tag @ (tag::WRITE | tag::WRITE_BEHIND_GAP) => Self::Write {
                object: from.key()?,
                gap: if tag == tag::WRITE { None } else { Some(from.u64()?) },
                offset: from.u64()?,
                data: from.bytes(usize::MAX)?,
            },
            tag @ (tag::ATTRIBUTES | tag::LENGTHEN) => {
                let object = from.key()?;
                let gap = if tag == tag::ATTRIBUTES { None } else { Some(from.u64()?) };
                let is_set = from.flag()?;
                let size = from.u64()?;
                // One form for one meaning.
                if !is_set && size != 0 {
                    return Err(NotAChange);
                }
                Self::Attributes { object, size: is_set.then_some(size), gap }
            }
            tag::ACLS => {
                Self::Acls { object: from.key()?, access: from.acl()?, default: from.acl()? }
            }
            tag::MAKE | tag::MAKE_KNOWN => Self::Make {
                place: from.place()?,
                object: from.key()?,
                target: from.bytes(LINK_TARGET_BYTES_MAX)?,
            },
            tag::REMOVE => Self::Remove { place: from.place()?, unlinked: from.unlinked()? },
            tag::RENAME => Self::Rename {
                from: from.place()?,
                to: from.place()?,
                object: from.key()?,
                is_directory: from.flag()?,
                victim: if from.flag()? { Some(from.unlinked()?) } else { None },
            },
            tag::LINK => Self::Link { place: from.place()?, object: from.key()? },
            tag::SETTLED => Self::Settled { what: from.settled()?, up_to: from.u64()? },
            tag::TOUCHED => {
                Self::Touched { object: from.key()?, ctime: from.time()?, mtime: from.time()? }
            }
            tag::MOMENT => Self::Moment { before: from.time()? },
            _ => return Err(NotAChange),
        })
    }
}

/// The most bytes of an encoded change with this much data, target or ACL.
pub fn change_bytes_max(data_bytes: usize) -> usize {
    const KEY: usize = 1 + HANDLE_BYTES_MAX;
    const PLACE: usize = KEY + 4 + NAME_BYTES_MAX;
    const HEAD: usize = 2 + 2 * PLACE + 2 * (KEY + 3) + 32;
    // A record has two names, or one of an object that was made.
    const { assert!(MADE_BYTES + MADE_ACL_BYTES <= PLACE + KEY + MADE_ROOM) };
    HEAD + MADE_ROOM + data_bytes + AFTER_MAX * (KEY + ATTR_BYTES)
}

/// Access lists of so many bytes, of both kinds together, go into the record of any making.
pub const MADE_ACL_BYTES: usize = 512;
const MADE_BYTES: usize = 1 + 12 + 1 + 2 * 4;
const MADE_ROOM: usize = 224;

/// What is beyond what any record of a making has room for.
fn made_bytes(made: Option<&Made>) -> usize {
    let acls = made.and_then(|made| made.acls.as_ref());
    let bytes = acls.map_or(0, |acls| acls.access.len() + acls.default.len());
    bytes.saturating_sub(MADE_ACL_BYTES)
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
