//! Changes keys of a table in the text it was read from, so that comments and layout stay.
//!
//! What comes of it is read again and compared with what is wanted by the caller, who else writes
//! the table anew: this may give up on whatever is written in an uncommon way.

use std::fmt::Write;
use std::ops::Range;

use steadfast_shares::RuleSpec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::segments::first_line;
use super::writing::{Value, Values, quoted, rule_text};

/// A table in a text.
pub(super) struct TableText<'a> {
    pub(super) text: &'a str,
    pub(super) table: &'a DeTable<'a>,
    /// Whether a header is above it: `[[share]]`.
    pub(super) has_header: bool,
}

/// Places of the text and what comes there.
#[derive(Default)]
struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
    fn put(&mut self, range: Range<usize>, text: String) {
        self.0.push((range, text));
    }

    /// The text with all changes made; `None` if they do not go together.
    fn apply(mut self, text: &str) -> Option<String> {
        self.0.sort_by_key(|(range, _)| (range.start, range.end));
        let mut changed = String::with_capacity(text.len() + 64);
        let mut position = 0;
        for (range, new) in self.0 {
            // Two that take text out may overlap.
            if range.start < position && !new.is_empty() {
                return None;
            }
            changed += text.get(position..range.start.max(position))?;
            changed += &new;
            position = position.max(range.end);
        }
        changed += text.get(position..)?;
        Some(changed)
    }
}

impl TableText<'_> {
    /// The text with other values of keys, and other rules; `None` if it has to be written anew.
    pub(super) fn with(
        &self,
        old: &Values<'_>,
        new: &Values<'_>,
        rules: (&[RuleSpec], &[RuleSpec]),
    ) -> Option<String> {
        let mut splices = Splices::default();
        let mut added = String::new();
        for ((key, old), (_, new)) in old.iter().zip(new) {
            if old == new {
                continue;
            }
            let written = self.table.get_key_value(*key);
            match (written, new) {
                (None, None) => {}
                (None, Some(value)) => {
                    let _ = writeln!(added, "{key} = {value}");
                }
                (Some((key, value)), None) => {
                    let start = self.line_start(key.span().start);
                    splices.put(start..self.line_end(value.span().end), String::new());
                }
                (Some((_, value)), Some(new)) => {
                    self.replace(value, old.as_ref(), new, &mut splices);
                }
            }
        }
        if !added.is_empty() {
            let at = self.end_of_keys()?;
            splices.put(at..at, self.indented(&added));
        }
        if rules.0 != rules.1 {
            self.replace_rules(rules.0, rules.1, &mut splices)?;
        }
        splices.apply(self.text)
    }

    fn replace(
        &self,
        value: &Spanned<DeValue<'_>>,
        old: Option<&Value<'_>>,
        new: &Value<'_>,
        splices: &mut Splices,
    ) {
        if let (Some(Value::List(old)), Value::List(new), Some(elements)) =
            (old, new, value.get_ref().as_array())
        {
            let spans: Vec<_> = elements.iter().map(Spanned::span).collect();
            if self.edit_list(&spans, old, new, splices) {
                return;
            }
        }
        splices.put(value.span(), new.to_string());
    }

    /// Takes elements out of a list and adds others behind the last; `false` if that does not
    /// make it the new one.
    fn edit_list(
        &self,
        spans: &[Range<usize>],
        old: &[String],
        new: &[String],
        splices: &mut Splices,
    ) -> bool {
        let mut wanted = new.iter().peekable();
        let is_kept: Vec<bool> =
            old.iter().map(|element| wanted.next_if_eq(&element).is_some()).collect();
        let Some(last_kept) = is_kept.iter().rposition(|is_kept| *is_kept) else { return false };
        if spans.len() != old.len() {
            return false;
        }
        for (index, span) in spans.iter().enumerate() {
            if is_kept.get(index) == Some(&true) {
                continue;
            }
            let range = self.own_lines(span).unwrap_or_else(|| {
                let next = spans.get(index + 1).filter(|_| index < last_kept);
                let before = index.checked_sub(1).and_then(|before| spans.get(before));
                match (next, before) {
                    (Some(next), _) => span.start..next.start,
                    (None, Some(before)) => before.end..span.end,
                    (None, None) => span.clone(),
                }
            });
            splices.put(range, String::new());
        }
        let Some(last) = spans.get(last_kept) else { return false };
        let added: Vec<_> = wanted.map(|element| quoted(element)).collect();
        if added.is_empty() {
            return true;
        }
        if let Some(lines) = self.own_lines(last) {
            let rest = self.text.get(last.end..).unwrap_or_default();
            if !rest.trim_start_matches([' ', '\t']).starts_with(',') {
                splices.put(last.end..last.end, ",".to_owned());
            }
            let indent = self.text.get(lines.start..last.start).unwrap_or_default();
            let mut text = String::new();
            for element in added {
                let _ = writeln!(text, "{indent}{element},");
            }
            splices.put(lines.end..lines.end, text);
        } else {
            splices.put(last.end..last.end, format!(", {}", added.join(", ")));
        }
        true
    }

    /// The lines of an element that has them for itself, with its comma and comment.
    fn own_lines(&self, span: &Range<usize>) -> Option<Range<usize>> {
        let start = self.line_start(span.start);
        let end = self.line_end(span.end);
        let before = self.text.get(start..span.start)?;
        let behind = self.text.get(span.end..end)?.trim();
        let behind = behind.strip_prefix(',').unwrap_or(behind).trim_start();
        let is_alone = before.trim().is_empty() && (behind.is_empty() || behind.starts_with('#'));
        is_alone.then_some(start..end)
    }

    fn line_start(&self, at: usize) -> usize {
        self.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
    }

    /// The end of the line, behind its newline.
    fn line_end(&self, at: usize) -> usize {
        at + first_line(self.text.get(at..).unwrap_or_default()).len()
    }

    /// Where keys can be added: behind the last, or behind the header.
    fn end_of_keys(&self) -> Option<usize> {
        let own = self.table.iter().filter(|(key, _)| key.get_ref() != "rule");
        match own.map(|(_, value)| value.span().end).max() {
            Some(end) => Some(self.line_end(end)),
            None if self.has_header => Some(self.line_end(self.header()?)),
            None => Some(self.text.len()),
        }
    }

    /// Where the header is.
    fn header(&self) -> Option<usize> {
        let mut position = 0;
        while position < self.text.len() {
            let line = first_line(self.text.get(position..)?);
            if line.trim_start().starts_with('[') {
                return Some(position);
            }
            position += line.len();
        }
        None
    }

    /// Lines with as much space before them as the first key has.
    fn indented(&self, lines: &str) -> String {
        let first = self.table.keys().map(|key| key.span().start).min();
        let indent = first.and_then(|first| self.text.get(self.line_start(first)..first));
        let indent = indent.filter(|indent| indent.trim().is_empty()).unwrap_or_default();
        let mut text = String::new();
        for line in lines.lines() {
            let _ = writeln!(text, "{indent}{line}");
        }
        text
    }

    /// Writes other rules; those that stay keep their text.
    fn replace_rules(
        &self,
        old: &[RuleSpec],
        new: &[RuleSpec],
        splices: &mut Splices,
    ) -> Option<()> {
        let mut blocks = Vec::new();
        if let Some(rules) = self.table.get("rule") {
            for rule in rules.get_ref().as_array()? {
                let start = rule.span().start;
                if !self.text.get(start..)?.starts_with('[') {
                    // Written within one line: `rule = [{…}]`.
                    return None;
                }
                blocks.push(self.with_comments(self.line_start(start)));
            }
        }
        if blocks.len() != old.len() {
            return None;
        }
        let first = blocks.first().copied().unwrap_or(self.text.len());
        blocks.push(self.text.len());
        let block = |index: usize| self.text.get(*blocks.get(index)?..*blocks.get(index + 1)?);
        let mut text = String::new();
        let mut rest = old.iter().enumerate();
        for rule in new {
            match rest.clone().find(|(_, old)| *old == rule) {
                Some((index, _)) => {
                    text += block(index)?;
                    rest = old.iter().enumerate();
                    rest.nth(index);
                }
                None => text += &rule_text(rule),
            }
        }
        splices.put(first..self.text.len(), text);
        Some(())
    }

    /// The start of the comments and empty lines directly above a line.
    fn with_comments(&self, line: usize) -> usize {
        let mut start = line;
        while let Some(newline) = start.checked_sub(1) {
            let above = self.line_start(newline);
            let text = self.text.get(above..newline).unwrap_or_default().trim();
            if !(text.is_empty() || text.starts_with('#')) {
                break;
            }
            start = above;
        }
        start
    }
}
