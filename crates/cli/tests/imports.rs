//! Process ring: files of exports(5), ports from which calls may come, and link-local addresses,
//! with the real server and a client of NFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use steadfast_client::{ClientError, Identity, Nfs3Client, RpcConnection, mount};

/// A server without shares of its own, but for the one of its place.
struct Server {
    place: Place,
    running: Running,
}

impl Server {
    fn start() -> Self {
        let place = Place::new();
        let running = Running::start(&place, 0, &[utf8(&place.share), "--no-intent-log"]);
        Self { place, running }
    }

    fn run(&self, words: &[&str]) -> Output {
        output(&[words, &["--state-directory", utf8(&self.place.state)]].concat())
    }

    #[track_caller]
    fn import(&self, text: &str) -> (Option<i32>, String) {
        let file = self.place.write("exports", text);
        let done = self.run(&["import", utf8(&file)]);
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned() + &stderr(&done))
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.place.share.parent().unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn mount(&self, path: &str) -> Result<(), ClientError> {
        let address = self.running.address;
        Nfs3Client::mount(address, address, path.as_bytes(), Identity::root(), PATIENCE).map(drop)
    }
}

/// Mounts from a port that every user of the client may have.
fn mount_from_high_port(running: &Running, path: &str) -> Result<(), ClientError> {
    let stream = TcpStream::connect(running.address)?;
    assert!(stream.local_addr()?.port() >= 1024);
    let mut connection = RpcConnection::over(stream, PATIENCE)?;
    mount::mnt(&mut connection, &Identity::root(), path.as_bytes()).map(drop)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn calls_must_come_from_reserved_ports_unless_it_is_said_otherwise() {
    if !is_root() {
        println!("skipped: needs root, as clients do");
        return;
    }
    let place = Place::new();
    let share = utf8(&place.share).to_owned();
    let running = Running::start(&place, 0, &[&share, "--no-intent-log"]);
    let error = mount_from_high_port(&running, &share).expect_err("by default");
    assert!(error.to_string().contains("MOUNT failed with status 13"), "{error}");
    let address = running.address;
    let mounted = Nfs3Client::mount(address, address, share.as_bytes(), Identity::root(), PATIENCE);
    let (mut client, root) = mounted.expect("from a reserved port");
    client.getattr(&root).expect("attributes");
    // Nor with a handle that somebody else has got.
    let stream = TcpStream::connect(address).unwrap();
    let connection = RpcConnection::over(stream, PATIENCE).unwrap();
    let mut other = Nfs3Client::new(connection, Identity::root());
    other.getattr(&root).expect_err("from another port");
    drop(running);

    let running = Running::start(&place, 0, &[&share, "--no-intent-log", "--insecure"]);
    mount_from_high_port(&running, &share).expect("--insecure");
}

#[test]
fn options_before_no_client_hold_for_everybody() {
    let server = Server::start();
    let data = server.directory("data");
    let (status, told) = server.import(&format!("{} -sec=krb5,insecure\n", utf8(&data)));
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("Kerberos is not served yet"), "{told}");
    server.mount(utf8(&data)).expect_err("it was for Kerberos only");
    let (status, told) = server.import(&format!("{} -nonsense=1\n", utf8(&data)));
    assert_eq!(status, Some(1), "{told}");
    let text = format!("{} -all_squash,anonuid=5,insecure\n", utf8(&data));
    let (status, told) = server.import(&text);
    assert_eq!(status, Some(0), "{told}");
    server.mount(utf8(&data)).expect("imported");
    let shown = server.run(&["share", "show", utf8(&data), "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let options = shown["options"].to_string();
    assert!(options.contains("all_squash") && options.contains("anonuid=5"), "{shown}");
}

#[test]
fn a_directory_is_mounted_by_each_of_the_names_that_were_imported() {
    let server = Server::start();
    let data = server.directory("data");
    let link = data.with_file_name("link");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let (status, told) = server.import(&format!("{} *(rw,insecure)\n", utf8(&link)));
    assert_eq!(status, Some(0), "{told}");
    server.mount(utf8(&link)).expect("by its link");
    server.mount(utf8(&data)).expect("by its own name");
}

#[test]
fn an_import_is_tried_without_a_server_and_tells_a_kind_in_a_line() {
    let place = Place::new();
    let mut text = String::from("/ node[0-9].x(rw) 10.1.*(ro)\n");
    text.extend((0..24).map(|number| format!("/missing/{number} *(rw)\n")));
    let file = place.write("exports", &text);
    let words = ["import", utf8(&file), "--dry-run", "--state-directory", utf8(&place.state)];
    let done = output(&words);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("no server runs"), "{}", stderr(&done));
    assert!(told.contains("25 shares added"), "{told}");
    assert!(told.contains("node[0-9].x"), "{told}");
    assert!(told.contains("\"10.1.*\" has no address"), "{told}");
    let missing: Vec<&str> = told.lines().filter(|line| line.contains("does not exist")).collect();
    assert_eq!(missing.len(), 1, "{told}");
    assert!(missing[0].contains("and 23 more like it"), "{told}");
    assert!(!place.state.exists());
    place.write("exports", "/a *(rw,bogus)\n/b *(bogus)\n");
    let done = output(&words);
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(stderr(&done).matches("unknown option").count(), 2, "{}", stderr(&done));
}

#[test]
fn clients_that_nobody_can_be_are_warned_of() {
    let server = Server::start();
    let data = server.directory("data");
    let done = server.run(&["share", "add", utf8(&data), "-c", "192.168.1.*"]);
    assert!(done.status.success(), "{}", stderr(&done));
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let what = "warning: ";
    assert!(told.contains(what) && told.contains("write \"192.168.1.0/24\""), "{told}");
    let text = format!("[[share]]\npath = {:?}\nclients = [\"10.*\"]\n", utf8(&data));
    let file = server.place.write("check.toml", &text);
    let done = output(&["check-config", utf8(&file)]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("write \"10.0.0.0/8\""), "{}", stderr(&done));
}

#[test]
fn a_link_local_address_is_listened_on_by_its_interface() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_root() || !has("ip") || !has("unshare") {
        println!("skipped: needs root, ip and unshare");
        return;
    }
    let place = Place::new();
    let script = "ip link set lo up && ip link add d0 type veth peer name d1 && \
                  ip link set d0 up && ip link set d1 up && \
                  ip addr add fe80::1/64 dev d0 nodad && exec \"$@\"";
    let log = place.directory.path().join("log");
    let mut child = Command::new("unshare")
        .args(["--net", "sh", "-c", script, "sh", utf8(&place.program)])
        .args(["serve", utf8(&place.share), "--no-rpcbind", "--no-intent-log"])
        .args(["--listen", "[fe80::1%d0]:2049", "--state-directory", utf8(&place.state)])
        .env_remove("NOTIFY_SOCKET")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let said = loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let has_ended = child.try_wait().unwrap().is_some();
        if said.contains("serving at [fe80::1%") || has_ended || started.elapsed() > PATIENCE {
            break said;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let _ = child.kill();
    let _ = child.wait();
    if said.contains("unshare:") || said.contains("RTNETLINK") {
        println!("skipped: no namespaces or interfaces here: {said}");
        return;
    }
    assert!(said.contains("serving at [fe80::1%"), "{said}");
}

#[test]
fn exports_of_nfs_ganesha_become_shares_that_clients_mount_by_both_paths() {
    let server = Server::start();
    let data = server.directory("data");
    let main = server.place.write("ganesha.conf", "%include \"exports.conf\"\nLOG { }\n");
    let import = |text: &str, words: &[&str]| {
        server.place.write("exports.conf", text);
        let done = server.run(&[&["import", "--from", "ganesha", utf8(&main)], words].concat());
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned() + &stderr(&done))
    };
    let export = |more: &str| {
        let path = utf8(&data);
        format!(
            "EXPORT {{\n Export_Id = 7; Path = {path}; Pseudo = /pseudo;\n FSAL {{ Name = VFS; }}\n {more}\n}}\n"
        )
    };
    let (status, told) = import(&export("Access_Type = RW; SecType = krb5p;"), &[]);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("exports.conf:1:1: Kerberos is not served yet"), "{told}");
    server.mount(utf8(&data)).expect_err("nothing was imported");
    let whole = export("Access_Type = RW; CLIENT { Clients = 192.0.2.0/24; Access_Type = None; }");
    let (status, told) = import(&whole, &["--dry-run"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("2 shares added"), "{told}");
    server.mount("/pseudo").expect_err("it was a dry run");
    let (status, told) = import(&whole, &[]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("LOG is not taken over"), "{told}");
    server.mount(utf8(&data)).expect("by its path");
    server.mount("/pseudo").expect("by its place in the pseudo file system");
    let decision = |client: &str| {
        let told = server.run(&["share", "explain", client, "0", "/pseudo", "--json"]);
        String::from_utf8_lossy(&told.stdout).into_owned()
    };
    assert!(decision("192.0.2.1").contains("\"refused\""), "{}", decision("192.0.2.1"));
    assert!(decision("198.51.100.1").contains("\"granted\""), "{}", decision("198.51.100.1"));
}

#[test]
fn all_mistakes_of_an_import_are_told_at_once() {
    let server = Server::start();
    let (a, b) = (server.directory("a"), server.directory("b"));
    let (a, b) = (utf8(&a), utf8(&b));
    assert_eq!(server.import(&format!("{a} 127.0.0.1(rw)\n")).0, Some(0));
    // It is shared already, otherwise; another line is not understood; and one is right.
    let text = format!("{a} 127.0.0.1(ro)\n/x 127.0.0.1(or)\n{b} 127.0.0.1(rw)\n");
    let file = server.place.write("exports", &text);
    for words in [&["import", utf8(&file)][..], &["import", utf8(&file), "--dry-run"]] {
        let done = server.run(words);
        let told = stderr(&done);
        assert_eq!(done.status.code(), Some(1), "{told}");
        assert!(told.contains("exports:2:14: unknown option \"or\""), "{told}");
        assert!(told.contains("exports:1:1: ") && told.contains("is shared already"), "{told}");
        assert!(told.contains("nothing was done; --partial leaves out"), "{told}");
    }
    assert!(server.mount(b).is_err(), "nothing was done");
    // One mistake is told so, too.
    let (code, told) = server.import("/x 127.0.0.1(or)\n");
    assert!(code == Some(1) && told.contains("--partial"), "{told}");
    let file = server.place.write("exports", &text);
    let done = server.run(&["import", utf8(&file), "--partial"]);
    assert_eq!(done.status.code(), Some(1), "some were left out");
    server.mount(b).expect("the rest was done");
    // What is exported says what becomes of fsid=.
    let exported = String::from_utf8(server.run(&["export"]).stdout).unwrap();
    assert!(exported.starts_with("# Shares here have no fsid="), "{exported}");
    let empty = server.run(&["export", "--group", "none"]);
    assert_eq!(empty.status.code(), Some(1));
}
