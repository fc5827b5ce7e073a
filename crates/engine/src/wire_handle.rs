//! Handles as clients hold them: share and storage handle, sealed with a MAC.
//!
//! Layout, all integers big-endian; at most 64 bytes (RFC 1813 `NFS3_FHSIZE`), and at most 32
//! for file systems with 8-byte kernel handles:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`FORMAT`] |
//! | 1 | length of the whole handle |
//! | 8 | SipHash-2-4 of all other bytes under the server's key |
//! | 8 | share |
//! | n | storage handle |
//!
//! Derived, never remembered: valid across restarts as long as the key is kept. A client can
//! neither make one, nor turn one of a share into one of another.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use steadfast_shares::ShareId;
use steadfast_vfs::{HANDLE_BYTES_MAX, StorageHandle};

const FORMAT: u8 = 1;
const MAC_AT: usize = 2;
const BODY_AT: usize = 10;
const STORAGE_AT: usize = 18;

/// The longest sealed handle.
pub(crate) const WIRE_HANDLE_BYTES_MAX: usize = STORAGE_AT + HANDLE_BYTES_MAX;
const _: () = assert!(WIRE_HANDLE_BYTES_MAX <= 64);

/// A sealed handle's bytes.
#[derive(Clone, Copy)]
pub(crate) struct SealedHandle {
    length: usize,
    bytes: [u8; WIRE_HANDLE_BYTES_MAX],
}

impl SealedHandle {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

/// Seals and opens handles.
pub(crate) struct HandleSealer {
    hasher: SipHasher24,
}

impl HandleSealer {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(key) }
    }

    fn mac(&self, format: u8, length: u8, body: &[u8]) -> [u8; 8] {
        let mut hasher = self.hasher;
        hasher.write(&[format, length]);
        hasher.write(body);
        hasher.finish().to_be_bytes()
    }

    /// Seals a handle of a share.
    pub(crate) fn seal(&self, share: ShareId, storage: &StorageHandle) -> SealedHandle {
        let mut sealed = SealedHandle { length: STORAGE_AT, bytes: [0; WIRE_HANDLE_BYTES_MAX] };
        let from = storage.as_bytes();
        sealed.length += from.len();
        let (head, body) = sealed.bytes.split_at_mut(BODY_AT);
        let (share_bytes, storage_bytes) = body.split_at_mut(STORAGE_AT - BODY_AT);
        share_bytes.copy_from_slice(&share.0.to_be_bytes());
        if let Some(place) = storage_bytes.get_mut(..from.len()) {
            place.copy_from_slice(from);
        }
        let body_length = STORAGE_AT - BODY_AT + from.len();
        let length = sealed.length as u8;
        let mac = self.mac(FORMAT, length, body.get(..body_length).unwrap_or(&[]));
        if let [format_byte, length_byte, mac_bytes @ ..] = head {
            *format_byte = FORMAT;
            *length_byte = length;
            mac_bytes.copy_from_slice(&mac);
        }
        sealed
    }

    /// Opens a handle; `None` if it is not one that this server made. Zeros after the handle's
    /// own length are accepted, since fixed-size handles (MOUNT v1 and v2) are padded so.
    pub(crate) fn open(&self, wire: &[u8]) -> Option<(ShareId, StorageHandle)> {
        let format = *wire.first()?;
        let length = *wire.get(1)?;
        let (handle, padding) = wire.split_at_checked(usize::from(length))?;
        if format != FORMAT || padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let mac = handle.get(MAC_AT..BODY_AT)?;
        let body = handle.get(BODY_AT..)?;
        if !equal_in_constant_time(mac, &self.mac(format, length, body)) {
            return None;
        }
        let (share, storage) = body.split_first_chunk::<8>()?;
        Some((ShareId(u64::from_be_bytes(*share)), StorageHandle::new(storage)?))
    }
}

/// Compares without telling by its duration where the first difference is.
fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn opens_what_it_sealed_and_nothing_else(
            key: [u8; 16],
            other_key: [u8; 16],
            share: u64,
            storage in proptest::collection::vec(any::<u8>(), 0..=HANDLE_BYTES_MAX),
            flip in any::<proptest::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let sealer = HandleSealer::new(&key);
            let storage = StorageHandle::new(&storage).unwrap();
            let sealed = sealer.seal(ShareId(share), &storage);
            prop_assert_eq!(sealer.open(sealed.as_bytes()), Some((ShareId(share), storage)));

            let mut forged = sealed.as_bytes().to_vec();
            let at = flip.index(forged.len());
            forged[at] ^= 1 << bit;
            prop_assert_eq!(sealer.open(&forged), None);
            prop_assert_eq!(sealer.open(&forged[..forged.len() - 1]), None);

            let mut padded = sealed.as_bytes().to_vec();
            padded.push(0);
            prop_assert!(sealer.open(&padded).is_some());
            padded.push(1);
            prop_assert_eq!(sealer.open(&padded), None);

            if key != other_key {
                prop_assert_eq!(HandleSealer::new(&other_key).open(sealed.as_bytes()), None);
            }
        }

        #[test]
        fn any_bytes_are_refused_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            prop_assert_eq!(HandleSealer::new(&[7; 16]).open(&bytes), None);
        }
    }
}
