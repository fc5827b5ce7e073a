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
    store.apply(&add, "me").expect("done");
    store.write_files();
    let bytes = std::fs::read(place.path("shares.d/bytes.toml")).expect("read");
    assert_eq!(bytes, b"\n\xff\n");
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
    let (store, mistakes) = Store::open(place.options()).expect("opened");
    assert!(mistakes[0].place.ends_with("shares.history:2"), "{mistakes:?}");
    assert_eq!(paths(&store), ["/a", "/c"]);
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

#[derive(Clone, Debug)]
enum Step {
    Apply(serde_json::Value),
    Rollback(u64),
    /// Writes so many of the files that have to be, and says so or not.
    Write(usize, bool),
    /// Somebody adds a share to a group's file.
    Edit(usize, u8),
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
        1 => Just(Step::Reload),
        1 => Just(Step::Restart),
    ]
}

/// A store that starts from what a crash left, with the end of its history torn or with half a
/// file beside those that are there, serves what was acknowledged.
fn check_crash(place: &Place, expected: &BTreeMap<String, Share>) -> Result<(), TestCaseError> {
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
    prop_assert_eq!(&served(&store), expected);
    Ok(())
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
                        store = place.open();
                        has_edits = false;
                    }
                }
                Step::Edit(group, number) => {
                    let group = ["default", "g1", "g2"][group];
                    let text = place.read(group).unwrap_or_default();
                    let line = format!("\n[[share]]\npath = \"/hand/{group}{number}\"\n");
                    if !text.contains(&line) {
                        place.write(group, &(text + &line));
                        has_edits = true;
                    }
                }
                Step::Reload => {
                    let (_, mistakes) = store.reload("somebody").expect("reloaded");
                    prop_assert_eq!(mistakes, vec![]);
                    has_edits = false;
                }
                Step::Restart => {
                    store.write_files();
                    drop(store);
                    store = place.open();
                    has_edits = false;
                }
            }
            if !has_edits {
                check_crash(&place, &served(&store))?;
            }
        }
        let _ = store.reload("somebody").expect("reloaded");
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
        prop_assert_eq!(served(&place.open()), expected);
    }
}
