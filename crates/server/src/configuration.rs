//! What a server is started with, as a value: the settings, and the shares that are in no group.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_catalog::configuration::{
    ListenAddress, LogSettings, MetricsSettings, NamesSettings, Place, PluginSettings,
    ServerSettings, ShareSettings, TEXT_BYTES_MAX,
};
use steadfast_catalog::manage::{DefaultsSpec, ShareSpec};
use steadfast_catalog::{Configuration as FileContents, FixedShare};
use steadfast_shares::{ClientPattern, ClientRule, RuleSet, Share, ShareId, ShareOptions, nearest};
use steadfast_sys::net;

use crate::error::StartError;

/// Names of a directory that are looked through for the one that was meant.
const NAMES_MAX: usize = 1000;
/// The port of NFS.
const NFS_PORT: u16 = 2049;

/// What is to be served, and how.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// What a server has for as long as it runs.
    pub settings: Settings,
    /// `[defaults]`, which groups inherit.
    pub defaults: DefaultsSpec,
    /// The shares that are in no group.
    pub shares: Vec<FixedShare>,
}

/// What a server has of its configuration for as long as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `[server]`
    pub server: ServerSettings,
    /// `[log]`
    pub log: LogSettings,
    /// `[metrics]`
    pub metrics: MetricsSettings,
    /// `[names]`
    pub names: NamesSettings,
    /// `[plugin.NAME]`
    pub plugins: Vec<PluginSettings>,
}

/// What the program around a server says beside the configuration.
#[derive(Default)]
pub struct StartOptions {
    /// Where the server's state is, in place of what is configured, or of the usual place: the key of
    /// the handles, the intent log unless it is configured elsewhere, the control socket, and all that
    /// outlives the server.
    pub state_directory: Option<PathBuf>,
    /// Where the groups' files are, unless that is configured (default: `shares.d` in the state
    /// directory).
    pub shares_directory: Option<PathBuf>,
    /// The port to listen at, in place of those that are configured, or of 2049.
    pub port: Option<u16>,
    /// Whether to make a new handle key where the one of before is lost. All clients must mount
    /// again then.
    pub makes_handle_key: bool,
    /// Whether to start though none of the shares can be served: somebody can mend them while the
    /// server runs.
    pub starts_without_shares: bool,
    /// A program and its arguments: the server starts it to ask the system's name service switch,
    /// and it answers with [`steadfast_access::helper::serve`]. Without it netgroups, and groups of
    /// users, come from files alone.
    pub names_helper: Option<Vec<OsString>>,
    /// Reads the shares of the configuration again, at a reload. Without it they stay.
    pub read_base: Option<ReadBase>,
    /// Acknowledge changes before they are stable: to be measured only, clients lose data.
    #[cfg(feature = "unsafe-async")]
    pub acknowledges_unflushed: bool,
}

/// The shares of the configuration, as they are now.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// `[defaults]`, which groups inherit.
    pub defaults: DefaultsSpec,
    /// The shares that are in no group.
    pub shares: Vec<FixedShare>,
    /// What else has changed there, and is not taken.
    pub warnings: Vec<String>,
}

/// Reads the shares of the configuration again; one line a mistake.
pub type ReadBase = Box<dyn Fn() -> Result<Base, Vec<String>> + Send + Sync>;

/// Where directories of the command line are written.
pub(crate) const COMMAND_LINE: &str = "the command line";

/// A share and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct WantedShare {
    pub(crate) share: Arc<Share>,
    /// `FILE:LINE:COLUMN` of its directory, if that is to be told.
    pub(crate) place: Option<String>,
}

impl Settings {
    /// What is otherwise `now`, one line a table: a server that runs does not take it over.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut tables = Vec::new();
        let mut tell = |is_other: bool, table: &str| {
            if is_other {
                tables.push(format!("{table} has changed: that takes a restart"));
            }
        };
        tell(self.server != now.server, "[server]");
        tell(self.log != now.log, "[log]");
        tell(self.metrics != now.metrics, "[metrics]");
        tell(self.names != now.names, "[names]");
        let all = self.plugins.iter().chain(&now.plugins);
        let names: BTreeSet<&str> = all.map(|plugin| plugin.name.as_str()).collect();
        for name in names {
            let is_it = |plugin: &&PluginSettings| plugin.name == name;
            let is_other = self.plugins.iter().find(is_it) != now.plugins.iter().find(is_it);
            tell(is_other, &format!("[plugin.{name}]"));
        }
        tables
    }
}

impl Configuration {
    /// Shares a directory, under its own path, with these clients.
    ///
    /// # Errors
    /// When the path is not UTF-8, as all paths that clients mount are.
    pub fn add_directory(
        &mut self,
        directory: &Path,
        options: &ShareOptions,
        clients: &[ClientPattern],
    ) -> Result<(), String> {
        let path = directory.to_str().ok_or_else(|| {
            format!(
                "{directory:?} is not UTF-8: write it into a configuration file, with another path"
            )
        })?;
        let grants = options.grants();
        let rule = |pattern: &ClientPattern| ClientRule {
            pattern: pattern.clone(),
            grants: Arc::clone(&grants),
        };
        let share = Share {
            id: ShareId::of_path(path),
            path: path.into(),
            elsewhere: None,
            crosses_mounts: options.crosses_mounts,
            required_mounts: Arc::default(),
            size: options.size,
            without_log: false,
            is_draining: false,
            rules: Arc::new(RuleSet::new(clients.iter().map(rule).collect())),
        };
        let spec = ShareSpec {
            path: path.to_owned(),
            options: options.words(&ShareOptions::default()),
            clients: clients.iter().map(ToString::to_string).collect(),
            ..ShareSpec::default()
        };
        let source = COMMAND_LINE.to_owned();
        self.shares.push(FixedShare { share: Arc::new(share), spec, source });
        Ok(())
    }

    /// Takes over what a configuration file says ([`read_file`]): its settings and defaults, and its
    /// shares beside those that there are.
    ///
    /// # Errors
    /// One line a mistake: a path that is shared already.
    pub fn add_file(&mut self, file: &Path, contents: FileContents) -> Result<(), Vec<String>> {
        let FileContents { server, log, metrics, names, plugins, defaults, shares, .. } = contents;
        self.settings = Settings { server, log, metrics, names, plugins };
        self.defaults = defaults;
        let known = self.shares.iter().map(|known| Arc::clone(&known.share.path));
        let known: HashSet<Arc<str>> = known.collect();
        for settings in shares {
            let at = |place| placed(file, place);
            let path = &settings.share.path;
            // Those of the file differ among themselves.
            if known.contains(path) {
                let place = at(settings.path_place);
                return Err(vec![format!(
                    "{place}: {path:?} is served twice: the command line has it"
                )]);
            }
            let source = at(settings.directory_place);
            let ShareSettings { share, spec, .. } = settings;
            self.shares.push(FixedShare { share: Arc::new(share), spec, source });
        }
        Ok(())
    }
}

/// `FILE:LINE:COLUMN`
fn placed(file: &Path, place: Place) -> String {
    format!("{}:{place}", file.display())
}

/// Reads a configuration file.
///
/// # Errors
/// One line a mistake.
pub fn read_file(file: &Path) -> Result<FileContents, Vec<String>> {
    let shown = file.display();
    let metadata =
        file.metadata().map_err(|error| vec![format!("{shown}: cannot be read: {error}")])?;
    if metadata.len() > TEXT_BYTES_MAX as u64 {
        return Err(vec![format!("{shown}: longer than {TEXT_BYTES_MAX} bytes")]);
    }
    let bytes =
        std::fs::read(file).map_err(|error| vec![format!("{shown}: cannot be read: {error}")])?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..valid).unwrap_or(&[]);
        let line = before.split(|byte| *byte == b'\n').count();
        vec![format!("{shown}:{line}:1: the line has bytes that are not UTF-8")]
    })?;
    FileContents::parse(&text)
        .map_err(|errors| errors.iter().map(|error| format!("{shown}:{error}")).collect())
}

/// Why a directory cannot be served, if so.
pub fn directory_problem(directory: &Path) -> Option<String> {
    match directory.metadata() {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(format!("{directory:?} is not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(missing_directory(directory))
        }
        Err(error) => Some(format!("the directory {directory:?} cannot be opened: {error}")),
    }
}

/// That a directory is missing, and which one was probably meant.
pub(crate) fn missing_directory(directory: &Path) -> String {
    let suggestion =
        neighbour(directory).map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
    format!("the directory {directory:?} does not exist{suggestion}")
}

/// The directory beside a missing one whose name is nearest.
fn neighbour(directory: &Path) -> Option<PathBuf> {
    let (parent, name) = (directory.parent()?, directory.file_name()?.to_str()?);
    let names: Vec<String> = std::fs::read_dir(parent)
        .ok()?
        .take(NAMES_MAX)
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    nearest(name, names.iter().map(String::as_str)).map(|meant| parent.join(meant))
}

/// Where to listen, and whether that is only the default (of which IPv6 may be left out where
/// there is none). A port that is named replaces those of the addresses, and leaves the addresses:
/// who serves one address only must not find all of them served.
///
/// # Errors
/// When an interface of an address is not there.
pub(crate) fn listen_addresses(
    configured: Option<&[ListenAddress]>,
    port: Option<u16>,
) -> Result<(Vec<SocketAddr>, bool), StartError> {
    let wanted: Vec<SocketAddr> = if let Some(configured) = configured {
        configured.iter().map(|wanted| listen_address(wanted, port)).collect::<Result<_, _>>()?
    } else {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        any.into_iter().map(|ip| SocketAddr::new(ip, port.unwrap_or(NFS_PORT))).collect()
    };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in wanted {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok((addresses, configured.is_none()))
}

/// An address with the number of its interface, and this port if one is said.
fn listen_address(wanted: &ListenAddress, port: Option<u16>) -> Result<SocketAddr, StartError> {
    let mut address = wanted.address;
    if let Some(port) = port {
        address.set_port(port);
    }
    if let (SocketAddr::V6(address), Some(zone)) = (&mut address, &wanted.zone) {
        let number = net::interface(zone).map_err(|_| {
            StartError::Configuration(format!(
                "cannot listen at {wanted}: this machine has no network interface {zone:?}"
            ))
        })?;
        address.set_scope_id(number);
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    fn parsed(texts: &[&str]) -> Vec<ListenAddress> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn interfaces_are_found_by_their_names() {
        let chosen = |texts: &[&str]| listen_addresses(Some(&parsed(texts)), None);
        let found = chosen(&["[fe80::1%lo]:1"]).expect("addresses").0;
        let SocketAddr::V6(zoned) = found[0] else { panic!() };
        assert_eq!(Some(zoned.scope_id()), net::interface("lo").ok());
        let error = chosen(&["fe80::1%nowhere"]).expect_err("no such interface").to_string();
        assert!(error.contains("no network interface \"nowhere\""), "{error}");
    }

    #[test]
    fn a_port_that_is_named_leaves_the_addresses() {
        let configured = parsed(&["127.0.0.1:2049", "[::1]:2049", "127.0.0.1:2050"]);
        let chosen = |configured, port| listen_addresses(configured, port).expect("addresses");
        let named = addresses(&["127.0.0.1:5000", "[::1]:5000"]);
        assert_eq!(chosen(Some(&configured), Some(5000)), (named, false));
        assert_eq!(chosen(Some(&configured[..1]), None).0, addresses(&["127.0.0.1:2049"]));
        let any = addresses(&["0.0.0.0:5000", "[::]:5000"]);
        assert_eq!(chosen(None, Some(5000)), (any, true));
        assert_eq!(chosen(None, None).0[0].port(), NFS_PORT);
    }

    #[test]
    fn a_missing_directory_is_told_with_its_neighbour() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(place.path().join("projects")).expect("made");
        let problem = directory_problem(&place.path().join("project")).expect("a problem");
        assert!(problem.contains("did you mean") && problem.contains("projects"), "{problem}");
        assert_eq!(directory_problem(&place.path().join("projects")), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_line() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("bad.toml");
        std::fs::write(&file, b"[server]\nlog = \"\xff\"\n").expect("written");
        let errors = read_file(&file).expect_err("not UTF-8");
        assert!(errors[0].contains("bad.toml:2:1: "), "{errors:?}");
    }
}
