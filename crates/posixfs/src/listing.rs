//! READDIR and READDIRPLUS.
//!
//! Each directory has one stream, which remembers where it stands and the records it has read
//! ahead, so that a listing in pages costs the same as one in one piece. Cookies are the
//! stream's own positions, which ext4, XFS, btrfs and tmpfs keep good while names come and go.

use steadfast_sys::directory;
use steadfast_vfs::permission::{EXECUTE, READ};
use steadfast_vfs::{Caller, DirEntry, DirPage, Entry, FsError, StorageHandle, Time};

use crate::error::from_errno;
use crate::node::Node;
use crate::tree::Tree;
use crate::walking;

/// Bytes of records read at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// Where a directory's stream stands.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Records read, of which `told_bytes` were told.
    records: Vec<u8>,
    told_bytes: usize,
    /// The cookie of the last entry told: where `records[told_bytes..]` begins. `None` before
    /// the stream was positioned.
    cookie: Option<u64>,
    /// The directory's ctime when the records were read: what was read before a change is not
    /// told after it.
    ctime: Time,
}

impl Listing {
    /// Makes the next record the one after `cookie`.
    fn seek(&mut self, node: &Node, cookie: u64, ctime: Time) -> Result<(), FsError> {
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
        match rustix::fs::seek(node.reader()?, rustix::fs::SeekFrom::Start(cookie)) {
            Ok(_) => {
                self.cookie = Some(cookie);
                Ok(())
            }
            Err(rustix::io::Errno::INVAL) => Err(FsError::BadCookie),
            Err(errno) => Err(from_errno(errno)),
        }
    }

    /// Makes sure that there are records to tell, unless the directory ends here. Says whether
    /// they are new.
    fn fill(&mut self, node: &Node) -> Result<bool, FsError> {
        if self.told_bytes < self.records.len() {
            return Ok(false);
        }
        self.told_bytes = 0;
        let read = directory::read_records(node.reader()?, &mut self.records, BUFFER_BYTES);
        if read.is_err() {
            self.cookie = None;
        }
        read.map(|()| true).map_err(from_errno)
    }
}

impl Tree {
    pub(crate) fn do_read_directory(
        &self,
        caller: &Caller<'_>,
        dir: &StorageHandle,
        cookie: u64,
        with_entries: bool,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<DirPage, FsError> {
        let (node, attr) = self.live_directory(dir, caller.waiting)?;
        node.require(&attr, caller.cred, READ)?;
        // Attributes of what is in a directory are for those who may look it up.
        let with_entries = with_entries && node.allows(&attr, caller.cred, EXECUTE)?;
        let is_root = node.identity == self.root_node().identity;
        let mut listing = node.listing.lock();
        let listing = listing.get_or_insert_default();
        listing.seek(&node, cookie, attr.ctime)?;
        let page = |is_end| Ok(DirPage { dir_attr: Some(attr), is_end });
        loop {
            if listing.fill(&node)?
                && with_entries
                && let Some(store) = self.store()
            {
                walking::prepare_handles(store, &node, &listing.records)?;
            }
            let Listing { records, told_bytes, cookie, .. } = &mut **listing;
            if records.is_empty() {
                return page(true);
            }
            while let Some(raw) = directory::first_record(records.get(*told_bytes..).unwrap_or(&[]))
            {
                if node.volume.is_mark(&node, raw.name) {
                    *told_bytes += raw.record_bytes;
                    *cookie = Some(raw.next);
                    continue;
                }
                let entry = match raw.name {
                    b"." if with_entries => Some(Entry { handle: node.handle, attr }),
                    // Its handle is to be had by LOOKUP, which checks that it is inside.
                    b"." | b".." => None,
                    name if with_entries => self.glance(&node, name).ok(),
                    _ => None,
                };
                let fileid = match (&entry, raw.name) {
                    (Some(entry), _) => entry.attr.fileid,
                    (None, b"..") if is_root => attr.fileid,
                    // Some are known by another number than their own.
                    (None, name) if !node.volume.aliases.is_empty() && name != b".." => {
                        self.glance(&node, name).map_or(raw.inode, |entry| entry.attr.fileid)
                    }
                    _ => raw.inode,
                };
                let told = DirEntry { name: raw.name, fileid, cookie: raw.next, entry };
                if !each(&told) {
                    return page(false);
                }
                *told_bytes += raw.record_bytes;
                *cookie = Some(raw.next);
            }
            // Records that make no sense end the page rather than repeat it.
            *told_bytes = records.len();
        }
    }
}
