//! From shares to exports(5).

use std::fmt::Write;

use steadfast_shares::{
    Access, ClientPattern, ClientRule, Flavors, Rights, Share, ShareOptions, Squash, sec,
};

use super::{entry_defaults, precedence};

/// Shares as exports(5) has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The text. What could not be said stands in it as comments.
    pub text: String,
    /// What could not be said, with the share's path.
    pub warnings: Vec<(String, String)>,
}

/// What a file of exports(5) begins with that is made of shares here.
pub const HEAD: &str = "\
# Shares here have no fsid=, so none is given. By it clients of the former server find what they have mounted:
# copy it from the former file, if that had one.
";

/// Tells shares as exports(5) does.
pub fn export<'a>(shares: impl IntoIterator<Item = &'a Share>) -> Exported {
    let mut exported = Exported::default();
    for share in shares {
        let (line, warnings) = entry(share);
        for warning in warnings {
            let _ = writeln!(exported.text, "# {}: {warning}", escaped(&share.path));
            exported.warnings.push((share.path.to_string(), warning));
        }
        exported.text += &line;
    }
    exported
}

/// The line of a share, and what it does not say.
fn entry(share: &Share) -> (String, Vec<String>) {
    let mut warnings = Vec::new();
    if let Some(directory) = &share.elsewhere {
        let directory = directory.display().to_string();
        warnings.push(format!(
            "clients mount this path and get {directory:?}, which exports(5) cannot say: left out"
        ));
        return (String::new(), warnings);
    }
    if let Some(size) = share.size {
        warnings.push(format!("exports(5) cannot say size={size}: left out"));
    }
    let rules = share.rules.rules();
    let mut sorted: Vec<(usize, &ClientRule)> = rules.iter().enumerate().collect();
    sorted.sort_by_key(|(_, rule)| precedence(&rule.pattern, is_network(&rule.pattern)));
    if let Some((first, later)) = misplaced(&sorted) {
        warnings.push(format!(
            "here {:?} counts before {:?}, there it is the other way round",
            first.pattern.to_string(),
            later.pattern.to_string()
        ));
    }
    let mut line = escaped(&share.path);
    let mut has_clients = false;
    for (_, rule) in &sorted {
        if rule.grants.is_empty() {
            warnings.push(format!(
                "exports(5) cannot say that {:?} has no access",
                rule.pattern.to_string()
            ));
            continue;
        }
        has_clients = true;
        let (words, warning) = options(share, rule);
        warnings.extend(warning);
        let _ = write!(line, " {}({})", client(&rule.pattern), words.join(","));
    }
    if rules.iter().any(|rule| rule.grants.iter().any(|rights| rights.looks_up_groups)) {
        warnings.push("manage_gids is an option of the whole server there".to_owned());
    }
    if !has_clients {
        // Without clients everybody might use it.
        return (String::new(), warnings);
    }
    line.push('\n');
    (line, warnings)
}

/// Two rules that are asked in another order there, if that might make a difference.
fn misplaced<'a>(sorted: &[(usize, &'a ClientRule)]) -> Option<(&'a ClientRule, &'a ClientRule)> {
    if sorted.is_sorted_by_key(|(index, _)| *index) {
        return None;
    }
    for (place, (index, rule)) in sorted.iter().enumerate() {
        let overtaken = sorted.get(place + 1..)?.iter().find(|(other, later)| {
            other < index && later.grants != rule.grants && may_meet(&later.pattern, &rule.pattern)
        });
        if let Some((_, first)) = overtaken {
            return Some((first, rule));
        }
    }
    None
}

/// Whether a client may be one of both.
fn may_meet(a: &ClientPattern, b: &ClientPattern) -> bool {
    match (a, b) {
        (
            ClientPattern::Network { network: one, .. },
            ClientPattern::Network { network: other, .. },
        ) => a.has_address(*other) || b.has_address(*one),
        _ => true,
    }
}

/// Whether a pattern is told with a length.
fn is_network(pattern: &ClientPattern) -> bool {
    pattern.to_string().contains('/')
}

fn client(pattern: &ClientPattern) -> String {
    escaped(&pattern.to_string())
}

/// The words of a client's options, and what they do not say.
fn options(share: &Share, rule: &ClientRule) -> (Vec<String>, Option<String>) {
    let base = ShareOptions {
        crosses_mounts: share.crosses_mounts,
        required_mounts: share.required_mounts.to_vec(),
        access: rule.grants.first().map(access).unwrap_or_default(),
        ..ShareOptions::default()
    };
    let mut words = base.words(&entry_defaults());
    if !words.iter().any(|word| word == "rw") {
        words.insert(0, "ro".to_owned());
    }
    if !words.iter().any(|word| word == "async") {
        words.insert(1.min(words.len()), "sync".to_owned());
    }
    words.push("no_subtree_check".to_owned());
    if matches!(&*rule.grants, [one] if one.flavors == Flavors::default()) {
        return (words, None);
    }
    // A flavour begins there with what was said of those before it, so everything is said of each.
    let ids = |rights: &Rights| (rights.anonymous_uid, rights.anonymous_gid, rights.is_async);
    let first = rule.grants.first().map(ids);
    let grants: Vec<&Rights> =
        rule.grants.iter().filter(|rights| Some(ids(rights)) == first).collect();
    let warning = (grants.len() < rule.grants.len()).then(|| {
        format!(
            "{:?} has one anonymous user, and sync or async, for all flavours there: those with \
             another one are left out",
            rule.pattern.to_string()
        )
    });
    for rights in &grants {
        let choose =
            |is_so, yes: &str, no: &str| if is_so { yes.to_owned() } else { no.to_owned() };
        words.extend([
            sec(rights.flavors),
            choose(rights.is_read_only, "ro", "rw"),
            choose(rights.squash == Squash::None, "no_root_squash", "root_squash"),
            choose(rights.squash == Squash::All, "all_squash", "no_all_squash"),
            choose(rights.needs_privileged_port, "secure", "insecure"),
        ]);
    }
    // What is said of ports last holds for the entry. To say it again keeps the flavours in their order, of which
    // clients of the kernel's server take the first that they can.
    let insecure = grants.iter().find(|rights| !rights.needs_privileged_port);
    if let (Some(first), true) =
        (insecure, grants.last().is_some_and(|last| last.needs_privileged_port))
    {
        words.extend([sec(first.flavors), "insecure".to_owned()]);
    }
    (words, warning)
}

fn access(rights: &Rights) -> Access {
    Access {
        is_denied: false,
        is_read_only: rights.is_read_only,
        is_async: rights.is_async,
        squashes_root: rights.squash != Squash::None,
        squashes_all: rights.squash == Squash::All,
        anonymous_uid: rights.anonymous_uid,
        anonymous_gid: rights.anonymous_gid,
        needs_privileged_port: rights.needs_privileged_port,
        // Told apart.
        looks_up_groups: false,
    }
}

/// A word with the characters that would end it as octal numbers.
fn escaped(word: &str) -> String {
    let mut escaped = String::with_capacity(word.len());
    for c in word.chars() {
        if c.is_ascii_control() || " \\\"#()".contains(c) {
            let _ = write!(escaped, "\\{:03o}", u32::from(c));
        } else if c.is_control() {
            // Byte by byte, as exportfs(8) reads it.
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(escaped, "\\{byte:03o}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}
