//! What commands print.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use steadfast_control::plain;

/// Prints a text. Nobody may be reading: that is no error.
///
/// # Errors
/// When it cannot be printed.
pub(crate) fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}

/// Prints a text, some of which others have chosen: what would steer a terminal is escaped.
///
/// # Errors
/// When it cannot be printed.
pub(crate) fn print_plain(text: &str) -> Result<()> {
    print(&plain::lines(text))
}
