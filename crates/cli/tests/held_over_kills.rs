//! Process ring: many clients of NFSv4.1 with files open, ranges locked and writes in flight, while the real program
//! is killed, or told to stop, and started again. Each goes on as if nothing had happened: no grace period, no error,
//! no session, open or lock lost, no write forgotten. (That each request is executed once, `killed_compounds` shows.)
//!
//! `STEADFAST_CLIENTS` (each has as many files open as there are clients, up to 100) and `STEADFAST_KILLS` say how much;
//! `STEADFAST_FILE_SYSTEM`, `STEADFAST_SHARE` and `STEADFAST_PROGRAM` are as in `killed_compounds`. A run prints how
//! long clients waited for the server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, utf8};
use intent_log_support::{kill, program_and_configuration, stop, wanted_file_system};
use steadfast_client::nfs4::{ClientSettings, Nfs4Client, Opening4, SteadyClient4};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection, StableHow};
use steadfast_wire::nfs4::LockType4;

/// Of a short run.
const CLIENTS: u64 = 16;
const KILLS: u64 = 8;
/// Most files that each client has open.
const FILES_MAX: u64 = 100;
/// Bytes of a file that each client has locked, and writes.
const RANGE: u64 = 16;
const OWNER: &[u8] = b"a process";

type Client<'test> = SteadyClient4<RpcConnection, Connect<'test>>;
type Connect<'test> = Box<dyn FnMut() -> Result<RpcConnection, ClientError> + Send + 'test>;

fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// What all clients of the test know.
struct Shared {
    server: Mutex<SocketAddr>,
    directory: FileHandle,
    files: u64,
    has_ended: AtomicBool,
    /// Requests that each client has got a reply to.
    done: Vec<AtomicU64>,
    /// The longest time that a request of each client took since this was last taken, in microseconds.
    waited_us: Vec<AtomicU64>,
}

impl Shared {
    fn server(&self) -> SocketAddr {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> Vec<u64> {
        self.done.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until each client has got replies to two more requests: the second was made after this was called.
    fn all_are_served(&self) {
        let before = self.counts();
        let begun = Instant::now();
        while self.counts().iter().zip(&before).any(|(now, before)| *now < before + 2) {
            assert!(begun.elapsed() < PATIENCE, "{:?} after {before:?}", self.counts());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn longest_wait(&self) -> Duration {
        let taken = self.waited_us.iter().map(|waited| waited.swap(0, Ordering::Relaxed));
        Duration::from_micros(taken.max().unwrap_or_default())
    }
}

/// One client with what it has, and what it wrote last into its range of each file.
struct Holder<'test> {
    shared: &'test Shared,
    client: Client<'test>,
    number: u64,
    files: Vec<(usize, u64)>,
}

fn file_name(file: u64) -> String {
    format!("file {file}")
}

/// What a client writes for the so manyth time.
fn data(client: u64, times: u64) -> [u8; RANGE as usize] {
    let mut data = [0; RANGE as usize];
    data[..8].copy_from_slice(&client.to_be_bytes());
    data[8..].copy_from_slice(&times.to_be_bytes());
    data
}

impl<'test> Holder<'test> {
    fn new(shared: &'test Shared, number: u64) -> Self {
        let connect =
            Box::new(|| RpcConnection::connect(shared.server(), PATIENCE)) as Connect<'test>;
        let settings = ClientSettings { slots: 1, ..ClientSettings::default() };
        let client = SteadyClient4::connect(connect, Identity::root(), settings, PATIENCE).unwrap();
        let mut holder = Self { shared, client, number, files: Vec::new() };
        holder.client.perform(None, |client, _| client.complete_reclaim()).unwrap();
        for file in 0..shared.files {
            let name = file_name(file);
            let open = holder
                .client
                .open(&shared.directory, &Opening4::existing(name.as_bytes()))
                .unwrap();
            holder.lock(open);
            holder.files.push((open, 0));
        }
        holder
    }

    fn range(&self) -> (u64, u64) {
        (self.number * RANGE, RANGE)
    }

    fn lock(&mut self, open: usize) {
        let range = self.range();
        self.client.lock(open, OWNER, LockType4::Write, range).unwrap();
    }

    /// Writes into all files, in an order of its own, until the test has ended; instead, one time in eight
    /// the file's range is unlocked and locked again, and one time in eight the file is opened and closed.
    fn work(mut self) -> Self {
        let mut random = self.number;
        while !self.shared.has_ended.load(Ordering::Relaxed) {
            let begun = Instant::now();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (random >> 40) as usize % self.files.len();
            let (open, times) = self.files[place];
            match random >> 61 {
                0 => {
                    self.client.unlock(open, OWNER).unwrap();
                    self.lock(open);
                }
                1 => {
                    let name = file_name(place as u64);
                    let mut opening = Opening4::existing(name.as_bytes());
                    opening.owner = b"another process";
                    let again = self.client.open(&self.shared.directory, &opening).unwrap();
                    self.client.close(again).unwrap();
                }
                _ => {
                    let data = data(self.number, times + 1);
                    let offset = self.range().0;
                    let wrote = self.client.perform(Some(open), |client, held| {
                        let held = held.unwrap();
                        let stateid = held.locks[0].stateid;
                        client.write(&held.handle, stateid, offset, &data, StableHow::FileSync)
                    });
                    assert_eq!(wrote.unwrap().count, data.len() as u32);
                    self.files[place].1 = times + 1;
                }
            }
            let took = begun.elapsed().as_micros() as u64;
            self.shared.waited_us[self.number as usize].fetch_max(took, Ordering::Relaxed);
            self.shared.done[self.number as usize].fetch_add(1, Ordering::Relaxed);
            // Requests are in flight all the time, and yet the disk keeps up.
            std::thread::sleep(Duration::from_millis(1));
        }
        self
    }

    /// All that it wrote is there, and nothing of what it has was lost on the way.
    fn check(&mut self) {
        let recovered = self.client.recovered();
        assert_eq!(
            (recovered.sessions, recovered.opens, recovered.lost),
            (0, 0, 0),
            "{recovered:?}"
        );
        let offset = self.range().0;
        for (open, times) in self.files.clone() {
            let read = self.client.perform(Some(open), |client, held| {
                let held = held.unwrap();
                client.read(&held.handle, held.stateid, offset, RANGE as u32)
            });
            let expected = if times == 0 { [0; RANGE as usize] } else { data(self.number, times) };
            assert_eq!(read.unwrap().data, expected, "{} after {times}", self.number);
        }
    }
}

/// Somebody without locks finds each range of each file locked. A client that unlocks and locks again may be at it just
/// now: such a range is looked at again.
fn all_is_locked(shared: &Shared, clients: u64, files: impl Iterator<Item = u64>) {
    let transport = RpcConnection::connect(shared.server(), PATIENCE).unwrap();
    let mut other =
        Nfs4Client::connect(transport, Identity::root(), &ClientSettings::default()).unwrap();
    other.complete_reclaim().unwrap();
    for file in files {
        let opened = other.open_for_all(&shared.directory, file_name(file).as_bytes()).unwrap();
        for client in 0..clients {
            let begun = Instant::now();
            let range = (client * RANGE, RANGE);
            while other.test_lock(&opened.handle, LockType4::Read, range, OWNER).unwrap().is_none()
            {
                assert!(begun.elapsed() < PATIENCE, "{client} has lost its lock of {file}");
            }
        }
        other.close(&opened.handle, opened.stateid).unwrap();
    }
    drop(other.into_parts());
}

#[test]
fn clients_with_opens_and_locks_go_on_after_each_kill() {
    let (clients, kills) =
        (number_of("STEADFAST_CLIENTS", CLIENTS), number_of("STEADFAST_KILLS", KILLS));
    let files = clients.min(FILES_MAX);
    let mut place = Place::new();
    let Some(_disk) = wanted_file_system(&place) else { return };
    for file in 0..files {
        let zeros = vec![0; (clients * RANGE) as usize];
        std::fs::write(place.share.join(file_name(file)), zeros).unwrap();
    }
    let configuration = program_and_configuration(&mut place);
    let start = || Running::start(&place, 0, &["--config", utf8(&configuration)]);
    let mut running = start();
    let transport = RpcConnection::connect(running.address, PATIENCE).unwrap();
    let mut first =
        Nfs4Client::connect(transport, Identity::root(), &ClientSettings::default()).unwrap();
    let shared = Shared {
        server: Mutex::new(running.address),
        directory: first.lookup_path(utf8(&place.share).as_bytes()).unwrap(),
        files,
        has_ended: AtomicBool::new(false),
        done: (0..clients).map(|_| AtomicU64::new(0)).collect(),
        waited_us: (0..clients).map(|_| AtomicU64::new(0)).collect(),
    };
    let (mut starts, mut waits, mut stops) = (Vec::new(), Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let holders: Vec<Holder<'_>> =
            (0..clients).map(|number| Holder::new(&shared, number)).collect();
        let working: Vec<_> =
            holders.into_iter().map(|holder| scope.spawn(move || holder.work())).collect();
        for round in 0..kills {
            // At another moment of checkpoints and batches each time.
            std::thread::sleep(Duration::from_micros(50_000 + round * 7_919 % 60_000));
            shared.longest_wait();
            let is_told = round % 4 == 3;
            if is_told {
                stop(running);
            } else {
                kill(running);
            }
            let begun = Instant::now();
            running = start();
            *shared.server.lock().unwrap() = running.address;
            shared.all_are_served();
            starts.push(begun.elapsed());
            if is_told { &mut stops } else { &mut waits }.push(shared.longest_wait());
            let log = Running::log(&place);
            assert!(!log.contains("until they have reclaimed it"), "a grace period: {log}");
            all_is_locked(&shared, clients, std::iter::once(round % files));
        }
        shared.has_ended.store(true, Ordering::Relaxed);
        let mut holders: Vec<_> = working.into_iter().map(|work| work.join().unwrap()).collect();
        all_is_locked(&shared, clients, 0..files);
        for holder in &mut holders {
            holder.check();
        }
    });
    for times in [&mut starts, &mut waits, &mut stops] {
        times.sort();
    }
    let told = |times: &[Duration]| {
        (
            times.get(times.len() / 2).copied().unwrap_or_default(),
            times.last().copied().unwrap_or_default(),
        )
    };
    println!(
        "{kills} ends, {} opens and locks, {} requests; median and longest: all served after a start {:?}, \
         the longest request over a kill {:?}, over a stop {:?}",
        clients * files,
        shared.counts().iter().sum::<u64>(),
        told(&starts),
        told(&waits),
        told(&stops)
    );
    drop(first.into_parts());
}
