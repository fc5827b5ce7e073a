//! The table of programs: what this server answers to. No other part of the server knows the number of a program
//! that is served, which versions of it, or over which transports. What does not link the engine has lists of its own: `client`,
//! `observe/src/capture/programs.rs`, `bench/src/storm/calls.rs` and `fuzz`.
//!
//! The procedures of all versions are numbered without gaps ([`OperationId`]), so that who counts
//! calls needs an array and no map.

use std::fmt;

use crate::operation::{OperationId, OperationName};
use crate::peer::Transport;
use crate::program::{OptionalVersions, Port, Program, Row, ServedVersion, Version};
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

/// What is to be registered with an rpcbind that runs on the host: every program and version that
/// answers on the port of NFS, by number, but the recovery program.
pub fn to_register(asked_for: OptionalVersions) -> Vec<ServedVersion> {
    let of_nfs = PROGRAMS.iter().filter(|program| program.port == Port::Nfs);
    let mut all: Vec<ServedVersion> =
        of_nfs.flat_map(|program| program.services(asked_for)).collect();
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

impl Numbered {
    /// A version of a program, whether it is served or not.
    #[inline]
    fn find(program: u32, version: u32) -> Option<&'static Self> {
        let is_meant = |of: &&Self| of.program.number == program && of.version.number == version;
        NUMBERED.iter().find(is_meant)
    }

    #[inline]
    fn procedure(&self, procedure: u32) -> Found {
        let row = self.version.procedures.get(procedure as usize);
        row.map(|row| (OperationId(self.first + procedure as u16), row))
    }
}

/// Finds a procedure for a call that came by a transport.
///
/// # Errors
/// [`Unserved`] if the program is not served over it, or not in this version.
pub(crate) fn find(
    program: u32,
    version: u32,
    procedure: u32,
    transport: Transport,
    asked_for: OptionalVersions,
) -> Result<Found, Unserved> {
    let is_served = |of: &&Numbered| asked_for.has(of.version) && of.version.over.has(transport);
    if let Some(found) = Numbered::find(program, version).filter(is_served) {
        return Ok(found.procedure(procedure));
    }
    let known = PROGRAMS.iter().find(|known| known.number == program).ok_or(Unserved::Program)?;
    match known.served_over(transport, asked_for) {
        [] => Err(Unserved::Program),
        [low, .., high] => Err(Unserved::Version { low: low.number, high: high.number }),
        [only] => Err(Unserved::Version { low: only.number, high: only.number }),
    }
}

impl OperationId {
    /// Calls of programs, versions and procedures that are not served, and what is no call.
    pub const OTHER: Self = Self(PROCEDURES);

    /// How many there are, [`OperationId::OTHER`] included.
    pub const COUNT: usize = PROCEDURES as usize + 1;

    /// The operation of a procedure.
    pub fn of(program: u32, version: u32, procedure: u32) -> Self {
        let found = Numbered::find(program, version);
        found.and_then(|found| found.procedure(procedure)).map_or(Self::OTHER, |(id, _)| id)
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
                let found = find(NFS, version, 1, Transport::Tcp, asked_for);
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
            let by_udp = |it: &ServedVersion| (it.version, it.over.has(Transport::Udp));
            let registered: Vec<_> = registered.map(by_udp).collect();
            let expected: Vec<_> = (low..=high).map(|version| (version, version != 4)).collect();
            assert_eq!(registered, expected);
        }
    }

    #[test]
    fn all_but_nfs4_is_served_over_tcp_and_udp() {
        let all = OptionalVersions::ALL;
        for Numbered { program, version, .. } in &NUMBERED {
            let is_found = |transport| {
                matches!(find(program.number, version.number, 0, transport, all), Ok(Some(_)))
            };
            let is_nfs4 = (program.number, version.number) == (NFS, 4);
            let name = program.name;
            assert!(is_found(Transport::Tcp), "{name} {}", version.number);
            assert_eq!(is_found(Transport::Udp), !is_nfs4, "{name} {}", version.number);
        }
        let over_udp = find(NFS, 4, 1, Transport::Udp, all);
        assert!(matches!(over_udp, Err(Unserved::Version { low: 2, high: 3 })), "{over_udp:?}");
    }

    #[test]
    fn no_version_between_others_is_left_out_for_its_transport_or_for_lack_of_demand() {
        for program in &PROGRAMS {
            for transport in [Transport::Tcp, Transport::Udp] {
                for nfs2 in [false, true] {
                    for nfs4 in [false, true] {
                        let asked_for = OptionalVersions { nfs2, nfs4 };
                        let served = program.served_over(transport, asked_for);
                        let is_served = |version: &Version| {
                            asked_for.has(version) && version.over.has(transport)
                        };
                        assert!(served.iter().all(is_served), "{} {transport:?}", program.name);
                    }
                }
            }
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
