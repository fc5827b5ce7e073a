//! The reply to EXPORT, read while it comes: it may have megabytes, and thousands of clients
//! receive it at once.
//!
//! [`Listing`] takes a connection's bytes, checks the whole list, and keeps the numbers of the
//! first shares; [`Paths`] has the paths themselves, once for all clients of a thread.

use std::collections::HashMap;
use std::sync::Arc;

use steadfast_client::{ReplyBody, parse_reply};
use steadfast_rpc::record::{Splitter, Step, TooLarge};
use steadfast_xdr::{Reader, XdrError};

use super::failure::Failure;

/// Longest path (`MNTPATHLEN` of RFC 1813).
const PATH_BYTES_MAX: usize = 1024;
/// Longest name of who may mount (`MNTNAMLEN`).
const NAME_BYTES_MAX: usize = 255;
/// Most paths that are kept: a server that tells others to each client is not followed.
const PATHS_MAX: usize = 1 << 20;
/// Most bytes of a list that are read.
const LISTING_BYTES_MAX: usize = 1 << 30;

/// Paths that clients were told, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    all: Vec<Arc<[u8]>>,
    numbers: HashMap<Arc<[u8]>, u32>,
}

impl Paths {
    /// The number of a path; `None` if there are too many.
    fn number(&mut self, path: &[u8]) -> Option<u32> {
        if let Some(number) = self.numbers.get(path) {
            return Some(*number);
        }
        let number = u32::try_from(self.all.len()).ok().filter(|_| self.all.len() < PATHS_MAX)?;
        let path: Arc<[u8]> = path.into();
        self.all.push(Arc::clone(&path));
        self.numbers.insert(path, number);
        Some(number)
    }

    /// The path of a number.
    pub(super) fn path(&self, number: u32) -> &[u8] {
        self.all.get(number as usize).map_or(&[], |path| path)
    }
}

/// What a message goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Head,
    Entry,
    Path,
    Group,
    GroupName,
    End,
}

/// A list that is being received.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    xid: u32,
    /// How many paths are kept.
    wanted: usize,
    /// Numbers of the first shares.
    first: Vec<u32>,
    shares: u64,
    bytes: u64,
    expected: Expected,
    splitter: Splitter,
    /// The beginning of an item whose rest has not come.
    carry: Vec<u8>,
}

/// A list that was received whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Numbers of the first shares.
    pub(super) first: Vec<u32>,
    /// Shares of the list.
    pub(super) shares: u64,
    /// Bytes of the reply.
    pub(super) bytes: u64,
}

impl Listing {
    /// The reply to the call with this `xid`; of its shares the first `wanted` are kept.
    pub(super) fn new(xid: u32, wanted: usize) -> Self {
        Self {
            xid,
            wanted,
            first: Vec::new(),
            shares: 0,
            bytes: 0,
            expected: Expected::Head,
            splitter: Splitter::default(),
            carry: Vec::new(),
        }
    }

    /// Takes bytes of the connection; the list, when it is whole.
    pub(super) fn feed(
        &mut self,
        paths: &mut Paths,
        mut bytes: &[u8],
    ) -> Result<Option<Listed>, Failure> {
        let broken = |what: &str| Err(Failure::Broken(what.to_owned()));
        loop {
            match self.splitter.step(&mut bytes, LISTING_BYTES_MAX) {
                Ok(Step::Piece(piece)) => {
                    self.bytes += piece.len() as u64;
                    self.take(paths, piece)?;
                }
                Ok(Step::Starved) => return Ok(None),
                Ok(Step::End) => break,
                Err(TooLarge { .. }) => {
                    return broken("EXPORT told a list of more than 1 GiB");
                }
            }
        }
        if self.expected != Expected::End || !self.carry.is_empty() {
            return broken("EXPORT told a list that ends early");
        }
        if !bytes.is_empty() {
            return broken("a reply to a call that was not made");
        }
        let first = std::mem::take(&mut self.first);
        Ok(Some(Listed { first, shares: self.shares, bytes: self.bytes }))
    }

    /// Reads as much of the message as has come.
    fn take(&mut self, paths: &mut Paths, piece: &[u8]) -> Result<(), Failure> {
        // What was left of the piece before is shorter than an item.
        let mut joined = std::mem::take(&mut self.carry);
        joined.extend_from_slice(piece);
        let mut rest: &[u8] = &joined;
        while self.expected != Expected::End {
            match self.item(paths, rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or(&[]),
                Err(ItemError::Xdr(XdrError::Truncated)) => break,
                Err(ItemError::Xdr(error)) => return Err(Failure::Broken(error.to_string())),
                Err(ItemError::Failure(failure)) => return Err(failure),
            }
        }
        if self.expected == Expected::End && !rest.is_empty() {
            return Err(Failure::Broken("EXPORT told a list with bytes too many".to_owned()));
        }
        self.carry = rest.to_vec();
        Ok(())
    }

    /// Reads the next item; its length.
    fn item(&mut self, paths: &mut Paths, bytes: &[u8]) -> Result<usize, ItemError> {
        if self.expected == Expected::Head {
            let results_at = self.head(bytes)?;
            self.expected = Expected::Entry;
            return Ok(results_at);
        }
        let mut r = Reader::new(bytes);
        self.expected = match self.expected {
            Expected::Entry if r.bool()? => Expected::Path,
            Expected::Entry | Expected::Head | Expected::End => Expected::End,
            Expected::Path => {
                let path = r.opaque(PATH_BYTES_MAX)?;
                self.shares += 1;
                if self.first.len() < self.wanted {
                    let number = paths.number(path).ok_or_else(|| {
                        let what = format!("clients are told more than {PATHS_MAX} shares");
                        ItemError::Failure(Failure::Broken(what))
                    })?;
                    self.first.push(number);
                }
                Expected::Group
            }
            Expected::Group if r.bool()? => Expected::GroupName,
            Expected::Group => Expected::Entry,
            Expected::GroupName => {
                r.opaque(NAME_BYTES_MAX)?;
                Expected::Group
            }
        };
        Ok(r.position())
    }

    /// Whose reply it is, whether the call was executed, and where the results begin.
    fn head(&self, bytes: &[u8]) -> Result<usize, ItemError> {
        let failed = |failure| Err(ItemError::Failure(failure));
        let (xid, body) = parse_reply(bytes)?;
        if xid != self.xid {
            return failed(Failure::Broken("a reply to a call that was not made".to_owned()));
        }
        match body {
            ReplyBody::Success { results_at } => Ok(results_at),
            ReplyBody::Accepted(error) => failed(Failure::Refused(format!("EXPORT: {error}"))),
            ReplyBody::Denied(denial) => failed(Failure::Refused(format!("EXPORT: {denial}"))),
        }
    }
}

/// Why an item cannot be read.
enum ItemError {
    Xdr(XdrError),
    Failure(Failure),
}

impl From<XdrError> for ItemError {
    fn from(error: XdrError) -> Self {
        Self::Xdr(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_xdr::Writer;

    fn message(xid: u32, shares: &[(&str, &[&str])]) -> Vec<u8> {
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [xid, 1, 0, 0, 0, 0] {
            w.u32(word);
        }
        for (path, groups) in shares {
            w.bool(true);
            w.opaque(path.as_bytes());
            for group in *groups {
                w.bool(true);
                w.opaque(group.as_bytes());
            }
            w.bool(false);
        }
        w.bool(false);
        message
    }

    /// The message as a stream of fragments of so many bytes.
    fn stream(message: &[u8], fragment: usize) -> Vec<u8> {
        let count = message.len().div_ceil(fragment);
        let fragments = message.chunks(fragment).enumerate().flat_map(|(index, bytes)| {
            let last = if index + 1 == count { 0x8000_0000 } else { 0 };
            let mark = last | bytes.len() as u32;
            [&mark.to_be_bytes(), bytes].concat()
        });
        fragments.collect()
    }

    const SHARES: &[(&str, &[&str])] =
        &[("/a", &[]), ("/home/b", &["@staff", "10.0.0.0/8"]), ("/c", &["host.example"])];

    #[test]
    fn lists_are_read_however_they_are_cut() {
        let message = message(7, SHARES);
        for fragment in [1, 5, 24, 31, message.len()] {
            let stream = stream(&message, fragment);
            for cut in [1, 3, 4, 29, stream.len()] {
                let (mut listing, mut paths) = (Listing::new(7, 2), Paths::default());
                let mut listed = None;
                for bytes in stream.chunks(cut) {
                    assert_eq!(listed, None, "before the end");
                    listed = listing.feed(&mut paths, bytes).expect("a list");
                }
                let listed = listed.expect("whole");
                assert_eq!((listed.shares, listed.bytes), (3, message.len() as u64));
                let kept: Vec<_> = listed.first.iter().map(|n| paths.path(*n)).collect();
                assert_eq!(kept, [&b"/a"[..], b"/home/b"], "{fragment} {cut}");
            }
        }
    }

    #[test]
    fn paths_are_kept_once_for_all_clients() {
        let mut paths = Paths::default();
        let stream = stream(&message(1, SHARES), 4096);
        let first = Listing::new(1, 9).feed(&mut paths, &stream).expect("a list");
        assert_eq!(Listing::new(1, 9).feed(&mut paths, &stream).expect("a list"), first);
        assert_eq!(paths.all.len(), 3);
    }

    #[test]
    fn nonsense_is_told() {
        let good = message(7, SHARES);
        let with = |at: usize, word: u32| {
            let mut message = good.clone();
            message[at..at + 4].copy_from_slice(&word.to_be_bytes());
            message
        };
        let cases = [
            (with(0, 8), "a call that was not made"),
            (with(20, 3), "no such procedure"),
            (with(24, 2), "bool"),
            (with(28, 5000), "5000"),
            (good[..good.len() - 4].to_vec(), "ends early"),
            ([&good[..], &[0; 4]].concat(), "bytes too many"),
        ];
        for (message, part) in cases {
            let mut listing = Listing::new(7, 9);
            let outcome = listing.feed(&mut Paths::default(), &stream(&message, 4096));
            let failure = outcome.expect_err(part).to_string();
            assert!(failure.contains(part), "{failure}, not {part}");
        }
        let two = [stream(&good, 4096), stream(&good, 4096)].concat();
        assert!(Listing::new(7, 9).feed(&mut Paths::default(), &two).is_err());
    }
}
