//! Which calls of the flight recorder are new and wanted.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use steadfast_control::statistics::{Recorded, Statistics};

use super::TracesArguments;
use super::spans::Origin;

/// A call that was in none of so many documents does not come back.
const DOCUMENTS_REMEMBERED: u64 = 8;

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    client: Option<IpAddr>,
    operation: Option<String>,
    latency_least_ns: u64,
}

impl Wanted {
    pub(super) fn of(arguments: &TracesArguments) -> Self {
        Self {
            client: arguments.client.map(|client| client.to_canonical()),
            operation: arguments.operation.clone(),
            latency_least_ns: arguments.slower_than.unwrap_or(0).saturating_mul(1000),
        }
    }

    fn has(&self, call: &Recorded) -> bool {
        let of_call = || call.client.parse().map(|address: SocketAddr| address.ip().to_canonical());
        let is_client = self.client.is_none_or(|client| of_call() == Ok(client));
        let is_operation = self.operation.as_deref().is_none_or(|name| {
            std::iter::once(&call.name)
                .chain(&call.operations)
                .any(|other| other.eq_ignore_ascii_case(name))
        });
        is_client && is_operation && call.latency_ns >= self.latency_least_ns
    }
}

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    origin: Option<Origin>,
    documents: u64,
    /// The calls of the last documents, and the number of the last one that had it. The oldest calls of a document may be left out
    /// of the next one, and be in a later one: the server leaves out what is being written.
    ids: HashMap<u128, u64>,
    sampled: u64,
    /// Sampled calls that the recorder had lost before it was asked.
    pub(super) missed: u64,
    /// Wanted calls that were too many for the rate.
    pub(super) left_out: u64,
}

impl Seen {
    /// The wanted calls of a document that were in none before, `most` at most. Of the first document of a process there
    /// are none: they came before anybody asked.
    pub(super) fn new_of(
        &mut self,
        document: Statistics,
        wanted: &Wanted,
        most: usize,
    ) -> (Origin, Vec<Recorded>) {
        let origin = Origin::of(&document);
        let sampled = document.operations.iter().map(|operation| operation.sampled_calls).sum();
        let is_first = self.origin.as_ref() != Some(&origin);
        self.documents += 1;
        let mut calls = Vec::new();
        let mut sampled_seen = 0;
        for call in document.recent {
            let id = origin.trace_id(&call);
            let is_new = self.ids.insert(id, self.documents).is_none();
            if !is_first && is_new {
                sampled_seen += u64::from(call.is_sampled);
                if wanted.has(&call) {
                    calls.push(call);
                }
            }
        }
        self.ids.retain(|_, last| *last + DOCUMENTS_REMEMBERED > self.documents);
        if !is_first {
            // A call is counted a moment before or after it is recorded.
            self.missed += u64::saturating_sub(sampled, self.sampled).saturating_sub(sampled_seen);
        }
        self.sampled = sampled;
        self.origin = Some(origin.clone());
        self.left_out += calls.len().saturating_sub(most) as u64;
        (origin, thinned(calls, most))
    }
}

/// So many of them at most, evenly chosen.
fn thinned(calls: Vec<Recorded>, most: usize) -> Vec<Recorded> {
    let count = calls.len();
    if count <= most {
        return calls;
    }
    let is_chosen = |place: usize| (place + 1) * most / count > place * most / count;
    calls
        .into_iter()
        .enumerate()
        .filter(|(place, _)| is_chosen(*place))
        .map(|(_, call)| call)
        .collect()
}

#[cfg(test)]
mod tests {
    use steadfast_control::statistics::{Operation, Stages};

    use super::*;

    fn call(number: u32) -> Recorded {
        Recorded {
            xid: number,
            protocol: "nfs".to_owned(),
            program: 100_003,
            version: 3,
            procedure: 6,
            name: "READ".to_owned(),
            is_error: false,
            operations: Vec::new(),
            client: "192.0.2.7:700".to_owned(),
            transport: "tcp".to_owned(),
            begun_unix_us: u64::from(number),
            latency_ns: u64::from(number) * 1000,
            execution_ns: 0,
            is_sampled: true,
            was_parked: false,
            stages: Stages::default(),
        }
    }

    fn document(process: u32, sampled: u64, calls: std::ops::Range<u32>) -> Statistics {
        Statistics {
            process,
            operations: vec![Operation { sampled_calls: sampled, ..Operation::default() }],
            recent: calls.map(call).collect(),
            ..Statistics::default()
        }
    }

    fn xids(calls: &[Recorded]) -> Vec<u32> {
        calls.iter().map(|call| call.xid).collect()
    }

    const NONE: [u32; 0] = [];

    #[test]
    fn each_call_is_told_once_and_what_was_lost_is_counted() {
        let (mut seen, wanted) = (Seen::default(), Wanted::default());
        let mut told = |document| xids(&seen.new_of(document, &wanted, 1000).1);
        assert_eq!(told(document(1, 10, 0..10)), NONE, "they came before");
        assert_eq!(told(document(1, 14, 4..14)), [10, 11, 12, 13]);
        assert_eq!(told(document(1, 14, 4..14)), NONE);
        assert_eq!(told(document(1, 14, 6..14)), NONE);
        assert_eq!(told(document(1, 14, 4..14)), NONE, "of some that come back");
        // 14 to 29 are not in the recorder any more.
        assert_eq!(told(document(1, 40, 30..40)), (30..40).collect::<Vec<_>>());
        assert_eq!(told(document(2, 5, 0..5)), NONE, "another process");
        assert_eq!(told(document(2, 6, 0..6)), [5]);
        assert_eq!((seen.missed, seen.left_out), (16, 0));
    }

    #[test]
    fn too_many_are_thinned_evenly() {
        for (count, most) in [(10, 5), (100, 7), (7, 7), (3, 100), (5, 1), (1000, 999)] {
            let mut seen = Seen::default();
            seen.new_of(document(1, 0, 0..0), &Wanted::default(), most);
            let (_, calls) =
                seen.new_of(document(1, count.into(), 0..count), &Wanted::default(), most);
            assert_eq!(calls.len(), most.min(count as usize));
            assert_eq!(seen.left_out as usize, count as usize - calls.len());
            let gaps = xids(&calls);
            let gaps = gaps.windows(2).map(|pair| pair[1] - pair[0]);
            let (least, greatest) = gaps
                .fold((u32::MAX, 0), |(least, greatest), gap| (least.min(gap), greatest.max(gap)));
            assert!(greatest <= least.saturating_add(1), "{count} {most}");
        }
    }

    #[test]
    fn only_what_is_wanted() {
        let compound = Recorded {
            name: "COMPOUND".to_owned(),
            operations: vec!["PUTFH".to_owned(), "READ".to_owned()],
            client: "[::ffff:192.0.2.8]:701".to_owned(),
            latency_ns: 5000,
            ..call(1)
        };
        let has = |wanted: Wanted| (wanted.has(&call(3)), wanted.has(&compound));
        assert_eq!(has(Wanted::default()), (true, true));
        let operation =
            |name: &str| Wanted { operation: Some(name.to_owned()), ..Wanted::default() };
        assert_eq!(has(operation("read")), (true, true));
        assert_eq!(has(operation("putfh")), (false, true));
        assert_eq!(has(operation("WRITE")), (false, false));
        let client = |text: &str| Wanted { client: text.parse().ok(), ..Wanted::default() };
        assert_eq!(has(client("192.0.2.7")), (true, false));
        assert_eq!(has(client("192.0.2.8")), (false, true));
        let slower = |latency_least_ns| Wanted { latency_least_ns, ..Wanted::default() };
        assert_eq!(has(slower(3000)), (true, true));
        assert_eq!(has(slower(3001)), (false, true));
    }
}
