//! Invariants of the log, and of the records of clients, that can be broken on purpose, one at a time, so
//! that the power-cut rig can show that it notices (`cargo xtask powercut --mutations`).
//!
//! Only with the feature `powercut-mutations`, which no release has, and there only if the
//! environment asks for it. Otherwise [`is_on`] is a constant, and nothing of this is left.

/// Which invariant is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// Replies do not wait until their records are stable.
    EarlyReplies,
    /// A change takes its place in the log after the locks that order its object were released.
    LateOrder,
    /// Replay leaves records out.
    SkippedRecords,
    /// A checkpoint lets records go whose file system was not flushed.
    UnsyncedCheckpoints,
    /// Replies are not remembered over a crash.
    ForgottenReplies,
    /// The device of a log on ext4 without a journal is not flushed.
    UnflushedDevice,
    /// Records of clients of NFSv4 are not flushed before who depends on them is answered.
    UnflushedClients,
    /// It is not recorded that a client of NFSv4 has left, and others may have what it had.
    UnrecordedDepartures,
}

/// Whether this invariant is broken.
#[cfg(not(feature = "powercut-mutations"))]
pub(super) const fn is_on(_: Mutation) -> bool {
    false
}

#[cfg(feature = "powercut-mutations")]
pub(super) use chosen::{choose, is_on};

#[cfg(feature = "powercut-mutations")]
mod chosen {
    use std::sync::OnceLock;

    use super::Mutation;

    const VARIABLE: &str = "STEADFAST_MUTATION";
    const NAMES: &[(&str, Mutation)] = &[
        ("early-replies", Mutation::EarlyReplies),
        ("late-order", Mutation::LateOrder),
        ("skipped-records", Mutation::SkippedRecords),
        ("unsynced-checkpoints", Mutation::UnsyncedCheckpoints),
        ("forgotten-replies", Mutation::ForgottenReplies),
        ("unflushed-device", Mutation::UnflushedDevice),
        ("unflushed-clients", Mutation::UnflushedClients),
        ("unrecorded-departures", Mutation::UnrecordedDepartures),
    ];

    static CHOSEN: OnceLock<Mutation> = OnceLock::new();

    /// Whether this invariant is broken.
    pub(crate) fn is_on(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(&mutation)
    }

    /// Breaks what the environment asks for.
    ///
    /// # Errors
    /// When nothing has this name.
    pub(crate) fn choose() -> Result<(), String> {
        let Some(wanted) = std::env::var_os(VARIABLE) else { return Ok(()) };
        let Some((name, mutation)) = NAMES.iter().find(|(name, _)| wanted == *name) else {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "{VARIABLE} is {}; there are: {}",
                wanted.display(),
                names.join(", ")
            ));
        };
        tracing::error!(
            "{VARIABLE} is set: the server is broken on purpose ({name}), and what is acknowledged \
             will be lost"
        );
        // A process starts one log; another would be broken alike.
        let _ = CHOSEN.set(*mutation);
        Ok(())
    }
}
