//! Process ring: shares managed by commands, with the real server and a client of NFS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::{PATIENCE, Place, Running, output, stderr, steadfast, utf8};
use serde_json::Value;
use steadfast_client::{
    ClientError, CreateHow3, FileHandle, Identity, Nfs3Client, Settings, StableHow,
};

/// A server with a share of its command line, and directories that are none yet.
struct Server {
    place: Place,
    running: Running,
}

impl Server {
    fn start() -> Self {
        Self::start_with("")
    }

    /// With this in its configuration file.
    fn start_with(configuration: &str) -> Self {
        let place = Place::new();
        let file = place.write("steadfast.toml", configuration);
        // Nothing here is about the log.
        let all = [utf8(&place.share), "--all-squash", "--no-intent-log", "--config", utf8(&file)];
        let running = Running::start(&place, 0, &all);
        Self { place, running }
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.place.share.parent().unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn run(&self, words: &[&str]) -> Output {
        output(&[words, &["--state-directory", utf8(&self.place.state)]].concat())
    }

    /// What a command says that succeeds.
    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.told(&[words, &["--json"]].concat())).unwrap()
    }

    /// What a command says that does not succeed.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        stderr(&output)
    }

    fn mount(&self, path: &str) -> Result<(Nfs3Client, FileHandle), ClientError> {
        let address = self.running.address;
        Nfs3Client::mount(address, address, path.as_bytes(), Identity::root(), PATIENCE)
    }

    fn sharetab(&self) -> String {
        std::fs::read_to_string(self.place.state.join("sharetab")).unwrap()
    }
}

#[test]
fn announcements_go_when_the_server_stops() {
    let services = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(services.path()).unwrap().count();
    let plugin = format!("[plugin.mdns]\ndirectory = {:?}\n", services.path());
    let server = Server::start_with(&plugin);
    let path = server.directory("announced");
    let add = ["share", "add", utf8(&path), "--client", "*", "--protocol", "mdns", "--wait"];
    server.told(&add);
    assert_eq!(files(), 1);
    server.running.signal(rustix::process::Signal::TERM);
    assert!(server.running.wait().success());
    assert_eq!(files(), 0);
}

#[test]
fn a_share_is_told_of_as_each_client_mounts_it() {
    let server = Server::start();
    let path = server.directory("a b");
    server.told(&["share", "add", utf8(&path), "--client", "*"]);
    let all = server.told(&["share", "mounting", utf8(&path), "--server-name", "nas.example"]);
    let port = server.running.address.port();
    let told = format!("mount -t nfs -o port={port} 'nas.example:{}' /mnt\n", utf8(&path));
    assert!(all.contains(&told), "{all}");
    assert!(all.contains("\nWhere=/mnt\n") && all.contains("\nkind: PersistentVolume\n"), "{all}");
    // No port 111 is served here.
    assert!(all.contains("none: Windows asks port 111"), "{all}");
    assert!(server.refused(&["share", "mounting", utf8(&path), "--by", "windows"]).contains("111"));

    let by =
        |kind: &str| server.told(&["share", "mounting", utf8(&path), "--by", kind, "--at", "/d"]);
    let fstab = by("fstab");
    assert!(
        fstab.ends_with(&format!("/a\\040b  /d  nfs  _netdev,nofail,port={port}  0  0\n")),
        "{fstab}"
    );
    assert_eq!(fstab.lines().count(), 1, "{fstab}");
    let shown = server.told(&["share", "show", utf8(&path)]);
    assert!(shown.contains(&by("linux").replace(" /d\n", " /mnt\n")), "{shown}");
    let json = server.json(&["share", "mounting", utf8(&path)]);
    assert_eq!(json["forms"].as_array().unwrap().len(), 8);

    assert!(server.refused(&["share", "mounting", "/nowhere"]).contains("no share"));
    let refused = server.refused(&["share", "mounting", utf8(&path), "--server-name", "a b"]);
    assert!(refused.contains("neither the name of a host"), "{refused}");
}

#[test]
fn a_share_is_added_changed_and_removed_and_each_can_be_taken_back() {
    let server = Server::start();
    let data = server.directory("data");
    let path = utf8(&data);
    assert!(server.mount(path).is_err());
    let planned = server.told(&["share", "add", path, "-c", "127.0.0.1", "--dry-run"]);
    assert!(planned.contains(&format!("+ share {path}")), "{planned}");
    assert!(server.mount(path).is_err(), "it was planned only");
    let done = server.told(&["share", "add", path, "-c", "127.0.0.1", "-o", "rw", "-m", "why"]);
    assert!(done.contains("1 share added"), "{done}");
    let (mut client, root) = server.mount(path).expect("mounted");
    client.getattr(&root).expect("attributes");
    assert!(server.sharetab().lines().any(|line| line.starts_with(&format!("{path}\t"))));
    let refused = server.refused(&["share", "add", path, "-c", "127.0.0.1"]);
    assert!(refused.contains(path), "{refused}");

    let status = server.json(&["share", "show", path]);
    assert_eq!((&status["state"], &status["group"]), (&"enabled".into(), &"default".into()));
    let explained = server.told(&["share", "explain", "127.0.0.1", "0", path]);
    assert!(explained.contains("127.0.0.1 is its own address."), "{explained}");
    assert!(explained.contains("root_squash"), "{explained}");
    let explained = server.json(&["share", "explain", "10.0.0.1", path]);
    assert_eq!(explained["decision"], "refused");

    // A host that is taken out has nothing any more: at its next call, by an old handle.
    server.told(&["share", "set", path, "--add-client", "10.0.0.0/8"]);
    server.told(&["share", "set", path, "--remove-client", "127.0.0.1"]);
    client.getattr(&root).expect_err("no rights");
    let back = server.told(&["rollback"]);
    assert!(back.contains("1 share changed"), "{back}");
    client.getattr(&root).expect("attributes");

    server.told(&["share", "disable", path, "--drain"]);
    client.getattr(&root).expect("who has it keeps it");
    assert!(server.mount(path).is_err(), "nobody else gets it");
    server.told(&["share", "enable", path]);
    server.mount(path).expect("mounted");
    server.told(&["share", "disable", path]);
    assert!(client.getattr(&root).is_err());
    let listed = server.told(&["share", "list", "--state", "disabled", "--paths"]);
    assert_eq!(listed, format!("{path}\n"));
    assert!(!server.sharetab().contains(path));
    server.told(&["share", "remove", path]);
    assert!(server.refused(&["share", "show", path]).contains("there is no share"));
    // Who asks twice for it has it, and a slip of the pen is seen.
    let again = server.told(&["share", "remove", path]);
    assert!(again.contains("there is no such share") && again.contains("unchanged"), "{again}");
    let history = server.json(&["history"]);
    let entries = history["entries"].as_array().unwrap();
    let first = entries.iter().find(|entry| entry["comment"] == "why").expect("the first change");
    assert!(first["who"].as_str().unwrap().contains("steadfast"), "{first}");
    let before = first["sequence"].as_u64().unwrap().to_string();
    server.told(&["rollback", &before]);
    client.getattr(&root).expect("it is as it was, with its handles");
}

#[test]
fn what_going_back_would_change_is_told_before() {
    let server = Server::start();
    let (data, more) = (server.directory("data"), server.directory("more"));
    server.told(&["share", "add", utf8(&data), "-c", "*"]);
    server.told(&["share", "add", utf8(&more), "-c", "*"]);
    server.told(&["share", "set", utf8(&data), "-o", "ro"]);
    let now = server.json(&["history"])["sequence"].as_u64().unwrap();
    let planned = server.told(&["rollback", "--dry-run"]);
    assert!(planned.contains(&format!("~ share {}", utf8(&data))), "{planned}");
    assert!(planned.contains(&format!("1 share changed would be done; state {now} is not")));
    let to = (now - 2).to_string();
    let planned = server.json(&["rollback", &to, "--dry-run"]);
    assert_eq!(planned["sequence"], now, "{planned}");
    let of = |change: &Value| (change["action"].clone(), change["name"].clone());
    let changes: Vec<_> = planned["changes"].as_array().unwrap().iter().map(of).collect();
    assert!(changes.contains(&("remove".into(), utf8(&more).into())), "{planned}");
    assert!(changes.contains(&("change".into(), utf8(&data).into())), "{planned}");
    // Nothing has changed.
    assert_eq!(server.json(&["history"])["sequence"], now);
    assert_eq!(server.json(&["share", "show", utf8(&data)])["options"][0], "ro");
    let done = server.json(&["rollback", &to]);
    assert_eq!(done["changes"], planned["changes"], "what was told is done");
    assert!(server.refused(&["rollback", "--dry-run", "999"]).contains("999"));
}

#[test]
fn a_share_that_is_faulty_below_another_is_told_as_a_part_of_that_one() {
    let server = Server::start();
    let data = server.directory("data");
    let inner = server.directory("data/inner");
    server.told(&["share", "add", utf8(&data), "-c", "127.0.0.1"]);
    server.told(&["share", "add", utf8(&inner), "-c", "127.0.0.1", "-o", "mp"]);
    let told = server.told(&["share", "explain", "127.0.0.1", utf8(&inner)]);
    assert!(told.contains("the share is faulty, and serves nobody"), "{told}");
    let (inner, data) = (utf8(&inner), utf8(&data));
    let meanwhile = format!("Meanwhile {inner} is served as a part of the share {data}.\n");
    assert!(told.contains(&meanwhile), "{told}");
    let told = server.json(&["share", "explain", "127.0.0.1", inner]);
    assert_eq!((&told["share"], &told["served_by"]), (&inner.into(), &data.into()), "{told}");
    assert_eq!(told["decision"], "granted");
    server.mount(inner).expect("as it was told");
    // It is told of clients as that one's rules have them.
    let told = server.json(&["share", "explain", "127.0.0.2", inner]);
    assert_eq!(told["decision"], "refused", "{told}");
    server.told(&["share", "disable", data]);
    let told = server.json(&["share", "explain", "127.0.0.1", inner]);
    assert!(told["served_by"].is_null() && told["decision"] == "refused", "{told}");
    assert!(server.mount(inner).is_err());
}

#[test]
fn a_client_is_explained_as_the_log_names_it() {
    let server = Server::start();
    let data = server.directory("data");
    let path = utf8(&data);
    server.told(&["share", "add", path, "-c", "127.0.0.1,::1"]);
    for (client, decision) in [
        ("127.0.0.1:805", "granted"),
        ("127.0.0.1:40000", "refused"),
        ("[::1]:805", "granted"),
        ("[::1]:40000", "refused"),
        ("127.0.0.9:805", "refused"),
    ] {
        let told = server.json(&["share", "explain", client, path]);
        assert_eq!(told["decision"], decision, "{client}: {told}");
    }
    let told = server.told(&["share", "explain", "127.0.0.9:805", path]);
    assert!(told.contains("No rule is for 127.0.0.9:"), "{told}");
    assert!(told.ends_with("--add-client 127.0.0.9\n"), "{told}");
}

#[test]
fn a_protocol_that_no_plug_in_has_is_told_at_once() {
    let server = Server::start();
    let data = server.directory("data");
    let path = utf8(&data);
    let missing = "there is no plug-in \"smb\", so NFS alone serves it: configure [plugin.smb]";
    let add = ["share", "add", path, "-c", "*", "--protocol", "smb"];
    let planned = server.told(&[&add[..], &["--dry-run"]].concat());
    assert!(planned.contains(&format!("warning: {path}: {missing}")), "{planned}");
    let done = server.told(&add);
    assert!(done.contains(&format!("warning: {path}: {missing}")), "{done}");
    // Who asks for the same again is told again, and so is who changes it.
    assert!(server.told(&add).contains(missing));
    server.told(&["share", "set", path, "--unset", "protocols"]);
    assert!(!server.told(&["share", "set", path, "-o", "ro"]).contains("plug-in"));
    assert!(server.told(&["share", "set", path, "--protocol", "nfs,smb"]).contains(missing));
    let group = server.told(&["group", "create", "office", "-c", "*", "--protocol", "smb"]);
    assert!(group.contains(&format!("group office: {missing}")), "{group}");
    assert!(server.told(&["share", "list"]).contains(missing));
    let wanted = format!("the plug-in smb does not serve {path}");
    let begun = Instant::now();
    // Shares are counted once a second.
    loop {
        let status = server.run(&["status"]);
        let told = String::from_utf8(status.stdout).unwrap();
        if told.contains(&wanted) {
            assert_ne!(status.status.code(), Some(0), "{told}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{told}");
    }
}

#[test]
fn async_is_told_wherever_shares_are_told() {
    let server = Server::start();
    let data = server.directory("data");
    let path = utf8(&data);
    server.told(&["share", "add", path, "-c", "127.0.0.1", "-o", "rw,async"]);
    let log = Running::log_with(&server.place, "acknowledged before they are stable");
    assert!(log.lines().any(|line| line.contains("async") && line.contains(path)), "{log}");
    let listed = server.told(&["share", "list"]);
    let line = listed.lines().find(|line| line.contains(path)).expect("listed");
    assert!(line.contains("async"), "{listed}");
    assert!(server.told(&["share", "show", path]).contains("async"));
    let explained = server.told(&["share", "explain", "127.0.0.1", path]);
    assert!(explained.contains("before they are stable (async)"), "{explained}");
    assert_eq!(server.json(&["share", "explain", "127.0.0.1", path])["rights"]["is_async"], true);
    let exported = server.told(&["export"]);
    assert!(exported.contains("127.0.0.1(rw,async,no_subtree_check"), "{exported}");
    server.told(&["share", "set", path, "-o", "rw,sync"]);
    let explained = server.told(&["share", "explain", "127.0.0.1", path]);
    assert!(explained.contains("stable before they are acknowledged"), "{explained}");
}

#[test]
fn groups_are_inherited_from_moved_between_and_switched_off() {
    let server = Server::start();
    let (a, b) = (server.directory("a"), server.directory("b"));
    server.told(&["group", "create", "open", "-c", "127.0.0.0/8", "-d", "for all"]);
    server.told(&["group", "create", "closed", "-c", "10.0.0.0/8"]);
    let added = server.told(&["share", "add", utf8(&a), utf8(&b), "-g", "open"]);
    assert!(added.contains("2 shares added"), "{added}");
    let (mut client, root) = server.mount(utf8(&a)).expect("mounted");
    server.told(&["group", "move", "closed", utf8(&a)]);
    client.getattr(&root).expect_err("it has the clients of its group");
    server.told(&["group", "move", "open", utf8(&a)]);
    client.getattr(&root).expect("attributes");
    server.told(&["group", "disable", "open"]);
    assert!(client.getattr(&root).is_err());
    server.told(&["group", "enable", "open"]);
    client.getattr(&root).expect("attributes");
    let refused = server.refused(&["group", "delete", "open"]);
    assert!(refused.contains("open"), "{refused}");
    let groups = server.told(&["group", "list"]);
    assert!(groups.lines().any(|line| line.starts_with("open ")), "{groups}");
    server.told(&["group", "delete", "open", "--with-shares"]);
    assert!(client.getattr(&root).is_err());
    server.told(&["rollback"]);
    client.getattr(&root).expect("attributes");
}

#[test]
fn files_are_applied_as_a_whole_or_not_at_all() {
    let server = Server::start();
    let data = server.directory("data");
    let wanted = |options: &str| {
        let text = format!(
            "[[group]]\nname = \"files\"\nclients = [\"127.0.0.1\"]\n\n[[share]]\ngroup = \
             \"files\"\npath = {:?}\noptions = [{options:?}]\n",
            utf8(&data)
        );
        server.place.write("wanted.toml", &text)
    };
    let file = wanted("no_rootsquash");
    let refused = server.refused(&["apply", utf8(&file)]);
    assert!(refused.contains("did you mean \"no_root_squash\"?"), "{refused}");
    assert!(refused.contains("wanted.toml:8:12: "), "{refused}");
    assert!(server.mount(utf8(&data)).is_err());
    let file = wanted("no_root_squash");
    let planned = server.told(&["plan", utf8(&file)]);
    assert!(planned.contains("+ group files") && planned.contains("+ share"), "{planned}");
    server.told(&["apply", utf8(&file)]);
    let (mut client, root) = server.mount(utf8(&data)).expect("mounted");
    let again = server.told(&["apply", utf8(&file)]);
    assert!(again.contains("unchanged: nothing had to be changed"), "{again}");
    for words in [
        &["share", "add", utf8(&data), "--group", "files", "-o", "no_root_squash"][..],
        &["group", "create", "files", "--client", "127.0.0.1"],
    ] {
        let again = server.told(words);
        assert!(again.contains("unchanged: "), "{again}");
    }
    let other = server.refused(&["share", "add", utf8(&data), "--group", "files"]);
    assert!(other.contains("is shared already"), "{other}");
    server.told(&["apply", utf8(&wanted("ro"))]);
    client.getattr(&root).expect("attributes");
}

#[test]
fn an_import_with_mistakes_loads_nothing_unless_it_is_partial() {
    let server = Server::start();
    let mut text = String::new();
    for number in 0..1000 {
        let directory = server.directory(&format!("e/{number}"));
        let options = if [100, 500, 900].contains(&number) { "rw,nonsense" } else { "rw,sync" };
        let line = format!("{} 127.0.0.1({options},no_subtree_check)\n", utf8(&directory));
        text.push_str(&line);
    }
    let file = server.place.write("exports", &text);
    let refused = server.refused(&["import", utf8(&file)]);
    assert_eq!(refused.matches("nonsense").count(), 3, "{refused}");
    assert!(refused.contains("exports:101:"), "{refused}");
    let count = |server: &Server| server.told(&["share", "list", "--paths"]).lines().count();
    assert_eq!(count(&server), 1);
    let output = server.run(&["import", utf8(&file), "--partial"]);
    assert_eq!(output.status.code(), Some(1), "some were left out");
    assert_eq!(count(&server), 998);
    let exported = server.told(&["export", "--group", "exports"]);
    let lines = exported.lines().filter(|line| line.contains("127.0.0.1(")).count();
    assert_eq!(lines, 997, "{}", exported.lines().next().unwrap_or_default());
    server.told(&["rollback"]);
    assert_eq!(count(&server), 1);
}

#[test]
fn a_directory_that_is_not_there_is_a_fault_of_its_share_alone() {
    let server = Server::start();
    let data = server.directory("data");
    let missing = data.join("missing");
    let refused = server.refused(&["share", "add", utf8(&missing), "-c", "*"]);
    assert!(refused.contains("does not exist") && refused.contains("--force"), "{refused}");
    server.told(&["share", "add", utf8(&missing), utf8(&data), "-c", "*", "--force"]);
    let listed = server.told(&["share", "list"]);
    assert!(listed.contains("faulty") && listed.contains("does not exist"), "{listed}");
    server.mount(utf8(&data)).expect("the other is served");
    std::fs::create_dir(&missing).unwrap();
    let told = server.told(&["reload"]);
    let again = format!("no longer faulty, and served: {}\n", utf8(&missing));
    assert!(told.contains(&again), "{told}");
    server.mount(utf8(&missing)).expect("it is served");
    assert!(server.told(&["reload"]).contains("unchanged"));
}

#[test]
fn changes_are_told_to_who_watches() {
    let server = Server::start();
    let data = server.directory("data");
    let mut command = steadfast(&[
        "history",
        "--follow",
        "--json",
        "--state-directory",
        utf8(&server.place.state),
    ]);
    let mut watching = command.stdout(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    let stdout = BufReader::new(watching.stdout.take().unwrap());
    std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
    });
    let path = utf8(&data);
    let begun = Instant::now();
    // It is not known when it has begun to watch: until then nothing is told.
    let first = loop {
        server.told(&["share", "add", path, "-c", "*"]);
        server.told(&["share", "remove", path]);
        if let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
            break line;
        }
        assert!(begun.elapsed() < PATIENCE);
    };
    let event: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&event["subject"], &event["name"]), (&"share".into(), &path.into()), "{event}");
    // Groups come and go, too.
    server.told(&["group", "create", "people"]);
    server.told(&["group", "delete", "people"]);
    let mut groups = Vec::new();
    while groups.len() < 2 {
        let line = lines.recv_timeout(PATIENCE).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["subject"] == "group" && event["name"] == "people" {
            groups.push([event["old"].clone(), event["new"].clone()]);
        }
    }
    let is_there = Value::from("enabled");
    assert_eq!(groups, [[Value::Null, is_there.clone()], [is_there, Value::Null]]);
    let _ = watching.kill();
    let _ = watching.wait();
}

#[test]
fn a_plug_in_serves_what_asks_for_it_and_its_faults_are_told() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("list");
    let script = place.path().join("plug-in");
    // It does not like shares of a certain name.
    let text = format!(
        "#!/bin/sh\ncat > {0}.new\nif grep -q '\"path\":\"[^\"]*/bad' {0}.new; then echo no >&2; exit 1; fi\n\
         mv {0}.new {0}\n",
        utf8(&list)
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_with(&format!("[plugin.list]\ncommand = [{:?}]\n", utf8(&script)));
    let (good, bad) = (server.directory("good"), server.directory("bad"));
    server.told(&["share", "add", utf8(&good), "-c", "*", "--protocol", "list", "--wait"]);
    let published: Value = serde_json::from_slice(&std::fs::read(&list).unwrap()).unwrap();
    assert_eq!(published["shares"][0]["path"], utf8(&good));
    let told =
        server.told(&["share", "add", utf8(&bad), "-c", "*", "--protocol", "list", "--wait"]);
    assert!(told.contains("plug-in list:"), "{told}");
    let listed = server.told(&["share", "list"]);
    assert!(listed.contains("plug-in list: "), "{listed}");
    server.mount(utf8(&bad)).expect("served by NFS all the same");
    server.told(&["share", "remove", utf8(&bad), "--wait"]);
    assert!(!server.told(&["share", "list"]).contains("plug-in list: "));
}

#[test]
fn what_nobody_uses_is_closed_and_opened_again() {
    let server = Server::start_with("[server]\nshare_idle_s = 1\n");
    let data = server.directory("data").canonicalize().unwrap();
    let path = utf8(&data);
    let options = ["-c", "127.0.0.1", "-o", "rw,no_root_squash"];
    server.told(&[&["share", "add", path], &options[..]].concat());
    let is_open = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", server.running.id())).unwrap();
        let mut opened = all.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        opened.any(|opened| opened == data)
    };
    assert!(!is_open(), "nobody has used it");
    let (mut client, root) = server.mount(path).expect("mounted");
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs the kernel's file handles");
        return;
    }
    assert!(is_open());
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let file = client.create(&root, b"file", &how).unwrap().handle.unwrap();
    let written = client.write(&file, 0, b"unstable", StableHow::Unstable).unwrap();
    assert_eq!(written.committed, StableHow::Unstable);
    // Not while something is to be flushed: a COMMIT has to hear how that went.
    std::thread::sleep(Duration::from_secs(3));
    assert!(is_open());
    assert_eq!(client.commit(&file, 0, 0).unwrap().verifier, written.verifier);
    let begun = Instant::now();
    while is_open() {
        assert!(begun.elapsed() < PATIENCE, "{}", Running::log(&server.place));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The same client, by the handle that it has.
    assert_eq!(client.read(&file, 0, 99).unwrap().data, b"unstable");
    assert!(is_open());
    assert_eq!(client.commit(&file, 0, 0).unwrap().verifier, written.verifier);
    // What is in use stays as it is.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(150));
        assert!(is_open());
        client.getattr(&file).unwrap();
    }
    assert_eq!(server.json(&["share", "show", path])["state"], "enabled");
}

#[test]
fn a_server_is_asked_by_tcp_with_its_token_only() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("control.sock");
    let configuration = format!(
        "[server]\ncontrol_listen = \"127.0.0.1:0\"\ncontrol_socket = {:?}\n",
        utf8(&socket)
    );
    let server = Server::start_with(&configuration);
    assert!(server.place.state.join("control.token").exists());
    let mode = socket.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o666);
    // Another user may look and change nothing.
    let listed = server.told(&["share", "list"]);
    assert!(listed.contains(utf8(&server.place.share)), "{listed}");
}

/// Whoever reads the configuration again hears what of it is not taken, by whichever way he asks.
#[test]
fn a_reload_tells_what_takes_a_restart() {
    let server = Server::start_with("[names]\nttl_min_s = 5\n");
    let tell = |text: &str| {
        server.place.write("steadfast.toml", text);
        let read = server.told(&["reload"]);
        server.running.signal(rustix::process::Signal::HUP);
        assert!(server.running.message().starts_with("RELOADING=1\n"));
        assert!(server.running.message().starts_with("READY=1\n"));
        read
    };
    let is_told = |told: &str, table: &str| {
        told.contains(&format!("{table} has changed: that takes a restart"))
    };
    let told = tell("# moved\n\n[names]\nttl_min_s = 5\n[defaults]\nclients = [\"*\"]\n");
    assert!(!told.contains("restart"), "{told}");
    assert!(!Running::log(&server.place).contains("takes a restart"));
    let told = tell(
        "[server]\nudp = false\n[log]\nsize_mib = 64\n[names]\nttl_min_s = 6\n\
         [plugin.mine]\ncommand = [\"/nonexistent\"]\n",
    );
    let log = Running::log(&server.place);
    for table in ["[server]", "[log]", "[names]", "[plugin.mine]"] {
        assert!(is_told(&told, table), "{told}");
        assert!(is_told(&log, table), "{log}");
    }
    // It is a warning, and what it runs with stays what it is compared with.
    assert!(!tell("[names]\nttl_min_s = 5\n").contains("restart"));
}
