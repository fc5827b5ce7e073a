//! Reads files from their begin to their end, as clients do that have several READs in flight.
//!
//! `streams HOST:PORT PATH NAME... [--mount-port N] [--size BYTES] [--depth N] [--late N]
//! [--streams N] [--bytes N]`, or `streams make FILE BYTES` for a file whose contents can be
//! checked.
//!
//! Each file is read by `--streams` connections, each its own part; `--late`: a READ is sent up
//! to so many places late; `--bytes` ends each stream earlier. Prints MB/s and the latencies of
//! the READs; all data is checked.
#![forbid(unsafe_code)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use steadfast_client::{FileHandle, Identity, Nfs3Client, arguments, procedure};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PAGE_BYTES: u64 = 4096;

fn main() -> ExitCode {
    match work(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("streams: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Clone)]
struct Load {
    server: SocketAddr,
    mount_server: SocketAddr,
    path: String,
    size: u64,
    depth: usize,
    late: u64,
    streams: u64,
    bytes: u64,
}

fn work(words: &[String]) -> Result<(), Failure> {
    if words.first().is_some_and(|word| word == "make") {
        return make(words.get(1).ok_or("which file?")?, words.get(2).ok_or("how long?")?.parse()?);
    }
    let mut words = words.iter();
    let server: SocketAddr = words.next().ok_or("which server?")?.parse()?;
    let path = words.next().ok_or("which share?")?.clone();
    let mut load = Load {
        server,
        mount_server: server,
        path,
        size: 1 << 20,
        depth: 8,
        late: 0,
        streams: 1,
        bytes: u64::MAX,
    };
    let mut names = Vec::new();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--mount-port" => load.mount_server.set_port(value()?.parse()?),
            "--size" => load.size = value()?.parse()?,
            "--depth" => load.depth = value()?.parse()?,
            "--late" => load.late = value()?.parse()?,
            "--streams" => load.streams = value()?.parse()?,
            "--bytes" => load.bytes = value()?.parse()?,
            name => names.push(name.to_owned()),
        }
    }
    let load = &load;
    let start = Instant::now();
    let parts = names.iter().flat_map(|name| (0..load.streams).map(move |part| (name, part)));
    let results: Vec<Result<(u64, Vec<Duration>), Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            parts.map(|(name, part)| scope.spawn(move || stream(load, name, part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a stream panicked")).collect()
    });
    let elapsed = start.elapsed();
    let (mut bytes, mut latencies) = (0, Vec::new());
    for result in results {
        let (read, times) = result?;
        bytes += read;
        latencies.extend(times);
    }
    latencies.sort_unstable();
    let at =
        |part: usize| latencies.get(latencies.len() * part / 1000).copied().unwrap_or_default();
    println!(
        "{:.1} MB/s, {bytes} bytes in {} READs, p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        bytes as f64 / 1e6 / elapsed.as_secs_f64(),
        latencies.len(),
        at(500).as_secs_f64() * 1e3,
        at(990).as_secs_f64() * 1e3,
        latencies.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Reads one part of one file.
fn stream(load: &Load, name: &str, part: u64) -> Result<(u64, Vec<Duration>), Failure> {
    let identity = Identity::root();
    let timeout = Duration::from_secs(120);
    let (mut client, root) = Nfs3Client::mount(
        load.server,
        load.mount_server,
        load.path.as_bytes(),
        identity.clone(),
        timeout,
    )?;
    let file: FileHandle = client.lookup(&root, name.as_bytes())?.handle;
    let file_bytes = client.getattr(&file)?.size;
    let part_bytes = (file_bytes / load.streams).next_multiple_of(load.size);
    let begin = part * part_bytes;
    let end = file_bytes.min(begin + part_bytes.min(load.bytes));
    let mut order: Vec<(u64, u64)> = Vec::new();
    let mut random = part + 1;
    for (index, offset) in (begin..end).step_by(load.size as usize).enumerate() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.push((index as u64 + (random >> 33) % (load.late + 1), offset));
    }
    order.sort_unstable();
    let mut transport = client.into_transport();
    let mut flying: HashMap<u32, (u64, Instant)> = HashMap::new();
    let mut latencies = Vec::with_capacity(order.len());
    let mut bytes = 0;
    let mut next = order.into_iter();
    loop {
        while flying.len() < load.depth {
            let Some((_, offset)) = next.next() else { break };
            let count = load.size.min(end - offset) as u32;
            let call = arguments::read(&file, offset, count);
            let xid = transport.send(procedure::READ, &identity, &call)?;
            flying.insert(xid, (offset, Instant::now()));
        }
        if flying.is_empty() {
            return Ok((bytes, latencies));
        }
        let reply = transport.receive_any()?;
        let (offset, sent) = flying.remove(&reply.xid).ok_or("a reply to no call of ours")?;
        latencies.push(sent.elapsed());
        let data = data(reply.results().ok_or("the call was not executed")?)?;
        let wanted = load.size.min(end - offset);
        if data.len() as u64 != wanted {
            return Err(format!("{} bytes at {offset} instead of {wanted}", data.len()).into());
        }
        check(data, offset)?;
        bytes += wanted;
    }
}

/// The data of READ's results (RFC 1813 §3.3.6).
fn data(results: &[u8]) -> Result<&[u8], Failure> {
    let word = |at: usize| {
        let bytes = results.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or("results cut short")
    };
    match word(0)? {
        0 => {}
        status => return Err(format!("READ failed with status {status}").into()),
    }
    let count_at = if word(4)? == 1 { 8 + 84 } else { 8 };
    let length = word(count_at + 8)? as usize;
    Ok(results.get(count_at + 12..count_at + 12 + length).ok_or("data cut short")?)
}

/// Each page begins with its offset.
fn check(data: &[u8], offset: u64) -> Result<(), Failure> {
    let first = offset.next_multiple_of(PAGE_BYTES);
    let mut at = (first - offset) as usize;
    while let Some(word) = data.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let expected = offset + at as u64;
        if u64::from_be_bytes(*word) != expected {
            return Err(format!("wrong data at {expected}").into());
        }
        at += PAGE_BYTES as usize;
    }
    Ok(())
}

fn make(name: &str, bytes: u64) -> Result<(), Failure> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(name)?);
    let mut page = [0x5a; PAGE_BYTES as usize];
    for offset in (0..bytes).step_by(PAGE_BYTES as usize) {
        page[..8].copy_from_slice(&offset.to_be_bytes());
        let length = PAGE_BYTES.min(bytes - offset) as usize;
        file.write_all(&page[..length])?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}
