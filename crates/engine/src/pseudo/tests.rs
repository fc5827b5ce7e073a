use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use steadfast_shares::{ClientRule, Decision, Refusal, Rights};

use super::*;

const RULE_SETS: usize = 3;

/// The rule set of this number, never the same one twice.
fn rules(number: usize) -> Arc<RuleSet> {
    let rule = ClientRule {
        pattern: format!("10.0.{number}.0/24").parse().expect("a pattern"),
        grants: Arc::new([Rights::default()]),
    };
    Arc::new(RuleSet::new(vec![rule]))
}

fn number_of(rules: &RuleSet) -> usize {
    let is_it = |number: &usize| *rules == *self::rules(*number);
    (0..RULE_SETS).find(is_it).expect("a known set")
}

/// Shares by path, with the numbers of their rule sets.
type Model = BTreeMap<String, (u64, usize)>;

/// All directories of a model: each with the rule sets at or beneath it, and the names in it.
fn directories(model: &Model) -> BTreeMap<String, (BTreeSet<usize>, BTreeSet<String>)> {
    let mut all =
        BTreeMap::from([("/".to_owned(), <(BTreeSet<usize>, BTreeSet<String>)>::default())]);
    for (path, (_, rules)) in model {
        all.entry("/".to_owned()).or_default().0.insert(*rules);
        let mut parent = "/".to_owned();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let child = format!("{}/{name}", parent.trim_end_matches('/'));
            all.entry(parent).or_default().1.insert(name.to_owned());
            all.entry(child.clone()).or_default().0.insert(*rules);
            parent = child;
        }
    }
    all
}

/// Asserts that a tree is what the model says.
fn check(tree: &PseudoTree, model: &Model) {
    let mut left = vec![tree.root()];
    let mut seen = BTreeMap::new();
    let mut keys = HashSet::new();
    while let Some(node) = left.pop() {
        let path = String::from_utf8(node.path().to_vec()).expect("text");
        assert!(keys.insert(node.key()) && node.fileid() > 0);
        assert!(std::ptr::eq(tree.node(&node.key()).expect("by key"), node));
        assert!(std::ptr::eq(tree.at(node.path()).expect("by path"), node));
        let share = model.get(&path).map(|(share, _)| ShareId(*share));
        assert_eq!(node.share(), share, "{path}");
        let mut last = 2;
        let mut names = BTreeSet::new();
        for (cookie, child) in tree.children_after(node, 0) {
            assert!(cookie > last && cookie < 1 << 63);
            last = cookie;
            let name = String::from_utf8(child.name().to_vec()).expect("text");
            assert!(std::ptr::eq(tree.child(node, child.name()).expect("by name"), child));
            assert!(std::ptr::eq(tree.parent(child).expect("its parent"), node));
            names.insert(name);
            left.push(child);
        }
        assert_eq!(node.links() as usize, names.len() + 2);
        assert_eq!(node.has_children(), !names.is_empty());
        // Whoever may see it for each of all answers that there are for the rule sets.
        let mut asked = Vec::new();
        assert!(!node.is_visible(|rules| {
            asked.push(number_of(rules));
            Decision::Refused(Refusal::Client)
        }));
        let rules: BTreeSet<_> = asked.iter().copied().collect();
        assert_eq!(rules.len(), asked.len(), "each is asked once");
        for number in 0..RULE_SETS {
            for decision in [Decision::Granted(0), Decision::Pending] {
                let is_visible = node.is_visible(|rules| match number_of(rules) {
                    it if it == number => decision,
                    _ => Decision::Refused(Refusal::Flavor),
                });
                assert_eq!(is_visible, rules.contains(&number));
            }
        }
        seen.insert(path, (rules, names));
    }
    assert!(tree.parent(tree.root()).is_none() && tree.root().name().is_empty());
    assert_eq!(seen, directories(model));
}

/// A directory's children, each with the rule sets that decide who may see it.
type Listing = Vec<(String, Vec<usize>)>;

/// The listings that clients could remember: by path, with the change number.
fn listings(tree: &PseudoTree, model: &Model) -> BTreeMap<String, (u64, Listing)> {
    let listing = |path: &String| {
        let node = tree.at(path.as_bytes()).expect("a directory");
        let children = tree.children_after(node, 0).map(|(_, child)| {
            let mut rules = Vec::new();
            child.is_visible(|set| {
                rules.push(number_of(set));
                Decision::Refused(Refusal::Client)
            });
            rules.sort_unstable();
            (String::from_utf8_lossy(child.path()).into_owned(), rules)
        });
        (path.clone(), (node.change(), children.collect()))
    };
    directories(model).keys().map(listing).collect()
}

/// Paths of few names, so that they lie inside each other.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..5)
        .prop_map(|names| format!("/{}", names.join("/")))
}

proptest! {
    #[test]
    fn it_is_what_a_list_of_paths_says(
        changes in prop::collection::vec((any::<bool>(), path(), 0..4_u64, 0..RULE_SETS), 1..60),
    ) {
        let mut tree = PseudoTree::default();
        let mut model = Model::new();
        let mut old = Vec::new();
        // The highest change number that a path ever had, and the listing it stood for.
        let mut known = listings(&tree, &model);
        for (index, (is_insert, path, share, set)) in changes.into_iter().enumerate() {
            if index % 10 == 0 {
                old.push((tree.clone(), model.clone()));
            }
            if is_insert {
                tree.insert(path.as_bytes(), ShareId(share), &rules(set));
                model.entry(path).or_insert((share, set));
            } else {
                tree.remove(path.as_bytes(), ShareId(share), &rules(set));
                if model.get(&path) == Some(&(share, set)) {
                    model.remove(&path);
                } else if let Some((share, set)) = model.remove(&path) {
                    tree.remove(path.as_bytes(), ShareId(share), &rules(set));
                }
            }
            check(&tree, &model);
            for (path, (change, listing)) in listings(&tree, &model) {
                if let Some((before, known)) = known.get(&path) {
                    prop_assert!(change >= *before);
                    prop_assert!(change > *before || listing == *known, "{}", path);
                }
                known.insert(path, (change, listing));
            }
        }
        old.push((tree.clone(), model.clone()));
        for (tree, model) in &old {
            check(tree, model);
        }
        for (path, (share, set)) in &model {
            tree.remove(path.as_bytes(), ShareId(*share), &rules(*set));
        }
        check(&tree, &Model::new());
        prop_assert!(tree.others.is_empty());
    }

    /// While names come and go, whoever is there all the time is told once, and nobody twice.
    #[test]
    fn pages_have_each_child_once(
        page in 1..8_usize,
        changes in prop::collection::vec((any::<bool>(), 0..120_u64), 0..300),
    ) {
        let path = |name: u64| format!("/d/{name}");
        let set = rules(0);
        let mut tree = PseudoTree::default();
        let mut there: BTreeSet<u64> = (0..80).collect();
        // One of its own, so that the directory stays.
        tree.insert(b"/d", ShareId(1000), &set);
        for name in &there {
            tree.insert(path(*name).as_bytes(), ShareId(*name), &set);
        }
        let mut always = there.clone();
        let mut told = BTreeSet::new();
        let mut cookie = 0;
        let mut changes = changes.into_iter();
        loop {
            let directory = tree.at(b"/d").expect("the directory");
            let children: Vec<_> = tree
                .children_after(directory, cookie)
                .take(page)
                .map(|(cookie, child)| (cookie, child.name().to_vec()))
                .collect();
            let Some((last, _)) = children.last() else { break };
            cookie = *last;
            for (_, name) in children {
                let name: u64 = String::from_utf8_lossy(&name).parse().expect("a number");
                prop_assert!(there.contains(&name));
                prop_assert!(told.insert(name));
            }
            for (is_insert, name) in changes.by_ref().take(6) {
                if is_insert {
                    tree.insert(path(name).as_bytes(), ShareId(name), &set);
                    there.insert(name);
                } else {
                    tree.remove(path(name).as_bytes(), ShareId(name), &set);
                    there.remove(&name);
                    always.remove(&name);
                }
            }
        }
        for name in always {
            prop_assert!(told.contains(&name), "{}", name);
        }
    }
}

#[test]
fn what_is_no_clean_path_is_nowhere() {
    let mut tree = PseudoTree::default();
    for path in ["", "srv", "//", "/srv/", "//srv", "/a//b"] {
        tree.insert(path.as_bytes(), ShareId(1), &rules(0));
        tree.remove(path.as_bytes(), ShareId(1), &rules(0));
        assert!(tree.at(path.as_bytes()).is_none(), "{path}");
    }
    check(&tree, &Model::new());
    tree.insert(b"/srv/a", ShareId(1), &rules(0));
    for name in ["", "/", "srv/a", "srv/", ".", "..", "a"] {
        assert!(tree.child(tree.root(), name.as_bytes()).is_none(), "{name}");
    }
    let srv = tree.child(tree.root(), b"srv").expect("a directory");
    assert_eq!(tree.child(srv, b"a").and_then(Node::share), Some(ShareId(1)));
    assert_eq!(tree.children_after(srv, u64::MAX).count(), 0);
}

#[test]
fn a_share_goes_by_its_own_id_and_rules_only() {
    let mut tree = PseudoTree::default();
    tree.insert(b"/srv/a", ShareId(1), &rules(0));
    tree.insert(b"/srv/a", ShareId(2), &rules(1));
    tree.remove(b"/srv/a", ShareId(2), &rules(0));
    tree.remove(b"/srv/a", ShareId(1), &rules(1));
    tree.remove(b"/srv", ShareId(1), &rules(0));
    check(&tree, &Model::from([("/srv/a".to_owned(), (1, 0))]));
}

#[test]
fn of_two_paths_with_one_hash_the_first_stays() {
    let mut tree = PseudoTree::default();
    tree.insert(b"/z", ShareId(1), &rules(0));
    // As if the hash of another path were that of this one.
    let forged = Node::new(key_of(b"/a/b"), (b"/z/y"[..].into(), 4), 7, 1);
    tree.others.insert(forged.key().place(), Arc::new(forged));
    for path in [&b"/a/b"[..], b"/a/b/c"] {
        tree.insert(path, ShareId(2), &rules(1));
        tree.remove(path, ShareId(2), &rules(1));
        assert!(tree.at(path).is_none() && tree.at(b"/a").is_none());
    }
    tree.insert(b"/a", ShareId(3), &rules(2));
    let a = tree.child(tree.root(), b"a").expect("a directory");
    assert!(tree.child(a, b"b").is_none() && !a.has_children());
    tree.others.remove(key_of(b"/a/b").place(), |_| true);
    check(&tree, &Model::from([("/z".to_owned(), (1, 0)), ("/a".to_owned(), (3, 2))]));
}

#[test]
fn a_path_of_any_length_is_kept_once() {
    let mut tree = PseudoTree::default();
    let path = b"/x".repeat(20_000);
    tree.insert(&path, ShareId(1), &rules(0));
    assert_eq!(tree.at(&path).and_then(Node::share), Some(ShareId(1)));
    let made: usize = memory(&tree).values().sum();
    assert!(made < 20_000 * 1024, "{made} bytes");
    tree.remove(&path, ShareId(1), &rules(0));
    assert!(tree.others.is_empty());
}

/// All that clones of a tree share: bytes by address.
fn memory(tree: &PseudoTree) -> BTreeMap<usize, usize> {
    let nodes = tree.others.from(0).map(|(_, node)| node).chain([&tree.root]);
    let of_nodes = nodes.flat_map(|node| {
        let mut all = node.allocations();
        all.push((Arc::as_ptr(node).addr(), size_of::<Node>()));
        all
    });
    of_nodes.chain(tree.others.allocations()).collect()
}

/// Parts and bytes that one tree does not share with the other.
fn apart(tree: &PseudoTree, other: &PseudoTree) -> (usize, usize) {
    let other = memory(other);
    let own = memory(tree).into_iter().filter(|(address, _)| !other.contains_key(address));
    own.fold((0, 0), |(parts, bytes), (_, size)| (parts + 1, bytes + size))
}

#[test]
fn a_change_of_one_share_of_many_copies_little() {
    let in_one: Vec<_> = (0..15_150).map(|share| format!("/srv/home/user{share}")).collect();
    let spread: Vec<_> = (0..15_150)
        .map(|share| format!("/srv/group{}/share{}", share / 101, share % 101))
        .collect();
    for (paths, has_own_rules) in [(&in_one, false), (&spread, false), (&spread, true)] {
        let set = |share: usize| {
            let octets = [10, (share >> 16) as u8, (share >> 8) as u8, share as u8];
            let pattern = std::net::Ipv4Addr::from(octets).to_string().parse();
            let grants = Arc::new([Rights::default()]);
            let own = ClientRule { pattern: pattern.expect("an address"), grants };
            if has_own_rules { Arc::new(RuleSet::new(vec![own])) } else { rules(0) }
        };
        let sets: Vec<_> = (0..paths.len()).map(set).collect();
        let mut tree = PseudoTree::default();
        for (share, (path, set)) in paths.iter().zip(&sets).enumerate() {
            tree.insert(path.as_bytes(), ShareId(share as u64), set);
        }
        let bytes: usize = memory(&tree).values().sum();
        assert!(bytes < paths.len() * 512, "{bytes} bytes");
        let mut asked = 0;
        assert!(!tree.root().is_visible(|_| {
            asked += 1;
            Decision::Refused(Refusal::Client)
        }));
        assert_eq!(asked, if has_own_rules { paths.len() } else { 1 });
        for (share, (path, set)) in paths.iter().zip(&sets).enumerate().step_by(997) {
            let mut without = tree.clone();
            without.remove(path.as_bytes(), ShareId(share as u64), set);
            assert!(without.at(path.as_bytes()).is_none());
            let mut again = without.clone();
            again.insert(path.as_bytes(), ShareId(share as u64), set);
            // Four nodes, as many ways through their map, and one through each map that they have.

            for (parts, bytes) in [apart(&without, &tree), apart(&again, &without)] {
                assert!(parts <= 32 && bytes <= 8 << 10, "{parts} parts of {bytes} bytes");
            }
        }
    }
}
