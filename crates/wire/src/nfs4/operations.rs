//! The head of a COMPOUND, the numbers of operations, and the arguments of those that work on
//! objects (RFC 8881 §16, §18).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::attributes::{Bitmap4, Fattr4};
use super::{HANDLE_BYTES_MAX, NAME_BYTES_MAX, OPAQUE_BYTES_MAX, TAG_BYTES_MAX};
use crate::codec::{numbers, structure};
use crate::nfs3::{DATA_BYTES_MAX, PATH_BYTES_MAX, StableHow};

structure! {
    /// What a COMPOUND begins with; its operations follow.
    #[derive(Copy)]
    pub struct CompoundHead4<'a> {
        /// Text of the client's choice, which the reply has too.
        pub tag: &'a [u8]; max TAG_BYTES_MAX,
        /// Minor version.
        pub minorversion: u32,
        /// How many operations follow.
        pub operations: u32,
    }
}

numbers! {
    /// Number of an operation (`nfs_opnum4`; RFC 8881 §16.2, RFC 7862 §15, RFC 8276 §8.4).
    pub enum Op4, "nfs_opnum4" {
        /// ACCESS.
        Access = 3,
        /// CLOSE.
        Close = 4,
        /// COMMIT.
        Commit = 5,
        /// CREATE.
        Create = 6,
        /// DELEGPURGE.
        DelegPurge = 7,
        /// DELEGRETURN.
        DelegReturn = 8,
        /// GETATTR.
        GetAttr = 9,
        /// GETFH.
        GetFh = 10,
        /// LINK.
        Link = 11,
        /// LOCK.
        Lock = 12,
        /// LOCKT.
        LockT = 13,
        /// LOCKU.
        LockU = 14,
        /// LOOKUP.
        Lookup = 15,
        /// LOOKUPP.
        LookupP = 16,
        /// NVERIFY.
        NVerify = 17,
        /// OPEN.
        Open = 18,
        /// OPENATTR.
        OpenAttr = 19,
        /// `OPEN_CONFIRM`: minor version 0 alone.
        OpenConfirm = 20,
        /// `OPEN_DOWNGRADE`.
        OpenDowngrade = 21,
        /// PUTFH.
        PutFh = 22,
        /// PUTPUBFH.
        PutPubFh = 23,
        /// PUTROOTFH.
        PutRootFh = 24,
        /// READ.
        Read = 25,
        /// READDIR.
        ReadDir = 26,
        /// READLINK.
        ReadLink = 27,
        /// REMOVE.
        Remove = 28,
        /// RENAME.
        Rename = 29,
        /// RENEW: minor version 0 alone.
        Renew = 30,
        /// RESTOREFH.
        RestoreFh = 31,
        /// SAVEFH.
        SaveFh = 32,
        /// SECINFO.
        SecInfo = 33,
        /// SETATTR.
        SetAttr = 34,
        /// SETCLIENTID: minor version 0 alone.
        SetClientId = 35,
        /// `SETCLIENTID_CONFIRM`: minor version 0 alone.
        SetClientIdConfirm = 36,
        /// VERIFY.
        Verify = 37,
        /// WRITE.
        Write = 38,
        /// `RELEASE_LOCKOWNER`: minor version 0 alone.
        ReleaseLockOwner = 39,
        /// `BACKCHANNEL_CTL`.
        BackchannelCtl = 40,
        /// `BIND_CONN_TO_SESSION`.
        BindConnToSession = 41,
        /// `EXCHANGE_ID`.
        ExchangeId = 42,
        /// `CREATE_SESSION`.
        CreateSession = 43,
        /// `DESTROY_SESSION`.
        DestroySession = 44,
        /// `FREE_STATEID`.
        FreeStateId = 45,
        /// `GET_DIR_DELEGATION`.
        GetDirDelegation = 46,
        /// GETDEVICEINFO.
        GetDeviceInfo = 47,
        /// GETDEVICELIST.
        GetDeviceList = 48,
        /// LAYOUTCOMMIT.
        LayoutCommit = 49,
        /// LAYOUTGET.
        LayoutGet = 50,
        /// LAYOUTRETURN.
        LayoutReturn = 51,
        /// `SECINFO_NO_NAME`.
        SecInfoNoName = 52,
        /// SEQUENCE.
        Sequence = 53,
        /// `SET_SSV`.
        SetSsv = 54,
        /// `TEST_STATEID`.
        TestStateId = 55,
        /// `WANT_DELEGATION`.
        WantDelegation = 56,
        /// `DESTROY_CLIENTID`.
        DestroyClientId = 57,
        /// `RECLAIM_COMPLETE`.
        ReclaimComplete = 58,
        /// ALLOCATE.
        Allocate = 59,
        /// COPY.
        Copy = 60,
        /// `COPY_NOTIFY`.
        CopyNotify = 61,
        /// DEALLOCATE.
        Deallocate = 62,
        /// `IO_ADVISE`.
        IoAdvise = 63,
        /// LAYOUTERROR.
        LayoutError = 64,
        /// LAYOUTSTATS.
        LayoutStats = 65,
        /// `OFFLOAD_CANCEL`.
        OffloadCancel = 66,
        /// `OFFLOAD_STATUS`.
        OffloadStatus = 67,
        /// `READ_PLUS`.
        ReadPlus = 68,
        /// SEEK.
        Seek = 69,
        /// `WRITE_SAME`.
        WriteSame = 70,
        /// CLONE.
        Clone = 71,
        /// GETXATTR.
        GetXattr = 72,
        /// SETXATTR.
        SetXattr = 73,
        /// LISTXATTRS.
        ListXattrs = 74,
        /// REMOVEXATTR.
        RemoveXattr = 75,
        /// What is no operation.
        Illegal = 10044,
    }
}

structure! {
    /// What a server calls a piece of a client's state (`stateid4`).
    #[derive(Copy)]
    pub struct StateId4 {
        /// Counts the changes of that state.
        pub seqid: u32,
        /// Which.
        pub other: [u8; 12],
    }
}

structure! {
    /// Arguments of ACCESS.
    #[derive(Copy)]
    pub struct Access4Args {
        /// What the caller wants to do.
        pub access: u32,
    }
}

structure! {
    /// Arguments of CLOSE.
    #[derive(Copy)]
    pub struct Close4Args {
        /// Of minor version 0; ignored since.
        pub seqid: u32,
        /// What to close.
        pub open_stateid: StateId4,
    }
}

structure! {
    /// Arguments of GETATTR.
    #[derive(Copy)]
    pub struct GetAttr4Args {
        /// Which attributes.
        pub attr_request: Bitmap4,
    }
}

structure! {
    /// Arguments of LOOKUP.
    #[derive(Copy)]
    pub struct Lookup4Args<'a> {
        /// The name.
        pub objname: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Arguments of VERIFY and NVERIFY.
    #[derive(Copy)]
    pub struct Verify4Args<'a> {
        /// What the object's attributes are compared with.
        pub obj_attributes: Fattr4<'a>,
    }
}

structure! {
    /// Arguments of PUTFH.
    #[derive(Copy)]
    pub struct PutFh4Args<'a> {
        /// The handle.
        pub object: &'a [u8]; max HANDLE_BYTES_MAX,
    }
}

structure! {
    /// Arguments of READ.
    #[derive(Copy)]
    pub struct Read4Args {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes.
        pub count: u32,
    }
}

structure! {
    /// Arguments of READDIR.
    #[derive(Copy)]
    pub struct ReadDir4Args {
        /// Where to go on; 0 from the start.
        pub cookie: u64,
        /// What came with the cookie.
        pub cookieverf: [u8; 8],
        /// Most bytes of names and cookies: a hint.
        pub dircount: u32,
        /// Most bytes of the result.
        pub maxcount: u32,
        /// Which attributes of each entry.
        pub attr_request: Bitmap4,
    }
}

structure! {
    /// Arguments of SECINFO.
    #[derive(Copy)]
    pub struct SecInfo4Args<'a> {
        /// A name in the current directory.
        pub name: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Arguments of `SECINFO_NO_NAME`.
    #[derive(Copy)]
    pub struct SecInfoNoName4Args {
        /// 0 for the current object, 1 for its parent.
        pub style: u32,
    }
}

structure! {
    /// Arguments of `OPEN_DOWNGRADE`.
    #[derive(Copy)]
    pub struct OpenDowngrade4Args {
        /// Of which open.
        pub open_stateid: StateId4,
        /// Of minor version 0; ignored since.
        pub seqid: u32,
        /// What is left of it.
        pub share_access: u32,
        /// What is left of what it denies to others.
        pub share_deny: u32,
    }
}

structure! {
    /// Arguments of SETATTR.
    #[derive(Copy)]
    pub struct SetAttr4Args<'a> {
        /// By which open, if the size is set.
        pub stateid: StateId4,
        /// What to set.
        pub obj_attributes: Fattr4<'a>,
    }
}

structure! {
    /// Arguments of WRITE.
    #[derive(Copy)]
    pub struct Write4Args<'a> {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How stable the data is to be.
        pub stable: StableHow,
        /// The data.
        pub data: &'a [u8]; max DATA_BYTES_MAX,
    }
}

structure! {
    /// Arguments of COMMIT.
    #[derive(Copy)]
    pub struct Commit4Args {
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes; 0 to the end.
        pub count: u32,
    }
}

structure! {
    /// Who has a lock (`lock_owner4`).
    #[derive(Copy)]
    pub struct LockOwner4<'a> {
        /// The owner's client; ignored since minor version 1.
        pub clientid: u64,
        /// Which owner of it.
        pub owner: &'a [u8]; max OPAQUE_BYTES_MAX,
    }
}

numbers! {
    /// Kind of a lock (`nfs_lock_type4`).
    pub enum LockType4, "nfs_lock_type4" {
        /// Others may read.
        Read = 1,
        /// Nobody else.
        Write = 2,
        /// As `Read`, and the client waits for it.
        ReadWaiting = 3,
        /// As `Write`, and the client waits for it.
        WriteWaiting = 4,
    }
}

/// By what a lock is asked for (`locker4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker4<'a> {
    /// By an open, for an owner that has no locks in the file yet; sequence ids are of minor version
    /// 0, and ignored since.
    Open {
        /// Of the open's owner.
        open_seqid: u32,
        /// The open.
        open_stateid: StateId4,
        /// Of the lock's owner.
        lock_seqid: u32,
        /// The lock's owner.
        lock_owner: LockOwner4<'a>,
    },
    /// By the stateid of an owner's locks in the file.
    Lock {
        /// Its stateid.
        lock_stateid: StateId4,
        /// Of the lock's owner.
        lock_seqid: u32,
    },
}

impl<'a> Decode<'a> for Locker4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        if r.bool()? {
            Ok(Self::Open {
                open_seqid: r.u32()?,
                open_stateid: Decode::decode(r)?,
                lock_seqid: r.u32()?,
                lock_owner: Decode::decode(r)?,
            })
        } else {
            Ok(Self::Lock { lock_stateid: Decode::decode(r)?, lock_seqid: r.u32()? })
        }
    }
}

impl Encode for Locker4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Open { open_seqid, open_stateid, lock_seqid, lock_owner } => {
                w.bool(true);
                w.u32(*open_seqid);
                open_stateid.encode(w);
                w.u32(*lock_seqid);
                lock_owner.encode(w);
            }
            Self::Lock { lock_stateid, lock_seqid } => {
                w.bool(false);
                lock_stateid.encode(w);
                w.u32(*lock_seqid);
            }
        }
    }
}

structure! {
    /// Arguments of LOCK.
    #[derive(Copy)]
    pub struct Lock4Args<'a> {
        /// Kind of the lock.
        pub locktype: LockType4,
        /// Whether it was held before the server lost what it knew.
        pub reclaim: bool,
        /// Where it begins, in bytes.
        pub offset: u64,
        /// How many bytes; all ones to the end.
        pub length: u64,
        /// By what it is asked for.
        pub locker: Locker4<'a>,
    }
}

structure! {
    /// Arguments of LOCKT.
    #[derive(Copy)]
    pub struct LockT4Args<'a> {
        /// Kind of the lock.
        pub locktype: LockType4,
        /// Where it begins, in bytes.
        pub offset: u64,
        /// How many bytes; all ones to the end.
        pub length: u64,
        /// Who would have it.
        pub owner: LockOwner4<'a>,
    }
}

structure! {
    /// Arguments of LOCKU.
    #[derive(Copy)]
    pub struct LockU4Args {
        /// Kind of the lock.
        pub locktype: LockType4,
        /// Of minor version 0; ignored since.
        pub seqid: u32,
        /// The stateid of an owner's locks in the file.
        pub lock_stateid: StateId4,
        /// Where it begins, in bytes.
        pub offset: u64,
        /// How many bytes; all ones to the end.
        pub length: u64,
    }
}

structure! {
    /// Why LOCK and LOCKT are denied (`LOCK4denied`): a lock of somebody else's.
    #[derive(Copy)]
    pub struct LockDenied4<'a> {
        /// Where it begins, in bytes.
        pub offset: u64,
        /// How many bytes; all ones to the end.
        pub length: u64,
        /// Its kind.
        pub locktype: LockType4,
        /// Who has it.
        pub owner: LockOwner4<'a>,
    }
}

/// What CREATE makes (`createtype4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateType4<'a> {
    /// A symbolic link with this target.
    Link(&'a [u8]),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A character device.
    CharacterDevice(u32, u32),
    /// A socket's name.
    Socket,
    /// A named pipe.
    Fifo,
    /// A directory.
    Directory,
    /// A type that CREATE does not make, by its number.
    Other(u32),
}

impl<'a> Decode<'a> for CreateType4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            2 => Ok(Self::Directory),
            3 => Ok(Self::BlockDevice(r.u32()?, r.u32()?)),
            4 => Ok(Self::CharacterDevice(r.u32()?, r.u32()?)),
            5 => r.opaque(PATH_BYTES_MAX).map(Self::Link),
            6 => Ok(Self::Socket),
            7 => Ok(Self::Fifo),
            other => Ok(Self::Other(other)),
        }
    }
}

impl Encode for CreateType4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Directory => w.u32(2),
            Self::BlockDevice(major, minor) => {
                w.u32(3);
                w.u32(*major);
                w.u32(*minor);
            }
            Self::CharacterDevice(major, minor) => {
                w.u32(4);
                w.u32(*major);
                w.u32(*minor);
            }
            Self::Link(target) => {
                w.u32(5);
                w.opaque(target);
            }
            Self::Socket => w.u32(6),
            Self::Fifo => w.u32(7),
            Self::Other(other) => w.u32(*other),
        }
    }
}

structure! {
    /// Arguments of CREATE.
    #[derive(Copy)]
    pub struct Create4Args<'a> {
        /// What to make.
        pub objtype: CreateType4<'a>,
        /// Its name in the current directory.
        pub objname: &'a [u8]; max NAME_BYTES_MAX,
        /// Its attributes.
        pub createattrs: Fattr4<'a>,
    }
}

structure! {
    /// Arguments of REMOVE.
    #[derive(Copy)]
    pub struct Remove4Args<'a> {
        /// A name in the current directory.
        pub target: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Arguments of RENAME.
    #[derive(Copy)]
    pub struct Rename4Args<'a> {
        /// A name in the saved directory.
        pub oldname: &'a [u8]; max NAME_BYTES_MAX,
        /// What it becomes in the current directory.
        pub newname: &'a [u8]; max NAME_BYTES_MAX,
    }
}

structure! {
    /// Arguments of LINK.
    #[derive(Copy)]
    pub struct Link4Args<'a> {
        /// The saved object's new name in the current directory.
        pub newname: &'a [u8]; max NAME_BYTES_MAX,
    }
}

/// Whether OPEN makes a file (`openflag4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenHow4<'a> {
    /// It must exist.
    NoCreate,
    /// Uses one that is there.
    Unchecked(Fattr4<'a>),
    /// Fails if one is there.
    Guarded(Fattr4<'a>),
    /// As a repetition of the same call would.
    Exclusive([u8; 8]),
    /// The same, with attributes.
    Exclusive41([u8; 8], Fattr4<'a>),
}

impl<'a> Decode<'a> for OpenHow4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => return Ok(Self::NoCreate),
            1 => {}
            value => return Err(XdrError::BadValue { what: "opentype4", value }),
        }
        match r.u32()? {
            0 => Decode::decode(r).map(Self::Unchecked),
            1 => Decode::decode(r).map(Self::Guarded),
            2 => r.array().map(Self::Exclusive),
            3 => Ok(Self::Exclusive41(r.array()?, Decode::decode(r)?)),
            value => Err(XdrError::BadValue { what: "createmode4", value }),
        }
    }
}

impl Encode for OpenHow4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(u32::from(!matches!(self, Self::NoCreate)));
        match self {
            Self::NoCreate => {}
            Self::Unchecked(attributes) => {
                w.u32(0);
                attributes.encode(w);
            }
            Self::Guarded(attributes) => {
                w.u32(1);
                attributes.encode(w);
            }
            Self::Exclusive(verifier) => {
                w.u32(2);
                w.fixed_opaque(verifier);
            }
            Self::Exclusive41(verifier, attributes) => {
                w.u32(3);
                w.fixed_opaque(verifier);
                attributes.encode(w);
            }
        }
    }
}

/// What OPEN opens (`open_claim4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenClaim4<'a> {
    /// A name in the current directory.
    Null(&'a [u8]),
    /// The current file again, after the server lost what it knew, with this type of delegation.
    Previous(u32),
    /// A name, by a delegation.
    DelegateCur(StateId4, &'a [u8]),
    /// A name, by a delegation of before the client began anew.
    DelegatePrev(&'a [u8]),
    /// The current file.
    Fh,
    /// The current file, by a delegation of before the client began anew.
    DelegPrevFh,
    /// The current file, by a delegation.
    DelegCurFh(StateId4),
}

impl<'a> Decode<'a> for OpenClaim4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => r.opaque(NAME_BYTES_MAX).map(Self::Null),
            1 => r.u32().map(Self::Previous),
            2 => Ok(Self::DelegateCur(Decode::decode(r)?, r.opaque(NAME_BYTES_MAX)?)),
            3 => r.opaque(NAME_BYTES_MAX).map(Self::DelegatePrev),
            4 => Ok(Self::Fh),
            5 => Decode::decode(r).map(Self::DelegCurFh),
            6 => Ok(Self::DelegPrevFh),
            value => Err(XdrError::BadValue { what: "open_claim_type4", value }),
        }
    }
}

impl Encode for OpenClaim4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Null(name) => {
                w.u32(0);
                w.opaque(name);
            }
            Self::Previous(delegation) => {
                w.u32(1);
                w.u32(*delegation);
            }
            Self::DelegateCur(stateid, name) => {
                w.u32(2);
                stateid.encode(w);
                w.opaque(name);
            }
            Self::DelegatePrev(name) => {
                w.u32(3);
                w.opaque(name);
            }
            Self::Fh => w.u32(4),
            Self::DelegCurFh(stateid) => {
                w.u32(5);
                stateid.encode(w);
            }
            Self::DelegPrevFh => w.u32(6),
        }
    }
}

structure! {
    /// Arguments of OPEN.
    #[derive(Copy)]
    pub struct Open4Args<'a> {
        /// Of minor version 0; ignored since.
        pub seqid: u32,
        /// What it is opened for, and what delegation is wanted.
        pub share_access: u32,
        /// What others may not open it for.
        pub share_deny: u32,
        /// The owner's client; ignored since minor version 1.
        pub clientid: u64,
        /// Who opens it.
        pub owner: &'a [u8]; max OPAQUE_BYTES_MAX,
        /// Whether it is made.
        pub openhow: OpenHow4<'a>,
        /// What is opened.
        pub claim: OpenClaim4<'a>,
    }
}
