//! What a running server answers at its control socket, which is `steadfast-control`'s: the parts
//! of it that are the program's.

mod log;

use std::sync::Arc;

use serde::Serialize;
use steadfast_access::{Access, AccessStatistics, LookUp};
use steadfast_catalog::configuration::ServerSettings;
use steadfast_control::{ControlOptions, Permissions, RawJson, Services, ShareService};
use steadfast_durability::IntentLogKeeper;

pub(crate) use log::ControlledLog;

use crate::statistics::Document;

/// All that can be asked of a server.
pub(crate) fn services(
    statistics: impl Fn() -> Document + Send + Sync + 'static,
    access: Arc<Access>,
    log: Option<Arc<IntentLogKeeper>>,
    shares: Arc<dyn ShareService>,
) -> Services {
    Services {
        statistics: Box::new(move || RawJson::of(&statistics())),
        names: Box::new(move || RawJson::of(&NamesTold::of(&access))),
        log: Arc::new(ControlledLog(log)),
        shares,
    }
}

/// Where else than in the state directory, and by whom, a server may be asked.
pub(crate) fn options(settings: &ServerSettings) -> ControlOptions {
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
    }
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
