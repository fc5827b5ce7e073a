//! One client that mounts: which connection and which call comes next, and when to try again.
//!
//! No sockets and no clock: what happened and when is told to it, what to do is asked of it.

use std::net::SocketAddr;

use steadfast_client::rpcbind::{Mapping, PROTOCOL_TCP};
use steadfast_client::{CallTemplate, Identity, Procedure, arguments, mount, procedure, rpcbind};
use steadfast_wire::mount::{DirPath, MountRes3};
use steadfast_wire::nfs3::{Fattr3, FileType3, Fsinfo3Ok};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

use super::everything::Everything;
use super::failure::Failure;
use super::listing::{Listing, Paths};
use super::{EveryShare, Patience};
use crate::replies::{self, Complaint, at_end, formed};
use crate::setup::Target;

/// The first pause before another attempt; each further one is twice as long.
const PAUSE_MIN_NS: u64 = 1_000_000_000;
/// The longest pause.
const PAUSE_MAX_NS: u64 = 10_000_000_000;

/// What a client is about to be answered; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    ConnectRpcbind,
    PortOfNfs,
    PortOfMount,
    ConnectMount,
    Export,
    Mnt,
    ConnectNfs,
    Fsinfo,
    Getattr,
    Mounted,
    GivenUp,
}

/// The steps that take time, as kinds of a report.
pub(super) const KINDS: [&str; 9] = [
    "connect rpcbind",
    "getport nfs",
    "getport mount",
    "connect mount",
    "export",
    "mnt",
    "connect nfs",
    "fsinfo",
    "getattr",
];

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Close what is open and connect to this address.
    Connect(SocketAddr),
    /// Send these bytes on the connection.
    Send(Vec<u8>),
    /// Close what is open and begin again at this time.
    Pause(u64),
    /// Nothing: it has mounted, and stays connected.
    Stay,
    /// Nothing: it has given up.
    Stop,
}

/// What clients have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) target: Target,
    pub(super) path: Vec<u8>,
    /// Whether they mount every share rather than that of the path.
    pub(super) every_share: Option<EveryShare>,
    /// Shares that EXPORT told.
    pub(super) paths: Paths,
    pub(super) rpcbind: Option<SocketAddr>,
    pub(super) patience: Patience,
}

/// A client.
#[derive(Clone, Debug)]
pub(super) struct StormClient {
    pub(super) step: Step,
    /// When the whole began.
    started_ns: u64,
    /// When the step began.
    pub(super) step_ns: u64,
    /// When something was last heard: a long list may take long, as long as it comes.
    progress_ns: u64,
    pub(super) attempts: u32,
    pub(super) failure: Option<Failure>,
    xid: u32,
    nfs: SocketAddr,
    mount: SocketAddr,
    /// Of the first share that it mounted.
    handle: Vec<u8>,
    pub(super) everything: Everything,
}

fn call(procedure: Procedure, identity: &Identity, xid: u32, arguments: &[u8]) -> Next {
    let mut bytes = Vec::new();
    CallTemplate::new(procedure, identity, arguments, 0).append(xid, &mut bytes);
    Next::Send(bytes)
}

impl StormClient {
    pub(super) fn new(common: &Common, first_xid: u32, started_ns: u64) -> Self {
        Self {
            step: Step::ConnectRpcbind,
            started_ns,
            step_ns: started_ns,
            progress_ns: started_ns,
            attempts: 0,
            failure: None,
            xid: first_xid,
            nfs: common.target.server,
            mount: common.target.mount_server,
            handle: Vec::new(),
            everything: Everything::default(),
        }
    }

    /// Whether it is over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, Step::Mounted | Step::GivenUp)
    }

    /// The step as a kind of a report.
    pub(super) fn kind(&self) -> usize {
        self.step as usize
    }

    /// When the step has taken too long.
    pub(super) fn deadline_ns(&self, common: &Common) -> u64 {
        self.progress_ns.saturating_add(common.patience.call.as_nanos() as u64)
    }

    /// Begins an attempt.
    pub(super) fn begin(&mut self, common: &Common, now_ns: u64) -> Next {
        self.attempts += 1;
        (self.step_ns, self.progress_ns) = (now_ns, now_ns);
        if let Some(rpcbind) = common.rpcbind {
            self.step = Step::ConnectRpcbind;
            Next::Connect(rpcbind)
        } else {
            self.step = Step::ConnectMount;
            Next::Connect(self.mount)
        }
    }

    /// It is connected.
    pub(super) fn handle_connected(&mut self, common: &Common, now_ns: u64) -> Next {
        self.enter(now_ns);
        match self.step {
            Step::ConnectRpcbind => {
                self.step = Step::PortOfNfs;
                self.ask_port(steadfast_client::NFS3)
            }
            Step::ConnectMount => match common.every_share {
                // One that was interrupted goes on where it was.
                Some(every) if self.everything.shares.is_none() => {
                    self.step = Step::Export;
                    self.everything.listing = Some(Box::new(Listing::new(self.xid, every.0)));
                    call(mount::EXPORT, &common.target.identity, self.xid, &[])
                }
                _ => self.mount_next(common),
            },
            Step::ConnectNfs => {
                self.step = Step::Fsinfo;
                self.ask(procedure::FSINFO, common)
            }
            // Nobody waits for a connection.
            _ => Next::Stay,
        }
    }

    /// Asks for the handle of the share that is next, or, if that was the last, connects to NFS.
    fn mount_next(&mut self, common: &Common) -> Next {
        let path = match common.every_share {
            None => Some(&*common.path),
            Some(_) => self.everything.share().map(|share| common.paths.path(share)),
        };
        let Some(path) = path else {
            self.step = Step::ConnectNfs;
            return Next::Connect(self.nfs);
        };
        self.step = Step::Mnt;
        let mut argument = Vec::new();
        DirPath { path }.encode(&mut Writer::new(&mut argument));
        call(mount::MNT, &common.target.identity, self.xid, &argument)
    }

    fn ask_port(&self, program: u32) -> Next {
        let mut arguments = Vec::new();
        let wanted = Mapping { prog: program, vers: 3, prot: PROTOCOL_TCP, port: 0 };
        wanted.encode(&mut Writer::new(&mut arguments));
        call(rpcbind::GETPORT, &Identity::None, self.xid, &arguments)
    }

    fn ask(&self, procedure: Procedure, common: &Common) -> Next {
        let handle = steadfast_client::FileHandle(self.handle.clone());
        call(procedure, &common.target.identity, self.xid, &arguments::handle(&handle))
    }

    /// Whether what comes is the list of shares, for [`StormClient::handle_listing`].
    pub(super) fn is_listing(&self) -> bool {
        self.step == Step::Export
    }

    /// Bytes of the list of shares have come; what comes next when that was all of it.
    pub(super) fn handle_listing(
        &mut self,
        common: &mut Common,
        bytes: &[u8],
        now_ns: u64,
    ) -> Option<Next> {
        let listing = self.everything.listing.as_mut()?;
        let listed = match listing.feed(&mut common.paths, bytes) {
            Ok(None) => {
                self.progress_ns = now_ns;
                return None;
            }
            Ok(Some(listed)) if listed.shares == 0 => {
                Err(Failure::Refused("EXPORT told no share".to_owned()))
            }
            Ok(Some(listed)) => Ok(listed),
            Err(failure) => Err(failure),
        };
        self.everything.listing = None;
        Some(match listed {
            Ok(listed) => {
                self.enter(now_ns);
                self.everything.told = (listed.shares, listed.bytes);
                self.everything.shares = Some(listed.first);
                self.mount_next(common)
            }
            Err(failure) => self.fail(common, failure, now_ns),
        })
    }

    /// A step begins.
    fn enter(&mut self, now_ns: u64) {
        (self.step_ns, self.progress_ns) = (now_ns, now_ns);
        self.xid = self.xid.wrapping_add(1);
    }

    /// A reply has come.
    pub(super) fn handle_reply(&mut self, common: &Common, message: &[u8], now_ns: u64) -> Next {
        let is_ours = message.first_chunk::<4>().is_some_and(|xid| *xid == self.xid.to_be_bytes());
        if !is_ours {
            let what = "a reply to a call that was not made".to_owned();
            return self.fail(common, Failure::Broken(what), now_ns);
        }
        let name = KINDS.get(self.kind()).copied().unwrap_or("mount");
        let outcome = match replies::results(name, message) {
            Ok(mut r) => self.take(common, &mut r),
            Err(error) => Err(Failure::Broken(error.to_string())),
        };
        if let Err(failure) = outcome {
            return self.fail(common, failure, now_ns);
        }
        self.enter(now_ns);
        match self.step {
            Step::PortOfNfs => {
                self.step = Step::PortOfMount;
                self.ask_port(mount::MOUNT)
            }
            Step::PortOfMount => {
                self.step = Step::ConnectMount;
                Next::Connect(self.mount)
            }
            Step::Mnt if common.every_share.is_some() => {
                self.everything.next += 1;
                if self.everything.share().is_none() && self.everything.mounted() == 0 {
                    let what = "no share could be mounted".to_owned();
                    return self.fail(common, Failure::Refused(what), now_ns);
                }
                self.mount_next(common)
            }
            Step::Mnt => {
                self.step = Step::ConnectNfs;
                Next::Connect(self.nfs)
            }
            Step::Fsinfo => {
                self.step = Step::Getattr;
                self.ask(procedure::GETATTR, common)
            }
            _ if !self.everything.refused.is_empty() => {
                let what = "the server refused some of the shares that it told".to_owned();
                self.fail(common, Failure::Refused(what), now_ns)
            }
            _ => {
                self.step = Step::Mounted;
                Next::Stay
            }
        }
    }

    /// Takes what the results say.
    fn take(&mut self, common: &Common, r: &mut Reader<'_>) -> Result<(), Failure> {
        let outcome = match self.step {
            Step::PortOfNfs | Step::PortOfMount => return self.take_port(r),
            Step::Mnt => self.take_handle(common, r)?,
            Step::Fsinfo | Step::Getattr => {
                let name = KINDS.get(self.kind()).copied().unwrap_or("mount");
                match replies::succeeded(name, r) {
                    Ok(true) => {}
                    Ok(false) => return Err(Failure::Connection("refused for now".to_owned())),
                    Err(error) => return Err(Failure::Refused(error.to_string())),
                }
                self.take_attributes(r)
            }
            _ => Err("a reply that nobody waits for".into()),
        };
        outcome.and_then(|()| at_end(r)).map_err(|complaint| match complaint {
            Complaint::Xdr(error) => Failure::Broken(error.to_string()),
            Complaint::Promise(what) => Failure::Broken(what),
        })
    }

    fn take_port(&mut self, r: &mut Reader<'_>) -> Result<(), Failure> {
        let port = r.u32().map_err(|error| Failure::Broken(error.to_string()))?;
        let port = u16::try_from(port)
            .map_err(|_| Failure::Broken("GETPORT told a port above 65535".to_owned()))?;
        if port == 0 {
            // Perhaps it is registered in a moment.
            let name = if self.step == Step::PortOfNfs { "NFS" } else { "MOUNT" };
            return Err(Failure::Connection(format!("rpcbind does not know {name}")));
        }
        let address = if self.step == Step::PortOfNfs { &mut self.nfs } else { &mut self.mount };
        address.set_port(port);
        Ok(())
    }

    /// The outer failure is a refusal. Who mounts every share counts those, and goes on.
    fn take_handle(
        &mut self,
        common: &Common,
        r: &mut Reader<'_>,
    ) -> Result<Result<(), Complaint>, Failure> {
        match MountRes3::decode(r) {
            // Of several shares the first is looked at.
            Ok(MountRes3::Ok(mounted)) if self.everything.mounted() == 0 => {
                self.handle = mounted.fhandle.0.to_vec();
            }
            Ok(MountRes3::Ok(_)) => {}
            Ok(MountRes3::Failed(status)) if common.every_share.is_some() => {
                *self.everything.refused.entry(status).or_default() += 1;
            }
            Ok(MountRes3::Failed(status)) => {
                return Err(Failure::Refused(format!("MNT failed with status {status}")));
            }
            Err(error) => return Ok(Err(error.into())),
        }
        Ok(Ok(()))
    }

    fn take_attributes(&self, r: &mut Reader<'_>) -> Result<(), Complaint> {
        if self.step == Step::Fsinfo {
            formed::<Fsinfo3Ok>(r)?;
        } else if Fattr3::decode(r)?.file_type != FileType3::Dir {
            return Err("the share's root is no directory".into());
        }
        Ok(())
    }

    /// The attempt has failed: another one after a pause, if there is time.
    pub(super) fn fail(&mut self, common: &Common, failure: Failure, now_ns: u64) -> Next {
        let may_help = matches!(failure, Failure::TimedOut | Failure::Connection(_));
        self.failure = Some(failure);
        self.everything.listing = None;
        let pause = (PAUSE_MIN_NS << self.attempts.saturating_sub(1).min(8)).min(PAUSE_MAX_NS);
        let until = now_ns.saturating_add(pause);
        let end = self.started_ns.saturating_add(common.patience.whole.as_nanos() as u64);
        if may_help && until < end {
            Next::Pause(until)
        } else {
            self.step = Step::GivenUp;
            Next::Stop
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
