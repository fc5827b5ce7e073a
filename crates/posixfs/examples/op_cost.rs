//! Prints what each operation costs through the trait, in nanoseconds, on one thread.
//!
//! `cargo run --release -p steadfast-posixfs --example op_cost -- [DIRECTORY [NAMES]]`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::{Duration, Instant};

use steadfast_posixfs::{Storage, StorageOptions, Tree, TreeOptions, prepare_process};
use steadfast_vfs::{
    AccessMask, Caller, CreateHow, Cred, FileSystem, Name, ReplyBarrier, SetAttr, Waiting, WriteHow,
};

fn measure(what: &str, mut operation: impl FnMut(u64)) {
    for round in 0..1000 {
        operation(round);
    }
    let mut rounds = 1000;
    let start = Instant::now();
    let mut batches = Vec::new();
    while start.elapsed() < Duration::from_millis(300) {
        let batch = Instant::now();
        for _ in 0..1000 {
            operation(rounds);
            rounds += 1;
        }
        batches.push(batch.elapsed().as_nanos() as u64 / 1000);
    }
    batches.sort_unstable();
    println!("{what:<44} {:>7} ns (best {})", batches[batches.len() / 2], batches[0]);
}

fn ignore<T>(_: T) {}

fn main() {
    let powers = prepare_process().unwrap();
    println!("{powers:?}");
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let directory = parent.join(format!("op-cost-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let storage = Storage::new(StorageOptions { descriptors_max: 50_000 });
    let tree = Tree::open(&directory, &TreeOptions::default(), &storage).unwrap();
    let server = Cred { uid: 0, gid: 0, groups: [].into_iter().collect() };
    let user = Cred { uid: 1000, gid: 1000, groups: (1..16).collect() };
    let never = Caller::new(&server, Waiting::Never);
    let allowed = Caller::new(&server, Waiting::Allowed);
    let other = Caller::new(&user, Waiting::Never);
    let root = tree.root().unwrap().handle;
    let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    let made = tree.create(&allowed, &root, name("file"), &CreateHow::Guarded(set));
    let file = made.release(&ReplyBarrier::for_engine()).0.result.unwrap().handle;
    let data = vec![7_u8; 4 << 20];
    let write = |offset, bytes: usize| {
        let done = tree.write(&allowed, &file, offset, &data[..bytes], WriteHow::Unstable);
        done.release(&ReplyBarrier::for_engine()).0.result.unwrap();
    };
    write(0, data.len());
    // So that ACLs may be remembered.
    std::thread::sleep(Duration::from_millis(50));

    measure("GETATTR", |_| ignore(tree.attributes(&never, &file).unwrap()));
    measure("ACCESS", |_| ignore(tree.access(&never, &file, AccessMask::all()).unwrap()));
    measure("ACCESS, other user", |_| {
        ignore(tree.access(&other, &file, AccessMask::all()).unwrap());
    });
    measure("LOOKUP, held open", |_| {
        ignore(tree.lookup(&never, &root, name("file")).result.unwrap());
    });
    measure("LOOKUP, other user", |_| ignore(tree.lookup(&other, &root, name("file")).result));
    measure("LOOKUP, absent", |_| ignore(tree.lookup(&never, &root, name("none")).result));
    let mut into = Vec::with_capacity(2 << 20);
    for (what, bytes, place) in [
        ("READ 4 KiB, always the same", 4096, false),
        ("READ 4 KiB", 4096, false),
        ("READ 64 KiB", 65_536, false),
        ("READ 1 MiB", 1 << 20, false),
        ("READ 1 MiB as a place", 1 << 20, true),
    ] {
        measure(what, |round| {
            into.clear();
            let offset = if what.contains("same") { 0 } else { (round * 4096) % (2 << 20) };
            tree.read(&never, &file, offset, bytes, place, &mut into).unwrap();
        });
    }
    measure("WRITE 4 KiB, unstable", |round| write((round * 4096) % (4 << 20), 4096));
    measure("WRITE 4 KiB, two users in turn", |round| {
        let cred = if round % 2 == 0 { &user } else { &server };
        let caller = Caller::new(cred, Waiting::Allowed);
        drop(tree.write(&caller, &file, 0, &data[..4096], WriteHow::Unstable));
    });
    measure("SETATTR mode", |round| {
        let set = SetAttr { mode: Some(0o600 + (round % 2) as u32), ..SetAttr::default() };
        drop(tree.set_attributes(&allowed, &file, &set, None));
    });
    measure("CREATE and REMOVE", |round| {
        let text = format!("x{round}");
        let text = Name::new(text.as_bytes()).unwrap();
        drop(tree.create(&allowed, &root, text, &CreateHow::Guarded(set)));
        drop(tree.remove(&allowed, &root, text));
    });
    let names = std::env::args().nth(2).map_or(10_000, |count| count.parse().unwrap());
    for round in 0..names {
        std::fs::write(directory.join(format!("many-{round}")), b"").unwrap();
    }
    for (what, plus) in [("READDIR, an entry", false), ("READDIRPLUS, an entry", true)] {
        let (mut best, mut pages) = (u64::MAX, 0);
        for _ in 0..3 {
            let start = Instant::now();
            let (mut cookie, mut entries) = (0, 0_u64);
            pages = 0;
            loop {
                let mut told = 0;
                let done = tree.read_directory(&allowed, &root, cookie, plus, &mut |entry| {
                    told += 1;
                    if told <= 100 {
                        cookie = entry.cookie;
                        entries += 1;
                    }
                    told <= 100
                });
                pages += 1;
                if done.unwrap().is_end {
                    break;
                }
            }
            best = best.min(start.elapsed().as_nanos() as u64 / entries);
        }
        println!("{what:<44} {best:>7} ns ({pages} pages)");
    }
    drop(tree);
    std::fs::remove_dir_all(&directory).unwrap();
}
