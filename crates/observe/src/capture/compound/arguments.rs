//! The arguments of each operation. Those that `wire` has no type for are walked over.

use steadfast_wire::nfs4::{
    Access4Args, Allocate4Args, BackchannelCtl4Args, BindConnToSession4Args, Bitmap4, Clone4Args,
    Close4Args, Commit4Args, Copy4Args, Create4Args, CreateSession4Args, DelegReturn4Args,
    DestroyClientId4Args, DestroySession4Args, ExchangeId4Args, FreeStateId4Args, GetAttr4Args,
    IoAdvise4Args, Link4Args, ListXattrs4Args, Lock4Args, LockT4Args, LockU4Args, Lookup4Args,
    NetLoc4, Op4, Open4Args, OpenClaim4, OpenConfirm4Args, OpenDowngrade4Args, PutFh4Args,
    Read4Args, ReadDir4Args, ReadPlus4Args, ReclaimComplete4Args, ReleaseLockOwner4Args,
    Remove4Args, Rename4Args, Renew4Args, SecInfo4Args, SecInfoNoName4Args, Seek4Args,
    Sequence4Args, SetAttr4Args, SetClientId4Args, SetClientIdConfirm4Args, SetXattr4Args,
    StateId4, TestStateId4Args, Verify4Args, Write4Args, XattrName4Args,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::{Argument, operation};
use crate::capture::handle::{Handle, Names};
use crate::capture::messages::universal_port;

/// Longest opaque value of an operation that is walked over, in bytes.
const OPAQUE_BYTES_MAX: usize = 1 << 20;
/// Most elements of a list that is walked over.
const LIST_MAX: u32 = 4096;

/// Walks over a value.
fn over<'a, T: Decode<'a>>(r: &mut Reader<'a>) -> Result<Argument, XdrError> {
    T::decode(r).map(|_| Argument::Nothing)
}

fn named(name: &[u8]) -> Argument {
    Argument::Name(name.into())
}

/// Reads the arguments of an operation.
pub(super) fn read(
    number: u32,
    r: &mut Reader<'_>,
    names: &mut Names,
) -> Result<Argument, XdrError> {
    let Some(operation) = operation(number) else {
        return Err(XdrError::BadValue { what: "nfs_opnum4", value: number });
    };
    match operation {
        Op4::PutFh => {
            let bytes = PutFh4Args::decode(r)?.object;
            let handle = Handle::of(bytes);
            names.note_handle(handle, bytes);
            Ok(Argument::Handle(handle))
        }
        Op4::Lookup => Lookup4Args::decode(r).map(|args| named(args.objname)),
        Op4::Create => Create4Args::decode(r).map(|args| named(args.objname)),
        Op4::Remove => Remove4Args::decode(r).map(|args| named(args.target)),
        Op4::Rename => Rename4Args::decode(r).map(|args| named(args.oldname)),
        Op4::Link => Link4Args::decode(r).map(|args| named(args.newname)),
        Op4::SecInfo => SecInfo4Args::decode(r).map(|args| named(args.name)),
        Op4::Open => Ok(match Open4Args::decode(r)?.claim {
            OpenClaim4::Null(name)
            | OpenClaim4::DelegateCur(_, name)
            | OpenClaim4::DelegatePrev(name) => named(name),
            _ => Argument::Nothing,
        }),
        Op4::GetXattr | Op4::RemoveXattr => XattrName4Args::decode(r).map(|args| named(args.name)),
        Op4::SetXattr => SetXattr4Args::decode(r).map(|args| named(args.name)),
        Op4::SetClientId => {
            let address = SetClientId4Args::decode(r)?.callback.address;
            Ok(universal_port(address).map_or(Argument::Nothing, Argument::CallbackPort))
        }
        Op4::GetFh
        | Op4::LookupP
        | Op4::PutPubFh
        | Op4::PutRootFh
        | Op4::ReadLink
        | Op4::RestoreFh
        | Op4::SaveFh
        | Op4::Illegal => Ok(Argument::Nothing),
        other => of_files(other, r),
    }
}

fn of_files(operation: Op4, r: &mut Reader<'_>) -> Result<Argument, XdrError> {
    match operation {
        Op4::Access => over::<Access4Args>(r),
        Op4::Close => over::<Close4Args>(r),
        Op4::Commit => over::<Commit4Args>(r),
        Op4::GetAttr => over::<GetAttr4Args>(r),
        Op4::Lock => over::<Lock4Args<'_>>(r),
        Op4::LockT => over::<LockT4Args<'_>>(r),
        Op4::LockU => over::<LockU4Args>(r),
        Op4::NVerify | Op4::Verify => over::<Verify4Args<'_>>(r),
        Op4::OpenAttr => over::<bool>(r),
        Op4::OpenConfirm => over::<OpenConfirm4Args>(r),
        Op4::OpenDowngrade => over::<OpenDowngrade4Args>(r),
        Op4::Read => over::<Read4Args>(r),
        Op4::ReadDir => over::<ReadDir4Args>(r),
        Op4::SetAttr => over::<SetAttr4Args<'_>>(r),
        Op4::Write => over::<Write4Args<'_>>(r),
        Op4::SecInfoNoName => over::<SecInfoNoName4Args>(r),
        Op4::Allocate | Op4::Deallocate => over::<Allocate4Args>(r),
        Op4::Copy => over::<Copy4Args<'_>>(r),
        Op4::IoAdvise => over::<IoAdvise4Args>(r),
        Op4::ReadPlus => over::<ReadPlus4Args>(r),
        Op4::Seek => over::<Seek4Args>(r),
        Op4::Clone => over::<Clone4Args>(r),
        Op4::ListXattrs => over::<ListXattrs4Args>(r),
        Op4::OffloadCancel | Op4::OffloadStatus => over::<StateId4>(r),
        Op4::CopyNotify => {
            over::<StateId4>(r)?;
            over::<NetLoc4<'_>>(r)
        }
        Op4::WriteSame => {
            over::<StateId4>(r)?;
            fixed(r, 4 + 4 * 8 + 4 + 8)?;
            opaque(r)
        }
        other => of_state(other, r),
    }
}

fn of_state(operation: Op4, r: &mut Reader<'_>) -> Result<Argument, XdrError> {
    match operation {
        Op4::DelegPurge => over::<u64>(r),
        Op4::DelegReturn => over::<DelegReturn4Args>(r),
        Op4::Renew => over::<Renew4Args>(r),
        Op4::SetClientIdConfirm => over::<SetClientIdConfirm4Args>(r),
        Op4::ReleaseLockOwner => over::<ReleaseLockOwner4Args<'_>>(r),
        Op4::BackchannelCtl => over::<BackchannelCtl4Args<'_>>(r),
        Op4::BindConnToSession => over::<BindConnToSession4Args>(r),
        Op4::ExchangeId => over::<ExchangeId4Args<'_>>(r),
        Op4::CreateSession => over::<CreateSession4Args<'_>>(r),
        Op4::DestroySession => over::<DestroySession4Args>(r),
        Op4::FreeStateId => over::<FreeStateId4Args>(r),
        Op4::Sequence => over::<Sequence4Args>(r),
        Op4::TestStateId => over::<TestStateId4Args>(r),
        Op4::DestroyClientId => over::<DestroyClientId4Args>(r),
        Op4::ReclaimComplete => over::<ReclaimComplete4Args>(r),
        Op4::SetSsv => {
            opaque(r)?;
            opaque(r)
        }
        Op4::WantDelegation => {
            fixed(r, 4)?;
            // CLAIM_PREVIOUS has a type of delegation.
            if r.u32()? == 1 { fixed(r, 4) } else { Ok(Argument::Nothing) }
        }
        Op4::GetDirDelegation => {
            fixed(r, 4)?;
            over::<Bitmap4>(r)?;
            fixed(r, 2 * 12)?;
            over::<Bitmap4>(r)?;
            over::<Bitmap4>(r)
        }
        other => of_layouts(other, r),
    }
}

/// RFC 8881 §18.40 to §18.44, RFC 7862 §15.6 and §15.7.
fn of_layouts(operation: Op4, r: &mut Reader<'_>) -> Result<Argument, XdrError> {
    match operation {
        Op4::GetDeviceInfo => {
            fixed(r, 16 + 4 + 4)?;
            over::<Bitmap4>(r)
        }
        Op4::GetDeviceList => fixed(r, 4 + 4 + 8 + 8),
        Op4::LayoutCommit => {
            fixed(r, 8 + 8 + 4)?;
            over::<StateId4>(r)?;
            if r.bool()? {
                fixed(r, 8)?;
            }
            if r.bool()? {
                fixed(r, 12)?;
            }
            layout_update(r)
        }
        Op4::LayoutGet => {
            fixed(r, 4 + 4 + 4 + 8 + 8 + 8)?;
            over::<StateId4>(r)?;
            fixed(r, 4)
        }
        Op4::LayoutReturn => {
            fixed(r, 4 + 4 + 4)?;
            // LAYOUTRETURN4_FILE
            if r.u32()? != 1 {
                return Ok(Argument::Nothing);
            }
            fixed(r, 8 + 8)?;
            over::<StateId4>(r)?;
            opaque(r)
        }
        Op4::LayoutError => {
            fixed(r, 8 + 8)?;
            over::<StateId4>(r)?;
            let count = r.u32()?;
            if count > LIST_MAX {
                return Err(XdrError::TooLong { length: count, max: LIST_MAX });
            }
            for _ in 0..count {
                fixed(r, 16 + 4 + 4)?;
            }
            Ok(Argument::Nothing)
        }
        Op4::LayoutStats => {
            fixed(r, 8 + 8)?;
            over::<StateId4>(r)?;
            // Operations and bytes, read and written; the device.
            fixed(r, 2 * (8 + 8) + 16)?;
            layout_update(r)
        }
        other => Err(XdrError::BadValue { what: "nfs_opnum4", value: other as u32 }),
    }
}

fn layout_update(r: &mut Reader<'_>) -> Result<Argument, XdrError> {
    fixed(r, 4)?;
    opaque(r)
}

fn fixed(r: &mut Reader<'_>, length: usize) -> Result<Argument, XdrError> {
    r.fixed_opaque(length).map(|_| Argument::Nothing)
}

fn opaque(r: &mut Reader<'_>) -> Result<Argument, XdrError> {
    r.opaque(OPAQUE_BYTES_MAX).map(|_| Argument::Nothing)
}
