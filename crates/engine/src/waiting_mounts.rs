//! MOUNT calls that wait for a name service: nobody can answer them yet, and no thread waits with
//! them. They are executed again when more is known, and answered as it is then.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use steadfast_shares::ShareId;

use crate::Engine;
use crate::complaint::Complaint;
use crate::host::{CallHost, ReplySink};
use crate::peer::Peer;
use crate::reply::ReplyBuffer;
use crate::verdict::Verdict;

/// Most calls that wait at once, and most of one client; further ones are told to fail.
const CALLS_MAX: usize = 20_000;
const CALLS_OF_CLIENT_MAX: usize = 500;
/// Most bytes of one that waits. With the longest path, credentials and verifier a MOUNT call has
/// less; what else there is behind its arguments is not kept for nothing.
const CALL_BYTES_MAX: usize = 2048;
/// How long one waits before it is answered as things are, in ms: less than clients do.
const PATIENCE_MS: u64 = 8_000;

/// Calls that wait.
#[derive(Default)]
pub(crate) struct WaitingMounts {
    calls: Mutex<HashMap<ShareId, Vec<WaitingMount>>>,
    places: Arc<Mutex<Places>>,
}

struct WaitingMount {
    record: Box<[u8]>,
    peer: Peer,
    sink: Box<dyn ReplySink>,
    /// When it came.
    since_ms: u64,
    place: Place,
}

/// How many calls wait, or are to be executed again in this round, and how many of each client.
#[derive(Default)]
struct Places {
    taken: usize,
    of_clients: HashMap<IpAddr, usize>,
}

/// The place of one call, which is free again when this is let go.
struct Place {
    client: IpAddr,
    places: Arc<Mutex<Places>>,
}

impl Place {
    /// `None` if there are too many calls.
    fn take(places: &Arc<Mutex<Places>>, client: IpAddr) -> Option<Self> {
        let mut taken = places.lock();
        let of_client = taken.of_clients.get(&client).copied().unwrap_or(0);
        if taken.taken >= CALLS_MAX || of_client >= CALLS_OF_CLIENT_MAX {
            return None;
        }
        taken.taken += 1;
        taken.of_clients.insert(client, of_client + 1);
        drop(taken);
        Some(Self { client, places: Arc::clone(places) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.places.lock();
        places.taken -= 1;
        if let Some(of_client) = places.of_clients.get_mut(&self.client) {
            *of_client -= 1;
            if *of_client == 0 {
                places.of_clients.remove(&self.client);
            }
        }
    }
}

impl WaitingMounts {
    /// Keeps a call to a share, unless it is too long or there are too many.
    pub(crate) fn keep(
        &self,
        share: ShareId,
        record: &[u8],
        peer: &Peer,
        sink: Box<dyn ReplySink>,
        since_ms: u64,
    ) -> bool {
        if record.len() > CALL_BYTES_MAX {
            return false;
        }
        let client = peer.address.ip().to_canonical();
        let Some(place) = Place::take(&self.places, client) else { return false };
        let peer = Peer::new(peer.address, peer.local, peer.transport);
        let call = WaitingMount { record: record.into(), peer, sink, since_ms, place };
        self.calls.lock().entry(share).or_default().push(call);
        true
    }
}

impl Engine {
    /// How many MOUNT calls wait for a name service, or are to be executed again in this round.
    pub fn waiting_mounts(&self) -> usize {
        self.waiting_mounts.places.lock().taken
    }

    /// The shares to which MOUNT calls wait for a name service.
    pub fn shares_with_waiting_mounts(&self) -> Vec<ShareId> {
        self.waiting_mounts.calls.lock().keys().copied().collect()
    }

    /// Executes again what waits for a name service: see [`Engine::retry_waiting_mounts_to`].
    pub fn retry_waiting_mounts(&self) {
        for share in self.shares_with_waiting_mounts() {
            self.retry_waiting_mounts_to(share);
        }
    }

    /// Executes again what waits for a name service to mount a share: to be called when answers
    /// have come, and about once a second. May open the share's storage, and wait for its disk.
    /// Returns what is to be logged, by client.
    pub fn retry_waiting_mounts_to(&self, share: ShareId) -> Vec<(SocketAddr, Complaint)> {
        let mut complaints = Vec::new();
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        let calls = self.waiting_mounts.calls.lock().remove(&share).unwrap_or_default();
        for WaitingMount { record, peer, sink, since_ms, place } in calls {
            // It takes another one if it has to wait on.
            drop(place);
            let mut host = Retrying { sink: Some(sink) };
            let mut reply = ReplyBuffer::default();
            let may_wait = now_ms.saturating_sub(since_ms) < PATIENCE_MS;
            let verdict = self.call_once(
                &mut host,
                &peer,
                now_ms,
                &record,
                &mut reply,
                may_wait.then_some(since_ms),
            );
            complaints.extend(reply.complaint.take().map(|complaint| (peer.address, complaint)));
            // What waits on has taken the sink with it.
            if let (Verdict::Replied, Some(sink)) = (verdict, host.sink) {
                sink.send(&reply.bytes);
            }
        }
        complaints
    }
}

/// The host of a call that is executed again.
struct Retrying {
    sink: Option<Box<dyn ReplySink>>,
}

impl CallHost for Retrying {
    fn may_block(&mut self) {}

    fn will_block(&mut self) {}

    fn reply_sink(&mut self) -> Option<Box<dyn ReplySink>> {
        self.sink.take()
    }
}
