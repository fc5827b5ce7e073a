//! Events: how something of the state is from now on.

use std::borrow::Cow;
use std::net::IpAddr;

use super::codec::{ImageError, Put, Take};
use super::field::{Field, record};
use crate::channel::BackChannelImage;
use crate::ids::{DelegationNumber, LockNumber, OpenNumber};
use crate::owner_sequence::OwnerImage;
use crate::ranges::{LockKind, Span};
use crate::set_client::SetClientRecord;
use crate::share::Share;
use crate::{Channel, ClientId, CreatedSession, DelegationKind, FileKey, SessionId};

/// Something of the state is so from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A client's record.
    Client(ClientEvent<'a>),
    /// A host that speaks NLM. Its state number is 0 if it never said it.
    Host {
        id: ClientId,
        name: &'a [u8],
        address: IpAddr,
        state: u32,
    },
    /// A client or host is gone, with all that it had.
    ClientGone(ClientId),
    /// `RECLAIM_COMPLETE` was sent.
    ReclaimComplete(ClientId),
    /// A session. Of its slots nothing is told by this.
    Session {
        id: SessionId,
        client: ClientId,
        fore: Channel,
        back: Channel,
    },
    SessionGone(SessionId),
    /// The last request of a slot whose reply is kept, or which must not be executed again.
    Slot {
        session: SessionId,
        slot: u32,
        sequence: u32,
        digest: u32,
        reply: Option<&'a [u8]>,
    },
    /// Where the callbacks of a session go, and how far its slots for them are.
    BackChannel {
        session: SessionId,
        channel: BackChannelImage,
    },
    /// What the request of a slot has done so far, which is under way.
    UnderWay {
        session: SessionId,
        slot: u32,
        sequence: u32,
        digest: u32,
        is_unstable: bool,
        done: &'a [u8],
    },
    /// A client has no opens, locks and delegations but those that are told from here on.
    OpensAnew(ClientId),
    Open {
        client: ClientId,
        number: OpenNumber,
        owner: &'a [u8],
        file: FileKey,
        seqid: u32,
        share: Share,
        /// As [`crate::share::AskedShares`] has them.
        asked: u16,
    },
    /// An open is gone, with what was locked by it.
    OpenGone {
        client: ClientId,
        number: OpenNumber,
    },
    /// A lock stateid.
    Lock {
        client: ClientId,
        number: LockNumber,
        open: OpenNumber,
        owner: &'a [u8],
        seqid: u32,
    },
    LockGone {
        client: ClientId,
        number: LockNumber,
    },
    /// A delegation.
    Delegation {
        client: ClientId,
        number: DelegationNumber,
        file: FileKey,
        kind: DelegationKind,
        handle: &'a [u8],
        is_recalled: bool,
        is_revoked: bool,
    },
    DelegationRecalled {
        client: ClientId,
        number: DelegationNumber,
    },
    DelegationRevoked {
        client: ClientId,
        number: DelegationNumber,
    },
    DelegationGone {
        client: ClientId,
        number: DelegationNumber,
    },
    /// An owner has this range, which is locked by this open, and nothing else of it.
    Range {
        client: ClientId,
        open: OpenNumber,
        owner: &'a [u8],
        span: Span,
        kind: LockKind,
    },
    /// An owner has nothing of this range.
    RangeGone {
        client: ClientId,
        owner: &'a [u8],
        file: FileKey,
        span: Span,
    },
    /// Where an owner of minor version 0 is in its sequence.
    Owner {
        client: ClientId,
        name: &'a [u8],
        owner: Cow<'a, OwnerImage>,
    },
    /// The serial numbers of the next open, lock stateid or delegation, and of the next session, are not below
    /// these; nor is the number of the next client's record.
    Serials {
        state: u64,
        session: u64,
        record: u64,
    },
}

/// A client's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientEvent<'a> {
    pub(crate) id: ClientId,
    pub(crate) owner: &'a [u8],
    pub(crate) verifier: [u8; 8],
    pub(crate) principal: &'a [u8],
    pub(crate) implementation: &'a [u8],
    pub(crate) address: IpAddr,
    pub(crate) is_confirmed: bool,
    pub(crate) sequence: u32,
    pub(crate) created: Option<CreatedSession>,
    /// As [`std::borrow::Cow`] it is a copy when it was read.
    pub(crate) set: Option<Cow<'a, SetClientRecord>>,
}

/// The encoding of each event: its number, then its fields in the order that they have here.
macro_rules! encoding {
    ($($number:literal => $event:ident $(($value:ident))? $({ $($field:ident),* })?,)*) => {
        impl<'a> Event<'a> {
            /// Appends the event to those in `bytes`.
            pub(crate) fn append(&self, bytes: &mut Vec<u8>) {
                let put = &mut Put(bytes);
                match self {
                    $(Self::$event $(($value))? $({ $($field),* })? => {
                        put.u8($number);
                        $($value.put(put);)?
                        $($($field.put(put);)*)?
                    })*
                }
            }

            fn read(take: &mut Take<'a>) -> Result<Self, ImageError> {
                match take.u8()? {
                    $($number => {
                        $(let $value = Field::take(take)?;)?
                        $($(let $field = Field::take(take)?;)*)?
                        Ok(Self::$event $(($value))? $({ $($field),* })?)
                    })*
                    _ => Err(ImageError),
                }
            }
        }
    };
}

// Events of earlier versions are read, too: a number is never given to another event.
encoding! {
    1 => Client(client),
    2 => ClientGone(client),
    3 => ReclaimComplete(client),
    4 => Session { id, client, fore, back },
    5 => SessionGone(id),
    6 => Slot { session, slot, sequence, digest, reply },
    7 => OpensAnew(client),
    8 => Open { client, number, owner, file, seqid, share, asked },
    9 => OpenGone { client, number },
    10 => Lock { client, number, open, owner, seqid },
    11 => LockGone { client, number },
    12 => Range { client, open, owner, span, kind },
    13 => RangeGone { client, owner, file, span },
    14 => Serials { state, session, record },
    15 => Owner { client, name, owner },
    16 => Host { id, name, address, state },
    24 => BackChannel { session, channel },
    32 => Delegation { client, number, file, kind, handle, is_recalled, is_revoked },
    33 => DelegationRecalled { client, number },
    34 => DelegationRevoked { client, number },
    35 => DelegationGone { client, number },
    64 => UnderWay { session, slot, sequence, digest, is_unstable, done },
}

record! {
    ClientEvent<'a> {
        id, owner, verifier, principal, implementation, address, is_confirmed, sequence, created, set
    }
}

impl<'a> Event<'a> {
    /// Takes the first event from `bytes`.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Result<Self, ImageError> {
        let mut take = Take(bytes);
        let event = Self::read(&mut take)?;
        *bytes = take.0;
        Ok(event)
    }
}
