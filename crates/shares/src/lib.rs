//! The share model: what is exported, to whom, with which rights.
//!
//! A [`Share`] is a directory with its rules; [`Share::rights`] decides what a client address
//! may do. [`Configuration::parse`] makes shares, and the server's settings, of the text of
//! `steadfast.toml`, or tells everything that is wrong with it and where. Pure values: no I/O,
//! no clock; reading configuration files and opening directories happens elsewhere.
#![forbid(unsafe_code)]

mod clients;
pub mod configuration;
mod id;
mod model;
mod options;
mod suggestion;

pub use clients::PatternError;
pub use configuration::Configuration;
pub use model::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
pub use options::{OptionError, ShareOptions};
pub use suggestion::nearest;
