//! How each kind of field of an event is written and read.

use std::borrow::Cow;
use std::net::IpAddr;

use super::codec::{ImageError, Put, Take};
use crate::channel::BackChannelImage;
use crate::ids::{DelegationNumber, LockNumber, OpenNumber};
use crate::owner_sequence::OwnerImage;
use crate::ranges::{LockKind, Span};
use crate::set_client::SetClientRecord;
use crate::share::Share;
use crate::{
    Channel, ClientId, CreatedSession, DelegationKind, FileKey, OwnerReply, OwnerRequest, SessionId,
};

/// A field of an event: what one of these functions writes, the other reads.
pub(super) trait Field<'a>: Sized {
    /// Appends it.
    fn put(&self, put: &mut Put<'_>);
    /// Takes it from the beginning.
    fn take(take: &mut Take<'a>) -> Result<Self, ImageError>;
}

/// A structure is its fields, in the order that they have here.
macro_rules! record {
    ($name:ident $(<$life:lifetime>)? { $($field:ident),* $(,)? }) => {
        impl<'a> Field<'a> for $name $(<$life>)? {
            #[inline]
            fn put(&self, put: &mut Put<'_>) {
                let Self { $($field),* } = self;
                $($field.put(put);)*
            }

            #[inline]
            fn take(take: &mut Take<'a>) -> Result<Self, ImageError> {
                $(let $field = Field::take(take)?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(super) use record;

/// Values that the codec has functions for.
macro_rules! values {
    ($($type:ty: |$put:ident, $value:ident| $written:expr, |$take:ident| $read:expr;)*) => {
        $(impl<'a> Field<'a> for $type {
            #[inline]
            fn put(&self, $put: &mut Put<'_>) {
                let $value = self;
                $written;
            }

            #[inline]
            fn take($take: &mut Take<'a>) -> Result<Self, ImageError> {
                $read
            }
        })*
    };
}

values! {
    bool: |put, it| put.bool(*it), |take| take.bool();
    u16: |put, it| put.u16(*it), |take| take.u16();
    u32: |put, it| put.u32(*it), |take| take.u32();
    u64: |put, it| put.u64(*it), |take| take.u64();
    [u8; 8]: |put, it| put.array(*it), |take| take.array();
    &'a [u8]: |put, it| put.bytes(it), |take| take.bytes();
    IpAddr: |put, it| put.address(*it), |take| take.address();
    ClientId: |put, it| put.u64(it.0), |take| take.client();
    SessionId: |put, it| put.array(it.0), |take| take.array().map(SessionId);
    OpenNumber: |put, it| put.u64(it.0), |take| take.u64().map(OpenNumber);
    LockNumber: |put, it| put.u64(it.0), |take| take.u64().map(LockNumber);
    DelegationNumber: |put, it| put.u64(it.0), |take| take.u64().map(DelegationNumber);
    FileKey: |put, it| put.file(it), |take| take.file();
    Share: |put, it| put.share(*it), |take| take.share();
    Span: |put, it| put.span(*it), |take| take.span();
    LockKind: |put, it| put.kind(*it), |take| take.kind();
    Channel: |put, it| put.channel(it), |take| take.channel();
    BackChannelImage: |put, it| put.back_channel(it), |take| take.back_channel();
    Option<CreatedSession>: |put, it| put.created(it.as_ref()), |take| take.created();
    Option<Cow<'a, SetClientRecord>>:
        |put, it| put.set(it.as_deref()), |take| Ok(take.set()?.map(Cow::Owned));
    Option<(OwnerRequest, OwnerReply)>: |put, it| put.last(it.as_ref()), |take| take.last();
    Option<OpenNumber>: |put, it| put.number(*it), |take| take.number();
    Cow<'a, OwnerImage>:
        |put, it| it.as_ref().put(put), |take| OwnerImage::take(take).map(Cow::Owned);
}

record! { OwnerImage { is_lock, seqid, last, is_confirmed, unconfirmed, closed } }

impl Field<'_> for DelegationKind {
    #[inline]
    fn put(&self, put: &mut Put<'_>) {
        put.bool(*self == Self::Write);
    }

    #[inline]
    fn take(take: &mut Take<'_>) -> Result<Self, ImageError> {
        Ok(if take.bool()? { Self::Write } else { Self::Read })
    }
}

/// What is not there has bytes, too: none.
impl<'a> Field<'a> for Option<&'a [u8]> {
    #[inline]
    fn put(&self, put: &mut Put<'_>) {
        put.bool(self.is_some());
        put.bytes(self.unwrap_or(&[]));
    }

    #[inline]
    fn take(take: &mut Take<'a>) -> Result<Self, ImageError> {
        let is_there = take.bool()?;
        let bytes = take.bytes()?;
        Ok(is_there.then_some(bytes))
    }
}
