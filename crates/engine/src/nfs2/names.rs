//! LOOKUP, CREATE, REMOVE, RENAME, LINK, SYMLINK, MKDIR, RMDIR (RFC 1094 §2.2.5, §2.2.10 to §2.2.16).

use steadfast_vfs::{AccessMask, CreateHow, Entry, FileKind, FsError, Name, NodeKind, SetAttr};
use steadfast_wire::nfs2::{
    Create2Args, DirOpArgs2, Link2Args, PATH_BYTES_MAX, Rename2Args, Symlink2Args,
};
use steadfast_xdr::Writer;

use super::decode::{self, Wanted};
use super::encode;
use super::status::{changes, reads};
use crate::call::{Call, Outcome, Target};
use crate::nfs3::names::{is_of_one_share, look_up, unless_dots};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

/// Directory and name of an operation that changes the directory, or the failure.
fn resolve_name<'a, 'b>(
    call: &mut Call<'a>,
    place: &DirOpArgs2<'b>,
) -> Result<(Target<'a>, Name<'b>), FsError> {
    let dir = call.resolve(place.dir.0)?;
    Ok((dir, Name::new(place.name)?))
}

pub(super) struct Lookup;

impl Procedure for Lookup {
    const OPERATION: Operation = reads("LOOKUP");
    type Arguments<'a> = DirOpArgs2<'a>;

    fn run(call: &mut Call<'_>, arguments: &DirOpArgs2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let since = call.begin_telling();
        let found = look_up(call, arguments.dir.0, arguments.name, &mut None);
        let mut w = Writer::new(&mut reply.bytes);
        let found = found.and_then(|(dir, entry)| {
            let share = dir.share;
            Ok((share, call.look_at_found(since, dir, entry)?))
        });
        match found {
            Ok((share, entry)) => {
                encode::diropres(&mut w, call, share, Ok(entry));
                Outcome::Done
            }
            Err(error) => call.fail(&mut w, error),
        }
    }
}

/// Makes a file, or cuts one to a size: what `creat` does. And what MKNOD does in version 3.
pub(super) struct Create;

impl Procedure for Create {
    const OPERATION: Operation = changes("CREATE");
    type Arguments<'a> = Create2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Create2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let resolved = resolve_name(call, &arguments.where_)
            .and_then(|place| Ok((place, decode::wanted(&arguments.attributes)?)))
            .and_then(|(place, wanted)| {
                let set = match wanted {
                    Wanted::File | Wanted::Any => decode::set_attr(&arguments.attributes)?,
                    Wanted::Node(_) => decode::without_size(&arguments.attributes)?,
                };
                if set.size.is_some() {
                    call.require_name_not_denied(&place.0, place.1)?;
                }
                let change = call.begin_change_of_name(&place.0, place.1, None)?;
                Ok((place, wanted, set, change))
            });
        let ((dir, name), wanted, set, _change) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut Writer::new(&mut reply.bytes), error),
        };
        let caller = dir.caller();
        let durable = match wanted {
            Wanted::File | Wanted::Any => {
                dir.storage.create(&caller, &dir.handle, name, &CreateHow::Unchecked(set))
            }
            Wanted::Node(kind) => dir.storage.make_node(&caller, &dir.handle, name, kind, &set),
        };
        let mut is_there = false;
        let encoded = durable.map(|changed| {
            is_there = changed.result.is_err_and(|error| error == FsError::Exists)
                && wanted != Wanted::File;
            if !is_there {
                let mut w = Writer::new(&mut reply.bytes);
                encode::diropres(&mut w, call, dir.share, changed.result);
            }
        });
        let outcome = call.barrier(encoded);
        if is_there {
            let found = existing(&dir, name, wanted);
            encode::diropres(&mut Writer::new(&mut reply.bytes), call, dir.share, found);
        }
        outcome
    }
}

/// What has the name already, if it is what CREATE was to make. Whoever asks for no type must have the
/// right to write to it: some clients ask for nothing else.
fn existing(dir: &Target<'_>, name: Name<'_>, wanted: Wanted) -> Result<Entry, FsError> {
    let caller = dir.caller();
    let entry = dir.storage.lookup(&caller, &dir.handle, name).result?;
    let is_wanted = match wanted {
        Wanted::Any => matches!(
            entry.attr.kind,
            FileKind::CharacterDevice | FileKind::BlockDevice | FileKind::Fifo
        ),
        Wanted::Node(kind) => match (kind, entry.attr.kind) {
            (NodeKind::CharacterDevice(device), FileKind::CharacterDevice)
            | (NodeKind::BlockDevice(device), FileKind::BlockDevice) => device == entry.attr.device,
            (NodeKind::Fifo, FileKind::Fifo) | (NodeKind::Socket, FileKind::Socket) => true,
            _ => false,
        },
        Wanted::File => false,
    };
    if !is_wanted {
        return Err(FsError::Exists);
    }
    if wanted == Wanted::Any {
        let (granted, _) = dir.storage.access(&caller, &entry.handle, AccessMask::MODIFY)?;
        if !granted.contains(AccessMask::MODIFY) {
            return Err(FsError::AccessDenied);
        }
    }
    Ok(entry)
}

pub(super) struct Mkdir;

impl Procedure for Mkdir {
    const OPERATION: Operation = changes("MKDIR");
    type Arguments<'a> = Create2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Create2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let resolved = resolve_name(call, &arguments.where_)
            .and_then(|place| Ok((place, decode::without_size(&arguments.attributes)?)));
        let ((dir, name), set) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = dir.storage.make_directory(&dir.caller(), &dir.handle, name, &set);
        let encoded =
            durable.map(|changed| encode::diropres(&mut w, call, dir.share, changed.result));
        call.barrier(encoded)
    }
}

pub(super) struct Symlink;

impl Procedure for Symlink {
    const OPERATION: Operation = changes("SYMLINK");
    type Arguments<'a> = Symlink2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Symlink2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let text = arguments.to;
        let resolved = resolve_name(call, &arguments.from).and_then(|place| {
            if text.len() > PATH_BYTES_MAX {
                return Err(FsError::NameTooLong);
            }
            if text.is_empty() || text.contains(&0) {
                return Err(FsError::Invalid);
            }
            // Clients send a mode as they find it; on UNIX a symbolic link has none of its own.
            let set = decode::without_size(&arguments.attributes)?;
            Ok((place, SetAttr { mode: None, ..set }))
        });
        let ((dir, name), set) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = dir.storage.make_symlink(&dir.caller(), &dir.handle, name, text, &set);
        let encoded = durable.map(|changed| encode::stat(&mut w, changed.result.map(drop)));
        call.barrier(encoded)
    }
}

pub(super) struct Remove;

impl Procedure for Remove {
    const OPERATION: Operation = changes("REMOVE");
    type Arguments<'a> = DirOpArgs2<'a>;

    fn run(call: &mut Call<'_>, arguments: &DirOpArgs2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let (dir, name) = match resolve_name(call, arguments) {
            Ok(place) => place,
            Err(error) => return call.fail(&mut w, unless_dots(error, FsError::AccessDenied)),
        };
        let _change = match call.begin_change_of_name(&dir, name, None) {
            Ok(change) => change,
            Err(error) => return call.fail(&mut w, error),
        };
        let durable = dir.storage.remove(&dir.caller(), &dir.handle, name);
        let encoded = durable.map(|changed| encode::stat(&mut w, changed.result));
        call.barrier(encoded)
    }
}

pub(super) struct Rmdir;

impl Procedure for Rmdir {
    const OPERATION: Operation = changes("RMDIR");
    type Arguments<'a> = DirOpArgs2<'a>;

    fn run(call: &mut Call<'_>, arguments: &DirOpArgs2<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let (dir, name) = match resolve_name(call, arguments) {
            Ok(place) => place,
            Err(error) => return call.fail(&mut w, unless_dots(error, FsError::AccessDenied)),
        };
        let durable = dir.storage.remove_directory(&dir.caller(), &dir.handle, name);
        let encoded = durable.map(|changed| encode::stat(&mut w, changed.result));
        call.barrier(encoded)
    }
}

pub(super) struct Rename;

impl Procedure for Rename {
    const OPERATION: Operation = changes("RENAME");
    type Arguments<'a> = Rename2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Rename2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let places = resolve_name(call, &arguments.from).and_then(|from| {
            let to = resolve_name(call, &arguments.to)?;
            if is_of_one_share(&from.0, &to.0) { Ok((from, to)) } else { Err(FsError::CrossDevice) }
        });
        let ((from_dir, from_name), (to_dir, to_name)) = match places {
            Ok(places) => places,
            Err(error) => return call.fail(&mut w, unless_dots(error, FsError::AccessDenied)),
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
        let encoded = durable.map(|renamed| encode::stat(&mut w, renamed.result));
        call.barrier(encoded)
    }
}

pub(super) struct Link;

impl Procedure for Link {
    const OPERATION: Operation = changes("LINK");
    type Arguments<'a> = Link2Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Link2Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let places = call.resolve(arguments.from.0).and_then(|object| {
            let (dir, name) = resolve_name(call, &arguments.to)?;
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
        let encoded = durable.map(|(_, changed)| encode::stat(&mut w, changed.result));
        call.barrier(encoded)
    }
}
