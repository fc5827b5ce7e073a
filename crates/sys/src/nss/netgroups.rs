//! Netgroups, as the name service switch of glibc has them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::sync::{Mutex, PoisonError};

use super::BUFFER_BYTES_MAX;

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
