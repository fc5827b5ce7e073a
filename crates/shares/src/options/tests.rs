use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{ALWAYS_SO, ShareOptions, WORDS};
use crate::rights::{Flavors, Rights, Squash};

fn all(words: &[&str]) -> ShareOptions {
    let (options, errors) = ShareOptions::default().with(words);
    assert_eq!(errors, [], "{words:?}");
    options
}

fn mistake(words: &[&str]) -> (usize, String) {
    let (_, errors) = ShareOptions::default().with(words);
    let [(index, error)] = errors.as_slice() else { panic!("{words:?}: {errors:?}") };
    (*index, error.what.clone())
}

fn one(words: &[&str]) -> Rights {
    let grants = all(words).grants();
    let [rights] = &*grants else { panic!("{words:?}: {grants:?}") };
    rights.clone()
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(*ShareOptions::default().grants(), [Rights::default()]);
}

#[test]
fn squashing_everybody_includes_root() {
    assert_eq!(one(&["no_root_squash"]).squash, Squash::None);
    assert_eq!(one(&["no_root_squash", "all_squash"]).squash, Squash::All);
    let outer = all(&["all_squash"]);
    assert_eq!(outer.with(&["no_all_squash"]).0.grants()[0].squash, Squash::Root);
}

#[test]
fn values_are_read() {
    let options = all(&["ro", "anonuid=1000", "anongid=1001", "crossmnt", "sync"]);
    assert!(options.access.is_read_only && options.crosses_mounts);
    let access = options.access;
    assert_eq!((access.anonymous_uid, access.anonymous_gid), (1000, 1001));
    let rights = one(&["secure", "manage_gids"]);
    assert!(rights.needs_privileged_port && rights.looks_up_groups);
    assert_eq!(all(&["none"]).grants().len(), 0);
}

#[test]
fn async_holds_until_sync_is_said() {
    assert!(!one(&[]).is_async && !one(&["sync"]).is_async && one(&["async"]).is_async);
    let outer = all(&["async", "subtree_check"]);
    assert!(outer.with(&["ro"]).0.grants()[0].is_async);
    assert!(!outer.with(&["sync"]).0.grants()[0].is_async);
    let options = all(&["async", "sec=sys", "sync", "sec=none"]);
    let is_async: Vec<_> = options.grants().iter().map(|rights| rights.is_async).collect();
    assert_eq!(is_async, [false, true]);
}

#[test]
fn words_after_a_flavour_are_for_it_alone() {
    let options = all(&["no_root_squash", "sec=sys:none", "ro", "sec=krb5p", "rw", "root_squash"]);
    let grants = options.grants();
    assert_eq!(grants[0].flavors, Flavors::SYS | Flavors::NONE);
    assert!(grants[0].is_read_only && grants[0].squash == Squash::None);
    assert_eq!(grants[1].flavors, Flavors::KRB5P);
    assert!(!grants[1].is_read_only && grants[1].squash == Squash::Root);
    assert_eq!(one(&["sec=sys"]).flavors, Flavors::SYS);
    // A list without flavours changes all that it inherits, one with them replaces them.
    let (inner, _) = options.with(&["all_squash"]);
    assert!(inner.grants().iter().all(|rights| rights.squash == Squash::All));
    let (inner, _) = options.with(&["sec=sys"]);
    assert_eq!(inner.grants().len(), 1);
    assert!(!inner.grants()[0].is_read_only);
}

#[test]
fn flavours_that_are_not_served_need_one_that_is() {
    let (index, what) = mistake(&["ro", "sec=krb5:krb5i"]);
    assert!(index == 1 && what.contains("not served yet"), "{what}");
    all(&["sec=krb5:sys"]);
    let (_, what) = mistake(&["sec=sys", "sec=krb5:sys"]);
    assert!(what.contains("sys again"), "{what}");
    let (_, errors) = ShareOptions::default().with(&["sec=krb5q"]);
    assert_eq!(errors[0].1.suggestion.as_deref(), Some("krb5"));
    assert_eq!(mistake(&["sec"]).0, 0);
}

#[test]
fn options_may_name_clients() {
    let lists = all(&["rw=a.example:@10.0.0.0/8:.cs.example", "ro=@staff:[fd00::1]"]).lists;
    let shown: Vec<_> = lists.access.iter().map(|(p, ro)| (p.to_string(), *ro)).collect();
    let expected = [
        ("a.example", false),
        ("10.0.0.0/8", false),
        ("*.cs.example", false),
        ("@staff", true),
        ("fd00::1", true),
    ];
    assert_eq!(shown, expected.map(|(text, ro)| (text.to_owned(), ro)));
    let lists = all(&["root=admin.example", "none=10.1.1.1"]).lists;
    assert_eq!((lists.root.len(), lists.none.len(), lists.access.len()), (1, 1, 0));
    assert!(mistake(&["sec=sys", "rw=a.example"]).1.contains("write a rule"));
    assert!(mistake(&["rw=a..b"]).1.contains("in the list"));
    // What only begins as an address does is a netgroup, and what has brackets is no host.
    let lists = all(&["none=@bad.hosts:@10.net:[::1]:@[fd00::]/8", "ro=[10.0.0.1]"]).lists;
    let none: Vec<_> = lists.none.iter().map(ToString::to_string).collect();
    assert_eq!(none, ["@bad.hosts", "@10.net", "::1", "fd00::/8"]);
    assert_eq!(lists.access[0].0.to_string(), "10.0.0.1");
    for word in ["rw=h[ab].x", "none=@h[ab]", "none=@192.168", "none=@10.0.0.1/8"] {
        assert!(mistake(&[word]).1.contains("in the list"), "{word}");
    }
}

#[test]
fn an_anonymous_id_that_the_kernel_would_ignore_is_refused() {
    for word in ["anonuid=4294967295", "anongid=-1", "anonuid=", "anonuid=x", "anonuid"] {
        let (options, errors) = ShareOptions::default().with(&[word]);
        assert_eq!((options, errors.len()), (ShareOptions::default(), 1), "{word}");
    }
}

#[test]
fn what_is_not_served_is_explained() {
    assert!(mistake(&["fsid=0"]).1.contains("id = NUMBER"));
    let (_, errors) = ShareOptions::default().with(&["rot_squash"]);
    assert_eq!(errors[0].1.suggestion.as_deref(), Some("root_squash"));
}

#[test]
fn the_documentation_has_each_word_and_no_other() {
    let document = include_str!("../../../../docs/shares.md");
    let table = document.split("\n### Options\n").nth(1).expect("the chapter");
    let table = table.split("\n### ").next().expect("its end");
    let cells = table.lines().filter(|line| line.starts_with("| `"));
    let cells = cells.filter_map(|line| line.split(" | ").next());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let documented: BTreeSet<String> = words
        .map(|word| word.split_once('=').map_or(word.to_owned(), |(name, _)| format!("{name}=")))
        .collect();
    let known = WORDS.into_iter().chain(ALWAYS_SO).map(str::to_owned);
    assert_eq!(documented, known.collect::<BTreeSet<_>>());
}

#[test]
fn contradictions_are_refused_and_repetitions_are_not() {
    all(&["rw", "rw", "anonuid=1", "anongid=2"]);
    for words in [
        &["rw", "ro"][..],
        &["sync", "async"],
        &["anonuid=1", "anonuid=2"],
        &["secure", "sec=sys", "rw", "none"],
    ] {
        assert_eq!(mistake(words).0, words.len() - 1);
    }
    all(&["rw", "sec=sys", "ro"]);
}

#[test]
fn mounts_that_a_share_needs_are_paths() {
    let mounts = |words: &[&str]| -> Vec<String> {
        all(words).required_mounts.iter().map(ToString::to_string).collect()
    };
    assert_eq!(mounts(&["mp", "mountpoint", "mp=/a", "mountpoint=/b", "mp=/a"]), ["", "/a", "/b"]);
    for word in ["mp=", "mountpoint=a", "mp=./a"] {
        assert!(mistake(&[word]).1.contains("absolute path"), "{word}");
    }
}

#[test]
fn a_size_is_inherited_replaced_and_taken_back() {
    let size = |outer: &[&str], inner: &[&str]| {
        let (options, errors) = all(outer).with(inner);
        assert_eq!(errors, [], "{inner:?}");
        options.size.map(crate::size::Size::bytes)
    };
    assert_eq!(size(&[], &["size=10G"]), Some(10 << 30));
    assert_eq!(size(&["size=10G"], &["ro"]), Some(10 << 30));
    assert_eq!(size(&["size=10G"], &["size=500M"]), Some(500 << 20));
    assert_eq!(size(&["size=10G"], &["size=none"]), None);
    for (words, part) in [
        (&["size=1G", "size=2G"][..], "contradicts"),
        (&["size=1G", "size=none"], "contradicts"),
        (&["size=1G", "sec=sys", "size=2G"], "contradicts"),
        (&["size"], "a number of bytes"),
        (&["size="], "a number of bytes"),
        (&["size=10GB"], "no unit"),
        (&["size=1K"], "at least 1M"),
    ] {
        assert!(mistake(words).1.contains(part), "{words:?}: {}", mistake(words).1);
    }
}

fn words() -> impl Strategy<Value = Vec<&'static str>> {
    let word = prop::sample::select(vec![
        "rw",
        "ro",
        "none",
        "sync",
        "async",
        "root_squash",
        "no_root_squash",
        "all_squash",
        "no_all_squash",
        "anonuid=1",
        "anonuid=2",
        "anongid=3",
        "secure",
        "insecure",
        "manage_gids",
        "no_manage_gids",
        "crossmnt",
        "nocrossmnt",
        "mp",
        "mountpoint=/a",
        "size=1G",
        "size=3M",
        "size=none",
        "sec=sys",
        "sec=krb5",
        "sec=none:krb5p",
    ]);
    prop::collection::vec(word, 0..8)
}

proptest! {
    /// What is told in words is read again as the same.
    #[test]
    fn words_make_the_options_they_tell(outer in words(), inner in words()) {
        let (base, errors) = ShareOptions::default().with(&outer);
        prop_assume!(errors.is_empty());
        let (options, errors) = base.with(&inner);
        prop_assume!(errors.is_empty());
        let (again, errors) = base.with(&options.words(&base));
        prop_assert_eq!(errors, []);
        prop_assert_eq!(again.grants(), options.grants());
        prop_assert_eq!(again.crosses_mounts, options.crosses_mounts);
        prop_assert_eq!(&again.required_mounts, &options.required_mounts);
        prop_assert_eq!(again.size, options.size);
    }
}
