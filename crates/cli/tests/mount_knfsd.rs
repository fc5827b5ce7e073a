//! Process ring: mounts with a journal of the kernel's NFS server, whose kernel crashes. What it has lost its write
//! verifier tells (docs/mount.md). The server is in a guest on a disk of its own: ending the guest takes all that it
//! had not written.
//!
//! `STEADFAST_CRASHES=N` is how often. They need user-mode-linux and nfs-kernel-server, and tell so where those are
//! missing; with `CI=true` they fail then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::async_share::wanted_crashes;
use common::knfsd::{self, ADDRESS, Knfsd, MOUNT_PORT, PORT, SHARE};
use common::mounts::{Mount, turn};
use common::network::Network;
use common::workers::{self, Kind, Workers};
use common::{Place, utf8};

/// A mount has what it has sent committed after 5 s, so it has not within this time.
const COMMITTED_AFTER: Duration = Duration::from_secs(4);

/// After so many crashes without a loss at the server something is wrong with the test.
const CRASHES_MAX: u64 = 10;

/// A process of this program that is a worker.
#[test]
fn worker() {
    workers::work();
}

struct Site {
    knfsd: Knfsd,
    network: Network,
    /// Last: what is in it is used by the others.
    place: Place,
}

impl Site {
    /// A server that serves nothing yet.
    fn new() -> Self {
        let (place, network) = (Place::new(), Network::new());
        let directory = place.directory.path().canonicalize().unwrap();
        let mut knfsd = Knfsd::new(&network, &directory);
        knfsd.start(&network);
        Self { knfsd, network, place }
    }

    /// The server's kernel dies, and it comes again.
    fn crash(&mut self) {
        self.knfsd.crash();
        self.knfsd.start(&self.network);
    }

    fn journal(&self) -> PathBuf {
        self.place.directory.path().canonicalize().unwrap().join("journal")
    }

    fn mount(&self, options: &str) -> Mount {
        let program = self.network.command(env!("CARGO_BIN_EXE_steadfast"));
        let options = format!("port={PORT},mountport={MOUNT_PORT},{options}");
        Mount::of(&self.place, program, "mount", &format!("{ADDRESS}:{SHARE}"), &options)
    }

    fn with_journal(&self, more: &str) -> Mount {
        self.mount(&format!("journal={}{more}", utf8(&self.journal())))
    }

    fn pending(&self) -> usize {
        steadfast_journal::care::look(&self.journal()).expect("a journal").pending.len()
    }
}

/// A guest takes seconds to start: once is enough where nobody wants more.
fn crashes() -> u64 {
    wanted_crashes().unwrap_or(1)
}

#[test]
fn changes_go_on_while_the_kernels_server_crashes() {
    let Some(_turn) = turn() else { return };
    if !knfsd::is_there() {
        return;
    }
    let mut site = Site::new();
    let mount = site.with_journal(",nconnect=2,timeo=50");
    let local = tempfile::tempdir().unwrap();
    let mut workers = Workers::start_as(local.path(), &[&mount.at], 3, Kind::Forgotten);
    workers.await_steps(3, "at the beginning");
    let mut pending = 0;
    for crash in 0..crashes() {
        workers.await_steps(40 + 7 * (crash % 13), &format!("crash {crash}"));
        pending += site.pending();
        site.crash();
    }
    assert!(pending > 0, "the journal has held nothing when the server crashed");
    workers.await_steps(40, "after the last crash");
    let steps = workers.steps();
    let ideals = workers.finish();
    mount.unmount();
    assert_eq!(site.pending(), 0);
    assert!(!site.journal().join("conflicts").exists(), "nobody else has changed anything");
    // All data is stable.
    site.knfsd.crash();
    site.knfsd.with_disk(|disk| {
        for ideal in &ideals {
            let name = ideal.file_name().unwrap();
            let differences = workers::differences(&disk.join(name), ideal);
            assert!(differences.is_empty(), "{}: {differences:#?}", name.display());
        }
    });
    println!(
        "{} crashes of the kernel's server: {steps} changes, {pending} of them in the journal at a crash",
        crashes()
    );
}

fn write_and_sync(from: &Path, to: &Path) {
    let words = ["bs=64k", "conv=notrunc,fsync", "status=none"];
    let (from, to) = (format!("if={}", utf8(from)), format!("of={}", utf8(to)));
    let output = Command::new("dd").args(words).args([from, to]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The next mount sends what fsync has promised. Without its journal the promise is broken: so what is seen here is
/// no accident.
#[test]
fn what_fsync_has_promised_is_there_though_client_and_the_kernels_server_crash_together() {
    let Some(_turn) = turn() else { return };
    if !knfsd::is_there() {
        return;
    }
    let mut site = Site::new();
    let data = site.place.directory.path().join("data");
    fs::write(&data, vec![b'o'; 200_000]).unwrap();
    let mount = site.with_journal("");
    write_and_sync(&data, &mount.path("file"));
    mount.unmount();
    let (mut seen, mut crash) = (0, 0);
    // On a busy machine the server's disk may have it all now and then.
    while crash < crashes() || seen == 0 && crash < CRASHES_MAX {
        let mount = site.with_journal("");
        let old = fs::read(mount.path("file")).unwrap();
        let new = vec![b'A' + (crash % 26) as u8; 200_000];
        fs::write(&data, &new).unwrap();
        let begun = Instant::now();
        write_and_sync(&data, &mount.path("file"));
        let pending = site.pending();
        mount.kill();
        // Later the mount commits by itself.
        let is_early = begun.elapsed() < COMMITTED_AFTER;
        assert!(pending > 0 || !is_early, "fsync has not waited for the server's disk");
        site.knfsd.crash();
        // A part may be there: the mount has a byte of the file committed to ask for the verifier.
        let kept = site.knfsd.with_disk(|disk| fs::read(disk.join("file")).unwrap());
        assert!(kept.iter().all(|byte| [old[0], new[0]].contains(byte)), "crash {crash}");
        seen += u64::from(kept != new);
        site.knfsd.start(&site.network);
        let mount = site.with_journal("");
        assert!(fs::read(mount.path("file")).unwrap() == new, "crash {crash}");
        mount.unmount();
        assert_eq!(site.pending(), 0);
        site.knfsd.crash();
        let kept = site.knfsd.with_disk(|disk| fs::read(disk.join("file")).unwrap());
        assert!(kept == new, "on the server's disk, after crash {crash}");
        site.knfsd.start(&site.network);
        crash += 1;
    }
    assert!(seen > 0, "the server has never lost anything");
    println!(
        "{crash} crashes of the kernel's server and its client, {seen} early enough that the server had lost something: \
         nothing promised is lost"
    );
}
