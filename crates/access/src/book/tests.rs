//! Unit tests of the book, with a clock that is moved by hand and a service that says what it is
//! told to.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use steadfast_shares::{
    ClientRule, DomainPattern, Groups, HostName, Known, Names, NetgroupName, Rights, RuleSet,
};

use super::NameBook;
use crate::facts::Subject;
use crate::service::{Failure, Outcome};
use crate::settings::Bounds;
use crate::testing::{Manner, ManualClock, ScriptedService, host_named, netgroup_named};

mod agreement;
mod owners;

struct Rig {
    clock: Arc<ManualClock>,
    service: Arc<ScriptedService>,
    book: Arc<NameBook>,
    watched: Mutex<Vec<Arc<RuleSet>>>,
}

fn rig_with(bounds: Bounds) -> Rig {
    let (clock, service) = (Arc::new(ManualClock::default()), ScriptedService::new());
    let book = NameBook::new(bounds, service.clone(), clock.clone());
    Rig { clock, service, book, watched: Mutex::default() }
}

fn rig() -> Rig {
    rig_with(Bounds::default())
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A set of rules, one a pattern.
fn rules(patterns: &[&str]) -> Arc<RuleSet> {
    let rule = |text: &&str| ClientRule {
        pattern: text.parse().expect("a pattern"),
        grants: Arc::new([Rights::default()]),
    };
    Arc::new(RuleSet::new(patterns.iter().map(rule).collect()))
}

impl Rig {
    /// Has the book look after these rules, in the place of those from before.
    fn watch(&self, rules: Vec<Arc<RuleSet>>) {
        let before = std::mem::replace(&mut *self.watched.lock(), rules.clone());
        self.book.change_rules(rules, before);
    }

    fn host(&self, host: &str, client: &str) -> Known {
        let known = self.book.is_host(&HostName::new(host).expect("a host"), address(client));
        self.book.turn();
        known
    }

    fn domain(&self, domain: &str, client: &str) -> Known {
        let domain = DomainPattern::new(domain).expect("a domain");
        let known = self.book.is_in_domain(&domain, address(client));
        self.book.turn();
        known
    }

    fn netgroup(&self, netgroup: &str, client: &str) -> Known {
        let netgroup = NetgroupName::new(netgroup).expect("a netgroup");
        let known = self.book.is_in_netgroup(&netgroup, address(client));
        self.book.turn();
        known
    }

    fn wait(&self, ms: u64) {
        self.clock.advance(ms);
        self.book.turn();
    }

    /// Waits in small steps, as the thread would.
    fn pass(&self, ms: u64) {
        for _ in 0..ms / 500 {
            self.wait(500);
        }
    }

    /// How often the epoch changed with an answer.
    fn changes(&self) -> u64 {
        let statistics = self.book.statistics();
        statistics.epoch - statistics.rolls
    }

    fn asked(&self) -> usize {
        self.service.take_asked().len()
    }
}

#[test]
fn a_name_is_looked_up_once_for_all_who_ask() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1"], 3600);
    rig.service.set_manner(Manner::Keeps);
    for _ in 0..2000 {
        assert_eq!(rig.host("a.example", "10.0.0.1"), Known::NotYet);
    }
    assert_eq!((rig.asked(), rig.service.answer_all()), (1, 1));
    rig.book.turn();
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
    assert_eq!(rig.host("a.example", "10.0.0.2"), Known::No);
    assert_eq!(rig.host("A.Example.", "::ffff:10.0.0.1"), Known::Yes);
    assert_eq!(rig.asked(), 0);
}

#[test]
fn names_in_use_are_asked_for_ahead_and_others_are_not() {
    let rig = rig();
    rig.service.set_host("used.example", &["10.0.0.1"], 100);
    rig.service.set_host("unused.example", &["10.0.0.2"], 100);
    rig.service.set_host("ruled.example", &["10.0.0.3"], 100);
    rig.watch(vec![rules(&["ruled.example"])]);
    rig.host("used.example", "10.0.0.1");
    rig.host("unused.example", "10.0.0.1");
    assert_eq!(rig.asked(), 3);
    let epoch = rig.book.epoch();
    assert_eq!(rig.host("used.example", "10.0.0.1"), Known::Yes);
    rig.pass(65_000);
    assert_eq!(rig.asked(), 0, "long before its end nothing is asked");
    rig.pass(25_000);
    let mut asked = rig.service.take_asked();
    asked.sort();
    assert_eq!(asked, [host_named("ruled.example"), host_named("used.example")]);
    // That the unused one is let go was told to those who may remember it.
    assert_eq!(rig.book.epoch(), epoch + 1);
    assert_eq!(rig.book.statistics().rolls, 1);
    // One that is used after its end is used at once, and asked for.
    rig.pass(100_000);
    rig.service.take_asked();
    rig.service.set_host("unused.example", &["10.0.0.9"], 100);
    assert_eq!(rig.host("unused.example", "10.0.0.2"), Known::Yes);
    assert_eq!(rig.host("unused.example", "10.0.0.2"), Known::No);
    assert_eq!(rig.service.take_asked(), [host_named("unused.example")]);
}

#[test]
fn the_epoch_changes_with_answers_and_with_nothing_else() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1", "10.0.0.2"], 100);
    rig.watch(vec![rules(&["a.example"])]);
    rig.book.turn();
    let epoch = rig.book.epoch();
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
    // The same, in another order.
    rig.service.set_host("a.example", &["10.0.0.2", "10.0.0.1"], 50);
    rig.pass(300_000);
    assert!(rig.asked() > 3, "it was refreshed");
    assert_eq!(rig.book.epoch(), epoch);
    rig.service.set_manner(Manner::Fails);
    rig.pass(300_000);
    assert_eq!(rig.book.epoch(), epoch, "a dead service changes nothing");
    rig.service.set_manner(Manner::Answers);
    rig.service.set_host("a.example", &["10.0.0.2"], 100);
    rig.pass(100_000);
    assert_eq!(rig.book.epoch(), epoch + 1);
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::No);
    rig.service
        .set(host_named("a.example"), Outcome::Absent { ttl_s: None, source: crate::Source::Dns });
    rig.pass(100_000);
    assert_eq!(rig.book.epoch(), epoch + 2);
    assert_eq!(rig.host("a.example", "10.0.0.2"), Known::No);
}

#[test]
fn what_was_known_is_used_while_the_service_is_dead_and_not_for_ever() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1"], 100);
    rig.service.set_client("10.0.0.1", &["a.example"], 100);
    rig.watch(vec![rules(&["a.example", "*.example"])]);
    rig.domain("*.example", "10.0.0.1");
    rig.domain("*.example", "10.0.0.1");
    assert_eq!(rig.domain("*.example", "10.0.0.1"), Known::Yes);
    rig.service.set_manner(Manner::Fails);
    rig.service.take_asked();
    for _ in 0..100 {
        rig.pass(60_000);
        assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
        assert_eq!(rig.host("a.example", "10.0.0.2"), Known::No);
        assert_eq!(rig.domain("*.example", "10.0.0.1"), Known::Yes);
    }
    // It is tried again once a minute, no more.
    let asked = rig.asked();
    assert!((150..240).contains(&asked), "{asked} questions in 100 minutes");
    assert!(rig.book.statistics().stale_uses > 200);
    rig.wait(Bounds::default().stale_max_ms);
    rig.pass(120_000);
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Unreachable);
    // It is back, and all is well at once.
    rig.service.set_manner(Manner::Answers);
    rig.pass(70_000);
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
}

#[test]
fn who_is_new_waits_for_a_while_then_is_told_and_let_in_when_the_service_is_back() {
    let rig = rig();
    rig.service.set_manner(Manner::Fails);
    let news = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&news);
    rig.book.on_news(Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::NotYet);
    rig.wait(4999);
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::NotYet);
    let before = news.load(Ordering::SeqCst);
    rig.wait(1);
    assert!(news.load(Ordering::SeqCst) > before, "who waits is told that it is in vain");
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Unreachable);
    let epoch = rig.book.epoch();
    rig.service.set_manner(Manner::Answers);
    rig.service.set_host("a.example", &["10.0.0.1"], 100);
    rig.pass(60_000);
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
    assert_eq!(rig.book.epoch(), epoch + 1, "what was decided in vain is not remembered");
}

#[test]
fn first_answers_leave_the_epoch_as_it_is() {
    let rig = rig();
    rig.service.set_manner(Manner::Keeps);
    let epoch = rig.book.epoch();
    for n in 0..50 {
        let (host, client) = (format!("h{n}.example"), format!("10.0.0.{n}"));
        rig.service.set_host(&host, &[&client], 3600);
        assert_eq!(rig.host(&host, &client), Known::NotYet);
    }
    rig.service.answer_all();
    rig.book.turn();
    assert_eq!(rig.host("h7.example", "10.0.0.7"), Known::Yes);
    assert_eq!(rig.book.epoch(), epoch);
}

#[test]
fn when_the_service_is_back_all_that_failed_is_asked_at_once() {
    let rig = rig();
    let names: Vec<_> = (0..200).map(|n| format!("h{n}.example")).collect();
    for name in &names {
        rig.service.set_host(name, &["10.0.0.1"], 3600);
    }
    let patterns: Vec<_> = names.iter().map(String::as_str).collect();
    rig.service.set_manner(Manner::Fails);
    rig.watch(vec![rules(&patterns)]);
    rig.pass(600_000);
    rig.service.set_manner(Manner::Answers);
    rig.service.take_asked();
    // The first that has its turn has all the others asked.
    while rig.service.take_asked().is_empty() {
        rig.wait(100);
    }
    for name in &names {
        assert_eq!(rig.host(name, "10.0.0.1"), Known::Yes, "{name}");
    }
    // And each just once.
    assert_eq!(rig.book.statistics().hosts.found, 200);
}

#[test]
fn a_name_that_does_not_exist_is_asked_about_once_a_minute() {
    let rig = rig();
    assert_eq!(rig.host("none.example", "10.0.0.1"), Known::NotYet);
    rig.service.take_asked();
    for _ in 0..100 {
        rig.wait(100);
        assert_eq!(rig.host("none.example", "10.0.0.1"), Known::No);
    }
    assert_eq!(rig.asked(), 0);
    rig.pass(50_000);
    assert_eq!(rig.asked(), 1, "ahead of its end");
    // Unused beyond its end: one question is waited for, and it is there now.
    rig.pass(600_000);
    rig.service.set_host("none.example", &["10.0.0.1"], 100);
    rig.service.take_asked();
    assert_eq!(rig.host("none.example", "10.0.0.1"), Known::NotYet);
    assert_eq!(rig.host("none.example", "10.0.0.1"), Known::Yes);
}

#[test]
fn a_lying_name_lets_nobody_in() {
    let rig = rig();
    rig.service.set_client("10.6.6.6", &["trusted.cs.example", "evil.example"], 100);
    rig.service.set_host("trusted.cs.example", &["10.0.0.1"], 100);
    rig.service.set_host("evil.example", &["10.6.6.6"], 100);
    for _ in 0..3 {
        assert_ne!(rig.domain("*.cs.example", "10.6.6.6"), Known::Yes);
    }
    assert_eq!(rig.domain("*.cs.example", "10.6.6.6"), Known::No);
    // Its true name is its name, and only what a rule needs was asked.
    rig.domain("evil.*", "10.6.6.6");
    assert_eq!(rig.domain("evil.*", "10.6.6.6"), Known::Yes);
    assert_eq!(rig.asked(), 3);
}

#[test]
fn netgroups_are_asked_by_address() {
    let rig = rig();
    rig.service.set_netgroup("staff", &["a.example", "b.example", "10.9.9.9", "-"]);
    rig.service.set_host("a.example", &["10.0.0.1", "fd00::1"], 100);
    rig.service.set_host("b.example", &["10.0.0.2"], 100);
    rig.service.set_netgroup("all", &[""]);
    rig.watch(vec![rules(&["@staff", "@all"])]);
    rig.book.turn();
    for client in ["10.0.0.1", "fd00::1", "10.0.0.2", "10.9.9.9", "::ffff:10.0.0.2"] {
        assert_eq!(rig.netgroup("staff", client), Known::Yes, "{client}");
    }
    assert_eq!(rig.netgroup("staff", "10.0.0.3"), Known::No);
    assert_eq!(rig.netgroup("all", "10.0.0.3"), Known::Yes);
    assert_eq!(rig.netgroup("none", "10.0.0.3"), Known::NotYet);
    assert_eq!(rig.netgroup("none", "10.0.0.3"), Known::No);
    // A host moves, and another one is taken out.
    let epoch = rig.changes();
    rig.service.set_host("a.example", &["10.0.0.7"], 100);
    rig.pass(100_000);
    assert_eq!(rig.netgroup("staff", "10.0.0.1"), Known::No);
    assert_eq!(rig.netgroup("staff", "10.0.0.7"), Known::Yes);
    assert_eq!(rig.changes(), epoch + 1);
    rig.service.set_netgroup("staff", &["a.example"]);
    rig.pass(600_000);
    assert_eq!(rig.netgroup("staff", "10.0.0.2"), Known::No);
    assert_eq!(rig.netgroup("staff", "10.0.0.7"), Known::Yes);
    assert_eq!(rig.changes(), epoch + 2);
    // Nobody looks after the one that was taken out.
    assert!(!rig.book.look_up(&host_named("b.example")).expect("known").is_watched);
}

#[test]
fn a_netgroup_with_hosts_that_cannot_be_looked_up_says_so() {
    let rig = rig();
    rig.service.set_netgroup("staff", &["a.example", "broken.example"]);
    rig.service.set_host("a.example", &["10.0.0.1"], 3600);
    rig.service.set(host_named("broken.example"), Outcome::Failed(Failure::Failed));
    rig.watch(vec![rules(&["@staff"])]);
    rig.book.turn();
    assert_eq!(rig.netgroup("staff", "10.0.0.1"), Known::Yes);
    assert_eq!(rig.netgroup("staff", "10.0.0.2"), Known::NotYet);
    rig.pass(5000);
    assert_eq!(rig.netgroup("staff", "10.0.0.2"), Known::Unreachable);
    let epoch = rig.book.epoch();
    rig.service.set_host("broken.example", &["10.0.0.3"], 3600);
    rig.pass(70_000);
    assert_eq!(rig.netgroup("staff", "10.0.0.2"), Known::No);
    assert_eq!(rig.netgroup("staff", "10.0.0.3"), Known::Yes);
    assert!(rig.book.epoch() > epoch);
}

#[test]
fn names_of_rules_are_looked_up_in_bulk_and_let_go_with_their_rules() {
    let rig = rig();
    let first = rules(&["a.example", "b.example", "@staff", "10.0.0.0/8", "*.example"]);
    let second = rules(&["b.example", "c.example"]);
    rig.service.set_netgroup("staff", &["d.example"]);
    rig.watch(vec![Arc::clone(&first), Arc::clone(&second)]);
    rig.book.turn();
    let mut asked = rig.service.take_asked();
    asked.sort();
    let host = |n| host_named(&format!("{n}.example"));
    assert_eq!(asked, [host("a"), host("b"), host("c"), host("d"), netgroup_named("staff")]);
    // Published again: nothing to do.
    rig.watch(vec![Arc::clone(&second), Arc::clone(&first), first]);
    rig.book.turn();
    assert_eq!(rig.asked(), 0);
    // What no rule has is forgotten once it is of no use.
    rig.watch(vec![Arc::clone(&second)]);
    rig.book.turn();
    assert_eq!(rig.book.look_ups(|_| true, 100).len(), 5);
    rig.pass(6_000_000);
    let there: Vec<_> =
        rig.book.look_ups(|_| true, 100).into_iter().map(|look_up| look_up.name).collect();
    assert_eq!(there, ["b.example", "c.example"]);
    rig.watch(vec![]);
    rig.pass(180_000);
    assert_eq!(rig.book.look_ups(|_| true, 100), []);
}

#[test]
fn a_share_that_comes_back_has_its_names() {
    let rig = rig();
    rig.service.set_netgroup("staff", &["a.example"]);
    rig.service.set_host("a.example", &["10.0.0.1"], 60);
    rig.service.set_host("b.example", &["10.0.0.2"], 60);
    let set = rules(&["@staff", "b.example"]);
    rig.watch(vec![Arc::clone(&set)]);
    rig.book.turn();
    rig.service.set_manner(Manner::Fails);
    rig.watch(vec![]);
    rig.pass(300_000);
    rig.watch(vec![set]);
    rig.pass(10_000);
    assert_eq!(rig.netgroup("staff", "10.0.0.1"), Known::Yes);
    assert_eq!(rig.host("b.example", "10.0.0.2"), Known::Yes);
}

#[test]
fn questions_in_flight_are_bounded_and_who_waits_comes_first() {
    let rig = rig();
    rig.service.set_manner(Manner::Keeps);
    let names: Vec<_> = (0..300).map(|n| format!("h{n}.example")).collect();
    let patterns: Vec<_> = names.iter().map(String::as_str).collect();
    rig.watch(vec![rules(&patterns)]);
    rig.book.turn();
    assert_eq!(rig.service.kept_count(), super::IN_FLIGHT_MAX);
    let statistics = rig.book.statistics().hosts;
    assert_eq!((statistics.in_flight, statistics.waiting), (64, 300 - 64));
    rig.service.take_asked();
    rig.host("h299.example", "10.0.0.1");
    rig.service.answer_all();
    rig.book.turn();
    assert_eq!(rig.service.take_asked().first(), Some(&host_named("h299.example")));
    while rig.service.answer_all() > 0 {
        rig.book.turn();
    }
    let statistics = rig.book.statistics().hosts;
    assert_eq!((statistics.in_flight, statistics.waiting, statistics.sent), (0, 0, 300));
}

#[test]
fn replies_that_are_lost_are_failures() {
    let rig = rig();
    rig.service.set_manner(Manner::Keeps);
    rig.host("a.example", "10.0.0.1");
    let (clock, service) = (Arc::clone(&rig.clock), ScriptedService::new());
    service.set_manner(Manner::Keeps);
    let book = NameBook::new(Bounds::default(), service.clone(), clock);
    book.is_host(&HostName::new("a.example").expect("a host"), address("10.0.0.1"));
    book.turn();
    // The service goes with the question in it.
    let statistics = book.statistics().hosts;
    assert_eq!(statistics.in_flight, 1);
    service.drop_all();
    book.turn();
    let statistics = book.statistics().hosts;
    assert_eq!((statistics.in_flight, statistics.failed), (0, 1));
}

#[test]
fn a_flapping_service_is_never_noticed_by_who_is_known() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1"], 30);
    rig.watch(vec![rules(&["a.example"])]);
    rig.book.turn();
    let epoch = rig.book.epoch();
    for n in 0..600_u32 {
        let manner = if n % 7 < 3 { Manner::Answers } else { Manner::Fails };
        rig.service.set_manner(manner);
        rig.wait(1700);
        assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
        assert_eq!(rig.host("a.example", "10.0.0.2"), Known::No);
    }
    assert_eq!(rig.book.epoch(), epoch);
}

#[test]
fn names_that_no_rule_has_are_bounded() {
    let bounds = Bounds { entries_max: 100, ..Bounds::default() };
    let rig = rig_with(bounds);
    rig.service.set_host("ruled.example", &["10.0.0.1"], 3600);
    rig.watch(vec![rules(&["ruled.example"])]);
    for n in 0..5000_u32 {
        let client = IpAddr::from((0x0a00_0000_u32 + n).to_be_bytes());
        rig.service.set_client(&client.to_string(), &["x.example"], 3600);
        rig.domain("*.cs.example", &client.to_string());
        rig.clock.advance(1);
    }
    let statistics = rig.book.statistics();
    assert!((80..=130).contains(&statistics.clients.names), "{}", statistics.clients.names);
    assert!(statistics.let_go > 4000);
    assert_eq!(rig.host("ruled.example", "10.0.0.1"), Known::Yes);
    // Without turns nothing more is taken in than twice as many.
    for n in 0..5000_u32 {
        let client = IpAddr::from((0x0b00_0000_u32 + n).to_be_bytes());
        let domain = DomainPattern::new("*.cs.example").expect("a domain");
        assert_eq!(rig.book.is_in_domain(&domain, client), Known::NotYet);
    }
    let statistics = rig.book.statistics();
    assert!(statistics.clients.names <= 250, "{}", statistics.clients.names);
    assert!(statistics.refused > 4000);
}

#[test]
fn users_groups_are_those_of_this_host() {
    let rig = rig();
    rig.service.set_user(1000, &[100, 4, 27]);
    let groups = |uid| {
        let groups = rig.book.at_present().groups(uid);
        rig.book.turn();
        groups
    };
    assert_eq!(groups(1000), Groups::NotYet);
    assert_eq!(groups(1000), Groups::Known([100, 4, 27].into()));
    assert_eq!(groups(1001), Groups::NotYet);
    assert_eq!(groups(1001), Groups::NoUser);
    // Somebody who was never known is not believed the client's word.
    rig.service.set_manner(Manner::Fails);
    assert_eq!(groups(1002), Groups::NotYet);
    rig.pass(120_000);
    assert_eq!(groups(1002), Groups::NotYet);
    assert_eq!(groups(1000), Groups::Known([100, 4, 27].into()));
}

#[test]
fn what_files_say_is_asked_again_when_they_change() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1"], 3600);
    rig.watch(vec![rules(&["a.example"])]);
    rig.pass(10_000);
    rig.service.set_host("a.example", &["10.0.0.2"], 3600);
    rig.service.set_changed(vec![host_named("a.example"), host_named("other.example")]);
    rig.pass(2000);
    assert_eq!(rig.host("a.example", "10.0.0.2"), Known::Yes);
    assert_eq!(rig.asked(), 2);
    // Or when somebody wants it.
    rig.service.set_host("a.example", &["10.0.0.3"], 3600);
    rig.book.refresh();
    rig.book.turn();
    assert_eq!(rig.host("a.example", "10.0.0.3"), Known::Yes);
}

#[test]
fn a_change_while_a_question_is_in_flight_is_not_lost() {
    let rig = rig();
    rig.service.set_host("a.example", &["10.0.0.1"], 3600);
    rig.service.set_manner(Manner::Keeps);
    rig.watch(vec![rules(&["a.example"])]);
    rig.pass(2000);
    assert_eq!(rig.asked(), 1);
    rig.service.set_changed(vec![host_named("a.example")]);
    rig.pass(2000);
    // The answer is from before the change.
    assert_eq!((rig.asked(), rig.service.answer_all()), (0, 1));
    rig.service.set_host("a.example", &["10.0.0.2"], 3600);
    rig.service.set_manner(Manner::Answers);
    rig.book.turn();
    assert_eq!(rig.asked(), 1);
    assert_eq!(rig.host("a.example", "10.0.0.2"), Known::Yes);
}

#[test]
fn what_is_kept_serves_after_a_restart_with_a_dead_service() {
    let before = rig();
    before.service.set_host("a.example", &["10.0.0.1", "fd00::1"], 100);
    before.service.set_host("m.example", &["10.0.0.2"], 100);
    before.service.set_client("10.0.0.5", &["x.example"], 100);
    before.service.set_host("x.example", &["10.0.0.5"], 100);
    before.service.set_netgroup("staff", &["m.example", "10.0.0.9"]);
    before.service.set_netgroup("all", &[""]);
    before.service.set_user(1000, &[1, 2]);
    let rules = rules(&["a.example", "none.example", "@staff", "@all", "@none"]);
    before.watch(vec![Arc::clone(&rules)]);
    before.book.turn();
    for _ in 0..3 {
        before.domain("*.example", "10.0.0.5");
    }
    before.book.at_present().groups(1000);
    before.book.at_present().groups(1001);
    before.book.turn();
    before.pass(20_000);
    assert!(before.book.is_changed());
    let kept = before.book.kept();
    assert!(!before.book.is_changed());
    let kept = super::Kept::of_bytes(&kept.to_bytes()).expect("a book");

    let after = rig();
    after.service.set_manner(Manner::Fails);
    // A day later.
    after.clock.advance(86_400_000);
    assert_eq!(after.book.restore(kept), 10);
    after.watch(vec![rules]);
    after.book.turn();
    for _ in 0..2 {
        assert_eq!(after.host("a.example", "fd00::1"), Known::Yes);
        assert_eq!(after.host("a.example", "10.0.0.2"), Known::No);
        assert_eq!(after.host("none.example", "10.0.0.2"), Known::No);
        assert_eq!(after.netgroup("staff", "10.0.0.2"), Known::Yes);
        assert_eq!(after.netgroup("staff", "10.0.0.9"), Known::Yes);
        assert_eq!(after.netgroup("staff", "10.0.0.3"), Known::No);
        assert_eq!(after.netgroup("all", "10.0.0.3"), Known::Yes);
        assert_eq!(after.domain("*.example", "10.0.0.5"), Known::Yes);
        assert_eq!(after.book.at_present().groups(1000), Groups::Known([1, 2].into()));
        after.pass(10_000);
    }
    assert!(after.asked() > 5, "all the same it is asked for");
    let look_up = after.book.look_up(&host_named("a.example")).expect("it is known");
    assert_eq!(look_up.state, super::State::Stale);
    assert!((86_000..90_000).contains(&look_up.age_s.expect("an age")), "{look_up:?}");
    assert_eq!(after.book.look_up(&Subject::User(7)), None);
}

#[test]
fn what_is_too_old_is_not_taken_in_and_damage_is_told() {
    let before = rig();
    before.service.set_host("a.example", &["10.0.0.1"], 100);
    before.host("a.example", "10.0.0.1");
    let bytes = before.book.kept().to_bytes();
    let after = rig();
    after.clock.advance(8 * 86_400_000);
    assert_eq!(after.book.restore(super::Kept::of_bytes(&bytes).expect("a book")), 0);
    // Each byte of it counts.
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x11;
        let read = super::Kept::of_bytes(&damaged);
        assert!(read.is_err(), "byte {at} of {}", String::from_utf8_lossy(&bytes));
        assert!(super::Kept::of_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
    let other =
        String::from_utf8(bytes).expect("text").replacen("\"version\":1", "\"version\":2", 1);
    let error = super::Kept::of_bytes(other.as_bytes()).expect_err("another version");
    assert!(error.to_string().contains("version 2"), "{error}");
}
