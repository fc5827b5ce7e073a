//! Locks by NFSv4, whose server may lose them at any time.

use std::sync::Barrier;

use super::*;
use crate::nfs4::LockAsker;
use crate::nfs4::fake::{Fake, until};

const OWNER: u64 = 10;

struct Rig4 {
    fake: Arc<Fake>,
    server: Arc<Server>,
    locks: Arc<Locks>,
    node: Arc<Node>,
}

impl Rig4 {
    /// With a file that is open.
    fn new() -> Self {
        let fake = Arc::new(Fake::start());
        let nfs4 = Some(Arc::clone(&fake.client));
        let recovery = OnceLock::new();
        let server = Arc::new(Server { link: fake.link(), soft_after: None, recovery, nfs4 });
        let options = Options::parse("noresvport").unwrap();
        let root = FileHandle(vec![1, 2, 3, 4]);
        let (node, locks) = (node_of(&root), Locks::start(&server, &root, &options).unwrap());
        fake.take_told();
        let open = server
            .call(&Identity::root(), Patience::default(), |calls| calls.open(&root, true, true));
        open.unwrap();
        assert_eq!(fake.take_told(), ["open 3"]);
        Self { fake, server, locks, node }
    }

    fn set(&self, what: What) -> Receiver<Result<(), Errno>> {
        let (tell, told) = channel();
        self.locks.set(Task {
            node: Arc::clone(&self.node),
            owner: Owner(OWNER),
            span: Span::ALL,
            what,
            identity: Identity::root(),
            file: FILE,
            ticket: Ticket::new(0, false, move |outcome| tell.send(outcome).unwrap()),
            pause: Duration::ZERO,
        });
        told
    }

    /// Locks the file; before the program knows that it has the lock for the first time, the server does this.
    fn lock(&self, meanwhile: impl Fn(&Fake) + Send + Sync + 'static) -> Result<(), Errno> {
        let (fake, server) = (Arc::clone(&self.fake), Arc::clone(&self.server));
        let (handle, is_done) = (self.node.handle(), AtomicBool::new(false));
        let granted = move || {
            if !is_done.swap(true, Ordering::AcqRel) {
                meanwhile(&fake);
            }
            // As a mount looks at the file, with whatever comes of it.
            let asked =
                server.call(&Identity::root(), Patience::default(), |calls| calls.getattr(&handle));
            drop(asked);
        };
        let granted = Arc::new(granted);
        told(&self.set(What::Lock { kind: Kind::Write, waits: false, granted }))
    }
}

#[test]
fn a_lock_that_the_server_loses_before_the_program_has_it_is_asked_for_again() {
    let rig = Rig4::new();
    assert_eq!(rig.lock(Fake::restart), Ok(()));
    let told = rig.fake.take_told();
    assert!(
        told.starts_with(&["lock 0", "reclaim 3", "complete", "lock 0"].map(str::to_owned)),
        "{told:?}"
    );
    assert_eq!((rig.locks.told().held, rig.locks.told().lost), (1, 0));
    // It is reclaimed as any other one.
    rig.fake.restart();
    until("it is reclaimed", || rig.fake.take_told().contains(&"relock 0".to_owned()));
    rig.locks.close();
}

#[test]
fn a_lock_that_is_taken_away_before_the_program_has_it_is_asked_for_again() {
    let rig = Rig4::new();
    assert_eq!(rig.lock(Fake::revoke), Ok(()));
    let told = rig.fake.take_told();
    assert!(told.starts_with(&["lock 0", "open 3", "lock 0"].map(str::to_owned)), "{told:?}");
    assert_eq!((rig.locks.told().held, rig.locks.told().lost), (1, 0));
    rig.locks.close();
}

#[test]
fn a_lock_that_is_reclaimed_while_it_is_unlocked_is_unlocked_again() {
    let rig = Rig4::new();
    assert_eq!(rig.lock(|_| {}), Ok(()));
    assert_eq!(rig.fake.take_told(), ["lock 0"]);
    let number = {
        let mut state = rig.locks.state.lock();
        state.owner((rig.node.number, Owner(OWNER))).unwrap().remote.number
    };
    let (identity, handle) = (Identity::root(), rig.node.handle());
    let asker = LockAsker { identity: &identity, handle: &handle, number };
    let barrier = Arc::new(Barrier::new(2));
    let waits = Arc::clone(&barrier);
    let is_safe = move |_| {
        // Until the table cannot be changed.
        waits.wait();
        waits.wait();
        true
    };
    let unlocked = rig.set(What::Unlock { is_safe: Some(Arc::new(is_safe)) });
    barrier.wait();
    let state = rig.locks.state.lock();
    barrier.wait();
    let client = &rig.fake.client;
    until("it is unlocked", || !client.has_lock(asker, client.epoch()));
    rig.fake.reclaim(asker, (0, u64::MAX, true));
    assert_eq!(rig.fake.take_told(), ["unlock 0", "open 3", "lock 0"]);
    drop(state);
    assert_eq!(told(&unlocked), Ok(()));
    until("it is unlocked again", || rig.fake.take_told() == ["unlock 0"]);
    until("nobody is known any more", || rig.locks.state.lock().files.is_empty());
    rig.locks.close();
}
