//! The system's name service switch: netgroups, the groups of users, names and numbers of both.
//!
//! What the modules of the switch do is theirs: they may ask a directory service that does not
//! answer, and not return for minutes. Only a process that nobody waits for may call this.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;

#[cfg(target_env = "gnu")]
mod netgroups;
#[cfg(target_env = "gnu")]
pub use netgroups::netgroup_hosts;

/// Longest answer of the switch that there is room made for, in bytes.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Most groups of one user (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// The groups of a user by his number, his own among them; `None` if there is no such user.
///
/// # Errors
/// What a module of the switch reported.
pub fn groups_of(uid: u32) -> io::Result<Option<Vec<u32>>> {
    let Some((name, gid)) = user(By::Number(uid), |entry| {
        // SAFETY: of a found entry, the name is a string.
        (unsafe { CStr::from_ptr(entry.pw_name) }.to_owned(), entry.pw_gid)
    })?
    else {
        return Ok(None);
    };
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as c_int;
        // SAFETY: the name is a string, and `count` numbers can be written.
        let got =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        if got >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return Ok(Some(groups));
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the user is in more groups than there can be"));
        }
        let wanted = usize::try_from(count).unwrap_or(0).max(groups.len() * 2);
        groups.resize(wanted.min(GROUPS_MAX), 0);
    }
}

/// The number of a user; `None` if there is no such user.
///
/// # Errors
/// What a module of the switch reported.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    user(By::Name(&name), |entry| entry.pw_uid)
}

/// The number of a group; `None` if there is no such group.
///
/// # Errors
/// What a module of the switch reported.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    group(By::Name(&name), |entry| entry.gr_gid)
}

/// The name of a user; `None` if there is no such user.
///
/// # Errors
/// What a module of the switch reported.
pub fn user_name(uid: u32) -> io::Result<Option<String>> {
    // SAFETY: of a found entry, the name is a string.
    user(By::Number(uid), |entry| unsafe { CStr::from_ptr(entry.pw_name) }.to_owned())
        .map(|name| name.and_then(|name| name.into_string().ok()))
}

/// The name of a group; `None` if there is no such group.
///
/// # Errors
/// What a module of the switch reported.
pub fn group_name(gid: u32) -> io::Result<Option<String>> {
    // SAFETY: of a found entry, the name is a string.
    group(By::Number(gid), |entry| unsafe { CStr::from_ptr(entry.gr_name) }.to_owned())
        .map(|name| name.and_then(|name| name.into_string().ok()))
}

/// By what a user or group is looked up.
#[derive(Clone, Copy)]
enum By<'n> {
    Number(u32),
    Name(&'n CStr),
}

impl By<'_> {
    /// Which errors mean that there is nobody. Some modules say so by ENOENT or ESRCH (getpwnam(3)), and others say by the
    /// same that their directory cannot be reached: then a name must not be taken for nobody's.
    fn nobody(self) -> &'static [c_int] {
        match self {
            Self::Number(_) => &[0, libc::ENOENT, libc::ESRCH],
            Self::Name(_) => &[0],
        }
    }
}

/// Something of a user's entry.
fn user<R>(by: By<'_>, take: impl FnOnce(&libc::passwd) -> R) -> io::Result<Option<R>> {
    found(
        by.nobody(),
        |entry, buffer, length, found| match by {
            // SAFETY: the entry and the pointer are ours, and the buffer is as long as is said.
            By::Number(uid) => unsafe { libc::getpwuid_r(uid, entry, buffer, length, found) },
            // SAFETY: as above; the name is a string.
            By::Name(name) => unsafe {
                libc::getpwnam_r(name.as_ptr(), entry, buffer, length, found)
            },
        },
        take,
    )
}

/// Something of a group's entry.
fn group<R>(by: By<'_>, take: impl FnOnce(&libc::group) -> R) -> io::Result<Option<R>> {
    found(
        by.nobody(),
        |entry, buffer, length, found| match by {
            // SAFETY: the entry and the pointer are ours, and the buffer is as long as is said.
            By::Number(gid) => unsafe { libc::getgrgid_r(gid, entry, buffer, length, found) },
            // SAFETY: as above; the name is a string.
            By::Name(name) => unsafe {
                libc::getgrnam_r(name.as_ptr(), entry, buffer, length, found)
            },
        },
        take,
    )
}

/// Has `ask` look for an entry, with ever longer buffers. These errors mean that there is none. It is given where to write the entry, a buffer with
/// its length, and where to write where the entry is.
fn found<E, R>(
    nobody: &[c_int],
    mut ask: impl FnMut(*mut E, *mut c_char, libc::size_t, *mut *mut E) -> c_int,
    take: impl FnOnce(&E) -> R,
) -> io::Result<Option<R>> {
    let mut buffer: Vec<c_char> = vec![0; 4096];
    loop {
        let mut entry = std::mem::MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        let error = ask(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found);
        if error == libc::ERANGE && buffer.len() < BUFFER_BYTES_MAX {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        if found.is_null() && nobody.contains(&error) {
            return Ok(None);
        }
        if found.is_null() {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: a found entry is initialised, and its strings are in our buffer.
        return Ok(Some(take(unsafe { entry.assume_init_ref() })));
    }
}

/// musl has neither the switch nor netgroups: its users and groups are those of `/etc/passwd` and `/etc/group`, and of
/// a caching daemon of names, if one runs.
///
/// # Errors
/// Always.
#[cfg(not(target_env = "gnu"))]
pub fn netgroup_hosts(netgroup: &str) -> io::Result<Option<Vec<Option<String>>>> {
    let why = format!(
        "netgroup {netgroup:?}: the static build of steadfast has those of /etc/netgroup alone"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_is_in_his_group() {
        let groups = groups_of(0).expect("an answer").expect("root");
        assert!(groups.contains(&0), "{groups:?}");
    }

    #[test]
    fn nobody_has_a_number_that_is_reserved() {
        assert_eq!(groups_of(u32::MAX - 7).expect("an answer"), None);
        assert_eq!(user_name(u32::MAX - 7).expect("an answer"), None);
        assert_eq!(group_name(u32::MAX - 7).expect("an answer"), None);
    }

    #[test]
    fn names_and_numbers_of_the_superuser_belong_together() {
        assert_eq!(uid_of("root").expect("an answer"), Some(0));
        assert_eq!(gid_of("root").expect("an answer"), Some(0));
        assert_eq!(user_name(0).expect("an answer").as_deref(), Some("root"));
        assert_eq!(group_name(0).expect("an answer").as_deref(), Some("root"));
        assert_eq!(uid_of("no-such-user-anywhere").expect("an answer"), None);
        assert_eq!(gid_of("no-such-group-anywhere").expect("an answer"), None);
        assert_eq!(uid_of("a\0b").expect("an answer"), None);
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_netgroup_that_is_not_there_is_nothing() {
        // Where a service of netgroups is set up that does not answer, there is an error instead.
        let hosts = netgroup_hosts("no-such-netgroup-anywhere");
        println!("{hosts:?}");
        assert!(!matches!(hosts, Ok(Some(_))), "{hosts:?}");
        assert_eq!(netgroup_hosts("a\0b").expect("an answer"), None);
    }
}
