//! Unit tests: the text is what its formats demand, and bounded whatever clients and administrators do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use super::*;
use crate::intent_log::{CheckpointReport, FileSystemFigures, LogFigures};
use crate::statistics::{CompoundOperation, Latency, Operation, Stages, Statistics};

/// Most series of a server, however large.
const SERIES_MAX: usize = 5000;

/// Replies in 300 buckets of the server, 1 µs to 100 s.
fn latency(seed: u64) -> Latency {
    let buckets: Vec<_> = (0..300_u64)
        .map(|n| {
            let low = (1000.0 * 1.0635_f64.powi(n as i32)) as u64;
            (low, low + low / 32, seed + n)
        })
        .collect();
    let total = buckets.iter().map(|(low, _, count)| low * count).sum();
    Latency::of(total, 99_000_000_000, buckets)
}

/// A busy server with everything: 15,000 shares, 5,000 clients, each of more operations than there
/// are, and more file systems than are told apart.
fn large() -> Figures {
    let operations = (0..OPERATIONS_MAX as u32).map(|n| Operation {
        protocol: ["nfs", "mount", "nlm"][n as usize % 3].to_owned(),
        version: n / 30 + 1,
        procedure: n,
        name: format!("PROCEDURE{n}"),
        calls: 1_000_000 + u64::from(n),
        errors: 1000,
        latency: latency(u64::from(n)),
        stable: Latency::of(5000, 5000, vec![(4096, 5119, 1)]),
        sampled_calls: 64,
        stages: Stages { storage_ns: 1_000_000, ..Stages::default() },
        ..Operation::default()
    });
    let parts = (0..COMPOUND_OPERATIONS_MAX as u32).map(|n| CompoundOperation {
        number: n,
        name: format!("OPERATION{n}"),
        calls: 9,
        errors: 1,
        execution: latency(1),
    });
    let file_systems = (0..3000).map(|n| FileSystemFigures {
        path: format!("/tank/{n:05}/with \"quotes\", \\ and\n a line"),
        records: n,
        fault: (n % 1000 == 999).then(|| "it broke".to_owned()),
        device_writes: Some(7),
        device_written_bytes: Some(4096),
        ..FileSystemFigures::default()
    });
    let log = LogFigures {
        phase: "on".to_owned(),
        ring_bytes: 256 << 20,
        used_bytes: 64 << 20,
        write_ns: vec![(65_536, 131_071, 90), (1 << 31, u64::MAX, 10)],
        write_total_ns: 20_000_000_000,
        file_systems: file_systems.collect(),
        ..LogFigures::default()
    };
    let totals = total_names().map(|name| (name.to_owned(), u64::MAX)).collect();
    let clients = (0..5000).map(|n| ClientCounts {
        protocol: ["NFSv4.0", "NFSv4.1+", "NLM"][n % 3],
        state: ["active", "courteous", "unconfirmed"][n / 3 % 3],
        clients: 1,
        opens: 3,
        ..ClientCounts::default()
    });
    let names =
        ["hosts", "clients", "netgroups", "users", "owner_numbers", "owner_names"].map(|kind| {
            NameCounts {
                kind,
                sent: 10,
                found: 10,
                latency: [Some(1), Some(2), Some(5), Some(10), None].map(|bound| (bound, 2)).into(),
                latency_sum_ms: 70,
                ..NameCounts::default()
            }
        });
    Figures {
        statistics: Statistics {
            program_version: "0.1.0".to_owned(),
            started_unix_ms: 1_700_000_000_250,
            server: totals,
            log: Some(log),
            operations: operations.collect(),
            compound_operations: parts.collect(),
            ..Statistics::default()
        },
        shares: Some(ShareCounts { enabled: 14_990, faulty: 10, ..ShareCounts::default() }),
        clients: clients.collect(),
        is_in_grace: true,
        last_checkpoint: Some(CheckpointReport { ended_unix_ms: 1_700_000_000_500, took_us: 2500 }),
        set_aside: Some(SetAsideCounts { files: 1, bytes: 4096 }),
        names: names.into(),
        process: ProcessFigures::own(),
        ..Figures::default()
    }
}

/// A sample as it was read.
#[derive(Debug)]
struct Read {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads a line of a sample, and nothing that is not one.
fn sample(line: &str) -> Option<Read> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut letters = after.char_indices();
            let end = loop {
                match letters.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match letters.next()?.1 {
                        'n' => '\n',
                        letter @ ('"' | '\\') => letter,
                        _ => return None,
                    }),
                    (_, '\n') => return None,
                    (_, letter) => value.push(letter),
                }
            };
            if !is_name(key) || labels.insert(key.to_owned(), value).is_some() {
                return None;
            }
            rest = after.get(end + 1..)?;
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = rest.strip_prefix(',')?;
        }
    }
    let value = rest.strip_prefix(' ')?;
    is_name(name).then_some(())?;
    let value = value.parse().ok().filter(|_| !value.contains(' '))?;
    Some(Read { name: name.to_owned(), labels, value })
}

/// A family as it was read.
#[derive(Debug, Default)]
struct ReadFamily {
    kind: String,
    help: String,
    unit: Option<String>,
    samples: Vec<Read>,
}

/// Reads a text as strictly as its format is written down: descriptions first, each family in one
/// piece, no sample twice, no suffix that is not its type's.
fn read(text: &str, format: Format) -> Vec<(String, ReadFamily)> {
    let is_open = format == Format::OpenMetrics;
    let body = if is_open { text.strip_suffix("# EOF\n").expect("an end") } else { text };
    assert!(body.ends_with('\n') && !body.contains("# EOF"));
    let mut families: Vec<(String, ReadFamily)> = Vec::new();
    let mut seen = HashSet::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let [word, name, rest] = [(); 3].map(|()| words.next().expect("a word"));
            assert!(is_name(name), "{line}");
            if families.last().is_none_or(|(last, _)| last != name) {
                assert!(families.iter().all(|(known, _)| known != name), "torn apart: {line}");
                families.push((name.to_owned(), ReadFamily::default()));
            }
            let family = &mut families.last_mut().expect("a family").1;
            assert!(family.samples.is_empty(), "after samples: {line}");
            match word {
                "TYPE" => rest.clone_into(&mut family.kind),
                "HELP" => rest.clone_into(&mut family.help),
                "UNIT" if is_open => family.unit = Some(rest.to_owned()),
                _ => panic!("{line}"),
            }
            continue;
        }
        let read = sample(line).unwrap_or_else(|| panic!("no sample: {line}"));
        assert!(seen.insert((read.name.clone(), read.labels.clone())), "twice: {line}");
        let (name, family) = families.last_mut().expect("a description");
        let suffix = read.name.strip_prefix(name.as_str()).expect("a sample of its family");
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" if is_open => &["_total"],
            "counter" | "gauge" => &[""],
            "info" if is_open => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("type {other:?}"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        assert_eq!(read.labels.contains_key("le"), suffix == "_bucket", "{line}");
        family.samples.push(read);
    }
    families
}

/// Buckets only grow, the last is infinite and equals the count, and there is a sum.
fn check_histogram(family: &ReadFamily) {
    let mut by_labels: HashMap<BTreeMap<String, String>, Vec<&Read>> = HashMap::new();
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        by_labels.entry(labels).or_default().push(sample);
    }
    for (labels, samples) in by_labels {
        let of = |suffix: &str| {
            samples.iter().filter(|one| one.name.ends_with(suffix)).collect::<Vec<_>>()
        };
        let buckets = of("_bucket");
        let bound = |one: &Read| one.labels["le"].parse::<f64>().expect("a bound");
        for pair in buckets.windows(2) {
            assert!(bound(pair[0]) < bound(pair[1]), "{labels:?}");
            assert!(pair[0].value <= pair[1].value, "{labels:?}");
        }
        let last = buckets.last().expect("a bucket");
        assert_eq!(last.labels["le"], "+Inf");
        let (sum, count) = (of("_sum"), of("_count"));
        assert_eq!((sum.len(), count.len()), (1, 1), "{labels:?}");
        assert!((last.value - count[0].value).abs() < 0.5 && sum[0].value >= 0.0, "{labels:?}");
    }
}

#[test]
fn both_formats_are_as_strict_readers_want_them() {
    let figures = large();
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let text = text(&figures, format).expect("a text");
        let families = read(&text, format);
        let told: BTreeSet<String> = families.iter().map(|(name, _)| name.clone()).collect();
        let suffix = |metric: &Metric| match (format, metric.kind) {
            (Format::Prometheus, Kind::Counter) => "_total",
            (Format::Prometheus, Kind::Info) => "_info",
            _ => "",
        };
        let wanted: BTreeSet<String> =
            METRICS.iter().map(|metric| format!("{}{}", metric.name, suffix(metric))).collect();
        assert_eq!(told, wanted, "each metric of the table is told, and no other");
        for (name, family) in &families {
            let metric = METRICS.iter().find(|one| *name == format!("{}{}", one.name, suffix(one)));
            let metric = metric.expect("a metric");
            assert_eq!(family.help, metric.help);
            let unit = metric.unit.filter(|_| format == Format::OpenMetrics);
            assert_eq!(family.unit.as_deref(), unit, "{name}");
            for sample in &family.samples {
                let labels: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
                let le = sample.name.ends_with("_bucket").then_some("le");
                assert_eq!(labels, metric.labels.iter().copied().chain(le).collect(), "{name}");
                assert!(metric.samples().contains(&sample.name), "{}", sample.name);
            }
            if metric.kind == Kind::Histogram {
                check_histogram(family);
            }
        }
    }
}

#[test]
fn a_strict_reader_finds_what_is_wrong() {
    for line in [
        "a{b=\"c\"",
        "a{b=\"c\",}",
        "a{b=\"\\x\"} 1",
        "a  1",
        "a 1 2",
        "a{b=\"c\",b=\"d\"} 1",
        "1a 1",
    ] {
        assert!(sample(line).is_none(), "{line}");
    }
    let read = sample("a{b=\"c\\\\\\\"\\n\",d=\"\"} 1.5").expect("a sample");
    assert_eq!((read.labels["b"].as_str(), read.value.to_string()), ("c\\\"\n", "1.5".to_owned()));
}

#[test]
fn the_number_of_series_has_a_bound() {
    let figures = large();
    let begun = Instant::now();
    let text = text(&figures, Format::OpenMetrics).expect("a text");
    let took = begun.elapsed();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!("{series} series, {} KiB, written in {took:?}", text.len() >> 10);
    assert!(series < SERIES_MAX, "{series}");
    // Those with faults are among the file systems that are told apart.
    assert_eq!(text.matches("steadfast_log_file_system_faulty{").count(), FILE_SYSTEMS_MAX);
    assert!(text.contains("steadfast_log_file_systems{state=\"faulty\"} 3\n"));
    let faulty = text.lines().filter(|line| line.starts_with("steadfast_log_file_system_faulty{"));
    assert_eq!(faulty.filter(|line| line.ends_with(" 1")).count(), 3);
    assert!(text.contains("steadfast_clients{protocol=\"NLM\",state=\"active\"} 556\n"));
    assert!(text.contains("steadfast_shares{state=\"faulty\"} 10\n"));
    assert!(text.contains("steadfast_start_time_seconds 1700000000.25\n"));
}

#[test]
fn series_of_clients_and_shares_are_there_without_any() {
    let counted = Figures { shares: Some(ShareCounts::default()), ..Figures::default() };
    let text = text(&counted, Format::Prometheus).expect("a text");
    for (name, count) in [("clients", 9), ("client_opens", 9), ("shares", 4)] {
        let lines = text.lines().filter(|line| line.starts_with(&format!("steadfast_{name}{{")));
        assert_eq!(lines.filter(|line| line.ends_with(" 0")).count(), count, "{name}");
    }
    assert!(!text.contains("steadfast_log_"), "there is no log");
}

#[test]
fn a_latency_is_counted_where_it_belongs() {
    let latency = Latency::of(
        3_000_000,
        2_000_000_000,
        vec![(99_000, 100_000, 1), (100_001, 103_000, 2), (60_000_000_000, 61_000_000_000, 4)],
    );
    let operation = Operation {
        protocol: "nfs".to_owned(),
        version: 3,
        name: "READ".to_owned(),
        latency,
        ..Operation::default()
    };
    let statistics = Statistics { operations: vec![operation], ..Statistics::default() };
    let figures = Figures { statistics, ..Figures::default() };
    let text = text(&figures, Format::Prometheus).expect("a text");
    let bucket = |bound: &str, count| {
        let line = format!(
            "steadfast_call_latency_seconds_bucket{{le=\"{bound}\",program=\"nfs\",version=\"3\",procedure=\"READ\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}{text}");
    };
    bucket("0.0001", 1);
    bucket("0.00025", 3);
    bucket("10.0", 3);
    bucket("+Inf", 7);
    assert!(text.contains("# TYPE steadfast_calls_total counter\n"), "{text}");
    assert!(text.contains("# TYPE steadfast_build_info gauge\n"), "{text}");
}

#[test]
fn the_table_keeps_its_own_rules() {
    let mut names = HashSet::new();
    for metric in METRICS {
        assert!(metric.samples().into_iter().all(|sample| names.insert(sample)), "{}", metric.name);
        assert!(metric.name.starts_with("steadfast_") && is_name(metric.name));
        if let Some(unit) = metric.unit {
            assert!(metric.name.ends_with(&format!("_{unit}")), "{}", metric.name);
        }
        assert!(
            !["_total", "_info", "_count", "_sum"].iter().any(|end| metric.name.ends_with(end))
        );
        // It is written as it is.
        assert!(
            metric.help.ends_with('.') && !metric.help.contains(['\\', '\n']),
            "{}",
            metric.name
        );
        // Nothing that clients or administrators have without a bound, but file systems, which have one.
        for label in metric.labels {
            assert!(!["client", "share", "user", "group"].contains(label), "{}", metric.name);
        }
    }
}

#[test]
fn scrapers_at_a_time_get_the_same_numbers() {
    let count = std::sync::atomic::AtomicU64::new(0);
    let collect = || {
        let waiting_calls = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Figures { waiting_calls, ..Figures::default() }
    };
    let collected = Collected::default();
    let begun = Instant::now();
    let first = collected.figures(&collect).expect("collected");
    let second = collected.figures(&collect).expect("collected");
    if begun.elapsed() < FRESH {
        assert!(Arc::ptr_eq(&first, &second));
    }
    std::thread::sleep(FRESH);
    assert!(collected.figures(&collect).expect("collected").waiting_calls > first.waiting_calls);
}

/// The page of the documentation is made from the table. `BLESS=1` writes it.
#[test]
fn the_documentation_has_the_table() {
    const BEGIN: &str = "<!-- begin metrics -->\n";
    const END: &str = "<!-- end metrics -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).expect("docs/metrics.md");
    let (head, rest) = page.split_once(BEGIN).expect("a begin");
    let (table, tail) = rest.split_once(END).expect("an end");
    let row = |metric: &&Metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!(
            "| `{}` | {} | {} | {} |\n",
            metric.samples()[0].trim_end_matches("_bucket"),
            metric.kind.name(),
            labels.join(", "),
            metric.help
        )
    };
    let rows: String = METRICS.iter().map(row).collect();
    let wanted = format!("\n| metric | type | labels | what it is |\n|---|---|---|---|\n{rows}\n");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{head}{BEGIN}{wanted}{END}{tail}")).expect("written");
        return;
    }
    assert!(table == wanted, "docs/metrics.md is old: run this test with BLESS=1");
}

/// A disk hangs that is asked for numbers.
#[test]
fn a_collection_that_hangs_holds_up_one_thread_and_nobody_for_long() {
    const PATIENCE: Duration = Duration::from_millis(200);
    let collected = Arc::new(Collected::default());
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let ended = Mutex::new(ended);
    let hanging = {
        let collected = Arc::clone(&collected);
        std::thread::spawn(move || {
            collected
                .within(PATIENCE, &|| {
                    begin.send(()).unwrap();
                    let _ = ended.lock().unwrap().recv();
                    Figures { waiting_calls: 7, ..Figures::default() }
                })
                .map(|figures| figures.waiting_calls)
        })
    };
    begun.recv().unwrap();
    let mine = || Figures { waiting_calls: 8, ..Figures::default() };
    let waits = Instant::now();
    for _ in 0..100 {
        let StillCollecting(since) = collected.within(PATIENCE, &mine).unwrap_err();
        assert!(since >= PATIENCE, "{since:?}");
    }
    // Not each of them waits anew.
    assert!(waits.elapsed() < 50 * PATIENCE, "{:?}", waits.elapsed());
    let ending = Instant::now();
    end.send(()).unwrap();
    assert_eq!(hanging.join().unwrap(), Ok(7));
    let told = collected.within(PATIENCE, &mine).unwrap().waiting_calls;
    // On a slow machine they are old by now, and collected anew.
    assert!(told == 7 || told == 8 && ending.elapsed() >= FRESH, "{told}");
    // One that fails is not waited for either.
    let failing = Collected::default();
    let panics = || -> Figures { std::panic::resume_unwind(Box::new("a bug")) };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        failing.within(PATIENCE, &panics).map(|_| ())
    }));
    assert!(outcome.is_err());
    assert_eq!(failing.within(PATIENCE, &mine).unwrap().waiting_calls, 8);
}

#[test]
fn shares_that_were_never_counted_are_not_told_as_none() {
    let change = Duration::from_secs(75);
    let figures = Figures { shares_change: change, ..Figures::default() };
    let told = text(&figures, Format::Prometheus).unwrap();
    assert!(!told.contains("steadfast_shares{"), "{told}");
    assert!(told.contains("\nsteadfast_shares_change_seconds 75.0\n"), "{told}");
    let figures = Figures { shares: Some(ShareCounts::default()), ..figures };
    let told = text(&figures, Format::Prometheus).unwrap();
    assert!(told.contains("\nsteadfast_shares{state=\"enabled\"} 0\n"), "{told}");
}

/// One is mounted over another, at the same place.
#[test]
fn file_systems_at_one_place_have_one_series() {
    let file_system = |fault: Option<&str>| FileSystemFigures {
        path: "/srv".to_owned(),
        fault: fault.map(str::to_owned),
        ..FileSystemFigures::default()
    };
    let file_systems = vec![file_system(None), file_system(Some("EIO")), file_system(None)];
    let log = LogFigures { file_systems, ..LogFigures::default() };
    let statistics = Statistics { log: Some(log), ..Statistics::default() };
    let told = text(&Figures { statistics, ..Figures::default() }, Format::Prometheus).unwrap();
    let lines: Vec<&str> = told.lines().filter(|line| !line.starts_with('#')).collect();
    let mut series: Vec<_> = lines.iter().filter_map(|line| line.rsplit_once(' ')).collect();
    series.sort_unstable();
    let all = series.len();
    series.dedup_by_key(|(name, _)| *name);
    assert_eq!(series.len(), all, "{told}");
    // The faulty one is told.
    let faulty = |line: &&str| line.contains("faulty{") && line.contains("/srv");
    assert!(lines.iter().any(|line| faulty(line) && line.ends_with(" 1")), "{told}");
}
