//! An exported directory.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::id::ShareId;
use crate::names::NoNames;
use crate::rights::{Flavor, Rights};
use crate::rules::{Decision, Question, RuleSet};
use crate::size::Size;

/// An exported directory with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name in handles.
    pub id: ShareId,
    /// The absolute path that clients mount.
    pub path: Arc<str>,
    /// The directory that is served (after symbolic links of the configured path are resolved), if
    /// that is another than the path says.
    pub elsewhere: Option<Box<Path>>,
    /// Whether file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
    /// Where file systems have to be mounted for it to be served (`mp`); the empty path is its
    /// directory.
    pub required_mounts: Arc<[Arc<str>]>,
    /// How much it may have of its file system, if the kernel is to enforce that.
    pub size: Option<Size>,
    /// Whether changes are flushed though there is an intent log.
    pub without_log: bool,
    /// Whether it takes no new clients: it is not told to anybody, and not mounted.
    pub is_draining: bool,
    /// Rules, first match decides. No match: no access.
    pub rules: Arc<RuleSet>,
}

impl Share {
    /// The directory that is served.
    pub fn directory(&self) -> &Path {
        self.elsewhere.as_deref().unwrap_or(Path::new(&*self.path))
    }

    /// Where file systems have to be mounted for it to be served.
    pub fn required_mounts(&self) -> impl Iterator<Item = &Path> {
        self.required_mounts
            .iter()
            .map(|mount| if mount.is_empty() { self.directory() } else { Path::new(&**mount) })
    }

    /// The directory's path; the share's own, where it is that, in the same memory.
    pub fn directory_bytes(&self) -> Arc<[u8]> {
        match &self.elsewhere {
            Some(directory) => directory.as_os_str().as_bytes().into(),
            None => Arc::clone(&self.path).into(),
        }
    }

    /// The same share of another directory.
    #[must_use]
    pub fn of_directory(&self, directory: &Path) -> Self {
        let elsewhere = (*directory != *Path::new(&*self.path)).then(|| directory.into());
        Self { elsewhere, ..self.clone() }
    }

    /// What a client may do by `AUTH_SYS`, as far as addresses tell; `None` for nothing at all.
    pub fn rights(&self, client: IpAddr) -> Option<&Rights> {
        let question = Question { client, flavor: Flavor::Sys, from_privileged_port: true };
        match self.rules.decide(&question, &NoNames) {
            Decision::Granted(place) => self.rules.grant(place),
            Decision::Refused(_) | Decision::Pending => None,
        }
    }
}
