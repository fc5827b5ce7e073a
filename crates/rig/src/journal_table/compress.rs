//! Text that is written and read with and without the option `compress`: bytes on the wire, speed, the server's CPU.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::{Kind, Link, Site};
use crate::report::{Findings, Goal, Samples, Table};
use crate::servers::Server;
use crate::workspace;

/// The text is so long at the most.
const TEXT_BYTES_MAX: usize = 32 << 20;

const WRITTEN: &str = "text, written";
const READ: &str = "text, read";

/// Ways to mount: a column of the report, the kind of share, options.
const WAYS: [(&str, Kind, &str); 4] = [
    ("(b) async", Kind::Async, ""),
    ("(b) with `compress`", Kind::Async, ",compress"),
    ("(c) async, journal", Kind::Journal, ""),
    ("(c) with `compress`", Kind::Journal, ",compress"),
];

pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    Site::set_link(Link::Limited)?;
    let text = text(workspace::root()?)?;
    let [mut wire, mut speed, mut cpu] = <[Samples; 3]>::default();
    for _ in 0..site.options.rounds {
        for (name, kind, options) in WAYS {
            let server = site.serve(kind)?;
            let share = Path::new(&server.path).to_owned();
            let mount = site.mount(&server, 0, kind, options)?;
            let of_write = moved(&server, || {
                let mut file = File::create(mount.at.join("text"))?;
                file.write_all(&text)?;
                Ok(file.sync_all()?)
            })?;
            mount.end()?;
            if fs::read(share.join("text"))? != text {
                bail!("{name}: the server has something else than was written");
            }
            // Neither the kernel nor the mount has anything of it.
            let mount = site.mount(&server, 0, kind, options)?;
            let mut read = Vec::new();
            let of_read = moved(&server, || {
                read = fs::read(mount.at.join("text"))?;
                Ok(())
            })?;
            if read != text {
                bail!("{name}: something else was read than was written");
            }
            mount.end()?;
            server.stop()?;
            for (row, (wire_bytes, seconds, cpu_s)) in [(WRITTEN, of_write), (READ, of_read)] {
                let mb = text.len() as f64 / 1e6;
                wire.push(row, name, wire_bytes as f64 / text.len() as f64);
                speed.push(row, name, mb / seconds);
                cpu.push(row, name, cpu_s * 1000.0 / mb);
                eprintln!("  {name:<22} {row:<14} {:>6.1} MB/s", mb / seconds);
            }
        }
    }
    report(site, text.len(), &wire, &speed, &cpu)
}

fn report(
    site: &Site<'_>,
    text_bytes: usize,
    wire: &Samples,
    speed: &Samples,
    cpu: &Samples,
) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.say(format!(
        "Link: {}. The text has {:.1} MB. {}",
        Link::Limited.name(),
        text_bytes as f64 / 1e6,
        site.conditions()?
    ));
    for (title, samples) in
        [("bytes on the wire a byte", wire), ("MB/s", speed), ("server's CPU, ms a MB", cpu)]
    {
        let columns: Vec<&str> =
            std::iter::once(title).chain(WAYS.iter().map(|(name, ..)| *name)).collect();
        let mut table = Table::new(&columns);
        for row in [WRITTEN, READ] {
            let shown = WAYS.iter().map(|(name, ..)| samples.shown(row, name));
            let cells: Vec<String> = std::iter::once(row.to_owned()).chain(shown).collect();
            table.row(&cells);
        }
        findings.add_table(&table);
        findings.add_samples(samples);
    }
    for (name, _, options) in WAYS {
        for row in [WRITTEN, READ].into_iter().filter(|_| !options.is_empty()) {
            let what = format!("{row}, {name}: bytes on the wire a byte");
            findings.goals.push(Goal::at_most(what, 0.5, wire.median(row, name)));
        }
    }
    Ok(findings)
}

/// What something moves over the server's link, in bytes, how long it takes, and what it takes of the server's CPU, in seconds.
fn moved(server: &Server, act: impl FnOnce() -> Result<()>) -> Result<(u64, f64, f64)> {
    let (before, begun) = (Site::counters(server)?, Instant::now());
    act()?;
    let seconds = begun.elapsed().max(Duration::from_micros(1)).as_secs_f64();
    let after = Site::counters(server)?;
    Ok((after.wire_bytes - before.wire_bytes, seconds, after.cpu_s - before.cpu_s))
}

/// The sources and documents of this workspace, one behind the other.
fn text(root: &Path) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    for folder in ["docs", "crates", "xtask", "tests"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut text = Vec::new();
    for file in files {
        text.extend(fs::read(&file).with_context(|| file.display().to_string())?);
    }
    text.truncate(TEXT_BYTES_MAX);
    if text.len() < 1 << 20 {
        bail!("the sources of this workspace are {} bytes of text: too few", text.len());
    }
    Ok(text)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs" || end == "md") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_this_workspace() {
        let text = text(workspace::root().expect("a workspace")).expect("it is long enough");
        let has = |words: &[u8]| text.windows(words.len()).any(|some| some == words);
        assert!(has(b"fn the_text_is_that_of_this_workspace"), "sources");
        assert!(has(b"# The recovery program"), "documents");
    }
}
