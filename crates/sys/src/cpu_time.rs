//! How much CPU time a process has used, to the nanosecond, threads that ended included.

use std::io;
use std::time::Duration;

/// CPU time (user and system) that all threads of a process have used.
///
/// # Errors
/// When there is no such process, or it may not be looked at.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live variable of the type that is written.
    let result = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live variable of the type that is written.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_threads_that_ended_counts() {
        let before = of_process(std::process::id()).unwrap();
        let worked = std::thread::spawn(|| {
            let started = std::time::Instant::now();
            let mut sum = 0_u64;
            while started.elapsed() < Duration::from_millis(20) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
            sum
        })
        .join()
        .unwrap();
        assert!(worked > 0);
        assert!(of_process(std::process::id()).unwrap() > before);
        assert!(of_process(u32::MAX).is_err());
    }
}
