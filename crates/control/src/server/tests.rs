use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Extension;
use axum::routing::get;

use super::*;
use crate::client::{AskError, Client, Patience};

fn get_it(place: &Path) -> Result<Vec<u8>, AskError> {
    Client::connect(place).ask("GET", "/it", Patience::Short)
}

fn start(place: &Path, router: Router) -> Control {
    Control::start(place, &ControlOptions::default(), router).expect("started")
}

#[test]
fn every_request_gets_the_answer_of_its_time() {
    let place = tempfile::tempdir().expect("a directory");
    let count = Arc::new(AtomicUsize::new(0));
    let it = move || std::future::ready(format!("{}", count.fetch_add(1, Ordering::SeqCst)));
    let control = start(place.path(), Router::new().route("/it", get(it)));
    let mode = control.paths[0].metadata().expect("metadata").mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(get_it(place.path()).expect("an answer"), b"0");
    assert_eq!(get_it(place.path()).expect("an answer"), b"1");
}

#[test]
fn who_is_rude_or_slow_keeps_nobody_from_it() {
    let place = tempfile::tempdir().expect("a directory");
    let it = || std::future::ready(vec![7; 5 << 20]);
    let control = start(place.path(), Router::new().route("/it", get(it)));
    let connect = || UnixStream::connect(&control.paths[0]).expect("connected");
    // Silent, cut off, no HTTP, endless, and one that does not read what is more than a
    // socket's buffer.
    let mut others: Vec<UnixStream> = (0..5).map(|_| connect()).collect();
    let _ = others[1].write_all(b"GET /it HT");
    let _ = others[2].write_all(b"\0\0\0\x28 what is this\r\n\r\n");
    let _ = write!(others[3], "GET /it HTTP/1.1\r\nx: {}", "y".repeat(64 << 10));
    let _ = others[4].write_all(b"GET /it HTTP/1.1\r\nhost: x\r\n\r\n");
    for _ in 0..CONNECTIONS_MAX {
        assert_eq!(get_it(place.path()).expect("an answer").len(), 5 << 20);
    }
    // Those that say nothing make room, and others are dropped in time.
    others.extend((others.len()..2 * CONNECTIONS_MAX).map(|_| connect()));
    assert_eq!(get_it(place.path()).expect("an answer").len(), 5 << 20);
    std::thread::sleep(2 * PATIENCE);
    let mut rest = Vec::new();
    let _ = others[4].read_to_end(&mut rest);
    assert!(rest.len() < 5 << 20, "the answer that nobody read was given up");
}

#[test]
fn a_server_that_ended_well_or_badly_is_told() {
    let place = tempfile::tempdir().expect("a directory");
    let error = || get_it(place.path()).expect_err("no server").to_string();
    assert!(error().contains("no server runs with the state directory"), "{}", error());
    drop(start(place.path(), Router::new()));
    assert!(error().contains("no server runs with the state directory"), "{}", error());
    // As a killed server leaves it.
    drop(UnixListener::bind(place.path().join(SOCKET_NAME)).expect("bound"));
    assert!(error().contains("has ended"), "{}", error());
    let it = Router::new().route("/it", get(|| std::future::ready("next")));
    let _next = start(place.path(), it);
    assert_eq!(get_it(place.path()).expect("an answer"), b"next");
}

/// Says who asks, and whether he may change something.
fn who() -> Router {
    let who = |Extension(peer): Extension<Peer>| {
        std::future::ready(format!("{} {}", peer.who(), peer.may_change()))
    };
    Router::new().route("/it", get(who))
}

#[test]
fn everybody_may_connect_to_the_public_socket_and_there_alone() {
    let place = tempfile::tempdir().expect("a directory");
    let public = place.path().join("run/control.sock");
    let options = ControlOptions { public_socket: Some(public.clone()), ..<_>::default() };
    let control = Control::start(place.path(), &options, who()).expect("started");
    assert_eq!(public.metadata().expect("metadata").mode() & 0o777, 0o666);
    // Where the state directory is not for us.
    let elsewhere = place.path().join("none");
    assert!(get_it(&elsewhere).expect_err("no socket").is_without_server());
    let client = Client::connect(&elsewhere).or_at(Some(public.clone()));
    let answer = client.ask("GET", "/it", Patience::Short).expect("an answer");
    let answer = String::from_utf8(answer).expect("UTF-8");
    assert!(answer.contains(&format!("process {}", std::process::id())), "{answer}");
    assert!(answer.ends_with(" true"), "{answer}");
    drop(control);
    assert!(!public.exists());
}

#[test]
fn who_comes_by_tcp_needs_the_token() {
    let place = tempfile::tempdir().expect("a directory");
    let options =
        ControlOptions { listen: Some(([127, 0, 0, 1], 0).into()), ..ControlOptions::default() };
    let control = Control::start(place.path(), &options, who()).expect("started");
    let address = control.address().expect("an address");
    let client = Client::connect_tcp(address, place.path()).expect("a token");
    let answer = client.ask("GET", "/it", Patience::Short).expect("an answer");
    let answer = String::from_utf8(answer).expect("UTF-8");
    assert!(
        answer.starts_with("127.0.0.1:") && answer.ends_with("with the token true"),
        "{answer}"
    );
    // Another one's, or none.
    let other = tempfile::tempdir().expect("a directory");
    let error = Client::connect_tcp(address, other.path()).expect_err("no token");
    assert!(error.to_string().contains("token"), "{error}");
    token::of(other.path()).expect("made");
    let client = Client::connect_tcp(address, other.path()).expect("a token");
    match client.ask("GET", "/it", Patience::Short) {
        Err(AskError::Refused { status: 401, error, .. }) => assert!(error.contains("token")),
        other => panic!("{other:?}"),
    }
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    stream.write_all(b"GET /it HTTP/1.1\r\nhost: x\r\n\r\n").expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

/// A server with metrics at a port of loopback.
fn start_for_scrapers(place: &Path, token: Option<&str>, router: Router) -> Control {
    let metrics =
        MetricsOptions { listen: ([127, 0, 0, 1], 0).into(), token: token.map(Into::into) };
    let options = ControlOptions { metrics: Some(metrics), ..ControlOptions::default() };
    Control::start(place, &options, router).expect("started")
}

/// The status and the body that a request by TCP gets; no status if the connection is closed.
fn ask_by_tcp(address: SocketAddr, head: &str) -> (Option<u16>, String) {
    let mut stream = std::net::TcpStream::connect(address).expect("connected");
    let _ = write!(stream, "{head}host: x\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status, body.unwrap_or_default())
}

#[test]
fn scrapers_that_are_slow_keep_no_other_from_it() {
    let place = tempfile::tempdir().expect("a directory");
    let it = || std::future::ready("x".repeat(5 << 20));
    let router = Router::new().route("/metrics", get(it)).route("/it", get(|| async { "it" }));
    let control = start_for_scrapers(place.path(), None, router);
    let address = control.metrics_address().expect("an address");
    let ask = || ask_by_tcp(address, "GET /metrics HTTP/1.1\r\n");
    let connect = || std::net::TcpStream::connect(address).expect("connected");
    // Silent, cut off, and some that do not read what is more than a socket's buffer.
    let mut others: Vec<_> = (0..SCRAPERS_MAX - 1).map(|_| connect()).collect();
    let _ = others[1].write_all(b"GET /metr");
    for other in &mut others[2..] {
        let _ = other.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
    }
    for _ in 0..20 {
        let (status, body) = ask();
        assert_eq!((status, body.len()), (Some(200), 5 << 20));
    }
    // The control socket is another one. Those that say nothing make room at once, long before their time is over.
    others.extend((0..2 * SCRAPERS_MAX).map(|_| connect()));
    assert_eq!(get_it(place.path()).expect("an answer"), b"it");
    assert_eq!(ask().0, Some(200));
}

#[test]
fn health_is_told_to_who_has_no_token_and_nothing_else_is() {
    let place = tempfile::tempdir().expect("a directory");
    let services = routes::tests::services(Arc::default());
    let health = Arc::clone(&services.health);
    let token = "0123456789abcdef0123456789abcdef";
    let control = start_for_scrapers(place.path(), Some(token), router(services));
    let address = control.metrics_address().expect("an address");
    let ask = |path: &str| ask_by_tcp(address, &format!("GET {path} HTTP/1.1\r\n"));
    assert_eq!(ask("/livez"), (Some(200), "ok\n".to_owned()));
    let (status, why) = ask("/readyz");
    assert!(status == Some(503) && why.contains("starting"), "{why}");
    health.note_started();
    assert_eq!(ask("/readyz"), (Some(200), "ok\n".to_owned()));
    health.note_stopping();
    assert_eq!(ask("/readyz").0, Some(503));
    assert_eq!(ask("/livez").0, Some(200));
    for path in ["/metrics", "/v1/shares", "/livez/", "/readyz/../v1/shares"] {
        assert_eq!(ask(path).0, Some(401), "{path}");
    }
}
