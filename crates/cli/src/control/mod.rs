//! What a running server answers at its control socket, which is `steadfast-control`'s: the parts
//! of it that are the program's.

mod log;
mod served;

use std::sync::Arc;

use steadfast_control::{RawJson, Services, ShareService};
use steadfast_engine::Engine;
use steadfast_runtime::intent_log::IntentLogKeeper;

pub(crate) use log::ControlledLog;
pub(crate) use served::Served;

use crate::statistics::Document;

/// All that can be asked of a server.
pub(crate) fn services(
    statistics: impl Fn() -> Document + Send + Sync + 'static,
    log: Option<Arc<IntentLogKeeper>>,
    shares: Arc<dyn ShareService>,
) -> Services {
    Services {
        statistics: Box::new(move || RawJson::of(&statistics())),
        names: Box::new(|| RawJson::of(&serde_json::Map::new())),
        log: Arc::new(ControlledLog(log)),
        shares,
    }
}

/// The shares that an engine serves.
pub(crate) fn served(engine: &Arc<Engine>) -> Arc<dyn ShareService> {
    Arc::new(Served::new(Arc::clone(engine)))
}
