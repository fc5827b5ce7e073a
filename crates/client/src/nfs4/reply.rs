//! Replies of COMPOUND, read operation by operation.

use steadfast_wire::nfs4::{
    Access4Result, BindConnToSession4Result, Bitmap4, ChangeInfo4, CompoundReplyHead4,
    Create4Result, CreateSession4Result, ExchangeId4Result, Fattr4, GetFh4Result, LockDenied4,
    NfsStat4, Op4, Open4Result, Read4Result, ReadLink4Result, Rename4Result, SecInfo4Result,
    Sequence4Result, StateId4, TestStateId4Result, Write4Result,
};
use steadfast_xdr::{Decode, Reader, XdrError};

use super::attributes::Attributes4;
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::operation4::{Denied4, Failure4, operation_name};

/// Name of the procedure, for messages.
const COMPOUND: &str = "COMPOUND";
/// Longest name that this client takes from a server, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry4 {
    /// Where to go on after it.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// What the server told of it.
    pub attributes: Attributes4,
}

/// Result of READDIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing4 {
    /// Goes with the cookies.
    pub verifier: [u8; 8],
    /// The entries; `.` and `..` are never among them.
    pub entries: Vec<Entry4>,
    /// Whether these were the last.
    pub eof: bool,
}

/// The head of a READ's result, without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadHead4 {
    /// Whether the data reaches the end of the file.
    pub eof: bool,
    /// Bytes of the data.
    pub count: u32,
    /// Where in the results the data begins.
    pub data_at: usize,
}

/// The results of a COMPOUND. Each method reads the next operation's result, which must be of that
/// operation; [`CompoundReply::end`] makes sure that there is nothing more.
///
/// A method fails with [`ClientError::Operation`] if its operation did. What contradicts itself is
/// refused: a reply that goes on after a failure, or one whose status is not its last operation's.
#[derive(Clone, Debug)]
pub struct CompoundReply<'a> {
    head: CompoundReplyHead4<'a>,
    r: Reader<'a>,
    /// Results that were read.
    read: u32,
}

type Outcome<T> = Result<T, ClientError>;

fn contradiction<T>(why: &'static str) -> Outcome<T> {
    Err(ClientError::Contradiction { procedure: COMPOUND, why })
}

fn malformed(procedure: &'static str) -> impl Fn(XdrError) -> ClientError {
    move |error| ClientError::Malformed { procedure, error }
}

impl<'a> CompoundReply<'a> {
    /// Reads the head of procedure COMPOUND's results.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse(results: &'a [u8]) -> Outcome<Self> {
        let mut r = Reader::new(results);
        let head = CompoundReplyHead4::decode(&mut r).map_err(malformed(COMPOUND))?;
        Ok(Self { head, r, read: 0 })
    }

    /// The status of the last operation that was executed.
    pub fn status(&self) -> NfsStat4 {
        self.head.status
    }

    /// The tag: that of the call.
    pub fn tag(&self) -> &'a [u8] {
        self.head.tag
    }

    /// How many operations have results.
    pub fn operations(&self) -> u32 {
        self.head.operations
    }

    /// Reads number and status of the next result; `None` after the last. What follows them must be
    /// read with [`CompoundReply::body`], if the operation has a result with this status.
    ///
    /// # Errors
    /// When there is no such result, or its status contradicts that of the COMPOUND.
    pub fn next_op(&mut self) -> Outcome<Option<(Op4, NfsStat4)>> {
        if self.read >= self.head.operations {
            return Ok(None);
        }
        let op = Op4::decode(&mut self.r).map_err(malformed(COMPOUND))?;
        let status = NfsStat4::decode(&mut self.r).map_err(malformed(operation_name(op)))?;
        self.read += 1;
        let is_last = self.read == self.head.operations;
        if is_last && status != self.head.status {
            return contradiction("its status is not that of its last operation");
        }
        if !is_last && status != NfsStat4::Ok {
            return contradiction("it goes on after an operation that failed");
        }
        Ok(Some((op, status)))
    }

    /// Reads what follows number and status of an operation's result.
    ///
    /// # Errors
    /// When it is no such thing.
    pub fn body<T: Decode<'a>>(&mut self, op: Op4) -> Outcome<T> {
        T::decode(&mut self.r).map_err(malformed(operation_name(op)))
    }

    /// Reads an operation's result that has nothing beside its status.
    ///
    /// # Errors
    /// When the operation failed, or the next result is not its.
    pub fn done(&mut self, op: Op4) -> Outcome<()> {
        let position = self.read;
        let Some((found, status)) = self.next_op()? else {
            return match self.head.status {
                NfsStat4::Ok => contradiction("fewer operations than in the call"),
                status => Err(failed(Failure4 { op: None, position, status, denied: None })),
            };
        };
        // An operation whose number the server does not know has this one in its result (§15.2).
        let is_unknown = found == Op4::Illegal && status == NfsStat4::OpIllegal;
        if found != op && !is_unknown {
            return contradiction("the result of another operation than was called");
        }
        if status == NfsStat4::Ok {
            return Ok(());
        }
        let denied = self.beside_failure(found, status)?;
        if !self.r.is_empty() {
            let bytes = self.r.remaining();
            return Err(ClientError::TrailingBytes { procedure: operation_name(op), bytes });
        }
        Err(failed(Failure4 { op: Some(op), position, status, denied }))
    }

    /// What some operations tell in failures.
    fn beside_failure(&mut self, op: Op4, status: NfsStat4) -> Outcome<Option<Denied4>> {
        match (op, status) {
            (Op4::SetAttr, _) => {
                self.body::<Bitmap4>(op)?;
                Ok(None)
            }
            (Op4::Lock | Op4::LockT, NfsStat4::Denied) => {
                let LockDenied4 { offset, length, locktype, owner } = self.body(op)?;
                let (clientid, owner) = (owner.clientid, owner.owner.to_vec());
                Ok(Some(Denied4 { offset, length, kind: locktype, clientid, owner }))
            }
            _ => Ok(None),
        }
    }

    /// Reads an operation's result.
    ///
    /// # Errors
    /// As [`CompoundReply::done`], and when the result is no such thing.
    pub fn result<T: Decode<'a>>(&mut self, op: Op4) -> Outcome<T> {
        self.done(op)?;
        self.body(op)
    }

    /// Makes sure that all results were read, and that the last operation succeeded.
    ///
    /// # Errors
    /// When there are further results or bytes.
    pub fn end(&self) -> Outcome<()> {
        if self.read < self.head.operations {
            return contradiction("more operations than in the call");
        }
        if self.head.operations == 0 && self.head.status != NfsStat4::Ok {
            let status = self.head.status;
            return Err(failed(Failure4 { op: None, position: 0, status, denied: None }));
        }
        match self.r.remaining() {
            0 => Ok(()),
            bytes => Err(ClientError::TrailingBytes { procedure: COMPOUND, bytes }),
        }
    }

    /// SEQUENCE.
    pub fn sequence(&mut self) -> Outcome<Sequence4Result> {
        self.result(Op4::Sequence)
    }

    /// `EXCHANGE_ID`.
    pub fn exchange_id(&mut self) -> Outcome<ExchangeId4Result<'a>> {
        self.result(Op4::ExchangeId)
    }

    /// `CREATE_SESSION`.
    pub fn create_session(&mut self) -> Outcome<CreateSession4Result> {
        self.result(Op4::CreateSession)
    }

    /// `BIND_CONN_TO_SESSION`.
    pub fn bind_conn_to_session(&mut self) -> Outcome<BindConnToSession4Result> {
        self.result(Op4::BindConnToSession)
    }

    /// GETFH.
    pub fn handle(&mut self) -> Outcome<FileHandle> {
        let result: GetFh4Result<'_> = self.result(Op4::GetFh)?;
        Ok(FileHandle(result.object.to_vec()))
    }

    /// GETATTR.
    pub fn attributes(&mut self) -> Outcome<Attributes4> {
        let fattr: Fattr4<'_> = self.result(Op4::GetAttr)?;
        Attributes4::read(&fattr).map_err(malformed("GETATTR"))
    }

    /// ACCESS.
    pub fn access(&mut self) -> Outcome<Access4Result> {
        self.result(Op4::Access)
    }

    /// OPEN.
    pub fn open(&mut self) -> Outcome<Open4Result<'a>> {
        self.result(Op4::Open)
    }

    /// CLOSE, `OPEN_DOWNGRADE`, LOCK or LOCKU: the stateid as it is now.
    pub fn stateid(&mut self, op: Op4) -> Outcome<StateId4> {
        self.result(op)
    }

    /// READ.
    pub fn read(&mut self) -> Outcome<Read4Result<'a>> {
        self.result(Op4::Read)
    }

    /// READ up to its data, for who has no more than the beginning of a reply.
    pub fn read_head(&mut self) -> Outcome<ReadHead4> {
        self.done(Op4::Read)?;
        let (eof, count) = (self.body(Op4::Read)?, self.body(Op4::Read)?);
        Ok(ReadHead4 { eof, count, data_at: self.r.position() })
    }

    /// WRITE.
    pub fn write(&mut self) -> Outcome<Write4Result> {
        self.result(Op4::Write)
    }

    /// COMMIT: the write verifier.
    pub fn commit(&mut self) -> Outcome<[u8; 8]> {
        self.result(Op4::Commit)
    }

    /// CREATE.
    pub fn create(&mut self) -> Outcome<Create4Result> {
        self.result(Op4::Create)
    }

    /// REMOVE or LINK: the directory, before and after.
    pub fn change(&mut self, op: Op4) -> Outcome<ChangeInfo4> {
        self.result(op)
    }

    /// RENAME.
    pub fn rename(&mut self) -> Outcome<Rename4Result> {
        self.result(Op4::Rename)
    }

    /// SETATTR: what was set.
    pub fn set_attributes(&mut self) -> Outcome<Bitmap4> {
        self.result(Op4::SetAttr)
    }

    /// READDIR.
    pub fn listing(&mut self) -> Outcome<Listing4> {
        self.done(Op4::ReadDir)?;
        listing(&mut self.r).map_err(malformed("READDIR"))
    }

    /// READLINK.
    pub fn link(&mut self) -> Outcome<Vec<u8>> {
        let result: ReadLink4Result<'_> = self.result(Op4::ReadLink)?;
        Ok(result.link.to_vec())
    }

    /// SECINFO or `SECINFO_NO_NAME`.
    pub fn security(&mut self, op: Op4) -> Outcome<SecInfo4Result<'a>> {
        self.result(op)
    }

    /// `TEST_STATEID`.
    pub fn test_stateid(&mut self) -> Outcome<TestStateId4Result> {
        self.result(Op4::TestStateId)
    }
}

fn failed(failure: Failure4) -> ClientError {
    ClientError::Operation(Box::new(failure))
}

fn listing(r: &mut Reader<'_>) -> Result<Listing4, XdrError> {
    let verifier = r.array()?;
    let mut entries = Vec::new();
    while r.bool()? {
        let cookie = r.u64()?;
        let name = r.opaque(NAME_BYTES_MAX)?.to_vec();
        let attributes = Attributes4::read(&Fattr4::decode(r)?)?;
        entries.push(Entry4 { cookie, name, attributes });
    }
    Ok(Listing4 { verifier, entries, eof: r.bool()? })
}
