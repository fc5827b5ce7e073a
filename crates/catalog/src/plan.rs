//! The difference that edits make, key by key.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::catalog::Edit;
use crate::group::{GroupFile, Item};

/// What happens to a share or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is made.
    Add,
    /// It is taken away.
    Remove,
    /// It becomes another.
    Change,
}

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A share, by its path.
    Share,
    /// A group, by its name.
    Group,
}

impl Subject {
    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Group => "group",
        }
    }
}

/// A key of a share or a group that gets another value; `null`: none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyChange {
    /// As it is written in files. A pattern is `pattern "/tank/*"`, a share's group `group`.
    pub key: String,
    /// Before.
    pub old: Value,
    /// After.
    pub new: Value,
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// What happens.
    pub action: Action,
    /// To what.
    pub subject: Subject,
    /// The share's path, the group's name.
    pub name: String,
    /// The share's group, after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What of it: everything that is written of what is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
}

impl std::fmt::Display for PlannedChange {
    /// For people: `+` is made, `-` is taken away, `~` becomes another.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = match self.action {
            Action::Add => '+',
            Action::Remove => '-',
            Action::Change => '~',
        };
        write!(f, "{sign} {} {}", self.subject.word(), self.name)?;
        for KeyChange { key, old, new } in &self.keys {
            match (old, new) {
                (Value::Null, new) => write!(f, "\n    + {key} = {new}")?,
                (old, Value::Null) => write!(f, "\n    - {key} = {old}")?,
                (old, new) => write!(f, "\n    ~ {key} = {old} -> {new}")?,
            }
        }
        Ok(())
    }
}

/// What edits come down to, each share and group once, in the order in which they are first
/// touched. What only changes comments is left out.
pub fn planned(edits: &[Edit]) -> Vec<PlannedChange> {
    let mut plan = Planning::default();
    for edit in edits {
        plan.add(edit);
    }
    plan.items.into_iter().filter_map(Planned::finish).collect()
}

#[derive(Default)]
struct Planning {
    items: Vec<Planned>,
    places: HashMap<(Subject, String), usize>,
}

struct Planned {
    subject: Subject,
    name: String,
    was_there: bool,
    is_there: bool,
    keys: BTreeMap<String, (Value, Value)>,
}

impl Planning {
    fn add(&mut self, edit: &Edit) {
        let group = &*edit.group;
        let (before, after) = (edit.before.as_deref(), edit.after.as_deref());
        match &edit.item {
            Item::File => {
                let [before, after] =
                    [before, after].map(|text| text.map(|text| GroupFile::parse(group, text)));
                self.note(
                    Subject::Group,
                    group,
                    before.as_ref().map(group_keys),
                    after.as_ref().map(group_keys),
                );
                for (file, is_after) in [(before, false), (after, true)] {
                    for share in file.iter().flat_map(GroupFile::shares) {
                        let keys = Some(share_keys(&share, group));
                        let (old, new) = if is_after { (None, keys) } else { (keys, None) };
                        self.note(Subject::Share, &share.path, old, new);
                    }
                }
            }
            Item::Group => {
                let keys = |text: Option<&str>| {
                    group_keys(&GroupFile::parse(group, text.unwrap_or_default()))
                };
                self.note(Subject::Group, group, Some(keys(before)), Some(keys(after)));
            }
            Item::Pattern(directories) => {
                let keys = |text: Option<&str>| {
                    let file = GroupFile::parse(group, text.unwrap_or_default());
                    let pattern = file.spec().patterns.into_iter().next();
                    let value = pattern.map_or(Value::Null, |pattern| value_of(&pattern));
                    Map::from_iter([(format!("pattern {directories:?}"), value)])
                };
                self.note(Subject::Group, group, Some(keys(before)), Some(keys(after)));
            }
            Item::Share(path) => {
                let keys = |text: Option<&str>| {
                    let file = GroupFile::parse(group, text?);
                    file.shares().next().map(|share| share_keys(&share, group))
                };
                self.note(Subject::Share, path, keys(before), keys(after));
            }
        }
    }

    fn note(
        &mut self,
        subject: Subject,
        name: &str,
        old: Option<Map<String, Value>>,
        new: Option<Map<String, Value>>,
    ) {
        let place = *self.places.entry((subject, name.to_owned())).or_insert_with(|| {
            self.items.push(Planned {
                subject,
                name: name.to_owned(),
                was_there: old.is_some(),
                is_there: false,
                keys: BTreeMap::new(),
            });
            self.items.len() - 1
        });
        let Some(item) = self.items.get_mut(place) else { return };
        item.is_there = new.is_some();
        for (key, value) in old.into_iter().flatten() {
            item.keys.entry(key).or_insert((value, Value::Null)).1 = Value::Null;
        }
        for (key, value) in new.into_iter().flatten() {
            item.keys.entry(key).or_insert((Value::Null, Value::Null)).1 = value;
        }
    }
}

impl Planned {
    fn finish(self) -> Option<PlannedChange> {
        let action = match (self.was_there, self.is_there) {
            (false, false) => return None,
            (false, true) => Action::Add,
            (true, false) => Action::Remove,
            (true, true) => Action::Change,
        };
        let is_share = self.subject == Subject::Share;
        let group = self.keys.get("group").filter(|_| is_share).and_then(|(old, new)| {
            let group = if self.is_there { new } else { old };
            group.as_str().map(str::to_owned)
        });
        let keys: Vec<KeyChange> = if action == Action::Remove {
            Vec::new()
        } else {
            self.keys
                .into_iter()
                .filter(|(key, (old, new))| {
                    old != new && !(action == Action::Add && is_share && key == "group")
                })
                .map(|(key, (old, new))| KeyChange { key, old, new })
                .collect()
        };
        if action == Action::Change && keys.is_empty() {
            return None;
        }
        Some(PlannedChange { action, subject: self.subject, name: self.name, group, keys })
    }
}

fn value_of(spec: &impl Serialize) -> Value {
    serde_json::to_value(spec).unwrap_or_default()
}

fn keys_of(spec: &impl Serialize, name: &str) -> Map<String, Value> {
    let Value::Object(mut keys) = value_of(spec) else { return Map::new() };
    keys.remove(name);
    keys
}

fn share_keys(share: &crate::manage::ShareSpec, group: &str) -> Map<String, Value> {
    let mut keys = keys_of(share, "path");
    keys.insert("group".to_owned(), group.into());
    keys
}

fn group_keys(file: &GroupFile) -> Map<String, Value> {
    let mut spec = file.spec();
    let patterns = std::mem::take(&mut spec.patterns);
    let mut keys = keys_of(&spec, "name");
    for pattern in patterns {
        keys.insert(format!("pattern {:?}", pattern.directories), value_of(&pattern));
    }
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::Catalog;
    use crate::manage::{Batch, DefaultsSpec};

    #[test]
    fn a_plan_tells_each_thing_once_and_key_by_key() {
        let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
        let text =
            "clients = [\"*\"]\n[[share]]\npath = \"/a\"\nid = 1\n[[share]]\npath = \"/b\"\n";
        catalog.insert(GroupFile::parse("home", text));
        let operations = json!([
            {"op": "set-share", "path": "/a", "changes": {"set": {"id": null, "log": false}}},
            {"op": "create-group", "group": {"name": "new", "clients": ["@x"],
                "pattern": [{"directories": "/t/*"}]}},
            {"op": "move-share", "path": "/a", "group": "new"},
            {"op": "add-share", "group": "new", "share": {"path": "/c"}},
            {"op": "remove-share", "path": "/b"},
            {"op": "add-share", "group": "home", "share": {"path": "/d"}},
            {"op": "remove-share", "path": "/d"},
            {"op": "set-group", "name": "home", "changes": {"set": {"options": ["ro"]}}},
        ]);
        let operations = serde_json::from_value(operations).expect("operations");
        let batch = Batch { operations, ..Batch::default() };
        let applied = catalog.try_out(&batch).expect("no mistakes");
        let plan = planned(&applied.edits);
        let lines: Vec<_> = plan.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "~ share /a\n    ~ group = \"home\" -> \"new\"\n    - id = 1\n    + log = false",
                "+ group new\n    + clients = [\"@x\"]\n    + pattern \"/t/*\" = \
                 {\"directories\":\"/t/*\"}",
                "+ share /c",
                "- share /b",
                "~ group home\n    + options = [\"ro\"]",
            ]
        );
        assert_eq!(plan[2].group.as_deref(), Some("new"));
        // What takes it back is the same the other way round.
        catalog.apply(&batch).expect("no mistakes");
        let back: Vec<_> = applied.edits.iter().rev().map(Edit::inverse).collect();
        assert_eq!(planned(&back).len(), plan.len());
    }
}
