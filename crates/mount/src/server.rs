//! Calls to the server under a user's identity, which wait as the mount's options say.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use steadfast_client::{ClientError, Identity, Nfs3Client, NfsStat3};

use crate::transport::{Caller, Link, Patience};

/// How long is waited after JUKEBOX: at first, and at most.
const LATER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The server of a mount.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) link: Arc<Link>,
    /// How long a call of a `soft` mount takes at most.
    pub(crate) soft_after: Option<Duration>,
}

impl Server {
    /// Makes calls as this user. A server that says "later" (JUKEBOX) is asked again; nothing has been
    /// executed then.
    pub(crate) fn call<T>(
        &self,
        identity: &Identity,
        patience: Patience,
        calls: impl Fn(&mut Nfs3Client<Caller>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let since = Instant::now();
        let mut patience = patience;
        if let (None, Some(soft_after)) = (patience.until, self.soft_after) {
            patience.until = Some(since + soft_after);
        }
        let caller = Caller { link: Arc::clone(&self.link), patience };
        let mut client = Nfs3Client::new(caller, identity.clone());
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
