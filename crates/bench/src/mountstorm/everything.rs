//! Clients that mount every share, as automounters do: what one has been told and done, and the sum
//! of all.

use std::collections::BTreeMap;

use super::listing::Listing;

/// What a client that mounts every share has been told and done.
#[derive(Clone, Debug, Default)]
pub(super) struct Everything {
    /// The list while it is received.
    pub(super) listing: Option<Box<Listing>>,
    /// The shares that it mounts, and which of them is next.
    pub(super) shares: Option<Vec<u32>>,
    pub(super) next: usize,
    /// Shares of the list, and bytes of the reply.
    pub(super) told: (u64, u64),
    /// Mounts that were refused, by status.
    pub(super) refused: BTreeMap<u32, u64>,
}

impl Everything {
    /// The share that is mounted next.
    pub(super) fn share(&self) -> Option<u32> {
        self.shares.as_ref()?.get(self.next).copied()
    }

    /// How many shares it has mounted.
    pub(super) fn mounted(&self) -> u64 {
        self.next as u64 - self.refused.values().sum::<u64>()
    }
}

/// What clients were told and mounted that mount every share.
#[derive(Debug, Default)]
pub(super) struct EveryShareTally {
    /// Mounts that were made.
    pub(super) mounts: u64,
    /// Mounts that were refused, by status.
    pub(super) refused: BTreeMap<u32, u64>,
    /// Shares of the longest list.
    pub(super) shares_max: u64,
    /// Bytes of the longest reply to EXPORT.
    pub(super) bytes_max: u64,
}

impl EveryShareTally {
    pub(super) fn add(&mut self, other: &Self) {
        self.mounts += other.mounts;
        self.add_refused(&other.refused);
        self.shares_max = self.shares_max.max(other.shares_max);
        self.bytes_max = self.bytes_max.max(other.bytes_max);
    }

    /// A client is done.
    pub(super) fn add_client(&mut self, everything: &Everything) {
        self.mounts += everything.mounted();
        self.add_refused(&everything.refused);
        let (shares, bytes) = everything.told;
        self.shares_max = self.shares_max.max(shares);
        self.bytes_max = self.bytes_max.max(bytes);
    }

    fn add_refused(&mut self, refused: &BTreeMap<u32, u64>) {
        for (status, count) in refused {
            *self.refused.entry(*status).or_default() += count;
        }
    }
}
