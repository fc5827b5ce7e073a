//! `GET /v1/capture`: messages as they are read and written, until the reader leaves.

use std::time::{Duration, Instant};

use axum::response::Response;
use hyper::body::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::watch::endless;
use crate::capture::{CaptureCounts, Frame, MAGIC, MEDIA_TYPE};
use crate::service::{CaptureSource, CapturedPart};

/// Pieces that wait to be taken by the connection.
const PIECES_MAX: usize = 2;
/// How often it is looked whether messages have come: rarely, since each look and each piece costs the CPUs time that
/// the clients of a busy server want. Messages that fill the room of a capture sooner do not wait for it.
const PACE: Duration = Duration::from_millis(10);
/// Bytes of a piece; a message may be more.
const PIECE_BYTES: usize = 256 << 10;
/// For a piece to be taken: then nobody is there any more. Messages are dropped long before.
const STALL: Duration = Duration::from_secs(120);
/// How often counts are told.
const QUIET: Duration = Duration::from_secs(1);

/// The stream of what a capture brings. The capture ends with it.
pub(super) fn stream(source: Box<dyn CaptureSource>) -> Response {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    tokio::spawn(feed(source, sender, STALL));
    endless(pieces, MEDIA_TYPE)
}

/// A capture, and when its counts were told last.
struct Feed {
    source: Box<dyn CaptureSource>,
    told: Option<(Instant, CaptureCounts)>,
}

/// What is sent together.
struct Piece {
    bytes: Vec<u8>,
    messages: usize,
    is_pressing: bool,
}

impl Feed {
    fn next(&mut self) -> Piece {
        let CapturedPart { messages, counts, is_pressing } = self.source.take(PIECE_BYTES);
        let mut bytes = Vec::new();
        if self.told.is_none() {
            bytes.extend(MAGIC);
        }
        let is_due = |(since, before): (Instant, CaptureCounts)| {
            before != counts || since.elapsed() >= QUIET
        };
        if self.told.is_none_or(is_due) {
            Frame::Counts(counts).write(&mut bytes);
            self.told = Some((Instant::now(), counts));
        }
        let count = messages.len();
        for message in messages {
            Frame::Message(message).write(&mut bytes);
        }
        Piece { bytes, messages: count, is_pressing }
    }
}

async fn feed(source: Box<dyn CaptureSource>, pieces: mpsc::Sender<Bytes>, stall: Duration) {
    let mut feed = Feed { source, told: None };
    loop {
        // Copying takes a while when there is much, and others ask this thread, too.
        let taking = spawn_blocking(move || {
            let piece = feed.next();
            (feed, piece)
        });
        let Ok((again, piece)) = taking.await else { return };
        feed = again;
        let Piece { bytes, messages, is_pressing } = piece;
        let waits = bytes.is_empty() || !is_pressing;
        if !bytes.is_empty() {
            match timeout(stall, pieces.send(bytes.into())).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => return cut_off(feed.source, messages, &pieces).await,
            }
        }
        if waits {
            tokio::select! {
                () = sleep(PACE) => {}
                () = pieces.closed() => return,
            }
        }
    }
}

/// Ends a capture that nobody reads, and tells it when he reads on. So many messages could not be sent.
async fn cut_off(source: Box<dyn CaptureSource>, messages: usize, pieces: &mpsc::Sender<Bytes>) {
    let Ok(mut counts) = spawn_blocking(move || source.end()).await else { return };
    counts.dropped += messages as u64;
    let mut bytes = Vec::new();
    Frame::CutOff(counts).write(&mut bytes);
    // It ends when the connection does, which has all that is still kept.
    let _ = pieces.send(bytes.into()).await;
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use super::*;
    use crate::capture::{CapturedMessage, FrameReader};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// One message each time, and so many that wait at the end.
    struct Source {
        taken: u64,
        waiting: u64,
    }

    impl CaptureSource for Source {
        fn take(&mut self, _bytes_max: usize) -> CapturedPart {
            self.taken += 1;
            let message = CapturedMessage {
                time_ns: self.taken,
                client: ([192, 0, 2, 1], 700).into(),
                server: ([192, 0, 2, 2], 2049).into(),
                is_datagram: false,
                is_sent: false,
                is_repeat: false,
                times: None,
                executed: None,
                length: 9,
                bytes: vec![7; 9],
            };
            CapturedPart { messages: vec![message], ..CapturedPart::default() }
        }

        fn end(self: Box<Self>) -> CaptureCounts {
            CaptureCounts { dropped: self.waiting, room_bytes: 5 }
        }
    }

    #[tokio::test]
    async fn who_does_not_read_is_told_that_it_has_ended_and_what_is_missing() {
        let (sender, mut pieces) = mpsc::channel(PIECES_MAX);
        let source = Box::new(Source { taken: 0, waiting: 40 });
        let feeding = tokio::spawn(feed(source, sender, Duration::from_millis(50)));
        sleep(Duration::from_millis(500)).await;
        assert!(!feeding.is_finished(), "it has something to tell");
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        while let Some(piece) = timeout(PATIENCE, pieces.recv()).await.expect("an end") {
            reader.push(&piece);
            while let Some(frame) = reader.next_frame().expect("a frame") {
                frames.push(frame);
            }
        }
        let messages = frames.iter().filter(|one| matches!(one, Frame::Message(_))).count();
        assert_eq!(messages, PIECES_MAX);
        // The third could not be sent.
        let counts = CaptureCounts { dropped: 41, room_bytes: 5 };
        assert_eq!(frames.last(), Some(&Frame::CutOff(counts)));
        feeding.await.expect("no panic");
    }

    #[tokio::test]
    async fn who_has_left_without_reading_is_told_nothing() {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let source = Box::new(Source { taken: 0, waiting: 0 });
        let feeding = tokio::spawn(feed(source, sender, Duration::from_millis(50)));
        sleep(Duration::from_millis(200)).await;
        drop(pieces);
        timeout(PATIENCE, feeding).await.expect("an end").expect("no panic");
    }
}
