//! Unit ring, over real loopback sockets: TCP.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use steadfast_runtime::{Server, ServerOptions, StartError};

#[test]
fn records_in_fragments_byte_by_byte() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let call = record(7, b'e', b"hello");
    for (index, byte) in call.iter().enumerate() {
        let is_last = index + 1 == call.len();
        let mark = 1 | if is_last { 0x8000_0000_u32 } else { 0 };
        for byte in mark.to_be_bytes().iter().chain([byte]) {
            client.stream.write_all(&[*byte]).unwrap();
        }
    }
    assert_eq!(client.receive(), (7, b"hello".to_vec()));
}

#[test]
fn a_thousand_calls_in_one_write_are_all_answered() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let calls: Vec<u8> = (0..1000_u32)
        .flat_map(|number| marked(&record(number, b'e', &number.to_be_bytes())))
        .collect();
    client.stream.write_all(&calls).unwrap();
    for (number, reply) in client.receive_many(1000) {
        assert_eq!(reply, number.to_be_bytes());
    }
    assert_eq!(client.call(5000, b'e', b"on"), b"on");
}

#[test]
fn a_partial_record_waits_for_its_rest() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let calls: Vec<u8> = (0..5).flat_map(|n| marked(&record(n, b'e', &[n as u8; 50]))).collect();
    let (now, later) = calls.split_at(calls.len() - 20);
    client.stream.write_all(now).unwrap();
    assert_eq!(client.receive_many(4).len(), 4);
    client.stream.write_all(later).unwrap();
    assert_eq!(client.receive(), (4, vec![4; 50]));
}

/// A client with Nagle's algorithm sends a further piece of a record when the one before was
/// acknowledged, for which the kernel lets it wait 40 ms.
#[test]
fn the_pieces_of_a_record_are_acknowledged_at_once() {
    let fixture = start(options());
    let mut client = fixture.connect();
    client.stream.set_nodelay(false).unwrap();
    // Before, acknowledgements are not delayed on a new connection.
    for number in 0..100 {
        client.call(number, b'e', b"warm");
    }
    for piece_bytes in [200, 2 << 10, 16 << 10] {
        for in_fragments in [false, true] {
            let body = vec![5; piece_bytes * 5];
            let mut fastest = Duration::MAX;
            for number in 0..20 {
                let call = record(number, b'e', &body);
                let begun = std::time::Instant::now();
                if in_fragments {
                    let mut pieces = call.chunks(piece_bytes).peekable();
                    while let Some(piece) = pieces.next() {
                        let last = if pieces.peek().is_none() { 0x8000_0000_u32 } else { 0 };
                        let mark = (piece.len() as u32 | last).to_be_bytes();
                        client.stream.write_all(&[&mark, piece].concat()).unwrap();
                    }
                } else {
                    for piece in marked(&call).chunks(piece_bytes) {
                        client.stream.write_all(piece).unwrap();
                    }
                }
                assert_eq!(client.receive(), (number, body.clone()));
                fastest = fastest.min(begun.elapsed());
            }
            // On a machine that is ever so busy one of twenty is quick, if any can be.
            assert!(
                fastest < Duration::from_millis(15),
                "pieces of {piece_bytes} bytes, fragments {in_fragments}: {fastest:?}"
            );
        }
    }
}

#[test]
fn large_records_and_replies_pass() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let body: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 255) as u8).collect();
    for number in 0..5 {
        assert_eq!(client.call(number, b'e', &body), body);
    }
    // Several at once, with small ones between.
    let mut writer = Client::new(client.stream.try_clone().unwrap());
    let sent = body.clone();
    let done = beside(move || {
        for number in 0..10 {
            writer.send(2 * number, b'e', &sent);
            writer.send(2 * number + 1, b'e', b"small");
        }
    });
    for (number, reply) in client.receive_many(20) {
        assert_eq!(reply, if number % 2 == 0 { &body[..] } else { b"small" });
    }
    done.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn an_announced_giant_is_refused_and_costs_nothing() {
    let fixture = start(options());
    let before = resident_bytes();
    for mark in [0xffff_ffff_u32, 0x7fff_ffff, 0x8020_0000] {
        let mut client = fixture.connect();
        client.stream.write_all(&mark.to_be_bytes()).unwrap();
        assert!(client.is_ended());
    }
    // One just within the limit is believed as far as its bytes come.
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = fixture.connect();
            client.stream.write_all(&0x8010_0000_u32.to_be_bytes()).unwrap();
            client.stream.write_all(b"x").unwrap();
            client
        })
        .collect();
    wait_until(|| fixture.server.statistics().bytes_in >= 12 + 200 * 5);
    assert!(resident_bytes() < before + (50 << 20));
    drop(clients);
    assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
}

/// RFC 5531 §11: a fragment has 0 to 2^31 - 1 bytes.
#[test]
fn empty_fragments_are_taken_and_an_empty_record_is_no_call() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let call = record(1, b'e', b"on");
    let (first, second) = call.split_at(3);
    let fragment = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    let empty = vec![0; 4 * 1000];
    let last = 0x8000_0000_u32.to_be_bytes().to_vec();
    let fragments =
        [empty.clone(), fragment(first), empty.clone(), fragment(second), empty, last.clone()];
    client.stream.write_all(&fragments.concat()).unwrap();
    assert_eq!(client.receive(), (1, b"on".to_vec()));
    client.stream.write_all(&[marked(&record(2, b'e', b"before")), last].concat()).unwrap();
    assert_eq!(client.receive(), (2, b"before".to_vec()));
    assert!(client.is_ended());
}

#[test]
fn what_is_no_call_ends_the_connection_after_the_answers_before_it() {
    let fixture = start(options());
    for nonsense in [b'?', b'x'] {
        let mut client = fixture.connect();
        let batch = [record(1, b'e', b"before"), record(2, nonsense, b"")];
        client.stream.write_all(&batch.map(|record| marked(&record)).concat()).unwrap();
        assert_eq!(client.receive(), (1, b"before".to_vec()));
        assert!(client.is_ended());
    }
}

#[test]
fn what_follows_a_broken_mark_is_never_executed() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let giant = 0x8000_0000 | (ServerOptions::default().record_bytes_max as u32 + 1);
    let batch = [marked(&record(1, b'b', &[])), giant.to_be_bytes().to_vec()].concat();
    client.stream.write_all(&batch).unwrap();
    fixture.toy.gate.wait_for_guests(1);
    // While the first call is under way another worker has the seat.
    client.stream.write_all(&marked(&record(2, b'a', &[]))).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    fixture.toy.gate.open();
    wait_until(|| fixture.server.statistics().connections == 0);
    assert!(fixture.toy.peers.lock().is_empty());
}

#[test]
fn calls_before_a_broken_mark_get_their_replies() {
    let broken = 0x8000_0000 | (ServerOptions::default().record_bytes_max as u32 + 1);
    // One that waits to be stable, and one that waits without the seat.
    for (command, body) in [(b'p', &[0, 1][..]), (b'w', &[][..])] {
        let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
        let mut client = fixture.connect();
        let sound = [marked(&record(1, b'e', b"x")), marked(&record(2, command, body))].concat();
        client.stream.write_all(&[sound, broken.to_be_bytes().to_vec()].concat()).unwrap();
        let gate = if command == b'p' { &fixture.toy.flush_gate } else { &fixture.toy.gate };
        gate.wait_for_guests(1);
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
        let replies = client.receive_many(2);
        assert!(replies.contains_key(&1) && replies.contains_key(&2));
        assert!(client.is_ended());
        wait_until(|| fixture.server.statistics().connections == 0);
    }
}

#[test]
fn a_blocked_call_holds_up_nobody() {
    for command in [b'b', b'w'] {
        let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
        let mut client = fixture.connect();
        let mut other = fixture.connect();
        // In one batch: before it, itself, after it.
        let batch = [
            marked(&record(1, b'e', b"")),
            marked(&record(2, command, b"")),
            marked(&record(3, b'e', b"")),
        ];
        client.stream.write_all(&batch.concat()).unwrap();
        let answered = client.receive_many(2);
        assert!(answered.contains_key(&1) && answered.contains_key(&3));
        assert_eq!(client.call(4, b'e', b"same"), b"same");
        assert_eq!(other.call(5, b'e', b"other"), b"other");
        assert_eq!(fixture.connect().call(6, b'e', b"new"), b"new");
        fixture.toy.gate.wait_for_guests(1);
        fixture.toy.gate.open();
        assert_eq!(client.receive(), (2, Vec::new()));
        assert!(fixture.server.statistics().takeovers >= 1);
    }
}

#[test]
fn many_blocked_calls_of_one_batch_block_only_themselves() {
    let fixture = start(ServerOptions { seats_per_pool: 1, ..options() });
    let mut client = fixture.connect();
    let batch: Vec<u8> = (0..40)
        .flat_map(|number| marked(&record(number, if number % 2 == 0 { b'b' } else { b'e' }, b"")))
        .collect();
    client.stream.write_all(&batch).unwrap();
    assert!(client.receive_many(20).keys().all(|number| number % 2 == 1));
    fixture.toy.gate.wait_for_guests(20);
    fixture.toy.gate.open();
    assert!(client.receive_many(20).keys().all(|number| number % 2 == 0));
    assert_eq!(client.call(99, b'e', b"x"), b"x");
}

#[test]
fn when_all_workers_are_blocked_service_goes_on_with_the_first_that_returns() {
    let fixture = start(ServerOptions { seats_per_pool: 1, workers_max: 3, ..options() });
    let mut clients: Vec<Client> = (0..6).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        client.send(1, b'b', b"");
    }
    fixture.toy.gate.wait_for_guests(3);
    assert_eq!(fixture.server.statistics().workers, 3);
    fixture.toy.gate.open();
    for client in &mut clients {
        assert_eq!(client.receive().0, 1);
        assert_eq!(client.call(2, b'e', b"x"), b"x");
    }
}

#[test]
fn calls_that_might_block_and_do_not_are_all_answered() {
    let fixture = start(options());
    let mut client = fixture.connect();
    for round in 0..20 {
        let batch: Vec<u8> =
            (0..300).flat_map(|n| marked(&record(round * 1000 + n, b'm', b""))).collect();
        client.stream.write_all(&batch).unwrap();
        assert_eq!(client.receive_many(300).len(), 300);
    }
    assert_eq!(fixture.server.statistics().calls, 6000);
    assert!(fixture.server.statistics().lends >= 6000);
}

#[test]
fn who_never_reads_is_held_to_bounded_memory_and_harms_nobody() {
    let fixture = start(ServerOptions { reply_backlog_bytes_max: 1 << 20, ..options() });
    let mut sluggard = fixture.connect();
    sluggard.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let before = resident_bytes();
    let call = marked(&record(1, b'l', &500_000_u32.to_be_bytes()));
    // Until our own socket takes no more, since the server reads no more; or 10,000 calls whose
    // replies would be 5 GB.
    let calls = call.repeat(100);
    let mut sent = 0;
    while sent < 100 && sluggard.stream.write_all(&calls).is_ok() {
        sent += 1;
    }
    let mut other = fixture.connect();
    for number in 0..100 {
        assert_eq!(other.call(number, b'e', b"x"), b"x");
    }
    assert!(resident_bytes() < before + (64 << 20));
    // Reading makes it go on.
    for _ in 0..50 {
        assert_eq!(sluggard.receive().1.len(), 500_000);
    }
}

#[test]
fn unread_replies_of_all_connections_together_are_bounded() {
    let fixture = start(ServerOptions { waiting_bytes_max: 20 << 20, ..options() });
    let mut clients: Vec<Client> = (0..30)
        .map(|_| {
            let mut client = fixture.connect();
            for number in 0..10 {
                client.send(number, b'l', &2_000_000_u32.to_be_bytes());
            }
            client
        })
        .collect();
    // 30 backlogs of 8 MiB and more are possible by the bound of each.
    wait_until(|| {
        let statistics = fixture.server.statistics();
        statistics.connections < 30 && statistics.waiting_bytes <= 20 << 20
    });
    assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
    clients.clear();
}

#[test]
fn half_received_calls_of_all_connections_together_are_bounded() {
    let fixture = start(ServerOptions { waiting_bytes_max: 8 << 20, ..options() });
    let half = marked(&record(1, b'e', &vec![1; 1 << 20]));
    let clients: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = fixture.connect();
            // It may be closed before everything is written.
            let _ = client.stream.write_all(&half[..900_000]);
            client
        })
        .collect();
    wait_until(|| fixture.server.statistics().accepted == 50);
    wait_until(|| fixture.server.statistics().connections <= 20);
    drop(clients);
    assert_eq!(fixture.connect().call(1, b'e', b"x"), b"x");
}

#[test]
fn any_mixture_of_calls_is_answered_each_once() {
    let fixture = start(ServerOptions {
        pools: 2,
        seats_per_pool: 1,
        workers_max: 4,
        calls_in_flight_max: 20,
        ..options()
    });
    fixture.toy.flush_gate.open();
    let address = fixture.address;
    let done: Vec<_> = (0..12_u32)
        .map(|seed| {
            beside(move || {
                let mut random = seed + 1;
                for _ in 0..15 {
                    let mut client = Client::new(std::net::TcpStream::connect(address).unwrap());
                    let mut batch = Vec::new();
                    for number in 0..60 {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let (command, body) = match random >> 28 {
                            0..4 => (b'e', vec![1; random as usize % 3000]),
                            4..8 => (b'm', vec![]),
                            8..9 => (b'z', vec![]),
                            9..12 => (b'p', vec![random as u8 & 1, random as u8 >> 4]),
                            12..14 => (b'l', 100_000_u32.to_be_bytes().to_vec()),
                            _ => (b'e', vec![]),
                        };
                        batch.extend(marked(&record(number, command, &body)));
                    }
                    if random & 1 << 20 == 0 {
                        // One that goes away in the middle.
                        let mut other = Client::new(std::net::TcpStream::connect(address).unwrap());
                        other.stream.write_all(&batch[..batch.len() / 2]).unwrap();
                    }
                    let mut writer = client.stream.try_clone().unwrap();
                    let written = beside(move || writer.write_all(&batch).unwrap());
                    client.receive_many(60);
                    written.recv_timeout(PATIENCE).unwrap();
                }
            })
        })
        .collect();
    for done in done {
        done.recv_timeout(3 * PATIENCE).unwrap();
    }
    wait_until(|| fixture.server.statistics().connections == 0);
    let statistics = fixture.server.statistics();
    assert!(statistics.calls >= 12 * 15 * 60 && statistics.workers <= 8);
    assert!(fixture.server.shutdown(PATIENCE), "something is still under way: {statistics:?}");
}

#[test]
fn two_thousand_connections() {
    let fixture = start(options());
    let mut clients: Vec<Client> = (0..2000).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        client.send(3, b'e', b"x");
    }
    for client in &mut clients {
        assert_eq!(client.receive(), (3, b"x".to_vec()));
    }
    assert_eq!(fixture.server.statistics().connections, 2000);
    drop(clients);
    wait_until(|| fixture.server.statistics().connections == 0);
}

#[test]
fn beyond_the_limit_connections_are_refused() {
    let fixture = start(ServerOptions { connections_max: 4, ..options() });
    let mut clients: Vec<Client> = (0..4).map(|_| fixture.connect()).collect();
    for client in &mut clients {
        client.call(1, b'e', b"");
    }
    assert!(fixture.connect().is_ended());
    for client in &mut clients {
        assert_eq!(client.call(2, b'e', b"still"), b"still");
    }
}

#[test]
fn file_ranges_are_sent_in_their_place() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let contents = std::fs::read("tests/common/mod.rs").unwrap();
    let batch = [record(1, b'e', b"a"), record(2, b'f', b""), record(3, b'e', b"b")];
    client.stream.write_all(&batch.map(|record| marked(&record)).concat()).unwrap();
    let replies = client.receive_many(3);
    assert_eq!(replies[&1], b"a");
    assert_eq!(replies[&2], [&contents[3..5003], b"end"].concat());
    assert_eq!(replies[&3], b"b");
}

#[test]
fn a_panic_ends_its_connection_only() {
    let fixture = start(options());
    let mut victim = fixture.connect();
    let mut other = fixture.connect();
    assert_eq!(other.call(1, b'e', b"x"), b"x");
    victim.send(1, b'x', b"");
    assert!(victim.is_ended());
    assert_eq!(other.call(2, b'e', b"y"), b"y");
    assert_eq!(fixture.connect().call(3, b'e', b"z"), b"z");
}

#[test]
fn a_half_closed_connection_gets_its_replies_and_ends() {
    let fixture = start(options());
    let mut client = fixture.connect();
    client.send(1, b'b', b"");
    client.send(2, b'l', &8_000_000_u32.to_be_bytes());
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.receive().1.len(), 8_000_000);
    fixture.toy.gate.wait_for_guests(1);
    fixture.toy.gate.open();
    assert_eq!(client.receive(), (1, Vec::new()));
    assert!(client.is_ended());
    wait_until(|| fixture.server.statistics().connections == 0);
}

#[test]
fn ipv6_and_several_addresses() {
    let fixture = start(ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()],
        extra_listen: vec!["127.0.0.1:0".parse().unwrap()],
        ..options()
    });
    for address in fixture.server.local_addresses() {
        let stream = std::net::TcpStream::connect(address).unwrap();
        let mut client = Client::new(stream);
        client.call(1, b'a', b"");
        let peer = fixture.toy.peers.lock().pop().unwrap();
        assert_eq!(peer.address, client.stream.local_addr().unwrap());
        assert_eq!(peer.local, address);
    }
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    let fixture = start(ServerOptions { idle_timeout_s: 1, ..options() });
    let mut idle = fixture.connect();
    let mut blocked = fixture.connect();
    blocked.send(1, b'b', b"");
    assert!(idle.is_ended());
    fixture.toy.gate.open();
    assert_eq!(blocked.receive().0, 1);
}

#[test]
fn shutdown_finishes_calls_in_flight() {
    let fixture = start(options());
    let mut client = fixture.connect();
    client.send(1, b'b', b"");
    client.send(2, b'p', &[0, 1]);
    fixture.toy.gate.wait_for_guests(1);
    fixture.toy.flush_gate.wait_for_guests(1);
    let address = fixture.address;
    let (server, toy) = (fixture.server, fixture.toy);
    let done = beside(move || server.shutdown(PATIENCE));
    // It does not accept any more...
    wait_until(|| std::net::TcpStream::connect(address).is_err());
    // ...and waits for the calls.
    assert!(done.try_recv().is_err());
    toy.gate.open();
    toy.flush_gate.open();
    let replies = client.receive_many(2);
    assert_eq!(replies[&1], b"");
    assert_eq!(replies[&2], b"stable");
    assert!(client.is_ended());
    assert!(done.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn shutdown_loses_no_reply_to_a_client_that_goes_on_calling() {
    let fixture = start(options());
    let mut client = fixture.connect();
    let mut writer = client.stream.try_clone().unwrap();
    let writing = beside(move || {
        for number in 0_u32.. {
            if writer.write_all(&marked(&record(number, b'e', &[7; 2000]))).is_err() {
                return;
            }
        }
    });
    let reading = beside(move || {
        let mut bytes = 0_u64;
        let mut buffer = vec![0; 16 << 10];
        loop {
            match client.stream.read(&mut buffer).expect("no reset") {
                0 => return bytes / (4 + 4 + 2000),
                count => bytes += count as u64,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    let toy = std::sync::Arc::clone(&fixture.toy);
    wait_until(|| toy.executed.load(Ordering::SeqCst) > 1000);
    let Fixture { server, .. } = fixture;
    assert!(server.shutdown(PATIENCE));
    assert_eq!(reading.recv_timeout(PATIENCE).unwrap(), toy.executed.load(Ordering::SeqCst));
    writing.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn shutdown_does_not_wait_for_who_never_reads() {
    let fixture = start(options());
    let mut client = fixture.connect();
    for number in 0..20 {
        client.send(number, b'l', &2_000_000_u32.to_be_bytes());
    }
    wait_until(|| fixture.server.statistics().waiting_bytes > 0);
    let started = std::time::Instant::now();
    assert!(fixture.server.shutdown(PATIENCE));
    assert!(started.elapsed() < PATIENCE / 2);
}

#[test]
fn shutdown_gives_up_after_its_grace() {
    let fixture = start(options());
    let mut client = fixture.connect();
    client.send(1, b'b', b"");
    fixture.toy.gate.wait_for_guests(1);
    assert!(!fixture.server.shutdown(Duration::from_millis(10)));
    assert!(client.is_ended());
    fixture.toy.gate.open();
}

#[test]
fn ticks_and_hooks_come() {
    let fixture = start(options());
    let (sender, receiver) = std::sync::mpsc::channel();
    fixture.server.every_second(Box::new(move || {
        let _ = sender.send(());
    }));
    receiver.recv_timeout(PATIENCE).unwrap();
    assert!(fixture.toy.ticks.load(Ordering::SeqCst) >= 1);
}

#[test]
fn a_second_server_on_the_port_is_refused_with_the_address() {
    let fixture = start(options());
    let options = ServerOptions { listen: vec![fixture.address], ..options() };
    let toy = std::sync::Arc::new(Toy::default());
    let error = Server::start(options, toy).unwrap_err();
    assert!(matches!(error, StartError::Listen { address, .. } if address == fixture.address));
    assert!(matches!(
        Server::start(ServerOptions::default(), std::sync::Arc::new(Toy::default())),
        Err(StartError::NoAddress)
    ));
}

#[test]
fn a_mark_sent_apart_from_its_body_is_acknowledged_without_delay() {
    // Not a matter of time here: the path must merely work.
    let fixture = start(options());
    let mut client = fixture.connect();
    for number in 0..50 {
        let call = marked(&record(number, b'e', b"body"));
        client.stream.write_all(&call[..4]).unwrap();
        client.stream.write_all(&call[4..]).unwrap();
        assert_eq!(client.receive(), (number, b"body".to_vec()));
    }
    let _ = client.stream.set_nonblocking(true);
    assert!(client.stream.read(&mut [0]).is_err(), "nothing more was sent");
}

#[test]
fn a_reply_can_be_sent_later_by_another_call() {
    let fixture = start(options());
    let mut waiting = [fixture.connect(), fixture.connect()];
    for client in &mut waiting {
        client.send(7, b'd', b"");
        // It is due a reply, and stays.
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let mut gone = fixture.connect();
    gone.send(7, b'd', b"");
    while fixture.toy.sinks.lock().len() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(gone);
    fixture.connect().call(1, b'D', &record(7, b'!', b""));
    for client in &mut waiting {
        assert_eq!(client.receive(), (7, b"!".to_vec()));
        assert!(client.is_ended());
    }
}
