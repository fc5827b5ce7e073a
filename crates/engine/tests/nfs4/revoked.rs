//! What is left to a client of a delegation that was revoked before the server lost all state.

use steadfast_engine::Delegations;
use steadfast_wire::nfs4::{NfsStat4, Op4, OpenClaim4, OpenDelegation4, ReclaimComplete4Args};

use crate::compounds::Ops;
use crate::delegations::open;
use crate::gate::nfs3;
use crate::harness::{Client, Server, sender};
use crate::reclaim::{Machine, reclaiming};

const READ: u32 = 1;
const BOTH: u32 = 3;
const JUKEBOX: u32 = 10_008;
const LEASE_MS: u64 = 90_000;
const RECLAIM_BAD: u32 = NfsStat4::ReclaimBad as u32;

/// To write.
#[track_caller]
fn delegated(client: &Client<'_>, file: &[u8], access: u32) {
    let told = open(client, file, access, OpenClaim4::Previous(2)).unwrap().1;
    assert!(matches!(told, OpenDelegation4::Write { .. }), "{told:?}");
}

fn complete(client: &Client<'_>) {
    let complete = ReclaimComplete4Args { one_fs: false };
    client.run(&Ops::new().op(Op4::ReclaimComplete, &complete)).succeeds();
}

fn set_size(server: &Server, file: &[u8]) -> u32 {
    nfs3(server, 2, file, b"", &[0, 0, 0, 1, 0, 7, 0, 0, 0])
}

/// A client has two files open, `f` to read and `g` for both, and each of them delegated to write; the first one is
/// revoked, since somebody has been waiting for it.
fn with_revoked(machine: &mut Machine) -> (Vec<u8>, Vec<u8>) {
    let server = machine.start_with(Delegations::Write);
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let files = [&b"f"[..], b"g"].map(|name| server.make_file(&root, name, 0o666));
    open(&client, &files[0], READ, OpenClaim4::Fh).unwrap();
    open(&client, &files[1], BOTH, OpenClaim4::Fh).unwrap();

    let server = machine.start_with(Delegations::Write);
    let client = reclaiming(&server, b"c");
    delegated(&client, &files[0], READ);
    delegated(&client, &files[1], BOTH);
    complete(&client);
    assert_eq!(set_size(&server, &files[0]), JUKEBOX, "it is recalled");
    for ms in [LEASE_MS - 1, LEASE_MS + 1] {
        server.now_ms.set(ms);
        client.handle(&[b"a"]);
        // What it takes away cannot be recorded.
        machine.set_full(true);
        server.engine.tick(ms);
        assert_eq!(set_size(&server, &files[0]), JUKEBOX);
        machine.set_full(false);
    }
    assert_eq!(set_size(&server, &files[0]), 0);
    let [f, g] = files;
    (f, g)
}

#[test]
fn the_open_is_reclaimed_without_what_was_revoked() {
    let mut machine = Machine::new();
    let (f, g) = with_revoked(&mut machine);
    let server = machine.start_with(Delegations::Write);
    let client = reclaiming(&server, b"c");
    // That open the client has made by itself, when it had no right to.
    for kind in [0, 1, 2] {
        let refused = open(&client, &f, BOTH, OpenClaim4::Previous(kind)).unwrap_err();
        assert_eq!(refused, RECLAIM_BAD);
    }
    let told = open(&client, &f, READ, OpenClaim4::Previous(2)).unwrap().1;
    assert_eq!(told, OpenDelegation4::None);
    // Of other files it has what it had.
    delegated(&client, &g, BOTH);
    complete(&client);
    assert_eq!(set_size(&server, &f), 0, "nobody is asked");
}

#[test]
fn a_file_system_with_another_number_is_the_same_one() {
    let mut machine = Machine::new();
    let (f, g) = with_revoked(&mut machine);
    machine.renumber();
    let server = machine.start_with(Delegations::Write);
    let client = reclaiming(&server, b"c");
    let told = open(&client, &f, READ, OpenClaim4::Previous(2)).unwrap().1;
    assert_eq!(told, OpenDelegation4::None);
    delegated(&client, &g, BOTH);
}
