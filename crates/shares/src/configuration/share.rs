//! `[defaults]` and `[[share]]`: what is exported, to whom.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::coverage::Coverage;
use super::document::{Document, Table};
use super::{Place, Placed};
use crate::model::{ClientPattern, ClientRule, Rights, Share, ShareId};
use crate::options::{Contradictions, ShareOptions, shown};
use crate::rules::RuleSet;

const SHARE_KEYS: [&str; 7] = ["path", "directory", "options", "clients", "id", "log", "rule"];
const RULE_KEYS: [&str; 2] = ["clients", "options"];

/// Longest path that the MOUNT protocol can ask for (RFC 1813 §5.1.3), in bytes.
const PATH_BYTES_MAX: usize = 1024;

/// `[[share]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSettings {
    /// The share; its directory is as it was written, symbolic links and all.
    pub share: Share,
    /// Where the path was written.
    pub path_place: Place,
    /// Where the directory was written: the path if there is none apart.
    pub directory_place: Place,
    /// Where the id was written: the path if it is derived.
    pub id_place: Place,
}

/// `[defaults]`
#[derive(Debug, Default)]
pub(super) struct Defaults {
    options: ShareOptions,
    /// For shares that name no clients themselves.
    clients: Vec<Placed<ClientPattern>>,
}

pub(super) fn read_defaults(document: &mut Document<'_>, root: Table<'_>) -> Defaults {
    let Some(table) = document.table(root, "defaults") else {
        return Defaults::default();
    };
    document.known_keys(table, "[defaults]", &["options", "clients"]);
    Defaults {
        options: options(document, table, &ShareOptions::default()),
        clients: clients(document, table).unwrap_or_default(),
    }
}

pub(super) fn read_all(
    document: &mut Document<'_>,
    root: Table<'_>,
    defaults: &Defaults,
) -> Vec<ShareSettings> {
    let tables = document.tables(root, "share", "share");
    tables.into_iter().filter_map(|table| read(document, table, defaults)).collect()
}

fn read(
    document: &mut Document<'_>,
    table: Table<'_>,
    defaults: &Defaults,
) -> Option<ShareSettings> {
    document.known_keys(table, "[[share]]", &SHARE_KEYS);
    let path = path(document, table);
    let directory = document
        .string(table, "directory")
        .and_then(|text| absolute_path(document, "directory", &text));
    let id = document.integer(table, "id", 0, u64::MAX);
    let share_options = options(document, table, &defaults.options);
    let rules = rules(document, table, &share_options, defaults);
    if rules.len() > RuleSet::RULES_MAX {
        let what = format!("the share has more than {} clients", RuleSet::RULES_MAX);
        document.refuse(table.place, what, None);
    }
    let path = path?;
    let directory = directory
        .unwrap_or_else(|| Placed { value: PathBuf::from(&path.value), place: path.place });
    Some(ShareSettings {
        path_place: path.place,
        directory_place: directory.place,
        id_place: id.as_ref().map_or(path.place, |id| id.place),
        share: Share {
            id: id.map_or_else(|| ShareId::of_path(&path.value), |id| ShareId(id.value)),
            path: path.value.into(),
            directory: directory.value.into(),
            crosses_mounts: share_options.crosses_mounts,
            without_log: document.boolean(table, "log") == Some(false),
            is_draining: false,
            rules: Arc::new(rules.into()),
        },
    })
}

/// The rules of a share in the order in which they are asked: the particular ones of
/// `[[share.rule]]` first, then the share's own clients. Those of `[defaults]` are for shares
/// that name no clients in any form: a share with rules alone is for those clients alone.
fn rules(
    document: &mut Document<'_>,
    table: Table<'_>,
    share_options: &ShareOptions,
    defaults: &Defaults,
) -> Vec<ClientRule> {
    let rule_tables = document.tables(table, "rule", "share.rule");
    let own_clients = clients(document, table);
    let names_clients = !rule_tables.is_empty() || table.entries.contains_key("clients");
    let general_clients = if names_clients {
        own_clients.unwrap_or_default()
    } else {
        if defaults.clients.is_empty() {
            let what = "the share has no clients: nobody could mount it; write clients = [\"*\"] \
                        to let everybody in"
                .to_owned();
            document.refuse(table.place, what, None);
        }
        defaults.clients.clone()
    };
    let mut rules = Rules::default();
    for rule in rule_tables {
        read_rule(document, rule, share_options, &mut rules);
    }
    rules.add(document, general_clients, share_options);
    rules.rules
}

/// The rules of a share as they are read.
#[derive(Default)]
struct Rules {
    rules: Vec<ClientRule>,
    coverage: Coverage,
}

impl Rules {
    /// Makes a rule of each pattern. One whose clients all have an earlier rule is a mistake: it
    /// was written to change something, and changes nothing. Within one list both would say the
    /// same, so there it is none.
    fn add(
        &mut self,
        document: &mut Document<'_>,
        patterns: Vec<Placed<ClientPattern>>,
        options: &ShareOptions,
    ) {
        for pattern in &patterns {
            if let Some(first) = self.coverage.covering(&pattern.value) {
                let what = format!(
                    "{} can never match: {} at line {} covers it, and the first match decides",
                    shown(&pattern.value.to_string()),
                    shown(&first.value.to_string()),
                    first.place.line
                );
                document.refuse(pattern.place, what, None);
            }
        }
        let grants: Arc<[Rights]> = Arc::new([options.rights()]);
        for pattern in patterns {
            self.coverage.add(&pattern);
            self.rules.push(ClientRule { pattern: pattern.value, grants: Arc::clone(&grants) });
        }
    }
}

/// `[[share.rule]]`: options beside those of the share, for some clients.
fn read_rule(
    document: &mut Document<'_>,
    table: Table<'_>,
    share_options: &ShareOptions,
    rules: &mut Rules,
) {
    document.known_keys(table, "[[share.rule]]", &RULE_KEYS);
    let rule_options = options(document, table, share_options);
    if rule_options.crosses_mounts != share_options.crosses_mounts {
        let place = document.place_of(table, "options");
        let what = "crossmnt holds for a share as a whole: write it there".to_owned();
        document.refuse(place, what, None);
    }
    match clients(document, table) {
        Some(patterns) => rules.add(document, patterns, &rule_options),
        None if table.entries.contains_key("clients") => {}
        None => document.refuse(table.place, "the rule has no clients".to_owned(), None),
    }
}

fn options(document: &mut Document<'_>, table: Table<'_>, start: &ShareOptions) -> ShareOptions {
    let mut options = start.clone();
    let mut contradictions = Contradictions::default();
    for word in document.strings(table, "options").unwrap_or_default() {
        let result = contradictions.check(word.value).and_then(|()| options.apply(word.value));
        if let Err(error) = result {
            document.refuse(word.place, error.what, error.suggestion);
        }
    }
    options
}

fn clients(document: &mut Document<'_>, table: Table<'_>) -> Option<Vec<Placed<ClientPattern>>> {
    let texts = document.strings(table, "clients")?;
    if texts.is_empty() {
        let place = document.place_of(table, "clients");
        let what = "the list of clients is empty: write [\"*\"] for everybody".to_owned();
        document.refuse(place, what, None);
    }
    let mut patterns = Vec::new();
    for text in texts {
        match text.value.parse() {
            Ok(pattern) => patterns.push(Placed { value: pattern, place: text.place }),
            Err(error) => {
                let error: crate::clients::PatternError = error;
                document.refuse(text.place, error.what, error.suggestion);
            }
        }
    }
    Some(patterns)
}

/// The path that clients mount: absolute, without trailing slash.
fn path(document: &mut Document<'_>, table: Table<'_>) -> Option<Placed<String>> {
    if !table.entries.contains_key("path") {
        let suggestion = table.entries.contains_key("directory").then(|| "path".to_owned());
        document.refuse(table.place, "the share has no path".to_owned(), suggestion);
    }
    let text = document.string(table, "path")?;
    let path = absolute_path(document, "path", &text)?;
    if text.value.len() > PATH_BYTES_MAX {
        let what = format!("the path is longer than {PATH_BYTES_MAX} bytes");
        document.refuse(text.place, what, None);
        return None;
    }
    // The components again, so that `/a//b/` and `/a/b` are one path.
    let path: PathBuf = path.value.components().collect();
    Some(Placed { value: path.to_str()?.to_owned(), place: text.place })
}

/// An absolute path without `.` or `..` in it.
pub(super) fn absolute_path(
    document: &mut Document<'_>,
    key: &str,
    text: &Placed<&str>,
) -> Option<Placed<PathBuf>> {
    let path = Path::new(text.value);
    let has_dots = text.value.split('/').any(|part| part == "." || part == "..");
    let (problem, suggestion) = if text.value.contains('\0') {
        ("must not contain NUL", None)
    } else if !path.is_absolute() {
        let is_plain = !has_dots && !text.value.is_empty();
        ("must be absolute", is_plain.then(|| format!("/{}", text.value)))
    } else if has_dots || path.components().any(|c| c == Component::ParentDir) {
        ("must not have \".\" or \"..\" in it", None)
    } else {
        return Some(Placed { value: path.to_owned(), place: text.place });
    };
    document.refuse(text.place, format!("{key} {} {problem}", shown(text.value)), suggestion);
    None
}
