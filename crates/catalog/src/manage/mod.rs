//! What administrators ask for: groups, shares, and batches of operations on them, as they are
//! written in the files of `shares.d`, sent to the server, and kept in its history.

mod changes;
mod check;

use serde::{Deserialize, Serialize};
use steadfast_shares::{ClientPattern, FieldMistake, Inherited, RuleSpec};

pub(crate) use changes::ChangeMistake;
pub(crate) use check::path_problem;
pub use check::{
    DESCRIPTION_BYTES_MAX, GROUP_KEYS, GROUP_NAME_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX,
    PATTERN_KEYS, RULE_KEYS, SHARE_KEYS, check_group_name,
};

/// `[defaults]`: what all groups and shares inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefaultsSpec {
    /// Option words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Who may use shares for which nobody names clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
}

/// A share as it is written. What is left out comes from its group, then from `[defaults]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSpec {
    /// The absolute path that clients mount.
    pub path: String,
    /// The directory that is served (default: the path).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Its number in handles (default: made of the path).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its name where protocols want one (SMB; sharetab(4)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Plug-ins that serve it (default: NFS alone).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Option words, after those of its group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Who may use it. One that names clients has none of its group's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Particular rules, asked before `clients`.
    #[serde(default, rename = "rule", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
    /// `false`: its changes are flushed though there is an intent log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<bool>,
    /// `false`: it is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// `true`: it takes no new clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<bool>,
}

/// Makes a share of every directory that a pattern matches, also of those that appear later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatternSpec {
    /// An absolute path whose last component, alone, has wildcards (`*`, `?`): `/tank/home/*`.
    pub directories: String,
    /// Names that are left out, with wildcards (default: those that begin with a dot, and
    /// `lost+found`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Option words, after those of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Who may use them (default: the group's).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Whether a directory counts only if another file system, or a btrfs subvolume, is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounted: Option<bool>,
}

/// A group without its shares: what they inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Its name: letters, digits, `-`, `_`, `.`, at most 64. Its file is `NAME.toml`.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Option words, after those of `[defaults]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Who may use its shares that name no clients themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// Plug-ins that serve its shares (default: NFS alone).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// `false`: none of its shares is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Directories that become shares by themselves.
    #[serde(default, rename = "pattern", skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternSpec>,
}

impl GroupSpec {
    /// What shares of the group inherit, and the mistakes in it; `outer` is what the group inherits.
    pub fn inherited(&self, outer: &Inherited) -> (Inherited, Vec<FieldMistake>) {
        outer.with(&self.options, &self.clients, &self.protocols)
    }
}

/// What is to change about a share or a group: keys of [`ShareSpec`] or [`GroupSpec`] with their
/// new values, and what is added to and taken out of lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// New values, by key; `null` takes the key out.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub set: serde_json::Map<String, serde_json::Value>,
    /// Clients to be let in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_clients: Vec<String>,
    /// Clients to be let in no more: as they are written in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_clients: Vec<String>,
    /// Option words to be added; one that contradicts an earlier one replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_options: Vec<String>,
    /// Option words to be taken out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_options: Vec<String>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Makes a group.
    CreateGroup {
        /// It.
        group: GroupSpec,
    },
    /// Takes a group away.
    DeleteGroup {
        /// Its name.
        name: String,
        /// Whether its shares go with it; else it must have none.
        #[serde(default)]
        with_shares: bool,
    },
    /// Changes a group.
    SetGroup {
        /// Its name.
        name: String,
        /// What.
        changes: Changes,
    },
    /// Adds a share to a group, which is made if it is [`DEFAULT_GROUP`].
    AddShare {
        /// The group's name.
        group: String,
        /// The share.
        share: ShareSpec,
    },
    /// Takes a share away.
    RemoveShare {
        /// Its path.
        path: String,
    },
    /// Changes a share.
    SetShare {
        /// Its path.
        path: String,
        /// What.
        changes: Changes,
    },
    /// Moves a share to another group.
    MoveShare {
        /// Its path.
        path: String,
        /// That group's name.
        group: String,
    },
}

/// The group of shares for which nobody names one.
pub const DEFAULT_GROUP: &str = "default";

/// Operations that are done together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// In their order.
    pub operations: Vec<Operation>,
    /// Why, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether operations with mistakes are left out, and the others done all the same.
    #[serde(default)]
    pub partial: bool,
}

impl Batch {
    /// What is no mistake and most likely not meant: clients that nobody can be.
    pub fn warnings(&self) -> Vec<Mistake> {
        let mut warnings = Vec::new();
        for (number, operation) in self.operations.iter().enumerate() {
            let (subject, words) = operation.client_words();
            for word in words {
                let pattern = word.parse::<ClientPattern>().ok();
                if let Some(what) = pattern.and_then(|pattern| pattern.matches_nobody()) {
                    let (operation, place) = (Some(number), subject.clone());
                    warnings.push(Mistake { operation, place, what, suggestion: None });
                }
            }
        }
        warnings
    }
}

impl Batch {
    /// The protocols that operations name, each with what the operation is about.
    pub fn protocols(&self) -> Vec<(String, &str)> {
        let mut all = Vec::new();
        for operation in &self.operations {
            let (subject, named): (String, Vec<&str>) = match operation {
                Operation::AddShare { share, .. } => {
                    (share.path.clone(), share.protocols.iter().map(String::as_str).collect())
                }
                Operation::CreateGroup { group } => (
                    format!("group {}", group.name),
                    group.protocols.iter().map(String::as_str).collect(),
                ),
                Operation::SetShare { path, changes } => (path.clone(), changes.protocols()),
                Operation::SetGroup { name, changes } => {
                    (format!("group {name}"), changes.protocols())
                }
                Operation::DeleteGroup { .. }
                | Operation::RemoveShare { .. }
                | Operation::MoveShare { .. } => continue,
            };
            all.extend(named.into_iter().map(|protocol| (subject.clone(), protocol)));
        }
        all
    }

    /// Whether an option word that begins so is given to a share, a group or a pattern.
    pub fn names_option(&self, beginning: &str) -> bool {
        let has = |words: &[String]| words.iter().any(|word| word.starts_with(beginning));
        self.operations.iter().any(|operation| match operation {
            Operation::AddShare { share, .. } => has(&share.options),
            Operation::CreateGroup { group } => {
                has(&group.options) || group.patterns.iter().any(|pattern| has(&pattern.options))
            }
            Operation::SetShare { changes, .. } | Operation::SetGroup { changes, .. } => {
                has(&changes.add_options)
                    || changes.set.values().any(|value| has_word(value, beginning))
            }
            Operation::DeleteGroup { .. }
            | Operation::RemoveShare { .. }
            | Operation::MoveShare { .. } => false,
        })
    }
}

/// Whether there is a text in a value that begins so.
fn has_word(value: &serde_json::Value, beginning: &str) -> bool {
    match value {
        serde_json::Value::String(word) => word.starts_with(beginning),
        serde_json::Value::Array(all) => all.iter().any(|one| has_word(one, beginning)),
        serde_json::Value::Object(all) => all.values().any(|one| has_word(one, beginning)),
        _ => false,
    }
}

impl Operation {
    /// What it is about, and the clients that it names.
    fn client_words(&self) -> (String, Vec<&str>) {
        fn words(list: &[String]) -> Vec<&str> {
            list.iter().map(String::as_str).collect()
        }
        match self {
            Self::AddShare { share, .. } => {
                let mut all = words(&share.clients);
                all.extend(share.rules.iter().flat_map(|rule| words(&rule.clients)));
                (share.path.clone(), all)
            }
            Self::CreateGroup { group } => {
                let mut all = words(&group.clients);
                all.extend(group.patterns.iter().flat_map(|pattern| words(&pattern.clients)));
                (format!("group {}", group.name), all)
            }
            Self::SetShare { path, changes } => (path.clone(), changes.client_words()),
            Self::SetGroup { name, changes } => (format!("group {name}"), changes.client_words()),
            Self::DeleteGroup { .. } | Self::RemoveShare { .. } | Self::MoveShare { .. } => {
                (String::new(), Vec::new())
            }
        }
    }
}

impl Changes {
    fn client_words(&self) -> Vec<&str> {
        self.set_words("clients").chain(self.add_clients.iter().map(String::as_str)).collect()
    }

    fn protocols(&self) -> Vec<&str> {
        self.set_words("protocols").collect()
    }

    /// The words of a list that gets a new value.
    fn set_words(&self, key: &str) -> impl Iterator<Item = &str> {
        let set = self.set.get(key).and_then(serde_json::Value::as_array);
        set.into_iter().flatten().filter_map(serde_json::Value::as_str)
    }
}

/// What is wrong with a batch or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// Which operation of the batch, from 0, if it is one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<usize>,
    /// `FILE:LINE:COLUMN`, or which field of what: `share "/a": clients[0]`.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What was probably meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion:?}?"),
            None => Ok(()),
        }
    }
}

/// Whether a share is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareState {
    /// It is.
    Enabled,
    /// It, or its group, is switched off.
    Disabled,
    /// To those who have it; it takes no new clients.
    Draining,
    /// It cannot be: something is wrong.
    Faulty,
}

impl ShareState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Enabled, Self::Disabled, Self::Draining, Self::Faulty];

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Draining => "draining",
            Self::Faulty => "faulty",
        }
    }

    /// Whether clients are served.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Enabled | Self::Draining)
    }
}

impl std::fmt::Display for ShareState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}
