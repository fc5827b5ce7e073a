//! Directory streams: `getdents64` and its records.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Result;

use crate::file::last_errno;

/// One record of a directory stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEntry<'a> {
    /// The file's number.
    pub inode: u64,
    /// Where the stream stands after this entry; good for `lseek`.
    pub next: u64,
    /// The name.
    pub name: &'a [u8],
    /// How many bytes of the buffer the record takes.
    pub record_bytes: usize,
}

/// Replaces what is in `buffer` by the stream's next records, at most `bytes_max` of them; an
/// empty buffer afterwards means the end.
///
/// # Errors
/// The system call's.
pub fn read_records(stream: impl AsFd, buffer: &mut Vec<u8>, bytes_max: usize) -> Result<()> {
    buffer.clear();
    buffer.reserve(bytes_max);
    let spare = buffer.spare_capacity_mut();
    let room = bytes_max.min(spare.len());
    // SAFETY: the kernel writes at most `room` bytes to the vector's spare capacity.
    let got = unsafe {
        libc::syscall(libc::SYS_getdents64, stream.as_fd().as_raw_fd(), spare.as_mut_ptr(), room)
    };
    let Ok(got) = usize::try_from(got) else { return Err(last_errno()) };
    // SAFETY: the kernel has initialised `got` bytes, not more than `room`.
    unsafe { buffer.set_len(got.min(room)) };
    Ok(())
}

/// The record that `records` begins with; `None` at their end.
pub fn first_record(records: &[u8]) -> Option<RawEntry<'_>> {
    // struct linux_dirent64: u64 inode, i64 offset, u16 length, u8 type, name with NUL.
    let inode = u64::from_ne_bytes(*records.first_chunk()?);
    let next = u64::from_ne_bytes(*records.get(8..)?.first_chunk()?);
    let record_bytes = usize::from(u16::from_ne_bytes(*records.get(16..)?.first_chunk()?));
    let name = records.get(19..record_bytes)?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(RawEntry { inode, next, name, record_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_whole() {
        let dir = std::env::temp_dir().join(format!("steadfast-sys-dir-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for number in 0..100 {
            std::fs::write(dir.join(format!("name-{number}")), b"").unwrap();
        }
        let stream = std::fs::File::open(&dir).unwrap();
        let mut names = Vec::new();
        let mut buffer = Vec::new();
        loop {
            read_records(&stream, &mut buffer, 1024).unwrap();
            if buffer.is_empty() {
                break;
            }
            let mut rest = &buffer[..];
            while let Some(entry) = first_record(rest) {
                names.push(entry.name.to_vec());
                rest = &rest[entry.record_bytes..];
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 102);
        assert!(names.contains(&b"name-99".to_vec()) && names.contains(&b"..".to_vec()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn cut_records_are_none() {
        assert_eq!(first_record(&[]), None);
        assert_eq!(first_record(&[0; 18]), None);
        assert_eq!(first_record(&[255; 40]), None);
    }
}
