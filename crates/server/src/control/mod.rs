//! What a running server answers at its control socket, which is `steadfast-control`'s: the parts
//! of it that are this server's.

mod capture;
mod clients;
mod log;
mod metrics;
mod slow;
mod statistics;
mod top;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use steadfast_access::{Access, AccessStatistics, LookUp};
use steadfast_catalog::configuration::MetricsSettings;
use steadfast_control::statistics::{NEW_HANDLE_KEY, unix_time};
use steadfast_control::{
    Control, ControlOptions, Health, MetricsOptions, Permissions, RawJson, ScraperToken, Services,
    router,
};
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::Engine;
use steadfast_posixfs::Storage;
use steadfast_runtime::Observer;

use crate::configuration::Settings;
use crate::shares::{ManagedShares, ShareManager};
use clients::ControlledClients;
use log::ControlledLog;
use metrics::{CountedShares, Scraped};
use statistics::statistics;

/// What a server can be asked about.
pub(crate) struct AskedAbout<'a> {
    pub(crate) health: &'a Arc<Health>,
    pub(crate) observer: Observer,
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) storage: &'a Arc<Storage>,
    pub(crate) access: &'a Arc<Access>,
    pub(crate) log: Option<&'a Arc<IntentLogKeeper>>,
    pub(crate) shares: &'a Arc<ShareManager>,
    /// Whether it has made its key of handles though it has served before.
    pub(crate) has_new_key: bool,
}

/// Lets the server be asked. It serves as well without.
pub(crate) fn start(
    about: AskedAbout<'_>,
    settings: &Settings,
    state_directory: &Path,
) -> Option<Control> {
    let options = options(settings);
    if let Some(token) = options.metrics.as_ref().and_then(|metrics| metrics.token.clone()) {
        about.shares.set_read_beside(Box::new(move || match token.read_again() {
            Ok(is_another) => {
                if is_another {
                    tracing::info!("[metrics]: token_file has another token now");
                }
                None
            }
            Err(error) => {
                Some(format!("[metrics]: token_file: {error}: the previous token stays valid"))
            }
        }));
    }
    Control::start(state_directory, &options, router(services(about)))
        .inspect_err(|error| {
            tracing::warn!(
                "cannot make a control socket in {}: {error}; `steadfast statistics`, `steadfast \
                 clients`, `steadfast log` and `steadfast share` cannot ask this server",
                state_directory.display()
            );
        })
        .ok()
}

/// All that can be asked of a server.
fn services(about: AskedAbout<'_>) -> Services {
    let AskedAbout { health, observer, engine, storage, access, log, shares, has_new_key } = about;
    let (engine, storage, access) = (Arc::clone(engine), Arc::clone(storage), Arc::clone(access));
    let started_unix_ms = unix_time().as_millis() as u64;
    let keeper = log.cloned();
    let told = Arc::clone(&engine);
    let (of_top, named_by, windows) =
        (observer.clone(), Arc::clone(&engine), top::Windows::default());
    let (slow_calls, of_them) = (observer.clone(), Arc::clone(&engine));
    let captured = observer.clone();
    let scraped = Scraped {
        observer: observer.clone(),
        engine: Arc::clone(&engine),
        storage: Arc::clone(&storage),
        access: Arc::clone(&access),
        log: log.cloned(),
        shares: Arc::clone(shares),
        counted: CountedShares::default(),
        started_unix_ms,
    };
    Services {
        health: Arc::clone(health),
        metrics: Box::new(move || scraped.figures()),
        slow: Box::new(move |filter| slow::slow(&slow_calls, &of_them, filter)),
        top: Box::new(move |filter| top::top(&windows, &of_top, &named_by, filter)),
        capture: Box::new(move |filter, who| capture::begin(&captured, filter, who)),
        statistics: Box::new(move || {
            let log = keeper.as_deref().map(IntentLogKeeper::status);
            let mut told = statistics(&observer, &engine, &storage, log.as_ref(), started_unix_ms);
            told.server.insert(NEW_HANDLE_KEY.to_owned(), u64::from(has_new_key));
            told
        }),
        names: Box::new(move || RawJson::of(&NamesTold::of(&access))),
        log: Arc::new(ControlledLog(log.cloned())),
        clients: Arc::new(ControlledClients(told)),
        shares: Arc::new(ManagedShares(Arc::clone(shares))),
    }
}

/// Where else than in the state directory, and by whom, a server may be asked.
fn options(settings: &Settings) -> ControlOptions {
    let Settings { server: settings, metrics, .. } = settings;
    let admin_group = settings.admin_group.as_ref().and_then(|group| {
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        let number = group_number(&group.value, &groups);
        if number.is_none() {
            tracing::error!(
                "admin_group: {:?} is neither a number nor a group in /etc/group: only root and \
                 the server's own user may change shares",
                group.value
            );
        }
        number
    });
    ControlOptions {
        permissions: Permissions { admin_group },
        public_socket: settings.control_socket.as_ref().map(|path| path.value.clone()),
        listen: settings.control_listen,
        metrics: metrics_options(metrics),
    }
}

/// Where monitoring asks by TCP. Without the token that is to be asked for it does not ask at all.
fn metrics_options(settings: &MetricsSettings) -> Option<MetricsOptions> {
    let listen = settings.listen.as_ref()?.value;
    let token = match &settings.token_file {
        Some(file) => Some(
            ScraperToken::of_file(&file.value)
                .inspect_err(|error| {
                    tracing::error!(
                        "[metrics]: nobody can ask at {listen}: token_file: {error}; then start \
                         the server again"
                    );
                })
                .ok()?,
        ),
        None => None,
    };
    Some(MetricsOptions { listen, token })
}

/// The number of a group that is named so in group(5), or is that number.
fn group_number(group: &str, groups: &str) -> Option<u32> {
    group.parse().ok().or_else(|| {
        groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok()).flatten()
        })
    })
}

/// Most names that are told one by one.
const NAMES_MAX: usize = 10_000;

/// `GET /v1/names`
#[derive(Serialize)]
struct NamesTold {
    #[serde(flatten)]
    statistics: AccessStatistics,
    look_ups: Vec<LookUp>,
}

impl NamesTold {
    fn of(access: &Access) -> Self {
        let look_ups = access.book().look_ups(|_| true, NAMES_MAX);
        Self { statistics: access.statistics(), look_ups }
    }
}

#[cfg(test)]
mod tests {
    use super::group_number;

    #[test]
    fn groups_are_numbers_or_names() {
        let groups = "root:x:0:\noperators:x:37:ann,bob\nbroken\n";
        assert_eq!(group_number("operators", groups), Some(37));
        assert_eq!(group_number("12", groups), Some(12));
        assert_eq!(group_number("oper", groups), None);
        assert_eq!(group_number("broken", groups), None);
    }
}
