//! Replay at the start: the records of each file system are replayed, or set aside. Before that, changes of
//! attributes that were under way when the server was killed are undone; after it, files are truncated
//! again.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

use steadfast_intent_log::{Extent, FileSystemEntry, LiveRecords, Lsn, Reader, Superblock, Survey};
use steadfast_recovery::{Change, Recoverable, finish_cut, undo};

use crate::listing::shown;
use crate::medium::FileMedium;
use crate::observed::ObservedFile;
use crate::records::{ReplayError, RingRecords};
use crate::replay::replay;
use crate::storages::Storages;
use crate::told::tell;
use crate::under_way::{self, Found};
use crate::{aside, refused, survey};

use super::comparison::Comparison;
use super::{NotReplayed, Settled, StartIntentLog, StartIntentLogError};

impl StartIntentLog {
    /// Replays all live records. Records that cannot be replayed now are set aside. File systems that are
    /// refused are not changed.
    pub(super) fn replay_what_is_live(
        &self,
        medium: &FileMedium,
        superblock: Superblock,
        mut storages: Storages,
        comparison: Comparison,
    ) -> Result<Settled, StartIntentLogError> {
        let surveyed = survey(medium, &superblock);
        // Of those that are refused nothing is changed.
        storages.retain(|(entry, _)| !comparison.is_refused(&entry.identity));
        let mut changed = superblock.file_systems.clone();
        changed.retain(|entry| !comparison.is_refused(&entry.identity));
        let cuts = self.undo_what_was_under_way(&changed, surveyed.last, &mut storages);
        let ring_replies = self.replies_of_ring(medium, &superblock);
        let not_replayed =
            self.replay_all(medium, (&superblock, &surveyed, &comparison), &mut storages)?;
        finish_cuts(&cuts, &not_replayed, &mut storages);
        let live = superblock.file_systems.iter();
        let live = live.filter(|entry| surveyed.live.contains_key(&entry.index));
        let of_live = live.map(|entry| entry.identity);
        let replayed = of_live.filter(|identity| !not_replayed.contains(identity)).collect();
        storages.retain(|(entry, _)| !not_replayed.contains(&entry.identity));
        Ok(Settled {
            superblock,
            write_verifier: self.new_write_verifier,
            storages,
            comparison,
            ring_replies,
            replayed,
            not_replayed,
        })
    }

    /// Undoes what was under way when the server was killed, and is not in the log, of which `last` is
    /// the last record. Returns where files were cut, to be finished after replay.
    fn undo_what_was_under_way(
        &self,
        file_systems: &[FileSystemEntry],
        last: Lsn,
        storages: &mut Storages,
    ) -> Vec<Found> {
        let mut found = under_way::found(&self.state_directory).unwrap_or_else(|error| {
            tracing::warn!("the state directory cannot be read: {error}; attributes that were being set when the \
                 server was killed may be set in part");
            Vec::new()
        });
        found.retain(|found| found.lsn == 0 || found.lsn > last.0);
        // The last first: what has no LSN yet, of any object one at the most, comes after all others.
        found.sort_by_key(|found| std::cmp::Reverse(found.lsn.wrapping_sub(1)));
        let mut cuts = Vec::new();
        for mut found in found {
            let is_it = |entry: &&FileSystemEntry| entry.identity == found.file_system;
            let Some(entry) = file_systems.iter().find(is_it) else { continue };
            if !storages.iter().any(|(known, _)| known.index == entry.index) {
                match self.open(entry) {
                    Ok(Some(storage)) => storages.push((entry.clone(), storage)),
                    Ok(None) => tell_of_half(entry, &"its file system is not mounted"),
                    Err(error) => tell_of_half(entry, &error),
                }
            }
            let of_it = storages.iter_mut().find(|(known, _)| known.index == entry.index);
            let Some((_, storage)) = of_it else { continue };
            match undo(&mut **storage, found.under_way, found.lsn != 0) {
                Ok(None) => {}
                Ok(Some(cut)) => {
                    found.under_way = cut;
                    if let Err(error) = under_way::note_cut(&self.state_directory, &found) {
                        tell_of_half(entry, &error);
                    }
                    cuts.push(found);
                }
                Err(error) => tell_of_half(entry, &error),
            }
        }
        cuts
    }

    /// Replays the records of each file system, or sets them aside if it is not open or cannot be changed.
    /// Returns the file systems whose records were set aside.
    fn replay_all(
        &self,
        medium: &FileMedium,
        (superblock, surveyed, comparison): (&Superblock, &Survey, &Comparison),
        storages: &mut Storages,
    ) -> Result<NotReplayed, StartIntentLogError> {
        let mut not_replayed = NotReplayed::new();
        for entry in &superblock.file_systems {
            let Some(live) = surveyed.live.get(&entry.index) else { continue };
            let there = storages.iter_mut().find(|(known, _)| known.index == entry.index);
            let replayed = there.map(|(_, storage)| {
                self.replay_ring(medium, superblock, entry, live.records, &mut **storage)
            });
            let why = match replayed {
                Some(Ok(())) => continue,
                // It may be full, or read-only. The others must not wait for it.
                Some(Err(error)) if error.is_of_storage() => {
                    format!(
                        "they cannot be replayed: {error}; repair that, and start its share again"
                    )
                }
                Some(Err(source)) => {
                    let file_system = shown(entry);
                    return Err(StartIntentLogError::Replay { file_system, source });
                }
                None => self
                    .why_not_there(comparison, entry)
                    .map_err(StartIntentLogError::StateDirectory)?,
            };
            self.set_aside(medium, superblock, entry, live, &why)
                .map_err(StartIntentLogError::StateDirectory)?;
            not_replayed.push(entry.identity);
        }
        Ok(not_replayed)
    }

    /// Why a file system is not open: it was refused, which is noted for the administrator, or it is not
    /// mounted.
    fn why_not_there(
        &self,
        comparison: &Comparison,
        entry: &FileSystemEntry,
    ) -> io::Result<String> {
        let Some(why) = comparison.why_refused(&entry.identity) else {
            return Ok(comparison.why_absent(entry));
        };
        refused::note(&self.state_directory, entry, &why)?;
        Ok(format!("{why}; {}", refused::choices(entry)))
    }

    /// The replies in the ring, the oldest first and not more than the store takes.
    fn replies_of_ring(&self, medium: &FileMedium, superblock: &Superblock) -> Vec<Vec<u8>> {
        let mut replies = VecDeque::new();
        let mut bytes = 0;
        for record in Reader::new(medium, Extent::of(superblock)) {
            // Also of those whose change has reached the disk.
            if let Ok((_, behind)) = Change::decode(&record.payload)
                && !behind.is_empty()
            {
                bytes += behind.len();
                replies.push_back(behind.to_vec());
            }
            while bytes as u64 > self.options.replies_bytes_max
                && let Some(oldest) = replies.pop_front()
            {
                bytes -= oldest.len();
            }
        }
        replies.into()
    }

    /// Replays what there is of one file system: what was set aside before, and what is in the ring.
    fn replay_ring(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        live_records: u64,
        storage: &mut dyn Recoverable,
    ) -> Result<(), ReplayError> {
        // Where something was set aside the disk may have failed, and lost what was in effect.
        let has_asides = !aside::files_of(&self.state_directory, &entry.identity)?.is_empty();
        self.remove_asides_of_ring(superblock, entry)?;
        aside::replay_all(&self.state_directory, entry, storage)?;
        let records =
            RingRecords { medium, extent: Extent::of(superblock), file_system: entry.index };
        let (directory, epoch) = (&self.state_directory, superblock.epoch);
        let observed = ObservedFile::of_ring(directory, &superblock.uuid, epoch, entry.index);
        let begun = std::time::Instant::now();
        let report = replay(&records, Some(live_records), &observed, !has_asides, storage)?;
        tell(entry, &report, storage, begun.elapsed());
        Ok(())
    }

    /// Keeps what the ring has of a file system until that can be replayed.
    fn set_aside(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        live: &LiveRecords,
        why: &str,
    ) -> io::Result<()> {
        let (directory, extent) = (&self.state_directory, Extent::of(superblock));
        let log = (&superblock.uuid, superblock.epoch);
        let expected = Some(live.records);
        let set_aside = aside::set_aside(directory, medium, &extent, log, entry, expected)?;
        let Some((path, last)) = set_aside else { return Ok(()) };
        // This start, or an earlier one, may have begun to replay them.
        let of_ring = ObservedFile::of_ring(directory, log.0, log.1, entry.index);
        ObservedFile::of_aside(directory, log.0, log.1, entry.index, last).copy_from(&of_ring)?;
        tracing::error!(
            "{}: {} operations are not replayed: {why}. They are kept in {} and replayed \
             before it is served",
            shown(entry),
            live.operations,
            path.display()
        );
        Ok(())
    }

    /// A start that was cut short may have set aside what the ring still has.
    fn remove_asides_of_ring(
        &self,
        superblock: &Superblock,
        entry: &FileSystemEntry,
    ) -> io::Result<()> {
        for file in aside::files_of(&self.state_directory, &entry.identity)? {
            if file.is_of(&superblock.uuid, superblock.epoch) && file.last > entry.tail {
                std::fs::remove_file(&file.path)?;
            }
        }
        File::open(&self.state_directory)?.sync_all()
    }
}

/// Cuts files again that were being cut when the server was killed.
fn finish_cuts(cuts: &[Found], not_replayed: &NotReplayed, storages: &mut Storages) {
    for cut in cuts {
        let of_it = storages.iter_mut().find(|(known, _)| known.identity == cut.file_system);
        let Some((entry, storage)) = of_it else { continue };
        if not_replayed.contains(&cut.file_system) {
            tell_of_half(entry, &"its file system is replayed later");
            continue;
        }
        match finish_cut(&mut **storage, &cut.under_way) {
            Ok(()) => {
                if let Err(why) = storage.make_stable() {
                    tell_of_half(entry, &why);
                }
            }
            Err(error) => tell_of_half(entry, &error),
        }
    }
}

fn tell_of_half(entry: &FileSystemEntry, why: &dyn std::fmt::Display) {
    tracing::warn!(
        "{}: attributes of an object were being set when the server was killed, and no client was told \
         that they were; it may have some of them and not others: {why}",
        shown(entry)
    );
}
