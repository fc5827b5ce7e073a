//! What the process must be before it serves.

use rustix::fs::Mode;
use rustix::io::Result;
use rustix::process::Resource;
use steadfast_sys::identity::{self, Capability};

/// What a process may do to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessPowers {
    /// Open by handle, read and search everything (`CAP_DAC_READ_SEARCH`).
    pub reads_everything: bool,
    /// Write everything (`CAP_DAC_OVERRIDE`).
    pub writes_everything: bool,
    /// Act under callers' identities (`CAP_SETUID` and `CAP_SETGID`).
    pub switches_identity: bool,
    /// Give files away (`CAP_CHOWN`).
    pub changes_owners: bool,
    /// Make device nodes (`CAP_MKNOD`).
    pub makes_devices: bool,
    /// Make private mounts of shares (`CAP_SYS_ADMIN`).
    pub mounts: bool,
    /// How many descriptors the process may have.
    pub descriptors_max: u64,
}

impl ProcessPowers {
    /// Whether callers other than the server's own user can be served.
    pub fn serves_all_users(&self) -> bool {
        self.reads_everything && self.writes_everything && self.switches_identity
    }
}

/// Prepares the process for serving files: a umask with which nobody else may write what the server
/// makes for itself, as many descriptors as may be had, and no `CAP_SYS_RESOURCE`, with which the kernel would ignore quotas and reserved blocks. To be
/// called once, before there are other threads, since capabilities are a thread's own.
///
/// # Errors
/// The system calls'; none is expected.
pub fn prepare_process() -> Result<ProcessPowers> {
    let others_write = Mode::WGRP | Mode::WOTH;
    let inherited = rustix::process::umask(others_write);
    rustix::process::umask(inherited | others_write);
    let (effective, _) = identity::capabilities()?;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if effective.has(Capability::SYS_RESOURCE) {
        let most = descriptors_per_process_max();
        limit.maximum = limit.maximum.map(|now| now.max(most));
    }
    limit.current = limit.maximum;
    if rustix::process::setrlimit(Resource::Nofile, limit).is_err() {
        limit = rustix::process::getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        rustix::process::setrlimit(Resource::Nofile, limit)?;
    }
    identity::set_effective(effective.without(Capability::SYS_RESOURCE))?;
    let (effective, _) = identity::capabilities()?;
    Ok(ProcessPowers {
        reads_everything: effective.has(Capability::DAC_READ_SEARCH),
        writes_everything: effective.has(Capability::DAC_OVERRIDE),
        switches_identity: effective.has(Capability::SETUID) && effective.has(Capability::SETGID),
        changes_owners: effective.has(Capability::CHOWN),
        makes_devices: effective.has(Capability::MKNOD),
        mounts: effective.has(Capability::SYS_ADMIN),
        descriptors_max: limit.current.unwrap_or(u64::MAX),
    })
}

/// The kernel's bound on one process's descriptors (`fs.nr_open`).
fn descriptors_per_process_max() -> u64 {
    std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1 << 20)
}
