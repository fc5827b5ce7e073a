//! What OPEN takes: the bits of `share_access` (RFC 8881 §18.16, RFC 9754), and how a client is told of them.

use steadfast_wire::nfs4::OpenArguments4;

/// What the file is opened for.
pub(super) const ACCESS_BITS: u32 = 0x3;
/// Which delegation is wanted, and when (RFC 8881 §18.16.1).
const WANT_BITS: u32 = 0x3_ff00;
/// A delegation instead of an open is wanted, if there is one (RFC 9754 §4), from minor version 2 on.
pub(super) const WANT_OPEN_XOR_DELEGATION: u32 = 0x20_0000;
/// The holder of the delegation wants to tell the file's times. It tells none here, as no delegation says so.
const WANT_DELEGATED_TIMES: u32 = 0x10_0000;

/// The bits that mean something in a minor version. Minor version 0 has no wishes for delegations.
pub(super) fn known_bits(minor_version: u32) -> u32 {
    match minor_version {
        0 => ACCESS_BITS,
        1 => ACCESS_BITS | WANT_BITS,
        _ => ACCESS_BITS | WANT_BITS | WANT_OPEN_XOR_DELEGATION | WANT_DELEGATED_TIMES,
    }
}

/// What OPEN takes, as numbers of bits (RFC 9754 §3).
pub(super) const TAKEN: OpenArguments4 = OpenArguments4 {
    share_access: 1 << 1 | 1 << 2 | 1 << 3,
    share_deny: 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3,
    // Any delegation, none, the end of a wish; and a delegation instead of an open.
    share_access_want: 1 << 3 | 1 << 4 | 1 << 5 | WANT_OPEN_XOR_DELEGATION,
    // A name, what was open before, and by a delegation; a handle, and by its delegation.
    open_claim: 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5,
    create_mode: 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3,
};
