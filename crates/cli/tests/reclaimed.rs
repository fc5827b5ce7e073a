//! Process ring: after a loss of all that clients had opened and locked, as by a power cut, those who
//! had it reclaim it, and nobody else gets it meanwhile. And what the operator sees of clients.
#![allow(clippy::expect_used)]

mod common;

use std::os::unix::fs::MetadataExt;

use steadfast_client::nfs4::{ClientSettings, Nfs4Client, NfsStat4, StateId4, patiently4};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection};

use common::{PATIENCE, Place, Running, output, stderr, utf8};

type Client = Nfs4Client<RpcConnection>;

const ALL: (u64, u64) = (0, u64::MAX);
const OWNER: &[u8] = b"a process";

fn place() -> Place {
    let place = Place::new();
    std::fs::create_dir(&place.share).expect("made");
    for name in ["file", "other"] {
        std::fs::write(place.share.join(name), b"data").expect("written");
    }
    place
}

fn start(place: &Place) -> Running {
    Running::start(place, 0, &[utf8(&place.share), "--no-root-squash"])
}

/// The server is killed, and what is in memory is gone.
fn cut_power(place: &Place, running: Running) {
    drop(running);
    let state = place.state.metadata().expect("a directory");
    let name = format!("steadfast-state-{:x}-{:x}", state.dev(), state.ino());
    let images = ["/run", "/dev/shm"].map(|memory| std::path::Path::new(memory).join(&name));
    let removed = images.into_iter().chain([place.state.join("state")]);
    let count = removed.filter(|image| std::fs::remove_dir_all(image).is_ok()).count();
    assert_eq!(count, 1, "images");
}

/// The same life of the same client each time.
fn client(running: &Running, owner: &str) -> Client {
    let settings = ClientSettings {
        owner: owner.as_bytes().to_vec(),
        verifier: *b"one life",
        ..ClientSettings::default()
    };
    let transport = RpcConnection::connect(running.address, PATIENCE).expect("connected");
    let root = Identity::Sys { uid: 0, gid: 0, gids: vec![] };
    Nfs4Client::connect_to_reclaim(transport, root, &settings).expect("a session")
}

fn open(
    client: &mut Client,
    place: &Place,
    name: &str,
) -> Result<(FileHandle, StateId4), ClientError> {
    let path = utf8(&place.share).as_bytes();
    let share = patiently4(PATIENCE, || client.lookup_path(path))?;
    let opened = client.open_for_all(&share, name.as_bytes())?;
    Ok((opened.handle, opened.stateid))
}

#[track_caller]
fn fails<T: std::fmt::Debug>(result: Result<T, ClientError>, status: NfsStat4) {
    match result {
        Err(error) if error.status4() == Some(status) => {}
        result => panic!("{result:?} instead of {status:?}"),
    }
}

/// A server that was killed with a power cut, while a client had this file open and locked.
fn lost_lock(place: &Place) -> FileHandle {
    let running = start(place);
    let mut one = client(&running, "one");
    one.complete_reclaim().expect("nothing to reclaim");
    let (file, stateid) = open(&mut one, place, "file").expect("opened");
    one.lock(&file, stateid, OWNER, ALL, false).expect("locked");
    cut_power(place, running);
    file
}

#[test]
fn only_who_had_it_reclaims_it() {
    let place = place();
    let file = lost_lock(&place);
    // The second power cut is in the grace period.
    for cut in 0..2 {
        let running = start(&place);
        let (mut one, mut two) = (client(&running, "one"), client(&running, "two"));
        fails(open(&mut one, &place, "other"), NfsStat4::Grace);
        two.complete_reclaim().expect("nothing to reclaim");
        fails(open(&mut two, &place, "file"), NfsStat4::Grace);
        fails(open(&mut two, &place, "other"), NfsStat4::Grace);
        fails(two.reclaim_open(&file), NfsStat4::NoGrace);
        let stateid = one.reclaim_open(&file).expect("reclaimed");
        fails(one.lock(&file, stateid, OWNER, ALL, false), NfsStat4::Grace);
        one.lock(&file, stateid, OWNER, ALL, true).expect("reclaimed");
        if cut == 0 {
            cut_power(&place, running);
            continue;
        }
        fails(open(&mut two, &place, "file"), NfsStat4::Grace);
        // Long before a lease is over.
        one.complete_reclaim().expect("that was all");
        let (same, other_open) = open(&mut two, &place, "file").expect("grace is over");
        assert_eq!(same, file);
        fails(two.lock(&file, other_open, OWNER, ALL, false), NfsStat4::Denied);
        fails(two.lock(&file, other_open, OWNER, ALL, true), NfsStat4::NoGrace);
        fails(one.reclaim_open(&file), NfsStat4::NoGrace);
        open(&mut one, &place, "other").expect("opened");
    }
    let log = Running::log(&place);
    assert!(log.contains("until they have reclaimed it"), "{log}");
}

#[test]
fn a_server_that_is_only_killed_has_no_grace_period() {
    let place = place();
    let running = start(&place);
    let mut one = client(&running, "one");
    one.complete_reclaim().expect("nothing to reclaim");
    let (file, stateid) = open(&mut one, &place, "file").expect("opened");
    one.lock(&file, stateid, OWNER, ALL, false).expect("locked");
    drop(running);
    let running = start(&place);
    let mut two = client(&running, "two");
    two.complete_reclaim().expect("nothing to reclaim");
    let (_, other_open) = open(&mut two, &place, "file").expect("opened");
    fails(two.lock(&file, other_open, OWNER, ALL, false), NfsStat4::Denied);
}

#[test]
fn nobody_reclaims_by_records_that_are_damaged() {
    let place = place();
    let file = lost_lock(&place);
    let records = place.state.join("nfs4.clients");
    let mut bytes = std::fs::read(&records).expect("read");
    // In the first frame, behind its head: another one follows.
    bytes[25] ^= 1;
    std::fs::write(&records, bytes).expect("written");
    let running = start(&place);
    let (mut one, mut two) = (client(&running, "one"), client(&running, "two"));
    fails(one.reclaim_open(&file), NfsStat4::NoGrace);
    two.complete_reclaim().expect("nothing to reclaim");
    open(&mut two, &place, "file").expect("there is no grace period");
    let log = Running::log(&place);
    assert!(log.contains("a part of it is damaged"), "{log}");
    assert!(log.contains("none of them can reclaim"), "{log}");
    cut_power(&place, running);
    let running = start(&place);
    assert!(!Running::log(&place).contains("damaged"), "it was written anew");
    let mut two = client(&running, "two");
    two.reclaim_open(&file).expect("reclaimed");
}

#[test]
fn clients_are_told_with_what_they_have_and_one_is_ended() {
    let place = place();
    let running = start(&place);
    let (mut one, mut two) = (client(&running, "one"), client(&running, "two"));
    for client in [&mut one, &mut two] {
        client.complete_reclaim().expect("nothing to reclaim");
    }
    let (file, stateid) = open(&mut one, &place, "file").expect("opened");
    one.lock(&file, stateid, OWNER, (5, 10), false).expect("locked");
    let (_, other_open) = open(&mut two, &place, "file").expect("opened");
    fails(two.lock(&file, other_open, OWNER, ALL, false), NfsStat4::Denied);

    let ask = |arguments: &[&str]| {
        let place = ["--state-directory", utf8(&place.state)];
        let output = output(&[&["clients"], arguments, &place].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
        (output.status.success(), text)
    };
    let (is_done, text) = ask(&["--holds"]);
    let path = place.share.join("file");
    let has = |part: &str| text.contains(&format!("  {part}: {}\n", utf8(&path)));
    assert!(is_done && has("open rw") && has("write lock, 10 bytes from 5 on"), "{text}");
    let (_, json) = ask(&["--json"]);
    let told: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let clients = told["clients"].as_array().expect("a list");
    assert_eq!((clients.len(), &told["total"]), (2, &2.into()));
    let found = clients.iter().find(|client| client["name"] == "one").expect("the first");
    assert_eq!((&found["opens"], &found["locks"]), (&1.into(), &1.into()));
    assert_eq!((&found["state"], &found["is_recorded"]), (&"active".into(), &true.into()));
    assert_eq!((&found["protocol"], &found["address"]), (&"NFSv4.1+".into(), &"127.0.0.1".into()));

    let id = found["id"].as_str().expect("an id");
    let (is_done, text) = ask(&["expire", id]);
    assert!(!is_done && text.contains("1 opens and 1 locked ranges"), "{text}");
    assert!(text.contains("--yes-lose"), "{text}");
    fails(two.lock(&file, other_open, OWNER, ALL, false), NfsStat4::Denied);
    let (is_done, text) = ask(&["expire", id, "--yes-lose"]);
    assert!(is_done && text.starts_with("ended: "), "{text}");
    two.lock(&file, other_open, OWNER, ALL, false).expect("it is free");
    fails(open(&mut one, &place, "file"), NfsStat4::BadSession);
    let (is_done, text) = ask(&["show", id]);
    assert!(!is_done && text.contains("there is no client"), "{text}");
    let (is_done, text) = ask(&["show", "x"]);
    assert!(!is_done && text.contains("hexadecimal"), "{text}");
}
