//! Clients that are connected when shares change.
//!
//! Samba looks at the rules of a share when a client connects to it, and not again: one that is
//! connected keeps what it had, also of a share that is gone from the file. So those are cut off who
//! might have more than they have now. A client that may connects again by itself.

use std::collections::{BTreeMap, BTreeSet};

/// How many shares are named one by one: each costs a run of `smbcontrol`. When there are more, the
/// clients of all shares are cut off.
const NAMED_MAX: usize = 32;
/// All shares, as `smbcontrol` has it.
const ALL: &str = "*";

/// What is said of a share in a file that we made.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section<'a> {
    path: &'a str,
    is_read_only: bool,
    hosts: &'a str,
}

/// The shares of a file that we made, by name.
fn sections(text: &str) -> BTreeMap<&str, Section<'_>> {
    let mut sections = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name = Some(section);
        }
        let (Some(name), Some((key, value))) =
            (name, line.strip_prefix('\t').and_then(|line| line.split_once(" = ")))
        else {
            continue;
        };
        let section: &mut Section<'_> = sections.entry(name).or_default();
        match key {
            "path" => section.path = value,
            "read only" => section.is_read_only = value == "yes",
            "hosts allow" => section.hosts = value,
            _ => {}
        }
    }
    sections
}

impl Section<'_> {
    /// Whether nobody has less by another section than by this one.
    fn is_within(&self, other: &Self) -> bool {
        let has = |host: &str| other.hosts.split(' ').any(|word| word == host || word == "ALL");
        self.path == other.path
            && (self.is_read_only || !other.is_read_only)
            && self.hosts.split(' ').all(has)
    }
}

/// The shares whose clients have to be cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CutOff(BTreeSet<String>);

impl CutOff {
    /// Adds what a change of the file from one text to another asks for.
    pub(super) fn add(&mut self, before: &str, after: &str) {
        let after = sections(after);
        for (name, old) in sections(before) {
            if !after.get(name).is_some_and(|new| old.is_within(new)) {
                self.0.insert(name.to_owned());
            }
        }
    }

    /// What `smbd` is told, as words of `smbcontrol`. (`close-denied-share` asks about users, and not
    /// about hosts.)
    pub(super) fn messages(&self) -> Vec<[&str; 2]> {
        if self.0.len() > NAMED_MAX {
            return vec![["close-share", ALL]];
        }
        self.0.iter().map(|name| ["close-share", name.as_str()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, path: &str, read_only: &str, hosts: &str) -> String {
        format!(
            "\n[{name}]\n\tpath = {path}\n\tcomment = read only = x\n\tread only = {read_only}\n\
             \thosts allow = {hosts}\n\thosts deny = ALL\n"
        )
    }

    fn messages(before: &[String], after: &[String]) -> Vec<(String, String)> {
        let mut cut = CutOff::default();
        let (before, after) = (before.concat(), after.concat());
        cut.add(&format!("# a\n{before}"), &format!("# b\n{after}"));
        cut.messages().into_iter().map(|[what, name]| (what.to_owned(), name.to_owned())).collect()
    }

    #[test]
    fn who_might_have_more_than_he_has_now_is_cut_off() {
        let a = || section("a b", "/a", "no", "10.0.0.1");
        let said = |what: &str| vec![(what.to_owned(), "a b".to_owned())];
        assert_eq!(messages(&[a()], &[a()]), []);
        assert_eq!(messages(&[], &[a()]), []);
        assert_eq!(messages(&[a()], &[]), said("close-share"));
        assert_eq!(messages(&[a()], &[section("c", "/a", "no", "10.0.0.1")]), said("close-share"));
        let elsewhere = section("a b", "/b", "no", "10.0.0.1");
        assert_eq!(messages(&[a()], &[elsewhere]), said("close-share"));
        let read_only = || section("a b", "/a", "yes", "10.0.0.1");
        assert_eq!(messages(&[a()], &[read_only()]), said("close-share"));
        assert_eq!(messages(&[read_only()], &[a()]), []);
        for (hosts, is_less) in
            [("10.0.0.2", true), ("10.0.0.2 10.0.0.1", false), ("ALL", false), ("10.0.0.10", true)]
        {
            let others = section("a b", "/a", "no", hosts);
            let expected = if is_less { said("close-share") } else { Vec::new() };
            assert_eq!(messages(&[a()], &[others]), expected, "{hosts}");
        }
        let everybody = section("a b", "/a", "no", "ALL");
        assert_eq!(messages(&[everybody], &[a()]), said("close-share"));
    }

    #[test]
    fn many_are_cut_off_at_once() {
        let all: Vec<String> =
            (0..40).map(|n| section(&format!("s{n}"), &format!("/{n}"), "no", "ALL")).collect();
        let all_of = ("close-share".to_owned(), "*".to_owned());
        assert_eq!(messages(&all, &[]), [all_of]);
        assert_eq!(messages(&all, &all[32..]).len(), 32);
    }
}
