//! Message types of ONC RPC, rpcbind, MOUNT, NFSv2, NFSv3, NFSv4, NFSACL, NLM, NSM and of the recovery program:
//! what is on the wire, field by field, under the names the RFCs give.
//!
//! Each type both reads ([`steadfast_xdr::Decode`], borrowing from the message) and writes
//! ([`steadfast_xdr::Encode`]) itself, from one declaration. Lengths have their bounds here and
//! are checked while reading. What a field means to a server is not this crate's business: it
//! must never know a file system, a share or a connection.
//!
//! [`frame`] has the one thing that is no field: data of files that READZ and WRITEZ of the recovery program carry
//! compressed.
//!
//! Results have types where somebody reads them: all but those of NFSv2. The server writes most results of NFSv3 and
//! NFSv4 straight from its storage's attributes.
#![forbid(unsafe_code)]

mod codec;
pub mod frame;
pub mod mount;
pub mod nfs2;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl;
pub mod nlm;
pub mod nsm;
pub mod recovery;
pub mod rpc;
pub mod rpcbind;

pub use codec::{List, ListReader, ListWriter};
