//! What the fuzz targets and the maker of their seeds share.

#![allow(clippy::missing_panics_doc, reason = "a panic is how a target tells what it found")]

#[path = "../../crates/client/tests/canned/mod.rs"]
mod canned;
pub mod capture;
pub mod facts;
// Alone: the rest of its crate has sockets and threads to be built.
#[allow(dead_code, reason = "the targets use a part of it")]
#[path = "../../crates/control/src/store/history.rs"]
pub mod history;
pub mod intent_log;
pub mod journal;
pub mod server;

use steadfast_client::ClientError;
use steadfast_xdr::{Decode, Encode, Reader, Writer};

/// The bytes of a value.
pub fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Reads a value, and checks that it writes as many bytes as it was read from, and that those are
/// read as the same value. (Padding alone is not kept: it is written as zeros.) Returns how many
/// bytes were read.
pub fn check<'a, T>(bytes: &'a [u8]) -> Option<usize>
where
    T: Decode<'a> + Encode,
{
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r).ok()?;
    let again = written(&value);
    assert_eq!(again.len(), r.position());
    Some(r.position())
}

/// As [`check`], and the bytes written are those read once padding is zero.
#[macro_export]
macro_rules! check_one_of {
    ($bytes:expr; $($type:ty),* $(,)?) => {
        if let Some((which, rest)) = $bytes.split_first() {
            let readers: &[fn(&[u8]) -> Option<Vec<u8>>] = &[$(|bytes| {
                let read = $crate::check::<$type>(bytes)?;
                let value = <$type as steadfast_xdr::Decode>::decode(
                    &mut steadfast_xdr::Reader::new(bytes.get(..read)?),
                );
                value.ok().map(|value| $crate::written(&value))
            }),*];
            let read = readers[usize::from(*which) % readers.len()];
            if let Some(again) = read(rest) {
                assert_eq!(read(&again), Some(again.clone()));
            }
        }
    };
}

/// Lets the client read results of a procedure, and checks that the memory it takes for lists is
/// justified by what came. The key is program, version and number. `None` for a procedure that the client does not know, else whether the
/// results were well-formed.
pub fn client_reads(key: (u32, u32, u32), results: &[u8]) -> Option<bool> {
    match canned::read_results(key, results)? {
        Ok(room) => {
            for (capacity, wire_bytes) in room {
                assert!(capacity <= (results.len() / wire_bytes * 2).max(8), "room for {capacity}");
            }
            Some(true)
        }
        Err(ClientError::Malformed { .. } | ClientError::TrailingBytes { .. }) => Some(false),
        Err(_) => Some(true),
    }
}
