//! Changes of a server's shares, as they come.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Runtime;

use super::AskError;
use super::exchange::Asked;
use crate::api::{CutOff, Event};

/// Longest line that is believed to be one, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Events, each waited for. It ends when the server stops.
#[derive(Debug)]
pub struct Watch {
    runtime: Runtime,
    body: Incoming,
    place: String,
    /// What came and is not a line yet, or not asked for.
    bytes: Vec<u8>,
    /// Where in `bytes` the next line begins.
    start: usize,
    has_ended: bool,
}

impl Watch {
    pub(super) fn new(asked: Asked) -> Self {
        let Asked { runtime, response, place } = asked;
        let body = response.into_body();
        Self { runtime, body, place, bytes: Vec::new(), start: 0, has_ended: false }
    }

    /// The next line that says something; `None` at the end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let rest = self.bytes.get(self.start..).unwrap_or_default();
            if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.get(..length).unwrap_or_default().to_vec();
                self.start += length + 1;
                // An empty one says that the server is there.
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            if rest.len() > LINE_BYTES_MAX {
                return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
            }
            self.bytes.drain(..self.start);
            self.start = 0;
            match self.runtime.block_on(self.body.frame()) {
                None => return Ok(None),
                Some(Ok(frame)) => self.bytes.extend(frame.data_ref().into_iter().flatten()),
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Event, AskError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let failed =
            |place: &str, why| Some(Err(AskError::NoAnswer { place: place.to_owned(), why }));
        match self.line() {
            Ok(Some(line)) => match serde_json::from_slice(&line) {
                Ok(event) => Some(Ok(event)),
                Err(error) => {
                    self.has_ended = true;
                    let why = serde_json::from_slice::<CutOff>(&line)
                        .map_or_else(|_| error.to_string(), |last| last.cut_off);
                    failed(&self.place, why)
                }
            },
            Ok(None) => {
                self.has_ended = true;
                None
            }
            Err(why) => {
                self.has_ended = true;
                failed(&self.place, why)
            }
        }
    }
}
