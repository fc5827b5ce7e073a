//! A client of NFSv3 whose every worker has a directory of its own, and knows what must be in it.
//!
//! A worker has one call in flight. So each reply must be exactly what its model of the directory
//! says: a REMOVE that is executed twice fails with NOENT, a late repetition of an old RENAME brings
//! a name back that the next LOOKUP finds, a lost WRITE is missed by the next READ.

use std::collections::BTreeMap;

use steadfast_wire::nfs3::{
    Commit3Args, Create3Args, CreateHow3, DirOpArgs3, Lookup3Args, Mkdir3Args, NfsFh3, Read3Args,
    Remove3Args, Rename3Args, Rmdir3Args, Sattr3, SetTime3, StableHow, Write3Args,
};
use steadfast_xdr::Reader;

use crate::Checked;
use crate::client::{Client, Context, Then};
use crate::message::{Request, unreadable};

const OK: u32 = 0;
const NOENT: u32 = 2;
const EXIST: u32 = 17;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const JUKEBOX: u32 = 10_008;

const NAMES: u64 = 4;
const ATTRIBUTES: Sattr3 = Sattr3 {
    mode: Some(0o755),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

#[derive(Clone, Debug)]
enum Node {
    Directory,
    File { handle: Vec<u8>, data: Vec<u8> },
}

#[derive(Clone, Debug)]
enum Call {
    Guarded(u64),
    Exclusive(u64, u64),
    MakeDirectory(u64),
    Remove(u64),
    RemoveDirectory(u64),
    Rename(u64, u64),
    Write {
        name: u64,
        offset: u64,
        data: Vec<u8>,
        is_stable: bool,
    },
    /// Of a write that is not stable, with its verifier.
    Commit {
        name: u64,
        verifier: [u8; 8],
        offset: u64,
        data: Vec<u8>,
    },
    Read(u64),
    Lookup(u64),
}

/// A directory, and who works in it.
struct Worker {
    directory: Vec<u8>,
    names: BTreeMap<u64, Node>,
    call: Option<Call>,
    /// What has to be done next.
    next: Option<Call>,
    calls: u64,
    /// The call was refused for now. A repetition of it that came behind may have been executed.
    is_in_doubt: bool,
}

/// The client.
pub(crate) struct NamesClient {
    number: u64,
    workers: Vec<Worker>,
}

fn name(number: u64) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

impl NamesClient {
    /// A client whose workers have these directories.
    pub(crate) fn new(number: u64, directories: Vec<Vec<u8>>) -> Self {
        let worker = |directory| Worker {
            directory,
            names: BTreeMap::new(),
            call: None,
            next: None,
            calls: 0,
            is_in_doubt: false,
        };
        Self { number, workers: directories.into_iter().map(worker).collect() }
    }
}

impl Client for NamesClient {
    fn absent_max_ms(&self) -> u64 {
        // Replies are remembered for 65 s at least.
        50_000
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn think(&mut self, worker: usize, cx: &mut Context<'_>) -> Checked<Option<Request>> {
        let Self { number, workers } = self;
        let Some(worker) = workers.get_mut(worker) else { return Ok(None) };
        let call = match worker.next.take() {
            Some(call) => call,
            None => worker.choose(*number, cx),
        };
        let request = worker.request(&call);
        worker.call = Some(call);
        Ok(Some(request))
    }

    fn reply(&mut self, worker: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let Some(worker) = self.workers.get_mut(worker) else { return Ok(Then::after(1)) };
        let Some(call) = worker.call.take() else { return Err("a reply to no call".into()) };
        let mut r = Reader::new(results);
        let status = r.u32().map_err(unreadable)?;
        if status == JUKEBOX {
            worker.next = Some(call);
            worker.is_in_doubt = true;
            return Ok(Then { purges: true, ..Then::after(cx.random.between(50, 5000)) });
        }
        let was_in_doubt = std::mem::take(&mut worker.is_in_doubt);
        if was_in_doubt && status != worker.expected(&call) {
            worker.was_done(&call, status)?;
        } else {
            worker.judge(&call, status, &mut r)?;
        }
        Ok(Then::after(cx.random.between(1, 60)))
    }
}

impl Worker {
    fn choose(&mut self, client: u64, cx: &mut Context<'_>) -> Call {
        self.calls += 1;
        let random = &mut *cx.random;
        let (one, other) = (random.below(NAMES), random.below(NAMES));
        let is_file = |name: &u64| matches!(self.names.get(name), Some(Node::File { .. }));
        let file = self.names.keys().copied().find(|name| is_file(name) && random.chance(700));
        match (random.below(10), file) {
            (0, _) => Call::Guarded(one),
            (1, _) => Call::Exclusive(one, client << 32 | self.calls),
            (2, _) => Call::MakeDirectory(one),
            (3, _) => Call::Remove(one),
            (4, _) => Call::RemoveDirectory(one),
            // What replaces what of another kind, storage decides in more ways than one.
            (5, _) if !self.names.contains_key(&other) || is_file(&one) && is_file(&other) => {
                Call::Rename(one, other)
            }
            (6 | 7, Some(name)) => {
                let word = (client << 48 | self.calls).to_be_bytes();
                let data = word.repeat(random.between(1, 4) as usize);
                let (offset, is_stable) = (random.below(8) * 8, random.chance(500));
                Call::Write { name, offset, data, is_stable }
            }
            (8, Some(name)) => Call::Read(name),
            _ => Call::Lookup(one),
        }
    }

    fn handle(&self, name: u64) -> &[u8] {
        match self.names.get(&name) {
            Some(Node::File { handle, .. }) => handle,
            _ => &[],
        }
    }

    fn request(&self, call: &Call) -> Request {
        let dir = NfsFh3(&self.directory);
        let what = format!("{call:?}");
        match call {
            Call::Guarded(it) => {
                let (name, how) = (name(*it), CreateHow3::Guarded(ATTRIBUTES));
                let where_ = DirOpArgs3 { dir, name: &name };
                Request::of_3(8, &Create3Args { where_, how }, what)
            }
            Call::Exclusive(it, verifier) => {
                let (name, how) = (name(*it), CreateHow3::Exclusive(verifier.to_be_bytes()));
                let where_ = DirOpArgs3 { dir, name: &name };
                Request::of_3(8, &Create3Args { where_, how }, what)
            }
            Call::MakeDirectory(it) => {
                let name = name(*it);
                let where_ = DirOpArgs3 { dir, name: &name };
                Request::of_3(9, &Mkdir3Args { where_, attributes: ATTRIBUTES }, what)
            }
            Call::Remove(it) => {
                let name = name(*it);
                Request::of_3(12, &Remove3Args { object: DirOpArgs3 { dir, name: &name } }, what)
            }
            Call::RemoveDirectory(it) => {
                let name = name(*it);
                Request::of_3(13, &Rmdir3Args { object: DirOpArgs3 { dir, name: &name } }, what)
            }
            Call::Rename(from, to) => {
                let (from, to) = (name(*from), name(*to));
                let from = DirOpArgs3 { dir, name: &from };
                Request::of_3(14, &Rename3Args { from, to: DirOpArgs3 { dir, name: &to } }, what)
            }
            Call::Write { name, offset, data, is_stable } => {
                let stable = if *is_stable { StableHow::FileSync } else { StableHow::Unstable };
                let (file, count) = (NfsFh3(self.handle(*name)), data.len() as u32);
                let arguments = Write3Args { file, offset: *offset, count, stable, data };
                Request::of_3(7, &arguments, what)
            }
            Call::Commit { name, .. } => {
                let file = NfsFh3(self.handle(*name));
                Request::of_3(21, &Commit3Args { file, offset: 0, count: 0 }, what)
            }
            Call::Read(name) => {
                let file = NfsFh3(self.handle(*name));
                Request::of_3(6, &Read3Args { file, offset: 0, count: 4096 }, what)
            }
            Call::Lookup(it) => {
                let name = name(*it);
                Request::of_3(3, &Lookup3Args { what: DirOpArgs3 { dir, name: &name } }, what)
            }
        }
    }

    /// What the reply has to say.
    fn expected(&self, call: &Call) -> u32 {
        let kind = |name: &u64| self.names.get(name);
        match call {
            Call::Guarded(name) | Call::Exclusive(name, _) | Call::MakeDirectory(name) => {
                if kind(name).is_some() { EXIST } else { OK }
            }
            Call::Remove(name) => match kind(name) {
                None => NOENT,
                Some(Node::Directory) => ISDIR,
                Some(Node::File { .. }) => OK,
            },
            Call::RemoveDirectory(name) => match kind(name) {
                None => NOENT,
                Some(Node::Directory) => OK,
                Some(Node::File { .. }) => NOTDIR,
            },
            Call::Rename(name, _) | Call::Lookup(name) => {
                if kind(name).is_some() {
                    OK
                } else {
                    NOENT
                }
            }
            Call::Write { .. } | Call::Commit { .. } | Call::Read(_) => OK,
        }
    }

    /// The call was executed when it was sent before.
    fn was_done(&mut self, call: &Call, status: u32) -> Checked {
        match (call, status) {
            (Call::Guarded(name) | Call::Exclusive(name, _), EXIST) => {
                // LOOKUP tells the handle.
                self.names.insert(*name, Node::File { handle: Vec::new(), data: Vec::new() });
                self.next = Some(Call::Lookup(*name));
            }
            (Call::MakeDirectory(name), EXIST) => {
                self.names.insert(*name, Node::Directory);
            }
            (Call::Remove(name) | Call::RemoveDirectory(name), NOENT) => {
                self.names.remove(name);
            }
            (Call::Rename(from, to), NOENT) => {
                if let Some(node) = self.names.remove(from) {
                    self.names.insert(*to, node);
                }
            }
            _ => return Err(format!("{call:?}, sent again, got status {status}")),
        }
        Ok(())
    }

    fn judge(&mut self, call: &Call, status: u32, r: &mut Reader<'_>) -> Checked {
        let expected = self.expected(call);
        if status != expected {
            return Err(format!(
                "{call:?} got status {status} and not {expected}; in its directory are {:?}",
                self.names
            ));
        }
        if status != OK {
            return Ok(());
        }
        match call {
            Call::Guarded(name) | Call::Exclusive(name, _) => {
                let handle = made(r).map_err(unreadable)?;
                self.names.insert(*name, Node::File { handle, data: Vec::new() });
            }
            Call::MakeDirectory(name) => {
                self.names.insert(*name, Node::Directory);
            }
            Call::Remove(name) | Call::RemoveDirectory(name) => {
                self.names.remove(name);
            }
            Call::Rename(from, to) => {
                if let Some(node) = self.names.remove(from) {
                    self.names.insert(*to, node);
                }
            }
            Call::Write { name, offset, data, is_stable } => {
                let verifier = written(r, data.len()).map_err(unreadable)?;
                let verifier = verifier.ok_or("WRITE has not written all")?;
                if *is_stable {
                    self.has_written(*name, *offset, data);
                } else {
                    let (name, offset, data) = (*name, *offset, data.clone());
                    self.next = Some(Call::Commit { name, verifier, offset, data });
                }
            }
            Call::Commit { name, verifier, offset, data } => {
                let now = verifier_behind_wcc(r).map_err(unreadable)?;
                if now == *verifier {
                    self.has_written(*name, *offset, data);
                } else {
                    let (name, offset, data) = (*name, *offset, data.clone());
                    self.next = Some(Call::Write { name, offset, data, is_stable: false });
                }
            }
            Call::Read(name) => {
                let found = read(r).map_err(unreadable)?;
                if let Some(Node::File { data, .. }) = self.names.get(name)
                    && *data != found
                {
                    return Err(format!("READ of n{name} tells {found:02x?} and not {data:02x?}"));
                }
            }
            Call::Lookup(name) => {
                let found = r.opaque(64).map_err(unreadable)?;
                match self.names.get_mut(name) {
                    Some(Node::File { handle, .. }) if handle.is_empty() => {
                        *handle = found.to_vec();
                    }
                    Some(Node::File { handle, .. }) if handle != found => {
                        return Err(format!("LOOKUP of n{name} finds another file"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn has_written(&mut self, name: u64, offset: u64, bytes: &[u8]) {
        if let Some(Node::File { data, .. }) = self.names.get_mut(&name) {
            let (offset, end) = (offset as usize, offset as usize + bytes.len());
            if data.len() < end {
                data.resize(end, 0);
            }
            if let Some(place) = data.get_mut(offset..end) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

type Read<T> = Result<T, steadfast_xdr::XdrError>;

/// `post_op_fh3`.
fn made(r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.bool()?;
    Ok(r.opaque(64)?.to_vec())
}

fn skip_attributes(r: &mut Reader<'_>) -> Read<()> {
    if r.bool()? {
        r.fixed_opaque(84)?;
    }
    Ok(())
}

fn verifier_behind_wcc(r: &mut Reader<'_>) -> Read<[u8; 8]> {
    if r.bool()? {
        r.fixed_opaque(24)?;
    }
    skip_attributes(r)?;
    r.array()
}

/// The verifier, if all was written.
fn written(r: &mut Reader<'_>, length: usize) -> Read<Option<[u8; 8]>> {
    if r.bool()? {
        r.fixed_opaque(24)?;
    }
    skip_attributes(r)?;
    let (count, _committed) = (r.u32()?, r.u32()?);
    let verifier = r.array()?;
    Ok((count as usize == length).then_some(verifier))
}

fn read(r: &mut Reader<'_>) -> Read<Vec<u8>> {
    skip_attributes(r)?;
    let (_count, _is_end) = (r.u32()?, r.bool()?);
    Ok(r.opaque(1 << 20)?.to_vec())
}
