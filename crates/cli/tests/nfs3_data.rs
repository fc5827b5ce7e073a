//! Process ring: READ, WRITE, COMMIT against the real program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use nfs3_support::{Fixture, assert_wcc, failure, is_root, status};
use steadfast_client::{
    CreateHow3, Identity, NfsStat3, Settings, StableHow, UnstableWrites, procedure,
};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 7 % 253) as u8).collect()
}

#[test]
fn what_is_written_is_read_back_at_every_stability() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let data = bytes(300_001);
    for (index, stable) in
        [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync].into_iter().enumerate()
    {
        let offset = index as u64 * 1_000_003;
        let before = f.attributes(&file);
        let written = f.client.write(&file, offset, &data, stable).unwrap();
        assert_wcc(&written.wcc, &before);
        assert_eq!(written.count as usize, data.len());
        let read = f.client.read(&file, offset, data.len() as u32).unwrap();
        assert!(read.data == data);
        assert!(read.eof);
        assert_eq!(read.attributes.unwrap().size, offset + data.len() as u64);
    }
    assert_eq!(std::fs::read(f.on_disk("a")).unwrap().len(), 2 * 1_000_003 + data.len());
}

#[test]
fn the_largest_transfers_that_fsinfo_tells_work() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let info = f.client.fsinfo(&root).unwrap();
    assert!(info.read_max >= 1 << 20 && info.write_max >= 1 << 20);
    let file = f.file("a");
    let data = bytes(info.write_max as usize);
    let written = f.client.write(&file, 0, &data, StableHow::Unstable).unwrap();
    assert_eq!(written.count, info.write_max);
    let read = f.client.read(&file, 0, info.read_max).unwrap();
    assert!(read.data == data[..info.read_max as usize]);
    // More than that is cut, never refused or broken.
    let read = f.client.read(&file, 0, u32::MAX).unwrap();
    assert!(!read.data.is_empty() && data.starts_with(&read.data));
}

#[test]
fn the_verifier_holds_and_commit_repeats_it() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let first = f.client.write(&file, 0, b"one", StableHow::Unstable).unwrap();
    let second = f.client.write(&file, 3, b"two", StableHow::FileSync).unwrap();
    assert_eq!(second.committed, StableHow::FileSync);
    let before = f.attributes(&file);
    let commit = f.client.commit(&file, 0, 0).unwrap();
    assert_wcc(&commit.wcc, &before);
    assert_eq!(first.verifier, commit.verifier);
    assert_eq!(second.verifier, commit.verifier);
    f.client.commit(&file, 1 << 40, 5).unwrap();
}

#[test]
fn a_restart_changes_the_verifier_and_nothing_is_lost() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let mut writes = UnstableWrites::new(file.clone(), 1 << 20);
    writes.write(&mut f.client, 0, b"before ").unwrap();
    let first = f.client.write(&file, 100, b"x", StableHow::FileSync).unwrap().verifier;
    // Killed, not stopped; on the same place, another port.
    let Fixture { place, running, .. } = f;
    drop(running);
    let share = common::utf8(&place.share).to_owned();
    let running = common::Running::start(&place, 0, &[&share, "--no-root-squash"]);
    let connection =
        steadfast_client::RpcConnection::connect(running.address, nfs3_support::PATIENCE).unwrap();
    let mut client = steadfast_client::Nfs3Client::new(connection, Identity::root());
    writes.write(&mut client, 7, b"after").unwrap();
    writes.commit(&mut client).unwrap();
    assert_eq!(writes.resent(), 2);
    assert_eq!(writes.pending_bytes(), 0);
    let again = client.write(&file, 100, b"x", StableHow::FileSync).unwrap().verifier;
    assert_ne!(first, again);
    assert_eq!(client.read(&file, 0, 12).unwrap().data, b"before after");
}

#[test]
fn reads_at_and_behind_the_end() {
    let mut f = Fixture::new();
    let file = f.file("a");
    f.client.write(&file, 0, b"12345", StableHow::FileSync).unwrap();
    let mut read = |offset, count| {
        let read = f.client.read(&file, offset, count).unwrap();
        (read.data, read.eof)
    };
    assert_eq!(read(0, 5), (b"12345".to_vec(), true));
    assert_eq!(read(0, 4), (b"1234".to_vec(), false));
    assert_eq!(read(3, 100), (b"45".to_vec(), true));
    assert_eq!(read(5, 100), (vec![], true));
    assert_eq!(read(1 << 40, 100), (vec![], true));
    assert_eq!(read(0, 0), (vec![], false));
}

#[test]
fn offsets_at_the_edges_of_64_bits() {
    let mut f = Fixture::new();
    let file = f.file("a");
    f.client.write(&file, 0, b"12345", StableHow::FileSync).unwrap();
    for offset in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, i64::MAX as u64 - 3] {
        match f.client.read(&file, offset, 4096) {
            Ok(read) => assert!(read.data.is_empty() && read.eof, "{offset}"),
            Err(error) => assert_eq!(error.status(), Some(NfsStat3::Inval), "{offset}"),
        }
        let got = status(f.client.write(&file, offset, b"abcdefgh", StableHow::FileSync));
        assert!(matches!(got, NfsStat3::FBig | NfsStat3::Inval), "{offset}: {got:?}");
        match f.client.commit(&file, offset, u32::MAX) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.status(), Some(NfsStat3::Inval), "{offset}"),
        }
        match f.client.setattr(&file, &Settings::size(offset), None) {
            Ok(_) => panic!("{offset} is no size of a file"),
            Err(error) => assert!(
                matches!(error.status(), Some(NfsStat3::FBig | NfsStat3::Inval)),
                "{offset}: {error}"
            ),
        }
    }
    assert_eq!(f.attributes(&file).size, 5);
    assert_eq!(f.client.read(&file, 0, 10).unwrap().data, b"12345");
}

#[test]
fn a_count_that_is_not_the_datas_length() {
    use steadfast_client::{ClientError, RpcTransport};
    let mut f = Fixture::new();
    let file = f.file("a");
    let write = |count: u32, data: &[u8]| {
        let mut arguments = steadfast_client::arguments::write(&file, 0, data, StableHow::FileSync);
        let handle = 4 + file.as_bytes().len().next_multiple_of(4);
        arguments[handle + 8..handle + 12].copy_from_slice(&count.to_be_bytes());
        arguments
    };
    // RFC 1813 §3.3.7 does not say; either refusal or the lesser of both is sane.
    for (count, data) in [(2, &b"abcd"[..]), (100, b"abcd"), (u32::MAX, b"abcd")] {
        let result =
            f.client.transport().call(procedure::WRITE, &Identity::root(), &write(count, data));
        match result {
            Ok(results) => {
                let status = u32::from_be_bytes(results[..4].try_into().unwrap());
                assert!(matches!(status, 0 | 22), "count {count}: status {status}");
            }
            Err(ClientError::Accepted(_)) => {}
            Err(error) => panic!("count {count}: {error}"),
        }
        assert!(f.attributes(&file).size <= 4);
    }
}

#[test]
fn only_files_have_data() {
    let mut f = Fixture::new();
    let directory = f.directory("d");
    let refused = failure(f.client.read(&directory, 0, 10));
    assert!(matches!(refused.status, NfsStat3::IsDir | NfsStat3::Inval), "{refused:?}");
    let refused = failure(f.client.write(&directory, 0, b"x", StableHow::FileSync));
    assert!(matches!(refused.status, NfsStat3::IsDir | NfsStat3::Inval), "{refused:?}");
    let root = f.root.clone();
    let link = f.client.symlink(&root, b"l", b"to", &Settings::default()).unwrap();
    let link = link.handle.unwrap();
    assert_eq!(status(f.client.read(&link, 0, 10)), NfsStat3::Inval);
    assert_eq!(status(f.client.write(&link, 0, b"x", StableHow::FileSync)), NfsStat3::Inval);
}

#[test]
fn permissions_are_the_callers_and_the_owner_writes_what_is_read_only() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let root = f.root.clone();
    f.client.set_identity(Identity::user(1000, 1000));
    let how = CreateHow3::Guarded(Settings::mode(0o444).0);
    let file = f.client.create(&root, b"a", &how).unwrap().handle.unwrap();
    f.client.write(&file, 0, b"mine", StableHow::FileSync).unwrap();
    f.client.set_identity(Identity::user(2000, 2000));
    assert_eq!(f.client.read(&file, 0, 10).unwrap().data, b"mine");
    let before = f.attributes(&file);
    let refused = failure(f.client.write(&file, 0, b"x", StableHow::FileSync));
    assert_eq!(refused.status, NfsStat3::Acces);
    assert!(refused.wcc.after.is_some());
    assert_eq!(f.attributes(&file).mtime, before.mtime);
    f.client.set_identity(Identity::user(1000, 1000));
    f.client.setattr(&file, &Settings::mode(0o400), None).unwrap();
    f.client.set_identity(Identity::user(2000, 2000));
    assert_eq!(status(f.client.read(&file, 0, 10)), NfsStat3::Acces);
}

#[test]
fn a_read_only_share_is_read_only() {
    let mut f = Fixture::new();
    let file = f.file("a");
    f.client.write(&file, 0, b"data", StableHow::FileSync).unwrap();
    let Fixture { place, running, .. } = f;
    drop(running);
    let share = common::utf8(&place.share).to_owned();
    let running = common::Running::start(&place, 0, &[&share, "--no-root-squash", "--ro"]);
    let (mut client, root) = steadfast_client::Nfs3Client::mount(
        running.address,
        running.address,
        share.as_bytes(),
        Identity::root(),
        nfs3_support::PATIENCE,
    )
    .unwrap();
    assert_eq!(client.read(&file, 0, 10).unwrap().data, b"data");
    let how = CreateHow3::Unchecked(Settings::default().0);
    assert_eq!(status(client.write(&file, 0, b"x", StableHow::FileSync)), NfsStat3::RoFs);
    assert_eq!(status(client.create(&root, b"b", &how)), NfsStat3::RoFs);
    assert_eq!(status(client.remove(&root, b"a")), NfsStat3::RoFs);
    assert_eq!(status(client.setattr(&file, &Settings::mode(0o777), None)), NfsStat3::RoFs);
    assert_eq!(status(client.rename(&root, b"a", &root, b"b")), NfsStat3::RoFs);
}

#[test]
fn many_calls_in_flight_are_all_answered() {
    let mut f = Fixture::new();
    let file = f.file("a");
    let data = bytes(4096);
    let connection = f.client.transport();
    let mut xids = Vec::new();
    for index in 0..500_u64 {
        let stable = if index % 2 == 0 { StableHow::FileSync } else { StableHow::Unstable };
        let arguments = steadfast_client::arguments::write(&file, index * 4096, &data, stable);
        xids.push(connection.send(procedure::WRITE, &Identity::root(), &arguments).unwrap());
    }
    for xid in xids.into_iter().rev() {
        let reply = connection.receive(xid).unwrap();
        assert_eq!(reply.results().unwrap()[..4], [0; 4]);
    }
    assert_eq!(f.attributes(&file).size, 500 * 4096);
}
