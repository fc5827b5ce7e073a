//! What is to be served, wherever it was said: the arguments, the configuration file, and what is
//! on disk.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use steadfast_server::{Base, Configuration, ReadBase, Settings, StartOptions, directory_problem};
use steadfast_sys::process;

use crate::arguments::{NFS_PORT, ServeArguments, ServerArguments};
use crate::configuration_file::{CONFIGURATION_FILE, read};

/// Beside the usual configuration file: the groups' files.
const SHARES_DIRECTORY: &str = "shares.d";

/// Where shares come from.
#[derive(Clone)]
pub(crate) struct Sources {
    /// The configuration file that was read, if one was.
    pub(crate) file: Option<PathBuf>,
    /// The directories of the command line.
    pub(crate) directories: Vec<PathBuf>,
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

/// The directories of the command line (which exist by now), and what the file says, if there is
/// one.
///
/// # Errors
/// One line a mistake, each with its place.
pub(crate) fn wanted(
    arguments: &ServeArguments,
    file: Option<&Path>,
    directories: &[PathBuf],
) -> Result<Configuration, Vec<String>> {
    let mut wanted = Configuration::default();
    let (options, clients) = (arguments.share.options(), arguments.share.clients());
    for directory in directories {
        wanted.add_directory(directory, &options, &clients).map_err(|error| vec![error])?;
    }
    if let Some(file) = file {
        wanted.add_file(file, read(file)?)?;
    }
    Ok(wanted)
}

/// Reads the shares of the configuration file and of the command line again.
/// A file whose shares have all gone is most likely one that is just being replaced.
pub(crate) fn read_base(
    arguments: &ServeArguments,
    sources: Sources,
    had_shares: bool,
    at_start: Settings,
) -> ReadBase {
    let arguments = arguments.clone();
    let Sources { file, directories } = sources;
    // One that was read once is missed when it is gone, also if it came after the start.
    let read_before = Mutex::new(file);
    Box::new(move || {
        let usual = CONFIGURATION_FILE.as_ref();
        let mut read_before = read_before.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file_to_read(&arguments, read_before.as_deref(), usual);
        let wanted = wanted(&arguments, file.as_deref(), &directories)?;
        read_before.clone_from(&file);
        if had_shares && wanted.shares.is_empty() {
            return Err(vec![format!(
                "{}: has no share any more: the shares stay as they are; write a [[share]], or \
                 stop the server if nothing is to be served",
                file.unwrap_or_default().display()
            )]);
        }
        let warnings = at_start.differences(&wanted.settings);
        Ok(Base { defaults: wanted.defaults, shares: wanted.shares, warnings })
    })
}

impl ServerArguments {
    /// Puts what was typed in place of what the file, if there is one, says.
    pub(crate) fn outweigh(
        &self,
        settings: &mut Settings,
        options: &mut StartOptions,
        file: Option<&Path>,
    ) {
        let Settings { server, log, .. } = settings;
        options.state_directory.clone_from(&self.state_directory);
        let usual = Path::new(CONFIGURATION_FILE);
        options.shares_directory =
            (file == Some(usual)).then(|| usual.with_file_name(SHARES_DIRECTORY));
        if self.listen.is_empty() {
            options.port = self.port;
        } else {
            let mut listen = self.listen.clone();
            for address in listen.iter_mut().filter(|address| !address.has_port) {
                address.address.set_port(self.port.unwrap_or(NFS_PORT));
            }
            server.listen = Some(listen);
        }
        if self.no_udp {
            server.udp = Some(false);
        }
        if self.nfs2 {
            server.nfs2 = Some(true);
        }
        if self.no_nfs4 {
            server.nfs4 = Some(false);
        }
        server.delegations = self.delegations.or(server.delegations);
        server.local_guard = self.local_guard.or(server.local_guard);
        if self.no_rpcbind {
            server.rpcbind = Some(false);
        }
        if self.share_own_files {
            server.share_own_files = Some(true);
        }
        server.pools = self.pools.map(usize::from).or(server.pools);
        if self.no_intent_log {
            log.enabled = Some(false);
        }
        log.size_mib = self.intent_log_mib.or(log.size_mib);
        options.makes_handle_key = self.new_handle_key;
    }
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use steadfast_catalog::configuration::ListenAddress;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn the_command_line_outweighs_the_file_about_addresses() {
        let parsed = |texts: &[&str]| -> Vec<ListenAddress> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        let mut arguments = ServerArguments::default();
        let chosen = |arguments: &ServerArguments| {
            let mut settings = Settings::default();
            settings.server.listen = Some(parsed(&["10.0.0.1:2049"]));
            let mut options = StartOptions::default();
            arguments.outweigh(&mut settings, &mut options, None);
            let listen = settings.server.listen.unwrap_or_default();
            (listen.into_iter().map(|one| one.address).collect::<Vec<_>>(), options.port)
        };
        assert_eq!(chosen(&arguments), (addresses(&["10.0.0.1:2049"]), None));
        arguments.port = Some(5000);
        assert_eq!(chosen(&arguments), (addresses(&["10.0.0.1:2049"]), Some(5000)));
        arguments.listen = parsed(&["127.0.0.1", "127.0.0.1:1", "127.0.0.1:5000"]);
        let listen = addresses(&["127.0.0.1:5000", "127.0.0.1:1", "127.0.0.1:5000"]);
        assert_eq!(chosen(&arguments), (listen, None));
        // Without a port of its own anywhere: that of NFS.
        arguments.port = None;
        assert_eq!(chosen(&arguments).0[0].port(), NFS_PORT);
    }

    #[test]
    fn what_takes_a_restart_is_found_by_its_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("steadfast.toml");
        let said = |text: &str| {
            std::fs::write(&file, text).expect("written");
            wanted(&ServeArguments::default(), Some(&file), &[]).expect("no mistakes")
        };
        let at_start = said(
            "[names]\nhosts_file = \"/h\"\n[plugin.a]\ncommand = [\"/a\"]\n[plugin.b]\n\
             command = [\"/b\"]\n",
        );
        let same = said(
            "# Another line, and another order.\n[plugin.b]\ncommand = [\"/b\"]\n\
             [plugin.a]\ncommand = [\"/a\"]\n[names]\nhosts_file = \"/h\"\n\
             [defaults]\nclients = [\"*\"]\n",
        );
        assert_eq!(at_start.settings.differences(&same.settings), [""; 0]);
        let other = said(
            "[server]\npools = 1\n[log]\nenabled = false\n[names]\nhosts_file = \"/i\"\n\
             [plugin.b]\ncommand = [\"/b\", \"more\"]\n[plugin.c]\ncommand = [\"/c\"]\n",
        );
        let told = at_start.settings.differences(&other.settings);
        let tables: Vec<_> =
            told.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(
            tables,
            ["[server]", "[log]", "[names]", "[plugin.a]", "[plugin.b]", "[plugin.c]"]
        );
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
}
