//! Interfaces: errors, drops, load.

use super::super::facts::Interface;
use super::{Count, Found, PACKETS_LOST_MAX, Row, Severity, Share, View, percent};

/// Continuous load from which delays are noticed, and load of bursts (Legato, "Network Load").
const LOAD: f64 = 0.4;
const BURST: f64 = 0.6;
/// Packets in the interval that measure something.
const PACKETS_LEAST: u64 = 1000;
/// A quick look's interval that measures a burst, in seconds.
const BURST_S: f64 = 0.499;
/// Slower links are of another time.
const SPEED_MBIT: u64 = 1000;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "interface-errors",
        title: "an interface damages or loses packets",
        threshold: "> 0.06 % of its packets",
        source: "Legato (000), Retransmissions: 0.42 % of the calls ÷ 7 packets",
        action: "replace cable and transceiver, then the port; `ethtool -S IFACE` names the kind of error",
        gain: "no calls that are sent again",
        settings: &[],
        check: errors,
    },
    Row {
        id: "interface-overruns",
        title: "an interface has no room for what comes",
        threshold: "> 0.06 % of the received packets missed or overrun",
        source: "Legato (000), too few Ethernet buffers; SGI (001), interrupt coalescing",
        action: "enlarge the ring: `ethtool -g IFACE` tells the largest, `ethtool -G IFACE rx N` sets it; about 20 \
                 frames an interrupt: `ethtool -C IFACE rx-frames 20`",
        gain: "no calls that are sent again after a burst",
        settings: &[],
        check: overruns,
    },
    Row {
        id: "interface-half-duplex",
        title: "an interface sends or receives, not both",
        threshold: "duplex is half",
        source: "ethtool(8); Legato (000), fairness of Ethernet",
        action: "let both ends negotiate: `ethtool -s IFACE autoneg on`, and the same at the switch",
        gain: "no collisions, and twice the speed",
        settings: &[],
        check: half_duplex,
    },
    Row {
        id: "interface-carrier",
        title: "an interface loses its carrier",
        threshold: "a device: any change between the looks; an advice at > 10 a day since the start",
        source: "kernel documentation, ABI/testing/sysfs-class-net",
        action: "replace cable and transceiver; look at the switch's port",
        gain: "no outages of seconds",
        settings: &[],
        check: carrier,
    },
    Row {
        id: "interface-slow",
        title: "a device is slower than it should be",
        threshold: "< 1000 Mbit/s",
        source: "SGI (001): gigabit Ethernet was sufficient",
        action: "look for a bad cable (four wires give 100 Mbit/s), and at the switch's port",
        gain: "up to ten times the speed",
        settings: &[],
        check: slow,
    },
    Row {
        id: "queue-drops",
        title: "an interface's queue drops packets before they are sent",
        threshold: "> 0.06 % of the sent packets",
        source: "Legato (000), Retransmissions; tc(8)",
        action: "`tc -s qdisc show dev IFACE` tells which queue; take a shaper away, or lengthen the queue",
        gain: "no calls that are sent again",
        settings: &["net.core.default_qdisc"],
        check: queue_drops,
    },
    Row {
        id: "softnet-drops",
        title: "CPUs drop packets that came",
        threshold: "> 0.06 % of the packets",
        source: "Legato (000): a server dropped packets for want of buffers; kernel documentation, networking/scaling",
        action: "`steadfast tune net.core.netdev_max_backlog`; spread packets over CPUs (RSS, RPS)",
        gain: "no calls that are sent again after a burst",
        settings: &["net.core.netdev_max_backlog"],
        check: softnet_drops,
    },
    Row {
        id: "softnet-squeezed",
        title: "CPUs stop taking packets with packets left",
        threshold: "≥ 1 time a second, and ≥ 1 in 1000 packets",
        source: "kernel documentation, admin-guide/sysctl/net, netdev_budget",
        action: "`steadfast tune net.core.netdev_budget`; about 20 frames an interrupt: `ethtool -C`",
        gain: "shorter waits under load",
        settings: &["net.core.netdev_budget"],
        check: squeezed,
    },
    Row {
        id: "network-load",
        title: "a link is loaded",
        threshold: "a device: ≥ 40 % of its speed in one direction; warning from 60 % on",
        source: "Legato (000), Network Load: 40 % continuously is noticed",
        action: "find the heaviest clients (finding one-sided-load), give them a local disk for files of their own, or use a \
                 faster link or two",
        gain: "no waits for the link",
        settings: &[],
        check: load,
    },
    Row {
        id: "network-bursts",
        title: "bursts fill a link",
        threshold: "a device: ≥ 60 % of its speed within half a second, and < 40 % in the mean",
        source: "Legato (000), Network Load: bursts over 60 % are noticed",
        action: "find the client (finding one-sided-load); a queue such as fq shares the link between clients",
        gain: "others do not wait for the burst",
        settings: &["net.core.default_qdisc"],
        check: bursts,
    },
];

fn severity_of(share: Share) -> Severity {
    share.severity(if share.ratio() > 10.0 * PACKETS_LOST_MAX {
        Severity::Critical
    } else {
        Severity::Warning
    })
}

/// A finding for each interface that loses more than Legato's part.
fn lost(
    view: &View<'_>,
    what: &str,
    count: impl Fn(&Interface) -> u64,
    all: impl Fn(&Interface) -> u64,
) -> Vec<Found> {
    let of = |(before, after): (Interface, &Interface)| {
        let part = Count::of(count(&before), count(after));
        let share = Share::of(part, Count::of(all(&before), all(after)), PACKETS_LEAST)?;
        let is_found = share.ratio() > PACKETS_LOST_MAX;
        is_found.then(|| {
            let evidence = share.text(view, what);
            let name = &after.counters.name;
            Found::new(severity_of(share), name, share.ratio(), PACKETS_LOST_MAX, evidence)
        })
    };
    view.interfaces().filter_map(of).collect()
}

fn packets(interface: &Interface) -> u64 {
    interface.counters.received.saturating_add(interface.counters.sent)
}

fn errors(view: &View<'_>) -> Vec<Found> {
    let errors = |one: &Interface| {
        let counters = &one.counters;
        // Overruns are a finding of their own, and drivers count them as errors, too.
        counters
            .receive_errors
            .saturating_sub(one.missed.max(counters.receive_overruns))
            .saturating_add(counters.send_errors)
            .saturating_add(counters.carrier_errors)
    };
    lost(view, "packets were damaged or not sent", errors, packets)
}

fn overruns(view: &View<'_>) -> Vec<Found> {
    let overruns = |one: &Interface| one.missed.max(one.counters.receive_overruns);
    let all = |one: &Interface| one.counters.received.saturating_add(one.missed);
    lost(view, "packets found no room", overruns, all)
}

fn half_duplex(view: &View<'_>) -> Vec<Found> {
    let half = view.after.interfaces.iter().filter(|one| one.is_half_duplex);
    half.map(|one| {
        let name = &one.counters.name;
        Found::new(Severity::Warning, name, 1.0, 0.0, format!("{name} is at half duplex"))
    })
    .collect()
}

fn carrier(view: &View<'_>) -> Vec<Found> {
    let of = |(before, after): (Interface, &Interface)| {
        let changes = Count::of(before.carrier_changes, after.carrier_changes);
        let days = (view.after.uptime_s / 86_400.0).max(1.0);
        let a_day = changes.ever as f64 / days;
        // Bridges and ends of containers lose their carrier whenever a container ends.
        if !after.is_device {
            return None;
        }
        // An interface that is new has come up.
        let is_old = !before.counters.name.is_empty();
        let name = &after.counters.name;
        if is_old && changes.now > 0 {
            let evidence = format!("the carrier changed {} times {}", changes.now, view.interval());
            return Some(Found::new(Severity::Critical, name, changes.now as f64, 0.0, evidence));
        }
        (a_day > 10.0).then(|| {
            let evidence = format!("the carrier changed {} times since the start", changes.ever);
            Found::new(Severity::Advice, name, a_day, 10.0, evidence)
        })
    };
    view.interfaces().filter_map(of).collect()
}

fn slow(view: &View<'_>) -> Vec<Found> {
    let of = |one: &Interface| {
        let speed = one.speed_mbit.filter(|speed| one.is_device && *speed < SPEED_MBIT)?;
        let evidence = format!("{speed} Mbit/s");
        let name = &one.counters.name;
        Some(Found::new(Severity::Advice, name, speed as f64, SPEED_MBIT as f64, evidence))
    };
    view.after.interfaces.iter().filter_map(of).collect()
}

fn queue_drops(view: &View<'_>) -> Vec<Found> {
    let drops = |facts: &super::super::facts::Facts, name: &str| {
        let of = facts.queues.iter().filter(|queue| queue.interface == name);
        of.map(|queue| queue.drops).fold(0, u64::saturating_add)
    };
    let of = |(before, after): (Interface, &Interface)| {
        let name = &after.counters.name;
        let dropped = Count::of(drops(view.before, name), drops(view.after, name));
        let sent = Count::of(before.counters.sent, after.counters.sent).and(dropped);
        let share = Share::of(dropped, sent, PACKETS_LEAST)?;
        let kinds: Vec<&str> = view
            .after
            .queues
            .iter()
            .filter(|queue| queue.interface == *name && queue.drops > 0)
            .map(|queue| queue.kind.as_str())
            .collect();
        (share.ratio() > PACKETS_LOST_MAX).then(|| {
            let evidence =
                format!("{}, by {}", share.text(view, "packets were dropped"), kinds.join(", "));
            Found::new(severity_of(share), name, share.ratio(), PACKETS_LOST_MAX, evidence)
        })
    };
    view.interfaces().filter_map(of).collect()
}

/// Sums over all CPUs.
fn softnet(view: &View<'_>) -> (Count, Count, Count) {
    let sum = |facts: &super::super::facts::Facts| {
        facts.softnet.iter().fold((0_u64, 0_u64, 0_u64), |sum, one| {
            (
                sum.0.saturating_add(one.processed),
                sum.1.saturating_add(one.dropped),
                sum.2.saturating_add(one.squeezed),
            )
        })
    };
    let (before, after) = (sum(view.before), sum(view.after));
    (Count::of(before.0, after.0), Count::of(before.1, after.1), Count::of(before.2, after.2))
}

fn softnet_drops(view: &View<'_>) -> Vec<Found> {
    let (processed, dropped, _) = softnet(view);
    let Some(share) = Share::of(dropped, processed.and(dropped), PACKETS_LEAST) else {
        return Vec::new();
    };
    if share.ratio() <= PACKETS_LOST_MAX {
        return Vec::new();
    }
    let evidence = share.text(view, "packets were dropped");
    vec![Found::new(severity_of(share), "", share.ratio(), PACKETS_LOST_MAX, evidence)]
}

fn squeezed(view: &View<'_>) -> Vec<Found> {
    let (processed, _, squeezed) = softnet(view);
    let a_second = squeezed.now as f64 / view.seconds();
    let ratio = squeezed.now as f64 / processed.now.max(1) as f64;
    if a_second < 1.0 || ratio < 0.001 {
        return Vec::new();
    }
    let evidence =
        format!("{} times {}, over {} packets", squeezed.now, view.interval(), processed.now);
    vec![Found::new(Severity::Advice, "", a_second, 1.0, evidence)]
}

/// The part of an interface's speed that it used, in its busier direction.
fn used(received: u64, sent: u64, seconds: f64, speed_mbit: u64) -> f64 {
    received.max(sent) as f64 * 8.0 / seconds.max(0.001) / (speed_mbit as f64 * 1e6)
}

/// The load of the busiest link, if any tells its speed.
pub(super) fn highest_load(view: &View<'_>) -> Option<f64> {
    loads(view).map(|(_, load)| load).reduce(f64::max)
}

fn loads<'a>(view: &View<'a>) -> impl Iterator<Item = (&'a Interface, f64)> {
    let seconds = view.seconds();
    view.interfaces().filter_map(move |(before, after)| {
        let received = Count::of(before.counters.received_bytes, after.counters.received_bytes);
        let sent = Count::of(before.counters.sent_bytes, after.counters.sent_bytes);
        // A new one's counters are of a longer time than the interval.
        let is_known = before.counters.name == after.counters.name;
        // The speed of what is no device is invented: 10 Mbit/s for the end of a virtual machine.
        let speed = after.speed_mbit.filter(|_| is_known && after.is_device)?;
        Some((after, used(received.now, sent.now, seconds, speed)))
    })
}

fn load(view: &View<'_>) -> Vec<Found> {
    loads(view)
        .filter(|(_, load)| *load >= LOAD)
        .map(|(one, load)| {
            let severity = if load >= BURST { Severity::Warning } else { Severity::Advice };
            let evidence = format!(
                "{} of {} Mbit/s {}",
                percent(load),
                one.speed_mbit.unwrap_or(0),
                view.interval()
            );
            Found::new(severity, &one.counters.name, load, LOAD, evidence)
        })
        .collect()
}

fn bursts(view: &View<'_>) -> Vec<Found> {
    let of = |(one, mean): (&Interface, f64)| {
        let (name, speed) = (&one.counters.name, one.speed_mbit?);
        let carried: Vec<(f64, u64, u64)> = view
            .samples
            .iter()
            .filter_map(|sample| {
                let (_, received, sent) =
                    sample.carried.iter().find(|(found, ..)| found == name)?;
                Some((sample.uptime_s, *received, *sent))
            })
            .collect();
        // Each quick look with the first one that is half a second later.
        let peak = carried
            .iter()
            .enumerate()
            .filter_map(|(index, first)| {
                let mut later = carried.iter().skip(index);
                let second = later.find(|second| second.0 - first.0 >= BURST_S)?;
                let received = second.1.saturating_sub(first.1);
                let sent = second.2.saturating_sub(first.2);
                Some(used(received, sent, second.0 - first.0, speed))
            })
            .fold(0.0, f64::max);
        (mean < LOAD && peak >= BURST).then(|| {
            let evidence = format!(
                "{} of {speed} Mbit/s within half a second, {} in the mean",
                percent(peak),
                percent(mean)
            );
            Found::new(Severity::Advice, name, peak, BURST, evidence)
        })
    };
    loads(view).filter_map(of).collect()
}
