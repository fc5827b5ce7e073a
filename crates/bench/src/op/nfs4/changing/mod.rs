//! Calls over NFSv4 that change, open or lock something, as Linux sends them.
//!
//! A lane makes one turn after the other; a turn is one request, or two where the second undoes or
//! completes the first (CLOSE, LOCKU, COMMIT). `requests` builds them, `judging` reads their replies.

mod judging;
mod requests;

use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::nfs4::{COMPOUND, Slot, StateId4};
use steadfast_client::{CallTemplate, FileHandle};

use super::connect::{Connected, Left};
use super::objects::Objects;
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::op::check::Ended;
use crate::op::script::Promises;
use crate::op::tree::Tree;
use crate::op::{Load, Operation};
use crate::records::Outbox;

/// Bytes that a lane locks.
const LOCKED_BYTES: u64 = 16;

/// One request in flight at a time.
#[derive(Debug, Default)]
struct Lane {
    /// While its client is connected.
    slot: Option<Slot>,
    /// Whole turns ended.
    turns: u64,
    /// The turn's second request is next, or in flight.
    is_second: bool,
    /// What the turn has opened.
    open: Option<(FileHandle, StateId4)>,
    /// By which this lane's owner locks, once it has locked.
    lock: Option<StateId4>,
    is_locked: bool,
    /// Of WRITE.
    verifier: [u8; 8],
    /// COMMIT says that the WRITE may be lost: it is made again.
    is_lost: bool,
}

/// A thread's script.
pub(in crate::op) struct Changes4 {
    load: Load,
    tree: Arc<Tree>,
    objects: Arc<Objects>,
    clients: Range<usize>,
    /// Record mark and RPC header of each call.
    head: Vec<u8>,
    lanes: Vec<Lane>,
    /// By client of this thread.
    connected: Vec<Option<Connected>>,
    promises: Promises,
    /// Objects that SETATTR has changed.
    has_set: Vec<bool>,
}

/// Which request of which lane.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Of this thread.
    client: usize,
    /// Of all threads.
    connection: usize,
    /// Among the lanes of its client.
    lane: usize,
    /// Among the lanes of all threads.
    number: usize,
    turns: u64,
    is_second: bool,
}

impl Turn {
    /// What the lane locks.
    fn locked(self) -> (u64, u64) {
        (self.lane as u64 * LOCKED_BYTES, LOCKED_BYTES)
    }

    /// One of so many objects that no other lane of the client is at work on.
    fn own_of(self, count: usize, depth: usize) -> usize {
        let of_lane = (count / depth).max(1);
        // Clients begin elsewhere, so that they do not follow each other.
        let place = (self.turns as usize).wrapping_add(self.connection.wrapping_mul(7)) % of_lane;
        (place * depth + self.lane) % count.max(1)
    }
}

impl Changes4 {
    pub(in crate::op) fn new(
        load: &Load,
        tree: &Arc<Tree>,
        objects: &Arc<Objects>,
        clients: Range<usize>,
    ) -> Self {
        let head = CallTemplate::new(COMPOUND, &load.target.identity, &[], 0);
        Self {
            load: load.clone(),
            tree: Arc::clone(tree),
            objects: Arc::clone(objects),
            head: head.record().to_vec(),
            lanes: (0..clients.len() * load.depth).map(|_| Lane::default()).collect(),
            connected: clients.clone().map(|_| None).collect(),
            clients,
            promises: Promises::default(),
            has_set: vec![false; tree.objects.len()],
        }
    }

    fn turn(&self, lane: usize) -> Option<Turn> {
        let own = self.lanes.get(lane)?;
        let client = lane / self.load.depth;
        Some(Turn {
            client,
            connection: self.clients.start + client,
            lane: lane % self.load.depth,
            number: self.clients.start * self.load.depth + lane,
            turns: own.turns,
            is_second: own.is_second,
        })
    }

    /// Whether an operation is two requests.
    fn is_twofold(&self) -> bool {
        self.load.operation.kinds(self.load.nfs).len() > 1
    }

    /// The object that a turn is about, where it is about one.
    fn choice(&self, turn: Turn) -> usize {
        let count = self.objects.all.len();
        match self.load.operation {
            Operation::Write { .. } | Operation::WriteCommit { .. } | Operation::LockUnlock => {
                turn.connection
            }
            // ext4 takes 65,000 links a file: they go round.
            Operation::Link => {
                (turn.turns as usize).wrapping_add(turn.number.wrapping_mul(31)) % count.max(1)
            }
            _ => turn.own_of(count, self.load.depth),
        }
    }

    /// The lane goes on to its next turn, or to the second request.
    fn advance(&mut self, lane: usize) {
        let is_twofold = self.is_twofold();
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        lane.is_second = is_twofold && !lane.is_second;
        let has_ended = !lane.is_second && !std::mem::take(&mut lane.is_lost);
        lane.turns += u64::from(has_ended);
    }
}

impl Ended for Changes4 {
    fn turns(&self) -> Vec<(usize, u64)> {
        let first = self.clients.start * self.load.depth;
        self.lanes.iter().enumerate().map(|(lane, own)| (first + lane, own.turns)).collect()
    }

    fn has_set(&self, object: usize) -> bool {
        self.has_set.get(object).copied().unwrap_or(false)
    }

    fn promises(&self) -> &Promises {
        &self.promises
    }
}

impl Script for Changes4 {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let number = self.clients.start + client;
        let mut connected = Connected::make(&self.load, &self.objects, number, stream)?;
        let lanes = self.lanes.iter_mut().skip(client * self.load.depth).take(self.load.depth);
        connected.take_slots(number, lanes.map(|lane| &mut lane.slot))?;
        if let Some(place) = self.connected.get_mut(client) {
            *place = Some(connected);
        }
        Ok(())
    }

    fn finished(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        let Some(connected) = self.connected.get_mut(client).and_then(Option::take) else {
            return Ok(());
        };
        let mut left = Left::default();
        let lanes = client * self.load.depth..(client + 1) * self.load.depth;
        let file = connected.opened.first().map(|(file, _)| file.clone());
        for lane in lanes.clone() {
            let Some(turn) = self.turn(lane) else { continue };
            let Some(own) = self.lanes.get_mut(lane) else { continue };
            left.opened.extend(own.open.take());
            if let (true, Some(stateid), Some(file)) = (own.is_locked, own.lock, &file) {
                left.locked.push((file.clone(), stateid, turn.locked()));
            }
        }
        let slots = self.lanes.get_mut(lanes).into_iter().flatten();
        connected.end(&self.load, slots.filter_map(|lane| lane.slot.take()), &left, stream)
    }

    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let Some(turn) = self.turn(lane) else { return Ok(None) };
        let is_over = self.load.operation.removes_names() && turn.turns >= self.tree.names_per_slot;
        if is_over || !self.append(lane, turn, xid, out) {
            return Ok(None);
        }
        Ok(Some(usize::from(turn.is_second)))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        let kinds = self.load.operation.kinds(self.load.nfs);
        let is_second = self.lanes.get(lane).is_some_and(|lane| lane.is_second);
        let name = kinds.get(usize::from(is_second)).copied().unwrap_or("");
        match self.judge(lane, name, message)? {
            Ok(()) => {
                self.advance(lane);
                Ok(Verdict::Good)
            }
            Err(complaint) if complaint.is_delay() => Ok(Verdict::TryLater),
            Err(complaint) => Err(complaint.about(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_client_never_open_the_same_file() {
        for turns in 0..100 {
            let of = |lane| {
                let (client, connection, number, is_second) = (0, 3, 24 + lane, false);
                Turn { client, connection, lane, number, turns, is_second }.own_of(256, 8)
            };
            let all: std::collections::HashSet<usize> = (0..8).map(of).collect();
            assert_eq!(all.len(), 8, "{turns}");
            assert!(all.iter().all(|object| *object < 256));
        }
    }
}
