//! Runs simulations until one fails, or for so many steps.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use steadfast_sim::{CLIENTS_MAX, Options, run};

const USAGE: &str = "usage: steadfast-sim [--seed N] [--steps N] [--runs N] [--clients N] [--history N]\n\
    --seed N   the first run's seed (1); each further run has the next one\n\
    --steps N  events of a run (1000000)\n\
    --runs N   how many runs (1)\n\
    --clients N  how many clients, up to 900 (two to eight, by the seed)\n\
    --history N  entries of the history that a failure shows (120)";

fn main() -> ExitCode {
    let (mut seed, mut steps, mut runs, mut history) = (1, 1_000_000, 1, 120);
    let mut clients = 0;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let place = match argument.as_str() {
            "--seed" => &mut seed,
            "--steps" => &mut steps,
            "--runs" => &mut runs,
            "--clients" => &mut clients,
            "--history" => &mut history,
            _ => return wrong_usage(),
        };
        match arguments.next().and_then(|value| value.parse().ok()) {
            Some(value) => *place = value,
            None => return wrong_usage(),
        }
    }
    if clients > CLIENTS_MAX {
        return wrong_usage();
    }
    let clients = (clients > 0).then_some(clients);
    for seed in (seed..).take(runs as usize) {
        let since = Instant::now();
        match run(Options { history: history as usize, clients, ..Options::new(seed, steps) }) {
            Ok(report) => {
                let seconds = since.elapsed().as_secs_f64();
                let steps = report.steps as f64;
                let (a_second, us_each) = (steps / seconds, 1e6 * seconds / steps);
                println!("seed {seed}: {a_second:.0} steps/s, {us_each:.2} µs each, {report:?}");
            }
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn wrong_usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
