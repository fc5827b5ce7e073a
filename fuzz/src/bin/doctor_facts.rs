//! What `steadfast doctor` reads: the first byte says which text, or which message of netlink, the rest is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_observe::doctor::facts::{Disk, Facts, Interface, MountFacts, Pressures};
use steadfast_observe::doctor::judge;
use steadfast_observe::doctor::parse::{host, mountstats, network, rpc, system};
use steadfast_observe::tune::Record;
use steadfast_sys::netlink;

/// Two looks at a machine of which the texts are all that is known: they are judged, too.
fn judged(fill: impl FnOnce(&mut Facts)) {
    let mut facts = Facts { uptime_s: 5.0, ..Facts::default() };
    fill(&mut facts);
    let nothing = Facts::default();
    for (before, after) in [(&nothing, &facts), (&facts, &nothing), (&facts, &facts)] {
        let report = judge(before, after, &[]);
        assert!(report.exit_status() <= 3);
        assert!(!report.text().is_empty());
        for finding in &report.findings {
            assert!(!finding.evidence.is_empty());
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((which, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match which % 16 {
        0 => judged(|facts| facts.nfsd = Some(rpc::nfsd(&text))),
        1 => judged(|facts| facts.client = Some(rpc::client(&text))),
        2 => {
            let mounts = mountstats::mountstats(&text);
            for mount in &mounts {
                assert!(text.contains(&mount.mount_point) && mount.timer_s() > 0.0);
                let again = mount.since(mount).total();
                assert_eq!((again.operations, again.response_ms), (0, 0));
            }
            let facts = |counters| MountFacts { counters, ahead_s: None };
            judged(|all| all.mounts = mounts.into_iter().map(facts).collect());
        }
        3 => judged(|facts| {
            facts.protocols = network::paired(&text);
            facts.protocols.extend(network::single(&text));
        }),
        4 => judged(|facts| facts.softnet = network::softnet(&text)),
        5 => judged(|facts| {
            let interface =
                |counters| Interface { counters, speed_mbit: Some(1000), ..Interface::default() };
            facts.interfaces = network::interfaces(&text).into_iter().map(interface).collect();
        }),
        6 => judged(|facts| facts.nfs_udp = network::udp_sockets(&text)),
        7 => judged(|facts| {
            facts.networks = network::local_networks(&text);
            facts.neighbours = network::neighbours(&text);
            facts.neighbour_table_full = network::neighbour_table_full(&text);
            facts.nfsd_queue = Some(network::pool_stats(&text));
        }),
        8 => judged(|facts| facts.cpus = system::stat(&text)),
        9 => judged(|facts| {
            let one = system::pressure(&text);
            facts.pressure = Some(Pressures { cpu: one, io: one, memory: one });
        }),
        10 => judged(|facts| {
            let disk = |counters| Disk { counters, is_rotational: true };
            facts.disks = system::disks(&text).into_iter().map(disk).collect();
        }),
        11 => judged(|facts| facts.memory = system::named_numbers(&text)),
        12 => {
            let resolver = host::resolver(&text);
            assert!(resolver.servers.len() <= 3 && (1..=30).contains(&resolver.timeout_s));
            let _ = host::asks_dns(&text);
            judged(|facts| facts.exported = host::exported(&text));
        }
        13 => {
            let _ = host::mounted(&text, "8:1");
        }
        14 => judged(|facts| {
            facts.nfs_tcp = netlink::read_connection(rest).into_iter().collect();
            let _ = netlink::read_queue(rest);
        }),
        _ => {
            if let Ok(record) = Record::read(rest) {
                let written = serde_json::to_vec(&record).expect("JSON");
                assert_eq!(Record::read(&written).expect("read"), record);
            }
        }
    }
});
