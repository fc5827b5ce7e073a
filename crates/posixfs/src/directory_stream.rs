//! Where the reading of a directory stands.
//!
//! Each directory has one stream, which remembers where it stands and the records it has read
//! ahead, so that a listing in pages costs the same as one in one piece. Cookies are the
//! stream's own positions, which ext4, XFS, btrfs and tmpfs keep good while names come and go.

use std::sync::Arc;

use steadfast_sys::directory;
use steadfast_vfs::{FsError, Time};

use crate::budget::Descriptor;
use crate::error::from_errno;

/// Bytes of records read at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// Where a directory's stream stands.
#[derive(Debug, Default)]
pub(crate) struct DirectoryStream {
    /// Records read, of which `told_bytes` were told.
    pub(crate) records: Vec<u8>,
    pub(crate) told_bytes: usize,
    /// The cookie of the last entry told: where `records[told_bytes..]` begins. `None` before
    /// the stream was positioned.
    pub(crate) cookie: Option<u64>,
    /// The directory's ctime when the records were read: what was read before a change is not
    /// told after it.
    ctime: Time,
}

impl DirectoryStream {
    /// Makes the next record the one after `cookie`. `reader` is asked for the directory open for reading,
    /// if that is needed.
    pub(crate) fn seek(
        &mut self,
        reader: impl FnOnce() -> Result<Arc<Descriptor>, FsError>,
        cookie: u64,
        ctime: Time,
    ) -> Result<(), FsError> {
        // From the start always anew: btrfs fixes a stream's end when it is rewound.
        if cookie != 0 && self.cookie == Some(cookie) && self.ctime == ctime {
            return Ok(());
        }
        self.records.clear();
        self.told_bytes = 0;
        self.cookie = None;
        self.ctime = ctime;
        if i64::try_from(cookie).is_err() {
            return Err(FsError::BadCookie);
        }
        match rustix::fs::seek(reader()?, rustix::fs::SeekFrom::Start(cookie)) {
            Ok(_) => {
                self.cookie = Some(cookie);
                Ok(())
            }
            Err(rustix::io::Errno::INVAL) => Err(FsError::BadCookie),
            Err(errno) => Err(from_errno(errno)),
        }
    }

    /// Makes sure that there are records to tell, unless the directory ends here. Says whether
    /// they are new. `reader` is as for [`DirectoryStream::seek`].
    pub(crate) fn fill(
        &mut self,
        reader: impl FnOnce() -> Result<Arc<Descriptor>, FsError>,
    ) -> Result<bool, FsError> {
        if self.told_bytes < self.records.len() {
            return Ok(false);
        }
        self.told_bytes = 0;
        let read = directory::read_records(reader()?, &mut self.records, BUFFER_BYTES);
        if read.is_err() {
            self.cookie = None;
        }
        read.map(|()| true).map_err(from_errno)
    }
}
