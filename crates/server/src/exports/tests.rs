use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use steadfast_posixfs::StorageOptions;
use steadfast_shares::ClientPattern;

use std::path::PathBuf;

use super::*;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct Place {
    directory: tempfile::TempDir,
    exports: Exports,
    table: Arc<ExportTable>,
}

/// What the last change made.
struct Made {
    table: Arc<ExportTable>,
    faults: Vec<String>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("first")).expect("made");
        let storage = Storage::new(StorageOptions::default());
        let exports =
            Exports::new(storage, &directory.path().join("state"), false, OwnFiles::default());
        Self { directory, exports, table: Arc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A share for everybody as the user who runs the tests, so that it is served whatever he
    /// may do.
    fn share(&self, id: u64, name: &str, is_read_only: bool) -> Arc<Share> {
        let (anonymous_uid, anonymous_gid) = process::effective_ids();
        let rights = Rights {
            is_read_only,
            squash: Squash::All,
            anonymous_uid,
            anonymous_gid,
            ..Rights::default()
        };
        let rule = ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) };
        Arc::new(Share {
            id: ShareId(id),
            path: if id == 1 { "/share".into() } else { format!("/share{id}").into() },
            elsewhere: Some(self.path(name).into()),
            crosses_mounts: false,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: Arc::new(vec![rule].into()),
        })
    }

    /// Builds one share.
    fn build(&mut self, name: &str, is_read_only: bool) -> Made {
        let place = Some("file:1:2".to_owned());
        let wanted = [WantedShare { share: self.share(1, name, is_read_only), place }];
        let (table, built) = self.exports.build(&self.table, &wanted);
        self.table = Arc::new(table);
        let faults = built.faults.into_iter().map(|fault| fault.what).collect();
        Made { table: Arc::clone(&self.table), faults }
    }
}

/// The inode number that clients see as the share's root, and whether it is read-only.
fn served(built: &Made) -> (u64, bool) {
    let export = built.table.by_id(ShareId(1)).expect("served");
    let root = export.storage.open().expect("opened").root().expect("a root");
    let rights = export.share.rights(CLIENT).expect("rights");
    (root.attr.fileid, rights.is_read_only)
}

fn inode(path: &Path) -> u64 {
    path.metadata().expect("metadata").ino()
}

#[test]
fn an_open_tree_is_used_again() {
    let mut place = Place::new();
    place.build("first", false);
    let tree = Arc::clone(&place.exports.served[&ShareId(1)].tree);
    let built = place.build("first", true);
    assert!(built.faults.is_empty(), "{:?}", built.faults);
    assert!(Arc::ptr_eq(&tree, &place.exports.served[&ShareId(1)].tree));
    assert!(served(&built).1);
}

#[test]
fn shares_are_served_before_they_were_looked_at() {
    let mut place = Place::new();
    place.exports.serves_all_users = true;
    std::os::unix::fs::symlink(place.path("first"), place.path("link")).expect("linked");
    let wanted: Vec<_> = [(1, "first"), (2, "link"), (3, "missing")]
        .map(|(id, name)| WantedShare { share: place.share(id, name, false), place: None })
        .into();
    let (table, not_begun) = place.exports.begin(wanted.clone());
    assert!(not_begun.is_empty());
    let begun = Arc::new(table);
    let storage = |table: &ExportTable, id| table.by_id(ShareId(id)).map(|e| e.storage.clone());
    let storages = [1, 2, 3].map(|id| storage(&begun, id).expect("in the table"));
    assert!(storages.iter().all(|storage| storage.opened().is_none()));
    assert!(wanted.iter().all(|wanted| place.exports.is_to_be_looked_at(&wanted.share)));
    // What is not there cannot be used, and the others can.
    assert!(storages[2].open().is_err());
    if place.exports.looker().look(&place.share(1, "first", false)).expect("looked at").mode
        == Mode::StoredHandles
    {
        println!("skipped: needs the kernel's file handles");
        return;
    }
    // That a client has used it does not make up for our look at it.
    assert!(storages[0].open().is_ok());
    assert!(place.exports.is_to_be_looked_at(&wanted[0].share));
    let (table, built) = place.exports.change(&begun, &[], &wanted);
    assert!(wanted.iter().all(|wanted| !place.exports.is_to_be_looked_at(&wanted.share)));
    // The first is as it was; the second is known by its directory.
    assert!(Arc::ptr_eq(&storage(&table, 1).expect("served"), &storages[0]));
    assert!(Arc::ptr_eq(&storage(&table, 2).expect("served"), &storages[1]));
    let canonical = place.path("first").canonicalize().expect("canonical");
    let second = table.by_id(ShareId(2)).expect("served");
    assert_eq!(second.share.directory(), canonical);
    assert!(storage(&table, 3).is_none());
    let [fault] = built.faults.as_slice() else { panic!("{:?}", built.faults) };
    assert!(fault.what.contains("does not exist"), "{}", fault.what);
    // Once more changes nothing.
    let table = Arc::new(table);
    let (_, built) = place.exports.change(&table, &[], &wanted[..2]);
    assert!(!built.is_change() && built.faults.is_empty());
}

#[test]
fn who_cannot_serve_all_users_looks_first() {
    let mut place = Place::new();
    let wanted = vec![WantedShare { share: place.share(1, "first", false), place: None }];
    let (table, not_begun) = place.exports.begin(wanted);
    assert_eq!((table.len(), not_begun.len()), (0, 1));
}

#[test]
fn a_share_whose_directory_is_gone_serves_on_by_the_new_rules() {
    let mut place = Place::new();
    let number = inode(&place.path("first"));
    assert_eq!(served(&place.build("first", false)), (number, false));
    std::fs::rename(place.path("first"), place.path("elsewhere")).expect("renamed");
    for _ in 0..2 {
        let built = place.build("first", true);
        assert_eq!(served(&built), (number, true));
        let [fault] = built.faults.as_slice() else { panic!("{:?}", built.faults) };
        assert!(fault.starts_with("file:1:2: share \"/share\" cannot be opened again"), "{fault}");
        assert!(fault.contains("does not exist") && fault.contains("restart"), "{fault}");
    }
    // It is back: nothing to complain about.
    std::fs::rename(place.path("elsewhere"), place.path("first")).expect("renamed");
    let built = place.build("first", false);
    assert_eq!((served(&built), built.faults), ((number, false), Vec::new()));
}

#[test]
fn rules_meant_for_another_directory_do_not_open_this_one() {
    let mut place = Place::new();
    let number = inode(&place.path("first"));
    // It is in use.
    assert_eq!(served(&place.build("first", true)), (number, true));
    let built = place.build("missing", false);
    assert_eq!(served(&built), (number, true));
    assert!(built.faults[0].contains("with the rules as they were"), "{:?}", built.faults);
    // Once it is there it is served.
    std::fs::create_dir(place.path("missing")).expect("made");
    let built = place.build("missing", false);
    let kept = place.exports.served[&ShareId(1)].tree.mode().expect("looked at");
    // A store of handles cannot be opened twice, so then it does take a restart.
    if kept == Mode::KernelHandles {
        assert_eq!(served(&built), (inode(&place.path("missing")), false));
    }
}

#[test]
fn a_share_that_never_was_open_is_left_out() {
    let mut place = Place::new();
    let built = place.build("missing", false);
    assert!(built.table.is_empty());
    assert!(built.faults[0].starts_with("file:1:2: share \"/share\" is not served: "));
}

#[test]
fn who_used_a_share_that_is_idle_may_come_back() {
    let mut place = Place::new();
    place.exports.serves_all_users = true;
    let wanted = [(1, "first"), (2, "second")]
        .map(|(id, name)| WantedShare { share: place.share(id, name, false), place: None });
    let _ = std::fs::create_dir(place.path("second"));
    let (table, built) = place.exports.build(&place.table, &wanted);
    assert!(built.faults.is_empty(), "{:?}", built.faults);
    place.table = Arc::new(table);
    if place.exports.served[&ShareId(2)].tree.mode() != Some(Mode::KernelHandles) {
        println!("skipped: needs the kernel's file handles");
        return;
    }
    let storage =
        |place: &Place, id| Arc::clone(&place.table.by_id(ShareId(id)).expect("served").storage);
    storage(&place, 2).open().expect("opened");
    let let_go = |place: &mut Place, is_faulty: bool| {
        let now = Arc::clone(&place.table);
        place.exports.let_idle_go(&now, 2, |id| is_faulty && id == ShareId(2))
    };
    // It was used; then it is idle once; then it might not be opened again.
    assert!(let_go(&mut place, false).is_none());
    assert!(let_go(&mut place, false).is_none());
    assert!(let_go(&mut place, true).is_none());
    assert!(let_go(&mut place, false).is_none());
    let (table, shares) = let_go(&mut place, false).expect("idle");
    assert_eq!((shares, table.len()), (1, 2));
    place.table = Arc::new(table);
    assert!(storage(&place, 2).opened().is_none());
    assert!(storage(&place, 1).opened().is_some(), "one of each file system stays open");
    assert!(let_go(&mut place, false).is_none());
    // Its directory is away for a moment: who has it mounted is not told that it is gone.
    std::fs::rename(place.path("second"), place.path("elsewhere")).expect("renamed");
    let (table, built) = place.exports.build(&place.table, &wanted);
    assert_eq!((table.len(), built.faults.len()), (2, 1));
    place.table = Arc::new(table);
    std::fs::rename(place.path("elsewhere"), place.path("second")).expect("renamed");
    storage(&place, 2).open().expect("opened again");
}
