//! For tests: a server without the recovery program, which says of each object what a test wants. It is no NFS server:
//! it answers GETATTR and COMMIT alone.

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

pub(crate) const GETATTR: u32 = 1;
pub(crate) const COMMIT: u32 = 21;

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

    /// It comes again with this verifier.
    pub(crate) fn restart(&self, verifier: Verifier) {
        let mut state = self.state.lock();
        state.verifier = verifier;
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

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call)?;
        let results = answer(&call, state);
        // Accepted, with an empty verifier.
        let head = [1_u32, 0, 0, 0].map(u32::to_be_bytes).concat();
        let reply = [&call[..4], &head, &results].concat();
        stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes())?;
        stream.write_all(&reply)?;
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// From how the call is accepted on.
fn answer(call: &[u8], state: &Mutex<State>) -> Vec<u8> {
    let word = |at: usize| u32::from_be_bytes(*call[at..].first_chunk().unwrap());
    if word(12) != NFS3 {
        return words(&[1]);
    }
    let procedure = word(20);
    // Behind credential and verifier.
    let credential = 24;
    let verifier = credential + 8 + word(credential + 4) as usize;
    let arguments = verifier + 8 + word(verifier + 4) as usize;
    let object = &call[arguments + 4..][..word(arguments) as usize];
    let object = FileHandle(object.to_vec());
    let mut state = state.lock();
    let status = state.statuses.get(&object).copied().unwrap_or(NfsStat3::Ok);
    let (told, takes) = (state.verifier, state.commit_takes);
    state.calls.push((procedure, object));
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
        // It does not have the procedure.
        _ => words(&[3]),
    }
}
