//! Bytes out and in: one send for all calls of a batch, large receives, no copy of long data.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use steadfast_client::RECORD_BYTES_MAX;
use steadfast_rpc::record::{MARK_BYTES, Mark, Splitter, Step};

/// Records longer than this are not kept: their head is shown, then their data piece by piece.
const KEPT_BYTES_MAX: usize = 32 << 10;
/// How much of a long record counts as its head: more than any reply's before its data.
const HEAD_BYTES: usize = 256;
/// Pieces of one send.
const PIECES_MAX: usize = 64;

/// Calls to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Long data, each to go before the byte of that index.
    inserts: VecDeque<(usize, &'static [u8])>,
    /// What of `bytes` was sent.
    sent: usize,
}

impl Outbox {
    /// To append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Appends the head of a call, a record from its mark on, with this xid; `following_bytes` are
    /// to follow.
    pub(crate) fn push_head(&mut self, head: &[u8], xid: u32, following_bytes: usize) {
        let mark = Mark::whole(head.len().saturating_sub(MARK_BYTES) + following_bytes);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(head);
        if let Some(place) = self.bytes.get_mut(start..start + 8) {
            let (mark_place, xid_place) = place.split_at_mut(MARK_BYTES);
            mark_place.copy_from_slice(&mark.to_bytes());
            xid_place.copy_from_slice(&xid.to_be_bytes());
        }
    }

    /// Data to follow what was appended so far, without a copy.
    pub(crate) fn push_static(&mut self, data: &'static [u8]) {
        self.inserts.push_back((self.bytes.len(), data));
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> io::Result<()> {
        while self.sent < self.bytes.len() || !self.inserts.is_empty() {
            let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(8);
            let mut at = self.sent;
            for (before, data) in self.inserts.iter().take(PIECES_MAX / 2) {
                pieces.push(IoSlice::new(self.bytes.get(at..*before).unwrap_or(&[])));
                pieces.push(IoSlice::new(data));
                at = *before;
            }
            if self.inserts.len() <= PIECES_MAX / 2 {
                pieces.push(IoSlice::new(self.bytes.get(at..).unwrap_or(&[])));
            }
            match steadfast_sys::net::send(&socket, &pieces, false) {
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }

    /// Takes the one call that is there, without its record mark, for a datagram.
    pub(crate) fn take_message(&mut self, message: &mut Vec<u8>) {
        let mut at = MARK_BYTES;
        for (before, data) in self.inserts.drain(..) {
            message.extend_from_slice(self.bytes.get(at..before).unwrap_or(&[]));
            message.extend_from_slice(data);
            at = before;
        }
        message.extend_from_slice(self.bytes.get(at..).unwrap_or(&[]));
        self.bytes.clear();
    }

    fn advance(&mut self, mut count: usize) {
        while let Some((before, data)) = self.inserts.front_mut() {
            let own = (*before - self.sent).min(count);
            self.sent += own;
            count -= own;
            if self.sent < *before {
                return;
            }
            let (_, rest) = data.split_at(count.min(data.len()));
            count -= data.len() - rest.len();
            *data = rest;
            if !rest.is_empty() {
                return;
            }
            self.inserts.pop_front();
        }
        self.sent += count;
    }
}

/// What comes out of a stream of records.
pub(crate) enum Arrival<'a> {
    /// A record, whole.
    Record(&'a [u8]),
    /// The head of a long record of so many bytes.
    Head(&'a [u8], usize),
    /// A piece of the long record, beginning at this byte of it.
    Piece(usize, &'a [u8]),
    /// The long record has ended.
    End,
}

/// Takes a stream apart into records. Those of several fragments, which no NFS server is known to send,
/// are gathered first, also long ones.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    carry: Vec<u8>,
    /// A long record: bytes seen, and in all.
    long: Option<(usize, usize)>,
    gathered: Option<Box<Gathered>>,
}

/// A record that comes in several fragments.
#[derive(Debug, Default)]
struct Gathered {
    splitter: Splitter,
    bytes: Vec<u8>,
}

/// Shows a record that is there whole.
fn show<E>(record: &[u8], arrived: &mut impl FnMut(Arrival<'_>) -> Result<(), E>) -> Result<(), E> {
    match record.get(..HEAD_BYTES).filter(|_| record.len() > KEPT_BYTES_MAX) {
        None => arrived(Arrival::Record(record)),
        Some(head) => {
            arrived(Arrival::Head(head, record.len()))?;
            arrived(Arrival::Piece(0, record))?;
            arrived(Arrival::End)
        }
    }
}

impl Inbox {
    /// Puts what is left of the last receive to the buffer's front; returns its length.
    pub(crate) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.carry.len();
        if let Some(front) = buffer.get_mut(..count) {
            front.copy_from_slice(&self.carry);
        }
        self.carry.clear();
        count
    }

    /// Bytes that are certain to follow: the rest of a long record.
    pub(crate) fn expected(&self) -> usize {
        self.long.map_or(0, |(seen, total)| total - seen)
    }

    /// Takes received bytes apart.
    pub(crate) fn feed<E: From<io::Error>>(
        &mut self,
        mut bytes: &[u8],
        mut arrived: impl FnMut(Arrival<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            if let Some(gathered) = &mut self.gathered {
                match gathered.splitter.step(&mut bytes, RECORD_BYTES_MAX) {
                    Ok(Step::Piece(piece)) => gathered.bytes.extend_from_slice(piece),
                    Ok(Step::End) => {
                        show(&gathered.bytes, &mut arrived)?;
                        self.gathered = None;
                    }
                    Ok(Step::Starved) => return Ok(()),
                    Err(error) => return Err(io::Error::other(error).into()),
                }
                continue;
            }
            if let Some((seen, total)) = self.long {
                let (piece, rest) = bytes.split_at(bytes.len().min(total - seen));
                arrived(Arrival::Piece(seen, piece))?;
                bytes = rest;
                if seen + piece.len() < total {
                    self.long = Some((seen + piece.len(), total));
                    return Ok(());
                }
                self.long = None;
                arrived(Arrival::End)?;
            }
            let Some((mark, rest)) = bytes.split_first_chunk() else { break };
            let mark = Mark::from_bytes(*mark);
            if !mark.is_last() {
                self.gathered = Some(Box::default());
                continue;
            }
            let length = mark.fragment_bytes();
            if length > KEPT_BYTES_MAX {
                let Some(head) = rest.get(..HEAD_BYTES) else { break };
                arrived(Arrival::Head(head, length))?;
                self.long = Some((0, length));
                bytes = rest;
            } else {
                let Some((record, rest)) = rest.split_at_checked(length) else { break };
                arrived(Arrival::Record(record))?;
                bytes = rest;
            }
        }
        self.carry.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in so many fragments, of which the first may be empty.
    fn record(length: usize, fragments: usize) -> Vec<u8> {
        let payload: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let mut record = Vec::new();
        for number in 0..fragments {
            let [from, to] = [number, number + 1].map(|number| number * number * length);
            let [from, to] = [from, to].map(|at| at / (fragments * fragments));
            let mark = Mark::new(to - from, number + 1 == fragments);
            record.extend_from_slice(&mark.to_bytes());
            record.extend_from_slice(&payload[from..to]);
        }
        record
    }

    #[test]
    fn records_come_out_however_the_stream_is_cut() {
        let lengths =
            [0, 24, 25, 3, KEPT_BYTES_MAX, KEPT_BYTES_MAX + 1, 70_001, 100_000, 100_001, 3];
        // Those of an odd length come in several fragments.
        let fragments = |length: usize| if length.is_multiple_of(2) { 1 } else { 7 };
        let stream: Vec<u8> =
            lengths.iter().flat_map(|length| record(*length, fragments(*length))).collect();
        for cut in [1_usize, 7, 259, 260, 4096, 65_536, stream.len()] {
            let mut inbox = Inbox::default();
            let mut buffer = vec![0; KEPT_BYTES_MAX + 8 + cut];
            let (mut seen, mut long) = (Vec::new(), 0);
            for chunk in stream.chunks(cut) {
                let start = inbox.restore(&mut buffer);
                buffer[start..start + chunk.len()].copy_from_slice(chunk);
                inbox
                    .feed(&buffer[..start + chunk.len()], |arrival| {
                        match arrival {
                            Arrival::Record(record) => seen.push(record.len()),
                            Arrival::Head(head, _) => assert_eq!(head[250], 250),
                            Arrival::Piece(at, piece) => {
                                assert_eq!(at, long);
                                let right = |(index, byte): (usize, &u8)| {
                                    *byte == ((at + index) % 251) as u8
                                };
                                assert!(piece.iter().enumerate().all(right));
                                long += piece.len();
                            }
                            Arrival::End => seen.push(std::mem::take(&mut long)),
                        }
                        Ok::<_, io::Error>(())
                    })
                    .unwrap();
            }
            assert_eq!(seen, lengths, "cut {cut}");
        }
    }

    #[test]
    fn what_a_full_socket_refuses_is_sent_later_in_order() {
        use std::io::Read;
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let data = crate::pattern::slice(1, 0, 1 << 20);
        let mut out = Outbox::default();
        let mut expected = Vec::new();
        for index in 0..100_u8 {
            out.bytes().extend_from_slice(&[index; 10]);
            expected.extend_from_slice(&[index; 10]);
            if index % 10 == 3 {
                out.push_static(&data[usize::from(index)..300_000]);
                expected.extend_from_slice(&data[usize::from(index)..300_000]);
            }
        }
        let mut got = Vec::new();
        let mut buffer = vec![0; 70_001];
        while got.len() < expected.len() {
            out.flush(&ours).unwrap();
            let count = theirs.read(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..count]);
        }
        assert!(got == expected);
        assert!(out.bytes.is_empty() && out.inserts.is_empty());
    }

    #[test]
    fn a_datagram_is_a_record_without_its_mark() {
        let mut out = Outbox::default();
        for _again in 0..2 {
            out.bytes().extend_from_slice(b"markhead");
            out.push_static(b"data");
            out.bytes().extend_from_slice(b"padding");
            let mut message = Vec::new();
            out.take_message(&mut message);
            assert_eq!(message, b"headdatapadding");
            assert!(out.bytes.is_empty() && out.inserts.is_empty());
        }
    }
}
