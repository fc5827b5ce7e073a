//! What process tests of NFSv4 over a kill need: requests of slots as bytes, each of which depends on the
//! one before, so that who executes one of them twice, or not at all, is found out by it or the next.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]
#![allow(clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use steadfast_client::nfs4::{COMPOUND, ClientSettings, Compound, CompoundReply, Nfs4Client};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection, StableHow, append_call};
use steadfast_wire::nfs4::{
    Bitmap4, ChangeInfo4, Close4Args, Create4Args, CreateType4, Fattr4, Link4Args, Lock4Args,
    LockOwner4, LockType4, LockU4Args, Locker4, NfsStat4, Op4, Open4Args, OpenClaim4,
    OpenDowngrade4Args, OpenHow4, Remove4Args, Rename4Args, Sequence4Args, SetAttr4Args, StateId4,
    Write4Args,
};

use crate::common::PATIENCE;

/// A connection that messages are sent by as they are.
pub struct Wire(TcpStream);

impl Wire {
    /// # Errors
    /// When the server is gone already.
    pub fn connect(server: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    pub fn send(&mut self, call: &[u8]) -> std::io::Result<()> {
        let mark = 0x8000_0000 | call.len() as u32;
        self.0.write_all(&[&mark.to_be_bytes()[..], call].concat())
    }

    pub fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }

    pub fn ask(&mut self, call: &[u8]) -> Vec<u8> {
        self.send(call).unwrap();
        self.receive().unwrap()
    }
}

pub fn xid(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[..4].try_into().unwrap())
}

/// A client with a session of so many slots.
pub fn connect(server: SocketAddr, slots: u32) -> Nfs4Client {
    let transport = RpcConnection::connect(server, PATIENCE).unwrap();
    let settings = ClientSettings { slots, ..ClientSettings::default() };
    Nfs4Client::connect(transport, Identity::root(), &settings).unwrap()
}

/// The mode as attributes that are set.
const MODE: Bitmap4 = Bitmap4::from_words([0, 1 << 1, 0]);

fn mode(bytes: &[u8; 4]) -> Fattr4<'_> {
    Fattr4 { attrmask: MODE, attr_vals: bytes }
}

/// What a slot does, one request after the other.
pub const STEPS: [&str; 28] = [
    "MKDIR",
    "RENAME directory",
    "RMDIR",
    "SYMLINK",
    "REMOVE symlink",
    "OPEN guarded",
    "WRITE",
    "LOCK",
    "LOCKU",
    "LINK",
    "OPEN again",
    "SETATTR",
    "OPEN_DOWNGRADE",
    "RENAME",
    "CLOSE",
    "REMOVE renamed",
    "REMOVE linked",
    "OPEN unchecked",
    "CLOSE unchecked",
    "OPEN to be cut",
    "CLOSE cut",
    "REMOVE unchecked",
    "OPEN exclusive",
    "CLOSE exclusive",
    "REMOVE looked up",
    "MKDIR twice",
    "RENAME and write",
    "REMOVE twice",
];

type Outcome<T> = Result<T, ClientError>;

/// A slot of a session, and what its requests work on.
pub struct Slot {
    pub number: u32,
    /// Of all slots of the test.
    pub id: u32,
    pub session: [u8; 16],
    pub dir: FileHandle,
    pub other: FileHandle,
    pub sequence: u32,
    /// Another one when a request was answered wrongly: what it has left is in nobody's way.
    generation: u32,
    turns: u32,
    file: Option<FileHandle>,
    open: StateId4,
    lock: StateId4,
    /// The request that has no reply.
    pub call: Vec<u8>,
}

const NO_STATEID: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const READ: u32 = 1;
const BOTH: u32 = 3;
const WANT_NO_DELEGATION: u32 = 0x400;

impl Slot {
    pub fn new(
        (id, number): (u32, u32),
        session: [u8; 16],
        sequence: u32,
        dirs: (&FileHandle, &FileHandle),
    ) -> Self {
        let mut slot = Self {
            number,
            id,
            session,
            dir: dirs.0.clone(),
            other: dirs.1.clone(),
            sequence,
            generation: 0,
            turns: 0,
            file: None,
            open: NO_STATEID,
            lock: NO_STATEID,
            call: Vec::new(),
        };
        slot.begin();
        slot
    }

    pub fn step(&self) -> &'static str {
        STEPS[self.turns as usize % STEPS.len()]
    }

    fn name(&self, word: &str) -> Vec<u8> {
        format!("{word}{}-{}", self.id, self.generation).into_bytes()
    }

    fn open_args<'a>(
        owner: &'a [u8],
        how: OpenHow4<'a>,
        name: &'a [u8],
        access: u32,
    ) -> Open4Args<'a> {
        Open4Args {
            seqid: 0,
            share_access: access | WANT_NO_DELEGATION,
            share_deny: 0,
            clientid: 0,
            owner,
            openhow: how,
            claim: OpenClaim4::Null(name),
        }
    }

    fn file(&self) -> &FileHandle {
        self.file.as_ref().unwrap()
    }

    /// Makes the request of the present step.
    fn begin(&mut self) {
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: self.sequence,
            slotid: self.number,
            highest_slotid: self.number,
            cachethis: false,
        };
        let compound = self.operations(Compound::new().sequence(&sequence));
        let xid = self.id << 20 | self.sequence & 0xf_ffff;
        self.call.clear();
        append_call(&mut self.call, xid, COMPOUND, &Identity::root(), &compound.arguments());
    }

    fn operations(&self, c: Compound) -> Compound {
        let (dir, other) = (&self.dir, &self.other);
        let [d, f, l, x, twin] = ["d", "f", "l", "x", "twin"].map(|word| self.name(word));
        let mkdir = |c: Compound, name: &[u8]| {
            let (objtype, createattrs) = (CreateType4::Directory, mode(&[0, 0, 1, 0xed]));
            c.op(Op4::Create, &Create4Args { objtype, objname: name, createattrs }).handle()
        };
        let remove = |c: Compound, name: &[u8]| c.op(Op4::Remove, &Remove4Args { target: name });
        let rename = |c: Compound, oldname: &[u8], newname: &[u8]| {
            c.put(dir)
                .plain(Op4::SaveFh)
                .put(other)
                .op(Op4::Rename, &Rename4Args { oldname, newname })
        };
        let open = |c: Compound, how, name: &[u8], access| {
            c.put(dir).op(Op4::Open, &Self::open_args(&d, how, name, access)).handle()
        };
        let close = |c: Compound| {
            c.put(self.file()).op(Op4::Close, &Close4Args { seqid: 0, open_stateid: self.open })
        };
        let write = |c: Compound, file: &FileHandle| {
            let data = &[self.turns as u8; 100];
            let (stateid, offset, stable) = (self.open, 0, StableHow::FileSync);
            c.put(file).op(Op4::Write, &Write4Args { stateid, offset, stable, data })
        };
        let (reads, whole, cut) = ([0, 0, 1, 0x80], u64::MAX, [0; 8]);
        let size = Fattr4 { attrmask: Bitmap4::from_words([1 << 4, 0, 0]), attr_vals: &cut };
        match self.step() {
            "MKDIR" => mkdir(c.put(dir), &d),
            "RENAME directory" => rename(c, &d, &d),
            "RMDIR" => remove(c.put(other), &d),
            "SYMLINK" => {
                let (objtype, createattrs) = (CreateType4::Link(b"target"), mode(&[0, 0, 1, 0xff]));
                c.put(dir)
                    .op(Op4::Create, &Create4Args { objtype, objname: &l, createattrs })
                    .handle()
            }
            "REMOVE symlink" => remove(c.put(dir), &l),
            "OPEN guarded" => open(c, OpenHow4::Guarded(mode(&[0, 0, 1, 0xa4])), &f, BOTH),
            "WRITE" => write(c, self.file()),
            "LOCK" => {
                let lock_owner = LockOwner4 { clientid: 0, owner: &d };
                let locker = Locker4::Open {
                    open_seqid: 0,
                    open_stateid: self.open,
                    lock_seqid: 0,
                    lock_owner,
                };
                let (locktype, reclaim, offset, length) = (LockType4::Write, false, 0, whole);
                let lock = Lock4Args { locktype, reclaim, offset, length, locker };
                c.put(self.file()).op(Op4::Lock, &lock)
            }
            "LOCKU" => {
                let (locktype, seqid, offset, length) = (LockType4::Write, 0, 0, whole);
                let lock_stateid = self.lock;
                let unlock = LockU4Args { locktype, seqid, lock_stateid, offset, length };
                c.put(self.file()).op(Op4::LockU, &unlock)
            }
            "LINK" => c
                .put(self.file())
                .plain(Op4::SaveFh)
                .put(other)
                .op(Op4::Link, &Link4Args { newname: &l }),
            "OPEN again" => open(c, OpenHow4::NoCreate, &f, READ),
            "SETATTR" => {
                let set = SetAttr4Args { stateid: NO_STATEID, obj_attributes: mode(&reads) };
                c.put(self.file()).op(Op4::SetAttr, &set)
            }
            "OPEN_DOWNGRADE" => {
                let (open_stateid, seqid, share_access, share_deny) = (self.open, 0, READ, 0);
                let less = OpenDowngrade4Args { open_stateid, seqid, share_access, share_deny };
                c.put(self.file()).op(Op4::OpenDowngrade, &less)
            }
            "RENAME" => rename(c, &f, &x),
            "REMOVE renamed" => remove(c.put(other), &x),
            "REMOVE linked" => remove(c.put(other), &l),
            "OPEN unchecked" => open(c, OpenHow4::Unchecked(mode(&[0, 0, 0, 0])), &x, BOTH),
            "OPEN to be cut" => open(c, OpenHow4::Unchecked(size), &x, BOTH),
            "REMOVE unchecked" => remove(c.put(dir), &x),
            "OPEN exclusive" => {
                let verifier = (u64::from(self.sequence) << 32 | 0x4d).to_be_bytes();
                let how = OpenHow4::Exclusive41(verifier, mode(&[0, 0, 1, 0xa4]));
                open(c, how, &x, BOTH)
            }
            "REMOVE looked up" => remove(c.put(dir).lookup(&x).handle().put(dir), &x),
            "MKDIR twice" => mkdir(mkdir(c.put(dir), &d).put(dir), &twin),
            "RENAME and write" => {
                let set = SetAttr4Args { stateid: NO_STATEID, obj_attributes: mode(&reads) };
                let looked = rename(c, &d, &d).lookup(&d).op(Op4::SetAttr, &set);
                rename(looked, &twin, &twin)
            }
            "REMOVE twice" => remove(remove(c.put(other), &d), &twin),
            // "CLOSE…"
            _ => close(c),
        }
    }

    /// Takes a reply; what is wrong with it, if anything is.
    pub fn end(&mut self, reply: &[u8]) -> Result<(), String> {
        let read = self.read(&reply[24..]);
        self.sequence = self.sequence.wrapping_add(1);
        let read = read.map_err(|error| match error.status4() {
            Some(status) => format!("{} {status:?}", self.step()),
            None => format!("{} {error}", self.step()),
        });
        let said = read.and_then(|seqid| match (self.step(), seqid) {
            ("LOCKU" | "OPEN again", Some(2)) | ("OPEN_DOWNGRADE", Some(3)) => Ok(()),
            ("LOCKU" | "OPEN again" | "OPEN_DOWNGRADE", _) => {
                Err(format!("{} seqid {seqid:?}", self.step()))
            }
            (_, None | Some(1)) => Ok(()),
            (step, Some(_)) if step.starts_with("CLOSE") => Ok(()),
            (step, seqid) => Err(format!("{step} seqid {seqid:?}")),
        });
        if said.is_ok() {
            self.turns += 1;
        } else {
            self.generation += 1;
            self.turns = 0;
        }
        self.begin();
        said
    }

    /// Reads the results; the sequence id of the stateid that they tell, if they do.
    fn read(&mut self, results: &[u8]) -> Outcome<Option<u32>> {
        let step = self.step();
        let mut r = CompoundReply::parse(results)?;
        let told = r.sequence()?;
        assert_eq!((told.slotid, told.sequenceid), (self.number, self.sequence));
        r.done(Op4::PutFh)?;
        let r = &mut r;
        let renamed = |r: &mut CompoundReply<'_>| {
            r.done(Op4::SaveFh)?;
            r.done(Op4::PutFh)?;
            r.rename().map(drop)
        };
        let mut id = None;
        match step {
            "MKDIR" | "SYMLINK" => {
                r.create()?;
                r.handle()?;
            }
            "MKDIR twice" => {
                r.create()?;
                r.handle()?;
                r.done(Op4::PutFh)?;
                r.create()?;
                r.handle()?;
            }
            "RENAME directory" | "RENAME" => renamed(r)?,
            "RENAME and write" => {
                renamed(r)?;
                r.done(Op4::Lookup)?;
                r.set_attributes()?;
                r.done(Op4::PutFh)?;
                renamed(r)?;
            }
            "REMOVE looked up" => {
                r.done(Op4::Lookup)?;
                r.handle()?;
                r.done(Op4::PutFh)?;
                r.change(Op4::Remove)?;
            }
            "REMOVE twice" => {
                let _: [ChangeInfo4; 2] = [r.change(Op4::Remove)?, r.change(Op4::Remove)?];
            }
            "WRITE" => {
                r.write()?;
            }
            "LOCK" => {
                self.lock = r.stateid(Op4::Lock)?;
                id = Some(self.lock);
            }
            "LOCKU" => {
                self.lock = r.stateid(Op4::LockU)?;
                id = Some(self.lock);
            }
            "LINK" => {
                r.done(Op4::SaveFh)?;
                r.done(Op4::PutFh)?;
                r.change(Op4::Link)?;
            }
            "SETATTR" => {
                r.set_attributes()?;
            }
            "OPEN_DOWNGRADE" => {
                self.open = r.stateid(Op4::OpenDowngrade)?;
                id = Some(self.open);
            }
            step if step.starts_with("OPEN") => {
                self.open = r.open()?.stateid;
                id = Some(self.open);
                self.file = Some(r.handle()?);
            }
            step if step.starts_with("CLOSE") => id = Some(r.stateid(Op4::Close)?),
            _ => {
                r.change(Op4::Remove)?;
            }
        }
        assert_eq!(r.status(), NfsStat4::Ok);
        r.end()?;
        Ok(id.map(|id| id.seqid))
    }
}
