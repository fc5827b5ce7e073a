//! Unit and property tests of exports(5): what is understood, refused and warned about, and that
//! what is exported and imported again means the same.

use proptest::prelude::*;
use steadfast_shares::{Flavors, Inherited, Rights, Share, Squash};

use super::*;
use crate::catalog::Catalog;
use crate::group::GroupFile;
use crate::manage::{Batch, DefaultsSpec, Operation, ShareSpec};

fn read(text: &str) -> Imported {
    import(&[("exports", text)], "exports", true, &Inherited::default(), &|_| None)
}

fn shares(text: &str) -> Vec<ShareSpec> {
    let imported = read(text);
    assert_eq!(imported.mistakes, [], "{text}");
    let shares = imported.operations.into_iter().filter_map(|operation| match operation {
        Operation::AddShare { share, .. } => Some(share),
        _ => None,
    });
    shares.collect()
}

fn told(text: &str) -> (Vec<String>, Vec<String>) {
    let imported = read(text);
    let lines = |all: Vec<crate::manage::Mistake>| all.iter().map(ToString::to_string).collect();
    (lines(imported.mistakes), lines(imported.warnings))
}

/// The shares that imported operations make.
fn made(imported: &Imported, defaults: DefaultsSpec) -> Vec<Share> {
    let mut catalog = Catalog::new("shares.d", defaults, Vec::new());
    let batch = Batch { operations: imported.operations.clone(), ..Batch::default() };
    catalog.apply(&batch).expect("no mistakes");
    catalog.all_served().map(|share| Share::clone(share)).collect()
}

#[test]
fn quotes_escapes_comments_and_long_lines_are_read() {
    let text = "# a comment\n\"/my data\"  10.0.0.1(rw) # more\n/a\\040b\\\n \t*.example(rw,sync) \\\n  \
                @staff\n\n/tab -rw,async fd00::/8 ::1(ro)\n/\\303\\244 *(rw)";
    let found = shares(text);
    let paths: Vec<_> = found.iter().map(|share| share.path.as_str()).collect();
    assert_eq!(paths, ["/my data", "/a b", "/tab", "/ä"]);
    assert_eq!(found[0].clients, ["10.0.0.1"]);
    assert_eq!(found[0].options, Vec::<String>::new());
    assert_eq!(found[1].rules[0].clients, ["*.example"]);
    assert_eq!(found[1].rules[1].clients, ["@staff"]);
    assert_eq!(found[1].rules[1].options, ["ro"]);
    assert_eq!(found[2].rules[0].clients, ["::1"]);
    assert_eq!(found[2].rules[0].options, ["ro", "async"]);
    assert_eq!(found[2].rules[1].clients, ["fd00::/8"]);
}

#[test]
fn rules_stand_in_the_order_of_exports() {
    let text = "/a (ro) @g(rw) *.x(rw) 10.0.0.0/8(ro) 10.1.0.0/255.255.0.0(rw) h.x(rw) \
                192.0.2.1(ro) *(rw)\n";
    let imported = read(text);
    let [_, Operation::AddShare { share, .. }] = imported.operations.as_slice() else {
        panic!("{imported:?}")
    };
    let clients: Vec<_> =
        share.rules.iter().flat_map(|rule| rule.clients.iter().map(String::as_str)).collect();
    assert_eq!(clients, ["h.x", "192.0.2.1", "10.0.0.0/8", "*.x", "@g", "*"]);
    assert_eq!(share.rules.last().map(|rule| rule.options.clone()), Some(vec!["ro".into()]));
    let warnings: Vec<_> = imported.warnings.iter().map(ToString::to_string).collect();
    let covered = "\"/a\" has \"10.0.0.0/8\" before \"10.1.0.0/16\"";
    assert!(warnings[0].starts_with(&format!("exports:1:39: {covered}")), "{warnings:?}");
    assert!(warnings[1].contains("already"), "{warnings:?}");
    // Of one kind the first in the line counts, whichever is the smaller.
    let share = &shares("/a 10.1.0.0/16(rw) 10.0.0.0/8(ro)\n")[0];
    let clients: Vec<_> = share.rules.iter().map(|rule| rule.clients[0].as_str()).collect();
    assert_eq!(clients, ["10.1.0.0/16", "10.0.0.0/8"]);
}

#[test]
fn mounts_that_some_clients_need_are_needed_for_all() {
    let (_, warnings) = told("/b *(mp)\n/c -mp=/x 10.0.0.1(rw) 10.0.0.2(ro)\n");
    assert_eq!(warnings, [""; 0]);
    let share = &shares("/b *(mp)\n")[0];
    assert!(share.options.contains(&"mp".to_owned()), "{share:?}");
    let text = "/a 10.0.0.1(rw) 10.0.0.2(rw,mountpoint=/x) 10.0.0.3(ro,mp)\n";
    let (_, warnings) = told(text);
    let what = "mp holds for a share as a whole here: for all clients of \"/a\"";
    assert_eq!(warnings, [format!("exports:1:4: {what}")]);
    let share = &shares(text)[0];
    for word in ["mountpoint=/x", "mp"] {
        assert!(share.options.iter().any(|option| option == word), "{share:?}");
    }
}

#[test]
fn crossmnt_of_some_clients_is_warned_about() {
    let (_, warnings) = told("/a 10.0.0.1(rw) 10.0.0.2(rw,crossmnt)\n/b *(crossmnt)\n");
    let what = "crossmnt holds for a share as a whole here: no client of \"/a\" gets it, since some \
                have not";
    assert_eq!(warnings, [format!("exports:1:17: {what}")]);
}

#[test]
fn lines_of_one_path_go_together_whichever_file_they_are_in() {
    let texts = [("exports", "/a 10.0.0.1(rw)\n"), ("exports.d/x.exports", "/a/ 10.0.0.2(rw)\n")];
    let imported = import(&texts, "g", false, &Inherited::default(), &|_| None);
    let [Operation::AddShare { share, .. }] = imported.operations.as_slice() else { panic!() };
    assert_eq!(share.clients, ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn mistakes_are_told_by_name_line_and_column() {
    let (mistakes, warnings) = told(
        "/ok *(rw)\n/a *(rw,refer=/x@y)\n/b gss/krb5(rw) *(sec=krb5)\n  /c 10.0.0.0/33(roo)\n\
         relative *(rw)\n/d *(rw\n/e 10.0.0.1(rw)10.0.0.2(rw)\n/g h[12.x(rw)\n\
         /h *(anonuid=-1)\n/i -bogus,rw *\n/j -ro -rw *\n/k *(rw,,ro)\n/l *(rw, ro)\n\
         /m *(mp)\n/n [fd00::1](rw)\n/o ::ffff:10.0.0.1\n/p @a\n/q @A\n/f \"x(rw)\n/z *(rw)\n",
    );
    assert_eq!(
        mistakes,
        [
            "exports:2:9: the option \"refer=/x@y\" is not served: this server gives no referrals",
            "exports:3:4: \"gss/krb5\" as a client is not understood: write sec=krb5 for the \
             clients that are meant",
            "exports:3:19: Kerberos is not served yet: give sec=sys or sec=none too",
            "exports:4:6: the network \"10.0.0.0/33\" needs a length from 0 to 32 after the slash",
            "exports:4:18: unknown option \"roo\"; did you mean \"ro\"?",
            "exports:5:1: path \"relative\" must be absolute; did you mean \"/relative\"?",
            "exports:6:4: the options of \"*\" have no closing bracket before the next blank",
            "exports:7:4: the options of \"10.0.0.1\" are followed by something without a space",
            "exports:8:4: \"h[12.x\" is not an address, a network like \"10.0.0.0/8\", a host's name, a \
             domain like \"*.example\", a netgroup like \"@staff\", or \"*\"",
            "exports:9:6: \"anonuid=-1\" needs a number from 0 to 4294967294",
            "exports:10:5: unknown option \"bogus\"",
            "exports:11:8: \"-rw\" follows other options directly, and exportfs(8) takes it for a \
             client: write both as one list",
            "exports:12:4: there is a comma with no option before it",
            "exports:13:4: the options of \"*\" have no closing bracket before the next blank",
            "exports:15:4: \"[fd00::1]\" is a set of characters to exportfs(8): addresses are in no \
             brackets there",
            "exports:16:4: \"::ffff:10.0.0.1\" is IPv4 written as IPv6, which no client has there: \
             write it as IPv4",
            "exports:18:4: exportfs(8) takes \"@A\" for \"@a\", which differs in capitals alone",
            "exports:19:4: the quotes of \"x(rw)\" are not closed: what follows in this \
             file is not read",
        ]
    );
    assert_eq!(warnings, Vec::<String>::new());
    let paths: Vec<_> = read("/ok *(rw)\n/a *(rw,refer=/x@y) 10.0.0.1(rw)\n").operations;
    assert_eq!(paths.len(), 2, "the group, and the share without mistakes");
}

#[test]
fn what_means_something_else_is_warned_about() {
    let (mistakes, warnings) = told(
        "/a host.x (rw)\n/b\n/c *(rw,async,fsid=0,ro,sync)\n/d 10.1.2.3/8(rw,sync,no_subtree_check)\n",
    );
    assert_eq!(mistakes, Vec::<String>::new());
    assert_eq!(
        warnings,
        [
            "exports:1:11: the space between \"host.x\" and its options gives them to everybody",
            "exports:2:1: \"/b\" names no clients, so everybody may read it",
            "exports:3:15: \"fsid=0\" is not taken over: handles have the share's own id, and \
             clients mount anew, those of NFSv4 by the whole path: HOST:/c for HOST:/",
            "exports:3:22: \"rw\" before it counts for nothing",
            "exports:3:25: \"async\" before it counts for nothing",
            "exports:4:4: the network \"10.1.2.3/8\" has bits set beyond its length: they are left \
             out",
        ]
    );
}

#[test]
fn async_is_of_clients_and_the_last_word_wins() {
    let text = "/a -async 10.0.0.1(rw) 10.0.0.2(rw,sync) 10.0.0.3(sync,rw,async)\n";
    let imported = read(text);
    let share = &made(&imported, DefaultsSpec::default())[0];
    let is_async: Vec<_> = share.rules.rules().iter().map(|rule| rule.grants[0].is_async).collect();
    assert_eq!(is_async, [true, false, true]);
    assert_eq!(
        export(std::slice::from_ref(share)).text,
        "/a 10.0.0.1(rw,async,no_subtree_check) 10.0.0.2(rw,sync,no_subtree_check) \
         10.0.0.3(rw,async,no_subtree_check)\n"
    );
    // For all flavours, wherever it stands: the kernel has no such flag for one alone.
    let share = &made(&read("/a *(rw,sec=sys,async,sec=none,ro)\n"), DefaultsSpec::default())[0];
    assert!(share.rules.rules()[0].grants.iter().all(|rights| rights.is_async));
    let (mistakes, warnings) = told("/a *(rw,subtree_check)\n");
    assert_eq!(mistakes, Vec::<String>::new());
    assert_eq!(
        warnings,
        [
            "exports:1:9: \"subtree_check\" is not needed: handles cannot be guessed, and tell their share"
        ]
    );
}

#[test]
fn words_before_clients_hold_for_all_that_follow() {
    let share = &shares("/a -all_squash,anonuid=5\n")[0];
    assert_eq!(share.clients, ["*"]);
    assert_eq!(share.options, ["ro", "all_squash", "anonuid=5"]);
    // A second list adds to the first, and the last is for everybody.
    let share = &shares("/a -rw 10.0.0.1 -no_root_squash 10.0.0.2(ro) -insecure\n")[0];
    let rules: Vec<_> = share.rules.iter().map(|r| (r.clients[0].as_str(), &r.options)).collect();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let expected = [
        ("10.0.0.1", words(&[])),
        ("10.0.0.2", words(&["ro", "no_root_squash"])),
        ("*", words(&["no_root_squash", "insecure"])),
    ];
    assert_eq!(rules, expected.each_ref().map(|(client, words)| (*client, words)));
    let (mistakes, _) = told("/a -sec=krb5\n");
    assert_eq!(mistakes, ["exports:1:5: Kerberos is not served yet: give sec=sys or sec=none too"]);
    // What is said after flavours in another list does not reach them, nor there.
    let share = &shares("/a -sec=sys 10.0.0.1(rw,no_root_squash)\n")[0];
    assert_eq!(share.options, ["ro"]);
}

#[test]
fn a_flavour_begins_with_what_was_said_before_it() {
    let share = &shares("/a *(rw,sec=sys,ro,all_squash,sec=none)\n")[0];
    assert_eq!(share.options, ["ro", "all_squash", "sec=sys:none"]);
    let share = &shares("/a *(sec=null,rw,sec=unix,ro)\n")[0];
    let imported = read("/a *(sec=null,rw,sec=unix,ro)\n");
    let made = made(&imported, DefaultsSpec::default());
    let grants = &made[0].rules.rules()[0].grants;
    assert_eq!(grants.len(), 2, "{share:?}");
    assert!(!grants[0].is_read_only && grants[1].is_read_only);
}

#[test]
fn addresses_with_a_length_come_after_those_without() {
    let share = &shares("/a 10.0.0.0/8(ro) 10.0.0.1/32(rw) 10.0.0.2(rw)\n")[0];
    let clients: Vec<_> = share.rules.iter().map(|rule| rule.clients[0].as_str()).collect();
    assert_eq!(clients, ["10.0.0.2", "10.0.0.0/8"]);
    let share = &shares("/a 10.0.0.1/32(rw) 10.0.0.1(ro)\n")[0];
    assert_eq!(share.options, ["ro"]);
}

#[test]
fn lines_of_one_directory_go_together_under_each_of_its_names() {
    let resolve = |path: &str| (path == "/link").then(|| "/target".to_owned());
    let text = "/link *(rw)\n/target 10.0.0.1(ro)\n";
    let inherited = Inherited::default();
    let imported = import(&[("exports", text)], "g", true, &inherited, &resolve);
    assert_eq!((imported.mistakes.as_slice(), imported.warnings.as_slice()), (&[][..], &[][..]));
    assert_eq!(imported.places, ["", "exports:1:1", "exports:1:1"]);
    let made = made(&imported, DefaultsSpec::default());
    let seen: Vec<_> = made
        .iter()
        .map(|share| {
            let rights = share.rights([10, 0, 0, 1].into()).map(|rights| rights.is_read_only);
            (&*share.path, share.directory().to_str().unwrap_or_default(), rights)
        })
        .collect();
    assert_eq!(seen, [("/target", "/target", Some(true)), ("/link", "/target", Some(true))]);
}

#[test]
fn patterns_that_can_have_no_address_are_warned_of() {
    let (mistakes, warnings) = told("/a 10.1.*(rw)\n/b 192.168.0.[0-9](rw)\n/c *.x(ro)\n");
    assert_eq!(mistakes, Vec::<String>::new());
    assert_eq!(
        warnings,
        [
            "exports:1:4: \"10.1.*\" has no address, since wildcards are for names: write \
             \"10.1.0.0/16\"",
            "exports:2:4: \"192.168.0.[0-9]\" has no address, since wildcards are for names: write \
             a network like \"10.0.0.0/8\"",
        ]
    );
}

/// The file that stands in exports(5) of nfs-utils 2.6.2, and what its text says of it.
#[test]
fn the_sample_of_the_manual_page_is_what_the_page_says() {
    let text = include_str!("sample.exports");
    let (mistakes, warnings) = told(text);
    assert_eq!(mistakes, Vec::<String>::new());
    assert_eq!(warnings, Vec::<String>::new());
    let found = shares(text);
    let told: Vec<String> = found
        .iter()
        .map(|share| {
            let rules = share.rules.iter().map(|rule| (&rule.clients, &rule.options));
            let own = (!share.clients.is_empty()).then_some((&share.clients, &share.options));
            let all = own
                .into_iter()
                .chain(rules)
                .map(|(clients, options)| format!("{}({})", clients.join("+"), options.join(",")));
            format!("{} {}", share.path, all.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        told,
        [
            "/ master() trusty(no_root_squash)",
            "/projects proj*.local.domain()",
            "/usr *.local.domain(ro) @trusted()",
            "/home/joe pc001(all_squash,anonuid=150,anongid=100)",
            "/pub *(ro,all_squash,insecure)",
            "/srv/www server+@trusted() @external(ro)",
            "/foo 2001:db8:9:e54::/64+192.0.2.0/24()",
            "/build buildhost[0-9].local.domain()",
        ]
    );
}

#[test]
fn options_mean_what_they_mean_there_whatever_is_inherited() {
    let text =
        "/a 10.0.0.1(rw,no_root_squash,anonuid=-2) 10.0.0.2(sec=sys:krb5,all_squash)\n/b *\n";
    for options in [&[][..], &["rw", "manage_gids", "all_squash"], &["sec=sys", "ro", "crossmnt"]] {
        let defaults = DefaultsSpec {
            options: options.iter().map(|word| (*word).to_owned()).collect(),
            clients: vec!["*".to_owned()],
        };
        let (inherited, _) = Inherited::default().with(&defaults.options, &defaults.clients, &[]);
        let imported = import(&[("exports", text)], "g", true, &inherited, &|_| None);
        assert_eq!(imported.mistakes, []);
        let shares = made(&imported, defaults);
        let share = shares.iter().find(|share| &*share.path == "/a").expect("a share");
        assert!(!share.crosses_mounts);
        let first = share.rights([10, 0, 0, 1].into()).expect("rights");
        let expected = Rights {
            squash: Squash::None,
            anonymous_uid: u32::MAX - 1,
            needs_privileged_port: true,
            ..Rights::default()
        };
        assert_eq!(*first, expected);
        let second = share.rights([10, 0, 0, 2].into()).expect("rights");
        assert!(second.is_read_only && second.squash == Squash::All);
        assert_eq!(share.rights([10, 0, 0, 3].into()), None);
    }
}

#[test]
fn what_exports_cannot_say_is_a_comment() {
    let text = "[[share]]\npath = \"/a\"\ndirectory = \"/b\"\nclients = [\"*\"]\n\
                [[share]]\npath = \"/c d\"\noptions = [\"none=10.0.0.1\", \"manage_gids\", \"size=5G\"]\n\
                clients = [\"10.0.0.0/8\"]\n[[share.rule]]\nclients = [\"@x\"]\noptions = [\"ro\"]\n";
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    catalog.insert(GroupFile::parse("x", text));
    let exported = export(catalog.all_served().map(|share| &**share));
    let expected = "\
        # /a: clients mount this path and get \"/b\", which exports(5) cannot say: left out\n\
        # /c\\040d: exports(5) cannot say size=5G: left out\n\
        # /c\\040d: here \"@x\" counts before \"10.0.0.0/8\", there it is the other way round\n\
        # /c\\040d: exports(5) cannot say that \"10.0.0.1\" has no access\n\
        # /c\\040d: manage_gids is an option of the whole server there\n\
        /c\\040d 10.0.0.0/8(rw,sync,no_subtree_check) \
        @x(ro,sync,no_subtree_check)\n";
    assert_eq!(exported.text, expected);
    assert_eq!(exported.warnings.len(), 5);
}

#[test]
fn flavours_are_exported_in_the_order_in_which_they_were_given() {
    for (given, exported) in [
        ("sec=krb5p:sys,rw", "sec=krb5p:sys,rw,root_squash,no_all_squash,secure"),
        (
            "sec=sys,rw,insecure,sec=krb5,ro,secure,sec=none,rw,insecure",
            "sec=sys,rw,root_squash,no_all_squash,insecure,\
             sec=krb5,ro,root_squash,no_all_squash,secure,\
             sec=none,rw,root_squash,no_all_squash,insecure",
        ),
        (
            "sec=none,rw,insecure,sec=sys,ro,secure,sec=none,insecure",
            "sec=none,rw,root_squash,no_all_squash,insecure,\
             sec=sys,ro,root_squash,no_all_squash,secure,sec=none,insecure",
        ),
    ] {
        let imported = read(&format!("/a *({given})\n"));
        assert_eq!((&*imported.mistakes, &*imported.warnings), (&[][..], &[][..]), "{given}");
        let shares = made(&imported, DefaultsSpec::default());
        let text = export(&shares).text;
        let (_, words) = text.split_once("no_subtree_check,").expect("options");
        assert_eq!(words, format!("{exported})\n"), "{given}");
        assert_eq!(made(&read(&text), DefaultsSpec::default()), shares, "{given}");
    }
}

#[test]
fn clients_of_nfs4_are_told_their_paths_below_a_former_root() {
    let text = "/srv/ex *(ro,fsid=0) 10.0.0.1(rw,fsid=0)\n/srv/ex/pub *(ro)\n/srv/exotic *\n\
                /srv/ex/bad *(what)\n/home *(fsid=7)\n";
    let (mistakes, warnings) = told(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert_eq!(
        warnings,
        [
            "exports:1:14: \"fsid=0\" is not taken over: handles have the share's own id, and clients \
             mount anew, those of NFSv4 by the whole path: HOST:/srv/ex for HOST:/, \
             HOST:/srv/ex/pub for HOST:/pub",
            "exports:5:9: \"fsid=7\" is not taken over: handles have the share's own id, and clients \
             mount anew",
        ]
    );
    // Its paths are the same.
    for root in ["fsid=0", "fsid=root", "fsid=0x0", "fsid=00"] {
        let (_, warnings) = told(&format!("/ *({root})\n/pub *\n"));
        assert!(warnings.len() == 1 && !warnings[0].contains("HOST"), "{warnings:?}");
        let (_, warnings) = told(&format!("/x *({root})\n"));
        assert!(warnings[0].ends_with("by the whole path: HOST:/x for HOST:/"), "{warnings:?}");
    }
    let many = (0..10).map(|n| format!("/r/{n} *\n")).collect::<Vec<_>>().concat();
    let (_, warnings) = told(&format!("/r *(fsid=0)\n{many}"));
    assert!(warnings[0].ends_with("HOST:/r/6 for HOST:/6, and 3 more"), "{warnings:?}");
}

#[test]
fn a_flavour_that_is_exported_has_nothing_of_those_before_it() {
    let text = "[[share]]\npath = \"/a\"\nclients = [\"*\"]\n\
                options = [\"ro\", \"sec=sys\", \"sec=krb5\", \"rw\", \"no_root_squash\", \"sec=none\"]\n";
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    catalog.insert(GroupFile::parse("x", text));
    let shares: Vec<Share> = catalog.all_served().map(|share| Share::clone(share)).collect();
    let again = made(&read(&export(&shares).text), DefaultsSpec::default());
    let rights = |share: &Share, flavor| {
        let grants = share.rules.rules()[0].grants.iter();
        let mut found = grants.filter(|rights| rights.flavors.contains(flavor));
        found.next().map(|rights| (rights.is_read_only, rights.squash)).expect("rights")
    };
    for flavor in [Flavors::SYS, Flavors::KRB5, Flavors::NONE] {
        assert_eq!(rights(&again[0], flavor), rights(&shares[0], flavor), "{flavor:?}");
    }
}

fn line() -> impl Strategy<Value = String> {
    let path = prop::sample::select(vec!["/a", "\"/b c\"", "/d\\040e", "/a/f"]);
    let option = prop::sample::select(vec![
        "rw",
        "ro",
        "no_root_squash",
        "root_squash",
        "all_squash",
        "no_all_squash",
        "anonuid=5",
        "anongid=6",
        "insecure",
        "secure",
        "sync",
        "async",
        "crossmnt",
        "sec=sys",
        "sec=krb5:sys",
        "sec=none",
        "no_subtree_check",
    ]);
    let client = prop::sample::select(vec![
        "10.0.0.1",
        "10.0.0.0/8",
        "10.1.0.0/16",
        "fd00::/8",
        "h.x",
        "*.x",
        "@g",
        "*",
        "",
        "::1",
    ]);
    let client = (client, prop::collection::vec(option, 0..5))
        .prop_map(|(client, options)| format!("{client}({})", options.join(",")));
    (path, prop::collection::vec(client, 1..6))
        .prop_map(|(path, clients)| format!("{path} {}\n", clients.join(" ")))
}

proptest! {
    #[test]
    fn what_is_exported_means_the_same_when_it_is_imported(
        lines in prop::collection::vec(line(), 1..6),
    ) {
        let imported = read(&lines.concat());
        let shares = made(&imported, DefaultsSpec::default());
        let exported = export(&shares);
        prop_assert_eq!(&exported.warnings, &vec![]);
        let again = read(&exported.text);
        prop_assert_eq!(&again.mistakes, &vec![]);
        prop_assert_eq!(&again.warnings, &vec![]);
        prop_assert_eq!(made(&again, DefaultsSpec::default()), shares, "{}", exported.text);
    }

    #[test]
    fn any_text_is_read_with_mistakes_within_it(text in "\\PC{0,80}|[/a-c \\\\\"#(),*@\n\t0-9.]{0,120}") {
        let imported = read(&text);
        for mistake in imported.mistakes.iter().chain(&imported.warnings) {
            let line: usize = mistake.place.split(':').nth(1).and_then(|n| n.parse().ok()).expect("a line");
            prop_assert!(line <= text.split('\n').count());
            prop_assert_eq!(mistake.to_string().lines().count(), 1);
        }
        made(&imported, DefaultsSpec::default());
    }
}
