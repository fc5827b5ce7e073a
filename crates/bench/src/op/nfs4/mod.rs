//! Over NFSv4: a session a connection, a slot a call in flight.
//!
//! `objects` looks at the tree that was made, by its names; `connect` makes the sessions. [`Calls4`] makes calls that only read, and `judge`
//! reads their replies; `changing` makes those that change, open or lock something.

mod changing;
mod connect;
mod judge;
mod objects;

use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::CallTemplate;
use steadfast_client::nfs4::{COMPOUND, Compound, LINUX_ATTRIBUTES, NULL4, Slot};
use steadfast_wire::nfs4::{Op4, Sequence4Args, StateId4};

use super::script::Promises;
use super::tree::object_name;
use super::{Load, Operation};
use crate::drive::{Script, Verdict};
use crate::error::BenchError;
use crate::nfs4::{FILE_RIGHTS, LIMITS, NAMES, SPACE, requests};
use crate::random::Random;
use crate::records::Outbox;
use crate::replies::LongData;
pub(super) use changing::Changes4;
use connect::{Connected, Left};
pub(super) use objects::Objects;

/// Bytes of a stateid's seqid and other.
const STATEID_BYTES: usize = 16;

/// A request that is built once, and where in its record is what differs each time.
struct Template {
    call: CallTemplate,
    sequence_at: usize,
    /// Of READ.
    stateid_at: usize,
}

/// One request in flight at a time.
#[derive(Debug, Default)]
struct Lane {
    /// While its client is connected.
    slot: Option<Slot>,
    /// Which object.
    choice: usize,
    offset: u64,
}

/// A thread's script.
pub(super) struct Calls4 {
    load: Load,
    objects: Arc<Objects>,
    clients: Range<usize>,
    templates: Vec<Template>,
    lanes: Vec<Lane>,
    /// By client of this thread.
    connected: Vec<Option<Connected>>,
    random: Random,
    pub(super) promises: Promises,
}

/// All templates of an operation, by object.
fn templates(load: &Load, objects: &Objects) -> Vec<Template> {
    let identity = &load.target.identity;
    if load.operation == Operation::Null {
        let call = CallTemplate::new(NULL4, identity, &[], 0);
        return vec![Template { call, sequence_at: 0, stateid_at: 0 }];
    }
    let sequence = Sequence4Args {
        sessionid: [0; 16],
        sequenceid: 0,
        slotid: 0,
        highest_slotid: load.depth.saturating_sub(1) as u32,
        cachethis: false,
    };
    // Where SEQUENCE's arguments are: behind its number.
    let sequence_after = Compound::new().len_bytes() + 4;
    let template = |(index, object): (usize, &objects::Object)| {
        let compound = Compound::new().of_minor_version(load.nfs.minor()).sequence(&sequence);
        let (compound, stateid_after) = match load.operation {
            Operation::Lookup => {
                (requests::lookup(compound, &objects.directory, &object_name(index)), 0)
            }
            Operation::Access => (compound.put(&object.handle).access(FILE_RIGHTS), 0),
            Operation::Readlink => (compound.put(&object.handle).plain(Op4::ReadLink), 0),
            Operation::Read { size } => {
                let compound = compound.put(&object.handle);
                let after = compound.len_bytes() + 4;
                (compound.read(StateId4 { seqid: 0, other: [0; 12] }, 0, size), after)
            }
            Operation::Readdir { size } | Operation::Readdirplus { size } => {
                let is_plus = load.operation.is_plus();
                (requests::list(compound, &object.handle, (0, [0; 8]), size, is_plus), 0)
            }
            Operation::Fsstat => (compound.put(&object.handle).attributes(SPACE), 0),
            Operation::Fsinfo => (compound.put(&object.handle).attributes(LIMITS), 0),
            Operation::Pathconf => (compound.put(&object.handle).attributes(NAMES), 0),
            _ => (compound.put(&object.handle).attributes(LINUX_ATTRIBUTES), 0),
        };
        let call = CallTemplate::new(COMPOUND, identity, &compound.arguments(), 0);
        let start = call.arguments_at();
        Template { call, sequence_at: start + sequence_after, stateid_at: start + stateid_after }
    };
    objects.all.iter().enumerate().map(template).collect()
}

impl Calls4 {
    pub(super) fn new(load: &Load, objects: &Arc<Objects>, clients: Range<usize>) -> Self {
        let lanes = (0..clients.len() * load.depth).map(|_| Lane::default()).collect();
        Self {
            load: load.clone(),
            objects: Arc::clone(objects),
            templates: templates(load, objects),
            lanes,
            connected: clients.clone().map(|_| None).collect(),
            random: Random::new(clients.start as u64),
            clients,
            promises: Promises::default(),
        }
    }

    fn broken(&self, what: impl Into<String>) -> BenchError {
        BenchError::broken(self.load.operation.name(), what)
    }
}

impl Script for Calls4 {
    fn connected(&mut self, client: usize, stream: &TcpStream) -> Result<(), BenchError> {
        if self.load.operation == Operation::Null {
            return Ok(());
        }
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
        let lanes = self.lanes.iter_mut().skip(client * self.load.depth);
        let slots = lanes.take(self.load.depth).filter_map(|lane| lane.slot.take());
        connected.end(&self.load, slots, &Left::default(), stream)
    }

    fn call(
        &mut self,
        lane: usize,
        xid: u32,
        out: &mut Outbox,
    ) -> Result<Option<usize>, BenchError> {
        let choice = self.random.below(self.templates.len());
        let (Some(own), Some(template)) = (self.lanes.get_mut(lane), self.templates.get(choice))
        else {
            return Ok(None);
        };
        own.choice = choice;
        let start = out.bytes().len();
        template.call.append(xid, out.bytes());
        let connected = self.connected.get(lane / self.load.depth).and_then(Option::as_ref);
        let (Some(slot), Some(connected)) = (&own.slot, connected) else { return Ok(Some(0)) };
        let mut patch = |at: usize, value: &[u8]| {
            if let Some(place) = out.bytes().get_mut(start + at..start + at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        patch(template.sequence_at, &connected.session.slots.session());
        patch(template.sequence_at + 16, &slot.sequence().to_be_bytes());
        patch(template.sequence_at + 20, &slot.number().to_be_bytes());
        if let Operation::Read { size } = self.load.operation {
            let places = (self.objects.file_bytes / u64::from(size)).max(1) as usize;
            own.offset = self.random.below(places) as u64 * u64::from(size);
            if let Some((_, StateId4 { seqid, other })) = connected.opened.get(choice) {
                patch(template.stateid_at, &seqid.to_be_bytes());
                patch(template.stateid_at + 4, other);
            }
            patch(template.stateid_at + STATEID_BYTES, &own.offset.to_be_bytes());
        }
        Ok(Some(0))
    }

    fn reply(&mut self, lane: usize, message: &[u8]) -> Result<Verdict, BenchError> {
        self.judge(lane, message)
    }

    fn long_reply(
        &mut self,
        lane: usize,
        head: &[u8],
        bytes: usize,
    ) -> Result<LongData, BenchError> {
        self.judge_long(lane, head, bytes)
    }
}
