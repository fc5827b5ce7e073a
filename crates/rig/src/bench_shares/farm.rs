//! What is shared, and to whom: home directories of departments, each share for a netgroup, hosts by
//! name, and networks. The same list in the words of every server that is measured.

use std::fmt::Write;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directories below one: as a storage server has them, and so that none becomes large.
const DIRECTORIES_OF_ONE: usize = 1000;
const DEPARTMENTS: usize = 40;
const HOSTS_OF_DEPARTMENT: usize = 50;
/// Hosts that a share names beside its department's netgroup.
const HOSTS_OF_SHARE: usize = 4;
/// The network that everything is measured from; it stands last, behind all names.
const TEST_NETWORK: &str = "127.0.0.0/8";
/// Options, as every server knows them.
const OPTIONS: &str = "rw,root_squash";

/// The name of the group whose shares are measured.
pub(super) const GROUP: &str = "home";

/// The shares below a directory, numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Farm {
    root: PathBuf,
}

impl Farm {
    /// Shares below this directory, of which nothing is there yet.
    pub(super) fn new(root: &Path) -> Result<Self> {
        root.to_str().with_context(|| format!("{} is not UTF-8", root.display()))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Makes the directories of shares, those that are not there; loads work in them as nobody.
    pub(super) fn make(&self, shares: std::ops::Range<usize>) -> Result<()> {
        for share in shares {
            let path = self.path(share);
            match std::fs::create_dir(&path).map_err(|error| (error.kind(), error)) {
                Ok(()) | Err((ErrorKind::AlreadyExists, _)) => Ok(()),
                Err((ErrorKind::NotFound, _)) => std::fs::create_dir_all(&path),
                Err((_, error)) => Err(error),
            }
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o777)))
            .with_context(|| format!("cannot make {path}"))?;
        }
        Ok(())
    }

    /// The path of a share.
    pub(super) fn path(&self, share: usize) -> String {
        let above = share / DIRECTORIES_OF_ONE;
        format!("{}/{above:03}/u{share:06}", self.root.display())
    }

    /// `/etc/hosts` for all of them.
    pub(super) fn hosts() -> String {
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for department in 0..DEPARTMENTS {
            for host in 0..HOSTS_OF_DEPARTMENT {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "10.{department}.1.{host} {}", host_name(department, host));
            }
        }
        text
    }

    /// `/etc/netgroup` for all of them.
    pub(super) fn netgroups() -> String {
        let mut text = String::new();
        for department in 0..DEPARTMENTS {
            let _ = write!(text, "d{department:02}");
            for host in 0..HOSTS_OF_DEPARTMENT {
                let _ = write!(text, " ({},,)", host_name(department, host));
            }
            text.push('\n');
        }
        text
    }

    /// The file of the group that has the first `count` shares.
    pub(super) fn group(&self, count: usize) -> String {
        let mut text =
            format!("description = \"Home directories\"\noptions = [{}]\n", quoted(OPTIONS));
        for share in 0..count {
            let clients = clients(share).map(|client| format!("{client:?}"));
            let clients = clients.collect::<Vec<_>>().join(", ");
            let path = self.path(share);
            let _ = write!(text, "\n[[share]]\npath = {path:?}\nclients = [{clients}]\n");
        }
        text
    }

    /// The first `count` shares as `/etc/exports` has them.
    pub(super) fn exports(&self, count: usize) -> String {
        let mut text = String::new();
        for share in 0..count {
            let _ = write!(text, "{}", self.path(share));
            for client in clients(share) {
                let _ = write!(text, " {client}({OPTIONS},sync,no_subtree_check)");
            }
            text.push('\n');
        }
        text
    }

    /// The first `count` shares as blocks of nfs-ganesha.
    pub(super) fn ganesha(&self, count: usize) -> String {
        let mut text = String::new();
        for share in 0..count {
            let path = self.path(share);
            let clients = clients(share).collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "EXPORT {{ Export_Id = {}; Path = {path}; Pseudo = {path}; Access_Type = None; \
                 SecType = sys; FSAL {{ Name = VFS; }} CLIENT {{ Clients = {clients}; \
                 Access_Type = RW; Squash = Root_Squash; }} }}",
                share + 1
            );
        }
        text
    }

    /// A share as the API takes it.
    pub(super) fn spec(&self, share: usize) -> serde_json::Value {
        let clients: Vec<_> = clients(share).collect();
        serde_json::json!({ "path": self.path(share), "clients": clients })
    }
}

/// Whom a share is for.
fn clients(share: usize) -> impl Iterator<Item = String> {
    let department = share % DEPARTMENTS;
    let first = share / DEPARTMENTS * HOSTS_OF_SHARE;
    let hosts = (first..first + HOSTS_OF_SHARE)
        .map(move |host| host_name(department, host % HOSTS_OF_DEPARTMENT));
    std::iter::once(format!("@d{department:02}"))
        .chain(hosts)
        .chain([format!("10.{department}.0.0/16"), TEST_NETWORK.to_owned()])
}

fn host_name(department: usize, host: usize) -> String {
    format!("ws{host:02}.d{department:02}.farm.example")
}

/// Words between commas as strings.
fn quoted(words: &str) -> String {
    words.split(',').map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_list_in_all_words() {
        let farm = Farm::new(Path::new("/srv")).expect("a farm");
        assert_eq!(farm.path(15_149), "/srv/015/u015149");
        let all: Vec<_> = clients(41).collect();
        assert_eq!(all[0], "@d01");
        assert_eq!(all[1..5].len(), HOSTS_OF_SHARE);
        assert_eq!(all[1], "ws04.d01.farm.example");
        assert_eq!(all[5..], ["10.1.0.0/16", TEST_NETWORK]);
        let (group, exports) = (farm.group(42), farm.exports(42));
        assert_eq!(group.matches("[[share]]").count(), 42);
        assert_eq!(exports.lines().count(), 42);
        for client in all {
            assert!(group.contains(&format!("{client:?}")) && exports.contains(&client));
        }
        assert_eq!(farm.ganesha(3).matches("Export_Id = 3;").count(), 1);
    }

    #[test]
    fn every_name_is_known() {
        let (hosts, netgroups) = (Farm::hosts(), Farm::netgroups());
        for client in (0..2000).flat_map(clients) {
            match client.strip_prefix('@') {
                Some(group) => assert!(netgroups.contains(&format!("{group} ("))),
                None if client.contains('/') => {}
                None => assert!(hosts.contains(&format!(" {client}\n")), "{client}"),
            }
        }
    }
}
