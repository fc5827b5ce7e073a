//! The table of programs: what this server answers to. No other part of the server knows the number of a program
//! that is served, or which versions of it. What does not link the engine has lists of its own: `client`,
//! `observe/src/capture/programs.rs`, `bench/src/storm/calls.rs` and `fuzz`.
//!
//! The procedures of all versions are numbered without gaps ([`OperationId`]), so that who counts
//! calls needs an array and no map.

use std::fmt;

use crate::operation::{OperationId, OperationName};
use crate::program::{OptionalVersions, Port, Program, Row, Version};
use crate::{mount, nfs3, nfsacl, nlm, nsm, recovery, rpcbind};

/// Every program that is served; what is called most comes first.
pub(crate) static PROGRAMS: [Program; 7] = [
    nfs3::PROGRAM,
    nfsacl::PROGRAM,
    nlm::PROGRAM,
    mount::PROGRAM,
    nsm::PROGRAM,
    rpcbind::PROGRAM,
    recovery::PROGRAM,
];

/// A program and version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServedVersion {
    /// Number of the program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// Whether it is served over UDP too: not NFSv4 (RFC 8881 §2.9.1).
    pub over_udp: bool,
}

/// What is to be registered with an rpcbind that runs on the host: every program and version that
/// answers on the port of NFS, by number, but the recovery program.
pub fn to_register(asked_for: OptionalVersions) -> Vec<ServedVersion> {
    let of_nfs = PROGRAMS.iter().filter(|program| program.port == Port::Nfs);
    let mut all: Vec<ServedVersion> = of_nfs
        .flat_map(|program| {
            program.served(asked_for).iter().map(|version| ServedVersion {
                program: program.number,
                version: version.number,
                over_udp: version.is_over_udp(),
            })
        })
        .collect();
    all.sort_unstable();
    all
}

/// One version of a program, with the number of its first procedure among those of all.
#[derive(Clone, Copy)]
struct Numbered {
    program: &'static Program,
    version: &'static Version,
    first: u16,
}

const VERSIONS: usize = {
    let (mut count, mut index) = (0, 0);
    while index < PROGRAMS.len() {
        count += PROGRAMS[index].versions.len();
        index += 1;
    }
    count
};

static NUMBERED: [Numbered; VERSIONS] = numbered();

const fn numbered() -> [Numbered; VERSIONS] {
    let program = &PROGRAMS[0];
    let unset = Numbered { program, version: &program.versions[0], first: 0 };
    let mut numbered = [unset; VERSIONS];
    let (mut at, mut first, mut index) = (0, 0, 0);
    while index < PROGRAMS.len() {
        let program = &PROGRAMS[index];
        let mut number = 0;
        while number < program.versions.len() {
            let version = &program.versions[number];
            numbered[at] = Numbered { program, version, first };
            first += version.procedures.len() as u16;
            at += 1;
            number += 1;
        }
        index += 1;
    }
    numbered
}

/// Procedures of all versions.
const PROCEDURES: u16 = {
    let all = numbered();
    let last = &all[VERSIONS - 1];
    last.first + last.version.procedures.len() as u16
};

/// Why nobody answers a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unserved {
    Program,
    /// The program is served in these versions.
    Version {
        low: u32,
        high: u32,
    },
}

/// The row of a procedure and its number, or `None` if the version has no such procedure.
pub(crate) type Found = Option<(OperationId, &'static Row)>;

/// Finds a procedure.
///
/// # Errors
/// [`Unserved`] if the program is not served, or not in this version.
pub(crate) fn find(
    program: u32,
    version: u32,
    procedure: u32,
    asked_for: OptionalVersions,
) -> Result<Found, Unserved> {
    let is_meant = |of: &&Numbered| of.program.number == program && of.version.number == version;
    let found = NUMBERED.iter().find(is_meant);
    if let Some(found) = found.filter(|found| asked_for.has(found.version)) {
        let row = found.version.procedures.get(procedure as usize);
        return Ok(row.map(|row| (OperationId(found.first + procedure as u16), row)));
    }
    let known = PROGRAMS.iter().find(|known| known.number == program).ok_or(Unserved::Program)?;
    let served = known.served(asked_for);
    let number = |version: Option<&Version>| version.map_or(0, |version| version.number);
    let (low, high) = (number(served.first()), number(served.last()));
    Err(Unserved::Version { low, high })
}

impl OperationId {
    /// Calls of programs, versions and procedures that are not served, and what is no call.
    pub const OTHER: Self = Self(PROCEDURES);

    /// How many there are, [`OperationId::OTHER`] included.
    pub const COUNT: usize = PROCEDURES as usize + 1;

    /// The operation of a procedure.
    pub fn of(program: u32, version: u32, procedure: u32) -> Self {
        match find(program, version, procedure, OptionalVersions::ALL) {
            Ok(Some((id, _))) => id,
            Ok(None) | Err(_) => Self::OTHER,
        }
    }

    /// All, by index.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=PROCEDURES).map(Self)
    }

    /// The operation with this index.
    pub fn from_index(index: usize) -> Option<Self> {
        (index < Self::COUNT).then_some(Self(index as u16))
    }

    /// What it is called.
    pub fn name(self) -> OperationName {
        let named = |of: &Numbered| {
            let procedure = self.0.checked_sub(of.first)?;
            let row = of.version.procedures.get(usize::from(procedure))?;
            Some(OperationName {
                protocol: of.program.name,
                program: of.program.number,
                version: of.version.number,
                procedure: u32::from(procedure),
                procedure_name: row.operation.name,
            })
        };
        NUMBERED.iter().find_map(named).unwrap_or(OperationName {
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

    const NFS: u32 = steadfast_wire::nfs3::PROGRAM;

    #[test]
    fn every_procedure_has_a_number_of_its_own_and_finds_its_name_again() {
        let mut next = 0;
        for Numbered { program, version, .. } in &NUMBERED {
            for procedure in 0..version.procedures.len() as u32 {
                let id = OperationId::of(program.number, version.number, procedure);
                assert_eq!(id.index(), next);
                let name = id.name();
                assert_eq!(
                    (name.program, name.version, name.procedure),
                    (program.number, version.number, procedure)
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
        for (program, version, procedure) in
            [(NFS, 3, 22), (NFS, 2, 18), (NFS, 4, 2), (NFS, 5, 0), (1, 1, 0)]
        {
            assert_eq!(OperationId::of(program, version, procedure), OperationId::OTHER);
        }
        assert_eq!(OperationId::OTHER.to_string(), "other");
        assert_eq!(OperationId::of(NFS, 2, 17).to_string(), "nfs2 STATFS");
        assert_eq!(OperationId::of(NFS, 3, 1).to_string(), "nfs3 GETATTR");
    }

    #[test]
    fn versions_of_a_program_are_ascending() {
        for program in &PROGRAMS {
            for [one, next] in program.versions.array_windows() {
                assert!(one.number < next.number, "{}", program.name);
            }
        }
    }

    #[test]
    fn null_is_procedure_0_of_all_and_asks_nobody_who_he_is() {
        for Numbered { program, version, .. } in &NUMBERED {
            for (number, row) in version.procedures.iter().enumerate() {
                let is_null = row.operation.name == "NULL";
                assert_eq!(is_null, number == 0, "{} {row:?}", program.name);
                assert_eq!(row.operation.asks_identity, !is_null);
            }
        }
    }

    #[test]
    fn nfs2_and_nfs4_are_served_when_asked_for() {
        let of = |nfs2, nfs4| OptionalVersions { nfs2, nfs4 };
        for (asked_for, low, high) in [
            (of(false, false), 3, 3),
            (of(false, true), 3, 4),
            (of(true, false), 2, 3),
            (of(true, true), 2, 4),
        ] {
            for version in 0..6 {
                let found = find(NFS, version, 1, asked_for);
                if (low..=high).contains(&version) {
                    assert!(matches!(found, Ok(Some(_))), "{asked_for:?} {version}");
                } else {
                    let Err(Unserved::Version { low: told_low, high: told_high }) = found else {
                        panic!("{asked_for:?} {version}");
                    };
                    assert_eq!((told_low, told_high), (low, high));
                }
            }
            let registered = to_register(asked_for);
            let registered = registered.iter().filter(|it| it.program == NFS);
            let registered: Vec<_> = registered.map(|it| (it.version, it.over_udp)).collect();
            let expected: Vec<_> = (low..=high).map(|version| (version, version != 4)).collect();
            assert_eq!(registered, expected);
        }
    }

    #[test]
    fn all_that_answers_on_the_port_of_nfs_is_registered_but_the_recovery_program() {
        let registered: Vec<_> = to_register(OptionalVersions::default())
            .into_iter()
            .map(|it| (it.program, it.version))
            .collect();
        let expected = [
            (100_003, 3),
            (100_005, 1),
            (100_005, 2),
            (100_005, 3),
            (100_021, 1),
            (100_021, 3),
            (100_021, 4),
            (100_024, 1),
            (100_227, 3),
        ];
        assert_eq!(registered, expected);
    }
}
