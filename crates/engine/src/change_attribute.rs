//! The change attribute.

use steadfast_vfs::Time;

/// The change attribute (RFC 8881 §5.8.1.4) of an object of a share with this ctime: another number whenever that is
/// another.
pub(crate) fn change_of(ctime: Time) -> u64 {
    let Time { seconds, nanoseconds } = ctime;
    seconds.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanoseconds))
}
