//! Keeping CPUs busy with what yields to everything else.
//!
//! Hosts of virtual machines take more time from a CPU the busier it and its neighbours are: on the one that
//! docs/performance.md was measured on, a thread that never sleeps loses 0.05 to 0.08 % of its time while the other
//! CPU is idle, and 0.4 to 1.5 %, in pauses of up to 8 ms, while that is busy too. A faster server is measured
//! at a higher rate, with busier CPUs: at the percentiles that such pauses reach, this is what would be
//! compared. So all CPUs are kept busy with either server.

use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::servers::Cpus;

/// A loop on each CPU, of the class that runs when nothing else wants to; ended by its process id
/// when dropped.
pub(super) struct BusyCpus(Vec<Child>);

impl BusyCpus {
    pub(super) fn start() -> Result<Self> {
        let mut all = Self(Vec::new());
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        for cpu in cpus {
            let child = Cpus::command(Some(&cpu.to_string()), Path::new("chrt"))
                .args(["--idle", "0", "sh", "-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("cannot run taskset and chrt")?;
            all.0.push(child);
        }
        Ok(all)
    }

    /// Ends them.
    ///
    /// # Errors
    /// If one had ended before, so that its CPU was not kept busy.
    pub(super) fn stop(mut self) -> Result<()> {
        for child in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                bail!("a loop that keeps a CPU busy ended with {status}");
            }
        }
        Ok(())
    }
}

impl Drop for BusyCpus {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
