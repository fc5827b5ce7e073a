//! Handles as clients hold them: share and storage handle, or a directory of the pseudo file
//! system, sealed with a MAC.
//!
//! Layout, all integers big-endian; at most 64 bytes (RFC 1813 `NFS3_FHSIZE`), and at most 32
//! for file systems with 8-byte kernel handles:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`FORMAT_OBJECT`] or [`FORMAT_NODE`] |
//! | 1 | length of the whole handle |
//! | 8 | SipHash-2-4 of all other bytes under the server's key |
//! | 8 | share (objects only) |
//! | n | storage handle; of a node its key, 16 bytes |
//!
//! NFSv2 and MOUNT 1 and 2 have handles of 32 bytes always. What is shorter is padded with zeros.
//! [`FORMAT_COMPACT`] is for storage handles of [`COMPACT_STORAGE_BYTES`] (XFS, tmpfs, ext4 below a
//! share that crosses mounts), which would be 33 bytes: it has no length, but format, MAC, share and
//! storage handle. What is longer still cannot be told to a client of these protocols.
//!
//! Only clients of NFSv4 get handles of nodes: [`HandleSealer::open`], by which all other programs
//! open theirs, refuses them.
//!
//! Derived, never remembered: valid across restarts as long as the key is kept. A client can
//! neither make one, nor turn one of a share into one of another.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use steadfast_shares::ShareId;
use steadfast_vfs::{HANDLE_BYTES_MAX, StorageHandle};

use crate::pseudo::NodeKey;

/// An object of a share.
const FORMAT_OBJECT: u8 = 1;
/// A directory of the pseudo file system.
const FORMAT_NODE: u8 = 2;
/// An object of a share, in exactly 32 bytes.
const FORMAT_COMPACT: u8 = 3;
/// Size of a handle of NFSv2 and of MOUNT 1 and 2, in bytes.
pub(crate) const FIXED_HANDLE_BYTES: usize = steadfast_wire::nfs2::HANDLE_BYTES;
const COMPACT_MAC_AT: usize = 1;
const COMPACT_BODY_AT: usize = 9;
/// Bytes of the storage handles that [`FORMAT_COMPACT`] has room for, no more and no less.
const COMPACT_STORAGE_BYTES: usize = FIXED_HANDLE_BYTES - COMPACT_BODY_AT - 8;
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

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// An object of a share.
    Object(ShareId, StorageHandle),
    /// A directory of the pseudo file system.
    Node(NodeKey),
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
        self.sealed(FORMAT_OBJECT, share.0.to_be_bytes(), storage.as_bytes())
    }

    /// Seals a handle of a share in 32 bytes; `None` if it is too long for that. An object gets the same
    /// bytes always.
    pub(crate) fn seal_fixed(
        &self,
        share: ShareId,
        storage: &StorageHandle,
    ) -> Option<[u8; FIXED_HANDLE_BYTES]> {
        let bytes = storage.as_bytes();
        let mut fixed = [0; FIXED_HANDLE_BYTES];
        if bytes.len() < COMPACT_STORAGE_BYTES {
            let sealed = self.seal(share, storage);
            let sealed = sealed.as_bytes();
            fixed.get_mut(..sealed.len())?.copy_from_slice(sealed);
            return Some(fixed);
        }
        let body = [&share.0.to_be_bytes()[..], bytes].concat();
        let (head, body_place) = fixed.split_at_mut_checked(COMPACT_BODY_AT)?;
        if body.len() != body_place.len() {
            return None;
        }
        body_place.copy_from_slice(&body);
        let mac = self.mac(FORMAT_COMPACT, FIXED_HANDLE_BYTES as u8, &body);
        if let [format, mac_place @ ..] = head {
            *format = FORMAT_COMPACT;
            mac_place.copy_from_slice(&mac);
        }
        Some(fixed)
    }

    /// Seals a handle of a directory of the pseudo file system.
    pub(crate) fn seal_node(&self, node: &NodeKey) -> SealedHandle {
        let key = u128::from_be_bytes(node.0);
        let (first, rest) = ((key >> 64) as u64, key as u64);
        self.sealed(FORMAT_NODE, first.to_be_bytes(), &rest.to_be_bytes())
    }

    fn sealed(&self, format: u8, first: [u8; 8], rest: &[u8]) -> SealedHandle {
        let mut sealed = SealedHandle { length: STORAGE_AT, bytes: [0; WIRE_HANDLE_BYTES_MAX] };
        sealed.length += rest.len();
        let (head, body) = sealed.bytes.split_at_mut(BODY_AT);
        let (first_bytes, rest_bytes) = body.split_at_mut(STORAGE_AT - BODY_AT);
        first_bytes.copy_from_slice(&first);
        if let Some(place) = rest_bytes.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        let body_length = STORAGE_AT - BODY_AT + rest.len();
        let length = sealed.length as u8;
        let mac = self.mac(format, length, body.get(..body_length).unwrap_or(&[]));
        if let [format_byte, length_byte, mac_bytes @ ..] = head {
            *format_byte = format;
            *length_byte = length;
            mac_bytes.copy_from_slice(&mac);
        }
        sealed
    }

    /// Opens a handle of a share; `None` if it is not one that this server made. Zeros after the
    /// handle's own length are accepted, since fixed-size handles (MOUNT v1 and v2) are padded so.
    pub(crate) fn open(&self, wire: &[u8]) -> Option<(ShareId, StorageHandle)> {
        // A MAC is not computed for what is refused anyway.
        match *wire.first()? {
            FORMAT_OBJECT => object_of(self.body_of(wire)?),
            FORMAT_COMPACT => object_of(self.compact_body_of(wire)?),
            _ => None,
        }
    }

    /// Opens a handle of either kind, as [`HandleSealer::open`] does.
    pub(crate) fn open_any(&self, wire: &[u8]) -> Option<Opened> {
        match *wire.first()? {
            FORMAT_OBJECT | FORMAT_COMPACT => {
                let (share, storage) = self.open(wire)?;
                Some(Opened::Object(share, storage))
            }
            FORMAT_NODE => {
                let key = self.body_of(wire)?.try_into().ok()?;
                Some(Opened::Node(NodeKey(key)))
            }
            _ => None,
        }
    }

    /// What a handle has after its MAC, if that is right.
    fn body_of<'a>(&self, wire: &'a [u8]) -> Option<&'a [u8]> {
        let format = *wire.first()?;
        let length = *wire.get(1)?;
        let (handle, padding) = wire.split_at_checked(usize::from(length))?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let mac = handle.get(MAC_AT..BODY_AT)?;
        let body = handle.get(BODY_AT..)?;
        equal_in_constant_time(mac, &self.mac(format, length, body)).then_some(body)
    }

    /// The same for one of [`FORMAT_COMPACT`].
    fn compact_body_of<'a>(&self, wire: &'a [u8]) -> Option<&'a [u8]> {
        let wire: &[u8; FIXED_HANDLE_BYTES] = wire.try_into().ok()?;
        let mac = wire.get(COMPACT_MAC_AT..COMPACT_BODY_AT)?;
        let body = wire.get(COMPACT_BODY_AT..)?;
        let length = FIXED_HANDLE_BYTES as u8;
        equal_in_constant_time(mac, &self.mac(FORMAT_COMPACT, length, body)).then_some(body)
    }
}

fn object_of(body: &[u8]) -> Option<(ShareId, StorageHandle)> {
    let (share, storage) = body.split_first_chunk::<8>()?;
    Some((ShareId(u64::from_be_bytes(*share)), StorageHandle::new(storage)?))
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
            prop_assert_eq!(
                sealer.open_any(sealed.as_bytes()),
                Some(Opened::Object(ShareId(share), storage))
            );

            let mut forged = sealed.as_bytes().to_vec();
            let at = flip.index(forged.len());
            forged[at] ^= 1 << bit;
            prop_assert_eq!(sealer.open(&forged), None);
            prop_assert_eq!(sealer.open_any(&forged), None);
            prop_assert_eq!(sealer.open(&forged[..forged.len() - 1]), None);
            let mut node = sealed.as_bytes().to_vec();
            node[0] = FORMAT_NODE;
            prop_assert_eq!(sealer.open_any(&node), None);

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
        fn nodes_have_handles_of_their_own(
            key: [u8; 16],
            other_key: [u8; 16],
            node: [u8; 16],
            flip in any::<proptest::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let sealer = HandleSealer::new(&key);
            let sealed = sealer.seal_node(&NodeKey(node));
            let sealed = sealed.as_bytes();
            prop_assert_eq!(sealed.len(), BODY_AT + 16);
            prop_assert_eq!(sealer.open_any(sealed), Some(Opened::Node(NodeKey(node))));
            // Other programs know objects only, also where they pad.
            prop_assert_eq!(sealer.open(sealed), None);
            prop_assert_eq!(sealer.open(&[sealed, &[0; 6]].concat()), None);

            let mut forged = sealed.to_vec();
            forged[flip.index(sealed.len())] ^= 1 << bit;
            prop_assert_eq!(sealer.open_any(&forged), None);
            prop_assert_eq!(sealer.open_any(&sealed[..sealed.len() - 1]), None);
            let mut object = sealed.to_vec();
            object[0] = FORMAT_OBJECT;
            prop_assert_eq!(sealer.open(&object), None);
            prop_assert_eq!(sealer.open_any(&object), None);
            // No node has a key of another length, even if the MAC were right.
            let long = sealer.sealed(FORMAT_NODE, [0; 8], &[0; 9]);
            prop_assert_eq!(sealer.open_any(long.as_bytes()), None);

            if key != other_key {
                prop_assert_eq!(HandleSealer::new(&other_key).open_any(sealed), None);
            }
        }

        #[test]
        fn handles_of_32_bytes_are_opened_too_and_nothing_else_is(
            key: [u8; 16],
            share: u64,
            storage in proptest::collection::vec(any::<u8>(), 0..=HANDLE_BYTES_MAX),
            flip in 0..FIXED_HANDLE_BYTES,
            bit in 0_u8..8,
        ) {
            let sealer = HandleSealer::new(&key);
            let storage = StorageHandle::new(&storage).unwrap();
            let fixed = sealer.seal_fixed(ShareId(share), &storage);
            let length = storage.as_bytes().len();
            prop_assert_eq!(fixed.is_some(), length <= COMPACT_STORAGE_BYTES);
            if let Some(fixed) = fixed {
                let opened = (ShareId(share), storage);
                prop_assert_eq!(sealer.open(&fixed), Some(opened));
                prop_assert_eq!(
                    sealer.open_any(&fixed),
                    Some(Opened::Object(opened.0, opened.1))
                );
                let mut forged = fixed;
                forged[flip] ^= 1 << bit;
                prop_assert_eq!(sealer.open(&forged), None);
                prop_assert_eq!(sealer.open_any(&forged), None);
                if length == COMPACT_STORAGE_BYTES {
                    prop_assert_eq!(fixed[0], FORMAT_COMPACT);
                    prop_assert_eq!(sealer.open(&fixed[..31]), None);
                    prop_assert_eq!(sealer.open(&[&fixed[..], &[0]].concat()), None);
                } else {
                    let sealed = sealer.seal(ShareId(share), &storage);
                    prop_assert!(fixed.starts_with(sealed.as_bytes()));
                }
            }
        }

        #[test]
        fn any_bytes_are_refused_without_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
            format in 0..5_u8,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = format;
            }
            prop_assert_eq!(HandleSealer::new(&[7; 16]).open(&bytes), None);
            prop_assert_eq!(HandleSealer::new(&[7; 16]).open_any(&bytes), None);
        }
    }

    #[test]
    fn layouts_never_change() {
        // Computed once; a change here would make every client's handles stale.
        let sealer = HandleSealer::new(&[7; 16]);
        let storage = StorageHandle::new(&[1, 2, 3]).expect("a short handle");
        assert_eq!(sealer.seal(ShareId(0xabcd), &storage).as_bytes(), GOLDEN_OBJECT);
        assert_eq!(sealer.seal_node(&NodeKey([9; 16])).as_bytes(), GOLDEN_NODE);
        let storage = StorageHandle::new(&[5; 15]).expect("a short handle");
        assert_eq!(sealer.seal_fixed(ShareId(0xabcd), &storage).expect("it fits"), GOLDEN_COMPACT);
    }

    const GOLDEN_OBJECT: &[u8] = &[
        0x01, 0x15, 0x9c, 0xea, 0xaf, 0x91, 0xb6, 0x11, 0x35, 0x97, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0xab, 0xcd, 0x01, 0x02, 0x03,
    ];
    const GOLDEN_COMPACT: [u8; 32] = [
        0x03, 0x71, 0xda, 0xc1, 0x33, 0x68, 0xce, 0x89, 0xb4, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0xab, 0xcd, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05, 0x05,
        0x05, 0x05,
    ];
    const GOLDEN_NODE: &[u8] = &[
        0x02, 0x1a, 0x5f, 0x67, 0xe3, 0xf3, 0xcc, 0xdf, 0x15, 0x76, 0x09, 0x09, 0x09, 0x09, 0x09,
        0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09, 0x09,
    ];
}
