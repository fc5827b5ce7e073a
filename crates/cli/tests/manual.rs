//! Process ring: the man pages that the program writes, as mandoc checks them. Without mandoc the test tells so and
//! passes, but not with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::Command;

use common::{output, stderr, utf8};

#[test]
fn a_checker_of_man_pages_finds_nothing_to_warn_of() {
    let has_checker =
        Command::new("mandoc").arg("-T").arg("lint").arg("/dev/null").output().is_ok();
    let must = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(has_checker || !must, "CI must have mandoc");
    if !has_checker {
        println!("skipped: needs mandoc");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let written = output(&["man", utf8(place.path())]);
    assert!(written.status.success(), "{}", stderr(&written));
    let mut pages: Vec<_> =
        place.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 60, "{pages:?}");
    let check = |pages: &[std::path::PathBuf]| {
        let mut checker = Command::new("mandoc");
        let checked = checker.args(["-T", "lint", "-W", "warning"]).args(pages);
        let checked = checked.output().unwrap();
        String::from_utf8_lossy(&checked.stdout).into_owned() + &stderr(&checked)
    };
    assert_eq!(check(&pages), "");
    // It would find something.
    let broken = place.path().join("broken.1");
    std::fs::write(&broken, ".TH broken\n.XX what\n").unwrap();
    assert_ne!(check(&[broken]), "");
}
