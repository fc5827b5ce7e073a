//! The threads that send and commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use steadfast_client::{Identity, StableHow, Write};

use super::records::Refusal;
use super::stability::Stabilized;
use super::{Data, DataState, SENT_AFTER, WriteBack};
use crate::calls::Calls;
use crate::errors::Errno;
use crate::held::{Run, Verifier, Weight};
use crate::node::Node;
use crate::transport::{Patience, is_lost};

/// How often old data is looked for.
const TICK: Duration = Duration::from_secs(1);

/// Pause after the server could not make data stable that the journal has.
const RETRY: Duration = Duration::from_secs(1);

/// What is to be done next for a file.
enum Step {
    Send { run: Run, stable: StableHow },
    Commit { mark: u64 },
}

impl DataState {
    /// `is_journaled`: how stable something is on the server is asked for by other means; `is_synced_together`: and
    /// nobody commits a file for itself, unless that is waited for. From `write_bytes` on data is sent though nobody
    /// waits, in pieces of at most `piece_bytes`.
    fn next_step(
        &mut self,
        (write_bytes, piece_bytes): (usize, usize),
        is_journaled: bool,
        is_synced_together: bool,
    ) -> Option<Step> {
        if self.is_gated {
            return None;
        }
        let wants_all = self.flushers > 0 || self.is_pressed;
        if (wants_all || self.held.dirty_bytes() >= write_bytes)
            && let Some(run) = self.held.depart(piece_bytes)
        {
            // A short file needs no COMMIT.
            let is_only = !is_journaled
                && self.held.dirty_bytes() == 0
                && self.held.flights() == 1
                && !self.held.has_unstable()
                && (self.committers > 0 || self.is_pressed);
            let stable = if is_only { StableHow::FileSync } else { StableHow::Unstable };
            return Some(Step::Send { run, stable });
        }
        let wants_commit = self.committers > 0 || self.is_pressed && !is_synced_together;
        if wants_commit && self.held.is_sent() && !self.is_committing && self.held.has_unstable() {
            self.is_committing = true;
            return Some(Step::Commit { mark: self.held.mark() });
        }
        None
    }
}

impl WriteBack {
    pub(super) fn run_worker(&self) {
        loop {
            let node = {
                let mut jobs = self.jobs.lock();
                loop {
                    if let Some(node) = jobs.pop_front() {
                        break node;
                    }
                    if self.is_closed.load(Ordering::Relaxed) {
                        return;
                    }
                    self.has_job.wait(&mut jobs);
                }
            };
            self.work(&node);
        }
    }

    fn work(&self, node: &Arc<Node>) {
        loop {
            let mut state = node.data.state.lock();
            let (is_journaled, together) = (self.journaling.is_some(), self.is_synced_together());
            let piece_bytes = self.piece_bytes();
            let sizes = (self.write_bytes, piece_bytes);
            let Some(step) = state.next_step(sizes, is_journaled, together) else {
                // Under the lock, so that whoever adds work from now on sees that no job is left.
                state.jobs = state.jobs.saturating_sub(1);
                break;
            };
            let identity = state.identity.clone().unwrap_or(Identity::None);
            let has_records = state.records.last().is_some();
            drop(state);
            // If this host crashed after that with records only in its memory, older ones of the same bytes
            // would be sent again. And what the server has stable then, of any file, would be taken for somebody
            // else's if its times were only in memory.
            let is_commit = matches!(step, Step::Commit { .. });
            if let (true, true, Some(journaling)) = (is_commit, has_records, self.kept_by()) {
                journaling.make_stable(journaling.last());
            }
            match step {
                Step::Send { run, stable } => {
                    let is_cut = (piece_bytes..self.write_bytes).contains(&run.bytes().len());
                    self.send(node, &identity, &run, stable, is_cut);
                }
                Step::Commit { mark } => self.commit(node, &identity, mark),
            }
            node.data.changed.notify_all();
            if !is_commit && self.lets_others_go_first(node) {
                return;
            }
        }
        if node.data.is_empty() {
            self.nodes.release(node.number);
        }
    }

    /// Where WRITEs wait for a window, each file is sent one of in turn: a short one, and a COMMIT, do not wait until a
    /// long one is sent. The node's job is in the queue again then.
    fn lets_others_go_first(&self, node: &Arc<Node>) -> bool {
        // A COMMIT is next, perhaps.
        if !self.server.link.adapts_depth() || node.data.state.lock().held.is_sent() {
            return false;
        }
        let mut jobs = self.jobs.lock();
        if jobs.is_empty() {
            return false;
        }
        jobs.push_back(Arc::clone(node));
        true
    }

    fn send(
        &self,
        node: &Arc<Node>,
        identity: &Identity,
        run: &Run,
        stable: StableHow,
        is_cut: bool,
    ) {
        let (begun, losses) = (node.begin_change(), self.server.link.losses());
        let patience = self.server.patience(Patience::default(), Instant::now());
        let outcome = self.server.call_once(identity, patience, |nfs| {
            let _flight = self.server.link.take_off(run.bytes().len(), is_cut, patience)?;
            nfs.write(&node.handle(), run.offset, run.bytes(), stable)
        });
        if let (Ok(written), Some(recovery)) = (&outcome, &self.recovery) {
            recovery.saw((&node.handle(), identity), written.verifier, losses);
        }
        let wcc = outcome.as_ref().ok().map(|written| &written.wcc);
        node.end_change(begun, wcc, &self.times);
        if let (Ok(written), Some(journaling)) = (&outcome, self.kept_by()) {
            let range = run.offset..run.offset.saturating_add(u64::from(written.count));
            let record = node.data.state.lock().records.last_within(&range);
            // It may write to the journal's disk.
            if let Some(record) = record {
                journaling.note_attributes(record, &written.wcc, Some(written.verifier));
            }
        }
        let mut state = node.data.state.lock();
        let before = state.held.weight();
        match outcome {
            Ok(Write { count: 0, .. }) => self.fail(node, &mut state, run, Errno::EIO),
            Ok(written) => {
                let unstable =
                    (written.committed == StableHow::Unstable).then_some(written.verifier);
                if unstable.is_some() && state.unstable_since.is_none() {
                    state.unstable_since = state.since.or_else(|| Some(Instant::now()));
                }
                let (count, keeps_bytes) = (u64::from(written.count), self.keeps_bytes());
                state.held.acknowledge_keeping(run, count, unstable, keeps_bytes);
                state.held.trust_acknowledged(self.has_what_it_acknowledged());
                if unstable.is_none() {
                    self.leave(&mut state);
                }
            }
            Err(error) if is_lost(&error) => {
                // It is dirty again; if the journal has it, the recovery brings it to the server.
                state.held.acknowledge(run, 0, None);
                self.settle(node, &mut state, before);
                drop(state);
                return self.await_recovery(node);
            }
            Err(error) => self.fail(node, &mut state, run, error.into()),
        }
        self.settle(node, &mut state, before);
    }

    fn await_recovery(&self, node: &Node) {
        node.data.changed.notify_all();
        if let Some(recovery) = &self.recovery {
            // Only the end of the mount ends it otherwise.
            let _ = recovery.wait(Patience::default(), Instant::now());
        }
    }

    fn commit(&self, node: &Arc<Node>, identity: &Identity, mark: u64) {
        let (begun, losses) = (node.begin_change(), self.server.link.losses());
        let outcome = self.stabilize(node, identity);
        let wcc = match &outcome {
            Ok(Stabilized::Committed(commit)) => {
                if let Some(recovery) = &self.recovery {
                    recovery.saw_commit((&node.handle(), identity), commit.verifier, losses);
                }
                Some(&commit.wcc)
            }
            _ => None,
        };
        node.end_change(begun, wcc, &self.times);
        let verifier = outcome.map(|done| match done {
            Stabilized::Committed(commit) => commit.verifier,
            Stabilized::Synced(verifier) => verifier,
        });
        let is_gone = verifier.as_ref().is_err_and(|error| Errno::from(error) == Errno::ESTALE);
        let of_now = if is_gone { self.verifier_of_now(identity) } else { None };
        let mut state = node.data.state.lock();
        let before = state.held.weight();
        state.is_committing = false;
        match verifier {
            // The server had the data, and has lost nothing: somebody else has removed the file since.
            Err(_) if of_now.is_some_and(|now| state.held.is_acknowledged_under(mark, now)) => {
                state.held.give_up_unstable(mark);
                self.leave_refused(&mut state, 0..u64::MAX, Refusal::Unmissed);
            }
            Err(error) if is_lost(&error) => {
                drop(state);
                return self.await_recovery(node);
            }
            Ok(verifier) => {
                if state.held.committed(mark, verifier) {
                    tracing::info!(file = node.number, "the server was restarted: writing again");
                } else if let Some(recovery) = &self.recovery {
                    recovery.note_committed(&node.handle());
                }
                self.leave(&mut state);
            }
            Err(error) if self.kept_by().is_some() && Errno::from(&error) != Errno::ESTALE => {
                tracing::warn!(
                    file = node.number,
                    %error,
                    "data could not be made stable on the server: it is in the journal, and is sent again"
                );
                state.held.resend_unstable(mark);
                drop(state);
                thread::sleep(RETRY);
                return;
            }
            Err(error) => {
                let errno = Errno::from(&error);
                state.held.give_up_unstable(mark);
                let refusal = refusal(&node.data, errno);
                let in_journal = self.leave_refused(&mut state, 0..u64::MAX, refusal);
                if refusal != Refusal::Unmissed {
                    self.server.link.counters.refused_writes.add(1);
                    tracing::warn!(
                        file = node.number,
                        %error,
                        in_journal,
                        "data could not be committed, and is given up"
                    );
                }
                state.errors += 1;
                state.last_error = Some(errno);
            }
        }
        self.settle(node, &mut state, before);
    }

    /// The server's verifier, where it tells of each loss.
    fn verifier_of_now(&self, identity: &Identity) -> Option<Verifier> {
        let recovery = self.recovery.as_ref().filter(|recovery| recovery.is_async())?;
        let patience = Patience::default();
        let ask = |nfs: &mut Calls| nfs.recovery_status(recovery.root());
        self.server.call_once(identity, patience, ask).ok().map(|status| status.verifier)
    }

    /// Data of a file could not be written.
    fn fail(&self, node: &Node, state: &mut DataState, run: &Run, errno: Errno) {
        let (offset, bytes) = (run.offset, run.bytes().len());
        state.held.give_up(run);
        let refusal = refusal(&node.data, errno);
        let in_journal = self.leave_refused(state, offset..offset + bytes as u64, refusal);
        if refusal != Refusal::Unmissed {
            self.server.link.counters.refused_writes.add(1);
            tracing::warn!(
                file = node.number,
                offset,
                bytes,
                errno = errno.0,
                in_journal,
                "data could not be written, and is given up; what is in the journal is for its next replay"
            );
        }
        state.errors += 1;
        state.last_error = Some(errno);
        // What the kernel has in its pages is not what the server has.
        node.expire();
    }

    pub(super) fn settle(&self, node: &Arc<Node>, state: &mut DataState, before: Weight) {
        if state.is_done(self.is_synced_together()) {
            state.is_pressed = false;
            state.since = None;
        }
        if !state.held.has_unstable() {
            state.unstable_since = None;
        }
        self.account(node, before, state);
    }

    /// Sends what is old.
    pub(super) fn run_clock(&self) {
        while !self.is_closed.load(Ordering::Relaxed) {
            thread::sleep(TICK);
            if self.journaling.as_ref().is_some_and(|journaling| journaling.is_pressed()) {
                self.press_all();
            }
            // What a SYNC was to make stable, and does not any more, is committed like anything else.
            let is_synced_together = self.is_synced_together();
            let is_old =
                |since: Option<Instant>| since.is_some_and(|since| since.elapsed() >= SENT_AFTER);
            for node in self.holders() {
                let mut state = node.data.state.lock();
                if is_old(state.since) || !is_synced_together && is_old(state.unstable_since) {
                    state.is_pressed = true;
                    self.enqueue(&node, &mut state, 1);
                }
            }
        }
    }
}

/// What becomes of the journal's records of data that the server refuses with this error.
fn refusal(data: &Data, errno: Errno) -> Refusal {
    match (errno, data.is_removed.load(Ordering::Relaxed)) {
        (Errno::ESTALE, true) => Refusal::Unmissed,
        (Errno::ESTALE, false) => Refusal::Kept,
        _ => Refusal::Told,
    }
}
