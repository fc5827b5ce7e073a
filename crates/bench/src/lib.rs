//! Load generators for any NFS server, which check the promise behind each number.
//!
//! [`op::run`] keeps a closed loop of calls of one kind in flight (connections × depth) and
//! reports calls per second, latency and the server's CPU time per call; every reply is
//! checked, and what was written is read back. [`null_server`] answers everything with a canned
//! reply: the floor that sockets alone cost.
//!
//! [`storm::run`] sends damaged calls of every procedure and proves that the server survives.
//!
//! This crate must never link the server's crates.
#![forbid(unsafe_code)]

pub mod arguments;
mod drive;
mod error;
pub mod mix;
pub mod mountstorm;
pub mod nhfsstone;
pub mod null_server;
pub mod op;
pub mod pattern;
mod records;
mod replies;
pub mod server_cost;
mod setup;
pub mod storm;
mod text;
pub mod walk;

pub use drive::{Arrivals, CLIENTS_MAX, Control, DEPTH_MAX, KindReport, Latency, Pace};
pub use error::BenchError;
pub use setup::Target;
