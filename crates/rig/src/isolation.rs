//! Measurements in network, mount and process namespaces of their own: a command runs itself again
//! under `unshare`, and when that ends, however it ends, the kernel takes servers, mounts and loop
//! devices away.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::namespace::Janitor;

/// Runs this program's `command` again inside, with `variable` set so that it knows; the directory
/// `scratch`, which no namespace takes away, is removed at the end.
pub(crate) fn run(
    command: &str,
    arguments: &[String],
    variable: &str,
    scratch: &Path,
) -> Result<()> {
    let mut janitor = Janitor::start()?;
    janitor.at_end(&format!("sleep 1; rm -rf {:?}", scratch.display().to_string()))?;
    let mut measuring = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe()?)
        .arg(command)
        .args(arguments)
        .env(variable, "1")
        // It ends when this pipe closes, however this process ends.
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run unshare")?;
    let pipe = measuring.stdin.take();
    let status = measuring.wait()?;
    drop(pipe);
    if !status.success() {
        bail!("the measurement ended with {status}");
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
