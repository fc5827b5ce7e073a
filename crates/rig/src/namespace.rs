//! A network namespace for one test run, and the janitor that leaves nothing behind.
//!
//! Everything a run starts or mounts is undone by a janitor: a shell in a process group of its
//! own that reads undo commands from a pipe and runs them, last first, when the pipe closes.
//! The pipe closes however this process ends (return, panic, Ctrl-C, `kill -9`), so no signal
//! handler is needed and none can be missed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::StatxAttributes;

/// The address of the server's side of every tap.
pub(crate) const SERVER_ADDRESS: &str = "10.77.0.1";
/// The same in IPv6.
const SERVER_ADDRESS_V6: &str = "fd77::1";
/// The address of the guest's side.
pub(crate) const GUEST_ADDRESS: &str = "10.77.0.2";

/// Runs undo commands when it is dropped or when this process dies.
#[derive(Debug)]
pub(crate) struct Janitor {
    shell: Child,
    commands: Option<ChildStdin>,
}

impl Janitor {
    /// Starts the shell.
    pub(crate) fn start() -> Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .arg("-c")
            .arg("trap '' INT TERM HUP; commands=$(tac); eval \"$commands\"")
            // Ctrl-C at a terminal goes to the whole foreground group: the janitor has to
            // outlive it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the clean-up shell")?;
        let commands = shell.stdin.take();
        Ok(Self { shell, commands })
    }

    /// Adds one line of shell, run before all lines that were added earlier.
    pub(crate) fn at_end(&mut self, command: &str) -> Result<()> {
        let Some(pipe) = self.commands.as_mut() else { bail!("the clean-up shell has ended") };
        writeln!(pipe, "{command}").context("the clean-up shell has died")
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.commands.take());
        // Nothing better can be done about a shell that cannot be waited for.
        let _ = self.shell.wait();
    }
}

/// Whether something is mounted at the root directory. In a plain chroot it is not so, and the kernel lets nobody
/// change there how mounts propagate: what a test mounts might be seen outside.
///
/// # Errors
/// When the root cannot be looked at.
pub fn root_is_a_mount() -> Result<bool> {
    let flags = rustix::fs::AtFlags::empty();
    let root = rustix::fs::statx(rustix::fs::CWD, "/", flags, rustix::fs::StatxFlags::TYPE)?;
    Ok(root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// A network namespace with one tap device, `tap0`, at [`SERVER_ADDRESS`]; nothing outside
/// reaches it.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
    has_own_mounts: bool,
}

impl Namespace {
    /// Makes the namespace, with a name unique to this process, and tells the janitor to kill
    /// what still runs in it and to remove it at the end.
    pub(crate) fn create(janitor: &mut Janitor) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root may make a network namespace and loop devices: run this as root");
        }
        let name = format!("steadfast-{}", std::process::id());
        janitor.at_end(&format!("ip netns del {name}"))?;
        janitor.at_end(&format!(
            "ip netns pids {name} | xargs -r kill -9; for i in 1 2 3 4 5 6 7 8 9 10; do \
             [ -z \"$(ip netns pids {name})\" ] && break; sleep 0.1; done"
        ))?;
        run("ip", &["netns", "add", &name])?;
        let file = format!("--net=/run/netns/{name}");
        let inside = |words: &[&str]| run("nsenter", &[&[&file, "ip"], words].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["tuntap", "add", "tap0", "mode", "tap"])?;
        let address = format!("{SERVER_ADDRESS}/24");
        inside(&["addr", "add", &address, "dev", "tap0"])?;
        inside(&["link", "set", "tap0", "up"])?;
        // A machine without IPv6 still runs everything else.
        let _ =
            inside(&["addr", "add", &format!("{SERVER_ADDRESS_V6}/64"), "dev", "tap0", "nodad"]);
        Ok(Self { name, has_own_mounts: root_is_a_mount()? })
    }

    /// Another tap, `tapN` for number N, for a guest with an address of its own, which is returned. The server has the same
    /// address for all guests.
    pub(crate) fn add_tap(&self, number: u32) -> Result<String> {
        let (file, tap) = (format!("--net=/run/netns/{}", self.name), format!("tap{number}"));
        let inside = |words: &[&str]| run("nsenter", &[&[&file, "ip"], words].concat());
        let guest = format!("10.77.0.{}", 2 + number);
        inside(&["tuntap", "add", &tap, "mode", "tap"])?;
        inside(&["addr", "add", SERVER_ADDRESS, "peer", &format!("{guest}/32"), "dev", &tap])?;
        inside(&["link", "set", &tap, "up"])?;
        Ok(guest)
    }

    /// Whether what is mounted by [`Namespace::command`]s is unseen outside.
    pub(crate) fn has_own_mounts(&self) -> bool {
        self.has_own_mounts
    }

    /// A command that will run inside: in this network, and where possible
    /// ([`Namespace::has_own_mounts`]) in a mount namespace that sees the machine's mounts but
    /// shows it none of its own.
    pub(crate) fn command(&self, program: &str) -> Command {
        if self.has_own_mounts {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.name, program]);
            return command;
        }
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/run/netns/{}", self.name), program]);
        command
    }

    /// Runs `work` on a thread inside the namespace; sockets that it opens belong there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                rustix::thread::move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&file),
                    Some(rustix::thread::LinkNameSpaceType::Network),
                )
                .context("cannot enter the network namespace")?;
                work()
            });
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Runs a command to its end and fails with what it said.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {}\n{}{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn call(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}\n{said}", arguments.join(" "), output.status);
    }
    Ok(())
}
