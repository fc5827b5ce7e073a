//! Process ring: what mistakes of the operator get, with the real program.

mod common;

use std::net::TcpListener;

use common::{Place, Running, output, stderr, steadfast, utf8};

#[test]
fn a_good_configuration_is_told_to_be_good() {
    let place = Place::new();
    std::fs::create_dir(&place.share).expect("made");
    let share = utf8(&place.share);
    let text = format!("[[share]]\npath = \"/export\"\ndirectory = {share:?}\nclients = [\"*\"]\n");
    let file = place.write("good.toml", &text);
    let output = output(&["check-config", utf8(&file)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, format!("{}: ok, 1 share\n  /export from {share}\n", utf8(&file)));
}

#[test]
fn mistakes_have_file_line_column_and_suggestion_and_all_are_told() {
    let place = Place::new();
    let file = place.write(
        "bad.toml",
        "[server]\nlisten_adress = 1\nudp = \"no\"\n\n[[share]]\npath = \"/a\"\nclient = [\"*\"]\n\
         options = [\"rw\", \"no_root_squahs\"]\nclients = [\"10.0.0.0/33\"]\n",
    );
    let output = output(&["check-config", utf8(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let file = utf8(&file);
    assert_eq!(
        stderr(&output).lines().collect::<Vec<_>>(),
        [
            format!("{file}:2:1: unknown key \"listen_adress\" in [server]"),
            format!("{file}:3:7: udp must be true or false, not a string"),
            format!("{file}:6:8: the directory \"/a\" does not exist"),
            format!("{file}:7:1: unknown key \"client\" in [[share]]; did you mean \"clients\"?"),
            format!(
                "{file}:8:18: unknown option \"no_root_squahs\"; did you mean \"no_root_squash\"?"
            ),
            format!(
                "{file}:9:12: the network \"10.0.0.0/33\" needs a length from 0 to 32 after the slash"
            ),
        ]
    );
}

#[test]
fn a_missing_directory_is_told_with_its_neighbour() {
    let place = Place::new();
    std::fs::create_dir(&place.share).expect("made");
    let missing = format!("{}s", utf8(&place.share));
    let text = format!("[[share]]\npath = \"/a\"\ndirectory = {missing:?}\nclients = [\"*\"]\n");
    let file = place.write("missing.toml", &text);
    let output = output(&["check-config", utf8(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "{}:3:13: the directory {missing:?} does not exist; did you mean {:?}?\n",
        utf8(&file),
        utf8(&place.share)
    );
    assert_eq!(stderr(&output), expected);
}

#[test]
fn wrong_usage_has_its_own_exit_status() {
    assert_eq!(output(&["serve", "--frobnicate"]).status.code(), Some(2));
    assert_eq!(output(&["check-config", "a", "b"]).status.code(), Some(2));
    assert_eq!(output(&[]).status.code(), Some(2));
    let output = output(&["serve", "x", "--clients", "10.0.0.1/8"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean \"10.0.0.0/8\"?"), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let output = output(&["check-config", "/nonexistent/steadfast.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.starts_with("/nonexistent/steadfast.toml: cannot be read: "), "{told}");
}

#[test]
fn a_directory_whose_parent_is_missing_is_not_made() {
    let place = Place::new();
    let directory = place.share.join("deep");
    let output = output(&["serve", utf8(&directory), "--state-directory", utf8(&place.state)]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("cannot create") && told.contains("does not exist"), "{told}");
    assert!(!place.share.exists());
}

#[test]
fn a_port_in_use_is_told_with_what_to_do() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = output(&[
        "serve",
        utf8(&place.share),
        "--listen",
        &address,
        "--no-rpcbind",
        "--state-directory",
        utf8(&place.state),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let last = told.lines().last().unwrap_or_default();
    assert!(last.contains(&format!("cannot listen on {address}")), "{told}");
    assert!(last.contains("set another port"), "{told}");
}

#[test]
fn a_congestion_control_that_there_is_not_is_told_with_what_to_do() {
    let place = Place::new();
    std::fs::create_dir(&place.share).expect("the share");
    let file = place.state.with_extension("toml");
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\nrpcbind = false\nstate_directory = {:?}\n\
         congestion_control = \"none-such\"\n[[share]]\npath = {:?}\nclients = [\"*\"]\n",
        utf8(&place.state),
        utf8(&place.share),
    );
    std::fs::write(&file, text).expect("the configuration");
    let output = output(&["serve", "--config", utf8(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let last = told.lines().last().unwrap_or_default();
    // The kernel says that it has none, or that only some may be had, if this is not run by root.
    assert!(last.contains("\"none-such\" (congestion_control in [server])"), "{told}");
    assert!(last.contains("choose one of"), "{told}");
}

#[test]
fn a_state_directory_in_use_is_told_with_the_process() {
    let place = Place::new();
    let _running = Running::start(&place, 0, &[utf8(&place.share)]);
    let output = output(&[
        "serve",
        utf8(&place.share),
        "--listen",
        "127.0.0.1:0",
        "--no-rpcbind",
        "--state-directory",
        utf8(&place.state),
    ]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("is in use by another server (process "), "{told}");
    assert!(told.contains("--state-directory"), "{told}");
}

#[test]
fn serving_with_a_bad_configuration_tells_all_mistakes() {
    let place = Place::new();
    let file = place.write("bad.toml", "[server]\nudpp = true\npools = 0\n");
    let output = output(&["serve", "--config", utf8(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    let file = utf8(&file);
    assert!(told.contains(&format!("{file}:2:1: unknown key \"udpp\"")), "{told}");
    assert!(told.contains(&format!("{file}:3:9: pools must be")), "{told}");
}

#[test]
fn a_configuration_without_shares_serves_nothing_until_one_is_added() {
    let place = Place::new();
    let file = place.write("empty.toml", "");
    let output = output(&["serve", "--no-rpcbind"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nothing to serve"), "{}", stderr(&output));
    let log = place.directory.path().join("log");
    let mut server = steadfast(&["serve", "--config", utf8(&file), "--listen", "127.0.0.1"])
        .args(["--port", "0", "--no-rpcbind", "--state-directory", utf8(&place.state)])
        .stderr(std::fs::File::create(&log).expect("a file"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the program starts");
    let begun = std::time::Instant::now();
    let told = || std::fs::read_to_string(&log).expect("a log");
    while !told().contains("nothing is shared yet: steadfast share add") {
        assert!(server.try_wait().expect("a status").is_none(), "{}", told());
        assert!(begun.elapsed() < common::PATIENCE, "{}", told());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("a signal");
    assert!(server.wait().expect("a status").success(), "{}", told());
}

#[test]
fn nobody_reading_what_is_printed_is_no_mistake() {
    let place = Place::new();
    // A pipe without a reader; the server ends since its port is in use.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = steadfast(&["serve", utf8(&place.share), "--listen", &address])
        .args(["--no-rpcbind", "--state-directory", utf8(&place.state)])
        .stdout(writer)
        .output()
        .expect("the program runs");
    assert!(place.share.is_dir());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));

    let share = utf8(&place.share);
    let file =
        place.write("good.toml", &format!("[[share]]\npath = {share:?}\nclients = [\"*\"]\n"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = steadfast(&["check-config", utf8(&file)]).stdout(writer).status();
    assert_eq!(status.expect("the program runs").code(), Some(0));
}
