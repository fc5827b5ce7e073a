//! Starting and stopping.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_engine::CallbackSender;
use steadfast_sys::scheduling;

use crate::callbacks::Sender;
use crate::datagram::DatagramSocket;
use crate::listen;
use crate::pool::Pool;
use crate::seat::Seat;
use crate::shared::reply_log::{ReplyLog, ServerLink};
use crate::shared::{Phase, Shared};
use crate::statistics::{OperationStatistics, Statistics};
use crate::worker;
use crate::{Observer, ServerOptions, Service, StartError};

/// How often the end of calls under way is looked for when stopping.
const POLL: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_secs(1);
/// Time for threads to end once nothing is left to do.
const JOIN_TIME: Duration = Duration::from_secs(2);

type Hook = Box<dyn Fn() + Send>;

/// A running server. Dropping it without [`Server::shutdown`] stops it without grace.
pub struct Server {
    shared: Arc<Shared>,
    pools: Vec<Arc<Pool>>,
    addresses: Vec<SocketAddr>,
    timer: Arc<Timer>,
    timer_thread: Option<JoinHandle<()>>,
    is_stopped: bool,
}

#[derive(Default)]
struct Timer {
    hooks: Mutex<Vec<Hook>>,
    stopping: Mutex<bool>,
    wake: Condvar,
}

impl Server {
    /// Opens all sockets and starts all threads.
    ///
    /// # Errors
    /// If an address cannot be listened on, with the address and what to do; if threads or
    /// descriptors cannot be had. Nothing is left running then.
    pub fn start(options: ServerOptions, service: Arc<dyn Service>) -> Result<Self, StartError> {
        Self::start_with_log(options, service, None)
    }

    /// As [`Server::start`], with the intent log that the service's storage has its changes in.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with_log(
        options: ServerOptions,
        service: Arc<dyn Service>,
        intent_log: Option<Arc<dyn ReplyLog>>,
    ) -> Result<Self, StartError> {
        let resource = |what| move |source| StartError::Resource { what, source };
        if options.listen.is_empty() && options.extra_listen.is_empty() {
            return Err(StartError::NoAddress);
        }
        let cpus_by_pool = pool_cpus(&options).map_err(resource("find out about CPUs"))?;
        let seats_by_pool: Vec<usize> = cpus_by_pool
            .iter()
            .map(|cpus| match options.seats_per_pool {
                0 => cpus.len().max(1),
                seats => seats,
            })
            .collect();
        let seat_count: usize = seats_by_pool.iter().sum();
        let datagram_count = if options.udp { seat_count } else { 0 };
        let mut addresses = Vec::new();
        let mut listeners: Vec<Vec<Arc<OwnedFd>>> = vec![Vec::new(); cpus_by_pool.len()];
        let mut datagrams: Vec<Vec<Arc<DatagramSocket>>> = vec![Vec::new(); seat_count];
        for address in options.listen.iter().chain(&options.extra_listen) {
            let congestion_control = options.congestion_control.as_deref();
            let streams = cpus_by_pool.len();
            let listening = listen::listen(*address, streams, datagram_count, congestion_control)?;
            addresses.push(listening.address);
            for (pool, listener) in listeners.iter_mut().zip(listening.streams) {
                pool.push(Arc::new(listener));
            }
            for (seat, socket) in datagrams.iter_mut().zip(listening.datagrams) {
                seat.push(Arc::new(DatagramSocket { socket, local: listening.address }));
            }
        }
        if options.congestion_control.is_none() {
            listen::tell_of_pacing();
        }
        let shared = Arc::new(Shared::new(options, service, intent_log));
        let connections_max = shared.options.connections_max.div_ceil(cpus_by_pool.len().max(1));
        let mut datagrams = datagrams.into_iter();
        let mut pools = Vec::new();
        for (index, ((cpus, seats), listeners)) in
            cpus_by_pool.into_iter().zip(seats_by_pool).zip(listeners).enumerate()
        {
            let seats = (0..seats)
                .map(|seat| {
                    Seat::new(seat, listeners.clone(), datagrams.next().unwrap_or_default())
                })
                .collect::<std::io::Result<Vec<_>>>()
                .map_err(resource("make an epoll descriptor"))?;
            let shared = Arc::clone(&shared);
            let pool = Pool::new(index, seats, cpus, connections_max, shared, worker::live);
            pools.push(Arc::new(pool));
        }
        let mut server = Self {
            shared,
            pools,
            addresses,
            timer: Arc::default(),
            timer_thread: None,
            is_stopped: false,
        };
        // From here on an error stops what has been started, by dropping the server.
        if let Some(intent_log) = &server.shared.intent_log {
            Arc::clone(intent_log)
                .start(ServerLink::of(&server.shared))
                .map_err(resource("start a thread"))?;
        }
        for pool in &server.pools {
            pool.start().map_err(resource("start a worker thread"))?;
        }
        server.timer_thread = Some(server.start_timer().map_err(resource("start a thread"))?);
        Ok(server)
    }

    fn start_timer(&self) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let timer = Arc::clone(&self.timer);
        std::thread::Builder::new().name("timer".to_owned()).spawn(move || {
            loop {
                {
                    let mut stopping = timer.stopping.lock();
                    let next = Instant::now() + TICK;
                    while !*stopping && !timer.wake.wait_until(&mut stopping, next).timed_out() {}
                    if *stopping {
                        return;
                    }
                }
                shared.service.tick(shared.now_ms());
                for hook in timer.hooks.lock().iter() {
                    hook();
                }
            }
        })
    }

    /// What sends callbacks by the connections of this server.
    pub fn callback_sender(&self) -> Arc<dyn CallbackSender> {
        Arc::new(Sender::new(&self.shared))
    }

    /// Has `hook` called about once a second, on a thread of its own. It must not call back
    /// into this method.
    pub fn every_second(&self, hook: Box<dyn Fn() + Send>) {
        self.timer.hooks.lock().push(hook);
    }

    /// Where the server listens: `listen`, then `extra_listen`, ports that the kernel chose
    /// filled in.
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// What has been done so far, over all workers.
    pub fn statistics(&self) -> Statistics {
        self.observer().statistics()
    }

    /// What became of the calls so far, by operation.
    pub fn operation_statistics(&self) -> Vec<OperationStatistics> {
        self.observer().operation_statistics()
    }

    /// Who reads statistics on a thread of his own.
    pub fn observer(&self) -> Observer {
        Observer { shared: Arc::clone(&self.shared), pools: self.pools.clone() }
    }

    /// Stops accepting and receiving, finishes the calls under way, flushes what is parked,
    /// sends all replies, and closes. What is not finished after `grace` is abandoned; then the
    /// result is `false`.
    pub fn shutdown(mut self, grace: Duration) -> bool {
        self.stop(grace)
    }

    fn stop(&mut self, grace: Duration) -> bool {
        if std::mem::replace(&mut self.is_stopped, true) {
            return true;
        }
        let deadline = Instant::now() + grace;
        self.set_phase(Phase::Draining);
        let is_finished = wait_until(deadline, || {
            // In the order in which work moves on, so that none slips through.
            self.pools.iter().all(|pool| pool.is_quiet())
                && self.shared.flushers.is_idle()
                && self.shared.intent_log.as_ref().is_none_or(|log| log.is_idle())
                && self.shared.waiting.connections.load(Ordering::SeqCst) == 0
        });
        self.set_phase(Phase::Stopped);
        *self.timer.stopping.lock() = true;
        self.timer.wake.notify_all();
        let mut threads = self.shared.flushers.stop();
        threads.extend(self.pools.iter().flat_map(|pool| pool.take_threads()));
        threads.extend(self.timer_thread.take());
        // A thread that hangs in storage cannot be ended; the process's end is its end.
        let have_ended =
            wait_until(Instant::now() + JOIN_TIME, || threads.iter().all(JoinHandle::is_finished));
        for thread in threads {
            if thread.is_finished() {
                // A panic of a thread has been reported when it happened.
                let _ = thread.join();
            }
        }
        is_finished && have_ended
    }

    fn set_phase(&self, phase: Phase) {
        self.shared.set_phase(phase);
        for pool in &self.pools {
            pool.wake_all();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

fn wait_until(deadline: Instant, is_done: impl Fn() -> bool) -> bool {
    loop {
        if is_done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// The CPUs of each pool, as configured or as the machine is built.
fn pool_cpus(options: &ServerOptions) -> std::io::Result<Vec<Vec<usize>>> {
    let nodes = scheduling::numa_nodes()?;
    let count = match (options.pools, options.pool_cpus.len()) {
        (0, 0) => nodes.len(),
        (0, configured) => configured,
        (pools, _) => pools,
    };
    let all: Vec<usize> = nodes.concat();
    Ok((0..count)
        .map(|index| match options.pool_cpus.get(index) {
            Some(cpus) if !cpus.is_empty() => cpus.clone(),
            _ if count == nodes.len() => nodes.get(index).unwrap_or(&all).clone(),
            _ => all.clone(),
        })
        .collect())
}
