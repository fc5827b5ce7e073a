//! Names of programs, procedures and operations, and which programs are read.

use std::fmt;

use steadfast_wire::nfs4::CALLBACK_VERSION;
use steadfast_wire::{mount, nfs3, nfsacl, nlm, nsm, recovery, rpcbind};

/// Number of the program that tells quotas; only its name is known here.
const RQUOTA: u32 = 100_011;
/// Programs of callbacks: a client chooses a number of this range, which RFC 5531 §8.2 leaves to such uses.
pub(crate) const TRANSIENT: std::ops::RangeInclusive<u32> = 0x4000_0000..=0x5fff_ffff;
/// Number of COMPOUND and of `CB_COMPOUND`.
pub(crate) const COMPOUND: u32 = 1;

/// Something that is counted by itself: a procedure, or an operation inside COMPOUNDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationKey {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The minor version of a COMPOUND.
    pub minor: Option<u32>,
    /// Whether it is an operation inside COMPOUNDs.
    pub is_part: bool,
    /// The number of the procedure or operation.
    pub number: u32,
}

/// Whether this is a program whose calls are looked for in a stream.
pub(crate) fn is_known(program: u32, version: u32) -> bool {
    match program {
        nfs3::PROGRAM | rpcbind::PROGRAM | nlm::PROGRAM => (1..=4).contains(&version),
        mount::PROGRAM | nfsacl::PROGRAM => (1..=3).contains(&version),
        nsm::PROGRAM | recovery::PROGRAM => version == 1,
        RQUOTA => (1..=2).contains(&version),
        program if TRANSIENT.contains(&program) => is_callback(program, version),
        _ => false,
    }
}

/// Whether this is a program by which a server calls its clients.
pub(crate) fn is_callback(program: u32, version: u32) -> bool {
    TRANSIENT.contains(&program) && (version == CALLBACK_VERSION || version == 4)
}

/// Whether the calls of a program change files or tell of them, so that its port is worth watching.
pub(crate) fn is_worth_watching(program: u32) -> bool {
    matches!(
        program,
        nfs3::PROGRAM
            | mount::PROGRAM
            | nlm::PROGRAM
            | nsm::PROGRAM
            | nfsacl::PROGRAM
            | recovery::PROGRAM
            | RQUOTA
    )
}

const NFS2: &[&str] = &[
    "null",
    "getattr",
    "setattr",
    "root",
    "lookup",
    "readlink",
    "read",
    "writecache",
    "write",
    "create",
    "remove",
    "rename",
    "link",
    "symlink",
    "mkdir",
    "rmdir",
    "readdir",
    "statfs",
];
/// Procedures of NFSv3, by number (RFC 1813 §3.3).
pub(crate) const NFS3: &[&str] = &[
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];
const NFS4: &[&str] = &["null", "compound"];
const CALLBACK: &[&str] = &["cb_null", "cb_compound"];
const MOUNT: &[&str] = &["null", "mnt", "dump", "umnt", "umntall", "export"];
const NFSACL: &[&str] = &["null", "getacl", "setacl"];
const NSM: &[&str] = &["null", "stat", "mon", "unmon", "unmon_all", "simu_crash", "notify"];
const PORTMAP: &[&str] = &["null", "set", "unset", "getport", "dump", "callit"];
const RPCBIND: &[&str] = &[
    "null",
    "set",
    "unset",
    "getaddr",
    "dump",
    "bcast",
    "gettime",
    "uaddr2taddr",
    "taddr2uaddr",
    "getversaddr",
    "indirect",
    "getaddrlist",
    "getstat",
];
const RECOVERY: &[&str] =
    &["null", "status", "sync", "attach", "recovered", "detach", "writez", "readz"];
const QUOTA: &[&str] = &["null", "getquota", "getactivequota", "setquota", "setactivequota"];
const NLM: &[&str] = &[
    "null",
    "test",
    "lock",
    "cancel",
    "unlock",
    "granted",
    "test_msg",
    "lock_msg",
    "cancel_msg",
    "unlock_msg",
    "granted_msg",
    "test_res",
    "lock_res",
    "cancel_res",
    "unlock_res",
    "granted_res",
    "procedure 16",
    "procedure 17",
    "procedure 18",
    "procedure 19",
    "share",
    "unshare",
    "nm_lock",
    "free_all",
];
/// Operations of COMPOUNDs (RFC 8881 §16.2, RFC 7862 §15, RFC 8276 §8.4); the first has number 3.
pub(crate) const OPERATIONS: &[&str] = &[
    "access",
    "close",
    "commit",
    "create",
    "delegpurge",
    "delegreturn",
    "getattr",
    "getfh",
    "link",
    "lock",
    "lockt",
    "locku",
    "lookup",
    "lookupp",
    "nverify",
    "open",
    "openattr",
    "open_confirm",
    "open_downgrade",
    "putfh",
    "putpubfh",
    "putrootfh",
    "read",
    "readdir",
    "readlink",
    "remove",
    "rename",
    "renew",
    "restorefh",
    "savefh",
    "secinfo",
    "setattr",
    "setclientid",
    "setclientid_confirm",
    "verify",
    "write",
    "release_lockowner",
    "backchannel_ctl",
    "bind_conn_to_session",
    "exchange_id",
    "create_session",
    "destroy_session",
    "free_stateid",
    "get_dir_delegation",
    "getdeviceinfo",
    "getdevicelist",
    "layoutcommit",
    "layoutget",
    "layoutreturn",
    "secinfo_no_name",
    "sequence",
    "set_ssv",
    "test_stateid",
    "want_delegation",
    "destroy_clientid",
    "reclaim_complete",
    "allocate",
    "copy",
    "copy_notify",
    "deallocate",
    "io_advise",
    "layouterror",
    "layoutstats",
    "offload_cancel",
    "offload_status",
    "read_plus",
    "seek",
    "write_same",
    "clone",
    "getxattr",
    "setxattr",
    "listxattrs",
    "removexattr",
];
/// Operations of callbacks (RFC 8881 §20, RFC 7862 §16); the first has number 3.
const CALLBACK_OPERATIONS: &[&str] = &[
    "cb_getattr",
    "cb_recall",
    "cb_layoutrecall",
    "cb_notify",
    "cb_push_deleg",
    "cb_recall_any",
    "cb_recallable_obj_avail",
    "cb_recall_slot",
    "cb_sequence",
    "cb_wants_cancelled",
    "cb_notify_lock",
    "cb_notify_deviceid",
    "cb_offload",
];
const ILLEGAL: u32 = 10_044;

/// Whether a procedure or operation of any program has this name, in any case.
pub fn is_operation(name: &str) -> bool {
    let all = [
        NFS2,
        NFS3,
        NFS4,
        OPERATIONS,
        CALLBACK,
        CALLBACK_OPERATIONS,
        MOUNT,
        NFSACL,
        NLM,
        NSM,
        PORTMAP,
        RPCBIND,
        RECOVERY,
        QUOTA,
    ];
    all.iter().any(|names| names.iter().any(|one| one.eq_ignore_ascii_case(name)))
}

impl OperationKey {
    /// A procedure.
    pub fn procedure(program: u32, version: u32, number: u32) -> Self {
        Self { program, version, minor: None, is_part: false, number }
    }

    /// The name of the program, without its version.
    pub fn program_name(&self) -> &'static str {
        match self.program {
            nfs3::PROGRAM => "nfs",
            mount::PROGRAM => "mount",
            nlm::PROGRAM => "nlm",
            nsm::PROGRAM => "nsm",
            nfsacl::PROGRAM => "nfsacl",
            recovery::PROGRAM => "recovery",
            rpcbind::PROGRAM if self.version == 2 => "portmap",
            rpcbind::PROGRAM => "rpcbind",
            RQUOTA => "rquota",
            _ if is_callback(self.program, self.version) => "nfs",
            _ => "program",
        }
    }

    /// The name of the procedure or operation, if it has one.
    pub fn name(&self) -> Option<&'static str> {
        let is_callback = is_callback(self.program, self.version);
        if self.is_part {
            if self.number == ILLEGAL {
                return Some(if is_callback { "cb_illegal" } else { "illegal" });
            }
            let names = if is_callback { CALLBACK_OPERATIONS } else { OPERATIONS };
            return names.get(self.number.checked_sub(3)? as usize).copied();
        }
        let names = match (self.program, self.version) {
            (nfs3::PROGRAM, 2) => NFS2,
            (nfs3::PROGRAM, 3) => NFS3,
            (nfs3::PROGRAM, 4) => NFS4,
            (mount::PROGRAM, _) => MOUNT,
            (nlm::PROGRAM, _) => NLM,
            (nsm::PROGRAM, _) => NSM,
            (nfsacl::PROGRAM, _) => NFSACL,
            (recovery::PROGRAM, _) => RECOVERY,
            (rpcbind::PROGRAM, 2) => PORTMAP,
            (rpcbind::PROGRAM, _) => RPCBIND,
            (RQUOTA, _) => QUOTA,
            _ if is_callback => CALLBACK,
            _ => return None,
        };
        names.get(self.number as usize).copied()
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program_name();
        match (program, self.minor) {
            ("program", _) => write!(f, "program{}.{}", self.program, self.version)?,
            ("nfs", Some(minor)) => write!(f, "nfs4.{minor}")?,
            ("nfs", None) if is_callback(self.program, self.version) => f.write_str("nfs4")?,
            _ => write!(f, "{program}{}", self.version)?,
        }
        match self.name() {
            Some(name) => write!(f, " {name}"),
            None => write!(f, " {}", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use steadfast_wire::nfs4::{CallbackOp4, Op4};

    use super::OperationKey;

    fn part(program: u32, version: u32, number: u32) -> String {
        let key = OperationKey { program, version, minor: Some(1), is_part: true, number };
        key.to_string()
    }

    #[test]
    fn operations_have_their_names() {
        for operation in Op4::ALL {
            let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
            let wanted = plain(&format!("{operation:?}"));
            assert_eq!(plain(&part(100_003, 4, *operation as u32)), format!("nfs4.1 {wanted}"));
        }
        for operation in CallbackOp4::ALL {
            let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
            let wanted = plain(&format!("{operation:?}"));
            let found = plain(&part(0x4000_0000, 1, *operation as u32));
            assert_eq!(found, format!("nfs4.1 cb{wanted}"));
        }
        let rows = [
            (100_003, 2, 17, "nfs2 statfs"),
            (100_003, 3, 21, "nfs3 commit"),
            (100_003, 4, 1, "nfs4 compound"),
            (100_005, 3, 5, "mount3 export"),
            (100_021, 4, 23, "nlm4 free_all"),
            (100_024, 1, 6, "nsm1 notify"),
            (100_227, 3, 2, "nfsacl3 setacl"),
            (100_000, 2, 3, "portmap2 getport"),
            (100_000, 4, 11, "rpcbind4 getaddrlist"),
            (0x2053_4a52, 1, 2, "recovery1 sync"),
            (0x2053_4a52, 1, 5, "recovery1 detach"),
            (0x2053_4a52, 1, 7, "recovery1 readz"),
            (0x4000_0000, 1, 1, "nfs4 cb_compound"),
            (7, 1, 1, "program7.1 1"),
        ];
        for (program, version, number, name) in rows {
            assert_eq!(OperationKey::procedure(program, version, number).to_string(), name);
        }
    }
}
