//! Locks at the server (NLM): what programs ask for with fcntl(2) and flock(2).
//!
//! [`Locks::set`] takes a request and returns at once. It is a [`Task`] from then on, which calls the server by one of a
//! few threads of its own, and is *parked* in between: while another owner has the lock, the server is in its grace
//! period, or cannot be reached. So a program that waits for a lock costs no thread. Whoever waits has a [`Ticket`],
//! which is answered once: by the task, or by the scheduler when a signal ends the wait. The task goes on then, and
//! brings the server back to what the table says.
//!
//! Each owner of a file has a queue, and one task of it at a time talks to the server ([`queue`]). So the table
//! ([`table`]) is what the server has, except for what is in doubt: a call that was not answered, or that was sent more
//! than once, may be executed at any time. The owner keeps its number then, and a while later the server is told once
//! more what the table says. What may be locked is in the [`ledger`] before the server is asked, for whoever finds this
//! process dead.

pub(crate) mod ledger;
mod lockd;
mod queue;
mod reclaim;
mod scheduler;
pub(crate) mod table;
mod task;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use steadfast_client::nlm::{NlmStat, Tested};
use steadfast_client::{ClientError, FileHandle, Identity};

use crate::document::LocksStatus;
use crate::errors::Errno;
use crate::nfs4::{Holder4, Holding};
use crate::node::Node;
use crate::options::Options;
use crate::pool::Pool;
use crate::server::Server;
use crate::transport::Patience;
use lockd::{Lockd, Remote, Unanswered};
use table::{Held, Kind, Owner, Span, Table};
pub(crate) use task::{Task, Ticket, What};

/// Threads that call the lock manager.
const CALLERS: usize = 16;
/// How long the server may take to free what is left when a mount ends.
const LAST_WORD: Duration = Duration::from_secs(2);

/// An owner of locks of a file. It is forgotten when it has none, nothing is asked for it, and nothing is in doubt.
#[derive(Debug)]
struct OwnerOfFile {
    remote: Remote,
    /// Its place in the ledger.
    place: Option<usize>,
    /// The process that asked last, for whoever asks who has a lock.
    pid: u32,
    /// The open files by which it has asked.
    files: Vec<u64>,
    /// What is asked for it, in order.
    queue: VecDeque<Task>,
    /// A task talks to the server for it.
    is_busy: bool,
    /// The queue goes on then, and not before: its first task waits for the server, or for data.
    stalled: Option<Instant>,
    doubt: Option<Doubt>,
    reclaim: Option<Reclaim>,
    /// Locks that have to be reclaimed may have been taken again in another way: that the server has them does not
    /// tell that it had them all the time.
    is_remade: bool,
}

/// Where the server may have what the table has not, or may not have what the table has.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    span: Span,
    since: Instant,
    /// When the server is told what the table says.
    due: Instant,
}

/// Locks of an owner are to be reclaimed.
#[derive(Clone, Copy, Debug)]
struct Reclaim {
    /// The server has restarted; `None`: nobody knows.
    has_restarted: Option<bool>,
    since: Instant,
    due: Instant,
}

/// A file with locks, or for which somebody asks.
#[derive(Debug)]
struct LockedFile {
    node: Arc<Node>,
    table: Table,
    /// Ranges that were locked before the connection was made again, and are not reclaimed yet. The kinds are the
    /// table's.
    unsure: Table,
    owners: HashMap<Owner, OwnerOfFile>,
}

#[derive(Debug, Default)]
struct State {
    /// By the number of the node.
    files: HashMap<u64, LockedFile>,
    parked: Vec<Parked>,
    /// Those that are not answered, as far as the scheduler knows.
    tickets: Vec<Arc<Ticket>>,
    next_number: u32,
    /// How often the connection was made again, as far as locks of before are marked as unsure.
    generation: u64,
    /// Nobody has looked yet whether the server has restarted.
    is_unjudged: bool,
    /// Owners who are forgotten, and may have locks at the server: it refuses to free them.
    given_up: usize,
    is_closed: bool,
}

/// Something that is done later.
#[derive(Debug)]
struct Parked {
    due: Instant,
    what: Later,
}

#[derive(Debug)]
enum Later {
    /// A request for a lock asks again.
    Lock {
        /// It waits for another owner of this mount.
        is_local: bool,
        task: Task,
    },
    /// The owner of a file with this number is looked at.
    Look(u64, Owner),
}

/// The locks of a mount.
#[derive(Debug)]
pub(crate) struct Locks {
    lockd: Lockd,
    calls: Pool,
    /// Looks after the connection, with one thread: those that call may all wait for a server that has moved.
    looks: Pool,
    is_looking: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Open files by which locks were taken that the server has lost.
    lost: RwLock<HashSet<u64>>,
    /// How many locks were lost, ever.
    losses: AtomicUsize,
    soft_after: Option<Duration>,
}

impl Locks {
    /// Starts the scheduler. Nothing is asked of the server before the first lock.
    pub(crate) fn start(
        server: &Arc<Server>,
        root: &FileHandle,
        options: &Options,
    ) -> io::Result<Arc<Self>> {
        let lockd = Lockd::new(Arc::clone(server), root.clone(), options)?;
        let mut first = [0; 4];
        steadfast_sys::process::random_bytes(&mut first)?;
        // Some servers compare owners by their numbers alone, also with those of the kernel's client, which begin at 1.
        let next_number = u32::from_be_bytes(first) & 0x3fff_ffff | 0x4000_0000;
        let locks = Arc::new(Self {
            lockd,
            calls: Pool::new(CALLERS),
            looks: Pool::new(1),
            is_looking: AtomicBool::new(false),
            state: Mutex::new(State { next_number, ..State::default() }),
            changed: Condvar::new(),
            lost: RwLock::default(),
            losses: AtomicUsize::new(0),
            soft_after: server.soft_after,
        });
        if let Some(client) = locks.lockd.nfs4() {
            client.hold_locks_of(Arc::new(Reporter(Arc::downgrade(&locks))));
        }
        let scheduled = Arc::clone(&locks);
        std::thread::Builder::new()
            .name("nfs-locks".to_owned())
            .spawn(move || scheduled.schedule())?;
        Ok(locks)
    }

    /// What all owners hold.
    fn holdings(&self) -> Vec<Holding> {
        let state = self.state.lock();
        let mut holdings = Vec::new();
        for file in state.files.values() {
            for (owner, of) in &file.owners {
                let range = |held: Held| {
                    let (offset, length) = held.span.as_nfs4();
                    (offset, length, held.kind == Kind::Write)
                };
                let ranges: Vec<_> = file.table.of(*owner).map(range).collect();
                if !ranges.is_empty() {
                    let Remote { identity, handle, number } = of.remote.clone();
                    let handle = FileHandle::clone(&handle);
                    holdings.push(Holding { identity, handle, number, ranges });
                }
            }
        }
        holdings
    }

    /// The server has lost all locks of an owner.
    fn lose_owner(&self, number: u32) {
        let mut state = self.state.lock();
        for file in state.files.values_mut() {
            let found = file.owners.iter().find(|(_, of)| of.remote.number == number);
            let Some((owner, of)) = found else { continue };
            let lost: Vec<Held> = file.table.of(*owner).collect();
            if lost.is_empty() {
                continue;
            }
            self.note_lost(&file.node, of, &lost);
            let owner = *owner;
            for held in lost {
                file.table.set(owner, held.span, None);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What is noted for whoever finds this process dead.
    pub(crate) fn ledger(&self) -> io::Result<std::fs::File> {
        self.lockd.ledger.lock().file()
    }

    /// Takes a request; its ticket is answered.
    pub(crate) fn set(self: &Arc<Self>, task: Task) {
        let ticket = Arc::clone(&task.ticket);
        {
            let mut state = self.state.lock();
            if !state.is_closed {
                state.tickets.push(ticket);
                self.enqueue(&mut state, task);
                drop(state);
                self.changed.notify_all();
                return;
            }
        }
        ticket.finish(Err(Errno::EIO));
    }

    /// Whether an owner has locks of a file, or a task is about to get some.
    pub(crate) fn has(&self, node: &Node, owner: Owner) -> bool {
        let state = self.state.lock();
        state.files.get(&node.number).is_some_and(|file| file.owners.contains_key(&owner))
    }

    /// The owners that have asked for locks by an open file that is closed now, and by no other one.
    pub(crate) fn release(&self, node: &Node, file: u64) -> Vec<Owner> {
        if self.losses.load(Ordering::Relaxed) > 0 {
            self.lost.write().remove(&file);
        }
        let mut state = self.state.lock();
        let Some(locked) = state.files.get_mut(&node.number) else { return Vec::new() };
        let left = locked.owners.iter_mut().filter_map(|(owner, of)| {
            let count = of.files.len();
            of.files.retain(|of| *of != file);
            (count > 0 && of.files.is_empty()).then_some(*owner)
        });
        left.collect()
    }

    /// Whether a lock was lost that was taken by this open file.
    pub(crate) fn is_lost(&self, file: u64) -> bool {
        self.losses.load(Ordering::Relaxed) > 0 && self.lost.read().contains(&file)
    }

    /// The lock that keeps this one out, with the number of the process that has it, or 0 if that is not one of this
    /// host.
    ///
    /// # Errors
    /// When nobody knows, or whoever asks is killed.
    pub(crate) fn test(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        wanted: Held,
        patience: Patience,
    ) -> Result<Option<(Held, u32)>, Errno> {
        let Held { owner, span, kind } = wanted;
        let remote = {
            let state = self.state.lock();
            let file = state.files.get(&node.number);
            if let Some(file) = file
                && let Some(held) = file.table.conflict(owner, span, kind)
            {
                return Ok(Some((held, file.owners.get(&held.owner).map_or(0, |of| of.pid))));
            }
            let known = file.and_then(|file| file.owners.get(&owner));
            let number = known.map_or(0, |of| of.remote.number);
            Remote { identity: identity.clone(), handle: node.handle(), number }
        };
        let since = Instant::now();
        loop {
            let told = match self.lockd.test(&remote, span, kind, patience) {
                Ok(told) => told,
                Err(Unanswered::InDoubt(ClientError::Closed)) => {
                    Tested::Other(NlmStat::DeniedGracePeriod)
                }
                Err(Unanswered::InDoubt(error)) => return Err(error.into()),
                Err(Unanswered::Refused(error)) => return Err(refused(&error)),
                Err(Unanswered::NotServed) => return Err(Errno::ENOLCK),
                Err(Unanswered::NotSent(_)) => Tested::Other(NlmStat::DeniedGracePeriod),
            };
            match told {
                Tested::Held(holder) => {
                    let last = match holder.length {
                        0 => table::LAST,
                        length => holder.offset.saturating_add(length - 1),
                    };
                    let span = Span::new(holder.offset, last).unwrap_or(span);
                    let kind = if holder.is_exclusive { Kind::Write } else { Kind::Read };
                    return Ok(Some((Held { owner: Owner(0), span, kind }, 0)));
                }
                Tested::Other(NlmStat::Granted) => return Ok(None),
                Tested::Other(NlmStat::DeniedGracePeriod) => {
                    let soft = self.soft_after.is_some_and(|after| since.elapsed() >= after);
                    if soft {
                        return Err(Errno::EIO);
                    }
                    if let Some(error) = patience.end(since) {
                        return Err(error.into());
                    }
                    std::thread::sleep(patience.nap());
                }
                Tested::Other(stat) => return Err(refusal(stat)),
            }
        }
    }

    /// How the locks are.
    pub(crate) fn told(&self) -> LocksStatus {
        let state = self.state.lock();
        let held = state.files.values().map(|file| file.table.count() as u64).sum();
        let waiting = state.parked.iter().filter(|parked| match &parked.what {
            Later::Lock { task, .. } => task.waits() && task.ticket.is_open(),
            Later::Look(..) => false,
        });
        let waiting = waiting.count() as u64;
        LocksStatus { held, waiting, lost: self.losses.load(Ordering::Relaxed) as u64 }
    }

    /// Frees everything, as far as the server answers soon; for the end of a mount.
    pub(crate) fn close(&self) {
        let (parked, tickets, files, given_up) = {
            let mut state = self.state.lock();
            state.is_closed = true;
            let files = std::mem::take(&mut state.files);
            let (parked, tickets) =
                (std::mem::take(&mut state.parked), std::mem::take(&mut state.tickets));
            (parked, tickets, files, state.given_up)
        };
        self.changed.notify_all();
        drop(parked);
        for ticket in tickets {
            ticket.finish(Err(Errno::EIO));
        }
        let until = Instant::now() + LAST_WORD;
        let mut left = given_up;
        for of in files.values().flat_map(|file| file.owners.values()) {
            // A call on its way may be executed after this one, and there is nobody then but who looks after the mount.
            let is_sure = !of.is_busy && of.doubt.is_none();
            let freed = self.lockd.unlock(&of.remote, Span::ALL, Some(until));
            let is_freed = matches!(freed.stat, Ok(stat) if stat != NlmStat::DeniedGracePeriod);
            if !is_freed || freed.is_repeated || !is_sure {
                left += 1;
            } else if let Some(place) = of.place {
                self.lockd.ledger.lock().clear(place);
            }
        }
        self.lockd.close();
        if left > 0 {
            tracing::warn!(
                owners = left,
                "unmounted, and the server may still have locks: whoever looks after the mount goes on freeing them"
            );
        } else {
            self.lockd.ledger.lock().remove();
        }
    }

    /// Notes that an owner has lost locks of a file: who uses its open files gets EIO.
    fn note_lost(&self, node: &Node, of: &OwnerOfFile, lost: &[Held]) {
        self.lost.write().extend(of.files.iter().copied());
        self.losses.fetch_add(lost.len(), Ordering::Relaxed);
        let (number, pid) = (node.number, of.pid);
        tracing::error!(
            file = number,
            pid,
            ranges = lost.len(),
            "the server has lost locks, and they cannot be taken again: reading and writing the file fails for those who had them"
        );
        node.drop_pages();
    }
}

/// Tells the session of NFSv4 what is locked.
#[derive(Debug)]
struct Reporter(Weak<Locks>);

impl Holder4 for Reporter {
    fn held(&self) -> Vec<Holding> {
        self.0.upgrade().map(|locks| locks.holdings()).unwrap_or_default()
    }

    fn lost(&self, number: u32) {
        if let Some(locks) = self.0.upgrade() {
            locks.lose_owner(number);
        }
    }
}

impl State {
    fn file(&mut self, node: &Arc<Node>) -> &mut LockedFile {
        self.files.entry(node.number).or_insert_with(|| LockedFile {
            node: Arc::clone(node),
            table: Table::default(),
            unsure: Table::default(),
            owners: HashMap::new(),
        })
    }

    fn owner(&mut self, (number, owner): (u64, Owner)) -> Option<&mut OwnerOfFile> {
        self.files.get_mut(&number)?.owners.get_mut(&owner)
    }

    fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = (number.wrapping_add(1) & 0x3fff_ffff) | 0x4000_0000;
        number
    }
}

/// What a program gets for a status that is neither "yes" nor "later".
fn refusal(stat: NlmStat) -> Errno {
    match stat {
        NlmStat::Denied | NlmStat::Blocked => Errno::EAGAIN,
        NlmStat::Deadlock => Errno::EDEADLK,
        NlmStat::ReadOnlyFs => Errno::EROFS,
        NlmStat::StaleHandle => Errno::ESTALE,
        NlmStat::TooBig => Errno::EOVERFLOW,
        _ => Errno::ENOLCK,
    }
}

/// What a program gets for a call that was not executed.
fn refused(error: &ClientError) -> Errno {
    match error {
        ClientError::Denied(_) => Errno::EACCES,
        error => {
            tracing::warn!(%error, "the server's lock manager does not execute calls");
            Errno::ENOLCK
        }
    }
}

#[cfg(test)]
mod tests;
