//! What the descriptors that the process may have are for.

use std::io;

use steadfast_catalog::configuration::ServerSettings;
use steadfast_posixfs::StorageOptions;
use steadfast_runtime::ServerOptions;
use steadfast_sys::scheduling;

use crate::error::StartError;

/// Of a share that a client uses: its directory, its mount, its root, and its store of handles or what
/// flushes its file system.
const DESCRIPTORS_A_SHARE: usize = 4;
/// The part of all descriptors that shares have at the most. Of thousands few are in use at once;
/// should they be, those for whom there is none are told to come again.
const SHARES_PART: usize = 4;
/// Of a seat: its epoll descriptor and what wakes it.
const DESCRIPTORS_A_SEAT: usize = 2;
/// Logs, locks, mounts that shares cross into, and the like.
const OTHER_DESCRIPTORS: usize = 256;

/// What needs descriptors beside files and connections.
#[derive(Debug)]
pub(crate) struct Uses {
    /// Shares at the start.
    pub(crate) shares: usize,
    /// Addresses that are listened on.
    pub(crate) addresses: usize,
    /// Each pool has a listener for each address.
    pub(crate) seats_by_pool: Vec<usize>,
    /// With UDP each seat has a socket for each address.
    pub(crate) udp: bool,
}

impl Uses {
    /// Of so many that the process may have.
    fn count(&self, total: usize) -> usize {
        let seats: usize = self.seats_by_pool.iter().sum();
        let datagram_sockets = if self.udp { seats * self.addresses } else { 0 };
        let listeners = self.seats_by_pool.len() * self.addresses;
        (self.shares * DESCRIPTORS_A_SHARE).min(total / SHARES_PART)
            + seats * DESCRIPTORS_A_SEAT
            + datagram_sockets
            + listeners
            + OTHER_DESCRIPTORS
    }
}

/// The seats of each pool, as the runtime makes them of these options.
pub(crate) fn seats_by_pool(options: &ServerOptions) -> io::Result<Vec<usize>> {
    let nodes: Vec<usize> = scheduling::numa_nodes()?.iter().map(Vec::len).collect();
    Ok(seats_of_machine(options, &nodes))
}

/// As [`seats_by_pool`], for a machine whose NUMA nodes have these numbers of CPUs.
fn seats_of_machine(options: &ServerOptions, nodes: &[usize]) -> Vec<usize> {
    let pools = match (options.pools, options.pool_cpus.len()) {
        (0, 0) => nodes.len(),
        (0, configured) => configured,
        (pools, _) => pools,
    };
    let all = nodes.iter().sum();
    let cpus = |pool: usize| match options.pool_cpus.get(pool) {
        Some(cpus) if !cpus.is_empty() => cpus.len(),
        _ if pools == nodes.len() => nodes.get(pool).copied().unwrap_or(all),
        _ => all,
    };
    let seats = |pool| match options.seats_per_pool {
        0 => cpus(pool).max(1),
        seats => seats,
    };
    (0..pools).map(seats).collect()
}

/// How many descriptors are for files, and how many connections there may be: together with the
/// other uses within what the process may have.
pub(crate) fn budgets(
    settings: &ServerSettings,
    descriptors_max: u64,
    uses: &Uses,
) -> Result<(usize, usize), StartError> {
    let total = usize::try_from(descriptors_max).unwrap_or(usize::MAX);
    let others = uses.count(total);
    let available = total.saturating_sub(others);
    let files = settings
        .descriptors_max
        .unwrap_or_else(|| StorageOptions::default().descriptors_max.min(available / 2));
    let rest = available.saturating_sub(files);
    let connections = settings
        .connections_max
        .unwrap_or_else(|| ServerOptions::default().connections_max.min(rest));
    if files > available || connections > rest || connections == 0 {
        return Err(StartError::Configuration(format!(
            "the process may have {total} descriptors, too few for descriptors_max = {files} and \
             connections_max = {connections} beside {others} for shares and sockets: lower \
             these, or raise the limit (LimitNOFILE= in the unit, ulimit -n in a shell)"
        )));
    }
    Ok((files, connections))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 descriptors for sockets and seats, beside those of shares and the 256 for the rest.
    fn uses(shares: usize) -> Uses {
        Uses { shares, addresses: 2, seats_by_pool: vec![2], udp: true }
    }

    #[test]
    fn files_and_connections_share_the_descriptors() {
        let settings = ServerSettings::default();
        let budgets =
            |settings, limit| budgets(settings, limit, &uses(0)).map_err(|e| e.to_string());
        assert_eq!(budgets(&settings, 1 << 20), Ok((16_384, 65_536)));
        assert_eq!(budgets(&settings, 4096 + 10), Ok((1920, 1920)));
        assert!(budgets(&settings, 64).is_err());
        let greedy = ServerSettings { descriptors_max: Some(4000), ..ServerSettings::default() };
        assert!(budgets(&greedy, 4096).is_err());
        let many = ServerSettings { connections_max: Some(100_000), ..ServerSettings::default() };
        assert!(budgets(&many, 65_536).is_err());
    }

    #[test]
    fn shares_and_sockets_have_theirs_first() {
        let settings = ServerSettings::default();
        assert_eq!(uses(0).count(8192), 256 + 4 + 4 + 2);
        assert_eq!(uses(100).count(8192), 256 + 4 + 4 + 2 + 400);
        assert_eq!(Uses { udp: false, ..uses(0) }.count(8192), 256 + 4 + 2);
        let (files, connections) = budgets(&settings, 8192, &uses(400)).expect("enough");
        assert!(files + connections + 1600 <= 8192, "{files} and {connections}");
        // Thousands are not in use at once.
        let (files, connections) = budgets(&settings, 8192, &uses(100_000)).expect("enough");
        assert!(files + connections + 2048 <= 8192, "{files} and {connections}");
        let error = budgets(&settings, 300, &uses(1000)).expect_err("too few").to_string();
        assert!(error.contains("beside 341 for shares and sockets"), "{error}");
    }

    #[test]
    fn seats_are_counted_as_the_runtime_makes_them() {
        let seats = |pools, pool_cpus: &[&[usize]], seats_per_pool| {
            let pool_cpus = pool_cpus.iter().map(|cpus| cpus.to_vec()).collect();
            let default = ServerOptions::default();
            seats_of_machine(
                &ServerOptions { pools, pool_cpus, seats_per_pool, ..default },
                &[4, 2],
            )
        };
        assert_eq!(seats(0, &[], 0), [4, 2]);
        assert_eq!(seats(1, &[], 0), [6]);
        assert_eq!(seats(3, &[&[0]], 0), [1, 6, 6]);
        assert_eq!(seats(0, &[&[0, 1, 2]], 0), [3]);
        assert_eq!(seats(2, &[], 8), [8, 8]);
    }
}
