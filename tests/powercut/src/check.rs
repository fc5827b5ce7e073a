//! After the crash: everything acknowledged is there, everything else wholly there or not at all.
//! Only through the server, as a client sees it.
//!
//! Where local processes change the share too (`docs/powercut.md`, Histories), what has to be there is
//! decided by this table. *Stable* is what the process made so (`fsync` of the file for data and
//! attributes, of the directory for names, or `syncfs`), and everything if only the server was killed.
//! *Reported* is what the server's log names after the start.
//!
//! | last change of an object's data, attributes, or of a name | what has to be there |
//! |---|---|
//! | acknowledged to a client | it |
//! | local, stable | it; or what was acknowledged before, if the local version is kept aside under a name that begins with `.steadfast-replay-`, and that is reported |
//! | local, not stable, power cut | it, or what was there before; of data, byte by byte |
//! | acknowledged, after a local change that is not stable | it; around it, of data, what is old or local |
//! | local, under way | as a local change that is not stable |
//! | local, after the power cut and before the start: a new name | the file, under its name or aside and reported; what was acknowledged under that name is there, or aside |
//! | … of the data of a file | the local bytes in place; if they differ from what was acknowledged, that is reported. Or the other way round |
//! | … of a mode | the local one, or what was acknowledged and is reported |
//! | … a name taken away | either: nobody can tell whether it was there |
//!
//! Without histories a power cut may leave one kind of name more: what replay has kept of a file whose data was
//! being changed, or was changed and not promised, when the power failed (`.steadfast-replay-found-`, then the
//! file's handle). The file system may have the change's times without the log having its record, and replay cannot
//! tell that from a local process. What the file has is compared all the same.
//!
//! Whoever may do more with an object than its acknowledged mode and ACLs permit breaks a promise of its own.

mod findings;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use steadfast_client::nfsacl::{GETACL, MASK_ALL, getacl_arguments};
use steadfast_client::{
    Attributes, ClientError, Entry, FileHandle, Identity, Nfs3Client, NfsStat3, Procedure, Reply,
    RpcConnection, RpcTransport, arguments, procedure,
};

use crate::acl;
use crate::local;
use crate::operation::{Action, Change, Done, How, Number, Outcome, Place, ROOT, decoder};
use crate::state::{Kind, Object, Removed, State};
use crate::workload::Operation;

pub(crate) use findings::{Broken, Findings, Held, Violation};

/// Calls under way at one time.
const BATCH: usize = 64;
/// Bytes a READ asks for.
const READ_BYTES: u32 = 64 << 10;
/// Of objects that are gone, the last so many handles are tried.
const GONE_MAX: usize = 60;

/// Carries many calls.
pub(crate) trait Ask: RpcTransport {
    /// The replies to calls, in the calls' order.
    fn ask(&mut self, calls: &[(Procedure, Vec<u8>)]) -> Result<Vec<Reply>, ClientError>;
}

impl Ask for RpcConnection {
    fn ask(&mut self, calls: &[(Procedure, Vec<u8>)]) -> Result<Vec<Reply>, ClientError> {
        let mut replies = Vec::with_capacity(calls.len());
        for some in calls.chunks(BATCH) {
            let mut sent = Vec::with_capacity(some.len());
            for (procedure, arguments) in some {
                sent.push(self.send(*procedure, &Identity::root(), arguments)?);
            }
            for xid in sent {
                replies.push(self.receive(xid)?);
            }
        }
        Ok(replies)
    }
}

/// What a client sees of the share.
type Seen = BTreeMap<Number, BTreeMap<Vec<u8>, Entry>>;

/// A check of one state.
pub(crate) struct Check<'a, T> {
    client: &'a mut Nfs3Client<T>,
    operations: &'a [Operation],
    findings: Findings,
    /// What was sent and not acknowledged.
    under_way: &'a BTreeSet<Number>,
    /// Objects that it may have changed.
    loose: BTreeSet<Number>,
    /// Files of which it may have changed the data, or the time of that.
    loose_data: BTreeSet<Number>,
    /// Whether local processes and ACLs are in the history.
    has_histories: bool,
    /// Whether the power was cut: records may be lost of what is on the disk.
    is_power_cut: bool,
    /// The object that is being compared.
    compared: Option<Number>,
}

/// How names begin that replay makes to keep something, and those that the server makes for itself.
pub(crate) const ASIDE: &[u8] = b".steadfast-replay-";
/// The same of what replay has found of a file of which it does not know who changed it; the handle follows.
const FOUND: &[u8] = b".steadfast-replay-found-";
const OURS: &[u8] = b".steadfast";
/// How names begin that local processes give between a power cut and a start.
pub(crate) const LOCAL_NAME: &[u8] = b"local-";

impl<'a, T: Ask> Check<'a, T> {
    /// By this client, of these operations.
    pub(crate) fn new(
        client: &'a mut Nfs3Client<T>,
        operations: &'a [Operation],
        under_way: &'a BTreeSet<Number>,
    ) -> Self {
        let (findings, loose) = (Findings::default(), BTreeSet::new());
        Self {
            client,
            operations,
            findings,
            under_way,
            loose,
            loose_data: BTreeSet::new(),
            has_histories: false,
            is_power_cut: false,
            compared: None,
        }
    }

    /// Also with what local processes did, and ACLs.
    #[must_use]
    pub(crate) fn of_histories(self) -> Self {
        Self { has_histories: true, ..self }
    }

    /// After a power cut.
    #[must_use]
    pub(crate) fn of_power_cut(self) -> Self {
        Self { is_power_cut: true, ..self }
    }

    /// Compares the share with what is acknowledged (`state`) and what was under way. Returns the
    /// state with what of that was done, too, and with the data that was seen: what was not promised and
    /// is lost is not promised by what comes later, and what is there after a start stays.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) fn run(mut self, mut state: State, root: &FileHandle) -> Result<(Findings, State)> {
        let known = state.objects.get(&ROOT).and_then(|object| object.handle.as_ref());
        if known != Some(root) {
            self.note_broken(Broken::Handle, None, "the root's handle is another".to_owned());
        }
        let mut seen = self.list(&state)?;
        if self.has_histories {
            // Directories that local processes made have handles then, so that they are listed too.
            // What has a name that was changed under way may be another object.
            let of_under_way = self
                .under_way
                .iter()
                .filter_map(|number| Some(self.operations.get(*number as usize)?.action.places()));
            let uncertain: BTreeSet<Place> = of_under_way.flatten().collect();
            while adopt(&mut state, &seen, &uncertain) {
                seen = self.list(&state)?;
            }
        }
        for number in self.under_way {
            self.resolve(&mut state, *number, &seen)?;
        }
        // What was under way may have made directories, or removed some.
        for (number, entries) in self.list(&state)? {
            seen.insert(number, entries);
        }
        self.names(&state, &seen)?;
        for (number, bytes) in self.objects(&state)? {
            if let Some(Kind::File(content)) =
                state.objects.get_mut(&number).map(|object| &mut object.kind)
            {
                content.see(bytes);
            }
        }
        self.gone(&state)?;
        if self.has_histories {
            self.acls(&state)?;
        }
        for violation in &mut self.findings.violations {
            let object = violation.object.unwrap_or(ROOT);
            let names = state.names.iter().filter(|(_, number)| **number == object);
            let paths = names.filter_map(|(at, _)| local::path(&state, Path::new(""), *at));
            violation.paths = paths.collect();
        }
        Ok((self.findings, state))
    }

    fn note_broken(&mut self, broken: Broken, operation: Option<Number>, text: String) {
        let action = operation.and_then(|number| self.operations.get(number as usize));
        let is_kept =
            matches!(broken, Broken::Half | Broken::Start | Broken::Access | Broken::Reply);
        let is_local = action.is_some_and(|known| known.action.is_local());
        let broken = if is_local && !is_kept { Broken::Reverted } else { broken };
        let text = match action {
            Some(known) => format!("{}: {text}", known.action),
            None => text,
        };
        let object = self.compared;
        self.findings.violations.push(Violation {
            broken,
            operation,
            object,
            paths: Vec::new(),
            text,
        });
    }

    /// The same of what an operation under way may have left half done, losing nothing of others.
    fn note_broken_or_half(&mut self, broken: Broken, operation: Option<Number>, text: String) {
        let is_half = operation.is_some_and(|number| self.under_way.contains(&number));
        self.note_broken(if is_half { Broken::Half } else { broken }, operation, text);
    }

    /// The replies to calls.
    fn batch(&mut self, calls: &[(Procedure, Vec<u8>)]) -> Result<Vec<Reply>> {
        Ok(self.client.transport().ask(calls)?)
    }

    fn list(&mut self, state: &State) -> Result<Seen> {
        let mut seen = Seen::new();
        for (number, object) in &state.objects {
            let (Kind::Directory, Some(handle)) = (&object.kind, &object.handle) else { continue };
            let listed: Result<Vec<Entry>, ClientError> =
                self.client.entries(handle, true, 64 << 10).collect();
            let entries = match listed {
                Ok(entries) => entries,
                // Its handle is looked at with those of all objects.
                Err(error) if error.status().is_some() => continue,
                Err(error) => return Err(error).context("READDIRPLUS"),
            };
            let named = entries.into_iter().map(|entry| (entry.name.clone(), entry));
            let mut named: BTreeMap<Vec<u8>, Entry> = named.collect();
            named.remove(&b"."[..]);
            named.remove(&b".."[..]);
            seen.insert(*number, named);
        }
        Ok(seen)
    }

    /// Finds out whether an operation that was under way was done, and notes what follows.
    fn resolve(&mut self, state: &mut State, number: Number, seen: &Seen) -> Result<()> {
        let Some(operation) = self.operations.get(number as usize) else { return Ok(()) };
        let action = operation.action;
        let later = match &operation.outcome {
            // It would have failed: nothing may be there of it.
            Some(Outcome::Failed(_)) => return Ok(()),
            Some(Outcome::Done(done)) => done.clone(),
            None => Done::default(),
        };
        let there = |place: Place| {
            seen.get(&place.directory).and_then(|names| names.get(&place.name.bytes()))
        };
        let is_done = match action {
            // What has the name keeps it.
            Action::Create { at, how: How::Guarded | How::Exclusive(_), .. }
                if state.at(at).is_some() =>
            {
                return Ok(());
            }
            Action::Create { at, .. } if state.at(at).is_some() => {
                self.resolve_change(state, number, &action)?;
                return Ok(());
            }
            Action::Create { at, .. }
            | Action::Mkdir { at, .. }
            | Action::Symlink { at, .. }
            | Action::Mknod { at, .. }
            | Action::Link { at, .. } => there(at).is_some() && state.at(at).is_none(),
            Action::Remove { at } | Action::Rmdir { at } => {
                state.at(at).is_some() && there(at).is_none()
            }
            Action::Rename { from, to } => {
                let moved = state.at(from).and_then(|(_, object)| object.handle.as_ref());
                let at_target = there(to).and_then(|entry| entry.handle.as_ref());
                state.at(from).is_some()
                    && seen.contains_key(&to.directory)
                    && (there(from).is_none() || moved.is_some() && at_target == moved)
            }
            Action::Setattr { .. } => {
                self.resolve_change(state, number, &action)?;
                return Ok(());
            }
            Action::Write { object, .. } => {
                self.loose.insert(object);
                self.loose_data.insert(object);
                state.maybe(&action);
                return Ok(());
            }
            Action::Commit { .. } => return Ok(()),
            Action::Setacl { object, is_default, .. } => {
                if let Some(object) = state.objects.get_mut(&object) {
                    object.forget_acl(is_default);
                }
                return Ok(());
            }
            Action::Local(local) => {
                state.apply_local(number, &local, &later, false);
                return Ok(());
            }
        };
        // Whoever lost or got a link by it.
        self.loose.extend(action.object());
        for place in action.places() {
            self.loose.extend(state.at(place).map(|(object, _)| object));
        }
        if is_done {
            let mut done = later;
            if done.handle.is_none()
                && let Some(entry) = action.places().first().and_then(|place| there(*place))
            {
                done.handle.clone_from(&entry.handle);
                done.attributes = None;
            }
            state.apply(number, &action, &done);
            self.loose.insert(number);
        }
        Ok(())
    }

    /// The same for attributes and sizes.
    fn resolve_change(&mut self, state: &mut State, number: Number, action: &Action) -> Result<()> {
        let (object, change) = match *action {
            Action::Setattr { object, change } => (Some(object), change),
            Action::Create { at, size, .. } => {
                (state.at(at).map(|(number, _)| number), Change { size, ..Change::default() })
            }
            _ => return Ok(()),
        };
        let Some(object) = object else { return Ok(()) };
        let Some(known) = state.objects.get(&object) else { return Ok(()) };
        let (Some(handle), before) = (&known.handle, known.last) else { return Ok(()) };
        self.loose.insert(object);
        if change.size.is_some() || change.times.is_some() {
            self.loose_data.insert(object);
        }
        let attributes = match self.client.getattr(handle) {
            Ok(attributes) => attributes,
            Err(error) if error.status().is_some() => return Ok(()),
            Err(error) => return Err(error).context("GETATTR"),
        };
        let is = |wanted: Option<u32>, seen: u32| wanted.is_none_or(|wanted| wanted == seen);
        let is_new = is(change.mode, attributes.mode)
            && is(change.uid, attributes.uid)
            && is(change.gid, attributes.gid)
            && change.size.is_none_or(|size| size == attributes.size)
            && change.times.is_none_or(|times| times == (attributes.atime, attributes.mtime));
        let is_old = is(known.mode.filter(|_| change.mode.is_some()), attributes.mode)
            && is(known.uid.filter(|_| change.uid.is_some()), attributes.uid)
            && is(known.gid.filter(|_| change.gid.is_some()), attributes.gid);
        if change.size.is_some() {
            // Bytes beyond a new end may be gone before the size is.
            state.maybe(action);
        }
        if is_new {
            if change.size.is_none() {
                state.apply(number, action, &Done::default());
                // What is wrong now was wrong before: it was seen to be done.
                if let Some(object) = state.objects.get_mut(&object) {
                    object.last = before;
                }
            }
        } else if !is_old {
            self.note_broken(
                Broken::Half,
                Some(number),
                format!("neither done nor not done: {}", told(&attributes)),
            );
            if let Some(object) = state.objects.get_mut(&object) {
                (object.mode, object.uid, object.gid) = (None, None, None);
            }
        }
        if let Some(object) = state.objects.get_mut(&object) {
            object.mtime_told = None;
        }
        Ok(())
    }

    /// Compares all objects with what is known of them; the bytes of files that are as they may be.
    fn objects(&mut self, state: &State) -> Result<Vec<(Number, Vec<u8>)>> {
        let none = FileHandle(Vec::new());
        let known: Vec<(Number, &Object, &FileHandle)> = (state.objects.iter())
            .filter_map(|(number, object)| Some((*number, object, object.handle.as_ref()?)))
            .collect();
        let calls: Vec<_> = (known.iter())
            .map(|(_, _, handle)| (procedure::GETATTR, arguments::handle(handle)))
            .collect();
        let replies = self.batch(&calls)?;
        let mut alive = Vec::new();
        for (reply, (number, object, handle)) in replies.into_iter().zip(known) {
            self.findings.objects += 1;
            self.compared = Some(number);
            match decoder(reply).getattr(&none) {
                Ok(attributes) => {
                    self.attributes(number, object, &attributes);
                    alive.push((number, object, handle, attributes.size));
                }
                Err(_) if object.is_loose => {}
                Err(error) => {
                    self.note_broken(Broken::Handle, Some(number), format!("its object: {error}"));
                }
            }
        }
        let seen = self.data(&alive);
        self.compared = None;
        seen
    }

    fn attributes(&mut self, number: Number, object: &Object, seen: &Attributes) {
        let mut wrong: Vec<String> = Vec::new();
        if seen.file_type != object.kind.file_type() {
            let text = format!("#{number} is a {:?} now", seen.file_type);
            return self.note_broken(Broken::Handle, Some(number), text);
        }
        if object.fileid.is_some_and(|fileid| fileid != seen.fileid) {
            let text = format!("#{number} has another fileid");
            self.note_broken(Broken::Handle, Some(number), text);
        }
        let is_known = !object.has_loose_attributes;
        let widened = object.mode.filter(|wanted| seen.mode & !wanted & 0o777 != 0);
        let widened = widened.filter(|_| self.has_histories && is_known);
        if let Some(wanted) = widened {
            let text = format!("#{number}: mode {:o} permits more than {wanted:o}", seen.mode);
            self.note_broken(Broken::Access, Some(object.last.attributes), text);
        }
        let mut compare = |what: &str, wanted: Option<u32>, seen: u32, is_octal: bool| {
            if let Some(wanted) = wanted.filter(|wanted| is_known && *wanted != seen) {
                wrong.push(if is_octal {
                    format!("{what} {seen:o} instead of {wanted:o}")
                } else {
                    format!("{what} {seen} instead of {wanted}")
                });
            }
        };
        compare("mode", object.mode, seen.mode, true);
        compare("uid", object.uid, seen.uid, false);
        compare("gid", object.gid, seen.gid, false);
        for (what, wanted, seen) in
            [("atime", object.atime, seen.atime), ("mtime", object.mtime, seen.mtime)]
        {
            if let Some(wanted) = wanted.filter(|wanted| is_known && *wanted != seen) {
                wrong.push(format!("{what} {seen:?} instead of {wanted:?}"));
            }
        }
        if !wrong.is_empty() {
            let text = format!("#{number}: {}", wrong.join(", "));
            self.note_broken_or_half(Broken::Attribute, Some(object.last.attributes), text);
        }
        // File systems count a directory's links in different ways.
        let has_links = object.kind != Kind::Directory && !object.is_loose;
        if has_links && object.links != seen.nlink {
            let text = format!("#{number}: links {} instead of {}", seen.nlink, object.links);
            self.note_broken_or_half(Broken::Attribute, Some(object.last.links), text);
        }
        if let Kind::File(content) = &object.kind
            && !content.may_have_size(seen.size)
        {
            let text = format!("#{number}: {}", content.size_fault(seen.size));
            if content.is_halfway(seen.size) {
                self.note_broken(Broken::Half, Some(object.last.data), text);
            } else {
                self.note_broken_or_half(Broken::Data, Some(object.last.data), text);
            }
        }
        let told = object.mtime_told.filter(|_| !self.loose.contains(&number));
        if told.is_some_and(|told| told != seen.mtime) {
            self.findings.times_differ += 1;
        }
    }

    fn data(
        &mut self,
        alive: &[(Number, &Object, &FileHandle, u64)],
    ) -> Result<Vec<(Number, Vec<u8>)>> {
        let none = FileHandle(Vec::new());
        let mut calls = Vec::new();
        let mut asked = Vec::new();
        let mut seen = Vec::new();
        for (index, (number, object, handle, size)) in alive.iter().enumerate() {
            match &object.kind {
                // Another size is told with the attributes; what there is stays all the same.
                Kind::File(_) => {
                    if *size == 0 {
                        seen.push((*number, Vec::new()));
                    }
                    for offset in (0..*size).step_by(READ_BYTES as usize) {
                        calls.push((procedure::READ, arguments::read(handle, offset, READ_BYTES)));
                        asked.push(index);
                    }
                }
                Kind::Symlink(_) => {
                    calls.push((procedure::READLINK, arguments::handle(handle)));
                    asked.push(index);
                }
                _ => {}
            }
        }
        let mut read: BTreeMap<usize, Result<Vec<u8>, ClientError>> = BTreeMap::new();
        for (reply, index) in self.batch(&calls)?.into_iter().zip(asked) {
            let is_link = alive.get(index).is_some_and(|(_, object, ..)| object.target().is_some());
            let part = if is_link {
                decoder(reply).readlink(&none).map(|link| link.target)
            } else {
                decoder(reply).read(&none, 0, READ_BYTES).map(|read| read.data)
            };
            let whole = read.entry(index).or_insert_with(|| Ok(Vec::new()));
            match (whole.as_mut(), part) {
                (Ok(whole), Ok(mut part)) => whole.append(&mut part),
                (Ok(_), Err(error)) => *whole = Err(error),
                (Err(_), _) => {}
            }
        }
        for (index, bytes) in read {
            let Some((number, object, _, size)) = alive.get(index) else { continue };
            let fault = match (&object.kind, bytes) {
                (_, Err(error)) => Some(error.to_string()),
                (Kind::File(content), Ok(bytes)) => {
                    let has_size = content.may_have_size(*size);
                    let fault = has_size.then(|| content.fault(&bytes)).flatten();
                    seen.push((*number, bytes));
                    fault
                }
                (_, Ok(bytes)) => (object.target().as_ref() != Some(&bytes))
                    .then(|| format!("the target is {}", shown(&bytes))),
            };
            self.compared = Some(*number);
            if let Some(fault) = fault {
                self.note_broken_or_half(Broken::Data, Some(object.last.data), fault);
            }
        }
        Ok(seen)
    }

    /// ACLs are those that were acknowledged, or set by a local process.
    fn acls(&mut self, state: &State) -> Result<()> {
        let known: Vec<_> = (state.objects.iter())
            .filter(|(number, object)| {
                let has_them = matches!(object.kind, Kind::File(_) | Kind::Directory);
                // A list of which the mode is not known is not known whole.
                let is_whole = object.mode.is_some() || object.acl == Some(None);
                has_them && is_whole && !object.has_loose_attributes && !self.loose.contains(number)
            })
            .filter_map(|(number, object)| {
                Some((*number, object, object.handle.as_ref()?, object.acl?))
            })
            .collect();
        let calls: Vec<_> = (known.iter())
            .map(|(_, _, handle, _)| (GETACL, getacl_arguments(handle, MASK_ALL)))
            .collect();
        let none = FileHandle(Vec::new());
        for (reply, (number, object, _, acl)) in self.batch(&calls)?.into_iter().zip(known) {
            // What is gone was found to be.
            let Ok(seen) = decoder(reply).getacl(&none) else { continue };
            if let Some(fault) = acl::fault(object.mode, acl, object.default_acl, &seen) {
                let text = format!("#{number}: {fault}");
                self.compared = Some(number);
                self.note_broken(Broken::Access, Some(object.last.attributes), text);
            }
        }
        self.compared = None;
        Ok(())
    }

    /// Handles of what was removed lead nowhere.
    fn gone(&mut self, state: &State) -> Result<()> {
        let none = FileHandle(Vec::new());
        let last: Vec<Removed> = state.removed.iter().rev().take(GONE_MAX).cloned().collect();
        let calls: Vec<_> = (last.iter())
            .map(|removed| (procedure::GETATTR, arguments::handle(&removed.handle)))
            .collect();
        for (reply, removed) in self.batch(&calls)?.into_iter().zip(last) {
            match decoder(reply).getattr(&none) {
                Err(error) if error.status() == Some(NfsStat3::Stale) => {}
                other => {
                    let text = format!(
                        "the handle of #{}, which it removed, is answered {other:?}",
                        removed.object
                    );
                    self.compared = Some(removed.object);
                    self.note_broken(Broken::Handle, Some(removed.by), text);
                }
            }
        }
        self.compared = None;
        Ok(())
    }
}

/// Takes the handles of what local processes made from where it is listed, but for some places; whether there were
/// any.
fn adopt(state: &mut State, seen: &Seen, but: &BTreeSet<Place>) -> bool {
    let mut is_any = false;
    for (place, number) in state.names.iter().filter(|(place, _)| !but.contains(place)) {
        let entry = seen.get(&place.directory).and_then(|names| names.get(&place.name.bytes()));
        if let Some(handle) = entry.and_then(|entry| entry.handle.as_ref())
            && let Some(object) = state.objects.get_mut(number)
            && object.handle.is_none()
            && !object.is_loose
        {
            object.handle = Some(handle.clone());
            is_any = true;
        }
    }
    is_any
}

/// Sends again the last calls of each client that were acknowledged: the replies have to be the
/// same, byte for byte.
pub(crate) fn replay(
    client: &mut Nfs3Client<RpcConnection>,
    operations: &[(Number, &Operation)],
    findings: &mut Findings,
) -> Result<()> {
    let connection = client.transport();
    for (number, operation) in operations {
        connection.send_message(&operation.call)?;
        let reply = connection.receive_any()?;
        findings.replies += 1;
        if reply.message != operation.reply {
            findings.violations.push(Violation {
                broken: Broken::Reply,
                operation: Some(*number),
                object: None,
                paths: Vec::new(),
                text: format!("{}: sent again, it is answered otherwise", operation.action),
            });
        }
    }
    Ok(())
}

fn told(attributes: &Attributes) -> String {
    format!(
        "mode {:o}, uid {}, gid {}, size {}",
        attributes.mode, attributes.uid, attributes.gid, attributes.size
    )
}

/// As bytes are written in names of what is kept, and in the server's log.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.get(..24) {
        Some(start) if text.len() > 28 => format!("\"{start}…\""),
        _ => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests;
