//! Locks of clients and of local processes exclude each other: NFSv4, and NLM on the same files.

use std::sync::{Arc, Mutex};

use steadfast_engine::{Export, Outbound, OutboundCall};
use steadfast_vfs::model::ModelFs;
use steadfast_vfs::{LocalLock, RangeLock, StorageHandle};
use steadfast_wire::nfs4::{
    Close4Args, Lock4Args, LockDenied4, LockOwner4, LockT4Args, LockType4, LockU4Args, Locker4,
    NfsStat4, Op4, StateId4,
};
use steadfast_wire::nlm::{NlmStat, v4};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::compounds::{HEADER_BYTES, Ops, stateid, xdr};
use crate::harness::{Client, Server, everything, rule, sender, share};
use crate::opens::open;

const NLM: u32 = steadfast_wire::nlm::PROGRAM;

/// A server with one file, of which the storage is at hand.
struct Site {
    server: Server,
    storage: Arc<ModelFs>,
    root: Vec<u8>,
    file: Vec<u8>,
    handle: StorageHandle,
    sent: Arc<Sent>,
}

#[derive(Default)]
struct Sent(Mutex<Vec<OutboundCall>>);

impl Outbound for Sent {
    fn send(&self, call: OutboundCall) {
        self.0.lock().unwrap().push(call);
    }

    fn record(&self, _: &[u8], _: std::net::IpAddr) -> bool {
        true
    }

    fn own_name(&self) -> &'static str {
        "server"
    }

    fn state_number(&self) -> u32 {
        5
    }
}

impl Site {
    fn new() -> Self {
        let storage = Arc::new(ModelFs::new(1, 0o777));
        let share = Arc::new(share(1, "/a", vec![rule("127.0.0.0", everything())]));
        let export = Export { share, storage: Arc::clone(&storage) as _ };
        let server = Server::of(vec![export]);
        let sent = Arc::new(Sent::default());
        server.engine.set_outbound(Arc::clone(&sent) as _);
        let client = Client::new(&server, b"maker", sender(9));
        let root = client.handle(&[b"a"]);
        let file = server.make_file(&root, b"f", 0o666);
        // The root is the model's first file, so this is the second.
        let handle = StorageHandle::new(&2_u64.to_be_bytes()).unwrap();
        Self { server, storage, root, file, handle, sent }
    }

    /// What is locked, by the server and by local processes.
    fn locked(&self) -> Vec<(u64, u64, RangeLock)> {
        let mut locked: Vec<(u64, u64, RangeLock)> = Vec::new();
        for LocalLock { first, last, kind } in self.storage.locked_ranges(&self.handle).unwrap() {
            match locked.last_mut() {
                Some(before) if before.2 == kind && before.1.checked_add(1) == Some(first) => {
                    before.1 = last;
                }
                _ => locked.push((first, last, kind)),
            }
        }
        locked
    }

    fn open<'s>(&'s self, owner: &[u8], number: u64) -> (Client<'s>, StateId4) {
        let client = Client::new(&self.server, owner, sender(number));
        let mut opened = client.run(&Ops::put(&self.root).then(&open(b"f", owner, 3, 0)));
        opened.ok(Op4::PutFh);
        opened.ok(Op4::Open);
        let id = opened.take(stateid);
        (client, id)
    }

    /// LOCK or TEST or whatever of NLM, by a host.
    fn nlm(&self, procedure: u32, arguments: &impl Encode) -> Vec<u8> {
        let from = sender(7);
        let mut message = self.server.message(&from, 4, procedure, &xdr(|w| arguments.encode(w)));
        message[12..16].copy_from_slice(&NLM.to_be_bytes());
        self.server.send(&from, &message).unwrap()[HEADER_BYTES..].to_vec()
    }

    fn nlm_lock(&self, block: bool) -> NlmStat {
        let lock = self.lock();
        let (cookie, exclusive) = (b"c", true);
        let args = v4::LockArgs { cookie, block, exclusive, lock, reclaim: false, state: 3 };
        v4::Res::decode(&mut Reader::new(&self.nlm(2, &args))).unwrap().stat
    }

    fn nlm_unlock(&self) -> NlmStat {
        let args = v4::UnlockArgs { cookie: b"c", lock: self.lock() };
        v4::Res::decode(&mut Reader::new(&self.nlm(4, &args))).unwrap().stat
    }

    fn lock(&self) -> v4::Lock<'_> {
        v4::Lock { caller_name: b"host", fh: &self.file, oh: b"o", svid: 1, offset: 0, length: 10 }
    }
}

/// Who locks by NFSv4, and its lock stateid.
struct Locker<'s> {
    site: &'s Site,
    client: Client<'s>,
    open: StateId4,
    lock: Option<StateId4>,
}

impl<'s> Locker<'s> {
    fn new(site: &'s Site, owner: &[u8], number: u64) -> Self {
        let (client, open) = site.open(owner, number);
        Self { site, client, open, lock: None }
    }

    fn lock(&mut self, kind: LockType4, offset: u64, length: u64) -> Result<(), Vec<u8>> {
        let locker = match self.lock {
            Some(lock_stateid) => Locker4::Lock { lock_stateid, lock_seqid: 0 },
            None => Locker4::Open {
                open_seqid: 0,
                open_stateid: self.open,
                lock_seqid: 0,
                lock_owner: LockOwner4 { clientid: 0, owner: b"p" },
            },
        };
        let args = Lock4Args { locktype: kind, reclaim: false, offset, length, locker };
        let mut reply = self.client.run(&Ops::put(&self.site.file).op(Op4::Lock, &args));
        reply.ok(Op4::PutFh);
        if reply.status != 0 {
            let head = reply.take(|r| (r.u32().unwrap(), r.u32().unwrap()));
            assert_eq!(head, (Op4::Lock as u32, NfsStat4::Denied as u32));
            return Err(reply.take(|r| r.fixed_opaque(r.remaining()).unwrap().to_vec()));
        }
        reply.ok(Op4::Lock);
        self.lock = Some(reply.take(stateid));
        Ok(())
    }

    fn unlock(&mut self, offset: u64, length: u64) {
        let (locktype, lock_stateid) = (LockType4::Read, self.lock.unwrap());
        let args = LockU4Args { locktype, seqid: 0, lock_stateid, offset, length };
        let mut reply = self.client.run(&Ops::put(&self.site.file).op(Op4::LockU, &args));
        reply.ok(Op4::PutFh);
        reply.ok(Op4::LockU);
        self.lock = Some(reply.take(stateid));
    }

    fn test(&self, kind: LockType4, offset: u64, length: u64) -> u32 {
        let owner = LockOwner4 { clientid: self.client.id, owner: b"q" };
        let args = LockT4Args { locktype: kind, offset, length, owner };
        self.client.run(&Ops::put(&self.site.file).op(Op4::LockT, &args)).status
    }

    fn close(self) {
        let close = Close4Args { seqid: 0, open_stateid: self.open };
        self.client.run(&Ops::put(&self.site.file).op(Op4::Close, &close)).succeeds();
    }
}

const MAX: u64 = u64::MAX;

#[test]
fn what_clients_have_is_held_together_and_as_long() {
    use RangeLock::{Read, Write};
    let site = Site::new();
    let mut one = Locker::new(&site, b"one", 1);
    let mut two = Locker::new(&site, b"two", 2);
    one.lock(LockType4::Read, 0, 20).unwrap();
    assert_eq!(site.locked(), [(0, 19, Read)]);
    two.lock(LockType4::Read, 10, MAX).unwrap();
    two.lock(LockType4::Write, 30, 10).unwrap();
    assert_eq!(site.locked().last(), Some(&(40, MAX, Read)));
    assert!(site.locked().contains(&(30, 39, Write)));
    one.lock(LockType4::Write, 15, 1).unwrap_err();
    one.lock(LockType4::Read, 35, 1).unwrap_err();
    let held =
        |at: u64| site.locked().into_iter().find(|(first, last, _)| (*first..=*last).contains(&at));
    assert_eq!(held(15).map(|held| held.2), Some(Read), "what was denied is undone");
    assert_eq!(held(35).map(|held| held.2), Some(Write), "and takes nothing away");
    // A write lock that becomes a read lock, and one that is given up under another's.
    two.lock(LockType4::Read, 30, 10).unwrap();
    assert_eq!(held(35).map(|held| held.2), Some(Read));
    one.unlock(0, MAX);
    assert_eq!((held(9), held(10).is_some()), (None, true));
    two.close();
    assert_eq!(site.locked(), []);
    one.lock(LockType4::Write, 0, MAX).unwrap();
    assert_eq!(site.locked(), [(0, MAX, Write)]);
    // Its lease expires, and another client asks for some of it.
    site.server.now_ms.set(91_000);
    let mut three = Locker::new(&site, b"three", 3);
    three.lock(LockType4::Read, 7, 1).unwrap();
    assert_eq!(site.locked(), [(7, 7, Read)]);
}

#[test]
fn a_local_process_keeps_clients_out_and_they_are_told_of_nobody() {
    let site = Site::new();
    let mut one = Locker::new(&site, b"one", 1);
    let local = site.storage.open_for_locks(&site.handle, RangeLock::Write).unwrap();
    assert_eq!(local.set(5, 9, Some(RangeLock::Write)), Ok(true));
    let told = one.lock(LockType4::Write, 0, 20).unwrap_err();
    let told = LockDenied4::decode(&mut Reader::new(&told)).unwrap();
    let nobody = LockOwner4 { clientid: 0, owner: b"" };
    let locktype = LockType4::Write;
    assert_eq!(told, LockDenied4 { offset: 5, length: 5, locktype, owner: nobody });
    one.lock(LockType4::Read, 0, 20).unwrap_err();
    assert_eq!(one.test(LockType4::Read, 0, 20), NfsStat4::Denied as u32);
    assert_eq!(one.test(LockType4::Read, 10, 20), 0);
    assert_eq!(site.locked().len(), 1, "nothing stays of what was denied");
    assert_eq!(site.nlm_lock(false), NlmStat::Denied);
    let test = v4::TestArgs { cookie: b"c", exclusive: false, lock: site.lock() };
    let reply = site.nlm(1, &test);
    let told = v4::TestRes::decode(&mut Reader::new(&reply)).unwrap();
    let holder = v4::Holder { exclusive: true, svid: 0, oh: b"", offset: 5, length: 5 };
    assert_eq!(told, v4::TestRes::Denied { cookie: b"c", holder });
    one.lock(LockType4::Write, 10, 10).unwrap();
    assert_eq!(local.set(15, 15, Some(RangeLock::Read)), Ok(false));
    // Who reads locally lets others read.
    assert_eq!(local.set(5, 9, Some(RangeLock::Read)), Ok(true));
    one.lock(LockType4::Read, 0, 10).unwrap();
    one.lock(LockType4::Write, 0, 10).unwrap_err();
    assert_eq!(local.set(5, 9, None), Ok(true));
    one.lock(LockType4::Write, 0, 10).unwrap();
}

#[test]
fn a_host_that_waits_is_told_when_the_local_process_is_done() {
    let site = Site::new();
    let local = site.storage.open_for_locks(&site.handle, RangeLock::Write).unwrap();
    let tick = |now_ms| {
        site.server.now_ms.set(now_ms);
        site.server.engine.tick(now_ms);
        std::mem::take(&mut *site.sent.0.lock().unwrap()).len()
    };
    assert_eq!(local.set(0, MAX, Some(RangeLock::Read)), Ok(true));
    assert_eq!(site.nlm_lock(true), NlmStat::Blocked);
    for second in 1..5 {
        assert_eq!(tick(1000 * second), 0);
    }
    assert_eq!(site.nlm_lock(true), NlmStat::Blocked, "it asks again, as Linux does");
    assert_eq!(local.set(0, MAX, None), Ok(true));
    assert_eq!(tick(6000), 1);
    assert_eq!(site.locked(), [(0, 9, RangeLock::Write)]);
    assert_eq!(local.set(3, 3, Some(RangeLock::Read)), Ok(false));
    assert_eq!(site.nlm_unlock(), NlmStat::Granted);
    assert_eq!(site.locked(), []);

    // The state grants what a client has freed; a local process was quicker.
    let mut one = Locker::new(&site, b"one", 1);
    one.lock(LockType4::Write, 0, 5).unwrap();
    assert_eq!(site.nlm_lock(true), NlmStat::Blocked);
    assert_eq!(local.set(7, 7, Some(RangeLock::Write)), Ok(true));
    one.unlock(0, 5);
    assert_eq!(tick(7000), 0);
    one.lock(LockType4::Write, 8, 1).unwrap_err();
    assert_eq!(local.set(7, 7, None), Ok(true));
    assert_eq!(tick(9000), 1);
    one.lock(LockType4::Read, 0, 1).unwrap_err();
    assert_eq!(site.locked(), [(0, 9, RangeLock::Write)]);
}
