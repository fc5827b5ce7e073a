//! What all trees of one server share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use steadfast_recovery::ChangeLog;
use steadfast_vfs::FlushDomain;

use crate::aliases::AliasStore;
use crate::async_changes::AsyncChanges;
use crate::attributes::Identity;
use crate::budget::Budget;
use crate::cache::Cache;
use crate::guards::Guards;
use crate::order::{NodeOrder, Orders};
use crate::pins::OpenObjects;
use crate::read_ahead::{ReadAheadShared, ReadAheadTotals};
use crate::volume::Volume;

/// How much trees may use together.
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions {
    /// Descriptors that may be open for objects of the trees, beside two for each mount. Objects
    /// in use count but are never closed, so the limit of the process must leave some room.
    pub descriptors_max: usize,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self { descriptors_max: 16_384 }
    }
}

/// What all trees of one server share: the budget of descriptors, the objects held open, and
/// the numbers of the file systems to be flushed. One for each process.
pub struct Storage {
    pub(crate) cache: Cache,
    pub(crate) budget: Arc<Budget>,
    pub(crate) read_ahead: Arc<ReadAheadShared>,
    pub(crate) change_log: Option<Arc<dyn ChangeLog>>,
    pub(crate) aliases: Arc<AliasStore>,
    pub(crate) orders: Orders,
    pub(crate) guards: Guards,
    trees: AtomicU32,
    /// The device of each flush domain, with what is known of changes there.
    domains: Mutex<Vec<(u64, Arc<AsyncChanges>)>>,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage")
            .field("objects", &self.cache.open_objects())
            .field("descriptors", &self.budget)
            .finish_non_exhaustive()
    }
}

impl Storage {
    /// Storage without trees, whose changes are flushed.
    pub fn new(options: StorageOptions) -> Arc<Self> {
        Self::with_log(options, None, None)
    }

    /// Storage without trees, whose changes are logged. In the state directory is what replay has
    /// left to be known.
    pub fn with_log(
        options: StorageOptions,
        change_log: Option<Arc<dyn ChangeLog>>,
        state_directory: Option<PathBuf>,
    ) -> Arc<Self> {
        let budget = Budget::new(options.descriptors_max);
        Arc::new(Self {
            cache: Cache::new(Arc::clone(&budget)),
            budget,
            read_ahead: ReadAheadShared::new(),
            aliases: Arc::new(AliasStore::new(state_directory, change_log.clone())),
            change_log,
            orders: Orders::new(),
            guards: Guards::default(),
            trees: AtomicU32::new(0),
            domains: Mutex::default(),
        })
    }

    /// Closes descriptors of files that lost their last name by other hands than ours, or were
    /// idle for long. To be called about once a second; takes an eighth of the objects a time.
    pub fn sweep(&self) {
        self.cache.sweep();
    }

    /// How many objects are held open.
    pub fn objects(&self) -> usize {
        self.cache.len()
    }

    /// How many objects are held open, and why. Looks at all of them.
    pub fn open_objects(&self) -> OpenObjects {
        self.cache.open_objects()
    }

    /// How many descriptors are open for objects.
    pub fn descriptors(&self) -> usize {
        self.budget.open()
    }

    /// What was asked ahead of sequential reads since the start.
    pub fn read_ahead(&self) -> ReadAheadTotals {
        self.read_ahead.totals()
    }

    /// The lock that orders an object's changes. The log must have those of all trees in one order.
    pub(crate) fn order(&self, volume: &Volume, identity: Identity) -> NodeOrder {
        if volume.log.is_some() { self.orders.of(identity) } else { NodeOrder::default() }
    }

    pub(crate) fn new_tree(&self) -> u32 {
        self.trees.fetch_add(1, Ordering::Relaxed)
    }

    /// The flush domain of a device: dense numbers, never given to another.
    pub(crate) fn domain(&self, device: u64) -> FlushDomain {
        self.of_device(device).0
    }

    /// What all trees know of a device's changes.
    pub(crate) fn async_changes(&self, device: u64) -> Arc<AsyncChanges> {
        self.of_device(device).1
    }

    fn of_device(&self, device: u64) -> (FlushDomain, Arc<AsyncChanges>) {
        let mut domains = self.domains.lock();
        let known = domains.iter().enumerate().find(|(_, (known, _))| *known == device);
        if let Some((index, (_, changes))) = known {
            return (FlushDomain(index as u32), Arc::clone(changes));
        }
        let changes = Arc::new(AsyncChanges::default());
        domains.push((device, Arc::clone(&changes)));
        (FlushDomain((domains.len() - 1) as u32), changes)
    }
}
