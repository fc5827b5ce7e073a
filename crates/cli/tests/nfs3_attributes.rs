//! Process ring: GETATTR, SETATTR, ACCESS and NFSACL against the real program.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod nfs3_support;

use nfs3_support::{Fixture, assert_wcc, failure, is_root, status};
use steadfast_client::arguments::access;
use steadfast_client::nfsacl::AclEntry;
use steadfast_client::{FileType, Identity, NfsStat3, SetTime3, Settings, StableHow, Time};

#[test]
fn the_root_is_a_directory_with_every_attribute() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let attributes = f.attributes(&root);
    assert_eq!(attributes.file_type, FileType::Directory);
    assert_eq!(attributes.mode & 0o7777, 0o1777);
    assert_eq!(attributes.nlink, 2);
    let disk = std::fs::metadata(f.on_disk(".")).unwrap();
    assert_eq!(attributes.fileid, std::os::unix::fs::MetadataExt::ino(&disk));
    assert!(attributes.mtime.seconds > 1_600_000_000);
}

#[test]
fn settings_are_exact_and_wcc_tells_both_sides() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let before = f.attributes(&file);
    let atime = Time { seconds: 1_000_000_001, nanoseconds: 999_999_999 };
    let mtime = Time { seconds: 3_000_000_000, nanoseconds: 1 };
    let settings = Settings::times(atime, mtime).with(|set| {
        set.mode = Some(0o4751);
        set.size = Some(10_000_000_000);
    });
    let wcc = f.client.setattr(&file, &settings, None).unwrap();
    assert_wcc(&wcc, &before);
    let after = f.attributes(&file);
    assert_eq!(wcc.after.as_ref(), Some(&after));
    assert_eq!((after.mode & 0o7777, after.size), (0o4751, 10_000_000_000));
    assert_eq!((after.atime, after.mtime), (atime, mtime));
    assert!(after.ctime > before.ctime);
    assert!(after.used < 1 << 20, "a hole takes no space");
}

#[test]
fn the_servers_time_can_be_asked_for() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let long_ago = Time { seconds: 1, nanoseconds: 2 };
    f.client.setattr(&file, &Settings::times(long_ago, long_ago), None).unwrap();
    let settings = Settings::default().with(|set| set.mtime = SetTime3::SetToServerTime);
    f.client.setattr(&file, &settings, None).unwrap();
    let after = f.attributes(&file);
    assert_eq!(after.atime, long_ago);
    assert!(after.mtime.seconds > 1_600_000_000);
}

#[test]
fn a_guard_must_be_the_ctime() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let before = f.attributes(&file);
    let other = Time { nanoseconds: before.ctime.nanoseconds ^ 1, ..before.ctime };
    let refused = failure(f.client.setattr(&file, &Settings::mode(0o600), Some(other)));
    assert_eq!(refused.status, NfsStat3::NotSync);
    assert!(refused.wcc.after.is_some());
    assert_eq!(f.attributes(&file), before);
    f.client.setattr(&file, &Settings::mode(0o600), Some(before.ctime)).unwrap();
    assert_eq!(f.attributes(&file).mode & 0o7777, 0o600);
}

#[test]
fn only_the_owner_changes_and_only_root_gives_away() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let file = f.file("a");
    f.client.setattr(&file, &Settings::owner(Some(1000), Some(1000)), None).unwrap();
    let attributes = f.attributes(&file);
    assert_eq!((attributes.uid, attributes.gid), (1000, 1000));

    f.client.set_identity(Identity::user(2000, 2000));
    let refused = failure(f.client.setattr(&file, &Settings::mode(0o777), None));
    assert_eq!(refused.status, NfsStat3::Perm);
    assert!(refused.wcc.after.is_some());
    assert_eq!(status(f.client.setattr(&file, &Settings::size(0), None)), NfsStat3::Acces);

    f.client.set_identity(Identity::Sys { uid: 1000, gid: 1000, gids: vec![3000] });
    f.client.setattr(&file, &Settings::owner(None, Some(3000)), None).unwrap();
    assert_eq!(f.attributes(&file).gid, 3000);
    let give_away = Settings::owner(Some(2000), None);
    assert_eq!(status(f.client.setattr(&file, &give_away, None)), NfsStat3::Perm);
    assert_eq!(
        status(f.client.setattr(&file, &Settings::owner(None, Some(4000)), None)),
        NfsStat3::Perm
    );
}

#[test]
fn a_truncation_and_a_write_drop_set_user_id() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let settings = Settings::owner(Some(1000), Some(1000)).with(|set| set.mode = None);
    f.client.setattr(&file, &settings, None).unwrap();
    f.client.setattr(&file, &Settings::mode(0o6777), None).unwrap();
    f.client.set_identity(Identity::user(2000, 2000));
    f.client.write(&file, 0, b"x", StableHow::FileSync).unwrap();
    assert_eq!(f.attributes(&file).mode & 0o6000, 0);
}

#[test]
fn a_directory_has_no_size_to_set() {
    let mut f = Fixture::new();
    let directory = f.directory("d");
    let got = status(f.client.setattr(&directory, &Settings::size(0), None));
    assert!(matches!(got, NfsStat3::IsDir | NfsStat3::Inval), "{got:?}");
}

#[test]
fn nanoseconds_beyond_a_second_are_refused_or_bounded() {
    let mut f = Fixture::new();
    let file = f.file("a");
    // The last two mean "now" and "leave it" to the kernel: they must not get there.
    for nanoseconds in [1_000_000_000, u32::MAX, 0x3fff_ffff, 0x3fff_fffe] {
        let wrong = Time { seconds: 1, nanoseconds };
        match f.client.setattr(&file, &Settings::times(wrong, wrong), None) {
            Ok(_) => {
                let bounded = Time { seconds: 1, nanoseconds: 999_999_999 };
                let after = f.attributes(&file);
                assert_eq!((after.atime, after.mtime), (bounded, bounded));
            }
            Err(error) => assert_eq!(error.status(), Some(NfsStat3::Inval)),
        }
    }
}

#[test]
fn access_follows_mode_owner_and_groups() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let file = f.file("a");
    let settings = Settings::owner(Some(1000), Some(3000)).with(|set| set.mode = Some(0o640));
    f.client.setattr(&file, &settings, None).unwrap();
    let mut granted = |identity| {
        f.client.set_identity(identity);
        let told = f.client.access(&file, access::ALL).unwrap();
        assert!(told.attributes.is_some());
        told.granted
    };
    let write = access::MODIFY | access::EXTEND;
    assert_eq!(granted(Identity::user(1000, 1)), access::READ | write);
    let member = Identity::Sys { uid: 2000, gid: 2000, gids: vec![1, 3000] };
    assert_eq!(granted(member), access::READ);
    assert_eq!(granted(Identity::user(2000, 2000)), 0);
    assert_eq!(granted(Identity::root()), access::READ | write);
    let root = f.root.clone();
    let told = f.client.access(&root, access::ALL).unwrap().granted;
    let directory = access::READ | access::LOOKUP | write | access::DELETE;
    assert_eq!(told & directory, directory);
    let asked = f.client.access(&root, access::LOOKUP).unwrap().granted;
    assert_eq!(asked, access::LOOKUP, "only what was asked for is told");
    f.client.set_identity(Identity::None);
    let refused = f.client.access(&file, access::ALL).map(|told| told.granted);
    assert_eq!(status(refused), NfsStat3::Acces, "a share is sec=sys unless it says otherwise");
}

#[test]
fn squashed_root_owns_nothing_but_what_it_makes() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::with(&["--anonuid", "1234", "--anongid", "2345"]);
    let file = f.file("a");
    let attributes = f.attributes(&file);
    assert_eq!((attributes.uid, attributes.gid), (1234, 2345));
    std::fs::write(f.on_disk("secret"), "x").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(f.on_disk("secret"), mode).unwrap();
    let root = f.root.clone();
    let secret = f.client.lookup(&root, b"secret").unwrap().handle;
    assert_eq!(status(f.client.read(&secret, 0, 10)), NfsStat3::Acces);
    assert_eq!(status(f.client.setattr(&secret, &Settings::mode(0o666), None)), NfsStat3::Perm);
}

#[test]
fn acls_are_set_told_and_obeyed() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let file = f.file("a");
    let entry = |tag, id, permissions| AclEntry { tag, id, permissions };
    let access =
        [entry(1, 0, 6), entry(2, 1234, 4), entry(4, 0, 0), entry(0x10, 0, 4), entry(0x20, 0, 0)];
    f.client.setacl(&file, 1, &access, &[]).unwrap();
    let told = f.client.getacl(&file).unwrap();
    assert!(told.attributes.is_some());
    let mut pairs: Vec<_> =
        told.access.iter().map(|entry| (entry.tag, entry.permissions)).collect();
    pairs.sort_unstable();
    assert_eq!(pairs, [(1, 6), (2, 4), (4, 0), (0x10, 4), (0x20, 0)]);
    assert!(told.default.is_empty());
    f.client.set_identity(Identity::user(1234, 1));
    f.client.read(&file, 0, 1).unwrap();
    f.client.set_identity(Identity::user(1235, 1));
    assert_eq!(status(f.client.read(&file, 0, 1)), NfsStat3::Acces);

    f.client.set_identity(Identity::root());
    let directory = f.directory("d");
    let default = access.map(|entry| AclEntry { tag: entry.tag | 0x1000, ..entry });
    f.client.setacl(&directory, 5, &access, &default).unwrap();
    let told = f.client.getacl(&directory).unwrap();
    assert_eq!((told.access.len(), told.default.len()), (5, 5));
}
