//! Streams that write, and what of it is not known to be stable.
//!
//! [`Writer`] knows no sockets: it says what comes next, and is told what was answered. What was
//! written unstable is kept in mind (its content can be made again) until a COMMIT that was sent
//! later returns the verifier that came with it (RFC 1813 §3.3.7, §3.3.21); what is lost is
//! written again.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::{StableHow, arguments, procedure};

use super::files::{Files, content, data};
use super::{Direction, Stream};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::nfs4::judging::{self, Complaint};
use crate::nfs4::requests::{self, Request};
use crate::records::Outbox;
use crate::replies::{self, at_end};
use crate::wire::Wire;

/// Kinds of calls.
const WRITE: usize = 0;
const COMMIT: usize = 1;

/// What a stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Writes this chunk, with what it holds after so many passes.
    Write { chunk: usize, pass: u32 },
    /// Commits what was written up to this number of WRITEs.
    Commit { covers: u64 },
}

/// A chunk of a stream's region.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// How often it was written, the WRITE in flight included.
    pass: u32,
    is_in_flight: bool,
    /// Written unstable: with which verifier, as which WRITE.
    dirty: Option<([u8; 8], u64)>,
    /// The server has lost it.
    is_lost: bool,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) file: usize,
    first_chunk: usize,
    chunks: Vec<Chunk>,
    next: usize,
    lost: VecDeque<usize>,
    /// Answered WRITEs.
    writes: u64,
    /// Unstable WRITEs since the last COMMIT was sent.
    since_commit: u64,
    commit_every: u64,
    commits: bool,
    verifier: Option<[u8; 8]>,
    /// How often the server's verifier changed.
    pub(super) verifier_changes: u64,
    /// WRITEs that the server had lost before they were committed.
    pub(super) lost_writes: u64,
}

impl Writer {
    pub(super) fn new(file: usize, region: &Range<usize>, commit_every: u64) -> Self {
        Self {
            file,
            first_chunk: region.start,
            chunks: vec![Chunk::default(); region.len()],
            next: 0,
            lost: VecDeque::new(),
            writes: 0,
            since_commit: 0,
            commit_every: commit_every.max(1),
            commits: false,
            verifier: None,
            verifier_changes: 0,
            lost_writes: 0,
        }
    }

    /// What comes next: a COMMIT that is due, what was lost, then the next chunk.
    pub(super) fn next(&mut self) -> Option<Act> {
        if self.since_commit >= self.commit_every && !self.commits {
            return Some(self.begin_commit());
        }
        if let Some(act) = self.next_lost() {
            return Some(act);
        }
        for _ in 0..self.chunks.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.chunks.len().max(1);
            let chunk = self.chunks.get_mut(index)?;
            if !chunk.is_in_flight {
                chunk.is_in_flight = true;
                chunk.is_lost = false;
                chunk.pass += 1;
                return Some(Act::Write { chunk: self.first_chunk + index, pass: chunk.pass });
            }
        }
        None
    }

    /// A chunk that has to be written again as it was.
    pub(super) fn next_lost(&mut self) -> Option<Act> {
        while let Some(index) = self.lost.pop_front() {
            let chunk = self.chunks.get_mut(index)?;
            // It may have been written anew meanwhile.
            if std::mem::take(&mut chunk.is_lost) {
                chunk.is_in_flight = true;
                return Some(Act::Write { chunk: self.first_chunk + index, pass: chunk.pass });
            }
        }
        None
    }

    /// A COMMIT of all that was answered until now.
    pub(super) fn begin_commit(&mut self) -> Act {
        self.since_commit = 0;
        self.commits = true;
        Act::Commit { covers: self.writes }
    }

    /// A WRITE was answered.
    pub(super) fn handle_written(&mut self, chunk: usize, committed: StableHow, verifier: [u8; 8]) {
        self.note_verifier(verifier);
        self.writes += 1;
        let is_unstable = committed == StableHow::Unstable;
        self.since_commit += u64::from(is_unstable);
        if let Some(chunk) = self.chunks.get_mut(chunk.wrapping_sub(self.first_chunk)) {
            chunk.is_in_flight = false;
            chunk.dirty = is_unstable.then_some((verifier, self.writes));
        }
    }

    /// A COMMIT was answered.
    pub(super) fn handle_committed(&mut self, covers: u64, verifier: [u8; 8]) {
        self.note_verifier(verifier);
        self.commits = false;
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            let Some((written_with, number)) = chunk.dirty else { continue };
            if number > covers {
                continue;
            }
            chunk.dirty = None;
            // What is being written anew need not come back.
            if written_with != verifier && !chunk.is_in_flight {
                chunk.is_lost = true;
                self.lost.push_back(index);
                self.lost_writes += 1;
            }
        }
    }

    /// No more answers come: what was refused for now and not made again is to be written yet.
    pub(super) fn handle_end(&mut self) {
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            if std::mem::take(&mut chunk.is_in_flight) {
                chunk.is_lost = true;
                self.lost.push_back(index);
            }
        }
    }

    fn note_verifier(&mut self, verifier: [u8; 8]) {
        if self.verifier.is_some_and(|before| before != verifier) {
            self.verifier_changes += 1;
        }
        self.verifier = Some(verifier);
    }

    /// Whether something is not known to be stable.
    pub(super) fn is_dirty(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.dirty.is_some() || chunk.is_lost)
    }

    /// Chunks that were written, and what they hold.
    pub(super) fn written(&self) -> impl Iterator<Item = (usize, usize)> {
        let written = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.pass > 0);
        written.map(|(index, chunk)| {
            let number = self.first_chunk + index;
            (number, content(self.file, number, chunk.pass))
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    act: Option<Act>,
    is_again: bool,
}

/// A thread's script.
pub(super) struct Writing {
    files: Arc<Files>,
    wire: Wire,
    pub(super) streams: Vec<Writer>,
    lanes: Vec<Lane>,
    window: usize,
    size: u32,
    stable: StableHow,
    /// Replies of WRITE by what they say is committed.
    pub(super) committed: [u64; 3],
    pub(super) commits: u64,
}

impl Writing {
    pub(super) fn new(stream: &Stream, files: &Arc<Files>, own: &Range<usize>) -> Self {
        let commit_every = stream.commit_every_bytes / u64::from(stream.transfer_bytes.max(1));
        let writer = |number: usize| {
            Writer::new(stream.file_of(number), &stream.region_of(number), commit_every)
        };
        Self {
            files: Arc::clone(files),
            wire: Wire::new(&stream.target, stream.nfs, own, stream.window, stream.transfer_bytes),
            lanes: vec![Lane::default(); own.len() * stream.window],
            streams: own.clone().map(writer).collect(),
            window: stream.window,
            size: stream.transfer_bytes,
            stable: stream.stable,
            committed: [0; 3],
            commits: 0,
        }
    }
}

/// What was answered.
enum Answer {
    Written(StableHow, [u8; 8]),
    Committed([u8; 8]),
    Later,
}

impl Writing {
    /// Judges a reply of NFSv3.
    fn judge3(&self, act: Act, name: &str, message: &[u8]) -> Result<Answer, BenchError> {
        let mut r = replies::results(name, message)?;
        if !replies::succeeded(name, &mut r)? {
            return Ok(Answer::Later);
        }
        let answer = match act {
            Act::Write { .. } => replies::written(&mut r, self.size, self.stable)
                .map(|(committed, verifier)| Answer::Written(committed, verifier)),
            Act::Commit { .. } => replies::committed(&mut r).map(Answer::Committed),
        };
        let answer = answer.and_then(|answer| at_end(&r).map(|()| answer));
        answer.map_err(|complaint| complaint.about(name))
    }

    /// Judges a reply, whatever it is of.
    fn judge(&mut self, lane: usize, act: Act, message: &[u8]) -> Result<Answer, BenchError> {
        let name = if matches!(act, Act::Commit { .. }) { "commit" } else { "write" };
        let (size, stable) = (self.size, self.stable);
        let Wire::V4(sessions) = &mut self.wire else { return self.judge3(act, name, message) };
        let judged = sessions.begin_reply(lane, name, message)?.and_then(|mut reply| {
            let answer = match act {
                Act::Write { .. } => {
                    let written = judging::written(&mut reply, size, stable)?;
                    Answer::Written(written.committed, written.verifier)
                }
                Act::Commit { .. } => Answer::Committed(reply.commit()?),
            };
            reply.end()?;
            Ok::<_, Complaint>(answer)
        });
        match judged {
            Err(complaint) if complaint.is_delay() => Ok(Answer::Later),
            judged => judged.map_err(|complaint| complaint.about(name)),
        }
    }
}

impl Script for Writing {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let (files, file) = (&self.files, self.streams.get(client).map_or(0, |one| one.file));
        match &mut self.wire {
            Wire::V3(_) => Ok(()),
            Wire::V4(sessions) => sessions
                .connect(client, stream, |client| files.open(client, file, Direction::Write)),
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
        let Some(stream) = self.streams.get_mut(lane / self.window) else { return Ok(None) };
        let Some(own) = self.lanes.get_mut(lane) else { return Ok(None) };
        if !std::mem::take(&mut own.is_again) {
            own.act = stream.next();
        }
        let Some(handle) = self.files.handles.get(stream.file) else { return Ok(None) };
        let Some(act) = own.act else { return Ok(None) };
        let (size, stable) = (self.size, self.stable);
        let (kind, offset, data) = match act {
            Act::Write { chunk, pass } => {
                let offset = chunk as u64 * u64::from(size);
                (WRITE, offset, data(content(stream.file, chunk, pass), size))
            }
            Act::Commit { .. } => (COMMIT, 0, &[][..]),
        };
        match (&self.wire, act) {
            (Wire::V3(calls), Act::Write { .. }) => {
                let head = arguments::write_head(handle, offset, size, stable);
                calls.append(out, xid, procedure::WRITE, &head, data);
            }
            (Wire::V3(calls), Act::Commit { .. }) => {
                let arguments = arguments::commit(handle, 0, 0);
                calls.append(out, xid, procedure::COMMIT, &arguments, &[]);
            }
            (Wire::V4(sessions), Act::Write { .. }) => {
                let open = sessions.only_open(lane)?;
                let write = |start| Ok(Request::write(start, open, offset, data, stable));
                sessions.append(lane, xid, out, write)?;
            }
            (Wire::V4(sessions), Act::Commit { .. }) => {
                sessions.append(lane, xid, out, |start| {
                    Ok(requests::commit(start, handle, 0, 0).into())
                })?;
            }
        }
        Ok(Some(kind))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let Some(act) = self.lanes.get(lane).and_then(|own| own.act) else {
            return Ok(Verdict::Good);
        };
        let answer = self.judge(lane, act, message)?;
        let Some(stream) = self.streams.get_mut(lane / self.window) else {
            return Ok(Verdict::Good);
        };
        match (act, answer) {
            (Act::Write { chunk, .. }, Answer::Written(committed, verifier)) => {
                if let Some(count) = self.committed.get_mut(committed as usize) {
                    *count += 1;
                }
                stream.handle_written(chunk, committed, verifier);
            }
            (Act::Commit { covers }, Answer::Committed(verifier)) => {
                self.commits += 1;
                stream.handle_committed(covers, verifier);
            }
            _ => {
                if let Some(own) = self.lanes.get_mut(lane) {
                    own.is_again = true;
                }
                return Ok(Verdict::TryLater);
            }
        }
        Ok(Verdict::Good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A server that may lose what is not committed.
    #[derive(Default)]
    struct Model {
        epoch: u64,
        stable: BTreeMap<usize, u32>,
        unstable: BTreeMap<usize, u32>,
    }

    impl Model {
        fn crash(&mut self) {
            self.epoch += 1;
            self.unstable.clear();
        }

        fn verifier(&self) -> [u8; 8] {
            self.epoch.to_be_bytes()
        }

        /// Does it, and answers.
        fn execute(&mut self, act: Act) -> (StableHow, [u8; 8]) {
            match act {
                Act::Write { chunk, pass } => {
                    self.unstable.insert(chunk, pass);
                }
                Act::Commit { .. } => self.stable.append(&mut self.unstable),
            }
            (StableHow::Unstable, self.verifier())
        }

        fn holds(&self, chunk: usize) -> Option<u32> {
            self.unstable.get(&chunk).or_else(|| self.stable.get(&chunk)).copied()
        }
    }

    fn tell(writer: &mut Writer, act: Act, (committed, verifier): (StableHow, [u8; 8])) {
        match act {
            Act::Write { chunk, .. } => writer.handle_written(chunk, committed, verifier),
            Act::Commit { covers } => writer.handle_committed(covers, verifier),
        }
    }

    proptest! {
        #[test]
        fn after_crashes_everything_is_stable_as_it_was_written_last(
            steps in proptest::collection::vec(0_u8..20, 1..400),
        ) {
            let mut writer = Writer::new(0, &(5..15), 3);
            let mut server = Model::default();
            // Calls on their way, and answers on theirs; both keep no order.
            let (mut calls, mut answers) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    0..8 if calls.len() + answers.len() < 4 => calls.extend(writer.next()),
                    0 => server.crash(),
                    1..13 if !calls.is_empty() => {
                        let act = calls.remove(usize::from(step) % calls.len());
                        answers.push((act, server.execute(act)));
                    }
                    _ if !answers.is_empty() => {
                        let (act, answer) = answers.remove(usize::from(step) % answers.len());
                        tell(&mut writer, act, answer);
                    }
                    _ => {}
                }
            }
            // Calls that have not come to the server are those that it refused for now.
            for (act, answer) in answers {
                tell(&mut writer, act, answer);
            }
            writer.handle_end();
            while writer.is_dirty() {
                while let Some(act) = writer.next_lost() {
                    let answer = server.execute(act);
                    tell(&mut writer, act, answer);
                }
                let act = writer.begin_commit();
                let answer = server.execute(act);
                tell(&mut writer, act, answer);
            }
            server.crash();
            for (chunk, content_now) in writer.written() {
                let pass = server.holds(chunk);
                prop_assert_eq!(pass.map(|pass| content(0, chunk, pass)), Some(content_now));
            }
        }
    }

    #[test]
    fn a_chunk_that_is_being_written_is_passed_over() {
        let mut writer = Writer::new(1, &(0..4), 100);
        let acts: Vec<_> = (0..4).map(|_| writer.next().unwrap()).collect();
        assert_eq!(writer.next(), None);
        for act in &acts[1..] {
            tell(&mut writer, *act, (StableHow::FileSync, [0; 8]));
        }
        assert_eq!(writer.next(), Some(Act::Write { chunk: 1, pass: 2 }));
        assert!(!writer.is_dirty());
        assert_eq!(writer.written().count(), 4);
    }
}
