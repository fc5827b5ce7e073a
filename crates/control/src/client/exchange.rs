//! One request and its answer.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};

use crate::api::{ErrorBody, Mistake};
use crate::server::{PATIENCE, SOCKET_NAME, TOKEN_NAME, read_token};

/// The largest answer believed to be one.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Between two attempts to connect to a server that is busy.
const RETRY: Duration = Duration::from_millis(20);

/// How long to wait for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as the server may be busy with other requests.
    Short,
    /// As long as it takes.
    Endless,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// It has no socket.
    #[error(
        "no server runs with the state directory {} (it has no {SOCKET_NAME}): start it \
         (where it is a service: systemctl start steadfast), or name the directory of the one that \
         runs with --state-directory",
        .0.display()
    )]
    NoServer(PathBuf),
    /// It has a socket, at which nobody listens.
    #[error(
        "the server with the state directory {} has ended: nobody listens at its {SOCKET_NAME}",
        .0.display()
    )]
    Ended(PathBuf),
    /// The socket is another user's.
    #[error(
        "not allowed to connect to {}: ask as the user that the server runs as, or as root",
        .0.display()
    )]
    NotPermitted(PathBuf),
    /// There is no token that could be shown.
    #[error("cannot read the token that the server at {address} wants: {why}")]
    NoToken {
        /// The server.
        address: SocketAddr,
        /// What is in the way.
        why: String,
    },
    /// Some other reason of the kernel's.
    #[error("cannot connect to {place}: {source}")]
    Connect {
        /// Where.
        place: String,
        /// That reason.
        source: io::Error,
    },
    /// It was reached, and does not answer, or not as it should.
    #[error("no answer from the server at {place}: {why}")]
    NoAnswer {
        /// Where.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// It refuses, in its own words.
    #[error("{error}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// Why.
        error: String,
        /// One by one, if there are several.
        mistakes: Vec<Mistake>,
    },
}

impl AskError {
    /// Whether there is no server to ask.
    pub fn is_without_server(&self) -> bool {
        matches!(self, Self::NoServer(_) | Self::Ended(_))
    }

    /// The mistakes that the server found in the request.
    pub fn mistakes(&self) -> &[Mistake] {
        match self {
            Self::Refused { mistakes, .. } => mistakes,
            _ => &[],
        }
    }
}

/// Where a server is asked.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// At sockets: the first that is there.
    Unix { state_directory: PathBuf, public_socket: Option<PathBuf> },
    /// With a token.
    Tcp { address: SocketAddr, token: Arc<str> },
}

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) method: &'a str,
    pub(super) route: &'a str,
    /// JSON.
    pub(super) body: Option<Vec<u8>>,
}

/// A connection on which there is an answer.
pub(super) struct Asked {
    pub(super) runtime: Runtime,
    pub(super) response: Response<Incoming>,
    pub(super) place: String,
}

impl Endpoint {
    pub(super) fn tcp(address: SocketAddr, state_directory: &Path) -> Result<Self, AskError> {
        let token = read_token(&state_directory.join(TOKEN_NAME))
            .map_err(|error| AskError::NoToken { address, why: error.to_string() })?;
        Ok(Self::Tcp { address, token })
    }

    pub(super) fn place(&self) -> String {
        match self {
            Self::Unix { state_directory, .. } => {
                state_directory.join(SOCKET_NAME).display().to_string()
            }
            Self::Tcp { address, .. } => address.to_string(),
        }
    }

    /// The whole answer to a question.
    pub(super) fn ask(
        &self,
        question: Question<'_>,
        patience: Patience,
    ) -> Result<Vec<u8>, AskError> {
        let Asked { runtime, response, place } = self.begin(question, patience)?;
        let failed = |why: String| AskError::NoAnswer { place: place.clone(), why };
        runtime.block_on(async {
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
            let body = within(patience, body).await.map_err(failed)?;
            body.map(|body| body.to_bytes().to_vec()).map_err(|error| failed(error.to_string()))
        })
    }

    /// Asks, and waits for the head of the answer.
    pub(super) fn begin(
        &self,
        question: Question<'_>,
        patience: Patience,
    ) -> Result<Asked, AskError> {
        let place = self.place();
        let failed = |why: String| AskError::NoAnswer { place: place.clone(), why };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let response = runtime.block_on(async {
            match self {
                Self::Unix { state_directory, public_socket } => {
                    let stream = connect(state_directory, public_socket.as_deref());
                    let stream = within(patience, stream).await.map_err(failed)??;
                    exchange(stream, question, None, patience).await.map_err(failed)
                }
                Self::Tcp { address, token } => {
                    let stream = within(patience, TcpStream::connect(address)).await;
                    let stream = stream
                        .map_err(failed)?
                        .map_err(|source| AskError::Connect { place: place.clone(), source })?;
                    exchange(stream, question, Some(token), patience).await.map_err(failed)
                }
            }
        })?;
        if response.status().is_success() {
            return Ok(Asked { runtime, response, place });
        }
        let status = response.status().as_u16();
        let body = runtime.block_on(within(
            patience,
            Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect(),
        ));
        let body = body.map_err(failed)?.map(Collected::to_bytes).unwrap_or_default();
        Err(match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(ErrorBody { error, mistakes }) => AskError::Refused { status, error, mistakes },
            Err(_) => {
                failed("it refuses, and does not say why: is it of another version?".to_owned())
            }
        })
    }
}

/// The state directory's socket, or the public one where that one is not for us.
async fn connect(directory: &Path, public: Option<&Path>) -> Result<UnixStream, AskError> {
    let path = directory.join(SOCKET_NAME);
    let source = loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => return Ok(stream),
            // As many as may wait to be accepted do so already.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => break error,
        }
    };
    let is_elsewhere =
        matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    if is_elsewhere
        && let Some(public) = public
        && let Ok(stream) = UnixStream::connect(public).await
    {
        return Ok(stream);
    }
    let directory = directory.to_owned();
    Err(match source.kind() {
        io::ErrorKind::NotFound => AskError::NoServer(directory),
        io::ErrorKind::ConnectionRefused => AskError::Ended(directory),
        io::ErrorKind::PermissionDenied => AskError::NotPermitted(path),
        _ => AskError::Connect { place: path.display().to_string(), source },
    })
}

async fn within<T>(patience: Patience, act: impl Future<Output = T>) -> Result<T, String> {
    // It may be answering others first.
    const SHORT: Duration = PATIENCE.saturating_mul(3);
    match patience {
        Patience::Short => tokio::time::timeout(SHORT, act)
            .await
            .map_err(|_| format!("nothing for {} s", SHORT.as_secs())),
        Patience::Endless => Ok(act.await),
    }
}

/// Sends a question and reads the answer's head.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    question: Question<'_>,
    token: Option<&str>,
    patience: Patience,
) -> Result<Response<Incoming>, String> {
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    // It ends with the runtime.
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(question.method)
        .uri(question.route)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let body = Full::new(Bytes::from(question.body.unwrap_or_default()));
    let request = request.body(body).map_err(|error| error.to_string())?;
    within(patience, sender.send_request(request)).await?.map_err(text)
}
