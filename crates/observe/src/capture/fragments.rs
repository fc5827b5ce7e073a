//! Reassembly of IP fragments: datagrams of UDP that are larger than the MTU.

use std::collections::HashMap;
use std::net::IpAddr;

use super::packet::Fragment;

/// Datagrams that are incomplete at a time; the oldest gives way.
const DATAGRAMS_MAX: usize = 256;
/// Bytes of one datagram: what the length of IPv4 can say.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Fragments of one datagram: 64 KiB in pieces of the smallest MTU.
const FRAGMENTS_MAX: usize = 2048;
/// For how long the rest of a datagram is waited for, as the kernel does (`ipfrag_time`).
const WAIT_NS: u64 = 30_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
    /// What is seen at two interfaces is put together at each.
    interface: u32,
}

#[derive(Debug, Default)]
struct Datagram {
    begun_ns: u64,
    /// Places and bytes of the parts, in order, none of which overlap.
    parts: Vec<(usize, Vec<u8>)>,
    total: Option<usize>,
    /// The capture has cut a part: the whole will not be known, and nothing is lost by that.
    is_cut: bool,
}

/// The incomplete datagrams.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    datagrams: HashMap<Key, Datagram>,
    /// Datagrams of which fragments did not come.
    pub(crate) incomplete: u64,
}

impl Fragments {
    /// Takes a fragment; returns the whole payload if it was the last that was missing. Of a datagram whose first part the
    /// capture has cut, what there is of that part is all.
    pub(crate) fn handle(&mut self, fragment: &Fragment<'_>, now_ns: u64) -> Option<Vec<u8>> {
        let part = &fragment.part;
        let end = fragment.offset.checked_add(part.bytes.len())?;
        if end > DATAGRAM_BYTES_MAX {
            return None;
        }
        let key = Key {
            source: part.source,
            destination: part.destination,
            protocol: part.protocol,
            id: fragment.id,
            interface: part.interface,
        };
        if !self.datagrams.contains_key(&key) {
            self.make_room(now_ns);
        }
        let datagram = self.datagrams.entry(key).or_default();
        if datagram.parts.is_empty() && !datagram.is_cut {
            datagram.begun_ns = now_ns;
        } else if now_ns.saturating_sub(datagram.begun_ns) > WAIT_NS {
            // The number was used again.
            self.incomplete += u64::from(!datagram.is_cut);
            *datagram = Datagram { begun_ns: now_ns, ..Datagram::default() };
        }
        if datagram.is_cut || part.missing > 0 {
            datagram.is_cut = true;
            datagram.parts = Vec::new();
            return (fragment.offset == 0).then(|| part.bytes.to_vec());
        }
        if !fragment.has_more {
            datagram.total = Some(end);
        }
        datagram.add(fragment.offset, part.bytes);
        let whole = datagram.whole()?;
        self.datagrams.remove(&key);
        Some(whole)
    }

    /// Forgets datagrams that will not become complete.
    pub(crate) fn forget_old(&mut self, now_ns: u64) {
        let incomplete = &mut self.incomplete;
        self.datagrams.retain(|_, each| {
            let is_kept = now_ns.saturating_sub(each.begun_ns) <= WAIT_NS;
            *incomplete += u64::from(!is_kept && !each.is_cut);
            is_kept
        });
    }

    fn make_room(&mut self, now_ns: u64) {
        if self.datagrams.len() < DATAGRAMS_MAX {
            return;
        }
        self.forget_old(now_ns);
        if self.datagrams.len() < DATAGRAMS_MAX {
            return;
        }
        let oldest = self.datagrams.iter().min_by_key(|(_, each)| each.begun_ns);
        if let Some(key) = oldest.map(|(key, _)| *key)
            && let Some(gone) = self.datagrams.remove(&key)
        {
            self.incomplete += u64::from(!gone.is_cut);
        }
    }
}

impl Datagram {
    /// Adds what is not there already.
    fn add(&mut self, offset: usize, bytes: &[u8]) {
        if self.parts.len() >= FRAGMENTS_MAX {
            return;
        }
        let at = self.parts.partition_point(|(place, _)| *place <= offset);
        let end_before = at
            .checked_sub(1)
            .and_then(|before| self.parts.get(before))
            .map_or(0, |(place, part)| place + part.len());
        let begin_after = self.parts.get(at).map_or(usize::MAX, |(place, _)| *place);
        let begin = offset.max(end_before);
        let end = (offset + bytes.len()).min(begin_after);
        if let Some(new) = begin.checked_sub(offset).and_then(|from| bytes.get(from..end - offset))
            && !new.is_empty()
        {
            self.parts.insert(at, (begin, new.to_vec()));
        }
    }

    fn whole(&self) -> Option<Vec<u8>> {
        let total = self.total?;
        let mut reached = 0;
        for (place, part) in &self.parts {
            if *place != reached {
                return None;
            }
            reached += part.len();
        }
        if reached < total {
            return None;
        }
        let mut all = Vec::with_capacity(reached);
        for (_, part) in &self.parts {
            all.extend_from_slice(part);
        }
        all.truncate(total);
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::packet::{Fragment, IpPayload};
    use super::{DATAGRAMS_MAX, Fragments, WAIT_NS};

    fn fragment(id: u32, offset: usize, bytes: &[u8], has_more: bool) -> Fragment<'_> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let part = IpPayload {
            source: address,
            destination: address,
            protocol: 17,
            bytes,
            missing: 0,
            interface: 0,
        };
        Fragment { id, offset, has_more, part }
    }

    #[test]
    fn parts_make_a_whole_in_any_order_and_when_repeated() {
        let data: Vec<u8> = (0..40).collect();
        let parts = [(0, 16, true), (16, 32, true), (32, 40, false)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut fragments = Fragments::default();
            for (number, index) in order.into_iter().enumerate() {
                let (begin, end, has_more) = parts[index];
                let part = fragment(7, begin, &data[begin..end], has_more);
                let whole = fragments.handle(&part, 5);
                if number < 2 {
                    assert_eq!(whole, None, "{order:?}");
                    assert_eq!(fragments.handle(&part, 6), None, "a repetition completes nothing");
                } else {
                    assert_eq!(whole.as_deref(), Some(&data[..]), "{order:?}");
                }
            }
            assert!(fragments.datagrams.is_empty());
        }
    }

    #[test]
    fn parts_may_overlap() {
        let data: Vec<u8> = (0..32).collect();
        let mut fragments = Fragments::default();
        assert_eq!(fragments.handle(&fragment(7, 0, &data[0..16], true), 5), None);
        let whole = fragments.handle(&fragment(7, 8, &data[8..32], false), 5);
        assert_eq!(whole.as_deref(), Some(&data[..]));
    }

    #[test]
    fn incomplete_ones_are_bounded_in_number_and_time() {
        let mut fragments = Fragments::default();
        for id in 0..DATAGRAMS_MAX as u32 + 10 {
            assert_eq!(fragments.handle(&fragment(id, 0, &[0; 8], true), u64::from(id)), None);
        }
        assert_eq!((fragments.datagrams.len(), fragments.incomplete), (DATAGRAMS_MAX, 10));
        fragments.forget_old(WAIT_NS + 1000);
        assert!(fragments.datagrams.is_empty());
        assert_eq!(fragments.incomplete, DATAGRAMS_MAX as u64 + 10);
        // Beyond what a datagram can have.
        assert_eq!(fragments.handle(&fragment(1, 65_528, &[0; 16], false), 1), None);
        assert!(fragments.datagrams.is_empty());
    }
}
