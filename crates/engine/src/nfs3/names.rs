//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.3, §3.3.8
//! to §3.3.15).

use steadfast_vfs::{
    AccessMask, CreateHow, DeviceNumber, FileKind, FsError, Name, NodeKind, SetAttr,
};
use steadfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, Link3Args, Lookup3Args, Mkdir3Args, Mknod3Args,
    MknodData3, Remove3Args, Rename3Args, Rmdir3Args, Symlink3Args,
};
use steadfast_xdr::{Decode, Reader, Writer, XdrError};

use super::status::status;
use super::{decode, encode};
use crate::session::{Outcome, Session, Target, barrier};

pub(super) fn lookup(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let what = Lookup3Args::decode(arguments)?.what;
    let mut w = Writer::new(reply);
    let dir = session.resolve(what.dir.0).and_then(|dir| {
        // Names are looked up by the kernel, in directories that may have to be read from the disk.
        session.seldom_blocks(&dir)?;
        Ok(dir)
    });
    let dir = match dir {
        Ok(dir) => dir,
        Err(error) => {
            encode::failure(&mut w, error, 1);
            return Ok(Outcome::Done);
        }
    };
    let mut dir_attr = None;
    let result = session.read(&dir, |caller| {
        let looked = match what.name {
            b"." => {
                let search = AccessMask::LOOKUP;
                let (allowed, attr) = dir.storage.access(caller, &dir.handle, search)?;
                dir_attr = Some(attr);
                if attr.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                if !allowed.contains(search) {
                    return Err(FsError::AccessDenied);
                }
                return Ok(steadfast_vfs::Entry { handle: dir.handle, attr });
            }
            b".." => dir.storage.lookup_parent(caller, &dir.handle),
            name => match Name::new(name) {
                Ok(name) => dir.storage.lookup(caller, &dir.handle, name),
                Err(error) => {
                    dir_attr = dir.storage.attributes(caller, &dir.handle).ok();
                    return Err(error);
                }
            },
        };
        dir_attr = looked.dir_attr;
        looked.result
    });
    let result = result.and_then(|entry| {
        session.require_access(&dir, &entry.handle)?;
        Ok(entry)
    });
    match result {
        Ok(entry) => {
            encode::ok(&mut w);
            w.opaque(session.seal(dir.share, &entry.handle).as_bytes());
            encode::post_op_attr(&mut w, Some(&entry.attr));
        }
        Err(error) => w.u32(status(error) as u32),
    }
    encode::post_op_attr(&mut w, dir_attr.as_ref());
    Ok(Outcome::Done)
}

/// Directory and name of an operation that changes the directory, or the failure.
fn resolve_name<'a, 'b>(
    session: &mut Session<'a>,
    place: &DirOpArgs3<'b>,
) -> Result<(Target<'a>, Name<'b>), FsError> {
    let dir = session.resolve(place.dir.0)?;
    Ok((dir, Name::new(place.name)?))
}

/// Whether both were reached by one share, and one has the rules for both.
fn is_of_one_share(one: &Target<'_>, other: &Target<'_>) -> bool {
    one.share.id == other.share.id && one.ruling == other.ruling
}

/// `.` and `..` exist, but that is not why they cannot be removed or renamed.
fn unless_dots(error: FsError, instead: FsError) -> FsError {
    if error == FsError::Exists { instead } else { error }
}

fn fails(w: &mut Writer<'_>, error: FsError, failure_words: usize) -> Outcome {
    encode::failure(w, error, failure_words);
    Outcome::Done
}

pub(super) fn create(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Create3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let resolved = resolve_name(session, &arguments.where_).and_then(|place| {
        let how = match &arguments.how {
            CreateHow3::Unchecked(set) => CreateHow::Unchecked(decode::initial(set)?),
            CreateHow3::Guarded(set) => CreateHow::Guarded(decode::initial(set)?),
            CreateHow3::Exclusive(verifier) => CreateHow::Exclusive(*verifier),
        };
        Ok((place, how))
    });
    let ((dir, name), how) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => return Ok(fails(&mut w, error, 2)),
    };
    let durable = dir.storage.create(&dir.caller(), &dir.handle, name, &how);
    Ok(barrier(durable.map(|changed| {
        encode::created(&mut w, session, &dir, &changed);
    })))
}

pub(super) fn mkdir(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Mkdir3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    // A directory's size is its file system's; clients that name one mean no harm.
    let resolved = resolve_name(session, &arguments.where_).and_then(|place| {
        Ok((place, SetAttr { size: None, ..decode::initial(&arguments.attributes)? }))
    });
    let ((dir, name), set) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => return Ok(fails(&mut w, error, 2)),
    };
    let durable = dir.storage.make_directory(&dir.caller(), &dir.handle, name, &set);
    Ok(barrier(durable.map(|changed| {
        encode::created(&mut w, session, &dir, &changed);
    })))
}

pub(super) fn symlink(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Symlink3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let text = arguments.symlink.symlink_data;
    let place = resolve_name(session, &arguments.where_).and_then(|place| {
        if text.is_empty() || text.contains(&0) {
            return Err(FsError::Invalid);
        }
        Ok((place, decode::initial_without_size(&arguments.symlink.symlink_attributes)?))
    });
    let ((dir, name), set) = match place {
        Ok(place) => place,
        Err(error) => return Ok(fails(&mut w, error, 2)),
    };
    let durable = dir.storage.make_symlink(&dir.caller(), &dir.handle, name, text, &set);
    Ok(barrier(durable.map(|changed| {
        encode::created(&mut w, session, &dir, &changed);
    })))
}

pub(super) fn mknod(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Mknod3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let (dir, name) = match resolve_name(session, &arguments.where_) {
        Ok(place) => place,
        Err(error) => return Ok(fails(&mut w, error, 2)),
    };
    let (kind, set) = match node(&arguments.what) {
        Ok(kind_and_attributes) => kind_and_attributes,
        Err(error) => return Ok(fails(&mut w, error, 2)),
    };
    let durable = dir.storage.make_node(&dir.caller(), &dir.handle, name, kind, &set);
    Ok(barrier(durable.map(|changed| {
        encode::created(&mut w, session, &dir, &changed);
    })))
}

/// What MKNOD is to make.
///
/// # Errors
/// `BadType` for the types that other procedures make, `Invalid` for attributes that make no sense.
fn node(what: &MknodData3) -> Result<(NodeKind, SetAttr), FsError> {
    let device = |spec: &steadfast_wire::nfs3::SpecData3| DeviceNumber {
        major: spec.specdata1,
        minor: spec.specdata2,
    };
    let (kind, attributes) = match what {
        MknodData3::Chr(data) => {
            (NodeKind::CharacterDevice(device(&data.spec)), &data.dev_attributes)
        }
        MknodData3::Blk(data) => (NodeKind::BlockDevice(device(&data.spec)), &data.dev_attributes),
        MknodData3::Sock(attributes) => (NodeKind::Socket, attributes),
        MknodData3::Fifo(attributes) => (NodeKind::Fifo, attributes),
        _ => return Err(FsError::BadType),
    };
    Ok((kind, decode::initial_without_size(attributes)?))
}

pub(super) fn remove(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Remove3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let (dir, name) = match resolve_name(session, &arguments.object) {
        Ok(place) => place,
        Err(error) => {
            return Ok(fails(&mut w, unless_dots(error, FsError::AccessDenied), 2));
        }
    };
    let durable = dir.storage.remove(&dir.caller(), &dir.handle, name);
    Ok(barrier(durable.map(|changed| encode::changed(&mut w, &changed))))
}

pub(super) fn rmdir(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Rmdir3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let (dir, name) = match resolve_name(session, &arguments.object) {
        Ok(place) => place,
        Err(error) => {
            // RFC 1813 §3.3.13: `.` is NFS3ERR_INVAL, `..` NFS3ERR_EXIST.
            let dot = if arguments.object.name == b"." { FsError::Invalid } else { error };
            return Ok(fails(&mut w, unless_dots(error, dot), 2));
        }
    };
    let durable = dir.storage.remove_directory(&dir.caller(), &dir.handle, name);
    Ok(barrier(durable.map(|changed| encode::changed(&mut w, &changed))))
}

pub(super) fn rename(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Rename3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let places = resolve_name(session, &arguments.from).and_then(|from| {
        let to = resolve_name(session, &arguments.to)?;
        if is_of_one_share(&from.0, &to.0) { Ok((from, to)) } else { Err(FsError::CrossDevice) }
    });
    let ((from_dir, from_name), (to_dir, to_name)) = match places {
        Ok(places) => places,
        // RFC 1813 §3.3.14: `.` and `..` are NFS3ERR_INVAL.
        Err(error) => return Ok(fails(&mut w, unless_dots(error, FsError::Invalid), 4)),
    };
    let durable = from_dir.storage.rename(
        &from_dir.caller(),
        &from_dir.handle,
        from_name,
        &to_dir.handle,
        to_name,
    );
    Ok(barrier(durable.map(|renamed| {
        match renamed.result {
            Ok(()) => encode::ok(&mut w),
            Err(error) => w.u32(status(error) as u32),
        }
        encode::wcc_data(&mut w, &renamed.from);
        encode::wcc_data(&mut w, &renamed.to);
    })))
}

pub(super) fn link(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Link3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let places = session.resolve(arguments.file.0).and_then(|object| {
        let (dir, name) = resolve_name(session, &arguments.link)?;
        if is_of_one_share(&object, &dir) {
            Ok((object, dir, name))
        } else {
            Err(FsError::CrossDevice)
        }
    });
    let (object, dir, name) = match places {
        Ok(places) => places,
        Err(error) => return Ok(fails(&mut w, error, 3)),
    };
    let durable = dir.storage.link(&dir.caller(), &object.handle, &dir.handle, name);
    Ok(barrier(durable.map(|(attr, changed)| {
        match changed.result {
            Ok(()) => encode::ok(&mut w),
            Err(error) => w.u32(status(error) as u32),
        }
        encode::post_op_attr(&mut w, attr.as_ref());
        encode::wcc_data(&mut w, &changed.wcc);
    })))
}
