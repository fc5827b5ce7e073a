//! Property ring: a client goes on after broken connections and lost state, on a server in memory.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use steadfast_client::nfs4::{ClientSettings, Lost4, Opening4, StateId4, SteadyClient4};
use steadfast_client::{
    ClientError, FileHandle, Identity, Procedure, Reply, ReplyBody, RpcTransport, StableHow,
};
use steadfast_wire::nfs4::{
    Bitmap4, ChangeInfo4, ChannelAttributes4, Close4Args, CompoundHead4, CompoundReplyHead4,
    CreateSession4Args, CreateSession4Result, ExchangeId4Args, ExchangeId4Result, Lock4Args,
    LockType4, LockU4Args, NfsStat4 as Status, Op4, Open4Args, Open4Result, OpenClaim4,
    OpenDelegation4, PutFh4Args, ReclaimComplete4Args, Sequence4Args, Sequence4Result,
    StateProtectResult4, Write4Args, Write4Result,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

/// What the server knows, and what it is to do.
#[derive(Default)]
struct State {
    /// Counts losses of all state.
    instance: u64,
    session: Option<u64>,
    sessions_made: u64,
    /// Of slot 0: the last sequence id, and its reply.
    last: Option<(u32, Vec<u8>)>,
    writes: u64,
    /// Opens and locks that were reclaimed.
    reclaimed: (u64, u64),
    refuses_reclaims: bool,
    /// The connection breaks after this many requests with SEQUENCE, having executed the last.
    breaks_after: Option<u64>,
    opens: BTreeSet<u64>,
    next: u64,
}

#[derive(Clone, Default)]
struct Server(Rc<RefCell<State>>);

struct Wire {
    server: Server,
    is_broken: bool,
}

fn stateid(number: u64) -> StateId4 {
    let mut other = [0; 12];
    other[..8].copy_from_slice(&number.to_be_bytes());
    StateId4 { seqid: 1, other }
}

fn number(stateid: &StateId4) -> u64 {
    u64::from_be_bytes(stateid.other[..8].try_into().unwrap())
}

fn channel() -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 16,
        maxrequests: 1,
        rdma_ird: Vec::new(),
    }
}

impl State {
    fn session_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.session.unwrap_or(u64::MAX).to_be_bytes());
        id
    }

    fn new_stateid(&mut self) -> StateId4 {
        self.next += 1;
        // Of another instance it is another one.
        let number = (self.instance << 32) | self.next;
        self.opens.insert(number);
        stateid(number)
    }

    fn check(&self, stateid: &StateId4) -> Result<(), Status> {
        let is_known = self.opens.contains(&number(stateid));
        if is_known { Ok(()) } else { Err(Status::StaleStateId) }
    }

    fn execute(&mut self, op: Op4, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Result<(), Status> {
        match op {
            Op4::ExchangeId => {
                let _ = ExchangeId4Args::decode(r).unwrap();
                let result = ExchangeId4Result {
                    clientid: self.instance,
                    sequenceid: 1,
                    flags: 0x1_0000,
                    state_protect: StateProtectResult4::None,
                    server_minor_id: 0,
                    server_major_id: b"m",
                    server_scope: b"s",
                    server_impl_id: Vec::new(),
                };
                result.encode(w);
            }
            Op4::CreateSession => {
                let _ = CreateSession4Args::decode(r).unwrap();
                self.sessions_made += 1;
                self.session = Some(self.sessions_made);
                self.last = None;
                let (fore, back) = (channel(), channel());
                let sessionid = self.session_id();
                CreateSession4Result { sessionid, sequence: 1, flags: 0, fore, back }.encode(w);
            }
            Op4::ReclaimComplete => drop(ReclaimComplete4Args::decode(r).unwrap()),
            Op4::PutFh => drop(PutFh4Args::decode(r).unwrap()),
            Op4::GetFh => w.opaque(b"file"),
            Op4::Open => {
                let asked = Open4Args::decode(r).unwrap();
                if matches!(asked.claim, OpenClaim4::Previous(_)) {
                    if self.refuses_reclaims {
                        return Err(Status::NoGrace);
                    }
                    self.reclaimed.0 += 1;
                }
                let result = Open4Result {
                    stateid: self.new_stateid(),
                    cinfo: ChangeInfo4 { atomic: true, before: 1, after: 1 },
                    rflags: 0,
                    attrset: Bitmap4::EMPTY,
                    delegation: OpenDelegation4::NoneSince(0),
                };
                result.encode(w);
            }
            Op4::Lock => {
                let asked = Lock4Args::decode(r).unwrap();
                self.reclaimed.1 += u64::from(asked.reclaim);
                self.new_stateid().encode(w);
            }
            Op4::LockU => {
                let asked = LockU4Args::decode(r).unwrap();
                self.check(&asked.lock_stateid)?;
                asked.lock_stateid.encode(w);
            }
            Op4::Close => {
                let asked = Close4Args::decode(r).unwrap();
                self.check(&asked.open_stateid)?;
                asked.open_stateid.encode(w);
            }
            Op4::Write => {
                let asked = Write4Args::decode(r).unwrap();
                self.check(&asked.stateid)?;
                self.writes += 1;
                let (count, verifier) = (asked.data.len() as u32, [0; 8]);
                Write4Result { count, committed: StableHow::FileSync, verifier }.encode(w);
            }
            _ => return Err(Status::NotSupp),
        }
        Ok(())
    }

    fn sequence(&mut self, asked: &Sequence4Args) -> Result<Option<Vec<u8>>, Status> {
        if self.session.is_none() || asked.sessionid != self.session_id() {
            return Err(Status::BadSession);
        }
        match &self.last {
            Some((last, reply)) if *last == asked.sequenceid => return Ok(Some(reply.clone())),
            last => {
                let next = last.as_ref().map_or(1, |(last, _)| last + 1);
                if asked.sequenceid != next {
                    return Err(Status::SeqMisordered);
                }
            }
        }
        Ok(None)
    }

    fn compound(&mut self, arguments: &[u8]) -> (Vec<u8>, bool) {
        let mut r = Reader::new(arguments);
        let head = CompoundHead4::decode(&mut r).unwrap();
        let (mut results, mut status, mut operations) = (Vec::new(), Status::Ok, 0);
        let mut sequenceid = None;
        while operations < head.operations && status == Status::Ok {
            let op = Op4::decode(&mut r).unwrap();
            let mut body = Vec::new();
            let mut w = Writer::new(&mut body);
            let outcome = if op == Op4::Sequence {
                let asked = Sequence4Args::decode(&mut r).unwrap();
                match self.sequence(&asked) {
                    Ok(Some(reply)) => return (reply, true),
                    Ok(None) => {
                        sequenceid = Some(asked.sequenceid);
                        let Sequence4Args { sessionid, sequenceid, slotid, .. } = asked;
                        let result = Sequence4Result {
                            sessionid,
                            sequenceid,
                            slotid,
                            highest_slotid: 0,
                            target_highest_slotid: 0,
                            status_flags: 0,
                        };
                        result.encode(&mut w);
                        Ok(())
                    }
                    Err(status) => Err(status),
                }
            } else {
                self.execute(op, &mut r, &mut w)
            };
            operations += 1;
            status = outcome.err().unwrap_or(Status::Ok);
            let mut w = Writer::new(&mut results);
            w.u32(op as u32);
            w.u32(status as u32);
            if status == Status::Ok {
                results.extend_from_slice(&body);
            }
        }
        let mut reply = Vec::new();
        CompoundReplyHead4 { status, tag: head.tag, operations }
            .encode(&mut Writer::new(&mut reply));
        reply.extend_from_slice(&results);
        if let Some(sequenceid) = sequenceid {
            self.last = Some((sequenceid, reply.clone()));
        }
        (reply, sequenceid.is_some())
    }
}

impl RpcTransport for Wire {
    fn exchange(
        &mut self,
        _: Procedure,
        _: &Identity,
        arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        if self.is_broken {
            return Err(ClientError::Closed);
        }
        let mut state = self.server.0.borrow_mut();
        let (message, is_counted) = state.compound(arguments);
        if let (Some(left), true) = (state.breaks_after, is_counted) {
            state.breaks_after = left.checked_sub(1);
            if left == 0 {
                self.is_broken = true;
                return Err(ClientError::Closed);
            }
        }
        Ok(Reply { xid: 1, body: ReplyBody::Success { results_at: 0 }, message })
    }
}

fn client(
    server: &Server,
) -> SteadyClient4<Wire, impl FnMut() -> Result<Wire, ClientError> + use<>> {
    let server = server.clone();
    let connect = move || Ok(Wire { server: server.clone(), is_broken: false });
    let settings = ClientSettings::default();
    SteadyClient4::connect(connect, Identity::None, settings, Duration::from_secs(5)).unwrap()
}

fn directory() -> FileHandle {
    FileHandle(b"directory".to_vec())
}

#[test]
fn a_request_whose_connection_breaks_is_executed_once() {
    let server = Server::default();
    let mut client = client(&server);
    let number = client.open(&directory(), &Opening4::existing(b"name")).unwrap();
    for write in 1..=20 {
        // With every other write, having executed it.
        server.0.borrow_mut().breaks_after = (write % 2 == 0).then_some(0);
        let written = client.perform(Some(number), |client, held| {
            let held = held.unwrap();
            client.write(&held.handle, held.stateid, 0, b"data", StableHow::FileSync)
        });
        assert_eq!(written.unwrap().count, 4);
        assert_eq!(server.0.borrow().writes, write);
    }
    assert_eq!((client.recovered().connections, client.recovered().sessions), (10, 0));
    client.close(number).unwrap();
}

#[test]
fn what_the_server_has_lost_is_reclaimed() {
    let server = Server::default();
    let mut client = client(&server);
    let number = client.open(&directory(), &Opening4::existing(b"name")).unwrap();
    client.lock(number, b"owner", LockType4::Write, (0, 10)).unwrap();
    let before = client.held(number).unwrap().clone();
    {
        let mut state = server.0.borrow_mut();
        state.instance += 1;
        state.session = None;
        state.opens.clear();
    }
    client.unlock(number, b"owner").unwrap();
    let held = client.held(number).unwrap();
    assert!(held.stateid != before.stateid && held.locks.is_empty() && !held.is_lost);
    assert_eq!(server.0.borrow().reclaimed, (1, 1));
    let recovered = client.recovered();
    assert_eq!((recovered.sessions, recovered.opens, recovered.locks), (1, 1, 1));
    client.close(number).unwrap();
}

#[test]
fn a_session_that_is_lost_alone_loses_no_state() {
    let server = Server::default();
    let mut client = client(&server);
    let number = client.open(&directory(), &Opening4::existing(b"name")).unwrap();
    server.0.borrow_mut().session = None;
    client.close(number).unwrap();
    assert_eq!(server.0.borrow().reclaimed, (0, 0));
    assert_eq!(client.recovered().sessions, 1);
}

#[test]
fn what_is_not_given_back_is_told() {
    let server = Server::default();
    let mut client = client(&server);
    let number = client.open(&directory(), &Opening4::existing(b"name")).unwrap();
    {
        let mut state = server.0.borrow_mut();
        state.instance += 1;
        (state.session, state.refuses_reclaims) = (None, true);
        state.opens.clear();
    }
    client.open(&directory(), &Opening4::existing(b"other")).unwrap();
    assert!(client.held(number).unwrap().is_lost);
    assert_eq!((client.recovered().lost, client.recovered().opens), (1, 0));
}

#[test]
fn failures_tell_what_is_lost() {
    assert_eq!(Lost4::of(&ClientError::Closed), Some(Lost4::Connection));
    assert_eq!(Lost4::of(&ClientError::NoFreeSlot), Some(Lost4::Session));
}
