//! Threads that answer requests: as many as wait at one time, so that a slow call blocks no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Most threads. Further requests wait for one of them; the kernel holds those who made them.
const THREADS_MAX: usize = 512;
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Enough for the deepest call, in bytes.
const STACK_BYTES: usize = 256 << 10;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    has_job: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} threads, {} idle, {} jobs", self.threads, self.idle, self.jobs.len())
    }
}

/// The threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// Has this done by a thread of its own, or by the next that is free.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.has_job.notify_one();
            return;
        }
        if state.threads >= THREADS_MAX {
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("nfs-request".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || shared.work()) {
            tracing::warn!(%error, "cannot start a thread; requests wait for the others");
            self.shared.state.lock().threads -= 1;
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let has_timed_out = self.has_job.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if has_timed_out && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_that_waits_blocks_no_other() {
        let pool = Pool::default();
        let (release, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        pool.run(move || {
            let _ = wait.recv();
        });
        for number in 0..10 {
            let tell = tell.clone();
            pool.run(move || {
                let _ = tell.send(number);
            });
        }
        let mut numbers: Vec<i32> =
            (0..10).map(|_| told.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        drop(release);
    }
}
