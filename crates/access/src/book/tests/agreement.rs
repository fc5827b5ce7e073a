//! Whatever happens: nobody is let in by an answer that was never given, and once the service
//! answers, the book says what the service says.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;

/// Hosts, clients' addresses, and netgroups are few, so that they meet.
const HOSTS: u8 = 4;
const GROUPS: u8 = 2;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Behave(Manner),
    /// The addresses of a host, by their last bytes, and the time to live in s.
    Host(u8, BTreeSet<u8>, u32),
    /// The names that an address claims.
    Client(u8, BTreeSet<u8>),
    Netgroup(u8, BTreeSet<u8>),
    Rules(BTreeSet<u8>, BTreeSet<u8>),
    Ask(u8),
    AnswerAll,
}

fn host_name(n: u8) -> String {
    format!("h{n}.example")
}

fn client(n: u8) -> String {
    format!("10.0.0.{n}")
}

fn step() -> impl Strategy<Value = Step> {
    let some = |most| prop::collection::btree_set(0..most, 0..3);
    prop_oneof![
        3 => (0..400_000_u64).prop_map(Step::Wait),
        3 => (0..6000_u64).prop_map(Step::Wait),
        1 => prop::sample::select(vec![Manner::Answers, Manner::Keeps, Manner::Fails])
            .prop_map(Step::Behave),
        3 => (0..HOSTS, some(HOSTS), 0..300_u32).prop_map(|(n, a, ttl)| Step::Host(n, a, ttl)),
        2 => (0..HOSTS, some(HOSTS)).prop_map(|(n, names)| Step::Client(n, names)),
        2 => (0..GROUPS, some(HOSTS)).prop_map(|(n, hosts)| Step::Netgroup(n, hosts)),
        2 => (some(HOSTS), some(GROUPS)).prop_map(|(hosts, groups)| Step::Rules(hosts, groups)),
        4 => (0..HOSTS).prop_map(Step::Ask),
        1 => Just(Step::AnswerAll),
    ]
}

/// What the service says now.
#[derive(Default)]
struct Truth {
    hosts: HashMap<u8, BTreeSet<u8>>,
    clients: HashMap<u8, BTreeSet<u8>>,
    netgroups: HashMap<u8, BTreeSet<u8>>,
}

impl Truth {
    fn is_host(&self, host: u8, client: u8) -> bool {
        self.hosts.get(&host).is_some_and(|addresses| addresses.contains(&client))
    }

    fn is_in_domain(&self, client: u8) -> bool {
        let mut claimed = self.clients.get(&client).into_iter().flatten();
        claimed.any(|host| self.is_host(*host, client))
    }

    fn is_in_netgroup(&self, netgroup: u8, client: u8) -> bool {
        let mut hosts = self.netgroups.get(&netgroup).into_iter().flatten();
        hosts.any(|host| self.is_host(*host, client))
    }
}

fn texts(numbers: &BTreeSet<u8>, text: fn(u8) -> String) -> Vec<String> {
    numbers.iter().map(|n| text(*n)).collect()
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_book_says_what_the_service_says(steps in prop::collection::vec(step(), 1..80)) {
        let rig = rig();
        let (mut truth, mut ever) = (Truth::default(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Wait(ms) => rig.wait(ms),
                Step::Behave(manner) => rig.service.set_manner(manner),
                Step::Host(n, addresses, ttl_s) => {
                    let given = texts(&addresses, client);
                    rig.service.set_host(&host_name(n), &borrowed(&given), ttl_s);
                    ever.extend(addresses.iter().map(|address| (n, *address)));
                    truth.hosts.insert(n, addresses);
                }
                Step::Client(n, names) => {
                    let given = texts(&names, host_name);
                    rig.service.set_client(&client(n), &borrowed(&given), 60);
                    truth.clients.insert(n, names);
                }
                Step::Netgroup(n, hosts) => {
                    let given = texts(&hosts, host_name);
                    rig.service.set_netgroup(&format!("g{n}"), &borrowed(&given));
                    truth.netgroups.insert(n, hosts);
                }
                Step::Rules(hosts, groups) => {
                    let mut patterns = texts(&hosts, host_name);
                    patterns.extend(texts(&groups, |n| format!("@g{n}")));
                    rig.watch(vec![rules(&borrowed(&patterns))]);
                }
                Step::Ask(n) => {
                    for host in 0..HOSTS {
                        let known = rig.host(&host_name(host), &client(n));
                        prop_assert!(known != Known::Yes || ever.contains(&(host, n)));
                    }
                    rig.domain("*.example", &client(n));
                    rig.netgroup("g0", &client(n));
                }
                Step::AnswerAll => {
                    rig.service.answer_all();
                }
            }
            rig.book.turn();
        }
        // All is well, and everything is in use, for longer than any answer lives.
        rig.service.set_manner(Manner::Answers);
        rig.service.answer_all();
        for _ in 0..3 {
            for n in 0..HOSTS {
                for _ in 0..3 {
                    for host in 0..HOSTS {
                        rig.host(&host_name(host), &client(n));
                    }
                    rig.domain("*.example", &client(n));
                    rig.netgroup("g0", &client(n));
                    rig.netgroup("g1", &client(n));
                }
            }
            rig.wait(1_300_000);
        }
        let known = |is_so| if is_so { Known::Yes } else { Known::No };
        for n in 0..HOSTS {
            for host in 0..HOSTS {
                // Once more where it was not in use: who asks is answered from memory, and
                // then as it is.
                rig.host(&host_name(host), &client(n));
                rig.domain("*.example", &client(n));
                rig.netgroup("g0", &client(n));
                rig.netgroup("g1", &client(n));
            }
        }
        for n in 0..HOSTS {
            for host in 0..HOSTS {
                let said = rig.host(&host_name(host), &client(n));
                prop_assert_eq!(said, known(truth.is_host(host, n)), "h{} {}", host, n);
            }
            let said = rig.domain("*.example", &client(n));
            prop_assert_eq!(said, known(truth.is_in_domain(n)), "domain {}", n);
            for netgroup in 0..GROUPS {
                let said = rig.netgroup(&format!("g{netgroup}"), &client(n));
                prop_assert_eq!(said, known(truth.is_in_netgroup(netgroup, n)), "g{}", n);
            }
        }
        let statistics = rig.book.statistics();
        prop_assert_eq!((statistics.hosts.in_flight, statistics.hosts.waiting), (0, 0));
    }
}
