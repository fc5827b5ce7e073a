//! Unit ring: what is told of clients.

use steadfast_state::{
    Held, Lock, LockBy, LockKind, LockRange, NlmLock, NlmOwner, Open, Protocol, StateError,
};

use crate::common::{BOTH, DENY_NONE, READ, address, client, file, state};

const RANGE: LockRange = LockRange { offset: 5, length: 10 };

#[test]
fn what_a_client_has_and_waits_for_is_told() {
    let state = state();
    let (one, two) = (client(&state, 0, "one"), client(&state, 0, "two"));
    let open = |owner, number| Open { owner, file: file(number), access: BOTH, deny: DENY_NONE };
    let lock = |open, range, is_waited_for| Lock {
        file: file(1),
        kind: LockKind::Write,
        range,
        by: LockBy::Open { open, owner: b"l" },
        is_waited_for,
    };
    let id = state.open(&one, &open(b"o", 1)).expect("opened");
    state.open(&one, &Open { access: READ, ..open(b"o", 2) }).expect("opened");
    state.lock(&one, &lock(id, RANGE, false)).expect("locked");
    let other = state.open(&two, &open(b"o", 1)).expect("opened");
    let all = LockRange { offset: 0, length: u64::MAX };
    state.lock(&two, &lock(other, all, true)).expect_err("it waits");
    let host = state.host(0, b"host", address()).expect("a host");
    let owner = NlmOwner { svid: 1, oh: [7].into() };
    let note: std::sync::Arc<[u8]> = [].into();
    let waits = Some(&note);
    let request =
        NlmLock { file: file(1), owner: &owner, range: RANGE, kind: LockKind::Read, waits };
    state.nlm_lock(&host, &request).expect_err("it waits");

    let (held, is_cut) = state.holdings(one.id(), 10).expect("known");
    let of_one: Vec<_> = held.iter().map(|one| (one.file, &one.held)).collect();
    let opened = |access| Held::Open { access, deny: DENY_NONE };
    assert_eq!(
        of_one,
        [
            (file(1), &opened(BOTH)),
            (file(2), &opened(READ)),
            (file(1), &Held::Lock { range: RANGE, kind: LockKind::Write }),
        ]
    );
    assert!(!is_cut);
    let (held, is_cut) = state.holdings(one.id(), 1).expect("known");
    assert_eq!((held.len(), is_cut), (2, true));
    let (held, _) = state.holdings(two.id(), 10).expect("known");
    let behind = vec![one.id()];
    let wait = Held::Wait { range: all, kind: LockKind::Write, behind };
    assert_eq!(held.last().map(|last| &last.held), Some(&wait));

    let reports = state.clients(0);
    let protocols: Vec<_> = reports.iter().map(|report| report.protocol).collect();
    assert_eq!(protocols, [Protocol::Nfs41, Protocol::Nfs41, Protocol::Nlm]);
    assert!(!reports[0].is_recorded, "nobody keeps the records");
    // A host's wait is no open; it comes behind both.
    let (held, _) = state.holdings(reports[2].id, 10).expect("known");
    let behind = vec![one.id(), two.id()];
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].held, Held::Wait { range: RANGE, kind: LockKind::Read, behind });
    state.remove_client(one.id()).expect("known");
    assert_eq!(state.holdings(one.id(), 10), Err(StateError::StaleClientId));
}
