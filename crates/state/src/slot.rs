//! A slot: at most one request at a time, each at most once (RFC 8881 §2.10.6.1).
//!
//! All that judges a request is in one word: sequence id, phase, and 29 bits of the request's
//! digest. So whoever swaps the word has the slot, and a request that is refused has changed
//! nothing. A false retry is missed once in 5 * 10^8 times; the RFC does not demand that it is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::StateError;
use crate::under_way::{UnderWay, is_not_before};

const PHASE_BITS: u32 = 3;
const DIGEST_BITS: u32 = 29;
const DIGEST_MASK: u32 = (1 << DIGEST_BITS) - 1;

/// A slot of a session. It has a cache line of its own, since others are used by other CPUs.
#[repr(align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    word: AtomicU64,
    kept: Mutex<Option<Kept>>,
    /// What a request has done that is under way, or was when the process before this one ended.
    under_way: Mutex<Option<Box<UnderWay>>>,
}

#[derive(Debug)]
struct Kept {
    sequence: u32,
    reply: Arc<[u8]>,
}

/// The last request of a slot that must not be executed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastRequest {
    pub(crate) sequence: u32,
    pub(crate) digest: u32,
    pub(crate) reply: Option<Arc<[u8]>>,
}

/// A request that has the slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    sequence: u32,
    digest: u32,
    /// The request before left a reply that has to go.
    has_old_reply: bool,
    /// Nobody had the slot since the server was started: the process before may have begun the request.
    is_first: bool,
}

/// What became of a request that was not refused.
#[derive(Debug)]
pub(crate) enum Begun {
    New(Holding),
    InProgress,
    Kept(Arc<[u8]>),
    NotKept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was ever begun.
    Fresh,
    /// The request of this sequence id is executed.
    Busy,
    /// It is finished, and its reply is kept.
    Kept,
    /// It is finished without a kept reply.
    NotKept,
    /// As [`Phase::Fresh`], [`Phase::Kept`], [`Phase::NotKept`]; but requests that changed nothing
    /// may have followed, since the server was started again and nobody knows of them.
    FreshOrLater,
    KeptOrLater,
    NotKeptOrLater,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    sequence: u32,
    digest: u32,
    phase: Phase,
}

impl Word {
    const FRESH: Self = Self { sequence: 0, digest: 0, phase: Phase::Fresh };

    fn pack(self) -> u64 {
        let phase = match self.phase {
            Phase::Fresh => 0,
            Phase::Busy => 1,
            Phase::Kept => 2,
            Phase::NotKept => 3,
            Phase::FreshOrLater => 4,
            Phase::KeptOrLater => 5,
            Phase::NotKeptOrLater => 6,
        };
        u64::from(self.sequence) << 32 | u64::from(self.digest) << PHASE_BITS | phase
    }

    fn unpack(packed: u64) -> Self {
        let phase = match packed & 7 {
            0 => Phase::Fresh,
            1 => Phase::Busy,
            2 => Phase::Kept,
            3 => Phase::NotKept,
            4 => Phase::FreshOrLater,
            5 => Phase::KeptOrLater,
            _ => Phase::NotKeptOrLater,
        };
        let digest = packed as u32 >> PHASE_BITS;
        Self { sequence: (packed >> 32) as u32, digest, phase }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    New,
    InProgress,
    Kept,
    NotKept,
}

/// The table of a slot (RFC 8881 §2.10.6.1, §18.46.3):
///
/// | sequence id | phase | digest | the request is |
/// |---|---|---|---|
/// | slot's + 1 | not busy | | new |
/// | slot's + 1 | busy | | misordered: the client cannot have the reply before |
/// | slot's | fresh | | misordered: there was none |
/// | slot's | any other | another | a false retry |
/// | slot's | busy | same | in progress |
/// | slot's | kept, not kept | same | a retransmission |
/// | any other | | | misordered |
/// | above the slot's | kept or later, not kept or later | | new |
/// | any | fresh or later | | new |
fn judge(word: Word, sequence: u32, digest: u32) -> Result<Judged, StateError> {
    let is_next = sequence == word.sequence.wrapping_add(1);
    let is_same = sequence == word.sequence;
    let is_above = sequence.wrapping_sub(word.sequence).cast_signed() > 0;
    match word.phase {
        Phase::FreshOrLater => Ok(Judged::New),
        Phase::KeptOrLater | Phase::NotKeptOrLater if is_above => Ok(Judged::New),
        Phase::Busy if is_next => Err(StateError::SequenceMisordered),
        _ if is_next => Ok(Judged::New),
        Phase::Fresh => Err(StateError::SequenceMisordered),
        _ if !is_same => Err(StateError::SequenceMisordered),
        _ if digest != word.digest => Err(StateError::FalseRetry),
        Phase::Busy => Ok(Judged::InProgress),
        Phase::Kept | Phase::KeptOrLater => Ok(Judged::Kept),
        Phase::NotKept | Phase::NotKeptOrLater => Ok(Judged::NotKept),
    }
}

fn folded(digest: u64) -> u32 {
    (digest ^ digest >> 32) as u32 & DIGEST_MASK
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self::of(Word::FRESH, None, None)
    }

    fn of(word: Word, kept: Option<Kept>, under_way: Option<UnderWay>) -> Self {
        Self {
            word: AtomicU64::new(word.pack()),
            kept: Mutex::new(kept),
            under_way: Mutex::new(under_way.map(Box::new)),
        }
    }

    /// A slot as it is known after a restart.
    pub(crate) fn restored(last: Option<LastRequest>, under_way: Option<UnderWay>) -> Self {
        let Some(LastRequest { sequence, digest, reply }) = last else {
            let word = Word { phase: Phase::FreshOrLater, ..Word::FRESH };
            return Self::of(word, None, under_way);
        };
        let phase = if reply.is_some() { Phase::KeptOrLater } else { Phase::NotKeptOrLater };
        let word = Word { sequence, digest: digest & DIGEST_MASK, phase };
        Self::of(word, reply.map(|reply| Kept { sequence, reply }), under_way)
    }

    /// What the request that has the slot has done by now. `note` is given it, in the order of the slot's
    /// requests.
    pub(crate) fn note_done(
        &self,
        held: Holding,
        (done, is_unstable): (&[u8], bool),
        note: &dyn Fn(&UnderWay),
    ) {
        let Holding { sequence, digest, .. } = held;
        let mut under_way = self.under_way.lock();
        let now = UnderWay { sequence, digest, is_unstable, done: done.into() };
        note(&now);
        *under_way = Some(Box::new(now));
    }

    /// What the same request had done when the process before this one ended.
    pub(crate) fn done_before(&self, held: Holding) -> Option<Arc<[u8]>> {
        if !held.is_first {
            return None;
        }
        let under_way = self.under_way.lock();
        let under_way = under_way.as_ref()?;
        let is_same = (under_way.sequence, under_way.digest) == (held.sequence, held.digest);
        is_same.then(|| Arc::clone(&under_way.done))
    }

    /// Judges a request, and gives it the slot if it is new.
    pub(crate) fn begin(&self, sequence: u32, digest: u64) -> Result<Begun, StateError> {
        let digest = folded(digest);
        loop {
            let packed = self.word.load(Ordering::Acquire);
            let word = Word::unpack(packed);
            match judge(word, sequence, digest)? {
                Judged::New => {
                    let busy = Word { sequence, digest, phase: Phase::Busy }.pack();
                    let swapped = self.word.compare_exchange(
                        packed,
                        busy,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    if swapped.is_ok() {
                        let has_old_reply = matches!(word.phase, Phase::Kept | Phase::KeptOrLater);
                        let is_first = matches!(
                            word.phase,
                            Phase::FreshOrLater | Phase::KeptOrLater | Phase::NotKeptOrLater
                        );
                        let held = Holding { sequence, digest, has_old_reply, is_first };
                        return Ok(Begun::New(held));
                    }
                }
                Judged::InProgress => return Ok(Begun::InProgress),
                Judged::NotKept => return Ok(Begun::NotKept),
                Judged::Kept => {
                    if let Some(kept) = &*self.kept.lock()
                        && kept.sequence == sequence
                    {
                        return Ok(Begun::Kept(Arc::clone(&kept.reply)));
                    }
                }
            }
            // Another request took the slot since the word was read: the word has changed.
        }
    }

    /// Whether no request ever had it.
    pub(crate) fn is_fresh(&self) -> bool {
        Word::unpack(self.word.load(Ordering::Relaxed)).phase == Phase::Fresh
    }

    /// Whether a request has it.
    pub(crate) fn is_busy(&self) -> bool {
        Word::unpack(self.word.load(Ordering::Relaxed)).phase == Phase::Busy
    }

    /// Frees the slot. Whoever sees the word that says so finds the reply. `note` is given for what
    /// must not be executed again after a restart either; it is called in the order of the slot's
    /// requests.
    pub(crate) fn finish(
        &self,
        held: Holding,
        reply: Option<Arc<[u8]>>,
        note: Option<&dyn Fn(&LastRequest)>,
    ) {
        let Holding { sequence, digest, has_old_reply, .. } = held;
        let phase = if reply.is_some() { Phase::Kept } else { Phase::NotKept };
        let word = Word { sequence, digest, phase }.pack();
        if has_old_reply || reply.is_some() || note.is_some() {
            let mut kept = self.kept.lock();
            if let Some(note) = note {
                note(&LastRequest { sequence, digest, reply: reply.clone() });
                let mut under_way = self.under_way.lock();
                under_way.take_if(|before| is_not_before(sequence, before.sequence));
            }
            *kept = reply.map(|reply| Kept { sequence, reply });
            self.word.store(word, Ordering::Release);
        } else {
            self.word.store(word, Ordering::Release);
        }
    }

    /// Calls `note` with the last request that was executed, if there was one; in the order of the
    /// calls by [`Slot::finish`]. `note_under_way` gets what one has done that is under way.
    pub(crate) fn note_last(
        &self,
        note: &dyn Fn(&LastRequest),
        note_under_way: &dyn Fn(&UnderWay),
    ) {
        let kept = self.kept.lock();
        let Word { sequence, digest, phase } = Word::unpack(self.word.load(Ordering::Acquire));
        let reply = kept.as_ref().filter(|kept| kept.sequence == sequence);
        match phase {
            Phase::Fresh | Phase::FreshOrLater => {}
            // The one before it was executed, or nobody knows.
            Phase::Busy => {
                note(&LastRequest { sequence: sequence.wrapping_sub(1), digest: 0, reply: None });
            }
            Phase::Kept | Phase::NotKept | Phase::KeptOrLater | Phase::NotKeptOrLater => {
                let reply = reply.map(|kept| Arc::clone(&kept.reply));
                note(&LastRequest { sequence, digest, reply });
            }
        }
        if let Some(under_way) = self.under_way.lock().as_deref() {
            note_under_way(under_way);
        }
    }
}

impl Holding {
    /// What tells the request from others of its sequence id.
    pub(crate) fn digest(self) -> u32 {
        self.digest
    }

    /// Whether nobody had the slot since the server was started.
    pub(crate) fn is_first(self) -> bool {
        self.is_first
    }
}

#[cfg(test)]
mod tests {
    use super::{Begun, Judged, Kept, LastRequest, Phase, Slot, Word, folded, judge};
    use crate::StateError::{self, FalseRetry, SequenceMisordered};
    use crate::under_way::UnderWay;

    #[test]
    fn the_table_of_a_slot() {
        type Row = (u32, Phase, u32, u32, Result<Judged, StateError>);
        let rows: [Row; 23] = [
            // Slot's sequence id and phase; the request's sequence id and digest (the slot's is 5).
            (0, Phase::Fresh, 1, 5, Ok(Judged::New)),
            (0, Phase::Fresh, 0, 0, Err(SequenceMisordered)),
            (0, Phase::Fresh, 2, 5, Err(SequenceMisordered)),
            (9, Phase::Busy, 10, 5, Err(SequenceMisordered)),
            (9, Phase::Busy, 9, 5, Ok(Judged::InProgress)),
            (9, Phase::Busy, 9, 6, Err(FalseRetry)),
            (9, Phase::Busy, 8, 5, Err(SequenceMisordered)),
            (9, Phase::Kept, 10, 6, Ok(Judged::New)),
            (9, Phase::Kept, 9, 5, Ok(Judged::Kept)),
            (9, Phase::Kept, 9, 6, Err(FalseRetry)),
            (9, Phase::Kept, 11, 5, Err(SequenceMisordered)),
            (9, Phase::NotKept, 10, 5, Ok(Judged::New)),
            (9, Phase::NotKept, 9, 5, Ok(Judged::NotKept)),
            (u32::MAX, Phase::Kept, 0, 5, Ok(Judged::New)),
            (0, Phase::Kept, 0, 5, Ok(Judged::Kept)),
            (0, Phase::Kept, u32::MAX, 5, Err(SequenceMisordered)),
            (0, Phase::FreshOrLater, 77, 5, Ok(Judged::New)),
            (9, Phase::KeptOrLater, 9, 5, Ok(Judged::Kept)),
            (9, Phase::KeptOrLater, 9, 6, Err(FalseRetry)),
            (9, Phase::KeptOrLater, 8, 5, Err(SequenceMisordered)),
            (9, Phase::KeptOrLater, 25, 5, Ok(Judged::New)),
            (9, Phase::NotKeptOrLater, 9, 5, Ok(Judged::NotKept)),
            (u32::MAX, Phase::NotKeptOrLater, 3, 5, Ok(Judged::New)),
        ];
        for (at, phase, sequence, digest, expected) in rows {
            let word = Word { sequence: at, digest: 5, phase };
            assert_eq!(judge(word, sequence, digest), expected, "{word:?} {sequence} {digest}");
        }
    }

    #[test]
    fn a_word_keeps_all_that_is_put_in() {
        for phase in [
            Phase::Fresh,
            Phase::Busy,
            Phase::Kept,
            Phase::NotKept,
            Phase::FreshOrLater,
            Phase::KeptOrLater,
            Phase::NotKeptOrLater,
        ] {
            for sequence in [0, 1, u32::MAX] {
                for digest in [0, 1, folded(u64::from(u32::MAX))] {
                    let word = Word { sequence, digest, phase };
                    assert_eq!(Word::unpack(word.pack()), word);
                }
            }
        }
    }

    #[test]
    fn a_reply_goes_when_the_next_request_is_finished() {
        let slot = Slot::new();
        let Ok(Begun::New(held)) = slot.begin(1, 0) else { panic!("not new") };
        slot.finish(held, Some([1, 2].as_slice().into()), None);
        assert!(matches!(slot.begin(1, 0), Ok(Begun::Kept(reply)) if *reply == [1, 2]));
        let Ok(Begun::New(held)) = slot.begin(2, 0) else { panic!("not new") };
        slot.finish(held, None, None);
        assert!(slot.kept.lock().is_none());
        assert!(matches!(slot.begin(2, 0), Ok(Begun::NotKept)));
    }

    #[test]
    fn a_retransmission_that_is_overtaken_gets_no_reply_of_another() {
        let slot = Slot::new();
        let Ok(Begun::New(held)) = slot.begin(1, 0) else { panic!("not new") };
        slot.finish(held, Some([1].as_slice().into()), None);
        std::thread::scope(|scope| {
            let mut kept = slot.kept.lock();
            let retransmission = scope.spawn(|| slot.begin(1, 0));
            // It has judged the word by then, and waits for the reply. If not, the test is weaker.
            std::thread::sleep(std::time::Duration::from_millis(20));
            *kept = Some(Kept { sequence: 2, reply: [2].as_slice().into() });
            let word = Word { sequence: 2, digest: 0, phase: Phase::Kept };
            slot.word.store(word.pack(), std::sync::atomic::Ordering::Release);
            drop(kept);
            let found = retransmission.join().expect("no panic");
            assert!(matches!(found, Err(SequenceMisordered)), "{found:?}");
        });
    }

    #[test]
    fn sequence_ids_wrap() {
        let slot = Slot::new();
        let last = Word { sequence: u32::MAX - 1, digest: 0, phase: Phase::NotKept };
        slot.word.store(last.pack(), std::sync::atomic::Ordering::Relaxed);
        for sequence in [u32::MAX, 0, 1] {
            let Ok(Begun::New(held)) = slot.begin(sequence, 7) else { panic!("not new") };
            assert!(slot.is_busy());
            slot.finish(held, Some([sequence as u8].as_slice().into()), None);
            let Ok(Begun::Kept(reply)) = slot.begin(sequence, 7) else { panic!("not kept") };
            assert_eq!(*reply, [sequence as u8]);
            assert!(!slot.is_busy());
        }
        assert!(matches!(slot.begin(u32::MAX, 7), Err(SequenceMisordered)));
    }

    #[test]
    fn only_the_first_request_since_a_start_may_be_known() {
        let under_way =
            UnderWay { sequence: 5, digest: folded(7), is_unstable: false, done: [1].into() };
        let last = LastRequest { sequence: 4, digest: 0, reply: None };
        for last in [None, Some(last)] {
            let slot = Slot::restored(last, Some(under_way.clone()));
            let Ok(Begun::New(held)) = slot.begin(5, 7) else { panic!("not new") };
            assert!(held.is_first());
            assert_eq!(slot.done_before(held).as_deref(), Some(&[1][..]));
            slot.finish(held, None, None);
            let Ok(Begun::New(held)) = slot.begin(6, 7) else { panic!("not new") };
            assert!(!held.is_first());
            // No lock is taken.
            let _under_way = slot.under_way.lock();
            assert_eq!(slot.done_before(held), None);
        }
        let slot = Slot::new();
        let Ok(Begun::New(held)) = slot.begin(1, 7) else { panic!("not new") };
        assert!(!held.is_first());
    }

    #[test]
    fn a_slot_has_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
