//! File handles: short forms of them, the share that one is of, and the names that go with them.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Names that are remembered of each kind. When there are more, those of before are forgotten in halves.
const NAMES_MAX: usize = 32_768;
/// Longest name that is remembered, in bytes; longer ones are cut.
const NAME_BYTES_MAX: usize = 64;

/// A file handle, as far as it tells files apart: hashes of the whole and of the part that tells the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Of all its bytes.
    pub file: u64,
    /// Of those that objects of one share have in common.
    pub share: u64,
}

impl Handle {
    /// The short form of a handle.
    pub fn of(bytes: &[u8]) -> Self {
        Self { file: xxh3_64(bytes), share: xxh3_64(&share_part(bytes).0) }
    }
}

/// The bytes of a handle that tell its share, zeros behind them, and how many they are.
///
/// - The Linux kernel's server: the file system's number, whose length depends on its kind (`fsid_type` of
///   `struct knfsd_fh`).
/// - Steadfast: the share's number; all directories above the shares are one.
/// - nfs-ganesha: version and flags, then the number of the export.
/// - Others: the first 8 bytes, which is a guess.
fn share_part(handle: &[u8]) -> ([u8; 32], usize) {
    let mut part = [0; 32];
    let mut copy = |from: usize, length: usize| {
        let found = handle.get(from..(from + length).min(handle.len())).unwrap_or_default();
        if let Some(place) = part.get_mut(..found.len()) {
            place.copy_from_slice(found);
        }
        found.len()
    };
    // Ours say their own length, or are of the compact format, which has none.
    let says_length = handle.get(1).is_some_and(|length| usize::from(*length) == handle.len());
    let length = match handle {
        [1, ..] if says_length && handle.len() >= 18 => copy(10, 8),
        [3, ..] if handle.len() == 32 => copy(9, 8),
        // A directory above the shares.
        [2, ..] if says_length => copy(0, 1),
        [1, 0, kind @ 0..=7, _, ..] => {
            let number = match kind {
                1 => 4,
                2 => 12,
                6 => 16,
                7 => 24,
                _ => 8,
            };
            copy(0, 4 + number);
            // What kind of object it is.
            part[3] = 0;
            (4 + number).min(handle.len())
        }
        [0x43, ..] => copy(0, 4),
        _ => copy(0, 8),
    };
    (part, length)
}

/// Names by what they belong to, bounded: two generations, of which the older one goes when the younger is full.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Box<str>>,
    old: HashMap<u64, Box<str>>,
}

impl Generations {
    fn insert(&mut self, key: u64, name: impl FnOnce() -> Box<str>) {
        if self.young.len() >= NAMES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, name());
    }

    fn find(&self, key: u64) -> Option<&str> {
        self.young.get(&key).or_else(|| self.old.get(&key)).map(|name| &**name)
    }
}

/// What handles are called, learnt from the calls that return them.
#[derive(Debug, Default)]
pub struct Names {
    files: Generations,
    shares: Generations,
}

impl Names {
    /// The name under which a file was looked up, opened or made last.
    pub fn file(&self, file: u64) -> Option<&str> {
        self.files.find(file)
    }

    /// What a share is called: the path that was mounted, else the bytes of its handles in hexadecimal.
    pub fn share(&self, share: u64) -> Option<&str> {
        self.shares.find(share)
    }

    /// A handle was seen.
    pub(crate) fn note_handle(&mut self, handle: Handle, bytes: &[u8]) {
        if self.shares.find(handle.share).is_none() {
            self.shares.insert(handle.share, || {
                let (part, length) = share_part(bytes);
                let digits = part.iter().take(length).map(|byte| format!("{byte:02x}"));
                digits.collect::<String>().into()
            });
        }
    }

    /// A handle was returned for a name.
    pub(crate) fn note_file(&mut self, handle: Handle, name: &[u8]) {
        if self.files.find(handle.file).is_none_or(|known| known.as_bytes() != name) {
            self.files.insert(handle.file, || printable(name));
        }
    }

    /// A handle was returned for the path of a share.
    pub(crate) fn note_share(&mut self, handle: Handle, path: &[u8]) {
        self.shares.insert(handle.share, || printable(path));
        self.files.insert(handle.file, || printable(path));
    }
}

/// A name that can be shown in one line: cut, and what is not printable escaped.
pub(crate) fn printable(name: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(name.get(..NAME_BYTES_MAX).unwrap_or(name));
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        // What commands a terminal, or changes the order of what is shown.
        if letter.is_control()
            || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    if name.len() > NAME_BYTES_MAX {
        shown.push('…');
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use super::{Handle, NAMES_MAX, Names, printable, share_part};

    #[test]
    fn handles_of_one_share_have_one_part() {
        // knfsd, with the UUID of a file system (kind 6), a root and a file.
        let mut root = vec![1, 0, 6, 0];
        root.extend([7; 16]);
        let mut file = vec![1, 0, 6, 1];
        file.extend([7; 16]);
        file.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        let (root, file) = (Handle::of(&root), Handle::of(&file));
        assert_eq!(root.share, file.share);
        assert_ne!(root.file, file.file);
        // Ours: length, MAC, share.
        let mut ours = vec![1, 26];
        ours.extend([1, 1, 1, 1, 1, 1, 1, 1]);
        ours.extend([0, 0, 0, 0, 0, 0, 0, 5]);
        ours.extend([9; 8]);
        assert_eq!(share_part(&ours).0[..8], [0, 0, 0, 0, 0, 0, 0, 5]);
        let node = |key: u8| Handle::of(&[&[2, 26][..], &[key; 24]].concat());
        assert_eq!(node(1).share, node(2).share);
        for odd in [&[][..], &[1], &[1, 0, 7], &[3; 5], &[0x43]] {
            let _ = Handle::of(odd);
        }
    }

    #[test]
    fn names_are_bounded_and_printable() {
        let mut names = Names::default();
        let handle = |number: u64| Handle { file: number, share: number };
        for number in 0..100_000 {
            names.note_file(handle(number), b"name");
        }
        assert!(names.files.young.len() + names.files.old.len() <= NAMES_MAX);
        assert_eq!(names.file(99_999), Some("name"));
        assert_eq!(names.file(0), None);
        assert_eq!(
            &*printable("a\nb\x1b\u{202e}\u{61c}".as_bytes()),
            "a\\u{a}b\\u{1b}\\u{202e}\\u{61c}"
        );
        assert_eq!(printable(&[b'x'; 100]).chars().count(), 65);
    }
}
