//! Process ring: what the real program is asked for, as `steadfast top` shows it; also with 5,001 clients and
//! 15,000 shares.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod nfs3_support;

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{Place, Running, output, stderr, utf8};
use nfs3_support::{Fixture, PATIENCE};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use steadfast_client::nfs4::{ClientSettings, Nfs4Client};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, Retransmission, RpcConnection, RpcDatagram, Settings,
    arguments, mount, procedure,
};

fn top(place: &Place, more: &[&str]) -> String {
    let words = [&["top", "--state-directory", utf8(&place.state)], more].concat();
    let told = output(&words);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    String::from_utf8(told.stdout).unwrap()
}

fn report(place: &Place, more: &[&str]) -> Value {
    let text = top(place, &[&["--once", "--json"], more].concat());
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn row<'r>(report: &'r Value, name: &str) -> &'r Value {
    let mut rows = report["rows"].as_array().unwrap().iter();
    rows.find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Calls until all is over: GETATTR of a file, LOOKUP of what is not there, a CREATE that is sent twice, and a COMPOUND
/// with ACCESS.
fn load(fixture: &mut Fixture) -> JoinHandle<()> {
    let file = fixture.file("a file");
    let (mut client, root) = fixture.mount();
    let mut socket = RpcDatagram::connect(fixture.address(), Retransmission::default()).unwrap();
    let connection = RpcConnection::connect(fixture.address(), PATIENCE).unwrap();
    let settings = ClientSettings::default();
    let mut nfs4 = Nfs4Client::connect(connection, Identity::root(), &settings).unwrap();
    let directory = nfs4.lookup_path(utf8(&fixture.place.share).as_bytes()).unwrap();
    std::thread::spawn(move || {
        let how = CreateHow3::Guarded(Settings::mode(0o644).0);
        while !IS_OVER.load(Ordering::SeqCst) {
            client.getattr(&file).unwrap();
            client.getattr(&file).unwrap();
            client.lookup(&root, b"missing").unwrap_err();
            let create = arguments::create(&root, b"a file", &how);
            let (_, message) = socket.prepare(procedure::CREATE, &Identity::root(), &create);
            for _ in 0..2 {
                socket.send(&message).unwrap();
                socket.receive(PATIENCE).unwrap().unwrap();
            }
            nfs4.access(&directory, 1).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

#[test]
fn what_clients_call_is_shown_by_everything() {
    let mut fixture = Fixture::new();
    let load = load(&mut fixture);
    let place = &fixture.place;
    let share = utf8(&place.share).to_owned();

    let told = report(place, &["--by", "operation"]);
    assert!(number(&told["window_us"]) >= 500_000, "{told:#}");
    let lookup = row(&told, "nfs3/LOOKUP");
    assert_eq!(lookup["calls"], lookup["errors"], "{told:#}");
    let getattr = row(&told, "nfs3/GETATTR");
    assert_eq!(getattr["errors"], 0);
    assert!(number(&getattr["calls"]) > number(&lookup["calls"]), "{told:#}");
    let (latency, slowest) = (number(&getattr["latency_ns"]), number(&getattr["latency_max_ns"]));
    assert!(0 < slowest && slowest <= latency, "{told:#}");
    // Each is sent twice; the window may begin or end between the two.
    let create = row(&told, "nfs3/CREATE");
    let repeated = number(&create["retransmissions"]);
    assert!(repeated > 0 && number(&create["calls"]).abs_diff(2 * repeated) <= 1, "{told:#}");
    assert_eq!(getattr["retransmissions"], 0);
    let rows = told["rows"].as_array().unwrap();
    let access = row(&told, "nfs4/ACCESS");
    for name in ["nfs4/SEQUENCE", "nfs4/PUTFH", "nfs4/COMPOUND"] {
        assert_eq!(row(&told, name)["calls"], access["calls"], "{told:#}");
    }
    // What is in COMPOUNDs is no call.
    let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
    let calls =
        rows.iter().filter(|row| name(row) == "nfs4/COMPOUND" || !name(row).starts_with("nfs4/"));
    let sum: u64 = calls.map(|row| number(&row["calls"])).sum();
    assert_eq!(number(&told["total"]["calls"]), sum, "{told:#}");
    assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(number(&row["calls"]))), "{told:#}");

    let told = report(place, &["--by", "client"]);
    assert_eq!(row(&told, "127.0.0.1")["calls"], told["total"]["calls"]);
    assert!(number(&row(&report(place, &["--by", "user"]), "0")["calls"]) > 0);
    assert!(number(&row(&report(place, &["--by", "share"]), &share)["calls"]) > 0);
    let told = report(place, &["--by", "file", "--sort", "latency"]);
    // One name is one word.
    row(&told, &format!("{share}/a%20file"));
    row(&told, &share);

    let of_client = report(place, &["--client", "127.0.0.1", "--filter", "getattr"]);
    assert_eq!((&of_client["client"], &of_client["row_count"]), (&"127.0.0.1".into(), &1.into()));
    assert!(number(&row(&of_client, "nfs3/GETATTR")["calls"]) > 0);
    let nobody = report(place, &["--client", "192.0.2.1"]);
    assert_eq!((&nobody["total"]["calls"], &nobody["rows"]), (&0.into(), &Value::Array(vec![])));

    let text = top(place, &["--count", "2", "--interval", "0.5", "--rows", "2"]);
    assert_eq!(text.matches("\nall clients, ").count(), 2, "{text}");
    assert_eq!(text.matches("\nnfs3/GETATTR ").count(), 2, "{text}");
    assert!(text.contains(" more rows\n"), "{text}");
    IS_OVER.store(true, Ordering::SeqCst);
    load.join().unwrap();
}

#[test]
fn what_cannot_be_shown_is_told() {
    for words in [
        &["--by", "disk"][..],
        &["--sort", "name"],
        &["--interval", "60"],
        &["--rows", "0"],
        &["--client", "host"],
        &["--once", "--count", "2"],
    ] {
        let told = output(&[&["top"], words].concat());
        assert_eq!(told.status.code(), Some(2), "{words:?}");
    }
    let place = Place::new();
    let told = output(&["top", "--once", "--state-directory", utf8(&place.state)]);
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("no server runs"), "{}", stderr(&told));
}

const CLIENTS: u32 = 5001;
/// Of which so many call at the same time.
const CLIENTS_TOGETHER: usize = 64;
const SHARES: usize = 15_000;
/// Of a window: each share once, if all can be used.
const CALLS: usize = SHARES;
/// Measurements before anything is counted.
const ROUNDS: usize = 2;
/// A share that is in use takes two or three.
const DESCRIPTORS: u64 = 4 * SHARES as u64;

/// How many shares can be in use here: fewer than wanted where the limit of descriptors is low.
fn usable_shares() -> usize {
    let wanted = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    if getrlimit(Resource::Nofile).maximum.is_none_or(|limit| limit >= DESCRIPTORS)
        || setrlimit(Resource::Nofile, wanted).is_ok()
    {
        return SHARES;
    }
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(DESCRIPTORS);
    println!("only {limit} descriptors: of {SHARES} shares a part is used");
    usize::try_from(limit / 4).unwrap().min(SHARES)
}

/// A server with many shares, and the handles of their directories.
fn many_shares(used: usize) -> (Place, Running, Vec<FileHandle>) {
    let place = Place::new();
    let directory = place.directory.path().canonicalize().unwrap();
    let mut text = String::new();
    let paths: Vec<String> =
        (0..SHARES).map(|n| format!("{}/many/{}/{n}", utf8(&directory), n / 1000)).collect();
    for path in &paths {
        std::fs::create_dir_all(path).unwrap();
        let options = "clients = [\"*\"]\noptions = [\"insecure\"]";
        writeln!(text, "[[share]]\npath = \"{path}\"\n{options}").unwrap();
    }
    std::fs::create_dir_all(place.state.join("shares.d")).unwrap();
    std::fs::write(place.state.join("shares.d/many.toml"), text).unwrap();
    // One that the server waits for before it is ready.
    std::fs::create_dir(&place.share).unwrap();
    let share = format!("[[share]]\npath = \"{}\"\nclients = [\"*\"]\n", utf8(&place.share));
    let configuration = place.write("steadfast.toml", &format!("[log]\nenabled = false\n{share}"));
    let running = Running::start(&place, 0, &["--config", utf8(&configuration)]);
    let mut connection = RpcConnection::connect(running.address, PATIENCE).unwrap();
    let handles = paths.iter().rev().take(used).map(|path| {
        let mounted = mount::mnt(&mut connection, &Identity::root(), path.as_bytes());
        mounted.unwrap_or_else(|error| panic!("{path}: {error}: {}", Running::log(&place))).handle
    });
    let handles = handles.collect();
    (place, running, handles)
}

/// So many GETATTRs, of all clients and shares in turn. Some clients call at the same time, so that a slow machine,
/// too, is done within a window.
fn call_all(server: SocketAddr, handles: &[FileHandle]) {
    let clients: Vec<usize> = (0..CLIENTS as usize).collect();
    for together in clients.chunks(CLIENTS_TOGETHER) {
        let connected = |client: &usize| {
            let address = Ipv4Addr::from_bits(0x7f10_0001 + *client as u32);
            let socket = UdpSocket::bind((address, 0)).unwrap();
            socket.connect(server).unwrap();
            (*client, RpcDatagram::over(socket, Retransmission::default()))
        };
        let mut sockets: Vec<_> = together.iter().map(connected).collect();
        for round in 0..CALLS.div_ceil(CLIENTS as usize) {
            let calling = |(client, socket): &mut (usize, RpcDatagram)| {
                let call = *client + round * CLIENTS as usize;
                let handle = handles.get(call % handles.len()).filter(|_| call < CALLS)?;
                let getattr = arguments::handle(handle);
                let (_, message) = socket.prepare(procedure::GETATTR, &Identity::root(), &getattr);
                socket.send(&message).unwrap();
                Some(())
            };
            let called: Vec<bool> = sockets.iter_mut().map(|it| calling(it).is_some()).collect();
            for ((_, socket), _) in sockets.iter_mut().zip(called).filter(|(_, called)| *called) {
                socket.receive(PATIENCE).unwrap().expect("a reply");
            }
        }
    }
}

/// CPU time that a process's threads have used, in ms.
fn cpu_ms(process: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let used = threads.map(|thread| {
        let text = std::fs::read_to_string(thread.unwrap().path().join("schedstat"));
        // It may end meanwhile.
        let text = text.unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    });
    used.sum::<f64>() / 1e6
}

#[test]
fn five_thousand_clients_and_fifteen_thousand_shares_are_shown_by_their_first_rows() {
    let used = usable_shares();
    let (place, running, handles) = many_shares(used);
    // Opened, so that what is measured is not the first use of shares.
    call_all(running.address, &handles);
    let client = steadfast_control::Client::connect(&place.state);
    let ask = |by: &str, more: &str| -> Value {
        client.get(&format!("/v1/top?by={by}&limit=20{more}")).unwrap()
    };
    let calling_ms = || {
        let before = cpu_ms(running.id());
        call_all(running.address, &handles);
        cpu_ms(running.id()) - before
    };
    let without_ms = (0..ROUNDS).map(|_| calling_ms()).fold(f64::MAX, f64::min);
    // A window, and what it costs to count and to tell it.
    let window = |by: &str, more: &str| {
        for _ in 0..10 {
            ask(by, "");
            let with_ms = calling_ms();
            std::thread::sleep(Duration::from_millis(500));
            let before = cpu_ms(running.id());
            let told = ask(by, more);
            let telling_ms = cpu_ms(running.id()) - before;
            // The server stops counting where calls take too long.
            if number(&told["window_us"]) > 0 {
                println!(
                    "by {by}: {without_ms:.0} ms of CPU for {CALLS} calls, {with_ms:.0} ms if they \
                     are counted, {telling_ms:.1} ms to tell the first rows"
                );
                assert_eq!(number(&told["total"]["calls"]), CALLS as u64);
                assert_eq!(told["others"]["calls"], 0);
                assert!(told.to_string().len() < 10_000, "{told}");
                return told;
            }
        }
        panic!("no window was short enough");
    };
    let by_client = window("client", "");
    assert_eq!(by_client["row_count"], CLIENTS, "{by_client:#}");
    let rows = by_client["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    // The first clients have three calls, the last ones two.
    assert_eq!((number(&rows[0]["calls"]), &rows[0]["name"]), (3, &"127.16.0.1".into()));
    let by_share = window("share", "");
    assert_eq!(
        (&by_share["row_count"], by_share["rows"].as_array().unwrap().len()),
        (&used.into(), 20)
    );
    let filtered = window("share", "&filter=/many/14/149");
    assert_eq!(filtered["row_count"], 100, "{filtered:#}");
    let by_file = window("file", "");
    assert_eq!(by_file["row_count"], used, "{by_file:#}");
}
