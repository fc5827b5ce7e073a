//! `SETCLIENTID` and `SETCLIENTID_CONFIRM` as tables of cases (RFC 7530 §16.33.5, §16.34.5).

use std::net::IpAddr;

use thiserror::Error;

use crate::{ClientId, Principal, StateError};

/// Where a client wants to be called back. It is kept, and nobody is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    /// Program of RPC.
    pub program: u32,
    /// Kind of network, as rpcbind calls it.
    pub netid: Box<[u8]>,
    /// Address and port, as rpcbind writes them.
    pub address: Box<[u8]>,
    /// What the client knows its callbacks by.
    pub ident: u32,
}

/// A `SETCLIENTID` operation.
#[derive(Clone, Debug)]
pub struct SetClient<'a> {
    /// The client's name (`nfs_client_id4.id`): the host.
    pub owner: &'a [u8],
    /// One life of the host.
    pub verifier: [u8; 8],
    /// Who asks.
    pub principal: &'a Principal,
    /// Where it wants to be called back.
    pub callback: Callback,
    /// Where it asks from, for listings.
    pub address: IpAddr,
}

/// The result of a `SETCLIENTID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetClientId {
    /// The client's id.
    pub client: ClientId,
    /// What `SETCLIENTID_CONFIRM` has to repeat.
    pub confirm: [u8; 8],
}

/// Why a `SETCLIENTID` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetClientError {
    /// `NFS4ERR_CLID_INUSE`: a client at this address uses the name.
    #[error("the client's name is in use by another principal, at {0}")]
    InUse(IpAddr),
    /// Anything else.
    #[error(transparent)]
    State(#[from] StateError),
}

/// What is known of a client of minor version 0 beside its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetClientRecord {
    /// Repeated by `SETCLIENTID_CONFIRM`.
    pub(crate) confirm: [u8; 8],
    pub(crate) callback: Callback,
    /// An update of the two that is not confirmed.
    pub(crate) update: Option<([u8; 8], Callback)>,
}

/// The number that makes a verifier differ from others of its instance.
pub(crate) fn number_of_confirm(confirm: [u8; 8]) -> u64 {
    u64::from_be_bytes(confirm) & u64::from(u32::MAX)
}

/// How the confirmed record of the same name compares with a `SETCLIENTID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) has_same_verifier: bool,
    pub(crate) has_same_principal: bool,
    /// It has opens, and its lease is good.
    pub(crate) is_in_use: bool,
}

/// What is to be done for a `SETCLIENTID`. Each success replaces what the name had unconfirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetCase {
    /// A new record, with an id of its own. A confirmed record of the name stays until this one is
    /// confirmed: the host is new, or has restarted, or its name changed hands.
    New,
    /// The client changes where it is called back, or repeats itself: the id stays.
    Update,
    /// Somebody else uses the name.
    InUse,
}

/// Judges a `SETCLIENTID` by the confirmed record of the same name. One that is not confirmed makes no
/// difference.
pub(crate) fn judge_set(confirmed: Option<Asking>) -> SetCase {
    match confirmed {
        Some(Asking { has_same_principal: false, is_in_use: true, .. }) => SetCase::InUse,
        Some(Asking { has_same_principal: true, has_same_verifier: true, .. }) => SetCase::Update,
        _ => SetCase::New,
    }
}

/// How the record of a client id compares with a `SETCLIENTID_CONFIRM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) is_confirmed: bool,
    pub(crate) has_same_principal: bool,
    /// It repeats the verifier of the record.
    pub(crate) is_confirm: bool,
    /// It repeats the verifier of an update that is not confirmed.
    pub(crate) is_update: bool,
}

/// What is to be done for a `SETCLIENTID_CONFIRM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirming {
    /// The record becomes the name's; the one before goes, with all that it has.
    New,
    /// The update replaces where the client is called back.
    Update,
    /// Nothing: a repetition.
    Again,
}

/// Judges a `SETCLIENTID_CONFIRM` by the record of its client id.
///
/// # Errors
/// [`StateError::StaleClientId`], [`StateError::ClientInUse`].
pub(crate) fn judge_confirm(named: Option<Named>) -> Result<Confirming, StateError> {
    match named {
        Some(Named { has_same_principal: false, .. }) => Err(StateError::ClientInUse),
        Some(Named { is_confirmed: true, is_update: true, .. }) => Ok(Confirming::Update),
        Some(Named { is_confirmed: true, is_confirm: true, .. }) => Ok(Confirming::Again),
        Some(Named { is_confirmed: false, is_confirm: true, .. }) => Ok(Confirming::New),
        Some(_) | None => Err(StateError::StaleClientId),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, Confirming, Named, SetCase, judge_confirm, judge_set};
    use crate::StateError;

    #[test]
    fn the_table_of_setclientid() {
        let confirmed = |has_same_verifier, has_same_principal, is_in_use| {
            Some(Asking { has_same_verifier, has_same_principal, is_in_use })
        };
        let rows = [
            (None, SetCase::New),
            (confirmed(true, true, true), SetCase::Update),
            (confirmed(true, true, false), SetCase::Update),
            (confirmed(false, true, true), SetCase::New),
            (confirmed(false, true, false), SetCase::New),
            (confirmed(true, false, true), SetCase::InUse),
            (confirmed(false, false, true), SetCase::InUse),
            (confirmed(true, false, false), SetCase::New),
            (confirmed(false, false, false), SetCase::New),
        ];
        for (confirmed, expected) in rows {
            assert_eq!(judge_set(confirmed), expected, "{confirmed:?}");
        }
    }

    #[test]
    fn the_table_of_setclientid_confirm() {
        let named = |is_confirmed, has_same_principal, is_confirm, is_update| {
            Some(Named { is_confirmed, has_same_principal, is_confirm, is_update })
        };
        let stale = Err(StateError::StaleClientId);
        let rows = [
            (None, stale),
            (named(false, true, true, false), Ok(Confirming::New)),
            (named(false, true, false, false), stale),
            (named(true, true, true, false), Ok(Confirming::Again)),
            (named(true, true, false, true), Ok(Confirming::Update)),
            (named(true, true, false, false), stale),
            (named(true, false, true, false), Err(StateError::ClientInUse)),
            (named(true, false, false, true), Err(StateError::ClientInUse)),
            (named(false, false, true, false), Err(StateError::ClientInUse)),
            (named(false, false, false, false), Err(StateError::ClientInUse)),
        ];
        for (named, expected) in rows {
            assert_eq!(judge_confirm(named), expected, "{named:?}");
        }
    }
}
