//! Unit tests of a group's file: what is read, and that a change leaves the rest as it is.

use steadfast_shares::RuleSpec;

use super::*;

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

const TEXT: &str = r#"# Home directories.
description = "homes"
clients = ["@staff"]

# Alice
[[share]]
path = "/home/alice" # her own
  clients = [
    "10.0.0.1", # laptop
    '10.0.0.2', # desktop
  ]
[[share.rule]]
clients = ["admin.example"] # us
options = ["no_root_squash"]

# A section.

[[share]]
path = "/home/bob"

[[pattern]]
directories = "/tank/home/*"
"#;

fn file() -> GroupFile {
    let file = GroupFile::parse("home", TEXT);
    assert_eq!(file.mistakes(), []);
    file
}

fn first(file: &GroupFile) -> (NodeId, ShareSpec) {
    let mut nodes = file.nodes();
    nodes
        .find_map(|(id, node)| match &node.content {
            Content::Share(share) => Some((id, share.kept.spec())),
            _ => None,
        })
        .expect("a share")
}

#[test]
fn a_file_is_read_and_told_again() {
    let file = file();
    assert_eq!(file.text(), TEXT);
    let spec = file.spec();
    assert_eq!(spec.description.as_deref(), Some("homes"));
    assert_eq!(spec.clients, ["@staff"]);
    assert_eq!(spec.patterns[0].directories, "/tank/home/*");
    let shares: Vec<_> = file.shares().collect();
    assert_eq!(shares.len(), 2);
    assert_eq!(shares[0].clients, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(shares[0].rules[0].options, ["no_root_squash"]);
}

/// The first share's text after a change, without what stays before and behind it.
fn after(change: impl Fn(&mut ShareSpec)) -> String {
    let file = file();
    let (id, spec) = first(&file);
    let mut new = spec.clone();
    change(&mut new);
    let text = changed_share(file.text_of(id).expect("text"), &spec, &new);
    let read = reading::share(&text);
    assert_eq!((read.spec, read.mistakes), (new, vec![]), "{text}");
    text
}

#[test]
fn a_changed_share_keeps_its_comments() {
    let old = after(|_| {});
    assert_eq!(
        after(|spec| spec.enabled = Some(false)),
        old.replace("  ]\n", "  ]\nenabled = false\n")
    );
    assert_eq!(
        after(|spec| spec.clients = words(&["10.0.0.1", "10.0.0.2", "@x"])),
        old.replace("# desktop\n", "# desktop\n    \"@x\",\n")
    );
    assert_eq!(
        after(|spec| spec.clients = words(&["10.0.0.2"])),
        old.replace("    \"10.0.0.1\", # laptop\n", "")
    );
    assert_eq!(
        after(|spec| spec.rules[0].options = words(&["ro"])),
        old.replace("no_root_squash", "ro").replace(" # us", "")
    );
    let rule = RuleSpec { clients: words(&["10.9.9.9"]), options: words(&["ro"]) };
    assert_eq!(
        after(|spec| spec.rules.push(rule.clone())),
        old + "[[share.rule]]\nclients = [\"10.9.9.9\"]\noptions = [\"ro\"]\n"
    );
    assert!(after(|spec| spec.rules.clear()).ends_with("  ]\n"));
    assert!(!after(|spec| spec.clients.clear()).contains("10.0.0.1"));
}

#[test]
fn lists_in_a_line_are_changed_in_it() {
    let text = "[[share]]\npath = \"/a\"\nclients = [ 'a', \"b\" , \"c\" ] # x\n";
    let old = reading::share(text).spec;
    let with = |clients: &[&str]| {
        let new = ShareSpec { clients: words(clients), ..old.clone() };
        changed_share(text, &old, &new).lines().nth(2).expect("a line").to_owned()
    };
    assert_eq!(with(&["a", "b"]), "clients = [ 'a', \"b\" ] # x");
    assert_eq!(with(&["b", "c"]), "clients = [ \"b\" , \"c\" ] # x");
    assert_eq!(with(&["a", "c", "d"]), "clients = [ 'a', \"c\", \"d\" ] # x");
    assert_eq!(with(&["a"]), "clients = [ 'a' ] # x");
    assert_eq!(with(&["d"]), "clients = [\"d\"] # x");
    assert_eq!(with(&["c", "a"]), "clients = [ \"c\", \"a\" ] # x");
}

#[test]
fn what_is_written_in_an_uncommon_way_is_written_anew() {
    let text = "# kept\n[[share]]\npath = \"/a\"\nrule = [{ clients = [\"a\"] }]\n";
    let old = reading::share(text).spec;
    let new = ShareSpec { rules: Vec::new(), clients: words(&["*"]), ..old.clone() };
    let changed = changed_share(text, &old, &new);
    assert_eq!(changed, "# kept\n[[share]]\npath = \"/a\"\nclients = [\"*\"]\n");
}

#[test]
fn a_group_is_changed_in_its_text() {
    let file = file();
    let new = GroupSpec { description: None, enabled: Some(false), ..file.group().clone() };
    let text = changed_group(file.preamble(), file.group(), &new);
    assert_eq!(text, "# Home directories.\nclients = [\"@staff\"]\nenabled = false\n");
    let empty = GroupSpec { name: "x".to_owned(), ..GroupSpec::default() };
    let text = changed_group("# only this\n", &empty, &GroupSpec { name: "x".to_owned(), ..new });
    assert!(text.starts_with("# only this\nclients"), "{text}");
}

#[test]
fn mistakes_are_told_in_their_lines_and_leave_others_alone() {
    let text = "options = [\"ro\"]\nclient = [\"*\"]\n\n[[share]]\npath = \"/a\"\nopitons = [\"rw\"]\n\n\
                [[share]]\npath = \"/b\"\nclients = [\"*\",\n\n[[share]]\npath = \"/c\"\n\n\
                [shares]\n[[share.rule]]\n";
    let file = GroupFile::parse("x", text);
    let told: Vec<_> = file.mistakes().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 5, "{told:#?}");
    assert_eq!(told[0], "2:1: unknown key \"client\" in a group; did you mean \"clients\"?");
    assert_eq!(told[1], "6:1: unknown key \"opitons\" in [[share]]; did you mean \"options\"?");
    assert!(told[2].starts_with("10:16: unclosed array"), "{told:#?}");
    assert!(told[3].starts_with("15:2: unknown key \"shares\""), "{told:#?}");
    let paths: Vec<_> = file.paths().map(|path| &**path).collect();
    assert_eq!(paths, ["/a", "/b", "/c"]);
    assert_eq!(file.text(), text);
}

#[test]
fn one_table_is_no_share_though_it_is_called_so() {
    let text = "[[share]]\npath = \"/a\"\n\n[share]\npath = \"/b\"\n\n[pattern]\npath = \"/c/*\"\n";
    let file = GroupFile::parse("x", text);
    let told: Vec<_> = file.mistakes().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "4:1: write each share below a header of its own: [[share]]",
            "7:1: write each pattern below a header of its own: [[pattern]]"
        ]
    );
}

#[test]
fn segments_go_and_come_back_where_they_were() {
    let mut file = file();
    let ids: Vec<_> = file.nodes().map(|(id, _)| id).collect();
    for id in ids {
        let position = file.position_of(id, |_, _| true);
        let item = file.node(id).and_then(|node| node.content.item());
        let Some(item) = item else { continue };
        let text = file.remove(id);
        assert_ne!(file.text(), TEXT);
        let behind = file.nodes().find_map(|(id, node)| {
            (node.content.item() == Some(position.behind.clone())).then_some(id)
        });
        let place = file.behind(behind, position.skip, |_, _| true);
        file.insert_item(place, &item, &text);
        assert_eq!(file.text(), TEXT);
    }
}
