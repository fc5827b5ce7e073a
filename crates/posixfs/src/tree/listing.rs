//! READDIR and READDIRPLUS: pages of a directory's stream ([`DirectoryStream`]).

use steadfast_sys::directory;
use steadfast_vfs::permission::{EXECUTE, READ};
use steadfast_vfs::{Caller, DirEntry, DirPage, Entry, FsError, StorageHandle};

use super::Tree;
use super::walking;
use crate::directory_stream::DirectoryStream;
use crate::marks;

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
        let mut stream = node.stream.lock();
        let stream = stream.get_or_insert_default();
        stream.seek(|| node.reader(), cookie, attr.ctime)?;
        let page = |is_end| Ok(DirPage { dir_attr: Some(attr), is_end });
        loop {
            if stream.fill(|| node.reader())?
                && with_entries
                && let Some(store) = self.store()
            {
                walking::prepare_handles(store, &node, &stream.records)?;
            }
            let DirectoryStream { records, told_bytes, cookie, .. } = &mut **stream;
            if records.is_empty() {
                return page(true);
            }
            while let Some(raw) = directory::first_record(records.get(*told_bytes..).unwrap_or(&[]))
            {
                if marks::is_mark(&node, raw.name) {
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
