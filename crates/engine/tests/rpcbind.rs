//! Unit ring: the built-in rpcbind tells of what is listened on, and of nothing else.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use steadfast_engine::{
    CallHost, Engine, EngineConfig, ExportTable, Peer, ReplyBuffer, Transport, Transports, Verdict,
};
use steadfast_xdr::{Reader, Writer};

const RPCBIND: u32 = 100_000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ALL: Transports = Transports { udp: true, ipv4: true, ipv6: true };

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

/// An engine that is asked at one address.
struct Asked {
    engine: Engine,
    peer: Peer,
}

impl Asked {
    fn at(local: &str, transports: Transports) -> Self {
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: false,
            handle_key: [9; 16],
            write_verifier: 77,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports,
        };
        let local: SocketAddr = local.parse().unwrap();
        let address = SocketAddr::new(local.ip(), 700);
        Self {
            engine: Engine::new(config, ExportTable::default()),
            peer: Peer::new(address, local, Transport::Tcp),
        }
    }

    /// The results of a call, behind the head of its reply.
    fn call(&self, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [1, 0, 2, RPCBIND, version, procedure, 0, 0, 0, 0] {
            w.u32(word);
        }
        message.extend_from_slice(arguments);
        let mut reply = ReplyBuffer::default();
        let verdict = self.engine.call(&mut Host, &self.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied));
        let mut r = Reader::new(&reply.bytes);
        let head: Vec<u32> = (0..6).map(|_| r.u32().unwrap()).collect();
        assert_eq!(head, [1, 1, 0, 0, 0, 0]);
        reply.bytes.split_off(r.position())
    }

    /// GETPORT of version 2.
    fn port(&self, program: u32, protocol: u32) -> u32 {
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        for word in [program, 3, protocol, 0] {
            w.u32(word);
        }
        Reader::new(&self.call(2, 3, &arguments)).u32().unwrap()
    }

    /// GETADDR (3) or GETVERSADDR (9) of version 4.
    fn address(&self, procedure: u32, netid: &str) -> String {
        let told = self.call(4, procedure, &nfs_by(netid));
        String::from_utf8(Reader::new(&told).opaque(100).unwrap().to_vec()).unwrap()
    }

    /// The netids of GETADDRLIST.
    fn address_list(&self) -> Vec<String> {
        let told = self.call(4, 11, &nfs_by(""));
        let mut r = Reader::new(&told);
        let mut netids = Vec::new();
        while r.bool().unwrap() {
            r.opaque(100).unwrap();
            netids.push(text(&mut r));
            r.u32().unwrap();
            r.opaque(100).unwrap();
            r.opaque(100).unwrap();
        }
        netids
    }

    /// The protocols with which NFS is in the DUMP of version 2.
    fn dumped_protocols(&self) -> Vec<u32> {
        let told = self.call(2, 4, &[]);
        let mut r = Reader::new(&told);
        let mut protocols = Vec::new();
        while r.bool().unwrap() {
            let [program, _, protocol, _] = [0; 4].map(|_: u32| r.u32().unwrap());
            protocols.extend((program == NFS).then_some(protocol));
        }
        protocols
    }

    /// The netids with which NFS is in the DUMP of version 3 or 4.
    fn dumped_netids(&self, version: u32) -> Vec<String> {
        let told = self.call(version, 4, &[]);
        let mut r = Reader::new(&told);
        let mut netids = Vec::new();
        while r.bool().unwrap() {
            let [program, _] = [0; 2].map(|_: u32| r.u32().unwrap());
            let netid = text(&mut r);
            netids.extend((program == NFS).then_some(netid));
            r.opaque(100).unwrap();
            r.opaque(100).unwrap();
        }
        netids
    }
}

fn text(r: &mut Reader<'_>) -> String {
    String::from_utf8(r.opaque(100).unwrap().to_vec()).unwrap()
}

fn nfs_by(netid: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    w.u32(NFS);
    w.u32(3);
    w.opaque(netid.as_bytes());
    w.opaque(b"");
    w.opaque(b"");
    arguments
}

/// Asserts that each procedure that tells netids tells these.
#[track_caller]
fn tells(asked: &Asked, netids: &[&str]) {
    assert_eq!(asked.address_list(), netids);
    assert_eq!(asked.dumped_netids(3), netids);
    assert_eq!(asked.dumped_netids(4), netids);
    for procedure in [3, 9] {
        for netid in ["tcp", "udp", "tcp6", "udp6"] {
            let is_told = !asked.address(procedure, netid).is_empty();
            assert_eq!(is_told, netids.contains(&netid), "{netid} by procedure {procedure}");
        }
    }
}

#[test]
fn all_that_is_served_is_told() {
    let asked = Asked::at("127.0.0.1:111", ALL);
    tells(&asked, &["tcp", "udp", "tcp6", "udp6"]);
    assert_eq!((asked.port(NFS, TCP), asked.port(MOUNT, UDP)), (2049, 2049));
    assert_eq!(asked.dumped_protocols(), [TCP, UDP]);
    assert_eq!(asked.address(3, ""), "127.0.0.1.8.1");
}

#[test]
fn without_udp_nobody_is_sent_there() {
    let asked = Asked::at("127.0.0.1:111", Transports { udp: false, ..ALL });
    tells(&asked, &["tcp", "tcp6"]);
    assert_eq!((asked.port(NFS, TCP), asked.port(NFS, UDP)), (2049, 0));
    assert_eq!((asked.port(RPCBIND, TCP), asked.port(RPCBIND, UDP)), (111, 0));
    assert_eq!(asked.dumped_protocols(), [TCP]);
}

#[test]
fn without_ipv6_nobody_is_sent_there() {
    let asked = Asked::at("127.0.0.1:111", Transports { ipv6: false, ..ALL });
    tells(&asked, &["tcp", "udp"]);
    assert_eq!(asked.dumped_protocols(), [TCP, UDP]);
}

#[test]
fn without_ipv4_nobody_is_sent_there() {
    let only_ipv6 = Transports { ipv4: false, ..ALL };
    let asked = Asked::at("[::1]:111", only_ipv6);
    tells(&asked, &["tcp6", "udp6"]);
    assert_eq!(asked.address(3, ""), "::1.8.1");
    // Version 2 has no families: who asks by IPv6 gets the port to use by IPv6.
    assert_eq!(asked.port(NFS, TCP), 2049);
    let by_ipv4 = Asked::at("127.0.0.1:111", only_ipv6);
    assert_eq!((by_ipv4.port(NFS, TCP), by_ipv4.port(NFS, UDP)), (0, 0));
    assert!(by_ipv4.dumped_protocols().is_empty());
}
