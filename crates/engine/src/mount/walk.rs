//! From a path that is to be mounted to the object it names, along symbolic links that stay inside the
//! share.
//!
//! The kernel's server resolves the path on its own file systems, and looks for a share that has what
//! comes of it. Here the share is found by the path as it was asked for, and no link leads out of it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use steadfast_vfs::{Caller, Entry, FileKind, FileSystem, FsError, Name};

/// Most links on one way (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;
/// Most names that may be left to go: links of links make many of few.
const NAMES_MAX: usize = 4096;

/// What is named by `below` in the share of this directory.
///
/// # Errors
/// The storage's; `AccessDenied` for a link that leads out of the share, `Invalid` for one of too many.
pub(super) fn walk(
    storage: &dyn FileSystem,
    caller: &Caller<'_>,
    directory: &Path,
    below: &[u8],
) -> Result<Entry, FsError> {
    let root = storage.root()?;
    let mut entry = root;
    // The directories on the way to it, links resolved.
    let mut above = Vec::new();
    // What is left to go, the next one last.
    let mut left = Vec::new();
    go_on(&mut left, below)?;
    let mut links = 0;
    while let Some(name) = left.pop() {
        if entry.attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        match &*name {
            b"." => {}
            b".." => entry = above.pop().ok_or(FsError::AccessDenied)?,
            name => {
                let found = storage.lookup(caller, &entry.handle, Name::new(name)?).result?;
                if found.attr.kind != FileKind::Symlink {
                    above.push(entry);
                    entry = found;
                    continue;
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(FsError::Invalid);
                }
                let mut target = Vec::new();
                storage.read_link(caller, &found.handle, &mut target)?;
                if !target.starts_with(b"/") {
                    go_on(&mut left, &target)?;
                    continue;
                }
                // As a process of the server's machine would go.
                let inside = beneath(&target, directory).ok_or(FsError::AccessDenied)?;
                go_on(&mut left, inside)?;
                above.clear();
                entry = root;
            }
        }
    }
    Ok(entry)
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

fn go_on(left: &mut Vec<Box<[u8]>>, path: &[u8]) -> Result<(), FsError> {
    left.extend(names(path).rev().map(Box::from));
    if left.len() > NAMES_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// What is left of an absolute path behind a directory, if it leads through it by name.
fn beneath<'p>(path: &'p [u8], directory: &Path) -> Option<&'p [u8]> {
    let mut rest = path;
    for wanted in names(directory.as_os_str().as_bytes()) {
        loop {
            let start = rest.iter().position(|byte| *byte != b'/')?;
            let from = rest.get(start..)?;
            let end = from.iter().position(|byte| *byte == b'/').unwrap_or(from.len());
            let (name, behind) = from.split_at(end);
            rest = behind;
            match name {
                b"." => {}
                name if name == wanted => break,
                _ => return None,
            }
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;
    use steadfast_vfs::model::ModelFs;
    use steadfast_vfs::{Cred, ReplyBarrier, SetAttr, StorageHandle, Waiting};

    use super::*;

    const DIRECTORY: &str = "/srv/data";

    struct Tree {
        storage: ModelFs,
        cred: Cred,
    }

    impl Tree {
        fn caller(&self) -> Caller<'_> {
            Caller::new(&self.cred, Waiting::Allowed)
        }

        fn directory(&self, dir: &StorageHandle, name: &str) -> StorageHandle {
            let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
            let name = Name::new(name.as_bytes()).unwrap();
            let made = self.storage.make_directory(&self.caller(), dir, name, &set);
            made.release(&ReplyBarrier::for_engine()).0.result.unwrap().handle
        }

        fn link(&self, dir: &StorageHandle, name: &str, target: &str) {
            let (name, set) = (Name::new(name.as_bytes()).unwrap(), SetAttr::default());
            let target = target.as_bytes();
            let made = self.storage.make_symlink(&self.caller(), dir, name, target, &set);
            made.release(&ReplyBarrier::for_engine()).0.result.unwrap();
        }

        fn find(&self, below: &str) -> Result<StorageHandle, FsError> {
            walk(&self.storage, &self.caller(), Path::new(DIRECTORY), below.as_bytes())
                .map(|entry| entry.handle)
        }
    }

    #[test]
    fn links_are_followed_as_long_as_they_stay_inside() {
        let cred = Cred { uid: 0, gid: 0, groups: SmallVec::new() };
        let tree = Tree { storage: ModelFs::new(1, 0o755), cred };
        let root = tree.storage.root().unwrap().handle;
        let a = tree.directory(&root, "a");
        let b = tree.directory(&a, "b");
        for (name, target) in [
            ("relative", "a/b"),
            ("dotted", "./a//./b/"),
            ("up", "a/b/../b/.."),
            ("absolute", "/srv/data/a/b"),
            ("slashes", "//srv/.//data///a/b/"),
            ("top", "/srv/data"),
            ("twice", "relative"),
            ("through", "absolute/.."),
            ("out", ".."),
            ("out_and_in", "../data/a"),
            ("elsewhere", "/etc"),
            ("beside", "/srv/data2/a"),
            ("above", "/srv"),
            ("dots", "/srv/data/../data/a"),
            ("around", "/etc/../srv/data/a"),
            ("loop", "loop"),
            ("one", "other"),
            ("other", "one/x"),
            ("nowhere", "a/none"),
        ] {
            tree.link(&root, name, target);
        }
        tree.link(&b, "back", "../../a");
        for (below, expected) in [
            ("", Ok(root)),
            ("/a/b", Ok(b)),
            ("/relative", Ok(b)),
            ("/dotted", Ok(b)),
            ("/up", Ok(a)),
            ("/absolute", Ok(b)),
            ("/slashes", Ok(b)),
            ("/top", Ok(root)),
            ("/top/relative", Ok(b)),
            ("/twice", Ok(b)),
            ("/through", Ok(a)),
            ("/relative/back", Ok(a)),
            ("/relative/back/b/back", Ok(a)),
            ("/out", Err(FsError::AccessDenied)),
            ("/out_and_in", Err(FsError::AccessDenied)),
            ("/elsewhere", Err(FsError::AccessDenied)),
            ("/beside", Err(FsError::AccessDenied)),
            ("/above", Err(FsError::AccessDenied)),
            ("/dots", Err(FsError::AccessDenied)),
            ("/around", Err(FsError::AccessDenied)),
            ("/loop", Err(FsError::Invalid)),
            ("/one", Err(FsError::Invalid)),
            ("/nowhere", Err(FsError::NotFound)),
        ] {
            assert_eq!(tree.find(below), expected, "{below}");
        }
    }

    #[test]
    fn links_that_multiply_end_soon() {
        let cred = Cred { uid: 0, gid: 0, groups: SmallVec::new() };
        let tree = Tree { storage: ModelFs::new(1, 0o755), cred };
        let root = tree.storage.root().unwrap().handle;
        tree.directory(&root, "d");
        tree.link(&root, "l0", "d");
        for depth in 1..40 {
            let target = format!("l{0}/../l{0}", depth - 1);
            tree.link(&root, &format!("l{depth}"), &target);
        }
        assert_eq!(tree.find("/l39"), Err(FsError::Invalid));
        tree.link(&root, "long", &"d/../".repeat(800));
        assert_eq!(tree.find("/long"), Ok(root));
        tree.link(&root, "longer", &"long/".repeat(800));
        assert!(matches!(tree.find("/longer"), Err(FsError::Invalid | FsError::NameTooLong)));
    }
}
