//! Streams that read.

use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{arguments, procedure};

use super::files::{Files, content};
use super::{Direction, Stream};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::nfs4::judging::Complaint;
use crate::pattern;
use crate::records::Outbox;
use crate::replies::{self, LongData, NEVER_WRITTEN, OTHER_COUNT, at_end};
use crate::wire::Wire;

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
    wire: Wire,
    streams: Vec<Cursor>,
    lanes: Vec<Lane>,
    window: usize,
    chunks: usize,
    size: u32,
    /// READs whose data was compared.
    pub(super) compared: u64,
}

impl Reading {
    pub(super) fn new(stream: &Stream, files: &Arc<Files>, own: &Range<usize>) -> Self {
        let cursor = |number: usize| {
            // Readers of one file are in different places, as they would be after a while.
            let next = if stream.has_one_file { stream.region_of(number).start } else { 0 };
            Cursor { file: stream.file_of(number), next }
        };
        Self {
            files: Arc::clone(files),
            wire: Wire::new(&stream.target, stream.nfs, own, stream.window, stream.transfer_bytes),
            lanes: vec![Lane::default(); own.len() * stream.window],
            streams: own.clone().map(cursor).collect(),
            window: stream.window,
            chunks: stream.chunks(),
            size: stream.transfer_bytes,
            compared: 0,
        }
    }
}

impl Script for Reading {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let (files, file) = (&self.files, self.streams.get(client).map_or(0, |one| one.file));
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => {
                sessions.connect(client, stream, |client| files.open(client, file, Direction::Read))
            }
        }
    }

    fn finished(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => sessions.end(client, stream, Vec::new()),
        }
    }

    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let lane_number = lane;
        let Some(stream) = self.streams.get_mut(lane / self.window) else { return Ok(None) };
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(None) };
        if !std::mem::take(&mut lane.is_again) {
            *lane = Lane { file: stream.file, chunk: stream.next, is_again: false };
            stream.next = (stream.next + 1) % self.chunks.max(1);
        }
        let Some(handle) = self.files.handles.get(lane.file) else { return Ok(None) };
        let offset = lane.chunk as u64 * u64::from(self.size);
        match &self.wire {
            Wire::V3(writer) => {
                let arguments = arguments::read(handle, offset, self.size);
                writer.append(out, xid, procedure::READ, &arguments, &[]);
            }
            Wire::V4(sessions) => sessions.append(lane_number, xid, out, |start| {
                let (file, stateid) = sessions.only_open(lane_number)?;
                Ok(start.put(file).read(*stateid, offset, self.size).into())
            })?,
        }
        Ok(Some(0))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let Some(own) = self.lanes.get_mut(lane) else { return Ok(Verdict::Good) };
        let (size, content) = (self.size, content(own.file, own.chunk, 1));
        let is_right = |data: &[u8]| pattern::matches_sampled(content, 0, data);
        let is_later = match &mut self.wire {
            Wire::V3(_) => {
                let mut r = replies::results("read", message)?;
                let is_good = replies::succeeded("read", &mut r)?;
                if is_good {
                    replies::data(&mut r, size, is_right)
                        .and_then(|()| at_end(&r))
                        .map_err(|complaint| complaint.about("read"))?;
                }
                !is_good
            }
            Wire::V4(sessions) => {
                let begun = sessions.begin_reply(lane, "read", message)?;
                let judged = begun.and_then(|mut reply| {
                    let read = reply.read()?;
                    if read.data.len() != size as usize {
                        return Err(Complaint::from(OTHER_COUNT));
                    }
                    if !is_right(read.data) {
                        return Err(NEVER_WRITTEN.into());
                    }
                    Ok(reply.end()?)
                });
                Complaint::is_later(judged, "read")?
            }
        };
        if is_later {
            own.is_again = true;
            return Ok(Verdict::TryLater);
        }
        self.compared += 1;
        Ok(Verdict::Good)
    }

    fn long_reply(
        &mut self,
        lane: usize,
        head: &[u8],
        bytes: usize,
    ) -> Result<LongData, BenchError> {
        let own = self.lanes.get(lane).copied().unwrap_or_default();
        self.compared += 1;
        let content = content(own.file, own.chunk, 1);
        match &mut self.wire {
            Wire::V3(_) => LongData::of_read("read", head, bytes, content, 0, self.size),
            Wire::V4(sessions) => {
                let (count, starts_at) = sessions.long_read(lane, "read", head)?;
                LongData::new("read", content, 0, self.size, count, starts_at, bytes)
            }
        }
    }
}
