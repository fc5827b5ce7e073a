//! The words that make a share's rules, kept once for all shares that say the same.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::manage::RuleSpec;

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

/// The same, of nobody else.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeptWords {
    pub(crate) options: Box<[String]>,
    pub(crate) clients: Box<[String]>,
    pub(crate) rules: Box<[RuleSpec]>,
}

/// Words of shares that were read, each once.
#[derive(Debug, Default)]
pub(crate) struct WordPool {
    hasher: RandomState,
    known: HashTable<Arc<KeptWords>>,
}

impl KeptWords {
    pub(crate) fn words(&self) -> Words<'_> {
        Words { options: &self.options, clients: &self.clients, rules: &self.rules }
    }
}

impl From<Words<'_>> for KeptWords {
    fn from(words: Words<'_>) -> Self {
        let Words { options, clients, rules } = words;
        Self { options: options.into(), clients: clients.into(), rules: rules.into() }
    }
}

impl WordPool {
    pub(crate) fn shared(&mut self, words: KeptWords) -> Arc<KeptWords> {
        let hash = self.hasher.hash_one(&words);
        if let Some(known) = self.known.find(hash, |known| **known == words) {
            return Arc::clone(known);
        }
        let words = Arc::new(words);
        let hasher = &self.hasher;
        self.known.insert_unique(hash, Arc::clone(&words), |words| hasher.hash_one(words));
        words
    }
}
