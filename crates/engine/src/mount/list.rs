//! Who has mounted what.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use parking_lot::Mutex;

/// Most mounts remembered for DUMP, and most bytes of its reply. The list is for people to look
/// at; nothing depends on it.
const MOUNTS_MAX: usize = 64_000;
const MOUNT_SHARDS: usize = 32;
const DUMP_BYTES_MAX: usize = 256 << 10;
/// What an entry of that reply has beside its path, at the least.
const DUMP_ENTRY_BYTES: usize = 24;

/// Who has mounted what, as far as clients told (DUMP). A client's mounts are in one shard, so
/// that a storm of clients does not wait for one lock.
#[derive(Default)]
pub(crate) struct MountList([Mutex<Mounts>; MOUNT_SHARDS]);

/// Clients with the paths that they have mounted.
#[derive(Default)]
struct Mounts {
    by_client: BTreeMap<IpAddr, BTreeSet<Box<[u8]>>>,
    count: usize,
}

impl MountList {
    fn shard(&self, client: IpAddr) -> &Mutex<Mounts> {
        let last_byte = match client {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let [first, ..] = &self.0;
        self.0.get(usize::from(last_byte) % MOUNT_SHARDS).unwrap_or(first)
    }

    pub(super) fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.shard(client).lock();
        if mounts.count < MOUNTS_MAX / MOUNT_SHARDS {
            let is_new = mounts.by_client.entry(client).or_default().insert(path.into());
            mounts.count += usize::from(is_new);
        }
    }

    pub(super) fn remove(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.shard(client).lock();
        let Some(paths) = mounts.by_client.get_mut(&client) else { return };
        let was_there = paths.remove(path);
        if paths.is_empty() {
            mounts.by_client.remove(&client);
        }
        mounts.count -= usize::from(was_there);
    }

    pub(super) fn remove_all(&self, client: IpAddr) {
        let mut mounts = self.shard(client).lock();
        let gone = mounts.by_client.remove(&client);
        mounts.count -= gone.map_or(0, |paths| paths.len());
    }

    /// Some of them, in the order of the clients' addresses: no more bytes than a reply takes.
    pub(super) fn some(&self) -> BTreeMap<IpAddr, Vec<Box<[u8]>>> {
        let mut bytes = 0;
        let mut some = BTreeMap::new();
        for shard in &self.0 {
            for (client, paths) in &shard.lock().by_client {
                for path in paths {
                    bytes += path.len() + DUMP_ENTRY_BYTES;
                    if bytes > DUMP_BYTES_MAX {
                        return some;
                    }
                    some.entry(*client).or_insert_with(Vec::new).push(path.clone());
                }
            }
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_listed_by_client_until_they_are_taken_back() {
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let list = MountList::default();
        for (client, path) in [(other, "/b"), (one, "/b"), (one, "/a"), (one, "/a")] {
            list.add(client, path.as_bytes());
        }
        let listed = |list: &MountList| -> Vec<(IpAddr, Vec<u8>)> {
            let all = list.some().into_iter();
            all.flat_map(|(of, paths)| paths.into_iter().map(move |path| (of, path.into_vec())))
                .collect()
        };
        let entry = |client, path: &str| (client, path.as_bytes().to_vec());
        assert_eq!(listed(&list), [entry(one, "/a"), entry(one, "/b"), entry(other, "/b")]);
        list.remove(one, b"/b");
        list.remove(one, b"/c");
        list.remove(other, b"/b");
        list.remove(other, b"/b");
        assert_eq!(listed(&list), [entry(one, "/a")]);
        // As many as there is room for, of one client too; what goes makes room.
        let room = MOUNTS_MAX / MOUNT_SHARDS;
        for path in 0..room {
            list.add(one, format!("/{path:05}").as_bytes());
        }
        assert_eq!(list.shard(one).lock().count, room);
        list.remove_all(one);
        list.remove_all(one);
        assert_eq!(list.shard(one).lock().count, 0);
        list.add(one, b"/c");
        assert_eq!(listed(&list), [entry(one, "/c")]);
    }
}
