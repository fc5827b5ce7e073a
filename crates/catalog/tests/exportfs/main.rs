//! Property ring, against the real exportfs(8) of nfs-utils, where that is installed: what it refuses
//! is refused by import, and nobody gets more than its table gives him. Where import is stricter, a
//! row of `differences.txt` says why.
//!
//! `EXPORTFS_LINES=N` has that many lines made instead of 1500, `EXPORTFS_SEED=N` other ones.
// A failure here is a failure of the test.
#![allow(clippy::expect_used)]

mod etab;
mod lines;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use etab::{Entry, Given, HOSTS, Table};
use steadfast_catalog::Catalog;
use steadfast_catalog::exports::{Imported, import};
use steadfast_catalog::manage::{Batch, DefaultsSpec};
use steadfast_shares::{Decision, Flavor, Inherited, Question, Share, Squash};

/// From which addresses it is tried what they may do.
const PROBES: [&str; 11] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.7",
    "10.1.0.1",
    "10.1.2.3",
    "192.0.2.1",
    "198.51.100.1",
    "fd00::1",
    "fd00::2",
    "2001:db8:9:e54::1",
    "::1",
];

/// What exportfs said of a text.
struct Judged {
    is_refused: bool,
    said: String,
    table: Vec<Entry>,
}

/// A directory that goes when the test ends.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Has exportfs judge texts; nothing where it is not installed, or namespaces cannot be made.
fn judge(texts: &[String]) -> Option<Vec<Judged>> {
    let place =
        Place(std::env::temp_dir().join(format!("steadfast-exportfs-{}", std::process::id())));
    let inputs = place.0.join("in");
    std::fs::create_dir_all(&inputs).expect("a directory");
    for (number, text) in texts.iter().enumerate() {
        std::fs::write(inputs.join(format!("{number:06}")), text).expect("written");
    }
    let hosts: String = HOSTS
        .iter()
        .fold(String::new(), |text, (address, name)| text + address + " " + name + "\n");
    std::fs::write(place.0.join("hosts"), hosts).expect("written");
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new("unshare");
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    // Where the root is no mount point, its propagation cannot be changed, and need not be.
    let propagation = ["--propagation", "unchanged"];
    command.args(["--mount", "--net"]);
    if !Path::new("/proc/self/mountinfo").exists() || !is_mount_point("/") {
        command.args(propagation);
    }
    command.args(["sh", "-c", include_str!("judge.sh"), "judge"]).arg(&place.0);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let has_exportfs =
        ["/usr/sbin/exportfs", "/sbin/exportfs"].iter().any(|p| Path::new(p).exists());
    if !has_exportfs {
        println!("skipped: exportfs is not installed (apt-get install nfs-kernel-server)");
        return None;
    }
    let output = command.output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && said.contains("unshare:") {
        println!("skipped: no namespaces here: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let judged = (0..texts.len()).map(|number| {
        let read = |kind: &str| {
            let path = place.0.join("out").join(format!("{number:06}.{kind}"));
            String::from_utf8_lossy(&std::fs::read(path).expect("readable")).into_owned()
        };
        let said = read("err");
        // That a directory is missing, or two lines are about one client, keeps nothing from being
        // exported.
        let is_harmless = |line: &str| {
            line.trim().is_empty()
                || [
                    "Failed to stat",
                    ": No such file",
                    "is not a directory",
                    "duplicated export",
                    "\t",
                ]
                .iter()
                .any(|known| line.contains(known))
                || is_warning(line)
        };
        let has_failed = read("rc").trim() != "0";
        let is_refused = has_failed && !said.lines().all(is_harmless);
        Judged { is_refused, said, table: etab::read(&read("etab")) }
    });
    Some(judged.collect())
}

fn is_mount_point(path: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(path))
}

/// What exportfs says without failing.
fn is_warning(line: &str) -> bool {
    let known = [
        "Neither 'subtree_check'",
        "Assuming default behaviour",
        "NOTE: this default",
        "No host name given",
        "No options for",
        "Failed to resolve",
        "can't open /var/lib/nfs/etab for reading",
    ];
    known.iter().any(|known| line.contains(known))
}

fn resolve(path: &str) -> Option<String> {
    match path.strip_prefix("/mnt/link") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(format!("/mnt/a{rest}")),
        _ => None,
    }
}

fn shares(imported: &Imported) -> BTreeMap<String, Share> {
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    let batch = Batch { operations: imported.operations.clone(), ..Batch::default() };
    catalog.apply(&batch).expect("no mistakes");
    catalog.all_served().map(|share| (share.path.to_string(), Share::clone(share))).collect()
}

/// What a client gets of a share here.
fn given(
    share: Option<&Share>,
    client: IpAddr,
    flavor: Flavor,
    from_privileged_port: bool,
) -> Given {
    let Some(share) = share else { return Given::Nothing };
    let question = Question { client, flavor, from_privileged_port };
    let Decision::Granted(place) = share.rules.decide(&question, &Table) else {
        return Given::Nothing;
    };
    let rights = share.rules.grant(place).expect("a grant");
    Given::Rights {
        is_read_only: rights.is_read_only,
        squash: match rights.squash {
            Squash::None => 0,
            Squash::Root => 1,
            Squash::All => 2,
        },
        anonymous: (rights.squash != Squash::None)
            .then_some((rights.anonymous_uid, rights.anonymous_gid)),
        crosses_mounts: share.crosses_mounts,
        is_async: rights.is_async,
    }
}

/// How what is given here compares with what is given there.
fn compare(imported: &Imported, judged: &Judged) -> Result<bool, String> {
    let shares = shares(imported);
    let mut is_alike = true;
    let paths =
        shares.keys().map(String::as_str).chain(judged.table.iter().map(|e| e.path.as_str()));
    for path in paths.collect::<std::collections::BTreeSet<_>>() {
        let theirs_path = resolve(path).unwrap_or_else(|| path.to_owned());
        for client in PROBES {
            let client: IpAddr = client.parse().expect("an address");
            for flavor in [Flavor::None, Flavor::Sys] {
                for is_privileged in [true, false] {
                    let ours = given(shares.get(path), client, flavor, is_privileged);
                    let theirs =
                        etab::given(&judged.table, &theirs_path, client, flavor, is_privileged);
                    if !ours.is_within(&theirs) {
                        return Err(format!(
                            "{path} for {client} by {flavor:?}, privileged {is_privileged}: {ours:?}, \
                             there {theirs:?}"
                        ));
                    }
                    is_alike &= ours == theirs;
                }
            }
        }
    }
    Ok(is_alike)
}

/// Whether exportfs refuses a word that is not in its input: after a path without clients, with blanks
/// or a comment behind it, it reads as a client whatever its buffer held before.
fn names_what_was_not_given(text: &str, said: &str) -> bool {
    let keyword = said.split_once("unknown keyword \"").and_then(|(_, rest)| rest.split_once('"'));
    keyword.is_some_and(|(keyword, _)| !keyword.is_empty() && !text.contains(keyword))
}

#[test]
fn import_is_never_laxer_than_exportfs() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let corpus = include_str!("corpus.txt");
    let mut texts: Vec<String> = corpus.split("%%\n").map(str::to_owned).collect();
    let collected = texts.len();
    let count = number("EXPORTFS_LINES").unwrap_or(1500) as usize;
    texts.extend(lines::made(number("EXPORTFS_SEED").unwrap_or(1), count));
    let Some(judged) = judge(&texts) else { return };

    let differences: Vec<&str> = include_str!("differences.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').expect("a reason").0)
        .collect();
    let mut met = vec![false; differences.len()];
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (text, judged) in texts.iter().zip(&judged) {
        let imported = import(&[("x", text)], "g", true, &Inherited::default(), &resolve);
        let told: Vec<String> =
            imported.mistakes.iter().chain(&imported.warnings).map(ToString::to_string).collect();
        let complain = |what: String| {
            format!("{text:?}: {what}\n  said there: {}\n  here: {told:?}", judged.said)
        };
        let is_refused = !imported.mistakes.is_empty();
        let what = if judged.is_refused {
            if is_refused {
                "refused by both"
            } else if names_what_was_not_given(text, &judged.said) {
                "not defined there"
            } else {
                wrong.push(complain("exportfs refuses it".to_owned()));
                "more here"
            }
        } else if is_refused {
            "refused here"
        } else {
            match compare(&imported, judged) {
                Ok(true) => "alike",
                Ok(false) => "less here",
                Err(what) => {
                    wrong.push(complain(what));
                    "more here"
                }
            }
        };
        *counts.entry(what).or_default() += 1;
        if matches!(what, "refused here" | "less here") {
            // By which flavours high ports are let in depends on the kernel (`export_features`):
            // here by those alone of which it is said.
            let mut is_explained = text.contains("insecure") && text.contains("sec=");
            for (row, met) in differences.iter().zip(&mut met) {
                if told.iter().any(|told| told.contains(row.trim_start_matches('?'))) {
                    (is_explained, *met) = (true, true);
                }
            }
            if !is_explained {
                wrong.push(complain(format!("{what}, and no row says why")));
            }
        }
    }
    println!("{collected} collected, {count} made: {counts:?}");
    let unmet: Vec<_> = differences
        .iter()
        .zip(&met)
        .filter(|(row, met)| !**met && !row.starts_with('?'))
        .map(|(row, _)| row)
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), texts.len(), wrong.join("\n"));
    assert!(unmet.is_empty(), "rows that nothing needs: {unmet:?}");
    assert!(counts.get("alike").is_some_and(|alike| *alike > texts.len() / 10), "{counts:?}");
}
