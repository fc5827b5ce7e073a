//! Opens against a list of what was asked for. Ring: property.

use std::sync::Arc;

use crate::common::{DENY_NONE, LEASE_MS, READ, client, create, exchange, file, state};
use proptest::prelude::*;
use steadfast_state::{
    Client, FileKey, Granted, Open, Repeats, ShareAccess, ShareDeny, State, StateError, StateId,
};

/// The naive model: a list of opens, each with the list of what was asked for.
#[derive(Clone, Debug)]
struct Listed {
    client: usize,
    owner: u8,
    file: u8,
    asked: Vec<(ShareAccess, ShareDeny)>,
    id: StateId,
}

impl Listed {
    fn share(&self) -> (ShareAccess, ShareDeny) {
        union(&self.asked)
    }
}

fn union(shares: &[(ShareAccess, ShareDeny)]) -> (ShareAccess, ShareDeny) {
    let none = (ShareAccess::empty(), ShareDeny::empty());
    shares.iter().fold(none, |(access, deny), share| (access | share.0, deny | share.1))
}

fn conflicts(one: (ShareAccess, ShareDeny), two: (ShareAccess, ShareDeny)) -> bool {
    one.0.bits() & two.1.bits() != 0 || one.1.bits() & two.0.bits() != 0
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open {
        client: usize,
        owner: u8,
        file: u8,
        access: ShareAccess,
        deny: ShareDeny,
        is_held: bool,
    },
    Close {
        client: usize,
        id: usize,
        behind: u32,
        file: Option<u8>,
    },
    Downgrade {
        client: usize,
        id: usize,
        behind: u32,
        access: ShareAccess,
        deny: ShareDeny,
    },
    Judge {
        client: usize,
        id: usize,
        behind: u32,
        file: u8,
        access: ShareAccess,
    },
    Special {
        client: usize,
        is_bypass: bool,
        file: u8,
        access: ShareAccess,
    },
    /// Time goes on.
    Wait {
        leases: u64,
    },
    /// A client restarts.
    Restart {
        client: usize,
    },
    /// The first OPEN that may still be taken back is, or stays.
    Settle {
        stays: bool,
    },
}

const CLIENTS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    let access = (1..=3_u8).prop_map(ShareAccess::from_bits_truncate);
    let deny = prop_oneof![3 => Just(0), 1 => 1..=3_u8].prop_map(ShareDeny::from_bits_truncate);
    let behind = prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(u32::MAX), 1 => Just(99)];
    let which = (client.clone(), 0..2_u8, 0..3_u8);
    let open = (which, access.clone(), deny.clone(), any::<bool>()).prop_map(
        |((client, owner, file), access, deny, is_held)| Step::Open {
            client,
            owner,
            file,
            access,
            deny,
            is_held,
        },
    );
    let settle = any::<bool>().prop_map(|stays| Step::Settle { stays });
    let close = (client.clone(), 0..40_usize, behind.clone(), proptest::option::of(0..3_u8))
        .prop_map(|(client, id, behind, file)| Step::Close { client, id, behind, file });
    let downgrade = (client.clone(), 0..40_usize, behind.clone(), access.clone(), deny).prop_map(
        |(client, id, behind, access, deny)| Step::Downgrade { client, id, behind, access, deny },
    );
    let judge = (client.clone(), 0..40_usize, behind, 0..3_u8, access.clone()).prop_map(
        |(client, id, behind, file, access)| Step::Judge { client, id, behind, file, access },
    );
    let special = (client.clone(), any::<bool>(), 0..3_u8, access).prop_map(
        |(client, is_bypass, file, access)| Step::Special { client, is_bypass, file, access },
    );
    let wait = (0..2_u64).prop_map(|leases| Step::Wait { leases });
    let restart = client.prop_map(|client| Step::Restart { client });
    prop_oneof![
        12 => open, 4 => close, 3 => downgrade, 4 => judge, 2 => special, 2 => wait, 1 => restart,
        5 => settle
    ]
}

/// The state and its model, side by side.
struct Both {
    state: State,
    clients: Vec<Arc<Client>>,
    verifiers: Vec<u64>,
    now_ms: u64,
    renewed_ms: Vec<u64>,
    is_gone: Vec<bool>,
    opens: Vec<Listed>,
    /// OPENs that may still be taken back: what each asked for, and the seqid before it, or 0.
    held: Vec<(Granted, (ShareAccess, ShareDeny), u32)>,
    /// Stateids of OPENs that failed when others had followed them, with the seqids before them.
    failed: Vec<(StateId, u32)>,
    /// All stateids that there ever were.
    ids: Vec<StateId>,
}

impl Both {
    fn new() -> Self {
        let state = state();
        let clients = (0..CLIENTS).map(|number| client(&state, 0, &number.to_string())).collect();
        Self {
            state,
            clients,
            verifiers: vec![1; CLIENTS],
            now_ms: 0,
            renewed_ms: vec![0; CLIENTS],
            is_gone: vec![false; CLIENTS],
            opens: Vec::new(),
            held: Vec::new(),
            failed: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// A client that is heard has its lease renewed, as by SEQUENCE; one that is gone comes back.
    fn hear(&mut self, client: usize) {
        if self.is_gone[client] {
            self.restart(client);
        }
        self.clients[client].renew(self.now_ms);
        self.renewed_ms[client] = self.now_ms;
    }

    fn restart(&mut self, client: usize) {
        self.verifiers[client] += 1;
        let (name, verifier) = (client.to_string(), self.verifiers[client]);
        let exchanged =
            exchange(&self.state, self.now_ms, &name, verifier, "root").expect("exchange");
        let created = create(&self.state, self.now_ms, exchanged.client, 1, "root");
        let session = self.state.session(&created.expect("create").session).expect("created");
        self.clients[client] = Arc::clone(session.client());
        self.renewed_ms[client] = self.now_ms;
        self.is_gone[client] = false;
        self.opens.retain(|open| open.client != client);
    }

    /// What the model says of a share: others that conflict, unless all of them are expired.
    fn clear(
        &mut self,
        client: usize,
        own: Option<StateId>,
        at: u8,
        wanted: (ShareAccess, ShareDeny),
        error: StateError,
    ) -> Result<(), StateError> {
        let in_the_way: Vec<usize> = self
            .opens
            .iter()
            .filter(|open| open.file == at && own.is_none_or(|own| own.other != open.id.other))
            .filter(|open| conflicts(open.share(), wanted))
            .map(|open| open.client)
            .collect();
        let is_alive =
            |other: &usize| *other == client || self.now_ms - self.renewed_ms[*other] <= LEASE_MS;
        if in_the_way.iter().any(is_alive) {
            return Err(error);
        }
        for gone in in_the_way {
            self.is_gone[gone] = true;
            self.opens.retain(|open| open.client != gone);
        }
        Ok(())
    }

    fn named(&self, client: usize, id: &StateId) -> Result<usize, StateError> {
        let place = self
            .opens
            .iter()
            .position(|open| open.client == client && open.id.other == id.other)
            .ok_or(StateError::BadStateId)?;
        let latest = self.opens[place].id.seqid;
        match id.seqid {
            0 => Ok(place),
            seqid if seqid == latest => Ok(place),
            seqid if seqid < latest => Err(StateError::OldStateId),
            _ => Err(StateError::BadStateId),
        }
    }

    fn id(&self, number: usize, behind: u32) -> StateId {
        let known = self.ids.get(number % self.ids.len().max(1)).copied();
        let id = known.unwrap_or(StateId { seqid: 1, other: [9; 12] });
        let latest = self.opens.iter().find(|open| open.id.other == id.other);
        let seqid = latest.map_or(id.seqid, |open| open.id.seqid);
        // 99 stands for "the latest", and -1 for one that there is not yet.
        let seqid = if behind == 99 { 0 } else { seqid.saturating_sub(behind) };
        StateId { seqid: if behind == u32::MAX { id.seqid + 90 } else { seqid }, ..id }
    }

    fn open(
        &mut self,
        client: usize,
        owner: u8,
        at: u8,
        share: (ShareAccess, ShareDeny),
        is_held: bool,
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let request = Open { owner: &[owner], file: file(at), access: share.0, deny: share.1 };
        let mut granted =
            Some(self.state.grant_open(&self.clients[client], &request, Repeats::None));
        let found = match &granted {
            Some(Ok(granted)) => Ok(granted.id()),
            Some(Err(error)) => Err(*error),
            None => unreachable!(),
        };
        let granted = granted.take_if(|_| is_held).and_then(Result::ok);
        let is_own =
            |open: &&mut Listed| (open.client, open.owner, open.file) == (client, owner, at);
        if let Err(error) = self.clear(client, None, at, share, StateError::ShareDenied) {
            prop_assert_eq!(found, Err(error));
            return Ok(());
        }
        let id = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
        if let Some(open) = self.opens.iter_mut().find(is_own) {
            prop_assert_eq!(id, StateId { seqid: open.id.seqid + 1, ..open.id });
            self.failed.retain(|(failed, _)| *failed != id);
            open.asked.push(share);
            self.held.extend(granted.map(|granted| (granted, share, open.id.seqid)));
            open.id = id;
        } else {
            prop_assert_eq!(id.seqid, 1);
            prop_assert!(self.ids.iter().all(|known| known.other != id.other), "reused");
            self.opens.push(Listed { client, owner, file: at, asked: vec![share], id });
            self.held.extend(granted.map(|granted| (granted, share, 0)));
            self.ids.push(id);
        }
        Ok(())
    }

    /// What was asked for goes once, wherever it was asked for otherwise; an open with its last.
    fn settle(&mut self, stays: bool) {
        if self.held.is_empty() {
            return;
        }
        let (granted, share, seqid_before) = self.held.remove(0);
        let id = granted.id();
        if stays {
            return drop(granted);
        }
        self.state.take_back(granted);
        let Some(open) = self.opens.iter_mut().find(|open| open.id.other == id.other) else {
            return;
        };
        if seqid_before > 0 {
            self.failed.push((id, seqid_before));
        }
        // Below the latest one that did not fail.
        while let Some((_, before)) = self.failed.iter().find(|(failed, _)| *failed == open.id) {
            open.id.seqid = *before;
        }
        if let Some(place) = open.asked.iter().position(|asked| *asked == share) {
            open.asked.swap_remove(place);
        }
        self.opens.retain(|open| !open.asked.is_empty());
    }

    fn downgrade(
        &mut self,
        client: usize,
        id: StateId,
        to: (ShareAccess, ShareDeny),
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let named = self.named(client, &id);
        let at = named.map_or(0, |place| self.opens[place].file);
        let found = self.state.downgrade(&self.clients[client], &id, &file(at), to.0, to.1);
        let place = match named {
            Ok(place) => place,
            Err(error) => {
                prop_assert_eq!(found, Err(error));
                return Ok(());
            }
        };
        let open = &mut self.opens[place];
        // All subsets of what was asked for.
        let mut asked = open.asked.clone();
        asked.sort_by_key(|(access, deny)| (access.bits(), deny.bits()));
        asked.dedup();
        let is_union = (1..1_u32 << asked.len()).any(|subset| {
            let chosen: Vec<_> = (0..asked.len())
                .filter(|place| subset >> place & 1 == 1)
                .map(|place| asked[place])
                .collect();
            union(&chosen) == to
        });
        if is_union {
            open.id.seqid += 1;
            open.asked.retain(|share| to.0.contains(share.0) && to.1.contains(share.1));
            self.held.retain(|(granted, ..)| granted.id().other != open.id.other);
            prop_assert_eq!(found, Ok(open.id));
        } else {
            prop_assert_eq!(found, Err(StateError::Invalid));
        }
        Ok(())
    }

    fn judge(
        &mut self,
        client: usize,
        id: StateId,
        at: u8,
        wanted: ShareAccess,
    ) -> Result<(), TestCaseError> {
        self.hear(client);
        let found = self.state.judge(&self.clients[client], &id, &file(at), wanted);
        let expected = self.named(client, &id).and_then(|place| {
            let open = self.opens[place].clone();
            if open.file != at {
                Err(StateError::BadStateId)
            } else if open.share().0.contains(wanted) {
                Ok(())
            } else if wanted == READ {
                let wanted = (wanted, DENY_NONE);
                self.clear(client, Some(open.id), at, wanted, StateError::Locked)
            } else {
                Err(StateError::OpenMode)
            }
        });
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Open { client, owner, file, access, deny, is_held } => {
                self.open(client, owner, file, (access, deny), is_held)?;
            }
            Step::Close { client, id, behind, file: at } => {
                self.hear(client);
                let id = self.id(id, behind);
                let key: Option<FileKey> = at.map(file);
                let found = self.state.close(&self.clients[client], &id, key.as_ref());
                let expected = self.named(client, &id).and_then(|place| {
                    if at.is_some_and(|at| at != self.opens[place].file) {
                        return Err(StateError::BadStateId);
                    }
                    self.opens.remove(place);
                    Ok(())
                });
                prop_assert_eq!(found, expected);
            }
            Step::Downgrade { client, id, behind, access, deny } => {
                let id = self.id(id, behind);
                self.downgrade(client, id, (access, deny))?;
            }
            Step::Judge { client, id, behind, file, access } => {
                let id = self.id(id, behind);
                self.judge(client, id, file, access)?;
            }
            Step::Special { client, is_bypass, file: at, access } => {
                self.hear(client);
                let id = if is_bypass { StateId::READ_BYPASS } else { StateId::ANONYMOUS };
                let found = self.state.judge(&self.clients[client], &id, &file(at), access);
                let expected = if is_bypass && access == READ {
                    Ok(())
                } else {
                    self.clear(client, None, at, (access, DENY_NONE), StateError::Locked)
                };
                prop_assert_eq!(found, expected);
            }
            Step::Wait { leases } => {
                self.now_ms += leases * LEASE_MS + 7;
                self.state.tick(self.now_ms);
            }
            Step::Restart { client } => self.restart(client),
            Step::Settle { stays } => self.settle(stays),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.state.opens() as usize, self.opens.len());
        let mut files: Vec<u8> = self.opens.iter().map(|open| open.file).collect();
        files.sort_unstable();
        files.dedup();
        prop_assert_eq!(self.state.open_files(), files.len());
        for (place, open) in self.opens.iter().enumerate() {
            prop_assert_eq!(self.state.test(&self.clients[open.client], &open.id), Ok(()));
            // Invariant 4.
            for other in self.opens.iter().skip(place + 1).filter(|other| other.file == open.file) {
                prop_assert!(!conflicts(open.share(), other.share()), "{open:?} {other:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn opens_are_as_the_model_has_them(steps in proptest::collection::vec(step(), 0..60)) {
        let mut both = Both::new();
        for step in steps {
            both.step(step)?;
            both.check()?;
        }
        for client in 0..CLIENTS {
            if !both.is_gone[client] {
                both.state.remove_client(both.clients[client].id()).expect("alive");
            }
        }
        prop_assert_eq!((both.state.opens(), both.state.open_files()), (0, 0));
    }
}
