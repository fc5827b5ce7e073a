//! The state directory: the key of the handles, and a lock so that no two servers share it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use steadfast_sys::{durable_file, process};

use crate::error::{StartError, Tried};

/// Where the state of a server that runs as root is when nobody says where.
pub(crate) const DEFAULT_PATH: &str = "/var/lib/steadfast";

const KEY_BYTES: usize = 16;

/// An open state directory; nobody else uses it until this is dropped.
#[derive(Debug)]
pub struct StateDirectory {
    /// Where it is, without symbolic links.
    pub path: PathBuf,
    /// The key of the MAC in handles.
    pub(crate) handle_key: [u8; KEY_BYTES],
    /// Whether the key was made just now: what clients have mounted of before is stale.
    pub(crate) is_key_new: bool,
    _lock: File,
}

impl StateDirectory {
    /// Where state is kept when nobody says where.
    pub fn default_path() -> Result<PathBuf, StartError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        // systemd's StateDirectory=
        if let Some(path) =
            variable("STATE_DIRECTORY").map(PathBuf::from).filter(|p| p.is_absolute())
        {
            return Ok(path);
        }
        if process::effective_ids().0 == 0 {
            return Ok(PathBuf::from(DEFAULT_PATH));
        }
        if let Some(state) =
            variable("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute())
        {
            return Ok(state.join("steadfast"));
        }
        let home = variable("HOME").ok_or_else(|| {
            let why = "no state directory: HOME is not set; name one with --state-directory";
            StartError::StateDirectory(why.to_owned())
        })?;
        Ok(Path::new(&home).join(".local/state/steadfast"))
    }

    /// Opens the directory, and makes what is missing of it.
    ///
    /// # Errors
    /// When it belongs to somebody else, is in use by another server, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, StartError> {
        Self::open_with(path, false)
    }

    /// As [`StateDirectory::open`]; `makes_key`: also where the key was lost.
    ///
    /// # Errors
    /// As [`StateDirectory::open`].
    pub(crate) fn open_with(path: &Path, makes_key: bool) -> Result<Self, StartError> {
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .tried_with(|| format!("cannot create the state directory {shown}"))?;
        let path = path
            .canonicalize()
            .tried_with(|| format!("cannot open the state directory {shown}"))?;
        let metadata = path.metadata().tried_with(|| format!("cannot read {shown}"))?;
        let (user, _) = process::effective_ids();
        if metadata.uid() != user && user != 0 {
            return Err(StartError::StateDirectory(format!(
                "the state directory {shown} belongs to user {}, this server runs as {user}: \
                 name another with --state-directory",
                metadata.uid()
            )));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(StartError::StateDirectory(format!(
                "others than its owner may write to the state directory {shown}, and could so \
                 forge handles: chmod go-w it, or name another with --state-directory"
            )));
        }
        let lock = lock(&path)?;
        let (handle_key, is_key_new) = handle_key(&path, makes_key)?;
        Ok(Self { path, handle_key, is_key_new, _lock: lock })
    }

    /// What [`StateDirectory::next_instance`] gave last; 0 if nothing.
    ///
    /// # Errors
    /// When the file that has it cannot be read.
    pub(crate) fn last_instance(&self) -> Result<u32, StartError> {
        let path = self.instance_path();
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse::<u32>().map_err(|_| {
                StartError::StateDirectory(format!(
                    "{} holds no number: restore it from a backup, or write into it a number above \
                     any that it has had",
                    path.display()
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error).tried_with(|| format!("cannot read {}", path.display())),
        }
    }

    fn instance_path(&self) -> PathBuf {
        self.path.join("nfs4.instance")
    }

    /// A number that no start before this one had: by it clients of NFSv4 see that the server has
    /// lost what it knew of them. It is on the disk before it is used, and `announce` is given it before
    /// that.
    ///
    /// # Errors
    /// When the file that has the last one cannot be read or written; those of `announce`.
    pub(crate) fn next_instance(
        &self,
        announce: impl FnOnce(u32) -> Result<(), StartError>,
    ) -> Result<u32, StartError> {
        let next = self.last_instance()?.wrapping_add(1).max(1);
        announce(next)?;
        let path = self.instance_path();
        durable_file::replace(&path, format!("{next}\n").as_bytes())
            .tried_with(|| format!("cannot write {}", path.display()))?;
        Ok(next)
    }
}

fn lock(directory: &Path) -> Result<File, StartError> {
    let path = directory.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .tried_with(|| format!("cannot open {}", path.display()))?;
    if !process::lock_exclusively(&file).tried_with(|| format!("cannot lock {}", path.display()))? {
        let mut owner = String::new();
        let _ = (&mut file).take(32).read_to_string(&mut owner);
        let owner = owner.trim().parse::<i32>().map_or_else(
            |_| "another server".to_owned(),
            |owner| format!("another server (process {owner})"),
        );
        return Err(StartError::StateDirectory(format!(
            "the state directory {} is in use by {owner}: stop it, or give this one its own \
             with --state-directory",
            directory.display()
        )));
    }
    // For people and for the message above; the lock itself is the kernel's.
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .tried_with(|| format!("cannot write {}", path.display()))?;
    Ok(file)
}

/// What a server that has served leaves in its state directory, by the beginnings of names.
const TRACES: [&str; 6] =
    ["intent-log.", "intent.log", "shares.history", "shares.on", "handles-", "mounted-"];

/// What shows that a state directory was used before, if anything does.
fn trace(directory: &Path) -> io::Result<Option<String>> {
    for entry in directory.read_dir()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if TRACES.iter().any(|trace| name.starts_with(trace)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The key of the MAC in handles: made once, and never written over. Whether it was made now.
fn handle_key(directory: &Path, makes_key: bool) -> Result<([u8; KEY_BYTES], bool), StartError> {
    let path = directory.join("handle.key");
    match std::fs::read(&path) {
        Ok(bytes) => bytes.try_into().map(|key| (key, false)).map_err(|bytes: Vec<u8>| {
            StartError::StateDirectory(format!(
                "{} has {} bytes instead of {KEY_BYTES}: restore it from a backup; if there is \
                 none, remove it, and clients must mount again",
                path.display(),
                bytes.len()
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let trace =
                trace(directory).tried_with(|| format!("cannot read {}", directory.display()))?;
            if let Some(trace) = trace.filter(|_| !makes_key) {
                return Err(StartError::StateDirectory(format!(
                    "{} is missing, though a server has used this state directory ({trace} is \
                     there): without the key every handle that clients have is stale, and all of \
                     them must mount again; restore the file from a backup; if it is lost, start \
                     once with `steadfast serve --new-handle-key`",
                    path.display()
                )));
            }
            let mut key = [0; KEY_BYTES];
            process::random_bytes(&mut key).tried("cannot get randomness from the kernel")?;
            durable_file::replace(&path, &key)
                // The directory's own name may be new too.
                .and_then(|()| durable_file::sync_directory_of(directory))
                .tried_with(|| format!("cannot write {}", path.display()))?;
            Ok((key, true))
        }
        Err(error) => Err(error).tried_with(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_kept_to_ourselves() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("deep/state");
        let key = StateDirectory::open(&path).expect("opened").handle_key;
        assert_ne!(key, [0; KEY_BYTES]);
        assert_eq!(StateDirectory::open(&path).expect("opened again").handle_key, key);
        let mode = |name: &str| path.join(name).metadata().expect("metadata").mode() & 0o777;
        assert_eq!((mode(""), mode("handle.key")), (0o700, 0o600));
    }

    #[test]
    fn a_key_that_was_lost_is_not_replaced_without_a_word() {
        let place = tempfile::tempdir().expect("a directory");
        // What an administrator may put there before the first start.
        std::fs::create_dir(place.path().join("shares.d")).expect("made");
        let first = StateDirectory::open(place.path()).expect("opened");
        assert!(first.is_key_new);
        let lost = first.handle_key;
        drop(first);
        std::fs::remove_file(place.path().join("handle.key")).expect("lost");
        for name in ["intent.log", "intent-log.known", "shares.history", "shares.on", "handles-1"] {
            let trace = place.path().join(name);
            std::fs::write(&trace, b"").expect("written");
            let error = StateDirectory::open(place.path()).expect_err("lost").to_string();
            assert!(error.contains(name) && error.contains("--new-handle-key"), "{error}");
            assert!(!place.path().join("handle.key").exists());
            std::fs::remove_file(trace).expect("removed");
        }
        std::fs::write(place.path().join("intent.log"), b"").expect("written");
        let again = StateDirectory::open_with(place.path(), true).expect("told to");
        assert!(again.is_key_new && again.handle_key != lost);
        drop(again);
        assert!(!StateDirectory::open(place.path()).expect("opened").is_key_new);
    }

    #[test]
    fn a_second_server_is_told_who_has_it() {
        let place = tempfile::tempdir().expect("a directory");
        let _first = StateDirectory::open(place.path()).expect("opened");
        let error = StateDirectory::open(place.path()).expect_err("in use").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("handle.key"), b"short").expect("written");
        let error = StateDirectory::open(place.path()).expect_err("damaged").to_string();
        assert!(error.contains("has 5 bytes instead of 16"), "{error}");
        assert_eq!(std::fs::read(place.path().join("handle.key")).expect("read"), b"short");
    }

    #[test]
    fn each_start_has_an_instance_of_its_own() {
        let place = tempfile::tempdir().expect("a directory");
        let next = || {
            let state = StateDirectory::open(place.path()).expect("opened");
            state.next_instance(|_| Ok(())).map_err(|error| error.to_string())
        };
        assert_eq!([next(), next(), next()], [Ok(1), Ok(2), Ok(3)]);
        std::fs::write(place.path().join("nfs4.instance"), b"x").expect("written");
        let error = next().expect_err("damaged");
        assert!(error.contains("nfs4.instance holds no number"), "{error}");
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777))
            .expect("permissions");
        let error = StateDirectory::open(place.path()).expect_err("open to all").to_string();
        assert!(error.contains("forge handles"), "{error}");
    }
}
