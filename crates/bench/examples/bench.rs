//! The load generators by themselves; see `bench --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use steadfast_bench::arguments::BenchArguments;

/// Puts loads on an NFS server, checks what it promises, and reports.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    #[command(flatten)]
    bench: BenchArguments,
}

fn main() -> ExitCode {
    match Arguments::parse().bench.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
