//! What the model has of extents: it keeps all bytes, and takes blocks of zeros for holes.

use crate::permission;
use crate::{Cred, Extents, FsError, SeekFor, Sought};

use super::{Contents, FILE_BYTES_MAX, State};

/// Bytes of a block.
pub(super) const CLONE_BLOCK_BYTES: u64 = 4096;

impl State {
    fn data(&self, cred: &Cred, id: u64) -> Result<&[u8], FsError> {
        self.check_data(cred, id, permission::READ)?;
        match &self.file(id)?.contents {
            Contents::Data(data) => Ok(data),
            _ => Err(FsError::Invalid),
        }
    }

    pub(super) fn seek(
        &self,
        cred: &Cred,
        id: u64,
        offset: u64,
        what: SeekFor,
    ) -> Result<Sought, FsError> {
        let data = self.data(cred, id)?;
        let end = data.len() as u64;
        if offset >= end {
            return Err(FsError::NoDevice);
        }
        Ok(match place(data, offset, what) {
            Some(offset) => Sought { offset, is_end: false },
            None => Sought { offset: end, is_end: true },
        })
    }

    pub(super) fn extents(
        &self,
        cred: &Cred,
        id: u64,
        offset: u64,
        count: u32,
    ) -> Result<Extents, FsError> {
        let data = self.data(cred, id)?;
        let end = data.len() as u64;
        if offset >= end {
            return Ok(Extents { is_end: true, ..Extents::default() });
        }
        let last = offset.saturating_add(u64::from(count)).min(end);
        let begins = place(data, offset, SeekFor::Data).unwrap_or(end).min(last);
        let ends = place(data, begins, SeekFor::Hole).unwrap_or(end).min(last);
        Ok(Extents { hole_bytes: begins - offset, data_bytes: ends - begins, is_end: ends == end })
    }

    /// The bytes of a file that are copied; fewer than asked for if it ends before.
    pub(super) fn source(
        &self,
        cred: &Cred,
        id: u64,
        offset: u64,
        count: u64,
    ) -> Result<Vec<u8>, FsError> {
        let data = self.data(cred, id)?;
        let start = usize::try_from(offset).map_err(|_| FsError::Invalid)?;
        let rest = data.get(start..).ok_or(FsError::Invalid)?;
        let count = if count == 0 { rest.len() as u64 } else { count.min(rest.len() as u64) };
        Ok(rest.get(..count as usize).unwrap_or(&[]).to_vec())
    }

    /// Has a file reach over a range, with this data if there is any.
    pub(super) fn put(
        &mut self,
        cred: &Cred,
        id: u64,
        offset: u64,
        length: u64,
        data: Option<&[u8]>,
    ) -> Result<(), FsError> {
        self.check_data(cred, id, permission::WRITE)?;
        if length == 0 && data.is_none() {
            return Err(FsError::Invalid);
        }
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FsError::FileTooLarge)?;
        self.change_data(id, |contents| {
            if length > 0 && contents.len() < end as usize {
                contents.resize(end as usize, 0);
            }
            if let (Some(place), Some(data)) =
                (contents.get_mut(offset as usize..end as usize), data)
            {
                place.copy_from_slice(data);
            }
        })
    }

    pub(super) fn make_hole(
        &mut self,
        cred: &Cred,
        id: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), FsError> {
        self.check_data(cred, id, permission::WRITE)?;
        if length == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset.checked_add(length).ok_or(FsError::FileTooLarge)?;
        self.change_data(id, |contents| {
            let end = contents.len().min(usize::try_from(end).unwrap_or(usize::MAX));
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(end);
            contents.get_mut(start..end).unwrap_or_default().fill(0);
        })
    }

    fn change_data(&mut self, id: u64, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), FsError> {
        let now = self.now();
        let file = self.file_mut(id)?;
        let Contents::Data(contents) = &mut file.contents else {
            return Err(FsError::Invalid);
        };
        change(contents);
        file.attr.size = contents.len() as u64;
        file.attr.used = file.attr.size;
        file.attr.mtime = now;
        file.attr.ctime = now;
        Ok(())
    }
}

/// Where data or a hole begins, from an offset on; not the hole behind the end.
fn place(data: &[u8], offset: u64, what: SeekFor) -> Option<u64> {
    let mut at = offset;
    while at < data.len() as u64 {
        let block = at - at % CLONE_BLOCK_BYTES;
        let end = block + CLONE_BLOCK_BYTES;
        let bytes = data.get(block as usize..data.len().min(end as usize))?;
        let is_hole = bytes.iter().all(|byte| *byte == 0);
        if is_hole == (what == SeekFor::Hole) {
            return Some(at);
        }
        at = end;
    }
    None
}
