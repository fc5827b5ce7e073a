//! A TOML document with places, and the list of mistakes found in it.

use std::cell::OnceCell;
use std::ops::Range;

use steadfast_shares::{nearest, shown};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigurationError, ERRORS_MAX, Place, Placed, TEXT_BYTES_MAX};

/// A table of the document, with the bytes it was written in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) entries: &'a DeTable<'a>,
    pub(crate) place: Place,
}

/// The document and what is wrong with it.
pub(crate) struct Document<'a> {
    text: &'a str,
    /// The number of the text's first line, where it is a part of a file.
    first_line: usize,
    /// Made when the first mistake is told: most texts have none.
    line_starts: OnceCell<Vec<usize>>,
    errors: Vec<ConfigurationError>,
    /// How many there were, those that are not kept among them.
    refused: usize,
}

impl<'a> Document<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::part(text, 1)
    }

    /// A part of a file, which begins at this line.
    pub(crate) fn part(text: &'a str, first_line: usize) -> Self {
        Self { text, first_line, line_starts: OnceCell::new(), errors: Vec::new(), refused: 0 }
    }

    fn line_starts(&self) -> &[usize] {
        self.line_starts.get_or_init(|| {
            let starts = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(starts.map(|(index, _)| index + 1)).collect()
        })
    }

    /// The place of the text's first character.
    pub(crate) fn start(&self) -> Place {
        Place { line: self.first_line, column: 1 }
    }

    /// Parses the text; `None` (and errors) if it is not TOML.
    pub(crate) fn parse(&mut self) -> Option<Spanned<DeTable<'a>>> {
        let root = self.parse_what_can_be()?;
        self.errors.is_empty().then_some(root)
    }

    /// Parses the text; what is not TOML is left out, with errors.
    pub(crate) fn parse_what_can_be(&mut self) -> Option<Spanned<DeTable<'a>>> {
        if self.text.len() > TEXT_BYTES_MAX {
            self.refuse(
                self.start(),
                format!("the file is longer than {TEXT_BYTES_MAX} bytes"),
                None,
            );
            return None;
        }
        let (root, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let place = self.place(&error.span().unwrap_or(0..0));
            // The parser's messages may have several lines; ours have one.
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            self.refuse(place, what, None);
        }
        Some(root)
    }

    /// How much was refused so far.
    pub(crate) fn errors(&self) -> usize {
        self.refused
    }

    /// Whether nothing was refused so far.
    pub(crate) fn has_no_errors(&self) -> bool {
        self.errors.is_empty()
    }

    /// All mistakes by place.
    pub(crate) fn into_errors(mut self) -> Vec<ConfigurationError> {
        self.errors.sort_by_key(|error| error.place);
        self.errors
    }

    pub(crate) fn place(&self, span: &Range<usize>) -> Place {
        let offset = span.start.min(self.text.len());
        let line = self.line_starts().partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts().get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count()) + 1;
        Place { line: self.first_line + line - 1, column }
    }

    pub(crate) fn refuse(&mut self, place: Place, what: String, suggestion: Option<String>) {
        self.refused += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(ConfigurationError { place, what, suggestion });
        }
    }

    /// Refuses keys of a table that nobody reads.
    pub(crate) fn known_keys(&mut self, table: Table<'_>, whose: &str, known: &[&str]) {
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
    pub(crate) fn table<'t>(&mut self, parent: Table<'t>, key: &str) -> Option<Table<'t>> {
        let value = parent.entries.get(key)?;
        let Some(entries) = value.get_ref().as_table() else {
            self.wrong_type(key, value, &format!("a table: [{key}]"));
            return None;
        };
        Some(Table { entries, place: self.place(&value.span()) })
    }

    /// The tables of this name, `[[name]]`; `full_name` is for messages.
    pub(crate) fn tables<'t>(
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

    pub(crate) fn string<'t>(&mut self, table: Table<'t>, key: &str) -> Option<Placed<&'t str>> {
        let value = self.text(table, key)?;
        Some(Placed { value, place: self.place_of(table, key) })
    }

    pub(crate) fn text<'t>(&mut self, table: Table<'t>, key: &str) -> Option<&'t str> {
        let value = table.entries.get(key)?;
        let string = value.get_ref().as_str();
        if string.is_none() {
            self.wrong_type(key, value, "a string");
        }
        string
    }

    pub(crate) fn boolean(&mut self, table: Table<'_>, key: &str) -> Option<bool> {
        let value = table.entries.get(key)?;
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            self.wrong_type(key, value, "true or false");
        }
        boolean
    }

    /// An integer from `least` to `most`.
    pub(crate) fn integer(
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

    /// An array of strings, each with its place.
    pub(crate) fn placed_strings<'t>(
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

    /// The place of a string of an array, else of the array, else of the table.
    pub(crate) fn place_of_element(&self, table: Table<'_>, key: &str, index: usize) -> Place {
        let elements = table.entries.get(key).and_then(|value| value.get_ref().as_array());
        match elements.and_then(|elements| elements.get(index)) {
            Some(element) => self.place(&element.span()),
            None => self.place_of(table, key),
        }
    }

    /// An array of strings.
    pub(crate) fn strings(&mut self, table: Table<'_>, key: &str) -> Option<Vec<String>> {
        let elements = table.entries.get(key)?.get_ref().as_array();
        let all: Option<Vec<String>> = elements.and_then(|elements| {
            elements.iter().map(|element| element.get_ref().as_str().map(str::to_owned)).collect()
        });
        // Anew, with places, if something is wrong.
        all.or_else(|| {
            let strings = self.placed_strings(table, key)?;
            Some(strings.into_iter().map(|string| string.value.to_owned()).collect())
        })
    }

    /// An array of strings that is not to be empty.
    pub(crate) fn words(&mut self, table: Table<'_>, key: &str, hint: &str) -> Vec<String> {
        let words = self.strings(table, key);
        if words.as_ref().is_some_and(Vec::is_empty) {
            let place = self.place_of(table, key);
            self.refuse(place, format!("the list of {key} is empty{hint}"), None);
        }
        words.unwrap_or_default()
    }

    /// The place of a key's value, else of its table.
    pub(crate) fn place_of(&self, table: Table<'_>, key: &str) -> Place {
        table.entries.get(key).map_or(table.place, |value| self.place(&value.span()))
    }
}
