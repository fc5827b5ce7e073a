//! Shares become exports: each with its tree, opened when a client first uses it.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Weak};

use steadfast_engine::{Export, ExportTable};
use steadfast_posixfs::{LookedAt, Mode, Storage, TreeOnUse, TreeOpener, is_mount_point};
use steadfast_recovery::LoggedFileSystem;
use steadfast_shares::{ClientRule, Rights, RuleSet, Share, ShareId, Squash};
use steadfast_sys::process;
use steadfast_vfs::StorageSource;

use crate::backings::Backings;
use crate::configuration::WantedShare;
use crate::discarded::Discarded;
use crate::looker::Looker;
use crate::own_files::OwnFiles;
use crate::sizes::Sizes;

/// The shares that are served.
pub(crate) struct Exports {
    opener: Arc<TreeOpener>,
    /// What no share may contain.
    own_files: OwnFiles,
    /// Whether the process may act under the identities of its callers.
    serves_all_users: bool,
    served: HashMap<ShareId, Served>,
    /// Of each file system the share whose tree is open whether or not a client uses it, so that
    /// what the intent log holds for the file system gets there.
    openers: HashMap<u64, ShareId>,
    /// Of file systems that had failed and are to come back, a tree that was closed for it.
    closed: HashMap<u64, Weak<TreeOnUse>>,
    discarded: Discarded,
    /// What the shares were on, also before the server was started.
    pub(crate) backings: Backings,
    /// What has the kernel enforce sizes.
    pub(crate) sizes: Sizes,
    /// Whether a share was found on something else than before.
    has_elsewhere: bool,
}

/// A share that is served, and what its tree is of.
#[derive(Clone)]
struct Served {
    /// The directory as it was written, where that is another one.
    written: Option<Box<Path>>,
    tree: Arc<TreeOnUse>,
    /// The share as it is served.
    share: Arc<Share>,
    /// Whether we have looked at its directory, not only a client.
    is_looked_at: bool,
    /// How often it was found that no client had used it since the last time.
    idle: u32,
}

impl Served {
    fn written(&self) -> &Path {
        self.written.as_deref().unwrap_or(self.share.directory())
    }

    fn export(&self) -> Export {
        Export { share: Arc::clone(&self.share), storage: Arc::clone(&self.tree) as _ }
    }
}

/// A share that was closed since its disk had failed, to be opened again.
pub(crate) struct Reopened {
    pub(crate) share: Arc<Share>,
    tree: Weak<TreeOnUse>,
}

/// A share that is not served, or not as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) id: ShareId,
    /// What clients mount.
    pub(crate) path: Arc<str>,
    /// Why, and what to do, in one line with its place.
    pub(crate) what: String,
}

/// What became of shares that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Built {
    pub(crate) faults: Vec<Fault>,
    /// Shares that were not served before, or otherwise.
    pub(crate) changed: Vec<Arc<Share>>,
    /// The rules of shares that are served no more, or otherwise now.
    pub(crate) removed_rules: Vec<Arc<RuleSet>>,
    /// Devices of which the share is gone that stays open whether or not a client uses it.
    without_opener: HashSet<u64>,
}

impl Built {
    /// Whether something is served otherwise than before.
    pub(crate) fn is_change(&self) -> bool {
        !(self.changed.is_empty() && self.removed_rules.is_empty())
    }

    /// The rules of shares that were not served before, or otherwise.
    pub(crate) fn added_rules(&self) -> impl Iterator<Item = Arc<RuleSet>> {
        self.changed.iter().map(|share| Arc::clone(&share.rules))
    }
}

impl Exports {
    pub(crate) fn new(
        storage: Arc<Storage>,
        state_directory: &Path,
        serves_all_users: bool,
        own_files: OwnFiles,
    ) -> Self {
        let opener = TreeOpener::new(storage, state_directory.to_owned());
        let discarded = Discarded::start(Arc::clone(&opener));
        let backings = Backings::open(state_directory);
        Self {
            opener,
            own_files,
            serves_all_users,
            served: HashMap::new(),
            openers: HashMap::new(),
            closed: HashMap::new(),
            discarded,
            backings,
            sizes: Sizes::open(state_directory),
            has_elsewhere: false,
        }
    }

    /// Whether a share was found on something else than before: an administrator decides about it
    /// while the server runs.
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.has_elsewhere
    }

    /// Whether a share is served, and why its tree could not be opened if a client wanted it, or
    /// takes no changes.
    pub(crate) fn is_served(&self, id: ShareId) -> (bool, Option<String>) {
        let Some(served) = self.served.get(&id) else { return (false, None) };
        (true, served.tree.problem().or_else(|| self.failure(served)))
    }

    /// Whether a share's disk has failed, and is not back.
    pub(crate) fn has_failed(&self, id: ShareId) -> bool {
        self.served.get(&id).is_some_and(|served| self.failure(served).is_some())
    }

    /// Why a share's disk takes no changes, if it has failed. If nobody uses the share, another of the
    /// same file system tells.
    fn failure(&self, served: &Served) -> Option<String> {
        const NOT_BACK: &str = "its disk has failed, and is not back yet";
        let of = |tree: &TreeOnUse| tree.problem().unwrap_or_else(|| NOT_BACK.to_owned());
        if served.tree.has_failed() {
            return Some(of(&served.tree));
        }
        let device = served.tree.device().filter(|_| served.tree.tree().is_none())?;
        if let Some(opener) = self.openers.get(&device).and_then(|id| self.served.get(id)) {
            return opener.tree.tree()?.fault_on(device);
        }
        let closed = self.closed.get(&device).and_then(Weak::upgrade);
        closed.filter(|tree| tree.has_failed()).map(|tree| of(&tree))
    }

    /// The shares whose disks have failed, and are not back.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Arc<Share>> {
        let failed = self.served.values().filter(|served| self.failure(served).is_some());
        failed.map(|served| &served.share)
    }

    /// Whether a share's disk has failed, and what it has is served.
    pub(crate) fn is_served_without_changes(&self, id: ShareId) -> bool {
        let tree = self.served.get(&id).map(|served| &served.tree);
        tree.is_some_and(|tree| tree.tree().is_some() && tree.has_failed())
    }

    /// The shares with something of the file system that the log knows by this number, as far as
    /// clients use them.
    pub(crate) fn users(&self, file_system: LoggedFileSystem) -> Vec<Arc<Share>> {
        let uses = |served: &&Served| served.tree.tree().is_some_and(|tree| tree.uses(file_system));
        self.served.values().filter(uses).map(|served| Arc::clone(&served.share)).collect()
    }

    /// Gives shares whose disk has failed trees that are yet to be opened, so that what they use is
    /// let go, and what was kept of it meanwhile gets there when it is used again. Returns these, too.
    pub(crate) fn reopen(
        &mut self,
        now: &Arc<ExportTable>,
        shares: &[Arc<Share>],
    ) -> (ExportTable, Built, Vec<Reopened>) {
        let mut built = Built::default();
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let (mut reopened, mut discarded) = (Vec::new(), Vec::new());
        for share in shares {
            let Some(before) = self.served.get(&share.id).cloned() else { continue };
            removed.push(share.id);
            discarded.extend(self.take(share.id, &mut built));
            let served = Served { tree: Arc::new(before.tree.after_failure()), ..before };
            reopened.push(Reopened {
                share: Arc::clone(&served.share),
                tree: Arc::downgrade(&served.tree),
            });
            let device = served.tree.device();
            let has_failed = |device: &u64| {
                before.tree.tree().is_some_and(|tree| tree.fault_on(*device).is_some())
            };
            if let Some(device) = device.filter(has_failed) {
                self.closed.insert(device, Arc::downgrade(&served.tree));
            }
            added.push(served.export());
            built.changed.push(Arc::clone(&served.share));
            self.served.insert(share.id, served);
        }
        let table = now.changed(&removed, added);
        self.discarded.add(Arc::clone(now), discarded);
        (table, built, reopened)
    }

    /// Closes what shares have open that no client has used at so many of these calls, one after the
    /// other: a client's next call opens it again. Of each file system one share stays open, and so do
    /// those with faults, which may not be opened again. Returns how many these are.
    pub(crate) fn let_idle_go(
        &mut self,
        now: &Arc<ExportTable>,
        calls: u32,
        is_faulty: impl Fn(ShareId) -> bool,
    ) -> Option<(ExportTable, usize)> {
        let mut idle = Vec::new();
        for (id, served) in &mut self.served {
            if served.tree.tree().is_none() || served.tree.take_use() || is_faulty(*id) {
                served.idle = 0;
                continue;
            }
            served.idle = served.idle.saturating_add(1);
            let opener = served.tree.device().and_then(|device| self.openers.get(&device));
            if served.idle >= calls && opener.is_some_and(|opener| opener != id) {
                idle.push((*id, Arc::clone(&served.tree)));
            }
        }
        self.opener.retain_idle(&mut idle);
        let mut exports = Vec::with_capacity(idle.len());
        for (id, tree) in &idle {
            if let Some(served) = self.served.get_mut(id) {
                served.tree = Arc::new(tree.after_idleness());
                served.idle = 0;
                exports.push(served.export());
            }
        }
        if exports.is_empty() {
            return None;
        }
        let count = exports.len();
        let table = now.with_other_storage(exports);
        self.discarded.add(Arc::clone(now), idle.into_iter().map(|(_, tree)| tree).collect());
        Some((table, count))
    }

    /// The tree of a share that was closed, if it is still the share's.
    pub(crate) fn still_reopened(&self, reopened: &Reopened) -> Option<Arc<TreeOnUse>> {
        let tree = reopened.tree.upgrade()?;
        let served = self.served.get(&reopened.share.id)?;
        Arc::ptr_eq(&served.tree, &tree).then_some(tree)
    }

    /// Notes that a share's tree was opened again that had been closed.
    pub(crate) fn note_opened(&mut self, id: ShareId) {
        if let Some(device) = self.served.get(&id).and_then(|served| served.tree.device()) {
            self.openers.entry(device).or_insert(id);
        }
    }

    /// Notes which file systems are back that had failed: of which a share is open.
    pub(crate) fn note_back(&mut self) {
        if self.closed.is_empty() {
            return;
        }
        let open: HashSet<u64> = self
            .served
            .values()
            .filter(|served| served.tree.tree().is_some())
            .filter_map(|served| served.tree.device())
            .collect();
        self.closed.retain(|device, tree| tree.strong_count() > 0 && !open.contains(device));
    }

    /// A share as it is served.
    pub(crate) fn served(&self, id: ShareId) -> Option<&Arc<Share>> {
        self.served.get(&id).map(|served| &served.share)
    }

    /// All shares that are served.
    pub(crate) fn all_served(&self) -> impl Iterator<Item = &Arc<Share>> {
        self.served.values().map(|served| &served.share)
    }

    /// Why a share's directory cannot be served, if so.
    pub(crate) fn problem_of(&self, share: &Share) -> Option<String> {
        let seen = self.looker().look(share);
        let checked = seen.and_then(|seen| {
            require_mounts(share)?;
            self.own_files.require_outside(share, &seen)?;
            Ok(())
        });
        checked.err()
    }

    /// Why the sizes of shares cannot be enforced where their directories are now, as far as these are there,
    /// if they are all wanted, and `removed` ones are not.
    pub(crate) fn size_problems(
        &self,
        shares: impl Iterator<Item = Arc<Share>>,
        removed: impl Iterator<Item = ShareId>,
    ) -> Vec<(Arc<Share>, String)> {
        let sized = shares.filter(|share| share.size.is_some());
        let sized: Vec<_> = sized.map(|share| WantedShare { share, place: None }).collect();
        let seen = self.looker().look_at_all(&sized);
        // What is not there is told otherwise.
        let there = sized.iter().zip(&seen);
        let there = there.filter_map(|(wanted, seen)| Some((&wanted.share, seen.as_ref().ok()?)));
        let (shares, seen): (Vec<_>, Vec<_>) = there.unzip();
        let pairs = shares.iter().zip(seen).map(|(share, seen)| (&***share, seen));
        let problems = self.sizes.problems(&pairs.collect::<Vec<_>>(), removed);
        let told = problems
            .into_iter()
            .filter_map(|(index, why)| Some((Arc::clone(shares.get(index)?), why)));
        told.collect()
    }

    /// The rules of each share that is served.
    pub(crate) fn all_rules(&self) -> impl Iterator<Item = Arc<RuleSet>> {
        self.served.values().map(|served| Arc::clone(&served.share.rules))
    }

    /// Opens a share's tree if it is the first of its file system, and none of it was `unopened`.
    fn open_file_system(&mut self, served: &Served, unopened: &mut HashSet<u64>) {
        let Some(device) = served.tree.device() else { return };
        if self.openers.contains_key(&device) || unopened.contains(&device) {
            return;
        }
        // One that cannot be opened says so, and is tried again with the next change or client.
        if served.tree.open().is_ok() {
            self.openers.insert(device, served.share.id);
        } else {
            unopened.insert(device);
        }
    }

    /// Has other shares be those that stay open, for these devices, where others are open.
    fn replace_openers(&mut self, devices: &HashSet<u64>) {
        if devices.is_empty() {
            return;
        }
        for (id, served) in &self.served {
            let device = served.tree.device().filter(|device| devices.contains(device));
            if let Some(device) = device.filter(|_| served.tree.tree().is_some()) {
                self.openers.entry(device).or_insert(*id);
            }
        }
    }

    /// Takes a share out; its tree.
    fn take(&mut self, id: ShareId, built: &mut Built) -> Option<Arc<TreeOnUse>> {
        let served = self.served.remove(&id)?;
        built.removed_rules.push(Arc::clone(&served.share.rules));
        if let Some(device) = served.tree.device()
            && self.openers.get(&device) == Some(&id)
        {
            self.openers.remove(&device);
            built.without_opener.insert(device);
        }
        Some(served.tree)
    }

    /// Makes a table of all shares that are wanted, of what is served now. A share that cannot be
    /// served is left out; one that clients use and that cannot be opened again stays, since what
    /// they work on is still there.
    pub(crate) fn build(
        &mut self,
        now: &Arc<ExportTable>,
        wanted: &[WantedShare],
    ) -> (ExportTable, Built) {
        let ids: HashSet<_> = wanted.iter().map(|wanted| wanted.share.id).collect();
        let removed: Vec<_> = self.served.keys().filter(|id| !ids.contains(id)).copied().collect();
        self.sizes.retain(&ids);
        let built = self.change(now, &removed, wanted);
        self.sizes.lift_unwanted(wanted);
        built
    }

    /// Serves shares whose directories nobody has looked at yet, so that clients need not wait
    /// until all were; [`Exports::change`] looks at them. Where the rules that a share is served
    /// with hang on what is seen, it is not begun with: those that are not are returned.
    pub(crate) fn begin(&mut self, wanted: Vec<WantedShare>) -> (ExportTable, Vec<WantedShare>) {
        if !self.serves_all_users {
            return (ExportTable::default(), wanted);
        }
        let mut added = Vec::with_capacity(wanted.len());
        let sized = self.sizes.begin(wanted.iter().map(|wanted| &*wanted.share));
        let needs_look = |wanted: &WantedShare| {
            !wanted.share.required_mounts.is_empty()
                || self.own_files.may_be_in(&wanted.share)
                || (wanted.share.size.is_some() && !sized.contains_key(&wanted.share.id))
        };
        let (not_begun, wanted): (Vec<_>, Vec<_>) = wanted.into_iter().partition(needs_look);
        for WantedShare { share, .. } in wanted {
            let tree = self.opener.tree_not_looked_at(
                share.directory_bytes(),
                share.id.0,
                share.crosses_mounts,
                share.without_log,
            );
            let tree = Arc::new(tree.expecting(self.backings.was_on(&share).cloned()));
            tree.set_size(sized.get(&share.id).copied());
            let served = Served { written: None, tree, share, is_looked_at: false, idle: 0 };
            added.push(served.export());
            self.served.insert(served.share.id, served);
        }
        (ExportTable::new(added).unseen(), not_begun)
    }

    /// Whether this share is served though its directory was not looked at.
    pub(crate) fn is_to_be_looked_at(&self, share: &Share) -> bool {
        let served = self.served.get(&share.id);
        served.is_some_and(|served| *served.share == *share && !served.is_looked_at)
    }

    /// Who looks at directories, for [`Exports::change_to_seen`].
    pub(crate) fn looker(&self) -> Looker {
        Looker::new(Arc::clone(&self.opener))
    }

    /// As [`Exports::build`], where other shares stay as they are.
    pub(crate) fn change(
        &mut self,
        now: &Arc<ExportTable>,
        removed: &[ShareId],
        wanted: &[WantedShare],
    ) -> (ExportTable, Built) {
        let seen = self.looker().look_at_all(wanted);
        self.change_to_seen(now, removed, wanted, seen)
    }

    /// As [`Exports::change`], with what was `seen` of each share that is wanted.
    pub(crate) fn change_to_seen(
        &mut self,
        now: &Arc<ExportTable>,
        removed: &[ShareId],
        wanted: &[WantedShare],
        seen: Vec<Result<LookedAt, String>>,
    ) -> (ExportTable, Built) {
        let mut built = Built::default();
        let mut removed = removed.to_vec();
        let mut added = Vec::new();
        let mut discarded = Vec::new();
        let mut unopened = HashSet::new();
        for id in &removed {
            discarded.extend(self.take(*id, &mut built));
        }
        let mut noted = Vec::new();
        let seen = wanted
            .iter()
            .zip(seen)
            .map(|(wanted, seen)| seen.and_then(|seen| self.require_backing(&wanted.share, seen)));
        let mut seen: Vec<_> = seen.collect();
        self.sizes.apply(&removed, wanted, &mut seen);
        for (wanted, seen) in wanted.iter().zip(seen) {
            let id = wanted.share.id;
            noted.extend(seen.as_ref().ok().map(|seen| (&*wanted.share, seen.backing.clone())));
            let Prepared { served, fault } = self.prepare(wanted, seen);
            if let (Some(served), None) = (&served, &fault) {
                served.tree.set_size(self.sizes.qgroup(id));
            }
            let path = || Arc::clone(&wanted.share.path);
            built.faults.extend(fault.map(|what| Fault { id, path: path(), what }));
            let before = self.served.get(&id);
            let is_same = match (before, &served) {
                (Some(before), Some(served)) => {
                    Arc::ptr_eq(&before.tree, &served.tree) && *before.share == *served.share
                }
                (None, None) => true,
                _ => false,
            };
            if is_same {
                if let Some(served) = served {
                    self.open_file_system(&served, &mut unopened);
                    self.served.insert(id, served);
                }
                continue;
            }
            removed.push(id);
            discarded.extend(self.take(id, &mut built));
            if let Some(served) = served {
                added.push(served.export());
                built.changed.push(Arc::clone(&served.share));
                self.open_file_system(&served, &mut unopened);
                self.served.insert(id, served);
            }
        }
        self.backings.note(noted.iter().map(|(share, backing)| (*share, backing)));
        self.replace_openers(&built.without_opener);
        // A removed share's number may be given to another one in the same change.
        let table = now.changed(&removed, added);
        if built.is_change() {
            self.discarded.add(Arc::clone(now), discarded);
        }
        (table, built)
    }

    /// What was seen, if it is on what the share was on before, and all is mounted that has to be.
    fn require_backing(&mut self, share: &Share, seen: LookedAt) -> Result<LookedAt, String> {
        require_mounts(share)?;
        self.own_files.require_outside(share, &seen)?;
        match self.backings.problem(share, &seen) {
            None => Ok(seen),
            Some(problem) => {
                self.has_elsewhere = true;
                Err(problem)
            }
        }
    }

    fn prepare(&self, wanted: &WantedShare, seen: Result<LookedAt, String>) -> Prepared {
        let WantedShare { share, place } = wanted;
        let at = place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        let (opened, fault) = match seen.and_then(|seen| self.open(share, &seen)) {
            Ok(opened) => (Ok(opened), None),
            Err(problem) => match self.keep(share) {
                Some((kept, with)) => {
                    let fault = format!(
                        "{at}share {:?} cannot be opened again: {problem}; its clients keep what \
                         was open, {:?} {with}, until a restart: restart the server to have the \
                         change",
                        share.path,
                        kept.share.directory()
                    );
                    (Ok(kept), Some(fault))
                }
                None => (Err(problem), None),
            },
        };
        let ruled = opened.and_then(|opened| {
            let mode = opened.tree.mode().unwrap_or(Mode::StoredHandles);
            let rules = self.rules(&opened.share, mode)?;
            let is_as_it_is = Arc::ptr_eq(&rules, &opened.share.rules);
            if is_as_it_is {
                return Ok(opened);
            }
            let share = Arc::new(Share { rules, ..Share::clone(&opened.share) });
            Ok(Served { share, ..opened })
        });
        match ruled {
            Ok(served) => Prepared { served: Some(served), fault },
            Err(problem) if place.is_none() => Prepared { served: None, fault: Some(problem) },
            Err(problem) => Prepared {
                served: None,
                fault: Some(format!("{at}share {:?} is not served: {problem}", share.path)),
            },
        }
    }

    /// The share's tree, as it was looked at now; the one from before if it is of the same
    /// directory.
    fn open(&self, share: &Arc<Share>, looked_at: &LookedAt) -> Result<Served, String> {
        let before = self.served.get(&share.id);
        let before = before.filter(|before| {
            let is_of_this = before.is_looked_at || before.share.directory() == share.directory();
            is_of_this
                && before.share.crosses_mounts == share.crosses_mounts
                && before.share.without_log == share.without_log
                && before.tree.see(looked_at)
                // Only who begins with a store of handles opens it.
                && (looked_at.mode == Mode::KernelHandles || before.tree.tree().is_some())
        });
        let is_canonical = *looked_at.directory == *share.directory();
        let served = if is_canonical {
            Arc::clone(share)
        } else {
            Arc::new(share.of_directory(&looked_at.directory))
        };
        let tree = match before {
            Some(before) => Arc::clone(&before.tree),
            None => Arc::new(self.tree(share, looked_at)?),
        };
        let written = (!is_canonical).then(|| share.directory().into());
        Ok(Served { written, tree, share: served, is_looked_at: true, idle: 0 })
    }

    fn tree(&self, share: &Share, looked_at: &LookedAt) -> Result<TreeOnUse, String> {
        self.opener
            .tree(
                looked_at,
                share.directory_bytes(),
                share.id.0,
                share.crosses_mounts,
                share.without_log,
            )
            .map_err(|error| error.to_string())
    }

    /// The tree that is open for a share which cannot be opened as it is wanted now, and with
    /// which rules it is kept. Those of now, if they are meant for this directory. If another
    /// one is wanted they may let in who was never to see this one, so the old ones stay.
    fn keep(&self, wanted: &Share) -> Option<(Served, &'static str)> {
        let served = self.served.get(&wanted.id).filter(|served| served.tree.has_users())?;
        let (rules, with) = if served.written() == wanted.directory() {
            (&wanted.rules, "with the rules as they are now")
        } else {
            (&served.share.rules, "with the rules as they were")
        };
        let share = Share {
            rules: Arc::clone(rules),
            elsewhere: served.share.elsewhere.clone(),
            crosses_mounts: served.share.crosses_mounts,
            without_log: served.share.without_log,
            ..wanted.clone()
        };
        Some((Served { share: Arc::new(share), ..served.clone() }, with))
    }

    /// The rules as they can be kept. Where the server cannot act as its callers, every call acts
    /// as the server's own user; that must not be root by accident.
    fn rules(&self, share: &Share, mode: Mode) -> Result<Arc<RuleSet>, String> {
        if mode == Mode::KernelHandles && self.serves_all_users {
            return Ok(Arc::clone(&share.rules));
        }
        let (uid, gid) = process::effective_ids();
        let as_us = |rights: &Rights| Rights {
            squash: Squash::All,
            anonymous_uid: uid,
            anonymous_gid: gid,
            ..rights.clone()
        };
        let is_meant = share
            .rules
            .rules()
            .iter()
            .all(|rule| rule.grants.iter().all(|rights| *rights == as_us(rights)));
        if uid == 0 && !is_meant {
            return Err(format!(
                "{:?} can only be served for one user, and this server runs as root: every \
                 client's user would be root. Run it as the user who owns the files, or on a \
                 file system with file handles and with the capabilities of root (in a \
                 container: a volume, and CAP_DAC_READ_SEARCH); if all are to be root, say so: \
                 all_squash, anonuid=0, anongid=0 (--all-squash --anonuid 0 --anongid 0)",
                share.directory()
            ));
        }
        let rules = share.rules.rules().iter().map(|rule| ClientRule {
            pattern: rule.pattern.clone(),
            grants: rule.grants.iter().map(as_us).collect(),
        });
        Ok(Arc::new(RuleSet::new(rules.collect())))
    }
}

/// What became of one share that is wanted.
struct Prepared {
    served: Option<Served>,
    fault: Option<String>,
}

/// `mp`: whether file systems are mounted where the share needs them.
fn require_mounts(share: &Share) -> Result<(), String> {
    for mount in share.required_mounts() {
        let why = match is_mount_point(mount) {
            Ok(true) => continue,
            Ok(false) => "nothing is mounted there".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(format!(
            "its option mp wants a file system mounted at {mount:?}: {why}; mount it and \
             `steadfast reload`"
        ));
    }
    Ok(())
}

/// Whether every call to the share acts as one user.
pub(crate) fn is_single_user(share: &Share) -> bool {
    let (uid, _) = process::effective_ids();
    let mut grants = share.rules.rules().iter().flat_map(|rule| &*rule.grants).peekable();
    grants.peek().is_some()
        && grants.all(|rights| rights.squash == Squash::All && rights.anonymous_uid == uid)
}

#[cfg(test)]
mod tests;
