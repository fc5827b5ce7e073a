//! How a Steadfast server is: what `steadfast status` tells.
//!
//! [`gather()`] asks the server for several documents side by side with one deadline, and looks at the disks of its
//! shares; [`Gathered`] is what could be found out in time, as a disk that hangs may hold up an answer. [`Report::of`]
//! judges it without I/O. Nothing is changed by asking, and nothing is waited for without a bound.

mod disks;
mod gather;
mod names;
mod report;
mod samples;
mod sizes;

pub use disks::{DISK_USAGE, Disk, usage};
pub use gather::{Answer, Asked, Gathered, PATIENCE, PluginTrouble, gather};
pub use report::{Clients, Fault, Log, Report, Serving, Shares, Verdict, Warning, word};
