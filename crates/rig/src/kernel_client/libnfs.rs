//! Debian's libnfs tools: an NFSv3 client that shares no line with the kernel's or with ours.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::guest::Outcome;
use super::storage::Storage;
use crate::namespace::{Namespace, SERVER_ADDRESS};

/// The cases of this module.
pub(crate) const CASES: &[&str] = &["libnfs-list", "libnfs-read", "libnfs-write-and-copy"];

/// Runs one of [`CASES`].
pub(crate) fn run(name: &str, namespace: &Namespace, storage: &Storage, scratch: &Path) -> Outcome {
    let started = Instant::now();
    let tools = Tools { namespace, storage, scratch };
    let result = match name {
        "libnfs-list" => tools.list(),
        "libnfs-read" => tools.read(),
        "libnfs-write-and-copy" => tools.write_and_copy(),
        _ => Err(anyhow::anyhow!("no such case")),
    };
    Outcome {
        name: name.to_owned(),
        failure: result.err().map(|error| format!("{error:#}")),
        seconds: started.elapsed().as_secs_f64(),
    }
}

struct Tools<'a> {
    namespace: &'a Namespace,
    storage: &'a Storage,
    scratch: &'a Path,
}

impl Tools<'_> {
    fn list(&self) -> Result<()> {
        let directory = self.storage.directory("main")?.join("libnfs-list");
        std::fs::create_dir_all(directory.join("inner"))?;
        let mut names: Vec<String> = (0..500).map(|number| format!("file-{number}")).collect();
        for name in &names {
            std::fs::write(directory.join(name), name)?;
        }
        names.push("inner".to_owned());
        let text = self.tool("nfs-ls", &[&url("libnfs-list")])?;
        let text = String::from_utf8_lossy(&text);
        let mut listed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .filter(|name| !matches!(*name, "." | ".."))
            .collect();
        listed.sort_unstable();
        names.sort_unstable();
        if listed != names {
            bail!("nfs-ls listed {} names instead of {}: {text}", listed.len(), names.len());
        }
        Ok(())
    }

    fn read(&self) -> Result<()> {
        let directory = self.storage.directory("main")?.join("libnfs-read");
        std::fs::create_dir_all(&directory)?;
        let content = pattern(3 * 1024 * 1024 + 17);
        std::fs::write(directory.join("content"), &content)?;
        let read = self.tool("nfs-cat", &[&url("libnfs-read/content")])?;
        if read != content {
            bail!("nfs-cat gave {} bytes, not the {} written", read.len(), content.len());
        }
        Ok(())
    }

    fn write_and_copy(&self) -> Result<()> {
        let directory = self.storage.directory("main")?.join("libnfs-copy");
        std::fs::create_dir_all(&directory)?;
        let content = pattern(5 * 1024 * 1024 + 333);
        let local = self.scratch.join("libnfs-local");
        std::fs::write(&local, &content)?;
        let local_text = local.to_string_lossy().into_owned();
        self.tool("nfs-cp", &[&local_text, &url("libnfs-copy/there")])?;
        self.tool("nfs-cp", &[&url("libnfs-copy/there"), &url("libnfs-copy/again")])?;
        let back = self.scratch.join("libnfs-back");
        self.tool("nfs-cp", &[&url("libnfs-copy/again"), &back.to_string_lossy()])?;
        for path in [directory.join("there"), directory.join("again"), back.clone()] {
            let found =
                std::fs::read(&path).with_context(|| format!("{} is missing", path.display()))?;
            if found != content {
                bail!("{} differs from what was copied", path.display());
            }
        }
        std::fs::remove_file(local)?;
        std::fs::remove_file(back)?;
        Ok(())
    }

    fn tool(&self, program: &str, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = self
            .namespace
            .command("timeout")
            .args(["60", program])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {program}"))?;
        // nfs-cat and nfs-ls end with success also after an error that they have printed.
        if !output.status.success() || !output.stderr.is_empty() {
            bail!(
                "{program} {}: {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(output.stdout)
    }
}

fn url(path: &str) -> String {
    format!("nfs://{SERVER_ADDRESS}/export/main/{path}?version=3")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (index.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
}
