//! The commands that manage shares, as they are typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use steadfast_catalog::manage::DEFAULT_GROUP;
use steadfast_control::api::{MountKind, ShareState};
use steadfast_shares::RuleSpec;

use super::rule;
use crate::server_place::ServerChoice;

/// How a change is made.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChangeOptions {
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Why, for the history.
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Wait until plug-ins have done theirs too.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// For programs: one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShareArguments {
    #[command(subcommand)]
    pub(crate) action: ShareAction,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShareAction {
    /// Share directories.
    Add(ShareAdd),
    /// Change what is said of shares; the rest stays as it is.
    Set(ShareSet),
    /// Stop sharing directories. The files in them are kept.
    Remove(Paths),
    /// List shares: their state, group, clients and options.
    List(ShareList),
    /// Tell all that is known of a share.
    Show {
        /// Its path.
        path: PathBuf,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell how a share is mounted: by Linux, macOS, Windows, fstab, systemd, autofs, Kubernetes.
    Mounting {
        /// Its path.
        path: PathBuf,
        /// Only by this kind of client, and nothing else, so that it can be a file.
        #[arg(long, value_name = "KIND", value_parser = MountKind::ALL.map(MountKind::word))]
        by: Option<String>,
        /// How clients name the server: a host's name or an address (default: its first address).
        #[arg(long, value_name = "HOST")]
        server_name: Option<String>,
        /// The directory of the client (default: /mnt; on macOS one in the user's home).
        #[arg(long, value_name = "DIR")]
        at: Option<String>,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve shares again that were disabled or drained.
    Enable(Paths),
    /// Serve shares no more, and keep what is said of them.
    Disable {
        #[command(flatten)]
        paths: Paths,
        /// Serve those who have them mounted, and nobody else.
        #[arg(long)]
        drain: bool,
    },
    /// Serve shares from what their directories are on now, though that is another file system than
    /// before: another disk, or what is below one that is not mounted.
    Accept {
        /// Their paths.
        #[arg(required_unless_present = "all", value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// All shares that are faulty.
        #[arg(long, conflicts_with = "paths")]
        all: bool,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell what a client may do with a path, and why.
    Explain {
        /// The client (an address or a name), the user (a number or a name) if one is asked about,
        /// and the path.
        #[arg(value_names = ["CLIENT", "USER", "PATH"], num_args = 2..=3, required = true)]
        words: Vec<String>,
        /// How the user says who he is.
        #[arg(long, value_name = "FLAVOR", default_value = "sys",
              value_parser = ["none", "sys", "krb5", "krb5i", "krb5p"])]
        sec: String,
        /// The client calls from a port of 1024 or above.
        #[arg(long)]
        high_port: bool,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Some shares.
#[derive(Clone, Debug, Args)]
pub(crate) struct Paths {
    /// Their paths.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ShareAdd {
    /// Paths that clients mount: the directories, unless --directory names another.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The group that they are added to.
    #[arg(short, long, value_name = "GROUP", default_value = DEFAULT_GROUP)]
    pub(crate) group: String,
    /// Who may use them: addresses, networks, hosts, *.domains, @netgroups, or * for everybody
    /// (default: the group's clients); may be repeated.
    #[arg(short, long = "client", value_name = "CLIENT", value_delimiter = ',')]
    pub(crate) clients: Vec<String>,
    /// Options after those of the group, such as ro, insecure or size=10G: shares.d(5) has all.
    #[arg(short, long, value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Other options for some clients, who are asked about first: CLIENT,...:OPTION,... or
    /// CLIENT(OPTION,...); may be repeated.
    #[arg(long = "rule", value_name = "RULE", value_parser = rule::parse)]
    pub(crate) rules: Vec<RuleSpec>,
    /// The directory that is served.
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Its number in handles (default: made of the path).
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u64>,
    /// For people.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Its name where protocols want one.
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    /// A plug-in that serves them too; may be repeated.
    #[arg(long = "protocol", value_name = "PLUG-IN", value_delimiter = ',')]
    pub(crate) protocols: Vec<String>,
    /// Do not serve them yet.
    #[arg(long)]
    pub(crate) disabled: bool,
    /// Share a directory that is not there: the share is faulty until it is.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

/// What can be said anew of shares and of groups.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// Who may use them, in the place of those who might before; may be repeated.
    #[arg(short, long = "client", value_name = "CLIENT", value_delimiter = ',')]
    pub(crate) clients: Vec<String>,
    /// Let in; may be repeated.
    #[arg(long = "add-client", value_name = "CLIENT", value_delimiter = ',')]
    pub(crate) add_clients: Vec<String>,
    /// Let in no more; may be repeated.
    #[arg(long = "remove-client", value_name = "CLIENT", value_delimiter = ',')]
    pub(crate) remove_clients: Vec<String>,
    /// Options, in the place of those before.
    #[arg(short, long, value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) options: Vec<String>,
    /// Options beside those before, of which they replace what they contradict.
    #[arg(long = "add-option", value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) add_options: Vec<String>,
    /// Options that are taken out.
    #[arg(long = "remove-option", value_name = "OPTION,...", value_delimiter = ',')]
    pub(crate) remove_options: Vec<String>,
    /// For people.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Plug-ins that serve them too, in the place of those before; may be repeated.
    #[arg(long = "protocol", value_name = "PLUG-IN", value_delimiter = ',')]
    pub(crate) protocols: Vec<String>,
    /// A key that is taken out, so that what is inherited counts; may be repeated.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub(crate) unset: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShareSet {
    /// Their paths.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Rules, in the place of those before; may be repeated.
    #[arg(long = "rule", value_name = "RULE", value_parser = rule::parse)]
    pub(crate) rules: Vec<RuleSpec>,
    /// The group that they are moved to.
    #[arg(short, long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The directory that is served.
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Its number in handles. Clients must mount again.
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u64>,
    /// Its name where protocols want one.
    #[arg(long, value_name = "NAME")]
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ShareList {
    /// At or below this path.
    pub(crate) prefix: Option<PathBuf>,
    /// Of this group.
    #[arg(short, long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// In this state.
    #[arg(long)]
    pub(crate) state: Option<StateWord>,
    /// With so many percent of its size, or a size that is not enforced.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) filled: Option<u64>,
    /// For programs: one line of JSON a share.
    #[arg(long)]
    pub(crate) json: bool,
    /// Paths alone, one a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) paths: bool,
}

/// A state as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateWord {
    Enabled,
    Disabled,
    Faulty,
    Draining,
}

impl From<StateWord> for ShareState {
    fn from(word: StateWord) -> Self {
        match word {
            StateWord::Enabled => Self::Enabled,
            StateWord::Disabled => Self::Disabled,
            StateWord::Faulty => Self::Faulty,
            StateWord::Draining => Self::Draining,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GroupArguments {
    #[command(subcommand)]
    pub(crate) action: GroupAction,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// Make a group: what its shares have in common.
    Create {
        /// Its name, of letters, digits, -, . and _
        name: String,
        #[command(flatten)]
        settings: Settings,
        /// Make a share of every directory that matches, also of those that appear later:
        /// /tank/home/*; may be repeated.
        #[arg(long = "pattern", value_name = "DIR/*")]
        patterns: Vec<String>,
        /// Do not serve its shares yet.
        #[arg(long)]
        disabled: bool,
        #[command(flatten)]
        change: ChangeOptions,
    },
    /// Take groups away, which must be empty.
    Delete {
        #[command(flatten)]
        groups: Groups,
        /// Take their shares away too.
        #[arg(long)]
        with_shares: bool,
    },
    /// Change what is said of groups; the rest stays as it is.
    Set {
        #[command(flatten)]
        groups: Groups,
        #[command(flatten)]
        settings: Settings,
        /// Patterns, in the place of those before; may be repeated.
        #[arg(long = "pattern", value_name = "DIR/*")]
        patterns: Vec<String>,
    },
    /// Serve the shares of groups again.
    Enable(Groups),
    /// Serve none of the shares of groups, and keep what is said of them.
    Disable(Groups),
    /// Move shares to a group.
    Move {
        /// The group that they are moved to.
        group: String,
        #[command(flatten)]
        paths: Paths,
    },
    /// List groups, and how their shares are doing.
    List {
        /// For programs: one line of JSON a group.
        #[arg(long)]
        json: bool,
    },
}

/// Some groups.
#[derive(Clone, Debug, Args)]
pub(crate) struct Groups {
    /// Their names.
    #[arg(required = true, value_name = "GROUP")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

/// A file that says how groups are to be.
#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// TOML with `[[group]]` and `[[share]]`, or JSON with operations; - for standard input.
    pub(crate) file: PathBuf,
    /// Leave out what has mistakes, and do the rest.
    #[arg(long)]
    pub(crate) partial: bool,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// TOML with `[[group]]` and `[[share]]`, or JSON with operations; - for standard input.
    pub(crate) file: PathBuf,
    /// Leave out what has mistakes.
    #[arg(long)]
    pub(crate) partial: bool,
    /// For programs: one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArguments {
    /// The state to go back to, as `steadfast history` numbers them (default: the one before the
    /// last change).
    pub(crate) state: Option<u64>,
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// For programs: one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFrom {
    Exports,
    Ganesha,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The files (default: /etc/exports and /etc/exports.d/*.exports, or /etc/ganesha/ganesha.conf).
    pub(crate) files: Vec<PathBuf>,
    /// What they are: exports(5), or the configuration of nfs-ganesha with what it includes.
    #[arg(long, value_enum, default_value_t = ImportFrom::Exports)]
    pub(crate) from: ImportFrom,
    /// The group that the shares are added to, which is made if there is none.
    #[arg(short, long, value_name = "GROUP", default_value = "exports")]
    pub(crate) group: String,
    /// Leave out lines with mistakes, and import the rest.
    #[arg(long)]
    pub(crate) partial: bool,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Of this group alone.
    #[arg(short, long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

/// For commands that only tell.
#[derive(Debug, Args)]
pub(crate) struct TellArguments {
    /// For programs: JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    pub(crate) tell: TellArguments,
    /// Tell of changes as they come, until interrupted, instead of those before.
    #[arg(long)]
    pub(crate) follow: bool,
}
