//! Option words of a share, as exports(5) has them, and lists of clients as `share_nfs(1M)` has.
//!
//! Words before the first `sec=` of a list hold for all flavours; those after one hold for its
//! flavours alone. A list without `sec=` changes what it inherits; one with it replaces the
//! alternatives that it inherits.

use std::sync::Arc;

use crate::clients::{ClientPattern, PatternError};
use crate::quoted::shown;
use crate::rights::{Flavor, Flavors, Rights, Squash};
use crate::size::Size;
use crate::suggestion::nearest;

/// Words that are understood; those that end in `=` take a value.
const WORDS: [&str; 27] = [
    "rw",
    "ro",
    "none",
    "sync",
    "async",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "anonuid=",
    "anongid=",
    "secure",
    "insecure",
    "manage_gids",
    "no_manage_gids",
    "crossmnt",
    "nocrossmnt",
    "mp",
    "mp=",
    "mountpoint",
    "mountpoint=",
    "size=",
    "sec=",
    "rw=",
    "ro=",
    "none=",
    "root=",
];

/// Words of other servers that ask for what happens here anyway. `subtree_check` is for handles that
/// clients may guess, which those of this server are not (docs/shares.md).
const ALWAYS_SO: [&str; 4] = ["subtree_check", "no_subtree_check", "wdelay", "no_wdelay"];

/// Words of other servers that ask for what is not served here, with the reason.
pub const NOT_SERVED: [(&str, &str); 14] = [
    ("nohide", "use crossmnt on the outer share"),
    ("hide", "it is so unless crossmnt is given; leave it out"),
    ("no_acl", "ACLs are always served where the file system has them; leave it out"),
    ("fsid", "write `id = NUMBER` in the share"),
    ("refer", "this server gives no referrals"),
    ("replicas", "this server tells of no replicas"),
    ("pnfs", "this server gives no layouts"),
    ("no_pnfs", "this server gives no layouts; leave it out"),
    ("security_label", "this server has no security labels"),
    ("auth_nlm", "locks are always for users who may access the file; leave it out"),
    ("no_auth_nlm", "locks are for users who may access the file only; leave it out"),
    ("insecure_locks", "locks are for users who may access the file only; leave it out"),
    ("secure_locks", "locks are always for users who may access the file; leave it out"),
    ("xprtsec", "RPC over TLS is not served yet"),
];

/// What options say about callers of one flavour, or of all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// `none`: nothing at all.
    pub is_denied: bool,
    /// `ro`: no changes.
    pub is_read_only: bool,
    /// `async`: changes are acknowledged before they are stable.
    pub is_async: bool,
    /// `root_squash`: the superuser becomes anonymous.
    pub squashes_root: bool,
    /// `all_squash`: everybody becomes anonymous.
    pub squashes_all: bool,
    /// `anonuid=`
    pub anonymous_uid: u32,
    /// `anongid=`
    pub anonymous_gid: u32,
    /// `secure`: calls come from ports below 1024.
    pub needs_privileged_port: bool,
    /// `manage_gids`: a user's groups are those that this host knows.
    pub looks_up_groups: bool,
}

impl Default for Access {
    fn default() -> Self {
        let rights = Rights::default();
        Self {
            is_denied: false,
            is_read_only: rights.is_read_only,
            is_async: rights.is_async,
            squashes_root: true,
            squashes_all: false,
            anonymous_uid: rights.anonymous_uid,
            anonymous_gid: rights.anonymous_gid,
            needs_privileged_port: rights.needs_privileged_port,
            looks_up_groups: rights.looks_up_groups,
        }
    }
}

impl Access {
    /// Whether callers get the same of both: with `all_squash` it does not matter what root gets.
    pub fn comes_to_same(&self, other: &Self) -> bool {
        let rights = |access: &Self| access.rights(Flavors::empty());
        self.is_denied == other.is_denied && rights(self) == rights(other)
    }

    fn rights(&self, flavors: Flavors) -> Rights {
        Rights {
            flavors,
            needs_privileged_port: self.needs_privileged_port,
            looks_up_groups: self.looks_up_groups,
            is_read_only: self.is_read_only,
            is_async: self.is_async,
            squash: match (self.squashes_all, self.squashes_root) {
                (true, _) => Squash::All,
                (false, true) => Squash::Root,
                (false, false) => Squash::None,
            },
            anonymous_uid: self.anonymous_uid,
            anonymous_gid: self.anonymous_gid,
        }
    }

    /// The words that make `self` of `base`.
    fn words(&self, base: &Self, words: &mut Vec<String>) {
        let mut add = |is_new: bool, word: &str| {
            if is_new {
                words.push(word.to_owned());
            }
        };
        let word = match (self.is_denied, self.is_read_only) {
            (true, _) => "none",
            (false, true) => "ro",
            (false, false) => "rw",
        };
        let is_same = (self.is_denied, self.is_read_only) == (base.is_denied, base.is_read_only);
        add(!is_same, word);
        let choose = |is_so, yes, no| if is_so { yes } else { no };
        let is_new = self.is_async != base.is_async;
        add(is_new, choose(self.is_async, "async", "sync"));
        let is_new = self.squashes_root != base.squashes_root;
        add(is_new, choose(self.squashes_root, "root_squash", "no_root_squash"));
        let is_new = self.squashes_all != base.squashes_all;
        add(is_new, choose(self.squashes_all, "all_squash", "no_all_squash"));
        let is_new = self.anonymous_uid != base.anonymous_uid;
        add(is_new, &format!("anonuid={}", self.anonymous_uid));
        let is_new = self.anonymous_gid != base.anonymous_gid;
        add(is_new, &format!("anongid={}", self.anonymous_gid));
        let is_new = self.needs_privileged_port != base.needs_privileged_port;
        add(is_new, choose(self.needs_privileged_port, "secure", "insecure"));
        let is_new = self.looks_up_groups != base.looks_up_groups;
        add(is_new, choose(self.looks_up_groups, "manage_gids", "no_manage_gids"));
    }
}

/// Clients that options name, as `share_nfs(1M)` has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientLists {
    /// `none=`: they get nothing.
    pub none: Vec<ClientPattern>,
    /// `root=`: their superuser stays what he is.
    pub root: Vec<ClientPattern>,
    /// `rw=` and `ro=`, with whether they may change nothing.
    pub access: Vec<(ClientPattern, bool)>,
}

/// What the options of a share, or of one of its rules, say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareOptions {
    /// For all flavours, or for those of no alternative.
    pub access: Access,
    /// For callers of some flavours (`sec=`). If there is one, callers of others get nothing.
    pub alternatives: Vec<(Flavors, Access)>,
    /// `crossmnt`: file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
    /// `mp`, `mountpoint=PATH`: where file systems have to be mounted for the share to be served;
    /// the empty path is the share's directory.
    pub required_mounts: Vec<Arc<str>>,
    /// `size=`: how much the share may have of its file system, in bytes.
    pub size: Option<Size>,
    /// Clients named by options.
    pub lists: ClientLists,
}

/// Why an option word was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// What is wrong with it.
    pub what: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl OptionError {
    fn new(what: String) -> Self {
        Self { what, suggestion: None }
    }
}

/// What a list of words comes to.
pub(crate) struct ReadOptions {
    pub(crate) options: ShareOptions,
    /// Mistakes by the index of their words.
    pub(crate) errors: Vec<(usize, OptionError)>,
    /// Whether there is `rw=` or `ro=` among the words.
    pub(crate) names_clients: bool,
}

/// Whether a word is a list of those who have access.
pub fn names_clients(word: &str) -> bool {
    word.starts_with("rw=") || word.starts_with("ro=")
}

impl ShareOptions {
    /// The options that a list of words makes of these, which it inherits, and the mistakes in
    /// it by their index.
    pub fn with<S: AsRef<str>>(&self, words: &[S]) -> (Self, Vec<(usize, OptionError)>) {
        let read = self.read(words);
        (read.options, read.errors)
    }

    /// The same, and whether the words name clients themselves: such a list takes the place of
    /// the inherited one, also where both are alike.
    pub(crate) fn read<S: AsRef<str>>(&self, words: &[S]) -> ReadOptions {
        let mut list = List::new(self.clone());
        let mut errors = Vec::new();
        for (index, word) in words.iter().enumerate() {
            if let Err(error) = list.apply(word.as_ref(), index) {
                errors.push((index, error));
            }
        }
        if let Some(index) = list.first_sec
            && errors.is_empty()
            && !list.options.is_served()
        {
            let what = "Kerberos is not served yet: give sec=sys or sec=none too".to_owned();
            errors.push((index, OptionError::new(what)));
        }
        ReadOptions { options: list.options, errors, names_clients: list.names_clients }
    }

    /// Whether some flavour is served already.
    fn is_served(&self) -> bool {
        let served = Flavors::NONE | Flavors::SYS;
        self.alternatives.iter().any(|(flavors, _)| flavors.intersects(served))
    }

    /// The rights that these options give, by flavour; none for `none`.
    pub fn grants(&self) -> Arc<[Rights]> {
        if self.alternatives.is_empty() {
            let rights = self.access.rights(Flavors::default());
            return if self.access.is_denied { Arc::new([]) } else { Arc::new([rights]) };
        }
        let alternatives = self.alternatives.iter().filter(|(_, access)| !access.is_denied);
        alternatives.map(|(flavors, access)| access.rights(*flavors)).collect()
    }

    /// These options with something else said about access, for all flavours.
    #[must_use]
    pub fn changed(&self, change: impl Fn(&mut Access)) -> Self {
        let mut options = self.clone();
        change(&mut options.access);
        options.alternatives.iter_mut().for_each(|(_, access)| change(access));
        options
    }

    /// The words that make these options, but for their lists of clients, of those that they
    /// inherit.
    pub fn words(&self, base: &Self) -> Vec<String> {
        let mut words = Vec::new();
        if self.crosses_mounts != base.crosses_mounts {
            words.push(if self.crosses_mounts { "crossmnt" } else { "nocrossmnt" }.to_owned());
        }
        for mount in &self.required_mounts {
            if !base.required_mounts.contains(mount) {
                let is_own = mount.is_empty();
                words.push(if is_own { "mp".to_owned() } else { format!("mountpoint={mount}") });
            }
        }
        if self.size != base.size {
            words.push(
                self.size.map_or_else(|| "size=none".to_owned(), |size| format!("size={size}")),
            );
        }
        let has_alternatives = !self.alternatives.is_empty();
        // Without `sec=` there is no way back to no alternatives but to say what they mean.
        if has_alternatives || base.alternatives.is_empty() {
            self.access.words(&base.access, &mut words);
        }
        if self.alternatives == base.alternatives && self.access == base.access {
            return words;
        }
        let all = [(Flavors::default(), self.access.clone())];
        let needs_sec = has_alternatives || !base.alternatives.is_empty();
        for (flavors, access) in if has_alternatives { &*self.alternatives } else { &all } {
            if needs_sec {
                words.push(sec(*flavors));
                let base = if has_alternatives { &self.access } else { &base.access };
                access.words(base, &mut words);
            }
        }
        words
    }
}

/// `sec=` with these flavours, in their order.
pub fn sec(flavors: Flavors) -> String {
    format!("sec={}", flavors.iter().map(Flavor::word).collect::<Vec<_>>().join(":"))
}

/// A list of words as it is read.
struct List<'a> {
    options: ShareOptions,
    /// Where the first `sec=` was.
    first_sec: Option<usize>,
    /// Whether there was `rw=` or `ro=`.
    names_clients: bool,
    contradictions: Contradictions<'a>,
}

impl<'a> List<'a> {
    fn new(options: ShareOptions) -> Self {
        let contradictions = Contradictions::default();
        Self { options, first_sec: None, names_clients: false, contradictions }
    }

    fn apply(&mut self, word: &'a str, index: usize) -> Result<(), OptionError> {
        self.contradictions.check(word)?;
        match word {
            "rw" => self.change(|access| (access.is_read_only, access.is_denied) = (false, false)),
            "ro" => self.change(|access| (access.is_read_only, access.is_denied) = (true, false)),
            "none" => self.change(|access| access.is_denied = true),
            "sync" => self.change(|access| access.is_async = false),
            "async" => self.change(|access| access.is_async = true),
            "root_squash" => self.change(|access| access.squashes_root = true),
            "no_root_squash" => self.change(|access| access.squashes_root = false),
            "all_squash" => self.change(|access| access.squashes_all = true),
            "no_all_squash" => self.change(|access| access.squashes_all = false),
            "secure" => self.change(|access| access.needs_privileged_port = true),
            "insecure" => self.change(|access| access.needs_privileged_port = false),
            "manage_gids" => self.change(|access| access.looks_up_groups = true),
            "no_manage_gids" => self.change(|access| access.looks_up_groups = false),
            "crossmnt" => self.options.crosses_mounts = true,
            "nocrossmnt" => self.options.crosses_mounts = false,
            _ if ALWAYS_SO.contains(&word) => {}
            _ => return self.apply_value(word, index),
        }
        Ok(())
    }

    /// Changes what is said about the flavours of the last `sec=`, or about all.
    fn change(&mut self, change: impl Fn(&mut Access)) {
        if self.first_sec.is_some() {
            if let Some((_, access)) = self.options.alternatives.last_mut() {
                change(access);
            }
        } else {
            change(&mut self.options.access);
            self.options.alternatives.iter_mut().for_each(|(_, access)| change(access));
        }
    }

    fn apply_value(&mut self, word: &str, index: usize) -> Result<(), OptionError> {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("anonuid", Some(value)) => {
                let id = id(word, value)?;
                self.change(|access| access.anonymous_uid = id);
            }
            ("anongid", Some(value)) => {
                let id = id(word, value)?;
                self.change(|access| access.anonymous_gid = id);
            }
            ("anonuid" | "anongid", None) => {
                return Err(OptionError {
                    what: format!("the option {name} needs a number"),
                    suggestion: Some(format!("{name}=65534")),
                });
            }
            ("sec", Some(value)) => self.begin(word, value, index)?,
            ("sec", None) => {
                return Err(OptionError {
                    what: "the option sec needs flavours".to_owned(),
                    suggestion: Some("sec=sys".to_owned()),
                });
            }
            ("mp" | "mountpoint", value) => self.require_mount(word, value.unwrap_or_default())?,
            ("size", Some("none")) => self.options.size = None,
            ("size", value) => {
                let size = value.unwrap_or_default().parse::<Size>();
                self.options.size = Some(size.map_err(|error| OptionError {
                    what: format!("{}: {}", shown(word), error.what),
                    suggestion: error.suggestion.map(|size| format!("size={size}")),
                })?);
            }
            ("rw" | "ro" | "none" | "root", Some(value)) => self.list(name, word, value)?,
            _ => return Err(unknown(word, name)),
        }
        Ok(())
    }

    /// `mp` and `mountpoint`: without a path, the share's directory.
    fn require_mount(&mut self, word: &str, path: &str) -> Result<(), OptionError> {
        if word.contains('=') && !path.starts_with('/') {
            return Err(OptionError {
                what: format!("{} needs an absolute path", shown(word)),
                suggestion: Some("mp".to_owned()),
            });
        }
        let mounts = &mut self.options.required_mounts;
        if !mounts.iter().any(|known| **known == *path) {
            mounts.push(path.into());
        }
        Ok(())
    }

    /// `sec=`: words from here on are about these flavours.
    fn begin(&mut self, word: &str, value: &str, index: usize) -> Result<(), OptionError> {
        let mut flavors = Flavors::empty();
        for name in value.split(':') {
            let Some(flavor) = Flavor::ALL.into_iter().find(|flavor| flavor.word() == name) else {
                let words = Flavor::ALL.into_iter().map(Flavor::word);
                return Err(OptionError {
                    what: format!("{} is no flavour in {}", shown(name), shown(word)),
                    suggestion: nearest(name, words).map(String::from),
                });
            };
            let earlier = if self.first_sec.is_some() { &*self.options.alternatives } else { &[] };
            let flavor_bit = Flavors::from(flavor);
            if flavors.contains(flavor_bit) || earlier.iter().any(|(f, _)| f.contains(flavor_bit)) {
                return Err(OptionError::new(format!(
                    "{} names {name} again: a flavour has its rights from one sec=",
                    shown(word)
                )));
            }
            flavors |= flavor_bit;
        }
        if self.first_sec.is_none() {
            self.first_sec = Some(index);
            self.options.alternatives.clear();
        }
        self.options.alternatives.push((flavors, self.options.access.clone()));
        Ok(())
    }

    /// `rw=`, `ro=`, `none=`, `root=`
    fn list(&mut self, name: &str, word: &str, value: &str) -> Result<(), OptionError> {
        if self.first_sec.is_some() {
            return Err(OptionError::new(format!(
                "{} names clients of some flavours alone: write a rule for them",
                shown(word)
            )));
        }
        let mut patterns = Vec::new();
        for client in list_members(value) {
            patterns.push(list_pattern(client).map_err(|mut error| {
                error.what = format!("{} in the list {}", error.what, shown(word));
                error
            })?);
        }
        let lists = &mut self.options.lists;
        match name {
            "none" => lists.none.extend(patterns),
            "root" => lists.root.extend(patterns),
            _ => {
                if !std::mem::replace(&mut self.names_clients, true) {
                    lists.access.clear();
                }
                lists.access.extend(patterns.into_iter().map(|pattern| (pattern, name == "ro")));
            }
        }
        Ok(())
    }
}

/// The clients of a list; an IPv6 address stands in brackets, as it has colons itself.
fn list_members(value: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    value
        .split(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ':' && depth == 0
        })
        .collect()
}

/// A client of such a list: a pattern as elsewhere, or `.domain`, or `@` with a network. Addresses
/// may stand in brackets.
fn list_pattern(text: &str) -> Result<ClientPattern, OptionError> {
    let refused =
        |error: PatternError| OptionError { what: error.what, suggestion: error.suggestion };
    if let Some(rest) = text.strip_prefix('@') {
        // Names that only begin as an address does (`@db.hosts`) are netgroups.
        let plain = unbracketed(rest).unwrap_or_else(|| rest.to_owned());
        let is_number = plain.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'/'));
        if plain.contains(':') || (is_number && plain.contains(['.', '/'])) {
            return match plain.parse().map_err(refused)? {
                pattern @ ClientPattern::Network { .. } => Ok(pattern),
                _ => Err(OptionError::new(format!(
                    "{} is no network: write it like \"@10.1.0.0/16\"",
                    shown(text)
                ))),
            };
        }
    } else if let Some(plain) = unbracketed(text)
        && let Ok(pattern @ ClientPattern::Network { .. }) = plain.parse()
    {
        return Ok(pattern);
    } else if text.starts_with('.') {
        return format!("*{text}").parse().map_err(refused);
    }
    if text.contains(['[', ']']) {
        return Err(OptionError::new(format!(
            "{} has brackets, in which only an address may stand",
            shown(text)
        )));
    }
    text.parse().map_err(refused)
}

/// `[ADDRESS]` or `[ADDRESS]/BITS` without its brackets.
fn unbracketed(text: &str) -> Option<String> {
    let (address, rest) = text.strip_prefix('[')?.split_once(']')?;
    Some(format!("{address}{rest}"))
}

/// What a word is about: of two words about one thing in a list, the later contradicts.
pub fn subject(word: &str) -> Option<&'static str> {
    Some(match word {
        "rw" | "ro" | "none" => "access",
        "sync" | "async" => "stability",
        "root_squash" | "no_root_squash" => "root",
        "all_squash" | "no_all_squash" => "all",
        "crossmnt" | "nocrossmnt" => "mounts",
        "secure" | "insecure" => "port",
        "manage_gids" | "no_manage_gids" => "groups",
        _ if word.starts_with("size=") => "size",
        _ if word.starts_with("anonuid=") => "anonuid",
        _ if word.starts_with("anongid=") => "anongid",
        _ => return None,
    })
}

/// Refuses two words of one list that contradict each other; the later one is refused.
#[derive(Debug, Default)]
struct Contradictions<'a> {
    seen: Vec<(&'static str, &'a str)>,
}

impl<'a> Contradictions<'a> {
    /// Notes a word; an error if it contradicts an earlier one.
    fn check(&mut self, word: &'a str) -> Result<(), OptionError> {
        if word.starts_with("sec=") {
            // What was said for all may be said otherwise for some.
            self.seen.retain(|(subject, _)| matches!(*subject, "mounts" | "size"));
        }
        let Some(subject) = subject(word) else { return Ok(()) };
        match self.seen.iter().find(|(seen, _)| *seen == subject) {
            Some((_, earlier)) if *earlier != word => Err(OptionError::new(format!(
                "{} contradicts {} before it",
                shown(word),
                shown(earlier)
            ))),
            Some(_) => Ok(()),
            None => {
                self.seen.push((subject, word));
                Ok(())
            }
        }
    }
}

/// A user or group id. The largest 32-bit number is refused: to the kernel it means "leave the
/// identity as it is", so squashing to it would leave root being root.
fn id(word: &str, value: &str) -> Result<u32, OptionError> {
    match value.parse::<u32>() {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(OptionError::new(format!(
            "{} needs a number from 0 to {}",
            shown(word),
            u32::MAX - 1
        ))),
    }
}

fn unknown(word: &str, name: &str) -> OptionError {
    if let Some((_, reason)) = NOT_SERVED.iter().find(|(known, _)| *known == name) {
        return OptionError::new(format!("the option {} is not served: {reason}", shown(word)));
    }
    OptionError {
        what: format!("unknown option {}", shown(word)),
        suggestion: nearest(word, WORDS.into_iter().chain(ALWAYS_SO)).map(String::from),
    }
}

#[cfg(test)]
mod tests;
