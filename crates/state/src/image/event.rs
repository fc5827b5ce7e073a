//! Events: how something of the state is from now on.

use std::borrow::Cow;
use std::net::IpAddr;

use super::codec::{ImageError, Put, Take};
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

impl<'a> Event<'a> {
    /// Appends the event to those in `bytes`.
    pub(crate) fn append(&self, bytes: &mut Vec<u8>) {
        let mut put = Put(bytes);
        match self {
            Self::Client(client) => {
                put.u8(1);
                put.u64(client.id.0);
                put.bytes(client.owner);
                put.array(client.verifier);
                put.bytes(client.principal);
                put.bytes(client.implementation);
                put.address(client.address);
                put.bool(client.is_confirmed);
                put.u32(client.sequence);
                put.created(client.created.as_ref());
                put.set(client.set.as_deref());
            }
            Self::Host { id, name, address, state } => {
                put.u8(16);
                put.u64(id.0);
                put.bytes(name);
                put.address(*address);
                put.u32(*state);
            }
            Self::ClientGone(client) => {
                put.u8(2);
                put.u64(client.0);
            }
            Self::ReclaimComplete(client) => {
                put.u8(3);
                put.u64(client.0);
            }
            Self::Session { id, client, fore, back } => {
                put.u8(4);
                put.array(id.0);
                put.u64(client.0);
                put.channel(fore);
                put.channel(back);
            }
            Self::SessionGone(id) => {
                put.u8(5);
                put.array(id.0);
            }
            Self::Slot { session, slot, sequence, digest, reply } => {
                put.u8(6);
                put.array(session.0);
                put.u32(*slot);
                put.u32(*sequence);
                put.u32(*digest);
                put.bool(reply.is_some());
                put.bytes(reply.unwrap_or(&[]));
            }
            Self::BackChannel { session, channel } => {
                put.u8(24);
                put.array(session.0);
                put.back_channel(channel);
            }
            Self::UnderWay { session, slot, sequence, digest, is_unstable, done } => {
                put.u8(64);
                put.array(session.0);
                put.u32(*slot);
                put.u32(*sequence);
                put.u32(*digest);
                put.bool(*is_unstable);
                put.bytes(done);
            }
            Self::OpensAnew(client) => {
                put.u8(7);
                put.u64(client.0);
            }
            Self::Open { client, number, owner, file, seqid, share, asked } => {
                put.u8(8);
                put.u64(client.0);
                put.u64(number.0);
                put.bytes(owner);
                put.file(file);
                put.u32(*seqid);
                put.share(*share);
                put.u16(*asked);
            }
            Self::OpenGone { client, number } => {
                put.u8(9);
                put.u64(client.0);
                put.u64(number.0);
            }
            Self::Lock { client, number, open, owner, seqid } => {
                put.u8(10);
                put.u64(client.0);
                put.u64(number.0);
                put.u64(open.0);
                put.bytes(owner);
                put.u32(*seqid);
            }
            Self::LockGone { client, number } => {
                put.u8(11);
                put.u64(client.0);
                put.u64(number.0);
            }
            Self::Delegation { client, number, file, kind, handle, is_recalled, is_revoked } => {
                put.u8(32);
                put.u64(client.0);
                put.u64(number.0);
                put.file(file);
                put.bool(*kind == DelegationKind::Write);
                put.bytes(handle);
                put.bool(*is_recalled);
                put.bool(*is_revoked);
            }
            Self::DelegationRecalled { client, number } => {
                put.u8(33);
                put.u64(client.0);
                put.u64(number.0);
            }
            Self::DelegationRevoked { client, number } => {
                put.u8(34);
                put.u64(client.0);
                put.u64(number.0);
            }
            Self::DelegationGone { client, number } => {
                put.u8(35);
                put.u64(client.0);
                put.u64(number.0);
            }
            Self::Range { client, open, owner, span, kind } => {
                put.u8(12);
                put.u64(client.0);
                put.u64(open.0);
                put.bytes(owner);
                put.span(*span);
                put.kind(*kind);
            }
            Self::RangeGone { client, owner, file, span } => {
                put.u8(13);
                put.u64(client.0);
                put.bytes(owner);
                put.file(file);
                put.span(*span);
            }
            Self::Owner { client, name, owner } => {
                let OwnerImage { is_lock, seqid, last, is_confirmed, unconfirmed, closed } =
                    owner.as_ref();
                put.u8(15);
                put.u64(client.0);
                put.bytes(name);
                put.bool(*is_lock);
                put.u32(*seqid);
                put.last(last.as_ref());
                put.bool(*is_confirmed);
                put.number(*unconfirmed);
                put.number(*closed);
            }
            Self::Serials { state, session, record } => {
                put.u8(14);
                put.u64(*state);
                put.u64(*session);
                put.u64(*record);
            }
        }
    }

    /// Takes the first event from `bytes`.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Result<Self, ImageError> {
        let mut take = Take(bytes);
        let event = Self::read(&mut take)?;
        *bytes = take.0;
        Ok(event)
    }

    fn read(take: &mut Take<'a>) -> Result<Self, ImageError> {
        Ok(match take.u8()? {
            1 => Self::Client(ClientEvent {
                id: take.client()?,
                owner: take.bytes()?,
                verifier: take.array()?,
                principal: take.bytes()?,
                implementation: take.bytes()?,
                address: take.address()?,
                is_confirmed: take.bool()?,
                sequence: take.u32()?,
                created: take.created()?,
                set: take.set()?.map(Cow::Owned),
            }),
            2 => Self::ClientGone(take.client()?),
            3 => Self::ReclaimComplete(take.client()?),
            4 => Self::Session {
                id: SessionId(take.array()?),
                client: take.client()?,
                fore: take.channel()?,
                back: take.channel()?,
            },
            5 => Self::SessionGone(SessionId(take.array()?)),
            6 => {
                let session = SessionId(take.array()?);
                let (slot, sequence, digest) = (take.u32()?, take.u32()?, take.u32()?);
                let has_reply = take.bool()?;
                let reply = Some(take.bytes()?).filter(|_| has_reply);
                Self::Slot { session, slot, sequence, digest, reply }
            }
            24 => Self::BackChannel {
                session: SessionId(take.array()?),
                channel: take.back_channel()?,
            },
            64 => Self::UnderWay {
                session: SessionId(take.array()?),
                slot: take.u32()?,
                sequence: take.u32()?,
                digest: take.u32()?,
                is_unstable: take.bool()?,
                done: take.bytes()?,
            },
            7 => Self::OpensAnew(take.client()?),
            8 => Self::Open {
                client: take.client()?,
                number: OpenNumber(take.u64()?),
                owner: take.bytes()?,
                file: take.file()?,
                seqid: take.u32()?,
                share: take.share()?,
                asked: take.u16()?,
            },
            9 => Self::OpenGone { client: take.client()?, number: OpenNumber(take.u64()?) },
            10 => Self::Lock {
                client: take.client()?,
                number: LockNumber(take.u64()?),
                open: OpenNumber(take.u64()?),
                owner: take.bytes()?,
                seqid: take.u32()?,
            },
            11 => Self::LockGone { client: take.client()?, number: LockNumber(take.u64()?) },
            32 => Self::Delegation {
                client: take.client()?,
                number: DelegationNumber(take.u64()?),
                file: take.file()?,
                kind: if take.bool()? { DelegationKind::Write } else { DelegationKind::Read },
                handle: take.bytes()?,
                is_recalled: take.bool()?,
                is_revoked: take.bool()?,
            },
            33 => Self::DelegationRecalled {
                client: take.client()?,
                number: DelegationNumber(take.u64()?),
            },
            34 => Self::DelegationRevoked {
                client: take.client()?,
                number: DelegationNumber(take.u64()?),
            },
            35 => Self::DelegationGone {
                client: take.client()?,
                number: DelegationNumber(take.u64()?),
            },
            12 => Self::Range {
                client: take.client()?,
                open: OpenNumber(take.u64()?),
                owner: take.bytes()?,
                span: take.span()?,
                kind: take.kind()?,
            },
            13 => Self::RangeGone {
                client: take.client()?,
                owner: take.bytes()?,
                file: take.file()?,
                span: take.span()?,
            },
            15 => Self::Owner {
                client: take.client()?,
                name: take.bytes()?,
                owner: Cow::Owned(OwnerImage {
                    is_lock: take.bool()?,
                    seqid: take.u32()?,
                    last: take.last()?,
                    is_confirmed: take.bool()?,
                    unconfirmed: take.number()?,
                    closed: take.number()?,
                }),
            },
            16 => Self::Host {
                id: take.client()?,
                name: take.bytes()?,
                address: take.address()?,
                state: take.u32()?,
            },
            14 => Self::Serials { state: take.u64()?, session: take.u64()?, record: take.u64()? },
            _ => return Err(ImageError),
        })
    }
}
