//! The other side of the control socket: a request, and its answer.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use super::{PATIENCE, SOCKET_NAME};

/// The largest answer believed to be one.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long to wait for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as the server may be busy with other requests.
    Short,
    /// As long as it takes.
    Endless,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    #[error(
        "no server runs with the state directory {} (it has no {SOCKET_NAME}): start one, or name \
         the directory of the one that runs with --state-directory", .0.display()
    )]
    NoServer(PathBuf),
    #[error(
        "the server with the state directory {} has ended: nobody listens at its {SOCKET_NAME}",
        .0.display()
    )]
    Ended(PathBuf),
    #[error(
        "not allowed to connect to {}: ask as the user that the server runs as, or as root",
        .0.display()
    )]
    NotPermitted(PathBuf),
    #[error("cannot connect to {}: {source}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("no answer from the server at {}: {why}", path.display())]
    NoAnswer { path: PathBuf, why: String },
    /// In the server's words.
    #[error("{0}")]
    Refused(String),
}

impl AskError {
    /// Whether there is no server to ask.
    pub(crate) fn is_without_server(&self) -> bool {
        matches!(self, Self::NoServer(_) | Self::Ended(_))
    }
}

/// What the server says in place of an answer.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The answer of the server that runs with this state directory.
///
/// # Errors
/// When none does, it may not be asked, or it refuses.
pub(crate) fn ask(
    state_directory: &Path,
    method: &Method,
    route: &str,
    patience: Patience,
) -> Result<Vec<u8>, AskError> {
    let path = state_directory.join(SOCKET_NAME);
    let failed = |why: &dyn std::fmt::Display| AskError::NoAnswer {
        path: path.clone(),
        why: why.to_string(),
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let stream = UnixStream::connect(&path).await.map_err(|source| {
            let directory = state_directory.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound => AskError::NoServer(directory),
                io::ErrorKind::ConnectionRefused => AskError::Ended(directory),
                io::ErrorKind::PermissionDenied => AskError::NotPermitted(path.clone()),
                _ => AskError::Connect { path: path.clone(), source },
            }
        })?;
        let answer = exchange(stream, method, route);
        let (is_right, answer) = match patience {
            // It may be answering others first.
            Patience::Short => tokio::time::timeout(3 * PATIENCE, answer)
                .await
                .map_err(|_| failed(&format!("nothing for {} s", (3 * PATIENCE).as_secs())))?,
            Patience::Endless => answer.await,
        }
        .map_err(|error| failed(&error))?;
        if is_right {
            return Ok(answer);
        }
        Err(match serde_json::from_slice::<Refusal>(&answer) {
            Ok(refusal) => AskError::Refused(refusal.error),
            Err(_) => failed(&"it refuses, and does not say why: is it of another version?"),
        })
    })
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request and reads the answer; whether it is what was asked for.
async fn exchange(
    stream: UnixStream,
    method: &Method,
    route: &str,
) -> Result<(bool, Vec<u8>), Failure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(route)
        .header(hyper::header::HOST, "localhost")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let is_right = response.status().is_success();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?;
    connection.abort();
    Ok((is_right, body.to_bytes().to_vec()))
}
