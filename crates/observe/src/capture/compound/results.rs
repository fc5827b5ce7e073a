//! The results of each operation, behind its status.

use steadfast_wire::nfs3::DATA_BYTES_MAX;
use steadfast_wire::nfs4::{
    Access4Result, Ace4, BindConnToSession4Result, Bitmap4, ChangeInfo4, ClientInUse4, Content4,
    Copy4Result, CopyRequirements4, Create4Result, CreateSession4Result, ExchangeId4Result, Fattr4,
    GetFh4Result, GetXattr4Result, ListXattrs4Result, LockDenied4, NAME_BYTES_MAX, NetLoc4,
    NfsStat4, Op4, OpenDelegation4, ReadLink4Result, ReadPlus4Result, Rename4Result,
    SecInfo4Result, Seek4Result, Sequence4Result, SetClientId4Result, SpaceLimit4, StateId4,
    TestStateId4Result, Write4Result,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::{Executed, operation};

/// Longest opaque value that is walked over, in bytes.
const OPAQUE_BYTES_MAX: usize = 1 << 20;
/// Most elements of a list that is walked over.
const LIST_MAX: u32 = 4096;

type Got<'a> = Result<Option<&'a [u8]>, XdrError>;

/// Walks over a value.
fn over<'a, T: Decode<'a>>(r: &mut Reader<'a>) -> Got<'a> {
    T::decode(r).map(|_| None)
}

/// Reads a result; returns the handle that GETFH has. Bytes that were read and written go to `executed`.
pub(super) fn read<'a>(
    number: u32,
    status: u32,
    r: &mut Reader<'a>,
    executed: &mut Executed<'_>,
) -> Got<'a> {
    let Some(operation) = operation(number) else {
        return Err(XdrError::BadValue { what: "nfs_opnum4", value: number });
    };
    match (operation, status) {
        // Says what was set, also when it failed.
        (Op4::SetAttr, _) => over::<Bitmap4>(r),
        (_, 0) => succeeded(operation, r, executed),
        _ => failed(operation, status, r),
    }
}

fn failed<'a>(operation: Op4, status: u32, r: &mut Reader<'a>) -> Got<'a> {
    const DENIED: u32 = NfsStat4::Denied as u32;
    const IN_USE: u32 = NfsStat4::ClIdInUse as u32;
    const TOO_SMALL: u32 = NfsStat4::TooSmall as u32;
    const TRY_LATER: u32 = NfsStat4::LayoutTryLater as u32;
    const NO_REQUIREMENTS: u32 = NfsStat4::OffloadNoReqs as u32;
    match (operation, status) {
        (Op4::Lock | Op4::LockT, DENIED) => over::<LockDenied4<'_>>(r),
        (Op4::SetClientId, IN_USE) => over::<ClientInUse4<'_>>(r),
        (Op4::GetDeviceInfo, TOO_SMALL) | (Op4::LayoutGet, TRY_LATER) => fixed(r, 4),
        (Op4::Copy, NO_REQUIREMENTS) => over::<CopyRequirements4>(r),
        _ => Ok(None),
    }
}

fn succeeded<'a>(operation: Op4, r: &mut Reader<'a>, executed: &mut Executed<'_>) -> Got<'a> {
    match operation {
        Op4::GetFh => GetFh4Result::decode(r).map(|result| Some(result.object)),
        Op4::Read => {
            let _is_end = r.bool()?;
            // The length is told even if the data was not captured.
            executed.read_bytes = u64::from(r.clone().u32()?);
            r.opaque(DATA_BYTES_MAX)?;
            Ok(None)
        }
        Op4::Write => {
            executed.written_bytes = u64::from(Write4Result::decode(r)?.count);
            Ok(None)
        }
        Op4::ReadPlus => {
            let result = ReadPlus4Result::decode(r)?;
            let data = result.contents.iter().map(|content| match content {
                Content4::Data { data, .. } => data.len() as u64,
                Content4::Hole { .. } => 0,
            });
            executed.read_bytes = data.sum();
            Ok(None)
        }
        Op4::Access => over::<Access4Result>(r),
        Op4::Close | Op4::Lock | Op4::LockU | Op4::OpenConfirm | Op4::OpenDowngrade => {
            over::<StateId4>(r)
        }
        Op4::Commit => fixed(r, 8),
        Op4::Create => over::<Create4Result>(r),
        Op4::GetAttr => over::<Fattr4<'_>>(r),
        Op4::Link | Op4::Remove | Op4::SetXattr | Op4::RemoveXattr => over::<ChangeInfo4>(r),
        Op4::Open => opened(r),
        Op4::ReadDir => listing(r),
        Op4::ReadLink => over::<ReadLink4Result<'_>>(r),
        Op4::Rename => over::<Rename4Result>(r),
        Op4::SecInfo | Op4::SecInfoNoName => over::<SecInfo4Result<'_>>(r),
        Op4::Copy => over::<Copy4Result>(r),
        Op4::Seek => over::<Seek4Result>(r),
        Op4::IoAdvise => over::<Bitmap4>(r),
        Op4::GetXattr => over::<GetXattr4Result<'_>>(r),
        Op4::ListXattrs => over::<ListXattrs4Result<'_>>(r),
        Op4::OffloadStatus => {
            fixed(r, 8)?;
            list(r, 4)
        }
        Op4::CopyNotify => {
            fixed(r, 12)?;
            over::<StateId4>(r)?;
            for _ in 0..bounded(r)? {
                NetLoc4::decode(r)?;
            }
            Ok(None)
        }
        Op4::WriteSame => {
            list(r, 16)?;
            fixed(r, 8 + 4 + 8)
        }
        other => of_state(other, r),
    }
}

fn of_state<'a>(operation: Op4, r: &mut Reader<'a>) -> Got<'a> {
    match operation {
        Op4::SetClientId => over::<SetClientId4Result>(r),
        Op4::BindConnToSession => over::<BindConnToSession4Result>(r),
        Op4::ExchangeId => over::<ExchangeId4Result<'_>>(r),
        Op4::CreateSession => over::<CreateSession4Result>(r),
        Op4::Sequence => over::<Sequence4Result>(r),
        Op4::TestStateId => over::<TestStateId4Result>(r),
        Op4::WantDelegation => delegation(r),
        Op4::SetSsv => opaque(r),
        Op4::GetDirDelegation => {
            if r.u32()? != 0 {
                return fixed(r, 4);
            }
            fixed(r, 8 + 16)?;
            over::<Bitmap4>(r)?;
            over::<Bitmap4>(r)?;
            over::<Bitmap4>(r)
        }
        Op4::GetDeviceInfo => {
            fixed(r, 4)?;
            opaque(r)?;
            over::<Bitmap4>(r)
        }
        Op4::GetDeviceList => {
            fixed(r, 8 + 8)?;
            list(r, 16)?;
            fixed(r, 4)
        }
        Op4::LayoutCommit => {
            if r.bool()? {
                fixed(r, 8)
            } else {
                Ok(None)
            }
        }
        Op4::LayoutGet => {
            fixed(r, 4 + 16)?;
            for _ in 0..bounded(r)? {
                fixed(r, 8 + 8 + 4 + 4)?;
                opaque(r)?;
            }
            Ok(None)
        }
        Op4::LayoutReturn => {
            if r.bool()? {
                fixed(r, 16)
            } else {
                Ok(None)
            }
        }
        // All others have nothing.
        _ => Ok(None),
    }
}

/// An open, and what is delegated with it.
fn opened<'a>(r: &mut Reader<'a>) -> Got<'a> {
    over::<StateId4>(r)?;
    over::<ChangeInfo4>(r)?;
    fixed(r, 4)?;
    over::<Bitmap4>(r)?;
    delegation(r)
}

fn delegation<'a>(r: &mut Reader<'a>) -> Got<'a> {
    // OPEN_DELEGATE_READ_ATTRS_DELEG and its like for writing (RFC 9754 §5.1), which Steadfast does not give.
    const READ_ATTRIBUTES: u32 = 4;
    const WRITE_ATTRIBUTES: u32 = 5;
    let kind = r.clone().u32()?;
    if !matches!(kind, READ_ATTRIBUTES | WRITE_ATTRIBUTES) {
        return over::<OpenDelegation4<'_>>(r);
    }
    r.u32()?;
    over::<StateId4>(r)?;
    r.bool()?;
    if kind == WRITE_ATTRIBUTES {
        over::<SpaceLimit4>(r)?;
    }
    over::<Ace4<'_>>(r)
}

/// The entries of a directory.
fn listing<'a>(r: &mut Reader<'a>) -> Got<'a> {
    fixed(r, 8)?;
    while r.bool()? {
        fixed(r, 8)?;
        r.opaque(NAME_BYTES_MAX)?;
        over::<Fattr4<'_>>(r)?;
    }
    fixed(r, 4)
}

fn bounded(r: &mut Reader<'_>) -> Result<u32, XdrError> {
    let length = r.u32()?;
    if length > LIST_MAX {
        return Err(XdrError::TooLong { length, max: LIST_MAX });
    }
    Ok(length)
}

/// A counted array of elements of one size.
fn list<'a>(r: &mut Reader<'a>, element_bytes: usize) -> Got<'a> {
    for _ in 0..bounded(r)? {
        fixed(r, element_bytes)?;
    }
    Ok(None)
}

fn fixed<'a>(r: &mut Reader<'a>, length: usize) -> Got<'a> {
    r.fixed_opaque(length).map(|_| None)
}

fn opaque<'a>(r: &mut Reader<'a>) -> Got<'a> {
    r.opaque(OPAQUE_BYTES_MAX).map(|_| None)
}
