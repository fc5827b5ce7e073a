//! Unit ring, on real file systems. What is done when the process has no descriptor left. A test of its own, since the limit is
//! the whole process's.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::os::fd::AsRawFd;

use rustix::process::{Resource, getrlimit, setrlimit};
use steadfast_vfs::{FileSystem, FsError};
use support::{User, mounted, name, plain, settle};

/// Runs something while no descriptor can be had.
fn without_descriptors<T>(run: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Nofile);
    let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let mut none = limit;
    none.current = Some(next.try_into().unwrap());
    setrlimit(Resource::Nofile, none).unwrap();
    let value = run();
    setrlimit(Resource::Nofile, limit).unwrap();
    value
}

/// What a change makes necessary to flush is held open before the change: later it might not be
/// to be had, and the call would promise what is not kept.
#[test]
fn what_could_not_be_flushed_is_not_changed() {
    // Without a journal that keeps all in order, if there is one.
    let place = mounted("tmpfs", 8).unwrap_or_else(plain);
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let root = user.root();
    let file = user.create(&root, "one", 0o600).unwrap().handle;
    settle(tree.link(&user.caller(), &file, &root, name("two"))).1.result.unwrap();
    user.create(&root, "over", 0o600).unwrap();
    user.mkdir(&root, "from", 0o755).unwrap();
    drop(tree);
    // Nothing but the root is held open.
    let tree = support::open(&place.directory);
    let user = User::new(&tree, 0, 0);
    let rename =
        |from, to| settle(tree.rename(&user.caller(), &root, name(from), &root, name(to))).result;
    let refused = Err(FsError::TryLater);
    assert_eq!(without_descriptors(|| user.remove(&root, "one")), refused);
    assert_eq!(without_descriptors(|| rename("over", "one")), refused);
    if place.name == "tmpfs" {
        assert_eq!(without_descriptors(|| rename("from", "to")), refused);
    }
    for text in ["one", "two", "over", "from"] {
        user.lookup(&root, text).unwrap();
    }
    user.remove(&root, "one").unwrap();
    rename("from", "to").unwrap();
}
