//! The intent log by the control socket.

use std::sync::Arc;

use steadfast_control::{LogService, RawJson, Refusal, RefusalKind};
use steadfast_durability::{IntentLogKeeper, SwitchError};

use crate::intent_log::{FlushReport, LogReport};

/// The intent log, if there is one.
pub(crate) struct ControlledLog(pub(crate) Option<Arc<IntentLogKeeper>>);

impl ControlledLog {
    fn keeper(&self) -> Result<&IntentLogKeeper, Refusal> {
        self.0.as_deref().ok_or_else(|| {
            let why = "this server was started without an intent log: set enabled = true in \
                       [log], and start it again";
            Refusal::new(RefusalKind::Conflict, why)
        })
    }

    /// The log as it is now.
    fn switched(
        &self,
        switch: impl FnOnce(&IntentLogKeeper) -> Result<(), SwitchError>,
    ) -> Result<RawJson, Refusal> {
        let keeper = self.keeper()?;
        let is_unchanged = match switch(keeper) {
            Ok(()) => false,
            // Who asks twice has what was asked for.
            Err(SwitchError::IsOn | SwitchError::IsOffAsAsked) => true,
            Err(error) => return Err(Refusal::new(RefusalKind::Conflict, error.to_string())),
        };
        RawJson::of(&LogReport { is_unchanged, ..LogReport::of(keeper) })
    }
}

impl LogService for ControlledLog {
    fn status(&self) -> Result<RawJson, Refusal> {
        RawJson::of(&LogReport::of(self.keeper()?))
    }

    fn flush(&self) -> Result<RawJson, Refusal> {
        RawJson::of(&FlushReport::of(self.keeper()?.flush()))
    }

    fn enable(&self) -> Result<RawJson, Refusal> {
        self.switched(IntentLogKeeper::enable)
    }

    fn disable(&self) -> Result<RawJson, Refusal> {
        self.switched(IntentLogKeeper::disable)
    }
}
