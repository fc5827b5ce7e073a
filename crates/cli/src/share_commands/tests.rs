use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::arguments::{Arguments, Command};

fn parsed(words: &[&str]) -> Result<Command, String> {
    let words = ["steadfast"].iter().chain(words);
    Arguments::try_parse_from(words).map(|one| one.command).map_err(|error| error.to_string())
}

/// The operations that a command sends, as JSON.
fn operations(words: &[&str]) -> Value {
    let operations = match parsed(words).expect("a command") {
        Command::Share(ShareArguments { action, .. }) => match action {
            ShareAction::Add(add) => changes::add(&add),
            ShareAction::Set(set) => changes::set(&set),
            ShareAction::Remove(paths) => changes::remove(&paths),
            ShareAction::Enable(paths) => changes::enable(&paths),
            ShareAction::Disable { paths, drain } => changes::disable(&paths, drain),
            _ => panic!("it changes nothing"),
        },
        Command::Group(GroupArguments { action, .. }) => {
            changes::groups(&action).map(|changed| changed.expect("it changes something").0)
        }
        _ => panic!("no such command"),
    };
    json!(operations.expect("operations"))
}

#[test]
fn what_is_typed_of_shares_becomes_operations() {
    let words = "share add /srv/a /srv//b/ -c 10.0.0.0/8,@staff --client * -o ro,all_squash -g home \
                 --rule fd00::1:rw --protocol smb --disabled";
    let words: Vec<&str> = words.split_whitespace().collect();
    let share = |path: &str| {
        json!({"op": "add-share", "group": "home", "share": {
            "path": path, "protocols": ["smb"], "options": ["ro", "all_squash"],
            "clients": ["10.0.0.0/8", "@staff", "*"],
            "rule": [{"clients": ["fd00::1"], "options": ["rw"]}], "enabled": false,
        }})
    };
    assert_eq!(operations(&words), json!([share("/srv/a"), share("/srv/b")]));
    let added = operations(&["share", "add", "/srv/a", "--directory", "/tank/a", "--id", "7"]);
    assert_eq!(added[0]["group"], "default");
    assert_eq!(added[0]["share"], json!({"path": "/srv/a", "directory": "/tank/a", "id": 7}));

    let words = "share set /a -g work --add-client h --remove-option ro --unset id,log --id 5";
    let words: Vec<&str> = words.split_whitespace().collect();
    assert_eq!(
        operations(&words),
        json!([
            {"op": "move-share", "path": "/a", "group": "work"},
            {"op": "set-share", "path": "/a", "changes": {
                "set": {"id": 5, "log": null}, "add_clients": ["h"], "remove_options": ["ro"]}},
        ])
    );
    assert_eq!(
        operations(&["share", "disable", "/a", "--drain"]),
        json!([{"op": "set-share", "path": "/a", "changes": {"set": {"draining": true}}}])
    );
    assert_eq!(
        operations(&["share", "enable", "/a"])[0]["changes"]["set"],
        json!({"enabled": null, "draining": null})
    );
    assert_eq!(operations(&["share", "remove", "/a", "/b"]).as_array().map(Vec::len), Some(2));
    // A path is one from here.
    let here = std::env::current_dir().expect("a directory").join("x");
    assert_eq!(operations(&["share", "remove", "x/"])[0]["path"], json!(here));
}

#[test]
fn what_is_typed_of_groups_becomes_operations() {
    assert_eq!(
        operations(&["group", "create", "home", "-c", "@staff", "--pattern", "/tank/home/*"]),
        json!([{"op": "create-group", "group": {
            "name": "home", "clients": ["@staff"], "pattern": [{"directories": "/tank/home/*"}]}}])
    );
    assert_eq!(
        operations(&["group", "delete", "a", "b", "--with-shares"])[1],
        json!({"op": "delete-group", "name": "b", "with_shares": true})
    );
    assert_eq!(
        operations(&["group", "disable", "a"]),
        json!([{"op": "set-group", "name": "a", "changes": {"set": {"enabled": false}}}])
    );
    assert_eq!(
        operations(&["group", "move", "work", "/a"]),
        json!([{"op": "move-share", "path": "/a", "group": "work"}])
    );
}

#[test]
fn mistakes_are_told_with_the_nearest_word() {
    for (words, expected) in [
        (&["shar", "list"][..], "'share'"),
        (&["share", "lsit"], "'list'"),
        (&["share", "list", "--state", "fautly"], "'faulty'"),
        (&["share", "add"], "<PATH>"),
        (&["share", "add", "/a", "--rule", "h:no_rootsquash"], "did you mean \"no_root_squash\"?"),
        (&["share", "explain", "/a"], "values"),
        (&["completion", "bsh"], "'bash'"),
    ] {
        let error = parsed(words).expect_err("a mistake");
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    for words in [
        &["share", "add", "/a", "/b", "--id", "1"][..],
        &["share", "set", "/a"],
        &["group", "create", "a", "--add-client", "h"],
        &["group", "set", "a"],
    ] {
        let result = match parsed(words).expect("a command") {
            Command::Share(ShareArguments { action: ShareAction::Add(add), .. }) => {
                changes::add(&add).map(drop)
            }
            Command::Share(ShareArguments { action: ShareAction::Set(set), .. }) => {
                changes::set(&set).map(drop)
            }
            Command::Group(group) => changes::groups(&group.action).map(drop),
            _ => panic!("no such command"),
        };
        result.expect_err("nothing to do");
    }
}

#[test]
fn who_is_asked_about_is_parted_from_the_path() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let of_two = request(&words(&["10.0.0.1", "/a/"]), "sys", false).expect("a request");
    assert_eq!((of_two.user, of_two.path.as_str()), (None, "/a"));
    let of_three = request(&words(&["h", "ann", "/a"]), "krb5", true).expect("a request");
    assert_eq!((of_three.user.as_deref(), of_three.high_port), (Some("ann"), true));
}

#[test]
fn a_file_is_a_document_or_a_batch() {
    let place = tempfile::tempdir().expect("a directory");
    let file = |text: &str| {
        let path = place.path().join("file");
        std::fs::write(&path, text).expect("written");
        path
    };
    match wish(&file("[[group]]\nname = \"a\"\n"), None, true).expect("a wish") {
        Wish::Document(document) => assert!(document.partial && document.name.ends_with("/file")),
        other => panic!("it is TOML: {other:?}"),
    }
    let comment = "why".to_owned();
    match wish(&file(" {\"operations\": []}"), Some(&comment), false).expect("a wish") {
        Wish::Batch(batch) => assert_eq!(batch.comment, Some(comment)),
        other => panic!("it is JSON: {other:?}"),
    }
    let error =
        wish(&file("{\n\"operation\": 1}"), None, false).expect_err("a mistake").to_string();
    assert!(error.contains("file:2:"), "{error}");
    assert!(wish(&place.path().join("none"), None, false).is_err());
}

#[test]
fn a_directory_that_is_not_there_is_not_shared_by_mistake() {
    let place = tempfile::tempdir().expect("a directory");
    let add = |name: &str| {
        let path = place.path().join(name);
        let words = ["share", "add", path.to_str().expect("UTF-8")];
        match parsed(&words).expect("a command") {
            Command::Share(ShareArguments { action: ShareAction::Add(add), .. }) => {
                refuse_missing(&add)
            }
            _ => panic!("no such command"),
        }
    };
    std::fs::create_dir(place.path().join("projects")).expect("made");
    add("projects").expect("it is there");
    let error = add("project").expect_err("it is not").to_string();
    assert!(error.contains("did you mean") && error.contains("--force"), "{error}");
}
