//! Streams that read.

use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{arguments, procedure};

use super::Stream;
use super::files::{Files, content};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::pattern;
use crate::records::Outbox;
use crate::replies::{self, LongData, at_end};
use crate::setup::CallWriter;

/// A stream's place.
#[derive(Debug)]
struct Cursor {
    file: usize,
    /// The next chunk to be read.
    next: usize,
}

/// What a lane's call is about.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    file: usize,
    chunk: usize,
    is_again: bool,
}

/// A thread's script.
pub(super) struct Reading {
    files: Arc<Files>,
    writer: CallWriter,
    streams: Vec<Cursor>,
    lanes: Vec<Lane>,
    window: usize,
    chunks: usize,
    size: u32,
    /// READs whose data was compared.
    pub(super) compared: u64,
}

impl Reading {
    pub(super) fn new(stream: &Stream, files: &Arc<Files>, own: Range<usize>) -> Self {
        let cursor = |number: usize| {
            // Readers of one file are in different places, as they would be after a while.
            let next = if stream.has_one_file { stream.region_of(number).start } else { 0 };
            Cursor { file: stream.file_of(number), next }
        };
        Self {
            files: Arc::clone(files),
            writer: CallWriter::new(&stream.target.identity),
            lanes: vec![Lane::default(); own.len() * stream.window],
            streams: own.map(cursor).collect(),
            window: stream.window,
            chunks: stream.chunks(),
            size: stream.transfer_bytes,
            compared: 0,
        }
    }
}

impl Script for Reading {
    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let Some(stream) = self.streams.get_mut(lane / self.window) else { return Ok(None) };
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(None) };
        if !std::mem::take(&mut lane.is_again) {
            *lane = Lane { file: stream.file, chunk: stream.next, is_again: false };
            stream.next = (stream.next + 1) % self.chunks.max(1);
        }
        let Some(handle) = self.files.handles.get(lane.file) else { return Ok(None) };
        let offset = lane.chunk as u64 * u64::from(self.size);
        let arguments = arguments::read(handle, offset, self.size);
        self.writer.append(out, xid, procedure::READ, &arguments, &[]);
        Ok(Some(0))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(Verdict::Good) };
        let mut r = replies::results("read", message)?;
        if !replies::succeeded("read", &mut r)? {
            lane.is_again = true;
            return Ok(Verdict::TryLater);
        }
        let content = content(lane.file, lane.chunk, 1);
        replies::data(&mut r, self.size, |data| pattern::matches_sampled(content, 0, data))
            .and_then(|()| at_end(&r))
            .map_err(|complaint| complaint.about("read"))?;
        self.compared += 1;
        Ok(Verdict::Good)
    }

    fn long_reply(
        &mut self,
        lane: usize,
        head: &[u8],
        bytes: usize,
    ) -> Result<LongData, BenchError> {
        let lane = self.lanes.get(lane).copied().unwrap_or_default();
        self.compared += 1;
        let content = content(lane.file, lane.chunk, 1);
        LongData::of_read("read", head, bytes, content, 0, self.size)
    }
}
