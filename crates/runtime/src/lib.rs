//! Sockets, worker pools and flushers: what receives calls, drives the engine and sends replies.
//!
//! [`Server::start`] opens the sockets and starts the threads; [`Service`] is what it drives. A
//! call's way: a worker at a seat (`seat`, `worker`) serves whose turn it is (`turns`): it
//! receives once, splits records (`framing`) into a batch, executes its calls to completion
//! (`execution`) and sends all replies at once (`send_queue`, `connection`; `datagram` for UDP), or
//! one right after the other with those of who is next (`batched`). A call that may block lends the seat to
//! others meanwhile (`execution`, `pool`). A reply that must wait for stability goes to the file
//! system's flusher (`shared::flusher`), which sends it when it is due. What all this comes to is counted
//! by each thread for itself (`statistics`); an [`Observer`] reads it. Messages may be captured as they come and go
//! (`capture`).
//!
//! This crate must never look into a call or a reply: that is the engine's.
#![forbid(unsafe_code)]

mod accept;
mod batch;
mod batched;
mod blocked;
mod callbacks;
mod capture;
mod clock;
mod connection;
mod datagram;
mod execution;
mod framing;
mod listen;
mod living;
mod log_limit;
mod mailbox;
mod observer;
mod open_batches;
mod options;
mod pool;
mod seat;
mod send_queue;
mod server;
mod service;
mod shared;
mod statistics;
mod suspended;
mod turns;
mod worker;

pub use capture::{Capture, CaptureOptions, CaptureRuns, CapturedMessage, CapturedTimes};
pub use observer::Observer;
pub use options::{ServerOptions, StartError};
pub use server::Server;
pub use service::Service;
pub use shared::parked::{ParkedReply, ReplySender};
pub use shared::reply_log::{ReplyLog, ServerLink};
pub use statistics::{
    CallStage, CallSurroundings, CompoundStatistics, Latencies, LatencyBucket, LogActivity,
    OperationStatistics, RecordedCall, SlowCall, StageTimes, Statistics, TOP_FOCUS_MAX,
    TopOperation, TopRow, TopTable, TopTables, TopWindow,
};
