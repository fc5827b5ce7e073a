//! All metrics, each with its type, its unit, its labels and what it means. docs/metrics.md has the same table.

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows, until the server is restarted.
    Counter,
    /// A number of now.
    Gauge,
    /// How many took how long.
    Histogram,
    /// Texts, as labels.
    Info,
}

impl Kind {
    /// As `OpenMetrics` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without the suffix that a type gives to samples.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit, which its name ends with.
    pub unit: Option<&'static str>,
    /// What it means, in one line.
    pub help: &'static str,
    /// The names of its labels. Each has few values, whatever clients do.
    pub labels: &'static [&'static str],
}

impl Metric {
    /// The names of its samples.
    pub fn samples(&self) -> Vec<String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            Kind::Info => &["_info"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name)).collect()
    }
}

macro_rules! metrics {
    ($($ident:ident $kind:ident $name:literal $([$($label:literal),+])? $(in $unit:literal)? : $help:literal;)+) => {
        $(
            pub(super) static $ident: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                unit: metrics!(@unit $($unit)?),
                help: $help,
                labels: &[$($($label),+)?],
            };
        )+

        /// All metrics, in the order in which they are told.
        pub static METRICS: &[&Metric] = &[$(&$ident),+];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

metrics! {
    BUILD Info "steadfast_build" ["version"]: "The program that runs.";
    START Gauge "steadfast_start_time_seconds" in "seconds":
        "When the server was started, since 1970. Counters are since then.";
    COLLECTING Gauge "steadfast_scrape_collecting_seconds" in "seconds":
        "How long it took to collect these numbers.";

    CALLS Counter "steadfast_calls" ["program", "version", "procedure"]: "Calls executed.";
    CALL_ERRORS Counter "steadfast_call_errors" ["program", "version", "procedure"]: "Calls that failed.";
    CALL_BYTES_IN Counter "steadfast_call_received_bytes" ["program", "version", "procedure"] in "bytes":
        "Bytes of calls.";
    CALL_BYTES_OUT Counter "steadfast_call_sent_bytes" ["program", "version", "procedure"] in "bytes":
        "Bytes of replies.";
    CALL_EXECUTION Counter "steadfast_call_execution_seconds" ["program", "version", "procedure"] in "seconds":
        "Time of workers that executed calls.";
    CALL_LATENCY Histogram "steadfast_call_latency_seconds" ["program", "version", "procedure"] in "seconds":
        "Time from the end of a call's receive until its reply was handed to the socket.";
    CALL_STABLE Counter "steadfast_call_stable_replies" ["program", "version", "procedure"]:
        "Replies that waited until their changes were stable.";
    CALL_STABLE_TIME Counter "steadfast_call_stable_latency_seconds" ["program", "version", "procedure"] in "seconds":
        "Latency of the replies that waited until their changes were stable.";
    SAMPLED Counter "steadfast_sampled_calls": "Calls of which the stages were measured: one in 64.";
    STAGES Counter "steadfast_sampled_stage_seconds" ["stage"] in "seconds":
        "Where the time of the sampled calls went.";
    PARTS Counter "steadfast_compound_operations" ["operation"]: "Operations of NFSv4 COMPOUNDs executed.";
    PART_ERRORS Counter "steadfast_compound_operation_errors" ["operation"]: "Operations of COMPOUNDs that failed.";
    PART_SAMPLED Counter "steadfast_compound_operation_samples" ["operation"]:
        "Operations of COMPOUNDs of which the time was measured.";
    PART_TIME Counter "steadfast_compound_operation_sampled_seconds" ["operation"] in "seconds":
        "Execution time of the measured operations of COMPOUNDs.";

    RECEIVED Counter "steadfast_received_bytes" in "bytes": "Bytes received from clients.";
    SENT Counter "steadfast_sent_bytes" in "bytes": "Bytes of replies handed to the kernel or queued.";
    NEW_HANDLE_KEY Gauge "steadfast_new_handle_key":
        "1 if the server made its key of handles at its start though it had served before: clients must mount again.";
    BATCHES Counter "steadfast_batches": "Batches of calls received.";
    DATAGRAMS Counter "steadfast_datagrams": "Datagrams received.";
    CONNECTIONS Gauge "steadfast_connections": "TCP connections of clients that are open.";
    ACCEPTED Counter "steadfast_connections_accepted": "TCP connections accepted.";
    REFUSED Counter "steadfast_connections_refused":
        "TCP connections refused: too many connections, or no descriptor.";
    UNREAD Gauge "steadfast_unread_replies_bytes" in "bytes": "Bytes of replies that clients have not read yet.";
    WORKERS Gauge "steadfast_workers": "Worker threads.";
    LENDS Counter "steadfast_seat_lends": "Times a worker lent its seat before a call that might block.";
    TAKEOVERS Counter "steadfast_seat_takeovers": "Times another worker took a lent seat.";
    HELD_BACK Counter "steadfast_held_back_batches":
        "Batches of calls whose replies waited for a moment (microseconds) for those of others.";
    PUT_OFF Counter "steadfast_put_off_calls":
        "Times a call was suspended: its storage had too many workers, or it waits for a client or a name service.";
    TOLD_LATER Counter "steadfast_told_later_calls":
        "Calls that could not wait for their storage: their clients were told to try later.";
    WAITING Gauge "steadfast_waiting_calls": "Calls that wait for a client or a name service.";
    PARKED Counter "steadfast_parked_calls": "Calls whose replies waited until their changes were stable.";
    UNFLUSHED Gauge "steadfast_flush_waiting_calls": "Calls that wait for a flush to begin.";
    FLUSHES Counter "steadfast_flushes": "Flushes of objects and file systems, also those that were joined to one under way. One may serve many calls.";
    FLUSH_FAILURES Counter "steadfast_flush_failures": "Flushes that failed.";
    VERIFIERS Counter "steadfast_write_verifier_changes":
        "Changes of the write verifier: after each, clients send unstable data again.";

    REPLIES Gauge "steadfast_reply_cache_replies": "Replies in the duplicate request cache.";
    REPLY_BYTES Gauge "steadfast_reply_cache_bytes" in "bytes": "Memory of the duplicate request cache.";
    IN_PROGRESS Gauge "steadfast_reply_cache_calls_in_progress":
        "Calls of the cache that are executed now, or wait until they are stable.";
    DUPLICATES Counter "steadfast_duplicate_calls":
        "Calls that had come before: retransmissions found by the duplicate request cache.";
    EVICTED_YOUNG Counter "steadfast_reply_cache_evicted_young":
        "Replies that left the full cache before reply_cache_history_s.";
    EVICTED_PRESSURE Counter "steadfast_reply_cache_evicted_by_pressure":
        "Replies that left the cache early because the machine was very short of memory.";

    SHARES Gauge "steadfast_shares" ["state"]: "Shares by state: enabled, disabled, faulty, draining.";
    SIZE_FAULTS Gauge "steadfast_share_size_faults":
        "Shares that are served with a size that is not enforced, or may not be: steadfast status tells why.";
    SHARES_AGE Gauge "steadfast_shares_age_seconds" in "seconds":
        "How long ago shares were counted: at this scrape, or at the last one that no change of shares kept from it.";
    SHARES_CHANGE Gauge "steadfast_shares_change_seconds" in "seconds":
        "How long the shares have been locked by one who changes or reads them, so that they cannot be counted. Over a minute he waits for a disk that hangs.";

    CLIENTS Gauge "steadfast_clients" ["protocol", "state"]:
        "Clients with state. A courteous one is silent for longer than its lease, and keeps its state until somebody needs it.";
    SESSIONS Gauge "steadfast_client_sessions" ["protocol", "state"]: "Sessions of clients.";
    OPENS Gauge "steadfast_client_opens" ["protocol", "state"]: "Opens of clients.";
    LOCKS Gauge "steadfast_client_locks" ["protocol", "state"]: "Ranges that clients have locked.";
    DELEGATIONS Gauge "steadfast_client_delegations" ["protocol", "state"]:
        "Delegations of clients, with those that were revoked.";
    RECLAIMING Gauge "steadfast_clients_reclaiming": "Clients that may still reclaim what the server has lost.";
    JOURNALING Gauge "steadfast_journaling_clients":
        "Clients that keep a journal of what async shares acknowledge to them.";
    JOURNALING_AWAITED Gauge "steadfast_journaling_clients_awaited":
        "Clients with a journal that have not come since a crash: nobody else is served on their shares.";
    JOURNALING_RECOVERING Gauge "steadfast_journaling_clients_recovering":
        "Clients with a journal that bring back what the server had lost: nobody else is served on their shares.";
    JOURNALING_MISSED Gauge "steadfast_journaling_clients_missed":
        "Clients with a journal that did not come in time after a crash: what they were promised is missing until they come.";
    GRACE Gauge "steadfast_grace": "1 during the grace period: new opens and locks wait.";
    GRANTED Counter "steadfast_delegations_granted" ["kind"]: "Delegations granted: read, write.";
    ASKED Counter "steadfast_delegations_asked": "Questions to holders of delegations to write whether they have changed their files (CB_GETATTR).";
    UNASKED Counter "steadfast_delegations_unasked": "Delegations recalled because their holders could not be asked: no connection or slot, or a look that cannot wait.";
    RECALLED Counter "steadfast_delegations_recalled": "Delegations recalled.";
    RETURNED Counter "steadfast_delegations_returned": "Delegations that clients returned.";
    REVOKED Counter "steadfast_delegations_revoked": "Delegations revoked: their clients did not return them in time.";

    LOG_PHASE Gauge "steadfast_log_phase" ["phase"]: "1 for the intent log's phase: on, closing, off, unmade (no share needs one yet).";
    LOG_RING Gauge "steadfast_log_ring_bytes" in "bytes": "Size of the intent log's ring of records.";
    LOG_USED Gauge "steadfast_log_used_bytes" in "bytes":
        "Of the ring: what is still needed, and what is promised to changes under way.";
    LOG_PARKED Gauge "steadfast_log_waiting_replies": "Replies that wait for their records.";
    LOG_RECORDS Counter "steadfast_log_records": "Records written to the log.";
    LOG_PAYLOAD Counter "steadfast_log_payload_bytes" in "bytes": "Bytes of changes in these records.";
    LOG_BATCHES Counter "steadfast_log_writes": "Writes to the log's device.";
    LOG_WRITTEN Counter "steadfast_log_written_bytes" in "bytes": "Bytes written to the log's device.";
    LOG_WRITE_TIME Histogram "steadfast_log_write_seconds" in "seconds": "How long writes to the log's device took.";
    LOG_FULL Counter "steadfast_log_waits_for_room": "Changes that waited because the log was full.";
    LOG_CHECKPOINTS Counter "steadfast_log_checkpoints": "Checkpoints.";
    LOG_CHECKPOINT_END Gauge "steadfast_log_last_checkpoint_end_seconds" in "seconds":
        "When the last checkpoint ended, since 1970.";
    LOG_CHECKPOINT_TIME Gauge "steadfast_log_last_checkpoint_duration_seconds" in "seconds":
        "How long the last checkpoint took.";
    LOG_REPLIES Gauge "steadfast_log_replies_bytes" in "bytes": "Bytes of the files of replies, which outlive the server.";
    LOG_REPLIES_MAX Gauge "steadfast_log_replies_limit_bytes" in "bytes": "Most bytes of these files: replies_mib.";
    LOG_REPLIES_GATHERED Gauge "steadfast_log_replies_gathered_bytes" in "bytes":
        "Bytes of replies that are only in the log and in memory.";
    LOG_REPLIES_REACH Gauge "steadfast_log_replies_reach_seconds" in "seconds": "How far back the files of replies reach.";
    SET_ASIDE Gauge "steadfast_log_set_aside_files":
        "Files of records that wait for their file systems: changes that are not recovered yet.";
    SET_ASIDE_BYTES Gauge "steadfast_log_set_aside_bytes" in "bytes": "Bytes of these files.";
    LOG_FS Gauge "steadfast_log_file_systems" ["state"]: "File systems whose changes are logged: well, faulty.";
    FS_RECORDS Gauge "steadfast_log_file_system_records" ["path"]:
        "Records that a file system still needs. At most 64 file systems have such a line, faulty ones first.";
    FS_BYTES Gauge "steadfast_log_file_system_bytes" ["path"] in "bytes": "Bytes of these records.";
    FS_FAULTY Gauge "steadfast_log_file_system_faulty" ["path"]: "1 if the file system takes no changes.";
    FS_WRITES Counter "steadfast_log_file_system_device_writes" ["path"]:
        "Writes to the file system's device since the machine was started, by whomever.";
    FS_WRITTEN Counter "steadfast_log_file_system_device_written_bytes" ["path"] in "bytes": "Bytes of these writes.";

    DECISIONS Gauge "steadfast_access_decisions": "Remembered decisions who may use which share.";
    DECISIONS_MAX Gauge "steadfast_access_decisions_limit": "Most decisions that are remembered: cache_entries_max.";
    DECISION_BYTES Gauge "steadfast_access_decisions_bytes" in "bytes": "Memory of these decisions.";
    DECISION_HITS Counter "steadfast_access_hits": "Questions answered by a remembered decision.";
    DECISION_MISSES Counter "steadfast_access_misses": "Questions that were decided anew.";
    DECISION_PENDING Counter "steadfast_access_pending": "Decisions that waited for a name service.";
    DECISION_EVICTED Counter "steadfast_access_evicted": "Decisions dropped because there were too many.";
    NAMES Gauge "steadfast_names" ["kind", "state"]: "Known names: fresh, stale (no newer answer), absent.";
    NAME_QUESTIONS Counter "steadfast_name_questions" ["kind"]: "Questions sent to name services.";
    NAME_ANSWERS Counter "steadfast_name_answers" ["kind", "result"]:
        "What became of these questions: found, absent, timed_out, failed.";
    NAME_IN_FLIGHT Gauge "steadfast_name_questions_in_flight" ["kind"]: "Questions without an answer yet.";
    NAME_WAITING Gauge "steadfast_name_questions_waiting" ["kind"]: "Questions not sent yet.";
    NAME_LATENCY Histogram "steadfast_name_answer_seconds" ["kind"] in "seconds": "How long answers took.";
    NAME_STALE Counter "steadfast_name_stale_uses": "Times an old answer was used because there is no newer one.";
    NAME_REFUSED Counter "steadfast_name_refused": "Look-ups rejected because too many were waiting or known.";

    READ_AHEAD_ASKS Counter "steadfast_read_ahead_requests": "Requests to read ahead.";
    READ_AHEAD_BYTES Counter "steadfast_read_ahead_bytes" in "bytes": "Bytes read ahead.";
    READ_AHEAD_ADVISED Counter "steadfast_read_ahead_advised": "Files that the kernel was advised about.";
    READ_AHEAD_FOUND Counter "steadfast_read_ahead_found": "Reads that found their data read ahead.";
    READ_AHEAD_LOST Counter "steadfast_read_ahead_lost": "Data read ahead that left memory before it was read.";
    READ_AHEAD_BUDGET Gauge "steadfast_read_ahead_budget_left_bytes" in "bytes": "Bytes that may still be read ahead.";

    OBJECTS Gauge "steadfast_objects_open": "Files and directories held open.";
    OBJECTS_UNFLUSHED Gauge "steadfast_objects_unflushed": "Open objects with data neither flushed nor in the log.";
    OBJECTS_IN_CALLS Gauge "steadfast_objects_in_calls": "Open objects that calls use.";
    OBJECTS_IN_FLUSHES Gauge "steadfast_objects_in_flushes": "Open objects to be flushed before replies are sent.";
    OBJECTS_SENT Gauge "steadfast_objects_sent": "Open objects whose data is being sent.";
    OBJECTS_GUARDED Gauge "steadfast_objects_guarded": "Open objects that delegations keep open.";
    OBJECTS_WRITTEN Gauge "steadfast_objects_written_back": "Open objects that checkpoints write.";
    OBJECTS_ROOTS Gauge "steadfast_objects_roots": "Open objects that are directories of open shares.";

    CPU Counter "steadfast_process_cpu_seconds" in "seconds": "CPU time of the server's process.";
    RESIDENT Gauge "steadfast_process_resident_memory_bytes" in "bytes": "Memory of the server's process.";
    VIRTUAL Gauge "steadfast_process_virtual_memory_bytes" in "bytes": "Address space of the server's process.";
    THREADS Gauge "steadfast_process_threads": "Threads of the server's process.";
    DESCRIPTORS Gauge "steadfast_process_open_fds": "File descriptors of the server's process.";
    DESCRIPTORS_MAX Gauge "steadfast_process_max_fds": "Most file descriptors that the process may have.";
}
