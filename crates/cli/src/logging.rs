//! Log messages: lines on standard error, or the journal.

use anyhow::{Context, Result};
use steadfast_shares::configuration::LogTarget;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The filter of a `log_filter`, for who checks one.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(text).map_err(|error| error.to_string())
}

/// Sends messages to `target` from now on. `verbose` counts `-v`, which outweigh `directives`.
pub(crate) fn start(target: LogTarget, directives: Option<&str>, verbose: u8) -> Result<()> {
    let directives = match verbose {
        0 => directives.unwrap_or("info"),
        1 => "debug",
        _ => "trace",
    };
    let filter = filter(directives).map_err(anyhow::Error::msg).context("bad log filter")?;
    let registry = tracing_subscriber::registry().with(filter);
    match target {
        LogTarget::Stderr => {
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
                .with_target(false);
            registry.with(lines).try_init()?;
        }
        LogTarget::Journald => {
            let journal = tracing_journald::layer()
                .context("cannot log to journald: is /run/systemd/journal/socket there?")?;
            registry.with(journal).try_init()?;
        }
    }
    Ok(())
}
