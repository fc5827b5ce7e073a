//! The tree that is walked: directories, files and symbolic links whose names tell what belongs
//! in them, so that every listing can be checked.

use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_client::FileHandle;

use super::Walk;
use crate::drive::Control;
use crate::error::BenchError;
use crate::preparing::{self, Making, Preparer, What};

/// Directories of a directory of the first level.
const LEAVES_OF_TOP: usize = 64;
/// One of so many names is a symbolic link.
const LINK_EVERY: usize = 20;
/// How often progress is told: after so many directories.
const TELL_EVERY: usize = 64;

/// How many of what: determined by the number of inodes and of names a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    tops: usize,
    leaves: usize,
    names: usize,
    names_of_leaf: usize,
}

/// A directory's place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Root,
    Top(usize),
    Leaf(usize),
}

impl Shape {
    /// A tree of so many inodes below its root.
    pub(crate) fn of(inodes: usize, names_of_leaf: usize) -> Self {
        let names_of_leaf = names_of_leaf.max(1);
        // A top directory has 64 directories, each of them so many names.
        let of_top = 1 + LEAVES_OF_TOP * (1 + names_of_leaf);
        let tops = inodes.div_ceil(of_top).max(1);
        let leaves = inodes.saturating_sub(tops).div_ceil(1 + names_of_leaf);
        let names = inodes.saturating_sub(tops + leaves);
        Self { tops, leaves, names, names_of_leaf }
    }

    /// Inodes below the root.
    pub(crate) fn inodes(&self) -> usize {
        self.tops + self.leaves + self.names
    }

    /// How many names a directory has.
    pub(crate) fn names_of(&self, place: Place) -> usize {
        let share =
            |of: usize, number: usize, each: usize| of.saturating_sub(number * each).min(each);
        match place {
            Place::Root => self.tops,
            Place::Top(number) => share(self.leaves, number, LEAVES_OF_TOP),
            Place::Leaf(number) => share(self.names, number, self.names_of_leaf),
        }
    }

    /// The directories of a directory of the first level.
    fn leaves_of(&self, top: usize) -> std::ops::Range<usize> {
        let first = top * LEAVES_OF_TOP;
        first..first + self.names_of(Place::Top(top))
    }
}

/// What a name in the tree is, as its first letter tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Directory(Place),
    File,
    Symlink,
}

/// Reads a name; `None` for one that is not of the tree.
pub(crate) fn named(name: &[u8]) -> Option<Named> {
    let (letter, digits) = name.split_first()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match letter {
        b't' => Some(Named::Directory(Place::Top(number))),
        b'd' => Some(Named::Directory(Place::Leaf(number))),
        b'f' => Some(Named::File),
        b's' => Some(Named::Symlink),
        _ => None,
    }
}

/// Where a symbolic link points.
pub(crate) fn link_target(name: &[u8]) -> Vec<u8> {
    [b"../target-of-".as_slice(), name].concat()
}

/// A tree in a share.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) shape: Shape,
    pub(crate) root: FileHandle,
    share: FileHandle,
    name: Vec<u8>,
    pub(crate) was_there: bool,
}

impl Tree {
    /// Finds the tree, or makes it.
    pub(crate) fn prepare(walk: &Walk, control: &Control) -> Result<Self, BenchError> {
        let shape = Shape::of(walk.inodes, walk.names_of_directory);
        let (mut client, share) = Preparer::mount(&walk.target, walk.nfs, &walk.path)?;
        let name = format!("steadfast-walk-{}-{}", shape.inodes(), shape.names_of_leaf);
        let name = name.into_bytes();
        let root = client.find(&share, &name)?;
        if let (Some(root), Some(_)) = (root.clone(), client.find(&share, &complete(&name))?) {
            client.end()?;
            return Ok(Self { shape, root, share, name, was_there: true });
        }
        if root.is_some() {
            control.show("walk: removing a tree that was not finished");
            client.remove_tree(&share, &name)?;
        }
        let root = client.directory(&share, &name)?;
        let tree = Self { shape, root, share, name, was_there: false };
        tree.make(walk, control, &mut client)?;
        client.end()?;
        control.clear();
        Ok(tree)
    }

    fn make(
        &self,
        walk: &Walk,
        control: &Control,
        client: &mut Preparer,
    ) -> Result<(), BenchError> {
        let shape = &self.shape;
        let directory = |parent, name: String| {
            let (name, what) = (name.into_bytes(), What::Directory);
            Making { parent, name, what }
        };
        let tops: Vec<Making<'_>> =
            (0..shape.tops).map(|top| directory(&self.root, format!("t{top:04}"))).collect();
        let tops = client.make(control, &tops)?;
        let leaves: Vec<Making<'_>> = tops
            .iter()
            .enumerate()
            .flat_map(|(number, top)| {
                shape.leaves_of(number).map(move |leaf| directory(top, format!("d{leaf:06}")))
            })
            .collect();
        let leaves = client.make(control, &leaves)?;
        let made = AtomicUsize::new(0);
        preparing::in_parallel(&walk.target, walk.nfs, &leaves, |client, first, own| {
            for (index, leaf) in own.iter().enumerate() {
                client.make(control, &self.names(leaf, first + index))?;
                let made = made.fetch_add(1, Ordering::Relaxed) + 1;
                if made.is_multiple_of(TELL_EVERY) {
                    let of = leaves.len();
                    control.show(&format!("walk: made {made} of {of} directories"));
                }
            }
            Ok(Vec::<()>::new())
        })?;
        // Only a tree that is whole is found again.
        let (name, what) = (complete(&self.name), What::File);
        client.make(control, &[Making { parent: &self.share, name, what }]).map(drop)
    }

    /// The names of a directory that has files.
    fn names<'a>(&self, parent: &'a FileHandle, number: usize) -> Vec<Making<'a>> {
        let name = |number: usize| {
            if number % LINK_EVERY == LINK_EVERY - 1 {
                let name = format!("s{number:04}").into_bytes();
                let what = What::Link(link_target(&name));
                Making { parent, name, what }
            } else {
                Making { parent, name: format!("f{number:04}").into_bytes(), what: What::File }
            }
        };
        (0..self.shape.names_of(Place::Leaf(number))).map(name).collect()
    }

    /// Removes the tree.
    pub(crate) fn remove(&self, walk: &Walk) -> Result<(), BenchError> {
        let mut client = Preparer::connect(&walk.target, walk.nfs)?;
        client.remove(&self.share, &complete(&self.name))?;
        client.remove_tree(&self.share, &self.name)?;
        client.end()
    }
}

/// The name of the file that says that a tree is whole.
fn complete(name: &[u8]) -> Vec<u8> {
    [name, b".complete".as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tree_has_the_inodes_that_were_asked_for(inodes in 3_usize..200_000, names in 1_usize..100) {
            let shape = Shape::of(inodes, names);
            prop_assert_eq!(shape.inodes(), inodes);
            let tops: usize = (0..shape.tops).map(|top| shape.names_of(Place::Top(top))).sum();
            prop_assert_eq!(tops, shape.leaves);
            let leaves: usize =
                (0..shape.leaves).map(|leaf| shape.names_of(Place::Leaf(leaf))).sum();
            prop_assert_eq!(leaves, shape.names);
        }
    }

    #[test]
    fn names_tell_what_they_are() {
        assert_eq!(named(b"t0003"), Some(Named::Directory(Place::Top(3))));
        assert_eq!(named(b"d000123"), Some(Named::Directory(Place::Leaf(123))));
        assert_eq!(named(b"f0001"), Some(Named::File));
        assert_eq!(named(b"s0019"), Some(Named::Symlink));
        for name in [&b""[..], b"t", b"x1", b"f-1", b"d\xff"] {
            assert_eq!(named(name), None);
        }
    }
}
