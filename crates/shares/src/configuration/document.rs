//! A TOML document with places, and the list of mistakes found in it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigurationError, ERRORS_MAX, Place, Placed, TEXT_BYTES_MAX};
use crate::options::shown;
use crate::suggestion::nearest;

/// A table of the document, with the bytes it was written in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    pub(super) entries: &'a DeTable<'a>,
    pub(super) place: Place,
}

/// The document and what is wrong with it.
pub(super) struct Document<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    errors: Vec<ConfigurationError>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(starts.map(|(index, _)| index + 1)).collect();
        Self { text, line_starts, errors: Vec::new() }
    }

    /// Parses the text; `None` (and errors) if it is not TOML.
    pub(super) fn parse(&mut self) -> Option<Spanned<DeTable<'a>>> {
        if self.text.len() > TEXT_BYTES_MAX {
            let place = Place { line: 1, column: 1 };
            self.refuse(place, format!("the file is longer than {TEXT_BYTES_MAX} bytes"), None);
            return None;
        }
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let place = self.place(&error.span().unwrap_or(0..0));
            // The parser's messages may have several lines; ours have one.
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            self.refuse(place, what, None);
        }
        self.errors.is_empty().then_some(root)
    }

    /// All mistakes by place.
    pub(super) fn into_errors(mut self) -> Vec<ConfigurationError> {
        self.errors.sort_by_key(|error| error.place);
        self.errors
    }

    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        let offset = span.start.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        Place { line, column }
    }

    pub(super) fn refuse(&mut self, place: Place, what: String, suggestion: Option<String>) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ConfigurationError { place, what, suggestion });
        }
    }

    /// Refuses keys of a table that nobody reads.
    pub(super) fn known_keys(&mut self, table: Table<'_>, whose: &str, known: &[&str]) {
        for key in table.entries.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let place = self.place(&key.span());
                let suggestion = nearest(name, known.iter().copied()).map(String::from);
                self.refuse(place, format!("unknown key {} in {whose}", shown(name)), suggestion);
            }
        }
    }

    fn wrong_type(&mut self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let place = self.place(&value.span());
        self.refuse(place, format!("{key} must be {wanted}, not {found}"), None);
    }

    /// The table of this name, `[name]`.
    pub(super) fn table<'t>(&mut self, parent: Table<'t>, key: &str) -> Option<Table<'t>> {
        let value = parent.entries.get(key)?;
        let Some(entries) = value.get_ref().as_table() else {
            self.wrong_type(key, value, &format!("a table: [{key}]"));
            return None;
        };
        Some(Table { entries, place: self.place(&value.span()) })
    }

    /// The tables of this name, `[[name]]`; `full_name` is for messages.
    pub(super) fn tables<'t>(
        &mut self,
        parent: Table<'t>,
        key: &str,
        full_name: &str,
    ) -> Vec<Table<'t>> {
        let Some(value) = parent.entries.get(key) else {
            return Vec::new();
        };
        let wanted = format!("an array of tables: [[{full_name}]]");
        let Some(elements) = value.get_ref().as_array() else {
            self.wrong_type(key, value, &wanted);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for element in elements {
            match element.get_ref().as_table() {
                Some(entries) => {
                    tables.push(Table { entries, place: self.place(&element.span()) });
                }
                None => self.wrong_type(key, element, &wanted),
            }
        }
        tables
    }

    pub(super) fn string<'t>(&mut self, table: Table<'t>, key: &str) -> Option<Placed<&'t str>> {
        let value = table.entries.get(key)?;
        let Some(string) = value.get_ref().as_str() else {
            self.wrong_type(key, value, "a string");
            return None;
        };
        Some(Placed { value: string, place: self.place(&value.span()) })
    }

    pub(super) fn boolean(&mut self, table: Table<'_>, key: &str) -> Option<bool> {
        let value = table.entries.get(key)?;
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type(key, value, "true or false");
        }
        boolean
    }

    /// An integer from `least` to `most`.
    pub(super) fn integer(
        &mut self,
        table: Table<'_>,
        key: &str,
        least: u64,
        most: u64,
    ) -> Option<Placed<u64>> {
        let value = table.entries.get(key)?;
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(key, value, "an integer");
            return None;
        };
        let place = self.place(&value.span());
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.refuse(place, format!("{key} must be from {least} to {most}"), None);
        }
        number.map(|value| Placed { value, place })
    }

    /// An array of strings.
    pub(super) fn strings<'t>(
        &mut self,
        table: Table<'t>,
        key: &str,
    ) -> Option<Vec<Placed<&'t str>>> {
        let value = table.entries.get(key)?;
        let Some(elements) = value.get_ref().as_array() else {
            self.wrong_type(key, value, "an array of strings: [\"…\", \"…\"]");
            return None;
        };
        let mut strings = Vec::new();
        for element in elements {
            match element.get_ref().as_str() {
                Some(value) => {
                    strings.push(Placed { value, place: self.place(&element.span()) });
                }
                None => self.wrong_type(&format!("each of {key}"), element, "a string"),
            }
        }
        Some(strings)
    }

    /// The place of a key's value, else of its table.
    pub(super) fn place_of(&self, table: Table<'_>, key: &str) -> Place {
        table.entries.get(key).map_or(table.place, |value| self.place(&value.span()))
    }
}
