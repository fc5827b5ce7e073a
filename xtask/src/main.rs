//! Tests, measurements and checks of the workspace: `cargo xtask <command>`.
//!
//! One module a command; `main` only dispatches, so that a command's options and help are read
//! where the command is.
#![forbid(unsafe_code)]

mod cargo_tests;
mod package;
mod site;
mod test;
mod tidy;

use std::process::ExitCode;

use steadfast_rig::{
    bench_shares, doctor, durability, journal_table, kernel_client, peers, plugins, powercut,
    storm, watch,
};

type Command = fn(&[String]) -> anyhow::Result<()>;

const COMMANDS: &[(&str, &str, Command)] = &[
    ("test", "everything CI runs; installs the Debian packages it needs", test::run),
    ("kernel-client", "the real Linux NFS client against a server", kernel_client::run),
    ("watch", "what watch captures beside the kernel client's own counts", watch::run),
    ("doctor", "what doctor finds on the kernel client, nfs-ganesha, knfsd", doctor::run),
    ("peers", "calls, latency and CPU beside nfs-ganesha", peers::run),
    ("durability", "what the intent log costs and gains, into docs/durability.md", durability::run),
    (
        "bench-shares",
        "Sun's table of shares, measured again, into docs/shares-performance.md",
        bench_shares::run,
    ),
    (
        "journal-table",
        "what a mount's journal costs and gains, into docs/journal.md",
        journal_table::run,
    ),
    ("plugins", "the plug-ins with the real Samba and exportfs", plugins::run),
    ("package", "Debian packages, checked by lintian", package::run),
    ("site", "the documents as pages that are read offline; a broken link fails", site::run),
    ("powercut", "power cuts and kills: what is acknowledged stays", powercut::run),
    ("tidy", "formatting, lints, dependency rules, file and function lengths", tidy::run),
    ("fuzz", "every fuzz target, or one, for so many seconds each", test::fuzz_for),
    ("storm", "a million damaged calls against the real server", storm::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        print_usage();
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print_usage();
        return ExitCode::SUCCESS;
    }
    let Some((_, _, command)) = COMMANDS.iter().find(|(known, _, _)| known == name) else {
        eprintln!("xtask: no command is called {name:?}");
        print_usage();
        return ExitCode::from(2);
    };
    match command(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print_usage() {
    eprintln!("usage: cargo xtask COMMAND [OPTIONS]\n");
    for (name, summary, _) in COMMANDS {
        eprintln!("  {name:<14} {summary}");
    }
}
