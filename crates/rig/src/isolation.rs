//! Measurements in network, mount and process namespaces of their own: a command runs itself again
//! under `unshare`, and when that ends, however it ends, the kernel takes servers, mounts and loop
//! devices away.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::namespace::Janitor;

/// Runs this program's command of that name again inside, with `variable` set so that it knows; the directory
/// `scratch`, which no namespace takes away, is removed at the end.
pub(crate) fn run(
    command_name: &str,
    arguments: &[String],
    variable: &str,
    scratch: &Path,
) -> Result<()> {
    let mut janitor = Janitor::start()?;
    janitor.at_end(&format!("sleep 1; rm -rf {:?}", scratch.display().to_string()))?;
    let mut measuring = command();
    measuring.arg(std::env::current_exe()?).arg(command_name).args(arguments).env(variable, "1");
    wait_for(&mut measuring, "the measurement")
}

/// A command that runs a program, which is yet to be added, in namespaces of its own.
pub(crate) fn command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command
}

/// Runs such a command. What runs inside ends when its standard input does, which is however this
/// process ends ([`end_with_standard_input`]).
pub(crate) fn wait_for(command: &mut Command, what: &str) -> Result<()> {
    let mut inside = command.stdin(Stdio::piped()).spawn().context("cannot run unshare")?;
    let pipe = inside.stdin.take();
    let status = inside.wait()?;
    drop(pipe);
    if !status.success() {
        bail!("{what} ended with {status}");
    }
    Ok(())
}

/// Whoever started this holds the other end of standard input: when that is gone, so is this
/// process, the first of its namespace, and with it everything that it started and mounted.
pub(crate) fn end_with_standard_input() -> Result<()> {
    std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        let mut bytes = [0; 64];
        while !matches!(std::io::stdin().read(&mut bytes), Ok(0) | Err(_)) {}
        std::process::exit(130);
    })?;
    Ok(())
}
