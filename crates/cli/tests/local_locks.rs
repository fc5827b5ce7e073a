//! Process ring: locks of clients and of processes on the server exclude each other, over real
//! sockets, with `fcntl` of a real process, which this is. `docs/locks.md` says what is promised.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs3_support;
mod nlm_support;

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use common::{Place, Running, utf8};
use intent_log_support::ext4;
use nfs3_support::{Fixture, PATIENCE};
use nlm_support::{DENIED, GRANTED, Nlm, opaque};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use steadfast_client::nfs4::{ClientSettings, Nfs4Client, Opened4};
use steadfast_client::{CreateHow3, Identity, Nfs3Client, RpcConnection, Settings};

/// `NFS4ERR_DENIED`.
const NFS4_DENIED: u32 = 10_010;

/// `F_SETLK` of the whole file: as any program on the server does it.
fn locally(file: &File, how: FlockOperation) -> bool {
    rustix::fs::fcntl_lock(file, how).is_ok()
}

fn reads(file: &File) -> bool {
    locally(file, FlockOperation::NonBlockingLockShared)
}

fn writes(file: &File) -> bool {
    locally(file, FlockOperation::NonBlockingLockExclusive)
}

fn frees(file: &File) {
    assert!(locally(file, FlockOperation::NonBlockingUnlock));
}

/// A client that has a file open by NFSv4.1 to read it.
struct Nfs4 {
    client: Nfs4Client<RpcConnection>,
    opened: Opened4,
}

impl Nfs4 {
    fn new(running: &Running, place: &Place, name: &[u8]) -> Self {
        let connection = RpcConnection::connect(running.address, PATIENCE).unwrap();
        let settings = ClientSettings::default();
        let mut client = Nfs4Client::connect(connection, Identity::root(), &settings).unwrap();
        let directory = client.lookup_path(utf8(&place.share).as_bytes()).unwrap();
        let opened = client.open_for_reading(&directory, name).unwrap();
        Self { client, opened }
    }

    /// Whether it gets a read lock of the whole file; by an owner of its own each time.
    fn reads(&mut self, owner: &[u8]) -> bool {
        const READ: u32 = 1;
        const OP_LOCK: u32 = 12;
        let mut bytes = Vec::new();
        let mut word = |word: u32| bytes.extend_from_slice(&word.to_be_bytes());
        for number in [READ, 0, 0, 0, u32::MAX, u32::MAX, 1, 0] {
            word(number);
        }
        word(self.opened.stateid.seqid);
        bytes.extend_from_slice(&self.opened.stateid.other);
        bytes.extend_from_slice(&[0; 12]);
        opaque(&mut bytes, owner);
        let file = &self.opened.handle;
        let mut status = 0;
        let done = self.client.request(
            |compound| compound.put(file).raw(OP_LOCK, &bytes),
            |reply| {
                // PUTFH has no result, and LOCK's is a stateid.
                while let Some((_, told)) = reply.next_op()? {
                    status = told as u32;
                }
                Ok(())
            },
        );
        // What was told of the lock is not read to its end.
        drop(done);
        assert!(status == 0 || status == NFS4_DENIED, "{status}");
        status == 0
    }

    fn close(mut self) {
        self.client.close(&self.opened.handle, self.opened.stateid).unwrap();
    }
}

fn open(fixture: &Fixture, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(fixture.on_disk(name)).unwrap()
}

#[test]
fn clients_and_local_processes_keep_each_other_out() {
    let mut fixture = Fixture::with(&["--no-root-squash"]);
    let handle = fixture.file("f");
    let local = open(&fixture, "f");
    let mut nlm = Nlm::new(&fixture.running);
    assert_eq!(nlm.writes(&handle), GRANTED);
    assert!(!writes(&local) && !reads(&local));
    // The server opens and closes the file for other reasons: that ends nothing.
    fixture.client.write(&handle, 0, b"x", steadfast_client::StableHow::FileSync).unwrap();
    fixture.client.read(&handle, 0, 1).unwrap();
    assert!(!reads(&local));
    assert_eq!(nlm.reads(&handle), GRANTED);
    assert!(reads(&local) && !writes(&local));
    assert_eq!(nlm.writes(&handle), DENIED, "a local process reads");
    frees(&local);
    assert_eq!(nlm.writes(&handle), GRANTED);
    nlm.frees(&handle);
    assert!(writes(&local));
    assert_eq!(nlm.reads(&handle), DENIED);
    let mut nfs4 = Nfs4::new(&fixture.running, &fixture.place, b"f");
    assert!(!nfs4.reads(b"one"));
    frees(&local);
    assert!(nfs4.reads(b"two"));
    assert!(reads(&local) && !writes(&local));
    assert_eq!(nlm.reads(&handle), GRANTED);
    nfs4.close();
    assert!(!writes(&local), "one of two is left");
    nlm.frees(&handle);
    assert!(writes(&local));
    frees(&local);
    // Locks of flock(2) are others, on one machine.
    rustix::fs::flock(&local, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(nlm.writes(&handle), GRANTED);
    nlm.frees(&handle);
}

#[test]
fn locks_on_a_mount_in_a_share_stay_seen_when_other_shares_come() {
    let place = Place::new();
    std::fs::create_dir(&place.share).unwrap();
    let below = place.share.join("below");
    let Some(_disk) = ext4(&place.directory.path().join("image"), &below, 16) else { return };
    let share = |path: &str| {
        let options = "options = [\"no_root_squash\", \"crossmnt\"]";
        format!("[[share]]\npath = {path:?}\nclients = [\"*\"]\n{options}\n")
    };
    let one = share(utf8(&place.share));
    let configuration = place.write("steadfast.toml", &one);
    let running = Running::start(&place, 0, &["--config", utf8(&configuration)]);
    let (at, path) = (running.address, utf8(&place.share).as_bytes());
    let (mut client, root) = Nfs3Client::mount(at, at, path, Identity::root(), PATIENCE).unwrap();
    let directory = client.lookup(&root, b"below").unwrap().handle;
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let handle = client.create(&directory, b"f", &how).unwrap().handle.unwrap();
    assert_eq!(Nlm::new(&running).writes(&handle), GRANTED);
    let local = OpenOptions::new().read(true).write(true).open(below.join("f")).unwrap();
    assert!(!writes(&local));

    let other = place.share.with_file_name("other");
    std::fs::create_dir(&other).unwrap();
    place.write("steadfast.toml", &format!("{one}{}", share(utf8(&other))));
    running.signal(Signal::HUP);
    let end = Instant::now() + Duration::from_secs(20);
    let path = utf8(&other).as_bytes();
    while Nfs3Client::mount(at, at, path, Identity::root(), PATIENCE).is_err() {
        assert!(Instant::now() < end, "the other share does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!writes(&local), "the client has its lock still");
}

#[test]
fn many_clients_and_processes_never_hold_one_file_at_the_same_time() {
    let mut fixture = Fixture::new();
    let handle = fixture.file("f");
    let holders = std::sync::atomic::AtomicU32::new(0);
    let times = std::sync::atomic::AtomicU32::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    let end = Instant::now() + Duration::from_secs(2);
    // Who has the lock is alone.
    let hold = || {
        assert_eq!(holders.fetch_add(1, order), 0);
        std::thread::yield_now();
        assert_eq!(holders.fetch_sub(1, order), 1);
        times.fetch_add(1, order);
    };
    std::thread::scope(|scope| {
        // One host: it has an owner, so its threads take turns at the call.
        scope.spawn(|| {
            let mut nlm = Nlm::new(&fixture.running);
            while Instant::now() < end {
                if nlm.writes(&handle) == GRANTED {
                    hold();
                    nlm.frees(&handle);
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                // Locks of open files, since all threads are one process.
                let local = open(&fixture, "f");
                let all = steadfast_sys::range_lock::Bytes { first: 0, last: u64::MAX };
                let set = |kind| steadfast_sys::range_lock::set(&local, all, kind).unwrap();
                while Instant::now() < end {
                    if set(Some(steadfast_sys::range_lock::Kind::Write)) {
                        hold();
                        set(None);
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!(times.load(order) > 100, "{times:?}");
}

#[test]
fn locks_outlive_the_server_among_local_processes_too() {
    let mut fixture = Fixture::new();
    let (kept, lost) = (fixture.file("kept"), fixture.file("lost"));
    let (local_kept, local_lost) = (open(&fixture, "kept"), open(&fixture, "lost"));
    let mut nlm = Nlm::new(&fixture.running);
    assert_eq!((nlm.writes(&kept), nlm.reads(&lost)), (GRANTED, GRANTED));
    let port = fixture.address().port();
    fixture.running.signal(Signal::KILL);
    let Fixture { running, place, .. } = fixture;
    running.wait();
    // Nobody keeps it from this while there is no server.
    assert!(writes(&local_lost));
    let running = Running::start(&place, port, &[utf8(&place.share), "--no-root-squash"]);
    Running::log_with(&place, "locks are held among local processes again: 1 files");
    Running::log_with(&place, "local processes have locked parts of 1 files");
    assert!(!reads(&local_kept));
    let mut nlm = Nlm::new(&running);
    assert_eq!(nlm.writes(&lost), DENIED);
    frees(&local_lost);
    assert_eq!(nlm.writes(&lost), GRANTED);
    assert!(!reads(&local_lost));
    nlm.frees(&kept);
    assert!(writes(&local_kept));
}
