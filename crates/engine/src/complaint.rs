//! What is to be logged about a peer.

use std::sync::Arc;

use steadfast_state::StateError;
use steadfast_vfs::FsError;

/// What a peer did wrong in a call that was answered all the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Complaint {
    /// Arguments that could not be decoded.
    #[error("sent {operation} arguments that could not be decoded (program {program})")]
    GarbageArguments {
        /// RPC program.
        program: u32,
        /// The procedure's name in its RFC.
        operation: &'static str,
    },
    /// Credentials that could not be decoded or are not served.
    #[error(
        "sent credentials of flavour {flavour}, or a verifier, that are malformed or not served"
    )]
    BadCredentials {
        /// RPC authentication flavour.
        flavour: u32,
    },
    /// Another RPC version than 2.
    #[error("speaks RPC version {version}, which nobody does")]
    RpcVersion {
        /// The version.
        version: u32,
    },
    /// A handle whose MAC is not ours.
    #[error("sent a handle that this server did not make")]
    ForgedHandle,
    /// Nothing wrong: its call could not wait for its storage ([`crate::Room::None`]).
    #[error(
        "is told to try later (JUKEBOX): so many calls wait for disks that one for share {path} \
         found no place; look whether its disk, or another, hangs"
    )]
    StorageHangs {
        /// The share's path.
        path: Arc<str>,
    },
    /// A mount that was refused, and why.
    #[error("may not mount {path:?}: {why}")]
    MountRefused {
        /// What it asked for, as far as it is told.
        path: String,
        /// Why.
        why: MountRefusal,
    },
    /// A lock or share reservation that was refused, though nobody else had it.
    #[error(
        "was refused {operation}, and its user may be told no more than that there are no locks (ENOLCK): {why}"
    )]
    LockRefused {
        /// The procedure's name.
        operation: &'static str,
        /// Why.
        why: LockRefusal,
    },
    /// Its file is not delegated, since it cannot be guarded.
    #[error(
        "gets no delegations on share {path:?}: nothing would tell of local processes there, since its file \
         system has no leases, or this process may not have them (CAP_LEASE); see local_guard in docs/nfsv4.md"
    )]
    NotGuarded {
        /// The share's path.
        path: Arc<str>,
    },
    /// A change for which the file system has no room.
    #[error("was refused {operation} on share {path:?}: {why}")]
    NoRoom {
        /// The procedure's name in its RFC.
        operation: &'static str,
        /// The share's path.
        path: Arc<str>,
        /// What there is not enough of.
        why: &'static str,
    },
}

/// What is told of a path that was refused, in bytes.
const PATH_BYTES_TOLD: usize = 256;

/// A path that a client sent, as far as it is told: a client does not fill the log.
pub(crate) fn told_path(path: &[u8]) -> String {
    let told = path.get(..path.len().min(PATH_BYTES_TOLD)).unwrap_or(path);
    String::from_utf8_lossy(told).into_owned()
}

/// Why a mount was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MountRefusal {
    /// There is no such share, or it is not served.
    #[error("no share of this path is served; `steadfast share list` has all, and why one is not")]
    NoShare,
    /// The share takes no new clients.
    #[error("the share takes no new clients (draining)")]
    Draining,
    /// No rule of the share is for this client.
    #[error(
        "no rule of the share gives this client access; `steadfast share explain CLIENT PATH` says \
         what decides"
    )]
    NoAccess,
    /// The path leads nowhere within the share.
    #[error("there is no such directory in the share: {0}")]
    NoDirectory(FsError),
    /// It cannot be said now.
    #[error("its names are not known yet, or its disk is not there: {0}")]
    NotNow(FsError),
    /// Handles of the share do not fit what MOUNT 1 and 2, and so NFSv2, have.
    #[error(
        "the share's file system has handles of more than 32 bytes, and NFSv2 has no longer ones; \
         mount it by NFSv3 or NFSv4"
    )]
    LongHandles,
    /// Something else is wrong.
    #[error("{0}")]
    Failed(FsError),
}

/// Why a lock was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LockRefusal {
    /// The file says so.
    #[error("the file cannot be used: {0}")]
    File(FsError),
    /// What the server keeps of locks says so.
    #[error("{0}")]
    State(StateError),
    /// The caller may not have it.
    #[error("the caller has no right to the file that such a lock needs, or it is no regular file")]
    NoRight,
    /// It cannot be made stable who has locks, so that a restart of the server tells the host.
    #[error("that the host has locks cannot be recorded in the state directory")]
    NotRecorded,
}

/// Why a connection must be closed: what follows in the stream cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HangUp {
    /// Too short to be an RPC message, or not a call.
    #[error("sent something that is not an RPC call")]
    NotACall,
}
