//! What a call and its reply say, whatever the program.

use steadfast_rpc::Credentials;
use steadfast_wire::mount::{DirPath, FhStatus, MountRes3};
use steadfast_wire::nfs2::{self, NfsFh2};
use steadfast_wire::nfs3::{self, NfsFh3};
use steadfast_wire::nlm;
use steadfast_wire::rpc::{CallHeader, RPCSEC_GSS, ReplyHeader};
use steadfast_wire::rpcbind::{Binding, BindingList, Mapping, MappingList, UniversalAddress};
use steadfast_wire::{mount, nfsacl, recovery, rpcbind};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::compound::{CallbackCall, CompoundCall, Executed};
use super::handle::{Handle, Names};
use super::programs::{self, COMPOUND, OperationKey, TRANSIENT};

/// Length of attributes in results of NFSv2 and NFSv3, and of those before a change, in bytes.
const FATTR2_BYTES: usize = 68;
const FATTR3_BYTES: usize = 84;
const WCC_ATTR3_BYTES: usize = 24;
/// Longest message in the envelope of `RPCSEC_GSS`.
const GSS_BYTES_MAX: usize = 17 << 20;

/// On whose behalf a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// A user's number, as the client claims (`AUTH_SYS`).
    Uid(u32),
    /// Nobody (`AUTH_NONE`).
    Nobody,
    /// A principal of Kerberos, whose name is not in the call.
    Gss,
    /// Credentials of another flavour, or damaged ones.
    Other,
}

/// What of a message is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// It can be read.
    Nothing,
    /// It can be read, in an envelope (krb5i).
    Integrity,
    /// It is encrypted (krb5p).
    Privacy,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Well.
    Ok,
    /// The protocol's own number for a failure.
    Failed(u32),
    /// RPC refused it: unknown program, bad credentials, and so on.
    Refused,
    /// It cannot be read.
    Unknown,
}

impl Status {
    fn of(number: u32) -> Self {
        if number == 0 { Self::Ok } else { Self::Failed(number) }
    }

    /// Whether it is a failure.
    pub fn is_error(self) -> bool {
        matches!(self, Self::Failed(_) | Self::Refused)
    }
}

/// What is kept of a call until its reply comes.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: OperationKey,
    pub(crate) user: User,
    pub(crate) protection: Protection,
    pub(crate) arguments: Arguments,
}

#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    Nothing,
    Object {
        handle: Option<Handle>,
        name: Option<Box<[u8]>>,
        bytes: u32,
    },
    Path(Box<[u8]>),
    /// The program whose port is asked for.
    PortOf(u32),
    Compound(CompoundCall),
    Callback(CallbackCall),
}

/// What a reply says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) status: Option<Status>,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    /// Whether operations of a COMPOUND were left out since they could not be read.
    pub(crate) is_partial: bool,
    /// Ports that became known.
    pub(crate) ports: Vec<u16>,
}

impl Call {
    /// The file of the call, or the first one of a COMPOUND.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match &self.arguments {
            Arguments::Object { handle, .. } => *handle,
            Arguments::Compound(call) => call.first_handle(),
            _ => None,
        }
    }

    pub(crate) fn name(&self) -> Option<&[u8]> {
        match &self.arguments {
            Arguments::Object { name, .. } => name.as_deref(),
            Arguments::Path(path) => Some(path),
            _ => None,
        }
    }

    /// Bytes of memory that its arguments take, beside its own.
    pub(crate) fn kept_bytes(&self) -> usize {
        match &self.arguments {
            Arguments::Object { name, .. } => name.as_ref().map_or(0, |name| name.len()),
            Arguments::Path(path) => path.len(),
            Arguments::Compound(call) => call.kept_bytes(),
            Arguments::Callback(call) => call.kept_bytes(),
            Arguments::Nothing | Arguments::PortOf(_) => 0,
        }
    }

    /// Ports that the call itself tells.
    pub(crate) fn port(&self) -> Option<u16> {
        match &self.arguments {
            Arguments::Compound(call) => call.callback_port(),
            _ => None,
        }
    }
}

/// The port of a universal address (RFC 5665 §5.2.3): its last two numbers.
pub(crate) fn universal_port(address: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(address).ok()?;
    let mut numbers = text.rsplit('.');
    let (low, high) = (numbers.next()?, numbers.next()?);
    let (low, high): (u8, u8) = (low.parse().ok()?, high.parse().ok()?);
    let port = u16::from_be_bytes([high, low]);
    (port != 0).then_some(port)
}

/// Reads a call, as far as it is there and understood; returns its xid too.
pub(crate) fn call(bytes: &[u8], names: &mut Names) -> Option<(u32, Call)> {
    let mut r = Reader::new(bytes);
    let header = CallHeader::decode(&mut r).ok()?;
    let (user, protection, is_control) = caller(&header);
    let key = OperationKey::procedure(header.prog, header.vers, header.proc_);
    let mut call = Call { key, user, protection, arguments: Arguments::Nothing };
    let arguments = match protection {
        _ if is_control => None,
        Protection::Nothing => Some(r),
        Protection::Integrity => integrity(&mut r),
        Protection::Privacy => None,
    };
    if let Some(mut r) = arguments
        && let Ok(read) = read_arguments(&key, &mut r, names)
    {
        call.key.minor = match &read {
            Arguments::Compound(compound) => Some(compound.minor),
            Arguments::Callback(compound) => Some(compound.minor),
            _ => None,
        };
        call.arguments = read;
    }
    Some((header.xid, call))
}

/// Who calls, how the call is protected, and whether it is about a context of GSS rather than a call
/// (RFC 2203 §5).
fn caller(header: &CallHeader<'_>) -> (User, Protection, bool) {
    if header.cred.flavor == RPCSEC_GSS {
        let mut r = Reader::new(header.cred.body);
        let mut word = || r.u32().unwrap_or(0);
        let (_version, procedure, _sequence, service) = (word(), word(), word(), word());
        let protection = match service {
            // What makes or ends a context is never in an envelope.
            _ if procedure != 0 => Protection::Nothing,
            2 => Protection::Integrity,
            3 => Protection::Privacy,
            _ => Protection::Nothing,
        };
        return (User::Gss, protection, procedure != 0);
    }
    let user = match Credentials::decode(&header.cred) {
        Ok(Credentials::Sys(identity)) => User::Uid(identity.uid),
        Ok(Credentials::None) => User::Nobody,
        Err(_) => User::Other,
    };
    (user, Protection::Nothing, false)
}

/// What is in an envelope of krb5i (RFC 2203 §5.3.2.2), behind its sequence number.
fn integrity<'a>(r: &mut Reader<'a>) -> Option<Reader<'a>> {
    let mut inner = Reader::new(r.opaque(GSS_BYTES_MAX).ok()?);
    inner.u32().ok()?;
    Some(inner)
}

fn object3(r: &mut Reader<'_>, names: &mut Names) -> Result<Handle, XdrError> {
    let bytes = NfsFh3::decode(r)?.0;
    let handle = Handle::of(bytes);
    names.note_handle(handle, bytes);
    Ok(handle)
}

fn object2(r: &mut Reader<'_>, names: &mut Names) -> Result<Handle, XdrError> {
    let bytes = NfsFh2::decode(r)?.0;
    let handle = Handle::of(bytes);
    names.note_handle(handle, bytes);
    Ok(handle)
}

fn read_arguments(
    key: &OperationKey,
    r: &mut Reader<'_>,
    names: &mut Names,
) -> Result<Arguments, XdrError> {
    if key.number == 0 {
        return Ok(Arguments::Nothing);
    }
    let object = |handle, name: Option<&[u8]>, bytes| Arguments::Object {
        handle: Some(handle),
        name: name.map(Into::into),
        bytes,
    };
    Ok(match (key.program, key.version, key.number) {
        (nfs3::PROGRAM, 2, number) => {
            let handle = object2(r, names)?;
            match number {
                // LOOKUP, CREATE to RENAME, SYMLINK to RMDIR: a name behind the directory.
                4 | 9..=11 | 13..=15 => object(handle, r.opaque(nfs2::NAME_BYTES_MAX).ok(), 0),
                8 => {
                    r.fixed_opaque(12)?;
                    object(handle, None, r.u32()?)
                }
                _ => object(handle, None, 0),
            }
        }
        (nfs3::PROGRAM, 3, number) => {
            let handle = object3(r, names)?;
            match number {
                // LOOKUP, CREATE to RENAME.
                3 | 8..=14 => object(handle, r.opaque(nfs3::NAME_BYTES_MAX).ok(), 0),
                _ => object(handle, None, 0),
            }
        }
        (nfs3::PROGRAM, 4, COMPOUND) => Arguments::Compound(CompoundCall::decode(r, names)?),
        (nfsacl::PROGRAM, 3, _) | (recovery::PROGRAM, _, _) => object(object3(r, names)?, None, 0),
        (nfsacl::PROGRAM, 2, _) => object(object2(r, names)?, None, 0),
        (mount::PROGRAM, _, 1 | 3) => Arguments::Path(DirPath::decode(r)?.path.into()),
        (nlm::PROGRAM, version, number) => {
            let handle = lock_handle(version, number, r)?.map(|bytes| {
                let handle = Handle::of(bytes);
                names.note_handle(handle, bytes);
                handle
            });
            Arguments::Object { handle, name: None, bytes: 0 }
        }
        (rpcbind::PROGRAM, 2, 3) => Arguments::PortOf(Mapping::decode(r)?.prog),
        (rpcbind::PROGRAM, 3 | 4, 3 | 9) => Arguments::PortOf(Binding::decode(r)?.prog),
        (program, version, COMPOUND)
            if TRANSIENT.contains(&program) && programs::is_callback(program, version) =>
        {
            Arguments::Callback(CallbackCall::decode(r, names)?)
        }
        _ => Arguments::Nothing,
    })
}

/// The handle of a file that is locked.
fn lock_handle<'a>(
    version: u32,
    number: u32,
    r: &mut Reader<'a>,
) -> Result<Option<&'a [u8]>, XdrError> {
    use nlm::{v1, v4};
    Ok(Some(match (version, number) {
        (4, 1 | 5 | 6 | 10) => v4::TestArgs::decode(r)?.lock.fh,
        (4, 2 | 7 | 22) => v4::LockArgs::decode(r)?.lock.fh,
        (4, 3 | 8) => v4::CancelArgs::decode(r)?.lock.fh,
        (4, 4 | 9) => v4::UnlockArgs::decode(r)?.lock.fh,
        (4, 20 | 21) => v4::ShareArgs::decode(r)?.fh,
        (_, 1 | 5 | 6 | 10) => v1::TestArgs::decode(r)?.lock.fh,
        (_, 2 | 7 | 22) => v1::LockArgs::decode(r)?.lock.fh,
        (_, 3 | 8) => v1::CancelArgs::decode(r)?.lock.fh,
        (_, 4 | 9) => v1::UnlockArgs::decode(r)?.lock.fh,
        (_, 20 | 21) => v1::ShareArgs::decode(r)?.fh,
        _ => return Ok(None),
    }))
}

/// Reads the reply to a call. `take` gets the operations of a COMPOUND.
pub(crate) fn reply(
    bytes: &[u8],
    call: &Call,
    names: &mut Names,
    take: &mut dyn FnMut(&Executed<'_>),
) -> Option<Outcome> {
    let mut r = Reader::new(bytes);
    let header = ReplyHeader::decode(&mut r).ok()?;
    if !header.is_success() {
        return Some(Outcome { status: Some(Status::Refused), ..Outcome::default() });
    }
    let mut outcome = Outcome::default();
    let inner = match call.protection {
        Protection::Nothing => Some(r),
        Protection::Integrity => integrity(&mut r),
        Protection::Privacy => None,
    };
    let Some(mut r) = inner else { return Some(outcome) };
    // What cannot be read leaves the outcome as far as it was.
    let _ = read_results(call, &mut r, names, take, &mut outcome);
    Some(outcome)
}

fn read_results(
    call: &Call,
    r: &mut Reader<'_>,
    names: &mut Names,
    take: &mut dyn FnMut(&Executed<'_>),
    outcome: &mut Outcome,
) -> Result<(), XdrError> {
    let key = &call.key;
    if key.number == 0 {
        outcome.status = Some(Status::Ok);
        return Ok(());
    }
    match (&call.arguments, key.program, key.version) {
        (Arguments::Compound(compound), ..) => {
            let mut sums = (0, 0);
            let (status, is_whole) = compound.executed(r, names, &mut |part| {
                sums = (sums.0 + part.read_bytes, sums.1 + part.written_bytes);
                take(part);
            })?;
            outcome.status = Some(Status::of(status));
            (outcome.read_bytes, outcome.written_bytes) = sums;
            outcome.is_partial = !is_whole;
        }
        (Arguments::Callback(compound), ..) => {
            let (status, is_whole) = compound.executed(r, take)?;
            outcome.status = Some(Status::of(status));
            outcome.is_partial = !is_whole;
        }
        (_, nfs3::PROGRAM, 4) => outcome.status = Some(Status::of(r.u32()?)),
        (_, nfs3::PROGRAM, 3) => {
            outcome.status = Some(Status::of(r.u32()?));
            nfs3_results(call, r, names, outcome)?;
        }
        (_, nfs3::PROGRAM, 2) => nfs2_results(call, r, names, outcome)?,
        (_, recovery::PROGRAM, 1) if matches!(key.number, recovery::WRITEZ | recovery::READZ) => {
            outcome.status = Some(Status::of(r.u32()?));
            if outcome.status == Some(Status::Ok) {
                data_results(key.number == recovery::READZ, r, outcome)?;
            }
        }
        (_, nfsacl::PROGRAM | recovery::PROGRAM, _) => {
            outcome.status = Some(Status::of(r.u32()?));
        }
        (Arguments::Path(path), mount::PROGRAM, version) if key.number == 1 => {
            mount_results(version, path, r, names, outcome)?;
        }
        (_, nlm::PROGRAM, _) => {
            outcome.status = Some(Status::Ok);
            if matches!(key.number, 1..=5 | 20..=22) {
                r.opaque(nlm::OBJECT_BYTES_MAX)?;
                // A lock that the client waits for is no failure.
                outcome.status = Some(match r.u32()? {
                    3 => Status::Ok,
                    number => Status::of(number),
                });
            }
        }
        (_, rpcbind::PROGRAM, version) => {
            outcome.status = Some(Status::Ok);
            ports(version, call, r, outcome)?;
        }
        _ => outcome.status = Some(Status::Ok),
    }
    Ok(())
}

fn nfs3_results(
    call: &Call,
    r: &mut Reader<'_>,
    names: &mut Names,
    outcome: &mut Outcome,
) -> Result<(), XdrError> {
    if outcome.status != Some(Status::Ok) {
        return Ok(());
    }
    match call.key.number {
        3 => made3(call, r, names)?,
        6 | 7 => data_results(call.key.number == 6, r, outcome)?,
        // CREATE to MKNOD may tell the handle.
        8..=11 if r.bool()? => made3(call, r, names)?,
        _ => {}
    }
    Ok(())
}

/// How many bytes were read or written: of READ and WRITE, also of data that is compressed on its way.
fn data_results(is_read: bool, r: &mut Reader<'_>, outcome: &mut Outcome) -> Result<(), XdrError> {
    if !is_read && r.bool()? {
        r.fixed_opaque(WCC_ATTR3_BYTES)?;
    }
    attributes3(r)?;
    let bytes = u64::from(r.u32()?);
    *(if is_read { &mut outcome.read_bytes } else { &mut outcome.written_bytes }) = bytes;
    Ok(())
}

/// A handle that was returned for the call's name.
fn made3(call: &Call, r: &mut Reader<'_>, names: &mut Names) -> Result<(), XdrError> {
    let bytes = NfsFh3::decode(r)?.0;
    let handle = Handle::of(bytes);
    names.note_handle(handle, bytes);
    if let Some(name) = call.name() {
        names.note_file(handle, name);
    }
    Ok(())
}

fn attributes3(r: &mut Reader<'_>) -> Result<(), XdrError> {
    if r.bool()? {
        r.fixed_opaque(FATTR3_BYTES)?;
    }
    Ok(())
}

fn nfs2_results(
    call: &Call,
    r: &mut Reader<'_>,
    names: &mut Names,
    outcome: &mut Outcome,
) -> Result<(), XdrError> {
    // ROOT and WRITECACHE return nothing.
    if matches!(call.key.number, 3 | 7) {
        outcome.status = Some(Status::Ok);
        return Ok(());
    }
    let status = Status::of(r.u32()?);
    outcome.status = Some(status);
    if status != Status::Ok {
        return Ok(());
    }
    match call.key.number {
        4 | 9 | 14 => {
            let bytes = NfsFh2::decode(r)?.0;
            let handle = Handle::of(bytes);
            names.note_handle(handle, bytes);
            if let Some(name) = call.name() {
                names.note_file(handle, name);
            }
        }
        6 => {
            r.fixed_opaque(FATTR2_BYTES)?;
            outcome.read_bytes = u64::from(r.u32()?);
        }
        8 => {
            if let Arguments::Object { bytes, .. } = call.arguments {
                outcome.written_bytes = u64::from(bytes);
            }
        }
        _ => {}
    }
    Ok(())
}

fn mount_results(
    version: u32,
    path: &[u8],
    r: &mut Reader<'_>,
    names: &mut Names,
    outcome: &mut Outcome,
) -> Result<(), XdrError> {
    let mut note = |bytes: &[u8]| names.note_share(Handle::of(bytes), path);
    let status = if version == 3 {
        match MountRes3::decode(r)? {
            MountRes3::Ok(mounted) => {
                note(mounted.fhandle.0);
                0
            }
            MountRes3::Failed(status) => status,
        }
    } else {
        match FhStatus::decode(r)? {
            FhStatus::Ok(handle) => {
                note(&handle);
                0
            }
            FhStatus::Failed(status) => status,
        }
    };
    outcome.status = Some(Status::of(status));
    Ok(())
}

/// Ports of programs that are worth watching, as rpcbind tells them.
fn ports(
    version: u32,
    call: &Call,
    r: &mut Reader<'_>,
    outcome: &mut Outcome,
) -> Result<(), XdrError> {
    let port = |number: u32| u16::try_from(number).ok().filter(|port| *port != 0);
    match (&call.arguments, version, call.key.number) {
        (Arguments::PortOf(program), 2, 3) if programs::is_worth_watching(*program) => {
            outcome.ports.extend(port(r.u32()?));
        }
        (Arguments::PortOf(program), 3 | 4, 3 | 9) if programs::is_worth_watching(*program) => {
            outcome.ports.extend(universal_port(UniversalAddress::decode(r)?.addr));
        }
        (_, 2, 4) => {
            let all = MappingList::decode(r)?.0;
            let found = all.iter().filter(|each| programs::is_worth_watching(each.prog));
            outcome.ports.extend(found.filter_map(|each| port(each.port)));
        }
        (_, 3 | 4, 4) => {
            let all = BindingList::decode(r)?.0;
            let found = all.iter().filter(|each| programs::is_worth_watching(each.prog));
            outcome.ports.extend(found.filter_map(|each| universal_port(each.addr)));
        }
        _ => {}
    }
    Ok(())
}
