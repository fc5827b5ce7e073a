//! Shares, groups and patterns as TOML, the way these tools write it.

use std::fmt::Write;

use steadfast_shares::RuleSpec;

use crate::manage::{GroupSpec, PatternSpec, ShareSpec};

/// Longest array that is written in one line, in bytes.
const LINE_BYTES: usize = 88;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Flag(bool),
    List(&'a [String]),
}

/// Keys in the order in which they are written, with their values if they have one.
pub(super) type Values<'a> = Vec<(&'static str, Option<Value<'a>>)>;

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(elements) => {
                let elements: Vec<_> = elements.iter().map(|element| quoted(element)).collect();
                let line = format!("[{}]", elements.join(", "));
                if line.len() <= LINE_BYTES || elements.len() < 2 {
                    return f.write_str(&line);
                }
                f.write_str("[\n")?;
                for element in elements {
                    writeln!(f, "    {element},")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A string between quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn text(value: Option<&String>) -> Option<Value<'_>> {
    value.map(|text| Value::Text(text))
}

fn flag(value: Option<bool>) -> Option<Value<'static>> {
    value.map(Value::Flag)
}

fn list(values: &[String]) -> Option<Value<'_>> {
    (!values.is_empty()).then_some(Value::List(values))
}

/// The keys of a share, without its rules.
pub(super) fn share_values(spec: &ShareSpec) -> Values<'_> {
    vec![
        ("path", Some(Value::Text(&spec.path))),
        ("directory", text(spec.directory.as_ref())),
        ("id", spec.id.map(Value::Number)),
        ("description", text(spec.description.as_ref())),
        ("resource", text(spec.resource.as_ref())),
        ("protocols", list(&spec.protocols)),
        ("options", list(&spec.options)),
        ("clients", list(&spec.clients)),
        ("log", flag(spec.log)),
        ("enabled", flag(spec.enabled)),
        ("draining", flag(spec.draining)),
    ]
}

/// The keys of a pattern.
pub(super) fn pattern_values(spec: &PatternSpec) -> Values<'_> {
    vec![
        ("directories", Some(Value::Text(&spec.directories))),
        ("except", list(&spec.except)),
        ("options", list(&spec.options)),
        ("clients", list(&spec.clients)),
        ("mounted", flag(spec.mounted)),
    ]
}

/// The keys of a group, without its name and patterns.
pub(super) fn group_values(spec: &GroupSpec) -> Values<'_> {
    vec![
        ("description", text(spec.description.as_ref())),
        ("options", list(&spec.options)),
        ("clients", list(&spec.clients)),
        ("protocols", list(&spec.protocols)),
        ("enabled", flag(spec.enabled)),
    ]
}

/// The keys of a rule.
fn rule_values(spec: &RuleSpec) -> Values<'_> {
    vec![("clients", list(&spec.clients)), ("options", list(&spec.options))]
}

/// Lines `key = value`.
pub(super) fn lines(values: &Values<'_>) -> String {
    let mut lines = String::new();
    for (key, value) in values {
        if let Some(value) = value {
            let _ = writeln!(lines, "{key} = {value}");
        }
    }
    lines
}

/// A segment for the share, with an empty line before it.
pub(super) fn share_text(spec: &ShareSpec) -> String {
    let mut text = format!("\n[[share]]\n{}", lines(&share_values(spec)));
    for rule in &spec.rules {
        text += &rule_text(rule);
    }
    text
}

/// `[[share.rule]]`
pub(super) fn rule_text(rule: &RuleSpec) -> String {
    format!("[[share.rule]]\n{}", lines(&rule_values(rule)))
}

/// A segment for the pattern, with an empty line before it.
pub(super) fn pattern_text(spec: &PatternSpec) -> String {
    format!("\n[[pattern]]\n{}", lines(&pattern_values(spec)))
}

/// What stands before a group's shares.
pub(super) fn group_text(spec: &GroupSpec) -> String {
    lines(&group_values(spec))
}
