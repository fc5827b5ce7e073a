//! Process ring: calls that come again after the real program was killed or restarted, however
//! often: they get their replies, and are not executed again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::{PATIENCE, Place, Running, utf8};
use intent_log_support::{Logged, create, ext4, kill, stop};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, Nfs3Client, Procedure, Settings, StableHow, append_call,
    arguments, procedure,
};

/// A connection that calls are sent by as they are.
struct Wire(TcpStream);

impl Wire {
    fn connect(server: SocketAddr) -> Self {
        let stream = steadfast_client::reserved::stream(server, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn ask(&mut self, call: &[u8]) -> Vec<u8> {
        self.ask_all(&[call.to_vec()]).remove(0)
    }

    /// All at once; the replies as they come.
    fn ask_all(&mut self, calls: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mark = |call: &Vec<u8>| (0x8000_0000 | call.len() as u32).to_be_bytes();
        let records: Vec<_> =
            calls.iter().flat_map(|call| [mark(call).to_vec(), call.clone()]).collect();
        self.0.write_all(&records.concat()).unwrap();
        calls.iter().map(|_| self.reply()).collect()
    }

    fn reply(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        reply
    }
}

fn message(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    append_call(&mut message, xid, procedure, &Identity::root(), arguments);
    message
}

fn status_of(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

/// Calls that fail, or do harm, if they are executed twice; each is made in a name of its own. The
/// WRITE is of what was `old`.
fn calls(client: &mut Nfs3Client, root: &FileHandle, xid: u32, what: &str) -> Vec<Vec<u8>> {
    let name = |word: &str| format!("{word} {what}").into_bytes();
    create(client, root, &format!("to remove {what}"));
    create(client, root, &format!("to move {what}"));
    let file = create(client, root, &format!("file {what}"));
    let guarded = CreateHow3::Guarded(Settings::mode(0o644).0);
    let all = [
        (procedure::CREATE, arguments::create(root, &name("made"), &guarded)),
        (procedure::MKDIR, arguments::mkdir(root, &name("directory"), &Settings::mode(0o755))),
        (procedure::REMOVE, arguments::place(root, &name("to remove"))),
        (procedure::RENAME, arguments::rename(root, &name("to move"), root, &name("moved"))),
        (procedure::LINK, arguments::link(&file, root, &name("link"))),
        (procedure::WRITE, arguments::write(&file, 0, b"old", StableHow::FileSync)),
    ];
    let all = (xid..).zip(all);
    all.map(|(xid, (procedure, arguments))| message(xid, procedure, &arguments)).collect()
}

/// A server, and calls that it has answered.
struct Answered {
    calls: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Answered {
    fn ask(&mut self, running: &Running, calls: Vec<Vec<u8>>) {
        let mut wire = Wire::connect(running.address);
        for call in calls {
            let reply = wire.ask(&call);
            assert_eq!(status_of(&reply), 0);
            self.calls.push((call, reply));
        }
    }

    /// All of them come again, by another connection.
    fn ask_again(&self, running: &Running, when: &str) {
        let mut wire = Wire::connect(running.address);
        for (number, (call, reply)) in self.calls.iter().enumerate() {
            assert_eq!(&wire.ask(call), reply, "call {number}, {when}");
        }
    }
}

/// How a server ends.
type End = fn(Running);

#[test]
fn replies_outlive_any_number_of_crashes_and_restarts() {
    let Some(logged) = Logged::new() else { return };
    let mut answered = Answered { calls: Vec::new() };
    let ends: [(&str, End); 7] = [
        ("killed", kill),
        ("killed", kill),
        ("stopped", stop),
        ("killed", kill),
        ("stopped", stop),
        ("stopped", stop),
        ("killed", kill),
    ];
    let mut history = String::new();
    for (number, (end, by)) in (1_u32..).zip(ends) {
        let running = logged.start();
        answered.ask_again(&running, &history);
        let (mut client, root) = logged.mount(&running);
        let new = calls(&mut client, &root, number << 8, &number.to_string());
        answered.ask(&running, new);
        history = format!("{history} {end}");
        by(running);
    }
    let running = logged.start();
    answered.ask_again(&running, &history);
    let kept = logged.status();
    assert!(kept["replies_bytes"].as_u64().unwrap() > 4_000, "{kept}");
    assert!(kept["replies_bytes_max"].as_u64() == Some(64 << 20), "{kept}");
    stop(running);
}

#[test]
fn a_log_that_goes_round_forgets_no_reply() {
    let Some(logged) = Logged::new() else { return };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let mut answered = Answered { calls: Vec::new() };
    let first = calls(&mut client, &root, 1 << 8, "first");
    answered.ask(&running, first);
    // Three times the log, with checkpoints.
    let file = create(&mut client, &root, "large");
    for index in 0..192_u64 {
        let data = vec![index as u8; 256 << 10];
        let offset = (index % 64) * data.len() as u64;
        client.write(&file, offset, &data, StableHow::FileSync).unwrap();
    }
    let last = calls(&mut client, &root, 2 << 8, "last");
    answered.ask(&running, last);
    for _ in 0..2 {
        logged.told(&["flush"]);
    }
    kill(running);
    let running = logged.start();
    answered.ask_again(&running, "after the log went round");
    kill(running);
    let running = logged.start();
    answered.ask_again(&running, "after two kills");
    stop(running);
}

/// An old WRITE is not executed over a newer one that was acknowledged.
fn assert_old_write_is_not_executed(
    logged: &Logged,
    share: &[u8],
    bytes: usize,
    ends: &[fn(Running)],
) {
    let mount = |running: &Running| {
        let address = running.address;
        Nfs3Client::mount(address, address, share, Identity::root(), PATIENCE).unwrap()
    };
    let mut running = logged.start();
    let (mut client, root) = mount(&running);
    let file = create(&mut client, &root, &format!("overwritten {bytes}"));
    let (old, new) = (vec![b'o'; bytes], vec![b'n'; bytes]);
    let old = arguments::write(&file, 0, &old, StableHow::FileSync);
    let mut answered = Answered { calls: Vec::new() };
    answered.ask(&running, vec![message(0xaa00 + bytes as u32, procedure::WRITE, &old)]);
    let new = arguments::write(&file, 0, &new, StableHow::FileSync);
    answered.ask(&running, vec![message(0xbb00 + bytes as u32, procedure::WRITE, &new)]);
    let more = calls(&mut client, &root, 0xcc00, &format!("of {bytes}"));
    answered.ask(&running, more);
    for end in ends {
        end(running);
        running = logged.start();
        answered.ask_again(&running, &format!("{bytes} bytes"));
        let (mut client, _) = mount(&running);
        assert_eq!(client.read(&file, 0, 10).unwrap().data, [b'n'; 10], "{bytes} bytes");
    }
    stop(running);
}

#[test]
fn stable_writes_that_are_too_large_for_the_log_are_executed_once() {
    let Some(logged) = Logged::new() else { return };
    let share = utf8(&logged.place.share).as_bytes().to_vec();
    for bytes in [100, (256 << 10) + 1, 1 << 20] {
        assert_old_write_is_not_executed(&logged, &share, bytes, &[kill, kill, stop]);
    }
}

#[test]
fn what_is_flushed_beside_a_log_is_executed_once_too() {
    let Some(mut logged) = Logged::new() else { return };
    let unlogged = logged.place.share.join("unlogged");
    std::fs::create_dir(&unlogged).unwrap();
    let share = |path: &std::path::Path, more: &str| {
        let path = utf8(path);
        format!(
            "[[share]]\npath = {path:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\"]\n{more}\n"
        )
    };
    let text = format!(
        "[log]\nenabled = true\nsize_mib = 16\n{}{}",
        share(&logged.place.share, ""),
        share(&unlogged, "log = false"),
    );
    logged.configuration = logged.place.write("steadfast.toml", &text);
    let path = utf8(&unlogged).as_bytes();
    assert_old_write_is_not_executed(&logged, path, 5_000, &[kill, stop, kill]);
}

#[test]
fn replies_that_cannot_be_read_are_left_out_and_reported() {
    let Some(logged) = Logged::new() else { return };
    let mut answered = Answered { calls: Vec::new() };
    for number in 1..=3 {
        let running = logged.start();
        let (mut client, root) = logged.mount(&running);
        let new = calls(&mut client, &root, number << 8, &number.to_string());
        answered.ask(&running, new);
        stop(running);
    }
    let mut files: Vec<_> = std::fs::read_dir(logged.place.state.join("replies"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    let of_other_version = |bytes: &mut Vec<u8>| bytes[8] = 99;
    let damaged = |bytes: &mut Vec<u8>| bytes[60] ^= 1;
    let change = |file: &std::path::Path, by: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = std::fs::read(file).unwrap();
        by(&mut bytes);
        std::fs::write(file, bytes).unwrap();
    };
    change(&files[0], &of_other_version);
    change(&files[1], &damaged);
    let running = logged.start();
    let log = Running::log(&logged.place);
    assert!(log.contains("has format version 99, this program reads 1"), "{log}");
    assert!(log.contains("bytes are damaged"), "{log}");
    // The damaged entry is one that made a file for the calls, or a call of the second start.
    answered.calls.drain(..6);
    let mut wire = Wire::connect(running.address);
    let others = answered.calls.iter().filter(|(call, reply)| wire.ask(call) != *reply);
    assert!(others.count() <= 1);
    stop(running);
}

#[test]
fn a_log_that_is_switched_off_and_on_keeps_the_replies_of_before() {
    let Some(logged) = Logged::new() else { return };
    let mut answered = Answered { calls: Vec::new() };
    let running = logged.start();
    let (mut client, root) = logged.mount(&running);
    let before = calls(&mut client, &root, 1 << 8, "before");
    answered.ask(&running, before);
    logged.told(&["disable"]);
    logged.told(&["enable"]);
    let after = calls(&mut client, &root, 2 << 8, "after");
    answered.ask(&running, after);
    kill(running);
    let running = logged.start();
    answered.ask_again(&running, "the log was off and on");
    let place: &Place = &logged.place;
    assert!(place.state.join("replies").exists());
    logged.told(&["disable"]);
    kill(running);
    let running = logged.start();
    answered.ask_again(&running, "the log was off");
    stop(running);
}

/// Replies never are what fills the state directory's file system, and a server starts on it again.
#[test]
fn replies_leave_room_in_the_state_directory() {
    let Some(mut logged) = Logged::new() else { return };
    logged.configure("enabled = true\nsize_mib = 16\ncheckpoint_interval_ms = 250\n");
    let image = logged.place.directory.path().join("state image");
    let Some(_state) = ext4(&image, &logged.place.state, 32) else { return };
    let running = logged.start();
    let left = || {
        let told = rustix::fs::statvfs(&logged.place.state).unwrap();
        told.f_bavail * told.f_frsize
    };
    let room = left();
    let (mut client, root) = logged.mount(&running);
    let file = create(&mut client, &root, "file");
    let mut wire = Wire::connect(running.address);
    let change = arguments::setattr(&file, &Settings::mode(0o640), None);
    let calls = (2 * room / 100) as u32;
    let mut replies = 0;
    for batch in 0..calls / 200 {
        let calls: Vec<_> =
            (0..200).map(|call| message(batch * 200 + call, procedure::SETATTR, &change)).collect();
        replies += wire.ask_all(&calls).iter().map(Vec::len).sum::<usize>() as u64;
    }
    assert!(replies > room, "{replies} bytes of replies do not fill {room}");
    let mut answered = Answered { calls: Vec::new() };
    let last = self::calls(&mut client, &root, 0xff_0000, "last");
    answered.ask(&running, last);
    logged.told(&["flush"]);
    assert!(left() > room / 4, "of {room} bytes {} are left", left());
    let kept = logged.status();
    assert!(kept["replies_bytes"].as_u64().unwrap() > room / 4, "{kept}");
    assert!(kept["replies_bytes_max"].as_u64().unwrap() < room, "{kept}");
    let log = Running::log(&logged.place);
    assert!(log.contains("has little room") && !log.contains("cannot be kept"), "{log}");
    kill(running);
    let running = logged.start();
    answered.ask_again(&running, "with little room");
    stop(running);
}
