//! Process ring, without a process of its own: clients that wait for locks are told over real sockets
//! when these are free, long before they would ask again.
#![allow(clippy::expect_used)] // A failure here is a failure of the test.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use steadfast_client::nfs4::{ClientSettings, Nfs4Client};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection};
use steadfast_server::{Configuration, Server, StartOptions, prepare_process};
use steadfast_shares::{Access, ClientPattern, ShareOptions};
use steadfast_wire::nfs4::{
    BindConnToSession4Args, Lock4Args, LockOwner4, LockType4, LockU4Args, Locker4, NfsStat4, Op4,
    Open4Args, OpenClaim4, OpenHow4, StateId4,
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A range that became free is kept for so long for who waits.
const KEPT: Duration = Duration::from_secs(2);

fn connection(server: SocketAddr) -> RpcConnection {
    RpcConnection::connect(server, PATIENCE).expect("connected")
}

fn client(server: SocketAddr, wants_callbacks: bool) -> Nfs4Client {
    let settings = ClientSettings { wants_callbacks, ..ClientSettings::default() };
    let identity = Identity::user(1000, 1000);
    Nfs4Client::connect(connection(server), identity, &settings).expect("a session")
}

struct Locker {
    client: Nfs4Client,
    file: FileHandle,
    open: StateId4,
    lock: Option<StateId4>,
}

impl Locker {
    fn new(mut client: Nfs4Client, path: &str) -> Self {
        let file = client.lookup_path(path.as_bytes()).expect("found");
        let open = Open4Args {
            seqid: 0,
            share_access: 3,
            share_deny: 0,
            clientid: 0,
            owner: b"opener",
            openhow: OpenHow4::NoCreate,
            claim: OpenClaim4::Fh,
        };
        let open = client.request(
            |compound| compound.put(&file).op(Op4::Open, &open),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.open().map(|opened| opened.stateid)
            },
        );
        Self { client, file, open: open.expect("opened"), lock: None }
    }

    /// Asks for a lock of the whole file, and waits for it if need be; whether it has it.
    fn locks(&mut self) -> bool {
        let lock_owner = LockOwner4 { clientid: 0, owner: b"locker" };
        let locker =
            Locker4::Open { open_seqid: 0, open_stateid: self.open, lock_seqid: 0, lock_owner };
        let locktype = LockType4::WriteWaiting;
        let lock = Lock4Args { locktype, reclaim: false, offset: 0, length: u64::MAX, locker };
        let file = &self.file;
        let mut denied = false;
        let locked = self.client.request(
            |compound| compound.put(file).op(Op4::Lock, &lock),
            |reply| {
                reply.done(Op4::PutFh)?;
                let locked = reply.stateid(Op4::Lock);
                denied = matches!(&locked, Err(error) if is_denial(error));
                locked
            },
        );
        if denied {
            return false;
        }
        self.lock = Some(locked.expect("locked"));
        true
    }

    fn unlocks(&mut self) {
        let unlock = LockU4Args {
            locktype: LockType4::Write,
            seqid: 0,
            lock_stateid: self.lock.take().expect("locked before"),
            offset: 0,
            length: u64::MAX,
        };
        let file = &self.file;
        let unlocked = self.client.request(
            |compound| compound.put(file).op(Op4::LockU, &unlock),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::LockU).map(drop)
            },
        );
        unlocked.expect("unlocked");
    }
}

fn is_denial(error: &ClientError) -> bool {
    error.status4() == Some(NfsStat4::Denied)
}

#[test]
fn a_lock_goes_from_client_to_client_without_a_pause() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().canonicalize().expect("a path");
    let share = path.join("share");
    std::fs::create_dir(&share).expect("made");
    std::fs::write(share.join("file"), b"").expect("made");
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(share.join("file"), all).expect("a mode");
    let mut configuration = Configuration::default();
    let settings = &mut configuration.settings;
    settings.server.listen = Some(vec!["127.0.0.1:0".parse().expect("an address")]);
    settings.server.rpcbind = Some(false);
    settings.server.nfs4 = Some(true);
    settings.log.size_mib = Some(16);
    let access = Access { needs_privileged_port: false, ..Access::default() };
    let options = ShareOptions { access, ..ShareOptions::default() };
    configuration.add_directory(&share, &options, &[ClientPattern::Any]).expect("UTF-8");
    let options =
        StartOptions { state_directory: Some(path.join("state")), ..StartOptions::default() };
    let powers: &'static _ = Box::leak(Box::new(prepare_process().expect("prepared")));
    let server = Server::start(configuration, options, powers).expect("started");
    let address = *server.addresses().first().expect("an address");

    let file = format!("{}/file", share.display());
    let mut holder = Locker::new(client(address, false), &file);
    let mut waiter = Locker::new(client(address, true), &file);
    for sequence in 1..=3 {
        assert!(holder.locks() && !waiter.locks());
        let begun = Instant::now();
        holder.unlocks();
        let told = waiter.client.next_callback().expect("a callback");
        assert_eq!((told.sequence.sequenceid, &*told.owner), (sequence, &b"locker"[..]));
        assert_eq!(told.object, waiter.file.0);
        assert!(waiter.locks(), "it is kept for who waits");
        assert!(begun.elapsed() < KEPT, "{:?}", begun.elapsed());
        waiter.unlocks();
    }

    // The client connects again, and is called by its new connection.
    let (old, session) = waiter.client.into_parts();
    let identity = Identity::user(1000, 1000);
    waiter.client = Nfs4Client::with_session(connection(address), identity, session);
    drop(old);
    let sessionid = waiter.client.session().slots.session();
    let bind = BindConnToSession4Args { sessionid, dir: 7, use_conn_in_rdma_mode: false };
    let compound = steadfast_client::nfs4::Compound::new().op(Op4::BindConnToSession, &bind);
    waiter.client.send(&compound).expect("bound");
    assert!(holder.locks() && !waiter.locks());
    holder.unlocks();
    let told = waiter.client.next_callback().expect("a callback");
    assert_eq!((told.sequence.sequenceid, waiter.locks()), (4, true));
}
