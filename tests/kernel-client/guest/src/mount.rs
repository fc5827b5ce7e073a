//! NFS mounts by Debian's `mount.nfs`, unmounted when dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What every mount has of the version of NFS that the suite is run with. `nolock`: locks over NFSv3
/// are another service's, which the case about them asks for.
pub(crate) fn of_version(version: &str) -> Result<&'static str> {
    match version {
        // Debian's mount.nfs has forgotten it: the kernel is asked itself, and asks MOUNT 1 for the handle.
        "2" => Ok("vers=2,proto=tcp,mountvers=1,mountproto=tcp,nolock,hard"),
        "3" => Ok("vers=3,proto=tcp,mountproto=tcp,nolock,hard"),
        "4.0" => Ok("vers=4.0,proto=tcp,hard"),
        "4.1" => Ok("vers=4.1,proto=tcp,hard"),
        "4.2" => Ok("vers=4.2,proto=tcp,hard"),
        other => bail!("no mounts are made by NFS {other}"),
    }
}

/// A mounted share.
#[derive(Debug)]
pub(crate) struct Mount {
    device: String,
    at: PathBuf,
    options: String,
}

impl Mount {
    /// Mounts `device` (`server:/path`) at `at`, which is created.
    pub(crate) fn new(device: &str, at: PathBuf, options: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(&at)?;
        let all: Vec<_> = options.iter().copied().filter(|option| !option.is_empty()).collect();
        let mount = Self { device: device.to_owned(), at, options: all.join(",") };
        mount.mount()?;
        Ok(mount)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts and mounts again: what is read afterwards comes from the server.
    pub(crate) fn again(&self) -> Result<()> {
        run("umount", &[&self.at.to_string_lossy()])?;
        self.mount()
    }

    /// The value of an option that is in effect, from `/proc/self/mounts`.
    pub(crate) fn effective(&self, option: &str) -> Result<String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let at = self.at.to_string_lossy();
        let options = mounts
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1).zip(line.split_whitespace().nth(3)))
            .find(|(place, _)| *place == at)
            .map(|(_, options)| options)
            .context("the mount is not in /proc/self/mounts")?;
        options
            .split(',')
            .find_map(|word| word.split_once('=').filter(|(name, _)| *name == option))
            .map(|(_, value)| value.to_owned())
            .with_context(|| format!("{option} is not among {options}"))
    }

    fn mount(&self) -> Result<()> {
        let at = self.at.to_string_lossy();
        if self.options.split(',').any(|option| option == "vers=2") {
            let (server, _) = self.device.split_once(':').context("a device without a server")?;
            let options = format!("{},addr={server},mountaddr={server}", self.options);
            return run("mount", &["-i", "-t", "nfs", "-o", &options, &self.device, &at]).map(drop);
        }
        run("mount", &["-t", "nfs", "-o", &self.options, &self.device, &at]).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let at = self.at.to_string_lossy();
        if run("umount", &[&at]).is_err() {
            // Something still uses it, which a case that failed may leave behind.
            let _ = run("umount", &["-l", &at]);
        }
    }
}

/// Runs a program to its end; its standard output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_command(Command::new(program).args(arguments))
}

/// The same for a command with more to it.
pub(crate) fn run_command(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let from = text.len().saturating_sub(600);
        let end = text.get(from..).unwrap_or(&text);
        bail!("{command:?}: {}: {}", output.status, end.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
