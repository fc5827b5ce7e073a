//! Arguments and results of the operations that minor version 0 alone has (RFC 7530 §16.18, §16.31,
//! §16.33, §16.34, §16.37). Sessions took their place.

use super::OPAQUE_BYTES_MAX;
use super::operations::{LockOwner4, StateId4};
use crate::codec::structure;

/// Longest name of a kind of network (`netid`), in bytes; the RFC has no bound.
const NETID_BYTES_MAX: usize = 64;
/// Longest address in text (`uaddr`), in bytes; the RFC has no bound.
const ADDRESS_BYTES_MAX: usize = 256;

structure! {
    /// Where a client wants to be called back (`cb_client4`).
    #[derive(Copy)]
    pub struct CallbackClient4<'a> {
        /// Program of its callbacks.
        pub program: u32,
        /// Kind of network, as rpcbind calls it (`r_netid`).
        pub netid: &'a [u8]; max NETID_BYTES_MAX,
        /// Address and port, as rpcbind writes them (`r_addr`).
        pub address: &'a [u8]; max ADDRESS_BYTES_MAX,
    }
}

structure! {
    /// Arguments of SETCLIENTID.
    #[derive(Copy)]
    pub struct SetClientId4Args<'a> {
        /// One life of the client.
        pub verifier: [u8; 8],
        /// Which client.
        pub id: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// Where it wants to be called back.
        pub callback: CallbackClient4<'a>,
        /// What it will know its callbacks by.
        pub callback_ident: u32,
    }
}

structure! {
    /// Result of SETCLIENTID.
    #[derive(Copy)]
    pub struct SetClientId4Result {
        /// The client's id.
        pub clientid: u64,
        /// What `SETCLIENTID_CONFIRM` has to repeat.
        pub confirm: [u8; 8],
    }
}

structure! {
    /// What SETCLIENTID tells with `NFS4ERR_CLID_INUSE`: who uses the name (`clientaddr4`).
    #[derive(Copy)]
    pub struct ClientInUse4<'a> {
        /// Kind of network.
        pub netid: &'a [u8]; max NETID_BYTES_MAX,
        /// Address and port.
        pub address: &'a [u8]; max ADDRESS_BYTES_MAX,
    }
}

structure! {
    /// Arguments of `SETCLIENTID_CONFIRM`.
    #[derive(Copy)]
    pub struct SetClientIdConfirm4Args {
        /// The client's id.
        pub clientid: u64,
        /// What SETCLIENTID told.
        pub confirm: [u8; 8],
    }
}

structure! {
    /// Arguments of RENEW.
    #[derive(Copy)]
    pub struct Renew4Args {
        /// Whose lease.
        pub clientid: u64,
    }
}

structure! {
    /// Arguments of `OPEN_CONFIRM`.
    #[derive(Copy)]
    pub struct OpenConfirm4Args {
        /// The open.
        pub open_stateid: StateId4,
        /// Of its owner.
        pub seqid: u32,
    }
}

structure! {
    /// Arguments of `RELEASE_LOCKOWNER`.
    #[derive(Copy)]
    pub struct ReleaseLockOwner4Args<'a> {
        /// Who will lock nothing any more.
        pub lock_owner: LockOwner4<'a>,
    }
}
