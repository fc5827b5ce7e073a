//! Records of RPC in a stream (RFC 5531 §11), also where the stream has holes or is met in the middle.
//!
//! A hole inside a fragment costs the end of one record: where the next one begins is known. After any
//! other hole the framing *searches*: a record begins where a plausible length is followed by a valid
//! head of a call of a known program, or by the head of a reply whose xid somebody waits for.

use steadfast_rpc::record::{MARK_BYTES, Mark};

use super::programs;

/// Longest fragment that is believed: the largest WRITE that `wire` reads, with its head.
const FRAGMENT_BYTES_MAX: usize = 17 << 20;
/// Most bytes of a record that are kept. Of a longer one only its beginning is read.
pub(crate) const RECORD_BYTES_MAX: usize = 4 << 20;
/// What is allocated for a record before its bytes come.
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Fragments that are looked into for the head of a record.
const HEAD_FRAGMENTS_MAX: usize = 64;
/// Words of a call until the length of its credentials.
const CALL_HEAD_BYTES: usize = 32;
/// Words of an accepted reply until the length of its verifier.
const REPLY_HEAD_BYTES: usize = 20;
/// What is kept of a stream while a beginning is undecided.
const SEARCH_BYTES_MAX: usize = 64 << 10;

/// A record, or what was captured of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) bytes: &'a [u8],
    /// When its first byte came.
    pub(crate) begun_ns: u64,
    /// When its last byte came.
    pub(crate) ended_ns: u64,
}

/// When bytes of a stream came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// When they were captured.
    pub(crate) seen_ns: u64,
    /// When all bytes before them were there, too: only then the receiver gets them.
    pub(crate) ready_ns: u64,
}

impl Times {
    /// Of bytes that came in their order.
    pub(crate) fn at(now_ns: u64) -> Self {
        Self { seen_ns: now_ns, ready_ns: now_ns }
    }
}

/// Who takes the records.
pub(crate) trait RecordSink {
    /// Whether a call with this xid waits for its reply in this direction.
    fn is_awaited(&self, xid: u32) -> bool;
    /// A record has come.
    fn handle_record(&mut self, record: &Record<'_>);
    /// The framing has lost its place.
    fn handle_lost_place(&mut self);
    /// The stream is TLS (RFC 9289): nothing in it can be read. Not certain of a stream that is met in
    /// the middle.
    fn handle_tls(&mut self, is_certain: bool);
}

/// What the beginning of a record looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Right,
    Wrong,
    /// More bytes will tell.
    Open,
}

#[derive(Debug)]
enum State {
    /// Before or inside a mark, or inside a fragment.
    InRecord,
    Searching,
}

/// The framing of one direction.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    mark: [u8; MARK_BYTES],
    mark_bytes: usize,
    /// Bytes of the fragment that are to come.
    fragment_left: usize,
    is_last: bool,
    /// Of the record so far; while searching, what is undecided.
    kept: Vec<u8>,
    /// Whether bytes of the record are missing: only those before them are kept.
    is_cut: bool,
    is_in_record: bool,
    is_head_checked: bool,
    begun_ns: u64,
}

impl Framing {
    /// At the beginning of a record.
    pub(crate) fn at_begin() -> Self {
        Self {
            state: State::InRecord,
            mark: [0; MARK_BYTES],
            mark_bytes: 0,
            fragment_left: 0,
            is_last: false,
            kept: Vec::new(),
            is_cut: false,
            is_in_record: false,
            is_head_checked: false,
            begun_ns: 0,
        }
    }

    /// Anywhere in a stream.
    pub(crate) fn in_the_middle() -> Self {
        Self { state: State::Searching, ..Self::at_begin() }
    }

    /// Bytes that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// Gives up the record that is being read, to save memory.
    pub(crate) fn let_go(&mut self) {
        self.kept = Vec::new();
        self.is_cut = self.is_in_record;
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn handle(&mut self, bytes: &[u8], times: Times, sink: &mut dyn RecordSink) {
        if !matches!(self.state, State::Searching) {
            return self.run(bytes, times, sink);
        }
        if bytes.first_chunk().copied().is_some_and(is_tls) {
            sink.handle_tls(false);
        }
        if self.kept.is_empty() {
            return self.run(bytes, times, sink);
        }
        let mut joined = std::mem::take(&mut self.kept);
        joined.extend_from_slice(bytes);
        self.run(&joined, times, sink);
    }

    fn run(&mut self, mut bytes: &[u8], times: Times, sink: &mut dyn RecordSink) {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Searching => self.search(bytes, sink),
                State::InRecord => self.step(bytes, times, sink),
            };
        }
    }

    /// So many bytes of the stream are missing.
    pub(crate) fn handle_gap(&mut self, length: u32, now_ns: u64, sink: &mut dyn RecordSink) {
        if length == 0 {
            return;
        }
        match self.state {
            State::Searching => self.kept.clear(),
            State::InRecord if self.fragment_left >= length as usize => {
                self.fragment_left -= length as usize;
                self.is_cut = true;
                if self.fragment_left == 0 && self.is_last {
                    self.end_record(now_ns, sink);
                }
            }
            State::InRecord => {
                if self.is_in_record {
                    self.is_cut = true;
                    self.end_record(now_ns, sink);
                }
                self.lose_place(sink);
            }
        }
    }

    fn lose_place(&mut self, sink: &mut dyn RecordSink) {
        *self = Self::in_the_middle();
        sink.handle_lost_place();
    }

    /// Takes a mark, or a part of a fragment; returns what is behind it.
    fn step<'b>(&mut self, bytes: &'b [u8], times: Times, sink: &mut dyn RecordSink) -> &'b [u8] {
        if self.fragment_left == 0 {
            return self.take_mark(bytes, times, sink);
        }
        let length = self.fragment_left.min(bytes.len());
        let (part, rest) = bytes.split_at(length);
        let is_whole_record = self.is_last && length == self.fragment_left;
        if is_whole_record && self.kept.is_empty() && !self.is_cut {
            // The usual case: nothing is copied.
            self.fragment_left = 0;
            self.is_in_record = false;
            if look(part, true, None) == Look::Wrong {
                self.lose_place(sink);
                return bytes;
            }
            let (begun_ns, ended_ns) = (self.begun_ns, times.ready_ns);
            sink.handle_record(&Record { bytes: part, begun_ns, ended_ns });
            return rest;
        }
        self.fragment_left -= length;
        if !self.is_cut {
            let room = RECORD_BYTES_MAX.saturating_sub(self.kept.len());
            self.is_cut = room < part.len();
            self.kept.extend_from_slice(part.get(..room).unwrap_or(part));
        }
        if !self.is_head_checked {
            match look(&self.kept, false, None) {
                Look::Open => {}
                Look::Right => self.is_head_checked = true,
                Look::Wrong => {
                    self.lose_place(sink);
                    return bytes;
                }
            }
        }
        if self.fragment_left == 0 && self.is_last {
            self.end_record(times.ready_ns, sink);
        }
        rest
    }

    fn take_mark<'b>(
        &mut self,
        bytes: &'b [u8],
        times: Times,
        sink: &mut dyn RecordSink,
    ) -> &'b [u8] {
        let mut rest = bytes;
        while self.mark_bytes < MARK_BYTES {
            let Some((byte, behind)) = rest.split_first() else { return rest };
            if self.mark_bytes == 0 && !self.is_in_record {
                self.begun_ns = times.seen_ns;
            }
            if let Some(place) = self.mark.get_mut(self.mark_bytes) {
                *place = *byte;
            }
            self.mark_bytes += 1;
            rest = behind;
        }
        self.mark_bytes = 0;
        let mark = Mark::from_bytes(self.mark);
        self.is_last = mark.is_last();
        self.fragment_left = mark.fragment_bytes();
        if !self.is_in_record && is_tls(self.mark) {
            sink.handle_tls(true);
            *self = Self::in_the_middle();
            return &[];
        }
        // Where the place is known, any fragment may be empty, the first and the only one too. Who searches for
        // it believes no such record: see `begins_record`.
        if self.fragment_left > FRAGMENT_BYTES_MAX {
            self.lose_place(sink);
            return rest;
        }
        if !self.is_in_record {
            self.is_in_record = true;
            self.is_cut = false;
            self.is_head_checked = false;
            self.kept.clear();
        }
        if self.fragment_left == 0 && self.is_last {
            self.end_record(times.ready_ns, sink);
        } else if self.is_last && bytes.len() < self.fragment_left {
            // One allocation for most records. A length alone, without its bytes, gets no more.
            self.kept.reserve(self.fragment_left.min(RESERVED_BYTES_MAX));
        }
        rest
    }

    fn end_record(&mut self, now_ns: u64, sink: &mut dyn RecordSink) {
        self.is_in_record = false;
        self.fragment_left = 0;
        self.mark_bytes = 0;
        if look(&self.kept, true, None) == Look::Right {
            sink.handle_record(&Record {
                bytes: &self.kept,
                begun_ns: self.begun_ns,
                ended_ns: now_ns,
            });
        } else if !self.is_cut && !self.kept.is_empty() {
            return self.lose_place(sink);
        }
        self.is_cut = false;
        // Connections are many, and most of them wait: none keeps memory for its next record.
        self.kept = Vec::new();
    }

    /// Looks for the beginning of a record, and returns what begins there. Keeps what is undecided.
    fn search<'b>(&mut self, bytes: &'b [u8], sink: &dyn RecordSink) -> &'b [u8] {
        let mut rest = bytes;
        while let Some((_, behind)) = rest.split_first() {
            match begins_record(rest, sink) {
                Look::Right => {
                    *self = Self::at_begin();
                    return rest;
                }
                Look::Wrong => rest = behind,
                Look::Open => break,
            }
        }
        // A beginning that stays undecided for so long is none.
        let from = rest.len().saturating_sub(SEARCH_BYTES_MAX);
        self.kept = rest.get(from..).unwrap_or_default().to_vec();
        &[]
    }
}

/// The head of a record of TLS: a type, version 3, and a length that is not looked at. As the mark of an
/// RPC record it would be a fragment of more than 300 MiB.
fn is_tls(bytes: [u8; 4]) -> bool {
    matches!(bytes, [0x14..=0x17, 3, 0..=4, _])
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    bytes.get(index * 4..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

/// Whether a message begins here. `is_all`: no more bytes will come. Without `is_awaited` any reply and any
/// program will do.
fn look(head: &[u8], is_all: bool, is_awaited: Option<&dyn Fn(u32) -> bool>) -> Look {
    let open = if is_all { Look::Wrong } else { Look::Open };
    let (Some(xid), Some(kind)) = (word(head, 0), word(head, 1)) else { return open };
    let Some(third) = word(head, 2) else { return if kind > 1 { Look::Wrong } else { open } };
    let auth_is_wrong = |flavor: u32, length: u32| flavor > 400_000 || length > 400;
    match (kind, third) {
        (0, 2) => {
            let words = [3, 4, 5, 6, 7].map(|index| word(head, index));
            let [Some(program), Some(version), Some(procedure), Some(flavor), Some(length)] = words
            else {
                return open;
            };
            let is_known = is_awaited.is_none() || programs::is_known(program, version);
            if !is_known || procedure > 255 || auth_is_wrong(flavor, length) {
                return Look::Wrong;
            }
            Look::Right
        }
        (1, 0) => {
            if is_awaited.is_some_and(|is_awaited| !is_awaited(xid)) {
                return Look::Wrong;
            }
            let (Some(flavor), Some(length)) = (word(head, 3), word(head, 4)) else { return open };
            if auth_is_wrong(flavor, length) { Look::Wrong } else { Look::Right }
        }
        (1, 1) if is_awaited.is_none_or(|is_awaited| is_awaited(xid)) => Look::Right,
        _ => Look::Wrong,
    }
}

/// Whether a record begins here: its mark, then the head, which may be spread over several fragments.
fn begins_record(bytes: &[u8], sink: &dyn RecordSink) -> Look {
    let is_awaited = |xid| sink.is_awaited(xid);
    let mut head = [0; CALL_HEAD_BYTES];
    let mut there = 0;
    let mut rest = bytes;
    for _ in 0..HEAD_FRAGMENTS_MAX {
        let Some((mark, behind)) = rest.split_first_chunk() else {
            // A single byte tells most wrong places.
            let is_wrong = rest.first().is_some_and(|first| first & 0x7f > 1);
            return if is_wrong { Look::Wrong } else { Look::Open };
        };
        let mark = Mark::from_bytes(*mark);
        let (is_last, length) = (mark.is_last(), mark.fragment_bytes());
        if length == 0 || length > FRAGMENT_BYTES_MAX {
            return Look::Wrong;
        }
        let taken = length.min(head.len() - there).min(behind.len());
        if let (Some(place), Some(part)) = (head.get_mut(there..there + taken), behind.get(..taken))
        {
            place.copy_from_slice(part);
        }
        there += taken;
        let is_all = there == head.len() || is_last && taken == length;
        match look(head.get(..there).unwrap_or_default(), is_all, Some(&is_awaited)) {
            Look::Open => {}
            decided => return decided,
        }
        match behind.get(length..) {
            Some(next) if !is_last => rest = next,
            _ => return Look::Open,
        }
    }
    Look::Wrong
}

const _: () = assert!(REPLY_HEAD_BYTES <= CALL_HEAD_BYTES);

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
