//! Unit ring: what a report says of what was gathered.

use std::path::PathBuf;

use steadfast_control::api::SharePage;
use steadfast_control::intent_log::{AsideReport, FileSystemFigures, LogFigures};

use super::*;
use crate::doctor::facts::NameServer;

const METRICS: &str = "# TYPE steadfast_shares gauge\nsteadfast_shares{state=\"enabled\"} 3\n\
    steadfast_shares{state=\"disabled\"} 1\nsteadfast_shares{state=\"faulty\"} 0\n\
    steadfast_shares{state=\"draining\"} 0\nsteadfast_shares_change_seconds 0.5\n\
    steadfast_share_size_faults 0\n\
    steadfast_journaling_clients 2\nsteadfast_journaling_clients_awaited 0\n\
    steadfast_process_open_fds 10\nsteadfast_process_max_fds 100\n";

fn healthy() -> Gathered {
    Gathered {
        statistics: Answer::Told(Statistics { process: 7, ..Statistics::default() }),
        log: Answer::Told(LogReport {
            figures: LogFigures {
                phase: "on".to_owned(),
                ring_bytes: 100,
                used_bytes: 10,
                ..LogFigures::default()
            },
            ..LogReport::default()
        }),
        clients: Answer::Told(ClientsReport::default()),
        faulty: Answer::Told(SharePage { total: 4, ..SharePage::default() }),
        filling: Answer::Told(SharePage::default()),
        metrics: Answer::Told(METRICS.to_owned()),
        name_servers: Vec::new(),
        plugin_faults: Vec::new(),
        disks: vec![Disk {
            path: "/srv".to_owned(),
            total_bytes: 110,
            used_bytes: 50,
            available_bytes: 50,
            is_read_only: false,
            changes_fail: false,
            why: None,
            hangs: false,
        }],
        log_read_only_at: None,
        owner: None,
        mistakes: Vec::new(),
        state_directory: "/state".to_owned(),
        is_guessed: false,
    }
}

fn log(change: impl FnOnce(&mut LogReport)) -> Gathered {
    let mut gathered = healthy();
    if let Answer::Told(log) = &mut gathered.log {
        change(log);
    }
    gathered
}

fn metrics(from: &str, to: &str) -> Gathered {
    assert!(METRICS.contains(from), "{from}");
    Gathered { metrics: Answer::Told(METRICS.replace(from, to)), ..healthy() }
}

fn disk(available_bytes: u64, why: Option<&str>) -> Gathered {
    let mut gathered = healthy();
    gathered.disks[0].available_bytes = available_bytes;
    gathered.disks[0].used_bytes = 100 - available_bytes;
    gathered.disks[0].why = why.map(str::to_owned);
    gathered
}

#[test]
fn a_healthy_server_gets_no_warning() {
    let report = Report::of(&healthy());
    assert_eq!((report.verdict, report.serving), (Verdict::Fine, Serving::Yes));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    let shares = report.shares.expect("counted");
    assert_eq!((shares.enabled, shares.disabled), (3, 1));
    assert_eq!(report.clients.expect("counted").journaling, 2);
}

#[test]
fn each_trouble_has_its_severity_and_a_command() {
    let nobody = || Answer::Failed(AskError::NoServer(PathBuf::from("/state")));
    let refused = Answer::Failed(AskError::NotPermitted(PathBuf::from("/state/control.sock")));
    let fault = FileSystemFigures {
        path: "/srv".to_owned(),
        fault: Some("EIO".to_owned()),
        ..FileSystemFigures::default()
    };
    let in_grace = ClientsReport { is_in_grace: true, ..ClientsReport::default() };
    let mut hanging = disk(50, Some("no answer"));
    hanging.disks[0].hangs = true;
    // Whatever its fill level says.
    let mut changes_fail = disk(0, None);
    (changes_fail.disks[0].is_read_only, changes_fail.disks[0].changes_fail) = (true, true);
    let cases = vec![
        (metrics("size_faults 0", "size_faults 3"), Verdict::Warning, "3 other shares have sizes"),
        (Gathered { statistics: nobody(), ..healthy() }, Verdict::Critical, "no server runs"),
        (
            Gathered { statistics: nobody(), is_guessed: true, ..healthy() },
            Verdict::Unknown,
            "no server of this user runs",
        ),
        (
            Gathered {
                statistics: Answer::Failed(AskError::NoAnswer {
                    place: "a place".to_owned(),
                    why: "reset".to_owned(),
                }),
                ..healthy()
            },
            Verdict::Critical,
            "no answer from the server at a place",
        ),
        (
            Gathered { statistics: nobody(), owner: Some(9), ..healthy() },
            Verdict::Critical,
            "process 9",
        ),
        (Gathered { statistics: Answer::Late, ..healthy() }, Verdict::Critical, "within 5 s"),
        (Gathered { statistics: refused, ..healthy() }, Verdict::Unknown, "not allowed"),
        (Gathered { faulty: Answer::Late, ..healthy() }, Verdict::Warning, "faulty shares"),
        (Gathered { log: Answer::Late, ..healthy() }, Verdict::Warning, "its log"),
        (Gathered { clients: Answer::Told(in_grace), ..healthy() }, Verdict::Warning, "reclaim"),
        (metrics("clients_awaited 0", "clients_awaited 1"), Verdict::Warning, "brought back"),
        (metrics("clients_awaited 0", "clients_missed 1"), Verdict::Critical, "in time"),
        (
            Gathered { faulty: Answer::Told(SharePage::default()), ..healthy() },
            Verdict::Warning,
            "nothing is shared",
        ),
        (metrics("faulty\"} 0", "faulty\"} 2"), Verdict::Critical, "2 other shares"),
        (metrics("change_seconds 0.5", "change_seconds 61"), Verdict::Warning, "does not end"),
        (metrics("open_fds 10", "open_fds 91"), Verdict::Warning, "descriptors"),
        (log(|log| log.figures.phase = "off".to_owned()), Verdict::Warning, "not used"),
        (
            log(|log| {
                log.figures.phase = "closing".to_owned();
                log.figures.why = Some("it broke".to_owned());
            }),
            Verdict::Critical,
            "it broke",
        ),
        (log(|log| log.figures.used_bytes = 86), Verdict::Warning, "86 % full"),
        (log(|log| log.figures.file_systems.push(fault)), Verdict::Critical, "EIO"),
        (
            log(|log| log.set_aside.push(AsideReport::default())),
            Verdict::Critical,
            "could not be recovered",
        ),
        (disk(4, None), Verdict::Warning, "96 % full"),
        (disk(0, None), Verdict::Critical, "is full"),
        (disk(50, Some("not allowed")), Verdict::Warning, "not allowed"),
        (hanging, Verdict::Critical, "no answer"),
        (changes_fail, Verdict::Warning, "at /srv is read-only"),
        (
            Gathered { log_read_only_at: Some("/log".to_owned()), ..healthy() },
            Verdict::Warning,
            "of the log, at /log, is read-only",
        ),
        (
            Gathered { mistakes: vec!["f:1:1: no".to_owned()], ..healthy() },
            Verdict::Warning,
            "f:1:1: no",
        ),
    ];
    for (gathered, verdict, part) in cases {
        has_one_warning(&gathered, verdict, part);
    }
}

/// A severity, and the one warning, of which this is a part, with what to type next.
#[track_caller]
fn has_one_warning(gathered: &Gathered, verdict: Verdict, part: &str) {
    let report = Report::of(gathered);
    assert_eq!(report.verdict, verdict, "{part}: {:?}", report.warnings);
    let first = report.warnings.first().expect("a warning");
    assert!(first.what.contains(part) && !first.next.is_empty(), "{part}: {first:?}");
    assert_eq!(report.warnings.len(), 1, "{part}: {:?}", report.warnings);
}

#[test]
fn silent_name_servers_and_plug_ins_that_fail_are_told() {
    let cases = [
        (
            Gathered {
                name_servers: vec![NameServer {
                    address: ([192, 0, 2, 53], 53).into(),
                    answered_s: None,
                    waited_s: 2.0,
                    timeout_s: 10,
                    refusal: None,
                }],
                ..healthy()
            },
            Verdict::Critical,
            "no name server answers (192.0.2.53)",
        ),
        (
            Gathered {
                plugin_faults: vec![PluginTrouble {
                    plugin: "smb".to_owned(),
                    why: "there is none".to_owned(),
                    path: "/a".to_owned(),
                    others: 2,
                }],
                ..healthy()
            },
            Verdict::Warning,
            "plug-in smb does not serve /a and 2 others: there is none",
        ),
    ];
    for (gathered, verdict, part) in cases {
        has_one_warning(&gathered, verdict, part);
    }
}

#[test]
fn a_log_that_nobody_needs_yet_or_that_is_not_wanted_is_no_trouble() {
    let unmade = metrics(
        "steadfast_shares_change_seconds",
        "steadfast_log_phase{phase=\"unmade\"} 1\nsteadfast_shares_change_seconds",
    );
    let mut report = Report::of(&Gathered {
        log: log(|log| log.figures.phase = "off".to_owned()).log,
        ..unmade
    });
    assert_eq!(
        (report.verdict, report.log.take().expect("a log").phase),
        (Verdict::Fine, "unmade".to_owned())
    );
    let refused =
        AskError::Refused { status: 409, error: "no log".to_owned(), mistakes: Vec::new() };
    let report = Report::of(&Gathered { log: Answer::Failed(refused), ..healthy() });
    assert_eq!((report.verdict, report.log), (Verdict::Fine, None));
}

#[test]
fn a_medium_that_takes_no_changes_is_not_full() {
    let mut gathered = disk(0, None);
    gathered.disks[0].is_read_only = true;
    assert_eq!(Report::of(&gathered).verdict, Verdict::Fine);
}

#[test]
fn shares_that_are_not_counted_yet_are_not_told_as_none() {
    let shares = METRICS.lines().filter(|line| line.starts_with("steadfast_shares{"));
    let uncounted = shares.fold(METRICS.to_owned(), |text, line| text.replace(line, ""));
    let uncounted = uncounted.replace("change_seconds 0.5", "change_seconds 61");
    let report = Report::of(&Gathered { metrics: Answer::Told(uncounted), ..healthy() });
    assert_eq!((report.shares, report.verdict), (None, Verdict::Warning));
    assert!(report.warnings[0].what.contains("does not end"), "{:?}", report.warnings);
}

#[test]
fn a_path_is_one_word_of_the_command() {
    assert_eq!(word("/srv/a-b_1"), "/srv/a-b_1");
    assert_eq!(word("/srv/it's; x"), "'/srv/it'\\''s; x'");
    assert_eq!(word(""), "''");
}

#[test]
fn a_new_handle_key_is_told_for_a_day() {
    let with_key = |is_new: u64, age_ms: u64| {
        let server = [(NEW_HANDLE_KEY.to_owned(), is_new)].into();
        let told = Statistics { server, taken_unix_ms: age_ms, ..Statistics::default() };
        let report = Report::of(&Gathered { statistics: Answer::Told(told), ..healthy() });
        report.warnings.first().map(|one| (one.severity, one.what.contains("new handle key")))
    };
    assert_eq!(with_key(1, 3600 * 1000), Some((Verdict::Warning, true)));
    assert_eq!(with_key(1, NEW_KEY_TOLD_MS), None);
    assert_eq!(with_key(0, 0), None);
}
