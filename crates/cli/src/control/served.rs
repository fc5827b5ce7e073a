//! The shares that the engine serves, told as they are; nothing keeps others yet.

use std::net::IpAddr;
use std::sync::Arc;

use steadfast_control::api::{
    Applied, Event, ExplainRequest, Explanation, GroupStatus, History, Plan, ShareFilter,
    SharePage, ShareState, ShareStatus, Who, Wish,
};
use steadfast_control::explain::{Asked, explain, innermost};
use steadfast_control::service::EVENTS_BEHIND_MAX;
use steadfast_control::{Refusal, RefusalKind, ShareService};
use steadfast_engine::Engine;
use steadfast_shares::{Flavor, NoNames, Share};
use tokio::sync::broadcast;

/// An engine's shares.
pub(crate) struct Served {
    engine: Arc<Engine>,
    news: broadcast::Sender<Arc<[Event]>>,
}

impl Served {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, news: broadcast::Sender::new(EVENTS_BEHIND_MAX) }
    }

    fn shares(&self) -> Vec<Arc<Share>> {
        let exports = self.engine.exports();
        let mut shares: Vec<_> =
            exports.sorted().into_iter().map(|export| Arc::clone(&export.share)).collect();
        shares.sort_by(|a, b| a.path.cmp(&b.path));
        shares
    }
}

fn status(share: &Share) -> ShareStatus {
    let patterns = share.rules.rules().iter().map(|rule| rule.pattern.to_string());
    ShareStatus {
        path: share.path.to_string(),
        directory: share.directory.display().to_string(),
        group: None,
        state: if share.is_draining { ShareState::Draining } else { ShareState::Enabled },
        why: None,
        source: None,
        pattern: None,
        id: share.id.0,
        description: None,
        resource: None,
        protocols: Vec::new(),
        options: Vec::new(),
        clients: patterns.collect(),
        rules: Vec::new(),
        plugin_faults: Vec::new(),
    }
}

fn fixed() -> Refusal {
    let why = "the shares of this server are those of its configuration file and its command line";
    Refusal::new(RefusalKind::Conflict, why)
}

impl ShareService for Served {
    fn list(&self, filter: &ShareFilter) -> SharePage {
        let shares = self.shares();
        let total = shares.len();
        let mut page = SharePage { sequence: 0, total, ..SharePage::default() };
        let after = |share: &&Arc<Share>| filter.after.as_deref().is_none_or(|a| *share.path > *a);
        for status in shares.iter().filter(after).map(|share| status(share)) {
            if page.shares.len() == filter.page() {
                page.next = page.shares.last().map(|share| share.path.clone());
                break;
            }
            if filter.has(&status.path, status.group.as_deref(), status.state) {
                page.shares.push(status);
            }
        }
        page
    }

    fn share(&self, path: &str) -> Option<ShareStatus> {
        self.shares().iter().find(|share| &*share.path == path).map(|share| status(share))
    }

    fn groups(&self) -> Vec<GroupStatus> {
        Vec::new()
    }

    fn plan(&self, _: &Wish) -> Result<Plan, Refusal> {
        Err(fixed())
    }

    fn apply(&self, _: &Wish, _: &Who, _: bool) -> Result<Applied, Refusal> {
        Err(fixed())
    }

    fn rollback(&self, _: Option<u64>, _: &Who) -> Result<Applied, Refusal> {
        Err(fixed())
    }

    fn history(&self) -> History {
        History::default()
    }

    fn reload(&self, _: &Who) -> Result<Applied, Refusal> {
        Err(fixed())
    }

    fn export(&self, _: Option<&str>) -> Result<String, Refusal> {
        Err(fixed())
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        let address: IpAddr = request.client.parse().map_err(|_| {
            Refusal::new(RefusalKind::Mistaken, format!("{:?} is no address", request.client))
        })?;
        let shares = self.shares();
        let path = innermost(&request.path, |path| shares.iter().any(|s| &*s.path == path));
        let share = shares.iter().find(|share| Some(&*share.path) == path);
        let share = share.map(|share| (&**share, status(share)));
        let asked = Asked {
            client: &request.client,
            address,
            path: &request.path,
            share: share.as_ref().map(|(share, status)| (*share, status)),
            flavor: Flavor::Sys,
            from_privileged_port: !request.high_port,
            user: None,
        };
        Ok(explain(&asked, &NoNames, &|_, _| Vec::new()))
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<[Event]>> {
        self.news.subscribe()
    }
}
