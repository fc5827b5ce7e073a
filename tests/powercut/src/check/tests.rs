//! A check finds every lie, and calls the truth none. The server here is a model: it answers from a
//! state of the ledger, which a test may falsify.

use steadfast_client::{StableHow, Time};
use steadfast_xdr::{Reader, Writer};

use super::*;
use crate::operation::Name;

/// Answers from this state, entry by entry, with more names in its root that lead nowhere.
struct Model(State, Vec<Vec<u8>>);

impl Model {
    fn object(&self, r: &mut Reader<'_>) -> Option<(Number, &Object)> {
        let handle = FileHandle(r.opaque(64).expect("a handle").to_vec());
        let mut objects = self.0.objects.iter();
        let found = objects.find(|(_, object)| object.handle.as_ref() == Some(&handle));
        found.map(|(number, object)| (*number, object))
    }

    fn results(&self, number: u32, arguments: &[u8]) -> Vec<u8> {
        let mut r = Reader::new(arguments);
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        let Some((number_of, object)) = self.object(&mut r) else {
            w.u32(NfsStat3::Stale as u32);
            // What fails tells no attributes, where it could.
            if number != procedure::GETATTR.number {
                w.bool(false);
            }
            return bytes;
        };
        if number == procedure::LOOKUP.number {
            let name = r.opaque(255).expect("a name").to_vec();
            let mut names = self.0.names.iter();
            let found = names.find(|(at, _)| at.directory == number_of && at.name.bytes() == name);
            let handle = found.and_then(|(_, number)| self.0.objects.get(number)?.handle.as_ref());
            w.u32(handle.map_or(NfsStat3::NoEnt, |_| NfsStat3::Ok) as u32);
            if let Some(handle) = handle {
                w.opaque(handle.as_bytes());
                w.bool(false);
            }
            w.bool(false);
            return bytes;
        }
        w.u32(0);
        match number {
            1 => attributes(&mut w, number_of, object),
            5 => {
                w.bool(false);
                w.opaque(&object.target().unwrap_or_default());
            }
            6 => {
                let Kind::File(content) = &object.kind else { panic!("a file") };
                let (offset, count) = (r.u64().expect("offset") as usize, r.u32().expect("count"));
                let all = content.newest();
                let data = &all[offset..all.len().min(offset + count as usize)];
                w.bool(false);
                w.u32(data.len() as u32);
                w.bool(offset + data.len() == all.len());
                w.opaque(data);
            }
            17 => {
                w.bool(false);
                w.fixed_opaque(&[0; 8]);
                let mut cookie = 0;
                for name in self.1.iter().filter(|_| number_of == ROOT) {
                    cookie += 1;
                    w.bool(true);
                    w.u64(1000 + cookie);
                    w.opaque(name);
                    w.u64(cookie);
                    w.bool(false);
                    w.bool(false);
                }
                for (at, number) in &self.0.names {
                    if at.directory != number_of {
                        continue;
                    }
                    cookie += 1;
                    w.bool(true);
                    w.u64(u64::from(*number));
                    w.opaque(&at.name.bytes());
                    w.u64(cookie);
                    w.bool(false);
                    let handle = self.0.objects.get(number).and_then(|known| known.handle.as_ref());
                    w.bool(handle.is_some());
                    if let Some(handle) = handle {
                        w.opaque(handle.as_bytes());
                    }
                }
                w.bool(false);
                w.bool(true);
            }
            other => panic!("procedure {other}"),
        }
        bytes
    }
}

fn attributes(w: &mut Writer<'_>, number: Number, object: &Object) {
    let (kind, size) = match &object.kind {
        Kind::File(content) => (1, content.size()),
        Kind::Directory => (2, 4096),
        Kind::Symlink(_) => (5, 1),
        Kind::Fifo => (7, 0),
    };
    w.u32(kind);
    w.u32(object.mode.unwrap_or(0o600));
    w.u32(object.links);
    w.u32(object.uid.unwrap_or(0));
    w.u32(object.gid.unwrap_or(0));
    w.u64(size);
    w.u64(size);
    w.u64(0);
    w.u64(1);
    w.u64(object.fileid.unwrap_or(u64::from(number)));
    for time in [object.atime, object.mtime, None] {
        let time = time.unwrap_or_default();
        w.u32(time.seconds);
        w.u32(time.nanoseconds);
    }
}

impl RpcTransport for Model {
    fn exchange(
        &mut self,
        procedure: Procedure,
        _: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let mut message: Vec<u8> =
            [7_u32, 1, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        message.extend(self.results(procedure.number, arguments));
        let (xid, body) = steadfast_client::parse_reply(&message).expect("a reply");
        Ok(Reply { xid, body, message })
    }
}

impl Ask for Model {
    fn ask(&mut self, calls: &[(Procedure, Vec<u8>)]) -> Result<Vec<Reply>, ClientError> {
        let mut reply = |(procedure, arguments): &(Procedure, Vec<u8>)| {
            self.exchange(*procedure, &Identity::None, arguments)
        };
        calls.iter().map(&mut reply).collect()
    }
}

fn handle(number: Number) -> FileHandle {
    FileHandle(number.to_be_bytes().to_vec())
}

fn place(directory: Number, name: u16) -> Place {
    Place { directory, name: Name(name) }
}

const TIME: Time = Time { seconds: 1_234_567_890, nanoseconds: 5 };

/// A small history, all of it done and acknowledged.
fn history() -> Vec<Action> {
    let change = Change { mode: Some(0o640), times: Some((TIME, TIME)), ..Change::default() };
    let create = |at| Action::Create { at, how: How::Guarded, mode: Some(0o600), size: None };
    let write = Action::Write {
        object: 1,
        offset: 0,
        seed: 5,
        bytes: 100_000,
        stable: StableHow::FileSync,
    };
    vec![
        Action::Mkdir { at: place(ROOT, 0), mode: 0o755 },
        create(place(0, 1)),
        write,
        Action::Symlink { at: place(0, 2), target: 3 },
        Action::Link { object: 1, at: place(ROOT, 3) },
        create(place(ROOT, 4)),
        Action::Remove { at: place(ROOT, 4) },
        Action::Setattr { object: 1, change },
        Action::Mknod { at: place(ROOT, 5), mode: 0o600 },
        Action::Rename { from: place(ROOT, 5), to: place(0, 5) },
    ]
}

fn done(number: Number, action: &Action) -> Done {
    let makes = matches!(
        action,
        Action::Create { .. }
            | Action::Mkdir { .. }
            | Action::Symlink { .. }
            | Action::Mknod { .. }
    );
    Done {
        handle: makes.then(|| handle(number)),
        count: 100_000,
        is_stable: true,
        is_file_stable: true,
        ..Done::default()
    }
}

fn state(actions: &[Action]) -> State {
    let mut state = State::new(handle(ROOT));
    for (number, action) in actions.iter().enumerate() {
        state.apply(number as Number, action, &done(number as Number, action));
    }
    state
}

/// What is found when a server has `there` after what was acknowledged, with one more under way.
fn found(there: State, under_way: Option<Action>) -> Vec<Broken> {
    let promised = state(&history());
    let findings = check(promised, Model(there, vec![]), under_way, |check| check);
    broken(findings)
}

fn broken(findings: Findings) -> Vec<Broken> {
    let mut broken: Vec<Broken> =
        findings.violations.into_iter().map(|violation| violation.broken).collect();
    broken.sort_unstable();
    broken.dedup();
    broken
}

fn check(
    promised: State,
    there: Model,
    under_way: Option<Action>,
    with: fn(Check<'_, Model>) -> Check<'_, Model>,
) -> Findings {
    checked(promised, there, under_way, with).0
}

/// With what is known afterwards.
fn checked(
    promised: State,
    there: Model,
    under_way: Option<Action>,
    with: fn(Check<'_, Model>) -> Check<'_, Model>,
) -> (Findings, State) {
    let mut actions = history();
    let number = actions.len() as Number;
    actions.extend(under_way);
    let operations: Vec<Operation> = (actions.iter().enumerate())
        .map(|(number, action)| Operation {
            client: 0,
            action: *action,
            call: Vec::new(),
            reply: Vec::new(),
            outcome: Some(Outcome::Done(done(number as Number, action))),
        })
        .collect();
    let under_way: BTreeSet<Number> = under_way.iter().map(|_| number).collect();
    let mut client = Nfs3Client::new(there, Identity::None);
    let check = with(Check::new(&mut client, &operations, &under_way));
    check.run(promised, &handle(ROOT)).expect("answers")
}

/// The same with a change of the truth.
fn lie(change: impl FnOnce(&mut State)) -> Vec<Broken> {
    let mut there = state(&history());
    change(&mut there);
    found(there, None)
}

fn object(state: &mut State, number: Number) -> &mut Object {
    state.objects.get_mut(&number).expect("an object")
}

#[test]
fn the_truth_is_no_violation() {
    assert_eq!(lie(|_| {}), []);
}

#[test]
fn lost_and_changed_names_are_found() {
    use Broken::{Attribute, Handle, Name as Names};
    assert_eq!(
        lie(|there| {
            there.names.remove(&place(0, 1));
        }),
        [Names]
    );
    assert_eq!(
        lie(|there| {
            there.names.insert(place(0, 1), 3);
        }),
        [Names]
    );
    assert_eq!(
        lie(|there| {
            there.names.insert(place(ROOT, 9), 1);
        }),
        [Names]
    );
    // The rename not done, and the removal.
    let undone = |without: usize| {
        let mut actions = history();
        actions.remove(without);
        // Numbers are places: what follows has to keep its own.
        actions.insert(without, Action::Commit { object: 1, offset: 0, count: 0 });
        found(state(&actions), None)
    };
    assert_eq!(undone(9), [Names]);
    assert_eq!(undone(6), [Names, Handle]);
    assert_eq!(undone(4), [Names, Attribute]);
}

#[test]
fn changed_handles_objects_and_attributes_are_found() {
    use Broken::{Attribute, Data, Handle, Name as Names};
    assert_eq!(lie(|there| object(there, 3).handle = Some(handle(77))), [Names, Handle]);
    assert_eq!(lie(|there| object(there, 3).kind = Kind::Fifo), [Handle, Data]);
    assert_eq!(lie(|there| object(there, 1).mode = Some(0o600)), [Attribute]);
    assert_eq!(lie(|there| object(there, 1).atime = None), [Attribute]);
    assert_eq!(lie(|there| object(there, 1).mtime = None), [Attribute]);
    assert_eq!(lie(|there| object(there, 1).links = 1), [Attribute]);
}

/// Whether it was set is not known, also once everything is stable.
#[test]
fn a_list_that_was_being_set_is_not_known_afterwards() {
    for is_default in [false, true] {
        let mut promised = state(&history());
        let there = promised.clone();
        let of = object(&mut promised, 0);
        (of.acl, of.default_acl) = (Some(None), Some(None));
        let set = Action::Setacl { object: 0, acl: None, is_default };
        let (findings, mut known) =
            checked(promised, Model(there, vec![]), Some(set), |check| check);
        assert_eq!(broken(findings), []);
        let of = object(&mut known, 0);
        let (is_set, other) =
            if is_default { (of.default_acl, of.acl) } else { (of.acl, of.default_acl) };
        assert_eq!((is_set, other), (None, Some(None)));
        assert!(!of.has_loose_attributes, "nothing else of it is in doubt");
    }
}

#[test]
fn changed_data_is_found() {
    let write = |offset: u64, data: &'static [u8]| {
        move |there: &mut State| {
            let Kind::File(content) = &mut object(there, 1).kind else { panic!("a file") };
            content.write(offset, data, true);
        }
    };
    assert_eq!(lie(write(70_000, &[0])), [Broken::Data], "in the second READ");
    assert_eq!(lie(write(100_000, &[9])), [Broken::Data], "longer");
    assert_eq!(lie(|there| object(there, 3).kind = Kind::Symlink(4)), [Broken::Data]);
    let shorter = |there: &mut State| {
        let Kind::File(content) = &mut object(there, 1).kind else { panic!("a file") };
        content.truncate(99_999);
    };
    assert_eq!(lie(shorter), [Broken::Data]);
}

#[test]
fn what_is_under_way_is_whole_or_absent() {
    let with = |action: Action, change: fn(&mut State)| {
        let mut actions = history();
        let absent = found(state(&actions), Some(action));
        actions.push(action);
        let mut there = state(&actions);
        let whole = found(there.clone(), Some(action));
        change(&mut there);
        (absent, whole, found(there, Some(action)))
    };
    let rename = Action::Rename { from: place(0, 1), to: place(ROOT, 7) };
    let both: fn(&mut State) = |there| {
        there.names.insert(place(0, 1), 1);
    };
    assert_eq!(with(rename, both), (vec![], vec![], vec![Broken::Half]));
    let neither: fn(&mut State) = |there| {
        there.names.remove(&place(ROOT, 7));
    };
    assert_eq!(with(rename, neither).2, [Broken::Name]);
    let seed = 8;
    let stable = StableHow::FileSync;
    let write = Action::Write { object: 1, offset: 10, seed, bytes: 100_000, stable };
    let part: fn(&mut State) = |there| {
        let Kind::File(content) = &mut object(there, 1).kind else { panic!("a file") };
        content.truncate(100_005);
    };
    // The rest of an unacknowledged write may be missing, but nothing before it.
    let (absent, whole, partly) = with(write, part);
    assert_eq!((absent, whole, partly), (vec![], vec![], vec![]));
    let wrong: fn(&mut State) = |there| {
        let Kind::File(content) = &mut object(there, 1).kind else { panic!("a file") };
        content.write(5, &[0], true);
    };
    assert!(with(write, wrong).2.contains(&Broken::Data));
    let create = Action::Create { at: place(ROOT, 8), how: How::Guarded, mode: None, size: None };
    let changed: fn(&mut State) = |there| object(there, 10).handle = Some(handle(99));
    let (absent, whole, other) = with(create, changed);
    assert_eq!((absent, whole), (vec![], vec![]));
    assert_eq!(other, [Broken::Name, Broken::Handle]);
    // What has the name already keeps it.
    let refused = Action::Create { at: place(ROOT, 0), how: How::Guarded, mode: None, size: None };
    assert_eq!(found(state(&history()), Some(refused)), []);
}

#[test]
fn a_change_of_attributes_by_halves_is_told() {
    let change = Change { mode: Some(0o444), uid: Some(7), ..Change::default() };
    let action = Action::Setattr { object: 3, change };
    let both = |mode, uid| {
        let mut there = state(&history());
        // The promised state knows what it is told by replies only: here, nothing.
        object(&mut there, 3).mode = mode;
        object(&mut there, 3).uid = uid;
        found(there, Some(action))
    };
    assert_eq!(both(Some(0o444), Some(7)), []);
    assert_eq!(both(None, None), []);
}

/// What replay keeps of a file is no violation where its data was on its way when the power failed, and only
/// there: elsewhere a record is missing, or is not believed.
#[test]
fn what_is_kept_is_of_a_file_whose_data_was_on_its_way() {
    let write = |object, stable| Action::Write { object, offset: 0, seed: 8, bytes: 300, stable };
    let set = |change| Some(Action::Setattr { object: 1, change });
    let nothing = Change::default();
    let size = Change { size: Some(7), ..nothing };
    let times = Change { times: Some((TIME, TIME)), ..nothing };
    let name = |number| format!(".steadfast-replay-found-{}", hexadecimal(&handle(number).0));
    // The file system's part of a handle, which is its end.
    let part = || format!(".steadfast-replay-found-{}", &hexadecimal(&handle(1).0)[2..]);
    let cut: fn(Check<'_, Model>) -> Check<'_, Model> = |check| check.of_power_cut();
    let killed: fn(Check<'_, Model>) -> Check<'_, Model> = |check| check;
    let (stable, unstable) = (StableHow::FileSync, StableHow::Unstable);
    for (under_way, name, with, is_of_it) in [
        (Some(write(1, stable)), name(1), cut, true),
        (Some(write(1, unstable)), part(), cut, true),
        (set(size), name(1), cut, true),
        (set(times), name(1), cut, true),
        // Nothing was under way, or of another file, or not of the data.
        (None, name(1), cut, false),
        (Some(write(1, stable)), name(6), cut, false),
        (set(Change { mode: Some(0o444), ..nothing }), name(1), cut, false),
        (Some(Action::Commit { object: 1, offset: 0, count: 0 }), name(1), cut, false),
        (Some(write(1, stable)), name(1).replace("found", "acknowledged"), cut, false),
        (Some(write(1, stable)), ".steadfast-replay-found-".to_owned(), cut, false),
        // What was under way at a kill is in effect.
        (Some(write(1, stable)), name(1), killed, false),
    ] {
        let promised = state(&history());
        let there = Model(promised.clone(), vec![name.clone().into_bytes()]);
        let findings = check(promised, there, under_way, with);
        let counted = (findings.asides.len(), findings.reported);
        assert_eq!(counted, if is_of_it { (1, 1) } else { (0, 0) }, "{under_way:?} {name}");
        assert_eq!(broken(findings).is_empty(), is_of_it, "{under_way:?} {name}");
    }
    // Acknowledged, and not promised: its record need not be in the log.
    let mut promised = state(&history());
    let not_stable = Done { count: 300, ..Done::default() };
    promised.apply(9, &write(1, unstable), &not_stable);
    let there = Model(promised.clone(), vec![name(1).into_bytes()]);
    assert_eq!(broken(check(promised.clone(), there, None, cut)), []);
    let committed = Action::Commit { object: 1, offset: 0, count: 0 };
    promised.apply(9, &committed, &Done::default());
    let there = Model(promised.clone(), vec![name(1).into_bytes()]);
    assert_eq!(broken(check(promised, there, None, cut)), [Broken::Name]);
}
