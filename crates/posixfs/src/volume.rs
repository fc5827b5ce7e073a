//! The file systems beneath a tree: mounts, through which handles are opened, and volumes, one
//! for each device number (a btrfs subvolume has its own), with what does not change about them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags, Statx};
use steadfast_recovery::ObjectKey;
use steadfast_sys::block_device::sysfs_of;
use steadfast_sys::handle::KernelHandle;
use steadfast_sys::journal;
use steadfast_vfs::{Attr, FlushDomain, FsError, StorageHandle};

use crate::acl;
use crate::aliases::{AliasStore, Aliases};
use crate::async_changes::AsyncChanges;
use crate::attributes;
use crate::error::from_errno;
use crate::handle_form;
use crate::kinds::{BTRFS_MAGIC, EXT4_MAGIC, RAMFS_MAGIC, TMPFS_MAGIC, VolumeKind, XFS_MAGIC};
use crate::mount_lines;
use crate::read_ahead::Habits;
use crate::traits::{self, Traits};
use crate::volume_log::VolumeLog;

/// A mount that objects of the tree are reached through.
pub(crate) struct Mount {
    /// How handles name it: 0 is the one with the tree's root.
    pub(crate) id: u32,
    /// The kernel's number of it while it is mounted.
    pub(crate) kernel_id: u64,
    /// Its root, or the tree's root, open for reading: `open_by_handle_at` and `syncfs` want that.
    pub(crate) open: OwnedFd,
    /// Objects of its file system that were made again.
    pub(crate) aliases: Arc<Aliases>,
}

impl Mount {
    pub(crate) fn new(
        id: u32,
        kernel_id: u64,
        directory: impl AsFd,
        aliases: &AliasStore,
        known_path: &Path,
    ) -> Result<Self, FsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::openat(directory, c".", flags, Mode::empty()).map_err(from_errno)?;
        let aliases = aliases.of(&open, known_path)?;
        Ok(Self { id, kernel_id, open, aliases })
    }

    /// The handle that clients know an object by.
    pub(crate) fn handle(&self, kernel: &KernelHandle) -> Option<StorageHandle> {
        if self.aliases.is_empty() {
            return handle_form::from_kernel(self.id, kernel);
        }
        let actual = ObjectKey(handle_form::from_kernel(0, kernel)?);
        handle_form::on_mount(self.id, &self.aliases.presented(&actual))
    }

    /// What the kernel finds an object by, as `kernel` is what its handle has.
    pub(crate) fn actual(
        &self,
        handle: &StorageHandle,
        kernel: KernelHandle,
    ) -> Result<KernelHandle, FsError> {
        if self.aliases.is_empty() {
            return Ok(kernel);
        }
        let actual = self.aliases.actual(&handle_form::key(handle)).ok_or(FsError::Stale)?;
        handle_form::kernel_handle(&actual.0).ok_or(FsError::BadHandle)
    }

    /// To be called before the last descriptor of an object with data not flushed is closed.
    pub(crate) fn let_dirty_go(&self) {
        self.aliases.let_go_dirty.fetch_add(1, Ordering::AcqRel);
    }

    /// How many objects were let go with data not flushed. What they had not flushed is to be made
    /// stable, or told lost: a descriptor that is opened again does not know of an error before it,
    /// once the kernel has forgotten the inode or told somebody else; the file system itself
    /// remembers, for this mount's descriptor of it.
    pub(crate) fn let_go(&self) -> u64 {
        self.aliases.let_go_dirty.load(Ordering::Acquire)
    }

    /// All is stable that so many had let go. What was let go meanwhile is left to the next flush.
    pub(crate) fn forget_let_go(&self, let_go: u64) {
        let count = &self.aliases.let_go_dirty;
        let _ = count.compare_exchange(let_go, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn sync(&self) -> Result<(), FsError> {
        rustix::fs::syncfs(&self.open)
            .and_then(|()| journal::require_alive(&self.open))
            .map_err(from_errno)
    }
}

/// Whose `syncfs` tells nobody behind them (Linux: `fuse_sync_fs` but for virtiofs; 9p and CIFS have no
/// `sync_fs`), so that it succeeds though nothing is stable: FUSE, 9p, CIFS and SMB.
const IGNORING_SYNCFS: [u32; 4] = [0x6573_5546, 0x0102_1997, 0xff53_4d42, 0xfe53_4d42];

/// One file system, or one subvolume of one.
pub(crate) struct Volume {
    pub(crate) device: u64,
    pub(crate) domain: FlushDomain,
    pub(crate) fsid: u64,
    pub(crate) kind: VolumeKind,
    /// The kernel's number of the kind.
    pub(crate) magic: u32,
    pub(crate) has_acls: bool,
    /// Whether its objects can have extended attributes of users.
    pub(crate) has_xattrs: bool,
    /// Whether one journal keeps all changes of names and inodes in order, so that flushing one
    /// object makes everything stable that was changed together with it: a name with the inode
    /// it was made for, both directories of a renaming.
    pub(crate) has_one_journal: bool,
    pub(crate) traits: Traits,
    pub(crate) name_bytes_max: u32,
    /// How the kernel reads from it.
    pub(crate) habits: Habits,
    /// Objects of its file system that were made again.
    pub(crate) aliases: Arc<Aliases>,
    /// Its changes of `async` callers.
    pub(crate) async_changes: Arc<AsyncChanges>,
    /// Where its changes are logged, if they are. Dropped last: see [`crate::tree::Tree`].
    pub(crate) log: Option<VolumeLog>,
}

impl Volume {
    /// Looks at the volume that `object` is on.
    pub(crate) fn new(
        object: impl AsFd,
        device: u64,
        domain: FlushDomain,
        fsid: u64,
    ) -> Result<Self, FsError> {
        let facts = rustix::fs::fstatfs(&object).map_err(from_errno)?;
        let kind = match facts.f_type as u64 & 0xffff_ffff {
            EXT4_MAGIC => VolumeKind::Ext4,
            XFS_MAGIC => VolumeKind::Xfs,
            BTRFS_MAGIC => VolumeKind::Btrfs,
            TMPFS_MAGIC | RAMFS_MAGIC => VolumeKind::Memory,
            _ => VolumeKind::Other,
        };
        let traits = Traits::of(&object, &facts)?;
        let name_bytes_max = u32::try_from(facts.f_namelen).unwrap_or(255).clamp(1, 255);
        let is_known = !matches!(kind, VolumeKind::Other);
        let has_acls = acl::are_supported(&object, is_known)?;
        let has_xattrs = traits::has_user_attributes(&object, is_known);
        let has_one_journal = match kind {
            VolumeKind::Ext4 => has_ext4_journal(device),
            VolumeKind::Xfs => true,
            _ => false,
        };
        let habits = match kind {
            VolumeKind::Btrfs => Habits::of_btrfs(),
            _ => Habits::of_device(device),
        };
        Ok(Self {
            device,
            domain,
            fsid,
            kind,
            magic: facts.f_type as u32,
            has_acls,
            has_xattrs,
            has_one_journal,
            traits,
            name_bytes_max,
            habits,
            aliases: Arc::default(),
            async_changes: Arc::default(),
            log: None,
        })
    }

    /// With its changes logged, and what others know of it.
    pub(crate) fn with_log(
        self,
        log: Option<VolumeLog>,
        aliases: Arc<Aliases>,
        async_changes: Arc<AsyncChanges>,
    ) -> Self {
        Self { aliases, async_changes, log, ..self }
    }

    /// The attributes of an object that clients know by this handle.
    pub(crate) fn present(&self, stat: &Statx, handle: &StorageHandle) -> Attr {
        let mut attr = attributes::attr(stat, self.fsid);
        if !self.aliases.is_empty() {
            attr.fileid = self.aliases.fileid(&handle_form::key(handle), attr.fileid);
        }
        attr
    }

    /// Whether what it keeps is known well enough for its changes to be logged: what a flush of it
    /// promises, and what a crash may leave of it.
    pub(crate) fn can_be_logged(&self) -> bool {
        match self.kind {
            VolumeKind::Xfs | VolumeKind::Btrfs => true,
            // Without a journal, names and times reach the disk in any order.
            VolumeKind::Ext4 => self.has_one_journal,
            VolumeKind::Memory | VolumeKind::Other => false,
        }
    }

    /// Whether nothing on it outlives the machine, so that there is nothing to flush.
    pub(crate) fn is_volatile(&self) -> bool {
        self.kind == VolumeKind::Memory
    }

    /// Whether a success of `syncfs` there says nothing.
    pub(crate) fn ignores_syncfs(&self) -> bool {
        IGNORING_SYNCFS.contains(&self.magic)
    }

    /// The inode number in a kernel handle, where it is known where that is (`linux/exportfs.h`,
    /// `fs/xfs/xfs_export.h`, `fs/btrfs/export.h`).
    pub(crate) fn inode_of(&self, kernel: &KernelHandle) -> Option<u64> {
        const INODE32_GENERATION: i32 = 1;
        const XFS_INODE64_GENERATION: i32 = 0x81;
        const BTRFS_WITHOUT_PARENT: i32 = 0x4d;
        let bytes = kernel.as_bytes();
        match (self.kind, kernel.kind) {
            (VolumeKind::Ext4 | VolumeKind::Xfs, INODE32_GENERATION) => {
                Some(u64::from(u32::from_ne_bytes(*bytes.first_chunk()?)))
            }
            (VolumeKind::Xfs, XFS_INODE64_GENERATION)
            | (VolumeKind::Btrfs, BTRFS_WITHOUT_PARENT) => {
                Some(u64::from_ne_bytes(*bytes.first_chunk()?))
            }
            // tmpfs has the generation first.
            (VolumeKind::Memory, INODE32_GENERATION) => {
                Some(u64::from_ne_bytes(*bytes.get(4..)?.first_chunk()?))
            }
            _ => None,
        }
    }
}

/// Whether changes below a directory can be logged: those of its own file system, or, if that is
/// asked for, of one that is mounted beneath. `false` too if that cannot be found out.
pub fn can_log_changes(directory: &Path, crosses_mounts: bool) -> bool {
    let is_loggable = |directory: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let volume = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(from_errno)
            .and_then(|open| {
                let device = attributes::identity(&attributes::stat(&open)?).device;
                Volume::new(&open, device, FlushDomain(0), 0)
            });
        volume.is_ok_and(|volume| volume.can_be_logged())
    };
    is_loggable(directory)
        || (crosses_mounts
            && mount_lines::loggable_points().is_ok_and(|points| {
                points.iter().any(|point| point.starts_with(directory) && is_loggable(point))
            }))
}

/// Whether an ext4 file system has a journal, which it may be made without. Where that cannot be
/// seen, it has none, and more is flushed than may be necessary.
fn has_ext4_journal(device: u64) -> bool {
    let (major, minor) = ((device >> 32) as u32, device as u32);
    std::fs::canonicalize(sysfs_of(rustix::fs::makedev(major, minor)))
        .ok()
        .and_then(|block| {
            let name = block.file_name()?;
            let task = Path::new("/sys/fs/ext4").join(name).join("journal_task");
            std::fs::read_to_string(task).ok()
        })
        .is_some_and(|task| is_journal_task(&task))
}

/// Whether a `journal_task` of sysfs names a process; without a journal it is `<none>`.
fn is_journal_task(text: &str) -> bool {
    text.trim().parse::<u32>().is_ok()
}

/// A number that is the same for the same parts in every run: FNV-1a, then mixed well.
pub(crate) fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in (part.len() as u64).to_le_bytes().iter().chain(*part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}
