//! What a decision costs, in nanoseconds: remembered, and made anew by names. Prints a table;
//! `cargo bench -p steadfast-access`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use steadfast_access::testing::{ManualClock, ScriptedService, host_named};
use steadfast_access::{Access, Bounds, Clock, SystemClock};
use steadfast_shares::{
    Authority, ClientRule, Decision, Flavor, Known, Names, NetgroupName, Question, Rights, RuleSet,
};

const ROUNDS: usize = 5;

fn rules(patterns: impl IntoIterator<Item = String>) -> Arc<RuleSet> {
    let rule = |text: String| ClientRule {
        pattern: text.parse().unwrap(),
        grants: Arc::new([Rights::default()]),
    };
    Arc::new(RuleSet::new(patterns.into_iter().map(rule).collect()))
}

fn question(client: IpAddr) -> Question {
    Question { client, flavor: Flavor::Sys, from_privileged_port: true }
}

fn client(n: u32) -> IpAddr {
    (0x0a00_0000 + n).to_be_bytes().into()
}

/// The best of some rounds.
fn measure(name: &str, count: u32, mut once: impl FnMut(u32)) {
    let mut best_ns = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for n in 0..count {
            once(n);
        }
        best_ns = best_ns.min(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    println!("{name:56} {best_ns:10.1}");
}

fn main() {
    let service = ScriptedService::new();
    for n in 0..1000 {
        service.set_host(&format!("host{n}.example"), &[&client(n).to_string()], 3600);
    }
    let members: Vec<_> = (0..10_000).map(|n| format!("member{n}.cs.example")).collect();
    for (n, member) in members.iter().enumerate() {
        service.set_host(member, &[&client(0x10_0000 + n as u32).to_string()], 3600);
    }
    let members: Vec<_> = members.iter().map(String::as_str).collect();
    service.set_netgroup("farm", &members);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let access = Access::with_service(Bounds::default(), service.clone(), clock, None);
    let hosts = rules((0..1000).map(|n| format!("host{n}.example")));
    let farm = rules(["@farm".to_owned()]);
    let start = Instant::now();
    access.change_rules([Arc::clone(&hosts), Arc::clone(&farm)], []);
    access.book().turn();
    println!("11,000 names learnt in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);

    println!("{:56} {:>10}", "decision", "ns");
    let asked = question(client(999));
    assert_eq!(access.decide(&hosts, &asked), Decision::Granted(0));
    measure("remembered, one client", 1_000_000, |_| {
        assert_eq!(access.decide(&hosts, &asked), Decision::Granted(0));
    });
    for n in 0..50_000 {
        access.decide(&farm, &question(client(n)));
    }
    measure("remembered, one of 50,000 clients", 1_000_000, |n| {
        let decision =
            access.decide(&farm, &question(client(n.wrapping_mul(2_654_435_761) % 50_000)));
        assert_ne!(decision, Decision::Pending);
    });
    let names = access.book().at_present();
    measure("made anew, the last of 1,000 hosts", 2000, |_| {
        assert_eq!(hosts.decide(&asked, &names), Decision::Granted(0));
    });
    let stranger = question([192, 0, 2, 1].into());
    measure("made anew, none of 1,000 hosts", 2000, |_| {
        assert_ne!(hosts.decide(&stranger, &names), Decision::Granted(0));
    });
    let group = NetgroupName::new("farm").unwrap();
    measure("a netgroup of 10,000 hosts", 1_000_000, |n| {
        let known = names.is_in_netgroup(&group, client(0x10_0000 + n % 10_000));
        assert_eq!(known, Known::Yes);
    });
    measure("a netgroup of 10,000 hosts, none of them", 1_000_000, |_| {
        assert_eq!(names.is_in_netgroup(&group, stranger.client), Known::No);
    });
    change_of_rules();
}

/// What a change of one set of rules among 15,150 costs who publishes it, and the background.
fn change_of_rules() {
    let (service, clock) = (ScriptedService::new(), Arc::new(ManualClock::default()));
    let access = Access::with_service(Bounds::default(), service, clock, None);
    let mut sets: Vec<_> = (0..15_150)
        .map(|n| rules((0..3).map(|m| format!("host{}.example", (n * 7 + m) % 5000))))
        .collect();
    access.change_rules(sets.iter().cloned(), []);
    access.book().turn();
    let (mut publish_ms, mut turn_ms) = (f64::INFINITY, f64::INFINITY);
    for (n, set) in sets.iter_mut().take(20).enumerate() {
        let new = rules([format!("new{n}.example")]);
        let old = std::mem::replace(set, Arc::clone(&new));
        let start = Instant::now();
        access.change_rules([new], [old]);
        publish_ms = publish_ms.min(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        access.book().turn();
        turn_ms = turn_ms.min(start.elapsed().as_secs_f64() * 1e3);
        assert!(access.look_up(&host_named(&format!("new{n}.example"))).is_some());
    }
    println!(
        "one of 15,150 sets of rules changed: {publish_ms:.2} ms to publish, {turn_ms:.2} ms in \
         the background"
    );
}
