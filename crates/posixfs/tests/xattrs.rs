//! Unit ring, on real file systems. Extended attributes of users, and the modes of new objects, on every
//! file system that can be had here.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use steadfast_vfs::{
    AccessMask, Acl, AclEntry, AclTag, CreateHow, FileSystem, FsError, SetAttr, SetXattrHow,
    StorageHandle,
};
use support::{User, name, places, settle, settle_counting, with_mode};

fn on_all(test: impl Fn(&User<'_>, &support::Place)) {
    for place in places() {
        println!("on {}", place.name);
        let tree = support::open(&place.directory);
        let user = User::new(&tree, 0, 0);
        test(&user, &place);
    }
}

fn set(
    user: &User<'_>,
    object: &StorageHandle,
    name: &[u8],
    value: &[u8],
    how: SetXattrHow,
) -> Result<(), FsError> {
    settle(user.tree.set_xattr(&user.caller(), object, name, value, how)).result
}

fn get(user: &User<'_>, object: &StorageHandle, name: &[u8]) -> Result<Vec<u8>, FsError> {
    user.tree.xattr(&user.caller(), object, name)
}

fn remove(user: &User<'_>, object: &StorageHandle, name: &[u8]) -> Result<(), FsError> {
    settle(user.tree.remove_xattr(&user.caller(), object, name)).result
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    on_all(|user, place| {
        let root = user.root();
        let file = user.create(&root, "f", 0o644).unwrap().handle;
        let has_xattrs = user.tree.info(&root).unwrap().has_xattrs;
        if !has_xattrs {
            println!("there are none here");
            let refused = set(user, &file, b"a", b"1", SetXattrHow::Either);
            assert_eq!(refused, Err(FsError::NotSupported));
            return;
        }
        for object in [root, file] {
            assert_eq!(
                set(user, &object, b"a", b"1", SetXattrHow::Replace),
                Err(FsError::NotFound)
            );
            let how = SetXattrHow::Create;
            let durable = user.tree.set_xattr(&user.caller(), &object, b"a", b"1", how);
            let (changed, flushes) = settle_counting(durable);
            changed.result.unwrap();
            assert_eq!(flushes, usize::from(place.name != "tmpfs"));
            assert!(changed.wcc.before.is_some() && changed.wcc.after.is_some());
            assert_eq!(set(user, &object, b"a", b"1", SetXattrHow::Create), Err(FsError::Exists));
            set(user, &object, b"a", b"22", SetXattrHow::Replace).unwrap();
            set(user, &object, b"b", b"", SetXattrHow::Either).unwrap();
            assert_eq!(get(user, &object, b"a").unwrap(), b"22");
            assert_eq!(get(user, &object, b"b").unwrap(), b"");
            let mut names = user.tree.xattr_names(&user.caller(), &object).unwrap();
            names.sort();
            assert_eq!(names, [b"a", b"b"]);
            remove(user, &object, b"a").unwrap();
            assert_eq!(remove(user, &object, b"a"), Err(FsError::NotFound));
            assert_eq!(get(user, &object, b"a"), Err(FsError::NotFound));
            assert_eq!(user.tree.xattr_names(&user.caller(), &object).unwrap(), [b"b"]);
        }
        // Longer than most.
        for bytes in [500, 9000] {
            let long = vec![7; bytes];
            match set(user, &file, b"long", &long, SetXattrHow::Either) {
                // One block has all of an object's.
                Err(FsError::NoSpace) if place.name.starts_with("ext4") && bytes > 500 => {}
                Err(FsError::NoSpace) if place.name == "plain" && bytes > 500 => {}
                set => {
                    set.unwrap();
                    assert_eq!(get(user, &file, b"long").unwrap(), long);
                }
            }
        }
        let too_long = vec![7; 65537];
        let refused = set(user, &file, b"long", &too_long, SetXattrHow::Either);
        assert_eq!(refused, Err(FsError::FileTooLarge));
        for (name, error) in [
            (&b""[..], FsError::Invalid),
            (b"a\0b", FsError::Invalid),
            (&[b'n'; 251], FsError::NameTooLong),
        ] {
            assert_eq!(set(user, &file, name, b"", SetXattrHow::Either), Err(error));
            assert_eq!(get(user, &file, name), Err(error));
            assert_eq!(remove(user, &file, name), Err(error));
        }
        let link = user.tree.make_symlink(&user.caller(), &root, name("l"), b"f", &with_mode(0));
        let link = settle(link).result.unwrap().handle;
        let refused = set(user, &link, b"a", b"", SetXattrHow::Either);
        assert_eq!(refused, Err(FsError::NotPermitted));
        assert_eq!(get(user, &link, b"a"), Err(FsError::NotFound));
        assert!(user.tree.xattr_names(&user.caller(), &link).unwrap().is_empty());
    });
}

#[test]
fn who_may_write_sets_and_who_may_read_reads() {
    on_all(|user, _| {
        if !support::is_root() || !user.tree.info(&user.root()).unwrap().has_xattrs {
            return println!("skipped: needs root and extended attributes");
        }
        let root = user.root();
        let open = user.create(&root, "open", 0o644).unwrap().handle;
        let secret = user.create(&root, "secret", 0o600).unwrap().handle;
        for object in [&open, &secret] {
            set(user, object, b"a", b"1", SetXattrHow::Either).unwrap();
        }
        let other = User::new(user.tree, 1000, 1000);
        let asked = AccessMask::XATTRS;
        let access = |object| other.tree.access(&other.caller(), object, asked).unwrap().0;
        assert_eq!(access(&open), AccessMask::XATTR_READ | AccessMask::XATTR_LIST);
        assert_eq!(access(&secret), AccessMask::empty());
        assert_eq!(get(&other, &open, b"a").unwrap(), b"1");
        let refused = set(&other, &open, b"a", b"2", SetXattrHow::Either);
        assert_eq!(refused, Err(FsError::AccessDenied));
        assert_eq!(remove(&other, &open, b"a"), Err(FsError::AccessDenied));
        assert_eq!(get(&other, &secret, b"a"), Err(FsError::AccessDenied));
        let list = other.tree.xattr_names(&other.caller(), &secret);
        assert_eq!(list, Err(FsError::AccessDenied));
        // In a directory with the sticky bit, its owner alone.
        let sticky = user.mkdir(&root, "sticky", 0o1777).unwrap().handle;
        let refused = set(&other, &sticky, b"a", b"2", SetXattrHow::Either);
        assert_eq!(refused, Err(FsError::NotPermitted));
        set(user, &sticky, b"a", b"2", SetXattrHow::Either).unwrap();
    });
}

#[test]
fn a_default_list_takes_the_place_of_a_umask() {
    on_all(|user, _| {
        let root = user.root();
        let masked = SetAttr { umask: 0o077, ..with_mode(0o666) };
        let modes = |dir: &StorageHandle| {
            let guarded = CreateHow::Guarded(masked);
            let exclusive = CreateHow::Exclusive { verifier: [7; 8], mode: 0o666, umask: 0o077 };
            let [one, two] = [("g", guarded), ("e", exclusive)].map(|(text, how)| {
                let made = user.tree.create(&user.caller(), dir, name(text), &how);
                settle(made).result.unwrap().attr.mode
            });
            let made = user.tree.make_directory(&user.caller(), dir, name("d"), &masked);
            [one, two, settle(made).result.unwrap().attr.mode]
        };
        let plain = user.mkdir(&root, "plain", 0o755).unwrap().handle;
        assert_eq!(modes(&plain), [0o600; 3]);
        if !user.tree.info(&root).unwrap().has_acls {
            return println!("there are no lists here");
        }
        let listed = user.mkdir(&root, "listed", 0o755).unwrap().handle;
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let default = Acl {
            entries: vec![
                entry(AclTag::UserObject, 7),
                entry(AclTag::User(1234), 6),
                entry(AclTag::GroupObject, 4),
                entry(AclTag::Mask, 6),
                entry(AclTag::Other, 0),
            ],
        };
        settle(user.tree.set_acls(&user.caller(), &listed, None, Some(&default))).result.unwrap();
        assert_eq!(modes(&listed), [0o660; 3]);
    });
}
