//! Questions to a server about what clients of NFSv4 have, and what it must not give to others.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use steadfast_client::nfs4::{Nfs4Client, NfsStat4, Opened4, StateId4, patiently4};
use steadfast_client::{ClientError, FileHandle};
use steadfast_wire::nfs4::{Lock4Args, LockType4, OpenClaim4, OpenHow4};

use crate::check::{Broken, Findings, Violation};
use crate::nfs4::deeds::{Deeds, Holdings, LifeNumber, Modes, OpenFile, Right};
use crate::nfs4::session::{self, PATIENCE};
use crate::nfs4::steps::{RANGES, WRITES, locker, opening, range_of};
use crate::operation::{Action, Number};
use crate::state::State;
use crate::workload::Operation;

/// The owner of locks that a stranger asks for.
pub(super) const STRANGER: &[u8] = b"a stranger";

/// What is known at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) share: &'a Path,
    pub(crate) operations: &'a [Operation],
    pub(crate) state: &'a State,
    pub(crate) deeds: &'a Deeds,
    pub(crate) holdings: &'a Holdings,
    /// What was sent and not acknowledged.
    pub(crate) under_way: &'a BTreeSet<Number>,
}

/// A file that is open, and whose.
pub(super) struct Holding<'a> {
    pub(super) life: LifeNumber,
    pub(super) object: Number,
    pub(super) handle: &'a FileHandle,
    pub(super) open: &'a OpenFile,
}

impl<'a> View<'a> {
    /// What a life has open for certain, of files that are there for certain.
    pub(super) fn of_life(self, life: LifeNumber) -> Vec<Holding<'a>> {
        let may_be_gone = self.may_be_gone();
        let standing = self.holdings.lives().find(|(number, _)| *number == life);
        let opens = standing.into_iter().flat_map(|(_, standing)| standing.opens());
        let opens = opens.filter(|(object, _)| !may_be_gone.contains(object));
        let held = opens.filter_map(|(object, open)| {
            let handle = self.state.objects.get(&object)?.handle.as_ref()?;
            Some(Holding { life, object, handle, open })
        });
        held.collect()
    }

    /// What those have open who have not left. What was opened last comes first: a server that loses
    /// something loses that.
    pub(super) fn all(self) -> Vec<Holding<'a>> {
        let lives = self.holdings.lives().filter(|(_, standing)| standing.right() == Right::Yes);
        let mut all: Vec<_> = lives.flat_map(|(life, _)| self.of_life(life)).collect();
        all.reverse();
        all
    }

    /// The actions that were sent and not acknowledged.
    fn actions(self) -> impl Iterator<Item = &'a Action> {
        let of = move |number: &Number| self.operations.get(*number as usize);
        self.under_way.iter().filter_map(of).map(|operation| &operation.action)
    }

    /// Files that may be gone, as what takes away a name of them was under way.
    pub(super) fn may_be_gone(self) -> BTreeSet<Number> {
        let victims = self.actions().filter_map(|action| match action {
            Action::Remove { at } | Action::Rename { to: at, .. } => self.state.names.get(at),
            _ => None,
        });
        victims.copied().collect()
    }

    /// Files with which something was under way: another name, other data, another attribute.
    pub(super) fn unsettled(self) -> BTreeSet<Number> {
        let named = |action: &Action| {
            let there = |place| self.state.names.get(&place).copied();
            action.places().into_iter().filter_map(there).collect::<Vec<_>>()
        };
        self.actions().flat_map(|action| named(action).into_iter().chain(action.object())).collect()
    }

    /// A client by which another than that of the life may be tried: of this owner and verifier.
    pub(super) fn client(self, owner: &[u8], verifier: [u8; 8]) -> Result<Nfs4Client> {
        let connected = patiently4(PATIENCE, || session::client(self.server, owner, verifier));
        connected.with_context(|| format!("the client {}", String::from_utf8_lossy(owner)))
    }

    /// The client of a life, as it comes back.
    pub(super) fn client_of(self, life: LifeNumber) -> Result<Nfs4Client> {
        let life = self.deeds.life(life).context("a life that never began")?;
        self.client(&life.owner, life.verifier)
    }

    /// A client that nobody has met.
    pub(super) fn stranger(self) -> Result<Nfs4Client> {
        self.client(STRANGER, *b"stranger")
    }

    /// How a life is called in messages.
    pub(super) fn name(self, life: LifeNumber) -> String {
        let owner = self.deeds.life(life).map(|life| String::from_utf8_lossy(&life.owner));
        format!("life {life} ({})", owner.unwrap_or_default())
    }
}

/// Asks, and judges what is answered.
pub(super) struct Inquiry<'a> {
    pub(super) view: View<'a>,
    pub(super) findings: &'a mut Findings,
}

/// An OPEN of a file by its handle.
pub(super) fn open(
    client: &mut Nfs4Client,
    file: &FileHandle,
    modes: Modes,
    claim: OpenClaim4<'_>,
    owner: &[u8],
) -> Result<Opened4, ClientError> {
    let opening = opening(modes, owner, OpenHow4::NoCreate, claim);
    patiently4(PATIENCE, || client.open(file, &opening))
}

/// A LOCK of a range.
pub(super) fn lock(
    client: &mut Nfs4Client,
    file: &FileHandle,
    (locktype, reclaim, range): (LockType4, bool, u8),
    (opened, lock): (StateId4, Option<StateId4>),
    owner: &[u8],
) -> Result<StateId4, ClientError> {
    use steadfast_wire::nfs4::Op4;
    let (offset, length) = range_of(range);
    let locker = locker(opened, lock, owner);
    let arguments = Lock4Args { locktype, reclaim, offset, length, locker };
    patiently4(PATIENCE, || {
        client.request(
            |compound| compound.put(file).op(Op4::Lock, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.stateid(Op4::Lock)
            },
        )
    })
}

impl Inquiry<'_> {
    /// Something is not as was promised.
    pub(super) fn broken(&mut self, broken: Broken, object: Option<Number>, text: String) {
        self.findings.violations.push(Violation {
            broken,
            operation: None,
            object,
            paths: Vec::new(),
            text,
        });
    }

    /// It must be done; what it gave, if it was.
    ///
    /// # Errors
    /// When nothing was answered.
    pub(super) fn granted<T>(
        &mut self,
        outcome: Result<T, ClientError>,
        object: Option<Number>,
        what: impl FnOnce() -> String,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(told) => Ok(Some(told)),
            Err(error) => match error.status4() {
                Some(status) => {
                    let text = format!("{}: {status:?}", what());
                    self.broken(Broken::Reclaim, object, text);
                    Ok(None)
                }
                None => Err(error.into()),
            },
        }
    }

    /// It must be refused, in this way; whether it was.
    ///
    /// # Errors
    /// When nothing was answered.
    pub(super) fn refused<T: Debug>(
        &mut self,
        outcome: Result<T, ClientError>,
        wanted: NfsStat4,
        object: Option<Number>,
        what: impl FnOnce() -> String,
    ) -> Result<bool> {
        let answer = match outcome {
            Ok(_) => "it was granted".to_owned(),
            Err(error) => match error.status4() {
                Some(status) if status == wanted => {
                    self.findings.held.refused += 1;
                    return Ok(true);
                }
                Some(status) => format!("{status:?} instead of {wanted:?}"),
                None => return Err(error.into()),
            },
        };
        let text = format!("{}: {answer}", what());
        self.broken(Broken::Stranger, object, text);
        Ok(false)
    }

    /// What is open and locked excludes a stranger, who has said that it reclaims nothing: the last `tried_max`
    /// opens. Returns of how many opens and locks that was so.
    ///
    /// # Errors
    /// When nothing is answered.
    pub(super) fn excludes(
        &mut self,
        stranger: &mut Nfs4Client,
        tried_max: usize,
    ) -> Result<(usize, usize)> {
        let (mut opens, mut locks) = (0, 0);
        for held in self.view.all().into_iter().take(tried_max) {
            let (object, modes) = (Some(held.object), held.open.modes);
            let name = self.view.name(held.life);
            let tell = |what: &str| format!("{what} of what {name} has open");
            let mut attempt = |modes| open(stranger, held.handle, modes, OpenClaim4::Fh, STRANGER);
            let mut is_held = true;
            if modes.deny < 3 {
                let denying = attempt(Modes { access: 3 & !modes.deny, deny: modes.access });
                is_held &= self.refused(denying, NfsStat4::ShareDenied, object, || {
                    tell("OPEN that denies others")
                })?;
            }
            if modes.deny > 0 {
                let denied = attempt(Modes { access: modes.deny, deny: 0 });
                is_held &= self.refused(denied, NfsStat4::ShareDenied, object, || tell("OPEN"))?;
            }
            opens += usize::from(is_held);
            locks += match (held.open.locked.is_empty(), modes.deny & WRITES) {
                (true, _) => 0,
                (false, 0) => self.excludes_locks(stranger, &held)?,
                // Who cannot open the file to write cannot lock it, but may ask who has.
                _ => self.tells_locks(stranger, &held)?,
            };
        }
        Ok((opens, locks))
    }

    /// A stranger does not get what is locked, and gets what is not. Returns how many locks there were.
    fn excludes_locks(&mut self, stranger: &mut Nfs4Client, held: &Holding<'_>) -> Result<usize> {
        let name = self.view.name(held.life);
        let object = Some(held.object);
        let modes = Modes { access: WRITES, deny: 0 };
        let opened = open(stranger, held.handle, modes, OpenClaim4::Fh, STRANGER);
        let opened = self.granted(opened, object, || format!("OPEN beside {name}"))?;
        let Some(Opened4 { stateid, .. }) = opened else { return Ok(0) };
        let mut locks = 0;
        let mut attempt = |range| {
            let by = (LockType4::Write, false, range);
            lock(stranger, held.handle, by, (stateid, None), STRANGER)
        };
        for range in &held.open.locked {
            let what = || format!("LOCK of range {range}, which {name} has locked");
            let is_held = self.refused(attempt(*range), NfsStat4::Denied, object, what)?;
            locks += usize::from(is_held);
        }
        let mut ranges = 0..RANGES.len() as u8;
        if let Some(range) = ranges.find(|range| !held.open.locked.contains(range)) {
            let what = || format!("LOCK of range {range}, which nobody has locked");
            self.granted(attempt(range), object, what)?;
        }
        let closed = patiently4(PATIENCE, || stranger.close(held.handle, stateid));
        self.granted(closed, object, || "CLOSE by a stranger".to_owned())?;
        Ok(locks)
    }

    /// A stranger is told that it is locked. Returns how many locks there were.
    fn tells_locks(&mut self, stranger: &mut Nfs4Client, held: &Holding<'_>) -> Result<usize> {
        let name = self.view.name(held.life);
        let object = Some(held.object);
        let mut locks = 0;
        for range in &held.open.locked {
            let (kind, bytes) = (LockType4::Write, range_of(*range));
            let told =
                patiently4(PATIENCE, || stranger.test_lock(held.handle, kind, bytes, STRANGER));
            let what = || format!("LOCKT of range {range}, which {name} has locked");
            match self.granted(told, object, what)? {
                Some(Some(_)) => {
                    self.findings.held.refused += 1;
                    locks += 1;
                }
                Some(None) => {
                    self.broken(Broken::Stranger, object, format!("{}: it is free", what()));
                }
                None => {}
            }
        }
        Ok(locks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs4::deeds::{Life, What};
    use crate::operation::{Done, How, Name, Place, ROOT};

    const MODES: Modes = Modes { access: 3, deny: 0 };

    fn at(name: u16) -> Place {
        Place { directory: ROOT, name: Name(name) }
    }

    /// Files 0 to 3, each at the name of its number; two lives, of which one has opened the first two, and the
    /// other the rest.
    fn made() -> (State, Deeds) {
        let mut state = State::new(FileHandle(b"root".to_vec()));
        let mut deeds = Deeds::default();
        let lives = [1_u8, 2].map(|owner| {
            let life = Life { owner: vec![owner], verifier: [0; 8], before: None, call: vec![] };
            let (life, begun) = deeds.begin(life);
            deeds.answer(begun, true);
            life
        });
        for number in 0..4_u8 {
            let (object, name) = (Number::from(number), u16::from(number));
            let action = Action::Create { at: at(name), how: How::Guarded, mode: None, size: None };
            let done = Done { handle: Some(FileHandle(vec![number])), ..Done::default() };
            state.apply(object, &action, &done);
            let life = lives[usize::from(number / 2)];
            let opened = deeds.send(life, What::Open { object, modes: MODES });
            deeds.answer(opened, true);
        }
        (state, deeds)
    }

    /// Asks a view of them, with these actions under way.
    fn ask<T>(under_way: &[Action], ask: impl FnOnce(View<'_>) -> T) -> T {
        let (state, deeds) = made();
        let operation = |action: &Action| Operation {
            client: 0,
            action: *action,
            call: Vec::new(),
            reply: Vec::new(),
            outcome: None,
        };
        let operations: Vec<_> = under_way.iter().map(operation).collect();
        let under_way = (0..operations.len() as Number).collect();
        ask(View {
            server: ([127, 0, 0, 1], 0).into(),
            share: Path::new("/"),
            operations: &operations,
            state: &state,
            deeds: &deeds,
            holdings: &deeds.holdings(),
            under_way: &under_way,
        })
    }

    fn open_files(view: View<'_>) -> Vec<Number> {
        view.all().iter().map(|held| held.object).collect()
    }

    #[test]
    fn what_was_opened_last_is_tried_first() {
        assert_eq!(ask(&[], open_files), [3, 2, 1, 0]);
    }

    #[test]
    fn what_may_be_gone_is_not_demanded() {
        let under_way = [Action::Remove { at: at(3) }, Action::Rename { from: at(0), to: at(1) }];
        assert_eq!(ask(&under_way, open_files), [2, 0]);
        let doubts = ask(&under_way, |view| (view.may_be_gone(), view.unsettled()));
        assert_eq!(doubts, ([1, 3].into(), [0, 1, 3].into()));
    }

    #[test]
    fn what_is_being_changed_is_there_and_open() {
        let action = Action::Commit { object: 2, offset: 0, count: 0 };
        let doubts = ask(&[action], |view| (view.may_be_gone(), view.unsettled()));
        assert_eq!(doubts, ([].into(), [2].into()));
        assert_eq!(ask(&[action], open_files), [3, 2, 1, 0]);
    }
}
