//! The sharetab's text: the lines of each share, in no order, so that a change of one share among
//! fifteen thousand moves few of the others.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Changes with more shares than these put the text together anew.
const CHANGES_IN_PLACE_MAX: usize = 16;

/// So many shares are looked at from the end for one whose lines fit where others were.
const LOOKED_AT_MAX: usize = 2048;

/// Room at the end for lines to come, when there is none.
const ROOM_BYTES: usize = 16 << 10;

/// New lines by the first field of those whose place they take; none to take them out.
pub(super) type Changes = BTreeMap<Box<str>, Option<Box<str>>>;

/// Lines, each with its newline. Lines of one share, which are those with the same first field,
/// follow each other.
#[derive(Debug, Default)]
pub(super) struct Lines {
    text: String,
    /// Where the lines of each share begin, by their first field.
    starts: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl Lines {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Takes out all; gives the memory back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Puts changes into the text. Where it differs afterwards from what it was: nowhere if there
    /// is no range, and beyond its end if it has become shorter.
    pub(super) fn put(&mut self, changes: Changes) -> Vec<Range<usize>> {
        if changes.len() > CHANGES_IN_PLACE_MAX {
            return self.put_together(changes);
        }
        let mut different = Vec::new();
        for (first, lines) in changes {
            self.put_one(&first, lines.as_deref().unwrap_or_default(), &mut different);
        }
        different
    }

    fn put_one(&mut self, first: &str, lines: &str, different: &mut Vec<Range<usize>>) {
        if let Some(start) = self.start_of(first) {
            let old = start..self.end_of(start);
            if old.len() == lines.len() {
                if self.part(old.clone()) != lines {
                    self.text.replace_range(old.clone(), lines);
                    different.push(old);
                }
                return;
            }
            self.take_out(old, different);
        }
        if !lines.is_empty() {
            let start = self.text.len();
            if self.text.capacity() - start < lines.len() {
                // Not twice what there is.
                self.text.reserve_exact(lines.len() + ROOM_BYTES);
            }
            self.text.push_str(lines);
            self.note_start(start);
            different.push(start..self.text.len());
        }
    }

    /// Takes out the lines of a share. The last share whose lines are as long takes their place, so
    /// that only those behind that one have to move.
    fn take_out(&mut self, hole: Range<usize>, different: &mut Vec<Range<usize>>) {
        self.forget_start(hole.start);
        let mut moved = hole.clone();
        if let Some(fitting) = self.last_as_long(&hole) {
            self.forget_start(fitting.start);
            let lines = self.part(fitting.clone()).to_owned();
            self.text.replace_range(hole.clone(), &lines);
            self.note_start(hole.start);
            different.push(hole);
            moved = fitting;
        }
        let mut start = moved.end;
        while start < self.text.len() {
            let hash = self.hash(self.field_at(start));
            if let Some(noted) = self.starts.find_mut(hash, |at| *at == start) {
                *noted -= moved.len();
            }
            start = self.end_of(start);
        }
        self.text.replace_range(moved.clone(), "");
        different.push(moved.start..self.text.len());
    }

    /// The last share behind a range whose lines are as long as the range.
    fn last_as_long(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut end = self.text.len();
        for _ in 0..LOOKED_AT_MAX {
            if end <= range.end {
                break;
            }
            let start = self.start_of_those_that_end(end);
            if end - start == range.len() {
                return Some(start..end);
            }
            end = start;
        }
        None
    }

    /// Makes the text anew, with what stays in the order that it had.
    fn put_together(&mut self, mut changes: Changes) -> Vec<Range<usize>> {
        let mut text = String::with_capacity(self.text.len());
        let mut start = 0;
        while start < self.text.len() {
            let end = self.end_of(start);
            match changes.remove(self.field_at(start)) {
                Some(lines) => text.push_str(lines.as_deref().unwrap_or_default()),
                None => text.push_str(self.part(start..end)),
            }
            start = end;
        }
        for lines in changes.into_values().flatten() {
            text.push_str(&lines);
        }
        if text == self.text {
            return Vec::new();
        }
        text.shrink_to_fit();
        self.text = text;
        self.starts = HashTable::new();
        let mut start = 0;
        while start < self.text.len() {
            self.note_start(start);
            start = self.end_of(start);
        }
        std::iter::once(0..self.text.len()).collect()
    }

    fn hash(&self, first: &str) -> u64 {
        self.hasher.hash_one(first)
    }

    fn start_of(&self, first: &str) -> Option<usize> {
        self.starts.find(self.hash(first), |start| self.field_at(*start) == first).copied()
    }

    fn note_start(&mut self, start: usize) {
        let Self { text, starts, hasher } = self;
        let hash = |start: &usize| hasher.hash_one(field_at(text, *start));
        starts.insert_unique(hash(&start), start, hash);
    }

    fn forget_start(&mut self, start: usize) {
        let hash = self.hash(self.field_at(start));
        if let Ok(noted) = self.starts.find_entry(hash, |at| *at == start) {
            noted.remove();
        }
    }

    fn part(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// The first field of the line that begins there.
    fn field_at(&self, line: usize) -> &str {
        field_at(&self.text, line)
    }

    /// The end of the lines of the share whose lines begin there.
    fn end_of(&self, start: usize) -> usize {
        let first = self.field_at(start);
        let mut end = self.end_of_line(start);
        while end < self.text.len() && self.field_at(end) == first {
            end = self.end_of_line(end);
        }
        end
    }

    fn end_of_line(&self, line: usize) -> usize {
        let rest = self.text.get(line..).unwrap_or_default();
        rest.find('\n').map_or(self.text.len(), |at| line + at + 1)
    }

    /// The start of the lines of the share whose lines end there.
    fn start_of_those_that_end(&self, end: usize) -> usize {
        let mut start = self.start_of_line_that_ends(end);
        let first = self.field_at(start);
        while start > 0 {
            let before = self.start_of_line_that_ends(start);
            if self.field_at(before) != first {
                break;
            }
            start = before;
        }
        start
    }

    fn start_of_line_that_ends(&self, end: usize) -> usize {
        let before = self.text.get(..end.saturating_sub(1)).unwrap_or_default();
        before.rfind('\n').map_or(0, |at| at + 1)
    }
}

fn field_at(text: &str, line: usize) -> &str {
    let rest = text.get(line..).unwrap_or_default();
    rest.split_once('\t').map_or(rest, |(field, _)| field)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change(first: &str, lines: Option<&str>) -> Changes {
        [(first.into(), lines.map(Into::into))].into()
    }

    #[test]
    fn a_change_among_many_moves_few() {
        let name = |n: usize| format!("/share/{n:05}");
        let line = |n: usize| format!("{}\t-\tnfs\trw={}\t-\n", name(n), "c".repeat(n % 7));
        let count = 5000;
        let mut lines = Lines::default();
        let all = (0..count).map(|n| (name(n).into(), Some(line(n).into()))).collect();
        let different = lines.put(all);
        assert_eq!(different, [Range { start: 0, end: lines.text.len() }]);
        // Longer, and at the end from then on; as long, in its place; gone.
        let longer = line(10).replace("rw=", "rw=client-of-its-own,");
        let as_long = line(20).replace("rw", "ro");
        for (n, new) in [(10, Some(&longer)), (20, Some(&as_long)), (30, None)] {
            let different = lines.put(change(&name(n), new.map(String::as_str)));
            let bytes: usize = different.iter().map(ExactSizeIterator::len).sum();
            assert!((1..2000).contains(&bytes), "{n}: {different:?}");
            assert_eq!(lines.start_of(&name(n)).is_some(), new.is_some());
        }
        assert!(lines.text.ends_with(&longer), "{:?}", lines.text.lines().last());
        assert_eq!(lines.text.lines().count(), count - 1);
        assert!(lines.put(change(&name(20), Some(&as_long))).is_empty());
        assert!(lines.put(change("/none", None)).is_empty());
    }

    proptest! {
        /// Whatever is put in and taken out, the text has the lines that it should have, finds
        /// them, and says where it has become another one.
        #[test]
        fn the_text_has_what_was_put_into_it(
            batches in prop::collection::vec(
                prop::collection::btree_map(0..40_u8, prop::option::of((1..3_usize, 0..6_usize)), 0..24),
                1..20),
        ) {
            let mut lines = Lines::default();
            let mut model: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
            let mut copy = Vec::new();
            for batch in batches {
                let mut changes = Changes::new();
                for (share, new) in batch {
                    let first: Box<str> = format!("/{share}").into();
                    let new = new.map(|(kinds, length)| -> Box<str> {
                        format!("{first}\t{}\n", "x".repeat(length)).repeat(kinds).into()
                    });
                    match &new {
                        Some(new) => model.insert(first.clone(), new.clone()),
                        None => model.remove(&first),
                    };
                    changes.insert(first, new);
                }
                let different = lines.put(changes);
                let text = lines.text.as_bytes();
                copy.resize(text.len(), 0);
                for range in different {
                    let range = range.start.min(text.len())..range.end.min(text.len());
                    copy[range.clone()].copy_from_slice(&text[range]);
                }
                prop_assert_eq!(&copy[..], text);
                let expected: usize = model.values().map(|lines| lines.len()).sum();
                prop_assert_eq!(text.len(), expected);
                prop_assert_eq!(lines.starts.len(), model.len());
                for (first, expected) in &model {
                    let start = lines.start_of(first).expect("found");
                    prop_assert_eq!(lines.part(start..lines.end_of(start)), &**expected);
                }
            }
        }
    }
}
