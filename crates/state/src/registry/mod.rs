//! The client records: which owners are known, by which ids, with which sessions.

mod hosts;
pub(crate) mod recorded;
mod set_client;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::client::{Kind, Recorded};
use crate::exchange::{Case, Confirmed, judge};
use crate::image::{ClientEvent, Event, Journal};
use crate::session::slot_bytes_max;
use crate::set_client::SetClientRecord;
use crate::settings::OWNER_BYTES_MAX;
use crate::{
    Channel, Client, ClientId, CreateSession, CreatedSession, ExchangeId, ExchangedId, Principal,
    Protocol, Session, Settings, StateError,
};

/// What is kept of an implementation's name, in bytes.
const IMPLEMENTATION_BYTES_MAX: usize = 256;
/// Clients, whatever the limits say: the index of a record has 16 bits. Besides, there may be
/// 4,096 hosts that speak NLM, and a quarter as many unconfirmed records.
const CLIENTS_MAX: u32 = 28_000;
/// Unconfirmed records that there may be, whatever the limits say.
const UNCONFIRMED_MIN: usize = 16;

/// A client, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// Its id.
    pub id: ClientId,
    /// The client owner.
    pub owner: Box<[u8]>,
    /// Where the `EXCHANGE_ID` came from that made or updated its record.
    pub address: IpAddr,
    /// Its implementation, as it says.
    pub implementation: Box<[u8]>,
    /// Whether it ever made a session.
    pub is_confirmed: bool,
    /// How long ago it was last heard, in ms.
    pub since_renewal_ms: u64,
    /// Whether its lease has expired: it keeps its state until somebody else needs it.
    pub is_courteous: bool,
    /// Its sessions.
    pub sessions: usize,
    /// Its opens.
    pub opens: usize,
    /// Ranges that it has locked.
    pub locks: usize,
    /// Delegations that it has, with those that were revoked.
    pub delegations: usize,
    /// What it speaks.
    pub protocol: Protocol,
    /// Whether it may reclaim what it has if the server loses it.
    pub is_recorded: bool,
    /// Whether it may still reclaim what the server has lost.
    pub is_reclaiming: bool,
}

/// A client's record.
pub(crate) struct Record {
    pub(crate) client: Arc<Client>,
    owner: Arc<[u8]>,
    verifier: [u8; 8],
    principal: Principal,
    implementation: Box<[u8]>,
    address: IpAddr,
    /// Its place in the order of unconfirmed records; `None` once it is confirmed.
    unconfirmed: Option<u64>,
    /// Sequence id and result of the last `CREATE_SESSION` that succeeded.
    sequence: u32,
    created: Option<CreatedSession>,
    pub(crate) sessions: Vec<Arc<Session>>,
    /// What `SETCLIENTID` said, if it made this record. Then it has no sessions.
    set: Option<Box<SetClientRecord>>,
}

/// What a registry needs to make a record again.
pub(crate) struct RestoredRecord {
    pub(crate) id: ClientId,
    pub(crate) owner: Arc<[u8]>,
    pub(crate) verifier: [u8; 8],
    pub(crate) principal: Principal,
    pub(crate) implementation: Box<[u8]>,
    pub(crate) address: IpAddr,
    pub(crate) is_confirmed: bool,
    pub(crate) sequence: u32,
    pub(crate) created: Option<CreatedSession>,
    pub(crate) set: Option<SetClientRecord>,
}

/// What a request says that makes a record.
struct Asked<'a> {
    owner: &'a [u8],
    verifier: [u8; 8],
    principal: &'a Principal,
    implementation: &'a [u8],
    address: IpAddr,
    set: Option<Box<SetClientRecord>>,
}

impl<'a> From<&ExchangeId<'a>> for Asked<'a> {
    fn from(request: &ExchangeId<'a>) -> Self {
        let ExchangeId { owner, verifier, principal, implementation, address, .. } = *request;
        Self { owner, verifier, principal, implementation, address, set: None }
    }
}

impl Record {
    fn is_confirmed(&self) -> bool {
        self.unconfirmed.is_none()
    }

    /// A lease does not expire while a request is under way (RFC 8881 §8.3).
    fn is_silent(&self, now_ms: u64, silent_ms_max: u64) -> bool {
        self.client.silent_ms(now_ms) > silent_ms_max
            && !self.sessions.iter().any(|session| session.is_busy())
    }

    fn is_expired(&self, now_ms: u64, settings: &Settings) -> bool {
        self.is_silent(now_ms, settings.lease_ms)
    }

    fn has_state(&self) -> bool {
        !self.sessions.is_empty() || self.client.opens.lock().has_some()
    }

    fn exchanged(&self) -> ExchangedId {
        ExchangedId {
            client: self.client.id(),
            sequence: self.sequence.wrapping_add(1),
            is_confirmed: self.is_confirmed(),
        }
    }

    fn describe(&mut self, request: &ExchangeId<'_>) {
        self.address = request.address;
        self.implementation = shortened(request.implementation);
    }

    /// The sequence id of the next `CREATE_SESSION`.
    #[cfg(test)]
    pub(crate) fn sequence_next(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }

    fn event(&self) -> Event<'_> {
        Event::Client(ClientEvent {
            id: self.client.id(),
            owner: &self.owner,
            verifier: self.verifier,
            principal: &self.principal.0,
            implementation: &self.implementation,
            address: self.address,
            is_confirmed: self.is_confirmed(),
            sequence: self.sequence,
            created: self.created,
            set: self.set.as_deref().map(std::borrow::Cow::Borrowed),
        })
    }

    fn report(&self, now_ms: u64, settings: &Settings) -> ClientReport {
        let (opens, locks, delegations) = {
            let opens = self.client.opens.lock();
            let of_host = self.client.host().map_or(0, |host| host.ranges());
            let locks = opens.locks.ranges() + of_host;
            (opens.count(), locks, opens.delegations.len())
        };
        ClientReport {
            id: self.client.id(),
            owner: self.owner.as_ref().into(),
            address: self.address,
            implementation: self.implementation.clone(),
            is_confirmed: self.is_confirmed(),
            since_renewal_ms: self.client.silent_ms(now_ms),
            is_courteous: self.is_confirmed() && self.is_expired(now_ms, settings),
            sessions: self.sessions.len(),
            opens,
            locks,
            delegations,
            protocol: Protocol::of(self.client.kind(), self.set.is_some()),
            is_recorded: self.client.recorded() != Recorded::Not,
            // The grace period is asked without the registry's lock.
            is_reclaiming: false,
        }
    }
}

/// What became of a client that should expire.
pub(crate) enum Expired {
    /// It is alive.
    Not,
    /// It has no record any more. Another thread may still be ending its state.
    Before,
    /// It has no record any more: the caller ends its state.
    Now(Box<Record>),
}

/// A place for a record. Records that follow each other in one place differ by generation.
#[derive(Default)]
struct Place {
    generation: u16,
    record: Option<Record>,
}

/// The records of one owner.
#[derive(Clone, Copy, Default)]
struct OfOwner {
    confirmed: Option<u16>,
    unconfirmed: Option<u16>,
}

/// Owners' names, and the records of each.
type Owners = HashMap<Arc<[u8]>, OfOwner>;

/// All client records. Records that leave are given to the caller, who ends their state without the
/// registry's lock.
pub(crate) struct Registry {
    instance: u32,
    clock_ms: Arc<AtomicU64>,
    journal: Arc<Journal>,
    confirmed_max: usize,
    unconfirmed_max: usize,
    places: Vec<Place>,
    /// Free places, the one that is free for longest first: so a client id comes again as late as
    /// possible, after 65,536 times as many clients as there are places.
    free: VecDeque<u16>,
    owners: Owners,
    /// Those that `SETCLIENTID` named: a name space of its own.
    set_owners: Owners,
    /// Hosts that speak NLM, by address and name: apart from the owners, whose names may be the same.
    hosts: BTreeMap<(IpAddr, Arc<[u8]>), u16>,
    /// Unconfirmed records in the order in which they were made.
    unconfirmed: BTreeMap<u64, u16>,
    order_next: u64,
    /// Bytes that sessions have reserved for their slots.
    slot_bytes: u64,
}

impl Registry {
    pub(crate) fn new(
        settings: &Settings,
        clock_ms: Arc<AtomicU64>,
        journal: Arc<Journal>,
    ) -> Self {
        let confirmed_max = settings.limits.clients_max.clamp(1, CLIENTS_MAX);
        let confirmed_max = usize::try_from(confirmed_max).unwrap_or(usize::MAX);
        Self {
            instance: settings.instance,
            clock_ms,
            journal,
            confirmed_max,
            unconfirmed_max: (confirmed_max / 4).max(UNCONFIRMED_MIN),
            places: Vec::new(),
            free: VecDeque::new(),
            owners: HashMap::new(),
            set_owners: HashMap::new(),
            hosts: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            order_next: 0,
            slot_bytes: 0,
        }
    }

    /// Records that there are at most.
    pub(crate) fn records_max(&self) -> usize {
        // The last index is nobody's.
        (self.confirmed_max + self.unconfirmed_max + self.hosts_max()).min(usize::from(u16::MAX))
    }

    pub(crate) fn find(&self, id: ClientId) -> Option<&Record> {
        self.at(id.index()).filter(|record| record.client.id() == id)
    }

    /// Notes all records with their sessions; whose they are.
    pub(crate) fn note_all(&self) -> Vec<Arc<Client>> {
        for (place, index) in self.places.iter().zip(0..) {
            let Some(record) = &place.record else {
                let gone = ClientId::new(self.instance, place.generation, index);
                self.journal.note(&Event::ClientGone(gone));
                continue;
            };
            if let Some(host) = record.client.host() {
                host.note(&record.client);
                continue;
            }
            self.journal.note(&record.event());
            if record.client.has_completed_reclaim() {
                self.journal.note(&Event::ReclaimComplete(record.client.id()));
            }
            for session in &record.sessions {
                session.note();
            }
        }
        self.records().map(|record| Arc::clone(&record.client)).collect()
    }

    /// What is above the numbers of all records.
    pub(crate) fn order_next(&self) -> u64 {
        self.order_next
    }

    /// The places that there were, and their generations; and what [`Registry::order_next`] was.
    pub(crate) fn restore_places(&mut self, generations: &BTreeMap<u16, u16>, order_next: u64) {
        self.order_next = order_next;
        let count = generations.last_key_value().map_or(0, |(index, _)| usize::from(*index) + 1);
        self.places.resize_with(count, Place::default);
        for (index, generation) in generations {
            if let Some(place) = self.places.get_mut(usize::from(*index)) {
                place.generation = *generation;
            }
        }
    }

    /// All records have been restored.
    pub(crate) fn end_restoring(&mut self) {
        let places = self.places.iter().zip(0..);
        self.free =
            places.filter(|(place, _)| place.record.is_none()).map(|(_, index)| index).collect();
    }

    /// Makes a record again; `None` if another one has its place or owner.
    pub(crate) fn restore(&mut self, now_ms: u64, record: RestoredRecord) -> Option<Arc<Client>> {
        let RestoredRecord { id, owner, verifier, principal, .. } = record;
        let index = id.index();
        let is_set = record.set.is_some();
        let owners = if is_set { &mut self.set_owners } else { &mut self.owners };
        let of_owner = owners.entry(Arc::clone(&owner)).or_default();
        let (of_owner, unconfirmed) = if record.is_confirmed {
            (&mut of_owner.confirmed, None)
        } else {
            (&mut of_owner.unconfirmed, Some(self.order_next))
        };
        let place = self.places.get_mut(usize::from(index))?;
        if of_owner.is_some() || place.record.is_some() || place.generation != id.generation() {
            return None;
        }
        *of_owner = Some(index);
        let clock_ms = Arc::clone(&self.clock_ms);
        let journal = Arc::clone(&self.journal);
        let client = Arc::new(Client::new(id, Kind::Nfs4, now_ms, clock_ms, journal));
        place.record = Some(Record {
            client: Arc::clone(&client),
            owner,
            verifier,
            principal,
            implementation: record.implementation,
            address: record.address,
            unconfirmed,
            sequence: record.sequence,
            created: record.created,
            sessions: Vec::new(),
            set: record.set.map(Box::new),
        });
        if let Some(order) = unconfirmed {
            self.unconfirmed.insert(order, index);
            self.order_next += 1;
        }
        Some(client)
    }

    /// Adds a session to the record of its client.
    pub(crate) fn restore_session(&mut self, session: Arc<Session>) {
        self.slot_bytes = self.slot_bytes.saturating_add(session.slot_bytes_max());
        if let Some(record) = self.find_mut(session.client().id()) {
            record.sessions.push(session);
        }
    }

    fn note(&self, id: ClientId) {
        if let Some(record) = self.find(id) {
            self.journal.note(&record.event());
        }
    }

    fn find_mut(&mut self, id: ClientId) -> Option<&mut Record> {
        let record = self.places.get_mut(usize::from(id.index()))?.record.as_mut();
        record.filter(|record| record.client.id() == id)
    }

    /// A record that may have sessions.
    fn find_with_sessions(&mut self, id: ClientId) -> Option<&mut Record> {
        self.find_mut(id).filter(|record| record.set.is_none() && record.client.host().is_none())
    }

    fn owners_mut(&mut self, is_set: bool) -> &mut Owners {
        if is_set { &mut self.set_owners } else { &mut self.owners }
    }

    fn at(&self, index: u16) -> Option<&Record> {
        self.places.get(usize::from(index))?.record.as_ref()
    }

    /// `EXCHANGE_ID`.
    pub(crate) fn exchange(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        request: &ExchangeId<'_>,
        left: &mut Vec<Record>,
    ) -> Result<ExchangedId, StateError> {
        if request.owner.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        let of_owner = self.owners.get(request.owner).copied().unwrap_or_default();
        let record = of_owner.confirmed.and_then(|index| self.at(index));
        let compared = record.map(|record| Confirmed {
            has_same_verifier: record.verifier == request.verifier,
            has_same_principal: record.principal == *request.principal,
            is_in_use: record.has_state() && !record.is_expired(now_ms, settings),
        });
        let confirmed = record.map(|record| record.client.id());
        match (judge(request.is_update, compared)?, confirmed) {
            (Case::Again, Some(id)) => self.renewed(now_ms, id, None),
            (Case::Update, Some(id)) => self.renewed(now_ms, id, Some(request)),
            (Case::Instead, Some(id)) => {
                left.extend(self.remove(id));
                self.add(now_ms, request.into(), left).map(|record| record.exchanged())
            }
            _ => self.add(now_ms, request.into(), left).map(|record| record.exchanged()),
        }
    }

    fn renewed(
        &mut self,
        now_ms: u64,
        id: ClientId,
        update: Option<&ExchangeId<'_>>,
    ) -> Result<ExchangedId, StateError> {
        let record = self.find_mut(id).ok_or(StateError::NoEntry)?;
        record.client.renew(now_ms);
        let Some(request) = update else { return Ok(record.exchanged()) };
        record.describe(request);
        let exchanged = record.exchanged();
        self.note(id);
        Ok(exchanged)
    }

    /// Adds an unconfirmed record in the place of the owner's unconfirmed one.
    fn add(
        &mut self,
        now_ms: u64,
        asked: Asked<'_>,
        left: &mut Vec<Record>,
    ) -> Result<&mut Record, StateError> {
        let is_set = asked.set.is_some();
        let of_owner = self.owners_mut(is_set).get(asked.owner).copied().unwrap_or_default();
        left.extend(self.remove_at(of_owner.unconfirmed));
        // Strangers who only send `EXCHANGE_ID` push out each other, and nobody else.
        if self.unconfirmed.len() >= self.unconfirmed_max {
            left.extend(self.oldest_unconfirmed().and_then(|id| self.remove(id)));
        }
        let index = self.free_place().ok_or(StateError::TryLater)?;
        let owners = self.owners_mut(is_set);
        let owner = match owners.get_key_value(asked.owner) {
            Some((owner, _)) => Arc::clone(owner),
            None => asked.owner.into(),
        };
        owners.entry(Arc::clone(&owner)).or_default().unconfirmed = Some(index);
        self.unconfirmed.insert(self.order_next, index);
        let order = self.order_next;
        self.order_next += 1;
        let place = self.places.get_mut(usize::from(index)).ok_or(StateError::TryLater)?;
        place.generation = place.generation.wrapping_add(1);
        let id = ClientId::new(self.instance, place.generation, index);
        let record = place.record.insert(Record {
            client: Arc::new(Client::new(
                id,
                Kind::Nfs4,
                now_ms,
                Arc::clone(&self.clock_ms),
                Arc::clone(&self.journal),
            )),
            owner,
            verifier: asked.verifier,
            principal: asked.principal.clone(),
            implementation: shortened(asked.implementation),
            address: asked.address,
            unconfirmed: Some(order),
            sequence: 0,
            created: None,
            sessions: Vec::new(),
            set: asked.set,
        });
        self.journal.note(&record.event());
        Ok(record)
    }

    fn oldest_unconfirmed(&self) -> Option<ClientId> {
        let (_, index) = self.unconfirmed.first_key_value()?;
        self.at(*index).map(|record| record.client.id())
    }

    fn longest_courteous(
        &self,
        now_ms: u64,
        settings: &Settings,
        is_wanted: impl Fn(&Record) -> bool,
    ) -> Option<ClientId> {
        self.records()
            .filter(|record| record.is_confirmed() && record.is_expired(now_ms, settings))
            .filter(|record| is_wanted(record))
            .min_by_key(|record| record.client.renewed_ms())
            .map(|record| record.client.id())
    }

    /// Removes the courteous client with opens that was silent for longest.
    pub(crate) fn remove_courteous_with_opens(
        &mut self,
        now_ms: u64,
        settings: &Settings,
    ) -> Option<Record> {
        let has_opens = |record: &Record| record.client.opens.lock().has_some();
        let id = self.longest_courteous(now_ms, settings, has_opens)?;
        self.remove(id)
    }

    fn free_place(&mut self) -> Option<u16> {
        // New places first: the longer a place rests, the later its ids come again.
        if self.places.len() < self.records_max() {
            let index = u16::try_from(self.places.len()).ok()?;
            self.places.push(Place::default());
            return Some(index);
        }
        self.free.pop_front()
    }

    fn confirmed_count(&self) -> usize {
        let used = self.places.len().saturating_sub(self.free.len());
        used.saturating_sub(self.unconfirmed.len() + self.hosts.len())
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.places.iter().filter_map(|place| place.record.as_ref())
    }

    fn remove_at(&mut self, index: Option<u16>) -> Option<Record> {
        let id = self.at(index?).map(|record| record.client.id())?;
        self.remove(id)
    }

    /// Takes a record out. Its sessions and opens are the caller's to end.
    pub(crate) fn remove(&mut self, id: ClientId) -> Option<Record> {
        self.find(id)?;
        let index = id.index();
        let record = self.places.get_mut(usize::from(index))?.record.take()?;
        self.free.push_back(index);
        if record.client.host().is_some() {
            self.hosts.remove(&(record.address, Arc::clone(&record.owner)));
        }
        if let Some(order) = record.unconfirmed {
            self.unconfirmed.remove(&order);
        }
        let owners = self.owners_mut(record.set.is_some());
        if let Some(of_owner) = owners.get_mut(&record.owner) {
            let others = |kept: Option<u16>| kept.filter(|kept| *kept != index);
            of_owner.confirmed = others(of_owner.confirmed);
            of_owner.unconfirmed = others(of_owner.unconfirmed);
            if of_owner.confirmed.is_none() && of_owner.unconfirmed.is_none() {
                owners.remove(&record.owner);
            }
        }
        for session in &record.sessions {
            self.slot_bytes = self.slot_bytes.saturating_sub(session.slot_bytes_max());
        }
        self.journal.note(&Event::ClientGone(id));
        self.strike(&record);
        Some(record)
    }

    /// `CREATE_SESSION` (RFC 8881 §18.36.4). `make` adds a session with the channels given; `None`
    /// if there is no room.
    ///
    /// A request that fails has not used its sequence id. So a stranger who names the client's id
    /// does not put the client's own requests out of order.
    pub(crate) fn create_session(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        request: &CreateSession<'_>,
        left: &mut Vec<Record>,
        make: impl FnOnce(Arc<Client>, Channel, Channel) -> Option<Arc<Session>>,
    ) -> Result<CreatedSession, StateError> {
        let record = self.find_with_sessions(request.client).ok_or(StateError::StaleClientId)?;
        if request.sequence == record.sequence {
            let created = record.created.ok_or(StateError::SequenceMisordered)?;
            record.client.renew(now_ms);
            return Ok(created);
        }
        if request.sequence != record.sequence.wrapping_add(1) {
            return Err(StateError::SequenceMisordered);
        }
        if !record.is_confirmed() && record.principal != *request.principal {
            return Err(StateError::ClientInUse);
        }
        if request.fore.requests_max == 0 {
            return Err(StateError::TooSmall);
        }
        let sessions_max = settings.limits.sessions_a_client_max;
        if record.sessions.len() >= usize::try_from(sessions_max).unwrap_or(usize::MAX) {
            return Err(StateError::TryLater);
        }
        let client = Arc::clone(&record.client);
        let fore = self.room(now_ms, settings, request, left)?;
        let back = clamped(request.back, settings);
        let session = make(client, fore, back).ok_or(StateError::TryLater)?;

        let (sequence, flags) = (request.sequence, request.flags);
        let created = CreatedSession { session: *session.id(), sequence, flags, fore, back };
        self.slot_bytes = self.slot_bytes.saturating_add(session.slot_bytes_max());
        let record = self.find_mut(request.client).ok_or(StateError::StaleClientId)?;
        record.client.renew(now_ms);
        record.sequence = sequence;
        record.created = Some(created);
        session.note();
        record.sessions.push(session);
        left.extend(self.confirm(request.client));
        self.note(request.client);
        Ok(created)
    }

    /// The fore channel that there is room for. Courteous clients make room: the one that was
    /// silent for longest first.
    fn room(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        request: &CreateSession<'_>,
        left: &mut Vec<Record>,
    ) -> Result<Channel, StateError> {
        loop {
            let record = self.find(request.client).ok_or(StateError::StaleClientId)?;
            // A restarted client takes the place of its record before, and its bytes.
            let before = self.owners.get(&record.owner).and_then(|of_owner| of_owner.confirmed);
            let before = before.filter(|_| !record.is_confirmed());
            let before_bytes = before.and_then(|index| self.at(index)).map_or(0, |record| {
                record.sessions.iter().map(|session| session.slot_bytes_max()).sum()
            });
            let reserved = self.slot_bytes.saturating_sub(before_bytes);
            let free = settings.limits.slot_bytes_max.saturating_sub(reserved);
            let has_place = record.is_confirmed()
                || before.is_some()
                || self.confirmed_count() < self.confirmed_max;
            if let Some(fore) = granted(request.fore, settings, free).filter(|_| has_place) {
                return Ok(fore);
            }
            let is_other = |record: &Record| record.client.id() != request.client;
            let leaving = self.longest_courteous(now_ms, settings, is_other);
            left.push(leaving.and_then(|id| self.remove(id)).ok_or(StateError::TryLater)?);
        }
    }

    /// Confirms a record. The record that its owner had before leaves.
    fn confirm(&mut self, id: ClientId) -> Option<Record> {
        let record = self.find_mut(id)?;
        let order = record.unconfirmed.take()?;
        let (owner, is_set) = (Arc::clone(&record.owner), record.set.is_some());
        self.unconfirmed.remove(&order);
        let of_owner = self.owners_mut(is_set).get_mut(&owner)?;
        of_owner.unconfirmed = None;
        let before = of_owner.confirmed.replace(id.index());
        self.remove_at(before)
    }

    /// Takes a session from its client.
    pub(crate) fn remove_session(&mut self, session: &Session) -> Result<(), StateError> {
        let record = self.find_mut(session.client().id()).ok_or(StateError::BadSession)?;
        let place = record.sessions.iter().position(|other| other.id() == session.id());
        record.sessions.swap_remove(place.ok_or(StateError::BadSession)?);
        self.slot_bytes = self.slot_bytes.saturating_sub(session.slot_bytes_max());
        self.journal.note(&Event::SessionGone(*session.id()));
        Ok(())
    }

    /// `DESTROY_CLIENTID`.
    pub(crate) fn destroy(&mut self, id: ClientId) -> Result<Option<Record>, StateError> {
        let record = self.find_with_sessions(id).ok_or(StateError::StaleClientId)?;
        if record.has_state() {
            return Err(StateError::ClientIdBusy);
        }
        Ok(self.remove(id))
    }

    /// Removes a client, if its lease has expired.
    pub(crate) fn expire(&mut self, now_ms: u64, settings: &Settings, id: ClientId) -> Expired {
        match self.find(id).map(|record| record.is_expired(now_ms, settings)) {
            None => Expired::Before,
            Some(false) => Expired::Not,
            Some(true) => {
                self.remove(id).map_or(Expired::Before, |record| Expired::Now(Box::new(record)))
            }
        }
    }

    /// Removes unconfirmed records after a lease, and clients that were courteous for so long.
    pub(crate) fn sweep(
        &mut self,
        now_ms: u64,
        settings: &Settings,
        courtesy_ms: u64,
    ) -> Vec<Record> {
        let silent_ms_max = |record: &Record| {
            settings.lease_ms.saturating_add(if record.is_confirmed() { courtesy_ms } else { 0 })
        };
        let leaving: Vec<ClientId> = self
            .records()
            .filter(|record| record.is_silent(now_ms, silent_ms_max(record)))
            .map(|record| record.client.id())
            .collect();
        leaving.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    pub(crate) fn reports(&self, now_ms: u64, settings: &Settings) -> Vec<ClientReport> {
        self.records().map(|record| record.report(now_ms, settings)).collect()
    }
}

fn shortened(implementation: &[u8]) -> Box<[u8]> {
    implementation.get(..IMPLEMENTATION_BYTES_MAX).unwrap_or(implementation).into()
}

fn clamped(channel: Channel, settings: &Settings) -> Channel {
    let limits = &settings.limits;
    Channel {
        requests_max: channel.requests_max.min(limits.slots_max),
        response_bytes_cached_max: channel.response_bytes_cached_max.min(limits.reply_bytes_max),
        ..channel
    }
}

/// The fore channel that a session gets. Once half of the bytes for slots are reserved, it gets so small a part of
/// the rest that there is a session for each client that the server takes.
fn granted(channel: Channel, settings: &Settings, slot_bytes_free: u64) -> Option<Channel> {
    // The rest shrinks by this part with each session: it halves in so many sessions as 0.7 times this.
    const PARTS_MIN: u64 = 16;
    let mut fore = clamped(channel, settings);
    let is_scarce = slot_bytes_free < settings.limits.slot_bytes_max / 2;
    let parts = PARTS_MIN.max(u64::from(settings.limits.clients_max) / 4);
    let part = if is_scarce { parts } else { 1 };
    let slots_free = slot_bytes_free / slot_bytes_max(&fore);
    // One slot is a session, too.
    let slots = (slots_free / part).max(1).min(slots_free).min(u64::from(fore.requests_max));
    fore.requests_max = u32::try_from(slots).ok()?;
    (fore.requests_max > 0).then_some(fore)
}
