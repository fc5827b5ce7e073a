//! What the log keeps of an object that was just made, beside its attributes: when it was made, by
//! which it is told from another one that gets its handle after a crash, and the access lists that its
//! directory gave it, which that may not have any more when the object has to be made again.

use std::os::fd::AsFd;

use rustix::io::Errno;
use steadfast_recovery::{Action, AskedAttributes, BeingMade, MADE_ACL_BYTES, Made, MadeAcls};
use steadfast_sys::xattr;
use steadfast_vfs::{Attr, Caller, FileKind, FsError, SetAttr, SetTime, Time};

use super::Tree;
use crate::acl::{self, Which};
use crate::attributes;
use crate::logging::{self, Effects};
use crate::node::Node;

impl Tree {
    /// Writes down that an object is about to be made, of a kind, or a symbolic link to a target. Not if
    /// something has the name: the call makes nothing then.
    pub(crate) fn begin_making(
        &self,
        caller: &Caller<'_>,
        (dir, name): (&Node, &[u8]),
        (kind, target): (FileKind, &[u8]),
        set: &SetAttr,
        effects: &mut Effects<'_>,
    ) {
        if !Effects::notes_calls(&dir.volume, caller) || !is_free(dir, name) {
            return;
        }
        // Who knows a file already may have written to it.
        let asked = AskedAttributes { size: None, ..AskedAttributes::from(set) };
        let uid = self.acting_uid(caller.cred);
        let (place, object) = (logging::place(dir, name), dir.key());
        let action = Action::Make { place, object, target };
        effects.begin_call(caller, dir, Some(BeingMade { kind, uid, asked }), action);
    }
}

/// Writes down that attributes are about to be set which depend on the ctime: executed again, the call
/// would find another one.
pub(crate) fn begin_setting(
    caller: &Caller<'_>,
    node: &Node,
    before: &Attr,
    set: &SetAttr,
    effects: &mut Effects<'_>,
) {
    let made = BeingMade { kind: before.kind, uid: before.uid, asked: AskedAttributes::from(set) };
    let Attr { ctime, mtime, .. } = *before;
    let action = Action::Touched { object: node.key(), ctime, mtime };
    effects.begin_call(caller, node, Some(made), action);
}

/// Whether nothing has a name, for calls that take it.
pub(crate) fn is_free(dir: &Node, name: &[u8]) -> bool {
    matches!(attributes::stat_name(&dir.path, name), Err(Errno::NOENT))
}

/// Takes an object's place in the log that was just made, and tells its attributes. Others can
/// find it already: read after the place was taken, the attributes have all that was changed
/// before, and what is changed later has a later place.
pub(crate) fn taken(effects: &mut Effects<'_>, node: &Node, attr: Attr) -> Attr {
    if !effects.is_logged() {
        return attr;
    }
    // Found large before the place is taken, they can still be flushed instead.
    if inherited(node).is_some_and(|acls| bytes(&acls) > MADE_ACL_BYTES) {
        effects.flush_instead(&node.volume);
        return attr;
    }
    effects.take(&node.volume);
    let born =
        attributes::stat_with_mount(&node.path).ok().and_then(|stat| attributes::born(&stat));
    // Somebody may have set others since.
    let acls = inherited(node).filter(|acls| bytes(acls) <= MADE_ACL_BYTES);
    effects.change.made = Some(Box::new(Made { born, acls }));
    let attr = node.attr().unwrap_or(attr);
    effects.tell(node.key(), Some(attr));
    attr
}

fn bytes(acls: &MadeAcls) -> usize {
    acls.access.len() + acls.default.len()
}

/// The access lists of an object; `None` if they cannot be read.
fn inherited(node: &Node) -> Option<MadeAcls> {
    if !node.volume.has_acls || node.kind == FileKind::Symlink {
        return Some(MadeAcls::default());
    }
    let access = match node.kept_writer() {
        Some(file) => acl::kept(file.as_fd(), Which::Access, xattr::value_of_open),
        None => acl::kept(node.path.as_fd(), Which::Access, xattr::value),
    };
    let default = match node.kind {
        FileKind::Directory => acl::kept(node.path.as_fd(), Which::Default, xattr::value),
        _ => Ok(Vec::new()),
    };
    Some(MadeAcls { access: access.ok()?, default: default.ok()? })
}

/// The attributes of what is made in a directory: of the mode less what is masked, unless the kernel gives
/// it the directory's default list instead (umask(2)).
pub(crate) fn unmasked(dir: &Node, set: &SetAttr) -> Result<SetAttr, FsError> {
    let inherits = set.umask != 0
        && dir.volume.has_acls
        && !acl::kept(dir.path.as_fd(), Which::Default, xattr::value)?.is_empty();
    let umask = if inherits { 0 } else { set.umask };
    Ok(SetAttr { mode: set.mode.map(|mode| mode & !umask), umask: 0, ..*set })
}

/// Where an exclusive CREATE's verifier is kept: in the seconds of two times, 31 bits each, since
/// some file systems keep no more.
pub(crate) fn verifier_seconds(verifier: [u8; 8]) -> [i64; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [[a, b, c, d], [e, f, g, h]].map(|bytes| i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff))
}

pub(crate) fn verifier_attributes(verifier: [u8; 8]) -> SetAttr {
    let [atime, mtime] =
        verifier_seconds(verifier).map(|seconds| SetTime::To(Time { seconds, nanoseconds: 0 }));
    SetAttr { atime, mtime, ..SetAttr::default() }
}
