//! The flight recorder: the last calls of a worker that were looked at closely, or were slow.
//!
//! A [`Ring`] has one writer, which never waits, and readers that it does not know of. A slot is
//! a sequence lock made of atomics alone (Boehm, "Can seqlocks get along with programming
//! language memory models?", MSPC 2012): its number is odd while it is written, and a reader that
//! finds another number afterwards throws away what it read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crossbeam_utils::CachePadded;
use steadfast_engine::{CallFacts, CompoundOperations, OperationId, Transport};

/// Calls that a ring keeps.
pub(crate) const CALLS_KEPT: usize = 1024;
/// Words of a call.
const WORDS: usize = 14;

const IS_ERROR: u64 = 1 << 48;
const IS_SAMPLED: u64 = 1 << 49;
const IS_IPV6: u64 = 1 << 50;
const IS_UDP: u64 = 1 << 51;
const WAS_PARKED: u64 = 1 << 52;

/// One call, times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallRecord {
    pub(crate) facts: CallFacts,
    pub(crate) client: SocketAddr,
    pub(crate) transport: Transport,
    /// By the stamps' clock.
    pub(crate) begun_ns: u64,
    pub(crate) receive_ns: u64,
    pub(crate) queue_ns: u64,
    pub(crate) execution_ns: u64,
    /// Decoding, access, storage, if they were taken.
    pub(crate) stages_ns: Option<[u64; 3]>,
    /// If it was parked.
    pub(crate) stable_ns: Option<u64>,
    pub(crate) send_ns: u64,
}

impl CallRecord {
    fn to_words(self) -> [u64; WORDS] {
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let ip = match self.client.ip() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let [decode_ns, access_ns, storage_ns] = self.stages_ns.unwrap_or_default();
        [
            u64::from(self.facts.xid)
                | ((self.facts.operation.index() as u64) << 32)
                | flag(self.facts.is_error, IS_ERROR)
                | flag(self.stages_ns.is_some(), IS_SAMPLED)
                | flag(self.client.is_ipv6(), IS_IPV6)
                | flag(self.transport == Transport::Udp, IS_UDP)
                | flag(self.stable_ns.is_some(), WAS_PARKED),
            (ip >> 64) as u64,
            ip as u64,
            u64::from(self.client.port()),
            self.begun_ns,
            self.receive_ns,
            self.queue_ns,
            self.execution_ns,
            decode_ns,
            access_ns,
            storage_ns,
            self.stable_ns.unwrap_or_default(),
            self.send_ns,
            self.facts.operations.to_word(),
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let [
            head,
            ip_high,
            ip_low,
            port,
            begun_ns,
            receive_ns,
            queue_ns,
            execution_ns,
            decode_ns,
            access_ns,
            storage_ns,
            stable_ns,
            send_ns,
            operations,
        ] = words;
        let is = |bit| head & bit != 0;
        let ip = if is(IS_IPV6) {
            let bits = (u128::from(ip_high) << 64) | u128::from(ip_low);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(ip_low as u32))
        };
        Some(Self {
            facts: CallFacts {
                xid: head as u32,
                operation: OperationId::from_index((head >> 32) as usize & 0xffff)?,
                is_error: is(IS_ERROR),
                operations: CompoundOperations::from_word(operations),
                ..CallFacts::default()
            },
            client: SocketAddr::new(ip, port as u16),
            transport: if is(IS_UDP) { Transport::Udp } else { Transport::Tcp },
            begun_ns,
            receive_ns,
            queue_ns,
            execution_ns,
            stages_ns: is(IS_SAMPLED).then_some([decode_ns, access_ns, storage_ns]),
            stable_ns: is(WAS_PARKED).then_some(stable_ns),
            send_ns,
        })
    }
}

#[derive(Debug, Default)]
struct Slot {
    /// Twice the number of the record in it, from 1; odd, one less, while it is written.
    number: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The last [`CALLS_KEPT`] records of one writer. Takes its memory, 128 KiB, with the first.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    slots: OnceLock<Box<[CachePadded<Slot>]>>,
    /// Records written so far. Only the writer looks at it.
    count: AtomicU64,
}

impl Ring {
    /// Keeps a record in place of the oldest. For one thread only.
    pub(crate) fn push(&self, record: &CallRecord) {
        let slots =
            self.slots.get_or_init(|| (0..CALLS_KEPT).map(|_| CachePadded::default()).collect());
        let count = self.count.load(Ordering::Relaxed);
        let Some(slot) = slots.get(count as usize % CALLS_KEPT) else { return };
        slot.number.store(2 * count + 1, Ordering::Relaxed);
        // No word is written before the odd number.
        fence(Ordering::Release);
        for (place, word) in slot.words.iter().zip(record.to_words()) {
            place.store(word, Ordering::Relaxed);
        }
        slot.number.store(2 * count + 2, Ordering::Release);
        self.count.store(count + 1, Ordering::Relaxed);
    }

    /// What is kept, but for records that are being written.
    pub(crate) fn read(&self) -> Vec<CallRecord> {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        slots.iter().filter_map(|slot| slot.read()).collect()
    }
}

impl Slot {
    fn read(&self) -> Option<CallRecord> {
        let number = self.number.load(Ordering::Acquire);
        if number == 0 || number % 2 == 1 {
            return None;
        }
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(&self.words) {
            *word = place.load(Ordering::Relaxed);
        }
        // If a word is of a later record, so is the number that is read now.
        fence(Ordering::Acquire);
        if self.number.load(Ordering::Relaxed) != number {
            return None;
        }
        CallRecord::from_words(words)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// All of it follows from the number.
    fn record(number: u64) -> CallRecord {
        CallRecord {
            facts: CallFacts {
                xid: number as u32,
                operation: OperationId::from_index(number as usize % OperationId::COUNT).unwrap(),
                is_error: number.is_multiple_of(2),
                operations: CompoundOperations::from_word(number % 70),
                ..CallFacts::default()
            },
            client: if number.is_multiple_of(3) {
                SocketAddr::new(Ipv6Addr::from_bits(u128::from(number) << 60).into(), 700)
            } else {
                SocketAddr::new(Ipv4Addr::from_bits(number as u32).into(), number as u16)
            },
            transport: if number.is_multiple_of(5) { Transport::Udp } else { Transport::Tcp },
            begun_ns: number,
            receive_ns: number + 1,
            queue_ns: number + 2,
            execution_ns: number + 3,
            stages_ns: (number.is_multiple_of(7)).then_some([number + 4, number + 5, number + 6]),
            stable_ns: (number.is_multiple_of(11)).then_some(number + 7),
            send_ns: number + 8,
        }
    }

    #[test]
    fn the_last_calls_are_kept_as_they_were() {
        let ring = Ring::default();
        assert!(ring.read().is_empty());
        for number in 0..3000 {
            ring.push(&record(number));
        }
        let mut kept = ring.read();
        kept.sort_by_key(|record| record.begun_ns);
        let expected: Vec<_> = (3000 - CALLS_KEPT as u64..3000).map(record).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn a_reader_beside_the_writer_never_sees_parts_of_two_calls() {
        const RECORDS: u64 = 1_000_000;
        let ring = Ring::default();
        let is_done = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..RECORDS {
                    ring.push(&record(number));
                }
                is_done.store(true, Ordering::Release);
            });
            let mut seen = 0_u64;
            while !is_done.load(Ordering::Acquire) {
                for found in ring.read() {
                    assert_eq!(found, record(found.begun_ns));
                    seen += 1;
                }
            }
            seen
        });
        assert_eq!(ring.read().len(), CALLS_KEPT);
        // On one CPU the reader may have had no turn.
        println!("{seen} records were read beside the writer");
    }
}
