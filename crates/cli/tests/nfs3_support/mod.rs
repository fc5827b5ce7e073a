//! A running server with a client that has mounted its share.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_client::{
    Attributes, ClientError, CreateHow3, Failure, FileHandle, Identity, Nfs3Client, NfsStat3,
    Settings, Wcc,
};

use super::common::{Place, Running, utf8};

/// Longer than any reply takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fixture {
    pub client: Nfs3Client,
    pub root: FileHandle,
    pub running: Running,
    pub place: Place,
}

impl Fixture {
    /// A server that lets root be root, a client that is root.
    pub fn new() -> Self {
        Self::with(&["--no-root-squash"])
    }

    pub fn with(arguments: &[&str]) -> Self {
        let place = Place::new();
        let mut all = vec![utf8(&place.share)];
        all.extend(arguments);
        let running = Running::start(&place, 0, &all);
        let (client, root) = mount(&place, &running);
        Self { client, root, running, place }
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// Another client of the same server.
    pub fn mount(&self) -> (Nfs3Client, FileHandle) {
        mount(&self.place, &self.running)
    }

    /// Where a name of the share's root is on the server's disk.
    pub fn on_disk(&self, name: &str) -> PathBuf {
        self.place.share.join(name)
    }

    /// An empty file of mode 0644.
    pub fn file(&mut self, name: &str) -> FileHandle {
        let how = CreateHow3::Guarded(Settings::mode(0o644).0);
        self.client.create(&self.root, name.as_bytes(), &how).unwrap().handle.unwrap()
    }

    /// A directory of mode 0755.
    pub fn directory(&mut self, name: &str) -> FileHandle {
        let settings = Settings::mode(0o755);
        self.client.mkdir(&self.root, name.as_bytes(), &settings).unwrap().handle.unwrap()
    }

    pub fn attributes(&mut self, object: &FileHandle) -> Attributes {
        self.client.getattr(object).unwrap()
    }
}

fn mount(place: &Place, running: &Running) -> (Nfs3Client, FileHandle) {
    let path = utf8(&place.share).as_bytes();
    Nfs3Client::mount(running.address, running.address, path, Identity::root(), PATIENCE).unwrap()
}

/// The failure of a call that must fail.
#[track_caller]
pub fn failure<T: Debug>(result: Result<T, ClientError>) -> Failure {
    match result {
        Err(ClientError::Failed(failure)) => *failure,
        other => panic!("a failure was expected, not {other:?}"),
    }
}

/// The status of a call that must fail.
#[track_caller]
pub fn status<T: Debug>(result: Result<T, ClientError>) -> NfsStat3 {
    failure(result).status
}

/// Both sides of a change are told, and the object is the one with these attributes before.
#[track_caller]
pub fn assert_wcc(wcc: &Wcc, before: &Attributes) {
    let told = wcc.before.as_ref().expect("attributes before the change");
    assert_eq!((told.size, told.mtime, told.ctime), (before.size, before.mtime, before.ctime));
    assert_eq!(wcc.after.as_ref().expect("attributes after the change").fileid, before.fileid);
}

/// That this test runs as root, which changing owners needs.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
