//! The grace period: after the server has lost what clients had opened and locked, clients that are
//! recorded take it again, and nobody else gets anything (RFC 8881 §8.4.2, RFC 7530 §9.6.2).
//!
//! There is one grace period for clients of all protocols. It lasts a lease, or two while somebody
//! reclaims. It ends before that once
//! each recorded client from minor version 1 on has sent `RECLAIM_COMPLETE`, if there are no others:
//! clients of minor version 0, and hosts that speak NLM, do not say when they have all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::client::Recorded;
use crate::image::lost::{Lost, Reclaimable};
use crate::image::{ClientRecords, RecordEvent};
use crate::registry::recorded::Identity;
use crate::share::Share;
use crate::{Client, ClientId, ShareAccess, ShareDeny, State, StateError};

/// Which owner: whether `SETCLIENTID` named it, and its name.
type Key = (bool, Box<[u8]>);
/// A life of an owner: its principal, and its verifier.
type Life = (Box<[u8]>, [u8; 8]);

/// For how long the grace period lasts still when somebody reclaims, in ms; but for twice its length at
/// most: clients reclaim one by one.
const NEXT_RECLAIM_MS: u64 = 10_000;

/// Who may reclaim.
#[derive(Default)]
struct Former {
    /// The lives of each owner that have had state.
    lives: HashMap<Key, Vec<Life>>,
    /// Those who have not said yet that they have all, with their principals: nobody else says so for
    /// them.
    reclaiming: HashSet<(Key, Box<[u8]>)>,
    /// Delegations that they had lost before, and may not know it.
    lost: HashMap<(Key, Life), Lost>,
}

/// The grace period.
#[derive(Default)]
pub(crate) struct Grace {
    /// 0 if there is none.
    until_ms: AtomicU64,
    /// When it ends though somebody reclaims still.
    latest_ms: AtomicU64,
    /// Whether hosts that speak NLM have lost locks.
    has_hosts: AtomicBool,
    /// Whether clients who may reclaim had lost delegations before.
    has_lost: AtomicBool,
    former: Mutex<Former>,
}

impl Grace {
    fn begin(&self, now_ms: u64, length_ms: u64) {
        // Zero means that there is none.
        let until_ms = now_ms.saturating_add(length_ms).max(1);
        self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
        self.latest_ms.fetch_max(until_ms.saturating_add(length_ms), Ordering::Relaxed);
    }

    /// Somebody reclaims, and has time for the next one too.
    fn go_on(&self, now_ms: u64) {
        let until_ms = now_ms.saturating_add(NEXT_RECLAIM_MS);
        self.until_ms
            .fetch_max(until_ms.min(self.latest_ms.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

impl State {
    /// Hosts that speak NLM have lost their locks: for so long only what was held before may be
    /// locked.
    pub fn begin_grace(&self, now_ms: u64, length_ms: u64) {
        self.grace.has_hosts.store(true, Ordering::Relaxed);
        self.grace.begin(now_ms, length_ms);
    }

    /// Whether only what was held before the server lost it may be opened and locked.
    pub fn is_in_grace(&self, now_ms: u64) -> bool {
        match self.grace.until_ms.load(Ordering::Acquire) {
            0 => false,
            until_ms if now_ms < until_ms => true,
            _ => {
                self.end_grace_if(|grace, _| grace.until_ms.load(Ordering::Relaxed) <= now_ms);
                false
            }
        }
    }

    /// Whether hosts that speak NLM may take again what they had.
    pub fn hosts_may_reclaim(&self, now_ms: u64) -> bool {
        self.is_in_grace(now_ms) && self.grace.has_hosts.load(Ordering::Relaxed)
    }

    /// Clients that may reclaim and have not said yet that they have all.
    pub fn reclaiming_clients(&self) -> usize {
        self.grace.former.lock().reclaiming.len()
    }

    /// Whether a client may take again what it had before the server lost it.
    ///
    /// # Errors
    /// [`StateError::NoGrace`] if the grace period is over, if the client is not recorded, or if it
    /// has said that it has all.
    pub fn may_reclaim(&self, now_ms: u64, client: &Client) -> Result<(), StateError> {
        if !self.is_in_grace(now_ms) || client.has_completed_reclaim() {
            return Err(StateError::NoGrace);
        }
        let is_former = client.is_former().map_or_else(|| self.look_up_former(client), Ok)?;
        if is_former { Ok(()) } else { Err(StateError::NoGrace) }
    }

    /// Whether a client had state before the last loss, by its record. It stays so.
    fn look_up_former(&self, client: &Client) -> Result<bool, StateError> {
        let identity = self.registry.lock().identity(client.id());
        let Identity { is_set, owner, verifier, principal } =
            identity.ok_or(StateError::NoGrace)?;
        let former = self.grace.former.lock();
        if self.grace.until_ms.load(Ordering::Relaxed) == 0 {
            return Err(StateError::NoGrace);
        }
        let lives = former.lives.get(&(is_set, owner)).map_or(&[][..], Vec::as_slice);
        // Another life of the client has no locks of before; another user never had them.
        let is_former = lives.iter().any(|life| life.0 == principal && life.1 == verifier);
        client.note_former(is_former);
        Ok(is_former)
    }

    /// What a client that may reclaim may take back of an open of before the loss, by a handle; and of the delegation, if
    /// it claims one (RFC 8881 §8.4.3). What the server knew of is the client's, but for delegations that it has revoked.
    ///
    /// # Errors
    /// [`StateError::NoGrace`] if the grace period is over.
    pub fn may_reclaim_open(
        &self,
        client: &Client,
        handle: &[u8],
        (access, deny): (ShareAccess, ShareDeny),
        is_delegated: bool,
    ) -> Result<Reclaimable, StateError> {
        let until_ms = || self.grace.until_ms.load(Ordering::Acquire);
        if until_ms() > 0 && !self.grace.has_lost.load(Ordering::Relaxed) {
            return Ok(Reclaimable::All);
        }
        let identity = self.registry.lock().identity(client.id());
        let Identity { is_set, owner, verifier, principal } =
            identity.ok_or(StateError::NoGrace)?;
        let former = self.grace.former.lock();
        if until_ms() == 0 {
            return Err(StateError::NoGrace);
        }
        let lost = former.lost.get(&((is_set, owner), (principal, verifier)));
        let share = Share { access, deny };
        Ok(lost.map_or(Reclaimable::All, |lost| lost.judge(handle, share, is_delegated)))
    }

    /// A client that may reclaim does so: the grace period lasts on for the next one.
    pub fn goes_on_reclaiming(&self, now_ms: u64) {
        // Under the lock, so that it has not ended.
        let _former = self.grace.former.lock();
        if self.grace.until_ms.load(Ordering::Relaxed) > 0 {
            self.grace.go_on(now_ms);
        }
    }

    /// `RECLAIM_COMPLETE` for all file systems. It may end the grace period.
    ///
    /// # Errors
    /// [`StateError::CompleteAlready`] the second time.
    pub fn complete_reclaim(&self, client: &Client) -> Result<(), StateError> {
        client.complete_reclaim()?;
        let identity = {
            let registry = self.registry.lock();
            if client.recorded() == Recorded::InPart {
                registry.record(client.id(), Recorded::Whole);
            }
            registry.identity(client.id())
        };
        if self.grace.until_ms.load(Ordering::Relaxed) > 0
            && let Some(Identity { is_set, owner, principal, .. }) = identity
        {
            self.end_grace_if(|grace, former| {
                former.reclaiming.remove(&((is_set, owner), principal));
                former.reclaiming.is_empty() && !grace.has_hosts.load(Ordering::Relaxed)
            });
        }
        Ok(())
    }

    /// Nobody may reclaim any more.
    pub fn end_grace(&self) {
        self.end_grace_if(|_, _| true);
    }

    /// Ends the grace period if that is so, and if there is one. That is noted before anybody can see
    /// it: who gets something new has to have that record kept first.
    fn end_grace_if(&self, is_over: impl FnOnce(&Grace, &mut Former) -> bool) {
        let mut former = self.grace.former.lock();
        let has_begun = self.grace.until_ms.load(Ordering::Relaxed) > 0;
        if is_over(&self.grace, &mut former) && has_begun {
            *former = Former::default();
            self.journal.records.note(&RecordEvent::GraceEnded(self.settings.instance));
            self.grace.has_hosts.store(false, Ordering::Relaxed);
            self.grace.until_ms.store(0, Ordering::Release);
        }
    }

    /// A client is about to get state: it is to be recorded, if it is not. `is_reclaim`: what it had
    /// before; else it has all that it will reclaim.
    pub fn record(&self, client: &Client, is_reclaim: bool) {
        let wanted = if is_reclaim { Recorded::InPart } else { Recorded::Whole };
        if client.recorded() < wanted {
            self.registry.lock().record(client.id(), wanted);
        }
    }

    /// How many events of records were noted so far.
    pub fn noted_records(&self) -> u64 {
        self.journal.records.noted()
    }

    /// Whether there are records that are not stable yet: no reply that gives a client something may
    /// leave before they are.
    pub fn has_unkept_records(&self) -> bool {
        self.journal.records.has_unkept()
    }

    /// Moves the events of records that nobody has taken behind those in `events`. What it returns is to
    /// be given to [`State::records_are_kept`].
    pub fn take_records(&self, events: &mut Vec<u8>) -> u64 {
        self.journal.records.take(events)
    }

    /// The events are stable that were taken when [`State::take_records`] returned this, and all
    /// before them.
    pub fn records_are_kept(&self, taken: u64) {
        self.journal.records.are_kept(taken);
        self.free_what_is_kept();
        self.records_of_lost_are_kept();
    }

    /// Takes up the records that another process has left. Those of other instances may reclaim: a
    /// grace period of a lease begins, if there are any. To be called behind [`State::restore`], and
    /// before anybody else uses the state. From now on records are noted.
    pub fn restore_records(&self, now_ms: u64, records: &ClientRecords) {
        self.journal.records.begin();
        let (mut former, mut has_others) = (Former::default(), false);
        let registry = self.registry.lock();
        for (id, record) in records.iter() {
            if id.instance() == self.settings.instance {
                registry.restore_recorded(id, record.is_complete);
                continue;
            }
            has_others = true;
            // The others may have lost a part of what they had to somebody else.
            if record.is_complete {
                let key = (record.is_set, record.owner.clone());
                former.reclaiming.insert((key.clone(), record.principal.clone()));
                let life = (record.principal.clone(), record.verifier);
                former.lives.entry(key).or_default().push(life);
            }
        }
        let mut own = BTreeMap::new();
        for (id, lost) in records.lost() {
            if id.instance() == self.settings.instance {
                own.insert(id, lost);
            } else if let Some(record) = records.get(id) {
                let key = (record.is_set, record.owner.clone());
                let life = (record.principal.clone(), record.verifier);
                let all = former.lost.entry((key, life));
                all.and_modify(|known| known.join(lost)).or_insert_with(|| lost.clone());
            }
        }
        registry.record_all_with_opens();
        registry.record_lost(&self.files, &own);
        for key in registry.owners_without_more_to_reclaim() {
            former.reclaiming.remove(&key);
        }
        drop(registry);
        if former.reclaiming.is_empty() {
            if has_others {
                self.journal.records.note(&RecordEvent::GraceEnded(self.settings.instance));
            }
            return;
        }
        self.grace.has_lost.store(!former.lost.is_empty(), Ordering::Relaxed);
        *self.grace.former.lock() = former;
        self.grace.begin(now_ms, self.settings.lease_ms);
    }

    /// The client of this id, if there is one.
    pub fn client(&self, id: ClientId) -> Option<Arc<Client>> {
        self.registry.lock().find(id).map(|record| Arc::clone(&record.client))
    }
}

#[cfg(test)]
mod tests {
    use crate::{ClientRecords, CreateSession, ExchangeId, Principal, Settings, State};

    fn client(state: &State) -> std::sync::Arc<crate::Client> {
        let principal = &Principal(b"p".as_slice().into());
        let exchange = ExchangeId {
            owner: b"o",
            verifier: [1; 8],
            principal,
            is_update: false,
            implementation: &[],
            address: std::net::Ipv4Addr::LOCALHOST.into(),
        };
        let exchanged = state.exchange_id(0, &exchange).expect("known");
        let channel = crate::Channel {
            request_bytes_max: 4096,
            response_bytes_max: 4096,
            response_bytes_cached_max: 64,
            operations_max: 8,
            requests_max: 1,
        };
        let create = CreateSession {
            client: exchanged.client,
            sequence: exchanged.sequence,
            principal,
            fore: channel,
            back: channel,
            flags: 0,
            connection: 1,
        };
        state.create_session(0, &create).expect("made");
        state.client(exchanged.client).expect("known")
    }

    #[test]
    fn who_may_reclaim_is_looked_up_once() {
        let state = State::new(Settings::new(1));
        state.restore_records(0, &ClientRecords::default());
        state.record(&client(&state), false);
        let (mut events, mut records) = (Vec::new(), ClientRecords::default());
        state.take_records(&mut events);
        records.add(&events).expect("its own");
        let state = State::new(Settings::new(2));
        state.restore_records(0, &records);
        let client = client(&state);
        assert_eq!(state.may_reclaim(0, &client), Ok(()));
        // Each of its requests asks that: no lock is taken.
        let _registry = state.registry.lock();
        let _former = state.grace.former.lock();
        assert_eq!(state.may_reclaim(0, &client), Ok(()));
    }
}
