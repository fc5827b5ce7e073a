//! The state that somebody wants, as a file: groups and shares in TOML, and the batch that leads
//! there.
//!
//! A group that has a `[[group]]` is wanted as it is written, with the shares that name it
//! (`group = "NAME"`) and no others. Shares of groups without one are added or changed alone.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};
use steadfast_shares::shown;

use crate::catalog::Catalog;
use crate::configuration::document::{Document, Table};
use crate::configuration::share::{read_group, read_pattern, read_share_with};
use crate::configuration::{ConfigurationError, Place};
use crate::group::GroupFile;
use crate::manage::{
    Changes, DEFAULT_GROUP, GROUP_KEYS, GroupSpec, Operation, SHARE_KEYS, ShareSpec,
    check_group_name,
};

/// A wanted state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Groups that are to be exactly so.
    pub groups: Vec<GroupSpec>,
    /// Shares with the names of their groups.
    pub shares: Vec<(String, ShareSpec)>,
}

impl Wanted {
    /// Reads a file. What has mistakes is left out of the first value.
    pub fn parse(text: &str) -> (Self, Vec<ConfigurationError>) {
        let mut document = Document::new(text);
        let mut wanted = Self::default();
        if let Some(root) = document.parse() {
            let root = Table { entries: root.get_ref(), place: document.start() };
            document.known_keys(root, "the file", &["group", "share"]);
            let mut names = HashMap::new();
            for table in document.tables(root, "group", "group") {
                let group = group(&mut document, table, &mut names);
                wanted.groups.extend(group);
            }
            let mut paths = HashMap::new();
            for table in document.tables(root, "share", "share") {
                let share = share(&mut document, table, &mut paths);
                wanted.shares.extend(share);
            }
        }
        (wanted, document.into_errors())
    }

    /// What has to be done so that it becomes so.
    pub fn operations(&self, catalog: &Catalog) -> Vec<Operation> {
        let mut operations = Vec::new();
        for group in &self.groups {
            match catalog.file(&group.name) {
                None => operations.push(Operation::CreateGroup { group: group.clone() }),
                Some(file) => {
                    let keys: Vec<&str> = GROUP_KEYS.into_iter().chain(["pattern"]).collect();
                    if let Some(changes) = changes(&file.spec(), group, &keys) {
                        operations.push(Operation::SetGroup { name: group.name.clone(), changes });
                    }
                }
            }
        }
        for (group, share) in &self.shares {
            let path = share.path.clone();
            let known = catalog.claimed_at(&path);
            let mut written =
                known.iter().filter(|view| view.pattern.is_none() && view.group.is_some());
            let Some(first) = written.next() else {
                operations.push(Operation::AddShare { group: group.clone(), share: share.clone() });
                continue;
            };
            // Of several the last goes first.
            operations.extend(written.map(|_| Operation::RemoveShare { path: path.clone() }));
            if first.group.as_deref() != Some(group) {
                operations.push(Operation::MoveShare { path: path.clone(), group: group.clone() });
            }
            if let Some(changes) = changes(&first.spec, share, &SHARE_KEYS) {
                operations.push(Operation::SetShare { path, changes });
            }
        }
        let wanted: BTreeSet<&str> =
            self.shares.iter().map(|(_, share)| share.path.as_str()).collect();
        for group in &self.groups {
            for path in catalog.file(&group.name).into_iter().flat_map(GroupFile::paths) {
                if !wanted.contains(&**path) {
                    operations.push(Operation::RemoveShare { path: path.to_string() });
                }
            }
        }
        operations
    }
}

/// Where a file says what an operation that came of it does: its group or share, and there the
/// field, as mistakes name it (`rule[0].clients[1]`). `None` for what it does not say itself.
pub fn place_in(text: &str, operation: &Operation, field: &str) -> Option<Place> {
    places_in(text, &[(operation, field)]).pop().flatten()
}

/// The same for many operations and fields, in their order: the file is read once.
pub fn places_in(text: &str, asked: &[(&Operation, &str)]) -> Vec<Option<Place>> {
    let mut document = Document::new(text);
    let Some(root) = document.parse() else { return vec![None; asked.len()] };
    let root = Table { entries: root.get_ref(), place: document.start() };
    // As paths, so that a slash more or less counts for nothing. Of several alike the first.
    let mut known: HashMap<(&str, PathBuf), Table<'_>> = HashMap::new();
    for (kind, key) in [("group", "name"), ("share", "path")] {
        for table in document.tables(root, kind, kind) {
            if let Some(name) = document.text(table, key) {
                known.entry((kind, PathBuf::from(name))).or_insert(table);
            }
        }
    }
    let mut place = |operation: &Operation, field: &str| {
        let (kind, name) = match operation {
            Operation::CreateGroup { group } => ("group", &group.name),
            Operation::SetGroup { name, .. } => ("group", name),
            Operation::AddShare { share, .. } => ("share", &share.path),
            Operation::SetShare { path, .. } | Operation::MoveShare { path, .. } => ("share", path),
            Operation::DeleteGroup { .. } | Operation::RemoveShare { .. } => return None,
        };
        let table = *known.get(&(kind, PathBuf::from(name)))?;
        place_of(&mut document, table, field)
    };
    asked.iter().map(|(operation, field)| place(operation, field)).collect()
}

/// Where a table says a field: `rule[0].clients[1]`.
fn place_of(document: &mut Document<'_>, table: Table<'_>, field: &str) -> Option<Place> {
    let (rule, field) = match field.strip_prefix("rule[").and_then(|rest| rest.split_once(']')) {
        Some((rule, rest)) => (rule.parse::<usize>().ok(), rest.trim_start_matches('.')),
        None => (None, field),
    };
    let table = match rule {
        Some(rule) => document.tables(table, "rule", "share.rule").into_iter().nth(rule)?,
        None => table,
    };
    let Some((list, index)) = field.strip_suffix(']').and_then(|field| field.split_once('['))
    else {
        return Some(document.place_of(table, field));
    };
    Some(document.place_of_element(table, list, index.parse().ok()?))
}

/// The keys that have to be set so that one becomes the other.
fn changes<T: Serialize>(old: &T, new: &T, keys: &[&str]) -> Option<Changes> {
    let values = |spec: &T| match serde_json::to_value(spec) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    };
    let (old, mut new) = (values(old), values(new));
    let mut set = Map::new();
    for key in keys {
        let value = new.remove(*key).unwrap_or_default();
        if old.get(*key).unwrap_or(&Value::Null) != &value {
            set.insert((*key).to_owned(), value);
        }
    }
    (!set.is_empty()).then(|| Changes { set, ..Changes::default() })
}

/// Whether nothing was refused by `read`.
fn cleanly<T>(document: &mut Document<'_>, read: impl FnOnce(&mut Document<'_>) -> T) -> Option<T> {
    let before = document.errors();
    let value = read(document);
    (document.errors() == before).then_some(value)
}

fn twice(kind: &str, name: &str, first: Place) -> String {
    format!("the {kind} {} is here twice, first in line {}", shown(name), first.line)
}

fn group(
    document: &mut Document<'_>,
    table: Table<'_>,
    names: &mut HashMap<String, Place>,
) -> Option<GroupSpec> {
    cleanly(document, |document| {
        let name = document.text(table, "name").unwrap_or_default().to_owned();
        let place = document.place_of(table, "name");
        if name.is_empty() {
            document.refuse(place, "the group has no name".to_owned(), None);
        } else if let Err(what) = check_group_name(&name) {
            document.refuse(place, what, None);
        } else if let Some(first) = names.insert(name.clone(), place) {
            document.refuse(place, twice("group", &name, first), None);
        }
        // A name that is wrong was told.
        let known = if check_group_name(&name).is_ok() { name.as_str() } else { "x" };
        let mut group = read_group(document, table, known, "[[group]]", &["name", "pattern"]);
        let mut known = HashMap::new();
        for table in document.tables(table, "pattern", "group.pattern") {
            let pattern = read_pattern(document, table);
            let place = document.place_of(table, "directories");
            if let Some(first) = known.insert(pattern.directories.clone(), place) {
                let what = twice("pattern", &pattern.directories, first);
                document.refuse(place, what, None);
            }
            group.patterns.push(pattern);
        }
        group
    })
}

fn share(
    document: &mut Document<'_>,
    table: Table<'_>,
    paths: &mut HashMap<String, Place>,
) -> Option<(String, ShareSpec)> {
    cleanly(document, |document| {
        let group = document.text(table, "group").unwrap_or(DEFAULT_GROUP).to_owned();
        if let Err(what) = check_group_name(&group) {
            let place = document.place_of(table, "group");
            document.refuse(place, what, None);
        }
        let share = read_share_with(document, table, &["group"]);
        let place = document.place_of(table, "path");
        if let Some(first) = paths.insert(share.path.clone(), place) {
            document.refuse(place, twice("path", &share.path, first), None);
        }
        (group, share)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::{Batch, DefaultsSpec, PatternSpec};

    const FILE: &str = r#"
        [[group]]
        name = "home"
        clients = ["@staff"]
        [[group.pattern]]
        directories = "/t/*"

        [[share]]
        path = "/a"
        group = "home"
        options = ["ro"]

        [[share]]
        path = "/b"
        group = "home"
        [[share.rule]]
        clients = ["admin.example"]
        options = ["no_root_squash"]

        [[share]]
        path = "/c"
        clients = ["*"]
    "#;

    #[test]
    fn a_file_is_reached_from_anywhere_and_then_nothing_is_to_be_done() {
        let (wanted, errors) = Wanted::parse(FILE);
        assert_eq!(errors, []);
        for files in [
            vec![],
            vec![("home", "[[share]]\npath = \"/x\"\n[[share]]\npath = \"/a\"\nid = 7\n")],
            vec![
                ("other", "[[share]]\npath = \"/b\"\nclients = [\"::1\"]\n"),
                ("home", "log = 1\n"),
            ],
        ] {
            let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
            for (name, text) in &files {
                catalog.insert(GroupFile::parse(name, text));
            }
            if files.iter().any(|(_, text)| text.starts_with("log")) {
                // What is not written right is not written over.
                let operations = wanted.operations(&catalog);
                let batch = Batch { operations, ..Batch::default() };
                assert!(catalog.apply(&batch).is_err());
                continue;
            }
            let operations = wanted.operations(&catalog);
            catalog.apply(&Batch { operations, ..Batch::default() }).expect("no mistakes");
            assert_eq!(wanted.operations(&catalog), []);
            let paths: Vec<_> = catalog.shares().map(|view| view.spec.path).collect();
            assert_eq!(paths.len(), 3, "{paths:?}");
            assert!(!paths.contains(&"/x".to_owned()));
        }
    }

    #[test]
    fn a_share_that_is_written_twice_is_wanted_once() {
        let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
        for (name, id) in [("a", 1), ("b", 2)] {
            let text = format!("[[share]]\npath = \"/a\"\nid = {id}\nclients = [\"*\"]\n");
            catalog.insert(GroupFile::parse(name, &text));
        }
        let text = "[[share]]\ngroup = \"b\"\npath = \"/a\"\nclients = [\"*\"]\n";
        let (wanted, errors) = Wanted::parse(text);
        assert_eq!(errors, []);
        let operations = wanted.operations(&catalog);
        catalog.apply(&Batch { operations, ..Batch::default() }).expect("no mistakes");
        assert_eq!(wanted.operations(&catalog), []);
        let views = catalog.shares_at("/a");
        assert_eq!((views.len(), views[0].group.as_deref()), (1, Some("b")));
    }

    #[test]
    fn a_pattern_is_wanted_once() {
        let text = "[[group]]\nname = \"g\"\nclients = [\"*\"]\n\
                    [[group.pattern]]\ndirectories = \"/t/*\"\n\
                    [[group.pattern]]\ndirectories = \"/t/*/\"\n";
        let (wanted, errors) = Wanted::parse(text);
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["7:15: the pattern \"/t/*\" is here twice, first in line 5"]);
        assert!(wanted.groups.is_empty());
        // Nor by a tool.
        let pattern = |directories: &str| PatternSpec {
            directories: directories.to_owned(),
            ..PatternSpec::default()
        };
        let twice = GroupSpec {
            name: "g".to_owned(),
            clients: vec!["*".to_owned()],
            patterns: vec![pattern("/t/*"), pattern("/t/*/")],
            ..GroupSpec::default()
        };
        let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
        let batch = |operation| Batch { operations: vec![operation], ..Batch::default() };
        let refused = catalog.apply(&batch(Operation::CreateGroup { group: twice.clone() }));
        assert!(refused.expect_err("twice")[0].what.contains("twice"));
        catalog.insert(GroupFile::parse("g", "clients = [\"*\"]\n"));
        let old = GroupSpec { patterns: Vec::new(), ..twice.clone() };
        let changes = changes(&old, &twice, &["pattern"]).expect("changes");
        let set = Operation::SetGroup { name: "g".to_owned(), changes };
        assert!(catalog.apply(&batch(set)).expect_err("twice")[0].what.contains("twice"));
    }

    #[test]
    fn mistakes_are_told_and_the_rest_is_read() {
        let text = "[[group]]\nclients = [\"*\"]\n[[group]]\nname = \"a b\"\n[[share]]\npath = \"/a\"\n\
                    grup = \"x\"\n[[share]]\npath = \"/b\"\n[[share]]\npath = \"/b/\"\n[defaults]\n";
        let (wanted, errors) = Wanted::parse(text);
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "1:1: the group has no name",
                "4:8: a group's name may have letters, digits, \"-\", \"_\" and \".\" alone: \"a b\"",
                "7:1: unknown key \"grup\" in [[share]]; did you mean \"group\"?",
                "11:8: the path \"/b\" is here twice, first in line 9",
                "12:2: unknown key \"defaults\" in the file",
            ]
        );
        assert_eq!(wanted.shares.len(), 1);
    }

    #[test]
    fn mistakes_are_told_where_the_file_has_them() {
        let (wanted, _) = Wanted::parse(FILE);
        let catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
        let operations = wanted.operations(&catalog);
        let place = |operation: usize, field: &str| {
            place_in(FILE, &operations[operation], field).map(|place| (place.line, place.column))
        };
        assert_eq!(place(0, "clients[0]"), Some((4, 20)));
        assert_eq!(place(1, "options[0]"), Some((11, 20)));
        assert_eq!(place(1, "options[7]"), Some((11, 19)), "the list, if it has no such one");
        assert_eq!(place(2, "rule[0].options[0]"), Some((18, 20)));
        assert_eq!(place(2, "path"), Some((14, 16)));
        assert_eq!(place(2, ""), Some((13, 9)));
        let gone = Operation::RemoveShare { path: "/a".to_owned() };
        assert_eq!(place_in(FILE, &gone, ""), None);
        // Many at once.
        let asked: Vec<_> = operations.iter().map(|operation| (operation, "")).collect();
        let each: Vec<_> = asked.iter().map(|(one, field)| place_in(FILE, one, field)).collect();
        assert_eq!(places_in(FILE, &asked), each);
        assert!(each.iter().all(Option::is_some));
        assert_eq!(places_in("[", &asked), vec![None; asked.len()]);
    }
}
