//! How a client makes itself known and gets a session (RFC 8881 §18.35, §18.36).

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_wire::nfs4::{
    CallbackSec4, ChannelAttributes4, CreateSession4Args, ExchangeId4Args, StateProtect4,
};

use super::compound::{Compound, MINOR_VERSION};
use super::slots::Slots;

/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
const HAS_BACK_CHANNEL: u32 = 0x2;
/// Bytes that a request or reply has beside the data of one READ or WRITE.
const OVERHEAD_BYTES: u32 = 8192;
/// A program number for callbacks.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// Who a client is, and what session it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Tells it apart from all clients.
    pub owner: Vec<u8>,
    /// Another one for each run of the same owner.
    pub verifier: [u8; 8],
    /// Slots.
    pub slots: u32,
    /// Largest READ or WRITE, in bytes.
    pub transfer_bytes_max: u32,
    /// Largest reply that the server is to keep, in bytes.
    pub kept_bytes_max: u32,
    /// Most operations of a COMPOUND.
    pub operations_max: u32,
    /// Whether callbacks may come by the connection.
    pub wants_callbacks: bool,
    /// Minor version: 1, or 2 (RFC 7862).
    pub minor_version: u32,
}

impl Default for ClientSettings {
    /// A client that there was not before: 16 slots, 1 MiB, 16 operations.
    fn default() -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| now.as_nanos() as u64);
        let owner = format!("steadfast client {} {now_ns} {number}", std::process::id());
        Self {
            owner: owner.into_bytes(),
            verifier: now_ns.to_be_bytes(),
            slots: 16,
            transfer_bytes_max: 1 << 20,
            kept_bytes_max: 4096,
            operations_max: 16,
            wants_callbacks: false,
            minor_version: MINOR_VERSION,
        }
    }
}

impl ClientSettings {
    /// The arguments of `EXCHANGE_ID`: no pNFS, no protection of state.
    pub fn exchange_id(&self) -> ExchangeId4Args<'_> {
        ExchangeId4Args {
            verifier: self.verifier,
            ownerid: &self.owner,
            flags: 0,
            state_protect: StateProtect4::None,
            client_impl_id: Vec::new(),
        }
    }

    /// The arguments of `CREATE_SESSION`.
    pub fn create_session(&self, clientid: u64, sequence: u32) -> CreateSession4Args<'static> {
        let bytes_max = self.transfer_bytes_max.saturating_add(OVERHEAD_BYTES);
        CreateSession4Args {
            clientid,
            sequence,
            flags: if self.wants_callbacks { HAS_BACK_CHANNEL } else { 0 },
            fore: ChannelAttributes4 {
                headerpadsize: 0,
                maxrequestsize: bytes_max,
                maxresponsesize: bytes_max,
                maxresponsesize_cached: self.kept_bytes_max,
                maxoperations: self.operations_max,
                maxrequests: self.slots,
                rdma_ird: Vec::new(),
            },
            back: ChannelAttributes4 {
                headerpadsize: 0,
                maxrequestsize: 4096,
                maxresponsesize: 4096,
                maxresponsesize_cached: 0,
                maxoperations: 2,
                maxrequests: 1,
                rdma_ird: Vec::new(),
            },
            cb_program: CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSec4::None],
        }
    }
}

/// A session that a server has made.
#[derive(Debug)]
pub struct Session4 {
    /// The client's id.
    pub clientid: u64,
    /// What the server grants its requests.
    pub fore: ChannelAttributes4,
    /// Its slots.
    pub slots: Slots,
    /// Minor version of its requests.
    pub minor_version: u32,
}

impl Session4 {
    /// A request without operations yet.
    pub fn compound(&self) -> Compound {
        Compound::new().of_minor_version(self.minor_version)
    }
}
