//! The state that events come to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::Event;
use super::codec::ImageError;
use super::event::ClientEvent;
use crate::channel::BackChannelImage;
use crate::ids::{DelegationNumber, LockNumber, OpenNumber};
use crate::owner_sequence::OwnerImage;
use crate::ranges::Ranges;
use crate::set_client::{SetClientRecord, number_of_confirm};
use crate::share::Share;
use crate::under_way::{UnderWay, is_not_before};
use crate::{Channel, ClientId, CreatedSession, DelegationKind, FileKey, SessionId};

/// What events come to: all that a state keeps, without what makes it fast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub(crate) clients: BTreeMap<ClientId, ClientImage>,
    pub(crate) hosts: BTreeMap<ClientId, HostImage>,
    owners: HashMap<OwnerKey, ClientId>,
    sessions: HashMap<SessionId, ClientId>,
    /// The last generation of each place for a client.
    pub(crate) places: BTreeMap<u16, u16>,
    pub(crate) serial_next: u64,
    pub(crate) session_serial_next: u64,
    /// What is above the numbers of all records, and those in the verifiers of `SETCLIENTID`.
    pub(crate) order_next: u64,
}

/// Which records there may be one of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnerKey {
    owner: Arc<[u8]>,
    /// `SETCLIENTID` made it. Its owners are others than those of `EXCHANGE_ID`.
    is_set: bool,
    is_confirmed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientImage {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) verifier: [u8; 8],
    pub(crate) principal: Box<[u8]>,
    pub(crate) implementation: Box<[u8]>,
    pub(crate) address: IpAddr,
    pub(crate) is_confirmed: bool,
    pub(crate) has_completed_reclaim: bool,
    pub(crate) sequence: u32,
    pub(crate) created: Option<CreatedSession>,
    pub(crate) set: Option<SetClientRecord>,
    pub(crate) sessions: BTreeMap<SessionId, SessionImage>,
    pub(crate) opens: OpensImage,
}

/// A host that speaks NLM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostImage {
    pub(crate) name: Arc<[u8]>,
    pub(crate) address: IpAddr,
    pub(crate) state: u32,
    pub(crate) opens: OpensImage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionImage {
    pub(crate) fore: Channel,
    pub(crate) back: Channel,
    pub(crate) slots: BTreeMap<u32, SlotImage>,
    pub(crate) back_channel: BackChannelImage,
    /// By slot: requests that have done something and have not ended.
    pub(crate) under_way: BTreeMap<u32, UnderWay>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotImage {
    pub(crate) sequence: u32,
    pub(crate) digest: u32,
    pub(crate) reply: Option<Arc<[u8]>>,
}

/// The ranges of one lock-owner in one file, by the opens that locked them.
pub(crate) type RangesImage = Ranges<(), OpenNumber>;

/// The opens, locks and delegations of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpensImage {
    pub(crate) opens: BTreeMap<OpenNumber, OpenImage>,
    pub(crate) locks: BTreeMap<LockNumber, LockImage>,
    pub(crate) delegations: BTreeMap<DelegationNumber, DelegationImage>,
    /// By whether it is a lock-owner, and name.
    pub(crate) owners: BTreeMap<(bool, Arc<[u8]>), OwnerImage>,
    /// By file and lock-owner. Neither is ever empty.
    pub(crate) ranges: HashMap<FileKey, BTreeMap<Arc<[u8]>, RangesImage>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenImage {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) file: FileKey,
    pub(crate) seqid: u32,
    pub(crate) share: Share,
    pub(crate) asked: u16,
    /// By this open.
    pub(crate) locks: BTreeSet<LockNumber>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockImage {
    pub(crate) open: OpenNumber,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) seqid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelegationImage {
    pub(crate) file: FileKey,
    pub(crate) kind: DelegationKind,
    pub(crate) handle: Arc<[u8]>,
    pub(crate) is_recalled: bool,
    pub(crate) is_revoked: bool,
}

impl Image {
    /// Adds events to those before.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are no events. Those before the first that is none were added.
    pub fn add(&mut self, mut events: &[u8]) -> Result<(), ImageError> {
        while !events.is_empty() {
            let event = Event::take(&mut events)?;
            self.apply(&event);
        }
        Ok(())
    }

    /// How many clients and hosts there are.
    pub fn clients(&self) -> usize {
        self.clients.len() + self.hosts.len()
    }

    /// How many files' opens, lock stateids and delegations there are of all of them.
    pub fn stateids(&self) -> usize {
        let of =
            |opens: &OpensImage| opens.opens.len() + opens.locks.len() + opens.delegations.len();
        let clients = self.clients.values().map(|client| &client.opens);
        clients.chain(self.hosts.values().map(|host| &host.opens)).map(of).sum()
    }

    /// What is told of a client that is gone, or of an open that is closed, came too late: it means
    /// nothing.
    fn apply(&mut self, event: &Event<'_>) {
        match *event {
            Event::Client(ref client) => self.set_client(client),
            Event::Host { id, .. } if !self.takes_place(id) => {}
            Event::Host { id, name, address, state } => {
                let opens = self.hosts.remove(&id).map(|host| host.opens).unwrap_or_default();
                self.hosts.insert(id, HostImage { name: name.into(), address, state, opens });
            }
            Event::ClientGone(id) => self.remove_client(id),
            Event::ReclaimComplete(id) => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.has_completed_reclaim = true;
                }
            }
            Event::Session { id, client, fore, back } => {
                self.session_serial_next = self.session_serial_next.max(id.serial() + 1);
                if let Some(record) = self.clients.get_mut(&client) {
                    let session = record.sessions.entry(id).or_insert_with(|| SessionImage {
                        fore,
                        back,
                        slots: BTreeMap::new(),
                        back_channel: BackChannelImage::default(),
                        under_way: BTreeMap::new(),
                    });
                    (session.fore, session.back) = (fore, back);
                    self.sessions.insert(id, client);
                }
            }
            Event::SessionGone(id) => {
                let client = self.sessions.remove(&id);
                if let Some(client) = client.and_then(|client| self.clients.get_mut(&client)) {
                    client.sessions.remove(&id);
                }
            }
            Event::Slot { session, slot, sequence, digest, reply } => {
                if let Some(session) = self.session_with_slot(&session, slot) {
                    let reply = reply.map(Arc::from);
                    session.slots.insert(slot, SlotImage { sequence, digest, reply });
                    let before = session.under_way.get(&slot);
                    if before.is_some_and(|before| is_not_before(sequence, before.sequence)) {
                        session.under_way.remove(&slot);
                    }
                }
            }
            Event::UnderWay { session, slot, sequence, digest, is_unstable, done } => {
                if let Some(session) = self.session_with_slot(&session, slot) {
                    let done = done.into();
                    session
                        .under_way
                        .insert(slot, UnderWay { sequence, digest, is_unstable, done });
                }
            }
            Event::BackChannel { session, ref channel } => {
                if let Some(session) = self.session_mut(&session) {
                    session.back_channel = channel.clone();
                }
            }
            Event::Serials { state, session, record } => {
                self.order_next = self.order_next.max(record);
                self.serial_next = self.serial_next.max(state);
                self.session_serial_next = self.session_serial_next.max(session);
            }
            Event::Open { number: OpenNumber(number), client, .. }
            | Event::Lock { number: LockNumber(number), client, .. }
            | Event::Delegation { number: DelegationNumber(number), client, .. } => {
                self.serial_next = self.serial_next.max(crate::ids::serial(number) + 1);
                self.change_opens(client, event);
            }
            Event::OpensAnew(client)
            | Event::OpenGone { client, .. }
            | Event::LockGone { client, .. }
            | Event::DelegationRecalled { client, .. }
            | Event::DelegationRevoked { client, .. }
            | Event::DelegationGone { client, .. }
            | Event::Owner { client, .. }
            | Event::Range { client, .. }
            | Event::RangeGone { client, .. } => self.change_opens(client, event),
        }
    }

    fn session_mut(&mut self, id: &SessionId) -> Option<&mut SessionImage> {
        let client = self.sessions.get(id)?;
        self.clients.get_mut(client)?.sessions.get_mut(id)
    }

    fn session_with_slot(&mut self, id: &SessionId, slot: u32) -> Option<&mut SessionImage> {
        self.session_mut(id).filter(|session| slot < session.fore.requests_max)
    }

    /// Whether a request may have been under way: nothing is known of its end.
    pub fn may_be_under_way(&self, id: &SessionId, slot: u32, sequence: u32) -> bool {
        let client = self.sessions.get(id).and_then(|client| self.clients.get(client));
        let session = client.and_then(|client| client.sessions.get(id));
        session.is_some_and(|session| {
            session.slots.get(&slot).is_none_or(|last| !is_not_before(last.sequence, sequence))
        })
    }

    /// What a request has done that was under way, as it said so itself
    /// ([`crate::SlotInUse::note_done`]).
    pub fn done_of(
        &self,
        id: &SessionId,
        slot: u32,
        (sequence, digest): (u32, u32),
    ) -> Option<&[u8]> {
        let client = self.clients.get(self.sessions.get(id)?)?;
        let known = client.sessions.get(id)?.under_way.get(&slot)?;
        ((known.sequence, known.digest) == (sequence, digest)).then_some(&*known.done)
    }

    /// Whether something that a request has done may not be stable, though it is known that it was done.
    pub fn has_unstable(&self) -> bool {
        let sessions = self.clients.values().flat_map(|client| client.sessions.values());
        sessions.flat_map(|session| session.under_way.values()).any(|request| request.is_unstable)
    }

    fn change_opens(&mut self, client: ClientId, event: &Event<'_>) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.opens.apply(event);
        } else if let Some(host) = self.hosts.get_mut(&client) {
            host.opens.apply(event);
        }
    }

    fn set_client(&mut self, event: &ClientEvent<'_>) {
        let id = event.id;
        if !self.takes_place(id) {
            return;
        }
        if let Some(set) = &event.set {
            let update = set.update.as_ref().map(|(confirm, _)| *confirm);
            for confirm in [Some(set.confirm), update].into_iter().flatten() {
                self.order_next = self.order_next.max(number_of_confirm(confirm) + 1);
            }
        }
        let owner: Arc<[u8]> = event.owner.into();
        let (is_set, is_confirmed) = (event.set.is_some(), event.is_confirmed);
        let key = OwnerKey { owner: Arc::clone(&owner), is_set, is_confirmed };
        let same = self.owners.insert(key.clone(), id);
        if let Some(other) = same.filter(|other| *other != id) {
            self.remove_client(other);
            self.owners.insert(key.clone(), id);
        }
        let before = self.clients.remove(&id);
        if is_confirmed && before.as_ref().is_some_and(|before| !before.is_confirmed) {
            self.owners.remove(&OwnerKey { is_confirmed: false, ..key });
        }
        let has_completed_reclaim =
            before.as_ref().is_some_and(|before| before.has_completed_reclaim);
        let (sessions, opens) =
            before.map(|before| (before.sessions, before.opens)).unwrap_or_default();
        let client = ClientImage {
            owner,
            verifier: event.verifier,
            principal: event.principal.into(),
            implementation: event.implementation.into(),
            address: event.address,
            is_confirmed: event.is_confirmed,
            has_completed_reclaim,
            sequence: event.sequence,
            created: event.created,
            set: event.set.as_deref().cloned(),
            sessions,
            opens,
        };
        self.clients.insert(id, client);
    }

    /// Whether another record had the place of this one after it: what is told of it came too late.
    fn is_before_place(&self, id: ClientId) -> bool {
        let last = self.places.get(&id.index());
        last.is_some_and(|last| last.wrapping_sub(id.generation()).cast_signed() > 0)
    }

    /// Gives a record its place, if no later one had it. The one before it goes.
    fn takes_place(&mut self, id: ClientId) -> bool {
        if self.is_before_place(id) {
            return false;
        }
        let before = self.places.insert(id.index(), id.generation());
        if let Some(before) = before.filter(|before| *before != id.generation()) {
            self.forget(ClientId::new(id.instance(), before, id.index()));
        }
        true
    }

    fn remove_client(&mut self, id: ClientId) {
        if self.is_before_place(id) {
            return;
        }
        self.places.insert(id.index(), id.generation());
        self.forget(id);
    }

    fn forget(&mut self, id: ClientId) {
        self.hosts.remove(&id);
        let Some(client) = self.clients.remove(&id) else { return };
        let ClientImage { owner, is_confirmed, .. } = client;
        let key = OwnerKey { owner, is_set: client.set.is_some(), is_confirmed };
        if self.owners.get(&key) == Some(&id) {
            self.owners.remove(&key);
        }
        for session in client.sessions.keys() {
            self.sessions.remove(session);
        }
    }
}

impl OpensImage {
    /// Whether an open has locked something of its file.
    pub(crate) fn has_ranges(&self, number: OpenNumber, open: &OpenImage) -> bool {
        let owners = self.ranges.get(&open.file).into_iter().flatten();
        owners.into_iter().any(|(_, ranges)| ranges.has_tag(&(), number))
    }

    /// Whether an owner has a lock stateid by an open.
    pub(crate) fn has_stateid(&self, open: OpenNumber, owner: &[u8]) -> bool {
        let locks = self.opens.get(&open).into_iter().flat_map(|open| &open.locks);
        locks.filter_map(|lock| self.locks.get(lock)).any(|lock| *lock.owner == *owner)
    }

    fn apply(&mut self, event: &Event<'_>) {
        match *event {
            Event::Owner { name, ref owner, .. } => {
                self.owners.insert((owner.is_lock, name.into()), owner.as_ref().clone());
            }
            Event::OpensAnew(_) => *self = Self::default(),
            Event::Open { number, owner, file, seqid, share, asked, .. } => {
                let locks = self.opens.remove(&number).map(|open| open.locks).unwrap_or_default();
                let open = OpenImage { owner: owner.into(), file, seqid, share, asked, locks };
                self.opens.insert(number, open);
            }
            Event::OpenGone { number, .. } => {
                let Some(open) = self.opens.remove(&number) else { return };
                for lock in open.locks {
                    self.locks.remove(&lock);
                }
                let Some(owners) = self.ranges.get_mut(&open.file) else { return };
                for ranges in owners.values_mut() {
                    ranges.clear_tag(&(), number);
                }
                self.forget_empty(&open.file);
            }
            Event::Lock { number, open, owner, seqid, .. } => {
                if let Some(record) = self.opens.get_mut(&open) {
                    record.locks.insert(number);
                    self.locks.insert(number, LockImage { open, owner: owner.into(), seqid });
                }
            }
            Event::LockGone { number, .. } => {
                let lock = self.locks.remove(&number);
                if let Some(open) = lock.and_then(|lock| self.opens.get_mut(&lock.open)) {
                    open.locks.remove(&number);
                }
            }
            Event::Delegation { number, file, kind, handle, is_recalled, is_revoked, .. } => {
                let handle = handle.into();
                let told = DelegationImage { file, kind, handle, is_recalled, is_revoked };
                self.delegations.insert(number, told);
            }
            Event::DelegationRecalled { number, .. } => {
                if let Some(delegation) = self.delegations.get_mut(&number) {
                    delegation.is_recalled = true;
                }
            }
            Event::DelegationRevoked { number, .. } => {
                if let Some(delegation) = self.delegations.get_mut(&number) {
                    // It is nothing that could be returned any more.
                    (delegation.is_recalled, delegation.is_revoked) = (false, true);
                }
            }
            Event::DelegationGone { number, .. } => {
                self.delegations.remove(&number);
            }
            Event::Range { open, owner, span, kind, .. } => {
                if let Some(file) = self.opens.get(&open).map(|open| open.file) {
                    let owners = self.ranges.entry(file).or_default();
                    let ranges = owners.entry(owner.into()).or_default();
                    ranges.set(&(), span, kind, open);
                }
            }
            Event::RangeGone { owner, file, span, .. } => {
                let owners = self.ranges.get_mut(&file);
                if let Some(ranges) = owners.and_then(|owners| owners.get_mut(owner)) {
                    ranges.clear(&(), span);
                }
                self.forget_empty(&file);
            }
            _ => {}
        }
    }

    fn forget_empty(&mut self, file: &FileKey) {
        if let Some(owners) = self.ranges.get_mut(file) {
            owners.retain(|_, ranges| !ranges.is_empty());
            if owners.is_empty() {
                self.ranges.remove(file);
            }
        }
    }
}
