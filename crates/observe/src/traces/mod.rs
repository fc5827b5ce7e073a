//! `steadfast traces`: sampled calls of a running server as traces of OpenTelemetry.
//!
//! The server's flight recorder has the last calls that were looked at closely, by chance or since they were slow. They are
//! read from it ([`chosen`]) and posted to a collector as [`spans`]: a trace a call, a span for each of its stages.
//! The server knows nothing of it.

mod arguments;
mod chosen;
mod spans;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use serde::Deserialize;
use steadfast_control::statistics::{Recorded, Statistics, UnreadableStatistics};
use steadfast_control::{AddressError, AskError, Client, Collector, Patience, PostError};
use steadfast_sys::process::Signals;

pub use self::arguments::TracesArguments;
use self::chosen::{Seen, Wanted};
use self::spans::Origin;
use crate::screen::print;

/// Where collectors take traces, if nobody says otherwise (OTLP by HTTP).
const PATH: &str = "/v1/traces";
/// Calls of one request.
const CALLS_A_REQUEST: usize = 256;
/// Calls of so many seconds may be sent at once, if fewer were before.
const CREDIT_MOST_S: f64 = 60.0;
/// A collector that asks not to be asked for longer is asked all the same.
const PATIENCE_MOST: Duration = Duration::from_secs(300);
/// Calls that wait for the collector. Of more the oldest are dropped.
const CALLS_WAITING_MAX: usize = 16_384;

/// Why nothing is sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The server does not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It answers something else.
    #[error(transparent)]
    Unreadable(#[from] UnreadableStatistics),
    /// The collector cannot have this address.
    #[error("--to {url}: {error}")]
    Address {
        /// As it was typed.
        url: String,
        /// What is wrong.
        error: AddressError,
    },
    /// Signals, or the output.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Sends until it is interrupted, or the time that was asked for is over.
///
/// # Errors
/// When the server cannot be asked at first, or the collector's address is none. Later both are tried again.
pub fn run(client: &Client, arguments: &TracesArguments) -> Result<(), TracesError> {
    let collector = arguments.to.as_ref().map(|url| {
        let collector = Collector::new(url, PATH, &arguments.headers);
        collector.map_err(|error| TracesError::Address { url: url.clone(), error })
    });
    let mut sender = Sender::new(collector.transpose()?, &arguments.service);
    let signals = Signals::block()?;
    let (wanted, mut seen) = (Wanted::of(arguments), Seen::default());
    let end = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    seen.new_of(ask(client)?, &wanted, 0);
    let (mut asked, mut is_away) = (Instant::now(), false);
    let mut credit = 0.0;
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let is_over = left.is_some_and(|left| left.is_zero())
            || signals
                .wait(left.map_or(arguments.interval, |left| left.min(arguments.interval)))?
                .is_some();
        match ask(client) {
            Ok(document) => {
                // What is left of it is for the next time: a rate may be less than one call an interval.
                let rate = f64::from(arguments.rate);
                credit += asked.elapsed().as_secs_f64() * rate;
                credit = f64::min(credit, rate * CREDIT_MOST_S + 1.0);
                let (origin, calls) = seen.new_of(document, &wanted, credit as usize);
                credit -= calls.len() as f64;
                sender.add(&origin, calls);
                (asked, is_away) = (Instant::now(), false);
            }
            Err(error) if !is_away => {
                eprintln!("steadfast traces: {error}; asking again");
                is_away = true;
            }
            Err(_) => {}
        }
        if !sender.send(is_over, &signals)? || is_over {
            break;
        }
    }
    eprintln!("{}", sender.summary(&seen));
    Ok(())
}

fn ask(client: &Client) -> Result<Statistics, TracesError> {
    Ok(Statistics::read(&client.ask("GET", "/v1/statistics", Patience::Short)?)?)
}

/// What a collector says of a request that it has taken.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Taken {
    partial_success: Option<PartialSuccess>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    /// A number, or its digits as text.
    rejected_spans: serde_json::Value,
    error_message: String,
}

impl PartialSuccess {
    fn rejected(&self) -> u64 {
        let text = self.rejected_spans.as_str().and_then(|digits| digits.parse().ok());
        text.or_else(|| self.rejected_spans.as_u64()).unwrap_or(0)
    }
}

/// Calls on their way to the collector.
struct Sender {
    /// `None`: they are printed.
    collector: Option<Collector>,
    service: String,
    waiting: VecDeque<(Origin, Recorded)>,
    /// Not to be asked before.
    not_before: Option<Instant>,
    is_failing: bool,
    sent_calls: u64,
    sent_spans: u64,
    rejected_spans: u64,
    dropped_calls: u64,
}

impl Sender {
    fn new(collector: Option<Collector>, service: &str) -> Self {
        Self {
            collector,
            service: service.to_owned(),
            waiting: VecDeque::new(),
            not_before: None,
            is_failing: false,
            sent_calls: 0,
            sent_spans: 0,
            rejected_spans: 0,
            dropped_calls: 0,
        }
    }

    fn add(&mut self, origin: &Origin, calls: Vec<Recorded>) {
        self.waiting.extend(calls.into_iter().map(|call| (origin.clone(), call)));
        let surplus = self.waiting.len().saturating_sub(CALLS_WAITING_MAX);
        self.waiting.drain(..surplus);
        self.dropped_calls += surplus as u64;
    }

    /// Sends what waits, as far as the collector takes it; `is_last`: also if it asked for patience. `false` if nobody
    /// reads the output any more, or a signal came.
    fn send(&mut self, is_last: bool, signals: &Signals) -> io::Result<bool> {
        if !is_last && self.not_before.is_some_and(|time| Instant::now() < time) {
            return Ok(true);
        }
        while let Some((origin, _)) = self.waiting.front() {
            let origin = origin.clone();
            let of_it = self.waiting.iter().take_while(|(other, _)| *other == origin);
            let calls: Vec<_> = of_it.take(CALLS_A_REQUEST).map(|(_, call)| call.clone()).collect();
            let (request, spans) = origin.request(&self.service, &calls);
            let Some(collector) = &self.collector else {
                if !print(&format!("{request}\n"))? {
                    return Ok(false);
                }
                self.are_sent(calls.len(), spans);
                continue;
            };
            match collector.post(request.to_string().into_bytes()) {
                Ok(answer) => {
                    self.is_taken(&answer);
                    self.are_sent(calls.len(), spans);
                    if signals.wait(Duration::ZERO)?.is_some() {
                        return Ok(false);
                    }
                }
                Err(PostError::Refused(why)) => {
                    let count = calls.len();
                    eprintln!(
                        "steadfast traces: {} refuses {count} calls, which are dropped: {why}",
                        collector.url()
                    );
                    self.waiting.drain(..count);
                    self.dropped_calls += count as u64;
                }
                Err(PostError::Later { why, after }) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        eprintln!("steadfast traces: {}: {why}; trying again", collector.url());
                    }
                    self.not_before = after.map(|after| Instant::now() + after.min(PATIENCE_MOST));
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    fn are_sent(&mut self, calls: usize, spans: usize) {
        self.waiting.drain(..calls);
        self.sent_calls += calls as u64;
        self.sent_spans += spans as u64;
    }

    fn is_taken(&mut self, answer: &[u8]) {
        (self.is_failing, self.not_before) = (false, None);
        let taken: Taken = serde_json::from_slice(answer).unwrap_or_default();
        let Some(partial) = taken.partial_success else { return };
        let rejected = partial.rejected();
        if rejected > 0 {
            if self.rejected_spans == 0 {
                eprintln!(
                    "steadfast traces: the collector rejects {rejected} spans: {}",
                    partial.error_message.escape_debug()
                );
            }
            self.rejected_spans += rejected;
        }
    }

    fn summary(&self, seen: &Seen) -> String {
        let mut text = format!("{} calls as {} spans", self.sent_calls, self.sent_spans);
        for (count, what) in [
            (self.rejected_spans, "spans rejected by the collector"),
            (self.dropped_calls + self.waiting.len() as u64, "calls dropped"),
            (seen.left_out, "calls left out (--rate)"),
            (seen.missed, "sampled calls not seen (a shorter --interval sees more)"),
        ] {
            if count > 0 {
                let _ = write!(text, "; {count} {what}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{PartialSuccess, Taken};

    #[test]
    fn what_a_collector_says_is_understood_in_both_forms() {
        for (answer, rejected) in [
            ("{}", None),
            ("{\"partialSuccess\":{}}", Some(0)),
            ("{\"partialSuccess\":{\"rejectedSpans\":\"7\",\"errorMessage\":\"full\"}}", Some(7)),
            ("{\"partialSuccess\":{\"rejectedSpans\":7}}", Some(7)),
            ("{\"partialSuccess\":{\"rejectedSpans\":null}}", Some(0)),
        ] {
            let taken: Taken = serde_json::from_str(answer).unwrap();
            assert_eq!(taken.partial_success.as_ref().map(PartialSuccess::rejected), rejected);
        }
    }
}
