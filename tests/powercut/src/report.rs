//! What a run of the rig found, for people and for programs.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::check::{Broken, Findings, Held};
use crate::crash::Survival;

/// Violations that are told again at the end, of one file system.
const EXAMPLES_MAX: usize = 8;

/// Sums over the points of one file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) name: String,
    pub(crate) runs: usize,
    pub(crate) operations: usize,
    pub(crate) events: usize,
    /// Crash points, or kills.
    pub(crate) points: usize,
    /// Of them, those where something acknowledged was not there.
    pub(crate) points_with_loss: usize,
    /// And those where something else was there by halves.
    pub(crate) points_with_halves: usize,
    /// And those where ext4's super block was torn, so that it had to be repaired first.
    pub(crate) repaired: usize,
    /// Second crashes after which the file system could not be mounted: XFS, of which the first mounting was cut
    /// off in the middle of a block, takes the half for the whole.
    pub(crate) not_mounted: usize,
    pub(crate) violations: BTreeMap<Broken, usize>,
    /// The first of them in words: for who has no more than the end of the output.
    pub(crate) examples: Vec<String>,
    pub(crate) surprises: usize,
    pub(crate) objects: usize,
    pub(crate) replies: usize,
    pub(crate) times_differ: usize,
    /// The sums of what histories find out ([`Findings`]).
    pub(crate) in_flight: usize,
    pub(crate) false_answers: usize,
    pub(crate) reported: usize,
    pub(crate) gaps: usize,
    pub(crate) returned: usize,
    pub(crate) restored: usize,
    pub(crate) unflushed: usize,
    /// What clients of NFSv4 had.
    pub(crate) held: Held,
    pub(crate) recording_seconds: f64,
    pub(crate) checking_seconds: f64,
    modes: BTreeMap<String, usize>,
    /// Seconds by what they were spent on.
    phases: BTreeMap<&'static str, f64>,
}

impl Tally {
    pub(crate) fn new(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// A point was checked.
    pub(crate) fn add(&mut self, survival: Survival, findings: &Findings, unflushed: usize) {
        *self.modes.entry(format!("{survival:?}")).or_default() += 1;
        self.unflushed += unflushed;
        self.found(findings);
    }

    /// Time was spent since `started` on this; begins the next.
    pub(crate) fn spent(&mut self, phase: &'static str, started: &mut Instant) {
        *self.phases.entry(phase).or_default() += started.elapsed().as_secs_f64();
        *started = Instant::now();
    }

    /// A state was checked.
    pub(crate) fn found(&mut self, findings: &Findings) {
        self.points += 1;
        self.objects += findings.objects;
        self.replies += findings.replies;
        self.times_differ += findings.times_differ;
        self.in_flight += findings.in_flight;
        self.false_answers += findings.false_answers;
        self.reported += findings.reported;
        self.gaps += findings.gaps;
        self.returned += findings.returned;
        self.restored += findings.restored;
        self.held.add(findings.held);
        self.points_with_loss += usize::from(findings.has_loss());
        self.points_with_halves += usize::from(findings.has_halves());
        for violation in &findings.violations {
            *self.violations.entry(violation.broken).or_default() += 1;
            if self.examples.len() < EXAMPLES_MAX {
                self.examples.push(format!("{}, point {}: {violation}", self.name, self.points));
            }
        }
    }

    /// Whether one of these was found.
    pub(crate) fn has_any(&self, these: &[Broken]) -> bool {
        these.iter().any(|broken| self.violations.contains_key(broken))
    }

    fn json(&self) -> Value {
        let violations: BTreeMap<&str, usize> =
            self.violations.iter().map(|(broken, count)| (broken.name(), *count)).collect();
        json!({
            "file_system": self.name,
            "runs": self.runs,
            "operations": self.operations,
            "events": self.events,
            "points": self.points,
            "points_by_survival": self.modes,
            "points_with_loss": self.points_with_loss,
            "points_with_halves": self.points_with_halves,
            "repaired": self.repaired,
            "not_mounted": self.not_mounted,
            "violations": violations,
            "unexpected_replies": self.surprises,
            "objects_checked": self.objects,
            "replies_replayed": self.replies,
            "times_that_differ": self.times_differ,
            "calls_in_flight_sent_again": self.in_flight,
            "false_answers": self.false_answers,
            "reported_and_kept": self.reported,
            "local_changes_before_a_start": self.gaps,
            "names_taken_away_that_returned": self.returned,
            "starts_with_an_older_disk": self.restored,
            "nfs4_lives": self.held.lives,
            "nfs4_opens": self.held.opens,
            "nfs4_locks": self.held.locks,
            "nfs4_stateids": self.held.stateids,
            "nfs4_without_grace": self.held.without_grace,
            "nfs4_exclusives": self.held.exclusives,
            "nfs4_refused": self.held.refused,
            "nfs4_requests_sent_again": self.held.resent,
            "nfs4_grace_ms_max": self.held.grace_ms_max,
            "unflushed_writes": self.unflushed,
            "recording_seconds": self.recording_seconds,
            "checking_seconds": self.checking_seconds,
            "checking_seconds_by_phase": self.phases,
        })
    }
}

/// Everything, as one document.
pub(crate) fn document(server: &str, seed: u64, what: &str, tallies: &[Tally]) -> Value {
    let rows: Vec<Value> = tallies.iter().map(Tally::json).collect();
    json!({ "server": server, "seed": seed, "faults": what, "file_systems": rows })
}

/// Everything, as a table.
pub(crate) fn table(tallies: &[Tally]) -> String {
    let mut lines = vec![format!(
        "{:<8} {:>5} {:>9} {:>7} {:>10} {:>7} {:>9} {:>8} {:>8} {:>6}  {}",
        "",
        "runs",
        "promises",
        "points",
        "with loss",
        "halves",
        "objects",
        "replies",
        "s/point",
        "times",
        "violations"
    )];
    for tally in tallies {
        let unexpected = (tally.surprises > 0).then_some(("unexpected replies", tally.surprises));
        let found: Vec<String> = (Broken::ALL.iter())
            .filter_map(|broken| Some((broken.name(), *tally.violations.get(broken)?)))
            .chain(unexpected)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let repaired =
            (tally.repaired > 0).then(|| format!("(ext4 repaired at {} points)", tally.repaired));
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        let not_mounted = (tally.not_mounted > 0)
            .then(|| format!("(not mounted at {} points)", tally.not_mounted));
        let all = std::iter::once(found).chain(repaired).chain(not_mounted);
        let found = all.collect::<Vec<_>>().join(" ");
        lines.push(format!(
            "{:<8} {:>5} {:>9} {:>7} {:>10} {:>7} {:>9} {:>8} {:>8.3} {:>6}  {found}",
            tally.name,
            tally.runs,
            tally.operations,
            tally.points,
            tally.points_with_loss,
            tally.points_with_halves,
            tally.objects,
            tally.replies,
            tally.checking_seconds / (tally.points.max(1) as f64),
            tally.times_differ,
        ));
    }
    lines.join("\n")
}

/// What clients of NFSv4 had, and got back or had still.
pub(crate) fn held(tallies: &[Tally]) -> String {
    let mut lines = vec![format!(
        "{:<8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>10} {:>9} {:>6} {:>9}",
        "NFSv4.1",
        "lives",
        "opens",
        "locks",
        "stateids",
        "no grace",
        "refused",
        "sent again",
        "in flight",
        "false",
        "grace ms"
    )];
    for Tally { name, held, in_flight, false_answers, .. } in tallies {
        lines.push(format!(
            "{name:<8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>10} {in_flight:>9} {false_answers:>6} {:>9}",
            held.lives,
            held.opens,
            held.locks,
            held.stateids,
            held.without_grace,
            held.refused,
            held.resent,
            held.grace_ms_max,
        ));
    }
    lines.join("\n")
}

/// The most that may be answered falsely, of a thousand calls that were under way.
const FALSE_ANSWERS_PERMILLE: f64 = 1.0;

/// What histories count beside.
pub(crate) fn histories(tallies: &[Tally]) -> String {
    let mut lines = vec![format!(
        "{:<8} {:>9} {:>8} {:>9} {:>9} {:>8} {:>9} {:>9}",
        "", "in flight", "false", "share", "restored", "changes", "returned", "reported"
    )];
    for tally in tallies {
        let permille = tally.false_answers as f64 * 1000.0 / tally.in_flight.max(1) as f64;
        let goal = if permille <= FALSE_ANSWERS_PERMILLE { "met" } else { "missed" };
        lines.push(format!(
            "{:<8} {:>9} {:>8} {:>8.2}% {:>9} {:>8} {:>9} {:>9}  false answers ≤ 0.1 %: {goal}",
            tally.name,
            tally.in_flight,
            tally.false_answers,
            permille / 10.0,
            tally.restored,
            tally.gaps,
            tally.returned,
            tally.reported,
        ));
    }
    lines.join("\n")
}
