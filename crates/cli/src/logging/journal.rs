//! Messages for journald, by its own protocol: a datagram of fields a message.

use std::fmt::{self, Write};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use steadfast_control::plain;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// A longer message is cut, so that it fits a datagram.
const MESSAGE_BYTES_MAX: usize = 48 << 10;

/// Sends messages to journald.
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// Sends to this socket.
    pub(super) fn at(socket: &Path) -> io::Result<Self> {
        let datagrams = UnixDatagram::unbound()?;
        datagrams.connect(socket)?;
        Ok(Self(datagrams))
    }
}

/// The message of an event, with its fields behind it.
#[derive(Default)]
struct Message {
    text: String,
    fields: String,
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// As syslog(3) has them.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 5,
        Level::DEBUG => 6,
        Level::TRACE => 7,
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let Message { mut text, fields } = message;
        text += &fields;
        let mut text = plain::line(&text).into_owned();
        if text.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or_default());
        }
        let metadata = event.metadata();
        let entry = format!(
            "PRIORITY={}\nSYSLOG_IDENTIFIER=steadfast\nTARGET={}\nMESSAGE={text}\n",
            priority(*metadata.level()),
            metadata.target()
        );
        // There is nobody to be told that messages cannot be sent.
        let _ = self.0.send(entry.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_message_is_one_field_whatever_names_are_in_it() {
        let place = tempfile::tempdir().expect("a directory");
        let socket = place.path().join("socket");
        let journald = UnixDatagram::bind(&socket).expect("a socket");
        let journal = Journal::at(&socket).expect("connected");
        let subscriber = tracing_subscriber::registry().with(journal);
        tracing::subscriber::with_default(subscriber, || {
            let name = "x\nPRIORITY=0\nMESSAGE=forged\u{1b}[31m\u{9b}2J";
            tracing::warn!(count = 3, "share {name} is faulty");
            tracing::error!("{}", "é".repeat(MESSAGE_BYTES_MAX));
        });
        let mut received = vec![0; 1 << 20];
        let length = journald.recv(&mut received).expect("a message");
        let entry = String::from_utf8_lossy(&received[..length]).into_owned();
        let target = module_path!();
        assert_eq!(
            entry,
            format!(
                "PRIORITY=4\nSYSLOG_IDENTIFIER=steadfast\nTARGET={target}\nMESSAGE=share \
                 x\\nPRIORITY=0\\nMESSAGE=forged\\u{{1b}}[31m\\u{{9b}}2J is faulty count=3\n"
            )
        );
        assert!(journald.recv(&mut received).expect("a message") <= MESSAGE_BYTES_MAX + 200);
    }
}
