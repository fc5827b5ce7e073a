//! The state as a whole. The modules below have the operations on it, each with its arguments and results.

mod attempt;
mod delegations;
mod grace;
mod granted;
mod holdings;
mod hosts;
mod local;
mod locking;
mod nlm;
mod opening;
mod restore;
mod strangers;
mod v40;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::delegations::DelegationTable;
use self::grace::Grace;
use self::hosts::Hosts;
use self::strangers::StruckDenies;
use crate::client::Kind;
use crate::effects::Effects;
use crate::files::Files;
use crate::image::Journal;
use crate::registry::{Expired, Record, Registry};
use crate::session_table::SessionTable;
use crate::{
    Client, ClientId, ClientReport, CreateSession, CreatedSession, ExchangeId, ExchangedId,
    Session, SessionId, Settings, StateError,
};

pub use self::delegations::{
    Change, Delegate, DelegationCounts, HolderAnswered, Look, NotDelegated, Telling,
};
pub use self::granted::{Granted, Repeats};
pub use self::holdings::{Held, Holding};
pub use self::locking::{Conflict, Lock, LockBy, LockError, LockReport};
pub use self::nlm::{NlmBefore, NlmError, NlmHolder, NlmLock, NlmTaken};
pub use self::opening::Open;
pub use self::restore::Together;
pub use self::v40::{OwnerAnswered, OwnerBegun, OwnerInUse};

/// Sessions of all clients, whatever the limits say.
const SESSIONS_MAX: u32 = 1 << 20;
/// A client that is silent for so long after its lease loses its state, even if nobody needs it.
const COURTESY_MS: u64 = 24 * 60 * 60 * 1000;

/// All that NFSv4 clients have made.
pub struct State {
    pub(crate) settings: Settings,
    /// The latest time that a method was given.
    pub(crate) clock_ms: Arc<AtomicU64>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) sessions: SessionTable,
    pub(crate) files: Files,
    pub(crate) delegations: DelegationTable,
    pub(crate) struck_denies: Mutex<StruckDenies>,
    /// Opens of all clients.
    pub(crate) opens: AtomicU32,
    /// Locked ranges and lock stateids of all clients.
    pub(crate) locks: Arc<AtomicUsize>,
    pub(crate) hosts: Hosts,
    pub(crate) grace: Grace,
    /// Serial number of the next open, lock stateid or delegation.
    pub(crate) serial: AtomicU64,
    /// Who has nothing.
    pub(crate) nobody: Arc<Client>,
    /// When owners of minor version 0 were looked through last.
    pub(crate) owners_swept_ms: AtomicU64,
}

impl State {
    /// A state in which nobody has anything.
    pub fn new(settings: Settings) -> Self {
        let limits = &settings.limits;
        let clock_ms = Arc::new(AtomicU64::new(0));
        let journal = Arc::new(Journal::default());
        let registry = Registry::new(&settings, Arc::clone(&clock_ms), Arc::clone(&journal));
        // No record has an index as high as that.
        let nobody = ClientId::new(settings.instance, 0, u16::MAX);
        let (clock, events) = (Arc::clone(&clock_ms), Arc::clone(&journal));
        let nobody = Client::new(nobody, Kind::Nfs4, 0, clock, events);
        let nobody = Arc::new(nobody);
        // More than clients can have: sessions that are ended leave the table a little later.
        let records_max = u32::try_from(registry.records_max()).unwrap_or(u32::MAX);
        let sessions_max = records_max.saturating_mul(limits.sessions_a_client_max);
        let sessions_max = sessions_max.min(SESSIONS_MAX);
        let locks = Arc::new(AtomicUsize::new(0));
        Self {
            registry: Mutex::new(registry),
            journal,
            clock_ms,
            sessions: SessionTable::new(settings.instance, sessions_max),
            files: Files::new(Effects::new(Arc::clone(&locks))),
            delegations: DelegationTable::new(settings.delegations),
            struck_denies: Mutex::default(),
            opens: AtomicU32::new(0),
            locks,
            hosts: Hosts::default(),
            grace: Grace::default(),
            serial: AtomicU64::new(0),
            nobody,
            owners_swept_ms: AtomicU64::new(0),
            settings,
        }
    }

    /// What [`State::new`] was given.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// `EXCHANGE_ID` (RFC 8881 §18.35).
    ///
    /// # Errors
    /// [`StateError::ClientInUse`], [`StateError::NoEntry`], [`StateError::NotSame`],
    /// [`StateError::NotPermitted`] as §18.35.4 has them; [`StateError::Invalid`] for an owner of
    /// more than 1,024 bytes. There is always room: the oldest unconfirmed record makes it.
    pub fn exchange_id(
        &self,
        now_ms: u64,
        request: &ExchangeId<'_>,
    ) -> Result<ExchangedId, StateError> {
        self.advance(now_ms);
        let mut left = Vec::new();
        let exchanged = self.registry.lock().exchange(now_ms, &self.settings, request, &mut left);
        self.end_all(left);
        exchanged
    }

    /// `CREATE_SESSION` (RFC 8881 §18.36). It confirms the client. Another client of the same
    /// owner loses its state before this returns.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`], [`StateError::SequenceMisordered`],
    /// [`StateError::ClientInUse`], [`StateError::TooSmall`] for a channel without slots,
    /// [`StateError::TryLater`] if a limit is reached and no courteous client can make room.
    pub fn create_session(
        &self,
        now_ms: u64,
        request: &CreateSession<'_>,
    ) -> Result<CreatedSession, StateError> {
        self.advance(now_ms);
        let mut left = Vec::new();
        let make = |client, fore, back| {
            self.sessions.add(|id| Session::new(id, client, (fore, back), request.connection))
        };
        let created =
            self.registry.lock().create_session(now_ms, &self.settings, request, &mut left, make);
        self.end_all(left);
        created
    }

    /// `DESTROY_SESSION` (RFC 8881 §18.37). Requests that are under way in it end as they would.
    ///
    /// # Errors
    /// [`StateError::BadSession`].
    pub fn destroy_session(&self, session: &SessionId) -> Result<(), StateError> {
        let session = self.sessions.find(session).ok_or(StateError::BadSession)?;
        self.registry.lock().remove_session(&session)?;
        self.end_session(&session);
        Ok(())
    }

    /// `DESTROY_CLIENTID` (RFC 8881 §18.50).
    ///
    /// # Errors
    /// [`StateError::StaleClientId`], [`StateError::ClientIdBusy`].
    pub fn destroy_client(&self, now_ms: u64, client: ClientId) -> Result<(), StateError> {
        self.advance(now_ms);
        let left = self.registry.lock().destroy(client)?;
        self.end_all(left);
        Ok(())
    }

    /// The session with this id. It takes no lock, and writes nothing that clients share.
    pub fn session(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.sessions.find(id)
    }

    /// The sessions of a client.
    pub fn sessions_of(&self, client: ClientId) -> Vec<Arc<Session>> {
        let registry = self.registry.lock();
        registry.find(client).map_or_else(Vec::new, |record| record.sessions.clone())
    }

    /// Nothing goes out by a connection any more for these sessions: it is closed.
    pub fn unbind_back(&self, sessions: &[SessionId], connection: u64) {
        for session in sessions.iter().filter_map(|session| self.session(session)) {
            session.unbind_back(connection);
        }
    }

    /// To be called about once a second. Unconfirmed records go after a lease, courteous clients
    /// after 24 h.
    pub fn tick(&self, now_ms: u64) {
        self.advance(now_ms);
        let left = self.registry.lock().sweep(now_ms, &self.settings, COURTESY_MS);
        self.end_all(left);
        self.forget_owners(now_ms);
        self.judge_waiting(now_ms);
        self.judge_recalls(now_ms);
        self.offer_effects();
        // Its end is noted.
        self.is_in_grace(now_ms);
    }

    /// All clients, for listings.
    pub fn clients(&self, now_ms: u64) -> Vec<ClientReport> {
        let mut reports = self.registry.lock().reports(now_ms, &self.settings);
        if self.is_in_grace(now_ms) {
            for report in &mut reports {
                let client = self.client(report.id);
                report.is_reclaiming =
                    client.is_some_and(|client| self.may_reclaim(now_ms, &client).is_ok());
            }
        }
        reports
    }

    /// Ends a client with all that it has, as the operator asks.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`].
    pub fn remove_client(&self, client: ClientId) -> Result<(), StateError> {
        let left = self.registry.lock().remove(client).ok_or(StateError::StaleClientId)?;
        self.end(&left);
        Ok(())
    }

    /// Opens of all clients.
    pub fn opens(&self) -> u32 {
        self.opens.load(Ordering::Relaxed)
    }

    /// Files with opens.
    pub fn open_files(&self) -> usize {
        self.files.count()
    }

    pub(crate) fn advance(&self, now_ms: u64) {
        self.clock_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Ends a client if its lease has expired. Whether it is gone: then it has no opens.
    pub(crate) fn expire(&self, now_ms: u64, client: &Arc<Client>) -> bool {
        let expired = self.registry.lock().expire(now_ms, &self.settings, client.id());
        match expired {
            Expired::Not => false,
            Expired::Before => {
                self.end_opens(client);
                true
            }
            Expired::Now(record) => {
                self.end(&record);
                true
            }
        }
    }

    /// Ends the courteous client that was silent for longest among those with opens; whether there
    /// was one.
    pub(crate) fn expire_for_room(&self, now_ms: u64) -> bool {
        let left = self.registry.lock().remove_courteous_with_opens(now_ms, &self.settings);
        let is_found = left.is_some();
        self.end_all(left);
        is_found
    }

    pub(crate) fn end_all(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            self.end(&record);
        }
    }

    /// Ends the sessions and opens of a client that has no record any more.
    fn end(&self, record: &Record) {
        for session in &record.sessions {
            self.end_session(session);
        }
        self.end_opens(&record.client);
    }

    fn end_session(&self, session: &Session) {
        session.end();
        self.sessions.remove(session.id());
    }
}
