//! Which delegations a client has lost without having said that it knows: what it must not take back after the
//! server has lost all (RFC 8881 §8.4.3).

use std::collections::BTreeMap;

use crate::ClientId;
use crate::share::Share;

/// So many delegations of one client are known one by one, and so many of all clients together. Beyond that it is only
/// known of a client that it has lost some.
const COUNT_A_CLIENT_MAX: usize = 1 << 12;
const COUNT_MAX: usize = 1 << 16;

/// What one client has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Delegations by these file handles; with what the client had the files open for beside the delegation, as far as the
    /// server knew.
    These(BTreeMap<Box<[u8]>, Share>),
    /// More than is known one by one.
    Many,
}

impl Lost {
    /// Whether the client may open a file so, as of before, that it names by this handle; and whether it may have its
    /// delegation, if `is_delegated` says that it claims one.
    pub(crate) fn judge(&self, handle: &[u8], share: Share, is_delegated: bool) -> Reclaimable {
        let known = match self {
            Self::These(all) => all.get(handle).copied(),
            // Nobody knows whether it is one of those.
            Self::Many if is_delegated => return Reclaimable::Open,
            Self::Many => None,
        };
        match known {
            None => Reclaimable::All,
            Some(known) if known.contains(share) => Reclaimable::Open,
            Some(_) => Reclaimable::Nothing,
        }
    }

    /// What both say together, of one client under two ids.
    pub(crate) fn join(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Many, _) => {}
            (_, Self::Many) => *self = Self::Many,
            (Self::These(all), Self::These(others)) => {
                for (handle, share) in others {
                    let known = all.entry(handle.clone()).or_insert(*share);
                    *known = known.common(*share);
                }
            }
        }
    }
}

/// What of an open a client may take back after a loss of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimable {
    /// The open, and the delegation that it claims.
    All,
    /// The open only: its delegation was revoked before the loss.
    Open,
    /// Nothing: the client has opened the file by itself, under a delegation that was revoked.
    Nothing,
}

/// What all clients have lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllLost {
    of: BTreeMap<ClientId, Lost>,
    /// How many are known one by one.
    count: usize,
}

impl AllLost {
    /// A client has lost its delegation by this handle; without one, it is not known which.
    pub(crate) fn add(&mut self, id: ClientId, handle: Box<[u8]>, share: Share) {
        let of = self.of.entry(id).or_insert_with(|| Lost::These(BTreeMap::new()));
        let Lost::These(all) = of else { return };
        let is_new = !all.contains_key(&handle);
        let is_full = self.count >= COUNT_MAX || all.len() >= COUNT_A_CLIENT_MAX;
        if handle.is_empty() || is_new && is_full {
            self.count = self.count.saturating_sub(all.len());
            *of = Lost::Many;
            return;
        }
        self.count += usize::from(is_new);
        all.insert(handle, share);
    }

    /// It knows so of this one.
    pub(crate) fn remove(&mut self, id: ClientId, handle: &[u8]) {
        let Some(Lost::These(all)) = self.of.get_mut(&id) else { return };
        self.count = self.count.saturating_sub(usize::from(all.remove(handle).is_some()));
        if all.is_empty() {
            self.of.remove(&id);
        }
    }

    /// It knows so of all, or is gone.
    pub(crate) fn forget(&mut self, id: ClientId) {
        if let Some(Lost::These(all)) = self.of.remove(&id) {
            self.count = self.count.saturating_sub(all.len());
        }
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(ClientId) -> bool) {
        let ids = self.of.keys().copied().filter(|id| !is_kept(*id));
        for id in ids.collect::<Vec<_>>() {
            self.forget(id);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Lost)> {
        self.of.iter().map(|(id, lost)| (*id, lost))
    }
}

#[cfg(test)]
mod tests {
    use super::{AllLost, COUNT_A_CLIENT_MAX, COUNT_MAX, Lost, Reclaimable};
    use crate::share::Share;
    use crate::{ClientId, ShareAccess, ShareDeny};

    fn share(access: u8, deny: u8) -> Share {
        Share {
            access: ShareAccess::from_bits_truncate(access),
            deny: ShareDeny::from_bits_truncate(deny),
        }
    }

    fn client(index: u16) -> ClientId {
        ClientId::new(1, 1, index)
    }

    fn handle(number: usize) -> Box<[u8]> {
        number.to_be_bytes().into()
    }

    fn of(all: &AllLost, id: ClientId) -> Option<&Lost> {
        all.iter().find(|(of, _)| *of == id).map(|(_, lost)| lost)
    }

    #[test]
    fn an_open_that_the_server_knew_may_be_taken_back_without_its_delegation() {
        let mut all = AllLost::default();
        all.add(client(1), handle(1), share(1, 0));
        let lost = of(&all, client(1)).expect("added");
        for is_delegated in [false, true] {
            let judge = |number, share| lost.judge(&handle(number), share, is_delegated);
            assert_eq!(judge(1, share(1, 0)), Reclaimable::Open);
            assert_eq!(judge(1, share(3, 0)), Reclaimable::Nothing);
            assert_eq!(judge(1, share(1, 2)), Reclaimable::Nothing);
            assert_eq!(judge(2, share(3, 3)), Reclaimable::All);
        }
        // The client opens it for more, and the server knows.
        all.add(client(1), handle(1), share(3, 0));
        let lost = of(&all, client(1)).expect("added");
        assert_eq!(lost.judge(&handle(1), share(3, 0), true), Reclaimable::Open);
        all.remove(client(1), &handle(1));
        assert_eq!(all, AllLost::default());
    }

    #[test]
    fn what_is_not_known_one_by_one_is_not_delegated_again() {
        let mut all = AllLost::default();
        for number in 0..COUNT_A_CLIENT_MAX {
            all.add(client(1), handle(number), share(1, 0));
        }
        all.add(client(0), handle(0), share(1, 0));
        all.add(client(1), handle(1), share(2, 0));
        assert_eq!(all.count, COUNT_A_CLIENT_MAX + 1, "that one is known");
        all.add(client(1), handle(COUNT_A_CLIENT_MAX), share(1, 0));
        assert_eq!(of(&all, client(1)), Some(&Lost::Many));
        assert_eq!(all.count, 1);
        let lost = of(&all, client(1)).expect("added");
        assert_eq!(lost.judge(&handle(7), share(3, 3), true), Reclaimable::Open);
        assert_eq!(lost.judge(&handle(7), share(3, 3), false), Reclaimable::All);
        // There is room again, but of this client it is not known which.
        all.add(client(1), handle(2), share(1, 0));
        all.remove(client(1), &handle(2));
        assert_eq!(of(&all, client(1)), Some(&Lost::Many));
        all.forget(client(1));
        all.retain(|id| id != client(0));
        assert_eq!(all, AllLost::default());
    }

    #[test]
    fn what_all_clients_have_lost_is_bounded() {
        let mut all = AllLost::default();
        for number in 0..COUNT_MAX {
            all.add(client((number / COUNT_A_CLIENT_MAX) as u16), handle(number), share(1, 0));
        }
        assert_eq!((all.count, all.iter().count()), (COUNT_MAX, COUNT_MAX / COUNT_A_CLIENT_MAX));
        all.add(client(99), handle(7), share(1, 0));
        assert_eq!((all.count, of(&all, client(99))), (COUNT_MAX, Some(&Lost::Many)));
    }

    #[test]
    fn of_a_client_under_two_ids_the_less_is_true() {
        let mut all = AllLost::default();
        all.add(client(1), handle(1), share(3, 0));
        all.add(client(2), handle(1), share(1, 1));
        all.add(client(2), handle(2), share(1, 0));
        let mut lost = of(&all, client(1)).expect("added").clone();
        lost.join(of(&all, client(2)).expect("added"));
        assert_eq!(lost.judge(&handle(1), share(1, 0), true), Reclaimable::Open);
        assert_eq!(lost.judge(&handle(1), share(2, 0), true), Reclaimable::Nothing);
        assert_eq!(lost.judge(&handle(2), share(1, 0), true), Reclaimable::Open);
        lost.join(&Lost::Many);
        assert_eq!(lost, Lost::Many);
        lost.join(of(&all, client(2)).expect("added"));
        assert_eq!(lost, Lost::Many);
    }
}
