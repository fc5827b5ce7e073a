//! `/proc/net/rpc/nfsd` and `/proc/net/rpc/nfs`: the counters of the kernel's server and client.

use super::{lines, number_or_zero};
use crate::capture::programs::{NFS3, OPERATIONS};

/// Procedures of NFSv2, by number (RFC 1094 §2.2).
const PROCEDURES_2: &[&str] = &[
    "null", "getattr", "setattr", "root", "lookup", "readlink", "read", "wrcache", "write",
    "create", "remove", "rename", "link", "symlink", "mkdir", "rmdir", "readdir", "fsstat",
];

/// How often one kind of operation was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationCount {
    /// Its name in lower case.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// `/proc/net/rpc/nfsd`. Counts are since the server was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nfsd {
    /// Duplicates that were answered from the reply cache.
    pub duplicates: u64,
    /// Calls that the reply cache did not have.
    pub reply_cache_misses: u64,
    /// Calls that need no reply cache.
    pub uncached: u64,
    /// Stale handles that clients came with.
    pub stale_handles: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Threads of the server.
    pub threads: u64,
    /// Datagrams and records.
    pub packets: u64,
    /// Of these, datagrams.
    pub udp_packets: u64,
    /// Calls.
    pub calls: u64,
    /// Calls that were rejected.
    pub bad_calls: u64,
    /// Operations, without COMPOUND itself.
    pub operations: Vec<OperationCount>,
}

/// Reads `/proc/net/rpc/nfsd` (Linux, `fs/nfsd/stats.c`).
pub fn nfsd(text: &str) -> Nfsd {
    let mut told = Nfsd::default();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("rc") => {
                told.duplicates = number_or_zero(&mut words);
                told.reply_cache_misses = number_or_zero(&mut words);
                told.uncached = number_or_zero(&mut words);
            }
            Some("fh") => told.stale_handles = number_or_zero(&mut words),
            Some("io") => {
                told.read_bytes = number_or_zero(&mut words);
                told.written_bytes = number_or_zero(&mut words);
            }
            Some("th") => told.threads = number_or_zero(&mut words),
            Some("net") => {
                told.packets = number_or_zero(&mut words);
                told.udp_packets = number_or_zero(&mut words);
            }
            Some("rpc") => {
                told.calls = number_or_zero(&mut words);
                told.bad_calls = number_or_zero(&mut words);
            }
            Some(kind) => operations(&mut told.operations, kind, words),
            None => {}
        }
    }
    told
}

/// `/proc/net/rpc/nfs`. Counts are since the client's module was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcClient {
    /// Calls.
    pub calls: u64,
    /// Calls that were sent again.
    pub retransmissions: u64,
    /// Operations, without COMPOUND itself.
    pub operations: Vec<OperationCount>,
}

/// Reads `/proc/net/rpc/nfs` (Linux, `net/sunrpc/stats.c`). The client numbers the operations of NFSv4 in an
/// order of its own, which is not read: mountstats tells them by name.
pub fn client(text: &str) -> RpcClient {
    let mut told = RpcClient::default();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("rpc") => {
                told.calls = number_or_zero(&mut words);
                told.retransmissions = number_or_zero(&mut words);
            }
            Some(kind @ ("proc2" | "proc3")) => operations(&mut told.operations, kind, words),
            _ => {}
        }
    }
    told
}

/// A line of counts: how many follow, then one by number.
fn operations<'a>(
    all: &mut Vec<OperationCount>,
    kind: &str,
    mut words: impl Iterator<Item = &'a str>,
) {
    let (names, first) = match kind {
        "proc2" => (PROCEDURES_2, 0),
        "proc3" => (NFS3, 0),
        "proc4ops" => (OPERATIONS, 3),
        _ => return,
    };
    let _how_many = words.next();
    for (name, word) in names.iter().zip(words.skip(first)) {
        match word.parse() {
            Ok(0) | Err(_) => {}
            Ok(count) => all.push(OperationCount { name: (*name).to_owned(), count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_server_is_read() {
        let text = "rc 7 100 2000\nfh 3 0 0 0 0\nio 4096 8192\nth 8 0 0.000 0.000\nra 32 0\n\
                    net 2110 10 2100 4\nrpc 2107 3 3 0 0\nproc3 22 1 50 2 30 40 0 9 8 1 0 0 0 1 0 0 0 0 0 0 1 0 0\n\
                    proc4 2 1 20\nproc4ops 76 0 0 0 5 6 7 0 0 0 9\n";
        let told = nfsd(text);
        assert_eq!((told.duplicates, told.reply_cache_misses, told.uncached), (7, 100, 2000));
        assert_eq!((told.stale_handles, told.read_bytes, told.written_bytes), (3, 4096, 8192));
        assert_eq!((told.threads, told.udp_packets, told.calls, told.bad_calls), (8, 10, 2107, 3));
        let count = |name: &str| -> u64 {
            told.operations.iter().filter(|one| one.name == name).map(|one| one.count).sum()
        };
        assert_eq!((count("write"), count("remove"), count("access")), (8, 1, 45));
        assert_eq!((count("getattr"), count("commit")), (59, 7));
    }

    #[test]
    fn the_kernels_client_is_read() {
        let told = client("net 0 0 0 0\nrpc 1000 5 1000\nproc3 22 1 50 2\nproc4 3 1 2 3\n");
        assert_eq!((told.calls, told.retransmissions), (1000, 5));
        assert_eq!(told.operations.len(), 3);
    }

    #[test]
    fn odd_text_is_left_out() {
        assert_eq!(nfsd("rc\nproc3 x y\nth -1\n\n"), Nfsd::default());
        assert_eq!(client("rpc 99999999999999999999999"), RpcClient::default());
    }
}
