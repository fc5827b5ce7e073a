//! Telling the service manager how we are (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager's socket; does nothing when there is none.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often the manager wants to hear from us.
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The socket that the environment names.
    pub(crate) fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_for_us =
            number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_for_us).map(Duration::from_micros);
        Self { socket: std::env::var("NOTIFY_SOCKET").ok().and_then(|name| open(&name)), watchdog }
    }

    /// How long to wait at most between two [`Notifier::alive`]: half of what the manager
    /// tolerates.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|tolerated| tolerated / 2)
    }

    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The start goes on, and may take this much longer.
    pub(crate) fn starting(&self, status: &str, longer: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS={status}", longer.as_micros()));
    }

    pub(crate) fn reloading(&self) {
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={}",
            steadfast_sys::process::monotonic_us()
        ));
    }

    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing calls");
    }

    pub(crate) fn alive(&self) {
        if self.watchdog.is_some() {
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, manager)) = &self.socket {
            // A manager that does not listen is no reason to stop serving.
            let _ = socket.send_to_addr(message.as_bytes(), manager);
        }
    }
}

fn open(name: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(name).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn messages_reach_a_socket_of_either_kind() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let named = UnixDatagram::bind(&path).expect("a socket");
        let name = format!("steadfast-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let hidden = UnixDatagram::bind_addr(&address).expect("a socket");
        let names = [(path.to_string_lossy().into_owned(), named), (format!("@{name}"), hidden)];
        for (name, manager) in names {
            let notifier = Notifier { socket: open(&name), watchdog: None };
            notifier.ready("serving 1 share");
            assert_eq!(received(&manager), "READY=1\nSTATUS=serving 1 share");
            notifier.starting("looking", Duration::from_secs(1));
            assert_eq!(received(&manager), "EXTEND_TIMEOUT_USEC=1000000\nSTATUS=looking");
            notifier.reloading();
            assert!(received(&manager).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        }
    }

    #[test]
    fn nobody_listening_is_no_failure() {
        Notifier { socket: open("/nonexistent/notify"), watchdog: None }.stopping();
        Notifier { socket: None, watchdog: None }.stopping();
    }
}
