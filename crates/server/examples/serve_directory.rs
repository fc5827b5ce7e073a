//! Serves a directory to this machine until it is interrupted, and prints how to mount it:
//! `cargo run -p steadfast-server --example serve_directory -- DIRECTORY STATE-DIRECTORY`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steadfast_server::{Configuration, Server, StartOptions, prepare_process};
use steadfast_shares::{Access, ClientPattern, ShareOptions};
use steadfast_sys::process::Signals;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(state)) = (arguments.next(), arguments.next()) else {
        return Err("say DIRECTORY STATE-DIRECTORY".into());
    };
    // Before there are other threads, which inherit both.
    let signals = Signals::block()?;
    let powers = prepare_process()?;

    let server = Server::start(configuration(&directory)?, options(state), &powers)?;
    for line in server.mount_lines(1) {
        println!("{line}");
    }
    while signals.wait(Duration::from_secs(3600))?.is_none() {}
    Ok(server.stop()?)
}

/// The directory, for every user of this machine, at a port that is free.
fn configuration(directory: &Path) -> Result<Configuration, Box<dyn Error>> {
    let mut configuration = Configuration::default();
    let access = Access { needs_privileged_port: false, ..Access::default() };
    let share = ShareOptions { access, ..ShareOptions::default() };
    configuration.add_directory(&directory.canonicalize()?, &share, &[ClientPattern::Any])?;
    let settings = &mut configuration.settings.server;
    settings.listen = Some(vec!["127.0.0.1:0".parse()?]);
    settings.rpcbind = Some(false);
    Ok(configuration)
}

fn options(state_directory: PathBuf) -> StartOptions {
    StartOptions { state_directory: Some(state_directory), ..StartOptions::default() }
}
