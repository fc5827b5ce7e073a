//! What clients of NFSv4 open and lock, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::operation::Number;

/// The number of a life of a client.
pub(crate) type LifeNumber = u32;
/// The number of a deed.
pub(crate) type DeedNumber = u32;

/// One life of a client: whoever has the same owner and verifier is the same.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The owner that it names.
    pub(crate) owner: Vec<u8>,
    /// The verifier, another one in each life.
    pub(crate) verifier: [u8; 8],
    /// The life of the same owner before it, which ends by it.
    pub(crate) before: Option<LifeNumber>,
    /// A call that was answered in its session.
    pub(crate) call: Vec<u8>,
}

/// What a file is opened for, and what is denied to others: bits as in OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) access: u32,
    pub(crate) deny: u32,
}

/// What a client does beside what it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It makes itself known.
    Begin,
    /// It opens a file, and may make it by that.
    Open { object: Number, modes: Modes },
    /// It closes a file.
    Close { object: Number },
    /// It locks a range of a file, of this number.
    Lock { object: Number, range: u8 },
    /// It unlocks one.
    Unlock { object: Number, range: u8 },
    /// It has closed all, and leaves.
    End,
}

impl What {
    fn object(self) -> Option<Number> {
        match self {
            Self::Open { object, .. }
            | Self::Close { object }
            | Self::Lock { object, .. }
            | Self::Unlock { object, .. } => Some(object),
            Self::Begin | Self::End => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Deed {
    life: LifeNumber,
    what: What,
    /// Whether it was done; `None` while nobody knows.
    is_done: Option<bool>,
}

/// All that clients of NFSv4 did, in the order in which it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deeds {
    lives: Vec<Life>,
    all: Vec<Deed>,
}

impl Deeds {
    /// A life is about to begin.
    pub(crate) fn begin(&mut self, life: Life) -> (LifeNumber, DeedNumber) {
        let number = self.lives.len() as LifeNumber;
        self.lives.push(life);
        (number, self.send(number, What::Begin))
    }

    /// Something is about to be sent.
    pub(crate) fn send(&mut self, life: LifeNumber, what: What) -> DeedNumber {
        self.all.push(Deed { life, what, is_done: None });
        self.all.len() as DeedNumber - 1
    }

    /// It was answered.
    pub(crate) fn answer(&mut self, deed: DeedNumber, is_done: bool) {
        if let Some(deed) = self.all.get_mut(deed as usize) {
            deed.is_done = Some(is_done);
        }
    }

    /// A call of a life's session was answered.
    pub(crate) fn keep_call(&mut self, life: LifeNumber, call: &[u8]) {
        if let Some(life) = self.lives.get_mut(life as usize)
            && life.call.is_empty()
        {
            call.clone_into(&mut life.call);
        }
    }

    /// A life.
    pub(crate) fn life(&self, number: LifeNumber) -> Option<&Life> {
        self.lives.get(number as usize)
    }

    /// What follows from all of them.
    pub(crate) fn holdings(&self) -> Holdings {
        let mut holdings = Holdings::default();
        for (number, deed) in self.all.iter().enumerate() {
            holdings.sent(self, number as DeedNumber);
            if deed.is_done.is_some() {
                holdings.answered(self, number as DeedNumber);
            }
        }
        holdings
    }
}

/// Whether something is so, as far as a client can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// It was never asked for.
    #[default]
    No,
    /// It was asked for.
    Maybe,
    /// It was acknowledged.
    Yes,
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) modes: Modes,
    /// The ranges that are locked.
    pub(crate) locked: BTreeSet<u8>,
}

/// What one life of a client has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    has_begun: Known,
    /// It was granted an open, so that the server has it in its records.
    is_recorded: Known,
    /// It has left, or another life has taken its place.
    has_left: Known,
    opens: BTreeMap<Number, OpenFile>,
    /// Files that it was about to open, close, lock or unlock.
    under_way: BTreeSet<Number>,
}

/// Who may reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// It must be able to.
    Yes,
    /// Nobody knows: the server had not answered.
    Maybe,
    /// It must not.
    No,
}

impl Standing {
    /// Whether it may reclaim what it had.
    pub(crate) fn right(&self) -> Right {
        match (self.is_recorded, self.has_left) {
            (Known::Yes, Known::No) => Right::Yes,
            (Known::No, _) | (_, Known::Yes) => Right::No,
            _ => Right::Maybe,
        }
    }

    /// Whether the server has met it.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun > Known::No
    }

    /// What it has open for certain.
    pub(crate) fn opens(&self) -> impl Iterator<Item = (Number, &OpenFile)> {
        let certain = self.opens.iter().filter(|(object, _)| !self.under_way.contains(object));
        certain.map(|(object, open)| (*object, open))
    }
}

/// Who has what at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    lives: BTreeMap<LifeNumber, Standing>,
}

impl Holdings {
    /// All lives so far, in the order in which they began.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (LifeNumber, &Standing)> {
        self.lives.iter().map(|(number, standing)| (*number, standing))
    }

    /// A deed was about to be sent.
    pub(crate) fn sent(&mut self, deeds: &Deeds, number: DeedNumber) {
        let Some(deed) = deeds.all.get(number as usize) else { return };
        let standing = self.lives.entry(deed.life).or_default();
        standing.under_way.extend(deed.what.object());
        match deed.what {
            What::Begin => {
                standing.has_begun = Known::Maybe;
                self.leave(deeds, deed.life, Known::Maybe);
            }
            What::Open { .. } => standing.is_recorded = standing.is_recorded.max(Known::Maybe),
            What::End => standing.has_left = Known::Maybe,
            What::Close { .. } | What::Lock { .. } | What::Unlock { .. } => {}
        }
    }

    /// It was answered.
    pub(crate) fn answered(&mut self, deeds: &Deeds, number: DeedNumber) {
        let Some(deed) = deeds.all.get(number as usize) else { return };
        let standing = self.lives.entry(deed.life).or_default();
        if let Some(object) = deed.what.object() {
            standing.under_way.remove(&object);
        }
        if deed.is_done != Some(true) {
            return;
        }
        match deed.what {
            What::Begin => {
                standing.has_begun = Known::Yes;
                self.leave(deeds, deed.life, Known::Yes);
            }
            What::Open { object, modes } => {
                standing.is_recorded = Known::Yes;
                standing.opens.insert(object, OpenFile { modes, locked: BTreeSet::new() });
            }
            What::Close { object } => drop(standing.opens.remove(&object)),
            What::Lock { object, range } => {
                if let Some(open) = standing.opens.get_mut(&object) {
                    open.locked.insert(range);
                }
            }
            What::Unlock { object, range } => {
                if let Some(open) = standing.opens.get_mut(&object) {
                    open.locked.remove(&range);
                }
            }
            What::End => standing.has_left = Known::Yes,
        }
    }

    /// The life before this one has left.
    fn leave(&mut self, deeds: &Deeds, life: LifeNumber, known: Known) {
        let before = deeds.life(life).and_then(|life| life.before);
        if let Some(standing) = before.and_then(|before| self.lives.get_mut(&before)) {
            standing.has_left = standing.has_left.max(known);
            if known == Known::Yes {
                standing.opens.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: Modes = Modes { access: 3, deny: 0 };

    fn life(before: Option<LifeNumber>) -> Life {
        Life { owner: b"o".to_vec(), verifier: [0; 8], before, call: Vec::new() }
    }

    /// The right of a life, and how many opens and locks it has.
    fn standing(deeds: &Deeds, number: LifeNumber) -> (Right, usize, usize) {
        let holdings = deeds.holdings();
        let standing = &holdings.lives[&number];
        let locks = standing.opens().map(|(_, open)| open.locked.len()).sum();
        (standing.right(), standing.opens().count(), locks)
    }

    #[test]
    fn who_has_opened_something_may_reclaim_until_another_life_comes() {
        let mut deeds = Deeds::default();
        let (one, begun) = deeds.begin(life(None));
        assert_eq!(standing(&deeds, one), (Right::No, 0, 0));
        deeds.answer(begun, true);
        let opened = deeds.send(one, What::Open { object: 7, modes: MODES });
        assert_eq!(standing(&deeds, one), (Right::Maybe, 0, 0));
        deeds.answer(opened, true);
        assert_eq!(standing(&deeds, one), (Right::Yes, 1, 0));
        let locked = deeds.send(one, What::Lock { object: 7, range: 1 });
        assert_eq!(standing(&deeds, one), (Right::Yes, 0, 0), "nobody knows");
        deeds.answer(locked, true);
        assert_eq!(standing(&deeds, one), (Right::Yes, 1, 1));
        let (two, begun) = deeds.begin(life(Some(one)));
        assert_eq!(standing(&deeds, one).0, Right::Maybe);
        deeds.answer(begun, true);
        assert_eq!(standing(&deeds, one), (Right::No, 0, 0));
        assert_eq!(standing(&deeds, two), (Right::No, 0, 0));
    }

    #[test]
    fn what_failed_gives_nothing_but_may_be_recorded() {
        let mut deeds = Deeds::default();
        let (one, begun) = deeds.begin(life(None));
        deeds.answer(begun, true);
        let opened = deeds.send(one, What::Open { object: 7, modes: MODES });
        deeds.answer(opened, false);
        assert_eq!(standing(&deeds, one), (Right::Maybe, 0, 0));
    }

    #[test]
    fn who_has_left_may_not_reclaim() {
        let mut deeds = Deeds::default();
        let (one, begun) = deeds.begin(life(None));
        deeds.answer(begun, true);
        let opened = deeds.send(one, What::Open { object: 7, modes: MODES });
        deeds.answer(opened, true);
        let closed = deeds.send(one, What::Close { object: 7 });
        deeds.answer(closed, true);
        assert_eq!(standing(&deeds, one), (Right::Yes, 0, 0));
        let left = deeds.send(one, What::End);
        assert_eq!(standing(&deeds, one).0, Right::Maybe);
        deeds.answer(left, true);
        assert_eq!(standing(&deeds, one).0, Right::No);
    }
}
