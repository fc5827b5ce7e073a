//! The file systems that the server exports: images on loop devices, so that their type, size
//! and limits are the run's own and the machine's are not touched.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::ganesha::Squash;
use crate::namespace::{Janitor, run};

/// The file system under the main share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The default: reuses inode numbers at once, which is hard on handles.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        })
    }
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "ext4" => Ok(Self::Ext4),
            "xfs" => Ok(Self::Xfs),
            "btrfs" => Ok(Self::Btrfs),
            other => bail!("no file system {other:?}: ext4, xfs or btrfs"),
        }
    }
}

/// Whom `all_squash` makes of everybody.
const ANONYMOUS_UID: u32 = 1234;
/// The group of the same.
const ANONYMOUS_GID: u32 = 2345;

/// A directory to export.
#[derive(Debug)]
pub(crate) struct Share {
    /// How the cases call it.
    pub(crate) name: &'static str,
    /// What clients mount.
    pub(crate) path: String,
    /// Where it is on this machine.
    pub(crate) directory: PathBuf,
    /// Whether clients may change it.
    pub(crate) is_read_only: bool,
    /// Identity mapping.
    pub(crate) squash: Squash,
}

/// The mounted images.
#[derive(Debug)]
pub(crate) struct Storage {
    shares: Vec<Share>,
}

impl Storage {
    /// Makes and mounts the images under `directory`; the janitor unmounts them.
    pub(crate) fn create(directory: &Path, main: Kind, janitor: &mut Janitor) -> Result<Self> {
        let main = Image { name: "main", size_mib: 12 * 1024, kind: main, inodes: None }
            .mount(directory, janitor)?;
        // 2,048 inodes: few enough that a case can use them up.
        let small = Image { name: "small", size_mib: 48, kind: Kind::Ext4, inodes: Some(2048) }
            .mount(directory, janitor)?;
        let quota = Image { name: "quota", size_mib: 256, kind: Kind::Btrfs, inodes: None };
        let limited = quota.mount_limited_subvolume(directory, janitor)?;

        let share = |name, directory: PathBuf, is_read_only, squash| -> Result<Share> {
            use std::os::unix::fs::PermissionsExt;
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777))?;
            Ok(Share { name, path: format!("/export/{name}"), directory, is_read_only, squash })
        };
        let shares = vec![
            share("main", main.join("main"), false, Squash::None)?,
            share("ro", main.join("ro"), true, Squash::None)?,
            share("root_squash", main.join("root_squash"), false, Squash::Root)?,
            share(
                "all_squash",
                main.join("all_squash"),
                false,
                Squash::All(ANONYMOUS_UID, ANONYMOUS_GID),
            )?,
            share("small", small, false, Squash::None)?,
            share("quota", limited, false, Squash::None)?,
        ];
        Ok(Self { shares })
    }

    /// All shares.
    pub(crate) fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The directory of a share that exists.
    pub(crate) fn directory(&self, name: &str) -> Result<&Path> {
        self.shares
            .iter()
            .find(|share| share.name == name)
            .map(|share| share.directory.as_path())
            .with_context(|| format!("no share is called {name}"))
    }
}

/// `unshare`'s arguments that make a btrfs in the file `image`.
///
/// `mkfs.btrfs` first looks whether its target is mounted, by the backing file of every loop device
/// that is, and gives up when one cannot be reached: one dead FUSE mount of somebody else's is enough
/// ("Transport endpoint is not connected"). So it runs where those mounts are not.
fn make_btrfs(image: &str) -> [&str; 6] {
    const ALONE: &str = r#"
        while read -r source at _; do
            case $source in /dev/loop*) ;; *) continue ;; esac
            case $at in / | /usr | /lib* | /bin | /sbin) continue ;; esac
            case $1 in "$at"/*) continue ;; esac
            umount --lazy "$at"
        done </proc/self/mounts
        exec mkfs.btrfs -q -f "$1""#;
    ["--mount", "sh", "-c", ALONE, "mkfs", image]
}

struct Image {
    name: &'static str,
    size_mib: u64,
    kind: Kind,
    inodes: Option<u32>,
}

impl Image {
    fn mount(&self, directory: &Path, janitor: &mut Janitor) -> Result<PathBuf> {
        let image = directory.join(format!("{}.img", self.name));
        let at = directory.join("fs").join(self.name);
        std::fs::create_dir_all(&at)?;
        // Sparse: only what the cases write takes space.
        std::fs::File::create(&image)?.set_len(self.size_mib << 20)?;
        let image = image.to_string_lossy().into_owned();
        let inodes = self.inodes.map(|count| count.to_string());
        match self.kind {
            Kind::Ext4 => {
                // -m 0: root may not use more than others, so that ENOSPC comes for everybody.
                let mut arguments = vec!["-q", "-F", "-m", "0", "-I", "256"];
                if let Some(count) = &inodes {
                    arguments.extend(["-N", count]);
                }
                arguments.push(&image);
                run("mkfs.ext4", &arguments)?;
            }
            Kind::Xfs => drop(run("mkfs.xfs", &["-q", "-f", &image])?),
            Kind::Btrfs => drop(run("unshare", &make_btrfs(&image))?),
        }
        Self::mount_at(&at, "loop", &image, janitor)?;
        Ok(at)
    }

    /// Makes a btrfs whose subvolume `limited` may hold 16 MiB, and mounts that subvolume.
    fn mount_limited_subvolume(&self, directory: &Path, janitor: &mut Janitor) -> Result<PathBuf> {
        let top = self.mount(directory, janitor)?;
        let limited = top.join("limited").to_string_lossy().into_owned();
        run("btrfs", &["quota", "enable", &top.to_string_lossy()])?;
        run("btrfs", &["subvolume", "create", &limited])?;
        run("btrfs", &["qgroup", "limit", "16M", &limited])?;
        // Mounted by itself: some servers export mount points, not subvolumes.
        run("umount", &[&top.to_string_lossy()])?;
        let image = directory.join(format!("{}.img", self.name));
        Self::mount_at(&top, "loop,subvol=limited", &image.to_string_lossy(), janitor)?;
        Ok(top)
    }

    fn mount_at(at: &Path, options: &str, image: &str, janitor: &mut Janitor) -> Result<()> {
        let at_text = at.to_string_lossy().into_owned();
        janitor.at_end(&format!("umount -l '{at_text}'"))?;
        run("mount", &["-o", options, image, &at_text]).map(drop)
    }
}

/// Removes the images of a run that passed; the logs stay.
pub(crate) fn remove_images(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mounts a loop device, then makes its backing file unreachable by a FUSE mount whose daemon is
    /// gone, and makes a btrfs by `"$@"`. All of it in a mount namespace, which takes it away.
    const BESIDE_A_DEAD_MOUNT: &str = r#"
        set -e
        mkdir over at
        truncate -s 8M over/image
        mkfs.ext4 -q over/image
        mount -o loop over/image at
        exec 3<>/dev/fuse
        mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 dead over
        exec 3>&-
        "$@""#;

    #[test]
    fn a_btrfs_is_made_beside_somebody_elses_dead_mount() {
        let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Path::new);
        let has = |tool| directories.iter().any(|directory| directory.join(tool).exists());
        let has_tools = ["mkfs.btrfs", "mkfs.ext4", "unshare"].into_iter().all(has);
        if !rustix::process::geteuid().is_root() || !has_tools {
            eprintln!(
                "skipped: it takes root, e2fsprogs and btrfs-progs, as the kernel client does"
            );
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("new.img");
        std::fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
        let image = image.to_string_lossy();
        let make = |command: &[&str]| {
            let work = tempfile::tempdir().expect("a directory");
            std::process::Command::new("unshare")
                .args(["--mount", "sh", "-c", BESIDE_A_DEAD_MOUNT, "beside"])
                .args(command)
                .current_dir(work.path())
                .output()
                .expect("unshare runs")
        };
        let plain = make(&["mkfs.btrfs", "-q", "-f", &image]);
        if plain.status.success() {
            eprintln!("this mkfs.btrfs looks at nobody else's mounts: {plain:?}");
        }
        let command: Vec<&str> = std::iter::once("unshare").chain(make_btrfs(&image)).collect();
        let ours = make(&command);
        assert!(ours.status.success(), "{ours:?}");
    }
}
