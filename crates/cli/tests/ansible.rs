//! Process ring: `examples/ansible` with the real `ansible-playbook` and the real server. Without it (Debian:
//! ansible-core) the test tells so and passes, but not with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Place, Running, output, utf8};
use serde_json::{Value, json};

fn is_there() -> bool {
    let is_there = Command::new("ansible-playbook").arg("--version").output().is_ok();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(is_there || !must, "CI must have ansible-playbook: install the package ansible-core");
    if !is_there {
        println!("skipped: needs ansible-core");
    }
    is_there
}

/// Runs the playbook of the example, and returns how many of its tasks changed something.
fn play(place: &Place, directory: &Path, more: &[&str]) -> u32 {
    let variables = json!({
        "steadfast_become": false,
        "steadfast": env!("CARGO_BIN_EXE_steadfast"),
        "steadfast_options": ["--state-directory", place.state],
        "steadfast_directories": [directory.join("projects"), directory.join("media")],
    });
    let done = Command::new("ansible-playbook")
        .args(["--inventory", "localhost,", "--connection", "local", "--extra-vars"])
        .arg(variables.to_string())
        .args(more)
        .arg(directory.join("shares.yaml"))
        .env("HOME", directory)
        .env("ANSIBLE_NOCOLOR", "1")
        .output()
        .expect("ansible-playbook starts");
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{told}\n{}", String::from_utf8_lossy(&done.stderr));
    let recap = told.lines().find(|line| line.contains("changed=")).expect("a recap");
    let changed = recap.split("changed=").nth(1).unwrap().split(' ').next().unwrap();
    changed.parse().expect("a number")
}

fn shares(place: &Place) -> Vec<(String, Value)> {
    let listed = output(&["share", "list", "--json", "--state-directory", utf8(&place.state)]);
    let lines = String::from_utf8(listed.stdout).unwrap();
    let shares = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    shares
        .filter(|share| share["group"] == "work")
        .map(|share| (share["path"].as_str().unwrap().to_owned(), share["options"].clone()))
        .collect()
}

#[test]
fn the_playbook_changes_what_is_not_so_and_nothing_else() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    let _running = Running::start(&place, 0, &[utf8(&place.share), "--no-intent-log"]);
    let directory = place.directory.path().canonicalize().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ansible");
    std::fs::copy(example.join("shares.yaml"), directory.join("shares.yaml")).unwrap();
    let wanted = std::fs::read_to_string(example.join("wanted.toml")).unwrap();
    let wanted = wanted.replace("/srv/", &format!("{}/", utf8(&directory)));
    place.write("wanted.toml", &wanted);

    assert!(play(&place, &directory, &[]) > 0);
    let served = shares(&place);
    let paths: Vec<_> = served.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["media", "projects"]);
    assert_eq!(play(&place, &directory, &[]), 0, "the same again changes nothing");

    // A change is told with --check, made without, and not made again.
    place.write("wanted.toml", &wanted.replace("\"ro\"", "\"ro\", \"all_squash\""));
    assert!(play(&place, &directory, &["--check"]) > 0);
    assert_eq!(shares(&place), served, "--check changes no share");
    assert!(play(&place, &directory, &[]) > 0);
    assert_ne!(shares(&place), served);
    assert_eq!(play(&place, &directory, &[]), 0);
}
