//! The start, step by step: shares are read ([`KeptShares`]), and made ready to be served
//! ([`ReadyShares`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_catalog::ShareView;
use steadfast_control::sharetab::Sharetab;
use steadfast_control::store::{Store, StoreOptions};
use steadfast_engine::ExportTable;
use steadfast_shares::{RuleSet, Share, ShareId};

use super::state::{LeftOut, State, look_at_patterns, tell_of_async, tell_of_single_users};
use crate::configuration::{Base, WantedShare};
use crate::error::StartError;
use crate::exports::Exports;
use crate::places::Places;

/// Shares that are kept; nobody has looked at their directories yet.
pub(crate) struct KeptShares {
    store: Store,
    left_out: LeftOut,
    sharetab: PathBuf,
}

/// Shares that can be served. Those of groups' files are looked at when the server serves.
pub(crate) struct ReadyShares {
    pub(super) state: State,
    /// What is to be served.
    pub(crate) table: ExportTable,
    pub(super) not_looked_at: Vec<WantedShare>,
}

impl KeptShares {
    /// Reads what is kept.
    ///
    /// # Errors
    /// When another server keeps shares there, or nothing can be read.
    pub(crate) fn open(places: &Places, base: Base) -> Result<Self, StartError> {
        let options = StoreOptions {
            shares_directory: places.shares_directory.clone(),
            state_directory: places.state_directory.clone(),
            defaults: base.defaults,
            fixed: base.shares,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        };
        let (mut store, mistakes) = Store::open(options)?;
        let mut left_out = LeftOut::default();
        look_at_patterns(&mut store, &mut left_out, None);
        for mistake in mistakes.into_iter().chain(store.catalog().mistakes()) {
            tracing::error!("{mistake}");
        }
        Ok(Self { store, left_out, sharetab: places.sharetab.clone() })
    }

    /// Whether tools keep some.
    pub(crate) fn has_groups(&self) -> bool {
        self.store.catalog().group_names().next().is_some()
    }

    /// All shares that are to be served.
    pub(crate) fn shares(&self) -> impl Iterator<Item = &Share> {
        self.store.catalog().all_served().map(|share| &**share)
    }

    /// Makes ready to serve: looks at the directories of the command line and the configuration
    /// file, but not yet at those that groups' files name, of which there may be a hundred
    /// thousand. What patterns made is looked at: users who may rename their directories must not
    /// have links to others served instead.
    pub(crate) fn make_ready(self, exports: Exports) -> ReadyShares {
        let sharetab = open_sharetab(&self.sharetab);
        let mut state = State {
            store: self.store,
            left_out: self.left_out,
            exports,
            faults: HashMap::new(),
            sharetab,
            has_told_all: false,
        };
        let catalog = state.store.catalog();
        let is_for_now = |wanted: &WantedShare| {
            let path = &wanted.share.path;
            catalog.fixed_source(path).is_some() || catalog.is_made(path)
        };
        let (mut now, later): (Vec<_>, Vec<_>) =
            state.all_wanted().into_iter().partition(is_for_now);
        let count = now.len() + later.len();
        state.exports.backings.forget_gone(
            || {
                let id = |view: ShareView| match (view.share, view.spec.id) {
                    (Some(share), _) => share.id,
                    (None, Some(id)) => ShareId(id),
                    (None, None) => ShareId::of_path(&view.spec.path),
                };
                catalog.shares().map(id).collect()
            },
            count,
        );
        let not_looked_at = later.clone();
        let (table, not_begun) = state.exports.begin(later);
        now.extend(not_begun);
        let (table, built) = state.exports.change(&Arc::new(table), &[], &now);
        state.note_faults(&now, built.faults);
        tell_of_single_users(&built.changed);
        tell_of_async(&built.changed);
        ReadyShares { state, table, not_looked_at }
    }
}

impl ReadyShares {
    /// The rules of each share that is served.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Arc<RuleSet>> {
        self.state.exports.all_rules()
    }

    /// Whether a share is on something else than before, which an administrator may accept.
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.state.exports.has_elsewhere()
    }

    /// Why shares are not served.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.state.faults.values().map(ToString::to_string).collect()
    }
}

fn open_sharetab(path: &Path) -> Option<Sharetab> {
    Sharetab::open(path)
        .inspect_err(|error| {
            tracing::warn!(
                "{}: cannot be written ({error}): other programs are not told what is shared; name \
                 another place with sharetab in [server]",
                path.display()
            );
        })
        .ok()
}
