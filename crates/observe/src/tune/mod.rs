//! `steadfast tune`: settings of the kernel that NFS gains by, each with its reason, what it is and what it
//! should be on this machine; and their change, with a way back.
//!
//! [`settings()`] is the table. [`states`] compares it with a machine. [`apply()`] writes what was chosen, after it
//! has recorded what was there; [`undo()`] puts that back. A setting that is as good or better already is
//! never touched.

mod apply;
mod record;
mod settings;

pub use apply::{Applied, Change, Choice, Outcome, TuneError, Undone, apply, undo};
pub use record::{RECORD, Record, SYSCTL_FILE};
pub use settings::{Setting, SettingState, SettingStatus, settings, state, states};
