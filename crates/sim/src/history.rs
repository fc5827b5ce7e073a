//! What has happened lately, and a digest of all that ever did.

use std::collections::VecDeque;

/// The history of a run.
#[derive(Debug)]
pub(crate) struct History {
    entries: VecDeque<String>,
    entries_max: usize,
    digest: u64,
}

impl History {
    /// An empty history that keeps so many entries for who reads of a failure.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries: VecDeque::new(), entries_max, digest: 0 }
    }

    /// Notes what happens at a time, in µs of the virtual clock.
    pub(crate) fn note(&mut self, now_us: u64, what: &str) {
        let entry = format!("{:>10}.{:06} s  {what}", now_us / 1_000_000, now_us % 1_000_000);
        for byte in entry.bytes() {
            // FNV-1a.
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Tells two runs apart.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn into_entries(self) -> Vec<String> {
        self.entries.into()
    }
}
