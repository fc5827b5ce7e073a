//! The management interface of a running server: HTTP with JSON on a Unix socket in its state
//! directory, and where else it is asked for.
//!
//! What can be asked for is in [`routes`]; commands ask by [`crate::Client`]. It is the only part
//! of the program that is asynchronous, and has a thread of its own: no call of NFS ever waits for
//! it. What takes long runs on further threads. Each connection is for one request, and everything
//! about it has a bound, so that one who does not read, or does not finish what he asks, keeps
//! nobody else from it.

mod body;
mod capture;
mod connected;
mod peer;
mod routes;
mod token;
mod watch;

use std::convert::Infallible;
use std::fs::{File, Permissions as Mode};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};

use connected::Connected;
pub use peer::{Peer, Permissions};
pub use routes::{OPENAPI, router};
pub use token::{ScraperToken, read_of_file as read_token_file};
pub(crate) use token::{TOKEN_NAME, read as read_token};

/// In the state directory.
pub const SOCKET_NAME: &str = "control.sock";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Connections that a socket serves at a time.
const CONNECTIONS_MAX: usize = 32;
/// Scrapers that are connected at a time. When there are more, one that has not asked yet is dropped, as at other
/// sockets.
const SCRAPERS_MAX: usize = 16;
/// Threads for what takes its time: one a connection, and for what goes on though its asker left.
const THREADS_MAX: usize =
    routes::WORK_MAX + routes::SHARES_MAX + routes::SCRAPES_MAX + CAPTURES_MAX;
/// A server has one capture; another one may just end.
const CAPTURES_MAX: usize = 2;
/// For a request to be sent, and for its answer to be read.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After a connection that could not be accepted, for want of descriptors most likely.
const PAUSE: Duration = Duration::from_secs(1);

/// Who else than the server's own user may ask, and where.
#[derive(Clone, Debug, Default)]
pub struct ControlOptions {
    /// Who may change something.
    pub permissions: Permissions,
    /// A further socket to which everybody on this host may connect; he may read, and what
    /// `permissions` say.
    pub public_socket: Option<PathBuf>,
    /// Where to listen for those who have the token. It is not encrypted: for loopback.
    pub listen: Option<SocketAddr>,
    /// Where to listen for monitoring, which gets metrics, and without the token whether the server is ready. It is not
    /// encrypted.
    pub metrics: Option<MetricsOptions>,
}

/// Where to listen for monitoring.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// The address.
    pub listen: SocketAddr,
    /// What a scraper has to send; without it everybody who can connect is served.
    pub token: Option<ScraperToken>,
}

/// Answers requests until it is dropped.
#[derive(Debug)]
pub struct Control {
    /// Of Unix sockets.
    paths: Vec<PathBuf>,
    address: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    /// Dropped to stop.
    _stop: oneshot::Sender<()>,
}

/// Where requests come from.
enum Listener {
    Unix(tokio::net::UnixListener, Permissions),
    Tcp(tokio::net::TcpListener, Arc<str>),
    Scrapers(tokio::net::TcpListener, Option<ScraperToken>),
}

impl Control {
    /// Listens in the state directory, which is this server's alone, so that a socket there is
    /// one that a killed server left; and where `options` say, as far as that is possible.
    ///
    /// # Errors
    /// When that socket or the thread cannot be made.
    pub fn start(
        state_directory: &Path,
        options: &ControlOptions,
        router: Router,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .thread_name("control-work")
            .build()?;
        let (stop, stopping) = oneshot::channel();
        let mut control =
            Self { paths: Vec::new(), address: None, metrics_address: None, _stop: stop };
        let mut listeners = Vec::new();
        {
            let _entered = runtime.enter();
            let mut listen = |path: PathBuf, mode, permissions| {
                let listener = tokio::net::UnixListener::from_std(unix_listener(&path, mode)?)?;
                control.paths.push(path);
                listeners.push(Listener::Unix(listener, permissions));
                io::Result::Ok(())
            };
            let own = Permissions::default();
            listen(state_directory.join(SOCKET_NAME), 0o600, own)?;
            // Without these it can still be asked.
            if let Some(path) = &options.public_socket {
                let listening = std::fs::create_dir_all(path.parent().unwrap_or(path))
                    .and_then(|()| listen(path.clone(), 0o666, options.permissions));
                if let Err(error) = listening {
                    tracing::error!("nobody can ask at {}: {error}", path.display());
                }
            }
            if let Some(address) = options.listen {
                let listening = tcp_listener(address)
                    .and_then(|listener| Ok((listener, token::of(state_directory)?)));
                match listening {
                    Ok((listener, token)) => {
                        control.address = listener.local_addr().ok();
                        listeners.push(Listener::Tcp(listener, token));
                    }
                    Err(error) => tracing::error!("nobody can ask at {address}: {error}"),
                }
            }
            if let Some(MetricsOptions { listen: address, token }) = &options.metrics {
                match tcp_listener(*address) {
                    Ok(listener) => {
                        control.metrics_address = listener.local_addr().ok();
                        listeners.push(Listener::Scrapers(listener, token.clone()));
                    }
                    Err(error) => {
                        tracing::error!("[metrics]: nobody can ask at {address}: {error}");
                    }
                }
            }
        }
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || serve(runtime, listeners, stopping, &router))?;
        Ok(control)
    }

    /// Where it listens for TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it listens for monitoring.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn tcp_listener(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

fn unix_listener(path: &Path, mode: u32) -> io::Result<std::os::unix::net::UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Before it has a name: the name gets the socket's mode (unix(7)), so nobody can connect
    // in between.
    let file = File::from(OwnedFd::from(socket));
    file.set_permissions(Mode::from_mode(mode))?;
    let socket = Socket::from(OwnedFd::from(file));
    socket.bind(&SockAddr::unix(path)?)?;
    if mode & 0o006 != 0 {
        // The process's mask has taken away what others are to have.
        std::fs::set_permissions(path, Mode::from_mode(mode))?;
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(OwnedFd::from(socket).into())
}

fn serve(
    runtime: Runtime,
    listeners: Vec<Listener>,
    stopping: oneshot::Receiver<()>,
    router: &Router,
) {
    runtime.block_on(async {
        for listener in listeners {
            tokio::spawn(accept_all(listener, router.clone()));
        }
        // Nobody sends anything: it ends when the other side is dropped.
        let _ = stopping.await;
    });
    // What was asked for and hangs in storage ends with the process.
    runtime.shutdown_background();
}

async fn accept_all(listener: Listener, router: Router) {
    let connections_max = match &listener {
        Listener::Unix(..) | Listener::Tcp(..) => CONNECTIONS_MAX,
        Listener::Scrapers(..) => SCRAPERS_MAX,
    };
    let mut connected = Connected::new(connections_max);
    loop {
        let router = router.clone();
        let accepted = match &listener {
            Listener::Unix(listener, permissions) => match listener.accept().await {
                Ok((stream, _)) => {
                    let peer = Peer::unix(&stream, *permissions);
                    connected.serve(|has_asked| answer(stream, peer, router, has_asked)).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Listener::Tcp(listener, token) => match listener.accept().await {
                Ok((stream, address)) => {
                    let peer = Peer::tcp(address, Arc::clone(token));
                    connected.serve(|has_asked| answer(stream, peer, router, has_asked)).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Listener::Scrapers(listener, token) => match listener.accept().await {
                Ok((stream, address)) => {
                    let token = token.as_ref().map(ScraperToken::now);
                    let peer = Peer::scraper(address, token);
                    connected.serve(|has_asked| answer(stream, peer, router, has_asked)).await;
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = accepted {
            tracing::warn!("cannot accept a connection at the control socket: {error}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// An answer that has no end of its own: it sees to it by itself that it is read.
#[derive(Clone, Copy, Debug)]
struct Endless;

/// Serves a connection's one request.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    has_asked: Arc<AtomicBool>,
) {
    let answered = Arc::new(Notify::new());
    let told = Arc::clone(&answered);
    // As layers of the router these would cost a new router each connection.
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let sent = request.headers().get(AUTHORIZATION);
        let path = request.uri().path();
        // They tell a word, and whoever asks has no place for a token.
        let is_of_health = [routes::LIVES, routes::READY].contains(&path);
        let is_let_in =
            is_of_health || peer.is_let_in(sent.map(hyper::header::HeaderValue::as_bytes));
        let is_elsewhere = peer.is_scraper() && !is_of_health && path != routes::METRICS;
        let place = peer.token_place();
        request.extensions_mut().insert(peer.clone());
        let (router, told) = (router.clone(), Arc::clone(&told));
        if is_let_in {
            has_asked.store(true, Ordering::Relaxed);
        }
        async move {
            let response = if !is_let_in {
                routes::no_token(place).into_response()
            } else if is_elsewhere {
                routes::metrics_alone().into_response()
            } else {
                router.call(request).await?
            };
            if response.extensions().get::<Endless>().is_none() {
                told.notify_one();
            }
            Ok::<Response, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
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
mod tests;
