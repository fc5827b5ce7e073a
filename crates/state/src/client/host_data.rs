//! What is known of a client that is a host and speaks NLM.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize, Ordering};

use super::Client;
use crate::FileKey;
use crate::image::Event;

/// Counts of grants that a host has.
const GRANT_COUNTS: usize = 64;

/// What is known of a host.
#[derive(Debug)]
pub(crate) struct HostData {
    name: Arc<[u8]>,
    address: IpAddr,
    /// The host's state number, as it said last; 0 if it never did.
    pub(crate) state: AtomicU32,
    pub(crate) is_recorded: AtomicBool,
    /// Calls that are about to give it something.
    pub(crate) users: AtomicUsize,
    ranges: AtomicIsize,
    /// How often an owner was granted something of a file, by a hash of both. Owners that share a count only
    /// keep what could be taken back.
    grants: [AtomicU32; GRANT_COUNTS],
}

impl HostData {
    pub(crate) fn new(name: Arc<[u8]>, address: IpAddr, state: u32) -> Self {
        Self {
            name,
            address,
            state: AtomicU32::new(state),
            is_recorded: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            ranges: AtomicIsize::new(0),
            grants: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    pub(crate) fn name(&self) -> &Arc<[u8]> {
        &self.name
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// How many ranges it holds.
    pub(crate) fn ranges(&self) -> usize {
        usize::try_from(self.ranges.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add_ranges(&self, growth: isize) {
        self.ranges.fetch_add(growth, Ordering::Relaxed);
    }

    /// How often an owner was granted something of a file: of its name, or of the owner of its reservation.
    pub(crate) fn grants(&self, owner: &[u8], file: &FileKey) -> &AtomicU32 {
        let mut hasher = DefaultHasher::new();
        (owner, file).hash(&mut hasher);
        let [first, ..] = &self.grants;
        self.grants.get(hasher.finish() as usize % GRANT_COUNTS).unwrap_or(first)
    }

    /// Notes the host as it is.
    pub(crate) fn note(&self, client: &Client) {
        client.journal.note(&Event::Host {
            id: client.id(),
            name: &self.name,
            address: self.address,
            state: self.state.load(Ordering::Relaxed),
        });
    }

    /// Takes the host's state number; whether it is newer than what was known.
    pub(crate) fn take_state(&self, state: u32) -> bool {
        let is_newer = |known: u32| state.wrapping_sub(known).cast_signed() > 0;
        let taken = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| {
            (known == 0 || is_newer(known)).then_some(state)
        });
        taken.is_ok()
    }
}
