//! Answers of mounts as metrics: the text format of Prometheus, version 0.0.4.
//!
//! Labels are bounded: the mount point, which of its connections, the procedure. Times are in seconds.

use std::fmt::Write;

use super::place::MountPoint;
use crate::document::{
    CompressionStatus, ConnectionStatus, DataStatus, FlowStatus, JournalStatus, MountStatus,
    ProcedureStatus, shown,
};

/// A mount, with its answer if it has one.
pub type Told<'a> = (&'a MountPoint, Option<&'a MountStatus>);

/// A metric: its name, kind and help, and its value.
type Metric<S, V> = (&'static str, Kind, &'static str, fn(&S) -> V);

/// What kind of metric it is.
#[derive(Clone, Copy)]
enum Kind {
    Gauge,
    Counter,
    Summary,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
        }
    }
}

/// Writes all metrics of some mounts.
#[must_use]
pub fn text(mounts: &[Told<'_>]) -> String {
    let mut page = Page { text: String::new(), mounts };
    page.up();
    page.connections();
    page.flow();
    page.procedures();
    page.bytes();
    page.compression();
    page.data();
    page.journal();
    page.recoveries();
    page.text
}

struct Page<'a> {
    text: String,
    mounts: &'a [Told<'a>],
}

/// Writing to a string cannot fail.
macro_rules! put {
    ($page:expr, $($part:tt)*) => { let _ = writeln!($page.text, $($part)*); };
}

/// A label's value: backslash, quote and newline are escaped.
fn label(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Microseconds as seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Milliseconds as seconds.
fn seconds_of_ms(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn flag(is_so: bool) -> String {
    u8::from(is_so).to_string()
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        put!(self, "# HELP steadfast_mount_{name} {help}");
        put!(self, "# TYPE steadfast_mount_{name} {}", kind.word());
    }

    /// One number for each mount that has answered; `None`: it has no such number.
    fn each(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        value: impl Fn(&MountStatus) -> Option<String>,
    ) {
        let mounts = self.mounts;
        let told = mounts.iter().filter_map(|(mount, status)| Some((mount, value((*status)?)?)));
        let values: Vec<_> =
            told.map(|(mount, value)| (label(&shown(&mount.directory)), value)).collect();
        if values.is_empty() {
            return;
        }
        self.head(name, kind, help);
        for (mount, value) in values {
            put!(self, "steadfast_mount_{name}{{mount=\"{mount}\"}} {value}");
        }
    }

    /// All mounts that have answered, with their label.
    fn answered(&self) -> Vec<(String, MountStatus)> {
        let answered = self.mounts.iter().filter_map(|(mount, status)| Some((mount, (*status)?)));
        answered.map(|(mount, status)| (label(&shown(&mount.directory)), status.clone())).collect()
    }

    fn up(&mut self) {
        if !self.mounts.is_empty() {
            self.head("up", Kind::Gauge, "Whether the process of the mount answers.");
        }
        let mounts = self.mounts;
        for (mount, status) in mounts {
            let name = label(&shown(&mount.directory));
            put!(self, "steadfast_mount_up{{mount=\"{name}\"}} {}", flag(status.is_some()));
        }
        let answered = self.answered();
        if !answered.is_empty() {
            self.head("info", Kind::Gauge, "What is mounted. Always 1.");
        }
        for (mount, status) in &answered {
            let (server, share) = (label(&status.server), label(&status.share));
            let version = label(&status.nfs_version);
            put!(
                self,
                "steadfast_mount_info{{mount=\"{mount}\",server=\"{server}\",share=\"{share}\",\
                 nfs_version=\"{version}\"}} 1"
            );
        }
        let since = ("mounted_timestamp_seconds", Kind::Gauge, "When it was mounted.");
        self.each(since, |status| Some(status.mounted_unix_s.to_string()));
        let oldest = (
            "oldest_call_seconds",
            Kind::Gauge,
            "For how long the oldest call in flight has waited; 0 if there is none.",
        );
        self.each(oldest, |status| Some(seconds_of_ms(status.oldest_call_ms.unwrap_or(0))));
        let program = (
            "server_has_recovery_program",
            Kind::Gauge,
            "Whether the server tells when changes are stable.",
        );
        self.each(program, |status| status.has_recovery_program.map(flag));
        let is_async =
            ("share_is_async", Kind::Gauge, "Whether the server acknowledges from memory.");
        self.each(is_async, |status| status.is_async.map(flag));
    }

    fn connections(&mut self) {
        let answered = self.answered();
        if answered.is_empty() {
            return;
        }
        let metrics: [Metric<ConnectionStatus, String>; 4] = [
            ("connection_up", Kind::Gauge, "Whether a connection stands.", |one| flag(one.is_up)),
            (
                "connection_since_timestamp_seconds",
                Kind::Gauge,
                "Since when it stands, or does not.",
                |one| one.since_unix_s.to_string(),
            ),
            ("connection_made_total", Kind::Counter, "How often it was made.", |one| {
                one.times_made.to_string()
            }),
            ("connection_calls_in_flight", Kind::Gauge, "Calls without an answer.", |one| {
                one.calls_in_flight.to_string()
            }),
        ];
        for (name, kind, help, value) in metrics {
            self.head(name, kind, help);
            for (mount, status) in &answered {
                for (index, one) in status.connections.iter().enumerate() {
                    let value = value(one);
                    put!(
                        self,
                        "steadfast_mount_{name}{{mount=\"{mount}\",connection=\"{index}\"}} {value}"
                    );
                }
            }
        }
    }

    fn flow(&mut self) {
        let metrics: [Metric<FlowStatus, String>; 5] = [
            ("write_window_bytes", Kind::Gauge, "How much may be in flight by WRITE.", |it| {
                it.window_bytes.to_string()
            }),
            ("write_window_used_bytes", Kind::Gauge, "How much is in flight by WRITE.", |it| {
                it.in_flight_bytes.to_string()
            }),
            ("write_window_waiting", Kind::Gauge, "WRITEs that wait for room in it.", |it| {
                it.waiting.to_string()
            }),
            (
                "round_trip_seconds",
                Kind::Gauge,
                "How long the way to the server and back takes.",
                |it| seconds(it.round_trip_us),
            ),
            ("lowest_round_trip_seconds", Kind::Gauge, "The least that it took.", |it| {
                seconds(it.lowest_round_trip_us)
            }),
        ];
        for (name, kind, help, value) in metrics {
            self.each((name, kind, help), |status| status.flow.as_ref().map(&value));
        }
    }

    fn procedures(&mut self) {
        let answered = self.answered();
        let has_any = answered.iter().any(|(_, status)| !status.procedures.is_empty());
        if !has_any {
            return;
        }
        let metrics: [Metric<ProcedureStatus, u64>; 3] = [
            ("calls_total", Kind::Counter, "Calls that have ended.", |one| one.calls),
            (
                "call_errors_total",
                Kind::Counter,
                "Calls that were refused or not answered.",
                |one| one.errors,
            ),
            ("call_retries_total", Kind::Counter, "How often calls were sent again.", |one| {
                one.retries
            }),
        ];
        for (name, kind, help, value) in metrics {
            self.head(name, kind, help);
            for (mount, status) in &answered {
                for one in &status.procedures {
                    let (labels, value) = (procedure_labels(mount, one), value(one));
                    put!(self, "steadfast_mount_{name}{{{labels}}} {value}");
                }
            }
        }
        self.head(
            "call_duration_seconds",
            Kind::Summary,
            "From a call to its answer, with all that was sent again; since the share was mounted.",
        );
        for (mount, status) in &answered {
            for one in &status.procedures {
                let labels = procedure_labels(mount, one);
                let (p99, sum) = (seconds(one.p99_us), seconds(one.latency_us));
                let name = "steadfast_mount_call_duration_seconds";
                put!(self, "{name}{{{labels},quantile=\"0.99\"}} {p99}");
                put!(self, "{name}_sum{{{labels}}} {sum}");
                put!(self, "{name}_count{{{labels}}} {}", one.calls);
            }
        }
    }

    fn counters<const N: usize>(&mut self, metrics: [Metric<MountStatus, u64>; N]) {
        for (name, kind, help, value) in metrics {
            self.each((name, kind, help), |status| Some(value(status).to_string()));
        }
    }

    fn bytes(&mut self) {
        use Kind::Counter;
        self.counters([
            ("read_bytes_total", Counter, "Data that programs have read.", |it| it.read_bytes),
            ("written_bytes_total", Counter, "Data that programs have written.", |it| {
                it.written_bytes
            }),
            ("sent_bytes_total", Counter, "RPC messages that were sent.", |it| it.sent_bytes),
            ("received_bytes_total", Counter, "RPC messages that were received.", |it| {
                it.received_bytes
            }),
            ("cache_hits_total", Counter, "Names and attributes that needed no call.", |it| {
                it.cache_hits
            }),
            ("cache_misses_total", Counter, "Names and attributes that needed a call.", |it| {
                it.cache_misses
            }),
        ]);
    }

    fn compression(&mut self) {
        use Kind::{Counter, Gauge};
        let metrics: [Metric<CompressionStatus, u64>; 5] = [
            ("compression_used", Gauge, "Whether the server takes compressed data.", |it| {
                u64::from(it.is_used)
            }),
            ("compressed_sent_bytes_total", Counter, "Data that was sent compressed.", |it| {
                it.sent_bytes
            }),
            ("compressed_sent_as_bytes_total", Counter, "As how much it was sent.", |it| {
                it.sent_as_bytes
            }),
            ("compressed_received_bytes_total", Counter, "Data that came compressed.", |it| {
                it.received_bytes
            }),
            ("compressed_received_as_bytes_total", Counter, "As how much it came.", |it| {
                it.received_as_bytes
            }),
        ];
        for (name, kind, help, value) in metrics {
            let told = |status: &MountStatus| Some(value(status.compression.as_ref()?).to_string());
            self.each((name, kind, help), told);
        }
    }

    fn data(&mut self) {
        use Kind::{Counter, Gauge};
        let metrics: [Metric<DataStatus, u64>; 7] = [
            ("dirty_files", Gauge, "Files with data that is not stable.", |it| it.files),
            ("dirty_bytes", Gauge, "Written data that was not sent.", |it| it.dirty_bytes),
            ("in_flight_bytes", Gauge, "Written data that is not answered.", |it| {
                it.in_flight_bytes
            }),
            ("unstable_bytes", Gauge, "Written data that is not committed.", |it| {
                it.unstable_bytes
            }),
            (
                "held_bytes_max",
                Gauge,
                "Writers wait when so much is not stable; with a journal on an async share, not acknowledged.",
                |it| it.writers_wait_at_bytes,
            ),
            ("writers_waiting", Gauge, "Writers that wait for memory now.", |it| {
                it.writers_waiting
            }),
            ("refused_writes_total", Counter, "Writes that the server has refused.", |it| {
                it.refused_writes
            }),
        ];
        for (name, kind, help, value) in metrics {
            self.each((name, kind, help), |status| Some(value(&status.data).to_string()));
        }
        let waited =
            ("writers_waited_seconds_total", Counter, "How long writers have waited for memory.");
        self.each(waited, |status| Some(seconds_of_ms(status.data.writers_waited_ms)));
    }

    fn of_journal<const N: usize>(&mut self, metrics: [Metric<JournalStatus, String>; N]) {
        for (name, kind, help, value) in metrics {
            self.each((name, kind, help), |status| status.journal.as_ref().map(value));
        }
    }

    fn journal(&mut self) {
        use Kind::{Counter, Gauge};
        self.of_journal([
            ("journal_failed", Gauge, "Whether the ring is not used any more.", |it| {
                flag(it.failed.is_some())
            }),
            ("journal_size_bytes", Gauge, "The size of the ring.", |it| it.ring_bytes.to_string()),
            ("journal_used_bytes", Gauge, "What of the ring is used.", |it| {
                it.used_bytes.to_string()
            }),
            ("journal_pending_records", Gauge, "Records that have not left.", |it| {
                it.pending_records.to_string()
            }),
            ("journal_pending_bytes", Gauge, "File data in these records.", |it| {
                it.pending_bytes.to_string()
            }),
            (
                "journal_oldest_record_timestamp_seconds",
                Gauge,
                "When the oldest record was made; 0 if there is none.",
                |it| seconds_of_ms(it.oldest_unix_ms.unwrap_or(0)),
            ),
            ("journal_last_sequence", Gauge, "The last sequence that was given.", |it| {
                it.last_sequence.to_string()
            }),
            (
                "journal_stable_sequence",
                Gauge,
                "Up to this sequence everything is on the ring's disk.",
                |it| it.stable_sequence.to_string(),
            ),
            ("journal_flushes_total", Counter, "Flushes of the ring's disk.", |it| {
                it.flushes.to_string()
            }),
            ("journal_writers_waiting", Gauge, "Writers that wait for room now.", |it| {
                it.writers_waiting.to_string()
            }),
            (
                "journal_writers_waited_seconds_total",
                Counter,
                "How long writers have waited for room.",
                |it| seconds_of_ms(it.writers_waited_ms),
            ),
        ]);
    }

    fn recoveries(&mut self) {
        use Kind::{Counter, Gauge};
        self.of_journal([
            ("recoveries_total", Counter, "How often lost changes were brought back.", |it| {
                it.recoveries.count.to_string()
            }),
            ("recovery_under_way", Gauge, "Whether that is done now.", |it| {
                flag(it.recoveries.under_way_since_unix_ms.is_some())
            }),
            (
                "last_recovery_timestamp_seconds",
                Gauge,
                "When the last one ended; 0 if there was none.",
                |it| seconds_of_ms(it.recoveries.last_unix_ms.unwrap_or(0)),
            ),
            ("last_recovery_duration_seconds", Gauge, "How long it took.", |it| {
                seconds_of_ms(it.recoveries.last_took_ms.unwrap_or(0))
            }),
            ("records_made_again_total", Counter, "Changes that were made again.", |it| {
                it.recoveries.records_made_again.to_string()
            }),
            ("conflicts_total", Counter, "Changes that could not be made again.", |it| {
                it.recoveries.conflicts.to_string()
            }),
            ("conflicts_at_mount", Gauge, "The same of what an earlier mount had left.", |it| {
                it.recoveries.conflicts_at_mount.to_string()
            }),
            ("records_sent_at_mount", Gauge, "Changes that an earlier mount had left.", |it| {
                it.recoveries.records_sent_at_mount.to_string()
            }),
        ]);
    }
}

fn procedure_labels(mount: &str, one: &ProcedureStatus) -> String {
    let (program, name) = (label(&one.program), label(&one.name));
    format!("mount=\"{mount}\",program=\"{program}\",procedure=\"{name}\"")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_mount_point_does_not_break_a_line() {
        let mount = MountPoint {
            number: 1,
            device: (0, 1),
            directory: PathBuf::from("/a\"b\\c\nd"),
            source: "h:/s".to_owned(),
            user: 0,
        };
        let page = text(&[(&mount, None)]);
        let last = page.lines().last().unwrap();
        assert_eq!(last, "steadfast_mount_up{mount=\"/a\\\"b\\\\c\\nd\"} 0");
        assert_eq!(page.lines().count(), 3);
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn units_are_seconds() {
        assert_eq!(seconds(1_500_001), "1.500001");
        assert_eq!(seconds_of_ms(61_005), "61.005");
    }
}
