//! One turn: what came in since the last is taken in, what is due is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_shares::{HostName, RuleSet};

use super::{IN_FLIGHT_MAX, NameBook, statistics};
use crate::entry::{Change, Entry, Standing, Work};
use crate::facts::{Asked, Fact, Kind, Members, Subject};
use crate::group::{Group, Member, Memberships};
use crate::service::{Outcome, Reply};

/// How often files of this machine are looked at, and names that nobody needs let go.
const FILES_MS: u64 = 2000;
const SWEEP_MS: u64 = 60_000;
/// How long a netgroup that no rule has is kept after it was due to be asked for.
const UNWATCHED_MS: u64 = 3_600_000;
/// Listeners are called no more often, since each call has all who wait ask again.
const NEWS_MS: u64 = 5;

/// What only the one who takes turns knows.
#[derive(Debug)]
pub(super) struct Driver {
    /// When to look at a name.
    timers: BinaryHeap<Reverse<(u64, Subject)>>,
    /// The rules whose names are looked after, by where they are, and how many shares have them.
    pub(super) rules: HashMap<usize, (Arc<RuleSet>, usize)>,
    pub(super) memberships: Memberships,
    /// Names that were asked about in vain since their last answer.
    failing: HashSet<Subject>,
    has_news: bool,
    news_ms: u64,
    is_epoch_over: bool,
    is_roll_wanted: bool,
    rolled_ms: u64,
    files_ms: u64,
    sweep_ms: u64,
}

impl Driver {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            timers: BinaryHeap::new(),
            rules: HashMap::new(),
            memberships: Memberships::default(),
            failing: HashSet::new(),
            has_news: false,
            news_ms: 0,
            is_epoch_over: false,
            is_roll_wanted: false,
            rolled_ms: 0,
            files_ms: now_ms,
            sweep_ms: now_ms + SWEEP_MS,
        }
    }

    pub(super) fn look_later(&mut self, at_ms: u64, subject: Subject) {
        self.timers.push(Reverse((at_ms, subject)));
    }
}

impl NameBook {
    /// Does all there is to do now, and tells when the next turn is to be, at the latest.
    pub fn turn(&self) -> u64 {
        let mut driver = self.driver.lock();
        let driver = &mut *driver;
        let mut now_ms;
        loop {
            now_ms = self.clock.monotonic_ms();
            let (answers, awaited, added, removed, is_refreshing) = {
                let mut tray = self.tray.lock();
                tray.is_rung = false;
                (
                    std::mem::take(&mut tray.answers),
                    std::mem::take(&mut tray.awaited),
                    std::mem::take(&mut tray.added),
                    std::mem::take(&mut tray.removed),
                    std::mem::take(&mut tray.is_refreshing),
                )
            };
            for (at_ms, subject) in awaited {
                driver.look_later(at_ms, subject);
            }
            self.watch(driver, added, now_ms);
            self.unwatch_rules(driver, &removed);
            if is_refreshing {
                self.make_due(driver, now_ms);
            }
            let has_answers = !answers.is_empty();
            for (subject, outcome) in answers {
                self.settle(driver, &subject, outcome, now_ms);
            }
            self.look_at_files(driver, now_ms);
            self.look_at_timers(driver, now_ms);
            if now_ms >= driver.sweep_ms || self.loose.most() > self.bounds.entries_max / 4 * 5 {
                self.sweep(driver, now_ms);
                driver.sweep_ms = now_ms + SWEEP_MS;
            }
            self.roll(driver, now_ms);
            if std::mem::take(&mut driver.is_epoch_over) {
                self.epoch.fetch_add(1, Ordering::AcqRel);
            }
            if !self.send(now_ms) && !has_answers && !self.tray.lock().is_rung {
                break;
            }
        }
        let news_ms = driver.news_ms + NEWS_MS;
        let is_told = driver.has_news && now_ms >= news_ms;
        if is_told {
            driver.has_news = false;
            driver.news_ms = now_ms;
        }
        let timer_ms = driver.timers.peek().map(|Reverse((at_ms, _))| *at_ms);
        let next_ms = [
            timer_ms,
            Some(driver.files_ms),
            Some(driver.sweep_ms),
            driver.has_news.then_some(news_ms),
            driver.is_roll_wanted.then_some(driver.rolled_ms + self.bounds.ttl_min_ms),
        ];
        if is_told {
            self.tell_news();
        }
        next_ms.into_iter().flatten().min().unwrap_or(now_ms)
    }

    fn tell_news(&self) {
        let listeners = self.listeners.read().clone();
        for listener in listeners {
            listener();
        }
    }

    /// Puts a question into the queue of those for which nobody waits.
    pub(super) fn enqueue(&self, subject: &Subject) {
        self.tray.lock().queue(subject.kind()).bulk.push_back(subject.clone());
    }

    /// Sends what may be sent; tells whether something was taken from a queue.
    fn send(&self, now_ms: u64) -> bool {
        let mut subjects = Vec::new();
        {
            let mut tray = self.tray.lock();
            for queue in &mut tray.queues {
                while queue.in_flight < IN_FLIGHT_MAX {
                    let next = queue.urgent.pop_front().or_else(|| queue.bulk.pop_front());
                    let Some(subject) = next else { break };
                    queue.in_flight += 1;
                    subjects.push(subject);
                }
            }
        }
        let is_sending = !subjects.is_empty();
        for subject in subjects {
            // One that was let go, or came to be in both queues, is not sent.
            let is_wanted = self.table.write(subject.asked(), |slot| {
                let is_waiting = matches!(slot.entry.work, Work::Waiting { .. });
                if is_waiting {
                    slot.entry.sent(now_ms);
                }
                is_waiting
            });
            if is_wanted == Some(true) {
                self.counters.of(subject.kind()).sent.fetch_add(1, Ordering::Relaxed);
                self.service.ask(&subject, Reply::new(subject.clone(), self.me.clone()));
            } else {
                let mut tray = self.tray.lock();
                let queue = tray.queue(subject.kind());
                queue.in_flight = queue.in_flight.saturating_sub(1);
            }
        }
        is_sending
    }

    /// Takes an outcome in.
    fn settle(&self, driver: &mut Driver, subject: &Subject, outcome: Outcome, now_ms: u64) {
        let kind = subject.kind();
        let spread = self.table.spread(subject.asked());
        let is_timed = statistics::is_timed(&outcome);
        self.counters.count(kind, &outcome);
        let settled = self.table.write(subject.asked(), |slot| {
            let entry = &mut slot.entry;
            if entry.work != Work::Asked {
                return None;
            }
            let is_awaited = |entry: &Entry| {
                let is_alive = self.is_alive(kind, now_ms);
                entry.standing(now_ms, is_alive, &self.bounds) == Standing::NotYet
            };
            let (was_awaited, took_ms) = (is_awaited(entry), now_ms - entry.asked_ms.min(now_ms));
            let before = (entry.told.as_ref().map(|told| told.fact.clone()), entry.failures);
            let change = entry.took(kind, outcome, now_ms, spread, &self.bounds);
            entry.ask_again_if_overtaken(now_ms);
            let after = (entry.told.as_ref().map(|told| told.fact.clone()), entry.failures);
            let voids_decisions = change == Change::Other
                || (change == Change::First
                    && entry.was_unreachable.swap(false, Ordering::Relaxed));
            driver.is_epoch_over |= voids_decisions && !kind.is_of_owners();
            driver.has_news |= change != Change::None || (was_awaited && !is_awaited(entry));
            driver.look_later(entry.due_ms, subject.clone());
            Some((before, after, change, took_ms))
        });
        let Some((before, after, change, took_ms)) = settled.flatten() else { return };
        if after.1 == 0 {
            driver.failing.remove(subject);
        } else {
            driver.failing.insert(subject.clone());
        }
        if is_timed {
            self.counters.took(kind, took_ms);
            self.hasten(driver, kind, now_ms);
        }
        if after.1 == 0 && !kind.is_of_owners() {
            self.is_confirmed.store(true, Ordering::Relaxed);
        }
        if change != Change::None && !kind.is_of_owners() {
            self.is_changed.store(true, Ordering::Relaxed);
        }
        match subject {
            Subject::Host(host) => {
                let (before, after) = (member(&before), member(&after));
                for group in driver.memberships.of(host) {
                    group.update(before, after);
                    if change != Change::None && group.may_be_remembered() {
                        driver.is_epoch_over = true;
                    }
                }
            }
            Subject::Netgroup(_) if change != Change::None => {
                let members = match after.0 {
                    Some(Fact::Members(members)) => Some(members),
                    _ => None,
                };
                self.set_members(driver, subject, members, now_ms);
            }
            _ => {}
        }
    }

    /// A service has answered: if it had not for a while, what it could not tell meanwhile is asked
    /// for again now.
    fn hasten(&self, driver: &mut Driver, kind: Kind, now_ms: u64) {
        let before_ms = self.answered(kind).swap(now_ms, Ordering::Relaxed);
        if now_ms < before_ms.saturating_add(self.bounds.patience_ms) {
            return;
        }
        for subject in &driver.failing {
            let is_same = std::ptr::eq(self.answered(subject.kind()), self.answered(kind));
            if is_same {
                self.table.write(subject.asked(), |slot| {
                    slot.entry.due_ms = slot.entry.due_ms.min(now_ms);
                });
                driver.timers.push(Reverse((now_ms, subject.clone())));
            }
        }
    }

    /// All names are to be asked about now.
    fn make_due(&self, driver: &mut Driver, now_ms: u64) {
        let mut subjects = Vec::new();
        self.table.for_each(|subject, _| subjects.push(subject.clone()));
        for subject in subjects {
            self.table.write(subject.asked(), |slot| slot.entry.overtake(now_ms));
            driver.look_later(now_ms, subject);
        }
    }

    fn look_at_files(&self, driver: &mut Driver, now_ms: u64) {
        if now_ms < driver.files_ms {
            return;
        }
        driver.files_ms = now_ms + FILES_MS;
        for subject in self.service.changed() {
            self.table.write(subject.asked(), |slot| slot.entry.overtake(now_ms));
            driver.look_later(now_ms, subject);
        }
    }

    fn look_at_timers(&self, driver: &mut Driver, now_ms: u64) {
        while driver.timers.peek().is_some_and(|Reverse((at_ms, _))| *at_ms <= now_ms) {
            let Some(Reverse((_, subject))) = driver.timers.pop() else { break };
            let is_queued = self.table.write(subject.asked(), |slot| {
                let entry = &mut slot.entry;
                let is_unknown = match &slot.group {
                    Some(group) => group.has_unknown(),
                    None => match entry.standing(now_ms, false, &self.bounds) {
                        Standing::Fresh(_) | Standing::NotYet => false,
                        Standing::Stale(fact) => *fact == Fact::Absent,
                        Standing::Unreachable => true,
                    },
                };
                // Patience may have ended: who waits is to ask, and hear it.
                driver.has_news |= is_unknown;
                if !entry.is_due(now_ms) {
                    return false;
                }
                if entry.is_wanted() {
                    entry.begin(now_ms, false);
                    return true;
                }
                driver.is_roll_wanted |= entry.told.is_some() && !subject.kind().is_of_owners();
                false
            });
            if is_queued == Some(true) {
                self.enqueue(&subject);
            }
        }
    }

    /// Names that no rule has are looked after while they are in use, and who remembers a decision
    /// does not use the names that it was made by. So when one was not used for most of its life,
    /// all who remember are made to ask again: then it is used, or let go. No more often than the
    /// shortest life of an answer.
    fn roll(&self, driver: &mut Driver, now_ms: u64) {
        if driver.is_roll_wanted && now_ms >= driver.rolled_ms + self.bounds.ttl_min_ms {
            driver.is_roll_wanted = false;
            driver.rolled_ms = now_ms;
            driver.is_epoch_over = true;
            self.counters.rolls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets names go that no rule has and that are of no use, and the oldest if they are too many.
    fn sweep(&self, driver: &mut Driver, now_ms: u64) {
        let mut useless = Vec::new();
        let (mut of_rules, mut of_owners) = (Vec::new(), Vec::new());
        // Names that are being asked for: they stay, and count.
        let (mut asked_of_rules, mut asked_of_owners) = (0, 0);
        self.table.for_each(|subject, slot| {
            let entry = &slot.entry;
            if entry.watchers > 0 {
                return;
            }
            if entry.work != Work::Nothing {
                let is_of_owners = subject.kind().is_of_owners();
                *(if is_of_owners { &mut asked_of_owners } else { &mut asked_of_rules }) += 1;
                return;
            }
            let standing = entry.standing(now_ms, false, &self.bounds);
            let is_useful = match standing {
                Standing::Fresh(_) => true,
                // A netgroup has its hosts looked after, so it goes sooner than other names.
                Standing::Stale(Fact::Members(_)) => {
                    entry.is_wanted() || now_ms < entry.due_ms.saturating_add(UNWATCHED_MS)
                }
                Standing::Stale(fact) => *fact != Fact::Absent || entry.is_wanted(),
                Standing::NotYet | Standing::Unreachable => {
                    entry.is_wanted() || entry.is_fallback(now_ms, &self.bounds)
                }
            };
            if is_useful {
                let is_of_owners = subject.kind().is_of_owners();
                let loose = if is_of_owners { &mut of_owners } else { &mut of_rules };
                loose.push((entry.told.as_ref().map_or(0, |told| told.at_ms), subject.clone()));
            } else {
                useless.push(subject.clone());
            }
        });
        // Decisions were made by them: what is not known any more is not looked after either.
        driver.is_roll_wanted |= self.let_oldest_go(&mut of_rules, &mut useless);
        self.let_oldest_go(&mut of_owners, &mut useless);
        self.loose.of_rules.store(of_rules.len() + asked_of_rules, Ordering::Relaxed);
        self.loose.of_owners.store(of_owners.len() + asked_of_owners, Ordering::Relaxed);
        self.counters.let_go.fetch_add(useless.len() as u64, Ordering::Relaxed);
        for subject in useless {
            self.let_go(driver, &subject);
        }
    }

    /// Makes the oldest of too many names useless; whether there were too many.
    fn let_oldest_go(&self, loose: &mut Vec<(u64, Subject)>, useless: &mut Vec<Subject>) -> bool {
        let excess = loose.len().saturating_sub(self.bounds.entries_max);
        if excess == 0 {
            return false;
        }
        // Some more, so that the next few names do not make it necessary again.
        let excess = (excess + self.bounds.entries_max / 10).min(loose.len() - 1);
        loose.select_nth_unstable(excess);
        useless.extend(loose.drain(..excess).map(|(_, subject)| subject));
        true
    }

    /// Forgets a name.
    fn let_go(&self, driver: &mut Driver, subject: &Subject) {
        driver.failing.remove(subject);
        if let Some(group) = self.table.remove(subject.asked()).and_then(|slot| slot.group) {
            self.dissolve(driver, &group);
        }
    }

    /// Makes a netgroup ready to be asked, in the place of what it was before.
    pub(super) fn set_members(
        &self,
        driver: &mut Driver,
        netgroup: &Subject,
        members: Option<Arc<Members>>,
        now_ms: u64,
    ) {
        let group = members.map(|members| {
            let patience_ms = now_ms.saturating_add(self.bounds.patience_ms);
            let group = Arc::new(Group::new(members, patience_ms));
            for host in &group.members.hosts {
                self.watch_member(&group, host, now_ms);
            }
            driver.memberships.enter(&group);
            driver.look_later(patience_ms, netgroup.clone());
            group
        });
        let before =
            self.table.write(netgroup.asked(), |slot| std::mem::replace(&mut slot.group, group));
        if let Some(before) = before.flatten() {
            self.dissolve(driver, &before);
        }
    }

    fn watch_member(&self, group: &Group, host: &HostName, now_ms: u64) {
        let asked = Asked::Host(host);
        let (is_queued, _) = self.table.enter(asked, now_ms, |slot| {
            let entry = &mut slot.entry;
            entry.watchers += 1;
            let known = (entry.told.as_ref().map(|told| told.fact.clone()), entry.failures);
            group.update(Member::Untried, member(&known));
            let is_queued = entry.is_due(now_ms);
            if is_queued {
                entry.begin(now_ms, false);
            }
            is_queued
        });
        if is_queued {
            self.enqueue(&asked.to_subject());
        }
    }

    fn dissolve(&self, driver: &mut Driver, group: &Arc<Group>) {
        driver.memberships.leave(group);
        for host in &group.members.hosts {
            self.unwatch(&Subject::Host(host.clone()));
        }
    }

    /// Somebody is no longer interested in a name. What is known about it stays until it is of no
    /// use: the share may come back, or a client be decided by it without any rule having it.
    pub(super) fn unwatch(&self, subject: &Subject) {
        let is_last = self.table.write(subject.asked(), |slot| {
            slot.entry.watchers = slot.entry.watchers.saturating_sub(1);
            slot.entry.watchers == 0
        });
        if is_last == Some(true) {
            self.loose.of(subject.kind()).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is known about a host, as its netgroups want it.
fn member(known: &(Option<Fact>, u32)) -> Member<'_> {
    match known {
        (Some(Fact::Addresses(addresses)), _) => Member::Known(addresses),
        (Some(_), _) => Member::Known(&[]),
        (None, 0) => Member::Untried,
        (None, _) => Member::Failed,
    }
}
