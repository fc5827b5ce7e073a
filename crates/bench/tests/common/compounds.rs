//! NFSv4 of the fake server. Its handles are others than those of NFSv3.

use std::collections::BTreeMap;

use steadfast_client::NfsStat3;
use steadfast_wire::nfs3::NfsFh3;
use steadfast_wire::nfs4::{
    Access4Args, Access4Result, Attribute4, Bitmap4, ChangeInfo4, ChannelAttributes4, Close4Args,
    Commit4Args, CompoundHead4, CompoundReplyHead4, Create4Args, CreateSession4Args,
    CreateSession4Result, CreateType4, DestroyClientId4Args, DestroySession4Args, ExchangeId4Args,
    ExchangeId4Result, Fattr4, GetAttr4Args, Link4Args, Lock4Args, LockDenied4, LockOwner4,
    LockT4Args, LockType4, LockU4Args, Locker4, Lookup4Args, NfsStat4, Op4, Open4Args, Open4Result,
    OpenClaim4, OpenDelegation4, OpenHow4, PutFh4Args, Read4Args, Read4Result, ReadDir4Args,
    ReclaimComplete4Args, Remove4Args, Rename4Args, Sequence4Args, Sequence4Result, SetAttr4Args,
    StateId4, StateProtectResult4, Write4Args, Write4Result,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::{Fault, Kind, State};

/// Slots of a session.
const SLOTS: u32 = 64;
/// Bytes of the largest reply.
const REPLY_BYTES_MAX: u32 = 1 << 20;
/// What is told of objects.
const TOLD: Bitmap4 = Bitmap4::of(&[
    Attribute4::Type,
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::RdattrError,
    Attribute4::FileHandle,
    Attribute4::FileId,
    Attribute4::Mode,
    Attribute4::NumLinks,
    Attribute4::SpaceFree,
    Attribute4::LeaseTime,
    Attribute4::MaxName,
    Attribute4::MountedOnFileId,
]);

/// What is told of file systems.
const SPACE: Bitmap4 = Bitmap4::of(&[Attribute4::SpaceFree]);

/// All clients; a client's session has the client's number.
#[derive(Default)]
pub struct Clients {
    /// The next sequence id of each slot, once there is a session.
    pub by_id: BTreeMap<u64, Vec<u32>>,
    /// What is open, and whose it is.
    pub opens: BTreeMap<u64, u64>,
    /// What is locked, by stateid.
    pub locks: BTreeMap<u64, Locked>,
    /// Of which minor version requests were.
    pub minor_versions: std::collections::BTreeSet<u32>,
    /// Requests with SEQUENCE.
    pub compounds: u64,
    /// Operations that were executed, by name.
    pub operations: BTreeMap<String, u64>,
    /// READs and WRITEs by the anonymous stateid.
    pub anonymous: u64,
    last_id: u64,
}

/// What a lock-owner has of a file.
pub struct Locked {
    client: u64,
    file: u64,
    owner: Vec<u8>,
    /// From where to where, if it has anything.
    range: Option<(u64, u64)>,
}

type Answer = Result<(), NfsStat4>;

/// The same failure of NFSv4.
fn of_3(status: NfsStat3) -> NfsStat4 {
    match status {
        NfsStat3::NoEnt => NfsStat4::NoEnt,
        NfsStat3::Exist => NfsStat4::Exist,
        NfsStat3::NotDir => NfsStat4::NotDir,
        NfsStat3::NotEmpty => NfsStat4::NotEmpty,
        NfsStat3::Stale => NfsStat4::Stale,
        _ => NfsStat4::Inval,
    }
}

/// What one COMPOUND has at hand.
struct Run<'s> {
    state: &'s mut State,
    clients: &'s mut Clients,
    client: u64,
    current: u64,
    saved: u64,
    /// What is in the way: from where, how many bytes, whose.
    denied: Option<(u64, u64, Vec<u8>)>,
}

/// Appends the results of procedure COMPOUND.
pub fn answer(state: &mut State, clients: &mut Clients, r: &mut Reader<'_>, out: &mut Vec<u8>) {
    let head = CompoundHead4::decode(r).unwrap();
    clients.minor_versions.insert(head.minorversion);
    if state.fault == Fault::OneMinorVersion && head.minorversion != 1 {
        let status = NfsStat4::MinorVersMismatch;
        CompoundReplyHead4 { status, tag: head.tag, operations: 0 }.encode(&mut Writer::new(out));
        return;
    }
    let mut run = Run { state, clients, client: 0, current: 0, saved: 0, denied: None };
    let (mut results, mut status, mut operations) = (Vec::new(), NfsStat4::Ok, 0);
    while operations < head.operations && status == NfsStat4::Ok {
        let op = Op4::decode(r).unwrap();
        let mut body = Vec::new();
        let outcome = run.execute(op, r, &mut Writer::new(&mut body));
        *run.clients.operations.entry(format!("{op:?}")).or_default() += 1;
        operations += 1;
        status = outcome.err().unwrap_or(NfsStat4::Ok);
        let mut w = Writer::new(&mut results);
        w.u32(op as u32);
        w.u32(status as u32);
        if status == NfsStat4::Ok {
            results.extend_from_slice(&body);
        } else if let Some((offset, length, owner)) = run.denied.take() {
            let owner = LockOwner4 { clientid: 1, owner: &owner };
            let denied = LockDenied4 { offset, length, locktype: LockType4::Write, owner };
            denied.encode(&mut Writer::new(&mut results));
        } else if op == Op4::SetAttr {
            results.extend_from_slice(&[0; 4]);
        }
    }
    let head = CompoundReplyHead4 { status, tag: head.tag, operations };
    head.encode(&mut Writer::new(out));
    out.extend_from_slice(&results);
}

fn args<'a, T: Decode<'a>>(r: &mut Reader<'a>) -> Result<T, NfsStat4> {
    T::decode(r).map_err(|_| NfsStat4::BadXdr)
}

fn handle(number: u64) -> [u8; 11] {
    let mut handle = *b"v4-........";
    handle[3..].copy_from_slice(&number.to_be_bytes());
    handle
}

fn stateid(number: u64) -> StateId4 {
    let mut other = [0; 12];
    other[..8].copy_from_slice(&number.to_be_bytes());
    StateId4 { seqid: 1, other }
}

fn session(client: u64) -> [u8; 16] {
    let mut id = [7; 16];
    id[8..].copy_from_slice(&client.to_be_bytes());
    id
}

fn channel(maxrequests: u32) -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: REPLY_BYTES_MAX,
        maxresponsesize: REPLY_BYTES_MAX,
        maxresponsesize_cached: 0,
        maxoperations: 16,
        maxrequests,
        rdma_ird: Vec::new(),
    }
}

impl Run<'_> {
    fn execute(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
        match op {
            Op4::ExchangeId | Op4::CreateSession | Op4::DestroySession | Op4::DestroyClientId => {
                self.client(op, r, w)
            }
            Op4::Sequence => self.sequence(args(r)?, w),
            Op4::ReclaimComplete => args::<ReclaimComplete4Args>(r).map(drop),
            Op4::PutRootFh => {
                self.current = 1;
                Ok(())
            }
            Op4::PutFh => {
                let object = args::<PutFh4Args<'_>>(r)?.object;
                let number = object.strip_prefix(b"v4-").ok_or(NfsStat4::BadHandle)?;
                self.current = u64::from_be_bytes(number.try_into().unwrap());
                if !self.state.objects.contains_key(&self.current) {
                    return Err(NfsStat4::Stale);
                }
                // Every other time, the slot having moved.
                if self.is_refused(1) { Err(self.later()) } else { Ok(()) }
            }
            Op4::GetFh => {
                w.opaque(&handle(self.current));
                Ok(())
            }
            Op4::Lookup => self.lookup(args::<Lookup4Args<'_>>(r)?.objname),
            Op4::GetAttr => {
                let wanted = args::<GetAttr4Args>(r)?.attr_request;
                let lies = self.state.fault == Fault::OtherAttributes
                    && self.clients.compounds.is_multiple_of(500);
                self.attributes(self.current, &wanted, u64::from(lies), w);
                Ok(())
            }
            Op4::Access => {
                let denied = match self.state.fault {
                    Fault::DeniesLookup => 0x2,
                    Fault::DeniesRead => 0x1,
                    _ => 0,
                };
                let access = args::<Access4Args>(r)?.access & !denied;
                Access4Result { supported: access, access }.encode(w);
                Ok(())
            }
            Op4::ReadLink => {
                let Kind::Symlink(target) = &self.state.objects[&self.current].kind else {
                    return Err(NfsStat4::Inval);
                };
                w.opaque(&self.damaged(target));
                Ok(())
            }
            Op4::Open => self.open(&args(r)?, w),
            Op4::Close => {
                let open = args::<Close4Args>(r)?.open_stateid;
                let own = self.own(&open)?;
                self.clients.opens.remove(&own);
                let (client, file) = (self.client, self.current);
                let is_of = |lock: &Locked| lock.client == client && lock.file == file;
                self.clients.locks.retain(|_, lock| !is_of(lock));
                stateid(0).encode(w);
                Ok(())
            }
            Op4::Read => self.read(&args(r)?, w),
            Op4::ReadDir => self.list(&args(r)?, w),
            Op4::SaveFh => {
                self.saved = self.current;
                Ok(())
            }
            Op4::RestoreFh => {
                self.current = self.saved;
                Ok(())
            }
            Op4::Lock | Op4::LockT | Op4::LockU => self.locking(op, r, w),
            _ => self.change(op, r, w),
        }
    }

    /// Whether this request is one that is refused for now: by SEQUENCE (0), or by what follows it (1).
    fn is_refused(&self, by: u64) -> bool {
        let (Fault::RefusesEvery(every) | Fault::GraceEvery(every)) = self.state.fault else {
            return false;
        };
        let count = self.clients.compounds;
        count.is_multiple_of(every) && count / every % 2 == by
    }

    /// How it is refused.
    fn later(&self) -> NfsStat4 {
        let is_grace = matches!(self.state.fault, Fault::GraceEvery(_));
        if is_grace { NfsStat4::Grace } else { NfsStat4::Delay }
    }

    fn client(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
        match op {
            Op4::ExchangeId => {
                let _: ExchangeId4Args<'_> = args(r)?;
                self.clients.last_id += 1;
                let clientid = self.clients.last_id;
                self.clients.by_id.insert(clientid, Vec::new());
                let result = ExchangeId4Result {
                    clientid,
                    sequenceid: 5,
                    flags: 0x1_0000,
                    state_protect: StateProtectResult4::None,
                    server_minor_id: 0,
                    server_major_id: b"fake",
                    server_scope: b"fake",
                    server_impl_id: Vec::new(),
                };
                result.encode(w);
            }
            Op4::CreateSession => {
                let asked: CreateSession4Args<'_> = args(r)?;
                assert_eq!(asked.sequence, 5);
                let slots =
                    self.clients.by_id.get_mut(&asked.clientid).ok_or(NfsStat4::StaleClientId)?;
                let count = asked.fore.maxrequests.min(SLOTS);
                slots.resize(count as usize, 1);
                let sessionid = session(asked.clientid);
                let (fore, back) = (channel(count), channel(1));
                CreateSession4Result { sessionid, sequence: 5, flags: 0, fore, back }.encode(w);
            }
            Op4::DestroySession => {
                let id = args::<DestroySession4Args>(r)?.sessionid;
                self.slots(&id)?.clear();
            }
            _ => {
                let id = args::<DestroyClientId4Args>(r)?.clientid;
                let has_opens = self.clients.opens.values().any(|client| *client == id);
                if has_opens || self.clients.by_id.get(&id).is_some_and(|slots| !slots.is_empty()) {
                    return Err(NfsStat4::ClientIdBusy);
                }
                self.clients.by_id.remove(&id).ok_or(NfsStat4::StaleClientId)?;
            }
        }
        Ok(())
    }

    fn slots(&mut self, session: &[u8; 16]) -> Result<&mut Vec<u32>, NfsStat4> {
        let client = u64::from_be_bytes(session[8..].try_into().unwrap());
        self.clients.by_id.get_mut(&client).ok_or(NfsStat4::BadSession)
    }

    fn sequence(&mut self, asked: Sequence4Args, w: &mut Writer<'_>) -> Answer {
        self.clients.compounds += 1;
        if self.is_refused(0) {
            return Err(self.later());
        }
        let slots = self.slots(&asked.sessionid)?;
        let highest = slots.len() as u32 - 1;
        let next = slots.get_mut(asked.slotid as usize).ok_or(NfsStat4::BadSlot)?;
        if asked.highest_slotid < asked.slotid || asked.sequenceid != *next {
            return Err(NfsStat4::SeqMisordered);
        }
        *next = next.wrapping_add(1);
        self.client = u64::from_be_bytes(asked.sessionid[8..].try_into().unwrap());
        let result = Sequence4Result {
            sessionid: asked.sessionid,
            sequenceid: asked.sequenceid,
            slotid: asked.slotid + u32::from(self.state.fault == Fault::OtherSlot),
            highest_slotid: highest,
            target_highest_slotid: highest,
            status_flags: 0,
        };
        result.encode(w);
        Ok(())
    }

    fn lookup(&mut self, name: &[u8]) -> Answer {
        let Kind::Directory(names) = &self.state.objects[&self.current].kind else {
            return Err(NfsStat4::NotDir);
        };
        let found = *names.get(name).ok_or(NfsStat4::NoEnt)?;
        let last = names.last_key_value().map_or(found, |(_, number)| *number);
        let is_directory = matches!(self.state.objects[&found].kind, Kind::Directory(_));
        let is_wrong = match self.state.fault {
            Fault::WrongHandle => true,
            Fault::LaterWrongHandle => !is_directory,
            _ => false,
        };
        self.current = if is_wrong { last } else { found };
        Ok(())
    }

    fn attributes(&self, number: u64, wanted: &Bitmap4, lie: u64, w: &mut Writer<'_>) {
        let lacks = if self.state.fault == Fault::TellsNoSpace { SPACE } else { Bitmap4::EMPTY };
        let told = wanted.and(&TOLD).without(&lacks);
        let (kind, size) = match &self.state.objects[&number].kind {
            Kind::File(data) => (1, data.len() + usize::from(self.state.fault == Fault::OtherSize)),
            Kind::Directory(names) => (2, names.len()),
            Kind::Symlink(target) => (5, target.len()),
            Kind::Fifo => (7, 0),
        };
        told.encode(w);
        w.opaque_of(|w| {
            for attribute in Attribute4::ALL.iter().filter(|attribute| told.has(**attribute)) {
                match attribute {
                    Attribute4::Type => w.u32(kind),
                    Attribute4::Size => w.u64(size as u64),
                    Attribute4::Mode => w.u32(self.state.objects[&number].mode),
                    Attribute4::NumLinks => w.u32(self.state.objects[&number].nlink),
                    Attribute4::LeaseTime | Attribute4::MaxName => w.u32(90),
                    Attribute4::RdattrError => w.u32(0),
                    Attribute4::FileHandle => w.opaque(&handle(number)),
                    _ => w.u64(number + lie),
                }
            }
        });
    }

    fn damaged(&self, data: &[u8]) -> Vec<u8> {
        let mut data = data.to_vec();
        if let (Fault::DamagedData, Some(byte)) = (self.state.fault, data.last_mut()) {
            *byte ^= 1;
        }
        data
    }

    fn open(&mut self, asked: &Open4Args<'_>, w: &mut Writer<'_>) -> Answer {
        let OpenClaim4::Null(name) = asked.claim else { return Err(NfsStat4::NotSupp) };
        if let OpenHow4::Guarded(attributes) = asked.openhow {
            self.make(name, Kind::File(Vec::new()), &attributes)?;
        } else {
            self.lookup(name)?;
        }
        self.clients.last_id += 1;
        let number = self.clients.last_id;
        self.clients.opens.insert(number, self.client);
        let result = Open4Result {
            stateid: stateid(number),
            cinfo: ChangeInfo4 { atomic: true, before: 1, after: 1 },
            rflags: 0,
            attrset: Bitmap4::EMPTY,
            delegation: OpenDelegation4::NoneSince(0),
        };
        result.encode(w);
        Ok(())
    }

    /// The number of an open or lock of this client.
    fn own(&self, stateid: &StateId4) -> Result<u64, NfsStat4> {
        let number = u64::from_be_bytes(stateid.other[..8].try_into().unwrap());
        let lock = self.clients.locks.get(&number).map(|lock| &lock.client);
        let is_own = self.clients.opens.get(&number).or(lock) == Some(&self.client);
        if is_own && stateid.seqid == 1 { Ok(number) } else { Err(NfsStat4::BadStateId) }
    }

    /// READ and WRITE need an open of the client's, or say that they have none.
    fn may_transfer(&mut self, stateid: &StateId4) -> Answer {
        if *stateid == (StateId4 { seqid: 0, other: [0; 12] }) {
            self.clients.anonymous += 1;
            return Ok(());
        }
        self.own(stateid).map(drop)
    }

    fn read(&mut self, asked: &Read4Args, w: &mut Writer<'_>) -> Answer {
        self.may_transfer(&asked.stateid)?;
        let offset = if self.state.fault == Fault::OtherPlace { 0 } else { asked.offset };
        let Kind::File(data) = &self.state.objects[&self.current].kind else {
            return Err(NfsStat4::Inval);
        };
        let start = (offset as usize).min(data.len());
        let lack = if self.state.fault == Fault::ShortReads { 4 } else { 0 };
        let end = (start + asked.count as usize).min(data.len()).saturating_sub(lack).max(start);
        let (eof, data) = (end == data.len(), self.damaged(&data[start..end]));
        Read4Result { eof, data: &data }.encode(w);
        Ok(())
    }

    /// Makes an object, which becomes the current one.
    fn make(&mut self, name: &[u8], kind: Kind, attributes: &Fattr4<'_>) -> Result<(), NfsStat4> {
        let directory = self.current.to_be_bytes();
        self.current = self.state.make(NfsFh3(&directory), name, kind).map_err(of_3)?;
        self.set(attributes);
        Ok(())
    }

    fn set(&mut self, attributes: &Fattr4<'_>) {
        assert_eq!(attributes.attrmask, Bitmap4::of(&[Attribute4::Mode]));
        let mode = u32::from_be_bytes(attributes.attr_vals.try_into().unwrap());
        let set = steadfast_client::Settings::mode(mode).0;
        if self.state.fault != Fault::IgnoresSetattr {
            self.state.set(self.current, &set);
        }
    }

    fn change(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
        let (current, saved) = (self.current.to_be_bytes(), self.saved.to_be_bytes());
        let (current, saved) = (NfsFh3(&current), NfsFh3(&saved));
        let changed = ChangeInfo4 { atomic: true, before: 1, after: 2 };
        match op {
            Op4::Create => {
                let asked: Create4Args<'_> = args(r)?;
                let kind = match asked.objtype {
                    CreateType4::Directory => Kind::Directory(BTreeMap::new()),
                    CreateType4::Link(target) => Kind::Symlink(target.to_vec()),
                    CreateType4::Fifo => Kind::Fifo,
                    _ => return Err(NfsStat4::NotSupp),
                };
                self.make(asked.objname, kind, &asked.createattrs)?;
                changed.encode(w);
                asked.createattrs.attrmask.encode(w);
            }
            Op4::Remove => {
                let target = args::<Remove4Args<'_>>(r)?.target;
                let found =
                    *self.state.names(current).map_err(of_3)?.get(target).ok_or(NfsStat4::NoEnt)?;
                let is_directory = matches!(self.state.objects[&found].kind, Kind::Directory(_));
                self.state.remove(current, target, is_directory).map_err(of_3)?;
                changed.encode(w);
            }
            Op4::Rename => {
                let asked: Rename4Args<'_> = args(r)?;
                let (from, to) = ((saved, asked.oldname), (current, asked.newname));
                self.state.rename(from, to).map_err(of_3)?;
                changed.encode(w);
                changed.encode(w);
            }
            Op4::Link => {
                let name = args::<Link4Args<'_>>(r)?.newname;
                self.state.link(saved, current, name).map_err(of_3)?;
                changed.encode(w);
            }
            Op4::SetAttr => {
                let asked: SetAttr4Args<'_> = args(r)?;
                self.set(&asked.obj_attributes);
                asked.obj_attributes.attrmask.encode(w);
            }
            Op4::Write => {
                let asked: Write4Args<'_> = args(r)?;
                self.may_transfer(&asked.stateid)?;
                let Write4Args { offset, data, stable, .. } = asked;
                let (committed, verifier) =
                    self.state.write(current, offset, data, stable).map_err(of_3)?;
                Write4Result { count: data.len() as u32, committed, verifier }.encode(w);
            }
            Op4::Commit => {
                let _: Commit4Args = args(r)?;
                w.fixed_opaque(&self.state.commit(current).map_err(of_3)?);
            }
            _ => return Err(NfsStat4::NotSupp),
        }
        Ok(())
    }

    /// Whether others have something of the current file's bytes, which is told.
    fn is_denied(&mut self, own: Option<u64>, (start, end): (u64, u64)) -> Answer {
        if self.state.fault == Fault::IgnoresLocks {
            return Ok(());
        }
        let others = self.clients.locks.iter().filter(|(number, _)| Some(**number) != own);
        let denied = others.filter(|(_, lock)| lock.file == self.current).find_map(|(_, lock)| {
            let (from, to) = lock.range.filter(|(from, to)| *from < end && start < *to)?;
            Some((from, to - from, lock.owner.clone()))
        });
        self.denied = denied;
        if self.denied.is_some() { Err(NfsStat4::Denied) } else { Ok(()) }
    }

    fn locking(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
        let number =
            |stateid: &StateId4| u64::from_be_bytes(stateid.other[..8].try_into().unwrap());
        if op == Op4::LockU {
            let asked: LockU4Args = args(r)?;
            let lock = self.clients.locks.get_mut(&number(&asked.lock_stateid));
            lock.ok_or(NfsStat4::BadStateId)?.range = None;
            asked.lock_stateid.encode(w);
            return Ok(());
        }
        if op == Op4::LockT {
            let asked: LockT4Args<'_> = args(r)?;
            return self.is_denied(None, (asked.offset, asked.offset.saturating_add(asked.length)));
        }
        let asked: Lock4Args<'_> = args(r)?;
        let range = (asked.offset, asked.offset.saturating_add(asked.length));
        let (client, file) = (self.client, self.current);
        match asked.locker {
            Locker4::Open { open_stateid, lock_owner, .. } => {
                self.own(&open_stateid)?;
                self.is_denied(None, range)?;
                self.clients.last_id += 1;
                let owner = lock_owner.owner.to_vec();
                let lock = Locked { client, file, owner, range: Some(range) };
                self.clients.locks.insert(self.clients.last_id, lock);
                stateid(self.clients.last_id).encode(w);
            }
            Locker4::Lock { lock_stateid, .. } => {
                let own = number(&lock_stateid);
                self.is_denied(Some(own), range)?;
                let lock = self.clients.locks.get_mut(&own).ok_or(NfsStat4::BadStateId)?;
                lock.range = Some(range);
                lock_stateid.encode(w);
            }
        }
        Ok(())
    }

    fn list(&mut self, asked: &ReadDir4Args, w: &mut Writer<'_>) -> Answer {
        let Kind::Directory(names) = &self.state.objects[&self.current].kind else {
            return Err(NfsStat4::NotDir);
        };
        let missing = usize::from(self.state.fault == Fault::MissingEntry);
        let all = names.len().saturating_sub(missing);
        let mut bytes = Vec::new();
        // Cookies are an entry's place and 3.
        let mut told = (asked.cookie as usize).saturating_sub(2);
        for (name, number) in names.iter().take(all).skip(told) {
            let mut entry = Vec::new();
            let mut w = Writer::new(&mut entry);
            w.bool(true);
            w.u64(told as u64 + 3);
            w.opaque(name);
            self.attributes(*number, &asked.attr_request, 0, &mut w);
            if bytes.len() + entry.len() + 16 > asked.maxcount as usize {
                break;
            }
            bytes.extend_from_slice(&entry);
            told += 1;
        }
        w.zeros(8);
        w.fixed_opaque(&bytes);
        w.bool(false);
        w.bool(told == all);
        Ok(())
    }
}
