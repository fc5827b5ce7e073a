use std::sync::Mutex;

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use steadfast_catalog::manage::{Batch, Operation};
use tokio::sync::broadcast;

use super::*;
use crate::api::{Event, ShareState, Subject, Who, Wish};
use crate::clients::{ClientEnded, ClientFilter, ClientStatus, ClientsReport, HoldingStatus};
use crate::intent_log::{FlushReport, LogReport};
use crate::metrics::Figures;
use crate::service::ClientService;
use crate::service::EVENTS_BEHIND_MAX;
use crate::statistics::Statistics;
use crate::{Client, Control, ControlOptions};
use hanging::Hanging;

mod capture;
mod description;
mod hanging;

/// Three shares that are told, and a list of what was asked for.
pub(crate) struct Fake {
    asked: Mutex<Vec<String>>,
    news: broadcast::Sender<Arc<[Event]>>,
    /// What a list of shares waits for.
    disk: Option<Arc<Hanging>>,
    captures: capture::Captures,
}

impl Default for Fake {
    fn default() -> Self {
        let news = broadcast::Sender::new(EVENTS_BEHIND_MAX);
        Self { asked: Mutex::default(), news, disk: None, captures: capture::Captures::default() }
    }
}

impl Fake {
    fn note(&self, what: String) {
        self.asked.lock().expect("a list").push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("a list"))
    }
}

fn share(path: &str, state: ShareState) -> ShareStatus {
    ShareStatus {
        path: path.to_owned(),
        directory: path.to_owned(),
        group: Some("default".to_owned()),
        state,
        why: None,
        source: Some("default.toml:1".to_owned()),
        pattern: None,
        id: 1,
        description: None,
        resource: None,
        protocols: Vec::new(),
        options: vec!["rw".to_owned()],
        clients: vec!["*".to_owned()],
        rules: Vec::new(),
        size_bytes: None,
        used_bytes: None,
        size_fault: None,
        plugin_faults: Vec::new(),
    }
}

impl ShareService for Fake {
    fn list(&self, filter: &ShareFilter) -> SharePage {
        self.note(format!("list {filter:?}"));
        if let Some(disk) = &self.disk {
            disk.wait();
        }
        let all =
            [("/a", ShareState::Enabled), ("/b", ShareState::Faulty), ("/c", ShareState::Enabled)];
        let mut shares: Vec<_> = all
            .iter()
            .filter(|(path, state)| filter.has(path, Some("default"), *state))
            .filter(|(path, _)| filter.after.as_deref().is_none_or(|after| *path > after))
            .map(|(path, state)| share(path, *state))
            .collect();
        // Small pages, whatever was asked for.
        let has_more = shares.len() > 2;
        shares.truncate(2);
        let next = shares.last().filter(|_| has_more).map(|share| share.path.clone());
        SharePage { sequence: 7, total: 3, shares, next }
    }

    fn share(&self, path: &str) -> Option<ShareStatus> {
        (path == "/a").then(|| share(path, ShareState::Enabled))
    }

    fn groups(&self) -> Vec<GroupStatus> {
        vec![GroupStatus { name: "default".to_owned(), shares: 3, ..GroupStatus::default() }]
    }

    fn plan(&self, wish: &Wish) -> Result<Plan, Refusal> {
        self.note(format!("plan {wish:?}"));
        Ok(Plan { sequence: 7, ..Plan::default() })
    }

    fn apply(&self, wish: &Wish, who: &Who, waits: bool) -> Result<Applied, Refusal> {
        self.note(format!("apply by {who}, waits: {waits}"));
        match wish {
            Wish::Batch(batch) if batch.operations.is_empty() => {
                Err(Refusal::mistaken(vec![crate::api::Mistake {
                    place: "operation 1".to_owned(),
                    what: "there is none".to_owned(),
                    ..<_>::default()
                }]))
            }
            _ => Ok(Applied { sequence: 8, ..Applied::default() }),
        }
    }

    fn rollback(&self, to: Option<u64>, who: &Who) -> Result<Applied, Refusal> {
        self.note(format!("rollback to {to:?} by {who}"));
        Ok(Applied::default())
    }

    fn plan_rollback(&self, to: Option<u64>) -> Result<Plan, Refusal> {
        self.note(format!("plan of a rollback to {to:?}"));
        Ok(Plan { sequence: 9, ..Plan::default() })
    }

    fn accept(&self, wish: &AcceptRequest, who: &Who) -> Result<Applied, Refusal> {
        self.note(format!("accept {:?}, all: {}, by {who}", wish.paths, wish.all));
        Ok(Applied::default())
    }

    fn history(&self) -> History {
        History::default()
    }

    fn reload(&self, who: &Who) -> Result<Applied, Refusal> {
        self.note(format!("reload by {who}"));
        Ok(Applied::default())
    }

    fn export(&self, group: Option<&str>) -> Result<String, Refusal> {
        Ok(format!("# {group:?}\n"))
    }

    fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Refusal> {
        Ok(Explanation { client: request.client.clone(), ..Explanation::default() })
    }

    fn mounting(&self, request: &MountingRequest) -> Result<Mounting, Refusal> {
        Ok(Mounting { path: request.path.clone(), forms: Vec::new() })
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<[Event]>> {
        self.news.subscribe()
    }
}

/// There is none.
struct NoLog;

impl LogService for NoLog {
    fn status(&self) -> Result<LogReport, Refusal> {
        Err(Refusal::new(RefusalKind::Conflict, "no log"))
    }

    fn flush(&self) -> Result<FlushReport, Refusal> {
        Err(Refusal::new(RefusalKind::Conflict, "no log"))
    }

    fn enable(&self) -> Result<LogReport, Refusal> {
        self.status()
    }

    fn disable(&self) -> Result<LogReport, Refusal> {
        self.status()
    }
}

/// One client, which can be ended.
struct OneClient;

impl ClientService for OneClient {
    fn list(&self, filter: &ClientFilter) -> Result<ClientsReport, Refusal> {
        let path = Some("/share/file".to_owned());
        let kind = if filter.paths { "paths" } else { "no paths" }.to_owned();
        let held = HoldingStatus { kind, path, ..HoldingStatus::default() };
        let holds = filter.holds.then(|| vec![held]);
        let clients = vec![ClientStatus { id: "1".to_owned(), holds, ..ClientStatus::default() }];
        Ok(ClientsReport { version: 1, total: 1, clients, ..ClientsReport::default() })
    }

    fn expire(&self, id: &str) -> Result<ClientEnded, Refusal> {
        if id != "1" {
            return Err(Refusal::new(RefusalKind::NotFound, "no such client"));
        }
        Ok(ClientEnded { version: 1, ..ClientEnded::default() })
    }
}

#[test]
fn clients_are_told_to_all_and_ended_by_who_may_change() {
    let (status, told) = asking(false).ask("GET", "/v1/clients?holds=true", "");
    let held = &told["clients"][0]["holds"][0];
    // Names of files are not for everybody.
    assert_eq!(
        (status, &held["kind"], held.get("path")),
        (StatusCode::OK, &json!("no paths"), None)
    );
    let (_, told) = asking(true).ask("GET", "/v1/clients?holds=true", "");
    let held = &told["clients"][0]["holds"][0];
    assert_eq!((&held["kind"], &held["path"]), (&json!("paths"), &json!("/share/file")));
    let (status, _) = asking(false).ask("GET", "/v1/clients?holds=true&paths=true", "");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, told) = asking(false).ask("GET", "/v1/clients", "");
    assert_eq!(told["clients"][0].get("holds"), None);
    let (status, _) = asking(false).ask("GET", "/v1/clients?holdz=true", "");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let end = |may, id| asking(may).ask("POST", &format!("/v1/clients/expire?id={id}"), "").0;
    assert_eq!(end(false, 1), StatusCode::FORBIDDEN);
    assert_eq!(end(true, 2), StatusCode::NOT_FOUND);
    assert_eq!(end(true, 1), StatusCode::OK);
}

pub(crate) fn services(shares: Arc<Fake>) -> Services {
    Services {
        health: Arc::default(),
        statistics: Box::new(|| Statistics { version: 1, ..Statistics::default() }),
        slow: Box::new(|filter| SlowReport {
            version: 1,
            total: filter.count.unwrap_or(0),
            ..SlowReport::default()
        }),
        top: Box::new(|filter| TopReport {
            version: 1,
            by: filter.by,
            client: filter.client,
            row_count: filter.limit.unwrap_or(0),
            ..TopReport::default()
        }),
        capture: capture::starter(Arc::clone(&shares)),
        metrics: Box::new(Figures::default),
        names: Box::new(|| RawJson::of(&json!({"version": 1}))),
        log: Arc::new(NoLog),
        clients: Arc::new(OneClient),
        shares,
    }
}

#[test]
fn slow_calls_are_told_as_they_are_asked_for() {
    let asking = asking(true);
    let (status, told) = asking.ask("GET", "/v1/slow?count=7&client=192.0.2.1&since_s=60", "");
    assert_eq!((status, &told["total"]), (StatusCode::OK, &json!(7)));
    for mistake in ["count=many", "sort=latency", "since_s=-1", "client=host", "client=192.0.2"] {
        let (status, told) = asking.ask("GET", &format!("/v1/slow?{mistake}"), "");
        assert_eq!(status, StatusCode::BAD_REQUEST, "{mistake}");
        let why = told["error"].as_str().expect("a reason");
        assert!(!mistake.starts_with("client") || why.contains("client: invalid IP"), "{told}");
    }
    for written in ["::ffff:192.0.2.1", "2001:DB8::0"] {
        let (status, told) = asking.ask("GET", &format!("/v1/slow?client={written}"), "");
        assert_eq!(status, StatusCode::OK, "{told}");
    }
}

#[test]
fn what_is_called_now_is_told_as_it_is_asked_for() {
    let asking = asking(true);
    let route = "/v1/top?by=share&sort=latency&limit=9&client=192.0.2.1&filter=%2Fsrv";
    let (status, told) = asking.ask("GET", route, "");
    assert_eq!((status, &told["row_count"]), (StatusCode::OK, &json!(9)));
    assert_eq!((&told["by"], &told["client"]), (&json!("share"), &json!("192.0.2.1")));
    for mistake in ["by=disk", "sort=name", "limit=-1", "client=host", "colour=red"] {
        let (status, told) = asking.ask("GET", &format!("/v1/top?{mistake}"), "");
        assert_eq!(status, StatusCode::BAD_REQUEST, "{mistake}");
        assert!(told["error"].is_string(), "{told}");
    }
}

struct Asking {
    fake: Arc<Fake>,
    may_change: bool,
}

impl Asking {
    fn ask(&self, method: &str, route: &str, body: &str) -> (StatusCode, Value) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let request = Request::builder().method(method).uri(route);
            let request = request.body(Body::from(body.to_owned())).expect("a request");
            let router = router(services(Arc::clone(&self.fake)))
                .layer(Extension(Peer::for_tests(self.may_change)));
            let response = TowerToHyperService::new(router).call(request).await.expect("answered");
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            // One route tells a text.
            (status, serde_json::from_slice(&body).unwrap_or_default())
        })
    }
}

fn asking(may_change: bool) -> Asking {
    Asking { fake: Arc::default(), may_change }
}

#[test]
fn errors_are_json_with_a_fitting_status() {
    let asking = asking(true);
    let (status, document) = asking.ask("GET", "/v1/statistics", "");
    assert_eq!((status, &document["version"]), (StatusCode::OK, &1.into()));
    for (method, route, body, expected) in [
        ("GET", "/", "", 404),
        ("GET", "/v2/statistics", "", 404),
        ("POST", "/v1/statistics", "", 405),
        ("GET", "/v1/log/flush", "", 405),
        ("GET", "/v1/log", "", 409),
        ("POST", "/v1/log/flush", "", 409),
        ("POST", "/v1/log/disable", "", 409),
        ("GET", "/v1/shares?grop=x", "", 400),
        ("GET", "/v1/shares?state=ill", "", 400),
        ("GET", "/v1/shares/show", "", 400),
        ("GET", "/v1/shares/show?path=/none", "", 404),
        ("POST", "/v1/apply", "{", 400),
        ("POST", "/v1/apply", "{\"operations\": []}", 422),
        ("POST", "/v1/rollback", "{\"two\": 1}", 400),
    ] {
        let (status, answer) = asking.ask(method, route, body);
        assert_eq!(status.as_u16(), expected, "{route}: {answer}");
        assert!(answer["error"].is_string(), "{route}: {answer}");
    }
    let (_, answer) = asking.ask("GET", "/v1/shares?grop=x", "");
    let error = answer["error"].as_str().expect("a text");
    assert!(error.contains("unknown field `grop`"), "{error}");
    let (_, answer) = asking.ask("POST", "/v1/apply", "{\"operations\": []}");
    assert_eq!(answer["mistakes"], json!([{"place": "operation 1", "what": "there is none"}]));
    assert_eq!(answer["error"], "operation 1: there is none");
}

#[test]
fn who_may_only_look_changes_nothing() {
    let asking = asking(false);
    for route in &ROUTES {
        let method = route.method.to_uppercase();
        if route.path == "/v1/watch" {
            continue;
        }
        let (status, answer) = asking.ask(&method, route.path, "{\"operations\": []}");
        let is_refused = status == StatusCode::FORBIDDEN;
        assert_eq!(is_refused, route.access != Access::Read, "{}: {answer}", route.path);
        if is_refused {
            let error = answer["error"].as_str().expect("a text");
            assert!(error.contains("user 7") && error.contains("admin_group"), "{error}");
        }
    }
    let calls = asking.fake.take();
    assert!(calls.iter().all(|call| call.starts_with("list")), "{calls:?}");
}

#[test]
fn whoever_changes_something_is_told_to_the_history() {
    let asking = asking(true);
    let batch = "{\"operations\": [{\"op\": \"remove-share\", \"path\": \"/a\"}]}";
    assert_eq!(asking.ask("POST", "/v1/apply?wait=true", batch).0, StatusCode::OK);
    assert_eq!(asking.ask("POST", "/v1/rollback", "{\"to\": 3}").0, StatusCode::OK);
    assert_eq!(asking.ask("POST", "/v1/reload", "").0, StatusCode::OK);
    assert_eq!(asking.ask("POST", "/v1/accept", "{\"paths\": [\"/a\"]}").0, StatusCode::OK);
    assert_eq!(
        asking.fake.take(),
        [
            "apply by user 7 (process 8), waits: true",
            "rollback to Some(3) by user 7 (process 8)",
            "reload by user 7 (process 8)",
            "accept [\"/a\"], all: false, by user 7 (process 8)",
        ]
    );
}

struct Place {
    fake: Arc<Fake>,
    directory: tempfile::TempDir,
    _control: Control,
}

fn place() -> Place {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Arc::new(Fake::default());
    let router = router(services(Arc::clone(&fake)));
    let control = Control::start(directory.path(), &ControlOptions::default(), router);
    Place { fake, directory, _control: control.expect("started") }
}

#[test]
fn the_client_asks_for_all_of_it() {
    let place = place();
    let client = Client::connect(place.directory.path());
    let mut told = Vec::new();
    let page = client.shares(&ShareFilter::default(), |so_far, _| told.push(so_far));
    let page = page.expect("shares");
    let paths: Vec<&str> = page.shares.iter().map(|share| share.path.as_str()).collect();
    assert_eq!((paths, told), (vec!["/a", "/b", "/c"], vec![2, 3]));
    let faulty = ShareFilter { state: Some(ShareState::Faulty), ..ShareFilter::default() };
    assert_eq!(client.shares(&faulty, |_, _| ()).expect("shares").shares.len(), 1);
    assert_eq!(client.share("/a").expect("a share").directory, "/a");
    assert!(client.share("/a b").expect_err("none").to_string().contains("\"/a b\""));
    assert_eq!(client.groups().expect("groups").len(), 1);
    let operation = Operation::RemoveShare { path: "/a".to_owned() };
    let batch = Batch { operations: vec![operation], ..Batch::default() };
    assert_eq!(client.plan(&Wish::Batch(batch.clone())).expect("a plan").sequence, 7);
    assert_eq!(client.apply(&Wish::Batch(batch), false).expect("done").sequence, 8);
    let document = crate::api::Document { document: "x".to_owned(), ..<_>::default() };
    client.plan(&Wish::Document(document)).expect("a plan");
    let refused = client.apply(&Wish::Batch(Batch::default()), true).expect_err("a mistake");
    assert_eq!(refused.mistakes().len(), 1);
    client.rollback(None).expect("done");
    assert_eq!(client.plan_rollback(Some(4)).expect("a plan").sequence, 9);
    client.reload().expect("done");
    assert_eq!(client.export(Some("g")).expect("a text"), "# Some(\"g\")\n");
    client.history().expect("a history");
    let request = ExplainRequest {
        client: "é".to_owned(),
        path: "/a".to_owned(),
        user: Some("0".to_owned()),
        flavor: None,
        high_port: true,
    };
    assert_eq!(client.explain(&request).expect("an explanation").client, "é");
    let calls = place.fake.take();
    assert!(calls.iter().any(|call| call.starts_with("plan Document(")), "{calls:?}");
}

fn event(name: &str) -> Event {
    Event {
        sequence: 1,
        subject: Subject::Share,
        name: name.to_owned(),
        group: None,
        old: None,
        new: Some(ShareState::Enabled),
        why: None,
    }
}

#[test]
fn a_watcher_is_told_of_every_change_in_order() {
    let place = place();
    let mut watch = Client::connect(place.directory.path()).watch().expect("watching");
    for batch in 0..3 {
        let names = (0..700).map(|n| event(&format!("/{batch}/{n}")));
        place.fake.news.send(names.collect()).expect("somebody watches");
    }
    for batch in 0..3 {
        for n in 0..700 {
            let event = watch.next().expect("an event").expect("no mistake");
            assert_eq!(event.name, format!("/{batch}/{n}"));
        }
    }
    drop(place);
    assert!(watch.next().is_none_or(|last| last.is_err()), "the server is gone");
}

#[test]
fn a_watcher_that_is_too_slow_is_told_so_and_cut_off() {
    let place = place();
    let client = Client::connect(place.directory.path());
    let mut watch = client.watch().expect("watching");
    let batch: Arc<[Event]> = (0..1000).map(|_| event(&"/long".repeat(100))).collect();
    // More than all buffers on the way have room for, and nobody waits.
    for _ in 0..4 * EVENTS_BEHIND_MAX {
        // An error: he has been cut off already.
        if place.fake.news.send(Arc::clone(&batch)).is_err() {
            break;
        }
    }
    let last = watch.by_ref().find_map(Result::err).expect("a last line");
    assert!(last.to_string().contains("faster than they were read"), "{last}");
    assert!(watch.next().is_none());
    // Others are served meanwhile, and he may come again.
    let watchers: Vec<_> = (0..WATCHERS_MAX).map(|_| client.watch().expect("watching")).collect();
    assert!(client.watch().expect_err("too many").to_string().contains("watch already"));
    client.groups().expect("an answer");
    drop(watchers);
}

/// The answer to a request by TCP.
fn by_tcp(address: std::net::SocketAddr, request: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    let _ = write!(stream, "{request}\r\nhost: x\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn scrapers_get_metrics_for_the_token_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |token: Option<&str>| {
        let metrics = crate::MetricsOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            token: token.map(Into::into),
        };
        let options = ControlOptions { metrics: Some(metrics), ..ControlOptions::default() };
        let router = router(services(Arc::default()));
        Control::start(directory.path(), &options, router).expect("started")
    };
    let control = start(Some("the-token"));
    let address = control.metrics_address().expect("an address");
    let status = |request: &str| by_tcp(address, request).get(9..12).map(str::to_owned);
    let bearer =
        |request: &str| status(&format!("{request} HTTP/1.1\r\nauthorization: Bearer the-token"));
    let refused = by_tcp(address, "GET /metrics HTTP/1.1");
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("token_file"), "{refused}");
    assert!(refused.to_lowercase().contains("www-authenticate: bearer"), "{refused}");
    for wrong in ["Bearer the-tokem", "Bearer the-token2", "Bearer", "Basic the-token"] {
        let request = format!("GET /metrics HTTP/1.1\r\nauthorization: {wrong}");
        assert_eq!(status(&request).as_deref(), Some("401"), "{wrong}");
    }
    // What is there is not told to who has no token.
    assert_eq!(status("GET /v1/shares HTTP/1.1").as_deref(), Some("401"));
    for (request, wanted) in [
        ("GET /metrics", "200"),
        ("GET /metrics?format=openmetrics", "200"),
        ("GET /metrics?format=json", "400"),
        ("GET /metrics?x=y", "400"),
        ("POST /metrics", "405"),
        ("GET /", "404"),
        ("GET /metrics/", "404"),
        ("GET //metrics", "404"),
        ("GET /v1/shares", "404"),
        ("POST /v1/log/disable", "404"),
    ] {
        assert_eq!(bearer(request).as_deref(), Some(wanted), "{request}");
    }
    drop(control);
    let control = start(None);
    let address = control.metrics_address().expect("an address");
    let answer = by_tcp(address, "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text");
    let answer = answer.to_lowercase();
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    assert!(answer.ends_with("# eof\n"), "{answer}");
    let answer = by_tcp(address, "GET /metrics HTTP/1.1").to_lowercase();
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(by_tcp(address, "GET /v1/shares HTTP/1.1").starts_with("HTTP/1.1 404 "));
}
