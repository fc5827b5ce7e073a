//! Process ring: `steadfast tune` on a directory that stands for a machine, and for real on the settings of a
//! network of its own in `doctor.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::fs;
use std::path::Path;

use common::{stderr, steadfast, utf8};
use serde_json::Value;

/// A machine with 8 GiB and some settings.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/meminfo", "MemTotal: 8388608 kB\n"),
        ("proc/sys/net/core/rmem_max", "212992\n"),
        ("proc/sys/net/core/somaxconn", "65535\n"),
        ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t262144\n"),
        ("proc/sys/vm/dirty_background_ratio", "20\n"),
    ] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn tune(root: &Path, words: &[&str]) -> (i32, String, String) {
    let output = steadfast(&["tune", "--root", utf8(root)]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code().unwrap(), text, stderr(&output))
}

fn setting(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join("proc/sys").join(path)).unwrap().trim().to_owned()
}

#[test]
fn settings_are_listed_changed_and_put_back() {
    let machine = machine();
    let root = machine.path();
    let (status, text, _) = tune(root, &[]);
    assert_eq!(status, 0);
    assert!(
        text.contains("net.core.rmem_max: WORSE") && text.contains("net.core.somaxconn: good"),
        "{text}"
    );
    let (_, json, _) = tune(root, &["--list", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&json).unwrap();
    let one = listed.iter().find(|one| one["key"] == "vm.dirty_background_ratio").unwrap();
    assert_eq!((one["present"].as_str(), one["proposed"].as_str()), (Some("20"), Some("10")));
    assert_eq!(one["status"], "worse");

    let (status, text, _) = tune(root, &["--all", "--dry-run"]);
    assert!(status == 0 && text.contains("(not done)"), "{text}");
    assert_eq!(setting(root, "vm/dirty_background_ratio"), "20");
    let (status, text, told) = tune(root, &["--all"]);
    assert_eq!(status, 0, "{told}");
    assert!(text.contains("vm.dirty_background_ratio: 20 → 10\n"), "{text}");
    assert_eq!(setting(root, "vm/dirty_background_ratio"), "10");
    assert_eq!(setting(root, "net/core/somaxconn"), "65535");
    let lines = fs::read_to_string(root.join("etc/sysctl.d/60-steadfast.conf")).unwrap();
    assert!(lines.contains("vm.dirty_background_ratio = 10\n"), "{lines}");

    let (status, text, _) = tune(root, &["--undo"]);
    assert!(status == 0 && text.contains("vm.dirty_background_ratio: 10 → 20\n"), "{text}");
    assert_eq!(setting(root, "net/ipv4/tcp_rmem"), "4096\t131072\t262144");
    assert!(!root.join("etc/sysctl.d/60-steadfast.conf").exists());
    assert_eq!(tune(root, &["--undo"]).1, "nothing was changed by `steadfast tune`\n");
}

#[test]
fn what_cannot_be_set_is_refused_loudly() {
    let machine = machine();
    let root = machine.path();
    let (status, _, told) = tune(root, &["net.core.rmem_max", "net.core.wmem_max"]);
    assert!(status == 1 && told.contains("nothing was changed"), "{told}");
    assert_eq!(setting(root, "net/core/rmem_max"), "212992");
    let (status, _, told) = tune(root, &["kernel.panic"]);
    assert!(status == 1 && told.contains("--list"), "{told}");
    assert_eq!(tune(root, &["--all", "--undo"]).0, 2);
}
