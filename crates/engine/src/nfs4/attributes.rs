//! GETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 §18.1, §18.7, §18.15, §18.30).

use steadfast_vfs::{AccessMask, Attr, FileKind, FsError, StorageHandle, Time};
use steadfast_wire::nfs4::{
    Access4Args, Attribute4, Bitmap4, GetAttr4Args, NfsStat4, Op4, Verify4Args,
};
use steadfast_xdr::Writer;

use super::acl;
use super::fattr::{self, FsId, Known, OfFileSystem};
use super::handles::sealed;
use super::idmap::Naming;
use super::names::is_root;
use super::status::OrStatus;
use crate::call::{Call, Target};
use crate::compound::{Op, Run, Versions};
use crate::progress::Object;
use crate::pseudo::Node;
use crate::reply::ReplyBuffer;

/// Permissions of directories of the pseudo file system.
const NODE_MODE: u32 = 0o555;

/// The attributes of a directory of the pseudo file system.
pub(super) fn of_node(node: &Node) -> Attr {
    let time = Time::default();
    Attr {
        kind: FileKind::Directory,
        mode: NODE_MODE,
        links: node.links(),
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: steadfast_vfs::DeviceNumber::default(),
        fsid: fattr::PSEUDO.minor,
        fileid: node.fileid(),
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// The change attribute of a directory of the pseudo file system. The tree counts from its beginning,
/// which is that of this instance of the server: the same number of another instance is another.
pub(super) fn change_of_node(run: &Run<'_, '_>, node: &Node) -> u64 {
    let instance = u64::from(run.nfs4.state.settings().instance);
    (instance << 32).wrapping_add(node.change())
}

/// The file system of an object of a share: each share is one, and each mount in it.
pub(super) fn fsid(target: &Target<'_>, attr: &Attr) -> FsId {
    FsId { major: target.share.id.0, minor: attr.fsid }
}

/// What is the same on all file systems.
pub(super) fn beside_file_system(call: &Call<'_>) -> OfFileSystem {
    let (transfer_bytes_max, minor) = (call.transfer_bytes_max(), call.minor_version);
    OfFileSystem { transfer_bytes_max, minor, ..OfFileSystem::default() }
}

/// What is wanted of the file system that an object is on.
pub(super) fn of_file_system(
    call: &mut Call<'_>,
    target: &Target<'_>,
    wanted: &Bitmap4,
) -> Result<OfFileSystem, NfsStat4> {
    let mut of = beside_file_system(call);
    if wanted.has_any(&fattr::OF_SPACE) {
        let statistics =
            call.read(target, |caller| target.storage.statistics(caller, &target.handle));
        of.statistics = statistics.or_status()?.0;
    }
    if wanted.has_any(&fattr::OF_KIND) {
        of.info = Some(target.storage.info(&target.handle).or_status()?);
    }
    if wanted.has_any(&fattr::OF_LIMITS) {
        of.limits = Some(target.storage.path_limits(&target.handle).or_status()?);
    }
    Ok(of)
}

/// The access control list of an object as it is encoded, if it is wanted. `None` where the file
/// system has none.
pub(super) fn acl_of(
    call: &mut Call<'_>,
    target: &Target<'_>,
    wanted: &Bitmap4,
    naming: &mut Naming<'_>,
) -> Result<Option<Vec<u8>>, NfsStat4> {
    if !wanted.has_any(&fattr::ACL) {
        return Ok(None);
    }
    // Lists are read from the disk if the kernel does not have them.
    call.may_block(target).or_status()?;
    encoded_acl(target, &target.handle, naming).or_status()
}

/// The same of an object that is in the one that the target is, or that one itself; the call may wait.
pub(super) fn encoded_acl(
    target: &Target<'_>,
    object: &StorageHandle,
    naming: &mut Naming<'_>,
) -> Result<Option<Vec<u8>>, FsError> {
    match target.storage.acls(&target.caller(), object) {
        Ok((access, default, attr)) => {
            let mut bytes = Vec::new();
            let is_directory = attr.kind == FileKind::Directory;
            let name_of: &mut acl::Namer<'_> = &mut |kind, number| naming.name_of(kind, number);
            let mut w = Writer::new(&mut bytes);
            acl::encode(&mut w, &access, default.as_ref(), is_directory, name_of);
            Ok(Some(bytes))
        }
        Err(FsError::NotSupported) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Its number in the file system that it is mounted in.
pub(super) fn mounted_on(
    call: &Call<'_>,
    target: &Target<'_>,
    attr: &Attr,
    wanted: &Bitmap4,
) -> u64 {
    let may_be_root = attr.kind == FileKind::Directory;
    if may_be_root && wanted.has(Attribute4::MountedOnFileId) && is_root(target) {
        let node = call.exports.pseudo().at(target.share.path.as_bytes());
        return node.map_or(attr.fileid, Node::fileid);
    }
    attr.fileid
}

/// Appends the attributes of the current object, and says which.
fn encode(
    run: &mut Run<'_, '_>,
    wanted: &Bitmap4,
    w: &mut Writer<'_>,
) -> Result<Bitmap4, NfsStat4> {
    if fattr::asks_for_only_set(wanted, run.minor_version) {
        return Err(NfsStat4::Inval);
    }
    let object = run.current()?;
    let handle = sealed(run, &object);
    if let Object::Node(key) = object {
        let node = run.node(&key)?;
        let attr = of_node(node);
        let known = Known {
            attr: &attr,
            change: change_of_node(run, node),
            fsid: fattr::PSEUDO,
            mounted_on: node.fileid(),
            handle: &handle,
            acl: None,
            owners: &Naming::new(run.call.shared).owners(wanted, &attr),
            of_file_system: &beside_file_system(run.call),
        };
        return Ok(fattr::encode(w, wanted, &known));
    }
    // What somebody else may have changed unseen is told only if he has not.
    let is_look = fattr::may_be_behind(wanted);
    let by = if is_look { run.holder() } else { None };
    let (call, target) = run.stored(NfsStat4::ServerFault)?;
    let attr = if is_look {
        call.look(target, by.as_ref())
    } else {
        call.read(target, |caller| target.storage.attributes(caller, &target.handle))
    };
    let attr = attr.or_status()?;
    let mut naming = Naming::new(call.shared);
    let owners = naming.owners(wanted, &attr);
    let acl = acl_of(call, target, wanted, &mut naming)?;
    naming.wait(call, target.share.id)?;
    let of_file_system = of_file_system(call, target, wanted)?;
    let known = Known {
        attr: &attr,
        change: fattr::change(&attr),
        fsid: fsid(target, &attr),
        mounted_on: mounted_on(call, target, &attr, wanted),
        handle: &handle,
        acl: acl.as_deref(),
        owners: &owners,
        of_file_system: &of_file_system,
    };
    Ok(fattr::encode(w, wanted, &known))
}

pub(super) struct GetAttr;

impl Op for GetAttr {
    const NUMBER: Op4 = Op4::GetAttr;
    const NAME: &'static str = "GETATTR";
    type Arguments<'a> = GetAttr4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &GetAttr4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        encode(run, &arguments.attr_request, &mut Writer::new(&mut reply.bytes))?;
        Ok(())
    }
}

/// Whether the current object has these attributes with these values.
fn is_same(run: &mut Run<'_, '_>, arguments: &Verify4Args<'_>) -> Result<bool, NfsStat4> {
    let wanted = arguments.obj_attributes.attrmask;
    run.current()?;
    let minor = run.minor_version;
    if wanted.has(Attribute4::RdattrError) || fattr::asks_for_only_set(&wanted, minor) {
        return Err(NfsStat4::Inval);
    }
    if !wanted.without(&fattr::supported(minor)).is_empty() {
        return Err(NfsStat4::AttrNotSupp);
    }
    let mut told = Vec::new();
    if encode(run, &wanted, &mut Writer::new(&mut told))? != wanted {
        return Err(NfsStat4::AttrNotSupp);
    }
    let mut given = Vec::new();
    steadfast_xdr::Encode::encode(&arguments.obj_attributes, &mut Writer::new(&mut given));
    Ok(told == given)
}

pub(super) struct Verify;

impl Op for Verify {
    const NUMBER: Op4 = Op4::Verify;
    const NAME: &'static str = "VERIFY";
    type Arguments<'a> = Verify4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Verify4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        if is_same(run, arguments)? { Ok(()) } else { Err(NfsStat4::NotSame) }
    }
}

pub(super) struct NVerify;

impl Op for NVerify {
    const NUMBER: Op4 = Op4::NVerify;
    const NAME: &'static str = "NVERIFY";
    type Arguments<'a> = Verify4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Verify4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        if is_same(run, arguments)? { Err(NfsStat4::Same) } else { Ok(()) }
    }
}

pub(super) struct Access;

impl Op for Access {
    const NUMBER: Op4 = Op4::Access;
    const NAME: &'static str = "ACCESS";
    type Arguments<'a> = Access4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Access4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let has_xattrs = Versions::FROM_2.has(run.minor_version);
        let unknown = if has_xattrs { AccessMask::empty() } else { AccessMask::XATTRS };
        let asked = AccessMask::from_bits(arguments.access).ok_or(NfsStat4::Inval)?;
        if asked.intersects(unknown) {
            return Err(NfsStat4::Inval);
        }
        let (kind, granted) = if let Object::Node(key) = run.current()? {
            run.node(&key)?;
            (FileKind::Directory, asked & (AccessMask::READ | AccessMask::LOOKUP))
        } else {
            let (call, target) = run.stored(NfsStat4::ServerFault)?;
            let mut wanted = asked;
            if target.rights.is_read_only {
                wanted -= AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
                wanted -= AccessMask::XATTR_WRITE;
            }
            let access =
                call.read(target, |caller| target.storage.access(caller, &target.handle, wanted));
            let (granted, attr) = access.or_status()?;
            (attr.kind, granted)
        };
        let meaningful = match kind {
            FileKind::Directory => AccessMask::all() - AccessMask::EXECUTE,
            _ => AccessMask::all() - (AccessMask::LOOKUP | AccessMask::DELETE),
        };
        let mut w = Writer::new(&mut reply.bytes);
        w.u32((asked & meaningful).bits());
        w.u32((granted & meaningful).bits());
        Ok(())
    }
}
