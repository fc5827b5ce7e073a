//! Process ring: shares managed while the real program serves them, with a crash at times, and
//! access by names that a name server of the test's own knows, or does not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, utf8};
use rustix::process::Signal;
use steadfast_access::testing::{Behavior, DnsServer};
use steadfast_client::{ClientError, FileHandle, Identity, Nfs3Client, NfsStat3, Settings};

/// A server with one share of its configuration file, which everybody may use, and what is to be
/// shared beside it.
struct Managed {
    place: Place,
    configuration: std::path::PathBuf,
}

impl Managed {
    fn new(more: &str) -> Self {
        let place = Place::new();
        std::fs::create_dir(&place.share).unwrap();
        let text = format!(
            "[log]\nenabled = false\n{more}\n[[share]]\npath = \"{}\"\nclients = [\"*\"]\n",
            utf8(&place.share)
        );
        let configuration = place.write("steadfast.toml", &text);
        Self { place, configuration }
    }

    fn start(&self) -> Running {
        Running::start(&self.place, 0, &["--config", utf8(&self.configuration)])
    }

    /// A directory to be shared, for everybody to write.
    fn directory(&self, name: &str) -> String {
        let path = self.place.directory.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        utf8(&path).to_owned()
    }

    fn ask(&self, words: &[&str]) -> std::process::Output {
        let state = ["--state-directory", utf8(&self.place.state)];
        output(&[words, &state].concat())
    }

    /// What a command that must succeed tells.
    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert!(done.status.success(), "{words:?}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Why a command was not done.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let done = self.ask(words);
        assert_eq!(done.status.code(), Some(1), "{words:?}: {}", stderr(&done));
        stderr(&done)
    }

    fn sharetab(&self) -> String {
        std::fs::read_to_string(self.place.state.join("sharetab")).unwrap()
    }

    fn state_of(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.told(&["share", "show", path, "--json"])).unwrap()
    }
}

fn mount(running: &Running, path: &str) -> Result<(Nfs3Client, FileHandle), ClientError> {
    let (address, path) = (running.address, path.as_bytes());
    Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE)
}

#[track_caller]
fn status_of<T: std::fmt::Debug>(result: Result<T, ClientError>) -> NfsStat3 {
    match result {
        Err(ClientError::Failed(failure)) => failure.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_share_comes_changes_and_goes_under_its_client() {
    let managed = Managed::new("");
    let running = managed.start();
    let path = managed.directory("data");
    assert!(mount(&running, &path).is_err());
    managed.told(&["share", "add", &path, "--client", "127.0.0.0/8", "-o", "rw,no_root_squash"]);
    let (mut client, root) = mount(&running, &path).unwrap();
    client.getattr(&root).unwrap();
    let sharetab = managed.sharetab();
    assert!(sharetab.contains(&format!("{path}\t-\tnfs\trw=@127.0.0.0/8")), "{sharetab}");
    // On the connection that is open, with the handle that the client has.
    managed.told(&[
        "share",
        "set",
        &path,
        "--add-client",
        "10.0.0.1",
        "--remove-client",
        "127.0.0.0/8",
    ]);
    assert_eq!(status_of(client.getattr(&root)), NfsStat3::Acces);
    managed.told(&["rollback"]);
    client.getattr(&root).unwrap();
    managed.told(&["share", "disable", &path]);
    assert_eq!(status_of(client.getattr(&root)), NfsStat3::Stale);
    managed.told(&["share", "enable", &path]);
    client.getattr(&root).unwrap();
    managed.told(&["share", "remove", &path]);
    assert_eq!(status_of(client.getattr(&root)), NfsStat3::Stale);
    let sharetab = managed.sharetab();
    assert!(!sharetab.contains(&path), "{sharetab}");
}

#[test]
fn what_was_done_outlives_a_crash_and_a_batch_is_done_wholly_or_not() {
    let managed = Managed::new("");
    let running = managed.start();
    let (a, b) = (managed.directory("a"), managed.directory("b"));
    managed.told(&["group", "create", "home", "--client", "127.0.0.1"]);
    managed.told(&["share", "add", &a, "--group", "home"]);
    let refused = managed.refused(&["share", "add", &b, "-o", "rww", "--group", "home"]);
    assert!(refused.contains("rww") && refused.contains("rw"), "{refused}");
    let refused = managed.refused(&["share", "set", &a, &b, "-o", "ro"]);
    assert!(refused.contains(&b), "{refused}");
    let options = serde_json::json!(["rw", "root_squash"]);
    assert_eq!(managed.state_of(&a)["options"], options, "not half of a batch");
    running.signal(Signal::KILL);
    running.wait();
    let running = managed.start();
    assert_eq!(managed.state_of(&a)["state"], "enabled");
    assert_eq!(managed.state_of(&a)["group"], "home");
    mount(&running, &a).unwrap();
    managed.refused(&["share", "show", &b]);
    // The file is as people would have written it, and they may write it too.
    running.signal(Signal::TERM);
    running.wait();
    let file = managed.place.state.join("shares.d/home.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = format!("# Ours.\n{text}\n# The other one.\n[[share]]\npath = \"{b}\"\n");
    std::fs::write(&file, text).unwrap();
    let running = managed.start();
    mount(&running, &b).unwrap();
    managed.told(&["share", "disable", &b]);
    running.signal(Signal::TERM);
    running.wait();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("# Ours.\n") && text.contains("# The other one.\n[[share]]"),
        "{text}"
    );
    assert!(text.contains("enabled = false"), "{text}");
}

#[test]
fn a_share_without_its_directory_is_faulty_alone() {
    let managed = Managed::new("");
    let running = managed.start();
    let (here, missing) = (managed.directory("here"), managed.directory("missing"));
    let (gone, new) = (managed.directory("gone"), managed.directory("new"));
    std::fs::remove_dir(&missing).unwrap();
    let all = ["--client", "*"];
    managed.told(&[&["share", "add", &gone][..], &all].concat());
    assert!(managed.refused(&[&["share", "add", &missing][..], &all].concat()).contains("exist"));
    managed.told(&[&["share", "add", &here, &missing, "--force"][..], &all].concat());
    mount(&running, &here).unwrap();
    let state = managed.state_of(&missing);
    assert_eq!(state["state"], "faulty", "{state}");
    assert!(state["why"].as_str().unwrap().contains("does not exist"), "{state}");
    let sharetab = managed.sharetab();
    assert!(sharetab.contains(&here) && !sharetab.contains(&missing), "{sharetab}");
    // Not a word of any file changes.
    std::fs::create_dir(&missing).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    managed.told(&["reload"]);
    assert_eq!(managed.state_of(&missing)["state"], "enabled");
    mount(&running, &missing).unwrap();
    let sharetab = managed.sharetab();
    assert!(sharetab.contains(&missing) && !sharetab.contains(&gone), "{sharetab}");
    assert_eq!(managed.state_of(&gone)["state"], "faulty");
    // What is written right is read though another file is not.
    let shares = managed.place.state.join("shares.d");
    std::fs::write(
        shares.join("new.toml"),
        format!("[[share]]\npath = \"{new}\"\nclients = [\"*\"]\n"),
    )
    .unwrap();
    std::fs::write(shares.join("bad.toml"), "[[share]]\npath = 1\n").unwrap();
    let refused = managed.ask(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    let told = format!("{}{}", String::from_utf8_lossy(&refused.stdout), stderr(&refused));
    assert!(told.contains("bad.toml:2") && !told.contains("nothing was done"), "{told}");
    assert!(managed.sharetab().contains(&new), "{}", managed.sharetab());
}

/// The file of a group with these shares, for everybody.
fn group_file(managed: &Managed, name: &str, head: &str, paths: &[String]) {
    let directory = managed.place.state.join("shares.d");
    std::fs::create_dir_all(&directory).unwrap();
    let share = |path| format!("[[share]]\npath = \"{path}\"\nclients = [\"*\"]\n");
    let text = paths.iter().map(share).collect::<String>();
    std::fs::write(directory.join(format!("{name}.toml")), [head, &text].concat()).unwrap();
}

#[test]
fn many_shares_are_looked_at_while_they_are_served() {
    let managed = Managed::new("");
    let [real, missing] = ["real", "missing"].map(|name| managed.directory(name));
    std::fs::remove_dir(&missing).unwrap();
    let link = format!("{real}-link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut paths: Vec<_> = (0..5000).map(|n| managed.directory(&format!("many/{n}"))).collect();
    paths.extend([link.clone(), missing.clone()]);
    group_file(&managed, "home", "protocols = [\"probe\"]\n", &paths);
    // A program that keeps what it is told.
    let told = managed.place.directory.path().join("told");
    let script = format!("#!/bin/sh\ncat >> {}\necho '{{}}'\n", utf8(&told));
    let plugins = managed.place.state.join("plugins.d");
    std::fs::create_dir_all(&plugins).unwrap();
    let program = plugins.join("probe");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let running = managed.start();
    for path in [&paths[0], &paths[4999], &link] {
        mount(&running, path).unwrap();
    }
    assert!(mount(&running, &missing).is_err());
    let state = managed.state_of(&missing);
    assert_eq!(state["state"], "faulty", "{state}");
    assert!(state["why"].as_str().unwrap().contains("does not exist"), "{state}");
    assert_eq!(Running::log(&managed.place).matches("does not exist").count(), 1);
    // All of them, and the one of the configuration file.
    assert_eq!(managed.sharetab().lines().filter(|line| line.contains("\tnfs\t")).count(), 5002);
    // The program is told while they are served already.
    let begun = Instant::now();
    let is_told = |path: &str| std::fs::read_to_string(&told).is_ok_and(|text| text.contains(path));
    while !is_told(&paths[4999]) {
        assert!(begun.elapsed() < PATIENCE, "it is not told");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_told(&missing));
    // What is let go needs nobody to wait for.
    let begun = Instant::now();
    running.signal(Signal::TERM);
    assert!(running.wait().success());
    assert!(begun.elapsed() < PATIENCE / 6, "{:?}", begun.elapsed());
}

#[test]
fn a_signal_ends_a_start_that_goes_on() {
    let managed = Managed::new("");
    let paths: Vec<_> = (0..3000).map(|n| managed.directory(&format!("many/{n}"))).collect();
    group_file(&managed, "home", "", &paths);
    // At any moment.
    for after_ms in [20, 40, 60, 80, 120, 160] {
        let configuration = utf8(&managed.configuration);
        let state = utf8(&managed.place.state);
        let mut server = std::process::Command::new(&managed.place.program)
            .args(["serve", "--listen", "127.0.0.1", "--port", "0", "--no-rpcbind"])
            .args(["--state-directory", state, "--config", configuration])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(after_ms));
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let begun = Instant::now();
        while server.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE / 6, "it does not end ({after_ms} ms)");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Nothing of it is in the way.
    mount(&managed.start(), &paths[2999]).unwrap();
}

#[test]
fn a_server_whose_shares_are_all_faulty_can_be_asked_why() {
    let managed = Managed::new("");
    std::fs::remove_dir(&managed.place.share).unwrap();
    let _running = managed.start();
    let path = utf8(&managed.place.share).to_owned();
    assert_eq!(managed.state_of(&path)["state"], "faulty");
}

#[test]
fn what_is_served_as_before_and_told_otherwise_is_told() {
    let managed = Managed::new("[defaults]\nclients = [\"*\"]\n");
    let _running = managed.start();
    let path = managed.directory("data");
    // Everybody is not inherited by one who says who may.
    managed.told(&["share", "add", &path, "-o", "rw=10.0.0.1", "--rule", "10.9.0.0/16:none"]);
    let line = |kind: &str, options: &str| format!("{path}\t-\t{kind}\t{options}\t");
    let options = "rw=10.0.0.1,none=@10.9.0.0/16";
    assert!(managed.sharetab().contains(&line("nfs", options)), "{}", managed.sharetab());
    assert_eq!(managed.state_of(&path)["clients"], serde_json::json!([]));
    managed.told(&["share", "set", &path, "--protocol", "smb"]);
    assert!(managed.sharetab().contains(&line("smb", options)), "{}", managed.sharetab());
    managed.told(&["rollback"]);
    assert!(!managed.sharetab().contains(&line("smb", options)), "{}", managed.sharetab());
    managed.told(&["group", "set", "default", "--protocol", "smb"]);
    assert!(managed.sharetab().contains(&line("smb", options)), "{}", managed.sharetab());
}

#[test]
fn directories_below_a_pattern_are_shares_as_they_come_and_go() {
    let managed = Managed::new("");
    let home = managed.directory("home");
    managed.directory("home/ann");
    let running = managed.start();
    let pattern = format!("{home}/*");
    managed.told(&["group", "create", "home", "--client", "*", "--pattern", &pattern]);
    mount(&running, &format!("{home}/ann")).unwrap();
    let bob = managed.directory("home/bob");
    let begun = Instant::now();
    while mount(&running, &bob).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{}", managed.told(&["share", "list"]));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir(&bob).unwrap();
    while managed.ask(&["share", "show", &bob]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "{}", managed.told(&["share", "list"]));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_known_by_name_never_waits_for_a_name_server() {
    let server = DnsServer::start();
    let loopback: IpAddr = [127, 0, 0, 1].into();
    server.set_host("client.example", &[loopback]);
    server.set_host("other.example", &[[10, 0, 0, 1].into()]);
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let names = format!(
        "[names]\nservers = [\"{}\"]\nhosts_file = \"{}\"\nttl_min_s = 1\nttl_max_s = 1\n\
         timeout_ms = 500\n",
        server.address(),
        hosts.path().display()
    );
    let managed = Managed::new(&names);
    let (known, unknown) = (managed.directory("known"), managed.directory("unknown"));
    let running = managed.start();
    managed.told(&["share", "add", &known, "--client", "client.example"]);
    managed.told(&["share", "add", &unknown, "--client", "other.example"]);
    // The MOUNT waits for the look-up that the share began, and is answered by what it says.
    let (mut client, root) = mount(&running, &known).unwrap();
    assert!(mount(&running, &unknown).is_err());
    server.set_behavior(Behavior::Drop);
    // Longer than an answer is believed: it is used all the same, and nobody is held up.
    std::thread::sleep(Duration::from_millis(2500));
    client.getattr(&root).unwrap();
    mount(&running, &known).unwrap();
    let explained = managed.told(&["share", "explain", "127.0.0.1", &known]);
    assert!(explained.contains("client.example"), "{explained}");
    // Restarted while the name server is dead.
    running.signal(Signal::TERM);
    running.wait();
    let running = managed.start();
    mount(&running, &known).unwrap();
    // Nobody has ever known this one.
    managed.told(&["share", "set", &unknown, "--add-client", "new.example"]);
    assert!(mount(&running, &unknown).is_err());
    // It is back, and says something else.
    server.set_host("new.example", &[loopback]);
    server.set_behavior(Behavior::Answer);
    let begun = Instant::now();
    while mount(&running, &unknown).is_err() {
        assert!(begun.elapsed() < PATIENCE, "{}", Running::log(&managed.place));
        std::thread::sleep(Duration::from_millis(100));
    }
    server.set_host("client.example", &[[10, 0, 0, 2].into()]);
    // Unless it has been asked again already.
    let Ok((mut client, root)) = mount(&running, &known) else { return };
    while client.getattr(&root).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the host has another address, and is let in still");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_other_programs_and_scripts_are_told_is_complete() {
    let managed = Managed::new("");
    let running = managed.start();
    let path = managed.directory("data");
    managed.told(&["share", "add", &path, "--client", "127.0.0.1", "-m", "a test"]);
    let history = managed.told(&["history", "--json"]);
    assert!(history.contains("a test"), "{history}");
    let list = managed.told(&["share", "list", "--json"]);
    assert!(list.contains(&path) && list.contains(utf8(&managed.place.share)), "{list}");
    // What is written by hand in steadfast.toml is told, and not changed.
    let fixed = utf8(&managed.place.share).to_owned();
    let refused = managed.refused(&["share", "disable", &fixed]);
    assert!(refused.contains("steadfast.toml"), "{refused}");
    running.signal(Signal::TERM);
    running.wait();
    let refused = managed.refused(&["share", "list"]);
    assert!(refused.contains("no server"), "{refused}");
}

/// What clients make has the permissions that they ask for; nothing of that is for the server's own.
#[test]
fn what_the_server_makes_for_itself_nobody_else_may_write() {
    fn require_ours(directory: &std::path::Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.permissions().mode();
            assert_eq!(mode & 0o022, 0, "{}: {mode:o}", path.display());
            if metadata.is_dir() {
                require_ours(&path);
            }
        }
    }
    let managed = Managed::new("");
    let running = managed.start();
    let path = managed.directory("data");
    managed.told(&["share", "add", &path, "--client", "127.0.0.1", "-o", "rw,no_root_squash"]);
    let (mut client, root) = mount(&running, &path).unwrap();
    client.mkdir(&root, b"everybodys", &Settings::mode(0o777)).unwrap();
    let made = std::fs::metadata(format!("{path}/everybodys")).unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o777);
    managed.told(&["group", "create", "others"]);
    running.signal(Signal::TERM);
    running.wait();
    assert!(managed.place.state.join("shares.d/others.toml").exists());
    require_ours(&managed.place.state);
}
