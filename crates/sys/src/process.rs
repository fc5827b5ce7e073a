//! What a program asks of the kernel for itself: signals as a descriptor, identity, randomness,
//! file locks, the machine's addresses.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;

/// Characters of [`boot_id`].
pub const BOOT_ID_BYTES: usize = 36;

/// What the kernel calls this run of the machine: another one after each start of it.
///
/// # Errors
/// When the kernel does not tell.
pub fn boot_id() -> io::Result<[u8; BOOT_ID_BYTES]> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let id = text.first_chunk::<BOOT_ID_BYTES>().copied();
    id.ok_or_else(|| io::Error::other("the kernel tells no identifier of its start"))
}

/// Signals that a server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM
    Terminate,
    /// SIGINT
    Interrupt,
    /// SIGHUP
    HangUp,
}

impl Signal {
    const ALL: [Self; 3] = [Self::Terminate, Self::Interrupt, Self::HangUp];

    fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::HangUp => libc::SIGHUP,
        }
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
            Self::HangUp => "SIGHUP",
        })
    }
}

/// SIGTERM, SIGINT and SIGHUP, taken from a descriptor instead of a handler.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals in this thread, and all that it starts from now on, so that they wait
    /// to be taken here. To be called before there are other threads.
    pub fn block() -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in Signal::ALL {
            // SAFETY: the set is initialised and the number is that of a signal.
            unsafe { libc::sigaddset(&raw mut set, signal.number()) };
        }
        // SAFETY: the set is initialised; no old mask is asked for.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: -1 asks for a new descriptor; the set is initialised.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits for a signal; `None` when none came in time.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<Signal>> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(length) if length == info.len() => {}
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // `ssi_signo` is the structure's first member (signalfd(2)).
        let number = info.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        Ok(Signal::ALL.into_iter().find(|signal| signal.number() == number))
    }
}

impl AsFd for Signals {
    /// It is readable when a signal has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The effective user and group.
pub fn effective_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Fills the buffer from the kernel's random number generator (waits until it is seeded).
pub fn random_bytes(buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if let Ok(got) = usize::try_from(got) {
            filled += got;
            continue;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Locks the file (flock(2)) until it is closed; false if somebody else has locked it.
pub fn lock_exclusively(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Microseconds of the monotonic clock, as systemd counts them.
pub fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000).saturating_add(now.tv_nsec as u64 / 1000)
}

/// The addresses of the machine's interfaces that are up, in the kernel's order, each once.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs writes one pointer.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: the list is valid until freeifaddrs, and ends with null.
    while let Some(interface) = unsafe { next.as_ref() } {
        next = interface.ifa_next;
        let is_up = interface.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: getifaddrs made the address.
        let address = unsafe { address_of(interface.ifa_addr) };
        if let Some(address) = address.filter(|address| is_up && !addresses.contains(address)) {
            addresses.push(address);
        }
    }
    // SAFETY: the list came from getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(addresses)
}

/// The IP address of a socket address.
///
/// # Safety
/// `address` is null or points to a socket address as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = i32::from(unsafe { address.as_ref()? }.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the caller's promise for this family; no alignment is assumed.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Gives memory back to the kernel that is free, and that the allocator keeps because something
/// beside it is not. For after work that took much more than is left of it; with an allocator that
/// cannot be told (musl) nothing is done.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, by any thread; what is allocated stays where it is.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Ends the process now, without running anything more.
pub fn exit_at_once(status: i32) -> ! {
    // SAFETY: _exit takes any status and does not return.
    unsafe { libc::_exit(status) }
}

/// Has the kernel kill this process when the thread that started it ends.
pub fn die_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Whether a process of this number exists.
pub fn is_running(process: i32) -> bool {
    rustix::process::Pid::from_raw(process).is_some_and(|process| {
        !matches!(rustix::process::test_kill_process(process), Err(rustix::io::Errno::SRCH))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn randomness_differs() {
        let (mut a, mut b) = ([0; 300], [0; 300]);
        random_bytes(&mut a).expect("randomness");
        random_bytes(&mut b).expect("randomness");
        assert_ne!(a, b);
        assert!(random_bytes(&mut []).is_ok());
    }

    #[test]
    fn a_locked_file_is_locked_once() {
        let path = std::env::temp_dir().join(format!("steadfast-lock-{}", std::process::id()));
        let (first, second) =
            (File::create(&path).expect("a file"), File::create(&path).expect("a file"));
        assert!(lock_exclusively(&first).expect("a lock"));
        assert!(!lock_exclusively(&second).expect("an answer"));
        drop(first);
        assert!(lock_exclusively(&second).expect("a lock"));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn loopback_is_an_address_of_this_machine() {
        // In a namespace whose loopback is down there is none at all.
        let addresses = interface_addresses().expect("addresses");
        let has_loopback = addresses.contains(&Ipv4Addr::LOCALHOST.into());
        assert!(addresses.is_empty() || has_loopback, "{addresses:?}");
    }

    #[test]
    fn blocked_signals_are_taken_from_the_descriptor() {
        // In a thread of its own, since blocking is for the thread that asks for it.
        std::thread::spawn(|| {
            let signals = Signals::block().expect("signals");
            // SAFETY: raises a signal that this thread has blocked.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGHUP) };
            let signal = signals.wait(Duration::from_secs(10)).expect("an answer");
            assert_eq!(signal, Some(Signal::HangUp));
            assert_eq!(signals.wait(Duration::ZERO).expect("an answer"), None);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn this_process_is_running() {
        assert!(is_running(std::process::id() as i32));
    }
}
