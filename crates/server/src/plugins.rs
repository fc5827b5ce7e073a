//! The plug-ins of a server: those that are configured, and the programs of a directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use steadfast_catalog::configuration::{PluginKind, PluginSettings};
use steadfast_control::plugins::{Executable, Exportfs, Limits, Mdns, Plugin, Plugins, Samba};

use crate::error::{StartError, Tried};

/// The server that plug-ins are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'s> {
    pub(crate) state_directory: &'s Path,
    /// Where NFS is served.
    pub(crate) port: u16,
}

/// Starts them. One that is configured outweighs a program of its name.
///
/// # Errors
/// When the directory cannot be read, or there can be no threads.
pub(crate) fn start(
    settings: &[PluginSettings],
    directory: &Path,
    whose: Whose<'_>,
) -> Result<Plugins, StartError> {
    let found = Executable::of_directory(directory, Limits::default())
        .tried_with(|| format!("cannot read {}", directory.display()))?;
    let mut plugins: BTreeMap<String, Box<dyn Plugin>> = BTreeMap::new();
    for program in found {
        plugins.insert(program.name().to_owned(), Box::new(program));
    }
    for settings in settings {
        plugins.insert(settings.name.clone(), configured(settings, whose));
    }
    Plugins::start(plugins.into_values().collect()).tried("cannot start plug-ins")
}

fn configured(settings: &PluginSettings, whose: Whose<'_>) -> Box<dyn Plugin> {
    let mut limits = Limits::default();
    if let Some(seconds) = settings.timeout_s {
        limits.time = Duration::from_secs(seconds);
    }
    match &settings.kind {
        PluginKind::Samba { include } => Box::new(Samba::new(include.clone(), limits)),
        PluginKind::Exportfs { file } => Box::new(Exportfs::new(file.clone(), None, limits)),
        PluginKind::Mdns { directory } => {
            Box::new(Mdns::new(directory.clone(), whose.state_directory, whose.port))
        }
        PluginKind::Program { command } => {
            let words = command.iter().map(Into::into).collect();
            Box::new(Executable::new(&settings.name, words, limits))
        }
    }
}
