//! One name: what is known about it, and what is being done to know it.
//!
//! A value with time as an argument. An answer is *fresh* for its life, and asked for again at
//! about three quarters of it; after that it is *stale*, which is as good while the name service
//! cannot be asked. Where there never was an answer, whoever asks has patience for some seconds.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::facts::{Fact, Kind, Source};
use crate::service::{Failure, Family, Outcome};
use crate::settings::Bounds;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) fact: Fact,
    pub(crate) source: Source,
    /// When it was last confirmed.
    pub(crate) at_ms: u64,
    /// How long it is fresh after that.
    pub(crate) ttl_ms: u64,
    /// A family whose addresses are from an earlier answer, and when that was confirmed.
    pub(crate) carried: Option<(Family, u64)>,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Nothing,
    /// The question is in a queue.
    Waiting {
        is_urgent: bool,
    },
    /// The question was sent.
    Asked,
}

/// How much what is known is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing<'a> {
    Fresh(&'a Fact),
    Stale(&'a Fact),
    NotYet,
    Unreachable,
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// Something is known for the first time.
    First,
    /// Something else is known than before, or nothing any more.
    Other,
}

/// One name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) told: Option<Told>,
    pub(crate) work: Work,
    /// Since when somebody waits.
    pub(crate) wanted_ms: u64,
    /// When the question was sent.
    pub(crate) asked_ms: u64,
    /// How often it was asked in vain since the last answer, and why it was at last.
    pub(crate) failures: u32,
    pub(crate) last_failure: Option<Failure>,
    /// When to ask next.
    pub(crate) due_ms: u64,
    /// Rules and netgroups that have it.
    pub(crate) watchers: u32,
    /// Whether it was asked about since the last question was sent.
    pub(crate) is_used: AtomicBool,
    /// Whether somebody was told that it cannot be known, and may remember what came of that.
    pub(crate) was_unreachable: AtomicBool,
    /// Whether the answer to the question that was sent may be from before a change.
    pub(crate) is_overtaken: bool,
}

impl Entry {
    /// A name about which nothing is known.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            told: None,
            work: Work::Nothing,
            wanted_ms: now_ms,
            asked_ms: 0,
            failures: 0,
            last_failure: None,
            due_ms: 0,
            watchers: 0,
            is_used: AtomicBool::new(false),
            was_unreachable: AtomicBool::new(false),
            is_overtaken: false,
        }
    }

    /// A name about which something was known before the program started.
    pub(crate) fn restored(told: Told, spread: u8) -> Self {
        let due_ms = refresh_ms(&told, spread);
        Self { due_ms, told: Some(told), ..Self::new(0) }
    }

    /// Whether it is to be asked about now.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.work == Work::Nothing && now_ms >= self.due_ms
    }

    /// Whether asking ahead is worth it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.watchers > 0 || self.is_used.load(Ordering::Relaxed)
    }

    /// Whether there is an answer that may still be used.
    fn usable(&self, now_ms: u64, bounds: &Bounds) -> Option<&Told> {
        let told = self.told.as_ref()?;
        let age_ms = now_ms.saturating_sub(told.at_ms);
        (age_ms <= told.ttl_ms.max(bounds.stale_max_ms)).then_some(told)
    }

    /// Whether it is a number that counts should the name service fail: until then nobody waits for it.
    pub(crate) fn is_fallback(&self, now_ms: u64, bounds: &Bounds) -> bool {
        self.usable(now_ms, bounds).is_some_and(|told| matches!(told.fact, Fact::Number(_)))
    }

    /// What is known now. `is_alive`: the name service has answered something just now.
    pub(crate) fn standing(&self, now_ms: u64, is_alive: bool, bounds: &Bounds) -> Standing<'_> {
        let is_patient = now_ms < self.wanted_ms.saturating_add(bounds.patience_ms);
        let Some(told) = self.usable(now_ms, bounds) else {
            // One that waits in the queue of a service that answers will have its turn.
            let is_hopeful = is_patient || (self.failures == 0 && is_alive);
            return if is_hopeful { Standing::NotYet } else { Standing::Unreachable };
        };
        let age_ms = now_ms.saturating_sub(told.at_ms);
        if age_ms <= told.ttl_ms {
            Standing::Fresh(&told.fact)
        } else if matches!(told.fact, Fact::Absent | Fact::Number(_))
            && self.failures == 0
            && self.is_asked(is_patient)
        {
            // Who was not there a minute ago may be new, and whoever has a file given to him must be
            // the right one: unless the service is dead, it is worth the time of one question to ask
            // first.
            Standing::NotYet
        } else {
            Standing::Stale(&told.fact)
        }
    }

    /// Whether an answer to a question of now can be waited for.
    fn is_asked(&self, is_patient: bool) -> bool {
        self.work == Work::Nothing || is_patient
    }

    /// The question goes into a queue.
    pub(crate) fn begin(&mut self, now_ms: u64, is_urgent: bool) {
        self.work = Work::Waiting { is_urgent };
        if self.failures == 0 {
            self.wanted_ms = now_ms;
        }
    }

    /// What it says has changed: it is to be asked now, and once more if it is being asked.
    pub(crate) fn overtake(&mut self, now_ms: u64) {
        self.due_ms = now_ms;
        self.is_overtaken = self.work == Work::Asked;
    }

    /// After an outcome: has it asked once more if it changed meanwhile.
    pub(crate) fn ask_again_if_overtaken(&mut self, now_ms: u64) {
        if std::mem::take(&mut self.is_overtaken) {
            self.due_ms = now_ms;
        }
    }

    /// The question is sent.
    pub(crate) fn sent(&mut self, now_ms: u64) {
        self.work = Work::Asked;
        self.is_overtaken = false;
        self.asked_ms = now_ms;
        self.is_used.store(false, Ordering::Relaxed);
    }

    /// An outcome arrived. `spread` is any number, always the same for one name: so that names
    /// learnt together are not asked about together for ever.
    pub(crate) fn took(
        &mut self,
        kind: Kind,
        outcome: Outcome,
        now_ms: u64,
        spread: u8,
        bounds: &Bounds,
    ) -> Change {
        self.work = Work::Nothing;
        let mut carried = None;
        let (fact, ttl_ms, source) = match outcome {
            Outcome::Found { fact, ttl_s, source, lacks } if fact.is_about(kind) => {
                let mut ttl_ms = bounds.ttl_ms(kind, ttl_s);
                let mut fact = fact;
                if let (Fact::Addresses(addresses), Some(lacks)) = (&mut fact, lacks) {
                    // What was known of that family is still the best that is known. It is carried
                    // for as long as it could be used by itself, and no longer confirmed by it.
                    let before = self.usable(now_ms, bounds).map(|told| (told, &told.fact));
                    if let Some((told, Fact::Addresses(before))) = before {
                        let at_ms = match told.carried {
                            Some((family, at_ms)) if family == lacks => at_ms,
                            _ => told.at_ms,
                        };
                        if now_ms.saturating_sub(at_ms) <= bounds.stale_max_ms {
                            addresses.extend(before.iter().filter(|address| lacks.has(**address)));
                            carried = Some((lacks, at_ms));
                        }
                    }
                    ttl_ms = bounds.ttl_min_ms;
                }
                let fact = fact.normal();
                let ttl_ms = if fact == Fact::Absent { bounds.negative_ms(ttl_s) } else { ttl_ms };
                (fact, ttl_ms, source)
            }
            Outcome::Absent { ttl_s, source } => (Fact::Absent, bounds.negative_ms(ttl_s), source),
            Outcome::Missing { source } if self.may_be_absent(now_ms, bounds) => {
                (Fact::Absent, bounds.negative_ms(None), source)
            }
            Outcome::Failed(failure) => return self.failed(failure, now_ms, spread, bounds),
            Outcome::Missing { .. } | Outcome::Found { .. } => {
                return self.failed(Failure::Failed, now_ms, spread, bounds);
            }
        };
        let change = match &self.told {
            None => Change::First,
            Some(before) if before.fact == fact => Change::None,
            Some(_) => Change::Other,
        };
        let told = Told { fact, source, at_ms: now_ms, ttl_ms, carried };
        self.due_ms = refresh_ms(&told, spread);
        self.told = Some(told);
        self.failures = 0;
        self.last_failure = None;
        change
    }

    /// Whether something that was there until now is believed to be gone. A netgroup or user that
    /// the system does not find is gone, or its directory service is away, and the system does not
    /// say which: it is believed after another life of the answer.
    fn may_be_absent(&self, now_ms: u64, bounds: &Bounds) -> bool {
        self.usable(now_ms, bounds).is_none_or(|told| {
            told.fact == Fact::Absent || now_ms >= told.at_ms.saturating_add(2 * told.ttl_ms)
        })
    }

    fn failed(&mut self, failure: Failure, now_ms: u64, spread: u8, bounds: &Bounds) -> Change {
        let (first_ms, longest_ms) = bounds.retry_ms;
        let wait_ms = first_ms.saturating_mul(1 << self.failures.min(20)).min(longest_ms);
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(failure);
        // Up to an eighth later.
        self.due_ms = now_ms + wait_ms + wait_ms * u64::from(spread) / (8 * 256);
        let is_lost = self.told.is_some() && self.usable(now_ms, bounds).is_none();
        if is_lost {
            self.told = None;
            return Change::Other;
        }
        Change::None
    }
}

/// When an answer is asked for again: at eleven to thirteen sixteenths of its life.
fn refresh_ms(told: &Told, spread: u8) -> u64 {
    let ttl_ms = told.ttl_ms;
    told.at_ms + ttl_ms * 11 / 16 + ttl_ms * u64::from(spread) / (8 * 256)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(addresses: &[&str], ttl_s: u32) -> Outcome {
        let addresses = addresses.iter().map(|a| a.parse().expect("an address")).collect();
        Outcome::Found {
            fact: Fact::Addresses(addresses),
            ttl_s: Some(ttl_s),
            source: Source::Dns,
            lacks: None,
        }
    }

    fn bounds() -> Bounds {
        Bounds { stale_max_ms: 1_000_000, ..Bounds::default() }
    }

    fn take(entry: &mut Entry, outcome: Outcome, now_ms: u64) -> Change {
        entry.begin(now_ms, false);
        entry.sent(now_ms);
        entry.took(Kind::Host, outcome, now_ms, 0, &bounds())
    }

    #[test]
    fn an_answer_is_fresh_then_stale_then_nothing() {
        let mut entry = Entry::new(0);
        assert_eq!(entry.standing(0, false, &bounds()), Standing::NotYet);
        assert_eq!(take(&mut entry, found(&["10.0.0.1"], 100), 1000), Change::First);
        let fact = Fact::Addresses(vec!["10.0.0.1".parse().expect("an address")]);
        assert_eq!(entry.standing(101_000, false, &bounds()), Standing::Fresh(&fact));
        assert_eq!(entry.standing(101_001, false, &bounds()), Standing::Stale(&fact));
        assert_eq!(entry.standing(1_001_000, false, &bounds()), Standing::Stale(&fact));
        assert_eq!(entry.standing(1_001_001, false, &bounds()), Standing::Unreachable);
        // It is asked for again before that, at about three quarters of its life.
        assert!((65_000..85_000).contains(&entry.due_ms), "{}", entry.due_ms);
    }

    #[test]
    fn failures_are_tried_again_ever_later_and_answers_kept() {
        let mut entry = Entry::new(0);
        take(&mut entry, found(&["10.0.0.1"], 100), 0);
        let mut now_ms = 90_000;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let change = take(&mut entry, Outcome::Failed(Failure::TimedOut), now_ms);
            assert_eq!(change, Change::None);
            waits.push(entry.due_ms - now_ms);
            now_ms = entry.due_ms;
        }
        assert_eq!(
            waits,
            [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000],
            "back off"
        );
        assert!(matches!(entry.standing(now_ms, true, &bounds()), Standing::Stale(_)));
        // Until it is too old.
        let change = take(&mut entry, Outcome::Failed(Failure::TimedOut), 1_000_001);
        assert_eq!((change, &entry.told), (Change::Other, &None));
        assert_eq!(entry.standing(1_000_001, true, &bounds()), Standing::Unreachable);
        assert_eq!(take(&mut entry, found(&["10.0.0.1"], 100), 1_000_002), Change::First);
    }

    #[test]
    fn patience_ends_unless_the_service_answers_others() {
        let mut entry = Entry::new(0);
        entry.begin(0, true);
        assert_eq!(entry.standing(4999, false, &bounds()), Standing::NotYet);
        assert_eq!(entry.standing(5000, false, &bounds()), Standing::Unreachable);
        assert_eq!(entry.standing(5000, true, &bounds()), Standing::NotYet);
        entry.sent(0);
        entry.took(Kind::Host, Outcome::Failed(Failure::Failed), 5000, 0, &bounds());
        assert_eq!(entry.standing(5000, true, &bounds()), Standing::Unreachable);
        // To be tried again changes nothing about that.
        entry.begin(6000, true);
        assert_eq!(entry.standing(6000, true, &bounds()), Standing::Unreachable);
    }

    #[test]
    fn who_was_not_there_is_asked_about_once_more_while_the_service_lives() {
        let absent = || Outcome::Absent { ttl_s: None, source: Source::Dns };
        let mut entry = Entry::new(0);
        assert_eq!(take(&mut entry, absent(), 0), Change::First);
        assert_eq!(entry.standing(60_000, true, &bounds()), Standing::Fresh(&Fact::Absent));
        assert_eq!(entry.standing(60_001, true, &bounds()), Standing::NotYet);
        entry.begin(60_001, true);
        assert_eq!(entry.standing(65_000, true, &bounds()), Standing::NotYet);
        assert_eq!(entry.standing(65_001, true, &bounds()), Standing::Stale(&Fact::Absent));
        entry.sent(60_001);
        entry.took(Kind::Host, Outcome::Failed(Failure::TimedOut), 62_001, 0, &bounds());
        assert_eq!(entry.standing(62_001, true, &bounds()), Standing::Stale(&Fact::Absent));
    }

    #[test]
    fn a_family_that_was_not_learnt_stays_what_it_was() {
        let mut entry = Entry::new(0);
        take(&mut entry, found(&["10.0.0.1", "fd00::1"], 100), 0);
        let partial = Outcome::Found {
            fact: Fact::Addresses(vec!["10.0.0.2".parse().expect("an address")]),
            ttl_s: Some(1000),
            source: Source::Dns,
            lacks: Some(Family::V6),
        };
        assert_eq!(take(&mut entry, partial, 1000), Change::Other);
        let told = entry.told.expect("an answer");
        let Fact::Addresses(addresses) = &told.fact else { panic!("addresses") };
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.2", "fd00::1"]);
        assert_eq!(told.ttl_ms, bounds().ttl_min_ms, "asked again soon");
    }

    #[test]
    fn a_family_that_is_never_learnt_again_is_let_go_when_it_is_too_old() {
        let partial = || Outcome::Found {
            fact: Fact::Addresses(vec!["10.0.0.1".parse().expect("an address")]),
            ttl_s: Some(100),
            source: Source::Dns,
            lacks: Some(Family::V6),
        };
        let mut entry = Entry::new(0);
        take(&mut entry, found(&["10.0.0.1", "fd00::1"], 100), 0);
        let mut now_ms = 0;
        while now_ms < bounds().stale_max_ms {
            now_ms += 50_000;
            assert_eq!(take(&mut entry, partial(), now_ms), Change::None);
        }
        assert_eq!(take(&mut entry, partial(), now_ms + 50_000), Change::Other);
        let alone = Fact::Addresses(vec!["10.0.0.1".parse().expect("an address")]);
        assert_eq!(entry.told.expect("an answer").fact, alone);
    }

    #[test]
    fn what_the_system_does_not_find_any_more_is_believed_a_while() {
        let missing = || Outcome::Missing { source: Source::System };
        let groups = || Outcome::Found {
            fact: Fact::Groups([1, 2].into()),
            ttl_s: None,
            source: Source::System,
            lacks: None,
        };
        let bounds = Bounds::default();
        let mut entry = Entry::new(0);
        assert_eq!(entry.took(Kind::User, missing(), 0, 0, &bounds), Change::First);
        assert_eq!(entry.took(Kind::User, groups(), 10, 0, &bounds), Change::Other);
        let ttl_ms = bounds.ttl_default_ms;
        assert_eq!(entry.took(Kind::User, missing(), ttl_ms, 0, &bounds), Change::None);
        assert_eq!(entry.failures, 1);
        assert_eq!(entry.took(Kind::User, missing(), 2 * ttl_ms + 10, 0, &bounds), Change::Other);
        assert_eq!(entry.told.expect("an answer").fact, Fact::Absent);
    }

    #[test]
    fn answers_about_something_else_are_none() {
        let mut entry = Entry::new(0);
        let outcome = Outcome::Found {
            fact: Fact::Groups([1].into()),
            ttl_s: None,
            source: Source::Dns,
            lacks: None,
        };
        assert_eq!(take(&mut entry, outcome, 0), Change::None);
        assert_eq!((entry.told, entry.failures), (None, 1));
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            3 => (1..4_u8, 0..5000_u32).prop_map(|(n, ttl_s)| {
                let addresses = (1..=n).map(|n| [10, 0, 0, n].into()).collect();
                Outcome::Found {
                    fact: Fact::Addresses(addresses),
                    ttl_s: Some(ttl_s),
                    source: Source::Dns,
                    lacks: None,
                }
            }),
            1 => Just(Outcome::Absent { ttl_s: None, source: Source::Dns }),
            1 => Just(Outcome::Missing { source: Source::System }),
            3 => Just(Outcome::Failed(Failure::TimedOut)),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order: the next question is in the future and not too far
        /// away, what was answered is used until it is too old, and a change is told if and only
        /// if there is one.
        #[test]
        fn whatever_comes(
            steps in prop::collection::vec((outcome(), 0..200_000_u64, any::<u8>()), 1..60),
        ) {
            let bounds = bounds();
            let mut entry = Entry::new(0);
            let mut now_ms = 0;
            for (outcome, wait_ms, spread) in steps {
                now_ms += wait_ms;
                let before = entry.told.clone();
                entry.begin(now_ms, false);
                entry.sent(now_ms);
                let is_answer = !matches!(outcome, Outcome::Failed(_) | Outcome::Missing { .. });
                let change = entry.took(Kind::Host, outcome, now_ms, spread, &bounds);
                let fact = |told: &Option<Told>| told.as_ref().map(|told| told.fact.clone());
                prop_assert_eq!(change != Change::None, fact(&before) != fact(&entry.told));
                prop_assert!(entry.due_ms > now_ms);
                let latest_ms = bounds.ttl_max_ms.max(bounds.retry_ms.1 * 9 / 8);
                prop_assert!(entry.due_ms <= now_ms + latest_ms);
                if is_answer {
                    let told = entry.told.as_ref().expect("an answer");
                    prop_assert_eq!(told.at_ms, now_ms);
                    prop_assert!(entry.due_ms < now_ms + told.ttl_ms, "ahead");
                    prop_assert!(matches!(
                        entry.standing(now_ms, false, &bounds), Standing::Fresh(_)
                    ));
                } else if let Some(told) = &entry.told {
                    prop_assert!(
                        now_ms - told.at_ms <= told.ttl_ms.max(bounds.stale_max_ms)
                    );
                    prop_assert!(!matches!(
                        entry.standing(now_ms, false, &bounds),
                        Standing::NotYet | Standing::Unreachable
                    ));
                }
            }
        }
    }
}
