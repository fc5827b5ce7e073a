//! Calls whose change of names, or of attributes with a guard, has begun: what is written down just before the change, so that a start
//! after a kill can tell whether the change was done.
//!
//! A mark is written under the locks that order the directories, when the names and objects were looked
//! at and nothing was changed yet. While these locks are held no other call changes those names.

use steadfast_vfs::{
    Attr, CALL_KEY_BYTES_MAX, CallName, FileKind, SetAttr, SetTime, StorageHandle, Time,
};

use crate::change::{Action, Change};
use crate::file_system::FileSystemIdentity;

/// Attributes that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskedAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
}

impl From<&SetAttr> for AskedAttributes {
    fn from(set: &SetAttr) -> Self {
        let time = |set| match set {
            SetTime::To(time) => Some(time),
            SetTime::Keep | SetTime::ServerTime => None,
        };
        Self {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: time(set.atime),
            mtime: time(set.mtime),
        }
    }
}

/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;

impl AskedAttributes {
    /// Whether an object has them. Of the mode only the bits count that no mask takes away.
    pub fn are_of(&self, attr: &Attr) -> bool {
        self.mode.is_none_or(|mode| mode & SET_ID & !attr.mode == 0)
            && self.uid.is_none_or(|uid| uid == attr.uid)
            && self.gid.is_none_or(|gid| gid == attr.gid)
            && self.size.is_none_or(|size| size == attr.size)
            && self.atime.is_none_or(|time| time == attr.atime)
            && self.mtime.is_none_or(|time| time == attr.mtime)
    }
}

/// An object that is about to be made, or whose attributes are about to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeingMade {
    /// Its kind.
    pub kind: FileKind,
    /// Its owner before attributes are set; another one may be asked for.
    pub uid: u32,
    /// What is set, of a new object after it was made. A new file has it when it gets its name.
    pub asked: AskedAttributes,
}

/// A call that is about to change names or attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunCall<'a> {
    /// The call.
    pub call: CallName<'a>,
    /// Where.
    pub file_system: FileSystemIdentity,
    /// When. Files may get times that are a clock tick older.
    pub at: Time,
    /// The directory as the client named it: what is found from there has a handle like it.
    pub dir: StorageHandle,
    /// The number of the file system that clients see.
    pub fsid: u64,
    /// Of [`Action::Make`] and [`Action::Touched`].
    pub made: Option<BeingMade>,
    /// [`Action::Make`] (its object is not known yet, the directory stands for it), [`Action::Remove`],
    /// [`Action::Rename`] or [`Action::Link`]. Attributes that are set only if the object has a certain
    /// ctime are [`Action::Touched`], with its times before.
    pub action: Action<'a>,
}

/// Where a mark was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunMark(pub u64);

/// Keeps marks over a kill of the process.
pub trait BegunCalls {
    /// Writes down that a call is about to change something, with the present time for [`BegunCall::at`].
    /// `None` if that cannot be done: its repetition after a kill is then executed again.
    fn begin(&self, call: &BegunCall<'_>) -> Option<BegunMark>;

    /// The call has changed nothing. To be called by the thread that began it, before it ends.
    fn take_back(&self, mark: BegunMark);
}

const MODE: u8 = 1;
const UID: u8 = 2;
const GID: u8 = 4;
const ATIME: u8 = 8;
const MTIME: u8 = 16;
const MADE: u8 = 32;
const SIZE: u8 = 64;

/// Kinds by their numbers.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::BlockDevice,
    FileKind::CharacterDevice,
    FileKind::Symlink,
    FileKind::Socket,
    FileKind::Fifo,
];

impl<'a> BegunCall<'a> {
    /// Appends it. A key that is too long is cut off: no call has it then.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let asked = self.made.map(|made| made.asked).unwrap_or_default();
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        to.push(
            flag(asked.mode.is_some(), MODE)
                | flag(asked.uid.is_some(), UID)
                | flag(asked.gid.is_some(), GID)
                | flag(asked.atime.is_some(), ATIME)
                | flag(asked.mtime.is_some(), MTIME)
                | flag(asked.size.is_some(), SIZE)
                | flag(self.made.is_some(), MADE),
        );
        let key = self.call.key.get(..CALL_KEY_BYTES_MAX).unwrap_or(self.call.key);
        put_bytes(to, key);
        to.extend_from_slice(&self.call.share.to_le_bytes());
        to.extend_from_slice(&self.file_system.uuid);
        to.extend_from_slice(&self.file_system.kind.to_le_bytes());
        put_time(to, &self.at);
        put_bytes(to, self.dir.as_bytes());
        to.extend_from_slice(&self.fsid.to_le_bytes());
        if let Some(made) = &self.made {
            let kind = KINDS.iter().position(|kind| *kind == made.kind).unwrap_or(0);
            to.push(kind as u8);
            to.extend_from_slice(&made.uid.to_le_bytes());
        }
        for number in [asked.mode, asked.uid, asked.gid].into_iter().flatten() {
            to.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(size) = asked.size {
            to.extend_from_slice(&size.to_le_bytes());
        }
        for time in [asked.atime, asked.mtime].iter().flatten() {
            put_time(to, time);
        }
        Change::new(self.action).encode(to);
    }

    /// Takes it from any bytes; `None` if it is not there.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (flags, mut rest) = bytes.split_first()?;
        let from = &mut rest;
        let has = |flag| flags & flag != 0;
        if flags & !(MODE | UID | GID | SIZE | ATIME | MTIME | MADE) != 0
            || (!has(MADE) && *flags != 0)
        {
            return None;
        }
        let key = take_bytes(from, CALL_KEY_BYTES_MAX)?;
        let share = u64::from_le_bytes(take(from)?);
        let file_system =
            FileSystemIdentity { uuid: take(from)?, kind: u32::from_le_bytes(take(from)?) };
        let at = take_time(from)?;
        let dir = StorageHandle::new(take_bytes(from, steadfast_vfs::HANDLE_BYTES_MAX)?)?;
        let fsid = u64::from_le_bytes(take(from)?);
        let made = if has(MADE) {
            let [kind] = take(from)?;
            let kind = *KINDS.get(usize::from(kind))?;
            let uid = u32::from_le_bytes(take(from)?);
            let mut number = |flag| -> Option<Option<u32>> {
                Some(if has(flag) { Some(u32::from_le_bytes(take(from)?)) } else { None })
            };
            let (mode, owner, gid) = (number(MODE)?, number(UID)?, number(GID)?);
            let size = if has(SIZE) { Some(u64::from_le_bytes(take(from)?)) } else { None };
            let mut time = |flag| -> Option<Option<Time>> {
                Some(if has(flag) { Some(take_time(from)?) } else { None })
            };
            let (atime, mtime) = (time(ATIME)?, time(MTIME)?);
            let asked = AskedAttributes { mode, uid: owner, gid, size, atime, mtime };
            Some(BeingMade { kind, uid, asked })
        } else {
            None
        };
        let (change, _) = Change::decode(from).ok()?;
        let has_attributes = matches!(change.action, Action::Make { .. } | Action::Touched { .. });
        let is_of_names = matches!(
            change.action,
            Action::Remove { .. } | Action::Rename { .. } | Action::Link { .. }
        );
        if !(has_attributes && made.is_some() || is_of_names && made.is_none()) {
            return None;
        }
        let call = CallName { key, share };
        Some(Self { call, file_system, at, dir, fsid, made, action: change.action })
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.push(bytes.len() as u8);
    to.extend_from_slice(bytes);
}

fn put_time(to: &mut Vec<u8>, time: &Time) {
    to.extend_from_slice(&time.seconds.to_le_bytes());
    to.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

fn take_bytes<'a>(from: &mut &'a [u8], max: usize) -> Option<&'a [u8]> {
    let [length] = take(from)?;
    let length = usize::from(length);
    let (taken, rest) = from.split_at_checked(length).filter(|_| length <= max)?;
    *from = rest;
    Some(taken)
}

fn take_time(from: &mut &[u8]) -> Option<Time> {
    let (seconds, nanoseconds) = (take(from)?, take(from)?);
    Some(Time {
        seconds: i64::from_le_bytes(seconds),
        nanoseconds: u32::from_le_bytes(nanoseconds),
    })
}

#[cfg(test)]
mod tests {
    //! Unit and property ring.
    use proptest::prelude::*;
    use steadfast_vfs::DeviceNumber;

    use super::*;
    use crate::{ObjectKey, Place, Unlinked};

    fn handle() -> impl Strategy<Value = StorageHandle> {
        prop::collection::vec(any::<u8>(), 1..=steadfast_vfs::HANDLE_BYTES_MAX)
            .prop_map(|bytes| StorageHandle::new(&bytes).expect("short enough"))
    }

    fn time() -> impl Strategy<Value = Time> {
        (any::<i64>(), 0..1_000_000_000_u32)
            .prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
    }

    fn asked() -> impl Strategy<Value = AskedAttributes> {
        let time = || prop::option::of(time());
        let numbers = any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>();
        (numbers, time(), time()).prop_map(|((mode, uid, gid, size), atime, mtime)| {
            AskedAttributes { mode, uid, gid, size, atime, mtime }
        })
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(
            key in prop::collection::vec(any::<u8>(), 0..=CALL_KEY_BYTES_MAX),
            (share, fsid, uuid, kind) in any::<(u64, u64, [u8; 16], u32)>(),
            at in time(),
            (dir, object) in (handle(), handle()),
            names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=255), 2),
            target in prop::collection::vec(any::<u8>(), 0..300),
            (uid, made_kind) in (any::<u32>(), 0..KINDS.len()),
            asked in asked(),
            which in 0..5,
        ) {
            let place = |name| Place { dir: ObjectKey(dir), name };
            let (one, other) = (place(&names[0][..]), place(&names[1][..]));
            let object = ObjectKey(object);
            let unlinked = Unlinked { object, is_directory: true, is_left: false };
            let action = match which {
                0 => Action::Make { place: one, object, target: &target },
                1 => Action::Remove { place: one, unlinked },
                4 => Action::Touched { object, ctime: at, mtime: Time::default() },
                2 => Action::Link { place: one, object },
                _ => Action::Rename {
                    from: one,
                    to: other,
                    object,
                    is_directory: false,
                    victim: Some(unlinked),
                },
            };
            let made = BeingMade { kind: KINDS[made_kind], uid, asked };
            let begun = BegunCall {
                call: CallName { key: &key, share },
                file_system: FileSystemIdentity { uuid, kind },
                at,
                dir,
                fsid,
                made: matches!(which, 0 | 4).then_some(made),
                action,
            };
            let mut bytes = Vec::new();
            begun.encode(&mut bytes);
            prop_assert_eq!(BegunCall::decode(&bytes), Some(begun));
            for end in 0..bytes.len() {
                prop_assert_eq!(BegunCall::decode(&bytes[..end]), None);
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = BegunCall::decode(&bytes);
        }
    }

    #[test]
    fn what_was_asked_for_is_compared_and_nothing_else() {
        let time = |seconds| Time { seconds, nanoseconds: 1 };
        let attr = Attr {
            kind: FileKind::Directory,
            mode: 0o2750,
            links: 2,
            uid: 5,
            gid: 6,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: 1,
            atime: time(7),
            mtime: time(8),
            ctime: time(9),
        };
        let nothing = AskedAttributes::default();
        // A default list may take permissions away.
        let mode = |mode| AskedAttributes { mode: Some(mode), ..nothing };
        for asked in [
            nothing,
            mode(0o2777),
            AskedAttributes { uid: Some(5), gid: Some(6), ..nothing },
            AskedAttributes { atime: Some(time(7)), mtime: Some(time(8)), ..nothing },
        ] {
            assert!(asked.are_of(&attr), "{asked:?}");
        }
        for asked in [
            mode(0o4750),
            AskedAttributes { uid: Some(6), ..nothing },
            AskedAttributes { gid: Some(5), ..nothing },
            AskedAttributes { atime: Some(time(8)), ..nothing },
            AskedAttributes { mtime: Some(time(7)), ..nothing },
            AskedAttributes { size: Some(1), ..nothing },
        ] {
            assert!(!asked.are_of(&attr), "{asked:?}");
        }
        let set = SetAttr {
            uid: Some(1),
            atime: SetTime::To(time(2)),
            mtime: SetTime::ServerTime,
            ..SetAttr::default()
        };
        let expected = AskedAttributes { uid: Some(1), atime: Some(time(2)), ..nothing };
        assert_eq!(AskedAttributes::from(&set), expected);
    }
}
