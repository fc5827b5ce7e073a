//! Whether the system's clock is kept right.

use std::io;

/// The kernel's own word on its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether a time service keeps it right.
    pub is_synchronised: bool,
    /// How far off it may be, in µs. The kernel lets it grow by 0.5 ms a second while nobody sets it.
    pub max_error_us: u64,
}

/// Reads the state of the clock (adjtimex(2)); changes nothing.
///
/// # Errors
/// When the kernel refuses.
pub fn state() -> io::Result<ClockState> {
    // SAFETY: all-zero bytes are a valid `timex`: it has numbers alone.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `told` is valid and writable for the call. Its modes are 0, so that nothing is set.
    let status = unsafe { libc::adjtimex(&raw mut told) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ClockState {
        is_synchronised: told.status & libc::STA_UNSYNC == 0,
        max_error_us: u64::try_from(told.maxerror).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_is_told() {
        let state = super::state().unwrap();
        // The kernel lets the error grow up to 16 s and no further.
        assert!(state.max_error_us <= 16_000_000, "{state:?}");
    }
}
