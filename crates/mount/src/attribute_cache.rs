//! What is known of an object's attributes, and until when it is believed (nfs(5), `acregmin` and
//! its like). Time is an argument.

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

    /// The version before a change, as WCC tells it.
    pub(crate) fn before(wcc: &steadfast_client::WccAttributes) -> Self {
        Self { size: wcc.size, mtime: wcc.mtime, ctime: wcc.ctime }
    }
}

/// Who made the change that new attributes may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The attributes were asked for: a change is somebody else's.
    Asked,
    /// They came with a change of ours.
    Ours,
}

/// The attributes of one object.
#[derive(Clone, Debug)]
pub(crate) struct AttributeCache {
    attributes: Attributes,
    fetched: Instant,
    believed_for: Duration,
    is_expired: bool,
}

impl AttributeCache {
    pub(crate) fn new(attributes: Attributes, now: Instant, times: &CacheTimes) -> Self {
        let (min, _) = bounds(&attributes, times);
        Self { attributes, fetched: now, believed_for: min, is_expired: false }
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

    /// Takes newer attributes, whose call was sent at `sent`; true if somebody else has changed the
    /// object. Attributes of a call that was sent before the known ones came, with an older ctime,
    /// are left alone: replies overtake each other.
    pub(crate) fn update(
        &mut self,
        attributes: Attributes,
        origin: Origin,
        sent: Instant,
        now: Instant,
        times: &CacheTimes,
    ) -> bool {
        if attributes.ctime < self.attributes.ctime && sent < self.fetched {
            return false;
        }
        let has_changed = Version::of(&attributes) != self.version();
        let is_foreign = has_changed && origin == Origin::Asked;
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
        self.fetched = now;
        self.is_expired = false;
        is_foreign
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
        assert!(!cache.update(attributes(1, 1), Origin::Asked, at(3), at(3), &times));
        assert!(cache.is_fresh(at(8)) && !cache.is_fresh(at(9)));
        for now in [9, 100, 200, 300, 400] {
            cache.update(attributes(1, 1), Origin::Asked, at(now), at(now), &times);
        }
        assert!(cache.is_fresh(at(459)) && !cache.is_fresh(at(460)), "never above acregmax");
        assert!(cache.update(attributes(2, 2), Origin::Asked, at(500), at(500), &times));
        assert!(!cache.is_fresh(at(503)), "a change of somebody else's brings acregmin back");
    }

    #[test]
    fn changes_of_ours_are_no_changes_of_others() {
        let times = CacheTimes::default();
        let start = Instant::now();
        let mut cache = AttributeCache::new(attributes(1, 1), start, &times);
        assert!(!cache.update(attributes(5, 2), Origin::Ours, start, start, &times));
        assert_eq!(cache.attributes().size, 5);
    }

    #[test]
    fn an_overtaken_reply_changes_nothing() {
        let times = CacheTimes::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut cache = AttributeCache::new(attributes(1, 1), start, &times);
        cache.update(attributes(5, 3), Origin::Ours, start, later, &times);
        assert!(!cache.update(attributes(1, 2), Origin::Asked, start, later, &times));
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
