//! What names a share in handles.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Names a share in handles: derived from its path or configured, the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareId(pub u64);

/// Fixed for ever: handles of clients contain ids made with it.
const KEY: (u64, u64) = (0x7374_6561_6466_6173, 0x7420_7368_6172_6573);

impl ShareId {
    /// The id of a share that has none configured: a hash of the path that clients mount, the
    /// same on every start and every host. Moving a share to another path changes it, and with
    /// it every handle; a configured id does not.
    pub fn of_path(path: &str) -> Self {
        let mut hasher = SipHasher13::new_with_keys(KEY.0, KEY.1);
        hasher.write(path.as_bytes());
        Self(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::ShareId;

    #[test]
    fn ids_never_change() {
        // Computed once; a change here would make every client's handles stale.
        assert_eq!(ShareId::of_path("/export"), ShareId(GOLDEN_EXPORT));
        assert_ne!(ShareId::of_path("/export"), ShareId::of_path("/export2"));
    }

    const GOLDEN_EXPORT: u64 = 15_107_701_991_791_229_662;
}
