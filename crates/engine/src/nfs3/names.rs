//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.3, §3.3.8
//! to §3.3.15).

use steadfast_vfs::{
    AccessMask, Attr, CreateHow, DeviceNumber, Entry, FileKind, FsError, Name, NodeKind, SetAttr,
};
use steadfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, Link3Args, Lookup3Args, Mkdir3Args, Mknod3Args,
    MknodData3, Remove3Args, Rename3Args, Rmdir3Args, Symlink3Args,
};
use steadfast_xdr::Writer;

use super::status::{changes, reads, status};
use super::{decode, encode};
use crate::call::{Call, Outcome, Target};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

pub(super) struct Lookup;

impl Procedure for Lookup {
    const OPERATION: Operation = reads("LOOKUP", 1);
    type Arguments<'a> = Lookup3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Lookup3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let what = &arguments.what;
        let mut w = Writer::new(&mut reply.bytes);
        let mut dir_attr = None;
        let since = call.begin_telling();
        match look_up(call, what.dir.0, what.name, &mut dir_attr) {
            Ok((dir, entry)) => {
                encode::ok(&mut w);
                w.opaque(call.seal(dir.share, &entry.handle).as_bytes());
                let told = call.told(since, dir.storage, &entry.handle, &entry.attr);
                encode::post_op_attr(&mut w, told);
            }
            Err(error) => w.u32(status(error) as u32),
        }
        let dir_attr = dir_attr.as_ref().and_then(|attr| call.told_of_directory(attr));
        encode::post_op_attr(&mut w, dir_attr);
        Outcome::Done
    }
}

/// Looks a name up, `.` and `..` too: the directory and what was found. `dir_attr` gets the
/// directory's attributes as far as they are known.
///
/// # Errors
/// The storage's, and those of [`Call::resolve`] and [`Call::require_access`].
pub(crate) fn look_up<'a>(
    call: &mut Call<'a>,
    dir: &[u8],
    name: &[u8],
    dir_attr: &mut Option<Attr>,
) -> Result<(Target<'a>, Entry), FsError> {
    let dir = call.resolve(dir)?;
    // Names are looked up by the kernel, in directories that may have to be read from the disk.
    call.seldom_blocks(&dir)?;
    let entry = call.read(&dir, |caller| {
        let looked = match name {
            b"." => {
                let search = AccessMask::LOOKUP;
                let (allowed, attr) = dir.storage.access(caller, &dir.handle, search)?;
                *dir_attr = Some(attr);
                if attr.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                if !allowed.contains(search) {
                    return Err(FsError::AccessDenied);
                }
                return Ok(Entry { handle: dir.handle, attr });
            }
            b".." => dir.storage.lookup_parent(caller, &dir.handle),
            name => match Name::new(name) {
                Ok(name) => dir.storage.lookup(caller, &dir.handle, name),
                Err(error) => {
                    *dir_attr = dir.storage.attributes(caller, &dir.handle).ok();
                    return Err(error);
                }
            },
        };
        *dir_attr = looked.dir_attr;
        looked.result
    })?;
    call.require_access(&dir, &entry.handle)?;
    Ok((dir, entry))
}

/// Directory and name of an operation that changes the directory, or the failure.
fn resolve_name<'a, 'b>(
    call: &mut Call<'a>,
    place: &DirOpArgs3<'b>,
) -> Result<(Target<'a>, Name<'b>), FsError> {
    let dir = call.resolve(place.dir.0)?;
    Ok((dir, Name::new(place.name)?))
}

/// Whether both were reached by one share, and one has the rules for both.
pub(crate) fn is_of_one_share(one: &Target<'_>, other: &Target<'_>) -> bool {
    one.share.id == other.share.id && one.ruling == other.ruling
}

/// `.` and `..` exist, but that is not why they cannot be removed or renamed.
pub(crate) fn unless_dots(error: FsError, instead: FsError) -> FsError {
    if error == FsError::Exists { instead } else { error }
}

pub(super) struct Create;

impl Procedure for Create {
    const OPERATION: Operation = changes("CREATE", 2);
    type Arguments<'a> = Create3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Create3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let resolved = resolve_name(call, &arguments.where_).and_then(|place| {
            let how = match &arguments.how {
                CreateHow3::Unchecked(set) => CreateHow::Unchecked(decode::initial(set)?),
                CreateHow3::Guarded(set) => CreateHow::Guarded(decode::initial(set)?),
                CreateHow3::Exclusive(verifier) => {
                    CreateHow::Exclusive { verifier: *verifier, mode: 0, umask: 0 }
                }
            };
            if let CreateHow::Unchecked(SetAttr { size: Some(_), .. }) = how {
                call.require_name_not_denied(&place.0, place.1)?;
            }
            let change = match how {
                CreateHow::Unchecked(_) => call.begin_change_of_name(&place.0, place.1, None)?,
                _ => None,
            };
            Ok((place, how, change))
        });
        let ((dir, name), how, _change) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let since = call.begin_telling();
        let durable = dir.storage.create(&dir.caller(), &dir.handle, name, &how);
        let encoded = durable.map(|changed| {
            encode::created(&mut w, call, &dir, since, &changed);
        });
        call.barrier(encoded)
    }
}

pub(super) struct Mkdir;

impl Procedure for Mkdir {
    const OPERATION: Operation = changes("MKDIR", 2);
    type Arguments<'a> = Mkdir3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Mkdir3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        // A directory's size is its file system's; clients that name one mean no harm.
        let resolved = resolve_name(call, &arguments.where_).and_then(|place| {
            Ok((place, SetAttr { size: None, ..decode::initial(&arguments.attributes)? }))
        });
        let ((dir, name), set) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let since = call.begin_telling();
        let durable = dir.storage.make_directory(&dir.caller(), &dir.handle, name, &set);
        let encoded = durable.map(|changed| {
            encode::created(&mut w, call, &dir, since, &changed);
        });
        call.barrier(encoded)
    }
}

pub(super) struct Symlink;

impl Procedure for Symlink {
    const OPERATION: Operation = changes("SYMLINK", 2);
    type Arguments<'a> = Symlink3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Symlink3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let text = arguments.symlink.symlink_data;
        let place = resolve_name(call, &arguments.where_).and_then(|place| {
            if text.is_empty() || text.contains(&0) {
                return Err(FsError::Invalid);
            }
            Ok((place, decode::initial_without_size(&arguments.symlink.symlink_attributes)?))
        });
        let ((dir, name), set) = match place {
            Ok(place) => place,
            Err(error) => return call.fail(&mut w, error),
        };
        let since = call.begin_telling();
        let durable = dir.storage.make_symlink(&dir.caller(), &dir.handle, name, text, &set);
        let encoded = durable.map(|changed| {
            encode::created(&mut w, call, &dir, since, &changed);
        });
        call.barrier(encoded)
    }
}

pub(super) struct Mknod;

impl Procedure for Mknod {
    const OPERATION: Operation = changes("MKNOD", 2);
    type Arguments<'a> = Mknod3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Mknod3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let (dir, name) = match resolve_name(call, &arguments.where_) {
            Ok(place) => place,
            Err(error) => return call.fail(&mut w, error),
        };
        let (kind, set) = match node(&arguments.what) {
            Ok(kind_and_attributes) => kind_and_attributes,
            Err(error) => return call.fail(&mut w, error),
        };
        let since = call.begin_telling();
        let durable = dir.storage.make_node(&dir.caller(), &dir.handle, name, kind, &set);
        let encoded = durable.map(|changed| {
            encode::created(&mut w, call, &dir, since, &changed);
        });
        call.barrier(encoded)
    }
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

pub(super) struct Remove;

impl Procedure for Remove {
    const OPERATION: Operation = changes("REMOVE", 2);
    type Arguments<'a> = Remove3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Remove3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let (dir, name) = match resolve_name(call, &arguments.object) {
            Ok(place) => place,
            Err(error) => {
                return call.fail(&mut w, unless_dots(error, FsError::AccessDenied));
            }
        };
        let _change = match call.begin_change_of_name(&dir, name, None) {
            Ok(change) => change,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = dir.storage.remove(&dir.caller(), &dir.handle, name);
        let encoded = durable.map(|changed| encode::changed(&mut w, &changed));
        call.barrier(encoded)
    }
}

pub(super) struct Rmdir;

impl Procedure for Rmdir {
    const OPERATION: Operation = changes("RMDIR", 2);
    type Arguments<'a> = Rmdir3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Rmdir3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let (dir, name) = match resolve_name(call, &arguments.object) {
            Ok(place) => place,
            Err(error) => {
                // RFC 1813 §3.3.13: `.` is NFS3ERR_INVAL, `..` NFS3ERR_EXIST.
                let dot = if arguments.object.name == b"." { FsError::Invalid } else { error };
                return call.fail(&mut w, unless_dots(error, dot));
            }
        };
        let durable = dir.storage.remove_directory(&dir.caller(), &dir.handle, name);
        let encoded = durable.map(|changed| encode::changed(&mut w, &changed));
        call.barrier(encoded)
    }
}

pub(super) struct Rename;

impl Procedure for Rename {
    const OPERATION: Operation = changes("RENAME", 4);
    type Arguments<'a> = Rename3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Rename3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let places = resolve_name(call, &arguments.from).and_then(|from| {
            let to = resolve_name(call, &arguments.to)?;
            if is_of_one_share(&from.0, &to.0) { Ok((from, to)) } else { Err(FsError::CrossDevice) }
        });
        let ((from_dir, from_name), (to_dir, to_name)) = match places {
            Ok(places) => places,
            // RFC 1813 §3.3.14: `.` and `..` are NFS3ERR_INVAL.
            Err(error) => return call.fail(&mut w, unless_dots(error, FsError::Invalid)),
        };
        let changes = call
            .begin_change_of_name(&from_dir, from_name, None)
            .and_then(|from| Ok((from, call.begin_change_of_name(&to_dir, to_name, None)?)));
        let _changes = match changes {
            Ok(changes) => changes,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = from_dir.storage.rename(
            &from_dir.caller(),
            &from_dir.handle,
            from_name,
            &to_dir.handle,
            to_name,
        );
        let encoded = durable.map(|renamed| {
            match renamed.result {
                Ok(()) => encode::ok(&mut w),
                Err(error) => w.u32(status(error) as u32),
            }
            encode::wcc_data(&mut w, &renamed.from);
            encode::wcc_data(&mut w, &renamed.to);
        });
        call.barrier(encoded)
    }
}

pub(super) struct Link;

impl Procedure for Link {
    const OPERATION: Operation = changes("LINK", 3);
    type Arguments<'a> = Link3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Link3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let places = call.resolve(arguments.file.0).and_then(|object| {
            let (dir, name) = resolve_name(call, &arguments.link)?;
            if !is_of_one_share(&object, &dir) {
                return Err(FsError::CrossDevice);
            }
            let change = call.begin_change(&object, None)?;
            Ok((object, dir, name, change))
        });
        let (object, dir, name, _change) = match places {
            Ok(places) => places,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = dir.storage.link(&dir.caller(), &object.handle, &dir.handle, name);
        let encoded = durable.map(|(attr, changed)| {
            match changed.result {
                Ok(()) => encode::ok(&mut w),
                Err(error) => w.u32(status(error) as u32),
            }
            encode::post_op_attr(&mut w, attr.as_ref());
            encode::wcc_data(&mut w, &changed.wcc);
        });
        call.barrier(encoded)
    }
}
