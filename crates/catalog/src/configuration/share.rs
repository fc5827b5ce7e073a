//! `[defaults]` and `[[share]]`: what is exported, to whom.

use std::path::PathBuf;
use std::sync::Arc;

use steadfast_shares::{Field, FieldMistake, Inherited, RuleBook, RuleSpec, Share, ShareId, Words};

use super::Place;
use super::document::{Document, Table};
use crate::group::KeptShare;
use crate::manage::{
    DefaultsSpec, GROUP_KEYS, GroupSpec, PATTERN_KEYS, PatternSpec, RULE_KEYS, SHARE_KEYS,
    ShareSpec,
};

/// What is told of a list of clients without any.
const EVERYBODY: &str = ": write [\"*\"] for everybody";

pub(super) const DEFAULTS_KEYS: [&str; 2] = ["options", "clients"];

/// `[[share]]` of `steadfast.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareSettings {
    /// The share; its directory is as it was written, symbolic links and all.
    pub share: Share,
    /// As it was written.
    pub spec: ShareSpec,
    /// Where the path was written.
    pub path_place: Place,
    /// Where the directory was written: the path if there is none apart.
    pub directory_place: Place,
    /// Where the id was written: the path if it is derived.
    pub id_place: Place,
}

/// `[defaults]`
pub(super) fn read_defaults(
    document: &mut Document<'_>,
    root: Table<'_>,
) -> (DefaultsSpec, Inherited) {
    let Some(table) = document.table(root, "defaults") else {
        return <(DefaultsSpec, Inherited)>::default();
    };
    document.known_keys(table, "[defaults]", &DEFAULTS_KEYS);
    let defaults = DefaultsSpec {
        options: document.strings(table, "options").unwrap_or_default(),
        clients: document.words(table, "clients", EVERYBODY),
    };
    let (inherited, mistakes) =
        Inherited::default().with(&defaults.options, &defaults.clients, &[]);
    refuse_all(document, table, &mistakes);
    (defaults, inherited)
}

/// All shares of the file.
pub(super) fn read_all(
    document: &mut Document<'_>,
    root: Table<'_>,
    defaults: Inherited,
) -> (Vec<ShareSettings>, Vec<(PathBuf, Place)>) {
    let mut directories = Vec::new();
    let defaults = Arc::new(defaults);
    let mut book = RuleBook::default();
    let mut shares = Vec::new();
    for table in document.tables(root, "share", "share") {
        let spec = read_share(document, table);
        let directory = spec.directory.as_deref().unwrap_or(&spec.path);
        if directory.starts_with('/') {
            let key = if spec.directory.is_some() { "directory" } else { "path" };
            directories.push((directory.into(), document.place_of(table, key)));
        }
        match book.compile(&defaults, spec.words()) {
            Ok(compiled) if !spec.path.is_empty() => {
                let place_of = |key| document.place_of(table, key);
                let path_place = place_of("path");
                let has = |key| table.entries.contains_key(key);
                shares.push(ShareSettings {
                    share: spec.share(&compiled),
                    path_place,
                    directory_place: if has("directory") {
                        place_of("directory")
                    } else {
                        path_place
                    },
                    id_place: if has("id") { place_of("id") } else { path_place },
                    spec,
                });
            }
            Ok(_) => {}
            Err(mistakes) => refuse_words(document, table, &mistakes),
        }
    }
    (shares, directories)
}

/// A share as it is written, checked but for its words.
pub(crate) fn read_share(document: &mut Document<'_>, table: Table<'_>) -> ShareSpec {
    read_share_with(document, table, &[])
}

/// The same, where a share may have more keys, which are read elsewhere.
pub(crate) fn read_share_with(
    document: &mut Document<'_>,
    table: Table<'_>,
    more: &[&str],
) -> ShareSpec {
    let keys: Vec<&str> = SHARE_KEYS.iter().chain(more).copied().collect();
    document.known_keys(table, "[[share]]", &keys);
    let mut spec = ShareSpec {
        path: text(document, table, "path").unwrap_or_default(),
        directory: text(document, table, "directory"),
        id: document.integer(table, "id", 0, u64::MAX).map(|id| id.value),
        description: text(document, table, "description"),
        resource: text(document, table, "resource"),
        protocols: document.words(table, "protocols", ""),
        options: document.strings(table, "options").unwrap_or_default(),
        clients: document.words(table, "clients", EVERYBODY),
        rules: Vec::new(),
        log: document.boolean(table, "log"),
        enabled: document.boolean(table, "enabled"),
        draining: document.boolean(table, "draining"),
    };
    for rule in document.tables(table, "rule", "share.rule") {
        document.known_keys(rule, "[[share.rule]]", &RULE_KEYS);
        spec.rules.push(RuleSpec {
            clients: document.words(rule, "clients", EVERYBODY),
            options: document.strings(rule, "options").unwrap_or_default(),
        });
    }
    let mistakes = spec.check();
    let is_missing = spec.path.is_empty() && table.entries.contains_key("path");
    // A path that is there and no string was told already.
    let is_told = is_missing && table.entries.get("path").is_some_and(|p| !p.get_ref().is_str());
    if is_missing && !is_told {
        let place = document.place_of(table, "path");
        document.refuse(place, "path must not be empty".to_owned(), None);
    }
    let told = mistakes.iter().filter(|mistake| !(is_missing && mistake.field == Field::Whole));
    let told: Vec<_> = told.cloned().collect();
    refuse_all(document, table, &told);
    spec
}

/// A pattern as it is written, checked but for its words.
pub(crate) fn read_pattern(document: &mut Document<'_>, table: Table<'_>) -> PatternSpec {
    document.known_keys(table, "[[pattern]]", &PATTERN_KEYS);
    let mut spec = PatternSpec {
        directories: text(document, table, "directories").unwrap_or_default(),
        except: document.strings(table, "except").unwrap_or_default(),
        options: document.strings(table, "options").unwrap_or_default(),
        clients: document.words(table, "clients", EVERYBODY),
        mounted: document.boolean(table, "mounted"),
    };
    let mistakes = spec.check();
    refuse_all(document, table, &mistakes);
    spec
}

/// A group's own keys, checked but for their words. `more` are keys that are read elsewhere.
pub(crate) fn read_group(
    document: &mut Document<'_>,
    table: Table<'_>,
    name: &str,
    whose: &str,
    more: &[&str],
) -> GroupSpec {
    let keys: Vec<&str> = GROUP_KEYS.iter().chain(more).copied().collect();
    document.known_keys(table, whose, &keys);
    let spec = GroupSpec {
        name: name.to_owned(),
        description: text(document, table, "description"),
        options: document.strings(table, "options").unwrap_or_default(),
        clients: document.words(table, "clients", EVERYBODY),
        protocols: document.words(table, "protocols", ""),
        enabled: document.boolean(table, "enabled"),
        patterns: Vec::new(),
    };
    let mistakes = spec.check();
    refuse_all(document, table, &mistakes);
    spec
}

fn text(document: &mut Document<'_>, table: Table<'_>, key: &str) -> Option<String> {
    document.text(table, key).map(str::to_owned)
}

/// Tells mistakes of fields at their places.
pub(crate) fn refuse_all(document: &mut Document<'_>, table: Table<'_>, mistakes: &[FieldMistake]) {
    for mistake in mistakes {
        let what = mistake
            .what
            .told(|field| format!("line {}", place_of_field(document, table, field).line));
        let place = place_of_field(document, table, mistake.field);
        document.refuse(place, what, mistake.suggestion.clone());
    }
}

/// Tells mistakes in words; that there are none is not told where they could not be read.
pub(crate) fn refuse_words(
    document: &mut Document<'_>,
    table: Table<'_>,
    mistakes: &[FieldMistake],
) {
    let has_clients = table.entries.contains_key("clients") || table.entries.contains_key("rule");
    let told: Vec<_> = mistakes
        .iter()
        .filter(|mistake| mistake.field != Field::Whole || !has_clients)
        .cloned()
        .collect();
    refuse_all(document, table, &told);
}

/// Where a field of a share, group or pattern is written.
pub(crate) fn place_of_field(document: &Document<'_>, table: Table<'_>, field: Field) -> Place {
    let rule = |index: usize| -> Option<Table<'_>> {
        let rules = table.entries.get("rule")?.get_ref().as_array()?;
        let rule = rules.get(index)?;
        Some(Table { entries: rule.get_ref().as_table()?, place: document.place(&rule.span()) })
    };
    let of_rule = |index, key, element| {
        rule(index).map_or(table.place, |rule| document.place_of_element(rule, key, element))
    };
    match field {
        Field::Whole => table.place,
        Field::Key(key) => document.place_of(table, key),
        Field::Option(index) => document.place_of_element(table, "options", index),
        Field::Client(index) => document.place_of_element(table, "clients", index),
        Field::Rule(index) => rule(index).map_or(table.place, |rule| rule.place),
        Field::RuleOption(index, option) => of_rule(index, "options", option),
        Field::RuleClient(index, client) => of_rule(index, "clients", client),
    }
}

impl ShareSpec {
    /// The words that make its rules.
    pub fn words(&self) -> Words<'_> {
        Words { options: &self.options, clients: &self.clients, rules: &self.rules }
    }

    /// The share that this is with rules made of its words.
    pub(crate) fn share(&self, compiled: &steadfast_shares::Compiled) -> Share {
        KeptShare::from(self.clone()).share(compiled)
    }

    /// Its number in handles.
    pub fn share_id(&self) -> ShareId {
        self.id.map_or_else(|| ShareId::of_path(&self.path), ShareId)
    }
}
