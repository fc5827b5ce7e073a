//! The words that make a share's rules.

use serde::{Deserialize, Serialize};

/// A rule as it is written: options for some clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// For whom.
    pub clients: Vec<String>,
    /// Option words, beside those of the share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The words that make rules.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// `options`
    pub options: &'a [String],
    /// `clients`
    pub clients: &'a [String],
    /// `[[rule]]`
    pub rules: &'a [RuleSpec],
}

/// [`Words`] that are owned, to be kept once for all shares that have them.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct KeptWords {
    /// `options`
    pub options: Box<[String]>,
    /// `clients`
    pub clients: Box<[String]>,
    /// `[[rule]]`
    pub rules: Box<[RuleSpec]>,
}

impl KeptWords {
    /// Them, borrowed.
    pub fn words(&self) -> Words<'_> {
        Words { options: &self.options, clients: &self.clients, rules: &self.rules }
    }
}

impl From<Words<'_>> for KeptWords {
    fn from(words: Words<'_>) -> Self {
        let Words { options, clients, rules } = words;
        Self { options: options.into(), clients: clients.into(), rules: rules.into() }
    }
}
