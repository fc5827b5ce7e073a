//! Counters of the network: protocols, interfaces, queues and sockets.

use super::{Counters, lines, number_or_zero};

/// `/proc/net/snmp` and `/proc/net/netstat`: pairs of lines, names and values. `Tcp.RetransSegs` and so on.
/// What is negative is a setting, not a count, and left out.
pub fn paired(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut names: Option<(&str, &str)> = None;
    for line in lines(text) {
        let Some((prefix, rest)) = line.split_once(':') else { continue };
        match names.take() {
            Some((named, fields)) if named == prefix => {
                for (name, value) in fields.split_whitespace().zip(rest.split_whitespace()) {
                    if let Ok(value) = value.parse() {
                        counters.insert(format!("{prefix}.{name}"), value);
                    }
                }
            }
            _ => names = Some((prefix, rest)),
        }
    }
    counters
}

/// `/proc/net/snmp6`: a name and a value a line.
pub fn single(text: &str) -> Counters {
    lines(text)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// The queue of received packets of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets.
    pub processed: u64,
    /// Packets that were dropped because the queue was full (`netdev_max_backlog`).
    pub dropped: u64,
    /// Times that the CPU stopped with packets left (`netdev_budget`).
    pub squeezed: u64,
}

/// Reads `/proc/net/softnet_stat`: hexadecimal columns, a CPU a line.
pub fn softnet(text: &str) -> Vec<Softnet> {
    let read = |line: &str| {
        let mut words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16));
        Some(Softnet {
            processed: words.next()?.ok()?,
            dropped: words.next()?.ok()?,
            squeezed: words.next()?.ok()?,
        })
    };
    lines(text).filter_map(read).collect()
}

/// What an interface has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received: u64,
    /// Packets received damaged.
    pub receive_errors: u64,
    /// Packets dropped in the interface or its driver for want of room (`fifo`).
    pub receive_overruns: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that could not be sent.
    pub send_errors: u64,
    /// Packets that were dropped before they were sent.
    pub send_dropped: u64,
    /// Times that the carrier was lost while sending.
    pub carrier_errors: u64,
}

/// Reads `/proc/net/dev`. Its column of dropped packets is left out: it counts packets of protocols that
/// nobody speaks here, too.
pub fn interfaces(text: &str) -> Vec<InterfaceCounters> {
    let read = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let values: Vec<u64> =
            rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let at = |index: usize| values.get(index).copied();
        Some(InterfaceCounters {
            name: name.trim().to_owned(),
            received_bytes: at(0)?,
            received: at(1)?,
            receive_errors: at(2)?,
            receive_overruns: at(4)?,
            sent_bytes: at(8)?,
            sent: at(9)?,
            send_errors: at(10)?,
            send_dropped: at(11)?,
            carrier_errors: at(14)?,
        })
    };
    lines(text).filter_map(read).collect()
}

/// A socket for datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpSocket {
    /// Its port.
    pub port: u16,
    /// Bytes that wait in it.
    pub waiting_bytes: u64,
    /// Its number in the file system of sockets.
    pub inode: u64,
    /// Datagrams that it had no room for.
    pub drops: u64,
}

/// Reads `/proc/net/udp` and `/proc/net/udp6`.
pub fn udp_sockets(text: &str) -> Vec<UdpSocket> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = words.get(1)?.rsplit_once(':')?;
        let (_, waiting) = words.get(4)?.split_once(':')?;
        Some(UdpSocket {
            port: u16::from_str_radix(port, 16).ok()?,
            waiting_bytes: u64::from_str_radix(waiting, 16).ok()?,
            inode: words.get(9)?.parse().ok()?,
            drops: words.get(12)?.parse().ok()?,
        })
    };
    lines(text).filter_map(read).collect()
}

/// A network that an interface is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalNetwork {
    /// The interface.
    pub interface: String,
    /// The network's address, as the kernel writes it.
    pub network: String,
    /// Its mask.
    pub mask: String,
}

/// Reads `/proc/net/route`: networks that are reached without a gateway.
pub fn local_networks(text: &str) -> Vec<LocalNetwork> {
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (interface, network) = (words.first()?, words.get(1)?);
        let (gateway, mask) = (words.get(2)?, words.get(7)?);
        let is_local = *gateway == "00000000" && *network != "00000000" && *mask != "00000000";
        is_local.then(|| LocalNetwork {
            interface: (*interface).to_owned(),
            network: (*network).to_owned(),
            mask: (*mask).to_owned(),
        })
    };
    lines(text).skip(1).filter_map(read).collect()
}

/// Neighbours in `/proc/net/arp`.
pub fn neighbours(text: &str) -> u64 {
    lines(text).skip(1).filter(|line| !line.trim().is_empty()).count() as u64
}

/// Reads `/proc/net/stat/arp_cache`: how often its table was full, over all CPUs.
pub fn neighbour_table_full(text: &str) -> u64 {
    let mut all = lines(text);
    let column = all
        .next()
        .and_then(|names| names.split_whitespace().position(|name| name == "table_fulls"));
    let Some(column) = column else { return 0 };
    let full = |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    all.filter_map(full).fold(0, u64::saturating_add)
}

/// Reads the counters of `/proc/fs/nfsd/pool_stats`: how often a connection had something for a thread, and how often
/// none was idle then.
///
/// Kernels before 3.19 put only those in the queue that found no idle thread. Later ones put each in the queue, and
/// then wake a thread if one is idle (Linux, `net/sunrpc/svc_xprt.c`, `svc_xprt_enqueue`).
pub fn pool_stats(text: &str) -> (u64, u64) {
    let (mut arrived, mut queued, mut woken) = (0_u64, 0_u64, 0_u64);
    for line in lines(text).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace().skip(1);
        for sum in [&mut arrived, &mut queued, &mut woken] {
            *sum = sum.saturating_add(number_or_zero(&mut words));
        }
    }
    if arrived >= queued.saturating_add(woken) {
        return (arrived, queued);
    }
    (queued, queued.saturating_sub(woken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_read() {
        let text = "Tcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 7\nUdp: InDatagrams RcvbufErrors\nUdp: 39 2\n\
                    Odd: a b\nUdp: 1 2\n";
        let counters = paired(text);
        assert_eq!(counters.get("Tcp.RetransSegs"), Some(&7));
        assert_eq!(counters.get("Udp.RcvbufErrors"), Some(&2));
        assert_eq!(counters.get("Tcp.MaxConn"), None);
        assert_eq!(single("Udp6RcvbufErrors \t 4\nodd\n").get("Udp6RcvbufErrors"), Some(&4));
    }

    #[test]
    fn queues_and_interfaces_are_read() {
        let text = "00000f19 00000002 00000001 00000000\nx\n";
        assert_eq!(softnet(text), [Softnet { processed: 0xf19, dropped: 2, squeezed: 1 }]);
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n\
                    eth0: 98569927 3859 1 2 3 0 0 0 205276 2004 4 5 0 0 6 0\n";
        let [eth0] = &interfaces(text)[..] else { panic!("one") };
        assert_eq!((eth0.received, eth0.receive_errors, eth0.receive_overruns), (3859, 1, 3));
        assert_eq!((eth0.send_errors, eth0.send_dropped, eth0.carrier_errors), (4, 5, 6));
    }

    #[test]
    fn sockets_are_read() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops\n\
                    123: 00000000:0801 00000000:0000 07 00000000:00000A00 00:00000000 00000000 0 0 4711 2 0000 17\n";
        let wanted = UdpSocket { port: 2049, waiting_bytes: 2560, inode: 4711, drops: 17 };
        assert_eq!(udp_sockets(text), [wanted]);
    }

    #[test]
    fn neighbours_and_networks_are_read() {
        let text = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU\n\
                    eth0 00000000 0100000A 0003 0 0 0 00000000 0\n\
                    eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0\n";
        let networks = local_networks(text);
        assert_eq!(networks.len(), 1);
        assert_eq!(networks[0].network, "0000000A");
        assert_eq!(neighbours("IP address HW type\n10.0.0.1 0x1\n10.0.0.2 0x1\n"), 2);
        let text =
            "entries allocs table_fulls\n00000002 00000003 0000000a\n00000002 00000003 00000001\n";
        assert_eq!(neighbour_table_full(text), 11);
        assert_eq!(neighbour_table_full("entries\n1\n"), 0);
        let head = "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n";
        let stats = |lines: &str| pool_stats(&format!("{head}{lines}"));
        // Linux 2.6 to 3.18, to 6.2, and since then: records and looks at connections are counted apart.
        assert_eq!(stats("0 100 20 80 0\n1 50 5 45 0\n"), (150, 25));
        assert_eq!(stats("0 100 100 80 0\n1 50 50 45 0\n"), (150, 25));
        assert_eq!(stats("0 100 130 110 0\n1 50 60 55 0\n"), (190, 25));
        assert_eq!(stats(""), (0, 0));
    }
}
