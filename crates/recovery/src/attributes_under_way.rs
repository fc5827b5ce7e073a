//! Attributes that are about to be set in several steps, written down so that a process that is killed
//! between two of them does not leave an object by halves.

use smallvec::smallvec;
use steadfast_vfs::Attr;

use crate::change::{Action, Change, ObjectKey};

/// An object whose attributes are about to be set: in several steps, or with its data cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributesUnderWay {
    /// The object.
    pub object: ObjectKey,
    /// Its attributes before the first step.
    pub before: Attr,
    /// Owner, group, mode and times as they are to be.
    pub wanted: Attr,
    /// The size that is set, if one is.
    pub size: Option<u64>,
    /// Whether nothing of it will be refused: then it may be brought to its end without asking.
    pub is_permitted: bool,
    /// Whether it was found, after a kill, that the file was cut. What was cut off cannot be brought
    /// back.
    pub was_cut: bool,
}

const IS_PERMITTED: u8 = 1;
const WAS_CUT: u8 = 2;

impl AttributesUnderWay {
    /// Whether data is cut off.
    pub fn cuts(&self) -> bool {
        self.size.is_some_and(|size| size < self.before.size)
    }

    /// Appends it.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let permitted = if self.is_permitted { IS_PERMITTED } else { 0 };
        to.push(permitted | if self.was_cut { WAS_CUT } else { 0 });
        for attr in [self.before, self.wanted] {
            let (object, size) = (self.object, self.size);
            let action = Action::Attributes { object, size, gap: None };
            Change { action, after: smallvec![(object, attr)], before: None, made: None }
                .encode(to);
        }
    }

    /// Takes it from any bytes; `None` if it is not there.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let (before, rest) = Change::decode(rest).ok()?;
        let (wanted, _) = Change::decode(rest).ok()?;
        let Action::Attributes { object, size, .. } = before.action else { return None };
        Some(Self {
            object,
            before: *before.attr_of(&object)?,
            wanted: *wanted.attr_of(&object)?,
            size,
            is_permitted: flags & IS_PERMITTED != 0,
            was_cut: flags & WAS_CUT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use steadfast_vfs::{DeviceNumber, FileKind, StorageHandle, Time};

    use super::*;

    fn attr(uid: u32, mode: u32, size: u64) -> Attr {
        let time = Time { seconds: 5, nanoseconds: 6 };
        Attr {
            kind: FileKind::Regular,
            mode,
            links: 1,
            uid,
            gid: 3,
            size,
            used: 5,
            device: DeviceNumber::default(),
            fsid: 6,
            fileid: 7,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(
            handle in proptest::collection::vec(any::<u8>(), 1..=44),
            uid: u32,
            wanted_uid: u32,
            length: u64,
            size: Option<u64>,
            is_permitted: bool,
            was_cut: bool,
        ) {
            let object = ObjectKey(StorageHandle::new(&handle).expect("short enough"));
            let under_way = AttributesUnderWay {
                object,
                before: attr(uid, 0o640, length),
                wanted: attr(wanted_uid, 0o4755, length),
                size,
                is_permitted,
                was_cut,
            };
            let mut bytes = Vec::new();
            under_way.encode(&mut bytes);
            prop_assert_eq!(AttributesUnderWay::decode(&bytes), Some(under_way));
            prop_assert_eq!(under_way.cuts(), size.is_some_and(|size| size < length));
            for end in 0..bytes.len() {
                prop_assert_eq!(AttributesUnderWay::decode(&bytes[..end]), None);
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = AttributesUnderWay::decode(&bytes);
        }
    }
}
