//! The configuration file: where it is, and how the commands read it.

use std::path::Path;

use steadfast_catalog::Configuration;
use steadfast_server::read_file;

use crate::logging;

/// Where the configuration is looked for when nobody says where it is.
pub(crate) const CONFIGURATION_FILE: &str = "/etc/steadfast/steadfast.toml";

/// Reads a configuration file.
///
/// # Errors
/// One line a mistake.
pub(crate) fn read(file: &Path) -> Result<Configuration, Vec<String>> {
    let contents = read_file(file)?;
    if let Some(filter) = &contents.server.log_filter
        && let Err(error) = logging::filter(&filter.value)
    {
        return Err(vec![format!("{}:{}: log_filter: {error}", file.display(), filter.place)]);
    }
    Ok(contents)
}
