//! By what transports this server can be reached.

/// What is listened on: a client must not be sent to where nobody answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transports {
    /// UDP beside TCP.
    pub udp: bool,
    /// An address of IPv4.
    pub ipv4: bool,
    /// An address of IPv6.
    pub ipv6: bool,
}

impl Transports {
    /// Whether a transport of version 3 and 4 is served.
    pub(super) fn has(self, netid: &str) -> bool {
        match netid {
            "tcp" => self.ipv4,
            "udp" => self.ipv4 && self.udp,
            "tcp6" => self.ipv6,
            "udp6" => self.ipv6 && self.udp,
            _ => false,
        }
    }
}
