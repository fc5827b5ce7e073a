//! What the interface asks of the server that it is of.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::broadcast;

use crate::Health;
use crate::api::{
    AcceptRequest, Applied, Event, ExplainRequest, Explanation, GroupStatus, History, Mistake,
    Mounting, MountingRequest, Plan, ShareFilter, SharePage, ShareStatus, Who, Wish,
};
use crate::capture::{CaptureCounts, CaptureFilter, CapturedMessage};
use crate::clients::{ClientEnded, ClientFilter, ClientsReport};
use crate::intent_log::{FlushReport, LogReport};
use crate::metrics::Figures;
use crate::slow::{SlowFilter, SlowReport};
use crate::statistics::Statistics;
use crate::top::{TopFilter, TopReport};

/// Batches of events that a watcher may be behind before it is cut off.
pub const EVENTS_BEHIND_MAX: usize = 256;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// Whose fault it is, roughly.
    pub kind: RefusalKind,
    /// In the operator's words, with the next step.
    pub error: String,
    /// One by one, if there are several.
    pub mistakes: Vec<Mistake>,
}

/// Kinds of refusals, each with a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// What was asked is not understood (400).
    Unreadable,
    /// The asker may not (403).
    NotAllowed,
    /// There is no such thing (404).
    NotFound,
    /// Not as things are (409).
    Conflict,
    /// It has mistakes (422).
    Mistaken,
    /// The server could not (500).
    Failed,
    /// Too much is under way (503).
    Busy,
}

impl Refusal {
    /// A refusal in one sentence.
    pub fn new(kind: RefusalKind, error: impl Into<String>) -> Self {
        Self { kind, error: error.into(), mistakes: Vec::new() }
    }

    /// A refusal for these mistakes; nothing was done.
    pub fn mistaken(mistakes: Vec<Mistake>) -> Self {
        let error = match mistakes.as_slice() {
            [one] => one.to_string(),
            all => format!("{} mistakes, so nothing was done", all.len()),
        };
        Self { kind: RefusalKind::Mistaken, error, mistakes }
    }
}

/// A document that is made already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawJson(pub Vec<u8>);

impl RawJson {
    /// The document of a value.
    ///
    /// # Errors
    /// When it cannot be written as JSON, which is a bug.
    pub fn of(value: &impl Serialize) -> Result<Self, Refusal> {
        serde_json::to_vec(value).map(Self).map_err(|error| {
            let why = format!("the answer cannot be written: {error}; this is a bug");
            Refusal::new(RefusalKind::Failed, why)
        })
    }
}

/// The shares of a server: told, and changed in batches. Its methods may wait for the disk; each
/// is called on a thread where that is in nobody's way.
pub trait ShareService: Send + Sync {
    /// Shares in the order of their paths.
    fn list(&self, filter: &ShareFilter) -> SharePage;

    /// The share of exactly this path.
    fn share(&self, path: &str) -> Option<ShareStatus>;

    /// All groups, by name.
    fn groups(&self) -> Vec<GroupStatus>;

    /// What applying would do.
    ///
    /// # Errors
    /// The mistakes, if it would do nothing.
    fn plan(&self, wish: &Wish) -> Result<Plan, Refusal>;

    /// Does it, all or nothing, durably; `waits`: until plug-ins have done theirs too.
    ///
    /// # Errors
    /// Why nothing was done.
    fn apply(&self, wish: &Wish, who: &Who, waits: bool) -> Result<Applied, Refusal>;

    /// Goes back to an earlier state, `None`: to the one before the last change.
    ///
    /// # Errors
    /// Why nothing was done.
    fn rollback(&self, to: Option<u64>, who: &Who) -> Result<Applied, Refusal>;

    /// What [`ShareService::rollback`] would do.
    ///
    /// # Errors
    /// Why it would do nothing.
    fn plan_rollback(&self, to: Option<u64>) -> Result<Plan, Refusal>;

    /// Serves shares from what their directories are on now, though that is something else than
    /// before: another disk, or the file system below one that is not mounted.
    ///
    /// # Errors
    /// When there is no such share; nothing is changed then.
    fn accept(&self, wish: &AcceptRequest, who: &Who) -> Result<Applied, Refusal>;

    /// The last states.
    fn history(&self) -> History;

    /// Reads again what people edited. What has mistakes stays as it is, and is told as left out.
    ///
    /// # Errors
    /// When nothing could be read.
    fn reload(&self, who: &Who) -> Result<Applied, Refusal>;

    /// The shares as exports(5) has them, of a group or all; what cannot be said there is in
    /// comments.
    ///
    /// # Errors
    /// When there is no such group.
    fn export(&self, group: Option<&str>) -> Result<String, Refusal>;

    /// Who may do what, and why.
    ///
    /// # Errors
    /// When the question makes no sense.
    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal>;

    /// How a share is mounted, by each kind of client.
    ///
    /// # Errors
    /// When there is no such share, or no client could name the server or the directory like that.
    fn mounting(&self, request: &MountingRequest) -> Result<Mounting, Refusal>;

    /// Changes from now on, a batch an element: from a channel of [`EVENTS_BEHIND_MAX`].
    fn subscribe(&self) -> broadcast::Receiver<Arc<[Event]>>;
}

/// The intent log of a server.
pub trait LogService: Send + Sync {
    /// What it is doing.
    ///
    /// # Errors
    /// When there is none.
    fn status(&self) -> Result<LogReport, Refusal>;

    /// Makes all file systems stable.
    ///
    /// # Errors
    /// When there is no log.
    fn flush(&self) -> Result<FlushReport, Refusal>;

    /// Goes back to it.
    ///
    /// # Errors
    /// When it cannot be used.
    fn enable(&self) -> Result<LogReport, Refusal>;

    /// Leaves it.
    ///
    /// # Errors
    /// When it is left already, or cannot be emptied.
    fn disable(&self) -> Result<LogReport, Refusal>;
}

/// The clients of a server that have state.
pub trait ClientService: Send + Sync {
    /// Who they are, and what they hold if that is asked for.
    ///
    /// # Errors
    /// When there is no such client.
    fn list(&self, filter: &ClientFilter) -> Result<ClientsReport, Refusal>;

    /// Ends one with all that it has.
    ///
    /// # Errors
    /// When there is no such client.
    fn expire(&self, id: &str) -> Result<ClientEnded, Refusal>;
}

/// Makes a document.
pub type Teller<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Tells which calls were slow.
pub type SlowTeller = Box<dyn Fn(&SlowFilter) -> SlowReport + Send + Sync>;

/// Tells what is called now.
pub type TopTeller = Box<dyn Fn(&TopFilter) -> TopReport + Send + Sync>;

/// Begins a capture, of which there is one at a time, for who asks.
pub type CaptureStarter =
    Box<dyn Fn(&CaptureFilter, &Who) -> Result<Box<dyn CaptureSource>, Refusal> + Send + Sync>;

/// A capture. It ends when it is dropped.
pub trait CaptureSource: Send {
    /// The next messages, of so many bytes together or a little more.
    fn take(&mut self, bytes_max: usize) -> CapturedPart;

    /// Ends it. What was not taken is counted as dropped.
    fn end(self: Box<Self>) -> CaptureCounts;
}

/// Some messages of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedPart {
    /// The messages, each call before its reply.
    pub messages: Vec<CapturedMessage>,
    /// Counted when these were taken.
    pub counts: CaptureCounts,
    /// Whether more should be taken at once.
    pub is_pressing: bool,
}

/// What there is to ask.
pub struct Services {
    /// Whether it lives, and serves.
    pub health: Arc<Health>,
    /// What was counted.
    pub statistics: Teller<Statistics>,
    /// The slowest calls.
    pub slow: SlowTeller,
    /// What is called now.
    pub top: TopTeller,
    /// Messages as they are read and written.
    pub capture: CaptureStarter,
    /// Collects numbers for `/metrics`. It is called once a second at most.
    pub metrics: Teller<Figures>,
    /// Makes the document of name services.
    pub names: Teller<Result<RawJson, Refusal>>,
    /// The intent log.
    pub log: Arc<dyn LogService>,
    /// Clients with state.
    pub clients: Arc<dyn ClientService>,
    /// The shares.
    pub shares: Arc<dyn ShareService>,
}
