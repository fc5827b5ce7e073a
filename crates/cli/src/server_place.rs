//! Which server a command is for: where its state directory and its sockets are.
//!
//! Commands read the server's configuration for that only. A mistake in it must not keep an
//! administrator from the server that still runs: what can be read is used, with a warning.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use steadfast_catalog::Configuration;
use steadfast_catalog::configuration::{LogSettings, ServerSettings};
use steadfast_control::{Client, plain};
use steadfast_server::StateDirectory;

use crate::configuration_file::{CONFIGURATION_FILE, read};

/// Which server is asked.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which server")]
pub(crate) struct ServerChoice {
    /// Configuration file; without it /etc/steadfast/steadfast.toml is read if it is there.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The state directory of the server.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state_directory: Option<PathBuf>,
    /// Ask by TCP, with the token in the state directory.
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    pub(crate) connect: Option<SocketAddr>,
}

/// Where a server is found.
#[derive(Debug)]
pub(crate) struct ServerPlace {
    pub(crate) state_directory: PathBuf,
    /// Where else it may be asked; `None` also for a command that names a state directory: it means
    /// the server that has it, and no other.
    pub(crate) control_socket: Option<PathBuf>,
    /// The intent log, if its place is configured.
    pub(crate) log: Option<PathBuf>,
    /// What is wrong with the configuration, one line a mistake.
    pub(crate) mistakes: Vec<String>,
}

impl ServerChoice {
    /// Where the server is that is meant. Warns of mistakes in its configuration.
    ///
    /// # Errors
    /// See [`ServerPlace::find`].
    pub(crate) fn place(&self) -> Result<ServerPlace> {
        ServerPlace::find(self.config.as_deref(), self.state_directory.as_deref())
    }

    /// Who asks the server that is meant.
    ///
    /// # Errors
    /// When it is not known which server is meant, or there is no token to ask it with.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_at(&self.place()?)
    }

    /// Who asks the server that is there.
    ///
    /// # Errors
    /// When there is no token to ask it with.
    pub(crate) fn client_at(&self, place: &ServerPlace) -> Result<Client> {
        Ok(match self.connect {
            Some(address) => Client::connect_tcp(address, &place.state_directory)?,
            None => Client::connect(&place.state_directory).or_at(place.control_socket.clone()),
        })
    }
}

impl ServerPlace {
    /// Finds the server of a configuration file, or of the usual one if it is there, and of a state
    /// directory that was named. Warns of mistakes.
    ///
    /// # Errors
    /// When the file that was named cannot be read, or what it says of the state directory, and none
    /// was named: the default would be another server's.
    pub(crate) fn find(config: Option<&Path>, named: Option<&Path>) -> Result<Self> {
        let file = config.unwrap_or_else(|| Path::new(CONFIGURATION_FILE));
        let (server, log, mistakes) = settings(file, config.is_some(), named.is_some())?;
        let state_directory = match (named, server.state_directory) {
            (Some(path), _) => path.to_owned(),
            (None, Some(path)) => path.value,
            (None, None) => StateDirectory::default_path()?,
        };
        let socket = server.control_socket.filter(|_| named.is_none());
        let found = Self {
            state_directory,
            control_socket: socket.map(|path| path.value),
            log: log.path.map(|path| path.value),
            mistakes,
        };
        found.warn();
        Ok(found)
    }

    fn warn(&self) {
        let Some(first) = self.mistakes.first() else { return };
        let more = match self.mistakes.len() {
            1 => String::new(),
            count => format!(" (and {} more; `steadfast check-config` lists them)", count - 1),
        };
        eprintln!(
            "steadfast: warning: {}{more}; the server is looked for in {}",
            plain::line(first),
            plain::line(&self.state_directory.display().to_string())
        );
    }

    /// For what changes a log that no server uses.
    ///
    /// # Errors
    /// When the configuration has mistakes: another log could be meant.
    pub(crate) fn require_no_mistakes(&self) -> Result<()> {
        if self.mistakes.is_empty() {
            return Ok(());
        }
        bail!(
            "mistakes in the configuration, so that another log could be meant: mend them first:\n{}",
            self.mistakes.join("\n")
        )
    }
}

/// What a file says that can be read, and what cannot.
fn settings(
    file: &Path,
    is_named: bool,
    has_state_directory: bool,
) -> Result<(ServerSettings, LogSettings, Vec<String>)> {
    let nothing = |mistakes| Ok((ServerSettings::default(), LogSettings::default(), mistakes));
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => {
            return nothing(Vec::new());
        }
        Err(error) if !is_named || has_state_directory => {
            return nothing(vec![format!("{}: cannot be read: {error}", file.display())]);
        }
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "{}: cannot be read, so the server is not known: name its state directory with \
                     --state-directory",
                    file.display()
                )
            });
        }
    };
    // Bytes that are not UTF-8 are a mistake that this tells, too.
    let mistakes = read(file).err().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let (server, log) = Configuration::settings_that_can_be_read(&text);
    let is_lost = server.state_directory.is_none() && mentions_state_directory(&text);
    if is_lost && !has_state_directory {
        bail!(
            "{}: its state_directory cannot be read, so the server is not known: name it with \
             --state-directory\n{}",
            file.display(),
            mistakes.join("\n")
        );
    }
    Ok((server, log, mistakes))
}

/// Whether a line seems to say where the state directory is.
fn mentions_state_directory(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        !line.starts_with('#') && line.contains("state_directory")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], named: Option<&str>) -> Result<ServerPlace> {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("steadfast.toml");
        std::fs::write(&file, text).expect("written");
        ServerPlace::find(Some(&file), named.map(Path::new))
    }

    #[test]
    fn mistakes_elsewhere_hide_no_server() {
        let said = "[server]\nstate_directory = \"/s\"\ncontrol_socket = \"/c\"\n";
        for (before, after) in [
            ("", ""),
            ("", "unknown = 1\n"),
            ("", "[[share]]\npath = \"/x\"\noptions = [\"wr\"]\n"),
            ("", "[[share]]\npath = \"/x\n"),
            ("", "[[share\npath = \"/x\"\n"),
            ("[defaults]\nclients = [\"10.0.0.0/8\"\n", ""),
            ("[log]\npath = relative\n", ""),
            ("= 1\n", ""),
        ] {
            let text = format!("{before}{said}{after}");
            let place = found(text.as_bytes(), None).expect(&text);
            assert_eq!(place.state_directory, Path::new("/s"), "{text}");
            assert_eq!(place.control_socket.as_deref(), Some(Path::new("/c")), "{text}");
            assert_eq!(place.mistakes.is_empty(), text == said, "{text}: {:?}", place.mistakes);
            assert_eq!(place.require_no_mistakes().is_ok(), text == said, "{text}");
        }
        let odd = [said.as_bytes(), b"# \xff\n"].concat();
        let place = found(&odd, None).expect("found");
        assert_eq!((place.state_directory.as_path(), place.mistakes.len()), (Path::new("/s"), 1));
    }

    #[test]
    fn a_state_directory_that_cannot_be_read_is_not_replaced_by_another() {
        for text in
            ["[server]\nstate_directory = \"/s\n", "[server]\nstate_directory = \"relative\"\n"]
        {
            let error = found(text.as_bytes(), None).expect_err("not known").to_string();
            assert!(error.contains("--state-directory") && error.contains(":2:"), "{error}");
            let place = found(text.as_bytes(), Some("/n")).expect("named");
            assert_eq!(place.state_directory, Path::new("/n"));
            assert_eq!(place.mistakes.len(), 1);
        }
        let place = found(b"# state_directory = \"/s\"\n[server\n", None).expect("the usual one");
        assert_eq!(place.state_directory, StateDirectory::default_path().expect("a path"));
    }

    #[test]
    fn a_file_that_was_named_has_to_be_there() {
        let file = Path::new("/nonexistent/steadfast.toml");
        let error = ServerPlace::find(Some(file), None).expect_err("not there");
        assert!(format!("{error:#}").contains("--state-directory"), "{error:#}");
        let place = ServerPlace::find(Some(file), Some(Path::new("/n"))).expect("named");
        assert_eq!((place.state_directory.as_path(), place.mistakes.len()), (Path::new("/n"), 1));
    }
}
