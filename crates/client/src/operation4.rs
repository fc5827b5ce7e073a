//! An operation of NFSv4: its name, and how it fails.

use steadfast_wire::nfs4::{LockType4, NfsStat4, Op4};

/// An operation that failed, and with it its COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure4 {
    /// Which operation; none if the server executed none at all.
    pub op: Option<Op4>,
    /// Its place in the COMPOUND, from 0.
    pub position: u32,
    /// Why.
    pub status: NfsStat4,
    /// Of LOCK and LOCKT: what is in the way.
    pub denied: Option<Denied4>,
}

impl std::error::Error for Failure4 {}

impl std::fmt::Display for Failure4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = self.op.map_or("COMPOUND", operation_name);
        write!(f, "{op} (operation {}) failed with {:?}", self.position, self.status)
    }
}

/// Somebody else's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied4 {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes; all ones to the end.
    pub length: u64,
    /// Its kind.
    pub kind: LockType4,
    /// The owner's client.
    pub clientid: u64,
    /// Which owner of it.
    pub owner: Vec<u8>,
}

/// An operation's name in its RFC.
pub fn operation_name(op: Op4) -> &'static str {
    match op {
        Op4::Access => "ACCESS",
        Op4::Close => "CLOSE",
        Op4::Commit => "COMMIT",
        Op4::Create => "CREATE",
        Op4::DelegPurge => "DELEGPURGE",
        Op4::DelegReturn => "DELEGRETURN",
        Op4::GetAttr => "GETATTR",
        Op4::GetFh => "GETFH",
        Op4::Link => "LINK",
        Op4::Lock => "LOCK",
        Op4::LockT => "LOCKT",
        Op4::LockU => "LOCKU",
        Op4::Lookup => "LOOKUP",
        Op4::LookupP => "LOOKUPP",
        Op4::NVerify => "NVERIFY",
        Op4::Open => "OPEN",
        Op4::OpenAttr => "OPENATTR",
        Op4::OpenConfirm => "OPEN_CONFIRM",
        Op4::OpenDowngrade => "OPEN_DOWNGRADE",
        Op4::PutFh => "PUTFH",
        Op4::PutPubFh => "PUTPUBFH",
        Op4::PutRootFh => "PUTROOTFH",
        Op4::Read => "READ",
        Op4::ReadDir => "READDIR",
        Op4::ReadLink => "READLINK",
        Op4::Remove => "REMOVE",
        Op4::Rename => "RENAME",
        Op4::Renew => "RENEW",
        Op4::RestoreFh => "RESTOREFH",
        Op4::SaveFh => "SAVEFH",
        Op4::SecInfo => "SECINFO",
        Op4::SetAttr => "SETATTR",
        Op4::SetClientId => "SETCLIENTID",
        Op4::SetClientIdConfirm => "SETCLIENTID_CONFIRM",
        Op4::Verify => "VERIFY",
        Op4::Write => "WRITE",
        Op4::ReleaseLockOwner => "RELEASE_LOCKOWNER",
        Op4::BackchannelCtl => "BACKCHANNEL_CTL",
        Op4::BindConnToSession => "BIND_CONN_TO_SESSION",
        Op4::ExchangeId => "EXCHANGE_ID",
        Op4::CreateSession => "CREATE_SESSION",
        Op4::DestroySession => "DESTROY_SESSION",
        Op4::FreeStateId => "FREE_STATEID",
        Op4::GetDirDelegation => "GET_DIR_DELEGATION",
        Op4::GetDeviceInfo => "GETDEVICEINFO",
        Op4::GetDeviceList => "GETDEVICELIST",
        Op4::LayoutCommit => "LAYOUTCOMMIT",
        Op4::LayoutGet => "LAYOUTGET",
        Op4::LayoutReturn => "LAYOUTRETURN",
        Op4::SecInfoNoName => "SECINFO_NO_NAME",
        Op4::Sequence => "SEQUENCE",
        Op4::SetSsv => "SET_SSV",
        Op4::TestStateId => "TEST_STATEID",
        Op4::WantDelegation => "WANT_DELEGATION",
        Op4::DestroyClientId => "DESTROY_CLIENTID",
        Op4::ReclaimComplete => "RECLAIM_COMPLETE",
        Op4::Allocate => "ALLOCATE",
        Op4::Copy => "COPY",
        Op4::CopyNotify => "COPY_NOTIFY",
        Op4::Deallocate => "DEALLOCATE",
        Op4::IoAdvise => "IO_ADVISE",
        Op4::LayoutError => "LAYOUTERROR",
        Op4::LayoutStats => "LAYOUTSTATS",
        Op4::OffloadCancel => "OFFLOAD_CANCEL",
        Op4::OffloadStatus => "OFFLOAD_STATUS",
        Op4::ReadPlus => "READ_PLUS",
        Op4::Seek => "SEEK",
        Op4::WriteSame => "WRITE_SAME",
        Op4::Clone => "CLONE",
        Op4::GetXattr => "GETXATTR",
        Op4::SetXattr => "SETXATTR",
        Op4::ListXattrs => "LISTXATTRS",
        Op4::RemoveXattr => "REMOVEXATTR",
        Op4::Illegal => "ILLEGAL",
    }
}
