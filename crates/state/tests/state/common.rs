//! What the tests of the state share: clients with a session, and requests with usual values.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use steadfast_state::{
    Channel, Client, ClientId, CreateSession, CreatedSession, ExchangeId, ExchangedId, FileKey,
    Limits, Principal, Sequence, Session, Settings, ShareAccess, ShareDeny, State, StateError,
};
use steadfast_vfs::StorageHandle;

pub(crate) const LEASE_MS: u64 = 90_000;
pub(crate) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) const READ: ShareAccess = ShareAccess::READ;
pub(crate) const WRITE: ShareAccess = ShareAccess::WRITE;
pub(crate) const BOTH: ShareAccess = ShareAccess::all();
pub(crate) const DENY_NONE: ShareDeny = ShareDeny::empty();
pub(crate) const DENY_READ: ShareDeny = ShareDeny::READ;
pub(crate) const DENY_WRITE: ShareDeny = ShareDeny::WRITE;

pub(crate) fn state() -> State {
    State::new(Settings::new(7))
}

pub(crate) fn state_with(change: impl FnOnce(&mut Limits)) -> State {
    let mut settings = Settings::new(7);
    change(&mut settings.limits);
    State::new(settings)
}

pub(crate) fn principal(name: &str) -> Principal {
    Principal(name.as_bytes().into())
}

pub(crate) fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

pub(crate) fn channel() -> Channel {
    Channel {
        request_bytes_max: 1 << 20,
        response_bytes_max: 1 << 20,
        response_bytes_cached_max: 2048,
        operations_max: 16,
        requests_max: 8,
    }
}

pub(crate) fn exchange(
    state: &State,
    now_ms: u64,
    owner: &str,
    verifier: u64,
    who: &str,
) -> Result<ExchangedId, StateError> {
    exchange_as(state, now_ms, owner, verifier, who, false)
}

pub(crate) fn exchange_as(
    state: &State,
    now_ms: u64,
    owner: &str,
    verifier: u64,
    who: &str,
    is_update: bool,
) -> Result<ExchangedId, StateError> {
    let request = ExchangeId {
        owner: owner.as_bytes(),
        verifier: verifier.to_be_bytes(),
        principal: &principal(who),
        is_update,
        implementation: b"test",
        address: address(),
    };
    state.exchange_id(now_ms, &request)
}

pub(crate) fn create(
    state: &State,
    now_ms: u64,
    client: ClientId,
    sequence: u32,
    who: &str,
) -> Result<CreatedSession, StateError> {
    create_with(state, now_ms, client, sequence, who, channel())
}

pub(crate) fn create_with(
    state: &State,
    now_ms: u64,
    client: ClientId,
    sequence: u32,
    who: &str,
    fore: Channel,
) -> Result<CreatedSession, StateError> {
    let request = CreateSession {
        client,
        sequence,
        principal: &principal(who),
        fore,
        back: channel(),
        flags: 2,
        connection: 1,
    };
    state.create_session(now_ms, &request)
}

/// A confirmed client, by its first session.
pub(crate) fn session(state: &State, now_ms: u64, owner: &str, verifier: u64) -> Arc<Session> {
    let exchanged = exchange(state, now_ms, owner, verifier, "root").expect("exchange");
    let created =
        create(state, now_ms, exchanged.client, exchanged.sequence, "root").expect("create");
    state.session(&created.session).expect("created")
}

pub(crate) fn client(state: &State, now_ms: u64, owner: &str) -> Arc<Client> {
    Arc::clone(session(state, now_ms, owner, 1).client())
}

pub(crate) fn file(number: u8) -> FileKey {
    FileKey { file_system: 3, object: StorageHandle::new(&[number]).expect("short") }
}

pub(crate) fn sequence(slot: u32, sequence: u32) -> Sequence {
    Sequence {
        slot,
        sequence,
        highest_slot: 0,
        is_kept: false,
        request_bytes: 100,
        operations: 3,
        digest: 0,
    }
}
