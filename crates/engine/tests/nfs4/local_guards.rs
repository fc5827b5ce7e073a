//! Delegations and local processes: who is kept waiting, who is asked to return what.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_engine::{ExportTable, LocalGuard, Outbound, OutboundCall};
use steadfast_vfs::{Caller, Cred, FileSystem, Name, StorageHandle, Waiting};
use steadfast_wire::nfs4::{NfsStat4, OpenClaim4, OpenDelegation4};

use crate::callbacks::{bind, flags};
use crate::compounds::Ops;
use crate::delegations::{BOTH, Bench, READ, SECOND, WANT_ANY, delegated, open, open_cut, returns};
use crate::gate::nfs3;
use crate::harness::Client;

/// How long local processes are kept waiting, in seconds.
const PATIENCE_S: u64 = 45;
const REQUIRED: LocalGuard = LocalGuard::Required { patience_ms: PATIENCE_S * SECOND };
const JUKEBOX: u32 = 10008;

/// Counts how often effects were to be sent.
#[derive(Default)]
struct Roused(AtomicUsize);

impl Outbound for Roused {
    fn send(&self, _: OutboundCall) {}

    fn send_effects(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, _: &[u8], _: IpAddr) -> bool {
        true
    }

    fn own_name(&self) -> &'static str {
        "server"
    }

    fn state_number(&self) -> u32 {
        5
    }
}

/// The file as its storage knows it.
fn stored(bench: &Bench) -> StorageHandle {
    let cred = Cred { uid: 0, gid: 0, groups: smallvec::SmallVec::new() };
    let caller = Caller::new(&cred, Waiting::Allowed);
    let root = bench.model.root().unwrap().handle;
    bench.model.lookup(&caller, &root, Name::new(b"f").unwrap()).result.unwrap().handle
}

fn wanted(client: &Client<'_>, bench: &Bench, access: u32) -> OpenDelegation4<'static> {
    open(client, &bench.file, access | WANT_ANY, OpenClaim4::Fh).unwrap().1
}

#[test]
fn a_local_process_waits_until_all_have_returned_their_delegations() {
    for (access, writes) in [(READ, true), (BOTH, false)] {
        let bench = Bench::guarding(REQUIRED);
        let roused = Arc::<Roused>::default();
        bench.server.engine.set_outbound(Arc::clone(&roused) as _);
        let file = stored(&bench);
        let one = bench.client(b"one", 1);
        let delegation = delegated(&one, &bench.file, access);
        assert_eq!(bench.model.guards(), 1);
        if access == READ {
            assert!(bench.model.local_open(&file, false).unwrap(), "who reads is not kept waiting");
        }
        assert!(!bench.model.local_open(&file, writes).unwrap());
        assert_eq!(roused.0.load(Ordering::Relaxed), 1, "the local process waits for that");
        assert_eq!(bench.recalled().stateid, delegation);
        assert!(!bench.model.local_open(&file, writes).unwrap());
        assert_eq!(returns(&one, &bench.file, delegation), 0);
        assert_eq!(bench.model.guards(), 0);
        assert!(bench.model.local_open(&file, writes).unwrap());
    }
}

#[test]
fn one_guard_is_for_all_readers() {
    let bench = Bench::guarding(REQUIRED);
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let first = delegated(&one, &bench.file, READ);
    let second = delegated(&two, &bench.file, READ);
    assert_eq!(bench.model.guards(), 1);
    assert_eq!(returns(&one, &bench.file, first), 0);
    assert_eq!(bench.model.guards(), 1);
    assert!(!bench.model.local_open(&stored(&bench), true).unwrap());
    bench.tick(SECOND);
    assert_eq!(bench.recalls().len(), 1);
    assert_eq!(returns(&two, &bench.file, second), 0);
    assert_eq!(bench.model.guards(), 0);
}

#[test]
fn what_a_local_process_uses_is_not_delegated() {
    let bench = Bench::guarding(REQUIRED);
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let file = stored(&bench);
    bench.model.local_writer(&file, true).unwrap();
    assert_eq!(wanted(&one, &bench, READ), OpenDelegation4::NoneButTells(1, false));
    assert_eq!(bench.model.guards(), 0);
    bench.model.local_writer(&file, false).unwrap();
    assert!(matches!(wanted(&two, &bench, READ), OpenDelegation4::Read { .. }));
    // Without guards nobody asks about local processes.
    let bench = Bench::new();
    bench.model.local_writer(&stored(&bench), true).unwrap();
    delegated(&bench.client(b"one", 1), &bench.file, READ);
}

#[test]
fn who_comes_between_guard_and_grant_has_it_recalled() {
    let bench = Bench::guarding(REQUIRED);
    let one = bench.client(b"one", 1);
    bench.model.local_open_at_next_guard();
    let delegation = delegated(&one, &bench.file, READ);
    assert_eq!(bench.recalled().stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert!(bench.model.local_open(&stored(&bench), true).unwrap());
}

#[test]
fn what_is_not_returned_while_a_local_process_waits_is_revoked() {
    // Who writes unseen has the time that it has by all others: it may be sending what it has written.
    for (access, seconds) in [(READ, PATIENCE_S), (BOTH, 91)] {
        let bench = Bench::guarding(REQUIRED);
        let one = bench.client(b"one", 1);
        let delegation = delegated(&one, &bench.file, access);
        assert!(!bench.model.local_open(&stored(&bench), true).unwrap());
        for _ in 1..seconds {
            bench.tick(SECOND);
            // It is heard of, and its lease does not expire.
            flags(&one);
        }
        assert_eq!(bench.model.guards(), 1, "{access}");
        bench.tick(3 * SECOND);
        assert_eq!(bench.model.guards(), 0, "{access}");
        let revoked = NfsStat4::DelegRevoked as u32;
        assert_eq!(returns(&one, &bench.file, delegation), revoked, "{access}");
    }
}

#[test]
fn what_cannot_be_guarded_is_not_delegated() {
    let bench = Bench::guarding(REQUIRED);
    let one = bench.client(b"one", 1);
    bench.model.set_unguarded(true);
    for _ in 0..2 {
        assert_eq!(wanted(&one, &bench, READ), OpenDelegation4::NoneSince(3));
    }
    // It is asked again when shares have changed.
    bench.model.set_unguarded(false);
    assert_eq!(wanted(&one, &bench, READ), OpenDelegation4::NoneSince(3));
    bench.server.engine.set_exports(ExportTable::new(bench.exports.clone()));
    assert!(matches!(wanted(&one, &bench, READ), OpenDelegation4::Read { .. }));
}

#[test]
fn an_open_that_cuts_is_delegated_nothing() {
    let bench = Bench::guarding(REQUIRED);
    let one = bench.client(b"one", 1);
    let cut = Ops::put(&bench.root).then(&open_cut(b"f", BOTH));
    one.run(&cut).succeeds();
    assert_eq!(bench.model.guards(), 0);
    assert_eq!(bench.server.engine.statistics().delegations.granted_write, 0);
}

#[test]
fn a_restart_recalls_what_nothing_guarded_meanwhile() {
    for (guard, is_recalled) in [(REQUIRED, true), (LocalGuard::None, false)] {
        let bench = Bench::guarding(guard);
        let client = bench.client(b"one", 1);
        let delegation = delegated(&client, &bench.file, READ);
        let Client { from, id, session, sequence, .. } = client;
        let bench = bench.restarted();
        let client = Client { server: &bench.server, from, id, session, sequence, minor: 1 };
        assert_eq!(bind(&client, &client.from, 7), Ok(3));
        bench.tick(11 * SECOND);
        let recalls: Vec<_> = bench.recalls().iter().map(|recall| recall.stateid).collect();
        assert_eq!(recalls, if is_recalled { vec![delegation] } else { vec![] });
    }
}

#[test]
fn a_share_that_is_not_served_any_more_is_let_go() {
    let bench = Bench::guarding(REQUIRED);
    let one = bench.client(b"one", 1);
    delegated(&one, &bench.file, READ);
    assert_eq!(bench.model.guards(), 1);
    bench.server.engine.set_exports(ExportTable::new(bench.exports.clone()));
    assert_eq!(bench.model.guards(), 1);
    bench.server.engine.set_exports(ExportTable::new(vec![]));
    assert_eq!(bench.model.guards(), 0);
    // Nothing tells of local processes any more.
    assert_eq!(bench.server.engine.statistics().delegations.recalled, 1);
}

#[test]
fn calls_of_others_have_the_guard_taken_away_first() {
    let bench = Bench::guarding(REQUIRED);
    let one = bench.client(b"one", 1);
    let delegation = delegated(&one, &bench.file, READ);
    let write = || nfs3(&bench.server, 7, &bench.file, b"", &[0, 0, 1, 2, 1, 0]);
    assert_eq!(write(), JUKEBOX);
    assert_eq!(bench.model.guards(), 1);
    assert_eq!(bench.recalled().stateid, delegation);
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!((write(), bench.model.guards()), (0, 0));
}
