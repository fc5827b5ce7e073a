//! NFS calls from captured packets.
//!
//! ```text
//! packet      link headers, IPv4, IPv6, extension headers
//! fragments   IP fragments of datagrams
//! stream      the order of TCP segments, gaps
//! record      RPC records in a stream, and how they are found again after a gap
//! messages    what a call and its reply say; compound: the operations of NFSv4
//! connection  a conversation: calls that wait for replies
//! dissector   all conversations
//! tables      what is counted of the calls
//! contents    what of a message is content of files
//! ```
//!
//! All of that is values: bytes and times go in, calls come out ([`Dissector`], [`Observer`], [`Observed`]).
//! Every length, list and wait is bounded, since whoever can send packets decides what is in them.

mod compound;
mod connection;
mod contents;
mod counts;
mod dissector;
pub mod file;
mod filter;
mod fragments;
mod handle;
mod histogram;
pub mod live;
mod messages;
mod packet;
pub(crate) mod programs;
mod record;
mod stream;
mod tables;
#[cfg(test)]
pub(crate) mod testing;

pub use connection::{Observed, Observer, REPLY_WAIT_NS};
pub use contents::{Executed, Limited, Limiter, Message};
pub use counts::Counts;
pub use dissector::{DEFAULT_PORTS, Dissector};
pub use handle::{Handle, Names};
pub use histogram::Histogram;
pub use messages::{Status, User};
pub use packet::{LinkType, Packet, is_loopback_copy};
pub use programs::{OperationKey, is_operation};
pub use tables::{By, Key, Row, Table, Tables};

#[cfg(test)]
mod dissector_tests;
