//! After a kill: sessions go on, requests of slots that are sent again are answered alike, nobody has to
//! reclaim anything, and what is open and locked excludes others as before.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use steadfast_client::NfsStat3;
use steadfast_client::nfs4::{NfsStat4, patiently4};
use steadfast_wire::nfs4::{Op4, TestStateId4Args};

use super::inquiry::{Inquiry, View};
use crate::check::{Broken, Findings, Violation};
use crate::nfs4::holder::{Holder, Waiting};
use crate::nfs4::session::{self, PATIENCE};
use crate::random::Random;
use crate::workload::Load;

/// Turns that each client takes in its old session.
const TURNS: u64 = 3;

/// Goes on with what clients had when the server was killed, which has just been started again, and then
/// ends all of them. `is_logged`: a request that was in flight does not fail by what it has done.
///
/// # Errors
/// When the server does not answer, or what it answers makes no sense.
pub(crate) fn resume(
    load: &Load,
    (server, share): (SocketAddr, &Path),
    is_logged: bool,
    random: &mut Random,
    findings: &mut Findings,
) -> Result<()> {
    load.go_on();
    let mut holders = load.take_holders();
    for holder in &mut holders {
        load.ledger().forget_verifier();
        go_on(holder, load, server, is_logged, findings)?;
        load.ledger().forget_verifier();
        holder.take_turns(load, TURNS, random)?;
        still_has(holder, findings)?;
        findings.held.lives += 1;
    }
    load.stop();
    let (operations, state, deeds, under_way) = {
        let ledger = load.ledger();
        let under_way: BTreeSet<_> = ledger.under_way().into_iter().collect();
        (ledger.operations.clone(), ledger.state.clone(), ledger.deeds.clone(), under_way)
    };
    let holdings = deeds.holdings();
    let (operations, state, deeds, holdings) = (&operations, &state, &deeds, &holdings);
    let under_way = &under_way;
    let view = View { server, share, operations, state, deeds, holdings, under_way };
    let mut inquiry = Inquiry { view, findings };
    let mut stranger = view.stranger()?;
    patiently4(PATIENCE, || stranger.complete_reclaim())?;
    // Kills are few: all that is held is tried, also of those who are silent and have no session here.
    let (opens, locks) = inquiry.excludes(&mut stranger, usize::MAX)?;
    inquiry.findings.held.opens += opens;
    inquiry.findings.held.locks += locks;
    let path = share.as_os_str().as_encoded_bytes();
    let root = patiently4(PATIENCE, || stranger.lookup_path(path))?;
    let removed = patiently4(PATIENCE, || stranger.remove(&root, b"nothing"));
    let what = || "REMOVE of what is not there, after a kill".to_owned();
    inquiry.refused(removed, NfsStat4::NoEnt, None, what)?;
    stranger.destroy()?;
    drop(holders);
    // Another life of each takes away what the one before had, so that others may read it.
    for (life, standing) in holdings.lives() {
        if !standing.has_begun() {
            continue;
        }
        let life = deeds.life(life).context("a life")?;
        let client = view.client(&life.owner, *b"the last")?;
        client.destroy().context("the end of a client")?;
    }
    Ok(())
}

/// The stateids by which a client has files open and ranges locked are good in its session.
fn still_has(holder: &mut Holder, findings: &mut Findings) -> Result<()> {
    let (objects, stateids): (Vec<_>, Vec<_>) = holder.stateids().into_iter().unzip();
    if stateids.is_empty() {
        return Ok(());
    }
    let asked = TestStateId4Args { stateids };
    let answered = holder.session.ask(|compound| compound.op(Op4::TestStateId, &asked))?;
    let told = session::read(&answered.results, |reply| {
        reply.test_stateid().map(|told| told.status_codes)
    })?;
    let codes = told.unwrap_or_default();
    for (place, object) in objects.into_iter().enumerate() {
        match codes.get(place) {
            Some(NfsStat4::Ok) => findings.held.stateids += 1,
            code => {
                let text = format!("TEST_STATEID in the session that goes on: {code:?}");
                let mut violation = Violation::of(Broken::Reclaim, text);
                violation.object = Some(object);
                findings.violations.push(violation);
            }
        }
    }
    Ok(())
}

/// Whether a request fails if it has not been executed.
fn may_fail(load: &Load, waiting: &Waiting) -> bool {
    let ledger = load.ledger();
    let operation = waiting.number.and_then(|number| ledger.operations.get(number as usize));
    operation.is_some_and(|known| ledger.state.expected(&known.action) != NfsStat3::Ok)
}

/// A client goes on in its session.
fn go_on(
    holder: &mut Holder,
    load: &Load,
    server: SocketAddr,
    is_logged: bool,
    findings: &mut Findings,
) -> Result<()> {
    holder.session.reconnect(server)?;
    for (sent, waiting) in std::mem::take(&mut holder.waiting) {
        holder.session.send(&sent)?;
        let reply = holder.session.receive()?;
        let results = holder.session.take(sent, &reply)?;
        findings.held.resent += 1;
        findings.in_flight += 1;
        let step = waiting.step;
        let told = step.read(&results).with_context(|| format!("{step:?}, sent again"))?;
        match told {
            Err(NfsStat4::Exist | NfsStat4::NoEnt) if !may_fail(load, &waiting) => {
                findings.false_answers += 1;
                holder.forget(waiting.place);
                let deeds = &mut load.ledger().deeds;
                waiting.deed.into_iter().for_each(|deed| deeds.answer(deed, false));
                if is_logged {
                    let text = format!("{step:?}, in flight, failed by what it had done");
                    findings.violations.push(Violation::of(Broken::Reply, text));
                }
            }
            Err(NfsStat4::Delay) => holder.try_again(load, waiting)?,
            told => holder.settle(load, &waiting, told)?,
        }
    }
    for answered in holder.session.answered() {
        findings.held.resent += 1;
        if !holder.session.is_answered_alike(&answered)? {
            let text = "a request of a slot, sent again, is answered otherwise".to_owned();
            findings.violations.push(Violation::of(Broken::Reply, text));
        }
    }
    Ok(())
}
