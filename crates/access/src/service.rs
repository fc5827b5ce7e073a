//! Where answers come from.

use std::fmt;
use std::net::IpAddr;
use std::sync::Weak;

use crate::facts::{Fact, Source, Subject};

/// A name service. Asked by one thread, which it never holds up: what takes time is done
/// elsewhere, and answered later.
pub trait NameService: Send + Sync {
    /// Asks about a subject. Answered by the reply, from any thread; a reply that is let go
    /// without an answer is a failure.
    fn ask(&self, subject: &Subject, reply: Reply);

    /// Subjects about which files of this machine say something else than when this was last
    /// asked. Asked every few seconds.
    fn changed(&self) -> Vec<Subject> {
        Vec::new()
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl Family {
    /// Whether the address is one of it.
    pub const fn has(self, address: IpAddr) -> bool {
        matches!((self, address), (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_)))
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// None came in time.
    TimedOut,
    /// The name service said that it could not tell.
    Failed,
    /// It could not be asked.
    NotAsked,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no answer in time",
            Self::Failed => "the name service could not tell",
            Self::NotAsked => "the name service could not be asked",
        })
    }
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer.
    Found {
        /// What is so.
        fact: Fact,
        /// For how long, if the name service says so, in s.
        ttl_s: Option<u32>,
        /// Who says so.
        source: Source,
        /// A family of addresses about which nothing could be learnt.
        lacks: Option<Family>,
    },
    /// There is none.
    Absent {
        /// For how long, if the name service says so, in s.
        ttl_s: Option<u32>,
        /// Who says so.
        source: Source,
    },
    /// There is none, says somebody who would say so too if he could not know: what was known is
    /// believed a while longer.
    Missing {
        /// Who says so.
        source: Source,
    },
    /// No answer.
    Failed(Failure),
}

/// Takes an answer to where it is wanted.
pub struct Reply {
    subject: Option<Subject>,
    desk: Weak<dyn Desk>,
}

/// Where answers arrive.
pub(crate) trait Desk: Send + Sync {
    /// Takes an answer in.
    fn take(&self, subject: Subject, outcome: Outcome);
}

impl Reply {
    pub(crate) fn new(subject: Subject, desk: Weak<dyn Desk>) -> Self {
        Self { subject: Some(subject), desk }
    }

    /// Answers.
    pub fn send(mut self, outcome: Outcome) {
        self.deliver(outcome);
    }

    fn deliver(&mut self, outcome: Outcome) {
        if let Some((subject, desk)) = self.subject.take().zip(self.desk.upgrade()) {
            desk.take(subject, outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.deliver(Outcome::Failed(Failure::NotAsked));
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("subject", &self.subject).finish_non_exhaustive()
    }
}
