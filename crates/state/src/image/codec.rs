//! How numbers and bytes are written into events: little endian, bytes behind their count.

use std::net::{IpAddr, Ipv6Addr};

use steadfast_vfs::StorageHandle;
use thiserror::Error;

use crate::channel::{BackChannelImage, CallbackTarget};
use crate::ids::OpenNumber;
use crate::ranges::{LockKind, Span};
use crate::set_client::SetClientRecord;
use crate::share::Share;
use crate::{
    Callback, Channel, ClientId, CreatedSession, FileKey, OwnerReply, OwnerRequest, SessionId,
    ShareAccess, ShareDeny,
};

/// Bytes that are no events of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these are no events of this version of the state")]
pub struct ImageError;

/// Appends to the bytes of an event.
pub(super) struct Put<'a>(pub(super) &'a mut Vec<u8>);

impl Put<'_> {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.array(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }

    pub(super) fn array<const N: usize>(&mut self, value: [u8; N]) {
        self.0.extend_from_slice(&value);
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        // Nothing that clients may leave here is so long: owners, principals, kept replies.
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
    }

    pub(super) fn address(&mut self, address: IpAddr) {
        let is_v4 = address.is_ipv4();
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.bool(is_v4);
        self.array(address.octets());
    }

    pub(super) fn file(&mut self, file: &FileKey) {
        self.u64(file.file_system);
        self.bytes(file.object.as_bytes());
    }

    pub(super) fn share(&mut self, share: Share) {
        self.u8(share.access.bits());
        self.u8(share.deny.bits());
    }

    pub(super) fn span(&mut self, span: Span) {
        self.u64(span.start);
        self.u64(span.end);
    }

    pub(super) fn kind(&mut self, kind: LockKind) {
        self.bool(kind == LockKind::Write);
    }

    pub(super) fn channel(&mut self, channel: &Channel) {
        self.u32(channel.request_bytes_max);
        self.u32(channel.response_bytes_max);
        self.u32(channel.response_bytes_cached_max);
        self.u32(channel.operations_max);
        self.u32(channel.requests_max);
    }

    pub(super) fn back_channel(&mut self, channel: &BackChannelImage) {
        self.bool(channel.target.is_some());
        if let Some(CallbackTarget { minor_version, program, credential }) = &channel.target {
            self.u32(*minor_version);
            self.u32(*program);
            self.bytes(credential);
        }
        self.bool(channel.is_wanted);
        // No channel has more than a few slots.
        self.u8(u8::try_from(channel.sequences.len()).unwrap_or(u8::MAX));
        for sequence in &channel.sequences {
            self.u32(*sequence);
        }
    }

    pub(super) fn callback(&mut self, callback: &Callback) {
        self.u32(callback.program);
        self.bytes(&callback.netid);
        self.bytes(&callback.address);
        self.u32(callback.ident);
    }

    pub(super) fn set(&mut self, set: Option<&SetClientRecord>) {
        self.bool(set.is_some());
        if let Some(SetClientRecord { confirm, callback, update }) = set {
            self.array(*confirm);
            self.callback(callback);
            self.bool(update.is_some());
            if let Some((confirm, callback)) = update {
                self.array(*confirm);
                self.callback(callback);
            }
        }
    }

    pub(super) fn number(&mut self, number: Option<OpenNumber>) {
        // No number is 0: each has its kind.
        self.u64(number.map_or(0, |number| number.0));
    }

    pub(super) fn last(&mut self, last: Option<&(OwnerRequest, OwnerReply)>) {
        self.bool(last.is_some());
        if let Some((request, reply)) = last {
            self.u32(request.seqid);
            self.u32(request.operation);
            self.u64(request.digest);
            self.u32(reply.status);
            self.bytes(&reply.result);
            self.bool(reply.object.is_some());
            if let Some((share, handle)) = &reply.object {
                self.u64(*share);
                self.bytes(handle.as_bytes());
            }
        }
    }

    pub(super) fn created(&mut self, created: Option<&CreatedSession>) {
        self.bool(created.is_some());
        if let Some(created) = created {
            self.array(created.session.0);
            self.u32(created.sequence);
            self.u32(created.flags);
            self.channel(&created.fore);
            self.channel(&created.back);
        }
    }
}

/// Reads what [`Put`] wrote.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    fn slice(&mut self, count: usize) -> Result<&'a [u8], ImageError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ImageError)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        self.slice(N)?.try_into().map_err(|_| ImageError)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ImageError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, ImageError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ImageError),
        }
    }

    pub(super) fn u16(&mut self) -> Result<u16, ImageError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ImageError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], ImageError> {
        let count = usize::try_from(self.u32()?).map_err(|_| ImageError)?;
        self.slice(count)
    }

    pub(super) fn client(&mut self) -> Result<ClientId, ImageError> {
        let id = ClientId(self.u64()?);
        // The last index is nobody's.
        if id.index() == u16::MAX { Err(ImageError) } else { Ok(id) }
    }

    pub(super) fn address(&mut self) -> Result<IpAddr, ImageError> {
        let is_v4 = self.bool()?;
        let address = Ipv6Addr::from(self.array::<16>()?);
        if !is_v4 {
            return Ok(IpAddr::V6(address));
        }
        address.to_ipv4_mapped().map(IpAddr::V4).ok_or(ImageError)
    }

    pub(super) fn file(&mut self) -> Result<FileKey, ImageError> {
        let file_system = self.u64()?;
        let object = StorageHandle::new(self.bytes()?).ok_or(ImageError)?;
        Ok(FileKey { file_system, object })
    }

    pub(super) fn share(&mut self) -> Result<Share, ImageError> {
        let access = ShareAccess::from_bits(self.u8()?).ok_or(ImageError)?;
        let deny = ShareDeny::from_bits(self.u8()?).ok_or(ImageError)?;
        Ok(Share { access, deny })
    }

    pub(super) fn span(&mut self) -> Result<Span, ImageError> {
        let (start, end) = (self.u64()?, self.u64()?);
        if start > end { Err(ImageError) } else { Ok(Span { start, end }) }
    }

    pub(super) fn kind(&mut self) -> Result<LockKind, ImageError> {
        Ok(if self.bool()? { LockKind::Write } else { LockKind::Read })
    }

    pub(super) fn channel(&mut self) -> Result<Channel, ImageError> {
        Ok(Channel {
            request_bytes_max: self.u32()?,
            response_bytes_max: self.u32()?,
            response_bytes_cached_max: self.u32()?,
            operations_max: self.u32()?,
            requests_max: self.u32()?,
        })
    }

    pub(super) fn back_channel(&mut self) -> Result<BackChannelImage, ImageError> {
        let target = if self.bool()? {
            let (minor_version, program) = (self.u32()?, self.u32()?);
            Some(CallbackTarget { minor_version, program, credential: self.bytes()?.into() })
        } else {
            None
        };
        let (is_wanted, count) = (self.bool()?, self.u8()?);
        let sequences = (0..count).map(|_| self.u32()).collect::<Result<_, _>>()?;
        Ok(BackChannelImage { target, is_wanted, sequences })
    }

    pub(super) fn callback(&mut self) -> Result<Callback, ImageError> {
        Ok(Callback {
            program: self.u32()?,
            netid: self.bytes()?.into(),
            address: self.bytes()?.into(),
            ident: self.u32()?,
        })
    }

    pub(super) fn set(&mut self) -> Result<Option<SetClientRecord>, ImageError> {
        if !self.bool()? {
            return Ok(None);
        }
        let (confirm, callback) = (self.array()?, self.callback()?);
        let update = if self.bool()? { Some((self.array()?, self.callback()?)) } else { None };
        Ok(Some(SetClientRecord { confirm, callback, update }))
    }

    pub(super) fn number(&mut self) -> Result<Option<OpenNumber>, ImageError> {
        Ok(Some(self.u64()?).filter(|number| *number != 0).map(OpenNumber))
    }

    pub(super) fn last(&mut self) -> Result<Option<(OwnerRequest, OwnerReply)>, ImageError> {
        if !self.bool()? {
            return Ok(None);
        }
        let (seqid, operation, digest) = (self.u32()?, self.u32()?, self.u64()?);
        let (status, result) = (self.u32()?, self.bytes()?.into());
        let object = if self.bool()? {
            Some((self.u64()?, StorageHandle::new(self.bytes()?).ok_or(ImageError)?))
        } else {
            None
        };
        let reply = OwnerReply { status, result, object };
        let earlier_digest = None;
        Ok(Some((OwnerRequest { seqid, operation, digest, earlier_digest }, reply)))
    }

    pub(super) fn created(&mut self) -> Result<Option<CreatedSession>, ImageError> {
        if !self.bool()? {
            return Ok(None);
        }
        Ok(Some(CreatedSession {
            session: SessionId(self.array()?),
            sequence: self.u32()?,
            flags: self.u32()?,
            fore: self.channel()?,
            back: self.channel()?,
        }))
    }
}
