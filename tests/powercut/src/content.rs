//! What a file may hold after a crash: the newest bytes, and what may be there instead as long as
//! they are not promised.

use std::sync::Arc;

/// The contents of a file as the ledger knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// With everything that was done.
    newest: Arc<Vec<u8>>,
    /// The file has at least this many bytes.
    size_promised: u64,
    /// Sizes that it may have beside those from `size_promised` to the newest.
    sizes: Vec<u64>,
    /// What may be there instead of the newest bytes.
    instead: Vec<Instead>,
    /// Whether a client has written what it was not promised, or a local process what nothing tells: that a
    /// local process makes it stable promises nothing.
    is_unstable: bool,
    /// Whether a local process has changed what is not promised: a COMMIT is of what clients wrote.
    is_local: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Instead {
    from: u64,
    bytes: Arc<Vec<u8>>,
    /// Whether it is what a local process has changed.
    is_local: bool,
}

impl Instead {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (start, end) = (from.max(self.from), to.min(self.end()));
        let range = start.checked_sub(self.from)? as usize..end.checked_sub(self.from)? as usize;
        let bytes = self.bytes.get(range).filter(|bytes| !bytes.is_empty())?;
        Some(Self { from: start, bytes: Arc::new(bytes.to_vec()), is_local: self.is_local })
    }
}

impl Content {
    /// The size with everything that was done.
    pub(crate) fn size(&self) -> u64 {
        self.newest.len() as u64
    }

    /// The bytes with everything that was done.
    pub(crate) fn newest(&self) -> &[u8] {
        &self.newest
    }

    /// Whether only one content and size is permitted.
    #[cfg(test)]
    pub(crate) fn is_certain(&self) -> bool {
        self.instead.is_empty() && self.sizes.is_empty() && self.size_promised == self.size()
    }

    /// Whether something was written that is not promised yet.
    pub(crate) fn is_unstable(&self) -> bool {
        self.is_unstable
    }

    /// Data was written; whether it is promised to stay is told.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], is_promised: bool) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        if !is_promised {
            self.is_unstable = true;
            self.doubt(offset, end);
        }
        let newest = Arc::make_mut(&mut self.newest);
        if newest.len() < end as usize {
            newest.resize(end as usize, 0);
        }
        if let Some(place) = newest.get_mut(offset as usize..end as usize) {
            place.copy_from_slice(data);
        }
        if is_promised {
            self.promise(offset, end);
        }
    }

    /// The size was set, and is promised.
    pub(crate) fn truncate(&mut self, size: u64) {
        Arc::make_mut(&mut self.newest).resize(size as usize, 0);
        self.size_promised = size;
        self.sizes.clear();
        let instead = std::mem::take(&mut self.instead);
        self.instead = instead.into_iter().filter_map(|other| other.part(0, size)).collect();
    }

    /// The size may have been set. File systems may store the zeros beyond a new end before the
    /// new size itself.
    pub(crate) fn maybe_truncate(&mut self, size: u64) {
        self.sizes.push(size);
        if size < self.size() {
            let zeros = vec![0; (self.size() - size) as usize];
            self.instead.push(Instead { from: size, bytes: Arc::new(zeros), is_local: false });
        }
    }

    /// It was seen to be this, and stays so.
    pub(crate) fn see(&mut self, bytes: Vec<u8>) {
        self.newest = Arc::new(bytes);
        self.settle();
    }

    /// The whole file was changed to this. What is not promised may be what was there before instead,
    /// byte by byte.
    pub(crate) fn put(&mut self, bytes: Vec<u8>, is_promised: bool) {
        let (old_bytes, new_bytes) = (self.size(), bytes.len() as u64);
        let old = std::mem::replace(&mut self.newest, Arc::new(bytes));
        if is_promised && !self.is_unstable {
            self.settle();
            return;
        }
        self.size_promised = self.size_promised.min(new_bytes);
        self.sizes.push(old_bytes);
        if old_bytes > new_bytes {
            let zeros = vec![0; (old_bytes - new_bytes) as usize];
            self.instead.push(Instead { from: new_bytes, bytes: Arc::new(zeros), is_local: true });
        }
        // Where the file did not reach before, there is a hole as soon as it grows again.
        if new_bytes > old_bytes {
            let zeros = vec![0; (new_bytes - old_bytes) as usize];
            self.instead.push(Instead { from: old_bytes, bytes: Arc::new(zeros), is_local: true });
        }
        self.instead.push(Instead { from: 0, bytes: old, is_local: true });
        self.is_local = true;
    }

    /// Whoever makes it stable, what there is may be lost until a client commits it.
    pub(crate) fn be_unstable(&mut self) {
        self.is_unstable = true;
    }

    /// A local process has made all of it stable.
    pub(crate) fn settle_locally(&mut self) {
        if !self.is_unstable {
            self.settle();
        }
    }

    /// All of it is stable.
    fn settle(&mut self) {
        (self.is_unstable, self.is_local) = (false, false);
        self.size_promised = self.size();
        self.sizes.clear();
        self.instead.clear();
    }

    /// A range is promised to stay; an empty one is the whole file.
    pub(crate) fn commit(&mut self, offset: u64, count: u32) {
        let end = if count == 0 { self.size() } else { offset + u64::from(count) };
        self.is_unstable &= count != 0;
        let end = end.min(self.size());
        if self.is_local {
            // How long clients alone have made it is not known.
            self.promise_bytes(offset, end, |other| !other.is_local);
        } else {
            self.promise(offset, end);
        }
    }

    /// Notes what is there as possible again after it is overwritten.
    fn doubt(&mut self, from: u64, to: u64) {
        let mut old = vec![0; (to - from) as usize];
        let known = self.newest.get(from as usize..).unwrap_or(&[]);
        for (place, byte) in old.iter_mut().zip(known) {
            *place = *byte;
        }
        self.instead.push(Instead { from, bytes: Arc::new(old), is_local: false });
        // What comes after the old end is a hole until it is written.
        let size = self.size();
        if to > size && from < size {
            let bytes = Arc::new(vec![0; (to - size) as usize]);
            self.instead.push(Instead { from: size, bytes, is_local: false });
        }
    }

    fn promise(&mut self, from: u64, to: u64) {
        self.size_promised = self.size_promised.max(to);
        self.promise_bytes(from, to, |_| true);
    }

    fn promise_bytes(&mut self, from: u64, to: u64, is_over: impl Fn(&Instead) -> bool) {
        let instead = std::mem::take(&mut self.instead);
        for other in instead {
            if other.end() <= from || other.from >= to || !is_over(&other) {
                self.instead.push(other);
                continue;
            }
            self.instead.extend(other.part(0, from));
            self.instead.extend(other.part(to, u64::MAX));
        }
    }

    /// Whether a file may have this size.
    pub(crate) fn may_have_size(&self, size: u64) -> bool {
        (self.size_promised..=self.size()).contains(&size) || self.sizes.contains(&size)
    }

    /// Whether this size is on the way to one that is being set. XFS stores the last old block, zeros
    /// beyond the old end included, and the size with it, before it stores the new size.
    pub(crate) fn is_halfway(&self, size: u64) -> bool {
        let old = self.size();
        size > old && self.sizes.iter().any(|wanted| size < *wanted)
    }

    /// What is wrong with the bytes that were read.
    pub(crate) fn fault(&self, seen: &[u8]) -> Option<String> {
        if !self.may_have_size(seen.len() as u64) {
            return Some(self.size_fault(seen.len() as u64));
        }
        let common = seen.len().min(self.newest.len());
        let is_same = seen.get(..common) == self.newest.get(..common);
        if is_same && seen.get(common..).is_some_and(|rest| rest.iter().all(|byte| *byte == 0)) {
            return None;
        }
        let is_wrong = |at: usize, byte: u8| {
            let newest = self.newest.get(at).copied().unwrap_or(0);
            // Beyond the promised size a hole is possible wherever a later write came first.
            let is_hole = byte == 0 && at as u64 >= self.size_promised;
            newest != byte
                && !is_hole
                && !self.instead.iter().any(|other| {
                    let within = (at as u64).checked_sub(other.from);
                    within.and_then(|within| other.bytes.get(within as usize)) == Some(&byte)
                })
        };
        let wrong: Vec<usize> = (seen.iter().enumerate())
            .filter(|(at, byte)| is_wrong(*at, **byte))
            .map(|(at, _)| at)
            .collect();
        let (first, last) = (wrong.first()?, wrong.last()?);
        let zeros = wrong.iter().filter(|at| seen.get(**at) == Some(&0)).count();
        Some(format!(
            "{} bytes from {first} to {last} are not what was written, {zeros} of them zeros \
             (size {}, promised {})",
            wrong.len(),
            seen.len(),
            self.size_promised
        ))
    }

    /// What is wrong with this size.
    pub(crate) fn size_fault(&self, size: u64) -> String {
        format!("it has {size} bytes instead of {} to {}", self.size_promised, self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_bytes_may_not_be_lost() {
        let mut content = Content::default();
        content.write(0, &[1; 100], true);
        assert!(content.is_certain());
        assert_eq!(content.fault(&[1; 100]), None);
        assert!(content.fault(&[1; 99]).is_some(), "shorter");
        assert!(content.fault(&[1; 101]).is_some(), "longer");
        let mut lost = [1; 100];
        lost[50] = 0;
        assert!(content.fault(&lost).is_some_and(|fault| fault.contains("1 bytes from 50 to 50")));
    }

    #[test]
    fn unstable_bytes_are_old_or_new_until_they_are_committed() {
        let mut content = Content::default();
        content.write(0, &[1; 100], true);
        content.write(50, &[3; 100], false);
        let with = |middle: u8, end: &[u8]| [&[1; 50][..], &[middle; 50], end].concat();
        assert_eq!(content.fault(&with(1, &[])), None);
        assert_eq!(content.fault(&with(3, &[3; 50])), None);
        assert_eq!(content.fault(&with(3, &[3; 20])), None, "a part of the growth");
        assert_eq!(content.fault(&with(1, &[0; 50])), None, "a hole");
        assert!(content.fault(&with(0, &[])).is_some(), "promised bytes are no hole");
        assert!(content.fault(&with(5, &[])).is_some(), "never written");
        content.commit(60, 20);
        assert!(content.fault(&with(1, &[])).is_some());
        let mut mixed = with(1, &[]);
        mixed[60..80].fill(3);
        assert_eq!(content.fault(&mixed), None);
        content.commit(0, 0);
        assert!(content.is_certain());
        assert_eq!(content.fault(&with(3, &[3; 50])), None);
        assert!(content.fault(&mixed).is_some());
    }

    #[test]
    fn what_was_put_is_old_or_new_until_it_is_settled() {
        let mut content = Content::default();
        content.write(0, &[1; 100], true);
        content.put(vec![3; 40], false);
        assert_eq!(content.fault(&[3; 40]), None);
        assert_eq!(content.fault(&[1; 100]), None, "as it was");
        assert!(content.fault(&[1; 60]).is_some(), "a size that it never had");
        content.write(10, &[5; 10], true);
        assert!(content.fault(&[1; 100]).is_some(), "acknowledged on top of it");
        let mut mixed = vec![1; 100];
        mixed[10..20].fill(5);
        assert_eq!(content.fault(&mixed), None);
        content.settle();
        assert!(content.is_certain() && content.fault(&mixed).is_some());
        let mut grown = Content::default();
        grown.put(vec![3; 40], false);
        grown.write(60, &[5; 10], true);
        assert_eq!(grown.fault(&[&[0; 60][..], &[5; 10]].concat()), None, "a hole");
        assert!(grown.fault(&[&[1; 60][..], &[5; 10]].concat()).is_some(), "never there");
        content.put(vec![9; 100], false);
        content.commit(0, 0);
        let old = [&[3; 10][..], &[5; 10], &[3; 20]].concat();
        assert_eq!(content.fault(&old), None, "it is of what clients wrote");
        content.settle();
        content.put(vec![7; 5], true);
        assert!(content.is_certain() && content.fault(&[7; 5]).is_none());
    }

    #[test]
    fn a_promised_size_forgets_what_was_beyond() {
        let mut content = Content::default();
        content.write(0, &[1; 100], true);
        content.write(0, &[3; 10], false);
        content.truncate(5);
        content.truncate(8);
        assert_eq!(content.fault(&[3, 3, 3, 3, 3, 0, 0, 0]), None);
        assert_eq!(content.fault(&[1, 1, 3, 3, 3, 0, 0, 0]), None);
        assert!(content.fault(&[3, 3, 3, 3, 3, 3, 0, 0]).is_some(), "cut off for ever");
    }

    #[test]
    fn a_size_under_way_is_old_or_new() {
        let mut content = Content::default();
        content.write(0, &[1; 100], true);
        let (mut down, mut up) = (content.clone(), content);
        down.maybe_truncate(40);
        assert_eq!(down.fault(&[1; 40]), None);
        assert_eq!(down.fault(&[1; 100]), None);
        assert!(down.fault(&[1; 60]).is_some());
        up.maybe_truncate(200);
        assert_eq!(up.fault(&[&[1; 100][..], &[0; 100]].concat()), None);
        assert!(up.fault(&[1; 200]).is_some());
        assert!(up.fault(&[1; 150]).is_some());
        assert!(up.is_halfway(150) && !up.is_halfway(100) && !up.is_halfway(200));
    }
}
