//! From packets to calls: [`Dissector`].

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use etherparse::TcpHeaderSlice;

use super::connection::{Connection, Observer, REPLY_WAIT_NS, Shared};
use super::counts::Counts;
use super::fragments::Fragments;
use super::handle::Names;
use super::packet::{self, IpPayload, Network, Packet, plain_address};
use super::stream::Segment;

/// Connections that are followed at a time.
const CONNECTIONS_MAX: usize = 65_536;
/// A connection that was silent for so long is forgotten.
const IDLE_NS: u64 = 900_000_000_000;
/// How often old things are looked for.
const SWEEP_NS: u64 = 1_000_000_000;
/// Ports that may become known by themselves.
const PORTS_MAX: usize = 64;
/// Ports that are watched if nobody says which: NFS, rpcbind, and where the Linux kernel's server has
/// `mountd`.
pub const DEFAULT_PORTS: [u16; 3] = [2049, 111, 20_048];

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    is_tcp: bool,
    /// In their order.
    endpoints: [SocketAddr; 2],
}

/// Makes calls of packets, and tells an [`Observer`] of each that is over. Knows no clock but the times of
/// packets; keeps bounded memory, whatever the packets say.
#[derive(Debug, Default)]
pub struct Dissector {
    ports: BTreeSet<u16>,
    connections: HashMap<Key, Connection>,
    fragments: Fragments,
    names: Names,
    counts: Counts,
    kept_bytes: usize,
    next_sweep_ns: u64,
}

impl Dissector {
    /// For the calls of servers at these ports.
    pub fn new(ports: impl IntoIterator<Item = u16>) -> Self {
        Self { ports: ports.into_iter().collect(), ..Self::default() }
    }

    /// The ports that are watched, with those that became known by answers of rpcbind and by clients that
    /// say where they want callbacks.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.ports.iter().copied()
    }

    /// What was seen, and what was not.
    pub fn counts(&self) -> Counts {
        Counts {
            incomplete_datagrams: self.fragments.incomplete,
            connections: self.connections.len() as u64,
            ..self.counts
        }
    }

    /// What handles are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Takes a packet.
    pub fn handle_packet(&mut self, packet: &Packet<'_>, observer: &mut dyn Observer) {
        self.counts.packets += 1;
        self.counts.bytes += packet.wire_bytes as u64;
        let now_ns = packet.time_ns;
        match packet::network(packet) {
            Network::Whole(payload) => self.handle_payload(&payload, now_ns, observer),
            Network::Fragment(fragment) => {
                if let Some(whole) = self.fragments.handle(&fragment, now_ns) {
                    let payload = IpPayload { bytes: &whole, missing: 0, ..fragment.part };
                    let payload = packet::unwrapped(payload);
                    self.handle_payload(&payload, now_ns, observer);
                }
            }
            Network::LoopbackCopy => self.counts.copies += 1,
            Network::Other => self.counts.other_packets += 1,
        }
        self.handle_time(now_ns, observer);
    }

    /// It is so late. Calls without a reply are forgotten by this.
    pub fn handle_time(&mut self, now_ns: u64, observer: &mut dyn Observer) {
        if now_ns < self.next_sweep_ns && self.next_sweep_ns - now_ns <= SWEEP_NS {
            return;
        }
        self.next_sweep_ns = now_ns.saturating_add(SWEEP_NS);
        self.fragments.forget_old(now_ns);
        let mut ports = Vec::new();
        let mut shared = Shared {
            counts: &mut self.counts,
            names: &mut self.names,
            kept_bytes: &mut self.kept_bytes,
            ports: &mut ports,
            observer,
        };
        self.connections.retain(|_, connection| {
            connection.forget_calls(now_ns.saturating_sub(REPLY_WAIT_NS), &mut shared);
            let silent_ns = now_ns.saturating_sub(connection.last_ns);
            // What did not come for so long takes no room from others.
            if silent_ns >= REPLY_WAIT_NS && connection.kept_bytes() > 0 {
                connection.let_go(&mut shared);
            }
            let is_kept = silent_ns < IDLE_NS;
            if !is_kept {
                *shared.kept_bytes = shared.kept_bytes.saturating_sub(connection.kept_bytes());
                connection.uncount_calls(shared.counts);
            }
            is_kept
        });
    }

    fn handle_payload(
        &mut self,
        payload: &IpPayload<'_>,
        now_ns: u64,
        observer: &mut dyn Observer,
    ) {
        match payload.protocol {
            TCP => self.handle_tcp(payload, now_ns, observer),
            UDP => self.handle_udp(payload, now_ns, observer),
            _ => self.counts.other_packets += 1,
        }
    }

    fn handle_udp(&mut self, payload: &IpPayload<'_>, now_ns: u64, observer: &mut dyn Observer) {
        let Some((header, bytes)) = payload.bytes.split_first_chunk::<UDP_HEADER_BYTES>() else {
            self.counts.other_packets += 1;
            return;
        };
        let [s1, s2, d1, d2, l1, l2, ..] = *header;
        let (source, destination) = (u16::from_be_bytes([s1, s2]), u16::from_be_bytes([d1, d2]));
        // What is behind the datagram is not of it; a length of 0 is one that is too large to be told.
        let length = usize::from(u16::from_be_bytes([l1, l2])).saturating_sub(UDP_HEADER_BYTES);
        let bytes = if length == 0 { bytes } else { bytes.get(..length).unwrap_or(bytes) };
        self.with(
            payload,
            [source, destination],
            false,
            now_ns,
            observer,
            |found, from, shared| {
                found.handle_datagram(from, bytes, now_ns, shared);
            },
        );
    }

    fn handle_tcp(&mut self, payload: &IpPayload<'_>, now_ns: u64, observer: &mut dyn Observer) {
        let Ok(header) = TcpHeaderSlice::from_slice(payload.bytes) else {
            self.counts.other_packets += 1;
            return;
        };
        let segment = Segment {
            sequence: header.sequence_number(),
            payload: payload.bytes.get(header.slice().len()..).unwrap_or_default(),
            missing: u32::try_from(payload.missing).unwrap_or(u32::MAX),
            is_syn: header.syn(),
            time_ns: now_ns,
        };
        let acknowledged = header.ack().then(|| header.acknowledgment_number());
        let is_reset = header.rst();
        let ports = [header.source_port(), header.destination_port()];
        self.with(payload, ports, true, now_ns, observer, |connection, from, shared| {
            if is_reset {
                connection.handle_reset(shared.kept_bytes);
            } else {
                connection.handle_segment(from, &segment, acknowledged, shared);
            }
        });
    }

    /// Finds the connection of a packet, and has something done with it.
    fn with(
        &mut self,
        payload: &IpPayload<'_>,
        ports: [u16; 2],
        is_tcp: bool,
        now_ns: u64,
        observer: &mut dyn Observer,
        work: impl FnOnce(&mut Connection, usize, &mut Shared<'_>),
    ) {
        let [source, destination] = ports;
        if !self.ports.contains(&source) && !self.ports.contains(&destination) {
            self.counts.other_packets += 1;
            return;
        }
        let source = SocketAddr::new(plain_address(payload.source), source);
        let destination = SocketAddr::new(plain_address(payload.destination), destination);
        let from = usize::from(destination < source);
        let endpoints = if from == 0 { [source, destination] } else { [destination, source] };
        let key = Key { is_tcp, endpoints };
        if self.connections.len() >= CONNECTIONS_MAX && !self.connections.contains_key(&key) {
            self.make_room();
        }
        let connection = self.connections.entry(key).or_insert_with(|| Connection::new(endpoints));
        if connection.is_copy(from, payload.interface, now_ns) {
            self.counts.copies += 1;
            return;
        }
        let mut learnt = Vec::new();
        let mut shared = Shared {
            counts: &mut self.counts,
            names: &mut self.names,
            kept_bytes: &mut self.kept_bytes,
            ports: &mut learnt,
            observer,
        };
        work(connection, from, &mut shared);
        for port in learnt {
            if self.ports.len() < PORTS_MAX {
                self.ports.insert(port);
            }
        }
    }

    /// Forgets the eighth of the connections that was silent for the longest time.
    fn make_room(&mut self) {
        let mut times: Vec<u64> = self.connections.values().map(|each| each.last_ns).collect();
        let index = times.len() / 8;
        let (_, limit_ns, _) = times.select_nth_unstable(index);
        let limit_ns = *limit_ns;
        let before = self.connections.len();
        let mut room = index.max(1);
        self.connections.retain(|_, connection| {
            let goes = connection.last_ns <= limit_ns && room > 0;
            if goes {
                room -= 1;
                self.kept_bytes = self.kept_bytes.saturating_sub(connection.kept_bytes());
                connection.uncount_calls(&mut self.counts);
            }
            !goes
        });
        self.counts.forgotten_connections += (before - self.connections.len()) as u64;
    }
}
