//! Protocols and sockets: what is lost above the interfaces.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use steadfast_sys::netlink::TcpState;

use super::super::facts::Facts;
use super::{CALLS_AGAIN_MAX, Count, Found, PACKETS_LOST_MAX, Row, Severity, Share, View, percent};

/// Peers that are named.
const PEERS_MAX: usize = 5;
/// The port of NFS.
const NFS_PORT: u16 = 2049;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "tcp-retransmissions",
        title: "TCP sends segments again",
        threshold: "> 0.06 % of the segments, without those that the other end had; warning over 0.42 %",
        source: "Legato (000), Retransmissions; RFC 2883",
        action: "the findings on interfaces and queues say where; `ss -ti` shows the connections",
        gain: "0.2 s and more for each segment that only a timer sends again",
        settings: &[],
        check: tcp,
    },
    Row {
        id: "peer-loss",
        title: "packets to or from an NFS client or server are lost",
        threshold: "> 0.42 % of a peer's segments sent again, and not for nothing, or out of order",
        source: "Legato (000), Retransmissions; tcp_info; RFC 2883",
        action: "look at the peer's interface and at the way to it: `mtr`, the counters of its switch's port",
        gain: "this peer's calls without waits for TCP's timer",
        settings: &[],
        check: peers,
    },
    Row {
        id: "udp-receive-drops",
        title: "datagrams are dropped: a socket's buffer is full",
        threshold: "> 0.06 % of the datagrams; critical over 0.42 %",
        source: "Legato (000), Retransmissions; udp(7)",
        action: "`steadfast tune net.core.rmem_max net.core.rmem_default`, restart what uses the socket, and mount by TCP; \
                 of the kernel's server the finding nfsd-socket-drops says what to do",
        gain: "no calls that are sent again after 0.7 s and more",
        settings: &["net.core.rmem_max", "net.core.rmem_default"],
        check: udp_received,
    },
    Row {
        id: "udp-send-drops",
        title: "datagrams are not sent: a socket's buffer is full",
        threshold: "> 0.06 % of the datagrams",
        source: "Legato (000), Retransmissions; udp(7)",
        action: "`steadfast tune net.core.wmem_max`, restart what uses the socket, and mount by TCP",
        gain: "no replies that are lost",
        settings: &["net.core.wmem_max"],
        check: udp_sent,
    },
    Row {
        id: "nfs-socket-drops",
        title: "the server's socket for datagrams loses calls",
        threshold: "any drop at port 2049 between the looks; an advice if since the start",
        source: "Legato (000): overloaded servers drop packets for want of buffers",
        action: "`steadfast tune net.core.rmem_max net.core.rmem_default`, restart the server, and mount by TCP",
        gain: "no calls that are sent again",
        settings: &["net.core.rmem_max", "net.core.rmem_default"],
        check: |view| if has_nfsd(view) { Vec::new() } else { nfs_socket(view) },
    },
    // The kernel sets the size of the buffer by itself (Linux, svc_sock_setbufsize): no setting changes it.
    Row {
        id: "nfsd-socket-drops",
        title: "the kernel's server has no room for datagrams",
        threshold: "any drop at port 2049 between the looks; an advice if since the start",
        source: "kernel, net/sunrpc/svcsock.c: room for two calls a thread, each as large as max_block_size allows",
        action: "more threads (`rpc.nfsd N`), or a larger max_block_size before it is started, and mount by TCP",
        gain: "no calls that are sent again",
        settings: &[],
        check: |view| if has_nfsd(view) { nfs_socket(view) } else { Vec::new() },
    },
    Row {
        id: "fragments-lost",
        title: "datagrams in pieces are not complete",
        threshold: "> 0.06 % of the pieces",
        source: "Legato (000): an 8 KB read is 7 packets, of which none may be lost",
        action: "mount by TCP, or with a smaller rsize and wsize; `steadfast tune net.ipv4.ipfrag_high_thresh`",
        gain: "one lost packet costs one packet",
        settings: &["net.ipv4.ipfrag_high_thresh"],
        check: fragments,
    },
    Row {
        id: "listen-overflows",
        title: "connections are refused: nobody accepts them in time",
        threshold: "any between the looks; an advice if > 0.06 % of the connections since the start",
        source: "SGI (001), mount storms: 2000 mounts at once; listen(2)",
        action: "`steadfast tune net.core.somaxconn net.ipv4.tcp_max_syn_backlog`, and restart the server",
        gain: "mounts that need no second try after 1 s, 3 s, 7 s",
        settings: &["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"],
        check: listening,
    },
    Row {
        id: "tcp-memory",
        title: "TCP has no memory for what comes",
        threshold: "any segment pruned, or memory pressure, between the looks",
        source: "SGI (001), tcp_rmem; kernel documentation, networking/ip-sysctl, tcp_mem",
        action: "`steadfast tune net.ipv4.tcp_rmem`; raise net.ipv4.tcp_mem where many connections share it",
        gain: "no segments that were received and are sent again",
        settings: &["net.ipv4.tcp_rmem"],
        check: tcp_memory,
    },
];

fn tcp(view: &View<'_>) -> Vec<Found> {
    // What the other end had already was not lost on the way there: on a busy machine acknowledgements come late.
    let again = view.protocol("Tcp.RetransSegs").without(view.protocol("TcpExt.TCPDSACKRecv"));
    let Some(share) = Share::of(again, view.protocol("Tcp.OutSegs"), 1000) else {
        return Vec::new();
    };
    let ratio = share.ratio();
    // Of long ago only what would be felt: connections to far places have their losses.
    let limit = if share.is_now { PACKETS_LOST_MAX } else { CALLS_AGAIN_MAX };
    if share.part < 2 || ratio <= limit {
        return Vec::new();
    }
    let severity = if ratio > CALLS_AGAIN_MAX { Severity::Warning } else { Severity::Advice };
    let evidence = share.text(view, "segments were sent again");
    vec![Found::new(share.severity(severity), "", ratio, limit, evidence)]
}

fn peers(view: &View<'_>) -> Vec<Found> {
    let mut by_peer: BTreeMap<(IpAddr, bool), [Count; 4]> = BTreeMap::new();
    // There may be 100,000.
    let before: HashMap<(SocketAddr, SocketAddr), &TcpState> =
        view.before.nfs_tcp.iter().map(|one| ((one.local, one.peer), one)).collect();
    for after in &view.after.nfs_tcp {
        let before = before.get(&(after.local, after.peer)).copied();
        let count = |of: fn(&TcpState) -> u64| Count::of(before.map_or(0, of), of(after));
        // Who has the port of NFS is the server.
        let is_client = after.local.port() == NFS_PORT;
        let sums = by_peer.entry((after.peer.ip(), is_client)).or_default();
        let counts = [
            count(|one| one.retransmitted).without(count(|one| one.needless)),
            count(|one| one.sent),
            count(|one| one.out_of_order),
            count(|one| one.received),
        ];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = sum.and(count);
        }
    }
    let mut found: Vec<Found> = by_peer
        .into_iter()
        .filter_map(|((peer, is_client), [again, sent, out_of_order, received])| {
            let sent = Share::of(again, sent, 200);
            let came = Share::of(out_of_order, received, 200);
            let by_ratio = |one: &Share, other: &Share| one.ratio().total_cmp(&other.ratio());
            let worse = sent.into_iter().chain(came).max_by(by_ratio)?;
            (worse.part >= 2 && worse.ratio() > CALLS_AGAIN_MAX).then(|| {
                let parts = [(sent, "segments were sent again"), (came, "came out of order")];
                let parts =
                    parts.iter().filter_map(|(share, what)| Some(share.as_ref()?.text(view, what)));
                let evidence = format!(
                    "{} {peer}: {}",
                    if is_client { "client" } else { "server" },
                    parts.collect::<Vec<_>>().join(" and ")
                );
                let severity = worse.severity(Severity::Warning);
                Found::new(severity, &peer.to_string(), worse.ratio(), CALLS_AGAIN_MAX, evidence)
            })
        })
        .collect();
    found.sort_by(|one, other| other.measured.total_cmp(&one.measured));
    found.truncate(PEERS_MAX);
    found
}

/// A finding if more than Legato's part of something is lost.
fn lost(view: &View<'_>, part: Count, whole: Count, what: &str) -> Vec<Found> {
    let Some(share) = Share::of(part, whole.and(part), 100) else { return Vec::new() };
    if share.ratio() <= PACKETS_LOST_MAX {
        return Vec::new();
    }
    let is_bad = share.ratio() > CALLS_AGAIN_MAX;
    let severity = share.severity(if is_bad { Severity::Critical } else { Severity::Warning });
    vec![Found::new(severity, "", share.ratio(), PACKETS_LOST_MAX, share.text(view, what))]
}

fn udp_received(view: &View<'_>) -> Vec<Found> {
    let dropped = view.protocol("Udp.RcvbufErrors").and(view.protocol("Udp6RcvbufErrors"));
    let came = view.protocol("Udp.InDatagrams").and(view.protocol("Udp6InDatagrams"));
    // What the kernel's server takes is not among these.
    let of = |facts: &Facts| facts.nfsd.as_ref().map_or(0, |nfsd| nfsd.udp_packets);
    let came = came.and(Count::of(of(view.before), of(view.after)));
    lost(view, dropped, came, "datagrams found the buffer full")
}

/// Whether port 2049 is the kernel's.
fn has_nfsd(view: &View<'_>) -> bool {
    view.after.nfsd.as_ref().is_some_and(|nfsd| nfsd.threads > 0)
}

fn udp_sent(view: &View<'_>) -> Vec<Found> {
    let dropped = view.protocol("Udp.SndbufErrors").and(view.protocol("Udp6SndbufErrors"));
    let sent = view.protocol("Udp.OutDatagrams").and(view.protocol("Udp6OutDatagrams"));
    lost(view, dropped, sent, "datagrams were not sent")
}

fn nfs_socket(view: &View<'_>) -> Vec<Found> {
    let of = |after: &super::super::parse::network::UdpSocket| {
        let before = view.before.nfs_udp.iter().find(|one| one.inode == after.inode);
        let drops = Count::of(before.map_or(0, |one| one.drops), after.drops);
        if drops.ever == 0 {
            return None;
        }
        let is_now = drops.now > 0 && before.is_some();
        let severity = if is_now { Severity::Warning } else { Severity::Advice };
        let evidence = if is_now {
            format!("{} datagrams were dropped {}", drops.now, view.interval())
        } else {
            format!("{} datagrams were dropped since the socket was made", drops.ever)
        };
        Some(Found::new(severity, "port 2049", drops.now.max(1) as f64, 0.0, evidence))
    };
    view.after.nfs_udp.iter().filter_map(of).collect()
}

fn fragments(view: &View<'_>) -> Vec<Found> {
    let failed = view.protocol("Ip.ReasmFails").and(view.protocol("Ip6ReasmFails"));
    let came = view.protocol("Ip.ReasmReqds").and(view.protocol("Ip6ReasmReqds"));
    let Some(share) = Share::of(failed, came, 100) else { return Vec::new() };
    if share.ratio() <= PACKETS_LOST_MAX {
        return Vec::new();
    }
    let severity = share.severity(Severity::Warning);
    let evidence = share.text(view, "pieces were of datagrams that were given up");
    vec![Found::new(severity, "", share.ratio(), PACKETS_LOST_MAX, evidence)]
}

fn listening(view: &View<'_>) -> Vec<Found> {
    let drops = view.protocol("TcpExt.ListenDrops");
    let accepted = view.protocol("Tcp.PassiveOpens").ever;
    let part = drops.ever as f64 / accepted.saturating_add(drops.ever).max(1) as f64;
    if drops.now == 0 && part <= PACKETS_LOST_MAX {
        return Vec::new();
    }
    let (severity, count, when) = if drops.now > 0 {
        (Severity::Warning, drops.now, view.interval())
    } else {
        (Severity::Advice, drops.ever, format!("since the start ({})", percent(part)))
    };
    let evidence = format!("{count} connections were dropped before they were accepted {when}");
    vec![Found::new(severity, "", count as f64, 0.0, evidence)]
}

fn tcp_memory(view: &View<'_>) -> Vec<Found> {
    let names = [
        "TcpExt.PruneCalled",
        "TcpExt.RcvPruned",
        "TcpExt.TCPRcvQDrop",
        "TcpExt.TCPMemoryPressures",
    ];
    let all: Vec<(&str, u64)> = names
        .iter()
        .map(|name| (*name, view.protocol(name).now))
        .filter(|(_, count)| *count > 0)
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let sum: u64 =
        all.iter().map(|(_, count)| count).fold(0, |sum: u64, one| sum.saturating_add(*one));
    let each: Vec<String> = all.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let received = view.protocol("Tcp.InSegs").now.max(1);
    let evidence = format!(
        "{} {} ({} of the segments)",
        each.join(", "),
        view.interval(),
        percent(sum as f64 / received as f64)
    );
    vec![Found::new(Severity::Warning, "", sum as f64, 0.0, evidence)]
}
