//! A toy service and a client for it.
//!
//! A record is a number (4 bytes), a command byte and a body; the reply begins with the number.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use smallvec::smallvec;
use socket2::{Domain, Socket, Type};
use steadfast_engine::{
    Awaited, CallHost, CompoundOperation, HangUp, ParkedCall, Peer, ReplyBuffer, ReplySink, Room,
    StorageId, SuspendedCall, Verdict,
};
use steadfast_runtime::{ReplyLog, Server, ServerOptions, Service};
use steadfast_vfs::{FileRange, Flush, FlushDomain, FlushTarget, FlushWhat, FsError};

/// Long enough for anything that is not stuck.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A door that calls and flushes wait at until the test opens it.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    pub waiting: AtomicU64,
}

impl Gate {
    pub fn pass(&self) {
        let mut open = self.open.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !*open {
            self.changed.wait(&mut open);
        }
    }

    pub fn open(&self) {
        *self.open.lock() = true;
        self.changed.notify_all();
    }

    pub fn wait_for_guests(&self, count: u64) {
        wait_until(|| self.waiting.load(Ordering::SeqCst) >= count);
    }
}

pub fn wait_until(is_done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_done() {
        assert!(std::time::Instant::now() < deadline, "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Its flush waits for [`Shared::gate`], too.
pub const WAITING_OBJECT: u64 = 200;
/// From this number to the next one, flushes of objects are shared.
pub const SHARED_OBJECT: u64 = 201;
/// Its flush is shared, and waits for [`Shared::gate`].
pub const WAITING_SHARED_OBJECT: u64 = 203;

pub struct Target {
    key: u64,
    toy: Arc<Shared>,
}

#[derive(Default)]
pub struct Shared {
    pub gate: Gate,
    pub flush_gate: Gate,
    pub gates: [Gate; 4],
    pub flushes: Mutex<Vec<(u64, FlushWhat)>>,
    pub whole_flushes: AtomicU64,
    pub last_shared_failure: AtomicU64,
    /// Objects whose flush fails.
    pub failing: Mutex<Vec<u64>>,
    /// How often the service was told of a failed flush.
    pub failures_told: AtomicU64,
    pub peers: Mutex<Vec<Peer>>,
    /// Calls that were executed.
    pub executed: AtomicU64,
    /// Calls that were suspended and refused then.
    pub refused: AtomicU64,
    pub ticks: AtomicU64,
    /// What clients have given back, and who waits for what.
    pub given_back: Mutex<Vec<u8>>,
    pub wakers: Mutex<Vec<(u8, Waker)>>,
    /// Where the replies of calls are to be sent later.
    pub sinks: Mutex<Vec<Box<dyn ReplySink>>>,
}

impl Shared {
    fn wake(&self, what: &[u8]) {
        let is_of = |waiting: &mut (u8, Waker)| what.contains(&waiting.0);
        let woken: Vec<_> = self.wakers.lock().extract_if(.., is_of).collect();
        for (_, waker) in woken {
            waker.wake();
        }
    }
}

impl FlushTarget for Target {
    fn flush_key(&self) -> u64 {
        self.key
    }

    fn flush(&self, what: FlushWhat) -> Result<(), FsError> {
        self.toy.flush_gate.pass();
        if self.key == WAITING_OBJECT {
            self.toy.gate.pass();
        }
        self.toy.flushes.lock().push((self.key, what));
        if self.toy.failing.lock().contains(&self.key) { Err(FsError::NoSpace) } else { Ok(()) }
    }

    fn flush_file_system(&self) -> Result<(), FsError> {
        if self.last_shared_failure().is_none() {
            self.toy.flush_gate.pass();
        }
        if self.key == WAITING_SHARED_OBJECT {
            self.toy.gate.pass();
        }
        self.toy.whole_flushes.fetch_add(1, Ordering::SeqCst);
        if self.toy.failing.lock().contains(&self.key) { Err(FsError::NoSpace) } else { Ok(()) }
    }

    fn last_shared_failure(&self) -> Option<&AtomicU64> {
        let is_shared = (SHARED_OBJECT..=WAITING_SHARED_OBJECT).contains(&self.key);
        is_shared.then_some(&self.toy.last_shared_failure)
    }
}

#[derive(Default)]
pub struct Toy(pub Arc<Shared>);

/// What the commands do that need more than a few lines; [`Toy::call`] says what.
impl Toy {
    fn wait_at_gate(&self, host: &mut dyn CallHost, body: &[u8]) -> Verdict {
        let [how, gate, opened @ ..] = body else { return Verdict::Silent };
        match how {
            b's' => host.seldom_blocks(),
            b'm' => host.may_block(),
            b'o' => host.opens(),
            b'w' => {
                host.seldom_blocks();
                host.will_block();
            }
            _ => {}
        }
        for gate in opened {
            self.0.gates[usize::from(*gate)].open();
        }
        self.0.gates[usize::from(*gate)].pass();
        host.has_opened();
        Verdict::Replied
    }

    fn wait_for_storage(
        &self,
        host: &mut dyn CallHost,
        body: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let [storage, how, gate, ..] = body else { return Verdict::Silent };
        let storage = StorageId(u64::from(*storage));
        match host.room_to_wait(storage) {
            Room::Free => {}
            Room::Later => {
                let reply = [&std::mem::take(&mut reply.bytes)[..], b"later"].concat();
                return Verdict::Suspended(SuspendedCall::for_test(reply));
            }
            Room::None => {
                reply.bytes.extend_from_slice(b"later");
                return Verdict::Replied;
            }
        }
        match how {
            b'w' => host.will_block(),
            // Opens an object for a while, and then has to wait.
            b'o' => {
                host.opens();
                std::thread::sleep(Duration::from_millis(10));
                host.has_opened();
                assert_eq!(host.room_to_wait(storage), Room::Free, "it waits already");
                host.will_block();
            }
            _ => host.may_block(),
        }
        self.0.gates[usize::from(*gate)].pass();
        reply.bytes.extend_from_slice(b"done");
        Verdict::Replied
    }

    fn wait_for_client(
        &self,
        host: &mut dyn CallHost,
        body: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let [what, patience, how] = *body else { return Verdict::Silent };
        let operation = |index| CompoundOperation::all().nth(index).unwrap();
        if how == b'O' {
            host.operations_begin();
            host.may_block();
            if host.take_suspended().is_none() {
                self.0.gate.pass();
                host.operation_ended(operation(1), false);
            }
        }
        if how == b'l' {
            host.will_block();
            self.0.gate.pass();
        }
        let given_back = self.0.given_back.lock();
        if given_back.contains(&what) {
            if how == b'O' {
                host.operation_ended(operation(2), false);
            }
            reply.bytes.extend_from_slice(b"done");
            return Verdict::Replied;
        }
        let waker = host.waker(u64::from(patience) * 100);
        reply.bytes.extend_from_slice(b"later");
        let Some(waker) = waker else { return Verdict::Replied };
        self.0.wakers.lock().push((what, waker));
        drop(given_back);
        let reply = std::mem::take(&mut reply.bytes);
        Verdict::Suspended(SuspendedCall::for_test_of_client(reply))
    }

    fn park(&self, host: &mut dyn CallHost, body: &[u8], reply: &mut ReplyBuffer) -> Verdict {
        host.may_block();
        let mut reply = std::mem::take(&mut reply.bytes);
        reply.extend_from_slice(b"stable");
        let (domain, keys) = body.split_first().unwrap_or((&0, &[]));
        let mut targets = smallvec![];
        for key in keys {
            let target = Target { key: u64::from(*key), toy: Arc::clone(&self.0) };
            let target: Arc<dyn FlushTarget> = Arc::new(target);
            targets.push((target, FlushWhat::Data));
        }
        let domain = FlushDomain(u32::from(*domain));
        Verdict::Parked(ParkedCall::for_test(Awaited::Flush(Flush { domain, targets }), reply))
    }
}

impl Service for Toy {
    fn call(
        &self,
        host: &mut dyn CallHost,
        peer: &Peer,
        _now_ms: u64,
        record: &[u8],
        reply: &mut ReplyBuffer,
    ) -> Verdict {
        let Some((number, [command, body @ ..])) = record.split_first_chunk::<4>() else {
            return Verdict::HangUp(HangUp::NotACall);
        };
        reply.bytes.extend_from_slice(number);
        reply.facts.xid = u32::from_be_bytes(*number);
        self.0.executed.fetch_add(1, Ordering::SeqCst);
        match command {
            b'e' => reply.bytes.extend_from_slice(body),
            // A COMPOUND of these operations, by index, of which the last fails.
            b'O' => {
                host.operations_begin();
                for (place, index) in body.iter().enumerate() {
                    let operation = CompoundOperation::all().nth(usize::from(*index)).unwrap();
                    host.operation_ended(operation, place + 1 == body.len());
                }
            }
            // A COMPOUND of two operations, by index, the first of which may wait. The second waits at the gate.
            b'Q' => {
                let operation = |index| CompoundOperation::all().nth(index).unwrap();
                host.operations_begin();
                host.may_block();
                host.operation_ended(operation(1), false);
                self.0.gate.pass();
                host.operation_ended(operation(2), false);
                host.operation_ended(operation(3), false);
            }
            // Tells who serves it, and where.
            b'c' => {
                let cpu = rustix::thread::sched_getcpu();
                let thread = std::thread::current();
                let text = format!("{} {cpu}", thread.name().unwrap_or_default());
                reply.bytes.extend_from_slice(text.as_bytes());
            }
            // Waits, having said that it may.
            b'b' => {
                host.may_block();
                self.0.gate.pass();
            }
            // Keeps the seat until the gate opens.
            b'K' => self.0.gate.pass(),
            // Says how often it sleeps, opens some of the gates, and waits at another: `how`, which
            // is `k` for keeping the seat; the gate; those that are opened.
            b'G' => return self.wait_at_gate(host, body),
            // Waits for a storage at one of the gates, if it may: the storage, how, the gate.
            b'S' => return self.wait_for_storage(host, body, reply),
            // Waits for a client to give something back: what, for so many times 100 ms, how. `l` loses its
            // seat before. `O` is a COMPOUND, whose first operation waits at the gate and is not executed again, and
            // whose second one waits for the client.
            b'W' => return self.wait_for_client(host, body, reply),
            // Gives something back.
            b'U' => {
                self.0.given_back.lock().extend_from_slice(body);
                self.0.wake(body);
            }
            // Wakes who waits for something, though it is not given back.
            b'u' => self.0.wake(body),
            // Opens an object, which takes a while: so many ms, if told.
            b'o' => {
                host.opens();
                let told = body.first().map(|ms| Duration::from_millis(u64::from(*ms)));
                std::thread::sleep(told.unwrap_or(Duration::from_micros(500)));
                host.has_opened();
            }
            // Waits, having said that it will.
            b'w' => {
                host.will_block();
                self.0.gate.pass();
            }
            // Says that it may, and does not.
            b'm' => {
                host.may_block();
                host.may_block();
            }
            // Waits a little, so that the seat is sometimes taken.
            b'z' => {
                host.may_block();
                std::thread::sleep(Duration::from_millis(3));
            }
            // Is answered later, with the body of another call.
            b'd' => {
                self.0.sinks.lock().push(host.reply_sink().unwrap());
                return Verdict::Silent;
            }
            b'D' => {
                for sink in self.0.sinks.lock().drain(..) {
                    sink.send(body);
                }
            }
            // Keeps the seat for a while.
            b'k' => std::thread::sleep(Duration::from_millis(1)),
            // Parks: domain, then object numbers, a byte each.
            b'p' => return self.park(host, body, reply),
            // A reply of so many bytes.
            b'l' => {
                let size = u32::from_be_bytes(body.try_into().unwrap()) as usize;
                reply.bytes.resize(4 + size, 7);
            }
            // This source file as a file range.
            b'f' => {
                let file = std::fs::File::open(file!().rsplit_once("crates/runtime/").unwrap().1);
                let file = Arc::new(file.unwrap());
                assert!(reply.may_place_files);
                reply.files.push((4, FileRange { file, offset: 3, length: 5000 }));
                reply.bytes.extend_from_slice(b"end");
            }
            b'a' => self.0.peers.lock().push(Peer::new(peer.address, peer.local, peer.transport)),
            b's' => return Verdict::Silent,
            b'x' => panic!("as the test asked"),
            _ => return Verdict::HangUp(HangUp::NotACall),
        }
        Verdict::Replied
    }

    fn refuse(&self, call: SuspendedCall, reply: &mut Vec<u8>) {
        self.0.refused.fetch_add(1, Ordering::SeqCst);
        reply.extend_from_slice(call.result());
    }

    fn settle(
        &self,
        call: Box<ParkedCall>,
        outcome: Result<(), FsError>,
        _now_ms: u64,
        reply: &mut Vec<u8>,
    ) {
        match outcome {
            Ok(()) => reply.extend_from_slice(call.result()),
            Err(error) => {
                reply.extend_from_slice(&call.result()[..4]);
                reply.extend_from_slice(format!("{error:?}").as_bytes());
            }
        }
    }

    fn flush_failed(&self) {
        self.0.failures_told.fetch_add(1, Ordering::SeqCst);
    }

    fn tick(&self, _now_ms: u64) {
        self.0.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn options() -> ServerOptions {
    ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        pools: 1,
        seats_per_pool: 2,
        ..ServerOptions::default()
    }
}

pub struct Fixture {
    pub server: Server,
    pub toy: Arc<Shared>,
    pub address: SocketAddr,
}

pub fn start(options: ServerOptions) -> Fixture {
    start_with_log(options, None)
}

pub fn start_with_log(options: ServerOptions, log: Option<Arc<dyn ReplyLog>>) -> Fixture {
    let toy = Arc::new(Shared::default());
    let service = Arc::new(Toy(Arc::clone(&toy)));
    let server = Server::start_with_log(options, service, log).unwrap();
    let address = server.local_addresses()[0];
    Fixture { server, toy, address }
}

impl Fixture {
    /// A connection whose source is another loopback address: another client.
    pub fn connect_from(&self, address: [u8; 4]) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::from(address), 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Client::new(TcpStream::from(socket))
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }
}

pub struct Client {
    pub stream: TcpStream,
}

pub fn record(number: u32, command: u8, body: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[command], body].concat()
}

pub fn marked(record: &[u8]) -> Vec<u8> {
    [&(0x8000_0000 | record.len() as u32).to_be_bytes()[..], record].concat()
}

impl Client {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream }
    }

    pub fn send(&mut self, number: u32, command: u8, body: &[u8]) {
        self.stream.write_all(&marked(&record(number, command, body))).unwrap();
    }

    /// The next reply: its number and the rest.
    pub fn receive(&mut self) -> (u32, Vec<u8>) {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0);
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut reply).unwrap();
        let rest = reply.split_off(4);
        (u32::from_be_bytes(reply.try_into().unwrap()), rest)
    }

    pub fn receive_many(&mut self, count: usize) -> HashMap<u32, Vec<u8>> {
        let replies: HashMap<_, _> = (0..count).map(|_| self.receive()).collect();
        assert_eq!(replies.len(), count, "a reply came twice");
        replies
    }

    pub fn call(&mut self, number: u32, command: u8, body: &[u8]) -> Vec<u8> {
        self.send(number, command, body);
        let (answered, rest) = self.receive();
        assert_eq!(answered, number);
        rest
    }

    /// Whether the server has ended the connection, nothing more coming before.
    pub fn is_ended(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Runs `work` on another thread; the channel tells its end.
pub fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    receiver
}

/// Resident memory of this process in bytes.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
