//! What a record says, and its payload.
//!
//! A payload has the same beginning whatever its kind: time, uid, gid, groups, the server's order, the
//! path.
//! Then come the fields of the kind in the order of [`Change`], and the data of a write last.

use thiserror::Error;

use crate::format::{
    DATA_BYTES_MAX, Fields, GROUPS_MAX, HANDLE_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX,
};

/// The data of the write is compressed (zstd).
pub(crate) const FLAG_COMPRESSED: u8 = 1;
/// Less is not worth a try.
const COMPRESS_BYTES_MIN: usize = 512;
const COMPRESSION_LEVEL: i32 = 1;

/// One change, as it is appended before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the change was made, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who made it.
    pub uid: u32,
    /// Who made it.
    pub gid: u32,
    /// The other groups of who made it. At most [`GROUPS_MAX`].
    pub groups: &'a [u32],
    /// The place of the change in the server's own order, if the server has told it.
    pub order: Option<u64>,
    /// The path of the object as the user knows it. At most [`PATH_BYTES_MAX`] bytes.
    pub path: &'a [u8],
    /// The change.
    pub change: Change<'a>,
}

/// What is changed. Handles are those of the server, at most [`HANDLE_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Data is written.
    Write {
        /// The file.
        file: &'a [u8],
        /// Where, in bytes.
        offset: u64,
        /// At least one byte, at most [`DATA_BYTES_MAX`].
        data: &'a [u8],
    },
    /// Attributes are set.
    SetAttr {
        /// The object.
        object: &'a [u8],
        /// To what.
        attributes: Attributes,
    },
    /// A file is made.
    Create {
        /// In which directory.
        parent: &'a [u8],
        /// Its name there.
        name: &'a [u8],
        /// The verifier of an exclusive create (RFC 1813 §3.3.8): with it a repetition meets the file
        /// that it has made, and no other.
        verifier: [u8; 8],
        /// Set when it is there.
        attributes: Attributes,
    },
    /// A directory is made.
    Mkdir {
        /// In which directory.
        parent: &'a [u8],
        /// Its name there.
        name: &'a [u8],
        /// Set with it.
        attributes: Attributes,
    },
    /// A symbolic link is made.
    Symlink {
        /// In which directory.
        parent: &'a [u8],
        /// Its name there.
        name: &'a [u8],
        /// What it says.
        target: &'a [u8],
        /// Set with it.
        attributes: Attributes,
    },
    /// A special file is made.
    Mknod {
        /// In which directory.
        parent: &'a [u8],
        /// Its name there.
        name: &'a [u8],
        /// Its type: the `S_IFMT` bits of a mode.
        file_type: u32,
        /// Major and minor number of a device.
        device: [u32; 2],
        /// Set with it.
        attributes: Attributes,
    },
    /// A name is removed.
    Remove {
        /// In which directory.
        parent: &'a [u8],
        /// Which.
        name: &'a [u8],
        /// What the name was bound to: it is removed again only if it still is. Empty if unknown.
        object: &'a [u8],
    },
    /// A directory is removed.
    Rmdir {
        /// In which directory.
        parent: &'a [u8],
        /// Which.
        name: &'a [u8],
        /// As for [`Change::Remove`].
        object: &'a [u8],
    },
    /// An object gets another name. [`Record::path`] is the old one.
    Rename {
        /// In which directory it was.
        from_parent: &'a [u8],
        /// Its name there.
        from_name: &'a [u8],
        /// In which directory it is then.
        to_parent: &'a [u8],
        /// Its name there.
        to_name: &'a [u8],
        /// The path then.
        to_path: &'a [u8],
        /// What is renamed: it is renamed again only if the old name is still bound to it. Empty if
        /// unknown.
        object: &'a [u8],
        /// What the new name was bound to. Empty if nothing, or unknown.
        replaced: &'a [u8],
    },
    /// A file gets one more name.
    Link {
        /// The file.
        file: &'a [u8],
        /// In which directory.
        parent: &'a [u8],
        /// The name there.
        name: &'a [u8],
    },
}

/// What kind of change a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "they are those of Change")]
pub enum Kind {
    Write = 1,
    SetAttr = 2,
    Create = 3,
    Mkdir = 4,
    Symlink = 5,
    Mknod = 6,
    Remove = 7,
    Rmdir = 8,
    Rename = 9,
    Link = 10,
}

const KINDS: [(Kind, &str); 10] = [
    (Kind::Write, "write"),
    (Kind::SetAttr, "setattr"),
    (Kind::Create, "create"),
    (Kind::Mkdir, "mkdir"),
    (Kind::Symlink, "symlink"),
    (Kind::Mknod, "mknod"),
    (Kind::Remove, "remove"),
    (Kind::Rmdir, "rmdir"),
    (Kind::Rename, "rename"),
    (Kind::Link, "link"),
];

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The kind that a word is for.
    pub fn of_word(word: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }

    pub(crate) fn of_code(code: u8) -> Option<Self> {
        KINDS.iter().find(|(kind, _)| *kind as u8 == code).map(|(kind, _)| *kind)
    }
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The size in bytes.
    pub size: Option<u64>,
    /// Permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// When it was last read.
    pub accessed: Option<SetTime>,
    /// When it was last changed.
    pub modified: Option<SetTime>,
}

impl Attributes {
    /// Whether nothing but the size is set.
    pub(crate) fn is_size_only(&self) -> bool {
        self.size.is_some() && Self { size: None, ..*self } == Self::default()
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the server sets it.
    OfServer,
    /// This one.
    To {
        /// Seconds since 1970.
        seconds: i64,
        /// Below 1,000,000,000.
        nanoseconds: u32,
    },
}

/// Why a record cannot be appended as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// A field is longer than its bound.
    #[error("the {field} has {bytes} bytes, and may have {max}")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its length.
        bytes: usize,
        /// Its bound.
        max: usize,
    },
    /// A write of no data.
    #[error("a write of no data needs no record")]
    NoData,
    /// The write goes beyond the largest offset.
    #[error("the write ends beyond the largest offset")]
    Beyond,
}

pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    fn bounded(&mut self, field: &'static str, bytes: &[u8], max: usize) -> Result<(), Unfit> {
        if bytes.len() > max {
            return Err(Unfit::TooLong { field, bytes: bytes.len(), max });
        }
        self.0.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn handle(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        self.bounded("handle", bytes, HANDLE_BYTES_MAX)
    }

    fn name(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        self.bounded("name", bytes, NAME_BYTES_MAX)
    }

    fn path(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        self.bounded("path", bytes, PATH_BYTES_MAX)
    }

    fn groups(&mut self, groups: &[u32]) -> Result<(), Unfit> {
        let (bytes, max) = (4 * groups.len(), 4 * GROUPS_MAX);
        if bytes > max {
            return Err(Unfit::TooLong { field: "list of groups", bytes, max });
        }
        self.0.push(groups.len() as u8);
        for group in groups {
            self.u32(*group);
        }
        Ok(())
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn option(&mut self, value: Option<u64>) {
        self.0.push(u8::from(value.is_some()));
        self.u64(value.unwrap_or(0));
    }

    fn time(&mut self, time: Option<SetTime>) {
        let (code, seconds, nanoseconds) = match time {
            None => (0, 0, 0),
            Some(SetTime::OfServer) => (1, 0, 0),
            Some(SetTime::To { seconds, nanoseconds }) => (2, seconds, nanoseconds),
        };
        self.0.push(code);
        self.0.extend_from_slice(&seconds.to_le_bytes());
        self.u32(nanoseconds);
    }

    fn attributes(&mut self, attributes: &Attributes) {
        self.option(attributes.size);
        self.option(attributes.mode.map(u64::from));
        self.option(attributes.uid.map(u64::from));
        self.option(attributes.gid.map(u64::from));
        self.time(attributes.accessed);
        self.time(attributes.modified);
    }
}

impl<'a> Record<'a> {
    /// What kind of change it is of.
    pub fn kind(&self) -> Kind {
        match self.change {
            Change::Write { .. } => Kind::Write,
            Change::SetAttr { .. } => Kind::SetAttr,
            Change::Create { .. } => Kind::Create,
            Change::Mkdir { .. } => Kind::Mkdir,
            Change::Symlink { .. } => Kind::Symlink,
            Change::Mknod { .. } => Kind::Mknod,
            Change::Remove { .. } => Kind::Remove,
            Change::Rmdir { .. } => Kind::Rmdir,
            Change::Rename { .. } => Kind::Rename,
            Change::Link { .. } => Kind::Link,
        }
    }

    /// Handles of the objects that the record is found by: the file, or the directories.
    pub fn objects(&self) -> [Option<&'a [u8]>; 2] {
        match self.change {
            Change::Write { file, .. } => [Some(file), None],
            Change::SetAttr { object, .. } => [Some(object), None],
            Change::Create { parent, .. }
            | Change::Mkdir { parent, .. }
            | Change::Symlink { parent, .. }
            | Change::Mknod { parent, .. } => [Some(parent), None],
            Change::Remove { parent, object, .. } | Change::Rmdir { parent, object, .. } => {
                [Some(parent), Some(object).filter(|object| !object.is_empty())]
            }
            Change::Rename { from_parent, to_parent, .. } => {
                [Some(from_parent), Some(to_parent).filter(|to| *to != from_parent)]
            }
            Change::Link { file, parent, .. } => [Some(file), Some(parent)],
        }
    }

    /// The payload behind so many bytes of zeros; the flags; the hash of the data.
    pub(crate) fn encode(
        &self,
        room_before: usize,
        compress: bool,
    ) -> Result<(Vec<u8>, u8, [u8; 32]), Unfit> {
        let mut into = Writer(vec![0; room_before]);
        into.u64(self.time_ns);
        into.u32(self.uid);
        into.u32(self.gid);
        into.groups(self.groups)?;
        into.option(self.order);
        into.path(self.path)?;
        let (mut flags, mut hash) = (0, [0; 32]);
        match self.change {
            Change::Write { file, offset, data } => {
                if data.is_empty() {
                    return Err(Unfit::NoData);
                }
                let (bytes, max) = (data.len(), DATA_BYTES_MAX);
                if bytes > max {
                    return Err(Unfit::TooLong { field: "data", bytes, max });
                }
                if offset.checked_add(bytes as u64).is_none_or(|end| end > i64::MAX as u64) {
                    return Err(Unfit::Beyond);
                }
                hash = *blake3::hash(data).as_bytes();
                into.handle(file)?;
                into.u64(offset);
                into.u32(bytes as u32);
                into.0.extend_from_slice(&hash);
                let compressed = (compress && bytes >= COMPRESS_BYTES_MIN)
                    .then(|| zstd::bulk::compress(data, COMPRESSION_LEVEL).ok())
                    .flatten()
                    .filter(|compressed| compressed.len() < bytes);
                flags |= if compressed.is_some() { FLAG_COMPRESSED } else { 0 };
                into.0.extend_from_slice(compressed.as_deref().unwrap_or(data));
            }
            Change::SetAttr { object, attributes } => {
                into.handle(object)?;
                into.attributes(&attributes);
            }
            Change::Create { parent, name, verifier, attributes } => {
                into.handle(parent)?;
                into.name(name)?;
                into.0.extend_from_slice(&verifier);
                into.attributes(&attributes);
            }
            Change::Mkdir { parent, name, attributes } => {
                into.handle(parent)?;
                into.name(name)?;
                into.attributes(&attributes);
            }
            Change::Symlink { parent, name, target, attributes } => {
                into.handle(parent)?;
                into.name(name)?;
                into.path(target)?;
                into.attributes(&attributes);
            }
            Change::Mknod { parent, name, file_type, device, attributes } => {
                into.handle(parent)?;
                into.name(name)?;
                into.u32(file_type);
                into.u32(device[0]);
                into.u32(device[1]);
                into.attributes(&attributes);
            }
            Change::Remove { parent, name, object } | Change::Rmdir { parent, name, object } => {
                into.handle(parent)?;
                into.name(name)?;
                into.handle(object)?;
            }
            Change::Rename {
                from_parent,
                from_name,
                to_parent,
                to_name,
                to_path,
                object,
                replaced,
            } => {
                into.handle(from_parent)?;
                into.name(from_name)?;
                into.handle(to_parent)?;
                into.name(to_name)?;
                into.path(to_path)?;
                into.handle(object)?;
                into.handle(replaced)?;
            }
            Change::Link { file, parent, name } => {
                into.handle(file)?;
                into.handle(parent)?;
                into.name(name)?;
            }
        }
        Ok((into.0, flags, hash))
    }
}

// In these three the outer option is whether there is a value that can be read at all.
#[allow(clippy::option_option, reason = "the inner one is the value")]
pub(crate) fn option(fields: &mut Fields<'_>) -> Option<Option<u64>> {
    let is_some = fields.u8()?;
    let value = fields.u64()?;
    match is_some {
        0 => Some(None),
        1 => Some(Some(value)),
        _ => None,
    }
}

#[allow(clippy::option_option, reason = "the inner one is the value")]
fn option32(fields: &mut Fields<'_>) -> Option<Option<u32>> {
    match option(fields)? {
        None => Some(None),
        Some(value) => Some(Some(u32::try_from(value).ok()?)),
    }
}

#[allow(clippy::option_option, reason = "the inner one is the value")]
fn time(fields: &mut Fields<'_>) -> Option<Option<SetTime>> {
    let code = fields.u8()?;
    let seconds = i64::from_le_bytes(fields.array()?);
    let nanoseconds = fields.u32()?;
    match code {
        0 => Some(None),
        1 => Some(Some(SetTime::OfServer)),
        2 => Some(Some(SetTime::To { seconds, nanoseconds })),
        _ => None,
    }
}

fn attributes(fields: &mut Fields<'_>) -> Option<Attributes> {
    Some(Attributes {
        size: option(fields)?,
        mode: option32(fields)?,
        uid: option32(fields)?,
        gid: option32(fields)?,
        accessed: time(fields)?,
        modified: time(fields)?,
    })
}

/// A payload that was read.
#[derive(Clone, Debug)]
pub(crate) struct Decoded<'a> {
    /// The record without its groups; of a write that is compressed, with the data as it stands.
    pub(crate) record: Record<'a>,
    /// The groups.
    pub(crate) groups: Vec<u32>,
    /// Of a write, the length of its data.
    pub(crate) data_bytes: u32,
    /// Of a write, the hash of its data.
    pub(crate) hash: [u8; 32],
}

/// Reads the payload of a record.
pub(crate) fn decode(kind: Kind, flags: u8, payload: &[u8]) -> Option<Decoded<'_>> {
    let mut from = Fields::new(payload);
    let from = &mut from;
    let (time_ns, uid, gid) = (from.u64()?, from.u32()?, from.u32()?);
    let groups = groups(from)?;
    let order = option(from)?;
    let path = from.bytes(PATH_BYTES_MAX)?;
    let (mut data_bytes, mut hash) = (0, [0; 32]);
    let change = match kind {
        Kind::Write => {
            let file = from.bytes(HANDLE_BYTES_MAX)?;
            let offset = from.u64()?;
            data_bytes = from.u32()?;
            hash = from.array()?;
            let data = from.take(from.rest().len())?;
            let is_as_long = data.len() == data_bytes as usize;
            if data_bytes == 0
                || data_bytes as usize > DATA_BYTES_MAX
                || offset.checked_add(u64::from(data_bytes))? > i64::MAX as u64
                || (flags & FLAG_COMPRESSED == 0) && !is_as_long
            {
                return None;
            }
            Change::Write { file, offset, data }
        }
        Kind::SetAttr => Change::SetAttr { object: handle(from)?, attributes: attributes(from)? },
        Kind::Create => Change::Create {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            verifier: from.array()?,
            attributes: attributes(from)?,
        },
        Kind::Mkdir => Change::Mkdir {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            attributes: attributes(from)?,
        },
        Kind::Symlink => Change::Symlink {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            target: from.bytes(PATH_BYTES_MAX)?,
            attributes: attributes(from)?,
        },
        Kind::Mknod => Change::Mknod {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            file_type: from.u32()?,
            device: [from.u32()?, from.u32()?],
            attributes: attributes(from)?,
        },
        Kind::Remove => Change::Remove {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            object: handle(from)?,
        },
        Kind::Rmdir => Change::Rmdir {
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
            object: handle(from)?,
        },
        Kind::Rename => Change::Rename {
            from_parent: handle(from)?,
            from_name: from.bytes(NAME_BYTES_MAX)?,
            to_parent: handle(from)?,
            to_name: from.bytes(NAME_BYTES_MAX)?,
            to_path: from.bytes(PATH_BYTES_MAX)?,
            object: handle(from)?,
            replaced: handle(from)?,
        },
        Kind::Link => Change::Link {
            file: handle(from)?,
            parent: handle(from)?,
            name: from.bytes(NAME_BYTES_MAX)?,
        },
    };
    let record = Record { time_ns, uid, gid, groups: &[], order, path, change };
    from.rest().is_empty().then_some(Decoded { record, groups, data_bytes, hash })
}

fn groups(from: &mut Fields<'_>) -> Option<Vec<u32>> {
    let count = usize::from(from.u8()?);
    if count > GROUPS_MAX {
        return None;
    }
    (0..count).map(|_| from.u32()).collect()
}

pub(crate) fn handle<'a>(from: &mut Fields<'a>) -> Option<&'a [u8]> {
    from.bytes(HANDLE_BYTES_MAX)
}

/// Data as it was written, if it has the length that its record says.
pub(crate) fn unchecked_data(decoded: &Decoded<'_>, flags: u8) -> Option<Vec<u8>> {
    let Change::Write { data, .. } = decoded.record.change else { return Some(Vec::new()) };
    let plain = if flags & FLAG_COMPRESSED == 0 {
        data.to_vec()
    } else {
        // The length is bounded by `decode`.
        zstd::bulk::decompress(data, decoded.data_bytes as usize).ok()?
    };
    (plain.len() == decoded.data_bytes as usize).then_some(plain)
}

/// Data as it was written, if it has the length and the hash that its record says.
pub(crate) fn plain_data(decoded: &Decoded<'_>, flags: u8) -> Option<Vec<u8>> {
    let is_right = |plain: &Vec<u8>| *blake3::hash(plain).as_bytes() == decoded.hash;
    let is_write = matches!(decoded.record.change, Change::Write { .. });
    unchecked_data(decoded, flags).filter(|plain| !is_write || is_right(plain))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn samples() -> Vec<Change<'static>> {
        let attributes = Attributes {
            size: Some(u64::MAX),
            mode: Some(0o644),
            uid: Some(u32::MAX),
            gid: None,
            accessed: Some(SetTime::OfServer),
            modified: Some(SetTime::To { seconds: -1, nanoseconds: 999_999_999 }),
        };
        let (parent, name) = (b"parent".as_slice(), b"name".as_slice());
        vec![
            Change::Write { file: &[7; 64], offset: 1 << 40, data: &[9; 3000] },
            Change::SetAttr { object: b"o", attributes },
            Change::Create { parent, name, verifier: [3; 8], attributes },
            Change::Mkdir { parent, name, attributes: Attributes::default() },
            Change::Symlink { parent, name, target: b"../x", attributes },
            Change::Mknod { parent, name, file_type: 0o20000, device: [1, 3], attributes },
            Change::Remove { parent, name, object: b"" },
            Change::Rmdir { parent, name, object: b"o" },
            Change::Rename {
                from_parent: parent,
                from_name: name,
                to_parent: b"p2",
                to_name: b"n2",
                to_path: b"/p2/n2",
                object: b"o",
                replaced: b"r",
            },
            Change::Link { file: b"f", parent, name },
        ]
    }

    #[test]
    fn each_kind_is_read_as_it_was_written() {
        for change in samples() {
            let path = "/mnt/\u{fffd}\n".as_bytes();
            let groups = &[7, u32::MAX];
            let record =
                Record { time_ns: 5, uid: 1, gid: 2, groups, order: Some(9), path, change };
            for compress in [false, true] {
                let (payload, flags, hash) = record.encode(8, compress).unwrap();
                let payload = &payload[8..];
                let decoded = decode(record.kind(), flags, payload).unwrap();
                assert_eq!((decoded.hash, decoded.groups.as_slice()), (hash, groups.as_slice()));
                if let Change::Write { data, .. } = change {
                    assert_eq!(flags == FLAG_COMPRESSED, compress);
                    assert_eq!(plain_data(&decoded, flags).unwrap(), data);
                } else {
                    assert_eq!(Record { groups, ..decoded.record }, record);
                }
                for end in 0..payload.len() {
                    let cut = decode(record.kind(), flags, &payload[..end]);
                    // Only the hash tells that compressed data was cut.
                    assert!(cut.is_none_or(|cut| plain_data(&cut, flags).is_none()));
                }
            }
            assert_eq!(Kind::of_word(record.kind().word()), Some(record.kind()));
            assert_eq!(Kind::of_code(record.kind() as u8), Some(record.kind()));
        }
    }

    #[test]
    fn what_is_too_long_or_empty_is_refused() {
        let whole = |groups, change| {
            let record =
                Record { time_ns: 0, uid: 0, gid: 0, groups, order: None, path: b"", change };
            record.encode(0, false)
        };
        let fits = |change| whole(&[], change);
        let small = Change::Write { file: b"f", offset: 0, data: b"x" };
        assert!(whole(&[1; 16], small).is_ok() && whole(&[1; 17], small).is_err());
        let (file, data) = ([1; HANDLE_BYTES_MAX + 1].as_slice(), vec![0; DATA_BYTES_MAX + 1]);
        assert!(fits(Change::Write { file, offset: 0, data: b"x" }).is_err());
        let file = b"f".as_slice();
        assert!(fits(Change::Write { file, offset: 0, data: &data }).is_err());
        assert_eq!(fits(Change::Write { file, offset: 0, data: b"" }), Err(Unfit::NoData));
        let offset = i64::MAX as u64;
        assert_eq!(fits(Change::Write { file, offset, data: b"x" }), Err(Unfit::Beyond));
    }
}
