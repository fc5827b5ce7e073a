//! A share as a group keeps it: what [`ShareSpec`] says in less memory, of which fifteen thousand
//! shares take a lot.

use std::path::Path;
use std::sync::Arc;

use steadfast_shares::{Compiled, KeptWords, Share, ShareId};

use super::pool::WordPool;
use crate::manage::ShareSpec;

/// A share's keys. Most shares have a path and clients only, and many have the same clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptShare {
    pub(crate) path: Arc<str>,
    words: Arc<KeptWords>,
    rest: Option<Box<Rest>>,
}

/// Keys that few shares have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rest {
    directory: Option<String>,
    id: Option<u64>,
    description: Option<String>,
    resource: Option<String>,
    protocols: Vec<String>,
    log: Option<bool>,
    enabled: Option<bool>,
    draining: Option<bool>,
}

impl KeptShare {
    /// Keeps a share, in words that others may have too.
    pub(super) fn new(spec: ShareSpec, pool: &mut WordPool) -> Self {
        let ShareSpec {
            path,
            directory,
            id,
            description,
            resource,
            protocols,
            options,
            clients,
            rules,
            log,
            enabled,
            draining,
        } = spec;
        let words =
            KeptWords { options: options.into(), clients: clients.into(), rules: rules.into() };
        let rest = Rest { directory, id, description, resource, protocols, log, enabled, draining };
        Self {
            path: path.into(),
            words: pool.shared(words),
            rest: (rest != Rest::default()).then(|| Box::new(rest)),
        }
    }

    /// The share as it is written.
    pub(crate) fn spec(&self) -> ShareSpec {
        let KeptWords { options, clients, rules } = &*self.words;
        let Rest { directory, id, description, resource, protocols, log, enabled, draining } =
            self.rest.as_deref().cloned().unwrap_or_default();
        ShareSpec {
            path: (*self.path).to_owned(),
            directory,
            id,
            description,
            resource,
            protocols,
            options: options.to_vec(),
            clients: clients.to_vec(),
            rules: rules.to_vec(),
            log,
            enabled,
            draining,
        }
    }

    pub(crate) fn words(&self) -> &Arc<KeptWords> {
        &self.words
    }

    /// Keeps these words, which say the same, in the place of its own.
    pub(crate) fn share_words(&mut self, words: Arc<KeptWords>) {
        debug_assert_eq!(self.words, words, "others");
        self.words = words;
    }

    fn rest(&self) -> Option<&Rest> {
        self.rest.as_deref()
    }

    pub(crate) fn resource(&self) -> Option<&str> {
        self.rest()?.resource.as_deref()
    }

    pub(crate) fn description(&self) -> Option<&str> {
        self.rest()?.description.as_deref()
    }

    pub(crate) fn protocols(&self) -> &[String] {
        self.rest().map_or(&[], |rest| &rest.protocols)
    }

    /// The share that this is with rules made of its words.
    pub(crate) fn share(&self, compiled: &Compiled) -> Share {
        let rest = self.rest();
        let directory = rest.and_then(|rest| rest.directory.as_deref());
        Share {
            id: rest.and_then(|rest| rest.id).map_or_else(|| ShareId::of_path(&self.path), ShareId),
            path: Arc::clone(&self.path),
            elsewhere: directory
                .filter(|directory| **directory != *self.path)
                .map(|directory| Path::new(directory).into()),
            crosses_mounts: compiled.crosses_mounts,
            required_mounts: Arc::clone(&compiled.required_mounts),
            size: compiled.size,
            without_log: rest.is_some_and(|rest| rest.log == Some(false)),
            is_draining: rest.is_some_and(|rest| rest.draining == Some(true)),
            rules: Arc::clone(&compiled.rules),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.rest().and_then(|rest| rest.enabled) != Some(false)
    }
}

impl From<ShareSpec> for KeptShare {
    /// Keeps a share in words of its own.
    fn from(spec: ShareSpec) -> Self {
        Self::new(spec, &mut WordPool::default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use steadfast_shares::RuleSpec;

    use super::*;

    fn words() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a-c]{1,3}", 0..3)
    }

    prop_compose! {
        fn specs()(
            path in "/[a-c]{0,3}",
            texts in prop::array::uniform3(prop::option::of("[a-c]{0,3}")),
            id in prop::option::of(0..3_u64),
            lists in prop::array::uniform3(words()),
            rules in prop::collection::vec((words(), words()), 0..2),
            switches in prop::array::uniform3(prop::option::of(any::<bool>())),
        ) -> ShareSpec {
            let [directory, description, resource] = texts;
            let [protocols, options, clients] = lists;
            let [log, enabled, draining] = switches;
            let rules = rules.into_iter().map(|(clients, options)| RuleSpec { clients, options });
            ShareSpec {
                path, directory, id, description, resource, protocols, options, clients,
                rules: rules.collect(), log, enabled, draining,
            }
        }
    }

    proptest! {
        /// What is kept says what was written, and shares that say the same keep it once.
        #[test]
        fn nothing_is_lost(specs in prop::collection::vec(specs(), 1..6)) {
            let mut pool = WordPool::default();
            let kept: Vec<_> =
                specs.iter().map(|spec| KeptShare::new(spec.clone(), &mut pool)).collect();
            for (spec, this) in specs.iter().zip(&kept) {
                prop_assert_eq!(&this.spec(), spec);
                prop_assert_eq!(this.is_enabled(), spec.enabled != Some(false));
                for (other, that) in specs.iter().zip(&kept) {
                    let is_same = (&spec.options, &spec.clients, &spec.rules)
                        == (&other.options, &other.clients, &other.rules);
                    prop_assert_eq!(Arc::ptr_eq(this.words(), that.words()), is_same);
                }
            }
        }
    }
}
