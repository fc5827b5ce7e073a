//! What the server says of its own accord: calls to programs that run at its clients.
//!
//! The engine does no I/O. It gives each call to an [`Outbound`], which sends it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_state::{FileKey, GrantAnswer, Host, LockKind, LockRange, NlmOwner};
use steadfast_wire::nlm::{NlmStat, v4};
use steadfast_xdr::{Decode, Reader, XdrError};

use crate::Engine;
use crate::peer::Transport;

/// Sends calls to clients, and remembers which of them have locks.
pub trait Outbound: Send + Sync {
    /// Sends a call. Never waits: it only takes it.
    fn send(&self, call: OutboundCall);

    /// Has [`crate::Engine::send_effects`] called soon, on a thread that may wait. Never waits itself. Who does nothing
    /// leaves it to the next call or tick.
    fn send_effects(&self) {}

    /// Records that a host has locks, so that a start of the server after this one tells it. On
    /// the disk when this returns, for which it may wait. Whether that could be done.
    fn record(&self, name: &[u8], address: IpAddr) -> bool;

    /// What this host calls itself.
    fn own_name(&self) -> &str;

    /// The state number of this host's NSM: odd while it is up.
    fn state_number(&self) -> u32;
}

/// A call to a program at a client.
#[derive(Clone, Debug)]
pub struct OutboundCall {
    /// The client.
    pub to: IpAddr,
    /// Our address that the client knows: it compares who calls.
    pub from: IpAddr,
    /// How.
    pub transport: Transport,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Its arguments.
    pub arguments: Vec<u8>,
    /// If it tells of a grant: it is repeated until it is answered, as long as
    /// [`Engine::begin_call_about_grant`] says so, which is asked before each sending. Others are sent once.
    pub grant: Option<Grant>,
}

/// A lock that a host has, and has to be told of.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(crate) host: Host,
    pub(crate) file: FileKey,
    pub(crate) owner: NlmOwner,
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
}

impl Engine {
    /// Has somebody send calls to clients from now on, once for all. Before that, who waits for a
    /// lock finds that it has it when it asks again.
    pub fn set_outbound(&self, outbound: Arc<dyn Outbound>) {
        // The second one is not asked for.
        self.shared.local_guards.set_outbound(&outbound);
        let _ = self.shared.outbound.set(outbound);
    }

    /// The server has lost what it knew of hosts with locks: from now on until `length_ms` have
    /// passed by the clock that [`Engine::call`] gets, they may take again what they had, and
    /// nobody else gets a lock. It is one grace period with that of clients of NFSv4
    /// ([`Engine::keep_records`]).
    pub fn begin_grace(&self, length_ms: u64) {
        self.shared.state.begin_grace(self.now_ms.load(Ordering::Relaxed), length_ms);
    }

    /// Whether only what was held before may be opened and locked.
    pub fn is_in_grace(&self) -> bool {
        self.shared.state.is_in_grace(self.now_ms.load(Ordering::Relaxed))
    }

    /// Names and addresses of the hosts that have locks or wait for some.
    pub fn hosts_with_locks(&self) -> Vec<(Vec<u8>, IpAddr)> {
        let hosts = self.shared.state.hosts_with_locks();
        hosts.iter().map(|host| (host.name().to_vec(), host.address())).collect()
    }

    /// Names and addresses of the hosts that have to stay recorded ([`Outbound::record`]). Others are
    /// recorded again before they get something, if that comes after this.
    pub fn hosts_in_use(&self) -> Vec<(Vec<u8>, IpAddr)> {
        let hosts = self.shared.state.hosts_in_use();
        hosts.iter().map(|host| (host.name().to_vec(), host.address())).collect()
    }

    /// Whether the host still has to be told of a grant: it has the lock, and has not answered.
    pub fn is_grant_unanswered(&self, grant: &Grant) -> bool {
        let Grant { host, file, owner, range, kind } = grant;
        self.shared.state.is_grant_unanswered(host, file, owner, *range, *kind)
    }

    /// Notes that a call about a grant is about to be sent, if it has to be as [`Engine::is_grant_unanswered`] says; whether
    /// it has. To be asked before each sending, also of the same call.
    pub fn begin_call_about_grant(&self, grant: &Grant) -> bool {
        let Grant { host, file, owner, range, kind } = grant;
        self.shared.state.begin_call_about_grant(host, file, owner, *range, *kind)
    }

    /// The host has answered with this result. If it does not want the lock, it loses it, unless it may have taken it by an
    /// earlier answer. A refusal of what [`Engine::begin_call_about_grant`] was not asked about changes nothing.
    ///
    /// # Errors
    /// When the result cannot be read: then it was no answer.
    pub fn answer_grant(&self, grant: &Grant, result: &[u8]) -> Result<(), XdrError> {
        let Grant { host, file, owner, range, kind } = grant;
        let answer = match v4::Res::decode(&mut Reader::new(result))?.stat {
            NlmStat::Granted => GrantAnswer::Wanted,
            _ => GrantAnswer::Refused,
        };
        let state = &self.shared.state;
        // It fails for ranges that no lock can have.
        let _ = state.answer_grant(host, file, owner, *range, *kind, answer);
        self.shared.send_effects(self.now_ms.load(Ordering::Relaxed));
        self.shared.keep_state();
        Ok(())
    }
}
