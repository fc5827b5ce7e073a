//! Questions to a server about what clients of NFSv4 have, and what it must not give to others.

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
use crate::nfs4::steps::{WRITES, locker, opening, range_of};
use crate::operation::Number;
use crate::state::State;
use crate::workload::Operation;

/// Opens for which others' attempts are made, of all clients.
const TRIED_MAX: usize = 12;
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
}

/// A file that is open, and whose.
pub(super) struct Holding<'a> {
    pub(super) life: LifeNumber,
    pub(super) object: Number,
    pub(super) handle: &'a FileHandle,
    pub(super) open: &'a OpenFile,
}

impl<'a> View<'a> {
    /// What a life has open for certain.
    pub(super) fn of_life(self, life: LifeNumber) -> Vec<Holding<'a>> {
        let standing = self.holdings.lives().find(|(number, _)| *number == life);
        let opens = standing.into_iter().flat_map(|(_, standing)| standing.opens());
        let held = opens.filter_map(|(object, open)| {
            let handle = self.state.objects.get(&object)?.handle.as_ref()?;
            Some(Holding { life, object, handle, open })
        });
        held.collect()
    }

    /// What those have open who have not left.
    pub(super) fn all(self) -> Vec<Holding<'a>> {
        let lives = self.holdings.lives().filter(|(_, standing)| standing.right() == Right::Yes);
        lives.flat_map(|(life, _)| self.of_life(life)).collect()
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

    /// What is open and locked excludes a stranger, who has said that it reclaims nothing.
    ///
    /// # Errors
    /// When nothing is answered.
    pub(super) fn excludes(&mut self, stranger: &mut Nfs4Client) -> Result<()> {
        for held in self.view.all().into_iter().take(TRIED_MAX) {
            let (object, modes) = (Some(held.object), held.open.modes);
            let name = self.view.name(held.life);
            let tell = |what: &str| format!("{what} of what {name} has open");
            let mut attempt = |modes| open(stranger, held.handle, modes, OpenClaim4::Fh, STRANGER);
            if modes.deny < 3 {
                let denying = attempt(Modes { access: 3 & !modes.deny, deny: modes.access });
                self.refused(denying, NfsStat4::ShareDenied, object, || {
                    tell("OPEN that denies others")
                })?;
            }
            if modes.deny > 0 {
                let denied = attempt(Modes { access: modes.deny, deny: 0 });
                self.refused(denied, NfsStat4::ShareDenied, object, || tell("OPEN"))?;
            }
            if modes.deny & WRITES == 0 && !held.open.locked.is_empty() {
                self.excludes_locks(stranger, &held)?;
            }
        }
        Ok(())
    }

    fn excludes_locks(&mut self, stranger: &mut Nfs4Client, held: &Holding<'_>) -> Result<()> {
        let name = self.view.name(held.life);
        let object = Some(held.object);
        let modes = Modes { access: WRITES, deny: 0 };
        let opened = open(stranger, held.handle, modes, OpenClaim4::Fh, STRANGER);
        let opened = self.granted(opened, object, || format!("OPEN beside {name}"))?;
        let Some(Opened4 { stateid, .. }) = opened else { return Ok(()) };
        for range in &held.open.locked {
            let by = (LockType4::Write, false, *range);
            let locked = lock(stranger, held.handle, by, (stateid, None), STRANGER);
            let what = || format!("LOCK of range {range}, which {name} has locked");
            self.refused(locked, NfsStat4::Denied, object, what)?;
        }
        let closed = patiently4(PATIENCE, || stranger.close(held.handle, stateid));
        self.granted(closed, object, || "CLOSE by a stranger".to_owned())?;
        Ok(())
    }
}
