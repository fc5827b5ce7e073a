//! Process ring: what an administrator is told who does the usual and the unusual: of mounts that are
//! refused, of full disks, of names that would command his terminal, of shares that nobody should make.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use intent_log_support::{create, ext4_of_whole_seconds, run, stop, tmpfs};
use serde_json::Value;
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, StableHow};

/// A server with one share of its configuration file.
struct Site {
    place: Place,
    configuration: PathBuf,
}

impl Site {
    fn new(server: &str) -> Self {
        let place = Place::new();
        std::fs::create_dir(&place.share).unwrap();
        let text = format!(
            "[server]\n{server}\n[log]\nenabled = false\n[[share]]\npath = {:?}\nclients = [\"*\"]\n",
            utf8(&place.share)
        );
        let configuration = place.write("steadfast.toml", &text);
        Self { place, configuration }
    }

    fn base(&self) -> PathBuf {
        self.place.directory.path().canonicalize().unwrap()
    }

    fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration)])
    }

    fn ask(&self, words: &[&str]) -> Output {
        let state = ["--state-directory", utf8(&self.place.state)];
        output(&[words, &state].concat())
    }

    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    fn status(&self, path: &Path) -> Value {
        serde_json::from_str(&self.told(&["share", "show", utf8(path), "--json"])).unwrap()
    }

    fn log_has(&self, part: &str) -> String {
        Running::log_with(&self.place, part)
    }
}

fn mount(running: &Running, path: &Path) -> Result<(Nfs3Client, FileHandle), ClientError> {
    let (address, path) = (running.address, path.as_os_str().as_bytes());
    Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE)
}

/// Commands for a server that runs find it by its configuration file, which may have mistakes by then.
#[test]
fn mistakes_in_the_configuration_keep_nobody_from_the_server() {
    let site = Site::new("");
    let good = std::fs::read_to_string(&site.configuration).unwrap();
    let state = format!("[server]\nstate_directory = {:?}\n", utf8(&site.place.state));
    let good = good.replace("[server]\n", &state);
    std::fs::write(&site.configuration, &good).unwrap();
    let running = site.start();
    let share = utf8(&site.place.share);
    let line = good.lines().count() + 1;
    for mistake in ["[[share]]\npath = 5\nclients = []\n", "[[share\n", "nonsense\n", "\"\"\" \n"] {
        std::fs::write(&site.configuration, format!("{good}{mistake}")).unwrap();
        let place = format!("{}:", utf8(&site.configuration));
        let asked: [&[&str]; 7] = [
            &["share", "list"],
            &["share", "show", share],
            &["group", "list"],
            &["statistics"],
            &["history"],
            &["export"],
            &["reload"],
        ];
        for words in asked {
            let done = output(&[words, &["--config", utf8(&site.configuration)]].concat());
            let told = stderr(&done);
            // A reload has to say that it left something out.
            assert_eq!(done.status.success(), words != ["reload"], "{words:?}: {told}");
            let at = told.find(&place).map(|at| &told[at + place.len()..]);
            let told_line = at.and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
            assert!(told_line.is_some_and(|told| told >= line), "{words:?}: {told}");
        }
        let shares = site.told(&["share", "list"]);
        assert!(shares.contains(share) && shares.contains("enabled"), "{shares}");
    }
    assert!(mount(&running, &site.place.share).is_ok());
    stop(running);
}

#[test]
fn refused_mounts_are_logged_and_bounded_in_rate() {
    let site = Site::new("");
    let closed = site.base().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let running = site.start();
    site.told(&["share", "add", utf8(&closed), "--client", "10.9.8.7"]);
    assert!(mount(&running, Path::new("/no/such/share")).is_err());
    let log = site.log_has("/no/such/share");
    assert!(log.contains("127.0.0.1:") && log.contains("no share of this path is served"), "{log}");
    assert!(mount(&running, &closed).is_err());
    site.log_has("no rule of the share gives this client access");
    assert!(mount(&running, &site.place.share.join("none")).is_err());
    site.log_has("there is no such directory in the share");
    assert!(mount(&running, Path::new(OsStr::from_bytes(b"/evil\x1b[31m\nforged"))).is_err());
    let log = site.log_has("/evil");
    assert!(!log.contains("\x1b[31m") && !log.lines().any(|line| line.starts_with("forged")));
    for _ in 0..100 {
        assert!(mount(&running, Path::new("/flood")).is_err());
    }
    let log = Running::log(&site.place);
    assert!(log.matches("/flood").count() < 60, "{log}");
    assert!(mount(&running, &site.place.share).is_ok());
    stop(running);
}

#[test]
fn a_client_that_fills_a_disk_is_logged() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let site = Site::new("");
    let small = tmpfs(&site.base().join("small"), 1);
    let running = site.start();
    site.told(&["share", "add", utf8(&small.at), "--client", "*", "-o", "no_root_squash"]);
    let (mut client, root) = mount(&running, &small.at).unwrap();
    let file = create(&mut client, &root, "large");
    let data = vec![1; 1 << 18];
    let written = (0..8_u64)
        .find_map(|piece| client.write(&file, piece << 18, &data, StableHow::Unstable).err());
    assert!(written.is_some(), "there is no room");
    let log = site.log_has("its file system is full");
    assert!(log.contains("was refused WRITE on share") && log.contains("127.0.0.1:"), "{log}");
    stop(running);
}

#[test]
fn names_of_directories_do_not_command_the_terminal() {
    let site = Site::new("");
    let home = site.base().join("home");
    for name in [&b"esc\x1b[31m"[..], b"two\nlines", b"bad\xff", "c1\u{9b}2J".as_bytes()] {
        std::fs::create_dir_all(home.join(OsStr::from_bytes(name))).unwrap();
    }
    let running = site.start();
    let pattern = format!("{}/*", utf8(&home));
    site.told(&["group", "create", "homes", "--client", "*", "--pattern", &pattern]);
    // Told though no share can be called so.
    let log = site.log_has("bad\\xFF");
    assert!(log.contains("not UTF-8"), "{log}");
    let groups = site.told(&["group", "list"]);
    assert!(groups.contains("bad\\\\xFF") || groups.contains("bad\\xFF"), "{groups}");
    let esc = format!("{}/esc\x1b[31m", utf8(&home));
    let two = format!("{}/two\nlines", utf8(&home));
    let commands: [&[&str]; 12] = [
        &["share", "list"],
        &["share", "list", "--json"],
        &["share", "show", &esc],
        &["share", "show", &esc, "--json"],
        &["share", "show", &two],
        &["share", "explain", "127.0.0.1", &two],
        &["share", "add", &two, "--client", "*", "--group", "homes", "--dry-run"],
        &["share", "add", &esc, "--client", "nobody knows", "--group", "homes"],
        &["share", "accept", &format!("{esc}/none")],
        &["group", "list", "--json"],
        &["history"],
        &["reload"],
    ];
    for words in commands {
        let done = site.ask(words);
        for bytes in [&done.stdout, &done.stderr] {
            let text = String::from_utf8(bytes.clone()).unwrap();
            let bad = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(bad, None, "{words:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("lines")), "{words:?}: {text:?}");
        }
    }
    // Programs get the names as they are.
    let listed = site.told(&["share", "list", "--json"]);
    let paths: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].as_str().unwrap().into())
        .collect();
    assert!(paths.contains(&esc) && paths.contains(&two), "{paths:?}");
    let log = Running::log(&site.place);
    assert_eq!(log.chars().find(|c| c.is_control() && *c != '\n'), None, "{log:?}");
    stop(running);
}

#[test]
fn a_share_that_contains_what_the_server_keeps_is_refused_unless_told_twice() {
    let site = Site::new("");
    let base = site.base();
    let running = site.start();
    for path in [&base, &site.place.state] {
        let added = site.told(&["share", "add", utf8(path), "--client", "*"]);
        assert!(added.contains("contains the state directory"), "{added}");
        assert_eq!(site.status(path)["state"], "faulty");
        assert!(mount(&running, path).is_err());
    }
    // By another path, too.
    let bound = base.join("share/bound");
    std::fs::create_dir(&bound).unwrap();
    let is_bound = run(&["mount", "--bind", utf8(&base), utf8(&bound)]);
    if is_bound {
        let added = site.told(&["share", "add", utf8(&bound), "--client", "*"]);
        run(&["umount", "-l", utf8(&bound)]);
        assert!(added.contains("contains the state directory"), "{added}");
    }
    stop(running);
    // After a restart they are not served for a moment either.
    let running = site.start();
    assert!(mount(&running, &base).is_err());
    stop(running);
    let text = std::fs::read_to_string(&site.configuration).unwrap();
    let text = text.replace("[server]\n", "[server]\nshare_own_files = true\n");
    std::fs::write(&site.configuration, text).unwrap();
    let running = site.start();
    assert_eq!(site.status(&base)["state"], "enabled", "told twice");
    stop(running);
}

#[test]
fn a_lost_handle_key_is_not_replaced_without_a_word() {
    let site = Site::new("");
    let running = site.start();
    stop(running);
    std::fs::remove_file(site.place.state.join("handle.key")).unwrap();
    let serve = ["serve", "--config", utf8(&site.configuration), "--no-rpcbind", "--port", "0"];
    let state = ["--state-directory", utf8(&site.place.state)];
    let mut command = steadfast(&[&serve[..], &state].concat());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = child.wait_with_output().unwrap();
    let told = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    for part in ["handle.key is missing", "must mount again", "--new-handle-key"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!site.place.state.join("handle.key").exists());
    let arguments = ["--config", utf8(&site.configuration), "--new-handle-key"];
    let running = Running::start(&site.place, 0, &arguments);
    site.log_has("must mount again");
    stop(running);
    stop(site.start());
}

#[test]
fn what_is_told_is_what_is_so() {
    let site = Site::new("");
    let data = site.base().join("data");
    std::fs::create_dir(&data).unwrap();
    let running = site.start();
    site.told(&["group", "create", "g", "--client", "*", "-o", "rw,root_squash"]);
    let added =
        site.told(&["share", "add", utf8(&data), "--group", "g", "-o", "rw,no_root_squash"]);
    let line = format!("127.0.0.1:{} /mnt", utf8(&data));
    assert!(added.contains("mount -t nfs -o port=") && added.contains(&line), "{added}");
    assert_eq!(site.status(&data)["options"], serde_json::json!(["rw", "no_root_squash"]));
    let shown = site.told(&["share", "show", utf8(&data)]);
    assert!(!shown.contains("root_squash,rw"), "{shown}");
    let operations: Vec<Value> = (0..20)
        .map(|number| {
            let path = site.base().join(format!("many-{number}"));
            serde_json::json!({"op": "add-share", "group": "g", "share": {"path": utf8(&path)}})
        })
        .collect();
    let batch = serde_json::json!({ "operations": operations }).to_string();
    let file = site.place.write("batch.json", &batch);
    site.told(&["apply", utf8(&file)]);
    let history = site.told(&["history"]);
    assert!(history.contains("20 shares added"), "{history}");
    assert!(history.contains("1 group added") && !history.contains("operation"), "{history}");
    let configured = std::fs::read_to_string(&site.configuration).unwrap();
    let configured = configured.replace(
        "[server]\n",
        &format!("[server]\nstate_directory = {:?}\n", utf8(&site.place.state)),
    );
    std::fs::write(&site.configuration, configured).unwrap();
    let statistics = output(&["statistics", "--json", "--config", utf8(&site.configuration)]);
    assert!(statistics.status.success(), "{}", stderr(&statistics));
    let refused = output(&["statistics", "--connect", "127.0.0.1:1"]);
    assert_eq!(refused.status.code(), Some(1), "no wrong usage: {}", stderr(&refused));
    stop(running);
}

#[test]
fn a_file_system_of_whole_seconds_tells_clients_so() {
    let place = Place::new();
    let base = place.directory.path().canonicalize().unwrap();
    let disk = ext4_of_whole_seconds(&base.join("image"), &base.join("disk"), 16);
    let Some(disk) = disk else { return };
    let running = Running::start(&place, 0, &[utf8(&disk.at), "--no-intent-log"]);
    let (mut client, root) = mount(&running, &disk.at).unwrap();
    let told = client.fsinfo(&root).unwrap().time_delta;
    assert_eq!((told.seconds, told.nanoseconds), (1, 0));
}

#[test]
fn check_config_tells_missing_directories_beside_other_mistakes() {
    let place = Place::new();
    let text = "[[share]]\npath = \"/not/there/1\"\nclients = [\"*\"]\n\
                [[share]]\npath = \"/not/there/2\"\nclients = [\"*\"]\noptions = [\"readonly\"]\n";
    let file = place.write("mistakes.toml", text);
    let checked = output(&["check-config", utf8(&file)]);
    let told = stderr(&checked);
    assert_eq!(checked.status.code(), Some(1));
    for part in ["/not/there/1", "/not/there/2", "readonly", ":2:", ":5:"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_storm_of_which_nothing_came_fails() {
    let site = Site::new("");
    let running = site.start();
    let server = running.address.to_string();
    let storm = |path: &str| {
        output(&["bench", "mountstorm", &server, path, "--clients", "3", "--retry", "1"])
    };
    let failed = storm("/no/such/share");
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert!(stderr(&failed).contains("none of 3 clients has mounted"), "{}", stderr(&failed));
    let mounted = storm(utf8(&site.place.share));
    assert!(mounted.status.success(), "{}", stderr(&mounted));
    stop(running);
}
