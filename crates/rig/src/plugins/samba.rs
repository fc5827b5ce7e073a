//! What Samba makes of it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::{
    ALLOWED, ALLOWED_6, DENIED, DENIED_6, DOMAIN, HOST, INCLUDE, LOOPBACK, SMB_CONF, Site, USER,
};
use super::{Checks, PATIENCE, same};
use crate::namespace::run;

const SMB: [&str; 2] = ["--protocol", "smb"];

/// What `testparm` says of a configuration beside what it always says.
fn complaints(file: &str) -> Result<Vec<String>> {
    let output = Command::new("testparm").args(["-s", "--suppress-prompt", file]).output()?;
    let usual = [
        "Load smb config files from",
        "Loaded services file OK",
        "Weak crypto is allowed",
        "Server role:",
    ];
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim);
    let is_usual = |line: &&str| line.is_empty() || usual.iter().any(|word| line.starts_with(word));
    let mut all: Vec<String> = lines.filter(|line| !is_usual(line)).map(str::to_owned).collect();
    if !output.status.success() {
        all.push(format!("it ends with {}", output.status));
    }
    Ok(all)
}

/// What Samba has for a share's parameter.
fn parameter(share: &str, name: &str) -> Result<String> {
    let section = format!("--section-name={share}");
    let parameter = format!("--parameter-name={name}");
    let said = run("testparm", &["-s", "--suppress-prompt", &section, &parameter])?;
    Ok(said.trim_end_matches('\n').to_owned())
}

/// The shares that Samba has, with their comments.
fn listed() -> Result<Vec<(String, String)>> {
    let said = run("smbclient", &["-g", "-L", ALLOWED, "-U", USER])?;
    let disks = said.lines().filter_map(|line| line.strip_prefix("Disk|")?.split_once('|'));
    let mut all: Vec<_> = disks.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
    all.sort();
    Ok(all)
}

fn is_listed(names: &[&str]) -> Result<()> {
    let found: Vec<String> = listed()?.into_iter().map(|(name, _)| name).collect();
    same(&found.iter().map(String::as_str).collect::<Vec<_>>(), &names.to_vec())
}

/// What comes of commands in a share, for a client at an address of this machine.
fn in_share(client: &str, share: &str, commands: &str) -> Result<String> {
    run("smbclient", &[&format!("//{client}/{share}"), "-U", USER, "-c", commands])
}

fn is_let_in(client: &str, share: &str) -> Result<()> {
    let said = in_share(client, share, "ls")?;
    if said.contains("hello.txt") { Ok(()) } else { bail!("{said}") }
}

fn is_kept_out(client: &str, share: &str) -> Result<()> {
    let url = format!("//{client}/{share}");
    let output = Command::new("smbclient").args([&url, "-U", USER, "-c", "ls"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let refusals = ["NT_STATUS_ACCESS_DENIED", "NT_STATUS_BAD_NETWORK_NAME"];
    if output.status.success() || !refusals.iter().any(|word| said.contains(word)) {
        bail!("{} {said}", output.status);
    }
    Ok(())
}

/// A client that connects to a share, and does something in it when the share has changed.
struct Connected {
    client: Child,
}

impl Connected {
    fn to(share: &str) -> Result<Self> {
        let here = format!("/run/connected-{share}");
        let mut client = Command::new("smbclient")
            .args([&format!("//{ALLOWED}/{share}"), "-U", USER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let commands = client.stdin.as_mut().context("it has an input")?;
        // It obeys when it is connected; a second line would lie in its buffer until more comes.
        writeln!(commands, "!touch {here}")?;
        let begun = Instant::now();
        while !Path::new(&here).exists() {
            if begun.elapsed() > PATIENCE {
                bail!("the client does not connect");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { client })
    }

    /// What he is told when he goes on with this.
    fn goes_on(mut self, command: &str) -> Result<String> {
        let mut commands = self.client.stdin.take().context("it has an input")?;
        // If he has ended by himself, what he said is of interest.
        let _ = writeln!(commands, "{command}\nexit");
        drop(commands);
        let output = self.client.wait_with_output()?;
        let all = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&all).into_owned())
    }
}

pub(super) fn check(site: &Site, checks: &mut Checks) -> Result<()> {
    one_share(site, checks)?;
    connected(site, checks)?;
    hosts(site, checks)?;
    names(site, checks)?;
    many(site, checks)
}

/// From its first rule to its removal.
fn one_share(site: &Site, checks: &mut Checks) -> Result<()> {
    let docs = Site::directory("docs")?;
    let about = ["-c", ALLOWED, "-o", "rw", "--resource", "Docs", "-d", "Papers, 100 % of them"];
    Site::calls_of("smbcontrol")?;
    let added = site.batch(&[&["share", "add", &docs][..], &SMB, &about].concat());
    checks.now("smb: a share is added without a fault", added.map(drop));
    checks.now("smb: smbd is told once", {
        let told = Site::calls_of("smbcontrol")?;
        same(&told, &vec!["smbd reload-config".to_owned()])
    });
    checks.now("smb: testparm has nothing against the file", same(&complaints(INCLUDE)?, &vec![]));
    for (name, expected) in [
        ("path", docs.as_str()),
        ("hosts allow", ALLOWED),
        ("hosts deny", "ALL"),
        ("read only", "No"),
        ("comment", "Papers, 100 of them"),
    ] {
        let what = format!("smb: testparm says that {name:?} is {expected:?}");
        checks
            .now(&what, parameter("Docs", name).and_then(|found| same(&found.as_str(), &expected)));
    }
    checks.soon("smb: it appears in the list", || is_listed(&["Docs"]));
    checks.soon("smb: a client of the rule is let in", || is_let_in(ALLOWED, "Docs"));
    for (who, address) in [("another", DENIED), ("the machine itself", LOOPBACK)] {
        let what = format!("smb: {who}, whom no rule has, is kept out");
        checks.now(&what, is_kept_out(address, "Docs"));
    }
    checks.now("smb: who may write writes", {
        in_share(ALLOWED, "Docs", "put /etc/hostname there; ls there").map(drop)
    });
    let set = site.batch(&["share", "set", &docs, "--add-option", "ro"]);
    checks.now("smb: it is made read-only without a fault", set.map(drop));
    checks.soon("smb: then nobody writes, ...", || {
        let said = Command::new("smbclient")
            .args([&format!("//{ALLOWED}/Docs"), "-U", USER, "-c", "put /etc/hostname more"])
            .output()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if !said.contains("NT_STATUS_ACCESS_DENIED") && !said.contains("WRITE_PROTECTED") {
            bail!("{said}");
        }
        Ok(())
    });
    checks.now("smb: ... and reading goes on", is_let_in(ALLOWED, "Docs"));
    let disabled = site.batch(&["share", "disable", &docs]);
    checks.now("smb: it is disabled without a fault", disabled.map(drop));
    checks.soon("smb: a disabled share is not in the list", || is_listed(&[]));
    checks.now("smb: and nobody is let in", is_kept_out(ALLOWED, "Docs"));
    site.batch(&["share", "enable", &docs])?;
    checks.soon("smb: it comes back when it is enabled", || is_let_in(ALLOWED, "Docs"));
    let removed = site.batch(&["share", "remove", &docs]);
    checks.now("smb: it is removed without a fault", removed.map(drop));
    checks.soon("smb: nothing of it is left", || is_listed(&[]));
    Ok(())
}

/// Those who are connected when a share changes.
fn connected(site: &Site, checks: &mut Checks) -> Result<()> {
    let add = |name: &str| -> Result<String> {
        let directory = Site::directory(name)?;
        let clients = ["-c", ALLOWED, "-o", "rw"];
        site.batch(&[&["share", "add", &directory][..], &SMB, &clients].concat())?;
        Ok(directory)
    };
    let all = ["removed", "refused", "written", "other"];
    let directories = all.into_iter().map(add).collect::<Result<Vec<_>>>()?;
    let [removed, refused, written, _] = directories.as_slice() else { bail!("four") };
    for name in all {
        checks.soon(&format!("smb: {name:?} is there"), || is_let_in(ALLOWED, name));
    }
    let clients = all.into_iter().map(Connected::to).collect::<Result<Vec<_>>>()?;
    site.batch(&["share", "remove", removed])?;
    site.batch(&["share", "set", refused, "-c", DENIED])?;
    site.batch(&["share", "set", written, "--add-option", "ro"])?;
    // smbd hears of it by messages.
    std::thread::sleep(Duration::from_secs(2));
    let commands =
        ["ls", "ls", "put /etc/hostname written-later", "put /etc/hostname later\nls later"];
    let mut said = clients.into_iter().zip(commands).map(|(client, later)| client.goes_on(later));
    let mut next = || said.next().context("there are four")?;
    let (of_removed, of_refused, of_written, of_other) = (next(), next(), next(), next());
    let is_cut = |said: Result<String>| -> Result<()> {
        let said = said?;
        if said.contains("hello.txt") || !said.contains("NT_STATUS_") {
            bail!("{said}");
        }
        Ok(())
    };
    checks.now("smb: who is connected has a removed share no more", is_cut(of_removed));
    checks.now("smb: nor one that lets him in no more", is_cut(of_refused));
    checks.now("smb: nor does he write into one that became read-only", {
        of_written.and_then(|said| {
            let is_there = Path::new(written).join("written-later").exists();
            if is_there {
                bail!("he wrote: {said}");
            }
            Ok(())
        })
    });
    checks.now("smb: others who are connected notice nothing", {
        of_other.and_then(|said| if said.contains("NT_STATUS") { bail!("{said}") } else { Ok(()) })
    });
    site.batch(
        &[
            &["share", "remove"][..],
            &directories.iter().map(String::as_str).skip(1).collect::<Vec<_>>(),
        ]
        .concat(),
    )?;
    Ok(())
}

/// Rules for networks, of both kinds of addresses, and those that Samba cannot be told.
fn hosts(site: &Site, checks: &mut Checks) -> Result<()> {
    let net = Site::directory("net")?;
    site.batch(&[&["share", "add", &net][..], &SMB, &["-c", "10.88.0.0/31"]].concat())?;
    checks.soon("smb: a network has its clients", || is_let_in(ALLOWED, "net"));
    checks.now("smb: and no others, also next to it", is_kept_out(DENIED, "net"));
    for network in ["fd88::/126", "fd88:0:0:0::/64", "fd88::1", "fd88:0:0:0:0:0:0:0/112"] {
        let has_both = network.ends_with("/64") || network.ends_with("/112");
        site.batch(&["share", "set", &net, "-c", network])?;
        let clients = [(ALLOWED_6, true), (DENIED_6, has_both)];
        for (client, is_in) in clients {
            let what =
                format!("smb: {network} {} {client}", if is_in { "lets in" } else { "keeps out" });
            let look = || if is_in { is_let_in(client, "net") } else { is_kept_out(client, "net") };
            checks.soon(&what, look);
        }
        checks.now(&format!("smb: {network} keeps out others"), is_kept_out(ALLOWED, "net"));
    }
    for (rule, is_name) in [(HOST, true), (DOMAIN, true), ("other.steadfast.test", false)] {
        site.batch(&["share", "set", &net, "-c", rule])?;
        if is_name {
            checks.soon(&format!("smb: {rule} lets in {HOST}"), || is_let_in(ALLOWED, "net"));
        }
        checks.soon(&format!("smb: {rule} keeps out others"), || is_kept_out(DENIED, "net"));
    }
    let settings = std::fs::read_to_string(SMB_CONF)?;
    std::fs::write(SMB_CONF, settings.replace("hostname lookups = yes", "hostname lookups = no"))?;
    let told = site.tell(&["share", "set", &net, "-c", HOST, "--wait"])?;
    checks.now("smb: that it looks up no names is told as a fault", {
        if told.contains("hostname lookups = yes") {
            Ok(())
        } else {
            Err(anyhow::anyhow!("{told}"))
        }
    });
    std::fs::write(SMB_CONF, settings)?;
    site.batch(&["share", "set", &net, "-c", "*"])?;
    for client in [ALLOWED, DENIED, LOOPBACK, ALLOWED_6] {
        checks.soon(&format!("smb: everybody has {client}"), || is_let_in(client, "net"));
    }
    let rule = format!("{ALLOWED}:none");
    let told = site.tell(&["share", "set", &net, "--rule", &rule, "--wait"])?;
    checks.now("smb: a rule that Samba cannot have is told as a fault", {
        if told.contains("has no access") { Ok(()) } else { Err(anyhow::anyhow!("{told}")) }
    });
    checks.soon("smb: and nobody is let in", || is_kept_out(DENIED, "net"));
    site.tell(&["share", "remove", &net, "--wait"])?;
    Ok(())
}

/// Directories and names with what smb.conf has other meanings for.
fn names(site: &Site, checks: &mut Checks) -> Result<()> {
    let odd = [
        "semi;colon",
        "hash # mark",
        "quo\"te",
        "Übung",
        "back\\slash",
        "a=b",
        "it's",
        "[section]",
        " leading",
    ];
    let refused = site.tell(
        &[&["share", "add", &Site::directory("two  blanks")?, "-c", ALLOWED, "--wait"][..], &SMB]
            .concat(),
    )?;
    checks.now("smb: two blanks, of which Samba makes one, are told as a fault", {
        if refused.contains("two  blanks\"") { Ok(()) } else { Err(anyhow::anyhow!("{refused}")) }
    });
    site.tell(&["share", "remove", &Site::directory("two  blanks")?])?;
    let mut paths = Vec::new();
    for name in odd {
        let path = Site::directory(name)?;
        // Told apart by what is in it.
        std::fs::write(Path::new(&path).join("name.txt"), name)?;
        paths.push(path);
    }
    for (number, (path, name)) in paths.iter().zip(odd).enumerate() {
        let resource = format!("odd{number}");
        let words = ["-c", ALLOWED, "--resource", &resource];
        let added = site.batch(&[&["share", "add", path][..], &SMB, &words].concat());
        checks.now(
            &format!("smb: the directory {name:?} is shared without a fault"),
            added.map(drop),
        );
        checks.soon(&format!("smb: and it is this one that is served, {name:?}"), || {
            let to = format!("/run/name-{number}");
            in_share(ALLOWED, &resource, &format!("get name.txt {to}"))?;
            same(&std::fs::read_to_string(&to)?.as_str(), &name)
        });
    }
    checks.now("smb: testparm has nothing against these", same(&complaints(INCLUDE)?, &vec![]));
    let all: Vec<&str> = paths.iter().map(String::as_str).collect();
    site.batch(&[&["share", "remove"][..], &all].concat())?;

    // Names made of paths, two of them alike.
    let one = Site::directory("one/data set (2026)")?;
    let two = Site::directory("two/data set (2026)")?;
    site.batch(&[&["share", "add", &one, &two][..], &SMB, &["-c", ALLOWED]].concat())?;
    let names = ["data set (2026)", "data set (2026)-2"];
    checks.soon("smb: two shares of one name get two", || is_listed(&names));
    site.batch(&["share", "remove", &one])?;
    checks.soon("smb: the other keeps its own when the first goes", || is_listed(&names[1..]));
    site.batch(&["share", "remove", &two])?;
    Ok(())
}

/// Many at once.
fn many(site: &Site, checks: &mut Checks) -> Result<()> {
    const COUNT: usize = 200;
    let mut paths = Vec::new();
    for number in 0..COUNT {
        paths.push(Site::directory(&format!("many/m{number:03}"))?);
    }
    let all: Vec<&str> = paths.iter().map(String::as_str).collect();
    Site::calls_of("smbcontrol")?;
    Site::calls_of("testparm")?;
    let begun = Instant::now();
    site.batch(&[&["share", "add"][..], &all, &SMB, &["-c", ALLOWED]].concat())?;
    let time_s = begun.elapsed().as_secs_f64();
    checks.now(&format!("smb: {COUNT} shares in one batch ({time_s:.2} s) are one reload"), {
        let calls = (Site::calls_of("testparm")?.len(), Site::calls_of("smbcontrol")?.len());
        same(&calls, &(1, 1))
    });
    checks.soon("smb: all of them are in the list", || same(&listed()?.len(), &COUNT));
    let begun = Instant::now();
    site.batch(&[&["share", "remove"][..], &all].concat())?;
    let time_s = begun.elapsed().as_secs_f64();
    checks.now(&format!("smb: they go in one batch ({time_s:.2} s), which is one reload"), {
        let calls = Site::calls_of("smbcontrol")?;
        same(&calls.iter().filter(|call| call.ends_with("reload-config")).count(), &1)
    });
    checks.soon("smb: none is left", || is_listed(&[]));
    Ok(())
}
