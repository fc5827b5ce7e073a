//! Who is asked what a client may do.

use std::sync::Arc;

use crate::names::{AccountKind, AccountName, NoNames};
use crate::rules::{Decision, Question, RuleSet};

/// A user's groups as this host knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// These.
    Known(Arc<[u32]>),
    /// This host does not know the user: those that the client says count.
    NoUser,
    /// They are being looked up: ask again soon.
    NotYet,
}

/// The number of a user or group of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOf {
    /// This.
    Is(u32),
    /// This host knows nobody of that name.
    Nobody,
    /// It is being looked up, or the name service does not answer: ask again soon.
    NotYet,
}

/// The name of a user or group of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOf {
    /// This.
    Is(AccountName),
    /// This host knows none, or the name service does not answer: the number has to do.
    None,
    /// It is being looked up: ask again soon.
    NotYet,
}

/// Decides by rules, and by what is known about names. Answers at once; what is not known is
/// looked up meanwhile, so that the next question finds it.
pub trait Authority: Send + Sync {
    /// What a client may do.
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision;

    /// Another number whenever a decision given before might be another one now. Decisions may be
    /// remembered as long as it stays.
    fn epoch(&self) -> u64;

    /// The groups of a user.
    fn groups(&self, uid: u32) -> Groups;

    /// The number of a user or group. Without a name service names are nobody's.
    fn number_of(&self, _kind: AccountKind, _name: &AccountName) -> NumberOf {
        NumberOf::Nobody
    }

    /// The name of a user or group.
    fn name_of(&self, _kind: AccountKind, _number: u32) -> NameOf {
        NameOf::None
    }
}

/// Decides by rules alone: no name is ever known.
#[derive(Clone, Copy, Debug, Default)]
pub struct RulesOnly;

impl Authority for RulesOnly {
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
        rules.decide(question, &NoNames)
    }

    fn epoch(&self) -> u64 {
        0
    }

    fn groups(&self, _uid: u32) -> Groups {
        Groups::NoUser
    }
}
