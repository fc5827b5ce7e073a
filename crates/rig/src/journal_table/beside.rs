//! libnfs' tools, and another FUSE client if there is one, beside a mount with a journal: streams, and small files
//! on a share with a slow disk.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::loads;
use super::site::{Kind, Link, Mount, Site, WRITE_TIME, in_client, mount_point};
use crate::report::{Findings, Goal, Samples, Table, figure};
use crate::servers::Server;

const STREAM_MB: u64 = 512;
/// Small files: as many as the slow disk makes in some seconds, and what is in each.
const FILES: usize = 100;
const FILE_BYTES: usize = 4096;

const WRITE: &str = "write 512 MB, MB/s";
const READ: &str = "read 512 MB, MB/s";
const SMALL_SYNC: &str = "files/s, sync share";
const SMALL_ASYNC: &str = "files/s, async share";

const OURS: &str = "this mount, journal";
const TOOLS: &str = "libnfs' nfs-cp";
const OTHER: &str = "fuse-nfs";
const PLAIN: &str = "this mount, no journal";

/// Who puts files on a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Ours,
    Plain,
    Tools,
    Other,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Plain => PLAIN,
            Self::Tools => TOOLS,
            Self::Other => OTHER,
        }
    }
}

pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    Site::set_link(Link::Unlimited)?;
    let local = Local::new()?;
    let mut who = vec![Who::Ours, Who::Plain, Who::Tools];
    who.extend(site.options.fuse_nfs.as_ref().map(|_| Who::Other));
    let mut samples = Samples::default();
    for round in 0..site.options.rounds {
        let mut order = who.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for kind in [Kind::Sync, Kind::Async] {
            let server = site.serve(kind)?;
            for who in &order {
                measure_one(site, &server, kind, *who, &local, &mut samples)
                    .with_context(|| format!("{}, {}", who.name(), kind.name()))?;
            }
            server.stop()?;
        }
    }
    report(site, &who, &samples)
}

/// Small files on each share; streams on the async one, whose disk is not waited for.
fn measure_one(
    site: &Site<'_>,
    server: &Server,
    kind: Kind,
    who: Who,
    local: &Local,
    samples: &mut Samples,
) -> Result<()> {
    let mounted = || mount(site, server, who);
    let mount = mounted()?;
    let url = |name: &str| {
        let port = server.address.port();
        let uid = "uid=0&gid=0";
        let ip = server.address.ip();
        format!("nfs://{ip}{}/{name}?{uid}&version=3&nfsport={port}&mountport={port}", server.path)
    };
    let directory = format!("small-{who:?}");
    std::fs::create_dir(Path::new(&server.path).join(&directory))?;
    site.disk.sync()?;
    site.disk.set_write_time(WRITE_TIME);
    let begun = Instant::now();
    let outcome = match &mount {
        Some(mount) => run(Command::new("cp").arg("-r").arg(&local.small).arg(&mount.at)),
        None => Local::files().try_for_each(|name| {
            let to = url(&format!("{directory}/{name}"));
            run(in_client(0, Path::new("nfs-cp")).arg(local.small.join(&name)).arg(to))
        }),
    };
    let seconds = begun.elapsed().as_secs_f64();
    site.disk.set_write_time(Duration::ZERO);
    outcome?;
    let row = if kind == Kind::Sync { SMALL_SYNC } else { SMALL_ASYNC };
    put(samples, row, who, FILES as f64 / seconds);
    if let Some(mount) = &mount {
        std::fs::remove_dir_all(mount.at.join("small"))?;
    }
    if kind == Kind::Async {
        let begun = Instant::now();
        match &mount {
            Some(mount) => drop(loads::dd(&mount.at.join("stream"), "1M", STREAM_MB, None)?),
            None => run(in_client(0, Path::new("nfs-cp")).arg(&local.stream).arg(url("stream")))?,
        }
        let bytes = (STREAM_MB << 20) as f64 / 1e6;
        put(samples, WRITE, who, bytes / begun.elapsed().as_secs_f64());
    }
    end(mount)?;
    if kind == Kind::Async {
        // The client's pages went with the mount.
        let mount = mounted()?;
        let begun = Instant::now();
        match &mount {
            Some(mount) => {
                let from = format!("if={}", mount.at.join("stream").display());
                run(Command::new("dd").args([&from, "of=/run/read", "bs=1M"]))?;
            }
            None => run(in_client(0, Path::new("nfs-cp")).arg(url("stream")).arg("/run/read"))?,
        }
        let bytes = (STREAM_MB << 20) as f64 / 1e6;
        put(samples, READ, who, bytes / begun.elapsed().as_secs_f64());
        if std::fs::metadata("/run/read")?.len() != STREAM_MB << 20 {
            bail!("not all was read");
        }
        end(mount)?;
        std::fs::remove_file("/run/read")?;
        std::fs::remove_file(Path::new(&server.path).join("stream"))?;
    }
    Ok(())
}

fn put(samples: &mut Samples, row: &'static str, who: Who, value: f64) {
    eprintln!("  {:<24} {row:<24} {value:>9.2}", who.name());
    samples.push(row, who.name(), value);
}

/// A mount of whoever mounts.
fn mount(site: &Site<'_>, server: &Server, who: Who) -> Result<Option<Mount>> {
    match who {
        Who::Ours => site.mount(server, 0, Kind::Journal, "").map(Some),
        Who::Plain => site.mount(server, 0, Kind::Async, "").map(Some),
        Who::Tools => Ok(None),
        Who::Other => {
            let program = site.options.fuse_nfs.as_ref().context("no other FUSE client")?;
            let at = mount_point("other")?;
            let (ip, port) = (server.address.ip(), server.address.port());
            let url = format!(
                "nfs://{ip}{}?uid=0&gid=0&version=3&nfsport={port}&mountport={port}",
                server.path
            );
            let mut command = in_client(0, program);
            // With requests as large as libfuse 2 has them.
            command.args(["-n", &url, "-m"]).arg(&at).args(["-W", "131072"]);
            Mount::of_daemon(&mut command, at).map(Some)
        }
    }
}

fn end(mount: Option<Mount>) -> Result<()> {
    mount.map_or(Ok(()), Mount::end)
}

/// Files in this machine's memory, which are copied.
struct Local {
    /// A directory with small ones.
    small: PathBuf,
    stream: PathBuf,
}

impl Local {
    fn new() -> Result<Self> {
        let (small, stream) =
            (PathBuf::from("/run/local/small"), PathBuf::from("/run/local/stream"));
        std::fs::create_dir_all(&small)?;
        std::fs::File::create(&stream)?.set_len(STREAM_MB << 20)?;
        let local = Self { small, stream };
        for name in Self::files() {
            std::fs::write(local.small.join(name), vec![b's'; FILE_BYTES])?;
        }
        Ok(local)
    }

    fn files() -> impl Iterator<Item = String> {
        (0..FILES).map(|number| format!("file{number}"))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn report(site: &Site<'_>, who: &[Who], samples: &Samples) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.say(format!("Link: {}. {}", Link::Unlimited.name(), site.conditions()?));
    let names: Vec<&'static str> = who.iter().map(|who| who.name()).collect();
    let mut columns = vec![""];
    columns.extend(&names);
    let mut table = Table::new(&columns);
    for row in [WRITE, READ, SMALL_SYNC, SMALL_ASYNC] {
        let mut cells = vec![row.to_owned()];
        cells.extend(names.iter().map(|name| samples.shown(row, name)));
        table.row(&cells);
    }
    findings.add_table(&table);
    for row in [WRITE, READ] {
        let ratio = samples.ratio(row, OURS, TOOLS);
        findings.goals.push(Goal::at_least(format!("{row}: this mount ÷ nfs-cp"), 0.8, ratio));
    }
    let others = [TOOLS, OTHER].into_iter().filter(|name| names.contains(name));
    let rates: Vec<f64> = others.filter_map(|name| samples.median(SMALL_SYNC, name)).collect();
    let best = rates.iter().copied().reduce(f64::max);
    let ours = samples.median(SMALL_ASYNC, OURS);
    let ratio = ours.zip(best).map(|(ours, best)| ours / best);
    let what = "small files: this mount with a journal on the async share ÷ the best other on the sync share";
    findings.goals.push(Goal::at_least(what, 2.0, ratio));
    eprintln!("  small files: {}", ratio.map_or_else(String::new, figure));
    findings.add_samples(samples);
    Ok(findings)
}
