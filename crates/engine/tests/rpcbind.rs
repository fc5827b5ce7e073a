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
        Self::of(local, transports, false, Transport::Tcp)
    }

    /// One that is asked over a transport, and may serve NFSv4.
    fn of(local: &str, transports: Transports, nfs4: bool, asked_over: Transport) -> Self {
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4,
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
            peer: Peer::new(address, local, asked_over),
        }
    }

    /// The results of a call, behind the head of its reply.
    fn call(&self, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.reply(version, procedure, arguments).unwrap()
    }

    /// The same; nothing if there is no reply.
    fn reply(&self, version: u32, procedure: u32, arguments: &[u8]) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [1, 0, 2, RPCBIND, version, procedure, 0, 0, 0, 0] {
            w.u32(word);
        }
        message.extend_from_slice(arguments);
        let mut reply = ReplyBuffer::default();
        let verdict = self.engine.call(&mut Host, &self.peer, 0, &message, &mut reply);
        match verdict {
            Verdict::Replied => {}
            Verdict::Silent => return None,
            _ => panic!("neither a reply nor none"),
        }
        let mut r = Reader::new(&reply.bytes);
        let head: Vec<u32> = (0..6).map(|_| r.u32().unwrap()).collect();
        assert_eq!(head, [1, 1, 0, 0, 0, 0]);
        Some(reply.bytes.split_off(r.position()))
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
        self.address_of(3, procedure, netid)
    }

    /// The same for a version of NFS.
    fn address_of(&self, version: u32, procedure: u32, netid: &str) -> String {
        let told = self.call(4, procedure, &nfs_by(version, netid));
        String::from_utf8(Reader::new(&told).opaque(100).unwrap().to_vec()).unwrap()
    }

    /// The netids of GETADDRLIST.
    fn address_list(&self) -> Vec<String> {
        self.address_list_of(3)
    }

    fn address_list_of(&self, version: u32) -> Vec<String> {
        let told = self.call(4, 11, &nfs_by(version, ""));
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

fn nfs_by(version: u32, netid: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    w.u32(NFS);
    w.u32(version);
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

/// NULL of a version of NFS, to be passed on by CALLIT.
fn null_of(version: u32) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    for word in [NFS, version, 0] {
        w.u32(word);
    }
    w.opaque(b"");
    arguments
}

#[test]
fn nobody_is_sent_to_a_version_over_a_transport_that_it_is_not_served_over() {
    let [over_tcp, over_udp] = [Transport::Tcp, Transport::Udp]
        .map(|asked_over| Asked::of("127.0.0.1:111", ALL, true, asked_over));
    assert_eq!(over_tcp.address_list_of(3), ["tcp", "udp", "tcp6", "udp6"]);
    assert_eq!(over_tcp.address_list_of(4), ["tcp", "tcp6"]);
    for (netid, is_told) in [("tcp", true), ("udp", false), ("tcp6", true), ("udp6", false)] {
        assert_eq!(!over_tcp.address_of(4, 9, netid).is_empty(), is_told, "{netid}");
        // GETADDR tells where the program is, whatever version of it (RFC 1833 §2.2.1).
        assert!(!over_tcp.address_of(4, 3, netid).is_empty(), "{netid}");
    }
    // CALLIT of versions 2 and 4 of rpcbind. The result of version 2 is a port of UDP.
    for (asked, rpcbind, nfs, is_answered) in [
        (&over_udp, 2, 3, true),
        (&over_udp, 2, 4, false),
        (&over_udp, 4, 3, true),
        (&over_udp, 4, 4, false),
        (&over_tcp, 4, 4, true),
        (&over_tcp, 2, 4, false),
    ] {
        let reply = asked.reply(rpcbind, 5, &null_of(nfs));
        assert_eq!(reply.is_some(), is_answered, "version {nfs} by version {rpcbind}");
    }
}
