//! Files of the host: name servers, exported directories, mounts.

use std::net::{IpAddr, SocketAddr};

use super::{lines, unescaped};

/// The port of name servers.
const DNS_PORT: u16 = 53;
/// Name servers that the C library asks (`MAXNS`).
const NAME_SERVERS_MAX: usize = 3;

/// `/etc/resolv.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Whom it asks, in this order.
    pub servers: Vec<SocketAddr>,
    /// Seconds until it asks the next.
    pub timeout_s: u64,
    /// How often it asks them all.
    pub attempts: u64,
}

/// Reads `/etc/resolv.conf` (resolv.conf(5)). Without servers that of this host is asked.
pub fn resolver(text: &str) -> Resolver {
    let mut told = Resolver { servers: Vec::new(), timeout_s: 5, attempts: 2 };
    for line in lines(text) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                // An interface behind `%` is for link-local addresses, which are not asked here.
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                told.servers.extend(address.map(|address| SocketAddr::new(address, DNS_PORT)));
            }
            Some("options") => {
                for word in words {
                    let value = |name: &str| word.strip_prefix(name)?.parse::<u64>().ok();
                    told.timeout_s = value("timeout:").unwrap_or(told.timeout_s).clamp(1, 30);
                    told.attempts = value("attempts:").unwrap_or(told.attempts).clamp(1, 5);
                }
            }
            _ => {}
        }
    }
    told.servers.truncate(NAME_SERVERS_MAX);
    told
}

/// Whether `/etc/nsswitch.conf` has hosts looked up by DNS; also without such a line.
pub fn asks_dns(text: &str) -> bool {
    let hosts = lines(text).find_map(|line| line.trim_start().strip_prefix("hosts:"));
    hosts.is_none_or(|services| {
        services.split_whitespace().any(|service| matches!(service, "dns" | "resolve"))
    })
}

/// A directory that the kernel's server exports to somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Its path.
    pub path: String,
    /// To whom.
    pub client: String,
    /// How: words with commas.
    pub options: String,
}

impl Exported {
    /// Whether it has an option.
    pub fn has(&self, word: &str) -> bool {
        self.options.split(',').any(|option| option == word)
    }
}

/// Reads `/var/lib/nfs/etab` (exportfs(8)): a path, and a client with options in parentheses, a line.
pub fn exported(text: &str) -> Vec<Exported> {
    let read = |line: &str| {
        let (path, rest) = line.split_once('\t')?;
        let (client, options) = rest.trim_end().strip_suffix(')')?.split_once('(')?;
        Some(Exported {
            path: unescaped(path),
            client: client.to_owned(),
            options: options.to_owned(),
        })
    };
    lines(text).filter_map(read).collect()
}

/// A file system and what it lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// `MAJOR:MINOR`.
    pub device: String,
    /// Its kind.
    pub kind: String,
}

/// Finds the file system of a device number in `/proc/self/mountinfo`.
pub fn mounted(text: &str, device: &str) -> Option<Mounted> {
    lines(text).find_map(|line| {
        let found = line.split_whitespace().nth(2)?;
        let kind = line.split_once(" - ")?.1.split_whitespace().next()?;
        (found == device).then(|| Mounted { device: device.to_owned(), kind: kind.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read() {
        let text = "# made\nsearch example.com\nnameserver 192.0.2.1\nnameserver ::1\nnameserver odd\n\
                    options timeout:2 attempts:99 rotate\n";
        let told = resolver(text);
        assert_eq!(
            told.servers,
            ["192.0.2.1:53".parse().expect("one"), "[::1]:53".parse().expect("one")]
        );
        assert_eq!((told.timeout_s, told.attempts), (2, 5));
        assert_eq!((resolver("").timeout_s, resolver("").attempts), (5, 2));
        assert!(asks_dns("") && asks_dns("hosts: files dns\n") && !asks_dns("hosts: files\n"));
    }

    #[test]
    fn exports_and_mounts_are_read() {
        let text = "/srv\\040a\t*(rw,sync,wdelay,subtree_check,sec=sys)\nodd\n";
        let [one] = &exported(text)[..] else { panic!("one") };
        assert_eq!((one.path.as_str(), one.client.as_str()), ("/srv a", "*"));
        assert!(one.has("subtree_check") && !one.has("async"));
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n23 1 0:5 / /run rw - tmpfs tmpfs rw\n";
        assert_eq!(mounted(text, "0:5").expect("one").kind, "tmpfs");
        assert_eq!(mounted(text, "0:6"), None);
    }
}
