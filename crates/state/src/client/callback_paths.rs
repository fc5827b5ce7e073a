//! Whether a client can be called.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Client;

/// Paths by which a client can be called, over all of its sessions.
#[derive(Debug, Default)]
pub(crate) struct CallbackPaths {
    /// Sessions whose back channel the client has bound a connection to, at some time.
    pub(crate) sessions: AtomicU32,
    /// Connections bound to these.
    pub(crate) connections: AtomicU32,
}

impl CallbackPaths {
    pub(crate) fn has_some(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn are_wanted(&self) -> bool {
        self.sessions.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn are_down(&self) -> bool {
        self.are_wanted() && !self.has_some()
    }
}

impl Client {
    /// Whether a connection is bound by which it can be called.
    pub fn has_callback_path(&self) -> bool {
        self.callback_paths.has_some()
    }

    /// Whether it has ever bound a connection to be called by, in a session that it still has.
    pub fn wants_callbacks(&self) -> bool {
        self.callback_paths.are_wanted()
    }
}
