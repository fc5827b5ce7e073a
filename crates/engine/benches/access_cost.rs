//! What it costs to know what a client may do: `cargo bench -p steadfast-engine --bench
//! access_cost`. At any number of shares and rules a check that the connection remembers is to
//! cost less than 50 ns, and a change of one share less than 2 ms.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use steadfast_engine::{Engine, EngineConfig, Export, ExportTable, Peer, Transport, Transports};
use steadfast_shares::{ClientPattern, ClientRule, Flavor, Rights, RuleSet, Share, ShareId};
use steadfast_vfs::model::ModelFs;

const ROUNDS: usize = 7;

/// Rules of which the last has the client.
fn rules(count: usize) -> Arc<RuleSet> {
    let grants: Arc<[Rights]> = Arc::new([Rights::default()]);
    let others = (1..count).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256));
    let all = others.chain(["127.0.0.1".to_owned()]).map(|text| {
        let pattern: ClientPattern = text.parse().unwrap();
        ClientRule { pattern, grants: Arc::clone(&grants) }
    });
    Arc::new(RuleSet::new(all.collect()))
}

fn export(id: u64, rules: &Arc<RuleSet>, storage: &Arc<ModelFs>) -> Export {
    let path = format!("/tank/home/user{id}");
    let share = Share {
        id: ShareId::of_path(&path),
        elsewhere: None,
        path: path.into(),
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::clone(rules),
    };
    Export { share: Arc::new(share), storage: Arc::clone(storage) as _ }
}

/// The median over some rounds of what one of `times` takes, in ns.
fn ns(times: u64, mut act: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            (0..times).for_each(&mut act);
            begun.elapsed().as_nanos() as f64 / times as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!(
        "{:>8} {:>6} {:>12} {:>12} {:>12}",
        "shares", "rules", "known ns", "asked ns", "change µs"
    );
    let storage = Arc::new(ModelFs::new(1, 0o755));
    for (shares, rule_count) in [(1, 1), (1, 4096), (15_150, 10), (15_150, 4096), (100_000, 10)] {
        let rules = rules(rule_count);
        let exports: Vec<Export> = (0..shares).map(|id| export(id, &rules, &storage)).collect();
        let ids: Vec<ShareId> = exports.iter().map(|export| export.share.id).collect();
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: false,
            handle_key: [1; 16],
            write_verifier: 1,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 16 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        let engine = Engine::new(config, ExportTable::new(exports));
        let local = "127.0.0.1:2049".parse().unwrap();
        let new_peer = || Peer::new("127.0.0.1:700".parse().unwrap(), local, Transport::Tcp);
        let peer = new_peer();
        let known = ns(1_000_000, |_| {
            black_box(engine.access(black_box(&peer), ids[0], Flavor::Sys));
        });
        // Another share each time: the table's memory is cold, and nothing is remembered.
        let asked = ns(200_000, |n| {
            let id = ids[(n.wrapping_mul(7919) % shares) as usize];
            black_box(engine.access(black_box(&new_peer()), id, Flavor::Sys));
        });
        let change = ns(100, |n| {
            let changed = export(n % shares, &rules, &storage);
            let id = changed.share.id;
            engine.set_exports(engine.exports().changed(&[id], vec![changed]));
        });
        println!(
            "{shares:>8} {rule_count:>6} {known:>12.1} {asked:>12.1} {:>12.1}",
            change / 1000.0
        );
    }
}
