//! What [`Changes`] make of a share, a group or a pattern.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use steadfast_shares::{names_clients, nearest, shown, subject};

use super::{Changes, GROUP_KEYS, GroupSpec, SHARE_KEYS, ShareSpec};

/// For how many mistakes of a change the nearest word is looked for.
const SUGGESTIONS_MAX: usize = 8;

/// What is wrong with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeMistake {
    pub(crate) field: String,
    pub(crate) what: String,
    pub(crate) suggestion: Option<String>,
}

impl ChangeMistake {
    fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { field: field.into(), what: what.into(), suggestion: None }
    }
}

/// The lists that changes add to and take out of.
struct Lists<'a> {
    clients: &'a mut Vec<String>,
    options: &'a mut Vec<String>,
    /// Clients that count if it names none, in any way.
    inherited: &'a [String],
    /// Whether it has rules.
    has_rules: bool,
    /// Whose clients count if nobody is left in its own list, and for what.
    fallback: &'a str,
}

impl ShareSpec {
    /// The share after changes; `inherited` are the clients of its group as they are written.
    pub(crate) fn changed(
        &self,
        changes: &Changes,
        inherited: &[String],
    ) -> Result<Self, Vec<ChangeMistake>> {
        let mut mistakes = Vec::new();
        if changes.set.contains_key("path") {
            let what = "a share's path stays: add a share of the other path, and remove this one";
            mistakes.push(ChangeMistake::new("path", what));
        }
        let mut new = set(self, changes, &SHARE_KEYS, &mut mistakes);
        let lists = Lists {
            clients: &mut new.clients,
            options: &mut new.options,
            inherited,
            has_rules: !new.rules.is_empty(),
            fallback: "those of its group may use the share",
        };
        lists.change(changes, &mut mistakes);
        if mistakes.is_empty() { Ok(new) } else { Err(mistakes) }
    }
}

impl GroupSpec {
    /// The group after changes; `inherited` are the clients of `[defaults]` as they are written.
    pub(crate) fn changed(
        &self,
        changes: &Changes,
        inherited: &[String],
    ) -> Result<Self, Vec<ChangeMistake>> {
        let mut mistakes = Vec::new();
        let keys: Vec<&str> = GROUP_KEYS.into_iter().chain(["pattern"]).collect();
        let mut new = set(self, changes, &keys, &mut mistakes);
        let lists = Lists {
            clients: &mut new.clients,
            options: &mut new.options,
            inherited,
            has_rules: false,
            fallback: "those of [defaults] may use its shares",
        };
        lists.change(changes, &mut mistakes);
        if mistakes.is_empty() { Ok(new) } else { Err(mistakes) }
    }
}

/// Sets and takes out keys.
fn set<T: Serialize + DeserializeOwned + Clone>(
    old: &T,
    changes: &Changes,
    keys: &[&str],
    mistakes: &mut Vec<ChangeMistake>,
) -> T {
    if changes.set.is_empty() {
        return old.clone();
    }
    let Ok(Value::Object(mut values)) = serde_json::to_value(old) else { return old.clone() };
    for (key, value) in &changes.set {
        if !keys.contains(&key.as_str()) {
            let mut mistake = ChangeMistake::new(key, format!("unknown key {}", shown(key)));
            mistake.suggestion = nearest(key, keys.iter().copied()).map(String::from);
            mistakes.push(mistake);
            continue;
        }
        if value.as_array().is_some_and(Vec::is_empty) && key == "clients" {
            let what = "the list of clients is empty: write [\"*\"] for everybody, or null to \
                        have those of the group";
            mistakes.push(ChangeMistake::new(key, what));
            continue;
        }
        let before = put(&mut values, key, value.clone());
        if let Err(error) = T::deserialize(&Value::Object(values.clone())) {
            mistakes.push(ChangeMistake::new(key, error.to_string()));
            put(&mut values, key, before);
        }
    }
    T::deserialize(&Value::Object(values)).unwrap_or_else(|_| old.clone())
}

/// Puts a value for a key, or none for `null`; returns the one before.
fn put(values: &mut Map<String, Value>, key: &str, value: Value) -> Value {
    let before =
        if value.is_null() { values.remove(key) } else { values.insert(key.to_owned(), value) };
    before.unwrap_or_default()
}

impl Lists<'_> {
    fn change(self, changes: &Changes, mistakes: &mut Vec<ChangeMistake>) {
        let (add, remove) = (&changes.add_clients, &changes.remove_clients);
        // Who had those of the group goes on with a list of his own, which begins as it was. Who
        // has rules or lists in his options inherits nobody.
        let names_clients = |options: &[String]| options.iter().any(|word| names_clients(word));
        let is_inheriting =
            self.clients.is_empty() && !self.has_rules && !names_clients(self.options);
        if is_inheriting && !(add.is_empty() && remove.is_empty()) {
            self.clients.extend_from_slice(self.inherited);
        }
        for client in add {
            if !self.clients.contains(client) {
                self.clients.push(client.clone());
            }
        }
        for (index, client) in remove.iter().enumerate() {
            let before = self.clients.len();
            self.clients.retain(|known| known != client);
            if self.clients.len() == before {
                let field = format!("remove_clients[{index}]");
                let what = format!("{} is not among the clients", shown(client));
                let mut mistake = ChangeMistake::new(field, what);
                if mistakes.len() < SUGGESTIONS_MAX {
                    let known = self.clients.iter().map(String::as_str);
                    mistake.suggestion = nearest(client, known).map(String::from);
                }
                mistakes.push(mistake);
            }
        }
        for (index, word) in changes.remove_options.iter().enumerate() {
            let names = |known: &String| known == word || known.split('=').next() == Some(word);
            let before = self.options.len();
            self.options.retain(|known| !names(known));
            if self.options.len() == before {
                let field = format!("remove_options[{index}]");
                let what = format!("{} is not among its own options", shown(word));
                let mut mistake = ChangeMistake::new(field, what);
                if mistakes.len() < SUGGESTIONS_MAX {
                    let known = self.options.iter().map(String::as_str);
                    mistake.suggestion = nearest(word, known).map(String::from);
                }
                mistakes.push(mistake);
            }
        }
        for (index, word) in changes.add_options.iter().enumerate() {
            if let Err(what) = add_option(self.options, word) {
                mistakes.push(ChangeMistake::new(format!("add_options[{index}]"), what));
            }
        }
        let is_nobody = self.clients.is_empty() && !self.has_rules && !names_clients(self.options);
        if !remove.is_empty() && is_nobody {
            let what = format!(
                "nobody would be left, and without clients {}: disable it, or set clients = null",
                self.fallback
            );
            mistakes.push(ChangeMistake::new("remove_clients", what));
        }
    }
}

/// Adds a word; one that contradicts it goes.
fn add_option(options: &mut Vec<String>, word: &str) -> Result<(), String> {
    let is_sec = |word: &String| word.starts_with("sec=");
    let secs = options.iter().filter(|word| is_sec(word)).count();
    if word.starts_with("sec=") && secs <= 1 {
        match options.iter_mut().find(|word| is_sec(word)) {
            Some(sec) => word.clone_into(sec),
            None => options.push(word.to_owned()),
        }
        return Ok(());
    }
    if secs > 0 {
        return Err(format!(
            "with sec= among the options it matters where {} stands: set options as a whole",
            shown(word)
        ));
    }
    if let Some(about) = subject(word) {
        match options.iter_mut().find(|known| subject(known) == Some(about)) {
            Some(known) => word.clone_into(known),
            None => options.push(word.to_owned()),
        }
    } else if !options.iter().any(|known| known == word) {
        options.push(word.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    fn share() -> ShareSpec {
        ShareSpec {
            path: "/a".to_owned(),
            options: words(&["ro", "anonuid=1"]),
            clients: words(&["a.example", "b.example"]),
            ..ShareSpec::default()
        }
    }

    fn changes(value: Value) -> Changes {
        serde_json::from_value(value).expect("changes")
    }

    fn changed(value: Value) -> Result<ShareSpec, Vec<ChangeMistake>> {
        share().changed(&changes(value), &words(&["@staff"]))
    }

    #[test]
    fn keys_are_set_and_taken_out() {
        let new = changed(json!({"set": {"enabled": false, "options": null, "id": 7}}))
            .expect("no mistakes");
        let expected =
            ShareSpec { enabled: Some(false), options: Vec::new(), id: Some(7), ..share() };
        assert_eq!(new, expected);
    }

    #[test]
    fn lists_are_added_to_and_taken_from() {
        let new = changed(json!({
            "add_clients": ["c.example", "a.example"], "remove_clients": ["b.example"],
            "add_options": ["rw", "secure"], "remove_options": ["anonuid"],
        }))
        .expect("no mistakes");
        assert_eq!(new.clients, ["a.example", "c.example"]);
        assert_eq!(new.options, ["rw", "secure"]);
    }

    #[test]
    fn who_had_the_clients_of_the_group_keeps_them_and_gets_more() {
        let inheriting = ShareSpec { clients: Vec::new(), ..share() };
        let add = changes(json!({"add_clients": ["x.example"]}));
        let new = inheriting.changed(&add, &words(&["@staff"])).expect("no mistakes");
        assert_eq!(new.clients, ["@staff", "x.example"]);
    }

    #[test]
    fn who_inherits_no_clients_gets_none_of_them() {
        let rule = steadfast_shares::RuleSpec { clients: words(&["a.x"]), options: Vec::new() };
        let with_rule = ShareSpec { clients: Vec::new(), rules: vec![rule], ..share() };
        let with_list =
            ShareSpec { clients: Vec::new(), options: words(&["rw=10.0.0.1"]), ..share() };
        for share in [with_rule, with_list] {
            let change = |value| share.changed(&changes(value), &words(&["*", "@staff"]));
            let new = change(json!({"add_clients": ["x.example"]})).expect("no mistakes");
            assert_eq!(new.clients, ["x.example"]);
            assert!(change(json!({"remove_clients": ["*"]})).is_err(), "not among them");
        }
        let group = GroupSpec {
            name: "g".to_owned(),
            options: words(&["ro=10.0.0.1"]),
            ..Default::default()
        };
        let add = changes(json!({"add_clients": ["x.example"]}));
        assert_eq!(group.changed(&add, &words(&["*"])).expect("one").clients, ["x.example"]);
    }

    #[test]
    fn a_client_that_is_removed_is_gone() {
        let twice =
            ShareSpec { clients: words(&["a.example", "b.example", "a.example"]), ..share() };
        let remove = changes(json!({"remove_clients": ["a.example"]}));
        assert_eq!(twice.changed(&remove, &[]).expect("no mistakes").clients, ["b.example"]);
        // The last of a group, so that everybody of [defaults] would be let in.
        let group = GroupSpec {
            name: "g".to_owned(),
            clients: words(&["a.example"]),
            ..GroupSpec::default()
        };
        let mistakes = group.changed(&remove, &words(&["*"])).expect_err("nobody left");
        assert!(mistakes[0].what.contains("those of [defaults]"), "{mistakes:?}");
        let listed = GroupSpec { options: words(&["rw=b.example"]), ..group };
        assert!(listed.changed(&remove, &words(&["*"])).expect("no mistakes").clients.is_empty());
    }

    #[test]
    fn mistakes_are_told_with_what_was_meant() {
        let told = |value| {
            let mistakes = changed(value).expect_err("mistakes");
            let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
            (mistake.field.clone(), mistake.what.clone(), mistake.suggestion.clone())
        };
        let (field, _, suggestion) = told(json!({"set": {"enabeld": true}}));
        assert_eq!((field.as_str(), suggestion.as_deref()), ("enabeld", Some("enabled")));
        assert!(told(json!({"set": {"id": "x"}})).1.contains("u64"));
        assert!(told(json!({"set": {"path": "/b"}})).1.contains("stays"));
        assert!(told(json!({"set": {"clients": []}})).1.contains("empty"));
        assert!(told(json!({"remove_clients": ["a.example", "b.example"]})).1.contains("nobody"));
        let (_, what, suggestion) = told(json!({"remove_clients": ["a.exampel"]}));
        assert!(what.contains("not among") && suggestion.as_deref() == Some("a.example"));
        assert!(told(json!({"remove_options": ["rw"]})).1.contains("not among"));
        let mut options = words(&["sec=sys", "ro"]);
        assert!(add_option(&mut options, "rw").is_err());
        assert_eq!(add_option(&mut options, "sec=sys:none"), Ok(()));
        assert_eq!(options, ["sec=sys:none", "ro"]);
    }
}
