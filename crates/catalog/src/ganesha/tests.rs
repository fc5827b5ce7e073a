//! Unit and property tests of what `ganesha.conf` comes to.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use steadfast_shares::{Decision, Flavor, Inherited, NoNames, Question, Rights, Share, Squash};

use super::{import, included};
use crate::catalog::Catalog;
use crate::exports::Imported;
use crate::manage::{Batch, DefaultsSpec};

/// Of one file, into a group that is new.
fn read(text: &str) -> Imported {
    import(&[("g.conf", text)], "g", true, &Inherited::default())
}

/// The shares that a text makes.
fn shares(text: &str) -> Vec<Share> {
    let Imported { operations, mistakes, .. } = read(text);
    assert_eq!(mistakes, [], "{text}");
    made(operations)
}

fn made(operations: Vec<crate::manage::Operation>) -> Vec<Share> {
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    catalog.apply(&Batch { operations, ..Batch::default() }).expect("no mistakes");
    let mut shares: Vec<_> = catalog.all_served().map(|share| Share::clone(share)).collect();
    shares.sort_by(|a, b| a.path.cmp(&b.path));
    shares
}

fn lines(told: &[crate::manage::Mistake]) -> Vec<String> {
    told.iter().map(ToString::to_string).collect()
}

/// The only mistake in a text, for which nothing is made of it.
#[track_caller]
fn refused(text: &str) -> String {
    let imported = read(text);
    assert!(imported.operations.is_empty(), "{text}: {imported:?}");
    let [mistake] = &*lines(&imported.mistakes) else { panic!("{text}: {imported:?}") };
    mistake.clone()
}

/// The only warning of a text.
#[track_caller]
fn warned(text: &str) -> String {
    let imported = read(text);
    assert_eq!(imported.mistakes, [], "{text}");
    let [warning] = &*lines(&imported.warnings) else { panic!("{text}: {imported:?}") };
    warning.clone()
}

/// An export of everybody's with more in it.
fn export(more: &str) -> String {
    let pseudo = if more.contains("Pseudo") { "" } else { "Pseudo = /srv;" };
    format!("EXPORT {{ Export_Id = 1; Path = /srv; FSAL {{ Name = VFS; }} {more} {pseudo} }}\n")
}

/// What a client of a high port may do by a flavour.
fn rights(share: &Share, client: &str, flavor: Flavor) -> Option<Rights> {
    let question =
        Question { client: client.parse().unwrap(), flavor, from_privileged_port: false };
    match share.rules.decide(&question, &NoNames) {
        Decision::Granted(place) => share.rules.grant(place).cloned(),
        Decision::Refused(_) | Decision::Pending => None,
    }
}

#[test]
fn clients_get_what_the_first_block_that_has_them_says_then_the_export() {
    let text = export(
        "access_type = RO; Squash = No_Root_Squash;
         CLIENT { Clients = 10.0.0.1, 10.1.0.0/16; Access_Type = \"RW\"; }   # more
         Client { clients = 10.2.0.0/16; Access_Type = none; }
         CLIENT { Clients = 10.0.0.0/8; Squash = all_squash; Anonymous_Uid = 99; Anonymous_Gid = -2;
                  SecType = sys; PrivilegedPort = yes; Manage_Gids = TRUE; }",
    );
    let [share] = &*shares(&text) else { panic!() };
    assert!(!share.crosses_mounts);
    let told = |client: &str, flavor| {
        rights(share, client, flavor).map(|rights| (rights.is_read_only, rights.squash))
    };
    assert_eq!(told("10.0.0.1", Flavor::Sys), Some((false, Squash::None)));
    assert_eq!(told("10.1.9.9", Flavor::None), Some((false, Squash::None)));
    assert_eq!(told("10.2.0.1", Flavor::Sys), None);
    assert_eq!(told("192.0.2.1", Flavor::None), Some((true, Squash::None)));
    // Of a high port, and by no flavour but sys.
    assert_eq!(told("10.9.0.1", Flavor::Sys), None);
    let question = |flavor| Question {
        client: "10.9.0.1".parse().unwrap(),
        flavor,
        from_privileged_port: true,
    };
    let Decision::Granted(place) = share.rules.decide(&question(Flavor::Sys), &NoNames) else {
        panic!("refused")
    };
    let granted = share.rules.grant(place).unwrap();
    assert_eq!((granted.is_read_only, granted.squash), (true, Squash::All));
    assert_eq!((granted.anonymous_uid, granted.anonymous_gid), (99, 4_294_967_294));
    assert!(granted.looks_up_groups);
    let by_none = share.rules.decide(&question(Flavor::None), &NoNames);
    assert!(matches!(by_none, Decision::Refused(_)));
}

#[test]
fn nobody_may_use_what_says_nothing_of_access() {
    assert!(shares(&export("")).is_empty());
    assert!(warned(&export("")).contains("nobody may use it"));
    // The rights of nfs-ganesha's own defaults.
    let [share] = &*shares(&export("Access_Type = RW;")) else { panic!() };
    let granted = rights(share, "10.0.0.1", Flavor::None).unwrap();
    assert_eq!((granted.squash, granted.anonymous_uid), (Squash::Root, 4_294_967_294));
    assert_eq!(Some(granted), rights(share, "10.0.0.1", Flavor::Sys));
}

#[test]
fn defaults_hold_wherever_they_are_written_and_their_clients_where_there_are_none() {
    let text = "EXPORT { Export_Id = 1; Path = /a; Pseudo = /a; FSAL { Name = VFS; } }
        EXPORT { Export_Id = 2; Path = /b; Pseudo = /b; Access_Type = RO; FSAL { FSAL { Name = XFS; } Name = NULL; }
                 CLIENT { Clients = 10.0.0.9; } }";
    let defaults = "EXPORT_DEFAULTS { Access_Type = RW; Squash = None;
        CLIENT { Clients = 10.0.0.1; Access_Type = None; } }";
    let files = [("a", text), ("b", defaults)];
    let imported = import(&files, "g", true, &Inherited::default());
    assert_eq!(imported.mistakes, []);
    assert_eq!(imported.places, ["", "a:1:32", "a:2:40"]);
    let [a, b] = &*made(imported.operations) else { panic!() };
    let told = |share, client| {
        rights(share, client, Flavor::Sys).map(|rights| (rights.is_read_only, rights.squash))
    };
    assert_eq!(told(a, "10.0.0.1"), None);
    assert_eq!(told(a, "10.0.0.2"), Some((false, Squash::None)));
    assert_eq!(told(b, "10.0.0.1"), Some((true, Squash::None)));
}

#[test]
fn an_export_is_a_share_under_each_path_that_clients_mount_it_by() {
    let paths = |text: &str| -> Vec<_> {
        let shares = shares(text);
        let path = |share: &Share| (share.path.to_string(), share.directory().to_path_buf());
        shares.iter().map(path).map(|(path, at)| (path, at.display().to_string())).collect()
    };
    let both = export("Access_Type = RW; Pseudo = /data;");
    let (by_3, by_4) = (("/srv".into(), "/srv".into()), ("/data".into(), "/srv".into()));
    assert_eq!(paths(&both), [by_4.clone(), by_3.clone()]);
    assert_eq!(read(&both).warnings, []);
    let only_4 = export("Access_Type = RW; Pseudo = /data; Protocols = NFSv4;");
    assert_eq!(paths(&only_4), std::slice::from_ref(&by_4));
    assert!(warned(&only_4).contains("for NFSv4 only there"));
    let only_3 = export("Access_Type = RW; Pseudo = /data; Protocols = 3, 9P;");
    assert_eq!(paths(&only_3), std::slice::from_ref(&by_3));
    assert!(paths(&export("Access_Type = RW; Protocols = 9p;")).is_empty());
    let core = "NFS_CORE_PARAM { mount_path_pseudo = on; NFS_Port = 2049; }\n";
    assert_eq!(paths(&(core.to_owned() + &both)), std::slice::from_ref(&by_4));
    let root = export("Access_Type = RW; Pseudo = /;");
    assert_eq!(paths(&root), std::slice::from_ref(&by_3));
    assert!(warned(&root).contains("Pseudo = \"/\" is not taken over"));
    let only_root = export("Access_Type = RW; Pseudo = /; Protocols = 4;");
    assert_eq!(paths(&only_root), [by_3]);
    let core = "NFS_CORE_PARAM { Protocols = 4; }\n";
    assert_eq!(paths(&(core.to_owned() + &both)), [by_4]);
    // Of two exports of one directory, clients of NFSv3 get the first.
    let second = "EXPORT { Export_Id = 2; Path = /srv; Pseudo = /b; Access_Type = RW; FSAL { Name = VFS; } }";
    let shares = shares(&(both.clone() + second));
    let served: Vec<_> = shares.iter().map(|share| &*share.path).collect();
    assert_eq!(served, ["/b", "/data", "/srv"]);
    assert!(warned(&(both + second)).starts_with("g.conf:2:32: another export"));
}

#[test]
fn what_keeps_somebody_out_and_cannot_be_said_is_refused() {
    for (more, mistake) in [
        ("Access_Type = MDONLY;", "1:73: \"MDONLY\": rights to names"),
        ("Access_Type = RX;", "1:73: \"RX\" is no value of Access_Type"),
        (
            "Acess_Type = RO;",
            "1:59: unknown parameter \"Acess_Type\"; did you mean \"Access_Type\"?",
        ),
        ("Access_Type = RO; Access_Type = RW;", "1:77: Access_Type is set twice"),
        ("Access_Type = RO; SecType = krb5;", "1:1: Kerberos is not served yet"),
        ("Access_Type = RO; Squash = Some;", "1:86: \"Some\" is no value of Squash"),
        ("Access_Type = RO; Anonymous_uid = -1;", "1:93: Anonymous_uid needs a number"),
        (
            "Access_Type = RO; CLIENT { Clients = 10.0.*; Access_Type = None; }",
            "write it as a network",
        ),
        ("Access_Type = RO; CLIENT { Access_Type = None; }", "1:77: CLIENT names no Clients"),
        ("Access_Type = RO; CLIENT { Clients = 10.0.0.0/33; }", "1:96: "),
        ("Access_Type = RO; CLIENT { Clients = ; }", "Clients has no value"),
        ("Access_Type = RO; Pseudo = /a; Pseudo = /b;", "Pseudo is set twice"),
        ("Pseudo = relative; Access_Type = RO;", "1:68: "),
    ] {
        let told = refused(&export(more));
        assert!(told.contains(mistake), "{more}: {told}");
    }
    for (text, mistake) in [
        ("EXPORT { Path = /a; FSAL { Name = VFS; } }", "g.conf:1:1: EXPORT has no Export_Id"),
        ("EXPORT { Export_Id = 1; FSAL { Name = VFS; } }", "g.conf:1:1: EXPORT has no Path"),
        ("EXPORT { Export_Id = 1; Path = /a; }", "g.conf:1:1: EXPORT has no FSAL"),
        (
            "EXPORT { Export_Id = 1; Path = /a; FSAL { Name = CEPH; } }",
            "g.conf:1:50: FSAL \"CEPH\"",
        ),
        ("EXPRT { Path = /a; }", "unknown block \"EXPRT\"; did you mean \"EXPORT\"?"),
        ("Path = /a;", "stands in no block"),
        ("EXPORT { Path /a; }", "g.conf:1:15: \"=\" or \"{\" has to follow \"Path\", not \"/a\""),
        ("EXPORT { Path = /a }", "g.conf:1:20: \",\" or \";\" has to follow"),
        ("EXPORT { Path = \"/a; }", "g.conf:1:17: a quotation mark is never closed"),
        ("EXPORT {", "the file ends inside a block"),
        ("EXPORT { %include \"a\" }", "stands outside of blocks only"),
        ("%exclude a", "unknown directive"),
        ("A{A{A{A{A{A{A{A{A{A{", "too deep"),
    ] {
        let told = refused(text);
        assert!(told.contains(mistake), "{text}: {told}");
    }
}

/// Who may use a directory must not find another one in it that he may not.
#[test]
fn directories_that_are_exported_twice_with_other_rights_are_refused() {
    let nested = |path: &str, more: &str| {
        format!(
            "EXPORT {{ Export_Id = 2; Path = {path}; Pseudo = /b; FSAL {{ Name = VFS; }} {more} }}\n"
        )
    };
    let outer = export("Access_Type = RW;");
    for (more, mistake) in [
        (
            "Access_Type = None; CLIENT { Clients = 10.0.0.1; Access_Type = RW; }",
            "it is within \"/srv\"",
        ),
        // Nobody may use it.
        ("", "it is within \"/srv\""),
        ("Access_Type = MDONLY;", "it is within \"/srv\""),
    ] {
        for text in [outer.clone() + &nested("/srv/a//b/", more), nested("/srv/a/b", more) + &outer]
        {
            let imported = read(&text);
            assert!(
                !imported.operations.iter().any(|operation| {
                    matches!(operation, crate::manage::Operation::AddShare { .. })
                }),
                "{text}"
            );
            let told = lines(&imported.mistakes);
            assert!(told.iter().any(|told| told.contains(mistake)), "{text}: {told:?}");
        }
    }
    let beside = outer.clone() + &nested("/srvx", "Access_Type = RO;");
    assert_eq!(shares(&beside).len(), 3);
    let alike = outer.clone() + &nested("/srv/a", "Access_Type = RW;");
    assert_eq!(shares(&alike).len(), 3);
    // By NFSv3 both have one name.
    let imported = read(&(outer.clone() + &nested("/srv", "Access_Type = RO;")));
    assert!(lines(&imported.mistakes)[0].contains("another export of \"/srv\""), "{imported:?}");
    assert_eq!(
        shares(&(outer.clone() + &nested("/srv", "Access_Type = RO; Protocols = 4;"))).len(),
        2
    );
    // Without a path nobody knows what it is within.
    let imported = read(&(outer + "EXPORT { Export_Id = 3; FSAL { Name = VFS; } }"));
    assert!(imported.operations.is_empty(), "{imported:?}");
}

#[test]
fn versions_and_names_that_would_let_more_clients_in_are_refused() {
    let [share] =
        &*shares(&export("Access_Type = RW; CLIENT { Clients = 10.0.0.5; Protocols = 9P; }"))
    else {
        panic!()
    };
    assert_eq!(rights(share, "10.0.0.5", Flavor::Sys), None);
    assert!(rights(share, "10.0.0.6", Flavor::Sys).is_some());
    for (more, mistake) in [
        ("Access_Type = RW; CLIENT { Clients = *; Protocols = 4; }", "Protocols of a CLIENT"),
        (
            "Access_Type = RW; CLIENT { Clients = *.guest.x; Access_Type = None; }",
            "\"*.guest.x\" gets less",
        ),
        ("Access_Type = RW; CLIENT { Clients = @guests; Squash = All; }", "\"@guests\" gets less"),
        ("Access_Type = RW; Manage_Gids = yes;", "Manage_Gids cannot be taken over"),
        ("Access_Type = RW; PrivilegedPort = \"no\";", "must be without quotation marks"),
        ("Access_Type = RW; CLIENT { Clients = \"10.0.0.1\"; }", "must be without quotation marks"),
        ("Access_Type = RW; CLIENT { Clients = ::ffff:10.0.0.5; }", "IPv4 written as IPv6"),
        ("Access_Type = RW; Transports = RDMA;", "\"RDMA\" is no value of Transports"),
        ("Access_Type = RW; CLIENT { Clients = 10.0.0.0/255.0.0.0; }", "is no network there"),
        ("Access_Type = RW; CLIENT { Clients = 10.0.0.0/0; }", "is no network there"),
    ] {
        let told = refused(&export(more));
        assert!(told.contains(mistake), "{more}: {told}");
    }
    assert_eq!(
        shares(&export("Access_Type = RO; CLIENT { Clients = *.x; Access_Type = RW; }")).len(),
        1
    );
    for (text, mistake) in [
        ("PSEUDOFS { Access_Type = None; }", "Access_Type of PSEUDOFS cannot be said"),
        (
            "EXPORT { Export_Id = 0; Path = /; FSAL { Name = Pseudo; } CLIENT { Clients = h; } }",
            "CLIENT of FSAL PSEUDO",
        ),
        (
            "EXPORT { Export_Id = 0; Path = /a; Pseudo = /a; FSAL { Name = VFS; } Access_Type = RO; }",
            "Export_Id 0 is for",
        ),
        (
            "EXPORT { Export_Id = 1; Path = /a; FSAL { Name = VFS; } Access_Type = RO; Protocols = 4; }",
            "without Pseudo",
        ),
        (
            "EXPORT { Export_Id = 1; Path = /a; Pseudo = /a; FSAL { Name = CRYPT; FSAL { Name = VFS; } } Access_Type = RO; }",
            "FSAL \"CRYPT\" upon another",
        ),
        ("VFS { only_one_user = true; }", "only_one_user of VFS cannot be said"),
        ("XFS { umask = 0077; }", "umask of XFS cannot be said"),
        ("%url rados://a/b", "the file of %url"),
        ("%include \"other.conf\"", "the file of %include \"other.conf\" is not among"),
    ] {
        let told = refused(text);
        assert!(told.contains(mistake), "{text}: {told}");
    }
}

/// A mistake in what both inherit is told once, and refuses both.
#[test]
fn a_mistake_in_a_client_of_all_refuses_every_export() {
    let text =
        "EXPORT_DEFAULTS { CLIENT { Clients = 10.0.0.0/8; SecType = krb5; Access_Type = RO; } }\n"
            .to_owned()
            + &export("Access_Type = RW;")
            + "EXPORT { Export_Id = 2; Path = /b; Pseudo = /b; Access_Type = RW; FSAL { Name = VFS; } }";
    assert!(refused(&text).contains("Kerberos is not served yet"));
}

#[test]
fn exports_that_nfs_ganesha_drops_are_refused() {
    let first = export("Access_Type = RW;");
    for (second, mistake) in [
        ("Path = /b; Pseudo = /srv;", "another export has the Pseudo \"/srv\""),
        ("Path = /srv;", "another export has the Path \"/srv\", and this one has no Pseudo"),
        ("Path = /b; Protocols = 3, 4;", "without Pseudo it is not served there"),
    ] {
        let second = format!(
            "EXPORT {{ Export_Id = 2; {second} Access_Type = RO; FSAL {{ Name = VFS; }} }}"
        );
        let told = lines(&read(&(first.clone() + &second)).mistakes);
        assert!(told.iter().any(|told| told.contains(mistake)), "{second}: {told:?}");
    }
    // What keeps nobody out may stay.
    for harmless in [
        "VFS { only_one_user = false; umask = 0; }",
        "PSEUDOFS { Access_Type = MDONLY_RO; PrivilegedPort = no; }",
        "NFS_CORE_PARAM { Protocols = 3, 4, nfsrdma; }",
        "EXPORT { Export_Id = 9; Path = /; Pseudo = /; FSAL { Name = PSEUDO; } PrivilegedPort = no; }",
    ] {
        assert_eq!(shares(&(harmless.to_owned() + "\n" + &first)).len(), 1, "{harmless}");
    }
}

#[test]
fn without_what_holds_for_all_nothing_is_made() {
    let all = [
        "EXPORT_DEFAULTS { SecType = krb6; }",
        "EXPORT_DEFAULTS {",
        "A",
        "VFS { only_one_user = yes; }",
        "%url rados://a/b",
    ];
    for broken in all {
        let whole = export("Access_Type = RW;");
        let imported = import(&[("a", &whole), ("b", broken)], "g", true, &Inherited::default());
        assert!(imported.operations.is_empty(), "{broken}");
        assert_eq!(imported.mistakes.len(), 1, "{broken}");
    }
    // A mistake in one export leaves the others as they are.
    let text =
        export("Access_Type = RW;") + "EXPORT { Export_Id = 1; Path = /b; FSAL { Name = VFS; } }";
    let imported = read(&text);
    assert_eq!(lines(&imported.mistakes), ["g.conf:2:22: another export has the Export_Id 1"]);
    assert_eq!(imported.operations.len(), 2);
}

#[test]
fn what_is_left_out_is_told() {
    for (more, warning) in [
        ("Access_Type = RW; Disable_ACL = true;", "1:77: Disable_ACL is not taken over"),
        ("Access_Type = RW; Transports = TCP;", "1:1: Transports is not taken over"),
        ("Access_Type = RW; Squash = RootId;", "1:1: Squash = RootId becomes root_squash"),
        (
            "Access_Type = RW; CLIENT { Clients = *; } CLIENT { Clients = 10.0.0.1; }",
            "counts for nothing",
        ),
        ("Access_Type = RW; CLIENT { Clients = 10.0.0.1/8; }", "left out"),
    ] {
        let told = warned(&export(more));
        assert!(told.contains(warning), "{more}: {told}");
    }
    let log = warned("LOG { Components { ALL = DEBUG; } }");
    assert_eq!(
        log,
        "g.conf:1:1: LOG is not taken over. Here it is: `log` and `log_filter` in [server]"
    );
    let root = "EXPORT { Export_Id = 0; Path = /; Pseudo = /; FSAL { Name = PSEUDO; } }";
    assert!(warned(root).contains("FSAL PSEUDO is not needed"));
}

#[test]
fn other_files_are_named_where_they_are_taken_in() {
    let text = "# %include no\n%include \"a b.conf\"\n%dir /etc/ganesha/exports\nEXPORT { Path = '%include x'; }";
    let named = included(text);
    let names: Vec<_> = named
        .iter()
        .map(|included| (included.directive.as_str(), included.name.value.as_str()))
        .collect();
    assert_eq!(names, [("%include", "a b.conf"), ("%dir", "/etc/ganesha/exports")]);
    assert_eq!(named[0].name.place.to_string(), "2:10");
}

/// Rights as they are written, and as they come to.
#[derive(Clone, Debug)]
struct Said {
    access: Option<usize>,
    squash: Option<usize>,
    flavors: Option<usize>,
}

const ACCESS: [&str; 3] = ["None", "RO", "RW"];
const SQUASH: [(&str, Squash); 3] =
    [("None", Squash::None), ("Root_Squash", Squash::Root), ("All", Squash::All)];
const FLAVORS: [(&str, [bool; 2]); 3] =
    [("sys", [false, true]), ("none, krb5", [true, false]), ("none, sys", [true, true])];

fn said() -> impl Strategy<Value = Said> {
    let some = || proptest::option::of(0usize..3);
    (some(), some(), some()).prop_map(|(access, squash, flavors)| Said { access, squash, flavors })
}

impl Said {
    fn written(&self) -> String {
        let access = self.access.map(|at| format!("Access_Type = {};", ACCESS[at]));
        let squash = self.squash.map(|at| format!("Squash = {};", SQUASH[at].0));
        let flavors = self.flavors.map(|at| format!("SecType = {};", FLAVORS[at].0));
        [access, squash, flavors].into_iter().flatten().collect()
    }
}

/// Clients of blocks, and addresses that ask.
const NETWORKS: [&str; 5] = ["10.0.0.1", "10.0.0.0/24", "10.0.0.0/8", "10.0.0.2", "*"];
const ASKING: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.9.9.9", "192.0.2.1"];

fn has(network: usize, client: &str) -> bool {
    match network {
        0 => client == "10.0.0.1",
        1 => client.starts_with("10.0.0."),
        2 => client.starts_with("10."),
        3 => client == "10.0.0.2",
        _ => true,
    }
}

proptest! {
    /// Whoever asks gets what ganesha-export-config(8) says.
    #[test]
    fn who_asks_gets_what_the_manual_says(
        defaults in (said(), proptest::collection::vec((0usize..5, said()), 0..3)),
        own in (said(), proptest::collection::vec((0usize..5, said()), 0..4)),
    ) {
        let blocks = |clients: &[(usize, Said)]| -> String {
            let block = |(network, said): &(usize, Said)| {
                format!("CLIENT {{ Clients = {}; {} }}\n", NETWORKS[*network], said.written())
            };
            clients.iter().map(block).collect()
        };
        let text = format!(
            "EXPORT_DEFAULTS {{ {} {} }}\n{}",
            defaults.0.written(),
            blocks(&defaults.1),
            export(&(own.0.written() + &blocks(&own.1)))
        );
        let made = shares(&text);
        let asked = if own.1.is_empty() { &defaults.1 } else { &own.1 };
        for client in ASKING {
            let first = asked.iter().find(|(network, _)| has(*network, client));
            let mut said = first.map_or(own.0.clone(), |(_, said)| said.clone());
            for further in [&own.0, &defaults.0] {
                said.access = said.access.or(further.access);
                said.squash = said.squash.or(further.squash);
                said.flavors = said.flavors.or(further.flavors);
            }
            for (at, flavor) in [Flavor::None, Flavor::Sys].into_iter().enumerate() {
                let by_flavor = FLAVORS[said.flavors.unwrap_or(2)].1[at];
                let access = said.access.filter(|access| *access > 0 && by_flavor);
                let wanted = access.map(|access| (access == 1, SQUASH[said.squash.unwrap_or(1)].1));
                let share = made.first();
                let given = share
                    .and_then(|share| rights(share, client, flavor))
                    .map(|rights| (rights.is_read_only, rights.squash));
                prop_assert_eq!(given, wanted, "{} by {:?} of {}", client, flavor, text);
            }
        }
    }

    /// No text makes it fail.
    #[test]
    fn any_text_is_read(text in "([A-Za-z_{}=;,#\"'%/0-9. \n]|EXPORT \\{|CLIENT \\{|Path = |Clients = ){0,60}") {
        let _ = read(&text);
        let _ = included(&text);
    }
}
