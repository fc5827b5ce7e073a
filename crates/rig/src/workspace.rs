//! The workspace that all this is built from: where it is, and cargo in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The directory of the workspace.
pub fn workspace_root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    Ok(root.context("this crate is not in a workspace")?.to_owned())
}

/// Runs cargo in the workspace; an error if it fails.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    let shown = format!("cargo {}", arguments.join(" "));
    let status = Command::new(cargo_program())
        .args(arguments)
        .current_dir(workspace_root()?)
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("failed: {shown}");
    }
    Ok(())
}

/// The cargo that runs this, else the one that is found.
pub fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Where builds go.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}

/// The commit that was built, if this is a clone.
pub(crate) fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}
