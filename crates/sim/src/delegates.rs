//! A client of NFSv4.1 that is delegated files which it shares with other clients, and returns them when it is asked;
//! or, now and then, does not. Beside that it changes the same files by NFSv3, as one who is nobody to
//! the server's state.
//!
//! What it has it tells [`crate::delegated::Delegated`]. Of each file that it was delegated it knows the content, which
//! may not change but by itself.

mod judging;

use steadfast_wire::nfs3::{
    DirOpArgs3, Link3Args, NfsFh3, Read3Args, Remove3Args, StableHow, Write3Args,
};
use steadfast_wire::nfs4::{
    Attribute4, BindConnToSession4Args, Bitmap4, CallbackSec4, Close4Args, CreateSession4Args,
    DelegReturn4Args, ExchangeId4Args, Fattr4, FreeStateId4Args, NfsStat4, Op4, Open4Args,
    OpenClaim4, OpenHow4, Read4Args, ReclaimComplete4Args, Sequence4Args, SetAttr4Args, StateId4,
    StateProtect4, Write4Args,
};
use steadfast_wire::rpc::AuthSys;

use crate::Checked;
use crate::callbacks::{BackChannel, HAS_BACK_CHANNEL, PROGRAM, Told};
use crate::client::{Client, Context, Then};
use crate::compound::{Nothing, Ops, channel};
use crate::delegated::What;
use crate::message::Request;

/// Its workers: the one that speaks NFSv4.1, and the one that speaks NFSv3.
const STATEFUL: usize = 0;
const STATELESS: usize = 1;
/// What the worker of NFSv3 is called, where it is another.
const STRANGERS_FROM: u64 = 1 << 32;
/// `OPEN4_SHARE_ACCESS_WANT_ANY_DELEG`, and what is wanted of an open by a delegation.
const WANT_ANY: u32 = 0x300;
const WANT_NONE: u32 = 0x400;
/// Bytes of a file's content.
const CONTENT_BYTES: u32 = 8;
/// It is attentive that says something as often as that, in ms.
const ATTENTIVE_MS: u64 = 20_000;

/// What a client is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Exchange,
    Create,
    Reclaim,
    Ready,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Exchange,
    Create,
    Bind,
    Complete,
    /// Opens a file again of which the client had this before the loss; and asks with it for a delegation that it had,
    /// to read or to write.
    Reclaim(u64, What, Option<bool>),
    Open {
        file: u64,
        writes: bool,
        /// By its delegation, which it returns then.
        by_delegation: bool,
    },
    Close(u64),
    Read(u64),
    Write(u64, u64),
    SetMode(u64, u32),
    Return(u64),
    Free(u64),
    Look,
    /// By NFSv3.
    Stranger(Deed, u64, u64),
}

/// What a stranger does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Write,
    Read,
    GetAttributes,
    Link,
    Unlink,
}

#[derive(Clone, Copy, Debug)]
struct Delegation {
    stateid: StateId4,
    writes: bool,
    /// When the call was sent that it was granted by.
    sent_ms: u64,
    /// What the file has.
    content: Option<u64>,
    /// The client was asked for it.
    is_recalled: bool,
    /// When it took that.
    recalled_ms: u64,
    /// It will not return it.
    is_kept: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct File {
    /// The open, and whether it is to write.
    opened: Option<(StateId4, bool)>,
    delegation: Option<Delegation>,
    /// It may have been revoked.
    is_doubted: bool,
    /// One that was revoked.
    revoked: Option<StateId4>,
}

#[derive(Default)]
struct Worker {
    call: Option<Call>,
    next: Option<Call>,
    /// Since when it is told to try its call later.
    refused_ms: Option<u64>,
}

/// What it had before the server lost that.
#[derive(Clone, Copy)]
struct Lost {
    file: u64,
    what: What,
    /// What the file had, if it was delegated.
    content: Option<u64>,
    /// Until when the server must give it back.
    until_ms: u64,
    /// Others had ended it before the loss.
    was_ended: bool,
}

/// The client.
pub(crate) struct DelegateClient {
    number: u64,
    incarnation: u64,
    phase: Phase,
    id: Option<u64>,
    new_id: (u64, u32),
    session: [u8; 16],
    /// Of the last request that the server has executed.
    sequence: u32,
    back: BackChannel,
    workers: [Worker; 2],
    directory: Vec<u8>,
    handles: Vec<Vec<u8>>,
    files: Vec<File>,
    to_reclaim: Vec<Lost>,
    /// The server knows that it has reclaimed all that it could.
    is_whole: bool,
    /// Until when the server must give back what it had when it was so last.
    until_ms: u64,
    silent_until_ms: u64,
    /// When its session was made.
    made_ms: u64,
    /// The server has told that it cannot call.
    is_path_down: bool,
    /// The last power cut that it knows of.
    lost_ms: u64,
    /// It has heard the server since then, and done what that asks for.
    attentive_ms: u64,
    heard_ms: u64,
    /// Counts what it writes.
    written: u64,
}

impl DelegateClient {
    /// A client that uses these files, and gives them further names in `directory`.
    pub(crate) fn new(number: u64, directory: Vec<u8>, handles: Vec<Vec<u8>>) -> Self {
        Self {
            number,
            incarnation: 1,
            phase: Phase::Exchange,
            id: None,
            new_id: (0, 0),
            session: [0; 16],
            sequence: 0,
            back: BackChannel::default(),
            workers: Default::default(),
            directory,
            files: vec![File::default(); handles.len()],
            handles,
            to_reclaim: Vec::new(),
            is_whole: false,
            until_ms: 0,
            silent_until_ms: 0,
            made_ms: 0,
            is_path_down: false,
            lost_ms: 0,
            attentive_ms: 0,
            heard_ms: 0,
            written: 0,
        }
    }

    fn handle(&self, file: u64) -> &[u8] {
        self.handles.get(file as usize).map_or(&[], Vec::as_slice)
    }

    fn file(&self, file: u64) -> File {
        self.files.get(file as usize).copied().unwrap_or_default()
    }

    fn file_mut(&mut self, file: u64) -> Checked<&mut File> {
        self.files.get_mut(file as usize).ok_or_else(|| "no such file".into())
    }

    fn worker(&mut self, index: usize) -> Checked<&mut Worker> {
        self.workers.get_mut(index).ok_or_else(|| "no such worker".into())
    }

    /// What is written is another content each time, of all clients.
    fn next_content(&mut self) -> u64 {
        self.written += 1;
        (self.number + 1) << 32 | self.written
    }

    /// What has to be done at once.
    fn due(&self, random: &mut crate::random::Random) -> Option<Call> {
        for (file, of) in (0..).zip(&self.files) {
            if of.revoked.is_some() {
                return Some(Call::Free(file));
            }
            let Some(delegation) = of.delegation else { continue };
            if of.is_doubted || delegation.is_recalled && !delegation.is_kept && random.chance(500)
            {
                return Some(Call::Return(file));
            }
        }
        None
    }

    /// What was opened without the server it has to know before its delegation is returned.
    fn before_return(&self, call: Call, cx: &mut Context<'_>) -> Call {
        match call {
            Call::Return(file)
                if !self.file(file).is_doubted
                    && self.file(file).opened.is_none()
                    && cx.random.chance(300) =>
            {
                let writes = self.file(file).delegation.is_some_and(|held| held.writes);
                Call::Open { file, writes, by_delegation: true }
            }
            call => call,
        }
    }

    fn choose(&mut self, cx: &mut Context<'_>) -> Call {
        let random = &mut *cx.random;
        let file = random.below(self.files.len() as u64);
        let of = self.file(file);
        let may_write = of.opened.is_some_and(|(_, writes)| writes)
            || of.delegation.is_some_and(|held| held.writes);
        match random.below(100) {
            0..35 if of.delegation.is_some() || of.opened.is_some() => Call::Read(file),
            0..15 if may_write => Call::Write(file, self.next_content()),
            15..45 if may_write && random.chance(300) => Call::Write(file, self.next_content()),
            45..50 => Call::SetMode(file, 0o600 | random.below(8) as u32),
            50..65 if of.opened.is_some() => Call::Close(file),
            65..70 if of.delegation.is_some() => Call::Return(file),
            70..90 => {
                let (writes, by_delegation) = (random.chance(400), false);
                Call::Open { file, writes, by_delegation }
            }
            _ => Call::Look,
        }
    }

    fn choose_as_stranger(&mut self, cx: &mut Context<'_>) -> Call {
        let file = cx.random.below(self.files.len() as u64);
        let deed = match cx.random.below(10) {
            0..2 => Deed::Write,
            2..5 => Deed::Read,
            5..8 => Deed::GetAttributes,
            8 => Deed::Link,
            _ => Deed::Unlink,
        };
        Call::Stranger(deed, file, self.next_content())
    }

    fn next_of_phase(&self) -> Call {
        match (self.phase, self.to_reclaim.first()) {
            (Phase::Exchange, _) => Call::Exchange,
            (Phase::Create, _) => Call::Create,
            (Phase::Reclaim, Some(lost)) => Call::Reclaim(lost.file, lost.what, self.joined()),
            (Phase::Reclaim, None) => Call::Complete,
            (Phase::Ready, _) => Call::Look,
        }
    }

    /// The delegation that the client reclaims by the same OPEN as what it reclaims next: half of them do as Linux does,
    /// others ask for each by itself.
    fn joined(&self) -> Option<bool> {
        let [open, beside, ..] = self.to_reclaim[..] else { return None };
        match (open.what, beside.what) {
            (What::Open(_), What::Delegation(writes))
                if open.file == beside.file && (self.number + open.file).is_multiple_of(2) =>
            {
                Some(writes)
            }
            _ => None,
        }
    }

    /// By which stateid a file is read or written.
    fn access(&self, file: u64, writes: bool) -> Checked<StateId4> {
        let of = self.file(file);
        let delegated = of.delegation.filter(|held| held.writes || !writes);
        let opened = of.opened.filter(|(_, to_write)| *to_write || !writes);
        let stateid = delegated.map(|held| held.stateid).or(opened.map(|(stateid, _)| stateid));
        stateid.ok_or_else(|| "neither open nor delegated".into())
    }

    fn delegation(&self, file: u64) -> Checked<StateId4> {
        let delegation = self.file(file).delegation;
        delegation.map(|held| held.stateid).ok_or_else(|| "not delegated".into())
    }

    fn request(&self, call: Call) -> Checked<Request> {
        let what = format!("{call:?}");
        match call {
            Call::Stranger(deed, file, content) => return Ok(self.of_3(deed, file, content, what)),
            Call::Exchange => {
                let name = format!("delegate {}", self.number);
                let arguments = ExchangeId4Args {
                    verifier: self.incarnation.to_be_bytes(),
                    ownerid: name.as_bytes(),
                    flags: 0,
                    state_protect: StateProtect4::None,
                    client_impl_id: Vec::new(),
                };
                return Ok(Ops::default().op(Op4::ExchangeId, &arguments).request(what));
            }
            Call::Create => {
                let (clientid, sequence) = self.new_id;
                let arguments = CreateSession4Args {
                    clientid,
                    sequence,
                    flags: HAS_BACK_CHANNEL,
                    fore: channel(),
                    back: channel(),
                    cb_program: PROGRAM,
                    sec_parms: vec![CallbackSec4::Sys(AuthSys::new(b"server", 0, 0, &[]))],
                };
                return Ok(Ops::default().op(Op4::CreateSession, &arguments).request(what));
            }
            Call::Bind => {
                let (sessionid, dir, use_conn_in_rdma_mode) = (self.session, 3, false);
                let arguments = BindConnToSession4Args { sessionid, dir, use_conn_in_rdma_mode };
                return Ok(Ops::default().op(Op4::BindConnToSession, &arguments).request(what));
            }
            _ => {}
        }
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: self.sequence + 1,
            slotid: 0,
            highest_slotid: 0,
            cachethis: true,
        };
        let ops = Ops::default().op(Op4::Sequence, &sequence);
        let at = |file| ops_at(self.handle(file));
        let ops = match call {
            Call::Complete => ops.op(Op4::ReclaimComplete, &ReclaimComplete4Args { one_fs: false }),
            Call::Reclaim(file, what, joined) => {
                let kind = |writes| 1 + u32::from(writes);
                let (writes, kind) = match what {
                    What::Delegation(writes) => (writes, kind(writes)),
                    What::Open(writes) => (writes, joined.map_or(0, kind)),
                    _ => (false, 0),
                };
                at(file)(ops).op(Op4::Open, &open(writes, 0, OpenClaim4::Previous(kind)))
            }
            Call::Open { file, writes, by_delegation } => {
                let arguments = if by_delegation {
                    open(writes, WANT_NONE, OpenClaim4::DelegCurFh(self.delegation(file)?))
                } else {
                    open(writes, WANT_ANY, OpenClaim4::Fh)
                };
                at(file)(ops).op(Op4::Open, &arguments)
            }
            Call::Close(file) => {
                let (open_stateid, _) = self.file(file).opened.ok_or("nothing is open")?;
                at(file)(ops).op(Op4::Close, &Close4Args { seqid: 0, open_stateid })
            }
            Call::Read(file) => {
                let (stateid, offset) = (self.access(file, false)?, 0);
                let count = CONTENT_BYTES;
                at(file)(ops).op(Op4::Read, &Read4Args { stateid, offset, count })
            }
            Call::Write(file, content) => {
                let (stateid, offset, stable) = (self.access(file, true)?, 0, StableHow::FileSync);
                let data = &content.to_be_bytes();
                at(file)(ops).op(Op4::Write, &Write4Args { stateid, offset, stable, data })
            }
            Call::SetMode(file, mode) => {
                let attrmask = Bitmap4::of(&[Attribute4::Mode]);
                let attr_vals = &mode.to_be_bytes();
                let obj_attributes = Fattr4 { attrmask, attr_vals };
                let stateid = StateId4 { seqid: 0, other: [0; 12] };
                at(file)(ops).op(Op4::SetAttr, &SetAttr4Args { stateid, obj_attributes })
            }
            Call::Return(file) => {
                let stateid = self.delegation(file)?;
                at(file)(ops).op(Op4::DelegReturn, &DelegReturn4Args { stateid })
            }
            Call::Free(file) => {
                let stateid = self.file(file).revoked.ok_or("nothing is revoked")?;
                ops.op(Op4::FreeStateId, &FreeStateId4Args { stateid })
            }
            _ => ops.put(&self.directory).op(Op4::GetFh, &Nothing),
        };
        Ok(ops.request(what))
    }

    fn of_3(&self, deed: Deed, file: u64, content: u64, what: String) -> Request {
        let name = format!("l{}", self.number).into_bytes();
        let link = DirOpArgs3 { dir: NfsFh3(&self.directory), name: &name };
        let handle = NfsFh3(self.handle(file));
        match deed {
            Deed::Write => {
                let (count, stable, data) =
                    (CONTENT_BYTES, StableHow::FileSync, &content.to_be_bytes());
                let arguments = Write3Args { file: handle, offset: 0, count, stable, data };
                Request::of_3(7, &arguments, what)
            }
            Deed::Read => {
                let arguments = Read3Args { file: handle, offset: 0, count: CONTENT_BYTES };
                Request::of_3(6, &arguments, what)
            }
            Deed::GetAttributes => Request::of_3(1, &handle, what),
            Deed::Link => Request::of_3(15, &Link3Args { file: handle, link }, what),
            Deed::Unlink => Request::of_3(12, &Remove3Args { object: link }, what),
        }
    }
}

/// Puts a file's handle before what comes.
fn ops_at(handle: &[u8]) -> impl FnOnce(Ops) -> Ops {
    move |ops| ops.put(handle)
}

fn open(writes: bool, wanted: u32, claim: OpenClaim4<'_>) -> Open4Args<'_> {
    Open4Args {
        seqid: 0,
        share_access: if writes { 3 } else { 1 } | wanted,
        share_deny: 0,
        clientid: 0,
        owner: b"o",
        openhow: OpenHow4::NoCreate,
        claim,
    }
}

impl Client for DelegateClient {
    fn absent_max_ms(&self) -> u64 {
        250_000
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn think(&mut self, index: usize, cx: &mut Context<'_>) -> Checked<Option<Request>> {
        let next = self.worker(index)?.next.take();
        let call = match next {
            Some(call) if index == STATELESS => call,
            _ if index == STATELESS => {
                // The reply to the last one may not have been waited for.
                self.worker(index)?.refused_ms = None;
                self.choose_as_stranger(cx)
            }
            next => {
                if cx.now_ms < self.silent_until_ms {
                    self.worker(index)?.next = next;
                    return Ok(None);
                }
                if self.phase != Phase::Ready {
                    self.next_of_phase()
                } else if cx.random.chance(2) {
                    self.silent_until_ms = cx.now_ms + cx.random.between(60_000, 200_000);
                    self.worker(index)?.next = next;
                    return Ok(None);
                } else if std::mem::take(&mut self.is_path_down) {
                    self.worker(index)?.next = next;
                    Call::Bind
                } else if let Some(call) = self.due(cx.random) {
                    // Whoever waits for that may have what the next call waits for.
                    self.worker(index)?.next = next;
                    self.before_return(call, cx)
                } else {
                    // What it was for may be returned.
                    let next = next.filter(|call| self.request(*call).is_ok());
                    next.unwrap_or_else(|| self.choose(cx))
                }
            }
        };
        // From here on it does not count on it.
        match call {
            Call::Return(file) => cx.delegated.gives_up(self.number, file, true),
            Call::Close(file) => cx.delegated.gives_up(self.number, file, false),
            _ => {}
        }
        let request = self.request(call)?;
        let changes = match call {
            Call::Stranger(Deed::Write | Deed::Link, file, _) | Call::SetMode(file, _) => {
                Some(file)
            }
            Call::Write(file, _) | Call::Open { file, writes: true, .. } => Some(file),
            _ => None,
        };
        // The other file that has the name is changed, too.
        let unlinks = matches!(call, Call::Stranger(Deed::Unlink, ..));
        cx.delegated.asks((self.number, index), changes, unlinks, cx.now_ms);
        self.worker(index)?.call = Some(call);
        Ok(Some(request))
    }

    fn reply(&mut self, index: usize, results: &[u8], cx: &mut Context<'_>) -> Checked<Then> {
        let call = self.worker(index)?.call.take().ok_or("a reply to no call")?;
        cx.delegated.is_answered((self.number, index), cx.now_ms);
        self.take_reply(call, results, cx)
    }

    fn called(&mut self, message: &[u8], cx: &mut Context<'_>) -> Checked<Option<Vec<u8>>> {
        if cx.now_ms < self.silent_until_ms || cx.random.chance(50) {
            // It was lost on its way, or in the client.
            self.attentive_ms = cx.now_ms;
            return Ok(None);
        }
        let Self { back, files, attentive_ms, .. } = self;
        let reply = back.called(message, |told| {
            let Told::Recall(stateid) = told else { return NfsStat4::Ok };
            let its = |file: &&mut File| file.delegation.is_some_and(|of| of.stateid == *stateid);
            let Some(delegation) = files.iter_mut().find(its).and_then(|of| of.delegation.as_mut())
            else {
                // It is returned, or the reply that grants it is under way.
                return NfsStat4::BadStateId;
            };
            if cx.random.chance(50) {
                return NfsStat4::Delay;
            }
            delegation.is_kept = delegation.is_kept || cx.random.chance(100);
            if delegation.is_kept {
                *attentive_ms = cx.now_ms;
            }
            cx.delegated.recalled += u64::from(!delegation.is_recalled);
            if !delegation.is_recalled {
                (delegation.is_recalled, delegation.recalled_ms) = (true, cx.now_ms);
            }
            NfsStat4::Ok
        })?;
        Ok(Some(reply))
    }
}
