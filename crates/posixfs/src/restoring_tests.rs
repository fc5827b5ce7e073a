//! Property tests against the kernel, on each file system that can be had: an object gets just what another
//! has, and nobody may do anything on the way that they may neither before nor afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::fs::{Mode, OFlags};
use steadfast_vfs::{AclEntry, AclTag, Cred, permission};

use super::*;

/// A file system on an image, gone when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(kind: &str, mib: u64) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let (image, at) = (place.path().join("image"), place.path().join("at"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let run = |program: &str, words: &[&str]| {
            let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
            let words = words.iter().map(|word| match *word {
                "IMAGE" => image,
                "AT" => at,
                word => word,
            });
            let mut command = Command::new(program);
            command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let is_made = run(&format!("mkfs.{kind}"), &["-q", "IMAGE"])
            && run("mount", &["-o", "loop", "IMAGE", "AT"]);
        if !is_made {
            println!("skipped: cannot make and mount {kind}");
            return None;
        }
        Some(Self(place))
    }

    fn at(&self) -> PathBuf {
        self.0.path().join("at")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at()).status();
    }
}

/// What an object is given, in this order.
#[derive(Clone, Debug)]
struct Given {
    owner: (u32, u32),
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    mode: Option<u32>,
}

fn list() -> impl Strategy<Value = Vec<u8>> {
    let named = proptest::collection::btree_map((any::<bool>(), 5..9_u32), 0..8_u8, 0..4);
    (any::<[u8; 4]>(), named).prop_map(|(bits, named)| {
        let entry = |tag, permissions: u8| AclEntry { tag, permissions: permissions & 7 };
        let mut entries = vec![
            entry(AclTag::UserObject, bits[0]),
            entry(AclTag::GroupObject, bits[1]),
            entry(AclTag::Other, bits[2]),
        ];
        if !named.is_empty() {
            entries.push(entry(AclTag::Mask, bits[3]));
        }
        entries.extend(named.into_iter().map(|((is_user, id), bits)| {
            entry(if is_user { AclTag::User(id) } else { AclTag::Group(id) }, bits)
        }));
        acl::encoded(&steadfast_vfs::Acl { entries })
    })
}

fn given() -> impl Strategy<Value = Given> {
    let owner = (prop_oneof![Just(0), 5..8_u32], prop_oneof![Just(0), 5..8_u32]);
    let lists = (proptest::option::of(list()), proptest::option::of(list()));
    (owner, lists, proptest::option::of(0..0o10000_u32))
        .prop_map(|(owner, (access, default), mode)| Given { owner, access, default, mode })
}

/// All that decides about access.
#[derive(Clone, Debug, PartialEq)]
struct State {
    attr: (u32, u32, u32),
    lists: [Vec<u8>; 2],
}

fn whole(object: &OwnedFd) -> Attr {
    attributes::attr(&attributes::stat(object).unwrap(), 0)
}

fn state(object: &OwnedFd) -> State {
    let attr = whole(object);
    let list = |which| acl::kept(object.as_fd(), which, xattr::value).unwrap();
    let lists = [list(Which::Access), list(Which::Default)];
    State { attr: (attr.uid, attr.gid, attr.mode), lists }
}

/// What each of some users may do.
fn rights(object: &OwnedFd) -> Vec<u8> {
    let attr = whole(object);
    let list = acl::read(object, Which::Access).unwrap();
    let mut rights = Vec::new();
    for uid in 5..10 {
        for gid in 5..10 {
            let cred = Cred { uid, gid, groups: smallvec::SmallVec::default() };
            let bits = [1, 2, 4];
            let is_allowed = |bit: &u8| permission::is_allowed(&attr, list.as_ref(), &cred, *bit);
            rights.push(bits.iter().filter(|bit| is_allowed(bit)).sum());
        }
    }
    rights
}

fn make(at: &std::path::Path, name: &str, is_directory: bool, given: &Given) -> OwnedFd {
    let path = at.join(name);
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_dir(&path);
    if is_directory {
        std::fs::create_dir(&path).unwrap();
    } else {
        std::fs::write(&path, "").unwrap();
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let object = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
    take(&Step::Owner(given.owner.0, given.owner.1), object.as_fd()).unwrap();
    for (which, list) in [(Which::Access, &given.access), (Which::Default, &given.default)] {
        if let Some(list) = list.as_ref().filter(|_| is_directory || which == Which::Access) {
            acl::write_encoded(&object, which, list).unwrap();
        }
    }
    if let Some(mode) = given.mode {
        take(&Step::Mode(mode), object.as_fd()).unwrap();
    }
    object
}

#[test]
fn what_is_restored_is_what_was_and_never_more_on_the_way() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    for (kind, mib) in [("ext4", 32), ("xfs", 300), ("btrfs", 128)] {
        let Some(place) = Mounted::new(kind, mib) else { continue };
        let at = place.at();
        let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
        let all = (given(), given(), any::<bool>());
        let done = TestRunner::new(config).run(&all, |(acknowledged, found, is_directory)| {
            let original = make(&at, "original", is_directory, &acknowledged);
            let wanted = state(&original);
            let attr = whole(&original);
            let restored = make(&at, "restored", is_directory, &found);
            let acls =
                AclsToSet { access: Some(&wanted.lists[0]), default: Some(&wanted.lists[1]) };
            // Setting the mode changes the list: replay knows the list as it was set.
            let as_set = acknowledged.access.clone();
            let acls = match &as_set {
                Some(list) if !wanted.lists[0].is_empty() => {
                    AclsToSet { access: Some(list), ..acls }
                }
                _ => acls,
            };
            let (before, allowed) = (rights(&restored), rights(&original));
            let now = state(&restored);
            let steps = steps(&whole(&restored), [&now.lists[0], &now.lists[1]], &attr, &acls);
            for step in steps.unwrap() {
                take(&step, restored.as_fd()).unwrap();
                let meanwhile = rights(&restored);
                for ((then, before), allowed) in meanwhile.iter().zip(&before).zip(&allowed) {
                    prop_assert!(
                        then & !before == 0 || then & !allowed == 0,
                        "{step:?} grants {then} where {before} was granted and {allowed} is to be"
                    );
                }
            }
            prop_assert_eq!(&state(&restored), &wanted);
            // Once more, there is nothing to do.
            restore(restored.as_fd(), &attr, &acls).unwrap();
            prop_assert_eq!(state(&restored), wanted);
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// What is made again under a directory's default list has nothing of it, and nobody may use it.
#[test]
fn what_is_made_again_inherits_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let list = acl::encoded(&steadfast_vfs::Acl {
        entries: [
            AclTag::UserObject,
            AclTag::User(5),
            AclTag::GroupObject,
            AclTag::Mask,
            AclTag::Other,
        ]
        .map(|tag| AclEntry { tag, permissions: 7 })
        .to_vec(),
    });
    for (kind, mib) in [("ext4", 32), ("xfs", 300), ("btrfs", 128)] {
        let Some(place) = Mounted::new(kind, mib) else { continue };
        let given = Given { owner: (0, 0), access: None, default: Some(list.clone()), mode: None };
        let dir = make(&place.at(), "dir", true, &given);
        rustix::fs::mkdirat(&dir, "made", Mode::empty()).unwrap();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&dir, "made", flags, Mode::empty()).unwrap();
        assert!(rights(&made).iter().all(|rights| *rights == 0), "{kind}");
        assert!(!state(&made).lists[1].is_empty(), "{kind}");
        strip(made.as_fd()).unwrap();
        assert_eq!(state(&made).lists, [vec![], vec![]], "{kind}");
        assert!(rights(&made).iter().all(|rights| *rights == 0), "{kind}");
    }
}

/// As btrfs leaves it, whose chmod stores the mode before the list.
#[test]
fn a_list_that_lags_behind_the_mode_is_brought_up_to_it() {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let entries = vec![
        entry(AclTag::UserObject, 7),
        entry(AclTag::User(7), 4),
        entry(AclTag::GroupObject, 2),
        entry(AclTag::Mask, 4),
        entry(AclTag::Other, 6),
    ];
    let before = acl::encoded(&steadfast_vfs::Acl { entries });
    let place = tempfile::tempdir().unwrap();
    let open = std::fs::File::open(place.path()).unwrap();
    let now = Attr { mode: 0o467, ..attributes::attr(&attributes::stat(&open).unwrap(), 0) };
    let steps_from = |list: &[u8]| steps(&now, [list, &[]], &now, &AclsToSet::default()).unwrap();
    assert_eq!(steps_from(&before), [Step::Mode(0o467)]);
    assert_eq!(steps_from(&acl::with_mode(&before, 0o467).unwrap()), []);
    assert_eq!(steps_from(&[]), []);
}
