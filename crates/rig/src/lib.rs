//! Starts servers, peers, guests, namespaces and disks, and measures with them.
//!
//! Each command of `cargo xtask` that needs more than cargo is a module here, with a function `run` that
//! takes the command's arguments. What they share stands beside them:
//!
//! - [`namespace`]: a network with room for guests, and the janitor that leaves nothing behind;
//!   [`isolation`]: a measurement in namespaces of its own.
//! - [`servers`]: a server on a directory and a port; [`ganesha`]: how nfs-ganesha is configured;
//!   [`process`]: what is killed when it is dropped.
//! - [`uml`]: a guest, which has the kernel's client; [`load`]: the load generator as a process.
//! - [`disk`] and [`slow_disk`]: file systems on loop devices; [`report`] and [`svg`]: what was measured.
//! - [`workspace`]: cargo, and where builds go; [`packages`]: Debian packages.
//!
//! This crate never links the server, so what it finds is true of any server. It starts programs, and
//! speaks to them as a client does. Nothing that it starts or mounts outlives the process that uses it.
#![forbid(unsafe_code)]

pub mod bench_shares;
mod disk;
pub mod doctor;
pub mod durability;
mod ganesha;
mod isolation;
pub mod journal_table;
pub mod kernel_client;
mod load;
mod namespace;
pub mod packages;
pub mod peers;
pub mod plugins;
pub mod powercut;
mod process;
mod report;
mod servers;
mod slow_disk;
pub mod storm;
mod svg;
mod uml;
pub mod watch;
pub mod workspace;

pub use namespace::root_is_a_mount;
