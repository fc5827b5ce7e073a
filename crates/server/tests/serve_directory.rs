//! Process ring: the example that serves a directory, used by a client and interrupted.
#![allow(clippy::expect_used)] // A failure here is a failure of the test.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use steadfast_client::{CreateHow3, Identity, Nfs3Client, Settings, StableHow};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where cargo puts examples, seen from a test.
fn example() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let built = test.parent().and_then(|deps| deps.parent()).expect("a directory");
    built.join("examples/serve_directory")
}

#[test]
fn the_example_serves_a_directory_until_it_is_interrupted() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().canonicalize().expect("a path");
    let share = path.join("share");
    std::fs::create_dir(&share).expect("made");
    std::fs::set_permissions(&share, std::fs::Permissions::from_mode(0o777)).expect("a mode");
    let mut command = Command::new(example());
    let child = command.arg(&share).arg(path.join("state")).stdout(Stdio::piped()).spawn();
    let mut running = Running(child.expect("cargo build --examples has made it"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    // `mount -t nfs -o port=N 127.0.0.1:PATH /mnt`
    let port = line.split([',', ' ']).find_map(|word| word.strip_prefix("port="));
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port in the line");
    let address = ([127, 0, 0, 1], port).into();

    let (bytes, identity) = (share.as_os_str().as_encoded_bytes(), Identity::user(1000, 1000));
    let (mut client, root) =
        Nfs3Client::mount(address, address, bytes, identity, PATIENCE).expect("mounted");
    let how = CreateHow3::Guarded(Settings::default().0);
    let file = client.create(&root, b"file", &how).expect("created").handle.expect("a handle");
    client.write(&file, 0, b"steadfast", StableHow::FileSync).expect("written");
    assert_eq!(std::fs::read(share.join("file")).expect("read"), b"steadfast");
    drop(client);

    let pid = Pid::from_child(&running.0);
    kill_process(pid, Signal::INT).expect("told");
    let status = running.0.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
