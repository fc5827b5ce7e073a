//! Plug-ins that succeed, fail, hang and talk, and the texts that they write.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use steadfast_catalog::manage::{DefaultsSpec, GroupSpec};
use steadfast_shares::{
    ClientPattern, ClientRule, Flavors, Inherited, Rights, RuleBook, RuleSpec, ShareId, Words,
};

use super::*;
use crate::api::ShareState;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn status(path: &str, protocols: &[&str]) -> ShareStatus {
    ShareStatus {
        path: path.to_owned(),
        directory: path.to_owned(),
        group: None,
        state: ShareState::Enabled,
        why: None,
        source: None,
        pattern: None,
        id: 1,
        description: None,
        resource: None,
        protocols: protocols.iter().map(|one| (*one).to_owned()).collect(),
        options: Vec::new(),
        clients: vec!["*".to_owned()],
        rules: Vec::new(),
        size_bytes: None,
        used_bytes: None,
        size_fault: None,
        plugin_faults: Vec::new(),
    }
}

/// What is said around a share.
#[derive(Default)]
struct Around {
    defaults: DefaultsSpec,
    group: GroupSpec,
}

impl Around {
    /// A share whose status has its own words, and which is served as these mean it.
    fn shared(&self, status: ShareStatus) -> Arc<PluginShare> {
        let DefaultsSpec { options, clients, .. } = &self.defaults;
        let (inherited, _) = Inherited::default().with(options, clients, &[]);
        let (inherited, _) = self.group.inherited(&inherited);
        let words =
            Words { options: &status.options, clients: &status.clients, rules: &status.rules };
        let compiled =
            RuleBook::default().compile(&Arc::new(inherited), words).expect("no mistakes");
        let share = Share {
            id: ShareId(status.id),
            path: status.path.as_str().into(),
            elsewhere: (status.directory != status.path)
                .then(|| Path::new(&status.directory).into()),
            crosses_mounts: compiled.crosses_mounts,
            required_mounts: Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: compiled.rules,
        };
        Arc::new(PluginShare { status, share: Arc::new(share) })
    }
}

fn shared(status: ShareStatus) -> Arc<PluginShare> {
    Around::default().shared(status)
}

fn one(path: &str, protocols: &[&str]) -> (String, Option<Arc<PluginShare>>) {
    (path.to_owned(), Some(shared(status(path, protocols))))
}

/// What a plug-in was called with: the paths of its shares, and of those that changed.
type Called = (Vec<String>, Option<Vec<String>>);

/// Says what it was called with, and then what it is told to say.
struct Scripted {
    name: &'static str,
    calls: mpsc::Sender<Called>,
    answers: mpsc::Receiver<Result<(), Vec<Fault>>>,
}

impl Plugin for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>> {
        let paths = task.shares.iter().map(|share| share.status.path.clone()).collect();
        let _ = self.calls.send((paths, task.changed.map(<[String]>::to_vec)));
        // Without a word it hangs.
        self.answers.recv().unwrap_or_else(|_| panic!("the test is over"))
    }
}

struct Script {
    calls: mpsc::Receiver<Called>,
    answers: mpsc::Sender<Result<(), Vec<Fault>>>,
}

impl Script {
    fn called(&self) -> (Vec<String>, Option<Vec<String>>) {
        self.calls.recv_timeout(PATIENCE).expect("a call")
    }

    fn answer(&self, answer: Result<(), Vec<Fault>>) {
        self.answers.send(answer).expect("it waits");
    }
}

fn scripted(name: &'static str) -> (Box<dyn Plugin>, Script) {
    let (calls, called) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    (Box::new(Scripted { name, calls, answers }), Script { calls: called, answers: answer })
}

fn texts(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[test]
fn a_batch_is_one_call_with_the_whole_state() {
    let (smb, script) = scripted("smb");
    let plugins = Plugins::start(vec![smb]).expect("started");
    let ticket = plugins.publish([one("/b", &["smb"]), one("/a", &["smb"]), one("/n", &[])]);
    assert_eq!(script.called(), (texts(&["/a", "/b"]), None));
    script.answer(Ok(()));
    assert!(plugins.wait(ticket, PATIENCE).is_empty());
    // Nothing for it.
    let ticket = plugins.publish([one("/m", &[]), ("/n".to_owned(), None), one("/a", &["smb"])]);
    assert!(plugins.wait(ticket, PATIENCE).is_empty());
    assert!(script.calls.try_recv().is_err());
    plugins.publish([("/a".to_owned(), None), one("/c", &["smb"])]);
    assert_eq!(script.called(), (texts(&["/b", "/c"]), Some(texts(&["/a", "/c"]))));
    script.answer(Ok(()));
    // Not served any more: not by others either.
    let disabled = ShareStatus { state: ShareState::Disabled, ..status("/b", &["smb"]) };
    plugins.publish([("/b".to_owned(), Some(shared(disabled)))]);
    assert_eq!(script.called(), (texts(&["/c"]), Some(texts(&["/b"]))));
    script.answer(Ok(()));
}

#[test]
fn one_that_hangs_or_fails_stops_no_other_and_is_tried_again() {
    let (bad, bad_script) = scripted("bad");
    let (good, good_script) = scripted("good");
    let plugins = Plugins::start(vec![bad, good]).expect("started");
    let ticket = plugins.publish([one("/a", &["bad", "good"]), one("/g", &["good"])]);
    // The first has not answered yet.
    bad_script.called();
    good_script.called();
    good_script.answer(Ok(()));
    let faults = plugins.wait(ticket, Duration::from_millis(1));
    assert_eq!((faults.len(), faults[0].plugin.as_str()), (1, "bad"));
    assert!(faults[0].why.contains("at work"));
    bad_script.answer(Err(vec![Fault { why: "no".to_owned(), paths: texts(&["/a"]) }]));
    let faults = plugins.wait(ticket, PATIENCE);
    assert_eq!(faults[0].why, "/a: no");
    assert_eq!(plugins.faults(&status("/a", &["bad", "good"]))[0].why, "no");
    assert!(plugins.faults(&status("/g", &["good"])).is_empty());
    let unknown = plugins.faults(&status("/x", &["ftp"]));
    assert!(unknown[0].why.contains("no plug-in \"ftp\""), "{unknown:?}");
    // With the next batch it is told of all that it missed; and a bug in it is a failure.
    plugins.publish([one("/b", &["bad"])]);
    assert_eq!(bad_script.called(), (texts(&["/a", "/b"]), None));
    bad_script.answer(Ok(()));
    let ticket = plugins.publish([one("/c", &["bad"])]);
    assert_eq!(bad_script.called().1, Some(texts(&["/c"])));
    drop(bad_script);
    assert!(plugins.wait(ticket, PATIENCE)[0].why.contains("bug"));
    assert!(plugins.has("good") && !plugins.has("smb"));
}

/// A program made of a line of shell.
fn program(place: &Path, name: &str, script: &str) -> PathBuf {
    let path = place.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

fn called(plugin: &mut dyn Plugin, shares: &[Arc<PluginShare>]) -> Result<(), Vec<Fault>> {
    plugin.publish(&Task { sequence: 1, shares, changed: None })
}

#[test]
fn programs_get_json_and_may_fail_hang_or_talk() {
    let place = tempfile::tempdir().expect("a directory");
    let limits = Limits { time: PATIENCE, output_bytes_max: 1 << 20 };
    let shares = [shared(status("/a", &["x"]))];
    let run = |script: &str, limits| {
        let path = program(place.path(), "x", script);
        called(&mut Executable::new("x", vec![path], limits), &shares)
    };
    let copy = place.path().join("copy");
    run(&format!("cat > {}", copy.display()), limits).expect("done");
    let input: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&copy).expect("a copy")).expect("JSON");
    assert_eq!((&input["version"], &input["plugin"]), (&1.into(), &"x".into()));
    assert_eq!(input["shares"][0]["path"], "/a");
    assert!(input["changed"].is_null());
    let access = &input["shares"][0]["access"];
    assert_eq!(access[0]["clients"], "*", "{access}");
    assert_eq!(access[0]["grants"][0]["read_only"], false, "{access}");

    let why = |result: Result<(), Vec<Fault>>| result.expect_err("a fault")[0].why.clone();
    assert!(
        why(run("echo first >&2; echo last words >&2; exit 3", limits)).ends_with("last words")
    );
    assert!(why(run("echo nonsense", limits)).contains("not understood"));
    let faults = run("echo '{\"faults\": [{\"path\": \"/a\", \"why\": \"ill\"}]}'", limits);
    assert_eq!(faults, Err(vec![Fault { why: "ill".to_owned(), paths: texts(&["/a"]) }]));
    // It does not read what it gets, and says more than anybody keeps.
    run("head -c 3000000 /dev/zero | tr '\\0' x >&2", limits).expect("done");
    assert!(why(run("head -c 3000000 /dev/zero", limits)).contains("not understood"));
    // It hangs, and so does what it started, with its pipes.
    let short = Limits { time: Duration::from_millis(200), ..limits };
    let pid = place.path().join("pid");
    let hanging = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    assert!(why(run(&hanging, short)).contains("was killed"));
    if let Ok(pid) = std::fs::read_to_string(&pid) {
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        let begun = std::time::Instant::now();
        // Gone, or dead and not yet buried.
        while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < PATIENCE, "what it started is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut missing = Executable::new("x", vec![place.path().join("none")], limits);
    assert!(why(called(&mut missing, &shares)).contains("cannot be run"));
}

#[test]
fn the_programs_of_a_directory_are_plug_ins() {
    let place = tempfile::tempdir().expect("a directory");
    program(place.path(), "list.sh", "true");
    program(place.path(), ".hidden", "true");
    std::fs::write(place.path().join("README"), "not a program").expect("written");
    let found = Executable::of_directory(place.path(), Limits::default()).expect("read");
    let names: Vec<&str> = found.iter().map(Plugin::name).collect();
    assert_eq!(names, ["list"]);
    let none = Executable::of_directory(&place.path().join("none"), Limits::default());
    assert!(none.expect("none").is_empty());
}

fn rule(clients: &str, options: &str) -> RuleSpec {
    RuleSpec { clients: texts(&[clients]), options: texts(&[options]) }
}

#[test]
fn what_is_shared_is_announced_until_the_server_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let started = |state: &str| {
        let plugin = Mdns::new(directory.path().into(), Path::new(state), 2050);
        Plugins::start(vec![Box::new(plugin)]).expect("a thread")
    };
    // The files with this in them.
    let with = |part: &str| {
        let files = std::fs::read_dir(directory.path()).expect("a directory");
        let paths = files.map(|file| file.expect("a file").path());
        let text = |path: &PathBuf| std::fs::read_to_string(path).expect("a text");
        paths.filter(|path| text(path).contains(part)).collect::<Vec<_>>()
    };
    let share = |id, path: &str| {
        (path.to_owned(), Some(shared(ShareStatus { id, ..status(path, &["mdns"]) })))
    };
    std::fs::write(directory.path().join("ssh.service"), "of somebody else").expect("written");
    let (plugins, other) = (started("/a"), started("/b"));
    other.wait(other.publish([share(1, "/other")]), PATIENCE);
    let long = format!("/{}", "x".repeat(300));
    let all = (1..=105).map(|id| share(id, &format!("/srv/{id:03}")));
    let ticket = plugins.publish(all.chain([share(200, &long), share(201, "/a\nb")]));
    assert_eq!(plugins.wait(ticket, PATIENCE).len(), 3);
    assert_eq!(with("path=/srv/001<").len(), 1);
    assert_eq!(with(">2050<").len(), 101, "not more than a network bears");

    // One that changes is seen by the seconds of its time.
    let file = with("path=/srv/002<").remove(0);
    let before = file.metadata().expect("a file").modified().expect("a time");
    let named =
        ShareStatus { id: 2, resource: Some("two".to_owned()), ..status("/srv/002", &["mdns"]) };
    let changed = [("/srv/001".to_owned(), None), ("/srv/002".to_owned(), Some(shared(named)))];
    plugins.wait(plugins.publish(changed), PATIENCE);
    assert!(with("path=/srv/001<").is_empty());
    assert_eq!(with("<name>two on "), std::slice::from_ref(&file));
    let after = file.metadata().expect("a file").modified().expect("a time");
    assert!(after >= before + Duration::from_secs(1));

    // One with nothing to announce takes nothing of others away.
    drop(started("/c"));
    drop(plugins);
    assert_eq!(with("").len(), 2);
    assert_eq!(with("path=/other<").len(), 1);
    drop(other);
    assert_eq!(with(""), [directory.path().join("ssh.service")]);
}

#[test]
fn samba_gets_sections_that_allow_no_more_than_nfs() {
    let samba = |path: &str| status(path, &["smb"]);
    let shares: Vec<Arc<PluginShare>> = [
        ShareStatus {
            description: Some("two\nlines \\".to_owned()),
            clients: texts(&["10.0.0.0/8", "*.example", "@staff"]),
            ..samba("/tank/home")
        },
        ShareStatus {
            options: texts(&["rw"]),
            rules: vec![rule("h", "ro")],
            ..samba("/other/Home")
        },
        ShareStatus { resource: Some("home".to_owned()), ..samba("/z") },
        ShareStatus { clients: texts(&["h?.x"]), ..samba("/wild") },
        samba("/%u"),
        ShareStatus { resource: Some("a/b".to_owned()), ..samba("/slash") },
        samba("/etc/global"),
    ]
    .map(shared)
    .into();
    let mut names = BTreeMap::new();
    let (text, faults) = include_text(&shares, &mut names);
    let (_, sections) = text.split_once("\n\n").expect("a head");
    assert_eq!(
        sections,
        "[home]\n\tpath = /z\n\tread only = no\n\thosts allow = ALL\n\thosts deny = ALL\n\n\
         [home-2]\n\tpath = /tank/home\n\tcomment = two lines\n\tread only = no\n\
         \thosts allow = 10.0.0.0/8 .example @staff\n\thosts deny = ALL\n\n\
         [Home-3]\n\tpath = /other/Home\n\tread only = yes\n\thosts allow = h ALL\n\
         \thosts deny = ALL\n\n\
         [global_share]\n\tpath = /etc/global\n\tread only = no\n\thosts allow = ALL\n\
         \thosts deny = ALL\n"
    );
    let of: Vec<&str> = faults.iter().map(|fault| fault.paths[0].as_str()).collect();
    assert_eq!(of, ["/slash", "/wild", "/%u"], "{faults:?}");
    // A name stays, whoever comes before or goes; and is known again at the next start.
    let rest = &shares[1..2];
    let (text, _) = include_text(rest, &mut names);
    assert!(text.contains("[Home-3]"), "{text}");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("steadfast.conf");
    std::fs::write(&file, &text).expect("written");
    let again = Samba::new(file, Limits::default());
    assert!(format!("{again:?}").contains("\"/other/Home\": \"Home-3\""), "{again:?}");
}

/// Those who are connected keep what they had, unless they are cut off when Samba has the new rules.
#[test]
fn samba_cuts_off_who_lost_something() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("calls");
    let fails = place.path().join("fails");
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {}\n[ ! -e {} ] || [ \"$2\" = reload-config ]\n",
        log.display(),
        fails.display()
    );
    let control = program(place.path(), "smbcontrol", &script);
    let calls = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let file = place.path().join("steadfast.conf");
    let samba = || {
        let plain = Samba::new(file.clone(), Limits::default());
        plain.with_programs(control.clone(), PathBuf::from("/nonexistent/testparm"))
    };
    let share = |path: &str, client: &str| {
        shared(ShareStatus { clients: texts(&[client]), ..status(path, &["smb"]) })
    };
    let mut plugin = samba();
    called(&mut plugin, &[share("/a b", "10.0.0.1"), share("/c", "10.0.0.1")]).expect("done");
    assert_eq!(calls(), ["smbd reload-config"]);
    called(&mut plugin, &[share("/a b", "10.0.0.2"), share("/c", "10.0.0.1")]).expect("done");
    assert_eq!(calls(), ["smbd reload-config", "smbd close-share a b"]);
    // It is not forgotten if it fails; and what is in the file at a start is what Samba had.
    std::fs::write(&fails, "").expect("written");
    let mut plugin = samba();
    let why = called(&mut plugin, &[share("/c", "10.0.0.1")]).expect_err("smbd cannot be told");
    assert!(why[0].why.contains("Samba was not told"), "{why:?}");
    std::fs::remove_file(&fails).expect("removed");
    calls();
    called(&mut plugin, &[share("/c", "10.0.0.1")]).expect("done");
    assert_eq!(calls(), ["smbd reload-config", "smbd close-share a b"]);
    called(&mut plugin, &[share("/c", "10.0.0.1")]).expect("done");
    assert_eq!(calls(), [""; 0]);
}

/// Without that nobody would be let in, and nothing would say why.
#[test]
fn samba_has_to_look_up_the_names_of_hosts() {
    let place = tempfile::tempdir().expect("a directory");
    let answer = place.path().join("answer");
    let script = format!(
        "#!/bin/sh\n[ $# = 3 ] && {{ case \"$3\" in --*) cat {};; esac; }}\n",
        answer.display()
    );
    let testparm = program(place.path(), "testparm", &script);
    let control = program(place.path(), "smbcontrol", "#!/bin/sh\n");
    let file = place.path().join("steadfast.conf");
    let mut plugin = Samba::new(file, Limits::default()).with_programs(control, testparm);
    let share = |path: &str, client: &str| {
        shared(ShareStatus { clients: texts(&[client]), ..status(path, &["smb"]) })
    };
    let all = [share("/a", "10.0.0.1"), share("/b", "*.example"), share("/c", "h")];
    std::fs::write(&answer, "No\n").expect("written");
    called(&mut plugin, &all[..1]).expect("addresses are known");
    let faults = called(&mut plugin, &all).expect_err("names are not");
    assert_eq!((faults.len(), &faults[0].paths[..]), (1, &texts(&["/b", "/c"])[..]));
    assert!(faults[0].why.contains("hostname lookups = yes"), "{faults:?}");
    // It is asked again.
    std::fs::write(&answer, "Yes\n").expect("written");
    called(&mut plugin, &all).expect("now they are");
}

/// Samba 4.17 takes `/112` for an address of IPv4, and lets in whoever comes by IPv6; several blanks
/// are one to it.
#[test]
fn samba_gets_what_it_reads_as_it_was_meant() {
    for (network, told) in [
        ("fd00::/64", "fd00::/ffff:ffff:ffff:ffff::"),
        ("fd00::/112", "fd00::/ffff:ffff:ffff:ffff:ffff:ffff:ffff:0"),
        ("fd00::1", "fd00::1"),
        ("10.0.0.0/9", "10.0.0.0/9"),
    ] {
        let share = shared(words(&[], &[network]));
        assert_eq!(told_to_samba(share), Ok((told.to_owned(), true)));
    }
    let spaced = |path: &str| shared(ShareStatus { ..status(path, &["smb"]) });
    let why = told_to_samba(spaced("/two  blanks")).expect_err("it would be another directory");
    assert!(why.contains("two  blanks"), "{why}");
    let resource = Some("two  blanks".to_owned());
    let named = shared(ShareStatus { resource, ..status("/x", &["smb"]) });
    let why = told_to_samba(named).expect_err("nobody could connect to it");
    assert!(why.contains("\"two blanks\""), "{why}");
}

/// What Samba is told of who may use a share and how, or why it is not told of it.
fn told_to_samba(share: Arc<PluginShare>) -> Result<(String, bool), String> {
    let (text, mut faults) = include_text(&[share], &mut BTreeMap::new());
    if let Some(fault) = faults.pop() {
        return Err(fault.why);
    }
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().strip_prefix(key));
        lines.next_back().expect("it is there").to_owned()
    };
    Ok((value("hosts allow = "), value("read only = ") == "no"))
}

fn words(options: &[&str], clients: &[&str]) -> ShareStatus {
    let (options, clients) = (texts(options), texts(clients));
    ShareStatus { options, clients, ..status("/a", &["smb", "exportfs"]) }
}

#[test]
fn what_is_inherited_and_not_used_lets_nobody_in_elsewhere() {
    let everybody = DefaultsSpec { clients: texts(&["*"]), ..DefaultsSpec::default() };
    let around = Around { defaults: everybody.clone(), ..Around::default() };
    let listed = || around.shared(words(&["rw=10.0.0.1"], &[]));
    assert_eq!(told_to_samba(listed()), Ok(("10.0.0.1".to_owned(), true)));
    let (text, faults) = exports_text(&[listed()]);
    assert!(faults.is_empty() && text.contains("/a 10.0.0.1(rw") && !text.contains('*'), "{text}");
    // An own list takes the place of an inherited one.
    let group = GroupSpec { options: texts(&["rw=10.0.0.1"]), ..GroupSpec::default() };
    let around = Around { group, ..Around::default() };
    let replaced = || around.shared(words(&["ro=10.0.0.2"], &[]));
    assert_eq!(told_to_samba(replaced()), Ok(("10.0.0.2".to_owned(), false)));
    let (text, faults) = exports_text(&[replaced()]);
    assert!(faults.is_empty() && !text.contains("10.0.0.1"), "{text}");
    // A size holds for the kernel's server, too.
    let (text, faults) = exports_text(&[shared(words(&["rw", "size=5G"], &["h"]))]);
    assert!(faults.is_empty() && text.contains("/a h(rw"), "{text} {faults:?}");
    // What is outweighed is no contradiction.
    let group = GroupSpec { options: texts(&["ro", "sec=sys"]), ..GroupSpec::default() };
    let around = Around { group, ..Around::default() };
    let outweighed = || around.shared(words(&["rw", "sec=sys"], &["h"]));
    assert_eq!(told_to_samba(outweighed()), Ok(("h".to_owned(), true)));
    let (text, faults) = exports_text(&[outweighed()]);
    assert!(faults.is_empty() && text.contains("/a h(rw"), "{text} {faults:?}");
}

#[test]
fn samba_lets_in_nobody_whom_a_rule_denies() {
    let denying = ShareStatus { rules: vec![rule("10.0.0.5", "none")], ..words(&[], &["*"]) };
    let why = told_to_samba(shared(denying)).expect_err("it cannot be said");
    assert!(why.contains("10.0.0.5") && why.contains("no access"), "{why}");
    let listed = words(&["none=10.0.0.5"], &["10.0.0.0/8"]);
    told_to_samba(shared(listed)).expect_err("it cannot be said");
    // Whom nobody would let in needs no denial.
    let elsewhere = words(&["none=10.0.0.5"], &["192.168.0.0/16"]);
    assert_eq!(told_to_samba(shared(elsewhere)), Ok(("192.168.0.0/16".to_owned(), true)));
    let later = ShareStatus { rules: vec![rule("h", "rw")], ..words(&["none"], &["*"]) };
    assert_eq!(told_to_samba(shared(later)), Ok(("h".to_owned(), true)));
    // By none of the flavours more than by another.
    let by_flavor = words(&["sec=sys", "ro", "sec=krb5", "rw"], &["*"]);
    assert_eq!(told_to_samba(shared(by_flavor)), Ok(("ALL".to_owned(), false)));
    let mut by_kerberos = PluginShare::clone(&shared(words(&[], &["*"])));
    let rights = Rights { flavors: Flavors::KRB5P, ..Rights::default() };
    let rule = ClientRule { pattern: ClientPattern::Any, grants: [rights].into() };
    Arc::make_mut(&mut by_kerberos.share).rules = Arc::new(vec![rule].into());
    told_to_samba(Arc::new(by_kerberos)).expect_err("Kerberos alone");
    told_to_samba(shared(words(&[], &["all"]))).expect_err("it would be everybody");
}

#[test]
fn the_kernels_server_gets_what_it_understands() {
    let shares: Vec<Arc<PluginShare>> = [
        ShareStatus {
            clients: texts(&["10.0.0.0/8"]),
            options: texts(&["ro", "anonuid=7"]),
            rules: vec![rule("h", "no_root_squash")],
            ..status("/a b#", &["exportfs"])
        },
        ShareStatus { directory: "/other".to_owned(), ..status("/x", &["exportfs"]) },
        // Here the network's rule counts for all of it, there the host's would.
        ShareStatus {
            clients: texts(&["192.168.0.1"]),
            rules: vec![rule("10.0.0.0/8", "ro"), rule("h", "rw")],
            ..status("/order", &["exportfs"])
        },
    ]
    .map(shared)
    .into();
    let (text, faults) = exports_text(&shares);
    let line = text.lines().nth(1).expect("a line");
    assert!(line.starts_with("/a\\040b"), "{line}");
    assert!(line.contains(" h(") && line.contains("no_root_squash"), "{line}");
    assert!(line.contains(" 10.0.0.0/8(ro,"), "{line}");
    assert_eq!(text.lines().count(), 2, "{text}");
    let of: Vec<&str> = faults.iter().map(|fault| fault.paths[0].as_str()).collect();
    assert!(of.contains(&"/x") && of.contains(&"/order"), "{faults:?}");

    // What exportfs says is told of the share that it is about.
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("steadfast.exports");
    let says = "echo 'exportfs: Failed to stat /a: No such file or directory' >&2";
    let tool = program(place.path(), "exportfs", says).to_str().expect("UTF-8").to_owned();
    let mut plugin = Exportfs::new(file.clone(), Some(vec![tool]), Limits::default());
    let faults = called(&mut plugin, &[shared(status("/a", &["exportfs"]))]);
    assert_eq!(faults.expect_err("a fault")[0].paths, ["/a"]);
    assert!(std::fs::read_to_string(&file).expect("written").contains("\n/a *("));
}
