//! nfs-ganesha: how it is configured here, and how it is started.
//!
//! Everything that is not said is as it has it by default. NLM and quotas are off, as nothing here
//! uses them, and there is no grace period, as nobody has anything to reclaim.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

pub(crate) const PROGRAM: &str = "ganesha.nfsd";
/// What it needs beside: its storage, and a port mapper without which it does not start.
pub(crate) const PACKAGES: &[&str] = &["nfs-ganesha", "nfs-ganesha-vfs", "rpcbind"];
/// A block that has it log warnings and no less.
pub(crate) const WARNINGS_ONLY: &str = "LOG { Default_Log_Level = WARN; }\n";
/// Whom root becomes; its own default is -2.
const NOBODY: (u32, u32) = (65_534, 65_534);
/// Where it serves MOUNT.
pub(crate) const MOUNT_PORT: u16 = 20_048;

/// A server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration<'a> {
    /// Versions of NFS.
    pub(crate) protocols: &'a str,
    pub(crate) port: u16,
    /// Further parameters of its core, each with its semicolon.
    pub(crate) more: &'a str,
}

impl Configuration<'_> {
    /// All of its configuration but what it exports.
    pub(crate) fn text(&self) -> String {
        let Self { protocols, port, more } = self;
        format!(
            "NFS_CORE_PARAM {{ Protocols = {protocols}; NFS_Port = {port}; MNT_Port = {MOUNT_PORT}; \
             Enable_NLM = false; Enable_RQUOTA = false; {more} }}\n\
             NFSv4 {{ Graceless = true; }}\n"
        )
    }
}

/// How a share maps the identities of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Squash {
    /// Root is root.
    None,
    /// Root becomes nobody.
    Root,
    /// Everybody becomes this user and group.
    All(u32, u32),
}

/// Adds a share for every client to a configuration.
pub(crate) fn export(
    text: &mut String,
    number: usize,
    directory: &str,
    path: &str,
    is_read_only: bool,
    squash: Squash,
) {
    let access = if is_read_only { "RO" } else { "RW" };
    let anonymous = |squash, (uid, gid)| {
        format!("Squash = {squash}; Anonymous_Uid = {uid}; Anonymous_Gid = {gid};")
    };
    let squash = match squash {
        Squash::None => "Squash = No_Root_Squash;".to_owned(),
        Squash::Root => anonymous("Root_Squash", NOBODY),
        Squash::All(uid, gid) => anonymous("All_Squash", (uid, gid)),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "EXPORT {{ Export_Id = {number}; Path = {directory}; Pseudo = {path}; \
         Access_Type = {access}; {squash} SecType = sys; FSAL {{ Name = VFS; }} }}"
    );
}

/// Adds the arguments that it runs by, as a process that stays in the foreground.
pub(crate) fn arguments(command: &mut Command, configuration: &Path, log: &Path, pid: &Path) {
    command.arg("-F").arg("-f").arg(configuration).arg("-L").arg(log).arg("-p").arg(pid);
}
