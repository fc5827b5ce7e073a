//! What a COMPOUND works on.

use steadfast_shares::ShareId;
use steadfast_state::StateId;
use steadfast_vfs::StorageHandle;

use crate::pseudo::NodeKey;

/// An object that a handle of NFSv4 names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// A directory of the pseudo file system.
    Node(NodeKey),
    /// An object of a share.
    Stored(ShareId, StorageHandle),
}

/// A filehandle of a run, and the stateid that goes with it (RFC 8881 §16.2.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) object: Option<Object>,
    pub(crate) stateid: Option<StateId>,
}
