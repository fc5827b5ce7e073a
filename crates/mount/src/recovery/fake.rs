//! For tests: a server that says of each object what a test wants, without the recovery program, or with what a mount asks
//! of it. It is no NFS server: it answers GETATTR, WRITE and COMMIT alone.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::{FileHandle, NFS3, NfsStat3};

use crate::held::Verifier;
use crate::server::Server;
use crate::transport::Link;

/// The recovery program (docs/recovery.md).
const RECOVERY: u32 = 0x2053_4a52;

pub(crate) const GETATTR: u32 = 1;
pub(crate) const WRITE: u32 = 7;
pub(crate) const COMMIT: u32 = 21;
/// Of the recovery program, beyond those of NFS.
pub(crate) const SYNC: u32 = 102;
const STATUS: u32 = 101;
/// So much of a file it keeps.
const STORED_BYTES: usize = 64 << 10;

pub(crate) struct Fake {
    pub(crate) server: Arc<Server>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    verifier: Verifier,
    /// Of objects that are not there as they should be.
    statuses: HashMap<FileHandle, NfsStat3>,
    commit_takes: Duration,
    /// It has the recovery program, and serves an `async` share.
    is_async: bool,
    /// The first bytes of files, up to [`STORED_BYTES`].
    files: HashMap<FileHandle, Vec<u8>>,
    /// It has the program still; but the share is not `async` any more.
    is_synchronous: bool,
    sync_takes: Duration,
    /// Procedures and objects, in order.
    calls: Vec<(u32, FileHandle)>,
    streams: Vec<TcpStream>,
}

impl Fake {
    pub(crate) fn start(verifier: Verifier) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { verifier, ..State::default() }));
        let of = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                of.lock().streams.push(stream.try_clone().unwrap());
                let of = Arc::clone(&of);
                thread::spawn(move || serve(stream, &of));
            }
        });
        let link = Link::open(address, false, Duration::from_secs(60), 1).unwrap();
        let server =
            Arc::new(Server { link, soft_after: None, recovery: OnceLock::new(), nfs4: None });
        let fake = Self { server, state };
        until("it is connected", || fake.is_up() && !fake.state.lock().streams.is_empty());
        fake
    }

    pub(crate) fn says(&self, object: &FileHandle, status: NfsStat3) {
        let mut state = self.state.lock();
        match status {
            NfsStat3::Ok => drop(state.statuses.remove(object)),
            status => drop(state.statuses.insert(object.clone(), status)),
        }
    }

    pub(crate) fn commit_takes(&self, time: Duration) {
        self.state.lock().commit_takes = time;
    }

    /// It has the recovery program from now on, and acknowledges from memory. A SYNC takes so long.
    pub(crate) fn serve_async(&self, sync_takes: Duration) {
        let mut state = self.state.lock();
        (state.is_async, state.sync_takes) = (true, sync_takes);
    }

    /// How often a procedure was called.
    pub(crate) fn calls(&self, procedure: u32) -> usize {
        self.state.lock().calls.iter().filter(|(called, _)| *called == procedure).count()
    }

    /// What it has of a file since it was started.
    pub(crate) fn content(&self, file: &FileHandle) -> Vec<u8> {
        self.state.lock().files.get(file).cloned().unwrap_or_default()
    }

    /// From now on it tells this verifier, without a new connection.
    pub(crate) fn tells(&self, verifier: Verifier) {
        self.state.lock().verifier = verifier;
    }

    /// Its share is not `async` any more.
    pub(crate) fn turns_synchronous(&self) {
        self.state.lock().is_synchronous = true;
    }

    /// It comes again with this verifier.
    pub(crate) fn restart(&self, verifier: Verifier) {
        let mut state = self.state.lock();
        state.verifier = verifier;
        state.files.clear();
        for stream in std::mem::take(&mut state.streams) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The calls since the last time, in order.
    pub(crate) fn take_calls(&self) -> Vec<(u32, FileHandle)> {
        std::mem::take(&mut self.state.lock().calls)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.server.link.connections().iter().all(|connection| connection.is_up)
    }

    /// How often it was connected to.
    pub(crate) fn times_made(&self) -> u64 {
        self.server.link.connections().iter().map(|connection| connection.times_made).sum()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.link.close();
    }
}

/// Waits until something is so, not as long as names are remembered.
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn serve(mut stream: TcpStream, state: &Arc<Mutex<State>>) -> io::Result<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call)?;
        // While it flushes it answers others.
        if call[12..16] == RECOVERY.to_be_bytes() && call[20..24] == 2_u32.to_be_bytes() {
            let (stream, state) = (stream.try_clone()?, Arc::clone(state));
            thread::spawn(move || reply(&stream, &call, &state));
        } else {
            reply(&stream, &call, state)?;
        }
    }
}

fn reply(mut stream: &TcpStream, call: &[u8], state: &Mutex<State>) -> io::Result<()> {
    let results = answer(call, state);
    // Accepted, with an empty verifier.
    let head = [1_u32, 0, 0, 0].map(u32::to_be_bytes).concat();
    let reply = [&call[..4], &head, &results].concat();
    let mark = (0x8000_0000 | reply.len() as u32).to_be_bytes();
    stream.write_all(&[&mark[..], &reply].concat())
}

fn store(state: &Mutex<State>, file: FileHandle, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if end <= STORED_BYTES {
        let mut state = state.lock();
        let file = state.files.entry(file).or_default();
        file.resize(file.len().max(end), 0);
        file[offset..end].copy_from_slice(data);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// From how the call is accepted on.
fn answer(call: &[u8], state: &Mutex<State>) -> Vec<u8> {
    let word = |at: usize| u32::from_be_bytes(*call[at..].first_chunk().unwrap());
    let is_recovery = state.lock().is_async && word(12) == RECOVERY;
    if word(12) != NFS3 && !is_recovery {
        return words(&[1]);
    }
    let procedure = word(20) + if is_recovery { 100 } else { 0 };
    // Behind credential and verifier.
    let credential = 24;
    let verifier = credential + 8 + word(credential + 4) as usize;
    let arguments = verifier + 8 + word(verifier + 4) as usize;
    let object = &call[arguments + 4..][..word(arguments) as usize];
    let object = FileHandle(object.to_vec());
    let shared = state;
    let mut state = shared.lock();
    let status = state.statuses.get(&object).copied().unwrap_or(NfsStat3::Ok);
    let (told, takes, sync_takes) = (state.verifier, state.commit_takes, state.sync_takes);
    let flags = u32::from(!state.is_synchronous);
    state.calls.push((procedure, object.clone()));
    drop(state);
    let is_ok = status == NfsStat3::Ok;
    let status = words(&[0, status as u32]);
    match procedure {
        GETATTR if is_ok => {
            // A file of file system 1, whatever it is.
            let attributes = [1, 0o644, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7, 1, 0, 1, 0, 1, 0];
            [status, words(&attributes)].concat()
        }
        GETATTR => status,
        COMMIT => {
            thread::sleep(takes);
            let end: &[u8] = if is_ok { &told } else { &[] };
            [status, words(&[0, 0]), end.to_vec()].concat()
        }
        WRITE if is_ok => {
            let behind = arguments + 4 + word(arguments).next_multiple_of(4) as usize;
            // The offset, the count, how stable it is to be, and the length of the data.
            let (offset, count, data) = (word(behind + 4), word(behind + 8), &call[behind + 20..]);
            store(shared, object, offset as usize, &data[..count as usize]);
            [status, words(&[0, 0, count, 0]), told.to_vec()].concat()
        }
        STATUS => [status, words(&[flags]), told.to_vec(), words(&[0])].concat(),
        SYNC => {
            thread::sleep(sync_takes);
            let end: &[u8] = if is_ok { &told } else { &[] };
            [status, end.to_vec()].concat()
        }
        // It does not have the procedure.
        _ => words(&[3]),
    }
}
