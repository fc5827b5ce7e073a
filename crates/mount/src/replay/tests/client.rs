//! A client that journals, and dies with changes in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::{
    Attributes as Settings, Change, Journal, Kind, Options, Outcome, RING_OFFSET, Record,
    Recovered, Sequence, SetTime, Stamp as Noted, Time,
};

use super::model::{Content, Model, ROOT, handle, mix};
use crate::replay::share::{Making, Share, Stamp, Who};

pub(in super::super) fn open(medium: &Arc<MemoryMedium>) -> (Journal, Recovered) {
    let options = Options::new("server", "/share");
    Journal::on_medium(Arc::clone(medium) as _, &options, [7; 16]).expect("a journal")
}

pub(in super::super) fn medium(blocks: u64) -> Arc<MemoryMedium> {
    Arc::new(MemoryMedium::new((RING_OFFSET + blocks * 4096) as usize))
}

pub(super) fn record<'a>(path: &'a [u8], change: Change<'a>) -> Record<'a> {
    Record { time_ns: 1, uid: 0, gid: 0, groups: &[], order: None, path, change }
}

pub(super) fn noted(stamp: Option<Stamp>) -> Option<Noted> {
    let time = |seconds: u32| Time { seconds: i64::from(seconds), nanoseconds: 0 };
    stamp.map(|stamp| Noted {
        size: stamp.size,
        modified: time(stamp.mtime.seconds),
        changed: time(stamp.ctime.seconds),
    })
}

/// A change, with the numbers of the objects.
#[derive(Clone, Debug)]
enum Op {
    Create(u64, Vec<u8>),
    Mkdir(u64, Vec<u8>),
    Symlink(u64, Vec<u8>),
    Write(u64, u64, Vec<u8>),
    Truncate(u64, u64),
    Chmod(u64, u32),
    Utimes(u64, u32),
    Rename((u64, Vec<u8>), (u64, Vec<u8>), u64, Option<u64>),
    Link(u64, u64, Vec<u8>),
    Remove(u64, Vec<u8>, u64),
    Rmdir(u64, Vec<u8>, u64),
}

/// How far a change gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Journal,
    Server,
    Answered,
}

pub(super) struct Client {
    pub(super) seed: u64,
    random: u64,
    /// The server as it would be if nothing ever failed.
    pub(super) ideal: Model,
    journal: Journal,
    /// Writes that have left, by record.
    writes: BTreeMap<Sequence, (u64, u64, Vec<u8>)>,
    live: Vec<(u64, u64, Vec<u8>)>,
    /// Files by the record that has made them.
    made: BTreeMap<Sequence, u64>,
    /// Names up to this record are stable on a server without the recovery program.
    stable_names: Sequence,
    /// Objects of which no answer has told.
    unanswered: Vec<u64>,
    /// What was done, for messages.
    pub(super) log: Vec<String>,
    /// Whether a file with data is left, which a replay commits: without one no verifier tells of a restart.
    pub(super) has_file: bool,
}

impl Client {
    fn choose(&mut self, below: u64) -> u64 {
        self.random = mix(self.random);
        self.random % below.max(1)
    }

    /// With `dies` it dies with changes in flight.
    pub(super) fn run(
        seed: u64,
        model: &mut Model,
        is_async: bool,
        dies: bool,
    ) -> (Self, Arc<MemoryMedium>) {
        let medium = medium(64);
        let (journal, _) = open(&medium);
        let mut this = Self {
            seed,
            random: seed << 20,
            ideal: Model::new(false),
            journal,
            writes: BTreeMap::new(),
            live: Vec::new(),
            made: BTreeMap::new(),
            stable_names: Sequence(0),
            unanswered: Vec::new(),
            log: Vec::new(),
            has_file: false,
        };
        let all = 1 + this.choose(14);
        let in_flight = if dies { this.choose(4) } else { 0 };
        let (mut has_stopped, mut is_all_answered) = (false, true);
        for index in 0..all {
            let Some(op) = this.op(index) else { continue };
            // Without the answer to what made it nobody can do anything with it.
            if objects(&op).iter().any(|object| this.unanswered.contains(object)) {
                continue;
            }
            let mut reach = Reach::Answered;
            if index + in_flight >= all {
                reach = [Reach::Journal, Reach::Server, Reach::Answered][this.choose(3) as usize];
                // Changes of names wait for each other.
                let is_data = matches!(op, Op::Write(..));
                if has_stopped && !is_data {
                    reach = Reach::Journal;
                }
                has_stopped |= reach == Reach::Journal;
            }
            this.perform(model, &op, reach, is_async);
            // What is not answered yet does not leave.
            is_all_answered &= reach == Reach::Answered;
            if is_all_answered && this.choose(5) == 0 {
                this.commit(model, is_async);
            }
            if is_all_answered && !model.has_program && this.choose(4) == 0 {
                this.age(is_async);
            }
        }
        let pending = this.journal.pending();
        for one in &pending {
            let Some((file, offset, data)) = this.writes.get(&one.sequence) else { continue };
            for range in &one.ranges {
                let from = (range.start - offset) as usize;
                let bytes = (range.end - range.start) as usize;
                this.live.push((*file, range.start, data[from..from + bytes].to_vec()));
            }
        }
        let sequences: Vec<_> = pending.iter().map(|one| one.sequence.0).collect();
        this.log.push(format!("pending {sequences:?}"));
        let mut files = this.live.iter().map(|(file, ..)| file);
        this.has_file = files.any(|file| this.ideal.inodes.contains_key(file));
        if !dies {
            this.journal.sync(this.journal.status().last).unwrap();
        }
        // What was not synced is lost with the client.
        let medium = Arc::new(MemoryMedium::from_image(medium.image()));
        (this, medium)
    }

    /// Data that must not be lost: of files that are still there at the end.
    pub(super) fn due(&self) -> Vec<(u64, u64, Vec<u8>)> {
        let is_there = |file: &u64| self.ideal.inodes.contains_key(file);
        self.live.iter().filter(|(file, ..)| is_there(file)).cloned().collect()
    }

    /// A change that is possible.
    fn op(&mut self, index: u64) -> Option<Op> {
        let mut files = Vec::new();
        let mut directories = vec![(ROOT, None)];
        let mut names = Vec::new();
        for (number, inode) in &self.ideal.inodes {
            let Content::Directory(entries) = &inode.content else { continue };
            for (name, entry) in entries {
                match self.ideal.inodes[entry].content {
                    Content::File(_) => files.push(*entry),
                    Content::Directory(_) => directories.push((*entry, Some(*number))),
                    _ => {}
                }
                names.push((*number, name.clone(), *entry));
            }
        }
        let (parent, _) = directories[self.choose(directories.len() as u64) as usize];
        let name = vec![b'a' + self.choose(3) as u8];
        let Content::Directory(there) = &self.ideal.inodes[&parent].content else { return None };
        let bound = there.get(&name).copied();
        let numbers: Vec<u64> = directories.iter().map(|(number, _)| *number).collect();
        let is_file = |number: u64| !numbers.contains(&number);
        let bound_is_file = bound.is_none_or(is_file);
        let (which, pick) = (self.choose(100), self.choose(1 << 30) as usize);
        let file = (!files.is_empty()).then(|| files[pick % files.len()]);
        let entry = (!names.is_empty()).then(|| names[pick % names.len()].clone());
        match which {
            0..22 if bound.is_none() => Some(Op::Create(parent, name)),
            22..28 if bound.is_none() && directories.len() < 4 => Some(Op::Mkdir(parent, name)),
            28..31 if bound.is_none() => Some(Op::Symlink(parent, name)),
            31..62 => {
                let bytes = 1 + self.choose(30) as usize;
                // Bytes that say of which change they are.
                let data = (0..bytes).map(|at| 32 + ((index * 7 + at as u64) % 90) as u8).collect();
                Some(Op::Write(file?, self.choose(50), data))
            }
            62..68 => Some(Op::Truncate(file?, self.choose(60))),
            68..72 => Some(Op::Chmod(file?, 0o600 + self.choose(64) as u32)),
            72..75 => Some(Op::Utimes(file?, 1 + self.choose(90) as u32)),
            75..88 => {
                let (from, from_name, object) = entry?;
                let is_file = is_file(object);
                // Directories are renamed where they are, and replace nothing.
                let may = if is_file { bound_is_file } else { from == parent && bound.is_none() };
                let is_other = (from, &from_name) != (parent, &name);
                (may && is_other).then_some(Op::Rename(
                    (from, from_name),
                    (parent, name),
                    object,
                    bound,
                ))
            }
            88..91 if bound.is_none() => Some(Op::Link(file?, parent, name)),
            91..100 => {
                let (from, name, object) = entry?;
                if is_file(object) {
                    return Some(Op::Remove(from, name, object));
                }
                let Content::Directory(inside) = &self.ideal.inodes[&object].content else {
                    return None;
                };
                inside.is_empty().then_some(Op::Rmdir(from, name, object))
            }
            _ => None,
        }
    }

    fn append(&self, op: &Op, verifier: [u8; 8]) -> Sequence {
        let mode = Settings { mode: Some(0o644), ..Settings::default() };
        let empty = Settings::default();
        let of = |number: &u64| handle(*number);
        let append = |change: Change<'_>| {
            let sequence = self.journal.append(&record(b"/path", change)).unwrap();
            self.journal.sync(sequence).unwrap();
            sequence
        };
        match op {
            Op::Create(parent, name) => {
                append(Change::Create { parent: &of(parent), name, verifier, attributes: mode })
            }
            Op::Mkdir(parent, name) => {
                append(Change::Mkdir { parent: &of(parent), name, attributes: empty })
            }
            Op::Symlink(parent, name) => {
                let parent = &of(parent);
                append(Change::Symlink { parent, name, target: b"t", attributes: empty })
            }
            Op::Write(file, offset, data) => {
                append(Change::Write { file: &of(file), offset: *offset, data })
            }
            Op::Truncate(file, _) | Op::Chmod(file, _) | Op::Utimes(file, _) => {
                append(Change::SetAttr { object: &of(file), attributes: settings(op) })
            }
            Op::Rename((from, from_name), (to, to_name), object, replaced) => {
                append(Change::Rename {
                    from_parent: &of(from),
                    from_name,
                    to_parent: &of(to),
                    to_name,
                    to_path: b"/to",
                    object: &of(object),
                    replaced: &replaced.map(handle).unwrap_or_default(),
                })
            }
            Op::Link(file, parent, name) => {
                append(Change::Link { file: &of(file), parent: &of(parent), name })
            }
            Op::Remove(parent, name, object) => {
                append(Change::Remove { parent: &of(parent), name, object: &of(object) })
            }
            Op::Rmdir(parent, name, object) => {
                append(Change::Rmdir { parent: &of(parent), name, object: &of(object) })
            }
        }
    }

    fn perform(&mut self, model: &mut Model, op: &Op, reach: Reach, is_async: bool) {
        let verifier = self.choose(u64::MAX).to_be_bytes();
        let sequence = self.append(op, verifier);
        self.log.push(format!("{sequence} {reach:?} {op:?}"));
        if let Op::Write(file, offset, data) = op {
            self.writes.insert(sequence, (*file, *offset, data.clone()));
        }
        // The mode of a new file is a second call.
        let is_cut = reach == Reach::Server && self.choose(2) == 0;
        let (made, _) = execute(&mut self.ideal, op, verifier, false);
        if let Some(made) = made {
            let number = u64::from_be_bytes(made.try_into().unwrap());
            if reach != Reach::Answered {
                self.unanswered.push(number);
            }
            if matches!(op, Op::Create(..)) {
                self.made.insert(sequence, number);
            }
        }
        if reach == Reach::Journal {
            return;
        }
        let (made, after) = execute(model, op, verifier, is_cut);
        if reach == Reach::Answered {
            let handle = made.unwrap_or_default();
            let verifier = Some(model.verifier());
            let outcome = Outcome { handle, verifier, after: noted(after), ..Outcome::default() };
            self.journal.note_outcome(sequence, outcome).unwrap();
            let leaves = !is_async && model.has_program && !matches!(op, Op::Write(..));
            if leaves && self.choose(2) == 0 {
                // In order: a name must not be made again whose removal has left.
                let pending = self.journal.pending();
                let names = pending.iter().filter(|one| one.kind != Kind::Write);
                self.journal.stable(names.map(|one| one.sequence));
            }
        }
    }

    /// Without the recovery program names leave when they are old, the oldest first.
    fn age(&mut self, is_async: bool) {
        let pending = self.journal.pending();
        let names = pending.iter().filter(|one| one.kind != Kind::Write);
        let names = names.map(|one| one.sequence);
        // All data is committed by then.
        let data = pending.iter().find(|one| one.kind == Kind::Write).map(|one| one.sequence);
        let is_old = |name: &Sequence| {
            data.is_none_or(|data| *name < data) && (!is_async || *name <= self.stable_names)
        };
        let old: Vec<_> = names.take_while(is_old).collect();
        let count = self.choose(1 + old.len() as u64) as usize;
        // Data of what this client has removed leaves before the record of that.
        let is_removed = |sequence: &Sequence| {
            let of = self.writes.get(sequence).map(|(file, ..)| *file);
            of.is_some_and(|of| !self.ideal.inodes.contains_key(&of))
        };
        let removed = pending.iter().map(|one| one.sequence).filter(is_removed);
        self.journal.stable(removed.chain(old.into_iter().take(count)));
    }

    /// COMMIT of a file; on an `async` share it makes all that came before it stable. Of a server without the recovery
    /// program that is not believed, but for the file's own name.
    fn commit(&mut self, model: &mut Model, is_async: bool) {
        let files: Vec<u64> = self.writes.values().map(|(file, ..)| *file).collect();
        let Some(file) = files.get(self.choose(files.len() as u64) as usize).copied() else {
            return;
        };
        let (who, handle) = (Who::default(), handle(file));
        let writes_names = !model.is_clean(file);
        let is_stable = if is_async && model.has_program {
            model.sync(&who, &handle).is_ok()
        } else {
            model.commit(&who, &handle).is_ok()
        };
        if !is_stable {
            return;
        }
        if !model.has_program && writes_names {
            self.stable_names = self.journal.status().last;
        }
        let is_of = |sequence: &Sequence| {
            let of = self.writes.get(sequence).map(|(file, ..)| *file);
            // With a removal the data of what was removed leaves, too.
            let is_removed = of.is_some_and(|of| !self.ideal.inodes.contains_key(&of));
            if !model.has_program {
                let is_made = self.made.get(sequence) == Some(&file);
                return of == Some(file) || is_made || is_removed;
            }
            of == Some(file) || is_async && (of.is_none() || is_removed)
        };
        let pending = self.journal.pending();
        self.journal.stable(pending.iter().map(|one| one.sequence).filter(is_of));
    }
}

fn objects(op: &Op) -> Vec<u64> {
    match op {
        Op::Create(one, _)
        | Op::Mkdir(one, _)
        | Op::Symlink(one, _)
        | Op::Write(one, ..)
        | Op::Truncate(one, _)
        | Op::Chmod(one, _)
        | Op::Utimes(one, _) => vec![*one],
        Op::Rename(from, to, object, replaced) => {
            [from.0, to.0, *object].into_iter().chain(*replaced).collect()
        }
        Op::Link(file, parent, _) => vec![*file, *parent],
        Op::Remove(parent, _, object) | Op::Rmdir(parent, _, object) => vec![*parent, *object],
    }
}

fn settings(op: &Op) -> Settings {
    let settings = Settings::default();
    match op {
        Op::Truncate(_, size) => Settings { size: Some(*size), ..settings },
        Op::Chmod(_, mode) => Settings { mode: Some(*mode), ..settings },
        Op::Utimes(_, seconds) => {
            let time = SetTime::To { seconds: i64::from(*seconds), nanoseconds: 0 };
            Settings { modified: Some(time), ..settings }
        }
        _ => settings,
    }
}

/// What a client sends. Returns what the answers say.
fn execute(
    model: &mut Model,
    op: &Op,
    verifier: [u8; 8],
    is_cut: bool,
) -> (Option<Vec<u8>>, Option<Stamp>) {
    let who = &Who::default();
    let none = Settings::default();
    let of = |number: &u64| handle(*number);
    match op {
        Op::Create(parent, name) => {
            let (made, _) = model.make(who, &of(parent), name, &Making::File { verifier }).unwrap();
            if !is_cut {
                let now = Some(SetTime::OfServer);
                let settings = Settings { mode: Some(0o644), accessed: now, modified: now, ..none };
                model.setattr(who, &made, &settings).unwrap();
            }
            (Some(made), None)
        }
        Op::Mkdir(parent, name) => {
            let made = model.make(who, &of(parent), name, &Making::Directory(none)).unwrap();
            (Some(made.0), None)
        }
        Op::Symlink(parent, name) => {
            let what = Making::Symlink(b"t".to_vec(), none);
            (Some(model.make(who, &of(parent), name, &what).unwrap().0), None)
        }
        Op::Write(file, offset, data) => {
            (None, model.write(who, &of(file), *offset, data).ok().and_then(|done| done.after))
        }
        Op::Truncate(file, _) | Op::Chmod(file, _) | Op::Utimes(file, _) => {
            (None, model.setattr(who, &of(file), &settings(op)).unwrap())
        }
        Op::Rename(from, to, ..) => {
            model.rename(who, (&of(&from.0), &from.1), (&of(&to.0), &to.1)).unwrap();
            (None, None)
        }
        Op::Link(file, parent, name) => {
            model.link(who, &of(file), &of(parent), name).unwrap();
            (None, None)
        }
        Op::Remove(parent, name, _) => {
            model.remove(who, &of(parent), name).unwrap();
            (None, None)
        }
        Op::Rmdir(parent, name, _) => {
            model.rmdir(who, &of(parent), name).unwrap();
            (None, None)
        }
    }
}
