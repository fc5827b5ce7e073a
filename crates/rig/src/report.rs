//! What sections found: medians with their range, goals with verdicts, tables; and their place in
//! a document, between markers that the next run finds again.

mod sections;

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(crate) use sections::Sections;

/// What was measured in each round, by row and server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(BTreeMap<(&'static str, &'static str), Vec<f64>>);

impl Samples {
    pub(crate) fn push(&mut self, row: &'static str, server: &'static str, value: f64) {
        self.0.entry((row, server)).or_default().push(value);
    }

    pub(crate) fn median(&self, row: &'static str, server: &'static str) -> Option<f64> {
        median(self.0.get(&(row, server))?.clone())
    }

    /// One server's median divided by another's.
    pub(crate) fn ratio(
        &self,
        row: &'static str,
        server: &'static str,
        other: &'static str,
    ) -> Option<f64> {
        Some(self.median(row, server)? / self.median(row, other)?)
    }

    /// The median with the least and the most: `1,234 (1,100–1,300)`.
    pub(crate) fn shown(&self, row: &'static str, server: &'static str) -> String {
        let (Some(values), Some(median)) = (self.0.get(&(row, server)), self.median(row, server))
        else {
            return String::new();
        };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.len() == 1 {
            return figure(median);
        }
        format!("{} ({}–{})", figure(median), figure(least), figure(most))
    }

    fn json(&self) -> Value {
        let rows = self.0.iter().map(
            |((row, server), values)| json!({ "row": row, "server": server, "values": values }),
        );
        rows.collect()
    }
}

/// A number with as many digits as it deserves.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => {
            let digits = format!("{value:.0}");
            let head = digits.len().saturating_sub(3);
            match (digits.get(..head), digits.get(head..)) {
                (Some(head), Some(tail)) if size < 1_000_000.0 => format!("{head},{tail}"),
                _ => digits,
            }
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// Something that was asked for, and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    /// None if it could not be measured.
    pub(crate) measured: Option<f64>,
}

impl Goal {
    pub(crate) fn at_least(what: impl Into<String>, limit: f64, measured: Option<f64>) -> Self {
        Self { what: what.into(), limit: Limit::AtLeast(limit), measured }
    }

    pub(crate) fn at_most(what: impl Into<String>, limit: f64, measured: Option<f64>) -> Self {
        Self { what: what.into(), limit: Limit::AtMost(limit), measured }
    }

    /// What was not measured is not met.
    pub(crate) fn is_met(&self) -> bool {
        self.measured.is_some_and(|measured| match self.limit {
            Limit::AtLeast(least) => measured >= least,
            Limit::AtMost(most) => measured <= most,
        })
    }

    fn row(&self) -> String {
        let (sign, limit) = match self.limit {
            Limit::AtLeast(limit) => ('≥', limit),
            Limit::AtMost(limit) => ('≤', limit),
        };
        let measured = self.measured.map_or_else(|| "not measured".to_owned(), figure);
        let verdict = if self.is_met() { "met" } else { "**missed**" };
        format!("| {} | {sign} {} | {measured} | {verdict} |", self.what, figure(limit))
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    text: String,
}

impl Table {
    /// With these columns, the first to the left and the others to the right.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let rule = if columns.len() > 1 { "--:|".repeat(columns.len() - 1) } else { String::new() };
        Self { text: format!("| {} |\n|---|{rule}\n", columns.join(" | ")) }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }
}

/// What a section found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    paragraphs: Vec<String>,
    pub(crate) goals: Vec<Goal>,
    /// File names below `docs`, and pictures.
    pub(crate) plots: Vec<(&'static str, String)>,
    raw: Vec<Value>,
}

impl Findings {
    /// A paragraph of text.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        self.paragraphs.push(text.into());
    }

    pub(crate) fn add_table(&mut self, table: &Table) {
        self.paragraphs.push(table.text.trim_end().to_owned());
    }

    pub(crate) fn add_samples(&mut self, samples: &Samples) {
        self.raw.push(samples.json());
    }

    pub(crate) fn add_raw(&mut self, value: Value) {
        self.raw.push(value);
    }

    /// A picture, and where it is shown.
    pub(crate) fn add_plot(&mut self, file: &'static str, title: &str, svg: String) {
        self.paragraphs.push(format!("![{title}]({file})"));
        self.plots.push((file, svg));
    }

    pub(crate) fn misses(&self) -> usize {
        self.goals.iter().filter(|goal| !goal.is_met()).count()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = self.paragraphs.join("\n\n");
        text.push('\n');
        if !self.goals.is_empty() {
            text.push_str("\n| asked | goal | measured | |\n|---|--:|--:|---|\n");
            for goal in &self.goals {
                text.push_str(&goal.row());
                text.push('\n');
            }
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let goals = self.goals.iter().map(|goal| {
            let (at_least, at_most) = match goal.limit {
                Limit::AtLeast(limit) => (Some(limit), None),
                Limit::AtMost(limit) => (None, Some(limit)),
            };
            json!({
                "what": goal.what,
                "at_least": at_least,
                "at_most": at_most,
                "measured": goal.measured,
                "is_met": goal.is_met(),
            })
        });
        json!({ "goals": goals.collect::<Value>(), "measurements": self.raw })
    }
}

/// Puts a section's text between its markers.
///
/// # Errors
/// When the document does not have them.
pub(crate) fn replace_section(document: &str, section: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {section} -->"), format!("<!-- end {section} -->"));
    let lacks = || format!("there are no lines {begin:?} and {end:?}");
    let (head, rest) = document.split_once(&begin).with_context(lacks)?;
    let (_, tail) = rest.split_once(&end).with_context(lacks)?;
    Ok(format!("{head}{begin}\n{}\n{end}{tail}", text.trim_end()))
}

/// The middle one; of an even number the mean of the two in the middle. None of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    values.get(middle.checked_sub(1)?).map(|lower| (lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn goals_are_met_at_their_limit_and_not_without_a_figure() {
        for (goal, is_met) in [
            (Goal::at_least("rate", 2.0, Some(2.0)), true),
            (Goal::at_least("rate", 2.0, Some(1.99)), false),
            (Goal::at_most("writes", 130.0, Some(130.0)), true),
            (Goal::at_most("writes", 130.0, Some(131.0)), false),
            (Goal::at_most("writes", 130.0, None), false),
            (Goal::at_least("rate", 2.0, Some(f64::NAN)), false),
        ] {
            assert_eq!(goal.is_met(), is_met, "{goal:?}");
        }
        let row = Goal::at_least("rate", 2.5, Some(3.1)).row();
        assert_eq!(row, "| rate | ≥ 2.50 | 3.10 | met |");
        assert!(Goal::at_most("rate", 2.5, Some(3.1)).row().contains("**missed**"));
    }

    #[test]
    fn medians_come_with_their_range() {
        let mut samples = Samples::default();
        for value in [30.0, 10.0, 20.0] {
            samples.push("write", "ours", value);
        }
        samples.push("write", "theirs", 5.0);
        assert_eq!(samples.shown("write", "ours"), "20.0 (10.0–30.0)");
        assert_eq!(samples.shown("write", "theirs"), "5.00");
        assert_eq!(samples.ratio("write", "ours", "theirs"), Some(4.0));
        assert_eq!(samples.ratio("write", "ours", "nobody"), None);
        assert_eq!(samples.shown("read", "ours"), "");
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        let shown = [0.123, 12.34, 123.4, 1234.5, 123_456.0, -1500.0].map(figure);
        assert_eq!(shown, ["0.12", "12.3", "123", "1,234", "123,456", "-1,500"]);
    }

    #[test]
    fn a_section_replaces_itself_only() {
        let document =
            "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n";
        let once = replace_section(document, "x", "new\n\n").expect("markers");
        assert_eq!(
            once,
            "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"
        );
        assert_eq!(replace_section(&once, "x", "new").expect("markers"), once);
        assert!(replace_section(document, "z", "new").is_err());
    }

    #[test]
    fn findings_end_with_their_goals() {
        let mut findings = Findings::default();
        findings.say("What was done.");
        let mut table = Table::new(&["row", "calls/s"]);
        table.row(&["write".to_owned(), "5".to_owned()]);
        findings.add_table(&table);
        findings.goals.push(Goal::at_least("rate", 2.0, Some(1.0)));
        let text = findings.markdown();
        assert!(
            text.starts_with("What was done.\n\n| row | calls/s |\n|---|--:|\n| write | 5 |\n\n")
        );
        assert!(text.ends_with("| rate | ≥ 2.00 | 1.00 | **missed** |\n"), "{text}");
        assert_eq!(findings.misses(), 1);
        assert_eq!(findings.json()["goals"][0]["is_met"], false);
    }
}
