//! The configuration file `steadfast.toml`: text in, settings or a list of mistakes out.
//!
//! [`Configuration::parse`] finds every mistake in one go and says where each is. It opens
//! nothing: whether directories exist is for the caller to see, who finds the places to complain
//! about beside the values ([`Placed`]).

pub(crate) mod document;
mod log;
mod metrics;
mod names;
mod plugins;
mod server;
pub(crate) mod share;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;

pub use log::{LOG_MIB, LogSettings};
pub use metrics::MetricsSettings;
pub use names::NamesSettings;
pub use plugins::{PluginKind, PluginSettings};
pub use server::{Delegations, ListenAddress, LocalGuard, LogTarget, Nfs4Owners, ServerSettings};
pub use share::ShareSettings;

use steadfast_shares::shown;

use crate::manage::{DefaultsSpec, GROUP_KEYS, PATTERN_KEYS, RULE_KEYS, SHARE_KEYS, path_problem};

use document::{Document, Table};

/// The keys of each table of `steadfast.toml`, as the table is written: for documents that must have all of them.
pub const KEYS: &[(&str, &[&str])] = &[
    ("[server]", &server::KEYS),
    ("[log]", &log::KEYS),
    ("[metrics]", &metrics::KEYS),
    ("[names]", &names::KEYS),
    ("[plugin.smb]", &plugins::SAMBA_KEYS),
    ("[plugin.exportfs]", &plugins::EXPORTFS_KEYS),
    ("[plugin.mdns]", &plugins::MDNS_KEYS),
    ("[plugin.NAME]", &plugins::PROGRAM_KEYS),
    ("[defaults]", &share::DEFAULTS_KEYS),
    ("[[share]]", &SHARE_KEYS),
    ("[[share.rule]]", &RULE_KEYS),
];

/// The same of a group's file; `""`: what stands above all tables.
pub const GROUP_FILE_KEYS: &[(&str, &[&str])] = &[
    ("", &GROUP_KEYS),
    ("[[pattern]]", &PATTERN_KEYS),
    ("[[share]]", &SHARE_KEYS),
    ("[[share.rule]]", &RULE_KEYS),
];

/// Longest file that is read, in bytes: room for a hundred thousand shares.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

/// How many mistakes are told at once.
pub const ERRORS_MAX: usize = 200;

/// A place in the file, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character of the line.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with the place where it was written.
///
/// Two are equal if their values are: who compares settings asks what they say, and a comment
/// that moves a line does not change that.
#[derive(Clone, Debug)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where.
    pub place: Place,
}

impl<T: PartialEq> PartialEq for Placed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Placed<T> {}

/// A mistake in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}{}", .suggestion.as_ref().map(|s| format!("; did you mean {s:?}?")).unwrap_or_default())]
pub struct ConfigurationError {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// What a configuration file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// `[server]`
    pub server: ServerSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[metrics]`
    pub metrics: MetricsSettings,
    /// `[names]`
    pub names: NamesSettings,
    /// `[plugin.NAME]`, by name.
    pub plugins: Vec<PluginSettings>,
    /// `[defaults]`, which groups inherit too.
    pub defaults: DefaultsSpec,
    /// `[[share]]`, in the order of the file, `[defaults]` applied.
    pub shares: Vec<ShareSettings>,
    /// The directories of all shares, also of those with mistakes, and where each is written.
    pub directories: Vec<(PathBuf, Place)>,
}

impl Configuration {
    /// What is no mistake and most likely not meant: clients of shares that nobody can be.
    pub fn warnings(&self) -> Vec<String> {
        let of_share = |settings: &ShareSettings| {
            let rules = settings.share.rules.rules().iter();
            let told = rules.filter_map(|rule| rule.pattern.matches_nobody());
            told.map(|what| format!("{}: {what}", settings.share.path)).collect::<Vec<_>>()
        };
        self.shares.iter().flat_map(of_share).collect()
    }

    /// Reads the file's text. On failure at least one mistake, sorted by place, at most
    /// [`ERRORS_MAX`]; mistakes of syntax hide the others, since what follows them is guesswork.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigurationError>> {
        match Self::read(text) {
            (Some(configuration), errors) if errors.is_empty() => Ok(configuration),
            (_, errors) => Err(errors),
        }
    }

    /// As [`Configuration::parse`], with what can be read in spite of mistakes: for who looks for
    /// more of them.
    pub fn read(text: &str) -> (Option<Self>, Vec<ConfigurationError>) {
        let mut document = Document::new(text);
        let parsed = document.parse();
        let configuration = parsed.as_ref().map(|root| {
            let root = Table { entries: root.get_ref(), place: Place { line: 1, column: 1 } };
            document.known_keys(
                root,
                "the file",
                &["server", "log", "metrics", "names", "plugin", "defaults", "share"],
            );
            let server = server::read(&mut document, root);
            let log = log::read(&mut document, root);
            let metrics = metrics::read(&mut document, root);
            let names = names::read(&mut document, root);
            let plugins = plugins::read(&mut document, root);
            let (defaults, inherited) = share::read_defaults(&mut document, root);
            let (shares, directories) = share::read_all(&mut document, root, inherited);
            refuse_duplicates(&mut document, &shares);
            Self { server, log, metrics, names, plugins, defaults, shares, directories }
        });
        (configuration, document.into_errors())
    }

    /// What can be read of `[server]` and `[log]` in a text that may have mistakes, by which a
    /// server is found that has read another.
    pub fn settings_that_can_be_read(text: &str) -> (ServerSettings, LogSettings) {
        let mut document = Document::new(text);
        if let Some(root) = document.parse() {
            let root = Table { entries: root.get_ref(), place: Place { line: 1, column: 1 } };
            return (server::read(&mut document, root), log::read(&mut document, root));
        }
        let readable = section(text, "server") + &section(text, "log");
        let mut document = Document::new(&readable);
        let Some(root) = document.parse() else {
            return (ServerSettings::default(), LogSettings::default());
        };
        let root = Table { entries: root.get_ref(), place: Place { line: 1, column: 1 } };
        (server::read(&mut document, root), log::read(&mut document, root))
    }
}

/// The section of this name in a text that is not TOML, as TOML: its lines that are some, each by
/// itself. A parser that recovers from a mistake may take a cut value for a whole one, or the next
/// section for a part of an array.
fn section(text: &str, name: &str) -> String {
    let is_header = |line: &&str| line.trim_start().starts_with('[');
    let is_ours = |line: &&str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let inner = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inner.is_some_and(|inner| inner.trim() == name)
    };
    let body = text.lines().skip_while(|line| !is_ours(line)).skip(1);
    let keys = body.take_while(|line| !is_header(line));
    let readable = keys.filter(|line| Document::new(line).parse().is_some());
    std::iter::once(format!("[{name}]"))
        .chain(readable.map(str::to_owned))
        .map(|line| line + "\n")
        .collect()
}

/// Two shares never have one path or one id.
fn refuse_duplicates(document: &mut Document<'_>, shares: &[ShareSettings]) {
    let mut paths = HashMap::new();
    let mut ids = HashMap::new();
    for settings in shares {
        let share = &settings.share;
        if let Some(first) = paths.insert(&share.path, settings.path_place) {
            let what = format!(
                "the path {} is shared twice, first in line {}",
                shown(&share.path),
                first.line
            );
            document.refuse(settings.path_place, what, None);
        } else if let Some((path, place)) = ids.insert(share.id, (&share.path, settings.id_place)) {
            let what = format!(
                "the share {} has the same id as {} in line {}: write another `id = NUMBER`",
                shown(&share.path),
                shown(path),
                place.line
            );
            document.refuse(settings.id_place, what, None);
        }
    }
}

/// An absolute path without `.` or `..` in it.
fn absolute_path(
    document: &mut Document<'_>,
    key: &str,
    text: &Placed<&str>,
) -> Option<Placed<PathBuf>> {
    let Some((problem, suggestion)) = path_problem(text.value) else {
        return Some(Placed { value: PathBuf::from(text.value), place: text.place });
    };
    document.refuse(text.place, format!("{key} {} {problem}", shown(text.value)), suggestion);
    None
}
