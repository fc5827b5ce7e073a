//! The nodes that are held open, found by handle and by inode.
//!
//! A node that anybody uses is always in both indexes until its object loses its last name, so
//! that there is one node an object and its order lock means something. Indexes are sharded;
//! where both are locked, the one by handle is locked first.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::Mutex;
use steadfast_sys::pinned::{Reason, WeakPinned};
use steadfast_vfs::StorageHandle;

use crate::attributes::Identity;
use crate::budget::Budget;
use crate::node::{Node, NodePin};
use crate::pins::{self, Kept, Look, OpenObjects};
use crate::recent::{self, By};

const SHARDS: usize = 64;
/// Shards that one sweep looks at: all of them within eight seconds.
const SHARDS_A_SWEEP: usize = 8;
/// Nodes that had data not flushed that one eviction looks at again, one a shard.
const UNFLUSHED_LOOKED_AT_AGAIN: usize = 8;

/// Handles are sealed before clients see them and inode numbers are not theirs to choose, so a
/// hash that is only quick is good enough.
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xe703_7ed1_a0b4_28db;
    (product as u64) ^ (product >> 64) as u64
}

fn hash_of_handle(tree: u32, handle: &StorageHandle) -> u64 {
    let mut hash = u64::from(tree);
    for chunk in handle.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash
}

fn hash_of_inode(tree: u32, identity: Identity) -> u64 {
    mix(mix(u64::from(tree), identity.device), identity.inode)
}

/// Nodes by what they have themselves: an index of thousands of objects, or of the roots of thousands
/// of shares, takes a word for each.
#[derive(Default)]
struct Index(HashTable<NodePin<Kept>>);

impl Index {
    fn insert(&mut self, hash: u64, node: &NodePin, rehash: fn(&Node) -> u64) {
        self.0.insert_unique(hash, node.pin(), |node| rehash(node));
    }

    fn remove<R: Reason>(&mut self, hash: u64, node: &NodePin<R>) {
        if let Ok(entry) = self.0.find_entry(hash, |present| present.is_same(node)) {
            entry.remove();
        }
    }
}

fn rehash_by_handle(node: &Node) -> u64 {
    hash_of_handle(node.tree, &node.handle)
}

fn rehash_by_inode(node: &Node) -> u64 {
    hash_of_inode(node.tree, node.identity)
}

#[derive(Default)]
struct HandleShard {
    nodes: Index,
    /// The nodes in the order in which they are considered for eviction. Weak, so that nothing
    /// here keeps a removed file's space.
    queue: VecDeque<WeakPinned<Node>>,
    /// Those that had data not flushed when they were considered. Apart, since as long as they have,
    /// every eviction would have to go past all of them.
    unflushed: VecDeque<WeakPinned<Node>>,
}

impl HandleShard {
    fn forget_gone(&mut self) {
        for queue in [&mut self.queue, &mut self.unflushed] {
            queue.retain(|node| !node.is_gone());
        }
    }

    fn find(&self, hash: u64, tree: u32, handle: &StorageHandle) -> Option<&NodePin<Kept>> {
        self.nodes.0.find(hash, |node| node.tree == tree && node.handle == *handle)
    }
}

#[derive(Default)]
struct InodeShard(Index);

impl InodeShard {
    fn find(
        &self,
        hash: u64,
        tree: u32,
        identity: Identity,
        kernel_mount: u64,
    ) -> Option<&NodePin<Kept>> {
        self.0.0.find(hash, |node| {
            node.tree == tree && node.identity == identity && node.mount.kernel_id == kernel_mount
        })
    }
}

pub(crate) struct Cache {
    by_handle: Box<[Mutex<HandleShard>]>,
    by_inode: Box<[Mutex<InodeShard>]>,
    budget: Arc<Budget>,
    /// Where the next eviction, and the next sweep, begin.
    eviction_hand: AtomicUsize,
    sweep_hand: AtomicUsize,
}

impl Cache {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self {
            by_handle: (0..SHARDS).map(|_| Mutex::default()).collect(),
            by_inode: (0..SHARDS).map(|_| Mutex::default()).collect(),
            budget,
            eviction_hand: AtomicUsize::new(0),
            sweep_hand: AtomicUsize::new(0),
        }
    }

    /// The high bits choose the shard; the map inside uses the low ones.
    #[allow(clippy::indexing_slicing)]
    fn handle_shard(&self, hash: u64) -> &Mutex<HandleShard> {
        &self.by_handle[(hash >> 48) as usize % SHARDS]
    }

    #[allow(clippy::indexing_slicing)]
    fn inode_shard(&self, hash: u64) -> &Mutex<InodeShard> {
        &self.by_inode[(hash >> 48) as usize % SHARDS]
    }

    pub(crate) fn find(&self, tree: u32, handle: &StorageHandle) -> Option<NodePin> {
        let hash = hash_of_handle(tree, handle);
        let is_it =
            |node: &NodePin| node.tree == tree && node.handle == *handle && self.is_of_this(node);
        let node = if let Some(node) = recent::find(By::Handle, hash).filter(is_it) {
            node
        } else {
            let node = self.handle_shard(hash).lock().find(hash, tree, handle)?.pin();
            recent::note(By::Handle, hash, &node);
            node
        };
        node.touch();
        Some(node)
    }

    /// The node of an object on this mount: on another one, where the same is mounted, it has another
    /// node and another handle, and other rules perhaps.
    pub(crate) fn find_inode(
        &self,
        tree: u32,
        identity: Identity,
        kernel_mount: u64,
    ) -> Option<NodePin> {
        let hash = hash_of_inode(tree, identity);
        let is_it = |node: &NodePin| {
            node.tree == tree
                && node.identity == identity
                && node.mount.kernel_id == kernel_mount
                && self.is_of_this(node)
        };
        let node = if let Some(node) = recent::find(By::Inode, hash).filter(is_it) {
            node
        } else {
            let node = {
                let shard = self.inode_shard(hash).lock();
                shard.find(hash, tree, identity, kernel_mount)?.pin()
            };
            recent::note(By::Inode, hash, &node);
            node
        };
        node.touch();
        Some(node)
    }

    /// A thread may serve several storages, each with a cache of its own.
    fn is_of_this(&self, node: &Node) -> bool {
        node.has_budget(&self.budget)
    }

    /// Puts a node in, unless its object has one: the one to use is returned.
    pub(crate) fn insert(&self, node: Node) -> NodePin {
        let (hash, inode_hash) = (rehash_by_handle(&node), rehash_by_inode(&node));
        let node = {
            let mut shard = self.handle_shard(hash).lock();
            if let Some(present) = shard.find(hash, node.tree, &node.handle) {
                return present.pin();
            }
            let mut inodes = self.inode_shard(inode_hash).lock();
            let kernel_mount = node.mount.kernel_id;
            let present = inodes.find(inode_hash, node.tree, node.identity, kernel_mount);
            if let Some(present) = present {
                return present.pin();
            }
            let node = NodePin::new(node);
            inodes.0.insert(inode_hash, &node, rehash_by_inode);
            drop(inodes);
            shard.queue.push_back(node.downgrade());
            if shard.queue.len() + shard.unflushed.len() > 2 * shard.nodes.0.len() + 64 {
                shard.forget_gone();
            }
            shard.nodes.insert(hash, &node, rehash_by_handle);
            node
        };
        self.make_room();
        node
    }

    /// Lets a node go: its object has no name left.
    pub(crate) fn remove<R: Reason>(&self, node: &NodePin<R>) {
        let mut shard = self.handle_shard(rehash_by_handle(node)).lock();
        self.remove_locked(&mut shard, node);
    }

    /// Lets a node go that has no pin but the asker's. Whether it is gone.
    pub(crate) fn let_go_if_idle(&self, node: &NodePin) -> bool {
        let mut shard = self.handle_shard(rehash_by_handle(node)).lock();
        let is_idle = self.claim_idle(node);
        if is_idle {
            self.remove_locked(&mut shard, node);
        }
        is_idle
    }

    fn remove_locked<R: Reason>(&self, shard: &mut HandleShard, node: &NodePin<R>) {
        node.end();
        shard.nodes.remove(rehash_by_handle(node), node);
        let inode_hash = rehash_by_inode(node);
        self.inode_shard(inode_hash).lock().0.remove(inode_hash, node);
    }

    /// Lets all nodes of a tree go, and flushes what they had not flushed.
    pub(crate) fn remove_tree(&self, tree: u32) {
        // One of each mount, to flush it by.
        let mut one_a_mount: Vec<NodePin<Look>> = Vec::new();
        for shard in &self.by_handle {
            let mut gone = Vec::new();
            shard.lock().nodes.0.retain(|node| {
                let stays = node.tree != tree;
                if !stays {
                    node.end();
                    gone.push(node.pin::<Look>());
                }
                stays
            });
            for node in &gone {
                node.end_guard();
                if node.is_dirty() {
                    node.mount.let_dirty_go();
                }
                self.remove(node);
                if !one_a_mount.iter().any(|known| Arc::ptr_eq(&known.mount, &node.mount)) {
                    one_a_mount.push(node.clone());
                }
            }
        }
        for node in one_a_mount {
            if let Err(error) = node.sync_let_go() {
                tracing::error!(
                    "what clients wrote and had not committed when a share was taken away may be \
                     lost: the file system cannot be flushed: {error}"
                );
                // Who has it still finds that out by its COMMIT.
                if let Some(log) = &node.volume.log {
                    log.note_loss();
                }
            }
        }
    }

    /// Gives back the memory of nodes that are gone, which is kept as long as they are considered for
    /// eviction.
    pub(crate) fn forget_gone(&self) {
        for shard in &self.by_handle {
            let mut shard = shard.lock();
            shard.forget_gone();
            shard.queue.shrink_to_fit();
            shard.unflushed.shrink_to_fit();
        }
    }

    /// The trees of which an object must not be let go: somebody has a pin of it, or something would be
    /// lost or untold.
    pub(crate) fn trees_that_must_stay(&self) -> HashSet<u32> {
        let mut trees = HashSet::new();
        self.look_at_all(|node| {
            if pins::keeps_tree(node.pins()) || node.must_stay() {
                trees.insert(node.tree);
            }
        });
        trees
    }

    /// How many objects there are, and why they stay.
    pub(crate) fn open_objects(&self) -> OpenObjects {
        let mut objects = OpenObjects::default();
        self.look_at_all(|node| objects.add(node.pins(), node.is_dirty()));
        objects
    }

    /// Looks at all nodes, not under a lock: the kernel may be asked.
    fn look_at_all(&self, mut look: impl FnMut(&NodePin<Look>)) {
        for shard in &self.by_handle {
            nodes_of(shard).iter().for_each(&mut look);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_handle.iter().map(|shard| shard.lock().nodes.0.len()).sum()
    }

    /// Evicts until the budget is kept, or nothing more can go: first what is idle and flushed, as
    /// far as it is found soon, then, if that was not enough, what is not (which the kernel keeps,
    /// and the mount remembers that there was some). Tells how many nodes it looked at for that.
    pub(crate) fn make_room(&self) -> usize {
        let mut looked_at = 0;
        for visited in 0..2 * SHARDS {
            if !self.budget.is_exceeded() {
                break;
            }
            let index = self.eviction_hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(shard) = self.by_handle.get(index) else { continue };
            let (evicted, seen) = if visited < SHARDS {
                self.take_flushed(&mut shard.lock(), visited < UNFLUSHED_LOOKED_AT_AGAIN)
            } else {
                self.take_unflushed(&mut shard.lock())
            };
            looked_at += seen;
            // Closing descriptors may take a while: not under the lock.
            drop(evicted);
        }
        looked_at
    }

    /// Takes a node that is idle and flushed out of the cache, if there is one; and how many were
    /// looked at.
    fn take_flushed(
        &self,
        shard: &mut HandleShard,
        unflushed_again: bool,
    ) -> (Option<NodePin<Look>>, usize) {
        let mut again = 0;
        if unflushed_again && let Some(weak) = shard.unflushed.pop_front() {
            again = 1;
            let is_flushed = weak.upgrade::<Look>().is_none_or(|node| !node.is_dirty());
            let queue = if is_flushed { &mut shard.queue } else { &mut shard.unflushed };
            queue.push_back(weak);
        }
        // Twice round: the first clears the marks of use.
        let most = shard.queue.len().saturating_mul(2).min(256);
        for seen in 1..=most {
            let Some(weak) = shard.queue.pop_front() else { return (None, again + seen) };
            let Some(node) = weak.upgrade::<Look>() else { continue };
            if node.is_dirty() {
                shard.unflushed.push_back(weak);
            } else if node.was_used.swap(false, Ordering::Relaxed) || !self.claim_idle(&node) {
                shard.queue.push_back(weak);
            } else {
                self.remove_locked(shard, &node);
                return (Some(node), again + seen);
            }
        }
        (None, again + most)
    }

    /// As [`Cache::take_flushed`], of those that had data not flushed.
    fn take_unflushed(&self, shard: &mut HandleShard) -> (Option<NodePin<Look>>, usize) {
        let most = shard.unflushed.len().saturating_mul(2).min(256);
        for seen in 1..=most {
            let Some(weak) = shard.unflushed.pop_front() else { return (None, seen) };
            let Some(node) = weak.upgrade::<Look>() else { continue };
            if node.was_used.swap(false, Ordering::Relaxed) || !self.claim_idle(&node) {
                shard.unflushed.push_back(weak);
                continue;
            }
            self.remove_locked(shard, &node);
            return (Some(node), seen);
        }
        (None, most)
    }

    /// Whether only the indexes and the asker have pins of the node, which then is out of the index by
    /// inode. The asker holds the lock of the node's handle shard, and the other index is locked
    /// here, so nobody can get a pin meanwhile from them; who gets one from what his thread noted
    /// ([`recent`]) is seen here, or finds that it has ended: see [`pins`].
    fn claim_idle<R: Reason>(&self, node: &NodePin<R>) -> bool {
        let inode_hash = rehash_by_inode(node);
        let mut inodes = self.inode_shard(inode_hash).lock();
        let is_idle = node.end_if_alone_with(&[Kept::LANE, Kept::LANE]);
        if is_idle {
            // Out of this index while it is locked: from here on nobody finds it.
            inodes.0.remove(inode_hash, node);
            // Asked now, and not by who chose it: whoever used it last may have written.
            if node.is_dirty() {
                node.mount.let_dirty_go();
            }
        }
        is_idle
    }

    /// Closes what has no name left or was idle for long, in part of the cache.
    pub(crate) fn sweep(&self) {
        for _ in 0..SHARDS_A_SWEEP {
            let index = self.sweep_hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let Some(shard) = self.by_handle.get(index) else { continue };
            for node in nodes_of(shard) {
                let is_idle = node.pass_sweep();
                if node.attr() == Err(steadfast_vfs::FsError::Stale) {
                    self.remove(&node);
                } else if is_idle {
                    let mut shard = shard.lock();
                    if self.claim_idle(&node) {
                        self.remove_locked(&mut shard, &node);
                    }
                }
            }
        }
    }
}

/// The nodes of a shard as they are now.
fn nodes_of(shard: &Mutex<HandleShard>) -> Vec<NodePin<Look>> {
    shard.lock().nodes.0.iter().map(NodePin::pin).collect()
}

#[cfg(test)]
mod tests;
