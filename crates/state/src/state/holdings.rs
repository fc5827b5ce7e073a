//! What clients hold and wait for, for listings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delegation_record::DelegationRecord;
use crate::{
    Client, ClientId, DelegationKind, FileKey, LockKind, LockRange, ShareAccess, ShareDeny, State,
    StateError,
};

/// Something that a client has at a file, or wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The file.
    pub file: FileKey,
    /// Open-owner or lock-owner.
    pub owner: Box<[u8]>,
    /// What it is.
    pub held: Held,
}

/// What a client has at a file, or wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// An open, or a share reservation of a host.
    Open {
        /// What for.
        access: ShareAccess,
        /// What it forbids others.
        deny: ShareDeny,
    },
    /// A delegation. It has no owner.
    Delegation {
        /// Its kind.
        kind: DelegationKind,
        /// Whether the client was asked to return it.
        is_recalled: bool,
        /// Whether it was revoked, which the client has not acknowledged.
        is_revoked: bool,
    },
    /// A lock.
    Lock {
        /// Its bytes.
        range: LockRange,
        /// Its kind.
        kind: LockKind,
    },
    /// A lock that it waits for.
    Wait {
        /// Its bytes.
        range: LockRange,
        /// Its kind.
        kind: LockKind,
        /// Who has what is in the way, or waits for longer.
        behind: Vec<ClientId>,
    },
}

impl State {
    /// What a client has and waits for: opens in the order in which they were made, at most `max`; then
    /// the locks and waits at their files, at most as many; then the delegations, at most as many. Whether there is more. No lock of the
    /// state is held for longer than one file takes, or the client's list of opens.
    ///
    /// # Errors
    /// [`StateError::StaleClientId`].
    pub fn holdings(&self, id: ClientId, max: usize) -> Result<(Vec<Holding>, bool), StateError> {
        let client = self.client(id).ok_or(StateError::StaleClientId)?;
        let (mut opens, mut delegations): (Vec<_>, Vec<_>) = {
            let opens = client.opens.lock();
            let of = |open: &crate::client::opens::OpenRecord| {
                (open.file, Arc::clone(&open.owner), open.share)
            };
            let delegations = opens.delegations.iter().map(|(number, of)| (*number, of.clone()));
            (opens.iter().map(|(number, open)| (number, of(open))).collect(), delegations.collect())
        };
        opens.sort_unstable_by_key(|(number, _)| *number);
        let mut is_cut = opens.len() > max;
        let mut files = BTreeMap::new();
        let mut holdings = Vec::new();
        for (number, (file, owner, share)) in opens.into_iter().take(max) {
            files.insert((file.file_system, file.object.as_bytes().to_vec()), (number, file));
            // What only stands for a host's locks is no open to anybody.
            if !share.access.is_empty() || !share.deny.is_empty() {
                let held = Held::Open { access: share.access, deny: share.deny };
                holdings.push(Holding { file, owner: owner.as_ref().into(), held });
            }
        }
        let mut locks = Vec::new();
        for (_, file) in files.into_values() {
            if locks.len() > max {
                break;
            }
            self.locks_of(&client, file, &mut locks);
        }
        is_cut |= locks.len() > max;
        locks.truncate(max);
        holdings.append(&mut locks);
        delegations.sort_unstable_by_key(|(number, _)| *number);
        is_cut |= delegations.len() > max;
        for (number, DelegationRecord { file, kind, is_revoked, .. }) in
            delegations.into_iter().take(max)
        {
            let is_recalled = self.is_recalled(&file, number);
            let held = Held::Delegation { kind, is_recalled, is_revoked };
            holdings.push(Holding { file, owner: Box::default(), held });
        }
        Ok((holdings, is_cut))
    }

    /// Locks and waits of a client at a file.
    fn locks_of(&self, client: &Arc<Client>, file: FileKey, locks: &mut Vec<Holding>) {
        let all = self.locks(&file);
        for (place, lock) in all.iter().enumerate().filter(|(_, lock)| lock.client == client.id()) {
            let (range, kind) = (lock.range, lock.kind);
            let held = if lock.is_waiting {
                let before = all.iter().take(place);
                let in_the_way = before.filter(|other| {
                    let is_own = other.client == lock.client && other.owner == lock.owner;
                    let is_shared = other.kind == LockKind::Read && kind == LockKind::Read;
                    !is_own && !is_shared && overlap(other.range, range)
                });
                let mut behind: Vec<ClientId> = in_the_way.map(|other| other.client).collect();
                behind.sort_unstable();
                behind.dedup();
                Held::Wait { range, kind, behind }
            } else {
                Held::Lock { range, kind }
            };
            locks.push(Holding { file, owner: lock.owner.clone(), held });
        }
    }
}

fn overlap(one: LockRange, other: LockRange) -> bool {
    let (Ok(one), Ok(other)) = (one.span(), other.span()) else { return false };
    one.start <= other.end && other.start <= one.end
}
