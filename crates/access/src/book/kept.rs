//! What is known, as it is kept across restarts.
//!
//! Two lines of JSON: a head with the length and the CRC-32C of the second, and all names with
//! their answers and ages. A file that is not exactly so is not believed, as a wrong answer in it
//! would let somebody in.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use steadfast_shares::{HostName, NetgroupName};

use super::NameBook;
use super::table::Slot;
use crate::entry::{Entry, Told};
use crate::facts::{Fact, Members, Source, Subject};

const FORMAT: &str = "steadfast-names";
const VERSION: u32 = 1;
/// Longest file that is read, in bytes: room for some million names.
pub(crate) const BOOK_BYTES_MAX: usize = 256 << 20;

/// Why a file was not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// It is longer than any that is written.
    #[error("it is longer than {BOOK_BYTES_MAX} bytes")]
    TooLong,
    /// Its first line is no head.
    #[error("its first line is not that of a file of names: {0}")]
    Head(String),
    /// It is another version's.
    #[error("it has format {format:?}, version {version}; this is {FORMAT:?}, version {VERSION}")]
    Version {
        /// What it says to be.
        format: String,
        /// Its version.
        version: u32,
    },
    /// It was cut or changed.
    #[error("it is damaged: the checksum in its first line is that of something else")]
    Damaged,
    /// Its names cannot be read.
    #[error("line 2, column {column}: {what}")]
    Names {
        /// The character.
        column: usize,
        /// What is wrong.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    bytes: usize,
    crc32c: u32,
}

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// When it was written, in s since 1970.
    pub saved_s: u64,
    /// Names with their answers.
    pub names: Vec<KeptName>,
}

/// A name with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptName {
    /// What it is.
    #[serde(flatten)]
    of: Of,
    /// How long before the file was written it was last confirmed, in ms.
    age_ms: u64,
    ttl_ms: u64,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    /// Name and addresses, none if there is no such host.
    Host(String, Vec<IpAddr>),
    Client(IpAddr, Vec<String>),
    Netgroup(String, Option<KeptMembers>),
    User(u32, Option<Vec<u32>>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptMembers {
    hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    everybody: bool,
}

impl Kept {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and lists of them: there is nothing that cannot be written.
        let body = serde_json::to_vec(self).unwrap_or_default();
        let head = Head {
            format: FORMAT.to_owned(),
            version: VERSION,
            bytes: body.len(),
            crc32c: crc32c::crc32c(&body),
        };
        let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend(body);
        bytes.push(b'\n');
        bytes
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// Why the file is not to be believed.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, BookError> {
        if bytes.len() > BOOK_BYTES_MAX {
            return Err(BookError::TooLong);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (head, body) = bytes.split_at(end);
        let head: Head =
            serde_json::from_slice(head).map_err(|error| BookError::Head(error.to_string()))?;
        if head.format != FORMAT || head.version != VERSION {
            return Err(BookError::Version { format: head.format, version: head.version });
        }
        let body = body.strip_prefix(b"\n").and_then(|body| body.strip_suffix(b"\n"));
        let body = body.ok_or(BookError::Damaged)?;
        if body.len() != head.bytes || crc32c::crc32c(body) != head.crc32c {
            return Err(BookError::Damaged);
        }
        serde_json::from_slice(body)
            .map_err(|error| BookError::Names { column: error.column(), what: error.to_string() })
    }
}

impl KeptName {
    /// `None` for owners: their names are asked for again when somebody has need of them.
    fn new(subject: &Subject, told: &Told, now_ms: u64) -> Option<Self> {
        let texts = |hosts: &[HostName]| hosts.iter().map(ToString::to_string).collect();
        let of = match (subject, &told.fact) {
            (Subject::Host(host), fact) => Of::Host(
                host.to_string(),
                if let Fact::Addresses(addresses) = fact { addresses.clone() } else { Vec::new() },
            ),
            (Subject::Client(client), fact) => Of::Client(
                *client,
                if let Fact::Names(names) = fact { texts(names) } else { Vec::new() },
            ),
            (Subject::Netgroup(netgroup), fact) => Of::Netgroup(
                netgroup.as_str().to_owned(),
                if let Fact::Members(members) = fact {
                    Some(KeptMembers {
                        hosts: texts(&members.hosts),
                        addresses: members.addresses.clone(),
                        everybody: members.is_everybody,
                    })
                } else {
                    None
                },
            ),
            (Subject::User(uid), fact) => Of::User(
                *uid,
                if let Fact::Groups(groups) = fact { Some(groups.to_vec()) } else { None },
            ),
            (Subject::NumberOf(..) | Subject::NameOf(..), _) => return None,
        };
        // As old as the oldest part of it.
        let at_ms = told.carried.map_or(told.at_ms, |(_, at_ms)| at_ms.min(told.at_ms));
        let age_ms = now_ms.saturating_sub(at_ms);
        Some(Self { of, age_ms, ttl_ms: told.ttl_ms, source: told.source })
    }

    /// `None` for a name that cannot be one.
    fn subject_and_fact(self) -> Option<(Subject, Fact)> {
        let hosts = |texts: Vec<String>| {
            texts.iter().map(|text| HostName::new(text)).collect::<Option<Vec<_>>>()
        };
        let (subject, fact) = match self.of {
            Of::Host(host, addresses) => {
                (Subject::Host(HostName::new(&host)?), Fact::Addresses(addresses))
            }
            Of::Client(client, names) => {
                (Subject::Client(client.to_canonical()), Fact::Names(hosts(names)?))
            }
            Of::Netgroup(netgroup, members) => {
                let fact = match members {
                    Some(KeptMembers { hosts: texts, addresses, everybody }) => {
                        Fact::Members(Arc::new(Members {
                            hosts: hosts(texts)?,
                            addresses: addresses.iter().map(IpAddr::to_canonical).collect(),
                            is_everybody: everybody,
                        }))
                    }
                    None => Fact::Absent,
                };
                (Subject::Netgroup(NetgroupName::new(&netgroup)?), fact)
            }
            Of::User(uid, groups) => {
                let fact = groups.map_or(Fact::Absent, |groups| Fact::Groups(groups.into()));
                (Subject::User(uid), fact)
            }
        };
        Some((subject, fact.normal()))
    }
}

impl NameBook {
    /// What is known, to be kept. Afterwards [`Self::is_changed`] is false until something else is
    /// known.
    pub fn kept(&self) -> Kept {
        self.is_changed.store(false, Ordering::Relaxed);
        self.is_confirmed.store(false, Ordering::Relaxed);
        let now_ms = self.clock.monotonic_ms();
        let mut names = Vec::new();
        self.table.for_each(|subject, slot| {
            if let Some(told) = &slot.entry.told {
                names.extend(KeptName::new(subject, told, now_ms));
            }
        });
        Kept { saved_s: self.clock.wall_s(), names }
    }

    /// Whether something is known that [`Self::kept`] did not have.
    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Whether something was confirmed since [`Self::kept`].
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }

    /// What [`Self::kept`] gave was not kept after all.
    pub(crate) fn note_unsaved(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Takes in what was kept, with its age. To be called before anything is asked; what is known
    /// already stays. Returns how many names were taken in.
    pub fn restore(&self, kept: Kept) -> usize {
        let mut driver = self.driver.lock();
        let now_ms = self.clock.monotonic_ms();
        // Time does not go back: a clock that was set back makes nothing younger.
        let since_ms = self.clock.wall_s().saturating_sub(kept.saved_s).saturating_mul(1000);
        let mut count = 0;
        let mut netgroups = Vec::new();
        let oldest_ms = self.bounds.stale_max_ms.max(self.bounds.ttl_max_ms);
        for name in kept.names {
            let (source, age_ms) = (name.source, name.age_ms.saturating_add(since_ms));
            let ttl_ms = name.ttl_ms.min(self.bounds.ttl_max_ms.max(self.bounds.ttl_default_ms));
            let Some((subject, fact)) = name.subject_and_fact() else { continue };
            let is_wanted = age_ms <= oldest_ms && fact.is_about(subject.kind());
            if !is_wanted || count >= 2 * self.bounds.entries_max {
                continue;
            }
            let told = Told {
                fact: fact.clone(),
                source,
                at_ms: now_ms.saturating_sub(age_ms),
                ttl_ms,
                carried: None,
            };
            let spread = self.table.spread(subject.asked());
            let (due_ms, is_new) = self.table.enter(subject.asked(), now_ms, |slot| {
                if slot.entry.told.is_none() {
                    let watchers = slot.entry.watchers;
                    let entry = Entry { watchers, ..Entry::restored(told, spread) };
                    *slot = Slot { entry, group: slot.group.take() };
                }
                slot.entry.due_ms
            });
            if is_new {
                count += 1;
                driver.look_later(due_ms.max(now_ms), subject.clone());
                if let Fact::Members(members) = fact {
                    netgroups.push((subject, members));
                }
            }
        }
        for (netgroup, members) in netgroups {
            self.set_members(&mut driver, &netgroup, Some(members), now_ms);
        }
        self.loose.of_rules.store(count, Ordering::Relaxed);
        count
    }
}
