//! Unit ring: a server without the recovery program, which acknowledges names before they are stable.

use steadfast_journal::{Attributes as Settings, Change, Journal, Outcome, Sequence, SetTime};

use super::client::{medium, noted, open, record};
use super::model::{Fault, Model, Others, ROOT, handle};
use super::{Carried, Memory, replay};
use crate::replay::Report;
use crate::replay::share::{Making, Share, Who};

struct Scene {
    model: Model,
    journal: Journal,
    keeper: Memory,
}

impl Scene {
    fn new() -> Self {
        let mut model = Model::new(true);
        model.has_program = false;
        Self { model, journal: open(&medium(64)).0, keeper: Memory::default() }
    }

    /// Appends a record, makes the change, and notes the answer.
    fn change(&mut self, change: Change<'_>) -> Vec<u8> {
        self.change_with_record(change).0
    }

    fn change_with_record(&mut self, change: Change<'_>) -> (Vec<u8>, Sequence) {
        let sequence = self.journal.append(&record(b"/path", change)).unwrap();
        let (who, model) = (&Who::default(), &mut self.model);
        let mut outcome = Outcome { verifier: Some(model.verifier()), ..Outcome::default() };
        match change {
            Change::Create { parent, name, verifier, .. } => {
                let what = Making::File { verifier };
                outcome.handle = model.make(who, parent, name, &what).unwrap().0;
            }
            Change::Mkdir { parent, name, attributes } => {
                let what = Making::Directory(attributes);
                outcome.handle = model.make(who, parent, name, &what).unwrap().0;
            }
            Change::Write { file, offset, data } => {
                outcome.after = noted(model.write(who, file, offset, data).unwrap().after);
            }
            Change::Rename { from_parent, from_name, to_parent, to_name, .. } => {
                model.rename(who, (from_parent, from_name), (to_parent, to_name)).unwrap();
            }
            Change::Remove { parent, name, .. } => model.remove(who, parent, name).unwrap(),
            Change::SetAttr { object, attributes } => {
                outcome.after = noted(model.setattr(who, object, &attributes).unwrap());
            }
            other => panic!("{other:?}"),
        }
        let made = outcome.handle.clone();
        self.journal.note_outcome(sequence, outcome).unwrap();
        (made, sequence)
    }

    fn create(&mut self, parent: &[u8], name: &[u8]) -> Vec<u8> {
        let attributes = Settings { mode: Some(0o644), ..Settings::default() };
        self.change(Change::Create { parent, name, verifier: [name[0]; 8], attributes })
    }

    fn write(&mut self, file: &[u8], data: &[u8]) {
        self.change(Change::Write { file, offset: 0, data });
    }

    fn replay(&mut self) -> Report {
        let carried = &mut Carried::default();
        let report = replay(&self.journal, &mut self.model, &mut self.keeper, carried).unwrap();
        assert!(self.journal.pending().is_empty());
        report
    }

    /// What the server has, as text, once it has crashed again: what a replay has brought is stable.
    fn tree(&mut self) -> Vec<String> {
        self.model.crash_hard();
        let tree = self.model.tree().into_iter().skip(1);
        tree.map(|(path, what)| format!("{path} {what}")).collect()
    }
}

fn root() -> Vec<u8> {
    handle(ROOT)
}

#[test]
fn a_file_whose_name_was_lost_is_made_again_with_its_data() {
    let mut scene = Scene::new();
    let old = scene.create(&root(), b"a");
    scene.write(&old, b"data");
    scene.model.crash_hard();
    assert!(scene.tree().is_empty(), "it is lost");
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    let (was, new) = &report.made_again[0];
    assert!(*was == old && *new != old, "whoever has it open goes on with its new handle");
    assert_eq!(scene.tree(), ["/a 644 data"]);
}

#[test]
fn an_empty_file_is_made_again_and_is_stable_then() {
    let mut scene = Scene::new();
    scene.create(&root(), b"a");
    scene.create(&root(), b"b");
    scene.model.crash_hard();
    let report = scene.replay();
    assert!(report.conflicts.is_empty());
    // There are file systems whose fsync(2) makes that file's names stable alone.
    let mut made = report.made_again.iter().map(|(_, new)| new);
    assert!(made.all(|new| scene.model.committed.iter().any(|number| handle(*number) == *new)));
    assert_eq!(scene.tree(), ["/a 644 ", "/b 644 "]);
}

#[test]
fn a_name_that_somebody_else_has_taken_is_theirs() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    scene.write(&file, b"data");
    scene.model.crash_hard();
    scene.model.others_make(b"a");
    let report = scene.replay();
    assert!(scene.keeper.has(0, b"data"), "its data is in a conflict file");
    assert!(report.to_string().contains("another object has its name now"), "{report}");
    assert_eq!(scene.tree(), ["/a 0 "]);
}

#[test]
fn a_directory_that_was_lost_is_made_again_for_the_file_in_it() {
    let mut scene = Scene::new();
    let attributes = Settings::default();
    let directory = scene.change(Change::Mkdir { parent: &root(), name: b"d", attributes });
    let file = scene.create(&directory, b"a");
    scene.write(&file, b"data");
    scene.model.crash_hard();
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(report.made_again.len(), 2);
    assert_eq!(scene.tree(), ["/d directory", "/d/a 644 data"]);
}

#[test]
fn a_file_that_was_renamed_has_its_last_name() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    scene.write(&file, b"data");
    let root = root();
    scene.change(Change::Rename {
        from_parent: &root,
        from_name: b"a",
        to_parent: &root,
        to_name: b"b",
        to_path: b"/b",
        object: &file,
        replaced: b"",
    });
    scene.write(&file, b"DATA");
    scene.model.crash_hard();
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(scene.tree(), ["/b 644 DATA"]);
}

#[test]
fn what_this_client_has_removed_stays_removed() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    scene.write(&file, b"data");
    scene.create(&root(), b"b");
    scene.change(Change::Remove { parent: &root(), name: b"a", object: &file });
    scene.model.crash_hard();
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(scene.tree(), ["/b 644 "]);
}

/// The client alone has crashed: the verifier tells that the server has lost nothing.
#[test]
fn what_others_have_removed_is_not_made_again_while_the_server_has_its_verifier() {
    for has_other in [true, false] {
        let mut scene = Scene::new();
        let file = scene.create(&root(), b"a");
        scene.write(&file, b"data");
        if has_other {
            // It tells the verifier before anything is made.
            let other = scene.create(&root(), b"b");
            scene.write(&other, b"more");
        }
        scene.model.remove(&Who::default(), &root(), b"a").unwrap();
        let report = scene.replay();
        assert!(scene.keeper.has(0, b"data"), "its data is in a conflict file");
        assert!(report.to_string().contains("removed by others"), "{report}");
        let is_there = |name: &str| scene.model.tree().contains_key(name);
        assert_eq!((is_there("/a"), is_there("/b")), (false, has_other));
    }
}

/// The client alone has crashed, and knows of no file that it made.
#[test]
fn a_rename_that_others_have_undone_is_not_made_again_while_the_server_has_its_verifier() {
    for has_crashed in [false, true] {
        let mut scene = Scene::new();
        scene.model.others_make(b"a");
        let root = root();
        let file = scene.model.lookup(&Who::default(), &root, b"a").unwrap();
        scene.change(Change::Rename {
            from_parent: &root,
            from_name: b"a",
            to_parent: &root,
            to_name: b"b",
            to_path: b"/b",
            object: &file,
            replaced: b"",
        });
        if has_crashed {
            scene.model.crash_hard();
        } else {
            scene.model.rename(&Who::default(), (&root, b"b"), (&root, b"a")).unwrap();
        }
        assert!(scene.model.tree().contains_key("/a"));
        scene.replay();
        let is_renamed = scene.model.tree().contains_key("/b");
        assert_eq!(is_renamed, has_crashed);
    }
}

/// Nothing says whether the server has lost the file, so it is made again. Then it is told that others have removed it,
/// and somebody has the new one meanwhile.
#[test]
fn what_was_made_to_ask_for_the_verifier_is_not_removed_if_others_have_it() {
    for (others, wanted) in
        [(Others::Write, vec!["/a 0 theirs"]), (Others::TakeName, vec!["/a 0 ", "/moved 0 "])]
    {
        let mut scene = Scene::new();
        let file = scene.create(&root(), b"a");
        scene.write(&file, b"data");
        scene.model.remove(&Who::default(), &root(), b"a").unwrap();
        scene.model.others = Some((others, b"a"));
        let report = scene.replay();
        assert!(scene.model.others.is_none(), "it was asked");
        assert!(scene.keeper.has(0, b"data"), "its data is in a conflict file");
        assert!(report.to_string().contains("removed by others"), "{report}");
        let tree = scene.model.tree().into_iter().skip(1);
        let tree: Vec<_> = tree.map(|(path, what)| format!("{path} {what}")).collect();
        assert_eq!(tree, wanted);
    }
}

fn time(seconds: i64) -> Settings {
    let modified = Some(SetTime::To { seconds, nanoseconds: 0 });
    Settings { modified, ..Settings::default() }
}

/// Records of writes leave with COMMIT, those of attributes when they are old.
#[test]
fn times_that_were_set_before_a_write_are_not_set_again_after_it() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    let write = |data| Change::Write { file: &file, offset: 0, data };
    let (_, old) = scene.change_with_record(write(b"old!"));
    scene.change(Change::SetAttr { object: &file, attributes: time(7) });
    let (_, new) = scene.change_with_record(write(b"data"));
    scene.model.commit(&Who::default(), &file).unwrap();
    scene.journal.stable([old, new]);
    scene.model.crash_hard();
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(scene.tree(), ["/a 644 data"]);
}

/// A write changes no time of access.
#[test]
fn a_time_of_access_that_was_set_before_a_write_is_set_again() {
    for has_program in [false, true] {
        let mut scene = Scene::new();
        scene.model.has_program = has_program;
        let file = scene.create(&root(), b"a");
        let accessed = Some(SetTime::To { seconds: 5, nanoseconds: 0 });
        let attributes = Settings { accessed, ..time(7) };
        scene.change(Change::SetAttr { object: &file, attributes });
        scene.write(&file, b"data");
        scene.model.crash_hard();
        let report = scene.replay();
        assert!(report.conflicts.is_empty(), "{report}");
        assert_eq!(scene.tree(), ["/a 644 data"]);
        let (_, new) = &report.made_again[0];
        let now = scene.model.getattr(&Who::default(), new).unwrap();
        assert_eq!(now.atime.seconds, 5);
    }
}

#[test]
fn times_that_were_set_after_all_writes_are_set_again() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    let (_, write) =
        scene.change_with_record(Change::Write { file: &file, offset: 0, data: b"data" });
    scene.model.commit(&Who::default(), &file).unwrap();
    scene.journal.stable([write]);
    scene.change(Change::SetAttr { object: &file, attributes: time(7) });
    scene.model.crash_hard();
    assert_eq!(scene.model.tree()["/a"], "0 data", "its mode comes with the replay");
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(scene.tree(), ["/a 644 data of 7"]);
}

/// The client alone crashes: what is not known to be stable is written again.
#[test]
fn times_that_the_server_has_are_there_after_data_is_written_again() {
    for has_program in [false, true] {
        let mut scene = Scene::new();
        scene.model.has_program = has_program;
        let file = scene.create(&root(), b"a");
        scene.write(&file, b"data");
        scene.change(Change::SetAttr { object: &file, attributes: time(7) });
        assert_eq!(scene.model.tree()["/a"], "0 data of 7");
        let report = scene.replay();
        assert!(report.conflicts.is_empty(), "{report}");
        assert_eq!(scene.tree(), ["/a 0 data of 7"], "{has_program}");
    }
}

/// What an attempt has written comes before the times, though the journal knows it as the newest change.
#[test]
fn times_are_set_after_data_that_an_earlier_attempt_has_written() {
    for call in 1..30 {
        let mut scene = Scene::new();
        let file = scene.create(&root(), b"a");
        scene.model.commit(&Who::default(), &file).unwrap();
        scene.write(&file, b"data");
        scene.change(Change::SetAttr { object: &file, attributes: time(7) });
        scene.model.crash_hard();
        scene.model.faults.insert(scene.model.calls + call, Fault::Lost);
        let carried = &mut Carried::default();
        for _ in 0..2 {
            let _ = replay(&scene.journal, &mut scene.model, &mut scene.keeper, carried);
        }
        assert!(scene.journal.pending().is_empty());
        assert_eq!(scene.tree(), ["/a 644 data of 7"], "call {call}");
    }
}

/// The file that is made to ask for the verifier is nothing that a journal knows, wherever the replay is cut off.
#[test]
fn what_others_have_removed_stays_removed_if_the_replay_that_asks_is_cut_off() {
    for (fault, call) in
        [Fault::Lost, Fault::Unanswered].into_iter().flat_map(|one| (1..30).map(move |n| (one, n)))
    {
        let mut scene = Scene::new();
        let file = scene.create(&root(), b"a");
        scene.write(&file, b"data");
        scene.model.remove(&Who::default(), &root(), b"a").unwrap();
        scene.model.faults.insert(scene.model.calls + call, fault);
        // One that lives on, and one that begins anew.
        let is_new_process = call % 2 == 0;
        let carried = &mut Carried::default();
        for _ in 0..2 {
            let _ = replay(&scene.journal, &mut scene.model, &mut scene.keeper, carried);
            if is_new_process {
                *carried = Carried::default();
            }
        }
        assert!(scene.journal.pending().is_empty());
        assert_eq!(scene.model.tree().get("/a"), None, "{fault:?} {call}");
        assert!(scene.keeper.has(0, b"data"), "{fault:?} {call}: it is in a conflict file");
    }
}

/// Whoever has the file open must not go on with the one that was made to ask.
#[test]
fn what_was_made_to_ask_is_not_told_to_be_made_again() {
    let mut scene = Scene::new();
    let file = scene.create(&root(), b"a");
    scene.write(&file, b"data");
    scene.model.remove(&Who::default(), &root(), b"a").unwrap();
    assert_eq!(scene.replay().made_again, []);
}

/// The client alone has crashed, so the server has all names, and has not written them yet. The first file is stable.
#[test]
fn names_that_the_server_has_are_stable_before_their_records_leave() {
    let mut scene = Scene::new();
    let first = scene.create(&root(), b"a");
    scene.model.commit(&Who::default(), &first).unwrap();
    let attributes = Settings::default();
    scene.change(Change::Mkdir { parent: &root(), name: b"d", attributes });
    scene.create(&root(), b"b");
    scene.replay();
    assert_eq!(scene.tree(), ["/a 0 ", "/b 0 ", "/d directory"]);
}

/// It has started again without a crash of its host: another verifier, and nothing is lost yet.
#[test]
fn a_name_that_a_server_still_has_after_its_restart_is_stable_before_its_record_leaves() {
    let mut scene = Scene::new();
    let attributes = Settings::default();
    let root = root();
    let create = Change::Create { parent: &root, name: b"a", verifier: [9; 8], attributes };
    let (file, made) = scene.change_with_record(create);
    let write = Change::Write { file: &file, offset: 0, data: b"data" };
    let (_, written) = scene.change_with_record(write);
    scene.model.commit(&Who::default(), &file).unwrap();
    scene.journal.stable([made, written]);
    scene.change(Change::Rename {
        from_parent: &root,
        from_name: b"a",
        to_parent: &root,
        to_name: b"b",
        to_path: b"/b",
        object: &file,
        replaced: b"",
    });
    scene.model.epoch += 1;
    let report = scene.replay();
    assert!(report.conflicts.is_empty(), "{report}");
    assert_eq!(scene.tree(), ["/b 0 data"]);
}

#[test]
fn directories_that_others_have_removed_do_not_stay_if_the_file_in_them_tells_that_nothing_was_lost()
 {
    for others_use_it in [false, true] {
        let mut scene = Scene::new();
        let attributes = Settings::default();
        let outer = scene.change(Change::Mkdir { parent: &root(), name: b"d", attributes });
        let inner = scene.change(Change::Mkdir { parent: &outer, name: b"e", attributes });
        let file = scene.create(&inner, b"a");
        scene.write(&file, b"data");
        let who = Who::default();
        scene.model.remove(&who, &inner, b"a").unwrap();
        scene.model.rmdir(&who, &outer, b"e").unwrap();
        scene.model.rmdir(&who, &root(), b"d").unwrap();
        if others_use_it {
            // They write to the file that was made to ask.
            scene.model.others = Some((Others::Write, b"a"));
        }
        let report = scene.replay();
        assert!(scene.keeper.has(0, b"data"), "{report}");
        let tree: Vec<_> = scene.model.tree().into_keys().skip(1).collect();
        let wanted: &[&str] = if others_use_it { &["/d", "/d/e", "/d/e/a"] } else { &[] };
        assert_eq!(tree, wanted, "{report}");
    }
}
