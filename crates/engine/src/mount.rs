//! The MOUNT protocol, versions 1 and 2 (RFC 1094 appendix A) and 3 (RFC 1813 appendix I).

pub(crate) mod list;
mod walk;

use smallvec::SmallVec;
use steadfast_shares::{ClientPattern, Decision, Flavor};
use steadfast_vfs::{Caller, Cred, FileKind, FsError, StorageHandle, Waiting};
use steadfast_wire::mount::{
    DirPath, ExportEntry, FhStatus, Group, MountEntry, MountRes3, Mounted3,
};
use steadfast_wire::nfs3::NfsFh3;
use steadfast_wire::{List, ListWriter};
use steadfast_xdr::{Encode, Writer};

use crate::call::{Call, Outcome};
use crate::complaint::{Complaint, MountRefusal, told_path};
use crate::export::{ExportTable, Exported};
use crate::host::Stage;
use crate::operation::Operation;
use crate::program::{Ignored, Null, Port, Procedure, Program, Row, Version};
use crate::reply::ReplyBuffer;
use crate::wire_handle::{FIXED_HANDLE_BYTES, SealedHandle};

/// The one place where MOUNT's status codes are made. Versions 1 and 2 have UNIX's numbers,
/// which are these but for the last two; to their clients those are merely a failure.
fn status(error: FsError) -> u32 {
    match error {
        FsError::NotPermitted => 1,
        FsError::NotFound | FsError::Stale => 2,
        FsError::AccessDenied => 13,
        FsError::NotDirectory => 20,
        FsError::Invalid | FsError::BadHandle => 22,
        FsError::NameTooLong => 63,
        FsError::NotSupported => 10_004,
        FsError::TryLater | FsError::WouldBlock | FsError::WouldOpen => 10_006,
        _ => 5,
    }
}

/// MOUNT.
pub(crate) const PROGRAM: Program = Program {
    name: "mount",
    number: steadfast_wire::mount::PROGRAM,
    port: Port::Nfs,
    versions: &[
        Version::new(1, PROCEDURES_OF_1_AND_2),
        Version::new(2, PROCEDURES_OF_1_AND_2),
        Version::new(3, PROCEDURES_OF_3),
    ],
};

/// Versions 1 and 2 (RFC 1094 appendix A) by number.
const PROCEDURES_OF_1_AND_2: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<Mnt<false>>(),
    Row::of::<Dump>(),
    Row::of::<Umnt>(),
    Row::of::<Umntall>(),
    Row::of::<Export>(),
    Row::of::<Exportall>(),
];

/// Version 3 (RFC 1813 appendix I) by number.
const PROCEDURES_OF_3: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<Mnt<true>>(),
    Row::of::<Dump>(),
    Row::of::<Umnt>(),
    Row::of::<Umntall>(),
    Row::of::<Export>(),
];

/// MNT. Version 3 tells of flavours, and has handles of any length.
struct Mnt<const IS_VERSION_3: bool>;

impl<const IS_VERSION_3: bool> Procedure for Mnt<IS_VERSION_3> {
    const OPERATION: Operation = Operation::reads("MNT", status, 0);
    type Arguments<'a> = DirPath<'a>;

    fn run(call: &mut Call<'_>, arguments: &DirPath<'_>, reply: &mut ReplyBuffer) -> Outcome {
        mnt(IS_VERSION_3, call, arguments.path, &mut Writer::new(&mut reply.bytes))
    }
}

struct Dump;

impl Procedure for Dump {
    const OPERATION: Operation = Operation::answers("DUMP");
    type Arguments<'a> = Ignored;

    fn run(call: &mut Call<'_>, _: &Ignored, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let mut list = ListWriter::new(&mut w);
        for (client, paths) in &call.shared.mounts.some() {
            let client = client.to_canonical().to_string();
            for directory in paths {
                list.push(&MountEntry { hostname: client.as_bytes(), directory });
            }
        }
        list.end();
        Outcome::Done
    }
}

struct Umnt;

impl Procedure for Umnt {
    const OPERATION: Operation = Operation::answers("UMNT");
    type Arguments<'a> = DirPath<'a>;

    fn run(call: &mut Call<'_>, arguments: &DirPath<'_>, _: &mut ReplyBuffer) -> Outcome {
        let path = normalized(arguments.path).unwrap_or_default();
        call.shared.mounts.remove(call.peer.address.ip(), &path);
        Outcome::Done
    }
}

struct Umntall;

impl Procedure for Umntall {
    const OPERATION: Operation = Operation::answers("UMNTALL");
    type Arguments<'a> = Ignored;

    fn run(call: &mut Call<'_>, _: &Ignored, _: &mut ReplyBuffer) -> Outcome {
        call.shared.mounts.remove_all(call.peer.address.ip());
        Outcome::Done
    }
}

struct Export;

impl Procedure for Export {
    const OPERATION: Operation = Operation::answers("EXPORT");
    type Arguments<'a> = Ignored;

    fn run(call: &mut Call<'_>, _: &Ignored, reply: &mut ReplyBuffer) -> Outcome {
        exports(call, &mut reply.bytes)
    }
}

struct Exportall;

impl Procedure for Exportall {
    const OPERATION: Operation = Operation::answers("EXPORTALL");
    type Arguments<'a> = Ignored;

    fn run(call: &mut Call<'_>, _: &Ignored, reply: &mut ReplyBuffer) -> Outcome {
        exports(call, &mut reply.bytes)
    }
}

/// What MNT grants.
enum Granted {
    /// Versions 1 and 2: the handle.
    Fixed([u8; FIXED_HANDLE_BYTES]),
    /// Version 3: the handle, and by which flavours it may be used.
    Any(SealedHandle, SmallVec<[u32; 4]>),
}

fn mnt(is_version_3: bool, call: &mut Call<'_>, path: &[u8], w: &mut Writer<'_>) -> Outcome {
    let mut share = None;
    let found = normalized(path).and_then(|path| {
        call.host.stage(Stage::Access);
        let exports = call.exports;
        let (exported, below) = exports.by_path(&path).ok_or(FsError::NotFound)?;
        share = Some(exported.export.share.id);
        // So that one that waits is told with its share.
        call.subject.share = share;
        let (flavors, handle) = find(call, exported, below)?;
        let share = &exported.export.share;
        let granted = if is_version_3 {
            Granted::Any(call.seal(share, &handle), flavors)
        } else {
            Granted::Fixed(call.seal_fixed(share, &handle)?)
        };
        call.shared.mounts.add(call.peer.address.ip(), &path);
        Ok(granted)
    });
    let found = match (found, share) {
        // MOUNT has no word for "later": the client's patience is longer than ours.
        (Err(error @ FsError::TryLater), Some(share)) if call.lacks_room.is_none() => {
            Err(call.for_names(error, share))
        }
        (found, _) => found,
    };
    match (found, share) {
        (Err(error), share) => {
            let is_draining =
                call.exports.by_path(path).is_some_and(|(it, _)| it.export.share.is_draining);
            let why = match (error, share) {
                (_, None) => MountRefusal::NoShare,
                (FsError::AccessDenied, _) if is_draining => MountRefusal::Draining,
                (FsError::AccessDenied, _) => MountRefusal::NoAccess,
                (FsError::NotFound | FsError::NotDirectory, _) => MountRefusal::NoDirectory(error),
                (FsError::TryLater, _) => MountRefusal::NotNow(error),
                (FsError::NotSupported, _) if !is_version_3 => MountRefusal::LongHandles,
                _ => MountRefusal::Failed(error),
            };
            let path = told_path(path);
            // Another time it may be executed again, and said already what is in the way.
            let is_due_again = call.lacks_room.is_some() || call.wait.is_due_again();
            if call.complaint.is_none() && !is_due_again {
                call.complaint = Some(Complaint::MountRefused { path, why });
            }
            if is_version_3 {
                MountRes3::Failed(status(error)).encode(w);
            } else {
                FhStatus::Failed(status(error)).encode(w);
            }
        }
        (Ok(Granted::Fixed(handle)), _) => FhStatus::Ok(handle).encode(w),
        (Ok(Granted::Any(sealed, auth_flavors)), _) => {
            let fhandle = NfsFh3(sealed.as_bytes());
            MountRes3::Ok(Mounted3 { fhandle, auth_flavors }).encode(w);
        }
    }
    Outcome::Done
}

/// The flavours by which a client may use an export, as their numbers (RFC 2623 §2.7), those that
/// prove most first. Only those that are served: a client takes the first that it knows, and does
/// not come back for another one when that is refused.
///
/// # Errors
/// `AccessDenied` if there are none, `TryLater` while a name that decides is being looked up.
fn flavors(call: &Call<'_>, exported: &Exported) -> Result<SmallVec<[u32; 4]>, FsError> {
    let rules = &exported.export.share.rules;
    let mut numbers = SmallVec::new();
    let mut is_pending = false;
    for (flavor, number) in [(Flavor::Sys, 1), (Flavor::None, 0)] {
        match call.shared.authority.decide(rules, &call.peer.question(flavor)) {
            Decision::Granted(_) => numbers.push(number),
            Decision::Refused(_) => {}
            Decision::Pending => is_pending = true,
        }
    }
    match numbers.is_empty() {
        false => Ok(numbers),
        true if is_pending => Err(FsError::TryLater),
        true => Err(FsError::AccessDenied),
    }
}

/// A path without doubled slashes and `.`; `..` is refused rather than guessed at.
fn normalized(path: &[u8]) -> Result<Vec<u8>, FsError> {
    if !path.starts_with(b"/") {
        return Err(FsError::NotFound);
    }
    let mut clean = Vec::with_capacity(path.len());
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(FsError::Invalid),
            name => {
                clean.push(b'/');
                clean.extend_from_slice(name);
            }
        }
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    Ok(clean)
}

/// The directory that a path within a share names, and by which flavours it may be used. Symbolic
/// links are followed inside the share.
fn find<'a>(
    call: &mut Call<'a>,
    exported: &'a Exported,
    below: &[u8],
) -> Result<(SmallVec<[u32; 4]>, StorageHandle), FsError> {
    let share = &exported.export.share;
    if share.is_draining {
        return Err(FsError::AccessDenied);
    }
    let mut by_flavors = flavors(call, exported)?;
    // So that the first call on the handle finds it known.
    let _ = call.rights(exported);
    let storage = call.storage(exported)?;
    call.may_block_for(storage, share)?;
    call.host.stage(Stage::Storage);
    let superuser = Cred { uid: 0, gid: 0, groups: SmallVec::new() };
    let caller = Caller::new(&superuser, Waiting::Allowed);
    let entry = walk::walk(storage, &caller, share.directory(), below)?;
    if share.crosses_mounts {
        let ruling = call.ruling(exported, &entry.handle)?;
        if ruling.export.share.id != share.id {
            if ruling.export.share.is_draining {
                return Err(FsError::AccessDenied);
            }
            by_flavors = flavors(call, ruling)?;
            let _ = call.rights(ruling);
        }
    }
    // A file below a share may be mounted (diskless clients mount their swap file).
    match entry.attr.kind {
        FileKind::Directory => Ok((by_flavors, entry.handle)),
        FileKind::Regular if !below.is_empty() => Ok((by_flavors, entry.handle)),
        _ => Err(FsError::NotDirectory),
    }
}

fn exports(call: &mut Call<'_>, reply: &mut Vec<u8>) -> Outcome {
    let listing = if let Some(listing) = call.exports.listing() {
        listing
    } else {
        // To make it takes its time where there are many shares.
        call.host.will_block();
        call.exports.listing_made_by(listing)
    };
    reply.extend_from_slice(&listing);
    Outcome::Done
}

/// All exports that take new clients, with the patterns of their rules (RFC 1813 §5.2.5).
fn listing(exports: &ExportTable) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let mut list = ListWriter::new(&mut w);
    for export in exports.sorted() {
        if export.share.is_draining {
            continue;
        }
        let names = export.share.rules.rules().iter().map(|rule| match &rule.pattern {
            // With its length always, as other servers do.
            ClientPattern::Network { network, prefix_bits } => format!("{network}/{prefix_bits}"),
            pattern => pattern.to_string(),
        });
        let names: Vec<String> = names.collect();
        let groups = names.iter().map(|name| Group { name: name.as_bytes() });
        let groups = List(groups.collect());
        list.push(&ExportEntry { directory: export.share.path.as_bytes(), groups });
    }
    list.end();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized() {
        assert_eq!(normalized(b"/a//b/./c/").unwrap(), b"/a/b/c");
        assert_eq!(normalized(b"//").unwrap(), b"/");
        assert_eq!(normalized(b"/a/../b").unwrap_err(), FsError::Invalid);
        assert_eq!(normalized(b"a").unwrap_err(), FsError::NotFound);
    }
}
