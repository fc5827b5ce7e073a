//! Client records: which clients have state, as a start of the server has to know it that finds no
//! image (RFC 8881 §8.4.3, RFC 7530 §9.6.3.4).
//!
//! A client is recorded before it is told of its first open or lock, and struck off before anybody
//! else is told that he has what it lost. Records of another instance than the server's are the
//! old list: their clients may reclaim until the grace period ends. One event ends it, and with it
//! the old list. So a second crash before that loses nothing.
//!
//! A client that goes on may have lost a delegation, and not have heard so. That is recorded until it
//! says that it has (`FREE_STATEID`): it may not take that one back, which others got in the way of. The
//! file is named by the handle that the client has: numbers of file systems change with the machine's start.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::codec::{ImageError, Put, Take};
use super::lost::{AllLost, Lost};
use crate::ClientId;
use crate::share::Share;

/// A client that has state, or had some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// `SETCLIENTID` made the client (minor version 0): a name space of its own.
    pub is_set: bool,
    /// Whether it has, or may have, all that it had before the last grace period. If not, somebody
    /// else may have got a part of that since, and it may not reclaim after the next loss.
    pub is_complete: bool,
    /// The client owner.
    pub owner: Box<[u8]>,
    /// Its verifier: one life of the client.
    pub verifier: [u8; 8],
    /// Who it is.
    pub principal: Box<[u8]>,
    /// Where it called from, for messages.
    pub address: IpAddr,
}

/// Something is so of the records from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordEvent {
    Recorded(ClientId, ClientRecord),
    /// The client has completed its reclaim.
    Complete(ClientId),
    /// The client has lost all that it had.
    Struck(ClientId),
    /// Clients of other instances than this one may not reclaim any more.
    GraceEnded(u32),
    /// From now on this instance, or the one before it until it has ended, goes on with the records.
    InstanceBegan(u32),
    /// The client's delegation by this handle was revoked; with what else the client has had the file open for since, at
    /// most: what is closed is not noted.
    Revoked(ClientId, Box<[u8]>, Share),
    /// It has heard so of all by this handle.
    Acknowledged(ClientId, Box<[u8]>),
    /// It has heard so of all that it had.
    AllAcknowledged(ClientId),
}

impl RecordEvent {
    fn append(&self, bytes: &mut Vec<u8>) {
        let mut put = Put(bytes);
        match self {
            Self::Recorded(id, record) => {
                put.u8(1);
                put.u64(id.0);
                put.bool(record.is_set);
                put.bool(record.is_complete);
                put.bytes(&record.owner);
                put.array(record.verifier);
                put.bytes(&record.principal);
                put.address(record.address);
            }
            Self::Complete(id) => {
                put.u8(2);
                put.u64(id.0);
            }
            Self::Struck(id) => {
                put.u8(3);
                put.u64(id.0);
            }
            Self::GraceEnded(instance) => {
                put.u8(4);
                put.u32(*instance);
            }
            Self::InstanceBegan(instance) => {
                put.u8(5);
                put.u32(*instance);
            }
            Self::Revoked(id, handle, share) => {
                put.u8(6);
                put.u64(id.0);
                put.bytes(handle);
                put.share(*share);
            }
            Self::Acknowledged(id, handle) => {
                put.u8(7);
                put.u64(id.0);
                put.bytes(handle);
            }
            Self::AllAcknowledged(id) => {
                put.u8(8);
                put.u64(id.0);
            }
        }
    }

    fn take(bytes: &mut &[u8]) -> Result<Self, ImageError> {
        let mut take = Take(bytes);
        let event = match take.u8()? {
            1 => Self::Recorded(
                take.client()?,
                ClientRecord {
                    is_set: take.bool()?,
                    is_complete: take.bool()?,
                    owner: take.bytes()?.into(),
                    verifier: take.array()?,
                    principal: take.bytes()?.into(),
                    address: take.address()?,
                },
            ),
            2 => Self::Complete(take.client()?),
            3 => Self::Struck(take.client()?),
            4 => Self::GraceEnded(take.u32()?),
            5 => Self::InstanceBegan(take.u32()?),
            6 => Self::Revoked(take.client()?, take.bytes()?.into(), take.share()?),
            7 => Self::Acknowledged(take.client()?, take.bytes()?.into()),
            8 => Self::AllAcknowledged(take.client()?),
            _ => return Err(ImageError),
        };
        *bytes = take.0;
        Ok(event)
    }
}

/// What the events of records come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRecords {
    all: BTreeMap<ClientId, ClientRecord>,
    /// Which delegations clients that are recorded have lost, and have not said that they know.
    lost: AllLost,
    /// The last instance that used them; 0 if that was never told.
    instance: u32,
}

impl ClientRecords {
    /// Adds events to those before.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are no events. Those before the first that is none were added.
    pub fn add(&mut self, mut events: &[u8]) -> Result<(), ImageError> {
        while !events.is_empty() {
            self.apply(RecordEvent::take(&mut events)?);
        }
        Ok(())
    }

    /// Appends events that come to these records.
    pub fn append(&self, events: &mut Vec<u8>) {
        if self.instance > 0 {
            Self::append_instance(self.instance, events);
        }
        for (id, record) in &self.all {
            RecordEvent::Recorded(*id, record.clone()).append(events);
        }
        for (id, lost) in self.lost.iter() {
            match lost {
                Lost::These(all) => {
                    for (handle, share) in all {
                        RecordEvent::Revoked(id, handle.clone(), *share).append(events);
                    }
                }
                Lost::Many => RecordEvent::Revoked(id, [].into(), Share::NONE).append(events),
            }
        }
    }

    /// Appends the event that this instance uses the records from now on. It has to be stable before
    /// anything else tells that the instance has begun: a file that tells of an older one is out of date.
    pub fn append_instance(instance: u32, events: &mut Vec<u8>) {
        RecordEvent::InstanceBegan(instance).append(events);
    }

    /// The last instance that used them; 0 if no version did that said so.
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// The records, by client id.
    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &ClientRecord)> {
        self.all.iter().map(|(id, record)| (*id, record))
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<&ClientRecord> {
        self.all.get(&id)
    }

    /// Which delegations clients have lost, and do not know it yet as far as they have said.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (ClientId, &Lost)> {
        self.lost.iter()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.lost == AllLost::default()
    }

    /// What is told of a client that is not recorded means nothing.
    fn apply(&mut self, event: RecordEvent) {
        match event {
            RecordEvent::Recorded(id, record) => {
                self.all.insert(id, record);
            }
            RecordEvent::Complete(id) => {
                if let Some(record) = self.all.get_mut(&id) {
                    record.is_complete = true;
                }
            }
            RecordEvent::Struck(id) => {
                self.all.remove(&id);
                self.lost.forget(id);
            }
            RecordEvent::GraceEnded(instance) => {
                self.all.retain(|id, _| id.instance() == instance);
                self.lost.retain(|id| id.instance() == instance);
            }
            RecordEvent::InstanceBegan(instance) => self.instance = instance,
            RecordEvent::Revoked(id, handle, share) => {
                if self.all.contains_key(&id) {
                    self.lost.add(id, handle, share);
                }
            }
            RecordEvent::Acknowledged(id, handle) => self.lost.remove(id, &handle),
            RecordEvent::AllAcknowledged(id) => self.lost.forget(id),
        }
    }
}

/// Events of records that nobody has taken yet. Nothing is in it until [`RecordJournal::begin`].
#[derive(Default)]
pub(crate) struct RecordJournal {
    is_kept: AtomicBool,
    events: Mutex<Vec<u8>>,
    /// How many events were noted. It rises under the lock of `events`.
    noted: AtomicU64,
    /// How many of these are stable.
    kept: AtomicU64,
}

impl RecordJournal {
    /// From now on events are noted, since somebody takes them.
    pub(crate) fn begin(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Notes an event.
    pub(crate) fn note(&self, event: &RecordEvent) {
        if self.is_kept.load(Ordering::Relaxed) {
            let mut events = self.events.lock();
            event.append(&mut events);
            self.noted.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn has_unkept(&self) -> bool {
        self.kept.load(Ordering::Acquire) < self.noted.load(Ordering::Acquire)
    }

    /// Whether the first so many events are stable, or nobody keeps any.
    pub(crate) fn has_kept(&self, count: u64) -> bool {
        self.kept.load(Ordering::Acquire) >= count
    }

    pub(crate) fn noted(&self) -> u64 {
        self.noted.load(Ordering::Acquire)
    }

    /// Moves all events behind those in `taken`; how many were ever noted by then.
    pub(crate) fn take(&self, taken: &mut Vec<u8>) -> u64 {
        let mut events = self.events.lock();
        taken.append(&mut events);
        self.noted.load(Ordering::Relaxed)
    }

    pub(crate) fn are_kept(&self, count: u64) {
        self.kept.fetch_max(count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::net::{IpAddr, Ipv4Addr};

    use super::{ClientRecord, ClientRecords, RecordEvent};
    use crate::share::Share;
    use crate::{ClientId, ShareAccess, ShareDeny};

    const CLIENT: ClientId = ClientId(0x0102_0304_0506_0708);

    fn record(is_complete: bool) -> ClientRecord {
        ClientRecord {
            is_set: true,
            is_complete,
            owner: b"owner".as_slice().into(),
            verifier: *b"verifier",
            principal: b"who".as_slice().into(),
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
        }
    }

    /// As earlier builds wrote them: a changed line here is a new format, and needs a new number of the event.
    #[test]
    fn events_are_these_bytes() {
        let share = Share { access: ShareAccess::all(), deny: ShareDeny::WRITE };
        let id = "0807060504030201";
        let recorded = "0100050000006f776e657276657269666965720300000077686f\
                        0100000000000000000000ffffc0000207";
        let handle: Box<[u8]> = b"file".as_slice().into();
        for (event, expected) in [
            (RecordEvent::Recorded(CLIENT, record(false)), ["01", id, recorded]),
            (RecordEvent::Complete(CLIENT), ["02", id, ""]),
            (RecordEvent::Struck(CLIENT), ["03", id, ""]),
            (RecordEvent::GraceEnded(7), ["04", "07000000", ""]),
            (RecordEvent::InstanceBegan(7), ["05", "07000000", ""]),
            (
                RecordEvent::Revoked(CLIENT, handle.clone(), share),
                ["06", id, "0400000066696c650302"],
            ),
            (RecordEvent::Acknowledged(CLIENT, handle), ["07", id, "0400000066696c65"]),
            (RecordEvent::AllAcknowledged(CLIENT), ["08", id, ""]),
        ] {
            let mut bytes = Vec::new();
            event.append(&mut bytes);
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            assert_eq!(hex, expected.concat());
            let mut rest = &bytes[..];
            assert_eq!(RecordEvent::take(&mut rest).as_ref(), Ok(&event));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn what_was_lost_is_known_until_its_client_says_so_or_is_struck_off() {
        let handle = |number: u8| -> Box<[u8]> { [number].into() };
        let lost = |number| RecordEvent::Revoked(CLIENT, handle(number), Share::NONE);
        let mut records = ClientRecords::default();
        records.apply(lost(1));
        assert_eq!(records.lost().count(), 0, "of nobody");
        let bare = {
            records.apply(RecordEvent::Recorded(CLIENT, record(true)));
            records.clone()
        };
        let ends = [
            vec![1, 2].into_iter().map(|n| RecordEvent::Acknowledged(CLIENT, handle(n))).collect(),
            vec![RecordEvent::AllAcknowledged(CLIENT)],
            vec![RecordEvent::Struck(CLIENT), RecordEvent::Recorded(CLIENT, record(true))],
            vec![RecordEvent::GraceEnded(1), RecordEvent::Recorded(CLIENT, record(true))],
        ];
        for end in ends {
            let mut records = bare.clone();
            records.apply(lost(1));
            records.apply(lost(2));
            assert_ne!(records, bare);
            assert_eq!(ClientRecords::read_file(&records.file()).as_ref(), Ok(&records));
            for event in end {
                records.apply(event);
            }
            assert_eq!(records, bare);
        }
    }
}
