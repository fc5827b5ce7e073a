//! The names of things: client ids, session ids, stateids.
//!
//! Each id names its place in a table, so that nothing is searched for, and a generation or serial
//! number, so that an id never names what took that place later. All begin with the instance.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use steadfast_vfs::StorageHandle;

use crate::StateError;

/// Bits of a serial number. At 200,000 opens and locks a second they last for 2.8 years.
const SERIAL_BITS: u32 = 44;
const SERIAL_MASK: u64 = (1 << SERIAL_BITS) - 1;
/// The kind of stateid that stands for an open. Zero is none, so that no stateid equals a special
/// one.
const KIND_OPEN: u64 = 1;
/// The kind of stateid that stands for the locks of one owner by one open.
const KIND_LOCK: u64 = 2;
/// The kind of stateid that stands for a delegation.
const KIND_DELEGATION: u64 = 3;
const KIND_MASK: u64 = 0xf;

/// Names a client: instance (high 32 bits), generation and index of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

impl ClientId {
    pub(crate) fn new(instance: u32, generation: u16, index: u16) -> Self {
        Self(u64::from(instance) << 32 | u64::from(generation) << 16 | u64::from(index))
    }

    pub(crate) fn index(self) -> u16 {
        self.0 as u16
    }

    pub(crate) fn generation(self) -> u16 {
        (self.0 >> u16::BITS) as u16
    }

    pub(crate) fn instance(self) -> u32 {
        (self.0 >> u32::BITS) as u32
    }
}

/// Names a session: instance, place in the table, serial number; big endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    pub(crate) fn new(instance: u32, place: u32, serial: u64) -> Self {
        let number = u128::from(instance) << 96 | u128::from(place) << 64 | u128::from(serial);
        Self(number.to_be_bytes())
    }

    pub(crate) fn place(&self) -> u32 {
        (u128::from_be_bytes(self.0) >> 64) as u32
    }

    pub(crate) fn serial(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }
}

/// Names an open, or the locks of one owner by one open; or is one of the special stateids (RFC 8881 §8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Counts the changes of what `other` names, from 1 on. 0 stands for the latest.
    pub seqid: u32,
    /// Instance, and the number of what is named; big endian.
    pub other: [u8; 12],
}

impl StateId {
    /// No open: the access is judged against what opens deny.
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    /// No open: the read ignores what opens deny.
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    /// The stateid of the operation before, in the same COMPOUND.
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    /// Never valid.
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };

    pub(crate) fn of_open(instance: u32, number: OpenNumber, seqid: u32) -> Self {
        Self::of(instance, number.0, seqid)
    }

    pub(crate) fn of_lock(instance: u32, number: LockNumber, seqid: u32) -> Self {
        Self::of(instance, number.0, seqid)
    }

    /// A delegation never changes: its seqid is always 1.
    pub(crate) fn of_delegation(instance: u32, number: DelegationNumber) -> Self {
        Self::of(instance, number.0, 1)
    }

    fn of(instance: u32, number: u64, seqid: u32) -> Self {
        let other = u128::from(instance) << 64 | u128::from(number);
        let mut id = Self { seqid, other: [0; 12] };
        let bytes = other.to_be_bytes();
        for (to, from) in id.other.iter_mut().zip(bytes.into_iter().skip(4)) {
            *to = from;
        }
        id
    }

    /// The number of the open that it names, if it is a stateid of this instance for an open.
    pub(crate) fn open_number(&self, instance: u32) -> Option<OpenNumber> {
        self.number(instance, KIND_OPEN).map(OpenNumber)
    }

    /// The number of the lock stateid that it is, if it is one of this instance.
    pub(crate) fn lock_number(&self, instance: u32) -> Option<LockNumber> {
        self.number(instance, KIND_LOCK).map(LockNumber)
    }

    /// The number of the delegation that it names, if it is a stateid of this instance for one.
    pub(crate) fn delegation_number(&self, instance: u32) -> Option<DelegationNumber> {
        self.number(instance, KIND_DELEGATION).map(DelegationNumber)
    }

    fn number(&self, instance: u32, kind: u64) -> Option<u64> {
        let (of_instance, number) = self.parts();
        let is_kind = number >> SERIAL_BITS & KIND_MASK == kind;
        (is_kind && of_instance == instance).then_some(number)
    }

    fn parts(&self) -> (u32, u64) {
        let other = self.other.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        ((other >> 64) as u32, other as u64)
    }

    /// Of which instance it is, or says that it is. 0 if it is special.
    pub(crate) fn instance(&self) -> u32 {
        self.parts().0
    }

    /// Instance and client's index of a stateid for an open or for locks.
    pub(crate) fn origin(&self) -> Option<(u32, u16)> {
        let (instance, number) = self.parts();
        let kind = number >> SERIAL_BITS & KIND_MASK;
        let is_known = kind == KIND_OPEN || kind == KIND_LOCK;
        is_known.then_some((instance, (number >> (u64::BITS - u16::BITS)) as u16))
    }

    /// The stateid that CLOSE of minor version 0 tells: what comes after this one.
    #[must_use]
    pub fn closed(self) -> Self {
        Self { seqid: raised_seqid(self.seqid), ..self }
    }
}

/// A stateid names the latest by 0 or by its seqid (RFC 8881 §8.2.2). Seqids wrap.
pub(crate) fn judge_seqid(latest: u32, seqid: u32) -> Result<(), StateError> {
    let ahead = seqid.wrapping_sub(latest) as i32;
    if seqid == 0 || ahead == 0 {
        return Ok(());
    }
    Err(if ahead < 0 { StateError::OldStateId } else { StateError::BadStateId })
}

/// The seqid after `latest`.
pub(crate) fn raised_seqid(latest: u32) -> u32 {
    // Zero means the latest, and is skipped.
    latest.checked_add(1).unwrap_or(1)
}

/// The seqid before one.
pub(crate) fn lowered_seqid(raised: u32) -> u32 {
    match raised {
        0 | 1 => u32::MAX,
        raised => raised - 1,
    }
}

/// Names an open within an instance: index of its client, kind, serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpenNumber(pub(crate) u64);

impl OpenNumber {
    pub(crate) fn new(client: ClientId, serial: u64) -> Self {
        Self(number(client, KIND_OPEN, serial))
    }
}

/// Names a lock stateid within an instance: index of its client, kind, serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockNumber(pub(crate) u64);

impl LockNumber {
    pub(crate) fn new(client: ClientId, serial: u64) -> Self {
        Self(number(client, KIND_LOCK, serial))
    }
}

/// Names a delegation within an instance: index of its client, kind, serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DelegationNumber(pub(crate) u64);

impl DelegationNumber {
    pub(crate) fn new(client: ClientId, serial: u64) -> Self {
        Self(number(client, KIND_DELEGATION, serial))
    }
}

/// The serial number of an [`OpenNumber`], [`LockNumber`] or [`DelegationNumber`].
pub(crate) fn serial(number: u64) -> u64 {
    number & SERIAL_MASK
}

fn number(client: ClientId, kind: u64, serial: u64) -> u64 {
    let client = u64::from(client.index()) << (64 - u16::BITS);
    client | kind << SERIAL_BITS | serial & SERIAL_MASK
}

/// Who makes a request: flavour and identity, as the caller of this crate encodes them. Two are the
/// same if their bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(pub Box<[u8]>);

/// Names a file, whichever share it is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// The caller's number for the file system.
    pub file_system: u64,
    /// The file in it.
    pub object: StorageHandle,
}

bitflags::bitflags! {
    /// What an open is for (RFC 8881 §18.16.1, `OPEN4_SHARE_ACCESS_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ShareAccess: u8 {
        /// Reading.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
    }
}

bitflags::bitflags! {
    /// What an open forbids others, and further opens of its own owner (RFC 8881 §18.16.1, `OPEN4_SHARE_DENY_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct ShareDeny: u8 {
        /// Reading.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
    }
}

/// Hashes an [`OpenNumber`] or [`LockNumber`]. The server makes the numbers, so clients cannot make them collide.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Serial numbers differ in the low bits. The product differs in the high bits too, which
        // the table compares first.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) type ByNumber<T> = HashMap<OpenNumber, T, BuildHasherDefault<NumberHasher>>;

#[cfg(test)]
mod tests {
    use super::{ClientId, LockNumber, OpenNumber, SessionId, StateId};

    #[test]
    fn a_stateid_names_its_open_or_locks_in_its_instance_only() {
        let client = ClientId::new(7, 3, u16::MAX);
        for serial in [0, 1, (1 << 44) - 1] {
            let number = OpenNumber::new(client, serial);
            let id = StateId::of_open(7, number, 1);
            assert_eq!(id.open_number(7), Some(number));
            assert_eq!((id.open_number(8), id.lock_number(7)), (None, None));
            let number = LockNumber::new(client, serial);
            let id = StateId::of_lock(7, number, 1);
            assert_eq!(id.lock_number(7), Some(number));
            assert_eq!((id.lock_number(8), id.open_number(7)), (None, None));
        }
    }

    #[test]
    fn no_special_stateid_names_an_open() {
        for instance in [0, 1, u32::MAX] {
            for id in [StateId::ANONYMOUS, StateId::READ_BYPASS, StateId::CURRENT, StateId::INVALID]
            {
                assert_eq!((id.open_number(instance), id.lock_number(instance)), (None, None));
            }
        }
    }

    #[test]
    fn opens_of_different_clients_have_different_numbers() {
        let one = OpenNumber::new(ClientId::new(1, 1, 1), 5);
        let two = OpenNumber::new(ClientId::new(1, 1, 2), 5);
        assert_ne!(one, two);
    }

    #[test]
    fn a_session_id_names_its_place() {
        let id = SessionId::new(u32::MAX, 65_535, u64::MAX);
        assert_eq!(id.place(), 65_535);
        assert_eq!(ClientId::new(u32::MAX, u16::MAX, 9).index(), 9);
    }
}
