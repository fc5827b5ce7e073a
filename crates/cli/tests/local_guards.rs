//! Process ring: what is delegated to clients is guarded from processes on the server, over real sockets, with
//! leases of the real kernel: this process opens the files. docs/nfsv4.md (Delegations) says what is promised.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Running, utf8};
use nfs3_support::{Fixture, PATIENCE};
use steadfast_client::nfs4::{ClientSettings, Nfs4Client, Opened4, Opening4};
use steadfast_client::{FileHandle, Identity, RpcConnection, StableHow};
use steadfast_wire::nfs4::{DelegReturn4Args, Op4, OpenClaim4, ReclaimComplete4Args};

const READ: u32 = 1;
const BOTH: u32 = 3;
/// Recalls do not go out earlier after a grant.
const GRANTED: Duration = Duration::from_millis(1_100);
/// Nobody waits longer for a client that answers.
const RETURNED: Duration = Duration::from_secs(5);

/// A client that can be called.
struct Holder {
    client: Nfs4Client<RpcConnection>,
    directory: FileHandle,
}

impl Holder {
    fn new(running: &Running, share: &Path) -> Self {
        let connection = RpcConnection::connect(running.address, PATIENCE).unwrap();
        let settings = ClientSettings { wants_callbacks: true, ..ClientSettings::default() };
        let mut client = Nfs4Client::connect(connection, Identity::root(), &settings).unwrap();
        let complete = ReclaimComplete4Args { one_fs: false };
        // It may have been sent already.
        let _ = client.request(
            |compound| compound.op(Op4::ReclaimComplete, &complete),
            |reply| reply.done(Op4::ReclaimComplete),
        );
        let directory = client.lookup_path(utf8(share).as_bytes()).unwrap();
        Self { client, directory }
    }

    fn open(&mut self, name: &[u8], share_access: u32) -> Opened4 {
        let opening = Opening4 { share_access, ..Opening4::with_claim(OpenClaim4::Null(name)) };
        self.client.open(&self.directory, &opening).unwrap()
    }

    /// Waits to be asked for what it was delegated.
    fn is_asked(&mut self, opened: &Opened4) {
        let recall = self.client.next_recall().expect("a recall");
        assert_eq!(Some(recall.stateid), opened.delegation);
    }

    fn returns(&mut self, opened: &Opened4) {
        let arguments = DelegReturn4Args { stateid: opened.delegation.unwrap() };
        self.client
            .request(
                |compound| compound.put(&opened.handle).op(Op4::DelegReturn, &arguments),
                |reply| {
                    reply.done(Op4::PutFh)?;
                    reply.done(Op4::DelegReturn)
                },
            )
            .unwrap();
    }
}

fn content(path: &Path) -> String {
    let mut text = String::new();
    File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_local_writer_waits_for_readers_and_readers_see_what_it_wrote() {
    let fixture = Fixture::with(&["--no-root-squash", "--delegations", "read"]);
    let path = fixture.on_disk("f");
    std::fs::write(&path, "before").unwrap();
    let mut one = Holder::new(&fixture.running, &fixture.place.share);
    let mut two = Holder::new(&fixture.running, &fixture.place.share);
    let (of_one, of_two) = (one.open(b"f", READ), two.open(b"f", READ));
    assert!(of_one.delegation.is_some() && of_two.delegation.is_some());
    // Who only reads does not wait.
    assert_eq!(content(&path), "before");
    std::thread::sleep(GRANTED);
    std::thread::scope(|scope| {
        let began = Instant::now();
        let writer = scope.spawn(|| std::fs::write(&path, "after").unwrap());
        one.is_asked(&of_one);
        two.is_asked(&of_two);
        one.returns(&of_one);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!writer.is_finished(), "one of two has returned it");
        two.returns(&of_two);
        writer.join().unwrap();
        assert!(began.elapsed() < RETURNED, "{:?}", began.elapsed());
    });
    let read = one.client.read(&of_one.handle, of_one.stateid, 0, 100).unwrap();
    assert_eq!(read.data, b"after");
}

#[test]
fn a_local_reader_gets_what_the_holder_had_written_unseen() {
    let fixture = Fixture::with(&["--no-root-squash", "--delegations", "write"]);
    let path = fixture.on_disk("f");
    std::fs::write(&path, "before").unwrap();
    let mut holder = Holder::new(&fixture.running, &fixture.place.share);
    let opened = holder.open(b"f", BOTH);
    assert!(opened.delegation.is_some());
    std::thread::sleep(GRANTED);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| content(&path));
        holder.is_asked(&opened);
        // What a client has kept to itself it writes now.
        let stateid = opened.stateid;
        holder.client.write(&opened.handle, stateid, 0, b"behind", StableHow::FileSync).unwrap();
        assert!(!reader.is_finished());
        holder.returns(&opened);
        assert_eq!(reader.join().unwrap(), "behind");
    });
}

#[test]
fn what_a_local_process_has_open_is_not_delegated() {
    let fixture = Fixture::with(&["--no-root-squash", "--delegations", "write"]);
    let path = fixture.on_disk("f");
    std::fs::write(&path, "x").unwrap();
    let mut holder = Holder::new(&fixture.running, &fixture.place.share);
    let reader = File::open(&path).unwrap();
    assert_eq!(holder.open(b"f", BOTH).delegation, None, "somebody reads");
    drop(reader);
    std::fs::write(fixture.on_disk("g"), "x").unwrap();
    let mut writer = OpenOptions::new().append(true).open(fixture.on_disk("g")).unwrap();
    assert_eq!(holder.open(b"g", READ).delegation, None, "somebody writes");
    writer.write_all(b"y").unwrap();
    drop(writer);
    // Another client, which has it not open yet.
    let mut other = Holder::new(&fixture.running, &fixture.place.share);
    assert!(other.open(b"g", READ).delegation.is_some());
}

#[test]
fn without_guards_nobody_waits() {
    let fixture =
        Fixture::with(&["--no-root-squash", "--delegations", "write", "--local-guard", "none"]);
    let path = fixture.on_disk("f");
    std::fs::write(&path, "x").unwrap();
    let reader = File::open(&path).unwrap();
    let mut holder = Holder::new(&fixture.running, &fixture.place.share);
    assert!(holder.open(b"f", BOTH).delegation.is_some());
    let began = Instant::now();
    std::fs::write(&path, "y").unwrap();
    assert!(began.elapsed() < RETURNED);
    drop(reader);
}
