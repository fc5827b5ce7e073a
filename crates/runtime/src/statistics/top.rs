//! Who calls what, for who looks at it now: calls by operation, client, user, share and file.
//!
//! Nothing is counted unless somebody looks: a batch of calls costs one load then. While somebody looks, each
//! thread counts in tables of its own ([`TopCounters`]), under a lock that only who looks takes else, and holds
//! for as long as it takes to make empty tables and put them into their place. What is counted is a *window*: from one look to
//! the next.
//!
//! Memory: all threads together have as many rows as [`ROWS_MAX`] says, whatever clients do. Calls that find no
//! room are counted as others. Tables go when nobody has looked for a while.

use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use steadfast_engine::{CallFacts, CallSubject, CompoundOperation, OperationId, ShareId};
use steadfast_vfs::StorageHandle;

/// Rows of all threads' tables by operation, client, user, share and file: a busy server's, with the same row in
/// the tables of several threads. All together take 25 MiB at most.
const ROWS_MAX: [usize; 5] = [8_192, 32_768, 32_768, 65_536, 32_768];
/// Clients that are looked into at the same time.
pub const TOP_FOCUS_MAX: usize = 4;

/// What calls are counted by in one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopRow {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls that repeat one that the server knows: they were not executed again. Those that got no answer of their
    /// own, as the first of them is being executed, are counted here only.
    pub retransmissions: u64,
    /// Of all answered calls: from the end of the receive until the reply was handed to the socket.
    pub latency_ns: u64,
    /// Of the slowest.
    pub latency_max_ns: u64,
}

impl TopRow {
    /// Of a call on average, in ns.
    pub fn mean_ns(&self) -> u64 {
        self.latency_ns.checked_div(self.calls).unwrap_or(0)
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.retransmissions += other.retransmissions;
        self.latency_ns += other.latency_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
    }
}

/// A row of the table by operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopOperation {
    /// A procedure, COMPOUND among them.
    Procedure(OperationId),
    /// An operation of COMPOUNDs. Its latency and its failure are those of its COMPOUND.
    InCompound(CompoundOperation),
}

/// Rows by something.
#[derive(Clone, Debug)]
pub struct TopTable<K> {
    rows: HashMap<K, TopRow>,
    others: TopRow,
}

impl<K> Default for TopTable<K> {
    fn default() -> Self {
        Self { rows: HashMap::new(), others: TopRow::default() }
    }
}

impl<K: Copy + Eq + Hash> TopTable<K> {
    /// All rows, in no order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&K, &TopRow)> {
        self.rows.iter()
    }

    /// Calls for which there was no room.
    pub fn others(&self) -> &TopRow {
        &self.others
    }

    /// Empty, with room for as many rows as this one has.
    fn successor(&self) -> Self {
        Self { rows: HashMap::with_capacity(self.rows.len()), others: TopRow::default() }
    }

    fn note(&mut self, key: K, call: &TopRow, room: &AtomicUsize) {
        if let Some(row) = self.rows.get_mut(&key) {
            row.add(call);
        } else if take_one(room) {
            self.rows.insert(key, *call);
        } else {
            self.others.add(call);
        }
    }

    fn absorb(&mut self, other: Self) {
        self.others.add(&other.others);
        let (mut most, few) = if other.rows.len() > self.rows.len() {
            (other.rows, std::mem::take(&mut self.rows))
        } else {
            (std::mem::take(&mut self.rows), other.rows)
        };
        for (key, row) in few {
            most.entry(key).or_default().add(&row);
        }
        self.rows = most;
    }
}

/// Takes room for a row, if there is some.
fn take_one(room: &AtomicUsize) -> bool {
    room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Calls by everything that they are counted by.
#[derive(Clone, Debug, Default)]
pub struct TopTables {
    /// All calls.
    pub total: TopRow,
    /// By operation.
    pub operations: TopTable<TopOperation>,
    /// By address, without a port.
    pub clients: TopTable<IpAddr>,
    /// By the user that a call acts as, after squashing.
    pub users: TopTable<u32>,
    /// By share.
    pub shares: TopTable<ShareId>,
    /// By file, or the last of several that a call is about.
    pub files: TopTable<(ShareId, StorageHandle)>,
}

impl TopTables {
    fn note(&mut self, client: IpAddr, call: &AnsweredCall<'_>, room: &TopRoom) {
        let row = &call.row;
        let [operations, clients, users, shares, files] = &room.rows;
        self.total.add(row);
        let CallFacts { operation, operations: parts, .. } = *call.facts;
        self.operations.note(TopOperation::Procedure(operation), row, operations);
        let mut seen = parts.iter();
        while let Some(part) = seen.next() {
            // Once, however often a COMPOUND has it: the last of them.
            if seen.clone().all(|later| later != part) {
                self.operations.note(TopOperation::InCompound(part), row, operations);
            }
        }
        self.clients.note(client, row, clients);
        let CallSubject { share, file, uid } = *call.subject;
        if let Some(uid) = uid {
            self.users.note(uid, row, users);
        }
        if let Some(share) = share {
            self.shares.note(share, row, shares);
            if let Some(file) = file {
                self.files.note((share, file), row, files);
            }
        }
    }

    fn absorb(&mut self, other: Self) {
        self.total.add(&other.total);
        self.operations.absorb(other.operations);
        self.clients.absorb(other.clients);
        self.users.absorb(other.users);
        self.shares.absorb(other.shares);
        self.files.absorb(other.files);
    }

    /// Empty, with room for as many rows as these have: the next window is like the last one.
    fn successor(&self) -> Self {
        Self {
            total: TopRow::default(),
            operations: self.operations.successor(),
            clients: self.clients.successor(),
            users: self.users.successor(),
            shares: self.shares.successor(),
            files: self.files.successor(),
        }
    }

    fn row_counts(&self) -> [usize; 5] {
        [
            self.operations.rows.len(),
            self.clients.rows.len(),
            self.users.rows.len(),
            self.shares.rows.len(),
            self.files.rows.len(),
        ]
    }
}

/// What was counted from one look to the next.
#[derive(Clone, Debug, Default)]
pub struct TopWindow {
    /// Of all clients.
    pub all: TopTables,
    /// Of each client that was looked into.
    pub focused: Vec<(IpAddr, TopTables)>,
}

impl TopWindow {
    /// The next one, empty, which these clients are looked into in.
    fn successor(&self, focus: &[IpAddr]) -> Self {
        let focused = focus.iter().take(TOP_FOCUS_MAX).map(|client| {
            let before = self.focused.iter().find(|(one, _)| one == client);
            (*client, before.map(|(_, tables)| tables.successor()).unwrap_or_default())
        });
        Self { all: self.all.successor(), focused: focused.collect() }
    }

    fn absorb(&mut self, other: Self) {
        self.all.absorb(other.all);
        for (client, tables) in other.focused {
            match self.focused.iter_mut().find(|(one, _)| *one == client) {
                Some((_, own)) => own.absorb(tables),
                None => self.focused.push((client, tables)),
            }
        }
    }
}

/// What all threads have in common: rows that they may still make, and what they count for whom.
#[derive(Debug)]
pub(crate) struct TopRoom {
    /// By operation, client, user, share and file.
    rows: [AtomicUsize; 5],
    look: Mutex<Look>,
}

/// The last look: what a thread that starts later counts.
#[derive(Debug, Default)]
struct Look {
    /// Until when calls are counted, by the stamps' clock.
    until_ns: u64,
    /// Clients that are looked into.
    focus: Vec<IpAddr>,
}

impl Default for TopRoom {
    fn default() -> Self {
        Self { rows: ROWS_MAX.map(AtomicUsize::new), look: Mutex::default() }
    }
}

impl TopRoom {
    fn give_back(&self, window: &TopWindow) {
        let focused = window.focused.iter().map(|(_, tables)| tables);
        for tables in focused.chain([&window.all]) {
            for (room, count) in self.rows.iter().zip(tables.row_counts()) {
                room.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// A call whose reply went out, or one that repeats another and gets none.
#[derive(Clone, Copy, Debug)]
struct AnsweredCall<'c> {
    facts: &'c CallFacts,
    subject: &'c CallSubject,
    row: TopRow,
}

/// What one thread counts.
#[derive(Debug, Default)]
pub(crate) struct TopCounters {
    /// Until when, by the stamps' clock; 0 if nobody looks.
    until_ns: AtomicU64,
    window: Mutex<Option<Box<TopWindow>>>,
}

impl TopCounters {
    /// Counts calls of one moment. `client` is asked only if somebody looks.
    #[inline]
    pub(crate) fn begin<'t>(&'t self, now_ns: u64, room: &'t TopRoom) -> Option<TopNoting<'t>> {
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        if until_ns == 0 { None } else { self.begin_counting(now_ns, until_ns, room) }
    }

    #[cold]
    fn begin_counting<'t>(
        &'t self,
        now_ns: u64,
        until_ns: u64,
        room: &'t TopRoom,
    ) -> Option<TopNoting<'t>> {
        let mut window = self.window.lock();
        if now_ns < until_ns {
            return Some(TopNoting { window, room });
        }
        // Somebody may have looked meanwhile.
        if now_ns < self.until_ns.load(Ordering::Relaxed) {
            return Some(TopNoting { window, room });
        }
        self.until_ns.store(0, Ordering::Relaxed);
        let before = window.take();
        // Nothing is freed under the lock.
        drop(window);
        if let Some(before) = before {
            room.give_back(&before);
        }
        None
    }

    /// Has a thread that starts count as others do. To be called once [`take`] finds it: then either that one
    /// begins its window, or what is read here is not older.
    pub(crate) fn join(&self, now_ns: u64, room: &TopRoom) {
        let look = room.look.lock();
        // Nobody has looked, or not for long.
        if look.until_ns <= now_ns {
            return;
        }
        let mut window = self.window.lock();
        if window.is_none() {
            *window = Some(Box::new(TopWindow::default().successor(&look.focus)));
            self.until_ns.store(look.until_ns, Ordering::Relaxed);
        }
    }

    fn successor(&self, focus: &[IpAddr]) -> TopWindow {
        self.window.lock().as_deref().unwrap_or(&TopWindow::default()).successor(focus)
    }

    fn put(&self, next: Box<TopWindow>, until_ns: u64, room: &TopRoom) -> TopWindow {
        // The lock is over before anything is freed.
        let before = {
            let mut window = self.window.lock();
            self.until_ns.store(until_ns, Ordering::Relaxed);
            window.replace(next)
        };
        let before = before.map(|before| *before).unwrap_or_default();
        room.give_back(&before);
        before
    }
}

/// Counts calls while nobody takes the tables away.
pub(crate) struct TopNoting<'t> {
    window: parking_lot::MutexGuard<'t, Option<Box<TopWindow>>>,
    room: &'t TopRoom,
}

impl TopNoting<'_> {
    /// `latency_ns`: `None` if it has no reply.
    pub(crate) fn note(
        &mut self,
        client: IpAddr,
        facts: &CallFacts,
        subject: &CallSubject,
        latency_ns: Option<u64>,
    ) {
        let Some(window) = self.window.as_deref_mut() else { return };
        let retransmissions = u64::from(facts.is_repeat);
        let row = match latency_ns {
            Some(latency_ns) => TopRow {
                calls: 1,
                errors: u64::from(facts.is_error),
                retransmissions,
                latency_ns,
                latency_max_ns: latency_ns,
            },
            None => TopRow { retransmissions, ..TopRow::default() },
        };
        let call = AnsweredCall { facts, subject, row };
        let client = client.to_canonical();
        window.all.note(client, &call, self.room);
        if let Some((_, tables)) = window.focused.iter_mut().find(|(one, _)| *one == client) {
            tables.note(client, &call, self.room);
        }
    }
}

/// Ends a window and begins the next one, which is counted until `until_ns` if nobody looks earlier, also by
/// itself for each of these clients.
///
/// The counters are asked for when it is noted what threads count that are not among them yet.
pub(crate) fn take<I>(
    counters: impl FnOnce() -> I,
    focus: &[IpAddr],
    until_ns: u64,
    room: &TopRoom,
) -> TopWindow
where
    I: IntoIterator<Item: AsTop>,
{
    *room.look.lock() = Look { until_ns, focus: focus.to_vec() };
    let mut sum = TopWindow::default();
    for one in counters() {
        let one = one.top();
        sum.absorb(one.put(Box::new(one.successor(focus)), until_ns, room));
    }
    sum
}

/// What has a thread's counters.
pub(crate) trait AsTop {
    /// These.
    fn top(&self) -> &TopCounters;
}

impl AsTop for &TopCounters {
    fn top(&self) -> &TopCounters {
        self
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings.

    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    fn subject(share: u64, file: u8, uid: u32) -> CallSubject {
        let file = StorageHandle::new(&[file; 8]);
        CallSubject { share: Some(ShareId(share)), file, uid: Some(uid) }
    }

    fn facts(is_error: bool, is_repeat: bool) -> CallFacts {
        CallFacts { is_error, is_repeat, ..CallFacts::default() }
    }

    #[test]
    fn nothing_is_counted_unless_somebody_looks_and_tables_go_when_nobody_does() {
        let (counters, room) = (TopCounters::default(), TopRoom::default());
        assert!(counters.begin(5, &room).is_none());
        let first = take(|| [&counters], &[], 100, &room);
        assert_eq!(first.all.total.calls, 0);
        counters.begin(6, &room).unwrap().note(
            client(1),
            &facts(true, false),
            &subject(1, 1, 7),
            Some(30),
        );
        counters.begin(6, &room).unwrap().note(
            client(1),
            &facts(false, true),
            &CallSubject::default(),
            None,
        );
        assert_eq!(room.rows[1].load(Ordering::Relaxed), ROWS_MAX[1] - 1);
        let second = take(|| [&counters], &[], 100, &room);
        let expected =
            TopRow { calls: 1, errors: 1, retransmissions: 1, latency_ns: 30, latency_max_ns: 30 };
        assert_eq!(second.all.clients.rows().collect::<Vec<_>>(), [(&client(1), &expected)]);
        assert_eq!(second.all.users.rows().len(), 1);
        assert_eq!(expected.mean_ns(), 30, "what got no answer has no latency");
        assert_eq!(room.rows[1].load(Ordering::Relaxed), ROWS_MAX[1], "it is given back");
        // Nobody has looked.
        counters.begin(7, &room).unwrap().note(
            client(1),
            &facts(false, false),
            &subject(1, 1, 7),
            Some(1),
        );
        assert!(counters.begin(100, &room).is_none());
        assert!(counters.window.lock().is_none());
        assert_eq!(room.rows[4].load(Ordering::Relaxed), ROWS_MAX[4]);
    }

    #[test]
    fn a_thread_that_starts_while_somebody_looks_counts_from_its_first_call_on() {
        let (old, new, room) = (TopCounters::default(), TopCounters::default(), TopRoom::default());
        new.join(1, &room);
        assert!(new.begin(1, &room).is_none(), "nobody has looked");
        take(|| [&old], &[client(1)], 100, &room);
        new.join(100, &room);
        assert!(new.window.lock().is_none(), "the last look is over");
        new.join(5, &room);
        let note = |of: &TopCounters| {
            let mut noting = of.begin(6, &room).unwrap();
            noting.note(client(1), &facts(false, false), &subject(1, 1, 7), Some(30));
        };
        note(&new);
        // Whoever is known to the look already keeps what it has counted.
        new.join(7, &room);
        let window = take(|| [&old, &new], &[], 100, &room);
        assert_eq!((window.all.total.calls, window.focused[0].1.total.calls), (1, 1));
    }

    /// The owner of counters finds that nobody has looked for too long, while somebody looks again.
    #[test]
    fn a_look_that_comes_late_is_not_undone() {
        let (counters, room) = (TopCounters::default(), TopRoom::default());
        take(|| [&counters], &[], 100, &room);
        take(|| [&counters], &[], 300, &room);
        // It has read the time of before.
        let noting = counters.begin_counting(150, 100, &room);
        noting.unwrap().note(client(1), &facts(false, false), &subject(1, 1, 7), Some(1));
        assert_eq!(take(|| [&counters], &[], 300, &room).all.total.calls, 1);
    }

    #[test]
    fn rows_are_bounded_over_all_threads() {
        let (threads, room) =
            ([TopCounters::default(), TopCounters::default()], TopRoom::default());
        take(|| &threads, &[client(3)], u64::MAX, &room);
        let calls = ROWS_MAX[1] as u32 + 1000;
        for number in 0..calls {
            let mut noting = threads[number as usize % 2].begin(1, &room).unwrap();
            noting.note(client(number), &facts(false, false), &subject(1, 1, number), Some(1));
        }
        let window = take(|| &threads, &[], u64::MAX, &room);
        // The client that is looked into has a row in tables of its own.
        assert_eq!(window.all.clients.rows().len(), ROWS_MAX[1] - 1);
        assert_eq!(window.all.clients.others().calls, 1001);
        assert_eq!(window.all.total.calls, u64::from(calls));
        assert_eq!(window.focused.len(), 1);
        assert_eq!(window.focused[0].1.total.calls, 1);
        assert_eq!(window.all.shares.rows().next(), Some((&ShareId(1), &window.all.total)));
    }

    #[test]
    fn an_operation_of_a_compound_counts_once_in_it() {
        let (counters, room) = (TopCounters::default(), TopRoom::default());
        take(|| [&counters], &[], 100, &room);
        // Of the same number twice, and another one.
        let operations = steadfast_engine::CompoundOperations::from_word(0x0005_0305);
        let facts = CallFacts { operations, ..CallFacts::default() };
        counters.begin(1, &room).unwrap().note(client(1), &facts, &subject(1, 1, 1), Some(9));
        let window = take(|| [&counters], &[], 100, &room);
        let rows = window.all.operations.rows();
        let parts: Vec<_> =
            rows.filter(|(key, _)| matches!(key, TopOperation::InCompound(_))).collect();
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(|(_, row)| row.calls == 1));
    }

    proptest! {
        /// No call is lost or counted twice, whichever threads count and however often somebody looks.
        #[test]
        fn windows_sum_to_the_calls(
            calls in proptest::collection::vec((0..3_usize, 0..5_u32, any::<bool>()), 0..200),
        ) {
            let threads: [TopCounters; 3] = Default::default();
            let room = TopRoom::default();
            let focus = [client(2)];
            take(|| &threads, &focus, u64::MAX, &room);
            let mut sum = TopWindow::default();
            for (thread, number, is_looked_at) in &calls {
                let mut noting = threads[*thread].begin(1, &room).unwrap();
                noting.note(client(*number), &facts(false, false), &subject(1, 2, *number), Some(3));
                drop(noting);
                if *is_looked_at {
                    sum.absorb(take(|| &threads, &focus, u64::MAX, &room));
                }
            }
            sum.absorb(take(|| &threads, &focus, u64::MAX, &room));
            for number in 0..5 {
                let expected = calls.iter().filter(|(_, one, _)| *one == number).count() as u64;
                let row = sum.all.clients.rows.get(&client(number)).copied().unwrap_or_default();
                prop_assert_eq!((row.calls, row.latency_ns), (expected, 3 * expected));
                if number == 2 {
                    prop_assert_eq!(sum.focused[0].1.total.calls, expected);
                }
            }
            prop_assert_eq!(sum.all.total.calls, calls.len() as u64);
        }
    }
}
