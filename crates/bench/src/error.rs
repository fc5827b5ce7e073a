//! Why there is no report.

use std::path::PathBuf;

use steadfast_client::nfs4::Failure4;
use steadfast_client::{ClientError, NfsStat3};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Setting up or checking failed.
    #[error("{while_doing}: {error}")]
    Client {
        /// What was being done.
        while_doing: &'static str,
        /// What went wrong.
        error: ClientError,
    },
    /// A call in the loop failed.
    #[error("{operation}: the server answered {status:?}")]
    Failed {
        /// The kind of call.
        operation: String,
        /// The status.
        status: NfsStat3,
    },
    /// A request of NFSv4.1 in the loop failed.
    #[error("{operation}: {failure}")]
    FailedCompound {
        /// The kind of call.
        operation: String,
        /// What of it failed.
        failure: Box<Failure4>,
    },
    /// The server broke a promise.
    #[error("{operation}: the server broke its promise: {what}")]
    Broken {
        /// The kind of call.
        operation: String,
        /// Which promise.
        what: String,
    },
    /// The connection failed in the loop.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// A virtual client's connection failed.
    #[error("the connection of virtual client {client} failed: {error}")]
    Connection {
        /// Its number, from 0.
        client: usize,
        /// Why.
        error: std::io::Error,
    },
    /// A file could not be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A mix makes no sense.
    #[error("{place}: {error}")]
    Mix {
        /// Where it was read.
        place: String,
        /// What is wrong with it.
        error: crate::mix::MixError,
    },
    /// Not a kind of call.
    #[error("{asked:?} is not a kind of call: {kinds}")]
    Unknown {
        /// What was asked for.
        asked: String,
        /// The kinds that there are.
        kinds: &'static str,
    },
    /// What was asked for cannot be done.
    #[error("{0}")]
    Usage(String),
    /// More sockets than this process may have.
    #[error(
        "{needed} connections need more open files than this process may have ({limit}): raise \
         the limit (ulimit -n, or LimitNOFILE= of a unit)"
    )]
    Descriptors {
        /// Connections.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A client thread died.
    #[error("a client thread panicked")]
    Panicked,
    /// Nothing was measured: the names ran out, or no call ended in time.
    #[error("{operation}: no call ended while it was measured")]
    Nothing {
        /// The kind of call.
        operation: String,
    },
    /// Clients that were all refused, or got no answer.
    #[error("none of {clients} clients has mounted: the table says why they gave up")]
    NobodyMounted {
        /// How many tried.
        clients: usize,
    },
    /// Stopped before there was anything to report.
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn client(while_doing: &'static str) -> impl FnOnce(ClientError) -> Self {
        move |error| Self::Client { while_doing, error }
    }

    pub(crate) fn broken(operation: &str, what: impl Into<String>) -> Self {
        Self::Broken { operation: operation.to_owned(), what: what.into() }
    }
}
