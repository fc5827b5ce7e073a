//! The MOUNT protocol, versions 1 and 2 (RFC 1094 appendix A) and 3 (RFC 1813 appendix I).

mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

use parking_lot::Mutex;
use smallvec::SmallVec;
use steadfast_shares::{ClientPattern, Decision, Flavor};
use steadfast_vfs::{Caller, Cred, FileKind, FsError, StorageHandle, Waiting};
use steadfast_xdr::{Reader, Writer, XdrError};

use crate::ExportTable;
use crate::call::{Complaint, MountRefusal, Stage};
use crate::export::Exported;
use crate::session::{Outcome, Session};

/// Longest path (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;
/// What is told of a path that was refused.
const PATH_BYTES_TOLD: usize = 256;
/// Most mounts remembered for DUMP, and most bytes of its reply. The list is for people to look
/// at; nothing depends on it.
const MOUNTS_MAX: usize = 64_000;
const MOUNT_SHARDS: usize = 32;
const DUMP_BYTES_MAX: usize = 256 << 10;
/// What an entry of that reply has beside its path, at the least.
const DUMP_ENTRY_BYTES: usize = 24;
/// Size of a handle in versions 1 and 2.
const HANDLE_BYTES: usize = 32;

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

/// Appends the result of a call that cannot be decided, nor wait.
pub(crate) fn refuse_for_now(reply: &mut Vec<u8>) {
    Writer::new(reply).u32(status(FsError::TryLater));
}

/// Who has mounted what, as far as clients told (DUMP). A client's mounts are in one shard, so
/// that a storm of clients does not wait for one lock.
#[derive(Default)]
pub(crate) struct MountList([Mutex<Mounts>; MOUNT_SHARDS]);

/// Clients with the paths that they have mounted.
#[derive(Default)]
struct Mounts {
    by_client: BTreeMap<IpAddr, BTreeSet<Box<[u8]>>>,
    count: usize,
}

impl MountList {
    fn shard(&self, client: IpAddr) -> &Mutex<Mounts> {
        let last_byte = match client {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let [first, ..] = &self.0;
        self.0.get(usize::from(last_byte) % MOUNT_SHARDS).unwrap_or(first)
    }

    fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.shard(client).lock();
        if mounts.count < MOUNTS_MAX / MOUNT_SHARDS {
            let is_new = mounts.by_client.entry(client).or_default().insert(path.into());
            mounts.count += usize::from(is_new);
        }
    }

    fn remove(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.shard(client).lock();
        let Some(paths) = mounts.by_client.get_mut(&client) else { return };
        let was_there = paths.remove(path);
        if paths.is_empty() {
            mounts.by_client.remove(&client);
        }
        mounts.count -= usize::from(was_there);
    }

    fn remove_all(&self, client: IpAddr) {
        let mut mounts = self.shard(client).lock();
        let gone = mounts.by_client.remove(&client);
        mounts.count -= gone.map_or(0, |paths| paths.len());
    }

    /// Some of them, in the order of the clients' addresses: no more bytes than a reply takes.
    fn some(&self) -> BTreeMap<IpAddr, Vec<Box<[u8]>>> {
        let mut bytes = 0;
        let mut some = BTreeMap::new();
        for shard in &self.0 {
            for (client, paths) in &shard.lock().by_client {
                for path in paths {
                    bytes += path.len() + DUMP_ENTRY_BYTES;
                    if bytes > DUMP_BYTES_MAX {
                        return some;
                    }
                    some.entry(*client).or_insert_with(Vec::new).push(path.clone());
                }
            }
        }
        some
    }
}

/// Runs a procedure; `None` for a number that does not exist.
pub(crate) fn execute(
    version: u32,
    procedure: u32,
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Option<Result<Outcome, XdrError>> {
    let mut w = Writer::new(reply);
    let result = match procedure {
        0 => Ok(()),
        1 => match arguments.opaque(PATH_BYTES_MAX) {
            Ok(path) => return Some(Ok(mnt(version, session, path, &mut w))),
            Err(error) => Err(error),
        },
        2 => {
            dump(session, &mut w);
            Ok(())
        }
        3 => arguments.opaque(PATH_BYTES_MAX).map(|path| {
            let client = session.peer.address.ip();
            session.engine.mounts.remove(client, &normalized(path).unwrap_or_default());
        }),
        4 => {
            session.engine.mounts.remove_all(session.peer.address.ip());
            Ok(())
        }
        5 => {
            exports(session, reply);
            Ok(())
        }
        6 if version < 3 => {
            exports(session, reply);
            Ok(())
        }
        _ => return None,
    };
    Some(result.map(|()| Outcome::Done))
}

fn mnt(version: u32, session: &mut Session<'_>, path: &[u8], w: &mut Writer<'_>) -> Outcome {
    let mut share = None;
    let found = normalized(path).and_then(|path| {
        session.host.stage(Stage::Access);
        let exports = session.exports;
        let (exported, below) = exports.by_path(&path).ok_or(FsError::NotFound)?;
        share = Some(exported.export.share.id);
        let (flavors, handle) = find(session, exported, below)?;
        let sealed = session.seal(&exported.export.share, &handle);
        if version < 3 && sealed.as_bytes().len() > HANDLE_BYTES {
            return Err(FsError::NotSupported);
        }
        session.engine.mounts.add(session.peer.address.ip(), &path);
        Ok((sealed, flavors))
    });
    match (found, share) {
        // MOUNT has no word for "later": the client's patience is longer than ours.
        (Err(FsError::TryLater), Some(share))
            if session.may_wait && session.lacks_room.is_none() =>
        {
            return Outcome::AskAgain(share);
        }
        (Err(error), share) => {
            let is_draining =
                session.exports.by_path(path).is_some_and(|(it, _)| it.export.share.is_draining);
            let why = match (error, share) {
                (_, None) => MountRefusal::NoShare,
                (FsError::AccessDenied, _) if is_draining => MountRefusal::Draining,
                (FsError::AccessDenied, _) => MountRefusal::NoAccess,
                (FsError::NotFound | FsError::NotDirectory, _) => MountRefusal::NoDirectory(error),
                (FsError::TryLater, _) => MountRefusal::NotNow(error),
                _ => MountRefusal::Failed(error),
            };
            let told = path.get(..path.len().min(PATH_BYTES_TOLD)).unwrap_or(path);
            let path = String::from_utf8_lossy(told).into_owned();
            // Another time it may be executed again, and said already what is in the way.
            if session.complaint.is_none() && session.lacks_room.is_none() {
                *session.complaint = Some(Complaint::MountRefused { path, why });
            }
            w.u32(status(error));
        }
        (Ok((sealed, _)), _) if version < 3 => {
            w.u32(0);
            let mut fixed = [0; HANDLE_BYTES];
            for (to, from) in fixed.iter_mut().zip(sealed.as_bytes()) {
                *to = *from;
            }
            w.fixed_opaque(&fixed);
        }
        (Ok((sealed, flavors)), _) => {
            w.u32(0);
            w.opaque(sealed.as_bytes());
            w.u32(flavors.len() as u32);
            for number in flavors {
                w.u32(number);
            }
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
fn flavors(session: &Session<'_>, exported: &Exported) -> Result<SmallVec<[u32; 4]>, FsError> {
    let rules = &exported.export.share.rules;
    let mut numbers = SmallVec::new();
    let mut is_pending = false;
    for (flavor, number) in [(Flavor::Sys, 1), (Flavor::None, 0)] {
        match session.engine.authority.decide(rules, &session.peer.question(flavor)) {
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
    session: &mut Session<'a>,
    exported: &'a Exported,
    below: &[u8],
) -> Result<(SmallVec<[u32; 4]>, StorageHandle), FsError> {
    let share = &exported.export.share;
    if share.is_draining {
        return Err(FsError::AccessDenied);
    }
    let mut by_flavors = flavors(session, exported)?;
    // So that the first call on the handle finds it known.
    let _ = session.rights(exported);
    let storage = session.storage(exported)?;
    session.may_block_for(storage, share)?;
    session.host.stage(Stage::Storage);
    let superuser = Cred { uid: 0, gid: 0, groups: SmallVec::new() };
    let caller = Caller::new(&superuser, Waiting::Allowed);
    let entry = walk::walk(storage, &caller, share.directory(), below)?;
    if share.crosses_mounts {
        let ruling = session.ruling(exported, &entry.handle)?;
        if ruling.export.share.id != share.id {
            if ruling.export.share.is_draining {
                return Err(FsError::AccessDenied);
            }
            by_flavors = flavors(session, ruling)?;
            let _ = session.rights(ruling);
        }
    }
    // A file below a share may be mounted (diskless clients mount their swap file).
    match entry.attr.kind {
        FileKind::Directory => Ok((by_flavors, entry.handle)),
        FileKind::Regular if !below.is_empty() => Ok((by_flavors, entry.handle)),
        _ => Err(FsError::NotDirectory),
    }
}

fn dump(session: &Session<'_>, w: &mut Writer<'_>) {
    for (client, paths) in &session.engine.mounts.some() {
        let client = client.to_canonical().to_string();
        for path in paths {
            w.bool(true);
            w.opaque(client.as_bytes());
            w.opaque(path);
        }
    }
    w.bool(false);
}

fn exports(session: &mut Session<'_>, reply: &mut Vec<u8>) {
    let listing = if let Some(listing) = session.exports.listing() {
        listing
    } else {
        // To make it takes its time where there are many shares.
        session.host.will_block();
        session.exports.listing_made_by(listing)
    };
    reply.extend_from_slice(&listing);
}

/// All exports that take new clients, with the patterns of their rules (RFC 1813 §5.2.5).
fn listing(exports: &ExportTable) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let mut text = String::new();
    for export in exports.sorted() {
        if export.share.is_draining {
            continue;
        }
        w.bool(true);
        w.opaque(export.share.path.as_bytes());
        for rule in export.share.rules.rules() {
            w.bool(true);
            text.clear();
            let written = match &rule.pattern {
                // With its length always, as other servers do.
                ClientPattern::Network { network, prefix_bits } => {
                    write!(text, "{network}/{prefix_bits}")
                }
                pattern => write!(text, "{pattern}"),
            };
            debug_assert!(written.is_ok(), "a string takes all");
            w.opaque(text.as_bytes());
        }
        w.bool(false);
    }
    w.bool(false);
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

    #[test]
    fn mounts_are_listed_by_client_until_they_are_taken_back() {
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let list = MountList::default();
        for (client, path) in [(other, "/b"), (one, "/b"), (one, "/a"), (one, "/a")] {
            list.add(client, path.as_bytes());
        }
        let listed = |list: &MountList| -> Vec<(IpAddr, Vec<u8>)> {
            let all = list.some().into_iter();
            all.flat_map(|(of, paths)| paths.into_iter().map(move |path| (of, path.into_vec())))
                .collect()
        };
        let entry = |client, path: &str| (client, path.as_bytes().to_vec());
        assert_eq!(listed(&list), [entry(one, "/a"), entry(one, "/b"), entry(other, "/b")]);
        list.remove(one, b"/b");
        list.remove(one, b"/c");
        list.remove(other, b"/b");
        list.remove(other, b"/b");
        assert_eq!(listed(&list), [entry(one, "/a")]);
        // As many as there is room for, of one client too; what goes makes room.
        let room = MOUNTS_MAX / MOUNT_SHARDS;
        for path in 0..room {
            list.add(one, format!("/{path:05}").as_bytes());
        }
        assert_eq!(list.shard(one).lock().count, room);
        list.remove_all(one);
        list.remove_all(one);
        assert_eq!(list.shard(one).lock().count, 0);
        list.add(one, b"/c");
        assert_eq!(listed(&list), [entry(one, "/c")]);
    }
}
