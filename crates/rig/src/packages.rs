//! Debian packages that the tests need: installed when missing, and only then.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::namespace::Janitor;

/// Makes sure that each of `packages` is installed, by apt when one is missing.
///
/// # Errors
/// When a package is missing and this process is not root, or apt cannot fetch or install it;
/// the message names the packages and the command to run by hand.
pub fn ensure(packages: &[&str]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get update && apt-get install {}", missing.join(" "));
    if !rustix::process::geteuid().is_root() {
        bail!("packages are missing and only root may install them; run: {by_hand}");
    }
    eprintln!("installing Debian packages: {}", missing.join(" "));
    apt(&["update"]).with_context(|| format!("apt-get update failed; by hand: {by_hand}"))?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&missing);
    apt(&install).with_context(|| {
        format!("apt-get install failed (is there a network?); by hand: {by_hand}")
    })
}

/// Makes sure that packages are installed of which Debian would start these services: none of them
/// is started, neither now nor with the machine.
///
/// # Errors
/// As [`ensure`]; or when the machine cannot be told.
pub fn ensure_without_services(packages: &[&str], services: &[&str]) -> Result<()> {
    /// What `invoke-rc.d` and systemd's helpers ask before they start a service.
    const POLICY: &str = "/usr/sbin/policy-rc.d";
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Those that are there already are somebody's, and stay as they are.
    let new: Vec<&str> = services.iter().copied().filter(|service| !has_service(service)).collect();
    let mut janitor = Janitor::start()?;
    if !Path::new(POLICY).exists() {
        janitor.at_end(&format!("rm -f {POLICY}"))?;
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n").context(POLICY)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(POLICY, mode)?;
    }
    let installed = ensure(&missing);
    for service in new.iter().filter(|service| has_service(service)) {
        // Without systemd there is nobody who would start it with the machine.
        let _ = Command::new("systemctl").args(["--quiet", "disable", service]).output();
    }
    installed
}

fn has_service(service: &str) -> bool {
    Path::new("/lib/systemd/system").join(format!("{service}.service")).exists()
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status}", package])
        .stderr(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn apt(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .arg("--quiet")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // A freshly installed server must not start on this machine: tests start it in a
        // network namespace of their own.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .output()
        .context("apt-get cannot be run; the tests need Debian")?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{}", String::from_utf8_lossy(&output.stderr).trim())
}

/// Puts the user-mode-linux modules where `modprobe` in the guest looks for them.
///
/// The guest sees this machine's root, so the folder named after the guest's kernel release
/// has to be in `/lib/modules`.
///
/// # Errors
/// When user-mode-linux is not installed, or the folder cannot be made.
pub fn ensure_guest_modules() -> Result<()> {
    let source = Path::new("/usr/lib/uml/modules");
    std::fs::create_dir_all("/lib/modules").context("cannot create /lib/modules")?;
    let releases = std::fs::read_dir(source)
        .with_context(|| format!("{} is missing: install user-mode-linux", source.display()))?;
    for release in releases {
        let release = release?;
        let link = Path::new("/lib/modules").join(release.file_name());
        if link.exists() {
            continue;
        }
        match std::os::unix::fs::symlink(release.path(), &link) {
            // Another run may have made it meanwhile.
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot link {}", link.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fetches the original source archive of a Debian source package into `directory` and
/// returns its path; an archive fetched before is used again.
///
/// The list of sources is made for this call only, so the machine's own apt configuration is
/// neither needed nor changed.
pub(crate) fn source_archive(package: &str, directory: &Path) -> Result<std::path::PathBuf> {
    if let Some(found) = find_archive(package, directory)? {
        return Ok(found);
    }
    let lists = directory.join("lists");
    std::fs::create_dir_all(lists.join("partial"))?;
    let list = directory.join("sources.list");
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    std::fs::write(
        &list,
        format!("deb-src [signed-by={key}] {} bookworm main\n", debian_mirror()),
    )?;
    let options = [
        format!("-oDir::Etc::sourcelist={}", list.display()),
        "-oDir::Etc::sourceparts=-".to_owned(),
        format!("-oDir::State::lists={}", lists.display()),
        "-oAPT::Sandbox::User=root".to_owned(),
    ];
    for action in [&["update"][..], &["source", "--download-only", package]] {
        let output = Command::new("apt-get")
            .arg("--quiet")
            .args(&options)
            .args(action)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            bail!(
                "cannot fetch the source of {package} (is there a network?): {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    find_archive(package, directory)?
        .with_context(|| format!("apt-get source {package} left no archive"))
}

fn find_archive(package: &str, directory: &Path) -> Result<Option<std::path::PathBuf>> {
    std::fs::create_dir_all(directory)?;
    let prefix = format!("{package}_");
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(&prefix) && name.contains(".orig.tar.") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The Debian mirror this machine uses already, so that a proxy or a local mirror is used here
/// too.
fn debian_mirror() -> String {
    let mut texts = vec![std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()];
    if let Ok(parts) = std::fs::read_dir("/etc/apt/sources.list.d") {
        texts
            .extend(parts.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok()));
    }
    texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .find(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"))
        .unwrap_or("http://deb.debian.org/debian")
        .to_owned()
}
