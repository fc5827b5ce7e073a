//! Unit ring: what an earlier server kept of calls and their replies answers these calls when they
//! come again.
#![allow(clippy::unwrap_used)]

mod common;

use common::engine;
use steadfast_engine::{CallHost, Peer, ReplyBuffer, Transport, Verdict};

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn peer(address: &str, transport: &str) -> Peer {
    let transport = match transport {
        "tcp" => Transport::Tcp,
        "udp" => Transport::Udp,
        other => panic!("{other}"),
    };
    Peer::new(address.parse().unwrap(), "192.0.2.9:2049".parse().unwrap(), transport)
}

#[test]
fn calls_of_before_get_the_replies_that_an_earlier_server_kept() {
    let golden = include_str!("golden/replies.txt");
    let lines: Vec<&str> = golden.lines().filter(|line| !line.starts_with('#')).collect();
    let engine = engine();
    let mut calls = 0;
    for kept in lines.chunks(4) {
        let [who, call, behind, reply] = kept else { panic!("{kept:?}") };
        let [name, address, transport] = who.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{who}")
        };
        engine.remember_replayed(&bytes(behind), 0);
        let mut answer = ReplyBuffer::default();
        let peer = peer(address, transport);
        let verdict = engine.call(&mut Host, &peer, 0, &bytes(call), &mut answer);
        // To be executed it would have to wait for storage, and its objects are not there.
        assert!(matches!(verdict, Verdict::Replied), "{name}: {verdict:?}");
        assert_eq!(answer.bytes, bytes(reply), "{name}");
        calls += 1;
    }
    assert_eq!(calls, 12);
}
