//! The pseudo file system of NFSv4 (RFC 8881 §7.3): the directories that lead from the root to the
//! shares.
//!
//! [`PseudoTree`] stands beside the table of exports and is swapped with it. It has a [`Node`] for
//! each share's path and for each directory above one, and nothing of any storage. Handles,
//! file numbers and cookies are derived from paths and names: they hold across restarts, and
//! while other shares come and go.
//!
//! All nodes are in one map by the hashes of their paths; the way up and the way down are other
//! hashes. A tree is immutable once it is served. A clone shares all its nodes, and a change
//! copies the nodes from the root to the share, each with a path through the maps.

mod node;
mod ordered;
mod rule_counts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use steadfast_shares::{RuleSet, ShareId};

pub(crate) use node::{Node, NodeKey};
use node::{PathHasher, key_of};
use ordered::Ordered;
use rule_counts::is_same;

/// The directories that lead to the shares.
#[derive(Clone)]
pub(crate) struct PseudoTree {
    root: Arc<Node>,
    /// All but the root.
    others: Ordered<Arc<Node>>,
    /// The change number given last.
    last_change: u64,
}

impl Default for PseudoTree {
    fn default() -> Self {
        let root = Node::new(key_of(b"/"), (b"/"[..].into(), 1), 0, 1);
        Self { root: Arc::new(root), others: Ordered::default(), last_change: 1 }
    }
}

/// A directory on the way to a path.
struct Step<'a> {
    key: NodeKey,
    path: &'a [u8],
    name: &'a [u8],
}

/// The way to a path from the root on; `None` for a path that no share has: a relative one, or with
/// an empty name in it.
fn steps(path: &[u8]) -> Option<Vec<Step<'_>>> {
    let below_root = path.strip_prefix(b"/")?;
    let mut hasher = PathHasher::new();
    hasher.write(b"/");
    let mut steps = vec![Step { key: hasher.key(), path: path.get(..1)?, name: b"" }];
    if below_root.is_empty() {
        return Some(steps);
    }
    let mut end = 0;
    for name in below_root.split(|byte| *byte == b'/') {
        if name.is_empty() {
            return None;
        }
        if end > 0 {
            hasher.write(b"/");
        }
        hasher.write(name);
        end += 1 + name.len();
        steps.push(Step { key: hasher.key(), path: path.get(..end)?, name });
    }
    Some(steps)
}

impl PseudoTree {
    /// The root; it is there without any share too.
    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    /// The node of this key.
    pub(crate) fn node(&self, key: &NodeKey) -> Option<&Node> {
        if *key == self.root.key() {
            return Some(&self.root);
        }
        self.others.find(key.place(), |node| node.key() == *key).map(|node| &**node)
    }

    /// The directory that has this node; `None` for the root.
    pub(crate) fn parent(&self, node: &Node) -> Option<&Node> {
        self.at(node.parent_path()?)
    }

    /// The child of this name.
    pub(crate) fn child(&self, node: &Node, name: &[u8]) -> Option<&Node> {
        let mut hasher = PathHasher::new();
        hasher.write(node.path());
        if !node.is_root() {
            hasher.write(b"/");
        }
        hasher.write(name);
        let child = self.node(&hasher.key())?;
        // A name with a slash in it leads further down.
        (child.name() == name && child.parent_path() == Some(node.path())).then_some(child)
    }

    /// The node of an absolute path.
    pub(crate) fn at(&self, path: &[u8]) -> Option<&Node> {
        self.node(&key_of(path)).filter(|node| node.path() == path)
    }

    /// The children whose cookies are after this one (0: all) with their cookies, in the order of
    /// these. A child keeps its cookie while others come and go. Cookies are above 2 and
    /// below 2^63; no two children of a node have the same.
    pub(crate) fn children_after(
        &self,
        node: &Node,
        cookie: u64,
    ) -> impl Iterator<Item = (u64, &Node)> {
        node.children_from(cookie.saturating_add(1))
            .filter_map(|(cookie, key)| Some((cookie, self.node(key)?)))
    }

    /// Adds a share, and the directories that lead to it. A path that has a share keeps it.
    pub(crate) fn insert(&mut self, path: &[u8], share: ShareId, rules: &Arc<RuleSet>) {
        let Some(steps) = steps(path) else { return };
        let is_other =
            |step: &Step<'_>| self.node(&step.key).is_some_and(|n| n.path() != step.path);
        // Two paths with one hash: the share stays out, as a whole.
        if steps.iter().any(is_other) || self.at(path).is_some_and(|node| node.share().is_some()) {
            return;
        }
        self.make_missing(&steps, path);
        let mut up = steps.iter().rev();
        if let Some(node) = up.next().and_then(|step| self.node_mut(&step.key)) {
            node.own = Some((share, Arc::clone(rules)));
        }
        let mut is_new = true;
        for step in up {
            let change = is_new.then(|| self.next_change());
            let Some(node) = self.node_mut(&step.key) else { return };
            node.change = change.unwrap_or(node.change);
            is_new = node.beneath.add(rules);
        }
    }

    /// Makes those of the directories that are not there, from the root down.
    fn make_missing(&mut self, steps: &[Step<'_>], path: &[u8]) {
        let path: Arc<[u8]> = path.into();
        for (parent, step) in steps.iter().zip(steps.iter().skip(1)) {
            if self.node(&step.key).is_some() {
                continue;
            }
            let change = self.next_change();
            let Some(parent) = self.node_mut(&parent.key) else { return };
            let cookie = parent.add_child(step.name, step.key);
            let path = (Arc::clone(&path), step.path.len());
            let node = Node::new(step.key, path, cookie, change);
            self.others.insert(step.key.place(), Arc::new(node));
        }
    }

    /// Removes a share if it is there with these rules, and the directories that lead to no other.
    pub(crate) fn remove(&mut self, path: &[u8], share: ShareId, rules: &Arc<RuleSet>) {
        let Some(steps) = steps(path) else { return };
        let is_it = |(id, own): &(ShareId, Arc<RuleSet>)| *id == share && is_same(own, rules);
        if !self.at(path).is_some_and(|node| node.own.as_ref().is_some_and(is_it)) {
            return;
        }
        let mut is_last = false;
        let mut gone = None;
        for (index, step) in steps.iter().rev().enumerate() {
            let change = is_last.then(|| self.next_change());
            let Some(node) = self.node_mut(&step.key) else { return };
            node.change = change.unwrap_or(node.change);
            if let Some(cookie) = gone.take() {
                node.remove_child(cookie);
            }
            if index == 0 {
                node.own = None;
                is_last = true;
            } else {
                is_last = node.beneath.take(rules);
            }
            if node.own.is_none() && !node.has_children() && !node.is_root() {
                gone = Some(node.cookie());
                self.others.remove(step.key.place(), |node| node.key() == step.key);
            }
        }
    }

    fn next_change(&mut self) -> u64 {
        self.last_change += 1;
        self.last_change
    }

    fn node_mut(&mut self, key: &NodeKey) -> Option<&mut Node> {
        if *key == self.root.key() {
            return Some(Arc::make_mut(&mut self.root));
        }
        self.others.find_mut(key.place(), |node| node.key() == *key).map(Arc::make_mut)
    }
}
