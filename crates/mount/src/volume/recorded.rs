//! Changes of names and attributes, which have a record in the journal if there is one.

use std::sync::Arc;
use std::time::Instant;

use steadfast_client::{ClientError, FileHandle, Linked, Made, NfsStat3, Renamed, Wcc};
use steadfast_journal::{Change, Outcome as Told, SetTime};

use super::objects::Changes;
use super::{Asker, Outcome, Volume, nfs_time};
use crate::calls::Calls;
use crate::journaling::{outcome_of, stamp_of};
use crate::keeping::{Describe, Keeping};
use crate::node::Node;
use crate::recovery::Fate;
use crate::transport::{Repeats, is_lost};

/// What the server answers to a change.
pub(super) trait Answered {
    /// What the journal is told of it.
    fn outcome(&self) -> Told;
    /// What is known of it if it was made in a recovery.
    fn recovered(made: Option<FileHandle>) -> Self;
}

impl Answered for Wcc {
    fn outcome(&self) -> Told {
        outcome_of(self)
    }

    fn recovered(_: Option<FileHandle>) -> Self {
        Self::default()
    }
}

impl Answered for Made {
    fn outcome(&self) -> Told {
        let handle = self.handle.as_ref().map(|handle| handle.0.clone()).unwrap_or_default();
        Told { handle, ..outcome_of(&self.directory) }
    }

    fn recovered(made: Option<FileHandle>) -> Self {
        Self { handle: made, attributes: None, directory: Wcc::default() }
    }
}

impl Answered for Renamed {
    fn outcome(&self) -> Told {
        outcome_of(&self.from)
    }

    fn recovered(_: Option<FileHandle>) -> Self {
        Self { from: Wcc::default(), to: Wcc::default() }
    }
}

impl Answered for Linked {
    fn outcome(&self) -> Told {
        Told { after: self.attributes.as_ref().map(stamp_of), ..Told::default() }
    }

    fn recovered(_: Option<FileHandle>) -> Self {
        Self { attributes: None, directory: Wcc::default() }
    }
}

impl Volume {
    /// Whether changes of names have records.
    pub(super) fn is_kept(&self) -> bool {
        self.keeping.is_some()
    }

    /// Changes of names survive a crash of this host, or of the server, from now on.
    pub(crate) fn sync_names(&self, asker: &Asker) -> Outcome<()> {
        let since = Instant::now();
        match &self.keeping {
            Some(keeping) => {
                Ok(keeping.sync((self.server.patience(asker.patience, since), since))?)
            }
            // A server acknowledges them when they are stable.
            None => Ok(()),
        }
    }

    /// The path of a name in a directory.
    pub(super) fn path_of(&self, directory: &Node, name: &[u8]) -> Vec<u8> {
        // For people to read: a very long one is told without its beginning.
        const BYTES_MAX: usize = 4000;
        let mut path = self.nodes.path(directory.number);
        path.push(b'/');
        path.extend_from_slice(name);
        path.split_off(path.len().saturating_sub(BYTES_MAX))
    }

    /// Makes a change, with its record before it. `node` is what is changed, or its directory.
    pub(super) fn recorded<T: Answered>(
        &self,
        asker: &Asker,
        node: &Arc<Node>,
        path: &[u8],
        describe: Describe<'_>,
        call: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let identity = &asker.identity;
        let Some(keeping) = &self.keeping else {
            let repeats = Repeats::default();
            let answer = self.server.call_telling(identity, asker.patience, &repeats, &call);
            return self.or_made_before(asker, describe, (&repeats, &[]), answer);
        };
        let since = Instant::now();
        let waiting = (self.server.patience(asker.patience, since), since);
        loop {
            let Some(begun) = keeping.begin(path, identity, describe, waiting)? else {
                return self.unrecorded(keeping, asker, node, describe, call);
            };
            let (patience, repeats) = (asker.patience, Repeats::default());
            let answer = self.server.call_after(begun.losses, identity, patience, &repeats, &call);
            match self.or_made_before(asker, describe, (&repeats, &[]), answer) {
                Ok(answer) => {
                    if keeping.answered(&begun, (node, identity), answer.outcome())? {
                        return Ok(answer);
                    }
                }
                Err(error) if is_lost(&error) => {}
                Err(error) if error.status().is_some() => {
                    if keeping.refused(&begun)? {
                        return Err(error);
                    }
                }
                Err(error) => {
                    keeping.abandoned(&begun, node, identity);
                    return Err(error);
                }
            }
            match keeping.fate(&begun, waiting) {
                Ok(Fate::Made(handle)) => return Ok(T::recovered(handle)),
                Ok(Fate::NotMade) => {}
                Err(error) => {
                    keeping.abandoned(&begun, node, identity);
                    return Err(error);
                }
            }
        }
    }

    /// Makes a change without a record, as the journal has failed. It is acknowledged when it is stable on the
    /// server; if the server loses it before, it is made again.
    fn unrecorded<T: Answered>(
        &self,
        keeping: &Keeping,
        asker: &Asker,
        node: &Arc<Node>,
        describe: Describe<'_>,
        call: impl Fn(&mut Calls) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let identity = &asker.identity;
        let since = Instant::now();
        let patience = self.server.patience(asker.patience, since);
        let repeats = Repeats::default();
        let mut made = Vec::new();
        loop {
            let sent_under = keeping.verifier();
            let losses = self.server.link.losses();
            let answer = self.server.call_after(losses, identity, patience, &repeats, &call);
            match self.or_made_before(asker, describe, (&repeats, &made), answer) {
                Ok(answer) => {
                    if keeping.make_stable((node, identity), sent_under, (patience, since))? {
                        return Ok(answer);
                    }
                    // If the server has kept it after all, it refuses it now.
                    repeats.note();
                    made = answer.outcome().handle;
                }
                Err(error) if is_lost(&error) => {}
                Err(error) => return Err(error),
            }
            keeping.wait(patience, since)?;
        }
    }

    /// The answer to a change; a refusal is none if the change was made by an earlier sending. `made` is the handle
    /// of what that made, if it was answered.
    ///
    /// What is made has no mark of its maker: without its handle a name that exists may be that of another
    /// client, who made it first, so that is an error. So two clients never get the same lock by making it.
    fn or_made_before<T: Answered>(
        &self,
        asker: &Asker,
        describe: Describe<'_>,
        (repeats, made): (&Repeats, &[u8]),
        answer: Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let status = answer.as_ref().err().and_then(ClientError::status);
        let Some(status) = status.filter(|_| repeats.is_noted()) else { return answer };
        let mut expected = None;
        let mut is_removed = false;
        describe(&mut |change| {
            expected = match (status, change) {
                (NfsStat3::NoEnt, Change::Remove { .. } | Change::Rmdir { .. }) => {
                    is_removed = true;
                    None
                }
                (NfsStat3::NoEnt, Change::Rename { to_parent, to_name, object, .. }) => {
                    Some((to_parent, to_name, object))
                }
                (NfsStat3::Exist, Change::Link { parent, name, file }) => {
                    Some((parent, name, file))
                }
                (
                    NfsStat3::Exist,
                    Change::Create { parent, name, .. }
                    | Change::Mkdir { parent, name, .. }
                    | Change::Symlink { parent, name, .. }
                    | Change::Mknod { parent, name, .. },
                ) => Some((parent, name, made)),
                _ => None,
            }
            .filter(|(_, _, object)| !object.is_empty())
            .map(|(parent, name, object)| {
                (FileHandle(parent.to_vec()), name.to_vec(), FileHandle(object.to_vec()))
            });
        });
        if is_removed {
            return Ok(T::recovered(None));
        }
        let Some((parent, name, object)) = expected else { return answer };
        match self.call(asker, |nfs| nfs.lookup(&parent, &name)) {
            Ok(found) if found.handle == object => Ok(T::recovered(Some(object))),
            // Nobody knows: the record stays.
            Err(error) if error.status().is_none() => Err(error),
            _ => answer,
        }
    }
}

/// Attributes as a record has them.
pub(super) fn journal_attributes(changes: &Changes) -> steadfast_journal::Attributes {
    let time = |time: Option<fuser::TimeOrNow>| {
        time.map(|time| match time {
            fuser::TimeOrNow::Now => SetTime::OfServer,
            fuser::TimeOrNow::SpecificTime(time) => {
                let time = nfs_time(time);
                SetTime::To { seconds: i64::from(time.seconds), nanoseconds: time.nanoseconds }
            }
        })
    };
    steadfast_journal::Attributes {
        size: changes.size,
        mode: changes.mode.map(|mode| mode & 0o7777),
        uid: changes.uid,
        gid: changes.gid,
        accessed: time(changes.atime),
        modified: time(changes.mtime),
    }
}
