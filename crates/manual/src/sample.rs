//! A page of a sample file: comments before a key or a table say what it is, and the sample's value is shown.

use std::fmt::Write;

use super::{Edition, Page, roff};

/// What one line of a sample is.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// `[server]`, also as a comment.
    Table(&'a str),
    /// `key = value`, also as a comment.
    Key {
        name: &'a str,
        value: &'a str,
    },
    Text(&'a str),
    Empty,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        let text = line.strip_prefix('#').unwrap_or(line).trim();
        if text.is_empty() {
            return Self::Empty;
        }
        if text.starts_with('[') && text.ends_with(']') {
            return Self::Table(text);
        }
        let is_key = |name: &str| {
            !name.is_empty()
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        match text.split_once(" = ") {
            Some((name, value)) if is_key(name) => Self::Key { name, value },
            _ => Self::Text(text),
        }
    }
}

/// A page about a file of which this is a sample; what precedes its first table is about the whole.
/// `more` are further sections.
pub(super) fn page(
    edition: &Edition,
    name: &str,
    what: &str,
    path: &str,
    sample: &str,
    more: &str,
) -> Page {
    let mut text = roff::head(name, 5, edition);
    // Writing to a string cannot fail.
    let _ = writeln!(text, ".SH NAME\n{} \\- {what}", roff::escaped(name));
    let _ = writeln!(text, ".SH SYNOPSIS\n{}", roff::escaped(path));
    text += ".SH DESCRIPTION\nThe file is TOML. Keys that are not known are mistakes.\n\
             Values shown below are the defaults, or examples.\n";
    let mut said: Vec<&str> = Vec::new();
    let (mut has_table, mut is_first) = (false, true);
    for line in sample.lines().map(Line::of) {
        match line {
            Line::Text(line) => said.push(line),
            // What is said of the file itself ends with its first empty line.
            Line::Empty if is_first => {
                said.clear();
                is_first = false;
            }
            Line::Empty => {}
            Line::Table(table) => {
                if !has_table && !text.contains(".SH KEYS") {
                    text += ".SH KEYS\n";
                }
                has_table = true;
                let _ = writeln!(text, ".SS {}\n{}", roff::escaped(table), paragraph(&said));
                said.clear();
            }
            Line::Key { name, value } => {
                if !has_table && !text.contains(".SH KEYS") {
                    text += ".SH KEYS\n.SS \"Above all tables\"\n";
                }
                let (name, value) = (roff::escaped(name), roff::escaped(value));
                let _ = writeln!(text, ".TP\n\\fB{name}\\fR = {value}\n{}", paragraph(&said));
                said.clear();
            }
        }
    }
    text += more;
    text += ".SH EXAMPLES\n";
    text += &roff::literal(&without_comments(sample));
    text += &roff::see_also(&[("steadfast", 1), ("steadfast-check-config", 1), ("exports", 5)]);
    Page { file: format!("{name}.5"), text }
}

fn paragraph(said: &[&str]) -> String {
    said.iter().map(|line| roff::markdown(line)).collect::<Vec<_>>().join("\n")
}

/// What a sample sets.
fn without_comments(sample: &str) -> String {
    let lines = sample.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// The keys of one table of a sample that have a text; `""`: those above all tables.
#[cfg(test)]
pub(super) fn keys<'a>(sample: &'a str, wanted: &str) -> Vec<&'a str> {
    let (mut table, mut has_text, mut keys) = ("", false, Vec::new());
    for line in sample.lines().map(Line::of) {
        match line {
            Line::Table(name) => (table, has_text) = (name, false),
            Line::Key { name, .. } => {
                if table == wanted && has_text {
                    keys.push(name);
                }
                has_text = false;
            }
            Line::Text(_) => has_text = true,
            Line::Empty => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        assert_eq!(Line::of("# [[share.rule]]"), Line::Table("[[share.rule]]"));
        assert_eq!(Line::of("# a_b = [1] "), Line::Key { name: "a_b", value: "[1]" });
        assert_eq!(Line::of("x = \"y\""), Line::Key { name: "x", value: "\"y\"" });
        assert_eq!(
            Line::of("# With protocols = [\"x\"]."),
            Line::Text("With protocols = [\"x\"].")
        );
        assert_eq!(Line::of("#"), Line::Empty);
    }

    #[test]
    fn a_key_without_a_text_is_missed() {
        let sample = "# file\n\n# about\n[a]\n# text\n# b = 1\nc = 2\n# text\nd = 3\n";
        assert_eq!(keys(sample, "[a]"), ["b", "d"]);
    }

    #[test]
    fn the_samples_are_what_the_server_reads() {
        use steadfast_catalog::Configuration;
        let lines = super::super::CONFIGURATION.lines();
        let lines = lines.filter(|line| !matches!(Line::of(line), Line::Text(_)));
        let lines: Vec<_> = lines.map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let all = lines.join("\n");
        Configuration::parse(&all).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{all}"));
        assert!(Configuration::parse(&all.replace("udp = true", "udpp = true")).is_err());
    }
}
