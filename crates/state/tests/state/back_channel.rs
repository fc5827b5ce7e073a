//! The slots of a session's back channel against a client that keeps its side of RFC 8881 §2.10.6,
//! and who is told that he cannot be called. Rings: unit, property.

use std::sync::Arc;

use proptest::prelude::*;
use steadfast_state::{CallbackEnd, CallbackTarget, Image, Session, SessionId, Settings, State};

use crate::common::{create, sequence, session, state};

const PATH_DOWN: u32 = 0x1;
const FAULT: u32 = 0x400;
const SLOTS: usize = 8;

fn target() -> CallbackTarget {
    CallbackTarget { minor_version: 1, program: 0x4000_0000, credential: [0; 8].into() }
}

/// The client sends a request, so that it knows the session.
fn request(session: &Arc<Session>) {
    drop(session.begin(0, &sequence(0, 1)).expect("new"));
}

fn flags(session: &Session) -> u32 {
    session.told().status_flags
}

#[test]
fn a_client_that_wants_callbacks_is_told_when_it_cannot_be_called() {
    let state = state();
    let first = session(&state, 0, "client", 1);
    assert_eq!(flags(&first), 0, "it wants none");
    assert!(!first.bind_back(1), "nor is anything bound");
    first.set_callback_target(target());
    assert_eq!((flags(&first), first.client().wants_callbacks()), (0, false), "none yet");
    assert!(first.bind_back(1) && first.bind_back(2) && first.bind_back(1));
    assert_eq!((flags(&first), first.back_connection()), (0, Some(1)), "bound last, tried first");
    first.unbind_back(1);
    assert_eq!((flags(&first), first.back_connection()), (0, Some(2)));

    let client = first.client().id();
    let second = create(&state, 0, client, 2, "root").expect("create");
    let second = state.session(&second.session).expect("created");
    second.set_callback_target(target());
    assert!(first.client().has_callback_path());
    assert_eq!(state.sessions_of(client).len(), 2);
    assert_eq!(flags(&second), 0, "the client can be called by its other session");
    state.unbind_back(&[*first.id()], 2);
    assert_eq!((flags(&first), flags(&second)), (PATH_DOWN, PATH_DOWN));
    assert!(second.bind_back(3));
    state.destroy_session(second.id()).expect("destroyed");
    assert_eq!(flags(&first), PATH_DOWN, "its connection went with it");
    assert!(!second.bind_back(4));
    request(&first);
    first.refuse_callbacks();
    assert_eq!((flags(&first), first.begin_callback()), (0, None));
}

#[test]
fn a_back_channel_that_is_of_no_use_is_no_path() {
    let state = state();
    let first = session(&state, 0, "client", 1);
    let second = create(&state, 0, first.client().id(), 2, "root").expect("create");
    let second = state.session(&second.session).expect("created");
    for (session, connection) in [(&first, 1), (&second, 2)] {
        session.set_callback_target(target());
        assert!(session.bind_back(connection));
    }
    first.fault_callbacks();
    assert_eq!((flags(&first), flags(&second)), (FAULT, 0), "it can be called by the other one");
    assert!(!first.bind_back(3), "nor by another connection");
    second.unbind_back(2);
    assert_eq!((flags(&first), flags(&second)), (PATH_DOWN | FAULT, PATH_DOWN));
    assert!(second.bind_back(4));
    assert_eq!((flags(&first), flags(&second)), (FAULT, 0));
    // Its end takes no path from the other one.
    state.destroy_session(first.id()).expect("destroyed");
    assert_eq!(flags(&second), 0);
    second.unbind_back(4);
    assert_eq!(flags(&second), PATH_DOWN);
}

#[test]
fn a_client_offers_slots_and_takes_them_back() {
    let state = state();
    let session = session(&state, 0, "client", 1);
    request(&session);
    assert_eq!(session.begin_callback(), None);
    session.set_callback_target(target());
    let slots: Vec<_> = std::iter::from_fn(|| session.begin_callback()).collect();
    assert_eq!(slots.len(), SLOTS);
    for (slot, number) in slots.iter().zip(0..) {
        assert_eq!((slot.slot, slot.sequence, slot.highest_slot), (number, 1, number));
    }
    for slot in &slots {
        session.end_callback(slot.slot, CallbackEnd::Sequenced { target_highest_slot: 1 });
    }
    let again: Vec<_> = std::iter::from_fn(|| session.begin_callback()).collect();
    assert_eq!(
        again.iter().map(|slot| (slot.slot, slot.sequence)).collect::<Vec<_>>(),
        [(0, 2), (1, 2)]
    );
}

#[test]
fn a_slot_that_the_client_has_lost_makes_the_channel_useless() {
    let state = state();
    let session = session(&state, 0, "client", 1);
    session.set_callback_target(target());
    assert!(session.bind_back(1));
    assert_eq!(session.begin_callback(), None, "its reply may be under way");
    request(&session);
    let slot = session.begin_callback().expect("free").slot;
    assert_eq!(session.reorder_callback(slot), None);
    assert_eq!((flags(&session), session.begin_callback()), (PATH_DOWN | FAULT, None));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    /// A callback in flight arrives; its answer too, if it `is_answered`.
    Arrive {
        which: usize,
        is_answered: bool,
    },
    /// A callback in flight arrives, and the client has no time.
    Delay {
        which: usize,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..SLOTS;
    prop_oneof![
        6 => Just(Step::Begin),
        8 => (which.clone(), any::<bool>())
            .prop_map(|(which, is_answered)| Step::Arrive { which, is_answered }),
        2 => which.prop_map(|which| Step::Delay { which }),
        1 => Just(Step::Restart),
    ]
}

struct Run {
    state: State,
    image: Image,
    session: Arc<Session>,
    /// Slot, sequence id and number of each callback in flight.
    in_flight: Vec<(u32, u32, u64)>,
    begun: u64,
    /// The client's slots: the last sequence id, and the number of the callback that had it.
    client: [(u32, u64); SLOTS],
    /// Restarts since a slot was answered last.
    restarts: [u32; SLOTS],
    is_faulty: bool,
}

impl Run {
    fn new() -> Self {
        let state = state();
        state.begin_keeping();
        let session = session(&state, 0, "client", 1);
        session.set_callback_target(target());
        assert!(session.bind_back(1));
        request(&session);
        Self {
            state,
            image: Image::default(),
            session,
            in_flight: Vec::new(),
            begun: 0,
            client: [(0, 0); SLOTS],
            restarts: [0; SLOTS],
            is_faulty: false,
        }
    }

    /// Whether the client executes the callback, now or before; `false`: it is out of order.
    fn arrive(&mut self, slot: u32, sequence: u32, number: u64) -> bool {
        let known = &mut self.client[slot as usize];
        if sequence == known.0.wrapping_add(1) {
            *known = (sequence, number);
        }
        assert!(known.0 != sequence || known.1 == number, "another callback by the same id");
        known.0 == sequence
    }

    fn restart(&mut self) {
        let mut events = Vec::new();
        self.state.take_events(&mut events);
        self.image.add(&events).expect("events");
        let id: SessionId = *self.session.id();
        self.state = State::new(Settings::new(7));
        self.state.restore(0, self.image.clone());
        self.state.begin_keeping();
        self.session = self.state.session(&id).expect("restored");
        assert_eq!(self.session.callback_target(), Some(target()));
        assert_eq!(flags(&self.session) & PATH_DOWN, PATH_DOWN);
        self.in_flight.clear();
        self.restarts = self.restarts.map(|restarts| restarts + 1);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Restart => self.restart(),
            Step::Begin => {
                let Some(begun) = self.session.begin_callback() else {
                    assert!(self.is_faulty || self.in_flight.len() == SLOTS);
                    return;
                };
                assert!(self.in_flight.iter().all(|(slot, ..)| *slot != begun.slot));
                self.begun += 1;
                self.in_flight.push((begun.slot, begun.sequence, self.begun));
            }
            Step::Delay { which } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let place = which % self.in_flight.len();
                let (slot, sequence, _) = self.in_flight[place];
                // Who has executed it does not say that it has no time.
                if self.client[slot as usize].0.wrapping_add(1) == sequence {
                    self.in_flight.swap_remove(place);
                    self.session.end_callback(slot, CallbackEnd::NotSequenced);
                }
            }
            Step::Arrive { which, is_answered } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let place = which % self.in_flight.len();
                let (slot, sequence, number) = self.in_flight[place];
                if !self.arrive(slot, sequence, number) {
                    assert!(self.restarts[slot as usize] > 0, "out of order without a restart");
                    if let Some(sequence) = self.session.reorder_callback(slot) {
                        self.in_flight[place].1 = sequence;
                    } else {
                        assert!(self.restarts[slot as usize] > 1);
                        self.is_faulty = true;
                        self.in_flight.swap_remove(place);
                    }
                } else if is_answered {
                    self.in_flight.swap_remove(place);
                    self.restarts[slot as usize] = 0;
                    let target_highest_slot = SLOTS as u32 - 1;
                    let end = CallbackEnd::Sequenced { target_highest_slot };
                    self.session.end_callback(slot, end);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_client_never_takes_one_callback_for_another(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
        }
        // What is in flight is sent again until it is answered.
        for _ in 0..3 * SLOTS {
            run.step(Step::Arrive { which: 0, is_answered: true });
        }
        prop_assert!(run.in_flight.is_empty() || run.is_faulty);
    }
}
