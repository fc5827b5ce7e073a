//! Replies on their way into a TCP socket: bytes, and ranges of files that are sent from the
//! page cache.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use steadfast_engine::ReplyBuffer;
use steadfast_rpc::record::Mark;
use steadfast_sys::{file, net};
use steadfast_vfs::FileRange;

/// Replies up to this size are copied together; larger ones are moved as they are.
const COPY_BYTES_MAX: usize = 32 << 10;
/// Size up to which small replies are put into one segment.
const SEGMENT_BYTES: usize = 256 << 10;
/// Vectors in one send.
const VECTORS_MAX: usize = 64;
/// Buffers kept for use again, how many of them may be large, and the largest in bytes.
pub(crate) const SPARE_BUFFERS_MAX: usize = 68;
const SPARE_LARGE_MAX: usize = 4;
const SPARE_BYTES_MAX: usize = 2 << 20;

static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

#[derive(Debug)]
enum Segment {
    Bytes(Vec<u8>),
    File(FileRange),
    /// In place of what a file no longer has.
    Zeros(usize),
}

impl Segment {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(range) => range.length as usize,
            Self::Zeros(count) => *count,
        }
    }
}

/// Buffers to be used again by one thread.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
    /// How many of them are large.
    large: usize,
}

impl SpareBuffers {
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.large -= usize::from(is_large(&buffer));
        buffer
    }

    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        let is_useful = (1..=SPARE_BYTES_MAX).contains(&buffer.capacity());
        let is_large = is_large(&buffer);
        if is_useful
            && self.buffers.len() < SPARE_BUFFERS_MAX
            && !(is_large && self.large == SPARE_LARGE_MAX)
        {
            self.large += usize::from(is_large);
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

fn is_large(buffer: &Vec<u8>) -> bool {
    buffer.capacity() > COPY_BYTES_MAX
}

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything is in the kernel's hands.
    All,
    /// The socket takes no more at present; the rest is still in the queue.
    Part,
}

/// Segments in the order of the stream.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that were sent already (bytes only).
    head_sent: usize,
    /// Bytes yet to be sent.
    bytes: usize,
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes yet to be sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives back what buffers have in excess.
    pub(crate) fn shrink(&mut self) {
        for segment in &mut self.segments {
            if let Segment::Bytes(bytes) = segment
                && bytes.capacity() / 2 > bytes.len()
            {
                bytes.shrink_to_fit();
            }
        }
    }

    pub(crate) fn has_files(&self) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::File(_)))
    }

    fn push(&mut self, segment: Segment) {
        self.bytes += segment.len();
        self.segments.push_back(segment);
    }

    fn push_bytes(&mut self, bytes: &[u8], spare: &mut SpareBuffers) {
        if bytes.is_empty() {
            return;
        }
        if let Some(Segment::Bytes(last)) = self.segments.back_mut()
            && last.len() + bytes.len() <= SEGMENT_BYTES
        {
            last.extend_from_slice(bytes);
            self.bytes += bytes.len();
            return;
        }
        let mut buffer = spare.take();
        buffer.extend_from_slice(bytes);
        self.push(Segment::Bytes(buffer));
    }

    /// Appends one reply as a record of one fragment; what was in `reply` is taken.
    pub(crate) fn push_record(&mut self, reply: &mut ReplyBuffer, spare: &mut SpareBuffers) {
        self.push_bytes(&Mark::whole(reply.length()).to_bytes(), spare);
        if reply.files.is_empty() {
            if reply.bytes.len() <= COPY_BYTES_MAX {
                self.push_bytes(&reply.bytes, spare);
            } else {
                let bytes = std::mem::replace(&mut reply.bytes, spare.take());
                self.push(Segment::Bytes(bytes));
            }
            return;
        }
        let mut from = 0;
        for (index, range) in reply.files.drain(..) {
            let to = index.clamp(from, reply.bytes.len());
            self.push_bytes(reply.bytes.get(from..to).unwrap_or(&[]), spare);
            self.push(Segment::File(range));
            from = to;
        }
        self.push_bytes(reply.bytes.get(from..).unwrap_or(&[]), spare);
    }

    /// Appends all of `other`, which is empty afterwards. `other` must not be partly sent.
    pub(crate) fn append(&mut self, other: &mut Self, spare: &mut SpareBuffers) {
        if self.segments.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        debug_assert_eq!(other.head_sent, 0);
        for segment in other.segments.drain(..) {
            match segment {
                Segment::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                    self.push_bytes(&bytes, spare);
                    spare.put(bytes);
                }
                segment => self.push(segment),
            }
        }
        other.bytes = 0;
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The connection's, or a file's that could not be read; either way the stream is broken.
    pub(crate) fn send_to(
        &mut self,
        socket: BorrowedFd<'_>,
        spare: &mut SpareBuffers,
    ) -> io::Result<Sent> {
        loop {
            let result = match self.segments.front_mut() {
                None => return Ok(Sent::All),
                Some(Segment::File(range)) => send_range(socket, range),
                Some(_) => self.send_bytes(socket),
            };
            match result {
                Ok(count) => self.advance(count, spare),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Part),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.read_front()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a piece of the file at the front, which the kernel cannot send by itself.
    fn read_front(&mut self) -> io::Result<()> {
        let Some(Segment::File(range)) = self.segments.front_mut() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut piece = Vec::new();
        let wanted = (range.length as usize).min(SEGMENT_BYTES);
        let count = file::append_read(range.file.as_fd(), &mut piece, wanted, range.offset, true)?;
        if count == 0 {
            let length = range.length as usize;
            self.segments.pop_front();
            self.segments.push_front(Segment::Zeros(length));
            return Ok(());
        }
        range.offset += count as u64;
        range.length -= count as u32;
        if range.length == 0 {
            self.segments.pop_front();
        }
        self.segments.push_front(Segment::Bytes(piece));
        Ok(())
    }

    /// Sends the leading segments that are in memory.
    fn send_bytes(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut vectors = [IoSlice::new(&[]); VECTORS_MAX];
        let mut count = 0;
        let mut skip = self.head_sent;
        for (segment, vector) in self.segments.iter().zip(&mut vectors) {
            *vector = IoSlice::new(match segment {
                Segment::Bytes(bytes) => bytes.get(skip..).unwrap_or(&[]),
                Segment::Zeros(zeros) => ZEROS.get(..(*zeros).min(ZEROS.len())).unwrap_or(&[]),
                Segment::File(_) => break,
            });
            skip = 0;
            count += 1;
            if matches!(segment, Segment::Zeros(zeros) if *zeros > ZEROS.len()) {
                break;
            }
        }
        let has_more = count < self.segments.len();
        net::send(socket, vectors.get(..count).unwrap_or(&[]), has_more)
    }

    /// Takes note of `count` bytes sent from the front. A file at the front that ended early
    /// (`count` 0) gives way to zeros.
    fn advance(&mut self, mut count: usize, spare: &mut SpareBuffers) {
        self.bytes -= count;
        if let Some(front @ Segment::File(_)) = self.segments.front_mut() {
            if let Segment::File(range) = front {
                range.offset += count as u64;
                range.length -= count as u32;
                if count == 0 && range.length > 0 {
                    *front = Segment::Zeros(range.length as usize);
                } else if range.length == 0 {
                    self.segments.pop_front();
                }
            }
            return;
        }
        loop {
            match self.segments.front_mut() {
                Some(Segment::Bytes(bytes)) => {
                    let left = bytes.len() - self.head_sent;
                    if count < left {
                        self.head_sent += count;
                        return;
                    }
                    count -= left;
                    self.head_sent = 0;
                    if let Some(Segment::Bytes(bytes)) = self.segments.pop_front() {
                        spare.put(bytes);
                    }
                }
                Some(Segment::Zeros(zeros)) => {
                    let sent = count.min(*zeros);
                    *zeros -= sent;
                    count -= sent;
                    if *zeros > 0 {
                        return;
                    }
                    self.segments.pop_front();
                }
                Some(Segment::File(_)) | None => return,
            }
        }
    }
}

fn send_range(socket: BorrowedFd<'_>, range: &FileRange) -> io::Result<usize> {
    if range.length == 0 {
        return Ok(0);
    }
    net::send_file(socket, range.file.as_fd(), range.offset, range.length as usize)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use super::*;

    fn reply(bytes: &[u8]) -> ReplyBuffer {
        ReplyBuffer { bytes: bytes.to_vec(), ..ReplyBuffer::default() }
    }

    fn record(bytes: &[u8]) -> Vec<u8> {
        [&(0x8000_0000 | bytes.len() as u32).to_be_bytes()[..], bytes].concat()
    }

    fn file_of(bytes: &[u8]) -> Arc<std::fs::File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        Arc::new(file)
    }

    /// Sends everything through a socket that takes little at a time.
    fn through_socket(mut queue: SendQueue) -> Vec<u8> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut spare = SpareBuffers::default();
        let mut seen = Vec::new();
        let expected = queue.bytes();
        while seen.len() < expected {
            let _ = queue.send_to(ours.as_fd(), &mut spare).unwrap();
            let mut piece = vec![0; 10_007];
            let count = theirs.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..count]);
        }
        assert!(queue.is_empty());
        seen
    }

    #[test]
    fn records_arrive_whole_in_order_whatever_the_socket_takes() {
        let mut queue = SendQueue::default();
        let mut spare = SpareBuffers::default();
        let mut expected = Vec::new();
        for size in [0, 5, 100_000, 3, 40_000, 700_000] {
            let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
            queue.push_record(&mut reply(&bytes), &mut spare);
            expected.extend(record(&bytes));
        }
        assert_eq!(queue.bytes(), expected.len());
        assert_eq!(through_socket(queue), expected);
    }

    #[test]
    fn file_ranges_stand_where_they_belong_and_zeros_follow_an_early_end() {
        let contents: Vec<u8> = (0..200_000_u32).map(|i| (i % 253) as u8).collect();
        let file = file_of(&contents);
        let mut queue = SendQueue::default();
        let mut spare = SpareBuffers::default();
        let mut first = reply(b"headpad");
        first.files.push((4, FileRange { file: file.clone(), offset: 10, length: 150_000 }));
        queue.push_record(&mut first, &mut spare);
        let mut second = reply(b"xy");
        second.files.push((1, FileRange { file, offset: 199_990, length: 50_000 }));
        queue.push_record(&mut second, &mut spare);
        let first = [b"head", &contents[10..150_010], b"pad"].concat();
        let second = [b"x", &contents[199_990..], &vec![0; 49_990][..], b"y"].concat();
        assert_eq!(through_socket(queue), [record(&first), record(&second)].concat());
    }

    #[test]
    fn a_file_that_the_kernel_cannot_send_is_read() {
        let name = "/proc/self/cmdline";
        let contents = std::fs::read(name).unwrap();
        let file = Arc::new(std::fs::File::open(name).unwrap());
        let (socket, _other) = UnixStream::pair().unwrap();
        assert_eq!(
            net::send_file(&socket, &file, 0, 1).unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "the test needs a file that sendfile(2) refuses"
        );
        let length = contents.len() as u32 + 50;
        let mut queue = SendQueue::default();
        let mut first = reply(b"ab");
        first.files.push((1, FileRange { file, offset: 1, length }));
        queue.push_record(&mut first, &mut SpareBuffers::default());
        let expected = record(&[b"a", &contents[1..], &[0; 51], b"b"].concat());
        assert_eq!(through_socket(queue), expected);
    }

    #[test]
    fn appending_keeps_the_order_and_the_count() {
        let mut spare = SpareBuffers::default();
        let mut queue = SendQueue::default();
        queue.push_record(&mut reply(b"one"), &mut spare);
        let mut other = SendQueue::default();
        other.push_record(&mut reply(b"two"), &mut spare);
        queue.append(&mut other, &mut spare);
        assert!(other.is_empty());
        assert_eq!(queue.bytes(), 14);
        assert_eq!(through_socket(queue), [record(b"one"), record(b"two")].concat());
    }
}
