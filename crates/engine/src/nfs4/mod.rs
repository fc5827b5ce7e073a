//! NFS version 4, minor versions 0 to 2 (RFC 7530, RFC 8881, RFC 7862, RFC 8276): a type for each operation,
//! which decodes nothing and knows no header. `compound` executes them one after another.

mod acl;
mod attributes;
mod changing;
mod client;
mod delegations;
mod directory;
mod extents;
mod fattr;
mod fattr_decode;
mod handles;
mod idmap;
mod io;
mod lock;
mod making;
mod names;
mod naming;
mod open;
mod operation_names;
mod owners;
pub(crate) mod reclaim;
mod security;
pub(crate) mod session;
mod set_client;
mod setting;
mod stateids;
pub(crate) mod status;
mod wishes;
mod xattr;

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip128::{Hasher128, SipHasher24};
use steadfast_state::{Settings, State};
use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::Reader;

use crate::begun_outcomes::BegunOutcomes;
use crate::compound::{Compound, OpRow, Run, Versions};
use crate::compound_operation::CompoundOperation;
use crate::config::EngineConfig;
use crate::local_guards::LocalGuard;
use crate::program::{Null, Row};
use crate::progress::Repeated;
use crate::reply::ReplyBuffer;

/// Seconds that a client keeps its state without being heard of.
const LEASE_S: u32 = 90;

/// How state is kept.
pub(crate) fn settings(config: &EngineConfig) -> Settings {
    Settings {
        lease_ms: u64::from(LEASE_S) * 1000,
        delegations: config.delegations,
        // While no server ran nothing has told of local processes.
        recalls_restored: config.local_guard != LocalGuard::None,
        ..Settings::new(config.instance)
    }
}

/// NFSv4 as it is served.
pub(crate) struct Nfs4 {
    pub(crate) state: Arc<State>,
    /// Names the server to its clients, and no other: the same as long as its handles are.
    pub(crate) server_id: [u8; 16],
    /// Requests that came again while they were being executed.
    pub(crate) repeated: Repeated,
    /// What requests had done that were under way when the process before this one was killed.
    pub(crate) outcomes: BegunOutcomes,
}

impl Nfs4 {
    pub(crate) fn new(state: Arc<State>, handle_key: &[u8; 16]) -> Self {
        // Nothing that clients are told may tell of the key.
        let mut hasher = SipHasher24::new_with_key(handle_key);
        hasher.write(b"server owner and scope");
        let server_id = hasher.finish128().as_bytes();
        let (repeated, outcomes) = (Repeated::default(), BegunOutcomes::default());
        Self { state, server_id, repeated, outcomes }
    }
}

/// Procedures of the version by number (RFC 8881 §16).
pub(crate) const PROCEDURES: &[Row] = &[Row::of::<Null>(), Row::of::<Compound>()];

/// The number of the first operation.
const FIRST: u32 = Op4::Access as u32;

/// The row of an operation; `None` if there is no such operation.
pub(crate) fn row(number: u32) -> Option<&'static OpRow> {
    let place = number.checked_sub(FIRST)?;
    OPERATIONS.get(place as usize)
}

/// Operations by number, from [`FIRST`] on (RFC 8881 §18): all but ILLEGAL.
static OPERATIONS: [OpRow; CompoundOperation::COUNT - 1] = [
    OpRow::of::<attributes::Access>(),
    OpRow::of::<open::Close>(),
    OpRow::of::<io::Commit>(),
    OpRow::of::<making::Create>(),
    OpRow::refused(Op4::DelegPurge, "DELEGPURGE", not_supported),
    OpRow::of::<delegations::DelegReturn>(),
    OpRow::of::<attributes::GetAttr>(),
    OpRow::of::<handles::GetFh>(),
    OpRow::of::<naming::Link>(),
    OpRow::of::<lock::Lock>(),
    OpRow::of::<lock::LockT>(),
    OpRow::of::<lock::LockU>(),
    OpRow::of::<names::Lookup>(),
    OpRow::of::<names::LookupP>(),
    OpRow::of::<attributes::NVerify>(),
    OpRow::of::<open::Open>(),
    OpRow::refused(Op4::OpenAttr, "OPENATTR", not_supported),
    OpRow::of::<owners::OpenConfirm>().only_in(Versions::V0),
    OpRow::of::<open::OpenDowngrade>(),
    OpRow::of::<handles::PutFh>(),
    OpRow::of::<handles::PutPubFh>(),
    OpRow::of::<handles::PutRootFh>(),
    OpRow::of::<io::Read>(),
    OpRow::of::<directory::ReadDir>(),
    OpRow::of::<io::ReadLink>(),
    OpRow::of::<naming::Remove>(),
    OpRow::of::<naming::Rename>(),
    OpRow::of::<set_client::Renew>().only_in(Versions::V0),
    OpRow::of::<handles::RestoreFh>(),
    OpRow::of::<handles::SaveFh>(),
    OpRow::of::<security::SecInfo>(),
    OpRow::of::<setting::SetAttr>(),
    OpRow::of::<set_client::SetClientId>().only_in(Versions::V0),
    OpRow::of::<set_client::SetClientIdConfirm>().only_in(Versions::V0),
    OpRow::of::<attributes::Verify>(),
    OpRow::of::<io::Write>(),
    OpRow::of::<owners::ReleaseLockOwner>().only_in(Versions::V0),
    OpRow::of::<client::BackchannelCtl>().only_in(Versions::FROM_1),
    OpRow::of::<client::BindConnToSession>().only_in(Versions::FROM_1),
    OpRow::of::<client::ExchangeId>().only_in(Versions::FROM_1),
    OpRow::of::<client::CreateSession>().only_in(Versions::FROM_1),
    OpRow::of::<client::DestroySession>().only_in(Versions::FROM_1),
    OpRow::of::<stateids::FreeStateId>().only_in(Versions::FROM_1),
    OpRow::refused(Op4::GetDirDelegation, "GET_DIR_DELEGATION", not_supported)
        .only_in(Versions::FROM_1),
    OpRow::refused(Op4::GetDeviceInfo, "GETDEVICEINFO", not_supported).only_in(Versions::FROM_1),
    OpRow::refused(Op4::GetDeviceList, "GETDEVICELIST", not_supported).only_in(Versions::FROM_1),
    OpRow::refused(Op4::LayoutCommit, "LAYOUTCOMMIT", not_supported).only_in(Versions::FROM_1),
    OpRow::refused(Op4::LayoutGet, "LAYOUTGET", not_supported).only_in(Versions::FROM_1),
    OpRow::refused(Op4::LayoutReturn, "LAYOUTRETURN", not_supported).only_in(Versions::FROM_1),
    OpRow::of::<security::SecInfoNoName>().only_in(Versions::FROM_1),
    OpRow::sequence().only_in(Versions::FROM_1),
    OpRow::refused(Op4::SetSsv, "SET_SSV", not_supported).only_in(Versions::FROM_1),
    OpRow::of::<stateids::TestStateId>().only_in(Versions::FROM_1),
    OpRow::refused(Op4::WantDelegation, "WANT_DELEGATION", not_supported).only_in(Versions::FROM_1),
    OpRow::of::<client::DestroyClientId>().only_in(Versions::FROM_1),
    OpRow::of::<client::ReclaimComplete>().only_in(Versions::FROM_1),
    OpRow::of::<extents::Allocate>().only_in(Versions::FROM_2),
    OpRow::of::<extents::Copy>().only_in(Versions::FROM_2),
    OpRow::refused(Op4::CopyNotify, "COPY_NOTIFY", not_supported).only_in(Versions::FROM_2),
    OpRow::of::<extents::Deallocate>().only_in(Versions::FROM_2),
    OpRow::of::<extents::IoAdvise>().only_in(Versions::FROM_2),
    OpRow::refused(Op4::LayoutError, "LAYOUTERROR", not_supported).only_in(Versions::FROM_2),
    OpRow::refused(Op4::LayoutStats, "LAYOUTSTATS", not_supported).only_in(Versions::FROM_2),
    OpRow::refused(Op4::OffloadCancel, "OFFLOAD_CANCEL", not_supported).only_in(Versions::FROM_2),
    OpRow::refused(Op4::OffloadStatus, "OFFLOAD_STATUS", not_supported).only_in(Versions::FROM_2),
    OpRow::of::<extents::ReadPlus>().only_in(Versions::FROM_2),
    OpRow::of::<extents::Seek>().only_in(Versions::FROM_2),
    OpRow::refused(Op4::WriteSame, "WRITE_SAME", not_supported).only_in(Versions::FROM_2),
    OpRow::of::<extents::Clone>().only_in(Versions::FROM_2),
    OpRow::of::<xattr::GetXattr>().only_in(Versions::FROM_2),
    OpRow::of::<xattr::SetXattr>().only_in(Versions::FROM_2),
    OpRow::of::<xattr::ListXattrs>().only_in(Versions::FROM_2),
    OpRow::of::<xattr::RemoveXattr>().only_in(Versions::FROM_2),
];

type Refused = Result<(), NfsStat4>;

fn not_supported(_: &mut Run<'_, '_>, _: &mut Reader<'_>, _: &mut ReplyBuffer) -> Refused {
    Err(NfsStat4::NotSupp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_its_place() {
        for number in 0..100 {
            match row(number) {
                Some(row) => assert_eq!(row.number as u32, number),
                None => assert!(!(3..=75).contains(&number), "{number}"),
            }
        }
    }
}
