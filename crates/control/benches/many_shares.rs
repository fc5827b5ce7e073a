//! What many shares cost: read and resolved, changed one by one and all at once, and how much
//! memory they take. Prints a table; `cargo bench -p steadfast-control --bench many_shares`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast_catalog::manage::{Batch, DefaultsSpec, Operation};
use steadfast_catalog::{Catalog, GroupFile};
use steadfast_control::store::{Store, StoreOptions};

fn main() {
    if let Some(count) = std::env::args().nth(1).and_then(|count| count.parse().ok()) {
        return measure(count);
    }
    println!(
        "shares in one file, times in ms (one share: the median of 101, the slowest in brackets, and one in memory alone)"
    );
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>22} {:>8} {:>8} {:>6}",
        "shares",
        "parse",
        "resolve",
        "open",
        "all off",
        "all on",
        "remove",
        "one share",
        "write",
        "B/share",
        "sets"
    );
    for count in [100, 2_900, 5_000, 15_150, 100_000] {
        // Each in a process of its own, so that none uses the memory of another.
        let program = std::env::current_exe().unwrap();
        let status = std::process::Command::new(program).arg(count.to_string()).status().unwrap();
        assert!(status.success());
    }
}

fn text(count: usize) -> String {
    let mut text = "clients = [\"10.0.0.0/8\", \"@staff\", \"admin.example\"]\n".to_owned();
    for n in 0..count {
        let path = format!("/export/home/user{n:06}");
        let _ =
            write!(text, "\n[[share]]\npath = \"{path}\"\noptions = [\"rw\", \"root_squash\"]\n");
    }
    text
}

fn ms(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1000.0)
}

/// Resident memory, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn batch(operations: serde_json::Value) -> Batch {
    Batch { operations: serde_json::from_value(operations).unwrap(), ..Batch::default() }
}

fn measure(count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let shares_directory = directory.path().join("shares.d");
    std::fs::create_dir(&shares_directory).unwrap();
    let text = text(count);
    std::fs::write(shares_directory.join("home.toml"), &text).unwrap();

    let before = resident();
    let start = Instant::now();
    let file = GroupFile::parse("home", &text);
    let parse = start.elapsed();
    let start = Instant::now();
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    let changes = catalog.insert(file);
    let resolve = start.elapsed();
    assert_eq!(changes.len(), count);
    drop(changes);
    let bytes = resident().saturating_sub(before);
    drop((catalog, text));

    let start = Instant::now();
    let (mut store, mistakes) = Store::open(StoreOptions {
        shares_directory,
        state_directory: directory.path().to_owned(),
        defaults: DefaultsSpec::default(),
        fixed: Vec::new(),
        threads: 2,
    })
    .unwrap();
    let open = start.elapsed();
    assert_eq!(mistakes, []);
    let mut timed = |operations: Vec<Operation>| {
        let batch = Batch { operations, ..Batch::default() };
        let start = Instant::now();
        store.apply(&batch, "bench").unwrap();
        start.elapsed()
    };
    let all = |enabled: serde_json::Value| -> Vec<Operation> {
        (0..count)
            .map(|n| {
                let operation = json!({"op": "set-share", "path": format!("/export/home/user{n:06}"),
                                       "changes": {"set": {"enabled": enabled}}});
                serde_json::from_value(operation).unwrap()
            })
            .collect()
    };
    let off = timed(all(json!(false)));
    let on = timed(all(json!(null)));
    let mut singles: Vec<Duration> = (0..101)
        .map(|n| {
            let path = format!("/export/home/user{:06}", n % count);
            let one = match n % 3 {
                0 => json!([{"op": "add-share", "group": "home", "share": {"path": format!("/new{n}")}}]),
                1 => json!([{"op": "set-share", "path": path, "changes": {"add_clients": ["::1"]}}]),
                _ => json!([{"op": "remove-share", "path": format!("/new{}", n - 2)}]),
            };
            timed(batch(one).operations)
        })
        .collect();
    singles.sort();
    let start = Instant::now();
    let one = json!([{"op": "set-share", "path": "/export/home/user000000",
                      "changes": {"set": {"log": false}}}]);
    store.try_out(&batch(one)).unwrap();
    let memory = start.elapsed();
    let one = format!("{} ({}) {}", ms(singles[50]), ms(singles[100]), ms(memory));
    let start = Instant::now();
    assert_eq!(store.write_files(), []);
    let write = start.elapsed();
    let sets = store.catalog().rule_sets();
    let remove = {
        let operations =
            vec![Operation::DeleteGroup { name: "home".to_owned(), with_shares: true }];
        let start = Instant::now();
        store.apply(&Batch { operations, ..Batch::default() }, "bench").unwrap();
        start.elapsed()
    };
    println!(
        "{count:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {one:>22} {:>8} {:>8} {sets:>6}",
        ms(parse),
        ms(resolve),
        ms(open),
        ms(off),
        ms(on),
        ms(remove),
        ms(write),
        if count < 5_000 { "-".to_owned() } else { (bytes / count).to_string() }
    );
}
