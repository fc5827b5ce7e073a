//! What opens deny is denied to protocols that have no opens. Rings: unit, threads.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use steadfast_state::{Image, Open, Settings, ShareAccess, ShareDeny, State, StateError};

use crate::common::{
    BOTH, DENY_NONE, DENY_READ, DENY_WRITE, LEASE_MS, READ, WRITE, client, file, state,
};

fn at(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

fn open(access: ShareAccess, deny: ShareDeny) -> Open<'static> {
    Open { owner: b"o", file: file(1), access, deny }
}

/// What a stranger may do: read, write.
fn may(state: &State, now_ms: u64, address: IpAddr, number: u8) -> (bool, bool) {
    let may = |access| match state.judge_stranger(now_ms, address, &file(number), access) {
        Ok(()) => true,
        Err(StateError::Locked) => false,
        Err(error) => panic!("{error}"),
    };
    (may(READ), may(WRITE))
}

#[test]
fn what_opens_deny_is_denied_to_strangers_for_so_long() {
    let state = state();
    let client = client(&state, 0, "a");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
    state.open(&client, &open(READ, DENY_NONE)).expect("open");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
    let id = state.open(&client, &open(READ, DENY_WRITE)).expect("upgrade");
    assert_eq!(may(&state, 0, at(1), 1), (true, false));
    assert_eq!(may(&state, 0, at(1), 2), (true, true), "another file");
    state.close(&client, &id, None).expect("close");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
    state.open(&client, &open(READ, DENY_READ)).expect("open");
    assert_eq!(may(&state, 0, at(1), 1), (false, true));
    let latest = state.open(&client, &open(WRITE, DENY_WRITE)).expect("upgrade");
    assert_eq!(may(&state, 0, at(1), 1), (false, false));
    let less = state.downgrade(&client, &latest, &file(1), READ, DENY_READ).expect("downgrade");
    assert_eq!(may(&state, 0, at(1), 1), (false, true));
    state.close(&client, &less, None).expect("close");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
}

#[test]
fn a_client_whose_lease_has_expired_gives_way() {
    let state = state();
    let client = client(&state, 0, "a");
    state.open(&client, &open(READ, DENY_WRITE)).expect("open");
    assert_eq!(may(&state, LEASE_MS, at(1), 1), (true, false));
    assert_eq!(may(&state, LEASE_MS + 1, at(1), 1), (true, true));
    assert_eq!(state.opens(), 0);
}

#[test]
fn a_host_reads_and_writes_what_it_has_reserved_itself() {
    let state = state();
    let host = |number| state.host(0, b"h", at(number)).expect("host");
    let (one, two) = (host(1), host(2));
    state.nlm_share(&one, &file(1), b"p", BOTH, DENY_WRITE).expect("share");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
    let mapped = IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
    assert_eq!(may(&state, 0, mapped, 1), (true, true));
    assert_eq!(may(&state, 0, at(2), 1), (true, false));
    state.nlm_share(&two, &file(1), b"p", READ, DENY_READ).expect_err("the other reads");
    state.nlm_share(&one, &file(1), b"p", WRITE, DENY_NONE).expect("less");
    state.nlm_share(&two, &file(1), b"q", READ, DENY_READ).expect("share");
    assert_eq!(may(&state, 0, at(1), 1), (false, true), "by another host");
    state.nlm_unshare(&two, &file(1), b"q");
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
}

#[test]
fn denies_outlive_the_process() {
    let state = state();
    state.begin_keeping();
    let client = client(&state, 0, "a");
    state.open(&client, &open(READ, DENY_WRITE)).expect("open");
    let mut events = Vec::new();
    state.note_all();
    state.take_events(&mut events);
    let mut image = Image::default();
    image.add(&events).expect("events");
    let again = State::new(Settings::new(7));
    again.restore(0, image);
    assert_eq!(may(&again, 0, at(1), 1), (true, false));
    assert_eq!(may(&again, 0, at(1), 2), (true, true));
}

#[test]
fn no_deny_is_overlooked_while_others_come_and_go() {
    const TIMES: usize = 3_000;
    let state = Arc::new(state());
    let owner = client(&state, 0, "a");
    std::thread::scope(|scope| {
        for number in 0..2 {
            let state = Arc::clone(&state);
            scope.spawn(move || {
                let other = client(&state, 0, &number.to_string());
                for _ in 0..TIMES {
                    let request = |deny| Open { owner: b"p", ..open(READ, deny) };
                    // The other thread reads too, or denies that: then this is refused.
                    let Ok(id) = state.open(&other, &request(DENY_NONE)) else { continue };
                    let id = state.open(&other, &request(DENY_READ)).unwrap_or(id);
                    state.close(&other, &id, None).expect("close");
                }
            });
        }
        for _ in 0..TIMES {
            let id = state.open(&owner, &open(WRITE, DENY_WRITE)).expect("nobody else writes");
            assert!(!may(&state, 0, at(1), 1).1);
            state.close(&owner, &id, None).expect("close");
            assert!(may(&state, 0, at(1), 1).1);
        }
    });
    assert_eq!(may(&state, 0, at(1), 1), (true, true));
}
