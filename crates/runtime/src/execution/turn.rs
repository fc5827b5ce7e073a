//! The time of a turn: how much of it is left, and since when replies have been gathered. It is told the times, and has
//! no clock of its own.

/// Gathered replies are sent when they are this many bytes, before the turn's end.
const GATHER_BYTES: usize = 1 << 20;
/// Parked calls are handed over when they are this many, before the turn's end.
const GATHER_PARKED: usize = 32;
/// Replies and parked calls are gathered no longer than about this many ms.
const GATHER_MS: u64 = 1;
/// A connection's turn ends after this time, in ns, though it has further calls: they are left to a
/// later turn, so that a batch of large reads does not keep other clients waiting.
const TURN_NS: u64 = 300_000;

/// One worker's turn with one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// When the last call ended, or the turn began.
    mark_ns: u64,
    /// When the turn began; later by the time in which replies to others were sent.
    begun_ns: u64,
    /// By the clock of time-outs.
    now_ms: u64,
    /// Since when replies have been gathered, by the same clock.
    gathered_since_ms: u64,
}

/// What the calls of a turn have left to be sent or handed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathered {
    pub(super) is_empty: bool,
    pub(super) bytes: usize,
    pub(super) parked: usize,
}

/// When replies to others were sent, in ns: none of the turn's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentForOthers {
    pub(super) since_ns: u64,
    pub(super) until_ns: u64,
}

impl SentForOthers {
    pub(super) fn took_ns(self) -> u64 {
        self.until_ns.saturating_sub(self.since_ns)
    }
}

impl Turn {
    pub(super) fn begin(now_ns: u64, now_ms: u64) -> Self {
        Self { mark_ns: now_ns, begun_ns: now_ns, now_ms, gathered_since_ms: now_ms }
    }

    /// When the last call ended, or what came after it: the next call's time begins here, without a look at a clock.
    pub(super) fn mark_ns(&self) -> u64 {
        self.mark_ns
    }

    /// The time for time-outs. It advances with turns, and with calls that might have blocked.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A call might have blocked, or the worker has: it is this time now.
    pub(super) fn advance(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// A call has ended, during which replies to others were sent for so long.
    pub(super) fn call_ended(&mut self, ended_ns: u64, sending_ns: u64) {
        self.mark_ns = ended_ns;
        self.begun_ns += sending_ns;
    }

    /// Replies to others were sent between two calls.
    pub(super) fn sent_for_others(&mut self, sent: SentForOthers) {
        self.mark_ns = sent.until_ns;
        self.begun_ns += sent.took_ns();
    }

    /// What was gathered was sent. That is the turn's time, and none of the next call's.
    pub(super) fn sent_gathered(&mut self, now_ns: u64) {
        self.mark_ns = now_ns;
        self.gathered_since_ms = self.now_ms;
    }

    /// Whether what was gathered is to be sent before the next call.
    pub(super) fn is_to_send(&self, gathered: Gathered) -> bool {
        // The clock advances here only with calls that might have blocked: their company must not wait for many of
        // them.
        let is_late = self.now_ms > self.gathered_since_ms + GATHER_MS && !gathered.is_empty;
        is_late || gathered.bytes >= GATHER_BYTES || gathered.parked >= GATHER_PARKED
    }

    /// Whether other clients are to have their turns now.
    pub(super) fn is_over(&self) -> bool {
        self.mark_ns >= self.begun_ns.saturating_add(TURN_NS)
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings, on a virtual clock.
    use proptest::prelude::*;

    use super::*;

    const NOTHING: Gathered = Gathered { is_empty: true, bytes: 0, parked: 0 };
    const A_REPLY: Gathered = Gathered { is_empty: false, bytes: 100, parked: 0 };

    #[test]
    fn a_turn_ends_when_its_own_time_is_used() {
        let mut turn = Turn::begin(1_000, 5);
        turn.call_ended(1_000 + TURN_NS - 1, 0);
        assert!(!turn.is_over());
        turn.call_ended(1_000 + TURN_NS, 0);
        assert!(turn.is_over());
    }

    #[test]
    fn replies_to_others_are_sent_on_nobodys_time() {
        let mut turn = Turn::begin(0, 5);
        turn.call_ended(TURN_NS, 7);
        assert!(!turn.is_over(), "7 ns of the call were theirs");
        turn.sent_for_others(SentForOthers { since_ns: TURN_NS, until_ns: 3 * TURN_NS });
        assert_eq!((turn.is_over(), turn.mark_ns()), (false, 3 * TURN_NS));
        turn.sent_gathered(3 * TURN_NS + 7);
        assert!(turn.is_over(), "its own replies are on its own time");
    }

    #[test]
    fn gathered_replies_do_not_wait_for_many_calls_that_block() {
        let mut turn = Turn::begin(0, 5);
        turn.advance(6);
        assert!(!turn.is_to_send(A_REPLY));
        turn.advance(7);
        assert!(turn.is_to_send(A_REPLY) && !turn.is_to_send(NOTHING));
        turn.sent_gathered(100);
        assert!(!turn.is_to_send(A_REPLY), "those that are gathered from now on may wait again");
        turn.advance(9);
        assert!(turn.is_to_send(A_REPLY));
    }

    #[test]
    fn much_is_not_gathered() {
        let turn = Turn::begin(0, 5);
        for (bytes, parked, is_much) in [
            (GATHER_BYTES - 1, GATHER_PARKED - 1, false),
            (GATHER_BYTES, 0, true),
            (0, GATHER_PARKED, true),
        ] {
            assert_eq!(turn.is_to_send(Gathered { is_empty: false, bytes, parked }), is_much);
        }
    }

    /// What happens in a turn, and for how long.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A call, so much of whose time replies to others are sent.
        Call { ns: u64, sending_ns: u64 },
        /// A call that blocks.
        Blocking { ms: u64 },
        /// Replies to others are sent between calls.
        ForOthers { ns: u64 },
        /// What was gathered is sent.
        Own { ns: u64 },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..60_000_u64, 0..100_u64)
                .prop_map(|(ns, percent)| { Event::Call { ns, sending_ns: ns * percent / 100 } }),
            (0..3_u64).prop_map(|ms| Event::Blocking { ms }),
            (0..200_000_u64).prop_map(|ns| Event::ForOthers { ns }),
            (0..30_000_u64).prop_map(|ns| Event::Own { ns }),
        ]
    }

    proptest! {
        /// Whatever happens: a turn lasts as long as its own time does, the next call begins where all before has
        /// ended, and no reply is gathered for longer than it may be.
        #[test]
        fn each_pays_for_its_own_time(
            begun_ns in 0..u64::MAX / 2,
            begun_ms in 0..u64::MAX / 2,
            events in proptest::collection::vec(event(), 0..60),
        ) {
            let mut turn = Turn::begin(begun_ns, begun_ms);
            let (mut now_ns, mut now_ms, mut own_ns, mut sent_ms) = (begun_ns, begun_ms, 0, begun_ms);
            for event in events {
                match event {
                    Event::Call { ns, sending_ns } => {
                        (now_ns, own_ns) = (now_ns + ns, own_ns + ns - sending_ns);
                        turn.call_ended(now_ns, sending_ns);
                    }
                    Event::Blocking { ms } => {
                        let ns = ms * 1_000_000;
                        (now_ns, now_ms, own_ns) = (now_ns + ns, now_ms + ms, own_ns + ns);
                        turn.advance(now_ms);
                        turn.call_ended(now_ns, 0);
                    }
                    Event::ForOthers { ns } => {
                        let since_ns = now_ns;
                        now_ns += ns;
                        turn.sent_for_others(SentForOthers { since_ns, until_ns: now_ns });
                    }
                    Event::Own { ns } => {
                        (now_ns, own_ns, sent_ms) = (now_ns + ns, own_ns + ns, now_ms);
                        turn.sent_gathered(now_ns);
                    }
                }
                prop_assert_eq!((turn.mark_ns(), turn.now_ms()), (now_ns, now_ms));
                prop_assert_eq!(turn.is_over(), own_ns >= TURN_NS);
                prop_assert_eq!(turn.is_to_send(A_REPLY), now_ms - sent_ms > GATHER_MS);
                prop_assert!(!turn.is_to_send(NOTHING));
            }
        }
    }
}
