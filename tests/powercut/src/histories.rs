//! Histories: lives of a server one after the other, on the same file system, with what an
//! administrator, local processes and clients do to it between them.
//!
//! [`kills`] has those in which the server is killed or stopped and the file system goes on;
//! [`power`] those that begin with a power cut. Both have the same parts, each of which can be left out.

mod gap;
mod kills;
mod power;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::check::{Fault, Findings, Violation};
use crate::recording::{Places, Shape};
use crate::report::Tally;
use crate::server::Setup;
use crate::workload::{Mix, Operation};

pub(crate) use kills::run as run_kills;
pub(crate) use power::run as run_power;

/// Histories whose violations are printed.
const PRINTED_MAX: usize = 12;
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
    pub(crate) expected: &'a [Fault],
    /// Where the traces of broken promises are kept.
    pub(crate) keep: Option<PathBuf>,
}

impl Stage<'_> {
    /// Counts what was found after one crash, prints it, and keeps the server's log with it.
    fn tell(&self, head: &str, findings: &Findings, tally: &mut Tally) -> Result<()> {
        tally.found(findings);
        let told = tally.points_with_loss + tally.points_with_halves;
        if findings.violations.is_empty() || told > PRINTED_MAX {
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
        let lines: Vec<String> = std::iter::once(head.to_owned()).chain(lines).collect();
        std::fs::write(directory.join("violations"), lines.join("\n") + "\n")?;
        let log = self.places.top.join("server.log");
        if log.exists() {
            std::fs::copy(log, directory.join("server.log"))?;
        }
        Ok(())
    }

    /// Whether as much was found as is wanted.
    fn is_over(&self, tally: &Tally) -> bool {
        tally.has_any(self.expected)
    }
}

/// A server, or a file system, that does not start.
fn not_started(error: &anyhow::Error) -> Findings {
    let text = format!("{error:#}");
    let violation = Violation { fault: Fault::Start, operation: None, text };
    Findings { violations: vec![violation], ..Findings::default() }
}

/// Takes out what is no violation as both versions are kept: the server's log names the object and
/// what is kept aside (the table of `check.rs`).
fn excuse(findings: &mut Findings, operations: &[Operation], said: &str) {
    if !said.contains(".steadfast-replay-") {
        if !findings.asides.is_empty() {
            let text = format!("{} names were kept aside without a report", findings.asides.len());
            findings.violations.push(Violation { fault: Fault::Reverted, operation: None, text });
        }
        return;
    }
    let is_named = |violation: &Violation| {
        let action = violation.operation.and_then(|number| operations.get(number as usize));
        let places = action.map(|operation| operation.action.places()).unwrap_or_default();
        places.iter().any(|place| {
            let name = place.name.bytes();
            String::from_utf8(name).is_ok_and(|name| said.contains(&name))
        })
    };
    let before = findings.violations.len();
    findings
        .violations
        .retain(|violation| violation.fault != Fault::Reverted || !is_named(violation));
    findings.reported += before - findings.violations.len();
}
