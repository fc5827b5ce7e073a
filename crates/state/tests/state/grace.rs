//! Unit ring: who may reclaim after the server has lost its state, and until when.

use std::sync::Arc;

use steadfast_state::{
    Client, ClientRecords, Delegate, DelegationKind, Delegations, NotDelegated, Open, Reclaimable,
    SetClient, Settings, ShareAccess, ShareDeny, State, StateError, StateId,
};

use crate::common::{LEASE_MS, create, exchange, file, principal};

/// For so long nobody gets a delegation of a file after a recall, in ms.
const QUIET_MS: u64 = 30_000;

/// What would be on the disk.
#[derive(Clone, Default)]
struct Disk(ClientRecords);

impl Disk {
    /// All that is noted becomes stable.
    fn keep(&mut self, state: &State) {
        let mut events = Vec::new();
        let taken = state.take_records(&mut events);
        self.0.add(&events).expect("done");
        state.records_are_kept(taken);
        assert!(!state.has_unkept_records());
        assert_eq!(ClientRecords::read_file(&self.0.file()), Ok(self.0.clone()));
    }

    /// A server that has lost everything else.
    fn start(&self, instance: u32) -> State {
        let delegations = Delegations::Write;
        let state = State::new(Settings { delegations, ..Settings::new(instance) });
        state.restore_records(0, &self.0);
        state
    }
}

/// A client from minor version 1 on, with a session.
fn client(state: &State, now_ms: u64, owner: &str, verifier: u64) -> Arc<Client> {
    client_as(state, now_ms, owner, verifier, "root")
}

fn client_as(state: &State, now_ms: u64, owner: &str, verifier: u64, who: &str) -> Arc<Client> {
    let exchanged = exchange(state, now_ms, owner, verifier, who).expect("known");
    let created = create(state, now_ms, exchanged.client, exchanged.sequence, who);
    let session = created.expect("a session").session;
    Arc::clone(state.session(&session).expect("a session").client())
}

/// A client of minor version 0.
fn set_client(state: &State, now_ms: u64, owner: &str) -> Arc<Client> {
    let principal = principal("root");
    let request = SetClient {
        owner: owner.as_bytes(),
        verifier: [1; 8],
        principal: &principal,
        callback: steadfast_state::Callback::default(),
        address: "10.0.0.2".parse().expect("done"),
    };
    let set = state.set_client(now_ms, &request).expect("done");
    state.confirm_set_client(now_ms, set.client, set.confirm, &principal).expect("done");
    state.set_client_of(now_ms, set.client).expect("done")
}

/// Opens a file as the engine does.
fn open(state: &State, client: &Arc<Client>, is_reclaim: bool) -> Result<StateId, StateError> {
    open_file(state, client, 1, is_reclaim)
}

fn open_file(
    state: &State,
    client: &Arc<Client>,
    number: u8,
    is_reclaim: bool,
) -> Result<StateId, StateError> {
    state.record(client, is_reclaim);
    let (access, deny) = (ShareAccess::WRITE, ShareDeny::WRITE);
    state.open(client, &Open { owner: b"o", file: file(number), access, deny })
}

#[test]
fn a_client_is_recorded_before_its_first_open_and_once() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    state.complete_reclaim(&one).expect("done");
    assert!(!state.has_unkept_records(), "it has nothing yet");
    open(&state, &one, false).expect("done");
    assert!(state.has_unkept_records());
    disk.keep(&state);
    open_file(&state, &one, 2, false).expect("done");
    assert!(!state.has_unkept_records(), "an OPEN costs no flush but the first");
    let records: Vec<_> = disk.0.iter().collect();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].0, &*records[0].1.owner), (one.id(), &b"one"[..]));
    assert!(records[0].1.is_complete);
}

#[test]
fn only_who_is_recorded_may_reclaim_until_he_has_all() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    open(&state, &one, false).expect("done");
    disk.keep(&state);
    assert!(!disk.start(1).is_in_grace(0), "nothing was lost");

    let state = disk.start(2);
    assert!(state.is_in_grace(0));
    let stranger = client(&state, 0, "two", 1);
    let restarted = client(&state, 0, "one", 2);
    assert_eq!(state.may_reclaim(0, &stranger), Err(StateError::NoGrace));
    assert_eq!(state.may_reclaim(0, &restarted), Err(StateError::NoGrace), "another life");
    let state = disk.start(2);
    let false_one = client_as(&state, 0, "one", 1, "other");
    assert_eq!(state.may_reclaim(0, &false_one), Err(StateError::NoGrace), "another user");
    let state = disk.start(2);
    let set = set_client(&state, 0, "one");
    assert_eq!(state.may_reclaim(0, &set), Err(StateError::NoGrace), "another name space");
    let stranger = client(&state, 0, "two", 1);
    let one = client(&state, 0, "one", 1);
    assert_eq!(state.may_reclaim(0, &one), Ok(()));
    open(&state, &one, true).expect("done");
    state.complete_reclaim(&stranger).expect("done");
    assert!(state.is_in_grace(0));
    let anonymous = state.judge(&stranger, &StateId::ANONYMOUS, &file(7), ShareAccess::READ);
    assert_eq!(anonymous, Err(StateError::Grace));

    state.complete_reclaim(&one).expect("done");
    assert!(!state.is_in_grace(0), "all have what they had");
    assert_eq!(state.may_reclaim(0, &one), Err(StateError::NoGrace));
    assert!(state.has_unkept_records(), "nobody may get anything before that is stable");
    disk.keep(&state);
    let instances: Vec<u64> = disk.0.iter().map(|(id, _)| id.0 >> 32).collect();
    assert_eq!(instances, [2], "the new list has taken the place of the old one");
    assert_eq!(state.complete_reclaim(&one), Err(StateError::CompleteAlready));
}

#[test]
fn grace_lasts_on_while_somebody_reclaims_but_not_for_ever() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    open(&state, &client(&state, 0, "one", 1), false).expect("done");
    disk.keep(&state);

    let state = disk.start(2);
    // It noticed late, and takes one after the other.
    let one = client(&state, LEASE_MS - 5000, "one", 1);
    let mut now_ms = LEASE_MS - 5000;
    while now_ms < 2 * LEASE_MS {
        assert_eq!(state.may_reclaim(now_ms, &one), Ok(()), "{now_ms}");
        state.goes_on_reclaiming(now_ms);
        now_ms += 4000;
    }
    assert_eq!(state.may_reclaim(2 * LEASE_MS, &one), Err(StateError::NoGrace));

    // Who only could reclaim, and does not, keeps nobody waiting.
    let state = disk.start(2);
    let one = client(&state, LEASE_MS - 1, "one", 1);
    assert_eq!(state.may_reclaim(LEASE_MS - 1, &one), Ok(()));
    assert!(!state.is_in_grace(LEASE_MS));
}

#[test]
fn who_completed_its_reclaim_is_recorded_so_though_a_kill_came_between() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    open(&state, &one, true).expect("done");
    disk.keep(&state);
    assert!(disk.0.iter().all(|(_, record)| !record.is_complete));
    let all = {
        state.begin_keeping();
        state.note_all();
        let mut events = Vec::new();
        state.take_events(&mut events);
        state.complete_reclaim(&one).expect("done");
        state.take_events(&mut events);
        events
    };
    // Killed before the record was on the disk.
    let mut image = steadfast_state::Image::default();
    image.add(&all).expect("events");
    let state = State::new(Settings::new(1));
    state.restore(0, image);
    state.restore_records(0, &disk.0);
    disk.keep(&state);
    assert!(disk.0.iter().all(|(_, record)| record.is_complete), "{:?}", disk.0);
}

#[test]
fn grace_lasts_a_lease_at_most_and_that_if_somebody_cannot_end_it() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    open(&state, &client(&state, 0, "one", 1), false).expect("done");
    open_file(&state, &set_client(&state, 0, "old"), 2, false).expect("done");
    disk.keep(&state);
    let state = disk.start(2);
    state.complete_reclaim(&client(&state, 0, "one", 1)).expect("done");
    let old = set_client(&state, 0, "old");
    assert!(state.is_in_grace(LEASE_MS - 1));
    assert_eq!(state.may_reclaim(LEASE_MS - 20_000, &old), Ok(()));
    assert!(!state.has_unkept_records());
    assert_eq!(state.may_reclaim(LEASE_MS, &old), Err(StateError::NoGrace));
    assert!(state.has_unkept_records(), "that it is over");
    assert!(!state.is_in_grace(LEASE_MS - 1), "it never comes again");

    // Hosts that speak NLM cannot end it either.
    let state = disk.start(2);
    assert!(!state.hosts_may_reclaim(0));
    state.begin_grace(0, LEASE_MS);
    assert!(state.hosts_may_reclaim(0));
    state.complete_reclaim(&client(&state, 0, "one", 1)).expect("done");
    assert!(state.is_in_grace(0));
}

#[test]
fn a_second_crash_in_grace_loses_nothing() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    open(&state, &client(&state, 0, "one", 1), false).expect("done");
    open_file(&state, &client(&state, 0, "two", 1), 2, false).expect("done");
    disk.keep(&state);
    let state = disk.start(2);
    open(&state, &client(&state, 0, "one", 1), true).expect("done");
    disk.keep(&state);
    let state = disk.start(3);
    for owner in ["one", "two"] {
        let client = client(&state, 0, owner, 1);
        assert_eq!(state.may_reclaim(0, &client), Ok(()), "{owner:?}");
    }
}

#[test]
fn who_had_not_reclaimed_all_when_grace_ended_may_not_reclaim_after_the_next_crash() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    open(&state, &one, false).expect("done");
    open_file(&state, &one, 2, false).expect("done");
    disk.keep(&state);
    let state = disk.start(2);
    let one = client(&state, 0, "one", 1);
    open(&state, &one, true).expect("done");
    assert!(!state.is_in_grace(LEASE_MS));
    // Somebody has the other file for a while.
    let two = client(&state, LEASE_MS, "two", 1);
    state.complete_reclaim(&two).expect("done");
    let id = open_file(&state, &two, 2, false).expect("done");
    state.close(&two, &id, None).expect("done");
    disk.keep(&state);
    {
        let state = disk.start(3);
        let one = client(&state, 0, "one", 1);
        assert_eq!(state.may_reclaim(0, &one), Err(StateError::NoGrace));
    }
    // Once it says that it has all that it wanted, it counts as any other.
    state.complete_reclaim(&one).expect("done");
    disk.keep(&state);
    let state = disk.start(3);
    assert_eq!(state.may_reclaim(0, &client(&state, 0, "one", 1)), Ok(()));
}

#[test]
fn who_lost_what_it_had_to_another_is_struck_off_first() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    open(&state, &one, false).expect("done");
    disk.keep(&state);
    let now_ms = LEASE_MS + 1;
    let two = client(&state, now_ms, "two", 1);
    let id = open(&state, &two, false).expect("done");
    assert!(state.has_unkept_records());
    disk.keep(&state);
    state.close(&two, &id, None).expect("done");
    let state = disk.start(2);
    assert_eq!(
        state.may_reclaim(0, &client(&state, 0, "one", 1)),
        Err(StateError::NoGrace),
        "the file was another's meanwhile"
    );
    assert_eq!(state.may_reclaim(0, &client(&state, 0, "two", 1)), Ok(()));
}

#[test]
fn whoever_leaves_is_struck_off() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let clients = ["one", "two"].map(|owner| client(&state, 0, owner, 1));
    for (client, number) in clients.iter().zip(1..) {
        open_file(&state, client, number, false).expect("done");
    }
    disk.keep(&state);
    state.remove_client(clients[0].id()).expect("done");
    // A new life of the host.
    client(&state, 0, "two", 2);
    disk.keep(&state);
    assert!(disk.0.is_empty());
    assert!(!disk.start(2).is_in_grace(0), "nobody has anything to reclaim");
}

#[test]
fn a_process_that_goes_on_with_the_state_goes_on_with_the_records() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    state.begin_keeping();
    let (one, two) = (client(&state, 0, "one", 1), client(&state, 0, "two", 1));
    open(&state, &one, false).expect("done");
    open_file(&state, &two, 2, false).expect("done");
    disk.keep(&state);
    let left = client(&state, 0, "left", 1);
    open_file(&state, &left, 3, false).expect("done");
    disk.keep(&state);
    // It left, and the process was killed before that was stable.
    state.remove_client(left.id()).expect("done");
    let mut events = Vec::new();
    state.take_events(&mut events);
    let mut image = steadfast_state::Image::default();
    image.add(&events).expect("done");
    let again = |disk: &Disk| {
        let state = State::new(Settings::new(1));
        state.restore(0, image.clone());
        state.restore_records(0, &disk.0);
        state
    };
    let state = again(&disk);
    assert!(!state.is_in_grace(0));
    let one = state.client(one.id()).expect("done");
    open_file(&state, &one, 4, false).expect("done");
    disk.keep(&state);
    assert_eq!(disk.0.len(), 2);
    // Without the records all who have something are recorded anew.
    let mut lost = Disk::default();
    lost.keep(&again(&lost));
    assert_eq!(lost.0.len(), 2);
}

/// What asks for a delegation of a file, as if the client had had it.
fn delegate(number: u8) -> Delegate<'static> {
    let handle: &[u8] = if number == 1 { b"handle 1" } else { b"handle 2" };
    Delegate { file: file(number), kind: DelegationKind::Read, handle, is_reclaim: true }
}

/// What the client may take back of its open, with the delegation that it had of the file.
fn reclaimable(state: &State, client: &Client, number: u8) -> Result<Reclaimable, StateError> {
    let share = (ShareAccess::WRITE, ShareDeny::WRITE);
    state.may_reclaim_open(client, delegate(number).handle, share, true)
}

/// The client has two files open, by a delegation each; that of the first one is revoked. Its stateid.
fn with_revoked(state: &State, client: &Arc<Client>) -> StateId {
    state.complete_reclaim(client).expect("done");
    let ids = [1, 2].map(|number| {
        open_file(state, client, number, false).expect("done");
        state.delegate(0, client, &delegate(number)).expect("alone")
    });
    state.begin_change(0, None, &file(1)).expect_err("it is recalled");
    state.recall_is_sent(0, &file(1), &ids[0]);
    state.tick(LEASE_MS - 1);
    client.renew(LEASE_MS - 1);
    assert_eq!(state.test(client, &ids[0]), Ok(()));
    state.tick(LEASE_MS + 1);
    assert_eq!(state.test(client, &ids[0]), Err(StateError::DelegationRevoked));
    ids[0]
}

#[test]
fn a_delegation_that_was_revoked_is_not_reclaimed_until_its_client_knows() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    let revoked = with_revoked(&state, &one);
    assert!(state.awaits_record(&file(1)), "before others get what it kept from them");
    assert!(!state.awaits_record(&file(2)), "nobody has lost that");
    disk.keep(&state);
    assert!(!state.awaits_record(&file(1)));
    let now_ms = LEASE_MS + QUIET_MS + 2;
    assert_eq!(
        state.delegate(now_ms, &one, &delegate(1)),
        Err(NotDelegated::Contention),
        "it could be taken for the one that was revoked"
    );

    // All is lost twice: nobody has the records of the first loss instead yet.
    for disk in [disk.clone(), {
        let (mut twice, state) = (disk.clone(), disk.start(2));
        twice.keep(&state);
        twice
    }] {
        let state = disk.start(3);
        let same = client(&state, 0, "one", 1);
        assert_eq!(state.may_reclaim(0, &same), Ok(()), "the client is known");
        assert_eq!(reclaimable(&state, &same, 1), Ok(Reclaimable::Open), "the server knew it");
        assert_eq!(reclaimable(&state, &same, 2), Ok(Reclaimable::All), "what it has still");
        // What the client has opened by itself, under the delegation or under one that it did not have.
        for (access, deny) in [(ShareAccess::all(), 2), (ShareAccess::WRITE, 3)] {
            let share = (access, ShareDeny::from_bits_truncate(deny));
            for is_delegated in [false, true] {
                let judge = |number| {
                    let handle = delegate(number).handle;
                    state.may_reclaim_open(&same, handle, share, is_delegated)
                };
                assert_eq!(judge(1), Ok(Reclaimable::Nothing));
                assert_eq!(judge(2), Ok(Reclaimable::All));
            }
        }
        state.end_grace();
        assert_eq!(reclaimable(&state, &same, 1), Err(StateError::NoGrace));
    }

    // What it opens since, the server knows too.
    let is_recorded = |owner, number| {
        let (noted, access, deny) = (state.noted_records(), ShareAccess::READ, ShareDeny::empty());
        state.open(&one, &Open { owner, file: file(number), access, deny }).expect("done");
        state.noted_records() > noted
    };
    assert!(is_recorded(b"o", 1), "it may do more than before");
    assert!(!is_recorded(b"o", 1) && !is_recorded(b"p", 1), "no more than is recorded");
    assert!(!is_recorded(b"o", 2), "of that it has lost nothing");
    disk.keep(&state);
    let after = disk.start(3);
    let same = client(&after, 0, "one", 1);
    let share = (ShareAccess::all(), ShareDeny::WRITE);
    let judged = after.may_reclaim_open(&same, delegate(1).handle, share, true);
    assert_eq!(judged, Ok(Reclaimable::Open));

    // It says that it knows, and gets another one.
    state.free(&one, &revoked).expect("revoked");
    state.delegate(now_ms, &one, &delegate(1)).expect("alone");
    assert!(state.has_unkept_records());
    disk.keep(&state);
    let state = disk.start(3);
    let same = client(&state, 0, "one", 1);
    assert_eq!(reclaimable(&state, &same, 1), Ok(Reclaimable::All));
}

#[test]
fn a_client_that_is_gone_has_lost_nothing_that_is_recorded() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    let one = client(&state, 0, "one", 1);
    with_revoked(&state, &one);
    disk.keep(&state);
    assert_ne!(disk.0, ClientRecords::default());
    state.remove_client(one.id()).expect("done");
    assert!(state.awaits_record(&file(2)), "it had that");
    assert!(!state.awaits_record(&file(1)), "others know already that it had not");
    disk.keep(&state);
    assert!(!state.awaits_record(&file(2)));
    assert_eq!(disk.0.file(), ClientRecords::default().file());
}

#[test]
fn what_was_revoked_is_recorded_though_a_kill_came_between() {
    let mut disk = Disk::default();
    let state = disk.start(1);
    state.begin_keeping();
    let one = client(&state, 0, "one", 1);
    let revoked = with_revoked(&state, &one);
    let (mut image, mut whole) = (Vec::new(), Disk::default());
    state.take_events(&mut image);
    let taken = {
        let mut events = Vec::new();
        state.take_records(&mut events);
        events
    };
    whole.0.add(&taken).expect("done");
    let restored = |image: &[u8], disk: &Disk| {
        let delegations = Delegations::Write;
        let state = State::new(Settings { delegations, ..Settings::new(1) });
        let mut told = steadfast_state::Image::default();
        told.add(image).expect("done");
        state.restore(0, told);
        state.restore_records(0, &disk.0);
        state
    };
    let may = |disk: &Disk| {
        let state = disk.start(2);
        let same = client(&state, 0, "one", 1);
        assert_eq!(state.may_reclaim(0, &same), Ok(()), "the client is known");
        reclaimable(&state, &same, 1)
    };
    assert_eq!(may(&whole), Ok(Reclaimable::Open));
    // Killed before that was on the disk.
    disk.keep(&restored(&image, &disk));
    assert_eq!(may(&disk), Ok(Reclaimable::Open));
    // Or before it was there that the client knows.
    state.free(&one, &revoked).expect("revoked");
    state.take_events(&mut image);
    whole.keep(&restored(&image, &whole));
    assert_eq!(may(&whole), Ok(Reclaimable::All));
}
