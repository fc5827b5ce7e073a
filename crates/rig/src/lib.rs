//! Starts servers, peers, guests, namespaces and disks, and measures with them.
//!
//! Each command of `cargo xtask` that needs more than cargo is a module here, with a function `run` that
//! takes the command's arguments. Below them are a network namespace and the [`namespace::Janitor`] that
//! leaves nothing behind, the namespaces of a measurement ([`isolation`]), guests ([`uml`]) and Debian
//! packages ([`packages`]).
//!
//! This crate never links the server, so what it finds is true of any server. It starts programs, and
//! speaks to them as a client does.
#![forbid(unsafe_code)]

pub mod bench_shares;
mod disk;
pub mod doctor;
pub mod durability;
mod ganesha;
mod isolation;
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
