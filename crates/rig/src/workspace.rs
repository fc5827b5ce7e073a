//! The workspace that all this is built from: where it is, and cargo in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The directory of the workspace.
///
/// # Errors
/// When this crate was built elsewhere than in it.
pub fn root() -> Result<&'static Path> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.context("this crate is not in a workspace")
}

/// Runs cargo in the workspace.
///
/// # Errors
/// When it cannot be run, or fails.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    let shown = format!("cargo {}", arguments.join(" "));
    let status = Command::new(cargo_program())
        .args(arguments)
        .current_dir(root()?)
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

/// A program as its tests have it: nothing that they have built is built again.
///
/// # Errors
/// When it cannot be built.
pub fn tested_program(package: &str) -> Result<PathBuf> {
    cargo(&["build", "--package", package])?;
    Ok(target()?.join("debug").join(package))
}

/// Builds the release of a program, or of what `words` say.
pub(crate) fn build_release(words: &[&str]) -> Result<()> {
    cargo(&[&["build", "--quiet", "--release"], words].concat())
}

/// Where builds go, and what was measured.
pub(crate) fn target() -> Result<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        // Cargo runs in the workspace.
        Some(directory) => root()?.join(directory),
        None => root()?.join("target"),
    };
    std::fs::create_dir_all(&target)?;
    target.canonicalize().context("the target directory")
}

/// The commit that was built, if this is a clone.
pub(crate) fn commit() -> Option<String> {
    let output = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .current_dir(root().ok()?)
        .output()
        .ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}
