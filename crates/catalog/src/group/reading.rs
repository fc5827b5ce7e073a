//! What a segment says.

use steadfast_shares::FieldMistake;
use toml::Spanned;
use toml::de::DeTable;

use super::segments::Kind;
use crate::configuration::document::{Document, Table};
use crate::configuration::share::{read_group, read_pattern, read_share, refuse_words};
use crate::configuration::{ConfigurationError, Place};
use crate::manage::{GroupSpec, PatternSpec, ShareSpec};

/// A segment's meaning and the mistakes in it, as if it began in line 1.
pub(super) struct Read<T> {
    pub(super) spec: T,
    pub(super) mistakes: Vec<ConfigurationError>,
}

/// The table that the header of a segment begins.
pub(super) fn header_table<'t>(
    document: &Document<'_>,
    root: &'t Spanned<DeTable<'t>>,
    key: &str,
) -> Option<Table<'t>> {
    let element = root.get_ref().get(key)?.get_ref().as_array()?.first()?;
    Some(Table { entries: element.get_ref().as_table()?, place: document.place(&element.span()) })
}

/// Reads a segment with a header. Where something is no TOML, only that is told, and what could be
/// read is the meaning.
fn read<T: Default>(
    text: &str,
    key: &'static str,
    reader: impl Fn(&mut Document<'_>, Table<'_>) -> T,
) -> Read<T> {
    let mut document = Document::new(text);
    let Some(root) = document.parse_what_can_be() else {
        return Read { spec: T::default(), mistakes: document.into_errors() };
    };
    let is_toml = document.has_no_errors();
    let whole = Table { entries: root.get_ref(), place: document.start() };
    refuse_strangers(&mut document, whole, key);
    let spec = match header_table(&document, &root, key) {
        Some(table) if is_toml => reader(&mut document, table),
        // What follows from a mistake of syntax is not told.
        Some(table) => reader(&mut Document::new(text), table),
        None => {
            if is_toml {
                let place = document.place_of(whole, key);
                let what = format!("write each {key} below a header of its own: [[{key}]]");
                document.refuse(place, what, None);
            }
            T::default()
        }
    };
    Read { spec, mistakes: document.into_errors() }
}

/// Tables that stand below a header to which they do not belong.
fn refuse_strangers(document: &mut Document<'_>, root: Table<'_>, key: &str) {
    for (other, _) in root.entries.iter().filter(|(other, _)| other.get_ref() != key) {
        let place = document.place(&other.span());
        let what = match other.get_ref().as_ref() {
            "share" => "[[share.rule]] belongs below its [[share]]".to_owned(),
            other => format!("[{}] is nothing that a group's file has", other.escape_debug()),
        };
        document.refuse(place, what, None);
    }
}

pub(super) fn share(text: &str) -> Read<ShareSpec> {
    read(text, "share", read_share)
}

pub(super) fn pattern(text: &str) -> Read<PatternSpec> {
    read(text, "pattern", read_pattern)
}

/// What no header that is known begins.
pub(super) fn other(text: &str) -> Vec<ConfigurationError> {
    let mut document = Document::new(text);
    if let Some(root) = document.parse() {
        let root = Table { entries: root.get_ref(), place: document.start() };
        document.known_keys(root, "a group's file", &["share", "pattern"]);
        if root.entries.contains_key("share") {
            let place = document.place_of(root, "share");
            document.refuse(place, "[[share.rule]] belongs below its [[share]]".to_owned(), None);
        }
    }
    document.into_errors()
}

/// What stands before the first header.
pub(super) fn preamble(name: &str, text: &str) -> Read<GroupSpec> {
    const ELSEWHERE: [&str; 2] = ["share", "pattern"];
    let mut document = Document::new(text);
    let spec = document.parse_what_can_be().map(|root| {
        let root = Table { entries: root.get_ref(), place: document.start() };
        let reader =
            |document: &mut Document<'_>| read_group(document, root, name, "a group", &ELSEWHERE);
        if !document.has_no_errors() {
            return reader(&mut Document::new(text));
        }
        refuse_misplaced(&mut document, root);
        reader(&mut document)
    });
    let spec = spec.unwrap_or_else(|| GroupSpec { name: name.to_owned(), ..GroupSpec::default() });
    Read { spec, mistakes: document.into_errors() }
}

fn refuse_misplaced(document: &mut Document<'_>, root: Table<'_>) {
    for key in ["share", "pattern"] {
        if root.entries.contains_key(key) {
            let place = document.place_of(root, key);
            let what = format!("write each {key} below a header of its own: [[{key}]]");
            document.refuse(place, what, None);
        }
    }
}

/// Mistakes of fields of a segment, at their places in it.
pub(super) fn placed(text: &str, kind: Kind, mistakes: &[FieldMistake]) -> Vec<ConfigurationError> {
    let mut document = Document::new(text);
    let Some(root) = document.parse_what_can_be() else { return Vec::new() };
    let whole = Table { entries: root.get_ref(), place: Place { line: 1, column: 1 } };
    let table = match kind {
        Kind::Share => header_table(&document, &root, "share"),
        Kind::Pattern => header_table(&document, &root, "pattern"),
        _ => None,
    };
    let mut told = Document::new(text);
    refuse_words(&mut told, table.unwrap_or(whole), mistakes);
    told.into_errors()
}
