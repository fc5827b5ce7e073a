//! How far a run has come, as bytes: for the process after this one, should this one be killed, which goes
//! on with the run when its client sends it again ([`steadfast_state::SlotInUse::note_done`]).
//!
//! A run says so together with each change of the state, and before each change of a file system that follows
//! another one, or something that depends on what is about to be changed. Linux sends no COMPOUND that needs the latter.
//! Whether a change that has begun was done, its begun mark tells.
//!
//! Numbers are little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | operations that have ended |
//! | 4 | where the next one begins, in bytes from the first; `u32::MAX`: the results were too long to be kept |
//! | | current place, saved place |
//! | | what the next operation is to tell, if it has but to be finished: length, bytes ([`Told`]) |
//! | rest | results of the operations behind SEQUENCE |

use steadfast_shares::ShareId;
use steadfast_state::{Image, StateId, UNDER_WAY_BYTES};
use steadfast_vfs::{HANDLE_BYTES_MAX, StorageHandle};
use steadfast_wire::nfs4::Op4;

use super::place::{Object, Place};
use crate::call_mark::{Named, Request, named, request};
use crate::pseudo::NodeKey;

const NOT_KEPT: usize = u32::MAX as usize;
/// What [`UnderWay::without_results`] has at most: three numbers, and twice a handle with its share, and a
/// stateid.
const BYTES_MAX: usize = 3 * 4 + 2 * (1 + 8 + 1 + HANDLE_BYTES_MAX + 1 + 16);
const _: () = assert!(BYTES_MAX <= UNDER_WAY_BYTES as usize);
const NOTHING: u8 = 0;
const NODE: u8 = 1;
const STORED: u8 = 2;

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnderWay<'a> {
    /// Operations that have ended.
    pub(crate) done: u32,
    /// Where the next one begins, in bytes from the first.
    pub(crate) at: usize,
    pub(crate) current: Place,
    pub(crate) saved: Place,
    /// What the next operation is to tell behind its status; empty if it has not begun.
    pub(crate) told: &'a [u8],
    /// Results of the operations behind SEQUENCE.
    pub(crate) results: &'a [u8],
}

/// What an OPEN is to tell that is granted and has something else to do.
///
/// | bytes | what |
/// |---|---|
/// | 4 | 0: no stateid has such a seqid, with which it began in earlier versions |
/// | 4 | what it has added to the open ([`steadfast_state::Granted::added`]) |
/// | | the place of the file |
/// | | the delegation: 1 and its stateid, or 0 |
/// | rest | its result behind the status |
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// What it has added, and the file with the stateid. `None` if an earlier version has noted it: the file is
    /// the current place then.
    pub(crate) granted: Option<(u32, Place)>,
    /// What was delegated with it.
    pub(crate) delegation: Option<StateId>,
    pub(crate) result: &'a [u8],
}

impl<'a> Told<'a> {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.result.len() + 160);
        if let Some((added, file)) = self.granted {
            to.extend_from_slice(&0_u32.to_le_bytes());
            to.extend_from_slice(&added.to_le_bytes());
            put_place(&mut to, &file);
            put_stateid(&mut to, self.delegation);
        }
        to.extend_from_slice(self.result);
        to
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Self {
        Self::decode_granted(bytes).unwrap_or(Self {
            granted: None,
            delegation: None,
            result: bytes,
        })
    }

    fn decode_granted(mut bytes: &'a [u8]) -> Option<Self> {
        let from = &mut bytes;
        let mark = u32::from_le_bytes(take(from)?);
        let added = u32::from_le_bytes(take(from)?);
        let file = take_place(from)?;
        let delegation = take_stateid(from)?;
        (mark == 0).then_some(Self { granted: Some((added, file)), delegation, result: bytes })
    }
}

/// Whether an operation has the same result if it is executed again after what follows it.
pub(crate) fn is_told_alike(operation: Op4) -> bool {
    matches!(
        operation,
        Op4::Sequence
            | Op4::PutFh
            | Op4::PutRootFh
            | Op4::PutPubFh
            | Op4::SaveFh
            | Op4::RestoreFh
            | Op4::GetFh
    )
}

/// Whether an operation changes a file system.
pub(crate) fn changes_storage(operation: Op4) -> bool {
    has_mark(operation)
        || matches!(
            operation,
            Op4::SetAttr
                | Op4::Write
                | Op4::SetXattr
                | Op4::RemoveXattr
                | Op4::Allocate
                | Op4::Deallocate
                | Op4::Copy
                | Op4::Clone
        )
}

/// Whether it is written down that an operation begins: executed again it would fail by what it did.
pub(crate) fn has_mark(operation: Op4) -> bool {
    matches!(operation, Op4::Create | Op4::Open | Op4::Remove | Op4::Rename | Op4::Link)
}

impl<'a> UnderWay<'a> {
    /// Of a run whose results were too long: it does not go on.
    pub(crate) fn without_results(self) -> Self {
        Self { at: NOT_KEPT, told: &[], results: &[], ..self }
    }

    /// Whether its results were kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.at != NOT_KEPT
    }

    /// Whether a run had come beyond an operation, or does not go on, by the bytes that say so.
    fn is_behind(bytes: &'a [u8], operation: u32) -> bool {
        Self::decode(bytes).is_some_and(|known| known.done > operation || !known.is_kept())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(self.results.len() + self.told.len() + 160);
        to.extend_from_slice(&self.done.to_le_bytes());
        to.extend_from_slice(&(self.at as u32).to_le_bytes());
        put_place(&mut to, &self.current);
        put_place(&mut to, &self.saved);
        to.extend_from_slice(&(self.told.len() as u32).to_le_bytes());
        to.extend_from_slice(self.told);
        to.extend_from_slice(self.results);
        to
    }

    /// Takes it from any bytes; `None` if it is not there.
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Option<Self> {
        let from = &mut bytes;
        let (done, at) = (u32::from_le_bytes(take(from)?), u32::from_le_bytes(take(from)?));
        let (current, saved) = (take_place(from)?, take_place(from)?);
        let length = u32::from_le_bytes(take(from)?) as usize;
        let (told, results) = from.split_at_checked(length)?;
        Some(Self { done, at: at as usize, current, saved, told, results })
    }
}

/// Whether nothing is known of the end of the operation that a mark's name is of; what is known of calls of
/// sessions is in the image of the state.
pub fn may_be_under_way(name: &[u8], image: Option<&Image>) -> bool {
    let Some(Named::Operation { call, operation }) = named(name) else { return true };
    let Some(Request { session, slot, sequence, digest }) = request(call) else { return true };
    image.is_some_and(|image| {
        let has_ended = |done| UnderWay::is_behind(done, operation);
        image.may_be_under_way(&session, slot, sequence)
            && !image.done_of(&session, slot, (sequence, digest)).is_some_and(has_ended)
    })
}

fn put_place(to: &mut Vec<u8>, place: &Place) {
    match &place.object {
        None => to.push(NOTHING),
        Some(Object::Node(key)) => {
            to.push(NODE);
            to.extend_from_slice(&key.0);
        }
        Some(Object::Stored(share, handle)) => {
            to.push(STORED);
            to.extend_from_slice(&share.0.to_le_bytes());
            let handle = handle.as_bytes();
            to.push(handle.len() as u8);
            to.extend_from_slice(handle);
        }
    }
    put_stateid(to, place.stateid);
}

fn put_stateid(to: &mut Vec<u8>, id: Option<StateId>) {
    to.push(u8::from(id.is_some()));
    if let Some(StateId { seqid, other }) = id {
        to.extend_from_slice(&seqid.to_le_bytes());
        to.extend_from_slice(&other);
    }
}

fn take_place(from: &mut &[u8]) -> Option<Place> {
    let object = match take(from)? {
        [NOTHING] => None,
        [NODE] => Some(Object::Node(NodeKey(take(from)?))),
        [STORED] => {
            let share = ShareId(u64::from_le_bytes(take(from)?));
            let [length] = take(from)?;
            let (handle, rest) = from.split_at_checked(usize::from(length))?;
            *from = rest;
            Some(Object::Stored(share, StorageHandle::new(handle)?))
        }
        _ => return None,
    };
    let stateid = take_stateid(from)?;
    Some(Place { object, stateid })
}

#[expect(clippy::option_option, reason = "the outer one is whether the bytes are whole")]
fn take_stateid(from: &mut &[u8]) -> Option<Option<StateId>> {
    match take(from)? {
        [0] => Some(None),
        [1] => Some(Some(StateId { seqid: u32::from_le_bytes(take(from)?), other: take(from)? })),
        _ => None,
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    //! Property ring.
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = Place> {
        let handle = prop::collection::vec(any::<u8>(), 1..=HANDLE_BYTES_MAX);
        let object = prop_oneof![
            Just(None),
            any::<[u8; 16]>().prop_map(|key| Some(Object::Node(NodeKey(key)))),
            (any::<u64>(), handle).prop_map(|(share, handle)| {
                let handle = StorageHandle::new(&handle).expect("short enough");
                Some(Object::Stored(ShareId(share), handle))
            }),
        ];
        let id = (any::<u32>(), any::<[u8; 12]>());
        let stateid = prop::option::of(id.prop_map(|(seqid, other)| StateId { seqid, other }));
        (object, stateid).prop_map(|(object, stateid)| Place { object, stateid })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            (done, at) in (any::<u32>(), 0..u32::MAX),
            (current, saved) in (place(), place()),
            told in prop::collection::vec(any::<u8>(), 0..40),
            results in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let (at, told, results) = (at as usize, &*told, &*results);
            let bytes = UnderWay { done, at, current, saved, told, results }.encode();
            let read = UnderWay::decode(&bytes).expect("it is whole");
            prop_assert_eq!((read.done, read.at), (done, at));
            prop_assert_eq!((read.told, read.results), (told, results));
            for (read, wrote) in [(read.current, current), (read.saved, saved)] {
                prop_assert_eq!((read.object, read.stateid), (wrote.object, wrote.stateid));
            }
            prop_assert!(read.is_kept());
            let short = UnderWay { done, at, current, saved, told, results }.without_results().encode();
            prop_assert!(short.len() <= BYTES_MAX && !UnderWay::decode(&short).expect("whole").is_kept());
            prop_assert!(UnderWay::is_behind(&short, u32::MAX) && !UnderWay::is_behind(&bytes, done));
            let head = bytes.len() - results.len();
            for cut in 0..head {
                prop_assert!(UnderWay::decode(&bytes[..cut]).is_none());
            }
        }

        #[test]
        fn what_is_told_is_read(
            granted in prop::option::of((any::<u32>(), place())),
            seqid in 1..u32::MAX,
            rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let result = [&seqid.to_be_bytes()[..], &rest].concat();
            let delegation = granted.as_ref().and_then(|(_, place)| place.stateid);
            let bytes = Told { granted, delegation, result: &result }.encode();
            let read = Told::decode(&bytes);
            prop_assert_eq!(read.delegation, delegation);
            prop_assert_eq!(read.result, result);
            let parts = |granted: Option<(u32, Place)>| {
                granted.map(|(added, file)| (added, file.object, file.stateid))
            };
            prop_assert_eq!(parts(read.granted), parts(granted));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = UnderWay::decode(&bytes);
            let _ = Told::decode(&bytes);
        }
    }
}
