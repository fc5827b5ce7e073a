//! The lines that an administrator pastes on a client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

pub(crate) use steadfast_control::plain::quoted;
use steadfast_shares::{ClientPattern, Share};
use steadfast_sys::process;

/// Addresses told for a share; a machine with more has an administrator who knows them.
const ADDRESSES_MAX: usize = 8;
/// Networks of a share's clients to which the way is looked up; a share may have thousands.
const ROUTES_MAX: usize = 32;

/// Where clients of NFSv4 look for it.
pub(crate) const NFS_PORT: u16 = 2049;

/// How clients find our ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortLookup {
    /// By asking port 111.
    Rpcbind,
    /// By being told.
    Told,
}

/// What clients mount a server's shares by.
#[derive(Clone, Debug)]
pub(crate) struct MountBy {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) lookup: PortLookup,
    pub(crate) udp: bool,
    /// Whether NFSv4 is served, which clients take if they can.
    pub(crate) nfs4: bool,
}

impl MountBy {
    /// Of a server that does not serve yet.
    pub(crate) fn nowhere() -> Self {
        Self { listen: Vec::new(), lookup: PortLookup::Told, udp: false, nfs4: false }
    }

    /// The addresses that clients of a share may use, the likeliest first, by those that the machine has now.
    pub(crate) fn addresses(&self, share: &Share) -> Vec<SocketAddr> {
        addresses_for(share, &self.listen, &interfaces(), local_address_to)
    }

    /// The lines that mount these shares, by the addresses that the machine has now.
    pub(crate) fn lines<'s>(&self, shares: impl Iterator<Item = &'s Share>) -> Vec<String> {
        let interfaces = interfaces();
        let line = |share, address| {
            if self.nfs4 {
                return nfs4_line(share, address);
            }
            mount_line(share, address, self.lookup, self.udp)
        };
        shares
            .flat_map(|share| {
                let all = addresses_for(share, &self.listen, &interfaces, local_address_to);
                all.into_iter().map(move |address| line(share, address))
            })
            .collect()
    }
}

/// All addresses of interfaces that are up.
fn interfaces() -> Vec<IpAddr> {
    process::interface_addresses().unwrap_or_else(|error| {
        tracing::warn!("cannot find out this machine's addresses: {error}");
        Vec::new()
    })
}

/// The address by which this machine talks to another one. Nothing is sent.
fn local_address_to(peer: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, NFS_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Who the clients of a share are, as far as their addresses say.
struct Clients {
    /// Networks, but those that are all addresses of a kind.
    networks: Vec<(IpAddr, ClientPattern)>,
    /// Whether there are others, which may be anywhere: everybody, and names.
    has_others: bool,
}

impl Clients {
    fn of(share: &Share) -> Self {
        let mut clients = Self { networks: Vec::new(), has_others: false };
        for rule in share.rules.rules().iter().filter(|rule| !rule.grants.is_empty()) {
            match &rule.pattern {
                pattern @ ClientPattern::Network { network, prefix_bits } if *prefix_bits > 0 => {
                    clients.networks.push((*network, pattern.clone()));
                }
                _ => clients.has_others = true,
            }
        }
        clients
    }

    fn have(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|(_, pattern)| pattern.has_address(address))
    }

    /// The addresses by which this machine talks to them.
    fn ways(&self, way: impl Fn(IpAddr) -> Option<IpAddr>) -> Vec<IpAddr> {
        // The first address of a network may be no host's.
        let host = |network: IpAddr, pattern: &ClientPattern| {
            let next = match network {
                IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) | 1).into(),
                IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) | 1).into(),
            };
            if pattern.has_address(next) { next } else { network }
        };
        let networks = self.networks.iter().take(ROUTES_MAX);
        networks.filter_map(|(network, pattern)| way(host(*network, pattern))).collect()
    }
}

/// The addresses that the clients of a share may use: those within their networks, then those by which `way` leads to
/// them; and all others only if some clients may be anywhere, or there are none of these. `interfaces` are all that
/// are up.
fn addresses_for(
    share: &Share,
    listen: &[SocketAddr],
    interfaces: &[IpAddr],
    way: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Vec<SocketAddr> {
    let clients = Clients::of(share);
    let mut all = addresses(listen, interfaces);
    // A client at a loopback address is this machine itself. Without any other address there is no choice.
    let is_for = |address: &SocketAddr| !address.ip().is_loopback() || clients.have(address.ip());
    if all.iter().any(is_for) {
        all.retain(is_for);
    }
    let ways = clients.ways(way);
    let rank = |address: &SocketAddr| match address.ip() {
        ip if clients.have(ip) => 0,
        ip if ways.contains(&ip) => 1,
        _ => 2,
    };
    let is_near = |address: &SocketAddr| rank(address) < 2;
    if !clients.has_others && all.iter().any(is_near) {
        all.retain(is_near);
    }
    all.sort_by_key(|address| (address.ip().is_loopback(), rank(address), address.is_ipv6()));
    all.truncate(ADDRESSES_MAX);
    all
}

/// The addresses of this machine at which it listens, and that have the same meaning on other machines.
fn addresses(listen: &[SocketAddr], interfaces: &[IpAddr]) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in listen {
        if address.ip().is_unspecified() {
            let same_family = interfaces.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
            addresses.extend(same_family.map(|ip| SocketAddr::new(*ip, address.port())));
        } else {
            addresses.push(*address);
        }
    }
    let mut once = Vec::new();
    for address in addresses.into_iter().filter(|address| !is_link_local(address.ip())) {
        if !once.contains(&address) {
            once.push(address);
        }
    }
    once
}

/// A link-local address needs an interface's name of the client's.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// One line: mounts the share on /mnt by NFSv4, which needs no other port.
fn nfs4_line(share: &Share, server: SocketAddr) -> String {
    line(&nfs4_options(server.port()), share, server.ip())
}

/// One line: mounts the share on /mnt by NFSv3.
pub(crate) fn mount_line(
    share: &Share,
    server: SocketAddr,
    lookup: PortLookup,
    udp: bool,
) -> String {
    line(&nfs3_options(server.port(), server.is_ipv6(), lookup, udp), share, server.ip())
}

fn line(options: &[String], share: &Share, server: IpAddr) -> String {
    linux_line(options, &format!("{}:{}", host(server), share.path), "/mnt")
}

/// The command that mounts a device on a directory with these options.
pub(crate) fn linux_line(options: &[String], device: &str, at: &str) -> String {
    let options =
        if options.is_empty() { String::new() } else { format!("-o {} ", options.join(",")) };
    format!("mount -t nfs {options}{} {}", quoted(device), quoted(at))
}

/// An address as it stands before the colon of a device.
pub(crate) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The options of a client of NFSv4.
pub(crate) fn nfs4_options(port: u16) -> Vec<String> {
    if port == NFS_PORT { Vec::new() } else { vec![format!("port={port}")] }
}

/// The options of a client of NFSv3. It finds the lock manager (NLM) by port 111 alone: where it cannot ask
/// that, its locks are its own (`nolock`).
pub(crate) fn nfs3_options(port: u16, ipv6: bool, lookup: PortLookup, udp: bool) -> Vec<String> {
    let mut options = vec!["vers=3".to_owned()];
    if lookup == PortLookup::Told {
        options.extend(["nolock".to_owned(), format!("port={port}"), format!("mountport={port}")]);
    }
    // mount.nfs asks port 111 for all that it is not told, though it knows both ports.
    if !udp || lookup == PortLookup::Told {
        let protocol = if ipv6 { "tcp6" } else { "tcp" };
        options.extend([format!("proto={protocol}"), format!("mountproto={protocol}")]);
    }
    options
}

#[cfg(test)]
pub(crate) mod tests {
    use steadfast_shares::{ClientRule, Rights, RuleSet, ShareId};

    use super::*;

    pub(crate) fn share(path: &str) -> Share {
        Share {
            id: ShareId(1),
            path: path.into(),
            elsewhere: None,
            crosses_mounts: false,
            required_mounts: std::sync::Arc::default(),
            size: None,
            without_log: false,
            is_draining: false,
            rules: std::sync::Arc::default(),
        }
    }

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn nfs4_needs_no_options_at_its_port() {
        let line = |address| nfs4_line(&share("/a b"), socket(address));
        assert_eq!(line("10.0.0.1:2049"), "mount -t nfs '10.0.0.1:/a b' /mnt");
        assert_eq!(line("[fd00::1]:5000"), "mount -t nfs -o port=5000 '[fd00::1]:/a b' /mnt");
    }

    #[test]
    fn the_first_line_is_what_most_need() {
        let line = |address, lookup| mount_line(&share("/srv"), socket(address), lookup, true);
        assert_eq!(
            line("10.0.0.1:2049", PortLookup::Rpcbind),
            "mount -t nfs -o vers=3 10.0.0.1:/srv /mnt"
        );
        assert_eq!(
            line("10.0.0.1:5000", PortLookup::Told),
            "mount -t nfs -o vers=3,nolock,port=5000,mountport=5000,proto=tcp,mountproto=tcp \
             10.0.0.1:/srv /mnt"
        );
        assert_eq!(
            line("[fd00::1]:5000", PortLookup::Told),
            "mount -t nfs -o vers=3,nolock,port=5000,mountport=5000,proto=tcp6,mountproto=tcp6 \
             '[fd00::1]:/srv' /mnt"
        );
        assert_eq!(
            line("[fd00::1]:2049", PortLookup::Rpcbind),
            "mount -t nfs -o vers=3 '[fd00::1]:/srv' /mnt"
        );
    }

    #[test]
    fn without_udp_mount_is_told_so() {
        let line =
            |address| mount_line(&share("/srv"), socket(address), PortLookup::Rpcbind, false);
        assert_eq!(
            line("10.0.0.1:2049"),
            "mount -t nfs -o vers=3,proto=tcp,mountproto=tcp 10.0.0.1:/srv /mnt"
        );
        assert!(line("[fd00::1]:2049").contains("proto=tcp6,mountproto=tcp6"));
    }

    #[test]
    fn paths_are_quoted_for_the_shell() {
        let line =
            mount_line(&share("/it's here"), socket("10.0.0.1:2049"), PortLookup::Rpcbind, true);
        assert!(line.contains(r"'10.0.0.1:/it'\''s here'"), "{line}");
        let bad = share("/a'\u{1b}[31m\n\u{9b}\\");
        let line = mount_line(&bad, socket("10.0.0.1:2049"), PortLookup::Rpcbind, true);
        assert!(line.contains(r"$'10.0.0.1:/a\'\u001b[31m\u000a\u009b\\'"), "{line}");
    }

    /// A share for these clients.
    fn share_for(clients: &[&str]) -> Share {
        let rule = |client: &&str| ClientRule {
            pattern: client.parse().expect("a client"),
            grants: std::sync::Arc::new([Rights::default()]),
        };
        let rules: Vec<ClientRule> = clients.iter().map(rule).collect();
        Share { rules: std::sync::Arc::new(RuleSet::new(rules)), ..share("/srv") }
    }

    fn ips(all: &[&str]) -> Vec<IpAddr> {
        all.iter().map(|text| text.parse().expect("an address")).collect()
    }

    #[test]
    fn other_machines_get_addresses_that_they_can_reach() {
        let interfaces =
            ips(&["127.0.0.1", "::1", "fd00::1", "fe80::1", "10.0.0.1", "169.254.1.1"]);
        let listen = [socket("0.0.0.0:2049"), socket("[::]:2049")];
        let nowhere = |_| None;
        let everybody = share_for(&["*"]);
        let found = |interfaces: &[IpAddr]| addresses_for(&everybody, &listen, interfaces, nowhere);
        assert_eq!(found(&interfaces), [socket("10.0.0.1:2049"), socket("[fd00::1]:2049")]);
        assert_eq!(found(&interfaces[..1]), [socket("127.0.0.1:2049")]);
        let one = [socket("127.0.0.1:7")];
        assert_eq!(addresses_for(&everybody, &one, &interfaces, nowhere), one);
    }

    #[test]
    fn clients_get_the_addresses_within_their_networks() {
        let interfaces =
            ips(&["127.0.0.1", "::1", "fd00::1", "10.0.0.1", "198.51.100.1", "192.0.2.1"]);
        let listen = [socket("0.0.0.0:2049"), socket("[::]:2049")];
        // 203.0.113.0/24 and fd07::/16 are behind routers.
        let way = |peer: IpAddr| match peer.to_string().as_str() {
            "203.0.113.1" | "203.0.113.9" => "198.51.100.1".parse().ok(),
            "fd07::1" => "fd00::1".parse().ok(),
            _ => None,
        };
        for (clients, expected) in [
            (&["192.0.2.0/24"][..], &["192.0.2.1"][..]),
            (&["192.0.2.0/24", "10.0.0.0/8"], &["10.0.0.1", "192.0.2.1"]),
            (&["203.0.113.0/24"], &["198.51.100.1"]),
            (&["203.0.113.9"], &["198.51.100.1"]),
            (&["203.0.113.0/24", "192.0.2.0/24"], &["192.0.2.1", "198.51.100.1"]),
            (&["fd07::/16"], &["fd00::1"]),
            // Others may be anywhere.
            (&["192.0.2.0/24", "*.example"], &["192.0.2.1", "10.0.0.1", "198.51.100.1", "fd00::1"]),
            (&["fd00::/8", "*"], &["fd00::1", "10.0.0.1", "198.51.100.1", "192.0.2.1"]),
            (&["0.0.0.0/0"], &["10.0.0.1", "198.51.100.1", "192.0.2.1", "fd00::1"]),
            // Nobody knows the way.
            (&["172.16.0.0/12"], &["10.0.0.1", "198.51.100.1", "192.0.2.1", "fd00::1"]),
            // This machine itself.
            (&["127.0.0.0/8"], &["127.0.0.1"]),
            (&["127.0.0.1", "192.0.2.0/24"], &["192.0.2.1", "127.0.0.1"]),
            (&[], &["10.0.0.1", "198.51.100.1", "192.0.2.1", "fd00::1"]),
        ] {
            let found = addresses_for(&share_for(clients), &listen, &interfaces, way);
            let found: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
            assert_eq!(found, ips(expected), "{clients:?}");
        }
        // Who gets nothing is no client.
        let mut rules = share_for(&["10.0.0.0/8", "192.0.2.0/24"]).rules.rules().to_vec();
        rules[0].grants = std::sync::Arc::new([]);
        let share = Share { rules: std::sync::Arc::new(RuleSet::new(rules)), ..share("/srv") };
        assert_eq!(addresses_for(&share, &listen, &interfaces, way), [socket("192.0.2.1:2049")]);
    }

    #[test]
    fn the_way_to_a_peer_is_that_of_the_kernel() {
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(local_address_to(loopback), Some(loopback));
    }
}
