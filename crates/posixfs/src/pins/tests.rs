use proptest::prelude::*;
use steadfast_sys::pinned::Pinned;

use super::*;

/// A pin of any reason.
enum Any {
    Look(Pinned<(), Look>),
    Root(Pinned<(), Root>),
    Guard(Pinned<(), Guard>),
    WriteBack(Pinned<(), WriteBack>),
    Flush(Pinned<(), Flush>),
    Sent(Pinned<(), Sent>),
    Call(Pinned<(), Call>),
}

const REASONS: usize = 7;

impl Any {
    fn of(first: &Pinned<(), Kept>, reason: usize) -> Self {
        match reason {
            0 => Self::Look(first.pin()),
            1 => Self::Root(first.pin()),
            2 => Self::Guard(first.pin()),
            3 => Self::WriteBack(first.pin()),
            4 => Self::Flush(first.pin()),
            5 => Self::Sent(first.pin()),
            _ => Self::Call(first.pin()),
        }
    }

    fn reason(&self) -> usize {
        match self {
            Self::Look(_) => 0,
            Self::Root(_) => 1,
            Self::Guard(_) => 2,
            Self::WriteBack(_) => 3,
            Self::Flush(_) => 4,
            Self::Sent(_) => 5,
            Self::Call(_) => 6,
        }
    }

    fn another(&self) -> Self {
        match self {
            Self::Look(pin) => Self::Look(pin.clone()),
            Self::Root(pin) => Self::Root(pin.clone()),
            Self::Guard(pin) => Self::Guard(pin.clone()),
            Self::WriteBack(pin) => Self::WriteBack(pin.clone()),
            Self::Flush(pin) => Self::Flush(pin.clone()),
            Self::Sent(pin) => Self::Sent(pin.clone()),
            Self::Call(pin) => Self::Call(pin.clone()),
        }
    }

    fn for_call(self) -> Pinned<(), Call> {
        match self {
            Self::Look(pin) => pin.now_for(),
            Self::Root(pin) => pin.now_for(),
            Self::Guard(pin) => pin.now_for(),
            Self::WriteBack(pin) => pin.now_for(),
            Self::Flush(pin) => pin.now_for(),
            Self::Sent(pin) => pin.now_for(),
            Self::Call(pin) => pin.now_for(),
        }
    }

    fn now_for(self, reason: usize) -> Self {
        let pin = self.for_call();
        match reason {
            0 => Self::Look(pin.now_for()),
            1 => Self::Root(pin.now_for()),
            2 => Self::Guard(pin.now_for()),
            3 => Self::WriteBack(pin.now_for()),
            4 => Self::Flush(pin.now_for()),
            5 => Self::Sent(pin.now_for()),
            _ => Self::Call(pin.now_for()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pin(usize),
    Another(usize),
    Change(usize, usize),
    Drop(usize),
    EndIfIdle,
    Find,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..REASONS).prop_map(Step::Pin),
        1 => any::<usize>().prop_map(Step::Another),
        2 => (any::<usize>(), 0..REASONS).prop_map(|(which, reason)| Step::Change(which, reason)),
        4 => any::<usize>().prop_map(Step::Drop),
        2 => Just(Step::EndIfIdle),
        1 => Just(Step::Find),
    ]
}

proptest! {
    /// Against a list of who has a pin: what is ended, what is found, which tree stays, and what is told.
    #[test]
    fn pins_are_what_their_owners_have(steps in prop::collection::vec(step(), 0..60)) {
        let first = Pinned::<(), Kept>::new(());
        let (second, weak) = (first.clone(), first.downgrade());
        let (mut pins, mut has_ended) = (Vec::new(), false);
        for step in steps {
            let at = |which: usize, pins: &Vec<Any>| (!pins.is_empty()).then(|| which % pins.len());
            match step {
                Step::Pin(reason) => pins.push(Any::of(&first, reason)),
                Step::Another(which) => if let Some(at) = at(which, &pins) {
                    pins.push(pins[at].another());
                }
                Step::Change(which, reason) => if let Some(at) = at(which, &pins) {
                    let pin = pins.swap_remove(at);
                    pins.push(pin.now_for(reason));
                }
                Step::Drop(which) => if let Some(at) = at(which, &pins) {
                    drop(pins.swap_remove(at));
                }
                Step::EndIfIdle => {
                    let look = first.pin::<Look>();
                    let is_idle = look.end_if_alone_with(&[Kept::LANE, Kept::LANE]);
                    prop_assert_eq!(is_idle, pins.is_empty() && !has_ended);
                    has_ended |= is_idle;
                }
                Step::Find => prop_assert_eq!(weak.upgrade::<Call>().is_none(), has_ended),
            }
            let of = |reason| pins.iter().filter(|pin| pin.reason() == reason).count() as u64;
            let now = first.pins();
            prop_assert_eq!(now.total(), 2 + pins.len() as u64);
            // As long as they fit.
            if of(0) < 16 && of(1) < 4 {
                prop_assert_eq!(keeps_tree(now), pins.iter().any(|pin| pin.reason() > 1));
            }
            if of(0) < 16 && of(1) < 4 && of(2) < 16 && of(3) < 4 {
                let mut told = OpenObjects::default();
                told.add(now, true);
                let one = |reason| u64::from(of(reason) > 0);
                prop_assert_eq!(told, OpenObjects {
                    open: 1,
                    unflushed: 1,
                    roots: one(1),
                    guarded: one(2),
                    written_back: one(3),
                    in_flushes: one(4),
                    sent: one(5),
                    in_calls: one(6),
                });
            }
        }
        drop((second, pins));
        prop_assert_eq!(first.pins().total(), 1);
    }
}
