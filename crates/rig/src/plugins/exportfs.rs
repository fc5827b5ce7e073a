//! What exportfs has of it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::site::{EXPORTS, Site};
use super::{Checks, same};
use crate::namespace::run;

/// Options by path and client.
type Table = BTreeMap<(String, String), Vec<String>>;

/// The rules as exportfs has them, from `exportfs -s`: `PATH  CLIENT(OPTION,...)`.
fn exported() -> Result<Table> {
    let text = run("exportfs", &["-s"])?;
    let line = |line: &str| {
        let (path, rest) = line.split_once(char::is_whitespace)?;
        let (client, options) = rest.trim().strip_suffix(')')?.split_once('(')?;
        let options = options.split(',').map(str::to_owned).collect();
        Some(((unescaped(path), client.to_owned()), options))
    };
    text.lines().map(|one| line(one).with_context(|| format!("not understood: {one:?}"))).collect()
}

/// A word whose odd characters are written by their octal numbers.
fn unescaped(word: &str) -> String {
    let mut bytes = Vec::new();
    let mut parts = word.split('\\');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                bytes.push(code);
                bytes.extend_from_slice(part.get(3..).unwrap_or_default().as_bytes());
            }
            None => bytes.extend_from_slice(format!("\\{part}").as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Which clients have which paths.
fn clients(of: &Table) -> Vec<(&str, &str)> {
    of.keys().map(|(path, client)| (path.as_str(), client.as_str())).collect()
}

/// That the rules are for just these, and that `words` are among the options of each.
fn has(expected: &[(&str, &str, &[&str])]) -> Result<()> {
    let table = exported()?;
    let mut wanted: Vec<_> = expected.iter().map(|(path, client, _)| (*path, *client)).collect();
    wanted.sort_unstable();
    same(&clients(&table), &wanted)?;
    for (path, client, words) in expected {
        let options = table.get(&((*path).to_owned(), (*client).to_owned()));
        let options = options.context("it was there")?;
        for word in *words {
            if !options.iter().any(|option| option == word) {
                bail!("{path} {client}: {word} is not among {options:?}");
            }
        }
    }
    Ok(())
}

pub(super) fn check(site: &Site, checks: &mut Checks) -> Result<()> {
    let (one, two) = (Site::directory("exported")?, Site::directory("with space")?);
    let kernel = ["--protocol", "exportfs"];
    Site::calls_of("exportfs")?;
    let rules = ["-c", "10.1.0.0/16", "--rule", "10.1.2.3:rw,no_root_squash", "-o", "ro"];
    let added = site.batch(&[&["share", "add", &one][..], &kernel, &rules].concat());
    checks.now("exportfs: a share is added without a fault", added.map(drop));
    checks.now("exportfs: it has the rules that are served, and no others", {
        has(&[
            (&one, "10.1.0.0/16", &["ro", "root_squash", "sync", "no_subtree_check", "sec=sys"]),
            (&one, "10.1.2.3", &["rw", "no_root_squash", "sync"]),
        ])
    });
    checks.now("exportfs: one call a batch", same(&Site::calls_of("exportfs")?.len(), &1));

    let words = ["-c", "*.example.org", "-o", "rw,all_squash,anonuid=1000,anongid=1001"];
    let added = site.batch(&[&["share", "add", &two][..], &kernel, &words].concat());
    checks.now("exportfs: a path with a blank, and a wildcard, are taken", added.map(drop));
    let of_two: &[&str] = &["rw", "all_squash", "anonuid=1000", "anongid=1001"];
    checks.now("exportfs: they are what was said", {
        has(&[
            (&one, "10.1.0.0/16", &["ro"]),
            (&one, "10.1.2.3", &["rw"]),
            (&two, "*.example.org", of_two),
        ])
    });

    let set = site.batch(&["share", "set", &one, "-c", "10.9.0.0/16", "-o", "rw"]);
    checks.now("exportfs: a share is changed without a fault", set.map(drop));
    let table = exported()?;
    checks.now("exportfs: who is let in no more is gone from it", {
        let of_one: Vec<_> = clients(&table).into_iter().filter(|(path, _)| *path == one).collect();
        same(&of_one, &vec![(one.as_str(), "10.1.2.3"), (one.as_str(), "10.9.0.0/16")])
    });

    Site::calls_of("exportfs")?;
    let removed = site.batch(&["share", "disable", &one]);
    checks.now("exportfs: a share is disabled without a fault", removed.map(drop));
    checks.now("exportfs: a disabled share is gone, the other stays", {
        same(&exported()?.len(), &1)
    });
    let back = site.batch(&["share", "enable", &one]);
    checks.now("exportfs: it comes back when it is enabled", {
        back.and_then(|_| same(&exported()?.len(), &3))
    });
    let removed = site.batch(&["share", "remove", &one, &two]);
    checks.now("exportfs: two shares go in one batch", removed.map(drop));
    checks.now("exportfs: nothing of them is left", same(&exported()?.len(), &0));
    checks.now("exportfs: one call a batch, again", same(&Site::calls_of("exportfs")?.len(), &3));
    let text = std::fs::read_to_string(EXPORTS).context(EXPORTS)?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    checks.now("exportfs: its file is empty", same(&lines, &0));

    // Characters that mean something in its file, and clients of all kinds.
    let odd = ["hash # mark", "quo\"te", "back\\slash", "(brackets)", "Übung", "-dash", "a,b=c"];
    let clients = ["fd88::/64", "fd88::7", "10.3.0.0/17", "@staff", "one.steadfast.test"];
    for (number, name) in odd.into_iter().enumerate() {
        let path = Site::directory(name)?;
        let client = clients.get(number % clients.len()).copied().unwrap_or("*");
        let words = ["share", "add", &path, "-c", client];
        let added = site.batch(&[&words[..], &kernel].concat());
        checks.now(&format!("exportfs: {name:?} for {client} is what was said"), {
            added.and_then(|_| has(&[(&path, client, &["rw", "root_squash"])]))
        });
        site.tell(&["share", "remove", &path, "--wait"])?;
    }

    // What exports(5) cannot say is not served by the kernel, where it might be to others.
    let three = Site::directory("denied-there")?;
    let rules = ["-c", "10.0.0.0/8", "--rule", "10.1.0.0/16:none"];
    let told = site.tell(&[&["share", "add", &three, "--wait"][..], &kernel, &rules].concat())?;
    checks.now("exportfs: a rule that it cannot have is told as a fault", {
        if told.contains("has no access") { Ok(()) } else { Err(anyhow::anyhow!("{told}")) }
    });
    checks.now("exportfs: and the share is not exported", same(&exported()?.len(), &0));
    site.batch(&["share", "remove", &three])?;
    Ok(())
}
