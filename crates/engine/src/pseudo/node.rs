//! A directory of the pseudo file system.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher24};
use steadfast_shares::{Decision, RuleSet, ShareId};

use super::ordered::Ordered;
use super::rule_counts::{RuleCounts, is_same};

/// Fixed for ever: handles and file numbers of clients are made with them.
///
/// They need not be secret. A client never names a node by the hash: the handle around it is sealed
/// with a MAC under the server's own key. Paths come from the administrator only, and of two
/// paths with one hash the tree takes the first.
const PATH_KEYS: (u64, u64) = (0x7374_6561_6466_6173, 0x7420_7073_6575_646f);
/// Cookies of clients are made with them.
const NAME_KEYS: (u64, u64) = (0x7374_6561_6466_6173, 0x7420_636f_6f6b_6965);

/// Cookies 0 to 2 are reserved (RFC 8881 §18.23.3). Clients take cookies for signed numbers.
const COOKIE_MIN: u64 = 3;
const COOKIES: u64 = (1 << 63) - COOKIE_MIN;

/// Names a node for ever: a hash of its path, SipHash-2-4 of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeKey(pub(crate) [u8; 16]);

impl NodeKey {
    /// Where a tree has the node.
    pub(super) fn place(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }
}

/// Hashes a path piece by piece.
#[derive(Clone)]
pub(super) struct PathHasher(SipHasher24);

impl PathHasher {
    pub(super) fn new() -> Self {
        Self(SipHasher24::new_with_keys(PATH_KEYS.0, PATH_KEYS.1))
    }

    pub(super) fn write(&mut self, piece: &[u8]) {
        self.0.write(piece);
    }

    /// The key of the path so far.
    pub(super) fn key(&self) -> NodeKey {
        NodeKey(self.0.finish128().as_bytes())
    }
}

pub(super) fn key_of(path: &[u8]) -> NodeKey {
    let mut hasher = PathHasher::new();
    hasher.write(path);
    hasher.key()
}

fn cookie_of(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(NAME_KEYS.0, NAME_KEYS.1);
    hasher.write(name);
    COOKIE_MIN + hasher.finish() % COOKIES
}

/// The first cookie from `wanted` on that no other child has; after the last comes the first.
fn free_cookie(mut wanted: u64, is_taken: impl Fn(u64) -> bool) -> u64 {
    while is_taken(wanted) {
        wanted = COOKIE_MIN + (wanted + 1 - COOKIE_MIN) % COOKIES;
    }
    wanted
}

/// A directory of the pseudo file system. It costs little to clone.
#[derive(Clone)]
pub(crate) struct Node {
    key: NodeKey,
    /// The path of the share for which the node was made: it begins with this node's path.
    made_for: Arc<[u8]>,
    path_length: usize,
    /// In the parent.
    cookie: u64,
    pub(super) change: u64,
    pub(super) own: Option<(ShareId, Arc<RuleSet>)>,
    /// Children by their cookies.
    children: Ordered<NodeKey>,
    /// Rules of the shares beneath, without its own.
    pub(super) beneath: RuleCounts,
}

impl Node {
    pub(super) fn new(
        key: NodeKey,
        (made_for, path_length): (Arc<[u8]>, usize),
        cookie: u64,
        change: u64,
    ) -> Self {
        let (own, children, beneath) = (None, Ordered::default(), RuleCounts::default());
        Self { key, made_for, path_length, cookie, change, own, children, beneath }
    }

    /// Its key, for a handle.
    pub(crate) fn key(&self) -> NodeKey {
        self.key
    }

    /// Its absolute path.
    pub(crate) fn path(&self) -> &[u8] {
        self.made_for.get(..self.path_length).unwrap_or(&[])
    }

    /// Its name in its parent, empty for the root.
    pub(crate) fn name(&self) -> &[u8] {
        let path = self.path();
        let slash = path.iter().rposition(|byte| *byte == b'/');
        slash.and_then(|slash| path.get(slash + 1..)).unwrap_or(&[])
    }

    /// The path of its parent, `None` for the root.
    pub(super) fn parent_path(&self) -> Option<&[u8]> {
        if self.is_root() {
            return None;
        }
        let slash = self.path().iter().rposition(|byte| *byte == b'/')?;
        // The root's path is the slash itself.
        self.path().get(..slash.max(1))
    }

    pub(super) fn is_root(&self) -> bool {
        self.path_length == 1
    }

    /// Its file number, from the hash of the path; never 0.
    pub(crate) fn fileid(&self) -> u64 {
        (u128::from_be_bytes(self.key.0) as u64).max(1)
    }

    /// A number that is raised whenever a child comes or goes, or shares with other rules are
    /// beneath a child, so that clients may see the child that did not, or the reverse.
    ///
    /// A node that goes and comes again has a higher one. Another tree, as after a restart of the
    /// server, counts from 1 again: add what differs then.
    pub(crate) fn change(&self) -> u64 {
        self.change
    }

    /// The share of this very path.
    pub(crate) fn share(&self) -> Option<ShareId> {
        self.own.as_ref().map(|(share, _)| *share)
    }

    /// Links of the directory: those of its children, its own and its parent's.
    pub(crate) fn links(&self) -> u32 {
        u32::try_from(self.children.len()).unwrap_or(u32::MAX).saturating_add(2)
    }

    /// Whether shares are beneath it.
    pub(crate) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// Whether a client may see it: the rules of one share at or beneath it grant him something,
    /// or may do so once names are known. `decide` is what the authority says of a rule set; it is
    /// asked at most once for each, no matter how many shares have it.
    pub(crate) fn is_visible(&self, mut decide: impl FnMut(&Arc<RuleSet>) -> Decision) -> bool {
        let own = self.own.as_ref().map(|(_, rules)| rules);
        let is_own = |rules: &Arc<RuleSet>| own.is_some_and(|own| is_same(own, rules));
        let mut all = own.into_iter().chain(self.beneath.iter().filter(|rules| !is_own(rules)));
        all.any(|rules| match decide(rules) {
            Decision::Granted(_) | Decision::Pending => true,
            Decision::Refused(_) => false,
        })
    }

    pub(super) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Children from this cookie on.
    pub(super) fn children_from(&self, cookie: u64) -> impl Iterator<Item = (u64, &NodeKey)> {
        self.children.from(cookie)
    }

    /// Adds a child, and returns its cookie.
    pub(super) fn add_child(&mut self, name: &[u8], key: NodeKey) -> u64 {
        let is_taken = |cookie| self.children.find(cookie, |_| true).is_some();
        let cookie = free_cookie(cookie_of(name), is_taken);
        self.children.insert(cookie, key);
        cookie
    }

    pub(super) fn remove_child(&mut self, cookie: u64) {
        self.children.remove(cookie, |_| true);
    }

    #[cfg(test)]
    pub(super) fn allocations(&self) -> Vec<(usize, usize)> {
        let mut all = self.children.allocations();
        all.extend(self.beneath.allocations());
        all.push((self.made_for.as_ptr().addr(), self.made_for.len()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_cookies_never_change() {
        // Computed once; a change here would make clients' handles stale and their listings wrong.
        assert_eq!(key_of(b"/").0, GOLDEN_ROOT);
        assert_eq!(cookie_of(b"srv"), GOLDEN_COOKIE);
        let mut pieces = PathHasher::new();
        pieces.write(b"/");
        pieces.write(b"srv");
        assert_eq!(pieces.key(), key_of(b"/srv"));
        pieces.write(b"/");
        pieces.write(b"a");
        assert_eq!(pieces.key(), key_of(b"/srv/a"));
    }

    const GOLDEN_ROOT: [u8; 16] =
        [236, 30, 178, 75, 186, 246, 71, 166, 190, 36, 7, 141, 232, 121, 24, 149];
    const GOLDEN_COOKIE: u64 = 5_108_683_581_901_417_683;

    #[test]
    fn names_with_one_hash_have_different_cookies() {
        let last = (1 << 63) - 1;
        let taken = [10, 11, 13, last, 3];
        let free = |wanted| free_cookie(wanted, |cookie| taken.contains(&cookie));
        assert_eq!(free(9), 9);
        assert_eq!(free(10), 12);
        assert_eq!(free(13), 14);
        assert_eq!(free(last), 4);
    }
}
