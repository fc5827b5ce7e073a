//! The server on this machine: the kernel's by its counters, a Steadfast server by its documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;

use steadfast_control::statistics::Statistics;

use super::super::facts::{Facts, Steadfast};
use super::super::parse::rpc::Nfsd;
use super::{CALLS_AGAIN_MAX, Count, Found, Row, Severity, Share, View, bytes, percent};

/// Calls of the flight recorder that say something about who calls.
const RECORDED_LEAST: usize = 500;
/// Calls a second under which nobody waits for anybody.
const CALLS_A_SECOND: f64 = 100.0;
/// A client with more than this part of the calls, of three or more clients, loads the server alone.
const ONE_SIDED: f64 = 0.6;
/// Findings of one kind that are named one by one.
const NAMED_MAX: usize = 10;
/// Smaller READs and WRITEs are those of clients with a small rsize or wsize, or of databases.
const CALL_BYTES: u64 = 2048;
/// Fewer READs or WRITEs say nothing about their size.
const SMALL_CALLS_LEAST: u64 = 1000;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "nfsd-threads",
        title: "calls wait for a thread of the kernel's server",
        threshold: "no thread was woken for > 10 % of what came, and none was idle in > 10 % of the looks between",
        source: "kernel documentation, filesystems/nfs/knfsd-stats; kernel, net/sunrpc/svc.c",
        action: "more threads: `rpc.nfsd N` (twice as many), and `threads=` in /etc/nfs.conf",
        gain: "the wait, as long as CPUs are idle",
        settings: &[],
        check: threads,
    },
    Row {
        id: "duplicate-calls",
        title: "clients send calls again to the kernel's server",
        threshold: "> 0.42 % of the calls were duplicates",
        source: "Legato (000), Retransmissions",
        action: "find the client (finding peer-loss names one); then what makes the server slow or loses packets",
        gain: "the work for calls that were done already",
        settings: &[],
        check: duplicates,
    },
    Row {
        id: "repeated-calls",
        title: "clients send changing calls to the Steadfast server again",
        threshold: "> 0.42 % of the calls had come before (of those that change something, by NFSv2, 3 and 4.0)",
        source: "Legato (000), Retransmissions; the server's duplicate request cache",
        action: "look at the clients' `steadfast doctor`: their network, their timer; finding peer-loss names one",
        gain: "the work for calls that were done already",
        settings: &[],
        check: repeated,
    },
    Row {
        id: "bad-calls",
        title: "calls are rejected before they are executed",
        threshold: "> 1 % of the calls, and ≥ 10",
        source: "RFC 5531 §9: bad credentials, unknown programs",
        action: "look for clients with a wrong security flavour or version; `nfsstat -s` tells the kind",
        gain: "clients that can work",
        settings: &[],
        check: bad_calls,
    },
    Row {
        id: "stale-handles",
        title: "clients come with handles that are stale",
        threshold: "≥ 10 between the looks, or ≥ 1 % of the calls",
        source: "RFC 1813 §2.6, NFS3ERR_STALE",
        action: "clients mount again; give file systems a fixed `fsid=` before they are moved",
        gain: "programs that work",
        settings: &[],
        check: stale,
    },
    Row {
        id: "export-async",
        title: "the server acknowledges changes that it can lose",
        threshold: "async of an export of the kernel's server",
        source: "exports(5); Legato (000), \"dangerous mode\"; SGI (001): a data loss risk",
        action: "export with `sync`; Steadfast's log makes that about as fast",
        gain: "no data is lost when the server stops",
        settings: &[],
        check: |view| export(view, "async", Severity::Warning),
    },
    Row {
        id: "export-subtree-check",
        title: "the server looks up the parents of each file",
        threshold: "subtree_check of an export of the kernel's server",
        source: "SGI (001): no_subtree_check saved up to 10 % of the CPU",
        action: "export with `no_subtree_check` where the export is a whole file system",
        gain: "up to 10 % of the CPU",
        settings: &[],
        check: |view| export(view, "subtree_check", Severity::Advice),
    },
    Row {
        id: "reply-cache-full",
        title: "the duplicate request cache is full",
        threshold: "replies left it before they were old, between the looks; an advice if since the start",
        source: "SGI (001): 1024 entries were exhausted at 930 calls/s",
        action: "raise `reply_cache_bytes_max` of the configuration, or slow down the client that changes most \
                 (`steadfast statistics --recent 1024`)",
        gain: "no change is executed twice when a client sends it again",
        settings: &[],
        check: reply_cache,
    },
    Row {
        id: "told-later",
        title: "the server tells clients to try later",
        threshold: "any between the looks",
        source: "docs/nfsv4.md; ARCHITECTURE.md, blocked workers",
        action: "its log names the share whose disk hangs",
        gain: "seconds for each such call",
        settings: &[],
        check: told_later,
    },
    Row {
        id: "refused-connections",
        title: "the server refuses connections",
        threshold: "any between the looks; an advice if since the start",
        source: "SGI (001), mount storms",
        action: "raise the limit on descriptors (`LimitNOFILE=` of the service)",
        gain: "clients that can mount",
        settings: &[],
        check: refused,
    },
    Row {
        id: "faulty-share",
        title: "a share is not served",
        threshold: "any share in the state faulty",
        source: "docs/shares.md",
        action: "`steadfast share show PATH` says why",
        gain: "clients that can work",
        settings: &[],
        check: faulty_shares,
    },
    Row {
        id: "one-sided-load",
        title: "one client makes most of the load",
        threshold: "> 60 % of the recorded calls, of three or more clients, at ≥ 100 calls/s",
        source: "Legato (000), Network Load: identify the clients with the heaviest load",
        action: "look at what it does (`steadfast statistics --recent 100`); a local disk for files of its own helps all",
        gain: "the server for the others",
        settings: &[],
        check: one_sided,
    },
    Row {
        id: "doubled-names",
        title: "two clients call themselves the same",
        threshold: "one name of an NFSv4 client from two addresses",
        source: "RFC 8881 §2.4; kernel documentation, filesystems/nfs/client-identifier",
        action: "give each its own: `nfs4_unique_id` of the module nfs, or its own host name",
        gain: "clients that do not end each other's opens and locks",
        settings: &[],
        check: doubled_names,
    },
    Row {
        id: "small-calls",
        title: "clients read or write in small pieces",
        threshold: "mean READ or WRITE < 2 KiB over ≥ 1000 calls",
        source: "Legato (000), PC-NFS: 512-byte writes cost up to 48 disk writes for 8 KiB",
        action: "look for clients with a small rsize or wsize: `grep rsize /proc/mounts` there",
        gain: "as many calls fewer as the pieces are smaller",
        settings: &[],
        check: small_calls,
    },
    Row {
        id: "names-failing",
        title: "names of clients or users cannot be looked up",
        threshold: "any name that rules need and no service tells",
        source: "Sun (003): a dead name server cost 20 s a look-up",
        action: "look at the name services (`getent hosts NAME`, `getent netgroup NAME`)",
        gain: "clients that get what their rules give them, at once",
        settings: &[],
        check: names,
    },
];

fn threads(view: &View<'_>) -> Vec<Found> {
    let (Some(before), Some(after)) = (view.before.nfsd_queue, view.after.nfsd_queue) else {
        return Vec::new();
    };
    let share = Share::of(Count::of(before.1, after.1), Count::of(before.0, after.0), 1000);
    let Some(share) = share.filter(|share| share.ratio() > 0.1) else { return Vec::new() };
    // A thread that was woken and waits for a CPU is still the first of the idle ones: Linux 6.12 does not count it as
    // woken for what comes then. On a busy CPU the counters alone tell of too few threads however many there are.
    let seen: Vec<bool> = view.samples.iter().filter_map(|sample| sample.has_idle_nfsd).collect();
    let without = seen.iter().filter(|has_idle| !**has_idle).count();
    if !seen.is_empty() && without as f64 / seen.len() as f64 <= 0.1 {
        return Vec::new();
    }
    let threads = view.after.nfsd.as_ref().map_or(0, |nfsd| nfsd.threads);
    let mut evidence = share.text(view, "woke no thread");
    if !seen.is_empty() {
        let _ = write!(evidence, ", and none was idle in {without} of {} looks", seen.len());
    }
    let _ = write!(evidence, "; there are {threads} threads");
    vec![Found::new(share.severity(Severity::Warning), "knfsd", share.ratio(), 0.1, evidence)]
}

fn duplicates(view: &View<'_>) -> Vec<Found> {
    let Some(after) = &view.after.nfsd else { return Vec::new() };
    let before = view.before.nfsd.clone().unwrap_or_default();
    let hits = Count::of(before.duplicates, after.duplicates);
    // A server that is slow enough for calls to be sent again answers few.
    let Some(share) = Share::of(hits, Count::of(before.calls, after.calls), 100) else {
        return Vec::new();
    };
    if share.part < 2 || share.ratio() <= CALLS_AGAIN_MAX {
        return Vec::new();
    }
    let evidence = share.text(view, "calls were duplicates");
    let severity = share.severity(Severity::Warning);
    vec![Found::new(severity, "knfsd", share.ratio(), CALLS_AGAIN_MAX, evidence)]
}

fn bad_calls(view: &View<'_>) -> Vec<Found> {
    let Some(after) = &view.after.nfsd else { return Vec::new() };
    let before = view.before.nfsd.clone().unwrap_or_default();
    let bad = Count::of(before.bad_calls, after.bad_calls);
    let Some(share) = Share::of(bad, Count::of(before.calls, after.calls), 100) else {
        return Vec::new();
    };
    if share.part < 10 || share.ratio() <= 0.01 {
        return Vec::new();
    }
    let evidence = share.text(view, "calls were rejected");
    vec![Found::new(share.severity(Severity::Warning), "knfsd", share.ratio(), 0.01, evidence)]
}

fn stale(view: &View<'_>) -> Vec<Found> {
    let Some(after) = &view.after.nfsd else { return Vec::new() };
    let before = view.before.nfsd.clone().unwrap_or_default();
    let stale = Count::of(before.stale_handles, after.stale_handles);
    let calls = Count::of(before.calls, after.calls);
    let is_now = stale.now >= 10;
    let ratio = stale.ever as f64 / calls.ever.max(1) as f64;
    if !is_now && (stale.ever < 10 || ratio < 0.01) {
        return Vec::new();
    }
    let (count, when) = if is_now {
        (stale.now, view.interval())
    } else {
        (stale.ever, format!("since the start ({} of the calls)", percent(ratio)))
    };
    let severity = if is_now { Severity::Warning } else { Severity::Advice };
    vec![Found::new(severity, "knfsd", count as f64, 10.0, format!("{count} stale handles {when}"))]
}

fn export(view: &View<'_>, word: &str, severity: Severity) -> Vec<Found> {
    let exported = view.after.exported.iter().filter(|one| one.has(word)).take(NAMED_MAX);
    exported
        .map(|one| {
            let evidence = format!("{} for {}: {word}", one.path, one.client);
            Found::new(severity, &one.path, 1.0, 0.0, evidence)
        })
        .collect()
}

/// The Steadfast server's documents of both looks; the first is empty for a server that is new.
fn steadfast<'a>(view: &View<'a>) -> Option<(Statistics, &'a Steadfast)> {
    let after = view.after.steadfast.as_ref()?;
    let before = view.before.steadfast.as_ref();
    let is_same = |one: &&Steadfast| {
        one.statistics.started_unix_ms == after.statistics.started_unix_ms
            && one.statistics.process == after.statistics.process
    };
    Some((before.filter(is_same).map(|one| one.statistics.clone()).unwrap_or_default(), after))
}

/// A counter of the server's.
fn counted(view: &View<'_>, name: &str) -> Option<Count> {
    let (before, after) = steadfast(view)?;
    let of = |statistics: &Statistics| statistics.server.get(name).copied().unwrap_or(0);
    Some(Count::of(of(&before), of(&after.statistics)))
}

/// A finding if a counter that should stand still does not.
fn risen(view: &View<'_>, name: &str, what: &str, keeps: bool) -> Vec<Found> {
    let Some(count) = counted(view, name) else { return Vec::new() };
    if count.now > 0 {
        let evidence = format!("{} {what} {}", count.now, view.interval());
        return vec![Found::new(Severity::Warning, "Steadfast", count.now as f64, 0.0, evidence)];
    }
    if keeps && count.ever > 0 {
        let evidence = format!("{} {what} since the server was started", count.ever);
        return vec![Found::new(Severity::Advice, "Steadfast", count.ever as f64, 0.0, evidence)];
    }
    Vec::new()
}

fn reply_cache(view: &View<'_>) -> Vec<Found> {
    risen(view, "replies_evicted_young", "replies were dropped too early", true)
}

fn told_later(view: &View<'_>) -> Vec<Found> {
    risen(view, "told_later", "calls could not wait for their disk", false)
}

fn refused(view: &View<'_>) -> Vec<Found> {
    risen(view, "refused", "connections were refused", true)
}

fn faulty_shares(view: &View<'_>) -> Vec<Found> {
    let Some(server) = &view.after.steadfast else { return Vec::new() };
    let shares = server.faulty_shares.iter().take(NAMED_MAX);
    shares
        .map(|(path, why)| Found::new(Severity::Critical, path, 1.0, 0.0, format!("{path}: {why}")))
        .collect()
}

/// The address of a caller.
fn caller(client: &str) -> String {
    client.parse::<SocketAddr>().map_or_else(|_| client.to_owned(), |one| one.ip().to_string())
}

fn one_sided(view: &View<'_>) -> Vec<Found> {
    let Some((before, after)) = steadfast(view) else { return Vec::new() };
    let calls = |statistics: &Statistics| statistics.server.get("calls").copied().unwrap_or(0);
    let now = Count::of(calls(&before), calls(&after.statistics)).now;
    let recent = &after.statistics.recent;
    if recent.len() < RECORDED_LEAST || (now as f64) < CALLS_A_SECOND * view.seconds() {
        return Vec::new();
    }
    let mut by_client: BTreeMap<String, usize> = BTreeMap::new();
    for call in recent {
        *by_client.entry(caller(&call.client)).or_default() += 1;
    }
    let clients = by_client.len();
    let Some((client, count)) = by_client.into_iter().max_by_key(|(_, count)| *count) else {
        return Vec::new();
    };
    let part = count as f64 / recent.len() as f64;
    if clients < 3 || part <= ONE_SIDED {
        return Vec::new();
    }
    let evidence = format!(
        "{client} made {count} of the last {} calls ({}), of {clients} clients",
        recent.len(),
        percent(part)
    );
    vec![Found::new(Severity::Advice, &client, part, ONE_SIDED, evidence)]
}

fn repeated(view: &View<'_>) -> Vec<Found> {
    let (Some(again), Some(calls)) = (counted(view, "duplicate_calls"), counted(view, "calls"))
    else {
        return Vec::new();
    };
    let Some(share) = Share::of(again, calls, 100) else { return Vec::new() };
    if share.part < 2 || share.ratio() <= CALLS_AGAIN_MAX {
        return Vec::new();
    }
    let evidence = share.text(view, "calls had come before");
    let severity = share.severity(Severity::Warning);
    vec![Found::new(severity, "Steadfast", share.ratio(), CALLS_AGAIN_MAX, evidence)]
}

fn doubled_names(view: &View<'_>) -> Vec<Found> {
    let clients = |facts: &Facts| -> Vec<(String, String)> {
        let report = facts.steadfast.as_ref().and_then(|server| server.clients.clone());
        let v4 = report.unwrap_or_default().clients.into_iter();
        v4.filter(|client| client.protocol.starts_with("NFSv4"))
            .map(|client| (client.name, caller(&client.address)))
            .collect()
    };
    let mut addresses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, address) in clients(view.before).into_iter().chain(clients(view.after)) {
        addresses.entry(name).or_default().insert(address);
    }
    addresses
        .into_iter()
        .filter(|(name, addresses)| addresses.len() > 1 && !name.is_empty())
        .take(NAMED_MAX)
        .map(|(name, addresses)| {
            let count = addresses.len() as f64;
            let list: Vec<String> = addresses.into_iter().take(NAMED_MAX).collect();
            let evidence = format!("{name:?} comes from {}", list.join(", "));
            Found::new(Severity::Warning, &name, count, 1.0, evidence)
        })
        .collect()
}

fn small_calls(view: &View<'_>) -> Vec<Found> {
    let mut found = kernels_small_calls(view);
    found.extend(steadfasts_small_calls(view));
    found
}

/// The kernel's server counts bytes and calls apart.
fn kernels_small_calls(view: &View<'_>) -> Vec<Found> {
    let Some(after) = &view.after.nfsd else { return Vec::new() };
    let before = view.before.nfsd.clone().unwrap_or_default();
    let calls = |nfsd: &Nfsd, name: &str| {
        let all = nfsd.operations.iter().filter(|one| one.name == name);
        all.map(|one| one.count).fold(0, u64::saturating_add)
    };
    let of = |name: &str, sum: Count| {
        let calls = Count::of(calls(&before, name), calls(after, name)).now;
        let mean = sum.now.checked_div(calls)?;
        // Counters of bytes that stand still are those of a server that does not keep them.
        (calls >= SMALL_CALLS_LEAST && sum.now > 0 && mean < CALL_BYTES).then(|| {
            let name = name.to_ascii_uppercase();
            let evidence =
                format!("knfsd: {calls} {name}s of {} each {}", bytes(mean), view.interval());
            Found::new(Severity::Advice, &name, mean as f64, CALL_BYTES as f64, evidence)
        })
    };
    [
        of("read", Count::of(before.read_bytes, after.read_bytes)),
        of("write", Count::of(before.written_bytes, after.written_bytes)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn steadfasts_small_calls(view: &View<'_>) -> Vec<Found> {
    let Some((before, after)) = steadfast(view) else { return Vec::new() };
    let between = after.statistics.since(&before);
    let of = |name: &str, bytes_of: fn(&steadfast_control::statistics::Operation) -> u64| {
        let all = between.operations.iter().filter(|one| one.protocol == "nfs" && one.name == name);
        let (calls, sum) = all.fold((0_u64, 0_u64), |(calls, sum), one| {
            (calls.saturating_add(one.calls), sum.saturating_add(bytes_of(one)))
        });
        let mean = sum.checked_div(calls)?;
        (calls >= SMALL_CALLS_LEAST && mean < CALL_BYTES).then(|| {
            let evidence = format!("{calls} {name}s of {} each {}", bytes(mean), view.interval());
            Found::new(Severity::Advice, name, mean as f64, CALL_BYTES as f64, evidence)
        })
    };
    [of("READ", |one| one.bytes_out), of("WRITE", |one| one.bytes_in)]
        .into_iter()
        .flatten()
        .collect()
}

fn names(view: &View<'_>) -> Vec<Found> {
    let Some(server) = &view.after.steadfast else { return Vec::new() };
    let names = server.failed_names.iter().take(NAMED_MAX);
    names
        .map(|(name, why)| Found::new(Severity::Warning, name, 1.0, 0.0, format!("{name}: {why}")))
        .collect()
}
