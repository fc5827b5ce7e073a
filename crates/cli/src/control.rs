//! The control socket: a running server tells about itself to whoever may use its state directory.
//!
//! A connection gets one JSON document and is closed; what it sends is not read. There is one
//! document, of [`crate::statistics`], so nothing has to be asked for.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// In the state directory.
const SOCKET_NAME: &str = "control.sock";
/// Connections that may wait: one is answered at a time.
const BACKLOG: i32 = 16;
/// For one connection, so that a reader who does not read keeps no others from it for long.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a connection that could not be accepted, for want of descriptors most likely.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest document believed to be one.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// Answers connections until it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: Arc<UnixListener>,
    is_stopping: Arc<AtomicBool>,
}

impl Control {
    /// Listens in the state directory, which is this server's alone, so that a socket there is
    /// one that a killed server left. Only its owner can connect.
    pub(crate) fn start(
        state_directory: &Path,
        document: impl Fn() -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let path = state_directory.join(SOCKET_NAME);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // Before it has a name: the name gets the socket's mode (unix(7)), so nobody can connect
        // in between.
        let file = File::from(OwnedFd::from(socket));
        file.set_permissions(Permissions::from_mode(0o600))?;
        let socket = Socket::from(OwnedFd::from(file));
        socket.bind(&SockAddr::unix(&path)?)?;
        socket.listen(BACKLOG)?;
        let listener = Arc::new(UnixListener::from(OwnedFd::from(socket)));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let control = Self { path, listener, is_stopping };
        let listener = Arc::clone(&control.listener);
        let is_stopping = Arc::clone(&control.is_stopping);
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || answer_all(&listener, &is_stopping, &document))?;
        Ok(control)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        // Wakes the thread; nobody needs to wait for its end.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer_all(listener: &UnixListener, is_stopping: &AtomicBool, document: &dyn Fn() -> Vec<u8>) {
    loop {
        let accepted = listener.accept();
        if is_stopping.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            // Who went away needs no answer.
            Ok((stream, _)) => drop(answer(stream, &document())),
            Err(error) => {
                tracing::warn!("cannot accept a connection at the control socket: {error}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn answer(mut stream: UnixStream, document: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut rest = document;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or(&[]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The document of the server that runs with this state directory.
///
/// # Errors
/// When none does, or it may not be asked.
pub(crate) fn ask(state_directory: &Path) -> Result<Vec<u8>> {
    let path = state_directory.join(SOCKET_NAME);
    let mut stream = UnixStream::connect(&path).map_err(|error| {
        let directory = state_directory.display();
        match error.kind() {
            io::ErrorKind::NotFound => anyhow!(
                "no server runs with the state directory {directory} (it has no {SOCKET_NAME}): \
                 start one, or name the directory of the one that runs with --state-directory"
            ),
            io::ErrorKind::ConnectionRefused => anyhow!(
                "the server with the state directory {directory} has ended: nobody listens at \
                 its {SOCKET_NAME}"
            ),
            io::ErrorKind::PermissionDenied => anyhow!(
                "not allowed to connect to {}: ask as the user that the server runs as, or as root",
                path.display()
            ),
            _ => anyhow!("cannot connect to {}: {error}", path.display()),
        }
    })?;
    let failed = || format!("no answer from the server at {}", path.display());
    // It may be answering others first.
    stream.set_read_timeout(Some(2 * PATIENCE)).with_context(failed)?;
    let mut document = Vec::new();
    (&mut stream).take(DOCUMENT_BYTES_MAX).read_to_end(&mut document).with_context(failed)?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn every_connection_gets_the_document_of_its_time() {
        let place = tempfile::tempdir().expect("a directory");
        let count = std::sync::atomic::AtomicUsize::new(0);
        let document =
            move || format!("document {}", count.fetch_add(1, Ordering::SeqCst)).into_bytes();
        let control = Control::start(place.path(), document).expect("started");
        let mode = control.path.metadata().expect("metadata").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ask(place.path()).expect("an answer"), b"document 0");
        // Who sends something, and who goes away, bothers nobody.
        let mut rude = UnixStream::connect(&control.path).expect("connected");
        let _ = rude.write_all(b"GET / HTTP/1.1\r\n\r\n");
        drop(rude);
        let told = ask(place.path()).expect("an answer");
        assert!(told == b"document 1" || told == b"document 2");
    }

    #[test]
    fn a_document_larger_than_a_sockets_buffer_comes_whole() {
        let place = tempfile::tempdir().expect("a directory");
        let _control = Control::start(place.path(), || vec![7; 5 << 20]).expect("started");
        assert_eq!(ask(place.path()).expect("an answer"), vec![7; 5 << 20]);
    }

    #[test]
    fn a_server_that_ended_well_or_badly_is_told() {
        let place = tempfile::tempdir().expect("a directory");
        let error = || ask(place.path()).expect_err("no server").to_string();
        assert!(error().contains("no server runs with the state directory"), "{}", error());
        let control = Control::start(place.path(), Vec::new).expect("started");
        drop(control);
        assert!(error().contains("no server runs with the state directory"), "{}", error());
        // As a killed server leaves it.
        drop(UnixListener::bind(place.path().join(SOCKET_NAME)).expect("bound"));
        assert!(error().contains("has ended"), "{}", error());
        let _next = Control::start(place.path(), || b"next".to_vec()).expect("started");
        assert_eq!(ask(place.path()).expect("an answer"), b"next");
    }
}
