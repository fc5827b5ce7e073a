//! locks: clients of NFSv4.1 contend for one range of a file, as programs do that share a counter.
//!
//! Who has the lock reads a counter from the file, adds one, writes it back and unlocks. At the end the
//! counter must be how often the lock was had: that is what exclusion is worth. Who is denied waits for
//! `CB_NOTIFY_LOCK`, or asks again after a while, as [`Wait`] says.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use steadfast_client::nfs4::{
    ACCESS_BOTH, ClientSettings, Nfs4Client, NfsStat4, Opened4, Opening4, StateId4,
    WANT_NO_DELEGATION,
};
use steadfast_client::{ClientError, FileHandle, RpcConnection, StableHow};
use steadfast_wire::nfs4::{LockOwner4, LockType4, Locker4};

use crate::drive::tally::histogram;
use crate::drive::{Control, Latency};
use crate::error::BenchError;
use crate::place4::{Place4, connect, patiently};
use crate::server_cost::{Costs, Snapshot};
use crate::setup::{CALL_TIMEOUT, Target};

/// Most clients: a thread each.
pub const CLIENTS_MAX: usize = 256;
/// What they contend for.
const RANGE: (u64, u64) = (0, 8);
const FILE: &[u8] = b"counter";
/// Who was not called back asks again after this time.
const CALLBACK_PATIENCE: Duration = Duration::from_secs(5);

/// How who was denied waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For the server's callback.
    Callback,
    /// Asks again after this time.
    Poll(Duration),
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("poll:").map(str::parse::<u64>) {
            _ if text == "callback" => Ok(Self::Callback),
            Some(Ok(ms @ 0..=60_000)) => Ok(Self::Poll(Duration::from_millis(ms))),
            _ => Err("write callback, or poll:MS".to_owned()),
        }
    }
}

/// What to do to which server.
#[derive(Clone, Debug)]
pub struct Locks {
    /// The server.
    pub target: Target,
    /// The share.
    pub path: String,
    /// Clients that contend.
    pub clients: usize,
    /// How they wait.
    pub wait: Wait,
    /// How long.
    pub duration: Duration,
    /// The server's process, if it runs here.
    pub server_pid: Option<u32>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Clients that contended.
    pub clients: usize,
    /// `callback`, or `poll`.
    pub wait: &'static str,
    /// How long it was measured.
    pub seconds: f64,
    /// How often the lock was had.
    pub locks: u64,
    /// How often it came to another client than had it before.
    pub hand_overs: u64,
    /// Those a second.
    pub hand_overs_per_second: f64,
    /// From the moment when who had it began to unlock until another client's LOCK had succeeded.
    #[serde(flatten)]
    pub latency: Latency,
    /// How often LOCK was denied.
    pub denied: u64,
    /// Callbacks that came.
    pub callbacks: u64,
    /// How often none came in time, so that the client asked again.
    pub missed_callbacks: u64,
    /// The fewest locks that one client had.
    pub locks_least: u64,
    /// The most.
    pub locks_most: u64,
    /// The counter in the file at the end: `locks`, or the server broke its promise.
    pub counter: u64,
    /// CPU time and memory.
    #[serde(flatten)]
    pub costs: Costs,
}

/// What all clients see.
#[derive(Debug)]
struct Shared {
    clock: Instant,
    is_over: AtomicBool,
    /// Who had it last, from 1.
    last: AtomicU64,
    /// When that one began to unlock.
    unlocked_ns: AtomicU64,
    /// Who has it: 0, or a client from 1 on.
    holder: AtomicU64,
}

/// What one client counted.
#[derive(Debug)]
struct Counted {
    locks: u64,
    hand_overs: u64,
    denied: u64,
    callbacks: u64,
    missed: u64,
    latency: Histogram<u64>,
}

/// One client that contends.
struct Contender<'s> {
    number: u64,
    client: Nfs4Client<RpcConnection>,
    file: FileHandle,
    open: StateId4,
    /// Once it has had the lock.
    lock: Option<StateId4>,
    wait: Wait,
    shared: &'s Shared,
    counted: Counted,
}

/// Contends, and reports.
///
/// # Errors
/// When the server cannot be reached, fails a call, or breaks a promise.
pub fn run(load: &Locks, control: &Control) -> Result<Report, BenchError> {
    if !(1..=CLIENTS_MAX).contains(&load.clients) {
        return Err(BenchError::Usage(format!("between 1 and {CLIENTS_MAX} clients")));
    }
    let mut own = connect(&load.target, &ClientSettings::default())?;
    let place = Place4::make(&mut own, &load.path, "steadfast-locks")?;
    let outcome = place
        .make_file(&mut own, FILE)
        .and_then(|(file, stateid)| measure(load, &place, &mut own, (&file, stateid), control));
    control.clear();
    let removed = place.remove(&mut own, std::iter::once(FILE));
    let report = outcome?;
    removed?;
    own.destroy().map_err(BenchError::client("ending a session"))?;
    Ok(report)
}

fn measure(
    load: &Locks,
    place: &Place4,
    own: &mut Nfs4Client<RpcConnection>,
    (file, stateid): (&FileHandle, StateId4),
    control: &Control,
) -> Result<Report, BenchError> {
    let beginning = || BenchError::client("writing the counter");
    patiently(|| own.write(file, stateid, 0, &[0; 8], StableHow::FileSync)).map_err(beginning())?;
    let shared = Shared {
        clock: Instant::now(),
        is_over: AtomicBool::new(false),
        last: AtomicU64::new(0),
        unlocked_ns: AtomicU64::new(0),
        holder: AtomicU64::new(0),
    };
    let mut contenders = Vec::new();
    for number in 0..load.clients {
        contenders.push(Contender::connect(load, place, number as u64 + 1, &shared)?);
    }
    let before = Snapshot::take(load.server_pid);
    let is_over = &shared.is_over;
    let counted = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for contender in contenders {
            threads.push(scope.spawn(move || {
                let outcome = contender.contend();
                // Nobody waits for who has failed.
                is_over.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            }));
        }
        let until = Instant::now() + load.duration;
        while Instant::now() < until
            && !control.is_interrupted()
            && !is_over.load(Ordering::Relaxed)
        {
            control.show("locks: contending");
            std::thread::sleep(Duration::from_millis(50));
        }
        is_over.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(BenchError::Panicked))
        };
        threads.into_iter().map(join).collect::<Result<Vec<Counted>, _>>()
    })?;
    let after = Snapshot::take(load.server_pid);
    let counter = read_counter(own, file, stateid)?;
    patiently(|| own.close(file, stateid)).map_err(BenchError::client("closing the file"))?;
    report(load, &counted, counter, &Costs::between(&before, &after, sum(&counted, |c| c.locks)))
        .map(|report| Report {
            seconds: (after.at - before.at).as_secs_f64(),
            hand_overs_per_second: report.hand_overs as f64
                / (after.at - before.at).as_secs_f64().max(1e-9),
            ..report
        })
}

fn sum(counted: &[Counted], of: impl Fn(&Counted) -> u64) -> u64 {
    counted.iter().map(of).sum()
}

fn report(
    load: &Locks,
    counted: &[Counted],
    counter: u64,
    costs: &Costs,
) -> Result<Report, BenchError> {
    let locks = sum(counted, |one| one.locks);
    if counter != locks {
        let what = format!(
            "the lock was had {locks} times, and the counter in the file is {counter}: two had it at once"
        );
        return Err(BenchError::broken("lock", what));
    }
    if locks == 0 {
        return Err(BenchError::Nothing { operation: "locks".to_owned() });
    }
    let mut latency = histogram();
    for one in counted {
        // All have the same bounds, so nothing can be out of range.
        let _ = latency.add(&one.latency);
    }
    Ok(Report {
        clients: load.clients,
        wait: if load.wait == Wait::Callback { "callback" } else { "poll" },
        seconds: 0.0,
        locks,
        hand_overs: sum(counted, |one| one.hand_overs),
        hand_overs_per_second: 0.0,
        latency: Latency::of(&latency),
        denied: sum(counted, |one| one.denied),
        callbacks: sum(counted, |one| one.callbacks),
        missed_callbacks: sum(counted, |one| one.missed),
        locks_least: counted.iter().map(|one| one.locks).min().unwrap_or(0),
        locks_most: counted.iter().map(|one| one.locks).max().unwrap_or(0),
        counter,
        costs: *costs,
    })
}

fn read_counter(
    client: &mut Nfs4Client<RpcConnection>,
    file: &FileHandle,
    stateid: StateId4,
) -> Result<u64, BenchError> {
    let read = patiently(|| client.read(file, stateid, 0, 8))
        .map_err(BenchError::client("reading the counter"))?;
    let bytes = read.data.try_into();
    bytes.map(u64::from_be_bytes).map_err(|_| BenchError::broken("read", "a counter cut short"))
}

impl<'s> Contender<'s> {
    fn connect(
        load: &Locks,
        place: &Place4,
        number: u64,
        shared: &'s Shared,
    ) -> Result<Self, BenchError> {
        let wants_callbacks = load.wait == Wait::Callback;
        let settings = ClientSettings { wants_callbacks, ..ClientSettings::default() };
        let mut client = connect(&load.target, &settings)?;
        let share_access = ACCESS_BOTH | WANT_NO_DELEGATION;
        let opening = Opening4 { share_access, ..Opening4::existing(FILE) };
        let Opened4 { handle, stateid, .. } = patiently(|| client.open(&place.directory, &opening))
            .map_err(BenchError::client("opening the file"))?;
        let counted = Counted {
            locks: 0,
            hand_overs: 0,
            denied: 0,
            callbacks: 0,
            missed: 0,
            latency: histogram(),
        };
        let (file, open, lock, wait) = (handle, stateid, None, load.wait);
        Ok(Self { number, client, file, open, lock, wait, shared, counted })
    }

    fn now_ns(&self) -> u64 {
        self.shared.clock.elapsed().as_nanos() as u64
    }

    /// Takes the lock again and again, until it is over.
    fn contend(mut self) -> Result<Counted, BenchError> {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if !self.take()? {
                self.wait()?;
                continue;
            }
            let got_ns = self.now_ns();
            let holder = &self.shared.holder;
            if holder.compare_exchange(0, self.number, Ordering::SeqCst, Ordering::SeqCst).is_err()
            {
                return Err(BenchError::broken("lock", "two clients have the same lock"));
            }
            let before = self.shared.last.swap(self.number, Ordering::SeqCst);
            if before != 0 && before != self.number {
                self.counted.hand_overs += 1;
                let since_ns = self.shared.unlocked_ns.load(Ordering::SeqCst);
                self.counted.latency.saturating_record(got_ns.saturating_sub(since_ns));
            }
            self.counted.locks += 1;
            self.count()?;
            self.shared.unlocked_ns.store(self.now_ns(), Ordering::SeqCst);
            // Others may have it as soon as LOCKU has come to the server.
            self.shared.holder.store(0, Ordering::SeqCst);
            self.release()?;
        }
        let (file, open) = (self.file.clone(), self.open);
        patiently(|| self.client.close(&file, open))
            .map_err(BenchError::client("closing the file"))?;
        self.client.destroy().map_err(BenchError::client("ending a session"))?;
        Ok(self.counted)
    }

    /// Asks for the lock: whether it is had.
    fn take(&mut self) -> Result<bool, BenchError> {
        let owner = self.number.to_be_bytes();
        let kind = match self.wait {
            Wait::Callback => LockType4::WriteWaiting,
            Wait::Poll(_) => LockType4::Write,
        };
        let locker = match self.lock {
            Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid: 0 },
            None => Locker4::Open {
                open_seqid: 0,
                open_stateid: self.open,
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner: &owner },
            },
        };
        match patiently(|| self.client.lock_by(&self.file, kind, RANGE, locker)) {
            Ok(stateid) => {
                self.lock = Some(stateid);
                Ok(true)
            }
            Err(error) if error.status4() == Some(NfsStat4::Denied) => {
                self.counted.denied += 1;
                Ok(false)
            }
            Err(error) => Err(BenchError::client("locking")(error)),
        }
    }

    fn wait(&mut self) -> Result<(), BenchError> {
        let Wait::Poll(time) = self.wait else { return self.wait_for_callback() };
        std::thread::sleep(time);
        Ok(())
    }

    fn wait_for_callback(&mut self) -> Result<(), BenchError> {
        self.client.transport().set_timeout(CALLBACK_PATIENCE);
        let called = self.client.next_callback();
        self.client.transport().set_timeout(CALL_TIMEOUT);
        match called {
            Ok(_) => self.counted.callbacks += 1,
            Err(ClientError::TimedOut { .. }) => self.counted.missed += 1,
            Err(error) => return Err(BenchError::client("waiting for a callback")(error)),
        }
        Ok(())
    }

    /// Adds one to the counter in the file.
    fn count(&mut self) -> Result<(), BenchError> {
        let stateid = self.lock.unwrap_or(self.open);
        let next = read_counter(&mut self.client, &self.file, stateid)?.wrapping_add(1);
        let data = next.to_be_bytes();
        let written =
            patiently(|| self.client.write(&self.file, stateid, 0, &data, StableHow::Unstable))
                .map_err(BenchError::client("writing the counter"))?;
        if written.count != 8 {
            return Err(BenchError::broken("write", "WRITE wrote less than it was given"));
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), BenchError> {
        let Some(stateid) = self.lock else { return Ok(()) };
        let unlocked = patiently(|| self.client.unlock(&self.file, stateid, RANGE));
        self.lock = Some(unlocked.map_err(BenchError::client("unlocking"))?);
        Ok(())
    }
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let us = self.costs.server_cpu_us_per_call;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} clients ({}): the lock was had {} times in {:.1} s, by one {} to {} times; the counter says so",
            self.clients, self.wait, self.locks, self.seconds, self.locks_least, self.locks_most
        );
        let _ = writeln!(
            text,
            "{} hand-overs, {:.0} a second, each {:.3} ms (p50), {:.3} ms (p99), {:.3} ms (max)",
            self.hand_overs,
            self.hand_overs_per_second,
            self.latency.p50_us / 1e3,
            self.latency.p99_us / 1e3,
            self.latency.max_us / 1e3
        );
        let _ = writeln!(
            text,
            "{} denied, {} callbacks, {} that did not come{}",
            self.denied,
            self.callbacks,
            self.missed_callbacks,
            us.map_or_else(String::new, |us| format!("; {us:.1} µs of server CPU a lock"))
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_called_back_or_polls() {
        assert_eq!("callback".parse(), Ok(Wait::Callback));
        assert_eq!("poll:10".parse(), Ok(Wait::Poll(Duration::from_millis(10))));
        for text in ["", "poll", "poll:", "poll:x", "poll:60001", "callbacks"] {
            assert!(text.parse::<Wait>().is_err(), "{text}");
        }
    }
}
