//! Process ring: several mounts with a journal each change the same files and names of an `async` share, one
//! after the other. Each sees what the others have done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::io::ErrorKind;
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

/// Of several clients that claim a file by the same rename one succeeds, as none of them has sent it twice.
#[test]
fn a_rename_that_another_client_has_made_is_an_error() {
    let Some(_turn) = turn() else { return };
    let this = Async::new();
    let server = this.server.as_ref().unwrap();
    let plain = |name| Mount::new(&this.place, server, name, "acregmax=60,acdirmax=60");
    let mounts = [this.mount("acregmax=60,acdirmax=60"), plain("plain")];
    let [here, there] = [0, 1].map(|at| this.place.share.join(format!("claimed{at}")));
    for (mount, claimed) in mounts.iter().zip([&here, &there]) {
        let [from, to] = ["new", "taken"].map(|name| mount.path(name));
        fs::write(&from, "claimed").unwrap();
        // The other client is quicker.
        fs::rename(this.place.share.join("new"), this.place.share.join("taken")).unwrap();
        let error = fs::rename(&from, &to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(fs::read(&to).unwrap(), b"claimed");
        fs::rename(&to, mount.path(claimed.file_name().unwrap().to_str().unwrap())).unwrap();
        assert_eq!(fs::read(claimed).unwrap(), b"claimed");
    }
    mounts.into_iter().for_each(Mount::unmount);
}
