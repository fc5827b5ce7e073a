//! The control socket: the management interface of a running server, HTTP with JSON on a Unix
//! socket in its state directory, for whoever may use that directory.
//!
//! What can be asked for is in [`routes`]; commands ask by [`client`]. It is the only part of the
//! program that is asynchronous, and has a thread of its own: no call of NFS ever waits for it.
//! What takes long runs on further threads. Each connection is for one request, and everything
//! about it has a bound, so that one who does not read, or does not finish what he asks, keeps
//! nobody else from it.

mod client;
mod routes;

use std::fs::{File, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore};

pub(crate) use client::{AskError, Patience, ask};
pub(crate) use routes::{Services, router};

/// In the state directory.
const SOCKET_NAME: &str = "control.sock";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 32;
/// Threads for what takes its time: one a connection, and for what goes on though its asker left.
const THREADS_MAX: usize = CONNECTIONS_MAX + routes::LONG_MAX;
/// For a request to be sent, and for its answer to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After a connection that could not be accepted, for want of descriptors most likely.
const PAUSE: Duration = Duration::from_secs(1);

/// Answers requests until it is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: Arc<UnixListener>,
    is_stopping: Arc<AtomicBool>,
}

impl Control {
    /// Listens in the state directory, which is this server's alone, so that a socket there is
    /// one that a killed server left. Only its owner can connect.
    ///
    /// # Errors
    /// When the socket or its thread cannot be made.
    pub(crate) fn start(state_directory: &Path, router: Router) -> io::Result<Self> {
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
        socket.set_nonblocking(true)?;
        let listener = Arc::new(UnixListener::from(OwnedFd::from(socket)));
        let is_stopping = Arc::new(AtomicBool::new(false));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .thread_name("control-work")
            .build()?;
        let accepting = listener.try_clone()?;
        let control = Self { path, listener, is_stopping: Arc::clone(&is_stopping) };
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(runtime, accepting, &is_stopping, &router))?;
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

fn serve(runtime: Runtime, listener: UnixListener, is_stopping: &AtomicBool, router: &Router) {
    let ended = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        accept_all(&listener, is_stopping, router).await;
        io::Result::Ok(())
    });
    if let Err(error) = ended {
        tracing::error!("the control socket does not answer: {error}");
    }
    // What was asked for and hangs in storage ends with the process.
    runtime.shutdown_background();
}

async fn accept_all(
    listener: &tokio::net::UnixListener,
    is_stopping: &AtomicBool,
    router: &Router,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // It is never closed.
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let accepted = listener.accept().await;
        if is_stopping.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    answer(stream, router).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection at the control socket: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection's one request.
async fn answer(stream: tokio::net::UnixStream, router: Router) {
    let answered = Arc::new(Notify::new());
    let told = Arc::clone(&answered);
    let router = router.layer(axum::middleware::map_response(move |response: Response| {
        told.notify_one();
        std::future::ready(response)
    }));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let unread = async {
        answered.notified().await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        // Who went away, or sends what is no request, needs no answer.
        _ = connection => {}
        () = unread => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicUsize;

    use axum::routing::get;
    use hyper::Method;

    use super::*;

    fn get_it(place: &Path) -> Result<Vec<u8>, AskError> {
        ask(place, &Method::GET, "/it", Patience::Short)
    }

    #[test]
    fn every_request_gets_the_answer_of_its_time() {
        let place = tempfile::tempdir().expect("a directory");
        let count = Arc::new(AtomicUsize::new(0));
        let it = move || std::future::ready(format!("{}", count.fetch_add(1, Ordering::SeqCst)));
        let control = Control::start(place.path(), Router::new().route("/it", get(it)));
        let control = control.expect("started");
        let mode = control.path.metadata().expect("metadata").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(get_it(place.path()).expect("an answer"), b"0");
        assert_eq!(get_it(place.path()).expect("an answer"), b"1");
    }

    #[test]
    fn who_is_rude_or_slow_keeps_nobody_from_it() {
        let place = tempfile::tempdir().expect("a directory");
        let it = || std::future::ready(vec![7; 5 << 20]);
        let control = Control::start(place.path(), Router::new().route("/it", get(it)));
        let control = control.expect("started");
        let connect = || UnixStream::connect(&control.path).expect("connected");
        // Silent, cut off, no HTTP, endless, and one that does not read what is more than a
        // socket's buffer.
        let mut others: Vec<UnixStream> = (0..5).map(|_| connect()).collect();
        let _ = others[1].write_all(b"GET /it HT");
        let _ = others[2].write_all(b"\0\0\0\x28 what is this\r\n\r\n");
        let _ = write!(others[3], "GET /it HTTP/1.1\r\nx: {}", "y".repeat(64 << 10));
        let _ = others[4].write_all(b"GET /it HTTP/1.1\r\nhost: x\r\n\r\n");
        for _ in 0..CONNECTIONS_MAX {
            assert_eq!(get_it(place.path()).expect("an answer").len(), 5 << 20);
        }
        // They are let go: even all at once keep others from it for some time only.
        others.extend((others.len()..2 * CONNECTIONS_MAX).map(|_| connect()));
        assert_eq!(get_it(place.path()).expect("an answer").len(), 5 << 20);
        let mut rest = Vec::new();
        let _ = others[4].read_to_end(&mut rest);
        assert!(rest.len() < 5 << 20, "the answer that nobody read was given up");
    }

    #[test]
    fn a_server_that_ended_well_or_badly_is_told() {
        let place = tempfile::tempdir().expect("a directory");
        let error = || get_it(place.path()).expect_err("no server").to_string();
        assert!(error().contains("no server runs with the state directory"), "{}", error());
        let control = Control::start(place.path(), Router::new()).expect("started");
        drop(control);
        assert!(error().contains("no server runs with the state directory"), "{}", error());
        // As a killed server leaves it.
        drop(UnixListener::bind(place.path().join(SOCKET_NAME)).expect("bound"));
        assert!(error().contains("has ended"), "{}", error());
        let it = Router::new().route("/it", get(|| std::future::ready("next")));
        let _next = Control::start(place.path(), it).expect("started");
        assert_eq!(get_it(place.path()).expect("an answer"), b"next");
    }
}
