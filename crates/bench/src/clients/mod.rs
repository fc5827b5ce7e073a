//! clients: thousands of clients of NFSv4.1, each with a session, an open and a lock; what they cost
//! the server in memory, and how fast they come.
//!
//! A few connections carry many clients, so that what is measured is state and not sockets. After all have come,
//! each lock is looked at by another client, which must find it held.

use std::fmt::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use steadfast_client::nfs4::{
    ANONYMOUS, ClientSettings, HeldLock4, Nfs4Client, Opening4, Session4, StateId4,
};
use steadfast_client::{FileHandle, RpcConnection};
use steadfast_wire::nfs4::{LockOwner4, LockType4, Locker4};

use crate::drive::tally::histogram;
use crate::drive::{Control, Latency};
use crate::error::BenchError;
use crate::place4::{Place4, connect, connect_by, patiently};
use crate::server_cost;
use crate::setup::Target;

/// Most clients.
pub const CLIENTS_MAX: usize = 1_000_000;
/// Most connections that carry them.
pub const CONNECTIONS_MAX: usize = 256;
/// Bytes that each client locks.
const LOCKED_BYTES: u64 = 16;
/// How often progress is shown.
const SHOWN_EVERY: usize = 500;

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Clients {
    /// The server.
    pub target: Target,
    /// The share.
    pub path: String,
    /// How many clients.
    pub clients: usize,
    /// How many connections carry them.
    pub connections: usize,
    /// Whether each also opens a file and locks a range of it; else they only mount.
    pub locks: bool,
    /// Slots that each asks for.
    pub slots: u32,
    /// 1, or 2.
    pub minor_version: u32,
    /// How long all stay.
    pub stay: Duration,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Clients that have come.
    pub clients: usize,
    /// Connections.
    pub connections: usize,
    /// How long it took until all had come.
    pub seconds: f64,
    /// Clients a second.
    pub clients_per_second: f64,
    /// How long `EXCHANGE_ID`, `CREATE_SESSION` and `RECLAIM_COMPLETE` of a client took together.
    #[serde(flatten)]
    pub latency: Latency,
    /// How long OPEN and LOCK of a client took together.
    pub locking: Latency,
    /// The server's CPU time a client in microseconds, if its process is known.
    pub server_cpu_us_per_client: Option<f64>,
    /// The server's memory before the first client came, in bytes.
    pub server_resident_bytes_before: Option<u64>,
    /// The same when all were there.
    pub server_resident_bytes: Option<u64>,
    /// How much more that is for each client.
    pub bytes_per_client: Option<f64>,
    /// Locks that another client found held.
    pub locks_looked_at: usize,
    /// Clients that have left again.
    pub left: usize,
}

/// A client that has come.
struct Come {
    session: Session4,
    open: StateId4,
    lock: Option<HeldLock4>,
}

/// The clients of one connection.
struct Group {
    connection: Option<RpcConnection>,
    clients: Vec<Come>,
    mounting: Histogram<u64>,
    locking: Histogram<u64>,
}

impl Clients {
    fn check(&self) -> Result<(), BenchError> {
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Err(BenchError::Usage(format!("between 1 and {CLIENTS_MAX} clients")));
        }
        if !(1..=CONNECTIONS_MAX.min(self.clients)).contains(&self.connections) {
            let what = format!("between 1 and {CONNECTIONS_MAX} connections, no more than clients");
            return Err(BenchError::Usage(what));
        }
        Ok(())
    }

    fn clients_of(&self, connection: usize) -> Range<usize> {
        let of = |connection| self.clients * connection / self.connections;
        of(connection)..of(connection + 1)
    }

    fn settings(&self) -> ClientSettings {
        let (slots, minor_version) = (self.slots, self.minor_version);
        ClientSettings { slots, minor_version, ..ClientSettings::default() }
    }
}

fn owner(client: usize) -> [u8; 8] {
    (client as u64).to_be_bytes()
}

fn range(client: usize) -> (u64, u64) {
    (client as u64 * LOCKED_BYTES, LOCKED_BYTES)
}

fn file_name(connection: usize) -> Vec<u8> {
    format!("f{connection:04}").into_bytes()
}

/// Lets all clients come, looks at them, and lets them go.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(load: &Clients, control: &Control) -> Result<Report, BenchError> {
    load.check()?;
    let mut own = connect(&load.target, &load.settings())?;
    let place = Place4::make(&mut own, &load.path, "steadfast-clients")?;
    let names: Vec<_> = (0..load.connections).map(file_name).collect();
    let mut files = Vec::new();
    for name in &names {
        let (file, stateid) = place.make_file(&mut own, name)?;
        patiently(|| own.close(&file, stateid))
            .map_err(BenchError::client("closing a file that was made"))?;
        files.push(file);
    }
    let outcome = measure(load, &place, &files, control);
    control.clear();
    let removed = place.remove(&mut own, names.iter().map(Vec::as_slice));
    let report = outcome?;
    removed?;
    own.destroy().map_err(BenchError::client("ending a session"))?;
    Ok(report)
}

/// Does something for each connection at the same time.
fn for_each_group<R: Send>(
    groups: Vec<Group>,
    work: impl Fn(usize, Group) -> Result<R, BenchError> + Sync,
) -> Result<Vec<R>, BenchError> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |(number, group)| scope.spawn(move || work(number, group));
        let threads: Vec<_> = groups.into_iter().enumerate().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(BenchError::Panicked))
        };
        threads.into_iter().map(join).collect()
    })
}

fn measure(
    load: &Clients,
    place: &Place4,
    files: &[FileHandle],
    control: &Control,
) -> Result<Report, BenchError> {
    let resident = || load.server_pid.and_then(|pid| server_cost::resident_bytes(pid).ok());
    let cpu = || load.server_pid.and_then(|pid| server_cost::cpu_time(pid).ok());
    let mut groups = Vec::new();
    for _ in 0..load.connections {
        let (clients, connection) = (Vec::new(), Some(load.target.connect()?));
        let (mounting, locking) = (histogram(), histogram());
        groups.push(Group { connection, clients, mounting, locking });
    }
    let (bytes_before, cpu_before, started) = (resident(), cpu(), Instant::now());
    let groups = for_each_group(groups, |number, group| come(load, place, number, group, control))?;
    let seconds = started.elapsed().as_secs_f64();
    let (bytes, cpu_after) = (resident(), cpu());
    let looked_at = std::sync::atomic::AtomicUsize::new(0);
    let groups = for_each_group(groups, |number, mut group| {
        let count = look(load, files, number, &mut group)?;
        looked_at.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        Ok(group)
    })?;
    let until = Instant::now() + load.stay;
    while Instant::now() < until && !control.is_interrupted() {
        control.show(&format!("clients: {} are there", load.clients));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (mut mounting, mut locking) = (histogram(), histogram());
    for group in &groups {
        // All have the same bounds, so nothing can be out of range.
        let _ = mounting.add(&group.mounting);
        let _ = locking.add(&group.locking);
    }
    let clients: usize = groups.iter().map(|group| group.clients.len()).sum();
    let left = for_each_group(groups, |number, group| leave(load, files, number, group))?;
    let per_client = |all: f64| all / clients.max(1) as f64;
    let used = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    let more = bytes_before.zip(bytes).map(|(before, after)| after.saturating_sub(before));
    Ok(Report {
        clients,
        connections: load.connections,
        seconds,
        clients_per_second: clients as f64 / seconds.max(1e-9),
        latency: Latency::of(&mounting),
        locking: Latency::of(&locking),
        server_cpu_us_per_client: used.map(|used| per_client(used.as_secs_f64() * 1e6)),
        server_resident_bytes_before: bytes_before,
        server_resident_bytes: bytes,
        bytes_per_client: more.map(|more| per_client(more as f64)),
        locks_looked_at: looked_at.into_inner(),
        left: left.into_iter().sum(),
    })
}

/// The clients of one connection come, one after the other.
fn come(
    load: &Clients,
    place: &Place4,
    number: usize,
    mut group: Group,
    control: &Control,
) -> Result<Group, BenchError> {
    let name = file_name(number);
    let identity = &load.target.identity;
    for client in load.clients_of(number) {
        if control.is_interrupted() {
            return Err(BenchError::Interrupted);
        }
        if number == 0 && client % SHOWN_EVERY == 0 {
            control.show(&format!("clients: {} have come", client * load.connections));
        }
        let Some(connection) = group.connection.take() else { break };
        let began = Instant::now();
        let mut one = connect_by(connection.stream(), identity, &load.settings())?;
        group.mounting.saturating_record(began.elapsed().as_nanos() as u64);
        let (mut open, mut lock) = (ANONYMOUS, None);
        if load.locks {
            let began = Instant::now();
            let locking = || BenchError::client("opening and locking");
            let opened = patiently(|| one.open(&place.directory, &Opening4::existing(&name)))
                .map_err(locking())?;
            open = opened.stateid;
            let (owner, range, kind) = (owner(client).to_vec(), range(client), LockType4::Write);
            let locker = Locker4::Open {
                open_seqid: 0,
                open_stateid: open,
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner: &owner },
            };
            let stateid =
                patiently(|| one.lock_by(&opened.handle, kind, range, locker)).map_err(locking())?;
            lock = Some(HeldLock4 { owner, kind, range, stateid });
            group.locking.saturating_record(began.elapsed().as_nanos() as u64);
        }
        let (connection, session) = one.into_parts();
        group.connection = Some(connection);
        group.clients.push(Come { session, open, lock });
    }
    Ok(group)
}

/// Each lock must be found held by the client beside.
fn look(
    load: &Clients,
    files: &[FileHandle],
    number: usize,
    group: &mut Group,
) -> Result<usize, BenchError> {
    let count = group.clients.len();
    let (Some(file), true) = (files.get(number), load.locks && count > 1) else { return Ok(0) };
    for place in 0..count {
        let Some(lock) = group.clients.get(place).and_then(|one| one.lock.clone()) else {
            continue;
        };
        let Some(connection) = group.connection.take() else { break };
        // Sessions are not copied: the one that looks is taken out meanwhile.
        let beside = (place + 1) % count;
        let looking = group.clients.swap_remove(beside);
        let mut one =
            Nfs4Client::with_session(connection, load.target.identity.clone(), looking.session);
        let found = patiently(|| one.test_lock(file, LockType4::Write, lock.range, b"looks"))
            .map_err(BenchError::client("looking at locks"))?;
        let is_held = found.is_some_and(|denied| {
            denied.owner == lock.owner && (denied.offset, denied.length) == lock.range
        });
        if !is_held {
            return Err(BenchError::broken("lock", "a lock that was given is not held"));
        }
        let (connection, session) = one.into_parts();
        group.connection = Some(connection);
        group.clients.push(Come { session, ..looking });
        let last = group.clients.len() - 1;
        group.clients.swap(beside, last);
    }
    Ok(count)
}

/// The clients of one connection unlock, close and go.
fn leave(
    load: &Clients,
    files: &[FileHandle],
    number: usize,
    mut group: Group,
) -> Result<usize, BenchError> {
    let count = group.clients.len();
    for client in group.clients {
        let Some(connection) = group.connection.take() else { break };
        let leaving = || BenchError::client("letting a client go");
        let mut one =
            Nfs4Client::with_session(connection, load.target.identity.clone(), client.session);
        if let (Some(lock), Some(file)) = (client.lock, files.get(number)) {
            patiently(|| one.unlock(file, lock.stateid, lock.range)).map_err(leaving())?;
            patiently(|| one.close(file, client.open)).map_err(leaving())?;
        }
        group.connection = Some(one.destroy().map_err(leaving())?);
    }
    Ok(count)
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} clients over {} connections came in {:.2} s: {:.0} a second",
            self.clients, self.connections, self.seconds, self.clients_per_second
        );
        for (what, latency) in [("mounting", &self.latency), ("opening, locking", &self.locking)] {
            let _ = writeln!(
                text,
                "{what:<18} mean {:.3} ms, p99 {:.3} ms, max {:.3} ms",
                latency.mean_us / 1e3,
                latency.p99_us / 1e3,
                latency.max_us / 1e3
            );
        }
        if let (Some(before), Some(after), Some(each)) =
            (self.server_resident_bytes_before, self.server_resident_bytes, self.bytes_per_client)
        {
            let _ = writeln!(
                text,
                "server memory      {:.1} MiB before, {:.1} MiB with all: {each:.0} bytes a client",
                mib(before),
                mib(after)
            );
        }
        if let Some(us) = self.server_cpu_us_per_client {
            let _ = writeln!(text, "server CPU         {us:.1} µs a client");
        }
        let _ = writeln!(
            text,
            "{} locks looked at by another client; {} clients left again",
            self.locks_looked_at, self.left
        );
        text
    }
}
