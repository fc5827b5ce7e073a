//! Calls to the server under a user's identity, which wait as the mount's options say.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use steadfast_client::{ClientError, Identity, Nfs3Client, NfsStat3};

use crate::calls::Calls;
use crate::nfs4::Client4;
use crate::recovery::Recovery;
use crate::transport::{Caller, Link, Patience, Repeats, is_lost};

/// How long is waited after JUKEBOX: at first, and at most.
const LATER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The server of a mount.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) link: Arc<Link>,
    /// How long a call of a `soft` mount takes at most.
    pub(crate) soft_after: Option<Duration>,
    /// What a mount with a journal does when the server has lost something.
    pub(crate) recovery: OnceLock<Arc<Recovery>>,
    /// What NFSv4 keeps at the server; `None` with NFSv3.
    pub(crate) nfs4: Option<Arc<Client4>>,
}

impl Server {
    /// Makes calls as this user. A server that says "later" (JUKEBOX) is asked again; nothing has been
    /// executed then. If the server loses what it had acknowledged, they are made once more after the
    /// recovery: they may have been executed then.
    pub(crate) fn call<T>(
        &self,
        identity: &Identity,
        patience: Patience,
        calls: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.call_telling(identity, patience, &Repeats::default(), calls)
    }

    /// As [`Server::call`], for a change: it is noted whether an answer may be that to a repetition.
    pub(crate) fn call_telling<T>(
        &self,
        identity: &Identity,
        patience: Patience,
        repeats: &Repeats,
        calls: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let since = Instant::now();
        let patience = self.patience(patience, since);
        loop {
            match self.call_after(self.link.losses(), identity, patience, repeats, &calls) {
                Err(error) if is_lost(&error) => {
                    let recovery = self.recovery.get().ok_or(ClientError::Closed)?;
                    recovery.wait(patience, since)?;
                }
                outcome => return outcome,
            }
        }
    }

    /// As [`Server::call`]; but what was in flight when the server lost something fails, and
    /// [`is_lost`] says so.
    pub(crate) fn call_once<T>(
        &self,
        identity: &Identity,
        patience: Patience,
        calls: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.call_after(self.link.losses(), identity, patience, &Repeats::default(), calls)
    }

    /// As [`Server::call_once`], for a caller that knows of so many losses ([`Link::losses`]), and a change as in
    /// [`Server::call_telling`].
    pub(crate) fn call_after<T>(
        &self,
        losses: u64,
        identity: &Identity,
        patience: Patience,
        repeats: &Repeats,
        calls: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let make = |caller| match &self.nfs4 {
            None => Calls::v3(caller, identity.clone()),
            Some(client) => Calls::v4(client, caller, identity.clone()),
        };
        self.attempt(make, patience, (losses, false, repeats), calls)
    }

    /// As [`Server::call_after`], while calls of others are held. Mounts with a journal speak NFSv3.
    pub(crate) fn call_for_recovery<T>(
        &self,
        losses: u64,
        identity: &Identity,
        patience: Patience,
        calls: impl Fn(&mut Nfs3Client<Caller>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let make = |caller| Nfs3Client::new(caller, identity.clone());
        self.attempt(make, patience, (losses, true, &Repeats::default()), calls)
    }

    /// The patience of a `soft` mount has an end.
    pub(crate) fn patience(&self, patience: Patience, since: Instant) -> Patience {
        let until = patience.until.or_else(|| self.soft_after.map(|after| since + after));
        Patience { until, ..patience }
    }

    fn attempt<C, T>(
        &self,
        make: impl FnOnce(Caller) -> C,
        patience: Patience,
        (losses, is_of_recovery, repeats): (u64, bool, &Repeats),
        calls: impl Fn(&mut C) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let since = Instant::now();
        let patience = self.patience(patience, since);
        let link = Arc::clone(&self.link);
        let repeats = repeats.clone();
        let caller = Caller { link, patience, losses, is_of_recovery, repeats };
        let mut client = make(caller);
        let mut pause = LATER.0;
        loop {
            let outcome = calls(&mut client);
            match &outcome {
                Err(error) if error.status() == Some(NfsStat3::Jukebox) => {}
                _ => return outcome,
            }
            let asleep = Instant::now();
            while asleep.elapsed() < pause {
                if let Some(end) = patience.end(since) {
                    return Err(end);
                }
                thread::sleep(patience.nap().min(pause));
            }
            pause = (pause * 2).min(LATER.1);
        }
    }
}
