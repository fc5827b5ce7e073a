//! Where a server keeps its shares, and tells of them.

use std::path::{Path, PathBuf};

use steadfast_catalog::configuration::{Placed, ServerSettings};

use crate::state_directory;

/// Where other programs read what is shared by a server with the usual state directory.
const SHARETAB: &str = "/run/steadfast/sharetab";
/// In the state directory, unless another place is configured: the groups' files.
const SHARES_DIRECTORY: &str = "shares.d";

/// These places.
pub(crate) struct Places {
    pub(crate) shares_directory: PathBuf,
    pub(crate) state_directory: PathBuf,
    /// What other programs read.
    pub(crate) sharetab: PathBuf,
}

impl Places {
    /// As they are configured, for a server with this state directory. Of `shares_directory` the
    /// configuration may say otherwise.
    pub(crate) fn of(
        settings: &ServerSettings,
        shares_directory: Option<PathBuf>,
        state_directory: &Path,
    ) -> Self {
        let configured = |path: &Option<Placed<PathBuf>>| path.as_ref().map(|it| it.value.clone());
        let is_usual = state_directory == Path::new(state_directory::DEFAULT_PATH);
        let sharetab = || if is_usual { SHARETAB.into() } else { state_directory.join("sharetab") };
        Self {
            shares_directory: configured(&settings.shares_directory)
                .or(shares_directory)
                .unwrap_or_else(|| state_directory.join(SHARES_DIRECTORY)),
            state_directory: state_directory.to_owned(),
            sharetab: configured(&settings.sharetab).unwrap_or_else(sharetab),
        }
    }
}
