//! The lines that an administrator pastes on a client.

use std::net::{IpAddr, SocketAddr};

pub(crate) use steadfast_control::plain::quoted;
use steadfast_shares::Share;
use steadfast_sys::process;

/// Addresses told for a share; a machine with more has an administrator who knows them.
const ADDRESSES_MAX: usize = 8;

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

    /// The addresses that clients may use, by those that the machine has now.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let interfaces = process::interface_addresses().unwrap_or_else(|error| {
            tracing::warn!("cannot find out this machine's addresses: {error}");
            Vec::new()
        });
        addresses(&self.listen, &interfaces)
    }

    /// The lines that mount these shares, by the addresses that the machine has now.
    pub(crate) fn lines<'s>(&self, shares: impl Iterator<Item = &'s Share>) -> Vec<String> {
        let addresses = self.addresses();
        let line = |share, address| {
            if self.nfs4 {
                return nfs4_line(share, address);
            }
            mount_line(share, address, self.lookup, self.udp)
        };
        shares
            .flat_map(|share| addresses.iter().map(move |address| line(share, *address)))
            .collect()
    }
}

/// The addresses of this machine that a client may use, most plausible first. `interfaces` are
/// all that are up.
fn addresses(listen: &[SocketAddr], interfaces: &[IpAddr]) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for address in listen {
        if address.ip().is_unspecified() {
            let same_family = interfaces.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
            addresses.extend(same_family.map(|ip| SocketAddr::new(*ip, address.port())));
        } else {
            addresses.push(*address);
        }
    }
    addresses.retain(|address| !is_link_local(address.ip()));
    // Loopback only where there is nothing else: other machines cannot use it.
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        addresses.retain(|address| !address.ip().is_loopback());
    }
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    addresses
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
    use steadfast_shares::ShareId;

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

    #[test]
    fn other_machines_get_addresses_that_they_can_reach() {
        let interfaces: Vec<IpAddr> =
            ["127.0.0.1", "::1", "fd00::1", "fe80::1", "10.0.0.1", "169.254.1.1"]
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect();
        let listen = [socket("0.0.0.0:2049"), socket("[::]:2049")];
        let found = addresses(&listen, &interfaces);
        assert_eq!(found, [socket("10.0.0.1:2049"), socket("[fd00::1]:2049")]);
        assert_eq!(addresses(&listen, &interfaces[..1]), [socket("127.0.0.1:2049")]);
        let one = [socket("127.0.0.1:7")];
        assert_eq!(addresses(&one, &interfaces), one);
    }
}
