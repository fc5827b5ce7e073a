//! The name services of a running server.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use steadfast_access::{Access, AccessSettings, Bounds};
use steadfast_catalog::configuration::NamesSettings;
use steadfast_engine::Engine;

use crate::error::{StartError, Tried};

/// In the state directory: what is known about names.
const FILE_NAME: &str = "names.json";

/// Starts name services as they are configured; `helper` asks the system's name service switch.
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn start(
    settings: &NamesSettings,
    helper: Option<Vec<OsString>>,
    state_directory: &Path,
) -> Result<Arc<Access>, StartError> {
    let settings = AccessSettings {
        helper,
        state_file: Some(state_directory.join(FILE_NAME)),
        ..access_settings(settings)
    };
    Access::start(&settings).tried("cannot start name services")
}

/// What is said of name services in the configuration, and what they do where nothing is said.
fn access_settings(names: &NamesSettings) -> AccessSettings {
    let default = AccessSettings::default();
    let or = |seconds: Option<u64>, default_ms| seconds.map_or(default_ms, |s| s * 1000);
    let ttl_min_ms = or(names.ttl_min_s, default.bounds.ttl_min_ms);
    let bounds = Bounds {
        ttl_min_ms,
        // One of both may be left out: the other is what was meant.
        ttl_max_ms: or(names.ttl_max_s, default.bounds.ttl_max_ms.max(ttl_min_ms)),
        stale_max_ms: or(names.stale_max_s, default.bounds.stale_max_ms),
        negative_ms: or(names.negative_s, default.bounds.negative_ms),
        entries_max: names.cache_entries_max.unwrap_or(default.bounds.entries_max),
        ..default.bounds
    };
    let bounds = Bounds { ttl_min_ms: bounds.ttl_min_ms.min(bounds.ttl_max_ms), ..bounds };
    AccessSettings {
        servers: names.servers.clone().unwrap_or_default(),
        hosts_file: names.hosts_file.as_ref().map_or(default.hosts_file, |path| path.value.clone()),
        netgroup_file: names
            .netgroup_file
            .as_ref()
            .map_or(default.netgroup_file, |path| path.value.clone()),
        timeout_ms: names.timeout_ms.unwrap_or(default.timeout_ms),
        bounds,
        helper: None,
        state_file: None,
    }
}

/// Name services of a running server.
pub(crate) struct Names {
    access: Arc<Access>,
    is_stopped: bool,
}

impl Names {
    /// Has the engine execute again what waits for names whenever something is known about them.
    pub(crate) fn start(access: Arc<Access>, engine: &Arc<Engine>) -> Self {
        // The engine has the name services.
        let engine = Arc::downgrade(engine);
        access.on_news(Arc::new(move || {
            if let Some(engine) = engine.upgrade() {
                engine.names_are_known();
            }
        }));
        Self { access, is_stopped: false }
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Keeps what is known, and ends.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        self.access.stop();
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.stop();
        }
    }
}
