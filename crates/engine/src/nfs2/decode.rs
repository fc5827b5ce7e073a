//! How NFSv2 arguments become the storage's words.

use steadfast_vfs::{DeviceNumber, FileKind, FsError, NodeKind, SetAttr, SetTime, Time};
use steadfast_wire::nfs2::{NfsTime2, Sattr2, UNSET};

use super::FILE_BYTES_MAX;

/// Mode that some ancient clients send for [`UNSET`]: their `mode` has 16 bits.
const UNSET_MODE: u32 = 0xffff;
/// Microseconds that mean the server's present time, by a convention of Sun's that is not in RFC 1094.
const SERVER_TIME: u32 = 1_000_000;
const PERMISSIONS: u32 = 0o7777;
const KIND: u32 = 0o170_000;

/// A mode's bits that tell the type (RFC 1094 §2.3.5).
pub(super) const fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharacterDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

fn known(value: u32) -> Option<u32> {
    (value != UNSET).then_some(value)
}

fn mode(attributes: &Sattr2) -> Option<u32> {
    known(attributes.mode).filter(|mode| *mode != UNSET_MODE)
}

fn set_time(to: NfsTime2) -> Result<SetTime, FsError> {
    match (known(to.seconds), known(to.useconds)) {
        (_, Some(SERVER_TIME)) => Ok(SetTime::ServerTime),
        (Some(seconds), Some(useconds)) if useconds < SERVER_TIME => {
            let nanoseconds = useconds * 1000;
            Ok(SetTime::To(Time { seconds: i64::from(seconds), nanoseconds }))
        }
        (Some(_), Some(_)) => Err(FsError::Invalid),
        _ => Ok(SetTime::Keep),
    }
}

/// What is to be set, of an object that has a size.
///
/// # Errors
/// `Invalid` for a time that is none, `FileTooLarge` for a size that NFSv2 cannot tell.
pub(super) fn set_attr(attributes: &Sattr2) -> Result<SetAttr, FsError> {
    let size = known(attributes.size);
    if size.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(FsError::FileTooLarge);
    }
    Ok(SetAttr { size: size.map(u64::from), ..without_size(attributes)? })
}

/// The same of what has no size of its own; clients that name one mean no harm.
///
/// # Errors
/// `Invalid` for a time that is none.
pub(super) fn without_size(attributes: &Sattr2) -> Result<SetAttr, FsError> {
    let mtime = set_time(attributes.mtime)?;
    // By the convention it goes for both when it is said of the last change alone.
    let atime = match mtime {
        SetTime::ServerTime if attributes.mtime.useconds == SERVER_TIME => SetTime::ServerTime,
        _ => set_time(attributes.atime)?,
    };
    Ok(SetAttr {
        mode: mode(attributes).map(|mode| mode & PERMISSIONS),
        umask: 0,
        uid: known(attributes.uid),
        gid: known(attributes.gid),
        size: None,
        atime,
        mtime,
    })
}

/// As Linux's `new_decode_dev`.
pub(super) fn device(number: u32) -> DeviceNumber {
    DeviceNumber { major: number >> 8 & 0xfff, minor: number & 0xff | number >> 12 & 0xf_ff00 }
}

/// What CREATE is to make. RFC 1094 has it make files only. Its clients make devices and pipes by it
/// too, in one way that all servers know: the mode has the type, the size the device's number, and a
/// character device without one is a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A file.
    File,
    /// A file, or whatever the name is of already: some clients ask so whether they may write it.
    Any,
    /// Something else.
    Node(NodeKind),
}

/// What CREATE is to make by these attributes.
///
/// # Errors
/// `BadType` for what other procedures make, and for a block device without a number.
pub(super) fn wanted(attributes: &Sattr2) -> Result<Wanted, FsError> {
    const REGULAR: u32 = kind_bits(FileKind::Regular);
    const CHARACTER_DEVICE: u32 = kind_bits(FileKind::CharacterDevice);
    const BLOCK_DEVICE: u32 = kind_bits(FileKind::BlockDevice);
    const FIFO: u32 = kind_bits(FileKind::Fifo);
    const SOCKET: u32 = kind_bits(FileKind::Socket);
    let Some(mode) = mode(attributes) else { return Ok(Wanted::Any) };
    let number = known(attributes.size).map(device);
    Ok(match (mode & KIND, number) {
        (0, _) => Wanted::Any,
        (REGULAR, _) => Wanted::File,
        (CHARACTER_DEVICE, Some(device)) => Wanted::Node(NodeKind::CharacterDevice(device)),
        (CHARACTER_DEVICE, None) | (FIFO, _) => Wanted::Node(NodeKind::Fifo),
        (BLOCK_DEVICE, Some(device)) => Wanted::Node(NodeKind::BlockDevice(device)),
        (SOCKET, _) => Wanted::Node(NodeKind::Socket),
        _ => return Err(FsError::BadType),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Sattr2 = {
        let unset = NfsTime2 { seconds: UNSET, useconds: UNSET };
        Sattr2 { mode: UNSET, uid: UNSET, gid: UNSET, size: UNSET, atime: unset, mtime: unset }
    };

    #[test]
    fn what_is_minus_one_stays() {
        assert_eq!(set_attr(&NOTHING), Ok(SetAttr::default()));
        assert_eq!(set_attr(&Sattr2 { mode: 0xffff, ..NOTHING }), Ok(SetAttr::default()));
        let half = NfsTime2 { seconds: 7, useconds: UNSET };
        assert_eq!(set_attr(&Sattr2 { atime: half, ..NOTHING }), Ok(SetAttr::default()));
        let all = Sattr2 {
            mode: 0o100_644,
            uid: 1,
            gid: 2,
            size: FILE_BYTES_MAX,
            atime: NfsTime2 { seconds: 3, useconds: 4 },
            mtime: NfsTime2 { seconds: u32::MAX - 1, useconds: 999_999 },
        };
        let expected = SetAttr {
            mode: Some(0o644),
            umask: 0,
            uid: Some(1),
            gid: Some(2),
            size: Some(0x7fff_ffff),
            atime: SetTime::To(Time { seconds: 3, nanoseconds: 4000 }),
            mtime: SetTime::To(Time { seconds: 0xffff_fffe, nanoseconds: 999_999_000 }),
        };
        assert_eq!(set_attr(&all), Ok(expected));
        assert_eq!(set_attr(&Sattr2 { size: 1 << 31, ..all }), Err(FsError::FileTooLarge));
        assert_eq!(without_size(&Sattr2 { size: 1 << 31, ..all }).unwrap().size, None);
    }

    #[test]
    fn a_million_microseconds_are_the_servers_time() {
        let server = NfsTime2 { seconds: 9, useconds: SERVER_TIME };
        let set = set_attr(&Sattr2 { mtime: server, ..NOTHING }).unwrap();
        assert_eq!((set.atime, set.mtime), (SetTime::ServerTime, SetTime::ServerTime));
        let set = set_attr(&Sattr2 { atime: server, ..NOTHING }).unwrap();
        assert_eq!((set.atime, set.mtime), (SetTime::ServerTime, SetTime::Keep));
        let none = NfsTime2 { seconds: 9, useconds: SERVER_TIME + 1 };
        assert_eq!(set_attr(&Sattr2 { mtime: none, ..NOTHING }), Err(FsError::Invalid));
    }

    #[test]
    fn create_tells_devices_and_pipes_by_mode_and_size() {
        let of = |mode, size| wanted(&Sattr2 { mode, size, ..NOTHING });
        let number = DeviceNumber { major: 4, minor: 64 };
        assert_eq!(of(UNSET, 0), Ok(Wanted::Any));
        assert_eq!(of(0o644, 0), Ok(Wanted::Any));
        assert_eq!(of(0o100_644, 0), Ok(Wanted::File));
        let character = NodeKind::CharacterDevice(number);
        assert_eq!(of(0o020_600, 4 << 8 | 64), Ok(Wanted::Node(character)));
        assert_eq!(of(0o020_600, UNSET), Ok(Wanted::Node(NodeKind::Fifo)));
        assert_eq!(of(0o010_600, 0), Ok(Wanted::Node(NodeKind::Fifo)));
        let block = NodeKind::BlockDevice(number);
        assert_eq!(of(0o060_600, 4 << 8 | 64), Ok(Wanted::Node(block)));
        assert_eq!(of(0o140_600, 0), Ok(Wanted::Node(NodeKind::Socket)));
        for mode in [0o040_755, 0o120_777, 0o170_000] {
            assert_eq!(of(mode, 0), Err(FsError::BadType));
        }
        assert_eq!(of(0o060_600, UNSET), Err(FsError::BadType));
    }
}
