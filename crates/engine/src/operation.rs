//! The operation table: one row a procedure, so that no procedure can forget a rule.
//!
//! The engine applies the columns: only changing calls pass the duplicate request cache, only
//! rows that change are refused on a read-only share, a call whose obligation failed is answered
//! with a failure body of the row's size. Rows are numbered without gaps ([`OperationId`]), so
//! that who counts calls needs an array and no map.

use std::fmt;

use crate::dispatch::{PROGRAM_MOUNT, PROGRAM_NFS, PROGRAM_NFSACL, PROGRAM_RPCBIND};

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
    /// Whether the results begin with a status, 0 for success.
    pub(crate) has_status: bool,
}

const fn reads(name: &'static str, failure_words: usize) -> Operation {
    Operation { name, is_changing: false, is_remembered: false, failure_words, has_status: true }
}

const fn changes(name: &'static str, failure_words: usize) -> Operation {
    Operation { is_changing: true, is_remembered: true, ..reads(name, failure_words) }
}

/// A procedure that cannot fail once its arguments are decoded.
const fn answers(name: &'static str) -> Operation {
    Operation { has_status: false, ..reads(name, 0) }
}

/// NFSv3's procedures (RFC 1813 §3.3) by number.
pub(crate) static NFS3: [Operation; 22] = [
    answers("NULL"),
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
    reads("COMMIT", 2),
];

/// NFSACL version 3's procedures by number.
pub(crate) static NFSACL3: [Operation; 3] =
    [answers("NULL"), reads("GETACL", 1), changes("SETACL", 1)];

/// MOUNT version 3's procedures (RFC 1813 appendix I) by number.
pub(crate) static MOUNT3: [Operation; 6] = [
    answers("NULL"),
    reads("MNT", 0),
    answers("DUMP"),
    answers("UMNT"),
    answers("UMNTALL"),
    answers("EXPORT"),
];

/// MOUNT versions 1 and 2 (RFC 1094 appendix A) by number.
pub(crate) static MOUNT1: [Operation; 7] = [
    answers("NULL"),
    reads("MNT", 0),
    answers("DUMP"),
    answers("UMNT"),
    answers("UMNTALL"),
    answers("EXPORT"),
    answers("EXPORTALL"),
];

/// The port mapper, version 2 (RFC 1833 §3) by number.
pub(crate) static PORTMAP2: [Operation; 6] = [
    answers("NULL"),
    answers("SET"),
    answers("UNSET"),
    answers("GETPORT"),
    answers("DUMP"),
    answers("CALLIT"),
];

/// rpcbind, versions 3 and 4 (RFC 1833 §2) by number.
pub(crate) static RPCBIND: [Operation; 13] = [
    answers("NULL"),
    answers("SET"),
    answers("UNSET"),
    answers("GETADDR"),
    answers("DUMP"),
    answers("CALLIT"),
    answers("GETTIME"),
    answers("UADDR2TADDR"),
    answers("TADDR2UADDR"),
    answers("GETVERSADDR"),
    answers("INDIRECT"),
    answers("GETADDRLIST"),
    answers("GETSTAT"),
];

/// The procedures of one version of a program.
struct Table {
    protocol: &'static str,
    program: u32,
    version: u32,
    rows: &'static [Operation],
    /// The number of the first row among the rows of all tables.
    first: u16,
}

const fn table(
    protocol: &'static str,
    program: u32,
    version: u32,
    rows: &'static [Operation],
) -> Table {
    Table { protocol, program, version, rows, first: 0 }
}

/// Every program and version that is served; what is called most comes first.
static TABLES: [Table; 8] = numbered([
    table("nfs", PROGRAM_NFS, 3, &NFS3),
    table("nfsacl", PROGRAM_NFSACL, 3, &NFSACL3),
    table("mount", PROGRAM_MOUNT, 1, &MOUNT1),
    table("mount", PROGRAM_MOUNT, 2, &MOUNT1),
    table("mount", PROGRAM_MOUNT, 3, &MOUNT3),
    table("rpcbind", PROGRAM_RPCBIND, 2, &PORTMAP2),
    table("rpcbind", PROGRAM_RPCBIND, 3, &RPCBIND),
    table("rpcbind", PROGRAM_RPCBIND, 4, &RPCBIND),
]);

/// Rows of all tables.
const ROWS: u16 = NFS3.len() as u16
    + NFSACL3.len() as u16
    + 2 * MOUNT1.len() as u16
    + MOUNT3.len() as u16
    + PORTMAP2.len() as u16
    + 2 * RPCBIND.len() as u16;

const fn numbered(mut tables: [Table; 8]) -> [Table; 8] {
    let (mut index, mut next) = (0, 0);
    while index < tables.len() {
        tables[index].first = next;
        next += tables[index].rows.len() as u16;
        index += 1;
    }
    assert!(next == ROWS, "ROWS counts other tables");
    tables
}

/// The row of a procedure, if the server knows it.
pub(crate) fn find(
    program: u32,
    version: u32,
    procedure: u32,
) -> Option<(OperationId, &'static Operation)> {
    let table = TABLES.iter().find(|table| table.program == program && table.version == version)?;
    let row = table.rows.get(procedure as usize)?;
    Some((OperationId(table.first + procedure as u16), row))
}

/// An operation that the server knows, numbered without gaps, or [`OperationId::OTHER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(u16);

/// What an operation is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationName {
    /// The protocol: `nfs`, `nfsacl`, `mount`, `rpcbind`, or `other`.
    pub protocol: &'static str,
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
    /// Its name in the RFC.
    pub procedure_name: &'static str,
}

impl OperationId {
    /// Calls of programs, versions and procedures that are not served, and what is no call.
    pub const OTHER: Self = Self(ROWS);

    /// How many there are, [`OperationId::OTHER`] included.
    pub const COUNT: usize = ROWS as usize + 1;

    /// The operation of a procedure.
    pub fn of(program: u32, version: u32, procedure: u32) -> Self {
        find(program, version, procedure).map_or(Self::OTHER, |(id, _)| id)
    }

    /// All, by index.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=ROWS).map(Self)
    }

    /// Less than [`OperationId::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The operation with this index.
    pub fn from_index(index: usize) -> Option<Self> {
        (index < Self::COUNT).then_some(Self(index as u16))
    }

    /// What it is called.
    pub fn name(self) -> OperationName {
        let row = |table: &'static Table| {
            let procedure = self.0.checked_sub(table.first)?;
            let row = table.rows.get(usize::from(procedure))?;
            Some(OperationName {
                protocol: table.protocol,
                program: table.program,
                version: table.version,
                procedure: u32::from(procedure),
                procedure_name: row.name,
            })
        };
        TABLES.iter().find_map(row).unwrap_or(OperationName {
            protocol: "other",
            program: 0,
            version: 0,
            procedure: 0,
            procedure_name: "OTHER",
        })
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        if *self == Self::OTHER {
            return f.write_str(name.protocol);
        }
        write!(f, "{}{} {}", name.protocol, name.version, name.procedure_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_number_of_its_own_and_finds_its_name_again() {
        let mut next = 0;
        for table in &TABLES {
            for procedure in 0..table.rows.len() as u32 {
                let id = OperationId::of(table.program, table.version, procedure);
                assert_eq!(id.index(), next);
                let name = id.name();
                assert_eq!(
                    (name.program, name.version, name.procedure),
                    (table.program, table.version, procedure)
                );
                next += 1;
            }
        }
        assert_eq!(OperationId::OTHER.index(), next);
        assert_eq!(OperationId::all().count(), OperationId::COUNT);
        assert_eq!(OperationId::from_index(next), Some(OperationId::OTHER));
        assert_eq!(OperationId::from_index(next + 1), None);
    }

    #[test]
    fn what_is_not_served_is_other() {
        for (program, version, procedure) in [(PROGRAM_NFS, 3, 22), (PROGRAM_NFS, 4, 0), (1, 1, 0)]
        {
            assert_eq!(OperationId::of(program, version, procedure), OperationId::OTHER);
        }
        assert_eq!(OperationId::OTHER.to_string(), "other");
        assert_eq!(OperationId::of(PROGRAM_NFS, 3, 1).to_string(), "nfs3 GETATTR");
    }
}
