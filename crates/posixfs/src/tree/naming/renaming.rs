//! RENAME: one object gets another name, and another may lose it.

use steadfast_recovery::{Action, Unlinked};
use steadfast_vfs::permission::EXECUTE;
use steadfast_vfs::{
    Attr, Caller, Durable, FileKind, FlushWhat, FsError, Name, PreAttr, Renamed, StorageHandle,
    Waiting, Wcc,
};

use super::{Victim, also_flush, order_files, removal_error};
use crate::attributes;
use crate::error::from_errno;
use crate::kinds::VolumeKind;
use crate::logging::{self, Effects, place};
use crate::marks;
use crate::node::{Node, NodePin};
use crate::tree::Tree;

impl Tree {
    pub(crate) fn do_rename(
        &self,
        caller: &Caller<'_>,
        from_dir: &StorageHandle,
        from_name: Name<'_>,
        to_dir: &StorageHandle,
        to_name: Name<'_>,
    ) -> Durable<Renamed> {
        let failed = |error| {
            Durable::promising_nothing(Renamed {
                from: Wcc::default(),
                to: Wcc::default(),
                result: Err(error),
            })
        };
        let from = match self.node(from_dir, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return failed(error),
        };
        let to = match self.node(to_dir, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return failed(error),
        };
        let mut effects = match Effects::begin(&to.volume, caller, 0) {
            Ok(effects) => effects,
            Err(error) => return failed(error),
        };
        // Two directories are locked in the order of their locks' addresses, one only once.
        let (mut first, mut second) = (&from.order, &to.order);
        if first.address() > second.address() {
            std::mem::swap(&mut first, &mut second);
        }
        let _first = first.lock();
        let _second = (first.address() != second.address()).then(|| second.lock());
        let (from_before, to_before) = match (from.attr(), to.attr()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return failed(error),
        };
        let result = self.rename_locked(
            caller,
            (&from, &from_before, from_name.as_bytes()),
            (&to, &to_before, to_name.as_bytes()),
            &mut effects,
        );
        let wcc = |node: &Node, before: &Attr| Wcc {
            before: Some(PreAttr::from(before)),
            after: node.attr().ok(),
        };
        let renamed = Renamed { from: wcc(&from, &from_before), to: wcc(&to, &to_before), result };
        if let Err(error) = result {
            return effects.fail(&to.volume, error, renamed);
        }
        effects.tell(from.key(), renamed.from.after);
        effects.tell(to.key(), renamed.to.after);
        // The new name first: a crash between the two leaves two names rather than none.
        if effects.is_flushed() {
            effects.targets.insert(0, (to.pin(), FlushWhat::Everything));
            if !from.is_same(&to) && !to.volume.has_one_journal {
                effects.targets.insert(1, (from.pin(), FlushWhat::Everything));
            }
        }
        effects.promise(&to.volume, renamed)
    }

    fn rename_locked<'n>(
        &self,
        caller: &Caller<'_>,
        (from, from_attr, from_name): (&NodePin, &Attr, &'n [u8]),
        (to, to_attr, to_name): (&NodePin, &Attr, &'n [u8]),
        effects: &mut Effects<'n>,
    ) -> Result<(), FsError> {
        if from_attr.kind != FileKind::Directory || to_attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        from.require(from_attr, caller.cred, EXECUTE)?;
        to.require(to_attr, caller.cred, EXECUTE)?;
        marks::require_neither((from, from_name), (to, to_name))?;
        let is_same_name = from.is_same(to) && from_name == to_name;
        let needs_keys = effects.needs_keys(&to.volume, caller);
        let victim = match self.victim(to, to_name, needs_keys) {
            // Renamed to what it is called already, nothing goes.
            Ok(_) if is_same_name => Victim::default(),
            Ok(victim) => victim,
            Err(FsError::NotFound) => Victim::default(),
            Err(error) => return Err(error),
        };
        let stat = attributes::stat_name(&from.path, from_name).map_err(from_errno)?;
        let (kind, is_btrfs) = (attributes::kind(&stat), to.volume.kind == VolumeKind::Btrfs);
        // Replay tells local changes of files by their times; on btrfs it asks what names an object has.
        let is_told = needs_keys && (kind == FileKind::Regular || is_btrfs);
        // A moved directory's own `..` changes. Taken before, as a victim is.
        let moved = if to.volume.has_one_journal && !is_told {
            self.storage.cache.find_inode(self.id, attributes::identity(&stat), stat.stx_mnt_id)
        } else {
            Some(self.child(from, from_name)?.0)
        };
        if needs_keys {
            let object = self.key_of_name(from, from_name, &stat, moved.as_ref())?;
            // Of two names of one object neither goes (rename(2)).
            let is_nothing =
                is_same_name || victim.unlinked.is_some_and(|unlinked| unlinked.object == object);
            if !is_nothing {
                effects.change.action = Action::Rename {
                    from: place(from, from_name),
                    to: place(to, to_name),
                    object,
                    is_directory: kind == FileKind::Directory,
                    victim: victim.unlinked,
                };
                effects.begin_call(caller, from, None, effects.change.action);
            }
        }
        let _order = order_files([moved.as_ref(), victim.node.as_ref()]);
        self.note_place((from, from_name), (to, to_name))?;
        let told = moved.as_ref().filter(|_| is_told && effects.is_logged());
        let before = told.and_then(|moved| moved.attr().ok());
        self.assume(caller.cred)?;
        let renamed = rustix::fs::renameat(&from.path, from_name, &to.path, to_name);
        if let Err(errno) = renamed {
            // Two places are remembered: a second failure would put the true one out.
            let _ = self.note_place((from, from_name), (from, from_name));
            return Err(removal_error(errno));
        }
        effects.take(&to.volume);
        let unlinked = self.bury(to, &victim, &mut effects.targets);
        if let Action::Rename { victim: gone, object, .. } = &mut effects.change.action {
            let object = *object;
            *gone = unlinked;
            if let (Some(moved), Some(before)) = (told, before) {
                effects.change.before = Some(logging::times_before(&before));
                effects.tell(object, moved.attr().ok());
            }
            let left = victim.node.as_ref().filter(|node| node.kind == FileKind::Regular);
            if let (Some(node), Some(Unlinked { object, is_left: true, .. })) = (left, unlinked) {
                effects.tell(object, node.attr().ok());
            }
        }
        if let Some(moved) = &moved
            && !to.volume.has_one_journal
            && !effects.targets.iter().any(|(target, _)| target.is_same(moved))
        {
            also_flush(to, moved, &mut effects.targets);
        }
        Ok(())
    }
}
