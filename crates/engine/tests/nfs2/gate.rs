//! What a SHARE of NLM denies, NFSv2 does not get, as NFSv3 does not.

use std::net::SocketAddr;

use steadfast_engine::{Peer, Transport};
use steadfast_wire::nfs2::Sattr2;
use steadfast_xdr::Writer;

use super::harness::{Bench, Handle, UNCHANGED};

const NLM: u32 = 100_021;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const ACCESS: u32 = 13;

fn peer(address: &str) -> Peer {
    let address: SocketAddr = address.parse().unwrap();
    Peer::new(address, "127.0.0.1:2049".parse().unwrap(), Transport::Udp)
}

/// SHARE or UNSHARE by another host: to read and write, and to deny this.
fn reserve(bench: &mut Bench, procedure: u32, file: &Handle, deny: u32) {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    w.opaque(b"");
    w.opaque(b"other");
    w.opaque(file);
    w.opaque(b"owner");
    let access = 3;
    for word in [deny, access] {
        w.u32(word);
    }
    w.bool(false);
    let own = std::mem::replace(&mut bench.peer, peer("127.0.0.2:700"));
    let result = bench.ask(NLM, 3, procedure, &arguments);
    assert_eq!(result[4..8], [0; 4]);
    bench.peer = own;
}

#[test]
fn what_a_share_denies_is_denied_to_nfs2() {
    let mut bench = Bench::new();
    let root = bench.mount("/a");
    let set = Sattr2 { mode: 0o666, ..UNCHANGED };
    let (file, _) = bench.create(&root, b"f", &set).unwrap();
    let size = Sattr2 { size: 0, ..UNCHANGED };
    for deny in 0..4 {
        reserve(&mut bench, SHARE, &file, deny);
        let is_denied = |bit: u32| if deny & bit == 0 { Ok(()) } else { Err(ACCESS) };
        assert_eq!(bench.read(&file, 0, 1).map(drop), is_denied(1), "{deny}");
        assert_eq!(bench.write(&file, 0, b"x").map(drop), is_denied(2), "{deny}");
        assert_eq!(bench.setattr(&file, &size).map(drop), is_denied(2), "{deny}");
        assert_eq!(bench.create(&root, b"f", &size).map(drop), is_denied(2), "{deny}");
        bench.setattr(&file, &set).unwrap();
        // Its own host is denied nothing.
        bench.peer = peer("127.0.0.2:701");
        bench.write(&file, 0, b"x").unwrap();
        bench.peer = peer("127.0.0.1:700");
        reserve(&mut bench, UNSHARE, &file, deny);
        bench.write(&file, 0, b"x").unwrap();
    }
}
