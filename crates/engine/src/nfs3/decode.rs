//! How NFSv3 arguments become the storage's words.

use steadfast_vfs::{SetAttr, SetTime, Time};
use steadfast_wire::nfs3::{NfsTime3, Sattr3, SetTime3};

pub(crate) fn time(time: NfsTime3) -> Time {
    Time { seconds: i64::from(time.seconds), nanoseconds: time.nseconds.min(999_999_999) }
}

fn set_time(how: &SetTime3) -> SetTime {
    match how {
        SetTime3::DontChange => SetTime::Keep,
        SetTime3::SetToServerTime => SetTime::ServerTime,
        SetTime3::SetToClientTime(to) => SetTime::To(time(*to)),
    }
}

pub(crate) fn set_attr(attributes: &Sattr3) -> SetAttr {
    SetAttr {
        mode: attributes.mode.map(|mode| mode & 0o7777),
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        atime: set_time(&attributes.atime),
        mtime: set_time(&attributes.mtime),
    }
}
