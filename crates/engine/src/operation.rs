//! The operation table: one row a procedure, so that no procedure can forget a rule.
//!
//! The engine applies the columns: only changing calls pass the duplicate request cache, only
//! rows that change are refused on a read-only share, a call whose obligation failed is answered
//! with a failure body of the row's size.

/// What the engine must know of a procedure before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// The procedure's name in the RFC.
    pub(crate) name: &'static str,
    /// Whether it changes something: refused on read-only shares.
    pub(crate) is_changing: bool,
    /// Whether a repetition must not be executed: remembered by the duplicate request cache.
    pub(crate) is_remembered: bool,
    /// How many 32-bit words of zero follow the status when it fails and nothing is known of
    /// the objects (absent attributes).
    pub(crate) failure_words: usize,
}

const fn reads(name: &'static str, failure_words: usize) -> Operation {
    Operation { name, is_changing: false, is_remembered: false, failure_words }
}

const fn changes(name: &'static str, failure_words: usize) -> Operation {
    Operation { name, is_changing: true, is_remembered: true, failure_words }
}

/// NFSv3's procedures (RFC 1813 §3.3) by number.
pub(crate) static NFS3: [Operation; 22] = [
    reads("NULL", 0),
    reads("GETATTR", 0),
    changes("SETATTR", 2),
    reads("LOOKUP", 1),
    reads("ACCESS", 1),
    reads("READLINK", 1),
    reads("READ", 1),
    changes("WRITE", 2),
    changes("CREATE", 2),
    changes("MKDIR", 2),
    changes("SYMLINK", 2),
    changes("MKNOD", 2),
    changes("REMOVE", 2),
    changes("RMDIR", 2),
    changes("RENAME", 4),
    changes("LINK", 3),
    reads("READDIR", 1),
    reads("READDIRPLUS", 1),
    reads("FSSTAT", 1),
    reads("FSINFO", 1),
    reads("PATHCONF", 1),
    // COMMIT makes stable what was changed before; doing it twice does no harm.
    Operation { name: "COMMIT", is_changing: false, is_remembered: false, failure_words: 2 },
];

/// NFSACL version 3's procedures by number.
pub(crate) static NFSACL3: [Operation; 3] =
    [reads("NULL", 0), reads("GETACL", 1), changes("SETACL", 1)];

/// MOUNT version 3's procedures (RFC 1813 appendix I) by number.
pub(crate) static MOUNT3: [Operation; 6] = [
    reads("NULL", 0),
    reads("MNT", 0),
    reads("DUMP", 0),
    reads("UMNT", 0),
    reads("UMNTALL", 0),
    reads("EXPORT", 0),
];

/// MOUNT versions 1 and 2 (RFC 1094 appendix A) by number.
pub(crate) static MOUNT1: [Operation; 7] = [
    reads("NULL", 0),
    reads("MNT", 0),
    reads("DUMP", 0),
    reads("UMNT", 0),
    reads("UMNTALL", 0),
    reads("EXPORT", 0),
    reads("EXPORTALL", 0),
];

/// The port mapper, version 2 (RFC 1833 §3) by number. CALLIT is not served: it would make this
/// server an amplifier of other people's datagrams.
pub(crate) static PORTMAP2: [Operation; 5] =
    [reads("NULL", 0), reads("SET", 0), reads("UNSET", 0), reads("GETPORT", 0), reads("DUMP", 0)];

/// rpcbind, versions 3 and 4 (RFC 1833 §2) by number.
pub(crate) static RPCBIND: [Operation; 12] = [
    reads("NULL", 0),
    reads("SET", 0),
    reads("UNSET", 0),
    reads("GETADDR", 0),
    reads("DUMP", 0),
    reads("CALLIT", 0),
    reads("GETTIME", 0),
    reads("UADDR2TADDR", 0),
    reads("TADDR2UADDR", 0),
    reads("GETVERSADDR", 0),
    reads("INDIRECT", 0),
    reads("GETADDRLIST", 0),
];
