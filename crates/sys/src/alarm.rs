//! A signal that interrupts what a thread waits for: what `alarm(2)` does for a program that means to go on.

use std::time::Duration;

use rustix::io::Result;

use crate::file::last_errno;

/// While it lives the thread that made it gets SIGALRM again and again. The signal does nothing but end system calls
/// that wait, by EINTR. What else the process does at SIGALRM is forgotten.
#[derive(Debug)]
pub struct Alarm(libc::timer_t);

extern "C" fn nothing(_: libc::c_int) {}

/// What is called for the signal, for all threads, from now on.
fn handle() -> Result<()> {
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all bytes zero is an action without flags, so without SA_RESTART, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler touches nothing, so it may run at any point; the structure lives for the call.
    let done = unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

impl Alarm {
    /// Rings after this time, and then as often again: a signal that comes just before the call that is to be
    /// interrupted is lost, and the next one is not.
    ///
    /// # Errors
    /// Those of `sigaction(2)`, `timer_create(2)` and `timer_settime(2)`.
    pub fn every(period: Duration) -> Result<Self> {
        handle()?;
        // SAFETY: a structure of numbers and pointers, for which zero is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGALRM;
        // SAFETY: asks for a number.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both structures live for the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if made != 0 {
            return Err(last_errno());
        }
        let alarm = Self(timer);
        let period = period.max(Duration::from_micros(1));
        let period = libc::timespec {
            tv_sec: period.as_secs().try_into().unwrap_or(libc::c_long::MAX),
            tv_nsec: libc::c_long::from(period.subsec_nanos()),
        };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was made above; the structure lives for the call.
        match unsafe { libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()) } {
            0 => Ok(alarm),
            _ => Err(last_errno()),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `every`, and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}
