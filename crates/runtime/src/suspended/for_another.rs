//! Calls that wait for a client, or for a name service: the engine wakes them ([`Ticket`]), or their time
//! is over. Then they go on, in turns of their clients.
//!
//! No wake-up is lost: who wakes marks the ticket first, and tells the seat then; the seat keeps the call
//! first, and looks at the ticket then. So the seat sees the mark, or gets the message after it has the
//! call. How many wait is bounded by the engine (`waits.rs`). The message of a call that the seat does not have, or has
//! no more, does nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Wake;

use super::KeptCall;
use crate::mailbox::{Mailbox, Message};

/// By which a call is woken. It may be, before its seat has it.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// When its call waits no more, in ms.
    until_ms: u64,
    is_woken: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl Ticket {
    /// A ticket of the seat whose mailbox this is, for a call that waits until then, in ms.
    pub(crate) fn new(mailbox: &Arc<Mailbox>, until_ms: u64) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (is_woken, mailbox) = (AtomicBool::new(false), Arc::clone(mailbox));
        Arc::new(Self { number, until_ms, is_woken, mailbox })
    }
}

impl Wake for Ticket {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.mailbox.post(Message::Wake(self.number));
        }
    }
}

/// Those of one seat.
#[derive(Debug, Default)]
pub(crate) struct ForAnother {
    /// By the numbers of their tickets.
    calls: HashMap<u64, (KeptCall, Arc<Ticket>)>,
    /// When each waits no more, in ms.
    ends: BTreeSet<(u64, u64)>,
}

impl ForAnother {
    /// Keeps a call until it is woken. Gives it back if it was already.
    pub(crate) fn keep(&mut self, call: KeptCall, ticket: &Arc<Ticket>) -> Option<KeptCall> {
        let number = ticket.number;
        self.ends.insert((ticket.until_ms, number));
        self.calls.insert(number, (call, Arc::clone(ticket)));
        // After it is kept.
        if ticket.is_woken.load(Ordering::SeqCst) { self.take(number) } else { None }
    }

    /// Takes out the call of a ticket, if it is here.
    pub(crate) fn take(&mut self, number: u64) -> Option<KeptCall> {
        let (call, ticket) = self.calls.remove(&number)?;
        self.ends.remove(&(ticket.until_ms, number));
        Some(call)
    }

    /// When [`ForAnother::take_expired`] is to be called next, in ms.
    pub(crate) fn next_end_ms(&self) -> Option<u64> {
        self.ends.first().map(|(until_ms, _)| *until_ms)
    }

    /// Takes out a call that waits no more.
    pub(crate) fn take_expired(&mut self, now_ms: u64) -> Option<KeptCall> {
        let (until_ms, number) = *self.ends.first()?;
        if until_ms > now_ms { None } else { self.take(number) }
    }

    /// Takes out the calls of a connection.
    pub(crate) fn take_of(&mut self, token: u64) -> Vec<KeptCall> {
        let calls = self.calls.iter().filter(|(_, (call, _))| call.is_of(token));
        let numbers: Vec<u64> = calls.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Unit and property rings.
    use std::sync::atomic::AtomicUsize;
    use std::task::Waker;
    use std::thread;

    use proptest::prelude::*;
    use steadfast_engine::SuspendedCall;

    use super::super::KeptOrigin;
    use super::*;
    use crate::batch::Batch;

    /// A call of a connection, and a number by which the test knows it.
    fn call(token: u64, number: u64) -> KeptCall {
        let call = SuspendedCall::for_test(Vec::new());
        let batch = Batch::new(0).only(0, call, number, Default::default());
        KeptCall { origin: KeptOrigin::Connection(token), batch }
    }

    fn number(call: &KeptCall) -> u64 {
        call.batch.suspended_since_ms().expect("it is suspended")
    }

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().expect("descriptors"))
    }

    /// The calls that messages take out.
    fn wake(suspended: &mut ForAnother, mailbox: &Mailbox) -> Vec<KeptCall> {
        let messages = mailbox.take().into_iter();
        let numbers = messages.map(|message| match message {
            Message::Wake(number) => number,
            Message::Look(token) => panic!("nobody looks at {token}"),
        });
        numbers.filter_map(|number| suspended.take(number)).collect()
    }

    #[test]
    fn a_call_that_was_woken_before_it_is_kept_is_executed_at_once() {
        let (mut suspended, mailbox) = (ForAnother::default(), mailbox());
        let early = Ticket::new(&mailbox, 10);
        Waker::from(Arc::clone(&early)).wake();
        assert!(suspended.keep(call(1, 1), &early).is_some());
        assert!(wake(&mut suspended, &mailbox).is_empty(), "its message does nothing");
        let late = Ticket::new(&mailbox, 10);
        let waker = Waker::from(Arc::clone(&late));
        assert!(suspended.keep(call(2, 2), &late).is_none());
        assert_eq!(suspended.next_end_ms(), Some(10));
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(mailbox.take().len(), 1, "one message, however often it is woken");
        assert!(suspended.take_expired(9).is_none() && suspended.take_expired(10).is_some());
        assert_eq!((suspended.next_end_ms(), suspended.calls.len()), (None, 0));
    }

    #[test]
    fn no_wake_up_is_lost_while_the_seat_keeps_the_call() {
        const ROUNDS: usize = 2_000;
        let (mut suspended, mailbox) = (ForAnother::default(), mailbox());
        let woken = AtomicUsize::new(0);
        for round in 0..ROUNDS {
            let ticket = Ticket::new(&mailbox, u64::MAX);
            let waker = Waker::from(Arc::clone(&ticket));
            thread::scope(|scope| {
                scope.spawn(move || {
                    for _ in 0..round % 64 {
                        std::hint::spin_loop();
                    }
                    waker.wake();
                });
                let is_woken = suspended.keep(call(0, 0), &ticket).is_some();
                woken.fetch_add(usize::from(is_woken), Ordering::Relaxed);
            });
            let by_message = wake(&mut suspended, &mailbox).len();
            woken.fetch_add(by_message, Ordering::Relaxed);
        }
        assert_eq!(woken.into_inner(), ROUNDS);
        assert!(suspended.calls.is_empty() && suspended.ends.is_empty());
    }

    proptest! {
        /// Each call comes out once, whatever happens first: a wake-up before it is kept, or after; its
        /// time; the end of its connection.
        #[test]
        fn every_call_comes_out_once(
            steps in proptest::collection::vec((0..6_u8, 0..8_usize, 0..20_u64), 0..200),
        ) {
            let (mut suspended, mailbox) = (ForAnother::default(), mailbox());
            let mut waiting = Vec::new();
            let mut out = Vec::new();
            let (mut now_ms, mut made) = (0, 0);
            for (what, index, more) in steps {
                match what {
                    // Registered with the engine, which may wake it from here on.
                    0 | 1 => {
                        let ticket = Ticket::new(&mailbox, now_ms + more);
                        let call = call(index as u64, made);
                        waiting.push((Waker::from(Arc::clone(&ticket)), Some((call, ticket))));
                        made += 1;
                    }
                    2 => {
                        if let Some((_, call)) = waiting.get_mut(index)
                            && let Some((call, ticket)) = call.take()
                        {
                            out.extend(suspended.keep(call, &ticket).map(|call| number(&call)));
                        }
                    }
                    3 => {
                        if let Some((waker, _)) = waiting.get(index) {
                            waker.wake_by_ref();
                        }
                    }
                    4 => out.extend(wake(&mut suspended, &mailbox).into_iter().map(|call| number(&call))),
                    _ => {
                        now_ms += more;
                        out.extend(std::iter::from_fn(|| suspended.take_expired(now_ms)).map(|call| number(&call)));
                        out.extend(suspended.take_of(index as u64).into_iter().map(|call| number(&call)));
                    }
                }
                prop_assert_eq!(suspended.calls.len(), suspended.ends.len());
            }
            for (waker, call) in waiting {
                waker.wake();
                let kept = call.and_then(|(call, ticket)| suspended.keep(call, &ticket));
                out.extend(kept.map(|call| number(&call)));
            }
            out.extend(wake(&mut suspended, &mailbox).into_iter().map(|call| number(&call)));
            prop_assert!(suspended.calls.is_empty());
            let count = out.len();
            out.sort_unstable();
            out.dedup();
            prop_assert_eq!((out.len() as u64, count as u64), (made, made));
        }
    }
}
