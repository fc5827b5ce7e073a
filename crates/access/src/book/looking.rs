//! What is known, for people.

use std::net::IpAddr;

use serde::Serialize;
use steadfast_shares::{ClientPattern, HostName, Known, Names, RuleSet};

use super::NameBook;
use super::table::Slot;
use crate::entry::{Standing, Work};
use crate::facts::{Asked, Fact, Source, Subject};
use crate::service::Failure;

/// How much an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It was confirmed within its life.
    Fresh,
    /// It is used though it is older, since there is no newer.
    Stale,
    /// There is none, and there will be one soon.
    NotYet,
    /// There never was one, and the name service does not answer.
    Unreachable,
}

/// What is known about one name. Times in s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LookUp {
    /// The name, as rules have it; an address; `user N`.
    pub name: String,
    /// Addresses, names, hosts, or groups. Of a netgroup or user at most [`ANSWERS_SHOWN`].
    pub answers: Vec<String>,
    /// How many there are.
    pub answer_count: usize,
    /// Whether the netgroup is every host's.
    pub is_everybody: bool,
    /// How much that is worth.
    pub state: State,
    /// Who said it.
    pub source: Option<Source>,
    /// How long ago it was last confirmed.
    pub age_s: Option<u64>,
    /// How long it lives after that.
    pub ttl_s: Option<u64>,
    /// How often it was asked for in vain since then.
    pub failures: u32,
    /// Why the last of these was in vain.
    pub last_failure: Option<Failure>,
    /// In how long it is to be asked for again; `None` while it is.
    pub next_s: Option<u64>,
    /// Whether rules or netgroups have it.
    pub is_watched: bool,
}

/// What a name of a rule says about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// The rule's place.
    pub rule: usize,
    /// What it says.
    pub known: Known,
    /// By what.
    pub look_ups: Vec<LookUp>,
}

/// Most hosts or groups that are shown of one.
pub const ANSWERS_SHOWN: usize = 100;

impl NameBook {
    /// What is known about a name. Asks nobody.
    pub fn look_up(&self, subject: &Subject) -> Option<LookUp> {
        let now_ms = self.clock.monotonic_ms();
        self.table.read(subject.asked(), |slot| Some(self.shown(subject, slot?, now_ms)))
    }

    /// What is known about all names that a predicate wants, at most so many, in order.
    pub fn look_ups(&self, wants: impl Fn(&Subject) -> bool, most: usize) -> Vec<LookUp> {
        let now_ms = self.clock.monotonic_ms();
        let mut found = std::collections::BTreeMap::new();
        self.table.for_each(|subject, slot| {
            if wants(subject) {
                found.insert(subject.clone(), self.shown(subject, slot, now_ms));
                if found.len() > most {
                    found.pop_last();
                }
            }
        });
        found.into_values().collect()
    }

    /// What the names of rules say about a client, and by what look-ups; as when the rules are
    /// asked, what is not known is asked for.
    pub fn explain(&self, rules: &RuleSet, client: IpAddr) -> Vec<Asking> {
        let client = client.to_canonical();
        let at = self.at_present();
        let rules = rules.rules().iter().enumerate();
        let asked = rules.filter_map(|(rule, client_rule)| {
            let (known, subjects) = match &client_rule.pattern {
                ClientPattern::Any | ClientPattern::Network { .. } => return None,
                ClientPattern::Host(host) => {
                    (at.is_host(host, client), vec![Subject::Host(host.clone())])
                }
                ClientPattern::Domain(domain) => {
                    let known = at.is_in_domain(domain, client);
                    let claimed = self.claimed(client).into_iter();
                    let claimed = claimed.filter(|name| domain.matches(name)).map(Subject::Host);
                    (known, std::iter::once(Subject::Client(client)).chain(claimed).collect())
                }
                ClientPattern::Netgroup(netgroup) => {
                    (at.is_in_netgroup(netgroup, client), vec![Subject::Netgroup(netgroup.clone())])
                }
            };
            let look_ups = subjects.iter().filter_map(|subject| self.look_up(subject)).collect();
            Some(Asking { rule, known, look_ups })
        });
        asked.collect()
    }

    /// Which of a netgroup's hosts have the address.
    pub fn members_at(&self, netgroup: &Subject, client: IpAddr) -> Vec<HostName> {
        let client = client.to_canonical();
        let members = self.table.read(netgroup.asked(), |slot| {
            slot.and_then(|slot| slot.group.as_ref().map(|group| group.members.clone()))
        });
        let has_it = |host: &&HostName| {
            self.table.read(Asked::Host(host), |slot| {
                match slot.and_then(|s| s.entry.told.as_ref()) {
                    Some(told) => {
                        matches!(&told.fact, Fact::Addresses(all) if all.contains(&client))
                    }
                    None => false,
                }
            })
        };
        let members = members.iter().flat_map(|members| &members.hosts);
        members.filter(has_it).take(ANSWERS_SHOWN).cloned().collect()
    }

    fn claimed(&self, client: IpAddr) -> Vec<HostName> {
        self.table.read(Asked::Client(client), |slot| {
            match slot.and_then(|slot| slot.entry.told.as_ref()).map(|told| &told.fact) {
                Some(Fact::Names(names)) => names.clone(),
                _ => Vec::new(),
            }
        })
    }

    fn shown(&self, subject: &Subject, slot: &Slot, now_ms: u64) -> LookUp {
        let entry = &slot.entry;
        let is_alive = self.is_alive(subject.kind(), now_ms);
        let standing = entry.standing(now_ms, is_alive, &self.bounds);
        let told = match standing {
            Standing::Fresh(_) | Standing::Stale(_) => entry.told.as_ref(),
            Standing::NotYet | Standing::Unreachable => None,
        };
        let (answers, answer_count) = told.map_or((Vec::new(), 0), |told| answers(&told.fact));
        LookUp {
            name: subject.to_string(),
            answers,
            answer_count,
            is_everybody: slot.group.as_ref().is_some_and(|group| group.members.is_everybody),
            state: match standing {
                Standing::Fresh(_) => State::Fresh,
                Standing::Stale(_) => State::Stale,
                Standing::NotYet => State::NotYet,
                Standing::Unreachable => State::Unreachable,
            },
            source: told.map(|told| told.source),
            age_s: told.map(|told| now_ms.saturating_sub(told.at_ms) / 1000),
            ttl_s: told.map(|told| told.ttl_ms / 1000),
            failures: entry.failures,
            last_failure: entry.last_failure,
            next_s: (entry.work == Work::Nothing)
                .then(|| entry.due_ms.saturating_sub(now_ms) / 1000),
            is_watched: entry.watchers > 0,
        }
    }
}

fn answers(fact: &Fact) -> (Vec<String>, usize) {
    fn some<T: ToString>(all: &[T]) -> (Vec<String>, usize) {
        (all.iter().take(ANSWERS_SHOWN).map(ToString::to_string).collect(), all.len())
    }
    match fact {
        Fact::Absent => (Vec::new(), 0),
        Fact::Addresses(addresses) => some(addresses),
        Fact::Names(names) => some(names),
        Fact::Groups(groups) => some(groups),
        Fact::Number(number) => some(&[number]),
        Fact::Name(name) => some(&[name]),
        Fact::Members(members) => {
            let (mut shown, count) = some(&members.hosts);
            let (more, more_count) = some(&members.addresses);
            shown.extend(more);
            shown.truncate(ANSWERS_SHOWN);
            (shown, count + more_count)
        }
    }
}
