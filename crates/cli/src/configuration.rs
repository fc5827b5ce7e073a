//! The configuration as a whole: the file's text, the command line, and what is on disk.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use steadfast_catalog::configuration::{
    ListenAddress, LogSettings, NamesSettings, Place, PluginSettings, ServerSettings,
    ShareSettings, TEXT_BYTES_MAX,
};
use steadfast_catalog::manage::{DefaultsSpec, ShareSpec};
use steadfast_catalog::{Configuration, FixedShare};
use steadfast_shares::{ClientRule, RuleSet, Share, ShareId, ShareOptions, nearest};
use steadfast_sys::{net, process};

use crate::arguments::{NFS_PORT, ServeArguments, ServerArguments};

/// Names of a directory that are looked through for the one that was meant.
const NAMES_MAX: usize = 1000;

/// What is to be served, wherever it was said.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// `[server]`; the command line outweighs it.
    pub(crate) server: ServerSettings,
    /// `[log]`
    pub(crate) log: LogSettings,
    /// `[names]`
    pub(crate) names: NamesSettings,
    /// `[plugin.NAME]`
    pub(crate) plugins: Vec<PluginSettings>,
    /// `[defaults]`, which groups inherit.
    pub(crate) defaults: DefaultsSpec,
    pub(crate) shares: Vec<FixedShare>,
}

/// What a server has of its configuration for as long as it runs.
pub(crate) struct AtStart {
    server: ServerSettings,
    log: LogSettings,
    names: NamesSettings,
    plugins: Vec<PluginSettings>,
}

impl AtStart {
    pub(crate) fn of(wanted: &Wanted) -> Self {
        Self {
            server: wanted.server.clone(),
            log: wanted.log.clone(),
            names: wanted.names.clone(),
            plugins: wanted.plugins.clone(),
        }
    }

    /// What the file says otherwise now, one line a table.
    pub(crate) fn differences(&self, wanted: &Wanted) -> Vec<String> {
        let mut tables = Vec::new();
        let mut tell = |is_other: bool, table: &str| {
            if is_other {
                tables.push(format!("{table} has changed: that takes a restart"));
            }
        };
        tell(self.server != wanted.server, "[server]");
        tell(self.log != wanted.log, "[log]");
        tell(self.names != wanted.names, "[names]");
        let all = self.plugins.iter().chain(&wanted.plugins);
        let names: BTreeSet<&str> = all.map(|plugin| plugin.name.as_str()).collect();
        for name in names {
            let is_it = |plugin: &&PluginSettings| plugin.name == name;
            let is_other = self.plugins.iter().find(is_it) != wanted.plugins.iter().find(is_it);
            tell(is_other, &format!("[plugin.{name}]"));
        }
        tables
    }
}

/// Where directories of the command line are written.
pub(crate) const COMMAND_LINE: &str = "the command line";

/// A share and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct WantedShare {
    pub(crate) share: Arc<Share>,
    /// `FILE:LINE:COLUMN` of its directory, if that is to be told.
    pub(crate) place: Option<String>,
}

/// The file to read: the one that the arguments name, the one that was read before, or the usual
/// one if it is there. What was read before is read again even if it is gone, so that its
/// absence is a mistake and not a configuration without its shares.
pub(crate) fn file_to_read(
    arguments: &ServeArguments,
    read_before: Option<&Path>,
    usual: &Path,
) -> Option<PathBuf> {
    let known = arguments.config.as_deref().or(read_before);
    // What cannot be looked for is told when it is read.
    let is_usual_there = || usual.try_exists().unwrap_or(true);
    known.or_else(|| is_usual_there().then_some(usual)).map(Path::to_owned)
}

/// Reads the file, if there is one, and adds the directories of the command line (which exist by
/// now).
///
/// # Errors
/// One line a mistake, each with its place.
pub(crate) fn wanted(
    arguments: &ServeArguments,
    file: Option<&Path>,
    directories: &[PathBuf],
) -> Result<Wanted, Vec<String>> {
    let mut wanted = Wanted {
        server: ServerSettings::default(),
        log: LogSettings::default(),
        names: NamesSettings::default(),
        plugins: Vec::new(),
        defaults: DefaultsSpec::default(),
        shares: Vec::new(),
    };
    let mut paths = HashSet::new();
    for directory in directories {
        let share = command_line_share(arguments, directory).map_err(|error| vec![error])?;
        paths.insert(share.path.clone());
        let spec = command_line_spec(arguments, &share);
        let source = COMMAND_LINE.to_owned();
        wanted.shares.push(FixedShare { share: Arc::new(share), spec, source });
    }
    if let Some(file) = file {
        let configuration = read(file)?;
        wanted.server = configuration.server;
        wanted.log = configuration.log;
        wanted.names = configuration.names;
        wanted.plugins = configuration.plugins;
        wanted.defaults = configuration.defaults;
        for settings in configuration.shares {
            let at = |place| placed(file, place);
            let path = &settings.share.path;
            // Those of the file differ among themselves.
            if paths.contains(path) {
                let place = at(settings.path_place);
                return Err(vec![format!(
                    "{place}: {path:?} is served twice: the command line has it"
                )]);
            }
            let source = at(settings.directory_place);
            let ShareSettings { share, spec, .. } = settings;
            wanted.shares.push(FixedShare { share: Arc::new(share), spec, source });
        }
    }
    Ok(wanted)
}

/// A directory of the command line as it would be written in a file.
fn command_line_spec(arguments: &ServeArguments, share: &Share) -> ShareSpec {
    let options = arguments.share.options();
    ShareSpec {
        path: share.path.to_string(),
        options: options.words(&ShareOptions::default()),
        clients: arguments.share.clients().iter().map(ToString::to_string).collect(),
        ..ShareSpec::default()
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
pub(crate) fn read(file: &Path) -> Result<Configuration, Vec<String>> {
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
    let configuration = Configuration::parse(&text).map_err(|errors| {
        errors.iter().map(|error| format!("{shown}:{error}")).collect::<Vec<_>>()
    })?;
    if let Some(filter) = &configuration.server.log_filter
        && let Err(error) = crate::logging::filter(&filter.value)
    {
        return Err(vec![format!("{}: log_filter: {error}", placed(file, filter.place))]);
    }
    Ok(configuration)
}

/// Checks a file, and the directories of its shares, also where something else is wrong.
///
/// # Errors
/// One line a mistake.
pub(crate) fn check(file: &Path) -> Result<Configuration, Vec<String>> {
    let read = read(file);
    let directories = if let Ok(configuration) = &read {
        configuration.directories.clone()
    } else {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let configuration = Configuration::read(&text).0;
        configuration.map(|configuration| configuration.directories).unwrap_or_default()
    };
    let missing = directories.iter().filter_map(|(directory, place)| {
        let problem = directory_problem(directory)?;
        Some(format!("{}: {problem}", placed(file, *place)))
    });
    let missing: Vec<_> = missing.collect();
    match read {
        Ok(configuration) if missing.is_empty() => Ok(configuration),
        Ok(_) => Err(missing),
        Err(mistakes) => {
            let mut all = [mistakes, missing].concat();
            let head = format!("{}:", file.display());
            // By line and column; what has none comes first.
            all.sort_by_cached_key(|mistake| {
                let mut numbers = mistake.strip_prefix(&head).unwrap_or_default().split(':');
                let mut next = || numbers.next().and_then(|number| number.parse::<usize>().ok());
                (next(), next())
            });
            Err(all)
        }
    }
}

/// Why a directory cannot be served, if so.
pub(crate) fn directory_problem(directory: &Path) -> Option<String> {
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

/// A directory of the command line, made if it is missing. Returns its canonical path and
/// whether it was made.
///
/// # Errors
/// When it is no directory and cannot become one.
pub(crate) fn directory_of_command_line(directory: &Path) -> Result<(PathBuf, bool), String> {
    let is_made = match directory.symlink_metadata() {
        Ok(_) => false,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
            if let Some(problem) = parent.and_then(directory_problem) {
                return Err(format!("cannot create {directory:?}: {problem}"));
            }
            std::fs::DirBuilder::new()
                .mode(0o755)
                .create(directory)
                .map_err(|error| format!("cannot create {directory:?}: {error}"))?;
            true
        }
        Err(error) => return Err(format!("{directory:?} cannot be opened: {error}")),
    };
    if let Some(problem) = directory_problem(directory) {
        return Err(problem);
    }
    let path = directory
        .canonicalize()
        .map_err(|error| format!("{directory:?} cannot be opened: {error}"))?;
    if is_made && process::effective_ids().0 == 0 {
        // Root of a client is squashed, so with 0755 nobody could write to what was made for
        // trying things out.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(&path, open)
            .map_err(|error| format!("cannot set the mode of {directory:?}: {error}"))?;
    }
    Ok((path, is_made))
}

fn command_line_share(arguments: &ServeArguments, directory: &Path) -> Result<Share, String> {
    let path = directory
        .to_str()
        .ok_or_else(|| {
            format!(
                "{directory:?} is not UTF-8: write it into a configuration file, with another path"
            )
        })?
        .to_owned();
    let options = arguments.share.options();
    let grants = options.grants();
    let rule = |pattern| ClientRule { pattern, grants: Arc::clone(&grants) };
    let rules = arguments.share.clients().into_iter().map(rule).collect();
    Ok(Share {
        id: ShareId::of_path(&path),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: options.crosses_mounts,
        required_mounts: Arc::default(),
        without_log: false,
        is_draining: false,
        rules: Arc::new(RuleSet::new(rules)),
    })
}

/// Where to listen, and whether that is only the default (of which IPv6 may be left out where
/// there is none). A port of the command line replaces those of the file, not its addresses: who
/// serves one address only must not find all of them served.
///
/// # Errors
/// When an interface of an address is not there.
pub(crate) fn listen_addresses(
    arguments: &ServerArguments,
    configured: Option<&Vec<ListenAddress>>,
) -> Result<(Vec<SocketAddr>, bool)> {
    let port = arguments.port.unwrap_or(NFS_PORT);
    let is_default = arguments.listen.is_empty() && configured.is_none();
    let wanted: Vec<SocketAddr> = match configured {
        _ if !arguments.listen.is_empty() => {
            let listen = arguments.listen.iter();
            let told =
                listen.map(|wanted| listen_address(wanted, (!wanted.has_port).then_some(port)));
            told.collect::<Result<_>>()?
        }
        Some(configured) => {
            let told = configured.iter().map(|wanted| listen_address(wanted, arguments.port));
            told.collect::<Result<_>>()?
        }
        None => {
            let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            any.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
        }
    };
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in wanted {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok((addresses, is_default))
}

/// An address with the number of its interface, and this port if one is said.
fn listen_address(wanted: &ListenAddress, port: Option<u16>) -> Result<SocketAddr> {
    let mut address = wanted.address;
    if let Some(port) = port {
        address.set_port(port);
    }
    if let (SocketAddr::V6(address), Some(zone)) = (&mut address, &wanted.zone) {
        let number = net::interface(zone).map_err(|_| {
            anyhow!("cannot listen at {wanted}: this machine has no network interface {zone:?}")
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
    fn the_command_line_outweighs_the_file_about_addresses() {
        let configured = parsed(&["10.0.0.1:2049"]);
        let mut arguments = ServerArguments::default();
        let chosen = |arguments: &ServerArguments| {
            listen_addresses(arguments, Some(&configured)).expect("addresses")
        };
        assert_eq!(chosen(&arguments), (addresses(&["10.0.0.1:2049"]), false));
        arguments.port = Some(5000);
        assert_eq!(chosen(&arguments), (addresses(&["10.0.0.1:5000"]), false));
        arguments.listen = parsed(&["127.0.0.1", "127.0.0.1:1", "127.0.0.1:5000"]);
        assert_eq!(chosen(&arguments).0, addresses(&["127.0.0.1:5000", "127.0.0.1:1"]));
        arguments.listen = parsed(&["fe80::1%lo"]);
        let SocketAddr::V6(zoned) = chosen(&arguments).0[0] else { panic!() };
        assert_eq!(Some(zoned.scope_id()), net::interface("lo").ok());
        arguments.listen = parsed(&["fe80::1%nowhere"]);
        let error = listen_addresses(&arguments, None).expect_err("no such interface").to_string();
        assert!(error.contains("no network interface \"nowhere\""), "{error}");
    }

    #[test]
    fn what_takes_a_restart_is_found_by_its_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("steadfast.toml");
        let said = |text: &str| {
            std::fs::write(&file, text).expect("written");
            wanted(&ServeArguments::default(), Some(&file), &[]).expect("no mistakes")
        };
        let at_start = AtStart::of(&said(
            "[names]\nhosts_file = \"/h\"\n[plugin.a]\ncommand = [\"/a\"]\n[plugin.b]\n\
             command = [\"/b\"]\n",
        ));
        let same = said(
            "# Another line, and another order.\n[plugin.b]\ncommand = [\"/b\"]\n\
             [plugin.a]\ncommand = [\"/a\"]\n[names]\nhosts_file = \"/h\"\n\
             [defaults]\nclients = [\"*\"]\n",
        );
        assert_eq!(at_start.differences(&same), [""; 0]);
        let other = said(
            "[server]\npools = 1\n[log]\nenabled = false\n[names]\nhosts_file = \"/i\"\n\
             [plugin.b]\ncommand = [\"/b\", \"more\"]\n[plugin.c]\ncommand = [\"/c\"]\n",
        );
        let told = at_start.differences(&other);
        let tables: Vec<_> =
            told.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(
            tables,
            ["[server]", "[log]", "[names]", "[plugin.a]", "[plugin.b]", "[plugin.c]"]
        );
    }

    #[test]
    fn a_port_of_the_command_line_leaves_the_addresses_of_the_file() {
        let configured = parsed(&["127.0.0.1:2049", "[::1]:2049", "127.0.0.1:2050"]);
        let arguments = ServerArguments { port: Some(5000), ..ServerArguments::default() };
        let chosen = |configured| listen_addresses(&arguments, configured).expect("addresses");
        assert_eq!(
            chosen(Some(&configured)),
            (addresses(&["127.0.0.1:5000", "[::1]:5000"]), false)
        );
        assert_eq!(chosen(None), (addresses(&["0.0.0.0:5000", "[::]:5000"]), true));
    }

    #[test]
    fn a_file_that_was_read_is_read_again() {
        let place = tempfile::tempdir().expect("a directory");
        let usual = place.path().join("steadfast.toml");
        let mut arguments = ServeArguments::default();
        assert_eq!(file_to_read(&arguments, None, &usual), None);
        // Gone meanwhile: the directories of the command line alone are not what is wanted.
        let file = file_to_read(&arguments, Some(&usual), &usual).expect("a file");
        let directory = [place.path().to_owned()];
        let mistakes = wanted(&arguments, Some(&file), &directory).expect_err("not there");
        assert!(mistakes[0].contains("steadfast.toml: cannot be read"), "{mistakes:?}");
        std::fs::write(&usual, b"").expect("written");
        assert_eq!(file_to_read(&arguments, None, &usual), Some(usual.clone()));
        arguments.config = Some("other.toml".into());
        assert_eq!(file_to_read(&arguments, None, &usual), arguments.config);
    }

    #[test]
    fn a_path_of_the_command_line_and_the_file_is_told() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("steadfast.toml");
        let text = format!("[[share]]\npath = {:?}\nclients = [\"*\"]\n", place.path());
        std::fs::write(&file, text).expect("written");
        let directories = [place.path().to_owned()];
        let mistakes = wanted(&ServeArguments::default(), Some(&file), &directories);
        let mistakes = mistakes.expect_err("twice");
        assert!(mistakes[0].contains("steadfast.toml:2:8: "), "{mistakes:?}");
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
    fn a_directory_of_the_command_line_is_made_but_not_its_parents() {
        let place = tempfile::tempdir().expect("a directory");
        let new = place.path().join("new");
        assert!(directory_of_command_line(&new).expect("made").1);
        assert!(!directory_of_command_line(&new).expect("there").1);
        let error =
            directory_of_command_line(&place.path().join("no/such")).expect_err("no parent");
        assert!(error.contains("does not exist"), "{error}");
        let file = place.path().join("file");
        std::fs::write(&file, b"").expect("written");
        assert!(directory_of_command_line(&file).expect_err("a file").contains("not a directory"));
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_line() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("bad.toml");
        std::fs::write(&file, b"[server]\nlog = \"\xff\"\n").expect("written");
        let errors = read(&file).expect_err("not UTF-8");
        assert!(errors[0].contains("bad.toml:2:1: "), "{errors:?}");
    }
}
