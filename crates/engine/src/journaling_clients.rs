//! Clients that keep a journal of what an `async` share has acknowledged to them (docs/recovery.md).
//!
//! Who they are is recorded beyond the process before the first promise to them. When a start of the server
//! finds that it has lost what was acknowledged, it waits for those that are recorded: until each has brought
//! back what was lost, or the time is over, nobody else is served on that share. So nobody sees a file
//! that lacks what was acknowledged, or changes it before that is there again.
//!
//! Invariants:
//!
//! - a client that was told that it is recorded is recorded on stable storage;
//! - while a share waits only connections are served on which a client that it waits for has said who it is;
//! - a wait has an end, whatever clients do.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use steadfast_shares::ShareId;

use crate::Engine;
use crate::peer::Origin;

/// Names a journal, the same as long as it is there.
pub type JournalId = [u8; 16];

/// Connections of one client that are known at most; mounts have up to 16.
const CONNECTIONS_MAX: usize = 64;
/// Clients that are recorded at most, and of one IPv4 address or one IPv6 network of 64 bits. Others are told that they are not.
const CLIENTS_MAX: usize = 16_384;
const CLIENTS_OF_NETWORK_MAX: usize = 256;
/// A client that brings back what was lost, and has said nothing for so long, has died.
const SILENCE_MS: u64 = 300_000;
/// A wait does not last longer than this, whatever is brought back.
const WAIT_MAX_MS: u64 = 3_600_000;

/// A client that keeps a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalingClient {
    /// The share that the journal is of.
    pub share: ShareId,
    /// Its journal.
    pub journal: JournalId,
    /// From where it came last.
    pub address: IpAddr,
    /// What it calls itself, for people.
    pub name: Vec<u8>,
}

/// Records beyond the process which clients keep journals. Any thread may call it.
pub trait JournalRecord: Send + Sync {
    /// Records a client. On stable storage when this returns, for which it may wait; whether that could be
    /// done. The others wait for nothing: they are called with locks held.
    fn record(&self, client: &JournalingClient) -> bool;

    /// A client has nothing in its journal any more, and does not come again.
    fn forget(&self, share: ShareId, journal: &JournalId);

    /// It is not waited for any more at later starts: it did not come at this one.
    fn give_up(&self, share: ShareId, journal: &JournalId);

    /// Nothing that clients were promised before this start is missing any more, as far as they came.
    fn all_recovered(&self);
}

/// How far a client is that a share waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has come, or nothing was lost.
    Served,
    /// It has not come yet.
    Awaited,
    /// It brings back what was lost.
    Recovers,
    /// It has not come in time.
    Missed,
}

#[derive(Debug)]
struct Known {
    name: Vec<u8>,
    address: IpAddr,
    stage: Stage,
    connections: VecDeque<Origin>,
    heard_ms: u64,
    /// When it began to bring back.
    came_ms: u64,
}

#[derive(Debug)]
#[allow(clippy::struct_field_names, reason = "the unit is part of a name")]
struct Wait {
    began_ms: u64,
    /// When who has not come is given up.
    deadline_ms: u64,
    /// How long that is after the share can be served.
    patience_ms: u64,
}

#[derive(Debug, Default)]
struct Table {
    clients: BTreeMap<(ShareId, JournalId), Known>,
    waits: HashMap<ShareId, Wait>,
}

impl Table {
    fn of_share(&mut self, share: ShareId) -> impl Iterator<Item = (&JournalId, &mut Known)> {
        let all = (share, [0; 16])..=(share, [255; 16]);
        self.clients.range_mut(all).map(|((_, journal), known)| (journal, known))
    }

    fn is_complete(&mut self, share: ShareId) -> bool {
        self.of_share(share).all(|(_, known)| matches!(known.stage, Stage::Served | Stage::Missed))
    }
}

/// What a client is that has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    Unrecorded,
    Recorded,
    /// It is recorded, and brings back what was lost.
    WaitedFor,
}

/// What one owner of addresses easily has all of.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

/// What an administrator is told of the clients with a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalingCounts {
    /// They are recorded.
    pub clients: usize,
    /// The server waits for them to come.
    pub awaited: usize,
    /// They bring back what was lost.
    pub recovering: usize,
    /// They did not come in time, and have not come since.
    pub missed: usize,
}

/// The clients that keep a journal.
#[derive(Default)]
pub(crate) struct JournalingClients {
    /// Some share waits. Read without the lock at each call.
    waits: AtomicBool,
    table: Mutex<Table>,
    record: OnceLock<Arc<dyn JournalRecord>>,
}

impl JournalingClients {
    /// See [`Engine::keep_journaling_clients`].
    fn take_up(
        &self,
        recorded: Vec<(JournalingClient, bool)>,
        record: Arc<dyn JournalRecord>,
        is_lost: bool,
        (now_ms, wait_ms): (u64, u64),
    ) -> usize {
        let mut table = self.table.lock();
        for (client, is_given_up) in recorded {
            let stage = match (is_given_up || wait_ms == 0 && is_lost, is_lost) {
                (true, _) => Stage::Missed,
                (false, true) => Stage::Awaited,
                (false, false) => Stage::Served,
            };
            if stage == Stage::Missed && !is_given_up {
                record.give_up(client.share, &client.journal);
            }
            if stage == Stage::Awaited {
                let deadline_ms = now_ms.saturating_add(wait_ms);
                let wait = Wait { began_ms: now_ms, deadline_ms, patience_ms: wait_ms };
                table.waits.insert(client.share, wait);
            }
            let known = Known {
                name: client.name,
                address: client.address,
                stage,
                connections: VecDeque::new(),
                heard_ms: now_ms,
                came_ms: now_ms,
            };
            table.clients.insert((client.share, client.journal), known);
        }
        // The first one counts; there is no other.
        if table.waits.is_empty() {
            record.all_recovered();
        }
        let _ = self.record.set(record);
        self.waits.store(!table.waits.is_empty(), Ordering::Release);
        table.clients.values().filter(|known| known.stage == Stage::Awaited).count()
    }

    /// Whether a call on this connection is to be made later: its share waits, and not for who calls.
    pub(crate) fn holds(&self, share: ShareId, from: impl FnOnce() -> Origin, now_ms: u64) -> bool {
        if !self.waits.load(Ordering::Acquire) {
            return false;
        }
        let mut table = self.table.lock();
        if !table.waits.contains_key(&share) {
            return false;
        }
        let from = from();
        for (_, known) in table.of_share(share) {
            if known.stage == Stage::Recovers && known.connections.contains(&from) {
                known.heard_ms = now_ms;
                return false;
            }
        }
        true
    }

    /// Whether a client is recorded, and is waited for after the next crash. If not it has to be recorded
    /// first, which waits for a disk.
    pub(crate) fn is_recorded(&self, share: ShareId, journal: &JournalId) -> bool {
        let table = self.table.lock();
        table.clients.get(&(share, *journal)).is_some_and(|known| known.stage != Stage::Missed)
    }

    /// A client with a journal has called: it lives.
    pub(crate) fn heard(&self, share: ShareId, from: impl FnOnce() -> Origin, now_ms: u64) {
        if self.waits.load(Ordering::Acquire) {
            self.holds(share, from, now_ms);
        }
    }

    /// A client says who it is.
    pub(crate) fn attach(&self, client: &JournalingClient, from: Origin, now_ms: u64) -> Attached {
        let key = (client.share, client.journal);
        if !self.is_recorded(client.share, &client.journal) {
            let has_room = {
                let (table, network) = (self.table.lock(), network(client.address));
                let all = table.clients.values();
                let its = all.filter(|known| self::network(known.address) == network);
                table.clients.contains_key(&key)
                    || table.clients.len() < CLIENTS_MAX && its.count() < CLIENTS_OF_NETWORK_MAX
            };
            let is_recorded =
                has_room && self.record.get().is_some_and(|record| record.record(client));
            if !is_recorded {
                return Attached::Unrecorded;
            }
        }
        let mut table = self.table.lock();
        let known = table.clients.entry(key).or_insert_with(|| Known {
            name: client.name.clone(),
            address: client.address,
            stage: Stage::Served,
            connections: VecDeque::new(),
            heard_ms: now_ms,
            came_ms: now_ms,
        });
        (known.address, known.heard_ms) = (client.address, now_ms);
        known.connections.retain(|other| *other != from);
        if known.connections.len() == CONNECTIONS_MAX {
            known.connections.pop_front();
        }
        known.connections.push_back(from);
        match known.stage {
            Stage::Awaited => (known.stage, known.came_ms) = (Stage::Recovers, now_ms),
            // Others were not served without it: it has its turn as they had.
            Stage::Missed => known.stage = Stage::Served,
            Stage::Recovers | Stage::Served => {}
        }
        let is_waited_for = known.stage == Stage::Recovers;
        if is_waited_for { Attached::WaitedFor } else { Attached::Recorded }
    }

    /// A client has brought back what was lost, if anything was. Only who has said on this connection that it
    /// is this client can say so.
    ///
    /// False if nobody has said so here, or it was given up.
    pub(crate) fn recovered(&self, share: ShareId, journal: &JournalId, from: Origin) -> bool {
        let mut table = self.table.lock();
        match table.clients.get_mut(&(share, *journal)) {
            // Who was given up has to say again who it is, and is recorded by that.
            Some(known) if known.stage != Stage::Missed && known.connections.contains(&from) => {
                known.stage = Stage::Served;
            }
            _ => return false,
        }
        self.end_if_complete(&mut table, share);
        true
    }

    /// The same of a client that has nothing more in its journal.
    pub(crate) fn detach(&self, share: ShareId, journal: &JournalId, from: Origin) -> bool {
        let mut table = self.table.lock();
        let key = (share, *journal);
        if !table.clients.get(&key).is_some_and(|known| known.connections.contains(&from)) {
            return false;
        }
        table.clients.remove(&key);
        self.end_if_complete(&mut table, share);
        if let Some(record) = self.record.get() {
            record.forget(share, journal);
        }
        true
    }

    /// Whether a share waits for clients.
    pub(crate) fn is_waiting(&self, share: ShareId) -> bool {
        self.waits.load(Ordering::Acquire) && self.table.lock().waits.contains_key(&share)
    }

    fn end_if_complete(&self, table: &mut Table, share: ShareId) {
        if !table.waits.contains_key(&share) || !table.is_complete(share) {
            return;
        }
        table.waits.remove(&share);
        self.waits.store(!table.waits.is_empty(), Ordering::Release);
        if let (true, Some(record)) = (table.waits.is_empty(), self.record.get()) {
            record.all_recovered();
        }
    }

    fn counts(&self) -> JournalingCounts {
        let table = self.table.lock();
        let of = |stage| table.clients.values().filter(|known| known.stage == stage).count();
        JournalingCounts {
            clients: table.clients.len(),
            awaited: of(Stage::Awaited),
            recovering: of(Stage::Recovers),
            missed: of(Stage::Missed),
        }
    }

    /// Waits no longer for whom the time is over. For a share that cannot be served yet it begins later.
    fn expire(&self, now_ms: u64, is_served: impl Fn(ShareId) -> bool) -> Vec<JournalingClient> {
        if !self.waits.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut table = self.table.lock();
        let mut ended = Vec::new();
        let shares: Vec<ShareId> = table.waits.keys().copied().collect();
        for share in shares {
            let Some(Wait { began_ms, deadline_ms, patience_ms }) = table.waits.get_mut(&share)
            else {
                continue;
            };
            let is_served = is_served(share);
            if !is_served {
                *deadline_ms = now_ms.saturating_add(*patience_ms);
            }
            // One that is not served any more has an end, too.
            let is_too_late =
                now_ms >= *deadline_ms || now_ms.saturating_sub(*began_ms) >= WAIT_MAX_MS;
            let mut missed = Vec::new();
            for (journal, known) in table.of_share(share) {
                if !is_served {
                    // Nobody can be heard.
                    known.heard_ms = now_ms;
                }
                let is_missed = match known.stage {
                    Stage::Awaited => is_too_late,
                    Stage::Recovers => {
                        now_ms.saturating_sub(known.came_ms) >= WAIT_MAX_MS
                            || now_ms.saturating_sub(known.heard_ms) >= SILENCE_MS
                    }
                    Stage::Served | Stage::Missed => false,
                };
                if is_missed {
                    known.stage = Stage::Missed;
                    let (journal, address, name) = (*journal, known.address, known.name.clone());
                    missed.push(JournalingClient { share, journal, address, name });
                }
            }
            if let Some(record) = self.record.get() {
                for client in &missed {
                    record.give_up(share, &client.journal);
                }
            }
            if !missed.is_empty() {
                self.end_if_complete(&mut table, share);
                ended.extend(missed);
            }
        }
        ended
    }
}

impl Engine {
    /// Takes up who kept a journal when the server ran last, and records them from now on. With `is_lost`
    /// what was acknowledged from memory may be lost: the shares of these clients wait for them, so long at
    /// most. To be called before anybody is served. How many it waits for.
    pub fn keep_journaling_clients(
        &self,
        recorded: Vec<(JournalingClient, bool)>,
        record: Arc<dyn JournalRecord>,
        is_lost: bool,
        wait_ms: u64,
    ) -> usize {
        let times = (self.now_ms.load(Ordering::Relaxed), wait_ms);
        self.shared.journaling_clients.take_up(recorded, record, is_lost, times)
    }

    /// To be called once a second. The clients that are not waited for any longer: they did not come, or went
    /// silent, and what they were promised may be lost.
    pub fn miss_journaling_clients(&self) -> Vec<JournalingClient> {
        let exports = self.exports();
        let is_served = |share| exports.exported(share).is_some();
        self.shared.journaling_clients.expire(self.now_ms.load(Ordering::Relaxed), is_served)
    }

    /// The clients that keep a journal.
    pub fn journaling_clients(&self) -> JournalingCounts {
        self.shared.journaling_clients.counts()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::peer::{Peer, Transport};

    const SHARE: ShareId = ShareId(7);
    const OTHER: ShareId = ShareId(8);

    fn client(journal: u8) -> JournalingClient {
        let address = IpAddr::from([10, 0, 0, journal]);
        JournalingClient { share: SHARE, journal: [journal; 16], address, name: b"name".to_vec() }
    }

    fn connection(number: u64) -> Origin {
        let address = SocketAddr::from(([10, 0, 0, 1], 700));
        Peer::new(address, address, Transport::Tcp).on_connection(number).origin()
    }

    /// What was recorded, in words.
    #[derive(Default)]
    struct Words(Mutex<Vec<String>>);

    impl JournalRecord for Words {
        fn record(&self, client: &JournalingClient) -> bool {
            self.0.lock().push(format!("record {}", client.journal[0]));
            client.journal[0] != 99
        }

        fn forget(&self, _: ShareId, journal: &JournalId) {
            self.0.lock().push(format!("forget {}", journal[0]));
        }

        fn give_up(&self, _: ShareId, journal: &JournalId) {
            self.0.lock().push(format!("give up {}", journal[0]));
        }

        fn all_recovered(&self) {
            self.0.lock().push("all recovered".to_owned());
        }
    }

    fn after_a_crash(clients: &[u8], wait_ms: u64) -> (JournalingClients, Arc<Words>) {
        let (all, words) = (JournalingClients::default(), Arc::new(Words::default()));
        let recorded = clients.iter().map(|journal| (client(*journal), false)).collect();
        let awaited = all.take_up(recorded, Arc::clone(&words) as _, true, (0, wait_ms));
        assert_eq!(awaited, clients.len());
        (all, words)
    }

    #[test]
    fn others_wait_until_all_have_brought_back_what_was_lost() {
        let (all, words) = after_a_crash(&[1, 2], 90_000);
        let is_held = |share, number| all.holds(share, || connection(number), 1);
        assert!(is_held(SHARE, 1) && is_held(SHARE, 9) && !is_held(OTHER, 9));
        assert_eq!(all.attach(&client(1), connection(1), 1), Attached::WaitedFor);
        assert!(!is_held(SHARE, 1) && is_held(SHARE, 9), "who brings back is served alone");
        // Not by who has not said that it is this client.
        assert!(!all.recovered(SHARE, &[1; 16], connection(9)));
        assert!(!is_held(SHARE, 1));
        assert!(all.recovered(SHARE, &[1; 16], connection(1)));
        assert!(is_held(SHARE, 1), "what the other has is missing still");
        // One that comes for the first time waits as others do.
        assert_eq!(all.attach(&client(3), connection(3), 1), Attached::Recorded);
        assert!(is_held(SHARE, 3));
        assert_eq!(all.attach(&client(2), connection(2), 1), Attached::WaitedFor);
        assert!(!is_held(SHARE, 2));
        assert!(all.recovered(SHARE, &[2; 16], connection(2)));
        assert!(!is_held(SHARE, 1) && !is_held(SHARE, 9) && !all.is_waiting(SHARE));
        assert_eq!(*words.0.lock(), ["record 3", "all recovered"]);
        let counts = JournalingCounts { clients: 3, ..JournalingCounts::default() };
        assert_eq!(all.counts(), counts);
    }

    #[test]
    fn a_wait_has_an_end_whatever_clients_do() {
        let (all, words) = after_a_crash(&[1, 2], 90_000);
        let is_held = |number, now_ms| all.holds(SHARE, || connection(number), now_ms);
        assert_eq!(all.attach(&client(1), connection(1), 80_000), Attached::WaitedFor);
        assert_eq!(all.expire(89_999, |_| true), vec![]);
        assert_eq!(all.expire(90_000, |_| true), [client(2)]);
        assert!(is_held(9, 90_000), "the other one is bringing back");
        assert!(!is_held(1, 140_000), "it is heard");
        assert_eq!(all.expire(140_000 + SILENCE_MS - 1, |_| true), vec![]);
        assert_eq!(all.expire(140_000 + SILENCE_MS, |_| true), [client(1)]);
        assert!(!is_held(9, 500_000));
        assert_eq!(*words.0.lock(), ["give up 2", "give up 1", "all recovered"]);
        // It comes at last.
        assert_eq!(all.attach(&client(2), connection(2), 500_000), Attached::Recorded);
        assert_eq!(words.0.lock().last().map(String::as_str), Some("record 2"));
        assert_eq!((all.counts().missed, all.counts().clients), (1, 2));
    }

    #[test]
    fn who_recovers_without_an_end_is_not_waited_for_without_an_end() {
        let (all, _) = after_a_crash(&[1], 90_000);
        assert_eq!(all.attach(&client(1), connection(1), 0), Attached::WaitedFor);
        for now_ms in (0..WAIT_MAX_MS).step_by(30_000) {
            assert!(!all.holds(SHARE, || connection(1), now_ms));
            assert_eq!(all.expire(now_ms, |_| true), vec![]);
        }
        assert_eq!(all.expire(WAIT_MAX_MS, |_| true), [client(1)]);
        assert!(!all.is_waiting(SHARE));
    }

    #[test]
    fn a_share_that_is_not_served_yet_waits_from_then_on() {
        let (all, _) = after_a_crash(&[1], 90_000);
        assert_eq!(all.expire(500_000, |_| false), vec![]);
        assert_eq!(all.expire(589_999, |_| true), vec![]);
        assert_eq!(all.expire(590_000, |_| true), [client(1)]);
        let (all, _) = after_a_crash(&[1], 90_000);
        assert_eq!(all.expire(WAIT_MAX_MS - 1, |_| false), vec![]);
        assert_eq!(all.attach(&client(1), connection(1), WAIT_MAX_MS - 1), Attached::WaitedFor);
        assert_eq!(all.expire(WAIT_MAX_MS, |_| true), vec![], "it has just come");
        let (all, _) = after_a_crash(&[1], 90_000);
        assert_eq!(all.expire(WAIT_MAX_MS, |_| false), [client(1)], "the share is gone");
    }

    #[test]
    fn with_no_time_nobody_is_waited_for() {
        let (all, words) = (JournalingClients::default(), Arc::new(Words::default()));
        let recorded = vec![(client(1), false)];
        assert_eq!(all.take_up(recorded, Arc::clone(&words) as _, true, (0, 0)), 0);
        assert!(!all.is_waiting(SHARE) && all.counts().missed == 1);
        assert_eq!(*words.0.lock(), ["give up 1", "all recovered"]);
    }

    #[test]
    fn who_ends_is_forgotten_and_who_cannot_be_recorded_is_told() {
        let (all, words) = after_a_crash(&[1], 90_000);
        assert_eq!(all.attach(&client(99), connection(5), 0), Attached::Unrecorded);
        assert_eq!(all.attach(&client(1), connection(1), 0), Attached::WaitedFor);
        assert!(!all.detach(SHARE, &[1; 16], connection(9)));
        assert_eq!(all.counts().clients, 1, "somebody else cannot say so");
        assert!(all.detach(SHARE, &[1; 16], connection(1)));
        assert!(!all.is_waiting(SHARE));
        assert_eq!(*words.0.lock(), ["record 99", "all recovered", "forget 1"]);
    }

    #[test]
    fn one_address_has_no_more_than_its_part() {
        for address in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd00, 0, 0, 1, 2, 3, 4, 5])] {
            let (all, _) = after_a_crash(&[], 0);
            for journal in 0..=u16::try_from(CLIENTS_OF_NETWORK_MAX).unwrap_or(0) {
                let mut client = JournalingClient { address, ..client(1) };
                client.journal[..2].copy_from_slice(&journal.to_be_bytes());
                if let IpAddr::V6(address) = address {
                    let other = u128::from(journal) << 32;
                    client.address = IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() ^ other));
                }
                let is_last = usize::from(journal) == CLIENTS_OF_NETWORK_MAX;
                let wanted = if is_last { Attached::Unrecorded } else { Attached::Recorded };
                assert_eq!(all.attach(&client, connection(1), 0), wanted);
            }
        }
    }
}
