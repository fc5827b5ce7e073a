//! What a check finds.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};

use crate::operation::{Number, ROOT};

/// What does not hold any more of what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broken {
    /// A name that was acknowledged is not there, or one removed is there again, or another object
    /// is behind it.
    Name,
    /// A handle is another, or does not work, or works though its object is gone.
    Handle,
    /// A file's bytes or size, or a link's target.
    Data,
    /// Mode, owner, times, link count.
    Attribute,
    /// A retransmission is answered otherwise.
    Reply,
    /// What was not acknowledged is there by halves.
    Half,
    /// The server, or the file system, does not start.
    Start,
    /// A local change, or the state of a disk, is undone.
    Reverted,
    /// Somebody may do more than was acknowledged.
    Access,
    /// A client of NFSv4 does not get back, or has not any more, what it had opened and locked.
    Reclaim,
    /// Somebody gets what only others may have, or a grace period does not end.
    Stranger,
}

impl Broken {
    pub(crate) const ALL: [Self; 11] = [
        Self::Name,
        Self::Handle,
        Self::Data,
        Self::Attribute,
        Self::Reply,
        Self::Half,
        Self::Start,
        Self::Reverted,
        Self::Access,
        Self::Reclaim,
        Self::Stranger,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name => "names",
            Self::Handle => "handles",
            Self::Data => "data",
            Self::Attribute => "attributes",
            Self::Reply => "replies",
            Self::Half => "halves",
            Self::Start => "starts",
            Self::Reverted => "reverted",
            Self::Access => "access",
            Self::Reclaim => "reclaims",
            Self::Stranger => "strangers",
        }
    }
}

impl FromStr for Broken {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|broken| broken.name() == text);
        known.with_context(|| {
            let names: Vec<_> = Self::ALL.iter().map(|broken| broken.name()).collect();
            format!("{text:?} is nothing that can be broken; there are {}", names.join(", "))
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) broken: Broken,
    /// The operation that was promised.
    pub(crate) operation: Option<Number>,
    /// The object that is not as was promised, if it is one.
    pub(crate) object: Option<Number>,
    /// Its names in the share.
    pub(crate) paths: Vec<PathBuf>,
    /// What was promised, and what is there.
    pub(crate) text: String,
}

impl Violation {
    /// One that is of no operation.
    pub(crate) fn of(broken: Broken, text: String) -> Self {
        Self { broken, operation: None, object: None, paths: Vec::new(), text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(ROOT) | None => write!(formatter, "{}: {}", self.broken.name(), self.text),
            Some(number) => write!(formatter, "{}: #{number} {}", self.broken.name(), self.text),
        }?;
        for path in &self.paths {
            // Long names are long by this alone.
            write!(formatter, ", at {}", path.display().to_string().replace("-long", ""))?;
        }
        Ok(())
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    /// Modification times that are not what the last reply told. No promise, but good to know.
    pub(crate) times_differ: usize,
    /// How much was compared.
    pub(crate) objects: usize,
    pub(crate) replies: usize,
    /// Calls that were under way at a crash and were sent again, and how many of them failed for their
    /// own success.
    pub(crate) in_flight: usize,
    pub(crate) false_answers: usize,
    /// Names in the share that replay made to keep something.
    pub(crate) asides: BTreeSet<Vec<u8>>,
    /// Violations that are none, as the server's log tells about what is kept.
    pub(crate) reported: usize,
    /// Local changes before a start that were looked at, and names that one took away and that are
    /// there again.
    pub(crate) gaps: usize,
    pub(crate) returned: usize,
    /// What clients of NFSv4 had.
    pub(crate) held: Held,
    /// Starts with a state directory or a data disk of an earlier moment.
    pub(crate) restored: usize,
}

/// What was found out about what clients of NFSv4 had opened and locked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Lives of clients that were recorded, or went on.
    pub(crate) lives: usize,
    /// Opens and locks that they got back, or had still.
    pub(crate) opens: usize,
    pub(crate) locks: usize,
    /// Stateids that were good in the sessions that went on after a kill.
    pub(crate) stateids: usize,
    /// Starts with nobody on record, that had no grace period.
    pub(crate) without_grace: usize,
    /// Attempts of others that were refused.
    pub(crate) refused: usize,
    /// Requests that were sent again in their slots.
    pub(crate) resent: usize,
    /// Exclusive creates that found their file again.
    pub(crate) exclusives: usize,
    /// How long the grace period lasted after the last client had all, in ms at the most.
    pub(crate) grace_ms_max: u64,
}

impl Held {
    pub(crate) fn add(&mut self, other: Self) {
        self.lives += other.lives;
        self.opens += other.opens;
        self.locks += other.locks;
        self.stateids += other.stateids;
        self.without_grace += other.without_grace;
        self.refused += other.refused;
        self.resent += other.resent;
        self.exclusives += other.exclusives;
        self.grace_ms_max = self.grace_ms_max.max(other.grace_ms_max);
    }
}

impl Findings {
    /// With what was found out before.
    pub(crate) fn absorb(&mut self, before: Self) {
        self.violations.extend(before.violations);
        self.in_flight += before.in_flight;
        self.false_answers += before.false_answers;
        self.held.add(before.held);
    }

    /// Whether something acknowledged is not there.
    pub(crate) fn has_loss(&self) -> bool {
        self.violations.iter().any(|violation| violation.broken != Broken::Half)
    }

    /// Whether something unacknowledged is there by halves.
    pub(crate) fn has_halves(&self) -> bool {
        self.violations.iter().any(|violation| violation.broken == Broken::Half)
    }
}
