//! Process ring: the intent log's device is slow, or hangs, and what does not need it does not wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::time::{Duration, Instant};

use common::{PATIENCE, Place, utf8};
use intent_log_support::disk::Disk;
use intent_log_support::site::Site;
use intent_log_support::{create, stop};
use steadfast_client::{Identity, Procedure, StableHow, arguments, procedure};

/// Calls that change nothing, sent behind a change on one connection, are answered before it while its
/// record is not stable. They wait for it where the change itself waits for room in the log or for its
/// object's lock in the file system, and one connection has as many calls in flight as it may have.
#[test]
fn a_cheap_call_behind_a_parked_one_on_its_connection_does_not_wait_for_it() {
    let place = Place::new();
    let directory = place.directory.path().canonicalize().unwrap();
    let Some(data) = Disk::new(&directory, "data", 48) else { return };
    let Some(log) = Disk::new(&directory, "log-disk", 48) else { return };
    let path = log.share.join("intent.log");
    let mut site = Site::of(vec![data], place);
    site.log = format!("{}path = {:?}\n", site.log, utf8(&path));
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "file");
    let identity = Identity::root();
    for _round in 0..3 {
        let frozen = log.freeze();
        let connection = client.transport();
        let data = arguments::write(&file, 0, b"parked", StableHow::FileSync);
        let mut send = |procedure: Procedure, arguments: &[u8]| {
            connection.send(procedure, &identity, arguments).unwrap()
        };
        let parked = send(procedure::WRITE, &data);
        let begun = Instant::now();
        let cheap: Vec<u32> =
            (0..20).map(|_| send(procedure::GETATTR, &arguments::handle(&root))).collect();
        let connection = client.transport();
        for xid in cheap {
            assert_eq!(connection.receive_any().unwrap().xid, xid);
        }
        // And those that come while the thread that writes the log waits for its device.
        std::thread::sleep(Duration::from_millis(20));
        client.getattr(&root).unwrap();
        client.lookup(&root, b"file").unwrap();
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        drop(frozen);
        client.transport().receive(parked).unwrap();
    }
    stop(running);
}
