//! The documents of the interface, version 1. A field may be added without another version.
//!
//! What is asked for is in [`steadfast_catalog::manage`]: a [`Batch`] is sent as it is kept.
//!
//! [`Batch`]: steadfast_catalog::manage::Batch

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use steadfast_catalog::manage::Batch;
use steadfast_shares::{RuleSpec, ShareOptions, shown_bytes};

pub use steadfast_catalog::manage::{Mistake, ShareState};
pub use steadfast_catalog::{Action, KeyChange, PlannedChange, Subject};

/// Most shares of one answer.
pub const PAGE_MAX: usize = 10_000;
/// Longest text of a document that is sent to be planned or applied, in bytes.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// A share with what it inherited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    /// What clients mount.
    pub path: String,
    /// What is served.
    pub directory: String,
    /// Its group; `None` for those of `steadfast.toml` and of the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How it is doing.
    pub state: ShareState,
    /// Why it is faulty, or served otherwise than it is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `FILE:LINE` where it is written; `None` for the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The pattern that made it, if nobody wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Its number in handles.
    pub id: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its name where protocols want one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Protocols beside NFS that it is served by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Option words of `clients`, inherited ones first.
    #[serde(default)]
    pub options: Vec<String>,
    /// Who may use it, after `rules`.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Particular rules, each with all of its option words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSpec>,
    /// How many bytes it may have of its file system, if it has a size that is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How many of them it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Why its size is not enforced, or may not be, though it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_fault: Option<String>,
    /// What is wrong with it in other protocols.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin_faults: Vec<PluginFault>,
}

impl ShareStatus {
    /// What it has of its size, for people; nothing without one.
    pub fn size_shown(&self) -> String {
        match (self.used_bytes, self.size_bytes) {
            (Some(used), Some(size)) => format!("{} of {}", shown_bytes(used), shown_bytes(size)),
            (None, Some(size)) => shown_bytes(size),
            (_, None) if self.size_fault.is_some() => "not enforced".to_owned(),
            (_, None) => String::new(),
        }
    }

    /// Of its size, in hundredths; `None` without one, or if it is not in effect.
    pub fn used_percent(&self) -> Option<u64> {
        let (used, size) = (u128::from(self.used_bytes?), u128::from(self.size_bytes?));
        Some(u64::try_from(used * 100 / size.max(1)).unwrap_or(u64::MAX))
    }

    /// Whether some client may change what is shared there.
    pub fn is_writable(&self) -> bool {
        let may_change = |words: &[String]| {
            let (options, _) = ShareOptions::default().with(words);
            options.grants().iter().any(|rights| !rights.is_read_only)
                || options.lists.access.iter().any(|(_, is_read_only)| !is_read_only)
        };
        let mut rules = self.rules.iter().map(|rule| &rule.options);
        self.state != ShareState::Disabled
            && (may_change(&self.options) || rules.any(|words| may_change(words)))
    }
}

/// What a plug-in could not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginFault {
    /// Its name.
    pub plugin: String,
    /// What is in the way.
    pub why: String,
}

/// Which shares to tell, in the order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareFilter {
    /// Of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// In this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ShareState>,
    /// With so many hundredths of its size at the least, or a size that is not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<u64>,
    /// At or below this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// After this path, which the last answer named as `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many (and [`PAGE_MAX`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl ShareFilter {
    /// Whether a share is asked for, its place in the order aside.
    pub fn has(&self, path: &str, group: Option<&str>, state: ShareState) -> bool {
        self.has_path(path)
            && self.group.as_deref().is_none_or(|wanted| group == Some(wanted))
            && self.state.is_none_or(|wanted| state == wanted)
    }

    /// Whether a share has as much of its size as is asked for, or a size that is not enforced.
    pub fn has_filled(&self, share: &ShareStatus) -> bool {
        let has = |filled| share.used_percent().is_some_and(|percent| percent >= filled);
        self.filled.is_none_or(|filled| has(filled) || share.size_fault.is_some())
    }

    /// Whether a path is at or below the prefix.
    fn has_path(&self, path: &str) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        let prefix = prefix.trim_end_matches('/');
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// How many shares the answer may have.
    pub fn page(&self) -> usize {
        self.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX)
    }
}

/// `GET /v1/shares`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePage {
    /// Number of the state that is told.
    pub sequence: u64,
    /// How many shares there are in all, of whatever group and state.
    pub total: usize,
    /// Those that were asked for.
    pub shares: Vec<ShareStatus>,
    /// To be asked with as `after` if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A group and how its shares are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether its shares may be served.
    pub enabled: bool,
    /// What is wrong with it as a whole: a file that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The file it is written in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Option words that its shares inherit.
    #[serde(default)]
    pub options: Vec<String>,
    /// Clients that its shares inherit.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Protocols that its shares inherit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Directories of which it makes shares by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// How many shares it has.
    pub shares: usize,
    /// Of these, in this state.
    pub served: usize,
    /// Of these, in this state.
    pub disabled: usize,
    /// Of these, in this state.
    pub faulty: usize,
    /// Of these, in this state.
    pub draining: usize,
}

impl GroupStatus {
    /// Counts a share in.
    pub fn count(&mut self, state: ShareState) {
        self.shares += 1;
        *match state {
            ShareState::Enabled => &mut self.served,
            ShareState::Disabled => &mut self.disabled,
            ShareState::Faulty => &mut self.faulty,
            ShareState::Draining => &mut self.draining,
        } += 1;
    }
}

/// The body of an answer that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// In the operator's words.
    pub error: String,
    /// One by one, if the request had them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
}

/// What is to become.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// What these operations do.
    Batch(Batch),
    /// What is written of the groups that it names.
    Document(Document),
    /// Shares like these exports, beside those that there are.
    Import(Import),
}

/// The state that is wanted of the groups that it names, as TOML.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Its text.
    pub document: String,
    /// The file's name, for messages.
    pub name: String,
    /// Why, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether what has mistakes is left out, and the rest done all the same.
    #[serde(default)]
    pub partial: bool,
}

/// What files of another server are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportForm {
    /// exports(5)
    #[default]
    Exports,
    /// The configuration of nfs-ganesha.
    Ganesha,
}

impl ImportForm {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_exports(&self) -> bool {
        *self == Self::Exports
    }
}

/// Files of another server, whose entries become shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// What they are written in.
    #[serde(default, skip_serializing_if = "ImportForm::is_exports")]
    pub form: ImportForm,
    /// In the order in which they are read.
    pub exports: Vec<ExportsFile>,
    /// The group that the shares are added to, which is made if there is none.
    pub group: String,
    /// Why, for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether entries with mistakes are left out, and the others imported all the same.
    #[serde(default)]
    pub partial: bool,
}

/// A file of another server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportsFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// `POST /v1/rollback`, `…/rollback/plan`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The state that is wanted back; without it the one before the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

/// `POST /v1/plan`, `…/rollback/plan`: what would be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of the state that it was made for.
    pub sequence: u64,
    /// What would change.
    pub changes: Vec<PlannedChange>,
    /// What would be left out, as it has mistakes; none unless the batch is partial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// What would be done and may not be meant: a directory that is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Mistake>,
}

/// `POST /v1/accept`: shares that are to be served from what their directories are on now, though
/// that is something else than before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptRequest {
    /// Their paths.
    #[serde(default)]
    pub paths: Vec<String>,
    /// All that are faulty.
    #[serde(default)]
    pub all: bool,
}

/// `POST /v1/apply`, `…/rollback`, `…/reload`, `…/accept`: what was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Number of the state that it led to.
    pub sequence: u64,
    /// What changed.
    pub changes: Vec<PlannedChange>,
    /// What was left out, as it had mistakes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// Shares of it that are faulty, with the reason, and what may not be meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Mistake>,
    /// What plug-ins could not do, if they were waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin_faults: Vec<PluginFault>,
    /// What clients mount the first shares with that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_lines: Vec<String>,
    /// Of a reload: the shares that were faulty, and are served now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub served_again: Vec<String>,
}

/// One state of the last ones, and what led to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Its number.
    pub sequence: u64,
    /// When it began, in ms since 1970.
    pub unix_ms: u64,
    /// Who made it.
    pub who: String,
    /// What he said to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// What it changed, in a few words: `3 shares added`.
    pub summary: String,
    /// Whether one can go back to it.
    pub can_return: bool,
}

/// `GET /v1/history`, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Number of the state that there is now.
    pub sequence: u64,
    /// The last states.
    pub entries: Vec<HistoryEntry>,
}

/// A line of `GET /v1/watch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the state that it led to. Several events may have one.
    pub sequence: u64,
    /// What changed.
    pub subject: Subject,
    /// The share's path, the group's name.
    pub name: String,
    /// The share's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its state before; `None`: it is new, as this change wrote it. A share that was not to be
    /// served before, and is not known to be new, was `disabled`: whether a file that was read
    /// again, or a pattern, had it is not looked up.
    pub old: Option<ShareState>,
    /// Its state now; `None`: it is gone.
    pub new: Option<ShareState>,
    /// Why it is faulty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The last line of a stream that ends before its reader does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutOff {
    /// Why there is no more.
    pub cut_off: String,
}

/// Who asked for a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The user, if he came by a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// His process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Where he came from, if he came by TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.uid, self.address) {
            (Some(uid), _) => write!(f, "user {uid}")?,
            (None, Some(address)) => write!(f, "{address}, with the token")?,
            (None, None) => return f.write_str("the server"),
        }
        match (&self.program, self.pid) {
            (Some(program), Some(pid)) => write!(f, " ({program:?}, process {pid})"),
            (None, Some(pid)) => write!(f, " (process {pid})"),
            _ => Ok(()),
        }
    }
}

/// `GET /v1/shares/mounting`: how a share is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountingRequest {
    /// The path of the share.
    pub path: String,
    /// How clients name the server: a host's name or an address (default: its first address).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The directory of the client, absolute (default: `/mnt`; on macOS one in the user's home).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// How a share is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounting {
    /// The path of the share.
    pub path: String,
    /// One of each kind, in the order of [`MountKind::ALL`].
    pub forms: Vec<MountForm>,
}

/// How a share is mounted by one kind of client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountForm {
    /// Who mounts it.
    pub kind: MountKind,
    /// What is typed, or stands in a file. Its comments say in which. Empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Who mounts a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// A shell of Linux.
    Linux,
    /// fstab(5).
    Fstab,
    /// A mount unit of systemd.
    Systemd,
    /// A direct map of autofs.
    Autofs,
    /// `steadfast mount`.
    Steadfast,
    /// A shell of macOS.
    Macos,
    /// The NFS client of Windows.
    Windows,
    /// A volume and a claim of Kubernetes.
    Kubernetes,
}

impl MountKind {
    /// All of them, most wanted first.
    pub const ALL: [Self; 8] = [
        Self::Linux,
        Self::Fstab,
        Self::Systemd,
        Self::Autofs,
        Self::Steadfast,
        Self::Macos,
        Self::Windows,
        Self::Kubernetes,
    ];

    /// As it is typed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Fstab => "fstab",
            Self::Systemd => "systemd",
            Self::Autofs => "autofs",
            Self::Steadfast => "steadfast",
            Self::Macos => "macos",
            Self::Windows => "windows",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// `GET /v1/explain`: about whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The client: an address, or a name that is looked up.
    pub client: String,
    /// The path that he mounts, or of a file.
    pub path: String,
    /// The user: a number, or a name that this host knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// How he says who he is (default: `sys`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    /// Whether he calls from a port of 1024 or above.
    #[serde(default)]
    pub high_port: bool,
}

pub use crate::explain::Explanation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_writable_if_somebody_may_change_it() {
        let share = |options: &[&str], rule: &[&str], state: &str| -> ShareStatus {
            serde_json::from_value(serde_json::json!({
                "path": "/a", "directory": "/a", "state": state, "id": 1, "options": options,
                "clients": ["*"], "rules": [{"clients": ["*"], "options": rule}],
            }))
            .expect("a share")
        };
        for options in [&["rw"][..], &["ro", "rw=10.0.0.1"], &["sec=sys", "ro", "sec=none", "rw"]] {
            assert!(share(options, &["ro"], "enabled").is_writable(), "{options:?}");
            assert!(share(&["ro"], options, "faulty").is_writable(), "{options:?}");
            assert!(!share(options, options, "disabled").is_writable(), "{options:?}");
        }
        for options in [&["ro"][..], &["none"], &["ro", "root=10.0.0.1"]] {
            assert!(!share(options, &["ro"], "enabled").is_writable(), "{options:?}");
        }
    }

    #[test]
    fn a_prefix_is_of_whole_names() {
        let filter = |prefix: &str| ShareFilter { prefix: Some(prefix.into()), ..<_>::default() };
        let has = |prefix, path| filter(prefix).has(path, None, ShareState::Enabled);
        assert!(has("/tank/home", "/tank/home"));
        assert!(has("/tank/home/", "/tank/home/ann"));
        assert!(!has("/tank/home", "/tank/homes"));
        assert!(has("/", "/tank") && has("", "/tank"));
        assert!(!ShareFilter { group: Some("g".into()), ..<_>::default() }.has(
            "/a",
            None,
            ShareState::Enabled
        ));
    }

    #[test]
    fn who_it_was_is_told_in_one_line() {
        let who =
            Who { uid: Some(0), pid: Some(7), program: Some("a\nb".into()), ..Who::default() };
        assert_eq!(who.to_string(), "user 0 (\"a\\nb\", process 7)");
        assert_eq!(Who::default().to_string(), "the server");
    }
}
