//! A load that keeps the server busy while clients mount.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_client::{FileHandle, arguments, procedure};
use steadfast_wire::nfs3::{Access3Ok, Fattr3};

use super::{Beside, BesideReport, Mountstorm};
use crate::drive::{self, Control, Latency, Outcome, Pace, Plan, Script, Transport, Verdict};
use crate::error::BenchError;
use crate::records::Outbox;
use crate::replies::{self, at_end, formed};
use crate::setup::CallWriter;

/// Longer than any storm: it is stopped when the storm is over.
const DURATION: Duration = Duration::from_secs(24 * 3600);

/// GETATTR and ACCESS of one directory, in turn.
struct Busy {
    root: FileHandle,
    writer: CallWriter,
    /// Of each lane, whether ACCESS is in flight.
    accesses: Vec<bool>,
}

impl Script for Busy {
    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let is_access = self.accesses.get_mut(lane).is_some_and(|access| {
            *access = !*access;
            *access
        });
        if is_access {
            let arguments = arguments::access(&self.root, arguments::access::ALL);
            self.writer.append(out, xid, procedure::ACCESS, &arguments, &[]);
        } else {
            let arguments = arguments::handle(&self.root);
            self.writer.append(out, xid, procedure::GETATTR, &arguments, &[]);
        }
        Ok(Some(0))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let is_access = self.accesses.get(lane).copied().unwrap_or(false);
        let name = if is_access { "access" } else { "getattr" };
        let mut r = replies::results(name, message)?;
        if !replies::succeeded(name, &mut r)? {
            return Ok(Verdict::TryLater);
        }
        let outcome =
            if is_access { formed::<Access3Ok>(&mut r) } else { formed::<Fattr3>(&mut r) };
        outcome.and_then(|()| at_end(&r)).map_err(|complaint| complaint.about(name))?;
        Ok(Verdict::Good)
    }
}

/// The load, while it runs.
pub(super) struct Load {
    beside: Beside,
    control: Control,
    thread: JoinHandle<Result<Outcome<Busy>, BenchError>>,
}

impl Load {
    /// Starts it, and waits until it has run for a while.
    pub(super) fn start(storm: &Mountstorm, beside: Beside) -> Result<Self, BenchError> {
        let (_, root) = storm.target.mount(&storm.path)?;
        let plan = Plan {
            server: storm.target.server,
            clients: beside.clients,
            // Other addresses than the storm's.
            first_address: Some(storm.clients),
            transport: Transport::Tcp,
            depth: beside.depth,
            threads: 1,
            pace: Pace::Closed,
            warm_up: Duration::ZERO,
            duration: DURATION,
            server_pid: None,
            kinds: 1,
            title: String::new(),
        };
        let script = Busy {
            root,
            writer: CallWriter::new(&storm.target.identity),
            accesses: vec![false; beside.clients.saturating_mul(beside.depth)],
        };
        let control = Control::default();
        let (stopping, has_ended) = (control.clone(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&has_ended);
        let thread = std::thread::spawn(move || {
            let outcome = drive::run(&plan, vec![script], &stopping);
            ended.store(true, Ordering::Relaxed);
            outcome
        });
        let started = std::time::Instant::now();
        while started.elapsed() < beside.warm_up && !has_ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { beside, control, thread })
    }

    /// Stops it, and tells what it did.
    pub(super) fn stop(self) -> Result<BesideReport, BenchError> {
        self.control.interrupt();
        let outcome = self.thread.join().map_err(|_| BenchError::Panicked)??;
        let all = outcome.tally.all();
        Ok(BesideReport {
            clients: self.beside.clients,
            depth: self.beside.depth,
            calls_per_second: all.len() as f64 / outcome.seconds,
            latency: Latency::of(&all),
        })
    }
}
