//! What the manager of shares changes together: shares as they are kept and as they are served.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_catalog::ShareChange;
use steadfast_control::sharetab::Sharetab;
use steadfast_control::store::Store;
use steadfast_shares::{Share, ShareId};
use steadfast_sys::process;

use super::watching::{Subdirectories, subdirectories};
use crate::configuration::{COMMAND_LINE, WantedShare};
use crate::exports::{Exports, Fault, is_single_user};

/// Directories below patterns that no share can be made of, by group and pattern.
pub(super) type LeftOut = BTreeMap<(String, String), Vec<OsString>>;
/// So many of them are told by name.
const LEFT_OUT_TOLD: usize = 10;

/// What changes together.
pub(super) struct State {
    pub(super) store: Store,
    pub(super) left_out: LeftOut,
    pub(super) exports: Exports,
    /// What the disk says about shares that are to be served, by their ids.
    pub(super) faults: HashMap<ShareId, Box<str>>,
    pub(super) sharetab: Option<Sharetab>,
    /// Whether others have been told of all shares. Before that they are not told of some: they
    /// would take these for all.
    pub(super) has_told_all: bool,
}

impl State {
    /// All shares that are to be served, with their places where those are at hand.
    pub(super) fn all_wanted(&self) -> Vec<WantedShare> {
        let catalog = self.store.catalog();
        let all = catalog.all_served().map(|share| {
            let source = catalog.fixed_source(&share.path).filter(|source| *source != COMMAND_LINE);
            WantedShare { share: Arc::clone(share), place: source.map(str::to_owned) }
        });
        all.collect()
    }

    pub(super) fn note_faults(&mut self, wanted: &[WantedShare], faults: Vec<Fault>) {
        for wanted in wanted {
            self.faults.remove(&wanted.share.id);
        }
        for Fault { id, path, what } in faults {
            if what.contains(&format!("{path:?}")) {
                tracing::error!("{what}");
            } else {
                tracing::error!("share {path:?} is not served: {what}");
            }
            self.faults.insert(id, what.into());
        }
    }

    /// Directories of which patterns make shares.
    pub(super) fn parents(&self) -> BTreeSet<PathBuf> {
        let patterns = self.store.catalog().patterns();
        patterns
            .filter_map(|(_, pattern)| Some(Path::new(&pattern.directories).parent()?.to_owned()))
            .collect()
    }
}

/// The changes of two steps as those of one.
pub(super) fn joined(first: Vec<ShareChange>, second: Vec<ShareChange>) -> Vec<ShareChange> {
    let mut by_path: HashMap<Arc<str>, ShareChange> =
        first.into_iter().map(|change| (change.path.clone(), change)).collect();
    for change in second {
        match by_path.get_mut(&change.path) {
            Some(known) => known.new = change.new,
            None => drop(by_path.insert(change.path.clone(), change)),
        }
    }
    let mut all: Vec<_> = by_path.into_values().filter(|change| change.old != change.new).collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Tells the store which directories there are below patterns: all, or those with these parents.
/// One that cannot be read now has what it had.
pub(super) fn look_at_patterns(
    store: &mut Store,
    left_out: &mut LeftOut,
    parents: Option<&BTreeSet<PathBuf>>,
) -> Vec<ShareChange> {
    let patterns = store.catalog().patterns().map(|(group, pattern)| {
        (group.to_owned(), pattern.directories.clone(), pattern.mounted == Some(true))
    });
    let patterns: Vec<(String, String, bool)> = patterns.collect();
    left_out.retain(|(group, directories), _| {
        patterns.iter().any(|pattern| pattern.0 == *group && pattern.1 == *directories)
    });
    let mut changes = Vec::new();
    for (group, directories, is_mounted) in patterns {
        let Some(parent) = Path::new(&directories).parent() else { continue };
        if parents.is_some_and(|parents| !parents.contains(parent)) {
            continue;
        }
        match subdirectories(parent, is_mounted) {
            Ok(Subdirectories { names, left_out: mut bad }) => {
                let names = names.iter().map(String::as_str);
                changes = joined(changes, store.set_directories(&group, &directories, names));
                bad.sort();
                let place = (group, directories);
                if left_out.get(&place).map_or(&[][..], Vec::as_slice) == bad {
                    continue;
                }
                if let Some(told) = not_shared(&bad) {
                    tracing::warn!("group {:?}, pattern {:?}: {told}", place.0, place.1);
                }
                left_out.insert(place, bad);
            }
            Err(error) => tracing::error!(
                "group {group:?}, pattern {directories:?}: {} cannot be read: {error}",
                parent.display()
            ),
        }
    }
    changes
}

/// That directories below a pattern are not shared, and which; `None` without any.
pub(super) fn not_shared(left_out: &[OsString]) -> Option<String> {
    if left_out.is_empty() {
        return None;
    }
    let told: Vec<_> =
        left_out.iter().take(LEFT_OUT_TOLD).map(|name| format!("{name:?}")).collect();
    let more = left_out.len().saturating_sub(LEFT_OUT_TOLD);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "not shared, since their names are not UTF-8: {}{more}; rename them",
        told.join(", ")
    ))
}

/// That changes of shares are acknowledged before they are stable: one line, however many they are.
pub(super) fn tell_of_async(served: &[Arc<Share>]) {
    let mut paths = served.iter().filter(|share| share.rules.has_async()).map(|share| &share.path);
    let told: Vec<_> = paths.by_ref().take(LEFT_OUT_TOLD).map(|path| format!("{path:?}")).collect();
    if told.is_empty() {
        return;
    }
    let more = match paths.count() {
        0 => String::new(),
        more => format!(" and {more} more shares"),
    };
    tracing::warn!(
        "{}{more}: async: changes are acknowledged before they are stable, and lost with the power",
        told.join(", ")
    );
}

pub(super) fn tell_of_single_users(served: &[Arc<Share>]) {
    let (uid, gid) = process::effective_ids();
    for share in served.iter().filter(|share| uid != 0 && is_single_user(share)) {
        tracing::warn!(
            "{:?}: every user of every client acts as user {uid}, group {gid}, since this server \
             does not run as root",
            share.path
        );
    }
}
