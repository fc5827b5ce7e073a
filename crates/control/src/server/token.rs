//! The token that lets in who comes by TCP: in a file that its owner alone may read.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use steadfast_sys::{durable_file, process};

/// In the state directory.
pub(crate) const TOKEN_NAME: &str = "control.token";
/// Of randomness.
const TOKEN_BYTES: usize = 32;

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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
}
