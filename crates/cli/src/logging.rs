//! Log messages: lines on standard error, or the journal. Names in them are those of files, which
//! anybody may choose: control characters are written as escapes.

mod journal;

use anyhow::{Context, Result};
use steadfast_catalog::configuration::LogTarget;
use steadfast_control::plain;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use journal::Journal;

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
                .with_target(false)
                .fmt_fields(fields());
            registry.with(lines).try_init()?;
        }
        LogTarget::Journald => {
            let journal = Journal::at(journal::SOCKET.as_ref())
                .context("cannot log to journald: is /run/systemd/journal/socket there?")?;
            registry.with(journal).try_init()?;
        }
    }
    Ok(())
}

/// A message and its fields, in one line.
fn fields() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(|writer, field, value| {
        let text = format!("{value:?}");
        let text = plain::line(&text);
        if field.name() == "message" {
            write!(writer, "{text}")
        } else {
            write!(writer, "{field}={text}")
        }
    })
    .delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_is_a_line_whatever_names_are_in_it() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .fmt_fields(fields());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let name = "x\n2026 ERROR forged\u{1b}[31m\u{9b}2J";
            tracing::warn!(name, "share {name} is faulty");
        });
        let text = String::from_utf8(written.0.lock().expect("no panic").clone()).expect("UTF-8");
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
        assert!(text.contains("x\\n2026 ERROR forged\\u{1b}[31m"), "{text:?}");
    }
}
