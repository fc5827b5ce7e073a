//! Replay of one file system's records.

use rustix::time::ClockId;
use steadfast_recovery::{Action, Change, Recoverable, Replay, Report};
use steadfast_vfs::{FsError, Time};

use super::listing::object_shown;
use super::mutation::{self, Mutation};
use super::observed::ObservedFile;
use super::records::{Records, ReplayError};
use super::told::keep_not_replayed;

fn storage_error(step: impl Into<String>) -> impl FnOnce(FsError) -> ReplayError {
    let step = step.into();
    move |source| ReplayError::Storage { step, source }
}

/// Of so many records one is left out by [`Mutation::SkippedRecords`].
const SKIPPED: u64 = 16;

fn each_change(
    records: &dyn Records,
    mut take: impl FnMut(u64, &Change<'_>) -> Result<(), ReplayError>,
) -> Result<u64, ReplayError> {
    records.each(&mut |lsn, payload| {
        if mutation::is_on(Mutation::SkippedRecords) && lsn.is_multiple_of(SKIPPED) {
            return Ok(());
        }
        let (change, _) = Change::decode(payload).map_err(|_| ReplayError::Record(lsn))?;
        take(lsn, &change)
    })
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 }
}

/// When this run of the machine began, by the clock as it is now.
fn machine_started() -> Option<Time> {
    let since = |clock| {
        let now = rustix::time::clock_gettime(clock);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    };
    let began = since(ClockId::Realtime) - since(ClockId::Boottime);
    let seconds = i64::try_from(began.div_euclid(1_000_000_000)).ok()?;
    Some(Time { seconds, nanoseconds: began.rem_euclid(1_000_000_000) as u32 })
}

/// Writes the data of all records; how many there are.
fn write_data(
    records: &dyn Records,
    replay: &mut Replay,
    storage: &mut dyn Recoverable,
) -> Result<u64, ReplayError> {
    each_change(records, |lsn, change| {
        replay.write_data(storage, lsn, change).map_err(|source| {
            let object = match &change.action {
                Action::Write { object, .. }
                | Action::Attributes { object, .. }
                | Action::Acls { object, .. }
                | Action::Make { object, .. } => object_shown(object, storage),
                _ => "an object".to_owned(),
            };
            ReplayError::Storage { step: format!("writing operation {lsn} to {object}"), source }
        })
    })
}

/// Brings into effect what records say, and makes it stable. What was observed is kept in
/// `observed` until the records are of no use any more: then it is to be removed. `expected`: how
/// many there must be, if that is known. `may_be_in_effect`: the file system has everything if it is still
/// mounted, or was only unmounted and mounted again, since its disk is not known to have failed.
pub(super) fn replay(
    records: &dyn Records,
    expected: Option<u64>,
    observed: &ObservedFile,
    may_be_in_effect: bool,
    storage: &mut dyn Recoverable,
) -> Result<Report, ReplayError> {
    let still_mounted = storage.still_mounted().map(str::to_owned);
    let is_still_mounted = still_mounted.is_some();
    let mounting = still_mounted.or_else(|| storage.mounted_again().map(str::to_owned));
    // What was observed when all was thought to be in effect says nothing about a disk that has failed.
    let earlier =
        observed.read(mounting.as_deref())?.filter(|kept| may_be_in_effect || !kept.is_in_effect);
    let started = machine_started().filter(|_| storage.machine_was_started());
    let mut replay = Replay::default().on_machine_started(started).at(Some(now()));
    let count = each_change(records, |lsn, change| {
        replay.read(lsn, change);
        Ok(())
    })?;
    if let Some(expected) = expected
        && expected != count
    {
        return Err(ReplayError::Log(format!("{expected} were found, and then {count}")));
    }
    let looking = "looking at the objects that the operations are of";
    let is_in_effect = match &earlier {
        Some(kept) => kept.is_in_effect,
        None if !may_be_in_effect || mounting.is_none() => false,
        None if is_still_mounted => true,
        None => replay.is_all_there(storage).map_err(storage_error(looking))?,
    };
    if is_in_effect {
        replay.be_of_what_is_in_effect(is_still_mounted && storage.has_lost_nothing());
    }
    let is_first = earlier.is_none();
    let found = replay
        .observe(storage, earlier.map(|kept| kept.observed))
        .map_err(storage_error(looking))?;
    if is_first {
        observed.write(found, is_in_effect, mounting.as_deref())?;
    }
    replay.bind_names(storage).map_err(storage_error("bringing names back"))?;
    let again = write_data(records, &mut replay, storage)?;
    if again != count {
        return Err(ReplayError::Log(format!("{count} were found, and then {again}")));
    }
    let report = replay.set_attributes(storage).map_err(storage_error("setting attributes"))?;
    // Once it is done the records are of no use to anybody else.
    keep_not_replayed(records, &report, &observed.not_replayed())?;
    storage.make_stable().map_err(ReplayError::NotStable)?;
    Ok(report)
}
