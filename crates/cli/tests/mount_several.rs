//! Process tests: several mounts with a journal each change the same files and names of an `async` share, one
//! after the other. Each sees what the others have done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::path::Path;

use common::async_share::Async;
use common::mounts::{Mount, turn};
use common::workers::{self, Workers, contents};

/// A process of this program that is a worker.
#[test]
fn worker() {
    workers::work();
}

#[test]
fn what_one_mount_has_changed_another_one_sees() {
    let Some(_turn) = turn() else { return };
    let mut this = Async::new();
    let names = ["mount0", "mount1", "mount2"];
    let mounts: Vec<Mount> = names.iter().map(|name| this.mount_as(name, ",actimeo=0")).collect();
    let local = tempfile::tempdir().unwrap();
    let ways: Vec<&Path> = mounts.iter().map(|mount| mount.at.as_path()).collect();
    let mut workers = Workers::start(local.path(), &ways, 2);
    workers.await_steps(400, "nobody else is there");
    let ideals = workers.finish();
    for mount in mounts {
        mount.unmount();
    }
    for name in names {
        this.has_no_conflict_of(name);
        assert_eq!(this.pending_of(name), 0);
    }
    // All of it is stable.
    this.crash(true);
    for ideal in &ideals {
        let name = ideal.file_name().unwrap();
        let (is, wanted) = (contents(&this.place.share.join(name)), contents(ideal));
        assert!(is == wanted, "{}: {:?} {:?}", name.display(), is.keys(), wanted.keys());
    }
}
