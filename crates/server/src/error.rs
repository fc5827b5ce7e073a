//! Why a server cannot start.

use std::io;

use steadfast_control::store::StoreError;
use steadfast_durability::StartIntentLogError;

/// Why a server cannot start, or its state not be looked after: in the operator's words, with the
/// next step.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel did not give what every server needs.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The state directory is not this server's to use.
    #[error("{0}")]
    StateDirectory(String),
    /// What is configured cannot be had on this machine.
    #[error("{0}")]
    Configuration(String),
    /// The intent log cannot be used, or not be done without.
    #[error("{0}")]
    IntentLog(String),
    /// The intent log cannot be opened, or not be replayed.
    #[error(transparent)]
    OpenIntentLog(#[from] StartIntentLogError),
    /// The shares of groups cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Clients cannot be served. Its text has its cause in it already.
    #[error("{0}")]
    Serve(steadfast_runtime::StartError),
    /// None of the shares can be served: why, one line a share.
    #[error("none of the shares can be served:\n{}", .0.join("\n"))]
    NoShare(Vec<String>),
}

/// Says what was tried when the kernel refused it.
pub(crate) trait Tried<T> {
    /// In these words.
    fn tried(self, what: &str) -> Result<T, StartError>;

    /// In words that take making.
    fn tried_with(self, what: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: &str) -> Result<T, StartError> {
        self.tried_with(|| what.to_owned())
    }

    fn tried_with(self, what: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|source| StartError::System { what: what(), source: source.into() })
    }
}
