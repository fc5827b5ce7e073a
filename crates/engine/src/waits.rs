//! Calls that wait until a client gives something back, or a name service answers: no thread waits with
//! them, and they hold no seat and no lock.
//!
//! A call that finds something in its way says what it waits for ([`crate::call::Call::wait_for`]), which registers it,
//! and fails with `TryLater`. It is then judged **again** at once, by executing the operation from its
//! beginning: what was in the way may have gone before anybody could know that somebody waits for it. If
//! it is in the way still, the call is suspended ([`crate::Verdict::Suspended`]) until [`Waits::wake`], or until
//! its patience is over. Then the operation is executed once more, and fails if it has to.
//!
//! Invariant: *who is suspended was judged after it was registered*. Whoever takes a thing out of the way
//! does so first, and calls [`Waits::wake`] then. So either the second judgement found it gone, or the
//! wake found the registration. The host keeps the same promise from there on
//! ([`crate::CallHost::waker`]): a wake that comes before the host has the call is not lost.
//!
//! Who holds a thing needs a slot to give it back, and two clients may wait for each other. So no more than
//! half the slots of a session wait, and no more calls of one client than [`CALLS_OF_CLIENT_MAX`]. Further
//! ones are told to try later at once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use steadfast_shares::ShareId;
use steadfast_state::{ClientId, FileKey, HOLDER_PATIENCE_MS, SessionId, SlotInUse};

/// Calls of one client that wait for other clients at the most.
const CALLS_OF_CLIENT_MAX: usize = 64;
/// The same for names: nobody has to answer them with calls.
const CALLS_FOR_NAMES_MAX: usize = 500;
/// Calls of all clients that wait at the most.
const CALLS_MAX: usize = 20_000;
/// How long a call waits for a client, in ms, before its client is told to try later: a recall takes a
/// round trip, and Linux comes again after 0.1 s to 15 s only.
const CLIENT_PATIENCE_MS: u64 = 2_000;
/// How long a call waits for an answer before it is judged again, in ms: then that is overdue.
const ANSWER_PATIENCE_MS: u64 = HOLDER_PATIENCE_MS + 100;
/// How long a call waits for a name, in ms: less than clients do.
const NAMES_PATIENCE_MS: u64 = 8_000;

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WaitFor {
    /// That clients give back what they have of a file.
    File(FileKey),
    /// That the holder of a delegation of this file answers the question of this number.
    Answer(FileKey, u64),
    /// That names are known by which the access to a share is decided.
    Names(ShareId),
}

impl WaitFor {
    /// How long a call waits, in ms since it began to; and if that is over, how long all the same.
    pub(crate) fn patience_ms(self) -> (u64, u64) {
        match self {
            Self::File(_) => (CLIENT_PATIENCE_MS, CLIENT_PATIENCE_MS),
            Self::Answer(..) => (ANSWER_PATIENCE_MS, CLIENT_PATIENCE_MS),
            Self::Names(_) => (NAMES_PATIENCE_MS, NAMES_PATIENCE_MS),
        }
    }

    fn calls_of_client_max(self) -> usize {
        match self {
            Self::File(_) | Self::Answer(..) => CALLS_OF_CLIENT_MAX,
            Self::Names(_) => CALLS_FOR_NAMES_MAX,
        }
    }
}

/// Whose call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    /// A client of NFSv4.1 or later, which calls in sessions.
    Client(ClientId),
    /// A client of another protocol.
    Host(IpAddr),
    Session(SessionId),
}

/// A session whose slot a call uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InSession {
    id: SessionId,
    client: ClientId,
    slots: u32,
}

impl InSession {
    pub(crate) fn of(slot: &SlotInUse) -> Self {
        let session = slot.session();
        let (client, slots) = (session.client().id(), session.fore().requests_max);
        Self { id: *session.id(), client, slots }
    }
}

/// The calls that wait.
#[derive(Default)]
pub(crate) struct Waits {
    /// How many there are. Read without the lock: nothing to wake is the common case.
    count: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last_number: u64,
    calls: HashMap<WaitFor, Vec<(u64, Waker)>>,
    /// How many calls of each wait.
    counts: HashMap<Who, usize>,
}

impl Table {
    fn count(&self, who: Who) -> usize {
        self.counts.get(&who).copied().unwrap_or(0)
    }

    fn leave(&mut self, who: Who) {
        if let Some(count) = self.counts.get_mut(&who) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&who);
            }
        }
    }
}

/// A call that is registered, until this is dropped.
pub(crate) struct Wait {
    waits: Arc<Waits>,
    what: WaitFor,
    number: u64,
    who: (Who, Option<Who>),
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Wait {
    /// What it is for.
    pub(crate) fn what(&self) -> WaitFor {
        self.what
    }

    /// Whose call it is, if it is one of a session.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self.who.0 {
            Who::Client(client) => Some(client),
            Who::Host(_) | Who::Session(_) => None,
        }
    }

    /// Whether it is for a name service, and not for a client.
    pub(crate) fn is_for_names(&self) -> bool {
        matches!(self.what, WaitFor::Names(_))
    }
}

impl Waits {
    /// How many calls wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Registers a call. `None` if too many of its client wait, or of all clients.
    pub(crate) fn register(
        self: &Arc<Self>,
        what: WaitFor,
        address: IpAddr,
        session: Option<InSession>,
        waker: Waker,
    ) -> Option<Wait> {
        let mut table = self.table.lock();
        let who = match session {
            Some(InSession { id, client, slots }) => {
                let session = Who::Session(id);
                let slots_max = usize::try_from(slots / 2).unwrap_or(0);
                if table.count(session) >= slots_max {
                    return None;
                }
                (Who::Client(client), Some(session))
            }
            None => (Who::Host(address.to_canonical()), None),
        };
        let is_full = self.count.load(Ordering::SeqCst) >= CALLS_MAX;
        if is_full || table.count(who.0) >= what.calls_of_client_max() {
            return None;
        }
        for who in [Some(who.0), who.1].into_iter().flatten() {
            *table.counts.entry(who).or_default() += 1;
        }
        table.last_number += 1;
        let number = table.last_number;
        table.calls.entry(what).or_default().push((number, waker));
        // Before the call is judged again.
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(table);
        Some(Wait { waits: Arc::clone(self), what, number, who })
    }

    /// Something is not in the way any more: to be called after that is so. Calls that wait for it are
    /// executed again.
    pub(crate) fn wake(&self, what: &WaitFor) {
        if self.count() == 0 {
            return;
        }
        let woken: Vec<Waker> = {
            let table = self.table.lock();
            table.calls.get(what).into_iter().flatten().map(|(_, waker)| waker.clone()).collect()
        };
        for waker in woken {
            waker.wake();
        }
    }

    /// Names are known that were not.
    pub(crate) fn wake_for_names(&self) {
        if self.count() == 0 {
            return;
        }
        let woken: Vec<Waker> = {
            let table = self.table.lock();
            let calls = table.calls.iter();
            let calls = calls.filter(|(what, _)| matches!(what, WaitFor::Names(_)));
            calls.flat_map(|(_, calls)| calls).map(|(_, waker)| waker.clone()).collect()
        };
        for waker in woken {
            waker.wake();
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut table = self.waits.table.lock();
        if let Some(calls) = table.calls.get_mut(&self.what) {
            calls.retain(|(number, _)| *number != self.number);
            if calls.is_empty() {
                table.calls.remove(&self.what);
            }
        }
        for who in [Some(self.who.0), self.who.1].into_iter().flatten() {
            table.leave(who);
        }
        self.waits.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    //! Unit, property and interleaving rings.
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::task::Wake;
    use std::thread;

    use proptest::prelude::*;
    use steadfast_vfs::StorageHandle;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn file(number: u8) -> WaitFor {
        let object = StorageHandle::new(&[number]).expect("short");
        WaitFor::File(FileKey { file_system: 1, object })
    }

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn register(
        waits: &Arc<Waits>,
        what: WaitFor,
        from: u8,
        session: Option<InSession>,
    ) -> Option<(Wait, Arc<Woken>)> {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        waits.register(what, address(from), session, waker).map(|wait| (wait, woken))
    }

    #[test]
    fn who_waits_for_a_file_is_woken_for_it_alone() {
        let waits = Arc::new(Waits::default());
        let calls: Vec<_> = [file(1), file(1), file(2), WaitFor::Names(ShareId(3))]
            .into_iter()
            .map(|what| register(&waits, what, 1, None).expect("room"))
            .collect();
        let woken = || -> Vec<usize> {
            calls.iter().map(|(_, woken)| woken.0.swap(0, Ordering::SeqCst)).collect()
        };
        waits.wake(&file(1));
        assert_eq!(woken(), [1, 1, 0, 0]);
        waits.wake_for_names();
        assert_eq!(woken(), [0, 0, 0, 1]);
        waits.wake(&file(3));
        assert_eq!(woken(), [0, 0, 0, 0]);
        drop(calls);
        assert_eq!(waits.count(), 0);
        let table = waits.table.lock();
        assert!(table.calls.is_empty() && table.counts.is_empty());
    }

    #[test]
    fn half_the_slots_of_a_session_are_left_to_give_things_back() {
        let waits = Arc::new(Waits::default());
        let session = |number, slots| {
            Some(InSession { id: SessionId([number; 16]), client: ClientId(1), slots })
        };
        let fill = |number, slots| {
            let calls = std::iter::from_fn(|| register(&waits, file(1), 1, session(number, slots)));
            calls.collect::<Vec<_>>()
        };
        let first = fill(1, 16);
        assert_eq!(first.len(), 8);
        assert_eq!(fill(2, 1).len(), 0, "who has one slot needs that");
        let second = fill(3, 1000);
        assert_eq!(first.len() + second.len(), CALLS_OF_CLIENT_MAX, "all sessions of a client");
        // Other protocols of the same machine are counted apart.
        let of_host = std::iter::from_fn(|| register(&waits, file(1), 1, None));
        let of_host = of_host.collect::<Vec<_>>();
        assert_eq!(of_host.len(), CALLS_OF_CLIENT_MAX);
        assert!(register(&waits, file(1), 2, None).is_some());
        drop(first);
        assert_eq!(fill(1, 16).len(), 8);
    }

    /// A thing that is in the way, or not; and a call that judges, registers, and judges again, as
    /// [`crate::call::Call::wait_for`] has it do. Whether it waits, and whether it was woken.
    fn judge(waits: &Arc<Waits>, is_in_the_way: &AtomicBool) -> Option<(Wait, Arc<Woken>)> {
        if !is_in_the_way.load(Ordering::SeqCst) {
            return None;
        }
        let registered = register(waits, file(1), 1, None)?;
        is_in_the_way.load(Ordering::SeqCst).then_some(registered)
    }

    #[test]
    fn nobody_waits_for_what_has_gone_whoever_is_quicker() {
        let waits = Arc::new(Waits::default());
        let waited = AtomicU32::new(0);
        for round in 0..4_000_u32 {
            let is_in_the_way = AtomicBool::new(true);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..round % 128 {
                        std::hint::spin_loop();
                    }
                    is_in_the_way.store(false, Ordering::SeqCst);
                    waits.wake(&file(1));
                });
                let waiting = judge(&waits, &is_in_the_way);
                if let Some((_, woken)) = &waiting {
                    waited.fetch_add(1, Ordering::Relaxed);
                    // A wake that is lost hangs here.
                    while woken.0.load(Ordering::SeqCst) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        assert_eq!(waits.count(), 0);
    }

    /// The steps of both, in every order: judge, register, judge; take away, wake.
    #[test]
    fn in_every_order_of_their_steps_the_call_goes_on() {
        // Which of the five steps are the other's.
        for others in 0..32_u8 {
            if others.count_ones() != 2 {
                continue;
            }
            let waits = Arc::new(Waits::default());
            let (mut is_in_the_way, mut is_gone) = (true, false);
            let (mut registered, mut goes_on, mut own) = (None, false, 0);
            for step in 0..5 {
                if others >> step & 1 == 1 {
                    if is_gone {
                        waits.wake(&file(1));
                    }
                    (is_in_the_way, is_gone) = (false, true);
                    continue;
                }
                match own {
                    0 | 2 => goes_on |= !is_in_the_way,
                    _ => registered = register(&waits, file(1), 1, None),
                }
                own += 1;
            }
            let woken = registered.map(|(_, woken)| woken.0.load(Ordering::SeqCst));
            assert!(goes_on || woken == Some(1), "{others:05b}");
        }
    }

    /// A call that waits, as the model has it.
    struct Known {
        what: WaitFor,
        client: u8,
        session: Option<u8>,
        _wait: Wait,
        woken: Arc<Woken>,
    }

    proptest! {
        /// Counts and lists are those of a model that looks through all calls.
        #[test]
        fn counts_are_right_whoever_comes_and_goes(
            steps in proptest::collection::vec((0..4_u8, 0..3_u8, 0..2_u8, 0..64_usize), 0..400),
        ) {
            let waits = Arc::new(Waits::default());
            let mut calls = Vec::new();
            for (step, key, client, index) in steps {
                match step {
                    0 | 1 => {
                        let session = (step == 0).then(|| InSession {
                            id: SessionId([client; 16]),
                            client: ClientId(u64::from(client)),
                            slots: 8,
                        });
                        let id = session.is_some().then_some(client);
                        let is_same = |call: &&Known| (call.client, call.session) == (client, id);
                        let before = calls.iter().filter(is_same).count();
                        let registered = register(&waits, file(key), client, session);
                        let has_room = before < if id.is_some() { 4 } else { CALLS_OF_CLIENT_MAX };
                        prop_assert_eq!(registered.is_some(), has_room);
                        let call = registered.map(|(wait, woken)| Known {
                            what: file(key),
                            client,
                            session: id,
                            _wait: wait,
                            woken,
                        });
                        calls.extend(call);
                    }
                    2 => {
                        waits.wake(&file(key));
                        for Known { what, woken, .. } in &calls {
                            let expected = usize::from(*what == file(key));
                            prop_assert_eq!(woken.0.swap(0, Ordering::SeqCst), expected);
                        }
                    }
                    _ => {
                        if index < calls.len() {
                            calls.swap_remove(index);
                        }
                    }
                }
                prop_assert_eq!(waits.count(), calls.len());
            }
            drop(calls);
            let table = waits.table.lock();
            prop_assert!(table.calls.is_empty() && table.counts.is_empty());
        }
    }
}
