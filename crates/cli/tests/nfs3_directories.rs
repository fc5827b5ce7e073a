//! Process ring: READDIR and READDIRPLUS, FSSTAT, FSINFO, PATHCONF, MOUNT against the real
//! program.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod nfs3_support;

use std::collections::BTreeSet;

use nfs3_support::{Fixture, failure, status};
use steadfast_client::{CreateHow3, Identity, NfsStat3, Settings, mount};

fn fill(f: &mut Fixture, count: usize) -> BTreeSet<Vec<u8>> {
    let names: BTreeSet<Vec<u8>> =
        (0..count).map(|index| format!("name-{index:05}").into_bytes()).collect();
    for name in &names {
        std::fs::write(f.place.share.join(std::str::from_utf8(name).unwrap()), b"").unwrap();
    }
    names
}

#[test]
fn every_name_is_listed_once_whatever_the_size() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let mut expected = fill(&mut f, 1000);
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    for plus in [false, true] {
        for bytes_max in [512, 1024, 4096, 32_768, 1 << 20] {
            let names: Vec<Vec<u8>> =
                f.client.entries(&root, plus, bytes_max).map(|entry| entry.unwrap().name).collect();
            assert_eq!(names.len(), expected.len(), "plus {plus}, {bytes_max} bytes");
            assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}

#[test]
fn replies_are_no_larger_than_asked_for() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    fill(&mut f, 300);
    for bytes_max in [600_u32, 1000, 5000] {
        use steadfast_client::{RpcTransport, arguments, procedure};
        let arguments = arguments::readdirplus(&root, 0, [0; 8], bytes_max, bytes_max);
        let results = f
            .client
            .transport()
            .call(procedure::READDIRPLUS, &Identity::root(), &arguments)
            .unwrap();
        assert!(results.len() <= bytes_max as usize + 4, "{} of {bytes_max}", results.len());
        let arguments = arguments::readdir(&root, 0, [0; 8], bytes_max);
        let results =
            f.client.transport().call(procedure::READDIR, &Identity::root(), &arguments).unwrap();
        assert!(results.len() <= bytes_max as usize + 4, "{} of {bytes_max}", results.len());
    }
    let refused = failure(f.client.readdir(&root, 0, [0; 8], 10));
    assert_eq!(refused.status, NfsStat3::TooSmall);
    assert_eq!(status(f.client.readdirplus(&root, 0, [0; 8], 10, 10)), NfsStat3::TooSmall);
}

#[test]
fn readdirplus_tells_the_same_as_lookup() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    f.directory("directory");
    f.file("file");
    f.client.symlink(&root, b"link", b"to", &Settings::default()).unwrap();
    let entries: Vec<_> = f.client.entries(&root, true, 32_768).map(Result::unwrap).collect();
    assert_eq!(entries.len(), 5);
    for entry in entries {
        let found = f.client.lookup(&root, &entry.name).unwrap();
        if entry.name.starts_with(b".") {
            continue;
        }
        assert_eq!(entry.handle.expect("a handle"), found.handle);
        let (told, found) = (entry.attributes.expect("attributes"), found.attributes.unwrap());
        assert_eq!(told.fileid, entry.fileid);
        assert_eq!(told, found);
    }
}

#[test]
fn cookies_stay_good_while_names_go() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let names = fill(&mut f, 500);
    let first = f.client.readdir(&root, 0, [0; 8], 4096).unwrap();
    assert!(!first.eof);
    let mut seen: BTreeSet<Vec<u8>> =
        first.entries.iter().map(|entry| entry.name.clone()).collect();
    // Everything listed so far goes, the cookie's own name with it, and every other of the rest.
    let mut kept = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        if seen.contains(name) || index % 2 == 0 {
            f.client.remove(&root, name).unwrap();
        } else {
            kept.insert(name.clone());
        }
    }
    let (mut cookie, mut verifier) = (first.entries.last().unwrap().cookie, first.verifier);
    let mut rest = BTreeSet::new();
    loop {
        let page = f.client.readdir(&root, cookie, verifier, 1024).unwrap();
        for entry in &page.entries {
            assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
            rest.insert(entry.name.clone());
        }
        if page.eof {
            break;
        }
        cookie = page.entries.last().unwrap().cookie;
        verifier = page.verifier;
    }
    assert!(kept.is_subset(&rest), "names that stayed are missing");
}

#[test]
fn names_made_and_removed_meanwhile_disturb_nobody() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let names = fill(&mut f, 800);
    let (mut other, _) = f.mount();
    let mut seen = Vec::new();
    let mut turn = 0;
    let how = CreateHow3::Guarded(Settings::mode(0o600).0);
    for entry in f.client.entries(&root, true, 2048) {
        seen.push(entry.unwrap().name);
        if seen.len() % 10 == 0 {
            let name = format!("passing-{turn}");
            other.create(&root, name.as_bytes(), &how).unwrap();
            if turn > 0 {
                let name = format!("passing-{}", turn - 1);
                other.remove(&root, name.as_bytes()).unwrap();
            }
            turn += 1;
        }
    }
    let unique: BTreeSet<_> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "a name was told twice");
    assert!(names.is_subset(&unique), "a name that stayed was not told");
}

#[test]
fn only_directories_are_listed_and_only_by_cookies_of_theirs() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let refused = failure(f.client.readdir(&file, 0, [0; 8], 4096));
    assert_eq!(refused.status, NfsStat3::NotDir);
    assert_eq!(status(f.client.readdirplus(&file, 0, [0; 8], 4096, 4096)), NfsStat3::NotDir);
    let root = f.root.clone();
    for cookie in [u64::MAX, i64::MAX as u64, 1 << 63, 12345] {
        match f.client.readdir(&root, cookie, [0; 8], 4096) {
            Ok(_) => {}
            Err(error) => assert!(
                matches!(error.status(), Some(NfsStat3::BadCookie | NfsStat3::Inval)),
                "{cookie}: {error}"
            ),
        }
    }
}

#[test]
fn fsinfo_fsstat_and_pathconf_tell_what_the_file_system_can() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let info = f.client.fsinfo(&root).unwrap();
    assert!(info.attributes.is_some());
    for bytes in [info.read_max, info.read_preferred, info.write_max, info.write_preferred] {
        assert!(bytes >= 1 << 20, "{info:?}");
    }
    assert!(info.read_preferred <= info.read_max && info.write_preferred <= info.write_max);
    assert!(info.read_multiple.is_power_of_two() && info.write_multiple.is_power_of_two());
    assert!(info.listing_preferred >= 4096);
    assert!(info.file_bytes_max > 1 << 40);
    assert_eq!((info.time_delta.seconds, info.time_delta.nanoseconds), (0, 1));
    // Hard links, symbolic links, homogeneous, times can be set.
    assert_eq!(info.properties & 0x1b, 0x1b);

    let statistics = f.client.fsstat(&root).unwrap();
    assert!(statistics.attributes.is_some());
    assert!(statistics.available_bytes <= statistics.free_bytes);
    assert!(statistics.free_bytes <= statistics.total_bytes);
    assert!(statistics.free_files <= statistics.total_files);

    let file = f.file("a");
    let configuration = f.client.pathconf(&file).unwrap();
    assert!(configuration.attributes.is_some());
    assert_eq!(configuration.name_max, 255);
    assert!(configuration.link_max >= 1000);
    assert!(configuration.no_trunc && configuration.chown_restricted);
    assert!(!configuration.case_insensitive && configuration.case_preserving);
}

#[test]
fn mount_grants_lists_and_forgets() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let path = common::utf8(&f.place.share).to_owned();
    let identity = Identity::root();
    let directory = f.directory("d");
    let connection = f.client.transport();
    let mounted = mount::mnt(connection, &identity, path.as_bytes()).unwrap();
    assert_eq!(mounted.handle, root);
    assert!(mounted.flavours.contains(&1));
    let below = mount::mnt(connection, &identity, format!("{path}/d/").as_bytes()).unwrap();
    assert_eq!(below.handle, directory);
    let refused = |result: Result<mount::Mounted, steadfast_client::ClientError>| match result {
        Err(steadfast_client::ClientError::Mount(status)) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(mount::mnt(connection, &identity, b"/not/shared")), 2);
    assert_eq!(refused(mount::mnt(connection, &identity, format!("{path}/none").as_bytes())), 2);
    let out = format!("{path}/d/../../..");
    assert!(matches!(refused(mount::mnt(connection, &identity, out.as_bytes())), 2 | 13 | 22));
    let exports = mount::export(connection, &identity).unwrap();
    assert_eq!(exports.len(), 1);
    assert_eq!(exports[0].path, path.as_bytes());
    let mounts = mount::dump(connection, &identity).unwrap();
    assert!(mounts.iter().any(|one| one.path == path.as_bytes()));
    mount::umnt(connection, &identity, path.as_bytes()).unwrap();
    let mounts = mount::dump(connection, &identity).unwrap();
    assert!(!mounts.iter().any(|one| one.path == path.as_bytes()));
    assert!(!mounts.is_empty());
    mount::umntall(connection, &identity).unwrap();
    assert!(mount::dump(connection, &identity).unwrap().is_empty());
}

#[test]
fn symlinks_on_the_server_do_not_lead_mounts_out_of_the_share() {
    let mut f = Fixture::new();
    let path = common::utf8(&f.place.share).to_owned();
    std::os::unix::fs::symlink("/etc", f.on_disk("out")).unwrap();
    let connection = f.client.transport();
    let result = mount::mnt(connection, &Identity::root(), format!("{path}/out/ssl").as_bytes());
    assert!(matches!(result, Err(steadfast_client::ClientError::Mount(_))), "{result:?}");
}
