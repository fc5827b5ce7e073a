//! Grants, results and notices against a client's rpcbind, lockd and statd, played on loopback.
//! Ring: process, within one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, atomic::AtomicU32, atomic::Ordering};

use steadfast_engine::{EngineConfig, Export, ExportTable, Peer, ReplyBuffer, Transports};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::model::ModelFs;
use steadfast_xdr::Reader;

use super::*;

const NLM: u32 = 100_021;
const LOCAL: &str = "127.0.0.1";

/// What a program at a client was called for: program, version, procedure, arguments.
type Called = (u32, u32, u32, Vec<u8>);

/// Answers calls at a port: GETPORT with that port, NLM with this status.
struct Client {
    port: u16,
    called: Receiver<Called>,
    /// `u32::MAX`: it says nothing.
    status: Arc<AtomicU32>,
    /// The connections that were made to it.
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

fn answer(message: &[u8], port: u16, status: u32) -> (Called, Option<Vec<u8>>) {
    let mut r = Reader::new(message);
    let xid = r.u32().unwrap();
    let words: Vec<u32> = (0..5).map(|_| r.u32().unwrap()).collect();
    for _credentials_and_verifier in 0..2 {
        r.u32().unwrap();
        r.opaque(400).unwrap();
    }
    let arguments = message[r.position()..].to_vec();
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    for word in [xid, 1, 0, 0, 0, 0] {
        w.u32(word);
    }
    match words[2] {
        100_000 => w.u32(port.into()),
        NLM => {
            w.opaque(r.opaque(1024).unwrap());
            w.u32(status);
        }
        _ => {}
    }
    let called = (words[2], words[3], words[4], arguments);
    let is_silent = status == u32::MAX && words[2] != 100_000;
    (called, (!is_silent).then_some(reply))
}

/// Sockets of one port.
fn sockets() -> (TcpListener, UdpSocket) {
    loop {
        let udp = UdpSocket::bind((LOCAL, 0)).unwrap();
        if let Ok(tcp) = TcpListener::bind((LOCAL, udp.local_addr().unwrap().port())) {
            return (tcp, udp);
        }
    }
}

impl Client {
    fn new(status: u32) -> Self {
        let (tcp, udp) = sockets();
        Self::serving(status, tcp, udp)
    }

    fn serving(status: u32, tcp: TcpListener, udp: UdpSocket) -> Self {
        let port = tcp.local_addr().unwrap().port();
        let (tell, called) = channel();
        let status = Arc::new(AtomicU32::new(status));
        let (told, now) = (tell.clone(), Arc::clone(&status));
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let made = Arc::clone(&streams);
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                made.lock().push(stream.as_ref().unwrap().try_clone().unwrap());
                let (told, now) = (told.clone(), Arc::clone(&now));
                std::thread::spawn(move || serve(&stream.unwrap(), port, &now, &told));
            }
        });
        let now = Arc::clone(&status);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((bytes, from)) = udp.recv_from(&mut buffer) {
                let (what, reply) = answer(&buffer[..bytes], port, now.load(Ordering::Relaxed));
                if let Some(reply) = reply {
                    udp.send_to(&reply, from).unwrap();
                }
                if what.0 != 100_000 && tell.send(what).is_err() {
                    return;
                }
            }
        });
        Self { port, called, status, streams }
    }

    fn next(&self) -> Called {
        self.called.recv_timeout(Duration::from_secs(30)).expect("called")
    }
}

fn serve(
    mut stream: &TcpStream,
    port: u16,
    status: &AtomicU32,
    told: &std::sync::mpsc::Sender<Called>,
) {
    let mut mark = [0; 4];
    while stream.read_exact(&mut mark).is_ok() {
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut message = vec![0; length as usize];
        stream.read_exact(&mut message).unwrap();
        let (what, reply) = answer(&message, port, status.load(Ordering::Relaxed));
        if let Some(reply) = reply {
            let mark = 0x8000_0000 | reply.len() as u32;
            stream.write_all(&[&mark.to_be_bytes()[..], &reply].concat()).unwrap();
        }
        if what.0 != 100_000 && told.send(what).is_err() {
            return;
        }
    }
}

struct NoHost;

impl steadfast_engine::CallHost for NoHost {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

/// An engine with a file, `/a/f`, and who sends its calls.
struct Server {
    engine: Arc<Engine>,
    sender: Sender,
    handle: Vec<u8>,
    xid: u32,
    _place: tempfile::TempDir,
}

impl Server {
    fn new(client: &Client) -> Self {
        Self::at(client.port)
    }

    /// That calls clients at this port.
    fn at(port: u16) -> Self {
        let rights = Rights { squash: Squash::None, ..Rights::default() };
        let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
        let share = Share {
            id: ShareId(1),
            path: "/a".into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::new(vec![rule].into()),
        };
        let storage = Arc::new(ModelFs::new(1, 0o777));
        let export = Export { share: Arc::new(share), storage };
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: false,
            handle_key: [3; 16],
            write_verifier: 1,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let engine = Arc::new(Engine::new(config, ExportTable::new(vec![export])));
        let place = tempfile::tempdir().unwrap();
        let nsm = Nsm::open(place.path(), true).map_err(|error| error.to_string()).unwrap();
        let sender = Sender::new(&engine, nsm, port);
        engine.set_outbound(Arc::new(sender.clone()));
        let mut server = Self { engine, sender, handle: Vec::new(), xid: 0, _place: place };
        let root = server.call(Transport::Tcp, (100_005, 3, 1), |w| w.opaque(b"/a"));
        let root = Reader::new(&root[4..]).opaque(64).unwrap().to_vec();
        let made = server.call(Transport::Tcp, (100_003, 3, 8), |w| {
            w.opaque(&root);
            w.opaque(b"f");
            for word in [0, 1, 0o666, 0, 0, 0, 0, 0] {
                w.u32(word);
            }
        });
        server.handle = Reader::new(&made[8..]).opaque(64).unwrap().to_vec();
        server
    }

    fn call(
        &mut self,
        transport: Transport,
        (program, version, procedure): (u32, u32, u32),
        arguments: impl FnOnce(&mut Writer<'_>),
    ) -> Vec<u8> {
        self.xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let head = [self.xid, 0, 2, program, version, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
        for word in head {
            w.u32(word);
        }
        arguments(&mut w);
        let address = |port| format!("{LOCAL}:{port}").parse().unwrap();
        let peer = Peer::new(address(700), address(2049), transport);
        let mut reply = ReplyBuffer::default();
        match self.engine.call(&mut NoHost, &peer, 0, &message, &mut reply) {
            steadfast_engine::Verdict::Parked(call) => {
                self.engine.settle(call, Ok(()), 0, &mut reply.bytes);
            }
            steadfast_engine::Verdict::Replied => {}
            other => panic!("{other:?}"),
        }
        reply.bytes.split_off(24)
    }

    /// The status of a LOCK (2) or UNLOCK (4) of all bytes by a process of this host.
    fn lock(&mut self, transport: Transport, host: &str, svid: u32, procedure: u32) -> u32 {
        let handle = self.handle.clone();
        let reply = self.call(transport, (NLM, 4, procedure), |w| {
            w.opaque(b"");
            if procedure % 5 == 2 {
                w.bool(true);
                w.bool(true);
            }
            w.opaque(host.as_bytes());
            w.opaque(&handle);
            w.opaque(b"o");
            w.u32(svid);
            w.u64(0);
            w.u64(0);
            if procedure % 5 == 2 {
                w.bool(false);
                w.u32(0);
            }
        });
        if reply.is_empty() { u32::MAX } else { Reader::new(&reply[4..]).u32().unwrap() }
    }

    /// Waits until no call is under way or due.
    fn wait_for_rest(&self) {
        let start = Instant::now();
        let is_at_rest = || {
            let queue = self.sender.0.queue.lock();
            queue.jobs.is_empty() && queue.busy.is_empty()
        };
        while !is_at_rest() {
            assert!(start.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until what a host has is this many files.
    fn wait_for_hosts(&self, count: usize) {
        let start = Instant::now();
        while self.engine.hosts_with_locks().len() != count {
            assert!(start.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One process has the lock, and another waits for it: then it is given up.
fn grant(server: &mut Server, transport: Transport) {
    assert_eq!(server.lock(transport, "one", 1, 2), 0);
    assert_eq!(server.lock(transport, "two", 2, 2), 3);
    assert_eq!(server.lock(transport, "one", 1, 4), 0);
}

#[test]
fn a_grant_is_told_over_the_transport_of_the_request() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let client = Client::new(0);
        let mut server = Server::new(&client);
        grant(&mut server, transport);
        let (program, version, procedure, arguments) = client.next();
        assert_eq!((program, version, procedure), (NLM, 4, 5));
        let mut r = Reader::new(&arguments);
        r.opaque(1024).unwrap();
        assert_eq!(r.bool(), Ok(true));
        assert_eq!(r.opaque(1024).unwrap(), server.sender.own_name().as_bytes());
        assert_eq!(r.opaque(1024).unwrap(), server.handle);
        // It keeps the lock.
        server.wait_for_hosts(1);
        assert_eq!(server.lock(transport, "one", 1, 2), 3);
    }
}

#[test]
fn a_connection_is_kept_for_the_next_grant_and_made_anew_when_it_is_gone() {
    let client = Client::new(0);
    let mut server = Server::new(&client);
    grant(&mut server, Transport::Tcp);
    client.next();
    server.wait_for_rest();
    let connections = client.streams.lock().len();
    for _ in 0..3 {
        assert_eq!(server.lock(Transport::Tcp, "two", 2, 4), 0);
        grant(&mut server, Transport::Tcp);
        client.next();
        server.wait_for_rest();
    }
    assert_eq!(client.streams.lock().len(), connections);
    for stream in &*client.streams.lock() {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert_eq!(server.lock(Transport::Tcp, "two", 2, 4), 0);
    grant(&mut server, Transport::Tcp);
    client.next();
    assert!(client.streams.lock().len() > connections);
}

#[test]
fn a_grant_that_is_not_wanted_is_taken_back() {
    let client = Client::new(1);
    let mut server = Server::new(&client);
    grant(&mut server, Transport::Tcp);
    client.next();
    server.wait_for_hosts(0);
}

/// As Linux does with what it has taken by an answer that was lost.
#[test]
fn a_grant_that_is_refused_when_it_is_told_again_is_not_taken_back() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let client = Client::new(u32::MAX);
        let mut server = Server::new(&client);
        grant(&mut server, transport);
        client.next();
        client.status.store(1, Ordering::Relaxed);
        client.next();
        server.wait_for_rest();
        assert_eq!(server.lock(transport, "one", 1, 2), 3, "{transport:?}: it is taken");
    }
}

/// A client that cannot be reached at first has taken nothing.
#[test]
fn a_grant_that_was_never_told_before_can_be_refused() {
    let port = sockets().0.local_addr().unwrap().port();
    let mut server = Server::at(port);
    grant(&mut server, Transport::Tcp);
    std::thread::sleep(Duration::from_millis(100));
    let tcp = TcpListener::bind((LOCAL, port)).unwrap();
    let client = Client::serving(1, tcp, UdpSocket::bind((LOCAL, port)).unwrap());
    client.next();
    server.wait_for_hosts(0);
}

#[test]
fn a_grant_is_repeated_until_it_is_answered_and_holds_up_nobody() {
    let client = Client::new(u32::MAX);
    let mut server = Server::new(&client);
    grant(&mut server, Transport::Udp);
    client.next();
    // Another call to the same client waits for its turn, and the server does not.
    assert_eq!(server.lock(Transport::Udp, "two", 2, 2), 0, "it has the lock and asks again");
    assert_eq!(server.lock(Transport::Udp, "two", 2, 4), 0);
    grant(&mut server, Transport::Udp);
    client.status.store(0, Ordering::Relaxed);
    server.wait_for_rest();
    server.wait_for_hosts(1);
}

#[test]
fn results_of_messages_are_sent() {
    let client = Client::new(0);
    let mut server = Server::new(&client);
    assert_eq!(server.lock(Transport::Tcp, "one", 1, 7), u32::MAX);
    let (program, version, procedure, arguments) = client.next();
    assert_eq!((program, version, procedure), (NLM, 4, 12));
    assert_eq!(arguments, [0; 8]);
}

#[test]
fn hosts_of_before_are_told_and_then_forgotten() {
    let client = Client::new(0);
    let server = Server::new(&client);
    let place = tempfile::tempdir().unwrap();
    let open = || Nsm::open(place.path(), true).map_err(|error| error.to_string()).unwrap();
    let address: IpAddr = LOCAL.parse().unwrap();
    open().record(RecordedHost { address, name: b"one".to_vec() }, || None).unwrap();
    let sender = Sender::new(&server.engine, open(), client.port);
    sender.notify_former();
    sender.forget_former();
    let (program, version, procedure, arguments) = client.next();
    assert_eq!((program, version, procedure), (SM_PROGRAM, 1, 6));
    let mut r = Reader::new(&arguments);
    assert_eq!(r.opaque(1024).unwrap(), sender.own_name().as_bytes());
    assert_eq!((r.u32(), r.is_empty()), (Ok(3), true));
    let start = Instant::now();
    while sender.0.queue.lock().notices > 0 {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.forget_former();
    assert!(open().former().is_empty());
}

fn result(to: impl Into<IpAddr>, attempts: u32) -> Job {
    Job {
        remote: Remote {
            to: to.into(),
            from: None,
            transport: Transport::Udp,
            program: NLM,
            version: 4,
        },
        procedure: 5,
        arguments: Vec::new(),
        until: Until::Attempts(9),
        due: Instant::now(),
        pause: FIRST_PAUSE,
        attempts,
    }
}

#[test]
fn a_client_that_does_not_take_its_results_leaves_room_for_others() {
    let mut queue = Queue::default();
    let mut add = |job: Job| {
        let has_room = queue.has_room(&job);
        if has_room {
            queue.jobs.push_back(job);
        }
        has_room
    };
    let silent = [10, 0, 0, 1];
    let taken = (0..CALLS_MAX).filter(|_| add(result(silent, 0))).count();
    assert_eq!(taken, RESULTS_OF_CLIENT_MAX);
    assert!(add(result([10, 0, 0, 2], 0)));
    let notice = |to: [u8; 4]| Job { until: Until::Time(Instant::now()), ..result(to, 0) };
    for number in 0..2 * CALLS_MAX as u32 {
        assert!(add(notice(number.to_be_bytes())), "nobody is forgotten who was not told");
    }
    assert!(!add(result([10, 0, 0, 3], 0)), "there is a bound for all");
}

#[test]
fn those_who_failed_before_leave_threads_to_others() {
    let now = Instant::now();
    let job = |number: u8, attempts| Job { due: now, ..result([10, 0, 0, number], attempts) };
    let mut queue = Queue::default();
    queue.jobs.extend((0..20).map(|number| job(number, 1)));
    queue.jobs.push_back(job(100, 0));
    queue.jobs.push_back(job(100, 0));
    let taken: Vec<Job> = std::iter::from_fn(|| queue.take(now)).collect();
    assert_eq!(taken.len(), RETRYING_MAX + 1, "one call to a client at a time");
    assert!(taken.iter().any(|job| job.attempts == 0));
}

#[test]
fn hosts_that_are_down_do_not_hold_up_the_notices_to_others() {
    const HOSTS: usize = 100;
    let client = Client::new(0);
    let server = Server::new(&client);
    let place = tempfile::tempdir().unwrap();
    let open = || Nsm::open(place.path(), true).map_err(|error| error.to_string()).unwrap();
    let first = open();
    for host in 0..HOSTS as u8 {
        let address: IpAddr = [127, 1, 0, host + 1].into();
        first.record(RecordedHost { address, name: vec![host] }, || None).unwrap();
    }
    // It takes all and says nothing.
    let silent = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let sender = Sender::new(&server.engine, open(), port);
    sender.notify_former();
    let start = Instant::now();
    // All at once, before the first has failed.
    while sender.0.queue.lock().busy.len() < HOSTS {
        assert!(start.elapsed() < Duration::from_secs(3));
        std::thread::sleep(Duration::from_millis(5));
    }
    sender.end(Vec::new());
}
