//! `GET /v1/capture`: messages as they are read and written, until the reader leaves.

use std::time::{Duration, Instant};

use axum::response::Response;
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::watch::endless;
use crate::capture::{CaptureCounts, Frame, MAGIC, MEDIA_TYPE};
use crate::service::CaptureSource;

/// Pieces that wait to be taken by the connection.
const PIECES_MAX: usize = 2;
/// How often it is looked whether messages have come.
const PACE: Duration = Duration::from_millis(10);
/// A piece is sent when it has so many bytes, or when there are no more messages.
const PIECE_BYTES: usize = 256 << 10;
/// For a piece to be taken: then nobody is there any more. Messages are dropped long before.
const STALL: Duration = Duration::from_secs(120);
/// How often counts are told.
const QUIET: Duration = Duration::from_secs(1);

/// The stream of what a capture brings. The capture ends with it.
pub(super) fn stream(source: CaptureSource) -> Response {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    tokio::spawn(feed(source, sender));
    endless(pieces, MEDIA_TYPE)
}

async fn feed(mut source: CaptureSource, pieces: mpsc::Sender<Bytes>) {
    let mut told: Option<(Instant, CaptureCounts)> = None;
    loop {
        // Copying takes a while when there is much, and others ask this thread, too.
        let taking = spawn_blocking(move || {
            let (messages, counts) = source();
            (source, messages, counts)
        });
        let Ok((again, messages, counts)) = taking.await else { return };
        source = again;
        let mut bytes = Vec::new();
        if told.is_none() {
            bytes.extend(MAGIC);
        }
        let is_due = |(since, before): (Instant, CaptureCounts)| {
            before != counts || since.elapsed() >= QUIET
        };
        if told.is_none_or(is_due) {
            Frame::Counts(counts).write(&mut bytes);
            told = Some((Instant::now(), counts));
        }
        let is_quiet = messages.is_empty();
        for message in messages {
            Frame::Message(message).write(&mut bytes);
            if bytes.len() >= PIECE_BYTES {
                let piece = std::mem::take(&mut bytes);
                let Ok(Ok(())) = timeout(STALL, pieces.send(piece.into())).await else { return };
            }
        }
        if !bytes.is_empty() {
            let Ok(Ok(())) = timeout(STALL, pieces.send(bytes.into())).await else { return };
        }
        if is_quiet {
            tokio::select! {
                () = sleep(PACE) => {}
                () = pieces.closed() => return,
            }
        } else if pieces.is_closed() {
            return;
        }
    }
}
