//! The server and the programs beside it, with what they need of a machine.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{PATIENCE, first_line};
use crate::namespace::{call, run};
use crate::process::{self, Process};
use crate::workspace::target;

/// Addresses of this machine: who connects to one of them comes from it, too.
pub(super) const ALLOWED: &str = "10.88.0.1";
pub(super) const DENIED: &str = "10.88.0.2";
pub(super) const ALLOWED_6: &str = "fd88::1";
pub(super) const DENIED_6: &str = "fd88::9";
pub(super) const LOOPBACK: &str = "127.0.0.1";
/// What [`ALLOWED`] is called, and a domain that has it.
pub(super) const HOST: &str = "one.steadfast.test";
pub(super) const DOMAIN: &str = "*.steadfast.test";
/// A user of Samba, and his password.
pub(super) const USER: &str = "steadfast-test%secret";
/// Where the shares are.
pub(super) const SHARES: &str = "/run/shares";
/// Samba's own settings.
pub(super) const SMB_CONF: &str = "/etc/samba/smb.conf";
/// What the plug-in writes for Samba.
pub(super) const INCLUDE: &str = "/etc/samba/steadfast.conf";
/// And for exportfs.
pub(super) const EXPORTS: &str = "/etc/exports.d/steadfast.exports";

const STATE: &str = "/run/steadfast-state";
const LOGS: &str = "/run/logs";
/// Programs that the plug-ins call are called by way of this, which counts the calls.
const COUNTING: &str = "/run/counting";

const SMB_SETTINGS: &str = "[global]
\tserver role = standalone server
\tserver string = test
\tworkgroup = TEST
\tmap to guest = Never
\tdisable spoolss = yes
\thostname lookups = yes
\tload printers = no
\tlog level = 1
\tlog file = /run/logs/smbd.log
\tinclude = /etc/samba/steadfast.conf
";

const STEADFAST_TOML: &str = "[plugin.smb]
include = \"/etc/samba/steadfast.conf\"

[plugin.exportfs]
file = \"/etc/exports.d/steadfast.exports\"
";

/// Everything that runs; it ends with the namespace.
pub(super) struct Site {
    steadfast: PathBuf,
    _server: Process,
    _smbd: Process,
}

impl Site {
    /// Makes the directories, and starts the programs.
    pub(super) fn start() -> Result<Self> {
        make_network()?;
        make_directories()?;
        let steadfast = target()?.join("debug/steadfast").canonicalize()?;
        std::fs::write("/run/steadfast.toml", STEADFAST_TOML)?;
        std::fs::write(SMB_CONF, SMB_SETTINGS)?;
        add_user()?;
        // The file that it includes is not there yet, as on a machine where this is set up.
        let smbd =
            daemon("smbd", Command::new("smbd").args(["--foreground", "--no-process-group"]))?;
        wait_for("smbd", || run("smbcontrol", &["--timeout=2", "smbd", "ping"]).map(drop))?;
        let path = format!("{COUNTING}:/usr/sbin:/usr/bin:/sbin:/bin");
        let server = daemon(
            "steadfast",
            Command::new(&steadfast)
                .args(["serve", "--config", "/run/steadfast.toml", "--state-directory", STATE])
                .args(["--listen", "127.0.0.1", "--no-rpcbind", "--no-intent-log"])
                .env("PATH", path),
        )?;
        let site = Self { steadfast, _server: server, _smbd: smbd };
        wait_for("steadfast", || site.tell(&["share", "list"]).map(drop))?;
        Ok(site)
    }

    /// What is tried, for the documentation.
    pub(super) fn versions(&self) -> Result<String> {
        let package = |name| run("dpkg-query", &["--show", "--showformat", "${Version}", name]);
        let server = first_line(&run(&self.steadfast.display().to_string(), &["--version"])?)?;
        Ok(format!(
            "{server} with Samba {} and nfs-utils {}",
            package("samba")?,
            package("nfs-kernel-server")?
        ))
    }

    /// A directory to be shared, with a file in it.
    pub(super) fn directory(name: &str) -> Result<String> {
        let path = Path::new(SHARES).join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777))?;
        std::fs::write(path.join("hello.txt"), "hello\n")?;
        Ok(path.display().to_string())
    }

    /// A command to the server that succeeds.
    pub(super) fn tell(&self, words: &[&str]) -> Result<String> {
        let server = ["--config", "/run/steadfast.toml", "--state-directory", STATE];
        run(&self.steadfast.display().to_string(), &[words, &server].concat())
    }

    /// A batch that plug-ins are waited for; it is an error if one of them has a fault.
    pub(super) fn batch(&self, words: &[&str]) -> Result<String> {
        let told = self.tell(&[words, &["--wait"]].concat())?;
        if told.contains("plug-in") {
            bail!("{}", told.trim());
        }
        Ok(told)
    }

    /// How the plug-ins called a program since this was asked before.
    pub(super) fn calls_of(program: &str) -> Result<Vec<String>> {
        let log = Path::new(COUNTING).join(format!("{program}.calls"));
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        std::fs::write(&log, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Copies what the programs said to where it stays.
    pub(super) fn kept_logs() -> Result<PathBuf> {
        let kept = target()?.join("plugins-logs");
        call("cp", &["-rT", LOGS, &kept.display().to_string()])?;
        let kept = kept.canonicalize()?;
        for file in [INCLUDE, EXPORTS] {
            // One that was never written is what went wrong.
            let name = Path::new(file).file_name().context("a file has a name")?;
            let _ = std::fs::copy(file, kept.join(name));
        }
        Ok(kept)
    }
}

fn make_network() -> Result<()> {
    call("ip", &["link", "set", "lo", "up"])?;
    for address in [ALLOWED, DENIED] {
        call("ip", &["addr", "add", &format!("{address}/32"), "dev", "lo"])?;
    }
    for address in [ALLOWED_6, DENIED_6] {
        call("ip", &["addr", "add", &format!("{address}/128"), "dev", "lo", "nodad"])?;
    }
    Ok(())
}

/// The directories in which the programs keep things become others, which nobody else sees.
fn make_directories() -> Result<()> {
    call("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
    call("cp", &["-aT", "/etc", "/run/etc"])?;
    call("mount", &["--bind", "/run/etc", "/etc"])?;
    for directory in ["/var/lib/samba", "/var/cache/samba", "/var/lib/nfs", "/var/log/samba"] {
        std::fs::create_dir_all(directory)?;
        call("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", directory])?;
    }
    std::fs::create_dir("/var/lib/samba/private")?;
    for file in ["etab", "rmtab"] {
        File::create(Path::new("/var/lib/nfs").join(file))?;
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    std::fs::write("/etc/hosts", format!("{ALLOWED} {HOST}\n{hosts}"))?;
    std::fs::write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")?;
    std::fs::write("/etc/exports", "")?;
    let exports = Path::new("/etc/exports.d");
    if exports.exists() {
        std::fs::remove_dir_all(exports)?;
    }
    for directory in [Path::new("/run/samba"), exports, Path::new(SHARES), Path::new(LOGS)] {
        std::fs::create_dir(directory)?;
    }
    // On a disk: the kernel's server takes no tmpfs without a number of its own.
    let disk = target()?.join("plugins/shares");
    std::fs::create_dir_all(&disk)?;
    std::fs::set_permissions(&disk, PermissionsExt::from_mode(0o755))?;
    call("mount", &["--bind", &disk.display().to_string(), SHARES])?;
    std::fs::create_dir(COUNTING)?;
    for (program, path) in [
        ("smbcontrol", "/usr/bin/smbcontrol"),
        ("testparm", "/usr/bin/testparm"),
        ("exportfs", "/usr/sbin/exportfs"),
    ] {
        let script = Path::new(COUNTING).join(program);
        let text =
            format!("#!/bin/sh\necho \"$*\" >> {COUNTING}/{program}.calls\nexec {path} \"$@\"\n");
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}

/// A user that the copy of /etc alone has.
fn add_user() -> Result<()> {
    let (name, password) = USER.split_once('%').context("a user has a password")?;
    let line = format!("{name}:x:54321:65534::/:/usr/sbin/nologin\n");
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    std::fs::write("/etc/passwd", passwd + &line)?;
    let script = format!("printf '%s\\n%s\\n' {password} {password} | smbpasswd -a -s {name}");
    call("sh", &["-c", &script])
}

/// Starts a program that goes on running; what it says goes into the logs.
fn daemon(name: &str, command: &mut Command) -> Result<Process> {
    Process::start(command, File::create(log_of(name))?)
}

fn log_of(name: &str) -> PathBuf {
    Path::new(LOGS).join(format!("{name}.out"))
}

fn wait_for(name: &str, look: impl FnMut() -> Result<()>) -> Result<()> {
    let answers = process::wait_for(PATIENCE, Duration::from_millis(100), look);
    answers.with_context(|| {
        let said = std::fs::read_to_string(log_of(name)).unwrap_or_default();
        format!("{name} does not answer: {said}")
    })
}
