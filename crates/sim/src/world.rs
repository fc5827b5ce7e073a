//! Everything that happens, in the order of the virtual clock.

mod begin;
mod faults;
mod grants;
mod locals;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use steadfast_engine::{Grant, OutboundCall, Transport};
use steadfast_xdr::Reader;

use crate::client::{Client, Context, Then};
use crate::delegated::Delegated;
use crate::held::Held;
use crate::history::History;
use crate::leftovers::Leftovers;
use crate::message::{is_call, results, xid};
use crate::random::Random;
use crate::server::{Delivered, OfClient, Server};
use crate::{Checked, Failure, Options, Report};

/// A call must be answered within so many ms in which its client is connected.
const ANSWERED_WITHIN_MS: u64 = 300_000;
/// Clients send a call again after so long, in ms.
const RESEND_TCP_MS: u64 = 15_000;
const RESEND_UDP_MS: u64 = 1_100;
/// What a closed connection had on its way may come for so long, in µs.
const LATE_US: u64 = 8_000_000;
/// Connections have numbers from here on; below are those of datagrams.
const CONNECTIONS_FROM: u64 = 1_000;
/// What hosts have is compared after so many seconds.
const COMPARED_S: u64 = 5;
/// So many clients make as many calls, and have as many faults of their own, as a run by the seed has.
const FEW: u64 = 8;
/// The longest time between two faults, in µs.
const FAULTS_APART_US: u64 = 20_000_000;
/// No worker rests for longer because there are many, in ms.
const REST_MAX_MS: u64 = 5_000;

#[derive(Debug)]
enum Event {
    ToServer {
        client: usize,
        connection: u64,
        epoch: u64,
        message: Vec<u8>,
    },
    ToClient {
        client: usize,
        connection: u64,
        message: Vec<u8>,
    },
    Resend {
        client: usize,
        xid: u32,
    },
    Think {
        client: usize,
        worker: usize,
    },
    Connect {
        client: usize,
    },
    Noticed {
        connection: u64,
        epoch: u64,
    },
    /// A host is to be told that it has a lock.
    Grant {
        epoch: u64,
        call: Box<OutboundCall>,
        grant: Box<Grant>,
        pause_ms: u64,
    },
    /// A host's answer to that.
    Answer {
        epoch: u64,
        grant: Box<Grant>,
        result: Vec<u8>,
    },
    /// A process of the server's machine does something.
    Local {
        process: u64,
    },
    Disk,
    GoOn,
    Tick,
    Fault,
    /// One of many clients is cut off.
    Cut,
    Start {
        power_was_cut: bool,
    },
}

struct Scheduled {
    at_us: u64,
    number: u64,
    event: Event,
}

impl Scheduled {
    fn place(&self) -> (u64, u64) {
        (self.at_us, self.number)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }
}

/// A call that was not answered yet.
struct Outstanding {
    worker: usize,
    message: Vec<u8>,
    sent_ms: u64,
    /// When it was sent first, or its client connected last.
    since_ms: u64,
}

/// A client and its way to the server.
struct Link {
    client: Box<dyn Client>,
    transport: Transport,
    port: u16,
    /// `None` while it is not connected.
    connection: Option<u64>,
    outstanding: BTreeMap<u32, Outstanding>,
    next_xid: u32,
    connected_ms: u64,
    /// When the last message of the connection arrives, in either direction.
    to_server_us: u64,
    to_client_us: u64,
}

/// How often things happen. Were many clients as busy as few ones, a run would end before leases and
/// grace periods do; were they as idle as their number demands, a restart would hardly meet a call. So
/// the seed decides.
struct Rhythm {
    /// Workers rest so many times as long between calls.
    rest: u64,
    /// The longest time between two faults of all kinds.
    faults_apart_us: u64,
    /// The longest time between two cuts beside those; 0: there are none.
    cuts_apart_us: u64,
}

impl Rhythm {
    /// Of few clients.
    const FEW: Self = Self { rest: 1, faults_apart_us: FAULTS_APART_US, cuts_apart_us: 0 };

    fn of_many(clients: u64, random: &mut Random) -> Self {
        let times = 1 + clients / FEW;
        Self {
            rest: random.between(1, 4 * times),
            faults_apart_us: FAULTS_APART_US / random.between(1, times.min(4)),
            cuts_apart_us: FAULTS_APART_US / times,
        }
    }
}

/// The simulation.
pub(crate) struct World {
    random: Random,
    now_us: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    server: Server,
    links: Vec<Link>,
    held: Held,
    delegated: Delegated,
    leftovers: Leftovers,
    history: History,
    /// Counts starts: what was on its way to a process before does not arrive.
    epoch: u64,
    next_connection: u64,
    started_ms: u64,
    lost_ms: u64,
    found_lost_ms: u64,
    disk_is_due: bool,
    go_on_is_due: bool,
    rhythm: Rhythm,
    /// How many processes there are on the server's machine, and how many files are locked.
    locals: u64,
    files: u64,
    report: Report,
}

impl World {
    /// Runs a simulation.
    pub(crate) fn run(options: Options) -> Result<Report, Box<Failure>> {
        let mut world = Self {
            random: Random::new(options.seed),
            now_us: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            server: Server::new(options.mutation),
            links: Vec::new(),
            held: Held::default(),
            delegated: Delegated::default(),
            leftovers: Leftovers::default(),
            history: History::new(options.history),
            epoch: 0,
            next_connection: CONNECTIONS_FROM,
            started_ms: 0,
            lost_ms: 0,
            found_lost_ms: 0,
            disk_is_due: false,
            go_on_is_due: false,
            rhythm: Rhythm::FEW,
            locals: 0,
            files: 0,
            report: Report::default(),
        };
        let mut result = world.begin(options.clients);
        while result.is_ok() && world.report.steps < options.steps {
            result = world.step();
            world.report.steps += 1;
        }
        match result {
            Ok(()) => Ok(Report {
                virtual_ms: world.now_ms(),
                grants: world.held.grants,
                reclaims: world.held.reclaims,
                waits: world.held.grants_by_call,
                waited: world.held.waited,
                notices: world.held.notices,
                host_restarts: world.held.restarts,
                delegations: world.delegated.granted,
                recalls: world.delegated.recalled,
                revocations: world.delegated.revoked,
                digest: world.history.digest(),
                ..world.report
            }),
            Err(what) => {
                let (step, history) = (world.report.steps, world.history.into_entries());
                Err(Box::new(Failure { options, step, what, history }))
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    fn schedule(&mut self, delay_us: u64, event: Event) {
        self.schedule_at(self.now_us + delay_us, event);
    }

    fn schedule_at(&mut self, at_us: u64, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at_us, number: self.scheduled, event }));
    }

    fn step(&mut self) -> Checked {
        let Some(Reverse(Scheduled { at_us, event, .. })) = self.queue.pop() else {
            return Err("nothing happens any more".into());
        };
        self.now_us = at_us;
        match event {
            Event::ToServer { client, connection, epoch, message } => {
                if epoch == self.epoch && self.server.is_up() {
                    self.note(|| format!("server < {client} {:x}", xid(&message)));
                    let now_ms = self.now_ms();
                    let delivered =
                        self.server.deliver(now_ms, connection, message, &mut self.random)?;
                    self.delivered(&delivered);
                }
            }
            Event::ToClient { client, connection, message } => {
                self.arrives(client, connection, &message)?;
            }
            Event::Resend { client, xid } => self.resend(client, xid)?,
            Event::Think { client, worker } => self.think(client, worker)?,
            Event::Connect { client } => self.connect(client),
            Event::Noticed { connection, epoch } => {
                if epoch == self.epoch {
                    self.server.notices_closed(connection);
                }
            }
            Event::Grant { epoch, call, grant, pause_ms } => {
                self.tell_of_grant(epoch, call, grant, pause_ms)?;
            }
            Event::Answer { epoch, grant, result } => {
                if epoch == self.epoch {
                    self.server.answer_grant(self.now_ms(), &grant, &result)?;
                    self.send_replies();
                }
            }
            Event::Disk => {
                self.disk_is_due = false;
                self.server.disk_writes(self.now_ms(), &mut self.random);
                self.send_replies();
            }
            Event::GoOn => {
                self.go_on_is_due = false;
                let delivered = self.server.go_on(self.now_ms(), &mut self.random)?;
                self.delivered(&delivered);
            }
            Event::Tick => {
                let now_ms = self.now_ms();
                self.server.tick(now_ms);
                self.send_replies();
                if (now_ms / 1000).is_multiple_of(COMPARED_S) {
                    let mut found = self.server.of_clients()?;
                    // Of who is not heard of, the server may have what it has lost.
                    found.retain(|of| of.is_host || self.held.is_valid(of.client, now_ms));
                    self.leftovers.compare(now_ms, &found, &self.held)?;
                }
                self.schedule(1_000_000, Event::Tick);
            }
            Event::Local { process } => self.act_locally(process)?,
            Event::Fault => self.fault(),
            Event::Cut => self.cut_somebody(),
            Event::Start { power_was_cut } => self.start(power_was_cut)?,
        }
        Ok(())
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.history.note(self.now_us, &what());
    }

    fn delivered(&mut self, delivered: &Delivered) {
        match delivered {
            Delivered::Done => self.send_replies(),
            Delivered::Killed => {
                self.note(|| "the process is killed within a change".into());
                self.report.kills += 1;
                self.end_process(false);
            }
        }
    }

    /// How long a message takes, in µs.
    fn delay_us(&mut self) -> u64 {
        let end = match self.random.below(100) {
            0 => 3_000_000,
            1..8 => 200_000,
            _ => 2_000,
        };
        self.random.between(50, end)
    }

    /// What the server has sent goes on its way, and what waits in it will go on.
    fn send_replies(&mut self) {
        if self.server.waits_for_disk() && !self.disk_is_due {
            self.disk_is_due = true;
            let end_us = if self.random.chance(5) { 3_000_000 } else { 4_000 };
            let delay_us = self.random.between(50, end_us);
            self.schedule(delay_us, Event::Disk);
        }
        if self.server.has_suspended() && !self.go_on_is_due {
            self.go_on_is_due = true;
            let delay_us = self.random.between(1_000, 400_000);
            self.schedule(delay_us, Event::GoOn);
        }
        for call in self.server.take_calls() {
            let Some(grant) = call.grant.clone().map(Box::new) else { continue };
            let (epoch, call, pause_ms) = (self.epoch, Box::new(call), 1_000);
            let delay_us = self.delay_us();
            self.schedule(delay_us, Event::Grant { epoch, call, grant, pause_ms });
        }
        for (connection, message) in self.server.take_outbox() {
            let is_of = |link: &Link| link.connection == Some(connection);
            let Some(client) = self.links.iter().position(is_of) else { continue };
            let delay_us = self.delay_us();
            let copies = self.copies(client);
            let Some(link) = self.links.get_mut(client) else { continue };
            let mut at_us = self.now_us + delay_us;
            if link.transport == Transport::Tcp {
                at_us = at_us.max(link.to_client_us);
                link.to_client_us = at_us;
            }
            for copy in 0..copies {
                let message = message.clone();
                let at_us = at_us + copy * 1_000;
                self.schedule_at(at_us, Event::ToClient { client, connection, message });
            }
        }
    }

    /// How often a message arrives.
    fn copies(&mut self, client: usize) -> u64 {
        let is_udp = self.links.get(client).is_some_and(|link| link.transport == Transport::Udp);
        match self.random.below(100) {
            0..4 if is_udp => 0,
            4..8 if is_udp => 2,
            _ => 1,
        }
    }

    /// A client sends a message, if it is connected.
    fn send(&mut self, client: usize, message: &[u8]) {
        let delay_us = self.delay_us();
        let late_us = self.delay_us();
        let copies = self.copies(client);
        let epoch = self.epoch;
        let Some(link) = self.links.get_mut(client) else { return };
        let Some(connection) = link.connection else { return };
        let mut at_us = self.now_us + delay_us;
        if link.transport == Transport::Tcp {
            at_us = at_us.max(link.to_server_us);
            link.to_server_us = at_us;
        }
        for copy in 0..copies {
            let message = message.to_vec();
            let at_us = at_us + copy * late_us;
            self.schedule_at(at_us, Event::ToServer { client, connection, epoch, message });
        }
    }

    fn think(&mut self, client: usize, worker: usize) -> Checked {
        let now_ms = self.now_ms();
        let Some((link, mut cx)) = self.of(client, now_ms) else { return Ok(()) };
        if link.outstanding.values().any(|call| call.worker == worker) {
            return Ok(());
        }
        let Some(request) = link.client.think(worker, &mut cx)? else {
            self.schedule(500_000, Event::Think { client, worker });
            return Ok(());
        };
        let xid = link.next_xid;
        link.next_xid += 1;
        let message = request.message(xid);
        let call =
            Outstanding { worker, message: message.clone(), sent_ms: now_ms, since_ms: now_ms };
        link.outstanding.insert(xid, call);
        self.note(|| format!("{client}.{worker} > {xid:x} {}", request.what));
        self.send(client, &message);
        let delay_us = self.resend_us(client);
        self.schedule(delay_us, Event::Resend { client, xid });
        Ok(())
    }

    fn resend_us(&mut self, client: usize) -> u64 {
        let is_udp = self.links.get(client).is_some_and(|link| link.transport == Transport::Udp);
        1000 * if is_udp { RESEND_UDP_MS } else { RESEND_TCP_MS }
    }

    /// A reply reaches its client.
    fn arrives(&mut self, client: usize, connection: u64, message: &[u8]) -> Checked {
        let Some(link) = self.links.get_mut(client) else { return Ok(()) };
        if link.connection != Some(connection) {
            return Ok(());
        }
        if is_call(message) {
            return self.is_called(client, message);
        }
        let xid = xid(message);
        let Some(call) = link.outstanding.remove(&xid) else { return Ok(()) };
        let worker = call.worker;
        let results = results(message)?;
        self.report.replies += 1;
        let status = Reader::new(results).u32().unwrap_or(0);
        self.history.note(self.now_us, &format!("{client}.{worker} < {xid:x} {status}"));
        let Some((link, mut cx)) = self.of(client, call.sent_ms) else { return Ok(()) };
        let Then { delay_ms, purges, has_told, forgets } =
            link.client.reply(worker, results, &mut cx)?;
        let is_left = |of: &OfClient| of.client == client as u64;
        if has_told && let Some(left) = self.server.of_clients()?.into_iter().find(is_left) {
            return Err(format!("a host has restarted, and {left:?} is left"));
        }
        if purges {
            self.purge(client, xid);
        }
        if purges && forgets {
            // The host has restarted: what it sent is gone.
            let xids = self.links.get(client).into_iter().flat_map(|link| link.outstanding.keys());
            for xid in xids.copied().collect::<Vec<_>>() {
                self.purge(client, xid);
            }
        }
        let rest_ms = delay_ms.max(REST_MAX_MS.min(self.rhythm.rest * delay_ms));
        self.schedule(1000 * rest_ms, Event::Think { client, worker });
        if forgets && let Some(link) = self.links.get_mut(client) {
            link.outstanding.clear();
            for worker in (0..link.client.workers()).filter(|other| *other != worker) {
                self.schedule(100_000, Event::Think { client, worker });
            }
        }
        Ok(())
    }

    /// The server calls a client.
    fn is_called(&mut self, client: usize, message: &[u8]) -> Checked {
        let now_ms = self.now_ms();
        let Some((link, mut cx)) = self.of(client, now_ms) else { return Ok(()) };
        let reply = link.client.called(message, &mut cx)?;
        self.note(|| format!("{client} is called, and answers: {}", reply.is_some()));
        if let Some(reply) = reply {
            self.send(client, &reply);
        }
        Ok(())
    }

    /// A client, and what it may ask for; `sent_ms` as the context has it.
    fn of(&mut self, client: usize, sent_ms: u64) -> Option<(&mut Link, Context<'_>)> {
        let now_ms = self.now_ms();
        let Self { started_ms, lost_ms, found_lost_ms, .. } = *self;
        let (random, held, delegated) = (&mut self.random, &mut self.held, &mut self.delegated);
        let link = self.links.get_mut(client)?;
        let cx = Context {
            now_ms,
            connected_ms: link.connected_ms,
            started_ms,
            lost_ms,
            found_lost_ms,
            sent_ms,
            random,
            held,
            delegated,
        };
        Some((link, cx))
    }

    /// Takes repetitions of a call off the network and out of the server.
    fn purge(&mut self, client: usize, xid_of_call: u32) {
        self.queue.retain(|Reverse(scheduled)| match &scheduled.event {
            Event::ToServer { client: of, message, .. } => {
                *of != client || xid(message) != xid_of_call
            }
            _ => true,
        });
        self.server.refuse(address(client), xid_of_call);
    }

    /// A call was not answered for long.
    fn resend(&mut self, client: usize, xid: u32) -> Checked {
        let now_ms = self.now_ms();
        let Some(link) = self.links.get_mut(client) else { return Ok(()) };
        let Some(call) = link.outstanding.get(&xid) else { return Ok(()) };
        if link.connection.is_some() && now_ms > call.since_ms + ANSWERED_WITHIN_MS {
            return Err(format!("call {xid:x} of client {client} is not answered"));
        }
        self.report.resends += 1;
        if link.transport == Transport::Udp {
            let message = call.message.clone();
            self.send(client, &message);
        } else if link.connection.is_some() {
            self.cut(client, 100_000);
        }
        let delay_us = self.resend_us(client);
        self.schedule(delay_us, Event::Resend { client, xid });
        Ok(())
    }

    /// A client's connection breaks, and it connects again after a time.
    fn cut(&mut self, client: usize, delay_us: u64) {
        let Some(link) = self.links.get_mut(client) else { return };
        if link.transport == Transport::Udp {
            return;
        }
        let Some(connection) = link.connection.take() else { return };
        self.note(|| format!("{client} is cut off"));
        self.server.is_closed_by_peer(connection);
        let loses = self.random.chance(500);
        let late_us = self.random.below(LATE_US);
        let epoch = self.epoch;
        if loses {
            self.queue.retain(|Reverse(scheduled)| match &scheduled.event {
                Event::ToServer { connection: of, .. } => *of != connection,
                _ => true,
            });
        }
        // What comes in after that, nobody reads.
        self.schedule(late_us, Event::Noticed { connection, epoch });
        self.schedule(delay_us, Event::Connect { client });
    }

    fn connect(&mut self, client: usize) {
        if !self.server.is_up() {
            let delay_us = self.random.between(50_000, 1_000_000);
            self.schedule(delay_us, Event::Connect { client });
            return;
        }
        let now_ms = self.now_ms();
        let is_same_port = self.random.chance(500);
        let Some(link) = self.links.get_mut(client) else { return };
        if link.connection.is_some() {
            return;
        }
        let connection = if link.transport == Transport::Udp {
            client as u64 + 10
        } else {
            self.next_connection += 1;
            self.next_connection
        };
        self.report.connections += 1;
        link.connection = Some(connection);
        link.connected_ms = now_ms;
        link.port = if is_same_port { link.port } else { 600 + (link.port + 1) % 400 };
        (link.to_server_us, link.to_client_us) = (0, 0);
        let from = SocketAddr::new(address(client), link.port);
        self.server.accept(connection, from, link.transport);
        let messages: Vec<Vec<u8>> =
            link.outstanding.values().map(|call| call.message.clone()).collect();
        for call in link.outstanding.values_mut() {
            call.since_ms = now_ms;
        }
        self.note(|| format!("{client} connects: {connection}"));
        for message in messages {
            self.report.resends += 1;
            self.send(client, &message);
        }
    }
}

fn address(client: usize) -> IpAddr {
    // Each network has 250 of them.
    let (network, host) = (client / 250, client % 250);
    IpAddr::V4(Ipv4Addr::new(10, 0, 1 + network as u8, 1 + host as u8))
}
