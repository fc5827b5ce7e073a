//! COMPOUNDs as they are sent, and their results as they are read.

use steadfast_wire::nfs4::{Lookup4Args, NfsStat4, Op4, PutFh4Args, StateId4};
use steadfast_xdr::{Encode, Reader, Writer};

/// RPC's header of a reply, in bytes.
pub(crate) const HEADER_BYTES: usize = 24;

/// A list of operations.
#[derive(Clone, Default)]
pub(crate) struct Ops {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u32,
}

impl Ops {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn op(self, op: Op4, arguments: &impl Encode) -> Self {
        self.raw(op as u32, &xdr(|w| arguments.encode(w)))
    }

    pub(crate) fn bare(self, op: Op4) -> Self {
        self.raw(op as u32, &[])
    }

    pub(crate) fn raw(mut self, number: u32, arguments: &[u8]) -> Self {
        self.bytes.extend_from_slice(&number.to_be_bytes());
        self.bytes.extend_from_slice(arguments);
        self.count += 1;
        self
    }

    pub(crate) fn then(mut self, more: &Self) -> Self {
        self.bytes.extend_from_slice(&more.bytes);
        self.count += more.count;
        self
    }

    /// From the root down these names.
    pub(crate) fn at(names: &[&[u8]]) -> Self {
        let root = Self::new().bare(Op4::PutRootFh);
        names.iter().fold(root, |ops, name| ops.look_up(name))
    }

    pub(crate) fn look_up(self, name: &[u8]) -> Self {
        self.op(Op4::Lookup, &Lookup4Args { objname: name })
    }

    pub(crate) fn put(handle: &[u8]) -> Self {
        Self::new().op(Op4::PutFh, &PutFh4Args { object: handle })
    }
}

/// The result of a COMPOUND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u32,
    pub(crate) tag: Vec<u8>,
    pub(crate) count: u32,
    pub(crate) body: Vec<u8>,
    at: usize,
}

impl Reply {
    pub(crate) fn read(message: &[u8]) -> Self {
        let mut r = Reader::new(&message[HEADER_BYTES..]);
        let status = r.u32().unwrap();
        let tag = r.opaque(1 << 20).unwrap().to_vec();
        let count = r.u32().unwrap();
        let body = r.fixed_opaque(r.remaining()).unwrap().to_vec();
        Self { status, tag, count, body, at: 0 }
    }

    /// Reads what follows.
    pub(crate) fn take<T>(&mut self, read: impl FnOnce(&mut Reader<'_>) -> T) -> T {
        let mut r = Reader::new(&self.body[self.at..]);
        let value = read(&mut r);
        self.at += r.position();
        value
    }

    /// The head of the next operation, which is this one and succeeded.
    pub(crate) fn ok(&mut self, op: Op4) {
        let head = self.take(|r| (r.u32().unwrap(), r.u32().unwrap()));
        assert_eq!(head, (op as u32, 0), "{self:?}");
    }

    /// Number and status of the last operation, which failed.
    pub(crate) fn failure(&self) -> (u32, u32) {
        assert_ne!(self.status, 0, "{self:?}");
        let mut r = Reader::new(&self.body[self.body.len() - 8..]);
        let (op, status) = (r.u32().unwrap(), r.u32().unwrap());
        assert_eq!(status, self.status, "a COMPOUND's status is that of its last operation");
        (op, status)
    }

    #[track_caller]
    pub(crate) fn fails(&self, op: Op4, status: NfsStat4) {
        assert_eq!(self.failure(), (op as u32, status as u32), "{op:?} {status:?}");
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }

    /// The handle that a GETFH at the end told.
    pub(crate) fn handle(&self) -> Vec<u8> {
        let at = (0..self.body.len() - 8).step_by(4).rev().find(|at| {
            let mut r = Reader::new(&self.body[*at..]);
            (r.u32(), r.u32()) == (Ok(Op4::GetFh as u32), Ok(0))
                && r.opaque(128).is_ok()
                && r.is_empty()
        });
        let mut r = Reader::new(&self.body[at.unwrap() + 8..]);
        r.opaque(128).unwrap().to_vec()
    }
}

pub(crate) fn stateid(r: &mut Reader<'_>) -> StateId4 {
    StateId4 { seqid: r.u32().unwrap(), other: r.array().unwrap() }
}

pub(crate) fn xdr(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
