//! The system's name service switch: netgroups, and the groups of users.
//!
//! What the modules of the switch do is theirs: they may ask a directory service that does not
//! answer, and not return for minutes. Only a process that nobody waits for may call this.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Longest answer of the switch that there is room made for, in bytes.
const BUFFER_BYTES_MAX: usize = 4 << 20;
/// Most groups of one user (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// Most triples of one netgroup that are read.
const TRIPLES_MAX: usize = 1_000_000;

// The libc crate does not have them.
unsafe extern "C" {
    fn setnetgrent(netgroup: *const c_char) -> c_int;
    fn getnetgrent_r(
        host: *mut *mut c_char,
        user: *mut *mut c_char,
        domain: *mut *mut c_char,
        buffer: *mut c_char,
        length: libc::size_t,
    ) -> c_int;
    fn endnetgrent();
}

/// The one enumeration of a netgroup that a process can have.
static ENUMERATION: Mutex<()> = Mutex::new(());

/// The groups of a user by his number, his own among them; `None` if there is no such user.
///
/// # Errors
/// What a module of the switch reported.
pub fn groups_of(uid: u32) -> io::Result<Option<Vec<u32>>> {
    let mut buffer: Vec<c_char> = vec![0; 4096];
    let (name, gid) = loop {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry and the pointer are ours, and the buffer is as long as is said.
        let error = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error == libc::ERANGE && buffer.len() < BUFFER_BYTES_MAX {
            buffer.resize(buffer.len() * 2, 0);
            continue;
        }
        // Some modules say "no such user" by one of these (getpwnam(3)).
        if found.is_null() && matches!(error, 0 | libc::ENOENT | libc::ESRCH) {
            return Ok(None);
        }
        if found.is_null() {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: a found entry is initialised, and its name is a string in our buffer.
        let (name, gid) = unsafe {
            let entry = entry.assume_init_ref();
            (CStr::from_ptr(entry.pw_name).to_owned(), entry.pw_gid)
        };
        break (name, gid);
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

/// The host fields of a netgroup's triples, nested netgroups included: `None` for one that is left
/// empty. Nothing if the switch has no such netgroup, which is also what some modules say when
/// they could not ask.
///
/// # Errors
/// What a module of the switch reported.
pub fn netgroup_hosts(netgroup: &str) -> io::Result<Option<Vec<Option<String>>>> {
    let Ok(name) = CString::new(netgroup) else { return Ok(None) };
    let _alone = ENUMERATION.lock().unwrap_or_else(PoisonError::into_inner);
    clear_errno();
    // SAFETY: the name is a string; nobody else enumerates.
    if unsafe { setnetgrent(name.as_ptr()) } != 1 {
        let errno = errno();
        // SAFETY: ends what was begun.
        unsafe { endnetgrent() };
        return is_end(errno).then_some(None).ok_or_else(|| io::Error::from_raw_os_error(errno));
    }
    let hosts = triples();
    // SAFETY: ends what was begun.
    unsafe { endnetgrent() };
    hosts.map(Some)
}

/// The host fields of the enumeration that was begun.
fn triples() -> io::Result<Vec<Option<String>>> {
    let mut buffer: Vec<c_char> = vec![0; 4096];
    let mut hosts = Vec::new();
    while hosts.len() < TRIPLES_MAX {
        let (mut host, mut user, mut domain) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        clear_errno();
        // SAFETY: three pointers are written, to strings in the buffer, which is as long as is
        // said, or null.
        let got = unsafe {
            getnetgrent_r(
                &raw mut host,
                &raw mut user,
                &raw mut domain,
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        };
        if got != 1 {
            let errno = errno();
            if errno == libc::ERANGE && buffer.len() < BUFFER_BYTES_MAX {
                buffer.resize(buffer.len() * 2, 0);
                continue;
            }
            // A list that was cut short is not that of the netgroup.
            return if is_end(errno) {
                Ok(hosts)
            } else {
                Err(io::Error::from_raw_os_error(errno))
            };
        }
        // SAFETY: not null, so a string in the buffer, which nobody writes meanwhile.
        let host = (!host.is_null()).then(|| unsafe { CStr::from_ptr(host) });
        hosts.push(host.map(|host| host.to_string_lossy().into_owned()));
    }
    Ok(hosts)
}

/// Whether there is no more, or none, rather than a failure: nothing found, or no service to find
/// it in.
fn is_end(errno: c_int) -> bool {
    matches!(errno, 0 | libc::ENOENT | libc::ESRCH | libc::EINVAL | libc::ENOSYS)
}

/// The functions of the switch say only by this whether they failed.
fn errno() -> c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

fn clear_errno() {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = 0 };
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
    }

    #[test]
    fn a_netgroup_that_is_not_there_is_nothing() {
        // Where a service of netgroups is set up that does not answer, there is an error instead.
        let hosts = netgroup_hosts("no-such-netgroup-anywhere");
        println!("{hosts:?}");
        assert!(!matches!(hosts, Ok(Some(_))), "{hosts:?}");
        assert_eq!(netgroup_hosts("a\0b").expect("an answer"), None);
    }
}
