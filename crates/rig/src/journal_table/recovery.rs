//! 10,000 writes that are in a journal, and nowhere else, when client and server have crashed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::{Kind, Link, Site};
use crate::report::{Findings, Goal, Samples, Table};

const WRITES: usize = 10_000;
const FILES: usize = 100;
const WRITE_BYTES: usize = 4096;
/// After so long, with `journal_sync=1`.
const RING_IS_STABLE: Duration = Duration::from_secs(3);

const ROW: &str = "10,000 writes of 4 KiB to 100 files";
const SECONDS: &str = "seconds until mounted";

pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    Site::set_link(Link::Limited)?;
    let mut samples = Samples::default();
    for _ in 0..site.options.rounds {
        let server = site.serve(Kind::Journal)?;
        let share = Path::new(&server.path).to_owned();
        let mount = site.mount(&server, 0, Kind::Journal, ",journal_sync=1")?;
        for number in 0..FILES {
            File::create(mount.at.join(name(number)))?;
        }
        let files: Vec<File> = (0..FILES)
            .map(|number| File::options().write(true).open(mount.at.join(name(number))))
            .collect::<Result<_, _>>()?;
        // Nothing becomes stable at the server: it does not answer any more.
        server.stop()?;
        for write in 0..WRITES {
            // Not where the last one of the file ended, or they would be one.
            let offset = (write / FILES * 2 * WRITE_BYTES) as u64;
            let file = files.get(write % FILES).context("a file")?;
            file.write_all_at(&bytes_of(write), offset)?;
        }
        // Nobody can call fsync, which waits for the server.
        std::thread::sleep(RING_IS_STABLE);
        mount.kill();
        drop(files);
        // The disk is fast: what it takes for so many places is not the recovery's.
        let server = site.serve_again(Kind::Journal, &share, site.state())?;
        let begun = Instant::now();
        let mount = site.mount_again(&server, 0, Kind::Journal, "")?;
        let seconds = begun.elapsed().as_secs_f64();
        let log = std::fs::read_to_string(mount.log())?;
        eprintln!("  {seconds:.2} s\n{log}");
        for write in 0..WRITES {
            let offset = (write / FILES * 2 * WRITE_BYTES) as u64;
            let mut read = vec![0; WRITE_BYTES];
            let file = File::open(share.join(name(write % FILES)))?;
            file.read_exact_at(&mut read, offset)?;
            if read != bytes_of(write) {
                bail!("write {write} is not there");
            }
        }
        samples.push(ROW, SECONDS, seconds);
        mount.end()?;
        server.stop()?;
    }
    let mut findings = Findings::default();
    findings.say(format!("Link: {}. {}", Link::Limited.name(), site.conditions()?));
    let mut table = Table::new(&["", SECONDS]);
    table.row(&[ROW.to_owned(), samples.shown(ROW, SECONDS)]);
    findings.add_table(&table);
    findings.goals = vec![Goal::at_most(ROW, 10.0, samples.median(ROW, SECONDS))];
    findings.add_samples(&samples);
    Ok(findings)
}

fn name(number: usize) -> String {
    format!("file{number}")
}

/// What a write has, and no other.
fn bytes_of(write: usize) -> Vec<u8> {
    write.to_le_bytes().iter().copied().cycle().take(WRITE_BYTES).collect()
}
