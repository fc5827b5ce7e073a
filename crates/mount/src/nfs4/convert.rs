//! NFSv4's words for what NFSv3 has other ones for.

use steadfast_client::nfs4::{Attributes4, FsId4, NfsStat4, SetTime4, Settings4, operation_name};
use steadfast_client::{
    Attributes, ClientError, Failure, FileType, NfsStat3, NfsTime3, Sattr3, SetTime3, Time, Wcc,
    WccAttributes,
};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, ChangeInfo4, FileType4, NfsTime4};

/// Who has what belongs to somebody whose number is not known.
const NOBODY: u32 = 65_534;

/// The attributes that [`attributes`] needs.
pub(super) const WANTED: Bitmap4 = Bitmap4::of(&[
    Attribute4::Type,
    Attribute4::Change,
    Attribute4::Size,
    Attribute4::FsId,
    Attribute4::FileId,
    Attribute4::Mode,
    Attribute4::NumLinks,
    Attribute4::Owner,
    Attribute4::OwnerGroup,
    Attribute4::RawDev,
    Attribute4::SpaceUsed,
    Attribute4::TimeAccess,
    Attribute4::TimeMetadata,
    Attribute4::TimeModify,
]);

/// A time; what NFSv3 cannot say (before 1970, after 2106) is the nearest that it can.
fn time(of: NfsTime4) -> Time {
    let seconds = of.seconds.clamp(0, i64::from(u32::MAX)) as u32;
    Time { seconds, nanoseconds: of.nseconds }
}

/// A user or group: servers for `AUTH_SYS` tell numbers. Who is told by name is nobody here.
fn number(name: Option<&Vec<u8>>) -> u32 {
    let text = name.and_then(|name| std::str::from_utf8(name).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(NOBODY)
}

/// One number for both of a file system.
fn fsid(of: Option<FsId4>) -> u64 {
    of.map_or(0, |of| of.major.rotate_left(32) ^ of.minor)
}

/// Attributes; `None` if they lack what each object has.
pub(super) fn attributes(of: &Attributes4) -> Option<Attributes> {
    let file_type = match of.file_type? {
        FileType4::Regular | FileType4::NamedAttribute => FileType::Regular,
        FileType4::Directory | FileType4::AttributeDirectory => FileType::Directory,
        FileType4::BlockDevice => FileType::BlockDevice,
        FileType4::CharacterDevice => FileType::CharacterDevice,
        FileType4::Symlink => FileType::Symlink,
        FileType4::Socket => FileType::Socket,
        FileType4::Fifo => FileType::Fifo,
    };
    let size = of.size?;
    Some(Attributes {
        file_type,
        mode: of.mode? & 0o7777,
        nlink: of.links.unwrap_or(1),
        uid: number(of.owner.as_ref()),
        gid: number(of.owner_group.as_ref()),
        size,
        used: of.used_bytes.unwrap_or(size),
        rdev: of.device.unwrap_or_default(),
        fsid: fsid(of.fsid),
        fileid: of.fileid.or(of.mounted_on_fileid)?,
        atime: time(of.atime.or(of.mtime)?),
        mtime: time(of.mtime?),
        ctime: time(of.ctime?),
    })
}

/// A directory around a change: as NFSv3 tells it, if nobody else has changed it in between.
pub(super) fn around(
    before: Option<&Attributes4>,
    told: &ChangeInfo4,
    after: Option<&Attributes4>,
) -> Wcc {
    let is_of = |attributes: &&Attributes4, change| attributes.change == Some(change);
    let is_alone = told.atomic && after.as_ref().is_some_and(|after| is_of(after, told.after));
    let before = before.filter(|before| is_alone && is_of(before, told.before));
    let before = before.and_then(attributes).map(|before| WccAttributes {
        size: before.size,
        mtime: before.mtime,
        ctime: before.ctime,
    });
    Wcc { before, after: after.and_then(attributes) }
}

/// A file after a change: nothing tells what it was before.
pub(super) fn afterwards(after: Option<&Attributes4>) -> Wcc {
    Wcc { before: None, after: after.and_then(attributes) }
}

fn set_time(time: SetTime3) -> Option<SetTime4> {
    match time {
        SetTime3::DontChange => None,
        SetTime3::SetToServerTime => Some(SetTime4::Now),
        SetTime3::SetToClientTime(NfsTime3 { seconds, nseconds }) => {
            Some(SetTime4::To(NfsTime4 { seconds: i64::from(seconds), nseconds }))
        }
    }
}

/// Attributes to be set.
pub(super) fn settings(of: &Sattr3) -> Settings4 {
    let owner = |number: Option<u32>| number.map(|number| number.to_string().into_bytes());
    Settings4 {
        size: of.size,
        mode: of.mode,
        owner: owner(of.uid),
        owner_group: owner(of.gid),
        atime: set_time(of.atime),
        mtime: set_time(of.mtime),
    }
}

/// A status as NFSv3 has it. "Later" and "in the grace period" are both "later".
pub(super) fn status(of: NfsStat4) -> NfsStat3 {
    match of {
        NfsStat4::Ok => NfsStat3::Ok,
        NfsStat4::Perm => NfsStat3::Perm,
        NfsStat4::NoEnt => NfsStat3::NoEnt,
        NfsStat4::NxIo => NfsStat3::NxIo,
        NfsStat4::Access
        | NfsStat4::ShareDenied
        | NfsStat4::WrongSec
        | NfsStat4::OpenMode
        | NfsStat4::FileOpen => NfsStat3::Acces,
        NfsStat4::Exist => NfsStat3::Exist,
        NfsStat4::XDev => NfsStat3::XDev,
        NfsStat4::NotDir => NfsStat3::NotDir,
        NfsStat4::IsDir => NfsStat3::IsDir,
        NfsStat4::Inval
        | NfsStat4::SymLink
        | NfsStat4::BadOwner
        | NfsStat4::BadName
        | NfsStat4::BadChar
        | NfsStat4::WrongType => NfsStat3::Inval,
        NfsStat4::FBig => NfsStat3::FBig,
        NfsStat4::NoSpc => NfsStat3::NoSpc,
        NfsStat4::RoFs => NfsStat3::RoFs,
        NfsStat4::MLink => NfsStat3::MLink,
        NfsStat4::NameTooLong => NfsStat3::NameTooLong,
        NfsStat4::NotEmpty => NfsStat3::NotEmpty,
        NfsStat4::DQuot => NfsStat3::DQuot,
        NfsStat4::Stale | NfsStat4::FhExpired => NfsStat3::Stale,
        NfsStat4::BadHandle => NfsStat3::BadHandle,
        NfsStat4::BadCookie | NfsStat4::NotSame => NfsStat3::BadCookie,
        NfsStat4::NotSupp | NfsStat4::AttrNotSupp => NfsStat3::NotSupp,
        NfsStat4::TooSmall => NfsStat3::TooSmall,
        NfsStat4::ServerFault => NfsStat3::ServerFault,
        NfsStat4::BadType => NfsStat3::BadType,
        NfsStat4::Moved => NfsStat3::Remote,
        NfsStat4::Delay | NfsStat4::Grace => NfsStat3::Jukebox,
        _ => NfsStat3::Io,
    }
}

/// A failed operation as a failed call.
pub(super) fn failed(error: ClientError) -> ClientError {
    let ClientError::Operation(failure) = &error else { return error };
    let status = status(failure.status);
    if status == NfsStat3::Io {
        tracing::debug!(%error, "an operation failed");
    }
    with_status(error, status)
}

/// A failed operation as a call that failed with this status.
pub(super) fn with_status(error: ClientError, status: NfsStat3) -> ClientError {
    let ClientError::Operation(failure) = &error else { return error };
    let procedure = failure.op.map_or("COMPOUND", operation_name);
    ClientError::Failed(Box::new(Failure {
        procedure,
        status,
        attributes: None,
        wcc: Wcc::default(),
        second_wcc: Wcc::default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(change: u64) -> Attributes4 {
        let time = NfsTime4 { seconds: 7, nseconds: 8 };
        Attributes4 {
            file_type: Some(FileType4::Directory),
            change: Some(change),
            size: Some(4096),
            mode: Some(0o40_755),
            fileid: Some(3),
            owner: Some(b"1000".to_vec()),
            owner_group: Some(b"staff@example.org".to_vec()),
            mtime: Some(time),
            ctime: Some(time),
            ..Attributes4::default()
        }
    }

    #[test]
    fn owners_are_numbers_and_names_are_nobody() {
        let converted = attributes(&told(1)).unwrap();
        assert_eq!((converted.uid, converted.gid, converted.mode), (1000, NOBODY, 0o755));
        assert_eq!(converted.atime, Time { seconds: 7, nanoseconds: 8 });
        let nameless = Attributes4 { fileid: None, ..told(1) };
        assert_eq!(attributes(&nameless), None);
    }

    #[test]
    fn times_that_nfsv3_cannot_say_are_the_nearest() {
        let of = |seconds| time(NfsTime4 { seconds, nseconds: 1 }).seconds;
        assert_eq!((of(-5), of(5), of(1 << 40)), (0, 5, u32::MAX));
    }

    #[test]
    fn a_change_of_somebody_else_in_between_is_not_hidden() {
        let info = |atomic, before, after| ChangeInfo4 { atomic, before, after };
        let has_before = |before, told: ChangeInfo4, after| {
            around(Some(&before), &told, Some(&after)).before.is_some()
        };
        assert!(has_before(told(1), info(true, 1, 2), told(2)));
        assert!(!has_before(told(1), info(false, 1, 2), told(2)));
        assert!(!has_before(told(1), info(true, 2, 3), told(3)));
        assert!(!has_before(told(1), info(true, 1, 2), told(3)));
    }

    #[test]
    fn statuses_keep_their_meaning() {
        for (of, expected) in [
            (NfsStat4::NoEnt, NfsStat3::NoEnt),
            (NfsStat4::Grace, NfsStat3::Jukebox),
            (NfsStat4::Delay, NfsStat3::Jukebox),
            (NfsStat4::FhExpired, NfsStat3::Stale),
            (NfsStat4::WrongSec, NfsStat3::Acces),
            // Another's mandatory lock: who waits for its end may wait for ever.
            (NfsStat4::Locked, NfsStat3::Io),
            (NfsStat4::BadXdr, NfsStat3::Io),
        ] {
            assert_eq!(status(of), expected);
        }
    }
}
