//! RPC, NFSv3 and NFSv4.1 client, for tests and load generators.
//!
//! It speaks to any server: [`RpcConnection`] (TCP, pipelined) and [`RpcDatagram`] (UDP, with
//! losses and repetitions that a test steers) carry calls; [`Nfs3Client`] has the 22 procedures
//! of NFSv3 and those of NFSACL and of the recovery program as typed methods, [`mount`], [`rpcbind`] and [`nlm`] the protocols around
//! it. [`nfs4`] has COMPOUNDs by hand, and a client that opens, locks, reads and
//! changes files, and reclaims what a server has lost. [`CallTemplate`] is for who sends the same call a million times.
//!
//! Everything blocks, with time-outs. What a server can make this client hold is bounded: a
//! record by [`RECORD_BYTES_MAX`], replies that nobody asked for yet by [`UNCLAIMED_MAX`].
//!
//! This crate must never link the server's crates, so that what it measures and finds is true of
//! any server.
#![forbid(unsafe_code)]

mod call;
mod datagram;
mod error;
pub mod mount;
mod nfs3;
pub mod nfs4;
pub mod nfsacl;
pub mod nlm;
mod object;
mod operation4;
pub mod recovery;
mod reply;
pub mod reserved;
pub mod rpcbind;
mod stream;
mod transport;
mod unstable;

pub use call::{CallTemplate, Identity, Procedure, append_call, append_record};
pub use datagram::{Retransmission, RpcDatagram};
pub use error::{ClientError, Failure};
pub use nfs3::arguments::{self, Settings};
pub use nfs3::listing::Entries;
pub use nfs3::results::{
    Access, Commit, Entry, FileSystemInfo, FileSystemStatistics, Linked, Listing, Lookup, Made,
    PathConfiguration, Read, Renamed, SymlinkTarget, Write,
};
pub use nfs3::{NFS3, Nfs3Client, procedure};
pub use object::{Attributes, FileHandle, FileType, Time, Wcc, WccAttributes};
pub use recovery::RecoveryStatus;
pub use reply::{AcceptedError, Denial, Reply, ReplyBody, parse_reply};
pub use steadfast_wire::nfs3::{
    CreateHow3, DeviceData3, MknodData3, NfsStat3, NfsTime3, Sattr3, SetTime3, SpecData3, StableHow,
};
pub use stream::{RECORD_BYTES_MAX, RpcConnection, UNCLAIMED_MAX};
pub use transport::RpcTransport;
pub use unstable::UnstableWrites;
