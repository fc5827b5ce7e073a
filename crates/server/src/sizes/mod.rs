//! Sizes of shares, which the kernel enforces: here limits are set, and taken away again.
//!
//! [`Sizes`] knows which share has which size in effect, [`Ledger`] which limits this server has set.
//! Setting a limit is part of a change of shares, which is not done before the limit holds. What may
//! take as long as a disk hangs and need not be waited for, `settling` does on a thread of its own, without
//! the lock of the shares: taking limits away, and having the disk know what was set.

mod ledger;
mod settling;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_posixfs::{LookedAt, NoQgroup, Qgroup, is_inconsistent};
use steadfast_shares::{Share, ShareId, Size, shown_bytes};
use steadfast_sys::identity::{self, Capability};

use ledger::{Ledger, Settled};
pub(crate) use ledger::{escaped, unescaped};
use settling::{LIFTING_PATIENCE, Lifting};

use crate::configuration::WantedShare;

/// A size that is in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InEffect {
    qgroup: Qgroup,
    size: Size,
}

/// How much a share has of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeUse {
    pub(crate) size: Size,
    pub(crate) used_bytes: u64,
    /// Whether the kernel does not know how much it has, and need not enforce the size.
    pub(crate) may_be_wrong: bool,
}

impl SizeUse {
    /// That a share has more than its size, if so.
    pub(crate) fn excess(&self) -> Option<String> {
        let Self { size, used_bytes, .. } = *self;
        (used_bytes > size.bytes()).then(|| {
            format!("it has {} of {size}: nothing can be added to it", shown_bytes(used_bytes))
        })
    }
}

/// A size that is to be enforced.
struct Planned {
    index: usize,
    id: ShareId,
    wanted: InEffect,
    before: Option<InEffect>,
    directory: PathBuf,
    now: Now,
}

/// What the kernel has of a limit that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    /// It.
    Set,
    /// Another one, of ours, or none.
    Other,
    /// One of somebody else, in bytes, which is to be replaced.
    Foreign(u64),
}

/// Sizes of shares.
pub(crate) struct Sizes {
    state_directory: Arc<Path>,
    ledger: Ledger,
    in_effect: HashMap<ShareId, InEffect>,
    /// The shares of each subvolume with a size.
    shares: HashMap<Qgroup, HashSet<ShareId>>,
    /// Shares whose limits are taken over, whoever has set them.
    accepted: HashSet<ShareId>,
    /// Limits that are to be taken away.
    to_lift: HashSet<Qgroup>,
    /// Limits that were set or taken away, of which the disk need not know yet.
    unsettled: HashSet<Qgroup>,
    lifting: Arc<Lifting>,
    inconsistent: Mutex<Option<Inconsistent>>,
}

/// Whether the kernel had lost count on a file system, and when: of fifteen thousand shares that are told
/// one after the other it is asked once in a while.
struct Inconsistent {
    uuid: [u8; 16],
    when: Instant,
    flag: bool,
}

/// So long it is taken for true.
const INCONSISTENT_AGE_MAX: Duration = Duration::from_millis(20);

impl Sizes {
    /// Reads which limits were set.
    pub(crate) fn open(state_directory: &Path) -> Self {
        let ledger = Ledger::open(state_directory);
        // Before the last end: what the disk has of these was not known.
        let unsettled = ledger.all().filter(|(_, known)| known.values().len() > 1);
        let unsettled = unsettled.map(|(qgroup, _)| *qgroup).collect();
        Self {
            state_directory: state_directory.into(),
            ledger,
            in_effect: HashMap::new(),
            shares: HashMap::new(),
            accepted: HashSet::new(),
            to_lift: HashSet::new(),
            unsettled,
            lifting: Arc::default(),
            inconsistent: Mutex::default(),
        }
    }

    /// Notes as in effect the sizes of shares that were served before the start, by directory, as far as
    /// they are the ones that are wanted, and the kernel has them now. These are returned.
    pub(crate) fn begin<'a>(
        &mut self,
        wanted: impl Iterator<Item = &'a Share>,
    ) -> HashMap<ShareId, Qgroup> {
        let sized: Vec<_> = wanted.filter_map(|share| Some((share, share.size?))).collect();
        if sized.is_empty() {
            return HashMap::new();
        }
        let by_directory: HashMap<&Path, &Qgroup> =
            self.ledger.all().map(|(qgroup, known)| (&*known.directory, qgroup)).collect();
        let begun = sized.into_iter().filter_map(|(share, size)| {
            let qgroup = **by_directory.get(share.directory())?;
            let holds = qgroup.limit().is_ok_and(|limit| limit == Some(size.bytes()));
            holds.then_some((share.id, InEffect { qgroup, size }))
        });
        let begun: Vec<_> = begun.collect();
        for (id, in_effect) in &begun {
            self.enter(*id, *in_effect);
        }
        begun.into_iter().map(|(id, in_effect)| (id, in_effect.qgroup)).collect()
    }

    /// Takes over the limits that these shares' subvolumes have, whoever has set them, when their sizes are
    /// applied next.
    pub(crate) fn accept(&mut self, shares: impl Iterator<Item = ShareId>) {
        self.accepted.extend(shares);
    }

    /// Has the kernel enforce the sizes of shares that are wanted, as far as they were `seen`, and no
    /// longer those of shares that are `removed`. Of a share whose size cannot be enforced, `seen` becomes
    /// the reason.
    pub(crate) fn apply(
        &mut self,
        removed: &[ShareId],
        wanted: &[WantedShare],
        seen: &mut [Result<LookedAt, String>],
    ) {
        let mut left = Vec::new();
        for id in removed {
            left.extend(self.leave(*id));
        }
        let sizes = wanted.iter().map(|wanted| (wanted.share.id, wanted.share.size));
        let sizes: HashMap<ShareId, Option<Size>> = sizes.collect();
        let until = Instant::now() + LIFTING_PATIENCE;
        let mut planned: Vec<Planned> = Vec::new();
        for (index, (WantedShare { share, .. }, seen)) in wanted.iter().zip(&mut *seen).enumerate()
        {
            match (share.size, &seen) {
                (None, _) => left.extend(self.leave(share.id)),
                (Some(_), Err(_)) => {}
                (Some(size), Ok(at)) => match self.plan(share, size, at, &sizes, until) {
                    Ok((wanted, now)) => {
                        let (id, before) = (share.id, self.in_effect.get(&share.id).copied());
                        left.extend(self.enter(share.id, wanted));
                        let directory = at.directory.clone();
                        planned.push(Planned { index, id, wanted, before, directory, now });
                    }
                    Err(why) => *seen = Err(told(at, size, &why)),
                },
            }
            self.accepted.remove(&share.id);
        }
        left.extend(self.set_limits(planned, seen));
        // What could not be changed has what it had.
        left.retain(|qgroup| !self.shares.contains_key(qgroup));
        self.to_lift.extend(left);
    }

    /// Sets limits, after they were written down; what is left by shares that get none.
    fn set_limits(
        &mut self,
        planned: Vec<Planned>,
        seen: &mut [Result<LookedAt, String>],
    ) -> Vec<Qgroup> {
        let limits = planned.iter().flat_map(|one| {
            // Until the disk knows of ours, it may come back after a power cut.
            let foreign = match one.now {
                Now::Foreign(bytes) => Some(bytes),
                Now::Set | Now::Other => None,
            };
            let values = foreign.into_iter().chain([one.wanted.size.bytes()]);
            values.map(|bytes| (one.wanted.qgroup, bytes, &*one.directory))
        });
        let limits: Vec<_> = limits.collect();
        let written = self.ledger.add(&limits);
        let mut left = Vec::new();
        let mut not_ours = Vec::new();
        let mut inconsistent: HashMap<[u8; 16], bool> = HashMap::new();
        for Planned { index, id, wanted, before, directory, now } in planned {
            let InEffect { qgroup, size } = wanted;
            let is_set = now == Now::Set;
            let set = match &written {
                // It holds, and is somebody else's after a restart.
                Err(why) if is_set => {
                    tracing::error!("{why}");
                    Ok(())
                }
                Err(why) => Err(why.clone()),
                Ok(()) if is_set => Ok(()),
                Ok(()) => set_limit(&qgroup, &directory, size),
            };
            if !is_set || self.ledger.limit(&qgroup).is_some_and(|known| known.values().len() > 1) {
                self.unsettled.insert(qgroup);
            }
            match set {
                Ok(()) => {
                    let flag = inconsistent.entry(qgroup.uuid);
                    flag.or_insert_with(|| is_inconsistent(&qgroup.uuid));
                }
                Err(why) => {
                    let has_left = match before {
                        Some(before) => self.enter(id, before),
                        None => self.leave(id),
                    };
                    if matches!(now, Now::Foreign(_)) {
                        // It was not replaced, and stays somebody else's.
                        self.unsettled.remove(&qgroup);
                        not_ours.push((qgroup, Settled::NotOurs));
                    } else {
                        left.extend(has_left);
                    }
                    if let Some(seen) = seen.get_mut(index)
                        && let Ok(at) = &*seen
                    {
                        *seen = Err(told(at, size, &why));
                    }
                }
            }
        }
        if let Err(why) = self.ledger.settle(&not_ours) {
            tracing::error!("{why}");
        }
        if inconsistent.values().any(|flag| *flag) {
            tracing::warn!("{INCONSISTENT}");
        }
        left
    }

    /// What is to enforce a size, and what the kernel has of that now. `sizes` are those that shares are to have
    /// from now on, of which that is not in effect yet. Waits `until` then for a limit that is being taken away.
    fn plan(
        &self,
        share: &Share,
        size: Size,
        at: &LookedAt,
        sizes: &HashMap<ShareId, Option<Size>>,
        until: Instant,
    ) -> Result<(InEffect, Now), String> {
        let qgroup = match &at.qgroup {
            Some(looked_at) => looked_at.clone()?,
            None => Qgroup::of(&at.directory).map_err(|why| why.to_string())?,
        };
        let others = self.shares.get(&qgroup).into_iter().flatten().filter(|id| **id != share.id);
        let mut others = others.filter_map(|id| match sizes.get(id) {
            Some(size) => *size,
            None => Some(self.in_effect.get(id)?.size),
        });
        if let Some(other) = others.find(|other| *other != size) {
            return Err(two_sizes(other));
        }
        self.lifting.wait(&qgroup, until)?;
        let limit = qgroup.limit().map_err(|error| NoQgroup::Unreadable(error).to_string())?;
        let is_ours = |bytes| self.ledger.limit(&qgroup).is_some_and(|known| known.is_ours(bytes));
        let wanted = InEffect { qgroup, size };
        match limit {
            Some(bytes) if bytes == size.bytes() => Ok((wanted, Now::Set)),
            Some(bytes) if !is_ours(bytes) && !self.accepted.contains(&share.id) => Err(format!(
                "its qgroup {qgroup} has a limit of {} already, which this server has not set: \
                 `steadfast share accept` replaces it; or `btrfs qgroup limit none {}` takes it away, \
                 then `steadfast reload`",
                shown_size(bytes),
                at.directory.display()
            )),
            _ if !may_set_limits() => Err(NEEDS_ADMIN.to_owned()),
            Some(bytes) if !is_ours(bytes) => Ok((wanted, Now::Foreign(bytes))),
            _ => Ok((wanted, Now::Other)),
        }
    }

    /// Why the sizes of shares could not be enforced, if they were wanted together, `removed` shares being
    /// gone; by their places in the list. Changes nothing.
    pub(crate) fn problems(
        &self,
        wanted: &[(&Share, &LookedAt)],
        removed: impl Iterator<Item = ShareId>,
    ) -> Vec<(usize, String)> {
        let mut sizes: HashMap<ShareId, Option<Size>> = removed.map(|id| (id, None)).collect();
        sizes.extend(wanted.iter().map(|(share, _)| (share.id, share.size)));
        let mut together: HashMap<Qgroup, Size> = HashMap::new();
        let mut problems = Vec::new();
        let until = Instant::now();
        for (index, (share, at)) in wanted.iter().enumerate() {
            let Some(size) = share.size else { continue };
            let planned = self.plan(share, size, at, &sizes, until).and_then(|(wanted, _)| {
                let other = *together.entry(wanted.qgroup).or_insert(size);
                if other == size { Ok(()) } else { Err(two_sizes(other)) }
            });
            problems.extend(planned.err().map(|why| (index, told(at, size, &why))));
        }
        problems
    }

    /// Notes that a share has a size; what it had before, if nobody has that any more.
    fn enter(&mut self, id: ShareId, wanted: InEffect) -> Option<Qgroup> {
        self.to_lift.remove(&wanted.qgroup);
        if let Some(known) = self.in_effect.get_mut(&id)
            && known.qgroup == wanted.qgroup
        {
            *known = wanted;
            return None;
        }
        let left = self.leave(id);
        self.in_effect.insert(id, wanted);
        self.shares.entry(wanted.qgroup).or_default().insert(id);
        left
    }

    /// Notes that a share has no size; what it had, if nobody has that any more.
    fn leave(&mut self, id: ShareId) -> Option<Qgroup> {
        let InEffect { qgroup, .. } = self.in_effect.remove(&id)?;
        let shares = self.shares.get_mut(&qgroup)?;
        shares.remove(&id);
        if !shares.is_empty() {
            return None;
        }
        self.shares.remove(&qgroup);
        Some(qgroup)
    }

    /// Notes that shares are gone but for these: also those that were not served any more, as they were faulty.
    pub(crate) fn retain(&mut self, wanted: &HashSet<ShareId>) {
        let gone = self.in_effect.keys().filter(|id| !wanted.contains(id));
        for id in gone.copied().collect::<Vec<_>>() {
            let left = self.leave(id);
            self.to_lift.extend(left);
        }
    }

    /// Has limits taken away that were set for shares that have no size any more, also for such of before
    /// the start; `wanted` are all shares that are to be served.
    pub(crate) fn lift_unwanted(&mut self, wanted: &[WantedShare]) {
        if self.ledger.all().all(|(qgroup, _)| self.shares.contains_key(qgroup)) {
            return;
        }
        let sized = wanted.iter().map(|wanted| &wanted.share).filter(|share| share.size.is_some());
        // Those that could not be looked at now.
        let faulty = sized.filter(|share| !self.in_effect.contains_key(&share.id));
        let directories: HashSet<&Path> = faulty.map(|share| share.directory()).collect();
        let unwanted = self.ledger.all().filter(|(qgroup, known)| {
            !self.shares.contains_key(*qgroup) && !directories.contains(&*known.directory)
        });
        let unwanted: Vec<_> = unwanted.map(|(qgroup, _)| *qgroup).collect();
        self.to_lift.extend(unwanted);
    }

    /// Whether a share has a size in effect.
    pub(crate) fn has_any(&self) -> bool {
        !self.in_effect.is_empty()
    }

    /// What enforces a share's size.
    pub(crate) fn qgroup(&self, id: ShareId) -> Option<Qgroup> {
        self.in_effect.get(&id).map(|known| known.qgroup)
    }

    /// What shares that are served need to have in effect, to be looked at without the lock of the shares.
    pub(crate) fn expected<'a>(&self, served: impl Iterator<Item = &'a Arc<Share>>) -> Expected {
        let sized = served.filter_map(|share| Some((share.id, share.size?)));
        let expected = sized.map(|(id, size)| {
            let known = self.in_effect.get(&id).filter(|known| known.size == size);
            known.map(|known| (known.qgroup, size.bytes()))
        });
        Expected(expected.collect())
    }

    /// How much a share has of its size, or why that is not enforced; `None` if it has none in effect.
    pub(crate) fn usage(&self, id: ShareId) -> Option<Result<SizeUse, String>> {
        let InEffect { qgroup, size } = *self.in_effect.get(&id)?;
        Some(match qgroup.usage() {
            Ok(now) if now.limit_bytes == Some(size.bytes()) => Ok(SizeUse {
                size,
                used_bytes: now.used_bytes,
                may_be_wrong: self.is_inconsistent(&qgroup),
            }),
            Ok(now) => {
                let limit = now.limit_bytes.map_or_else(|| "none".to_owned(), shown_size);
                Err(format!(
                    "its size {size} is not enforced: somebody has set the limit of its qgroup {qgroup} \
                     to {limit}; `steadfast reload` sets it again, or tells what is in the way"
                ))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "its size {size} is not enforced: quotas of its btrfs were switched off, or its \
                 subvolume {} was removed; `btrfs quota enable` and `steadfast reload`, or take `size` out",
                qgroup.subvolume
            )),
            Err(error) => Err(format!("its size {size} may not be enforced: {error}")),
        })
    }

    fn is_inconsistent(&self, qgroup: &Qgroup) -> bool {
        let (mut known, now) = (self.inconsistent.lock(), Instant::now());
        let is_fresh = |known: &&Inconsistent| {
            known.uuid == qgroup.uuid && now.duration_since(known.when) < INCONSISTENT_AGE_MAX
        };
        if let Some(known) = known.as_ref().filter(is_fresh) {
            return known.flag;
        }
        let flag = qgroup.is_inconsistent();
        *known = Some(Inconsistent { uuid: qgroup.uuid, when: now, flag });
        flag
    }

    /// What is to be said of a share's size that was set just now: it has more, or the kernel does not
    /// know how much it has.
    pub(crate) fn warning(&self, id: ShareId) -> Option<String> {
        let InEffect { qgroup, .. } = self.in_effect.get(&id)?;
        if qgroup.is_inconsistent() {
            return Some(INCONSISTENT.to_owned());
        }
        self.usage(id)?.ok()?.excess()
    }
}

/// What sizes need to have in effect: limits of qgroups in bytes; `None` for a size that could not be set.
pub(crate) struct Expected(Vec<Option<(Qgroup, u64)>>);

impl Expected {
    /// How many of them are not enforced, or may not be.
    pub(crate) fn faults(&self) -> u64 {
        let mut inconsistent: HashMap<[u8; 16], bool> = HashMap::new();
        let mut holds = |(qgroup, bytes): (Qgroup, u64)| {
            let flag = inconsistent.entry(qgroup.uuid);
            !*flag.or_insert_with(|| is_inconsistent(&qgroup.uuid))
                && qgroup.limit().is_ok_and(|limit| limit == Some(bytes))
        };
        self.0.iter().filter(|expected| !expected.is_some_and(&mut holds)).count() as u64
    }
}

/// That the kernel does not know what subvolumes have.
pub(crate) const INCONSISTENT: &str = "btrfs has yet to count what its subvolumes have, or has lost count (after \
     a snapshot was deleted or put into a qgroup): until `btrfs quota rescan` has ended, sizes may not hold";

const NEEDS_ADMIN: &str =
    "the kernel lets only who has CAP_SYS_ADMIN set limits of qgroups, which this server has not";

/// Whether this process may set limits, as far as it knows.
fn may_set_limits() -> bool {
    identity::capabilities().is_ok_and(|(_, permitted)| permitted.has(Capability::SYS_ADMIN))
}

fn two_sizes(other: Size) -> String {
    format!("another share of the same subvolume has the size {other}: give both the same")
}

/// Why a share's size could not be enforced on the file system of its directory, if it has one and is there.
/// Changes nothing, and does not know what a server has set.
pub fn size_problem(share: &Share) -> Option<String> {
    let size = share.size?;
    // What is not there is told otherwise.
    let directory = share.directory().canonicalize().ok().filter(|directory| directory.is_dir())?;
    let why = Qgroup::of(&directory).err()?;
    Some(cannot(&directory, size, &why.to_string()))
}

fn set_limit(qgroup: &Qgroup, directory: &Path, size: Size) -> Result<(), String> {
    let set = qgroup.set_limit(directory, size.bytes());
    set.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => NEEDS_ADMIN.to_owned(),
        _ => format!("the limit of its qgroup {qgroup} cannot be set: {error}"),
    })
}

fn told(at: &LookedAt, size: Size, why: &str) -> String {
    cannot(&at.directory, size, why)
}

fn cannot(directory: &Path, size: Size, why: &str) -> String {
    format!("the size {size} of {directory:?} cannot be enforced: {why}")
}

/// A limit as btrfs(8) and `size` have it.
fn shown_size(bytes: u64) -> String {
    Size::of_bytes(bytes).map_or_else(|| shown_bytes(bytes), |size| size.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subvolume_is_left_with_its_last_share() {
        let group = |subvolume| Qgroup { uuid: [7; 16], subvolume };
        let place = tempfile::tempdir().expect("a directory");
        let mut sizes = Sizes::open(place.path());
        let size = Size::of_bytes(1 << 30).expect("a size");
        let (one, two) = (ShareId(1), ShareId(2));
        let at = |subvolume| InEffect { qgroup: group(subvolume), size };
        assert_eq!(sizes.enter(one, at(256)), None);
        assert_eq!(sizes.enter(two, at(256)), None);
        assert_eq!(sizes.enter(one, at(256)), None);
        assert_eq!(sizes.leave(one), None);
        assert_eq!(sizes.enter(two, at(257)), Some(group(256)));
        assert_eq!(sizes.leave(two), Some(group(257)));
        assert!(sizes.in_effect.is_empty() && sizes.shares.is_empty());
    }
}
