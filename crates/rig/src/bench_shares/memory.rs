//! What a share takes of a server's memory: when it is ready, while clients use it, and when they
//! have not for a while.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Site;
use super::server::{Home, Running};

/// Shares that are mounted at the most: each takes a few descriptors, of which a shell may have few.
const MOUNTED_MAX: usize = 3000;
/// After so long a share is idle here: mounting so many takes less.
const IDLE: Duration = Duration::from_secs(4);
/// How long it may take until what they had open is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server with so many shares had to itself, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) shares: usize,
    /// When all were ready, and one had been mounted: what the first call takes (buffers of its
    /// connection, counters) is no share's.
    pub(super) ready: u64,
    /// When several were in use.
    pub(super) in_use: u64,
    /// When these had not been used for a while.
    pub(super) idle: u64,
}

impl Memory {
    /// How many were in use.
    pub(super) fn used(&self) -> usize {
        self.shares.min(MOUNTED_MAX)
    }

    /// Measures a server with so many shares.
    pub(super) fn measure(site: &Site<'_>, shares: usize) -> Result<Self> {
        let home = Home::make(&site.home(), &site.farm, shares)?;
        home.add_server(&format!("share_idle_s = {}", IDLE.as_secs()))?;
        // The first start makes what every later one finds.
        Running::start(&home, &site.cpus, &site.farm, shares)?.0.stop()?;
        let (running, _) = Running::start(&home, &site.cpus, &site.farm, shares)?;
        let mut mounter = running.probe.mounter()?;
        let mut mount = |share: usize| {
            let path = site.farm.path(share);
            mounter.mount(&path)?.with_context(|| format!("{path} cannot be mounted"))
        };
        mount(0)?;
        let mut memory = Self { shares, ready: running.memory()?, ..Self::default() };
        let before = running.descriptors()?;
        for share in 1..memory.used() {
            mount(share)?;
        }
        memory.in_use = running.memory()?;
        let begun = Instant::now();
        while running.descriptors()? > before {
            if begun.elapsed() > PATIENCE {
                bail!("shares that nobody uses stay open");
            }
            std::thread::sleep(IDLE / 4);
        }
        // What is free is given back just after that.
        std::thread::sleep(IDLE / 4);
        memory.idle = running.memory()?;
        running.stop()?;
        Ok(memory)
    }
}
