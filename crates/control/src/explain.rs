//! Who may do what, and why: the rules of a share gone through one by one, as they are asked, with
//! what is known about the names in them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use steadfast_shares::{
    ClientPattern, Decision, Flavor, Known, Names, Question, Refusal, Rights, Share, Squash,
};

use crate::api::{ShareState, ShareStatus};
use crate::plain::{line, quoted};

/// A user as this host knows him.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// As he was asked about.
    pub name: String,
    /// His number.
    pub uid: u32,
    /// His groups, the first of them his own; `None`: this host does not know him.
    pub groups: Option<Vec<u32>>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// The client as it was written.
    pub client: &'a str,
    /// What is known of it: one address.
    pub address: IpAddr,
    /// The path that it mounts, or of a file.
    pub path: &'a str,
    /// The share that the path is in.
    pub share: Option<(&'a Share, &'a ShareStatus)>,
    /// Whether the share, or the pattern that made it, says itself who its clients are: it has none of its group.
    pub has_own_clients: bool,
    /// How the caller says who he is.
    pub flavor: Flavor,
    /// Whether he calls from a port below 1024.
    pub from_privileged_port: bool,
    /// The user, if one was asked about.
    pub user: Option<&'a User>,
    /// Whether NFSv2 has room for the share's handles; `None` if it is not served, or that is not known.
    pub fits_nfs2: Option<bool>,
}

/// What is known about a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookUp {
    /// What was looked up: a host, an address, a netgroup.
    pub name: String,
    /// What came of it: addresses, names, hosts; not all if they are many.
    #[serde(default)]
    pub answers: Vec<String>,
    /// How old that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<u64>,
    /// Who said it: `/etc/hosts`, `DNS`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// In a few words: `fresh`, `stale, the name server does not answer`, …
    pub state: String,
}

/// A rule that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleAsked {
    /// For whom it is.
    pub clients: String,
    /// Whether the client is one of them: `yes`, `no`, `not yet known`, `unknown`.
    pub answer: String,
    /// By what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub look_ups: Vec<LookUp>,
}

/// What the client may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsTold {
    /// No changes.
    pub read_only: bool,
    /// Whether changes are acknowledged before they are stable.
    #[serde(default)]
    pub is_async: bool,
    /// `root`, `all` or `none`.
    pub squash: String,
    /// The anonymous user.
    pub anonymous_uid: u32,
    /// The anonymous group.
    pub anonymous_gid: u32,
    /// To callers of which flavours.
    pub flavors: Vec<String>,
    /// Whether calls must come from a port below 1024.
    pub needs_privileged_port: bool,
    /// Whether a user's groups are those that the server knows.
    pub looks_up_groups: bool,
}

/// Whom the server acts as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// His number.
    pub uid: u32,
    /// His groups, the first of them his own, if they are known.
    pub groups: Option<Vec<u32>>,
    /// Whether he is another than he says.
    pub is_squashed: bool,
}

/// `GET /v1/explain`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// As it was asked about.
    pub client: String,
    /// Its address.
    pub address: String,
    /// As it was asked about.
    pub path: String,
    /// The share that the path is in.
    pub share: Option<String>,
    /// Where that one is not served: the share above it, of which the path is a part meanwhile. What follows is of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_by: Option<String>,
    /// `FILE:LINE` where that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `granted`, `refused`, or `pending`: a name is being looked up.
    pub decision: String,
    /// The rules that were asked, the last of them the one that decides.
    pub rules: Vec<RuleAsked>,
    /// The rule that decides.
    pub rule: Option<String>,
    /// What it gives.
    pub rights: Option<RightsTold>,
    /// Whom the server acts as for the user.
    pub identity: Option<Identity>,
    /// All that in plain sentences.
    pub sentences: Vec<String>,
}

/// Of all shares the one that a path is in: `has` says whether one has a path.
pub fn innermost(path: &str, has: impl Fn(&str) -> bool) -> Option<&str> {
    let mut path = path.trim_end_matches('/');
    loop {
        let candidate = if path.is_empty() { "/" } else { path };
        if has(candidate) {
            return Some(candidate);
        }
        path = path.rsplit_once('/')?.0;
    }
}

/// Answers; `look_ups` tells what is known about the names of a pattern.
pub fn explain(
    asked: &Asked<'_>,
    names: &dyn Names,
    look_ups: &dyn Fn(&ClientPattern, IpAddr) -> Vec<LookUp>,
) -> Explanation {
    let mut told = Explanation {
        client: asked.client.to_owned(),
        address: asked.address.to_string(),
        path: asked.path.to_owned(),
        decision: "refused".to_owned(),
        ..Explanation::default()
    };
    if asked.client != told.address {
        told.say(format!("{} is {}.", asked.client, asked.address));
    }
    let Some((share, status)) = asked.share else {
        told.say(format!("{} is in no share.", asked.path));
        return told;
    };
    told.share = Some(status.path.clone());
    told.source.clone_from(&status.source);
    told.say(place(asked, status));
    let question = Question {
        client: asked.address,
        flavor: asked.flavor,
        from_privileged_port: asked.from_privileged_port,
    };
    told.ask_rules(share, asked.address.to_canonical(), names, look_ups);
    let decision = share.rules.decide(&question, names);
    match decision {
        Decision::Granted(at) => {
            if let Some(rights) = share.rules.grant(at) {
                told.grant(rights, asked);
            }
            told.say_of_nfs2(asked.fits_nfs2);
        }
        Decision::Refused(refusal) => told.refuse(refusal, asked),
        Decision::Pending => {
            told.decision = String::from("pending");
            told.say(
                "Which rule decides depends on a name that is being looked up: a MOUNT waits for \
                 it, other calls are told to come again."
                    .to_owned(),
            );
        }
    }
    told.judge_state(status);
    told
}

impl Explanation {
    /// The same where the path's own share is not served, and one above it is, with what that one's rules say.
    #[must_use]
    pub fn with_outer(mut self, outer: Self) -> Self {
        let Some(by) = outer.share else { return self };
        let path = &self.path;
        self.sentences.push(format!("Meanwhile {path} is served as a part of the share {by}."));
        // Who the client is has been said.
        let is_named = self.client != self.address;
        self.sentences.extend(outer.sentences.into_iter().skip(usize::from(is_named)));
        let Self { decision, rules, rule, rights, identity, .. } = outer;
        Self { served_by: Some(by), decision, rules, rule, rights, identity, ..self }
    }

    fn say(&mut self, sentence: String) {
        self.sentences.push(sentence);
    }

    /// Asks one by one until a rule has the client.
    fn ask_rules(
        &mut self,
        share: &Share,
        client: IpAddr,
        names: &dyn Names,
        look_ups: &dyn Fn(&ClientPattern, IpAddr) -> Vec<LookUp>,
    ) {
        for rule in share.rules.rules() {
            let known = ask(&rule.pattern, client, names);
            let is_named =
                !matches!(rule.pattern, ClientPattern::Any | ClientPattern::Network { .. });
            // Networks that are not the client's say nothing, and may be thousands.
            if known == Known::No && !is_named {
                continue;
            }
            let looked_up = if is_named { look_ups(&rule.pattern, client) } else { Vec::new() };
            let clients = rule.pattern.to_string();
            if is_named || known == Known::Yes {
                self.say(sentence(&rule.pattern, client, known, &looked_up));
            }
            let answer = match known {
                Known::Yes => "yes",
                Known::No => "no",
                Known::NotYet => "not yet known",
                Known::Unreachable => "unknown",
            };
            self.rules.push(RuleAsked {
                clients: clients.clone(),
                answer: answer.to_owned(),
                look_ups: looked_up,
            });
            if known == Known::Yes {
                self.rule = Some(clients);
                return;
            }
        }
    }

    fn grant(&mut self, rights: &Rights, asked: &Asked<'_>) {
        self.decision = String::from("granted");
        if let Some(rule) = &self.rule {
            let sentence = format!("So the rule for {rule} decides.");
            self.say(sentence);
        }
        self.say(
            if rights.is_read_only {
                "It may read, and change nothing."
            } else {
                "It may read and write."
            }
            .to_owned(),
        );
        if !rights.is_read_only {
            self.say(
                if rights.is_async {
                    "Its changes are acknowledged before they are stable (async): those of the last \
                     half minute are lost if the server's machine loses its power."
                } else {
                    "Its changes are stable before they are acknowledged."
                }
                .to_owned(),
            );
        }
        self.rights = Some(RightsTold::of(rights));
        if let Some(user) = asked.user {
            self.identify(rights, user, asked.flavor);
        } else {
            self.say(match rights.squash {
                Squash::Root => format!(
                    "Its root becomes user {}, group {}; other users stay who they are.",
                    rights.anonymous_uid, rights.anonymous_gid
                ),
                Squash::All => format!(
                    "All its users become user {}, group {}.",
                    rights.anonymous_uid, rights.anonymous_gid
                ),
                Squash::None => "All its users stay who they are, root too.".to_owned(),
            });
        }
    }

    fn say_of_nfs2(&mut self, fits: Option<bool>) {
        let sentence = match fits {
            None => return,
            Some(true) => "It may mount by NFSv2 too, which knows files up to 2 GiB.",
            Some(false) => {
                "It cannot mount by NFSv2: the share's handles are too long for the 32 bytes that NFSv2 \
                 has. It can by NFSv3."
            }
        };
        self.say(sentence.to_owned());
    }

    fn identify(&mut self, rights: &Rights, user: &User, flavor: Flavor) {
        let reason = match rights.squash {
            _ if flavor == Flavor::None => Some("he does not say who he is (sec=none)"),
            Squash::All => Some("all_squash"),
            Squash::Root if user.uid == 0 => Some("root_squash"),
            Squash::Root | Squash::None => None,
        };
        let name = if user.name == user.uid.to_string() {
            format!("User {}", user.uid)
        } else {
            format!("{} (user {})", user.name, user.uid)
        };
        if let Some(reason) = reason {
            self.say(format!(
                "{name} becomes user {}, group {}: {reason}.",
                rights.anonymous_uid, rights.anonymous_gid
            ));
            self.identity = Some(Identity {
                uid: rights.anonymous_uid,
                groups: Some(vec![rights.anonymous_gid]),
                is_squashed: true,
            });
            return;
        }
        self.say(format!("{name} stays who he is."));
        // Group 0 is squashed by itself too.
        let squash = |gid: u32| {
            if gid == 0 && rights.squash == Squash::Root { rights.anonymous_gid } else { gid }
        };
        let groups = user
            .groups
            .as_ref()
            .filter(|_| rights.looks_up_groups)
            .map(|groups| groups.iter().map(|gid| squash(*gid)).collect::<Vec<_>>());
        match &groups {
            Some(groups) => {
                let list: Vec<String> = groups.iter().map(u32::to_string).collect();
                self.say(format!(
                    "His groups are those that this host knows (manage_gids): {}.",
                    list.join(", ")
                ));
            }
            None if rights.looks_up_groups => self.say(
                "This host does not know him, so his groups are those that the client says, 16 \
                 at the most."
                    .to_owned(),
            ),
            None => {
                self.say("His groups are those that the client says, 16 at the most.".to_owned());
            }
        }
        self.identity = Some(Identity { uid: user.uid, groups, is_squashed: false });
    }

    fn refuse(&mut self, refusal: Refusal, asked: &Asked<'_>) {
        let rule = self.rule.clone().unwrap_or_default();
        self.say(match refusal {
            Refusal::Client if self.rules.iter().any(|rule| rule.answer == "unknown") => {
                "No other rule is for it, and the name service is away: it is refused until that \
                 answers."
                    .to_owned()
            }
            Refusal::Client => {
                format!("No rule is for {}: it is refused.{}", asked.address, let_in(asked))
            }
            Refusal::Flavor => format!(
                "The rule for {rule} decides, and gives nothing to callers with sec={}: it is \
                 refused.",
                asked.flavor.word()
            ),
            Refusal::Port => format!(
                "The rule for {rule} decides, and wants calls from ports below 1024 (secure): it \
                 is refused."
            ),
        });
    }

    /// What the rules say counts only for a share that is served.
    fn judge_state(&mut self, status: &ShareStatus) {
        let why = status.why.as_deref().unwrap_or("see the messages of the server");
        match status.state {
            ShareState::Enabled if status.why.is_some() => self.say(format!("But {why}.")),
            ShareState::Enabled => {}
            ShareState::Draining => self.say(
                "The share is being drained: who has it mounted keeps it, nobody else can mount \
                 it."
                .to_owned(),
            ),
            ShareState::Disabled => {
                self.decision = String::from("refused");
                self.say("But the share is disabled: it serves nobody.".to_owned());
            }
            ShareState::Faulty => {
                self.decision = String::from("refused");
                self.say(format!("But the share is faulty, and serves nobody: {why}."));
            }
        }
    }
}

/// Which share it is.
fn place(asked: &Asked<'_>, status: &ShareStatus) -> String {
    let (path, share) = (asked.path, &status.path);
    let is_it = path.trim_end_matches('/') == share.trim_end_matches('/');
    let what = if is_it {
        format!("{share} is a share")
    } else {
        format!("{path} is in the share {share}")
    };
    let whose = match (&status.group, &status.source) {
        (Some(group), Some(source)) => format!(" of the group {group} ({source})"),
        (Some(group), None) => format!(" of the group {group}"),
        (None, Some(source)) => format!(" ({source})"),
        (None, None) => " of the command line".to_owned(),
    };
    let from = if status.directory == *share {
        String::new()
    } else {
        format!(", which serves {}", status.directory)
    };
    format!("{what}{whose}{from}.")
}

fn ask(pattern: &ClientPattern, client: IpAddr, names: &dyn Names) -> Known {
    match pattern {
        ClientPattern::Any | ClientPattern::Network { .. } => {
            if pattern.has_address(client) {
                Known::Yes
            } else {
                Known::No
            }
        }
        ClientPattern::Host(host) => names.is_host(host, client),
        ClientPattern::Domain(domain) => names.is_in_domain(domain, client),
        ClientPattern::Netgroup(netgroup) => names.is_in_netgroup(netgroup, client),
    }
}

/// What a rule's pattern says about the client.
fn sentence(pattern: &ClientPattern, client: IpAddr, known: Known, look_ups: &[LookUp]) -> String {
    let is_so = match (known, pattern) {
        (Known::Yes, ClientPattern::Any) => return "* is everybody.".to_owned(),
        (Known::Yes, ClientPattern::Network { prefix_bits, network }) => {
            let is_one = *prefix_bits == if network.is_ipv4() { 32 } else { 128 };
            return if is_one {
                format!("{pattern} is its own address.")
            } else {
                format!("{client} is in the network {pattern}.")
            };
        }
        (Known::Yes, ClientPattern::Host(_)) => format!("{pattern} has the address {client}"),
        (Known::Yes, ClientPattern::Domain(_)) => format!("{client} has a name like {pattern}"),
        (Known::Yes, ClientPattern::Netgroup(_)) => format!("{client} is a host of {pattern}"),
        (Known::No, ClientPattern::Host(_)) => {
            format!("{pattern} has other addresses than {client}")
        }
        (Known::No, ClientPattern::Domain(_)) => format!("{client} has no name like {pattern}"),
        (Known::No, _) => format!("{client} is no host of {pattern}"),
        (Known::NotYet, _) => format!("whether {client} is {pattern} is being looked up"),
        (Known::Unreachable, _) => {
            format!("whether {client} is {pattern} is not known, as the name service is away")
        }
    };
    let mut sentence = is_so;
    for (index, look_up) in look_ups.iter().enumerate() {
        sentence += if index == 0 { ": " } else { "; " };
        sentence += &look_up.to_string();
    }
    sentence + "."
}

impl std::fmt::Display for LookUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// More would hide what else is told.
        const ANSWERS_MAX: usize = 4;
        write!(f, "{} ", self.name)?;
        if self.answers.is_empty() {
            f.write_str("has no answer")?;
        } else {
            let shown = self.answers.get(..ANSWERS_MAX).unwrap_or(&self.answers);
            write!(f, "is {}", shown.join(", "))?;
            if self.answers.len() > shown.len() {
                write!(f, " and {} more", self.answers.len() - shown.len())?;
            }
        }
        if let Some(source) = &self.source {
            write!(f, " by {source}")?;
        }
        if let Some(age_s) = self.age_s {
            write!(f, ", {} ago", duration(age_s))?;
        }
        if self.state.is_empty() { Ok(()) } else { write!(f, " ({})", self.state) }
    }
}

/// A time for people.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl RightsTold {
    /// Rights as they are told.
    pub fn of(rights: &Rights) -> Self {
        Self {
            read_only: rights.is_read_only,
            is_async: rights.is_async,
            squash: match rights.squash {
                Squash::Root => "root",
                Squash::All => "all",
                Squash::None => "none",
            }
            .to_owned(),
            anonymous_uid: rights.anonymous_uid,
            anonymous_gid: rights.anonymous_gid,
            flavors: rights.flavors.iter().map(|flavor| flavor.word().to_owned()).collect(),
            needs_privileged_port: rights.needs_privileged_port,
            looks_up_groups: rights.looks_up_groups,
        }
    }
}

/// How a client that has no rule is let in. Empty if the share is not in a file that commands change.
fn let_in(asked: &Asked<'_>) -> String {
    let Some((_, status)) = asked.share else { return String::new() };
    let Some(group) = &status.group else { return String::new() };
    let client = asked.address;
    match &status.pattern {
        // With a list of its own a share would miss later changes of its group.
        _ if !asked.has_own_clients => format!(
            " To let it into all shares that have the clients of the group {}: steadfast group set \
             {} --add-client {client}",
            line(group),
            quoted(group)
        ),
        None => format!(
            " To let it in: steadfast share set {} --add-client {client}",
            quoted(&status.path)
        ),
        // No command changes a pattern.
        Some(pattern) => format!(
            " To let it in, add it to the clients of the pattern {} of the group {}.",
            line(pattern),
            line(group)
        ),
    }
}

#[cfg(test)]
mod tests;
