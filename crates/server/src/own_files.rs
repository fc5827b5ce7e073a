//! What the server keeps for itself, and no share may contain unless an administrator says so twice:
//! who may read the state directory has the key of the handles, and who may write the groups' files
//! decides what is shared.

use std::path::{Path, PathBuf};

use steadfast_posixfs::{LookedAt, directory_number, is_mount_point};
use steadfast_shares::Share;

use crate::configuration::Settings;
use crate::places::Places;

/// One thing that the server keeps.
#[derive(Clone, Debug)]
struct OwnFile {
    /// What it is, for people.
    what: &'static str,
    /// Where it is.
    path: PathBuf,
}

/// A directory above something of the server's.
struct Above {
    /// As the kernel knows it, by whatever path.
    number: (u64, u64),
    path: PathBuf,
    /// Whether a mount point is between.
    crosses: bool,
    /// Of `OwnFiles::files`.
    file: usize,
}

/// All that the server keeps for itself.
#[derive(Default)]
pub(crate) struct OwnFiles {
    files: Vec<OwnFile>,
    above: Vec<Above>,
}

impl OwnFiles {
    /// What no share may contain, unless it was said twice.
    pub(crate) fn of(settings: &Settings, places: &Places) -> Self {
        if settings.server.share_own_files == Some(true) {
            return Self::default();
        }
        let own = |what, path: &Path| OwnFile { what, path: path.to_owned() };
        let mut files = vec![
            own("the state directory", &places.state_directory),
            own("the directory of the groups' files", &places.shares_directory),
        ];
        let log = settings.log.path.as_ref();
        files.extend(log.map(|path| own("the intent log", &path.value)));
        let socket = settings.server.control_socket.as_ref();
        files.extend(socket.map(|path| own("the control socket", &path.value)));
        let token = settings.metrics.token_file.as_ref();
        files.extend(token.map(|path| own("the token of [metrics]", &path.value)));
        Self::new(files)
    }

    /// Looks at where these are. What is not there yet is known by its path.
    fn new(files: Vec<OwnFile>) -> Self {
        let mut above = Vec::new();
        for (file, own) in files.iter().enumerate() {
            let path = canonical(&own.path);
            let mut crosses = false;
            for directory in path.ancestors() {
                if let Some(number) = directory_number(directory) {
                    above.push(Above { number, path: directory.to_owned(), crosses, file });
                }
                crosses |= is_mount_point(directory).unwrap_or(false);
            }
        }
        Self { files, above }
    }

    /// Whether a share looks as if it had something of it, by its path alone.
    pub(crate) fn may_be_in(&self, share: &Share) -> bool {
        self.above.iter().any(|above| *above.path == *share.directory())
    }

    /// Why a share is not served, if it has something of it.
    ///
    /// # Errors
    /// Which, and what to do.
    pub(crate) fn require_outside(&self, share: &Share, seen: &LookedAt) -> Result<(), String> {
        let number = seen.number();
        let is_within =
            |above: &&Above| above.number == number && (share.crosses_mounts || !above.crosses);
        let Some(own) = self.above.iter().find(is_within).and_then(|it| self.files.get(it.file))
        else {
            return Ok(());
        };
        Err(format!(
            "{:?} contains {} of this server, {:?}: a client that may read or write there can forge \
             handles, or decide what is shared. Share directories beside it, or keep it elsewhere; if \
             this is meant, say it again with share_own_files = true in [server], or \
             --share-own-files",
            share.directory(),
            own.what,
            own.path
        ))
    }
}

/// A path without symbolic links, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for directory in path.ancestors() {
        if let Ok(found) = directory.canonicalize() {
            return missing.iter().rev().fold(found, |path, name| path.join(name));
        }
        missing.extend(directory.file_name());
    }
    path.to_owned()
}
