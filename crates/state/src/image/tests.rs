//! That events come to the state that they were noted of: after every step, told by the state as a
//! whole, and after a restart. Ring: property.

mod golden;
mod owners;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use steadfast_vfs::StorageHandle;

use super::{Event, Image};
use crate::{
    CallbackEnd, CallbackTarget, Channel, Client, ClientId, CreateSession, Delegate,
    DelegationKind, Delegations, ExchangeId, FileKey, Lock, LockBy, LockKind, LockRange, NlmLock,
    NlmOwner, Open, Principal, Sequence, Sequenced, Session, SessionId, Settings, ShareAccess,
    ShareDeny, SlotInUse, State, StateError, StateId,
};

const LEASE_MS: u64 = 90_000;
const OWNERS: u64 = 3;

#[derive(Clone, Copy, Debug)]
enum What {
    /// A host starts, again perhaps, and makes a session if `is_confirmed`.
    Host {
        owner: u64,
        verifier: u64,
        is_confirmed: bool,
    },
    Session {
        client: usize,
    },
    EndSession {
        session: usize,
    },
    EndClient {
        client: usize,
    },
    Reclaimed {
        client: usize,
    },
    Request {
        session: usize,
        slot: u32,
        is_kept: bool,
    },
    /// A request does something, and is cut off.
    UnderWay {
        session: usize,
        slot: u32,
    },
    Open {
        client: usize,
        owner: u8,
        file: u8,
        access: u8,
        deny: u8,
    },
    Downgrade {
        id: usize,
        access: u8,
    },
    Close {
        id: usize,
    },
    LockByOpen {
        id: usize,
        owner: u8,
        is_write: bool,
        offset: u64,
        length: u64,
    },
    LockByLock {
        id: usize,
        is_write: bool,
        offset: u64,
        length: u64,
    },
    Unlock {
        id: usize,
        offset: u64,
        length: u64,
    },
    Free {
        id: usize,
    },
    /// What a client gets that had it before: nobody needs a path to it.
    Delegate {
        client: usize,
        file: u8,
        is_write: bool,
    },
    ReturnDelegation {
        id: usize,
    },
    Change {
        file: u8,
    },
    /// The back channel of a session is wanted, used, or refused.
    Callback {
        session: usize,
        act: u8,
    },
    /// A host that speaks NLM does something with a file.
    ByHost(ByHost),
    Wait {
        leases: u64,
    },
    Tick,
}

#[derive(Clone, Copy, Debug)]
struct ByHost {
    host: u8,
    file: u8,
    owner: u32,
    offset: u64,
    length: u64,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Lock { is_write: bool, waits: bool },
    Unlock,
    Cancel { is_write: bool },
    Share { access: u8, deny: u8 },
    Unshare,
    Restart { state: u32 },
}

fn by_host() -> impl Strategy<Value = ByHost> {
    let bit = any::<bool>();
    let act = prop_oneof![
        8 => (bit, bit).prop_map(|(is_write, waits)| Act::Lock { is_write, waits }),
        4 => Just(Act::Unlock),
        2 => bit.prop_map(|is_write| Act::Cancel { is_write }),
        2 => (1..4_u8, 0..2_u8).prop_map(|(access, deny)| Act::Share { access, deny }),
        1 => Just(Act::Unshare),
        1 => (1..5_u32).prop_map(|state| Act::Restart { state }),
    ];
    let length = prop_oneof![1..6_u64, Just(u64::MAX)];
    (0..2_u8, 0..3_u8, 0..2_u32, 0..12_u64, length, act).prop_map(
        |(host, file, owner, offset, length, act)| ByHost {
            host,
            file,
            owner,
            offset,
            length,
            act,
        },
    )
}

fn what() -> impl Strategy<Value = What> {
    let (any, bit) = (0..40_usize, proptest::bool::weighted(0.7));
    let (offset, length) = (0..12_u64, prop_oneof![1..6_u64, Just(u64::MAX)]);
    prop_oneof![
        3 => (0..OWNERS, 0..2_u64, bit).prop_map(|(owner, verifier, is_confirmed)| {
            What::Host { owner, verifier, is_confirmed }
        }),
        2 => any.clone().prop_map(|client| What::Session { client }),
        1 => any.clone().prop_map(|session| What::EndSession { session }),
        1 => any.clone().prop_map(|client| What::EndClient { client }),
        1 => any.clone().prop_map(|client| What::Reclaimed { client }),
        4 => (any.clone(), 0..4_u32, bit)
            .prop_map(|(session, slot, is_kept)| What::Request { session, slot, is_kept }),
        3 => (any.clone(), 0..4_u32).prop_map(|(session, slot)| What::UnderWay { session, slot }),
        10 => (any.clone(), 0..2_u8, 0..3_u8, 1..4_u8, 0..2_u8).prop_map(
            |(client, owner, file, access, deny)| What::Open { client, owner, file, access, deny }
        ),
        2 => (any.clone(), 1..4_u8).prop_map(|(id, access)| What::Downgrade { id, access }),
        4 => any.clone().prop_map(|id| What::Close { id }),
        8 => (any.clone(), 0..2_u8, bit, offset.clone(), length.clone()).prop_map(
            |(id, owner, is_write, offset, length)| {
                What::LockByOpen { id, owner, is_write, offset, length }
            }
        ),
        4 => (any.clone(), bit, offset.clone(), length.clone()).prop_map(
            |(id, is_write, offset, length)| What::LockByLock { id, is_write, offset, length }
        ),
        5 => (any.clone(), offset, length)
            .prop_map(|(id, offset, length)| What::Unlock { id, offset, length }),
        5 => (any.clone(), 0..3_u8, bit).prop_map(|(client, file, is_write)| {
            What::Delegate { client, file, is_write }
        }),
        3 => any.clone().prop_map(|id| What::ReturnDelegation { id }),
        2 => (0..3_u8).prop_map(|file| What::Change { file }),
        2 => any.prop_map(|id| What::Free { id }),
        3 => (0..3_usize, 0..8_u8).prop_map(|(session, act)| What::Callback { session, act }),
        16 => by_host().prop_map(What::ByHost),
        1 => (1..3_u64).prop_map(|leases| What::Wait { leases }),
        1 => Just(What::Tick),
    ]
}

fn settings() -> Settings {
    let mut settings = Settings::new(7);
    settings.limits.clients_max = 4;
    settings.delegations = Delegations::Write;
    settings
}

fn kept_state() -> State {
    let state = State::new(settings());
    state.begin_keeping();
    state
}

fn principal() -> Principal {
    Principal(b"root".as_slice().into())
}

fn channel() -> Channel {
    Channel {
        request_bytes_max: 4096,
        response_bytes_max: 4096,
        response_bytes_cached_max: 64,
        operations_max: 8,
        requests_max: 3,
    }
}

fn file(number: u8) -> FileKey {
    FileKey { file_system: 1, object: StorageHandle::new(&[number]).expect("short") }
}

fn kind(is_write: bool) -> LockKind {
    if is_write { LockKind::Write } else { LockKind::Read }
}

/// A state, and all that its clients were told.
struct Run {
    state: State,
    image: Image,
    now_ms: u64,
    sessions: Vec<(SessionId, [u32; 3])>,
    clients: Vec<Arc<Client>>,
    ids: Vec<(usize, StateId, FileKey)>,
}

impl Run {
    fn new() -> Self {
        Self {
            state: kept_state(),
            image: Image::default(),
            now_ms: 1,
            sessions: Vec::new(),
            clients: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// The last of what there is most often; any at times.
    fn client(&self, number: usize) -> Option<usize> {
        self.clients.len().checked_sub(1).map(|last| last.saturating_sub(number % 4))
    }

    fn id(&self, number: usize) -> Option<(usize, StateId, FileKey)> {
        let place = self.ids.len().checked_sub(1 + number % self.ids.len().max(1))?;
        let (client, id, file) = self.ids[place];
        Some((client, StateId { seqid: 0, ..id }, file))
    }

    fn host(&mut self, owner: u64, verifier: u64, is_confirmed: bool) -> Result<(), StateError> {
        let request = ExchangeId {
            owner: &owner.to_be_bytes(),
            verifier: verifier.to_be_bytes(),
            principal: &principal(),
            is_update: false,
            implementation: b"test",
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let exchanged = self.state.exchange_id(self.now_ms, &request)?;
        if is_confirmed {
            self.create_session(exchanged.client, exchanged.sequence)?;
        }
        Ok(())
    }

    fn create_session(&mut self, client: ClientId, sequence: u32) -> Result<(), StateError> {
        let request = CreateSession {
            client,
            sequence,
            principal: &principal(),
            fore: channel(),
            back: channel(),
            flags: 0,
            connection: 1,
        };
        let created = self.state.create_session(self.now_ms, &request)?;
        let session = self.state.session(&created.session).expect("created");
        self.sessions.push((created.session, [0; 3]));
        if !self.clients.iter().any(|known| known.id() == client) {
            self.clients.push(Arc::clone(session.client()));
        }
        Ok(())
    }

    fn request(&mut self, session: usize, slot: u32, is_kept: bool) -> Result<(), StateError> {
        self.begin(session, slot, |held, last| held.finish(is_kept.then_some(&last.to_be_bytes())))
    }

    /// Begins the next request of a slot.
    fn begin(
        &mut self,
        session: usize,
        slot: u32,
        end: impl FnOnce(SlotInUse, u32),
    ) -> Result<(), StateError> {
        let Some(place) = self.sessions.len().checked_sub(1 + session % 3) else { return Ok(()) };
        let (id, sequences) = &mut self.sessions[place];
        let session = self.state.session(id).ok_or(StateError::BadSession)?;
        let last = sequences.get_mut(slot as usize).ok_or(StateError::BadSlot)?;
        let request = request(slot, *last + 1);
        if let Sequenced::New(held) = session.begin(self.now_ms, &request)? {
            *last += 1;
            end(held, *last);
        }
        Ok(())
    }

    fn callback(&self, session: usize, act: u8) -> Option<()> {
        let place = self.sessions.len().checked_sub(1 + session % 3)?;
        let session = self.state.session(&self.sessions[place].0)?;
        match act {
            0 | 1 => session.set_callback_target(CallbackTarget {
                minor_version: act.into(),
                program: 4,
                credential: [act; 9].into(),
            }),
            2 => session.refuse_callbacks(),
            6 => drop(session.bind_back(5)),
            3 | 4 => session.end_callback(act.into(), CallbackEnd::NotSequenced),
            5 => session.end_callback(1, CallbackEnd::Sequenced { target_highest_slot: 1 }),
            _ => drop(session.begin_callback()),
        }
        Some(())
    }

    fn lock(
        &mut self,
        (client, by, file): (usize, LockBy<'_>, FileKey),
        is_write: bool,
        range: LockRange,
    ) {
        let client_of = Arc::clone(&self.clients[client]);
        let request = Lock { file, kind: kind(is_write), range, by, is_waited_for: false };
        if let Ok(id) = self.state.lock(&client_of, &request) {
            self.ids.push((client, id, file));
        }
    }

    /// What fails has changed nothing that anybody was told of.
    fn step(&mut self, what: What) -> Option<()> {
        match what {
            What::Host { owner, verifier, is_confirmed } => {
                self.host(owner, verifier, is_confirmed).ok()?;
            }
            What::Session { client } => {
                let client = self.clients[self.client(client)?].id();
                let reports = self.state.registry.lock();
                let sequence = reports.find(client)?.sequence_next();
                drop(reports);
                self.create_session(client, sequence).ok()?;
            }
            What::EndSession { session } => {
                let place = self.sessions.len().checked_sub(1 + session % 3)?;
                self.state.destroy_session(&self.sessions[place].0).ok()?;
            }
            What::EndClient { client } => {
                let client = self.clients[self.client(client)?].id();
                self.state.remove_client(client).ok()?;
            }
            What::Reclaimed { client } => {
                self.clients[self.client(client)?].complete_reclaim().ok()?;
            }
            What::Request { session, slot, is_kept } => {
                self.request(session, slot, is_kept).ok()?;
            }
            What::UnderWay { session, slot } => {
                self.begin(session, slot, |held, last| {
                    held.note_done(&last.to_be_bytes(), false);
                    held.note_done(&[last as u8], last.is_multiple_of(2));
                })
                .ok()?;
            }
            What::Open { client, owner, file: number, access, deny } => {
                let client = self.client(client)?;
                let request = Open {
                    owner: &[owner],
                    file: file(number),
                    access: ShareAccess::from_bits_truncate(access),
                    deny: ShareDeny::from_bits_truncate(deny),
                };
                let id = self.state.open(&self.clients[client], &request).ok()?;
                self.ids.push((client, id, file(number)));
            }
            What::Downgrade { id, access } => {
                let (client, id, file) = self.id(id)?;
                let access = ShareAccess::from_bits_truncate(access);
                let deny = ShareDeny::empty();
                self.state.downgrade(&self.clients[client], &id, &file, access, deny).ok()?;
            }
            What::Close { id } => {
                let (client, id, file) = self.id(id)?;
                self.state.close(&self.clients[client], &id, Some(&file)).ok()?;
            }
            What::LockByOpen { id, owner, is_write, offset, length } => {
                let (client, open, file) = self.id(id)?;
                let by = LockBy::Open { open, owner: &[owner] };
                self.lock((client, by, file), is_write, LockRange { offset, length });
            }
            What::LockByLock { id, is_write, offset, length } => {
                let (client, id, file) = self.id(id)?;
                let by = LockBy::Lock(id);
                self.lock((client, by, file), is_write, LockRange { offset, length });
            }
            What::Unlock { id, offset, length } => {
                let (client, id, file) = self.id(id)?;
                let range = LockRange { offset, length };
                self.state.unlock(&self.clients[client], &id, &file, range).ok()?;
            }
            What::Free { id } => {
                let (client, id, _) = self.id(id)?;
                self.state.free(&self.clients[client], &id).ok()?;
            }
            What::Delegate { client, file: number, is_write } => {
                let client = self.client(client)?;
                let kind = if is_write { DelegationKind::Write } else { DelegationKind::Read };
                let file = file(number);
                let request = Delegate { file, kind, handle: &[number], is_reclaim: true };
                let id = self.state.delegate(self.now_ms, &self.clients[client], &request).ok()?;
                self.ids.push((client, id, file));
            }
            What::ReturnDelegation { id } => {
                let (client, id, file) = self.id(id)?;
                self.state.return_delegation(&self.clients[client], &id, Some(&file)).ok()?;
            }
            What::Change { file: number } => {
                self.state.begin_change(self.now_ms, None, &file(number)).ok().map(drop)?;
            }
            What::Callback { session, act } => self.callback(session, act)?,
            What::ByHost(by_host) => self.step_of_host(by_host)?,
            What::Wait { leases } => self.now_ms += leases * LEASE_MS + 1,
            What::Tick => self.state.tick(self.now_ms),
        }
        Some(())
    }

    fn step_of_host(&self, by_host: ByHost) -> Option<()> {
        let ByHost { host, file: number, owner, offset, length, act } = by_host;
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let host = self.state.host(self.now_ms, &[b'h', host], address).expect("few hosts");
        let owner = NlmOwner { svid: owner, oh: b"oh".as_slice().into() };
        let (file, range) = (file(number), LockRange { offset, length });
        match act {
            Act::Lock { is_write, waits } => {
                let note: Arc<[u8]> = [1].into();
                let (kind, waits) = (kind(is_write), waits.then_some(&note));
                let request = NlmLock { file, owner: &owner, range, kind, waits };
                self.state.nlm_lock(&host, &request).ok()
            }
            Act::Unlock => self.state.nlm_unlock(&host, &file, &owner, range).ok(),
            Act::Cancel { is_write } => {
                self.state.nlm_cancel(&host, &file, &owner, range, kind(is_write)).ok().map(drop)
            }
            Act::Share { access, deny } => {
                let access = ShareAccess::from_bits_truncate(access);
                let deny = ShareDeny::from_bits_truncate(deny);
                self.state.nlm_share(&host, &file, b"o", access, deny).ok()
            }
            Act::Unshare => {
                self.state.nlm_unshare(&host, &file, b"o");
                None
            }
            Act::Restart { state } => {
                self.state.host_heard(&host, state);
                None
            }
        }
    }

    fn add_events(&mut self) {
        let mut events = Vec::new();
        let taken = self.state.take_events(&mut events);
        assert_eq!(self.state.has_unkept_events(), !events.is_empty());
        self.state.events_are_kept(taken);
        assert!(!self.state.has_unkept_events());
        self.image.add(&events).expect("events");
    }
}

fn request(slot: u32, sequence: u32) -> Sequence {
    Sequence {
        slot,
        sequence,
        highest_slot: 0,
        is_kept: true,
        request_bytes: 100,
        operations: 3,
        digest: u64::from(sequence),
    }
}

/// What the state is by its own account. Serial numbers that nobody was told are left out, and what
/// slots remember of requests that changed nothing.
fn told(state: &State) -> Image {
    let mut events = Vec::new();
    state.take_events(&mut events);
    assert!(events.is_empty(), "all were taken");
    state.note_all();
    let taken = state.take_events(&mut events);
    state.events_are_kept(taken);
    let mut image = Image::default();
    image.add(&events).expect("events");
    image
}

/// The images without what [`told`] leaves out; and nothing of it may be lower in the second.
fn assert_same(folded: &Image, told: &Image) {
    let (mut folded, mut told) = (without_slots(folded), without_slots(told));
    assert!(told.serial_next >= folded.serial_next);
    assert!(told.session_serial_next >= folded.session_serial_next);
    assert!(told.order_next >= folded.order_next);
    for image in [&mut folded, &mut told] {
        (image.serial_next, image.session_serial_next, image.order_next) = (0, 0, 0);
    }
    assert_eq!(folded, told);
}

fn without_slots(image: &Image) -> Image {
    let mut copy = image.clone();
    for client in copy.clients.values_mut() {
        for session in client.sessions.values_mut() {
            session.slots.clear();
        }
    }
    copy
}

/// The image without the hosts' opens by which they only wait: nobody waits any more after a restart.
fn without_waits(image: &Image) -> Image {
    let mut copy = image.clone();
    for (id, host) in &mut copy.hosts {
        let opens = &image.hosts[id].opens;
        host.opens.opens.retain(|number, open| {
            *open.owner != *crate::host::LOCKS || opens.has_ranges(*number, open)
        });
    }
    copy
}

/// What a slot says to a request.
fn answer(session: &Arc<Session>, slot: u32, sequence: u32) -> String {
    match session.begin(1, &request(slot, sequence)) {
        Ok(Sequenced::New(_)) => "new".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_state_is_what_its_events_come_to(steps in prop::collection::vec(what(), 1..120)) {
        let mut run = Run::new();
        for what in steps {
            run.step(what);
            run.add_events();
            assert_same(&run.image, &told(&run.state));
        }
        assert!(run.state.files.is_gate_right() && run.state.delegations.is_gate_right());
        let again = kept_state();
        again.restore(run.now_ms, run.image.clone());
        assert!(again.files.is_gate_right() && again.delegations.is_gate_right());
        assert_eq!(again.delegations(), run.state.delegations());
        assert!(!again.has_unkept_events(), "a restored state notes itself when it is asked to");
        let without_waits = without_waits(&run.image);
        assert_same(&without_waits, &told(&again));
        if without_waits == run.image {
            assert_eq!(again.opens(), run.state.opens());
            assert_eq!(again.open_files(), run.state.open_files());
        }
        for number in 0..3 {
            let mut held = run.state.locks(&file(number));
            held.retain(|lock| !lock.is_waiting);
            assert_eq!(again.locks(&file(number)), held);
        }
        let counts = |state: &State| {
            let mut all: Vec<_> = state
                .clients(run.now_ms)
                .into_iter()
                .map(|client| (client.id, client.sessions, client.locks))
                .collect();
            all.sort_unstable();
            all
        };
        assert_eq!(counts(&again), counts(&run.state));
        for (id, sequences) in &run.sessions {
            let (Some(before), Some(after)) = (run.state.session(id), again.session(id)) else {
                assert!(run.state.session(id).is_none() && again.session(id).is_none());
                continue;
            };
            for (sequence, slot) in sequences.iter().zip(0..) {
                // What was kept is said again; what was not is executed again; the next is new.
                let said = answer(&before, slot, *sequence);
                let again = answer(&after, slot, *sequence);
                assert!(again == said || again == "new" && !said.contains("Kept("), "{said} {again}");
                assert_eq!(answer(&after, slot, sequence + 1), "new");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_events_are_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0..200_usize,
    ) {
        let _ = Image::default().add(&bytes);
        let mut run = Run::new();
        run.host(1, 1, true).expect("made");
        let mut events = Vec::new();
        run.state.take_events(&mut events);
        events.truncate(cut);
        let mut image = Image::default();
        let _ = image.add(&events);
        State::new(settings()).restore(1, image);
    }
}

#[test]
fn an_id_is_never_given_again_after_a_restart() {
    let mut run = Run::new();
    run.host(1, 1, true).expect("made");
    run.step(What::Open { client: 0, owner: 0, file: 0, access: 3, deny: 0 }).expect("opened");
    run.step(What::Close { id: 0 }).expect("closed");
    run.add_events();
    let (first, opened) = (run.clients[0].id(), run.ids[0].1);
    run.state.remove_client(first).expect("was there");
    run.add_events();
    let state = State::new(settings());
    state.restore(run.now_ms, run.image);
    let mut run = Run { state, image: Image::default(), clients: Vec::new(), ..Run::new() };
    run.host(1, 1, true).expect("made");
    assert_ne!(run.clients[0].id(), first);
    run.step(What::Open { client: 0, owner: 0, file: 0, access: 3, deny: 0 }).expect("opened");
    assert_ne!(run.ids[0].1.other, opened.other);
}

#[test]
fn a_request_that_was_under_way_goes_on_after_a_restart() {
    let mut run = Run::new();
    run.host(1, 1, true).expect("made");
    run.step(What::UnderWay { session: 0, slot: 1 }).expect("begun");
    run.add_events();
    let (id, sequences) = run.sessions[0];
    let sequence = sequences[1];
    assert!(run.image.may_be_under_way(&id, 1, sequence));
    assert_eq!(run.image.has_unstable(), sequence.is_multiple_of(2));
    // Also after another one.
    for _ in 0..2 {
        let state = kept_state();
        state.restore(1, run.image.clone());
        run.image = told(&state);
        let session = state.session(&id).expect("goes on");
        let other = Sequence { digest: 77, ..request(1, sequence) };
        for (request, done) in [(other, None), (request(1, sequence), Some(&[sequence as u8][..]))]
        {
            let again = kept_state();
            again.restore(1, run.image.clone());
            let session = again.session(&id).expect("goes on");
            let Ok(Sequenced::New(held)) = session.begin(1, &request) else { panic!("not new") };
            assert_eq!(held.done_before().as_deref(), done);
            held.finish(Some(b"reply"));
            let mut events = Vec::new();
            again.take_events(&mut events);
            let mut image = run.image.clone();
            image.add(&events).expect("events");
            assert!(!image.may_be_under_way(&id, 1, sequence) && !image.has_unstable());
            assert!(image.may_be_under_way(&id, 1, sequence + 1));
        }
        let Ok(Sequenced::New(held)) = session.begin(1, &request(0, sequences[0] + 1)) else {
            panic!("not new")
        };
        assert_eq!(held.done_before(), None, "it is of another slot");
    }
}

#[test]
fn what_belongs_together_is_taken_together() {
    let state = kept_state();
    let events = |numbers: [u16; 2]| {
        for number in numbers {
            state.journal.note(&Event::ClientGone(ClientId::new(7, 3, number)));
        }
    };
    let mut one = Vec::new();
    Event::ClientGone(ClientId::new(7, 3, 1)).append(&mut one);
    std::thread::scope(|scope| {
        let notes = scope.spawn(|| {
            for _ in 0..2_000 {
                let together = state.together();
                assert!(together.is_some(), "it is kept");
                events([1, 2]);
            }
        });
        while !notes.is_finished() {
            let mut taken = Vec::new();
            state.take_events(&mut taken);
            assert_eq!(taken.len() % (2 * one.len()), 0);
        }
    });
    assert!(State::new(settings()).together().is_none(), "nobody keeps it");
}

#[test]
fn a_client_told_anew_has_all_its_opens_at_any_kill() {
    let mut run = Run::new();
    run.host(1, 1, true).expect("made");
    for file in 0..40 {
        let open = What::Open { client: 0, owner: 0, file, access: 3, deny: 0 };
        run.step(open).expect("opened");
    }
    run.add_events();
    let mut image = run.image.clone();
    let opens = image.stateids();
    let state = &run.state;
    let times = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for told in 0..1_000 {
                state.note_all();
                // What is noted faster than it is taken would pile up.
                while times.load(Ordering::Relaxed) <= told {
                    std::thread::yield_now();
                }
            }
        });
        let mut found = HashSet::from([opens]);
        while times.load(Ordering::Relaxed) < 1_000 {
            let mut taken = Vec::new();
            state.take_events(&mut taken);
            image.add(&taken).expect("events");
            found.insert(image.stateids());
            times.fetch_add(u32::from(!taken.is_empty()), Ordering::Relaxed);
        }
        assert_eq!(found, HashSet::from([opens]));
    });
    assert_eq!(opens, 40);
}
