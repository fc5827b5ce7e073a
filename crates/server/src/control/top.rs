//! What is called now, by the control socket: windows of calls, and the first rows of one.
//!
//! However many clients, shares and files there are, only the rows that are asked for get names; the others are
//! numbers that are compared once.

use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_control::statistics::unix_time;
use steadfast_control::top::{
    COUNTS_FOR_S, ROWS_MAX, ROWS_USUAL, TopBy, TopFilter, TopLine, TopReport, TopSort, VERSION,
    WINDOW_LEAST_MS,
};
use steadfast_engine::{Engine, ShareId};
use steadfast_runtime::{
    Observer, TOP_FOCUS_MAX, TopOperation, TopRow, TopTable, TopTables, TopWindow,
};
use steadfast_vfs::StorageHandle;

use super::clients::hexadecimal;
use crate::written_name::written_path;

/// For so long after a question the server counts.
const COUNTS_FOR: Duration = Duration::from_secs(COUNTS_FOR_S);
/// The shortest window.
const WINDOW_LEAST: Duration = Duration::from_millis(WINDOW_LEAST_MS);
/// Files whose names are compared with a filter: each costs a system call.
const FILES_NAMED_MAX: usize = 1000;

/// The last window, and the one that is being counted.
#[derive(Default)]
pub(super) struct Windows(Mutex<Counting>);

#[derive(Default)]
struct Counting {
    /// When the window began that is being counted.
    begun: Option<Instant>,
    last: Option<Window>,
    /// Clients that are looked into, and when they were asked for last.
    focus: Vec<(IpAddr, Instant)>,
}

struct Window {
    length: Duration,
    counted: TopWindow,
}

impl Counting {
    /// Ends the window if it is long enough, or begins the first one. `take` gives what was counted since it was
    /// asked last, and is told who is looked into from now on.
    fn look(
        &mut self,
        client: Option<IpAddr>,
        now: Instant,
        take: impl FnOnce(&[IpAddr]) -> TopWindow,
    ) {
        let is_new = client.is_some_and(|client| self.focus_on(client, now));
        let age = self.begun.map(|begun| now.saturating_duration_since(begun));
        if age.is_some_and(|age| age < WINDOW_LEAST) && !is_new {
            return;
        }
        self.focus.retain(|(_, asked)| now.saturating_duration_since(*asked) < COUNTS_FOR);
        let focus: Vec<IpAddr> = self.focus.iter().map(|(client, _)| *client).collect();
        let counted = take(&focus);
        // Nobody has asked for too long: what was counted ended at some time, and nobody knows when.
        let length = age.filter(|age| *age < COUNTS_FOR);
        self.last = length.map(|length| Window { length, counted });
        self.begun = Some(now);
    }

    /// Whether this client was not looked into before.
    fn focus_on(&mut self, client: IpAddr, now: Instant) -> bool {
        if let Some((_, asked)) = self.focus.iter_mut().find(|(one, _)| *one == client) {
            *asked = now;
            return false;
        }
        if self.focus.len() >= TOP_FOCUS_MAX {
            let oldest = self.focus.iter().enumerate().min_by_key(|(_, (_, asked))| *asked);
            if let Some((oldest, _)) = oldest {
                self.focus.swap_remove(oldest);
            }
        }
        self.focus.push((client, now));
        true
    }

    /// The last window's tables, of this client or of all.
    fn tables(&self, client: Option<IpAddr>) -> Option<(&TopTables, Duration)> {
        let window = self.last.as_ref()?;
        let tables = match client {
            None => &window.counted.all,
            Some(client) => {
                &window.counted.focused.iter().find(|(focused, _)| *focused == client)?.1
            }
        };
        Some((tables, window.length))
    }
}

/// What was asked for of what is called now.
pub(super) fn top(
    windows: &Windows,
    observer: &Observer,
    engine: &Engine,
    filter: &TopFilter,
) -> TopReport {
    let mut counting = windows.0.lock();
    let client = filter.client.map(|client| client.to_canonical());
    counting.look(client, Instant::now(), |focus| observer.take_top(focus, COUNTS_FOR));
    let mut report = TopReport {
        version: VERSION,
        taken_unix_ms: unix_time().as_millis() as u64,
        by: filter.by,
        client,
        ..TopReport::default()
    };
    if let Some((tables, length)) = counting.tables(client) {
        report.window_us = length.as_micros() as u64;
        report.total = line("all".to_owned(), &tables.total);
        fill(&mut report, tables, engine, filter);
    }
    report
}

fn fill(report: &mut TopReport, tables: &TopTables, engine: &Engine, filter: &TopFilter) {
    let plain = |key: &dyn Display| key.to_string();
    let told = match filter.by {
        TopBy::Operation => told(&tables.operations, filter, |operation| named(*operation)),
        TopBy::Client => told(&tables.clients, filter, |client| plain(client)),
        TopBy::User => told(&tables.users, filter, |uid| plain(uid)),
        TopBy::Share => told(&tables.shares, filter, |share| share_name(engine, *share)),
        TopBy::File => {
            told_files(&tables.files, filter, |(share, file)| file_name(engine, *share, file))
        }
    };
    (report.rows, report.row_count, report.others) = told;
}

fn named(operation: TopOperation) -> String {
    match operation {
        TopOperation::Procedure(operation) => {
            let name = operation.name();
            format!("{}{}/{}", name.protocol, name.version, name.procedure_name)
        }
        TopOperation::InCompound(operation) => format!("nfs4/{}", operation.name()),
    }
}

fn share_name(engine: &Engine, share: ShareId) -> String {
    match engine.exports().by_id(share) {
        Some(export) => written_path(Path::new(export.share.path.as_ref())),
        None => format!("share-{:016x}", share.0),
    }
}

/// Its path if its object is open, else its share and handle.
fn file_name(engine: &Engine, share: ShareId, file: &StorageHandle) -> String {
    super::slow::path_of(engine, share, file).unwrap_or_else(|| {
        format!("{}#{}", share_name(engine, share), hexadecimal(file.as_bytes()))
    })
}

fn line(name: String, row: &TopRow) -> TopLine {
    TopLine {
        name,
        calls: row.calls,
        errors: row.errors,
        retransmissions: row.retransmissions,
        latency_ns: row.latency_ns,
        latency_max_ns: row.latency_max_ns,
    }
}

/// What rows are sorted by, most first. Those with as much come by their calls, then by their keys, so that they
/// do not jump.
fn order<K: Copy + Ord>(sort: TopSort, key: &K, row: &TopRow) -> impl Ord + use<K> {
    let most = match sort {
        TopSort::Calls => row.calls,
        TopSort::Latency => row.mean_ns(),
        TopSort::Slowest => row.latency_max_ns,
        TopSort::Time => row.latency_ns,
        TopSort::Errors => row.errors,
        TopSort::Retransmissions => row.retransmissions,
    };
    (std::cmp::Reverse((most, row.calls)), *key)
}

/// The first rows of some, sorted.
fn first<'t, K: Copy + Ord>(
    mut rows: Vec<(&'t K, &'t TopRow)>,
    sort: TopSort,
    limit: usize,
) -> Vec<(&'t K, &'t TopRow)> {
    if limit < rows.len() && limit > 0 {
        rows.select_nth_unstable_by_key(limit - 1, |(key, row)| order(sort, *key, row));
    }
    rows.truncate(limit);
    rows.sort_unstable_by_key(|(key, row)| order(sort, *key, row));
    rows
}

fn limit_of(filter: &TopFilter) -> usize {
    filter.limit.unwrap_or(ROWS_USUAL).min(ROWS_MAX)
}

/// Whether a row's name has what is asked for in it.
fn is_wanted(name: &str, words: &str) -> bool {
    let (name, words) = (name.as_bytes(), words.as_bytes());
    words.is_empty() || name.windows(words.len()).any(|part| part.eq_ignore_ascii_case(words))
}

type Told = (Vec<TopLine>, usize, TopLine);

fn told<K: Copy + Ord + Hash>(
    table: &TopTable<K>,
    filter: &TopFilter,
    name: impl Fn(&K) -> String,
) -> Told {
    let mut rows: Vec<_> = table.rows().collect();
    if let Some(words) = &filter.filter {
        rows.retain(|(key, _)| is_wanted(&name(key), words));
    }
    let count = rows.len();
    let rows = first(rows, filter.sort, limit_of(filter));
    let rows = rows.into_iter().map(|(key, row)| line(name(key), row)).collect();
    (rows, count, line("others".to_owned(), table.others()))
}

/// As [`told`], but no more names are made than [`FILES_NAMED_MAX`].
fn told_files<K: Copy + Ord + Hash>(
    table: &TopTable<K>,
    filter: &TopFilter,
    name: impl Fn(&K) -> String,
) -> Told {
    let Some(words) = &filter.filter else { return told(table, filter, name) };
    let rows = first(table.rows().collect(), filter.sort, FILES_NAMED_MAX);
    let lines = rows.into_iter().map(|(key, row)| line(name(key), row));
    let mut lines: Vec<_> = lines.filter(|line| is_wanted(&line.name, words)).collect();
    let count = lines.len();
    lines.truncate(limit_of(filter));
    (lines, count, line("others".to_owned(), table.others()))
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use super::*;

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// Counting, with a clock, and what was asked of the threads that count.
    struct Asked {
        counting: Counting,
        now: Instant,
        taken: Vec<Vec<IpAddr>>,
    }

    impl Asked {
        fn new() -> Self {
            Self { counting: Counting::default(), now: Instant::now(), taken: Vec::new() }
        }

        /// How long the window is that is told after so many ms.
        fn after_ms(&mut self, ms: u64, of: Option<IpAddr>) -> Option<u128> {
            self.now += Duration::from_millis(ms);
            let taken = &mut self.taken;
            self.counting.look(of, self.now, |focus| {
                taken.push(focus.to_vec());
                let focused = focus.iter().map(|client| (*client, TopTables::default()));
                TopWindow { focused: focused.collect(), ..TopWindow::default() }
            });
            self.counting.tables(of).map(|(_, length)| length.as_millis())
        }
    }

    #[test]
    fn a_window_is_from_one_question_to_the_next() {
        let mut asked = Asked::new();
        assert_eq!(asked.after_ms(0, None), None, "counting begins");
        assert_eq!(asked.after_ms(1000, None), Some(1000));
        // Another one asks too early: the same window again, and the next one goes on.
        assert_eq!(asked.after_ms(300, None), Some(1000));
        assert_eq!(asked.after_ms(300, None), Some(600));
        assert_eq!(asked.taken.len(), 3);
        // When the server stopped counting is not known.
        assert_eq!(asked.after_ms(COUNTS_FOR_S * 1000, None), None);
        assert_eq!(asked.after_ms(2000, None), Some(2000));
    }

    #[test]
    fn a_client_is_looked_into_from_the_question_on() {
        let mut asked = Asked::new();
        asked.after_ms(0, None);
        assert_eq!(asked.after_ms(1000, None), Some(1000));
        // Its tables begin at once, though the window is short.
        asked.after_ms(100, Some(client(1)));
        assert_eq!(asked.taken.last(), Some(&vec![client(1)]));
        assert_eq!(asked.after_ms(1000, Some(client(1))), Some(1000));
        assert_eq!(asked.after_ms(700, None), Some(700), "all are counted as before");
        // Nobody looks into it any more.
        for _ in 0..COUNTS_FOR_S {
            asked.after_ms(1000, None);
        }
        assert_eq!(asked.taken.last(), Some(&vec![]));
    }

    #[test]
    fn who_was_looked_into_least_recently_makes_room() {
        let mut asked = Asked::new();
        for number in 0..TOP_FOCUS_MAX as u8 {
            asked.after_ms(100, Some(client(number)));
        }
        asked.after_ms(100, Some(client(0)));
        asked.after_ms(100, Some(client(99)));
        let focus = asked.taken.last().unwrap();
        assert_eq!(focus.len(), TOP_FOCUS_MAX);
        assert!(focus.contains(&client(0)) && focus.contains(&client(99)), "{focus:?}");
        assert!(!focus.contains(&client(1)), "{focus:?}");
    }

    #[test]
    fn a_filter_finds_words_anywhere_in_a_name() {
        assert!(is_wanted("nfs3/GETATTR", "getattr"));
        assert!(is_wanted("10.0.0.1", ""));
        assert!(!is_wanted("10.0.0.1", "10.0.0.10"));
    }

    #[test]
    fn the_first_rows_are_those_that_a_whole_sort_has_first() {
        let row = |calls: u64, latency_ns| TopRow { calls, latency_ns, ..TopRow::default() };
        let rows: Vec<(u32, TopRow)> = (0..500)
            .map(|key| (key, row(u64::from(key * 7919 % 101), u64::from(key % 13))))
            .collect();
        let borrowed = || rows.iter().map(|(key, row)| (key, row)).collect::<Vec<_>>();
        for sort in TopSort::ALL {
            let all: Vec<u32> =
                first(borrowed(), *sort, 500).iter().map(|(key, _)| **key).collect();
            for limit in [0, 1, 20, 499, 500, 1000] {
                let some: Vec<u32> =
                    first(borrowed(), *sort, limit).iter().map(|(key, _)| **key).collect();
                assert_eq!(some, all[..limit.min(500)], "{sort}, {limit}");
            }
        }
        let calls: Vec<u64> =
            first(borrowed(), TopSort::Calls, 500).iter().map(|(_, row)| row.calls).collect();
        assert!(calls.is_sorted_by(|one, other| one >= other));
    }
}
