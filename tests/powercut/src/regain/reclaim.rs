//! After a power cut: who had something gets it back, nobody else gets it meanwhile, and the grace period
//! ends as soon as all have said that they have what they had.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use steadfast_client::nfs4::{
    ANONYMOUS, CompoundReply, Nfs4Client, NfsStat4, Settings4, patiently4,
};
use steadfast_client::{ClientError, FileHandle, RpcConnection, StableHow};
use steadfast_wire::nfs4::{OpenClaim4, OpenHow4};

use super::inquiry::{Holding, Inquiry, STRANGER, View, lock, open};
use crate::check::{Broken, Findings, Held};
use crate::nfs4::deeds::{LifeNumber, Modes, Right};
use crate::nfs4::session::{PATIENCE, results};
use crate::nfs4::steps::{lock_type, opening, owner};
use crate::operation::{Action, How, Number, Place};
use crate::state::{Kind, Object};

/// How soon after the last `RECLAIM_COMPLETE` the grace period must be over.
const GRACE_MAX: Duration = Duration::from_secs(2);
/// Opens for which others' attempts are made, of all clients: the last.
const TRIED_MAX: usize = 12;
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// Lives that must be refused, and other lives, of which so many are tried: the last.
const REFUSED_MAX: usize = 8;
/// Sessions of before that are tried.
const SESSIONS_MAX: usize = 4;
/// Files that were made exclusively, and are made again.
const EXCLUSIVES_MAX: usize = 2;
/// `OPEN_DELEGATE_NONE`.
const NO_DELEGATION: u32 = 0;
/// Any open that conflicts with nothing.
const READING: Modes = Modes { access: 1, deny: 0 };

/// Finds out what a server makes of what clients had, which has just been started after a power cut.
///
/// # Errors
/// When it does not answer.
pub(crate) fn reclaim(view: View<'_>, findings: &mut Findings) -> Result<()> {
    let lives = |right| {
        let of = view.holdings.lives().filter(move |(_, standing)| standing.right() == right);
        of.filter(|(_, standing)| standing.has_begun()).map(|(life, _)| life).collect::<Vec<_>>()
    };
    let (recorded, unsure) = (lives(Right::Yes), lives(Right::Maybe));
    let mut inquiry = Inquiry { view, findings };
    let is_nobody_recorded = recorded.is_empty() && unsure.is_empty();
    if is_nobody_recorded && view.holdings.lives().next().is_some() {
        inquiry.has_no_grace()?;
    }
    let may_be_gone = view.may_be_gone();
    let is_certain = |(number, object): &(&Number, &Object)| {
        matches!(object.kind, Kind::File(_)) && object.is_held && !may_be_gone.contains(*number)
    };
    let mut files = view.state.objects.iter().filter(is_certain);
    // Without a file that is there for certain nobody can ask for anything.
    let Some(file) = files.find_map(|(_, object)| object.handle.as_ref()) else { return Ok(()) };
    let mut stranger = view.stranger()?;
    inquiry.refuses_strangers(&mut stranger, file, !recorded.is_empty())?;
    inquiry.refuses_lives(&lives(Right::No), &recorded, file)?;
    inquiry.has_no_sessions(&recorded)?;
    let mut clients = Vec::new();
    for life in &recorded {
        clients.push((*life, inquiry.gives_back(*life)?));
    }
    if !recorded.is_empty() {
        inquiry.keeps_waiting(&mut stranger, file)?;
    }
    for life in &unsure {
        clients.push((*life, view.client_of(*life)?));
    }
    for (life, client) in &mut clients {
        let completed = patiently4(PATIENCE, || client.complete_reclaim());
        let what = || format!("RECLAIM_COMPLETE of {}", view.name(*life));
        inquiry.granted(completed, None, what)?;
    }
    inquiry.ends_grace(&mut stranger)?;
    inquiry.excludes(&mut stranger, TRIED_MAX)?;
    inquiry.knows_exclusives(&mut stranger)?;
    if let Some((life, client)) = clients.first_mut() {
        let claim = OpenClaim4::Previous(NO_DELEGATION);
        let late = open(client, file, READING, claim, STRANGER);
        let what =
            || format!("OPEN that reclaims, of {}, after the grace period", view.name(*life));
        inquiry.refused(late, NfsStat4::NoGrace, None, what)?;
    }
    Ok(())
}

impl Inquiry<'_> {
    /// Who was never recorded gets nothing, and reclaims nothing.
    fn refuses_strangers(
        &mut self,
        stranger: &mut Nfs4Client,
        file: &FileHandle,
        has_grace: bool,
    ) -> Result<()> {
        let claim = OpenClaim4::Previous(NO_DELEGATION);
        let reclaimed = open(stranger, file, READING, claim, STRANGER);
        let what = || "OPEN that reclaims, of a stranger".to_owned();
        self.refused(reclaimed, NfsStat4::NoGrace, None, what)?;
        let completed = patiently4(PATIENCE, || stranger.complete_reclaim());
        self.granted(completed, None, || "RECLAIM_COMPLETE of a stranger".to_owned())?;
        if has_grace {
            self.keeps_waiting(stranger, file)?;
        }
        Ok(())
    }

    /// Whoever has nothing to reclaim waits, whatever he wants to change of who has what.
    fn keeps_waiting(&mut self, stranger: &mut Nfs4Client, file: &FileHandle) -> Result<()> {
        for held in self.view.all().iter().take(2) {
            let opened = open(stranger, held.handle, READING, OpenClaim4::Fh, STRANGER);
            let what = || "OPEN of a stranger in the grace period".to_owned();
            self.refused(opened, NfsStat4::Grace, Some(held.object), what)?;
        }
        let opened = open(stranger, file, READING, OpenClaim4::Fh, STRANGER);
        let what = || "OPEN of a stranger in the grace period".to_owned();
        self.refused(opened, NfsStat4::Grace, None, what)?;
        // Of no bytes: a server that forgot to refuse it changes nothing.
        let how = StableHow::Unstable;
        let written = patiently4(PATIENCE, || stranger.write(file, ANONYMOUS, 0, b"", how));
        let what = || "WRITE by the anonymous stateid in the grace period".to_owned();
        self.refused(written, NfsStat4::Grace, None, what)?;
        let share = self.share(stranger)?;
        // It is not there: a server that forgot to refuse it changes nothing.
        let removed = patiently4(PATIENCE, || stranger.remove(&share, b"nothing"));
        let what = || "REMOVE in the grace period".to_owned();
        self.refused(removed, NfsStat4::Grace, None, what)?;
        Ok(())
    }

    /// Lives that had nothing, or have left, and other lives of those that had something, reclaim nothing.
    fn refuses_lives(
        &mut self,
        refused: &[LifeNumber],
        recorded: &[LifeNumber],
        file: &FileHandle,
    ) -> Result<()> {
        let view = self.view;
        let claim = || OpenClaim4::Previous(NO_DELEGATION);
        for life in refused.iter().rev().take(REFUSED_MAX) {
            let mut client = view.client_of(*life)?;
            let reclaimed = open(&mut client, file, READING, claim(), STRANGER);
            let what = || format!("OPEN that reclaims, of {}", view.name(*life));
            self.refused(reclaimed, NfsStat4::NoGrace, None, what)?;
        }
        for life in recorded.iter().rev().take(2) {
            let owner = view.deeds.life(*life).map(|life| life.owner.clone()).unwrap_or_default();
            let mut client = view.client(&owner, *b"new life")?;
            let handle = view.of_life(*life).first().map_or(file, |held| held.handle);
            let reclaimed = open(&mut client, handle, READING, claim(), STRANGER);
            let what = || format!("OPEN that reclaims, of another life than {}", view.name(*life));
            self.refused(reclaimed, NfsStat4::NoGrace, None, what)?;
        }
        Ok(())
    }

    /// A request of a session of before is not executed.
    fn has_no_sessions(&mut self, recorded: &[LifeNumber]) -> Result<()> {
        let view = self.view;
        let mut connection = RpcConnection::connect(view.server, PATIENCE)?;
        for life in recorded.iter().rev().take(SESSIONS_MAX) {
            let call = view.deeds.life(*life).map_or(&[][..], |life| &life.call);
            if call.is_empty() {
                continue;
            }
            connection.send_message(call)?;
            let reply = connection.receive_any()?;
            let status = CompoundReply::parse(results(&reply)?)?.status();
            self.findings.held.resent += 1;
            if status != NfsStat4::BadSession {
                let name = view.name(*life);
                let text = format!("a request of a session of {name}, sent again: {status:?}");
                self.broken(Broken::Reply, None, text);
            }
        }
        Ok(())
    }

    /// A life reclaims all that it had, and gets nothing new.
    fn gives_back(&mut self, life: LifeNumber) -> Result<Nfs4Client> {
        let view = self.view;
        let mut client = view.client_of(life)?;
        self.findings.held.lives += 1;
        for (number, held) in view.of_life(life).into_iter().enumerate() {
            self.gives_back_file(&mut client, (number, &held))?;
        }
        Ok(client)
    }

    fn gives_back_file(
        &mut self,
        client: &mut Nfs4Client,
        (number, held): (usize, &Holding<'_>),
    ) -> Result<()> {
        let Holding { life, object, handle, open: was } = held;
        let object = Some(*object);
        let owner = owner(number);
        let name = self.view.name(*life);
        let claim = OpenClaim4::Previous(NO_DELEGATION);
        let opened = open(client, handle, was.modes, claim, &owner);
        let what = || format!("OPEN by which {name} reclaims {:?}", was.modes);
        let Some(opened) = self.granted(opened, object, what)? else { return Ok(()) };
        self.findings.held.opens += 1;
        if number == 0 {
            let fresh = open(client, handle, READING, OpenClaim4::Fh, &owner);
            let what = || format!("OPEN of {name} before it has reclaimed all");
            self.refused(fresh, NfsStat4::Grace, object, what)?;
            let by = (lock_type(was.modes), false, 0);
            let fresh = lock(client, handle, by, (opened.stateid, None), &owner);
            let what = || format!("LOCK of {name} before it has reclaimed all");
            self.refused(fresh, NfsStat4::Grace, object, what)?;
        }
        let mut stateid = None;
        for range in &was.locked {
            let by = (lock_type(was.modes), true, *range);
            let locked = lock(client, handle, by, (opened.stateid, stateid), &owner);
            let what = || format!("LOCK by which {name} reclaims range {range}");
            if let Some(locked) = self.granted(locked, object, what)? {
                stateid = Some(locked);
                self.findings.held.locks += 1;
            }
        }
        Ok(())
    }

    /// An exclusive create that comes again finds the file that it has made, by its verifier, and another
    /// one does not.
    fn knows_exclusives(&mut self, stranger: &mut Nfs4Client) -> Result<()> {
        let view = self.view;
        let mut taken = view.unsettled();
        taken.extend(view.all().iter().map(|held| held.object));
        let exclusive = |(place, number): (&Place, &Number)| {
            let object = view.state.objects.get(number)?;
            // Whoever changes the file takes the verifier away.
            let last = object.last;
            let is_as_made = last.data == *number && last.attributes == *number;
            let is_free = object.is_held && is_as_made && !taken.contains(number);
            match view.operations.get(*number as usize)?.action {
                Action::Create { how: How::Exclusive(verifier), .. } if is_free => {
                    Some((*place, *number, verifier))
                }
                _ => None,
            }
        };
        let found: Vec<_> = view.state.names.iter().rev().filter_map(exclusive).collect();
        for (place, number, verifier) in found.into_iter().take(EXCLUSIVES_MAX) {
            let handle_of = |number| view.state.objects.get(&number)?.handle.as_ref();
            let Some(directory) = handle_of(place.directory) else { continue };
            let name = place.name.bytes();
            let none = Settings4::default().encode();
            let mut create = |verifier| {
                let how = OpenHow4::Exclusive41(verifier, none.fattr());
                let opening = opening(READING, STRANGER, how, OpenClaim4::Null(&name));
                patiently4(PATIENCE, || stranger.open(directory, &opening))
            };
            let again = create(verifier);
            let object = Some(number);
            let what = || "OPEN that makes a file exclusively, again".to_owned();
            if let Some(opened) = self.granted(again, object, what)? {
                self.findings.held.exclusives += 1;
                if Some(&opened.handle) != handle_of(number) {
                    let text = "OPEN that makes a file exclusively, again: another file".to_owned();
                    self.broken(Broken::Handle, object, text);
                }
            }
            let other = create(verifier.map(|byte| !byte));
            let what = || "OPEN that makes a file exclusively, by another verifier".to_owned();
            self.refused(other, NfsStat4::Exist, object, what)?;
        }
        Ok(())
    }

    /// The directory that is shared.
    fn share(&self, stranger: &mut Nfs4Client) -> Result<FileHandle> {
        let path = self.view.share.as_os_str().as_encoded_bytes();
        Ok(patiently4(PATIENCE, || stranger.lookup_path(path))?)
    }

    /// Nobody is recorded: there is no grace period, from the first request on.
    fn has_no_grace(&mut self) -> Result<()> {
        let mut stranger = self.view.stranger()?;
        let share = self.share(&mut stranger)?;
        match removed(&mut stranger, &share)? {
            Some(NfsStat4::NoEnt) => self.findings.held.without_grace += 1,
            status => {
                let text = format!("REMOVE of what is not there, with nobody recorded: {status:?}");
                self.broken(Broken::Stranger, None, text);
            }
        }
        Ok(())
    }

    /// The grace period is over soon, or there is none: a stranger gets what nobody has.
    fn ends_grace(&mut self, stranger: &mut Nfs4Client) -> Result<()> {
        let begun = Instant::now();
        let share = self.share(stranger)?;
        loop {
            match removed(stranger, &share)? {
                Some(NfsStat4::NoEnt) => break,
                Some(NfsStat4::Grace) if begun.elapsed() < GRACE_MAX => std::thread::sleep(LOOK),
                Some(NfsStat4::Grace) => {
                    let text = format!(
                        "the grace period lasts, {} ms after all have completed \
                         their reclaims",
                        begun.elapsed().as_millis()
                    );
                    self.broken(Broken::Stranger, None, text);
                    return Ok(());
                }
                status => {
                    let text = format!("REMOVE of what is not there: {status:?}");
                    self.broken(Broken::Stranger, None, text);
                    return Ok(());
                }
            }
        }
        let lasted = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.findings.held.add(Held { grace_ms_max: lasted, ..Held::default() });
        Ok(())
    }
}

/// The status of a REMOVE of what is not there: what is told first is whether there is grace.
fn removed(stranger: &mut Nfs4Client, share: &FileHandle) -> Result<Option<NfsStat4>> {
    match patiently4(PATIENCE, || stranger.remove(share, b"nothing")) {
        Ok(_) => Ok(None),
        Err(ClientError::Operation(failure)) => Ok(Some(failure.status)),
        Err(error) => Err(error).context("REMOVE"),
    }
}
