//! The share model: what is exported, to whom, with which rights, as a call needs it.
//!
//! A [`Share`] is a directory with its rules; a [`RuleSet`] decides what a client may do, asking
//! [`Names`] about names. A [`RuleBook`] makes rule sets of the words that people write. Where these
//! words come from, and who may change them, is in `steadfast_catalog`. Pure values: no I/O, no
//! clock; looking up names and opening directories happens elsewhere.
#![forbid(unsafe_code)]

mod authority;
mod clients;
mod compile;
mod coverage;
mod id;
mod names;
mod options;
mod quoted;
mod rights;
mod rules;
mod share;
mod size;
mod suggestion;
mod words;

pub use authority::{Authority, Groups, NameOf, NumberOf, RulesOnly};
pub use clients::{ClientPattern, PatternError, spans_mapped};
pub use compile::{Compiled, Field, FieldMistake, Inherited, Problem, RuleBook};
pub use coverage::Coverage;
pub use id::ShareId;
pub use names::{
    AccountKind, AccountName, DomainPattern, HostName, Known, Names, NetgroupName, NoNames,
};
pub use options::{
    Access, ClientLists, NOT_SERVED, OptionError, ShareOptions, names_clients, sec, subject,
};
pub use quoted::shown;
pub use rights::{Flavor, Flavors, Rights, Squash};
pub use rules::{ClientRule, Decision, Question, Refusal, RuleSet};
pub use share::Share;
pub use size::{Size, SizeError, shown_bytes};
pub use suggestion::nearest;
pub use words::{KeptWords, RuleSpec, Words};
