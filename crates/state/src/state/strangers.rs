//! Who has no open, and what opens deny to it: calls of NFSv2 and NFSv3; and what was denied by
//! clients that are struck off, until that is stable.

use std::collections::HashMap;
use std::net::IpAddr;

use super::attempt::Stopped;
use crate::client::Recorded;
use crate::files::Asking;
use crate::ids::OpenNumber;
use crate::share::Share;
use crate::{Client, FileKey, ShareAccess, ShareDeny, State, StateError};

/// What those denied who were struck off, by file: up to which record that is to be stable, and the share.
pub(crate) type StruckDenies = HashMap<FileKey, Vec<(u64, Share)>>;

impl State {
    /// Whether any open of any file denies anything: what would cost much to be judged need not be if
    /// not.
    pub fn has_denies(&self) -> bool {
        self.files.gate().has_some()
    }

    /// Judges a READ, a WRITE or a change of the size that NFSv2 or NFSv3 asks for, which have no
    /// opens: what an open denies is denied to all but its owner. What hosts that speak NLM at this
    /// address have reserved is their own. Clients whose lease has expired lose all that they have, if
    /// they alone are in the way.
    ///
    /// It costs a look at a counter if nobody denies anything to anybody there.
    ///
    /// # Errors
    /// [`StateError::Locked`]; [`StateError::TryLater`] if very many clients have to expire, and as long
    /// as the record is not stable of who has lost an open that denied this.
    pub fn judge_stranger(
        &self,
        now_ms: u64,
        address: IpAddr,
        file: &FileKey,
        access: ShareAccess,
    ) -> Result<(), StateError> {
        if !self.files.gate().may_deny(file) {
            return Ok(());
        }
        self.advance(now_ms);
        let (client, wanted) = (self.nobody(), Share { access, deny: ShareDeny::empty() });
        let address = Some(address.to_canonical());
        self.repeated(client, || {
            let asking = Asking { address, ..self.asking(client, None) };
            let judged = self.files.judge(&asking, file, wanted);
            judged.map_err(|conflict| Stopped::by(conflict, StateError::Locked))?;
            self.require_freed(file).map_err(Stopped::Failed)
        })
    }

    /// The number of the record that says that a client, which ends, was struck off; `None` if that is
    /// stable.
    pub(crate) fn struck(&self, client: &Client) -> Option<u64> {
        let records = &self.journal.records;
        // Its number is not above this.
        let noted = records.noted();
        (client.recorded() > Recorded::Not && !records.has_kept(noted)).then_some(noted)
    }

    /// An open is no more, whose client was struck off: the gate counts it until that is stable.
    pub(crate) fn free_when_kept(&self, noted: u64, number: OpenNumber, file: &FileKey) {
        let Some(share) = self.files.release_behind_gate(number, file) else { return };
        if share.deny.is_empty() {
            return;
        }
        let mut struck = self.struck_denies.lock();
        if self.journal.records.has_kept(noted) {
            self.files.gate().leave(file, share);
        } else {
            struck.entry(*file).or_default().push((noted, share));
        }
    }

    /// The records are stable by now: what those denied who were struck off is free.
    pub(crate) fn free_what_is_kept(&self) {
        self.struck_denies.lock().retain(|file, denies| {
            denies.retain(|(noted, share)| {
                let is_kept = self.journal.records.has_kept(*noted);
                if is_kept {
                    self.files.gate().leave(file, *share);
                }
                !is_kept
            });
            !denies.is_empty()
        });
    }

    /// Refuses what somebody denied who was struck off, as long as that is not stable.
    pub(crate) fn require_freed(&self, file: &FileKey) -> Result<(), StateError> {
        let struck = self.struck_denies.lock();
        if struck.contains_key(file) { Err(StateError::TryLater) } else { Ok(()) }
    }
}
