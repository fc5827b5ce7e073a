use std::sync::mpsc::{Receiver, sync_channel};

use steadfast_client::WccAttributes;

use super::*;

fn attributes(file_type: FileType, version: u32) -> Attributes {
    let time = Time { seconds: version, nanoseconds: 0 };
    Attributes {
        file_type,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: u64::from(version),
        used: 0,
        rdev: (0, 0),
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

struct Fixture {
    node: Arc<Node>,
    nodes: Nodes,
    times: CacheTimes,
    stale: Receiver<u64>,
}

impl Fixture {
    /// An object of version 1.
    fn new(file_type: FileType) -> Self {
        let times = CacheTimes::default();
        let (sender, stale) = sync_channel(8);
        let root = FileHandle(vec![1]);
        let nodes = Nodes::new(root, &attributes(FileType::Directory, 1), times, sender);
        let handle = FileHandle(vec![2]);
        let node = nodes.enter(&handle, &attributes(file_type, 1), Instant::now());
        Self { node, nodes, times, stale }
    }

    fn told(&self, version: u32) -> Attributes {
        attributes(self.node.file_type, version)
    }

    fn end(&self, changing: Changing, before: u32, after: u32) -> bool {
        let told = self.told(before);
        let before = WccAttributes { size: told.size, mtime: told.mtime, ctime: told.ctime };
        let wcc = Wcc { before: Some(before), after: Some(self.told(after)) };
        self.node.end_change(changing, Some(&wcc), &self.times)
    }

    fn ask(&self, version: u32) -> bool {
        self.node.learn(Some(&self.told(version)), self.node.ask(), &self.times)
    }

    fn drops_pages(&self) -> bool {
        self.stale.try_iter().count() > 0
    }
}

#[test]
fn changes_of_ours_drop_no_pages() {
    let file = Fixture::new(FileType::Regular);
    file.node.open();
    let (one, two) = (file.node.begin_change(), file.node.begin_change());
    assert!(!file.end(two, 2, 3) && !file.end(one, 1, 2) && !file.ask(3));
    assert_eq!(file.node.attributes().size, 3, "the older reply came later");
    assert!(file.node.open() && !file.drops_pages());
}

#[test]
fn a_change_of_others_drops_pages_though_ours_are_in_flight() {
    let file = Fixture::new(FileType::Regular);
    file.node.open();
    let (one, two) = (file.node.begin_change(), file.node.begin_change());
    assert!(!file.end(one, 1, 2) && file.end(two, 3, 4));
    assert!(file.drops_pages() && !file.node.open());
}

#[test]
fn a_change_of_others_drops_pages_though_attributes_have_expired() {
    let file = Fixture::new(FileType::Regular);
    file.node.open();
    file.node.expire();
    let one = file.node.begin_change();
    assert!(file.end(one, 2, 3));
    assert!(file.drops_pages() && !file.node.open());
}

#[test]
fn a_refused_write_drops_pages() {
    let file = Fixture::new(FileType::Regular);
    file.node.open();
    let one = file.node.begin_change();
    file.node.end_change(one, None, &file.times);
    assert!(!file.node.is_fresh() && !file.drops_pages());
    // It has not changed; the pages have data that it has not.
    assert!(!file.ask(1));
    assert!(file.drops_pages() && !file.node.open());
    assert!(!file.ask(1) && !file.drops_pages(), "once");
}

#[test]
fn names_are_forgotten_for_changes_of_others_only() {
    let directory = Fixture::new(FileType::Directory);
    let node = &directory.node;
    let asking = node.ask();
    node.remember(b"a", 7, asking);
    let one = node.begin_change();
    assert!(!directory.end(one, 1, 2));
    node.remember_made(b"b", 8, asking);
    assert_eq!((node.name(b"a"), node.name(b"b")), (Some(7), Some(8)));
    let (old, asking) = (node.ask(), node.ask());
    let one = node.begin_change();
    assert!(directory.end(one, 3, 4));
    assert_eq!((node.name(b"a"), node.name(b"b")), (None, None));
    node.remember_made(b"c", 9, old);
    node.remember(b"c", 9, asking);
    assert_eq!(node.name(b"c"), None, "it may be older than the change");
    // A reply that tells of a change may tell names too.
    let asking = node.ask();
    assert!(node.learn(Some(&directory.told(5)), asking, &directory.times));
    node.remember(b"d", 10, asking);
    assert_eq!(node.name(b"d"), Some(10));
}

#[test]
fn a_link_is_a_change_of_ours_unless_the_content_has_changed() {
    let file = Fixture::new(FileType::Regular);
    file.node.open();
    let mut after = file.told(1);
    after.ctime.seconds = 2;
    let one = file.node.begin_change();
    file.node.settle_change(one, Some(&after), &file.times);
    assert!(!file.drops_pages());
    let one = file.node.begin_change();
    file.node.settle_change(one, Some(&file.told(3)), &file.times);
    assert!(file.drops_pages());
}

#[test]
fn a_dead_handle_lives_again_when_the_server_knows_it() {
    let file = Fixture::new(FileType::Regular);
    file.node.die();
    assert!(file.node.is_dead() && !file.node.is_fresh());
    file.nodes.enter(&file.node.handle(), &file.told(1), Instant::now());
    assert!(!file.node.is_dead());
}

#[test]
fn a_file_system_is_asked_about_by_what_is_left_of_it() {
    let fixture = Fixture::new(FileType::Regular);
    let enter = |handle: u8, file_type, fsid| {
        let told = Attributes { fsid, fileid: u64::from(handle), ..attributes(file_type, 1) };
        fixture.nodes.enter(&FileHandle(vec![handle]), &told, Instant::now())
    };
    let file = enter(3, FileType::Regular, 7);
    let directory = enter(4, FileType::Directory, 7);
    let number = |fsid| fixture.nodes.any_of(fsid).map(|node| node.number);
    assert_eq!(number(7), Some(directory.number));
    directory.die();
    assert_eq!(number(7), Some(file.number));
    file.die();
    assert_eq!(number(7), None);
    assert_eq!(number(1), Some(ROOT));
}
