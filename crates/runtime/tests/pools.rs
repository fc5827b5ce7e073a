//! Unit ring, over real loopback sockets: several pools beside each other.

#![allow(clippy::unwrap_used, clippy::wildcard_imports)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use common::*;
use steadfast_runtime::ServerOptions;

const CONNECTIONS: usize = 64;
const CALLS: u32 = 40;

/// The CPUs that this process may use, as many as there may be pools.
fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(2).collect()
}

/// The thread and the CPU that a call was executed by.
fn server_of(reply: &[u8]) -> (String, usize) {
    let text = String::from_utf8(reply.to_vec()).unwrap();
    let (thread, cpu) = text.rsplit_once(' ').unwrap();
    (thread.to_owned(), cpu.parse().unwrap())
}

#[test]
fn a_connection_is_served_by_one_pool_on_its_cpus_and_all_pools_have_some() {
    let cpus = cpus();
    if cpus.len() < 2 {
        println!("skipped: there is one CPU, and so one pool");
        return;
    }
    let fixture = start(ServerOptions {
        pools: cpus.len(),
        pool_cpus: cpus.iter().map(|cpu| vec![*cpu]).collect(),
        seats_per_pool: 2,
        ..options()
    });
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| fixture.connect()).collect();
    let mut connections_of: BTreeMap<String, usize> = BTreeMap::new();
    let mut cpus_of: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for client in &mut clients {
        // Some that let others have the seat, so that workers change.
        let calls: Vec<u8> = (0..CALLS)
            .flat_map(|n| marked(&record(n, if n % 10 == 9 { b'z' } else { b'c' }, b"")))
            .collect();
        client.stream.write_all(&calls).unwrap();
        let replies = client.receive_many(CALLS as usize);
        let servers: Vec<(String, usize)> = replies
            .iter()
            .filter(|(number, _)| **number % 10 != 9)
            .map(|(_, body)| server_of(body))
            .collect();
        assert!(!servers.is_empty());
        let pool = servers[0].0.clone();
        for (thread, cpu) in servers {
            assert_eq!(thread, pool, "a connection has changed its pool");
            cpus_of.entry(thread).or_default().insert(cpu);
        }
        *connections_of.entry(pool).or_default() += 1;
    }
    // The kernel spreads connections by a hash of their ports: all 64 in one pool is no chance.
    assert_eq!(connections_of.len(), cpus.len(), "{connections_of:?}");
    for (index, cpu) in cpus.iter().enumerate() {
        let pool = format!("worker-{index}");
        assert_eq!(cpus_of.get(&pool), Some(&BTreeSet::from([*cpu])), "of {pool}");
    }
    assert!(fixture.server.shutdown(PATIENCE));
}
