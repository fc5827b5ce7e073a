//! Messages as a server reads and writes them, as they come.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::AskError;
use super::exchange::Asked;
use crate::capture::{Frame, FrameReader};

/// A capture by a server. It ends when this is dropped.
#[derive(Debug)]
pub struct CaptureStream {
    runtime: Runtime,
    body: Incoming,
    place: String,
    reader: FrameReader,
}

/// What comes next of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Captured {
    /// This.
    Frame(Frame),
    /// Nothing so far.
    Nothing,
    /// Nothing more: the server stops.
    End,
}

impl CaptureStream {
    pub(super) fn new(asked: Asked) -> Self {
        let Asked { runtime, response, place } = asked;
        let (body, reader) = (response.into_body(), FrameReader::default());
        Self { runtime, body, place, reader }
    }

    /// What comes next, waited for so long.
    ///
    /// # Errors
    /// When the server sends something else.
    pub fn next(&mut self, patience: Duration) -> Result<Captured, AskError> {
        loop {
            let frame = self.reader.next_frame();
            let failed = |why: String| AskError::NoAnswer { place: self.place.clone(), why };
            if let Some(frame) = frame.map_err(|error| failed(error.to_string()))? {
                return Ok(Captured::Frame(frame));
            }
            let body = &mut self.body;
            let waited = self.runtime.block_on(async { timeout(patience, body.frame()).await });
            match waited {
                Err(_) => return Ok(Captured::Nothing),
                // A server that is killed does not end its answer.
                Ok(None | Some(Err(_))) => return Ok(Captured::End),
                Ok(Some(Ok(frame))) => {
                    if let Some(piece) = frame.data_ref() {
                        self.reader.push(piece);
                    }
                }
            }
        }
    }
}
