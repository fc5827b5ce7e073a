//! A directory's entries, call after call.

use std::collections::VecDeque;

use super::Nfs3Client;
use super::results::Entry;
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::transport::RpcTransport;

/// Iterates over a directory; holds the entries of one call at a time. After an error it ends.
#[derive(Debug)]
pub struct Entries<'c, T> {
    client: &'c mut Nfs3Client<T>,
    directory: FileHandle,
    plus: bool,
    bytes_max: u32,
    cookie: u64,
    verifier: [u8; 8],
    ready: VecDeque<Entry>,
    is_over: bool,
}

impl<'c, T: RpcTransport> Entries<'c, T> {
    pub(crate) fn new(
        client: &'c mut Nfs3Client<T>,
        directory: FileHandle,
        plus: bool,
        bytes_max: u32,
    ) -> Self {
        Self {
            client,
            directory,
            plus,
            bytes_max,
            cookie: 0,
            verifier: [0; 8],
            ready: VecDeque::new(),
            is_over: false,
        }
    }

    fn fetch(&mut self) -> Result<(), ClientError> {
        let listing = if self.plus {
            let (cookie, verifier) = (self.cookie, self.verifier);
            self.client.readdirplus(
                &self.directory,
                cookie,
                verifier,
                self.bytes_max,
                self.bytes_max,
            )?
        } else {
            self.client.readdir(&self.directory, self.cookie, self.verifier, self.bytes_max)?
        };
        match listing.entries.last() {
            Some(last) if last.cookie == self.cookie => {
                return Err(ClientError::Contradiction {
                    procedure: "READDIR",
                    why: "the last entry's cookie is where the listing began",
                });
            }
            Some(last) => self.cookie = last.cookie,
            None if !listing.eof => {
                return Err(ClientError::Contradiction {
                    procedure: "READDIR",
                    why: "no entry, and yet not the end",
                });
            }
            None => {}
        }
        self.verifier = listing.verifier;
        self.is_over = listing.eof;
        self.ready = listing.entries.into();
        Ok(())
    }
}

impl<T: RpcTransport> Iterator for Entries<'_, T> {
    type Item = Result<Entry, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(Ok(entry));
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
    }
}
