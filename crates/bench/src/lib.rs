//! Load generators for any NFS server, which check the promise behind each number.
//!
//! Virtual clients, many on few threads, each with a connection and (on loopback) an address of
//! its own, make calls in a closed loop or at a held rate; every reply is checked, what was
//! written is read back, and reports have calls per second, latencies, the server's CPU time per
//! call and memory. [`op`] makes calls of one kind, [`nhfsstone`] a mix of them, [`stream`] reads and
//! writes large files, [`walk`] makes the calls of clients on a directory tree, [`mountstorm`] those
//! of clients that mount. [`clients`] and [`locks`] are what clients of NFSv4.1 hold: thousands of sessions and
//! locks, and one lock that many want. `preparing` makes what loads work on and looks at what they left, over the version of NFS
//! that is measured; `wire` and `nfs4` make calls of that version. [`null_server`]
//! answers everything with a canned reply: the floor that sockets alone cost.
//!
//! [`storm::run`] sends damaged calls of every procedure and proves that the server survives.
//!
//! This crate must never link the server's crates.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod clients;
mod drive;
mod error;
pub mod locks;
mod loopback;
pub mod mix;
pub mod mountstorm;
mod nfs4;
pub mod nhfsstone;
pub mod null_server;
pub mod op;
pub mod pattern;
mod place4;
mod preparing;
mod random;
mod records;
mod replies;
pub mod server_cost;
mod setup;
pub mod storm;
pub mod stream;
mod text;
mod version;
pub mod walk;
mod wire;

pub use drive::{
    Arrivals, CLIENTS_MAX, Control, DEPTH_MAX, KindReport, Latency, Pace, Transport, source_address,
};
pub use error::BenchError;
pub use setup::Target;
pub use version::NfsVersion;
