//! Where replies are made, with what is known of the calls that they answer, and where they are sent later.

use steadfast_shares::ShareId;
use steadfast_vfs::{FileRange, StorageHandle};

use crate::complaint::Complaint;
use crate::compound_operation::CompoundOperations;
use crate::operation::OperationId;

/// What the engine found out about a call, for who counts calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFacts {
    /// The client's number for it.
    pub xid: u32,
    /// What was called.
    pub operation: OperationId,
    /// Whether the reply is a failure, of RPC or of the procedure.
    pub is_error: bool,
    /// Whether it repeats a call that is known: it was not executed again.
    pub is_repeat: bool,
    /// Of a COMPOUND: what it was made of, as far as it was executed.
    pub operations: CompoundOperations,
}

impl Default for CallFacts {
    fn default() -> Self {
        Self {
            xid: 0,
            operation: OperationId::OTHER,
            is_error: false,
            is_repeat: false,
            operations: CompoundOperations::default(),
        }
    }
}

/// What a call was about, as far as the engine came with it: for who tells why it was slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSubject {
    /// The share by which its file was reached. Of several files: the last.
    pub share: Option<ShareId>,
    /// That file, in the share's storage.
    pub file: Option<StorageHandle>,
    /// As which user the call acts there, after squashing.
    pub uid: Option<u32>,
}

/// Replies of a batch of calls, in the order in which they are to be sent.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    /// RPC messages (and what the runtime puts between them).
    pub bytes: Vec<u8>,
    /// File ranges that belong into `bytes`: each before the byte of that index. Ascending.
    pub files: Vec<(usize, FileRange)>,
    /// Whether [`ReplyBuffer::files`] may be used (TCP, and the sender can).
    pub may_place_files: bool,
    /// What was wrong with the last call, if anything: to be logged, rate-limited, with the
    /// peer's address. The engine sets it, the runtime takes it.
    pub complaint: Option<Complaint>,
    /// What is known of the last call. The engine sets it.
    pub facts: CallFacts,
    /// What the last call was about. The engine sets it.
    pub subject: CallSubject,
}

impl ReplyBuffer {
    /// Bytes of all replies, file ranges included.
    pub fn length(&self) -> usize {
        let files: usize = self.files.iter().map(|(_, range)| range.length as usize).sum();
        self.bytes.len() + files
    }
}

/// Where the reply of a call can be sent later, by whoever has it.
pub trait ReplySink: Send {
    /// Sends one RPC message. Never waits: what cannot be sent is lost.
    fn send(self: Box<Self>, reply: &[u8]);
}
