//! The order of the segments of one direction of a TCP connection.
//!
//! What comes in order is used at once and never copied here. What comes early waits, within bounds, for
//! what is missing before it. If that does not come the capture has lost it: a *gap*.

/// Segments that wait for one before them.
const EARLY_SEGMENTS_MAX: usize = 1024;
/// Their bytes, each with [`EARLY_OVERHEAD_BYTES`]: what a connection has in flight at the most on a fast network.
pub(crate) const EARLY_BYTES_MAX: usize = 4 << 20;
/// What a waiting segment costs beside its payload. Segments of one byte, or of none that was captured, take memory as
/// well.
const EARLY_OVERHEAD_BYTES: usize = 128;
/// For how long a missing segment is waited for: longer than most retransmissions take.
pub(crate) const WAIT_NS: u64 = 2_000_000_000;
/// The same, when the receiver has acknowledged the missing bytes: they were there, and only the capture
/// has lost them or has the packets in another order.
pub(crate) const WAIT_ACKNOWLEDGED_NS: u64 = 20_000_000;
/// A sequence number that is farther away belongs to another stream: no window is larger (RFC 7323 §2.3).
const WINDOW_MAX: u32 = 1 << 30;

/// Segments in a row that are farther behind than any retransmission: the port was used again, and the capture has not
/// seen the beginning.
const BEHIND_SEGMENTS: u32 = 32;
const BEHIND_BYTES: u32 = 16 << 20;

/// A segment, as far as its order matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
    /// Bytes at its end that were not captured.
    pub(crate) missing: u32,
    pub(crate) is_syn: bool,
    pub(crate) time_ns: u64,
}

impl Segment<'_> {
    fn length(&self) -> u32 {
        (self.payload.len() as u32).saturating_add(self.missing)
    }
}

/// A segment that waits.
#[derive(Debug)]
pub(crate) struct Early {
    sequence: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) missing: u32,
    pub(crate) time_ns: u64,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// A new stream begins.
    Begin,
    /// It has nothing new.
    Old,
    /// Use it now, without its first bytes, which were here before.
    Now {
        /// Bytes to leave out.
        skip: u32,
    },
    /// It was kept.
    Early,
    /// The stream goes on elsewhere: nothing is known of what lies between.
    Elsewhere,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A segment that had waited.
    Segment(Early),
    /// So many bytes are lost.
    Gap(u32),
}

/// One direction.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the next byte; none before the first segment.
    next: Option<u32>,
    /// In the order of the stream.
    early: Vec<Early>,
    early_bytes: usize,
    /// Up to which sequence number the receiver acknowledged what is missing, and when.
    acknowledged: Option<(u32, u64)>,
    /// Segments in a row that were far behind.
    behind: u32,
}

/// How far `to` lies after `from`; negative if before.
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

impl Stream {
    /// Whether the first segment is yet to come.
    pub(crate) fn is_unseen(&self) -> bool {
        self.next.is_none()
    }

    /// Bytes that wait, with what they cost beside.
    pub(crate) fn early_bytes(&self) -> usize {
        self.early_bytes
    }

    /// Forgets what waits, to save memory. It is a gap then.
    pub(crate) fn drop_early(&mut self) {
        self.early = Vec::new();
        self.early_bytes = 0;
        self.acknowledged = None;
    }

    /// Decides about a segment. After `Now` and `Elsewhere` the caller uses its bytes, then asks
    /// [`Stream::poll_next`] until there is nothing.
    pub(crate) fn handle(&mut self, segment: &Segment<'_>) -> Placement {
        if segment.is_syn {
            let first = segment.sequence.wrapping_add(1);
            // A repeated SYN begins nothing.
            if self.next.is_some_and(|next| (0..64 << 10).contains(&distance(first, next))) {
                return Placement::Old;
            }
            *self = Self { next: Some(first), ..Self::default() };
            return Placement::Begin;
        }
        let length = segment.length();
        if length == 0 {
            return Placement::Old;
        }
        let end = segment.sequence.wrapping_add(length);
        let Some(next) = self.next else {
            self.next = Some(end);
            return Placement::Elsewhere;
        };
        let ahead = distance(next, segment.sequence);
        if ahead.unsigned_abs() > WINDOW_MAX {
            *self = Self { next: Some(end), ..Self::default() };
            return Placement::Elsewhere;
        }
        if ahead > 0 {
            self.keep(segment);
            return Placement::Early;
        }
        let skip = ahead.unsigned_abs();
        if skip >= length {
            self.behind = if skip > BEHIND_BYTES { self.behind + 1 } else { 0 };
            if self.behind < BEHIND_SEGMENTS {
                return Placement::Old;
            }
            *self = Self { next: Some(end), ..Self::default() };
            return Placement::Elsewhere;
        }
        self.behind = 0;
        self.next = Some(end);
        Placement::Now { skip }
    }

    /// The receiver has everything before this sequence number.
    pub(crate) fn handle_acknowledged(&mut self, until: u32, now_ns: u64) {
        let Some(next) = self.next else { return };
        // One of before the present gap says nothing about it.
        let is_known = self.acknowledged.is_some_and(|(before, _)| distance(next, before) > 0);
        if !is_known && !self.early.is_empty() && distance(next, until) > 0 {
            self.acknowledged = Some((until, now_ns));
        }
    }

    /// A segment whose turn has come, or a gap that nobody will fill.
    pub(crate) fn poll_next(&mut self, now_ns: u64) -> Option<Next> {
        loop {
            let next = self.next?;
            let first = self.early.first()?;
            let ahead = distance(next, first.sequence);
            if ahead > 0 {
                if !self.gives_up(next, first.time_ns, now_ns) {
                    return None;
                }
                self.next = Some(first.sequence);
                self.acknowledged = None;
                return Some(Next::Gap(ahead.unsigned_abs()));
            }
            let mut early = self.early.remove(0);
            let cost = early.payload.len() + EARLY_OVERHEAD_BYTES;
            self.early_bytes = self.early_bytes.saturating_sub(cost);
            if self.early.is_empty() {
                self.acknowledged = None;
            }
            let skip = ahead.unsigned_abs();
            let length = (early.payload.len() as u32).saturating_add(early.missing);
            if skip >= length {
                continue;
            }
            let there = (skip as usize).min(early.payload.len());
            early.payload.drain(..there);
            early.missing -= skip - there as u32;
            self.next = Some(early.sequence.wrapping_add(length));
            return Some(Next::Segment(early));
        }
    }

    /// Whether what is missing from `next` on is waited for no longer.
    fn gives_up(&self, next: u32, since_ns: u64, now_ns: u64) -> bool {
        self.early.len() >= EARLY_SEGMENTS_MAX
            || self.early_bytes >= EARLY_BYTES_MAX
            || now_ns.saturating_sub(since_ns) >= WAIT_NS
            || self.acknowledged.is_some_and(|(until, at_ns)| {
                distance(next, until) > 0 && now_ns.saturating_sub(at_ns) >= WAIT_ACKNOWLEDGED_NS
            })
    }

    fn keep(&mut self, segment: &Segment<'_>) {
        let at = self.early.partition_point(|each| distance(segment.sequence, each.sequence) < 0);
        // The longer one of two that begin alike is enough.
        if let Some(there) = self.early.get_mut(at)
            && there.sequence == segment.sequence
        {
            if (there.payload.len() as u64 + u64::from(there.missing))
                >= u64::from(segment.length())
            {
                return;
            }
            self.early_bytes += segment.payload.len();
            self.early_bytes = self.early_bytes.saturating_sub(there.payload.len());
            there.payload = segment.payload.to_vec();
            there.missing = segment.missing;
            return;
        }
        self.early_bytes += segment.payload.len() + EARLY_OVERHEAD_BYTES;
        let early = Early {
            sequence: segment.sequence,
            payload: segment.payload.to_vec(),
            missing: segment.missing,
            time_ns: segment.time_ns,
        };
        self.early.insert(at, early);
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use super::{EARLY_BYTES_MAX, Next, Placement, Segment, Stream, WAIT_ACKNOWLEDGED_NS, WAIT_NS};

    fn segment(sequence: u32, payload: &[u8]) -> Segment<'_> {
        Segment { sequence, payload, missing: 0, is_syn: false, time_ns: 0 }
    }

    fn begun(sequence: u32) -> Stream {
        let mut stream = Stream::default();
        let syn = Segment { is_syn: true, ..segment(sequence, &[]) };
        assert_eq!(stream.handle(&syn), Placement::Begin);
        stream
    }

    fn next_bytes(stream: &mut Stream, now_ns: u64) -> Option<Vec<u8>> {
        match stream.poll_next(now_ns)? {
            Next::Segment(early) => Some(early.payload),
            Next::Gap(_) => None,
        }
    }

    #[test]
    fn segments_are_used_in_order_across_the_end_of_the_numbers() {
        let mut stream = begun(u32::MAX - 3);
        assert_eq!(stream.handle(&segment(u32::MAX - 2, b"ab")), Placement::Now { skip: 0 });
        assert_eq!(stream.handle(&segment(3, b"fgh")), Placement::Early);
        assert_eq!(stream.handle(&segment(1, b"de")), Placement::Early);
        assert!(stream.poll_next(0).is_none());
        assert_eq!(stream.handle(&segment(u32::MAX, b"?c")), Placement::Now { skip: 0 });
        assert_eq!(next_bytes(&mut stream, 0).as_deref(), Some(&b"de"[..]));
        assert_eq!(next_bytes(&mut stream, 0).as_deref(), Some(&b"fgh"[..]));
        assert!(stream.poll_next(0).is_none());
        assert_eq!(stream.early_bytes(), 0);
    }

    #[test]
    fn retransmitted_bytes_are_left_out() {
        let mut stream = begun(9);
        assert_eq!(stream.handle(&segment(10, b"abcd")), Placement::Now { skip: 0 });
        assert_eq!(stream.handle(&segment(10, b"abcd")), Placement::Old);
        assert_eq!(stream.handle(&segment(9, b"x")), Placement::Old, "a keep-alive");
        assert_eq!(stream.handle(&segment(12, b"cdef")), Placement::Now { skip: 2 });
        let syn = Segment { is_syn: true, ..segment(9, &[]) };
        assert_eq!(stream.handle(&syn), Placement::Old);
        assert_eq!(stream.handle(&segment(16, b"g")), Placement::Now { skip: 0 });
    }

    #[test]
    fn early_segments_may_overlap() {
        let mut stream = begun(9);
        assert_eq!(stream.handle(&segment(12, b"cd")), Placement::Early);
        assert_eq!(stream.handle(&segment(12, b"cdef")), Placement::Early);
        assert_eq!(stream.handle(&segment(13, b"d")), Placement::Early);
        assert_eq!(stream.handle(&segment(15, b"fgh")), Placement::Early);
        assert_eq!(stream.handle(&segment(10, b"ab")), Placement::Now { skip: 0 });
        assert_eq!(next_bytes(&mut stream, 0).as_deref(), Some(&b"cdef"[..]));
        assert_eq!(next_bytes(&mut stream, 0).as_deref(), Some(&b"gh"[..]));
        assert_eq!(stream.early_bytes(), 0);
    }

    #[test]
    fn a_gap_is_given_up_by_time_by_acknowledgement_and_by_size() {
        let lost = |stream: &mut Stream, now_ns| match stream.poll_next(now_ns) {
            Some(Next::Gap(bytes)) => Some(bytes),
            _ => None,
        };
        let mut stream = begun(9);
        stream.handle(&segment(15, b"x"));
        assert_eq!(lost(&mut stream, WAIT_NS - 1), None);
        assert_eq!(lost(&mut stream, WAIT_NS), Some(5));
        assert_eq!(next_bytes(&mut stream, WAIT_NS).as_deref(), Some(&b"x"[..]));

        let mut stream = begun(9);
        stream.handle(&segment(15, b"x"));
        stream.handle_acknowledged(10, 5);
        assert_eq!(lost(&mut stream, 5 + WAIT_ACKNOWLEDGED_NS), None, "it is not acknowledged yet");
        stream.handle_acknowledged(16, 5);
        assert_eq!(lost(&mut stream, 4 + WAIT_ACKNOWLEDGED_NS), None);
        assert_eq!(lost(&mut stream, 5 + WAIT_ACKNOWLEDGED_NS), Some(5));

        let mut stream = begun(9);
        let large = vec![0; EARLY_BYTES_MAX / 4];
        for index in 0..4_u32 {
            assert_eq!(lost(&mut stream, 0), None);
            stream.handle(&segment(15 + index * large.len() as u32, &large));
        }
        assert_eq!(lost(&mut stream, 0), Some(5));
    }

    #[test]
    fn an_acknowledgement_of_before_gives_up_no_later_gap() {
        let mut stream = begun(9);
        stream.handle(&segment(15, b"x"));
        stream.handle(&segment(25, b"y"));
        stream.handle_acknowledged(16, 5);
        assert_eq!(stream.handle(&segment(10, b"abcde")), Placement::Now { skip: 0 });
        assert_eq!(next_bytes(&mut stream, 6).as_deref(), Some(&b"x"[..]));
        // The bytes from 16 on are lost on the way to the receiver, which does not have them either.
        assert!(stream.poll_next(6 + WAIT_ACKNOWLEDGED_NS).is_none());
        stream.handle_acknowledged(26, 50_000_000);
        assert!(stream.poll_next(49_999_999 + WAIT_ACKNOWLEDGED_NS).is_none());
        let next = stream.poll_next(50_000_000 + WAIT_ACKNOWLEDGED_NS);
        assert!(matches!(next, Some(Next::Gap(9))), "{next:?}");
    }

    #[test]
    fn segments_without_bytes_take_memory_too() {
        let mut stream = begun(9);
        for index in 0..100 {
            stream.handle(&Segment { missing: 1, ..segment(100 + 2 * index, b"") });
        }
        assert!(stream.early_bytes() >= 100 * size_of::<super::Early>());
        stream.handle_acknowledged(11, 0);
        while stream.poll_next(WAIT_NS).is_some() {}
        assert_eq!(stream.early_bytes(), 0);
    }

    #[test]
    fn a_stream_that_is_met_in_the_middle_or_jumps_is_told() {
        let mut stream = Stream::default();
        assert!(stream.is_unseen());
        assert_eq!(stream.handle(&segment(77, b"ab")), Placement::Elsewhere);
        assert_eq!(stream.handle(&segment(79, b"cd")), Placement::Now { skip: 0 });
        assert_eq!(stream.handle(&segment(79 + (3 << 29), b"cd")), Placement::Elsewhere);
        assert_eq!(stream.handle(&segment(81 + (3 << 29), b"e")), Placement::Now { skip: 0 });
    }

    #[test]
    fn a_port_that_is_used_again_is_noticed_without_its_beginning() {
        let mut stream = begun(500_000_000);
        let mut sequence = 400_000_000;
        let mut first = None;
        for number in 0..100 {
            if stream.handle(&segment(sequence, b"ab")) != Placement::Old && first.is_none() {
                first = Some(number);
            }
            sequence += 2;
        }
        assert_eq!(first, Some(31));
        assert_eq!(stream.handle(&segment(sequence, b"ab")), Placement::Now { skip: 0 });
    }
}
