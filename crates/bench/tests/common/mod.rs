//! A small NFSv3 server in memory, with MOUNT, rpcbind and NFSv4.1, which can be told to be at fault: so
//! that every load is tested against a server that it must praise and one that it must not.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod compounds;
mod procedures;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_client::NfsStat3;
use steadfast_wire::rpc::{AcceptStat, CallHeader, ReplyHeader};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

/// What the server does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// READ and READLINK return a damaged byte near the end.
    DamagedData,
    /// READ of NFSv4 returns a word less, if it is asked for more.
    ShortReads,
    /// WRITE keeps nothing.
    LostWrites,
    /// The verifier changes after each so many WRITEs.
    ForgetfulEvery(u64),
    /// After each so many WRITEs the verifier changes, and what was not committed is gone.
    LosesUnstableEvery(u64),
    /// READ reads from the file's beginning, wherever it should.
    OtherPlace,
    /// REMOVE removes nothing, and RENAME keeps the old name too.
    StaleNames,
    /// LOOKUP finds another file.
    WrongHandle,
    /// The same of what is no directory.
    LaterWrongHandle,
    /// GETATTR of NFSv4 tells another size of files.
    OtherSize,
    /// GETATTR of NFSv4 tells nothing of the file system.
    TellsNoSpace,
    /// NFSv4 is not spoken.
    OnlyNfs3,
    /// ACCESS gives no right to read.
    DeniesRead,
    /// ACCESS gives no right to look up.
    DeniesLookup,
    /// Each listing lacks its last entry.
    MissingEntry,
    /// What is made has a handle and no name.
    ForgetsNames,
    /// SETATTR sets nothing.
    IgnoresSetattr,
    /// WRITE is unstable, whatever was asked for.
    LessStable,
    /// Every so-manieth datagram is lost.
    LosesEvery(u64),
    /// Every so-manieth call is refused for now, once.
    RefusesEvery(u64),
    /// The same, as in a grace period.
    GraceEvery(u64),
    /// Every call takes this long, one call at a time.
    SlowMs(u64),
    /// Every other connection is closed as soon as it is made.
    HangsUp,
    /// SEQUENCE tells of another slot.
    OtherSlot,
    /// LOCK gives what others have locked.
    IgnoresLocks,
    /// Every minor version but 1 is refused.
    OneMinorVersion,
    /// GETATTR tells of another object.
    OtherAttributes,
    /// MNT of the share of this number is refused.
    RefusesShare(u64),
}

/// Shares that EXPORT tells; MNT takes any path.
pub const SHARES: u64 = 3000;
/// Bytes of the fragments in which long replies are sent.
const FRAGMENT_BYTES: usize = 50_000;

const MOUNT: u32 = 100_005;

fn share_path(number: u64) -> String {
    format!("/share/{number:05}")
}

/// What an object is.
pub enum Kind {
    File(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
    Fifo,
}

pub struct Object {
    pub kind: Kind,
    pub nlink: u32,
    pub mode: u32,
}

/// All objects by number; the root is 1.
pub struct State {
    pub objects: BTreeMap<u64, Object>,
    pub next: u64,
    pub writes: u64,
    /// What was written unstable, and not committed: object, offset, length.
    pub uncommitted: Vec<(u64, usize, usize)>,
    pub fault: Fault,
}

pub struct FakeServer {
    pub address: SocketAddr,
    pub state: Arc<Mutex<State>>,
    /// Calls by program and procedure.
    pub calls: Arc<Mutex<BTreeMap<(u32, u32), u64>>>,
    /// Clients of NFSv4.1.
    pub clients: Arc<Mutex<compounds::Clients>>,
    /// Addresses that connected.
    pub peers: Arc<Mutex<Vec<SocketAddr>>>,
}

impl FakeServer {
    pub fn start(fault: Fault) -> Self {
        // A port that is free for both.
        let (listener, datagrams) = std::iter::repeat_with(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let datagrams = UdpSocket::bind(listener.local_addr().unwrap());
            (listener, datagrams)
        })
        .find_map(|(listener, datagrams)| Some((listener, datagrams.ok()?)))
        .unwrap();
        let address = listener.local_addr().unwrap();
        let root = Object { kind: Kind::Directory(BTreeMap::new()), nlink: 2, mode: 0o755 };
        let objects = BTreeMap::from([(1, root)]);
        let state = State { objects, next: 2, writes: 0, uncommitted: Vec::new(), fault };
        let server = Self {
            address,
            state: Arc::new(Mutex::new(state)),
            calls: Arc::default(),
            clients: Arc::default(),
            peers: Arc::default(),
        };
        let service = Arc::new(Service {
            address,
            fault,
            state: Arc::clone(&server.state),
            calls: Arc::clone(&server.calls),
            clients: Arc::clone(&server.clients),
            turn: AtomicU64::new(0),
        });
        let peers = Arc::clone(&server.peers);
        // Threads end with the test's process.
        let of_datagrams = Arc::clone(&service);
        std::thread::spawn(move || of_datagrams.serve_datagrams(&datagrams));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                peers.lock().unwrap().push(stream.peer_addr().unwrap());
                if fault == Fault::HangsUp && number % 2 == 0 {
                    continue;
                }
                let service = Arc::clone(&service);
                std::thread::spawn(move || service.serve(stream));
            }
        });
        server
    }

    /// How many objects there are beside the root.
    pub fn objects(&self) -> usize {
        self.state.lock().unwrap().objects.len() - 1
    }

    /// How often a procedure of NFS was called.
    pub fn nfs_calls(&self, procedure: u32) -> u64 {
        self.calls.lock().unwrap().get(&(100_003, procedure)).copied().unwrap_or(0)
    }
}

/// What answers calls.
struct Service {
    address: SocketAddr,
    fault: Fault,
    state: Arc<Mutex<State>>,
    calls: Arc<Mutex<BTreeMap<(u32, u32), u64>>>,
    clients: Arc<Mutex<compounds::Clients>>,
    turn: AtomicU64,
}

impl Service {
    fn refuses(&self, r: &mut Reader<'_>) -> bool {
        let Fault::RefusesShare(share) = self.fault else { return false };
        r.opaque(1024).unwrap() == share_path(share).as_bytes()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        loop {
            let mut mark = [0; 4];
            if stream.read_exact(&mut mark).is_err() {
                return;
            }
            let mut message = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
            if stream.read_exact(&mut message).is_err() {
                return;
            }
            let mut reply = vec![0; 4];
            self.answer(&message, &mut reply);
            // A long list in fragments, as a server may send it.
            let is_list = reply.len() > FRAGMENT_BYTES && message[12..16] == MOUNT.to_be_bytes();
            let fragment = if is_list { FRAGMENT_BYTES } else { reply.len() };
            let mut fragments = reply[4..].chunks(fragment).peekable();
            while let Some(fragment) = fragments.next() {
                let last = if fragments.peek().is_none() { 0x8000_0000 } else { 0 };
                let mark = last | fragment.len() as u32;
                let bytes = [&mark.to_be_bytes(), fragment].concat();
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
        }
    }

    fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = vec![0; 1 << 16];
        for number in 1_u64.. {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            if matches!(self.fault, Fault::LosesEvery(n) if number.is_multiple_of(n)) {
                continue;
            }
            let mut reply = Vec::new();
            self.answer(&buffer[..length], &mut reply);
            socket.send_to(&reply, from).unwrap();
        }
    }

    fn answer(&self, message: &[u8], reply: &mut Vec<u8>) {
        let mut r = Reader::new(message);
        let header = CallHeader::decode(&mut r).unwrap();
        if header.vers == 4 && header.prog == 100_003 {
            if self.fault == Fault::OnlyNfs3 {
                let stat = AcceptStat::ProgMismatch { low: 3, high: 3 };
                ReplyHeader::accepted(header.xid, stat).encode(&mut Writer::new(reply));
                return;
            }
            steadfast_rpc::accepted_success(&mut Writer::new(reply), header.xid);
            if header.proc_ == 1 {
                let mut state = self.state.lock().unwrap();
                compounds::answer(&mut state, &mut self.clients.lock().unwrap(), &mut r, reply);
            }
            return;
        }
        *self.calls.lock().unwrap().entry((header.prog, header.proc_)).or_default() += 1;
        let mut w = Writer::new(reply);
        steadfast_rpc::accepted_success(&mut w, header.xid);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        match header.prog {
            // GETPORT: everything is here.
            100_000 => w.u32(u32::from(self.address.port())),
            MOUNT if header.proc_ == 5 => {
                for share in 0..SHARES {
                    w.bool(true);
                    w.opaque(share_path(share).as_bytes());
                    for group in ["@staff", "10.0.0.0/8", "host.example.net"] {
                        w.bool(true);
                        w.opaque(group.as_bytes());
                    }
                    w.bool(false);
                }
                w.bool(false);
            }
            MOUNT if self.refuses(&mut r) => w.u32(13),
            // MNT: any path is the root.
            MOUNT => {
                w.u32(0);
                w.opaque(&1_u64.to_be_bytes());
                w.u32(1);
                w.u32(1);
            }
            _ => {
                let mut state = self.state.lock().unwrap();
                if let Fault::SlowMs(ms) = self.fault {
                    std::thread::sleep(Duration::from_millis(ms));
                }
                match self.fault {
                    Fault::RefusesEvery(n) if header.proc_ != 0 && turn.is_multiple_of(n) => {
                        w.u32(NfsStat3::Jukebox as u32);
                        procedures::failure_tail(&mut w, header.proc_);
                    }
                    _ => procedures::answer(&mut state, header.proc_, &mut r, &mut w),
                }
            }
        }
    }
}
