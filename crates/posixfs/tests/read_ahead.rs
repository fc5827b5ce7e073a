//! Unit ring, on real file systems. What is asked ahead of reads of real files, by the counters that storage
//! keeps: on file systems of their own where root may make them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustix::fs::Advice;
use steadfast_posixfs::{ReadAheadTotals, Storage, Tree, TreeOptions};
use steadfast_sys::file::cached_pages;
use steadfast_vfs::{
    Caller, Cred, FileRange, FileSystem, FsError, ReadPlace, StorageHandle, Waiting,
};
use support::{Place, cred, mounted, name, plain};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 32 * MIB;
/// How often the kernel may take away memory meanwhile.
const PASSES_IN_MEMORY_MAX: usize = 10;

/// A file that is not in memory, and how it is read.
struct Reader {
    storage: Arc<Storage>,
    tree: Tree,
    cred: Cred,
    file: StorageHandle,
    path: std::path::PathBuf,
    came_again: usize,
    places: usize,
}

impl Reader {
    /// `None`, with the reason printed, where files cannot be put out of memory.
    fn new(place: &Place) -> Option<Self> {
        let reader = Self::open(place);
        let is_cold = reader.drop_cache();
        if !is_cold {
            println!("{}: skipped: files stay in memory", place.name);
        }
        is_cold.then_some(reader)
    }

    /// As the file was written just now.
    fn open(place: &Place) -> Self {
        let path = place.directory.join("file");
        let contents: Vec<u8> =
            (0..FILE_BYTES / 8).flat_map(|word| (word * 8).to_be_bytes()).collect();
        std::fs::write(&path, contents).unwrap();
        // Whatever the umask is: who may write it is told more by the kernel than others.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let storage = support::storage();
        let options = TreeOptions { share_id: 7, ..TreeOptions::default() };
        let tree = Tree::open(&place.directory, &options, &storage).unwrap();
        let cred = cred(0, 0, &[]);
        let caller = Caller::new(&cred, Waiting::Allowed);
        let root = tree.root().unwrap().handle;
        let file = tree.lookup(&caller, &root, name("file")).result.unwrap().handle;
        Self { storage, tree, cred, file, path, came_again: 0, places: 0 }
    }

    fn drop_cache(&self) -> bool {
        let file = File::open(&self.path).unwrap();
        file.sync_all().unwrap();
        for _ in 0..50 {
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            match cached_pages(&file, 0, FILE_BYTES) {
                Ok(0) => return true,
                Ok(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
                Err(_) => return false,
            }
        }
        false
    }

    /// As the engine reads: without waiting, and again if that was not enough.
    fn read(&mut self, offset: u64, count: u64, may_be_place: bool) {
        let mut data = Vec::new();
        let mut attempt = |waiting| {
            let caller = Caller::new(&self.cred, waiting);
            let count = count as u32;
            self.tree.read(&caller, &self.file, offset, count, may_be_place, &mut data)
        };
        let done = match attempt(Waiting::Never) {
            Err(FsError::WouldBlock) => {
                self.came_again += 1;
                attempt(Waiting::Allowed).unwrap()
            }
            done => done.unwrap(),
        };
        assert_eq!(u64::from(done.count), count.min(FILE_BYTES - offset));
        if let ReadPlace::File(FileRange { file, offset: at, length }) = done.place {
            assert_eq!((at, length, data.len()), (offset, done.count, 0));
            let length = length as usize;
            steadfast_sys::file::append_read(file.as_fd(), &mut data, length, at, true).unwrap();
            self.places += 1;
        }
        assert_eq!(data.len() as u64, u64::from(done.count));
        for (index, word) in data.chunks_exact(8).enumerate() {
            assert_eq!(word, (offset + index as u64 * 8).to_be_bytes(), "at {offset} + {index}");
        }
    }

    /// Reads all in order, and says whether all was in memory whenever that was looked at.
    fn read_all_in_memory(&mut self, length: u64, may_be_place: bool) -> bool {
        let file = File::open(&self.path).unwrap();
        let pages = FILE_BYTES / rustix::param::page_size() as u64;
        let is_in_memory = || cached_pages(&file, 0, FILE_BYTES).unwrap() >= pages;
        let mut stayed = true;
        for offset in (0..FILE_BYTES).step_by(length as usize) {
            stayed &= is_in_memory();
            self.read(offset, length, may_be_place);
        }
        stayed && is_in_memory()
    }

    fn totals(&self) -> ReadAheadTotals {
        self.storage.read_ahead()
    }
}

/// Makes the kernel's own read-ahead on a file system's device 128 KiB, which is usual. Where it
/// reads ahead megabytes there is nothing left to ask for.
fn sets_usual_read_ahead(place: &Place) -> bool {
    let device = rustix::fs::stat(&place.directory).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::write(format!("/sys/dev/block/{major}:{minor}/queue/read_ahead_kb"), "128").is_ok()
}

/// Runs a test on each file system, and says whether all that is read ahead is asked for by us.
fn on_all(mut test: impl FnMut(&mut Reader, bool)) {
    let places = [Some(plain()), mounted("ext4", 96), mounted("xfs", 320), mounted("btrfs", 160)];
    for place in places.into_iter().flatten() {
        let is_ours = matches!(place.name, "ext4" | "xfs") && sets_usual_read_ahead(&place);
        println!("on {}, counts are {}", place.name, if is_ours { "ours" } else { "the kernel's" });
        if let Some(mut reader) = Reader::new(&place) {
            test(&mut reader, is_ours);
        }
    }
}

#[test]
fn a_stream_in_order_is_asked_for_once_and_nothing_when_it_is_in_memory() {
    on_all(|reader, is_ours| {
        for (length, may_be_place) in [(65_536, false), (65_536, true), (MIB, true)] {
            assert!(reader.drop_cache());
            let before = reader.totals();
            reader.came_again = 0;
            for offset in (0..FILE_BYTES).step_by(length as usize) {
                reader.read(offset, length, may_be_place);
            }
            let after = reader.totals();
            let (asks, bytes) = (after.asks - before.asks, after.bytes - before.bytes);
            // All but the first reads, unless the disk is so fast that next to none had to wait:
            // then the kernel alone was quick enough, and nothing is to be asked for.
            let is_needed = is_ours && reader.came_again > 8;
            let least = if is_needed { FILE_BYTES / 2 } else { 0 };
            assert!((least..=FILE_BYTES).contains(&bytes), "{bytes} bytes");
            assert!(asks <= 2 * FILE_BYTES / MIB + 8, "{asks} asks");
            assert_eq!(after.lost, before.lost);
            let asked = |totals: ReadAheadTotals| (totals.asks, totals.bytes, totals.lost);
            // A machine that is short of memory takes it away.
            let stayed_in_memory = (0..PASSES_IN_MEMORY_MAX).any(|_| {
                let before = asked(reader.totals());
                let stayed = reader.read_all_in_memory(length, may_be_place);
                let after = asked(reader.totals());
                assert!(
                    !stayed || after == before,
                    "what is in memory was asked for: {after:?}, {before:?} before"
                );
                stayed
            });
            assert!(stayed_in_memory, "the machine does not keep {FILE_BYTES} bytes in memory");
        }
        assert!(reader.places > 0);
    });
}

#[test]
fn reads_out_of_order_are_a_stream_too() {
    on_all(|reader, is_ours| {
        let mut order: Vec<(u64, u64)> =
            (0..FILE_BYTES / 65_536).map(|index| (index + index * 7 % 9, index)).collect();
        order.sort_unstable();
        for (_, index) in order {
            reader.read(index * 65_536, 65_536, index % 2 == 0);
        }
        println!("{:?} came again {}", reader.totals(), reader.came_again);
        let ReadAheadTotals { bytes, .. } = reader.totals();
        let least = if is_ours && reader.came_again > 8 { FILE_BYTES / 2 } else { 0 };
        assert!((least..=FILE_BYTES).contains(&bytes), "{bytes} bytes");
    });
}

#[test]
fn several_streams_of_one_file_are_all_asked_for() {
    on_all(|reader, is_ours| {
        let part = FILE_BYTES / 4;
        for offset in (0..part).step_by(65_536) {
            for stream in 0..4 {
                reader.read(stream * part + offset, 65_536, false);
            }
        }
        println!("{:?} came again {}", reader.totals(), reader.came_again);
        let ReadAheadTotals { bytes, .. } = reader.totals();
        // The first ones run a little into the parts of the next, where it is in memory then.
        let least = if is_ours && reader.came_again > 16 { FILE_BYTES / 2 } else { 0 };
        assert!((least..=FILE_BYTES + 4 * MIB).contains(&bytes), "{bytes} bytes");
    });
}

#[test]
fn random_reads_and_strides_ask_for_nothing() {
    on_all(|reader, _| {
        let pages = FILE_BYTES / 4096;
        for index in 0..500 {
            reader.read(index * 2741 % pages * 4096, 4096, false);
        }
        assert!(reader.drop_cache());
        for offset in (0..FILE_BYTES).step_by(262_144) {
            reader.read(offset, 65_536, true);
        }
        println!("{:?} came again {}", reader.totals(), reader.came_again);
        let ReadAheadTotals { bytes, .. } = reader.totals();
        assert!(bytes <= MIB, "{bytes} bytes");
    });
}

#[test]
fn nothing_is_asked_of_a_file_system_in_memory() {
    let Some(place) = mounted("tmpfs", 64) else { return };
    let reader = Reader::open(&place);
    let before = reader.totals();
    // Of a file on a disk these would be noted, since they may wait.
    let caller = Caller::new(&reader.cred, Waiting::Allowed);
    let mut data = Vec::new();
    for offset in (0..FILE_BYTES).step_by(65_536) {
        data.clear();
        let done =
            reader.tree.read(&caller, &reader.file, offset, 65_536, false, &mut data).unwrap();
        assert_eq!((done.count, data.len()), (65_536, 65_536));
    }
    assert_eq!(reader.totals(), before);
}

/// Since Linux 6.14 only who may write a file is told what of it is in memory.
#[test]
fn a_thread_that_was_another_user_asks_as_the_server() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root serves as others");
        return;
    }
    let place = plain();
    let Some(mut reader) = Reader::new(&place) else { return };
    std::fs::create_dir(place.directory.join("theirs")).unwrap();
    std::os::unix::fs::chown(place.directory.join("theirs"), Some(4321), Some(4321)).unwrap();
    let change = |reader: &Reader| {
        let user = support::User::new(&reader.tree, 4321, 4321);
        let directory = user.lookup(&user.root(), "theirs").unwrap().handle;
        user.create(&directory, "file", 0o600).unwrap();
        // Nothing is done as the server after this.
        user.remove(&directory, "file").unwrap();
    };
    for offset in (0..FILE_BYTES).step_by(MIB as usize) {
        change(&reader);
        reader.read(offset, MIB, true);
    }
    assert_eq!(reader.totals().lost, 0);
    // A machine that is short of memory takes it away.
    let all_were_places = (0..PASSES_IN_MEMORY_MAX).any(|_| {
        reader.places = 0;
        for offset in (0..FILE_BYTES).step_by(MIB as usize) {
            change(&reader);
            reader.read(offset, MIB, true);
        }
        reader.places as u64 == FILE_BYTES / MIB
    });
    assert!(all_were_places, "all is in memory");
}
