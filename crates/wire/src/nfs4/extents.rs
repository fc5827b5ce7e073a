//! Arguments and results of operations on a file's extents (RFC 7862 §15).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use super::OPAQUE_BYTES_MAX;
use super::attributes::Bitmap4;
use super::operations::StateId4;
use crate::codec::structure;
use crate::nfs3::{DATA_BYTES_MAX, StableHow};

/// Most addresses that a copy's source may have; the RFC has no bound.
const SOURCES_MAX: usize = 64;
/// Most parts of a file that `READ_PLUS` tells of; the RFC has no bound.
const CONTENTS_MAX: usize = 1024;

structure! {
    /// Arguments of ALLOCATE and DEALLOCATE.
    #[derive(Copy)]
    pub struct Allocate4Args {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes.
        pub length: u64,
    }
}

/// Where a server is (`netloc4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetLoc4<'a> {
    /// Its name.
    Name(&'a [u8]),
    /// Its URL.
    Url(&'a [u8]),
    /// Network and address.
    Address(&'a [u8], &'a [u8]),
}

const NETLOC: &str = "netloc_type4";

impl<'a> Decode<'a> for NetLoc4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => r.opaque(OPAQUE_BYTES_MAX).map(Self::Name),
            2 => r.opaque(OPAQUE_BYTES_MAX).map(Self::Url),
            3 => Ok(Self::Address(r.opaque(OPAQUE_BYTES_MAX)?, r.opaque(OPAQUE_BYTES_MAX)?)),
            value => Err(XdrError::BadValue { what: NETLOC, value }),
        }
    }
}

impl Encode for NetLoc4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Name(name) => {
                w.u32(1);
                w.opaque(name);
            }
            Self::Url(url) => {
                w.u32(2);
                w.opaque(url);
            }
            Self::Address(network, address) => {
                w.u32(3);
                w.opaque(network);
                w.opaque(address);
            }
        }
    }
}

structure! {
    /// Arguments of COPY: from the saved object to the current one.
    pub struct Copy4Args<'a> {
        /// By which state of the source.
        pub src_stateid: StateId4,
        /// By which state of the target.
        pub dst_stateid: StateId4,
        /// Where to begin in the source, in bytes.
        pub src_offset: u64,
        /// Where to begin in the target, in bytes.
        pub dst_offset: u64,
        /// How many bytes; 0 to the end of the source.
        pub count: u64,
        /// Whether what is copied must be one range from the offset on.
        pub consecutive: bool,
        /// Whether the reply must not come before the copy is done.
        pub synchronous: bool,
        /// Where the source is; nothing if it is here.
        pub source_server: Vec<NetLoc4<'a>>; max SOURCES_MAX,
    }
}

structure! {
    /// How a copy is made (`copy_requirements4`).
    #[derive(Copy)]
    pub struct CopyRequirements4 {
        /// One range from the offset on.
        pub consecutive: bool,
        /// The reply comes when the copy is done.
        pub synchronous: bool,
    }
}

/// Result of COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy4Result {
    /// By what the client hears when the copy is done, if it is not.
    pub callback_id: Option<StateId4>,
    /// Bytes copied.
    pub count: u64,
    /// How stable they are.
    pub committed: StableHow,
    /// Changes when what was not stable may be lost.
    pub verifier: [u8; 8],
    /// How the copy is made.
    pub requirements: CopyRequirements4,
}

impl<'a> Decode<'a> for Copy4Result {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let callback_id = if r.bool()? { Some(Decode::decode(r)?) } else { None };
        Ok(Self {
            callback_id,
            count: r.u64()?,
            committed: Decode::decode(r)?,
            verifier: Decode::decode(r)?,
            requirements: Decode::decode(r)?,
        })
    }
}

impl Encode for Copy4Result {
    fn encode(&self, w: &mut Writer<'_>) {
        // A list of at most one.
        w.bool(self.callback_id.is_some());
        if let Some(id) = &self.callback_id {
            id.encode(w);
        }
        w.u64(self.count);
        self.committed.encode(w);
        self.verifier.encode(w);
        self.requirements.encode(w);
    }
}

structure! {
    /// Arguments of `IO_ADVISE`.
    #[derive(Copy)]
    pub struct IoAdvise4Args {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// Where the range begins, in bytes.
        pub offset: u64,
        /// How many bytes; 0 to the end.
        pub count: u64,
        /// How it will be used.
        pub hints: Bitmap4,
    }
}

structure! {
    /// Arguments of `READ_PLUS`.
    #[derive(Copy)]
    pub struct ReadPlus4Args {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// Where to begin, in bytes.
        pub offset: u64,
        /// How many bytes.
        pub count: u32,
    }
}

/// What a part of a file is (`read_plus_content`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content4<'a> {
    /// Data.
    Data {
        /// Where it begins.
        offset: u64,
        /// The data.
        data: &'a [u8],
    },
    /// A hole: zeros.
    Hole {
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// The number of data (`data_content4`).
pub const CONTENT_DATA: u32 = 0;
/// The number of a hole.
pub const CONTENT_HOLE: u32 = 1;

impl<'a> Decode<'a> for Content4<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            CONTENT_DATA => Ok(Self::Data { offset: r.u64()?, data: r.opaque(DATA_BYTES_MAX)? }),
            CONTENT_HOLE => Ok(Self::Hole { offset: r.u64()?, length: r.u64()? }),
            value => Err(XdrError::BadValue { what: "data_content4", value }),
        }
    }
}

impl Encode for Content4<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Data { offset, data } => {
                w.u32(CONTENT_DATA);
                w.u64(*offset);
                w.opaque(data);
            }
            Self::Hole { offset, length } => {
                w.u32(CONTENT_HOLE);
                w.u64(*offset);
                w.u64(*length);
            }
        }
    }
}

structure! {
    /// Result of `READ_PLUS`.
    pub struct ReadPlus4Result<'a> {
        /// Whether the end of the file was reached.
        pub eof: bool,
        /// What there is, one part behind the other.
        pub contents: Vec<Content4<'a>>; max CONTENTS_MAX,
    }
}

structure! {
    /// Arguments of SEEK.
    #[derive(Copy)]
    pub struct Seek4Args {
        /// By which open, lock or delegation.
        pub stateid: StateId4,
        /// From where on, in bytes.
        pub offset: u64,
        /// What is looked for: [`CONTENT_DATA`] or [`CONTENT_HOLE`].
        pub what: u32,
    }
}

structure! {
    /// Result of SEEK.
    #[derive(Copy)]
    pub struct Seek4Result {
        /// Whether there is none up to the end of the file.
        pub eof: bool,
        /// Where it begins, in bytes.
        pub offset: u64,
    }
}

structure! {
    /// Arguments of CLONE: from the saved object to the current one.
    #[derive(Copy)]
    pub struct Clone4Args {
        /// By which state of the source.
        pub src_stateid: StateId4,
        /// By which state of the target.
        pub dst_stateid: StateId4,
        /// Where to begin in the source, in bytes.
        pub src_offset: u64,
        /// Where to begin in the target, in bytes.
        pub dst_offset: u64,
        /// How many bytes; 0 to the end of the source.
        pub count: u64,
    }
}
