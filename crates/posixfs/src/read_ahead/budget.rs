//! How much the streams of all files may have asked ahead together.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::streams::WINDOW_BYTES_MIN;

/// Of what is left, a window gets at most this part, so that there is always room for another
/// stream: n streams come to rest at about `1 / (n + WINDOW_SHARES)` of the budget each.
const WINDOW_SHARES: u64 = 16;

/// The memory that this process may use, in bytes: the machine's, or what `memory.max` of its control groups leaves
/// it, to which what it reads is charged.
pub(super) fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    bounded_by_groups(machine, Path::new("/sys/fs/cgroup"), Path::new(own))
}

fn bounded_by_groups(machine: u64, root: &Path, own: &Path) -> u64 {
    let limit = |group: &Path| {
        let text = std::fs::read_to_string(root.join(group).join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    own.ancestors().filter_map(limit).fold(machine, u64::min)
}

/// The sum of all windows is bounded by it, however many files and streams there are: what is
/// asked ahead for thousands of clients must not push itself out of memory before it is read.
#[derive(Debug)]
pub(crate) struct WindowBudget {
    left: AtomicU64,
}

impl WindowBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: AtomicU64::new(bytes) }
    }

    /// Whether a stream could get a window at all.
    pub(super) fn has_room(&self) -> bool {
        self.left.load(Ordering::Relaxed) >= WINDOW_BYTES_MIN
    }

    /// Turns a window of `window` bytes (0: none yet) into one of `wanted`, or of what can be
    /// had, which may be less than there was, and is 0 only if there was none.
    pub(super) fn change(&self, window: u64, wanted: u64) -> u64 {
        let mut granted = window;
        let changed = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            let whole = left.saturating_add(window);
            granted = wanted.min(whole / WINDOW_SHARES).max(WINDOW_BYTES_MIN);
            whole.checked_sub(granted)
        });
        if changed.is_ok() { granted } else { window }
    }

    pub(super) fn give_back(&self, window: u64) {
        self.left.fetch_add(window, Ordering::Relaxed);
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let own = Path::new("a/b");
        std::fs::create_dir_all(root.path().join(own)).unwrap();
        let set = |group: &str, text: &str| {
            std::fs::write(root.path().join(group).join("memory.max"), text).unwrap();
        };
        assert_eq!(bounded_by_groups(1000, root.path(), own), 1000);
        set("a/b", "max\n");
        assert_eq!(bounded_by_groups(1000, root.path(), own), 1000);
        set("a", "300\n");
        assert_eq!(bounded_by_groups(1000, root.path(), own), 300);
        set("a/b", "200\n");
        assert_eq!(bounded_by_groups(1000, root.path(), own), 200);
        assert!((1 << 20..=1 << 50).contains(&memory_bytes()));
    }
}
