//! Unstable writes kept until the server has them on disk (RFC 1813 §3.3.7, §3.3.21).
//!
//! A verifier that differs between a WRITE and the COMMIT says that the server may have lost the
//! data in between; then everything not yet committed is written again.

use std::collections::VecDeque;

use steadfast_wire::nfs3::StableHow;

use crate::error::ClientError;
use crate::nfs3::Nfs3Client;
use crate::object::FileHandle;
use crate::transport::RpcTransport;

/// How often COMMIT is tried before a server whose verifier keeps changing is given up.
const ATTEMPTS: u32 = 8;

/// Writes of one file that are not known to be stable. Holds at most `bytes_max` of data: a
/// write that would exceed it commits first.
#[derive(Debug)]
pub struct UnstableWrites {
    file: FileHandle,
    pending: VecDeque<(u64, Vec<u8>)>,
    pending_bytes: usize,
    bytes_max: usize,
    verifier: Option<[u8; 8]>,
    has_lost: bool,
    resent: u64,
}

impl UnstableWrites {
    /// For this file.
    pub fn new(file: FileHandle, bytes_max: usize) -> Self {
        Self {
            file,
            pending: VecDeque::new(),
            pending_bytes: 0,
            bytes_max,
            verifier: None,
            has_lost: false,
            resent: 0,
        }
    }

    /// How many writes were sent again because the verifier had changed.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Bytes not known to be stable.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Writes `data`, all of it, unstable.
    ///
    /// # Errors
    /// See [`ClientError`]; the data stays pending.
    pub fn write(
        &mut self,
        client: &mut Nfs3Client<impl RpcTransport>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ClientError> {
        if self.pending_bytes + data.len() > self.bytes_max {
            self.commit(client)?;
        }
        self.pending_bytes += data.len();
        self.pending.push_back((offset, data.to_vec()));
        self.send(client, offset, data)
    }

    fn send(
        &mut self,
        client: &mut Nfs3Client<impl RpcTransport>,
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<(), ClientError> {
        while !data.is_empty() {
            let written = client.write(&self.file, offset, data, StableHow::Unstable)?;
            self.note(written.verifier);
            let count = written.count as usize;
            if count == 0 {
                return Err(ClientError::Contradiction {
                    procedure: "WRITE",
                    why: "success without writing anything",
                });
            }
            data = data.get(count..).unwrap_or(&[]);
            offset += u64::from(written.count);
        }
        Ok(())
    }

    fn note(&mut self, verifier: [u8; 8]) {
        if self.verifier.is_some_and(|before| before != verifier) {
            self.has_lost = true;
        }
        self.verifier = Some(verifier);
    }

    /// Makes everything written stable, sending again what the server may have lost.
    ///
    /// # Errors
    /// See [`ClientError`]; the data stays pending.
    pub fn commit(
        &mut self,
        client: &mut Nfs3Client<impl RpcTransport>,
    ) -> Result<(), ClientError> {
        for _ in 0..ATTEMPTS {
            if !self.has_lost {
                let commit = client.commit(&self.file, 0, 0)?;
                self.note(commit.verifier);
            }
            if !self.has_lost {
                self.pending.clear();
                self.pending_bytes = 0;
                return Ok(());
            }
            self.has_lost = false;
            self.verifier = None;
            let pending = std::mem::take(&mut self.pending);
            for (offset, data) in &pending {
                self.resent += 1;
                if let Err(error) = self.send(client, *offset, data) {
                    self.has_lost = true;
                    self.pending = pending;
                    return Err(error);
                }
            }
            self.pending = pending;
        }
        Err(ClientError::Contradiction {
            procedure: "COMMIT",
            why: "the verifier changes with every attempt",
        })
    }
}
