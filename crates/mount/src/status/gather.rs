//! Makes the document of a mount.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use steadfast_client::Identity;

use crate::compression::Compression;
use crate::connect::Specification;
use crate::counters::Counted;
use crate::document::{
    DataStatus, JournalStatus, MountStatus, ProcedureStatus, milliseconds, shown, unix_ms,
};
use crate::journaling::Journaling;
use crate::keeping::Keeping;
use crate::node::ROOT;
use crate::recovery::Recovery;
use crate::transport::{Link, Patience};
use crate::volume::Volume;
use crate::write_back::WriteBack;

/// How long the server may take to say what it is.
const ASKING: Duration = Duration::from_secs(10);

/// What is told of.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) volume: Arc<Volume>,
    pub(crate) journaling: Option<Arc<Journaling>>,
    pub(crate) recovery: Option<Arc<Recovery>>,
    pub(crate) what: Specification,
    pub(crate) directory: PathBuf,
    pub(crate) mounted: SystemTime,
    /// What the server of a mount without a journal has said: whether the share is `async`, if it has the
    /// recovery program.
    pub(crate) asked: OnceLock<Option<bool>>,
}

impl Subject {
    /// Asks the server of a mount without a journal whether the share is `async`. Of one with a journal that is
    /// known.
    pub(crate) fn ask_server(&self) {
        let Some(root) = self.volume.nodes().by_number(ROOT) else { return };
        if self.journaling.is_some() {
            return;
        }
        let (uid, gid) = steadfast_sys::process::effective_ids();
        let patience = Patience { pid: 0, until: Some(Instant::now() + ASKING) };
        let server = self.volume.server();
        let told = server
            .call(&Identity::user(uid, gid), patience, |nfs| nfs.recovery_status(&root.handle()));
        let known = match told {
            Ok(status) => Some(status.is_async),
            Err(error) if error.is_program_unavailable() => None,
            // Nobody knows.
            Err(_) => return,
        };
        // The first answer counts.
        let _ = self.asked.set(known);
    }

    /// Whether the server has the recovery program, and whether the share is `async`.
    fn server(&self) -> (Option<bool>, Option<bool>) {
        match (&self.journaling, &self.recovery) {
            (Some(_), Some(recovery)) if !recovery.is_foreign() => {
                (Some(true), Some(recovery.is_async()))
            }
            (Some(_), _) => (Some(false), None),
            (None, _) => match self.asked.get() {
                Some(known) => (Some(known.is_some()), *known),
                None => (None, None),
            },
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.volume.server().link
    }

    pub(super) fn write_back(&self) -> &WriteBack {
        self.volume.write_back()
    }

    pub(super) fn keeping(&self) -> Option<&Keeping> {
        self.volume.keeping().map(|keeping| &**keeping)
    }

    pub(super) fn data(&self) -> DataStatus {
        let (counters, load) = (&self.link().counters, self.write_back().load());
        DataStatus {
            files: load.files,
            dirty_bytes: load.dirty_bytes,
            in_flight_bytes: load.in_flight_bytes,
            unstable_bytes: load.unstable_bytes,
            writers_wait_at_bytes: WriteBack::held_bytes_max(),
            writers_waiting: counters.memory_waits.now(),
            writers_waited_ms: milliseconds(counters.memory_waits.waited()),
            refused_writes: counters.refused_writes.value(),
        }
    }

    pub(super) fn journal(&self) -> Option<JournalStatus> {
        self.journaling.as_ref().map(|journaling| journaling.told())
    }

    /// Everything. It waits neither for the server nor for a disk.
    pub(super) fn document(&self) -> MountStatus {
        let (has_recovery_program, is_async) = self.server();
        let link = self.link();
        let counters = &link.counters;
        MountStatus {
            server: self.what.server.clone(),
            address: link.server().to_string(),
            share: self.what.path.clone(),
            directory: shown(&self.directory),
            pid: std::process::id(),
            nfs_version: match &self.volume.server().nfs4 {
                Some(client) => client.version(),
                None => "3".to_owned(),
            },
            mounted_unix_s: unix_ms(self.mounted) / 1000,
            now_unix_ms: unix_ms(SystemTime::now()),
            oldest_call_ms: link.oldest_call().map(milliseconds),
            has_recovery_program,
            is_async,
            connections: link.connections(),
            flow: link.flow(),
            procedures: counters.procedures().iter().map(procedure).collect(),
            read_bytes: counters.read_bytes.value(),
            written_bytes: counters.written_bytes.value(),
            sent_bytes: counters.sent_bytes.value(),
            received_bytes: counters.received_bytes.value(),
            cache_hits: counters.cache_hits.value(),
            cache_misses: counters.cache_misses.value(),
            data: self.data(),
            journal: self.journal(),
            locks: self.volume.locks().map(|locks| locks.told()),
            compression: link.compression.get().map(Compression::told),
        }
    }
}

fn procedure(counted: &Counted) -> ProcedureStatus {
    ProcedureStatus {
        program: counted.program.to_owned(),
        name: counted.name.to_owned(),
        calls: counted.calls,
        errors: counted.errors,
        retries: counted.retries,
        latency_us: counted.latency_us,
        p99_us: counted.p99_us,
    }
}
