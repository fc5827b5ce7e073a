//! The command line, as it is typed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use steadfast_bench::arguments::BenchArguments;
use steadfast_catalog::configuration::{
    Delegations, LOG_MIB, ListenAddress, LocalGuard, LogTarget,
};
use steadfast_control::slow::{CALLS_MAX, CALLS_USUAL};
use steadfast_control::statistics::RECENT_MAX;
use steadfast_observe::watch::WatchArguments;
use steadfast_shares::{Access, ClientPattern, ShareOptions};

use crate::capture_command;
use crate::client_commands;
use crate::configuration_file::CONFIGURATION_FILE;
use crate::doctor_command;
use crate::journal_commands::JournalArguments;
use crate::mount_command;
use crate::server_place::ServerChoice;
use crate::share_commands::arguments as share_commands;
use crate::status_command;
use crate::top_command;
use crate::traces_command;
use crate::tune_command;

/// The port of NFS.
pub(crate) const NFS_PORT: u16 = 2049;

#[derive(Debug, Parser)]
#[command(
    name = "steadfast",
    version,
    about = "An NFS server that never loses an acknowledged change"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve directories over NFSv3 and NFSv4.
    Serve(ServeArguments),
    /// Check a configuration file. Exit status: 0 no mistakes, 1 mistakes, 2 wrong usage.
    CheckConfig {
        /// The file.
        #[arg(default_value = CONFIGURATION_FILE)]
        file: PathBuf,
    },
    /// Put a load on any NFSv3 server, check what it promises, and report.
    ///
    /// Every reply is checked. Ctrl-C ends a load and prints what there is. Exit status: 0
    /// measured, 1 the server failed a call or broke a promise, 2 wrong usage.
    Bench(BenchArguments),
    /// Mount a share of any server of NFSv3, 4.1 or 4.2 through FUSE, tell how mounts are, or flush them.
    ///
    /// Goes to the background once the mount stands. `umount DIR` ends it. `status` and `flush` ask the processes
    /// of mounts that stand.
    Mount(mount_command::MountArguments),
    /// Tell why NFS is slow here: findings on this machine's network, mounts, servers, disks and settings.
    ///
    /// Works on clients, and on servers of any kind. Changes nothing. Exit status: 0 nothing to do, 1 advice,
    /// 2 warnings (or wrong usage), 3 critical, 4 no report.
    Doctor(doctor_command::DoctorArguments),
    /// Tell which settings of the kernel NFS gains by, change them, and change them back.
    ///
    /// Exit status: 0 done, 1 not done, 2 wrong usage.
    Tune(tune_command::TuneArguments),
    /// Tell how the server is, on one screen: whether it serves, its shares, clients, log and disks, and what to
    /// do next.
    ///
    /// Answers within 10 s, though a disk hangs. Exit status: 0 fine, 1 warning, 2 critical: it does not serve, or
    /// not all of it; 3 not known, or wrong usage.
    Status(status_command::StatusArguments),
    /// Tell what a running server has done, and where the time of its calls went.
    Statistics(StatisticsArguments),
    /// Tell which calls to a running server were the slowest of the last 10 minutes, and why.
    ///
    /// Exit status: 0 told, 1 no server could be asked, 2 wrong usage.
    Slow(SlowArguments),
    /// Show what a running server is asked for now: by operation, client, user, share and file.
    ///
    /// A screen in a terminal, else a table each interval. Exit status: 0 shown, 1 no server could be asked, 2 wrong
    /// usage.
    Top(top_command::TopCommand),
    /// Send sampled calls of a running server as traces to a collector of OpenTelemetry (OTLP by HTTP).
    ///
    /// Runs until it is interrupted. Server and collector may come and go. Exit status: 0 sent, 1 no server could be asked
    /// at first, 2 wrong usage.
    Traces(traces_command::TracesCommand),
    /// Watch the calls of any NFS server or client by capturing packets: by operation, client, user, server and
    /// file.
    ///
    /// A table each interval, or a screen in a terminal. Exit status: 0 watched, 1 packets cannot be captured or a
    /// file cannot be read, 2 wrong usage.
    Watch(WatchArguments),
    /// Capture the RPC messages of a running server inside it, as it reads and writes them, to a pcapng file for Wireshark.
    ///
    /// Contents of files are left out without --contents. Ctrl-C ends it. Exit status: 0 captured, 1 the server cannot
    /// be asked or the file not be written, 2 wrong usage.
    Capture(capture_command::CaptureCommand),
    /// Tell which clients have files open and locked, or end one.
    ///
    /// Exit status: 0 done, 1 not done, 2 wrong usage.
    Clients(client_commands::ClientsArguments),
    /// Share directories, and look after shares.
    ///
    /// Exit status of this and the following commands: 0 done, 1 not done, 2 wrong usage.
    Share(share_commands::ShareArguments),
    /// Look after groups: what shares have in common.
    Group(share_commands::GroupArguments),
    /// Apply a file of groups and shares as one transaction.
    Apply(share_commands::ApplyArguments),
    /// Tell what `apply` would do, and do nothing.
    Plan(share_commands::PlanArguments),
    /// Go back to one of the last states of the shares.
    Rollback(share_commands::RollbackArguments),
    /// Share what files of exports(5) share.
    Import(share_commands::ImportArguments),
    /// Print the shares as exports(5) has them.
    Export(share_commands::ExportArguments),
    /// List the last states of the shares, and who made them.
    History(share_commands::HistoryArguments),
    /// Have the server read again the files that people edit.
    Reload(share_commands::TellArguments),
    /// Print what a shell needs to complete these commands.
    Completion(CompletionArguments),
    /// Write man pages of these commands into a directory.
    Man(ManArguments),
    /// Look at the intent log, switch it, measure its device, or decide about one that was refused.
    ///
    /// Exit status: 0 done, 1 not done, 2 wrong usage.
    Log(LogArguments),
    /// Look at the journal of a mount: the changes that its server does not have stable yet.
    ///
    /// Exit status: 0 done, 1 not done or damaged, 2 wrong usage.
    Journal(JournalArguments),
    /// Asks the system's name service switch for the server, which starts it by itself.
    #[command(hide = true)]
    NamesHelper,
    /// Asks one file system for its size, for `status`, which must not hang with it.
    #[command(hide = true)]
    DiskUsage(status_command::DiskUsageArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    #[command(subcommand)]
    pub(crate) action: LogAction,
    /// Configuration file; without it /etc/steadfast/steadfast.toml is read if it is there.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The state directory of the server.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_directory: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogAction {
    /// Tell what the log is doing, and what it holds. Changes nothing.
    Status {
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make all file systems stable now; ends when they are, and says which cannot be.
    Flush {
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Log changes again, after `disable`, or after the log's device has failed and is well again.
    Enable,
    /// Empty the log and leave it, until `enable` or the next start: changes are flushed one by
    /// one, which is slower and as safe.
    Disable,
    /// Measure how long a device takes to make writes stable, and tell what that says about it.
    Probe {
        /// A directory or a file, beside which a scratch file is written, or a block device
        /// (default: the log).
        path: Option<PathBuf>,
        /// Write to a block device whatever it has. Destroys that.
        #[arg(long)]
        overwrite: bool,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read a log that no server uses from its tail to its end, and tell what is in it. Changes
    /// nothing.
    Verify,
    /// Make a log that is another host's, or that this server has not used, this server's: its
    /// operations are replayed at the next start.
    Adopt {
        /// Of a damaged log, keep the operations before the damage, and give up the rest.
        #[arg(long)]
        up_to_damage: bool,
        /// Replay a log that is older than its file systems, over what is newer there.
        #[arg(long, conflicts_with = "up_to_damage")]
        replay_old_records: bool,
        /// Replay the operations of this file system (a path where it was served, or its UUID)
        /// though that was refused; OLD=NEW: those of the UUID OLD on the file system that has the
        /// UUID NEW now, or is mounted there.
        #[arg(
            long,
            value_name = "FILE-SYSTEM",
            conflicts_with_all = ["up_to_damage", "replay_old_records"]
        )]
        file_system: Option<String>,
    },
    /// Throw away what is in the log, and make it anew.
    Discard {
        /// Throw away the operations of this file system alone: a path where it was served, or its
        /// UUID.
        #[arg(long, value_name = "FILE-SYSTEM")]
        file_system: Option<String>,
        /// How many operations are lost by that, as `steadfast log verify` tells.
        #[arg(long, value_name = "N-operations", value_parser = operations)]
        yes_lose: u64,
    },
}

/// Exit status: 0 told, 1 no server runs or it may not be asked, 2 wrong usage.
#[derive(Debug, Default, Args)]
pub(crate) struct StatisticsArguments {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// For programs: one line of JSON. It can also be a mix file of the load generator.
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(
        long,
        help = "Print metrics in Prometheus' text format",
        conflicts_with_all = ["json", "openmetrics", "recent", "watch"]
    )]
    pub(crate) prometheus: bool,
    #[arg(
        long,
        help = "Print metrics in the format of OpenMetrics 1.0",
        conflicts_with_all = ["json", "recent", "watch"]
    )]
    pub(crate) openmetrics: bool,
    #[arg(
        long,
        value_name = "FILE",
        help = "Write metrics into a file for node_exporter's textfile collector: FILE ends with .prom. \
                With --watch it is written again each interval",
        conflicts_with_all = ["json", "openmetrics", "prometheus", "recent"]
    )]
    pub(crate) textfile: Option<PathBuf>,
    /// Go on, and tell what happened since the last time, until interrupted.
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub(crate) watch: Option<Duration>,
    /// Tell the last N calls of the flight recorder: one in 64, and those that took long.
    #[arg(long, value_name = "N", conflicts_with = "watch", value_parser = recent_count)]
    pub(crate) recent: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct SlowArguments {
    #[command(flatten)]
    pub(crate) server: ServerChoice,
    /// For programs: one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only calls of this client.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) client: Option<IpAddr>,
    /// Only calls of this procedure, or COMPOUNDs with this operation: WRITE, for example.
    #[arg(long, value_name = "NAME", value_parser = operation_name)]
    pub(crate) operation: Option<String>,
    /// Only calls that were answered during the last so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) since: Option<u64>,
    /// At most so many, the slowest.
    #[arg(long, value_name = "N", default_value_t = CALLS_USUAL, value_parser = slow_count)]
    pub(crate) count: usize,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Where they are written.
    pub(crate) directory: PathBuf,
}

/// Exit status: 0 stopped by a signal, 1 could not start or failed, 2 wrong usage.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArguments {
    /// Directories to serve, beside the shares of the configuration file; without any those of
    /// `STEADFAST_SERVE_DIRECTORIES`, with colons between. One that is missing is created.
    #[arg(value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,
    /// Configuration file; without it /etc/steadfast/steadfast.toml is read if it is there.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) share: ShareArguments,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    /// Where log messages go: stderr or journald.
    #[arg(long, value_name = "TARGET", value_parser = log_target)]
    pub(crate) log: Option<LogTarget>,
    /// Log more; twice for every detail.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Acknowledge changes before they are stable: to be measured only, clients lose data.
    #[cfg(feature = "unsafe-async")]
    #[arg(long)]
    pub(crate) unsafe_async: bool,
}

/// For the directories of the command line.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options for DIR (shares of the configuration file have their own)")]
pub(crate) struct ShareArguments {
    /// Clients may change files (the default).
    #[arg(long, conflicts_with = "ro")]
    pub(crate) rw: bool,
    /// Clients may only read.
    #[arg(long)]
    pub(crate) ro: bool,
    /// A client's root is root here too.
    #[arg(long, conflicts_with = "all_squash")]
    pub(crate) no_root_squash: bool,
    /// Every user of a client becomes the anonymous user.
    #[arg(long)]
    pub(crate) all_squash: bool,
    /// Serve calls from any port. Without this they must come from a port below 1024, which only
    /// root of a client may use.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The anonymous user.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..i64::from(u32::MAX)))]
    pub(crate) anonuid: Option<u32>,
    /// The anonymous group.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..i64::from(u32::MAX)))]
    pub(crate) anongid: Option<u32>,
    /// Serve file systems mounted below DIR too.
    #[arg(long)]
    pub(crate) crossmnt: bool,
    /// Who may mount: addresses, networks like 10.0.0.0/8, or * for everybody (the default).
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = client_pattern)]
    pub(crate) clients: Vec<ClientPattern>,
}

/// For the process; each outweighs what the configuration file says.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server options (each outweighs the configuration file)")]
pub(crate) struct ServerArguments {
    /// Serve at this address (default: all of IPv4 and IPv6), a link-local one with its interface
    /// (`[fe80::1%eth0]:2049`); may be repeated, or have several with commas.
    #[arg(long, value_name = "ADDR[:PORT]", value_delimiter = ',',
          value_parser = str::parse::<ListenAddress>)]
    pub(crate) listen: Vec<ListenAddress>,
    /// Serve at this port; 0 takes a free one.
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Where the handle key is kept (default: /var/lib/steadfast; for others than root
    /// $`XDG_STATE_HOME/steadfast` or ~/.local/state/steadfast).
    #[arg(long, value_name = "DIR")]
    pub(crate) state_directory: Option<PathBuf>,
    /// Serve TCP only.
    #[arg(long)]
    pub(crate) no_udp: bool,
    /// Serve NFSv3 without NFSv4.0, 4.1 and 4.2 (/usr/share/doc/steadfast/nfsv4.md).
    #[arg(long)]
    pub(crate) no_nfs4: bool,
    /// Grant clients of NFSv4.1 and 4.2 delegations: none (the default), read, or write
    /// (/usr/share/doc/steadfast/nfsv4.md).
    #[arg(long, value_name = "KIND", value_parser = str::parse::<Delegations>)]
    pub(crate) delegations: Option<Delegations>,
    /// Delegate only files that can be guarded from local processes, by leases (required, the default), or any
    /// (none: no local process uses shared files).
    #[arg(long, value_name = "GUARD", value_parser = str::parse::<LocalGuard>)]
    pub(crate) local_guard: Option<LocalGuard>,
    /// Serve NFSv2 too, for old devices (/usr/share/doc/steadfast/nfsv2.md says which shares cannot be).
    #[arg(long)]
    pub(crate) nfs2: bool,
    /// Leave the host's rpcbind and port 111 alone.
    #[arg(long)]
    pub(crate) no_rpcbind: bool,
    /// Serve shares that contain the state directory, the intent log, the groups' files or the
    /// control socket too. Clients who may read the handle key there can forge handles; those who
    /// may write there decide what is shared.
    #[arg(long)]
    pub(crate) share_own_files: bool,
    /// Make a new handle key where the one of before is lost: all clients must mount again.
    #[arg(long)]
    pub(crate) new_handle_key: bool,
    /// Flush every change before its reply instead of logging it.
    #[arg(long)]
    pub(crate) no_intent_log: bool,
    /// How large an intent log is made if there is none, in MiB (default: 256, less where little
    /// is free).
    #[arg(long, value_name = "N", conflicts_with = "no_intent_log",
          value_parser = clap::value_parser!(u64).range(LOG_MIB.0..=LOG_MIB.1))]
    pub(crate) intent_log_mib: Option<u64>,
    /// How many pools of workers (default: one a NUMA node).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) pools: Option<u16>,
}

impl ShareArguments {
    pub(crate) fn options(&self) -> ShareOptions {
        let default = Access::default();
        ShareOptions {
            access: Access {
                is_read_only: self.ro,
                squashes_root: !self.no_root_squash,
                squashes_all: self.all_squash,
                anonymous_uid: self.anonuid.unwrap_or(default.anonymous_uid),
                anonymous_gid: self.anongid.unwrap_or(default.anonymous_gid),
                needs_privileged_port: !self.insecure,
                ..default
            },
            crosses_mounts: self.crossmnt,
            ..ShareOptions::default()
        }
    }

    pub(crate) fn clients(&self) -> Vec<ClientPattern> {
        if self.clients.is_empty() { vec![ClientPattern::Any] } else { self.clients.clone() }
    }
}

fn operations(text: &str) -> Result<u64, String> {
    text.strip_suffix("-operations")
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| "say how many: N-operations".to_owned())
}

fn client_pattern(text: &str) -> Result<ClientPattern, String> {
    text.parse().map_err(|error: steadfast_shares::PatternError| match error.suggestion {
        Some(suggestion) => format!("{}; did you mean {suggestion:?}?", error.what),
        None => error.what,
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| "write seconds, from 0.1 to 86400".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

fn recent_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=RECENT_MAX).contains(count));
    count.ok_or_else(|| format!("write a number from 1 to {RECENT_MAX}"))
}

fn slow_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=CALLS_MAX).contains(count));
    count.ok_or_else(|| format!("write a number from 1 to {CALLS_MAX}"))
}

/// It goes into the address that is asked for as it is.
fn operation_name(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| text.to_owned()).ok_or_else(|| "write a name as WRITE or OPEN".to_owned())
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "stderr" => Ok(LogTarget::Stderr),
        "journald" => Ok(LogTarget::Journald),
        _ => Err("write stderr or journald".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use steadfast_shares::Squash;

    use super::{Arguments, Command, ListenAddress, ServeArguments};
    use crate::environment;

    fn serve(words: &[&str]) -> ServeArguments {
        let words = ["steadfast", "serve"].iter().chain(words);
        match Arguments::try_parse_from(words).expect("arguments").command {
            Command::Serve(arguments) => arguments,
            _ => panic!("serve was asked for"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        environment::described().debug_assert();
    }

    #[test]
    fn listen_addresses_may_lack_a_port() {
        let port = |text: &str| {
            let address = serve(&["a", "--listen", text]).server.listen.remove(0);
            address.has_port.then_some(address.address.port())
        };
        assert_eq!(port("0.0.0.0:111"), Some(111));
        assert_eq!(port("::1"), None);
        assert_eq!(port("[::1]"), None);
        assert_eq!(port("[::1]:2049"), Some(2049));
        assert_eq!(port("[fe80::1%eth0]:2049"), Some(2049));
        assert_eq!(port("fe80::1%eth0"), None);
        for wrong in ["localhost", "1.2.3.4:99999", "fe80::1", "::1%lo", "[fe80::1]:1%lo"] {
            assert!(wrong.parse::<ListenAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_become_rights() {
        let arguments = serve(&["a", "b", "--ro", "--all-squash", "--anonuid", "7"]);
        let grants = arguments.share.options().grants();
        let rights = &grants[0];
        assert_eq!(arguments.directories.len(), 2);
        assert!(rights.is_read_only);
        assert_eq!((rights.squash, rights.anonymous_uid), (Squash::All, 7));
        assert!(rights.needs_privileged_port);
        let open = serve(&["a", "--insecure"]).share.options();
        assert!(!open.access.needs_privileged_port);
        assert_eq!(serve(&["a", "--clients", "10.0.0.0/8,::1"]).share.clients().len(), 2);
    }

    #[test]
    fn contradictions_and_dangerous_ids_are_refused() {
        for words in [
            &["a", "--ro", "--rw"][..],
            &["a", "--no-root-squash", "--all-squash"],
            &["a", "--anonuid", "4294967295"],
            &["a", "--clients", "10.0.0.1/8"],
            &["a", "--log", "syslog"],
        ] {
            let words = ["steadfast", "serve"].iter().chain(words);
            assert!(Arguments::try_parse_from(words).is_err());
        }
    }

    #[test]
    fn what_is_asked_of_statistics_is_bounded() {
        for (words, is_right) in [
            (&["--watch", "0.5", "--json"][..], true),
            (&["--recent", "1024", "--json"], true),
            (&["--watch", "0"], false),
            (&["--watch", "nan"], false),
            (&["--recent", "0"], false),
            (&["--recent", "1025"], false),
            (&["--recent", "5", "--watch", "1"], false),
        ] {
            let words = ["steadfast", "statistics"].iter().chain(words);
            assert_eq!(Arguments::try_parse_from(words).is_ok(), is_right);
        }
    }
}
