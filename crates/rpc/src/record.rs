//! Record marking (RFC 5531 §11): where the records of a stream begin and end.
//!
//! A record is one or more fragments of 0 to 2³¹ - 1 bytes, each behind a [`Mark`]. A [`Splitter`] is
//! a place in such a stream: it is fed bytes, or told how many went elsewhere, and says what comes
//! next. It neither reads nor keeps bytes of records, so whoever receives decides where they go.

/// Bytes of a record mark.
pub const MARK_BYTES: usize = 4;

/// Most bytes of a fragment that a mark can announce.
pub const FRAGMENT_BYTES_MAX: usize = 0x7fff_ffff;

/// Bit of a mark that says: the record's last fragment.
const LAST_FRAGMENT: u32 = 0x8000_0000;

/// What stands before a fragment: its length, and whether it is the record's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(u32);

impl Mark {
    /// The mark of a fragment.
    ///
    /// # Panics
    /// For more than [`FRAGMENT_BYTES_MAX`], which no mark can say. Messages of ours are bounded far
    /// below that.
    #[inline]
    pub const fn new(fragment_bytes: usize, is_last: bool) -> Self {
        assert!(fragment_bytes <= FRAGMENT_BYTES_MAX, "a fragment of 2 GiB or more");
        Self(fragment_bytes as u32 | if is_last { LAST_FRAGMENT } else { 0 })
    }

    /// The mark of a record of one fragment.
    ///
    /// # Panics
    /// As [`Mark::new`].
    #[inline]
    pub const fn whole(record_bytes: usize) -> Self {
        Self::new(record_bytes, true)
    }

    /// The mark of these bytes. Each four bytes are one.
    #[inline]
    pub const fn from_bytes(bytes: [u8; MARK_BYTES]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// As it is sent.
    #[inline]
    pub const fn to_bytes(self) -> [u8; MARK_BYTES] {
        self.0.to_be_bytes()
    }

    /// Length of the fragment in bytes.
    #[inline]
    pub const fn fragment_bytes(self) -> usize {
        (self.0 & !LAST_FRAGMENT) as usize
    }

    /// Whether the record ends with this fragment.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.0 & LAST_FRAGMENT != 0
    }
}

/// Fills in the mark of a record of one fragment, for which the first four bytes were left.
///
/// # Panics
/// As [`Mark::new`].
pub fn fill_in_mark(record: &mut [u8]) {
    let length = record.len().saturating_sub(MARK_BYTES);
    if let Some(place) = record.first_chunk_mut() {
        *place = Mark::whole(length).to_bytes();
    }
}

/// A peer announced more than a record may have. Where the next record begins is unknown, so the
/// connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("announced a record of {announced_bytes} bytes; at most {max_bytes} are taken")]
pub struct TooLarge {
    /// Bytes of the record, as far as they were announced.
    pub announced_bytes: u64,
    /// The bound.
    pub max_bytes: usize,
}

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'b> {
    /// Bytes of the record, never none.
    Piece(&'b [u8]),
    /// The record has ended: it is the pieces since the last end. A record may have no bytes at all.
    End,
    /// All bytes were used.
    Starved,
}

/// A place in a stream of records. It takes four words, whatever a peer sends.
#[derive(Clone, Debug, Default)]
pub struct Splitter {
    mark: [u8; MARK_BYTES],
    mark_bytes: usize,
    /// A record has begun, and its end was not told.
    is_inside: bool,
    is_last: bool,
    fragment_left: usize,
    /// Of the record, as far as it was announced: never more than the bound.
    announced_bytes: usize,
}

impl Splitter {
    /// Whether part of a record has come and the rest has not.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.is_inside || self.mark_bytes > 0
    }

    /// Bytes of the fragment that are still to come; 0 where a mark is next.
    #[inline]
    pub fn fragment_left(&self) -> usize {
        self.fragment_left
    }

    /// The common case, for which nothing is remembered: a record of one fragment that is not empty
    /// and lies whole at the beginning of `bytes`. The record, and what is behind it.
    #[inline]
    pub fn whole<'b>(
        &self,
        bytes: &'b [u8],
        record_bytes_max: usize,
    ) -> Option<(&'b [u8], &'b [u8])> {
        if self.is_partial() {
            return None;
        }
        let (mark, body) = bytes.split_first_chunk()?;
        let mark = Mark::from_bytes(*mark);
        let length = mark.fragment_bytes();
        let is_possible = mark.is_last() && (1..=record_bytes_max).contains(&length);
        if is_possible { body.split_at_checked(length) } else { None }
    }

    /// Takes what comes next off the beginning of `bytes`: to be called until it is
    /// [`Step::Starved`]. Each call but those takes a byte at least, or tells an end.
    ///
    /// # Errors
    /// When a mark announces more than `record_bytes_max` for the record, however many fragments it
    /// has. Nothing can be read from the stream afterwards.
    #[inline]
    pub fn step<'b>(
        &mut self,
        bytes: &mut &'b [u8],
        record_bytes_max: usize,
    ) -> Result<Step<'b>, TooLarge> {
        loop {
            if self.take_end() {
                return Ok(Step::End);
            }
            if bytes.is_empty() {
                return Ok(Step::Starved);
            }
            if self.fragment_left > 0 {
                let (piece, rest) = bytes.split_at(bytes.len().min(self.fragment_left));
                self.fragment_left -= piece.len();
                *bytes = rest;
                return Ok(Step::Piece(piece));
            }
            if let Some(mark) = self.take_mark(bytes) {
                self.begin_fragment(mark, record_bytes_max)?;
            }
        }
    }

    /// Takes note of so many bytes of the fragment that did not come by [`Splitter::step`].
    /// [`Splitter::take_end`] tells whether the record has ended by that.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.fragment_left -= count.min(self.fragment_left);
    }

    /// Whether the record has ended; tells it once.
    #[inline]
    pub fn take_end(&mut self) -> bool {
        let has_ended = self.is_inside && self.is_last && self.fragment_left == 0;
        if has_ended {
            self.is_inside = false;
            self.announced_bytes = 0;
        }
        has_ended
    }

    fn take_mark(&mut self, bytes: &mut &[u8]) -> Option<Mark> {
        let missing = MARK_BYTES.saturating_sub(self.mark_bytes);
        let (part, rest) = bytes.split_at(bytes.len().min(missing));
        *bytes = rest;
        for (place, byte) in self.mark.iter_mut().skip(self.mark_bytes).zip(part) {
            *place = *byte;
        }
        self.mark_bytes += part.len();
        if self.mark_bytes < MARK_BYTES {
            return None;
        }
        self.mark_bytes = 0;
        Some(Mark::from_bytes(self.mark))
    }

    /// A fragment may be empty, the last and the only one too. It costs no memory, and no more time
    /// than its four bytes.
    fn begin_fragment(&mut self, mark: Mark, record_bytes_max: usize) -> Result<(), TooLarge> {
        let announced_bytes = self.announced_bytes as u64 + mark.fragment_bytes() as u64;
        if announced_bytes > record_bytes_max as u64 {
            return Err(TooLarge { announced_bytes, max_bytes: record_bytes_max });
        }
        self.is_inside = true;
        self.is_last = mark.is_last();
        self.fragment_left = mark.fragment_bytes();
        self.announced_bytes += mark.fragment_bytes();
        Ok(())
    }
}
