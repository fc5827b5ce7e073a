//! Histories: lives of a server one after the other, on the same file system, with what an
//! administrator, local processes and clients do to it between them.
//!
//! [`kills`] has those in which the server is killed or stopped and the file system goes on;
//! [`power`] those that begin with a power cut. Both have the same parts, each of which can be left out.

mod gap;
mod kills;
mod power;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::check::{Broken, Findings, Violation, hexadecimal};
use crate::image::Image;
use crate::kills::AFTER;
use crate::local;
use crate::operation::{Action, Number, Outcome, Place};
use crate::recording::{Places, Shape, write_new};
use crate::report::Tally;
use crate::server::Setup;
use crate::state::State;
use crate::workload::{Mix, Operation};

pub(crate) use kills::run as run_kills;
pub(crate) use power::run as run_power;

/// Histories whose violations are printed.
const PRINTED_MAX: usize = 12;
/// The disks of so many are kept, as they were before the check.
const KEPT_MAX: usize = 4;
/// Violations of one that are printed.
const LINES_MAX: usize = 6;

/// What is in the histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// A local process changes the share while clients do, and while the server is down.
    pub(crate) local: bool,
    /// After a power cut and before the start, local processes change what the crash left.
    pub(crate) gap: bool,
    /// They make objects then that get the numbers of lost ones.
    pub(crate) identity: bool,
    /// An older state directory or data disk is put back.
    pub(crate) restored: bool,
    /// A second crash follows the first.
    pub(crate) double: bool,
    /// Clients send calls again.
    pub(crate) resent: bool,
    /// ACLs are set and taken away.
    pub(crate) acls: bool,
}

impl Parts {
    /// All of them.
    pub(crate) const ALL: Self = Self {
        local: true,
        gap: true,
        identity: true,
        restored: true,
        double: true,
        resent: true,
        acls: true,
    };

    const NONE: Self = Self {
        local: false,
        gap: false,
        identity: false,
        restored: false,
        double: false,
        resent: false,
        acls: false,
    };

    /// Those of a list; `is_wanted` tells whether they are the only ones or left out.
    pub(crate) fn parse(words: &str, is_wanted: bool) -> Result<Self> {
        let mut parts = if is_wanted { Self::NONE } else { Self::ALL };
        for word in words.split(',') {
            let part = match word {
                "local" => &mut parts.local,
                "gap" => &mut parts.gap,
                "identity" => &mut parts.identity,
                "restored" => &mut parts.restored,
                "double" => &mut parts.double,
                "resent" => &mut parts.resent,
                "acls" => &mut parts.acls,
                other => bail!(
                    "no part of histories is called {other:?}: local, gap, identity, restored, \
                     double, resent, acls"
                ),
            };
            *part = is_wanted;
        }
        Ok(parts)
    }

    /// What a load does for them.
    pub(crate) fn mix(self) -> Mix {
        Mix { local: self.local, acls: self.acls, writes: self.resent }
    }
}

/// What histories are made with.
pub(crate) struct Stage<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) places: &'a Places,
    pub(crate) setup: &'a Setup,
    pub(crate) parts: Parts,
    /// Faults of which the first ends the run.
    pub(crate) expected: &'a [Broken],
    /// Where the traces of broken promises are kept.
    pub(crate) keep: Option<PathBuf>,
}

impl Stage<'_> {
    /// Counts what was found after one crash, prints it, and keeps the server's log with it.
    fn tell(
        &self,
        head: &str,
        findings: &Findings,
        (operations, disks): (&[Operation], &[Image]),
        tally: &mut Tally,
    ) -> Result<()> {
        tally.found(findings);
        let told_of = tally.points_with_loss + tally.points_with_halves;
        if findings.violations.is_empty() || told_of > PRINTED_MAX {
            return Ok(());
        }
        println!("{head}");
        for violation in findings.violations.iter().take(LINES_MAX) {
            println!("    {violation}");
        }
        let more = findings.violations.len().saturating_sub(LINES_MAX);
        if more > 0 {
            println!("    … and {more} more");
        }
        let Some(keep) = &self.keep else { return Ok(()) };
        let name =
            format!("{}-history-{}-{}", self.shape.file_system, self.shape.seed, tally.points);
        let directory = keep.join(name);
        std::fs::create_dir_all(&directory).context("where traces are kept")?;
        let lines = findings.violations.iter().map(ToString::to_string);
        let mut lines: Vec<String> = std::iter::once(head.to_owned()).chain(lines).collect();
        lines.extend(concerned(findings, operations));
        std::fs::write(directory.join("violations"), lines.join("\n") + "\n")?;
        let all = operations.iter().enumerate();
        let all: Vec<String> = all.map(|(number, operation)| told(number, operation)).collect();
        std::fs::write(directory.join("operations"), all.join("\n") + "\n")?;
        for file in ["server.log", AFTER] {
            let from = self.places.top.join(file);
            if from.exists() {
                std::fs::copy(&from, directory.join(file))?;
            }
        }
        // Of the next point there may be none.
        let _ = std::fs::remove_file(self.places.top.join(AFTER));
        if told_of <= KEPT_MAX {
            for (disk, image) in disks.iter().enumerate() {
                write_new(image, &directory.join(format!("disk-{disk}.img")))?;
            }
        }
        Ok(())
    }

    /// Whether as much was found as is wanted.
    fn is_over(&self, tally: &Tally) -> bool {
        tally.has_any(self.expected)
    }
}

/// The operations that had to do with the objects of violations, and the directories, in the order in
/// which they were sent.
fn concerned(findings: &Findings, operations: &[Operation]) -> Vec<String> {
    let numbers = findings.violations.iter().filter_map(|violation| violation.operation);
    let objects_told = findings.violations.iter().filter_map(|violation| violation.object);
    let mut objects: BTreeSet<Number> = objects_told.collect();
    let mut places: BTreeSet<Place> = BTreeSet::new();
    for number in numbers {
        let action = operations.get(number as usize).map(|operation| &operation.action);
        objects.insert(action.and_then(Action::object).unwrap_or(number));
        let of_it = action.map(Action::places).unwrap_or_default();
        objects.extend(of_it.iter().map(|at| at.directory));
        places.extend(of_it);
    }
    let is_of_them = |number: usize, operation: &Operation| {
        if operation.action.places().iter().any(|at| places.contains(at)) {
            return true;
        }
        let object = operation.action.object();
        object.is_some_and(|it| objects.contains(&it)) || objects.contains(&(number as Number))
    };
    let all = operations.iter().enumerate();
    let of_them = all.filter(|(number, operation)| is_of_them(*number, operation));
    of_them.map(|(number, operation)| told(number, operation)).collect()
}

/// An operation, and what came of it.
fn told(number: usize, operation: &Operation) -> String {
    let outcome = match &operation.outcome {
        None => "not answered".to_owned(),
        Some(Outcome::Done(_)) => "done".to_owned(),
        Some(Outcome::Failed(status)) => format!("{status:?}"),
    };
    format!("#{number} {}: {outcome}", operation.action)
}

/// A server, or a file system, that does not start.
fn not_started(error: &anyhow::Error) -> Findings {
    let text = format!("{error:#}");
    Findings { violations: vec![Violation::of(Broken::Start, text)], ..Findings::default() }
}

/// What the server's log has wherever it tells that something is kept.
const ASIDE_TOLD: &str = ".steadfast-replay-";

/// What is kept aside has to be told in the server's log.
pub(crate) fn require_reported(findings: &mut Findings, said: &str) {
    if !findings.asides.is_empty() && !said.contains(ASIDE_TOLD) {
        let text = format!("{} names were kept aside without a report", findings.asides.len());
        findings.violations.push(Violation::of(Broken::Reverted, text));
    }
}

/// Takes out what is no violation as both versions are kept: the server's log names the object by its path below
/// `share`, or what is kept aside (the table of `check.rs`). Of data it has to tell that something is kept. Some
/// operations that were under way were sent again before the share was looked at.
fn excuse(
    findings: &mut Findings,
    (operations, sent_again): (&[Operation], &BTreeSet<Number>),
    state: &State,
    said: &str,
    share: &Path,
) {
    require_reported(findings, said);
    if !said.contains(ASIDE_TOLD) {
        return;
    }
    let told: Vec<&str> = said.lines().filter(|line| line.contains(" WARN ")).collect();
    let names_it = |path: &Path, is_of_data: bool| {
        let what = format!(" {}: ", path.display());
        let mut lines = told.iter().filter(|line| line.contains(&what));
        lines.any(|line| !is_of_data || line.contains(ASIDE_TOLD))
    };
    let is_excused = |violation: &Violation| {
        let operation = violation.operation.and_then(|number| operations.get(number as usize));
        let is_of_data = violation.broken == Broken::Data
            || operation.is_some_and(|known| known.action.is_local_of_data());
        let mut places = operation.map(|known| known.action.places()).unwrap_or_default();
        let mut is_kept = false;
        if let Some(object) = violation.object {
            places.extend(state.names.iter().filter(|(_, it)| **it == object).map(|(at, _)| *at));
            // Where a local process had moved it without making that stable it may have the name of before, and where a
            // client's RENAME was sent again it had that at the start.
            let former =
                places.iter().flat_map(|at| moved_from(operations, state, sent_again, *at));
            places.extend(former.collect::<Vec<_>>());
            // Where the log knows no name, what is kept is named for the handle.
            let handle = state.objects.get(&object).and_then(|known| known.handle.as_ref());
            is_kept = handle.is_some_and(|handle| {
                let handle = hexadecimal(&handle.0);
                told.iter().filter_map(|line| kept_for(line)).any(|key| handle.ends_with(key))
            });
        }
        let is_local = violation.broken == Broken::Reverted
            || violation.object.is_some_and(|object| is_changed_locally(operations, object));
        let mut paths = places.into_iter().filter_map(|place| local::path(state, share, place));
        is_local && (is_kept || paths.any(|path| names_it(&path, is_of_data)))
    };
    let before = findings.violations.len();
    findings.violations.retain(|violation| !is_excused(violation));
    findings.reported += before - findings.violations.len();
}

/// From where local processes may have moved what has a name, or not; and from where clients have, that sent the call
/// again after the start.
fn moved_from(
    operations: &[Operation],
    state: &State,
    sent_again: &BTreeSet<Number>,
    at: Place,
) -> Vec<Place> {
    let moved = operations.iter().filter_map(|known| match known.action {
        Action::Local(local::Local { step: local::Step::Rename { from, to }, .. }) if to == at => {
            Some(from)
        }
        _ => None,
    });
    let again = sent_again.iter().filter_map(|number| operations.get(*number as usize));
    let again = again.filter_map(|known| match known.action {
        Action::Rename { from, to } if to == at => Some(from),
        _ => None,
    });
    moved.filter(|from| state.loose.contains(from)).chain(again).collect()
}

/// Takes out what came of operations that were under way, where the clock does not tell whether that was on the disk
/// before the crash: replay takes it for what a local process did after that. What was acknowledged wins, and what was
/// there is kept aside. The server's log names the place.
fn excuse_under_way(
    findings: &mut Findings,
    operations: &[Operation],
    under_way: &BTreeSet<Number>,
    state: &State,
    said: &str,
    share: &Path,
) {
    let is_told = |path: &Path| {
        let what = format!(" {}: ", path.display());
        let of_asides = |line: &&str| line.contains(" WARN ") && line.contains(ASIDE_TOLD);
        said.lines().filter(of_asides).any(|line| line.contains(&what))
    };
    let is_excused = |violation: &Violation| {
        let number = violation.operation.filter(|number| under_way.contains(number));
        let operation = number.and_then(|number| operations.get(number as usize));
        let places = operation.map(|known| known.action.places()).unwrap_or_default();
        let mut paths = places.into_iter().filter_map(|place| local::path(state, share, place));
        paths.any(|path| is_told(&path))
    };
    let before = findings.violations.len();
    findings.violations.retain(|violation| !is_excused(violation));
    findings.reported += before - findings.violations.len();
}

/// Whether a local process has changed an object, or made it.
fn is_changed_locally(operations: &[Operation], object: Number) -> bool {
    let is_local = |action: &Action| action.is_local();
    operations.get(object as usize).is_some_and(|made| is_local(&made.action))
        || operations
            .iter()
            .any(|known| is_local(&known.action) && known.action.object() == Some(object))
}

/// The handle, in hexadecimal, of the file that a line of the server's log tells to be kept aside. The name of what is
/// kept comes first where the file was removed, and last where no name of the file is known
/// (`durability/src/told.rs`).
fn kept_for(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("/.steadfast-replay-")?;
    let key = rest.strip_prefix("found-").or_else(|| rest.strip_prefix("acknowledged-"))?;
    let end = key.find(|character: char| !character.is_ascii_hexdigit()).unwrap_or(key.len());
    key.get(..end).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Name, ROOT};

    #[test]
    fn what_a_local_process_moved_may_be_where_it_was() {
        let place = |number| Place { directory: ROOT, name: Name(number) };
        let step = local::Step::Rename { from: place(1), to: place(2) };
        let action = Action::Local(local::Local { step, sync: local::Sync::None });
        let operations =
            [Operation { client: 0, action, call: vec![], reply: vec![], outcome: None }];
        let mut state = State::default();
        let none = BTreeSet::new();
        assert_eq!(moved_from(&operations, &state, &none, place(2)), [], "it is stable");
        state.loose.insert(place(1));
        assert_eq!(moved_from(&operations, &state, &none, place(2)), [place(1)]);
        assert_eq!(moved_from(&operations, &state, &none, place(1)), []);
        // What a client moved is told under its name of before only if the call was sent again.
        let moves = Operation {
            action: Action::Rename { from: place(3), to: place(4) },
            ..operations[0].clone()
        };
        let operations = [operations[0].clone(), moves];
        assert_eq!(moved_from(&operations, &state, &none, place(4)), []);
        assert_eq!(moved_from(&operations, &state, &BTreeSet::from([1]), place(4)), [place(3)]);
    }

    /// Only of what is told aside at its own place, and of nothing that was acknowledged.
    #[test]
    fn what_was_under_way_may_be_aside_where_that_is_told() {
        let place = |number| Place { directory: ROOT, name: Name(number) };
        let action = Action::Rename { from: place(1), to: place(2) };
        let operation = Operation { client: 0, action, call: vec![], reply: vec![], outcome: None };
        let operations = [operation.clone(), operation];
        let state = State::default();
        let kept = "it is kept under a name that begins with .steadfast-replay-";
        let left = |number: Number, said: &str| {
            let violation = Violation::of(Broken::Name, String::new());
            let violation = Violation { operation: Some(number), ..violation };
            let mut findings = Findings { violations: vec![violation], ..Findings::default() };
            let under_way = BTreeSet::from([1]);
            let share = Path::new("/share");
            excuse_under_way(&mut findings, &operations, &under_way, &state, said, share);
            assert_eq!(findings.violations.len() + findings.reported, 1);
            findings.violations.len()
        };
        let of_the_place = format!("now  WARN /share/name-02: {kept}");
        assert_eq!(left(1, &of_the_place), 0);
        assert_eq!(left(0, &of_the_place), 1);
        assert_eq!(left(1, &format!("now  WARN /share/name-03: {kept}")), 1);
        assert_eq!(left(1, "now  WARN /share/name-02: its owner or mode was set"), 1);
        assert_eq!(left(1, ""), 1);
    }

    /// As `durability/src/told.rs` writes them.
    #[test]
    fn lines_about_what_is_kept_name_the_file_by_its_handle() {
        let kind = "its data was changed by something that the log does not know: it is as it was \
                    acknowledged, and what was found is kept beside it, under a name that begins \
                    with .steadfast-replay-found-";
        let kept = "/share/name-01/.steadfast-replay-found-0081008b000000000000003f4b93cc";
        let key = Some("0081008b000000000000003f4b93cc");
        let time = "2026-11-29T16:10:06.320252Z  WARN ";
        assert_eq!(kept_for(&format!("{time}(file number 139): {kind}: {kept}")), key);
        assert_eq!(kept_for(&format!("{time}{kept}: it was removed, but something")), key);
        let acknowledged = kept.replace("found", "acknowledged");
        assert_eq!(kept_for(&format!("{time}(handle 0081): {kind}: {acknowledged}")), key);
        // The file's own name is enough.
        assert_eq!(kept_for(&format!("{time}/share/name-01: {kind}")), None);
        assert_eq!(kept_for(&format!("{time}/share/.steadfast-replay-found-: {kind}")), None);
    }
}
