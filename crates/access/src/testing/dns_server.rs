//! A name server for tests: UDP on loopback, answers from a table, fails as it is told to.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

const A: u16 = 1;
const SOA: u16 = 6;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

/// What the server does with questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behavior {
    /// Answers at once.
    #[default]
    Answer,
    /// Says nothing, as if packets were lost.
    Drop,
    /// Answers after this time.
    Delay(Duration),
    /// Says that it cannot tell.
    ServFail,
    /// Answers one question of two, and drops the other.
    Flap,
}

#[derive(Default)]
struct State {
    /// Addresses by name, and names by address; names in lower case without the root's dot.
    hosts: HashMap<String, Vec<IpAddr>>,
    pointers: HashMap<IpAddr, Vec<String>>,
    ttl_s: u32,
    behavior: Behavior,
    /// Names for which it behaves otherwise.
    exceptions: HashMap<String, Behavior>,
    /// Questions by name and type.
    counts: HashMap<(String, u16), u64>,
    delayed: Vec<(Instant, Vec<u8>, SocketAddr)>,
}

struct Shared {
    state: Mutex<State>,
    bell: Condvar,
    socket: UdpSocket,
    asked: AtomicU64,
    is_stopping: AtomicBool,
}

/// A name server on a port of its own. It ends when it is dropped.
pub struct DnsServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl DnsServer {
    /// Starts one that knows nothing.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    /// Starts one at an address.
    pub fn start_at(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let address = socket.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { ttl_s: 60, ..State::default() }),
            bell: Condvar::new(),
            socket,
            asked: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let (receiver, sender) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || receiver.receive()),
            std::thread::spawn(move || sender.send_delayed()),
        ];
        Self { shared, address, threads }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A host has these addresses, and no others.
    pub fn set_host(&self, host: &str, addresses: &[IpAddr]) {
        self.shared.state.lock().hosts.insert(host.to_ascii_lowercase(), addresses.to_vec());
    }

    /// An address has these names, true or not.
    pub fn set_pointer(&self, address: IpAddr, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.shared.state.lock().pointers.insert(address, names);
    }

    /// A host has an address, and the address its name.
    pub fn set_both(&self, host: &str, address: IpAddr) {
        self.set_host(host, &[address]);
        self.set_pointer(address, &[host]);
    }

    /// There is no such host.
    pub fn remove_host(&self, host: &str) {
        self.shared.state.lock().hosts.remove(&host.to_ascii_lowercase());
    }

    /// The time to live of all that is answered from now on, in s.
    pub fn set_ttl(&self, ttl_s: u32) {
        self.shared.state.lock().ttl_s = ttl_s;
    }

    /// What it does with questions from now on.
    pub fn set_behavior(&self, behavior: Behavior) {
        self.shared.state.lock().behavior = behavior;
    }

    /// What it does with questions about one name from now on (of an address, as in
    /// `1.0.0.127.in-addr.arpa`).
    pub fn set_exception(&self, name: &str, behavior: Behavior) {
        self.shared.state.lock().exceptions.insert(name.to_ascii_lowercase(), behavior);
    }

    /// How many questions came, of all kinds.
    pub fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// How many questions for addresses of a host came: the most of A and of AAAA.
    pub fn asked_about(&self, host: &str) -> u64 {
        let state = self.shared.state.lock();
        let count = |kind| state.counts.get(&(host.to_ascii_lowercase(), kind)).copied();
        count(A).max(count(AAAA)).unwrap_or(0)
    }

    /// How many questions for the names of an address came.
    pub fn asked_pointer(&self, address: IpAddr) -> u64 {
        let state = self.shared.state.lock();
        state.counts.get(&(reverse_name(address), PTR)).copied().unwrap_or(0)
    }

    /// Forgets what it counted.
    pub fn reset_counts(&self) {
        self.shared.state.lock().counts.clear();
        self.shared.asked.store(0, Ordering::SeqCst);
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.bell.notify_all();
        // The receiver wakes for a packet.
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(&[], self.address);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for DnsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DnsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The name under which an address is asked for.
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
            let nibbles: Vec<_> = nibbles.map(|nibble| format!("{nibble:x}.")).collect();
            nibbles.into_iter().rev().collect::<String>() + "ip6.arpa"
        }
    }
}

struct Question {
    id: [u8; 2],
    /// As it was sent: the answer repeats it.
    bytes: Vec<u8>,
    name: String,
    kind: u16,
}

impl Question {
    fn read(packet: &[u8]) -> Option<Self> {
        let id = *packet.first_chunk::<2>()?;
        let mut labels = Vec::new();
        let mut at = 12;
        loop {
            let length = usize::from(*packet.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            if length > 63 || labels.len() > 127 {
                return None;
            }
            labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_lowercase());
            at += length;
        }
        let kind = u16::from_be_bytes(*packet.get(at..)?.first_chunk::<2>()?);
        let bytes = packet.get(12..at + 4)?.to_vec();
        Some(Self { id, bytes, name: labels.join("."), kind })
    }
}

impl Shared {
    fn receive(&self) {
        let mut packet = [0; 4096];
        let mut number = 0_u64;
        while !self.is_stopping.load(Ordering::SeqCst) {
            let Ok((length, from)) = self.socket.recv_from(&mut packet) else { continue };
            let Some(question) = packet.get(..length).and_then(Question::read) else { continue };
            self.asked.fetch_add(1, Ordering::SeqCst);
            number += 1;
            let mut state = self.state.lock();
            *state.counts.entry((question.name.clone(), question.kind)).or_insert(0) += 1;
            let behavior = state.exceptions.get(&question.name).copied();
            let answer = match behavior.unwrap_or(state.behavior) {
                Behavior::Drop => continue,
                Behavior::Flap if number.is_multiple_of(2) => continue,
                Behavior::Answer | Behavior::Flap => state.answer(&question),
                Behavior::ServFail => message(&question, SERVFAIL, &[], state.ttl_s),
                Behavior::Delay(time) => {
                    let answer = state.answer(&question);
                    state.delayed.push((Instant::now() + time, answer, from));
                    self.bell.notify_all();
                    continue;
                }
            };
            let _ = self.socket.send_to(&answer, from);
        }
    }

    fn send_delayed(&self) {
        let mut state = self.state.lock();
        while !self.is_stopping.load(Ordering::SeqCst) {
            let now = Instant::now();
            let delayed = std::mem::take(&mut state.delayed);
            let (due, later): (Vec<_>, Vec<_>) = delayed.into_iter().partition(|d| d.0 <= now);
            for (_, answer, to) in due {
                let _ = self.socket.send_to(&answer, to);
            }
            let next = later.iter().map(|d| d.0).min();
            state.delayed = later;
            match next {
                Some(next) => {
                    self.bell.wait_until(&mut state, next);
                }
                None => self.bell.wait(&mut state),
            }
        }
    }
}

impl State {
    fn answer(&self, question: &Question) -> Vec<u8> {
        let addresses = self.hosts.get(&question.name);
        let pointer = |(address, _): &(&IpAddr, _)| reverse_name(**address) == question.name;
        let (is_there, records): (bool, Vec<Vec<u8>>) = match question.kind {
            A | AAAA => {
                let wanted = addresses.into_iter().flatten().filter_map(|address| match address {
                    IpAddr::V4(address) if question.kind == A => Some(address.octets().to_vec()),
                    IpAddr::V6(address) if question.kind == AAAA => Some(address.octets().to_vec()),
                    _ => None,
                });
                (addresses.is_some(), wanted.collect())
            }
            PTR => {
                let names = self.pointers.iter().find(pointer).map(|(_, names)| names);
                let records = names.into_iter().flatten().map(|name| encoded(name)).collect();
                (names.is_some(), records)
            }
            _ => (addresses.is_some(), Vec::new()),
        };
        let code = if is_there { 0 } else { NXDOMAIN };
        message(question, code, &records, self.ttl_s)
    }
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// A reply. One without records has the start of authority that makes it an answer.
fn message(question: &Question, code: u8, records: &[Vec<u8>], ttl_s: u32) -> Vec<u8> {
    let mut bytes = question.id.to_vec();
    // A response, authoritative, recursion desired and available.
    bytes.extend([0x85, 0x80 | code]);
    let has_authority = records.is_empty() && code != SERVFAIL;
    for count in [1, records.len() as u16, u16::from(has_authority), 0] {
        bytes.extend(count.to_be_bytes());
    }
    bytes.extend(&question.bytes);
    for record in records {
        // The name is the question's.
        bytes.extend([0xc0, 12]);
        bytes.extend(question.kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(ttl_s.to_be_bytes());
        bytes.extend((record.len() as u16).to_be_bytes());
        bytes.extend(record);
    }
    if has_authority {
        let mut data = encoded("ns.example");
        data.extend(encoded("admin.example"));
        for number in [1, 3600, 600, 86400, ttl_s] {
            data.extend(number.to_be_bytes());
        }
        bytes.push(0);
        bytes.extend(SOA.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(ttl_s.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}
