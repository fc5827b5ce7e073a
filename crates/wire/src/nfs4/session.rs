//! Arguments of the operations about clients, sessions and stateids (RFC 8881 §18.33 to §18.51).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::OPAQUE_BYTES_MAX;
use super::attributes::Bitmap4;
use super::operations::StateId4;
use crate::codec::structure;
use crate::rpc::AuthSys;

/// Most algorithms, handles of GSS and flavours that one list may have; the RFC has no bound.
const LIST_MAX: usize = 64;
/// Most stateids of a `TEST_STATEID`.
const STATEIDS_MAX: usize = 4096;

structure! {
    /// Arguments of SEQUENCE.
    #[derive(Copy)]
    pub struct Sequence4Args {
        /// Of which session.
        pub sessionid: [u8; 16],
        /// Counts the slot's requests.
        pub sequenceid: u32,
        /// Which slot.
        pub slotid: u32,
        /// The highest slot that the client has in use.
        pub highest_slotid: u32,
        /// Whether the reply is to be kept.
        pub cachethis: bool,
    }
}

/// How a client's state is protected (`state_protect4_a`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateProtect4<'a> {
    /// Not.
    None,
    /// By the machine's credential: which operations must, and which may use it.
    MachCred(Bitmap4, Bitmap4),
    /// By a shared secret: the same, then what the secret is made of, undecoded in parts.
    Ssv {
        /// Operations that must use it.
        must: Bitmap4,
        /// Operations that may.
        may: Bitmap4,
        /// Algorithms of hashing.
        hashes: Vec<&'a [u8]>,
        /// Algorithms of encryption.
        ciphers: Vec<&'a [u8]>,
        /// Versions of the secret that are kept.
        window: u32,
        /// Handles of GSS wanted.
        handles: u32,
    },
}

impl<'a> Decode<'a> for StateProtect4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::None),
            1 => Ok(Self::MachCred(Decode::decode(r)?, Decode::decode(r)?)),
            2 => Ok(Self::Ssv {
                must: Decode::decode(r)?,
                may: Decode::decode(r)?,
                hashes: opaques(r)?,
                ciphers: opaques(r)?,
                window: r.u32()?,
                handles: r.u32()?,
            }),
            value => Err(XdrError::BadValue { what: "state_protect_how4", value }),
        }
    }
}

impl Encode for StateProtect4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => w.u32(0),
            Self::MachCred(must, may) => {
                w.u32(1);
                must.encode(w);
                may.encode(w);
            }
            Self::Ssv { must, may, hashes, ciphers, window, handles } => {
                w.u32(2);
                must.encode(w);
                may.encode(w);
                put_opaques(w, hashes);
                put_opaques(w, ciphers);
                w.u32(*window);
                w.u32(*handles);
            }
        }
    }
}

/// A counted array of opaque data.
pub(super) fn opaques<'a>(r: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, XdrError> {
    let length = r.u32()?;
    if length as usize > LIST_MAX {
        return Err(XdrError::TooLong { length, max: LIST_MAX as u32 });
    }
    (0..length).map(|_| r.opaque(OPAQUE_BYTES_MAX)).collect()
}

pub(super) fn put_opaques(w: &mut Writer<'_>, list: &[&[u8]]) {
    w.u32(list.len() as u32);
    for each in list {
        w.opaque(each);
    }
}

structure! {
    /// Which program somebody runs (`nfs_impl_id4`).
    #[derive(Copy)]
    pub struct ImplementationId4<'a> {
        /// Whose.
        pub domain: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// Its name and version.
        pub name: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// Seconds of its making.
        pub date_seconds: i64,
        /// And nanoseconds.
        pub date_nseconds: u32,
    }
}

structure! {
    /// Arguments of `EXCHANGE_ID`.
    pub struct ExchangeId4Args<'a> {
        /// Changes whenever the client begins anew.
        pub verifier: [u8; 8],
        /// Who the client is.
        pub ownerid: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// What it can and wants.
        pub flags: u32,
        /// How its state is to be protected.
        pub state_protect: StateProtect4<'a>,
        /// What it runs: at most one.
        pub client_impl_id: Vec<ImplementationId4<'a>>; max 1,
    }
}

structure! {
    /// What one channel of a session can (`channel_attrs4`).
    pub struct ChannelAttributes4 {
        /// Padding before the data of WRITEs.
        pub headerpadsize: u32,
        /// Largest request in bytes.
        pub maxrequestsize: u32,
        /// Largest reply in bytes.
        pub maxresponsesize: u32,
        /// Largest reply that is kept, in bytes.
        pub maxresponsesize_cached: u32,
        /// Most operations of a COMPOUND.
        pub maxoperations: u32,
        /// Most requests at once: slots.
        pub maxrequests: u32,
        /// Depths of RDMA: at most one.
        pub rdma_ird: Vec<u32>; max 1,
    }
}

/// By which credential the server may call back (`callback_sec_parms4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackSec4<'a> {
    /// By none.
    None,
    /// By `AUTH_SYS`.
    Sys(AuthSys<'a>),
    /// By a context of `RPCSEC_GSS`: the service, and the handles from server and client.
    Gss(u32, &'a [u8], &'a [u8]),
}

impl<'a> Decode<'a> for CallbackSec4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::None),
            1 => Decode::decode(r).map(Self::Sys),
            6 => Ok(Self::Gss(r.u32()?, r.opaque(OPAQUE_BYTES_MAX)?, r.opaque(OPAQUE_BYTES_MAX)?)),
            value => Err(XdrError::BadValue { what: "callback_sec_parms4", value }),
        }
    }
}

impl Encode for CallbackSec4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => w.u32(0),
            Self::Sys(sys) => {
                w.u32(1);
                sys.encode(w);
            }
            Self::Gss(service, from_server, from_client) => {
                w.u32(6);
                w.u32(*service);
                w.opaque(from_server);
                w.opaque(from_client);
            }
        }
    }
}

structure! {
    /// Arguments of `CREATE_SESSION`.
    pub struct CreateSession4Args<'a> {
        /// Of which client.
        pub clientid: u64,
        /// What `EXCHANGE_ID` said, and one more each time since.
        pub sequence: u32,
        /// What the client wants.
        pub flags: u32,
        /// The channel for its requests.
        pub fore: ChannelAttributes4,
        /// The channel for the server's.
        pub back: ChannelAttributes4,
        /// Program of its callbacks.
        pub cb_program: u32,
        /// By which credentials, in the order of preference.
        pub sec_parms: Vec<CallbackSec4<'a>>; max LIST_MAX,
    }
}

structure! {
    /// Arguments of `BACKCHANNEL_CTL`.
    pub struct BackchannelCtl4Args<'a> {
        /// Program of callbacks.
        pub cb_program: u32,
        /// By which credentials.
        pub sec_parms: Vec<CallbackSec4<'a>>; max LIST_MAX,
    }
}

structure! {
    /// Arguments of `BIND_CONN_TO_SESSION`.
    #[derive(Copy)]
    pub struct BindConnToSession4Args {
        /// Which session.
        pub sessionid: [u8; 16],
        /// For requests (1), callbacks (2), or both (3; 7 if it may be either).
        pub dir: u32,
        /// For RDMA.
        pub use_conn_in_rdma_mode: bool,
    }
}

structure! {
    /// Arguments of `DESTROY_SESSION`.
    #[derive(Copy)]
    pub struct DestroySession4Args {
        /// Which.
        pub sessionid: [u8; 16],
    }
}

structure! {
    /// Arguments of `DESTROY_CLIENTID`.
    #[derive(Copy)]
    pub struct DestroyClientId4Args {
        /// Which.
        pub clientid: u64,
    }
}

structure! {
    /// Arguments of `RECLAIM_COMPLETE`.
    #[derive(Copy)]
    pub struct ReclaimComplete4Args {
        /// Whether only of the current file system.
        pub one_fs: bool,
    }
}

structure! {
    /// Arguments of DELEGRETURN.
    #[derive(Copy)]
    pub struct DelegReturn4Args {
        /// The delegation.
        pub stateid: StateId4,
    }
}

structure! {
    /// Arguments of `FREE_STATEID`.
    #[derive(Copy)]
    pub struct FreeStateId4Args {
        /// Which.
        pub stateid: StateId4,
    }
}

structure! {
    /// Arguments of `TEST_STATEID`.
    pub struct TestStateId4Args {
        /// Which.
        pub stateids: Vec<StateId4>; max STATEIDS_MAX,
    }
}
