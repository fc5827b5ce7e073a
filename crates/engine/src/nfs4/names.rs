//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14), also between the pseudo file system and shares.

use steadfast_shares::{Decision, Flavor};
use steadfast_vfs::{Attr, FileKind, FsError, Name};
use steadfast_wire::nfs4::{Lookup4Args, NfsStat4, Op4};

use super::status::{OrStatus, status};
use crate::call::{Call, Target};
use crate::complaint::{Complaint, MountRefusal, told_path};
use crate::compound::{Op, Run};
use crate::program::Ignored;
use crate::progress::Object;
use crate::pseudo::Node;
use crate::reply::ReplyBuffer;

/// A name of a directory entry (RFC 8881 §14.5): what may not be one is refused by NFSv4's own
/// statuses.
pub(super) fn name(bytes: &[u8]) -> Result<Name<'_>, NfsStat4> {
    if bytes.is_empty() {
        return Err(NfsStat4::Inval);
    }
    Name::new(bytes).map_err(|error| match error {
        FsError::NameTooLong => NfsStat4::NameTooLong,
        // `/`, NUL; `.` and `..`, which are no names in NFSv4.
        _ if bytes.contains(&b'/') || bytes.contains(&0) => NfsStat4::BadChar,
        _ => NfsStat4::BadName,
    })
}

/// Whether the caller may see a directory of the pseudo file system.
pub(super) fn is_visible(run: &Run<'_, '_>, node: &Node) -> bool {
    let call = &*run.call;
    let question = call.peer.question(call.flavor());
    node.is_visible(|rules| call.shared.authority.decide(rules, &question))
}

/// Makes what the caller sees at a node the current object: the share's root if it may use the
/// share, else a directory of the pseudo file system if there is something for it beneath.
pub(super) fn enter(run: &mut Run<'_, '_>, node: &Node) -> Result<(), NfsStat4> {
    match root_of_share(run, node) {
        Ok(Some(target)) => {
            run.set_current_target(target);
            Ok(())
        }
        Ok(None) => enter_pseudo(run, node),
        // Shares beneath may be for him.
        Err(NfsStat4::Access) if node.has_children() => enter_pseudo(run, node),
        Err(status) => Err(status),
    }
}

fn enter_pseudo(run: &mut Run<'_, '_>, node: &Node) -> Result<(), NfsStat4> {
    // The root is there for everybody.
    let is_root = node.name().is_empty();
    if !is_root && !is_visible(run, node) {
        return Err(if node.share().is_some() { NfsStat4::Access } else { NfsStat4::NoEnt });
    }
    run.set_current(Object::Node(node.key()));
    Ok(())
}

/// The root of the share at a node, if it has one.
///
/// # Errors
/// `Access` if the caller may not use it, `WrongSec` if he may by another flavour.
pub(super) fn root_of_share<'a>(
    run: &mut Run<'_, 'a>,
    node: &Node,
) -> Result<Option<Target<'a>>, NfsStat4> {
    let Some(id) = node.share() else { return Ok(None) };
    let exports = run.call.exports;
    let Some(exported) = exports.exported(id) else { return Ok(None) };
    if let Err(error) = run.call.rights(exported) {
        let question = run.call.peer.question(match run.call.flavor() {
            Flavor::None => Flavor::Sys,
            _ => Flavor::None,
        });
        let rules = &exported.export.share.rules;
        let other = run.call.shared.authority.decide(rules, &question);
        return Err(match (error, other) {
            (FsError::AccessDenied, Decision::Granted(_)) => NfsStat4::WrongSec,
            (error, _) => status(error),
        });
    }
    if exported.export.share.is_draining {
        return Err(NfsStat4::Access);
    }
    let storage = run.call.storage(exported).or_status()?;
    let share = &exported.export.share;
    run.call.may_block_for(storage, share).or_status()?;
    let root = storage.root().or_status()?;
    run.resolve(id, root.handle).map(Some).or_status()
}

/// Clients of NFSv4 mount by looking names up from the root on: who gets no further is complained of as a mount that
/// was refused.
fn complain_of_mount(
    call: &mut Call<'_>,
    directory: &Node,
    name: &[u8],
    status: NfsStat4,
    is_draining: bool,
) {
    let why = match status {
        NfsStat4::NoEnt => MountRefusal::NoShare,
        NfsStat4::Access if is_draining => MountRefusal::Draining,
        NfsStat4::Access | NfsStat4::WrongSec => MountRefusal::NoAccess,
        // It is told to come again.
        _ => return,
    };
    if call.complaint.is_none() {
        let above = directory.path().strip_suffix(b"/").unwrap_or(directory.path());
        let path = told_path(&[above, b"/", name].concat());
        call.complaint = Some(Complaint::MountRefused { path, why });
    }
}

/// Whether an object is the root of the share that it was reached by.
pub(super) fn is_root(target: &Target<'_>) -> bool {
    target.storage.root().is_ok_and(|root| root.handle == target.handle)
}

pub(super) struct Lookup;

impl Op for Lookup {
    const NUMBER: Op4 = Op4::Lookup;
    const NAME: &'static str = "LOOKUP";
    type Arguments<'a> = Lookup4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Lookup4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        look_up(run, arguments.objname).map(drop)
    }
}

/// Looks a name up in the current directory; what is found becomes the current object. Returns the
/// directory's attributes, when they could be had.
pub(super) fn look_up(run: &mut Run<'_, '_>, wanted: &[u8]) -> Result<Option<Attr>, NfsStat4> {
    let exports = run.call.exports;
    if let Object::Node(key) = run.current()? {
        let name = name(wanted)?;
        let node = run.node(&key)?;
        let child = exports.pseudo().child(node, name.as_bytes());
        let entered = child.ok_or(NfsStat4::NoEnt).and_then(|child| enter(run, child));
        if let Err(status) = entered {
            let share = child.and_then(Node::share).and_then(|id| exports.exported(id));
            let is_draining = share.is_some_and(|it| it.export.share.is_draining);
            complain_of_mount(run.call, node, name.as_bytes(), status, is_draining);
        }
        return entered.map(|()| None);
    }
    let (call, dir) = run.stored(NfsStat4::NotDir)?;
    call.seldom_blocks(dir).or_status()?;
    let found = name(wanted);
    let mut dir_attr = None;
    let found = call.read(dir, |caller| {
        let Ok(name) = found else {
            dir_attr = Some(dir.storage.attributes(caller, &dir.handle)?);
            return Ok(None);
        };
        let looked = dir.storage.lookup(caller, &dir.handle, name);
        dir_attr = looked.dir_attr;
        looked.result.map(Some)
    });
    // Whatever the name: only directories have names.
    match dir_attr.map(|attr| attr.kind) {
        Some(FileKind::Symlink) => return Err(NfsStat4::SymLink),
        Some(FileKind::Directory) | None => {}
        Some(_) => return Err(NfsStat4::NotDir),
    }
    let Some(entry) = found.or_status()? else {
        return name(wanted).map(|_| dir_attr);
    };
    call.require_access(dir, &entry.handle).or_status()?;
    // A share in this one has rules of its own.
    if let Some(node) = exports.pseudo().at(dir.share.path.as_bytes())
        && node.has_children()
        && let Some(child) = exports.pseudo().child(node, wanted)
        && child.share().is_some()
        && is_root(dir)
    {
        match root_of_share(run, child) {
            Ok(Some(target)) => {
                run.set_current_target(target);
                return Ok(dir_attr);
            }
            Ok(None) | Err(NfsStat4::Access) => {}
            Err(status) => return Err(status),
        }
    }
    let share = match run.current()? {
        Object::Stored(share, _) => share,
        Object::Node(_) => return Err(NfsStat4::ServerFault),
    };
    run.set_current(Object::Stored(share, entry.handle));
    Ok(dir_attr)
}

pub(super) struct LookupP;

impl Op for LookupP {
    const NUMBER: Op4 = Op4::LookupP;
    const NAME: &'static str = "LOOKUPP";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, _: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        let exports = run.call.exports;
        let above = match run.current()? {
            Object::Node(key) => Some(run.node(&key)?),
            Object::Stored(..) => {
                let (_, dir) = run.stored(NfsStat4::NotDir)?;
                if is_root(dir) { exports.pseudo().at(dir.share.path.as_bytes()) } else { None }
            }
        };
        if let Some(node) = above {
            let parent = exports.pseudo().parent(node).ok_or(NfsStat4::NoEnt)?;
            return enter(run, parent);
        }
        let (call, dir) = run.stored(NfsStat4::NotDir)?;
        call.seldom_blocks(dir).or_status()?;
        let mut dir_attr = None;
        let found = call.read(dir, |caller| {
            let looked = dir.storage.lookup_parent(caller, &dir.handle);
            dir_attr = looked.dir_attr;
            looked.result
        });
        if dir_attr.is_some_and(|attr| attr.kind == FileKind::Symlink) {
            return Err(NfsStat4::SymLink);
        }
        let entry = found.or_status()?;
        call.require_access(dir, &entry.handle).or_status()?;
        let share = dir.share.id;
        run.set_current(Object::Stored(share, entry.handle));
        Ok(())
    }
}
