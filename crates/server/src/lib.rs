//! The server as a library: puts engine, storage, intent log, name services and control interface
//! together, and keeps the shares.
#![forbid(unsafe_code)]
// Paths are shown quoted and escaped, so that a name with a newline makes no line of its own.
#![allow(clippy::unnecessary_debug_formatting)]

mod backings;
mod configuration;
mod control;
mod descriptors;
mod discarded;
mod exports;
pub mod intent_log;
mod listening;
mod looker;
mod memory;
mod mount_lines;
mod names;
mod own_files;
mod plugins;
mod registration;
mod server;
mod shares;
mod starting;
mod state_directory;

pub use configuration::{
    Base, Configuration, ReadBase, Settings, StartOptions, directory_problem, read_file,
};
pub use server::{Server, Unfinished};
pub use shares::planned_alone;
pub use state_directory::StateDirectory;
pub use steadfast_posixfs::{ProcessPowers, prepare_process};
