//! Values of the types of NFSv4.

use steadfast_wire::nfs4::{
    Access4Args, Access4Result, Ace4, Allocate4Args, Attribute4, BackchannelCtl4Args,
    BindConnToSession4Args, BindConnToSession4Result, Bitmap4, CallbackClient4,
    CallbackCompoundHead4, CallbackGetAttr4Args, CallbackGetAttr4Result, CallbackNotifyLock4Args,
    CallbackOp4, CallbackRecall4Args, CallbackSec4, CallbackSequence4Args, CallbackSequence4Result,
    ChangeInfo4, ChannelAttributes4, ClientInUse4, Clone4Args, Close4Args, Commit4Args,
    CompoundHead4, CompoundReplyHead4, Content4, Copy4Args, Copy4Result, CopyRequirements4,
    Create4Args, Create4Result, CreateSession4Args, CreateSession4Result, CreateType4,
    DestroyClientId4Args, DestroySession4Args, ExchangeId4Args, ExchangeId4Result, Fattr4,
    FileType4, FreeStateId4Args, GetAttr4Args, GetFh4Result, GetXattr4Result, ImplementationId4,
    IoAdvise4Args, Link4Args, ListXattrs4Args, ListXattrs4Result, Lock4Args, LockDenied4,
    LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4, Lookup4Args, NetLoc4, NfsStat4,
    NfsTime4, Op4, Open4Args, Open4Result, OpenClaim4, OpenConfirm4Args, OpenDelegation4,
    OpenDowngrade4Args, OpenHow4, PutFh4Args, Read4Args, Read4Result, ReadDir4Args,
    ReadLink4Result, ReadPlus4Args, ReadPlus4Result, ReclaimComplete4Args, ReferringCall4,
    ReferringCallList4, ReleaseLockOwner4Args, Remove4Args, Rename4Args, Rename4Result, Renew4Args,
    SecFlavour4, SecInfo4Args, SecInfo4Result, SecInfoNoName4Args, Seek4Args, Seek4Result,
    Sequence4Args, Sequence4Result, SetAttr4Args, SetClientId4Args, SetClientId4Result,
    SetClientIdConfirm4Args, SetXattr4Args, SetXattrOption4, SpaceLimit4, StateId4, StateProtect4,
    StateProtectResult4, TestStateId4Args, TestStateId4Result, Verify4Args, Write4Args,
    Write4Result, XattrName4Args,
};

use crate::strategies::{Make, Parts, enumerations, one_of, structures, word};

impl<'p> Make<'p> for Bitmap4 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self::from_words([0; 3].map(|_: u32| Make::make(parts, at)))
    }
}

impl<'p> Make<'p> for Locker4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (stateid, seqid) = (Make::make(parts, at), Make::make(parts, at));
        let (lock_seqid, lock_owner) = (Make::make(parts, at), Make::make(parts, at));
        let all = [
            Self::Open { open_seqid: seqid, open_stateid: stateid, lock_seqid, lock_owner },
            Self::Lock { lock_stateid: stateid, lock_seqid },
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for CreateType4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (major, minor) = (Make::make(parts, at), Make::make(parts, at));
        let all = [
            Self::Link(Make::make(parts, at)),
            Self::BlockDevice(major, minor),
            Self::CharacterDevice(major, minor),
            Self::Socket,
            Self::Fifo,
            Self::Directory,
            Self::Other(major | 8),
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for OpenHow4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (attributes, verifier) = (Make::make(parts, at), Make::make(parts, at));
        let all = [
            Self::NoCreate,
            Self::Unchecked(attributes),
            Self::Guarded(attributes),
            Self::Exclusive(verifier),
            Self::Exclusive41(verifier, attributes),
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for OpenClaim4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (name, stateid) = (Make::make(parts, at), Make::make(parts, at));
        let all = [
            Self::Null(name),
            Self::Previous(Make::make(parts, at)),
            Self::DelegateCur(stateid, name),
            Self::DelegatePrev(name),
            Self::Fh,
            Self::DelegPrevFh,
            Self::DelegCurFh(stateid),
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for StateProtect4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (must, may) = (Make::make(parts, at), Make::make(parts, at));
        match word(parts, at) % 3 {
            0 => Self::None,
            1 => Self::MachCred(must, may),
            _ => Self::Ssv {
                must,
                may,
                hashes: Make::make(parts, at),
                ciphers: Make::make(parts, at),
                window: Make::make(parts, at),
                handles: Make::make(parts, at),
            },
        }
    }
}

impl<'p> Make<'p> for StateProtectResult4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (must, may) = (Make::make(parts, at), Make::make(parts, at));
        match word(parts, at) % 3 {
            0 => Self::None,
            1 => Self::MachCred(must, may),
            _ => Self::Ssv {
                must,
                may,
                hash: Make::make(parts, at),
                cipher: Make::make(parts, at),
                bytes: Make::make(parts, at),
                window: Make::make(parts, at),
                handles: Make::make(parts, at),
            },
        }
    }
}

impl<'p> Make<'p> for CallbackSec4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let number = Make::make(parts, at);
        match word(parts, at) % 3 {
            0 => Self::None,
            1 => Self::Sys(Make::make(parts, at)),
            _ => Self::Gss(number, Make::make(parts, at), Make::make(parts, at)),
        }
    }
}

/// Lists that have one element at most.
fn one_at_most<'p, T: Make<'p>>(parts: &'p Parts, at: &mut usize) -> Vec<T> {
    Option::make(parts, at).into_iter().collect()
}

impl<'p> Make<'p> for ChannelAttributes4 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self {
            headerpadsize: Make::make(parts, at),
            maxrequestsize: Make::make(parts, at),
            maxresponsesize: Make::make(parts, at),
            maxresponsesize_cached: Make::make(parts, at),
            maxoperations: Make::make(parts, at),
            maxrequests: Make::make(parts, at),
            rdma_ird: one_at_most(parts, at),
        }
    }
}

impl<'p> Make<'p> for ExchangeId4Args<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self {
            verifier: Make::make(parts, at),
            ownerid: Make::make(parts, at),
            flags: Make::make(parts, at),
            state_protect: Make::make(parts, at),
            client_impl_id: one_at_most(parts, at),
        }
    }
}

impl<'p> Make<'p> for ExchangeId4Result<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self {
            clientid: Make::make(parts, at),
            sequenceid: Make::make(parts, at),
            flags: Make::make(parts, at),
            state_protect: Make::make(parts, at),
            server_minor_id: Make::make(parts, at),
            server_major_id: Make::make(parts, at),
            server_scope: Make::make(parts, at),
            server_impl_id: one_at_most(parts, at),
        }
    }
}

impl<'p> Make<'p> for SpaceLimit4 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let blocks = Self::Blocks(Make::make(parts, at), Make::make(parts, at));
        one_of(&[Self::Size(Make::make(parts, at)), blocks], parts, at)
    }
}

impl<'p> Make<'p> for OpenDelegation4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (stateid, recall) = (Make::make(parts, at), Make::make(parts, at));
        let (space_limit, permissions) = (Make::make(parts, at), Make::make(parts, at));
        let why: u32 = Make::make(parts, at);
        let all = [
            Self::None,
            Self::Read { stateid, recall, permissions },
            Self::Write { stateid, recall, space_limit, permissions },
            Self::NoneButTells(1 + why % 2, recall),
            // Two numbers have more after them.
            Self::NoneSince(if why == 1 || why == 2 { 0 } else { why }),
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for SecFlavour4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (quality, service) = (Make::make(parts, at), Make::make(parts, at));
        let gss = Self::Gss(Make::make(parts, at), quality, service);
        // Of GSS there is more.
        one_of(&[gss, Self::Other(if quality == 6 { 1 } else { quality })], parts, at)
    }
}

impl<'p> Make<'p> for NetLoc4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (one, other) = (Make::make(parts, at), Make::make(parts, at));
        one_of(&[Self::Name(one), Self::Url(one), Self::Address(one, other)], parts, at)
    }
}

impl<'p> Make<'p> for Copy4Result {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self {
            callback_id: Make::make(parts, at),
            count: Make::make(parts, at),
            committed: Make::make(parts, at),
            verifier: Make::make(parts, at),
            requirements: Make::make(parts, at),
        }
    }
}

impl<'p> Make<'p> for Content4<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (offset, length) = (Make::make(parts, at), Make::make(parts, at));
        let data = Self::Data { offset, data: Make::make(parts, at) };
        one_of(&[data, Self::Hole { offset, length }], parts, at)
    }
}

enumerations! { NfsStat4 CallbackOp4 Op4 Attribute4 LockType4 FileType4 SetXattrOption4 }

structures! {
    Fattr4<'p> { attrmask attr_vals }
    StateId4 { seqid other }
    CompoundHead4<'p> { tag minorversion operations }
    Access4Args { access }
    Close4Args { seqid open_stateid }
    Commit4Args { offset count }
    Create4Args<'p> { objtype objname createattrs }
    GetAttr4Args { attr_request }
    Link4Args<'p> { newname }
    LockOwner4<'p> { clientid owner }
    Lock4Args<'p> { locktype reclaim offset length locker }
    LockT4Args<'p> { locktype offset length owner }
    LockU4Args { locktype seqid lock_stateid offset length }
    LockDenied4<'p> { offset length locktype owner }
    Lookup4Args<'p> { objname }
    Open4Args<'p> { seqid share_access share_deny clientid owner openhow claim }
    OpenDowngrade4Args { open_stateid seqid share_access share_deny }
    PutFh4Args<'p> { object }
    Read4Args { stateid offset count }
    ReadDir4Args { cookie cookieverf dircount maxcount attr_request }
    Remove4Args<'p> { target }
    Rename4Args<'p> { oldname newname }
    SecInfo4Args<'p> { name }
    SecInfoNoName4Args { style }
    SetAttr4Args<'p> { stateid obj_attributes }
    Verify4Args<'p> { obj_attributes }
    Write4Args<'p> { stateid offset stable data }
    Sequence4Args { sessionid sequenceid slotid highest_slotid cachethis }
    ImplementationId4<'p> { domain name date_seconds date_nseconds }
    CreateSession4Args<'p> { clientid sequence flags fore back cb_program sec_parms }
    BackchannelCtl4Args<'p> { cb_program sec_parms }
    BindConnToSession4Args { sessionid dir use_conn_in_rdma_mode }
    DestroySession4Args { sessionid }
    DestroyClientId4Args { clientid }
    ReclaimComplete4Args { one_fs }
    FreeStateId4Args { stateid }
    TestStateId4Args { stateids }
    CallbackClient4<'p> { program netid address }
    SetClientId4Args<'p> { verifier id callback callback_ident }
    SetClientId4Result { clientid confirm }
    ClientInUse4<'p> { netid address }
    SetClientIdConfirm4Args { clientid confirm }
    Renew4Args { clientid }
    OpenConfirm4Args { open_stateid seqid }
    ReleaseLockOwner4Args<'p> { lock_owner }
    CompoundReplyHead4<'p> { status tag operations }
    ChangeInfo4 { atomic before after }
    NfsTime4 { seconds nseconds }
    Ace4<'p> { kind flag access_mask who }
    Sequence4Result {
        sessionid sequenceid slotid highest_slotid target_highest_slotid status_flags
    }
    CreateSession4Result { sessionid sequence flags fore back }
    BindConnToSession4Result { sessionid dir use_conn_in_rdma_mode }
    Access4Result { supported access }
    GetFh4Result<'p> { object }
    Open4Result<'p> { stateid cinfo rflags attrset delegation }
    Read4Result<'p> { eof data }
    Write4Result { count committed verifier }
    Create4Result { cinfo attrset }
    Rename4Result { source target }
    ReadLink4Result<'p> { link }
    SecInfo4Result<'p> { flavours }
    TestStateId4Result { status_codes }
    Allocate4Args { stateid offset length }
    Clone4Args { src_stateid dst_stateid src_offset dst_offset count }
    Copy4Args<'p> {
        src_stateid dst_stateid src_offset dst_offset count consecutive synchronous source_server
    }
    CopyRequirements4 { consecutive synchronous }
    IoAdvise4Args { stateid offset count hints }
    ReadPlus4Args { stateid offset count }
    ReadPlus4Result<'p> { eof contents }
    Seek4Args { stateid offset what }
    Seek4Result { eof offset }
    XattrName4Args<'p> { name }
    GetXattr4Result<'p> { value }
    SetXattr4Args<'p> { option name value }
    ListXattrs4Args { cookie maxcount }
    ListXattrs4Result<'p> { cookie names eof }
    CallbackCompoundHead4<'p> { tag minorversion callback_ident operations }
    ReferringCall4 { sequenceid slotid }
    ReferringCallList4 { sessionid calls }
    CallbackSequence4Args { sessionid sequenceid slotid highest_slotid cachethis referring }
    CallbackSequence4Result {
        sessionid sequenceid slotid highest_slotid target_highest_slotid
    }
    CallbackNotifyLock4Args<'p> { object lock_owner }
    CallbackRecall4Args<'p> { stateid truncate fh }
    CallbackGetAttr4Args<'p> { fh attr_request }
    CallbackGetAttr4Result<'p> { obj_attributes }
}
