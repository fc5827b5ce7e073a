//! Leases on files: to know that nobody else has one open, and to be told when somebody opens it
//! (`fcntl(2)`, "Leases").

use std::fs::File;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use rustix::io::{Errno, Result};

use crate::file::last_errno;

/// Which signal tells of who opens the file; the same number on every architecture.
const F_SETSIG: libc::c_int = 10;
/// Who gets that signal; the same numbers on every architecture.
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// What a lease keeps from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To open the file for writing, or cut it. Nobody has it open for writing, nor have we.
    Read,
    /// To open it at all, or cut it. Nobody has it open but by this open file description.
    Write,
}

/// The thread that is told of leases which others want to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(libc::pid_t);

/// What a thread that watches was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Somebody wants the lease of this descriptor to be given up. The descriptor may have been closed
    /// meanwhile, and be another file's.
    Wanted(RawFd),
    /// More was to be told than could be: any lease may be meant.
    Overflow,
    /// Nothing, in the time given.
    Nothing,
}

/// The right of a thread to hear what it is told. It stays with that thread.
#[derive(Debug)]
pub struct Watcher {
    signals: libc::sigset_t,
    watch: Watch,
    _of_this_thread: PhantomData<*const ()>,
}

/// The signal by which a thread that watches is told: one that queues, and that nobody else here uses.
/// It is sent to that thread alone, which has it blocked.
fn signal() -> libc::c_int {
    libc::SIGRTMAX() - 2
}

impl Watcher {
    /// Makes this thread one that is told.
    ///
    /// # Errors
    /// The system call's.
    pub fn new() -> Result<Self> {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` fills the set in, and the others refer to it while it lives. The mask is
        // this thread's alone.
        let (signals, error, thread) = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), signal());
            // When no more signals can be queued the kernel sends this one instead.
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGIO);
            let signals = signals.assume_init();
            let blocked =
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut());
            (signals, blocked, libc::gettid())
        };
        if error != 0 {
            return Err(Errno::from_raw_os_error(error));
        }
        Ok(Self { signals, watch: Watch(thread), _of_this_thread: PhantomData })
    }

    /// What leases are taken with, of which this thread is to be told.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Waits until it is told something, or for so long.
    ///
    /// # Errors
    /// The system call's.
    pub fn wait(&mut self, patience: Duration) -> Result<Told> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(libc::c_long::MAX),
            tv_nsec: libc::c_long::from(patience.subsec_nanos()),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three live for the call, which writes to `info` alone.
        let number = unsafe {
            libc::sigtimedwait(&raw const self.signals, info.as_mut_ptr(), &raw const timeout)
        };
        match number {
            -1 => match last_errno() {
                Errno::AGAIN | Errno::INTR => Ok(Told::Nothing),
                error => Err(error),
            },
            libc::SIGIO => Ok(Told::Overflow),
            _ => {
                // SAFETY: it was zeroed, and every pattern of bits is one of its values.
                let info = unsafe { info.assume_init() };
                Ok(Told::Wanted(descriptor(&info)))
            }
        }
    }
}

/// The descriptor that a signal of I/O tells of (`si_fd`).
fn descriptor(info: &libc::siginfo_t) -> RawFd {
    /// As the kernel has it (`include/uapi/asm-generic/siginfo.h`, `_sigpoll`).
    #[repr(C)]
    struct Poll {
        _number: libc::c_int,
        _errno: libc::c_int,
        _code: libc::c_int,
        band: libc::c_long,
        descriptor: libc::c_int,
    }
    const { assert!(size_of::<Poll>() <= size_of::<libc::siginfo_t>()) };
    const { assert!(align_of::<Poll>() <= align_of::<libc::siginfo_t>()) };
    // SAFETY: the structure is not larger than the other, needs no stricter alignment, and takes any bits.
    let poll = unsafe { &*std::ptr::from_ref(info).cast::<Poll>() };
    poll.descriptor
}

/// Takes a lease, of which the thread is told that watches. `false` if somebody has the file open who
/// may not. A file that is open for reading alone can have no lease for writing.
///
/// # Errors
/// The system call's; [`Errno::INVAL`] where the file system has no leases, and for what is no ordinary
/// file; [`Errno::ACCESS`] for another user's file without the power to take leases (`CAP_LEASE`).
pub fn set(file: impl AsFd, kind: Kind, watch: Watch) -> Result<bool> {
    #[repr(C)]
    struct Owner {
        kind: libc::c_int,
        id: libc::pid_t,
    }
    let fd = file.as_fd().as_raw_fd();
    control(fd, F_SETSIG, signal())?;
    let owner = Owner { kind: F_OWNER_TID, id: watch.0 };
    // SAFETY: the structure has the layout that the command expects and lives for the call.
    if unsafe { libc::fcntl(fd, F_SETOWN_EX, &raw const owner) } == -1 {
        return Err(last_errno());
    }
    let kind = match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    };
    match control(fd, libc::F_SETLEASE, kind) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the lease of an open file up: whoever waits for that goes on.
pub fn give_up(file: impl AsFd) {
    // There may be none any more.
    let _ = control(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
}

/// The lease that an open file has, if nobody wants it to be given up. If somebody wants to read what is
/// leased for writing, it is [`Kind::Read`] already.
///
/// # Errors
/// The system call's.
pub fn held(file: BorrowedFd<'_>) -> Result<Option<Kind>> {
    // SAFETY: the command takes a number and refers to no memory.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE, 0) } {
        -1 => Err(last_errno()),
        libc::F_RDLCK => Ok(Some(Kind::Read)),
        libc::F_WRLCK => Ok(Some(Kind::Write)),
        _ => Ok(None),
    }
}

/// For how long the kernel lets who opens a leased file wait before it takes the lease away
/// (`/proc/sys/fs/lease-break-time`, where 0 is for ever); its default if that cannot be read.
pub fn break_time() -> Duration {
    const DEFAULT_S: u64 = 45;
    let said = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok();
    match said.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_S) {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds),
    }
}

/// A file that nobody else has open; who opens it meanwhile waits until this is dropped, or for as
/// long as `/proc/sys/fs/lease-break-time` says.
#[derive(Debug)]
pub struct Lease<'a>(&'a File);

/// Takes a file for oneself, if nobody else has it open; `None` otherwise. It has to be open for
/// writing, once. Whoever opens it meanwhile causes a signal that this process ignores by default
/// (`SIGURG`).
///
/// # Errors
/// The system call's; [`Errno::INVAL`] where the file system has no leases.
pub fn take(file: &File) -> Result<Option<Lease<'_>>> {
    let fd = file.as_raw_fd();
    // By default it would be SIGIO, which ends a process.
    control(fd, F_SETSIG, libc::SIGURG)?;
    match control(fd, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => Ok(Some(Lease(file))),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // It ends with the descriptor at the latest.
        let _ = control(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(fd: RawFd, command: i32, argument: i32) -> Result<()> {
    // SAFETY: these commands take a number and refer to no memory.
    let result = unsafe { libc::fcntl(fd, command, argument) };
    if result == -1 { Err(last_errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_thread_that_watches_is_told_which_lease_is_wanted() {
        let path = std::env::temp_dir().join(format!("steadfast-sys-watch-{}", std::process::id()));
        std::fs::write(&path, b"data").unwrap();
        let (watches, watch) = mpsc::channel();
        let (tells, told) = mpsc::channel();
        let (ends, end) = mpsc::channel::<()>();
        let watching = std::thread::spawn(move || {
            let mut watcher = Watcher::new().unwrap();
            watches.send(watcher.watch()).unwrap();
            while end.try_recv() == Err(mpsc::TryRecvError::Empty) {
                tells.send(watcher.wait(Duration::from_millis(50)).unwrap()).unwrap();
            }
        });
        let watch = watch.recv().unwrap();
        let file = File::open(&path).unwrap();
        let open = |flags| {
            let flags = flags | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        };
        let writer = open(rustix::fs::OFlags::WRONLY).unwrap();
        assert_eq!(set(&file, Kind::Read, watch), Ok(false), "somebody writes");
        drop(writer);
        assert_eq!(set(&file, Kind::Read, watch), Ok(true));
        open(rustix::fs::OFlags::RDONLY).unwrap();
        assert_eq!(held(file.as_fd()), Ok(Some(Kind::Read)));
        assert_eq!(open(rustix::fs::OFlags::WRONLY).err(), Some(Errno::AGAIN));
        let wanted = told.iter().find(|told| *told != Told::Nothing);
        assert_eq!(wanted, Some(Told::Wanted(file.as_raw_fd())));
        assert_eq!(held(file.as_fd()), Ok(None));
        give_up(&file);
        open(rustix::fs::OFlags::WRONLY).unwrap();
        drop(ends);
        watching.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_somebody_has_open_is_not_taken() {
        let path = std::env::temp_dir().join(format!("steadfast-sys-lease-{}", std::process::id()));
        let ours = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        drop(take(&ours).unwrap().expect("nobody has it"));
        let theirs = File::open(&path).unwrap();
        assert!(take(&ours).unwrap().is_none());
        drop(theirs);
        let lease = take(&ours).unwrap().expect("nobody has it any more");
        // Whoever opens it waits; if not, he is told that he would.
        let open = || {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
            rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        };
        assert_eq!(open().err(), Some(Errno::AGAIN));
        drop(lease);
        open().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
