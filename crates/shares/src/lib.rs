//! The share model: what is exported, to whom, with which rights.
//!
//! A [`Share`] is a directory with its rules; a [`RuleSet`] decides what a client may do, asking
//! [`Names`] about names. [`Configuration::parse`] makes shares, and the server's settings, of the
//! text of `steadfast.toml`, or tells everything that is wrong with it and where; [`manage`] is
//! what administrators ask for. Pure values: no I/O, no clock; reading configuration files,
//! looking up names and opening directories happens elsewhere.
#![forbid(unsafe_code)]

mod authority;
mod catalog;
mod clients;
mod compile;
pub mod configuration;
mod coverage;
mod effective;
pub mod exports;
mod group;
mod id;
pub mod manage;
mod model;
mod names;
mod options;
mod pattern;
mod plan;
mod rules;
mod suggestion;
mod wanted;
mod words;

pub use authority::{Authority, Groups, RulesOnly};
pub use catalog::{
    Applied, Catalog, Edit, FixedShare, GroupView, ShareChange, ShareNotice, ShareView,
};
pub use clients::{PatternError, spans_mapped};
pub use compile::{Compiled, Field, FieldMistake, Inherited, Problem, RuleBook};
pub use configuration::Configuration;
pub use coverage::Coverage;
pub use effective::in_effect;
pub use group::{GroupFile, Item, Position};
pub use model::{ClientPattern, ClientRule, Flavor, Flavors, Rights, Share, ShareId, Squash};
pub use names::{DomainPattern, HostName, Known, Names, NetgroupName, NoNames};
pub use options::{
    Access, ClientLists, NOT_SERVED, OptionError, ShareOptions, names_clients, sec, shown, subject,
};
pub use plan::{Action, KeyChange, PlannedChange, Subject, planned};
pub use rules::{Decision, Question, Refusal, RuleSet};
pub use suggestion::nearest;
pub use wanted::{Wanted, place_in, places_in};
pub use words::{KeptWords, RuleSpec, Words};
