//! What shares were on: kept in the state directory, so that a share whose disk is not mounted at the
//! next start is not served from the file system below.
//!
//! The file grows by a line a share that is new, or was accepted on something else, and is written
//! anew when most of its lines are old. Lost, every share is taken for new.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_posixfs::{Backing, BackingMount, LookedAt};
use steadfast_shares::{Share, ShareId};
use steadfast_sys::{durable_file, identity};

use crate::sizes::{escaped, unescaped};

/// In the state directory.
const FILE_NAME: &str = "shares.on";
/// The first line.
const HEAD: &str = "what shares are on, version 1\n";
/// Old lines that are kept, at the least.
const OLD_LINES_MIN: usize = if cfg!(test) { 20 } else { 10_000 };
/// So many shares that are gone may be known beside those that are there.
const GONE_MAX: usize = 10_000;

/// What a share was on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// Of the directory's path, as it was written: a share of another directory is another one.
    directory: u64,
    backing: Backing,
}

/// What shares were on.
pub(crate) struct Backings {
    path: PathBuf,
    known: HashMap<ShareId, Known>,
    /// The mounts that are in the file, by their numbers there.
    mounts: Vec<Arc<BackingMount>>,
    lines: usize,
    /// What is yet to be written.
    pending: String,
    has_failed: bool,
    /// Whether the file ends within a line.
    is_torn: bool,
}

impl Backings {
    /// Reads what is kept. A line that is not understood is ignored: a crash may have cut it.
    pub(crate) fn open(state_directory: &Path) -> Self {
        let path = state_directory.join(FILE_NAME);
        let mut backings = Self {
            path,
            known: HashMap::new(),
            mounts: Vec::new(),
            lines: 0,
            pending: String::new(),
            has_failed: false,
            is_torn: false,
        };
        match std::fs::read_to_string(&backings.path) {
            Ok(text) => {
                backings.read(&text);
                // What comes next is not to stand behind half a line.
                backings.is_torn = !text.ends_with('\n');
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(
                "{}: cannot be read ({error}): what the shares were on is not known, and a disk that \
                 is not mounted is not noticed",
                backings.path.display()
            ),
        }
        backings
    }

    fn read(&mut self, text: &str) {
        for line in text.lines().skip(1) {
            self.lines += 1;
            let mut words = line.split(' ');
            match words.next() {
                Some("mount") => {
                    // Numbers of mounts are those of their lines.
                    self.mounts.push(Arc::new(mount_of(&mut words).unwrap_or(BackingMount {
                        uuid: None,
                        kind: 0,
                        fsid: 0,
                        point: PathBuf::new(),
                    })));
                }
                Some("share") => {
                    if let Some((id, known)) = self.share_of(&mut words) {
                        self.known.insert(id, known);
                    }
                }
                Some("forget") => {
                    if let Some(id) = hex(&mut words) {
                        self.known.remove(&ShareId(id));
                    }
                }
                _ => {}
            }
        }
    }

    fn share_of<'a>(&self, words: &mut impl Iterator<Item = &'a str>) -> Option<(ShareId, Known)> {
        let (id, directory) = (ShareId(hex(words)?), hex(words)?);
        let mount = self.mounts.get(words.next()?.parse::<usize>().ok()?)?;
        let backing = Backing { mount: Arc::clone(mount), inode: words.next()?.parse().ok()? };
        // A line that was cut has fewer words, or a shorter number before its end.
        (words.next() == Some(".")).then_some((id, Known { directory, backing }))
    }

    /// What a share's directory was on, if it is known.
    pub(crate) fn was_on(&self, share: &Share) -> Option<&Backing> {
        let known = self.known.get(&share.id)?;
        (known.directory == hash(share)).then_some(&known.backing)
    }

    /// Why a share is not served on what its directory is on now, if it was on something else.
    pub(crate) fn problem(&self, share: &Share, seen: &LookedAt) -> Option<String> {
        let was = self.was_on(share).filter(|was| !was.is_still(&seen.backing))?;
        Some(elsewhere(share, &was.mount.to_string(), &seen.backing.mount.to_string()))
    }

    /// Notes what shares are on, where nothing is known of them.
    pub(crate) fn note<'s>(&mut self, served: impl Iterator<Item = (&'s Share, &'s Backing)>) {
        for (share, backing) in served {
            if self.was_on(share) == Some(backing) {
                continue;
            }
            let mount = self.number_of(&backing.mount);
            let Some(interned) = self.mounts.get(mount) else { continue };
            let backing = Backing { mount: Arc::clone(interned), inode: backing.inode };
            let known = Known { directory: hash(share), backing };
            self.add_line(&share_line(share.id, &known, mount));
            self.known.insert(share.id, known);
        }
        self.write();
    }

    /// Forgets what shares were on: the next look takes them as they are.
    pub(crate) fn forget(&mut self, ids: impl Iterator<Item = ShareId>) {
        for id in ids {
            if self.known.remove(&id).is_some() {
                self.add_line(&format!("forget {:x}\n", id.0));
            }
        }
        self.write();
    }

    /// Forgets shares that are gone, if they are many: directories below a pattern come and go.
    pub(crate) fn forget_gone(&mut self, ids: impl Fn() -> HashSet<ShareId>, count: usize) {
        if self.known.len() <= count + GONE_MAX {
            return;
        }
        let there = ids();
        let gone: Vec<_> = self.known.keys().filter(|id| !there.contains(id)).copied().collect();
        self.forget(gone.into_iter());
    }

    fn number_of(&mut self, mount: &Arc<BackingMount>) -> usize {
        if let Some(number) = self.mounts.iter().position(|known| known == mount) {
            return number;
        }
        self.add_line(&mount_line(mount));
        self.mounts.push(Arc::clone(mount));
        self.mounts.len() - 1
    }

    fn add_line(&mut self, line: &str) {
        self.pending += line;
        self.lines += 1;
    }

    /// Has the file say what is known.
    fn write(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let needed = self.known.len() + self.mounts.len();
        let is_mostly_old = self.lines > 2 * needed + OLD_LINES_MIN;
        let is_whole = self.has_failed || self.is_torn || is_mostly_old || !self.path.exists();
        let written = if is_whole { self.write_anew() } else { self.append() };
        self.pending.clear();
        match written {
            Ok(()) => (self.has_failed, self.is_torn) = (false, false),
            Err(error) => {
                if !self.has_failed {
                    tracing::error!(
                        "{}: cannot be written ({error}): a disk that is not mounted at the next \
                         start may not be noticed",
                        self.path.display()
                    );
                }
                self.has_failed = true;
            }
        }
    }

    fn append(&self) -> io::Result<()> {
        let mut file = identity::as_server(|| File::options().append(true).open(&self.path))??;
        file.write_all(self.pending.as_bytes())?;
        file.sync_data()
    }

    fn write_anew(&mut self) -> io::Result<()> {
        let mut text = HEAD.to_owned();
        self.mounts.retain(|mount| Arc::strong_count(mount) > 1);
        for mount in &self.mounts {
            text += &mount_line(mount);
        }
        for (id, known) in &self.known {
            let is_it = |mount: &Arc<BackingMount>| Arc::ptr_eq(mount, &known.backing.mount);
            if let Some(number) = self.mounts.iter().position(is_it) {
                text += &share_line(*id, known, number);
            }
        }
        self.lines = text.lines().count() - 1;
        durable_file::replace(&self.path, text.as_bytes())
    }
}

/// What an administrator does about a share that is on something else.
pub(crate) fn elsewhere(share: &Share, was: &str, is: &str) -> String {
    let (path, directory) = (&share.path, share.directory());
    format!(
        "{directory:?} was on {was}, and is on {is} now: mount what it was on and `steadfast \
         reload`; if it is meant to be served from where it is now, `steadfast share accept {path:?}`"
    )
}

fn hash(share: &Share) -> u64 {
    ShareId::of_path(&share.directory().to_string_lossy()).0
}

fn hex<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    u64::from_str_radix(words.next()?, 16).ok()
}

fn share_line(id: ShareId, known: &Known, mount: usize) -> String {
    format!("share {:x} {:x} {mount} {} .\n", id.0, known.directory, known.backing.inode)
}

fn mount_line(mount: &BackingMount) -> String {
    let uuid = mount
        .uuid
        .map_or_else(|| "-".to_owned(), |uuid| format!("{:032x}", u128::from_be_bytes(uuid)));
    let mut line = format!("mount {uuid} {:x} {:x} ", mount.kind, mount.fsid);
    line += &escaped(&mount.point);
    line.push_str(" .\n");
    line
}

fn mount_of<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<BackingMount> {
    let uuid = match words.next()? {
        "-" => None,
        word => Some(u128::from_str_radix(word, 16).ok()?.to_be_bytes()),
    };
    let (kind, fsid) = (hex(words)?, hex(words)?);
    let point = unescaped(words.next()?)?;
    if words.next() != Some(".") {
        return None;
    }
    Some(BackingMount { uuid, kind, fsid, point })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(path: &str) -> Share {
        Share {
            id: ShareId::of_path(path),
            path: path.into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::new(steadfast_shares::RuleSet::new(Vec::new())),
        }
    }

    fn backing(uuid: u8, point: &str, inode: u64) -> Backing {
        let mount =
            BackingMount { uuid: Some([uuid; 16]), kind: 0xef53, fsid: 7, point: point.into() };
        Backing { mount: Arc::new(mount), inode }
    }

    #[test]
    fn what_was_noted_is_known_after_a_restart() {
        let place = tempfile::tempdir().expect("a directory");
        let (one, two) = (share("/srv/a"), share("/srv/two words\n"));
        let (on_disk, on_root) = (backing(1, "/srv/with space%", 5), backing(2, "/", 6));
        let mut backings = Backings::open(place.path());
        assert_eq!(backings.was_on(&one), None);
        backings.note([(&one, &on_disk), (&two, &on_root)].into_iter());
        let backings = Backings::open(place.path());
        assert_eq!(backings.was_on(&one), Some(&on_disk));
        assert_eq!(backings.was_on(&two), Some(&on_root));
        // Another directory by the same name is another share.
        let moved = Share { elsewhere: Some(Path::new("/mnt").into()), ..one.clone() };
        assert_eq!(backings.was_on(&moved), None);
        let mut backings = backings;
        backings.forget([one.id].into_iter());
        let mut backings = Backings::open(place.path());
        assert_eq!((backings.was_on(&one), backings.was_on(&two)), (None, Some(&on_root)));
        backings.note([(&one, &on_root)].into_iter());
        assert_eq!(Backings::open(place.path()).was_on(&one), Some(&on_root));
    }

    #[test]
    fn a_line_that_was_cut_is_none_and_old_lines_go() {
        let place = tempfile::tempdir().expect("a directory");
        let (one, two) = (share("/a"), share("/b"));
        let on = backing(1, "/", 123_456);
        let mut backings = Backings::open(place.path());
        backings.note([(&one, &on), (&two, &on)].into_iter());
        let path = place.path().join(FILE_NAME);
        let text = std::fs::read_to_string(&path).expect("written");
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).expect("written");
            let read = Backings::open(place.path());
            for share in [&one, &two] {
                assert!(read.was_on(share).is_none_or(|known| *known == on), "{cut}");
            }
        }
        std::fs::write(&path, &text).expect("written");
        let mut backings = Backings::open(place.path());
        for round in 0..(2 * OLD_LINES_MIN as u64) {
            backings.known.clear();
            let on = Backing { inode: round, ..on.clone() };
            backings.note([(&one, &on)].into_iter());
        }
        let lines = std::fs::read_to_string(&path).expect("written").lines().count();
        assert!(lines <= OLD_LINES_MIN + 10, "{lines}");
    }
}
