//! A client that locks whole files by NLM 4.
// Each test program uses a part of it; a failure here is a failure of the test.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::unwrap_used)]

use steadfast_client::{FileHandle, Identity, Procedure, RpcConnection, RpcTransport};

use super::common::{PATIENCE, Running};

const NLM: u32 = 100_021;
pub const GRANTED: u32 = 0;
pub const DENIED: u32 = 1;
const LOCK: u32 = 2;
const UNLOCK: u32 = 4;

pub fn opaque(bytes: &mut Vec<u8>, value: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A client that locks by NLM 4.
pub struct Nlm(RpcConnection);

impl Nlm {
    pub fn new(running: &Running) -> Self {
        Self(RpcConnection::connect(running.address, PATIENCE).unwrap())
    }

    /// The status of a LOCK or UNLOCK of the whole file, which does not wait.
    fn call(&mut self, number: u32, file: &FileHandle, is_write: bool) -> u32 {
        let mut bytes = Vec::new();
        let word = |bytes: &mut Vec<u8>, word: u32| bytes.extend_from_slice(&word.to_be_bytes());
        opaque(&mut bytes, b"cookie");
        if number == LOCK {
            word(&mut bytes, 0);
            word(&mut bytes, u32::from(is_write));
        }
        for name in [&b"client"[..], file.as_bytes(), b"owner"] {
            opaque(&mut bytes, name);
        }
        for zero in [7, 0, 0, 0, 0] {
            word(&mut bytes, zero);
        }
        if number == LOCK {
            word(&mut bytes, 0);
            word(&mut bytes, 1);
        }
        let procedure = Procedure { program: NLM, version: 4, number, name: "NLM" };
        let results = self.0.call(procedure, &Identity::root(), &bytes).unwrap();
        u32::from_be_bytes(*results.last_chunk().unwrap())
    }

    pub fn writes(&mut self, file: &FileHandle) -> u32 {
        self.call(LOCK, file, true)
    }

    pub fn reads(&mut self, file: &FileHandle) -> u32 {
        self.call(LOCK, file, false)
    }

    pub fn frees(&mut self, file: &FileHandle) {
        assert_eq!(self.call(UNLOCK, file, false), GRANTED);
    }
}
