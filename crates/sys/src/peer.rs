//! Who is at the other end of a Unix socket, as the kernel noted it when he connected.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The most groups that Linux gives a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// Enough for nearly everybody.
const GROUPS_USUAL: usize = 64;

/// The peer's supplementary groups (`SO_PEERGROUPS`), without the group that he runs as.
///
/// # Errors
/// When the socket is no connected Unix socket.
pub fn groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_USUAL];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `groups`, which has that many, and
        // to `length`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // Then `length` says how much room they take.
        if error.raw_os_error() != Some(libc::ERANGE)
            || !(groups.len()..GROUPS_MAX + 1).contains(&count)
        {
            return Err(error);
        }
        groups.resize(count + 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::groups;

    #[test]
    fn the_groups_of_our_own_end_are_ours() {
        let (one, _other) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut expected: Vec<u32> =
            line.split_whitespace().map(|group| group.parse().unwrap()).collect();
        let mut found = groups(&one).unwrap();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
        groups(std::fs::File::open("/proc/self/status").unwrap()).unwrap_err();
    }
}
