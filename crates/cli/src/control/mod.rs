//! What a running server answers at its control socket, which is `steadfast-control`'s: the parts
//! of it that are the program's.

mod log;

use std::sync::Arc;

use serde::Serialize;
use steadfast_access::{Access, AccessStatistics, LookUp};
use steadfast_control::{RawJson, Services, ShareService};
use steadfast_runtime::intent_log::IntentLogKeeper;

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
