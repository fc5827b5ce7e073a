//! COMPOUNDs, put together operation by operation.

use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Access4Args, Bitmap4, GetAttr4Args, Lookup4Args, Op4, PutFh4Args, Read4Args, Sequence4Args,
    StateId4,
};
use steadfast_xdr::{Encode, Writer};

use crate::object::FileHandle;

/// Minor version 1.
pub(super) const MINOR_VERSION: u32 = 1;

/// The arguments of procedure COMPOUND. Operations follow each other as they are appended; nothing
/// is checked, so that tests can make what a server must refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound {
    tag: Vec<u8>,
    minor_version: u32,
    count: u32,
    announced: Option<u32>,
    operations: Vec<u8>,
}

impl Default for Compound {
    fn default() -> Self {
        Self::new()
    }
}

impl Compound {
    /// No operations, no tag, minor version 1.
    pub fn new() -> Self {
        Self {
            tag: Vec::new(),
            minor_version: MINOR_VERSION,
            count: 0,
            announced: None,
            operations: Vec::new(),
        }
    }

    /// With a tag, which the reply must have too.
    #[must_use]
    pub fn tagged(mut self, tag: &[u8]) -> Self {
        self.tag = tag.to_vec();
        self
    }

    /// Of another minor version.
    #[must_use]
    pub fn of_minor_version(mut self, minor_version: u32) -> Self {
        self.minor_version = minor_version;
        self
    }

    /// Says that it has so many operations, whatever follows.
    #[must_use]
    pub fn announcing(mut self, operations: u32) -> Self {
        self.announced = Some(operations);
        self
    }

    /// Appends an operation.
    #[must_use]
    pub fn op(self, op: Op4, arguments: &impl Encode) -> Self {
        self.push(op as u32, |w| arguments.encode(w))
    }

    /// Appends an operation without arguments.
    #[must_use]
    pub fn plain(self, op: Op4) -> Self {
        self.push(op as u32, |_| {})
    }

    /// Appends an operation of any number, with these bytes as its arguments: no padding is added.
    #[must_use]
    pub fn raw(mut self, number: u32, arguments: &[u8]) -> Self {
        self = self.push(number, |_| {});
        self.operations.extend_from_slice(arguments);
        self
    }

    fn push(mut self, number: u32, arguments: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut w = Writer::new(&mut self.operations);
        w.u32(number);
        arguments(&mut w);
        self.count += 1;
        self
    }

    /// SEQUENCE.
    #[must_use]
    pub fn sequence(self, arguments: &Sequence4Args) -> Self {
        self.op(Op4::Sequence, arguments)
    }

    /// PUTROOTFH.
    #[must_use]
    pub fn put_root(self) -> Self {
        self.plain(Op4::PutRootFh)
    }

    /// PUTFH.
    #[must_use]
    pub fn put(self, object: &FileHandle) -> Self {
        self.op(Op4::PutFh, &PutFh4Args { object: object.as_bytes() })
    }

    /// LOOKUP.
    #[must_use]
    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(Op4::Lookup, &Lookup4Args { objname: name })
    }

    /// GETFH.
    #[must_use]
    pub fn handle(self) -> Self {
        self.plain(Op4::GetFh)
    }

    /// GETATTR.
    #[must_use]
    pub fn attributes(self, wanted: Bitmap4) -> Self {
        self.op(Op4::GetAttr, &GetAttr4Args { attr_request: wanted })
    }

    /// ACCESS.
    #[must_use]
    pub fn access(self, rights: u32) -> Self {
        self.op(Op4::Access, &Access4Args { access: rights })
    }

    /// READ.
    #[must_use]
    pub fn read(self, stateid: StateId4, offset: u64, count: u32) -> Self {
        self.op(Op4::Read, &Read4Args { stateid, offset, count })
    }

    /// WRITE up to its data, which follows these arguments on the wire, padded: for who does not copy it.
    #[must_use]
    pub fn write_head(
        self,
        stateid: StateId4,
        offset: u64,
        stable: StableHow,
        data_bytes: u32,
    ) -> Self {
        self.push(Op4::Write as u32, |w| {
            stateid.encode(w);
            w.u64(offset);
            stable.encode(w);
            w.u32(data_bytes);
        })
    }

    /// How many operations it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The operations as they go on the wire.
    pub fn operations(&self) -> &[u8] {
        &self.operations
    }

    /// Bytes of the arguments so far: where the next operation's number will be.
    pub fn len_bytes(&self) -> usize {
        let head = 4 + self.tag.len().next_multiple_of(4) + 4 + 4;
        head + self.operations.len()
    }

    /// The arguments as they go on the wire.
    pub fn arguments(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len_bytes());
        let mut w = Writer::new(&mut bytes);
        w.opaque(&self.tag);
        w.u32(self.minor_version);
        w.u32(self.announced.unwrap_or(self.count));
        bytes.extend_from_slice(&self.operations);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8881 §16.2.1, §18.46.1, §18.21.1, §18.7.1, by hand.
    #[test]
    fn a_compound_is_encoded_as_rfc_8881_says() {
        let sequence = Sequence4Args {
            sessionid: *b"0123456789abcdef",
            sequenceid: 3,
            slotid: 1,
            highest_slotid: 2,
            cachethis: true,
        };
        let wanted = Bitmap4::from_words([0x0000_001a, 0x0000_0002, 0]);
        let compound =
            Compound::new().tagged(b"tag").sequence(&sequence).put_root().attributes(wanted);
        let expected = b"\0\0\0\x03tag\0\0\0\0\x01\0\0\0\x03\
            \0\0\0\x350123456789abcdef\0\0\0\x03\0\0\0\x01\0\0\0\x02\0\0\0\x01\
            \0\0\0\x18\
            \0\0\0\x09\0\0\0\x02\0\0\0\x1a\0\0\0\x02";
        assert_eq!(compound.arguments(), expected);
        assert_eq!(compound.len_bytes(), expected.len());
    }

    #[test]
    fn what_a_server_must_refuse_can_be_made() {
        let compound = Compound::new().of_minor_version(9).raw(77, b"abc").announcing(5);
        let expected = b"\0\0\0\0\0\0\0\x09\0\0\0\x05\0\0\0\x4dabc";
        assert_eq!(compound.arguments(), expected);
    }
}
