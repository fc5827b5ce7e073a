//! A share of a real server.

use steadfast_client::{
    Attributes, ClientError, CreateHow3, DeviceData3, FileHandle, Identity, MknodData3, Nfs3Client,
    NfsStat3, NfsTime3, RecoveryStatus, SetTime3, Settings as Wire, SpecData3, StableHow,
};
use steadfast_journal::{Attributes as Settings, SetTime};

use super::share::{Acknowledging, Answer, Failed, Making, Share, Stamp, Who, Written};
use crate::server::Server;
use crate::transport::{Caller, Patience, is_lost};

/// `S_IFMT` and its values (inode(7)).
const TYPE: u32 = 0o170_000;
const FIFO: u32 = 0o010_000;
const CHARACTER: u32 = 0o020_000;
const BLOCK: u32 = 0o060_000;
/// Groups that `AUTH_SYS` can carry (RFC 5531 appendix A).
const GROUPS_MAX: usize = 16;

/// A share behind NFSv3.
pub(crate) struct Nfs<'a> {
    server: &'a Server,
    root: &'a FileHandle,
    patience: Patience,
    /// No call is sent to a server that has lost something since ([`crate::transport::Link::losses`]).
    losses: u64,
}

impl<'a> Nfs<'a> {
    /// Calls wait as the mount's options say, and not beyond what the patience says.
    pub(crate) fn new(server: &'a Server, root: &'a FileHandle, patience: Patience) -> Self {
        Self { server, root, patience, losses: server.link.losses() }
    }

    fn call<T>(
        &self,
        who: &Who,
        calls: impl Fn(&mut Nfs3Client<Caller>) -> Result<T, ClientError>,
    ) -> Answer<T> {
        let gids = who.groups.iter().copied().take(GROUPS_MAX).collect();
        let identity = Identity::Sys { uid: who.uid, gid: who.gid, gids };
        self.server
            .call_for_recovery(self.losses, &identity, self.patience, calls)
            .map_err(|error| failed(&error))
    }
}

/// Statuses that say something of the object are answers; what says nothing of it is no answer.
fn failed(error: &ClientError) -> Failed {
    match error {
        ClientError::Failed(failure) => match failure.status {
            NfsStat3::Stale | NfsStat3::BadHandle => Failed::Gone,
            NfsStat3::NoEnt => Failed::NoEntry,
            NfsStat3::Exist => Failed::Exists,
            NfsStat3::Jukebox => Failed::Unreachable(error.to_string()),
            status => Failed::Refused(format!("{} failed with {status:?}", failure.procedure)),
        },
        error if is_lost(error) => Failed::Restarted,
        error => Failed::Unreachable(error.to_string()),
    }
}

/// Whoever runs this program.
fn mounter() -> Identity {
    let (uid, gid) = steadfast_sys::process::effective_ids();
    Identity::user(uid, gid)
}

fn handle(bytes: &[u8]) -> FileHandle {
    FileHandle(bytes.to_vec())
}

fn stamp(attributes: Option<&Attributes>) -> Option<Stamp> {
    attributes.map(Stamp::of)
}

fn wire_time(time: Option<SetTime>) -> SetTime3 {
    match time {
        None => SetTime3::DontChange,
        Some(SetTime::OfServer) => SetTime3::SetToServerTime,
        Some(SetTime::To { seconds, nanoseconds }) => SetTime3::SetToClientTime(NfsTime3 {
            seconds: seconds.clamp(0, i64::from(u32::MAX)) as u32,
            nseconds: nanoseconds,
        }),
    }
}

fn wire(settings: &Settings) -> Wire {
    Wire::default().with(|set| {
        set.mode = settings.mode.map(|mode| mode & 0o7777);
        set.uid = settings.uid;
        set.gid = settings.gid;
        set.size = settings.size;
        set.atime = wire_time(settings.accessed);
        set.mtime = wire_time(settings.modified);
    })
}

impl Share for Nfs<'_> {
    fn begin(&mut self) {
        self.losses = self.server.link.losses();
    }
    fn status(&mut self) -> Answer<Option<Acknowledging>> {
        let asked = |nfs: &mut Nfs3Client<Caller>| nfs.recovery_status(self.root);
        match self.server.call_for_recovery(self.losses, &mounter(), self.patience, asked) {
            Ok(RecoveryStatus { is_async, verifier, .. }) => {
                Ok(Some(Acknowledging { is_async, verifier }))
            }
            Err(error) if error.is_program_unavailable() => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    fn sync(&mut self, who: &Who, object: &[u8]) -> Answer<Option<[u8; 8]>> {
        self.call(who, |nfs| match nfs.recovery_sync(&handle(object)) {
            Err(error) if error.status() == Some(NfsStat3::NotSupp) => Ok(None),
            synced => synced.map(Some),
        })
    }

    fn getattr(&mut self, who: &Who, object: &[u8]) -> Answer<Attributes> {
        self.call(who, |nfs| nfs.getattr(&handle(object)))
    }

    fn lookup(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<Vec<u8>> {
        self.call(who, |nfs| nfs.lookup(&handle(parent), name)).map(|found| found.handle.0)
    }

    fn readlink(&mut self, who: &Who, object: &[u8]) -> Answer<Vec<u8>> {
        self.call(who, |nfs| nfs.readlink(&handle(object))).map(|read| read.target)
    }

    fn read(&mut self, who: &Who, file: &[u8], offset: u64, count: u32) -> Answer<Vec<u8>> {
        self.call(who, |nfs| nfs.read(&handle(file), offset, count)).map(|read| read.data)
    }

    fn write(&mut self, who: &Who, file: &[u8], offset: u64, data: &[u8]) -> Answer<Written> {
        let written =
            self.call(who, |nfs| nfs.write(&handle(file), offset, data, StableHow::Unstable))?;
        Ok(Written {
            bytes: written.count as usize,
            verifier: written.verifier,
            before: written.wcc.before.map(|before| Stamp {
                size: before.size,
                mtime: before.mtime,
                ctime: before.ctime,
            }),
            after: stamp(written.wcc.after.as_ref()),
        })
    }

    fn commit(&mut self, who: &Who, file: &[u8]) -> Answer<[u8; 8]> {
        // A share that is `async` answers to COMMIT from memory.
        self.call(who, |nfs| match nfs.recovery_status(&handle(file)) {
            Ok(status) if status.is_async => match nfs.recovery_sync(&handle(file)) {
                Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                    nfs.commit(&handle(file), 0, 0).map(|commit| commit.verifier)
                }
                synced => synced,
            },
            Err(error) if !error.is_program_unavailable() => Err(error),
            _ => nfs.commit(&handle(file), 0, 0).map(|commit| commit.verifier),
        })
    }

    fn setattr(&mut self, who: &Who, object: &[u8], to: &Settings) -> Answer<Option<Stamp>> {
        let wcc = self.call(who, |nfs| nfs.setattr(&handle(object), &wire(to), None))?;
        Ok(stamp(wcc.after.as_ref()))
    }

    fn make(
        &mut self,
        who: &Who,
        parent: &[u8],
        name: &[u8],
        what: &Making,
    ) -> Answer<(Vec<u8>, Option<Stamp>)> {
        let directory = handle(parent);
        let made = self.call(who, |nfs| match what {
            Making::File { verifier } => {
                let guarded = CreateHow3::Guarded(Wire::mode(0o600).0);
                if *verifier == [0; 8] {
                    return nfs.create(&directory, name, &guarded);
                }
                match nfs.create(&directory, name, &CreateHow3::Exclusive(*verifier)) {
                    Err(error) if error.status() == Some(NfsStat3::NotSupp) => {
                        nfs.create(&directory, name, &guarded)
                    }
                    made => made,
                }
            }
            Making::Directory(settings) => nfs.mkdir(&directory, name, &wire(settings)),
            Making::Symlink(target, settings) => {
                nfs.symlink(&directory, name, target, &wire(settings))
            }
            Making::Special(file_type, device, settings) => {
                let set = wire(settings).0;
                let device = DeviceData3 {
                    dev_attributes: set,
                    spec: SpecData3 { specdata1: device[0], specdata2: device[1] },
                };
                let what = match file_type & TYPE {
                    CHARACTER => MknodData3::Chr(device),
                    BLOCK => MknodData3::Blk(device),
                    FIFO => MknodData3::Fifo(set),
                    _ => MknodData3::Sock(set),
                };
                nfs.mknod(&directory, name, &what)
            }
        })?;
        let after = stamp(made.attributes.as_ref());
        match made.handle {
            Some(handle) => Ok((handle.0, after)),
            None => Ok((self.lookup(who, parent, name)?, after)),
        }
    }

    fn link(&mut self, who: &Who, file: &[u8], parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(who, |nfs| nfs.link(&handle(file), &handle(parent), name)).map(drop)
    }

    fn rename(&mut self, who: &Who, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Answer<()> {
        self.call(who, |nfs| nfs.rename(&handle(from.0), from.1, &handle(to.0), to.1)).map(drop)
    }

    fn remove(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(who, |nfs| nfs.remove(&handle(parent), name)).map(drop)
    }

    fn rmdir(&mut self, who: &Who, parent: &[u8], name: &[u8]) -> Answer<()> {
        self.call(who, |nfs| nfs.rmdir(&handle(parent), name)).map(drop)
    }
}
