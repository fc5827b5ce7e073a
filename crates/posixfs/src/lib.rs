//! [`steadfast_vfs::FileSystem`] over directory trees of Linux file systems: ext4, XFS, btrfs,
//! tmpfs and whatever else gives kernel handles.
//!
//! - [`Tree`]: one share's directory. Objects are named by handles derived from the kernel's, so
//!   nothing has to be remembered for a handle to be valid after a restart.
//! - [`Storage`]: what all trees of a server share, above all the objects held open.
//! - [`prepare_process`]: what the process must do before it serves.
//!
//! An object that is used is held by a descriptor in the cache, with `O_PATH` unless it was made through us. As long as it is,
//! its inode number cannot be given to another, so most calls cost one `statx`. Attributes are
//! never cached: what a local process changes is seen at once.
//!
//! Operations that change something run under the caller's identity, and the kernel decides;
//! operations that only read are checked here by the kernel's rules ([`steadfast_vfs::permission`]).
//!
//! This crate must never know of a protocol, follow a symbolic link, or reach outside its tree.
#![forbid(unsafe_code)]

mod acl;
mod aliases;
mod async_changes;
mod attributes;
mod backing;
mod budget;
mod cache;
mod directory_stream;
mod error;
mod filesystem;
mod guards;
mod handle_form;
mod hex;
mod keeping;
mod kinds;
mod lifted;
mod logging;
mod mark_file;
mod marks;
mod mount_lines;
mod mounted;
mod mounts;
mod node;
mod on_use;
mod order;
mod pins;
mod process;
mod qgroup;
mod read_ahead;
mod recent;
mod recovering;
mod restoring;
mod storage;
mod stored;
mod traits;
mod tree;
mod volume;
mod volume_log;
mod whole_flushes;
mod write_back;

pub use backing::{Backing, BackingMount, is_mount_point};
pub use lifted::{has_lifted_limits, restore_limits};
pub use mark_file::{MarkedFileSystem, marked_file_systems};
pub use mounted::forget_what_was_mounted;
pub use on_use::{LookedAt, TreeOnUse, TreeOpener, directory_number};
pub use pins::OpenObjects;
pub use process::{ProcessPowers, prepare_process};
pub use qgroup::{NoQgroup, Qgroup, QgroupUse, is_inconsistent, sync_limits};
pub use read_ahead::ReadAheadTotals;
pub use recovering::{RecoveringFileSystem, assume_server_powers};
pub use storage::{Storage, StorageOptions};
pub use tree::{Mode, OpenError, SizePlace, Tree, TreeOptions};
pub use volume::can_log_changes;
