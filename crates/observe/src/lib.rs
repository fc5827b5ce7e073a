//! Diagnosis of NFS servers and clients, ours and others'.
//!
//! [`capture`] makes NFS calls of captured packets, and tables of calls: [`capture::Dissector`],
//! [`capture::Tables`]. It does no I/O but for what its modules `live` and `file` say. [`watch`] is
//! the command that shows these tables. Nothing here knows how a Steadfast server works inside.
#![forbid(unsafe_code)]

pub mod capture;
pub mod watch;
