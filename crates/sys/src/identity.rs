//! The identity by which the kernel decides about a thread's file operations.
//!
//! Each thread remembers which identity it has assumed, and a switch happens only on change: it
//! costs as much as several calls. A switch that fails leaves the thread's identity unknown,
//! fails the call, and the next call sets everything again: it never fails open.
//!
//! Under a caller's identity the capabilities that override file permissions are off, with one
//! exception: `CAP_DAC_READ_SEARCH`, so that objects can be opened by handle. It satisfies
//! reading and searching only; for changing a directory the kernel asks for write and search
//! together, which it does not satisfy, so the kernel stays the judge of every change.

use std::cell::{Cell, RefCell};

use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use rustix::thread::UnshareFlags;

use crate::file::last_errno;

thread_local! {
    static HAS_NO_UMASK: Cell<bool> = const { Cell::new(false) };
}

/// Takes the umask away from this thread, which makes what clients ask for with the permissions that they
/// ask for. Other threads, and programs that they start, keep theirs; where the kernel does not let a
/// thread have its own (a container may forbid that), it is taken away from all.
pub fn without_umask() {
    if HAS_NO_UMASK.get() {
        return;
    }
    // SAFETY: `CLONE_FS` gives the thread its own copy of root, working directory and umask; which
    // descriptors are open stays common to all threads.
    let _is_forbidden = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) };
    rustix::process::umask(Mode::empty());
    HAS_NO_UMASK.set(true);
}

/// A capability by its number in `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(pub u32);

impl Capability {
    /// Change the owner of files.
    pub const CHOWN: Self = Self(0);
    /// Ignore permission bits.
    pub const DAC_OVERRIDE: Self = Self(1);
    /// Read and search regardless of permission bits; open by handle.
    pub const DAC_READ_SEARCH: Self = Self(2);
    /// Act as the owner of files.
    pub const FOWNER: Self = Self(3);
    /// Keep set-id bits when writing.
    pub const FSETID: Self = Self(4);
    /// Set group identities.
    pub const SETGID: Self = Self(6);
    /// Set user identities.
    pub const SETUID: Self = Self(7);
    /// Set immutable and append-only flags.
    pub const LINUX_IMMUTABLE: Self = Self(9);
    /// Mount, and much else.
    pub const SYS_ADMIN: Self = Self(21);
    /// Ignore quotas and reserved blocks.
    pub const SYS_RESOURCE: Self = Self(24);
    /// Make device nodes.
    pub const MKNOD: Self = Self(27);
    /// Override mandatory access control.
    pub const MAC_OVERRIDE: Self = Self(32);

    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Whether `capability` is in the set.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// The set without `capability`.
    #[must_use]
    pub fn without(self, capability: Capability) -> Self {
        Self(self.0 & !capability.bit())
    }

    /// The set with `capability`.
    #[must_use]
    pub fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }
}

/// What the kernel itself switches with the file-system uid (`CAP_FS_SET`).
const FILE_SYSTEM_SET: u64 = Capability::CHOWN.bit()
    | Capability::MKNOD.bit()
    | Capability::DAC_OVERRIDE.bit()
    | Capability::DAC_READ_SEARCH.bit()
    | Capability::FOWNER.bit()
    | Capability::FSETID.bit()
    | Capability::LINUX_IMMUTABLE.bit()
    | Capability::MAC_OVERRIDE.bit();

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

fn read_sets() -> Result<[CapabilityData; 2]> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: version 3 writes two data records; both structures have the kernel's layout.
    let failed = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if failed == 0 { Ok(data) } else { Err(last_errno()) }
}

/// The calling thread's effective and permitted capabilities.
///
/// # Errors
/// The system call's.
pub fn capabilities() -> Result<(Capabilities, Capabilities)> {
    let [low, high] = read_sets()?;
    let join = |low: u32, high: u32| Capabilities(u64::from(low) | u64::from(high) << 32);
    Ok((join(low.effective, high.effective), join(low.permitted, high.permitted)))
}

/// Sets the calling thread's effective capabilities, within the permitted ones.
///
/// # Errors
/// The system call's.
pub fn set_effective(effective: Capabilities) -> Result<()> {
    let mut data = read_sets()?;
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    for (index, half) in data.iter_mut().enumerate() {
        half.effective = (effective.0 >> (32 * index)) as u32 & half.permitted;
    }
    // SAFETY: version 3 reads two data records; both structures have the kernel's layout.
    let failed = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// What a thread knows of its identity. A new thread inherits its maker's, whatever that was.
#[derive(PartialEq, Eq)]
enum Current {
    Unknown,
    Known { uid: u32, gid: u32, groups: Vec<u32>, is_privileged: bool },
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Unknown) };
}

/// Makes the kernel decide about this thread's file operations by these numbers.
///
/// # Errors
/// Whatever kept the identity from being taken, `EPERM` as a rule. The thread's identity is
/// then unknown, and the operation must not be done.
pub fn assume(uid: u32, gid: u32, groups: &[u32]) -> Result<()> {
    switch(uid, gid, groups, uid == 0)
}

/// Returns to the server's own identity, with all its capabilities but `CAP_SYS_RESOURCE`.
///
/// # Errors
/// As [`assume`].
pub fn assume_server() -> Result<()> {
    let (uid, gid) = own();
    switch(uid, gid, &[], true)
}

/// Acts by the server's own identity on what is the server's own, whatever identity this thread has:
/// that of a caller, which it has again afterwards, or that of the thread that started it.
///
/// # Errors
/// As [`assume`]; then nothing was done. If only the way back fails, the thread's identity is unknown.
pub fn as_server<T>(act: impl FnOnce() -> T) -> Result<T> {
    let (uid, gid) = own();
    let caller = CURRENT.with_borrow(|current| match current {
        Current::Unknown => None,
        Current::Known { uid, gid, groups, is_privileged } => {
            Some((*uid, *gid, groups.clone(), *is_privileged))
        }
    });
    let is_server = match &caller {
        Some((now, now_gid, ..)) => (*now, *now_gid) == (uid, gid),
        None => (file_system_uid(u32::MAX), file_system_gid(u32::MAX)) == (uid, gid),
    };
    if is_server {
        return Ok(act());
    }
    assume_server()?;
    let result = act();
    if let Some((uid, gid, groups, is_privileged)) = caller {
        switch(uid, gid, &groups, is_privileged)?;
    }
    Ok(result)
}

fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn switch(uid: u32, gid: u32, groups: &[u32], is_privileged: bool) -> Result<()> {
    CURRENT.with_borrow_mut(|current| {
        let (same_uid, same_gid, same_groups, same_privilege) = match current {
            Current::Unknown => (false, false, false, false),
            Current::Known { uid: now, gid: now_gid, groups: now_groups, is_privileged: was } => {
                (*now == uid, *now_gid == gid, now_groups == groups, *was == is_privileged)
            }
        };
        if same_uid && same_gid && same_groups && same_privilege {
            return Ok(());
        }
        // `-1` is the kernel's word for "tell me the present one".
        if uid == u32::MAX || gid == u32::MAX || groups.contains(&u32::MAX) {
            return Err(Errno::PERM);
        }
        let mut remembered = match std::mem::replace(current, Current::Unknown) {
            Current::Known { groups, .. } => groups,
            Current::Unknown => Vec::new(),
        };
        if !same_groups {
            set_groups(groups)?;
        }
        if !same_gid {
            set_file_system_gid(gid)?;
        }
        if !same_uid {
            set_file_system_uid(uid)?;
        }
        // The kernel switches the file-system capabilities itself when the uid goes to or from
        // 0, and only then; the set is stated here so that it does not depend on the way here.
        if !same_privilege || !same_uid && (uid == 0) != is_privileged {
            let (_, permitted) = capabilities()?;
            let wanted = if is_privileged {
                permitted
            } else {
                Capabilities(permitted.0 & !FILE_SYSTEM_SET).with(Capability::DAC_READ_SEARCH)
            };
            set_effective(wanted.without(Capability::SYS_RESOURCE))?;
        }
        remembered.clear();
        remembered.extend_from_slice(groups);
        *current = Current::Known { uid, gid, groups: remembered, is_privileged };
        Ok(())
    })
}

fn set_groups(groups: &[u32]) -> Result<()> {
    // The C library's function would change all threads of the process.
    // SAFETY: the kernel reads `len` numbers from the slice.
    let failed = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if failed == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The calls that set these tell the former value and never fail: the present one, read back,
/// is what shows whether the kernel agreed.
fn set_file_system_uid(uid: u32) -> Result<()> {
    file_system_uid(uid);
    if file_system_uid(u32::MAX) == uid { Ok(()) } else { Err(Errno::PERM) }
}

fn set_file_system_gid(gid: u32) -> Result<()> {
    file_system_gid(gid);
    if file_system_gid(u32::MAX) == gid { Ok(()) } else { Err(Errno::PERM) }
}

/// What it was before; `u32::MAX` changes nothing.
fn file_system_uid(uid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) as u32 }
}

/// As [`file_system_uid`].
fn file_system_gid(gid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn a_thread_takes_an_identity_and_returns() {
        if !is_root() {
            println!("skipped: needs root");
            return;
        }
        std::thread::spawn(|| {
            assume(1234, 2345, &[7, 8]).unwrap();
            let (effective, _) = capabilities().unwrap();
            assert!(effective.has(Capability::DAC_READ_SEARCH));
            assert!(!effective.has(Capability::DAC_OVERRIDE));
            assert!(!effective.has(Capability::SYS_RESOURCE));
            assert!(!effective.has(Capability::FOWNER) && effective.has(Capability::SETUID));
            // From one caller to another.
            assume(99, 98, &[]).unwrap();
            assert_eq!(capabilities().unwrap().0, effective);
            assume(0, 5, &[6]).unwrap();
            assert!(capabilities().unwrap().0.has(Capability::DAC_OVERRIDE));
            assume(99, 98, &[]).unwrap();
            assume_server().unwrap();
            let (effective, _) = capabilities().unwrap();
            assert!(effective.has(Capability::DAC_OVERRIDE) && effective.has(Capability::FOWNER));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_made_under_an_identity_does_not_believe_to_be_the_server() {
        if !is_root() {
            println!("skipped: needs root");
            return;
        }
        std::thread::spawn(|| {
            assume(1234, 1234, &[]).unwrap();
            std::thread::spawn(|| {
                assume_server().unwrap();
                assert!(capabilities().unwrap().0.has(Capability::DAC_OVERRIDE));
            })
            .join()
            .unwrap();
        })
        .join()
        .unwrap();
    }

    /// User, group, and whether this thread overrides permissions.
    fn now() -> (u32, u32, bool) {
        let has_all = capabilities().unwrap().0.has(Capability::DAC_OVERRIDE);
        (file_system_uid(u32::MAX), file_system_gid(u32::MAX), has_all)
    }

    #[test]
    fn the_servers_own_is_done_as_the_server_by_any_thread() {
        if !is_root() {
            println!("skipped: needs root");
            return;
        }
        let own = (0, 0, true);
        std::thread::spawn(move || {
            assert_eq!(as_server(now), Ok(own));
            assume(1234, 2345, &[7, 8]).unwrap();
            assert_eq!(as_server(now), Ok(own));
            assert_eq!(now(), (1234, 2345, false));
            // The caller's groups are there again too, and known.
            assert_eq!(rustix::process::getgroups().unwrap().len(), 2);
            assume(1234, 2345, &[7, 8]).unwrap();
            std::thread::spawn(move || {
                assert_eq!(now(), (1234, 2345, false), "as its maker");
                assert_eq!(as_server(now), Ok(own));
            })
            .join()
            .unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_reserved_number_is_refused() {
        assert_eq!(assume(u32::MAX, 0, &[]), Err(Errno::PERM));
        assert_eq!(assume(1, u32::MAX, &[]), Err(Errno::PERM));
        assert_eq!(assume(1, 1, &[u32::MAX]), Err(Errno::PERM));
    }
}
