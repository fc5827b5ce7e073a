//! What people edit: groups of shares, exports(5), patterns, and the configuration's text.
//!
//! [`Catalog`] has all groups with their files' texts, and does what administrators ask for
//! ([`manage`]): a batch of operations becomes edits of these texts, and changes of shares.
//! [`Configuration::parse`] reads `steadfast.toml`, and tells every mistake in it and where it is.
//! [`exports`] reads and writes the tables of exports(5), [`ganesha`] reads the configuration of nfs-ganesha; [`planned`] and [`Wanted`] compare what is
//! there with what is wanted.
//!
//! What a share means for a call is in `steadfast_shares`, which knows none of this. This crate must
//! never do I/O: reading and writing files, looking up names and opening directories happens elsewhere.
#![forbid(unsafe_code)]

mod catalog;
pub mod configuration;
mod effective;
mod entitled;
pub mod exports;
pub mod ganesha;
mod group;
pub mod manage;
mod pattern;
mod plan;
mod wanted;

pub use catalog::{
    Applied, Catalog, Edit, FixedShare, GroupView, ShareChange, ShareNotice, ShareView,
};
pub use configuration::Configuration;
pub use effective::in_effect;
pub use group::{GroupFile, Item, Position};
pub use plan::{Action, KeyChange, PlannedChange, Subject, planned};
pub use wanted::{Wanted, place_in, places_in};
