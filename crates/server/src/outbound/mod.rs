//! Calls to programs at clients: NLM's grants and results, and NSM's notices that this server has
//! restarted.
//!
//! A few threads make them, each call to its end; more of them the first notices of a restart. A client
//! that does not answer has one thread at a time. Clients that have failed before have half of the few at
//! most, so that they never hold up the others.

mod remote;

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_engine::{Engine, Grant, Outbound, OutboundCall, Transport};
use steadfast_wire::nsm::StateChange;
use steadfast_xdr::{Encode, Writer};

use self::remote::{Caller, Remote};
use crate::nsm::{Nsm, RecordedHost};

const THREADS_MAX: usize = 16;
/// The same while hosts are to be told that the server has restarted, of which any number may be down. Each
/// of them holds a thread for 3.5 s, and the last of 4,096 is to hear it in the grace period. Each thread needs
/// one of some 500 reserved ports.
const NOTIFYING_MAX: usize = 192;
/// Threads for clients that have failed before.
const RETRYING_MAX: usize = THREADS_MAX / 2;
/// Results of messages wait for their turn as long as no more calls than this do, and no more of one
/// client. What exceeds them is dropped: who misses a result sends the message again.
const CALLS_MAX: usize = 16_384;
const RESULTS_OF_CLIENT_MAX: usize = 64;
/// The same for grants, which are for clients that hold locks: who waits for one asks again.
const CALLS_WITH_GRANTS_MAX: usize = 4 * CALLS_MAX;
const GRANTS_OF_CLIENT_MAX: usize = 1024;
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Linux asks again for a lock each 30 s.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The results of a message are sent so often: whoever misses them sends the message again.
const RESULT_ATTEMPTS: u32 = 2;
/// How long a client is told that the server has restarted, as `sm-notify` does it.
const NOTICES_LAST: Duration = Duration::from_secs(15 * 60);
const SM_PROGRAM: u32 = 100_024;
const SM_VERSION: u32 = 1;
const SM_NOTIFY: u32 = 6;

/// Until when a call is repeated.
#[derive(Debug)]
enum Until {
    /// The host has answered, or has the lock no more.
    Answered(Grant),
    /// It was sent so often.
    Attempts(u32),
    /// The time has come. It goes over UDP and TCP by turns.
    Time(Instant),
}

/// A call that is to be made.
#[derive(Debug)]
struct Job {
    remote: Remote,
    procedure: u32,
    arguments: Vec<u8>,
    until: Until,
    due: Instant,
    pause: Duration,
    attempts: u32,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Clients that a thread calls now.
    busy: HashSet<IpAddr>,
    /// Threads that call clients which have failed before.
    retrying: usize,
    threads: usize,
    idle: usize,
    /// Notices that were not answered and are still repeated, those under way among them.
    notices: usize,
    /// The engine has something to send that no call of a client does.
    has_effects: bool,
    has_ended: bool,
}

impl Queue {
    /// Whether a call may wait for its turn. Notices always may: they are no more than hosts were
    /// recorded, and who is not told of a restart loses its locks without a word.
    fn has_room(&self, job: &Job) -> bool {
        let (calls_max, of_client_max) = match job.until {
            Until::Attempts(_) => (CALLS_MAX, RESULTS_OF_CLIENT_MAX),
            Until::Answered(_) => (CALLS_WITH_GRANTS_MAX, GRANTS_OF_CLIENT_MAX),
            Until::Time(_) => return true,
        };
        let kind = std::mem::discriminant(&job.until);
        let is_alike = |other: &&Job| {
            other.remote.to == job.remote.to && std::mem::discriminant(&other.until) == kind
        };
        self.jobs.len() < calls_max && self.jobs.iter().filter(is_alike).count() < of_client_max
    }

    /// Takes out the call that has been due for longest, of those that may be made now.
    fn take(&mut self, now: Instant) -> Option<Job> {
        let may_retry = self.retrying < RETRYING_MAX;
        let may_be = |job: &Job| {
            job.due <= now
                && !self.busy.contains(&job.remote.to)
                && (job.attempts == 0 || may_retry)
        };
        let due = self.jobs.iter().enumerate().filter(|(_, job)| may_be(job));
        let (place, _) = due.min_by_key(|(_, job)| job.due)?;
        let job = self.jobs.remove(place)?;
        self.busy.insert(job.remote.to);
        self.retrying += usize::from(job.attempts > 0);
        Some(job)
    }

    /// How long until a call is due that is not due yet.
    fn wait(&self, now: Instant) -> Duration {
        let due = self.jobs.iter().map(|job| job.due).filter(|due| *due > now).min();
        due.map_or(IDLE, |due| due.saturating_duration_since(now).min(IDLE))
    }
}

struct Shared {
    engine: Weak<Engine>,
    caller: Caller,
    nsm: Nsm,
    own_name: String,
    queue: Mutex<Queue>,
    told: Condvar,
}

/// Makes the calls.
#[derive(Clone)]
pub(crate) struct Sender(Arc<Shared>);

impl Sender {
    /// `rpcbind_port`: where clients tell the ports of their programs.
    pub(crate) fn new(engine: &Arc<Engine>, nsm: Nsm, rpcbind_port: u16) -> Self {
        let own_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self(Arc::new(Shared {
            engine: Arc::downgrade(engine),
            caller: Caller::new(rpcbind_port),
            nsm,
            own_name,
            queue: Mutex::default(),
            told: Condvar::new(),
        }))
    }

    /// Tells the hosts that had locks before this start that they have lost them.
    pub(crate) fn notify_former(&self) {
        let now = Instant::now();
        let mut arguments = Vec::new();
        let (mon_name, state) = (self.0.own_name.as_bytes(), self.0.nsm.state_number());
        StateChange { mon_name, state }.encode(&mut Writer::new(&mut arguments));
        let former = self.0.nsm.former();
        let addresses: HashSet<IpAddr> = former.iter().map(|host| host.address).collect();
        for to in addresses {
            let transport = Transport::Udp;
            let (program, version) = (SM_PROGRAM, SM_VERSION);
            self.add(Job {
                remote: Remote { to, from: None, transport, program, version },
                procedure: SM_NOTIFY,
                arguments: arguments.clone(),
                until: Until::Time(now + NOTICES_LAST),
                due: now,
                pause: FIRST_PAUSE,
                attempts: 0,
            });
        }
    }

    /// Once hosts of before were told, and had their time to take their locks again, they are recorded
    /// no more. To be called now and then.
    pub(crate) fn forget_former(&self) {
        if self.0.queue.lock().notices == 0
            && let Err(error) = self.0.nsm.forget_former()
        {
            tracing::warn!("cannot write which hosts have locks: {error}");
        }
    }

    /// The server stops: hosts without locks need not be told by the next start.
    pub(crate) fn end(&self, hosts_with_locks: Vec<(Vec<u8>, IpAddr)>) {
        self.0.queue.lock().has_ended = true;
        self.0.told.notify_all();
        let kept: Vec<RecordedHost> =
            hosts_with_locks.into_iter().map(RecordedHost::from).collect();
        if let Err(error) = self.0.nsm.keep(&kept) {
            tracing::warn!("cannot write which hosts have locks: {error}");
        }
    }

    fn add(&self, job: Job) {
        let mut queue = self.0.queue.lock();
        if queue.has_ended || !queue.has_room(&job) {
            return;
        }
        let is_notice = matches!(job.until, Until::Time(_));
        let threads_max = if is_notice { NOTIFYING_MAX } else { THREADS_MAX };
        queue.notices += usize::from(is_notice);
        queue.jobs.push_back(job);
        // Who is idle may be about to take another one of several notices.
        if (queue.idle == 0 || is_notice) && queue.threads < threads_max {
            self.start_thread(&mut queue);
        }
        drop(queue);
        self.0.told.notify_one();
    }
}

impl Sender {
    fn start_thread(&self, queue: &mut Queue) {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("outbound".to_owned());
        match thread.spawn(move || shared.work()) {
            Ok(_) => queue.threads += 1,
            Err(error) => tracing::warn!("cannot start a thread that calls clients: {error}"),
        }
    }
}

impl Outbound for Sender {
    fn send_effects(&self) {
        let mut queue = self.0.queue.lock();
        if queue.has_ended {
            return;
        }
        queue.has_effects = true;
        if queue.idle == 0 && queue.threads < THREADS_MAX {
            self.start_thread(&mut queue);
        }
        drop(queue);
        self.0.told.notify_one();
    }

    fn send(&self, call: OutboundCall) {
        let OutboundCall { to, from, transport, program, version, procedure, arguments, grant } =
            call;
        let until = grant.map_or(Until::Attempts(RESULT_ATTEMPTS), Until::Answered);
        self.add(Job {
            remote: Remote { to, from: Some(from), transport, program, version },
            procedure,
            arguments,
            until,
            due: Instant::now(),
            pause: FIRST_PAUSE,
            attempts: 0,
        });
    }

    fn record(&self, name: &[u8], address: IpAddr) -> bool {
        let in_use = || {
            let engine = self.0.engine.upgrade()?;
            Some(engine.hosts_in_use().into_iter().map(RecordedHost::from).collect())
        };
        let recorded = self.0.nsm.record(RecordedHost { address, name: name.to_vec() }, in_use);
        if let Err(error) = &recorded {
            tracing::warn!("{address} gets no locks: it cannot be recorded: {error}");
        }
        recorded.is_ok()
    }

    fn own_name(&self) -> &str {
        &self.0.own_name
    }

    fn state_number(&self) -> u32 {
        self.0.nsm.state_number()
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.has_ended {
            if std::mem::take(&mut queue.has_effects) {
                drop(queue);
                if let Some(engine) = self.engine.upgrade() {
                    engine.send_effects();
                }
                queue = self.queue.lock();
                continue;
            }
            let now = Instant::now();
            let Some(mut job) = queue.take(now) else {
                let wait = queue.wait(now);
                queue.idle += 1;
                let is_over = self.told.wait_for(&mut queue, wait).timed_out();
                queue.idle -= 1;
                // Whoever adds a call starts another thread.
                if is_over && queue.jobs.is_empty() && !queue.has_effects {
                    break;
                }
                continue;
            };
            drop(queue);
            let was_retrying = job.attempts > 0;
            let is_done = self.attempt(&mut job);
            queue = self.queue.lock();
            queue.busy.remove(&job.remote.to);
            queue.retrying -= usize::from(was_retrying);
            if is_done {
                queue.notices -= usize::from(matches!(job.until, Until::Time(_)));
            } else {
                queue.jobs.push_back(job);
            }
            // Somebody may have waited for this client, or for its place.
            self.told.notify_one();
        }
        queue.threads -= 1;
    }

    /// Makes a call; whether there is nothing left to do. Else it is due later.
    fn attempt(&self, job: &mut Job) -> bool {
        let Some(engine) = self.engine.upgrade() else { return true };
        if let Until::Answered(grant) = &job.until
            && !engine.is_grant_unanswered(grant)
        {
            return true;
        }
        job.attempts += 1;
        let called = match &job.until {
            Until::Answered(grant) => {
                let mut begin = || engine.begin_call_about_grant(grant);
                self.caller.call(job.remote, job.procedure, &job.arguments, Some(&mut begin))
            }
            _ => self.caller.call(job.remote, job.procedure, &job.arguments, None),
        };
        let is_done = match (called, &mut job.until) {
            (Ok(result), Until::Answered(grant)) => engine.answer_grant(grant, &result).is_ok(),
            (Ok(_), _) => true,
            (Err(error), until) => {
                tracing::debug!("{} did not answer: {error}", job.remote.to);
                match until {
                    Until::Answered(_) => false,
                    Until::Attempts(left) => {
                        *left -= 1;
                        *left == 0
                    }
                    Until::Time(end) => Instant::now() >= *end,
                }
            }
        };
        if matches!(job.until, Until::Time(_)) {
            job.remote.transport = match job.remote.transport {
                Transport::Udp => Transport::Tcp,
                Transport::Tcp => Transport::Udp,
            };
        }
        job.due = Instant::now() + job.pause;
        job.pause = (2 * job.pause).min(PAUSE_MAX);
        is_done
    }
}

#[cfg(test)]
mod tests;
