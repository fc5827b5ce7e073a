//! For tests and measurements: a clock that stands still, a name service that says what it is
//! told to, and a name server on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test ends where anything is wrong"
)]

mod dns_server;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_shares::{AccountKind, AccountName, HostName, NetgroupName};

use crate::clock::{BEGINNING_MS, Clock};
use crate::facts::{Fact, Members, Source, Subject};
use crate::service::{Failure, NameService, Outcome, Reply};

pub use dns_server::{Behavior, DnsServer};

/// A clock that is moved by hand.
#[derive(Debug)]
pub struct ManualClock {
    monotonic_ms: AtomicU64,
    wall_s: AtomicU64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { monotonic_ms: AtomicU64::new(BEGINNING_MS), wall_s: AtomicU64::new(1_700_000_000) }
    }
}

impl ManualClock {
    /// Moves it.
    pub fn advance(&self, ms: u64) {
        let now_ms = self.monotonic_ms.fetch_add(ms, Ordering::SeqCst) + ms;
        self.wall_s.store(1_700_000_000 + (now_ms - BEGINNING_MS) / 1000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst)
    }

    fn wall_s(&self) -> u64 {
        self.wall_s.load(Ordering::SeqCst)
    }
}

/// What a [`ScriptedService`] does with questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// Answers by its table, at once.
    #[default]
    Answers,
    /// Keeps them until [`ScriptedService::answer_all`].
    Keeps,
    /// Fails, at once.
    Fails,
}

/// A name service that says what it is told to, and counts what it was asked.
#[derive(Debug, Default)]
pub struct ScriptedService {
    table: Mutex<HashMap<Subject, Outcome>>,
    manner: Mutex<Manner>,
    kept: Mutex<VecDeque<(Subject, Reply)>>,
    asked: Mutex<Vec<Subject>>,
    changed: Mutex<Vec<Subject>>,
}

impl ScriptedService {
    /// Another one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// From now on it does this with questions.
    pub fn set_manner(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }

    /// From now on this is what it says. What it was not told about is absent.
    pub fn set(&self, subject: Subject, outcome: Outcome) {
        self.table.lock().insert(subject, outcome);
    }

    /// A host has these addresses, for so long.
    pub fn set_host(&self, host: &str, addresses: &[&str], ttl_s: u32) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.set(host_named(host), found(Fact::Addresses(addresses), Some(ttl_s)));
    }

    /// An address has these names, for so long.
    pub fn set_client(&self, client: &str, names: &[&str], ttl_s: u32) {
        let names = names.iter().map(|name| HostName::new(name).unwrap()).collect();
        let subject = Subject::Client(client.parse().unwrap());
        self.set(subject, found(Fact::Names(names), Some(ttl_s)));
    }

    /// A netgroup has these hosts (as in a triple: empty for everybody).
    pub fn set_netgroup(&self, netgroup: &str, hosts: &[&str]) {
        let mut members = Members::default();
        for host in hosts {
            members.add(host);
        }
        self.set(netgroup_named(netgroup), found(Fact::Members(Arc::new(members)), None));
    }

    /// A user has these groups.
    pub fn set_user(&self, uid: u32, groups: &[u32]) {
        self.set(Subject::User(uid), found(Fact::Groups(groups.into()), None));
    }

    /// A user or group of this name has this number, and the other way round.
    pub fn set_account(&self, kind: AccountKind, name: &str, number: u32) {
        let name = AccountName::new(name).unwrap();
        self.set(Subject::NumberOf(kind, name.clone()), found(Fact::Number(number), None));
        self.set(Subject::NameOf(kind, number), found(Fact::Name(name), None));
    }

    /// Files say something else about these.
    pub fn set_changed(&self, subjects: Vec<Subject>) {
        *self.changed.lock() = subjects;
    }

    /// What it was asked since this was last called.
    pub fn take_asked(&self) -> Vec<Subject> {
        std::mem::take(&mut *self.asked.lock())
    }

    /// How many questions it keeps.
    pub fn kept_count(&self) -> usize {
        self.kept.lock().len()
    }

    /// Answers the questions that it keeps, by its table; tells how many.
    pub fn answer_all(&self) -> usize {
        let kept = std::mem::take(&mut *self.kept.lock());
        let count = kept.len();
        for (subject, reply) in kept {
            reply.send(self.outcome(&subject));
        }
        count
    }

    /// Forgets the questions that it keeps.
    pub fn drop_all(&self) {
        self.kept.lock().clear();
    }

    fn outcome(&self, subject: &Subject) -> Outcome {
        let outcome = self.table.lock().get(subject).cloned();
        outcome.unwrap_or(Outcome::Absent { ttl_s: None, source: Source::Dns })
    }
}

impl NameService for ScriptedService {
    fn ask(&self, subject: &Subject, reply: Reply) {
        self.asked.lock().push(subject.clone());
        let manner = *self.manner.lock();
        match manner {
            Manner::Answers => reply.send(self.outcome(subject)),
            Manner::Keeps => self.kept.lock().push_back((subject.clone(), reply)),
            Manner::Fails => reply.send(Outcome::Failed(Failure::TimedOut)),
        }
    }

    fn changed(&self) -> Vec<Subject> {
        std::mem::take(&mut *self.changed.lock())
    }
}

/// A host to ask about.
pub fn host_named(host: &str) -> Subject {
    Subject::Host(HostName::new(host).unwrap())
}

/// A netgroup to ask about.
pub fn netgroup_named(netgroup: &str) -> Subject {
    Subject::Netgroup(NetgroupName::new(netgroup).unwrap())
}

fn found(fact: Fact, ttl_s: Option<u32>) -> Outcome {
    Outcome::Found { fact, ttl_s, source: Source::Dns, lacks: None }
}
