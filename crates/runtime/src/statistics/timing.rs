//! When things happened to a call, and which calls are looked at closely.
//!
//! Every call costs one look at the clock: the end of one is the beginning of the next. Where the
//! time in between went is measured for one call in so many, by chance ([`Sampler`]).

use steadfast_engine::{CallFacts, CallSubject, CompoundOperation, Stage};

/// How a batch came, by the stamps' clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// When its connection's turn to be received from began.
    pub(crate) begun_ns: u64,
    /// When everything was received.
    pub(crate) received_ns: u64,
}

impl Arrival {
    pub(crate) fn receive_ns(self) -> u64 {
        self.received_ns.saturating_sub(self.begun_ns)
    }
}

/// What became of a call's time until it was executed for the last time, in ns. Before that it was suspended, perhaps
/// several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    /// For a name service.
    pub(crate) names: u64,
    /// For other clients.
    pub(crate) clients: u64,
    /// For its storage, for which too many waited.
    pub(crate) storage: u64,
    /// Executing, in runs that ended suspended.
    pub(crate) work: u64,
    /// Executed likewise, from where it might wait.
    pub(crate) file_system: u64,
    /// There, for the log to take a change.
    pub(crate) log_room: u64,
    /// Of a COMPOUND: the operation that took longest where it might wait, and for how long.
    pub(crate) longest: Option<(CompoundOperation, u64)>,
}

impl Waited {
    /// All of it.
    pub(crate) fn sum(&self) -> u64 {
        let Self { names, clients, storage, work, file_system, log_room, longest: _ } = self;
        names + clients + storage + work + file_system + log_room
    }

    /// With an execution that ended with the call being suspended.
    pub(crate) fn with(mut self, spent: &Spent) -> Self {
        self.work += spent.work;
        self.file_system += spent.file_system;
        self.log_room += spent.log_room;
        self
    }
}

/// What one execution spent its time on, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Until it came to where it might wait.
    pub(crate) work: u64,
    /// From then on, but for `log_room`.
    pub(crate) file_system: u64,
    /// Waiting for the log to take a change.
    pub(crate) log_room: u64,
}

impl Spent {
    /// `lent_ns`: when it came to where it might wait; 0 if it did not. `log_room_ns`: how long it waited for the log.
    pub(crate) fn new(begun_ns: u64, lent_ns: u64, ended_ns: u64, log_room_ns: u64) -> Self {
        // Who was not lent the seat did not wait, as far as the engine knew.
        let blocked_since_ns = match lent_ns {
            0 => ended_ns,
            lent_ns => lent_ns.clamp(begun_ns, ended_ns.max(begun_ns)),
        };
        let blocked_ns = ended_ns.saturating_sub(blocked_since_ns);
        let log_room = log_room_ns.min(blocked_ns);
        Self {
            work: blocked_since_ns.saturating_sub(begun_ns),
            file_system: blocked_ns - log_room,
            log_room,
        }
    }
}

/// A call that was executed, on its way to whoever sends its reply: moved several times for every call, so it is small.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    pub(crate) facts: CallFacts,
    pub(crate) subject: CallSubject,
    /// What became of its time before it was executed for the last time, if it was suspended.
    pub(crate) waited: Option<Box<Waited>>,
    /// The times of its stages were taken.
    pub(crate) is_sampled: bool,
    pub(crate) decode_ns: u32,
    pub(crate) access_ns: u32,
    pub(crate) begun_ns: u64,
    /// When it came to where it might wait, and lent its seat; 0 if it did not.
    pub(crate) lent_ns: u64,
    /// How long it waited for the log to take a change.
    pub(crate) log_room_ns: u64,
    /// Of a COMPOUND: the operation that took longest from then on.
    pub(crate) waited_in: Option<CompoundOperation>,
    pub(crate) ended_ns: u64,
    /// When what it has to flush was stable, if it waits for the log after that; 0 if it does not.
    pub(crate) flushed_ns: u64,
}

impl Executed {
    /// What the last execution spent its time on.
    pub(crate) fn spent(&self) -> Spent {
        Spent::new(self.begun_ns, self.lent_ns, self.ended_ns, self.log_room_ns)
    }

    pub(crate) fn execution_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.begun_ns)
    }

    /// What is neither decoding nor access, if that is known.
    pub(crate) fn storage_ns(&self) -> u64 {
        let others = u64::from(self.decode_ns) + u64::from(self.access_ns);
        self.execution_ns().saturating_sub(others)
    }
}

/// A call of a batch whose reply goes out with those of the others.
#[derive(Debug)]
pub(crate) struct Answered {
    /// In the batch.
    pub(crate) index: usize,
    pub(crate) executed: Executed,
}

/// Takes the times of one call's stages.
#[derive(Debug)]
pub(crate) struct StageClock {
    stage: Stage,
    since_ns: u64,
    decode_ns: u64,
    access_ns: u64,
}

impl StageClock {
    /// For a call that begins now, which it does with its decoding.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { stage: Stage::Decode, since_ns: now_ns, decode_ns: 0, access_ns: 0 }
    }

    /// Another stage begins, perhaps one that was before.
    pub(crate) fn enter(&mut self, stage: Stage, now_ns: u64) {
        let ns = now_ns.saturating_sub(self.since_ns);
        match self.stage {
            Stage::Decode => self.decode_ns += ns,
            Stage::Access => self.access_ns += ns,
            // What is left in the end.
            Stage::Storage => {}
        }
        (self.stage, self.since_ns) = (stage, now_ns);
    }

    /// The last so many ns were none of this call's.
    pub(crate) fn skip(&mut self, ns: u64) {
        self.since_ns += ns;
    }

    /// Decoding and access, when the call ends now.
    pub(crate) fn finish(mut self, now_ns: u64) -> (u32, u32) {
        self.enter(Stage::Storage, now_ns);
        // Neither waits for anything, so 4 s are enough.
        let short = |ns| u32::try_from(ns).unwrap_or(u32::MAX);
        (short(self.decode_ns), short(self.access_ns))
    }
}

/// Picks one call in so many, at distances by chance: calls that come in a pattern must not be
/// met always at the same place of it.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Calls until the next that is picked; 0: none ever is.
    left: u32,
    distance_max: u32,
    random: u64,
}

impl Sampler {
    /// One call in `one_in` on average; 0: none. Another seed, other calls.
    pub(crate) fn new(one_in: u32, seed: u64) -> Self {
        let distance_max = one_in.saturating_mul(2).saturating_sub(1);
        // Xorshift must not begin with 0, and seeds may be alike.
        let random = (seed ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut sampler = Self { left: 0, distance_max, random };
        if distance_max > 0 {
            sampler.left = sampler.distance();
        }
        sampler
    }

    /// Whether the next call is picked.
    pub(crate) fn is_next(&mut self) -> bool {
        match self.left {
            0 => false,
            1 => {
                self.left = self.distance();
                true
            }
            _ => {
                self.left -= 1;
                false
            }
        }
    }

    /// From 1 to the greatest, all alike likely, so that the mean is the wanted one.
    fn distance(&mut self) -> u32 {
        // Marsaglia, Xorshift RNGs (2003); the upper half is the better one.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let upper = self.random >> 32;
        1 + ((upper * u64::from(self.distance_max)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_so_many_is_picked_at_changing_distances() {
        for seed in [0, 1, 2, u64::MAX] {
            let mut sampler = Sampler::new(64, seed);
            let picked: Vec<usize> = (0..640_000).filter(|_| sampler.is_next()).collect();
            assert!((9_500..10_500).contains(&picked.len()), "{} of 640,000", picked.len());
            let distances: Vec<usize> = picked.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(distances.iter().all(|distance| (1..=127).contains(distance)));
            // A pattern of 16 calls is met at each of its places.
            for place in 0..16 {
                let met = picked.iter().filter(|at| *at % 16 == place).count();
                assert!((450..800).contains(&met), "place {place}: {met} of {}", picked.len());
            }
        }
    }

    #[test]
    fn other_workers_pick_other_calls() {
        let picked = |seed| {
            let mut sampler = Sampler::new(64, seed);
            (0..10_000).map(|_| sampler.is_next()).collect::<Vec<_>>()
        };
        assert_ne!(picked(1), picked(2));
        assert_eq!(picked(1), picked(1));
    }

    #[test]
    fn all_or_none_can_be_picked() {
        let (mut all, mut none) = (Sampler::new(1, 7), Sampler::new(0, 7));
        assert!((0..1000).all(|_| all.is_next() && !none.is_next()));
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let mut clock = StageClock::new(100);
        // RENAME has two objects to be found.
        for (stage, now_ns) in [
            (Stage::Access, 110),
            (Stage::Storage, 130),
            (Stage::Access, 131),
            (Stage::Storage, 140),
        ] {
            clock.enter(stage, now_ns);
        }
        let (decode_ns, access_ns) = clock.finish(200);
        assert_eq!((decode_ns, access_ns), (10, 29));
        let executed =
            Executed { decode_ns, access_ns, begun_ns: 100, ended_ns: 200, ..Executed::default() };
        assert_eq!(executed.storage_ns(), 61);
    }

    #[test]
    fn what_never_reaches_storage_has_none() {
        let (decode_ns, access_ns) = StageClock::new(5).finish(25);
        let executed =
            Executed { decode_ns, access_ns, begun_ns: 5, ended_ns: 25, ..Executed::default() };
        assert_eq!((decode_ns, executed.storage_ns()), (20, 0));
    }
}
