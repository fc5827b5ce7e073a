//! Times, and attributes to be set (RFC 1813 §2.6).

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::codec::structure;

structure! {
    /// A time (`nfstime3`): seconds since 1970, unsigned.
    #[derive(Copy)]
    pub struct NfsTime3 {
        /// Whole seconds.
        pub seconds: u32,
        /// Nanoseconds; a billion and more are not refused here.
        pub nseconds: u32,
    }
}

/// How a time is to be set (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime3 {
    /// It stays.
    DontChange,
    /// To the server's clock.
    SetToServerTime,
    /// To this time.
    SetToClientTime(NfsTime3),
}

impl<'a> Decode<'a> for SetTime3 {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::SetToServerTime),
            2 => Decode::decode(r).map(Self::SetToClientTime),
            value => Err(XdrError::BadValue { what: "time_how", value }),
        }
    }
}

impl Encode for SetTime3 {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::DontChange => w.u32(0),
            Self::SetToServerTime => w.u32(1),
            Self::SetToClientTime(time) => {
                w.u32(2);
                time.encode(w);
            }
        }
    }
}

structure! {
    /// Attributes to set (`sattr3`); what is `None` stays.
    #[derive(Copy)]
    pub struct Sattr3 {
        /// Permissions, and the bits for set-user-id, set-group-id and sticky.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Length in bytes; less than now cuts the file off.
        pub size: Option<u64>,
        /// Time of the last access.
        pub atime: SetTime3,
        /// Time of the last change of the data.
        pub mtime: SetTime3,
    }
}
