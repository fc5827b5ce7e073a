//! The simulator: a server and its clients on one thread, with a virtual clock, by one seed.
//!
//! What is real: the engine with its protocols, state, reply cache, grace and waits, and the messages of
//! clients, byte by byte. What is simulated: time, the network, the disk with its log ([`disk`]), what
//! outlives a process and a machine ([`server`]), and the clients, of five kinds:
//!
//! - `names`: clients of NFSv3 over TCP and UDP. Each worker has a directory of its own and knows the only
//!   right reply to each of its calls. So whatever is lost, repeated or late, and whenever the server is
//!   killed: each call takes effect *once*, and nothing that was acknowledged is lost.
//! - `locks`: clients of NFSv4.1 that lock ranges of the same files. No two hold what conflicts; nobody
//!   loses a lock or session while its lease lasts; after a power cut all get back what they held, and
//!   nobody what it had lost; slots answer a repetition as they did first. Who waits for a lock asks now and
//!   then; who has a back channel is told, too, when it may, though some notices are lost, late or doubled.
//! - `old`: the same by NFSv4.0, with sequence ids of owners in the place of slots.
//! - `delegates`: clients of NFSv4.1 that are delegated files, and return them when they are asked, or do not
//!   hear of it; and that change the same files by NFSv3. While a client has a delegation, nobody does what
//!   that forbids, and what it knows of the file stays true; who hears the server and returns what it is
//!   asked for loses nothing; who is in somebody's way is not so for ever.
//! - `hosts`: clients of NLM that lock ranges of these files, too, and wait for some of them. They are called
//!   when they have them; these calls are lost and late, or cross the end of the wait. Hosts restart, and
//!   say so by NSM. Nothing stays in the server of what they do not know of, and nobody waits behind nobody.
//!
//! Processes of the server's machine lock ranges of these files, too (`locals`). Nobody is denied a lock for which
//! there is no reason: somebody has, had a moment ago, or may have, what conflicts.
//!
//! Beside that no reply leaves before what it promises is stable, no place in the log stays unfilled after
//! a call, and no call waits for longer than its limit.
//!
//! The network cuts connections, loses what is on them and delivers some of it late; datagrams are lost,
//! repeated and reordered. The storage has calls wait. The process is killed between two events, and in
//! the middle of a change; the power fails at any record of the log.
//!
//! Not simulated: threads (an engine's call is one step), failing and full disks, NFSv2, guards of delegations, what
//! local processes do while the server is down or clients reclaim, and the formats of files. A restart discards what
//! is on its way to the server and from it, and a client of NFSv3 that was told to try later: the server cannot tell a late repetition from
//! a call that its client means.
//!
//! There are two to eight clients by the seed, or as many as are asked for. Of many, the seed also decides how
//! busy they are, and how often something breaks.
//!
//! A run is determined by [`Options`]: equal ones have equal histories. A failure prints how to run it
//! again.
#![forbid(unsafe_code)]
// What cannot be ends the run: nothing here serves anybody.
#![allow(clippy::expect_used)]

mod callbacks;
mod client;
mod compound;
mod delegated;
mod delegates;
mod disk;
mod held;
mod history;
mod hosts;
mod leftovers;
mod locals;
mod locks;
mod message;
mod names;
mod old;
mod random;
mod server;
mod world;

use std::fmt;

/// What fails a run says why.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// A fault that is put into what surrounds the engine, to show that the simulator finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    /// None.
    #[default]
    None,
    /// Replies leave before what they promise is stable.
    RepliesBeforeStable,
    /// The duplicate request cache has no room for a reply.
    NoReplyCache,
    /// A process does not learn which calls those before it have executed.
    NoReplyAfterRestart,
    /// The state's events are not kept, so that a kill loses all locks.
    NoStateImage,
    /// The state's last events are kept only with the next ones, so that a kill loses them.
    StateImageLate,
    /// Nobody records which clients have locks, so that a power cut loses these.
    NoClientRecord,
    /// That a client has lost its locks is not recorded, so that a power cut gives them back.
    NoRevocationRecord,
}

/// Most clients that a run can have: so many have an address and a number of their own.
pub const CLIENTS_MAX: u64 = 900;

/// What determines a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// From which all chance comes.
    pub seed: u64,
    /// How many clients there are, from 1 to [`CLIENTS_MAX`]; `None`: two to eight, as the seed has it.
    pub clients: Option<u64>,
    /// How many events happen.
    pub steps: u64,
    /// What is broken.
    pub mutation: Mutation,
    /// How many of the last entries of the history a failure shows.
    pub history: usize,
}

impl Options {
    /// A run in which nothing is broken.
    pub fn new(seed: u64, steps: u64) -> Self {
        Self { seed, clients: None, steps, mutation: Mutation::None, history: 120 }
    }
}

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many clients there were.
    pub clients: u64,
    /// Events.
    pub steps: u64,
    /// Time that has passed by the virtual clock, in ms.
    pub virtual_ms: u64,
    /// Calls that were answered.
    pub replies: u64,
    /// Calls that were sent again.
    pub resends: u64,
    /// How often a client has connected.
    pub connections: u64,
    /// How often the process was killed.
    pub kills: u64,
    /// How often the power failed.
    pub power_cuts: u64,
    /// Locks that were granted.
    pub grants: u64,
    /// Locks that hosts waited for, and were called that they have.
    pub waits: u64,
    /// Locks that clients of NFSv4 were granted after they had been denied them.
    pub waited: u64,
    /// How often a client of NFSv4.1 that waits was told that it may ask again.
    pub notices: u64,
    /// Locks that processes of the server's machine got, and that they did not get.
    pub local_grants: u64,
    /// See there.
    pub local_denials: u64,
    /// How often a host has restarted.
    pub host_restarts: u64,
    /// Locks that were reclaimed.
    pub reclaims: u64,
    /// Delegations that were granted, and given back after a loss.
    pub delegations: u64,
    /// Recalls that clients have taken.
    pub recalls: u64,
    /// Delegations that were revoked.
    pub revocations: u64,
    /// Of the whole history: equal for equal runs.
    pub digest: u64,
}

/// A run in which something was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of the run.
    pub options: Options,
    /// The event after which it was found.
    pub step: u64,
    /// What was wrong.
    pub what: String,
    /// What had happened last.
    pub history: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, step, what, history } = self;
        for entry in history {
            writeln!(f, "{entry}")?;
        }
        writeln!(f, "seed {}, step {step}: {what}", options.seed)?;
        let (seed, steps) = (options.seed, step + 1);
        let run = format!("cargo run -p steadfast-sim --release -- --seed {seed} --steps {steps}");
        if let Some(clients) = options.clients {
            return write!(f, "again: {run} --clients {clients}");
        }
        let test = "cargo test -p steadfast-sim --test simulation";
        write!(f, "again: STEADFAST_SIM_SEED={seed} {test}\nor:    {run}")
    }
}

impl std::error::Error for Failure {}

/// Runs a simulation. More clients than [`CLIENTS_MAX`] are as many as that, and none are one.
///
/// # Errors
/// What was wrong, with the last part of the history.
pub fn run(options: Options) -> Result<Report, Box<Failure>> {
    let clients = options.clients.map(|clients| clients.clamp(1, CLIENTS_MAX));
    let options = Options { clients, ..options };
    world::World::run(options)
}
