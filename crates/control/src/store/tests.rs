//! Unit tests of the store on real directories, and a property test that crashes it anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use steadfast_shares::Share;
use tempfile::TempDir;

use super::*;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("state")).expect("made");
        std::fs::create_dir(directory.path().join("shares.d")).expect("made");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self) -> StoreOptions {
        StoreOptions {
            shares_directory: self.path("shares.d"),
            state_directory: self.path("state"),
            defaults: DefaultsSpec { options: Vec::new(), clients: vec!["*".to_owned()] },
            fixed: Vec::new(),
            threads: 2,
        }
    }

    fn open(&self) -> Store {
        let (store, mistakes) = Store::open(self.options()).expect("opened");
        assert_eq!(mistakes, []);
        store
    }

    fn write(&self, group: &str, text: &str) {
        std::fs::write(self.path("shares.d").join(format!("{group}.toml")), text).expect("written");
    }

    fn read(&self, group: &str) -> Option<String> {
        std::fs::read_to_string(self.path("shares.d").join(format!("{group}.toml"))).ok()
    }

    /// All files as they are now, elsewhere: what a crash leaves.
    fn copy(&self) -> Self {
        let copy = Self::new();
        for part in ["state", "shares.d"] {
            for entry in std::fs::read_dir(self.path(part)).expect("listed") {
                let from = entry.expect("an entry").path();
                let to = copy.path(part).join(from.file_name().expect("a name"));
                std::fs::copy(&from, to).expect("copied");
            }
        }
        copy
    }
}

fn batch(operations: serde_json::Value) -> Batch {
    Batch {
        operations: serde_json::from_value(operations).expect("operations"),
        ..Batch::default()
    }
}

fn add(path: &str) -> Batch {
    batch(json!([{"op": "add-share", "group": "default", "share": {"path": path}}]))
}

fn paths(store: &Store) -> Vec<String> {
    let mut paths: Vec<_> =
        store.catalog().all_served().map(|share| share.path.to_string()).collect();
    paths.sort();
    paths
}

fn served(store: &Store) -> BTreeMap<String, Share> {
    let all = store.catalog().all_served();
    all.map(|share| (share.path.to_string(), Share::clone(share))).collect()
}

#[test]
fn a_batch_outlives_the_server_before_its_file_is_written() {
    let place = Place::new();
    let mut store = place.open();
    let done = store.apply(&add("/a"), "me").expect("done");
    assert_eq!((done.sequence, done.changes.len()), (1, 1));
    assert_eq!(place.read("default"), None);
    drop(store);
    let mut store = place.open();
    assert_eq!(paths(&store), ["/a"]);
    assert!(store.has_writes());
    assert_eq!(store.write_files(), []);
    assert_eq!(place.read("default").as_deref(), Some("[[share]]\npath = \"/a\"\n"));
    assert!(!store.has_writes());
    drop(store);
    // It is not done again, so what people changed since then stays.
    place.write("default", "[[share]]\npath = \"/b\"\n");
    assert_eq!(paths(&place.open()), ["/b"]);
}

#[test]
fn what_was_taken_out_by_hand_does_not_come_back_when_a_rollback_is_only_tried() {
    let place = Place::new();
    let mut store = place.open();
    store.apply(&add("/kept"), "me").expect("done");
    store.apply(&add("/a"), "me").expect("done");
    assert_eq!(store.write_files(), []);
    drop(store);
    place.write("default", "[[share]]\npath = \"/kept\"\n");
    let mut store = place.open();
    for to in [1, 0] {
        store.try_rollback(to).expect("tried");
        assert_eq!(paths(&store), ["/kept"], "{to}");
    }
    store.history.fails = true;
    assert!(matches!(store.rollback(0, "me"), Err(ApplyError::History(_))));
    assert_eq!(paths(&store), ["/kept"]);
}

#[test]
fn a_batch_that_cannot_be_made_durable_is_not_done() {
    let place = Place::new();
    let mut store = place.open();
    store.apply(&add("/a"), "me").expect("done");
    store.history.fails = true;
    assert!(matches!(store.apply(&add("/b"), "me"), Err(ApplyError::History(_))));
    assert_eq!((paths(&store), store.sequence()), (vec!["/a".to_owned()], 1));
    store.history.fails = false;
    store.apply(&add("/c"), "me").expect("done");
    drop(store);
    assert_eq!(paths(&place.open()), ["/a", "/c"]);
}

#[test]
fn any_state_can_be_gone_back_to() {
    let place = Place::new();
    let mut store = place.open();
    for n in 1..=25 {
        store.apply(&add(&format!("/s{n:02}")), "me").expect("done");
    }
    assert_eq!(store.states().len(), 25);
    let done = store.rollback(5, "me").expect("done");
    assert_eq!((done.sequence, done.changes.len(), paths(&store).len()), (26, 20, 5));
    store.rollback(25, "me").expect("done");
    assert_eq!(paths(&store).len(), 25);
    store.write_files();
    drop(store);
    let mut store = place.open();
    store.rollback(0, "me").expect("done");
    assert_eq!(paths(&store).len(), 0);
    let states = store.states();
    assert_eq!(states.last().map(|state| state.rolled_back_to), Some(Some(0)));
    assert!(matches!(store.rollback(99, "me"), Err(ApplyError::NoState { newest: 28, .. })));
    store.write_files();
    assert_eq!(place.read("default"), None, "the group was made by the first batch");
}

#[test]
fn the_history_is_made_shorter_and_keeps_its_last_states() {
    let place = Place::new();
    let mut store = place.open();
    for n in 0..300 {
        let enabled = json!({"set": {"enabled": n % 2 == 0}});
        let set = json!([{"op": "set-share", "path": "/a", "changes": enabled}]);
        let next = if n == 0 { add("/a") } else { batch(set) };
        store.apply(&next, "me").expect("done");
    }
    assert_eq!(store.states().len(), 300);
    store.write_files();
    assert_eq!(store.states().len(), STATES_KEPT);
    store.apply(&add("/b"), "me").expect("done");
    drop(store);
    let mut store = place.open();
    assert_eq!((store.sequence(), store.states().len()), (301, STATES_KEPT + 1));
    assert_eq!(paths(&store), ["/b"]);
    store.rollback(299, "me").expect("done");
    assert_eq!(paths(&store), ["/a"]);
}

#[test]
fn what_people_write_is_kept_and_taken() {
    let place = Place::new();
    place.write("home", "# mine\n[[share]]\npath = \"/a\"\n");
    let mut store = place.open();
    let set = |value: bool| {
        batch(json!([{"op": "set-share", "path": "/a", "changes": {"set": {"log": value}}}]))
    };
    store.apply(&set(false), "me").expect("done");
    // Before the file is written somebody edits it.
    place.write("home", "# mine!\n[[share]]\npath = \"/a\"\n\n[[share]]\npath = \"/b\"\n");
    let mistakes = store.write_files();
    assert!(mistakes[0].what.contains("was edited"), "{mistakes:?}");
    assert!(place.read("home").expect("there").starts_with("# mine!"), "not written over");
    let (done, mistakes) = store.reload("somebody").expect("reloaded");
    assert_eq!((done.changes.len(), mistakes), (1, vec![]));
    assert_eq!(paths(&store), ["/a", "/b"]);
    store.write_files();
    // Comments above a share are its: those of the change win.
    let expected = "# mine\n[[share]]\npath = \"/a\"\nlog = false\n\n[[share]]\npath = \"/b\"\n";
    assert_eq!(place.read("home").as_deref(), Some(expected));
    assert_eq!(store.reload("somebody").expect("reloaded").0.changes, []);
    // It can be taken back as well.
    store.rollback(1, "me").expect("done");
    assert_eq!(paths(&store), ["/a"]);
    store.write_files();
    std::fs::remove_file(place.path("shares.d/home.toml")).expect("removed");
    place.write("new", "[[share]]\npath = \"/c\"\n");
    store.reload("somebody").expect("reloaded");
    assert_eq!(paths(&store), ["/c"]);
    drop(store);
    assert_eq!(paths(&place.open()), ["/c"]);
}

/// What tools made, brought back or deleted as a whole goes together with what people wrote into
/// the file meanwhile.
#[test]
fn a_whole_file_goes_together_with_what_people_write() {
    let by_hand = "# mine\n\n[[share]]\npath = \"/hand\"\n";
    for crashes in [false, true] {
        // The server reads again what was edited, or starts anew.
        let read_again = |place: &Place, mut store: Store| {
            if crashes {
                drop(store);
                return place.open();
            }
            assert_eq!(store.reload("somebody").expect("reloaded").1, []);
            store
        };
        let place = Place::new();
        let mut store = place.open();
        store.apply(&add("/a"), "me").expect("done");
        place.write("default", by_hand);
        let mut store = read_again(&place, store);
        assert_eq!(paths(&store), ["/a", "/hand"]);
        assert_eq!(store.write_files(), []);
        assert!(place.read("default").expect("there").starts_with("# mine\n"));

        let delete = json!([{"op": "delete-group", "name": "default", "with_shares": true}]);
        let deleted = store.apply(&batch(delete), "me").expect("done").sequence;
        store.write_files();
        assert_eq!(place.read("default"), None);
        store.rollback(deleted - 1, "me").expect("done");
        place.write("default", "[[share]]\npath = \"/other\"\n");
        let mut store = read_again(&place, store);
        assert_eq!(paths(&store), ["/a", "/hand", "/other"]);
        store.write_files();

        store.rollback(deleted, "me").expect("done");
        place.write(
            "default",
            &(place.read("default").expect("there") + "\n# !\n[[share]]\npath = \"/b\"\n"),
        );
        let mut store = read_again(&place, store);
        assert_eq!(paths(&store), ["/b"]);
        store.write_files();
        drop(store);
        assert_eq!(paths(&place.open()), ["/b"]);
    }
}

#[test]
fn an_edit_with_a_mistake_is_not_taken_and_not_written_over() {
    let place = Place::new();
    place.write("home", "[[share]]\npath = \"/a\"\n");
    let mut store = place.open();
    let wrong = "[[share]]\npath = \"/a\"\n\n[[share]]\npath = \"/b\"\noptions = [\"roo\"]\n";
    place.write("home", wrong);
    let (done, mistakes) = store.reload("somebody").expect("reloaded");
    assert_eq!((done.changes, paths(&store)), (vec![], vec!["/a".to_owned()]));
    assert!(mistakes[0].place.ends_with("home.toml:6:12"), "{mistakes:?}");
    let add = batch(json!([{"op": "add-share", "group": "home", "share": {"path": "/c"}}]));
    store.apply(&add, "me").expect("done");
    store.write_files();
    assert_eq!(place.read("home").as_deref(), Some(wrong));
    // A server that starts serves what it can.
    drop(store);
    let mut store = place.open();
    assert_eq!(paths(&store), ["/a", "/c"]);
    place.write("home", &wrong.replace("roo", "ro"));
    store.reload("somebody").expect("reloaded");
    assert_eq!(paths(&store), ["/a", "/b", "/c"]);
    store.write_files();
    assert!(place.read("home").expect("there").contains("path = \"/c\""));
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let place = Place::new();
    let _store = place.open();
    let mut options = place.options();
    options.state_directory = tempfile::tempdir().expect("a directory").keep();
    assert!(matches!(Store::open(options), Err(StoreError::InUse(_))));
}

#[test]
fn what_cannot_be_read_is_told_and_the_others_go_on() {
    let place = Place::new();
    place.write("good", "[[share]]\npath = \"/a\"\n");
    place.write("no good name", "");
    place.write(".hidden", "x");
    std::fs::create_dir(place.path("shares.d/directory.toml")).expect("made");
    std::fs::write(place.path("shares.d/bytes.toml"), b"\n\xff\n").expect("written");
    std::fs::write(place.path("shares.d/README"), "").expect("written");
    let (mut store, mistakes) = Store::open(place.options()).expect("opened");
    let told: Vec<_> = mistakes
        .iter()
        .map(|mistake| mistake.place.rsplit('/').next().expect("a name").to_owned())
        .collect();
    assert_eq!(told, ["no good name.toml", "bytes.toml:2:1", "directory.toml"]);
    assert_eq!(paths(&store), ["/a"]);
    // Nothing is put in the place of what could not be read.
    let add = batch(json!([
        {"op": "create-group", "group": {"name": "bytes"}},
        {"op": "add-share", "group": "bytes", "share": {"path": "/b"}},
    ]));
    let Err(ApplyError::Mistakes(mistakes)) = store.apply(&add, "me") else { panic!("done") };
    assert!(mistakes[0].what.contains("bytes.toml cannot be read"), "{mistakes:?}");
    assert!(mistakes[1].what.contains("bytes.toml cannot be read"), "{mistakes:?}");
    store.write_files();
    let bytes = std::fs::read(place.path("shares.d/bytes.toml")).expect("read");
    assert_eq!(bytes, b"\n\xff\n");
}

/// Shares do not come without the options and clients of their group.
#[test]
fn nothing_is_served_of_a_group_whose_file_cannot_be_read() {
    let place = Place::new();
    let text = "clients = [\"@staff\"]\noptions = [\"ro\"]\n";
    place.write("home", text);
    let add_home =
        |path: &str| batch(json!([{"op": "add-share", "group": "home", "share": {"path": path}}]));
    let mut store = place.open();
    store.apply(&add_home("/a"), "me").expect("done");
    store.apply(&add("/b"), "me").expect("done");
    drop(store);
    std::fs::write(place.path("shares.d/home.toml"), b"clients = \xff\n").expect("written");
    let (mut store, mistakes) = Store::open(place.options()).expect("opened");
    assert_eq!((mistakes.len(), paths(&store)), (1, vec!["/b".to_owned()]));
    // Neither now, nor when something is done or undone, nor while it has another mistake.
    assert!(store.apply(&add_home("/c"), "me").is_err());
    store.rollback(1, "me").expect("done");
    store.rollback(2, "me").expect("done");
    assert_eq!(paths(&store), ["/b"]);
    place.write("home", "client = []\n");
    assert!(!store.reload("somebody").expect("reloaded").1.is_empty());
    assert!(store.apply(&add_home("/c"), "me").is_err());
    assert_eq!(paths(&store), ["/b"]);
    // When it can be read, it has what was done.
    place.write("home", text);
    assert_eq!(store.reload("somebody").expect("reloaded").1, []);
    assert_eq!(paths(&store), ["/a", "/b"]);
    let share = store.catalog().served("/a").expect("served");
    assert_eq!(share.rules.rules()[0].pattern.to_string(), "@staff");
    // One that is removed is no hindrance.
    std::fs::write(place.path("shares.d/gone.toml"), b"\xff").expect("written");
    store.write_files();
    drop(store);
    let (mut store, _) = Store::open(place.options()).expect("opened");
    std::fs::remove_file(place.path("shares.d/gone.toml")).expect("removed");
    assert_eq!(store.reload("somebody").expect("reloaded").1, []);
    let create = json!([{"op": "create-group", "group": {"name": "gone"}}]);
    store.apply(&batch(create), "me").expect("done");
}

/// A share that came back without its group would inherit `[defaults]` alone, which let more
/// people in than the group did.
#[test]
fn what_tools_did_to_a_file_that_is_removed_goes_with_it() {
    let text = "clients = [\"@staff\"]\n\n[[share]]\npath = \"/a\"\n";
    let set =
        batch(json!([{"op": "set-share", "path": "/a", "changes": {"set": {"options": ["ro"]}}}]));
    let names = |store: &Store| -> Vec<String> {
        store.catalog().group_names().map(str::to_owned).collect()
    };
    let says = |told: &[Mistake], what: &str| {
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].place.ends_with("/home.toml"), "{told:?}");
        assert!(told[0].what.contains(what), "{told:?}");
    };
    let is_told = |told: &[Mistake]| says(told, "went with it");
    for crashes in [false, true] {
        let place = Place::new();
        place.write("home", text);
        let mut store = place.open();
        store.apply(&set, "me").expect("done");
        std::fs::remove_file(place.path("shares.d/home.toml")).expect("removed");
        let mut store = if crashes {
            drop(store);
            let (store, mistakes) = Store::open(place.options()).expect("opened");
            is_told(&mistakes);
            store
        } else {
            let (done, mistakes) = store.reload("somebody").expect("reloaded");
            assert_eq!((done.changes.len(), mistakes), (1, vec![]));
            is_told(&done.left_out);
            store
        };
        assert_eq!((names(&store), paths(&store)), (vec![], vec![]));
        assert!(!store.has_writes());
        // It is told once, and nothing comes back: not by itself, ...
        let (done, mistakes) = store.reload("somebody").expect("reloaded");
        assert_eq!((done.left_out, mistakes), (vec![], vec![]));
        // ... not into another group of this name that is written when it crashes, ...
        let create = json!([{"op": "create-group", "group": {"name": "home"}}]);
        store.apply(&batch(create), "me").expect("done");
        for write in store.take_writes() {
            write.perform();
        }
        drop(store);
        let mut store = place.open();
        assert_eq!((names(&store), paths(&store)), (vec!["home".to_owned()], vec![]));
        std::fs::remove_file(place.path("shares.d/home.toml")).expect("removed");
        store.reload("somebody").expect("reloaded");
        // ... and not by going back.
        drop(store);
        let place = Place::new();
        place.write("home", text);
        let mut store = place.open();
        store.apply(&set, "me").expect("done");
        store.write_files();
        drop(store);
        std::fs::remove_file(place.path("shares.d/home.toml")).expect("removed");
        let mut store = place.open();
        let done = store.rollback(0, "me").expect("done");
        says(&done.left_out, "not all of that state came back");
        assert_eq!((done.sequence, names(&store), paths(&store)), (1, vec![], vec![]));
    }
}

/// What people changed in a file stays, whatever happens to others.
#[test]
fn an_edit_is_not_undone_while_another_file_waits() {
    let place = Place::new();
    place.write("g", "\n");
    place.write("h", "\n");
    let mut store = place.open();
    let in_group = |group: &str, share: serde_json::Value| {
        batch(json!([{"op": "add-share", "group": group, "share": share}]))
    };
    let wrong = "[[share]]\npath = \"/wrong\"\noptions = [\"roo\"]\n";
    place.write("h", wrong);
    assert!(!store.reload("somebody").expect("reloaded").1.is_empty());
    store.apply(&in_group("h", json!({"path": "/h"})), "me").expect("done");
    let share = json!({"path": "/a", "clients": ["10.0.0.1", "10.0.0.2"]});
    store.apply(&in_group("g", share), "me").expect("done");
    store.write_files();
    let text = place.read("g").expect("written");
    place.write("g", &text.replace(", \"10.0.0.2\"", ""));
    assert_eq!(store.reload("somebody").expect("reloaded").1.len(), 1, "that of the other file");
    let expected = served(&store);
    assert_eq!(expected["/a"].rules.rules().len(), 1);
    drop(store);
    let mut store = place.open();
    assert_eq!(served(&store), expected);
    // The history is made shorter all the same, and has what is needed.
    for n in 0..600 {
        let log = json!({"set": {"log": n % 2 == 0}});
        let set = json!([{"op": "set-share", "path": "/a", "changes": log}]);
        store.apply(&batch(set), "me").expect("done");
        if n % 100 == 0 {
            // A server that starts takes what is right of it; this one had it read again.
            place.write("h", &format!("# {n}\n{wrong}"));
            store.write_files();
        }
    }
    store.write_files();
    assert!(store.states().len() < 400, "{}", store.states().len());
    let first = store.states()[0].sequence - 1;
    assert!(matches!(store.way_back(first - 1), Err(ApplyError::NoState { .. })));
    let expected = served(&store);
    drop(store);
    place.write("h", wrong);
    assert_eq!(served(&place.open()), expected);
}

#[test]
fn a_history_that_lost_its_name_takes_no_more() {
    let place = Place::new();
    let mut store = place.open();
    for n in 0..300 {
        let log = json!({"set": {"log": n % 2 == 0}});
        let set = json!([{"op": "set-share", "path": "/a", "changes": log}]);
        let next = if n == 0 { add("/a") } else { batch(set) };
        store.apply(&next, "me").expect("done");
    }
    store.history.fails_in_place = true;
    assert!(!store.write_files().is_empty());
    assert!(matches!(store.apply(&add("/b"), "me"), Err(ApplyError::History(_))));
    drop(store);
    let mut store = place.open();
    assert_eq!((paths(&store), store.sequence()), (vec!["/a".to_owned()], 300));
    store.apply(&add("/b"), "me").expect("done");
}

/// What is in the files is noted when the history can be written again, though there is no file to
/// be written any more.
#[test]
fn what_could_not_be_noted_is_noted_by_the_next_writing() {
    let place = Place::new();
    let mut store = place.open();
    store.apply(&add("/a"), "me").expect("done");
    store.history.fails = true;
    assert!(!store.write_files().is_empty());
    assert!(!store.has_writes());
    store.history.fails = false;
    assert_eq!(store.write_files(), []);
    drop(store);
    place.write("default", "");
    assert_eq!(paths(&place.open()), [""; 0]);
}

#[test]
fn a_damaged_history_is_told() {
    let place = Place::new();
    let mut store = place.open();
    for path in ["/a", "/b", "/c"] {
        store.apply(&add(path), "me").expect("done");
    }
    drop(store);
    let path = place.path("state").join(HISTORY_NAME);
    let mut bytes = std::fs::read(&path).expect("read");
    let second = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 40;
    bytes[second] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let (mut store, mistakes) = Store::open(place.options()).expect("opened");
    assert!(mistakes[0].place.ends_with("shares.history:2"), "{mistakes:?}");
    assert_eq!(paths(&store), ["/a", "/c"]);
    // What was done there cannot be undone, so nobody is told that it was.
    let told = store.rollback(1, "me").expect_err("no state");
    assert!(matches!(told, ApplyError::NoState { wanted: 1, oldest: 2, newest: 3 }), "{told}");
    store.rollback(2, "me").expect("done");
    assert_eq!(paths(&store), ["/a"]);
}

#[test]
fn the_mode_of_a_file_stays() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.write("default", "");
    let path = place.path("shares.d/default.toml");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("set");
    let mut store = place.open();
    store.apply(&add("/a"), "me").expect("done");
    store.write_files();
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(place.path("shares.d")).expect("listed").count(), 1);
}

const GROUPS: [&str; 3] = ["default", "g1", "g2"];

/// Something that is not taken; what is before it is served by a server that starts. Each group
/// has a path of its own: two with one path would be a mistake of another kind.
fn wrong(group: &str) -> String {
    format!("\n[[share]]\npath = \"/wrong/{group}\"\noptions = [\"roo\"]\n")
}

fn is_wrong(text: &str) -> bool {
    text.contains("roo")
}

/// A file without the share of a path, as an editor would leave it.
fn without(text: &str, path: &str) -> Option<String> {
    let line = format!("path = \"{path}\"");
    let mut parts: Vec<&str> = text.split("[[share]]").collect();
    let at = parts.iter().position(|part| part.trim_start().starts_with(&line))?;
    parts.remove(at);
    Some(parts.join("[[share]]"))
}

#[derive(Clone, Debug)]
enum Step {
    Apply(serde_json::Value),
    Rollback(u64),
    /// Writes so many of the files that have to be, and says so or not.
    Write(usize, bool),
    /// Somebody adds a share to a group's file.
    Edit(usize, u8),
    /// Somebody takes a share out of a group's file.
    TakeOut(usize, u8),
    /// Somebody removes a group's file.
    Remove(usize),
    /// Somebody writes something wrong into a group's file, and it is told.
    Mistake(usize),
    /// He corrects it.
    Correct(usize),
    Reload,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let group = || prop::sample::select(vec!["default", "g1", "g2"]);
    let path = || (0..5_u8).prop_map(|n| format!("/p{n}"));
    prop_oneof![
        6 => (group(), path()).prop_map(|(group, path)| Step::Apply(json!([
            {"op": "add-share", "group": group, "share": {"path": path}}]))),
        2 => path().prop_map(|path| Step::Apply(json!([{"op": "remove-share", "path": path}]))),
        2 => (path(), any::<bool>()).prop_map(|(path, log)| Step::Apply(json!([
            {"op": "set-share", "path": path, "changes": {"set": {"log": log}}}]))),
        2 => (path(), group()).prop_map(|(path, group)| Step::Apply(json!([
            {"op": "move-share", "path": path, "group": group}]))),
        1 => (group(), any::<bool>()).prop_map(|(name, is_new)| Step::Apply(if is_new {
            json!([{"op": "create-group", "group": {"name": name}}])
        } else {
            json!([{"op": "delete-group", "name": name, "with_shares": true}])
        })),
        1 => group().prop_map(|name| Step::Apply(json!([
            {"op": "set-group", "name": name, "changes": {"set": {"options": ["ro"]}}}]))),
        1 => (0..4_u64).prop_map(Step::Rollback),
        3 => (0..3_usize, any::<bool>()).prop_map(|(count, is_noted)| Step::Write(count, is_noted)),
        1 => (0..3_usize, 0..3_u8).prop_map(|(group, number)| Step::Edit(group, number)),
        2 => (0..3_usize, 0..5_u8).prop_map(|(group, number)| Step::TakeOut(group, number)),
        1 => (0..3_usize).prop_map(Step::Remove),
        1 => (0..3_usize).prop_map(Step::Mistake),
        1 => (0..3_usize).prop_map(Step::Correct),
        1 => Just(Step::Reload),
        1 => Just(Step::Restart),
    ]
}

/// A store that starts from what a crash left, with the end of its history torn or with half a
/// file beside those that are there, serves what was acknowledged, and has the same groups.
fn check_crash(place: &Place, running: &Store) -> Result<(), TestCaseError> {
    let crashed = place.copy();
    let history = crashed.path("state").join(HISTORY_NAME);
    let mut bytes = std::fs::read(&history).expect("read");
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    bytes.extend_from_slice(b"{\"crc\":\"0123");
    std::fs::write(&history, bytes).expect("written");
    std::fs::write(crashed.path("shares.d/.default.toml.new"), "[[sha").expect("written");
    let (store, mistakes) = Store::open(crashed.options()).expect("opened");
    prop_assert_eq!(mistakes, vec![]);
    prop_assert_eq!(served(&store), served(running));
    // A file that is not taken may be that of a group that is not there yet.
    let is_taken = |name: &&str| !place.read(name).is_some_and(|text| is_wrong(&text));
    let names = |store: &Store| -> Vec<String> {
        store.catalog().group_names().filter(is_taken).map(str::to_owned).collect()
    };
    prop_assert_eq!(names(&store), names(running));
    Ok(())
}

/// A store that starts after a crash; what went with a file that was removed meanwhile is told.
fn open_after_removals(place: &Place) -> Result<Store, TestCaseError> {
    let (store, mistakes) = Store::open(place.options()).expect("opened");
    prop_assert!(mistakes.iter().all(|m| m.what.contains("went with it")), "{mistakes:?}");
    Ok(store)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn nothing_acknowledged_is_lost_wherever_it_crashes(steps in prop::collection::vec(step(), 1..25)) {
        let place = Place::new();
        place.write("g1", "# by hand\n\n[[share]]\npath = \"/p0\" # first\n");
        let mut store = place.open();
        // What people wrote and nobody has read yet is served after a crash alone.
        let mut has_edits = false;
        for step in steps {
            match step {
                Step::Apply(operations) => {
                    let before = served(&store);
                    if store.apply(&batch(operations), "me").is_err() {
                        prop_assert_eq!(served(&store), before);
                    }
                }
                Step::Rollback(back) => {
                    let to = store.sequence().saturating_sub(back);
                    store.rollback(to, "me").expect("a state");
                }
                Step::Write(count, is_noted) => {
                    let writes = store.take_writes();
                    let done: Vec<_> =
                        writes.into_iter().take(count).map(FileWrite::perform).collect();
                    if is_noted {
                        store.note_writes(done);
                    } else {
                        // The server crashes before it could note them.
                        drop(store);
                        store = open_after_removals(&place)?;
                        has_edits = false;
                    }
                }
                Step::Remove(group) => {
                    let path = place.path(&format!("shares.d/{}.toml", GROUPS[group]));
                    has_edits |= std::fs::remove_file(path).is_ok();
                }
                Step::Edit(group, number) => {
                    let group = GROUPS[group];
                    let text = place.read(group).unwrap_or_default();
                    let line = format!("\n[[share]]\npath = \"/hand/{group}{number}\"\n");
                    if !text.contains(&line) && !is_wrong(&text) {
                        place.write(group, &(text + &line));
                        has_edits = true;
                    }
                }
                Step::TakeOut(group, number) => {
                    let text = place.read(GROUPS[group]).unwrap_or_default();
                    // Of a file that is not taken a server that starts would take it alone.
                    if !is_wrong(&text)
                        && let Some(text) = without(&text, &format!("/p{number}"))
                    {
                        place.write(GROUPS[group], &text);
                        has_edits = true;
                    }
                }
                Step::Mistake(group) if !has_edits => {
                    let text = place.read(GROUPS[group]).unwrap_or_default();
                    if !is_wrong(&text) {
                        place.write(GROUPS[group], &(text + &wrong(GROUPS[group])));
                        let (_, mistakes) = store.reload("somebody").expect("reloaded");
                        prop_assert!(!mistakes.is_empty());
                    }
                }
                Step::Mistake(_) => {}
                Step::Correct(group) => {
                    if let Some(text) = place.read(GROUPS[group]).filter(|text| is_wrong(text)) {
                        place.write(GROUPS[group], &text.replace(&wrong(GROUPS[group]), ""));
                        has_edits = true;
                    }
                }
                Step::Reload => {
                    let (_, mistakes) = store.reload("somebody").expect("reloaded");
                    prop_assert!(mistakes.iter().all(|m| m.what.contains("roo")), "{mistakes:?}");
                    has_edits = false;
                }
                Step::Restart => {
                    store.write_files();
                    drop(store);
                    store = open_after_removals(&place)?;
                    has_edits = false;
                }
            }
            if !has_edits {
                check_crash(&place, &store)?;
            }
        }
        for group in GROUPS {
            if let Some(text) = place.read(group).filter(|text| is_wrong(text)) {
                place.write(group, &text.replace(&wrong(group), ""));
            }
        }
        let (_, mistakes) = store.reload("somebody").expect("reloaded");
        prop_assert_eq!(mistakes, vec![]);
        let expected = served(&store);
        prop_assert_eq!(store.write_files(), vec![]);
        prop_assert!(!store.has_writes());
        let names: Vec<String> = store.catalog().group_names().map(str::to_owned).collect();
        for name in &names {
            prop_assert_eq!(place.read(name), store.catalog().file(name).map(GroupFile::text));
        }
        drop(store);
        // The files alone say it.
        std::fs::remove_file(place.path("state").join(HISTORY_NAME)).expect("removed");
        let store = place.open();
        prop_assert_eq!(served(&store), expected);
        prop_assert_eq!(store.catalog().group_names().collect::<Vec<_>>(), names);
    }
}
