//! Unit and property tests of the configuration file: what is read, and that each mistake is
//! told at its place.

use proptest::prelude::*;
use steadfast_shares::{ShareId, Squash};

use super::{Configuration, LogTarget};

/// Mistakes as they are printed.
fn mistakes(text: &str) -> Vec<String> {
    let errors = Configuration::parse(text).expect_err("a mistake");
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn one_mistake(text: &str, expected: &str) {
    assert_eq!(mistakes(text), [expected], "in {text}");
}

const SHARE: &str = "[[share]]\npath = \"/a\"\nclients = [\"*\"]\n";

#[test]
fn an_empty_file_is_a_configuration() {
    assert_eq!(Configuration::parse(""), Ok(Configuration::default()));
}

#[test]
fn everything_is_read() {
    let text = r#"
        [server]
        listen = ["0.0.0.0:2049", "[::]:2049"]
        udp = false
        rpcbind = true
        state_directory = "/var/lib/elsewhere"
        connections_max = 10_000
        idle_timeout_s = 360
        share_idle_s = 0
        transfer_bytes_max = 0x100000
        pools = 2
        pool_cpus = ["0-1,4", "2,3"]
        busy_poll_us = 50
        congestion_control = "of-15.letters_x"
        reply_cache_history_s = 90
        workers_max = 64
        descriptors_max = 4096
        reply_cache_bytes_max = 67108864
        log = "journald"
        log_filter = "debug"

        [defaults]
        options = ["ro", "anonuid=1"]
        clients = ["10.0.0.0/8"]

        [[share]]
        path = "/first//place/"

        [[share]]
        path = "/second"
        directory = "/srv/data"
        id = 18446744073709551615
        options = ["rw", "crossmnt"]
        clients = ["*"]
        [[share.rule]]
        clients = ["192.168.1.5", "fd00::/8"]
        options = ["ro", "no_root_squash"]
    "#;
    let configuration = Configuration::parse(text).expect("no mistakes");
    let server = &configuration.server;
    assert_eq!(server.listen.as_ref().map(Vec::len), Some(2));
    assert_eq!(server.udp, Some(false));
    assert_eq!(server.transfer_bytes_max, Some(1 << 20));
    assert_eq!(server.share_idle_s, Some(0));
    assert_eq!(server.busy_poll_us, Some(50));
    assert_eq!(server.congestion_control.as_deref(), Some("of-15.letters_x"));
    assert_eq!(server.reply_cache_history_s, Some(90));
    assert_eq!(server.pool_cpus, Some(vec![vec![0, 1, 4], vec![2, 3]]));
    assert_eq!(server.log, Some(LogTarget::Journald));

    let [first, second] = configuration.shares.as_slice() else { panic!("two shares") };
    assert_eq!(&*first.share.path, "/first/place");
    assert_eq!(first.share.id, ShareId::of_path("/first/place"));
    let rights = first.share.rights([10, 1, 1, 1].into()).expect("rights");
    assert!(rights.is_read_only && rights.anonymous_uid == 1);
    assert_eq!(first.share.rights([11, 1, 1, 1].into()), None);

    assert_eq!(second.share.id, ShareId(u64::MAX));
    assert_eq!(second.share.directory().to_str(), Some("/srv/data"));
    assert!(second.share.crosses_mounts);
    // The first match decides, and the particular rule is asked before the share's own list.
    let rights = second.share.rights([192, 168, 1, 5].into()).expect("rights");
    assert!(rights.is_read_only && rights.squash == Squash::None && rights.anonymous_uid == 1);
    let rights = second.share.rights([192, 168, 1, 6].into()).expect("rights");
    assert!(!rights.is_read_only && rights.squash == Squash::Root && rights.anonymous_uid == 1);
    assert_eq!(second.share.rules.rules().len(), 3);
}

#[test]
fn unknown_keys_are_told_with_the_nearest_one() {
    one_mistake(
        "[server]\n  lisen = [\"[::]:2049\"]\n",
        "2:3: unknown key \"lisen\" in [server]; did you mean \"listen\"?",
    );
    one_mistake(
        &format!("{SHARE}client = 1\n"),
        "4:1: unknown key \"client\" in [[share]]; did you mean \"clients\"?",
    );
    one_mistake("[sever]\n", "1:2: unknown key \"sever\" in the file; did you mean \"server\"?");
    one_mistake("frobnicate = 1\n", "1:1: unknown key \"frobnicate\" in the file");
}

#[test]
fn wrong_types_are_told() {
    one_mistake("[server]\nudp = \"yes\"\n", "2:7: udp must be true or false, not a string");
    one_mistake("[server]\npools = 1.5\n", "2:9: pools must be an integer, not a float");
    one_mistake("server = 1\n", "1:10: server must be a table: [server], not an integer");
    one_mistake(
        "[share]\npath = \"/a\"\n",
        "1:1: share must be an array of tables: [[share]], not a table",
    );
    one_mistake(
        &format!("{SHARE}options = \"rw\"\n"),
        "4:11: options must be an array of strings: [\"…\", \"…\"], not a string",
    );
    one_mistake(
        &format!("{SHARE}options = [\"rw\", 1]\n"),
        "4:18: each of options must be a string, not an integer",
    );
}

#[test]
fn values_are_bounded() {
    one_mistake("[server]\npools = 0\n", "2:9: pools must be from 1 to 64");
    one_mistake("[server]\npools = -1\n", "2:9: pools must be from 1 to 64");
    one_mistake(
        "[server]\ntransfer_bytes_max = 5000\n",
        "2:22: transfer_bytes_max must be a multiple of 4096; did you mean \"8192\"?",
    );
    one_mistake(
        "[server]\npool_cpus = [\"0-99999999\"]\n",
        "2:14: \"0-99999999\" is not a list of CPUs like \"0-3,8\"",
    );
    one_mistake(
        "[server]\npools = 3\npool_cpus = [\"0\"]\n",
        "3:13: pool_cpus names 1 pools, pools says 3",
    );
    one_mistake(
        "[server]\nlisten = [\"0.0.0.0:2049\", \"::\"]\n",
        "2:27: \"::\" is not an address with a port; did you mean \"[::]:2049\"?",
    );
}

#[test]
fn options_and_clients_are_told_at_their_place() {
    one_mistake(
        &format!("{SHARE}options = [\"rw\", \"no_rot_squash\"]\n"),
        "4:18: unknown option \"no_rot_squash\"; did you mean \"no_root_squash\"?",
    );
    one_mistake(
        &format!("{SHARE}options = [\"async\", \"sync\"]\n"),
        "4:21: \"sync\" contradicts \"async\" before it",
    );
    one_mistake(
        &format!("{SHARE}options = [\"rw\", \"ro\"]\n"),
        "4:18: \"ro\" contradicts \"rw\" before it",
    );
    one_mistake(
        "[[share]]\npath = \"/a\"\nclients = [\"*\",\n  \"10.1.0.0/8\"]\n",
        "4:3: the network \"10.1.0.0/8\" has bits set beyond its length; did you mean \
         \"10.0.0.0/8\"?",
    );
    one_mistake(
        &format!("{SHARE}[[share.rule]]\noptions = [\"ro\"]\n"),
        "4:1: the rule has no clients",
    );
    one_mistake(
        &format!("{SHARE}[[share.rule]]\nclients = [\"::1\"]\noptions = [\"crossmnt\"]\n"),
        "6:12: crossmnt holds for a share as a whole: write it there",
    );
}

#[test]
fn one_mistake_is_told_once() {
    one_mistake(
        "[[share]]\npath = \"/a\"\nclients = []\n",
        "3:11: the list of clients is empty: write [\"*\"] for everybody",
    );
    one_mistake(
        "[[share]]\npath = 1\nclients = [\"*\"]\n",
        "2:8: path must be a string, not an integer",
    );
    one_mistake("[[share]]\npath = \"\"\nclients = [\"*\"]\n", "2:8: path must not be empty");
}

#[test]
fn shares_need_a_path_and_clients() {
    one_mistake("[[share]]\nclients = [\"*\"]\n", "1:1: the share has no path");
    let text = "[[share]]\npath = \"/a\"\n";
    assert!(mistakes(text)[0].starts_with("1:1: the share has no clients"), "{:?}", mistakes(text));
    one_mistake(
        "[[share]]\npath = \"a/b\"\nclients = [\"*\"]\n",
        "2:8: path \"a/b\" must be absolute; did you mean \"/a/b\"?",
    );
    one_mistake(
        "[[share]]\npath = \"/a/../b\"\nclients = [\"*\"]\n",
        "2:8: path \"/a/../b\" must not have \".\" or \"..\" in it",
    );
}

#[test]
fn default_clients_are_for_shares_that_name_none() {
    let rule = "[[share.rule]]\nclients = [\"192.0.2.1\"]\n";
    let with_defaults = |share: &str| {
        let text = "[defaults]\nclients = [\"10.0.0.0/8\"]\n[[share]]\npath = \"/a\"\n".to_owned();
        let configuration = Configuration::parse(&(text + share)).expect("no mistakes");
        let share = &configuration.shares[0].share;
        let is_let_in = |address: [u8; 4]| share.rights(address.into()).is_some();
        (is_let_in([10, 0, 0, 1]), is_let_in([192, 0, 2, 1]), is_let_in([192, 0, 2, 2]))
    };
    assert_eq!(with_defaults(""), (true, false, false));
    assert_eq!(with_defaults("clients = [\"192.0.2.0/24\"]\n"), (false, true, true));
    assert_eq!(with_defaults(rule), (false, true, false));
    assert_eq!(
        with_defaults(&format!("clients = [\"192.0.2.0/24\"]\n{rule}")),
        (false, true, true)
    );
}

#[test]
fn a_rule_that_can_never_match_is_told() {
    let rule = |clients: &str| format!("[[share.rule]]\nclients = [{clients}]\n");
    one_mistake(
        &format!(
            "{SHARE}{}{}",
            rule("\"10.0.0.0/8\", \"fd00::/8\""),
            rule("\"::1\", \"10.1.0.0/16\"")
        ),
        "7:19: \"10.1.0.0/16\" can never match: \"10.0.0.0/8\" at line 5 covers it, and the \
         first match decides",
    );
    // The share's own clients come last, wherever they are written.
    one_mistake(
        &format!("{SHARE}{}", rule("\"*\"")),
        "3:12: \"*\" can never match: \"*\" at line 5 covers it, and the first match decides",
    );
    // In one list the same is said of both.
    let text = "[[share]]\npath = \"/a\"\nclients = [\"10.0.0.0/8\", \"10.1.2.3\", \"*\"]\n";
    assert!(Configuration::parse(text).is_ok());
}

#[test]
fn settings_are_the_same_wherever_they_are_written() {
    let parse = |text: &str| Configuration::parse(text).expect("no mistakes").server;
    let text = "[server]\nstate_directory = \"/var/lib/a\"\nlog_filter = \"debug\"\n";
    assert_eq!(parse(text), parse(&format!("# A comment.\n\n{text}")));
    assert_ne!(parse(text), parse(&text.replace("/a", "/b")));
    assert_ne!(parse(text), parse(&text.replace("debug", "info")));
}

#[test]
fn duplicates_are_refused() {
    one_mistake(
        &format!("{SHARE}\n[[share]]\npath = \"/a/\"\nclients = [\"*\"]\n"),
        "6:8: the path \"/a\" is shared twice, first in line 2",
    );
    one_mistake(
        "[[share]]\npath = \"/a\"\nclients = [\"*\"]\nid = 7\n\
         [[share]]\npath = \"/b\"\nclients = [\"*\"]\nid = 7\n",
        "8:6: the share \"/b\" has the same id as \"/a\" in line 4: write another `id = NUMBER`",
    );
}

#[test]
fn all_mistakes_are_told_at_once_in_their_order() {
    let text = "[server]\nudp = 1\n[defaults]\noptions = [\"rww\"]\n\
                [[share]]\npath = \"x\"\nclients = [\"no where\"]\n[typo]\n";
    let places: Vec<_> = Configuration::parse(text)
        .expect_err("mistakes")
        .iter()
        .map(|error| (error.place.line, error.place.column))
        .collect();
    assert_eq!(places, [(2, 7), (4, 12), (6, 8), (7, 12), (8, 2)]);
}

#[test]
fn mistakes_of_syntax_have_a_place_and_one_line() {
    let errors = Configuration::parse("[server]\nudp = = true\n").expect_err("a mistake");
    assert_eq!(errors[0].place.line, 2);
    for error in errors {
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn the_list_of_mistakes_is_bounded() {
    let lines: Vec<_> = (0..10_000).map(|n| format!("key{n} = 1")).collect();
    let text = lines.join("\n");
    let errors = Configuration::parse(&text).expect_err("mistakes");
    assert_eq!(errors.len(), super::ERRORS_MAX);
}

proptest! {
    #[test]
    fn any_text_gives_a_configuration_or_mistakes_within_it(text in "\\PC{0,200}") {
        check_places(&text)?;
    }

    #[test]
    fn text_like_a_configuration_too(
        lines in proptest::collection::vec(prop_oneof![
            Just("[server]"), Just("[defaults]"), Just("[[share]]"), Just("[[share.rule]]"),
            Just("path = \"/a\""), Just("path = \"ü/../b\""), Just("clients = [\"*\", \"é\"]"),
            Just("clients = \"*\""), Just("options = [\"ro\", \"sync\", \"anonuid=x\"]"),
            Just("id = 5"), Just("id = -5"), Just("udp = true"), Just("listen = [\"::1\"]"),
            Just("directory = \"\"\"\n/b\"\"\""), Just("# comment"), Just("bad"), Just("= 1"),
        ], 0..30),
    ) {
        check_places(&lines.join("\n"))?;
    }

    /// A mistake planted behind any number of good shares, empty lines and characters of several
    /// bytes is told exactly where it is.
    #[test]
    fn a_planted_mistake_is_found_where_it_is(
        good in 0_usize..20,
        gap in 0_usize..5,
        indent in 0_usize..6,
        comment in "[a-zäöü€]{0,20}",
        (bad, column) in prop_oneof![
            Just(("opitons = [\"rw\"]", 1)),
            Just(("options = [ \"nö\" ]", 13)),
            Just(("id = \"seven\"", 6)),
            Just(("directory = \"relative\"", 13)),
            Just(("clients = [\"€uro\", \"*\"]", 12)),
        ],
    ) {
        let mut text = String::new();
        for n in 0..good {
            let share = format!("[[share]]\npath = \"/good/{n}\"\nclients = [\"::1\"]");
            text = [&text, "# ", &comment, "\n", &share, "\n"].concat();
        }
        text += &"\n".repeat(gap);
        text += "[[share]]\npath = \"/€/bad\"\n";
        let line = text.lines().count() + 1;
        text += &" ".repeat(indent);
        text += bad;
        text += "\n";
        if !bad.starts_with("clients") {
            text += "clients = [\"*\"]\n";
        }
        let errors = Configuration::parse(&text).expect_err("the mistake");
        prop_assert_eq!(errors.len(), 1, "{:?}", errors);
        prop_assert_eq!(errors[0].place.line, line);
        prop_assert_eq!(errors[0].place.column, column + indent);
    }
}

fn check_places(text: &str) -> Result<(), TestCaseError> {
    let Err(errors) = Configuration::parse(text) else { return Ok(()) };
    prop_assert!(!errors.is_empty());
    for error in errors {
        let lines = text.split('\n').count();
        prop_assert!((1..=lines).contains(&error.place.line), "{}", error);
        let line = text.split('\n').nth(error.place.line - 1).unwrap_or_default();
        prop_assert!(error.place.column <= line.chars().count() + 1, "{} in {:?}", error, line);
        prop_assert_eq!(error.to_string().lines().count(), 1);
    }
    Ok(())
}

#[test]
fn plug_ins_and_sockets_for_tools_are_read() {
    let text = r#"
        [server]
        control_socket = "/run/steadfast/control.sock"
        control_listen = "127.0.0.1:2050"
        admin_group = "operators"
        [plugin.smb]
        include = "/etc/samba/steadfast.conf"
        [plugin.exportfs]
        file = "/etc/exports.d/steadfast.exports"
        timeout_s = 60
        [plugin.mdns]
        directory = "/etc/avahi/services"
        [plugin.list]
        command = ["/bin/list", "x"]
    "#;
    let configuration = Configuration::parse(text).expect("no mistakes");
    let plugins = &configuration.plugins;
    let names: Vec<&str> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(names, ["exportfs", "list", "mdns", "smb"]);
    assert_eq!(plugins[0].timeout_s, Some(60));
    assert!(configuration.server.control_listen.is_some());
    assert!(configuration.server.admin_group.is_some_and(|group| group.value == "operators"));
}

#[test]
fn mistakes_about_plug_ins_and_sockets_are_told() {
    for (text, expected) in [
        ("[plugin.smb]\n", "needs `include"),
        ("[plugin.smb]\ninclude = \"a\"\n", "must be absolute"),
        ("[plugin.smb]\ninclude = \"/a\"\nincldue = 1\n", "did you mean \"include\"?"),
        ("[plugin.exportfs]\nfile = \"/etc/exports.d/x\"\n", "end in .exports"),
        ("[plugin.mdns]\n", "needs `directory"),
        ("[plugin.x]\n", "[plugin.x] needs `command"),
        ("[plugin.x]\ncommand = []\n", "empty"),
        ("[plugin.x]\ncommand = [\"x\"]\n", "absolute path"),
        ("[plugin.nfs]\ncommand = [\"/x\"]\n", "no name of a plug-in"),
        ("[server]\nadmin_group = \"g\"\n", "needs control_socket"),
        ("[server]\ncontrol_listen = \"localhost\"\n", "not an address with a port"),
        ("[server]\ncongestion_control = \"\"\n", "no name of a congestion control"),
        ("[server]\ncongestion_control = \"of_16_letters_xx\"\n", "no name of a congestion"),
        ("[server]\ncongestion_control = \"cubic bbr\"\n", "no name of a congestion"),
    ] {
        let mistakes = mistakes(text);
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{text}: {mistakes:?}");
    }
}
