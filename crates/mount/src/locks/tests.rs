//! Tests of the locks at work, with a lock manager in this process that can be told to restart and to be slow.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::thread;

use steadfast_client::{Attributes, FileType, Time};

use super::*;
use crate::node::{Nodes, ROOT};
use crate::options::CacheTimes;
use crate::transport::Link;

mod nfs4;

/// Far above what a step takes.
const PATIENCE: Duration = Duration::from_secs(60);
const FILE: u64 = 7;
/// A process that is not there: whoever waits for it sees that it was killed.
const DEAD: u32 = u32::MAX >> 1;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const GRACE: u32 = 4;
/// Stands for results of a call that RPC refuses.
const REFUSED: u32 = u32::MAX;

/// What the lock manager knows.
#[derive(Debug, Default)]
struct Known {
    table: Table,
    is_in_grace: bool,
    verifier: u64,
    /// How long each LOCK takes, and each COMMIT.
    slowness: Duration,
    commit_slowness: Duration,
    /// LOCKs and UNLOCKs of this owner are refused by RPC; 0: of none.
    refused: u64,
    /// So many UNLOCKs are answered with "in its grace period".
    unlocks_too_early: u32,
    /// So many reclaims are granted in a grace period; `None`: all.
    reclaims_left: Option<u32>,
    /// The next LOCK is not answered, and its connection is lost. It is executed so long after that.
    is_next_late: Option<Duration>,
    /// COMMITs that have begun.
    commits: u64,
    /// LOCKs that have begun, and those that were granted.
    asked: u64,
    granted: u64,
    streams: Vec<TcpStream>,
    /// The owners' names.
    names: HashMap<Owner, Vec<u8>>,
}

#[derive(Debug)]
struct Manager {
    address: SocketAddr,
    known: Mutex<Known>,
}

struct Words<'w>(&'w [u8]);

impl Words<'_> {
    fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    fn long(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    fn skip(&mut self) {
        let length = self.word() as usize;
        self.0 = &self.0[length.next_multiple_of(4)..];
    }

    /// The name of a lock's owner, which stays to be read.
    fn owner_name(&self) -> Vec<u8> {
        let mut words = Words(self.0);
        words.skip();
        words.skip();
        let length = words.word() as usize;
        words.0[..length].to_vec()
    }

    /// Owner and range of a lock.
    fn lock(&mut self) -> (Owner, Span) {
        (0..3).for_each(|_| self.skip());
        let owner = Owner(u64::from(self.word()));
        let (first, length) = (self.long(), self.long());
        let last = if length == 0 { table::LAST } else { first + length - 1 };
        (owner, Span::new(first, last).unwrap())
    }
}

impl Manager {
    fn start() -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let manager = Arc::new(Self { address, known: Mutex::default() });
        let this = Arc::clone(&manager);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                this.known.lock().streams.push(stream.try_clone().unwrap());
                let this = Arc::clone(&this);
                thread::spawn(move || while this.serve(&stream).is_some() {});
            }
        });
        manager
    }

    fn serve(&self, mut stream: &TcpStream) -> Option<()> {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call).ok()?;
        let mut words = Words(&call);
        let xid = words.word();
        let [_, _, program, _, procedure] = [(); 5].map(|()| words.word());
        for _ in 0..2 {
            words.word();
            words.skip();
        }
        let late = if (program, procedure) == (100_021, 2) { self.take_late() } else { None };
        if let Some(late) = late {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            thread::sleep(late);
            self.execute(program, procedure, &mut words);
            return None;
        }
        let (head, results) = match self.execute(program, procedure, &mut words) {
            // Denied, since authentication is too weak (RFC 5531).
            Some(results) if results == [REFUSED] => (vec![xid, 1, 1, 1, 5], Vec::new()),
            Some(results) => (vec![xid, 1, 0, 0, 0, 0], results),
            None => (vec![xid, 1, 0, 0, 0, 1], Vec::new()),
        };
        let bytes: Vec<u8> = head.iter().chain(&results).flat_map(|it| it.to_be_bytes()).collect();
        let mark = 0x8000_0000 | bytes.len() as u32;
        stream.write_all(&[&mark.to_be_bytes()[..], &bytes].concat()).ok()
    }

    /// The results' words; `None`: there is no such program.
    fn execute(&self, program: u32, procedure: u32, words: &mut Words<'_>) -> Option<Vec<u32>> {
        // Cookies come back empty.
        let answer = |status| Some(vec![0, status]);
        match (program, procedure) {
            (100_003, 21) => {
                let slowness = {
                    let mut known = self.known.lock();
                    known.commits += 1;
                    known.commit_slowness
                };
                thread::sleep(slowness);
                let verifier = self.known.lock().verifier;
                Some(vec![0, 0, 0, (verifier >> 32) as u32, verifier as u32])
            }
            (100_021, 0) => Some(Vec::new()),
            (100_021, 1) => {
                words.skip();
                let kind = if words.word() == 1 { Kind::Write } else { Kind::Read };
                let (owner, span) = words.lock();
                let known = self.known.lock();
                let Some(held) = known.table.conflict(owner, span, kind) else {
                    return answer(GRANTED);
                };
                let (offset, length) = held.span.on_the_wire();
                let name = known.names.get(&held.owner).cloned().unwrap_or_default();
                let mut words = vec![0, DENIED, u32::from(held.kind == Kind::Write)];
                words.extend([held.owner.0 as u32, name.len() as u32]);
                let mut name = name;
                name.resize(name.len().next_multiple_of(4), 0);
                words.extend(
                    name.chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap())),
                );
                words.extend([(offset >> 32) as u32, offset as u32]);
                words.extend([(length >> 32) as u32, length as u32]);
                Some(words)
            }
            (100_021, 2) => {
                words.skip();
                words.word();
                let kind = if words.word() == 1 { Kind::Write } else { Kind::Read };
                let name = words.owner_name();
                let (owner, span) = words.lock();
                let is_reclaim = words.word() == 1;
                let slowness = {
                    let mut known = self.known.lock();
                    known.asked += 1;
                    known.slowness
                };
                thread::sleep(slowness);
                let mut known = self.known.lock();
                if owner.0 == known.refused {
                    return Some(vec![REFUSED]);
                }
                if is_reclaim != known.is_in_grace {
                    return answer(GRACE);
                }
                if is_reclaim && let Some(left) = &mut known.reclaims_left {
                    let Some(fewer) = left.checked_sub(1) else { return answer(GRACE) };
                    *left = fewer;
                }
                known.names.insert(owner, name);
                if known.table.conflict(owner, span, kind).is_some() {
                    return answer(DENIED);
                }
                known.table.set(owner, span, Some(kind));
                known.granted += 1;
                answer(GRANTED)
            }
            (100_021, 4) => {
                words.skip();
                let (owner, span) = words.lock();
                let mut known = self.known.lock();
                if owner.0 == known.refused {
                    return Some(vec![REFUSED]);
                }
                if let Some(fewer) = known.unlocks_too_early.checked_sub(1) {
                    known.unlocks_too_early = fewer;
                    return answer(GRACE);
                }
                known.table.set(owner, span, None);
                answer(GRANTED)
            }
            _ => None,
        }
    }

    fn take_late(&self) -> Option<Duration> {
        self.known.lock().is_next_late.take()
    }

    /// Loses all connections.
    fn cut(&self) {
        for stream in self.known.lock().streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Loses all locks, and all connections.
    fn restart(&self, is_in_grace: bool) {
        let mut known = self.known.lock();
        known.table = Table::default();
        known.verifier += 1;
        known.is_in_grace = is_in_grace;
        for stream in known.streams.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Another client's lock of everything.
    fn take(&self) {
        self.known.lock().table.set(Owner(1), Span::ALL, Some(Kind::Write));
    }

    fn count(&self) -> usize {
        self.known.lock().table.count()
    }
}

fn node_of(root: &FileHandle) -> Arc<Node> {
    let attributes = Attributes {
        file_type: FileType::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: (0, 0),
        fsid: 0,
        fileid: 1,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    };
    let (stale, _) = sync_channel(1);
    let nodes = Nodes::new(root.clone(), &attributes, CacheTimes::default(), stale);
    nodes.by_number(ROOT).unwrap()
}

struct Rig {
    manager: Arc<Manager>,
    locks: Arc<Locks>,
    node: Arc<Node>,
}

impl Rig {
    fn new() -> Self {
        let manager = Manager::start();
        let text = format!("noresvport,lockport={}", manager.address.port());
        let options = Options::parse(&text).unwrap();
        let link = Link::open(manager.address, false, options.timeout, 1).unwrap();
        let server =
            Arc::new(Server { link, soft_after: None, recovery: OnceLock::new(), nfs4: None });
        let root = FileHandle(vec![1, 2, 3, 4]);
        let node = node_of(&root);
        let locks = Locks::start(&server, &root, &options).unwrap();
        Self { manager, locks, node }
    }

    fn ask(&self, owner: u64, what: What, pid: u32) -> Receiver<Result<(), Errno>> {
        self.ask_there(owner, what, pid, Span::ALL)
    }

    fn ask_there(
        &self,
        owner: u64,
        what: What,
        pid: u32,
        span: Span,
    ) -> Receiver<Result<(), Errno>> {
        let (tell, told) = channel();
        self.locks.set(Task {
            node: Arc::clone(&self.node),
            owner: Owner(owner),
            span,
            what,
            identity: Identity::root(),
            file: FILE,
            ticket: Ticket::new(pid, false, move |outcome| tell.send(outcome).unwrap()),
            pause: Duration::ZERO,
        });
        told
    }

    fn lock(&self, owner: u64, waits: bool, pid: u32) -> Receiver<Result<(), Errno>> {
        let what = What::Lock { kind: Kind::Write, waits, granted: Arc::new(|| {}) };
        self.ask(owner, what, pid)
    }

    /// Locks ten bytes.
    fn lock_ten(&self, owner: u64, first: u64) {
        let what = What::Lock { kind: Kind::Write, waits: false, granted: Arc::new(|| {}) };
        let span = Span { first, last: first + 9 };
        assert_eq!(told(&self.ask_there(owner, what, 0, span)), Ok(()));
    }

    fn unlock(&self, owner: u64, pid: u32) -> Receiver<Result<(), Errno>> {
        self.ask(owner, What::Unlock { is_safe: None }, pid)
    }

    fn is_nobody_known(&self) -> bool {
        self.locks.state.lock().files.is_empty()
    }

    fn await_that(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            if begun.elapsed() >= PATIENCE {
                let (state, server) = (self.locks.state.lock(), self.manager.known.lock());
                panic!("{what}: the server has {:?}; the mount: {state:?}", server.table);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

mod faults;

fn told(receiver: &Receiver<Result<(), Errno>>) -> Result<(), Errno> {
    receiver.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn waiters_get_the_lock_one_after_the_other() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    assert_eq!(told(&rig.lock(11, false, 0)), Err(Errno::EAGAIN));
    let waiting: Vec<_> = (11..14).map(|owner| (owner, rig.lock(owner, true, 0))).collect();
    rig.await_that("three wait", |rig| rig.locks.told().waiting == 3);
    assert_eq!(told(&rig.ask(10, What::Unlock { is_safe: None }, 0)), Ok(()));
    for (owner, receiver) in waiting {
        assert_eq!(told(&receiver), Ok(()));
        assert_eq!(rig.manager.count(), 1);
        assert_eq!(told(&rig.ask(owner, What::Unlock { is_safe: None }, 0)), Ok(()));
    }
    rig.await_that("nobody is known any more", |rig| rig.locks.state.lock().files.is_empty());
    assert_eq!(rig.manager.count(), 0);
    rig.locks.close();
}

#[test]
fn who_is_gone_leaves_nothing() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    assert_eq!(told(&rig.lock(11, true, DEAD)), Err(Errno::EINTR), "while it waits");
    assert_eq!(told(&rig.ask(10, What::Unlock { is_safe: None }, 0)), Ok(()));
    let (asked, granted) = {
        let mut known = rig.manager.known.lock();
        known.slowness = Duration::from_secs(1);
        (known.asked, known.granted)
    };
    let mut program = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let receiver = rig.lock(12, true, program.id());
    rig.await_that("the server works", |rig| rig.manager.known.lock().asked > asked);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(told(&receiver), Err(Errno::EINTR), "while the server works");
    assert_eq!(rig.manager.known.lock().granted, granted, "it has not waited for the server");
    rig.await_that("it is granted", |rig| rig.manager.known.lock().granted > granted);
    rig.await_that("it is given up", |rig| rig.manager.count() == 0);
    rig.await_that("nobody is known any more", |rig| rig.locks.state.lock().files.is_empty());
    rig.locks.close();
}

#[test]
fn locks_are_reclaimed_after_a_restart() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    rig.manager.restart(true);
    rig.await_that("it is reclaimed", |rig| rig.manager.count() == 1);
    let waiting = rig.lock(11, true, 0);
    rig.manager.known.lock().is_in_grace = false;
    assert_eq!(rig.locks.told().lost, 0);
    assert_eq!(told(&rig.ask(10, What::Unlock { is_safe: None }, 0)), Ok(()));
    assert_eq!(told(&waiting), Ok(()));
    assert!(!rig.locks.is_lost(FILE));
    // A mount that ends has no locks.
    rig.locks.close();
    assert_eq!(rig.manager.count(), 0);
}

#[test]
fn a_lock_that_another_client_may_have_had_is_lost() {
    for is_taken in [false, true] {
        let rig = Rig::new();
        assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
        rig.manager.restart(false);
        if is_taken {
            rig.manager.take();
        }
        rig.await_that("it is lost", |rig| rig.locks.told().lost == 1);
        assert!(rig.locks.is_lost(FILE));
        assert_eq!(rig.manager.count(), usize::from(is_taken));
        assert_eq!(rig.locks.told().held, 0);
        assert_eq!(rig.locks.release(&rig.node, FILE), []);
        assert!(!rig.locks.is_lost(FILE), "the file is closed");
        rig.locks.close();
    }
}

#[test]
fn a_restart_before_a_lock_takes_nothing() {
    let rig = Rig::new();
    for number in 0..3 {
        assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
        // Longer than the scheduler takes to look at the connection.
        thread::sleep(Duration::from_millis(1500));
        assert_eq!((rig.locks.told().held, rig.locks.told().lost), (1, 0), "{number}");
        assert_eq!(told(&rig.ask(10, What::Unlock { is_safe: None }, 0)), Ok(()));
        rig.manager.restart(false);
        rig.await_that("it is connected again", |rig| rig.manager.known.lock().streams.len() >= 2);
    }
    rig.locks.close();
}

#[test]
fn a_connection_that_was_made_again_is_no_restart() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    for stream in rig.manager.known.lock().streams.drain(..) {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    rig.await_that("it is connected again", |rig| rig.manager.known.lock().streams.len() >= 2);
    assert_eq!(told(&rig.ask(10, What::Unlock { is_safe: None }, 0)), Ok(()));
    assert_eq!((rig.locks.told().lost, rig.manager.count()), (0, 0));
    rig.locks.close();
}
