//! Results of operations (RFC 8881 §18), after their status.
//!
//! The server writes most of them straight from what it knows; these types are for who reads
//! them.

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::attributes::Bitmap4;
use super::operations::StateId4;
use super::session::{ChannelAttributes4, ImplementationId4, opaques, put_opaques};
use super::status::NfsStat4;
use super::{HANDLE_BYTES_MAX, OPAQUE_BYTES_MAX, TAG_BYTES_MAX};
use crate::codec::{numbers, structure};
use crate::nfs3::{DATA_BYTES_MAX, PATH_BYTES_MAX, StableHow};

/// Most flavours that SECINFO may tell; the RFC has no bound.
const FLAVOURS_MAX: usize = 64;
/// Most answers of `TEST_STATEID`.
const STATEIDS_MAX: usize = 4096;

structure! {
    /// What the reply of a COMPOUND begins with; the results of its operations follow.
    #[derive(Copy)]
    pub struct CompoundReplyHead4<'a> {
        /// The status of the last operation that was executed.
        pub status: NfsStat4,
        /// The tag of the call.
        pub tag: &'a [u8]; max TAG_BYTES_MAX,
        /// How many results follow.
        pub operations: u32,
    }
}

structure! {
    /// A directory before and after a change (`change_info4`).
    #[derive(Copy)]
    pub struct ChangeInfo4 {
        /// Whether nothing else changed between the two.
        pub atomic: bool,
        /// Change attribute before.
        pub before: u64,
        /// Change attribute after.
        pub after: u64,
    }
}

structure! {
    /// A time (`nfstime4`).
    #[derive(Copy)]
    pub struct NfsTime4 {
        /// Since 1970.
        pub seconds: i64,
        /// Of the second.
        pub nseconds: u32,
    }
}

numbers! {
    /// What kind of object (`nfs_ftype4`).
    pub enum FileType4, "nfs_ftype4" {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        BlockDevice = 3,
        /// A character device.
        CharacterDevice = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A socket's name.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
        /// A directory of named attributes.
        AttributeDirectory = 8,
        /// A named attribute.
        NamedAttribute = 9,
    }
}

structure! {
    /// An entry of an access control list (`nfsace4`).
    #[derive(Copy)]
    pub struct Ace4<'a> {
        /// Whether it allows, denies, or only logs.
        pub kind: u32,
        /// How it is inherited.
        pub flag: u32,
        /// Which rights.
        pub access_mask: u32,
        /// Whose.
        pub who: &'a [u8]; max OPAQUE_BYTES_MAX,
    }
}

structure! {
    /// Result of SEQUENCE.
    #[derive(Copy)]
    pub struct Sequence4Result {
        /// Of which session.
        pub sessionid: [u8; 16],
        /// The sequence id of the request.
        pub sequenceid: u32,
        /// Its slot.
        pub slotid: u32,
        /// The highest slot that the server has.
        pub highest_slotid: u32,
        /// The highest slot that the client should use.
        pub target_highest_slotid: u32,
        /// What became of the client's state and callbacks.
        pub status_flags: u32,
    }
}

/// How the server protects a client's state (`state_protect4_r`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateProtectResult4<'a> {
    /// Not.
    None,
    /// By the machine's credential: which operations must, and which may use it.
    MachCred(Bitmap4, Bitmap4),
    /// By a shared secret: the same, then what was chosen.
    Ssv {
        /// Operations that must use it.
        must: Bitmap4,
        /// Operations that may.
        may: Bitmap4,
        /// Which of the client's algorithms of hashing.
        hash: u32,
        /// Which of its algorithms of encryption.
        cipher: u32,
        /// Bytes of the secret.
        bytes: u32,
        /// Versions of the secret that are kept.
        window: u32,
        /// Handles of GSS.
        handles: Vec<&'a [u8]>,
    },
}

impl<'a> Decode<'a> for StateProtectResult4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::None),
            1 => Ok(Self::MachCred(Decode::decode(r)?, Decode::decode(r)?)),
            2 => Ok(Self::Ssv {
                must: Decode::decode(r)?,
                may: Decode::decode(r)?,
                hash: r.u32()?,
                cipher: r.u32()?,
                bytes: r.u32()?,
                window: r.u32()?,
                handles: opaques(r)?,
            }),
            value => Err(XdrError::BadValue { what: "state_protect_how4", value }),
        }
    }
}

impl Encode for StateProtectResult4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => w.u32(0),
            Self::MachCred(must, may) => {
                w.u32(1);
                must.encode(w);
                may.encode(w);
            }
            Self::Ssv { must, may, hash, cipher, bytes, window, handles } => {
                w.u32(2);
                must.encode(w);
                may.encode(w);
                for number in [hash, cipher, bytes, window] {
                    w.u32(*number);
                }
                put_opaques(w, handles);
            }
        }
    }
}

structure! {
    /// Result of `EXCHANGE_ID`.
    pub struct ExchangeId4Result<'a> {
        /// The client's id.
        pub clientid: u64,
        /// What its first `CREATE_SESSION` counts from.
        pub sequenceid: u32,
        /// What the server can, and whether it knows the client already.
        pub flags: u32,
        /// How the client's state is protected.
        pub state_protect: StateProtectResult4<'a>,
        /// Tells parts of one server apart.
        pub server_minor_id: u64,
        /// Which server it is.
        pub server_major_id: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// Where client ids of this server are good.
        pub server_scope: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// What it runs: at most one.
        pub server_impl_id: Vec<ImplementationId4<'a>>; max 1,
    }
}

structure! {
    /// Result of `CREATE_SESSION`.
    pub struct CreateSession4Result {
        /// The session's id.
        pub sessionid: [u8; 16],
        /// The sequence of the call.
        pub sequence: u32,
        /// What the session can.
        pub flags: u32,
        /// The channel for the client's requests.
        pub fore: ChannelAttributes4,
        /// The channel for the server's.
        pub back: ChannelAttributes4,
    }
}

structure! {
    /// Result of `BIND_CONN_TO_SESSION`.
    #[derive(Copy)]
    pub struct BindConnToSession4Result {
        /// Which session.
        pub sessionid: [u8; 16],
        /// For requests (1), callbacks (2), or both (3).
        pub dir: u32,
        /// For RDMA.
        pub use_conn_in_rdma_mode: bool,
    }
}

structure! {
    /// Result of ACCESS.
    #[derive(Copy)]
    pub struct Access4Result {
        /// Rights that the server can judge.
        pub supported: u32,
        /// Rights of these that the caller has.
        pub access: u32,
    }
}

/// By how much a file may grow under a write delegation (`nfs_space_limit4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit4 {
    /// To this size in bytes.
    Size(u64),
    /// By so many blocks, each of so many bytes.
    Blocks(u32, u32),
}

impl<'a> Decode<'a> for SpaceLimit4 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => r.u64().map(Self::Size),
            2 => Ok(Self::Blocks(r.u32()?, r.u32()?)),
            value => Err(XdrError::BadValue { what: "limit_by4", value }),
        }
    }
}

impl Encode for SpaceLimit4 {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Size(bytes) => {
                w.u32(1);
                w.u64(*bytes);
            }
            Self::Blocks(blocks, bytes) => {
                w.u32(2);
                w.u32(*blocks);
                w.u32(*bytes);
            }
        }
    }
}

/// What OPEN delegates (`open_delegation4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenDelegation4<'a> {
    /// Nothing.
    None,
    /// Reading.
    Read {
        /// The delegation.
        stateid: StateId4,
        /// Whether it is recalled at once.
        recall: bool,
        /// Who may open the file without the server.
        permissions: Ace4<'a>,
    },
    /// Reading and writing.
    Write {
        /// The delegation.
        stateid: StateId4,
        /// Whether it is recalled at once.
        recall: bool,
        /// By how much the file may grow.
        space_limit: SpaceLimit4,
        /// Who may open the file without the server.
        permissions: Ace4<'a>,
    },
    /// Nothing since others contend (1), or resources are short (2), and whether the server will
    /// tell when it could.
    NoneButTells(u32, bool),
    /// Nothing, for another reason (`why_no_delegation4`).
    NoneSince(u32),
}

impl<'a> Decode<'a> for OpenDelegation4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::None),
            1 => Ok(Self::Read {
                stateid: Decode::decode(r)?,
                recall: r.bool()?,
                permissions: Decode::decode(r)?,
            }),
            2 => Ok(Self::Write {
                stateid: Decode::decode(r)?,
                recall: r.bool()?,
                space_limit: Decode::decode(r)?,
                permissions: Decode::decode(r)?,
            }),
            3 => match r.u32()? {
                why @ (1 | 2) => Ok(Self::NoneButTells(why, r.bool()?)),
                why => Ok(Self::NoneSince(why)),
            },
            value => Err(XdrError::BadValue { what: "open_delegation_type4", value }),
        }
    }
}

impl Encode for OpenDelegation4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => w.u32(0),
            Self::Read { stateid, recall, permissions } => {
                w.u32(1);
                stateid.encode(w);
                w.bool(*recall);
                permissions.encode(w);
            }
            Self::Write { stateid, recall, space_limit, permissions } => {
                w.u32(2);
                stateid.encode(w);
                w.bool(*recall);
                space_limit.encode(w);
                permissions.encode(w);
            }
            Self::NoneButTells(why, tells) => {
                w.u32(3);
                w.u32(*why);
                w.bool(*tells);
            }
            Self::NoneSince(why) => {
                w.u32(3);
                w.u32(*why);
            }
        }
    }
}

structure! {
    /// Result of OPEN.
    #[derive(Copy)]
    pub struct Open4Result<'a> {
        /// The open.
        pub stateid: StateId4,
        /// The directory, before and after.
        pub cinfo: ChangeInfo4,
        /// What the client must know about it.
        pub rflags: u32,
        /// Attributes that were set.
        pub attrset: Bitmap4,
        /// What is delegated.
        pub delegation: OpenDelegation4<'a>,
    }
}

structure! {
    /// Result of READ.
    #[derive(Copy)]
    pub struct Read4Result<'a> {
        /// Whether the data reaches the end of the file.
        pub eof: bool,
        /// The data.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// Result of WRITE.
    #[derive(Copy)]
    pub struct Write4Result {
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: StableHow,
        /// Changes when unstable data may be lost.
        pub verifier: [u8; 8],
    }
}

structure! {
    /// Result of CREATE.
    #[derive(Copy)]
    pub struct Create4Result {
        /// The directory, before and after.
        pub cinfo: ChangeInfo4,
        /// Attributes that were set.
        pub attrset: Bitmap4,
    }
}

structure! {
    /// Result of RENAME.
    #[derive(Copy)]
    pub struct Rename4Result {
        /// The directory of the old name, before and after.
        pub source: ChangeInfo4,
        /// The directory of the new name.
        pub target: ChangeInfo4,
    }
}

structure! {
    /// Result of GETFH.
    #[derive(Copy)]
    pub struct GetFh4Result<'a> {
        /// The current object's handle.
        pub object: &'a [u8]; max HANDLE_BYTES_MAX,
    }
}

structure! {
    /// Result of READLINK.
    #[derive(Copy)]
    pub struct ReadLink4Result<'a> {
        /// Where the symbolic link points.
        pub link: &'a [u8]; max PATH_BYTES_MAX,
    }
}

/// A flavour of security (`secinfo4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecFlavour4<'a> {
    /// A mechanism of GSS, its quality of protection, and the service.
    Gss(&'a [u8], u32, u32),
    /// Another flavour of RPC, by its number.
    Other(u32),
}

/// The flavour `RPCSEC_GSS`.
const RPCSEC_GSS: u32 = 6;

impl<'a> Decode<'a> for SecFlavour4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            RPCSEC_GSS => Ok(Self::Gss(r.opaque(OPAQUE_BYTES_MAX)?, r.u32()?, r.u32()?)),
            flavour => Ok(Self::Other(flavour)),
        }
    }
}

impl Encode for SecFlavour4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Gss(mechanism, quality, service) => {
                w.u32(RPCSEC_GSS);
                w.opaque(mechanism);
                w.u32(*quality);
                w.u32(*service);
            }
            Self::Other(flavour) => w.u32(*flavour),
        }
    }
}

structure! {
    /// Result of SECINFO and `SECINFO_NO_NAME`.
    pub struct SecInfo4Result<'a> {
        /// The flavours, in the order of the server's preference.
        pub flavours: Vec<SecFlavour4<'a>>; max FLAVOURS_MAX,
    }
}

structure! {
    /// Result of `TEST_STATEID`.
    pub struct TestStateId4Result {
        /// What would become of each.
        pub status_codes: Vec<NfsStat4>; max STATEIDS_MAX,
    }
}
