//! What operations of the log are, in words that an administrator knows: by kind, and by the names of
//! the files that they are of.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use steadfast_intent_log::FileSystemEntry;
use steadfast_recovery::{Action, Change, ObjectKey, Place, Recoverable};

use super::hex;

/// Names that are listed; how many more there are is said.
pub(super) const NAMES_MAX: usize = 20;
/// Objects whose names are kept while records are read.
const OBJECTS_MAX: usize = 100_000;

/// Whether the record at the beginning of these bytes is of something that a client has asked for.
/// Others are notes for replay. One that cannot be read may be.
pub(super) fn is_operation(record: &[u8]) -> bool {
    let action = Change::decode(record).map(|(change, _)| change.action);
    !matches!(action, Ok(Action::Settled { .. } | Action::Moment { .. } | Action::Touched { .. }))
}

/// Operations of one file system.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) operations: u64,
    bytes: u64,
    kinds: BTreeMap<&'static str, u64>,
    /// Names of objects that records tell.
    known: HashMap<ObjectKey, String>,
    seen: HashSet<String>,
    names: Vec<String>,
    more: u64,
}

/// Where a file system of the log is served, for people.
pub(super) fn shown(entry: &FileSystemEntry) -> String {
    String::from_utf8_lossy(&entry.path).into_owned()
}

/// A name as it may be shown on a terminal.
pub(super) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// An object by its path, or, where the kernel tells none, by its number in the file system, or else
/// by its handle.
pub(super) fn object_shown(object: &ObjectKey, storage: &mut dyn Recoverable) -> String {
    if let Some(path) = storage.path(object) {
        return printable(&path);
    }
    match storage.look(object) {
        Ok(Some(attr)) => format!("(file number {})", attr.fileid),
        _ => handle_shown(object),
    }
}

fn handle_shown(object: &ObjectKey) -> String {
    format!("(handle {})", hex(object.0.as_bytes()))
}

fn object_in(object: &ObjectKey, storage: &mut Option<Box<dyn Recoverable>>) -> String {
    match storage {
        Some(storage) => object_shown(object, &mut **storage),
        None => handle_shown(object),
    }
}

fn place_shown(place: &Place<'_>, storage: &mut Option<Box<dyn Recoverable>>) -> String {
    format!("{}/{}", object_in(&place.dir, storage), printable(place.name))
}

impl Listing {
    /// Another operation, by the payload of its record.
    pub(super) fn add(&mut self, payload: &[u8], storage: &mut Option<Box<dyn Recoverable>>) {
        if !is_operation(payload) {
            return;
        }
        self.operations += 1;
        let Ok((change, _)) = Change::decode(payload) else {
            *self.kinds.entry("not understood").or_default() += 1;
            return;
        };
        let (kind, name) = match &change.action {
            Action::Nothing => ("replies only", None),
            // Notes for replay.
            Action::Settled { .. } | Action::Moment { .. } | Action::Touched { .. } => return,
            Action::Write { object, data, .. } => {
                self.bytes += data.len() as u64;
                ("written", Some(self.object(object, storage)))
            }
            Action::Attributes { object, size: Some(_), .. } => {
                ("resized", Some(self.object(object, storage)))
            }
            Action::Attributes { object, .. } | Action::Acls { object, .. } => {
                ("attributes set", Some(self.object(object, storage)))
            }
            Action::Make { place, object, .. } => {
                ("created", Some(self.named(place, object, storage)))
            }
            Action::Link { place, object } => ("linked", Some(self.named(place, object, storage))),
            Action::Rename { from, to, object, .. } => {
                let from = place_shown(from, storage);
                let to = self.named(to, object, storage);
                ("renamed", Some(format!("{from} to {to}")))
            }
            Action::Remove { place, .. } => ("removed", Some(place_shown(place, storage))),
        };
        *self.kinds.entry(kind).or_default() += 1;
        if let Some(name) = name {
            self.note(format!("{kind}: {name}"));
        }
    }

    fn note(&mut self, line: String) {
        if self.seen.contains(&line) {
            return;
        }
        if self.names.len() < NAMES_MAX {
            self.names.push(line.clone());
        } else {
            self.more += 1;
        }
        if self.seen.len() < OBJECTS_MAX {
            self.seen.insert(line);
        }
    }

    fn object(&self, object: &ObjectKey, storage: &mut Option<Box<dyn Recoverable>>) -> String {
        self.known.get(object).cloned().unwrap_or_else(|| object_in(object, storage))
    }

    fn named(
        &mut self,
        place: &Place<'_>,
        object: &ObjectKey,
        storage: &mut Option<Box<dyn Recoverable>>,
    ) -> String {
        let name = place_shown(place, storage);
        if self.known.len() < OBJECTS_MAX {
            self.known.insert(*object, name.clone());
        }
        name
    }

    /// The operations of a file system at a path, as lines that are set in by two blanks.
    pub(super) fn text(&self, path: &str) -> String {
        let kinds: Vec<String> =
            self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text = format!(
            "  {path}: {} operations ({}), {} bytes of data",
            self.operations,
            kinds.join(", "),
            self.bytes
        );
        for name in &self.names {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n    {name}");
        }
        if self.more > 0 {
            let _ = write!(text, "\n    and {} more", self.more);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use steadfast_vfs::StorageHandle;

    use super::*;

    #[test]
    fn files_are_named_by_the_records_that_made_them_and_names_are_bounded() {
        let key = |number: u8| ObjectKey(StorageHandle::new(&[0, 1, 0, number]).expect("a handle"));
        let mut listing = Listing::default();
        let mut add = |action: Action<'_>| {
            let mut bytes = Vec::new();
            Change::new(action).encode(&mut bytes);
            listing.add(&bytes, &mut None);
        };
        for number in 0..30_u8 {
            let name = format!("name\n{number}");
            let place = Place { dir: key(100), name: name.as_bytes() };
            add(Action::Make { place, object: key(number), target: &[] });
        }
        for _ in 0..2 {
            add(Action::Write { object: key(0), offset: 0, data: b"five!", gap: None });
        }
        // A note for replay is no operation.
        add(Action::Moment { before: steadfast_vfs::Time::default() });
        listing.add(b"x", &mut None);
        let text = listing.text("/srv");
        let first = text.lines().next().expect("a line");
        assert_eq!(
            first,
            "  /srv: 33 operations (30 created, 1 not understood, 2 written), 10 bytes of data"
        );
        assert!(text.contains("created: (handle 00010064)/name\\n3\n"), "{text}");
        assert!(text.ends_with("and 11 more"), "{text}");
        assert_eq!(text.lines().count(), 1 + NAMES_MAX + 1);
    }
}
