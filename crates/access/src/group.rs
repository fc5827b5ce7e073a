//! A netgroup's hosts by address, so that asking costs the same however many there are.

use std::collections::HashMap as StdMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use hashbrown::HashMap;
use parking_lot::RwLock;
use steadfast_shares::{HostName, Known};

use crate::facts::Members;

/// What is known about one host of a netgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member<'a> {
    /// It was not asked about yet.
    Untried,
    /// It was asked about in vain, and never otherwise.
    Failed,
    /// It has these addresses.
    Known(&'a [IpAddr]),
}

/// A netgroup, made ready to be asked.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) members: Arc<Members>,
    /// How many of the hosts have an address.
    addresses: RwLock<HashMap<IpAddr, u32>>,
    /// Hosts that were never answered about, and those of them that were not tried yet.
    unknown: AtomicUsize,
    untried: AtomicUsize,
    /// Until when whoever asks has patience.
    patience_until_ms: AtomicU64,
    /// Whether somebody was told that it cannot be known.
    pub(crate) was_unreachable: AtomicBool,
}

impl Group {
    /// A netgroup about whose hosts nothing is known.
    pub(crate) fn new(members: Arc<Members>, patience_until_ms: u64) -> Self {
        let addresses = members.addresses.iter().map(|address| (*address, 1)).collect();
        let count = members.hosts.len();
        Self {
            members,
            addresses: RwLock::new(addresses),
            unknown: AtomicUsize::new(count),
            untried: AtomicUsize::new(count),
            patience_until_ms: AtomicU64::new(patience_until_ms),
            was_unreachable: AtomicBool::new(false),
        }
    }

    /// Whether the client is in it. `is_alive`: the name service has answered something just now.
    pub(crate) fn knows(&self, client: IpAddr, now_ms: u64, is_alive: bool) -> Known {
        if let Some(known) = self.settled(client) {
            return known;
        }
        let is_patient = now_ms < self.patience_until_ms.load(Ordering::Relaxed);
        if is_patient || (is_alive && self.untried.load(Ordering::Relaxed) > 0) {
            return Known::NotYet;
        }
        self.was_unreachable.store(true, Ordering::Relaxed);
        // Either who brings an answer sees that it was told, or the answer is seen here.
        fence(Ordering::SeqCst);
        self.settled(client).unwrap_or(Known::Unreachable)
    }

    /// Whether the client is in it, if that hangs on nothing unknown.
    fn settled(&self, client: IpAddr) -> Option<Known> {
        // Before the addresses: the last one that is learnt is there before nothing is unknown.
        let has_unknown = self.has_unknown();
        if self.members.is_everybody || self.addresses.read().contains_key(&client) {
            return Some(Known::Yes);
        }
        (!has_unknown).then_some(Known::No)
    }

    /// Something else is known about a host. Called by one thread.
    pub(crate) fn update(&self, before: Member<'_>, after: Member<'_>) {
        if before == after {
            return;
        }
        if before == Member::Untried {
            self.untried.fetch_sub(1, Ordering::Relaxed);
        }
        let (old, new) = (before.addresses(), after.addresses());
        {
            let mut addresses = self.addresses.write();
            for address in old.into_iter().flatten() {
                if let hashbrown::hash_map::Entry::Occupied(mut count) = addresses.entry(*address) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
            for address in new.into_iter().flatten() {
                *addresses.entry(*address).or_insert(0) += 1;
            }
        }
        // After the addresses: who reads that nothing is unknown finds them all.
        match (old, new) {
            (None, Some(_)) => {
                self.unknown.fetch_sub(1, Ordering::Release);
            }
            (Some(_), None) => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Whether nothing is known about some host.
    pub(crate) fn has_unknown(&self) -> bool {
        self.unknown.load(Ordering::Acquire) > 0
    }

    /// Whether a host's first answer can change what somebody was told.
    pub(crate) fn may_be_remembered(&self) -> bool {
        fence(Ordering::SeqCst);
        self.was_unreachable.load(Ordering::Relaxed)
    }
}

impl<'a> Member<'a> {
    fn addresses(self) -> Option<&'a [IpAddr]> {
        match self {
            Self::Untried | Self::Failed => None,
            Self::Known(addresses) => Some(addresses),
        }
    }
}

/// Which netgroups each host is in.
#[derive(Debug, Default)]
pub(crate) struct Memberships(StdMap<HostName, Vec<Arc<Group>>>);

impl Memberships {
    /// The netgroups of a host.
    pub(crate) fn of(&self, host: &HostName) -> &[Arc<Group>] {
        self.0.get(host).map_or(&[], Vec::as_slice)
    }

    /// Notes all hosts of a netgroup.
    pub(crate) fn enter(&mut self, group: &Arc<Group>) {
        for host in &group.members.hosts {
            self.0.entry(host.clone()).or_default().push(Arc::clone(group));
        }
    }

    /// Forgets those of a netgroup.
    pub(crate) fn leave(&mut self, group: &Arc<Group>) {
        for host in &group.members.hosts {
            if let Some(groups) = self.0.get_mut(host) {
                groups.retain(|other| !Arc::ptr_eq(other, group));
                if groups.is_empty() {
                    self.0.remove(host);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// While the last host's address is learnt nobody is told that it is not in the netgroup.
    #[test]
    fn a_member_is_never_refused_while_it_is_learnt() {
        let client: IpAddr = [10, 0, 0, 1].into();
        let rounds = 3000;
        let hosts = vec![HostName::new("a.example").expect("a host")];
        let members = Arc::new(Members { hosts, ..Members::default() });
        let groups: Vec<Group> = (0..rounds).map(|_| Group::new(Arc::clone(&members), 0)).collect();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for group in &groups {
                    barrier.wait();
                    group.update(Member::Untried, Member::Known(&[client]));
                }
            });
            for group in &groups {
                barrier.wait();
                loop {
                    match group.knows(client, 1, false) {
                        Known::Yes => break,
                        known => assert_ne!(known, Known::No),
                    }
                }
            }
        });
    }
}
