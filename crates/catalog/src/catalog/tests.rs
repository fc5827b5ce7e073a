//! Unit and property tests of the catalogue: what is served after any batches, and that taking
//! them back gives what was before, to the byte.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::manage::{Batch, GroupSpec, Mistake, Operation, ShareState};

fn catalog(files: &[(&str, &str)]) -> Catalog {
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    for (name, text) in files {
        catalog.insert(GroupFile::parse(name, text));
    }
    catalog
}

/// The same, where a catalogue is at hand already.
fn made_of(files: &[(&str, &str)]) -> Catalog {
    catalog(files)
}

fn batch(operations: serde_json::Value) -> Batch {
    Batch {
        operations: serde_json::from_value(operations).expect("operations"),
        ..Batch::default()
    }
}

fn apply(catalog: &mut Catalog, operations: serde_json::Value) -> Applied {
    catalog.apply(&batch(operations)).expect("no mistakes")
}

fn mistakes(catalog: &mut Catalog, operations: serde_json::Value) -> Vec<String> {
    let before = texts(catalog);
    let mistakes = catalog.apply(&batch(operations)).expect_err("mistakes");
    assert_eq!(texts(catalog), before);
    mistakes.iter().map(ToString::to_string).collect()
}

fn texts(catalog: &Catalog) -> BTreeMap<String, String> {
    catalog
        .group_names()
        .map(|name| (name.to_owned(), catalog.file(name).expect("a file").text()))
        .collect()
}

fn paths(changes: &[ShareChange]) -> Vec<(&str, bool, bool)> {
    changes
        .iter()
        .map(|change| (&*change.path, change.old.is_some(), change.new.is_some()))
        .collect()
}

fn served(catalog: &Catalog) -> BTreeMap<String, Share> {
    catalog.all_served().map(|share| (share.path.to_string(), Share::clone(share))).collect()
}

const HOME: &str = "clients = [\"*\"]\n\n[[share]]\npath = \"/a\"\n\n[[share]]\npath = \"/b\"\n";

#[test]
fn a_batch_says_what_it_changed() {
    let mut catalog = catalog(&[("home", HOME)]);
    assert_eq!(served(&catalog).len(), 2);
    let applied = apply(
        &mut catalog,
        json!([
            {"op": "add-share", "group": "home", "share": {"path": "/c/"}},
            {"op": "set-share", "path": "/a", "changes": {"set": {"enabled": false}}},
            {"op": "set-share", "path": "/b", "changes": {"set": {"description": "b"}}},
        ]),
    );
    assert_eq!(paths(&applied.changes), [("/a", true, false), ("/c", false, true)]);
    assert_eq!(
        texts(&catalog)["home"],
        HOME.replace("path = \"/a\"\n", "path = \"/a\"\nenabled = false\n")
            + "description = \"b\"\n\n[[share]]\npath = \"/c\"\n"
    );
    let back = catalog.take_back(&applied.edits);
    assert_eq!(paths(&back), [("/a", false, true), ("/c", true, false)]);
    assert_eq!(texts(&catalog)["home"], HOME);
}

#[test]
fn a_share_that_stays_as_it_was_is_in_memory_once() {
    let mut catalog = catalog(&[("home", HOME)]);
    let before = Arc::clone(catalog.served("/a").expect("served"));
    let text = HOME.replace("\"/b\"", "\"/c\"").replace("path", "# by hand\npath");
    let changes = catalog.insert(GroupFile::parse("home", &text));
    assert_eq!(paths(&changes), [("/b", true, false), ("/c", false, true)]);
    let after = catalog.served("/a").expect("served");
    assert!(Arc::ptr_eq(&before, after), "others go on with what they have");
    // It is still the file's: what is done to it there counts.
    let off = json!([{"op": "set-share", "path": "/a", "changes": {"set": {"enabled": false}}}]);
    assert_eq!(paths(&apply(&mut catalog, off).changes), [("/a", true, false)]);
}

#[test]
fn a_group_is_switched_as_one() {
    let mut catalog = catalog(&[("home", HOME)]);
    let off = json!([{"op": "set-group", "name": "home", "changes": {"set": {"enabled": false}}}]);
    let applied = apply(&mut catalog, off);
    assert_eq!(paths(&applied.changes), [("/a", true, false), ("/b", true, false)]);
    assert!(catalog.shares().all(|view| view.state == ShareState::Disabled));
    let on = json!([{"op": "set-group", "name": "home", "changes": {"set": {"enabled": null}}}]);
    assert_eq!(apply(&mut catalog, on).changes.len(), 2);
}

#[test]
fn what_may_be_in_a_file_is_not_said_to_be_gone() {
    // Its words are wrong, so that it is no share.
    let mut catalog = catalog(&[("home", "[[share]]\npat( = \"/a\"\n")]);
    let unclaimed: Vec<String> =
        catalog.file("home").expect("a file").paths().map(ToString::to_string).collect();
    assert!(!unclaimed.is_empty());
    for path in unclaimed {
        let remove = batch(json!([{"op": "remove-share", "path": path}]));
        assert!(catalog.apply(&remove).is_err(), "{path:?}");
    }
    catalog.set_unreadable("other", true);
    let remove = batch(json!([{"op": "remove-share", "path": "/b"}]));
    assert!(catalog.apply(&remove).is_err());
    catalog.set_unreadable("other", false);
    assert!(catalog.apply(&remove).is_ok());
}

#[test]
fn what_is_not_there_is_removed_already() {
    let mut catalog = catalog(&[("home", HOME)]);
    let before = texts(&catalog);
    let applied = apply(
        &mut catalog,
        json!([{"op": "remove-share", "path": "/aa"}, {"op": "remove-share", "path": "/b"}]),
    );
    assert_eq!(paths(&applied.changes), [("/b", true, false)]);
    let notes: Vec<String> = applied.notes.iter().map(ToString::to_string).collect();
    // So a slip of the pen is seen.
    let note = "share \"/aa\": there is no such share, so there is nothing to remove; did you mean \"/a\"?";
    assert_eq!(notes, [note]);
    assert_ne!(texts(&catalog), before);
    let again = apply(&mut catalog, json!([{"op": "remove-share", "path": "/b"}]));
    assert!(again.edits.is_empty() && again.notes.len() == 1, "{again:?}");
}

/// What stands before the shares may get a mistake by a merge with what people wrote, which nobody
/// checks.
#[test]
fn a_group_with_a_mistake_is_not_served() {
    let mut catalog = catalog(&[("home", HOME)]);
    let right = catalog.file("home").expect("there").preamble().to_string();
    let item = crate::group::Item::Group;
    let wrong = format!("{right}nonsense = 1\n");
    let edit = Edit { item, ..Edit::of_file("home", Some(&right), Some(&wrong)) };
    let changes = catalog.put_all(std::slice::from_ref(&edit));
    assert_eq!(paths(&changes), [("/a", true, false), ("/b", true, false)]);
    assert!(catalog.shares().all(|view| view.state == ShareState::Faulty));
    assert_eq!(paths(&catalog.take_back(&[edit])), [("/a", false, true), ("/b", false, true)]);
}

#[test]
fn a_batch_with_a_mistake_changes_nothing() {
    let mut catalog = catalog(&[("home", HOME)]);
    let told = mistakes(
        &mut catalog,
        json!([
            {"op": "add-share", "group": "home", "share": {"path": "/c", "options": ["roo"]}},
            {"op": "add-share", "group": "hom", "share": {"path": "/d"}},
            {"op": "add-share", "group": "home", "share": {"path": "relative"}},
            {"op": "add-share", "group": "home", "share": {"path": "/b", "log": true}},
            {"op": "set-share", "path": "/aa", "changes": {"set": {"id": 7}}},
            {"op": "set-share", "path": "/a", "changes": {"add_clients": ["1.2.3.4/8"]}},
            {"op": "delete-group", "name": "home"},
        ]),
    );
    assert_eq!(
        told,
        [
            "share \"/d\": group: there is no group \"hom\"; did you mean \"home\"?",
            "share \"relative\": path: path \"relative\" must be absolute; did you mean \"/relative\"?",
            "share \"/b\": path: \"/b\" is shared already, in shares.d/home.toml:6: set it instead",
            "share \"/aa\": path: there is no share \"/aa\"; did you mean \"/a\"?",
            "group \"home\": with_shares: the group \"home\" has 3 shares: they have to go too \
             (--with-shares)",
            "share \"/c\": options[0]: unknown option \"roo\"; did you mean \"ro\"?",
            "share \"/a\": clients[1]: the network \"1.2.3.4/8\" has bits set beyond its length; \
             did you mean \"1.0.0.0/8\"?",
        ]
    );
    // Nobody may be locked out of all shares by a word in the group.
    let told = mistakes(
        &mut catalog,
        json!([{"op": "set-group", "name": "home", "changes": {"set": {"clients": null}}}]),
    );
    assert!(told[0].contains("share \"/a\": the share has no clients"), "{told:?}");
}

#[test]
fn what_is_there_as_it_is_wanted_is_added_again_without_a_change() {
    let work = "[[pattern]]\ndirectories = \"/w/*\"\n";
    let mut catalog = catalog(&[("home", HOME), ("work", work)]);
    let before = texts(&catalog);
    let pattern = json!({"directories": "/w/*"});
    let applied = apply(
        &mut catalog,
        json!([
            {"op": "add-share", "group": "home", "share": {"path": "/b/"}},
            {"op": "create-group", "group": {"name": "work", "pattern": [pattern]}},
        ]),
    );
    assert_eq!((applied.edits, applied.changes), (vec![], vec![]));
    assert_eq!(texts(&catalog), before);
    for (group, share) in [
        ("work", json!({"path": "/b"})),
        ("home", json!({"path": "/b", "clients": ["10.0.0.1"]})),
        ("home", json!({"path": "/b", "directory": "/x"})),
    ] {
        let told =
            mistakes(&mut catalog, json!([{"op": "add-share", "group": group, "share": share}]));
        assert!(told[0].contains("\"/b\" is shared already"), "{told:?}");
    }
    let told = mistakes(&mut catalog, json!([{"op": "create-group", "group": {"name": "work"}}]));
    assert!(told[0].contains("there is a group \"work\" already"), "{told:?}");
}

#[test]
fn a_partial_batch_leaves_mistakes_out() {
    let mut catalog = catalog(&[("home", HOME)]);
    let mut batch = batch(json!([
        {"op": "add-share", "group": "home", "share": {"path": "/c", "options": ["roo"]}},
        {"op": "add-share", "group": "home", "share": {"path": "/d", "id": 7}},
        {"op": "add-share", "group": "home", "share": {"path": "/e", "id": 7}},
        {"op": "set-share", "path": "/c", "changes": {}},
    ]));
    batch.partial = true;
    let applied = catalog.apply(&batch).expect("the good ones are done");
    assert_eq!(paths(&applied.changes), [("/d", false, true)]);
    let left: Vec<_> = applied.left_out.iter().map(|mistake| mistake.operation).collect();
    assert_eq!(left, [Some(0), Some(2), Some(3)]);
}

#[test]
fn what_counts_is_how_it_is_in_the_end() {
    let mut catalog = catalog(&[("home", HOME)]);
    apply(&mut catalog, json!([{"op": "set-share", "path": "/a", "changes": {"set": {"id": 7}}}]));
    let applied = apply(
        &mut catalog,
        json!([
            {"op": "set-share", "path": "/b", "changes": {"set": {"id": 7}}},
            {"op": "set-share", "path": "/a", "changes": {"set": {"id": null}}},
        ]),
    );
    assert_eq!(applied.changes.len(), 2);
    assert_eq!(catalog.served("/b").map(|share| share.id.0), Some(7));
}

/// A share that nobody named goes on being served.
#[test]
fn no_batch_takes_the_id_of_another_share() {
    let text = "clients = [\"*\"]\n[[share]]\npath = \"/z\"\nid = 7\n";
    let mut catalog = catalog(&[("home", HOME), ("z", text)]);
    let add = json!({"op": "add-share", "group": "home", "share": {"path": "/c", "id": 7}});
    let told = mistakes(&mut catalog, json!([add]));
    assert_eq!(
        told,
        ["share \"/c\": id: 7 is the id of the share \"/z\" in shares.d/z.toml:2 already, which \
          would not be served any more: write another `id = NUMBER`"]
    );
    let mut partial = batch(json!([add, {"op": "remove-share", "path": "/a"}]));
    partial.partial = true;
    let applied = catalog.apply(&partial).expect("partly");
    assert_eq!((applied.left_out.len(), applied.left_out[0].operation), (1, Some(0)));
    assert!(catalog.served("/z").is_some());
    // Unless it gets another one.
    let other = json!({"op": "set-share", "path": "/z", "changes": {"set": {"id": 8}}});
    assert_eq!(apply(&mut catalog, json!([add, other])).changes.len(), 2);
}

#[test]
fn of_a_partial_batch_some_mistakes_are_told() {
    let mut catalog = catalog(&[("home", HOME)]);
    let set =
        |n| json!({"op": "set-share", "path": format!("/a{n}"), "changes": {"set": {"id": 1}}});
    let mut partial = batch((0..3000).map(set).collect());
    partial.partial = true;
    let left_out = catalog.apply(&partial).expect("nothing").left_out;
    assert_eq!(left_out.len(), 1001);
    assert_eq!(left_out.iter().filter(|mistake| mistake.suggestion.is_some()).count(), 8);
    assert!(left_out[1000].what.starts_with("2000 more"), "{:?}", left_out[1000]);
}

#[test]
fn of_shares_with_one_path_or_id_the_later_is_faulty_alone() {
    let late = "clients = [\"*\"]\n[[share]]\npath = \"/a\"\n[[share]]\npath = \"/x\"\nid = 5\n\
                [[share]]\npath = \"/y\"\nid = 5\n";
    let mut catalog = catalog(&[("home", HOME), ("late", late)]);
    let faulty: Vec<_> = catalog.shares().filter(|view| view.state == ShareState::Faulty).collect();
    let told: Vec<_> =
        faulty.iter().flat_map(|view| view.why.iter().map(ToString::to_string)).collect();
    assert_eq!(
        told,
        [
            "shares.d/late.toml:2: the path \"/a\" is shared twice, first in shares.d/home.toml:3",
            "shares.d/late.toml:7: the share \"/y\" has the same id as \"/x\" in \
             shares.d/late.toml:4: write another `id = NUMBER`",
        ]
    );
    // The one that is not served goes first; then its id is free.
    let applied = apply(&mut catalog, json!([{"op": "remove-share", "path": "/a"}]));
    assert_eq!(paths(&applied.changes), []);
    let applied = apply(&mut catalog, json!([{"op": "remove-share", "path": "/x"}]));
    assert_eq!(paths(&applied.changes), [("/x", true, false), ("/y", false, true)]);
}

#[test]
fn a_share_of_the_configuration_outweighs_the_others() {
    let mut catalog = catalog(&[("home", HOME)]);
    let fixed = || {
        let share = Arc::clone(catalog.served("/a").expect("served"));
        let share = Arc::new(Share { crosses_mounts: true, ..Share::clone(&share) });
        FixedShare { share, spec: ShareSpec::default(), source: "steadfast.toml:1:1".to_owned() }
    };
    let fixed = vec![fixed()];
    let changes = catalog.set_base(DefaultsSpec::default(), fixed);
    assert_eq!(paths(&changes), [("/a", true, true)]);
    let view = catalog.shares_at("/a");
    assert_eq!((view[0].state, view[1].state), (ShareState::Enabled, ShareState::Faulty));
    let changes = catalog.set_base(DefaultsSpec::default(), Vec::new());
    assert_eq!(paths(&changes), [("/a", true, true)]);
    assert!(!catalog.served("/a").expect("served").crosses_mounts);
}

#[test]
fn defaults_are_inherited_and_may_change() {
    let text = "[[share]]\npath = \"/a\"\n";
    let mut catalog = catalog(&[("x", text)]);
    assert!(served(&catalog).is_empty());
    let defaults = DefaultsSpec { options: Vec::new(), clients: vec!["*".to_owned()] };
    assert_eq!(paths(&catalog.set_base(defaults, Vec::new())), [("/a", false, true)]);
    assert_eq!(catalog.mistakes(), []);
}

#[test]
fn patterns_make_shares() {
    let text = "clients = [\"*\"]\n[[pattern]]\ndirectories = \"/home/*\"\noptions = [\"ro\"]\n";
    let mut catalog = catalog(&[("x", text), ("home", HOME.replace("/a", "/home/a").as_str())]);
    let changes = catalog.set_directories("x", "/home/*", ["a", "b", ".c"]);
    assert_eq!(paths(&changes), [("/home/b", false, true)], "the written one outweighs");
    let applied = apply(&mut catalog, json!([{"op": "remove-share", "path": "/home/a"}]));
    let read_only = |share: &Option<Arc<Share>>| {
        let rights = share.as_ref().and_then(|share| share.rights([1, 2, 3, 4].into()).cloned());
        rights.expect("rights").is_read_only
    };
    assert!(!read_only(&applied.changes[0].old) && read_only(&applied.changes[0].new));
    let what = mistakes(&mut catalog, json!([{"op": "remove-share", "path": "/home/b"}]));
    assert!(what[0].contains("made by the pattern \"/home/*\""), "{what:?}");
    apply(
        &mut catalog,
        json!([{"op": "set-group", "name": "x", "changes": {"set": {
            "pattern": [{"directories": "/home/*", "except": ["b"]}]}}}]),
    );
    assert_eq!(catalog.shares().filter(|view| view.pattern.is_some()).count(), 1);
    let changes = catalog.set_directories("x", "/home/*", ["d"]);
    assert_eq!(paths(&changes), [("/home/a", true, false), ("/home/d", false, true)]);
    let view = catalog.group_view("x").expect("a group");
    assert_eq!((view.shares, view.served), (1, 1));
}

/// What is only tried, refused or taken back leaves the shares of patterns as they were, and what
/// is done then reaches them.
#[test]
fn what_patterns_made_outlives_what_is_taken_back() {
    let text = "clients = [\"*\"]\n[[pattern]]\ndirectories = \"/home/*\"\n";
    let delete = json!([{"op": "delete-group", "name": "x", "with_shares": true}]);
    let both = [("/home/a", true, false), ("/home/b", true, false)];
    let drop_pattern =
        json!([{"op": "set-group", "name": "x", "changes": {"set": {"pattern": null}}}]);
    for operations in [delete, drop_pattern] {
        let mut catalog = catalog(&[("x", text)]);
        catalog.set_directories("x", "/home/*", ["a", "b"]);
        let before = served(&catalog);
        // A plan.
        let tried = catalog.try_out(&batch(operations.clone())).expect("no mistakes");
        assert_eq!(paths(&tried.changes), both);
        assert_eq!(served(&catalog), before);
        // A batch with a mistake.
        let mut refused = batch(operations.clone());
        let (path, group) = ("/none".to_owned(), "x".to_owned());
        refused.operations.push(Operation::MoveShare { path, group });
        catalog.apply(&refused).expect_err("a mistake");
        assert_eq!(served(&catalog), before);
        refused.operations.swap(0, 1);
        refused.partial = true;
        // A batch that could not be made durable.
        let applied = catalog.apply(&refused).expect("partly");
        let back = catalog.take_back(&applied.edits);
        assert_eq!((back.len(), served(&catalog)), (2, before));
        // Now it is meant.
        assert_eq!(paths(&apply(&mut catalog, operations).changes), both);
        assert_eq!(served(&catalog).len(), 0);
        // What was seen is not kept for good.
        apply(&mut catalog, json!([{"op": "create-group", "group": {"name": "y"}}]));
        assert!(catalog.seen.is_empty() && catalog.lost.is_empty());
    }
}

#[test]
fn a_group_with_a_mistake_serves_nothing() {
    let catalog = catalog(&[("x", &HOME.replace("clients", "client"))]);
    assert!(served(&catalog).is_empty());
    let told: Vec<Mistake> = catalog.mistakes();
    assert_eq!(told[0].place, "shares.d/x.toml:1:1");
    assert!(told[1].what.contains("its group x has a mistake"), "{told:?}");
}

#[test]
fn shares_with_one_rule_list_have_one_set_of_rules() {
    let shares: Vec<_> = (0..100).map(|n| format!("[[share]]\npath = \"/s{n}\"\n")).collect();
    let text = shares.concat();
    let text = format!("clients = [\"10.0.0.0/8\", \"@staff\"]\n{text}");
    let files = [("a", text.as_str()), ("b", &text.replace("/s", "/t"))];
    let catalog = catalog(&files);
    let first = catalog.served("/s0").expect("served");
    assert!(catalog.all_served().all(|share| Arc::ptr_eq(&share.rules, &first.rules)));
    assert_eq!((catalog.all_served().count(), catalog.rule_sets()), (200, 1));
}

/// Operations on few names, so that they meet.
fn operation() -> impl Strategy<Value = Operation> {
    let path = || (0..6_u8).prop_map(|n| format!("/p{n}"));
    let group = || prop::sample::select(vec!["g0", "g1", "g2", "default"]).prop_map(str::to_owned);
    let share = (
        path(),
        prop::option::of(0..4_u64),
        prop::sample::subsequence(vec!["10.0.0.1", "@x", "*.y.example", "1.2.3.4/5"], 0..3),
        prop::sample::subsequence(vec!["ro", "all_squash", "nonsense"], 0..2),
        prop::option::of(any::<bool>()),
    )
        .prop_map(|(path, id, clients, options, enabled)| ShareSpec {
            path,
            id,
            clients: clients.into_iter().map(str::to_owned).collect(),
            options: options.into_iter().map(str::to_owned).collect(),
            enabled,
            ..ShareSpec::default()
        });
    let changes = || {
        prop::sample::select(vec![
            json!({"set": {"enabled": false}}),
            json!({"set": {"enabled": null}}),
            json!({"set": {"description": "ä \"b\""}}),
            json!({"set": {"clients": ["10.0.0.0/8", "fd00::1"]}}),
            json!({"set": {"clients": null}}),
            json!({"set": {"id": 2}}),
            json!({"set": {"nonsense": 2}}),
            json!({"set": {"rule": [{"clients": ["1.1.1.1"], "options": ["ro"]}]}}),
            json!({"set": {"rule": []}}),
            json!({"add_clients": ["@y"], "remove_clients": ["@x"]}),
            json!({"add_options": ["rw"], "remove_clients": ["10.0.0.1"]}),
            json!({"set": {"pattern": [{"directories": "/t/*", "except": ["b"]}]}}),
            json!({"set": {"pattern": [{"directories": "/p?"}, {"directories": "/t/*"}]}}),
            json!({"set": {"pattern": null}}),
        ])
        .prop_map(|value| serde_json::from_value(value).expect("changes"))
    };
    prop_oneof![
        2 => group().prop_map(|name| Operation::CreateGroup {
            group: GroupSpec { name, clients: vec!["*".to_owned()], ..GroupSpec::default() },
        }),
        1 => (group(), any::<bool>())
            .prop_map(|(name, with_shares)| Operation::DeleteGroup { name, with_shares }),
        1 => (group(), changes())
            .prop_map(|(name, changes)| Operation::SetGroup { name, changes }),
        6 => (group(), share).prop_map(|(group, share)| Operation::AddShare { group, share }),
        2 => path().prop_map(|path| Operation::RemoveShare { path }),
        4 => (path(), changes()).prop_map(|(path, changes)| Operation::SetShare { path, changes }),
        2 => (path(), group()).prop_map(|(path, group)| Operation::MoveShare { path, group }),
    ]
}

/// Texts as people write them.
fn file() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "# a comment\n",
        "\n",
        "\n# loose\n\n",
        "[[share]]\npath = \"/p0\"\n",
        "[[share]] # x\n  path = '/p1' # its path\n  options = [ 'ro', # why\n  ]\n",
        "[[share]]\nclients = [\n\t\"10.0.0.1\", # one\n\t\"@x\",\n]\npath = \"/p2\"\n\
         [[share.rule]]\n# why\nclients = [\"*\"]\n",
        "[[share]]\npath = \"/p3\"\nid = 3\nrule = [{ clients = ['::1'] }]\n",
        "[[share]]\npath = \"/p4\"\noptions = [\"nonsense\"]\n",
        "[[share]]\npath = \"/p5\"\nnonsense = 1\n",
        "[[share]]\npath = \"/p5\n",
        "[nonsense]\n",
        "[[pattern]]\ndirectories = \"/t/*\" # all\n",
    ]);
    let head = prop::sample::select(vec![
        "",
        "clients = [\"*\"]\n",
        "# about\noptions = [\"ro\"] # all\nclients = ['10.0.0.0/8', \"@x\" ]\n\n",
    ]);
    (head, prop::collection::vec(piece, 0..8))
        .prop_map(|(head, pieces)| head.to_owned() + &pieces.concat())
}

/// Looks at the directories of all patterns.
fn look(catalog: &mut Catalog, names: &[&str]) -> Vec<ShareChange> {
    let patterns: Vec<_> = catalog
        .patterns()
        .map(|(group, pattern)| (group.to_owned(), pattern.directories.clone()))
        .collect();
    let mut changes = Vec::new();
    for (group, pattern) in patterns {
        changes.extend(catalog.set_directories(&group, &pattern, names.iter().copied()));
    }
    changes
}

/// What is served, after changes; what they say was served before was.
fn follow(mirror: &mut BTreeMap<String, Share>, changes: &[ShareChange]) {
    for change in changes {
        let old = mirror.remove(&*change.path);
        assert_eq!(old.as_ref(), change.old.as_deref());
        if let Some(new) = &change.new {
            mirror.insert(change.path.to_string(), Share::clone(new));
        }
    }
}

/// What a catalogue says, however it came to be.
fn told(catalog: &Catalog) -> Vec<String> {
    let mut all: Vec<String> = catalog
        .shares()
        .map(|view| format!("{:?} {:?} {:?} {:?}", view.group, view.spec, view.state, view.share))
        .collect();
    all.extend(catalog.groups().map(|view| format!("{:?}", view.spec)));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn batches_are_done_wholly_and_taken_back_wholly(
        files in prop::collection::vec(file(), 0..3),
        batches in prop::collection::vec(
            (
                prop::collection::vec(operation(), 1..4),
                any::<bool>(),
                prop::sample::subsequence(vec!["a", "b", ".c", "p0", "p3"], 0..5),
            ),
            1..6,
        ),
    ) {
        let named: Vec<_> =
            files.iter().enumerate().map(|(n, text)| (format!("g{n}"), text.as_str())).collect();
        let named: Vec<_> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let mut catalog = catalog(&named);
        let mut mirror = served(&catalog);
        let mut done = Vec::new();
        for (operations, partial, names) in batches {
            // Directories come and go.
            follow(&mut mirror, &look(&mut catalog, &names));
            prop_assert_eq!(&served(&catalog), &mirror);
            let before = texts(&catalog);
            let batch = Batch { operations, partial, comment: None };
            let tried = catalog.try_out(&batch);
            prop_assert_eq!(&texts(&catalog), &before);
            prop_assert_eq!(&served(&catalog), &mirror);
            // It cannot be made durable.
            if let Ok(applied) = catalog.apply(&batch) {
                catalog.take_back(&applied.edits);
                prop_assert_eq!(&texts(&catalog), &before);
                prop_assert_eq!(&served(&catalog), &mirror);
            }
            let Ok(applied) = catalog.apply(&batch) else {
                prop_assert!(tried.is_err());
                prop_assert_eq!(&texts(&catalog), &before);
                prop_assert_eq!(&served(&catalog), &mirror);
                continue;
            };
            prop_assert_eq!(tried.as_ref(), Ok(&applied));
            // What is said to have changed is what has.
            follow(&mut mirror, &applied.changes);
            prop_assert_eq!(&served(&catalog), &mirror);
            follow(&mut mirror, &look(&mut catalog, &names));
            // Segments that no edit names are as they were.
            for edit in &applied.edits {
                if let (crate::group::Item::Share(_), Some(after)) = (&edit.item, &edit.after) {
                    prop_assert!(GroupFile::parse("x", after).mistakes().is_empty(), "{}", after);
                }
            }
            // The texts say the same when they are read again, each share alone.
            let mut again = made_of(
                &texts(&catalog).iter().map(|(n, t)| (n.as_str(), t.as_str())).collect::<Vec<_>>(),
            );
            look(&mut again, &names);
            prop_assert_eq!(&served(&again), &mirror);
            prop_assert_eq!(&texts(&again), &texts(&catalog));
            let specs = |catalog: &Catalog| {
                let mut all: Vec<_> = catalog.shares().map(|v| format!("{:?}", v.spec)).collect();
                all.sort();
                all
            };
            prop_assert_eq!(specs(&again), specs(&catalog));
            // Doing the edits again changes nothing.
            let changes = catalog.put_all(&applied.edits);
            prop_assert_eq!(changes, vec![]);
            done.push(applied.edits);
        }
        // On the files as they were, the edits make the same of them.
        let mut replayed = made_of(&named);
        for edits in &done {
            replayed.put_all(edits);
        }
        prop_assert_eq!(texts(&replayed), texts(&catalog));
        for edits in done.iter().rev() {
            catalog.take_back(edits);
        }
        let mut fresh = made_of(&named);
        look(&mut catalog, &["a", "p0"]);
        look(&mut fresh, &["a", "p0"]);
        prop_assert_eq!(texts(&catalog), texts(&fresh));
        let sorted = |catalog: &Catalog| {
            let mut all = told(catalog);
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&catalog), sorted(&fresh));
    }
}
