//! A host that speaks NLM, and the owners of its locks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::host_data::HostData;
use crate::{Client, StateError};

/// Longest owner in bytes (`MAXNETOBJ_SZ`).
pub(crate) const OWNER_BYTES_MAX: usize = 1024;

/// The owner of the open that a host's locks belong to.
pub(crate) const LOCKS: &[u8] = b"";

/// A host that speaks NLM.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) client: Arc<Client>,
    pub(crate) data: Arc<HostData>,
}

impl Host {
    /// The host of a client, if it is one.
    pub(crate) fn of(client: &Arc<Client>) -> Option<Self> {
        Some(Self { client: Arc::clone(client), data: Arc::clone(client.host()?) })
    }

    /// What it calls itself.
    pub fn name(&self) -> &[u8] {
        self.data.name()
    }

    /// Where its calls come from.
    pub fn address(&self) -> IpAddr {
        self.data.address()
    }

    /// Whether [`Host::set_recorded`] was called, and
    /// [`State::hosts_in_use`](crate::State::hosts_in_use) has not found since that the host has nothing.
    pub fn is_recorded(&self) -> bool {
        self.data.is_recorded.load(Ordering::SeqCst)
    }

    /// The host is about to get something: it counts among
    /// [`State::hosts_in_use`](crate::State::hosts_in_use) as long as the result lives. To be called before
    /// [`Host::is_recorded`].
    pub fn begin_use(&self) -> HostInUse {
        self.data.users.fetch_add(1, Ordering::SeqCst);
        HostInUse(Arc::clone(&self.data))
    }

    /// It is recorded where a restart finds it, so that it may get its first lock.
    pub fn set_recorded(&self) {
        self.data.is_recorded.store(true, Ordering::SeqCst);
    }
}

/// A host that is about to get something.
#[derive(Debug)]
#[must_use = "it ends with this"]
pub struct HostInUse(Arc<HostData>);

impl Drop for HostInUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An owner of locks at a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NlmOwner {
    /// Number of the process.
    pub svid: u32,
    /// The owner, which the host alone understands.
    pub oh: Box<[u8]>,
}

impl NlmOwner {
    /// The owner that [`NlmOwner::name`] has named.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        match name.split_first_chunk() {
            Some((svid, oh)) => Self { svid: u32::from_be_bytes(*svid), oh: oh.into() },
            None => Self { svid: 0, oh: name.into() },
        }
    }

    pub(crate) fn name(&self) -> Result<Arc<[u8]>, StateError> {
        if self.oh.len() > OWNER_BYTES_MAX {
            return Err(StateError::Invalid);
        }
        Ok([&self.svid.to_be_bytes(), &*self.oh].concat().into())
    }
}
