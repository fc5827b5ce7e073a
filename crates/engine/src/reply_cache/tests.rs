use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Peer, Transport};

const HISTORY_MS: u64 = 65_000;

fn of_client(client: IpAddr, xid: u32, arguments: &[u8]) -> CallKey {
    CallKey::new(client, Transport::Tcp, xid, (100_003, 3, 8), arguments)
}

fn key(xid: u32, arguments: &[u8]) -> CallKey {
    of_client(IpAddr::V4(Ipv4Addr::LOCALHOST), xid, arguments)
}

fn origin(port: u16, connection: u64) -> Origin {
    let local = ([127, 0, 0, 1], 2049).into();
    let address = ([127, 0, 0, 1], port).into();
    Peer::new(address, local, Transport::Tcp).on_connection(connection).origin()
}

fn admit(cache: &ReplyCache, key: &CallKey) -> Admission {
    cache.admit(key, origin(700, 1), &Judged::default(), &mut Vec::new())
}

/// The execution that came by the first connection.
fn first(key: &CallKey) -> Execution {
    Execution { key: *key, connection: 1 }
}

/// These connections are gone, those not.
fn judged(gone: &[u64], alive: &[u64]) -> Judged {
    let mut judged = Judged::default();
    for connection in gone {
        judged.note(*connection, true);
    }
    for connection in alive {
        judged.note(*connection, false);
    }
    judged
}

/// Keeps what is sent.
#[derive(Clone, Default)]
struct Letterbox(Arc<Mutex<Vec<Vec<u8>>>>);

impl ReplySink for Letterbox {
    fn send(self: Box<Self>, reply: &[u8]) {
        self.0.lock().push(reply.to_vec());
    }
}

#[test]
fn a_duplicate_in_progress_is_dropped_and_a_finished_one_replayed() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(7, b"arguments");
    assert_eq!(admit(&cache, &call), Admission::New);
    assert_eq!(admit(&cache, &call), Admission::InProgress);
    cache.finish(&first(&call), 0, b"the reply");
    let (mut replayed, nothing) = (Vec::new(), Judged::default());
    assert_eq!(cache.admit(&call, origin(700, 1), &nothing, &mut replayed), Admission::Replayed);
    assert_eq!(replayed, b"the reply");
    assert_eq!(cache.usage().duplicates, 2);
}

#[test]
fn a_forgotten_call_is_new_again() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    let forget = |cache: &ReplyCache, execution: &Execution| cache.forget(execution, b"");
    for end in [forget, ReplyCache::abandon] {
        assert_eq!(admit(&cache, &call), Admission::New);
        end(&cache, &first(&call));
        assert_eq!(admit(&cache, &call), Admission::New);
        cache.abandon(&first(&call));
    }
}

#[test]
fn duplicates_that_came_another_way_wait_for_the_reply() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    assert_eq!(admit(&cache, &call), Admission::New);
    let letterbox = Letterbox::default();
    // A client that connects again from the same port is on another connection.
    for connection in [2, 3, 3] {
        let origin = origin(700, connection);
        let mut replayed = Vec::new();
        let asked = cache.admit(&call, origin, &Judged::default(), &mut replayed);
        assert_eq!(asked, Admission::DependsOn(1));
        let asked = cache.admit(&call, origin, &judged(&[1], &[]), &mut replayed);
        assert_eq!(asked, Admission::InProgressElsewhere(1));
        let sink = Box::new(letterbox.clone());
        assert_eq!(cache.wait(&first(&call), origin, sink, &mut replayed), Admission::InProgress);
        assert!(replayed.is_empty());
    }
    cache.finish(&first(&call), 0, b"reply");
    // They get whole messages: the header of a reply to the call, then the result.
    let mut reply = Vec::new();
    steadfast_rpc::accepted_success(&mut Writer::new(&mut reply), call.xid());
    reply.extend_from_slice(b"reply");
    assert_eq!(*letterbox.0.lock(), [reply.clone(), reply]);
    // It ended between the two questions.
    let forgotten = key(2, b"x");
    let sink = Box::new(letterbox.clone());
    assert_eq!(cache.wait(&first(&forgotten), origin(9, 9), sink, &mut Vec::new()), Admission::New);
    let mut replayed = Vec::new();
    let sink = Box::new(letterbox.clone());
    assert_eq!(cache.wait(&first(&call), origin(9, 9), sink, &mut replayed), Admission::Replayed);
    assert_eq!((replayed, letterbox.0.lock().len()), (b"reply".to_vec(), 2));
}

/// The table in the module's head, as far as it is the cache's.
#[test]
fn a_reply_goes_to_another_connection_only_if_the_first_is_gone() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    let ask = |number, judged: &Judged| {
        let mut replayed = Vec::new();
        (cache.admit(&call, origin(number as u16, number), judged, &mut replayed), replayed)
    };
    let execution = |connection| Execution { key: call, connection };
    let replay = |reply: &[u8]| (Admission::Replayed, reply.to_vec());
    let only = |admission| (admission, Vec::new());
    assert_eq!(ask(1, &judged(&[], &[])), only(Admission::New));
    // While it is executed: two that live are both meant.
    assert_eq!(ask(2, &judged(&[], &[])), only(Admission::DependsOn(1)));
    assert_eq!(ask(2, &judged(&[1], &[])), only(Admission::InProgressElsewhere(1)));
    assert_eq!(ask(2, &judged(&[], &[1])), only(Admission::New));
    assert_eq!(ask(2, &judged(&[], &[])), only(Admission::InProgress));
    cache.finish(&execution(2), 0, b"second");
    cache.finish(&execution(1), 0, b"first");
    assert_eq!(cache.usage().in_progress, 0);
    // Each has its own.
    assert_eq!(ask(1, &judged(&[], &[])), replay(b"first"));
    assert_eq!(ask(2, &judged(&[], &[])), replay(b"second"));
    // A third one has none as long as both live.
    let (Admission::DependsOn(one), _) = ask(3, &judged(&[], &[])) else { panic!("it is known") };
    let (Admission::DependsOn(other), _) = ask(3, &judged(&[], &[one])) else {
        panic!("it is known")
    };
    assert_eq!(one + other, 3);
    assert_eq!(ask(3, &judged(&[], &[1, 2])), only(Admission::New));
    cache.forget(&execution(3), b"later");
    // It takes over what is of one that is gone, and then it is its own.
    assert_eq!(ask(3, &judged(&[1], &[2])), replay(b"first"));
    assert_eq!(ask(3, &judged(&[], &[])), replay(b"first"));
    assert_eq!(ask(4, &judged(&[1], &[2, 3])), only(Admission::New));
    cache.abandon(&execution(4));
    assert_eq!(ask(4, &judged(&[3], &[2])), replay(b"first"));
}

#[test]
fn a_reply_of_before_a_crash_is_the_first_ones_that_asks() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    cache.restore(&call, 0, b"before");
    let ask = |number, judged: &Judged| {
        cache.admit(&call, origin(number as u16, number), judged, &mut Vec::new())
    };
    assert_eq!(ask(7, &judged(&[], &[])), Admission::Replayed);
    assert_eq!(ask(8, &judged(&[], &[])), Admission::DependsOn(7));
    assert_eq!(ask(8, &judged(&[], &[7])), Admission::New);
}

#[test]
fn of_very_many_connections_with_one_call_few_are_asked_about() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    let mut most = 0;
    for number in 1..100 {
        let mut judged = Judged::default();
        loop {
            let origin = origin(number as u16, number);
            match cache.admit(&call, origin, &judged, &mut Vec::new()) {
                Admission::DependsOn(connection) => judged.note(connection, false),
                Admission::New => break,
                admission => panic!("{admission:?}"),
            }
        }
        most = most.max(judged.0.len());
    }
    assert_eq!(most, JUDGED_MAX);
}

#[test]
fn those_who_wait_are_bounded_and_told_to_try_again_too() {
    let cache = ReplyCache::new(1 << 20, HISTORY_MS);
    let call = key(1, b"x");
    assert_eq!(admit(&cache, &call), Admission::New);
    let letterboxes: Vec<Letterbox> = (0..10).map(|_| Letterbox::default()).collect();
    for (connection, letterbox) in (10..).zip(&letterboxes) {
        let sink = Box::new(letterbox.clone());
        cache.wait(&first(&call), origin(700, connection), sink, &mut Vec::new());
    }
    cache.forget(&first(&call), b"later");
    let told: Vec<usize> = letterboxes.iter().map(|letterbox| letterbox.0.lock().len()).collect();
    assert_eq!(told, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn the_oldest_leave_when_the_bound_is_reached_but_never_a_call_in_progress() {
    let bytes_max = 1 << 20;
    let cache = ReplyCache::new(bytes_max, HISTORY_MS);
    let running = key(u32::MAX, b"running");
    assert_eq!(admit(&cache, &running), Admission::New);
    for xid in 0..50_000 {
        let key = key(xid, b"x");
        assert_eq!(admit(&cache, &key), Admission::New);
        cache.finish(&first(&key), u64::from(xid) / 100, &[0; 100]);
    }
    let usage = cache.usage();
    assert!(usage.bytes <= bytes_max, "{usage:?}");
    assert!(usage.replies > 2_000 && usage.evicted_young > 40_000, "{usage:?}");
    assert_eq!(admit(&cache, &running), Admission::InProgress);
    assert_eq!(admit(&cache, &key(49_999, b"x")), Admission::Replayed);
    assert_eq!(admit(&cache, &key(0, b"x")), Admission::New);
}

#[test]
fn at_the_bound_what_leaves_is_the_oldest_of_all_clients() {
    let cache = ReplyCache::new(5 << 20, HISTORY_MS);
    let fill = |client: u8, count: u32, from_ms: u64| {
        for xid in 0..count {
            let client = IpAddr::from([192, 0, 2, client]);
            let key = of_client(client, xid, b"x");
            assert_eq!(admit(&cache, &key), Admission::New);
            cache.finish(&first(&key), from_ms + u64::from(xid), &[0; 100]);
        }
    };
    fill(1, 30_000, 0);
    // Whichever groups these clients are in, what the first has is older.
    for (round, client) in (1..).zip(2..8) {
        fill(client, 10_000, round * 30_000);
        let recent = (2_000..10_000).filter(|xid| {
            let client = IpAddr::from([192, 0, 2, client]);
            let key = of_client(client, *xid, b"x");
            admit(&cache, &key) == Admission::Replayed
        });
        let recent = recent.count();
        assert!(recent > 7_900, "client {client}: {recent}");
    }
}

#[test]
fn a_call_that_took_long_does_not_age_those_before_it() {
    let cache = ReplyCache::new(1 << 20, 1_000);
    // All in one shard.
    let key = |number: u32| key(7, &number.to_be_bytes());
    for number in 0..20 {
        admit(&cache, &key(number));
        let clock_ms = if number == 5 { 1 } else { 70_000 };
        cache.finish(&first(&key(number)), clock_ms, &[0; 100]);
    }
    for number in 0..20 {
        assert_eq!(admit(&cache, &key(number)), Admission::Replayed, "{number}");
    }
}

#[test]
fn it_grows_only_while_what_would_leave_is_young() {
    let cache = ReplyCache::new(64_000_000, 1_000);
    // 1,000 calls/s: what is older than a second makes room for what comes.
    for xid in 0..60_000_u32 {
        let key = key(xid, b"x");
        admit(&cache, &key);
        cache.finish(&first(&key), u64::from(xid), &[0; 100]);
    }
    let usage = cache.usage();
    assert!((1_000..20_000).contains(&usage.replies), "{usage:?}");
    assert_eq!(usage.evicted_young, 0);
}

#[test]
fn it_gives_memory_back_when_idle_or_when_memory_is_short() {
    let cache = ReplyCache::new(1 << 24, HISTORY_MS);
    let fill = |from: u32, now_ms: u64| {
        for xid in from..from + 10_000 {
            let key = key(xid, b"x");
            assert_eq!(admit(&cache, &key), Admission::New);
            cache.finish(&first(&key), now_ms, &[0; 100]);
        }
    };
    fill(0, 5);
    cache.expire(5 + LIFE_MS);
    assert_eq!(cache.usage().replies, 10_000);
    cache.expire(6 + LIFE_MS);
    let usage = cache.usage();
    assert!(usage.replies == 0 && usage.bytes < 10_000, "{usage:?}");

    fill(10_000, 1_000_000);
    cache.set_pressure(MemoryPressure::Some);
    cache.expire(1_000_000 + HISTORY_MS);
    assert_eq!(cache.usage().replies, 10_000, "what may be asked for again stays");
    cache.set_pressure(MemoryPressure::Full);
    cache.expire(1_000_000 + SHORT_HISTORY_MS);
    assert_eq!(cache.usage().replies, 10_000);
    cache.expire(1_000_001 + SHORT_HISTORY_MS);
    let usage = cache.usage();
    assert!(usage.replies == 0 && usage.evicted_by_pressure == 10_000, "{usage:?}");
}

/// Paper 001: "the expected maximum call rate … would be nearly 10^5 calls/sec".
#[test]
fn the_design_rate_keeps_two_seconds_in_64_mb_and_shrinks_again() {
    let cache = ReplyCache::new(60_000_000, HISTORY_MS);
    let client = |number: u64| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
    let call = |number: u64| {
        let client = client(number % 2_000);
        of_client(client, (number / 2_000) as u32, &number.to_be_bytes())
    };
    // 85% WRITE, 15% CREATE and the like, by the sizes of their replies.
    let size = |number: u64| if number % 20 < 17 { 164 } else { 292 };
    let mut peak = 0;
    for number in 0..600_000_u64 {
        let (key, now_ms) = (call(number), number / 100);
        assert_eq!(admit(&cache, &key), Admission::New);
        cache.finish(&first(&key), now_ms, &vec![number as u8; size(number)]);
        if number % 10_000 == 0 {
            peak = cache.usage().bytes.max(peak);
            if let Some(before) = number.checked_sub(200_000) {
                let mut replayed = Vec::new();
                let admission =
                    cache.admit(&call(before), origin(1, 1), &judged(&[], &[]), &mut replayed);
                assert_eq!(admission, Admission::Replayed, "2 s later, at call {number}");
                assert_eq!(replayed, vec![before as u8; size(before)]);
            }
        }
    }
    assert!((20_000_000..64_000_000).contains(&peak), "{peak} bytes");
    cache.expire(6_001 + LIFE_MS);
    let usage = cache.usage();
    assert!(usage.replies == 0 && usage.bytes < 1 << 20, "{usage:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u32),
    Finish(u32, usize),
    Forget(u32),
    Pass(u64),
    Pressure(MemoryPressure),
}

fn step() -> impl Strategy<Value = Step> {
    let pressure = prop_oneof![
        Just(MemoryPressure::None),
        Just(MemoryPressure::Some),
        Just(MemoryPressure::Full)
    ];
    prop_oneof![
        6 => (0..40_u32).prop_map(Step::Admit),
        6 => (0..40_u32, prop_oneof![0..400_usize, 15_000..40_000_usize])
            .prop_map(|(xid, length)| Step::Finish(xid, length)),
        1 => (0..40_u32).prop_map(Step::Forget),
        2 => (0..100_000_u64).prop_map(Step::Pass),
        1 => pressure.prop_map(Step::Pressure),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Known {
    Running,
    Finished { reply: Vec<u8>, at_ms: u64 },
}

proptest! {
    /// Against a map that never forgets: what is replayed are the bytes of the call, and what is
    /// younger than the history is replayed unless the cache has said that it evicted such.
    #[test]
    fn it_does_as_a_map_would(
        steps in prop::collection::vec(step(), 1..400),
        bytes_max in prop_oneof![Just(1_usize << 16), Just(1 << 20), Just(1 << 26)],
    ) {
        let cache = ReplyCache::new(bytes_max, HISTORY_MS);
        let mut model: HashMap<u32, Known> = HashMap::new();
        let mut now_ms = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Admit(xid) => {
                    let mut replayed = Vec::new();
                    let admission = cache.admit(&key(xid, b"x"), origin(700, 1), &Judged::default(), &mut replayed);
                    match (model.get(&xid), admission) {
                        (Some(Known::Running), Admission::InProgress)
                        | (None, Admission::New) => {}
                        (Some(Known::Finished { reply, .. }), Admission::Replayed) => {
                            prop_assert_eq!(&replayed, reply);
                        }
                        (Some(Known::Finished { at_ms, .. }), Admission::New) => {
                            let usage = cache.usage();
                            // A reply for which the bound has no room at all is not kept.
                            prop_assert!(
                                at_ms + HISTORY_MS <= now_ms
                                    || usage.evicted_young + usage.evicted_by_pressure > 0
                                    || bytes_max <= 1 << 20
                            );
                        }
                        (known, admission) => prop_assert!(false, "{known:?}, {admission:?}"),
                    }
                    if admission == Admission::New {
                        model.insert(xid, Known::Running);
                    }
                }
                Step::Finish(xid, length) if model.get(&xid) == Some(&Known::Running) => {
                    let reply = vec![number as u8; length];
                    cache.finish(&first(&key(xid, b"x")), now_ms, &reply);
                    model.insert(xid, Known::Finished { reply, at_ms: now_ms });
                }
                Step::Forget(xid) if model.get(&xid) == Some(&Known::Running) => {
                    cache.forget(&first(&key(xid, b"x")), b"");
                    model.remove(&xid);
                }
                Step::Pass(ms) => {
                    now_ms += ms;
                    cache.expire(now_ms);
                }
                Step::Pressure(pressure) => cache.set_pressure(pressure),
                Step::Finish(..) | Step::Forget(_) => {}
            }
            let usage = cache.usage();
            // The index is not reserved for before it grows.
            prop_assert!(usage.bytes <= bytes_max + 40 * 64, "{usage:?}");
        }
        cache.expire(now_ms + LIFE_MS + 1);
        prop_assert_eq!(cache.usage().replies, 0);
    }
}
