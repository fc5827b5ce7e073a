//! The other side of the control socket, for programs that wait for their answers.

mod capture;
mod collector;
mod exchange;
mod watch;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{
    AcceptRequest, Applied, ExplainRequest, Explanation, GroupStatus, History, Mounting,
    MountingRequest, PAGE_MAX, Plan, RollbackRequest, ShareFilter, SharePage, ShareStatus, Wish,
};
use crate::capture::CaptureFilter;
use crate::top::{TopFilter, TopReport};
use exchange::{Endpoint, Question};

pub use capture::{CaptureStream, Captured};
pub use collector::{AddressError, Collector, PostError};
pub use exchange::{AskError, Patience};
pub use watch::Watch;

/// Asks a server. Each question has a connection of its own, so that it may be asked at any time.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
}

impl Client {
    /// Asks the server that runs with this state directory.
    pub fn connect(state_directory: &Path) -> Self {
        let state_directory = state_directory.to_owned();
        Self { endpoint: Endpoint::Unix { state_directory, public_socket: None } }
    }

    /// As [`Client::connect`], or at this socket if that directory is not for us.
    #[must_use]
    pub fn or_at(mut self, socket: Option<PathBuf>) -> Self {
        if let Endpoint::Unix { public_socket, .. } = &mut self.endpoint {
            *public_socket = socket;
        }
        self
    }

    /// Asks by TCP, with the token in the state directory (a copy of the server's, on another
    /// host).
    ///
    /// # Errors
    /// When there is no token.
    pub fn connect_tcp(address: SocketAddr, state_directory: &Path) -> Result<Self, AskError> {
        Ok(Self { endpoint: Endpoint::tcp(address, state_directory)? })
    }

    /// The bytes of any answer.
    ///
    /// # Errors
    /// As all others: when no server runs, it may not be asked, or it refuses.
    pub fn ask(&self, method: &str, route: &str, patience: Patience) -> Result<Vec<u8>, AskError> {
        self.endpoint.ask(Question { method, route, body: None }, patience)
    }

    /// The shares that a filter has, all pages of them. `progress` is told how many there are so
    /// far, and in all.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn shares(
        &self,
        filter: &ShareFilter,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<SharePage, AskError> {
        let mut filter = ShareFilter { limit: Some(PAGE_MAX), ..filter.clone() };
        let mut all = SharePage::default();
        loop {
            let filled = filter.filled.map(|filled| filled.to_string());
            let mut query = filter_query(&filter);
            query.extend(filled.as_deref().map(|filled| ("filled", filled)));
            let page: SharePage = self.get(&with_query("/v1/shares", &query))?;
            all.sequence = page.sequence;
            all.total = page.total;
            all.shares.extend(page.shares);
            progress(all.shares.len(), page.total);
            // A server that says the same again would be asked for ever.
            if page.next.is_none() || page.next <= filter.after {
                return Ok(all);
            }
            filter.after = page.next;
        }
    }

    /// The share of exactly this path.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn share(&self, path: &str) -> Result<ShareStatus, AskError> {
        self.get(&with_query("/v1/shares/show", &[("path", path)]))
    }

    /// How a share is mounted, by each kind of client.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn mounting(&self, request: &MountingRequest) -> Result<Mounting, AskError> {
        let mut query = vec![("path", request.path.as_str())];
        query.extend(request.server.as_deref().map(|server| ("server", server)));
        query.extend(request.at.as_deref().map(|at| ("at", at)));
        self.get(&with_query("/v1/shares/mounting", &query))
    }

    /// All groups.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn groups(&self) -> Result<Vec<GroupStatus>, AskError> {
        self.get("/v1/groups")
    }

    /// What applying would do.
    ///
    /// # Errors
    /// As [`Client::ask`]; the mistakes are [`AskError::mistakes`].
    pub fn plan(&self, wish: &Wish) -> Result<Plan, AskError> {
        self.post("/v1/plan", &wish_body(wish))
    }

    /// Does it; `waits`: until plug-ins have done theirs too.
    ///
    /// # Errors
    /// As [`Client::plan`].
    pub fn apply(&self, wish: &Wish, waits: bool) -> Result<Applied, AskError> {
        self.post(if waits { "/v1/apply?wait=true" } else { "/v1/apply" }, &wish_body(wish))
    }

    /// Goes back to an earlier state, `None`: to the one before the last change.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn rollback(&self, to: Option<u64>) -> Result<Applied, AskError> {
        self.post("/v1/rollback", &RollbackRequest { to })
    }

    /// What [`Client::rollback`] would do.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn plan_rollback(&self, to: Option<u64>) -> Result<Plan, AskError> {
        self.post("/v1/rollback/plan", &RollbackRequest { to })
    }

    /// Has it serve shares from what their directories are on now.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn accept(&self, wish: &AcceptRequest) -> Result<Applied, AskError> {
        self.post("/v1/accept", wish)
    }

    /// Has it read again what people edited.
    ///
    /// # Errors
    /// As [`Client::plan`].
    pub fn reload(&self) -> Result<Applied, AskError> {
        self.post("/v1/reload", &serde_json::Value::Null)
    }

    /// The last states.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn history(&self) -> Result<History, AskError> {
        self.get("/v1/history")
    }

    /// The shares as exports(5) has them.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn export(&self, group: Option<&str>) -> Result<String, AskError> {
        let query: Vec<_> = group.map(|group| ("group", group)).into_iter().collect();
        let text = self.ask("GET", &with_query("/v1/export", &query), Patience::Endless)?;
        String::from_utf8(text).map_err(|_| self.not_understood("it is not UTF-8"))
    }

    /// Who may do what, and why.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn explain(&self, request: &ExplainRequest) -> Result<Explanation, AskError> {
        let mut query = vec![("client", request.client.as_str()), ("path", &request.path)];
        query.extend(request.user.as_deref().map(|user| ("user", user)));
        query.extend(request.flavor.as_deref().map(|flavor| ("flavor", flavor)));
        query.extend(request.high_port.then_some(("high_port", "true")));
        self.get(&with_query("/v1/explain", &query))
    }

    /// Changes from now on.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn watch(&self) -> Result<Watch, AskError> {
        let question = Question { method: "GET", route: "/v1/watch", body: None };
        self.endpoint.begin(question, Patience::Short).map(Watch::new)
    }

    /// Messages as the server reads and writes them, from now on.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn capture(&self, filter: &CaptureFilter) -> Result<CaptureStream, AskError> {
        let kept = filter.snap_bytes.map(|bytes| bytes.to_string());
        let mut query = Vec::new();
        query.extend(filter.client.as_deref().map(|client| ("client", client)));
        query.extend(kept.as_deref().map(|bytes| ("snap_bytes", bytes)));
        query.extend(filter.contents.then_some(("contents", "true")));
        let route = with_query("/v1/capture", &query);
        let question = Question { method: "GET", route: &route, body: None };
        self.endpoint.begin(question, Patience::Short).map(CaptureStream::new)
    }

    /// What is called now. The first answer is empty: the server begins to count when it is asked.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn top(&self, filter: &TopFilter) -> Result<TopReport, AskError> {
        let limit = filter.limit.map(|limit| limit.to_string());
        let client = filter.client.map(|client| client.to_string());
        let mut query = vec![("by", filter.by.name()), ("sort", filter.sort.name())];
        query.extend(limit.as_deref().map(|limit| ("limit", limit)));
        query.extend(client.as_deref().map(|client| ("client", client)));
        query.extend(filter.filter.as_deref().map(|words| ("filter", words)));
        self.get(&with_query("/v1/top", &query))
    }

    /// A document of any route.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn get<T: DeserializeOwned>(&self, route: &str) -> Result<T, AskError> {
        let answer = self.ask("GET", route, Patience::Short)?;
        serde_json::from_slice(&answer).map_err(|error| self.not_understood(&error.to_string()))
    }

    fn post<T: DeserializeOwned>(&self, route: &str, body: &impl Serialize) -> Result<T, AskError> {
        let body = serde_json::to_vec(body).map_err(|error| {
            self.not_understood(&format!("the question cannot be written: {error}"))
        })?;
        let question = Question { method: "POST", route, body: Some(body) };
        let answer = self.endpoint.ask(question, Patience::Endless)?;
        serde_json::from_slice(&answer).map_err(|error| self.not_understood(&error.to_string()))
    }

    fn not_understood(&self, why: &str) -> AskError {
        let why = format!("{why}: is it of another version? use the program that it runs");
        AskError::NoAnswer { place: self.endpoint.place(), why }
    }
}

/// A wish as the server reads it.
fn wish_body(wish: &Wish) -> WishBody<'_> {
    match wish {
        Wish::Batch(batch) => WishBody::Batch(batch),
        Wish::Document(document) => WishBody::Document(document),
        Wish::Import(import) => WishBody::Import(import),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum WishBody<'a> {
    Batch(&'a steadfast_catalog::manage::Batch),
    Document(&'a crate::api::Document),
    Import(&'a crate::api::Import),
}

fn filter_query(filter: &ShareFilter) -> Vec<(&str, &str)> {
    const LIMIT: &str = "10000";
    const { assert!(PAGE_MAX == 10_000) };
    let mut query = vec![("limit", LIMIT)];
    query.extend(filter.group.as_deref().map(|group| ("group", group)));
    query.extend(filter.state.map(|state| ("state", state.word())));
    query.extend(filter.prefix.as_deref().map(|prefix| ("prefix", prefix)));
    query.extend(filter.after.as_deref().map(|after| ("after", after)));
    query
}

/// A route with a query, percent-encoded.
fn with_query(route: &str, query: &[(&str, &str)]) -> String {
    let mut text = route.to_owned();
    for (index, (key, value)) in query.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                text.push(char::from(byte));
            } else {
                // Writing to a string does not fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::with_query;

    #[test]
    fn a_path_with_anything_in_it_is_one_value() {
        let route = with_query("/v1/x", &[("path", "/a b&c=d?é%"), ("group", "g")]);
        assert_eq!(route, "/v1/x?path=/a%20b%26c%3Dd%3F%C3%A9%25&group=g");
    }
}
