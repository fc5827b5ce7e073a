//! The locks that order the changes of objects: one an object, whatever trees it is in, since the
//! log must have the changes of one object in the order in which they took effect.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::attributes::Identity;

/// The lock of one object.
#[derive(Debug, Default)]
pub(crate) struct Order {
    lock: Mutex<()>,
    /// Nodes that have it: one a tree that the object is known in.
    nodes: AtomicUsize,
}

impl Order {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    /// By which locks are ordered among each other.
    pub(crate) fn address(&self) -> *const Self {
        self
    }
}

/// The lock of an object as one of its nodes has it.
#[derive(Debug)]
pub(crate) struct NodeOrder(Arc<Order>);

impl NodeOrder {
    fn new(order: Arc<Order>) -> Self {
        order.nodes.fetch_add(1, Ordering::SeqCst);
        Self(order)
    }

    /// Whether the object has another node, that of another tree.
    pub(crate) fn is_shared(&self) -> bool {
        self.nodes.load(Ordering::SeqCst) > 1
    }
}

impl Default for NodeOrder {
    /// Of an object that no other tree has to do with.
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Deref for NodeOrder {
    type Target = Order;

    fn deref(&self) -> &Order {
        &self.0
    }
}

impl Drop for NodeOrder {
    fn drop(&mut self) {
        self.nodes.fetch_sub(1, Ordering::SeqCst);
    }
}

const SHARDS: usize = 64;
/// Locks of a shard that are kept before those are looked for that nobody has any more.
const KEPT_MIN: usize = 64;

#[derive(Default)]
struct Shard {
    orders: HashMap<Identity, Weak<Order>>,
    /// How many there were when they were last looked through.
    kept: usize,
}

impl Shard {
    fn forget_gone(&mut self) {
        self.orders.retain(|_, order| order.strong_count() > 0);
        self.kept = self.orders.len();
    }
}

/// All objects' locks.
pub(crate) struct Orders {
    shards: [Mutex<Shard>; SHARDS],
}

impl Orders {
    pub(crate) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Gives back the memory of locks that nobody has.
    pub(crate) fn forget_gone(&self) {
        for shard in &self.shards {
            shard.lock().forget_gone();
        }
    }

    /// The lock of an object; it is the same for as long as anybody has it.
    pub(crate) fn of(&self, identity: Identity) -> NodeOrder {
        let mix = identity.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ identity.device;
        let Some(shard) = self.shards.get((mix >> 32) as usize % SHARDS) else {
            return NodeOrder::default();
        };
        let mut shard = shard.lock();
        if let Some(order) = shard.orders.get(&identity).and_then(Weak::upgrade) {
            return NodeOrder::new(order);
        }
        if shard.orders.len() >= 2 * shard.kept.max(KEPT_MIN) {
            shard.forget_gone();
        }
        let order = Arc::default();
        shard.orders.insert(identity, Arc::downgrade(&order));
        NodeOrder::new(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_one_lock_and_those_nobody_has_are_let_go() {
        let orders = Orders::new();
        let identity = |inode| Identity { device: 5, inode };
        let first = orders.of(identity(7));
        assert_eq!(first.address(), orders.of(identity(7)).address());
        assert_ne!(first.address(), orders.of(identity(8)).address());
        for inode in 0..100_000 {
            orders.of(identity(1000 + inode));
        }
        let kept: usize = orders.shards.iter().map(|shard| shard.lock().orders.len()).sum();
        assert!(kept <= SHARDS * 2 * KEPT_MIN, "{kept}");
        assert_eq!(first.address(), orders.of(identity(7)).address());
    }

    #[test]
    fn it_is_known_whether_another_node_has_the_lock() {
        let orders = Orders::new();
        let identity = Identity { device: 5, inode: 7 };
        let first = orders.of(identity);
        assert!(!first.is_shared());
        let second = orders.of(identity);
        assert!(first.is_shared() && second.is_shared());
        drop(first);
        assert!(!second.is_shared() && !NodeOrder::default().is_shared());
    }
}
