//! Runs the plan's cases one after the other, each in a process group of its own with a time
//! limit, so that one that hangs or dies takes nothing with it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cases;
use crate::context::Context;

/// Runs the cases of the plan and tells the host about each.
pub(crate) fn run(plan: &str) -> Result<()> {
    let context = Context::read(plan, "runner")?;
    std::fs::create_dir_all("/run/output")?;
    for name in context.cases() {
        context.tell(&format!("begin {name}"))?;
        let started = Instant::now();
        let result = run_one(name, plan, cases::limit(name, context.is_long())?);
        let seconds = format!("{:.2}", started.elapsed().as_secs_f64());
        context.tell(&match result {
            Ok(()) => format!("ok {name} {seconds}"),
            Err(error) => format!("FAIL {name} {seconds}: {error:#}"),
        })?;
        unmount_leftovers();
    }
    Ok(())
}

fn run_one(name: &str, plan: &str, limit: Duration) -> Result<()> {
    let path = format!("/run/output/{name}");
    let output = File::create(&path)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["case", name, plan])
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()?;
    let end = Instant::now() + limit;
    let group = rustix::process::Pid::from_child(&child);
    loop {
        if let Some(status) = child.try_wait()? {
            // Processes that a failed case left behind would disturb the next one.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            if status.success() {
                return Ok(());
            }
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let from = text.char_indices().rev().nth(1500).map_or(0, |(index, _)| index);
            let end = text.get(from..).unwrap_or("");
            anyhow::bail!("{}", end.trim());
        }
        if Instant::now() >= end {
            // The console log keeps where the client waits.
            let _ = std::fs::write("/proc/sysrq-trigger", "w");
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            anyhow::bail!("not done within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn unmount_leftovers() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for place in mounts.lines().filter_map(|line| line.split_whitespace().nth(1)) {
        if place.starts_with("/run/nfs/") {
            // Lazy: it may be in use by a process that cannot be killed.
            let _ = Command::new("umount").args(["-f", "-l", place]).status();
        }
    }
}
