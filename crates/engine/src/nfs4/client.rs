//! `EXCHANGE_ID`, `CREATE_SESSION`, `BIND_CONN_TO_SESSION`, `BACKCHANNEL_CTL`, `DESTROY_SESSION`,
//! `DESTROY_CLIENTID`, `RECLAIM_COMPLETE` (RFC 8881 §18.33 to §18.37, §18.50, §18.51).

use steadfast_state::{
    CallbackTarget, Channel, ClientId, CreatedSession, Principal, Session, SessionId,
};
use steadfast_wire::nfs4::{
    BackchannelCtl4Args, BindConnToSession4Args, CallbackSec4, ChannelAttributes4,
    CreateSession4Args, DestroyClientId4Args, DestroySession4Args, ExchangeId4Args, NfsStat4, Op4,
    ReclaimComplete4Args, StateProtect4,
};
use steadfast_xdr::{Encode, Writer};

use super::status::OrStatus;
use crate::callback::credential;
use crate::compound::{Op, Run, Stands};
use crate::identity::WireIdentity;
use crate::reply::ReplyBuffer;

/// Flags of `EXCHANGE_ID` (RFC 8881 §18.35).
const SUPPORTS_REFERRALS: u32 = 0x1;
const SUPPORTS_MIGRATION: u32 = 0x2;
const SUPPORTS_FENCING: u32 = 0x4;
const BINDS_PRINCIPAL: u32 = 0x100;
const USES_NO_PNFS: u32 = 0x1_0000;
const USES_PNFS: u32 = 0x6_0000;
const UPDATES_CONFIRMED: u32 = 0x4000_0000;
const IS_CONFIRMED: u32 = 0x8000_0000;
const FLAGS_OF_CLIENTS: u32 = SUPPORTS_REFERRALS
    | SUPPORTS_MIGRATION
    | BINDS_PRINCIPAL
    | USES_NO_PNFS
    | USES_PNFS
    | UPDATES_CONFIRMED;
/// Those that minor version 2 has beside them (RFC 7862 §14.1).
const FURTHER_FLAGS: u32 = SUPPORTS_FENCING;

/// Flags of `CREATE_SESSION` (§18.36).
const IS_PERSISTENT: u32 = 0x1;
const HAS_BACK_CHANNEL: u32 = 0x2;
const USES_RDMA: u32 = 0x4;

/// Directions of `BIND_CONN_TO_SESSION` (§18.34).
const FORE: u32 = 0x1;
const BACK: u32 = 0x2;
const FORE_OR_BOTH: u32 = 0x3;
const BACK_OR_BOTH: u32 = 0x7;
const BOTH: u32 = 0x3;

/// Room that a request or reply needs beside the data of one READ or WRITE, in bytes.
const OVERHEAD_BYTES: u32 = 4096;
/// Smaller than this, in bytes, no request or reply of use would fit. A callback names a file, and has
/// a credential that the client chose.
const FORE_BYTES_MIN: u32 = 256;
const BACK_BYTES_MIN: u32 = 512;
/// Most operations of a COMPOUND.
const OPERATIONS_MAX: u32 = 64;
/// What the server's own implementation id says.
const IMPLEMENTATION_DOMAIN: &[u8] = b"steadfast";

/// Who calls, as far as state is bound to it.
pub(super) fn principal(run: &Run<'_, '_>) -> Principal {
    match &run.call.identity {
        WireIdentity::Anonymous => Principal([0; 1].into()),
        WireIdentity::Claimed(cred) => {
            let mut bytes = vec![1];
            bytes.extend_from_slice(&cred.uid.to_be_bytes());
            Principal(bytes.into())
        }
    }
}

pub(super) struct ExchangeId;

impl Op for ExchangeId {
    const NUMBER: Op4 = Op4::ExchangeId;
    const NAME: &'static str = "EXCHANGE_ID";
    const STANDS: Stands = Stands::InSessionOrAlone;
    type Arguments<'a> = ExchangeId4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ExchangeId4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let further = if run.minor_version >= 2 { FURTHER_FLAGS } else { 0 };
        if arguments.flags & !(FLAGS_OF_CLIENTS | further) != 0 || arguments.ownerid.is_empty() {
            return Err(NfsStat4::Inval);
        }
        match &arguments.state_protect {
            StateProtect4::None => {}
            // The machine's credential is one of RPCSEC_GSS, which is not served.
            StateProtect4::MachCred(..) => return Err(NfsStat4::Inval),
            StateProtect4::Ssv { .. } => return Err(NfsStat4::EncrAlgUnsupp),
        }
        let implementation = arguments.client_impl_id.first().map_or(&[][..], |id| id.name);
        let request = steadfast_state::ExchangeId {
            owner: arguments.ownerid,
            verifier: arguments.verifier,
            principal: &principal(run),
            is_update: arguments.flags & UPDATES_CONFIRMED != 0,
            implementation,
            address: run.call.peer.address.ip(),
        };
        run.progress.has_made_state = true;
        let exchanged = run.nfs4.state.exchange_id(run.call.now_ms, &request).or_status()?;
        let mut w = Writer::new(&mut reply.bytes);
        w.u64(exchanged.client.0);
        w.u32(exchanged.sequence);
        w.u32(USES_NO_PNFS | if exchanged.is_confirmed { IS_CONFIRMED } else { 0 });
        let no_protection = 0;
        w.u32(no_protection);
        let minor_id = 0;
        w.u64(minor_id);
        w.opaque(&run.nfs4.server_id);
        w.opaque(&run.nfs4.server_id);
        let implementations = 1;
        w.u32(implementations);
        w.opaque(IMPLEMENTATION_DOMAIN);
        w.opaque(concat!("steadfast ", env!("CARGO_PKG_VERSION")).as_bytes());
        let (seconds, nanoseconds) = (0, 0);
        w.i64(seconds);
        w.u32(nanoseconds);
        Ok(())
    }
}

pub(super) struct CreateSession;

impl Op for CreateSession {
    const NUMBER: Op4 = Op4::CreateSession;
    const NAME: &'static str = "CREATE_SESSION";
    const STANDS: Stands = Stands::InSessionOrAlone;
    type Arguments<'a> = CreateSession4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &CreateSession4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        if arguments.flags & !(IS_PERSISTENT | HAS_BACK_CHANNEL | USES_RDMA) != 0 {
            return Err(NfsStat4::Inval);
        }
        let bytes_max = run.call.transfer_bytes_max().saturating_add(OVERHEAD_BYTES);
        let back = channel(&arguments.back, BACK_BYTES_MIN, bytes_max)?;
        let target = callback_target(run, arguments.cb_program, &arguments.sec_parms)
            .filter(|_| Session::takes_callbacks(&back) && run.call.peer.connection() != 0);
        let flags = if target.is_some() { arguments.flags & HAS_BACK_CHANNEL } else { 0 };
        let request = steadfast_state::CreateSession {
            client: ClientId(arguments.clientid),
            sequence: arguments.sequence,
            principal: &principal(run),
            fore: channel(&arguments.fore, FORE_BYTES_MIN, bytes_max)?,
            back,
            flags,
            connection: run.call.peer.connection(),
        };
        run.progress.has_made_state = true;
        run.begin_state();
        let created = run.nfs4.state.create_session(run.call.now_ms, &request).or_status()?;
        if let Some(target) = target {
            bind_new_session(run, &created, target);
        }
        let mut w = Writer::new(&mut reply.bytes);
        w.fixed_opaque(&created.session.0);
        w.u32(created.sequence);
        w.u32(created.flags);
        attributes(&created.fore).encode(&mut w);
        attributes(&created.back).encode(&mut w);
        Ok(())
    }
}

/// Whom a client wants to be called; `None` if it takes no credential that the server has.
fn callback_target(
    run: &Run<'_, '_>,
    program: u32,
    offered: &[CallbackSec4<'_>],
) -> Option<CallbackTarget> {
    let credential = credential(offered)?.into();
    Some(CallbackTarget { minor_version: run.minor_version, program, credential })
}

/// Callbacks of a new session may go out by the connection, if its client wants that. The request may
/// have come again.
fn bind_new_session(run: &Run<'_, '_>, created: &CreatedSession, target: CallbackTarget) {
    let Some(session) = run.nfs4.state.session(&created.session) else { return };
    if session.callback_target().is_none() {
        session.set_callback_target(target);
    }
    if created.flags & HAS_BACK_CHANNEL != 0 {
        bind_back(run, &session);
    }
}

/// Callbacks of a session may go out by the connection; whether they may.
fn bind_back(run: &Run<'_, '_>, session: &Session) -> bool {
    let (peer, state) = (run.call.peer, &run.nfs4.state);
    let is_gone = |id: &SessionId| state.session(id).is_none();
    peer.bind_back(*session.id(), is_gone, || session.bind_back(peer.connection()))
}

/// What is served of a channel that a client asks for.
fn channel(
    asked: &ChannelAttributes4,
    bytes_min: u32,
    bytes_max: u32,
) -> Result<Channel, NfsStat4> {
    let smallest = asked.maxrequestsize.min(asked.maxresponsesize);
    if smallest < bytes_min || asked.maxoperations == 0 || asked.maxrequests == 0 {
        return Err(NfsStat4::TooSmall);
    }
    let response_bytes_max = asked.maxresponsesize.min(bytes_max);
    Ok(Channel {
        request_bytes_max: asked.maxrequestsize.min(bytes_max),
        response_bytes_max,
        response_bytes_cached_max: asked.maxresponsesize_cached.min(response_bytes_max),
        operations_max: asked.maxoperations.min(OPERATIONS_MAX),
        requests_max: asked.maxrequests,
    })
}

fn attributes(channel: &Channel) -> ChannelAttributes4 {
    ChannelAttributes4 {
        headerpadsize: 0,
        maxrequestsize: channel.request_bytes_max,
        maxresponsesize: channel.response_bytes_max,
        maxresponsesize_cached: channel.response_bytes_cached_max,
        maxoperations: channel.operations_max,
        maxrequests: channel.requests_max,
        rdma_ird: Vec::new(),
    }
}

pub(super) struct BindConnToSession;

impl Op for BindConnToSession {
    const NUMBER: Op4 = Op4::BindConnToSession;
    const NAME: &'static str = "BIND_CONN_TO_SESSION";
    const STANDS: Stands = Stands::Alone;
    type Arguments<'a> = BindConnToSession4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &BindConnToSession4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let session = run.nfs4.state.session(&SessionId(arguments.sessionid));
        let session = session.ok_or(NfsStat4::BadSession)?;
        let bound = match arguments.dir {
            FORE => FORE,
            BACK | FORE_OR_BOTH | BACK_OR_BOTH => {
                let is_bound = bind_back(run, &session);
                match arguments.dir {
                    BACK if is_bound => BACK,
                    FORE_OR_BOTH | BACK_OR_BOTH if is_bound => BOTH,
                    FORE_OR_BOTH => FORE,
                    // It wants callbacks, and can have none by this session.
                    _ => return Err(NfsStat4::Inval),
                }
            }
            _ => return Err(NfsStat4::Inval),
        };
        if bound != BACK {
            session.bind(run.call.peer.connection());
        }
        let mut w = Writer::new(&mut reply.bytes);
        w.fixed_opaque(&arguments.sessionid);
        w.u32(bound);
        let is_rdma = false;
        w.bool(is_rdma);
        Ok(())
    }
}

pub(super) struct BackchannelCtl;

impl Op for BackchannelCtl {
    const NUMBER: Op4 = Op4::BackchannelCtl;
    const NAME: &'static str = "BACKCHANNEL_CTL";
    type Arguments<'a> = BackchannelCtl4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &BackchannelCtl4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        // Contexts of RPCSEC_GSS are none that the server knows.
        let target = callback_target(run, arguments.cb_program, &arguments.sec_parms);
        let target = target.ok_or(NfsStat4::NoEnt)?;
        let slot = run.progress.slot.as_ref().ok_or(NfsStat4::OpNotInSession)?;
        // As CREATE_SESSION has it: such a channel takes no callbacks, whatever their program.
        if Session::takes_callbacks(slot.session().back()) {
            slot.session().set_callback_target(target);
        }
        run.progress.has_made_state = true;
        Ok(())
    }
}

pub(super) struct DestroySession;

impl Op for DestroySession {
    const NUMBER: Op4 = Op4::DestroySession;
    const NAME: &'static str = "DESTROY_SESSION";
    const STANDS: Stands = Stands::InSessionOrAlone;
    type Arguments<'a> = DestroySession4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &DestroySession4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let id = SessionId(arguments.sessionid);
        if let Some(slot) = &run.progress.slot {
            let own = slot.session();
            // Its reply could not be kept.
            if *own.id() == id && !run.is_last() {
                return Err(NfsStat4::NotOnlyOp);
            }
            // A session belongs to its client (RFC 8881 §18.37.3).
            let named = run.nfs4.state.session(&id);
            if named.is_some_and(|named| named.client().id() != own.client().id()) {
                return Err(NfsStat4::ConnNotBoundToSession);
            }
        }
        run.progress.has_made_state = true;
        run.begin_state();
        run.nfs4.state.destroy_session(&id).or_status()
    }
}

pub(super) struct DestroyClientId;

impl Op for DestroyClientId {
    const NUMBER: Op4 = Op4::DestroyClientId;
    const NAME: &'static str = "DESTROY_CLIENTID";
    const STANDS: Stands = Stands::InSessionOrAlone;
    type Arguments<'a> = DestroyClientId4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &DestroyClientId4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let client = ClientId(arguments.clientid);
        run.progress.has_made_state = true;
        run.begin_state();
        run.nfs4.state.destroy_client(run.call.now_ms, client).or_status()
    }
}

pub(super) struct ReclaimComplete;

impl Op for ReclaimComplete {
    const NUMBER: Op4 = Op4::ReclaimComplete;
    const NAME: &'static str = "RECLAIM_COMPLETE";
    type Arguments<'a> = ReclaimComplete4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &ReclaimComplete4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        // Nothing moves from one server to another, where one file system alone is reclaimed.
        if arguments.one_fs {
            return run.current().map(drop);
        }
        run.progress.has_made_state = true;
        let client = std::sync::Arc::clone(run.client()?);
        run.begin_state();
        run.nfs4.state.complete_reclaim(&client).or_status()
    }
}
