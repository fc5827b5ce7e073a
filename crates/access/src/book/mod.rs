//! What is known about names, and the asking for what is not.
//!
//! Whoever asks gets an answer from memory at once ([`At`], which is a [`Names`]), and may leave a
//! question in a queue. All else is done by one thread, a [`NameBook::turn`] at a time: it sends
//! questions, takes answers in, asks ahead of time, and lets go what nobody needs.

mod driver;
mod kept;
mod looking;
mod rules;
mod statistics;
mod table;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, RwLock};
use steadfast_shares::{
    AccountKind, AccountName, DomainPattern, Groups, HostName, Known, NameOf, Names, NetgroupName,
    NumberOf, RuleSet,
};

use crate::clock::Clock;
use crate::entry::{Standing, Work};
use crate::facts::{Asked, Fact, Kind, Subject};
use crate::service::{Desk, NameService, Outcome};
use crate::settings::Bounds;
use driver::Driver;
use table::Table;

pub(crate) use kept::BOOK_BYTES_MAX;
pub use kept::{BookError, Kept, KeptName};
pub use looking::{ANSWERS_SHOWN, Asking, LookUp, State};
use statistics::Counters;
pub use statistics::{KindStatistics, LATENCY_CLASSES_MS, NameStatistics};

/// Most questions of a kind that are sent and not answered.
pub const IN_FLIGHT_MAX: usize = 64;
/// Most questions of a kind that wait to be sent; of owners, of which clients choose the names.
const WAITING_MAX: usize = 500_000;
const WAITING_OF_OWNERS_MAX: usize = 10_000;

/// Called when something is known that was not before.
pub type Listener = Arc<dyn Fn() + Send + Sync>;

/// What is known about names.
pub struct NameBook {
    table: Table,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    service: Arc<dyn NameService>,
    /// Changes when an answer does.
    epoch: AtomicU64,
    /// When a name server, a netgroup service, a user service last answered anything.
    answered_ms: [AtomicU64; Kind::COUNT],
    loose: Loose,
    counters: Counters,
    tray: Mutex<Tray>,
    bell: Condvar,
    driver: Mutex<Driver>,
    listeners: RwLock<Vec<Listener>>,
    /// Whether something is known that the state file does not have.
    is_changed: AtomicBool,
    /// Whether something was confirmed since it was written.
    is_confirmed: AtomicBool,
    me: Weak<Self>,
}

/// How many names there are that no rule has, at least. Owners are counted apart: whatever names clients give
/// to files, what decides about access is not let go for them.
#[derive(Debug, Default)]
struct Loose {
    of_rules: AtomicUsize,
    of_owners: AtomicUsize,
}

impl Loose {
    fn of(&self, kind: Kind) -> &AtomicUsize {
        if kind.is_of_owners() { &self.of_owners } else { &self.of_rules }
    }

    /// The larger of both.
    fn most(&self) -> usize {
        let [of_rules, of_owners] =
            [&self.of_rules, &self.of_owners].map(|count| count.load(Ordering::Relaxed));
        of_rules.max(of_owners)
    }
}

/// What waits for the next turn.
#[derive(Default)]
struct Tray {
    answers: Vec<(Subject, Outcome)>,
    queues: [Queue; Kind::COUNT],
    /// Names somebody waits for, with the time when patience ends.
    awaited: Vec<(u64, Subject)>,
    /// Rules of shares that are served since the last turn, and of those that are no longer.
    added: Vec<Arc<RuleSet>>,
    removed: Vec<Arc<RuleSet>>,
    /// Whether anything was put here since the last turn.
    is_rung: bool,
    is_stopping: bool,
    /// Whether all names are to be asked about again.
    is_refreshing: bool,
}

#[derive(Default)]
struct Queue {
    /// Somebody waits for the answer.
    urgent: VecDeque<Subject>,
    bulk: VecDeque<Subject>,
    in_flight: usize,
}

impl Queue {
    /// How many wait to be sent.
    fn waiting(&self) -> usize {
        self.urgent.len() + self.bulk.len()
    }
}

impl NameBook {
    /// An empty book.
    pub fn new(bounds: Bounds, service: Arc<dyn NameService>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let now_ms = clock.monotonic_ms();
        Arc::new_cyclic(|me| Self {
            table: Table::default(),
            bounds,
            clock,
            service,
            epoch: AtomicU64::new(1),
            answered_ms: Default::default(),
            loose: Loose::default(),
            counters: Counters::default(),
            tray: Mutex::default(),
            bell: Condvar::new(),
            driver: Mutex::new(Driver::new(now_ms)),
            listeners: RwLock::default(),
            is_changed: AtomicBool::new(false),
            is_confirmed: AtomicBool::new(false),
            me: Weak::clone(me),
        })
    }

    /// Another number whenever an answer has become another one. To be read before what is known
    /// is asked for: then nothing is remembered for longer than it is so.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What is known now.
    pub fn at_present(&self) -> At<'_> {
        At { book: self, now_ms: self.clock.monotonic_ms(), is_doubtful: AtomicBool::new(false) }
    }

    /// Calls the listener whenever something is known that somebody may wait for, or that he need
    /// not wait for any longer. It is called by the thread that takes turns, in its turn: it must
    /// neither wait nor take one itself.
    pub fn on_news(&self, listener: Listener) {
        self.listeners.write().push(listener);
    }

    /// Tells of the rules of shares that are served now, one a share, and of shares that are served
    /// no more. Names are looked up in the background, and looked after as long as some rule has
    /// them; names that are in no rule any more are let go once they are of no use. Returns at
    /// once.
    pub fn change_rules(
        &self,
        added: impl IntoIterator<Item = Arc<RuleSet>>,
        removed: impl IntoIterator<Item = Arc<RuleSet>>,
    ) {
        let has_names = |rules: &Arc<RuleSet>| rules.has_names();
        let mut added = added.into_iter().filter(has_names).peekable();
        let mut removed = removed.into_iter().filter(has_names).peekable();
        if added.peek().is_none() && removed.peek().is_none() {
            return;
        }
        let mut tray = self.tray.lock();
        tray.added.extend(added);
        tray.removed.extend(removed);
        self.ring(&mut tray);
    }

    /// Has everything asked about again that is in use. Returns at once.
    pub fn refresh(&self) {
        let mut tray = self.tray.lock();
        tray.is_refreshing = true;
        self.ring(&mut tray);
    }

    /// Takes turns until [`Self::stop`].
    pub fn run(&self) {
        loop {
            let next_ms = self.turn();
            let mut tray = self.tray.lock();
            if tray.is_stopping {
                return;
            }
            let wait_ms = next_ms.saturating_sub(self.clock.monotonic_ms());
            if !tray.is_rung && wait_ms > 0 {
                let wait = std::time::Duration::from_millis(wait_ms);
                self.bell.wait_for(&mut tray, wait);
            }
        }
    }

    /// Ends [`Self::run`].
    pub fn stop(&self) {
        let mut tray = self.tray.lock();
        tray.is_stopping = true;
        self.ring(&mut tray);
    }

    fn ring(&self, tray: &mut Tray) {
        tray.is_rung = true;
        self.bell.notify_one();
    }

    /// Whether a service of this kind has answered anything just now.
    fn is_alive(&self, kind: Kind, now_ms: u64) -> bool {
        let answered_ms = self.answered(kind).load(Ordering::Relaxed);
        answered_ms != 0 && now_ms < answered_ms.saturating_add(self.bounds.patience_ms)
    }

    /// When a service last answered. Addresses and names come from the same one.
    #[allow(clippy::indexing_slicing, reason = "there is one for each kind")]
    fn answered(&self, kind: Kind) -> &AtomicU64 {
        let kind = if kind == Kind::Client { Kind::Host } else { kind };
        &self.answered_ms[kind.index()]
    }

    /// Leaves a question, for one who waits. Whether there was room for it.
    fn want(&self, asked: Asked<'_>, now_ms: u64) -> bool {
        let kind = asked.kind();
        let loose = self.loose.of(kind);
        // Clients choose these, faster than anybody answers: what is refused leaves nothing behind.
        if kind.is_of_owners() && self.tray.lock().queue(kind).waiting() >= WAITING_OF_OWNERS_MAX {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let is_there = self.table.read(asked, |slot| slot.is_some());
        if !is_there && loose.load(Ordering::Relaxed) >= 2 * self.bounds.entries_max {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            let mut tray = self.tray.lock();
            self.ring(&mut tray);
            return false;
        }
        let (wanted_ms, is_new) = self.table.enter(asked, now_ms, |slot| {
            let entry = &mut slot.entry;
            let is_promoted = entry.work == Work::Waiting { is_urgent: false };
            if is_promoted {
                entry.work = Work::Waiting { is_urgent: true };
            } else if entry.is_due(now_ms) {
                entry.begin(now_ms, true);
            } else {
                return None;
            }
            entry.is_used.store(true, Ordering::Relaxed);
            Some(entry.wanted_ms)
        });
        if is_new {
            loose.fetch_add(1, Ordering::Relaxed);
        }
        let Some(wanted_ms) = wanted_ms else { return true };
        let subject = asked.to_subject();
        let mut tray = self.tray.lock();
        tray.awaited.push((wanted_ms.saturating_add(self.bounds.patience_ms), subject.clone()));
        let queue = tray.queue(kind);
        if queue.urgent.len() < WAITING_MAX {
            queue.urgent.push_back(subject);
        } else {
            drop(tray);
            self.table.write(asked, |slot| slot.entry.work = Work::Nothing);
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.ring(&mut tray);
        true
    }
}

impl Tray {
    #[allow(clippy::indexing_slicing, reason = "there is one for each kind")]
    fn queue(&mut self, kind: Kind) -> &mut Queue {
        &mut self.queues[kind.index()]
    }
}

impl Desk for NameBook {
    fn take(&self, subject: Subject, outcome: Outcome) {
        let mut tray = self.tray.lock();
        let queue = tray.queue(subject.kind());
        queue.in_flight = queue.in_flight.saturating_sub(1);
        tray.answers.push((subject, outcome));
        self.ring(&mut tray);
    }
}

impl std::fmt::Debug for NameBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameBook").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

/// What is known at one moment.
#[derive(Debug)]
pub struct At<'a> {
    book: &'a NameBook,
    now_ms: u64,
    is_doubtful: AtomicBool,
}

impl At<'_> {
    /// Whether some answer was that there is none yet, or cannot be had: what was decided by that
    /// is not to be remembered.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// Asks about one name. `say` makes something of what is known.
    fn ask<R>(&self, asked: Asked<'_>, kind: Kind, say: impl FnOnce(Told<'_>) -> R) -> R {
        self.ask_if_room(asked, kind, say).0
    }

    /// The same; and whether the question was left, if one was to be.
    fn ask_if_room<R>(
        &self,
        asked: Asked<'_>,
        kind: Kind,
        say: impl FnOnce(Told<'_>) -> R,
    ) -> (R, bool) {
        let Self { book, now_ms, .. } = *self;
        let (said, is_wanted) = book.table.read(asked, |slot| {
            let Some(slot) = slot else { return (say(Told::NotYet), true) };
            let entry = &slot.entry;
            // Written on change only: many read it.
            if !entry.is_used.load(Ordering::Relaxed) {
                entry.is_used.store(true, Ordering::Relaxed);
            }
            let is_alive = book.is_alive(kind, now_ms);
            let standing = entry.standing(now_ms, is_alive, &book.bounds);
            if matches!(standing, Standing::Stale(_)) {
                book.counters.stale.fetch_add(1, Ordering::Relaxed);
            }
            let told = match standing {
                Standing::Fresh(Fact::Members(_)) | Standing::Stale(Fact::Members(_)) => {
                    slot.group.as_deref().map_or(Told::NotYet, Told::Group)
                }
                Standing::Fresh(fact) | Standing::Stale(fact) => Told::Fact(fact),
                // That a number had no name a minute ago is good enough to tell the number.
                Standing::NotYet if kind == Kind::NameOf => {
                    entry.told.as_ref().map_or(Told::NotYet, |told| Told::Fact(&told.fact))
                }
                Standing::NotYet => Told::NotYet,
                Standing::Unreachable => {
                    entry.was_unreachable.store(true, Ordering::Relaxed);
                    Told::Unreachable
                }
            };
            let is_promoted =
                matches!(told, Told::NotYet) && entry.work == Work::Waiting { is_urgent: false };
            (say(told), is_promoted || entry.is_due(now_ms))
        });
        let is_left = !is_wanted || book.want(asked, now_ms);
        (said, is_left)
    }

    fn doubt(&self, known: Known) -> Known {
        if matches!(known, Known::NotYet | Known::Unreachable) {
            self.is_doubtful.store(true, Ordering::Relaxed);
        }
        known
    }

    /// A user's groups.
    pub fn groups(&self, uid: u32) -> Groups {
        self.ask(Asked::User(uid), Kind::User, |told| match told {
            Told::Fact(Fact::Groups(groups)) => Groups::Known(Arc::clone(groups)),
            Told::Fact(_) => Groups::NoUser,
            // Not the client's word instead: who has groups taken away would get them back by
            // stopping the directory service. A service that says "not found" while its directory
            // is away does have us take it, for users who were never found before.
            Told::Group(_) | Told::NotYet | Told::Unreachable => Groups::NotYet,
        })
    }
}

impl At<'_> {
    /// The number of a user or group.
    pub fn number_of(&self, kind: AccountKind, name: &AccountName) -> NumberOf {
        self.ask(Asked::NumberOf(kind, name), Kind::NumberOf, |told| match told {
            Told::Fact(Fact::Number(number)) => NumberOf::Is(*number),
            Told::Fact(_) | Told::Group(_) => NumberOf::Nobody,
            // Not that there is nobody: who restores files would lose their owners while the directory
            // service is away.
            Told::NotYet | Told::Unreachable => NumberOf::NotYet,
        })
    }

    /// The name of a user or group.
    pub fn name_of(&self, kind: AccountKind, number: u32) -> NameOf {
        let asked = Asked::NameOf(kind, number);
        let (name, is_left) = self.ask_if_room(asked, Kind::NameOf, |told| match told {
            Told::Fact(Fact::Name(name)) => NameOf::Is(name.clone()),
            // There is something to tell without a name.
            Told::Fact(_) | Told::Group(_) | Told::Unreachable => NameOf::None,
            Told::NotYet => NameOf::NotYet,
        });
        // Nobody waits for what is not asked.
        if name == NameOf::NotYet && !is_left { NameOf::None } else { name }
    }
}

/// What is known about one name.
enum Told<'a> {
    Fact(&'a Fact),
    Group(&'a crate::group::Group),
    NotYet,
    Unreachable,
}

impl Names for At<'_> {
    fn is_host(&self, host: &HostName, client: IpAddr) -> Known {
        let client = client.to_canonical();
        self.doubt(self.ask(Asked::Host(host), Kind::Host, |told| match told {
            Told::Fact(Fact::Addresses(addresses)) if addresses.contains(&client) => Known::Yes,
            Told::Fact(_) | Told::Group(_) => Known::No,
            Told::NotYet => Known::NotYet,
            Told::Unreachable => Known::Unreachable,
        }))
    }

    fn is_in_domain(&self, domain: &DomainPattern, client: IpAddr) -> Known {
        let client = client.to_canonical();
        // What the address claims to be called.
        let claimed = self.ask(Asked::Client(client), Kind::Client, |told| match told {
            Told::Fact(Fact::Names(names)) => {
                Ok(names.iter().filter(|name| domain.matches(name)).cloned().collect::<Vec<_>>())
            }
            Told::Fact(_) | Told::Group(_) => Ok(Vec::new()),
            Told::NotYet => Err(Known::NotYet),
            Told::Unreachable => Err(Known::Unreachable),
        });
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(known) => return self.doubt(known),
        };
        // It is so if the name agrees.
        let mut best = Known::No;
        for name in &claimed {
            best = match (self.is_host(name, client), best) {
                (Known::Yes, _) => return Known::Yes,
                (Known::NotYet, _) | (_, Known::NotYet) => Known::NotYet,
                (Known::Unreachable, _) | (_, Known::Unreachable) => Known::Unreachable,
                (Known::No, best) => best,
            };
        }
        best
    }

    fn is_in_netgroup(&self, netgroup: &NetgroupName, client: IpAddr) -> Known {
        let client = client.to_canonical();
        let Self { book, now_ms, .. } = *self;
        self.doubt(self.ask(Asked::Netgroup(netgroup), Kind::Netgroup, |told| match told {
            Told::Group(group) => group.knows(client, now_ms, book.is_alive(Kind::Host, now_ms)),
            Told::Fact(_) => Known::No,
            Told::NotYet => Known::NotYet,
            Told::Unreachable => Known::Unreachable,
        }))
    }
}

impl Names for NameBook {
    fn is_host(&self, host: &HostName, client: IpAddr) -> Known {
        self.at_present().is_host(host, client)
    }

    fn is_in_domain(&self, domain: &DomainPattern, client: IpAddr) -> Known {
        self.at_present().is_in_domain(domain, client)
    }

    fn is_in_netgroup(&self, netgroup: &NetgroupName, client: IpAddr) -> Known {
        self.at_present().is_in_netgroup(netgroup, client)
    }
}
