//! The report: for people, for programs, and as the page of the documentation.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::checks::{Found, Row, Severity, View, rows};
use super::facts::{Facts, Unseen};

/// Of the document's form.
const VERSION: u32 = 1;
/// Findings of one kind that are shown to people: a host of containers may have hundreds of mounts.
const SHOWN_MAX: usize = 10;
/// Columns of a terminal that a line uses.
const WIDTH: usize = 96;

/// What is wrong, on what grounds, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The row.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is wrong.
    pub title: &'static str,
    /// Of what; empty for the machine.
    pub subject: String,
    /// The numbers in a sentence.
    pub evidence: String,
    /// The number that decided; its unit is that of the threshold.
    pub measured: f64,
    /// What it was compared with.
    pub limit: f64,
    /// When it is found.
    pub threshold: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What to do.
    pub action: &'static str,
    /// What that brings.
    pub gain: &'static str,
    /// Settings of `steadfast tune` that help.
    pub settings: &'static [&'static str],
}

/// All findings of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Of the form, by who wrote it.
    pub version: u32,
    /// Seconds between the two looks.
    pub seconds: f64,
    /// What was looked at, in words.
    pub looked_at: Vec<String>,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

impl Report {
    pub(super) fn of(view: &View<'_>) -> Self {
        let mut findings: Vec<Finding> = rows()
            .flat_map(|row| (row.check)(view).into_iter().map(|found| Finding::of(row, found)))
            .collect();
        // Rows of one severity stay in the order of the table.
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        Self {
            version: VERSION,
            seconds: view.seconds(),
            looked_at: looked_at(view.after),
            findings,
            unseen: view.after.unseen.clone(),
        }
    }

    /// The worst severity.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Info)
    }

    /// 0: nothing to do; 1: advice; 2: warnings; 3: critical.
    pub fn exit_status(&self) -> u8 {
        match self.severity() {
            Severity::Info => 0,
            Severity::Advice => 1,
            Severity::Warning => 2,
            Severity::Critical => 3,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("Looked for {:.1} s.\n", self.seconds);
        wrapped(&mut text, "at", &self.looked_at.join(", "));
        let mut of_kind: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in &self.findings {
            let count = of_kind.entry(finding.id).or_default();
            *count += 1;
            if *count <= SHOWN_MAX {
                finding.write(&mut text);
            }
        }
        for (id, count) in of_kind.into_iter().filter(|(_, count)| *count > SHOWN_MAX) {
            let _ =
                writeln!(text, "\n{} more of [{id}] (`--json` has them all)", count - SHOWN_MAX);
        }
        let counted = |severity: Severity| {
            self.findings.iter().filter(|finding| finding.severity == severity).count()
        };
        let _ = writeln!(
            text,
            "\n{} critical, {} warnings, {} advice, {} to know",
            counted(Severity::Critical),
            counted(Severity::Warning),
            counted(Severity::Advice),
            counted(Severity::Info)
        );
        if !self.unseen.is_empty() {
            text.push_str("\nNot looked at:\n");
            for Unseen { what, why } in &self.unseen {
                let _ = writeln!(text, "  {what}: {why}");
            }
        }
        text
    }
}

impl Finding {
    fn of(row: &Row, found: Found) -> Self {
        Self {
            id: row.id,
            severity: found.severity,
            title: row.title,
            subject: found.subject,
            evidence: found.evidence,
            measured: found.measured,
            limit: found.limit,
            threshold: row.threshold,
            source: row.source,
            action: row.action,
            gain: row.gain,
            settings: row.settings,
        }
    }

    fn write(&self, text: &mut String) {
        let of =
            if self.subject.is_empty() { String::new() } else { format!("{}: ", self.subject) };
        let _ = writeln!(
            text,
            "\n{}: {of}{} [{}]",
            self.severity.name().to_uppercase(),
            self.title,
            self.id
        );
        for (name, value) in [
            ("found", self.evidence.as_str()),
            ("limit", self.threshold),
            ("source", self.source),
            ("do", self.action),
            ("brings", self.gain),
        ] {
            wrapped(text, name, value);
        }
    }
}

/// A name, and a text behind it in lines of [`WIDTH`].
fn wrapped(text: &mut String, name: &str, value: &str) {
    let mut line = format!("  {name:<7}");
    let mut length = line.chars().count();
    for word in value.split_whitespace() {
        let word_length = word.chars().count() + 1;
        if length + word_length > WIDTH && length > 9 {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(9);
            length = 9;
        }
        line.push(' ');
        line.push_str(word);
        length += word_length;
    }
    let _ = writeln!(text, "{line}");
}

/// What there was.
fn looked_at(facts: &Facts) -> Vec<String> {
    let counted = |count: usize, one: &str, more: &str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let mut all = vec![
        counted(facts.interfaces.len(), "interface", "interfaces"),
        counted(facts.cpus.each.len(), "CPU", "CPUs"),
        counted(facts.disks.len(), "disk", "disks"),
    ];
    if !facts.mounts.is_empty() {
        all.push(counted(facts.mounts.len(), "NFS mount", "NFS mounts"));
    }
    if let Some(nfsd) = &facts.nfsd {
        all.push(format!("the kernel's NFS server ({} threads)", nfsd.threads));
    }
    if let Some(server) = &facts.steadfast {
        all.push(format!("a Steadfast server ({})", server.statistics.program_version));
    }
    for server in &facts.servers {
        all.push(format!("{server}, from outside"));
    }
    if !facts.name_servers.is_empty() {
        all.push(counted(facts.name_servers.len(), "name server", "name servers"));
    }
    if facts.mounts.is_empty()
        && facts.nfsd.is_none()
        && facts.servers.is_empty()
        && facts.steadfast.is_none()
    {
        all.push("neither an NFS server nor an NFS mount".to_owned());
    }
    all
}

/// All findings that there are, as tables of Markdown: the page of the documentation, and `doctor --list`.
pub fn catalogue() -> String {
    let mut text = String::new();
    for row in rows() {
        let _ = writeln!(text, "### `{}`\n\n{}.\n", row.id, capitalised(row.title));
        let _ = writeln!(text, "| | |\n|---|---|");
        for (name, value) in [
            ("found if", row.threshold),
            ("source", row.source),
            ("what to do", row.action),
            ("what it brings", row.gain),
        ] {
            let _ = writeln!(text, "| {name} | {value} |");
        }
        if !row.settings.is_empty() {
            let keys: Vec<String> = row.settings.iter().map(|key| format!("`{key}`")).collect();
            let _ = writeln!(text, "| `steadfast tune` | {} |", keys.join(", "));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
