//! What a mount tells of itself while it works, and its flush: `steadfast mount status` and `flush`.
//!
//! Each process of a mount counts (`counters.rs`), and listens at a Unix socket (`service`) whose place is known
//! from the kernel's list of mounts alone (`place`). It answers though its server is gone and the mount itself
//! hangs: whoever answers takes no lock that is held while something waits for the server or a disk. A question
//! and its answer are a line of JSON each (`document.rs`). [`status`] and [`flush`] ask; [`prometheus`] writes
//! answers as metrics, [`text`] as text for people.

mod client;
mod flushing;
mod gather;
mod place;
pub mod prometheus;
mod service;
pub mod text;

pub use crate::document::{
    CompressionStatus, ConnectionStatus, DataStatus, FlowStatus, Flushed, JournalStatus,
    LocksStatus, MountStatus, ProcedureStatus, RecoveriesStatus,
};
pub use client::{AskError, flush, status};
pub use place::{MountPoint, find, mount_points};

pub(crate) use gather::Subject;
pub(crate) use service::Service;
