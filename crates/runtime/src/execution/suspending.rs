//! Suspending: a call that has stopped is kept, if there is room, until it may go on; and for how long it waits in all.
//! There is one entry, [`suspend`], and behind it two queues of the seat: one of calls that wait for room at their
//! storage, one of those that a client or a name service wakes (`suspended`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_engine::{Room, StorageId, SuspendedCall};

use super::gathering::Context;
use crate::ServerOptions;
use crate::batch::{Batch, Origin};
use crate::seat::{HandedOver, Seat, SeatCore};
use crate::statistics::Waited;
use crate::suspended::for_another::Ticket;
use crate::suspended::{KeptCall, KeptOrigin};

/// How long a call may be suspended in all, however often it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// When it was suspended first, in ms, if it was.
    pub(super) since_ms: Option<u64>,
    pub(super) patience_ms: u64,
}

impl Patience {
    /// Whether it is over: a call that is suspended now has waited for long enough before.
    fn is_over(self, now_ms: u64) -> bool {
        self.since_ms.is_some_and(|since_ms| since_ms + self.patience_ms <= now_ms)
    }

    /// What a call is told for which there is this room: it does not wait for more when its patience is over.
    pub(super) fn bound(self, room: Room, now_ms: u64) -> Room {
        if room == Room::Later && self.is_over(now_ms) { Room::None } else { room }
    }

    /// Calls whose patience is over now were suspended for the first time at this time or earlier, in ms. `None` if there
    /// can be none.
    pub(crate) fn expired_ms(patience_ms: u64, now_ms: u64) -> Option<u64> {
        now_ms.checked_sub(patience_ms)
    }

    /// Until when a call waits that is suspended now, in ms; `None` if it may not wait at all.
    pub(super) fn until_ms(self, now_ms: u64) -> Option<u64> {
        let until_ms = self.since_ms.unwrap_or(now_ms) + self.patience_ms;
        (until_ms > now_ms).then_some(until_ms)
    }
}

/// How much of one connection and in all may be kept: half of what there may be, so that other calls go on.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    calls_max: usize,
    bytes_max: usize,
}

impl Bounds {
    fn of(options: &ServerOptions) -> Self {
        let ServerOptions { calls_in_flight_max, waiting_bytes_max, .. } = options;
        Self { calls_max: calls_in_flight_max / 2, bytes_max: waiting_bytes_max / 2 }
    }

    /// Whether there is room for a call of so many bytes, of a connection that has so many in flight; a datagram has none.
    fn admit(self, call_bytes: usize, in_flight: Option<usize>, kept_bytes: usize) -> bool {
        let has_few = in_flight.is_none_or(|in_flight| in_flight < self.calls_max);
        has_few && kept_bytes + call_bytes <= self.bytes_max
    }
}

/// Until when a call is suspended, at most for its patience.
#[derive(Debug)]
pub(super) enum Until {
    /// There is room to wait for this storage.
    Room(StorageId),
    /// Its ticket is woken: by a client or a name service.
    Woken(Arc<Ticket>),
}

impl Until {
    /// `ticket`, `storage`: what was given to the call last to wait with, and for. `None` if it can wait for neither.
    pub(super) fn of(
        call: &SuspendedCall,
        ticket: Option<Arc<Ticket>>,
        storage: Option<StorageId>,
    ) -> Option<Self> {
        let ticket = ticket.filter(|_| call.waits_for_client());
        ticket.map(Self::Woken).or(storage.map(Self::Room))
    }
}

/// A call of a batch that has stopped.
#[derive(Clone, Copy)]
pub(super) struct Stopped<'b> {
    pub(super) batch: &'b Batch,
    pub(super) index: usize,
    /// What became of its time up to now, but for its turn.
    pub(super) waited: Waited,
    /// By the stamps' clock.
    pub(super) now_ns: u64,
}

impl Stopped<'_> {
    /// Whether there is room to keep it.
    fn has_room(self, context: &Context) -> bool {
        let shared = &context.shared;
        let in_flight = self.batch.connection().map(|connection| connection.in_flight());
        let call_bytes = self.batch.record(self.index).len();
        let kept_bytes = shared.waiting.call_bytes.load(Ordering::Relaxed);
        Bounds::of(&shared.options).admit(call_bytes, in_flight, kept_bytes)
    }

    /// Whether there is nobody any more whom its reply could reach.
    fn is_of_closed(self) -> bool {
        self.batch.connection().is_some_and(|connection| connection.is_closed())
    }

    fn origin(self) -> Option<KeptOrigin> {
        match &self.batch.origin {
            Origin::Stream(connection) => {
                Some(KeptOrigin::Connection(connection.token.load(Ordering::Relaxed)))
            }
            Origin::Datagrams(socket, _) => Some(KeptOrigin::Datagrams(Arc::clone(socket))),
            Origin::Nowhere => None,
        }
    }

    /// It is kept from now on.
    fn keep(
        self,
        context: &Context,
        origin: KeptOrigin,
        call: SuspendedCall,
        now_ms: u64,
    ) -> KeptCall {
        let Stopped { batch, index, waited, now_ns } = self;
        if let Some(connection) = batch.connection() {
            connection.enter();
        }
        let batch = batch.only(index, call, now_ms, (waited, now_ns));
        context.shared.waiting.call_bytes.fetch_add(batch.kept_bytes(), Ordering::Relaxed);
        context.counters.put_off.add(1);
        KeptCall { origin, batch }
    }
}

/// Suspends a call that has stopped. `core`: if its worker has the seat still.
///
/// # Errors
/// The call, if it is to be refused for now instead.
pub(super) fn suspend(
    context: &Context,
    seat: &Seat,
    core: Option<&mut SeatCore>,
    stopped: Stopped<'_>,
    until: Until,
    call: SuspendedCall,
) -> Result<(), SuspendedCall> {
    let Some(origin) = stopped.origin().filter(|_| stopped.has_room(context)) else {
        return Err(call);
    };
    let now_ms = context.shared.now_ms();
    match until {
        // Also of a closed connection: its seat drops the call together with it. Refused, it would count as a call whose
        // client was told to try later.
        Until::Room(storage) => {
            // Datagrams do not stand in line: their clients send them again.
            let (Some(core), KeptOrigin::Connection(token)) = (core, &origin) else {
                return Err(call);
            };
            let Some(slot) = core.connections.at(*token) else { return Err(call) };
            let client = slot.client;
            if core.suspended.for_storage.is_full() {
                return Err(call);
            }
            let kept = stopped.keep(context, origin, call, now_ms);
            core.suspended.for_storage.push(client, kept, storage, now_ms);
        }
        Until::Woken(_) if stopped.is_of_closed() => return Err(call),
        Until::Woken(ticket) => {
            let kept = stopped.keep(context, origin, call, now_ms);
            match core {
                Some(core) => core.suspend_for_another(kept, &ticket, &context.shared),
                // Whoever has the seat keeps it.
                None => seat.hand_over(HandedOver::Call(kept, ticket)),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Unit and property rings, on a virtual clock.
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;
    use crate::mailbox::{Mailbox, Message};
    use crate::suspended::for_another::ForAnother;
    use crate::suspended::for_storage::ForStorage;
    use crate::turns::Turns;

    const STORAGE: StorageId = StorageId(1);
    /// Room is looked for at least as often, in ms.
    const LOOK_MS: u64 = 5;

    #[test]
    fn half_of_all_room_is_for_calls_that_go_on() {
        let bounds = Bounds { calls_max: 4, bytes_max: 1_000 };
        for (call_bytes, in_flight, kept_bytes, has_room) in [
            (100, Some(3), 900, true),
            (101, Some(3), 900, false),
            (100, Some(4), 0, false),
            (100, None, 900, true),
            (100, None, 901, false),
        ] {
            assert_eq!(bounds.admit(call_bytes, in_flight, kept_bytes), has_room);
        }
        let options = ServerOptions {
            calls_in_flight_max: 9,
            waiting_bytes_max: 2_001,
            ..ServerOptions::default()
        };
        let of_options = Bounds::of(&options);
        assert_eq!((of_options.calls_max, of_options.bytes_max), (4, 1_000));
    }

    #[test]
    fn a_call_waits_for_what_it_was_given_last() {
        let ticket = Ticket::new(&Arc::new(Mailbox::new().unwrap()), 10);
        let of_client = SuspendedCall::for_test_of_client(Vec::new());
        let of_storage = SuspendedCall::for_test(Vec::new());
        let both = (Some(ticket), Some(STORAGE));
        assert!(matches!(Until::of(&of_client, both.0.clone(), both.1), Some(Until::Woken(_))));
        // It was judged again since it had the ticket, and found its storage full.
        assert!(matches!(Until::of(&of_storage, both.0, both.1), Some(Until::Room(STORAGE))));
        assert!(Until::of(&of_client, None, None).is_none());
    }

    #[test]
    fn patience_counts_from_the_first_time() {
        let first = Patience { since_ms: None, patience_ms: 2_000 };
        assert_eq!((first.is_over(u64::MAX / 2), first.until_ms(500)), (false, Some(2_500)));
        let again = Patience { since_ms: Some(500), ..first };
        assert_eq!((again.is_over(2_499), again.until_ms(2_499)), (false, Some(2_500)));
        assert_eq!((again.is_over(2_500), again.until_ms(2_500)), (true, None));
        for room in [Room::Free, Room::None] {
            assert_eq!(again.bound(room, 2_500), room, "it does not matter");
        }
        assert_eq!(again.bound(Room::Later, 2_499), Room::Later);
        assert_eq!(again.bound(Room::Later, 2_500), Room::None);
        assert_eq!(Patience::expired_ms(2_000, 2_500), again.since_ms);
        assert_eq!(Patience::expired_ms(2_000, 1_999), None);
    }

    /// A call as its seat keeps it, which was suspended then for the first time.
    fn kept(since_ms: u64) -> KeptCall {
        let call = SuspendedCall::for_test(Vec::new());
        let batch = Batch::new(0).only(0, call, since_ms, Default::default());
        KeptCall { origin: KeptOrigin::Connection(1), batch }
    }

    proptest! {
        /// A call that finds no room however often it is executed, or is woken for nothing, ends when its patience is
        /// over: not before, and no later than the next look.
        #[test]
        fn a_call_ends_with_its_patience(
            begun_ms in 0..10_000_u64,
            patience_ms in 1..500_u64,
            // How long each execution lasts, and whether it is for storage that it is suspended after it.
            executions in proptest::collection::vec((0..40_u64, any::<bool>(), 0..100_u64), 1..100),
        ) {
            let client = Turns::<()>::default().join_apart();
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let (mut for_storage, mut for_another) = (ForStorage::default(), ForAnother::default());
            let (mut now_ms, mut since_ms) = (begun_ms, None);
            for (lasts_ms, is_for_storage, woken_after_ms) in executions {
                now_ms += lasts_ms;
                let patience = Patience { since_ms, patience_ms };
                let Some(until_ms) = patience.until_ms(now_ms) else {
                    prop_assert_eq!(patience.bound(Room::Later, now_ms), Room::None);
                    break;
                };
                prop_assert_eq!(patience.bound(Room::Later, now_ms), Room::Later);
                let first_ms = *since_ms.get_or_insert(now_ms);
                prop_assert_eq!(until_ms, first_ms + patience_ms);
                let suspended_ms = now_ms;
                let call = if is_for_storage {
                    for_storage.push(client, kept(first_ms), STORAGE, now_ms);
                    loop {
                        now_ms += 1;
                        let has_room = now_ms - suspended_ms >= woken_after_ms;
                        let room = |_| (Room::Later, usize::from(has_room));
                        let expired_ms = Patience::expired_ms(patience_ms, now_ms);
                        if let Some(call) = for_storage.take_ready(room, expired_ms, now_ms).pop() {
                            break call;
                        }
                    }
                } else {
                    let ticket = Ticket::new(&mailbox, until_ms);
                    prop_assert!(for_another.keep(kept(first_ms), &ticket).is_none());
                    loop {
                        now_ms += 1;
                        if now_ms - suspended_ms == woken_after_ms {
                            Waker::from(Arc::clone(&ticket)).wake();
                        }
                        let messages = mailbox.take();
                        let woken = messages.into_iter().find_map(|message| match message {
                            Message::Wake(number) => for_another.take(number),
                            Message::Look(_) => None,
                        });
                        if let Some(call) = woken.or_else(|| for_another.take_expired(now_ms)) {
                            break call;
                        }
                    }
                };
                prop_assert!(now_ms < until_ms + LOOK_MS, "{now_ms} is too late for {until_ms}");
                // It was told room or woken, or its time was over.
                let waited_ms = now_ms - suspended_ms;
                prop_assert!(now_ms >= until_ms || waited_ms >= woken_after_ms);
                prop_assert_eq!(call.batch.suspended_since_ms(), Some(first_ms));
                since_ms = call.batch.suspended_since_ms();
            }
        }
    }
}
