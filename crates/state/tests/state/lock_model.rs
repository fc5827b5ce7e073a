//! Opens and locks of several clients against a naive model: an array of bytes. Ring: property.

use std::sync::Arc;

use crate::common::{
    BOTH, DENY_NONE, LEASE_MS, READ, WRITE, client, create, exchange, file, state,
};
use crate::local::Shown;
use proptest::prelude::*;
use steadfast_state::{
    Client, FileKey, Lock, LockBy, LockError, LockKind, LockRange, Open, ShareAccess, State,
    StateError, StateId,
};

const CLIENTS: usize = 3;
const FILES: u8 = 2;
/// Bytes of a file. The last one stands for all that follow.
const BYTES: usize = 20;

/// A stateid that is asked for: one of the client's own, or any that there ever was.
#[derive(Clone, Copy, Debug)]
struct Named {
    number: usize,
    is_any: bool,
    /// Its seqid: the latest, 0 for the latest, or another.
    seqid: Seqid,
    /// It is used at the other file.
    is_elsewhere: bool,
}

#[derive(Clone, Copy, Debug)]
enum Seqid {
    Latest,
    Zero,
    Older,
    Newer,
}

#[derive(Clone, Copy, Debug)]
struct Bytes {
    first: usize,
    last: usize,
}

impl Bytes {
    fn range(self) -> LockRange {
        let is_open_ended = self.last == BYTES - 1;
        let length = if is_open_ended { u64::MAX } else { (self.last - self.first + 1) as u64 };
        LockRange { offset: self.first as u64, length }
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Open { owner: u8, file: u8, access: ShareAccess },
    Close { id: Named },
    LockByOpen { id: Named, owner: u8, kind: LockKind, bytes: Bytes },
    LockByLock { id: Named, kind: LockKind, bytes: Bytes },
    Unlock { id: Named, bytes: Bytes },
    Test { owner: u8, file: u8, kind: LockKind, bytes: Bytes },
    Free { id: Named, is_lock: bool },
    Judge { id: Named, is_lock: bool, access: ShareAccess },
    Wait { leases: u64 },
    Restart,
}

fn what() -> impl Strategy<Value = What> {
    let access = prop_oneof![3 => Just(BOTH), 1 => Just(READ), 1 => Just(WRITE)];
    let kind = prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
    let bytes = (0..BYTES, 0..BYTES)
        .prop_map(|(one, other)| Bytes { first: one.min(other), last: one.max(other) });
    let seqid = prop_oneof![
        8 => Just(Seqid::Latest), 4 => Just(Seqid::Zero), 1 => Just(Seqid::Older),
        1 => Just(Seqid::Newer)
    ];
    let weighted = proptest::bool::weighted;
    let id = (0..60_usize, weighted(0.1), seqid, weighted(0.05)).prop_map(
        |(number, is_any, seqid, is_elsewhere)| Named { number, is_any, seqid, is_elsewhere },
    );
    let (owner, at) = (0..2_u8, 0..FILES);
    let opens = (owner.clone(), at.clone(), access.clone())
        .prop_map(|(owner, file, access)| What::Open { owner, file, access });
    let by_open = (id.clone(), owner.clone(), kind.clone(), bytes.clone())
        .prop_map(|(id, owner, kind, bytes)| What::LockByOpen { id, owner, kind, bytes });
    let by_lock = (id.clone(), kind.clone(), bytes.clone())
        .prop_map(|(id, kind, bytes)| What::LockByLock { id, kind, bytes });
    let unlock = (id.clone(), bytes.clone()).prop_map(|(id, bytes)| What::Unlock { id, bytes });
    let test = (owner, at, kind, bytes).prop_map(|(owner, file, kind, bytes)| What::Test {
        owner,
        file,
        kind,
        bytes,
    });
    let free = (id.clone(), weighted(0.8)).prop_map(|(id, is_lock)| What::Free { id, is_lock });
    let judge = (id.clone(), any::<bool>(), access).prop_map(|(id, is_lock, access)| What::Judge {
        id,
        is_lock,
        access,
    });
    prop_oneof![
        8 => opens,
        2 => id.prop_map(|id| What::Close { id }),
        10 => by_open,
        6 => by_lock,
        6 => unlock,
        3 => test,
        3 => free,
        3 => judge,
        2 => (0..2_u64).prop_map(|leases| What::Wait { leases }),
        1 => Just(What::Restart),
    ]
}

/// An open or a lock stateid of the model.
#[derive(Clone, Debug)]
struct Known {
    client: usize,
    owner: u8,
    file: u8,
    id: StateId,
    /// What an open is for.
    access: ShareAccess,
    /// The open of a lock stateid.
    open: Option<[u8; 12]>,
}

/// One byte that is locked.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    client: usize,
    owner: u8,
    kind: LockKind,
    open: [u8; 12],
}

/// The state and its model, side by side.
struct Both {
    state: State,
    clients: Vec<Arc<Client>>,
    verifiers: Vec<u64>,
    now_ms: u64,
    renewed_ms: Vec<u64>,
    is_gone: Vec<bool>,
    known: Vec<Known>,
    bytes: Vec<Vec<Vec<Held>>>,
    ids: Vec<StateId>,
    shown: Shown,
}

impl Both {
    fn new() -> Self {
        let state = state();
        let shown = Shown::watching(&state);
        let clients = (0..CLIENTS).map(|number| client(&state, 0, &number.to_string())).collect();
        Self {
            state,
            clients,
            verifiers: vec![1; CLIENTS],
            now_ms: 0,
            renewed_ms: vec![0; CLIENTS],
            is_gone: vec![false; CLIENTS],
            known: Vec::new(),
            bytes: vec![vec![Vec::new(); BYTES]; usize::from(FILES)],
            ids: Vec::new(),
            shown,
        }
    }

    fn hear(&mut self, client: usize) {
        if self.is_gone[client] {
            self.restart(client);
        }
        self.clients[client].renew(self.now_ms);
        self.renewed_ms[client] = self.now_ms;
    }

    fn restart(&mut self, client: usize) {
        self.end(client);
        self.verifiers[client] += 1;
        let (name, verifier) = (client.to_string(), self.verifiers[client]);
        let new = exchange(&self.state, self.now_ms, &name, verifier, "root").expect("exchange");
        let created = create(&self.state, self.now_ms, new.client, 1, "root").expect("create");
        let session = self.state.session(&created.session).expect("created");
        self.clients[client] = Arc::clone(session.client());
        self.renewed_ms[client] = self.now_ms;
        self.is_gone[client] = false;
    }

    fn end(&mut self, client: usize) {
        self.is_gone[client] = true;
        self.known.retain(|known| known.client != client);
        self.all_bytes(|held| held.client != client);
    }

    fn all_bytes(&mut self, stays: impl Fn(&Held) -> bool) {
        self.bytes.iter_mut().flatten().for_each(|held| held.retain(&stays));
    }

    /// The stateid that is named, and the file that it is used at.
    fn id(&self, client: usize, named: Named, is_lock: bool) -> (StateId, u8) {
        let own: Vec<&Known> = self
            .known
            .iter()
            .filter(|known| known.client == client && known.open.is_some() == is_lock)
            .collect();
        let own = own.get(named.number % own.len().max(1)).filter(|_| !named.is_any);
        let any = self.ids.get(named.number % self.ids.len().max(1));
        let id = own.map(|own| own.id).or(any.copied());
        let id = id.unwrap_or(StateId { seqid: 1, other: [9; 12] });
        let known = self.known.iter().find(|known| known.id.other == id.other);
        let latest = known.map_or(1, |known| known.id.seqid);
        let seqid = match named.seqid {
            Seqid::Latest => latest,
            Seqid::Zero => 0,
            // 0 if there is no older one.
            Seqid::Older => latest - 1,
            Seqid::Newer => latest + 1,
        };
        let at = known.map_or(0, |known| known.file);
        (StateId { seqid, ..id }, if named.is_elsewhere { (at + 1) % FILES } else { at })
    }

    fn named(
        &self,
        client: usize,
        id: &StateId,
        is_lock: Option<bool>,
    ) -> Result<usize, StateError> {
        let is_it = |known: &Known| {
            known.client == client
                && known.id.other == id.other
                && is_lock.is_none_or(|is_lock| known.open.is_some() == is_lock)
        };
        let place = self.known.iter().position(is_it).ok_or(StateError::BadStateId)?;
        match self.known[place].id.seqid {
            latest if id.seqid == 0 || id.seqid == latest => Ok(place),
            latest if id.seqid < latest => Err(StateError::OldStateId),
            _ => Err(StateError::BadStateId),
        }
    }

    fn named_at(
        &self,
        client: usize,
        id: &StateId,
        at: u8,
        is_lock: Option<bool>,
    ) -> Result<usize, StateError> {
        let place = self.named(client, id, is_lock)?;
        if self.known[place].file == at { Ok(place) } else { Err(StateError::BadStateId) }
    }

    fn access_of(&self, place: usize) -> ShareAccess {
        let other = self.known[place].open.unwrap_or(self.known[place].id.other);
        let open = self.known.iter().find(|known| known.id.other == other);
        open.expect("locks go with their open").access
    }

    fn in_the_way(
        &self,
        client: usize,
        owner: u8,
        at: u8,
        kind: LockKind,
        bytes: Bytes,
    ) -> Vec<Held> {
        let within = &self.bytes[usize::from(at)][bytes.first..=bytes.last];
        let is_other = |held: &&Held| (held.client, held.owner) != (client, owner);
        let conflicts = |held: &&Held| held.kind == LockKind::Write || kind == LockKind::Write;
        within.iter().flatten().filter(is_other).filter(conflicts).copied().collect()
    }

    fn is_alive(&self, asking: usize, other: usize) -> bool {
        other == asking || self.now_ms - self.renewed_ms[other] <= LEASE_MS
    }

    /// What the model says of a denied lock: the conflict is one of a living client's.
    fn check_denied(
        &self,
        asking: usize,
        in_the_way: &[Held],
        found: &LockError,
    ) -> Result<(), TestCaseError> {
        let LockError::Denied(conflict) = found else {
            return Err(TestCaseError::fail(format!("{found:?}")));
        };
        let is_told = in_the_way.iter().any(|held| {
            self.clients[held.client].id() == conflict.client
                && *conflict.owner == [held.owner]
                && held.kind == conflict.kind
                && self.is_alive(asking, held.client)
        });
        prop_assert!(is_told, "{:?}", conflict);
        Ok(())
    }

    fn lock(
        &mut self,
        (client, owner): (usize, u8),
        by: LockBy<'_>,
        named: Result<usize, StateError>,
        at: u8,
        kind: LockKind,
        bytes: Bytes,
    ) -> Result<(), TestCaseError> {
        let request = Lock { file: file(at), kind, range: bytes.range(), by, is_waited_for: false };
        let found = self.state.lock(&self.clients[client], &request);
        let needed = if kind == LockKind::Read { READ } else { WRITE };
        let judged = named.and_then(|place| {
            let may = self.access_of(place).contains(needed);
            if may { Ok(place) } else { Err(StateError::OpenMode) }
        });
        let place = match judged {
            Ok(place) => place,
            Err(error) => {
                prop_assert_eq!(found, Err(LockError::State(error)));
                return Ok(());
            }
        };
        let in_the_way = self.in_the_way(client, owner, at, kind, bytes);
        if in_the_way.iter().any(|held| self.is_alive(client, held.client)) {
            let error = found.err().ok_or_else(|| TestCaseError::fail("granted"))?;
            return self.check_denied(client, &in_the_way, &error);
        }
        let open = self.known[place].open.unwrap_or(self.known[place].id.other);
        for held in in_the_way {
            self.end(held.client);
        }
        let id = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let is_it = |known: &&mut Known| known.open == Some(open) && known.owner == owner;
        if let Some(known) = self.known.iter_mut().find(is_it) {
            prop_assert_eq!(id, StateId { seqid: known.id.seqid + 1, ..known.id });
            known.id = id;
        } else {
            prop_assert_eq!(id.seqid, 1);
            prop_assert!(self.ids.iter().all(|known| known.other != id.other), "reused");
            let access = ShareAccess::empty();
            self.known.push(Known { client, owner, file: at, id, access, open: Some(open) });
            self.ids.push(id);
        }
        for byte in &mut self.bytes[usize::from(at)][bytes.first..=bytes.last] {
            byte.retain(|held| (held.client, held.owner) != (client, owner));
            byte.push(Held { client, owner, kind, open });
        }
        Ok(())
    }

    fn open(
        &mut self,
        client: usize,
        owner: u8,
        at: u8,
        access: ShareAccess,
    ) -> Result<(), TestCaseError> {
        let request = Open { owner: &[owner], file: file(at), access, deny: DENY_NONE };
        let id = self.state.open(&self.clients[client], &request).expect("nobody denies");
        let is_it = |known: &&mut Known| {
            known.open.is_none() && (known.client, known.owner, known.file) == (client, owner, at)
        };
        if let Some(known) = self.known.iter_mut().find(is_it) {
            prop_assert_eq!(id, StateId { seqid: known.id.seqid + 1, ..known.id });
            known.id = id;
            known.access |= access;
        } else {
            self.known.push(Known { client, owner, file: at, id, access, open: None });
            self.ids.push(id);
        }
        Ok(())
    }

    fn unlock(&mut self, client: usize, named: Named, bytes: Bytes) -> Result<(), TestCaseError> {
        let (id, at) = self.id(client, named, true);
        let found = self.state.unlock(&self.clients[client], &id, &file(at), bytes.range());
        let expected = self.named_at(client, &id, at, Some(true)).map(|place| {
            let known = &mut self.known[place];
            known.id.seqid += 1;
            let owner = known.owner;
            for byte in &mut self.bytes[usize::from(at)][bytes.first..=bytes.last] {
                byte.retain(|held| (held.client, held.owner) != (client, owner));
            }
            known.id
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn free(&mut self, client: usize, id: StateId) -> Result<(), TestCaseError> {
        let found = self.state.free(&self.clients[client], &id);
        let expected = self.named(client, &id, None).and_then(|place| {
            let known = self.known[place].clone();
            let mut held = self.bytes[usize::from(known.file)].iter().flatten();
            let is_its = |held: &Held| Some(held.open) == known.open && held.owner == known.owner;
            if known.open.is_none() || held.any(is_its) {
                return Err(StateError::LocksHeld);
            }
            self.known.remove(place);
            Ok(())
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn close(&mut self, client: usize, named: Named) -> Result<(), TestCaseError> {
        let (id, at) = self.id(client, named, false);
        let found = self.state.close(&self.clients[client], &id, Some(&file(at)));
        let expected = self.named_at(client, &id, at, Some(false)).map(|_| {
            self.known.retain(|known| known.id.other != id.other && known.open != Some(id.other));
            self.all_bytes(|held| held.open != id.other);
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn judge(
        &mut self,
        client: usize,
        (id, at): (StateId, u8),
        wanted: ShareAccess,
    ) -> Result<(), TestCaseError> {
        let found = self.state.judge(&self.clients[client], &id, &file(at), wanted);
        let expected = self.named_at(client, &id, at, None).and_then(|place| {
            // Nobody denies reading.
            let may = wanted == READ || self.access_of(place).contains(wanted);
            if may { Ok(()) } else { Err(StateError::OpenMode) }
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn step(&mut self, client: usize, what: What) -> Result<(), TestCaseError> {
        self.hear(client);
        match what {
            What::Open { owner, file, access } => self.open(client, owner, file, access)?,
            What::Close { id } => self.close(client, id)?,
            What::LockByOpen { id, owner, kind, bytes } => {
                let (id, at) = self.id(client, id, false);
                let named = self.named_at(client, &id, at, Some(false));
                let by = LockBy::Open { open: id, owner: &[owner] };
                self.lock((client, owner), by, named, at, kind, bytes)?;
            }
            What::LockByLock { id, kind, bytes } => {
                let (id, at) = self.id(client, id, true);
                let named = self.named_at(client, &id, at, Some(true));
                let owner = named.map_or(0, |place| self.known[place].owner);
                self.lock((client, owner), LockBy::Lock(id), named, at, kind, bytes)?;
            }
            What::Unlock { id, bytes } => self.unlock(client, id, bytes)?,
            What::Test { owner, file: at, kind, bytes } => {
                let (range, by) = (bytes.range(), &self.clients[client]);
                let found = self.state.test_lock(by, &file(at), kind, range, &[owner]);
                let in_the_way = self.in_the_way(client, owner, at, kind, bytes);
                if let Err(error) = found {
                    self.check_denied(client, &in_the_way, &error)?;
                } else {
                    let is_living = |held: &Held| self.is_alive(client, held.client);
                    prop_assert!(!in_the_way.iter().any(is_living));
                }
            }
            What::Free { id, is_lock } => {
                let (id, _) = self.id(client, id, is_lock);
                self.free(client, id)?;
            }
            What::Judge { id, is_lock, access } => {
                let named = self.id(client, id, is_lock);
                self.judge(client, named, access)?;
            }
            What::Wait { leases } => {
                self.now_ms += leases * LEASE_MS + 7;
                self.state.tick(self.now_ms);
            }
            What::Restart => self.restart(client),
        }
        Ok(())
    }

    /// The ranges of a file that the model has: first byte, length, kind, client, owner.
    fn ranges(&self, at: u8) -> Vec<(u64, u64, LockKind, u64, u8)> {
        let bytes = &self.bytes[usize::from(at)];
        let mut ranges = Vec::new();
        for (first, byte) in bytes.iter().enumerate() {
            for held in byte {
                if first > 0 && bytes[first - 1].contains(held) {
                    continue;
                }
                let run = bytes[first..].iter().take_while(|byte| byte.contains(held)).count();
                let range = Bytes { first, last: first + run - 1 }.range();
                let client = self.clients[held.client].id().0;
                ranges.push((range.offset, range.length, held.kind, client, held.owner));
            }
        }
        ranges.sort_unstable();
        ranges
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let mut count = 0;
        for at in 0..FILES {
            let key: FileKey = file(at);
            let locks = self.state.locks(&key);
            let mut found: Vec<_> = locks
                .iter()
                .map(|lock| {
                    let LockRange { offset, length } = lock.range;
                    (offset, length, lock.kind, lock.client.0, lock.owner[0])
                })
                .collect();
            found.sort_unstable();
            count += found.len();
            prop_assert_eq!(found, self.ranges(at));
            // Invariant 4.
            for byte in &self.bytes[usize::from(at)] {
                let writes = byte.iter().filter(|held| held.kind == LockKind::Write).count();
                prop_assert!(writes == 0 || byte.len() == 1);
            }
        }
        self.shown.check(&self.state, &[file(0), file(1)]);
        let reports = self.state.clients(self.now_ms);
        prop_assert_eq!(reports.iter().map(|report| report.locks).sum::<usize>(), count);
        for known in &self.known {
            prop_assert_eq!(self.state.test(&self.clients[known.client], &known.id), Ok(()));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn locks_are_as_the_model_has_them(
        steps in proptest::collection::vec((0..CLIENTS, what()), 0..80)
    ) {
        let mut both = Both::new();
        for (client, what) in steps {
            both.step(client, what)?;
            both.check()?;
        }
        for client in 0..CLIENTS {
            if !both.is_gone[client] {
                both.state.remove_client(both.clients[client].id()).expect("alive");
            }
        }
        prop_assert_eq!((both.state.opens(), both.state.open_files()), (0, 0));
        prop_assert!((0..FILES).all(|at| both.state.locks(&file(at)).is_empty()));
        both.shown.check(&both.state, &[file(0), file(1)]);
    }
}
