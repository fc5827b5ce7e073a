//! Attributes as a client sets them (RFC 8881 §5.8).

use steadfast_wire::nfs4::{Attribute4, Bitmap4, Fattr4, NfsTime4};
use steadfast_xdr::{Encode, Writer};

/// `SET_TO_SERVER_TIME4`.
const SERVER_TIME: u32 = 0;
/// `SET_TO_CLIENT_TIME4`.
const CLIENT_TIME: u32 = 1;

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime4 {
    /// That of the server.
    Now,
    /// This one.
    To(NfsTime4),
}

/// Attributes to be set; those that are `None` stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings4 {
    /// Length in bytes.
    pub size: Option<u64>,
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner: a number, or a name with its domain.
    pub owner: Option<Vec<u8>>,
    /// Group, likewise.
    pub owner_group: Option<Vec<u8>>,
    /// Last read.
    pub atime: Option<SetTime4>,
    /// Last change of the data.
    pub mtime: Option<SetTime4>,
}

/// Attributes as they go on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded4 {
    mask: Bitmap4,
    values: Vec<u8>,
}

impl Encoded4 {
    /// To be put into arguments.
    pub fn fattr(&self) -> Fattr4<'_> {
        Fattr4 { attrmask: self.mask, attr_vals: &self.values }
    }

    /// Which attributes.
    pub fn mask(&self) -> Bitmap4 {
        self.mask
    }
}

impl Settings4 {
    /// The mode alone.
    pub fn mode(mode: u32) -> Self {
        Self { mode: Some(mode), ..Self::default() }
    }

    /// The size alone, in bytes.
    pub fn size(size: u64) -> Self {
        Self { size: Some(size), ..Self::default() }
    }

    /// The bytes, in the order of the attributes' numbers.
    pub fn encode(&self) -> Encoded4 {
        let (mut mask, mut values) = (Bitmap4::EMPTY, Vec::new());
        let mut w = Writer::new(&mut values);
        let mut sets = |attribute| mask = mask.or(&Bitmap4::of(&[attribute]));
        if let Some(size) = self.size {
            sets(Attribute4::Size);
            w.u64(size);
        }
        if let Some(mode) = self.mode {
            sets(Attribute4::Mode);
            w.u32(mode);
        }
        if let Some(owner) = &self.owner {
            sets(Attribute4::Owner);
            w.opaque(owner);
        }
        if let Some(group) = &self.owner_group {
            sets(Attribute4::OwnerGroup);
            w.opaque(group);
        }
        let times =
            [(self.atime, Attribute4::TimeAccessSet), (self.mtime, Attribute4::TimeModifySet)];
        for (time, attribute) in times {
            let Some(time) = time else { continue };
            sets(attribute);
            match time {
                SetTime4::Now => w.u32(SERVER_TIME),
                SetTime4::To(time) => {
                    w.u32(CLIENT_TIME);
                    time.encode(&mut w);
                }
            }
        }
        Encoded4 { mask, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from RFC 8881 §5.8: size, mode, owner, mtime.
    #[test]
    fn settings_are_encoded_in_the_order_of_their_numbers() {
        let settings = Settings4 {
            size: Some(5),
            mode: Some(0o640),
            owner: Some(b"7".to_vec()),
            owner_group: None,
            atime: Some(SetTime4::Now),
            mtime: Some(SetTime4::To(NfsTime4 { seconds: 2, nseconds: 3 })),
        };
        let mut bytes = Vec::new();
        settings.encode().fattr().encode(&mut Writer::new(&mut bytes));
        let expected = b"\0\0\0\x02\0\0\0\x10\0\x41\0\x12\0\0\0\x28\
            \0\0\0\0\0\0\0\x05\0\0\x01\xa0\0\0\0\x017\0\0\0\
            \0\0\0\0\
            \0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03";
        assert_eq!(bytes, expected);
        assert!(Settings4::default().encode().mask().is_empty());
    }
}
