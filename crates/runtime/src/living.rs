//! Which connections are alive, for the duplicate request cache: whether a call that has the bytes
//! of one that came by another connection comes from the same client, which has connected again
//! (the table in the engine's `reply_cache`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_sys::net::{self, PeerLife, TICK_MS_MAX};

use crate::connection::Connection;

const SHARDS: usize = 16;
/// How many calls wait for a sign of life at a time, each holding up a worker.
const ASKING_MAX: usize = 32;
/// After so many seconds of silence a peer is asked, while somebody wants to know; and usually.
const ASK_AFTER_S: u32 = 1;
pub(crate) const KEEPALIVE_AFTER_S: u32 = 60;
/// A peer answers within this time after it was asked, and some round trips.
const ANSWER_MAX: Duration = Duration::from_millis(500);
const ROUND_TRIPS: u32 = 4;
/// However slow the network.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// All connections of a server by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Living {
    shards: [Mutex<HashMap<u64, Weak<Connection>>>; SHARDS],
    asking: AtomicUsize,
}

/// What is known of the connection by which a call came first when it has come by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Gone,
    Alive,
    /// Its peer was last heard of before the other connection was accepted.
    Silent,
}

/// What the kernel's word means: a connection was accepted so long ago.
fn judge(life: PeerLife, accepted: Duration) -> Known {
    if !life.is_established {
        return Known::Gone;
    }
    // Both are rounded to ticks.
    let heard = Duration::from_millis(u64::from(life.heard_ms) + u64::from(TICK_MS_MAX));
    if heard < accepted { Known::Alive } else { Known::Silent }
}

impl Living {
    fn shard(&self, number: u64) -> Option<&Mutex<HashMap<u64, Weak<Connection>>>> {
        self.shards.get(number as usize % SHARDS)
    }

    pub(crate) fn add(&self, connection: &Arc<Connection>) {
        let number = connection.peer.connection();
        if let Some(shard) = self.shard(number) {
            shard.lock().insert(number, Arc::downgrade(connection));
        }
    }

    /// The connection with this number.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Connection>> {
        self.shard(number).and_then(|shard| shard.lock().get(&number)?.upgrade())
    }

    /// To be called when nobody has the connection any more.
    pub(crate) fn remove(&self, number: u64) {
        if let Some(shard) = self.shard(number) {
            shard.lock().remove(&number);
        }
    }

    /// What is known of the connection with this number, which is not `other`.
    fn known(&self, number: u64, other: &Connection) -> (Known, Option<Arc<Connection>>) {
        let Some(first) = self.find(number) else { return (Known::Gone, None) };
        let (one, two) = (&first.peer, &other.peer);
        let is_replaced = one.address == two.address && one.local == two.local;
        if first.is_closed() || is_replaced {
            return (Known::Gone, None);
        }
        match net::peer_life(&first.socket) {
            Ok(life) => (judge(life, other.accepted.elapsed()), Some(first)),
            // Nothing can be known of it.
            Err(_) => (Known::Gone, None),
        }
    }

    /// Whether the connection with this number is gone, or must be taken for gone, seen from
    /// another one of the same client address. `wait`: called before this waits for its peer.
    pub(crate) fn is_gone(&self, number: u64, other: &Connection, wait: impl FnOnce()) -> bool {
        let first = match self.known(number, other) {
            (Known::Gone, _) | (_, None) => return true,
            (Known::Alive, _) => return false,
            (Known::Silent, Some(first)) => first,
        };
        if self.asking.fetch_add(1, Ordering::SeqCst) >= ASKING_MAX {
            self.asking.fetch_sub(1, Ordering::SeqCst);
            return true;
        }
        wait();
        let is_gone = self.ask(number, &first, other);
        self.asking.fetch_sub(1, Ordering::SeqCst);
        is_gone
    }

    /// Asks the peer of a silent connection for a sign of life.
    fn ask(&self, number: u64, first: &Connection, other: &Connection) -> bool {
        let round_trip = net::peer_life(&first.socket).map_or(0, |life| life.round_trip_us);
        let round_trips = Duration::from_micros((ROUND_TRIPS * round_trip.min(1_000_000)).into());
        let patience = Duration::from_secs(ASK_AFTER_S.into()) + ANSWER_MAX + round_trips;
        let deadline = Instant::now() + patience.min(WAIT_MAX);
        if net::set_keepalive_after(&first.socket, ASK_AFTER_S).is_err() {
            return true;
        }
        let known = loop {
            match self.known(number, other).0 {
                Known::Silent if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
                known => break known,
            }
        };
        // If it cannot be set back it is asked more often than needed.
        let _ = net::set_keepalive_after(&first.socket, KEEPALIVE_AFTER_S);
        known != Known::Alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_heard_of_after_the_other_came_is_alive() {
        let life =
            |is_established, heard_ms| PeerLife { is_established, heard_ms, round_trip_us: 50 };
        let accepted = Duration::from_secs(1);
        for (life, known) in [
            (life(true, 0), Known::Alive),
            (life(true, 989), Known::Alive),
            // Within a tick of the kernel's clock nobody knows which was first.
            (life(true, 990), Known::Silent),
            (life(true, 1_000), Known::Silent),
            (life(true, 60_000), Known::Silent),
            // Its peer has closed it, or refused what was sent.
            (life(false, 0), Known::Gone),
            (life(false, 60_000), Known::Gone),
        ] {
            assert_eq!(judge(life, accepted), known, "{life:?}");
        }
    }
}
