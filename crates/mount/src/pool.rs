//! Threads that answer requests: as many as wait at one time, so that a slow call blocks no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::process;

/// Most threads. Further requests wait for one of them; the kernel holds those who made them.
const THREADS_MAX: usize = 512;
/// Threads beside, for requests that take a second at most whatever the server does.
const PROMPT_THREADS_MAX: usize = 32;
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// How often requests that wait for a thread are looked at: whoever made them may have been killed.
const LOOK: Duration = Duration::from_millis(200);
/// Enough for the deepest call, in bytes.
const STACK_BYTES: usize = 256 << 10;

struct Job {
    /// Who waits for it; 0 if nobody does that could be killed.
    pid: u32,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Debug)]
struct Shared {
    threads_max: usize,
    state: Mutex<State>,
    has_job: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    has_lookout: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} threads, {} idle, {} jobs", self.threads, self.idle, self.jobs.len())
    }
}

/// The threads.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    prompt: Arc<Shared>,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(THREADS_MAX)
    }
}

impl Pool {
    /// With so many threads at most.
    pub(crate) fn new(threads_max: usize) -> Self {
        let shared = |threads_max| {
            let (state, has_job) = (Mutex::default(), Condvar::new());
            Arc::new(Shared { threads_max, state, has_job })
        };
        Self { shared: shared(threads_max), prompt: shared(PROMPT_THREADS_MAX) }
    }

    /// Has this done by a thread of its own, or by the next that is free; for this thread that waits,
    /// or 0. If that is killed before, the job is done at once: it is to end soon by itself then.
    pub(crate) fn run(&self, pid: u32, job: impl FnOnce() + Send + 'static) {
        let is_full = self.shared.run(Job { pid, run: Box::new(job) });
        if is_full && !std::mem::replace(&mut self.shared.state.lock().has_lookout, true) {
            let (shared, prompt) = (Arc::clone(&self.shared), Arc::clone(&self.prompt));
            let thread = thread::Builder::new().name("nfs-lookout".to_owned());
            if let Err(error) = thread.spawn(move || shared.look_out(&prompt)) {
                tracing::warn!(%error, "cannot start a thread; killed requests wait for others");
                self.shared.state.lock().has_lookout = false;
            }
        }
    }

    /// Has this done, which takes a second at most, whatever else waits.
    pub(crate) fn run_prompt(&self, job: impl FnOnce() + Send + 'static) {
        self.prompt.run(Job { pid: 0, run: Box::new(job) });
    }
}

impl Shared {
    /// True if the job has to wait for another one's end.
    fn run(self: &Arc<Self>, job: Job) -> bool {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.has_job.notify_one();
            return false;
        }
        if state.threads >= self.threads_max {
            return true;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name("nfs-request".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || shared.work()) {
            tracing::warn!(%error, "cannot start a thread; requests wait for the others");
            self.state.lock().threads -= 1;
        }
        false
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                (job.run)();
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

    /// While jobs wait for a thread: those of killed threads do not.
    fn look_out(&self, prompt: &Arc<Self>) {
        loop {
            thread::sleep(LOOK);
            let mut pids: Vec<u32> = {
                let mut state = self.state.lock();
                if state.jobs.is_empty() {
                    state.has_lookout = false;
                    return;
                }
                state.jobs.iter().map(|job| job.pid).filter(|pid| *pid != 0).collect()
            };
            pids.sort_unstable();
            pids.dedup();
            // Without the lock: /proc is read.
            pids.retain(|pid| process::is_killed(*pid));
            let killed: Vec<Job> = {
                let mut state = self.state.lock();
                let jobs = std::mem::take(&mut state.jobs);
                let (killed, rest): (VecDeque<_>, VecDeque<_>) =
                    jobs.into_iter().partition(|job| pids.binary_search(&job.pid).is_ok());
                state.jobs = rest;
                killed.into()
            };
            for job in killed {
                prompt.run(job);
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
        pool.run(0, move || {
            let _ = wait.recv();
        });
        for number in 0..10 {
            let tell = tell.clone();
            pool.run(0, move || {
                let _ = tell.send(number);
            });
        }
        let mut numbers: Vec<i32> =
            (0..10).map(|_| told.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
        drop(release);
    }

    #[test]
    fn a_full_pool_holds_up_neither_prompt_jobs_nor_those_of_killed_threads() {
        let pool = Pool::new(1);
        let (release, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        pool.run(0, move || {
            let _ = wait.recv();
        });
        let add = |pid, name: &'static str| {
            let tell = tell.clone();
            pool.run(pid, move || {
                let _ = tell.send(name);
            });
        };
        add(std::process::id(), "lives");
        // There is no such thread.
        add(u32::MAX >> 1, "killed");
        let prompt = tell.clone();
        pool.run_prompt(move || {
            let _ = prompt.send("prompt");
        });
        let mut first = [(); 2].map(|()| told.recv_timeout(Duration::from_secs(10)).unwrap());
        first.sort_unstable();
        assert_eq!(first, ["killed", "prompt"]);
        assert!(told.try_recv().is_err());
        drop(release);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok("lives"));
    }
}
