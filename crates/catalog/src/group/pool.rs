//! The words that make rules, kept once for all shares that say the same.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use steadfast_shares::KeptWords;

/// Words of shares that were read, each once.
#[derive(Debug, Default)]
pub(super) struct WordPool {
    hasher: RandomState,
    known: HashTable<Arc<KeptWords>>,
}

impl WordPool {
    pub(super) fn shared(&mut self, words: KeptWords) -> Arc<KeptWords> {
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
