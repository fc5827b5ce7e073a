//! The intent log by the control socket.

use std::sync::Arc;

use steadfast_control::intent_log::{
    AsideReport, CheckpointReport, FaultReport, FileSystemFigures, FlushReport, LogFigures,
    LogReport, VERSION,
};
use steadfast_control::{LogService, Refusal, RefusalKind};
use steadfast_durability::{Flushed, IntentLogKeeper, IntentLogStatus, Left, Phase, SwitchError};

/// The intent log, if there is one.
pub(super) struct ControlledLog(pub(super) Option<Arc<IntentLogKeeper>>);

impl ControlledLog {
    fn keeper(&self) -> Result<&IntentLogKeeper, Refusal> {
        self.0.as_deref().ok_or_else(|| {
            let why = "this server was started without an intent log: set enabled = true in \
                       [log], and start it again";
            Refusal::new(RefusalKind::Conflict, why)
        })
    }

    /// The log as it is now.
    fn switched(
        &self,
        switch: impl FnOnce(&IntentLogKeeper) -> Result<(), SwitchError>,
    ) -> Result<LogReport, Refusal> {
        let keeper = self.keeper()?;
        let is_unchanged = match switch(keeper) {
            Ok(()) => false,
            // Who asks twice has what was asked for.
            Err(SwitchError::IsOn | SwitchError::IsOffAsAsked) => true,
            Err(error) => return Err(Refusal::new(RefusalKind::Conflict, error.to_string())),
        };
        Ok(LogReport { is_unchanged, ..report(keeper) })
    }
}

impl LogService for ControlledLog {
    fn status(&self) -> Result<LogReport, Refusal> {
        Ok(report(self.keeper()?))
    }

    fn flush(&self) -> Result<FlushReport, Refusal> {
        Ok(flushed(self.keeper()?.flush()))
    }

    fn enable(&self) -> Result<LogReport, Refusal> {
        self.switched(IntentLogKeeper::enable)
    }

    fn disable(&self) -> Result<LogReport, Refusal> {
        if self.0.is_none() {
            let figures = LogFigures { phase: "off".to_owned(), ..LogFigures::default() };
            let process = std::process::id();
            return Ok(LogReport {
                version: VERSION,
                is_unchanged: true,
                process,
                figures,
                ..LogReport::default()
            });
        }
        self.switched(IntentLogKeeper::disable)
    }
}

/// What the log does and did.
pub(super) fn figures(status: &IntentLogStatus) -> LogFigures {
    let phase = match status.phase {
        Phase::On => "on",
        Phase::Closing => "closing",
        Phase::Off => "off",
    };
    let why = status.left.as_ref().map(|left| match left {
        Left::ByAdministrator => "switched off by the administrator".to_owned(),
        Left::Failed(why) => {
            format!("left, as it {why}; it comes back when its device is well")
        }
        Left::Unmade => "there is none yet: no share is on a file system whose changes can be \
                         logged (ext4 with a journal, XFS, btrfs); it is made and used when \
                         the first such share is added"
            .to_owned(),
        Left::Stuck(why) => format!(
            "it {why}, and a file system cannot be flushed: changes wait until both are \
             repaired and the server is started again"
        ),
    });
    let counters = &status.counters;
    let buckets = status.write_ns.0.iter().enumerate().filter(|(_, count)| **count > 0);
    let low = |bucket: usize| if bucket == 0 { 0 } else { 1_u64 << bucket };
    LogFigures {
        phase: phase.to_owned(),
        why,
        ring_bytes: status.ring_bytes,
        used_bytes: status.used_bytes,
        parked: status.parked as u64,
        records: counters.records,
        payload_bytes: counters.payload_bytes,
        batches: counters.batches,
        written_bytes: counters.device_bytes,
        waits_for_room: counters.fullness_refusals,
        checkpoints: status.checkpoints,
        replies_bytes: status.replies.bytes,
        replies_bytes_max: status.replies.bytes_max,
        replies_gathered_bytes: status.replies.gathered_bytes,
        replies_reach_ms: status.replies.reach_ms,
        write_total_ns: status.write_total_ns,
        write_ns: buckets
            .map(|(bucket, count)| (low(bucket), (2_u64 << bucket) - 1, *count))
            .collect(),
        file_systems: status
            .file_systems
            .iter()
            .map(|known| FileSystemFigures {
                path: known.path.clone(),
                records: known.records,
                bytes: known.bytes,
                fault: known.fault.clone(),
                device_writes: known.device.map(|device| device.writes),
                device_written_bytes: known.device.map(|device| device.bytes),
            })
            .collect(),
        ..LogFigures::default()
    }
    .with_percentiles()
}

/// The log of this server now.
fn report(keeper: &IntentLogKeeper) -> LogReport {
    let status = keeper.status();
    let (set_aside, set_aside_fault) = match keeper.set_aside_files() {
        Ok(files) => (files, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    LogReport {
        version: VERSION,
        is_unchanged: false,
        process: std::process::id(),
        path: status.path.display().to_string(),
        epoch: status.epoch,
        stable: status.stable.0,
        last: status.last.0,
        figures: figures(&status),
        last_checkpoint: status.last_checkpoint.map(|last| CheckpointReport {
            ended_unix_ms: last.ended.as_millis() as u64,
            took_us: last.took.as_micros() as u64,
        }),
        set_aside: set_aside
            .into_iter()
            .map(|one| AsideReport {
                file: one.file.display().to_string(),
                bytes: one.bytes,
                path: one.path,
            })
            .collect(),
        set_aside_fault,
    }
}

fn flushed(flushed: Flushed) -> FlushReport {
    let Flushed { flushed, faulty } = flushed;
    let faulty = faulty.into_iter().map(|(path, why)| FaultReport { path, why }).collect();
    FlushReport { version: VERSION, flushed, faulty }
}
