//! Simulation ring: a million events in CI, by many seeds, and runs with a hundred clients; each fault that is
//! put in is found.
#![allow(clippy::expect_used)]

use std::time::Instant;

use steadfast_sim::{Mutation, Options, run};

/// A run of each seed, or of the one that `STEADFAST_SIM_SEED` names.
const SEEDS: usize = 20;
const STEPS: u64 = 50_000;
/// So many clients are many.
const MANY: u64 = 100;
/// The runs with many, and their steps.
const SEEDS_OF_MANY: usize = 6;
const STEPS_OF_MANY: u64 = 200_000;

#[test]
fn no_seed_finds_a_fault() {
    let named = std::env::var("STEADFAST_SIM_SEED").ok();
    let named: Option<u64> = named.map(|seed| seed.parse().expect("a number"));
    let (first, runs, steps) = match named {
        // However late it was found.
        Some(seed) => (seed, 1, 20 * STEPS),
        None => (1, SEEDS, STEPS),
    };
    let (since, mut done) = (Instant::now(), 0);
    let (mut kills, mut power_cuts, mut reclaims) = (0, 0, 0);
    let (mut delegations, mut recalls, mut revocations) = (0, 0, 0);
    let (mut waits, mut host_restarts) = (0, 0);
    let (mut waited, mut notices, mut local_grants, mut local_denials) = (0, 0, 0, 0);
    for seed in (first..).take(runs) {
        match run(Options::new(seed, steps)) {
            Ok(report) => {
                done += report.steps;
                kills += report.kills;
                power_cuts += report.power_cuts;
                reclaims += report.reclaims;
                delegations += report.delegations;
                recalls += report.recalls;
                revocations += report.revocations;
                waits += report.waits;
                host_restarts += report.host_restarts;
                waited += report.waited;
                notices += report.notices;
                local_grants += report.local_grants;
                local_denials += report.local_denials;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    let a_second = done as f64 / since.elapsed().as_secs_f64();
    println!(
        "{done} steps, {a_second:.0} a second; {kills} kills, {power_cuts} power cuts, {reclaims} \
         locks reclaimed; {delegations} delegations, {recalls} recalled, {revocations} revoked; \
         {waits} locks waited for by hosts, {host_restarts} restarts of these; {waited} waited for by clients of \
         NFSv4, {notices} notices; {local_grants} locks of local processes, {local_denials} denied"
    );
    // A simulation in which nothing happens finds nothing.
    assert!(named.is_some() || kills > 20 && power_cuts > 10 && reclaims > 10);
    assert!(named.is_some() || waits > 100 && host_restarts > 5);
    assert!(named.is_some() || waited > 100 && notices > 50);
    assert!(named.is_some() || local_grants > 100 && local_denials > 100);
    assert!(named.is_some() || delegations > 200 && recalls > 100 && revocations > 0);
}

#[test]
fn a_hundred_clients_find_no_fault() {
    let (mut steps, mut seconds) = (0, 0.0);
    let (mut kills, mut power_cuts, mut reclaims, mut grants) = (0, 0, 0, 0);
    for seed in (1..).take(SEEDS_OF_MANY) {
        let since = Instant::now();
        let options = Options { clients: Some(MANY), ..Options::new(seed, STEPS_OF_MANY) };
        let report = run(options).unwrap_or_else(|failure| panic!("{failure}"));
        seconds += since.elapsed().as_secs_f64();
        println!("seed {seed}: {report:?}");
        assert_eq!(report.clients, MANY);
        // All come, and again and again; what breaks has them repeat calls.
        assert!(report.connections > 2 * MANY && report.resends > MANY, "{report:?}");
        steps += report.steps;
        kills += report.kills;
        power_cuts += report.power_cuts;
        reclaims += report.reclaims;
        grants += report.grants;
    }
    let us_each = 1e6 * seconds / steps as f64;
    println!(
        "{steps} steps of {MANY} clients, {us_each:.2} µs each; {kills} kills, {power_cuts} power \
         cuts, {grants} locks granted, {reclaims} reclaimed"
    );
    assert!(kills > 20 && power_cuts > 5 && grants > 500 && reclaims > 50);
}

#[test]
fn equal_seeds_have_equal_histories() {
    let report = |seed| run(Options::new(seed, 20_000)).expect("no fault");
    for seed in [1, 2] {
        assert_eq!(report(seed), report(seed), "the same run");
    }
    assert_ne!(report(1).digest, report(2).digest);
    let many =
        || run(Options { clients: Some(MANY), ..Options::new(1, 20_000) }).expect("no fault");
    assert_eq!(many(), many(), "the same run");
    assert_ne!(many().digest, report(1).digest);
}

/// Runs seeds until one finds a mutation; what it has found.
fn found(mutation: Mutation) -> String {
    found_by(None, mutation)
}

/// The same with so many clients.
fn found_by(clients: Option<u64>, mutation: Mutation) -> String {
    for seed in 1..=40 {
        if let Err(failure) = run(Options { mutation, clients, ..Options::new(seed, 100_000) }) {
            println!("{mutation:?}: seed {seed}, step {}: {}", failure.step, failure.what);
            let told = failure.to_string();
            let again = match clients {
                Some(clients) => {
                    format!(" --seed {seed} --steps {} --clients {clients}", failure.step + 1)
                }
                None => format!("STEADFAST_SIM_SEED={seed} "),
            };
            assert!(told.contains(&again) && !failure.history.is_empty(), "{told}");
            return failure.what;
        }
    }
    panic!("{mutation:?} is not found")
}

#[test]
fn replies_before_stability_are_found() {
    found(Mutation::RepliesBeforeStable);
}

#[test]
fn a_reply_cache_that_forgets_in_a_restart_is_found() {
    let what = found(Mutation::NoReplyAfterRestart);
    assert!(what.contains("got"), "a call was executed twice: {what}");
}

#[test]
fn a_reply_cache_that_keeps_nothing_is_found() {
    let what = found(Mutation::NoReplyCache);
    assert!(what.contains("got"), "a call was executed twice: {what}");
}

#[test]
fn locks_that_a_kill_loses_are_found() {
    let what = found(Mutation::NoStateImage);
    assert!(what.contains("in time") || what.contains("conflicts"), "{what}");
}

#[test]
fn what_is_kept_too_late_is_found() {
    found(Mutation::StateImageLate);
}

#[test]
fn locks_that_nobody_recorded_are_found() {
    let what = found(Mutation::NoClientRecord);
    // By who reclaims, of NFSv4 or of NLM, or by who gets meanwhile what is not guarded.
    let told = ["lost in a restart", "Reclaim(", "conflicts"];
    assert!(told.iter().any(|told| what.contains(told)), "{what}");
}

#[test]
fn locks_that_were_revoked_and_come_back_are_found() {
    let what = found(Mutation::NoRevocationRecord);
    // Also delegations come back as revoked of which the client has said that it knows: then it is refused what it has opened
    // since.
    let told = ["meanwhile is reclaimed", "conflicts", "lost in a restart"];
    assert!(told.iter().any(|told| what.contains(told)), "{what}");
}

#[test]
fn what_is_put_in_is_found_among_a_hundred_clients() {
    for (mutation, told) in [
        (Mutation::NoReplyAfterRestart, ["got", "got"]),
        // By who reclaims or is told, or by who gets meanwhile what is not guarded.
        (Mutation::NoStateImage, ["in time", "conflicts"]),
        (Mutation::NoClientRecord, ["lost in a restart", "conflicts"]),
    ] {
        let what = found_by(Some(MANY), mutation);
        assert!(told.iter().any(|told| what.contains(told)), "{mutation:?}: {what}");
    }
}
