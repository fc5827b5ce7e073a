//! The token that lets in who comes by TCP: in a file that not everybody may read.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use steadfast_sys::{durable_file, process};

/// In the state directory.
pub(crate) const TOKEN_NAME: &str = "control.token";
/// Of randomness.
const TOKEN_BYTES: usize = 32;
/// What is read of a file that somebody wrote.
const FILE_BYTES_MAX: u64 = 4096;

/// What scrapers have to send: what is in a file, which is read again when the server reads its configuration again.
#[derive(Clone)]
pub struct ScraperToken(Arc<Known>);

struct Known {
    /// Unless it is of no file.
    file: Option<PathBuf>,
    token: RwLock<Arc<str>>,
    /// Who reads the file again. Whoever asks for the token does not wait for that.
    reading: Mutex<()>,
}

impl ScraperToken {
    /// The token in a file.
    ///
    /// # Errors
    /// As [`read_of_file`].
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self::of(Some(path.to_owned()), read_of_file(path)?))
    }

    fn of(file: Option<PathBuf>, token: Arc<str>) -> Self {
        Self(Arc::new(Known { file, token: RwLock::new(token), reading: Mutex::default() }))
    }

    /// The one that counts now.
    pub(super) fn now(&self) -> Arc<str> {
        Arc::clone(&self.0.token.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again; whether it has another token now.
    ///
    /// # Errors
    /// As [`read_of_file`]: then the previous token stays valid.
    pub fn read_again(&self) -> io::Result<bool> {
        let Some(file) = &self.0.file else { return Ok(false) };
        // Before it is read: of two who read it the later has the later token, and a revoked one does not come back.
        let _reading = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let token = read_of_file(file)?;
        let mut known = self.0.token.write().unwrap_or_else(PoisonError::into_inner);
        let is_another = *known != token;
        *known = token;
        Ok(is_another)
    }
}

impl From<&str> for ScraperToken {
    fn from(token: &str) -> Self {
        Self::of(None, token.into())
    }
}

impl fmt::Debug for ScraperToken {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScraperToken").field("file", &self.0.file).finish_non_exhaustive()
    }
}

/// The token in the state directory, made if there is none.
///
/// # Errors
/// When it can be neither read nor made, or is one that others could have read.
pub(crate) fn of(state_directory: &Path) -> io::Result<Arc<str>> {
    let path = state_directory.join(TOKEN_NAME);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let mut random = [0; TOKEN_BYTES];
    process::random_bytes(&mut random)?;
    let mut token = String::with_capacity(2 * TOKEN_BYTES);
    for byte in random {
        // Writing to a string does not fail.
        let _ = write!(token, "{byte:02x}");
    }
    durable_file::replace(&path, format!("{token}\n").as_bytes())?;
    Ok(token.into())
}

/// The token in a file.
///
/// # Errors
/// When it cannot be read, or is one that others could have read.
pub(crate) fn read(path: &Path) -> io::Result<Arc<str>> {
    let refused = |why: &str| Err(io::Error::other(format!("{} {why}", path.display())));
    if path.metadata()?.mode() & 0o077 != 0 {
        return refused("may be read by others: remove it, and the server makes another one");
    }
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    let is_token = token.len() >= TOKEN_BYTES && token.bytes().all(|b| b.is_ascii_graphic());
    if !is_token {
        return refused(
            "has no token of 32 characters or more: remove it, and the server makes one",
        );
    }
    Ok(token.into())
}

/// The token in a file that somebody wrote, whom a group may read it with.
///
/// # Errors
/// When it cannot be read, everybody could have read it or others than its owner have written it, or it
/// has no token of 32 characters or more.
pub fn read_of_file(path: &Path) -> io::Result<Arc<str>> {
    let refused = |why: &str| Err(io::Error::other(format!("{} {why}", path.display())));
    let file = File::open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return refused("is not a file");
    }
    if metadata.mode() & 0o027 != 0 {
        return refused("may be read by everybody or changed by its group: chmod 0640, or 0600");
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refused("has no token of 32 characters or more in one line: openssl rand -hex 32");
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_a_token_may_be_its_groups_and_nobody_elses() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("token");
        let set = |mode, text: &str| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            read_of_file(&path).map_err(|error| error.to_string())
        };
        let token = "0123456789abcdef".repeat(2);
        assert!(read_of_file(&path).expect_err("none").to_string().contains("/token: No such"));
        for mode in [0o600, 0o640, 0o400] {
            assert_eq!(set(mode, &format!("{token}\n")).as_deref(), Ok(token.as_str()));
        }
        for mode in [0o644, 0o660, 0o601] {
            let why = set(mode, &token).expect_err("open");
            assert!(why.contains("chmod 0640"), "{why}");
        }
        for text in ["", "short", &token.replace('9', " "), &"é".repeat(32)] {
            let why = set(0o600, text).expect_err("no token");
            assert!(why.contains("openssl rand"), "{why}");
        }
        assert!(read_of_file(place.path()).expect_err("a directory").to_string().contains("file"));
    }

    #[test]
    fn a_token_is_made_once_and_kept_to_ourselves() {
        let place = tempfile::tempdir().expect("a directory");
        let token = of(place.path()).expect("made");
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        assert_eq!(of(place.path()).expect("read"), token);
        let path = place.path().join(TOKEN_NAME);
        assert_eq!(path.metadata().expect("metadata").mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("a mode");
        assert!(of(place.path()).expect_err("open").to_string().contains("read by others"));
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        std::fs::write(&path, "short").expect("written");
        assert!(of(place.path()).expect_err("short").to_string().contains("32 characters"));
    }

    #[test]
    fn a_token_of_scrapers_is_read_again_and_a_bad_one_is_not_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        let write = |text: &str| {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        };
        write(&"a".repeat(TOKEN_BYTES));
        let token = ScraperToken::of_file(&path).expect("a token");
        let served = token.clone();
        assert!(!token.read_again().expect("read"));
        write(&"b".repeat(TOKEN_BYTES));
        assert!(token.read_again().expect("read"));
        assert_eq!(*served.now(), *"b".repeat(TOKEN_BYTES));
        write("short");
        token.read_again().expect_err("too short");
        assert_eq!(*served.now(), *"b".repeat(TOKEN_BYTES));
        assert!(!format!("{token:?}").contains("bbb"));
        assert!(!ScraperToken::from("of no file").read_again().expect("nothing to read"));
    }
}
