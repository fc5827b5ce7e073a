//! What a mount with a journal does when its server has lost what it had acknowledged from memory, in a crash: names,
//! attributes and data of an `async` share, or of a foreign server's.
//!
//! While calls are held (`recovery.rs`) the journal is replayed; objects that had to be made again have new handles
//! then.
//!
//! It must never make a change again that the replay has made.

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use steadfast_client::FileHandle;

use crate::journaling::Journaling;
use crate::node::Nodes;
use crate::recovery::{Fate, Recovery};
use crate::replay::{Carried, ReplayError, Replayed};
use crate::server::Server;
use crate::write_back::WriteBack;

/// Pause after a recovery that did not come to its end: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The thread that recovers.
#[derive(Debug)]
pub(crate) struct Recoverer {
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) server: Arc<Server>,
    pub(crate) journaling: Arc<Journaling>,
    pub(crate) write_back: Arc<WriteBack>,
    pub(crate) nodes: Arc<Nodes>,
}

impl Recoverer {
    pub(crate) fn start(self) -> io::Result<()> {
        let run = move || {
            while self.recovery.await_loss() {
                self.recover();
            }
        };
        thread::Builder::new().name("nfs-recovery".to_owned()).spawn(run)?;
        Ok(())
    }

    fn recover(&self) {
        tracing::warn!("the server has lost what it had acknowledged: the journal is replayed");
        self.journaling.note_recovery_begun();
        let mut pause = PAUSE.0;
        let (mut fates, mut carried) = (Replayed::default(), Carried::default());
        while !self.recovery.is_closed() {
            match self.attempt(&mut fates, &mut carried) {
                Ok(true) => return self.journaling.note_recovered(),
                Ok(false) => tracing::info!("the server has lost something again"),
                Err(error) => tracing::warn!("{error}; trying again"),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// The fates are those of all attempts: what one of them has settled is not in the journal at the next.
    fn attempt(&self, fates: &mut Replayed, carried: &mut Carried) -> Result<bool, ReplayError> {
        let _gate = self.recovery.hold_appends();
        let mut unanswered = self.write_back.quiesce();
        let in_flight = self.recovery.watched();
        unanswered.extend(&in_flight);
        let is_waited_for = self.recovery.ask_anew(&self.server);
        let is_waited_for =
            is_waited_for.map_err(|error| ReplayError::Unreachable(error.to_string()))?;
        if !is_waited_for {
            // Others may have changed what an earlier attempt has.
            carried.forget_doubts();
        }
        let replayed = self.journaling.recover(&self.server, &unanswered, &in_flight, carried);
        if replayed.is_err() && !is_waited_for {
            // Others are served beside this attempt.
            carried.forget_doubts();
        }
        let replayed = replayed?;
        for (old, new) in &replayed.report.made_again {
            let (old, new) = (FileHandle(old.clone()), FileHandle(new.clone()));
            self.recovery.note_made_again(&old, &new);
            self.nodes.rename_handle(&old, new);
        }
        self.nodes.doubt_all();
        self.write_back.recovered(&replayed.not_made);
        fates.not_made.extend(replayed.not_made);
        fates.made.extend(replayed.made);
        fates.verifier = replayed.verifier;
        let told = self.recovery.tell_recovered(&self.server);
        let told = told.map_err(|error| ReplayError::Unreachable(error.to_string()))?;
        if told.is_some() && replayed.verifier.is_some() && told != replayed.verifier {
            return Ok(false);
        }
        Ok(self.recovery.finish(fates.verifier, |record| {
            if fates.not_made.contains(record) {
                return Fate::NotMade;
            }
            Fate::Made(fates.made.get(record).cloned().map(FileHandle))
        }))
    }
}
