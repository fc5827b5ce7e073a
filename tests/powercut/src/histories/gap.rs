//! What local processes do after a power cut and before the server's next start: they see what the crash
//! left, and not what was acknowledged and is to be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::check::{Broken, Findings, Violation};
use crate::operation::{Action, Number, Place};
use crate::random::{Random, pattern};
use crate::recording::Moment;
use crate::snapshot::{Seen, Snapshot, is_aside, take};
use crate::state::{Kind, State};
use crate::workload::Operation;

/// The least that is written: so much is nowhere else by chance.
const BYTES_MIN: u64 = 64;
/// Objects that are made for their numbers.
const TAKERS_MAX: u64 = 12;

/// What was done.
#[derive(Clone, Debug)]
enum Done {
    /// A file was made or written to: it has these bytes. Whether what it had was what was acknowledged:
    /// then it is just a later change, of which there is nothing to tell.
    Written {
        bytes: Vec<u8>,
        is_of_acknowledged: bool,
    },
    /// An empty directory was made.
    Directory,
    /// Of an object with this number of the file system.
    Mode(u32, u64),
    Unlinked,
}

/// A local change.
#[derive(Clone, Debug)]
struct Change {
    path: PathBuf,
    done: Done,
    /// What the ledger knows by that path or number.
    objects: BTreeSet<Number>,
    place: Option<Place>,
}

/// The changes before one start.
#[derive(Clone, Debug, Default)]
pub(super) struct Gap(Vec<Change>);

/// What is on the disk, with what the ledger knows of it.
struct Left<'a> {
    share: &'a Path,
    there: Snapshot,
    moment: &'a Moment<'a>,
    /// The last state: by number of the file system.
    by_inode: BTreeMap<u64, Number>,
    /// What is under way may come and go; and one change an object is enough, since what comes of
    /// several is nobody's to say.
    taken: BTreeSet<Number>,
    /// By number of the file system: a file of several names that the ledger knows no more is one object, too.
    taken_inodes: BTreeSet<u64>,
    taken_paths: BTreeSet<PathBuf>,
}

impl<'a> Left<'a> {
    fn by_crash(share: &'a Path, moment: &'a Moment<'a>) -> Result<Self> {
        let numbered =
            |(number, object): (&Number, &crate::state::Object)| Some((object.fileid?, *number));
        let mut taken: BTreeSet<Number> = moment.under_way.clone();
        for action in moment.under_way.iter().filter_map(|number| moment.action(*number)) {
            taken.extend(action.object());
            taken.extend(
                action.places().iter().filter_map(|place| moment.state.names.get(place).copied()),
            );
        }
        Ok(Self {
            share,
            there: take(share)?,
            by_inode: moment.state.objects.iter().filter_map(numbered).collect(),
            moment,
            taken,
            taken_inodes: BTreeSet::new(),
            taken_paths: BTreeSet::new(),
        })
    }

    fn state(&self) -> &State {
        &self.moment.state
    }

    /// The place that a path is, if its directory is one that is known.
    fn place(&self, path: &Path) -> Option<Place> {
        let name = path.file_name()?.as_bytes();
        let known = (0..64).map(crate::operation::Name).find(|known| known.bytes() == name)?;
        Some(Place { directory: self.directory(path.parent()?)?, name: known })
    }

    fn directory(&self, path: &Path) -> Option<Number> {
        if path.as_os_str().is_empty() {
            return Some(crate::operation::ROOT);
        }
        let seen = self.there.get(path).filter(|seen| seen.is_directory)?;
        let number = *self.by_inode.get(&seen.inode)?;
        let object = self.state().objects.get(&number)?;
        (object.kind == Kind::Directory && !object.is_loose).then_some(number)
    }

    /// What a change of this path concerns, unless something of it is under way.
    fn concerned(&self, path: &Path) -> Option<(BTreeSet<Number>, Option<Place>)> {
        let place = self.place(path);
        let by_name = place.and_then(|place| self.state().names.get(&place).copied());
        let by_number =
            self.there.get(path).and_then(|seen| self.by_inode.get(&seen.inode).copied());
        let objects: BTreeSet<Number> = by_name.into_iter().chain(by_number).collect();
        let inode = self.there.get(path).map(|seen| seen.inode);
        let is_free = objects.is_disjoint(&self.taken)
            && inode.is_none_or(|inode| !self.taken_inodes.contains(&inode))
            && !self.taken_paths.contains(path)
            && place.is_none_or(|place| {
                let mut under_way = self.moment.under_way.iter();
                !under_way.any(|number| {
                    let action = self.moment.action(*number);
                    action.is_some_and(|action| action.places().contains(&place))
                })
            });
        is_free.then_some((objects, place))
    }

    /// Any path of something.
    fn any(&self, is_wanted: impl Fn(&Seen) -> bool, random: &mut Random) -> Option<PathBuf> {
        let wanted: Vec<&PathBuf> =
            self.there.iter().filter(|(_, seen)| is_wanted(seen)).map(|(path, _)| path).collect();
        random.choose(&wanted).cloned()
    }

    /// Any directory that clients know.
    fn any_directory(&self, random: &mut Random) -> PathBuf {
        let mut known = vec![PathBuf::new()];
        let directories = self.there.iter().filter(|(_, seen)| seen.is_directory);
        known.extend(
            directories.map(|(path, _)| path.clone()).filter(|path| self.directory(path).is_some()),
        );
        let index = random.below(known.len() as u64) as usize;
        known.into_iter().nth(index).unwrap_or_default()
    }

    /// A name that was acknowledged in a directory that is there, and that the crash has taken.
    fn lost(&self, random: &mut Random) -> Option<PathBuf> {
        let mut lost = Vec::new();
        for path in std::iter::once(PathBuf::new()).chain(self.there.keys().cloned()) {
            let Some(number) = self.directory(&path) else { continue };
            let names = self.state().names.keys().filter(|place| place.directory == number);
            let names = names.map(|place| path.join(name_of(*place)));
            lost.extend(names.filter(|path| !self.there.contains_key(path)));
        }
        let index = random.below(lost.len() as u64) as usize;
        lost.into_iter().nth(index)
    }

    /// Whether a file has the data that was acknowledged.
    fn is_as_acknowledged(&self, path: &Path) -> bool {
        let Some(seen) = self.there.get(path) else { return false };
        let number = self.by_inode.get(&seen.inode);
        let object = number.and_then(|number| self.state().objects.get(number));
        match (object.map(|object| &object.kind), &seen.bytes) {
            (Some(Kind::File(content)), Some(bytes)) => content.fault(bytes).is_none(),
            _ => false,
        }
    }

    fn change(&mut self, kind: Wanted, random: &mut Random) -> Result<Option<Change>> {
        let count = self.there.len();
        let bytes = pattern(random.next(), (BYTES_MIN + random.below(9000)) as usize);
        let fresh = |random: &mut Random| format!("local-{count}-{}", random.below(1 << 20));
        let path = match kind {
            Wanted::Fresh => Some(self.any_directory(random).join(fresh(random))),
            Wanted::Over => self.lost(random),
            Wanted::Write => self.any(|seen| seen.bytes.is_some(), random),
            Wanted::Mode => self.any(|seen| seen.bytes.is_some(), random),
            Wanted::Unlink => self.any(|seen| !seen.is_directory, random),
            Wanted::Taker => {
                Some(self.any_directory(random).join(format!("{}-taker", fresh(random))))
            }
        };
        let Some(path) = path else { return Ok(None) };
        let Some((objects, place)) = self.concerned(&path) else { return Ok(None) };
        self.taken_inodes.extend(self.there.get(&path).map(|seen| seen.inode));
        let at = self.share.join(&path);
        let done = match kind {
            Wanted::Write => {
                let is_of_acknowledged = self.is_as_acknowledged(&path);
                let file = File::options().read(true).write(true).open(&at)?;
                if random.percent(30) {
                    file.set_len(random.below(20_000))?;
                }
                file.write_all_at(&bytes, random.below(8000))?;
                if random.percent(50) {
                    file.sync_all()?;
                }
                Done::Written { bytes: std::fs::read(&at)?, is_of_acknowledged }
            }
            Wanted::Mode => {
                let mode = 0o400 + random.below(0o400) as u32;
                std::fs::set_permissions(&at, Permissions::from_mode(mode))?;
                Done::Mode(mode, std::fs::metadata(&at)?.ino())
            }
            Wanted::Unlink => {
                std::fs::remove_file(&at)?;
                Done::Unlinked
            }
            Wanted::Taker if random.percent(60) => {
                std::fs::create_dir(&at)?;
                Done::Directory
            }
            Wanted::Fresh | Wanted::Over | Wanted::Taker => {
                std::fs::write(&at, &bytes)?;
                Done::Written { bytes, is_of_acknowledged: false }
            }
        };
        self.there = take(self.share)?;
        self.taken.extend(&objects);
        self.taken_paths.insert(path.clone());
        Ok(Some(Change { path, done, objects, place }))
    }
}

/// The bytes of a name as a path.
fn name_of(place: Place) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(place.name.bytes()))
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Fresh,
    Over,
    Write,
    Mode,
    Unlink,
    Taker,
}

impl Gap {
    /// Changes what a crash left on the share. `is_identity`: only for the numbers.
    pub(super) fn make(
        share: &Path,
        moment: &Moment<'_>,
        is_identity: bool,
        random: &mut Random,
    ) -> Result<Self> {
        const CHOICE: [Wanted; 9] = [
            Wanted::Fresh,
            Wanted::Fresh,
            Wanted::Over,
            Wanted::Over,
            Wanted::Write,
            Wanted::Write,
            Wanted::Write,
            Wanted::Mode,
            Wanted::Unlink,
        ];
        let mut left = Left::by_crash(share, moment)?;
        let mut gap = Self::default();
        if is_identity {
            for _ in 0..=random.below(TAKERS_MAX) {
                gap.0.extend(left.change(Wanted::Taker, random)?);
            }
            return Ok(gap);
        }
        for _ in 0..=random.below(3) {
            let kind = random.choose(&CHOICE).unwrap_or(Wanted::Fresh);
            gap.0.extend(left.change(kind, random)?);
        }
        Ok(gap)
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        let one = |change: &Change| {
            let path = change.path.display();
            match &change.done {
                Done::Written { bytes, .. } => format!("{path} written ({} bytes)", bytes.len()),
                Done::Directory => format!("{path} made"),
                Done::Mode(mode, _) => format!("{path} chmod {mode:o}"),
                Done::Unlinked => format!("{path} unlinked"),
            }
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Judges what became of the changes, and takes out violations that come of them and are reported.
    pub(super) fn judge(
        &self,
        share: &Path,
        said: &str,
        operations: &[Operation],
        findings: &mut Findings,
    ) -> Result<()> {
        let now = take(share)?;
        findings.gaps += self.0.len();
        let has_report = said.contains(".steadfast-replay-");
        let warns_of = |path: &Path| {
            let what = format!(" {}: ", path.display());
            said.lines().any(|line| line.contains(" WARN ") && line.contains(&what))
        };
        for change in &self.0 {
            let is_told = says(said, &change.path) || has_report;
            let place = now.get(&change.path);
            let verdict = match &change.done {
                Done::Written { bytes, .. } => {
                    let mut copies =
                        now.iter().filter(|(_, seen)| seen.bytes.as_ref() == Some(bytes));
                    let is_in_place = place.is_some_and(|seen| seen.bytes.as_ref() == Some(bytes));
                    let is_beside = copies.any(|(path, _)| !is_aside(path));
                    let is_aside = now
                        .iter()
                        .any(|(path, seen)| is_aside(path) && seen.bytes.as_ref() == Some(bytes));
                    match (is_in_place || is_beside, is_aside) {
                        (true, _) => Ok(()),
                        (false, true) if has_report => Ok(()),
                        (false, true) => Err("is kept aside, which is not reported"),
                        (false, false) => Err("is not there any more, nor kept aside"),
                    }
                }
                Done::Directory => {
                    // Its name is no other's; what it is in may have been renamed.
                    let name = change.path.file_name();
                    let is_there = now
                        .iter()
                        .any(|(path, seen)| seen.is_directory && path.file_name() == name);
                    if is_there || has_report { Ok(()) } else { Err("is not there any more") }
                }
                // Its name may be gone, or another's, by what was acknowledged, and it is told by those that it has.
                Done::Mode(mode, inode) => {
                    let of_it = || now.iter().filter(|(_, seen)| seen.inode == *inode);
                    match of_it().next() {
                        None => Ok(()),
                        Some((_, seen)) if seen.mode & 0o7777 == *mode || is_told => Ok(()),
                        Some(_) if of_it().any(|(path, _)| warns_of(&share.join(path))) => Ok(()),
                        // As the server calls what it knows no path of.
                        Some(_) if said.contains(&format!("(file number {inode})")) => Ok(()),
                        Some(_) => Err("has another mode, which is not reported"),
                    }
                }
                Done::Unlinked => {
                    findings.returned += usize::from(place.is_some());
                    Ok(())
                }
            };
            if let Err(what) = verdict {
                let path = change.path.display();
                let text = format!("{path}: what a local process made before the start {what}");
                findings.violations.push(Violation::of(Broken::Reverted, text));
                continue;
            }
            let before = findings.violations.len();
            let is_silent = match &change.done {
                Done::Unlinked | Done::Mode(..) => true,
                Done::Written { is_of_acknowledged, .. } => *is_of_acknowledged,
                Done::Directory => false,
            };
            findings.violations.retain(|violation| {
                !(change.concerns(violation, operations) && (is_told || is_silent))
            });
            findings.reported += before - findings.violations.len();
        }
        Ok(())
    }
}

impl Change {
    /// Whether a violation is of what it changed.
    fn concerns(&self, violation: &Violation, operations: &[Operation]) -> bool {
        if violation.object.is_some_and(|object| self.objects.contains(&object)) {
            return true;
        }
        let Some(number) = violation.operation else { return false };
        if self.objects.contains(&number) {
            return true;
        }
        let Some(operation) = operations.get(number as usize) else { return false };
        let action: &Action = &operation.action;
        // A directory is not removed in which something was made.
        let directory = self.path.parent().and_then(Path::file_name);
        let is_of = |at: &Place| directory.is_some_and(|name| name.as_bytes() == at.name.bytes());
        if matches!(action, Action::Rmdir { at } if is_of(at)) {
            return true;
        }
        action.object().is_some_and(|object| self.objects.contains(&object))
            || self.place.is_some_and(|place| action.places().contains(&place))
    }
}

/// Whether the server's log names a path's last name.
fn says(said: &str, path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| said.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::recording::{Recording, Shape};
    use crate::storage::FileSystem;
    use crate::workload::Mix;

    /// A run in which nothing was done.
    fn nothing() -> (Recording, Shape) {
        let data = tempfile::tempfile().expect("a file");
        let recording = Recording::nothing(Journal::new(vec![], data));
        let shape = Shape {
            file_system: FileSystem::Btrfs,
            seed: 1,
            clients: 0,
            holders: 0,
            operations: 0,
            log_bytes: None,
            log_file_system: FileSystem::Ext4,
            mix: Mix::default(),
        };
        (recording, shape)
    }

    /// Else the second change undoes the first, and the server is blamed.
    #[test]
    fn a_file_of_two_names_is_changed_once() {
        let share = tempfile::tempdir().expect("a directory");
        std::fs::write(share.path().join("one"), b"data").expect("a file");
        std::fs::hard_link(share.path().join("one"), share.path().join("other")).expect("a link");
        let (recording, shape) = nothing();
        let moment = recording.beginning(&shape);
        let mut random = Random::of(1, 2);
        let mut left = Left::by_crash(share.path(), &moment).expect("a snapshot");
        let first = left.change(Wanted::Write, &mut random).expect("a change");
        assert!(first.is_some());
        for wanted in [Wanted::Write, Wanted::Mode, Wanted::Unlink].repeat(10) {
            let next = left.change(wanted, &mut random).expect("a change");
            assert!(next.is_none(), "{next:?}");
        }
        let fresh = left.change(Wanted::Fresh, &mut random).expect("a change");
        assert!(fresh.is_some());
    }

    #[test]
    fn a_mode_is_told_by_any_name_that_the_file_has() {
        let share = tempfile::tempdir().expect("a directory");
        let moved = share.path().join("moved");
        std::fs::write(&moved, b"data").expect("a file");
        let inode = std::fs::metadata(&moved).expect("a file").ino();
        let gap = |inode| {
            let done = Done::Mode(0o7777, inode);
            let (objects, path) = (BTreeSet::new(), PathBuf::from("before"));
            Gap(vec![Change { path, done, objects, place: None }])
        };
        let found = |gap: &Gap, said: &str| {
            let mut findings = Findings::default();
            gap.judge(share.path(), said, &[], &mut findings).expect("a snapshot");
            findings.violations.len()
        };
        let warning = |name: &str| {
            let path = share.path().join(name);
            format!("now  WARN {}: its mode was set", path.display())
        };
        assert_eq!(found(&gap(inode), &warning("moved")), 0);
        assert_eq!(found(&gap(inode), &warning("before")), 0);
        assert_eq!(found(&gap(inode), &warning("another")), 1);
        assert_eq!(found(&gap(inode), &warning("elsewhere/moved")), 1);
        assert_eq!(found(&gap(inode + 1), ""), 0, "it is gone");
    }
}
