//! Process ring: data that is compressed on its way (docs/recovery.md, READZ and WRITEZ), by calls and by mounts.
//!
//! What mounts needs root and /dev/fuse. Where those are missing it does nothing, and fails with `CI=true`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::mounts::{Mount, serve, turn};
use common::{PATIENCE, Place, output, utf8};
use intent_log_support::site::Site;
use intent_log_support::{create, kill, stop};
use serde_json::Value;
use steadfast_client::{FileHandle, Identity, StableHow, append_call, recovery};
use steadfast_wire::frame;
use steadfast_wire::nfs3::NfsFh3;
use steadfast_wire::recovery::WritezArgs;
use steadfast_xdr::{Encode, Writer};

/// Lines of a log, no two of them alike.
fn text(bytes: usize) -> Vec<u8> {
    let line = |number: usize| {
        let (minute, user) = (number / 60 % 60, number.wrapping_mul(2_654_435_761) % 9973);
        format!(
            "2026-01-02T03:{minute:02}:{:02}Z host app[{user}]: request {number} took {} ms\n",
            number % 60,
            number.wrapping_mul(40_503) % 1777
        )
    };
    (0..).map(line).flat_map(String::into_bytes).take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The message of a WRITEZ to the beginning of a file.
fn writez(xid: u32, file: &FileHandle, data: &[u8]) -> Vec<u8> {
    let frame = frame::compress(data).unwrap();
    let (file, count) = (NfsFh3(file.as_bytes()), data.len() as u32);
    let stable = StableHow::FileSync;
    let mut arguments = Vec::new();
    WritezArgs { file, offset: 0, count, stable, frame: &frame }
        .encode(&mut Writer::new(&mut arguments));
    let mut message = Vec::new();
    append_call(&mut message, xid, recovery::WRITEZ, &Identity::root(), &arguments);
    message
}

/// Sends a call by a connection of its own; the reply.
fn ask(server: SocketAddr, call: &[u8]) -> Vec<u8> {
    let mut stream = steadfast_client::reserved::stream(server, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(&[&(0x8000_0000 | call.len() as u32).to_be_bytes()[..], call].concat())
        .unwrap();
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

#[test]
fn what_was_written_compressed_is_in_the_log_and_answered_again_after_a_crash() {
    let Some(site) = Site::new(&["disk"]) else { return };
    let running = site.start();
    let (mut client, root) = site.mount(&running, 0);
    let file = create(&mut client, &root, "a");
    site.disks[0].keep();
    let data = text(20_000);
    let call = writez(77, &file, &data);
    let reply = ask(running.address, &call);
    assert_eq!(reply[20..28], [0; 8], "SUCCESS and NFS3_OK");
    let read = client.recovery_readz(&file, 0, 1 << 20).unwrap();
    assert!(read.data == data && read.eof);
    let state = utf8(&site.place.state);
    // A reply may be here before it is counted there.
    let begun = Instant::now();
    loop {
        let told = output(&["statistics", "--json", "--state-directory", state]);
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        let is_counted = |name: &str| {
            let is_it = |one: &&Value| one["protocol"] == "recovery" && one["name"] == name;
            let counted = told["operations"].as_array().unwrap().iter().find(is_it);
            counted.is_some_and(|one| one["calls"] == 1 && one["errors"] == 0)
        };
        if is_counted("WRITEZ") && is_counted("READZ") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // All that the log has not has to be lost for that to be seen.
    kill(running);
    site.disks[0].lose();
    site.disks[0].mount("rw");
    assert_eq!(fs::read(site.disks[0].share.join("a")).unwrap(), b"");

    let running = site.start();
    let (mut client, _) = site.mount(&running, 0);
    assert!(client.read(&file, 0, 1 << 20).unwrap().data == data);
    client.write(&file, 0, b"newer", StableHow::FileSync).unwrap();
    assert_eq!(ask(running.address, &call), reply);
    let newer = [b"newer", &data[5..]].concat();
    assert!(client.read(&file, 0, 1 << 20).unwrap().data == newer, "it was executed twice");
    stop(running);
}

/// What a mount says of itself.
fn status(mount: &Mount) -> Value {
    let told = output(&["mount", "status", utf8(&mount.at), "--json"]);
    assert!(told.status.success(), "{told:?}");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    told[0]["status"].clone()
}

/// How much a mount has sent and received while something was done, and everything was flushed.
fn moved(mount: &Mount, act: impl FnOnce()) -> (u64, u64) {
    let count = |status: &Value, what: &str| status[what].as_u64().unwrap();
    let before = status(mount);
    act();
    let flushed = output(&["mount", "flush", utf8(&mount.at), "--timeout", "60"]);
    assert!(flushed.status.success(), "{flushed:?}");
    let after = status(mount);
    let of = |what| count(&after, what) - count(&before, what);
    (of("sent_bytes"), of("received_bytes"))
}

#[test]
fn text_takes_at_most_half_its_bytes_on_the_wire() {
    let Some(_turn) = turn() else { return };
    let place = Place::new();
    let server = serve(&place, 0);
    let journal = place.directory.path().canonicalize().unwrap().join("journal");
    let journal = format!("nfsvers=3,compress,journal={}", utf8(&journal));
    let (text, noise) = (text(8 << 20), noise(4 << 20));
    for (name, options, is_compressed) in [
        ("plain", "nfsvers=3", false),
        ("compressed", "nfsvers=3,compress", true),
        ("small", "nfsvers=3,compress,rsize=8192,wsize=8192", true),
        ("journal", &journal, true),
    ] {
        let (of_text, of_noise) = (format!("{name}.text"), format!("{name}.noise"));
        let bytes_max = if is_compressed { text.len() / 2 } else { text.len() * 11 / 10 } as u64;
        let bytes_min = if is_compressed { 0 } else { text.len() as u64 };
        let is_right = |bytes: u64| (bytes_min..=bytes_max).contains(&bytes);
        let mount = Mount::new(&place, &server, name, options);
        let (sent, _) = moved(&mount, || fs::write(mount.path(&of_text), &text).unwrap());
        assert!(is_right(sent), "{name}: {sent} bytes sent");
        let (sent_of_noise, _) =
            moved(&mount, || fs::write(mount.path(&of_noise), &noise).unwrap());
        assert!(sent_of_noise <= noise.len() as u64 * 11 / 10, "{name}: {sent_of_noise}");
        assert!(fs::read(place.share.join(&of_text)).unwrap() == text, "{name}");
        assert!(fs::read(place.share.join(&of_noise)).unwrap() == noise, "{name}");
        mount.unmount();
        // The kernel has nothing of it any more.
        let mount = Mount::new(&place, &server, name, options);
        let read = || assert!(fs::read(mount.path(&of_text)).unwrap() == text, "{name}");
        let (_, received) = moved(&mount, read);
        assert!(is_right(received), "{name}: {received} bytes received");
        assert!(fs::read(mount.path(&of_noise)).unwrap() == noise, "{name}");
        let told = status(&mount);
        assert_eq!(told["compression"].is_object(), is_compressed, "{told}");
        if is_compressed {
            assert_eq!(told["compression"]["is_used"], true, "{told}");
            let received = told["compression"]["received_bytes"].as_u64().unwrap();
            // A busy server sends a part as it is.
            assert!(received >= text.len() as u64 / 2, "{told}");
            let page = output(&["mount", "status", utf8(&mount.at)]);
            let page = String::from_utf8_lossy(&page.stdout).into_owned();
            assert!(page.contains("    compressed: ") && page.contains("received as "), "{page}");
            let page = output(&["mount", "status", utf8(&mount.at), "--prometheus"]);
            let page = String::from_utf8_lossy(&page.stdout).into_owned();
            assert!(page.contains("steadfast_mount_compression_used{"), "{page}");
        }
        println!("{name}: {sent} of {} bytes sent, {received} received", text.len());
        mount.unmount();
    }
}
