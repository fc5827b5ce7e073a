//! How often each procedure was called.

use std::sync::atomic::{AtomicU32, Ordering};

use steadfast_wire::rpcbind::{
    STATISTICS_PROCEDURES as PROCEDURES, STATISTICS_VERSIONS as VERSIONS,
};

/// The first version of which calls are counted.
const FIRST_VERSION: u32 = 2;

/// How often each procedure of each version was called (GETSTAT). Numbers go on at 0 after the
/// highest.
#[derive(Debug, Default)]
pub(crate) struct CallCounts([[AtomicU32; PROCEDURES]; VERSIONS]);

impl CallCounts {
    pub(super) fn note(&self, version: u32, procedure: u32) {
        let of_version =
            version.checked_sub(FIRST_VERSION).and_then(|row| self.0.get(row as usize));
        if let Some(count) = of_version.and_then(|row| row.get(procedure as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Of each version, how often each procedure was called.
    pub(super) fn by_version(&self) -> impl Iterator<Item = [u32; PROCEDURES]> {
        self.0.iter().map(|version| version.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }
}
