//! Why a client that mounts does not get on.

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// No connection, or no reply, in time.
    TimedOut,
    /// The connection was refused, reset or closed.
    Connection(String),
    /// The server said no; trying again would not help.
    Refused(String),
    /// It said something that it must not say.
    Broken(String),
    /// Somebody stopped the storm.
    Interrupted,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Connection(what) | Self::Refused(what) | Self::Broken(what) => f.write_str(what),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
