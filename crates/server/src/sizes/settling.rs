//! What is done about limits without the lock of the shares: it may take as long as a disk hangs.
//!
//! A limit that nobody wants any more is taken away at once. After that, and after one was changed, the disk
//! is asked to know of it, and only then is forgotten what it may have had before.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_posixfs::{Qgroup, has_lifted_limits, sync_limits};

use super::ledger::{OurLimit, Settled};
use super::{Sizes, shown_size};

/// A change that wants limits which are being taken away waits so long, for all of them together.
pub(super) const LIFTING_PATIENCE: Duration = Duration::from_secs(5);

/// Limits that are being taken away just now.
#[derive(Default)]
pub(super) struct Lifting {
    now: Mutex<HashSet<Qgroup>>,
    fewer: Condvar,
}

impl Lifting {
    /// Waits until a limit is not being taken away.
    ///
    /// # Errors
    /// That it takes longer than `until` then.
    pub(super) fn wait(&self, qgroup: &Qgroup, until: Instant) -> Result<(), String> {
        let mut now = self.now.lock();
        self.fewer.wait_while_until(&mut now, |now| now.contains(qgroup), until);
        if now.contains(qgroup) {
            return Err(format!(
                "the limit that its qgroup {qgroup} had is being taken away, for which its disk takes \
                 long (is it frozen, or does it hang?); then `steadfast reload`"
            ));
        }
        Ok(())
    }

    fn end(&self, qgroup: &Qgroup) {
        self.now.lock().remove(qgroup);
        self.fewer.notify_all();
    }
}

/// Limits to be taken away.
pub(crate) struct Lift {
    limits: Vec<(Qgroup, OurLimit)>,
    lifting: Arc<Lifting>,
}

impl Lift {
    /// Takes them away, if they are as this server has set them.
    pub(crate) fn perform(self) {
        for (qgroup, ours) in &self.limits {
            if let Err(error) = lift(qgroup, ours) {
                tracing::error!(
                    "{}: its size is to hold no more, and the limit of its qgroup {qgroup} cannot be \
                     taken away: {error}",
                    ours.directory.display()
                );
            }
            self.lifting.end(qgroup);
        }
    }
}

fn lift(qgroup: &Qgroup, ours: &OurLimit) -> io::Result<()> {
    match qgroup.limit() {
        Ok(Some(bytes)) if !ours.is_ours(bytes) => tracing::warn!(
            "{}: it has no size any more; the limit of {} of its qgroup {qgroup} stays, since somebody \
             else has set it",
            ours.directory.display(),
            shown_size(bytes)
        ),
        Ok(Some(_)) => match qgroup.lift(&ours.directory) {
            // Its subvolume is gone by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            lifted => return lifted,
        },
        Ok(None) => {}
        // Its subvolume is gone, or quotas are off, or its file system is not mounted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What the kernel has of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Has(Option<u64>),
    /// Its subvolume is gone, or quotas are off.
    IsGone,
    /// It does not tell.
    IsSilent,
}

impl Kernel {
    fn of(qgroup: &Qgroup) -> Self {
        match qgroup.limit() {
            Ok(limit) => Self::Has(limit),
            Err(error) if error.kind() == io::ErrorKind::NotFound && qgroup.is_mounted() => {
                Self::IsGone
            }
            Err(_) => Self::IsSilent,
        }
    }
}

/// Limits of which the disk is to know.
pub(crate) struct Settle {
    limits: Vec<(Qgroup, OurLimit)>,
    state_directory: Arc<Path>,
}

impl Settle {
    /// Has the disks know of them, each once.
    pub(crate) fn perform(self) -> HasSettled {
        let known: HashMap<[u8; 16], PathBuf> = self
            .limits
            .iter()
            .map(|(qgroup, ours)| (qgroup.uuid, ours.directory.clone()))
            .collect();
        // What the kernel has before that, the disk has after it.
        // Replay sets them again that it has lifted, and then removes its note: looked for before and behind.
        let is_lifted = |uuid: &[u8; 16]| has_lifted_limits(&self.state_directory, uuid);
        let lifted: HashSet<_> = known.keys().filter(|uuid| is_lifted(uuid)).copied().collect();
        let before = self.limits.into_iter().map(|(qgroup, ours)| {
            let kernel = Kernel::of(&qgroup);
            (qgroup, ours, kernel)
        });
        let before: Vec<_> = before.collect();
        let is_stable = |(uuid, known): (&[u8; 16], &PathBuf)| {
            let is_left = lifted.contains(uuid) || is_lifted(uuid);
            let synced = if is_left { Ok(()) } else { sync_limits(uuid, known) };
            if let Err(error) = &synced
                && error.kind() != io::ErrorKind::NotConnected
            {
                tracing::warn!("{}: its limits may not be on the disk: {error}", known.display());
            }
            (!is_left && synced.is_ok()).then_some(*uuid)
        };
        let stable: HashSet<[u8; 16]> = known.iter().filter_map(is_stable).collect();
        HasSettled(before, stable)
    }
}

/// What the kernel had of limits, and the file systems whose disks have that now.
pub(crate) struct HasSettled(Vec<(Qgroup, OurLimit, Kernel)>, HashSet<[u8; 16]>);

impl Sizes {
    /// Whether there is something for [`Sizes::take_lifts`] or [`Sizes::take_unsettled`].
    pub(crate) fn has_work(&self) -> bool {
        !self.to_lift.is_empty() || !self.unsettled.is_empty()
    }

    /// Whether a limit is to be taken away.
    pub(crate) fn has_lifts(&self) -> bool {
        !self.to_lift.is_empty()
    }

    /// What is to be taken away, to be done without the lock of the shares.
    pub(crate) fn take_lifts(&mut self) -> Lift {
        let mut limits = Vec::new();
        for qgroup in std::mem::take(&mut self.to_lift) {
            if let Some(ours) = self.ledger.limit(&qgroup) {
                limits.push((qgroup, ours.clone()));
                self.unsettled.insert(qgroup);
            }
        }
        self.lifting.now.lock().extend(limits.iter().map(|(qgroup, _)| *qgroup));
        Lift { limits, lifting: Arc::clone(&self.lifting) }
    }

    /// What the disk is to know, to be done without the lock of the shares; `None` if there is nothing.
    pub(crate) fn take_unsettled(&mut self) -> Option<Settle> {
        let taken = std::mem::take(&mut self.unsettled).into_iter();
        let limits = taken.filter_map(|qgroup| Some((qgroup, self.ledger.limit(&qgroup)?.clone())));
        let limits: Vec<_> = limits.collect();
        let state_directory = Arc::clone(&self.state_directory);
        (!limits.is_empty()).then_some(Settle { limits, state_directory })
    }

    /// Notes what the disk knows. What is left is to be tried again after a while.
    pub(crate) fn note_settled(&mut self, HasSettled(limits, stable): HasSettled) {
        let mut settled = Vec::new();
        for (qgroup, ours, kernel) in limits {
            let is_wanted = self.shares.contains_key(&qgroup);
            let is_as_it_was =
                self.ledger.limit(&qgroup) == Some(&ours) && !self.to_lift.contains(&qgroup);
            if !is_as_it_was || !stable.contains(&qgroup.uuid) {
                // It was changed meanwhile, or the disk has not answered. What is not mounted is looked at
                // with the next reload, or at the next start.
                if self.ledger.limit(&qgroup).is_some() && kernel != Kernel::IsSilent {
                    self.unsettled.insert(qgroup);
                }
                continue;
            }
            match (kernel, is_wanted) {
                (Kernel::Has(Some(bytes)), true) if ours.is_ours(bytes) => {
                    settled.push((qgroup, Settled::Has(bytes)));
                }
                // It could not be taken away, or replay has set it again.
                (Kernel::Has(Some(bytes)), false) if ours.is_ours(bytes) => {
                    self.to_lift.insert(qgroup);
                }
                (Kernel::Has(_) | Kernel::IsGone, false) => {
                    settled.push((qgroup, Settled::NotOurs));
                }
                // Somebody has changed it, which is told; or the disk is not there.
                (_, true) | (Kernel::IsSilent, _) => {}
            }
        }
        if let Err(why) = self.ledger.settle(&settled) {
            tracing::error!("{why}");
        }
    }
}
