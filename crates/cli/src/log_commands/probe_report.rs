//! What a probe of a device found, as JSON and for people.

use std::fmt::Write;

use serde::Serialize;
use steadfast_durability::Probe;

/// What a probe found.
#[derive(Serialize)]
pub(super) struct ProbeReport {
    version: u32,
    path: String,
    devices: Vec<DeviceReport>,
    /// Why it is memory, if it is.
    memory: Option<String>,
    is_direct: bool,
    sizes: Vec<SizeReport>,
    looks_power_safe: bool,
    verdict: String,
}

#[derive(Serialize)]
struct DeviceReport {
    name: String,
    has_volatile_cache: Option<bool>,
    has_fua: Option<bool>,
    is_rotational: Option<bool>,
    is_virtual: bool,
}

#[derive(Serialize)]
struct SizeReport {
    bytes: usize,
    writes: usize,
    stable_p50_ns: u64,
    stable_p99_ns: u64,
    plain_p50_ns: u64,
    plain_p99_ns: u64,
}

impl ProbeReport {
    pub(super) fn of(probed: &Probe) -> Self {
        let devices = probed.medium.devices.iter().map(|device| DeviceReport {
            name: device.name.clone(),
            has_volatile_cache: device.has_volatile_cache,
            has_fua: device.has_fua,
            is_rotational: device.is_rotational,
            is_virtual: device.is_virtual,
        });
        let sizes = probed.sizes.iter().map(|size| SizeReport {
            bytes: size.bytes,
            writes: size.stable.count(),
            stable_p50_ns: size.stable.percentile(50).as_nanos() as u64,
            stable_p99_ns: size.stable.percentile(99).as_nanos() as u64,
            plain_p50_ns: size.plain.percentile(50).as_nanos() as u64,
            plain_p99_ns: size.plain.percentile(99).as_nanos() as u64,
        });
        Self {
            version: 1,
            path: probed.path.display().to_string(),
            devices: devices.collect(),
            memory: probed.medium.memory.clone(),
            is_direct: probed.is_direct,
            sizes: sizes.collect(),
            looks_power_safe: probed.verdict.looks_power_safe(),
            verdict: probed.verdict.to_string(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}:", self.path);
        for device in &self.devices {
            text.push_str(&device.text());
        }
        if let Some(memory) = &self.memory {
            // Writing to a string cannot fail.
            let _ = write!(text, " on {memory}");
        }
        let _ = writeln!(
            text,
            "\n{:>9} {:>7} {:>14} {:>14} {:>14} {:>14}",
            "a write", "writes", "stable p50 µs", "stable p99 µs", "other p50 µs", "other p99 µs"
        );
        for size in &self.sizes {
            let us = |ns: u64| ns as f64 / 1e3;
            let _ = writeln!(
                text,
                "{:>5} KiB {:>7} {:>14.1} {:>14.1} {:>14.1} {:>14.1}",
                size.bytes >> 10,
                size.writes,
                us(size.stable_p50_ns),
                us(size.stable_p99_ns),
                us(size.plain_p50_ns),
                us(size.plain_p99_ns)
            );
        }
        if !self.is_direct {
            text.push_str(
                "(its file system cannot write around the page cache, so the others are that)\n",
            );
        }
        text + &self.verdict + "\n"
    }
}

impl DeviceReport {
    fn text(&self) -> String {
        let cache = match self.has_volatile_cache {
            Some(true) => "says that it has a volatile cache",
            Some(false) => "says that it has no volatile cache",
            None => "says nothing of its cache",
        };
        let fua = if self.has_fua == Some(true) { ", writes around it" } else { "" };
        let rotation = if self.is_rotational == Some(true) { ", rotates" } else { "" };
        let host = if self.is_virtual { ", virtual: as safe as its host makes it" } else { "" };
        format!(" on {} ({cache}{fua}{rotation}{host})", self.name)
    }
}
