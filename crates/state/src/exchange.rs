//! `EXCHANGE_ID` as a table of cases (RFC 8881 §18.35.4).

use std::net::IpAddr;

use crate::{ClientId, Principal, StateError};

/// An `EXCHANGE_ID` operation.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeId<'a> {
    /// The client owner (`co_ownerid`): the host.
    pub owner: &'a [u8],
    /// The client's verifier (`co_verifier`): one life of the host.
    pub verifier: [u8; 8],
    /// Who asks.
    pub principal: &'a Principal,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub is_update: bool,
    /// The client's implementation, for listings.
    pub implementation: &'a [u8],
    /// Where it asks from, for listings.
    pub address: IpAddr,
}

/// The result of an `EXCHANGE_ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangedId {
    /// The client's id.
    pub client: ClientId,
    /// Sequence id of the client's next `CREATE_SESSION` (`eir_sequenceid`).
    pub sequence: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub is_confirmed: bool,
}

/// How the confirmed record of the same owner compares with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    pub(crate) has_same_verifier: bool,
    pub(crate) has_same_principal: bool,
    /// It has sessions or opens, and its lease is good.
    pub(crate) is_in_use: bool,
}

/// What is to be done. Whatever makes a new record replaces the owner's unconfirmed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Cases 1 and 4: the owner is new, or was never confirmed. A new record.
    New,
    /// Case 2: the request is repeated, or looks for trunking. The confirmed record answers.
    Again,
    /// Case 3: by chance two hosts have one owner, and the other is gone. A new record; the
    /// confirmed one and its state go at once.
    Instead,
    /// Case 5: the host has restarted. A new record. The confirmed one stays until `CREATE_SESSION`
    /// confirms the new one.
    Restart,
    /// Case 6: an update of the confirmed record.
    Update,
}

/// Judges a request by the confirmed record of the same owner.
///
/// Sessions count as state in case 3: else a stranger who says the owner's name would end the
/// sessions of a host that has nothing open.
///
/// # Errors
/// Cases 3 (the other is alive), 7, 8 and 9.
pub(crate) fn judge(is_update: bool, confirmed: Option<Confirmed>) -> Result<Case, StateError> {
    let Some(Confirmed { has_same_verifier, has_same_principal, is_in_use }) = confirmed else {
        // An unconfirmed record makes no difference.
        return if is_update { Err(StateError::NoEntry) } else { Ok(Case::New) };
    };
    match (is_update, has_same_verifier, has_same_principal, is_in_use) {
        // Update, verifier, principal, in use.
        (false, true, true, _) => Ok(Case::Again),
        (false, false, true, _) => Ok(Case::Restart),
        (false, _, false, true) => Err(StateError::ClientInUse),
        (false, _, false, false) => Ok(Case::Instead),
        (true, true, true, _) => Ok(Case::Update),
        (true, false, _, _) => Err(StateError::NotSame),
        (true, true, false, _) => Err(StateError::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use super::{Case, Confirmed, judge};
    use crate::StateError;

    #[test]
    fn the_table_of_exchange_id() {
        let confirmed = |has_same_verifier, has_same_principal, is_in_use| {
            Some(Confirmed { has_same_verifier, has_same_principal, is_in_use })
        };
        let rows = [
            (false, None, Ok(Case::New)),
            (false, confirmed(true, true, true), Ok(Case::Again)),
            (false, confirmed(true, true, false), Ok(Case::Again)),
            (false, confirmed(false, true, true), Ok(Case::Restart)),
            (false, confirmed(false, true, false), Ok(Case::Restart)),
            (false, confirmed(true, false, true), Err(StateError::ClientInUse)),
            (false, confirmed(false, false, true), Err(StateError::ClientInUse)),
            (false, confirmed(true, false, false), Ok(Case::Instead)),
            (false, confirmed(false, false, false), Ok(Case::Instead)),
            (true, None, Err(StateError::NoEntry)),
            (true, confirmed(true, true, true), Ok(Case::Update)),
            (true, confirmed(true, true, false), Ok(Case::Update)),
            (true, confirmed(false, true, true), Err(StateError::NotSame)),
            (true, confirmed(false, false, false), Err(StateError::NotSame)),
            (true, confirmed(true, false, true), Err(StateError::NotPermitted)),
            (true, confirmed(true, false, false), Err(StateError::NotPermitted)),
        ];
        for (is_update, confirmed, expected) in rows {
            assert_eq!(judge(is_update, confirmed), expected, "{is_update} {confirmed:?}");
        }
    }
}
