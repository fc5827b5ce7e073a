//! READDIR (RFC 8881 §18.23).
//!
//! Cookies are the storage's own positions, moved up by three since NFSv4 keeps 1 and 2 for
//! itself. They stay good while names come and go, so that the cookie verifier is always zero.

use steadfast_vfs::{Attr, DeviceNumber, DirEntry, FileKind, FsError, Time};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, NfsStat4, Op4, ReadDir4Args};
use steadfast_xdr::Writer;

use super::attributes::{
    acl_of, beside_file_system, change_of_node, encoded_acl, fsid, of_file_system, of_node,
};
use super::fattr::{self, Known, OfFileSystem, Owners};
use super::idmap::Naming;
use super::names::is_visible;
use super::status::OrStatus;
use crate::call::{Call, Target};
use crate::compound::{Op, Run};
use crate::progress::Object;
use crate::pseudo::Node;
use crate::reply::ReplyBuffer;

/// Cookies that mean something else.
const RESERVED: u64 = 3;
/// What a list costs besides its entries: cookie verifier, end of list, eof.
const LIST_BYTES: usize = 8 + 4 + 4;
/// What can be told of an entry without looking at its object.
const WITHOUT_OBJECT: Bitmap4 = Bitmap4::of(&[
    Attribute4::RdattrError,
    Attribute4::FileId,
    Attribute4::MountedOnFileId,
    Attribute4::SupportedAttrs,
]);
/// What is told of an entry whose object nobody has looked at, but for its number: nothing.
const NOTHING_KNOWN: Attr = Attr {
    kind: FileKind::Regular,
    mode: 0,
    links: 0,
    uid: 0,
    gid: 0,
    size: 0,
    used: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    fsid: 0,
    fileid: 0,
    atime: Time { seconds: 0, nanoseconds: 0 },
    mtime: Time { seconds: 0, nanoseconds: 0 },
    ctime: Time { seconds: 0, nanoseconds: 0 },
};
/// Entries that one READDIR tells with their access control lists.
const WITH_ACLS_MAX: usize = 128;
/// Shares that one READDIR of the pseudo file system opens.
const OPENED_MAX: u32 = 32;

/// The entries of a list, and the room that is left for more.
struct List<'l> {
    bytes: &'l mut Vec<u8>,
    /// For everything, in bytes.
    room: usize,
    /// For names and cookies alone: a hint, so that one entry is told whatever it says.
    names_room: usize,
    told: u32,
}

impl List<'_> {
    /// Appends an entry if there is room for it.
    fn tell(&mut self, cookie: u64, name: &[u8], attributes: impl FnOnce(&mut Writer<'_>)) -> bool {
        let names_bytes = 16 + name.len();
        if names_bytes > self.names_room && self.told > 0 {
            return false;
        }
        let start = self.bytes.len();
        let mut w = Writer::new(self.bytes);
        w.bool(true);
        w.u64(cookie);
        w.opaque(name);
        attributes(&mut w);
        let entry_bytes = self.bytes.len() - start;
        if entry_bytes > self.room {
            self.bytes.truncate(start);
            return false;
        }
        self.room -= entry_bytes;
        self.names_room = self.names_room.saturating_sub(names_bytes);
        self.told += 1;
        true
    }
}

pub(super) struct ReadDir;

impl Op for ReadDir {
    const NUMBER: Op4 = Op4::ReadDir;
    const NAME: &'static str = "READDIR";
    type Arguments<'a> = ReadDir4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ReadDir4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let object = run.current()?;
        if fattr::asks_for_only_set(&arguments.attr_request, run.minor_version) {
            return Err(NfsStat4::Inval);
        }
        if (1..RESERVED).contains(&arguments.cookie) {
            return Err(NfsStat4::BadCookie);
        }
        let max = (arguments.maxcount as usize).min(run.call.transfer_bytes_max() as usize);
        let room = max.min(run.room(reply));
        if room < LIST_BYTES {
            return Err(NfsStat4::TooSmall);
        }
        Writer::new(&mut reply.bytes).zeros(8);
        let names_room = match arguments.dircount {
            0 => usize::MAX,
            bytes => bytes as usize,
        };
        let bytes = &mut reply.bytes;
        let mut list = List { bytes, room: room - LIST_BYTES, names_room, told: 0 };
        let is_end = match object {
            Object::Node(key) => list_node(run, run.node(&key)?, arguments, &mut list)?,
            Object::Stored(..) => list_directory(run, arguments, &mut list)?,
        };
        if list.told == 0 && !is_end {
            return Err(NfsStat4::TooSmall);
        }
        let mut w = Writer::new(&mut reply.bytes);
        w.bool(false);
        w.bool(is_end);
        Ok(())
    }
}

/// Tells the names of a directory of a share; whether that was all.
fn list_directory(
    run: &mut Run<'_, '_>,
    arguments: &ReadDir4Args,
    list: &mut List<'_>,
) -> Result<bool, NfsStat4> {
    let wanted = arguments.attr_request;
    let (call, dir) = run.stored(NfsStat4::NotDir)?;
    let shared = call.shared;
    // Directories cannot be read without the chance of waiting for the disk.
    call.may_block(dir).or_status()?;
    let of_file_system = of_file_system(call, dir, &wanted)?;
    let needs_objects = !wanted.without(&WITHOUT_OBJECT).is_empty();
    let cookie = match arguments.cookie {
        0 => 0,
        // The first three of the storage may have been told as what is reserved.
        cookie => cookie - RESERVED,
    };
    let wants_acls = wanted.has_any(&fattr::ACL);
    let asked = AskedOf { wanted, of_file_system, needs_objects };
    let mut with_acls = Vec::new();
    let mut naming = Naming::new(shared);
    let mut tell_entry = |entry: &DirEntry<'_>, acl: Option<&[u8]>| {
        let cookie = entry.cookie.saturating_add(RESERVED);
        list.tell(cookie, entry.name, |w| {
            let owners = match &entry.entry {
                Some(found) => naming.owners(&wanted, &found.attr),
                None => Owners::NUMBERS,
            };
            tell(w, call, dir, entry, (acl, &owners), &asked);
        })
    };
    let page = dir.storage.read_directory(
        &dir.caller(),
        &dir.handle,
        cookie,
        needs_objects,
        &mut |entry| match entry.name {
            b"." | b".." => true,
            // The storage cannot be asked for lists while it lists.
            name if wants_acls => {
                let is_room = with_acls.len() < WITH_ACLS_MAX;
                if is_room {
                    with_acls.push((name.to_vec(), DirEntry { name: &[], ..*entry }));
                }
                is_room
            }
            _ => tell_entry(entry, None),
        },
    );
    let page = page.map_err(|error| match error {
        FsError::Invalid => NfsStat4::NotDir,
        error => super::status::status(error),
    })?;
    let mut naming = Naming::new(shared);
    for (name, entry) in &with_acls {
        // Without its list an object is told without it.
        let found = entry.entry.as_ref();
        let acl = found.and_then(|it| encoded_acl(dir, &it.handle, &mut naming).ok().flatten());
        if !tell_entry(&DirEntry { name, ..*entry }, acl.as_deref()) {
            return Ok(false);
        }
    }
    Ok(page.is_end)
}

/// What is asked of the entries of a directory.
struct AskedOf {
    wanted: Bitmap4,
    of_file_system: OfFileSystem,
    /// Whether the number of an entry does not tell it.
    needs_objects: bool,
}

/// Appends the attributes of an entry.
fn tell<'a>(
    w: &mut Writer<'_>,
    call: &Call<'a>,
    dir: &Target<'a>,
    entry: &DirEntry<'_>,
    (acl, owners): (Option<&[u8]>, &Owners),
    asked: &AskedOf,
) {
    let AskedOf { wanted, of_file_system, needs_objects } = asked;
    if !needs_objects {
        let attr = Attr { fileid: entry.fileid, ..NOTHING_KNOWN };
        let known = Known {
            attr: &attr,
            change: 0,
            fsid: fattr::PSEUDO,
            mounted_on: entry.fileid,
            handle: &call.seal(dir.share, &dir.handle),
            acl: None,
            owners: &Owners::NUMBERS,
            of_file_system,
        };
        fattr::encode(w, wanted, &known);
        return;
    }
    let Some(found) = &entry.entry else {
        return fattr::encode_error(w, wanted, NfsStat4::Delay, entry.fileid);
    };
    if let Err(error) = call.require_access(dir, &found.handle) {
        return fattr::encode_error(w, wanted, super::status::status(error), entry.fileid);
    }
    let known = Known {
        attr: &found.attr,
        change: fattr::change(&found.attr),
        fsid: fsid(dir, &found.attr),
        mounted_on: entry.fileid,
        handle: &call.seal(dir.share, &found.handle),
        acl,
        owners,
        of_file_system,
    };
    fattr::encode(w, wanted, &known);
}

/// Tells the names of a directory of the pseudo file system; whether that was all.
fn list_node(
    run: &mut Run<'_, '_>,
    node: &Node,
    arguments: &ReadDir4Args,
    list: &mut List<'_>,
) -> Result<bool, NfsStat4> {
    let wanted = arguments.attr_request;
    let exports = run.call.exports;
    let mut opened = 0;
    for (cookie, child) in exports.pseudo().children_after(node, arguments.cookie) {
        if !is_visible(run, child) {
            continue;
        }
        let is_told = match attributes_of_child(run, child, &wanted, &mut opened)? {
            OfChild::Bytes(attributes) => {
                list.tell(cookie, child.name(), |w| w.fixed_opaque(&attributes))
            }
            OfChild::TooMany => false,
        };
        if !is_told {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is told of a directory of the pseudo file system in the list of the one above.
enum OfChild {
    Bytes(Vec<u8>),
    /// Further shares would have to be opened than one call may.
    TooMany,
}

fn attributes_of_child(
    run: &mut Run<'_, '_>,
    child: &Node,
    wanted: &Bitmap4,
    opened: &mut u32,
) -> Result<OfChild, NfsStat4> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let only_number = wanted.without(&WITHOUT_OBJECT).is_empty();
    let exported = child.share().and_then(|share| run.call.exports.exported(share));
    let exported =
        exported.filter(|it| !it.export.share.is_draining && run.call.rights(it).is_ok());
    if let (Some(exported), false) = (exported, only_number) {
        if exported.export.storage.opened().is_none() {
            // To list shares is no reason to open them all.
            if wanted.has(Attribute4::RdattrError) {
                fattr::encode_error(&mut w, wanted, NfsStat4::Delay, child.fileid());
                return Ok(OfChild::Bytes(bytes));
            }
            *opened += 1;
            if *opened > OPENED_MAX {
                return Ok(OfChild::TooMany);
            }
        }
        let told = tell_root(run, child, wanted, &mut w);
        return match told {
            Ok(()) => Ok(OfChild::Bytes(bytes)),
            Err(status) if wanted.has(Attribute4::RdattrError) => {
                bytes.clear();
                let mut w = Writer::new(&mut bytes);
                fattr::encode_error(&mut w, wanted, status, child.fileid());
                Ok(OfChild::Bytes(bytes))
            }
            Err(status) => Err(status),
        };
    }
    let attr = of_node(child);
    let known = Known {
        attr: &attr,
        change: change_of_node(run, child),
        fsid: fattr::PSEUDO,
        mounted_on: child.fileid(),
        handle: &run.call.shared.sealer.seal_node(&child.key()),
        acl: None,
        owners: &Naming::new(run.call.shared).owners(wanted, &attr),
        of_file_system: &beside_file_system(run.call),
    };
    fattr::encode(&mut w, wanted, &known);
    Ok(OfChild::Bytes(bytes))
}

/// Appends the attributes of the root of the share at a node.
fn tell_root(
    run: &mut Run<'_, '_>,
    node: &Node,
    wanted: &Bitmap4,
    w: &mut Writer<'_>,
) -> Result<(), NfsStat4> {
    let root = super::names::root_of_share(run, node)?.ok_or(NfsStat4::Stale)?;
    let attr = run.call.read(&root, |caller| root.storage.attributes(caller, &root.handle));
    let attr = attr.or_status()?;
    let mut naming = Naming::new(run.call.shared);
    let owners = naming.owners(wanted, &attr);
    let acl = acl_of(run.call, &root, wanted, &mut naming)?;
    let of_file_system = of_file_system(run.call, &root, wanted)?;
    let known = Known {
        attr: &attr,
        change: fattr::change(&attr),
        fsid: fsid(&root, &attr),
        mounted_on: node.fileid(),
        handle: &run.call.seal(root.share, &root.handle),
        acl: acl.as_deref(),
        owners: &owners,
        of_file_system: &of_file_system,
    };
    fattr::encode(w, wanted, &known);
    Ok(())
}
