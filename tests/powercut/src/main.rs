//! The power-cut rig: `cargo xtask powercut` starts it in namespaces of its own.
//!
//! Test ring: power cut. It runs the real server on real file systems on disks that record every
//! write and flush ([`disk`], [`journal`]) while clients change a share together ([`workload`]);
//! then it starts the server again on what the disks may hold if the power had failed at some moment
//! ([`crash`], [`recording`], [`cuts`]), and compares what clients see with what they were promised
//! ([`state`], [`content`], [`check`]). `docs/powercut.md` says what is simulated and what is not.
//!
//! It must never link the server, nor look at the share but through the server.
#![forbid(unsafe_code)]

mod acl;
mod actor;
mod arguments;
mod check;
mod claims;
mod content;
mod crash;
mod cuts;
mod disk;
mod histories;
mod image;
mod journal;
mod kills;
mod local;
mod nfs4;
mod operation;
mod random;
mod recording;
mod regain;
mod report;
mod resend;
mod selftest;
mod server;
mod snapshot;
mod state;
mod storage;
mod workload;

use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use arguments::Arguments;
use cuts::Cuts;
use histories::{Parts, Stage};
use recording::{Began, Places, Shape};
use report::Tally;
use server::{Kind, Setup};
use storage::call;
use workload::Mix;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = Arguments::parse(&arguments).and_then(|arguments| run(&arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("powercut: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if std::process::id() != 1 {
        bail!("this runs in namespaces of its own: start it by cargo xtask powercut");
    }
    end_with_standard_input()?;
    storage::remove_leftovers()?;
    let places = prepare(arguments)?;
    selftest::run(&places)?;
    let setup = Setup {
        kind: arguments.server,
        program: arguments.program.clone(),
        share: places.share(),
        state: places.mount(1).join("steadfast"),
        scratch: places.top.clone(),
        configuration: match &arguments.configuration {
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?
                .replace("{log}", &places.mount(2).display().to_string()),
            None => String::new(),
        },
    };
    let started = Instant::now();
    let mut tallies = Vec::new();
    for file_system in &arguments.file_systems {
        let mut tally = Tally::new(file_system.to_string());
        let shape = Shape {
            file_system: *file_system,
            seed: arguments.seed,
            clients: arguments.clients,
            holders: arguments.holders,
            operations: arguments.operations,
            log_bytes: arguments.log_bytes,
            log_file_system: arguments.log_file_system,
            mix: arguments.histories.map_or(Mix::default(), Parts::mix),
        };
        let stage = arguments.histories.map(|parts| Stage {
            shape: &shape,
            places: &places,
            setup: &setup,
            parts,
            expected: &arguments.expected,
            keep: arguments.keep.clone(),
        });
        match (stage, arguments.kills) {
            (Some(stage), Some(kills)) => histories::run_kills(&stage, kills, &mut tally)?,
            (Some(stage), None) => histories::run_power(&stage, arguments.points, &mut tally)?,
            (None, Some(kills)) => {
                let keep = arguments.keep.as_deref();
                kills::run(kills, &shape, &places, &setup, keep, &mut tally)?;
            }
            (None, None) => cut(arguments, &shape, &places, &setup, &mut tally)?,
        }
        tallies.push(tally);
    }
    let what = if arguments.kills.is_some() { "kill -9" } else { "power cuts" };
    let server = match arguments.server {
        Kind::Steadfast => "steadfast",
        Kind::Ganesha => "nfs-ganesha",
    };
    let document = report::document(server, arguments.seed, what, &tallies);
    if let Some(file) = &arguments.json {
        std::fs::write(file, format!("{document:#}\n"))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{document}");
    println!("{server}, {what}, in {:.0} s:", started.elapsed().as_secs_f64());
    println!("{}", report::table(&tallies));
    if arguments.holders > 0 {
        println!("{}", report::held(&tallies));
    }
    if arguments.histories.is_some() {
        println!("{}", report::histories(&tallies));
    }
    judge(arguments, &tallies)
}

/// Success or failure.
fn judge(arguments: &Arguments, tallies: &[Tally]) -> Result<()> {
    let sum = |count: fn(&Tally) -> usize| tallies.iter().map(count).sum::<usize>();
    let losses = sum(|tally| tally.points_with_loss);
    let halves = sum(|tally| tally.points_with_halves);
    let surprises = sum(|tally| tally.surprises);
    if !arguments.expected.is_empty() {
        if !tallies.iter().all(|tally| tally.has_any(&arguments.expected)) {
            bail!("what was expected was not found on each file system");
        }
        return Ok(());
    }
    if arguments.expects_loss {
        if losses == 0 {
            bail!("loss was expected, and none was found");
        }
        return Ok(());
    }
    if losses > 0 || surprises > 0 || halves > 0 && !arguments.allows_halves {
        let examples: Vec<_> = tallies.iter().flat_map(|tally| &tally.examples).collect();
        bail!(
            "{losses} points lack what was acknowledged, {halves} have something \
             unacknowledged by halves, {surprises} replies are unexpected; the first violations: \
             {examples:#?}"
        );
    }
    Ok(())
}

/// Runs until there are as many points as asked for.
fn cut(
    arguments: &Arguments,
    shape: &Shape,
    places: &Places,
    setup: &Setup,
    tally: &mut Tally,
) -> Result<()> {
    let mut shape = *shape;
    while tally.points < arguments.points {
        let cuts = Cuts {
            points: arguments.points_of_a_run.min(arguments.points - tally.points),
            only: arguments.point,
            is_replayed: arguments.is_replayed,
            expected: arguments.expected.clone(),
            keep: arguments.keep.clone(),
        };
        cuts::run(&cuts, &shape, places, setup, tally)?;
        if arguments.point.is_some() || tally.has_any(&arguments.expected) {
            break;
        }
        shape.seed += 1;
    }
    Ok(())
}

/// Whoever started this holds the other end of standard input: when that is gone, so is the run,
/// and with this process, the first of its namespace, everything that it started and mounted.
fn end_with_standard_input() -> Result<()> {
    std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        let mut bytes = [0; 64];
        while !matches!(std::io::stdin().read(&mut bytes), Ok(0) | Err(_)) {}
        std::process::exit(130);
    })?;
    Ok(())
}

/// The network, and a directory in memory, that nothing outside sees.
fn prepare(arguments: &Arguments) -> Result<Places> {
    call("ip", &["link", "set", "lo", "up"])?;
    call("mount", &["-t", "tmpfs", "-o", "size=90%", "steadfast-powercut", "/run"])?;
    let places = Places { top: std::path::PathBuf::from("/run/steadfast-powercut") };
    std::fs::create_dir_all(&places.top)?;
    places.start_machine(arguments.seed, 0, Began::Now)?;
    call("mount", &["--bind", utf8(&places.boot_id())?, "/proc/sys/kernel/random/boot_id"])?;
    if arguments.server == Kind::Ganesha {
        for directory in ["/run/ganesha", "/run/rpcbind", "/run/steadfast-powercut/nfs"] {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::create_dir_all("/var/lib/nfs")?;
        call("mount", &["--bind", "/run/steadfast-powercut/nfs", "/var/lib/nfs"])?;
        std::fs::create_dir_all("/var/lib/nfs/ganesha")?;
        call("rpcbind", &["-w"])?;
    }
    Ok(places)
}

fn utf8(path: &std::path::Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
