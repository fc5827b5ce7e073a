use std::sync::Arc;

use steadfast_shares::{
    ClientRule, DomainPattern, HostName, NetgroupName, RuleSet, ShareId, ShareOptions,
};

use super::*;

/// Knows each name as the same.
struct Book(Known);

impl Names for Book {
    fn is_host(&self, _: &HostName, _: IpAddr) -> Known {
        self.0
    }

    fn is_in_domain(&self, _: &DomainPattern, _: IpAddr) -> Known {
        self.0
    }

    fn is_in_netgroup(&self, _: &NetgroupName, _: IpAddr) -> Known {
        self.0
    }
}

fn rule(clients: &str, options: &[&str]) -> ClientRule {
    let (read, mistakes) = ShareOptions::default().with(options);
    assert_eq!(mistakes, []);
    ClientRule { pattern: clients.parse().expect("clients"), grants: read.grants() }
}

fn share(rules: Vec<ClientRule>) -> Share {
    Share {
        id: ShareId(1),
        path: "/tank/home".into(),
        elsewhere: Some(std::path::Path::new("/srv/home").into()),
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(RuleSet::new(rules)),
    }
}

fn status(state: ShareState) -> ShareStatus {
    serde_json::from_value(serde_json::json!({
        "path": "/tank/home", "directory": "/srv/home", "group": "home", "id": 1,
        "source": "/etc/steadfast/shares.d/home.toml:3", "state": state.word(),
    }))
    .expect("a status")
}

/// The explanation for 10.0.0.7, by names that are all known alike.
fn explained(
    rules: Vec<ClientRule>,
    known: Known,
    user: Option<&User>,
    state: ShareState,
) -> Explanation {
    let (share, status) = (share(rules), status(state));
    let asked = Asked {
        client: "10.0.0.7",
        address: [10, 0, 0, 7].into(),
        path: "/tank/home/ann",
        share: Some((&share, &status)),
        has_own_clients: true,
        flavor: Flavor::Sys,
        from_privileged_port: true,
        user,
        fits_nfs2: None,
    };
    let look_ups = |pattern: &ClientPattern, _| {
        vec![LookUp {
            name: pattern.to_string(),
            answers: vec!["10.0.0.9".to_owned()],
            age_s: Some(200),
            source: Some("DNS".to_owned()),
            state: "fresh".to_owned(),
        }]
    };
    explain(&asked, &Book(known), &look_ups)
}

#[test]
fn each_step_to_a_grant_is_told() {
    let ann = User { name: "ann".to_owned(), uid: 1000, groups: Some(vec![1000, 0]) };
    let rules = vec![
        rule("client.example", &["no_root_squash"]),
        rule("192.168.0.0/16", &[]),
        rule("10.0.0.0/8", &["ro"]),
        rule("*", &[]),
    ];
    let told = explained(rules, Known::No, Some(&ann), ShareState::Enabled);
    assert_eq!(
        told.sentences,
        [
            "/tank/home/ann is in the share /tank/home of the group home \
             (/etc/steadfast/shares.d/home.toml:3), which serves /srv/home.",
            "client.example has other addresses than 10.0.0.7: client.example is 10.0.0.9 by DNS, \
             3 min ago (fresh).",
            "10.0.0.7 is in the network 10.0.0.0/8.",
            "So the rule for 10.0.0.0/8 decides.",
            "It may read, and change nothing.",
            "ann (user 1000) stays who he is.",
            "His groups are those that the client says, 16 at the most.",
        ]
    );
    assert_eq!((told.decision.as_str(), told.rule.as_deref()), ("granted", Some("10.0.0.0/8")));
    assert_eq!(told.rules.len(), 2, "networks of others are not told");
    assert!(told.rights.expect("rights").read_only);
}

#[test]
fn whether_changes_are_stable_when_they_are_acknowledged_is_told() {
    for (options, is_async, words) in [
        (&["async"][..], true, "before they are stable (async)"),
        (&["sync"][..], false, "are stable before they are acknowledged"),
    ] {
        let told = explained(vec![rule("*", options)], Known::No, None, ShareState::Enabled);
        assert!(told.sentences.iter().any(|sentence| sentence.contains(words)), "{told:?}");
        assert_eq!(told.rights.expect("rights").is_async, is_async);
    }
    let told = explained(vec![rule("*", &["ro", "async"])], Known::No, None, ShareState::Enabled);
    assert!(!told.sentences.iter().any(|sentence| sentence.contains("acknowledged")), "{told:?}");
}

#[test]
fn who_is_squashed_is_told() {
    let root = User { name: "root".to_owned(), uid: 0, groups: None };
    let told = explained(vec![rule("*", &[])], Known::No, Some(&root), ShareState::Enabled);
    let identity = told.identity.expect("an identity");
    assert_eq!((identity.uid, identity.is_squashed), (65534, true));
    assert!(
        told.sentences
            .iter()
            .any(|s| s == "root (user 0) becomes user 65534, group 65534: root_squash.")
    );
    let told = explained(
        vec![rule("*", &["all_squash", "anonuid=7"])],
        Known::No,
        None,
        ShareState::Enabled,
    );
    assert!(
        told.sentences.iter().any(|s| s == "All its users become user 7, group 65534."),
        "{told:?}"
    );
}

#[test]
fn what_is_not_known_and_what_is_not_served_is_told() {
    let rules = || vec![rule("@staff", &["ro"])];
    let told = explained(rules(), Known::NotYet, None, ShareState::Enabled);
    assert_eq!(
        (told.decision.as_str(), told.rules[0].answer.as_str()),
        ("pending", "not yet known")
    );
    let told = explained(rules(), Known::Unreachable, None, ShareState::Enabled);
    assert_eq!(told.decision, "refused");
    assert!(told.sentences.iter().any(|s| s.contains("the name service is away: it is refused")));
    let told = explained(rules(), Known::Yes, None, ShareState::Disabled);
    assert_eq!(told.decision, "refused", "whatever the rules say");
    assert!(told.sentences.last().is_some_and(|s| s.contains("disabled")));
    let told = explained(Vec::new(), Known::Yes, None, ShareState::Enabled);
    assert!(told.sentences.last().is_some_and(|s| s.contains("No rule is for 10.0.0.7")));
    let next = "To let it in: steadfast share set /tank/home --add-client 10.0.0.7";
    assert!(told.sentences.last().is_some_and(|s| s.ends_with(next)), "{told:?}");
}

/// What is done so that the others of the group, and its later changes, are not cut off unseen.
#[test]
fn how_a_client_is_let_in_depends_on_whose_clients_a_share_has() {
    let share = share(Vec::new());
    let last = |path: &str, pattern: Option<&str>, group: Option<&str>, has_own_clients| {
        let mut status = status(ShareState::Enabled);
        path.clone_into(&mut status.path);
        (status.pattern, status.group) = (pattern.map(str::to_owned), group.map(str::to_owned));
        let asked = Asked {
            client: "10.0.0.7",
            address: [10, 0, 0, 7].into(),
            path,
            share: Some((&share, &status)),
            has_own_clients,
            flavor: Flavor::Sys,
            from_privileged_port: true,
            user: None,
            fits_nfs2: None,
        };
        explain(&asked, &Book(Known::No), &|_, _| Vec::new()).sentences.pop().unwrap_or_default()
    };
    let group = "No rule is for 10.0.0.7: it is refused. To let it into all shares that have the clients of \
                 the group home: steadfast group set home --add-client 10.0.0.7";
    assert_eq!(last("/a", None, Some("home"), false), group);
    assert_eq!(last("/a", Some("/*"), Some("home"), false), group);
    assert_eq!(
        last("/a", Some("/*"), Some("home"), true),
        "No rule is for 10.0.0.7: it is refused. To let it in, add it to the clients of the pattern /* of \
         the group home."
    );
    let told = last("/it's $(here)", None, Some("home"), true);
    assert!(told.ends_with(r"share set '/it'\''s $(here)' --add-client 10.0.0.7"), "{told}");
    assert_eq!(last("/a", None, None, true), "No rule is for 10.0.0.7: it is refused.");
}

#[test]
fn a_share_that_is_not_served_is_a_part_of_the_one_above_it() {
    let inner = explained(vec![rule("*", &[])], Known::No, None, ShareState::Faulty);
    assert_eq!((inner.decision.as_str(), &inner.served_by), ("refused", &None));
    let share = Share { path: "/tank".into(), ..share(vec![rule("10.0.0.0/8", &["ro"])]) };
    let mut outer = status(ShareState::Enabled);
    (outer.path, outer.directory) = ("/tank".to_owned(), "/tank".to_owned());
    for client in ["10.0.0.7", "client.example"] {
        let asked = Asked {
            client,
            address: [10, 0, 0, 7].into(),
            path: "/tank/home/ann",
            share: Some((&share, &outer)),
            has_own_clients: true,
            flavor: Flavor::Sys,
            from_privileged_port: true,
            user: None,
            fits_nfs2: None,
        };
        let outer = explain(&asked, &Book(Known::No), &|_, _| Vec::new());
        let told = Explanation { client: client.to_owned(), ..inner.clone() }.with_outer(outer);
        let at = told.sentences.iter().position(|s| s.contains("faulty, and serves nobody"));
        assert_eq!(
            told.sentences[at.expect("a fault") + 1..][..3],
            [
                "Meanwhile /tank/home/ann is served as a part of the share /tank.",
                "/tank/home/ann is in the share /tank of the group home \
                 (/etc/steadfast/shares.d/home.toml:3).",
                "10.0.0.7 is in the network 10.0.0.0/8.",
            ]
        );
        assert_eq!((told.decision.as_str(), told.served_by.as_deref()), ("granted", Some("/tank")));
        assert_eq!(told.share.as_deref(), Some("/tank/home"), "the one that is asked about");
        assert!(told.rights.expect("rights").read_only && told.rule.is_some());
    }
    let nothing = Explanation::default();
    assert_eq!(inner.clone().with_outer(nothing), inner, "there is none above");
}

#[test]
fn the_innermost_share_has_the_path() {
    let has = |path: &str| ["/", "/tank", "/tank/home"].contains(&path);
    assert_eq!(innermost("/tank/home/ann/", has), Some("/tank/home"));
    assert_eq!(innermost("/tank/homes", has), Some("/tank"));
    assert_eq!(innermost("/elsewhere", has), Some("/"));
    assert_eq!(innermost("/elsewhere", |_| false), None);
}

#[test]
fn nfs2_is_told_of_where_it_is_served() {
    let (share, status) = (share(vec![rule("*", &[])]), status(ShareState::Enabled));
    for (fits_nfs2, expected) in
        [(None, None), (Some(true), Some("too")), (Some(false), Some("cannot"))]
    {
        let asked = Asked {
            client: "10.0.0.7",
            address: [10, 0, 0, 7].into(),
            path: "/tank/home",
            share: Some((&share, &status)),
            has_own_clients: true,
            flavor: Flavor::Sys,
            from_privileged_port: true,
            user: None,
            fits_nfs2,
        };
        let told = explain(&asked, &Book(Known::No), &|_, _| Vec::new());
        let of_nfs2: Vec<&String> =
            told.sentences.iter().filter(|sentence| sentence.contains("NFSv2")).collect();
        assert_eq!(of_nfs2.len(), usize::from(expected.is_some()), "{of_nfs2:?}");
        assert!(of_nfs2.iter().all(|told| told.contains(expected.unwrap_or_default())));
    }
}
