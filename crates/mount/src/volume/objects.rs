//! Attributes, rights, symbolic links and the file system's numbers.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use steadfast_client::arguments::{Settings, access};
use steadfast_client::{
    Attributes, ClientError, FileSystemStatistics, FileType, NfsTime3, SetTime3,
};
use steadfast_journal::Change;

use super::recorded::journal_attributes;
use super::{Asker, Outcome, PROMPT, Volume, nfs_time, of_node};
use crate::errors::Errno;
use crate::node::{Node, ROOT};
use crate::write_back::Wanted;

/// How long stat(2) waits for data on its way, so that its times are the server's.
const SETTLING: Duration = Duration::from_millis(300);

/// Bits of access(2).
const MAY_READ: i32 = 4;
const MAY_WRITE: i32 = 2;
const MAY_EXECUTE: i32 = 1;

/// What setattr is to change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<fuser::TimeOrNow>,
    pub(crate) mtime: Option<fuser::TimeOrNow>,
}

impl Changes {
    fn settings(&self) -> Settings {
        Settings::default().with(|set| {
            set.mode = self.mode.map(|mode| mode & 0o7777);
            set.uid = self.uid;
            set.gid = self.gid;
            set.size = self.size;
            set.atime = wire_time(self.atime);
            set.mtime = wire_time(self.mtime);
        })
    }
}

fn wire_time(time: Option<fuser::TimeOrNow>) -> SetTime3 {
    let client = |time: SystemTime| {
        let time = nfs_time(time);
        SetTime3::SetToClientTime(NfsTime3 { seconds: time.seconds, nseconds: time.nanoseconds })
    };
    match time {
        None => SetTime3::DontChange,
        Some(fuser::TimeOrNow::Now) => SetTime3::SetToServerTime,
        Some(fuser::TimeOrNow::SpecificTime(time)) => client(time),
    }
}

impl Volume {
    /// The attributes of a node that need no call, if there are such.
    pub(crate) fn known(&self, number: u64) -> Option<Arc<Node>> {
        let node = self.nodes.by_number(number)?;
        let is_silent_root = number == ROOT && self.server.link.is_silent_for(PROMPT);
        (is_silent_root || node.is_fresh() && !node.data.is_unsent()).then_some(node)
    }

    pub(crate) fn getattr(&self, asker: &Asker, number: u64) -> Outcome<Arc<Node>> {
        let node = self.node(number)?;
        if node.data.is_unsent() {
            // The server makes the times. Beside somebody who goes on writing there is no end of that:
            // then it is answered with what is known here.
            let mut short = asker.patience;
            short.until = Some(Instant::now() + SETTLING);
            let sent = self.write_back.flush(&node, short, Wanted::Sent);
            if sent == Err(Errno::EINTR) {
                return Err(Errno::EINTR);
            }
        }
        if node.is_fresh() {
            return Ok(node);
        }
        if number != ROOT {
            self.refresh(asker, &node)?;
            return Ok(node);
        }
        let mut prompt = asker.clone();
        prompt.patience.until = Some(Instant::now() + PROMPT);
        match self.ask_attributes(&prompt, &node) {
            Ok(()) | Err(ClientError::TimedOut { .. } | ClientError::Closed) => Ok(node),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the server for a node's attributes.
    pub(super) fn refresh(&self, asker: &Asker, node: &Node) -> Outcome<()> {
        self.ask_attributes(asker, node).map_err(Errno::from)
    }

    fn ask_attributes(&self, asker: &Asker, node: &Node) -> Result<(), ClientError> {
        let asking = node.ask();
        let told = self.call(asker, |nfs| nfs.getattr(&node.handle()));
        let attributes = of_node(node, told)?;
        node.learn(Some(&attributes), asking, &self.options.cache_times);
        Ok(())
    }

    pub(crate) fn setattr(
        &self,
        asker: &Asker,
        number: u64,
        changes: Changes,
        file: Option<u64>,
    ) -> Outcome<Arc<Node>> {
        let node = self.node(number)?;
        // ftruncate(2) is the right of whoever opened the file for writing, whatever its mode is now.
        let opened = file.filter(|_| changes.size.is_some());
        let opened = opened.and_then(|file| self.file(file).ok()).filter(|open| open.is_writer());
        let asker = &opened.map_or_else(|| asker.clone(), |open| open.asker(asker));
        let settings = changes.settings();
        let attributes = journal_attributes(&changes);
        let path = if self.is_kept() { self.nodes.path(number) } else { Vec::new() };
        let describe = |append: &mut dyn FnMut(Change<'_>)| {
            append(Change::SetAttr { object: node.handle().as_bytes(), attributes });
        };
        let set = || {
            let begun = node.begin_change();
            let outcome = self.recorded(asker, &node, &path, &describe, |nfs| {
                nfs.setattr(&node.handle(), &settings, None)
            });
            let wcc = match &outcome {
                Ok(wcc) => Some(wcc),
                Err(ClientError::Failed(failure)) => Some(&failure.wcc),
                Err(_) => None,
            };
            node.end_change(begun, wcc, &self.options.cache_times);
            self.write_back.note_attributes(&node, wcc);
            of_node(&node, outcome).map(drop).map_err(Errno::from)
        };
        if node.file_type == FileType::Regular {
            self.write_back.change(&node, asker.patience, changes.size, set)?;
        } else {
            set()?;
        }
        if !node.is_fresh() {
            self.refresh(asker, &node)?;
        }
        Ok(node)
    }

    /// Which of these rights the caller has; the reply brings the attributes too.
    pub(super) fn ask_rights(&self, asker: &Asker, node: &Node, bits: u32) -> Outcome<u32> {
        self.told_rights(asker, node, bits).map_err(Errno::from)
    }

    /// As [`Volume::ask_rights`], with the error of the call.
    pub(super) fn told_rights(
        &self,
        asker: &Asker,
        node: &Node,
        bits: u32,
    ) -> Result<u32, ClientError> {
        let asking = node.ask();
        let told = self.call(asker, |nfs| nfs.access(&node.handle(), bits));
        let told = of_node(node, told)?;
        node.learn(told.attributes.as_ref(), asking, &self.options.cache_times);
        if told.attributes.is_none() {
            self.ask_attributes(asker, node)?;
        }
        node.grant(&asker.identity, bits, told.granted);
        Ok(told.granted)
    }

    pub(crate) fn access(&self, asker: &Asker, number: u64, mask: i32) -> Outcome<()> {
        let node = self.node(number)?;
        let mut bits = 0;
        if mask & MAY_READ != 0 {
            bits |= access::READ;
        }
        if mask & MAY_WRITE != 0 {
            bits |= access::MODIFY | access::EXTEND;
        }
        if mask & MAY_EXECUTE != 0 {
            bits |= if node.is_directory() { access::LOOKUP } else { access::EXECUTE };
        }
        if bits == 0 {
            return Ok(());
        }
        let granted = match node.granted(&asker.identity, bits) {
            Some(granted) => granted,
            None => self.ask_rights(asker, &node, bits)?,
        };
        if granted & bits == bits { Ok(()) } else { Err(Errno::EACCES) }
    }

    pub(crate) fn readlink(&self, asker: &Asker, number: u64) -> Outcome<Vec<u8>> {
        let node = self.node(number)?;
        Ok(self.call(asker, |nfs| nfs.readlink(&node.handle()))?.target)
    }

    /// What `df` shows: of before, if the server does not answer soon.
    pub(crate) fn statfs(&self, asker: &Asker) -> Outcome<(FileSystemStatistics, u32)> {
        let root = self.node(ROOT)?;
        let known = self.statistics.lock().clone();
        if self.server.link.is_silent_for(PROMPT)
            && let Some(known) = known
        {
            return Ok((known, self.name_bytes_max));
        }
        let mut prompt = asker.clone();
        prompt.patience.until = Some(Instant::now() + PROMPT);
        match self.call(&prompt, |nfs| nfs.fsstat(&root.handle())) {
            Ok(told) => {
                *self.statistics.lock() = Some(told.clone());
                Ok((told, self.name_bytes_max))
            }
            Err(ClientError::TimedOut { .. }) => {
                let known = known.ok_or(Errno::EIO)?;
                Ok((known, self.name_bytes_max))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Attributes that a reply should have told, or the server's.
    pub(super) fn attributes_or_ask(
        &self,
        asker: &Asker,
        handle: &steadfast_client::FileHandle,
        told: Option<Attributes>,
    ) -> Outcome<Attributes> {
        match told {
            Some(attributes) => Ok(attributes),
            None => Ok(self.call(asker, |nfs| nfs.getattr(handle))?),
        }
    }
}
