//! Process ring: calls in flight when the real program is killed. Sent again to the next one, none of
//! them fails by what it has done itself.
//!
//! `STEADFAST_KILLS` has more kills than a short run, `STEADFAST_FILE_SYSTEM` another file system than ext4
//! (`xfs`, `btrfs`), `STEADFAST_SHARE` further lines of the share's configuration (`log = false`),
//! `STEADFAST_PROGRAM` another program. A run prints how many calls were in flight, and how
//! many of them got a wrong answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{PATIENCE, Place, Running, utf8};
use intent_log_support::{Mounted, btrfs, create, ext4, kill, xfs};
use steadfast_client::{
    CreateHow3, FileHandle, Identity, MknodData3, Nfs3Client, Procedure, Settings, Time,
    append_call, arguments, procedure,
};

const CONNECTIONS: usize = 8;
/// Calls in flight on each.
const DEPTH: usize = 8;
/// Of a short run.
const KILLS: u64 = 5;

/// A connection that calls are sent by as they are.
struct Wire(TcpStream);

impl Wire {
    fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, call: &[u8]) -> std::io::Result<()> {
        let mark = 0x8000_0000 | call.len() as u32;
        self.0.write_all(&[&mark.to_be_bytes()[..], call].concat())
    }

    fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }

    fn ask(&mut self, call: &[u8]) -> Vec<u8> {
        self.send(call).unwrap();
        self.receive().unwrap()
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn status_of(reply: &[u8]) -> u32 {
    word(reply, 24)
}

/// Handle, owner, group and ctime of what was made.
fn made(reply: &[u8]) -> (FileHandle, u32, u32, Time) {
    assert_eq!(word(reply, 28), 1, "no handle");
    let length = word(reply, 32) as usize;
    let handle = FileHandle(reply[36..36 + length].to_vec());
    let attributes = 36 + length.next_multiple_of(4) + 4;
    let ctime =
        Time { seconds: word(reply, attributes + 76), nanoseconds: word(reply, attributes + 80) };
    (handle, word(reply, attributes + 12), word(reply, attributes + 16), ctime)
}

/// Owner and group of what is given away while it is made.
const GIVEN: (u32, u32) = (1234, 5678);

/// The steps of a slot, each of which depends on the one before: who makes one of them twice, or not at
/// all, is found out by it or the next.
const STEPS: [&str; 15] = [
    "CREATE",
    "SETATTR",
    "LINK",
    "RENAME over",
    "REMOVE",
    "MKDIR",
    "RENAME directory",
    "RMDIR",
    "SYMLINK",
    "RENAME",
    "REMOVE symlink",
    "MKNOD",
    "REMOVE fifo",
    "CREATE exclusive",
    "REMOVE exclusive",
];

/// One call after the other.
struct Slot {
    number: usize,
    dir: FileHandle,
    other: FileHandle,
    /// Of the file that was made last; and its ctime then.
    file: Option<(FileHandle, Time)>,
    turns: u32,
    /// The call that has no reply.
    call: Vec<u8>,
}

impl Slot {
    fn step(&self) -> &'static str {
        STEPS[self.turns as usize % STEPS.len()]
    }

    fn begin(&mut self) {
        let name = |word: &str| format!("{word}{}", self.number).into_bytes();
        let (dir, other) = (&self.dir, &self.other);
        let given = Settings::owner(Some(GIVEN.0), Some(GIVEN.1));
        let given = given.with(|set| set.mode = Some(0o750));
        let rename = |from, to| arguments::rename(dir, &name(from), other, &name(to));
        let guarded = CreateHow3::Guarded(given.0);
        let verifier = (u64::from(self.turns) << 32 | 0x4d).to_be_bytes();
        let (procedure, arguments): (Procedure, _) = match self.step() {
            "CREATE" => (procedure::CREATE, arguments::create(dir, &name("file"), &guarded)),
            "SETATTR" => {
                let (file, ctime) = self.file.as_ref().unwrap();
                let mode = Settings::mode(0o600 | self.turns & 0o77);
                (procedure::SETATTR, arguments::setattr(file, &mode, Some(*ctime)))
            }
            "LINK" => {
                let (file, _) = self.file.as_ref().unwrap();
                (procedure::LINK, arguments::link(file, other, &name("moved")))
            }
            "RENAME over" => {
                (procedure::RENAME, arguments::rename(dir, &name("file"), other, &name("third")))
            }
            "REMOVE" => (procedure::REMOVE, arguments::place(other, &name("third"))),
            "MKDIR" => {
                let given = given.with(|set| set.mode = Some(0o2750));
                (procedure::MKDIR, arguments::mkdir(dir, &name("dir"), &given))
            }
            "RENAME directory" => (procedure::RENAME, rename("dir", "dir")),
            "RMDIR" => (procedure::RMDIR, arguments::place(other, &name("dir"))),
            "SYMLINK" => {
                (procedure::SYMLINK, arguments::symlink(dir, &name("link"), b"target", &given))
            }
            // Takes the place of the file's second name.
            "RENAME" => (procedure::RENAME, rename("link", "moved")),
            "REMOVE symlink" => (procedure::REMOVE, arguments::place(other, &name("moved"))),
            "MKNOD" => {
                let fifo = MknodData3::Fifo(given.0);
                (procedure::MKNOD, arguments::mknod(dir, &name("fifo"), &fifo))
            }
            "REMOVE fifo" => (procedure::REMOVE, arguments::place(dir, &name("fifo"))),
            "CREATE exclusive" => {
                let how = CreateHow3::Exclusive(verifier);
                (procedure::CREATE, arguments::create(dir, &name("file"), &how))
            }
            _ => (procedure::REMOVE, arguments::place(dir, &name("file"))),
        };
        let xid = (self.number as u32) << 20 | self.turns;
        self.call.clear();
        append_call(&mut self.call, xid, procedure, &Identity::root(), &arguments);
    }

    /// Takes a reply that is as it should be.
    fn end(&mut self, reply: &[u8]) {
        match self.step() {
            "CREATE" => {
                let (handle, uid, gid, ctime) = made(reply);
                assert_eq!((uid, gid), GIVEN);
                self.file = Some((handle, ctime));
            }
            "MKDIR" | "SYMLINK" | "MKNOD" => {
                let (_, uid, gid, _) = made(reply);
                assert_eq!((uid, gid), GIVEN, "{}", self.step());
            }
            _ => {}
        }
        self.turns += 1;
        self.begin();
    }

    /// Its call fails by what it did: the next step goes on from what is there.
    fn go_on(&mut self, mount: impl FnOnce() -> Nfs3Client) {
        if self.step() == "CREATE" {
            let mut client = mount();
            let name = format!("file{}", self.number);
            let found = client.lookup(&self.dir, name.as_bytes()).unwrap();
            self.file = Some((found.handle, found.attributes.unwrap().ctime));
        }
        self.turns += 1;
        self.begin();
    }
}

/// Keeps calls of its slots in flight until the connection ends. Returns how many were answered.
fn load(mut wire: Wire, slots: &mut [Slot]) -> u64 {
    let mut answered = 0;
    for slot in &mut *slots {
        if wire.send(&slot.call).is_err() {
            return answered;
        }
    }
    while let Ok(reply) = wire.receive() {
        let number = (word(&reply, 0) >> 20) as usize;
        let slot = slots.iter_mut().find(|slot| slot.number == number).unwrap();
        assert_eq!(status_of(&reply), 0, "{}, turn {}", slot.step(), slot.turns);
        slot.end(&reply);
        answered += 1;
        if wire.send(&slot.call).is_err() {
            break;
        }
    }
    answered
}

fn file_system(place: &Place) -> Option<Mounted> {
    let image = place.directory.path().join("image");
    match std::env::var("STEADFAST_FILE_SYSTEM").as_deref() {
        Ok("xfs") => xfs(&image, &place.share),
        Ok("btrfs") => btrfs(&image, &place.share, 5),
        _ => ext4(&image, &place.share, 64),
    }
}

/// Kills a server that starts.
fn cut_short(place: &Place, configuration: &Path, after: Duration) {
    let words = ["serve", "--listen", "127.0.0.1", "--no-rpcbind", "--config"];
    let mut child = Command::new(&place.program)
        .args(words)
        .args([utf8(configuration), "--state-directory", utf8(&place.state), "--port", "0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn calls_in_flight_do_not_fail_by_what_they_did() {
    let kills = std::env::var("STEADFAST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut place = Place::new();
    let Some(_disk) = file_system(&place) else { return };
    if let Ok(program) = std::env::var("STEADFAST_PROGRAM") {
        place.program = PathBuf::from(program);
    }
    let text = format!(
        "[log]\nenabled = true\nsize_mib = 16\n\
         [[share]]\npath = {:?}\nclients = [\"*\"]\noptions = [\"no_root_squash\", \"insecure\"]\n{}\n",
        utf8(&place.share),
        std::env::var("STEADFAST_SHARE").unwrap_or_default()
    );
    let configuration = place.write("steadfast.toml", &text);
    let start = |port| Running::start(&place, port, &["--config", utf8(&configuration)]);
    let mut running = start(0);
    let path = utf8(&place.share).as_bytes();
    let mount = |running: &Running| {
        let address = running.address;
        Nfs3Client::mount(address, address, path, Identity::root(), PATIENCE).unwrap()
    };
    let (mut client, root) = mount(&running);
    let mut dirs = Vec::new();
    for number in 0..CONNECTIONS {
        let name = format!("directory {number}");
        let made = client.mkdir(&root, name.as_bytes(), &Settings::mode(0o755)).unwrap();
        dirs.push(made.handle.unwrap());
    }
    create(&mut client, &root, "unrelated");
    drop(client);
    let slot = |number: usize| {
        let dir = dirs[number % CONNECTIONS].clone();
        let other = dirs[(number + 1) % CONNECTIONS].clone();
        let mut slot = Slot { number, dir, other, file: None, turns: 0, call: Vec::new() };
        slot.begin();
        slot
    };
    let mut slots: Vec<_> = (0..CONNECTIONS * DEPTH).map(slot).collect();
    let (mut answered, mut in_flight) = (0, 0);
    let mut wrong: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for round in 0..kills {
        let server = running.address;
        let load = std::thread::scope(|scope| {
            let loads: Vec<_> = slots
                .chunks_mut(DEPTH)
                .map(|slots| {
                    // Before the kill, however late the thread begins.
                    let wire = Wire::connect(server);
                    scope.spawn(move || load(wire, slots))
                })
                .collect();
            // At another moment of checkpoints and batches each time.
            std::thread::sleep(Duration::from_micros(30_000 + round * 7_919 % 90_000));
            kill(running);
            loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>()
        });
        answered += load;
        if round % 4 == 3 {
            // The next start is cut short too, and may or may not have come to the marks.
            cut_short(&place, &configuration, Duration::from_millis(round * 13 % 60));
        }
        running = start(0);
        if round % 4 == 1 {
            kill(running);
            running = start(0);
        }
        // What has no reply comes again, by other connections and in another order.
        let mut wire = Wire::connect(running.address);
        for slot in slots.iter_mut().rev() {
            in_flight += 1;
            let reply = wire.ask(&slot.call);
            if status_of(&reply) == 0 {
                slot.end(&reply);
            } else {
                *wrong.entry((slot.step(), status_of(&reply))).or_default() += 1;
                slot.go_on(|| mount(&running).0);
            }
        }
    }
    drop(running);
    let count: u64 = wrong.values().sum();
    println!(
        "{kills} kills, {answered} calls answered, {in_flight} in flight when the server was killed, \
         {count} ({:.2} %) with a wrong answer: {wrong:?}",
        100.0 * count as f64 / in_flight as f64
    );
    // One in a thousand.
    assert!(count * 1000 <= in_flight, "{count} of {in_flight}: {wrong:?}");
    assert!(answered > 10 * kills);
}
