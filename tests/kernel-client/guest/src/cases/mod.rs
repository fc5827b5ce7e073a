//! The cases: one row each, one function each.

pub(crate) mod attributes;
mod contended;
pub(crate) mod crashes;
mod delegations;
pub(crate) mod directories;
pub(crate) mod extents;
pub(crate) mod files;
mod guest_monitor;
pub(crate) mod identities;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod mounts;
mod nfs4_acls;
pub(crate) mod shares;
pub(crate) mod trees;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;

use crate::context::Context;

/// When the host runs a case.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// In the one boot that most cases share.
    Main,
    /// In a boot that the host kills at a random moment, and again in one that checks.
    Killed,
    /// In two guests at once, beside others, with a judge of its own (`--contended`).
    Contended,
}

type Function = fn(&Context) -> Result<()>;

/// Name, stage, time limit in the short and the long version in seconds, function.
///
/// A limit is for a client that hangs: several times what the case takes on a slow machine.
const CASES: &[(&str, Stage, u64, u64, Function)] = &[
    ("mount-rpcbind", Stage::Main, 60, 60, mounts::through_rpcbind),
    ("mount-sizes", Stage::Main, 120, 240, mounts::sizes),
    ("mount-options", Stage::Main, 120, 120, mounts::options),
    ("mount-lines", Stage::Main, 180, 180, mounts::printed_lines),
    ("links-and-special-files", Stage::Main, 60, 60, directories::links_and_special_files),
    ("names", Stage::Main, 60, 120, directories::names),
    ("rename", Stage::Main, 60, 60, directories::rename),
    ("directory-listed-under-change", Stage::Main, 120, 1800, directories::listed_under_change),
    ("times", Stage::Main, 60, 60, attributes::times),
    ("modes-and-owners", Stage::Main, 60, 60, attributes::modes_and_owners),
    ("file-system-statistics", Stage::Main, 60, 60, attributes::file_system_statistics),
    ("local-changes", Stage::Main, 60, 60, attributes::local_changes),
    ("acl-set-and-read", Stage::Main, 60, 60, attributes::acl_set_and_read),
    ("acl-enforced", Stage::Main, 60, 60, attributes::acl_enforced),
    ("acl-inherited", Stage::Main, 60, 60, attributes::acl_inherited),
    ("acl-kept-by-cp", Stage::Main, 60, 60, attributes::acl_kept_by_cp),
    ("nfs4-acls", Stage::Main, 60, 60, nfs4_acls::set_read_and_enforced),
    ("extents", Stage::Main, 60, 60, extents::extents),
    ("extended-attributes", Stage::Main, 60, 60, extents::extended_attributes),
    ("open-unlinked", Stage::Main, 60, 60, files::open_unlinked),
    ("open-renamed-over", Stage::Main, 60, 60, files::open_renamed_over),
    ("owner-writes-0444", Stage::Main, 60, 60, files::owner_writes_0444),
    ("exclusive-create", Stage::Main, 60, 120, files::exclusive_create),
    ("append", Stage::Main, 60, 60, files::append),
    ("sparse-files", Stage::Main, 60, 60, files::sparse),
    ("big-file", Stage::Main, 120, 900, files::big),
    ("locks", Stage::Main, 120, 300, locks::between_clients),
    ("locks-reclaimed", Stage::Main, 240, 240, locks::reclaimed),
    ("delegations", Stage::Main, 120, 120, delegations::recalled_for_nfs3),
    ("delegations-asked", Stage::Main, 120, 120, delegations::asked_for_nfs3),
    ("delegations-opened-again", Stage::Main, 120, 900, delegations::opened_again),
    ("supplementary-groups", Stage::Main, 60, 60, identities::supplementary_groups),
    ("no-root-squash", Stage::Main, 60, 60, identities::no_root_squash),
    ("root-squash", Stage::Main, 60, 60, identities::root_squash),
    ("all-squash", Stage::Main, 60, 60, identities::all_squash),
    ("read-only-share", Stage::Main, 60, 60, identities::read_only_share),
    ("enospc", Stage::Main, 120, 120, limits::enospc),
    ("enospc-inodes", Stage::Main, 120, 120, limits::enospc_inodes),
    ("edquot", Stage::Main, 120, 120, limits::edquot),
    ("shares-changed", Stage::Main, 120, 120, shares::changed_under_mounts),
    ("shares-nested", Stage::Main, 60, 60, shares::nested),
    ("shares-flavours", Stage::Main, 60, 60, shares::flavours),
    ("model", Stage::Main, 120, 1200, crate::model::case),
    ("source-tree", Stage::Main, 240, 600, trees::source),
    ("git", Stage::Main, 180, 600, trees::git),
    ("server-killed", Stage::Main, 240, 900, crashes::server_killed),
    ("contended", Stage::Contended, 240, 7200, contended::contend),
    ("client-killed", Stage::Killed, 120, 120, crashes::client_killed),
];

/// The function of a case.
pub(crate) fn find(name: &str) -> Result<Function> {
    row(name).map(|row| row.4)
}

/// How long a case may take.
pub(crate) fn limit(name: &str, is_long: bool) -> Result<Duration> {
    let row = row(name)?;
    Ok(Duration::from_secs(if is_long { row.3 } else { row.2 }))
}

fn row(name: &str) -> Result<&'static (&'static str, Stage, u64, u64, Function)> {
    CASES.iter().find(|row| row.0 == name).with_context(|| format!("no case is called {name}"))
}

/// Prints name, stage and limit of each case.
pub(crate) fn list(is_long: bool) {
    for (name, stage, short, long, _) in CASES {
        let stage = match stage {
            Stage::Main => "main",
            Stage::Killed => "killed",
            Stage::Contended => "contended",
        };
        println!("{name} {stage} {}", if is_long { long } else { short });
    }
}

/// `result` has to be the error `expected`.
pub(crate) fn expect_errno<T>(
    result: std::io::Result<T>,
    expected: Errno,
    what: &str,
) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(expected.raw_os_error()) => Ok(()),
        Err(error) => bail!("{what}: expected {expected}, got {error}"),
        Ok(_) => bail!("{what}: expected {expected}, but it succeeded"),
    }
}

/// The two have to be equal.
pub(crate) fn expect_equal<T: PartialEq + std::fmt::Debug>(
    found: &T,
    expected: &T,
    what: &str,
) -> Result<()> {
    if found != expected {
        bail!("{what}: expected {expected:?}, found {found:?}");
    }
    Ok(())
}

/// Bytes have to be equal; says where they differ instead of printing them.
pub(crate) fn expect_bytes(found: &[u8], expected: &[u8], what: &str) -> Result<()> {
    if found.len() != expected.len() {
        bail!("{what}: {} bytes instead of {}", found.len(), expected.len());
    }
    if let Some(at) = found.iter().zip(expected).position(|(left, right)| left != right) {
        let wrong = found.iter().zip(expected).filter(|(left, right)| left != right).count();
        bail!(
            "{what}: {wrong} bytes differ, the first at {at}: {:#04x} instead of {:#04x}",
            found[at],
            expected[at]
        );
    }
    Ok(())
}
