//! Networks of a test's own, with cables that can be pulled. They are gone when the test's process is, with what
//! runs in them.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::async_share::run;

/// A network namespace, which a process keeps. That ends when this one does.
pub struct Network {
    keeper: Child,
}

impl Network {
    pub fn new() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let network = Self { keeper: command.spawn().expect("unshare runs") };
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        let begun = Instant::now();
        while fs::read_link(network.path()).is_ok_and(|it| it == ours) {
            assert!(begun.elapsed() < PATIENCE, "no network of its own");
            std::thread::sleep(Duration::from_millis(1));
        }
        network.ip("link set lo up");
        network
    }

    /// What nsenter(1) takes.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }

    /// A command that runs a program in it, as the process that is started. It is killed when the thread ends that
    /// has started it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        let net = format!("--net={}", self.path().display());
        command.args(["--pdeathsig", "KILL", "nsenter", &net, program]);
        command
    }

    /// Does something on a thread that is in it.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let network = fs::File::open(self.path()).unwrap();
        std::thread::scope(|scope| {
            let inside = || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(network.as_fd(), kind).unwrap();
                act()
            };
            scope.spawn(inside).join().unwrap()
        })
    }

    /// A script that runs a program in it.
    pub fn script(&self, program: &str) -> String {
        let net = self.path().display().to_string();
        format!("#!/bin/sh\nexec setpriv --pdeathsig KILL nsenter --net={net} {program} \"$@\"\n")
    }

    /// ip(8) in it.
    pub fn ip(&self, words: &str) {
        let net = format!("--net={}", self.path().display());
        let words: Vec<&str> = [&net, "ip"].into_iter().chain(words.split(' ')).collect();
        run("nsenter", &words);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// Where a server is reached that is at the other end of a cable.
pub const FAR: &str = "10.78.0.2";

/// Two networks with a cable between them.
pub struct Cable {
    pub near: Network,
    pub far: Network,
}

impl Cable {
    pub fn new() -> Self {
        let (near, far) = (Network::new(), Network::new());
        near.ip(&format!("link add cable type veth peer name cable netns {}", far.keeper.id()));
        near.ip("addr add 10.78.0.1/24 dev cable");
        far.ip(&format!("addr add {FAR}/24 dev cable"));
        let cable = Self { near, far };
        cable.plug();
        cable
    }

    /// Pulls it out, at the far end (what is sent is lost) or at the near one (there is no way to the server).
    pub fn pull(&self, at_near_end: bool) {
        let end = if at_near_end { &self.near } else { &self.far };
        end.ip("link set cable down");
    }

    /// Plugs both ends in.
    pub fn plug(&self) {
        self.near.ip("link set cable up");
        self.far.ip("link set cable up");
    }
}
