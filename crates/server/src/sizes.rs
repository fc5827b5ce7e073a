//! Sizes of shares, which the kernel enforces: here limits are set, and taken away again.
//!
//! A limit that this server has set is written down first, in the state directory, so that a limit of
//! somebody else is neither changed nor taken away. The file grows by a line a limit that is set or taken
//! away, and is written anew at a start when most of its lines are old. Lost, limits that were set are
//! taken for somebody else's: those with the size that is wanted are taken over, others are told.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use steadfast_posixfs::{LookedAt, NoQgroup, Qgroup};
use steadfast_shares::{Share, ShareId, Size, shown_bytes};
use steadfast_sys::{durable_file, identity};

use crate::configuration::WantedShare;

/// In the state directory.
const FILE_NAME: &str = "shares.sizes";
/// The first line.
const HEAD: &str = "limits that were set for sizes of shares, version 1\n";
/// Old lines that are kept, at the least.
const OLD_LINES_MIN: usize = if cfg!(test) { 20 } else { 10_000 };

/// A limit that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    bytes: u64,
    /// That before it: a crash may have come before the change.
    before: Option<u64>,
    directory: PathBuf,
}

impl Set {
    fn is_ours(&self, bytes: u64) -> bool {
        self.bytes == bytes || self.before == Some(bytes)
    }
}

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
}

impl SizeUse {
    /// That a share has more than its size, if so.
    pub(crate) fn excess(&self) -> Option<String> {
        let Self { size, used_bytes } = *self;
        (used_bytes > size.bytes()).then(|| {
            format!("it has {} of {size}: nothing can be added to it", shown_bytes(used_bytes))
        })
    }
}

/// What became of a share's size.
struct Planned {
    index: usize,
    id: ShareId,
    wanted: InEffect,
    before: Option<InEffect>,
    directory: PathBuf,
    is_set: bool,
}

/// Sizes of shares.
pub(crate) struct Sizes {
    path: PathBuf,
    ours: HashMap<Qgroup, Set>,
    in_effect: HashMap<ShareId, InEffect>,
    /// The shares of each subvolume with a size.
    shares: HashMap<Qgroup, HashSet<ShareId>>,
    lines: usize,
    /// Whether the file ends within a line.
    is_torn: bool,
}

impl Sizes {
    /// Reads which limits were set. A line that is not understood is ignored: a crash may have cut it.
    pub(crate) fn open(state_directory: &Path) -> Self {
        let mut sizes = Self {
            path: state_directory.join(FILE_NAME),
            ours: HashMap::new(),
            in_effect: HashMap::new(),
            shares: HashMap::new(),
            lines: 0,
            is_torn: false,
        };
        match std::fs::read_to_string(&sizes.path) {
            Ok(text) => {
                text.lines().skip(1).for_each(|line| sizes.read(line));
                sizes.is_torn = !text.ends_with('\n');
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(
                "{}: cannot be read ({error}): which limits of subvolumes were set for sizes of shares \
                 is not known",
                sizes.path.display()
            ),
        }
        sizes
    }

    fn read(&mut self, line: &str) {
        self.lines += 1;
        let words: Vec<&str> = line.split(' ').collect();
        match *words {
            ["limit", uuid, subvolume, bytes, directory, "."] => {
                let read = || {
                    let bytes = bytes.parse().ok()?;
                    Some((qgroup(uuid, subvolume)?, bytes, unescaped(directory)?))
                };
                if let Some((qgroup, bytes, directory)) = read() {
                    self.remember(qgroup, bytes, directory);
                }
            }
            ["forget", uuid, subvolume, "."] => {
                if let Some(qgroup) = qgroup(uuid, subvolume) {
                    self.ours.remove(&qgroup);
                }
            }
            _ => {}
        }
    }

    fn remember(&mut self, qgroup: Qgroup, bytes: u64, directory: PathBuf) {
        let before = self.ours.get(&qgroup).map(|set| set.bytes);
        self.ours.insert(qgroup, Set { bytes, before, directory });
    }

    /// What enforces the sizes of shares that were served before the start, by directory, if these are
    /// still the ones that are wanted.
    pub(crate) fn known<'a>(
        &self,
        wanted: impl Iterator<Item = &'a Share>,
    ) -> HashMap<ShareId, Qgroup> {
        let sized: Vec<_> = wanted.filter_map(|share| Some((share, share.size?))).collect();
        if sized.is_empty() {
            return HashMap::new();
        }
        let by_directory: HashMap<&Path, (&Qgroup, u64)> =
            self.ours.iter().map(|(qgroup, set)| (&*set.directory, (qgroup, set.bytes))).collect();
        let known = sized.into_iter().filter_map(|(share, size)| {
            let (qgroup, bytes) = by_directory.get(share.directory())?;
            (*bytes == size.bytes()).then_some((share.id, **qgroup))
        });
        known.collect()
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
        let mut planned: Vec<Planned> = Vec::new();
        for (index, (WantedShare { share, .. }, seen)) in wanted.iter().zip(&mut *seen).enumerate()
        {
            match (share.size, &seen) {
                (None, _) => left.extend(self.leave(share.id)),
                (Some(_), Err(_)) => {}
                (Some(size), Ok(at)) => match self.plan(share, size, at, &sizes) {
                    Ok((wanted, is_set)) => {
                        let (id, before) = (share.id, self.in_effect.get(&share.id).copied());
                        left.extend(self.enter(share.id, wanted));
                        let directory = at.directory.clone();
                        planned.push(Planned { index, id, wanted, before, directory, is_set });
                    }
                    Err(why) => *seen = Err(told(at, size, &why)),
                },
            }
        }
        planned.retain(|one| !one.is_set);
        let written = self.write(planned.iter().map(|one| {
            let InEffect { qgroup, size } = one.wanted;
            limit_line(&qgroup, size.bytes(), &one.directory)
        }));
        for Planned { index, id, wanted, before, directory, .. } in planned {
            let InEffect { qgroup, size } = wanted;
            let set = written.as_ref().map_err(Clone::clone).and_then(|()| {
                self.remember(qgroup, size.bytes(), directory.clone());
                set_limit(&qgroup, &directory, size)
            });
            let Err(why) = set else { continue };
            match before {
                Some(before) => drop(self.enter(id, before)),
                None => drop(self.leave(id)),
            }
            if let Some(seen) = seen.get_mut(index)
                && let Ok(at) = &*seen
            {
                *seen = Err(told(at, size, &why));
            }
        }
        self.lift(&left);
    }

    /// What is to enforce a size, and whether it is set already. `sizes` are those that shares are to have
    /// from now on, of which that is not in effect yet.
    fn plan(
        &self,
        share: &Share,
        size: Size,
        at: &LookedAt,
        sizes: &HashMap<ShareId, Option<Size>>,
    ) -> Result<(InEffect, bool), String> {
        let qgroup = Qgroup::of(&at.directory).map_err(|why| why.to_string())?;
        let others = self.shares.get(&qgroup).into_iter().flatten().filter(|id| **id != share.id);
        let mut others = others.filter_map(|id| match sizes.get(id) {
            Some(size) => *size,
            None => Some(self.in_effect.get(id)?.size),
        });
        if let Some(other) = others.find(|other| *other != size) {
            return Err(format!(
                "another share of the same subvolume has the size {other}: give both the same"
            ));
        }
        let limit = qgroup.limit().map_err(|error| NoQgroup::Unreadable(error).to_string())?;
        let is_ours = |bytes| self.ours.get(&qgroup).is_some_and(|set| set.is_ours(bytes));
        let wanted = InEffect { qgroup, size };
        match limit {
            Some(bytes) if bytes == size.bytes() => Ok((wanted, true)),
            Some(bytes) if !is_ours(bytes) => Err(format!(
                "its qgroup {qgroup} has a limit of {} already, which this server has not set: \
                 `btrfs qgroup limit none {}` takes that away; then `steadfast reload`",
                shown_size(bytes),
                at.directory.display()
            )),
            _ => Ok((wanted, false)),
        }
    }

    /// Why a share's size could not be enforced, if it were wanted. Changes nothing.
    pub(crate) fn problem(&self, share: &Share, at: &LookedAt) -> Option<String> {
        let size = share.size?;
        self.plan(share, size, at, &HashMap::new()).err().map(|why| told(at, size, &why))
    }

    /// Notes that a share has a size; what it had before, if nobody has that any more.
    fn enter(&mut self, id: ShareId, wanted: InEffect) -> Option<Qgroup> {
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

    /// Takes limits away that were set for shares that have no size any more, also for such of before the
    /// start; `wanted` are all shares that are to be served.
    pub(crate) fn lift_unwanted(&mut self, wanted: &[WantedShare]) {
        if self.ours.keys().all(|qgroup| self.shares.contains_key(qgroup)) {
            return;
        }
        let sized = wanted.iter().map(|wanted| &wanted.share).filter(|share| share.size.is_some());
        let directories: HashSet<&Path> = sized.map(|share| share.directory()).collect();
        let unwanted = self.ours.iter().filter(|(_, set)| !directories.contains(&*set.directory));
        let unwanted: Vec<_> = unwanted.map(|(qgroup, _)| *qgroup).collect();
        self.lift(&unwanted);
    }

    /// Takes limits away that this server has set, if they are as it has set them.
    fn lift(&mut self, left: &[Qgroup]) {
        let mut forgotten = Vec::new();
        for qgroup in left.iter().filter(|qgroup| !self.shares.contains_key(*qgroup)) {
            let Some(set) = self.ours.get(qgroup) else { continue };
            let directory = set.directory.display();
            match qgroup.limit() {
                Ok(Some(bytes)) if !set.is_ours(bytes) => tracing::warn!(
                    "{directory}: it has no size any more; its limit of {} stays, since somebody else \
                     has set it",
                    shown_size(bytes)
                ),
                Ok(Some(_)) => {
                    match qgroup.set_limit(&set.directory, None) {
                        Ok(()) => {}
                        // Its subvolume is gone, and the kernel keeps what it had counted.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => {
                            tracing::error!(
                                "{directory}: its size is to hold no more, and its limit cannot be \
                                 taken away: {error}"
                            );
                            continue;
                        }
                    }
                }
                Ok(None) => {}
                // Its subvolume is gone, or quotas are off.
                Err(error) if error.kind() == io::ErrorKind::NotFound && qgroup.is_mounted() => {}
                Err(_) => continue,
            }
            forgotten.push(*qgroup);
        }
        for qgroup in &forgotten {
            self.ours.remove(qgroup);
        }
        if let Err(why) = self.write(forgotten.iter().map(forget_line)) {
            tracing::error!("{why}");
        }
    }

    /// What enforces a share's size.
    pub(crate) fn qgroup(&self, id: ShareId) -> Option<Qgroup> {
        self.in_effect.get(&id).map(|known| known.qgroup)
    }

    /// How much a share has of its size, or why that is not enforced; `None` if it has none in effect.
    pub(crate) fn usage(&self, id: ShareId) -> Option<Result<SizeUse, String>> {
        let InEffect { qgroup, size } = *self.in_effect.get(&id)?;
        Some(match qgroup.usage() {
            Ok(now) if now.limit_bytes == Some(size.bytes()) => {
                Ok(SizeUse { size, used_bytes: now.used_bytes })
            }
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

    /// What is to be said of a share's size that was set just now: it has more, or the kernel does not
    /// know yet how much it has.
    pub(crate) fn warning(&self, id: ShareId) -> Option<String> {
        let InEffect { qgroup, size } = self.in_effect.get(&id)?;
        if qgroup.is_counting() {
            return Some(format!(
                "btrfs has yet to count what is there: until then {size} holds for what is counted \
                 (`btrfs quota rescan -s` tells how far it is)"
            ));
        }
        self.usage(id)?.ok()?.excess()
    }

    /// Writes lines, durably.
    fn write(&mut self, lines: impl Iterator<Item = String>) -> Result<(), String> {
        let mut text = String::new();
        for line in lines {
            text += &line;
            self.lines += 1;
        }
        if text.is_empty() {
            return Ok(());
        }
        let is_mostly_old = self.lines > 2 * self.ours.len() + OLD_LINES_MIN;
        let is_whole = self.is_torn || is_mostly_old || !self.path.exists();
        let written = if is_whole { self.write_anew(&text) } else { self.append(&text) };
        match written {
            Ok(()) => self.is_torn = false,
            Err(error) => {
                self.is_torn = true;
                return Err(format!("{}: cannot be written: {error}", self.path.display()));
            }
        }
        Ok(())
    }

    fn append(&self, text: &str) -> io::Result<()> {
        let mut file = identity::as_server(|| File::options().append(true).open(&self.path))??;
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }

    fn write_anew(&mut self, new: &str) -> io::Result<()> {
        let mut text = HEAD.to_owned();
        for (qgroup, set) in &self.ours {
            for bytes in set.before.into_iter().chain([set.bytes]) {
                text += &limit_line(qgroup, bytes, &set.directory);
            }
        }
        text += new;
        self.lines = text.lines().count() - 1;
        durable_file::replace(&self.path, text.as_bytes())
    }
}

/// Why a share's size could not be enforced on the file system of its directory, if it has one and is there.
/// Changes nothing, and does not know what a server has set.
pub fn size_problem(share: &Share) -> Option<String> {
    let size = share.size?;
    let directory = share.directory();
    if !directory.is_dir() {
        return None;
    }
    let why = Qgroup::of(directory).err()?;
    Some(cannot(directory, size, &why.to_string()))
}

/// The limits that hold for subvolumes of a btrfs by their sizes, by number and in bytes: before replay, as long
/// as nobody else has set others.
pub(crate) fn limits_on(uuid: &[u8; 16], state_directory: &Path) -> Vec<(u64, u64)> {
    let known = Sizes::open(state_directory).ours;
    let there = known.into_iter().filter(|(qgroup, _)| qgroup.uuid == *uuid);
    let ours = there.filter(|(qgroup, set)| {
        let now = qgroup.limit();
        // A replay that was cut short has taken it away.
        now.is_ok_and(|now| now.is_none_or(|bytes| set.is_ours(bytes)))
    });
    ours.map(|(qgroup, set)| (qgroup.subvolume, set.bytes)).collect()
}

fn set_limit(qgroup: &Qgroup, directory: &Path, size: Size) -> Result<(), String> {
    let set = qgroup.set_limit(directory, Some(size.bytes()));
    set.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "the kernel lets only who has CAP_SYS_ADMIN set limits of qgroups, which this server has \
             not"
            .to_owned()
        }
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

fn qgroup(uuid: &str, subvolume: &str) -> Option<Qgroup> {
    let uuid = u128::from_str_radix(uuid, 16).ok()?.to_be_bytes();
    Some(Qgroup { uuid, subvolume: subvolume.parse().ok()? })
}

fn limit_line(qgroup: &Qgroup, bytes: u64, directory: &Path) -> String {
    let Qgroup { uuid, subvolume } = qgroup;
    let uuid = u128::from_be_bytes(*uuid);
    format!("limit {uuid:032x} {subvolume} {bytes} {} .\n", escaped(directory))
}

fn forget_line(qgroup: &Qgroup) -> String {
    format!("forget {:032x} {} .\n", u128::from_be_bytes(qgroup.uuid), qgroup.subvolume)
}

/// A path as one word of a line.
pub(crate) fn escaped(path: &Path) -> String {
    let mut word = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'!'..=b'~' if *byte != b'%' => word.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(word, "%{byte:02x}")),
        }
    }
    word
}

/// The path of a word that [`escaped`] has made.
pub(crate) fn unescaped(word: &str) -> Option<PathBuf> {
    let mut parts = word.split('%');
    let mut path = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend_from_slice(rest.as_bytes());
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(subvolume: u64) -> Qgroup {
        Qgroup { uuid: [7; 16], subvolume }
    }

    fn set(sizes: &mut Sizes, subvolume: u64, bytes: u64, directory: &str) {
        let written =
            sizes.write([limit_line(&group(subvolume), bytes, Path::new(directory))].into_iter());
        written.expect("written");
        sizes.remember(group(subvolume), bytes, directory.into());
    }

    #[test]
    fn what_was_set_is_known_after_a_restart() {
        let place = tempfile::tempdir().expect("a directory");
        let mut sizes = Sizes::open(place.path());
        set(&mut sizes, 256, 5, "/srv/a b%");
        set(&mut sizes, 257, 6, "/srv/b");
        set(&mut sizes, 256, 8, "/srv/a b%");
        let again = Sizes::open(place.path());
        assert_eq!(again.ours, sizes.ours);
        let known = &again.ours[&group(256)];
        assert_eq!(*known, Set { bytes: 8, before: Some(5), directory: "/srv/a b%".into() });
        assert!(known.is_ours(5) && known.is_ours(8) && !known.is_ours(6));
        let mut again = again;
        again.ours.remove(&group(257));
        again.write([forget_line(&group(257))].into_iter()).expect("written");
        assert_eq!(Sizes::open(place.path()).ours, again.ours);
    }

    #[test]
    fn a_line_that_was_cut_is_none_and_old_lines_go() {
        let place = tempfile::tempdir().expect("a directory");
        let mut sizes = Sizes::open(place.path());
        set(&mut sizes, 256, 1234, "/srv/a");
        let text = std::fs::read_to_string(&sizes.path).expect("written");
        for cut in 0..text.len() {
            std::fs::write(&sizes.path, &text[..cut]).expect("written");
            let mut read = Sizes::open(place.path());
            assert!(read.ours.values().all(|set| set.bytes == 1234), "{cut}");
            // What comes next is not lost behind half a line.
            set(&mut read, 300, 9, "/srv/c");
            assert!(Sizes::open(place.path()).ours.contains_key(&group(300)), "{cut}");
        }
        for round in 0..3 * OLD_LINES_MIN as u64 {
            set(&mut sizes, 256, round, "/srv/a");
        }
        let lines = std::fs::read_to_string(&sizes.path).expect("written").lines().count();
        assert!(lines <= OLD_LINES_MIN + 10, "{lines}");
        let known = &Sizes::open(place.path()).ours[&group(256)];
        let last = 3 * OLD_LINES_MIN as u64 - 1;
        assert_eq!((known.bytes, known.before), (last, Some(last - 1)));
    }

    #[test]
    fn a_subvolume_is_left_with_its_last_share() {
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
