//! `smb`: shares of a Samba server, in a file that its smb.conf includes.
//!
//! What Samba can say of a share is less than what we can: its rights do not depend on the
//! client, so a share that some client may only read is read-only for all; who may connect is in
//! `hosts allow`; users are Samba's own, and are not squashed. Nothing is allowed there that is not
//! allowed by NFS.

mod connected;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use steadfast_shares::{ClientPattern, ClientRule, Flavors, RuleSet};

use super::command::{Limits, last_line, run};
use super::{CommandError, Fault, Plugin, PluginShare, Task};
use crate::api::ShareStatus;
use connected::CutOff;

/// Longest name of a share that Windows takes, in characters.
const NAME_CHARS_MAX: usize = 80;
/// Sections of smb.conf that are no shares of files, or mean something else.
const RESERVED: [&str; 5] = ["global", "homes", "printers", "print$", "ipc$"];

/// Words of lists of hosts that are no hosts, in any case.
const LIST_WORDS: [&str; 4] = ["ALL", "EXCEPT", "FAIL", "LOCAL"];

/// Writes the file, has it checked, and has Samba read it.
#[derive(Debug)]
pub struct Samba {
    /// The file that smb.conf includes.
    include: PathBuf,
    /// `smbcontrol`
    control: PathBuf,
    /// `testparm`
    testparm: PathBuf,
    limits: Limits,
    /// What each path is called, for as long as it is shared.
    names: BTreeMap<String, String>,
    /// Whether Samba has read what is in the file.
    is_loaded: bool,
    /// Who has to be cut off when it has.
    cut_off: CutOff,
}

impl Samba {
    /// One that writes to this file. The names that are in it stay as they are.
    pub fn new(include: PathBuf, limits: Limits) -> Self {
        let names = std::fs::read_to_string(&include).map(|text| names_of(&text));
        Self {
            include,
            control: PathBuf::from("smbcontrol"),
            testparm: PathBuf::from("testparm"),
            limits,
            names: names.unwrap_or_default(),
            is_loaded: false,
            cut_off: CutOff::default(),
        }
    }

    /// One that talks to Samba by other programs than the `smbcontrol` and `testparm` that are found.
    #[must_use]
    pub fn with_programs(self, control: PathBuf, testparm: PathBuf) -> Self {
        Self { control, testparm, ..self }
    }

    /// Tells Samba something.
    fn tell(&self, words: &[&str]) -> Result<(), CommandError> {
        let mut command = Command::new(&self.control);
        command.arg("smbd").args(words);
        run(&mut command, Vec::new(), self.limits).map(drop)
    }

    /// Has the text checked, and puts it in the file's place.
    fn write(&self, text: &str) -> Result<(), String> {
        let mut new = self.include.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let shown = self.include.display();
        std::fs::write(&new, text)
            .map_err(|error| format!("{shown} cannot be written: {error}"))?;
        self.check(&new)?;
        std::fs::rename(&new, &self.include)
            .map_err(|error| format!("{shown} cannot be written: {error}"))
    }

    /// What Samba itself says of it, if its `testparm` is there.
    fn check(&self, file: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.testparm);
        command.args(["-s", "--suppress-prompt"]).arg(file);
        match run(&mut command, Vec::new(), self.limits) {
            Err(CommandError::Start { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
            Ok(said) => {
                let text = String::from_utf8_lossy(&said.stderr);
                let is_bad = |line: &&str| {
                    line.contains("Unknown parameter") || line.contains("Ignoring badly formed")
                };
                match text.lines().find(is_bad) {
                    Some(line) => Err(format!("testparm: {}", last_line(line.as_bytes()))),
                    None => Ok(()),
                }
            }
        }
    }

    /// What is wrong with shares that have hosts by name. As it is installed, Samba knows clients by
    /// their addresses alone: such rules would let nobody in, and nothing would say why.
    fn names_not_looked_up(&self, shares: &[Arc<PluginShare>]) -> Option<Fault> {
        let has_names = |share: &&Arc<PluginShare>| {
            let mut rules = share.share.rules.rules().iter();
            rules.any(|rule| {
                let is_name =
                    matches!(rule.pattern, ClientPattern::Host(_) | ClientPattern::Domain(_));
                is_name && !rule.grants.is_empty()
            })
        };
        let paths: Vec<String> =
            shares.iter().filter(has_names).map(|share| share.status.path.clone()).collect();
        if paths.is_empty() {
            return None;
        }
        let mut command = Command::new(&self.testparm);
        command.args(["-s", "--suppress-prompt", "--parameter-name=hostname lookups"]);
        let said = run(&mut command, Vec::new(), self.limits).ok()?;
        let why = "Samba does not look up the names of hosts: write `hostname lookups = yes` into \
                   [global] of smb.conf"
            .to_owned();
        (said.stdout.trim_ascii() == b"No").then_some(Fault { why, paths })
    }
}

impl Plugin for Samba {
    fn name(&self) -> &'static str {
        "smb"
    }

    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>> {
        let (text, mut faults) = include_text(task.shares, &mut self.names);
        faults.extend(self.names_not_looked_up(task.shares));
        let failed = |why| vec![Fault::new(why)];
        let there = std::fs::read(&self.include).unwrap_or_default();
        let there = String::from_utf8_lossy(&there);
        if there == text {
            if self.is_loaded {
                return if faults.is_empty() { Ok(()) } else { Err(faults) };
            }
        } else {
            self.is_loaded = false;
            self.write(&text).map_err(failed)?;
            self.cut_off.add(&there, &text);
        }
        let untold = |error| failed(format!("Samba was not told: {error}"));
        self.tell(&["reload-config"]).map_err(untold)?;
        // In this order, or who is cut off might come back by the old rules.
        for message in self.cut_off.messages() {
            self.tell(&message).map_err(untold)?;
        }
        self.cut_off = CutOff::default();
        self.is_loaded = true;
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// The text of the file, and what cannot be in it. `names` are those that shares had before, and
/// have after.
pub fn include_text(
    shares: &[Arc<PluginShare>],
    names: &mut BTreeMap<String, String>,
) -> (String, Vec<Fault>) {
    let mut text = String::from(
        "# Made by Steadfast, and made anew with every change: see `steadfast share list`.\n\
         # smb.conf includes it at its end.\n",
    );
    let mut faults = Vec::new();
    let statuses = || shares.iter().map(|share| &share.status);
    let paths: BTreeSet<&str> = statuses().map(|share| share.path.as_str()).collect();
    names.retain(|path, _| paths.contains(path.as_str()));
    // Who says his name has it, whoever else would be called so.
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for share in statuses() {
        if let Some(resource) = &share.resource {
            names.insert(share.path.clone(), resource.clone());
        }
    }
    let (said, made): (Vec<_>, Vec<_>) =
        shares.iter().partition(|share| share.status.resource.is_some());
    for PluginShare { status: share, share: served } in
        said.into_iter().chain(made).map(|share| &**share)
    {
        let name = match named(share, names, &taken) {
            Ok(name) => name,
            Err(why) => {
                faults.push(Fault { why, paths: vec![share.path.clone()] });
                continue;
            }
        };
        match section(share, &served.rules, &name) {
            Ok(section) => {
                taken.insert(name.to_lowercase());
                names.insert(share.path.clone(), name);
                text += &section;
            }
            Err(why) => faults.push(Fault { why, paths: vec![share.path.clone()] }),
        }
    }
    (text, faults)
}

/// What a share is called.
fn named(
    share: &ShareStatus,
    names: &BTreeMap<String, String>,
    taken: &BTreeSet<String>,
) -> Result<String, String> {
    let is_free = |name: &str| !taken.contains(&name.to_lowercase());
    if let Some(resource) = &share.resource {
        return match fitting(resource) {
            name if name != *resource => {
                Err(format!("the resource {resource:?} is no name that Samba takes; use {name:?}"))
            }
            name if is_free(&name) => Ok(name),
            _ => Err(format!("another share has the resource {resource:?} too")),
        };
    }
    if let Some(name) = names.get(&share.path).filter(|name| is_free(name)) {
        return Ok(name.clone());
    }
    let own = names.iter().filter(|(path, _)| **path != share.path);
    let others: BTreeSet<String> = own.map(|(_, name)| name.to_lowercase()).collect();
    let last = share.path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("root");
    let base = fitting(last);
    let is_new = |name: &String| is_free(name) && !others.contains(&name.to_lowercase());
    let numbered = (2_u32..).map(|number| {
        let room = NAME_CHARS_MAX - 11;
        format!("{}-{number}", base.chars().take(room).collect::<String>())
    });
    std::iter::once(base.clone())
        .chain(numbered.take(taken.len() + others.len() + 1))
        .find(is_new)
        .ok_or_else(|| "no name is free for it: give it a resource".to_owned())
}

/// A name that Samba takes, like this one.
fn fitting(name: &str) -> String {
    let mut fit: String = name
        .chars()
        .map(|c| if c.is_control() || "%<>*?|/\\+=;:\",[]".contains(c) { '_' } else { c })
        .take(NAME_CHARS_MAX)
        .collect();
    // Samba takes several blanks for one.
    fit = fit.trim().split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if fit.is_empty() || RESERVED.contains(&fit.to_lowercase().as_str()) {
        fit.push_str("_share");
    }
    fit
}

/// A section of smb.conf.
fn section(share: &ShareStatus, rules: &RuleSet, name: &str) -> Result<String, String> {
    let directory = &share.directory;
    // Samba puts other things in the place of these, and cannot be told not to; of several blanks it
    // makes one.
    if directory.contains('%')
        || directory.contains("  ")
        || directory.contains(char::is_control)
        || directory.ends_with(['\\', ' '])
    {
        return Err(format!("Samba cannot have the directory {directory:?}"));
    }
    let hosts = hosts(rules)?;
    let mut text = format!("\n[{name}]\n\tpath = {directory}\n");
    if let Some(description) = &share.description {
        let description: String =
            description.chars().map(|c| if c.is_control() || c == '%' { ' ' } else { c }).collect();
        let _ = writeln!(text, "\tcomment = {}", description.trim().trim_end_matches(['\\', ' ']));
    }
    let _ = writeln!(text, "\tread only = {}", if is_writable(rules) { "no" } else { "yes" });
    let _ = writeln!(text, "\thosts allow = {hosts}\n\thosts deny = ALL");
    Ok(text)
}

/// Whether all who may use a share may write, by whatever flavour they come.
fn is_writable(rules: &RuleSet) -> bool {
    rules.rules().iter().flat_map(|rule| &*rule.grants).all(|rights| !rights.is_read_only)
}

/// Who may connect, as `hosts allow` has it. A list cannot say that somebody on it may not, nor
/// that he has to come by Kerberos, so such shares are left out.
fn hosts(rules: &RuleSet) -> Result<String, String> {
    let mut hosts: Vec<String> = Vec::new();
    let mut denied: Vec<&ClientPattern> = Vec::new();
    for ClientRule { pattern, grants } in rules.rules() {
        let is_by_name = |flavors: Flavors| flavors.intersects(Flavors::SYS | Flavors::NONE);
        if grants.is_empty() {
            denied.push(pattern);
            continue;
        }
        if !grants.iter().any(|rights| is_by_name(rights.flavors)) {
            return Err(format!("Samba cannot be told that {pattern} has to use Kerberos"));
        }
        if let Some(denied) = denied.iter().find(|denied| may_meet(denied, pattern)) {
            return Err(format!(
                "Samba cannot be told that {denied} has no access though {pattern} has"
            ));
        }
        let host = host(pattern)?;
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if hosts.is_empty() {
        return Err("nobody has access".to_owned());
    }
    Ok(hosts.join(" "))
}

/// Whether a client may be one of both.
fn may_meet(one: &ClientPattern, other: &ClientPattern) -> bool {
    match (one, other) {
        (ClientPattern::Network { network: a, .. }, ClientPattern::Network { network: b, .. }) => {
            one.has_address(*b) || other.has_address(*a)
        }
        _ => true,
    }
}

/// A pattern as an element of such a list.
fn host(pattern: &ClientPattern) -> Result<String, String> {
    let text = pattern.to_string();
    match pattern {
        ClientPattern::Any => Ok("ALL".to_owned()),
        ClientPattern::Host(_) if LIST_WORDS.contains(&text.to_uppercase().as_str()) => {
            Err(format!("{text:?} would not be a host's name to Samba: give its address"))
        }
        ClientPattern::Domain(_) => match text.strip_prefix("*.") {
            Some(domain) if !domain.contains(['*', '?']) => Ok(format!(".{domain}")),
            _ => Err(format!("Samba has no wildcards like {text:?} in names")),
        },
        ClientPattern::Network { network: IpAddr::V6(network), prefix_bits } => {
            Ok(network_of_ipv6(*network, *prefix_bits))
        }
        ClientPattern::Host(_) | ClientPattern::Network { .. } | ClientPattern::Netgroup(_) => {
            Ok(text)
        }
    }
}

/// A network with its mask: Samba takes a length of three digits for an address of IPv4, and lets in
/// everybody who comes by IPv6.
fn network_of_ipv6(network: Ipv6Addr, prefix_bits: u8) -> String {
    match 128_u32.checked_sub(u32::from(prefix_bits)) {
        None | Some(0) => network.to_string(),
        Some(rest) => {
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            format!("{network}/{}", Ipv6Addr::from_bits(mask))
        }
    }
}

/// The names in a file that we made.
fn names_of(text: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name = Some(section);
        } else if let Some(path) = line.strip_prefix("\tpath = ")
            && let Some(name) = name.take()
        {
            names.insert(path.to_owned(), name.to_owned());
        }
    }
    names
}
