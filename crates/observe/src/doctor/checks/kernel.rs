//! Settings of the kernel, the clock, neighbours, and name services.

use super::{Count, Found, Row, Severity, View};
use crate::tune::{SettingState, SettingStatus};

/// A look-up that takes longer is felt by whoever opens a file.
const NAME_SERVER_S: f64 = 0.1;
/// Each mount then waits for a second and more.
const NAME_SERVER_SLOW_S: f64 = 1.0;
/// A clock that may be so far off is as good as none, in seconds.
const CLOCK_ERROR_S: f64 = 1.0;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "kernel-settings",
        title: "settings of the kernel are worse than they could be",
        threshold: "any setting of `steadfast tune` is worse than proposed for this machine",
        source: "SGI (001), Tunings, and what came since: `steadfast tune --list` names it for each",
        action: "`steadfast tune --all --dry-run` tells what would be changed, `steadfast tune --all` changes it",
        gain: "what `steadfast tune --list` says for each",
        settings: &[],
        check: settings,
    },
    Row {
        id: "bbr-without-fq",
        title: "bbr runs without fq",
        threshold: "tcp_congestion_control is bbr, and a device's queue, or the default one, is not fq",
        source: "kernel, net/ipv4/tcp_bbr.c; docs/performance.md: bbr halves what loopback carries",
        action: "`steadfast tune net.core.default_qdisc` and `tc qdisc replace dev IFACE root fq`; or cubic",
        gain: "CPU time of a timer for each connection; the pace that bbr means",
        settings: &["net.core.default_qdisc"],
        check: bbr,
    },
    Row {
        id: "neighbour-table",
        title: "the table of neighbours is full",
        threshold: "it was full between the looks (an advice if since the start), or is used to 80 %",
        source: "SGI (001): the table was full at 1024 clients",
        action: "`steadfast tune net.ipv4.neigh.default.gc_thresh1 net.ipv4.neigh.default.gc_thresh2 \
                 net.ipv4.neigh.default.gc_thresh3`",
        gain: "clients that are reached",
        settings: &[
            "net.ipv4.neigh.default.gc_thresh1",
            "net.ipv4.neigh.default.gc_thresh2",
            "net.ipv4.neigh.default.gc_thresh3",
        ],
        check: neighbours,
    },
    Row {
        id: "arp-shared-network",
        title: "two interfaces in one network answer for each other",
        threshold: "two interfaces with one network, and arp_ignore is 0",
        source: "SGI (001), arp_ignore and arp_announce",
        action: "`steadfast tune net.ipv4.conf.all.arp_ignore net.ipv4.conf.all.arp_announce`, or bond them",
        gain: "streams that stay on their interface",
        settings: &["net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce"],
        check: shared_network,
    },
    Row {
        id: "clock-unsynchronised",
        title: "nobody keeps this machine's clock right",
        threshold: "the kernel's clock is not synchronised, or may be off by > 1 s",
        source: "adjtimex(2); Kerberos refuses 5 min, make(1) is confused by 1 s",
        action: "run a time service: chrony, or `timedatectl set-ntp true`",
        gain: "times of files that clients and server agree on",
        settings: &[],
        check: clock,
    },
    Row {
        id: "name-server-dead",
        title: "a name server does not answer",
        threshold: "no answer within 2 s; critical if none answers",
        source: "Sun (003): a dead name server costs 20 s a look-up; resolv.conf(5)",
        action: "take it out of /etc/resolv.conf, or set `options timeout:1 attempts:1`; names of clients in /etc/hosts",
        gain: "the time-out for each look-up",
        settings: &[],
        check: dead,
    },
    Row {
        id: "name-server-slow",
        title: "a name server answers slowly",
        threshold: "≥ 0.1 s; warning from 1 s on",
        source: "Sun (003), name services",
        action: "use a nearer one, or a cache on this machine (systemd-resolved, unbound)",
        gain: "this time for each look-up",
        settings: &[],
        check: slow,
    },
];

fn settings(view: &View<'_>) -> Vec<Found> {
    let worse: Vec<&SettingState> =
        view.after.settings.iter().filter(|one| one.status == SettingStatus::Worse).collect();
    if worse.is_empty() {
        return Vec::new();
    }
    let one_line = |text: &Option<String>| {
        text.as_deref().unwrap_or("?").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let each: Vec<String> = worse
        .iter()
        .map(|one| {
            format!("{} is {}, better {}", one.key, one_line(&one.present), one_line(&one.proposed))
        })
        .collect();
    let evidence = each.join("; ");
    vec![Found::new(Severity::Advice, "", worse.len() as f64, 0.0, evidence)]
}

fn bbr(view: &View<'_>) -> Vec<Found> {
    if view.after.congestion_control != "bbr" {
        return Vec::new();
    }
    let is_device = |name: &str| {
        view.after.interfaces.iter().any(|one| one.counters.name == name && one.is_device)
    };
    // A device with many queues (`mq`) has one of the wanted kind in each.
    let others: Vec<String> = view
        .after
        .queues
        .iter()
        .filter(|queue| is_device(&queue.interface) && !matches!(queue.kind.as_str(), "fq" | "mq"))
        .map(|queue| format!("{} has {}", queue.interface, queue.kind))
        .collect();
    // A network of a container's has no default of its own.
    if others.is_empty() && matches!(view.after.default_queue.as_str(), "fq" | "") {
        return Vec::new();
    }
    let mut others = others;
    others.sort();
    others.dedup();
    let found = if others.is_empty() {
        format!("new interfaces get {}", view.after.default_queue)
    } else {
        others.join(", ")
    };
    vec![Found::new(
        Severity::Advice,
        "",
        1.0,
        0.0,
        format!("tcp_congestion_control is bbr; {found}"),
    )]
}

fn neighbours(view: &View<'_>) -> Vec<Found> {
    let full = Count::of(view.before.neighbour_table_full, view.after.neighbour_table_full);
    if full.now > 0 {
        let evidence = format!("it was full {} times {}", full.now, view.interval());
        return vec![Found::new(Severity::Critical, "", full.now as f64, 0.0, evidence)];
    }
    if full.ever > 0 {
        let evidence = format!("it was full {} times since the start", full.ever);
        return vec![Found::new(Severity::Advice, "", full.ever as f64, 0.0, evidence)];
    }
    let most =
        view.after.settings.iter().find(|one| one.key == "net.ipv4.neigh.default.gc_thresh3");
    let most = most.and_then(|one| one.present.as_ref()?.parse::<u64>().ok());
    let Some(most) = most.filter(|most| *most > 0) else { return Vec::new() };
    let used = view.after.neighbours as f64 / most as f64;
    if used < 0.8 {
        return Vec::new();
    }
    let evidence = format!("{} of {most} neighbours", view.after.neighbours);
    vec![Found::new(Severity::Warning, "", used, 0.8, evidence)]
}

fn shared_network(view: &View<'_>) -> Vec<Found> {
    let is_ignored =
        view.after.settings.iter().any(|one| {
            one.key == "net.ipv4.conf.all.arp_ignore" && one.status == SettingStatus::Good
        });
    let networks = &view.after.networks;
    let pair = networks.iter().enumerate().find_map(|(index, one)| {
        let mut others = networks.iter().skip(index + 1);
        let other = others.find(|other| {
            other.network == one.network
                && other.mask == one.mask
                && other.interface != one.interface
        })?;
        Some((one, other))
    });
    let Some((one, other)) = pair.filter(|_| !is_ignored) else { return Vec::new() };
    let evidence = format!("{} and {} are in one network", one.interface, other.interface);
    vec![Found::new(Severity::Advice, &one.interface, 1.0, 0.0, evidence)]
}

fn clock(view: &View<'_>) -> Vec<Found> {
    let Some(clock) = view.after.clock else { return Vec::new() };
    if clock.is_synchronised && clock.error_s <= CLOCK_ERROR_S {
        return Vec::new();
    }
    let evidence = if clock.is_synchronised {
        format!("it may be off by {:.1} s", clock.error_s)
    } else {
        "the kernel's clock is not synchronised".to_owned()
    };
    vec![Found::new(Severity::Advice, "", clock.error_s, CLOCK_ERROR_S, evidence)]
}

fn dead(view: &View<'_>) -> Vec<Found> {
    let servers = &view.after.name_servers;
    let is_any_alive = servers.iter().any(|server| server.answered_s.is_some());
    let severity = if is_any_alive { Severity::Warning } else { Severity::Critical };
    servers
        .iter()
        .filter(|server| server.answered_s.is_none())
        .map(|server| {
            if let Some(why) = &server.refusal {
                let subject = server.address.ip().to_string();
                let evidence = format!(
                    "{subject} cannot be asked: {why}; a look-up asks the next one at once"
                );
                return Found::new(severity, &subject, server.waited_s, 2.0, evidence);
            }
            let evidence = format!(
                "{} said nothing within {:.0} s; a look-up waits up to {} s for it",
                server.address.ip(),
                server.waited_s,
                server.timeout_s
            );
            let subject = server.address.ip().to_string();
            Found::new(severity, &subject, server.waited_s, server.waited_s, evidence)
        })
        .collect()
}

fn slow(view: &View<'_>) -> Vec<Found> {
    let of = |server: &super::super::facts::NameServer| {
        let took_s = server.answered_s.filter(|took_s| *took_s >= NAME_SERVER_S)?;
        let severity =
            if took_s >= NAME_SERVER_SLOW_S { Severity::Warning } else { Severity::Advice };
        let subject = server.address.ip().to_string();
        let evidence = format!("{subject} answered after {took_s:.2} s");
        Some(Found::new(severity, &subject, took_s, NAME_SERVER_S, evidence))
    };
    view.after.name_servers.iter().filter_map(of).collect()
}
