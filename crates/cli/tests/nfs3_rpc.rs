//! Process ring: RPC as it should not be spoken, and peers that behave badly, against the real
//! program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nfs3_support::{Fixture, PATIENCE};
use steadfast_bench::server_cost::resident_bytes;
use steadfast_bench::storm::{Storm, run as storm};
use steadfast_client::{
    AcceptedError, ClientError, Denial, Identity, Procedure, Reply, ReplyBody, RpcConnection,
    RpcTransport, StableHow, append_call, arguments, mount, nfsacl, procedure,
};

/// More than a server of this size has any reason to use.
const RESIDENT_BYTES_MAX: u64 = 256 << 20;

fn connect(address: SocketAddr) -> RpcConnection {
    RpcConnection::connect(address, PATIENCE).unwrap()
}

fn body(f: &mut Fixture, procedure: Procedure, identity: &Identity, arguments: &[u8]) -> ReplyBody {
    f.client.transport().exchange(procedure, identity, arguments).unwrap().body
}

/// The server serves, and is not swollen.
fn assert_well(f: &mut Fixture) {
    let (mut client, root) = f.mount();
    client.getattr(&root).unwrap();
    let resident = resident_bytes(f.running.id()).unwrap();
    assert!(resident < RESIDENT_BYTES_MAX, "{} MiB", resident >> 20);
}

#[test]
fn programs_versions_and_procedures_that_are_not_served() {
    let mut f = Fixture::new();
    let root = Identity::root();
    let getattr = procedure::GETATTR;
    let mut accepted = |procedure| match body(&mut f, procedure, &root, &[]) {
        ReplyBody::Accepted(error) => error,
        other => panic!("{procedure:?}: {other:?}"),
    };
    assert_eq!(
        accepted(Procedure { program: 200_000, ..getattr }),
        AcceptedError::ProgramUnavailable
    );
    for version in [0, 2, 5, u32::MAX] {
        assert_eq!(
            accepted(Procedure { version, ..getattr }),
            AcceptedError::ProgramMismatch { low: 3, high: 4 }
        );
    }
    assert_eq!(
        accepted(Procedure { version: 4, ..mount::MNT }),
        AcceptedError::ProgramMismatch { low: 1, high: 3 }
    );
    for procedure in [
        Procedure { number: 22, ..getattr },
        Procedure { number: u32::MAX, ..getattr },
        Procedure { number: 6, ..mount::MNT },
        Procedure { number: 5, ..nfsacl::GETACL },
    ] {
        assert_eq!(accepted(procedure), AcceptedError::ProcedureUnavailable);
    }
}

#[test]
fn arguments_that_end_early_are_garbage_for_every_procedure() {
    let mut f = Fixture::new();
    let root = Identity::root();
    for procedure in procedure::ALL.iter().skip(1) {
        for arguments in [&[][..], &[0, 0, 0, 32, 1, 2, 3], &[0xff; 4], &[0, 0, 0, 65]] {
            let got = body(&mut f, *procedure, &root, arguments);
            assert_eq!(
                got,
                ReplyBody::Accepted(AcceptedError::GarbageArguments),
                "{procedure:?} {arguments:?}"
            );
        }
    }
}

#[test]
fn other_rpc_versions_and_bad_credentials_are_denied() {
    let mut f = Fixture::new();
    let handle = arguments::handle(&f.root.clone());
    let connection = f.client.transport();
    let xid = connection.take_xid();
    let mut message = Vec::new();
    append_call(&mut message, xid, procedure::GETATTR, &Identity::root(), &handle);
    message[8..12].copy_from_slice(&3_u32.to_be_bytes());
    connection.send_message(&message).unwrap();
    assert_eq!(
        connection.receive(xid).unwrap().body,
        ReplyBody::Denied(Denial::RpcMismatch { low: 2, high: 2 })
    );

    let mut denied = |identity: Identity| match body(&mut f, procedure::GETATTR, &identity, &handle)
    {
        ReplyBody::Denied(Denial::Auth(why)) => why,
        other => panic!("{identity:?}: {other:?}"),
    };
    let (bad_cred, rejected_cred, too_weak) = (1, 2, 5);
    let many = Identity::Sys { uid: 1, gid: 1, gids: (0..17).collect() };
    assert_eq!(denied(many), bad_cred);
    assert_eq!(denied(Identity::Raw { flavour: 1, body: vec![0; 8] }), bad_cred);
    assert_eq!(denied(Identity::Raw { flavour: 1, body: vec![] }), bad_cred);
    assert_eq!(denied(Identity::Raw { flavour: 1, body: vec![0xff; 64] }), bad_cred);
    let unknown = denied(Identity::Raw { flavour: 6, body: vec![0; 20] });
    assert!(matches!(unknown, 2 | 5), "{unknown} is neither {rejected_cred} nor {too_weak}");
    denied(Identity::Raw { flavour: 1, body: vec![0; 404] });
}

#[test]
fn sixteen_groups_are_served() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    f.client.set_identity(Identity::Sys { uid: 1, gid: 1, gids: (1..=16).collect() });
    f.client.getattr(&root).unwrap();
}

#[test]
fn fragments_of_any_size_make_one_record() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let data: Vec<u8> = (0..5000).map(|index| (index % 251) as u8).collect();
    let write = arguments::write(&file, 0, &data, StableHow::FileSync);
    for fragment_bytes in [1, 3, 4, 1000, 6000] {
        let connection = f.client.transport();
        let xid = connection.take_xid();
        let mut message = Vec::new();
        append_call(&mut message, xid, procedure::WRITE, &Identity::root(), &write);
        connection.send_fragmented(&message, fragment_bytes).unwrap();
        let reply = connection.receive(xid).unwrap();
        assert_eq!(reply.results().unwrap()[..4], [0; 4], "fragments of {fragment_bytes}");
        assert!(f.client.read(&file, 0, 5000).unwrap().data == data);
    }
}

#[test]
fn empty_fragments_without_end_are_not_listened_to_for_ever() {
    let mut f = Fixture::new();
    let mut connection = connect(f.address());
    // Sixteen MiB of fragments without a byte in them.
    let empty = vec![0; 1 << 20];
    for _ in 0..16 {
        match connection.send_bytes(&empty) {
            Ok(()) => {}
            Err(ClientError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_well(&mut f);
}

#[test]
fn what_is_no_call_ends_the_connection() {
    let mut f = Fixture::new();
    let reply: Vec<u8> =
        [7_u32, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
    for message in [&reply[..], &[1, 2, 3], &[]] {
        let mut connection = connect(f.address());
        connection.send_message(message).unwrap();
        let outcome = connection.receive_any();
        assert!(matches!(outcome, Err(ClientError::Closed)), "{message:?}: {outcome:?}");
    }
    assert_well(&mut f);
}

#[test]
fn an_announced_record_of_gigabytes_costs_nothing() {
    let mut f = Fixture::new();
    let mut kept = Vec::new();
    for mark in [u32::MAX, 0x7fff_ffff, 0x8fff_ffff, 0x8200_0000] {
        for _ in 0..8 {
            let mut connection = connect(f.address());
            // The server may close at once, or after some bytes; what it must not do is keep them.
            let sent = connection
                .send_bytes(&mark.to_be_bytes())
                .and_then(|()| connection.send_bytes(&vec![0; 4 << 20]));
            match sent {
                Ok(()) | Err(ClientError::Closed | ClientError::TimedOut { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            kept.push(connection);
        }
    }
    assert_well(&mut f);
}

#[test]
fn a_sender_of_single_bytes_is_answered_and_holds_nobody_up() {
    let mut f = Fixture::new();
    let mut slow = connect(f.address());
    slow.stream().set_nodelay(true).unwrap();
    let xid = slow.take_xid();
    let mut message = vec![0; 4];
    let handle = arguments::handle(&f.root.clone());
    append_call(&mut message, xid, procedure::GETATTR, &Identity::root(), &handle);
    let mark = 0x8000_0000 | (message.len() as u32 - 4);
    message[..4].copy_from_slice(&mark.to_be_bytes());
    let root = f.root.clone();
    for byte in &message {
        slow.send_bytes(std::slice::from_ref(byte)).unwrap();
        f.client.getattr(&root).unwrap();
    }
    assert!(slow.receive(xid).unwrap().results().is_some());
}

#[test]
fn who_never_reads_replies_is_not_stored_for() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let data = vec![7; 1 << 20];
    f.client.write(&file, 0, &data, StableHow::Unstable).unwrap();
    let read = arguments::read(&file, 0, 1 << 20);
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut connection = connect(f.address());
        connection.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        for _ in 0..500 {
            // The server stops listening to who does not listen.
            if connection.send(procedure::READ, &Identity::root(), &read).is_err() {
                break;
            }
        }
        deaf.push(connection);
    }
    let started = Instant::now();
    assert_well(&mut f);
    assert!(f.client.read(&file, 0, 1 << 20).unwrap().data == data);
    assert!(started.elapsed() < PATIENCE);
    // Who listens late still gets what was promised.
    let reply = deaf.first_mut().unwrap().receive_any().unwrap();
    assert!(matches!(reply.body, ReplyBody::Success { .. }));
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let f = Fixture::new();
    let mut stream = TcpStream::connect(f.address()).unwrap();
    let mut sent = Vec::new();
    for xid in 1..=10 {
        let mut message = vec![0; 4];
        append_call(&mut message, xid, procedure::NULL, &Identity::None, &[]);
        let mark = 0x8000_0000 | (message.len() as u32 - 4);
        message[..4].copy_from_slice(&mark.to_be_bytes());
        sent.extend(message);
    }
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    assert_eq!(replies.len(), 10 * 28);
}

#[test]
fn thousands_of_idle_connections_fit() {
    let mut f = Fixture::new();
    let (_, hard) = limit();
    let count = 3000.min(hard.saturating_sub(300) as usize);
    let mut idle = Vec::new();
    for _ in 0..count {
        match TcpStream::connect(f.address()) {
            Ok(stream) => idle.push(stream),
            Err(error) => panic!("connection {}: {error}", idle.len()),
        }
    }
    assert_well(&mut f);
    for stream in idle.iter_mut().step_by(97) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut message = vec![0; 4];
        append_call(&mut message, 5, procedure::NULL, &Identity::None, &[]);
        let mark = 0x8000_0000 | (message.len() as u32 - 4);
        message[..4].copy_from_slice(&mark.to_be_bytes());
        stream.write_all(&message).unwrap();
        let mut reply = [0; 28];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[4..8], 5_u32.to_be_bytes());
    }
}

/// Soft and hard limit of descriptors.
fn limit() -> (u64, u64) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().filter_map(|word| word.parse().ok());
    let soft = numbers.next().unwrap_or(1024);
    // This process stays at its soft limit.
    (soft, soft.min(numbers.next().unwrap_or(soft)))
}

#[test]
fn a_call_repeated_over_a_new_connection_is_answered_alike() {
    let mut f = Fixture::new();
    f.file("a");
    let mut message = Vec::new();
    let remove = arguments::place(&f.root.clone(), b"a");
    append_call(&mut message, 0x1234_5678, procedure::REMOVE, &Identity::root(), &remove);
    let send = || -> Reply {
        let mut connection = connect(f.address());
        connection.send_message(&message).unwrap();
        connection.receive(0x1234_5678).unwrap()
    };
    let first = send();
    assert_eq!(first.results().unwrap()[..4], [0; 4]);
    assert_eq!(send(), first);
    assert_eq!(send(), first);
}

#[test]
fn fifty_thousand_damaged_calls_leave_the_server_well() {
    let mut f = Fixture::new();
    let report = storm(
        &Storm {
            server: f.address(),
            path: common::utf8(&f.place.share).to_owned(),
            calls: 50_000,
            seed: 7,
            server_pid: Some(f.running.id()),
            resident_bytes_max: RESIDENT_BYTES_MAX,
        },
        |_| {},
    )
    .unwrap();
    // The damage is neither none nor all there is.
    assert!(report.replies.success > 1000 && report.replies.garbage_arguments > 1000);
    assert!(report.replies.denied > 100 && report.hang_ups > 10);
    assert_well(&mut f);
    assert!(!common::Running::log(&f.place).contains("panicked"));
}
