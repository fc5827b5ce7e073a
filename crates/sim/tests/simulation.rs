//! Simulation ring: a million events in CI, by many seeds; each fault that is put in is found.
#![allow(clippy::expect_used)]

use std::time::Instant;

use steadfast_sim::{Mutation, Options, run};

/// A run of each seed, or of the one that `STEADFAST_SIM_SEED` names.
const SEEDS: usize = 20;
const STEPS: u64 = 50_000;

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
    for seed in (first..).take(runs) {
        match run(Options::new(seed, steps)) {
            Ok(report) => {
                done += report.steps;
                kills += report.kills;
                power_cuts += report.power_cuts;
                reclaims += report.reclaims;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    let a_second = done as f64 / since.elapsed().as_secs_f64();
    println!(
        "{done} steps, {a_second:.0} a second; {kills} kills, {power_cuts} power cuts, {reclaims} \
         locks reclaimed"
    );
    // A simulation in which nothing happens finds nothing.
    assert!(named.is_some() || kills > 20 && power_cuts > 10 && reclaims > 10);
}

#[test]
fn equal_seeds_have_equal_histories() {
    let report = |seed| run(Options::new(seed, 20_000)).expect("no fault");
    for seed in [1, 2] {
        assert_eq!(report(seed), report(seed), "the same run");
    }
    assert_ne!(report(1).digest, report(2).digest);
}

/// Runs seeds until one finds a mutation; what it has found.
fn found(mutation: Mutation) -> String {
    for seed in 1..=40 {
        if let Err(failure) = run(Options { mutation, ..Options::new(seed, 100_000) }) {
            println!("{mutation:?}: seed {seed}, step {}: {}", failure.step, failure.what);
            let told = failure.to_string();
            assert!(
                told.contains(&format!("STEADFAST_SIM_SEED={seed} "))
                    && !failure.history.is_empty()
            );
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
    assert!(what.contains("in time"), "{what}");
}

#[test]
fn locks_that_nobody_recorded_are_found() {
    let what = found(Mutation::NoClientRecord);
    assert!(what.contains("lost in a restart"), "{what}");
}

#[test]
fn locks_that_were_revoked_and_come_back_are_found() {
    let what = found(Mutation::NoRevocationRecord);
    assert!(what.contains("meanwhile is reclaimed") || what.contains("conflicts"), "{what}");
}
