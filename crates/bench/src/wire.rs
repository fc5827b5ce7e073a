//! Over which version of NFS a thread's calls are made.

use std::ops::Range;

use crate::nfs4::sessions::Sessions4;
use crate::setup::{CallWriter, Target};
use crate::version::NfsVersion;

/// What makes calls of a version.
pub(crate) enum Wire {
    /// NFSv3: each call stands for itself.
    V3(CallWriter),
    /// NFSv4: each call has a slot of its client's session.
    V4(Sessions4),
}

impl Wire {
    /// For a thread's clients, with so many calls in flight each; `bytes` is the data of the largest call.
    pub(crate) fn new(
        target: &Target,
        nfs: NfsVersion,
        clients: &Range<usize>,
        depth: usize,
        bytes: u32,
    ) -> Self {
        if nfs.is_4() {
            Self::V4(Sessions4::new(target, nfs, clients, depth, bytes))
        } else {
            Self::V3(CallWriter::new(&target.identity))
        }
    }
}
