//! Unit tests of stopping: what a server with a log does with disks that only note that they were flushed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use steadfast_client::{Identity, Nfs3Client};
use steadfast_durability::{IntentLogOptions, LogHandle, StartIntentLog};
use steadfast_recovery::{ChangeLog, FileSystemIdentity};
use steadfast_shares::{Access, ClientPattern, ShareOptions};
use steadfast_vfs::{FileSystemSync, FsError};

use super::*;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether something has happened.
const PAUSE: Duration = Duration::from_millis(5);

/// Whether a client is served now.
fn is_served(address: SocketAddr, share: &Path) -> bool {
    let (path, identity) = (share.as_os_str().as_encoded_bytes(), Identity::user(1000, 1000));
    Nfs3Client::mount(address, address, path, identity, Duration::from_secs(5)).is_ok()
}

struct Disk {
    address: SocketAddr,
    share: PathBuf,
    /// Whether a client was served when it was flushed, each time.
    was_served: Mutex<Vec<bool>>,
    hangs: AtomicBool,
    hanging: AtomicUsize,
}

impl FileSystemSync for Disk {
    fn sync(&self) -> Result<(), FsError> {
        let is_served = is_served(self.address, &self.share);
        self.was_served.lock().push(is_served);
        self.hanging.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
        }
        self.hanging.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn try_writing(&self) -> Result<(), FsError> {
        Ok(())
    }
}

/// A server that serves a directory, and logs changes of a disk with nothing on it.
struct Served {
    place: tempfile::TempDir,
    server: Server,
    disk: Arc<Disk>,
}

impl Served {
    /// With so much patience for the last flush.
    fn start(flush_patience: Duration) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().canonicalize().expect("a path");
        let share = path.join("share");
        std::fs::create_dir(&share).expect("made");
        let mut configuration = Configuration::default();
        let settings = &mut configuration.settings;
        settings.server.listen = Some(vec!["127.0.0.1:0".parse().expect("an address")]);
        settings.server.rpcbind = Some(false);
        settings.log.enabled = Some(false);
        let access = Access { needs_privileged_port: false, ..Access::default() };
        let shared = ShareOptions { access, ..ShareOptions::default() };
        configuration.add_directory(&share, &shared, &[ClientPattern::Any]).expect("UTF-8");
        let options =
            StartOptions { state_directory: Some(path.join("state")), ..StartOptions::default() };
        // The process is other tests' too, and stays as it is.
        let is_root = rustix::process::geteuid().is_root();
        let powers = ProcessPowers {
            reads_everything: is_root,
            writes_everything: is_root,
            switches_identity: is_root,
            changes_owners: is_root,
            makes_devices: is_root,
            mounts: is_root,
            descriptors_max: 4096,
        };
        let mut server = Server::start(configuration, options, &powers).expect("started");
        let disk = Arc::new(Disk {
            address: *server.addresses().first().expect("an address"),
            share,
            was_served: Mutex::default(),
            hangs: AtomicBool::new(false),
            hanging: AtomicUsize::new(0),
        });
        server.log = log(&path, &disk, flush_patience);
        Self { place, server, disk }
    }
}

fn log(path: &Path, disk: &Arc<Disk>, flush_patience: Duration) -> OpenedLog {
    let state_directory = path.join("logged");
    std::fs::create_dir(&state_directory).expect("made");
    let start = StartIntentLog {
        path: state_directory.join("intent.log"),
        file_bytes: 16 << 20,
        state_directory,
        host: [1; 16],
        new_uuid: [2; 16],
        new_write_verifier: 3,
        untold_write_verifier: 4,
        handle_key: [6; 16],
        // Nothing but who stops flushes the disk.
        options: IntentLogOptions { checkpoint_interval: PATIENCE * 60, ..<_>::default() },
        open_storage: Box::new(|_| Ok(None)),
        look_around: Box::new(Vec::new),
    };
    let started = start.start().expect("started");
    let identity = FileSystemIdentity { uuid: [5; 16], kind: 6 };
    let sync = Arc::clone(disk) as Arc<dyn FileSystemSync>;
    let log = LogHandle::new(&started.keeper);
    log.register(&identity, b"/srv", 1, sync).expect("served").expect("logged");
    OpenedLog::of(started, flush_patience)
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !what() {
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

#[test]
fn disks_are_flushed_before_a_server_that_stops_serves_no_more() {
    let Served { place: _place, server, disk } = Served::start(PATIENCE);
    disk.was_served.lock().clear();
    server.stop().expect("all calls were finished");
    let was_served = disk.was_served.lock();
    assert_eq!(was_served.first(), Some(&true), "{was_served:?}");
    assert!(!is_served(disk.address, &disk.share));
}

#[test]
fn a_disk_that_hangs_keeps_no_server_from_stopping_to_serve() {
    let Served { place: _place, server, disk } = Served::start(Duration::from_millis(100));
    // As long as its administrator is told.
    assert_eq!(intent_log::FLUSH_PATIENCE, Duration::from_secs(10));
    disk.hangs.store(true, Ordering::SeqCst);
    let stopping = std::thread::spawn(move || server.stop());
    let has_hung = wait_for(|| disk.hanging.load(Ordering::SeqCst) > 0);
    let is_over = wait_for(|| std::net::TcpStream::connect(disk.address).is_err());
    let still_hangs = disk.hanging.load(Ordering::SeqCst) > 0;
    disk.hangs.store(false, Ordering::SeqCst);
    // What is left waits for the disk, however long.
    stopping.join().expect("no panic").expect("all calls were finished");
    assert_eq!((has_hung, is_over, still_hangs), (true, true, true));
    assert_eq!(disk.was_served.lock().first(), Some(&true));
}
