//! `GET /v1/watch`: a line of JSON for each change, until the reader leaves or is too slow.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use hyper::header::CONTENT_TYPE;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::Endless;
use crate::api::{CutOff, Event};

/// Pieces that wait to be taken by the connection.
const PIECES_MAX: usize = 4;
/// Lines of a piece.
const LINES_MAX: usize = 256;
/// After so long without news an empty line tells that the server is there.
const QUIET: Duration = Duration::from_secs(15);
/// For a piece to be taken: then nobody is there to be told why it ends.
const STALL: Duration = Duration::from_secs(120);

/// The stream of what `events` brings.
pub(super) fn stream(events: Receiver<Arc<[Event]>>, room: OwnedSemaphorePermit) -> Response {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    tokio::spawn(feed(events, sender, room));
    endless(pieces, "application/jsonl")
}

/// An answer of pieces that has no end of its own.
pub(super) fn endless(pieces: mpsc::Receiver<Bytes>, kind: &'static str) -> Response {
    let mut response = Body::new(Pieces(pieces)).into_response();
    response.extensions_mut().insert(Endless);
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn feed(
    mut events: Receiver<Arc<[Event]>>,
    pieces: mpsc::Sender<Bytes>,
    _room: OwnedSemaphorePermit,
) {
    // At once, so that who asks knows that he misses nothing from here on.
    let mut next = vec![Bytes::from_static(b"\n")];
    loop {
        for piece in next {
            let Ok(Ok(())) = timeout(STALL, pieces.send(piece)).await else { return };
        }
        next = match timeout(QUIET, events.recv()).await {
            Err(_) => vec![Bytes::from_static(b"\n")],
            Ok(Ok(batch)) => batch.chunks(LINES_MAX).map(lines).collect(),
            Ok(Err(RecvError::Closed)) => return cut_off(&pieces, "the server stops").await,
            Ok(Err(RecvError::Lagged(missed))) => {
                let why = format!(
                    "{missed} batches of changes came faster than they were read: list the shares \
                     and watch again"
                );
                return cut_off(&pieces, &why).await;
            }
        };
    }
}

async fn cut_off(pieces: &mpsc::Sender<Bytes>, why: &str) {
    let last = line(&CutOff { cut_off: why.to_owned() });
    let _ = timeout(STALL, pieces.send(last.into())).await;
}

fn lines(events: &[Event]) -> Bytes {
    events.iter().flat_map(line).collect()
}

fn line(value: &impl serde::Serialize) -> Vec<u8> {
    // They have no maps with other keys than texts, which is all that could fail.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A body made of pieces.
struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
