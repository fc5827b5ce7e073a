//! The share model: what is exported, to whom, with which rights.
//!
//! A [`Share`] is a directory with its rules; [`Share::rights`] decides what a client address
//! may do. Pure values: no I/O, no clock; reading configuration files and opening directories
//! happens elsewhere.
#![forbid(unsafe_code)]

mod model;

pub use model::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
