//! What an administrator can choose when a log cannot simply be replayed: what each choice keeps and
//! loses, and carrying it out.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_intent_log::{End, FileSystemEntry, Identity, Lsn, Superblock, amend, each_live};
use steadfast_recovery::{Change, ObjectKey, Recoverable};

use super::adopting::{MountedNow, candidate};
use super::care::LogCare;
use super::known::{is_known, note_known};
use super::listing::{Listing, is_operation, shown};
use super::medium::FileMedium;
use super::start::StartIntentLogError;
use super::{aside, hex, refused, survey};

/// Objects of records that are looked for on a file system that may be theirs.
const LOOKED_FOR_MAX: usize = 1000;

impl LogCare {
    /// Says what is in the log, by name where that can be told, and what each choice keeps and loses.
    /// Changes nothing.
    ///
    /// # Errors
    /// When the log cannot be opened, or the state directory cannot be read.
    pub fn verify(&self) -> Result<String, StartIntentLogError> {
        let mut text = self.look()?.to_string();
        let (medium, superblock) = self.open()?;
        let Some(superblock) = superblock else { return Ok(text) };
        let mut storages: BTreeMap<u32, Option<Box<dyn Recoverable>>> = BTreeMap::new();
        for entry in &superblock.file_systems {
            storages.insert(entry.index, (self.open_storage)(entry).ok().flatten());
        }
        let (mut before, mut beyond) = (BTreeMap::new(), BTreeMap::new());
        each_live(&medium, &superblock, &mut |record, is_reached| {
            let side: &mut BTreeMap<u32, Listing> =
                if is_reached { &mut before } else { &mut beyond };
            let storage = storages.entry(record.file_system).or_default();
            side.entry(record.file_system).or_default().add(&record.payload, storage);
        });
        let count = |side: &BTreeMap<u32, Listing>| -> u64 {
            side.values().map(|listing| listing.operations).sum()
        };
        let list = |text: &mut String, side: &BTreeMap<u32, Listing>| {
            for (index, listing) in side {
                let entry = superblock.file_systems.iter().find(|entry| entry.index == *index);
                let path = entry.map_or_else(|| format!("file system {index}"), shown);
                add_lines(text, &listing.text(&path));
            }
        };
        let kept = count(&before);
        if kept > 0 {
            add_lines(&mut text, "operations that can be replayed:");
            list(&mut text, &before);
        }
        let end = survey(&medium, &superblock).end;
        let found = count(&beyond);
        let mut listed = String::new();
        list(&mut listed, &beyond);
        list_damage(&mut text, &end, kept, found, &listed);
        self.list_asides(&mut text)?;
        Ok(text)
    }

    fn list_asides(&self, text: &mut String) -> Result<(), StartIntentLogError> {
        let directory = &self.state_directory;
        for (entry, operations) in self.asides()? {
            add_lines(
                text,
                &format!(
                    "set aside for {} (UUID {}): {operations} operations, in files of the state \
                 directory",
                    shown(&entry),
                    hex(&entry.identity.uuid)
                ),
            );
            let why = refused::why(directory, &entry.identity)
                .map_err(StartIntentLogError::StateDirectory)?;
            if let Some(why) = why {
                add_lines(text, &format!("  {why}; {}", refused::choices(&entry)));
            }
        }
        Ok(())
    }

    /// File systems for which operations are set aside, and how many.
    fn asides(&self) -> Result<Vec<(FileSystemEntry, u64)>, StartIntentLogError> {
        let mut found: BTreeMap<Identity, (FileSystemEntry, u64)> = BTreeMap::new();
        let all = aside::all(&self.state_directory).map_err(StartIntentLogError::StateDirectory)?;
        for file in all {
            let (head, operations) =
                aside::look(&file.file).map_err(|error| self.refused(error.to_string()))?;
            let entry = FileSystemEntry {
                index: 0,
                identity: head.identity,
                path: head.path,
                tail: Lsn(0),
                mark: None,
            };
            found.entry(head.identity).or_insert((entry, 0)).1 += operations;
        }
        Ok(found.into_values().collect())
    }

    /// The file system that an administrator names, by its UUID or by where it was served.
    fn named(
        &self,
        superblock: Option<&Superblock>,
        name: &str,
    ) -> Result<FileSystemEntry, StartIntentLogError> {
        let mut all: Vec<FileSystemEntry> =
            superblock.map(|superblock| superblock.file_systems.clone()).unwrap_or_default();
        all.extend(self.asides()?.into_iter().map(|(entry, _)| entry));
        let mut seen = BTreeSet::new();
        all.retain(|entry| seen.insert(entry.identity));
        let told = |all: &[FileSystemEntry]| {
            let each = |entry: &FileSystemEntry| {
                format!("{} (UUID {})", shown(entry), hex(&entry.identity.uuid))
            };
            all.iter().map(each).collect::<Vec<_>>().join(", ")
        };
        let is_it =
            |entry: &&FileSystemEntry| shown(entry) == name || is_uuid(&entry.identity, name);
        let found: Vec<FileSystemEntry> = all.iter().filter(is_it).cloned().collect();
        match &*found {
            [one] => Ok(one.clone()),
            [] if all.is_empty() => {
                Err(self
                    .refused(format!("it has nothing of a file system {name:?}, nor of others")))
            }
            [] => Err(self.refused(format!(
                "it has nothing of a file system {name:?}; it knows {}",
                told(&all)
            ))),
            several => Err(self.refused(format!(
                "several file systems were at {name:?}: name one by its UUID: {}",
                told(several)
            ))),
        }
    }

    /// Has the next start replay what lies before the damage, and gives up the rest.
    ///
    /// # Errors
    /// When the log is not damaged, or cannot be written.
    pub fn adopt_up_to_damage(&self) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.opened()?;
        let found = survey(&medium, &superblock);
        if !matches!(found.end, End::Damage { .. } | End::Unreadable { .. }) {
            return Err(self.refused(format!("it is not damaged: {}", found.end)));
        }
        let mut lost = 0;
        each_live(&medium, &superblock, &mut |record, is_reached| {
            lost += u64::from(!is_reached && is_operation(&record.payload));
        });
        let kept = found.live_operations();
        let amended = Superblock { ends_at: Some(found.last), ..superblock };
        self.amend(&medium, amended)?;
        Ok(format!(
            "the log ends before the damage now: the next start replays {kept} operations; {lost} \
             intact ones behind it, and those that could not be read, are given up"
        ))
    }

    /// Has the next start replay the log though its file systems are newer.
    ///
    /// # Errors
    /// When there is no log, or the state directory cannot be written.
    pub fn adopt_old_records(&self) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.opened()?;
        let operations = Self::operations(&medium, Some(&superblock));
        refused::accept_old(&self.state_directory, &superblock.uuid, superblock.epoch)
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!(
            "the next start replays the log's {operations} operations, though their file systems are \
             newer; data that was changed since in the same files is kept beside them"
        ))
    }

    /// Has the operations of a file system replayed though that was refused; or, named as OLD=NEW,
    /// makes those of one with the UUID OLD those of the one with the UUID, or mounted at, NEW.
    ///
    /// # Errors
    /// When the log has nothing of it, or NEW is not mounted, or is another file system.
    pub fn adopt_file_system(&self, name: &str) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.opened()?;
        match name.split_once('=') {
            None => self.accept(&medium, &superblock, name),
            Some((old, new)) => self.adopt_renamed(&medium, superblock, old, new),
        }
    }

    /// Has the operations of a file system replayed though that was refused.
    fn accept(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        name: &str,
    ) -> Result<String, StartIntentLogError> {
        let entry = self.named(Some(superblock), name)?;
        let live = survey(medium, superblock).live;
        let of_it = superblock.file_systems.iter().find(|it| it.identity == entry.identity);
        let is_live = of_it.is_some_and(|it| live.contains_key(&it.index));
        if !is_live && !self.has_asides(&entry.identity)? {
            return Err(self.refused(format!(
                "it has no operations of {name:?} that are not on its disk: there is nothing to \
                 replay"
            )));
        }
        refused::accept(&self.state_directory, &entry.identity)
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!(
            "{}: its operations are replayed at the next start, or before it is served",
            shown(&entry)
        ))
    }

    /// Makes the operations of the file system `old` those of `new`.
    fn adopt_renamed(
        &self,
        medium: &FileMedium,
        superblock: Superblock,
        old: &str,
        new: &str,
    ) -> Result<String, StartIntentLogError> {
        let entry = self.named(Some(&superblock), old)?;
        let mounted = (self.look_around)();
        let found = self.heir(medium, &superblock, &entry, &mounted, new)?;
        let renamed = FileSystemEntry {
            identity: found.identity,
            path: found.path.clone(),
            mark: None,
            ..entry.clone()
        };
        let has_mark = candidate(&mounted, &superblock.uuid, &entry)
            .is_some_and(|(one, has_mark)| has_mark && one.identity == found.identity);
        let (there, all) = self.objects_there(medium, &superblock, &entry, &renamed)?;
        if !has_mark && all > 0 && there == 0 {
            return Err(self.refused(format!(
                "none of the {all} objects that its operations are of is on {new:?}: it is another \
                 file system"
            )));
        }
        self.rename_files(&entry, &renamed, old, new)?;
        let mut amended = superblock;
        amended.file_systems.retain(|it| it.identity != renamed.identity);
        for it in &mut amended.file_systems {
            if it.identity == entry.identity {
                *it = FileSystemEntry { index: it.index, tail: it.tail, ..renamed.clone() };
            }
        }
        self.amend(medium, amended)?;
        Ok(format!(
            "the operations of {old} are those of {} ({}) now, which has {there} of {all} of their \
             objects; they are replayed at the next start, or before it is served. Its shares are \
             served after `steadfast share accept` with their paths",
            shown(&renamed),
            hex(&renamed.identity.uuid)
        ))
    }

    /// The mounted file system `new`, if it may have the operations of another.
    fn heir<'m>(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        mounted: &'m [MountedNow],
        new: &str,
    ) -> Result<&'m MountedNow, StartIntentLogError> {
        let is_new = |one: &&MountedNow| is_uuid(&one.identity, new) || one.path == new.as_bytes();
        let found = mounted
            .iter()
            .rfind(is_new)
            .ok_or_else(|| self.refused(format!("no file system {new:?} is mounted")))?;
        if found.identity.kind != entry.identity.kind {
            return Err(self.refused(format!("{new:?} is another kind of file system")));
        }
        let known = superblock.file_systems.iter().find(|it| it.identity == found.identity);
        if let Some(known) = known
            && survey(medium, superblock).live.contains_key(&known.index)
        {
            return Err(self.refused(format!(
                "it has operations of both file systems: start with {new:?} alone first"
            )));
        }
        Ok(found)
    }

    /// Makes what the state directory has of one file system another's: what is set aside, which is
    /// replayed then, and aliases of handles.
    fn rename_files(
        &self,
        entry: &FileSystemEntry,
        renamed: &FileSystemEntry,
        old: &str,
        new: &str,
    ) -> Result<(), StartIntentLogError> {
        let directory = &self.state_directory;
        let aliases =
            |identity: &Identity| directory.join(format!("aliases-{}", hex(&identity.uuid)));
        let (from, to) = (aliases(&entry.identity), aliases(&renamed.identity));
        if from.exists() && to.exists() {
            return Err(self.refused(format!(
                "{new:?} was served under its own UUID already, and has objects with other handles \
                 than those of {old:?}: {} and {} are both there",
                from.display(),
                to.display()
            )));
        }
        aside::rename(directory, &entry.identity, renamed)
            .map_err(|error| self.refused(error.to_string()))?;
        if self.has_asides(&renamed.identity)? {
            refused::accept(directory, &renamed.identity)
                .map_err(StartIntentLogError::StateDirectory)?;
        }
        if from.exists() {
            std::fs::rename(from, to).map_err(StartIntentLogError::StateDirectory)?;
        }
        Ok(())
    }

    /// Gives up what the log has of one file system, if that is as many operations as the
    /// administrator knows.
    ///
    /// # Errors
    /// When it is another number, or something cannot be written.
    pub fn discard_file_system(
        &self,
        name: &str,
        known: u64,
    ) -> Result<String, StartIntentLogError> {
        let (medium, superblock) = self.opened()?;
        let entry = self.named(Some(&superblock), name)?;
        let found = survey(&medium, &superblock);
        let indices: Vec<u32> = superblock
            .file_systems
            .iter()
            .filter(|it| it.identity == entry.identity)
            .map(|it| it.index)
            .collect();
        let live = |index: &u32| found.live.get(index).map_or(0, |live| live.operations);
        let in_ring: u64 = indices.iter().map(live).sum();
        let is_in_ring = indices.iter().any(|index| found.live.contains_key(index));
        let asides = self.asides()?;
        let aside = asides.iter().find(|(it, _)| it.identity == entry.identity);
        let operations = in_ring + aside.map_or(0, |(_, operations)| *operations);
        if operations != known {
            return Err(self.refused(format!(
                "{operations} operations of {name} would be lost, not {known}: `steadfast log verify` \
                 lists them; to give them up, say --yes-lose {operations}-operations"
            )));
        }
        if is_in_ring {
            let last = found.last.max(superblock.stable);
            let mut amended = superblock;
            for it in amended.file_systems.iter_mut().filter(|it| indices.contains(&it.index)) {
                it.tail = it.tail.max(last);
            }
            self.amend(&medium, amended)?;
        }
        let directory = &self.state_directory;
        aside::remove_all(directory, &entry.identity)
            .and_then(|()| refused::settle(directory, &entry.identity))
            .map_err(StartIntentLogError::StateDirectory)?;
        Ok(format!("discarded {operations} operations of {}", shown(&entry)))
    }

    fn opened(&self) -> Result<(FileMedium, Superblock), StartIntentLogError> {
        let (medium, superblock) = self.open()?;
        let superblock = superblock
            .ok_or_else(|| self.refused("it has no superblock that counts".to_owned()))?;
        Ok((medium, superblock))
    }

    fn amend(&self, medium: &FileMedium, amended: Superblock) -> Result<(), StartIntentLogError> {
        let is_open = !amended.is_clean;
        let uuid = amended.uuid;
        amend(medium, amended).map_err(|error| self.failed(&error))?;
        // A log that this server has not used is not adopted by that.
        if is_known(&self.state_directory, &uuid).map_err(StartIntentLogError::StateDirectory)? {
            note_known(&self.state_directory, &uuid, is_open)
                .map_err(StartIntentLogError::StateDirectory)?;
        }
        Ok(())
    }

    fn has_asides(&self, identity: &Identity) -> Result<bool, StartIntentLogError> {
        let files = aside::files_of(&self.state_directory, identity);
        Ok(!files.map_err(StartIntentLogError::StateDirectory)?.is_empty())
    }

    /// Of the objects that the operations of a file system are of, how many another one has.
    fn objects_there(
        &self,
        medium: &FileMedium,
        superblock: &Superblock,
        entry: &FileSystemEntry,
        renamed: &FileSystemEntry,
    ) -> Result<(usize, usize), StartIntentLogError> {
        let mut objects: Vec<ObjectKey> = Vec::new();
        let mut add = |payload: &[u8]| {
            if let Ok((change, _)) = Change::decode(payload) {
                for (object, _) in &change.after {
                    if objects.len() < LOOKED_FOR_MAX && !objects.contains(object) {
                        objects.push(*object);
                    }
                }
            }
        };
        let index = superblock.file_systems.iter().find(|it| it.identity == entry.identity);
        each_live(medium, superblock, &mut |record, _| {
            if index.is_some_and(|it| it.index == record.file_system) {
                add(&record.payload);
            }
        });
        let why = |why: String| StartIntentLogError::Storage { file_system: shown(renamed), why };
        let storage = (self.open_storage)(renamed).map_err(why)?;
        let Some(mut storage) = storage else { return Ok((0, objects.len())) };
        let is_there = |object: &&ObjectKey| matches!(storage.look(object), Ok(Some(_)));
        Ok((objects.iter().filter(is_there).count(), objects.len()))
    }
}

fn add_lines(text: &mut String, lines: &str) {
    text.push('\n');
    text.push_str(lines);
}

/// What is lost by damage, if there is any, and what can be chosen. `found` intact operations are behind
/// it, which are `listed`.
fn list_damage(text: &mut String, end: &End, kept: u64, found: u64, listed: &str) {
    if let End::Damage { expected, stable, .. } = end {
        add_lines(
            text,
            &format!(
                "damage: records {expected} to {stable}, at least, were stable, and not all of \
                 them can be read"
            ),
        );
    }
    if !matches!(end, End::Damage { .. } | End::Unreadable { .. }) {
        return;
    }
    if found > 0 {
        add_lines(text, "intact operations behind the damage, which are given up with it:");
        text.push_str(listed);
    }
    add_lines(
        text,
        &format!(
            "choices:\n  steadfast log adopt --up-to-damage: the next start replays {kept} \
             operations; {found} intact ones behind the damage and those that cannot be read are \
             lost\n  steadfast log discard --yes-lose {kept}-operations: nothing is replayed; the \
             {kept} operations are lost as well"
        ),
    );
}

/// Whether a text is the UUID of a file system, with hyphens or without.
fn is_uuid(identity: &Identity, text: &str) -> bool {
    text.replace('-', "").to_lowercase() == hex(&identity.uuid)
}
