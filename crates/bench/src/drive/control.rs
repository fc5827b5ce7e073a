//! What whoever started a load has to do with it while it runs: see how far it is, stop it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops loads early, and says where their progress is shown. Clones share the stop.
#[derive(Clone, Debug, Default)]
pub struct Control {
    is_interrupted: Arc<AtomicBool>,
    shows_progress: bool,
    is_terminal: bool,
}

impl Control {
    /// Shows progress on standard error if that is a terminal, or if `is_wanted`.
    pub fn with_progress(is_wanted: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { shows_progress: is_wanted || is_terminal, is_terminal, ..Self::default() }
    }

    /// Ends what runs; what was measured until now is reported.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Relaxed)
    }

    /// Shows a line of progress, in place of the one before on a terminal.
    pub(crate) fn show(&self, text: &str) {
        if !self.shows_progress {
            return;
        }
        let mut out = std::io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.is_terminal {
            write!(out, "\r\x1b[K{text}").and_then(|()| out.flush())
        } else {
            writeln!(out, "{text}")
        };
    }

    /// Takes the line of progress away.
    pub(crate) fn clear(&self) {
        if self.shows_progress && self.is_terminal {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}
