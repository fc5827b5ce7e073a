//! Process ring, without the program: decisions by names that are asked of a name server on
//! loopback, which dies, dawdles, lies and flaps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_access::testing::{Behavior, DnsServer};
use steadfast_access::{Access, AccessSettings, Bounds};
use steadfast_shares::{
    Authority, ClientRule, Decision, Flavor, Question, Refusal, Rights, RuleSet,
};

/// Longest time for anything to come about.
const LONG: Duration = Duration::from_secs(60);

struct Rig {
    dns: DnsServer,
    directory: tempfile::TempDir,
    settings: AccessSettings,
}

impl Rig {
    fn new() -> Self {
        let (dns, directory) = (DnsServer::start(), tempfile::tempdir().unwrap());
        let settings = AccessSettings {
            servers: vec![dns.address()],
            hosts_file: directory.path().join("hosts"),
            netgroup_file: directory.path().join("netgroup"),
            timeout_ms: 500,
            // So that a test sees what otherwise takes minutes.
            bounds: Bounds {
                ttl_min_ms: 1000,
                negative_ms: 1000,
                ttl_default_ms: 1000,
                patience_ms: 1000,
                retry_ms: (200, 1000),
                ..Bounds::default()
            },
            helper: None,
            state_file: Some(directory.path().join("names.json")),
        };
        Self { dns, directory, settings }
    }

    fn start(&self) -> Arc<Access> {
        Access::start(&self.settings).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }

    fn state_file(&self) -> &Path {
        self.settings.state_file.as_deref().unwrap()
    }
}

fn rules(patterns: &[&str]) -> Arc<RuleSet> {
    let rule = |text: &&str| ClientRule {
        pattern: text.parse().unwrap(),
        grants: Arc::new([Rights::default()]),
    };
    Arc::new(RuleSet::new(patterns.iter().map(rule).collect()))
}

fn question(client: &str) -> Question {
    question_of(client.parse().unwrap())
}

fn question_of(client: IpAddr) -> Question {
    Question { client, flavor: Flavor::Sys, from_privileged_port: true }
}

const GRANTED: Decision = Decision::Granted(0);
const REFUSED: Decision = Decision::Refused(Refusal::Client);

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}: not within {} s", LONG.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn wait_decided(access: &Access, rules: &Arc<RuleSet>, client: &str) -> Decision {
    let mut decision = Decision::Pending;
    wait_for("a decision", || {
        decision = access.decide(rules, &question(client));
        decision != Decision::Pending
    });
    decision
}

/// Known clients do not notice; new ones wait for as long as is meant, and are let in when the
/// name server is back.
fn lives_through(behavior: Behavior) {
    let rig = Rig::new();
    let (dns, access) = (&rig.dns, rig.start());
    dns.set_ttl(1);
    dns.set_both("host.example", "10.0.0.1".parse().unwrap());
    dns.set_both("a.cs.example", "10.0.0.2".parse().unwrap());
    dns.set_both("member.example", "10.0.0.3".parse().unwrap());
    rig.write("netgroup", "staff (member.example,,)\n");
    let rules = rules(&["host.example", "*.cs.example", "@staff"]);
    access.change_rules([Arc::clone(&rules)], []);
    let known = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    for client in known {
        wait_for("the netgroup file to be read", || {
            wait_decided(&access, &rules, client) == GRANTED
        });
    }
    assert_eq!(wait_decided(&access, &rules, "10.0.0.9"), REFUSED);

    dns.set_behavior(behavior);
    dns.set_both("b.cs.example", "10.0.0.4".parse().unwrap());
    assert_eq!(access.decide(&rules, &question("10.0.0.4")), Decision::Pending);
    // Longer than any answer lives, and until the new one is told that it is in vain.
    let start = Instant::now();
    let mut news = 0;
    while news == 0 || start.elapsed() < Duration::from_secs(4) {
        for client in known {
            assert_eq!(access.decide(&rules, &question(client)), GRANTED, "{client}");
        }
        assert_eq!(access.decide(&rules, &question("10.0.0.9")), REFUSED);
        news += usize::from(access.decide(&rules, &question("10.0.0.4")) == REFUSED);
        std::thread::sleep(Duration::from_millis(1));
        assert!(start.elapsed() < LONG);
    }
    let statistics = access.statistics().names;
    assert!(statistics.stale_uses > 0, "{statistics:?}");
    assert!(statistics.hosts.timed_out + statistics.hosts.failed > 0, "{statistics:?}");

    dns.set_behavior(Behavior::Answer);
    wait_for("the new client is let in", || {
        access.decide(&rules, &question("10.0.0.4")) == GRANTED
    });
    access.stop();
}

#[test]
fn a_name_server_that_is_dead_is_lived_through() {
    lives_through(Behavior::Drop);
}

#[test]
fn a_name_server_that_takes_twenty_seconds_is_lived_through() {
    lives_through(Behavior::Delay(Duration::from_secs(20)));
}

#[test]
fn a_name_server_that_cannot_tell_is_lived_through() {
    lives_through(Behavior::ServFail);
}

#[test]
fn a_name_server_that_flaps_is_lived_through() {
    let rig = Rig::new();
    let (dns, access) = (&rig.dns, rig.start());
    dns.set_ttl(1);
    dns.set_both("a.cs.example", "10.0.0.2".parse().unwrap());
    let rules = rules(&["*.cs.example"]);
    assert_eq!(wait_decided(&access, &rules, "10.0.0.2"), GRANTED);
    dns.set_behavior(Behavior::Flap);
    let asked = dns.asked();
    wait_for("some questions", || {
        assert_eq!(access.decide(&rules, &question("10.0.0.2")), GRANTED);
        dns.asked() > asked + 12
    });
}

#[test]
fn two_thousand_clients_at_once_cause_one_look_up_a_name() {
    let mut rig = Rig::new();
    rig.settings.bounds.negative_ms = 3_600_000;
    let (dns, access) = (&rig.dns, rig.start());
    dns.set_ttl(3600);
    // So that they all ask while the answers are on their way.
    dns.set_behavior(Behavior::Delay(Duration::from_millis(100)));
    let names: Vec<_> = (0..40).map(|n| format!("host{n}.example")).collect();
    for (n, name) in names.iter().enumerate() {
        dns.set_both(name, [10, 1, 0, n as u8].into());
    }
    let mut patterns: Vec<_> = names.iter().map(String::as_str).collect();
    patterns.push("*.cs.example");
    let rules = rules(&patterns);
    let is_decided = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for part in 0..8_u8 {
            let (access, rules, is_decided) = (&access, &rules, &is_decided);
            scope.spawn(move || {
                let clients: Vec<_> = (0..250_u8).map(|n| [10, 1, part, n].into()).collect();
                for client in &clients {
                    access.decide(rules, &question_of(*client));
                }
                for client in clients {
                    wait_for("a decision", || {
                        access.decide(rules, &question_of(client)) != Decision::Pending
                    });
                    is_decided.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(is_decided.load(Ordering::SeqCst), 2000);
    for (n, name) in names.iter().enumerate() {
        assert_eq!(dns.asked_about(name), 1, "{name}");
        let client = format!("10.1.0.{n}");
        assert_eq!(access.decide(&rules, &question(&client)), GRANTED);
        // His rule is found by his address: nobody needs his name.
    }
    for part in 0..8_u8 {
        for n in 0..250_u8 {
            assert!(dns.asked_pointer([10, 1, part, n].into()) <= 1, "10.1.{part}.{n}");
        }
    }
}

#[test]
fn a_name_server_that_lies_lets_nobody_in() {
    let rig = Rig::new();
    let (dns, access) = (&rig.dns, rig.start());
    dns.set_host("trusted.cs.example", &["10.0.0.1".parse().unwrap()]);
    dns.set_pointer("10.6.6.6".parse().unwrap(), &["trusted.cs.example", "TRUSTED.cs.example."]);
    dns.set_pointer("10.6.6.7".parse().unwrap(), &["no-such-host.cs.example"]);
    let six: IpAddr = "fd00::6".parse().unwrap();
    dns.set_both("six.cs.example", six);
    let rules = rules(&["*.cs.example"]);
    for liar in ["10.6.6.6", "10.6.6.7", "10.6.6.8"] {
        assert_eq!(wait_decided(&access, &rules, liar), REFUSED, "{liar}");
    }
    assert_eq!(wait_decided(&access, &rules, "fd00::6"), GRANTED);
}

#[test]
fn once_warm_the_traffic_is_that_of_refreshing() {
    let rig = Rig::new();
    let (dns, access) = (&rig.dns, rig.start());
    dns.set_ttl(2);
    let names: Vec<_> = (0..50).map(|n| format!("host{n}.example")).collect();
    for (n, name) in names.iter().enumerate() {
        dns.set_both(name, [10, 1, 0, n as u8].into());
    }
    let patterns: Vec<_> = names.iter().map(String::as_str).collect();
    let rules = rules(&patterns);
    access.change_rules([Arc::clone(&rules)], []);
    for n in 0..50 {
        assert_eq!(wait_decided(&access, &rules, &format!("10.1.0.{n}")), GRANTED);
    }
    let epoch = access.epoch();
    dns.reset_counts();
    let start = Instant::now();
    let mut decided = 0_u64;
    // Until all were refreshed twice, as fast as clients can ask.
    wait_for("refreshes", || {
        for n in 0..200 {
            access.decide(&rules, &question(&format!("10.1.0.{n}")));
            decided += 1;
        }
        dns.asked() >= 200
    });
    let elapsed = start.elapsed().as_secs_f64();
    let (asked, epoch_now) = (dns.asked(), access.epoch());
    // Two questions a name (A and AAAA) at eleven sixteenths of two seconds, at the earliest.
    let most = 50.0 * 2.0 * (elapsed / (2.0 * 11.0 / 16.0) + 1.0);
    assert!(asked as f64 <= most, "{asked} questions in {elapsed:.1} s, at most {most:.0}");
    assert!(decided > 10_000, "{decided} decisions");
    assert_eq!(epoch_now, epoch, "the same answers change nothing");
}

#[test]
fn after_a_restart_with_a_dead_name_server_everybody_known_is_served() {
    let rig = Rig::new();
    let dns = &rig.dns;
    dns.set_ttl(1);
    dns.set_both("host.example", "10.0.0.1".parse().unwrap());
    dns.set_both("a.cs.example", "fd00::2".parse().unwrap());
    dns.set_both("member.example", "10.0.0.3".parse().unwrap());
    rig.write("netgroup", "staff (member.example,,)\n");
    let rules = rules(&["host.example", "*.cs.example", "@staff"]);
    let known = ["10.0.0.1", "fd00::2", "10.0.0.3"];
    let access = rig.start();
    access.change_rules([Arc::clone(&rules)], []);
    for client in known {
        assert_eq!(wait_decided(&access, &rules, client), GRANTED);
    }
    assert_eq!(wait_decided(&access, &rules, "10.0.0.9"), REFUSED);
    access.stop();
    drop(access);

    dns.set_behavior(Behavior::Drop);
    let access = rig.start();
    access.change_rules([Arc::clone(&rules)], []);
    for _ in 0..2 {
        for client in known {
            assert_eq!(access.decide(&rules, &question(client)), GRANTED, "{client}");
        }
        // Until it has been asked in vain.
        wait_for("failures", || access.statistics().names.hosts.timed_out > 0);
    }
    assert_eq!(wait_decided(&access, &rules, "10.0.0.9"), REFUSED);
    access.stop();

    // A file that was damaged is not believed, and no reason not to start.
    dns.set_behavior(Behavior::Answer);
    let mut bytes = std::fs::read(rig.state_file()).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(rig.state_file(), bytes).unwrap();
    let access = rig.start();
    assert_eq!(access.statistics().names.hosts.names, 0);
    access.change_rules([Arc::clone(&rules)], []);
    assert_eq!(wait_decided(&access, &rules, "10.0.0.1"), GRANTED);
}

#[test]
fn hosts_and_netgroups_of_files_come_first_and_change_with_them() {
    let rig = Rig::new();
    rig.dns.set_both("host.example", "10.0.0.1".parse().unwrap());
    rig.write("hosts", "10.0.0.2 host.example\n");
    rig.write("netgroup", "staff (10.0.0.5,,)\n");
    let access = rig.start();
    let (host, staff) = (rules(&["host.example"]), rules(&["@staff"]));
    access.change_rules([Arc::clone(&host), Arc::clone(&staff)], []);
    assert_eq!(wait_decided(&access, &host, "10.0.0.2"), GRANTED);
    assert_eq!(wait_decided(&access, &host, "10.0.0.1"), REFUSED);
    assert_eq!(wait_decided(&access, &staff, "10.0.0.5"), GRANTED);
    assert_eq!(rig.dns.asked(), 0);
    rig.write("hosts", "# nothing\n");
    rig.write("netgroup", "staff (10.0.0.6,,)\n");
    wait_for("the host file to be read", || access.decide(&host, &question("10.0.0.1")) == GRANTED);
    assert_eq!(access.decide(&host, &question("10.0.0.2")), REFUSED);
    wait_for("the netgroup file to be read", || {
        access.decide(&staff, &question("10.0.0.6")) == GRANTED
    });
    assert_eq!(access.decide(&staff, &question("10.0.0.5")), REFUSED);
}

#[test]
fn what_is_known_and_decided_can_be_looked_at() {
    let rig = Rig::new();
    let access = rig.start();
    rig.dns.set_both("host.example", "10.0.0.1".parse().unwrap());
    rig.dns.set_both("a.cs.example", "10.0.0.2".parse().unwrap());
    let rules = rules(&["10.9.0.0/16", "host.example", "*.cs.example"]);
    let news = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&news);
    access.on_news(Arc::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(wait_decided(&access, &rules, "10.0.0.2"), Decision::Granted(0));
    wait_for("a listener to be told", || news.load(Ordering::SeqCst) > 0);
    let asked = access.explain(&rules, "10.0.0.2".parse().unwrap());
    let told: Vec<_> = asked
        .iter()
        .map(|asking| {
            let names: Vec<_> = asking.look_ups.iter().map(|l| l.name.as_str()).collect();
            (asking.rule, format!("{:?}", asking.known), names.join(" "))
        })
        .collect();
    let expected = [(1, "No", "host.example"), (2, "Yes", "10.0.0.2 a.cs.example")];
    assert_eq!(told, expected.map(|(n, known, names)| (n, known.to_owned(), names.to_owned())));
    assert_eq!(asked[1].look_ups[0].answers, ["a.cs.example"]);
    let decided = access.decide(&rules, &question("10.0.0.2"));
    let statistics = access.statistics();
    assert_eq!(decided, Decision::Granted(0));
    assert!(statistics.decisions.entries == 1 && statistics.decisions.misses > 0);
    assert!(statistics.decisions.pending > 0);
    assert_eq!(access.reclaim(1.0), 1);
    serde_json::to_string(&statistics).unwrap();
}
