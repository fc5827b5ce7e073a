//! A guest: user-mode Linux, the real kernel as a process, with this machine's root as its own.
//!
//! Both sides talk through files in a directory that both see: the guest appends lines to `results`,
//! which [`Listener`] follows.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The kernel.
pub(crate) const PROGRAM: &str = "linux.uml";

/// Its network device, on the tap of this number. Without gro the guest drops every frame larger than the MTU.
pub(crate) fn network(tap: u32) -> String {
    format!("vec0:transport=tap,ifname=tap{tap},depth=128,gro=1")
}

/// The guest's processes; killed when dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    child: Child,
}

impl Guest {
    /// Boots one: `command` runs [`PROGRAM`] where the guest is to be, `init` is its process 1, and
    /// the console goes to `log`. What the kernel does not know of `words` it passes to process 1
    /// as environment.
    ///
    /// # Errors
    /// When the kernel cannot be run, or the log not be made.
    pub(crate) fn start(
        mut command: Command,
        label: &str,
        init: &Path,
        words: &[String],
        log: &Path,
    ) -> Result<Self> {
        let preloaded = log.with_extension("so");
        let log = File::create(log)?;
        if is_compiled(&preloaded) {
            command.env("LD_PRELOAD", &preloaded);
        }
        command
            .args(["mem=1G", "rootfstype=hostfs", "rootflags=/", "rw", "quiet"])
            .arg(format!("init={}", init.display()))
            .arg(format!("umid=steadfast-{}-{label}", std::process::id()))
            .args(["con=null", "con0=null,fd:1"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        Ok(Self { child: command.spawn().with_context(|| format!("cannot start {PROGRAM}"))? })
    }

    /// Calls `act` with each line of the guest until that has an outcome.
    ///
    /// # Errors
    /// Those of `act`; when the guest ends before, and after the limit.
    pub(crate) fn follow<T>(
        &mut self,
        listener: &mut Listener,
        limit: Duration,
        mut act: impl FnMut(&str) -> Result<Option<T>>,
    ) -> Result<T> {
        let started = Instant::now();
        loop {
            // Before its last lines are read.
            let has_ended = self.has_ended()?;
            for line in listener.lines()? {
                if let Some(outcome) = act(&line)? {
                    return Ok(outcome);
                }
            }
            if has_ended {
                bail!("the guest ended before it was done");
            }
            if started.elapsed() > limit {
                bail!("the guest is not done after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it was switched off, or died.
    pub(crate) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

/// Compiles what lets the kernel run where processors have more registers than it knows. It is not
/// needed on others, nor missed there without a compiler.
fn is_compiled(preloaded: &Path) -> bool {
    let source = preloaded.with_extension("c");
    let cc = || {
        Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([preloaded, &source])
            .arg("-ldl")
            .status()
    };
    let is_compiled = std::fs::write(&source, include_str!("uml/xstate.c")).is_ok()
        && cc().is_ok_and(|status| status.success());
    if !is_compiled {
        eprintln!("without a C compiler guests do not boot on processors with AMX: install gcc");
    }
    is_compiled
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The kernel and the processes that stand in for the guest's are one process group,
        // made by us; both may have ended already.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Follows the guest's `results` file.
#[derive(Debug)]
pub(crate) struct Listener {
    file: File,
    read: u64,
    rest: String,
}

impl Listener {
    /// Makes an empty `results` in the directory that both sides see.
    pub(crate) fn new(control: &Path) -> Result<Self> {
        let path = control.join("results");
        std::fs::write(&path, "")?;
        Ok(Self { file: File::open(path)?, read: 0, rest: String::new() })
    }

    /// The whole lines that came since the last call.
    pub(crate) fn lines(&mut self) -> Result<Vec<String>> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        self.read += bytes.len() as u64;
        self.rest.push_str(&String::from_utf8_lossy(&bytes));
        let Some(end) = self.rest.rfind('\n') else { return Ok(Vec::new()) };
        let rest = self.rest.split_off(end + 1);
        let lines = self.rest.lines().map(str::to_owned).collect();
        self.rest = rest;
        Ok(lines)
    }
}
