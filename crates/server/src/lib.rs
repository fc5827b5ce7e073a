//! The server as a library, for the program `steadfast` and for any other that wants to serve
//! directories: it puts engine, storage, intent log, name services and control interface together.
//!
//! [`Configuration`] is what `steadfast.toml` says, as a value. [`Server`] is a server that runs: its
//! documentation says who calls what, in which order, on which thread. `ShareManager` (`shares`) keeps
//! the shares of a running server, `Exports` (`exports`) the directory trees behind them.
//! `examples/serve_directory.rs` is a whole program.
//!
//! This crate never reads arguments or environment variables that tell what to serve, handles no
//! signals, prints nothing, and never ends the process: all that is the program's.
#![forbid(unsafe_code)]
// Paths are shown quoted and escaped, so that a name with a newline makes no line of its own.
#![allow(clippy::unnecessary_debug_formatting)]

mod backings;
mod client_records;
mod client_state;
mod configuration;
mod control;
mod descriptors;
mod discarded;
mod error;
mod exports;
mod idmapping;
pub mod intent_log;
mod journaling_clients;
mod listening;
mod local_locks;
mod looker;
mod memory;
mod mount_lines;
mod mounting;
mod names;
mod nsm;
mod outbound;
mod own_files;
mod places;
mod plugins;
mod registration;
mod server;
mod shares;
mod sizes;
mod starting;
mod state_directory;
mod written_name;

pub use configuration::{
    Base, Configuration, ReadBase, Settings, StartOptions, directory_problem, read_file,
};
pub use error::StartError;
pub use server::{Server, Unfinished};
pub use shares::planned_alone;
pub use sizes::size_problem;
pub use state_directory::StateDirectory;
pub use steadfast_posixfs::{ProcessPowers, prepare_process};
