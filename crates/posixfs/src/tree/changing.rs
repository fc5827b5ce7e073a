//! How one object is changed: under the lock that orders its changes, with its attributes before and
//! after, and with what the log is told.

use steadfast_recovery::{Action, Before};
use steadfast_vfs::{
    Attr, Caller, Changed, Durable, FlushWhat, FsError, PreAttr, StorageHandle, Waiting, Wcc,
};

use super::Tree;
use crate::logging::{self, Effects};
use crate::node::NodePin;

impl Tree {
    /// Does something to an object under its order lock, and takes its attributes before and
    /// after.
    pub(crate) fn ordered<T>(
        &self,
        node: &NodePin,
        change: impl FnOnce(&NodePin, &Attr) -> Result<T, FsError>,
    ) -> Changed<T> {
        let _order = node.order.lock();
        let before = match node.attr() {
            Ok(before) => before,
            Err(error) => {
                if error == FsError::Stale {
                    self.storage.cache.remove(node);
                }
                return Changed::failed(error);
            }
        };
        let result = change(node, &before);
        let wcc = Wcc { before: Some(PreAttr::from(&before)), after: node.attr().ok() };
        Changed { wcc, result }
    }

    /// Changes an object otherwise than by WRITE. `data_bytes` is how much there is in the change
    /// beside attributes.
    pub(crate) fn change_object<'c>(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        data_bytes: usize,
        change: impl FnOnce(&NodePin, &Attr, &mut Effects<'c>) -> Result<(), FsError>,
    ) -> Durable<Changed<()>> {
        let node = match self.node(object, Waiting::Allowed) {
            Ok(node) => node,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let mut effects = match Effects::begin(&node.volume, caller, data_bytes) {
            Ok(effects) => effects,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let mut was = None;
        let changed = self.ordered(&node, |node, before| {
            was = Some(logging::before(before));
            let done = change(node, before, &mut effects);
            if done.is_err()
                && effects.is_logged()
                && let Ok(now) = node.attr()
                && now.ctime != before.ctime
            {
                // It failed half way.
                let size = (now.size != before.size).then_some(now.size);
                let object = node.key();
                let gap = logging::gap(before, now.size);
                effects.change.action = Action::Attributes { object, size, gap };
                effects.tell(object, Some(now));
                effects.take(&node.volume);
            }
            effects.touch(node, was);
            done?;
            effects.take(&node.volume);
            effects.touch(node, was);
            Ok(())
        });
        effects.change.before = was;
        if let Err(error) = changed.result {
            return effects.fail(&node.volume, error, changed);
        }
        effects.tell(node.key(), changed.wcc.after);
        effects.also_flush(&node, FlushWhat::Everything);
        effects.promise(&node.volume, changed)
    }

    /// Changes an object in a way that the log has no record of: it is told that the object was changed,
    /// and, when that is stable, that what it has of before is not to be done again.
    pub(crate) fn change_beside_log<T>(
        &self,
        caller: &Caller<'_>,
        object: &StorageHandle,
        change: impl FnOnce(&NodePin, &Attr) -> Result<T, FsError>,
    ) -> Durable<Changed<T>> {
        let begun = self
            .node(object, Waiting::Allowed)
            .and_then(|node| Ok((Effects::of_touch(&node.volume, caller)?, node)));
        let (mut effects, node) = match begun {
            Ok(begun) => begun,
            Err(error) => return Durable::promising_nothing(Changed::failed(error)),
        };
        let changed = self.ordered(&node, |node, before| {
            let done = change(node, before);
            let Attr { ctime, mtime, .. } = *before;
            // It may have failed half way.
            if done.is_ok() || node.attr().is_ok_and(|now| now.ctime != ctime) {
                effects.touch(node, Some(Before { ctime, mtime, ownership: None }));
            }
            done
        });
        if let Err(error) = changed.result {
            return effects.fail(&node.volume, error, changed);
        }
        effects.also_flush(&node, FlushWhat::Everything);
        effects.promise(&node.volume, changed)
    }
}
