//! Data of files: WRITE, COMMIT, and a flush of everything.
//!
//! A WRITE runs under the caller's identity, so that the kernel decides about quotas, reserved space and
//! set-id bits.

use std::sync::Arc;

use rustix::io::Errno;
use steadfast_recovery::Action;
use steadfast_vfs::permission::WRITE;
use steadfast_vfs::{
    Attr, Caller, Changed, Cred, Durable, FileKind, Flush, FlushTarget, FlushWhat, FsError,
    Obligation, PreAttr, StorageHandle, Waiting, Wcc, WriteHow, Written,
};

use super::Tree;
use crate::error::from_errno;
use crate::logging::{self, Effects};
use crate::node::{AllOf, Node};
use crate::volume_log::VolumeLog;

impl Tree {
    pub(crate) fn do_write(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Durable<Changed<Written>> {
        let node = match self.node(object, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        // What it would take to make it stable is nobody's business where nobody is promised that.
        let is_stable = how != WriteHow::Unstable || caller.is_async;
        let is_logged = node.volume.log.as_ref().is_some_and(|log| {
            log.takes_write(data.len(), is_stable) && (is_stable || node.takes_unstable(data.len()))
        });
        let begun = if is_logged {
            Effects::begin(&node.volume, caller, data.len())
        } else {
            Effects::of_touch(&node.volume, caller)
        };
        let mut effects = match begun {
            Ok(effects) => effects,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let mut gap = None;
        let mut times = None;
        let changed = self.ordered(&node, |node, before| {
            times = Some(logging::times_before(before));
            gap = logging::gap(before, offset).filter(|_| !data.is_empty());
            let end = offset.checked_add(data.len() as u64);
            if end.is_none_or(|end| i64::try_from(end).is_err()) {
                return Err(FsError::FileTooLarge);
            }
            require_write(caller.cred, node, before)?;
            let writer = self.writer(node)?;
            self.assume(caller.cred)?;
            if !is_stable && !effects.is_logged() {
                node.mark_dirty();
            }
            let mut written = 0;
            while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
                match rustix::io::pwrite(&writer, rest, offset + written as u64) {
                    Ok(0) => break,
                    Ok(more) => written += more,
                    Err(Errno::INTR) => {}
                    // What was written before the disk was full is told.
                    Err(_) if written > 0 => break,
                    Err(errno) => return Err(from_errno(errno)),
                }
            }
            effects.take(&node.volume);
            if !is_stable && !effects.is_logged() {
                // A flush that began before the data was there may have cleared the mark.
                node.mark_dirty();
            }
            if caller.is_async && effects.is_logged() {
                // Nobody waits for its record, but who commits it.
                node.mark_dirty();
            }
            if node.volume.log.is_some() {
                node.volume.aliases.unflushed.note(node, offset, written as u64);
            }
            effects.touch(node, times);
            let is_more = node.volume.is_volatile() || (effects.is_logged() && !caller.is_async);
            let committed = if is_more { WriteHow::FileSync } else { how };
            Ok(Written { count: written as u32, committed })
        });
        let written = match changed.result {
            Ok(written) => written,
            Err(error) => return effects.fail(&node.volume, error, changed),
        };
        if effects.is_logged() {
            let object = node.key();
            let data = data.get(..written.count as usize).unwrap_or(data);
            effects.change.action = Action::Write { object, offset, data, gap };
            effects.change.before = times;
            effects.tell(object, changed.wcc.after);
            return effects.promise(&node.volume, changed);
        }
        let what = match how {
            _ if caller.is_async => FlushWhat::Everything,
            WriteHow::Unstable => return Durable::promising_nothing(changed),
            WriteHow::DataSync => FlushWhat::Data,
            WriteHow::FileSync => FlushWhat::Everything,
        };
        effects.also_flush(&node, what);
        effects.promise(&node.volume, changed)
    }

    pub(crate) fn do_commit(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Durable<Changed<()>> {
        let (node, attr) = match self.live(object, caller.waiting) {
            Ok(live) => live,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        if attr.kind != FileKind::Regular {
            return Durable::promising_nothing(Changed {
                wcc: Wcc { before: None, after: Some(attr) },
                result: Err(FsError::Invalid),
            });
        }
        let wcc = Wcc { before: Some(PreAttr::from(&attr)), after: Some(attr) };
        let committed = Changed { wcc, result: Ok(()) };
        node.note_commit();
        // With a log, what there is to flush is known: data written before the server last started
        // was flushed, or is under another verifier. Without one, it is the kernel's to know.
        let volume = Arc::clone(&node.volume);
        if volume.log.is_some() && !node.needs_commit() && !volume.async_changes.are_unstable() {
            return Durable::promising_nothing(committed);
        }
        if let Err(error) = volume.log.as_ref().map_or(Ok(()), VolumeLog::require_no_fault) {
            return Durable::promising_nothing(Changed { wcc, result: Err(error) });
        }
        // As the kernel's server: it is in memory, and that is all that was promised.
        if caller.is_async {
            return Durable::promising_nothing(committed);
        }
        let mut effects = Effects::of_flush();
        effects.targets.push((node.now_for(), FlushWhat::Data));
        effects.promise(&volume, committed)
    }

    /// Promises that all of the object's file system is stable, by a flush of the whole: what is dirty
    /// there is not known well enough for less. Unstable WRITEs of any file count, and what a local
    /// process or another share has changed goes along.
    pub(crate) fn do_sync(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
    ) -> Durable<Result<(), FsError>> {
        let checked = self.live(object, caller.waiting).and_then(|(node, _)| {
            node.volume.log.as_ref().map_or(Ok(()), VolumeLog::require_no_fault)?;
            // As for COMMIT: nothing there is more stable than it is.
            if node.volume.is_volatile() {
                return Ok(None);
            }
            if node.volume.ignores_syncfs() { Err(FsError::NotSupported) } else { Ok(Some(node)) }
        });
        let node = match checked {
            Ok(Some(node)) => node,
            Ok(None) => return Durable::promising_nothing(Ok(())),
            Err(error) => return Durable::promising_nothing(Err(error)),
        };
        let domain = node.volume.domain;
        let all = Arc::new(AllOf(node.now_for())) as Arc<dyn FlushTarget>;
        let targets = std::iter::once((all, FlushWhat::Everything)).collect();
        Durable::after(Ok(()), Obligation::Flush(Flush { domain, targets }))
    }
}

/// Whether a caller may write a file's data: its owner always, since the client checked when
/// it opened the file, perhaps while creating it without write permission.
pub(crate) fn require_write(cred: &Cred, node: &Node, attr: &Attr) -> Result<(), FsError> {
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::Invalid),
    }
    if cred.uid == attr.uid { Ok(()) } else { node.require(attr, cred, WRITE) }
}
