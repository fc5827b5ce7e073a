//! The op load generator by itself:
//! `op HOST:PORT PATH OPERATION... [--mount-port N] [--connections N] [--depth N] [--threads N]
//! [--seconds S] [--pid PID] [--names N] [--keep] [--paused] [--json]`, or
//! `op null-server HOST:PORT`. `--keep` leaves the tree; `--paused` writes a line to standard
//! error when the tree is made, and begins at once when a line comes on standard input.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use steadfast_bench::null_server::NullServer;
use steadfast_bench::op::{Load, Operation, Report, run_when, table};

fn main() -> ExitCode {
    match work(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("op: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    let mut words = arguments.into_iter();
    let first = words.next().ok_or("which server?")?;
    if first == "null-server" {
        let mut server = NullServer::bind(words.next().ok_or("which address?")?.parse()?)?;
        println!("{}", server.address()?);
        return Ok(server.run()?);
    }
    let path = words.next().ok_or("which share?")?;
    let mut load = Load::new(first.parse()?, &path, Operation::Null);
    let mut operations: Vec<Operation> = Vec::new();
    let (mut is_json, mut is_paused) = (false, false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--mount-port" => load.mount_server.set_port(value()?.parse()?),
            "--connections" => load.connections = value()?.parse()?,
            "--depth" => load.depth = value()?.parse()?,
            "--threads" => load.threads = value()?.parse()?,
            "--seconds" => load.duration = Duration::from_secs_f64(value()?.parse()?),
            "--names" => load.names = value()?.parse()?,
            "--pid" => load.server_pid = Some(value()?.parse()?),
            "--json" => is_json = true,
            "--keep" => load.cleans_up = false,
            "--paused" => {
                is_paused = true;
                load.warm_up = Duration::ZERO;
            }
            operation => operations.push(operation.parse()?),
        }
    }
    let mut reports: Vec<Report> = Vec::new();
    for operation in operations {
        load.operation = operation;
        reports.push(run_when(&load, || {
            if is_paused {
                eprintln!("prepared");
                // At the end of input there is nobody to wait for.
                let _ = std::io::stdin().read_line(&mut String::new());
            }
        })?);
    }
    if is_json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    } else {
        print!("{}", table(&reports));
    }
    Ok(())
}
