//! Streams: a large file in large unstable WRITEs, and its COMMIT. They bypass the log, and must not
//! pay for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, Nfs3Client, RpcConnection, Settings, StableHow, arguments,
    procedure,
};

use super::{Kind, Site};
use crate::disk::Disk;
use crate::report::{Findings, Goal, Samples, Table, figure};
use crate::servers::Server;

const ROW: &str = "2 GiB in WRITEs of 1 MiB, then COMMIT";
const FILE_MIB: u64 = 2048;
const WRITE_BYTES: usize = 1 << 20;
/// WRITEs in flight.
const WINDOW: usize = 8;
/// Room for the file.
const DISK_MIB: u64 = 3072;
/// What a new log of the usual size writes when its server starts.
const LOG_MIB: usize = 256;
/// Between a server's start and the first WRITE.
const SETTLING: Duration = Duration::from_secs(3);
/// How long a call may take, a COMMIT of everything too.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// Mounts a server's share.
pub(super) fn connect(server: &Server) -> Result<(Nfs3Client<RpcConnection>, FileHandle)> {
    let mut mount = server.address;
    mount.set_port(server.mount_port);
    let path = server.path.as_bytes();
    Ok(Nfs3Client::mount(server.address, mount, path, Identity::root(), CALL_LIMIT)?)
}

/// Makes a file.
pub(super) fn create(
    client: &mut Nfs3Client<RpcConnection>,
    root: &FileHandle,
    name: &str,
) -> Result<FileHandle> {
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    let made = client.create(root, name.as_bytes(), &how)?;
    made.handle.context("CREATE returned no handle")
}

pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    let mut samples = Samples::default();
    let image = site.top.join("data.img");
    let at = site.mount_point("data");
    let disk = Disk::on_file(site.file_system, &image, DISK_MIB, true, &at)?;
    for round in 0..site.options.rounds {
        let mut order = [Kind::Log, Kind::Plain];
        if round % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            let server = site.start(kind, &disk.share("share")?, "")?;
            if kind == Kind::Plain {
                write_as_much_as_a_new_log(&server.state)?;
            }
            // What was removed and what was made keep this machine's disk busy for a while.
            std::thread::sleep(SETTLING);
            let rate = write_and_commit(&server)?;
            eprintln!("  {:<34} {rate:>10.1} MiB/s", kind.name());
            samples.push(ROW, kind.name(), rate);
            server.stop()?;
        }
    }
    let mut findings = Findings::default();
    findings.say(site.conditions(site.options.rounds)?);
    let [log, plain] = [Kind::Log, Kind::Plain].map(Kind::name);
    let ratio = samples.ratio(ROW, log, plain);
    let mut table = Table::new(&["MiB/s", log, plain, "with ÷ without"]);
    let shown = ratio.map_or_else(String::new, figure);
    table.row(&[ROW.to_owned(), samples.shown(ROW, log), samples.shown(ROW, plain), shown]);
    findings.add_table(&table);
    findings.goals = vec![Goal::at_least("stream, with ÷ without the log", 0.9, ratio)];
    findings.add_samples(&samples);
    Ok(findings)
}

/// Hosts let disks of virtual machines be fast for so many bytes and no longer: nobody shall begin with
/// more of them. It is removed where a log would be.
fn write_as_much_as_a_new_log(state: &Path) -> Result<()> {
    let mut file = File::create(state.join("as-large-as-a-log"))?;
    let mib = vec![0x5a; 1 << 20];
    for _ in 0..LOG_MIB {
        file.write_all(&mib)?;
    }
    Ok(file.sync_all()?)
}

/// Writes the file, with several WRITEs in flight; MiB a second until COMMIT is answered.
fn write_and_commit(server: &Server) -> Result<f64> {
    let (mut client, root) = connect(server)?;
    let file = create(&mut client, &root, "stream")?;
    let data: Vec<u8> = (0..WRITE_BYTES).map(|index| (index % 251) as u8).collect();
    let identity = client.identity().clone();
    let begun = Instant::now();
    let mut in_flight = VecDeque::with_capacity(WINDOW);
    for number in 0..FILE_MIB {
        if in_flight.len() == WINDOW {
            await_write(client.transport(), &mut in_flight)?;
        }
        let offset = number * WRITE_BYTES as u64;
        let arguments = arguments::write(&file, offset, &data, StableHow::Unstable);
        in_flight.push_back(client.transport().send(procedure::WRITE, &identity, &arguments)?);
    }
    while !in_flight.is_empty() {
        await_write(client.transport(), &mut in_flight)?;
    }
    client.commit(&file, 0, 0)?;
    Ok(FILE_MIB as f64 / begun.elapsed().as_secs_f64())
}

fn await_write(connection: &mut RpcConnection, in_flight: &mut VecDeque<u32>) -> Result<()> {
    let xid = in_flight.pop_front().context("no WRITE is in flight")?;
    let reply = connection.receive(xid)?;
    // The results begin with the status.
    match reply.results().and_then(|results| results.first_chunk()) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(status) => bail!("WRITE failed with status {}", u32::from_be_bytes(*status)),
        None => bail!("WRITE was not accepted"),
    }
}
