//! Checks of form: formatting, lints, who may depend on whom and whether ARCHITECTURE.md says so, what sources may
//! contain, circles of modules, sources that documents name, licences, documentation.

mod circles;
mod dependencies;
mod licences;
mod paths;
mod shape;
mod sources;
mod table;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use steadfast_rig::workspace::{cargo, cargo_program, root};

/// Runs the command with the arguments that follow its name.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(unknown) = args.first() {
        bail!("tidy takes no options, but got {unknown:?}");
    }
    formatting()?;
    rules()?;
    lints()?;
    documentation()
}

/// rustfmt.
pub(crate) fn formatting() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])
}

/// Clippy, with warnings denied.
pub(crate) fn lints() -> Result<()> {
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

/// rustdoc, with warnings denied.
pub(crate) fn documentation() -> Result<()> {
    let status = Command::new(cargo_program())
        .args(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"])
        // Modules are documented for who works in them, so their heads may name private items.
        .env("RUSTDOCFLAGS", "--deny warnings --allow rustdoc::private-intra-doc-links")
        .current_dir(root()?)
        .status()
        .context("cannot run cargo doc")?;
    if !status.success() {
        bail!("the documentation does not build without warnings");
    }
    Ok(())
}

/// What no tool of the toolchain checks. All faults are told at once.
pub(crate) fn rules() -> Result<()> {
    let root = root()?;
    let metadata = metadata(root)?;
    let mut faults = dependencies::faults(&metadata)?;
    faults.extend(table::faults(root, &metadata)?);
    faults.extend(sources::faults(root)?);
    faults.extend(licences::faults(&metadata)?);
    faults.extend(shape::faults(root)?);
    faults.extend(circles::faults(root)?);
    faults.extend(paths::faults(root)?);
    if !faults.is_empty() {
        bail!("{} faults\n{}", faults.len(), faults.join("\n"));
    }
    cargo_deny(root)
}

fn metadata(root: &Path) -> Result<serde_json::Value> {
    let output = Command::new(cargo_program())
        .args(["metadata", "--format-version", "1"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed");
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// Bans, licences and sources by cargo-deny, where it is installed.
fn cargo_deny(root: &Path) -> Result<()> {
    let is_installed =
        Command::new("cargo-deny").arg("--version").output().is_ok_and(|o| o.status.success());
    if !is_installed {
        println!("cargo-deny is not installed: licences were checked by cargo metadata only");
        return Ok(());
    }
    let status = Command::new("cargo-deny")
        .args(["--offline", "check", "bans", "licenses", "sources"])
        .current_dir(root)
        .status()
        .context("cannot run cargo-deny")?;
    if !status.success() {
        bail!("failed: cargo-deny check bans licenses sources");
    }
    Ok(())
}
