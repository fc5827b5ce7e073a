//! What is known of an object's attributes, and until when it is believed (nfs(5), `acregmin` and
//! its like). Time is an argument.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use steadfast_client::{Attributes, FileType, Time};

use crate::options::CacheTimes;

/// What tells one content of a file or directory from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    size: u64,
    mtime: Time,
    ctime: Time,
}

impl Version {
    pub(crate) fn of(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }

    /// Which of two versions is newer cannot be told for certain; ctime is the best there is.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        (self.ctime, self.mtime, self.size) > (other.ctime, other.mtime, other.size)
    }

    /// Whether the content is the same, though attributes may have changed.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        (self.mtime, self.size) == (other.mtime, other.size)
    }

    /// The version before a change, as WCC tells it.
    pub(crate) fn before(wcc: &steadfast_client::WccAttributes) -> Self {
        Self { size: wcc.size, mtime: wcc.mtime, ctime: wcc.ctime }
    }
}

/// The attributes of one object.
#[derive(Clone, Debug)]
pub(crate) struct AttributeCache {
    attributes: Attributes,
    /// When their call was sent, and when its reply came.
    sent: Instant,
    fetched: Instant,
    believed_for: Duration,
    is_expired: bool,
}

impl AttributeCache {
    pub(crate) fn new(attributes: Attributes, now: Instant, times: &CacheTimes) -> Self {
        let (min, _) = bounds(&attributes, times);
        Self { attributes, sent: now, fetched: now, believed_for: min, is_expired: false }
    }

    pub(crate) fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    pub(crate) fn version(&self) -> Version {
        Version::of(&self.attributes)
    }

    /// How much longer they are believed.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        if self.is_expired {
            return Duration::ZERO;
        }
        self.believed_for.saturating_sub(now.saturating_duration_since(self.fetched))
    }

    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        !self.remaining(now).is_zero()
    }

    /// They are believed no more.
    pub(crate) fn expire(&mut self) {
        self.is_expired = true;
    }

    /// Whether a reply is older than what is known: replies overtake each other. A call that was sent
    /// after the known attributes came is newer. Of two that overlap, ctime tells which is older, and if
    /// that is equal (a server's clock may stand still for 10 ms) the order of sending. The latter is
    /// a guess: the known attributes expire then.
    pub(crate) fn is_overtaken(&mut self, attributes: &Attributes, sent: Instant) -> bool {
        if sent >= self.fetched || Version::of(attributes) == self.version() {
            return false;
        }
        match attributes.ctime.cmp(&self.attributes.ctime) {
            Ordering::Less => true,
            Ordering::Equal if sent < self.sent => {
                self.is_expired = true;
                true
            }
            Ordering::Equal | Ordering::Greater => false,
        }
    }

    /// Takes attributes that are not overtaken, whose call was sent at `sent`. A change of somebody
    /// else's makes them be believed for the shortest time.
    pub(crate) fn update(
        &mut self,
        attributes: Attributes,
        is_foreign: bool,
        sent: Instant,
        now: Instant,
        times: &CacheTimes,
    ) {
        let has_changed = Version::of(&attributes) != self.version();
        let (min, max) = bounds(&attributes, times);
        if is_foreign {
            self.believed_for = min;
        } else if !has_changed
            && !self.is_expired
            && now.saturating_duration_since(self.fetched) >= self.believed_for
        {
            self.believed_for = (self.believed_for * 2).clamp(min, max);
        }
        self.attributes = attributes;
        self.sent = sent;
        self.fetched = now;
        self.is_expired = false;
    }
}

fn bounds(attributes: &Attributes, times: &CacheTimes) -> (Duration, Duration) {
    if attributes.file_type == FileType::Directory {
        (times.directory_min, times.directory_max)
    } else {
        (times.file_min, times.file_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(size: u64, ctime: u32) -> Attributes {
        let time = Time { seconds: ctime, nanoseconds: 0 };
        Attributes {
            file_type: FileType::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: (0, 0),
            fsid: 1,
            fileid: 2,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    #[test]
    fn attributes_are_believed_longer_while_nothing_changes() {
        let times = CacheTimes::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut cache = AttributeCache::new(attributes(1, 1), start, &times);
        assert!(cache.is_fresh(at(2)) && !cache.is_fresh(at(3)));
        cache.update(attributes(1, 1), false, at(3), at(3), &times);
        assert!(cache.is_fresh(at(8)) && !cache.is_fresh(at(9)));
        for now in [9, 100, 200, 300, 400] {
            cache.update(attributes(1, 1), false, at(now), at(now), &times);
        }
        assert!(cache.is_fresh(at(459)) && !cache.is_fresh(at(460)), "never above acregmax");
        cache.update(attributes(2, 2), true, at(500), at(500), &times);
        assert!(!cache.is_fresh(at(503)), "a change of somebody else's brings acregmin back");
    }

    #[test]
    fn an_overtaken_reply_is_known() {
        let times = CacheTimes::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut cache = AttributeCache::new(attributes(1, 1), start, &times);
        cache.update(attributes(5, 3), false, at(10), at(20), &times);
        assert!(cache.is_overtaken(&attributes(1, 2), at(5)), "an older ctime");
        assert!(cache.is_overtaken(&attributes(1, 2), at(15)));
        assert!(cache.is_fresh(at(20)));
        assert!(!cache.is_overtaken(&attributes(1, 2), at(20)), "sent after the known ones came");
        assert!(!cache.is_overtaken(&attributes(9, 4), at(5)), "a newer ctime");
        assert!(!cache.is_overtaken(&attributes(9, 3), at(15)), "sent later");
        assert!(cache.is_overtaken(&attributes(4, 3), at(5)), "an equal ctime, sent before");
        assert!(!cache.is_fresh(at(20)), "it is a guess");
        assert_eq!(cache.attributes().size, 5);
    }

    #[test]
    fn expired_attributes_are_asked_for() {
        let times = CacheTimes::default();
        let now = Instant::now();
        let mut cache = AttributeCache::new(attributes(1, 1), now, &times);
        cache.expire();
        assert!(!cache.is_fresh(now));
    }
}
