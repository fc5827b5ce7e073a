//! A server of NFSv4.1 in this process: it knows one client, one session and names that were removed, and can lose
//! replies, sessions and all that it knows.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::nfs4::{ACCESS_BOTH, NfsStat4, StateId4};
use steadfast_client::nlm::NlmStat;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, ChangeInfo4, Close4Args, CompoundHead4, CompoundReplyHead4,
    CreateSession4Args, CreateSession4Result, DestroyClientId4Args, DestroySession4Args,
    ExchangeId4Args, ExchangeId4Result, Fattr4, FileType4, FreeStateId4Args, GetAttr4Args,
    GetFh4Result, Lock4Args, LockU4Args, Locker4, Lookup4Args, NfsTime4, Op4, Open4Args,
    Open4Result, OpenClaim4, OpenDelegation4, PutFh4Args, ReclaimComplete4Args, Remove4Args,
    Sequence4Args, Sequence4Result, StateProtectResult4,
};
use steadfast_wire::rpc::{AcceptStat, CallHeader, RejectStat, ReplyHeader};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::convert::WANTED;
use super::held_locks::Range;
use super::{Client4, LockAsker};
use crate::transport::{Link, Patience};
use steadfast_client::Identity;

pub(super) const USER: Identity = Identity::None;

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Told apart by each start that forgets everything.
    pub(super) boot: u64,
    /// Sessions that were made, and the one that is.
    pub(super) sessions: u64,
    session: u64,
    slots: HashMap<u32, (u32, Vec<u8>)>,
    /// In order, as often as they were removed.
    pub(super) removed: Vec<Vec<u8>>,
    /// So many requests are executed, and their replies lost with their connection.
    pub(super) loses_replies: u32,
    /// So many requests are refused after the next lost reply, as if their user were not known.
    pub(super) denies: u32,
    /// The session is lost with the next lost reply.
    pub(super) loses_session: bool,
    /// Requests that remove are neither executed nor answered.
    pub(super) is_deaf: bool,
    /// What was opened and closed, and that all is reclaimed, in order.
    pub(super) told: Vec<String>,
    /// So many look-ups and closes are told to come later.
    pub(super) delays: u32,
    /// The lease that it gives, in seconds, if not 90.
    pub(super) lease: u32,
    /// How many sessions were destroyed.
    pub(super) destroyed: u32,
    /// Starts that have forgotten all but its clients.
    kept_clients: u64,
    /// What it says with each reply, until all is reclaimed.
    status_flags: u32,
    /// Nothing is opened.
    pub(super) refuses_opens: bool,
    /// Nothing is opened to read and to write at one time.
    pub(crate) refuses_both: bool,
    /// Files in its one directory. Their names are their handles.
    pub(crate) names: Vec<Vec<u8>>,
    /// The current object.
    object: Vec<u8>,
    /// Opens cannot be reclaimed.
    pub(super) gives_no_grace: bool,
    next_stateid: u64,
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) client: Arc<Client4>,
    pub(crate) state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let of = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let of = Arc::clone(&of);
                thread::spawn(move || drop(serve(&stream, &of)));
            }
        });
        let link = Link::open(address, false, Duration::from_secs(60), 1).unwrap();
        let client = Client4::connect(link, USER, 1, Patience::default()).unwrap();
        Self { client, state }
    }

    /// It comes again and has forgotten everything.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock();
        state.boot += 1;
        state.session = 0;
        state.slots.clear();
    }

    /// It comes again, and knows its client and nothing of what that has.
    pub(super) fn restart_with_clients(&self) {
        self.restart();
        let mut state = self.state.lock();
        state.kept_clients += 1;
        // `SEQ4_STATUS_RESTART_RECLAIM_NEEDED`.
        state.status_flags = 0x100;
    }

    /// It takes away what is open and locked, and the client has heard of that.
    pub(crate) fn revoke(&self) {
        for open in self.client.opens.all() {
            if let Some((stateid, _)) = open.stateid() {
                self.client.lose_open(&open, stateid);
            }
        }
    }

    /// It has lost everything, and the client has told it of this lock anew, as one that is held.
    pub(crate) fn reclaim(&self, asker: LockAsker<'_>, range: Range) {
        self.client.epoch.fetch_add(1, Ordering::AcqRel);
        let (stat, _) = self.client.lock(asker, range, Patience::default()).unwrap();
        assert_eq!(stat, NlmStat::Granted);
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.client.link)
    }

    /// The session is gone.
    pub(super) fn lose_session(&self) {
        let mut state = self.state.lock();
        state.session = 0;
        state.slots.clear();
    }

    pub(crate) fn take_told(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().told)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.client.end();
        self.client.link.close();
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn serve(mut stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut call)?;
        let mut r = Reader::new(&call);
        let header = CallHeader::decode(&mut r).unwrap();
        let mut reply = Vec::new();
        ReplyHeader::accepted(header.xid, AcceptStat::Success).encode(&mut Writer::new(&mut reply));
        if state.lock().is_denied() {
            let mut denial = Vec::new();
            let denied = ReplyHeader::denied(header.xid, RejectStat::AuthError(1));
            denied.encode(&mut Writer::new(&mut denial));
            stream.write_all(&(0x8000_0000 | denial.len() as u32).to_be_bytes())?;
            stream.write_all(&denial)?;
            continue;
        }
        let Some(results) = execute(&mut r, &mut state.lock()) else { continue };
        {
            let mut state = state.lock();
            if state.loses_replies > 0 && !state.removed.is_empty() {
                state.loses_replies -= 1;
                if std::mem::take(&mut state.loses_session) {
                    state.session = 0;
                    state.slots.clear();
                }
                return Ok(());
            }
        }
        reply.extend_from_slice(&results);
        stream.write_all(&(0x8000_0000 | reply.len() as u32).to_be_bytes())?;
        stream.write_all(&reply)?;
    }
}

/// The results of a COMPOUND; `None`: it is not answered.
fn execute(r: &mut Reader<'_>, state: &mut State) -> Option<Vec<u8>> {
    let head = CompoundHead4::decode(r).unwrap();
    let (mut results, mut count, mut status) = (Vec::new(), 0, NfsStat4::Ok);
    let mut slot = None;
    for _ in 0..head.operations {
        let op = Op4::decode(r).unwrap();
        let mut result = Vec::new();
        if op == Op4::Sequence {
            let sequence = Sequence4Args::decode(r).unwrap();
            match state.begin(&sequence, &mut Writer::new(&mut result)) {
                Ok(None) => slot = Some(sequence),
                Ok(Some(kept)) => return Some(kept),
                Err(error) => status = error,
            }
        } else if state.is_deaf && op == Op4::Remove {
            // As if it had never come.
            let sequence = slot?;
            let before = (sequence.sequenceid.wrapping_sub(1), Vec::new());
            state.slots.insert(sequence.slotid, before);
            return None;
        } else {
            status = state.execute(op, r, &mut Writer::new(&mut result));
        }
        let mut w = Writer::new(&mut results);
        op.encode(&mut w);
        status.encode(&mut w);
        if status == NfsStat4::Ok {
            results.extend_from_slice(&result);
        }
        count += 1;
        if status != NfsStat4::Ok {
            break;
        }
    }
    let mut whole = Vec::new();
    CompoundReplyHead4 { status, tag: &[], operations: count }.encode(&mut Writer::new(&mut whole));
    whole.extend_from_slice(&results);
    if let Some(sequence) = slot {
        state.slots.insert(sequence.slotid, (sequence.sequenceid, whole.clone()));
    }
    Some(whole)
}

fn session_of(number: u64, boot: u64) -> [u8; 16] {
    let mut session = [0; 16];
    session[..8].copy_from_slice(&number.to_be_bytes());
    session[8..].copy_from_slice(&boot.to_be_bytes());
    session
}

/// The values of [`WANTED`], in their order.
fn values_of(is_file: bool) -> Vec<u8> {
    let mut values = Vec::new();
    let mut w = Writer::new(&mut values);
    w.u32(if is_file { FileType4::Regular } else { FileType4::Directory } as u32);
    // `change`, `size`, `fsid` and `fileid`.
    for value in [1, 0, 1, 1, 1] {
        w.u64(value);
    }
    // `mode`, `numlinks`, `owner`, `owner_group` and `rawdev`.
    for value in [0o755, 1] {
        w.u32(value);
    }
    for name in [b"0", b"0"] {
        w.opaque(name);
    }
    for value in [0, 0] {
        w.u32(value);
    }
    w.u64(0);
    for _ in 0..3 {
        NfsTime4 { seconds: 1, nseconds: 0 }.encode(&mut w);
    }
    values
}

impl State {
    /// SEQUENCE: the reply that is kept, if the request came before.
    fn begin(
        &mut self,
        sequence: &Sequence4Args,
        w: &mut Writer<'_>,
    ) -> Result<Option<Vec<u8>>, NfsStat4> {
        if self.session == 0 || sequence.sessionid != session_of(self.session, self.boot) {
            return Err(NfsStat4::BadSession);
        }
        let (last, kept) = self.slots.get(&sequence.slotid).cloned().unwrap_or_default();
        if sequence.sequenceid == last {
            return Ok(Some(kept));
        }
        if sequence.sequenceid != last.wrapping_add(1) {
            return Err(NfsStat4::SeqMisordered);
        }
        let told = Sequence4Result {
            sessionid: sequence.sessionid,
            sequenceid: sequence.sequenceid,
            slotid: sequence.slotid,
            highest_slotid: 63,
            target_highest_slotid: 63,
            status_flags: self.status_flags,
        };
        told.encode(w);
        Ok(None)
    }

    fn is_denied(&mut self) -> bool {
        let is_denied = self.denies > 0 && self.loses_replies == 0 && !self.removed.is_empty();
        self.denies -= u32::from(is_denied);
        is_denied
    }

    fn stateid(&mut self) -> StateId4 {
        self.next_stateid += 1;
        let mut other = [0; 12];
        other[..8].copy_from_slice(&self.next_stateid.to_be_bytes());
        other[8..].copy_from_slice(&(self.boot as u32).to_be_bytes());
        StateId4 { seqid: 1, other }
    }

    fn is_known(&self, stateid: &StateId4) -> bool {
        stateid.other[8..] == (self.boot as u32).to_be_bytes()
    }

    /// A client, or its session.
    fn make(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) {
        if op == Op4::ExchangeId {
            ExchangeId4Args::decode(r).unwrap();
            let told = ExchangeId4Result {
                clientid: self.boot + 1 - self.kept_clients,
                sequenceid: 1,
                flags: 0,
                state_protect: StateProtectResult4::None,
                server_minor_id: 0,
                server_major_id: b"fake",
                server_scope: b"fake",
                server_impl_id: Vec::new(),
            };
            told.encode(w);
        } else {
            let wanted = CreateSession4Args::decode(r).unwrap();
            self.sessions += 1;
            self.session = self.sessions;
            self.slots.clear();
            let told = CreateSession4Result {
                sessionid: session_of(self.session, self.boot),
                sequence: wanted.sequence,
                flags: 0,
                fore: wanted.fore,
                back: wanted.back,
            };
            told.encode(w);
        }
    }

    /// The current object, and what is asked of it.
    fn look(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> NfsStat4 {
        match op {
            Op4::SaveFh => {}
            Op4::PutRootFh | Op4::RestoreFh => self.object = Vec::new(),
            Op4::PutFh => self.object = PutFh4Args::decode(r).unwrap().object.to_vec(),
            Op4::GetFh => GetFh4Result { object: &self.object }.encode(w),
            Op4::Lookup => {
                let name = Lookup4Args::decode(r).unwrap().objname.to_vec();
                if self.delays > 0 {
                    self.delays -= 1;
                    return NfsStat4::Delay;
                }
                if !self.names.contains(&name) {
                    return NfsStat4::NoEnt;
                }
                self.object = name;
            }
            Op4::GetAttr => {
                let wanted = GetAttr4Args::decode(r).unwrap().attr_request;
                if wanted == WANTED {
                    let values = values_of(self.names.contains(&self.object));
                    Fattr4 { attrmask: WANTED, attr_vals: &values }.encode(w);
                    return NfsStat4::Ok;
                }
                let attrmask = Bitmap4::of(&[Attribute4::LeaseTime]);
                let lease = if self.lease == 0 { 90 } else { self.lease };
                Fattr4 { attrmask, attr_vals: &lease.to_be_bytes() }.encode(w);
            }
            other => panic!("{other:?} is not expected"),
        }
        NfsStat4::Ok
    }

    fn execute(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> NfsStat4 {
        let change = ChangeInfo4 { atomic: true, before: 1, after: 2 };
        match op {
            Op4::ExchangeId | Op4::CreateSession => self.make(op, r, w),
            Op4::DestroySession => {
                let wanted = DestroySession4Args::decode(r).unwrap();
                if self.session == 0 || wanted.sessionid != session_of(self.session, self.boot) {
                    return NfsStat4::BadSession;
                }
                self.session = 0;
                self.destroyed += 1;
            }
            Op4::DestroyClientId => drop(DestroyClientId4Args::decode(r).unwrap()),
            Op4::ReclaimComplete => {
                ReclaimComplete4Args::decode(r).unwrap();
                self.status_flags = 0;
                self.told.push("complete".to_owned());
            }
            Op4::PutRootFh
            | Op4::SaveFh
            | Op4::RestoreFh
            | Op4::PutFh
            | Op4::GetFh
            | Op4::Lookup
            | Op4::GetAttr => return self.look(op, r, w),
            Op4::Remove => {
                let arguments = Remove4Args::decode(r).unwrap();
                self.removed.push(arguments.target.to_vec());
                change.encode(w);
            }
            Op4::Open => {
                let arguments = Open4Args::decode(r).unwrap();
                let is_reclaim = matches!(arguments.claim, OpenClaim4::Previous(_));
                if is_reclaim && self.gives_no_grace {
                    return NfsStat4::NoGrace;
                }
                let is_refused = self.refuses_both && arguments.share_access & 3 == ACCESS_BOTH;
                if (self.refuses_opens || is_refused) && !is_reclaim {
                    return NfsStat4::Access;
                }
                let what = if is_reclaim { "reclaim" } else { "open" };
                self.told.push(format!("{what} {}", arguments.share_access & 3));
                let told = Open4Result {
                    stateid: self.stateid(),
                    cinfo: change,
                    rflags: 0,
                    attrset: Bitmap4::EMPTY,
                    delegation: OpenDelegation4::None,
                };
                told.encode(w);
            }
            Op4::Close => {
                let arguments = Close4Args::decode(r).unwrap();
                if self.delays > 0 {
                    self.delays -= 1;
                    return NfsStat4::Delay;
                }
                if !self.is_known(&arguments.open_stateid) {
                    return NfsStat4::BadStateId;
                }
                self.told.push("close".to_owned());
                arguments.open_stateid.encode(w);
            }
            Op4::Lock => {
                let arguments = Lock4Args::decode(r).unwrap();
                if arguments.reclaim && self.gives_no_grace {
                    return NfsStat4::NoGrace;
                }
                let by = match arguments.locker {
                    Locker4::Open { open_stateid, .. } => open_stateid,
                    Locker4::Lock { lock_stateid, .. } => lock_stateid,
                };
                if !self.is_known(&by) {
                    return NfsStat4::BadStateId;
                }
                let what = if arguments.reclaim { "relock" } else { "lock" };
                self.told.push(format!("{what} {}", arguments.offset));
                self.stateid().encode(w);
            }
            Op4::LockU => {
                let arguments = LockU4Args::decode(r).unwrap();
                if !self.is_known(&arguments.lock_stateid) {
                    return NfsStat4::BadStateId;
                }
                self.told.push(format!("unlock {}", arguments.offset));
                arguments.lock_stateid.encode(w);
            }
            Op4::FreeStateId => drop(FreeStateId4Args::decode(r).unwrap()),
            other => panic!("{other:?} is not expected"),
        }
        NfsStat4::Ok
    }
}
