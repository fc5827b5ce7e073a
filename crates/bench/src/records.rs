//! Bytes out and in: one send for all calls of a batch, large receives, no copy of long data.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

/// Records longer than this are not kept: their head is shown, then their data piece by piece.
const KEPT_BYTES_MAX: usize = 32 << 10;
/// How much of a long record counts as its head: more than any reply's before its data.
const HEAD_BYTES: usize = 256;
/// Bytes of a record mark (RFC 5531 §11).
const MARK_BYTES: usize = 4;
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

/// Takes a stream apart into records of one fragment (fragmented replies are refused: no server
/// is known to send them).
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    carry: Vec<u8>,
    /// A long record: bytes seen, and in all.
    long: Option<(usize, usize)>,
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
            let Some((mark, rest)) = bytes.split_first_chunk::<4>() else { break };
            let mark = u32::from_be_bytes(*mark);
            let length = (mark & 0x7fff_ffff) as usize;
            if mark & 0x8000_0000 == 0 {
                return Err(io::Error::other("a fragmented reply").into());
            }
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

    fn record(length: usize) -> Vec<u8> {
        let mut record = (0x8000_0000 | length as u32).to_be_bytes().to_vec();
        record.extend((0..length).map(|index| (index % 251) as u8));
        record
    }

    #[test]
    fn records_come_out_however_the_stream_is_cut() {
        let lengths = [0, 24, KEPT_BYTES_MAX, KEPT_BYTES_MAX + 1, 100_000, 3];
        let stream: Vec<u8> = lengths.iter().flat_map(|length| record(*length)).collect();
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
